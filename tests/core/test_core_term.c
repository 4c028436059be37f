// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Errors of the stream: each breach of the protocol has its Terminate, each Terminate its syndrome. */
#include "tests/core/rig.h"

static const uint8_t zeros[65536];

static void read_req(struct qp *to, uint8_t *buf, uint32_t len)
{
	struct ea_read_req req = {
		.sink_stag = 5, .sink_to = 6, .len = len, .src_stag = to->key, .src_to = to->data
	};

	ea_read_req_encode(&req, buf);
}

/* ------------------------------------------------------------------ what the peer may not do */

struct breach {
	const char *what;
	/* makes the segment; returns its payload */
	const void *(*make)(struct rig *rig, struct ea_rx_seg *seg);
	enum ea_term_cause cause;
	bool ddp_hdr, rdma_hdr; /* copies in the Terminate */
};

static uint8_t ctrl[EA_TX_CTRL_MAX];

#define BREACH(name) static const void *name(struct rig *rig, struct ea_rx_seg *seg)
#define TAGGED(op, stag, to, len, last)                 \
	do {                                            \
		(void)rig;                              \
		*seg = tagged(op, stag, to, len, last); \
		return zeros;                           \
	} while (0)
#define UNTAGGED(op, qn, msn, mo, len, last)                    \
	do {                                                    \
		(void)rig;                                      \
		*seg = untagged(op, qn, msn, mo, 0, len, last); \
		return zeros;                                   \
	} while (0)

