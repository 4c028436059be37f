// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The vfio-user protocol: what is answered, what is refused, and clients that misbehave.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/pci/driver.h"

static const char hello[] = "\0\0\0\0{\"capabilities\":{}}";

/* One server for all tests of the file; each test is a client of its own. */
static struct server server;

static int setup(void **state)
{
	(void)state;
	server_start(&server, 1, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	server_stop(&server);
	return 0;
}

/* The server takes the next client and serves it rightly. */
static void assert_serves(void)
{
	struct vm vm;
	struct drv d;

	server_lives(&server);
	vm_open(&vm, &server, 0);
	drv_probe(&d, &vm, DRV_72);
	vm_close(&vm);
}

static void test_version(void **state)
{
	struct vm vm;
	struct vm_reply reply;

	(void)state;
	vm_connect(&vm, &server, 0);
	assert_int_equal(vm_call(&vm, 1, hello, sizeof(hello), &reply), 0);
	assert_memory_equal(reply.body, "\0\0\0\0", 4);
	assert_int_equal(reply.body[reply.len - 1], 0);
	assert_non_null(strstr((char *)reply.body + 4, "\"max_msg_fds\":16"));
	assert_non_null(strstr((char *)reply.body + 4, "\"max_data_xfer_size\":1048576"));
	assert_int_equal(vm_call(&vm, 1, hello, sizeof(hello), &reply), EINVAL);
	assert_int_equal(vm_call(&vm, 13, NULL, 0, &reply), 0);
	vm_close(&vm);

	/* without capabilities */
	vm_connect(&vm, &server, 0);
	assert_int_equal(vm_call(&vm, 1, "\0\0\7\0", 4, &reply), 0);
	assert_memory_equal(reply.body, "\0\0\0\0", 4);
	vm_close(&vm);
}

/* A first message that is wrong ends the connection after an error reply. */
static void test_no_version(void **state)
{
	static const struct {
		uint16_t command;
		const char *body;
		size_t len;
		uint32_t error;
	} first[] = {
		{ 1, "\1\0\0\0", 4, EPROTONOSUPPORT },
		{ 1, "\0\0", 2, EINVAL },
		{ 1, "\0\0\0\0{}", 6, EINVAL }, /* no NUL */
		{ 13, NULL, 0, EPROTO },
		{ 4, "0123456789abcdef", 16, EPROTO },
	};
	struct vm vm;
	struct vm_reply reply;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
		vm_connect(&vm, &server, 0);
		assert_int_equal(vm_call(&vm, first[i].command, first[i].body, first[i].len,
					 &reply),
				 first[i].error);
		assert_true(vm_is_closed(&vm));
		vm_close(&vm);
	}
	assert_serves();
}

/* Framing that is lost ends the connection. */
static void test_framing(void **state)
{
	static const uint32_t headers[][4] = {
		{ 13 << 16, 15, 0, 0 }, /* shorter than a header */
		{ 13 << 16, 0, 0, 0 },
		{ 13 << 16, 0x7fffffff, 0, 0 }, /* longer than anything */
		{ 13 << 16, 16 + 16 + (1 << 20) + 1, 0, 0 },
		{ 13 << 16, 16, 1, 0 }, /* a reply */
		{ 13 << 16, 16, 15, 0 },
	};
	static const char reset[16] = { 1, 0, 13, 0, 16 };
	struct vm vm;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
		vm_open(&vm, &server, 0);
		assert_int_equal(send(vm.sock, headers[i], 16, 0), 16);
		assert_true(vm_is_closed(&vm));
		vm_close(&vm);
	}
	/* a message that never ends */
	vm_open(&vm, &server, 0);
	assert_int_equal(send(vm.sock, "\1\0\12\0\50\0\0\0\0\0\0\0\0\0\0\0abc", 19, 0), 19);
	vm_close(&vm);
	/* one byte at a time */
	vm_open(&vm, &server, 0);
	for (i = 0; i < 16; i++) {
		assert_int_equal(send(vm.sock, &reset[i], 1, 0), 1);
		usleep(1000);
	}
	vm.id = 1;
	assert_true(vm_recv(&vm, 13, &(struct vm_reply){ 0 }));
	vm_close(&vm);
	assert_serves();
}

