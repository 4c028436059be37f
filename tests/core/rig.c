// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <endian.h>
#include <stdio.h>

#include "tests/core/rig.h"

/* ------------------------------------------------------------------ memory and events */

/* Pages are mirrored in the host, so that no two neighbours touch in the right order. */
static uint32_t host_page(const struct rig *rig, uint32_t page)
{
	return rig->scattered ? MEM_PAGES - 1 - page : page;
}

static void *map(void *ctx, uint64_t addr, size_t *len, bool write)
{
	struct rig *rig = ctx;
	uint64_t off = addr - BUS;

	(void)write;
	if (addr < BUS || off >= MEM_SIZE)
		return NULL;
	if (rig->fail_at && addr / PAGE == rig->fail_at / PAGE)
		return NULL;
	if (rig->scattered) {
		if (*len > PAGE - off % PAGE)
			*len = PAGE - off % PAGE;
	} else if (*len > MEM_SIZE - off) {
		*len = MEM_SIZE - off;
	}
	return rig->mem + (size_t)host_page(rig, off / PAGE) * PAGE + off % PAGE;
}

static void note(struct rig *rig, struct event event)
{
	assert_true(rig->nevents < EVENTS_MAX);
	rig->events[rig->nevents++] = event;
}

static void comp_event(void *ctx, uint32_t cqn, uint32_t eqn, uint32_t pi)
{
	assert_int_equal(eqn, cqn + 100);
	note(ctx, (struct event){ .number = cqn, .pi = pi });
}

static void async_event(void *ctx, enum ea_async_event kind, uint32_t number)
{
	note(ctx, (struct event){ .async = true, .kind = kind, .number = number });
}

static const struct ea_dma_ops dma_ops = { .map = map };
static const struct ea_host_ops host_ops = { .comp_event = comp_event, .async_event = async_event };

uint64_t rig_alloc(struct rig *rig, uint32_t size)
{
	uint64_t bus = BUS + rig->next;

	rig->next += (size + PAGE - 1) / PAGE * PAGE;
	assert_true(rig->next <= MEM_SIZE);
	return bus;
}

uint8_t *at(struct rig *rig, uint64_t bus)
{
	uint64_t off = bus - BUS;

	assert_true(off < MEM_SIZE);
	return rig->mem + (size_t)host_page(rig, off / PAGE) * PAGE + off % PAGE;
}

void poke(struct rig *rig, uint64_t bus, const void *data, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		*at(rig, bus + i) = ((const uint8_t *)data)[i];
}

void peek(struct rig *rig, uint64_t bus, void *data, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		((uint8_t *)data)[i] = *at(rig, bus + i);
}

void poke64(struct rig *rig, uint64_t bus, uint64_t value)
{
	__le64 v = htole64(value);

	poke(rig, bus, &v, sizeof(v));
}

uint64_t peek64(struct rig *rig, uint64_t bus)
{
	__le64 v;

	peek(rig, bus, &v, sizeof(v));
	return le64toh(v);
}

static uint8_t pattern(uint32_t seed, uint32_t i)
{
	return (uint8_t)((seed + 1) * 2654435761u + i * 167 + (i >> 8) * 13);
}

void fill(struct rig *rig, uint64_t bus, uint32_t len, uint32_t seed)
{
	uint32_t i;

	for (i = 0; i < len; i++)
		*at(rig, bus + i) = pattern(seed, i);
}

bool filled_from(struct rig *rig, uint64_t bus, uint32_t from, uint32_t len, uint32_t seed)
{
	uint32_t i;

	for (i = from; i < from + len; i++)
		if (*at(rig, bus + i) != pattern(seed, i))
			return false;
	return true;
}

bool filled(struct rig *rig, uint64_t bus, uint32_t len, uint32_t seed)
{
	return filled_from(rig, bus, 0, len, seed);
}

struct ea_pages flat(uint64_t bus)
{
	return (struct ea_pages){ .form = EA_PAGES_FLAT, .addr = { bus } };
}

