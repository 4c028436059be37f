// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The user-MAD device as programs use it: libibumad, and open, ioctl, read and write alone. Two devices on two loopback
 * addresses that nobody else uses talk to each other.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/umad.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "adapter/wire/gsi.h"
#include "tests/instrumented.h"

extern char **environ;

enum {
	REGISTER = 0xc01c1b01,
	UNREGISTER = 0x40041b02,
	ENABLE_PKEY = 0x1b03,
	REGISTER2 = 0xc0281b04,
	HDR = 64,
	OLD_HDR = 56,
	MAD = 256,
	CM = 7,
	PERF = 4,
	GET = 1,
	SEND = 3,
	GET_RESP = 0x81,
	WAIT_MS = 20000,
	NAME = 64,
};

/* Offsets in the header that comes before a MAD. */
enum {
	H_ID = 0,
	H_STATUS = 4,
	H_TIMEOUT = 8,
	H_RETRIES = 12,
	H_LENGTH = 16,
	H_QPN = 20,
	H_LID = 28,
	H_GRH = 32,
	H_INDEX = 33,
	H_HOP = 34,
	H_CLASS = 35,
	H_GID = 36,
};

static char addr_a[NAME], addr_b[NAME], addr_none[NAME];
/* memory that nobody may touch */
static void *bad_memory;
static uint8_t gid_a[16], gid_b[16], gid_none[16];

static void put32(uint8_t *p, uint32_t value)
{
	memcpy(p, &value, sizeof(value));
}

static uint32_t get32(const uint8_t *p)
{
	uint32_t value;

	memcpy(&value, p, sizeof(value));
	return value;
}

static uint64_t tid_of(const uint8_t *mad)
{
	uint64_t value;

	memcpy(&value, mad + 8, sizeof(value));
	return be64toh(value);
}

/* ------------------------------------------------------------------ a device file */

static int open_dev(int number)
{
	char path[NAME];
	int fd;

	snprintf(path, sizeof(path), "/dev/infiniband/umad%d", number);
	fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

/* As open_dev(), with the long header. */
static int open_long(int number)
{
	int fd = open_dev(number);

	assert_int_equal(ioctl(fd, ENABLE_PKEY, NULL), 0);
	return fd;
}

/* The agent's id, or -errno. */
static int reg(int fd, int qpn, int class, int version, uint32_t methods, int rmpp)
{
	uint8_t req[28] = { 0 };

	put32(req, 0x55555555);
	put32(req + 4, methods);
	req[20] = qpn;
	req[21] = class;
	req[22] = version;
	req[26] = rmpp;
	return ioctl(fd, REGISTER, req) ? -errno : (int)get32(req);
}

static int reg_cm(int fd)
{
	return reg(fd, 1, CM, 2, 1 << SEND, 0);
}

static int unreg(int fd, uint32_t id)
{
	return ioctl(fd, UNREGISTER, &id) ? -errno : 0;
}

static void make_mad(uint8_t *mad, int class, int version, int method, int attr, uint64_t tid)
{
	int i;

	memset(mad, 0, MAD);
	mad[0] = 1;
	mad[1] = class;
	mad[2] = version;
	mad[3] = method;
	for (i = 0; i < 8; i++)
		mad[15 - i] = tid >> 8 * i;
	mad[16] = attr >> 8;
	mad[17] = attr;
	for (i = 24; i < (int)MAD; i++)
		mad[i] = i + tid;
}

static void make_hdr(uint8_t *buf, int id, const uint8_t *gid)
{
	memset(buf, 0, HDR);
	put32(buf + H_ID, id);
	put32(buf + H_QPN, htonl(1));
	buf[H_GRH] = 1;
	memcpy(buf + H_GID, gid, 16);
}

static int write_buf(int fd, const uint8_t *buf, size_t len)
{
	ssize_t n = write(fd, buf, len);

	return n < 0 ? -errno : (int)n;
}

static void send_cm(int fd, int id, const uint8_t *gid, uint64_t tid)
{
	uint8_t buf[HDR + MAD];

	make_hdr(buf, id, gid);
	make_mad(buf + HDR, CM, 2, SEND, 0x10, tid);
	assert_int_equal(write_buf(fd, buf, sizeof(buf)), sizeof(buf));
}

static void wait_readable(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN | POLLOUT };
	int i;

	/* always writable, so poll alone would not wait */
	for (i = 0; i < (int)WAIT_MS; i++) {
		assert_int_equal(poll(&pfd, 1, 0), 1);
		assert_true(pfd.revents & POLLOUT);
		if (pfd.revents & POLLIN)
			return;
		pfd.events = POLLIN;
		poll(&pfd, 1, 1);
		pfd.events = POLLIN | POLLOUT;
	}
	fail_msg("nothing came");
}

static ssize_t recv_buf(int fd, uint8_t *buf, size_t size)
{
	wait_readable(fd);
	return read(fd, buf, size);
}

static void expect_nothing(int fd)
{
	uint8_t buf[HDR + MAD];
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	assert_int_equal(poll(&pfd, 1, 0), 0);
	assert_int_equal(read(fd, buf, sizeof(buf)), -1);
	assert_int_equal(errno, EAGAIN);
}

