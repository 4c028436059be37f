// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

#include <config.h>

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <infiniband/driver.h>
#include <util/util.h>

#include "erdma_buf.h"
#include "erdma_lock.h"

static int get_memory(struct erdma_buf *buf, const struct erdma_allocator *allocator)
{
	void *addr;

	if (allocator && allocator->alloc) {
		addr = allocator->alloc(allocator->pd, allocator->pd_context, buf->size,
					sysconf(_SC_PAGESIZE), buf->resource_type);
		if (!addr) {
			errno = ENOMEM;
			return -1;
		}
		if (addr != IBV_ALLOCATOR_USE_DEFAULT) {
			buf->addr = addr;
			buf->allocator = allocator;
			return 0;
		}
	}

	addr = mmap(NULL, buf->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (addr == MAP_FAILED)
		return -1;
	buf->addr = addr;
	buf->allocator = NULL;
	return 0;
}

static void put_memory(struct erdma_buf *buf)
{
	const struct erdma_allocator *allocator = buf->allocator;

	if (allocator)
		allocator->free(allocator->pd, allocator->pd_context, buf->addr,
				buf->resource_type);
	else
		munmap(buf->addr, buf->size);
	buf->addr = NULL;
}

int erdma_buf_alloc(struct erdma_buf *buf, size_t size, const struct erdma_allocator *allocator,
		    uint64_t resource_type)
{
	int ret;

	buf->size = align(size, sysconf(_SC_PAGESIZE));
	buf->resource_type = resource_type;
	if (get_memory(buf, allocator))
		return -1;

	errno = 0;
	ret = ibv_dontfork_range(buf->addr, buf->size);
	if (ret) {
		/* Some versions return the error, others leave it in errno. */
		if (!errno)
			errno = ret > 0 ? ret : ENOMEM;
		ret = errno;
		put_memory(buf);
		errno = ret;
		return -1;
	}

	/* What comes from the kernel is zero, and takes no memory before it is used. */
	if (buf->allocator)
		memset(buf->addr, 0, buf->size);
	return 0;
}

void erdma_buf_free(struct erdma_buf *buf)
{
	int saved_errno = errno;

	ibv_dofork_range(buf->addr, buf->size);
	put_memory(buf);
	errno = saved_errno;
}

/* How often to look before the CPU is offered to whoever holds the lock. */
#define ERDMA_SPINS_BEFORE_YIELD 256

void erdma_lock_contended(struct erdma_lock *lock)
{
	unsigned int spins = 0;

	do {
		while (atomic_load_explicit(&lock->held, memory_order_relaxed)) {
			if (++spins % ERDMA_SPINS_BEFORE_YIELD == 0)
				sched_yield();
		}
	} while (atomic_exchange_explicit(&lock->held, 1, memory_order_acquire));
}
