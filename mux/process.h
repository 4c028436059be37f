/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The process behind a client: who it is, beyond a number that another may get, and whether it still lives. May be called
 * from any thread.
 */
#ifndef MUX_PROCESS_H
#define MUX_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Start time of a process in clock ticks, which with the pid names it for good; 0 if it is gone. */
uint64_t process_started(pid_t pid);

/* Its path in the unified cgroup hierarchy, somewhere in buf; NULL if it has none or is gone. */
char *process_cgroup(pid_t pid, char *buf, size_t size);

/*
 * A descriptor that becomes readable when the process ends, for the caller to close, or -1. With the connected socket fd it is the one
 * that connected, whatever has become of its pid since; with fd -1 or on older kernels whoever has the pid now.
 */
int process_pidfd(int fd, pid_t pid);

/* Whether the process of such a descriptor has ended; false for -1. */
bool process_exited(int pidfd);

#endif
