// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The life of a QP: flushing, states, links that end, reset, destruction. */
#include "tests/core/rig.h"

static enum ea_qp_state state_of(struct qp *qp)
{
	return ea_qp_state(ea_qp_find(qp->rig->dev, qp->qpn));
}

/* k sends and m receives, then the error, then one more of each: k+1 and m+1 flushes in order. */
static void flush_fifo(void **state)
{
	static const enum ea_qp_state ways[] = { EA_QP_ERROR, EA_QP_CLOSING, EA_QP_TERMINATE };
	struct ea_tx_msg msg;
	struct rig rig;
	unsigned int w, i;
	int taken;

	(void)state;
	for (w = 0; w < 3; w++) {
		/* that many of the sends are with the link */
		for (taken = 0; taken < 3; taken++) {
			rig_open(&rig, w & 1);
			rig_connect(&rig, 1, 1);
			for (i = 0; i < 5; i++)
				put_one(&rig.a, i % 2 ? F_CE : 0);
			ring_sq(&rig.a);
			for (i = 0; i < 3; i++)
				put_recv(&rig.a, rig.a.data, 100, rig.a.key);
			for (i = 0; i < (unsigned int)taken; i++)
				assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), 0);
			assert_int_equal(ea_qp_modify(rig.dev, 1, ways[w]), 0);
			assert_int_equal(state_of(&rig.a), ways[w]);
			assert_true(rig.a.side.shut);
			assert_int_equal(rig.a.side.how, ways[w] == EA_QP_CLOSING ?
								 EA_SHUT_GRACEFUL :
								 EA_SHUT_ABORT);
			assert_int_equal(rig.a.side.link.qp == NULL, ways[w] != EA_QP_CLOSING);
			put_one(&rig.a, 0);
			ring_sq(&rig.a);
			put_recv(&rig.a, rig.a.data, 100, rig.a.key);
			for (i = 0; i < 6; i++)
				expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, SYN_FLUSH, 2 * i, 0);
			expect_none(&rig, &rig.a.scq);
			for (i = 0; i < 4; i++)
				expect_wc(&rig, &rig.a.rcq, OP_RECV, 1, SYN_FLUSH, i, 0);
			expect_none(&rig, &rig.a.rcq);
			assert_int_equal(rig.nevents, 0);

			/* what the link took has no effect any more */
			if (rig.a.side.link.qp) {
				struct iovec iov[1];
				uint32_t covered;

				ea_tx_done(rig.a.side.link.qp, &msg);
				assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), ESHUTDOWN);
				assert_int_equal(ea_tx_payload(rig.a.side.link.qp, &msg, 0, 0, iov,
							       1, &covered),
						 -ESHUTDOWN);
			}
			expect_none(&rig, &rig.a.scq);

			/* nothing after destroy */
			put_one(&rig.a, F_CE);
			assert_int_equal(ea_qp_destroy(rig.dev, 1), 0);
			ring_sq(&rig.a);
			expect_none(&rig, &rig.a.scq);
			rig_close(&rig);
		}
	}
}

/* Malformed WQEs in the flush: each gives at least one error completion, the walk ends at PI. */
static void flush_garbage(void **state)
{
	struct rig rig;
	struct wc wc;
	uint32_t n, seed = 7;
	int round, i;

	(void)state;
	for (round = 0; round < 200; round++) {
		rig_open(&rig, round & 1);
		for (i = 0; i < 512; i++) {
			seed = seed * 1103515245 + 12345;
			*at(&rig, rig.a.sq + i * 4) = (uint8_t)(seed >> 16);
			*at(&rig, rig.a.sq + i * 4 + 1) = (uint8_t)(seed >> 17);
			*at(&rig, rig.a.sq + i * 4 + 2) = (uint8_t)(seed >> 18);
			*at(&rig, rig.a.sq + i * 4 + 3) = (uint8_t)(seed >> 19);
		}
		assert_int_equal(ea_qp_modify(rig.dev, 1, EA_QP_ERROR), 0);
		ring_sq_at(&rig.a, 64);
		for (n = 0; poll(&rig, &rig.a.scq, &wc); n++) {
			assert_int_equal(wc.syn, SYN_FLUSH);
			assert_true(wc.opcode <= 18);
			assert_true(wc.index < 64);
		}
		assert_true(n >= 8 && n <= 64);
		ring_sq_at(&rig.a, 64);
		expect_none(&rig, &rig.a.scq);
		rig_close(&rig);
	}
}

