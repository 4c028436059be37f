// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The C library's calls that name a file: those that lead into the virtual tree are answered here.
 *
 * The library's own helpers (fopen, realpath, ...) do not come back through open() or readlink(),
 * so each of them is here too.  A call that is not ours is passed on unchanged, after a look at the
 * first letters of its path.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "adapter/process/fdtab.h"
#include "adapter/process/libc.h"
#include "adapter/process/vfs.h"

/* Set errno and fail. */
static int fail(int err)
{
	errno = err;
	return -1;
}

/* ------------------------------------------------------------------ open */

static mode_t open_mode(int flags, va_list args)
{
	return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, mode_t) : 0;
}

static int do_open(int dirfd, const char *path, int flags, mode_t mode)
{
	struct vfs_res res;

	switch (vfs_lookup(dirfd, path, !(flags & O_NOFOLLOW), &res)) {
	case VFS_NODE:
		return vfs_open(&res, flags);
	case VFS_ERROR:
		return fail(res.err);
	case VFS_REAL_PATH:
		return REAL(openat)(AT_FDCWD, res.path, flags, mode);
	default:
		return REAL(openat)(dirfd, path, flags, mode);
	}
}

INTERPOSE int open(const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = open_mode(flags, args);
	va_end(args);
	return vfs_elsewhere(AT_FDCWD, path) ? REAL(open)(path, flags, mode) :
					       do_open(AT_FDCWD, path, flags, mode);
}
ALIAS64(open, open64);

INTERPOSE int openat(int dirfd, const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = open_mode(flags, args);
	va_end(args);
	return vfs_elsewhere(dirfd, path) ? REAL(openat)(dirfd, path, flags, mode) :
					    do_open(dirfd, path, flags, mode);
}
ALIAS64(openat, openat64);

/* what fortified programs call */
int __open_2(const char *path, int flags);
int __openat_2(int dirfd, const char *path, int flags);

INTERPOSE int __open_2(const char *path, int flags)
{
	return vfs_elsewhere(AT_FDCWD, path) ? REAL(__open_2)(path, flags) :
					       do_open(AT_FDCWD, path, flags, 0);
}
ALIAS64(__open_2, __open64_2);

INTERPOSE int __openat_2(int dirfd, const char *path, int flags)
{
	return vfs_elsewhere(dirfd, path) ? REAL(__openat_2)(dirfd, path, flags) :
					    do_open(dirfd, path, flags, 0);
}
ALIAS64(__openat_2, __openat64_2);

/* ------------------------------------------------------------------ stdio */

static int mode_flags(const char *mode)
{
	int flags = mode[0] == 'r' ? O_RDONLY : O_WRONLY;

	if (strchr(mode, '+'))
		flags = O_RDWR;
	if (strchr(mode, 'e'))
		flags |= O_CLOEXEC;
	return flags;
}

/* A descriptor of a file of the tree; -2: not in the tree, res->path or @path is to be opened. */
static int open_for_stdio(const char *path, const char *mode, struct vfs_res *res, bool *by_path)
{
	*by_path = false;
	switch (vfs_lookup(AT_FDCWD, path, true, res)) {
	case VFS_NODE:
		if (res->node->type == VNODE_DIR && res->real_too)
			return -2;
		return vfs_open(res, mode_flags(mode));
	case VFS_ERROR:
		return fail(res->err);
	case VFS_REAL_PATH:
		*by_path = true;
		return -2;
	default:
		return -2;
	}
}

static FILE *do_fopen(const char *path, const char *mode)
{
	struct vfs_res res;
	bool by_path;
	FILE *file;
	int fd = open_for_stdio(path, mode, &res, &by_path);

	if (fd == -2)
		return REAL(fopen)(by_path ? res.path : path, mode);
	if (fd < 0)
		return NULL;
	file = fdopen(fd, mode);
	if (!file) {
		int err = errno;

		close(fd);
		errno = err;
	}
	return file;
}

INTERPOSE FILE *fopen(const char *path, const char *mode)
{
	return vfs_elsewhere(AT_FDCWD, path) ? REAL(fopen)(path, mode) : do_fopen(path, mode);
}
ALIAS64(fopen, fopen64);

