/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The lock of a queue.
 *
 * Held for tens of instructions and never across a system call. An object whose user promised a
 * single thread (a thread domain, a single-threaded CQ) has a lock that is not shared; its data
 * path is chosen at creation and does not touch the lock, and erdma_lock() does nothing.
 */
#ifndef ERDMA_LOCK_H
#define ERDMA_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

#include <util/compiler.h>

struct erdma_lock {
	atomic_uint held;
	bool shared;
};

/* Waits for a lock that was found held: spins briefly, then gives the CPU to the holder. */
void erdma_lock_contended(struct erdma_lock *lock);

static inline void erdma_lock_init(struct erdma_lock *lock, bool shared)
{
	atomic_init(&lock->held, 0);
	lock->shared = shared;
}

static inline bool erdma_spin_trylock(struct erdma_lock *lock)
{
	return !atomic_exchange_explicit(&lock->held, 1, memory_order_acquire);
}

/* For code that knows the lock is shared. */
static inline void erdma_spin_lock(struct erdma_lock *lock)
{
	if (unlikely(!erdma_spin_trylock(lock)))
		erdma_lock_contended(lock);
}

static inline void erdma_spin_unlock(struct erdma_lock *lock)
{
	atomic_store_explicit(&lock->held, 0, memory_order_release);
}

static inline void erdma_lock(struct erdma_lock *lock)
{
	if (lock->shared)
		erdma_spin_lock(lock);
}

static inline void erdma_unlock(struct erdma_lock *lock)
{
	if (lock->shared)
		erdma_spin_unlock(lock);
}

#endif
