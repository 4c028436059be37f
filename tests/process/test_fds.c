// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The descriptors of device files: copies, closers, forks, and numbers that change hands behind the
 * library's back.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/instrumented.h"

#define UVERBS "/dev/infiniband/uverbs0"

/* GET_CONTEXT by write(): 0, or errno. */
static int get_context(int fd)
{
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_get_context req;
	} cmd;
	struct {
		struct ib_uverbs_get_context_resp core;
		unsigned char driver[40];
	} resp;

	memset(&cmd, 0, sizeof(cmd));
	cmd.hdr.command = IB_USER_VERBS_CMD_GET_CONTEXT;
	cmd.hdr.in_words = sizeof(cmd) / 4;
	cmd.hdr.out_words = sizeof(resp) / 4;
	cmd.req.response = (uintptr_t)&resp;
	if (write(fd, &cmd, sizeof(cmd)) != sizeof(cmd))
		return errno;
	close(resp.core.async_fd);
	return 0;
}

/* QUERY_PORT: works on a file with a context; 0, or errno. */
static int query_port(int fd)
{
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_query_port req;
	} cmd;
	struct ib_uverbs_query_port_resp resp;

	memset(&cmd, 0, sizeof(cmd));
	cmd.hdr.command = IB_USER_VERBS_CMD_QUERY_PORT;
	cmd.hdr.in_words = sizeof(cmd) / 4;
	cmd.hdr.out_words = sizeof(resp) / 4;
	cmd.req.response = (uintptr_t)&resp;
	cmd.req.port_num = 1;
	return write(fd, &cmd, sizeof(cmd)) == sizeof(cmd) ? 0 : errno;
}

static int open_device(void)
{
	int fd = open(UVERBS, O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(get_context(fd), 0);
	assert_int_equal(query_port(fd), 0);
	return fd;
}

static void expect_chr(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	assert_true(S_ISCHR(st.st_mode));
}

static void flags(void **state)
{
	int fd = open(UVERBS, O_RDWR | O_CLOEXEC);

	(void)state;
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
	fd = open(UVERBS, O_RDWR);
	assert_int_equal(fcntl(fd, F_GETFD), 0);
	assert_int_equal(get_context(fd), 0);
	assert_int_equal(get_context(fd), EINVAL);
	close(fd);
}

static void doorbell_pages(void **state)
{
	int fd = open_device();
	long page = sysconf(_SC_PAGESIZE);
	uint64_t *db;
	int i;

	(void)state;
	for (i = 0; i < 3; i++) {
		db = mmap(NULL, page, PROT_WRITE, MAP_SHARED, fd, i * page);
		assert_true(db != MAP_FAILED);
		*(volatile uint64_t *)db = 1;
		munmap(db, page);
	}
	assert_int_equal(ftruncate(fd, 0), -1);
	close(fd);
}

static void copies(void **state)
{
	int fd = open_device(), a, b, c;

	(void)state;
	a = dup(fd);
	expect_chr(a);
	b = fcntl(fd, F_DUPFD_CLOEXEC, 200);
	assert_true(b >= 200);
	c = dup2(fd, 300);
	assert_int_equal(c, 300);
	close(fd);
	assert_int_equal(query_port(a), 0);
	close(a);
	assert_int_equal(query_port(b), 0);
	close(b);
	assert_int_equal(dup3(c, 301, O_CLOEXEC), 301);
	close(c);
	expect_chr(301);
	assert_int_equal(query_port(301), 0);
	/* replaced by another file */
	a = open("/dev/null", O_WRONLY);
	assert_int_equal(dup2(a, 301), 301);
	assert_int_equal(query_port(301), 0); /* /dev/null takes anything */
	assert_int_equal(write(301, "x", 1), 1);
	close(a);
	close(301);
	assert_int_equal(close(301), -1);
	assert_int_equal(errno, EBADF);
}

static void ranges(void **state)
{
	int fd = open_device(), low = dup(0), a;

	(void)state;
	assert_int_equal(dup2(fd, 400), 400);
	assert_int_equal(dup2(low, 401), 401);
	close(fd);
	assert_int_equal(close_range(400, 401, CLOSE_RANGE_CLOEXEC), 0);
	assert_int_equal(query_port(400), 0);
	assert_int_equal(close_range(400, 401, 0), 0);
	assert_int_equal(fcntl(400, F_GETFD), -1);
	assert_int_equal(fcntl(401, F_GETFD), -1);
	assert_int_equal(close_range(7, 6, 0), -1);
	assert_int_equal(errno, EINVAL);

	/* the library's own descriptors survive it: a new file still works, events included */
	fd = open_device();
	a = dup2(fd, 10);
	closefrom(11);
	assert_int_equal(query_port(a), 0);
	assert_int_equal(close_range(11, ~0u, 0), 0);
	assert_int_equal(query_port(a), 0);
	close(a);
	close(fd);
	fd = open_device();
	close(fd);
}

static void closed_behind_our_back(void **state)
{
	int fd = open_device(), other, ends[2];
	char c;

	(void)state;
	/* a raw system call frees the number, another file gets it */
	syscall(SYS_close, fd);
	other = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR);
	assert_int_equal(other, fd);
	assert_int_equal(write(fd, "hello", 5), 5);
	close(fd);
	fd = open_device();
	syscall(SYS_close, fd);
	assert_int_equal(syscall(SYS_pipe2, ends, 0), 0);
	assert_true(ends[0] == fd || ends[1] == fd);
	assert_int_equal(write(ends[1], "x", 1), 1);
	assert_int_equal(read(ends[0], &c, 1), 1);
	close(ends[0]);
	close(ends[1]);
}