static void reflush(void **state)
{
	struct rig rig;
	int i;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);
	assert_int_equal(ea_qp_reflush(rig.dev, 1, 0, 0), EINVAL);
	assert_int_equal(ea_qp_reflush(rig.dev, 99, 0, 0), ENOENT);
	assert_int_equal(ea_qp_modify(rig.dev, 1, EA_QP_ERROR), 0);
	/* posted without a doorbell */
	for (i = 0; i < 3; i++)
		put_one(&rig.a, 0);
	assert_int_equal(ea_qp_reflush(rig.dev, 1, 6, 2), 0);
	assert_int_equal(ea_qp_reflush(rig.dev, 1, 6, 2), 0);
	assert_int_equal(ea_qp_reflush(rig.dev, 1, 4, 1), 0); /* older than what is known */
	for (i = 0; i < 3; i++)
		expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, SYN_FLUSH, 2 * i, 0);
	for (i = 0; i < 2; i++)
		expect_wc(&rig, &rig.a.rcq, OP_RECV, 1, SYN_FLUSH, i, 0);
	/* the late doorbell */
	ring_sq(&rig.a);
	ring_rq_at(&rig.a, 2);
	expect_none(&rig, &rig.a.scq);
	expect_none(&rig, &rig.a.rcq);
	rig_close(&rig);
}

static void modify_table(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig, false);
	assert_int_equal(ea_qp_modify(rig.dev, 77, EA_QP_ERROR), ENOENT);
	assert_int_equal(ea_qp_modify(rig.dev, 0, EA_QP_ERROR), ENOENT);
	assert_int_equal(ea_qp_modify(rig.dev, UINT32_MAX, EA_QP_ERROR), ENOENT);
	assert_int_equal(ea_qp_modify(rig.dev, 1, EA_QP_IDLE), EINVAL);
	assert_int_equal(ea_qp_modify(rig.dev, 1, EA_QP_RTR), EINVAL);
	assert_int_equal(ea_qp_modify(rig.dev, 1, EA_QP_RTS), EINVAL);
	assert_int_equal(ea_qp_modify(rig.dev, 1, 6), EINVAL);

	/* ERROR on IDLE, with what was posted */
	put_one(&rig.a, 0);
	ring_sq(&rig.a);
	put_recv(&rig.a, 0, 0, 0);
	assert_int_equal(ea_qp_modify(rig.dev, 1, EA_QP_ERROR), 0);
	expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, SYN_FLUSH, 0, 0);
	expect_wc(&rig, &rig.a.rcq, OP_RECV, 1, SYN_FLUSH, 0, 0);
	/* again and back */
	assert_int_equal(ea_qp_modify(rig.dev, 1, EA_QP_ERROR), 0);
	assert_int_equal(ea_qp_modify(rig.dev, 1, EA_QP_CLOSING), 0);
	assert_int_equal(state_of(&rig.a), EA_QP_ERROR);
	assert_int_equal(ea_qp_connect(rig.dev, 1, &rig.a.side.link,
				       &(struct ea_conn_attr){ .ord = 1, .ird = 1 }),
			 EINVAL);
	assert_int_equal(ea_qp_connect(rig.dev, 99, &rig.a.side.link,
				       &(struct ea_conn_attr){ .ord = 1, .ird = 1 }),
			 ENOENT);

	/* CLOSING, then the ERROR that precedes destruction: the stream still ends well */
	assert_int_equal(ea_qp_connect(rig.dev, 2, &rig.b.side.link,
				       &(struct ea_conn_attr){ .ord = 129 }),
			 EINVAL);
	assert_int_equal(ea_qp_connect(rig.dev, 2, &rig.b.side.link,
				       &(struct ea_conn_attr){ .ird = 129 }),
			 EINVAL);
	assert_int_equal(ea_qp_connect(rig.dev, 2, &rig.b.side.link,
				       &(struct ea_conn_attr){ .ord = 1, .ird = 1 }),
			 0);
	assert_int_equal(ea_qp_connect(rig.dev, 2, &rig.b.side.link,
				       &(struct ea_conn_attr){ .ord = 1, .ird = 1 }),
			 EINVAL);
	assert_int_equal(ea_qp_modify(rig.dev, 2, EA_QP_CLOSING), 0);
	assert_int_equal(rig.b.side.how, EA_SHUT_GRACEFUL);
	assert_int_equal(ea_qp_modify(rig.dev, 2, EA_QP_ERROR), 0);
	assert_int_equal(state_of(&rig.b), EA_QP_ERROR);
	assert_int_equal(rig.b.side.how, EA_SHUT_GRACEFUL);
	assert_non_null(rig.b.side.link.qp);
	assert_int_equal(ea_qp_destroy(rig.dev, 2), 0);
	assert_int_equal(rig.b.side.how, EA_SHUT_ABORT);
	assert_null(rig.b.side.link.qp);
	assert_int_equal(ea_qp_destroy(rig.dev, 2), ENOENT);
	rig_close(&rig);
}

