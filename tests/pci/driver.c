// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <arpa/inet.h>
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/pci/driver.h"

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void p32(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, 4);
}

static void p64(uint8_t *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, 8);
}

static uint32_t b32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, 4);
	return be32toh(v);
}

static uint64_t load64(const uint8_t *p)
{
	return le64toh(__atomic_load_n((const uint64_t *)(const void *)p, __ATOMIC_ACQUIRE));
}

/* The record, then the page. */
static void ring(struct vm *vm, uint64_t record, uint64_t at, uint64_t value)
{
	__atomic_store_n((uint64_t *)vm_at(vm, record), htole64(value), __ATOMIC_RELEASE);
	vm_w64(vm, at, value);
}

static bool owned(uint32_t owner, uint32_t ci, uint32_t depth)
{
	return owner ^ ((ci & depth) != 0);
}

/* ------------------------------------------------------------------ commands */

void drv_put_cmd(struct drv *d, uint8_t sub, uint8_t op, const void *body, size_t len)
{
	uint8_t slot[128];
	uint64_t header;
	uint32_t i, start = d->csq_pi;

	assert_true(8 + len <= d->slot * 32);
	memset(slot, 0xa5, sizeof(slot)); /* what older commands left */
	d->csq_pi += d->slot;
	header = (uint64_t)(d->slot - 1) << 52 | (uint64_t)sub << 24 | (uint64_t)op << 16 |
		 d->csq_pi;
	p64(slot, header);
	if (len)
		memcpy(slot + 8, body, len);
	for (i = 0; i < d->slot; i++)
		memcpy(vm_at(d->vm, d->csq + ((start + i) & (d->depth - 1)) * 32), slot + i * 32,
		       32);
}

static void serve_vector0(struct drv *d)
{
	const uint8_t *eqe;

	for (;;) {
		eqe = vm_at(d->vm, d->ceq0 + (d->ceq0_ci & 127) * 16);
		if (!owned(load64(eqe) >> 31 & 1, d->ceq0_ci, 128))
			break;
		d->ceq0_ci++;
		d->cmdsn++;
	}
}

uint8_t drv_end_cmd(struct drv *d)
{
	uint8_t *cqe = vm_at(d->vm, d->ccq + (d->ccq_ci & (d->depth - 1)) * 32);
	uint64_t end = now_ms() + DRV_WAIT_MS;
	uint32_t header;
	uint8_t syndrome;

	for (;;) {
		header = be32toh(__atomic_load_n((uint32_t *)(void *)cqe, __ATOMIC_ACQUIRE));
		if (owned(header >> 31, d->ccq_ci, d->depth))
			break;
		if (now_ms() > end)
			fail_msg("command not answered");
		vm_idle(d->vm, 100);
	}
	if (d->event_driven)
		assert_true(vm_irqs(d->vm, 0, DRV_WAIT_MS) > 0);
	syndrome = header & 0xff;
	assert_int_equal(header >> 8 & 0xff, 2);
	d->index = (uint16_t)b32(cqe + 4);
	assert_int_equal(d->index, (uint16_t)(d->csq_pi - d->slot));
	d->resp[0] = b32(cqe + 8) | (uint64_t)b32(cqe + 12) << 32;
	d->resp[1] = b32(cqe + 16) | (uint64_t)b32(cqe + 20) << 32;
	d->ccq_ci++;
	if (d->event_driven) {
		serve_vector0(d);
		vm_w64(d->vm, 0x300,
		       (uint64_t)(d->cmdsn & 0xff) << 56 | 1ull << 31 |
			       (uint64_t)(d->cmdsn & 3) << 28 | (d->ccq_ci & 0xffffff));
		vm_w64(d->vm, 0x100, 1ull << 31 | (d->ceq0_ci & 0xffff));
		vm_w64(d->vm, 0x50, 1ull << 31 | d->aeq_ci);
	}
	return syndrome;
}

uint8_t drv_cmd(struct drv *d, uint8_t sub, uint8_t op, const void *body, size_t len)
{
	drv_put_cmd(d, sub, op, body, len);
	vm_w64(d->vm, 0x200, d->csq_pi);
	return drv_end_cmd(d);
}

/* ------------------------------------------------------------------ start */

