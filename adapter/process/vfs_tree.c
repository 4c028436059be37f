// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The virtual tree: its nodes, and how they look to stat() and open(). */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>
#include "adapter/process/fdtab.h"
#include "adapter/process/libc.h"
#include "adapter/process/vfs.h"

enum {
	ATTR_SIZE = 4096, /* what sysfs says of every attribute */
	FIRST_INO = 0x7ed00000,
};

static struct vnode root = { .name = "", .type = VNODE_DIR, .merged = true, .ino = FIRST_INO };
static pthread_once_t tree_once = PTHREAD_ONCE_INIT;
static uint64_t next_ino = FIRST_INO + 1;
static dev_t tree_dev;		  /* st_dev of all nodes */
static struct timespec tree_time; /* st_mtime of all nodes; must stay as it is */

static void tree_init(void)
{
	int saved_errno = errno;
	struct stat st;

	if (!REAL(stat)("/sys", &st)) {
		tree_dev = st.st_dev;
		tree_time = st.st_mtim;
	} else {
		tree_dev = makedev(0, 0xed0);
		clock_gettime(CLOCK_REALTIME, &tree_time);
	}
	sysfs_build();
	errno = saved_errno;
}

struct vnode *vfs_root(void)
{
	pthread_once(&tree_once, tree_init);
	return &root;
}

/* ------------------------------------------------------------------ building */

static struct vnode *node_add(struct vnode *dir, const char *name, size_t len, enum vnode_type type)
{
	struct vnode *node, **end;

	for (end = &dir->child; (node = *end); end = &node->next) {
		if (!strncmp(node->name, name, len) && !node->name[len])
			return node;
	}
	node = calloc(1, sizeof(*node));
	if (!node)
		return NULL;
	node->name = strndup(name, len);
	if (!node->name) {
		free(node);
		return NULL;
	}
	node->parent = dir;
	node->type = type;
	/* below a directory of ours alone there is nothing real */
	node->merged = type == VNODE_DIR && dir->merged;
	node->ino = next_ino++;
	*end = node;
	return node;
}

static struct vnode *path_add(const char *path, enum vnode_type type)
{
	struct vnode *node = &root;
	const char *end;

	while (node && *path == '/') {
		path++;
		end = strchrnul(path, '/');
		node = node_add(node, path, end - path, *end ? VNODE_DIR : type);
		path = end;
	}
	return node;
}

struct vnode *vfs_add_dir(const char *path, bool merged)
{
	struct vnode *node = path_add(path, VNODE_DIR);

	if (node)
		node->merged = merged;
	return node;
}

struct vnode *vfs_add_bytes(const char *path, const void *bytes, size_t len)
{
	struct vnode *node = path_add(path, VNODE_FILE);

	if (!node)
		return NULL;
	node->text = malloc(len + 1);
	if (!node->text)
		return NULL;
	memcpy(node->text, bytes, len);
	node->len = len;
	node->binary = true;
	return node;
}

struct vnode *vfs_add_file(const char *path, const char *fmt, ...)
{
	struct vnode *node;
	va_list args;
	char *text;
	int len;

	va_start(args, fmt);
	len = vasprintf(&text, fmt, args);
	va_end(args);
	if (len < 0)
		return NULL;
	node = vfs_add_bytes(path, text, len);
	free(text);
	if (node)
		node->binary = false;
	return node;
}

struct vnode *vfs_add_show(const char *path, vnode_show show, const void *arg, unsigned int number)
{
	struct vnode *node = path_add(path, VNODE_FILE);

	if (node) {
		node->show = show;
		node->arg = arg;
		node->number = number;
	}
	return node;
}

struct vnode *vfs_add_link(const char *path, const char *target)
{
	struct vnode *node = path_add(path, VNODE_LINK);

	if (node) {
		node->text = strdup(target);
		node->len = strlen(target);
	}
	return node;
}

struct vnode *vfs_add_chr(const char *path, dev_t rdev, int (*open)(const struct vnode *, int),
			  unsigned int number)
{
	struct vnode *node = path_add(path, VNODE_CHR);

	if (node) {
		node->rdev = rdev;
		node->open = open;
		node->number = number;
	}
	return node;
}

void vfs_path(const struct vnode *node, char *path)
{
	const struct vnode *up;
	size_t len = 0, part;
	char *end;

	for (up = node; up->parent; up = up->parent)
		len += 1 + strlen(up->name);
	if (!len || len >= PATH_MAX) {
		strcpy(path, "/");
		return;
	}
	end = path + len;
	*end = 0;
	for (up = node; up->parent; up = up->parent) {
		part = strlen(up->name);
		end -= part;
		memcpy(end, up->name, part);
		*--end = '/';
	}
}

/* ------------------------------------------------------------------ stat, access, content */

static const mode_t node_modes[] = {
	[VNODE_DIR] = S_IFDIR | 0755,
	[VNODE_FILE] = S_IFREG | 0444,
	[VNODE_LINK] = S_IFLNK | 0777,
	[VNODE_CHR] = S_IFCHR | 0666,
};

