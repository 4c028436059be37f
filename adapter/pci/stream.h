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

struct pci_func;
struct pci_loop;
struct pci_stream;

/* All that are open, so that they can be closed. */
struct pci_streams {
	struct pci_stream *first;
};

/*
 * False: @fd is one of the last descriptors that the process may have, which are kept for what clients send and for
 * new ones.  A guest may open connections as many as it likes.
 */
bool pci_stream_may_have(int fd);

/*
 * Connect QP @qpn of @func over the connected socket @fd, which is taken over on success.  0 or errno; EMFILE: see above.
 */
int pci_stream_open(struct pci_streams *all, struct pci_func *func, uint32_t qpn, int fd);

void pci_streams_close(struct pci_streams *all);

#endif
