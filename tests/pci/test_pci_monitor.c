// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * As monitors behave: what QEMU does at a guest's reboot, how Cloud Hypervisor speaks, monitors that die or want to
 * migrate; and doorbells in shared memory.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/pci/driver.h"

enum {
	BIG = 1 << 20,
	KEY = 0x100,
};

/* Two connected QPs of one function; the first writes to the second. */
struct stand {
	struct vm vm;
	struct drv d;
	struct drv_cq cq[2];
	struct drv_qp qp[2];
	uint64_t buf; /* two halves of BIG bytes */
};

static void probe(struct stand *t, enum drv_kind kind)
{
	t->vm.used = 0;
	drv_probe(&t->d, &t->vm, kind);
	t->buf = drv_pair(&t->d, t->cq, t->qp, KEY, BIG);
}

static void post_write(struct stand *t, uint32_t len)
{
	drv_post(&t->qp[0], &(struct drv_wr){ .op = WR_WRITE,
					      .len = len,
					      .lkey = KEY,
					      .addr = t->buf,
					      .rkey = KEY,
					      .raddr = t->buf + BIG });
}

static void writes(struct stand *t)
{
	struct drv_wc wc;

	memset(vm_at(&t->vm, t->buf), 0x37, 4096);
	post_write(t, 4096);
	assert_true(drv_poll(&t->cq[0], &wc, DRV_WAIT_MS));
	assert_int_equal(wc.syndrome, 0);
	assert_memory_equal(vm_at(&t->vm, t->buf), vm_at(&t->vm, t->buf + BIG), 4096);
}

static void reset(struct vm *vm)
{
	assert_int_equal(vm_call(vm, 13, NULL, 0, &(struct vm_reply){ 0 }), 0);
}

/* ------------------------------------------------------------------ QEMU */

/* The guest reboots with all at work and writes no RESET. */
static void qemu_reboot(struct stand *t)
{
	const uint16_t none = 0, on = 6;
	const uint32_t zero = 0, bar0 = 0xfe000000, bar2 = 0xfd000000;
	struct drv_qp old[2] = { t->qp[0], t->qp[1] };
	int i;

	t->vm.posted = true;
	for (i = 0; i < 8; i++)
		post_write(t, BIG);
	t->vm.posted = false;
	assert_int_equal(vm_set_irqs(&t->vm, 0x21, 2, 0, 0, NULL, 0), 0);
	vm_write(&t->vm, VM_CONFIG, 4, &none, 2);
	reset(&t->vm);
	memset(t->vm.mem, 0xa5, VM_MEM);
	reset(&t->vm);
	for (i = 0x10; i < 0x28; i += 4)
		vm_write(&t->vm, VM_CONFIG, (uint64_t)i, &zero, 4);
	/* firmware moves memory about, and what a dead driver's programs still ring for is nobody's */
	for (i = 0; i < 5; i++) {
		assert_int_equal(vm_dma_unmap(&t->vm, VM_BUS, VM_MEM), 0);
		assert_int_equal(vm_dma_map(&t->vm, VM_BUS, VM_MEM, t->vm.memfd, 0, 3), 0);
		post_write(t, BIG);
	}
	t->qp[0] = old[0];
	memset(t->vm.mem, 0xa5, VM_MEM);
	vm_write(&t->vm, VM_CONFIG, 0x10, &bar0, 4);
	vm_write(&t->vm, VM_CONFIG, 0x18, &bar2, 4);
	vm_write(&t->vm, VM_CONFIG, 4, &on, 2);
	for (size_t off = 0; off < VM_MEM; off += 64)
		assert_int_equal(t->vm.mem[off], 0xa5);
}

static void test_reboot(void **state)
{
	struct server s;
	struct stand t;
	int i;

	(void)state;
	server_start(&s, 1, NULL);
	for (i = 0; i < 6; i++) {
		vm_maps_doorbells = i % 2;
		vm_open(&t.vm, &s, 0);
		probe(&t, DRV_61);
		writes(&t);
		qemu_reboot(&t);
		probe(&t, i % 3 ? DRV_72 : DRV_61);
		writes(&t);
		vm_close(&t.vm);
	}
	server_stop(&s);
}

