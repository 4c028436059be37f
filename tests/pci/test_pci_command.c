// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Every command: what it takes, what it refuses, and that nothing is left unanswered.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <unistd.h>

#include "tests/pci/driver.h"

static struct server server;
static struct vm vm;
static struct drv d;

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

static int probe_72(void **state)
{
	(void)state;
	vm_open(&vm, &server, 0);
	drv_probe(&d, &vm, DRV_72);
	return 0;
}

static int probe_61(void **state)
{
	(void)state;
	vm_open(&vm, &server, 0);
	drv_probe(&d, &vm, DRV_61);
	return 0;
}

static int gone(void **state)
{
	(void)state;
	vm_close(&vm);
	return 0;
}

static void p32(uint8_t *p, uint32_t v)
{
	memcpy(p, &v, 4);
}

static void p64(uint8_t *p, uint64_t v)
{
	memcpy(p, &v, 8);
}

/* ------------------------------------------------------------------ unknown ones */

static void test_unknown(void **state)
{
	static const uint8_t defined[4][20] = { { 1, 1, 1, 1, 1, 1, 1, 0, 1, 1 },
						{ 1, 1, 1, 1, 1, 1, 0, 0, 1, 1 } };
	uint8_t body[112] = { 0 };
	unsigned int sub, op;

	(void)state;
	/* with garbage for a body each one fails or does what it says, and all are answered */
	for (sub = 0; sub < 4; sub++) {
		for (op = 0; op < 256; op++) {
			if (op < 20 && defined[sub][op])
				continue;
			assert_int_equal(drv_cmd(&d, (uint8_t)sub, (uint8_t)op, body, 0), 1);
		}
	}
	memset(body, 0xff, sizeof(body));
	for (sub = 0; sub < 2; sub++)
		for (op = 0; op < 20; op++)
			if (!(sub == 0 && op == 0) && !(sub == 1 && op == 2))
				assert_int_equal(drv_cmd(&d, (uint8_t)sub, (uint8_t)op, body, 112),
						 1);
	/* RoCEv2 is not offered */
	assert_int_equal(vm_r32(&vm, 0x0c), 0);
}

/* A header that fits no place: answered with an error, and the queue goes on behind the doorbell. */
static void test_broken_headers(void **state)
{
	uint64_t *header;
	int i;

	(void)state;
	for (i = 0; i < 8; i++) {
		drv_put_cmd(&d, 1, 2, NULL, 0);
		header = vm_at(&vm, d.csq + ((uint16_t)(d.csq_pi - d.slot) & (d.depth - 1)) * 32);
		if (i == 7)
			*header ^= 1; /* the index */
		else
			*header = (*header & ~(7ull << 52)) | (uint64_t)i << 52; /* the size */
		vm_w64(&vm, 0x200, d.csq_pi);
		assert_int_equal(drv_end_cmd(&d), i == (int)d.slot - 1 ? 0 : 1);
	}
	assert_int_equal(drv_cmd(&d, 1, 2, NULL, 0), 0);
	/* several commands with one doorbell */
	for (i = 0; i < 10; i++)
		drv_put_cmd(&d, 1, 2, NULL, 0);
	d.event_driven = false;
	d.csq_pi -= 9 * d.slot;
	vm_w64(&vm, 0x200, (uint16_t)(d.csq_pi + 9 * d.slot));
	for (i = 0; i < 10; i++) {
		assert_int_equal(drv_end_cmd(&d), 0);
		d.csq_pi += d.slot;
	}
}

/* An index that is more than the queue ahead: the queue is dead, until it is reset. */
static void test_bad_doorbell(void **state)
{
	(void)state;
	vm_w64(&vm, 0x200, (uint16_t)(d.csq_pi + d.depth + 1));
	drv_put_cmd(&d, 1, 2, NULL, 0);
	vm_w64(&vm, 0x200, d.csq_pi);
	assert_int_equal(vm_irqs(&vm, 0, 50), 0);
	drv_reset(&d);
	vm.used = 0;
	drv_probe(&d, &vm, DRV_61);
}

