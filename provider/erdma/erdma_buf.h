/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Memory that the adapter reads and writes: rings and doorbell records.
 */
#ifndef ERDMA_BUF_H
#define ERDMA_BUF_H

#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_verbs.h>

/* An application's own allocator for the objects of a parent domain; alloc NULL: none. */
struct erdma_allocator {
	struct ibv_pd *pd;
	void *pd_context;
	void *(*alloc)(struct ibv_pd *pd, void *pd_context, size_t size, size_t alignment,
		       uint64_t resource_type);
	void (*free)(struct ibv_pd *pd, void *pd_context, void *ptr, uint64_t resource_type);
};

/* What an allocator is told the memory is for. */
#define ERDMA_RES_TYPE(n) ((uint64_t)RDMA_DRIVER_ERDMA << 32 | (n))
#define ERDMA_RES_TYPE_QP ERDMA_RES_TYPE(0)
#define ERDMA_RES_TYPE_CQ ERDMA_RES_TYPE(1)

struct erdma_buf {
	void *addr;
	size_t size;				 /* multiple of the host page size */
	const struct erdma_allocator *allocator; /* whose memory it is; NULL: the system's */
	uint64_t resource_type;
};

/*
 * Gets at least @size bytes (not 0) of zeroed, page-aligned memory that a fork leaves with the
 * parent, from @allocator or, if that is NULL or has it so, from the system. Every page is written
 * once, so that pinning it read-only pins this page for good. @allocator must stay until the memory
 * is given back. Returns 0, or -1 with errno set.
 */
int erdma_buf_alloc(struct erdma_buf *buf, size_t size, const struct erdma_allocator *allocator,
		    uint64_t resource_type);

/* Gives the memory back. No object of the kernel may use it any more. Keeps errno. */
void erdma_buf_free(struct erdma_buf *buf);

#endif
