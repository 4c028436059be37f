// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Registered memory, and the calls that take memory away. */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "adapter/process/engine/engine.h"
#include "adapter/process/faults.h"
#include "adapter/process/libc.h"
#include "adapter/process/regions.h"
#include "adapter/process/uaccess.h"

enum {
	GONE_MAX = 64,
	LOCK_TRIES = 1000,
	LOCK_PAUSE_US = 100,
};

struct range {
	uint64_t start, end;
};

/* A leaf: nothing is called with it held that could come back here. */
static pthread_mutex_t regions_lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *regions;
static unsigned int region_count, region_room;
static uint64_t lowest = UINT64_MAX, highest; /* bounds of all regions, perhaps too wide */

unsigned int regions_gone;
static struct range gone[GONE_MAX];
static bool gone_everywhere; /* more than the table holds */

/* An allocator that unmaps by the interposed call may be called with the lock held. */
static __thread bool inside __attribute__((tls_model("initial-exec")));

static bool overlap(const struct range *range, uint64_t start, uint64_t end)
{
	return range->start < end && start < range->end;
}

static bool registered(uint64_t start, uint64_t end)
{
	unsigned int i;

	for (i = 0; i < region_count; i++) {
		if (overlap(&regions[i], start, end))
			return true;
	}
	return false;
}

int regions_add(uint64_t start, uint64_t len)
{
	struct range *more;
	int ret = 0;

	faults_catch();
	pthread_mutex_lock(&regions_lock);
	if (region_count == region_room) {
		inside = true;
		more = realloc(regions, (region_room * 2 + 64) * sizeof(*more));
		inside = false;
		if (more) {
			regions = more;
			region_room = region_room * 2 + 64;
		} else {
			ret = -ENOMEM;
		}
	}
	if (!ret) {
		regions[region_count++] = (struct range){ start, start + len };
		if (start < lowest)
			__atomic_store_n(&lowest, start, __ATOMIC_RELAXED);
		if (start + len > highest)
			__atomic_store_n(&highest, start + len, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&regions_lock);
	return ret;
}

/* Forget what no region is left for. */
static void gone_sweep(void)
{
	unsigned int i, kept = 0;

	for (i = 0; i < regions_gone && !gone_everywhere; i++) {
		if (registered(gone[i].start, gone[i].end))
			gone[kept++] = gone[i];
	}
	if (gone_everywhere && region_count)
		return;
	gone_everywhere = false;
	__atomic_store_n(&regions_gone, kept, __ATOMIC_RELEASE);
}

void regions_remove(uint64_t start, uint64_t len)
{
	unsigned int i;

	pthread_mutex_lock(&regions_lock);
	/* the latest first: regions often go in the reverse order */
	for (i = region_count; i-- > 0;) {
		if (regions[i].start == start && regions[i].end == start + len) {
			regions[i] = regions[--region_count];
			break;
		}
	}
	if (!region_count) {
		__atomic_store_n(&lowest, UINT64_MAX, __ATOMIC_RELAXED);
		__atomic_store_n(&highest, 0, __ATOMIC_RELAXED);
	}
	if (regions_gone)
		gone_sweep();
	pthread_mutex_unlock(&regions_lock);
}

bool regions_reachable(uint64_t addr, size_t len, bool write)
{
	bool doubtful = false;
	unsigned int i;

	pthread_mutex_lock(&regions_lock);
	for (i = 0; i < regions_gone && !doubtful; i++)
		doubtful = gone_everywhere || overlap(&gone[i], addr, addr + len);
	pthread_mutex_unlock(&regions_lock);
	return !doubtful || !uaccess_check_range(addr, len, write);
}

void regions_fork_child(void)
{
	pthread_mutex_init(&regions_lock, NULL);
	/* another thread may have been in the middle of a change */
	regions = NULL;
	region_count = region_room = 0;
	regions_gone = 0;
	gone_everywhere = false;
	lowest = UINT64_MAX;
	highest = 0;
}

/* ------------------------------------------------------------------ calls that take memory away */

/* Cheap and right nearly always: does this call touch no registered memory? */
static inline bool of_no_interest(const void *addr, size_t len)
{
	uint64_t start = (uintptr_t)addr;

	return start >= __atomic_load_n(&highest, __ATOMIC_RELAXED) ||
	       start + len <= __atomic_load_n(&lowest, __ATOMIC_RELAXED);
}

static bool gone_known(uint64_t start, uint64_t end)
{
	unsigned int i;

	for (i = 0; i < regions_gone; i++) {
		if (gone[i].start <= start && end <= gone[i].end)
			return true;
	}
	return gone_everywhere;
}

static bool note_gone(const void *addr, size_t len)
{
	uint64_t start = (uintptr_t)addr, end = start + len;
	bool mine;

	pthread_mutex_lock(&regions_lock);
	mine = registered(start, end);
	if (mine && gone_known(start, end)) {
		/* as before */
	} else if (mine && regions_gone == GONE_MAX) {
		gone_everywhere = true;
	} else if (mine) {
		gone[regions_gone] = (struct range){ start, end };
		__atomic_store_n(&regions_gone, regions_gone + 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&regions_lock);
	return mine;
}

void regions_lost(uint64_t addr, size_t len, bool write)
{
	if (uaccess_check_range(addr, len, write))
		note_gone((const void *)(uintptr_t)addr, len);
}

/*
 * Around the real call: transfers run under the engine lock, so none is under way in this memory
 * while it goes.  True: the lock is held.  The caller may be an allocator with locks of its own
 * that a transfer waits for, so there is an end to the waiting.
 */
static bool take_begin(const void *addr, size_t len)
{
	int saved_errno = errno, tries;
	bool locked = false;

	if (of_no_interest(addr, len) || inside || !note_gone(addr, len) || engine_lock_held())
		return false;
	for (tries = 0; tries < LOCK_TRIES && !(locked = engine_trylock()); tries++)
		usleep(LOCK_PAUSE_US);
	errno = saved_errno;
	return locked;
}

static void take_end(bool locked)
{
	int saved_errno = errno;

	if (locked)
		engine_unlock();
	errno = saved_errno;
}

INTERPOSE int munmap(void *addr, size_t len)
{
	bool locked = take_begin(addr, len);
	int ret = REAL(munmap)(addr, len);

	take_end(locked);
	return ret;
}

INTERPOSE int mprotect(void *addr, size_t len, int prot)
{
	bool locked = (prot & (PROT_READ | PROT_WRITE)) != (PROT_READ | PROT_WRITE) &&
		      take_begin(addr, len);
	int ret = REAL(mprotect)(addr, len, prot);

	take_end(locked);
	return ret;
}

INTERPOSE void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	bool locked = (flags & MAP_FIXED) && take_begin(addr, len);
	void *ret = REAL(mmap)(addr, len, prot, flags, fd, offset);

	take_end(locked);
	return ret;
}
ALIAS64(mmap, mmap64);

INTERPOSE void *mremap(void *addr, size_t len, size_t new_len, int flags, ...)
{
	void *new_addr, *ret;
	va_list args;
	bool locked;

	va_start(args, flags);
	new_addr = flags & MREMAP_FIXED ? va_arg(args, void *) : NULL;
	va_end(args);
	locked = take_begin(addr, len);
	if ((flags & MREMAP_FIXED) && take_begin(new_addr, new_len))
		locked = true;
	ret = REAL(mremap)(addr, len, new_len, flags, new_addr);
	take_end(locked);
	return ret;
}