BREACH(w_stag)
{
	TAGGED(EA_RDMAP_WRITE, 300 << 8, rig->b.data, 10, true);
}
BREACH(w_key)
{
	TAGGED(EA_RDMAP_WRITE, rig->b.key + 1, rig->b.data, 10, true);
}
BREACH(w_before)
{
	TAGGED(EA_RDMAP_WRITE, rig->b.key, rig->b.data - 1, 10, true);
}
BREACH(w_after)
{
	TAGGED(EA_RDMAP_WRITE, rig->b.key, rig->b.data + DATA_SIZE - 9, 10, true);
}
BREACH(w_wrap)
{
	TAGGED(EA_RDMAP_WRITE, rig->b.key, UINT64_MAX - 8, 10, true);
}
BREACH(w_pd)
{
	mr_add(rig, 90 << 8, PD + 1, ALL_ACCESS, rig->b.data, 100);
	TAGGED(EA_RDMAP_WRITE, 90 << 8, rig->b.data, 10, true);
}
BREACH(w_right)
{
	mr_add(rig, 90 << 8, PD, ALL_ACCESS & ~EA_ACCESS_REMOTE_WRITE, rig->b.data, 100);
	TAGGED(EA_RDMAP_WRITE, 90 << 8, rig->b.data, 10, true);
}
BREACH(w_untagged)
{
	UNTAGGED(EA_RDMAP_WRITE, 0, 1, 0, 10, true);
}
BREACH(op14)
{
	UNTAGGED(14, 0, 1, 0, 10, true);
}
BREACH(op15)
{
	UNTAGGED(15, 0, 1, 0, 10, true);
}
BREACH(op255)
{
	UNTAGGED(255, 0, 1, 0, 10, true);
}
BREACH(send_tagged)
{
	TAGGED(EA_RDMAP_SEND, 1, 1, 10, true);
}
BREACH(send_qn1)
{
	UNTAGGED(EA_RDMAP_SEND, 1, 1, 0, 10, true);
}
BREACH(send_qn_huge)
{
	UNTAGGED(EA_RDMAP_SEND, UINT32_MAX, 1, 0, 10, true);
}
BREACH(send_msn0)
{
	UNTAGGED(EA_RDMAP_SEND, 0, 0, 0, 10, true);
}
BREACH(send_msn2)
{
	UNTAGGED(EA_RDMAP_SEND, 0, 2, 0, 10, true);
}
BREACH(send_mo)
{
	UNTAGGED(EA_RDMAP_SEND, 0, 1, 1, 10, true);
}
BREACH(send_long)
{
	UNTAGGED(EA_RDMAP_SEND, 0, 1, 0, 101, true);
}
BREACH(send_wraps)
{
	*seg = untagged(EA_RDMAP_SEND, 0, 1, 0, 0, 50, false);
	assert_int_equal(feed(&rig->b, seg, zeros), 0);
	UNTAGGED(EA_RDMAP_SEND, 0, 1, 50, UINT32_MAX, true);
}
BREACH(send_changes)
{
	*seg = untagged(EA_RDMAP_SEND, 0, 1, 0, 0, 50, false);
	assert_int_equal(feed(&rig->b, seg, zeros), 0);
	UNTAGGED(EA_RDMAP_SEND_SE, 0, 1, 50, 10, true);
}
BREACH(send_repeats)
{
	*seg = untagged(EA_RDMAP_SEND, 0, 1, 0, 0, 50, false);
	assert_int_equal(feed(&rig->b, seg, zeros), 0);
	UNTAGGED(EA_RDMAP_SEND, 0, 1, 0, 50, true);
}
BREACH(imm_inside_send)
{
	*seg = untagged(EA_RDMAP_SEND, 0, 1, 0, 0, 0, false);
	assert_int_equal(feed(&rig->b, seg, zeros), 0);
	UNTAGGED(EA_RDMAP_IMM, 0, 1, 0, 8, true);
}
BREACH(imm_short)
{
	UNTAGGED(EA_RDMAP_IMM, 0, 1, 0, 7, true);
}
BREACH(imm_parts)
{
	UNTAGGED(EA_RDMAP_IMM, 0, 1, 0, 8, false);
}
BREACH(inv_stag)
{
	(void)rig;
	*seg = untagged(EA_RDMAP_SEND_INV, 0, 1, 0, 300 << 8, 10, true);
	return zeros;
}
BREACH(inv_pd)
{
	mr_add(rig, 90 << 8, PD + 1, ALL_ACCESS, rig->b.data, 100);
	*seg = untagged(EA_RDMAP_SEND_INV, 0, 1, 0, 90 << 8, 10, true);
	return zeros;
}
BREACH(inv_local)
{
	mr_add(rig, 90 << 8, PD, EA_ACCESS_LOCAL_READ | EA_ACCESS_LOCAL_WRITE, rig->b.data, 100);
	*seg = untagged(EA_RDMAP_SEND_SE_INV, 0, 1, 0, 90 << 8, 10, true);
	return zeros;
}
BREACH(read_qn0)
{
	UNTAGGED(EA_RDMAP_READ_REQ, 0, 1, 0, 28, true);
}
BREACH(read_msn)
{
	UNTAGGED(EA_RDMAP_READ_REQ, 1, 2, 0, 28, true);
}
BREACH(read_mo)
{
	UNTAGGED(EA_RDMAP_READ_REQ, 1, 1, 4, 28, true);
}
BREACH(read_short)
{
	UNTAGGED(EA_RDMAP_READ_REQ, 1, 1, 0, 27, true);
}
BREACH(read_long)
{
	UNTAGGED(EA_RDMAP_READ_REQ, 1, 1, 0, 29, true);
}
BREACH(read_huge)
{
	UNTAGGED(EA_RDMAP_READ_REQ, 1, 1, 0, UINT32_MAX, true);
}
BREACH(read_parts)
{
	UNTAGGED(EA_RDMAP_READ_REQ, 1, 1, 0, 28, false);
}
BREACH(read_stag)
{
	struct ea_read_req req = { .len = 10, .src_stag = 300 << 8 };

	ea_read_req_encode(&req, ctrl);
	UNTAGGED(EA_RDMAP_READ_REQ, 1, 1, 0, 28, true);
}
BREACH(read_bounds)
{
	read_req(&rig->b, ctrl, DATA_SIZE + 1);
	UNTAGGED(EA_RDMAP_READ_REQ, 1, 1, 0, 28, true);
}
BREACH(read_pd)
{
	struct ea_read_req req = { .len = 10, .src_stag = 90 << 8, .src_to = rig->b.data };

	mr_add(rig, 90 << 8, PD + 1, ALL_ACCESS, rig->b.data, 100);
	ea_read_req_encode(&req, ctrl);
	UNTAGGED(EA_RDMAP_READ_REQ, 1, 1, 0, 28, true);
}
BREACH(read_right)
{
	struct ea_read_req req = { .len = 10, .src_stag = 90 << 8, .src_to = rig->b.data };

	mr_add(rig, 90 << 8, PD, ALL_ACCESS & ~EA_ACCESS_REMOTE_READ, rig->b.data, 100);
	ea_read_req_encode(&req, ctrl);
	UNTAGGED(EA_RDMAP_READ_REQ, 1, 1, 0, 28, true);
}
BREACH(read_wrap)
{
	struct ea_read_req req = { .len = 10, .src_stag = rig->b.key, .src_to = UINT64_MAX - 3 };

	ea_read_req_encode(&req, ctrl);
	UNTAGGED(EA_RDMAP_READ_REQ, 1, 1, 0, 28, true);
}
BREACH(read_too_many)
{
	int i;

	read_req(&rig->b, ctrl, 10);
	for (i = 1; i <= 2; i++) {
		*seg = untagged(EA_RDMAP_READ_REQ, 1, i, 0, 0, 28, true);
		assert_int_equal(feed(&rig->b, seg, ctrl), 0);
	}
	UNTAGGED(EA_RDMAP_READ_REQ, 1, 3, 0, 28, true);
}
static struct ea_atomic_req atomic;
BREACH(atomic_op)
{
	atomic = (struct ea_atomic_req){ .op = 1, .stag = rig->b.key, .to = rig->b.data };
	ea_atomic_req_encode(&atomic, ctrl);
	UNTAGGED(EA_RDMAP_ATOMIC_REQ, 1, 1, 0, 52, true);
}
BREACH(atomic_bounds)
{
	atomic = (struct ea_atomic_req){ .op = 0,
					 .stag = rig->b.key,
					 .to = rig->b.data + DATA_SIZE };
	ea_atomic_req_encode(&atomic, ctrl);
	UNTAGGED(EA_RDMAP_ATOMIC_REQ, 1, 1, 0, 52, true);
}
BREACH(atomic_unaligned)
{
	atomic = (struct ea_atomic_req){ .op = 0, .stag = rig->b.key, .to = rig->b.data + 4 };
	ea_atomic_req_encode(&atomic, ctrl);
	UNTAGGED(EA_RDMAP_ATOMIC_REQ, 1, 1, 0, 52, true);
}
BREACH(resp_unasked)
{
	TAGGED(EA_RDMAP_READ_RESP, rig->b.key, rig->b.data, 10, true);
}
BREACH(aresp_unasked)
{
	UNTAGGED(EA_RDMAP_ATOMIC_RESP, 3, 1, 0, 12, true);
}

