/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Two QPs of this process that are connected with each other: messages go from queue to queue and payload from
 * memory to memory, with no socket and no frame in between.
 *
 * To the device model it is a link like any other, with the order, the checks and the Terminate messages
 * of a wire.  One thing is better than on a wire: a Write or Send completes when it has had its effect.
 */
#ifndef EA_PCI_DIRECT_H
#define EA_PCI_DIRECT_H

#include <stdint.h>

#include "adapter/pci/list.h"

struct pci_func;

/*
 * Connect QP @a_qpn of @a with QP @b_qpn of @b; both run on one event loop, and if one works in jobs (far.h) they are the
 * same function.  0 or errno; the QPs are then as they
 * were, or see a peer that has gone.  The pair is in @all, the list of those that are open, until it ends.
 */
int pci_direct_open(struct pci_list *all, struct pci_func *a, uint32_t a_qpn, struct pci_func *b,
		    uint32_t b_qpn);

void pci_directs_close(struct pci_list *all);

#endif