static void test_refused(void **state)
{
	/* not commands of a client, unknown ones, and migration */
	static const uint16_t commands[] = { 0, 6, 11, 12, 14, 15, 16, 17, 18, 19, 0xffff };
	static const uint16_t known[] = { 2, 3, 4, 5, 7, 8, 9, 10, 13 };
	uint8_t body[64] = { 32 };
	struct vm vm;
	struct vm_reply reply;
	size_t i, len;

	(void)state;
	vm_open(&vm, &server, 0);
	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		assert_int_equal(vm_call(&vm, commands[i], body, sizeof(body), &reply), EOPNOTSUPP);
	/* no length but the right one */
	memset(body, 0xff, sizeof(body));
	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		for (len = known[i] == 13; len < sizeof(body); len++)
			if (known[i] != 4 || len != 16)
				assert_int_not_equal(vm_call(&vm, known[i], body, len, &reply), 0);
	/* reserved flags */
	vm_send(&vm, 13, 0x40, NULL, 0, NULL, 0);
	assert_true(vm_recv(&vm, 13, &reply));
	assert_int_equal(reply.error, EINVAL);
	vm_close(&vm);
	assert_serves();
}

static void test_info(void **state)
{
	uint32_t dev[4] = { 16 }, irq[4] = { 16 };
	uint64_t region[4] = { 32 };
	struct vm vm;
	struct vm_reply reply;
	uint32_t i;
	uint64_t size;

	(void)state;
	vm_open(&vm, &server, 0);
	assert_int_equal(vm_call(&vm, 4, dev, 16, &reply), 0);
	memcpy(dev, reply.body, 16);
	assert_int_equal(dev[1], 3); /* can be reset, PCI */
	assert_int_equal(dev[2], 9);
	assert_int_equal(dev[3], 5);
	for (i = 0; i < 9; i++) {
		region[1] = i;
		assert_int_equal(vm_call(&vm, 5, region, 32, &reply), 0);
		memcpy(&size, reply.body + 16, 8);
		/* no memory BAR but 0 and 2, no ROM: the driver wants exactly these */
		assert_int_equal(size, i == 0 ? 8 << 20 : i == 2 ? 4096 : i == 7 ? 256 : 0);
		/* BAR 0 has more to say than this fits */
		assert_int_equal(reply.body[4], i == 0 ? 0xf : size ? 3 : 0);
		memcpy(&dev[0], reply.body, 4);
		assert_int_equal(dev[0], i == 0 ? 64 : 32);
		assert_int_equal(reply.len, 32);
	}
	region[1] = 9;
	assert_int_equal(vm_call(&vm, 5, region, 32, &reply), EINVAL);
	for (i = 0; i < 5; i++) {
		irq[2] = i;
		assert_int_equal(vm_call(&vm, 7, irq, 16, &reply), 0);
		memcpy(irq, reply.body, 16);
		assert_int_equal(irq[3], i == 2 ? 32 : i == 3 ? 1 : 0);
		assert_int_equal(irq[1], i == 2 ? 3 : i == 3 ? 1 : 0);
		irq[0] = 16;
	}
	irq[2] = 5;
	assert_int_equal(vm_call(&vm, 7, irq, 16, &reply), EINVAL);
	vm_close(&vm);
}