static void ask(struct rig *rig)
{
	struct ea_tx_msg msg;

	put_read(&rig->b, OP_READ, 0, (struct sge){ rig->b.data + 100, 50, rig->b.key }, 1, 2, 0);
	ring_sq(&rig->b);
	assert_int_equal(ea_tx_next(rig->b.side.link.qp, &msg), 0);
	ea_tx_done(rig->b.side.link.qp, &msg);
}
BREACH(resp_stag)
{
	ask(rig);
	TAGGED(EA_RDMAP_READ_RESP, rig->b.key + 1, rig->b.data + 100, 50, true);
}
BREACH(resp_to)
{
	ask(rig);
	TAGGED(EA_RDMAP_READ_RESP, rig->b.key, rig->b.data + 101, 49, true);
}
BREACH(resp_long)
{
	ask(rig);
	TAGGED(EA_RDMAP_READ_RESP, rig->b.key, rig->b.data + 100, 51, true);
}
BREACH(resp_short)
{
	ask(rig);
	TAGGED(EA_RDMAP_READ_RESP, rig->b.key, rig->b.data + 100, 49, true);
}
BREACH(resp_not_last)
{
	ask(rig);
	TAGGED(EA_RDMAP_READ_RESP, rig->b.key, rig->b.data + 100, 50, false);
}
BREACH(resp_gap)
{
	ask(rig);
	*seg = tagged(EA_RDMAP_READ_RESP, rig->b.key, rig->b.data + 100, 20, false);
	assert_int_equal(feed(&rig->b, seg, zeros), 0);
	TAGGED(EA_RDMAP_READ_RESP, rig->b.key, rig->b.data + 121, 29, true);
}
BREACH(resp_is_atomic)
{
	ask(rig);
	UNTAGGED(EA_RDMAP_ATOMIC_RESP, 3, 1, 0, 12, true);
}
BREACH(resp_dereg)
{
	ask(rig);
	assert_int_equal(ea_mr_dereg(rig->dev, rig->b.key), 0);
	TAGGED(EA_RDMAP_READ_RESP, rig->b.key, rig->b.data + 100, 50, true);
}
static void ask_atomic(struct rig *rig)
{
	struct ea_tx_msg msg;

	put_atomic(&rig->b, OP_FAA, 0, (struct sge){ rig->b.data, 8, rig->b.key }, 1, 8, 1, 0);
	ring_sq(&rig->b);
	assert_int_equal(ea_tx_next(rig->b.side.link.qp, &msg), 0);
	ea_tx_done(rig->b.side.link.qp, &msg);
}
BREACH(aresp_id)
{
	struct ea_atomic_resp resp = { .id = 77 };

	ask_atomic(rig);
	ea_atomic_resp_encode(&resp, ctrl);
	UNTAGGED(EA_RDMAP_ATOMIC_RESP, 3, 1, 0, 12, true);
}
BREACH(aresp_short)
{
	ask_atomic(rig);
	UNTAGGED(EA_RDMAP_ATOMIC_RESP, 3, 1, 0, 11, true);
}
BREACH(aresp_qn)
{
	ask_atomic(rig);
	UNTAGGED(EA_RDMAP_ATOMIC_RESP, 1, 1, 0, 12, true);
}
BREACH(aresp_is_read)
{
	ask_atomic(rig);
	TAGGED(EA_RDMAP_READ_RESP, rig->b.key, rig->b.data, 8, true);
}
BREACH(term_short)
{
	UNTAGGED(EA_RDMAP_TERMINATE, 2, 1, 0, 3, true);
}
BREACH(term_long)
{
	UNTAGGED(EA_RDMAP_TERMINATE, 2, 1, 0, 53, true);
}

