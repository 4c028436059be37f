// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * One machine takes all that it can get: memory mappings, address space, descriptors, huge pages that are not there.  It is
 * refused what is too much, the server goes on, and its neighbour on another function of the process notices
 * nothing.  The same for who may reach the fabric, and for the operator's slips.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/pci/driver.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SANITIZED true
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define SANITIZED true
#endif
#ifndef SANITIZED
#define SANITIZED false
#endif

enum {
	PAGE = 4096,
	HUGE_PAGE = 2 << 20,
};

static const uint64_t far_away = 1ull << 40;

/* A machine that comes now finds a device that works. */
static void neighbour(const struct server *s)
{
	struct vm vm;
	struct drv d;

	server_lives(s);
	vm_open(&vm, s, 1);
	drv_probe(&d, &vm, DRV_72);
	assert_int_equal(drv_cmd(&d, 1, 2, NULL, 0), 0);
	vm_close(&vm);
}

/* Start with a command queue at @addr of @depth blocks. */
static void init_at(struct vm *vm, struct drv *d, uint64_t addr, uint32_t depth)
{
	vm_w32(vm, 0x10, 1);
	vm_w32(vm, 0x24, (uint32_t)(addr >> 32));
	vm_w32(vm, 0x20, (uint32_t)addr);
	vm_w32(vm, 0x30, depth);
	vm_w32(vm, 0x28, (uint32_t)d->ccq);
	vm_w32(vm, 0x2c, (uint32_t)(d->ccq >> 32));
	vm_w32(vm, 0x38, (uint32_t)d->ceq0);
	vm_w32(vm, 0x3c, (uint32_t)(d->ceq0 >> 32));
	vm_w32(vm, 0x34, 128);
	vm_w32(vm, 0x40, (uint32_t)d->aeq);
	vm_w32(vm, 0x44, (uint32_t)(d->aeq >> 32));
	vm_w32(vm, 0x48, 4096);
	vm_w32(vm, 0x10, 2);
	assert_true(vm_r32(vm, 0x14) & 2);
}

/* Make the server read the command queue at @addr. */
static void read_at(struct vm *vm, struct drv *d, uint64_t addr)
{
	init_at(vm, d, addr, 256);
	vm_w64(vm, 0x200, 2);
	/* answered after the doorbell */
	vm_r32(vm, 0);
}

/* The pool may be empty: then the first touch of such memory fails. */
static void test_huge_pages(void **state)
{
	int huge = memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB);
	struct server s;
	struct vm vm;
	struct drv d;

	(void)state;
	if (huge < 0)
		skip();
	assert_int_equal(ftruncate(huge, 2 * HUGE_PAGE), 0);
	server_start(&s, 2, NULL);
	vm_open(&vm, &s, 0);
	drv_probe(&d, &vm, DRV_72);
	/* as a monitor maps the memory below 1 MiB */
	assert_int_equal(vm_dma_map(&vm, far_away, 0xc0000, huge, 0, 3), 0);
	assert_int_equal(vm_dma_map(&vm, far_away + 0xc0000, PAGE, huge, 0xc0000, 3), 0);
	assert_int_equal(vm_dma_map(&vm, far_away + HUGE_PAGE, HUGE_PAGE, huge, HUGE_PAGE, 3), 0);
	read_at(&vm, &d, far_away + 0xc0000);
	server_lives(&s);
	read_at(&vm, &d, far_away + HUGE_PAGE + PAGE);
	server_lives(&s);
	assert_int_equal(vm_dma_unmap(&vm, far_away, 0xc0000), 0);
	assert_int_equal(vm_dma_unmap(&vm, far_away + 0xc0000, PAGE), 0);
	assert_int_equal(vm_dma_unmap(&vm, far_away + HUGE_PAGE, HUGE_PAGE), 0);
	neighbour(&s);
	vm_close(&vm);
	close(huge);
	server_stop(&s);
}

static void test_many_mappings(void **state)
{
	struct server s;
	uint32_t err = 0;
	struct vm vm;
	struct drv d;
	uint64_t i;
	int fd;

	(void)state;
	fd = memfd_create("small", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, 2 * PAGE), 0);
	server_start(&s, 2, NULL);
	vm_open(&vm, &s, 0);
	drv_probe(&d, &vm, DRV_72);
	for (i = 0; i < 70000 && !err; i++)
		err = vm_dma_map(&vm, far_away + i * 2 * PAGE, 2 * PAGE, fd, 0, 3);
	assert_int_equal(err, ENOSPC);
	neighbour(&s);
	/* a window loses one of its pages */
	assert_int_equal(ftruncate(fd, PAGE), 0);
	read_at(&vm, &d, far_away + PAGE);
	neighbour(&s);
	vm_close(&vm);
	close(fd);
	server_stop(&s);
}