uint32_t mr_add(struct rig *rig, uint32_t stag, uint32_t pdn, uint32_t access, uint64_t start,
		uint64_t len)
{
	struct ea_mr_attr attr = {
		.stag = stag,
		.pdn = pdn,
		.access = access,
		.type = EA_MR_NORMAL,
		.start = start,
		.len = len,
		.pages = flat(start),
	};

	assert_int_equal(ea_mr_reg(rig->dev, &attr), 0);
	return stag;
}

/* ------------------------------------------------------------------ link operations */

static struct side *side_of(struct ea_link *link)
{
	return (struct side *)link;
}

static void tx_ready(struct ea_link *link)
{
	side_of(link)->ready = true;
}

static void rx_resume(struct ea_link *link)
{
	side_of(link)->resumed = true;
}

static void shutdown(struct ea_link *link, enum ea_shutdown how)
{
	side_of(link)->shut = true;
	side_of(link)->how = how;
}

static const struct ea_link_ops link_ops = { .tx_ready = tx_ready,
					     .rx_resume = rx_resume,
					     .shutdown = shutdown };

/* ------------------------------------------------------------------ set-up */

void rig_open_bare(struct rig *rig, bool scattered)
{
	static const struct ea_dev_attr attr = {
		.max_qp = 256,
		.max_cq = 512,
		.max_mr = 512,
		.max_cqe_shift = 20,
		.max_rq_shift = 15,
		.dma_local_key = 0xffffff00,
	};

	memset(rig, 0, sizeof(*rig));
	rig->mem = calloc(MEM_PAGES, PAGE);
	assert_non_null(rig->mem);
	rig->scattered = scattered;
	rig->mulpdu = 1000;
	rig->dev = ea_dev_create(&attr, &dma_ops, &host_ops, rig);
	assert_non_null(rig->dev);
}

void cq_open(struct rig *rig, struct cq *cq, uint32_t cqn, uint8_t shift)
{
	struct ea_cq_attr attr = { .cqn = cqn, .eqn = cqn + 100, .depth_shift = shift };

	cq->cqn = cqn;
	cq->shift = shift;
	cq->ci = 0;
	cq->ring = rig_alloc(rig, 32u << shift);
	attr.pages = flat(cq->ring);
	assert_int_equal(ea_cq_create(rig->dev, &attr), 0);
}

void qp_open(struct rig *rig, struct qp *qp, uint32_t qpn, uint8_t sq_shift, uint8_t rq_shift)
{
	struct ea_qp_attr attr = {
		.qpn = qpn, .pdn = PD, .sq_shift = sq_shift, .rq_shift = rq_shift
	};

	memset(qp, 0, sizeof(*qp));
	qp->rig = rig;
	qp->qpn = qpn;
	qp->sq_shift = sq_shift;
	qp->rq_shift = rq_shift;
	cq_open(rig, &qp->scq, 2 * qpn - 1, CQ_SHIFT);
	cq_open(rig, &qp->rcq, 2 * qpn, CQ_SHIFT);
	qp->sq = rig_alloc(rig, 32u << sq_shift);
	qp->rq = rig_alloc(rig, 32u << rq_shift);
	attr.scqn = qp->scq.cqn;
	attr.rcqn = qp->rcq.cqn;
	attr.sq = flat(qp->sq);
	attr.rq = flat(qp->rq);
	assert_int_equal(ea_qp_create(rig->dev, &attr), 0);
	rig_alloc(rig, PAGE); /* so that a byte too early is seen */
	qp->data = rig_alloc(rig, DATA_SIZE);
	qp->key = mr_add(rig, (LKEY_IDX + qpn) << 8, PD, ALL_ACCESS, qp->data, DATA_SIZE);
	qp->side.link.ops = &link_ops;
}

void rig_open(struct rig *rig, bool scattered)
{
	rig_open_bare(rig, scattered);
	qp_open(rig, &rig->a, 1, SQ_SHIFT, RQ_SHIFT);
	qp_open(rig, &rig->b, 2, SQ_SHIFT, RQ_SHIFT);
}

void rig_close(struct rig *rig)
{
	ea_dev_destroy(rig->dev);
	free(rig->mem);
}

static void side_reset(struct side *side)
{
	memset(side, 0, sizeof(*side));
	side->link.ops = &link_ops;
}