static void write_addr(struct vm *vm, uint32_t high, uint32_t low, uint64_t addr)
{
	vm_w32(vm, high, (uint32_t)(addr >> 32));
	vm_w32(vm, low, (uint32_t)addr);
}

bool drv_init(struct drv *d, struct vm *vm, enum drv_kind kind)
{
	int i;

	memset(d, 0, sizeof(*d));
	d->vm = vm;
	d->kind = kind;
	d->depth = kind == DRV_61 ? 256 : 512;
	d->slot = kind == DRV_61 ? 2 : 4;
	d->aeq = vm_alloc(vm, 65536 + 8);
	d->csq = vm_alloc(vm, d->depth * 32 + 8);
	d->ccq = vm_alloc(vm, d->depth * 32 + 8);
	d->ceq0 = vm_alloc(vm, 2048 + 8);

	write_addr(vm, 0x44, 0x40, d->aeq);
	vm_w32(vm, 0x48, 4096);
	vm_w64(vm, 0x78, d->aeq + 65536);
	write_addr(vm, 0x24, 0x20, d->csq);
	vm_w32(vm, 0x30, d->depth);
	vm_w64(vm, 0x60, d->csq + d->depth * 32);
	write_addr(vm, 0x2c, 0x28, d->ccq);
	vm_w64(vm, 0x68, d->ccq + d->depth * 32);
	write_addr(vm, 0x3c, 0x38, d->ceq0);
	vm_w32(vm, 0x34, 128);
	vm_w64(vm, 0x70, d->ceq0 + 2048);
	vm_w32(vm, 0x10, 2);
	for (i = 0; i < 5; i++) {
		if (vm_r32(vm, 0x14) & 2)
			return true;
		usleep(1000);
	}
	return false;
}

void drv_probe(struct drv *d, struct vm *vm, enum drv_kind kind)
{
	uint8_t body[120] = { 0 };
	unsigned int n;

	assert_int_not_equal(vm_r32(vm, 0), 0);
	vm_r32(vm, kind == DRV_61 ? 0x4c : 0x0c);
	vm_wire(vm, 0);
	assert_true(drv_init(d, vm, kind));
	/* of a life before this one */
	for (n = 0; n <= DRV_CEQS; n++)
		if (vm->event[n] >= 0)
			vm_irqs(vm, n, 0);
	for (n = 1; n <= DRV_CEQS; n++) {
		d->ceq[n] = vm_alloc(vm, 65536);
		memset(body, 0, sizeof(body));
		p64(body, d->ceq[n]);
		body[8] = (uint8_t)n;
		body[9] = (uint8_t)n;
		body[10] = 12;
		body[11] = 1;
		memset(body + 20, 0xa5, 4);
		assert_int_equal(drv_cmd(d, 1, 0, body, 24), 0);
		vm_wire(vm, n);
	}
	/* commands that were polled for raise nothing */
	assert_int_equal(vm_irqs(vm, 0, 0), 0);
	vm_w64(vm, 0x300, 1ull << 31 | d->ccq_ci);
	d->event_driven = true;
	assert_int_equal(drv_cmd(d, 0, 0, body, 0), 0);
	assert_int_equal(drv_cmd(d, 1, 2, body, 0), 0);
	if (kind == DRV_61)
		return;
	memset(body, 0, sizeof(body));
	p32(body, 0x8000000c);
	assert_int_equal(drv_cmd(d, 1, 5, body, 24), 0);
	p32(body, 7);
	assert_int_equal(drv_cmd(d, 1, 8, body, 24), 0);
	d->sdb = d->resp[0] & 0xffff;
	d->cdb = d->resp[0] >> 32 & 0xffff;
	d->rdb = d->resp[0] >> 48 & 0xffff;
}

void drv_reset(struct drv *d)
{
	vm_w32(d->vm, 0x10, 1);
}

/* ------------------------------------------------------------------ events */

bool drv_aeqe(struct drv *d, uint8_t *type, uint32_t *number)
{
	uint64_t word = load64(vm_at(d->vm, d->aeq + (d->aeq_ci & 4095) * 16));

	if (!owned(word >> 31 & 1, d->aeq_ci, 4096))
		return false;
	*type = word >> 16 & 0xff;
	*number = (uint32_t)(word >> 32);
	d->aeq_ci++;
	vm_w64(d->vm, 0x50, 1ull << 31 | d->aeq_ci);
	return true;
}