/* A closed QP is connected anew: indices go on, sequence numbers start over. */
static void connect_again(void **state)
{
	struct rig rig;
	int round;

	(void)state;
	rig_open(&rig, false);
	for (round = 0; round < 20; round++) {
		uint16_t sq = rig.a.sq_pi, rq = rig.b.rq_pi;

		rig_connect(&rig, 1, 1);
		put_recv(&rig.b, rig.b.data, 100, rig.b.key);
		put_recv(&rig.b, rig.b.data, 100, rig.b.key);
		put_send_inline(&rig.a, OP_SEND, F_CE, "abc", 3, 0);
		put_read(&rig.a, OP_READ, F_CE, (struct sge){ rig.a.data, 8, rig.a.key }, rig.b.key,
			 rig.b.data, 0);
		ring_sq(&rig.a);
		pump(&rig);
		expect_wc(&rig, &rig.a.scq, OP_SEND, 0, 0, sq, 3);
		expect_wc(&rig, &rig.a.scq, OP_READ, 0, 0, (uint16_t)(sq + 1), 8);
		expect_wc(&rig, &rig.b.rcq, OP_RECV, 1, 0, rq, 3);
		assert_int_equal(ea_qp_modify(rig.dev, 1, EA_QP_CLOSING), 0);
		ea_link_down(&rig.b.side.link, 0);
		assert_null(rig.b.side.link.qp);
		assert_int_equal(state_of(&rig.b), EA_QP_CLOSING);
		expect_wc(&rig, &rig.b.rcq, OP_RECV, 1, SYN_FLUSH, (uint16_t)(rq + 1), 0);
		if (round % 2)
			ea_link_down(&rig.a.side.link, 0);
		/* else the old link of a is told to go away by the new connection */
		expect_none(&rig, &rig.a.scq);
	}
	assert_int_equal(rig.nevents, 0);
	rig_close(&rig);
}