static const struct breach breaches[] = {
	{ "write: unknown STag", w_stag, EA_TERM_TAGGED_STAG, true, false },
	{ "write: wrong key", w_key, EA_TERM_TAGGED_STAG, true, false },
	{ "write: one byte before", w_before, EA_TERM_TAGGED_BOUNDS, true, false },
	{ "write: one byte past", w_after, EA_TERM_TAGGED_BOUNDS, true, false },
	{ "write: offset wraps", w_wrap, EA_TERM_TAGGED_WRAP, true, false },
	{ "write: other PD", w_pd, EA_TERM_TAGGED_ASSOC, true, false },
	{ "write: no right", w_right, EA_TERM_TAGGED_RIGHTS, true, false },
	{ "write: untagged", w_untagged, EA_TERM_OPCODE, false, false },
	{ "opcode 14", op14, EA_TERM_OPCODE, false, false },
	{ "opcode 15", op15, EA_TERM_OPCODE, false, false },
	{ "opcode 255", op255, EA_TERM_OPCODE, false, false },
	{ "send: tagged", send_tagged, EA_TERM_OPCODE, false, false },
	{ "send: queue 1", send_qn1, EA_TERM_UNTAGGED_QN, true, false },
	{ "send: queue 2^32-1", send_qn_huge, EA_TERM_UNTAGGED_QN, true, false },
	{ "send: MSN 0", send_msn0, EA_TERM_UNTAGGED_MSN, true, false },
	{ "send: MSN 2", send_msn2, EA_TERM_UNTAGGED_MSN, true, false },
	{ "send: offset 1", send_mo, EA_TERM_UNTAGGED_MO, true, false },
	{ "send: too long", send_long, EA_TERM_UNTAGGED_LEN, true, false },
	{ "send: length wraps", send_wraps, EA_TERM_UNTAGGED_LEN, true, false },
	{ "send: opcode changes", send_changes, EA_TERM_OPCODE, false, false },
	{ "send: repeated segment", send_repeats, EA_TERM_UNTAGGED_MO, true, false },
	{ "immediate inside a send", imm_inside_send, EA_TERM_OPCODE, false, false },
	{ "immediate: short", imm_short, EA_TERM_STREAM, true, false },
	{ "immediate: two segments", imm_parts, EA_TERM_STREAM, true, false },
	{ "invalidate: unknown STag", inv_stag, EA_TERM_CANNOT_INVALIDATE, true, false },
	{ "invalidate: other PD", inv_pd, EA_TERM_CANNOT_INVALIDATE, true, false },
	{ "invalidate: local region", inv_local, EA_TERM_CANNOT_INVALIDATE, true, false },
	{ "read: queue 0", read_qn0, EA_TERM_UNTAGGED_QN, true, false },
	{ "read: MSN 2", read_msn, EA_TERM_UNTAGGED_MSN, true, false },
	{ "read: offset", read_mo, EA_TERM_UNTAGGED_MO, true, false },
	{ "read: short", read_short, EA_TERM_STREAM, true, false },
	{ "read: long", read_long, EA_TERM_STREAM, true, false },
	{ "read: huge", read_huge, EA_TERM_STREAM, true, false },
	{ "read: two segments", read_parts, EA_TERM_STREAM, true, false },
	{ "read: unknown STag", read_stag, EA_TERM_REMOTE_STAG, true, true },
	{ "read: one byte past", read_bounds, EA_TERM_REMOTE_BOUNDS, true, true },
	{ "read: other PD", read_pd, EA_TERM_REMOTE_ASSOC, true, true },
	{ "read: no right", read_right, EA_TERM_REMOTE_RIGHTS, true, true },
	{ "read: offset wraps", read_wrap, EA_TERM_REMOTE_WRAP, true, true },
	{ "read: more than IRD", read_too_many, EA_TERM_STREAM, true, true },
	{ "atomic: unknown operation", atomic_op, EA_TERM_OPCODE, false, false },
	{ "atomic: one byte past", atomic_bounds, EA_TERM_REMOTE_BOUNDS, true, false },
	{ "atomic: unaligned", atomic_unaligned, EA_TERM_REMOTE_PROTECTION, true, false },
	{ "response: not asked for", resp_unasked, EA_TERM_OPCODE, false, false },
	{ "atomic response: not asked for", aresp_unasked, EA_TERM_OPCODE, false, false },
	{ "response: other STag", resp_stag, EA_TERM_TAGGED_STAG, true, false },
	{ "response: other offset", resp_to, EA_TERM_TAGGED_BOUNDS, true, false },
	{ "response: too long", resp_long, EA_TERM_TAGGED_BOUNDS, true, false },
	{ "response: too short", resp_short, EA_TERM_TAGGED_BOUNDS, true, false },
	{ "response: no end", resp_not_last, EA_TERM_TAGGED_BOUNDS, true, false },
	{ "response: gap", resp_gap, EA_TERM_TAGGED_BOUNDS, true, false },
	{ "response: of an atomic", resp_is_atomic, EA_TERM_OPCODE, false, false },
	{ "response: region gone", resp_dereg, EA_TERM_TAGGED_STAG, true, false },
	{ "atomic response: other id", aresp_id, EA_TERM_STREAM, true, false },
	{ "atomic response: short", aresp_short, EA_TERM_STREAM, true, false },
	{ "atomic response: queue 1", aresp_qn, EA_TERM_UNTAGGED_QN, true, false },
	{ "atomic response: of a READ", aresp_is_read, EA_TERM_OPCODE, false, false },
	{ "terminate: short", term_short, EA_TERM_STREAM, true, false },
	{ "terminate: long", term_long, EA_TERM_STREAM, true, false },
};