bool drv_ceqe(struct drv *d, unsigned int eqn, uint32_t *cqn)
{
	uint64_t word = load64(vm_at(d->vm, d->ceq[eqn] + (d->ceq_ci[eqn] & 4095) * 16));

	if (!owned(word >> 31 & 1, d->ceq_ci[eqn], 4096))
		return false;
	*cqn = word & 0xfffff;
	d->ceq_ci[eqn]++;
	return true;
}

void drv_arm_ceq(struct drv *d, unsigned int eqn)
{
	vm_w64(d->vm, 0x100 + 8 * eqn, 1ull << 31 | d->ceq_ci[eqn]);
}

/* ------------------------------------------------------------------ completion queues */

uint8_t drv_create_cq(struct drv *d, struct drv_cq *cq, uint32_t cqn, uint8_t shift, uint32_t eqn,
		      bool user)
{
	uint8_t body[32] = { 0 };
	size_t bytes = (size_t)32 << shift;
	uint32_t pages = (uint32_t)((bytes + 4095) / 4096);
	uint64_t addr, list;
	uint32_t i, cfg1;

	memset(cq, 0, sizeof(*cq));
	cq->d = d;
	cq->cqn = cqn;
	cq->shift = shift;
	cq->user = user;
	cq->ring = vm_alloc(d->vm, bytes);
	addr = cq->ring;
	if (!user) {
		p32(body, (uint32_t)shift << 24 | 13u << 20 | cqn);
		cfg1 = 1u << 16 | eqn;
	} else {
		p32(body, (uint32_t)shift << 24 | cqn);
		cfg1 = pages << 16 | eqn;
		if (pages > 1 || d->kind == DRV_61)
			cfg1 |= 1u << 15;
		if (d->sdb)
			cfg1 |= 1u << 11;
		if (pages > 1) {
			list = vm_alloc(d->vm, pages * 8);
			for (i = 0; i < pages; i++)
				p64((uint8_t *)vm_at(d->vm, list) + i * 8,
				    addr + (uint64_t)i * 4096);
			addr = list;
		}
	}
	p32(body + 4, (uint32_t)addr);
	p32(body + 8, (uint32_t)(addr >> 32));
	p32(body + 12, cfg1);
	cq->record = vm_alloc(d->vm, 8);
	p64(body + 16, cq->record);
	p32(body + 28, user && d->sdb ? d->cdb : 0xa5a5a5a5);
	return drv_cmd(d, 0, 4, body, sizeof(body));
}

uint8_t drv_destroy_cq(struct drv_cq *cq)
{
	uint8_t body[8] = { 0 };

	p32(body, cq->cqn);
	return drv_cmd(cq->d, 0, 5, body, sizeof(body));
}

void drv_arm_cq(struct drv_cq *cq, bool solicited)
{
	uint64_t value = (uint64_t)(cq->arms & 0xff) << 56 | (uint64_t)cq->cqn << 32 | 1ull << 31 |
			 (uint64_t)solicited << 30 | (uint64_t)(cq->events & 3) << 28 |
			 (cq->ci & 0xffffff);
	uint64_t page = DRV_DB_CQ_KERNEL, off = 0;

	cq->arms++;
	if (cq->user) {
		/* the page that was called RDB: the driver maps them crosswise */
		if (cq->d->sdb)
			page = (uint64_t)cq->d->rdb << 12;
		off = (cq->cqn & 511) * 8;
	}
	ring(cq->d->vm, cq->record, page + off, value);
}

