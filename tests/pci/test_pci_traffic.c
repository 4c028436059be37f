// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Data between two QPs: of one function, two functions, two processes, two hosts; events and interrupts on the way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/pci/driver.h"

enum {
	LKEY = 0x100,
	BIG = 1 << 20,
};

/* One side: its own CQ, QP and a region with all rights. */
struct side {
	struct drv *d;
	struct drv_cq cq;
	struct drv_qp qp;
	uint64_t buf; /* two halves of BIG bytes */
	uint32_t key;
};

static void side_make(struct side *s, struct drv *d, uint32_t n, bool user)
{
	memset(s, 0, sizeof(*s));
	s->d = d;
	s->key = LKEY * n;
	s->buf = vm_alloc(d->vm, 2 * BIG);
	assert_int_equal(drv_create_cq(d, &s->cq, n, 8, 1 + n % 2, user), 0);
	assert_int_equal(drv_create_qp(d, &s->qp, n, 7, &s->cq, &s->cq, user), 0);
	assert_int_equal(drv_reg_mr(d, s->key, 7, s->buf, 2 * BIG, DRV_ALL), 0);
}

static void side_drop(struct side *s)
{
	assert_int_equal(drv_modify_qp(&s->qp, 5), 0);
	assert_int_equal(drv_destroy_qp(&s->qp), 0);
	assert_int_equal(drv_destroy_cq(&s->cq), 0);
	assert_int_equal(drv_dereg_mr(s->d, s->key), 0);
}

static void fill(struct side *s, uint32_t len, uint32_t seed)
{
	uint8_t *p = vm_at(s->d->vm, s->buf);
	uint32_t i;

	for (i = 0; i < len; i++) {
		seed = seed * 1664525 + 1013904223;
		p[i] = (uint8_t)(seed >> 24);
	}
}

/* First half of @a to the second half of @b. */
static void assert_arrived(struct side *a, struct side *b, uint32_t len)
{
	assert_memory_equal(vm_at(a->d->vm, a->buf), vm_at(b->d->vm, b->buf + BIG), len);
	memset(vm_at(b->d->vm, b->buf + BIG), 0, len);
}

static void expect(struct side *s, uint8_t opcode, uint8_t qtype, uint32_t size)
{
	struct drv_wc wc;

	assert_true(drv_poll(&s->cq, &wc, DRV_WAIT_MS));
	assert_int_equal(wc.syndrome, 0);
	assert_int_equal(wc.opcode, opcode);
	assert_int_equal(wc.qtype, qtype);
	assert_int_equal(wc.qpn, s->qp.qpn);
	assert_int_equal(wc.size, size);
}

static uint32_t expect_imm(struct side *s, uint8_t opcode, uint32_t size)
{
	struct drv_wc wc;

	assert_true(drv_poll(&s->cq, &wc, DRV_WAIT_MS));
	assert_int_equal(wc.syndrome, 0);
	assert_int_equal(wc.opcode, opcode);
	assert_int_equal(wc.size, size);
	return wc.extra; /* software reads a little-endian number */
}

