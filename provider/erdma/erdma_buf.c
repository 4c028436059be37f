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

int erdma_buf_alloc(struct erdma_buf *buf, size_t size)
{
	void *addr;
	int ret;

	size = align(size, sysconf(_SC_PAGESIZE));
	addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (addr == MAP_FAILED)
		return -1;

	errno = 0;
	ret = ibv_dontfork_range(addr, size);
	if (ret) {
		/* Some versions return the error, others leave it in errno. */
		if (!errno)
			errno = ret > 0 ? ret : ENOMEM;
		ret = errno;
		munmap(addr, size);
		errno = ret;
		return -1;
	}

	memset(addr, 0, size);
	buf->addr = addr;
	buf->size = size;
	return 0;
}

void erdma_buf_free(struct erdma_buf *buf)
{
	int saved_errno = errno;

	ibv_dofork_range(buf->addr, buf->size);
	munmap(buf->addr, buf->size);
	buf->addr = NULL;
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
