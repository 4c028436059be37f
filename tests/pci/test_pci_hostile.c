// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Guests and clients at their worst: memory that goes in the middle of a transfer, page lists that lie, resets and
 * deaths at any time.  The server goes on, no byte outside the windows is touched, and the next guest finds a device
 * that works.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/pci/driver.h"

enum {
	BIG = 4 << 20,
	CANARY = 0x5c,
};

struct stand {
	struct server s;
	struct vm vm;
	struct drv d;
	struct drv_cq cq[2];
	struct drv_qp qp[2];
	uint64_t buf; /* two halves of BIG bytes */
};

static void probe(struct stand *t)
{
	t->vm.used = 0;
	drv_probe(&t->d, &t->vm, DRV_72);
	t->buf = drv_pair(&t->d, t->cq, t->qp, 0x100, BIG);
}

static void open_stand(struct stand *t)
{
	server_start(&t->s, 1, NULL);
	vm_open(&t->vm, &t->s, 0);
	probe(t);
}

static void close_stand(struct stand *t)
{
	server_lives(&t->s);
	vm_close(&t->vm);
	/* the next guest */
	vm_open(&t->vm, &t->s, 0);
	probe(t);
	drv_post(&t->qp[0], &(struct drv_wr){ .op = WR_WRITE,
					      .len = 4096,
					      .lkey = 0x100,
					      .addr = t->buf,
					      .rkey = 0x100,
					      .raddr = t->buf });
	assert_true(drv_poll(&t->cq[0], &(struct drv_wc){ 0 }, DRV_WAIT_MS));
	vm_close(&t->vm);
	server_stop(&t->s);
}

static void write_much(struct stand *t, int count, uint64_t from, uint64_t to)
{
	while (count--)
		drv_post(&t->qp[0], &(struct drv_wr){ .op = WR_WRITE,
						      .len = BIG,
						      .lkey = 0x100,
						      .addr = from,
						      .rkey = 0x100,
						      .raddr = to });
}

/* Every memory operation is under way while windows go and come. */
static void test_unmap_in_transfer(void **state)
{
	struct stand t;
	struct drv_wc wc;
	struct drv_wr wr;
	int i, ended = 0;

	(void)state;
	open_stand(&t);
	for (i = 0; i < 20; i++) {
		if (i)
			probe(&t);
		t.vm.posted = true;
		write_much(&t, 8, t.buf, t.buf + BIG);
		t.vm.posted = false;
		usleep((useconds_t)(i * 150));
		assert_int_equal(vm_dma_unmap(&t.vm, VM_BUS, VM_MEM), 0);
		/* the server has let go: nothing is written from here on */
		memset(t.vm.mem, CANARY, VM_MEM);
		usleep(2000);
		for (uint64_t off = 0; off < VM_MEM; off += 64)
			assert_int_equal(t.vm.mem[off], CANARY);
		assert_int_equal(vm_dma_map(&t.vm, VM_BUS, VM_MEM, t.vm.memfd, 0, 3), 0);
		if (i % 2)
			drv_reset(&t.d);
	}
	/* only a part goes: the work request ends with an error, and so does the QP */
	assert_int_equal(vm_dma_unmap(&t.vm, VM_BUS, VM_MEM), 0);
	assert_int_equal(vm_dma_map(&t.vm, VM_BUS, VM_MEM / 2, t.vm.memfd, 0, 3), 0);
	assert_int_equal(
		vm_dma_map(&t.vm, VM_BUS + VM_MEM / 2, VM_MEM / 2, t.vm.memfd, VM_MEM / 2, 3), 0);
	drv_reset(&t.d);
	probe(&t);
	assert_int_equal(drv_reg_mr(&t.d, 0x200, 1, VM_BUS + VM_MEM / 2, BIG, DRV_ALL), 0);
	t.vm.posted = true;
	wr = (struct drv_wr){ .op = WR_WRITE,
			      .len = BIG,
			      .lkey = 0x100,
			      .addr = t.buf,
			      .rkey = 0x200,
			      .raddr = VM_BUS + VM_MEM / 2 };
	for (i = 0; i < 8; i++)
		drv_post(&t.qp[0], &wr);
	t.vm.posted = false;
	assert_int_equal(vm_dma_unmap(&t.vm, VM_BUS + VM_MEM / 2, VM_MEM / 2), 0);
	/* one at least finds it gone */
	drv_post(&t.qp[0], &wr);
	for (i = 0; i < 9 && drv_poll(&t.cq[0], &wc, DRV_WAIT_MS); i++)
		ended += wc.syndrome != 0;
	/* those that were sent before have succeeded; the error ends both QPs */
	assert_int_equal(i, 9);
	assert_true(ended > 0);
	assert_int_equal(drv_cmd(&t.d, 1, 2, NULL, 0), 0);
	close_stand(&t);
}

