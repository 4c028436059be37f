// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/pci/vm.h"

enum {
	REPLY_MS = 30000,
	BAR0_SIZE = 8 << 20,
	NO_REPLY = 0x10,
};

struct header {
	uint16_t id, command;
	uint32_t size, flags, error;
};

bool vm_maps_doorbells;
bool vm_keeps_memory;

/* Machines whose server asks for memory. */
static struct vm *far_vms[4];

void vm_connect(struct vm *vm, const struct server *s, int number)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int i;

	memset(vm, 0, sizeof(*vm));
	for (i = 0; i < VM_VECTORS; i++)
		vm->event[i] = -1;
	vm->memfd = memfd_create("guest", MFD_CLOEXEC);
	assert_true(vm->memfd >= 0);
	assert_int_equal(ftruncate(vm->memfd, VM_MEM), 0);
	vm->mem = mmap(NULL, VM_MEM, PROT_READ | PROT_WRITE, MAP_SHARED, vm->memfd, 0);
	assert_true(vm->mem != MAP_FAILED);
	vm->sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%d", s->dir, number);
	assert_int_equal(connect(vm->sock, (struct sockaddr *)&addr, sizeof(addr)), 0);
}

void vm_open(struct vm *vm, const struct server *s, int number)
{
	static const char hello[] = "\0\0\0\0{\"capabilities\":{\"max_msg_fds\":16,"
				    "\"max_data_xfer_size\":1048576,\"write_multiple\":true}}";
	struct vm_reply reply;
	int i;

	vm_connect(vm, s, number);
	assert_int_equal(vm_call(vm, 1, hello, sizeof(hello), &reply), 0);
	assert_int_equal(vm_dma_map(vm, VM_BUS, VM_MEM, vm_keeps_memory ? -1 : vm->memfd, 0, 3), 0);
	if (vm_keeps_memory) {
		vm->far = true;
		for (i = 0; far_vms[i]; i++)
			assert_true(i < 3);
		far_vms[i] = vm;
	}
	if (vm_maps_doorbells)
		assert_true(vm_map_doorbells(vm));
}

static bool read_all(struct vm *vm, void *to, size_t len);

bool vm_map_doorbells(struct vm *vm)
{
	struct {
		uint32_t argsz, flags, index, cap_offset;
		uint64_t size, offset;
		uint16_t id, version;
		uint32_t next, nr_areas, reserved;
		uint64_t area_offset, area_size;
	} info = { .argsz = sizeof(info) };
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} control;
	struct header hdr;
	struct iovec iov = { &hdr, sizeof(hdr) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.buf,
			      .msg_controllen = sizeof(control.buf) };
	struct cmsghdr *c;
	int fd;

	vm_send(vm, 5, 0, &info, 32, NULL, 0);
	/* descriptors come with the first byte */
	assert_int_equal(recvmsg(vm->sock, &msg, MSG_WAITALL), sizeof(hdr));
	assert_int_equal(hdr.id, vm->id);
	assert_int_equal(hdr.flags, 1);
	assert_true(hdr.size <= sizeof(hdr) + sizeof(info));
	assert_true(read_all(vm, &info, hdr.size - sizeof(hdr)));
	if (!(info.flags & 4))
		return false;
	assert_int_equal(hdr.size, sizeof(hdr) + sizeof(info));
	assert_int_equal(info.flags, 0xf);
	assert_int_equal(info.cap_offset, 32);
	assert_int_equal(info.id, 1);
	assert_int_equal(info.version, 1);
	assert_int_equal(info.next, 0);
	assert_int_equal(info.nr_areas, 1);
	/* not the registers, and all of the rest */
	assert_int_equal(info.area_offset, 4096);
	assert_int_equal(info.area_offset + info.area_size, info.size);
	c = CMSG_FIRSTHDR(&msg);
	assert_non_null(c);
	assert_int_equal(c->cmsg_len, CMSG_LEN(sizeof(int)));
	memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	vm->bar0 = mmap(NULL, info.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(vm->bar0 != MAP_FAILED);
	assert_true(mmap(vm->bar0 + info.area_offset, info.area_size, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED, fd,
			 (off_t)(info.offset + info.area_offset)) != MAP_FAILED);
	close(fd);
	return true;
}

