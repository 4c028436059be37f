/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The event loop of the PCI host: descriptors, timers and work on one thread.
 *
 * All callbacks run from pci_loop_run() with a clean stack, one at a time; each must return soon and
 * never block.  A descriptor, timer or work item may be removed (and its memory freed) inside any
 * callback, its own included; nothing is called for it afterwards.
 */
#ifndef EA_PCI_LOOP_H
#define EA_PCI_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "adapter/pci/list.h"

struct pci_loop;

struct pci_loop *pci_loop_create(void); /* NULL with errno */
void pci_loop_destroy(struct pci_loop *loop);

/* Serve until pci_loop_stop(). */
void pci_loop_run(struct pci_loop *loop);
/* Wait for at most @timeout_ms (-1: as long as it takes) and serve what is there. */
void pci_loop_once(struct pci_loop *loop, int timeout_ms);
/* From a callback: the current pci_loop_run() ends after this round, or the next one at once. */
void pci_loop_stop(struct pci_loop *loop);

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t pci_loop_now(void);

struct pci_fd {
	int fd;
	uint32_t events; /* EPOLLIN, ...; level triggered */
	void (*ready)(struct pci_fd *pfd, uint32_t events);
	bool added; /* private */
};

int pci_fd_add(struct pci_loop *loop, struct pci_fd *pfd); /* 0 or errno */
void pci_fd_mod(struct pci_loop *loop, struct pci_fd *pfd, uint32_t events);
void pci_fd_del(struct pci_loop *loop, struct pci_fd *pfd); /* does not close; idempotent */

/* Runs once, soon, in the order of queueing. */
struct pci_work {
	void (*run)(struct pci_work *work);
	struct pci_list place; /* private */
};

void pci_work_queue(struct pci_loop *loop, struct pci_work *work); /* idempotent */
void pci_work_cancel(struct pci_work *work);			   /* idempotent */

/*
 * Memory that others write without a word.  While something happens (a look that finds news, work, a descriptor) it
 * is looked at between any two things the loop does.  When nothing happens any more the thread sleeps in
 * between, longer and longer: for an eighth of the pause so far up to PCI_POLL_SLEEP_NS, and in pauses of seconds for
 * a thousandth of it up to PCI_POLL_SLEEP_MAX_NS.  Where much has to be looked at it sleeps PCI_POLL_SHARE times as
 * long as it looks, up to PCI_POLL_SLEEP_MOST_NS.  So what ends a pause is seen late by a part of it, and an idle
 * loop costs next to nothing.
 */
struct pci_poll {
	bool (*look)(struct pci_poll *poll); /* true: there was something */
	struct pci_list place;		     /* private */
};

enum {
	PCI_POLL_SPIN_NS = 100000, /* a guest that answers at once does so within this */
	PCI_POLL_SLEEP_NS = 1000000,
	PCI_POLL_SLEEP_MAX_NS = 4000000,
	PCI_POLL_SLEEP_MOST_NS = 20000000,
	PCI_POLL_SHARE = 200,
};

void pci_poll_add(struct pci_loop *loop, struct pci_poll *poll); /* idempotent */
void pci_poll_del(struct pci_poll *poll);			 /* idempotent */

/* One shot. */
struct pci_timer {
	uint64_t due_ns;
	void (*fire)(struct pci_timer *timer);
	struct pci_list place; /* private */
};

void pci_timer_set(struct pci_loop *loop, struct pci_timer *timer, uint64_t delay_ns);
void pci_timer_cancel(struct pci_timer *timer); /* idempotent */

#endif
