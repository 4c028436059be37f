// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Directory streams: a snapshot of names, the real ones of a merged directory included. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "adapter/process/libc.h"
#include "adapter/process/vfs_dir.h"

enum {
	VDIR_MAGIC = -0x1ed0a
};

struct vdir_name {
	uint64_t ino;
	unsigned char type;
	char *name;
};

struct vdir {
	int magic; /* where the C library's streams have a descriptor */
	int fd;
	struct vnode *node;
	struct vdir_name *names;
	unsigned int count, room, next;
	struct dirent entry;
};

static bool name_add(struct vdir *vd, const char *name, uint64_t ino, unsigned char type)
{
	struct vdir_name *more;

	if (vd->count == vd->room) {
		more = realloc(vd->names, (vd->room * 2 + 16) * sizeof(*more));
		if (!more)
			return false;
		vd->names = more;
		vd->room = vd->room * 2 + 16;
	}
	vd->names[vd->count] = (struct vdir_name){ .ino = ino, .type = type, .name = strdup(name) };
	return vd->names[vd->count].name && ++vd->count;
}

static void names_free(struct vdir *vd)
{
	while (vd->count)
		free(vd->names[--vd->count].name);
}

static const struct vnode *child_named(const struct vnode *node, const char *name)
{
	for (node = node->child; node; node = node->next) {
		if (!strcmp(node->name, name))
			return node;
	}
	return NULL;
}

static bool has_name(const struct vdir *vd, const char *name)
{
	unsigned int i;

	for (i = 0; i < vd->count; i++) {
		if (!strcmp(vd->names[i].name, name))
			return true;
	}
	return false;
}

static bool names_read(struct vdir *vd)
{
	static const unsigned char types[] = {
		[VNODE_DIR] = DT_DIR,
		[VNODE_FILE] = DT_REG,
		[VNODE_LINK] = DT_LNK,
		[VNODE_CHR] = DT_CHR,
	};
	const struct vnode *node = vd->node, *up = node->parent ? node->parent : node, *child;
	struct dirent *entry;
	char path[PATH_MAX];
	DIR *real = NULL;
	bool good = true;

	names_free(vd);
	vd->next = 0;
	if (node->merged) {
		vfs_path(node, path);
		real = REAL(opendir)(path);
	}
	if (real) {
		while (good && (entry = REAL(readdir)(real))) {
			/* ours stands before a real one of its name, unless it only adds to that */
			child = child_named(node, entry->d_name);
			if (!child || child->merged)
				good = name_add(vd, entry->d_name, entry->d_ino, entry->d_type);
		}
		REAL(closedir)(real);
	} else {
		good = name_add(vd, ".", node->ino, DT_DIR) && name_add(vd, "..", up->ino, DT_DIR);
	}
	for (child = node->child; child && good; child = child->next) {
		if (!child->merged || !has_name(vd, child->name))
			good = name_add(vd, child->name, child->ino, types[child->type]);
	}
	return good;
}

DIR *vdir_open(struct vnode *node, int fd)
{
	int saved_errno = errno;
	struct vdir *vd = calloc(1, sizeof(*vd));

	if (!vd) {
		errno = ENOMEM;
		return NULL;
	}
	vd->magic = VDIR_MAGIC;
	vd->fd = fd;
	vd->node = node;
	if (!names_read(vd)) {
		names_free(vd);
		free(vd->names);
		free(vd);
		errno = ENOMEM;
		return NULL;
	}
	errno = saved_errno;
	return (DIR *)vd;
}

struct dirent *vdir_read(struct vdir *vd)
{
	const struct vdir_name *name;

	if (vd->next >= vd->count)
		return NULL;
	name = &vd->names[vd->next++];
	vd->entry.d_ino = name->ino;
	vd->entry.d_off = vd->next;
	vd->entry.d_reclen = sizeof(vd->entry);
	vd->entry.d_type = name->type;
	strncpy(vd->entry.d_name, name->name, sizeof(vd->entry.d_name) - 1);
	return &vd->entry;
}

void vdir_rewind(struct vdir *vd)
{
	int saved_errno = errno;

	names_read(vd);
	errno = saved_errno;
}

long vdir_tell(const struct vdir *vd)
{
	return vd->next;
}

void vdir_seek(struct vdir *vd, long place)
{
	vd->next = place < 0 || place > vd->count ? vd->count : place;
}

int vdir_fd(const struct vdir *vd)
{
	if (vd->fd < 0)
		errno = ENOTSUP;
	return vd->fd;
}

int vdir_close(struct vdir *vd)
{
	int fd = vd->fd;

	names_free(vd);
	free(vd->names);
	free(vd);
	return fd < 0 ? 0 : close(fd);
}