static void test_config_writes(void **state)
{
	uint32_t ones = 0xffffffff, v;
	uint16_t command = 0xffff;
	uint8_t before[256], after[256];
	struct vm vm;
	unsigned int off;

	(void)state;
	vm_open(&vm, &server, 0);
	vm_read(&vm, VM_CONFIG, 0, before, 256);
	/* sizing */
	vm_write(&vm, VM_CONFIG, 0x10, &ones, 4);
	vm_read(&vm, VM_CONFIG, 0x10, &v, 4);
	assert_int_equal(v, 0xff800004);
	vm_write(&vm, VM_CONFIG, 0x18, &ones, 4);
	vm_read(&vm, VM_CONFIG, 0x18, &v, 4);
	assert_int_equal(v, 0xfffff004);
	vm_write(&vm, VM_CONFIG, 0x20, &ones, 4);
	vm_read(&vm, VM_CONFIG, 0x20, &v, 4);
	assert_int_equal(v, 0);
	vm_write(&vm, VM_CONFIG, 0x30, &ones, 4);
	vm_read(&vm, VM_CONFIG, 0x30, &v, 4);
	assert_int_equal(v, 0);
	vm_write(&vm, VM_CONFIG, 4, &command, 2);
	vm_read(&vm, VM_CONFIG, 4, &v, 4);
	assert_int_equal(v & 0xffff, 0x0546);
	/* all of it: identity stays; a reset restores the rest */
	for (off = 0; off < 256; off += 4)
		vm_write(&vm, VM_CONFIG, off, &ones, 4);
	vm_read(&vm, VM_CONFIG, 0, after, 256);
	assert_memory_equal(before, after, 4);
	assert_memory_equal(before + 8, after + 8, 4);
	assert_memory_equal(before + 0x44, after + 0x44, 8);
	assert_int_equal(vm_call(&vm, 13, NULL, 0, &(struct vm_reply){ 0 }), 0);
	vm_read(&vm, VM_CONFIG, 0, after, 256);
	assert_memory_equal(before, after, 256);
	vm_close(&vm);
}

static void test_access_bounds(void **state)
{
	static const uint64_t bad[][3] = {
		/* offset, region, count */
		{ 8 << 20, 0, 4 },
		{ (8 << 20) - 3, 0, 4 },
		{ UINT64_MAX, 0, 1 },
		{ UINT64_MAX - 3, 0, 4 },
		{ 253, 7, 4 },
		{ 0, 1, 4 },
		{ 0, 6, 4 },
		{ 0, 8, 1 },
		{ 0, 9, 4 },
		{ 0, 0xffffffff, 4 },
		{ 0, 0, (1 << 20) + 1 },
	};
	struct {
		uint64_t offset;
		uint32_t region, count;
		uint8_t data[4];
	} a = { 0 };
	struct vm_reply reply;
	struct vm vm;
	size_t i;

	(void)state;
	vm_open(&vm, &server, 0);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		a.offset = bad[i][0];
		a.region = (uint32_t)bad[i][1];
		a.count = (uint32_t)bad[i][2];
		assert_int_equal(vm_call(&vm, 9, &a, 16, &reply), EINVAL);
		if (a.count > 4)
			continue;
		assert_int_equal(vm_call(&vm, 10, &a, 16 + a.count, &reply), EINVAL);
	}
	/* a write that says another count than it has */
	a.offset = 0x10;
	a.region = 0;
	a.count = 3;
	assert_int_equal(vm_call(&vm, 10, &a, 20, &reply), EINVAL);
	a.count = 0;
	for (a.region = 0; a.region < 10; a.region++)
		vm_call(&vm, 10, &a, 16, &reply);
	vm_close(&vm);
	assert_serves();
}