static FILE *do_freopen(const char *path, const char *mode, FILE *stream)
{
	char by_fd[64];
	struct vfs_res res;
	bool by_path;
	FILE *file;
	int fd = open_for_stdio(path, mode, &res, &by_path);

	if (fd == -2)
		return REAL(freopen)(by_path ? res.path : path, mode, stream);
	if (fd < 0) {
		int err = errno;

		fclose(stream);
		errno = err;
		return NULL;
	}
	/* the stream must get a file of its own: the same one again, by its other name */
	snprintf(by_fd, sizeof(by_fd), "/proc/self/fd/%d", fd);
	file = REAL(freopen)(by_fd, mode, stream);
	close(fd);
	return file;
}

INTERPOSE FILE *freopen(const char *path, const char *mode, FILE *stream)
{
	return vfs_elsewhere(AT_FDCWD, path) ? REAL(freopen)(path, mode, stream) :
					       do_freopen(path, mode, stream);
}
ALIAS64(freopen, freopen64);

/* ------------------------------------------------------------------ stat */

static int stat_descriptor(int fd, struct stat *st)
{
	struct host_file *file;
	bool placeholder;
	struct vnode *node = vfs_fd_dir(fd, &placeholder);

	if (node && placeholder) {
		vfs_stat(node, st);
		return 0;
	}
	if (REAL(fstat)(fd, st))
		return -1;
	file = host_file_get(fd);
	if (!file)
		return 0;
	if (file->rdev) {
		st->st_mode = S_IFCHR | 0666;
		st->st_rdev = file->rdev;
		st->st_size = 0;
		st->st_blocks = 0;
	}
	host_file_put(file);
	return 0;
}

/* 1: a node of ours alone; 0: make the real call with *dirfd and *path; -1: failed. */
static int find_ours(int *dirfd, const char **path, bool follow, struct vfs_res *res)
{
	switch (vfs_lookup(*dirfd, *path, follow, res)) {
	case VFS_NODE:
		if (!res->real_too)
			return 1;
		break;
	case VFS_ERROR:
		return fail(res->err);
	case VFS_REAL_PATH:
		break;
	default:
		return 0;
	}
	*dirfd = AT_FDCWD;
	*path = res->path;
	return 0;
}

/*
 * Where a stat-like call leads; for a real file the caller makes its own call with *dirfd and
 * *path.
 */
static int find_for_stat(int *dirfd, const char **path, int flags, struct vfs_res *res,
			 struct stat *st)
{
	int ret;

	if (!**path && (flags & AT_EMPTY_PATH) && host_fd_ours(*dirfd))
		return stat_descriptor(*dirfd, st) ? -1 : 1;
	ret = find_ours(dirfd, path, !(flags & AT_SYMLINK_NOFOLLOW), res);
	if (ret > 0)
		vfs_stat(res->node, st);
	return ret;
}

static int do_stat(int dirfd, const char *path, struct stat *st, int flags)
{
	struct vfs_res res;
	int found = find_for_stat(&dirfd, &path, flags, &res, st);

	if (found)
		return found < 0 ? -1 : 0;
	return REAL(fstatat)(dirfd, path, st, flags);
}

INTERPOSE int stat(const char *path, struct stat *st)
{
	return vfs_elsewhere(AT_FDCWD, path) ? REAL(stat)(path, st) :
					       do_stat(AT_FDCWD, path, st, 0);
}
ALIAS64(stat, stat64);

INTERPOSE int lstat(const char *path, struct stat *st)
{
	return vfs_elsewhere(AT_FDCWD, path) ? REAL(lstat)(path, st) :
					       do_stat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}
ALIAS64(lstat, lstat64);

INTERPOSE int fstat(int fd, struct stat *st)
{
	return host_fd_ours(fd) ? stat_descriptor(fd, st) : REAL(fstat)(fd, st);
}
ALIAS64(fstat, fstat64);