void vm_close(struct vm *vm)
{
	int i;

	for (i = 0; i < 4; i++)
		if (far_vms[i] == vm)
			far_vms[i] = NULL;
	if (vm->bar0)
		munmap(vm->bar0, BAR0_SIZE);

	close(vm->sock);
	munmap(vm->mem, VM_MEM);
	close(vm->memfd);
	for (i = 0; i < VM_VECTORS; i++)
		if (vm->event[i] >= 0)
			close(vm->event[i]);
}

/* ------------------------------------------------------------------ messages */

void vm_send(struct vm *vm, uint16_t command, uint32_t flags, const void *body, size_t len,
	     const int *fds, int nfds)
{
	struct header hdr = { ++vm->id, command, (uint32_t)(sizeof(hdr) + len), flags, 0 };
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(64 * sizeof(int))];
	} control = { 0 };
	struct iovec iov[2] = { { &hdr, sizeof(hdr) }, { (void *)(uintptr_t)body, len } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };
	struct cmsghdr *c;
	ssize_t n;

	if (nfds) {
		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, (size_t)nfds * sizeof(int));
	}
	n = sendmsg(vm->sock, &msg, MSG_NOSIGNAL);
	/* the server may have had enough already */
	if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
		return;
	assert_int_equal(n, sizeof(hdr) + len);
}