static void test_dma_map(void **state)
{
	struct vm vm;
	int fd;

	(void)state;
	vm_open(&vm, &server, 0);
	/* over an existing one, whole or in part */
	assert_int_equal(vm_dma_map(&vm, VM_BUS, VM_MEM, vm.memfd, 0, 3), EEXIST);
	assert_int_equal(vm_dma_map(&vm, VM_BUS + VM_MEM - 4096, 8192, vm.memfd, 0, 3), EEXIST);
	assert_int_equal(vm_dma_map(&vm, VM_BUS - 4096, 8192, vm.memfd, 0, 3), EEXIST);
	assert_int_equal(vm_dma_map(&vm, 0, VM_BUS + 4096, -1, 0, 3), EEXIST);
	/* nonsense */
	assert_int_equal(vm_dma_map(&vm, 0, 0, vm.memfd, 0, 3), EINVAL);
	assert_int_equal(vm_dma_map(&vm, 1, 4096, vm.memfd, 0, 3), EINVAL);
	assert_int_equal(vm_dma_map(&vm, 0, 4097, vm.memfd, 0, 3), EINVAL);
	assert_int_equal(vm_dma_map(&vm, 0, 4096, vm.memfd, 1, 3), EINVAL);
	assert_int_equal(vm_dma_map(&vm, 0, 4096, vm.memfd, 0, 0), EINVAL);
	assert_int_equal(vm_dma_map(&vm, 0, 4096, vm.memfd, 0, 7), EINVAL);
	assert_int_equal(vm_dma_map(&vm, UINT64_MAX - 4095, 8192, vm.memfd, 0, 3), EINVAL);
	assert_int_equal(vm_dma_map(&vm, 0, 4096, vm.memfd, UINT64_MAX - 4095, 3), EINVAL);
	/* behind the end of the file */
	assert_int_equal(vm_dma_map(&vm, 0, 8192, vm.memfd, VM_MEM - 4096, 3), EINVAL);
	/* what cannot be mapped */
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_int_not_equal(vm_dma_map(&vm, 0, 4096, fd, 0, 3), 0);
	close(fd);
	/* the last page of the bus, a ROM, memory that is only ever read */
	assert_int_equal(vm_dma_map(&vm, UINT64_MAX - 4095, 4096, vm.memfd, 0, 1), 0);
	assert_int_equal(vm_dma_map(&vm, 0xfffc0000, 0x40000, -1, 0, 1), 0);
	assert_int_equal(vm_dma_map(&vm, 0x1000, 0x1000, vm.memfd, 0x1000, 1), 0);
	/* only what was mapped can be unmapped */
	assert_int_equal(vm_dma_unmap(&vm, 0x1000, 0x2000), ENOENT);
	assert_int_equal(vm_dma_unmap(&vm, 0x0, 0x1000), ENOENT);
	assert_int_equal(vm_dma_unmap(&vm, VM_BUS, VM_MEM - 4096), ENOENT);
	assert_int_equal(vm_dma_unmap(&vm, 0x1000, 0x1000), 0);
	assert_int_equal(vm_dma_unmap(&vm, 0x1000, 0x1000), ENOENT);
	assert_int_equal(vm_dma_unmap(&vm, 0xfffc0000, 0x40000), 0);
	assert_int_equal(vm_dma_unmap(&vm, UINT64_MAX - 4095, 4096), 0);
	vm_close(&vm);
	assert_serves();
}

/* Firmware moves windows about; a guest in many pieces works as one in one piece does. */
static void test_many_windows(void **state)
{
	struct vm vm;
	struct drv d;
	uint64_t off;

	(void)state;
	vm_open(&vm, &server, 0);
	assert_int_equal(vm_dma_unmap(&vm, VM_BUS, VM_MEM), 0);
	for (off = 0; off < VM_MEM; off += 0x10000)
		assert_int_equal(vm_dma_map(&vm, VM_BUS + (off ^ 0x10000), 0x10000, vm.memfd,
					    off ^ 0x10000, 3),
				 0);
	drv_probe(&d, &vm, DRV_61);
	for (off = 0; off < VM_MEM; off += 0x10000)
		assert_int_equal(vm_dma_unmap(&vm, VM_BUS + off, 0x10000), 0);
	assert_int_equal(vm_dma_map(&vm, VM_BUS, VM_MEM, vm.memfd, 0, 3), 0);
	assert_int_equal(drv_cmd(&d, 1, 2, NULL, 0), 0);
	vm_close(&vm);
}