/* The stream of a closed QP need not have ended: a new connection gets rid of it. */
static void connect_over_old_link(void **state)
{
	struct ea_conn_attr attr = { .ord = 1, .ird = 1 };
	struct side second = { 0 };
	struct rig rig;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);
	second.link.ops = rig.a.side.link.ops;
	assert_int_equal(ea_qp_modify(rig.dev, 1, EA_QP_CLOSING), 0);
	assert_int_equal(rig.a.side.how, EA_SHUT_GRACEFUL);
	assert_int_equal(ea_qp_connect(rig.dev, 1, &second.link, &attr), 0);
	assert_int_equal(rig.a.side.how, EA_SHUT_ABORT);
	assert_null(rig.a.side.link.qp);
	assert_ptr_equal(second.link.qp, ea_qp_find(rig.dev, 1));
	/* its end is nobody's */
	ea_link_down(&rig.a.side.link, ECONNRESET);
	assert_int_equal(state_of(&rig.a), EA_QP_RTS);
	rig_close(&rig);
}

/* A link that keeps the rest of its frame when it is told of the end. */
static struct {
	struct ea_tx_msg msg;
	int result;
	uint8_t copy[100];
} kept;

static void keep(struct ea_link *link, enum ea_shutdown how)
{
	struct iovec iov[2];
	uint32_t covered;

	if (how == EA_SHUT_ABORT)
		return;
	kept.result = ea_tx_payload(link->qp, &kept.msg, 40, 60, iov, 2, &covered);
	if (kept.result == 1)
		memcpy(kept.copy, iov[0].iov_base, covered);
}

static void rest_of_frame(void **state)
{
	struct ea_link_ops ops;
	struct iovec iov[2];
	uint32_t covered;
	struct rig rig;
	int how;

	(void)state;
	for (how = 0; how < 3; how++) {
		rig_open(&rig, false);
		rig_connect(&rig, 1, 1);
		ops = *rig.a.side.link.ops;
		ops.shutdown = keep;
		rig.a.side.link.ops = &ops;
		fill(&rig, rig.a.data, 100, 3);
		put_one(&rig.a, F_CE);
		ring_sq(&rig.a);
		assert_int_equal(ea_tx_next(rig.a.side.link.qp, &kept.msg), 0);
		kept.result = 77;
		switch (how) {
		case 0:
			assert_int_equal(ea_qp_modify(rig.dev, 1, EA_QP_CLOSING), 0);
			break;
		case 1:
			ea_rx_error(rig.a.side.link.qp, EA_TERM_LLP, 0, 2);
			break;
		case 2:
			/* the memory itself is gone: no second error out of the first */
			assert_int_equal(ea_mr_dereg(rig.dev, rig.a.key), 0);
			assert_int_equal(ea_tx_payload(rig.a.side.link.qp, &kept.msg, 0, 100, iov,
						       2, &covered),
					 -EFAULT);
			break;
		}
		assert_int_equal(kept.result, how == 2 ? -EFAULT : 1);
		if (how < 2) {
			uint8_t want[60];

			peek(&rig, rig.a.data + 40, want, 60);
			assert_memory_equal(kept.copy, want, 60);
		}
		assert_int_equal(ea_tx_payload(rig.a.side.link.qp, &kept.msg, 0, 100, iov, 2,
					       &covered),
				 -ESHUTDOWN);
		expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, how == 2 ? 10 : SYN_FLUSH, 0, 0);
		expect_none(&rig, &rig.a.scq);
		rig_close(&rig);
	}
}

