/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The stream of a connected QP: a socket, the link that speaks iWARP on it, and its turns in the event loop.
 *
 * A stream lives on its own once it is open: it ends with its socket, some seconds after its QP has
 * left at the latest.
 */
#ifndef EA_PCI_STREAM_H
#define EA_PCI_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "adapter/pci/list.h"

struct pci_func;

/*
 * False: @fd is one of the last descriptors that the process may have, which are kept for what clients send and for
 * new ones.  A guest may open connections as many as it likes.
 */
bool pci_stream_may_have(int fd);

/*
 * Connect QP @qpn of @func over the connected socket @fd, which is taken over on success.  0 or errno; EMFILE: see above.
 * The stream is in @all, the list of those that are open, until it ends.
 */
int pci_stream_open(struct pci_list *all, struct pci_func *func, uint32_t qpn, int fd);

void pci_streams_close(struct pci_list *all);

#endif