static void test_address_space(void **state)
{
	struct server s;
	uint64_t i, n = 1;
	uint32_t err;
	struct vm vm;
	int fd;

	(void)state;
	if (SANITIZED)
		skip(); /* ThreadSanitizer keeps nearly all of the address space to itself */
	fd = memfd_create("sparse", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, 1ll << 44), 0);
	server_start(&s, 2, NULL);
	vm_open(&vm, &s, 0);
	for (i = 44; i >= 24; i--) {
		for (err = 0; !err; n++)
			err = vm_dma_map(&vm, n << 45, 1ull << i, fd, 0, 3);
	}
	neighbour(&s);
	vm_close(&vm);
	close(fd);
	server_stop(&s);
}

static unsigned int open_files(pid_t pid)
{
	unsigned int n = 0;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* Two processes of one fabric, and a guest on each that has a CQ. */
struct fabric {
	char dir[40];
	struct server s, far;
	struct vm vm, peer;
	struct drv d, peer_d;
	struct drv_cq here_cq, there_cq;
};

static void fabric_start(struct fabric *f, unsigned int functions)
{
	const char *extra[] = { "-d", f->dir, NULL };

	strcpy(f->dir, "/tmp/erdma-pci-fabric-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	server_start(&f->s, functions, extra);
	server_start(&f->far, 1, extra);
}

static void fabric_guests(struct fabric *f)
{
	vm_open(&f->vm, &f->s, 0);
	vm_open(&f->peer, &f->far, 0);
	drv_probe(&f->d, &f->vm, DRV_72);
	drv_probe(&f->peer_d, &f->peer, DRV_72);
	assert_int_equal(drv_create_cq(&f->d, &f->here_cq, 1, 8, 1, true), 0);
	assert_int_equal(drv_create_cq(&f->peer_d, &f->there_cq, 1, 8, 1, true), 0);
}

/* A QP on each side. */
static void fabric_qps(struct fabric *f, struct drv_qp *here, struct drv_qp *there, uint32_t qpn)
{
	assert_int_equal(drv_create_qp(&f->d, here, qpn, 1, &f->here_cq, &f->here_cq, true), 0);
	assert_int_equal(drv_create_qp(&f->peer_d, there, qpn, 1, &f->there_cq, &f->there_cq, true),
			 0);
}

static void fabric_stop(struct fabric *f)
{
	vm_close(&f->vm);
	vm_close(&f->peer);
	server_stop(&f->far);
	server_stop(&f->s);
	assert_int_equal(rmdir(f->dir), 0);
}

/* A guest connects with one on another process until there are no more descriptors for it. */
static void test_descriptors(void **state)
{
	enum {
		FILES = 1024,
		QPS = 1200,
		WAIT_MS = 20000
	};
	const struct rlimit low = { FILES, FILES };
	static struct drv_qp here[QPS], there[QPS];
	struct fabric f;
	struct vm other;
	uint32_t i;
	int ms;

	(void)state;
	fabric_start(&f, 2);
	assert_int_equal(prlimit(f.s.pid, RLIMIT_NOFILE, &low, NULL), 0);
	vm_open(&other, &f.s, 1);
	fabric_guests(&f);
	for (i = 0; i < QPS; i++) {
		struct drv_end end = { .sip = 0x0a000002,
				       .dip = 0x0a000001,
				       .sport = (uint16_t)(2000 + i),
				       .dport = (uint16_t)(2000 + i) };

		fabric_qps(&f, &here[i], &there[i], 1 + i);
		assert_int_equal(drv_rts(&there[i], here[i].cookie, &end), 0);
		end.sip = 0x0a000001;
		end.dip = 0x0a000002;
		assert_int_equal(drv_rts(&here[i], there[i].cookie, &end), 0);
	}
	for (ms = 0; open_files(f.s.pid) < FILES / 2 && ms < WAIT_MS; ms += 10)
		usleep(10000);
	assert_true(open_files(f.s.pid) >= FILES / 2);
	/* the neighbour's interrupt moves to another processor */
	vm_wire(&other, 3);
	vm_close(&other);
	neighbour(&f.s);
	fabric_stop(&f);
}

/* Many connect to the fabric's socket and say nothing; who has something to say is heard. */
static void test_silent_callers(void **state)
{
	enum {
		CALLERS = 1500
	};
	static int silent[CALLERS];
	const struct drv_wr write = { .op = WR_WRITE };
	struct drv_end end = { .sip = 0x0a000002, .dip = 0x0a000001, .sport = 1, .dport = 2 };
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct drv_qp here, there;
	struct drv_wc wc;
	struct fabric f;
	uint32_t i;

	(void)state;
	fabric_start(&f, 1);
	fabric_guests(&f);
	fabric_qps(&f, &here, &there, 1);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%d-0.fabric", f.dir, (int)f.s.pid);
	for (i = 0; i < CALLERS; i++) {
		silent[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(silent[i], (struct sockaddr *)&addr, sizeof(addr)), 0);
	}
	/* the server has the answering side */
	assert_int_equal(drv_rts(&here, there.cookie, &end), 0);
	end = (struct drv_end){ .sip = 0x0a000001, .dip = 0x0a000002, .sport = 2, .dport = 1 };
	assert_int_equal(drv_rts(&there, here.cookie, &end), 0);
	drv_post(&there, &write);
	assert_true(drv_poll(&f.there_cq, &wc, 20000));
	assert_int_equal(wc.syndrome, 0);
	for (i = 0; i < CALLERS; i++)
		close(silent[i]);
	fabric_stop(&f);
}

/* A path that is taken by what is no socket. */
static void test_wrong_path(void **state)
{
	char path[] = "/tmp/erdma-pci-file-XXXXXX", arg[64], byte = 0;
	int fd = mkstemp(path), status;
	pid_t pid;

	(void)state;
	assert_int_equal(write(fd, "x", 1), 1);
	snprintf(arg, sizeof(arg), "%s," SERVER_MAC, path);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(ERDMA_PCI, ERDMA_PCI, "-q", "-f", arg, NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	close(fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, &byte, 1), 1);
	assert_int_equal(byte, 'x');
	close(fd);
	unlink(path);
}

static unsigned long long blocked_signals(const char *path)
{
	unsigned long long set = 0;
	FILE *f = fopen(path, "re");
	char line[256];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, "SigBlk:", 7))
			set = strtoull(line + 7, NULL, 16);
	fclose(f);
	return set;
}

