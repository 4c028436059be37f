// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The virtual sysfs and /dev, by every call of the C library that can meet it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/instrumented.h"

#define IB    "/sys/class/infiniband/erdma_0"
#define VERBS "/sys/class/infiniband_verbs"
#define PCI   "/sys/devices/pcied0a:00/ed0a:00:00.0"

static void read_path(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		fail_msg("%s: %s", path, strerror(errno));
	n = read(fd, buf, size - 1);
	assert_true(n >= 0);
	buf[n] = 0;
	close(fd);
}

static void expect_content(const char *path, const char *text)
{
	char buf[512];

	read_path(path, buf, sizeof(buf));
	assert_string_equal(buf, text);
}

static void contents(void **state)
{
	char buf[512], guid[64];

	(void)state;
	expect_content(VERBS "/abi_version", "6\n");
	expect_content(VERBS "/uverbs0/ibdev", "erdma_0\n");
	expect_content(VERBS "/uverbs0/dev", "231:192\n");
	expect_content(VERBS "/uverbs0/abi_version", "1\n");
	expect_content("/sys/class/misc/rdma_cm/abi_version", "4\n");
	expect_content(IB "/node_type", "4: RNIC\n");
	expect_content(IB "/fw_ver", "\n");
	expect_content(IB "/device/vendor", "0x1ded\n");
	expect_content(IB "/device/device", "0x107f\n");
	expect_content(IB "/device/modalias",
		       "pci:v00001DEDd0000107Fsv00001DEDsd0000107Fbc02sc00i00\n");
	expect_content(IB "/ports/1/link_layer", "Ethernet\n");
	expect_content(IB "/ports/1/cap_mask", "0x00090000\n");
	expect_content(IB "/ports/1/gid_attrs/types/0", "IB/RoCE v1\n");
	read_path(IB "/ports/1/gids/0", buf, sizeof(buf));
	assert_int_equal(strlen(buf), 40);
	assert_non_null(strstr(buf, ":0000:0000:0000:0000:0000\n"));
	read_path(IB "/node_guid", guid, sizeof(guid));
	assert_int_equal(strlen(guid), 20);
	assert_string_not_equal(guid, "0000:0000:0000:0000\n");
	expect_content(IB "/sys_image_guid", guid);
	assert_int_equal(access(IB "/ports/1/pkeys", F_OK), -1);
	assert_int_equal(access(IB "/ports/2", F_OK), -1);
	assert_int_equal(access(IB "/board_id", F_OK), -1);
}

static void files_are_read_only(void **state)
{
	struct stat st;
	char c;
	int fd;

	(void)state;
	assert_int_equal(open(IB "/node_desc", O_WRONLY), -1);
	assert_int_equal(errno, EACCES);
	assert_int_equal(open(IB "/node_desc", O_RDWR), -1);
	assert_int_equal(errno, EACCES);
	assert_int_equal(open(IB "/new", O_WRONLY | O_CREAT, 0644), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(open(IB "/node_desc", O_RDONLY | O_CREAT | O_EXCL, 0644), -1);
	assert_int_equal(errno, EEXIST);
	fd = open(IB "/node_desc", O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "x", 1), -1);
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(pread(fd, &c, 1, 1), 1);
	assert_int_equal(c, 'l');
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0444);
	close(fd);
	assert_int_equal(access(IB "/node_desc", R_OK), 0);
	assert_int_equal(access(IB "/node_desc", W_OK), -1);
	assert_int_equal(access("/dev/infiniband/uverbs0", R_OK | W_OK), 0);
}

