/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A vfio-user client's connection: messages in, replies out.
 *
 * Nothing blocks: what the socket does not take waits in a buffer, and no further message is read until
 * it is empty, so a client that does not read can hold up nobody but itself.  A message that breaks
 * the framing ends the connection; one that is wrong in itself gets an error reply.
 */
#ifndef EA_PCI_SESSION_H
#define EA_PCI_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "adapter/pci/loop.h"

struct pci_func;
struct pci_session;

/*
 * Serve @func to the client on the connected, non-blocking stream socket @fd, which is taken over on success.
 * @ended is called (from the loop, or from pci_session_serve()) when the connection is over; it must
 * close the session.  NULL with errno.
 */
struct pci_session *pci_session_open(struct pci_func *func, int fd,
				     void (*ended)(struct pci_session *session, void *ctx),
				     void *ctx);

/* Close; the function is as new afterwards. */
void pci_session_close(struct pci_session *session);

/* Ask the client: a message @id of @command whose body is @a, then @b.  False: the connection is over. */
bool pci_session_request(struct pci_session *session, uint16_t id, uint16_t command, const void *a,
			 size_t a_len, const void *b, size_t b_len);

/* Take what the client has sent up to now. */
void pci_session_serve(struct pci_session *session);

#endif