/* The supervisor changes its mind while the program still starts. */
static void test_early_signal(void **state)
{
	char dir[] = "/tmp/erdma-pci-early-XXXXXX", args[16][64], path[64];
	const char *argv[40] = { ERDMA_PCI, "-q" };
	const unsigned long long both = 1ULL << (SIGTERM - 1) | 1ULL << (SIGINT - 1);
	unsigned long long own;
	int i, n = 2, status;
	pid_t pid;

	(void)state;
	assert_non_null(mkdtemp(dir));
	for (i = 0; i < 16; i++) {
		snprintf(args[i], sizeof(args[i]), "%s/%d," SERVER_MAC, dir, i);
		argv[n++] = "-f";
		argv[n++] = args[i];
	}
	own = blocked_signals("/proc/self/status");
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execv(argv[0], (char **)(uintptr_t)argv);
		_exit(127);
	}
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	/* fork() and exec block all of them for a moment */
	while (blocked_signals(path) != (own | both))
		assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	assert_int_equal(kill(pid, SIGTERM), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(rmdir(dir), 0);
}

/* Who reads the log has stopped. */
static void test_nobody_reads_log(void **state)
{
	char arg[96], line[16] = "", page[4096] = { 0 };
	struct server s = { .dir = "/tmp/erdma-pci-log-XXXXXX" };
	int out[2], err[2];
	struct vm vm;
	struct drv d;

	(void)state;
	assert_non_null(mkdtemp(s.dir));
	snprintf(arg, sizeof(arg), "%s/0," SERVER_MAC, s.dir);
	assert_int_equal(pipe(out), 0);
	assert_int_equal(pipe(err), 0);
	assert_int_equal(fcntl(err[1], F_SETFL, O_NONBLOCK), 0);
	while (write(err[1], page, sizeof(page)) > 0)
		;
	assert_int_equal(fcntl(err[1], F_SETFL, 0), 0);
	s.pid = fork();
	assert_true(s.pid >= 0);
	if (!s.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], STDOUT_FILENO);
		dup2(err[1], STDERR_FILENO);
		execl(ERDMA_PCI, ERDMA_PCI, "-v", "-f", arg, NULL);
		_exit(127);
	}
	assert_int_equal(read(out[0], line, sizeof(line)), 6);
	vm_open(&vm, &s, 0);
	drv_probe(&d, &vm, DRV_72);
	/* a command that is refused is worth a line */
	assert_int_not_equal(drv_cmd(&d, 0, 200, NULL, 0), 0);
	vm_close(&vm);
	server_stop(&s);
	close(out[0]);
	close(out[1]);
	close(err[0]);
	close(err[1]);
}