static void link_ends(void **state)
{
	struct {
		int err;
		bool mid_send, mid_write;
		enum ea_qp_state state;
		unsigned int fatal;
		uint8_t syn;
		bool acks;
	} cases[] = {
		{ 0, false, false, EA_QP_CLOSING, 0, SYN_FLUSH, false },
		{ ECONNRESET, false, false, EA_QP_ERROR, 1, SYN_FLUSH, false },
		{ EPROTO, false, false, EA_QP_ERROR, 1, SYN_FLUSH, false },
		{ ETIMEDOUT, false, false, EA_QP_ERROR, 1, SYN_RETRY, false },
		{ 0, true, false, EA_QP_ERROR, 1, SYN_FLUSH, false },
		{ 0, false, true, EA_QP_ERROR, 1, SYN_FLUSH, false },
		{ 0, false, false, EA_QP_CLOSING, 0, SYN_FLUSH, true },
		{ ECONNRESET, false, false, EA_QP_ERROR, 1, SYN_RETRY, true },
		{ EPROTO, false, true, EA_QP_ERROR, 1, SYN_RETRY, true },
	};
	struct ea_rx_seg seg;
	struct rig rig;
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		rig_open(&rig, false);
		rig.acks = cases[i].acks;
		rig_connect(&rig, 1, 1);
		put_recv(&rig.a, rig.a.data, 100, rig.a.key);
		put_one(&rig.a, 0);
		put_one(&rig.a, 0);
		ring_sq(&rig.a);
		if (cases[i].mid_send) {
			seg = untagged(EA_RDMAP_SEND, 0, 1, 0, 0, 0, false);
			assert_int_equal(feed(&rig.a, &seg, NULL), 0);
		}
		if (cases[i].mid_write) {
			seg = tagged(EA_RDMAP_WRITE, 0, 0, 0, false);
			assert_int_equal(feed(&rig.a, &seg, NULL), 0);
		}
		rig.a.side.shut = false;
		ea_link_down(&rig.a.side.link, cases[i].err);
		assert_null(rig.a.side.link.qp);
		assert_false(rig.a.side.shut);
		assert_int_equal(state_of(&rig.a), cases[i].state);
		assert_int_equal(asyncs(&rig, EA_ASYNC_QP_FATAL, 1), cases[i].fatal);
		expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, cases[i].syn, 0, 0);
		expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, SYN_FLUSH, 2, 0);
		expect_wc(&rig, &rig.a.rcq, OP_RECV, 1, SYN_FLUSH, 0, 0);
		/* twice */
		ea_link_down(&rig.a.side.link, ECONNRESET);
		assert_int_equal(state_of(&rig.a), cases[i].state);
		rig_close(&rig);
	}
}

/* Before it was reached, after that, and when the QP has left by itself. */
static void unreachable(void **state)
{
	struct rig rig;
	int how;

	(void)state;
	for (how = 0; how < 3; how++) {
		rig_open(&rig, false);
		rig.acks = true;
		assert_int_equal(ea_qp_unreachable(rig.dev, 99), ENOENT);
		if (how)
			rig_connect(&rig, 1, 1);
		put_recv(&rig.a, rig.a.data, 100, rig.a.key);
		put_one(&rig.a, 0);
		put_one(&rig.a, F_CE);
		ring_sq(&rig.a);
		if (how == 2)
			assert_int_equal(ea_qp_modify(rig.dev, 1, EA_QP_ERROR), 0);
		assert_int_equal(ea_qp_unreachable(rig.dev, 1), 0);
		assert_int_equal(state_of(&rig.a), EA_QP_ERROR);
		assert_int_equal(asyncs(&rig, EA_ASYNC_QP_FATAL, 1), how < 2);
		expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, how < 2 ? SYN_RETRY : SYN_FLUSH, 0, 0);
		expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, SYN_FLUSH, 2, 0);
		expect_wc(&rig, &rig.a.rcq, OP_RECV, 1, SYN_FLUSH, 0, 0);
		if (how) {
			assert_true(rig.a.side.shut);
			assert_int_equal(rig.a.side.how, EA_SHUT_ABORT);
			assert_null(rig.a.side.link.qp);
		}
		/* what comes later is flushed */
		put_one(&rig.a, 0);
		ring_sq(&rig.a);
		expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, SYN_FLUSH, 4, 0);
		expect_none(&rig, &rig.a.scq);
		rig_close(&rig);
	}
}