static void all_operations(struct side *a, struct side *b)
{
	static const uint32_t sizes[] = { 1, 8, 64, 4096, 65536, BIG };
	/* by messages a page takes three turns of both processes */
	const uint32_t count = sizeof(sizes) / sizeof(sizes[0]) - (vm_keeps_memory ? 1 : 0);
	struct drv_wr wr = { .lkey = a->key, .rkey = b->key, .addr = a->buf, .raddr = b->buf + BIG };
	uint32_t i;

	for (i = 0; i < count; i++) {
		wr.len = sizes[i];
		fill(a, wr.len, i + 1);
		wr.op = WR_WRITE;
		drv_post(&a->qp, &wr);
		expect(a, WR_WRITE, 0, wr.len);
		/* a WRITE completes when it was sent; a READ behind it says that it was placed */
		wr.op = WR_READ;
		wr.addr = a->buf + BIG;
		drv_post(&a->qp, &wr);
		expect(a, WR_READ, 0, wr.len);
		assert_memory_equal(vm_at(a->d->vm, a->buf), vm_at(a->d->vm, a->buf + BIG), wr.len);
		assert_arrived(a, b, wr.len);
		wr.addr = a->buf;

		drv_recv(&b->qp, b->buf + BIG, BIG, b->key);
		wr.op = WR_SEND;
		drv_post(&a->qp, &wr);
		expect(a, WR_SEND, 0, wr.len);
		expect(b, WC_RECV, 1, wr.len);
		assert_arrived(a, b, wr.len);

		drv_recv(&b->qp, b->buf + BIG, BIG, b->key);
		wr.op = WR_SEND_IMM;
		wr.imm = 0x01020304 + i;
		drv_post(&a->qp, &wr);
		expect(a, WR_SEND_IMM, 0, wr.len);
		assert_int_equal(expect_imm(b, WC_RSP_SEND_IMM, wr.len), wr.imm);
		assert_arrived(a, b, wr.len);

		drv_recv(&b->qp, 0, 0, 0);
		wr.op = WR_WRITE_IMM;
		wr.imm = 0x89abcdef - i;
		drv_post(&a->qp, &wr);
		expect(a, WR_WRITE_IMM, 0, wr.len);
		assert_int_equal(expect_imm(b, WC_RECV_IMM, wr.len), wr.imm);
		assert_arrived(a, b, wr.len);
	}
}

static void both_ways(struct drv *da, struct drv *db, bool user)
{
	struct side a, b;

	side_make(&a, da, 1, user);
	side_make(&b, db, 2, user);
	drv_connect(&a.qp, &b.qp);
	all_operations(&a, &b);
	all_operations(&b, &a);
	side_drop(&a);
	side_drop(&b);
}

static void in_one_function(enum drv_kind kind)
{
	struct server s;
	struct vm vm;
	struct drv d;

	server_start(&s, 1, NULL);
	vm_open(&vm, &s, 0);
	drv_probe(&d, &vm, kind);
	both_ways(&d, &d, true);
	both_ways(&d, &d, false);
	vm.posted = true;
	both_ways(&d, &d, true);
	vm_close(&vm);
	server_stop(&s);
}

static void test_one_function_61(void **state)
{
	(void)state;
	in_one_function(DRV_61);
}

static void test_one_function_72(void **state)
{
	(void)state;
	in_one_function(DRV_72);
}

static void test_two_functions(void **state)
{
	struct server s;
	struct vm vm[2];
	struct drv d[2];

	(void)state;
	server_start(&s, 2, NULL);
	vm_open(&vm[0], &s, 0);
	vm_open(&vm[1], &s, 1);
	drv_probe(&d[0], &vm[0], DRV_61);
	drv_probe(&d[1], &vm[1], DRV_72);
	both_ways(&d[0], &d[1], true);
	both_ways(&d[1], &d[0], true);
	vm_close(&vm[0]);
	vm_close(&vm[1]);
	server_stop(&s);
}

static void between(struct server s[2])
{
	struct vm vm[2];
	struct drv d[2];

	vm_open(&vm[0], &s[0], 0);
	vm_open(&vm[1], &s[1], 0);
	drv_probe(&d[0], &vm[0], DRV_72);
	drv_probe(&d[1], &vm[1], DRV_61);
	both_ways(&d[0], &d[1], true);
	both_ways(&d[1], &d[0], true);
	vm_close(&vm[0]);
	vm_close(&vm[1]);
}

static void test_two_processes(void **state)
{
	char dir[] = "/tmp/erdma-pci-fabric-XXXXXX";
	const char *extra[] = { "-d", dir, NULL };
	struct server s[2];

	(void)state;
	assert_non_null(mkdtemp(dir));
	server_start(&s[0], 1, extra);
	server_start(&s[1], 1, extra);
	between(s);
	server_stop(&s[0]);
	server_stop(&s[1]);
	assert_int_equal(rmdir(dir), 0);
}

