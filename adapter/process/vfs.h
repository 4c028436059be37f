/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The virtual file tree: what a kernel with this adapter would show below /sys and /dev/infiniband.
 *
 * It lives in memory only.  Directories that the real system has too ("merged") show both kinds of
 * entries; the others are ours alone, also where the machine has RDMA devices of its own.
 *
 * The tree is built at first use and never changes; file contents may be made at each open.
 */
#ifndef EA_VFS_H
#define EA_VFS_H

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include "adapter/process/fdtab.h"
#include "adapter/process/tsan.h"

enum vnode_type {
	VNODE_DIR,
	VNODE_FILE,
	VNODE_LINK,
	VNODE_CHR
};

/*
 * Write a file's content; the byte count, or a negative errno which read() would give (it then is
 * given by open()).
 */
typedef int (*vnode_show)(char *buf, size_t size, const void *arg, unsigned int number);

struct vnode {
	struct vnode *parent, *child, *next;
	char *name;
	enum vnode_type type;
	bool merged; /* directory: real entries are visible */
	bool binary; /* file: size is the content's, not a page as for attributes */
	uint64_t ino;
	dev_t rdev; /* VNODE_CHR */
	char *text; /* content of a file, target of a link */
	size_t len;
	vnode_show show; /* instead of text */
	const void *arg;
	unsigned int number;
	/* VNODE_CHR: a new descriptor, or -errno */
	int (*open)(const struct vnode *node, int flags);
};

/*
 * Building (vfs_tree.c).  The path is absolute; missing parents are made, merged where their own
 * parents are.  NULL: no memory.
 */
struct vnode *vfs_add_dir(const char *path, bool merged);
struct vnode *vfs_add_file(const char *path, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
struct vnode *vfs_add_show(const char *path, vnode_show show, const void *arg, unsigned int number);
struct vnode *vfs_add_bytes(const char *path, const void *bytes, size_t len);
struct vnode *vfs_add_link(const char *path, const char *target);
struct vnode *vfs_add_chr(const char *path, dev_t rdev, int (*open)(const struct vnode *, int),
			  unsigned int number);

/* sysfs.c: fill the tree with the devices */
void sysfs_build(void);

/* The root, with the tree built. */
struct vnode *vfs_root(void);

/* ---- looking */

/* May the absolute @path lead into the tree?  Cheap; true needs a vfs_resolve(). */
UNWATCHED static inline bool vfs_absolute(const char *path)
{
	if (path[0] != '/')
		return false;
	while (path[1] == '/')
		path++;
	if (path[1] == 's')
		return path[2] == 'y' && path[3] == 's' && (path[4] == '/' || !path[4]);
	if (path[1] == 'd') {
		if (path[2] != 'e' || path[3] != 'v')
			return false;
		path += 4;
		while (*path == '/')
			path++;
		return !*path || (path[0] == 'i' && path[1] == 'n' && path[2] == 'f');
	}
	/* "/./sys", "/../sys"; and the root itself, since programs name files relative to it */
	return path[1] == '.' || !path[1];
}

/*
 * The directory of the tree that is the working directory, where relative paths begin: NULL when it
 * is none, or vfs_cwd_unknown when that is not known yet.
 */
extern struct vnode *vfs_cwd;
extern struct vnode vfs_cwd_unknown;

/* Find out. */
bool vfs_cwd_is_ours(void);

/* The kernel's working directory has changed. */
void vfs_cwd_changed(void);

/*
 * Enter a directory of ours alone.  The kernel's working directory becomes the nearest real one
 * above, so that what does not come by here (making or removing files) meets sysfs.  0, or -1 with
 * errno.
 */
int vfs_cwd_enter(struct vnode *node);

/* When the working directory is one of ours alone: its path in @path (PATH_MAX). */
bool vfs_cwd_virtual(char *path);

/* The same for programs that are started: an environment entry, or an empty string.  No lock. */
#define VFS_CWD_ENV "ERDMA_CWD="
const char *vfs_cwd_entry(void);

/*
 * Not worth a lookup: the usual case of an interposed call's (dirfd, path).  A NULL path is the
 * real call's matter; the compiler, which knows such paths as never NULL, must not take the test
 * away.
 */
UNWATCHED static inline bool vfs_elsewhere(int dirfd, const char *path)
{
	struct vnode *cwd;

	__asm__("" : "+r"(path));
	if (!path)
		return true;
	if (*path == '/')
		return !vfs_absolute(path);
	if (dirfd != AT_FDCWD)
		return !host_fd_ours(dirfd);
	cwd = __atomic_load_n(&vfs_cwd, __ATOMIC_RELAXED);
	/* here and not in the lookup, which takes more of the stack than a signal handler may have */
	return !cwd || (cwd == &vfs_cwd_unknown && !vfs_cwd_is_ours());
}

enum vfs_where {
	VFS_REAL,      /* not ours: make the call with the program's own arguments */
	VFS_REAL_PATH, /* not ours, but reached by way of the tree: make it with res->path */
	VFS_NODE,      /* res->node; res->path is its path */
	VFS_ERROR,     /* res->err */
};

struct vfs_res {
	struct vnode *node;
	int err;	     /* positive errno */
	bool real_too;	     /* node is a merged directory that exists in the real system */
	char path[PATH_MAX]; /* absolute, no links but perhaps the last component, no "." or ".." */
};

/*
 * Where @path leads, relative to directory @base of the tree (NULL: @path is absolute).  @follow:
 * also a link in the last place. Keeps errno.
 */
enum vfs_where vfs_resolve(struct vnode *base, const char *path, bool follow, struct vfs_res *res);

/*
 * The same for an interposed call's (dirfd, path); VFS_REAL at once where nothing of ours can be
 * meant.
 */
enum vfs_where vfs_lookup(int dirfd, const char *path, bool follow, struct vfs_res *res);

void vfs_stat(const struct vnode *node, struct stat *st);

/* 0 or a positive errno, for access(2)'s mode. */
int vfs_access(const struct vnode *node, int mode);

/* A new descriptor for @res (VFS_NODE), or -1 with errno. */
int vfs_open(const struct vfs_res *res, int flags);

/*
 * The directory of the tree behind a descriptor; *placeholder: there is no real directory behind
 * it.  NULL: none.
 */
struct vnode *vfs_fd_dir(int fd, bool *placeholder);

/* Content of a file node in fresh memory (*len bytes); NULL with errno. */
char *vfs_content(const struct vnode *node, size_t *len);

/* Path of a node into @path (PATH_MAX). */
void vfs_path(const struct vnode *node, char *path);

#endif