void rig_connect(struct rig *rig, uint8_t ord, uint8_t ird)
{
	struct ea_conn_attr attr = { .ord = ord, .ird = ird, .acks = rig->acks };

	side_reset(&rig->a.side);
	side_reset(&rig->b.side);
	assert_int_equal(ea_qp_connect(rig->dev, rig->a.qpn, &rig->a.side.link, &attr), 0);
	assert_int_equal(ea_qp_connect(rig->dev, rig->b.qpn, &rig->b.side.link, &attr), 0);
	/* a QP that was still bound has aborted its old stream, which had the same link */
	rig->a.side.shut = false;
	rig->b.side.shut = false;
}

/* ------------------------------------------------------------------ work requests */

uint16_t put(struct qp *qp, const uint8_t *wqe, uint32_t used, uint32_t op, uint32_t flags,
	     uint32_t sgl_len)
{
	uint32_t blocks = (used + 31) / 32;
	uint16_t first = qp->sq_pi;
	uint8_t block[32];
	uint64_t header;
	uint32_t k, n;

	qp->sq_pi += blocks;
	header = (uint64_t)sgl_len << 56 | (uint64_t)(blocks - 1) << 52 | (uint64_t)qp->qpn << 32 |
		 (uint64_t)op << 27 | qp->sq_pi;
	if (flags & F_INLINE)
		header |= 1ull << 25;
	if (flags & F_FENCE)
		header |= 1ull << 24;
	if (flags & F_SE)
		header |= 1ull << 23;
	if (flags & F_CE)
		header |= 1ull << 22;
	for (k = 0; k < blocks; k++) {
		memset(block, 0xa5, sizeof(block));
		n = used - k * 32 < 32 ? used - k * 32 : 32;
		memcpy(block, wqe + k * 32, n);
		if (!k) {
			__le64 v = htole64(header);

			memcpy(block, &v, sizeof(v));
		}
		poke(qp->rig, qp->sq + (uint64_t)((first + k) & ((1u << qp->sq_shift) - 1)) * 32,
		     block, sizeof(block));
	}
	return first;
}

static void le32_at(uint8_t *p, uint32_t v)
{
	__le32 le = htole32(v);

	memcpy(p, &le, sizeof(le));
}

static void le64_at(uint8_t *p, uint64_t v)
{
	__le64 le = htole64(v);

	memcpy(p, &le, sizeof(le));
}

static void be32_at(uint8_t *p, uint32_t v)
{
	__be32 be = htobe32(v);

	memcpy(p, &be, sizeof(be));
}

static uint32_t sges_at(uint8_t *p, const struct sge *sge, uint32_t n)
{
	uint32_t i, sum = 0;

	for (i = 0; i < n; i++) {
		le64_at(p + i * 16, sge[i].addr);
		le32_at(p + i * 16 + 8, sge[i].len);
		le32_at(p + i * 16 + 12, sge[i].lkey);
		sum += sge[i].len;
	}
	return sum;
}

uint16_t put_write(struct qp *qp, uint32_t op, uint32_t flags, const struct sge *sge, uint32_t n,
		   uint32_t rkey, uint64_t raddr, uint32_t imm)
{
	uint8_t w[128] = { 0 };

	be32_at(w + 8, imm);
	le32_at(w + 12, sges_at(w + 32, sge, n));
	le32_at(w + 16, rkey);
	le32_at(w + 20, (uint32_t)raddr);
	le32_at(w + 24, raddr >> 32);
	return put(qp, w, 32 + 16 * n, op, flags, n);
}

uint16_t put_write_inline(struct qp *qp, uint32_t op, uint32_t flags, const void *data,
			  uint32_t len, uint32_t rkey, uint64_t raddr, uint32_t imm)
{
	uint8_t w[128] = { 0 };

	be32_at(w + 8, imm);
	le32_at(w + 12, len);
	le32_at(w + 16, rkey);
	le32_at(w + 20, (uint32_t)raddr);
	le32_at(w + 24, raddr >> 32);
	memcpy(w + 32, data, len);
	return put(qp, w, 32 + len, op, flags | F_INLINE, len);
}

