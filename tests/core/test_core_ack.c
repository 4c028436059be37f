// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Connections on which a Write or Send completes when the peer says so. */
#include "adapter/core/hw.h"
#include "tests/core/rig.h"

static void open_acked(struct rig *rig)
{
	rig_open(rig, false);
	rig->acks = true;
	rig_connect(rig, 16, 16);
}

static struct ea_qp *core_qp(struct qp *qp)
{
	return ea_qp_find(qp->rig->dev, qp->qpn);
}

/* Hand the next message of @from, a control message or up to 100 bytes, to @to; what feed() says. */
static int carry(struct qp *from, struct qp *to, uint8_t opcode, struct ea_tx_msg *msg)
{
	struct ea_rx_seg seg;
	uint8_t payload[100];

	assert_int_equal(ea_tx_next(core_qp(from), msg), 0);
	assert_int_equal(msg->opcode, opcode);
	seg = carry_segment(msg, 0, msg->ctrl_len ? msg->ctrl_len : msg->len, true);
	peek(from->rig, from->data, payload, sizeof(payload));
	ea_tx_done(core_qp(from), msg);
	return feed(to, &seg, msg->ctrl_len ? msg->ctrl : payload);
}

static void expect_ack(struct qp *from, struct qp *to, uint32_t count)
{
	struct ea_tx_msg msg;

	assert_int_equal(carry(from, to, EA_RDMAP_ACK, &msg), 0);
	assert_false(msg.tagged);
	assert_int_equal(msg.qn, EA_QN_ACK);
	assert_int_equal(msg.ctrl_len, EA_ACK_LEN);
	assert_int_equal(ea_ack_decode(msg.ctrl), count);
	assert_int_equal(ea_tx_next(core_qp(from), &msg), EAGAIN);
}

static void not_before(void **state)
{
	struct ea_tx_msg msg;
	struct rig rig;
	struct sge sge;

	(void)state;
	open_acked(&rig);
	put_one(&rig.a, F_CE);
	ring_sq(&rig.a);
	rig.b.side.ready = false;
	assert_int_equal(carry(&rig.a, &rig.b, EA_RDMAP_WRITE, &msg), 0);
	assert_true(rig.b.side.ready);
	expect_none(&rig, &rig.a.scq);
	expect_ack(&rig.b, &rig.a, 1);
	expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, 0, 0, 100);

	/* one word for several messages, the write and the immediate of one request among them */
	put_one(&rig.a, 0);
	sge = sge_of(&rig.a, 0, 50);
	put_write(&rig.a, OP_WRITE_IMM, F_CE, &sge, 1, rig.b.key, rig.b.data, 7);
	put_one(&rig.a, F_CE);
	ring_sq(&rig.a);
	put_recv(&rig.b, rig.b.data, 100, rig.b.key);
	assert_int_equal(carry(&rig.a, &rig.b, EA_RDMAP_WRITE, &msg), 0);
	assert_int_equal(carry(&rig.a, &rig.b, EA_RDMAP_WRITE, &msg), 0);
	expect_ack(&rig.b, &rig.a, 3);
	expect_none(&rig, &rig.a.scq);
	assert_int_equal(carry(&rig.a, &rig.b, EA_RDMAP_IMM, &msg), 0);
	assert_int_equal(carry(&rig.a, &rig.b, EA_RDMAP_WRITE, &msg), 0);
	expect_none(&rig, &rig.a.scq);
	expect_ack(&rig.b, &rig.a, 5);
	expect_wc(&rig, &rig.a.scq, OP_WRITE_IMM, 0, 0, 4, 50);
	expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, 0, 6, 100);
	expect_none(&rig, &rig.a.scq);

	/* a write of nothing has no effect to wait for; only its immediate has */
	put_write(&rig.a, OP_WRITE, F_CE, NULL, 0, 0, 0, 0);
	put_write(&rig.a, OP_WRITE_IMM, F_CE, NULL, 0, 0, 0, 7);
	ring_sq(&rig.a);
	put_recv(&rig.b, rig.b.data, 100, rig.b.key);
	assert_int_equal(carry(&rig.a, &rig.b, EA_RDMAP_WRITE, &msg), 0);
	expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, 0, 8, 0);
	assert_int_equal(carry(&rig.a, &rig.b, EA_RDMAP_WRITE, &msg), 0);
	assert_int_equal(ea_tx_next(core_qp(&rig.b), &msg), EAGAIN);
	assert_int_equal(carry(&rig.a, &rig.b, EA_RDMAP_IMM, &msg), 0);
	expect_none(&rig, &rig.a.scq);
	expect_ack(&rig.b, &rig.a, 6);
	expect_wc(&rig, &rig.a.scq, OP_WRITE_IMM, 0, 0, 9, 0);
	expect_none(&rig, &rig.a.scq);
	rig_close(&rig);
}

/* A Send that finds no receive request is not acknowledged. */
static void held(void **state)
{
	struct ea_tx_msg msg;
	struct rig rig;
	struct sge sge;

	(void)state;
	open_acked(&rig);
	sge = sge_of(&rig.a, 0, 10);
	put_send(&rig.a, OP_SEND, F_CE, &sge, 1, 0);
	ring_sq(&rig.a);
	pump(&rig);
	expect_none(&rig, &rig.a.scq);
	put_recv(&rig.b, rig.b.data, 100, rig.b.key);
	pump(&rig);
	expect_wc(&rig, &rig.b.rcq, OP_RECV, 1, 0, 0, 10);
	expect_wc(&rig, &rig.a.scq, OP_SEND, 0, 0, 0, 10);
	assert_int_equal(ea_tx_next(core_qp(&rig.b), &msg), EAGAIN);
	rig_close(&rig);
}

