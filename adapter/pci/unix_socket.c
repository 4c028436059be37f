// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "adapter/pci/unix_socket.h"

enum {
	BACKLOG = 64
};

static int fill(struct sockaddr_un *addr, const char *path)
{
	memset(addr, 0, sizeof(*addr));
	addr->sun_family = AF_UNIX;
	if (strlen(path) >= sizeof(addr->sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(addr->sun_path, path);
	return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static int close_failed(int fd)
{
	int err = errno;

	close(fd);
	errno = err;
	return -1;
}

int pci_unix_connect(const char *path)
{
	struct sockaddr_un addr;
	int fd = fill(&addr, path);

	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
		return close_failed(fd);
	return fd;
}

/* A file that is no socket refuses connections just as one that nobody serves. */
static bool is_socket(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISSOCK(st.st_mode);
}

int pci_unix_listen(const char *path)
{
	struct sockaddr_un addr;
	int probe, fd = fill(&addr, path);

	if (fd < 0)
		return -1;
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr))) {
		if (errno != EADDRINUSE)
			return close_failed(fd);
		probe = pci_unix_connect(path);
		if (probe >= 0 || errno != ECONNREFUSED || !is_socket(path)) {
			if (probe >= 0)
				close(probe);
			errno = EADDRINUSE;
			return close_failed(fd);
		}
		unlink(path);
		if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)))
			return close_failed(fd);
	}
	if (listen(fd, BACKLOG)) {
		unlink(path);
		return close_failed(fd);
	}
	return fd;
}
