/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Where adapters meet.
 *
 * Two guests set a connection up over their own TCP stacks; each tells its adapter the end of it: the
 * cookies of both QPs, and the address pair.  The two ends may sit in one function, in two functions
 * of this process, in two processes of this host or on two hosts.  The fabric brings them together
 * and puts a stream between them.  The stream is iWARP without an MPA start: the guests have done that.
 *
 * Either end may come first, and its guest may send at once: until the other end is there the QP stays as it
 * was, and the device model remembers its doorbells.  An end that finds no peer within PCI_FABRIC_WAIT_NS
 * goes to ERROR with a QP_FATAL event.
 *
 * Cookies are random 32-bit numbers, so no guest can take the place of a peer by guessing.
 */
#ifndef EA_PCI_FABRIC_H
#define EA_PCI_FABRIC_H

#include <stdbool.h>
#include <stdint.h>
#include <linux/types.h>

struct pci_func;
struct pci_loop;
struct pci_fabric;

#define PCI_FABRIC_WAIT_NS 10000000000ull

struct pci_fabric_key {
	uint32_t own_cookie, peer_cookie;
	__be32 sip, dip; /* local and peer */
	__be16 sport, dport;
	uint32_t send_nxt, recv_nxt; /* TCP sequence numbers behind the MPA exchange */
};

/* @loop must outlive it. NULL with errno. */
struct pci_fabric *pci_fabric_create(struct pci_loop *loop);
/* Functions are gone before. */
void pci_fabric_destroy(struct pci_fabric *fabric);

/* QPs of @func can be found by others from now on, until it is removed. */
int pci_fabric_add_func(struct pci_fabric *fabric, struct pci_func *func); /* 0 or ENOMEM */
void pci_fabric_del_func(struct pci_fabric *fabric, struct pci_func *func);

/*
 * The QP wants RTS.  Connects it at once when its peer waits, else later.  0, or an errno when resources are
 * short; then the QP is as before.
 */
int pci_fabric_join(struct pci_func *func, uint32_t qpn, const struct pci_fabric_key *key);

/* The QP does not want to be connected any more; of no effect on one that is. */
void pci_fabric_leave(struct pci_func *func, uint32_t qpn);

/* ---- the way to other processes */

/*
 * Meet the processes that use folder @dir as well: a socket is made in it.  0 or errno.
 * Whoever may write to the folder may join.
 */
int pci_fabric_use_dir(struct pci_fabric *fabric, const char *dir);

/* Listen on @where ("address:port") for adapters of other hosts; try those at @where. 0 or errno. */
int pci_fabric_listen(struct pci_fabric *fabric, const char *where);
int pci_fabric_add_peer(struct pci_fabric *fabric, const char *where);

#endif