static void test_two_hosts(void **state)
{
	char here[32], there[32];
	const char *first[] = { "-l", here, "-p", there, NULL };
	const char *second[] = { "-l", there, "-p", here, NULL };
	int port = 20000 + getpid() % 10000;
	struct server s[2];

	(void)state;
	snprintf(here, sizeof(here), "127.0.0.1:%d", port);
	snprintf(there, sizeof(there), "127.0.0.1:%d", port + 1);
	server_start(&s[0], 1, first);
	server_start(&s[1], 1, second);
	between(s);
	server_stop(&s[0]);
	server_stop(&s[1]);
}

/* ------------------------------------------------------------------ the life of a connection */

struct stand {
	struct server s;
	struct vm vm;
	struct drv d;
	struct side a, b;
};

static void stand_open(struct stand *t)
{
	server_start(&t->s, 1, NULL);
	vm_open(&t->vm, &t->s, 0);
	drv_probe(&t->d, &t->vm, DRV_72);
	side_make(&t->a, &t->d, 1, true);
	side_make(&t->b, &t->d, 2, true);
}

static void stand_close(struct stand *t)
{
	vm_close(&t->vm);
	server_stop(&t->s);
}

/* The passive side is ready first and sends at once; the active one comes later. */
static void test_passive_sends_first(void **state)
{
	struct drv_end a = { 1, 2, 3, 4, 10, 20 }, p = { 2, 1, 4, 3, 20, 10 };
	struct stand t;

	(void)state;
	stand_open(&t);
	fill(&t.b, 64, 5);
	drv_recv(&t.a.qp, t.a.buf + BIG, 64, t.a.key);
	assert_int_equal(drv_rts(&t.b.qp, t.a.qp.cookie, &p), 0);
	drv_post(&t.b.qp,
		 &(struct drv_wr){ .op = WR_SEND, .len = 64, .lkey = t.b.key, .addr = t.b.buf });
	usleep(20000);
	assert_int_equal(drv_rts(&t.a.qp, t.b.qp.cookie, &a), 0);
	expect(&t.a, WC_RECV, 1, 64);
	expect(&t.b, WR_SEND, 0, 64);
	assert_arrived(&t.b, &t.a, 64);
	stand_close(&t);
}

/* A wrong cookie or address finds nobody, and harms nobody. */
static void test_wrong_peer(void **state)
{
	struct drv_end a = { 1, 2, 3, 4, 10, 20 }, p = { 2, 1, 4, 3, 20, 10 };
	struct drv_end lost = { 1, 2, 3, 5, 10, 20 };
	struct stand t;
	struct side c;

	(void)state;
	stand_open(&t);
	side_make(&c, &t.d, 3, true);
	assert_int_equal(drv_rts(&c.qp, t.b.qp.cookie, &a), 0); /* not its peer */
	assert_int_equal(drv_rts(&t.b.qp, t.a.qp.cookie, &p), 0);
	assert_int_equal(drv_rts(&t.a.qp, t.b.qp.cookie, &lost), 0); /* another connection */
	assert_int_equal(drv_rts(&t.a.qp, t.b.qp.cookie, &a), 0);    /* thinks better of it */
	all_operations(&t.a, &t.b);
	side_drop(&c);
	stand_close(&t);
}

/* Closing flushes both queues of both ends, in order, and the QP can be connected again. */
static void test_close(void **state)
{
	struct stand t;
	struct drv_wc wc;
	int i;

	(void)state;
	stand_open(&t);
	drv_connect(&t.a.qp, &t.b.qp);
	for (i = 0; i < 3; i++)
		drv_recv(&t.a.qp, t.a.buf, 64, t.a.key);
	for (i = 0; i < 5; i++)
		drv_recv(&t.b.qp, t.b.buf, 64, t.b.key);
	assert_int_equal(drv_modify_qp(&t.a.qp, 3), 0);
	for (i = 0; i < 3; i++) {
		assert_true(drv_poll(&t.a.cq, &wc, DRV_WAIT_MS));
		assert_int_equal(wc.syndrome, 15);
		assert_int_equal(wc.index & 63, i);
	}
	for (i = 0; i < 5; i++) {
		assert_true(drv_poll(&t.b.cq, &wc, DRV_WAIT_MS));
		assert_int_equal(wc.syndrome, 15);
		assert_int_equal(wc.index & 63, i);
	}
	/* what is posted later is flushed by its doorbell */
	drv_post(&t.b.qp, &(struct drv_wr){ .op = WR_SEND });
	assert_true(drv_poll(&t.b.cq, &wc, DRV_WAIT_MS));
	assert_int_equal(wc.syndrome, 15);
	assert_int_equal(wc.qtype, 0);
	drv_connect(&t.a.qp, &t.b.qp);
	all_operations(&t.a, &t.b);
	stand_close(&t);
}