/* The driver wakes its waiter before it arms: the next command is there before the late doorbells. */
static void test_late_arm(void **state)
{
	uint32_t late = d.ccq_ci;
	int i;

	(void)state;
	for (i = 0; i < 5; i++) {
		d.event_driven = false;
		/* uses the arm that is there */
		assert_int_equal(drv_cmd(&d, 1, 2, NULL, 0), 0);
		assert_int_equal(vm_irqs(&vm, 0, DRV_WAIT_MS), 1);
		d.cmdsn++;
		d.ceq0_ci++;
		late = d.ccq_ci;
		assert_int_equal(drv_cmd(&d, 1, 2, NULL, 0), 0); /* not armed: silent */
		assert_int_equal(vm_irqs(&vm, 0, 10), 0);
		vm_w64(&vm, 0x300, 1ull << 31 | late); /* one behind: an event at once */
		vm_w64(&vm, 0x100, 1ull << 31 | (d.ceq0_ci & 0xffff));
		assert_int_equal(vm_irqs(&vm, 0, DRV_WAIT_MS), 1);
		d.cmdsn++;
		d.ceq0_ci++;
		vm_w64(&vm, 0x300, 1ull << 31 | d.ccq_ci);
		vm_w64(&vm, 0x100, 1ull << 31 | (d.ceq0_ci & 0xffff));
		vm_w64(&vm, 0x50, 1ull << 31);
		assert_int_equal(vm_irqs(&vm, 0, 10), 0);
	}
}

/* ------------------------------------------------------------------ event queues */

static uint8_t eq_cmd(uint8_t op, uint64_t addr, uint8_t vector, uint8_t eqn, uint8_t depth,
		      uint8_t type)
{
	uint8_t body[24] = { 0 };

	p64(body, addr);
	body[8] = vector;
	body[9] = eqn;
	body[10] = depth;
	body[11] = type;
	return drv_cmd(&d, 1, op, body, op ? 16 : 24);
}

static void test_event_queues(void **state)
{
	uint64_t ring = vm_alloc(&vm, 65536);

	(void)state;
	assert_int_equal(eq_cmd(0, ring, 9, 9, 12, 1), 0);
	assert_int_equal(eq_cmd(0, ring, 9, 9, 12, 1), 1); /* is there */
	assert_int_equal(eq_cmd(1, 0, 9, 9, 0, 1), 0);
	assert_int_equal(eq_cmd(1, 0, 9, 9, 0, 1), 1);
	assert_int_equal(eq_cmd(0, ring, 9, 9, 12, 1), 0); /* again */
	assert_int_equal(eq_cmd(1, 0, 9, 9, 0, 1), 0);
	assert_int_equal(eq_cmd(0, ring, 0, 0, 12, 1), 1); /* the command EQ */
	assert_int_equal(eq_cmd(0, ring, 32, 10, 12, 1), 1);
	assert_int_equal(eq_cmd(0, ring, 10, 32, 12, 1), 1);
	assert_int_equal(eq_cmd(0, ring, 10, 10, 0, 1), 1);
	assert_int_equal(eq_cmd(0, ring, 10, 10, 16, 1), 1);
	assert_int_equal(eq_cmd(0, ring, 10, 10, 255, 1), 1);
	assert_int_equal(eq_cmd(0, ring + 1, 10, 10, 12, 1), 1);
	assert_int_equal(eq_cmd(0, ring, 10, 10, 12, 0), 1); /* an AEQ */
	/* a doorbell for one that is not there */
	vm_w64(&vm, 0x100 + 8 * 10, 1ull << 31 | 5);
}

/* ------------------------------------------------------------------ CQs and QPs */

struct cq_cmd {
	uint32_t cfg0;
	uint64_t addr;
	uint32_t cfg1, first, cfg2;
};

