// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Path resolution across the virtual and the real tree.
 *
 * Links lead from one into the other and back (/sys/class/net/eth0/device,
 * /sys/class/infiniband/erdma_0/device), so a path is walked a component at a time, with the node
 * of the virtual tree, if there is one, kept beside the path so far.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "adapter/process/fdtab.h"
#include "adapter/process/libc.h"
#include "adapter/process/tsan.h"
#include "adapter/process/vfs.h"

enum {
	MAX_LINKS = 40
};

/*
 * Its buffers are too long for the stacks on which a program may call open(): those of small threads and of
 * signal handlers.  So it lies in a mapping of its own, which a handler can have, too.
 */
struct walk {
	struct vnode *node; /* of path; NULL: only the real tree has it, if any */
	size_t len;
	char *path;	     /* without trailing slash; "" is the root */
	char rest[PATH_MAX]; /* still to be walked */
	char link[PATH_MAX];
	unsigned int links;
};

/*
 * ThreadSanitizer does not see these mappings go: a later one in the same place, which may begin elsewhere, is
 * not the same memory.  So all of them are ordered by one address.
 */
static char scratch_order;

static void *scratch_get(size_t size)
{
	void *p =
		REAL(mmap)(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	tsan_acquire(&scratch_order);
	return p;
}

static void scratch_put(void *p, size_t size)
{
	tsan_release(&scratch_order);
	REAL(munmap)(p, size);
}

static struct vnode *child_of(const struct vnode *dir, const char *name, size_t len)
{
	struct vnode *node;

	for (node = dir->child; node; node = node->next) {
		if (!strncmp(node->name, name, len) && !node->name[len])
			return node;
	}
	return NULL;
}

/* The node of an absolute path without links, or NULL. */
static struct vnode *node_at(const char *path)
{
	struct vnode *node = vfs_root();
	const char *end;

	while (node && *path) {
		path++;
		end = strchrnul(path, '/');
		node = child_of(node, path, end - path);
		path = end;
	}
	return node;
}

static void go_up(struct walk *w)
{
	while (w->len && w->path[--w->len] != '/')
		;
	w->path[w->len] = 0;
	w->node = w->node ? (w->node->parent ? w->node->parent : w->node) : node_at(w->path);
}

/* Put @target in front of what is left; 0 or errno. */
static int splice_link(struct walk *w, const char *target)
{
	size_t len = strlen(target), rest = strlen(w->rest);

	if (++w->links > MAX_LINKS)
		return ELOOP;
	if (len + rest >= sizeof(w->rest))
		return ENAMETOOLONG;
	/* what is left is empty or begins with a slash */
	memmove(w->rest + len, w->rest, rest + 1);
	memcpy(w->rest, target, len);
	if (*target == '/') {
		w->node = vfs_root();
		w->len = 0;
		w->path[0] = 0;
	}
	return 0;
}

/* One component; 0 or errno. */
static int step(struct walk *w, const char *name, size_t len, bool last, bool follow)
{
	struct vnode *next = NULL;
	ssize_t n;

	if (len == 1 && name[0] == '.')
		return 0;
	if (len == 2 && name[0] == '.' && name[1] == '.') {
		go_up(w);
		return 0;
	}
	if (w->node && w->node->type != VNODE_DIR)
		return ENOTDIR;
	if (w->len + 1 + len >= PATH_MAX)
		return ENAMETOOLONG;
	if (w->node)
		next = child_of(w->node, name, len);
	if (!next && w->node && !w->node->merged)
		return ENOENT;
	if (next && next->type == VNODE_LINK) {
		if (!last || follow)
			return splice_link(w, next->text);
	} else if (!next || next->merged) {
		/* a real link of this name? */
		w->path[w->len] = '/';
		memcpy(w->path + w->len + 1, name, len);
		w->path[w->len + 1 + len] = 0;
		n = !last || follow ? REAL(readlink)(w->path, w->link, sizeof(w->link) - 1) : -1;
		if (n >= 0) {
			w->link[n] = 0;
			w->path[w->len] = 0;
			return splice_link(w, w->link);
		}
	}
	w->path[w->len] = '/';
	memcpy(w->path + w->len + 1, name, len);
	w->len += 1 + len;
	w->path[w->len] = 0;
	w->node = next;
	return 0;
}

/* All components of w->rest; 0 or errno.  *@dir_wanted: the path ends in a slash. */
static int walk(struct walk *w, bool follow, bool *dir_wanted)
{
	size_t len, skip, after;
	char name[NAME_MAX + 1];
	int err = 0;

	while (!err) {
		skip = strspn(w->rest, "/");
		len = strcspn(w->rest + skip, "/");
		if (!len) {
			*dir_wanted = skip > 0;
			break;
		}
		if (len > NAME_MAX)
			return ENAMETOOLONG;
		memcpy(name, w->rest + skip, len);
		after = skip + len;
		memmove(w->rest, w->rest + after, strlen(w->rest + after) + 1);
		err = step(w, name, len, !w->rest[strspn(w->rest, "/")],
			   follow || w->rest[0] == '/');
	}
	return err;
}

enum vfs_where vfs_resolve(struct vnode *base, const char *path, bool follow, struct vfs_res *res)
{
	bool by_tree = base != NULL && *path != '/', dir_wanted = false, by_link;
	int saved_errno = errno;
	struct vnode *node;
	struct walk *w;
	struct stat st;

	res->node = NULL;
	res->real_too = false;
	res->err = ENOENT;
	if (!*path)
		return VFS_ERROR;
	if (strlen(path) >= sizeof(w->rest)) {
		res->err = ENAMETOOLONG;
		return VFS_ERROR;
	}
	w = scratch_get(sizeof(*w));
	if (!w) {
		errno = saved_errno;
		res->err = ENOMEM;
		return VFS_ERROR;
	}
	strcpy(w->rest, path);
	w->path = res->path;
	w->node = vfs_root();
	w->path[0] = 0;
	if (by_tree) {
		vfs_path(base, w->path);
		w->len = strlen(w->path);
		if (w->len == 1)
			w->len = 0;
		w->path[w->len] = 0;
		w->node = base;
	}
	res->err = walk(w, follow, &dir_wanted);
	if (!w->len)
		strcpy(res->path, "/");
	node = w->node;
	by_link = w->links;
	scratch_put(w, sizeof(*w));
	errno = saved_errno;
	if (res->err)
		return VFS_ERROR;
	if (!node)
		return by_tree || by_link ? VFS_REAL_PATH : VFS_REAL;
	if (dir_wanted && node->type != VNODE_DIR) {
		res->err = ENOTDIR;
		return VFS_ERROR;
	}
	res->node = node;
	if (node->merged) {
		res->real_too = !REAL(lstat)(res->path, &st);
		errno = saved_errno;
	}
	return VFS_NODE;
}

/* ------------------------------------------------------------------ the working directory */

struct vnode vfs_cwd_unknown;

struct vnode *vfs_cwd = &vfs_cwd_unknown;

static char
	cwd_entry[sizeof(VFS_CWD_ENV) + PATH_MAX]; /* for children; empty: the kernel's is right */
static bool cwd_inherited_used;

static void cwd_set(struct vnode *node)
{
	__atomic_store_n(&vfs_cwd, node, __ATOMIC_RELEASE);
}

void vfs_cwd_changed(void)
{
	cwd_inherited_used = true;
	cwd_entry[0] = 0;
	cwd_set(&vfs_cwd_unknown);
}

const char *vfs_cwd_entry(void)
{
	return cwd_entry;
}

/* Does the real system have this directory? */
static bool is_real(const struct vnode *node, char *path)
{
	struct stat st;

	vfs_path(node, path);
	return node->merged && !REAL(stat)(path, &st);
}

/* The nearest directory above @node, or itself, that the real system has. */
static void real_above(const struct vnode *node, char *path)
{
	while (!is_real(node, path) && node->parent)
		node = node->parent;
}

int vfs_cwd_enter(struct vnode *node)
{
	char path[PATH_MAX];

	real_above(node, path);
	if (REAL(chdir)(path))
		return -1;
	/* the child of vfork() shares this memory, but not the directory */
	if (fdtab_foreign())
		return 0;
	vfs_cwd_changed();
	strcpy(cwd_entry, VFS_CWD_ENV);
	vfs_path(node, cwd_entry + strlen(VFS_CWD_ENV));
	cwd_set(node);
	return 0;
}

/*
 * The parent was in a directory of ours alone when it started this program.  @above: room for a path.
 */
static struct vnode *cwd_inherited(const char *real, char *above)
{
	static const size_t skip = sizeof(VFS_CWD_ENV) - 2; /* without the equals sign */
	char name[sizeof(VFS_CWD_ENV)];
	struct vnode *node;
	const char *path;

	if (cwd_inherited_used)
		return NULL;
	cwd_inherited_used = true;
	memcpy(name, VFS_CWD_ENV, skip);
	name[skip] = 0;
	path = getenv(name);
	if (!path || *path != '/' || strlen(path) >= PATH_MAX)
		return NULL;
	node = node_at(path);
	if (!node || node->type != VNODE_DIR)
		return NULL;
	real_above(node, above);
	if (strcmp(above, real))
		return NULL;
	strcpy(cwd_entry, VFS_CWD_ENV);
	strcat(cwd_entry, path);
	return node;
}

static struct vnode *cwd_node(void)
{
	struct vnode *node = __atomic_load_n(&vfs_cwd, __ATOMIC_ACQUIRE);
	int saved_errno = errno;
	char *path;

	if (node != &vfs_cwd_unknown)
		return node;
	node = NULL;
	path = scratch_get(2 * PATH_MAX);
	if (path) {
		if (REAL(getcwd)(path, PATH_MAX) && vfs_absolute(path)) {
			node = cwd_inherited(path, path + PATH_MAX);
			if (!node)
				node = strcmp(path, "/") ? node_at(path) : vfs_root();
		}
		cwd_set(node);
		scratch_put(path, 2 * PATH_MAX);
	}
	errno = saved_errno;
	return node;
}

bool vfs_cwd_is_ours(void)
{
	return cwd_node();
}

bool vfs_cwd_virtual(char *path)
{
	/* one look at the environment tells programs that never were in the tree */
	if (__atomic_load_n(&vfs_cwd, __ATOMIC_ACQUIRE) && cwd_node() && cwd_entry[0]) {
		strcpy(path, cwd_entry + strlen(VFS_CWD_ENV));
		return true;
	}
	return false;
}

enum vfs_where vfs_lookup(int dirfd, const char *path, bool follow, struct vfs_res *res)
{
	struct vnode *base = NULL;
	bool placeholder = false;

	if (*path == '/') {
		if (!vfs_absolute(path))
			return VFS_REAL;
	} else if (dirfd == AT_FDCWD) {
		base = *path ? cwd_node() : NULL;
		if (!base)
			return VFS_REAL;
	} else {
		if (!host_fd_ours(dirfd))
			return VFS_REAL;
		base = vfs_fd_dir(dirfd, &placeholder);
		if (!base)
			return VFS_REAL;
	}
	return vfs_resolve(base, path, follow, res);
}
