/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Files of a few lines, as those of /proc and /sys. May be called from any thread. */
#ifndef MUX_FILE_H
#define MUX_FILE_H

#include <sys/types.h>

/*
 * Reads as much of the file as fits into buf with an end of string, and leaves line ends at its end out. Returns the string's length,
 * or -1 with errno.
 */
ssize_t file_read_text(const char *path, char *buf, size_t size);

#endif