/* A protection error ends both QPs with the right status, and an asynchronous event tells of it. */
static void test_access_error(void **state)
{
	struct stand t;
	struct drv_wc wc;
	uint8_t type;
	uint32_t number, seen = 0;

	(void)state;
	stand_open(&t);
	drv_connect(&t.a.qp, &t.b.qp);
	fill(&t.a, 64, 9);
	memset(vm_at(&t.vm, t.b.buf), 0x5a, 64);
	drv_post(&t.a.qp, &(struct drv_wr){ .op = WR_READ,
					    .len = 64,
					    .lkey = t.a.key,
					    .addr = t.a.buf,
					    .rkey = t.b.key + 1,
					    .raddr = t.b.buf });
	assert_true(drv_poll(&t.a.cq, &wc, DRV_WAIT_MS));
	assert_int_equal(wc.syndrome, 3); /* the key is not valid */
	assert_true(vm_irqs(&t.vm, 0, DRV_WAIT_MS) > 0);
	while (drv_aeqe(&t.d, &type, &number))
		seen |= 1u << number;
	assert_true(seen & 0x6);
	/* commands go on, beside the event in the same vector */
	assert_int_equal(drv_cmd(&t.d, 1, 2, NULL, 0), 0);
	stand_close(&t);
}

/*
 * As the kernel's storage targets do: a region is bound by a work request, a READ fills it, it is invalidated;
 * the key that names all of memory carries the rest.
 */
static void test_kernel_user(void **state)
{
	static const uint32_t local_key = 0xffffff00;
	struct server s;
	struct vm vm;
	struct drv d;
	struct side a, b;
	uint8_t body[56] = { 0 };
	uint64_t pages[2], list;
	struct drv_wr wr;
	uint32_t v, i;

	(void)state;
	server_start(&s, 1, NULL);
	vm_open(&vm, &s, 0);
	drv_probe(&d, &vm, DRV_61);
	side_make(&a, &d, 1, false);
	side_make(&b, &d, 2, false);
	/* a fast-registration region: index 0x40, room for 16 pages */
	list = vm_alloc(&vm, 4096);
	v = 0x40;
	memcpy(body, &v, 4);
	v = 7 << 12 | 1 << 6 | DRV_ALL;
	memcpy(body + 4, &v, 4);
	v = 12u << 27 | 1 << 20 | 16;
	memcpy(body + 20, &v, 4);
	memcpy(body + 24, &list, 8);
	assert_int_equal(drv_cmd(&d, 0, 8, body, sizeof(body)), 0);
	drv_connect(&a.qp, &b.qp);
	fill(&b, 4096, 3);
	for (i = 1; i < 6; i++) {
		/* an odd offset in the first of two pages that are not neighbours */
		pages[0] = a.buf + BIG + 8192;
		pages[1] = a.buf + BIG;
		drv_fast_reg(&a.qp, 0x4000 | i, pages[0] + 100, 4096, pages, 2,
			     DRV_LOCAL_READ | DRV_LOCAL_WRITE | DRV_REMOTE_WRITE);
		wr = (struct drv_wr){ .op = i & 1 ? WR_READ_INV : WR_READ,
				      .len = 4096,
				      .lkey = 0x4000 | i,
				      .addr = pages[0] + 100,
				      .rkey = b.key,
				      .raddr = b.buf,
				      /* Linux names the key from before the binding */
				      .imm = 0x4000 | (i - 1) };
		drv_post(&a.qp, &wr);
		/* the sink may go when the READ is done: by a fence, or when its completion was seen */
		if (i == 2)
			drv_local_inv(&a.qp, 0x4000 | i, true);
		expect(&a, wr.op, 0, 4096);
		if (i == 4)
			drv_local_inv(&a.qp, 0x4000 | i, false);
		assert_memory_equal(vm_at(&vm, pages[0] + 100), vm_at(&vm, b.buf), 3996);
		assert_memory_equal(vm_at(&vm, pages[1]), vm_at(&vm, b.buf + 3996), 100);
		memset(vm_at(&vm, pages[0]), 0, 4096);
		memset(vm_at(&vm, pages[1]), 0, 4096);
		/* and without registration */
		drv_recv(&a.qp, a.buf, 512, local_key);
		drv_post(&b.qp,
			 &(struct drv_wr){
				 .op = WR_SEND, .len = 512, .lkey = local_key, .addr = b.buf });
		expect(&a, WC_RECV, 1, 512);
		expect(&b, WR_SEND, 0, 512);
	}
	vm_close(&vm);
	server_stop(&s);
}

