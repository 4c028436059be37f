// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The C library's calls on descriptors: commands to device files, and everything that makes or ends
 * a descriptor.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>
#include "adapter/process/fdtab.h"
#include "adapter/process/libc.h"
#include "adapter/process/netlink.h"

/* ------------------------------------------------------------------ commands */

/*
 * The file to ask, or NULL: then *ret is what to return, unless the descriptor is not ours after
 * all (*real).
 */
static struct host_file *command_file(int fd, bool *real)
{
	struct host_file *file;

	*real = false;
	if (fdtab_hidden(fd)) {
		/*
		 * this library itself; a program that hits such a number by chance harms only a
		 * connection of its own
		 */
		*real = true;
		return NULL;
	}
	file = host_file_get(fd);
	if (!file) {
		/*
		 * a child of vfork() has no business with device files; any other descriptor was
		 * reused
		 */
		if (fdtab_foreign())
			errno = EIO;
		else
			*real = true;
	}
	return file;
}

static ssize_t file_write(int fd, const void *buf, size_t count)
{
	bool real;
	struct host_file *file = command_file(fd, &real);
	int saved_errno = errno;
	ssize_t ret;

	if (!file)
		return real ? REAL(write)(fd, buf, count) : -1;
	if (netlink_is(file)) {
		host_file_put(file);
		return netlink_send(fd, buf, count, 0);
	}
	ret = file->ops->write ? file->ops->write(file, buf, count) : -EINVAL;
	host_file_put(file);
	errno = ret < 0 ? (int)-ret : saved_errno;
	return ret < 0 ? -1 : ret;
}

INTERPOSE ssize_t write(int fd, const void *buf, size_t count)
{
	return host_fd_ours(fd) ? file_write(fd, buf, count) : REAL(write)(fd, buf, count);
}

static ssize_t file_writev(int fd, const struct iovec *iov, int count)
{
	bool real;
	struct host_file *file = command_file(fd, &real);

	if (!file)
		return real ? REAL(writev)(fd, iov, count) : -1;
	/* one command is one write */
	if (count == 1) {
		host_file_put(file);
		return file_write(fd, iov[0].iov_base, iov[0].iov_len);
	}
	host_file_put(file);
	errno = EINVAL;
	return -1;
}

INTERPOSE ssize_t writev(int fd, const struct iovec *iov, int count)
{
	return host_fd_ours(fd) ? file_writev(fd, iov, count) : REAL(writev)(fd, iov, count);
}

static void put_file(void *file)
{
	host_file_put(file);
}

static ssize_t file_read(int fd, void *buf, size_t count)
{
	bool real;
	struct host_file *file = command_file(fd, &real);
	int saved_errno = errno;
	ssize_t ret;

	if (!file)
		return real ? REAL(read)(fd, buf, count) : -1;
	if (!file->ops->read) {
		host_file_put(file);
		return REAL(read)(fd, buf, count);
	}
	/* it may wait, and the thread be cancelled meanwhile */
	pthread_cleanup_push(put_file, file);
	ret = file->ops->read(file, buf, count);
	pthread_cleanup_pop(1);
	errno = ret < 0 ? (int)-ret : saved_errno;
	return ret < 0 ? -1 : ret;
}

INTERPOSE ssize_t read(int fd, void *buf, size_t count)
{
	return host_fd_ours(fd) ? file_read(fd, buf, count) : REAL(read)(fd, buf, count);
}

/* what fortified programs call */
ssize_t __read_chk(int fd, void *buf, size_t count, size_t room);

INTERPOSE ssize_t __read_chk(int fd, void *buf, size_t count, size_t room)
{
	return host_fd_ours(fd) && count <= room ? file_read(fd, buf, count) :
						   REAL(__read_chk)(fd, buf, count, room);
}

static ssize_t file_readv(int fd, const struct iovec *iov, int count)
{
	struct host_file *file = host_file_get(fd);
	bool special = file && file->ops->read;

	if (file)
		host_file_put(file);
	if (!special)
		return REAL(readv)(fd, iov, count);
	/* one MAD is one read */
	if (count == 1)
		return file_read(fd, iov[0].iov_base, iov[0].iov_len);
	errno = EINVAL;
	return -1;
}