static void word_at(uint8_t *w, uint32_t op, uint32_t word)
{
	if (op == OP_SEND_INV)
		le32_at(w + 8, word);
	else
		be32_at(w + 8, word);
}

uint16_t put_send(struct qp *qp, uint32_t op, uint32_t flags, const struct sge *sge, uint32_t n,
		  uint32_t word)
{
	uint8_t w[128] = { 0 };

	word_at(w, op, word);
	le32_at(w + 12, sges_at(w + 16, sge, n));
	return put(qp, w, 16 + 16 * n, op, flags, n);
}

uint16_t put_send_inline(struct qp *qp, uint32_t op, uint32_t flags, const void *data, uint32_t len,
			 uint32_t word)
{
	uint8_t w[128] = { 0 };

	word_at(w, op, word);
	le32_at(w + 12, len);
	memcpy(w + 16, data, len);
	return put(qp, w, 16 + len, op, flags | F_INLINE, len);
}

uint16_t put_read(struct qp *qp, uint32_t op, uint32_t flags, struct sge sink, uint32_t rkey,
		  uint64_t raddr, uint32_t inv)
{
	uint8_t w[64] = { 0 };

	le32_at(w + 8, inv);
	le32_at(w + 12, sink.len);
	le32_at(w + 16, sink.lkey);
	le32_at(w + 20, (uint32_t)sink.addr);
	le32_at(w + 24, sink.addr >> 32);
	le64_at(w + 32, raddr);
	le32_at(w + 40, sink.len);
	le32_at(w + 44, rkey);
	return put(qp, w, 48, op, flags, 0);
}

uint16_t put_atomic(struct qp *qp, uint32_t op, uint32_t flags, struct sge result, uint32_t rkey,
		    uint64_t raddr, uint64_t swap_add, uint64_t compare)
{
	uint8_t w[64] = { 0 };

	le64_at(w + 16, swap_add);
	le64_at(w + 24, compare);
	le64_at(w + 32, raddr);
	le32_at(w + 44, rkey);
	le64_at(w + 48, result.addr);
	le32_at(w + 56, result.len);
	le32_at(w + 60, result.lkey);
	return put(qp, w, 64, op, flags, 0);
}

uint16_t put_reg(struct qp *qp, uint32_t flags, uint32_t stag, uint64_t iova, uint32_t len,
		 uint32_t access, uint32_t type, const uint64_t *pages, uint32_t n)
{
	uint8_t w[64] = { 0 };
	uint32_t i;

	le64_at(w + 8, iova);
	le32_at(w + 16, len);
	le32_at(w + 20, stag);
	le32_at(w + 24, n << 12 | type << 6 | access << 1);
	for (i = 0; type == 0 && i < n && i < 4; i++)
		le64_at(w + 32 + 8 * i, pages[i]);
	return put(qp, w, type == 0 && n ? 64 : 32, OP_REG_MR, flags, 0);
}

uint16_t put_inv(struct qp *qp, uint32_t flags, uint32_t stag)
{
	uint8_t w[32] = { 0 };

	le32_at(w + 20, stag);
	return put(qp, w, 32, OP_LOCAL_INV, flags, 0);
}

void put_one(struct qp *qp, uint32_t flags)
{
	struct qp *peer = qp == &qp->rig->a ? &qp->rig->b : &qp->rig->a;
	struct sge sge = sge_of(qp, 0, 100);

	put_write(qp, OP_WRITE, flags, &sge, 1, peer->key, peer->data, 0);
}

static uint64_t wqe_at(struct qp *qp, uint16_t index, uint32_t off)
{
	uint32_t block = (index + off / 32) & ((1u << qp->sq_shift) - 1);

	return qp->sq + (uint64_t)block * 32 + off % 32;
}

void patch64(struct qp *qp, uint16_t index, uint32_t off, uint64_t clear, uint64_t set)
{
	uint64_t bus = wqe_at(qp, index, off);

	poke64(qp->rig, bus, (peek64(qp->rig, bus) & ~clear) | set);
}

void patch32(struct qp *qp, uint16_t index, uint32_t off, uint32_t value)
{
	__le32 v = htole32(value);

	poke(qp->rig, wqe_at(qp, index, off), &v, sizeof(v));
}