INTERPOSE int fstatat(int dirfd, const char *path, struct stat *st, int flags)
{
	return vfs_elsewhere(dirfd, path) ? REAL(fstatat)(dirfd, path, st, flags) :
					    do_stat(dirfd, path, st, flags);
}
ALIAS64(fstatat, fstatat64);

/* what programs built before glibc 2.33 call */
int __xstat(int ver, const char *path, struct stat *st);
int __lxstat(int ver, const char *path, struct stat *st);
int __fxstat(int ver, int fd, struct stat *st);
int __fxstatat(int ver, int dirfd, const char *path, struct stat *st, int flags);

INTERPOSE int __xstat(int ver, const char *path, struct stat *st)
{
	return vfs_elsewhere(AT_FDCWD, path) ? REAL(__xstat)(ver, path, st) :
					       do_stat(AT_FDCWD, path, st, 0);
}
ALIAS64(__xstat, __xstat64);

INTERPOSE int __lxstat(int ver, const char *path, struct stat *st)
{
	return vfs_elsewhere(AT_FDCWD, path) ? REAL(__lxstat)(ver, path, st) :
					       do_stat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}
ALIAS64(__lxstat, __lxstat64);

INTERPOSE int __fxstat(int ver, int fd, struct stat *st)
{
	return host_fd_ours(fd) ? stat_descriptor(fd, st) : REAL(__fxstat)(ver, fd, st);
}
ALIAS64(__fxstat, __fxstat64);

INTERPOSE int __fxstatat(int ver, int dirfd, const char *path, struct stat *st, int flags)
{
	return vfs_elsewhere(dirfd, path) ? REAL(__fxstatat)(ver, dirfd, path, st, flags) :
					    do_stat(dirfd, path, st, flags);
}
ALIAS64(__fxstatat, __fxstatat64);

static void stat_to_statx(const struct stat *st, struct statx *stx)
{
	memset(stx, 0, sizeof(*stx));
	stx->stx_mask = STATX_BASIC_STATS;
	stx->stx_blksize = st->st_blksize;
	stx->stx_nlink = st->st_nlink;
	stx->stx_uid = st->st_uid;
	stx->stx_gid = st->st_gid;
	stx->stx_mode = st->st_mode;
	stx->stx_ino = st->st_ino;
	stx->stx_size = st->st_size;
	stx->stx_blocks = st->st_blocks;
	stx->stx_atime.tv_sec = st->st_atim.tv_sec;
	stx->stx_atime.tv_nsec = st->st_atim.tv_nsec;
	stx->stx_mtime.tv_sec = st->st_mtim.tv_sec;
	stx->stx_mtime.tv_nsec = st->st_mtim.tv_nsec;
	stx->stx_ctime.tv_sec = st->st_ctim.tv_sec;
	stx->stx_ctime.tv_nsec = st->st_ctim.tv_nsec;
	stx->stx_rdev_major = major(st->st_rdev);
	stx->stx_rdev_minor = minor(st->st_rdev);
	stx->stx_dev_major = major(st->st_dev);
	stx->stx_dev_minor = minor(st->st_dev);
}

static int do_statx(int dirfd, const char *path, int flags, unsigned int mask, struct statx *stx)
{
	struct vfs_res res;
	struct stat st;
	int found = find_for_stat(&dirfd, &path, flags, &res, &st);

	if (found < 0)
		return -1;
	if (!found)
		return REAL(statx)(dirfd, path, flags, mask, stx);
	stat_to_statx(&st, stx);
	return 0;
}

INTERPOSE int statx(int dirfd, const char *restrict path, int flags, unsigned int mask,
		    struct statx *restrict stx)
{
	return vfs_elsewhere(dirfd, path) ? REAL(statx)(dirfd, path, flags, mask, stx) :
					    do_statx(dirfd, path, flags, mask, stx);
}

/* ------------------------------------------------------------------ access */