bool drv_poll(struct drv_cq *cq, struct drv_wc *wc, int ms)
{
	const uint8_t *cqe = vm_at(cq->d->vm, cq->ring + (cq->ci & ((1u << cq->shift) - 1)) * 32);
	uint64_t end = now_ms() + (uint64_t)ms;
	uint32_t header;

	for (;;) {
		header = be32toh(
			__atomic_load_n((const uint32_t *)(const void *)cqe, __ATOMIC_ACQUIRE));
		if (owned(header >> 31, cq->ci, 1u << cq->shift))
			break;
		if (now_ms() >= end)
			return false;
		vm_idle(cq->d->vm, 50);
	}
	wc->opcode = header >> 16 & 0xff;
	wc->qtype = header >> 8 & 0xff;
	wc->syndrome = header & 0xff;
	wc->index = b32(cqe + 4);
	wc->qpn = b32(cqe + 8);
	memcpy(&wc->extra, cqe + 12, 4);
	wc->size = b32(cqe + 16);
	cq->ci++;
	return true;
}

/* ------------------------------------------------------------------ queue pairs */

/* Page entries of a ring: @inline_max of them go in the command. */
static uint32_t put_pages(struct drv *d, uint8_t *body, uint64_t ring, size_t bytes, uint32_t first,
			  uint32_t more)
{
	uint32_t i, pages = (uint32_t)((bytes + 4095) / 4096);
	uint64_t list;

	if (d->kind == DRV_72 && pages <= 4) {
		p64(body + first, ring);
		for (i = 1; i < pages; i++)
			p64(body + more + (i - 1) * 8, ring + (uint64_t)i * 4096);
		return pages << 1;
	}
	list = vm_alloc(d->vm, pages * 8);
	for (i = 0; i < pages; i++)
		p64((uint8_t *)vm_at(d->vm, list) + i * 8, ring + (uint64_t)i * 4096);
	p64(body + first, list);
	return pages << 1 | 1;
}

uint8_t drv_create_qp(struct drv *d, struct drv_qp *qp, uint32_t qpn, uint32_t pd,
		      const struct drv_cq *scq, const struct drv_cq *rcq, bool user)
{
	uint8_t body[112] = { 0 };
	uint32_t db = user && d->sdb ? 1u << 25 : 0, page = user ? 0 : 8;
	uint32_t sq_mtt = 1 << 1, rq_mtt = 1 << 1;
	uint8_t syndrome;

	memset(qp, 0, sizeof(*qp));
	qp->d = d;
	qp->qpn = qpn;
	qp->user = user;
	qp->sq_shift = 9;
	qp->rq_shift = 6;
	qp->sq = vm_alloc(d->vm, (size_t)32 << qp->sq_shift);
	qp->rq = vm_alloc(d->vm, (size_t)32 << qp->rq_shift);
	p32(body, (uint32_t)qp->sq_shift << 20 | qpn);
	p32(body + 4, (uint32_t)qp->rq_shift << 20 | pd);
	p32(body + 8, page << 28 | db | scq->cqn);
	p32(body + 12, page << 28 | rcq->cqn);
	p64(body + 16, qp->sq);
	p64(body + 24, qp->rq);
	if (user) {
		sq_mtt = put_pages(d, body, qp->sq, (size_t)32 << qp->sq_shift, 16, 56);
		rq_mtt = put_pages(d, body, qp->rq, (size_t)32 << qp->rq_shift, 24, 80);
	}
	p32(body + 32, sq_mtt);
	p32(body + 36, rq_mtt);
	qp->record = vm_alloc(d->vm, 16);
	p64(body + 40, qp->record);
	p64(body + 48, qp->record + 8);
	p32(body + 104, db ? (uint32_t)d->sdb << 16 | d->rdb : 0);
	syndrome = drv_cmd(d, 0, 1, body, d->kind == DRV_61 ? 56 : 112);
	qp->cookie = (uint32_t)d->resp[0];
	return syndrome;
}

uint8_t drv_destroy_qp(struct drv_qp *qp)
{
	uint8_t body[8] = { 0 };

	p32(body, qp->qpn);
	return drv_cmd(qp->d, 0, 2, body, sizeof(body));
}

uint8_t drv_modify_qp(struct drv_qp *qp, uint8_t state)
{
	uint8_t body[32];

	memset(body, 0xa5, sizeof(body));
	p32(body, (uint32_t)state << 24 | qp->qpn);
	return drv_cmd(qp->d, 0, 3, body, sizeof(body));
}

