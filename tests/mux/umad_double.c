// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Preloaded into the daemon: the kernel's user-MAD interface, as far as a CM agent sees it. See double.h. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "tests/mux/double.h"

#define EXPORT	   __attribute__((visibility("default")))
#define MAX_FDS	   32768
#define MAX_AGENTS 32
#define HDR	   64

#define IOCTL_REGISTER	  0xc01c1b01ul
#define IOCTL_REGISTER2	  0xc0281b04ul
#define IOCTL_UNREGISTER  0x40041b02ul
#define IOCTL_ENABLE_PKEY 0x1b03ul

struct umad {
	pthread_mutex_t lock; /* the kernel's per-file mutex */
	int ctl;
	bool pkey;
	bool used[MAX_AGENTS];
	uint32_t hi_tid[MAX_AGENTS];
};

static struct umad *table[MAX_FDS];
static struct double_shm *shm;
static const char *dir;

static int (*real_open)(const char *, int, ...);
static int (*real_ioctl)(int, unsigned long, ...);
static int (*real_close)(int);
static int (*real_access)(const char *, int);
static ssize_t (*real_read)(int, void *, size_t);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_posix_fallocate)(int, off_t, off_t);
static DIR *(*real_opendir)(const char *);
static int (*real_scandir)(const char *, struct dirent ***, int (*)(const struct dirent *),
			   int (*)(const struct dirent **, const struct dirent **));

static void find(void *slot, const char *name)
{
	*(void **)slot = dlsym(RTLD_NEXT, name);
}

static void setup(void)
{
	char path[256];
	int fd;

	find(&real_open, "open");
	find(&real_ioctl, "ioctl");
	find(&real_close, "close");
	find(&real_access, "access");
	find(&real_read, "read");
	find(&real_write, "write");
	find(&real_posix_fallocate, "posix_fallocate");
	find(&real_opendir, "opendir");
	find(&real_scandir, "scandir");
	dir = getenv(DOUBLE_ENV);
	if (!dir)
		return;
	snprintf(path, sizeof(path), "%s/shm", dir);
	fd = real_open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return;
	shm = mmap(NULL, sizeof(*shm), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shm == MAP_FAILED)
		shm = NULL;
	real_close(fd);
}

__attribute__((constructor)) static void init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, setup);
}

static const char *redirect(const char *path, char buf[512])
{
	static const char *const mine[] = {
		"/sys/class/infiniband",
		"/sys/module/ib_cm",
		"/dev/infiniband",
	};

	init();
	if (!dir)
		return path;
	for (unsigned int i = 0; i < sizeof(mine) / sizeof(mine[0]); i++) {
		if (strncmp(path, mine[i], strlen(mine[i])) == 0) {
			snprintf(buf, 512, "%s%s", dir, path);
			return buf;
		}
	}
	return path;
}

static struct umad *umad_of(int fd)
{
	return fd >= 0 && fd < MAX_FDS ? __atomic_load_n(&table[fd], __ATOMIC_ACQUIRE) : NULL;
}

static int call(struct umad *u, const struct double_request *req, struct double_reply *rep, int *fd)
{
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { rep, sizeof(*rep) };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg;

	if (send(u->ctl, req, sizeof(*req), MSG_NOSIGNAL) != sizeof(*req))
		return EIO;
	if (recvmsg(u->ctl, &msg, MSG_CMSG_CLOEXEC) != sizeof(*rep))
		return EIO;
	cmsg = CMSG_FIRSTHDR(&msg);
	if (fd && cmsg)
		memcpy(fd, CMSG_DATA(cmsg), sizeof(*fd));
	return rep->error;
}

static int open_umad(unsigned int node)
{
	struct double_request req = { .op = DOUBLE_OPEN, .node = node };
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct umad *u = calloc(1, sizeof(*u));
	struct double_reply rep = { 0 };
	int fd = -1, err;

	if (!u)
		return -1;
	pthread_mutex_init(&u->lock, NULL);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/fabric", dir);
	u->ctl = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (connect(u->ctl, (struct sockaddr *)&addr, sizeof(addr)))
		err = ENXIO;
	else
		err = call(u, &req, &rep, &fd);
	if (err || fd < 0 || fd >= MAX_FDS) {
		real_close(u->ctl);
		free(u);
		errno = err ? err : ENFILE;
		return -1;
	}
	__atomic_store_n(&table[fd], u, __ATOMIC_RELEASE);
	shm->opened++;
	return fd;
}