static void reset(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);
	assert_int_equal(ea_qp_reset(rig.dev, 99), ENOENT);
	put_one(&rig.a, F_CE);
	put_one(&rig.a, F_CE);
	ring_sq(&rig.a);
	put_recv(&rig.a, rig.a.data, 100, rig.a.key);
	assert_int_equal(ea_qp_reset(rig.dev, 1), 0);
	assert_int_equal(rig.a.side.how, EA_SHUT_ABORT);
	assert_int_equal(state_of(&rig.a), EA_QP_IDLE);
	expect_none(&rig, &rig.a.scq);
	expect_none(&rig, &rig.a.rcq);
	assert_int_equal(rig.nevents, 0);

	rig.a.sq_pi = 0;
	rig.a.rq_pi = 0;
	assert_int_equal(ea_qp_reset(rig.dev, 2), 0);
	rig_connect(&rig, 1, 1);
	put_one(&rig.a, F_CE);
	ring_sq(&rig.a);
	pump(&rig);
	expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, 0, 0, 100);
	rig_close(&rig);
}

static void device_reset(void **state)
{
	struct ea_stats stats;
	struct rig rig;
	struct sge sge;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);
	sge = (struct sge){ rig.a.data, 3000, rig.a.key };
	put_write(&rig.a, OP_WRITE, 0, &sge, 1, rig.b.key, rig.b.data, 0);
	ring_sq(&rig.a);
	pump(&rig);
	ea_dev_stats(rig.dev, &stats);
	assert_int_equal(stats.tx_reqs, 1);
	assert_int_equal(stats.tx_msgs, 1);
	assert_int_equal(stats.tx_bytes, 3000);
	assert_int_equal(stats.rx_msgs, 1);
	assert_int_equal(stats.rx_bytes, 3000);

	put_one(&rig.a, F_CE);
	ring_sq(&rig.a);
	ea_dev_reset(rig.dev);
	assert_int_equal(rig.a.side.how, EA_SHUT_ABORT);
	assert_int_equal(rig.b.side.how, EA_SHUT_ABORT);
	assert_null(rig.a.side.link.qp);
	assert_null(ea_qp_find(rig.dev, 1));
	ring_sq(&rig.a);
	arm(&rig, &rig.a.scq, false);
	assert_int_equal(ea_mr_dereg(rig.dev, rig.a.key), ENOENT);
	assert_int_equal(ea_cq_destroy(rig.dev, 1), ENOENT);
	expect_none(&rig, &rig.a.scq);
	assert_int_equal(rig.nevents, 0);

	/* everything starts from zero */
	rig.next = 0;
	memset(rig.mem, 0, MEM_SIZE);
	qp_open(&rig, &rig.a, 1, SQ_SHIFT, RQ_SHIFT);
	qp_open(&rig, &rig.b, 2, SQ_SHIFT, RQ_SHIFT);
	rig_connect(&rig, 1, 1);
	put_one(&rig.a, F_CE);
	ring_sq(&rig.a);
	pump(&rig);
	expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, 0, 0, 100);
	rig_close(&rig);
}