static void breaches_are_told(void **state)
{
	struct ea_terminate term;
	struct ea_rx_seg seg, next;
	const void *payload;
	struct ea_tx_msg msg;
	struct rig rig;
	struct wc wc;
	unsigned int i;
	int err;

	(void)state;
	for (i = 0; i < sizeof(breaches) / sizeof(breaches[0]); i++) {
		print_message("  %s\n", breaches[i].what);
		rig_open(&rig, false);
		rig_connect(&rig, 2, 2);
		fill(&rig, rig.b.data - PAGE, PAGE, 1);
		fill(&rig, rig.b.data, 65536, 2);
		put_recv(&rig.b, rig.b.data, 100, rig.b.key);
		put_recv(&rig.b, rig.b.data, 100, rig.b.key);
		memset(ctrl, 0, sizeof(ctrl));
		payload = breaches[i].make(&rig, &seg);
		if (!seg.tagged && seg.opcode != EA_RDMAP_TERMINATE && ea_rx_is_ctrl(seg.opcode))
			payload = ctrl;
		assert_int_equal(ea_qp_state(rig.b.side.link.qp), EA_QP_RTS);
		err = feed(&rig.b, &seg, payload);
		assert_true(err == EPROTO || err == EFAULT);
		term = expect_term(&rig.b, breaches[i].cause, &msg);
		assert_int_equal(!!term.ddp_hdr, breaches[i].ddp_hdr);
		assert_int_equal(!!term.rdmap_hdr, breaches[i].rdma_hdr);
		if (term.ddp_hdr)
			assert_memory_equal(term.ddp_hdr, seg.raw, seg.raw_len);
		if (term.rdmap_hdr)
			assert_memory_equal(term.rdmap_hdr, ctrl, EA_READ_REQ_LEN);
		assert_int_equal(rig.nevents, 1);
		assert_true(rig.events[0].async);

		/* nothing is taken any more; both receives are finished */
		next = tagged(EA_RDMAP_WRITE, rig.b.key, rig.b.data, 1, true);
		assert_int_equal(feed(&rig.b, &next, zeros), ESHUTDOWN);
		assert_true(poll(&rig, &rig.b.rcq, &wc));
		assert_int_not_equal(wc.syn, 0);
		expect_wc(&rig, &rig.b.rcq, OP_RECV, 1, SYN_FLUSH, 1, 0);
		expect_none(&rig, &rig.b.rcq);
		/* no byte was written where it should not be */
		assert_true(filled(&rig, rig.b.data - PAGE, PAGE, 1));
		assert_true(filled_from(&rig, rig.b.data, 200, 65536 - 200, 2));
		rig_close(&rig);
	}
}

