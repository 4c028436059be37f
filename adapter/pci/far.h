/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Guest memory that only the client can reach: windows without a descriptor, read and written by messages to the
 * client (DMA_READ, DMA_WRITE).
 *
 * A message takes time, and the device model wants its memory at once.  So the work of a function whose command queue
 * lies in such a window is done in jobs, one after the other, on a thread of its own that runs only while the event
 * loop stands still for it.  Where a job has to wait for the client it stands still itself and the loop goes on, with
 * the other functions and with this one's messages.  To all of the code there is one thread.
 *
 * A job sees each page as it was when the job first touched it.  What it writes leaves in the order in which it was
 * written, the first word of a queue entry last, and interrupts are raised when the client has it all.
 *
 * A client that does not answer within PCI_FAR_WAIT_NS is not asked again: its windows are out of reach then.
 * An unmap, a reset and the end of the client let the job under way fail at once.
 *
 * An atomic is one towards other work of the adapter, not towards the guest's processors.
 */
#ifndef EA_PCI_FAR_H
#define EA_PCI_FAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "adapter/pci/list.h"

struct pci_func;
struct pci_far;
struct vfu_hdr;

#define PCI_FAR_WAIT_NS 5000000000ull

/* A piece of a function's work.  Zero-initialised but for run, it waits for nothing. */
struct pci_job {
	void (*run)(struct pci_job *job);
	struct pci_list place; /* private */
};

/* Run @job: at once, or in its turn when the function works in jobs.  No effect on one that waits already. */
void pci_job_enter(struct pci_func *func, struct pci_job *job);
void pci_job_cancel(struct pci_job *job); /* idempotent */

/* Is there a window without memory at @addr?  A function whose queues are there must work in jobs. */
bool pci_far_is(const struct pci_func *func, uint64_t addr);

int pci_far_start(struct pci_func *func); /* 0 or errno; idempotent */
void pci_far_stop(struct pci_func *func); /* idempotent */

/* Let the job under way fail and end; @forget: and all that wait.  No effect on a function that works without. */
void pci_far_settle(struct pci_func *func, bool forget);

/* Queue a doorbell.  One of the same queue that waits already is overtaken. */
void pci_far_bell(struct pci_func *func, uint32_t off, uint64_t value);

/* As pci_dma_ptr(), within a job. */
void *pci_far_ptr(struct pci_far *far, uint64_t addr, size_t *len, bool write);

/* Wait until the client has what the job has written so far: before a peer is told of it. */
void pci_far_sync(struct pci_func *func);

/* The client's answer; false when nobody asked. */
bool pci_far_reply(struct pci_func *func, const struct vfu_hdr *hdr, const uint8_t *body);

#endif