static uint8_t create_cq(const struct cq_cmd *c)
{
	uint8_t body[32] = { 0 };

	p32(body, c->cfg0);
	p32(body + 4, (uint32_t)c->addr);
	p32(body + 8, (uint32_t)(c->addr >> 32));
	p32(body + 12, c->cfg1);
	p32(body + 24, c->first);
	p32(body + 28, c->cfg2);
	return drv_cmd(&d, 0, 4, body, sizeof(body));
}

static void test_cq(void **state)
{
	struct cq_cmd good = { 6 << 24 | 5, vm_alloc(&vm, 4096), 1 << 16 | 1, 0, 0 }, c;
	uint8_t body[8] = { 5 };
	struct drv_cq cq;
	struct drv_qp qp;

	(void)state;
	assert_int_equal(create_cq(&good), 0);
	assert_int_equal(create_cq(&good), 1);
	assert_int_equal(drv_cmd(&d, 0, 5, body, 8), 0);
	assert_int_equal(drv_cmd(&d, 0, 5, body, 8), 1);
#define REFUSED(field, value)                       \
	do {                                        \
		c = good;                           \
		c.field = value;                    \
		assert_int_equal(create_cq(&c), 1); \
	} while (0)
	REFUSED(cfg0, 6 << 24);			 /* number 0 */
	REFUSED(cfg0, 6 << 24 | 8192);		 /* number out of range */
	REFUSED(cfg0, 21u << 24 | 13 << 20 | 5); /* too deep */
	REFUSED(cfg0, 255u << 24 | 5);
	REFUSED(cfg0, 8 << 24 | 5); /* buffer of one page, ring of two */
	REFUSED(first, 4096 - 32);  /* the same by offset */
	REFUSED(first, 8);	    /* entries not aligned */
	REFUSED(first, 0xffffffe0);
	REFUSED(cfg1, 1);	    /* no page */
	REFUSED(cfg1, 2 << 16 | 1); /* two pages without an array */
	REFUSED(cfg1, 1 << 16);	    /* no EQ */
	REFUSED(cfg1, 1 << 16 | 9); /* an EQ that is not there */
	REFUSED(cfg1, 1 << 16 | 0x3ff);
	REFUSED(cfg1, 1 << 16 | 1 << 11 | 1); /* doorbell page of nobody */
	c = good;
	c.cfg1 |= 1 << 11;
	c.cfg2 = d.rdb; /* not the page of CQs */
	assert_int_equal(create_cq(&c), 1);
	c.cfg2 = d.cdb;
	assert_int_equal(create_cq(&c), 0);
	assert_int_equal(drv_cmd(&d, 0, 5, body, 8), 0);
#undef REFUSED
	/* a kernel's ring is not aligned to the page size it names */
	c = good;
	c.cfg0 |= 13 << 20;
	assert_int_equal(create_cq(&c), 0);
	assert_int_equal(drv_cmd(&d, 0, 5, body, 8), 0);
	/* not while a QP uses it */
	assert_int_equal(drv_create_cq(&d, &cq, 6, 6, 1, true), 0);
	assert_int_equal(drv_create_qp(&d, &qp, 9, 1, &cq, &cq, true), 0);
	assert_int_equal(drv_destroy_cq(&cq), 1);
	assert_int_equal(drv_destroy_qp(&qp), 0);
	assert_int_equal(drv_destroy_cq(&cq), 0);
}