/* All kinds mixed, in both directions at once, over several laps of the index. */
static void order(void **state)
{
	struct rig rig;
	struct sge sge;
	struct qp *qp;
	int round, side;
	uint16_t first;

	(void)state;
	open_acked(&rig);
	for (round = 0; round < 20000; round++) {
		for (side = 0; side < 2; side++) {
			struct qp *peer = side ? &rig.a : &rig.b;

			qp = side ? &rig.b : &rig.a;
			put_recv(peer, peer->data + 200, 100, peer->key);
			sge = sge_of(qp, 0, 100);
			put_write(qp, OP_WRITE, 0, &sge, 1, peer->key, peer->data + 100, 0);
			sge = sge_of(qp, 300, 100);
			first = put_read(qp, OP_READ, F_CE, sge, peer->key, peer->data, 0);
			sge = sge_of(qp, 0, round % 100);
			put_send(qp, OP_SEND, F_CE, &sge, 1, 0);
			sge = sge_of(qp, 400, 8);
			put_atomic(qp, OP_FAA, F_CE, sge, peer->key, peer->data + 512, 1, 0);
			ring_sq(qp);
		}
		pump(&rig);
		for (side = 0; side < 2; side++) {
			qp = side ? &rig.b : &rig.a;
			first = qp->sq_pi - 5;
			expect_wc(&rig, &qp->scq, OP_READ, 0, 0, first, 100);
			expect_wc(&rig, &qp->scq, OP_SEND, 0, 0, (uint16_t)(first + 2),
				  round % 100);
			expect_wc(&rig, &qp->scq, OP_FAA, 0, 0, (uint16_t)(first + 3), 8);
			expect_none(&rig, &qp->scq);
			expect_wc(&rig, &qp->rcq, OP_RECV, 1, 0, (uint16_t)(qp->rq_pi - 1),
				  round % 100);
		}
	}
	rig_close(&rig);
}

/* An error at the peer finds its own request: those before it succeed, those behind are flushed. */
static void error_is_exact(void **state)
{
	static const struct {
		uint32_t stag_xor;
		uint64_t off;
		uint32_t syn;
	} cases[] = {
		{ 1, 0, EA_SYN_RECV_STAG },
		{ 0x100000, 0, EA_SYN_RECV_STAG },
		{ 0, DATA_SIZE - 99, EA_SYN_RECV_ADDR },
		{ 0, UINT64_MAX, EA_SYN_RECV_ADDR },
	};
	struct rig rig;
	struct sge sge;
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		open_acked(&rig);
		put_one(&rig.a, F_CE);
		put_one(&rig.a, 0);
		sge = sge_of(&rig.a, 0, 100);
		put_write(&rig.a, OP_WRITE, 0, &sge, 1, rig.b.key ^ cases[i].stag_xor,
			  rig.b.data + cases[i].off, 0);
		put_one(&rig.a, F_CE);
		ring_sq(&rig.a);
		pump(&rig);
		expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, 0, 0, 100);
		expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, cases[i].syn, 4, 0);
		expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, SYN_FLUSH, 6, 0);
		expect_none(&rig, &rig.a.scq);
		rig_close(&rig);
	}
}

/* Counts that cannot be: nothing new, more than was sent; and a word nobody agreed on. */
static void lies(void **state)
{
	static const uint32_t counts[] = { 0, 2, 3, 0x80000000, UINT32_MAX };
	uint8_t payload[EA_ACK_LEN];
	struct ea_rx_seg seg;
	struct ea_tx_msg msg;
	unsigned int i;
	struct rig rig;

	(void)state;
	for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		open_acked(&rig);
		put_one(&rig.a, F_CE);
		put_one(&rig.a, F_CE);
		ring_sq(&rig.a);
		assert_int_equal(ea_tx_next(core_qp(&rig.a), &msg), 0);
		ea_tx_done(core_qp(&rig.a), &msg);
		seg = untagged(EA_RDMAP_ACK, EA_QN_ACK, 1, 0, 0, EA_ACK_LEN, true);
		assert_int_equal(feed(&rig.a, &seg, (ea_ack_encode(counts[i], payload), payload)),
				 EPROTO);
		expect_term(&rig.a, EA_TERM_STREAM, &msg);
		expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, SYN_FLUSH, 0, 0);
		expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, SYN_FLUSH, 2, 0);
		rig_close(&rig);
	}

	rig_open(&rig, false);
	rig_connect(&rig, 16, 16);
	seg = untagged(EA_RDMAP_ACK, EA_QN_ACK, 1, 0, 0, EA_ACK_LEN, true);
	assert_int_equal(feed(&rig.a, &seg, (ea_ack_encode(1, payload), payload)), EPROTO);
	expect_term(&rig.a, EA_TERM_OPCODE, &msg);
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(not_before),	  cmocka_unit_test(held), cmocka_unit_test(order),
		cmocka_unit_test(error_is_exact), cmocka_unit_test(lies),
	};

	return cmocka_run_group_tests_name("ack", tests, NULL, NULL);
}