static void create_checks(void **state)
{
	struct ea_qp_attr good, attr;
	struct ea_dev_attr dev = {
		.max_qp = 256, .max_cq = 2, .max_mr = 2, .max_cqe_shift = 23, .max_rq_shift = 15
	};
	struct ea_dev *d;
	struct rig rig;

	(void)state;
	rig_open(&rig, false);
	good = (struct ea_qp_attr){
		.qpn = 50, .pdn = PD, .scqn = 1, .rcqn = 2, .sq_shift = 7, .rq_shift = 7
	};
	good.sq = (struct ea_pages){ .form = EA_PAGES_INLINE,
				     .page_shift = 12,
				     .npages = 1,
				     .addr = { rig_alloc(&rig, PAGE) } };
	good.rq = good.sq;
	attr = good;
	attr.qpn = 0;
	assert_int_equal(ea_qp_create(rig.dev, &attr), EINVAL);
	attr.qpn = 256;
	assert_int_equal(ea_qp_create(rig.dev, &attr), EINVAL);
	attr.qpn = 1;
	assert_int_equal(ea_qp_create(rig.dev, &attr), EEXIST);
	attr = good;
	attr.scqn = 99;
	assert_int_equal(ea_qp_create(rig.dev, &attr), ENOENT);
	attr = good;
	attr.rcqn = UINT32_MAX;
	assert_int_equal(ea_qp_create(rig.dev, &attr), ENOENT);
	attr = good;
	attr.sq_shift = 16;
	assert_int_equal(ea_qp_create(rig.dev, &attr), EINVAL);
	attr = good;
	attr.rq_shift = 16;
	assert_int_equal(ea_qp_create(rig.dev, &attr), EINVAL);
	attr = good;
	attr.sq_shift = 8;
	assert_int_equal(ea_qp_create(rig.dev, &attr), EINVAL);
	attr = good;
	attr.rq_shift = 8;
	assert_int_equal(ea_qp_create(rig.dev, &attr), EINVAL);
	attr = good;
	attr.sq.first_off = 16;
	assert_int_equal(ea_qp_create(rig.dev, &attr), EINVAL);
	assert_int_equal(ea_qp_create(rig.dev, &good), 0);
	assert_int_equal(ea_qp_num(ea_qp_find(rig.dev, 50)), 50);
	assert_int_equal(ea_qp_state(ea_qp_find(rig.dev, 50)), EA_QP_IDLE);
	rig_close(&rig);

	d = ea_dev_create(&dev, NULL, NULL, NULL);
	assert_non_null(d);
	ea_dev_destroy(d);
	dev.max_qp = 255;
	assert_null(ea_dev_create(&dev, NULL, NULL, NULL));
	assert_int_equal(errno, EINVAL);
	dev.max_qp = 1 << 21;
	assert_null(ea_dev_create(&dev, NULL, NULL, NULL));
	dev.max_qp = 256;
	dev.max_cq = 1;
	assert_null(ea_dev_create(&dev, NULL, NULL, NULL));
	dev.max_cq = 2;
	dev.max_mr = (1 << 24) + 1;
	assert_null(ea_dev_create(&dev, NULL, NULL, NULL));
	dev.max_mr = 2;
	dev.max_cqe_shift = 24;
	assert_null(ea_dev_create(&dev, NULL, NULL, NULL));
	dev.max_cqe_shift = 1;
	dev.max_rq_shift = 16;
	assert_null(ea_dev_create(&dev, NULL, NULL, NULL));
}

/* The ring's memory goes away under a live QP. */
static void ring_gone(void **state)
{
	struct ea_tx_msg msg;
	struct rig rig;

	(void)state;
	rig_open(&rig, true);
	rig_connect(&rig, 1, 1);
	put_one(&rig.a, F_CE);
	put_one(&rig.a, F_CE);
	ring_sq(&rig.a);
	rig.fail_at = rig.a.sq;
	ea_dev_memory_changed(rig.dev);
	assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), EAGAIN);
	/* how many there were cannot be told */
	expect_wc(&rig, &rig.a.scq, OP_SEND, 0, SYN_FORMAT, 0, 0);
	expect_none(&rig, &rig.a.scq);

	put_recv(&rig.b, rig.b.data, 10, rig.b.key);
	rig.fail_at = rig.b.rq;
	ea_dev_memory_changed(rig.dev);
	{
		struct ea_rx_seg seg = untagged(EA_RDMAP_SEND, 0, 1, 0, 0, 0, true);

		assert_int_equal(feed(&rig.b, &seg, NULL), EPROTO);
	}
	expect_wc(&rig, &rig.b.rcq, OP_RECV, 1, 2, 0, 0);
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flush_fifo),	 cmocka_unit_test(flush_garbage),
		cmocka_unit_test(reflush),	 cmocka_unit_test(modify_table),
		cmocka_unit_test(connect_again), cmocka_unit_test(connect_over_old_link),
		cmocka_unit_test(rest_of_frame), cmocka_unit_test(link_ends),
		cmocka_unit_test(unreachable),	 cmocka_unit_test(reset),
		cmocka_unit_test(device_reset),	 cmocka_unit_test(create_checks),
		cmocka_unit_test(ring_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