/* ------------------------------------------------------------------ Cloud Hypervisor */

static void ch_call(struct vm *vm, uint16_t command, const void *body, size_t len, uint32_t answer,
		    struct vm_reply *reply)
{
	assert_int_equal(vm_call(vm, command, body, len, reply), 0);
	/* it reads as many bytes as it expects, and no more */
	assert_int_equal(reply->len, answer);
}

static void test_cloud_hypervisor(void **state)
{
	static const char hello[] = "\0\0\1\0{\"max_msg_fds\":1,\"max_data_xfer_size\":1048576,"
				    "\"migration\":{\"pgsize\":4096}}";
	uint32_t info[4] = { 32 }, irq[4] = { 16 }, v, i, ones = 0xffffffff;
	struct {
		uint32_t argsz, flags, index, cap_offset;
		uint64_t size, offset;
	} region;
	int fds[16];
	struct vm_reply reply;
	struct server s;
	struct stand t;
	uint16_t flags;

	(void)state;
	server_start(&s, 1, NULL);
	vm_connect(&t.vm, &s, 0);
	assert_int_equal(vm_call(&t.vm, 1, hello, sizeof(hello), &reply), 0);
	assert_memory_equal(reply.body, "\0\0", 2);
	assert_int_equal(reply.body[4], '{');
	assert_int_equal(reply.body[reply.len - 1], 0);
	/* argsz counts the header here */
	ch_call(&t.vm, 4, info, sizeof(info), 16, &reply);
	memcpy(info, reply.body, sizeof(info));
	assert_int_equal(info[1], 3);
	/* regions with much room for capabilities, 0 by vm_map_doorbells() */
	assert_true(vm_map_doorbells(&t.vm));
	for (i = 1; i < info[2]; i++) {
		memset(&region, 0, sizeof(region));
		region.argsz = 1024;
		region.index = i;
		ch_call(&t.vm, 5, &region, sizeof(region), 32, &reply);
		memcpy(&region, reply.body, sizeof(region));
		assert_int_equal(region.argsz, 32);
		assert_int_equal(region.index, i);
	}
	for (i = 0; i < info[3]; i++) {
		irq[2] = i;
		ch_call(&t.vm, 7, irq, sizeof(irq), 16, &reply);
	}
	/* configuration space in pieces of four bytes, and the sizes of BARs */
	for (i = 0; i < 64; i += 4)
		vm_read(&t.vm, VM_CONFIG, i, &v, 4);
	for (i = 0x10; i < 0x20; i += 4) {
		vm_write(&t.vm, VM_CONFIG, i, &ones, 4);
		vm_read(&t.vm, VM_CONFIG, i, &v, 4);
		assert_int_equal(v, i == 0x10 ? 0xff800004 : i == 0x18 ? 0xfffff004 : 0xffffffff);
	}
	/* memory last; all vectors at once, 16 descriptors in a message */
	assert_int_equal(vm_dma_map(&t.vm, VM_BUS, VM_MEM, t.vm.memfd, 0, 3), 0);
	flags = 0x8000;
	vm_write(&t.vm, VM_CONFIG, 0x42, &flags, 2);
	for (i = 0; i < VM_VECTORS; i++)
		t.vm.event[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	for (i = 0; i < VM_VECTORS; i += 16) {
		memcpy(fds, t.vm.event + i, sizeof(fds));
		assert_int_equal(vm_set_irqs(&t.vm, 0x24, 2, i, 16, fds, 16), 0);
	}
	probe(&t, DRV_61);
	writes(&t);
	assert_int_equal(vm_set_irqs(&t.vm, 0x21, 2, 0, 0, NULL, 0), 0);
	assert_int_equal(vm_dma_unmap(&t.vm, VM_BUS, VM_MEM), 0);
	vm_close(&t.vm);
	server_stop(&s);
}

/* ------------------------------------------------------------------ death and migration */

/* Its successor has doorbell pages of its own. */
static void test_death(void **state)
{
	static const uint64_t sign = 0x1122334455667788;
	struct server s;
	struct stand t;
	uint8_t *old;
	int i;

	(void)state;
	server_start(&s, 1, NULL);
	vm_maps_doorbells = true;
	for (i = 0; i < 10; i++) {
		vm_open(&t.vm, &s, 0);
		probe(&t, i % 2 ? DRV_61 : DRV_72);
		post_write(&t, BIG);
		usleep((useconds_t)(i * 100));
		old = t.vm.bar0;
		t.vm.bar0 = NULL;
		vm_close(&t.vm);
		vm_open(&t.vm, &s, 0);
		memcpy(old + 0x3008, &sign, sizeof(sign));
		assert_memory_not_equal(t.vm.bar0 + 0x3008, &sign, sizeof(sign));
		munmap(old, 8 << 20);
		probe(&t, DRV_72);
		writes(&t);
		vm_close(&t.vm);
	}
	server_stop(&s);
}

/* Migration is not offered, and refused without harm. */
static void test_migration(void **state)
{
	static const char hello[] =
		"\0\0\0\0{\"capabilities\":{\"max_msg_fds\":16,"
		"\"max_dma_maps\":65535,\"pgsizes\":4096,"
		"\"migration\":{\"pgsize\":4096,\"max_bitmap_size\":268435456}}}";
	static const uint16_t commands[] = { 16, 17, 18, 14 };
	uint8_t body[64] = { 64 };
	struct vm_reply reply;
	struct server s;
	struct stand t;
	uint32_t i;

	(void)state;
	server_start(&s, 1, NULL);
	vm_connect(&t.vm, &s, 0);
	assert_int_equal(vm_call(&t.vm, 1, hello, sizeof(hello), &reply), 0);
	assert_null(strstr((char *)reply.body + 4, "migration"));
	assert_int_equal(vm_dma_map(&t.vm, VM_BUS, VM_MEM, t.vm.memfd, 0, 3), 0);
	probe(&t, DRV_72);
	post_write(&t, BIG);
	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		body[4] = (uint8_t)i;
		assert_int_equal(vm_call(&t.vm, commands[i], body, sizeof(body), &reply),
				 EOPNOTSUPP);
	}
	assert_true(drv_poll(&t.cq[0], &(struct drv_wc){ 0 }, DRV_WAIT_MS));
	writes(&t);
	vm_close(&t.vm);
	server_stop(&s);
}