static void test_descriptors(void **state)
{
	int fds[20], i;
	struct vm_reply reply;
	struct vm vm;

	(void)state;
	vm_open(&vm, &server, 0);
	for (i = 0; i < 20; i++)
		fds[i] = vm.memfd;
	/* with messages that want none, and more than one memory */
	vm_send(&vm, 13, 0, NULL, 0, fds, 16);
	assert_true(vm_recv(&vm, 13, &reply));
	assert_int_equal(reply.error, 0);
	vm_send(&vm, 2, 0, (uint64_t[4]){ 32 | 3ull << 32, 0, 0, 4096 }, 32, fds, 2);
	assert_true(vm_recv(&vm, 2, &reply));
	assert_int_equal(reply.error, EINVAL);
	/* more than was agreed */
	vm_send(&vm, 13, 0, NULL, 0, fds, 17);
	assert_true(vm_is_closed(&vm));
	vm_close(&vm);

	/* none is left open: many times as many as a process may have */
	vm_open(&vm, &server, 0);
	for (i = 0; i < 1000; i++) {
		vm_send(&vm, 13, 0, NULL, 0, fds, 16);
		assert_true(vm_recv(&vm, 13, &reply));
		vm_wire(&vm, (unsigned int)i % 32);
	}
	vm_close(&vm);
	assert_serves();
}

static void test_set_irqs(void **state)
{
	struct vm vm;
	int fds[2], i;

	(void)state;
	vm_open(&vm, &server, 0);
	fds[0] = vm.memfd;
	fds[1] = vm.memfd;
	assert_int_equal(vm_set_irqs(&vm, 0x24, 2, 32, 1, fds, 1), EINVAL);
	assert_int_equal(vm_set_irqs(&vm, 0x24, 2, 31, 2, fds, 2), EINVAL);
	assert_int_equal(vm_set_irqs(&vm, 0x24, 2, 0xffffffff, 1, fds, 1), EINVAL);
	assert_int_equal(vm_set_irqs(&vm, 0x24, 2, 0, 2, fds, 1), EINVAL);
	assert_int_equal(vm_set_irqs(&vm, 0x24, 0, 0, 1, fds, 1), EINVAL);
	assert_int_equal(vm_set_irqs(&vm, 0x24, 9, 0, 1, fds, 1), EINVAL);
	assert_int_equal(vm_set_irqs(&vm, 0x27, 2, 0, 1, NULL, 0), EINVAL);
	assert_int_equal(vm_set_irqs(&vm, 0x04, 2, 0, 1, fds, 1), EINVAL);
	assert_int_equal(vm_set_irqs(&vm, 0x0c, 2, 0, 1, fds, 1), EOPNOTSUPP);
	assert_int_equal(vm_set_irqs(&vm, 0x124, 2, 0, 1, fds, 1), EINVAL);
	/* the error vector is there for QEMU and never raised */
	assert_int_equal(vm_set_irqs(&vm, 0x24, 3, 0, 1, fds, 1), 0);
	/* trigger by hand; all off; on again */
	for (i = 0; i < 3; i++)
		vm_wire(&vm, (unsigned int)i);
	assert_int_equal(vm_set_irqs(&vm, 0x21, 2, 1, 2, NULL, 0), 0);
	assert_int_equal(vm_irqs(&vm, 0, 0), 0);
	assert_int_equal(vm_irqs(&vm, 1, DRV_WAIT_MS), 1);
	assert_int_equal(vm_irqs(&vm, 2, DRV_WAIT_MS), 1);
	assert_int_equal(vm_set_irqs(&vm, 0x21, 2, 0, 0, NULL, 0), 0);
	assert_int_equal(vm_set_irqs(&vm, 0x21, 2, 0, 1, NULL, 0), 0);
	assert_int_equal(vm_irqs(&vm, 0, 20), 0);
	vm_wire(&vm, 0);
	assert_int_equal(vm_irqs(&vm, 0, DRV_WAIT_MS), 1);
	vm_close(&vm);
}

/* Posted writes get no reply, not even for an error, and keep their order with what follows. */
static void test_posted(void **state)
{
	struct {
		uint64_t offset;
		uint32_t region, count, data;
	} a = { 0x44, 0, 4, 0x12345678 };
	struct vm_reply reply;
	struct vm vm;
	uint32_t i;

	(void)state;
	vm_open(&vm, &server, 0);
	for (i = 0; i < 1000; i++) {
		a.data = i;
		vm_send(&vm, 10, 0x10, &a, 20, NULL, 0);
		a.region ^= 9; /* every second one to a region that is not there */
	}
	vm_send(&vm, 77, 0x10, NULL, 0, NULL, 0);
	assert_int_equal(vm_r32(&vm, 0x44), 998);
	assert_int_equal(vm_call(&vm, 13, NULL, 0, &reply), 0);
	vm_close(&vm);
}