static int open_any(const char *path, int flags, mode_t mode)
{
	char buf[512];
	unsigned int node;
	char end;

	path = redirect(path, buf);
	if (dir && path == buf &&
	    sscanf(path + strlen(dir), "/dev/infiniband/umad%u%c", &node, &end) == 1) {
		if (real_access(path, F_OK))
			return -1;
		return open_umad(node);
	}
	return real_open(path, flags, mode);
}

EXPORT int open(const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = (flags & O_CREAT) ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	return open_any(path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = (flags & O_CREAT) ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	return open_any(path, flags, mode);
}

/* Fortified builds call this. */
EXPORT int __open_2(const char *path, int flags);
EXPORT int __open_2(const char *path, int flags)
{
	return open_any(path, flags, 0);
}

EXPORT int __open64_2(const char *path, int flags);
EXPORT int __open64_2(const char *path, int flags)
{
	return open_any(path, flags, 0);
}

EXPORT int access(const char *path, int mode)
{
	char buf[512];

	return real_access ? real_access(redirect(path, buf), mode) : (init(), access(path, mode));
}

EXPORT DIR *opendir(const char *path)
{
	char buf[512];

	path = redirect(path, buf);
	return real_opendir(path);
}

EXPORT int scandir(const char *path, struct dirent ***list, int (*filter)(const struct dirent *),
		   int (*cmp)(const struct dirent **, const struct dirent **))
{
	char buf[512];

	path = redirect(path, buf);
	return real_scandir(path, list, filter, cmp);
}

static int do_register(struct umad *u, struct double_request *req, uint32_t *id)
{
	struct double_reply rep = { 0 };
	int err;

	req->op = DOUBLE_REGISTER;
	for (req->slot = 0; req->slot < MAX_AGENTS && u->used[req->slot]; req->slot++)
		;
	if (req->slot == MAX_AGENTS)
		return ENOMEM;
	if (req->qpn > 1)
		return EINVAL;
	err = call(u, req, &rep, NULL);
	if (err)
		return err;
	u->used[req->slot] = true;
	u->hi_tid[req->slot] = rep.hi_tid;
	*id = req->slot;
	return 0;
}

static int umad_ioctl(struct umad *u, unsigned long cmd, uint8_t *arg)
{
	struct double_request req = { 0 };
	struct double_reply rep = { 0 };
	uint32_t id = 0;
	int err = 0;

	switch (cmd) {
	case IOCTL_ENABLE_PKEY:
		for (unsigned int i = 0; i < MAX_AGENTS; i++)
			if (u->used[i])
				err = EINVAL;
		u->pkey = u->pkey || !err;
		break;
	case IOCTL_REGISTER:
		req.qpn = arg[20];
		req.class = arg[21];
		req.version = arg[22];
		memcpy(&req.mask, arg + 4, 4);
		err = do_register(u, &req, &id);
		if (!err)
			memcpy(arg, &id, 4);
		break;
	case IOCTL_REGISTER2:
		memcpy(&req.qpn, arg + 4, 4);
		req.class = arg[8];
		req.version = arg[9];
		memcpy(&req.mask, arg + 16, 4);
		err = do_register(u, &req, &id);
		u->pkey = u->pkey || !err;
		if (!err)
			memcpy(arg, &id, 4);
		break;
	case IOCTL_UNREGISTER:
		memcpy(&id, arg, 4);
		req.op = DOUBLE_UNREGISTER;
		req.slot = id;
		if (id >= MAX_AGENTS || !u->used[id]) {
			err = EINVAL;
			break;
		}
		u->used[id] = false;
		err = call(u, &req, &rep, NULL);
		break;
	default:
		err = ENOTTY;
	}
	errno = err;
	return err ? -1 : 0;
}

EXPORT int ioctl(int fd, unsigned long cmd, ...)
{
	struct umad *u;
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	init();
	u = umad_of(fd);
	return u ? umad_ioctl(u, cmd, arg) : real_ioctl(fd, cmd, arg);
}

EXPORT int close(int fd)
{
	struct umad *u;

	init();
	u = umad_of(fd);
	if (u) {
		__atomic_store_n(&table[fd], NULL, __ATOMIC_RELEASE);
		real_close(u->ctl);
		pthread_mutex_destroy(&u->lock);
		free(u);
		shm->closed++;
	}
	return real_close(fd);
}

EXPORT ssize_t read(int fd, void *buf, size_t len)
{
	struct umad *u;
	ssize_t n;

	init();
	u = umad_of(fd);
	if (!u)
		return real_read(fd, buf, len);
	pthread_mutex_lock(&u->lock);
	n = recv(fd, NULL, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
	if (n == 0) {
		n = -1;
		errno = EIO; /* the device is gone */
	} else if (n > 0 && (size_t)n > len) {
		n = -1;
		errno = EINVAL; /* and it stays at the head */
	} else if (n > 0) {
		n = recv(fd, buf, len, MSG_DONTWAIT);
	}
	pthread_mutex_unlock(&u->lock);
	return n;
}

static bool unresolvable(const uint8_t *gid)
{
	for (uint32_t i = 0; i < shm->n_unresolvable; i++)
		if (memcmp(shm->unresolvable[i], gid, 16) == 0)
			return true;
	return false;
}

static int write_error(struct umad *u, const uint8_t *pkt, size_t len)
{
	uint32_t id;

	memcpy(&id, pkt, 4);
	if (len < HDR + 36 || len > HDR + 256)
		return EINVAL;
	if (id >= MAX_AGENTS)
		return EINVAL;
	if (!u->used[id])
		return EIO;
	if (!pkt[32] && !shm->infiniband) /* no GRH on RoCE */
		return EINVAL;
	if (shm->fault_count) {
		shm->fault_count--;
		return (int)shm->fault_errno;
	}
	if (unresolvable(pkt + 36)) {
		struct timespec ts = { shm->resolve_ms / 1000,
				       (long)(shm->resolve_ms % 1000) * 1000000 };

		shm->blocked++;
		nanosleep(&ts, NULL);
		shm->blocked--;
		return ETIMEDOUT;
	}
	return 0;
}

static ssize_t umad_send(int fd, struct umad *u, const uint8_t *data, size_t len)
{
	uint8_t pkt[HDR + 256] = { 0 };
	uint32_t id, hi;
	int err;

	err = write_error(u, data, len);
	if (err) {
		shm->bad_writes++;
		shm->last_bad = (uint32_t)err;
		errno = err;
		return -1;
	}
	memcpy(pkt, data, len);
	memcpy(&id, pkt, 4);
	/* The upper half of the transaction id is the agent's. */
	hi = u->hi_tid[id];
	pkt[HDR + 8] = (uint8_t)(hi >> 24);
	pkt[HDR + 9] = (uint8_t)(hi >> 16);
	pkt[HDR + 10] = (uint8_t)(hi >> 8);
	pkt[HDR + 11] = (uint8_t)hi;
	for (;;) {
		if (send(fd, pkt, sizeof(pkt), MSG_NOSIGNAL) == sizeof(pkt))
			return (ssize_t)len;
		if (errno != EAGAIN)
			break;
		/* The kernel's send queue has no end; the socket's does. */
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	}
	errno = EIO;
	return -1;
}

EXPORT ssize_t write(int fd, const void *buf, size_t len)
{
	struct umad *u;
	ssize_t n;

	init();
	u = umad_of(fd);
	if (!u)
		return real_write(fd, buf, len);
	pthread_mutex_lock(&u->lock);
	n = umad_send(fd, u, buf, len);
	pthread_mutex_unlock(&u->lock);
	return n;
}

/* A file system with so much room: what a file has already, and what it wants. */
EXPORT int posix_fallocate(int fd, off_t off, off_t len)
{
	struct stat st;

	init();
	if (shm && shm->room && fstat(fd, &st) == 0 &&
	    (uint64_t)st.st_blocks * 512 + (uint64_t)len > shm->room)
		return ENOSPC;
	return real_posix_fallocate(fd, off, len);
}

/* ThreadSanitizer asks for the time inside pthread_once(), so nothing here may be set up on first use. */
EXPORT int clock_gettime(clockid_t id, struct timespec *ts)
{
	int64_t ns;
	int ret;

	ret = syscall(SYS_clock_gettime, id, ts);
	if (ret || id != CLOCK_MONOTONIC || !shm)
		return ret;
	ns = ts->tv_nsec + shm->clock_skew_ns;
	ts->tv_sec += ns / 1000000000;
	ts->tv_nsec = ns % 1000000000;
	return 0;
}

#ifdef COUNT_ALLOCATIONS
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);

static void count(void)
{
	if (shm)
		shm->allocations++;
}

EXPORT void *malloc(size_t size)
{
	count();
	return __libc_malloc(size);
}

EXPORT void *calloc(size_t n, size_t size)
{
	count();
	return __libc_calloc(n, size);
}

EXPORT void *realloc(void *p, size_t size)
{
	count();
	return __libc_realloc(p, size);
}
#endif