/* ------------------------------------------------------------------ doorbells in shared memory */

/* No message for a doorbell, and none is overlooked after a pause. */
static void no_message(enum drv_kind kind)
{
	static const unsigned int pauses_us[] = { 0, 100, 1000, 20000, 300000 };
	struct server s;
	struct stand t;
	struct drv_wc wc;
	uint64_t before;
	uint32_t i, cqn;

	server_start(&s, 1, NULL);
	vm_maps_doorbells = true;
	vm_open(&t.vm, &s, 0);
	probe(&t, kind);
	before = t.vm.messages;
	for (i = 0; i < 1000; i++) {
		if (i < 10)
			usleep(pauses_us[i % 5]);
		drv_recv(&t.qp[1], t.buf + BIG, 64, KEY);
		drv_post(&t.qp[0],
			 &(struct drv_wr){ .op = WR_SEND, .len = 64, .lkey = KEY, .addr = t.buf });
		assert_true(drv_poll(&t.cq[0], &wc, DRV_WAIT_MS));
		assert_true(drv_poll(&t.cq[1], &wc, DRV_WAIT_MS));
		assert_int_equal(wc.syndrome, 0);
	}
	/* arming is no message, either */
	drv_arm_cq(&t.cq[1], false);
	assert_int_equal(t.vm.messages, before);
	drv_recv(&t.qp[1], t.buf + BIG, 64, KEY);
	drv_post(&t.qp[0],
		 &(struct drv_wr){ .op = WR_SEND, .len = 64, .lkey = KEY, .addr = t.buf });
	assert_int_equal(vm_irqs(&t.vm, 1, DRV_WAIT_MS), 1);
	assert_true(drv_ceqe(&t.d, 1, &cqn));
	assert_int_equal(cqn, 2);
	assert_int_equal(t.vm.messages, before);
	vm_close(&t.vm);
	server_stop(&s);
}