static void test_qp(void **state)
{
	struct drv_end end = { 1, 2, 3, 4, 5, 6 };
	struct drv_cq cq, none = { .cqn = 77 };
	struct drv_qp qp, other;
	uint8_t body[16] = { 0 };
	uint32_t cookie;

	(void)state;
	assert_int_equal(drv_create_cq(&d, &cq, 1, 6, 1, true), 0);
	assert_int_equal(drv_create_qp(&d, &qp, 1, 1, &cq, &cq, true), 0);
	cookie = qp.cookie;
	assert_int_equal(drv_create_qp(&d, &other, 1, 1, &cq, &cq, true), 1);
	assert_int_equal(drv_create_qp(&d, &other, 0, 1, &cq, &cq, true), 1);
	assert_int_equal(drv_create_qp(&d, &other, 4096, 1, &cq, &cq, true), 1);
	assert_int_equal(drv_create_qp(&d, &other, 2, 1, &none, &cq, true), 1);
	assert_int_equal(drv_create_qp(&d, &other, 2, 1, &cq, &none, true), 1);
	/* states */
	assert_int_equal(drv_modify_qp(&qp, 0), 1);
	assert_int_equal(drv_modify_qp(&qp, 1), 1);
	assert_int_equal(drv_modify_qp(&qp, 6), 1);
	assert_int_equal(drv_modify_qp(&qp, 255), 1);
	assert_int_equal(drv_modify_qp(&qp, 5), 0); /* an error on an idle one */
	assert_int_equal(drv_modify_qp(&qp, 5), 0);
	assert_int_equal(drv_modify_qp(&qp, 3), 0);
	assert_int_equal(drv_rts(&qp, 1, &end), 1);
	other.qpn = 4000;
	other.d = &d;
	assert_int_equal(drv_modify_qp(&other, 5), 1);
	other.qpn = 0xfffff;
	assert_int_equal(drv_modify_qp(&other, 5), 1);
	assert_int_equal(drv_rts(&other, 1, &end), 1);
	/* REFLUSH: idempotent, only for one that has stopped */
	p32(body, 1);
	assert_int_equal(drv_cmd(&d, 0, 6, body, 16), 0);
	assert_int_equal(drv_cmd(&d, 0, 6, body, 16), 0);
	p32(body, 2);
	assert_int_equal(drv_cmd(&d, 0, 6, body, 16), 1);
	assert_int_equal(drv_destroy_qp(&qp), 0);
	assert_int_equal(drv_destroy_qp(&qp), 1);
	/* the number again, another cookie */
	assert_int_equal(drv_create_qp(&d, &qp, 1, 1, &cq, &cq, true), 0);
	assert_int_not_equal(qp.cookie, cookie);
	/* destroyed while it looks for its peer */
	assert_int_equal(drv_rts(&qp, 1, &end), 0);
	assert_int_equal(drv_destroy_qp(&qp), 0);
	assert_int_equal(drv_destroy_cq(&cq), 0);
}

/* A kernel QP gets REFLUSH: what its doorbell did not name is flushed, once. */
static void test_reflush(void **state)
{
	struct drv_cq cq;
	struct drv_qp qp;
	struct drv_wc wc;
	uint8_t body[16] = { 0 };
	int i;

	(void)state;
	assert_int_equal(drv_create_cq(&d, &cq, 1, 6, 1, false), 0);
	assert_int_equal(drv_create_qp(&d, &qp, 1, 1, &cq, &cq, false), 0);
	assert_int_equal(drv_modify_qp(&qp, 5), 0);
	drv_post(&qp, &(struct drv_wr){ .op = WR_SEND, .no_bell = true });
	drv_post(&qp, &(struct drv_wr){ .op = WR_SEND, .no_bell = true });
	assert_false(drv_poll(&cq, &wc, 20));
	p32(body, 1);
	p32(body + 4, qp.sq_pi);
	for (i = 0; i < 2; i++)
		assert_int_equal(drv_cmd(&d, 0, 6, body, 16), 0);
	for (i = 0; i < 2; i++) {
		assert_true(drv_poll(&cq, &wc, DRV_WAIT_MS));
		assert_int_equal(wc.syndrome, 15);
		assert_int_equal(wc.index, i);
	}
	assert_false(drv_poll(&cq, &wc, 20));
	assert_int_equal(drv_destroy_qp(&qp), 0);
	assert_int_equal(drv_destroy_cq(&cq), 0);
}

/* ------------------------------------------------------------------ regions */

struct mr_cmd {
	uint32_t cfg0, cfg1;
	uint64_t start;
	uint32_t size, cfg2;
	uint64_t addr[4];
};