static void link_error(void **state)
{
	struct ea_tx_msg msg;
	struct rig rig;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);
	ea_rx_error(rig.a.side.link.qp, EA_TERM_LLP, 0, 2);
	expect_term(&rig.a, EA_TERM_CRC, &msg);
	/* once */
	ea_rx_error(rig.a.side.link.qp, EA_TERM_LLP, 0, 2);
	assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), ESHUTDOWN);
	assert_int_equal(asyncs(&rig, EA_ASYNC_QP_FATAL, 1), 1);
	rig_close(&rig);
}

/* IRD: as many as agreed, again and again. */
static void ird_limit(void **state)
{
	uint8_t buf[EA_READ_REQ_LEN];
	struct ea_rx_seg seg;
	struct ea_tx_msg msg;
	struct rig rig;
	uint32_t msn = 1;
	int round, i;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 128, 128);
	read_req(&rig.b, buf, 10);
	for (round = 0; round < 5; round++) {
		for (i = 0; i < 128; i++) {
			seg = untagged(EA_RDMAP_READ_REQ, 1, msn++, 0, 0, sizeof(buf), true);
			assert_int_equal(feed(&rig.b, &seg, buf), 0);
		}
		for (i = 0; i < 128; i++) {
			assert_int_equal(ea_tx_next(rig.b.side.link.qp, &msg), 0);
			assert_int_equal(msg.opcode, EA_RDMAP_READ_RESP);
			assert_int_equal(msg.stag, 5);
			assert_int_equal(msg.len, 10);
			ea_tx_done(rig.b.side.link.qp, &msg);
		}
		assert_int_equal(ea_tx_next(rig.b.side.link.qp, &msg), EAGAIN);
	}
	rig_close(&rig);

	rig_open(&rig, false);
	rig_connect(&rig, 0, 0);
	seg = untagged(EA_RDMAP_READ_REQ, 1, 1, 0, 0, sizeof(buf), true);
	assert_int_equal(feed(&rig.b, &seg, buf), EPROTO);
	rig_close(&rig);
}

/* A region goes away while a response is on its way. */
static void dereg_under_response(void **state)
{
	uint8_t buf[EA_READ_REQ_LEN];
	struct iovec iov[EA_IOV_MAX];
	struct ea_rx_seg seg;
	struct ea_tx_msg msg;
	uint32_t covered;
	struct rig rig;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);
	read_req(&rig.b, buf, 5000);
	seg = untagged(EA_RDMAP_READ_REQ, 1, 1, 0, 0, sizeof(buf), true);
	assert_int_equal(feed(&rig.b, &seg, buf), 0);
	assert_int_equal(ea_tx_next(rig.b.side.link.qp, &msg), 0);
	assert_int_equal(
		ea_tx_payload(rig.b.side.link.qp, &msg, 0, 1000, iov, EA_IOV_MAX, &covered), 1);
	assert_int_equal(ea_mr_dereg(rig.dev, rig.b.key), 0);
	assert_int_equal(ea_tx_payload(rig.b.side.link.qp, &msg, 1000, 1000, iov, EA_IOV_MAX,
				       &covered),
			 -EFAULT);
	expect_term(&rig.b, EA_TERM_REMOTE_STAG, &msg);
	rig_close(&rig);
}

/* ------------------------------------------------------------------ what the peer tells us */

