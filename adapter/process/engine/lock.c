// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The engine lock: a futex mutex whose trylock gives way to sleepers, so that a program that polls
 * in a tight loop cannot keep a control call or the helper thread out for ever.
 */
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "adapter/process/engine/engine_internal.h"
#include "adapter/process/tsan.h"

enum {
	LOCK_FREE,
	LOCK_HELD,
	LOCK_CONTENDED,
	LOCK_SPINS = 100
};

static _Atomic(uint32_t) lock_word;
static _Atomic(uint32_t) lock_sleepers;
static __thread bool lock_mine;
static __thread int lock_cancel_state; /* of the thread, as it was */

static void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static void futex_op(int op, uint32_t value)
{
	syscall(SYS_futex, &lock_word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static bool lock_take(void)
{
	uint32_t expected = LOCK_FREE;

	return atomic_compare_exchange_strong_explicit(&lock_word, &expected, LOCK_HELD,
						       memory_order_acquire, memory_order_relaxed);
}

/*
 * What the holder does contains cancellation points (recvmsg, write...), but the calls that brought it
 * here, ibv_poll_cq() for one, are none: a thread that is cancelled ends when it has let go.
 */
static void taken(void)
{
	int state;

	/* the sanitizer sees what is freed and copied, but not this lock */
	tsan_acquire(&lock_word);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	lock_cancel_state = state;
	lock_mine = true;
}

bool engine_trylock(void)
{
	if (atomic_load_explicit(&lock_word, memory_order_relaxed) != LOCK_FREE ||
	    atomic_load_explicit(&lock_sleepers, memory_order_relaxed) || !lock_take())
		return false;
	taken();
	return true;
}

void engine_lock(void)
{
	int i;

	for (i = 0; i < LOCK_SPINS; i++) {
		if (lock_take())
			goto got_it;
		cpu_relax();
	}
	atomic_fetch_add(&lock_sleepers, 1);
	while (atomic_exchange_explicit(&lock_word, LOCK_CONTENDED, memory_order_acquire) !=
	       LOCK_FREE)
		futex_op(FUTEX_WAIT, LOCK_CONTENDED);
	atomic_fetch_sub(&lock_sleepers, 1);
got_it:
	taken();
}

/*
 * A thread that failed to get the lock has left its kick before it tried a second time; so either
 * we see the kick after the release, or that thread's second try succeeds.  The full barrier on
 * both sides makes it so.
 */
void engine_unlock(void)
{
	int state = lock_cancel_state;

	do {
		engine_kicks_serve();
		engine_before_unlock();
		lock_mine = false;
		tsan_release(&lock_word);
		if (atomic_exchange(&lock_word, LOCK_FREE) == LOCK_CONTENDED)
			futex_op(FUTEX_WAKE, 1);
		atomic_thread_fence(memory_order_seq_cst);
	} while (engine_kicks_waiting() && engine_trylock());
	pthread_setcancelstate(state, NULL);
}

bool engine_lock_held(void)
{
	return lock_mine;
}

bool engine_lock_wanted(void)
{
	return atomic_load_explicit(&lock_sleepers, memory_order_relaxed) != 0;
}

void engine_lock_reinit(void)
{
	atomic_store(&lock_word, LOCK_FREE);
	atomic_store(&lock_sleepers, 0);
	lock_mine = false;
}