static int do_access(int dirfd, const char *path, int mode, int flags)
{
	struct vfs_res res;
	int err;

	switch (vfs_lookup(dirfd, path, !(flags & AT_SYMLINK_NOFOLLOW), &res)) {
	case VFS_NODE:
		if (res.real_too)
			return REAL(faccessat)(AT_FDCWD, res.path, mode, flags);
		err = vfs_access(res.node, mode);
		return err ? fail(err) : 0;
	case VFS_ERROR:
		return fail(res.err);
	case VFS_REAL_PATH:
		return REAL(faccessat)(AT_FDCWD, res.path, mode, flags);
	default:
		return REAL(faccessat)(dirfd, path, mode, flags);
	}
}

INTERPOSE int access(const char *path, int mode)
{
	return vfs_elsewhere(AT_FDCWD, path) ? REAL(access)(path, mode) :
					       do_access(AT_FDCWD, path, mode, 0);
}

INTERPOSE int faccessat(int dirfd, const char *path, int mode, int flags)
{
	return vfs_elsewhere(dirfd, path) ? REAL(faccessat)(dirfd, path, mode, flags) :
					    do_access(dirfd, path, mode, flags);
}

INTERPOSE int euidaccess(const char *path, int mode)
{
	return vfs_elsewhere(AT_FDCWD, path) ? REAL(euidaccess)(path, mode) :
					       do_access(AT_FDCWD, path, mode, AT_EACCESS);
}

INTERPOSE int eaccess(const char *path, int mode)
{
	return vfs_elsewhere(AT_FDCWD, path) ? REAL(eaccess)(path, mode) :
					       do_access(AT_FDCWD, path, mode, AT_EACCESS);
}

/* ------------------------------------------------------------------ links */

static ssize_t do_readlink(int dirfd, const char *path, char *buf, size_t size)
{
	struct vfs_res res;
	bool placeholder;
	size_t len;

	if (!*path && (res.node = vfs_fd_dir(dirfd, &placeholder)) &&
	    res.node->type == VNODE_LINK) {
		/* the descriptor is the link itself */
		len = res.node->len < size ? res.node->len : size;
		memcpy(buf, res.node->text, len);
		return len;
	}
	switch (vfs_lookup(dirfd, path, false, &res)) {
	case VFS_NODE:
		if (res.node->type != VNODE_LINK)
			return res.real_too ? REAL(readlink)(res.path, buf, size) : fail(EINVAL);
		len = res.node->len < size ? res.node->len : size;
		memcpy(buf, res.node->text, len);
		return len;
	case VFS_ERROR:
		return fail(res.err);
	case VFS_REAL_PATH:
		return REAL(readlink)(res.path, buf, size);
	default:
		return REAL(readlinkat)(dirfd, path, buf, size);
	}
}

INTERPOSE ssize_t readlink(const char *restrict path, char *restrict buf, size_t size)
{
	return vfs_elsewhere(AT_FDCWD, path) ? REAL(readlink)(path, buf, size) :
					       do_readlink(AT_FDCWD, path, buf, size);
}

INTERPOSE ssize_t readlinkat(int dirfd, const char *restrict path, char *restrict buf, size_t size)
{
	return vfs_elsewhere(dirfd, path) ? REAL(readlinkat)(dirfd, path, buf, size) :
					    do_readlink(dirfd, path, buf, size);
}

ssize_t __readlink_chk(const char *path, char *buf, size_t size, size_t room);
ssize_t __readlinkat_chk(int dirfd, const char *path, char *buf, size_t size, size_t room);

INTERPOSE ssize_t __readlink_chk(const char *path, char *buf, size_t size, size_t room)
{
	return vfs_elsewhere(AT_FDCWD, path) || size > room ?
		       REAL(__readlink_chk)(path, buf, size, room) :
		       do_readlink(AT_FDCWD, path, buf, size);
}

INTERPOSE ssize_t __readlinkat_chk(int dirfd, const char *path, char *buf, size_t size, size_t room)
{
	return vfs_elsewhere(dirfd, path) || size > room ?
		       REAL(__readlinkat_chk)(dirfd, path, buf, size, room) :
		       do_readlink(dirfd, path, buf, size);
}