/* Outstanding: READ at 0, WRITE at 2, SEND at 4, atomic at 5, WRITE_IMM at 7, SEND at 9 (not taken). */
static void load(struct rig *rig)
{
	struct sge sge = { rig->a.data, 64, rig->a.key };
	struct ea_tx_msg msg;
	int i;

	put_read(&rig->a, OP_READ, 0, sge, 0x1100, 0x1000, 0);
	put_write(&rig->a, OP_WRITE, 0, &sge, 1, 0x2200, 0x2000, 0);
	put_send(&rig->a, OP_SEND, 0, &sge, 1, 0);
	put_atomic(&rig->a, OP_CAS, 0, (struct sge){ rig->a.data, 8, rig->a.key }, 0x3300, 0x3000,
		   0, 0);
	put_write(&rig->a, OP_WRITE_IMM, 0, &sge, 1, 0x4400, 0x4000, 0);
	put_send(&rig->a, OP_SEND, 0, &sge, 1, 0);
	ring_sq(&rig->a);
	for (i = 0; i < 6; i++) {
		assert_int_equal(ea_tx_next(rig->a.side.link.qp, &msg), 0);
		ea_tx_done(rig->a.side.link.qp, &msg);
	}
	expect_none(rig, &rig->a.scq);
}

/* Where the error is found, and as what, for a Terminate with this copy of a header. */
static void told(enum ea_term_cause cause, const struct ea_rx_seg *fault, int index, uint8_t syn)
{
	static const struct {
		uint16_t index;
		uint8_t op;
	} wqes[] = {
		{ 0, OP_READ }, { 2, OP_WRITE },     { 4, OP_SEND },
		{ 5, OP_CAS },	{ 7, OP_WRITE_IMM }, { 9, OP_SEND },
	};
	struct ea_terminate term;
	uint8_t buf[EA_TERMINATE_MAX];
	struct ea_rx_seg seg;
	struct rig rig;
	uint32_t len;
	int i;

	rig_open(&rig, false);
	rig_connect(&rig, 8, 8);
	put_recv(&rig.a, rig.a.data, 1, rig.a.key);
	load(&rig);
	ea_terminate_init(&term, ea_term_codes(cause), fault ? fault->raw : NULL, 40, NULL);
	len = ea_terminate_encode(&term, buf);
	seg = untagged(EA_RDMAP_TERMINATE, 2, 1, 0, 0, len, true);
	assert_int_equal(feed(&rig.a, &seg, buf), ESHUTDOWN);
	for (i = 0; i < 6; i++)
		expect_wc(&rig, &rig.a.scq, wqes[i].op, 0, wqes[i].index == index ? syn : SYN_FLUSH,
			  wqes[i].index, 0);
	expect_none(&rig, &rig.a.scq);
	expect_wc(&rig, &rig.a.rcq, OP_RECV, 1, SYN_FLUSH, 0, 0);
	assert_int_equal(ea_qp_state(rig.a.side.link.qp), EA_QP_ERROR);
	assert_int_equal(rig.a.side.how, EA_SHUT_GRACEFUL);
	assert_int_equal(asyncs(&rig, EA_ASYNC_QP_FATAL, 1), 1);
	rig_close(&rig);
}

static void terminates_are_told(void **state)
{
	struct ea_rx_seg read, write, write_far, write_imm, send, atomic_req, imm, resp, send2;

	(void)state;
	read = untagged(EA_RDMAP_READ_REQ, 1, 1, 0, 0, 28, true);
	atomic_req = untagged(EA_RDMAP_ATOMIC_REQ, 1, 2, 0, 0, 52, true);
	write = tagged(EA_RDMAP_WRITE, 0x2200, 0x2000 + 63, 1, true);
	write_far = tagged(EA_RDMAP_WRITE, 0x2200, 0x2000 + 64, 1, true);
	write_imm = tagged(EA_RDMAP_WRITE, 0x4400, 0x4000, 64, true);
	send = untagged(EA_RDMAP_SEND, 0, 1, 0, 0, 64, true);
	imm = untagged(EA_RDMAP_IMM, 0, 2, 0, 0, 8, true);
	send2 = untagged(EA_RDMAP_SEND, 0, 3, 0, 0, 64, true);
	resp = tagged(EA_RDMAP_READ_RESP, 0x2200, 0x2000, 1, true);

	told(EA_TERM_REMOTE_STAG, &read, 0, 3);
	told(EA_TERM_REMOTE_BOUNDS, &read, 0, 4);
	told(EA_TERM_REMOTE_RIGHTS, &read, 0, 5);
	told(EA_TERM_REMOTE_ASSOC, &read, 0, 6);
	told(EA_TERM_REMOTE_WRAP, &read, 0, 7);
	told(EA_TERM_REMOTE_STAG, &atomic_req, 5, 3);
	told(EA_TERM_REMOTE_PROTECTION, &atomic_req, 5, 4);
	told(EA_TERM_TAGGED_STAG, &write, 2, 3);
	told(EA_TERM_TAGGED_BOUNDS, &write, 2, 4);
	told(EA_TERM_TAGGED_RIGHTS, &write, 2, 5);
	told(EA_TERM_TAGGED_ASSOC, &write_imm, 7, 6);
	told(EA_TERM_TAGGED_WRAP, &write_imm, 7, 7);
	told(EA_TERM_UNTAGGED_LEN, &send, 4, 2);
	told(EA_TERM_CANNOT_INVALIDATE, &send, 4, 3);
	told(EA_TERM_UNTAGGED_MSN, &imm, 7, 1);
	/* that one is not sent yet; a culprit that cannot be found: the oldest has it */
	told(EA_TERM_UNTAGGED_LEN, &send2, 0, 2);
	told(EA_TERM_TAGGED_STAG, &write_far, 0, 3);
	told(EA_TERM_CRC, NULL, 0, 1);
	told(EA_TERM_RDMAP_LOCAL, NULL, 0, 1);
	/* our response was at fault, none of the requests */
	told(EA_TERM_TAGGED_STAG, &resp, -1, 0);
}