static void test_no_message_61(void **state)
{
	(void)state;
	no_message(DRV_61);
}

static void test_no_message_72(void **state)
{
	(void)state;
	no_message(DRV_72);
}

/* A client that has the pages may send messages all the same, and queues may be made before it has them. */
static void test_messages_all_the_same(void **state)
{
	struct server s;
	struct stand t;
	uint8_t *bar0;

	(void)state;
	server_start(&s, 1, NULL);
	vm_maps_doorbells = false;
	vm_open(&t.vm, &s, 0);
	probe(&t, DRV_72);
	assert_true(vm_map_doorbells(&t.vm));
	writes(&t);
	bar0 = t.vm.bar0;
	t.vm.bar0 = NULL;
	writes(&t);
	writes(&t);
	t.vm.bar0 = bar0;
	vm_close(&t.vm);
	server_stop(&s);
}

/* The operator's choice. */
static void test_trapped(void **state)
{
	static const char *const by_message[] = { "-b", "trapped", NULL };
	struct server s;
	struct stand t;

	(void)state;
	server_start(&s, 1, by_message);
	vm_maps_doorbells = false;
	vm_open(&t.vm, &s, 0);
	assert_false(vm_map_doorbells(&t.vm));
	probe(&t, DRV_72);
	writes(&t);
	vm_close(&t.vm);
	server_stop(&s);
}

/* Values that are no doorbells of the queue, records that cannot be read, and records from an earlier life. */
static void test_odd_records(void **state)
{
	struct server s;
	struct stand t;
	uint64_t *sq, *rq, *cq;
	uint32_t i;

	(void)state;
	server_start(&s, 1, NULL);
	vm_maps_doorbells = true;
	vm_open(&t.vm, &s, 0);
	probe(&t, DRV_72);
	sq = vm_at(&t.vm, t.qp[0].record);
	rq = sq + 1;
	cq = vm_at(&t.vm, t.cq[0].record);
	for (i = 0; i < 200; i++) {
		/* of another queue, of none, not armed */
		__atomic_store_n(sq, 2ull << 32 | i, __ATOMIC_RELEASE);
		__atomic_store_n(rq, (uint64_t)i << 32 | 1, __ATOMIC_RELEASE);
		__atomic_store_n(cq, (uint64_t)(2 + i) << 32 | 1ull << 31, __ATOMIC_RELEASE);
		__atomic_store_n(cq, 1ull << 32 | i, __ATOMIC_RELEASE);
	}
	writes(&t);
	/* of no effect on the peer, which the values named */
	drv_recv(&t.qp[1], t.buf + BIG, 64, KEY);
	drv_post(&t.qp[0],
		 &(struct drv_wr){ .op = WR_SEND, .len = 64, .lkey = KEY, .addr = t.buf });
	assert_true(drv_poll(&t.cq[1], &(struct drv_wc){ 0 }, DRV_WAIT_MS));
	/* an index that cannot be: the QP ends, the device does not */
	__atomic_store_n(sq, 1ull << 32 | 0x7000, __ATOMIC_RELEASE);
	for (i = 0; i < DRV_WAIT_MS; i++) {
		uint8_t type;
		uint32_t number;

		if (drv_aeqe(&t.d, &type, &number) && number == 1)
			break;
		vm_idle(&t.vm, 1000);
	}
	assert_true(i < DRV_WAIT_MS);
	probe(&t, DRV_72);
	writes(&t);
	vm_close(&t.vm);
	server_stop(&s);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reboot),
		cmocka_unit_test(test_cloud_hypervisor),
		cmocka_unit_test(test_death),
		cmocka_unit_test(test_migration),
		cmocka_unit_test(test_no_message_61),
		cmocka_unit_test(test_no_message_72),
		cmocka_unit_test(test_messages_all_the_same),
		cmocka_unit_test(test_trapped),
		cmocka_unit_test(test_odd_records),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
