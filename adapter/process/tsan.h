/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Order that ThreadSanitizer does not see: what came before tsan_release() comes before what follows a later
 * tsan_acquire() of the same address.
 *
 * A program that is built with it has these functions; in any other they are not there, and nothing is done.
 */
#ifndef EA_TSAN_H
#define EA_TSAN_H

void __tsan_acquire(void *addr) __attribute__((weak));
void __tsan_release(void *addr) __attribute__((weak));

static inline void tsan_acquire(void *addr)
{
	if (__tsan_acquire)
		__tsan_acquire(addr);
}

static inline void tsan_release(void *addr)
{
	if (__tsan_release)
		__tsan_release(addr);
}

/*
 * What a sanitizer calls while it reports: were it watched, ThreadSanitizer would report inside of its report,
 * and wait for itself.
 */
#define UNWATCHED __attribute__((no_sanitize("thread")))

#endif
