/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Guest memory: the windows that the client has mapped, and the way from a bus address to host memory.
 *
 * A window with a descriptor is mapped here and can be read and written within the rights it was
 * given.  A window without one (a ROM, another device's registers) is remembered, so that it can be
 * unmapped, but nothing can be reached through it.
 *
 * Pointers are valid until the next pci_dma_unmap() or pci_dma_clear() that covers them: nobody may keep
 * one longer than a step of the event loop.  That is the quiescent point that an unmap needs, since
 * everything runs on one thread.
 *
 * A client may cut its file shorter afterwards, or give one of huge pages that the system has not got.  A touch of such a page
 * gets zeros of our own, and not the end of the process, once pci_dma_guard() was called; from then on nothing
 * is reached through the window.
 */
#ifndef EA_PCI_DMA_H
#define EA_PCI_DMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	/*
	 * Windows with memory that a table may have.  All functions of a process share the mappings that it may have
	 * (65530 by default), and the guard may part each in two.
	 */
	PCI_MAX_MAPPED = 1536,
};

/* Bytes that the mappings of a table may have: the functions of a process share its address space. */
#define PCI_MAX_MAPPED_BYTES (1ull << 42)

struct pci_window {
	uint64_t addr;
	uint64_t size;
	uint8_t *mem;  /* NULL: not reachable */
	uint8_t *base; /* of the mapping, which has whole pages of the file's kind */
	size_t len;
	bool read, write;
	volatile bool cut; /* its file was made shorter: not reachable any more */
};

struct pci_dma {
	struct pci_window *windows; /* by address, no two overlap */
	uint32_t count, room;
	uint32_t mapped;       /* windows with memory */
	uint64_t mapped_bytes; /* of their mappings */
	uint32_t last;	       /* window of the last hit */
	struct pci_dma *next;  /* all tables, for the guard */
	bool listed;
};

/* Zero-initialised is empty. */

/*
 * Add a window of @size bytes at bus address @addr; @fd with @offset is its memory, or negative.  The
 * descriptor stays the caller's.  EINVAL (no size, not whole pages, wraps, neither readable nor writable, @fd
 * shorter than the window), EEXIST (overlaps one), ENOSPC (too many, or too much), ENOMEM, or what mmap() says.
 */
int pci_dma_map(struct pci_dma *dma, uint64_t addr, uint64_t size, int fd, uint64_t offset,
		bool read, bool write);

/* Remove exactly the window @addr, @size.  ENOENT. */
int pci_dma_unmap(struct pci_dma *dma, uint64_t addr, uint64_t size);

/* Remove all and free the table. */
void pci_dma_clear(struct pci_dma *dma);

/*
 * Pointer to @addr.  @len: in, the bytes wanted; out, how many lie there in one piece (1..wanted).  NULL: not
 * reachable for reading, or for @write.
 */
void *pci_dma_ptr(struct pci_dma *dma, uint64_t addr, size_t *len, bool write);

/* The window that @addr is in, with memory or without; good until the table changes.  NULL: none. */
const struct pci_window *pci_dma_window(const struct pci_dma *dma, uint64_t addr);

/* Take SIGBUS for this process. 0 or errno. */
int pci_dma_guard(void);

#endif