static unsigned long counter(const char *dev, const char *name)
{
	unsigned long value;
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/hw_counters/%s", dev, name);
	file = fopen(path, "re");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%lu", &value), 1);
	fclose(file);
	return value;
}

/* Ends with 0, or the errno with which a registration of CM on that address fails in another process. */
static int in_other_process(const char *what, const char *address)
{
	char host[NAME + 32];
	char *argv[] = { (char *)"umad_device", (char *)what, NULL };
	int status;
	pid_t pid;

	snprintf(host, sizeof(host), "umad=%s", address);
	assert_int_equal(setenv("ERDMA_HOST", host, 1), 0);
	assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int other_process(const char *what)
{
	int fd = open("/dev/infiniband/umad0", O_RDWR | O_NONBLOCK), id;
	uint8_t buf[HDR + MAD];

	if (fd < 0 || ioctl(fd, ENABLE_PKEY, NULL))
		return 120;
	if (!strcmp(what, "register")) {
		id = reg_cm(fd);
		return id < 0 ? -id : 0;
	}
	/* "send": without a class nobody is in the way */
	id = reg(fd, 1, 0, 0, 0, 0);
	if (id < 0)
		return -id;
	make_hdr(buf, id, gid_a);
	make_mad(buf + HDR, CM, 2, SEND, 0x10, 77);
	return write(fd, buf, sizeof(buf)) == sizeof(buf) ? 0 : errno;
}

/* ------------------------------------------------------------------ sysfs, libibumad */

static void sysfs(void **state)
{
	char names[UMAD_MAX_DEVICES][UMAD_CA_NAME_LEN];
	umad_ca_t ca;
	umad_port_t port;
	struct stat st;
	__be64 guids[4];

	(void)state;
	assert_int_equal(umad_init(), 0);
	assert_int_equal(umad_get_cas_names(names, UMAD_MAX_DEVICES), 2);
	assert_string_equal(names[0], "roce_a");
	assert_string_equal(names[1], "roce_b");
	assert_int_equal(umad_get_ca("roce_b", &ca), 0);
	assert_int_equal(ca.node_type, 1);
	assert_int_equal(ca.numports, 1);
	assert_string_not_equal(ca.fw_ver, "");
	assert_true(ca.node_guid != 0);
	assert_int_equal(umad_get_ca_portguids("roce_b", guids, 4), 2);
	umad_release_ca(&ca);
	assert_int_equal(umad_get_port("roce_a", 0, &port), 0);
	assert_int_equal(port.portnum, 1);
	assert_int_equal(port.state, 4);
	assert_string_equal(port.link_layer, "Ethernet");
	assert_int_equal(port.pkeys[0], 0xffff);
	assert_memory_equal(&port.gid_prefix, gid_a, 8);
	assert_memory_equal(&port.port_guid, gid_a + 8, 8);
	umad_release_port(&port);
	assert_int_equal(stat("/dev/infiniband/umad1", &st), 0);
	assert_true(S_ISCHR(st.st_mode));
	assert_true(st.st_rdev == makedev(231, 1));
	assert_int_equal(umad_get_port("erdma_0", 1, &port), -EIO);
	assert_int_equal(umad_open_port("no_such", 1), -EINVAL);
}

/* The mux does the same, with the CM class. */
static void libibumad(void **state)
{
	long methods[16 / sizeof(long)] = { 1 << SEND };
	int a, b, agent_a, agent_b, len = MAD;
	ib_mad_addr_t *addr;
	void *umad;

	(void)state;
	a = umad_open_port("roce_a", 1);
	b = umad_open_port("roce_b", 1);
	assert_true(a >= 0 && b >= 0);
	/* the library learns the header's size by opening */
	umad = umad_alloc(1, umad_size() + MAD);
	assert_non_null(umad);
	agent_a = umad_register(a, CM, 2, 0, methods);
	agent_b = umad_register(b, CM, 2, 0, methods);
	assert_int_equal(agent_a, 0);
	assert_int_equal(agent_b, 0);
	assert_true(umad_register(a, CM, 2, 0, methods) < 0);
	make_mad(umad_get_mad(umad), CM, 2, SEND, 0x10, 5);
	umad_set_addr(umad, 0, 1, 0, 0);
	umad_set_grh(umad, &(ib_mad_addr_t){ 0 });
	addr = umad_get_mad_addr(umad);
	addr->grh_present = 1;
	memcpy(addr->gid, gid_b, 16);
	assert_int_equal(umad_send(a, agent_a, umad, MAD, 0, 0), 0);
	assert_int_equal(umad_poll(b, WAIT_MS), 0);
	memset(umad, 0, umad_size() + MAD);
	assert_int_equal(umad_recv(b, umad, &len, 0), agent_b);
	assert_int_equal(len, MAD);
	assert_int_equal(umad_status(umad), 0);
	addr = umad_get_mad_addr(umad);
	assert_memory_equal(addr->gid, gid_a, 16);
	assert_int_equal(ntohl(addr->qpn), 1);
	/* and back, to the address as it came */
	assert_int_equal(umad_send(b, agent_b, umad, MAD, 0, 0), 0);
	assert_int_equal(umad_poll(a, WAIT_MS), 0);
	assert_int_equal(umad_recv(a, umad, &len, 0), agent_a);
	assert_int_equal(umad_unregister(a, agent_a), 0);
	assert_int_equal(umad_poll(a, 1), -ETIMEDOUT);
	assert_int_equal(umad_close_port(a), 0);
	assert_int_equal(umad_close_port(b), 0);
	umad_free(umad);
}

/* ------------------------------------------------------------------ ioctl */

static void registration(void **state)
{
	int fd = open_dev(0), other, id;
	uint32_t bad = 32;

	(void)state;
	/* queue pair, class, version, methods, RMPP version */
	assert_int_equal(reg(fd, 2, CM, 2, 1 << SEND, 0), -EINVAL);
	assert_int_equal(reg(fd, 0, 0x81, 1, 0, 0), -EPROTONOSUPPORT);
	assert_int_equal(reg(fd, 1, 0x01, 1, 2, 0), -EINVAL);
	assert_int_equal(reg(fd, 1, 0x81, 1, 2, 0), -EINVAL);
	assert_int_equal(reg(fd, 1, 0x51, 1, 2, 0), -EINVAL);
	assert_int_equal(reg(fd, 1, CM, 0x83, 2, 0), -EINVAL);
	assert_int_equal(reg(fd, 1, CM, 2, 1 << SEND, 1), -EINVAL);
	assert_int_equal(reg(fd, 1, 3, 2, 0, 2), -EINVAL);
	assert_int_equal(reg(fd, 1, 0x32, 1, 2, 0), -EINVAL); /* no OUI */
	assert_int_equal(ioctl(fd, REGISTER, NULL), -1);
	assert_int_equal(errno, EFAULT);
	assert_int_equal(ioctl(fd, 0x1b7f, NULL), -1);
	assert_int_equal(errno, ENOTTY);

	/* what failed does not count as a first use */
	assert_int_equal(ioctl(fd, ENABLE_PKEY, NULL), 0);
	assert_int_equal(ioctl(fd, ENABLE_PKEY, NULL), 0);
	assert_int_equal(reg_cm(fd), 0);
	assert_int_equal(ioctl(fd, ENABLE_PKEY, NULL), -1);
	assert_int_equal(errno, EINVAL);
	/* one class, one method, one agent: here, by another file, not by another version */
	assert_int_equal(reg_cm(fd), -EINVAL);
	other = open_dev(0);
	assert_int_equal(reg_cm(other), -EINVAL);
	assert_int_equal(reg(other, 1, CM, 2, 1 << GET, 0), 0);
	assert_int_equal(reg(other, 1, CM, 1, 1 << SEND, 0), 1);
	assert_int_equal(reg(other, 1, 0, 0, 0, 0), 2);
	assert_int_equal(unreg(other, 1), 0);
	assert_int_equal(unreg(other, 1), -EINVAL);
	assert_int_equal(unreg(other, bad), -EINVAL);
	assert_int_equal(ioctl(other, UNREGISTER, NULL), -1);
	assert_int_equal(errno, EFAULT);
	/* the lowest free id; 32 of them */
	assert_int_equal(reg(other, 1, 0, 0, 0, 0), 1);
	for (id = 3; id < 32; id++)
		assert_int_equal(reg(other, 1, 0, 0, 0, 0), id);
	assert_int_equal(reg(other, 1, 0, 0, 0, 0), -ENOMEM);
	close(other);
	/* closing frees what was registered */
	assert_int_equal(unreg(fd, 0), 0);
	assert_int_equal(reg(fd, 1, CM, 2, 1 << GET | 1 << SEND, 0), 0);
	close(fd);
}

static void registration2(void **state)
{
	uint8_t req[40] = { 0 }, buf[HDR + MAD];
	int fd = open_dev(0), b = open_long(1);

	(void)state;
	assert_int_equal(reg_cm(b), 0);
	put32(req + 4, 1);
	req[8] = CM;
	req[9] = 2;
	put32(req + 12, 0x10);
	put32(req + 16, 1 << SEND);
	assert_int_equal(ioctl(fd, REGISTER2, req), -1);
	assert_int_equal(errno, EINVAL);
	/* what is known comes back */
	assert_int_equal(get32(req + 12), 1);
	put32(req + 4, 2);
	assert_int_equal(ioctl(fd, REGISTER2, req), -1);
	assert_int_equal(errno, EINVAL);
	put32(req + 4, 1);
	put32(req + 32, 0x01000000);
	assert_int_equal(ioctl(fd, REGISTER2, req), -1);
	assert_int_equal(errno, EINVAL);
	put32(req + 32, 0);
	put32(req, 99);
	assert_int_equal(ioctl(fd, REGISTER2, req), 0);
	assert_int_equal(get32(req), 0);
	/* its headers are long without being asked for */
	send_cm(b, 0, gid_a, 9);
	assert_int_equal(recv_buf(fd, buf, sizeof(buf)), HDR + MAD);
	close(fd);
	close(b);
}

/* ------------------------------------------------------------------ write, read */

static void header(void **state)
{
	int a = open_long(0), b = open_long(1);
	uint8_t buf[HDR + MAD + 8], sent[HDR + MAD];

	(void)state;
	/* the second of two agents, so that an id says something */
	assert_int_equal(reg(a, 1, 0, 0, 0, 0), 0);
	assert_int_equal(reg(b, 1, 0, 0, 0, 0), 0);
	assert_int_equal(reg_cm(b), 1);
	make_hdr(sent, 0, gid_b);
	sent[H_CLASS] = 0x20;
	make_mad(sent + HDR, CM, 2, SEND, 0x15, 0x1122334455667788);
	assert_int_equal(write_buf(a, sent, sizeof(sent)), sizeof(sent));
	assert_int_equal(recv_buf(b, buf, sizeof(buf)), HDR + MAD);
	assert_int_equal(get32(buf + H_ID), 1);
	assert_int_equal(get32(buf + H_STATUS), 0);
	assert_int_equal(get32(buf + H_LENGTH), HDR + MAD);
	assert_int_equal(ntohl(get32(buf + H_QPN)), 1);
	assert_int_equal(buf[H_GRH], 1);
	assert_int_equal(buf[H_INDEX], 0);
	assert_int_equal(buf[H_HOP], 64);
	assert_int_equal(buf[H_CLASS], 0x20);
	assert_memory_equal(buf + H_GID, gid_a, 16);
	/* the upper half of the transaction id is the agent's */
	assert_int_equal((uint32_t)tid_of(buf + HDR), 0x55667788);
	assert_true(tid_of(buf + HDR) >> 32 != 0x11223344);
	assert_true(tid_of(buf + HDR) >> 56 == 0);
	assert_memory_equal(buf + HDR + 16, sent + HDR + 16, MAD - 16);
	close(a);
	close(b);
}

static void old_header(void **state)
{
	int a = open_dev(0), b = open_dev(1);
	uint8_t buf[HDR + MAD], hdr[HDR];

	(void)state;
	assert_int_equal(reg_cm(a), 0);
	assert_int_equal(reg_cm(b), 0);
	make_hdr(hdr, 0, gid_b);
	memcpy(buf, hdr, OLD_HDR);
	make_mad(buf + OLD_HDR, CM, 2, SEND, 0x10, 3);
	assert_int_equal(write_buf(a, buf, OLD_HDR + MAD), OLD_HDR + MAD);
	memset(buf, 0, sizeof(buf));
	assert_int_equal(recv_buf(b, buf, sizeof(buf)), OLD_HDR + MAD);
	assert_int_equal(get32(buf + H_LENGTH), OLD_HDR + MAD);
	assert_int_equal(buf[OLD_HDR + 1], CM);
	close(a);
	close(b);
}

static void bad_writes(void **state)
{
	int fd = open_long(0), read_only;
	uint8_t buf[HDR + MAD + 1], v6[16] = { [15] = 1 };

	(void)state;
	assert_int_equal(reg(fd, 1, 0, 0, 0, 0), 0);
	make_hdr(buf, 0, gid_b);
	make_mad(buf + HDR, CM, 2, SEND, 0x10, 1);
	assert_int_equal(write_buf(fd, buf, 0), -EINVAL);
	assert_int_equal(write_buf(fd, buf, HDR + 35), -EINVAL);
	assert_int_equal(write_buf(fd, buf, HDR + 36), HDR + 36);
	assert_int_equal(write_buf(fd, buf, HDR + MAD), HDR + MAD);
	assert_int_equal(write_buf(fd, buf, HDR + MAD + 1), -EINVAL);
	put32(buf + H_ID, 32);
	assert_int_equal(write_buf(fd, buf, HDR + MAD), -EINVAL);
	put32(buf + H_ID, 1);
	assert_int_equal(write_buf(fd, buf, HDR + MAD), -EIO);
	put32(buf + H_ID, 0);
	buf[H_GRH] = 0;
	assert_int_equal(write_buf(fd, buf, HDR + MAD), -EINVAL);
	buf[H_GRH] = 1;
	buf[H_INDEX] = 1;
	assert_int_equal(write_buf(fd, buf, HDR + MAD), -ENODATA);
	buf[H_INDEX] = 200;
	assert_int_equal(write_buf(fd, buf, HDR + MAD), -EINVAL);
	buf[H_INDEX] = 0;
	memcpy(buf + H_GID, v6, 16);
	assert_int_equal(write_buf(fd, buf, HDR + MAD), -EINVAL);
	assert_int_equal(write(fd, bad_memory, HDR + MAD), -1);
	assert_int_equal(errno, EFAULT);
	close(fd);
	read_only = open("/dev/infiniband/umad0", O_RDONLY);
	assert_true(read_only >= 0);
	assert_int_equal(write_buf(read_only, buf, HDR + MAD), -EBADF);
	close(read_only);
}

/* A buffer that is too small, or bad, takes nothing from the queue. */
static void bad_reads(void **state)
{
	int a = open_long(0), b = open_long(1);
	uint8_t buf[HDR + MAD];
	struct iovec iov[2] = { { buf, HDR }, { buf + HDR, MAD } };

	(void)state;
	assert_int_equal(reg_cm(a), 0);
	assert_int_equal(reg_cm(b), 0);
	expect_nothing(b);
	assert_int_equal(read(b, buf, HDR - 1), -1);
	assert_int_equal(errno, EINVAL);
	send_cm(a, 0, gid_b, 4);
	assert_int_equal(recv_buf(b, buf, HDR + MAD - 1), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(recv_buf(b, buf, HDR), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(read(b, bad_memory, HDR + MAD), -1);
	assert_int_equal(errno, EFAULT);
	assert_int_equal(readv(b, iov, 2), -1);
	assert_int_equal(errno, EINVAL);
	iov[0].iov_len = sizeof(buf);
	assert_int_equal(readv(b, iov, 1), HDR + MAD);
	assert_int_equal((uint32_t)tid_of(buf + HDR), 4);
	expect_nothing(b);
	close(a);
	close(b);
}

static void order(void **state)
{
	int a = open_long(0), b = open_long(1), copy;
	uint8_t buf[HDR + MAD];
	uint32_t i;

	(void)state;
	assert_int_equal(reg_cm(a), 0);
	assert_int_equal(reg_cm(b), 0);
	for (i = 0; i < 100; i++)
		send_cm(a, 0, gid_b, i);
	/* a copy of the descriptor is the same file, also when the first is closed */
	copy = dup(b);
	close(b);
	for (i = 0; i < 100; i++) {
		assert_int_equal(recv_buf(copy, buf, sizeof(buf)), sizeof(buf));
		assert_int_equal((uint32_t)tid_of(buf + HDR), i);
	}
	expect_nothing(copy);
	close(a);
	close(copy);
}

static void edge_triggered(void **state)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	int a = open_long(0), b = open_long(1), ep = epoll_create1(EPOLL_CLOEXEC);
	uint8_t buf[HDR + MAD];
	int i;

	(void)state;
	assert_int_equal(reg_cm(a), 0);
	assert_int_equal(reg_cm(b), 0);
	assert_int_equal(epoll_ctl(ep, EPOLL_CTL_ADD, b, &ev), 0);
	for (i = 0; i < 3; i++) {
		/* each arrival is an event, though the last MAD still waits */
		send_cm(a, 0, gid_b, i);
		assert_int_equal(epoll_wait(ep, &ev, 1, WAIT_MS), 1);
	}
	for (i = 0; i < 3; i++)
		assert_int_equal(read(b, buf, sizeof(buf)), sizeof(buf));
	assert_int_equal(epoll_wait(ep, &ev, 1, 0), 0);
	close(ep);
	close(a);
	close(b);
}

static void *blocking_reader(void *arg)
{
	uint8_t buf[HDR + MAD];

	return (void *)(intptr_t)read(*(int *)arg, buf, sizeof(buf));
}

static void blocking(void **state)
{
	int a = open_long(0), b = open("/dev/infiniband/umad1", O_RDWR);
	pthread_t thread;
	void *result;

	(void)state;
	assert_int_equal(ioctl(b, ENABLE_PKEY, NULL), 0);
	assert_int_equal(reg_cm(a), 0);
	assert_int_equal(reg_cm(b), 0);
	assert_int_equal(pthread_create(&thread, NULL, blocking_reader, &b), 0);
	usleep(20000);
	send_cm(a, 0, gid_b, 1);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_int_equal((intptr_t)result, HDR + MAD);
	/* one that waits can be ended */
	assert_int_equal(pthread_create(&thread, NULL, blocking_reader, &b), 0);
	usleep(20000);
	assert_int_equal(pthread_cancel(thread), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	/* and the file is closed for all that, so that its class is free */
	close(b);
	b = open_long(1);
	assert_int_equal(reg_cm(b), 0);
	close(a);
	close(b);
}

/* ------------------------------------------------------------------ requests */

static void time_out(void **state)
{
	int fd = open_long(0);
	uint8_t buf[HDR + MAD], in[HDR + MAD];

	(void)state;
	assert_int_equal(reg(fd, 1, 0, 0, 0, 0), 0);
	make_hdr(buf, 0, gid_none);
	make_mad(buf + HDR, PERF, 1, GET, 1, 41);
	put32(buf + H_TIMEOUT, 1000000);
	assert_int_equal(write_buf(fd, buf, sizeof(buf)), sizeof(buf));
	/* until then the transaction is under way */
	assert_int_equal(write_buf(fd, buf, sizeof(buf)), -EINVAL);
	put32(buf + H_TIMEOUT, 100);
	put32(buf + H_RETRIES, 2);
	put32(buf + H_LENGTH, 4711);
	buf[HDR + 15] = 42;
	assert_int_equal(write_buf(fd, buf, sizeof(buf)), sizeof(buf));
	buf[HDR + 15] = 43;
	put32(buf + H_TIMEOUT, 0);
	assert_int_equal(write_buf(fd, buf, sizeof(buf)), sizeof(buf));
	assert_int_equal(write_buf(fd, buf, sizeof(buf)), sizeof(buf));

	wait_readable(fd);
	assert_int_equal(read(fd, in, HDR + 23), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(read(fd, in, sizeof(in)), HDR + 24);
	assert_int_equal(get32(in + H_STATUS), ETIMEDOUT);
	assert_int_equal(get32(in + H_LENGTH), 4711);
	assert_int_equal(get32(in + H_TIMEOUT), 100);
	assert_memory_equal(in + H_GID, gid_none, 16);
	assert_int_equal(in[HDR + 1], PERF);
	assert_int_equal((uint32_t)tid_of(in + HDR), 42);
	assert_true(tid_of(in + HDR) >> 32 != 0);
	/* sent three times; the first once, and those without waiting */
	assert_int_equal(counter("roce_a", "sent_mads"), 6);
	/* the id is free again */
	put32(buf + H_TIMEOUT, 100000);
	buf[HDR + 15] = 42;
	assert_int_equal(write_buf(fd, buf, sizeof(buf)), sizeof(buf));
	/* an agent that goes takes it away */
	assert_int_equal(unreg(fd, 0), 0);
	expect_nothing(fd);
	close(fd);
}

static void response(void **state)
{
	int a = open_long(0), b = open_long(1), other = open_long(0);
	uint8_t req[HDR + MAD], buf[HDR + MAD], in[HDR + MAD];

	(void)state;
	assert_int_equal(reg(other, 1, 0, 0, 0, 0), 0);
	assert_int_equal(reg(a, 1, 0, 0, 0, 0), 0);
	assert_int_equal(reg(b, 1, PERF, 1, 1 << GET, 0), 0);
	make_hdr(req, 0, gid_b);
	put32(req + H_TIMEOUT, 100000);
	make_mad(req + HDR, PERF, 1, GET, 1, 42);
	assert_int_equal(write_buf(a, req, sizeof(req)), sizeof(req));
	assert_int_equal(recv_buf(b, buf, sizeof(buf)), sizeof(buf));
	/* the answer goes back with the requester's transaction id, to the one who asked */
	buf[HDR + 3] = GET_RESP;
	buf[HDR + 100] ^= 0xff;
	assert_int_equal(write_buf(b, buf, sizeof(buf)), sizeof(buf));
	assert_int_equal(recv_buf(a, in, sizeof(in)), sizeof(in));
	assert_int_equal(get32(in + H_STATUS), 0);
	assert_memory_equal(in + HDR, buf + HDR, MAD);
	/* a second answer, and one to a question that nobody asked, are nobody's */
	assert_int_equal(write_buf(b, buf, sizeof(buf)), sizeof(buf));
	buf[HDR + 15] ^= 1;
	assert_int_equal(write_buf(b, buf, sizeof(buf)), sizeof(buf));
	req[HDR + 15] = 44;
	assert_int_equal(write_buf(a, req, sizeof(req)), sizeof(req));
	assert_int_equal(recv_buf(b, buf, sizeof(buf)), sizeof(buf));
	buf[HDR + 3] = GET_RESP;
	buf[HDR + 101] ^= 0xff;
	assert_int_equal(write_buf(b, buf, sizeof(buf)), sizeof(buf));
	assert_int_equal(recv_buf(a, in, sizeof(in)), sizeof(in));
	assert_memory_equal(in + HDR, buf + HDR, MAD);
	expect_nothing(a);
	expect_nothing(other);
	assert_int_equal(counter("roce_a", "unclaimed_mads"), 2);
	close(a);
	close(b);
	close(other);
}

/* As a kernel answers for what has no agent. */
static void nobody_registered(void **state)
{
	int a = open_long(0), b = open_long(1);
	uint8_t buf[HDR + MAD], in[HDR + MAD];

	(void)state;
	assert_int_equal(reg_cm(b), 0);
	assert_int_equal(reg(a, 1, 0, 0, 0, 0), 0);
	make_hdr(buf, 0, gid_b);
	put32(buf + H_TIMEOUT, 100000);
	make_mad(buf + HDR, CM, 2, GET, 1, 42);
	assert_int_equal(write_buf(a, buf, sizeof(buf)), sizeof(buf));
	assert_int_equal(recv_buf(a, in, sizeof(in)), sizeof(in));
	assert_int_equal(in[HDR + 3], GET_RESP);
	assert_int_equal(in[HDR + 5], 0x0c);
	/* CM by another method than Send, another base version, a subnet management packet: dropped */
	put32(buf + H_TIMEOUT, 0);
	make_mad(buf + HDR, CM, 2, GET, 0x10, 43);
	assert_int_equal(write_buf(a, buf, sizeof(buf)), sizeof(buf));
	make_mad(buf + HDR, CM, 2, SEND, 0x10, 44);
	buf[HDR] = 2;
	assert_int_equal(write_buf(a, buf, sizeof(buf)), sizeof(buf));
	make_mad(buf + HDR, 0x81, 1, GET, 0x10, 45);
	assert_int_equal(write_buf(a, buf, sizeof(buf)), sizeof(buf));
	send_cm(a, 0, gid_b, 46);
	assert_int_equal(recv_buf(b, in, sizeof(in)), sizeof(in));
	assert_int_equal((uint32_t)tid_of(in + HDR), 46);
	assert_int_equal(counter("roce_b", "unclaimed_mads"), 4);
	expect_nothing(a);
	close(a);
	close(b);
}

/* Vendor classes are told apart by the vendor. */
static void vendors(void **state)
{
	static const uint8_t ouis[2][3] = { { 0x00, 0x14, 0x05 }, { 0x00, 0x11, 0x22 } };
	int a = open_long(0), b[2], i;
	uint8_t req[28] = { 0 }, buf[HDR + MAD];

	(void)state;
	assert_int_equal(reg(a, 1, 0, 0, 0, 0), 0);
	put32(req + 4, 1 << SEND);
	req[20] = 1;
	req[21] = 0x32;
	req[22] = 1;
	for (i = 0; i < 2; i++) {
		b[i] = open_long(1);
		memcpy(req + 23, ouis[i], 3);
		assert_int_equal(ioctl(b[i], REGISTER, req), 0);
		assert_int_equal(ioctl(b[i], REGISTER, req), -1);
	}
	for (i = 0; i < 2; i++) {
		make_hdr(buf, 0, gid_b);
		make_mad(buf + HDR, 0x32, 1, SEND, 0x10, i);
		memcpy(buf + HDR + 37, ouis[i], 3);
		assert_int_equal(write_buf(a, buf, sizeof(buf)), sizeof(buf));
		assert_int_equal(recv_buf(b[i], buf, sizeof(buf)), sizeof(buf));
		expect_nothing(b[!i]);
	}
	close(a);
	close(b[0]);
	close(b[1]);
}

/* ------------------------------------------------------------------ other processes */

static void exclusive(void **state)
{
	int fd = open_long(0), other;
	uint8_t buf[HDR + MAD];

	(void)state;
	assert_int_equal(reg_cm(fd), 0);
	assert_int_equal(in_other_process("register", addr_a), EINVAL);
	/* who has no class may send, from another UDP port */
	assert_int_equal(in_other_process("send", addr_a), 0);
	assert_int_equal(recv_buf(fd, buf, sizeof(buf)), sizeof(buf));
	assert_memory_equal(buf + H_GID, gid_a, 16);
	assert_int_equal((uint32_t)tid_of(buf + HDR), 77);
	other = open_long(0);
	close(fd);
	/* the address is this process's as long as a file is open */
	assert_int_equal(in_other_process("register", addr_a), EINVAL);
	close(other);
	assert_int_equal(in_other_process("register", addr_a), 0);
}

static void forked(void **state)
{
	int a = open_long(0), b = open_long(1), status;
	uint8_t buf[HDR + MAD];
	pid_t pid;

	(void)state;
	if (INSTRUMENTED) {
		close(a);
		close(b);
		skip();
	}
	assert_int_equal(reg_cm(a), 0);
	assert_int_equal(reg_cm(b), 0);
	send_cm(a, 0, gid_b, 1);
	wait_readable(b);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		int bad = read(b, buf, sizeof(buf)) != -1 || errno != EIO;

		bad |= write(a, buf, sizeof(buf)) != -1 || errno != EIO;
		bad |= (ioctl(a, ENABLE_PKEY, NULL) != -1 || errno != EIO) << 1;
		close(a);
		close(b);
		_exit(bad);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(read(b, buf, sizeof(buf)), sizeof(buf));
	send_cm(a, 0, gid_b, 2);
	assert_int_equal(recv_buf(b, buf, sizeof(buf)), sizeof(buf));
	close(a);
	close(b);
}

/* ------------------------------------------------------------------ hostile packets */

struct sender {
	int fd;
	struct ea_gsi_path path;
	struct sockaddr_in to;
};

static void sender_open(struct sender *s)
{
	struct sockaddr_in own = { .sin_family = AF_INET };
	socklen_t len = sizeof(own);
	int probe = IP_PMTUDISC_DO;

	s->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(inet_pton(AF_INET, addr_none, &own.sin_addr), 1);
	assert_int_equal(bind(s->fd, (struct sockaddr *)&own, sizeof(own)), 0);
	assert_int_equal(getsockname(s->fd, (struct sockaddr *)&own, &len), 0);
	setsockopt(s->fd, IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof(probe));
	s->to = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(4791) };
	assert_int_equal(inet_pton(AF_INET, addr_b, &s->to.sin_addr), 1);
	memcpy(s->path.sgid, gid_none, 16);
	memcpy(s->path.dgid, gid_b, 16);
	s->path.sport = ntohs(own.sin_port);
	s->path.dport = 4791;
}

static void throw_packet(const struct sender *s, const uint8_t *pkt, size_t len)
{
	assert_int_equal(sendto(s->fd, pkt, len, 0, (const struct sockaddr *)&s->to, sizeof(s->to)),
			 len);
}

static void hostile(void **state)
{
	uint8_t mad[MAD], pkt[EA_GSI_LEN + 100], buf[HDR + MAD];
	int b = open_long(1), i;
	struct sender s;
	uint32_t crc;

	(void)state;
	assert_int_equal(reg_cm(b), 0);
	sender_open(&s);
	make_mad(mad, CM, 2, SEND, 0x10, 7);
	memset(pkt, 0, sizeof(pkt));
	ea_gsi_encode(pkt, &s.path, 1, 0, mad);
	for (i = 0; i < 10; i++)
		throw_packet(&s, pkt, i * 30);
	throw_packet(&s, pkt, EA_GSI_LEN + 100);
	pkt[EA_GSI_LEN - 1] ^= 1;
	throw_packet(&s, pkt, EA_GSI_LEN);
	pkt[EA_GSI_LEN - 1] ^= 1;
	pkt[60] ^= 1;
	throw_packet(&s, pkt, EA_GSI_LEN);
	ea_gsi_encode(pkt, &s.path, 2, 0, mad);
	throw_packet(&s, pkt, EA_GSI_LEN);
	ea_gsi_encode(pkt, &s.path, 1, 0, mad);
	pkt[0] = 0x04; /* an RC packet */
	throw_packet(&s, pkt, EA_GSI_LEN);
	ea_gsi_encode(pkt, &s.path, 1, 0, mad);
	pkt[12] ^= 1;
	throw_packet(&s, pkt, EA_GSI_LEN);
	ea_gsi_encode(pkt, &s.path, 1, 0, mad);
	pkt[3] ^= 1;
	throw_packet(&s, pkt, EA_GSI_LEN);
	/* the last one is good: another identification in the IPv4 header is believed */
	ea_gsi_encode(pkt, &s.path, 1, 0, mad);
	crc = htole32(ea_gsi_icrc(pkt, EA_GSI_LEN - 4, &s.path, 0xbeef));
	memcpy(pkt + EA_GSI_LEN - 4, &crc, 4);
	throw_packet(&s, pkt, EA_GSI_LEN);
	assert_int_equal(recv_buf(b, buf, sizeof(buf)), sizeof(buf));
	assert_memory_equal(buf + HDR, mad, MAD);
	assert_memory_equal(buf + H_GID, gid_none, 16);
	expect_nothing(b);
	assert_int_equal(counter("roce_b", "bad_length"), 11);
	assert_int_equal(counter("roce_b", "icrc_errors"), 2);
	assert_int_equal(counter("roce_b", "bad_qpn"), 1);
	assert_int_equal(counter("roce_b", "bad_bth"), 1);
	assert_int_equal(counter("roce_b", "bad_qkey"), 1);
	assert_int_equal(counter("roce_b", "bad_pkey"), 1);
	assert_int_equal(counter("roce_b", "rcvd_mads"), 1);
	assert_int_equal(counter("roce_b", "delivered_mads"), 1);
	close(s.fd);
	close(b);
}

/* ------------------------------------------------------------------ addresses */

static bool is_free(const char *text)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(4791) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool good;

	inet_pton(AF_INET, text, &sin.sin_addr);
	good = !bind(fd, (struct sockaddr *)&sin, sizeof(sin));
	close(fd);
	return good;
}

/* Loopback addresses on which nobody has the UDP port, and this program anew with devices there. */
static int choose_addresses(char **argv)
{
	char a[NAME], b[NAME], none[NAME], host[3 * NAME], all[4 * NAME];
	unsigned int net = getpid(), i;

	for (i = 0; i < 100; i++, net += 7919) {
		snprintf(a, sizeof(a), "127.%u.%u.1", 1 + net / 250 % 250, 1 + net % 250);
		snprintf(b, sizeof(b), "127.%u.%u.2", 1 + net / 250 % 250, 1 + net % 250);
		snprintf(none, sizeof(none), "127.%u.%u.3", 1 + net / 250 % 250, 1 + net % 250);
		if (is_free(a) && is_free(b) && is_free(none))
			break;
	}
	if (i == 100) {
		printf("UDP port 4791 is in use on this machine (the kernel's rxe?)\n");
		return 77;
	}
	snprintf(host, sizeof(host), "umad=%s,name=roce_a;umad=%s,name=roce_b", a, b);
	snprintf(all, sizeof(all), "%s %s %s", a, b, none);
	setenv("ERDMA_HOST", host, 1);
	setenv("UMAD_TEST_ADDRESSES", all, 1);
	execv("/proc/self/exe", argv);
	perror("execv");
	return 1;
}

static void gid_of(uint8_t gid[16], const char *text)
{
	memset(gid, 0, 16);
	gid[10] = gid[11] = 0xff;
	inet_pton(AF_INET, text, gid + 12);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(sysfs),	cmocka_unit_test(libibumad),
		cmocka_unit_test(registration), cmocka_unit_test(registration2),
		cmocka_unit_test(header),	cmocka_unit_test(old_header),
		cmocka_unit_test(bad_writes),	cmocka_unit_test(bad_reads),
		cmocka_unit_test(order),	cmocka_unit_test(edge_triggered),
		cmocka_unit_test(blocking),	cmocka_unit_test(time_out),
		cmocka_unit_test(response),	cmocka_unit_test(nobody_registered),
		cmocka_unit_test(vendors),	cmocka_unit_test(exclusive),
		cmocka_unit_test(forked),	cmocka_unit_test(hostile),
	};
	const char *addresses = getenv("UMAD_TEST_ADDRESSES");

	if (!addresses)
		return choose_addresses(argv);
	if (sscanf(addresses, "%63s %63s %63s", addr_a, addr_b, addr_none) != 3)
		return 1;
	gid_of(gid_a, addr_a);
	gid_of(gid_b, addr_b);
	gid_of(gid_none, addr_none);
	if (argc > 1)
		return other_process(argv[1]);
	bad_memory = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