static uint8_t reg_mr(const struct mr_cmd *m)
{
	uint8_t body[56] = { 0 };

	p32(body, m->cfg0);
	p32(body + 4, m->cfg1);
	p64(body + 8, m->start);
	p32(body + 16, m->size);
	p32(body + 20, m->cfg2);
	memcpy(body + 24, m->addr, 32);
	return drv_cmd(&d, 0, 8, body, sizeof(body));
}

static void test_mr(void **state)
{
	struct mr_cmd good = { 1u << 31 | 1, 1 << 12 | DRV_ALL, 0x7000,
			       4096,	     12u << 27 | 1,	{ vm_alloc(&vm, 4096) } };
	struct mr_cmd m;

	(void)state;
	assert_int_equal(reg_mr(&good), 0);
	assert_int_equal(reg_mr(&good), 1);
	assert_int_equal(drv_dereg_mr(&d, 0x100), 0);
	assert_int_equal(drv_dereg_mr(&d, 0x100), 1);
	assert_int_equal(drv_dereg_mr(&d, 0xfffff00), 1);
#define REFUSED(field, value)                    \
	do {                                     \
		m = good;                        \
		m.field = value;                 \
		assert_int_equal(reg_mr(&m), 1); \
	} while (0)
	REFUSED(cfg0, 1u << 31 | 8192);
	REFUSED(cfg0, 1u << 31 | 0xfffff);
	REFUSED(cfg0, 1u << 31 | 2 << 28 | 1);	   /* a version of the future */
	REFUSED(cfg1, 1 << 12 | 3 << 6 | DRV_ALL); /* no such type */
	REFUSED(size, 4097);			   /* more than the pages have */
	REFUSED(start, 0x7001);
	REFUSED(cfg2, 11u << 27 | 1); /* page sizes */
	REFUSED(cfg2, 31u << 27 | 1);
	REFUSED(cfg2, 12u << 27 | 5); /* five pages in four places */
	REFUSED(cfg2, 12u << 27);
	m = good;
	m.start = UINT64_MAX - 2047;
	assert_int_equal(reg_mr(&m), 1); /* wraps */
	/* version 1: lengths of 64 bits; the tree node size of this host only */
	m = good;
	m.cfg0 |= 1 << 28;
	m.cfg2 = 12u << 27 | 1 << 24 | 1;
	assert_int_equal(reg_mr(&m), 1);
	m.cfg2 = 12u << 27 | 2 << 20 | 0; /* 2^20 pages, by the high word */
	m.addr[1] = 1 | 1ull << 32;
	assert_int_equal(reg_mr(&m), 1); /* more than a tree of two levels has */
	m.cfg2 = 12u << 27 | 3 << 20;
	m.size = 0;
	assert_int_equal(reg_mr(&m), 0);
	assert_int_equal(drv_dereg_mr(&d, 0x100), 0);
	m.addr[1] = 2 | 1ull << 32;
	assert_int_equal(reg_mr(&m), 1); /* longer than its pages */
#undef REFUSED
	/* eight pages of 1 GiB: the low half of the length is 0 */
	m = good;
	m.size = 0;
	m.start = 0;
	m.cfg2 = 30u << 27 | 1 << 20 | 8;
	assert_int_equal(reg_mr(&m), 0);
	assert_int_equal(drv_dereg_mr(&d, 0x100), 0);
	/* kernel kinds: fast registration, all of memory */
	m = good;
	m.cfg0 = 1;
	m.cfg1 = 1 << 12 | 1 << 6 | DRV_ALL;
	m.cfg2 = 12u << 27 | 1 << 20 | 512;
	assert_int_equal(reg_mr(&m), 0);
	assert_int_equal(drv_dereg_mr(&d, 0x155), 0); /* by index, whatever the key */
	m.cfg1 = 1 << 12 | 2 << 6 | DRV_ALL;
	m.cfg2 = 31u << 27;
	assert_int_equal(reg_mr(&m), 0);
	assert_int_equal(drv_dereg_mr(&d, 0x100), 0);
}

