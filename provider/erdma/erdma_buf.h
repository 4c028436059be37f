/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Memory that the adapter reads and writes: rings and doorbell records.
 */
#ifndef ERDMA_BUF_H
#define ERDMA_BUF_H

#include <stddef.h>

struct erdma_buf {
	void *addr;
	size_t size; /* multiple of the host page size */
};

/*
 * Gets at least @size bytes (not 0) of zeroed, page-aligned memory that a fork leaves with the
 * parent. Every page is written once, so that pinning it read-only pins this page for good.
 * Returns 0, or -1 with errno set.
 */
int erdma_buf_alloc(struct erdma_buf *buf, size_t size);

/* Gives the memory back. No object of the kernel may use it any more. Keeps errno. */
void erdma_buf_free(struct erdma_buf *buf);

#endif