/* The write of a write with immediate is out, the immediate, which would be the second message, is not. */
static void told_before_immediate(void **state)
{
	struct ea_rx_seg seg, send = untagged(EA_RDMAP_SEND, 0, 1, 0, 0, 64, true);
	uint8_t buf[EA_TERMINATE_MAX];
	struct ea_terminate term;
	struct ea_tx_msg msg;
	struct rig rig;
	struct sge sge;
	int i;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);
	sge = (struct sge){ rig.a.data, 64, rig.a.key };
	put_read(&rig.a, OP_READ, 0, sge, 0x1100, 0x1000, 0);
	put_send(&rig.a, OP_SEND, 0, &sge, 1, 0);
	put_write(&rig.a, OP_WRITE_IMM, 0, &sge, 1, 0x4400, 0x4000, 0);
	ring_sq(&rig.a);
	for (i = 0; i < 3; i++)
		assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), 0);
	assert_int_equal(msg.opcode, EA_RDMAP_WRITE);
	ea_terminate_init(&term, ea_term_codes(EA_TERM_UNTAGGED_LEN), send.raw, 82, NULL);
	seg = untagged(EA_RDMAP_TERMINATE, 2, 1, 0, 0, ea_terminate_encode(&term, buf), true);
	assert_int_equal(feed(&rig.a, &seg, buf), ESHUTDOWN);
	expect_wc(&rig, &rig.a.scq, OP_READ, 0, SYN_FLUSH, 0, 0);
	expect_wc(&rig, &rig.a.scq, OP_SEND, 0, 2, 2, 0);
	expect_wc(&rig, &rig.a.scq, OP_WRITE_IMM, 0, SYN_FLUSH, 3, 0);
	rig_close(&rig);
}

/* A Terminate of any content ends the QP and nothing else. */
static void garbage_terminates(void **state)
{
	uint8_t buf[EA_TERMINATE_MAX];
	struct ea_rx_seg seg;
	uint32_t seed = 3, len, i;
	struct rig rig;
	int round;

	(void)state;
	for (round = 0; round < 500; round++) {
		rig_open(&rig, false);
		rig_connect(&rig, 8, 8);
		load(&rig);
		for (i = 0; i < sizeof(buf); i++) {
			seed = seed * 1103515245 + 12345;
			buf[i] = (uint8_t)(seed >> 16);
		}
		len = 4 + seed / 65536 % 49;
		seg = untagged(EA_RDMAP_TERMINATE, 2, 1, 0, 0, len, true);
		assert_int_equal(feed(&rig.a, &seg, buf), ESHUTDOWN);
		assert_int_equal(ea_qp_state(rig.a.side.link.qp), EA_QP_ERROR);
		rig_close(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(breaches_are_told),   cmocka_unit_test(link_error),
		cmocka_unit_test(ird_limit),	       cmocka_unit_test(dereg_under_response),
		cmocka_unit_test(terminates_are_told), cmocka_unit_test(told_before_immediate),
		cmocka_unit_test(garbage_terminates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
