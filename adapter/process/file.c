// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The descriptor table, hidden descriptors, and what fork() does to them. */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "adapter/process/fdtab.h"
#include "adapter/process/libc.h"
#include "adapter/process/umad.h"

struct fd_slot *fdtab_chunks[FDTAB_CHUNKS];

static pthread_mutex_t fd_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fd_once = PTHREAD_ONCE_INIT;
static pid_t fd_owner;
static int fd_hidden_base;

enum {
	FD_ROOM = 65536, /* how far the limit is raised for hidden descriptors */
};

static struct host_file hidden_file; /* marks hidden descriptors; no operation reaches it */

static ssize_t dead_write(struct host_file *file, const void *buf, size_t count)
{
	(void)file, (void)buf, (void)count;
	return -EIO;
}

static ssize_t dead_read(struct host_file *file, void *buf, size_t count)
{
	(void)file, (void)buf, (void)count;
	return -EIO;
}

static int dead_ioctl(struct host_file *file, unsigned long request, void *arg)
{
	(void)file, (void)request, (void)arg;
	return -EIO;
}

static const struct host_file_ops dead_ops = {
	.name = "file of the parent process",
	.read = dead_read,
	.write = dead_write,
	.ioctl = dead_ioctl,
};

struct host_file fdtab_dead_file = { .ops = &dead_ops };

static struct fd_slot *slot_of(int fd, bool create)
{
	unsigned int number = fd;
	struct fd_slot **chunk;

	if (number >= FDTAB_MAX)
		return NULL;
	chunk = &fdtab_chunks[number >> FDTAB_CHUNK_SHIFT];
	if (!*chunk) {
		struct fd_slot *fresh = create ? calloc(FDTAB_CHUNK, sizeof(*fresh)) : NULL;

		if (!fresh)
			return NULL;
		__atomic_store_n(chunk, fresh, __ATOMIC_RELEASE);
	}
	return &(*chunk)[number & (FDTAB_CHUNK - 1)];
}

static void slot_set(struct fd_slot *slot, struct host_file *file)
{
	__atomic_store_n(&slot->file, file, __ATOMIC_RELEASE);
}

/* ------------------------------------------------------------------ fork */

static void fork_prepare(void)
{
	pthread_mutex_lock(&fd_lock);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&fd_lock);
}

static void fork_child(void)
{
	struct fd_slot *slot;
	unsigned int i, j;

	fd_owner = getpid();
	for (i = 0; i < FDTAB_CHUNKS; i++) {
		if (!fdtab_chunks[i])
			continue;
		for (j = 0; j < FDTAB_CHUNK; j++) {
			slot = &fdtab_chunks[i][j];
			if (!slot->file)
				continue;
			if (slot->file == &hidden_file) {
				/*
				 * Sockets among them are connections of the parent: the peer must
				 * see their end when the parent goes, however long this child
				 * lives.
				 */
				slot_set(slot, NULL);
				REAL(close)(i * FDTAB_CHUNK + j);
			} else if (!slot->file->ops->fork_safe) {
				slot_set(slot, &fdtab_dead_file);
			}
		}
	}
	pthread_mutex_init(&fd_lock, NULL);
	engine_fork_child();
	cm_fork_child();
	device_fork_child();
	umad_fork_child();
}