/* A client that does not read its replies: the server waits for it and serves on. */
static void test_client_that_does_not_read(void **state)
{
	struct {
		uint16_t id, command;
		uint32_t size, flags, error;
		uint64_t offset;
		uint32_t region, count;
	} msg = { 1, 9, 32, 0, 0, 0, 0, 1 << 20 };
	struct pollfd pfd = { .events = POLLIN };
	static uint8_t sink[65536];
	uint64_t got = 0, sent = 0;
	struct vm vm;
	ssize_t n;

	(void)state;
	vm_open(&vm, &server, 0);
	while (sent < 100 && send(vm.sock, &msg, sizeof(msg), MSG_DONTWAIT) == sizeof(msg)) {
		sent++;
		usleep(200);
	}
	assert_true(sent > 1);
	server_lives(&server);
	pfd.fd = vm.sock;
	while (got < sent * ((1 << 20) + 32)) {
		assert_int_equal(poll(&pfd, 1, DRV_WAIT_MS), 1);
		n = recv(vm.sock, sink, sizeof(sink), 0);
		assert_true(n > 0);
		got += (uint64_t)n;
	}
	vm_close(&vm);
	assert_serves();
}

/* One client at a time; a second one is told at once, and does not disturb the first. */
static void test_second_client(void **state)
{
	struct vm vm, other;
	struct drv d;

	(void)state;
	vm_open(&vm, &server, 0);
	drv_probe(&d, &vm, DRV_61);
	vm_connect(&other, &server, 0);
	assert_true(vm_is_closed(&other));
	vm_close(&other);
	assert_int_equal(drv_cmd(&d, 1, 2, NULL, 0), 0);
	vm_close(&vm);
	assert_serves();
}

/* Guest memory that is not shared: a dead device, and no more. */
static void test_unreachable_memory(void **state)
{
	struct vm vm;
	struct drv d;
	int fd;

	(void)state;
	vm_open(&vm, &server, 0);
	assert_int_equal(vm_dma_unmap(&vm, VM_BUS, VM_MEM), 0);
	fd = memfd_create("private", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, VM_MEM), 0);
	assert_int_equal(vm_dma_map(&vm, VM_BUS, VM_MEM, fd, 0, 3), 0);
	assert_true(drv_init(&d, &vm, DRV_61));
	drv_put_cmd(&d, 1, 2, NULL, 0);
	vm_w64(&vm, 0x200, d.csq_pi);
	close(fd);
	/* and with memory that may not be written */
	assert_int_equal(vm_dma_unmap(&vm, VM_BUS, VM_MEM), 0);
	assert_int_equal(vm_dma_map(&vm, VM_BUS, VM_MEM, vm.memfd, 0, 1), 0);
	assert_true(drv_init(&d, &vm, DRV_61));
	drv_put_cmd(&d, 1, 2, NULL, 0);
	vm_w64(&vm, 0x200, d.csq_pi);
	assert_int_equal(*(uint32_t *)vm_at(&vm, d.ccq), 0);
	vm_close(&vm);
	assert_serves();
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_version),
		cmocka_unit_test(test_no_version),
		cmocka_unit_test(test_framing),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_info),
		cmocka_unit_test(test_config_writes),
		cmocka_unit_test(test_access_bounds),
		cmocka_unit_test(test_dma_map),
		cmocka_unit_test(test_many_windows),
		cmocka_unit_test(test_descriptors),
		cmocka_unit_test(test_set_irqs),
		cmocka_unit_test(test_posted),
		cmocka_unit_test(test_client_that_does_not_read),
		cmocka_unit_test(test_second_client),
		cmocka_unit_test(test_unreachable_memory),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
