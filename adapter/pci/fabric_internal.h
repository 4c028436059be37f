/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* What the two halves of the fabric share: meeting within the process, and the way to others. */
#ifndef EA_PCI_FABRIC_INTERNAL_H
#define EA_PCI_FABRIC_INTERNAL_H

#include <stdbool.h>

#include "adapter/pci/direct.h"
#include "adapter/pci/fabric.h"
#include "adapter/pci/far.h"
#include "adapter/pci/loop.h"
#include "adapter/pci/stream.h"

struct pci_net;

/* A QP whose peer is not there yet. */
struct pci_wait {
	struct pci_list place; /* among those that wait */
	struct pci_fabric *fabric;
	struct pci_func *func;
	uint32_t qpn;
	struct pci_fabric_key key;
	struct pci_timer timer; /* until it is given up */
	struct pci_job expired;
	struct pci_job connect; /* over fd, in the function's turn */
	int fd;			/* -1: none */
	struct pci_timer retry; /* until others are asked again */
	uint64_t pause_ns;	/* of retry */
	struct pci_list dials;	/* others that are being asked */
};

struct pci_fabric {
	struct pci_loop *loop;
	struct pci_list streams, directs;
	struct pci_list waiting; /* the newest first */
	struct pci_func **funcs;
	uint32_t nfuncs;
	struct pci_net *net; /* NULL: nobody but this process */
};

/* Are these the two ends of one connection? */
bool pci_fabric_match(const struct pci_fabric_key *a, const struct pci_fabric_key *b);

/* The QP with this cookie, waiting or not. */
bool pci_fabric_owns(const struct pci_fabric *fabric, uint32_t cookie);

/*
 * Connect a waiting QP over @fd, which is taken over on success; the wait is over then, or will be when it is the
 * function's turn.  0 or errno; EALREADY: it is being connected.
 */
int pci_wait_connect(struct pci_wait *wait, int fd);

/* ---- fabric_net.c; all accept a fabric without net */

/* Ask others for the peer, now and again until the wait ends. */
void pci_net_ask(struct pci_wait *wait);
void pci_net_forget(struct pci_wait *wait);

/* Has somebody asked for this QP already?  True when it was connected. */
bool pci_net_claim(struct pci_wait *wait);

void pci_net_destroy(struct pci_fabric *fabric);

#endif