/* ------------------------------------------------------------------ the rest */

static void test_configuration(void **state)
{
	uint8_t body[24] = { 0 };
	uint64_t addr;

	(void)state;
	p32(body, 1500);
	assert_int_equal(drv_cmd(&d, 1, 3, body, 8), 0);
	p32(body, 0);
	assert_int_equal(drv_cmd(&d, 1, 3, body, 8), 1);
	p32(body, 0x8000000c);
	assert_int_equal(drv_cmd(&d, 1, 5, body, 24), 0);
	p32(body, 0x80000010); /* pages of 64 KiB */
	assert_int_equal(drv_cmd(&d, 1, 5, body, 24), 1);
	/* statistics to nowhere, and to too little room */
	addr = 0x1000;
	memset(body, 0, sizeof(body));
	p64(body + 8, addr);
	p32(body + 16, 256);
	assert_int_equal(drv_cmd(&d, 1, 4, body, 24), 1);
	p64(body + 8, vm_alloc(&vm, 4096));
	p32(body + 16, 8);
	assert_int_equal(drv_cmd(&d, 1, 4, body, 24), 1);
}

static void test_doorbell_pages(void **state)
{
	uint16_t pages[600][3];
	uint8_t body[24] = { 0 };
	uint32_t n, i, j;

	(void)state;
	p32(body, 3);
	assert_int_equal(drv_cmd(&d, 1, 8, body, 24), 1);
	for (n = 0; n < 600; n++) {
		memset(body, 0, sizeof(body));
		p32(body, 7);
		if (drv_cmd(&d, 1, 8, body, 24))
			break;
		pages[n][0] = d.resp[0] & 0xffff;
		pages[n][1] = d.resp[0] >> 32 & 0xffff;
		pages[n][2] = d.resp[0] >> 48 & 0xffff;
		for (i = 0; i < 3; i++) {
			assert_true(pages[n][i] > 121 && pages[n][i] < (8 << 20) / 4096);
			for (j = 0; j < 3 * n; j++)
				assert_int_not_equal(pages[n][i], pages[j / 3][j % 3]);
		}
	}
	assert_int_equal(n, 511); /* and one that the probe has */
	for (i = 0; i < n; i++) {
		memset(body, 0, sizeof(body));
		p32(body, 7);
		memcpy(body + 4, &pages[i][2], 2);
		memcpy(body + 6, &pages[i][0], 2);
		memcpy(body + 10, &pages[i][1], 2);
		assert_int_equal(drv_cmd(&d, 1, 9, body, 24), 0);
		assert_int_equal(drv_cmd(&d, 1, 9, body, 24), 1);
	}
}

/* Who may ring for whom: only on the pages of the context that made the queue. */
static void test_doorbell_owner(void **state)
{
	struct drv_cq cq;
	struct drv_qp qp;
	struct drv_wc wc;
	uint32_t page, cqn, hits = 0, last = 0;

	(void)state;
	assert_int_equal(drv_create_cq(&d, &cq, 1, 6, 1, true), 0);
	assert_int_equal(drv_create_qp(&d, &qp, 1, 1, &cq, &cq, true), 0);
	/* a doorbell of a stopped QP is answered with a flush */
	assert_int_equal(drv_modify_qp(&qp, 5), 0);
	for (page = 0; page < (8 << 20) / 4096; page++) {
		qp.sq_pi++;
		if (page) /* page 0 has registers there */
			vm_w64(&vm, (uint64_t)page << 12 | 0x800, 1ull << 32 | qp.sq_pi);
		if (!drv_poll(&cq, &wc, 0)) {
			qp.sq_pi--;
			continue;
		}
		assert_int_equal(wc.syndrome, 15);
		/* on the SQ page a block of the send queue, on the other one an RQE */
		assert_int_equal(page, wc.qtype ? d.cdb : d.sdb);
		hits++;
		while (drv_poll(&cq, &wc, 0)) /* the index is ahead of the other queue */
			;
	}
	assert_int_equal(hits, 2);
	cq.ci -= 1; /* one is left unread: an arm fires at once */
	for (page = 1; page < (8 << 20) / 4096; page++) {
		vm_w64(&vm, (uint64_t)page << 12 | 8, 1ull << 32 | 1ull << 31 | cq.ci);
		if (drv_ceqe(&d, 1, &cqn)) {
			last = page;
			hits++;
		}
	}
	assert_int_equal(hits, 3);
	assert_int_equal(last, d.rdb);
}