static void stat_family(void **state)
{
	struct stat st, other;
	struct stat64 st64;
	struct statx stx;
	struct statfs fs;
	int dir;

	(void)state;
	errno = E2BIG;
	assert_int_equal(stat("/dev/infiniband/uverbs0", &st), 0);
	assert_true(S_ISCHR(st.st_mode));
	assert_int_equal(major(st.st_rdev), 231);
	assert_int_equal(minor(st.st_rdev), 192);
	assert_int_equal(lstat(IB, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(stat(IB, &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_int_equal(stat(IB "/", &other), 0);
	assert_int_equal(st.st_ino, other.st_ino);
	assert_int_equal(st.st_mtim.tv_nsec, other.st_mtim.tv_nsec);
	assert_int_equal(stat64(IB "/../erdma_0/ports/./1//state", &st64), 0);
	assert_int_equal(st64.st_size, 4096);
	assert_int_equal(statx(AT_FDCWD, IB, AT_SYMLINK_NOFOLLOW, STATX_ALL, &stx), 0);
	assert_true(S_ISLNK(stx.stx_mode));
	dir = open(IB, O_RDONLY | O_DIRECTORY);
	assert_true(dir >= 0);
	assert_int_equal(fstat(dir, &other), 0);
	assert_true(S_ISDIR(other.st_mode));
	assert_int_equal(other.st_ino, st.st_ino);
	assert_int_equal(fstatat(dir, "", &other, AT_EMPTY_PATH), 0);
	assert_int_equal(other.st_ino, st.st_ino);
	assert_int_equal(fstatat(dir, "ports/1/rate", &other, 0), 0);
	assert_true(S_ISREG(other.st_mode));
	assert_int_equal(faccessat(dir, "node_guid", R_OK, 0), 0);
	assert_int_equal(statfs(IB, &fs), 0);
	assert_int_equal(fs.f_type, 0x62656572);
	assert_int_equal(getxattr(IB "/node_guid", "security.selinux", NULL, 0), -1);
	assert_true(errno == ENODATA);
	errno = E2BIG;
	assert_int_equal(listxattr(IB "/node_guid", NULL, 0), 0);
	/* success leaves errno alone */
	assert_int_equal(errno, E2BIG);
	close(dir);

	assert_int_equal(stat(IB "/node_type/x", &st), -1);
	assert_int_equal(errno, ENOTDIR);
	assert_int_equal(stat(IB "/node_type/", &st), -1);
	assert_int_equal(errno, ENOTDIR);
	assert_int_equal(stat(IB "/nothing", &st), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(stat("/dev/infiniband/uverbs1", &st), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(open(IB "/node_type", O_RDONLY | O_DIRECTORY), -1);
	assert_int_equal(errno, ENOTDIR);
	assert_int_equal(open(IB, O_RDONLY | O_NOFOLLOW), -1);
	assert_int_equal(errno, ELOOP);
	assert_int_equal(open(IB "/ports", O_RDWR), -1);
	assert_int_equal(errno, EISDIR);
}

__attribute__((no_sanitize("undefined"))) static void null_paths(void **state)
{
	/* the kernel's answer, not a crash */
	const char *volatile null = NULL;
	struct stat st;

	(void)state;
	assert_int_equal(open(null, O_RDONLY), -1);
	assert_int_equal(errno, EFAULT);
	assert_int_equal(stat(null, &st), -1);
	assert_int_equal(errno, EFAULT);
	assert_int_equal(access(null, R_OK), -1);
	assert_int_equal(errno, EFAULT);
	assert_int_equal(open("", O_RDONLY), -1);
	assert_int_equal(errno, ENOENT);
}

static void links(void **state)
{
	char buf[PATH_MAX], *path;
	struct stat st;
	ssize_t n;
	int dir;

	(void)state;
	n = readlink(IB, buf, sizeof(buf));
	assert_true(n > 0);
	buf[n] = 0;
	assert_string_equal(buf, "../../devices/pcied0a:00/ed0a:00:00.0/infiniband/erdma_0");
	assert_int_equal(readlink(IB, buf, 5), 5);
	assert_memory_equal(buf, "../..", 5);
	assert_int_equal(readlink(IB "/node_type", buf, sizeof(buf)), -1);
	assert_int_equal(errno, EINVAL);
	dir = open(VERBS, O_RDONLY | O_DIRECTORY);
	assert_true(readlinkat(dir, "uverbs0", buf, sizeof(buf)) > 0);
	close(dir);
	/* a descriptor of the link itself, as systemd's libraries walk */
	dir = open(IB, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	assert_true(dir >= 0);
	assert_int_equal(fstat(dir, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(readlinkat(dir, "", buf, sizeof(buf)), n);
	assert_int_equal(openat(dir, "ports", O_RDONLY), -1);
	assert_int_equal(errno, ENOTDIR);
	close(dir);
	assert_string_equal(realpath(IB "/device", buf), PCI);
	path = realpath(VERBS "/uverbs0/device/infiniband/erdma_0/ports", NULL);
	assert_string_equal(path, PCI "/infiniband/erdma_0/ports");
	free(path);
	path = canonicalize_file_name("/sys/bus/pci/devices/ed0a:00:00.0/../..");
	assert_non_null(path);
	assert_string_equal(path, "/sys/devices");
	free(path);
	assert_null(realpath(IB "/nothing", buf));
	assert_int_equal(errno, ENOENT);
}

static void directories(void **state)
{
	struct dirent *entry, again, *result;
	bool has_verbs = false, has_net = false;
	DIR *dir;
	long place;
	int fd, fd2;

	(void)state;
	/* as libibverbs does */
	dir = opendir(VERBS);
	assert_non_null(dir);
	fd = openat(dirfd(dir), "uverbs0", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	fd2 = openat(fd, "ibdev", O_RDONLY | O_CLOEXEC);
	assert_true(fd2 >= 0);
	close(fd2);
	fd2 = openat(fd, "device/vendor", O_RDONLY | O_CLOEXEC);
	assert_true(fd2 >= 0);
	close(fd2);
	fd2 = openat(fd, "../../../../../class/infiniband_verbs/abi_version", O_RDONLY | O_CLOEXEC);
	assert_true(fd2 >= 0);
	close(fd2);
	close(fd);
	entry = readdir(dir);
	assert_string_equal(entry->d_name, ".");
	place = telldir(dir);
	entry = readdir(dir);
	assert_string_equal(entry->d_name, "..");
	seekdir(dir, place);
	entry = readdir(dir);
	assert_string_equal(entry->d_name, "..");
	rewinddir(dir);
	assert_string_equal(readdir(dir)->d_name, ".");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
	assert_int_equal(readdir_r(dir, &again, &result), 0);
#pragma GCC diagnostic pop
	assert_ptr_equal(result, &again);
	assert_int_equal(closedir(dir), 0);

	/* a directory that the real system may have: both kinds of entries */
	dir = opendir("/sys/class");
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		has_verbs |= !strcmp(entry->d_name, "infiniband_verbs");
		has_net |= !strcmp(entry->d_name, "net");
	}
	assert_true(has_verbs);
	assert_true(has_net);
	fd = openat(dirfd(dir), "infiniband/erdma_0/node_type", O_RDONLY);
	assert_true(fd >= 0);
	close(fd);
	fd = openat(dirfd(dir), "net/lo/mtu", O_RDONLY);
	assert_true(fd >= 0);
	close(fd);
	closedir(dir);

	fd = open(IB, O_RDONLY | O_DIRECTORY);
	dir = fdopendir(fd);
	assert_non_null(dir);
	assert_int_equal(dirfd(dir), fd);
	closedir(dir);
	assert_int_equal(fcntl(fd, F_GETFD), -1);

	/* a real directory is the C library's */
	dir = opendir("/");
	assert_non_null(dir);
	assert_non_null(readdir(dir));
	closedir(dir);
}

static int only_names(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static void scan_and_glob(void **state)
{
	struct dirent **list;
	glob_t found;
	int n, i;

	(void)state;
	n = scandir(IB "/ports/1", &list, only_names, alphasort);
	assert_true(n >= 8);
	for (i = 0; i < n; i++) {
		if (i)
			assert_true(strcmp(list[i - 1]->d_name, list[i]->d_name) < 0);
	}
	assert_string_equal(list[0]->d_name, "cap_mask");
	for (i = 0; i < n; i++)
		free(list[i]);
	free(list);
	assert_int_equal(scandir(IB "/nothing", &list, NULL, NULL), -1);
	assert_int_equal(errno, ENOENT);

	assert_int_equal(glob("/sys/class/infiniband/*/ports/*/state", 0, NULL, &found), 0);
	assert_int_equal(found.gl_pathc, 1);
	assert_string_equal(found.gl_pathv[0], IB "/ports/1/state");
	globfree(&found);
	assert_int_equal(glob("/sys/class/net/l?", 0, NULL, &found), 0);
	assert_string_equal(found.gl_pathv[0], "/sys/class/net/lo");
	globfree(&found);
	assert_int_equal(glob("/dev/infiniband/u*", 0, NULL, &found), 0);
	assert_string_equal(found.gl_pathv[0], "/dev/infiniband/uverbs0");
	globfree(&found);
	assert_int_equal(glob("/etc/pass*", 0, NULL, &found), 0);
	globfree(&found);
}

static unsigned int walked_files, walked_dirs, walked_links;

/* Each kind of answer about a file must agree with the others. */
static int visit(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	struct stat again;
	char buf[PATH_MAX];
	int fd;

	assert_string_equal(path + ftw->base, strrchr(path, '/') + 1);
	if (lstat(path, &again) || again.st_ino != st->st_ino || again.st_mode != st->st_mode)
		fail_msg("%s: lstat differs", path);
	switch (type) {
	case FTW_F:
		walked_files++;
		fd = open(path, O_RDONLY | O_NOFOLLOW);
		if (fd < 0 && errno != EINVAL) /* an attribute that cannot be read now */
			fail_msg("%s: %s", path, strerror(errno));
		if (fd >= 0) {
			assert_true(read(fd, buf, sizeof(buf)) > 0);
			close(fd);
		}
		break;
	case FTW_D:
		walked_dirs++;
		assert_true(S_ISDIR(st->st_mode));
		break;
	case FTW_SL:
		walked_links++;
		assert_true(readlink(path, buf, sizeof(buf)) > 0);
		if (stat(path, &again))
			fail_msg("%s leads nowhere", path);
		break;
	default:
		fail_msg("%s: type %d", path, type);
	}
	return 0;
}

static int stop_at_ports(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return strstr(path, "/ports") ? 42 : 0;
}

static void tree_walk(void **state)
{
	(void)state;
	assert_int_equal(nftw(PCI, visit, 10, FTW_PHYS), 0);
	assert_true(walked_files > 25);
	assert_true(walked_dirs > 8);
	assert_true(walked_links >= 6);
	assert_int_equal(nftw(PCI "/", stop_at_ports, 10, FTW_PHYS), 42);
}

static void types_agree(void **state)
{
	static const char *const paths[] = { PCI, "/sys",	    "/sys/class", "/sys/class/misc",
					     "/", "/dev/infiniband" };
	struct dirent *entry;
	struct stat st;
	size_t i;
	DIR *dir;

	(void)state;
	for (i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		dir = opendir(paths[i]);
		assert_non_null(dir);
		while ((entry = readdir(dir))) {
			if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW))
				fail_msg("%s in %s: %s", entry->d_name, paths[i], strerror(errno));
			if (entry->d_type != DT_UNKNOWN)
				assert_int_equal(IFTODT(st.st_mode), entry->d_type);
			/* where something is mounted the number is that of the directory below */
			if (strncmp(paths[i], "/sys/class", 10) == 0 && strcmp(entry->d_name, ".."))
				assert_int_equal(st.st_ino, entry->d_ino);
		}
		closedir(dir);
	}
}

/* As hwloc does: every path relative to a descriptor of the root. */
static void relative_to_the_root(void **state)
{
	int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;
	char buf[64];
	struct stat st;
	DIR *dir;

	(void)state;
	assert_true(root >= 0);
	fd = openat(root, "sys/class/infiniband/erdma_0/node_type", O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, buf, sizeof(buf)), 8);
	close(fd);
	fd = openat(root, "sys/class/infiniband", O_RDONLY | O_DIRECTORY);
	dir = fdopendir(fd);
	assert_non_null(dir);
	closedir(dir);
	assert_true(readlinkat(root, "sys/class/infiniband/erdma_0", buf, sizeof(buf)) > 0);
	assert_int_equal(faccessat(root, "dev/infiniband/uverbs0", F_OK, 0), 0);
	assert_int_equal(fstatat(root, "etc/passwd", &st, 0), 0);
	assert_true(S_ISREG(st.st_mode));
	fd = openat(root, "proc/self/status", O_RDONLY);
	assert_true(fd >= 0);
	close(fd);
	close(root);
}

static void working_directory(void **state)
{
	char buf[PATH_MAX], *path;
	struct stat st;
	DIR *dir;
	int fd;

	(void)state;
	assert_int_equal(chdir("/sys/class"), 0);
	fd = open("infiniband/erdma_0/node_type", O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, buf, sizeof(buf)), 8);
	close(fd);
	assert_int_equal(stat("net/lo", &st), 0);
	assert_int_equal(stat("../class/infiniband", &st), 0);
	assert_int_equal(stat("../../dev/infiniband/uverbs0", &st), 0);
	assert_true(S_ISCHR(st.st_mode));
	assert_int_equal(stat("../../etc/passwd", &st), 0);
	assert_int_equal(fstatat(AT_FDCWD, "", &st, AT_EMPTY_PATH), 0);
	assert_true(S_ISDIR(st.st_mode));
	/* where the kernel has no such directory */
	assert_int_equal(chdir("infiniband"), 0);
	assert_string_equal(getcwd(buf, sizeof(buf)), "/sys/class/infiniband");
	assert_int_equal(chdir("erdma_0/ports/1"), 0);
	assert_string_equal(getcwd(buf, sizeof(buf)), PCI "/infiniband/erdma_0/ports/1");
	assert_null(getcwd(buf, 10));
	assert_int_equal(errno, ERANGE);
	path = getcwd(NULL, 0);
	assert_string_equal(path, PCI "/infiniband/erdma_0/ports/1");
	free(path);
	assert_int_equal(access("state", R_OK), 0);
	assert_int_equal(access("../../node_type", R_OK), 0);
	dir = opendir(".");
	assert_non_null(dir);
	assert_non_null(readdir(dir));
	closedir(dir);
	assert_null(realpath("nothing", buf));
	assert_int_equal(chdir("state"), -1);
	assert_int_equal(errno, ENOTDIR);
	fd = open("../..", O_RDONLY | O_DIRECTORY);
	assert_int_equal(fchdir(fd), 0);
	close(fd);
	assert_int_equal(access("node_type", R_OK), 0);
	assert_int_equal(mkdir("new", 0755), -1);
	assert_int_equal(chdir("/"), 0);
	assert_string_equal(getcwd(buf, sizeof(buf)), "/");
	assert_int_equal(access("dev/infiniband/rdma_cm", R_OK), 0);
	assert_int_equal(access("etc/passwd", R_OK), 0);
	assert_int_equal(chdir("/etc"), 0);
	assert_int_equal(access("passwd", R_OK), 0);
	assert_int_equal(access("infiniband", R_OK), -1);
}

static void stdio(void **state)
{
	char line[64];
	FILE *file = fopen(IB "/node_type", "r");

	(void)state;
	assert_non_null(file);
	assert_non_null(fgets(line, sizeof(line), file));
	assert_string_equal(line, "4: RNIC\n");
	assert_null(fgets(line, sizeof(line), file));
	file = freopen(VERBS "/abi_version", "re", file);
	assert_non_null(file);
	assert_non_null(fgets(line, sizeof(line), file));
	assert_string_equal(line, "6\n");
	fclose(file);
	assert_null(fopen(IB "/node_type", "w"));
	assert_int_equal(errno, EACCES);
	assert_null(fopen(IB "/nothing", "r"));
	assert_int_equal(errno, ENOENT);
	file = fopen("/sys/class/net/lo/mtu", "r");
	assert_non_null(file);
	fclose(file);
}

static void the_real_tree_stays(void **state)
{
	char a[64], b[64];
	struct stat st;

	(void)state;
	read_path("/sys/class/net/lo/mtu", a, sizeof(a));
	read_path("/sys/class/../class/net/lo/../lo/mtu", b, sizeof(b));
	assert_string_equal(a, b);
	assert_int_equal(stat("/dev/null", &st), 0);
	assert_int_equal(stat("/sys/class/net", &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_int_equal(stat("/sysfoo", &st), -1);
	assert_int_equal(stat("/sys/class/infinibandx", &st), -1);
}

static void *look_around(void *arg)
{
	struct stat st;
	char buf[64];
	int fd;

	/* now it must be found out what the working directory is */
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(stat("etc", &st), 0);
	assert_int_equal(stat("/", &st), 0);
	assert_int_equal(access(IB "/ports/1/state", R_OK), 0);
	assert_true(readlink("sys/class/infiniband/erdma_0", buf, sizeof(buf)) > 0);
	fd = openat(AT_FDCWD, IB "/node_guid", O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	close(fd);
	return arg;
}

/* Programs call all this from threads with the smallest stack that there is. */
static void small_stacks(void **state)
{
	pthread_attr_t attr;
	pthread_t thread;
	char cwd[PATH_MAX];
	void *done;

	(void)state;
	if (INSTRUMENTED)
		skip();
	assert_non_null(getcwd(cwd, sizeof(cwd)));
	/* so that each function's address has been looked up */
	look_around(NULL);
	assert_int_equal(pthread_attr_init(&attr), 0);
	assert_int_equal(pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN), 0);
	assert_int_equal(pthread_create(&thread, &attr, look_around, cwd), 0);
	assert_int_equal(pthread_join(thread, &done), 0);
	assert_ptr_equal(done, cwd);
	pthread_attr_destroy(&attr);
	assert_int_equal(chdir(cwd), 0);
}

static volatile sig_atomic_t opened;

static void open_something(int sig)
{
	int fd = open("etc/hostname", O_RDONLY | O_CLOEXEC);

	(void)sig;
	opened = fd >= 0 || errno == ENOENT;
	close(fd);
}

/* A handler writes its report to a file, on a stack that is just large enough for handlers. */
static void signal_stack(void **state)
{
	struct sigaction act = { .sa_handler = open_something, .sa_flags = SA_ONSTACK }, old_act;
	size_t page = (size_t)sysconf(_SC_PAGESIZE), size;
	long least = sysconf(_SC_MINSIGSTKSZ);
	char cwd[PATH_MAX];
	stack_t stack, old;
	char *memory;

	(void)state;
	if (INSTRUMENTED)
		skip();
	/* what the kernel stores there, and 4 KiB */
	size = ((least > 0 ? (size_t)least : page) + 2 * page - 1) / page * page;
	memory =
		mmap(NULL, page + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(memory != MAP_FAILED);
	assert_int_equal(mprotect(memory, page, PROT_NONE), 0);
	stack = (stack_t){ .ss_sp = memory + page, .ss_size = size };
	assert_int_equal(sigaltstack(&stack, &old), 0);
	assert_int_equal(sigaction(SIGUSR1, &act, &old_act), 0);
	assert_non_null(getcwd(cwd, sizeof(cwd)));
	assert_int_equal(chdir("/usr"), 0);
	/* once on the large stack, so that each function's address has been looked up */
	open_something(0);
	assert_int_equal(chdir("/usr"), 0);
	opened = false;
	raise(SIGUSR1);
	assert_true(opened);
	assert_int_equal(chdir(cwd), 0);
	sigaction(SIGUSR1, &old_act, NULL);
	sigaltstack(&old, NULL);
	munmap(memory, page + size);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(contents),
		cmocka_unit_test(files_are_read_only),
		cmocka_unit_test(stat_family),
		cmocka_unit_test(null_paths),
		cmocka_unit_test(links),
		cmocka_unit_test(directories),
		cmocka_unit_test(scan_and_glob),
		cmocka_unit_test(tree_walk),
		cmocka_unit_test(types_agree),
		cmocka_unit_test(relative_to_the_root),
		cmocka_unit_test(stdio),
		cmocka_unit_test(working_directory),
		cmocka_unit_test(the_real_tree_stays),
		cmocka_unit_test(small_stacks),
		cmocka_unit_test(signal_stack),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