void ring_sq_at(struct qp *qp, uint16_t pi)
{
	ea_db_sq(qp->rig->dev, (uint64_t)qp->qpn << 32 | pi);
}

void ring_sq(struct qp *qp)
{
	ring_sq_at(qp, qp->sq_pi);
}

void ring_rq_at(struct qp *qp, uint16_t pi)
{
	/* bits 31:16 are no part of the index */
	ea_db_rq(qp->rig->dev, (uint64_t)qp->qpn << 32 | 0xbeef0000 | pi);
}

void put_recv(struct qp *qp, uint64_t addr, uint32_t len, uint32_t lkey)
{
	uint8_t w[32];
	uint64_t slot = qp->rq + (uint64_t)(qp->rq_pi & ((1u << qp->rq_shift) - 1)) * 32;

	qp->rq_pi++;
	memset(w, 0x5a, sizeof(w));
	w[0] = qp->rq_pi & 0xff;
	w[1] = qp->rq_pi >> 8;
	le32_at(w + 4, qp->qpn);
	le64_at(w + 16, addr);
	le32_at(w + 24, len);
	le32_at(w + 28, lkey);
	poke(qp->rig, slot, w, sizeof(w));
	ring_rq_at(qp, qp->rq_pi);
}

/* ------------------------------------------------------------------ completions and events */

static uint32_t be32_of(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
}

bool poll(struct rig *rig, struct cq *cq, struct wc *wc)
{
	uint32_t depth = 1u << cq->shift;
	uint8_t e[32];
	bool owner;

	peek(rig, cq->ring + (uint64_t)(cq->ci & (depth - 1)) * 32, e, sizeof(e));
	owner = e[0] & 0x80;
	if (!(owner ^ ((cq->ci & depth) != 0)))
		return false;
	cq->ci++;
	wc->opcode = e[1];
	wc->qtype = e[2];
	wc->syn = e[3];
	wc->index = be32_of(e + 4);
	wc->qpn = be32_of(e + 8);
	memcpy(wc->extra, e + 12, 4);
	wc->size = be32_of(e + 16);
	assert_int_equal(be32_of(e + 20) | be32_of(e + 24) | be32_of(e + 28), 0);
	return true;
}

void expect_wc(struct rig *rig, struct cq *cq, uint32_t opcode, uint32_t qtype, uint32_t syn,
	       uint32_t index, uint32_t size)
{
	struct wc wc = { 0 };

	assert_true(poll(rig, cq, &wc));
	assert_int_equal(wc.syn, syn);
	assert_int_equal(wc.opcode, opcode);
	assert_int_equal(wc.qtype, qtype);
	assert_int_equal(wc.index, index);
	assert_int_equal(wc.size, size);
	assert_int_equal(wc.qpn, (cq->cqn + 1) / 2);
}

void expect_none(struct rig *rig, struct cq *cq)
{
	struct wc wc;

	assert_false(poll(rig, cq, &wc));
}

void arm(struct rig *rig, struct cq *cq, bool solicited)
{
	ea_db_cq(rig->dev, (uint64_t)cq->cqn << 32 | 1u << 31 | (uint32_t)solicited << 30 |
				   (cq->ci & 0xffffff));
}

unsigned int fired(struct rig *rig, uint32_t cqn)
{
	unsigned int i, n = 0;

	for (i = 0; i < rig->nevents; i++)
		if (!rig->events[i].async && rig->events[i].number == cqn) {
			rig->events[i].number = 0;
			n++;
		}
	return n;
}

unsigned int asyncs(struct rig *rig, enum ea_async_event kind, uint32_t number)
{
	unsigned int i, n = 0;

	for (i = 0; i < rig->nevents; i++)
		if (rig->events[i].async && rig->events[i].kind == kind &&
		    rig->events[i].number == number)
			n++;
	return n;
}

/* ------------------------------------------------------------------ the scripted link */

struct ea_rx_seg tagged(uint8_t opcode, uint32_t stag, uint64_t to, uint32_t len, bool last)
{
	struct ea_rx_seg seg = {
		.opcode = opcode, .tagged = true, .stag = stag, .to = to, .len = len, .last = last
	};