uint8_t drv_rts(struct drv_qp *qp, uint32_t peer_cookie, const struct drv_end *end)
{
	uint8_t body[32] = { 0 };
	uint32_t dip = htonl(end->dip), sip = htonl(end->sip);
	uint16_t sport = htons(end->sport), dport = htons(end->dport);

	p32(body, 2u << 24 | 1u << 20 | qp->qpn);
	p32(body + 4, peer_cookie);
	memcpy(body + 8, &dip, 4);
	memcpy(body + 12, &sip, 4);
	memcpy(body + 16, &sport, 2);
	memcpy(body + 18, &dport, 2);
	p32(body + 20, end->send_nxt);
	p32(body + 24, end->recv_nxt);
	return drv_cmd(qp->d, 0, 3, body, sizeof(body));
}

void drv_connect(struct drv_qp *active, struct drv_qp *passive)
{
	static uint16_t port = 40000;
	struct drv_end a = { 0x0a000001, 0x0a000002, ++port, 7471, 1000, 2000 };
	struct drv_end p = { a.dip, a.sip, a.dport, a.sport, a.recv_nxt, a.send_nxt };

	assert_int_equal(drv_rts(passive, active->cookie, &p), 0);
	assert_int_equal(drv_rts(active, passive->cookie, &a), 0);
}

/* ------------------------------------------------------------------ regions */

uint8_t drv_reg_mr(struct drv *d, uint32_t stag, uint32_t pd, uint64_t addr, uint64_t len,
		   uint32_t access)
{
	uint8_t body[56];
	uint64_t first = addr & ~4095ull, list;
	uint32_t i, pages = (uint32_t)((addr + len - first + 4095) / 4096);

	memset(body, 0xa5, sizeof(body));
	p32(body, 1u << 31 | (stag & 0xff) << 20 | stag >> 8);
	p32(body + 4, pd << 12 | access);
	p64(body + 8, addr);
	p32(body + 16, (uint32_t)len);
	p32(body + 20, 12u << 27 | (pages > 4 ? 1u << 20 : 0) | pages);
	if (pages <= 4) {
		for (i = 0; i < pages; i++)
			p64(body + 24 + i * 8, first + (uint64_t)i * 4096);
	} else {
		list = vm_alloc(d->vm, pages * 8);
		for (i = 0; i < pages; i++)
			p64((uint8_t *)vm_at(d->vm, list) + i * 8, first + (uint64_t)i * 4096);
		p64(body + 24, list);
	}
	return drv_cmd(d, 0, 8, body, sizeof(body));
}

uint8_t drv_dereg_mr(struct drv *d, uint32_t stag)
{
	uint8_t body[8] = { 0 };

	p32(body, stag >> 8);
	return drv_cmd(d, 0, 9, body, sizeof(body));
}

uint64_t drv_pair(struct drv *d, struct drv_cq cq[2], struct drv_qp qp[2], uint32_t key,
		  uint32_t half)
{
	uint64_t buf = vm_alloc(d->vm, 2 * half);
	uint32_t i;

	assert_int_equal(drv_reg_mr(d, key, 1, buf, 2 * half, DRV_ALL), 0);
	for (i = 0; i < 2; i++) {
		assert_int_equal(drv_create_cq(d, &cq[i], 1 + i, 8, 1, true), 0);
		assert_int_equal(drv_create_qp(d, &qp[i], 1 + i, 1, &cq[i], &cq[i], true), 0);
	}
	drv_connect(&qp[0], &qp[1]);
	return buf;
}

/* ------------------------------------------------------------------ work requests */

void drv_ring_sq(struct drv_qp *qp)
{
	uint64_t page = DRV_DB_SQ_KERNEL, off = 0;

	if (qp->user) {
		if (qp->d->sdb)
			page = (uint64_t)qp->d->sdb << 12;
		off = (qp->qpn & 31) * 128;
	}
	ring(qp->d->vm, qp->record, page + off, (uint64_t)qp->qpn << 32 | qp->sq_pi);
}