INTERPOSE ssize_t readv(int fd, const struct iovec *iov, int count)
{
	return host_fd_ours(fd) ? file_readv(fd, iov, count) : REAL(readv)(fd, iov, count);
}

static int file_ioctl(int fd, unsigned long request, void *arg)
{
	bool real;
	struct host_file *file = command_file(fd, &real);
	int saved_errno = errno, ret;

	if (!file)
		return real ? REAL(ioctl)(fd, request, arg) : -1;
	if (!file->ops->ioctl) {
		/* FIONREAD and the like on a pipe */
		host_file_put(file);
		return REAL(ioctl)(fd, request, arg);
	}
	switch (request) {
	case FIOCLEX:
	case FIONCLEX:
	case FIONBIO:
	case FIOASYNC:
		ret = REAL(ioctl)(fd, request, arg) ? -errno : 0;
		break;
	default:
		ret = file->ops->ioctl(file, request, arg);
		break;
	}
	host_file_put(file);
	errno = ret < 0 ? -ret : saved_errno;
	return ret < 0 ? -1 : ret;
}

INTERPOSE int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	return host_fd_ours(fd) ? file_ioctl(fd, request, arg) : REAL(ioctl)(fd, request, arg);
}

/* ------------------------------------------------------------------ life of a descriptor */

INTERPOSE int close(int fd)
{
	return host_fd_ours(fd) ? fdtab_close(fd) : REAL(close)(fd);
}

INTERPOSE int dup(int fd)
{
	int new_fd = REAL(dup)(fd);

	return host_fd_ours(fd) ? fdtab_dup(fd, new_fd) : new_fd;
}

/* A number the program may not replace. */
static bool protected_number(int fd)
{
	return host_fd_ours(fd) && fdtab_hidden(fd) && !fdtab_foreign();
}

static int after_dup(int fd, int new_fd, int ret)
{
	int saved_errno = errno;

	if (ret < 0 || fd == new_fd || fdtab_foreign())
		return ret;
	if (host_fd_ours(new_fd))
		fdtab_forget(new_fd);
	errno = saved_errno;
	return host_fd_ours(fd) ? fdtab_dup(fd, new_fd) : ret;
}

INTERPOSE int dup2(int fd, int new_fd)
{
	int ret;

	if (protected_number(new_fd)) {
		errno = EBADF;
		return -1;
	}
	ret = REAL(dup2)(fd, new_fd);
	return host_fd_ours(fd) || host_fd_ours(new_fd) ? after_dup(fd, new_fd, ret) : ret;
}

INTERPOSE int dup3(int fd, int new_fd, int flags)
{
	int ret;

	if (protected_number(new_fd)) {
		errno = EBADF;
		return -1;
	}
	ret = REAL(dup3)(fd, new_fd, flags);
	return host_fd_ours(fd) || host_fd_ours(new_fd) ? after_dup(fd, new_fd, ret) : ret;
}

INTERPOSE int fcntl(int fd, int cmd, ...)
{
	va_list args;
	void *arg;
	int ret;

	va_start(args, cmd);
	arg = va_arg(args, void *);
	va_end(args);
	ret = REAL(fcntl)(fd, cmd, arg);
	if ((cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC) && host_fd_ours(fd) && !fdtab_hidden(fd))
		return fdtab_dup(fd, ret);
	return ret;
}
ALIAS64(fcntl, fcntl64);

INTERPOSE int close_range(unsigned int first, unsigned int last, int flags)
{
	return fdtab_close_range(first, last, flags);
}

INTERPOSE void closefrom(int first)
{
	int saved_errno = errno, fd;
	long max;

	if (first < 0)
		first = 0;
	if (fdtab_close_range(first, UINT_MAX, 0)) {
		/* a kernel before 5.9 */
		max = sysconf(_SC_OPEN_MAX);
		for (fd = first; fd < (max > 0 ? max : FDTAB_MAX); fd++)
			close(fd);
	}
	errno = saved_errno;
}