	carry_raw_header(&seg);
	return seg;
}

struct ea_rx_seg untagged(uint8_t opcode, uint32_t qn, uint32_t msn, uint32_t mo, uint32_t word,
			  uint32_t len, bool last)
{
	struct ea_rx_seg seg = { .opcode = opcode,
				 .qn = qn,
				 .msn = msn,
				 .mo = mo,
				 .ulp_word = word,
				 .len = len,
				 .last = last };

	carry_raw_header(&seg);
	return seg;
}

/* The pieces are what is said of them, and there are some. */
static void check_list(void *ctx, const struct iovec *iov, int n, uint32_t covered, uint32_t wanted)
{
	uint32_t sum = 0;
	int i;

	(void)ctx;
	for (i = 0; i < n; i++)
		sum += iov[i].iov_len;
	assert_true(covered > 0 && covered <= wanted);
	assert_int_equal(sum, covered);
}

/* Give @to one segment with its payload. */
int feed(struct qp *to, struct ea_rx_seg *seg, const void *payload)
{
	return carry_feed(to->side.link.qp, seg, payload, check_list, NULL);
}

/* One segment from @from to @to; false when nothing moved. */
static bool step(struct rig *rig, struct qp *from, struct qp *to)
{
	struct side *side = &from->side;
	static uint8_t buf[65536];
	struct ea_qp *qp = side->link.qp;
	struct ea_rx_seg seg;
	uint32_t len;
	bool last;
	int err;

	if (!qp || (side->shut && side->how == EA_SHUT_ABORT))
		return false;
	if (side->shut && side->busy)
		side->busy = false;
	if (!side->busy) {
		err = ea_tx_next(qp, &side->msg);
		if (err) {
			assert_true(err == EAGAIN || err == ESHUTDOWN);
			return false;
		}
		side->busy = true;
		side->off = 0;
		side->msgs++;
	}
	len = side->msg.ctrl_len ? side->msg.ctrl_len : side->msg.len - side->off;
	if (len > rig->mulpdu)
		len = rig->mulpdu;
	last = side->msg.ctrl_len || side->off + len == side->msg.len;
	if (side->msg.ctrl_len)
		memcpy(buf, side->msg.ctrl, len);
	else if (carry_gather(qp, &side->msg, side->off, len, buf, check_list, NULL))
		return true;
	seg = carry_segment(&side->msg, side->off, len, last);
	if (to->side.rx_err == 0 || to->side.resumed) {
		to->side.resumed = false;
		to->side.rx_err = feed(to, &seg, buf);
	}
	if (to->side.rx_err == EAGAIN)
		return false;
	side->segs++;
	side->off += len;
	if (last) {
		side->busy = false;
		ea_tx_done(qp, &side->msg);
	}
	return true;
}

void pump(struct rig *rig)
{
	unsigned int idle = 0;

	while (idle < 2) {
		bool moved = step(rig, &rig->a, &rig->b);

		moved |= step(rig, &rig->b, &rig->a);
		idle = moved ? 0 : idle + 1;
	}
}

struct ea_terminate expect_term(struct qp *qp, enum ea_term_cause cause, struct ea_tx_msg *msg)
{
	struct ea_term_codes want = ea_term_codes(cause);
	struct ea_terminate term;
	struct ea_tx_msg more;

	assert_true(qp->side.shut);
	assert_int_equal(qp->side.how, EA_SHUT_TERMINATE);
	assert_int_equal(ea_tx_next(qp->side.link.qp, msg), 0);
	assert_int_equal(msg->opcode, EA_RDMAP_TERMINATE);
	assert_int_equal(msg->qn, EA_QN_TERMINATE);
	assert_int_equal(msg->msn, 1);
	assert_true(ea_terminate_decode(msg->ctrl, msg->ctrl_len, &term));
	assert_int_equal(term.codes.layer, want.layer);
	assert_int_equal(term.codes.etype, want.etype);
	assert_int_equal(term.codes.code, want.code);
	assert_int_equal(ea_tx_next(qp->side.link.qp, &more), ESHUTDOWN);
	assert_int_equal(ea_qp_state(qp->side.link.qp), EA_QP_TERMINATE);
	return term;
}