static bool read_all(struct vm *vm, void *to, size_t len)
{
	struct pollfd pfd = { .fd = vm->sock, .events = POLLIN };
	uint8_t *p = to;
	ssize_t n;

	while (len) {
		if (poll(&pfd, 1, REPLY_MS) != 1)
			fail_msg("no reply within %d ms", REPLY_MS);
		n = recv(vm->sock, p, len, 0);
		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

/* The question whose header is @hdr. */
static bool take_dma(struct vm *vm, const struct header *hdr, struct vm_dma *dma)
{
	assert_int_equal(hdr->flags, 0);
	assert_true(hdr->command == 11 || hdr->command == 12);
	dma->id = hdr->id;
	dma->command = hdr->command;
	if (!read_all(vm, &dma->addr, 16))
		return false;
	assert_true(dma->count && dma->count <= sizeof(dma->data));
	if (dma->command == 11) {
		assert_int_equal(hdr->size, sizeof(*hdr) + 16);
		return true;
	}
	assert_int_equal(hdr->size, sizeof(*hdr) + 16 + dma->count);
	return read_all(vm, dma->data, dma->count);
}

void vm_answer(struct vm *vm, const struct vm_dma *dma, uint32_t error)
{
	size_t data = dma->command == 11 && !error ? dma->count : 0;
	struct {
		struct header hdr;
		uint64_t addr, count;
		uint8_t data[8192];
	} answer = {
		.hdr = { dma->id, dma->command, sizeof(answer.hdr), error ? 0x21 : 1, error },
		.addr = dma->addr,
		.count = dma->count,
	};
	ssize_t n;

	if (!error) {
		/* nothing else was mapped */
		assert_true(dma->addr >= VM_BUS && dma->addr + dma->count <= VM_BUS + VM_MEM);
		answer.hdr.size += 16 + (uint32_t)data;
		if (data)
			memcpy(answer.data, vm_at(vm, dma->addr), data);
		else
			memcpy(vm_at(vm, dma->addr), dma->data, dma->count);
	}
	n = send(vm->sock, &answer, answer.hdr.size, MSG_NOSIGNAL);
	assert_true(n == (ssize_t)answer.hdr.size || n < 0);
}

static bool readable(const struct vm *vm, int ms)
{
	struct pollfd pfd = { .fd = vm->sock, .events = POLLIN };

	return poll(&pfd, 1, ms) == 1;
}

bool vm_next_dma(struct vm *vm, struct vm_dma *dma, int ms)
{
	struct header hdr;

	return readable(vm, ms) && read_all(vm, &hdr, sizeof(hdr)) && take_dma(vm, &hdr, dma);
}

void vm_serve(void)
{
	struct vm_dma dma;
	int i;

	for (i = 0; i < 4; i++)
		while (far_vms[i] && !far_vms[i]->by_hand && !far_vms[i]->receiving &&
		       vm_next_dma(far_vms[i], &dma, 0))
			vm_answer(far_vms[i], &dma, 0);
}

void vm_idle(struct vm *vm, unsigned int us)
{
	struct pollfd pfd[4];
	nfds_t n = 0;
	int i;

	for (i = 0; i < 4; i++)
		if (far_vms[i] && !far_vms[i]->by_hand)
			pfd[n++] = (struct pollfd){ .fd = far_vms[i]->sock, .events = POLLIN };
	if (vm->far && n)
		poll(pfd, n, 1);
	else
		usleep(us);
	vm_serve();
}

/* Questions may come before the answer. */
static bool next_header(struct vm *vm, struct header *hdr)
{
	struct vm_dma dma;
	int ms;

	for (;;) {
		vm->receiving = true;
		for (ms = 0; vm->far && ms < REPLY_MS && !readable(vm, 1); ms++)
			vm_serve();
		vm->receiving = false;
		if (!read_all(vm, hdr, sizeof(*hdr)))
			return false;
		if (!vm->far || hdr->flags & 0xf)
			return true;
		if (!take_dma(vm, hdr, &dma))
			return false;
		vm_answer(vm, &dma, 0);
	}
}

bool vm_recv(struct vm *vm, uint16_t command, struct vm_reply *reply)
{
	struct header hdr;

	if (!next_header(vm, &hdr))
		return false;
	assert_int_equal(hdr.id, vm->id);
	assert_int_equal(hdr.command, command);
	assert_true(hdr.size >= sizeof(hdr) && hdr.size - sizeof(hdr) <= sizeof(reply->body));
	assert_int_equal(hdr.flags & 0xf, 1);
	reply->len = (uint32_t)(hdr.size - sizeof(hdr));
	reply->error = 0;
	if (!read_all(vm, reply->body, reply->len))
		return false;
	if (hdr.flags & 0x20) {
		assert_int_equal(reply->len, 0);
		assert_int_not_equal(hdr.error, 0);
		reply->error = hdr.error;
	}
	return true;
}

uint32_t vm_call(struct vm *vm, uint16_t command, const void *body, size_t len,
		 struct vm_reply *reply)
{
	vm_send(vm, command, 0, body, len, NULL, 0);
	assert_true(vm_recv(vm, command, reply));
	return reply->error;
}

bool vm_is_closed(struct vm *vm)
{
	struct pollfd pfd = { .fd = vm->sock, .events = POLLIN };
	char byte;

	return poll(&pfd, 1, REPLY_MS) == 1 && recv(vm->sock, &byte, 1, 0) <= 0;
}

uint32_t vm_dma_map(struct vm *vm, uint64_t addr, uint64_t size, int fd, uint64_t offset,
		    uint32_t flags)
{
	struct {
		uint32_t argsz, flags;
		uint64_t offset, addr, size;
	} map = { 32, flags, offset, addr, size };
	struct vm_reply reply;

	vm_send(vm, 2, 0, &map, sizeof(map), &fd, fd >= 0);
	assert_true(vm_recv(vm, 2, &reply));
	return reply.error;
}

uint32_t vm_dma_unmap(struct vm *vm, uint64_t addr, uint64_t size)
{
	struct {
		uint32_t argsz, flags;
		uint64_t addr, size;
	} unmap = { 24, 0, addr, size };
	struct vm_reply reply;

	if (vm_call(vm, 3, &unmap, sizeof(unmap), &reply))
		return reply.error;
	assert_int_equal(reply.len, sizeof(unmap));
	assert_memory_equal(reply.body + 8, &unmap.addr, 16);
	return 0;
}

uint32_t vm_set_irqs(struct vm *vm, uint32_t flags, uint32_t index, uint32_t start, uint32_t count,
		     const int *fds, int nfds)
{
	struct {
		uint32_t argsz, flags, index, start, count;
	} set = { sizeof(set), flags, index, start, count };
	struct vm_reply reply;

	vm_send(vm, 8, 0, &set, sizeof(set), fds, nfds);
	assert_true(vm_recv(vm, 8, &reply));
	return reply.error;
}

void vm_wire(struct vm *vm, unsigned int vector)
{
	if (vm->event[vector] < 0)
		vm->event[vector] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	assert_int_equal(vm_set_irqs(vm, 0x24, 2, vector, 1, &vm->event[vector], 1), 0);
}

uint64_t vm_irqs(struct vm *vm, unsigned int vector, int ms)
{
	struct pollfd pfd = { .fd = vm->event[vector], .events = POLLIN };
	uint64_t count = 0;
	int i;

	for (i = 0; vm->far && i < ms && poll(&pfd, 1, 1) != 1; i++)
		vm_serve();
	if (poll(&pfd, 1, vm->far ? 0 : ms) != 1 ||
	    read(vm->event[vector], &count, sizeof(count)) < 0)
		return 0;
	return count;
}

/* ------------------------------------------------------------------ regions */

struct access {
	uint64_t offset;
	uint32_t region, count;
	uint8_t data[256];
};

void vm_read(struct vm *vm, uint32_t region, uint64_t off, void *data, uint32_t len)
{
	struct access a = { off, region, len, { 0 } };
	struct vm_reply reply;

	assert_int_equal(vm_call(vm, 9, &a, 16, &reply), 0);
	assert_int_equal(reply.len, 16 + len);
	assert_memory_equal(reply.body, &a, 16);
	memcpy(data, reply.body + 16, len);
}

void vm_write(struct vm *vm, uint32_t region, uint64_t off, const void *data, uint32_t len)
{
	struct access a = { off, region, len, { 0 } };
	struct vm_reply reply;

	memcpy(a.data, data, len);
	vm->messages++;
	vm_send(vm, 10, vm->posted ? NO_REPLY : 0, &a, 16 + len, NULL, 0);
	if (vm->posted)
		return;
	assert_true(vm_recv(vm, 10, &reply));
	assert_int_equal(reply.error, 0);
	assert_int_equal(reply.len, 16);
}

uint32_t vm_r32(struct vm *vm, uint64_t off)
{
	uint32_t value;

	vm_read(vm, VM_BAR0, off, &value, sizeof(value));
	return value;
}

void vm_w32(struct vm *vm, uint64_t off, uint32_t value)
{
	vm_write(vm, VM_BAR0, off, &value, sizeof(value));
}

void vm_w64(struct vm *vm, uint64_t off, uint64_t value)
{
	if (vm->bar0 && off >= 4096) {
		assert_true(off % 8 == 0 && off < BAR0_SIZE);
		__atomic_store_n((uint64_t *)(void *)(vm->bar0 + off), value, __ATOMIC_RELEASE);
		return;
	}
	vm_write(vm, VM_BAR0, off, &value, sizeof(value));
}

/* ------------------------------------------------------------------ memory */

uint64_t vm_alloc(struct vm *vm, size_t size)
{
	uint64_t addr = VM_BUS + vm->used;

	vm->used += (size + 4095) & ~(size_t)4095;
	assert_true(vm->used <= VM_MEM);
	memset(vm->mem + (addr - VM_BUS), 0, size);
	return addr;
}

void *vm_at(struct vm *vm, uint64_t addr)
{
	return vm->mem + (addr - VM_BUS);
}