/* ------------------------------------------------------------------ events */

static void send_one(struct stand *t, bool solicited)
{
	drv_recv(&t->b.qp, t->b.buf, 64, t->b.key);
	drv_post(&t->a.qp, &(struct drv_wr){ .op = WR_SEND,
					     .len = 8,
					     .lkey = t->a.key,
					     .addr = t->a.buf,
					     .solicited = solicited });
	expect(&t->a, WR_SEND, 0, 8);
}

/* CEQ of side b: see side_make(). */
enum {
	EQN_B = 1
};

static void test_arm(void **state)
{
	struct stand t;
	uint32_t cqn;
	int i;

	(void)state;
	stand_open(&t);
	drv_connect(&t.a.qp, &t.b.qp);

	/* not armed: no event */
	send_one(&t, false);
	expect(&t.b, WC_RECV, 1, 8);
	assert_int_equal(vm_irqs(&t.vm, EQN_B, 50), 0);

	/* armed: one event for two completions */
	drv_arm_cq(&t.b.cq, false);
	send_one(&t, false);
	send_one(&t, false);
	expect(&t.b, WC_RECV, 1, 8);
	assert_int_equal(vm_irqs(&t.vm, EQN_B, DRV_WAIT_MS), 1);
	assert_true(drv_ceqe(&t.d, EQN_B, &cqn));
	assert_int_equal(cqn, t.b.cq.cqn);
	assert_false(drv_ceqe(&t.d, EQN_B, &cqn));
	drv_arm_ceq(&t.d, EQN_B);

	/* armed with one unread: fires at once */
	drv_arm_cq(&t.b.cq, false);
	assert_int_equal(vm_irqs(&t.vm, EQN_B, DRV_WAIT_MS), 1);
	expect(&t.b, WC_RECV, 1, 8);

	/* the EQ is not armed: the next event is written, its interrupt comes with the doorbell */
	drv_arm_cq(&t.b.cq, false);
	send_one(&t, false);
	expect(&t.b, WC_RECV, 1, 8);
	assert_int_equal(vm_irqs(&t.vm, EQN_B, 50), 0);
	assert_true(drv_ceqe(&t.d, EQN_B, &cqn));
	drv_arm_ceq(&t.d, EQN_B);
	assert_int_equal(vm_irqs(&t.vm, EQN_B, DRV_WAIT_MS), 1);
	assert_true(drv_ceqe(&t.d, EQN_B, &cqn));
	drv_arm_ceq(&t.d, EQN_B);
	assert_int_equal(vm_irqs(&t.vm, EQN_B, 50), 0);

	/* solicited only */
	drv_arm_cq(&t.b.cq, true);
	send_one(&t, false);
	assert_int_equal(vm_irqs(&t.vm, EQN_B, 50), 0);
	send_one(&t, true);
	assert_int_equal(vm_irqs(&t.vm, EQN_B, DRV_WAIT_MS), 1);
	assert_true(drv_ceqe(&t.d, EQN_B, &cqn));
	drv_arm_ceq(&t.d, EQN_B);
	for (i = 0; i < 2; i++)
		expect(&t.b, WC_RECV, 1, 8);
	stand_close(&t);
}