/* Registers: only what is one can be written, in the sizes it has. */
static void test_registers(void **state)
{
	uint8_t bytes[16];
	uint32_t off;

	(void)state;
	for (off = 0; off < 0x20; off += 4)
		if (off != 0x10)
			vm_w32(&vm, off, 0xffffffff);
	assert_int_not_equal(vm_r32(&vm, 0), 0xffffffff);
	assert_int_equal(vm_r32(&vm, 0x0c), 0);
	assert_int_equal(vm_r32(&vm, 0x4c), 0);
	assert_int_equal(vm_r32(&vm, 0x14) & 2, 2);
	/* halves, odd places and sizes of nothing do nothing */
	memset(bytes, 0xff, sizeof(bytes));
	vm_write(&vm, VM_BAR0, 0x10, bytes, 1);
	vm_write(&vm, VM_BAR0, 0x10, bytes, 16);
	vm_write(&vm, VM_BAR0, 0x0e, bytes, 4);
	vm_write(&vm, VM_BAR0, 0x200, bytes, 4);
	vm_write(&vm, VM_BAR0, 0xffc, bytes, 8);
	assert_int_equal(vm_r32(&vm, 0x14) & 2, 2);
	assert_int_equal(drv_cmd(&d, 1, 2, NULL, 0), 0);
	vm_read(&vm, VM_BAR0, 0x18, bytes, 8);
	assert_int_equal(bytes[0], 0x56);
	assert_int_equal(bytes[5], 0x52);
	vm_read(&vm, VM_BAR0, 0xff8, bytes, 16);
}

/* INIT with registers that make no queue: no INIT_DONE, no crash. */
static void test_bad_init(void **state)
{
	static const uint32_t depths[] = { 0, 1, 4, 255, 65536, 0xffffffff };
	size_t i;

	(void)state;
	drv_reset(&d);
	for (i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
		vm_w32(&vm, 0x48, 4096);
		vm_w32(&vm, 0x34, 128);
		vm_w32(&vm, 0x30, depths[i]);
		vm_w32(&vm, 0x10, 2);
		assert_int_equal(vm_r32(&vm, 0x14) & 2, 0);
		vm_w32(&vm, 0x30, 256);
		vm_w32(&vm, 0x34, depths[i] == 4 ? 0 : depths[i]);
		vm_w32(&vm, 0x10, 2);
		assert_int_equal(vm_r32(&vm, 0x14) & 2, 0);
	}
	vm_w32(&vm, 0x10, 3);
	vm.used = 0;
	drv_probe(&d, &vm, DRV_72);
}

int main(void)
{
#define ON_72(test) cmocka_unit_test_setup_teardown(test, probe_72, gone)
#define ON_61(test) cmocka_unit_test_setup_teardown(test, probe_61, gone)
	static const struct CMUnitTest tests[] = {
		ON_72(test_unknown),
		ON_72(test_broken_headers),
		ON_61(test_broken_headers),
		ON_61(test_bad_doorbell),
		ON_61(test_late_arm),
		ON_72(test_event_queues),
		ON_72(test_cq),
		ON_72(test_qp),
		ON_61(test_qp),
		ON_72(test_reflush),
		ON_72(test_mr),
		ON_72(test_configuration),
		ON_72(test_doorbell_pages),
		ON_72(test_doorbell_owner),
		ON_72(test_registers),
		ON_72(test_bad_init),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
