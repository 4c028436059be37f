// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "mux/process.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mux/file.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

uint64_t process_started(pid_t pid)
{
	char path[32], buf[512], *p;
	unsigned long long started = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (file_read_text(path, buf, sizeof(buf)) < 0)
		return 0;
	/* The second field is a name in parentheses and may hold anything; the start time is the 22nd. */
	p = strrchr(buf, ')');
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	if (p)
		started = strtoull(p, NULL, 10);
	return started;
}

char *process_cgroup(pid_t pid, char *buf, size_t size)
{
	char path[32], *p, *end;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	if (file_read_text(path, buf, size) < 0)
		return NULL;
	p = strstr(buf, "0::");
	if (!p)
		return NULL;
	p += 3;
	end = strchr(p, '\n');
	if (end)
		*end = '\0';
	return p;
}

int process_pidfd(int fd, pid_t pid)
{
	socklen_t len = sizeof(int);
	int pidfd;

	if (fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) == 0)
		return pidfd;
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

bool process_exited(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return pidfd >= 0 && poll(&p, 1, 0) == 1;
}
