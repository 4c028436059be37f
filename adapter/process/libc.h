/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The C library's own functions behind those that this library interposes.
 *
 * REAL(open)(path, flags) calls the next definition of open() in the search order.  The address is
 * looked up once for each place and kept; no lock, no memory, so it works inside constructors
 * of other libraries, allocators and the child of vfork().
 */
#ifndef EA_LIBC_H
#define EA_LIBC_H

#include "adapter/process/tsan.h"

/* The next definition of @name; ends the process with a message when there is none. */
void *libc_lookup(const char *name);

#define REAL(fn)                                                                       \
	({                                                                             \
		static __typeof__(&fn) real_##fn;                                      \
		__typeof__(&fn) next_ = __atomic_load_n(&real_##fn, __ATOMIC_RELAXED); \
		if (__builtin_expect(!next_, 0)) {                                     \
			next_ = (__typeof__(&fn))libc_lookup(#fn);                     \
			__atomic_store_n(&real_##fn, next_, __ATOMIC_RELAXED);         \
		}                                                                      \
		next_;                                                                 \
	})

/* Marks the functions that this library offers in the C library's place. */
#define INTERPOSE UNWATCHED __attribute__((visibility("default")))

/*
 * The name that programs built for large files call.  Where long has 64 bits both names take the
 * same arguments, so both are the same function.
 */
_Static_assert(sizeof(long) == 8, "struct stat and its like are the same in both forms");
#define ALIAS64(name, name64) __asm__(".globl " #name64 "\n\t.set " #name64 ", " #name)

#endif
