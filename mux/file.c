// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "mux/file.h"

#include <fcntl.h>
#include <unistd.h>

ssize_t file_read_text(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len;

	if (fd < 0)
		return -1;
	len = read(fd, buf, size - 1);
	close(fd);
	if (len < 0)
		return -1;
	while (len > 0 && buf[len - 1] == '\n')
		len--;
	buf[len] = '\0';
	return len;
}
