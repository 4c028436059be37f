// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The C library's calls on directories: streams, scandir, glob, tree walks. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "adapter/process/fdtab.h"
#include "adapter/process/libc.h"
#include "adapter/process/vfs_dir.h"

/* ------------------------------------------------------------------ streams */

/* The stream, or NULL with errno; *real: the call is the C library's, for *path. */
static DIR *open_stream(int dirfd, const char **path, struct vfs_res *res, bool *real)
{
	DIR *dir;
	int fd;

	*real = false;
	switch (vfs_lookup(dirfd, *path, true, res)) {
	case VFS_NODE:
		fd = vfs_open(res, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			return NULL;
		dir = vdir_open(res->node, fd);
		if (!dir) {
			close(fd);
			errno = ENOMEM;
		}
		return dir;
	case VFS_ERROR:
		errno = res->err;
		return NULL;
	case VFS_REAL_PATH:
		*path = res->path;
		break;
	default:
		break;
	}
	*real = true;
	return NULL;
}

INTERPOSE DIR *opendir(const char *path)
{
	struct vfs_res res;
	bool real;
	DIR *dir;

	if (vfs_elsewhere(AT_FDCWD, path))
		return REAL(opendir)(path);
	dir = open_stream(AT_FDCWD, &path, &res, &real);
	return real ? REAL(opendir)(path) : dir;
}

INTERPOSE DIR *fdopendir(int fd)
{
	struct vnode *node;
	bool placeholder;

	if (!host_fd_ours(fd))
		return REAL(fdopendir)(fd);
	node = vfs_fd_dir(fd, &placeholder);
	return node ? vdir_open(node, fd) : REAL(fdopendir)(fd);
}

INTERPOSE struct dirent *readdir(DIR *dir)
{
	struct vdir *vd = vdir_of(dir);

	return vd ? vdir_read(vd) : REAL(readdir)(dir);
}
ALIAS64(readdir, readdir64);

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
INTERPOSE int readdir_r(DIR *restrict dir, struct dirent *restrict entry,
			struct dirent **restrict result)
{
	struct vdir *vd = vdir_of(dir);
	struct dirent *next;

	if (!vd)
		return REAL(readdir_r)(dir, entry, result);
	next = vdir_read(vd);
	*result = next ? memcpy(entry, next, sizeof(*next)) : NULL;
	return 0;
}
ALIAS64(readdir_r, readdir64_r);

#pragma GCC diagnostic pop

INTERPOSE void rewinddir(DIR *dir)
{
	struct vdir *vd = vdir_of(dir);

	if (vd)
		vdir_rewind(vd);
	else
		REAL(rewinddir)(dir);
}

INTERPOSE long telldir(DIR *dir)
{
	struct vdir *vd = vdir_of(dir);

	return vd ? vdir_tell(vd) : REAL(telldir)(dir);
}

INTERPOSE void seekdir(DIR *dir, long place)
{
	struct vdir *vd = vdir_of(dir);

	if (vd)
		vdir_seek(vd, place);
	else
		REAL(seekdir)(dir, place);
}

INTERPOSE int dirfd(DIR *dir)
{
	struct vdir *vd = vdir_of(dir);

	return vd ? vdir_fd(vd) : REAL(dirfd)(dir);
}

INTERPOSE int closedir(DIR *dir)
{
	struct vdir *vd = vdir_of(dir);

	return vd ? vdir_close(vd) : REAL(closedir)(dir);
}

/* ------------------------------------------------------------------ working directory */

static int do_chdir(const char *path)
{
	struct vfs_res res;
	int ret;

	switch (vfs_lookup(AT_FDCWD, path, true, &res)) {
	case VFS_NODE:
		if (res.node->type != VNODE_DIR) {
			errno = ENOTDIR;
			return -1;
		}
		if (!res.real_too)
			return vfs_cwd_enter(res.node);
		ret = REAL(chdir)(res.path);
		break;
	case VFS_ERROR:
		errno = res.err;
		return -1;
	case VFS_REAL_PATH:
		ret = REAL(chdir)(res.path);
		break;
	default:
		ret = REAL(chdir)(path);
		break;
	}
	if (!ret && !fdtab_foreign())
		vfs_cwd_changed();
	return ret;
}

INTERPOSE int chdir(const char *path)
{
	int ret;

	if (!vfs_elsewhere(AT_FDCWD, path))
		return do_chdir(path);
	ret = REAL(chdir)(path);
	if (!ret && !fdtab_foreign())
		vfs_cwd_changed();
	return ret;
}

INTERPOSE int fchdir(int fd)
{
	struct vnode *node = NULL;
	bool placeholder = false;
	int ret;

	if (host_fd_ours(fd))
		node = vfs_fd_dir(fd, &placeholder);
	if (node && placeholder && node->type == VNODE_DIR)
		return vfs_cwd_enter(node);
	ret = REAL(fchdir)(fd);
	if (!ret && !fdtab_foreign())
		vfs_cwd_changed();
	return ret;
}

INTERPOSE char *getcwd(char *buf, size_t size)
{
	char path[PATH_MAX];

	if (!vfs_cwd_virtual(path))
		return REAL(getcwd)(buf, size);
	if (!buf && !size)
		return strdup(path);
	if (!size || strlen(path) >= size) {
		errno = size ? ERANGE : EINVAL;
		return NULL;
	}
	if (!buf)
		buf = malloc(size);
	return buf ? strcpy(buf, path) : NULL;
}

char *__getcwd_chk(char *buf, size_t size, size_t room);

INTERPOSE char *__getcwd_chk(char *buf, size_t size, size_t room)
{
	char path[PATH_MAX];

	return size > room || !vfs_cwd_virtual(path) ? REAL(__getcwd_chk)(buf, size, room) :
						       getcwd(buf, size);
}

INTERPOSE char *get_current_dir_name(void)
{
	char path[PATH_MAX];

	return vfs_cwd_virtual(path) ? strdup(path) : REAL(get_current_dir_name)();
}

/* ------------------------------------------------------------------ scandir */

typedef int (*scan_filter)(const struct dirent *);
typedef int (*scan_compare)(const struct dirent **, const struct dirent **);

static int scan_stream(DIR *dir, struct dirent ***list, scan_filter filter, scan_compare compare)
{
	struct vdir *vd = vdir_of(dir);
	struct dirent **names = NULL, **more, *entry;
	int count = 0, room = 0;

	while ((entry = vdir_read(vd))) {
		if (filter && !filter(entry))
			continue;
		if (count == room) {
			room = room * 2 + 16;
			more = realloc(names, room * sizeof(*names));
			if (!more)
				goto err_free;
			names = more;
		}
		names[count] = malloc(sizeof(*entry));
		if (!names[count])
			goto err_free;
		*names[count++] = *entry;
	}
	vdir_close(vd);
	if (compare && count)
		qsort(names, count, sizeof(*names), (int (*)(const void *, const void *))compare);
	*list = names ? names : malloc(sizeof(*names));
	return count;

err_free:
	while (count)
		free(names[--count]);
	free(names);
	vdir_close(vd);
	errno = ENOMEM;
	return -1;
}

static int do_scandir(int at, const char *path, struct dirent ***list, scan_filter filter,
		      scan_compare compare)
{
	struct vfs_res res;
	bool real;
	DIR *dir = open_stream(at, &path, &res, &real);

	if (real)
		return REAL(scandirat)(at, path, list, filter, compare);
	return dir ? scan_stream(dir, list, filter, compare) : -1;
}

INTERPOSE int scandir(const char *restrict path, struct dirent ***restrict list, scan_filter filter,
		      scan_compare compare)
{
	return vfs_elsewhere(AT_FDCWD, path) ? REAL(scandir)(path, list, filter, compare) :
					       do_scandir(AT_FDCWD, path, list, filter, compare);
}
ALIAS64(scandir, scandir64);

INTERPOSE int scandirat(int at, const char *restrict path, struct dirent ***restrict list,
			scan_filter filter, scan_compare compare)
{
	return vfs_elsewhere(at, path) ? REAL(scandirat)(at, path, list, filter, compare) :
					 do_scandir(at, path, list, filter, compare);
}
ALIAS64(scandirat, scandirat64);

/* ------------------------------------------------------------------ glob */

/* The C library can walk by functions it is given: the interposed ones, which know both trees. */
static void *glob_opendir(const char *path)
{
	return opendir(path);
}

static struct dirent *glob_readdir(void *dir)
{
	return readdir(dir);
}

static void glob_closedir(void *dir)
{
	closedir(dir);
}

static int glob_stat(const char *restrict path, struct stat *restrict st)
{
	return stat(path, st);
}

static int glob_lstat(const char *restrict path, struct stat *restrict st)
{
	return lstat(path, st);
}

INTERPOSE int glob(const char *restrict pattern, int flags, int (*on_error)(const char *, int),
		   glob_t *restrict found)
{
	int ret;

	if (vfs_elsewhere(AT_FDCWD, pattern) || (flags & GLOB_ALTDIRFUNC))
		return REAL(glob)(pattern, flags, on_error, found);
	found->gl_opendir = glob_opendir;
	found->gl_readdir = glob_readdir;
	found->gl_closedir = glob_closedir;
	found->gl_stat = glob_stat;
	found->gl_lstat = glob_lstat;
	ret = REAL(glob)(pattern, flags | GLOB_ALTDIRFUNC, on_error, found);
	found->gl_flags &= ~GLOB_ALTDIRFUNC;
	return ret;
}
ALIAS64(glob, glob64);

/* ------------------------------------------------------------------ nftw */

struct tree_walk {
	int (*visit)(const char *, const struct stat *, int, struct FTW *);
	int flags;
	dev_t dev;
	char path[PATH_MAX];
};

static int walk_dir(struct tree_walk *walk, size_t len, int level);

static int walk_entry(struct tree_walk *walk, size_t len, size_t base, int level)
{
	struct FTW ftw = { .base = base, .level = level };
	bool phys = walk->flags & FTW_PHYS;
	struct stat st;
	int type, ret;

	if (phys ? lstat(walk->path, &st) : stat(walk->path, &st)) {
		if (!phys && !lstat(walk->path, &st) && S_ISLNK(st.st_mode))
			return walk->visit(walk->path, &st, FTW_SLN, &ftw);
		return walk->visit(walk->path, &st, FTW_NS, &ftw);
	}
	if (!level)
		walk->dev = st.st_dev;
	else if ((walk->flags & FTW_MOUNT) && st.st_dev != walk->dev)
		return 0;
	if (S_ISLNK(st.st_mode))
		type = FTW_SL;
	else if (S_ISDIR(st.st_mode))
		type = access(walk->path, R_OK) ? FTW_DNR :
		       walk->flags & FTW_DEPTH	? FTW_DP :
						  FTW_D;
	else
		type = FTW_F;
	if (type == FTW_D) {
		ret = walk->visit(walk->path, &st, type, &ftw);
		if ((walk->flags & FTW_ACTIONRETVAL) && ret == FTW_SKIP_SUBTREE)
			return 0;
		return ret ? ret : walk_dir(walk, len, level + 1);
	}
	if (type == FTW_DP) {
		ret = walk_dir(walk, len, level + 1);
		if (ret)
			return ret;
	}
	return walk->visit(walk->path, &st, type, &ftw);
}

/* Entries of the directory walk->path, whose length is @len. */
static int walk_dir(struct tree_walk *walk, size_t len, int level)
{
	DIR *dir = opendir(walk->path);
	struct dirent *entry;
	size_t part;
	int ret = 0;

	if (!dir)
		return -1;
	while (!ret && (entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		part = strlen(entry->d_name);
		if (len + 1 + part >= sizeof(walk->path)) {
			errno = ENAMETOOLONG;
			ret = -1;
			break;
		}
		walk->path[len] = '/';
		memcpy(walk->path + len + 1, entry->d_name, part + 1);
		ret = walk_entry(walk, len + 1 + part, len + 1, level);
		if ((walk->flags & FTW_ACTIONRETVAL) && ret == FTW_SKIP_SIBLINGS) {
			ret = 0;
			break;
		}
	}
	walk->path[len] = 0;
	closedir(dir);
	return ret;
}

static int do_nftw(const char *path,
		   int (*visit)(const char *, const struct stat *, int, struct FTW *), int flags)
{
	struct tree_walk *walk;
	size_t len = strlen(path);
	const char *slash;
	int ret;

	/*
	 * changing into a directory that the kernel does not have is impossible; following links
	 * could go round for ever
	 */
	if (len >= PATH_MAX || (flags & FTW_CHDIR) || !(flags & FTW_PHYS)) {
		errno = len >= PATH_MAX ? ENAMETOOLONG : ENOTSUP;
		return -1;
	}
	walk = malloc(sizeof(*walk));
	if (!walk)
		return -1;
	walk->visit = visit;
	walk->flags = flags;
	memcpy(walk->path, path, len + 1);
	while (len > 1 && walk->path[len - 1] == '/')
		walk->path[--len] = 0;
	slash = strrchr(walk->path, '/');
	ret = walk_entry(walk, len, slash ? slash + 1 - walk->path : 0, 0);
	free(walk);
	return ret;
}

INTERPOSE int nftw(const char *path, __nftw_func_t visit, int fds, int flags)
{
	return vfs_elsewhere(AT_FDCWD, path) ? REAL(nftw)(path, visit, fds, flags) :
					       do_nftw(path, visit, flags);
}
ALIAS64(nftw, nftw64);