void vfs_stat(const struct vnode *node, struct stat *st)
{
	const struct vnode *child;

	memset(st, 0, sizeof(*st));
	st->st_dev = tree_dev;
	st->st_ino = node->ino;
	st->st_mode = node_modes[node->type];
	st->st_nlink = 1;
	st->st_rdev = node->rdev;
	st->st_blksize = 4096;
	st->st_atim = st->st_mtim = st->st_ctim = tree_time;
	if (node->type == VNODE_FILE) {
		st->st_size = node->binary ? node->len : ATTR_SIZE;
	} else if (node->type == VNODE_DIR) {
		st->st_nlink = 2;
		for (child = node->child; child; child = child->next)
			st->st_nlink += child->type == VNODE_DIR;
	}
}

int vfs_access(const struct vnode *node, int mode)
{
	if (mode & ~(R_OK | W_OK | X_OK))
		return EINVAL;
	if ((mode & X_OK) && node->type != VNODE_DIR)
		return EACCES;
	if ((mode & W_OK) && node->type != VNODE_CHR)
		return node->type == VNODE_DIR ? EROFS : EACCES;
	return 0;
}

char *vfs_content(const struct vnode *node, size_t *len)
{
	size_t room = node->show ? ATTR_SIZE : node->len;
	char *text = malloc(room + 1);
	int n;

	if (!text)
		return NULL;
	if (node->show) {
		n = node->show(text, room, node->arg, node->number);
		if (n < 0) {
			free(text);
			errno = -n;
			return NULL;
		}
		*len = n;
	} else {
		memcpy(text, node->text, node->len);
		*len = node->len;
	}
	return text;
}

/* ------------------------------------------------------------------ open */

struct dir_file {
	struct host_file file;
	struct vnode *node;
	bool placeholder;
};

static void dir_release(struct host_file *file)
{
	free(file);
}

static const struct host_file_ops dir_ops = {
	.name = "directory",
	.release = dir_release,
	.fork_safe = true,
};

struct vnode *vfs_fd_dir(int fd, bool *placeholder)
{
	struct host_file *file = host_file_get(fd);
	struct vnode *node = NULL;

	if (!file)
		return NULL;
	if (file->ops == &dir_ops) {
		struct dir_file *dir = (struct dir_file *)file;

		node = dir->node;
		*placeholder = dir->placeholder;
	}
	host_file_put(file);
	return node;
}

/* A descriptor that stands for a directory, or (O_PATH) for a link. */
static int open_dir(const struct vfs_res *res, int flags)
{
	struct dir_file *dir;
	int fd, ret;

	if ((flags & O_ACCMODE) != O_RDONLY && !(flags & O_PATH)) {
		errno = EISDIR;
		return -1;
	}
	if (res->real_too)
		fd = REAL(open)(res->path, flags);
	else
		/* an empty file: whatever reaches it past the interposer says "not a directory" */
		fd = memfd_create(res->path, flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
	if (fd < 0)
		return -1;
	dir = calloc(1, sizeof(*dir));
	if (!dir) {
		REAL(close)(fd);
		errno = ENOMEM;
		return -1;
	}
	dir->file.ops = &dir_ops;
	dir->node = res->node;
	dir->placeholder = !res->real_too;
	ret = host_file_install(&dir->file, fd);
	if (ret) {
		free(dir);
		errno = -ret;
		return -1;
	}
	return fd;
}

static int open_file(const struct vfs_res *res, int flags)
{
	unsigned int cloexec = flags & O_CLOEXEC ? MFD_CLOEXEC : 0;
	size_t len, done = 0;
	char *text;
	ssize_t n;
	int fd;

	if ((flags & O_ACCMODE) != O_RDONLY && !(flags & O_PATH)) {
		errno = EACCES;
		return -1;
	}
	text = vfs_content(res->node, &len);
	if (!text)
		return -1;
	fd = memfd_create(res->path, cloexec | MFD_ALLOW_SEALING);
	if (fd >= 0) {
		while (done < len && (n = REAL(write)(fd, text + done, len - done)) > 0)
			done += n;
		if (done < len || lseek(fd, 0, SEEK_SET) || fchmod(fd, 0444) ||
		    REAL(fcntl)(fd, F_ADD_SEALS,
				F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)) {
			int err = errno;

			REAL(close)(fd);
			errno = err;
			fd = -1;
		}
	}
	free(text);
	return fd;
}

int vfs_open(const struct vfs_res *res, int flags)
{
	const struct vnode *node = res->node;
	int saved_errno = errno, fd;

	if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)) {
		errno = EEXIST;
		return -1;
	}
	if (node->type != VNODE_DIR && (flags & O_DIRECTORY)) {
		errno = ENOTDIR;
		return -1;
	}
	switch (node->type) {
	case VNODE_DIR:
		fd = open_dir(res, flags & ~O_CREAT);
		break;
	case VNODE_FILE:
		fd = open_file(res, flags);
		break;
	case VNODE_CHR:
		fd = node->open(node, flags);
		if (fd < 0) {
			errno = -fd;
			fd = -1;
		}
		break;
	default:
		/* a link, and O_NOFOLLOW: only as a place in the tree, as with the kernel */
		if (!(flags & O_PATH)) {
			errno = ELOOP;
			return -1;
		}
		fd = open_dir(res, flags);
		break;
	}
	if (fd >= 0)
		errno = saved_errno;
	return fd;
}