static char *do_realpath(const char *path, char *resolved)
{
	struct vfs_res res;

	switch (vfs_lookup(AT_FDCWD, path, true, &res)) {
	case VFS_NODE:
		if (!resolved)
			return strdup(res.path);
		return strcpy(resolved, res.path);
	case VFS_ERROR:
		errno = res.err;
		return NULL;
	case VFS_REAL_PATH:
		return REAL(realpath)(res.path, resolved);
	default:
		return REAL(realpath)(path, resolved);
	}
}

INTERPOSE char *realpath(const char *restrict path, char *restrict resolved)
{
	return vfs_elsewhere(AT_FDCWD, path) ? REAL(realpath)(path, resolved) :
					       do_realpath(path, resolved);
}

char *__realpath_chk(const char *path, char *resolved, size_t room);

INTERPOSE char *__realpath_chk(const char *path, char *resolved, size_t room)
{
	return vfs_elsewhere(AT_FDCWD, path) || room < PATH_MAX ?
		       REAL(__realpath_chk)(path, resolved, room) :
		       do_realpath(path, resolved);
}

INTERPOSE char *canonicalize_file_name(const char *path)
{
	return vfs_elsewhere(AT_FDCWD, path) ? REAL(canonicalize_file_name)(path) :
					       do_realpath(path, NULL);
}

/* ------------------------------------------------------------ extended attributes, file systems */

static int find_path(const char **path, bool follow, struct vfs_res *res)
{
	int dirfd = AT_FDCWD;

	return vfs_elsewhere(dirfd, *path) ? 0 : find_ours(&dirfd, path, follow, res);
}

#define DEFINE_GETXATTR(fn, follow)                                                        \
	INTERPOSE ssize_t fn(const char *path, const char *name, void *value, size_t size) \
	{                                                                                  \
		struct vfs_res res;                                                        \
		int found = find_path(&path, follow, &res);                                \
                                                                                           \
		if (found)                                                                 \
			return found < 0 ? -1 : fail(ENODATA);                             \
		return REAL(fn)(path, name, value, size);                                  \
	}

#define DEFINE_LISTXATTR(fn, follow)                                    \
	INTERPOSE ssize_t fn(const char *path, char *list, size_t size) \
	{                                                               \
		struct vfs_res res;                                     \
		int found = find_path(&path, follow, &res);             \
                                                                        \
		if (found)                                              \
			return found < 0 ? -1 : 0;                      \
		return REAL(fn)(path, list, size);                      \
	}

DEFINE_GETXATTR(getxattr, true)
DEFINE_GETXATTR(lgetxattr, false)
DEFINE_LISTXATTR(listxattr, true)
DEFINE_LISTXATTR(llistxattr, false)

/* The tree lies in sysfs: say what /sys says, or at least that it is one. */
#define SYSFS_MAGIC_NUMBER 0x62656572

static void sysfs_statfs(struct statfs *buf)
{
	if (!REAL(statfs)("/sys", buf))
		return;
	memset(buf, 0, sizeof(*buf));
	buf->f_type = SYSFS_MAGIC_NUMBER;
	buf->f_bsize = 4096;
	buf->f_namelen = NAME_MAX;
}

static int do_statfs(const char *path, struct statfs *buf)
{
	struct vfs_res res;
	int found = find_path(&path, true, &res);

	if (found < 0)
		return -1;
	if (!found)
		return REAL(statfs)(path, buf);
	sysfs_statfs(buf);
	return 0;
}

INTERPOSE int statfs(const char *path, struct statfs *buf)
{
	return vfs_elsewhere(AT_FDCWD, path) ? REAL(statfs)(path, buf) : do_statfs(path, buf);
}
ALIAS64(statfs, statfs64);

static int do_fstatfs(int fd, struct statfs *buf)
{
	bool placeholder;

	if (!vfs_fd_dir(fd, &placeholder) || !placeholder)
		return REAL(fstatfs)(fd, buf);
	sysfs_statfs(buf);
	return 0;
}

INTERPOSE int fstatfs(int fd, struct statfs *buf)
{
	return host_fd_ours(fd) ? do_fstatfs(fd, buf) : REAL(fstatfs)(fd, buf);
}
ALIAS64(fstatfs, fstatfs64);