void drv_post(struct drv_qp *qp, const struct drv_wr *wr)
{
	uint8_t wqe[64];
	uint32_t i, blocks, start = qp->sq_pi, sge = 0, imm = htonl(wr->imm), mask;

	memset(wqe, 0xa5, sizeof(wqe));
	p32(wqe + 12, wr->len);
	memcpy(wqe + 8, &imm, 4);
	switch (wr->op) {
	case WR_READ_INV:
		p32(wqe + 8, wr->imm);
		/* fallthrough */
	case WR_READ:
		blocks = 2;
		p32(wqe + 16, wr->lkey);
		p64(wqe + 20, wr->addr);
		p64(wqe + 32, wr->raddr);
		p32(wqe + 40, wr->len);
		p32(wqe + 44, wr->rkey);
		break;
	case WR_WRITE:
	case WR_WRITE_IMM:
		blocks = 2;
		p32(wqe + 16, wr->rkey);
		p64(wqe + 20, wr->raddr);
		sge = 32;
		break;
	default:
		blocks = 1;
		sge = 16;
	}
	if (sge) {
		p64(wqe + sge, wr->addr);
		p32(wqe + sge + 8, wr->len);
		p32(wqe + sge + 12, wr->lkey);
	}
	qp->sq_pi += blocks;
	p64(wqe, (uint64_t)(sge ? 1 : 0) << 56 | (uint64_t)(blocks - 1) << 52 |
			 (uint64_t)qp->qpn << 32 | (uint64_t)wr->op << 27 |
			 (uint64_t)wr->solicited << 23 | 1ull << 22 | qp->sq_pi);
	mask = (1u << qp->sq_shift) - 1;
	for (i = 0; i < blocks; i++)
		memcpy(vm_at(qp->d->vm, qp->sq + ((start + i) & mask) * 32), wqe + i * 32, 32);
	if (!wr->no_bell)
		drv_ring_sq(qp);
}

void drv_recv(struct drv_qp *qp, uint64_t addr, uint32_t len, uint32_t lkey)
{
	uint8_t *rqe = vm_at(qp->d->vm, qp->rq + (qp->rq_pi & ((1u << qp->rq_shift) - 1)) * 32);
	uint64_t page = DRV_DB_RQ_KERNEL, off = 0;

	qp->rq_pi++;
	/* the provider leaves garbage in bits 31:16 */
	p32(rqe, qp->rq_pi | (qp->user ? 0xa5a50000 : 0));
	p32(rqe + 4, qp->qpn);
	p64(rqe + 16, addr);
	p32(rqe + 24, len);
	p32(rqe + 28, lkey);
	if (qp->user) {
		/* the page that was called CDB */
		if (qp->d->sdb)
			page = (uint64_t)qp->d->cdb << 12;
		off = (qp->qpn & 127) * 32;
	}
	ring(qp->d->vm, qp->record + 8, page + off, load64(rqe));
}

void drv_post_raw(struct drv_qp *qp, uint8_t *wqe, uint32_t blocks)
{
	uint32_t i, start = qp->sq_pi, mask = (1u << qp->sq_shift) - 1;
	uint64_t header;

	memcpy(&header, wqe, 8);
	qp->sq_pi += blocks;
	p64(wqe,
	    le64toh(header) | (uint64_t)(blocks - 1) << 52 | (uint64_t)qp->qpn << 32 | qp->sq_pi);
	for (i = 0; i < blocks; i++)
		memcpy(vm_at(qp->d->vm, qp->sq + ((start + i) & mask) * 32), wqe + i * 32, 32);
	drv_ring_sq(qp);
}

void drv_fast_reg(struct drv_qp *qp, uint32_t stag, uint64_t iova, uint32_t len,
		  const uint64_t *pages, uint32_t count, uint32_t access)
{
	uint8_t wqe[64];
	uint32_t i;

	memset(wqe, 0xa5, sizeof(wqe));
	p64(wqe, 14ull << 27);
	p64(wqe + 8, iova);
	p32(wqe + 16, len);
	p32(wqe + 20, stag);
	p32(wqe + 24, count << 12 | access);
	for (i = 0; i < count; i++)
		p64(wqe + 32 + i * 8, pages[i]);
	drv_post_raw(qp, wqe, 2);
}

void drv_local_inv(struct drv_qp *qp, uint32_t stag, bool fence)
{
	uint8_t wqe[32];

	memset(wqe, 0xa5, sizeof(wqe));
	p64(wqe, 15ull << 27 | (fence ? 1ull << 24 : 0));
	p32(wqe + 20, stag);
	drv_post_raw(qp, wqe, 1);
}
