/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Directory streams over the virtual tree.
 *
 * A stream of ours is handed out as a DIR.  The C library's begins with a descriptor, which is
 * never negative; ours begins with a negative number, so a look at the first word tells them apart.
 */
#ifndef EA_VFS_DIR_H
#define EA_VFS_DIR_H

#include <dirent.h>
#include <stdbool.h>
#include "adapter/process/vfs.h"

struct vdir;

/* NULL: @dir is the C library's. */
static inline struct vdir *vdir_of(DIR *dir)
{
	return *(const int *)dir < 0 ? (struct vdir *)dir : NULL;
}

/*
 * A stream over a node at @path, with descriptor @fd, which it takes over (-1: it has none).  NULL
 * with errno.
 */
DIR *vdir_open(struct vnode *node, int fd);
struct dirent *vdir_read(struct vdir *vd);
void vdir_rewind(struct vdir *vd);
long vdir_tell(const struct vdir *vd);
void vdir_seek(struct vdir *vd, long place);
int vdir_fd(const struct vdir *vd); /* -1 with errno */
int vdir_close(struct vdir *vd);

#endif
