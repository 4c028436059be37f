/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The table of descriptors that are ours: device files and directories the program holds, and
 * hidden ones that only this library uses.
 *
 * Every interposed call asks host_fd_ours() first: two loads when the answer is no.
 */
#ifndef EA_FDTAB_H
#define EA_FDTAB_H

#include <stdbool.h>
#include <sys/types.h>
#include "adapter/process/host.h"

enum {
	FDTAB_CHUNK_SHIFT = 10,
	FDTAB_CHUNK = 1 << FDTAB_CHUNK_SHIFT,
	FDTAB_CHUNKS = 1024,
	FDTAB_MAX = FDTAB_CHUNK * FDTAB_CHUNKS, /* greater numbers are never ours */
};

struct fd_slot {
	struct host_file *file; /* NULL: not ours */
	/* identity of the open file, to notice a number that was reused behind our back */
	dev_t dev;
	ino_t ino;
};

extern struct fd_slot *fdtab_chunks[FDTAB_CHUNKS];

static inline struct host_file *fdtab_peek(int fd)
{
	unsigned int number = fd;
	struct fd_slot *chunk;

	if (number >= FDTAB_MAX)
		return NULL;
	chunk = __atomic_load_n(&fdtab_chunks[number >> FDTAB_CHUNK_SHIFT], __ATOMIC_ACQUIRE);
	if (__builtin_expect(!chunk, 1))
		return NULL;
	return __atomic_load_n(&chunk[number & (FDTAB_CHUNK - 1)].file, __ATOMIC_ACQUIRE);
}

static inline bool host_fd_ours(int fd)
{
	return __builtin_expect(fdtab_peek(fd) != NULL, 0);
}

/* Is this a hidden descriptor? */
bool fdtab_hidden(int fd);

/*
 * Is this a process that only shares our memory (child of vfork() or of a raw clone)?  Its
 * descriptors are a copy, so the table must not follow what it does.
 */
bool fdtab_foreign(void);

/* This process, without a system call. */
pid_t fdtab_pid(void);

/*
 * What close(), dup2() and their kin do to a descriptor of ours.  Results as the system call: -1
 * with errno.
 */
int fdtab_close(int fd);
int fdtab_dup(int fd, int new_fd); /* @new_fd was just made from @fd; returns @new_fd */
bool fdtab_forget(int fd); /* the kernel has replaced or closed @fd; true: it was in the table */
int fdtab_close_range(unsigned int first, unsigned int last, int flags);

/* The stand-in that inherited device files become in a child: every operation fails with EIO. */
extern struct host_file fdtab_dead_file;

/* These forget their module's process-wide state in the child of fork(). */
void device_fork_child(void);

#endif