/* RESET, a PCI reset, the queues and regions of the running transfer: gone at any moment. */
static void test_reset_in_transfer(void **state)
{
	struct vm_reply reply;
	struct stand t;
	int i;

	(void)state;
	open_stand(&t);
	for (i = 0; i < 40; i++) {
		if (i)
			probe(&t);
		t.vm.posted = true;
		write_much(&t, 8, t.buf, t.buf + BIG);
		t.vm.posted = false;
		usleep((useconds_t)(i * 100));
		switch (i % 5) {
		case 0:
			drv_reset(&t.d);
			break;
		case 1:
			assert_int_equal(vm_call(&t.vm, 13, NULL, 0, &reply), 0);
			break;
		case 2:
			assert_int_equal(drv_dereg_mr(&t.d, 0x100), 0);
			break;
		case 3:
			assert_int_equal(drv_destroy_qp(&t.qp[1]), 0);
			assert_int_equal(drv_destroy_cq(&t.cq[1]), 0);
			break;
		default:
			vm_w32(&t.vm, 0x10, 2); /* INIT, and no RESET */
		}
		if (i % 5 < 2) {
			memset(t.vm.mem, CANARY, VM_MEM);
			usleep(2000);
			for (uint64_t off = 0; off < VM_MEM; off += 64)
				assert_int_equal(t.vm.mem[off], CANARY);
		}
	}
	close_stand(&t);
}

/* A virtual machine that is killed; its successor comes at once. */
static void test_client_dies(void **state)
{
	struct stand t;
	int i;

	(void)state;
	open_stand(&t);
	for (i = 0; i < 20; i++) {
		t.vm.posted = true;
		write_much(&t, 8, t.buf, t.buf + BIG);
		usleep((useconds_t)(i * 200));
		vm_close(&t.vm);
		vm_open(&t.vm, &t.s, 0);
		probe(&t);
	}
	close_stand(&t);
}

/* The peer's machine dies: this one's QP ends, and the device lives. */
static void test_peer_dies(void **state)
{
	struct drv_end a = { 1, 2, 3, 4, 5, 6 }, b = { 2, 1, 4, 3, 6, 5 };
	struct server s;
	struct vm vm[2];
	struct drv d[2];
	struct drv_cq cq[2];
	struct drv_qp qp[2];
	struct drv_wc wc;
	int i;

	(void)state;
	server_start(&s, 2, NULL);
	for (i = 0; i < 2; i++) {
		vm_open(&vm[i], &s, i);
		drv_probe(&d[i], &vm[i], DRV_61);
		assert_int_equal(drv_create_cq(&d[i], &cq[i], 1, 8, 1, true), 0);
		assert_int_equal(drv_create_qp(&d[i], &qp[i], 1, 1, &cq[i], &cq[i], true), 0);
	}
	assert_int_equal(drv_rts(&qp[0], qp[1].cookie, &a), 0);
	assert_int_equal(drv_rts(&qp[1], qp[0].cookie, &b), 0);
	drv_recv(&qp[0], 0, 0, 0);
	vm_close(&vm[1]);
	assert_true(drv_poll(&cq[0], &wc, DRV_WAIT_MS));
	assert_int_equal(wc.syndrome, 15);
	assert_int_equal(drv_cmd(&d[0], 1, 2, NULL, 0), 0);
	vm_close(&vm[0]);
	server_stop(&s);
}

/* The client cuts its file off under the server. */
static void test_file_shrinks(void **state)
{
	struct stand t;
	struct vm next;
	int i;

	(void)state;
	open_stand(&t);
	for (i = 0; i < 4; i++) {
		t.vm.posted = true;
		write_much(&t, 4, t.buf, t.buf + BIG);
		t.vm.posted = false;
		assert_int_equal(ftruncate(t.vm.memfd, i % 2 ? 4096 : VM_MEM / 8), 0);
		usleep(20000);
		/* any register that makes the server look at guest memory */
		vm_w64(&t.vm, 0x200, (uint16_t)(t.d.csq_pi + t.d.slot));
		vm_w64(&t.vm, 0x300, 1ull << 31);
		server_lives(&t.s);
		vm_close(&t.vm);
		vm_open(&next, &t.s, 0);
		t.vm = next;
		probe(&t);
	}
	close_stand(&t);
}

static uint64_t seed = 88172645463325252ull;

static uint64_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* An address that is now and then a good one. */
static uint64_t some_address(void)
{
	switch (rnd() % 6) {
	case 0:
		return rnd();
	case 1:
		return VM_BUS - 4096 + rnd() % 8192;
	case 2:
		return VM_BUS + VM_MEM - 4096 + rnd() % 8192;
	case 3:
		return 0;
	case 4:
		return UINT64_MAX - rnd() % 8192;
	default:
		return VM_BUS + (rnd() % VM_MEM & ~7ull);
	}
}