static void fd_init(void)
{
	struct rlimit limit;
	rlim_t old;

	fd_owner = getpid();
	fd_hidden_base = FD_ROOM;
	/*
	 * A connection costs this library descriptors that it does not cost the kernel.  They go
	 * above the program's limit, so that the program can open as many of its own as before.
	 */
	if (!getrlimit(RLIMIT_NOFILE, &limit)) {
		old = limit.rlim_cur;
		if (limit.rlim_max > FDTAB_MAX)
			limit.rlim_max = FDTAB_MAX;
		if (old < FD_ROOM && limit.rlim_max > old) {
			struct rlimit raised;

			getrlimit(RLIMIT_NOFILE, &raised);
			raised.rlim_cur = limit.rlim_max < old + FD_ROOM ? limit.rlim_max :
									   old + FD_ROOM;
			if (setrlimit(RLIMIT_NOFILE, &raised))
				fd_hidden_base = old / 2;
			else
				fd_hidden_base = old;
		} else {
			fd_hidden_base = old < 2 * FD_ROOM ? old / 2 : FD_ROOM;
		}
	}
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static void fd_ready(void)
{
	pthread_once(&fd_once, fd_init);
}

bool fdtab_foreign(void)
{
	return fd_owner && getpid() != fd_owner;
}

pid_t fdtab_pid(void)
{
	fd_ready();
	return fd_owner;
}

/* ------------------------------------------------------------------ files of the program */

static int install(struct host_file *file, int fd)
{
	struct fd_slot *slot;
	struct stat st;

	if (REAL(fstat)(fd, &st))
		return -errno;
	pthread_mutex_lock(&fd_lock);
	slot = slot_of(fd, true);
	if (slot) {
		slot->dev = st.st_dev;
		slot->ino = st.st_ino;
		file->refs++;
		slot_set(slot, file);
	}
	pthread_mutex_unlock(&fd_lock);
	return slot ? 0 : -ENOMEM;
}

int host_file_install(struct host_file *file, int fd)
{
	int ret;

	fd_ready();
	fdtab_forget(fd);
	ret = install(file, fd);
	if (ret)
		REAL(close)(fd);
	return ret;
}

struct host_file *host_file_get(int fd)
{
	int saved_errno = errno;
	struct host_file *file;
	struct fd_slot *slot;
	struct stat st;

	if (!host_fd_ours(fd) || fdtab_foreign())
		return NULL;
	if (REAL(fstat)(fd, &st)) {
		/* closed behind our back: no file has these */
		errno = saved_errno;
		st.st_dev = 0;
		st.st_ino = 0;
	}
	pthread_mutex_lock(&fd_lock);
	slot = slot_of(fd, false);
	file = slot ? slot->file : NULL;
	if (file == &hidden_file) {
		file = NULL;
	} else if (file && (slot->dev != st.st_dev || slot->ino != st.st_ino)) {
		/* closed by a raw system call, perhaps used anew since */
		pthread_mutex_unlock(&fd_lock);
		fdtab_forget(fd);
		return NULL;
	}
	if (file)
		file->refs++;
	pthread_mutex_unlock(&fd_lock);
	return file;
}

void host_file_put(struct host_file *file)
{
	bool last;

	pthread_mutex_lock(&fd_lock);
	last = --file->refs == 0 && file != &fdtab_dead_file;
	pthread_mutex_unlock(&fd_lock);
	if (last && file->ops->release)
		file->ops->release(file);
}

bool fdtab_forget(int fd)
{
	struct host_file *file;
	struct fd_slot *slot;

	if (!host_fd_ours(fd))
		return false;
	pthread_mutex_lock(&fd_lock);
	slot = slot_of(fd, false);
	file = slot ? slot->file : NULL;
	if (file == &hidden_file)
		file = NULL;
	if (file)
		slot_set(slot, NULL);
	pthread_mutex_unlock(&fd_lock);
	if (file)
		host_file_put(file);
	return file != NULL;
}

int fdtab_close(int fd)
{
	struct host_file *file;
	struct fd_slot *slot;
	int ret, saved_errno;

	if (fdtab_foreign())
		return REAL(close)(fd);
	pthread_mutex_lock(&fd_lock);
	slot = slot_of(fd, false);
	file = slot ? slot->file : NULL;
	if (file == &hidden_file) {
		pthread_mutex_unlock(&fd_lock);
		errno = EBADF;
		return -1;
	}
	/* out of the table first: the kernel may give the number away as soon as it is closed */
	if (file)
		slot_set(slot, NULL);
	pthread_mutex_unlock(&fd_lock);
	ret = REAL(close)(fd);
	saved_errno = errno;
	if (file)
		host_file_put(file);
	errno = saved_errno;
	return ret;
}

int fdtab_dup(int fd, int new_fd)
{
	int saved_errno = errno, ret;
	struct host_file *file;

	if (new_fd < 0 || fdtab_foreign())
		return new_fd;
	file = host_file_get(fd);
	if (!file)
		return new_fd;
	ret = install(file, new_fd);
	host_file_put(file);
	if (ret) {
		REAL(close)(new_fd);
		errno = -ret;
		return -1;
	}
	errno = saved_errno;
	return new_fd;
}

/* The next number from @first on that is in the table; FDTAB_MAX when there is none. */
static unsigned int next_ours(unsigned int first)
{
	unsigned int fd;

	for (fd = first; fd < FDTAB_MAX; fd++) {
		if (!fdtab_chunks[fd >> FDTAB_CHUNK_SHIFT]) {
			fd |= FDTAB_CHUNK - 1;
			continue;
		}
		if (host_fd_ours(fd))
			break;
	}
	return fd;
}

int fdtab_close_range(unsigned int first, unsigned int last, int flags)
{
	unsigned int fd, from = first;
	int saved_errno = errno;

	if (first > last) {
		errno = EINVAL;
		return -1;
	}
	if (fdtab_foreign())
		return REAL(close_range)(first, last, flags);
	for (fd = next_ours(first); from <= last; fd = next_ours(fd + 1)) {
		if (fd < FDTAB_MAX && fd <= last && !fdtab_hidden(fd))
			continue;
		if (fd >= FDTAB_MAX || fd > last) {
			if (REAL(close_range)(from, last, flags))
				return -1;
			break;
		}
		if (fd > from && REAL(close_range)(from, fd - 1, flags))
			return -1;
		from = fd + 1;
	}
	if (flags & CLOSE_RANGE_CLOEXEC)
		return 0;
	for (fd = next_ours(first); fd < FDTAB_MAX && fd <= last; fd = next_ours(fd + 1)) {
		if (!fdtab_hidden(fd) && REAL(fcntl)(fd, F_GETFD) < 0)
			fdtab_forget(fd);
	}
	errno = saved_errno;
	return 0;
}

/* ------------------------------------------------------------------ hidden descriptors */

bool fdtab_hidden(int fd)
{
	return fdtab_peek(fd) == &hidden_file;
}

int host_fd_hide(int fd)
{
	struct fd_slot *slot;
	int base, high = -1;

	if (fd < 0)
		return -errno;
	fd_ready();
	for (base = fd_hidden_base; high < 0 && base > 64; base /= 2)
		high = REAL(fcntl)(fd, F_DUPFD_CLOEXEC, base);
	if (high < 0)
		high = REAL(fcntl)(fd, F_DUPFD_CLOEXEC, 0);
	if (high < 0) {
		int err = -errno;

		REAL(close)(fd);
		return err;
	}
	REAL(close)(fd);
	fdtab_forget(high);
	pthread_mutex_lock(&fd_lock);
	slot = slot_of(high, true);
	if (slot)
		slot_set(slot, &hidden_file);
	pthread_mutex_unlock(&fd_lock);
	if (!slot) {
		REAL(close)(high);
		return -ENOMEM;
	}
	return high;
}

void host_fd_unhide_close(int fd)
{
	int saved_errno = errno;
	struct fd_slot *slot;

	pthread_mutex_lock(&fd_lock);
	slot = slot_of(fd, false);
	if (slot && slot->file == &hidden_file)
		slot_set(slot, NULL);
	pthread_mutex_unlock(&fd_lock);
	REAL(close)(fd);
	errno = saved_errno;
}