/* More events than the queue has places: none is lost, and the laps of the ring are right. */
static void test_event_ring_wraps(void **state)
{
	const int count = vm_keeps_memory ? 50 : 4500;
	struct stand t;
	uint32_t cqn;
	int i;

	(void)state;
	stand_open(&t);
	drv_connect(&t.a.qp, &t.b.qp);
	t.vm.posted = true;
	for (i = 0; i < count; i++) {
		drv_arm_cq(&t.b.cq, false);
		drv_recv(&t.b.qp, t.b.buf, 64, t.b.key);
		drv_post(&t.a.qp,
			 &(struct drv_wr){
				 .op = WR_SEND, .len = 8, .lkey = t.a.key, .addr = t.a.buf });
		assert_int_equal(vm_irqs(&t.vm, EQN_B, DRV_WAIT_MS), 1);
		assert_true(drv_ceqe(&t.d, EQN_B, &cqn));
		assert_int_equal(cqn, t.b.cq.cqn);
		drv_arm_ceq(&t.d, EQN_B);
		expect(&t.b, WC_RECV, 1, 8);
		expect(&t.a, WR_SEND, 0, 8);
	}
	stand_close(&t);
}

enum mask_way {
	BY_MESSAGE,
	BY_TABLE,
	BY_FUNCTION_MASK,
	UNWIRED,
};

static void set_mask(struct vm *vm, enum mask_way way, bool on)
{
	uint32_t control = on;
	uint16_t flags;

	switch (way) {
	case BY_MESSAGE:
		assert_int_equal(vm_set_irqs(vm, on ? 0x09 : 0x11, 2, EQN_B, 1, NULL, 0), 0);
		break;
	case BY_TABLE:
		vm_write(vm, VM_BAR2, EQN_B * 16 + 12, &control, 4);
		break;
	case BY_FUNCTION_MASK:
		flags = on ? 0xc000 : 0x8000;
		vm_write(vm, VM_CONFIG, 0x42, &flags, 2);
		break;
	case UNWIRED:
		if (on)
			assert_int_equal(vm_set_irqs(vm, 0x24, 2, EQN_B, 1, NULL, 0), 0);
		else
			vm_wire(vm, EQN_B);
	}
}

static void test_masked(void **state)
{
	struct stand t;
	uint32_t cqn;
	uint64_t pba;
	int way;

	(void)state;
	stand_open(&t);
	drv_connect(&t.a.qp, &t.b.qp);
	for (way = BY_MESSAGE; way <= UNWIRED; way++) {
		set_mask(&t.vm, (enum mask_way)way, true);
		drv_arm_cq(&t.b.cq, false);
		send_one(&t, false);
		expect(&t.b, WC_RECV, 1, 8);
		assert_int_equal(vm_irqs(&t.vm, EQN_B, 50), 0);
		vm_read(&t.vm, VM_BAR2, 0x800, &pba, 8);
		assert_int_equal(pba, 1 << EQN_B);
		set_mask(&t.vm, (enum mask_way)way, false);
		assert_int_equal(vm_irqs(&t.vm, EQN_B, DRV_WAIT_MS), 1);
		vm_read(&t.vm, VM_BAR2, 0x800, &pba, 8);
		assert_int_equal(pba, 0);
		assert_true(drv_ceqe(&t.d, EQN_B, &cqn));
		drv_arm_ceq(&t.d, EQN_B);
	}
	stand_close(&t);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_function_61),
		cmocka_unit_test(test_one_function_72),
		cmocka_unit_test(test_two_functions),
		cmocka_unit_test(test_two_processes),
		cmocka_unit_test(test_two_hosts),
		cmocka_unit_test(test_passive_sends_first),
		cmocka_unit_test(test_wrong_peer),
		cmocka_unit_test(test_close),
		cmocka_unit_test(test_access_error),
		cmocka_unit_test(test_kernel_user),
		cmocka_unit_test(test_arm),
		cmocka_unit_test(test_event_ring_wraps),
		cmocka_unit_test(test_masked),
	};

	vm_maps_doorbells = MAPPED;
	vm_keeps_memory = FAR;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