/* More commands at once than any driver has: all are served in order, and a reset ends them. */
static void test_many_commands(void **state)
{
	enum {
		DEPTH = 32768,
		COMMANDS = DEPTH / 2,
		CANARY = 0x5c
	};
	struct server s;
	struct vm vm;
	struct drv d;
	uint32_t i, index;
	uint8_t *cq;
	int round, ms;

	(void)state;
	server_start(&s, 2, NULL);
	vm_open(&vm, &s, 0);
	drv_probe(&d, &vm, DRV_61);
	d.csq = vm_alloc(&vm, DEPTH * 32);
	d.ccq = vm_alloc(&vm, DEPTH * 32);
	d.depth = DEPTH;
	cq = vm_at(&vm, d.ccq);
	for (round = 0; round < 2; round++) {
		init_at(&vm, &d, d.csq, DEPTH);
		memset(cq, 0, DEPTH * 32);
		d.csq_pi = 0;
		for (i = 0; i < COMMANDS; i++)
			drv_put_cmd(&d, 1, 2, NULL, 0);
		vm_w64(&vm, 0x200, d.csq_pi);
		if (round)
			break;
		for (ms = 0; !(cq[(COMMANDS - 1) * 32] & 0x80) && ms < 20000; ms++)
			usleep(1000);
		for (i = 0; i < COMMANDS; i++) {
			memcpy(&index, cq + i * 32 + 4, sizeof(index));
			assert_int_equal(ntohl(index), 2 * i);
			assert_int_equal(cq[i * 32], 0x80);
		}
	}
	vm_w32(&vm, 0x10, 1);
	memset(cq, CANARY, DEPTH * 32);
	neighbour(&s);
	usleep(5000);
	for (i = 0; i < DEPTH * 32; i++)
		assert_int_equal(cq[i], CANARY);
	drv_probe(&d, &vm, DRV_72);
	vm_close(&vm);
	server_stop(&s);
}

/* In the folder where processes meet, one of another PID namespace has the same number. */
static void test_same_number(void **state)
{
	struct server s = { .dir = "/tmp/erdma-pci-same-XXXXXX" };
	char dir[] = "/tmp/erdma-pci-fabric-XXXXXX", arg[96], line[16] = "";
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int go[2], out[2], other;

	(void)state;
	assert_non_null(mkdtemp(s.dir));
	assert_non_null(mkdtemp(dir));
	snprintf(arg, sizeof(arg), "%s/0," SERVER_MAC, s.dir);
	assert_int_equal(pipe(go), 0);
	assert_int_equal(pipe(out), 0);
	s.pid = fork();
	assert_true(s.pid >= 0);
	if (!s.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], STDOUT_FILENO);
		if (read(go[0], line, 1) == 1)
			execl(ERDMA_PCI, ERDMA_PCI, "-q", "-f", arg, "-d", dir, NULL);
		_exit(127);
	}
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%d-0.fabric", dir, (int)s.pid);
	other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(other, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(other, 1), 0);
	assert_int_equal(write(go[1], "", 1), 1);
	close(out[1]);
	assert_int_equal(read(out[0], line, sizeof(line)), 6);
	server_stop(&s);
	close(other);
	assert_int_equal(unlink(addr.sun_path), 0);
	assert_int_equal(rmdir(dir), 0);
	close(go[0]);
	close(go[1]);
	close(out[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_huge_pages),     cmocka_unit_test(test_many_mappings),
		cmocka_unit_test(test_address_space),  cmocka_unit_test(test_descriptors),
		cmocka_unit_test(test_silent_callers), cmocka_unit_test(test_wrong_path),
		cmocka_unit_test(test_early_signal),   cmocka_unit_test(test_same_number),
		cmocka_unit_test(test_many_commands),  cmocka_unit_test(test_nobody_reads_log),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
