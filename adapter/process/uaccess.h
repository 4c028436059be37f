/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Memory the program names in a command.  A bad address gives -EFAULT as from the kernel, not a
 * crash.
 */
#ifndef EA_UACCESS_H
#define EA_UACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 0 or -EFAULT. */
int uaccess_read(void *dst, uint64_t src, size_t len);
int uaccess_write(uint64_t dst, const void *src, size_t len);
int uaccess_clear(uint64_t dst, size_t len);

/*
 * Read @most bytes, or fewer if the memory ends before, but at least @least; *len tells how many.
 */
int uaccess_read_some(void *dst, uint64_t src, size_t least, size_t most, size_t *len);

/* Are all bytes zero?  1, 0 or -EFAULT. */
int uaccess_is_zero(uint64_t src, size_t len);

/*
 * Could the kernel pin this range, for writing when @write is set?  0, -EINVAL (the range wraps) or
 * -EFAULT.  Pages are made present as pinning does where the range is small; of a large one only
 * both ends, beside that all of it must be mapped with the right.
 */
int uaccess_check_range(uint64_t addr, uint64_t len, bool write);

#endif