static void vfork_child(void **state)
{
	int fd = open_device(), status;
	pid_t pid;

	(void)state;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
	pid = vfork();
#pragma GCC diagnostic pop
	if (!pid) {
		/* what a child does before exec: closes and moves descriptors of its own table */
		close(fd);
		dup2(0, 1);
		_exit(close(fd) == -1 && errno == EBADF ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(query_port(fd), 0);
	close(fd);
}

static int child_checks(int fd)
{
	int again;

	/* the parent's file is dead here, a new one is not */
	if (query_port(fd) != EIO)
		return 1;
	if (ioctl(fd, 0xC0181B01, NULL) != -1 || errno != EIO)
		return 2;
	again = open(UVERBS, O_RDWR | O_CLOEXEC);
	if (again < 0 || get_context(again) || query_port(again))
		return 3;
	if (close(again) || close(fd))
		return 4;
	free(malloc(100000));
	return 0;
}

static void fork_child(void **state)
{
	int fd = open_device(), status, i;
	pid_t pid;

	(void)state;
	/* ThreadSanitizer lets no child of a program with threads start threads */
	if (INSTRUMENTED_TSAN)
		skip();
	for (i = 0; i < 20; i++) {
		pid = fork();
		if (!pid)
			_exit(child_checks(fd));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(WEXITSTATUS(status), 0);
		assert_int_equal(status, 0);
		assert_int_equal(query_port(fd), 0);
	}
	close(fd);
}

static void *open_and_close(void *arg)
{
	volatile int *stop = arg;

	while (!*stop) {
		int fd = open(UVERBS, O_RDWR | O_CLOEXEC);

		if (fd < 0 || get_context(fd) || query_port(fd))
			abort();
		close(fd);
	}
	return NULL;
}

/* Locks that other threads hold at the moment of fork() must not stay locked in the child. */
static void fork_among_threads(void **state)
{
	volatile int stop = 0;
	pthread_t threads[3];
	int i, status, fd;
	pid_t pid;

	(void)state;
	/*
	 * AddressSanitizer's allocator may stay locked in the child when another thread allocates
	 * during fork()
	 */
	if (INSTRUMENTED)
		skip();
	for (i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, open_and_close, (void *)&stop),
				 0);
	for (i = 0; i < 50; i++) {
		pid = fork();
		if (!pid) {
			alarm(20);
			fd = open(UVERBS, O_RDWR | O_CLOEXEC);
			_exit(fd < 0 || get_context(fd) || query_port(fd) || close(fd));
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	stop = 1;
	for (i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
}

/* No descriptor is left behind, hidden ones included. */
static unsigned int open_descriptors(void)
{
	unsigned int count = 0;
	int fd;

	for (fd = 0; fd < 200000; fd++)
		count += syscall(SYS_fcntl, fd, F_GETFD) >= 0;
	return count;
}

static void no_leak(void **state)
{
	unsigned int before;
	int fd, i;

	(void)state;
	fd = open_device();
	close(fd);
	before = open_descriptors();
	for (i = 0; i < 500; i++) {
		fd = open_device();
		close(fd);
		fd = open("/sys/class/infiniband/erdma_0/node_guid", O_RDONLY);
		close(fd);
		fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
		assert_true(fd >= 0);
		close(fd);
	}
	assert_int_equal(open_descriptors(), before);
}

static void hidden_numbers_are_safe(void **state)
{
	int fd = open_device(), i, hidden = 0;

	(void)state;
	/* a program that closes all it could ever have opened */
	for (i = 3; i < 140000; i++) {
		if (i != fd && syscall(SYS_fcntl, i, F_GETFD) >= 0) {
			if (close(i) == -1 && errno == EBADF &&
			    syscall(SYS_fcntl, i, F_GETFD) >= 0) {
				assert_int_equal(dup2(0, i), -1);
				assert_int_equal(errno, EBADF);
				hidden++;
			}
		}
	}
	assert_true(hidden > 0);
	assert_int_equal(query_port(fd), 0);
	close(fd);
}

static void exec_with_empty_environment(void **state)
{
	char *const argv[] = {
		"sh", "-c",
		"test -e /dev/infiniband/uverbs0 && cat /sys/class/infiniband/erdma_0/node_type",
		NULL
	};
	char *const empty[] = { NULL };
	char *const other[] = { "LD_PRELOAD=/nonexistent/lib.so", "PATH=/usr/bin:/bin", NULL };
	char buf[64];
	int ends[2], round, status;
	ssize_t n;
	pid_t pid;

	(void)state;
	/* an instrumented library does not load into a plain shell */
	if (INSTRUMENTED)
		skip();
	for (round = 0; round < 3; round++) {
		assert_int_equal(pipe(ends), 0);
		pid = fork();
		if (!pid) {
			dup2(ends[1], 1);
			close(2);
			if (round == 0)
				execve("/bin/sh", argv, empty);
			else if (round == 1)
				execve("/bin/sh", argv, other);
			clearenv();
			execl("/bin/sh", argv[0], argv[1], argv[2], (char *)NULL);
			_exit(99);
		}
		close(ends[1]);
		n = read(ends[0], buf, sizeof(buf) - 1);
		close(ends[0]);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(n > 0);
		buf[n] = 0;
		assert_string_equal(buf, "4: RNIC\n");
		assert_int_equal(status, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flags),
		cmocka_unit_test(doorbell_pages),
		cmocka_unit_test(copies),
		cmocka_unit_test(ranges),
		cmocka_unit_test(closed_behind_our_back),
		cmocka_unit_test(vfork_child),
		cmocka_unit_test(fork_child),
		cmocka_unit_test(fork_among_threads),
		cmocka_unit_test(no_leak),
		cmocka_unit_test(hidden_numbers_are_safe),
		cmocka_unit_test(exec_with_empty_environment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