/* Rings, page lists and work requests of random numbers, with an engine that works on them. */
static void test_random_memory(void **state)
{
	struct stand t;
	uint64_t word;
	int round, i;

	(void)state;
	open_stand(&t);
	for (round = 0; round < 12; round++) {
		if (round)
			probe(&t);
		t.vm.posted = true;
		for (i = 0; i < 300; i++) {
			uint64_t *ring = vm_at(&t.vm, rnd() % 2 ? t.qp[rnd() & 1].sq : t.qp[0].rq);

			/* headers that are nearly right keep the queue going */
			if (rnd() % 4) {
				drv_post(
					&t.qp[0],
					&(struct drv_wr){
						.op = (uint8_t)(rnd() % 20),
						.len = (uint32_t)(rnd() % 3 ? rnd() % 9000 : rnd()),
						.lkey = rnd() % 4 ? 0x100 : (uint32_t)rnd(),
						.rkey = rnd() % 4 ? 0x100 : (uint32_t)rnd(),
						.addr = some_address(),
						.raddr = some_address() });
				drv_recv(&t.qp[1], some_address(), (uint32_t)rnd() % 10000, 0x100);
			} else {
				ring[rnd() % 256] = rnd();
			}
			if (rnd() % 20 == 0)
				vm_w64(&t.vm, (uint64_t)t.d.sdb << 12,
				       1ull << 32 | (rnd() & 0xffff));
			if (rnd() % 20 == 0)
				vm_w64(&t.vm, (uint64_t)t.d.cdb << 12,
				       2ull << 32 | (rnd() & 0xffff));
			if (rnd() % 20 == 0)
				vm_w64(&t.vm, (uint64_t)t.d.rdb << 12, rnd());
			if (rnd() % 20 == 0)
				*(uint64_t *)vm_at(&t.vm, t.qp[rnd() & 1].record + (rnd() & 8)) =
					(1 + (rnd() & 1)) << 32 | (rnd() & 0xffff);
			if (rnd() % 20 == 0)
				*(uint64_t *)vm_at(&t.vm, t.cq[rnd() & 1].record) =
					(1 + (rnd() & 1)) << 32 | (rnd() & 0xf0ffffff);
		}
		t.vm.posted = false;
		/* the device still answers */
		assert_int_equal(drv_cmd(&t.d, 1, 2, NULL, 0), 0);
		/* objects from page lists of random numbers, used at once */
		for (i = 0; i < 40; i++) {
			uint8_t body[112];
			size_t at;

			for (at = 0; at < sizeof(body); at += 8) {
				word = rnd() % 3 ? some_address() : rnd() & rnd() & rnd();
				memcpy(body + at, &word, 8);
			}
			body[2] = 0;
			body[1] = 0;
			body[0] = (uint8_t)(10 + rnd() % 4);
			drv_cmd(&t.d, (uint8_t)(rnd() % 8 == 0), (uint8_t)(rnd() % 10), body,
				sizeof(body));
			vm_w64(&t.vm, (uint64_t)t.d.sdb << 12,
			       (uint64_t)body[0] << 32 | (rnd() & 0xff));
			vm_w64(&t.vm, 0x5f000, (uint64_t)body[0] << 32 | (rnd() & 0xff));
		}
		if (rnd() % 2)
			drv_reset(&t.d);
	}
	close_stand(&t);
}

/* Any value in any register, in any order. */
static void test_random_registers(void **state)
{
	struct stand t;
	int round, i;

	(void)state;
	open_stand(&t);
	for (round = 0; round < 20; round++) {
		t.vm.posted = true;
		for (i = 0; i < 400; i++) {
			uint64_t off = rnd() % 3 ? rnd() % 0x80 : rnd() % 0x400;
			uint64_t value = rnd() % 2 ? some_address() : rnd() & rnd() & rnd() & rnd();

			if (rnd() % 2)
				vm_w32(&t.vm, off & ~3ull, (uint32_t)value);
			else
				vm_w64(&t.vm, off & ~7ull, value);
			if (rnd() % 30 == 0)
				vm_w32(&t.vm, 0x10, (uint32_t)rnd() & 3);
			if (rnd() % 30 == 0) {
				vm_w32(&t.vm, 0x30, 1u << rnd() % 20);
				vm_w32(&t.vm, 0x34, 1u << rnd() % 20);
				vm_w32(&t.vm, 0x48, 1u << rnd() % 20);
			}
		}
		t.vm.posted = false;
		server_lives(&t.s);
		drv_reset(&t.d);
		probe(&t);
	}
	close_stand(&t);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unmap_in_transfer), cmocka_unit_test(test_reset_in_transfer),
		cmocka_unit_test(test_client_dies),	  cmocka_unit_test(test_peer_dies),
		cmocka_unit_test(test_file_shrinks),	  cmocka_unit_test(test_random_memory),
		cmocka_unit_test(test_random_registers),
	};

	vm_maps_doorbells = MAPPED;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
