// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The send queue: doorbells, the order it keeps, its indices, and memory that goes away. */
#include "tests/core/rig.h"

static void doorbells(void **state)
{
	struct ea_tx_msg msg;
	struct rig rig;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);

	/* numbers of nobody */
	ea_db_sq(rig.dev, 0);
	ea_db_sq(rig.dev, UINT64_MAX);
	ea_db_sq(rig.dev, 100ull << 32 | 2);
	ea_db_rq(rig.dev, 0);
	ea_db_rq(rig.dev, UINT64_MAX);
	ea_db_rq(rig.dev, 100ull << 32 | 2);
	ea_db_cq(rig.dev, UINT64_MAX);
	ea_db_cq(rig.dev, 0);

	/* a second one in the middle of a chain, and an old one */
	put_one(&rig.a, F_CE);
	put_one(&rig.a, F_CE);
	ring_sq(&rig.a);
	assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), 0);
	ring_sq_at(&rig.a, 2);
	ring_sq_at(&rig.a, 0);
	assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), 0);
	assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), EAGAIN);
	assert_int_equal(ea_qp_state(rig.a.side.link.qp), EA_QP_RTS);

	/* behind what is finished, by up to the ring */
	ring_sq_at(&rig.a, 0xffff);
	ring_sq_at(&rig.a, (uint16_t)-64);
	assert_int_equal(ea_qp_state(rig.a.side.link.qp), EA_QP_RTS);
	expect_none(&rig, &rig.a.scq);

	/* one block more than the ring has */
	ring_sq_at(&rig.a, 65);
	expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, SYN_FORMAT, 0, 0);
	expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, SYN_FLUSH, 2, 0);
	expect_none(&rig, &rig.a.scq);
	expect_term(&rig.a, EA_TERM_RDMAP_LOCAL, &msg);
	assert_int_equal(asyncs(&rig, EA_ASYNC_QP_FATAL, 1), 1);
	rig_close(&rig);

	/* without a connection */
	rig_open(&rig, false);
	ring_sq_at(&rig.a, 0x8000);
	assert_int_equal(ea_qp_state(ea_qp_find(rig.dev, 1)), EA_QP_ERROR);
	assert_int_equal(asyncs(&rig, EA_ASYNC_QP_FATAL, 1), 1);
	rig_close(&rig);
}

/* A full ring is all right, and doorbells before the connection are served by it. */
static void full_ring_before_connect(void **state)
{
	uint16_t index;
	struct rig rig;
	int i;

	(void)state;
	rig_open(&rig, true);
	for (i = 0; i < 32; i++)
		put_one(&rig.a, F_CE);
	ring_sq(&rig.a);
	pump(&rig);
	expect_none(&rig, &rig.a.scq);
	fill(&rig, rig.a.data, 100, 8);
	rig_connect(&rig, 0, 0);
	/* tx_ready came from ea_qp_connect() */
	assert_true(rig.a.side.ready);
	pump(&rig);
	for (index = 0, i = 0; i < 32; i++, index += 2)
		expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, 0, index, 100);
	expect_none(&rig, &rig.a.scq);
	assert_true(filled(&rig, rig.b.data, 100, 8));
	rig_close(&rig);
}

/* Three laps of the 16-bit index with WQEs of one to four blocks. */
static void laps(void **state)
{
	uint32_t seed = 1, n, i, total = 0, rounds = 0;
	struct sge sge[6];
	uint16_t index[8];
	uint32_t len[8];
	struct rig rig;
	int k, count;

	(void)state;
	rig_open_bare(&rig, true);
	/* 256 blocks on two pages, so that rings that are not contiguous are used */
	qp_open(&rig, &rig.a, 1, 8, 4);
	qp_open(&rig, &rig.b, 2, 8, 4);
	rig_connect(&rig, 1, 1);
	fill(&rig, rig.a.data, 4096, 4);
	while (total < 3 * 65536 + 100) {
		count = 1 + rounds % 8;
		for (k = 0; k < count; k++) {
			seed = seed * 1103515245 + 12345;
			n = seed >> 16 & 7;
			if (n > 6)
				n = 0;
			len[k] = 0;
			for (i = 0; i < n; i++) {
				sge[i] = sge_of(&rig.a, 100 * i, 1 + (seed >> 20 & 31));
				len[k] += sge[i].len;
			}
			index[k] = put_write(&rig.a, OP_WRITE, F_CE, sge, n, rig.b.key,
					     rig.b.data + 1024 * k, 0);
			assert_int_equal(index[k], (uint16_t)total);
			total += 1 + (n + 1) / 2;
		}
		ring_sq(&rig.a);
		pump(&rig);
		for (k = 0; k < count; k++)
			expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, 0, index[k], len[k]);
		expect_none(&rig, &rig.a.scq);
		if (len[count - 1]) {
			uint8_t want, got;

			peek(&rig, rig.a.data, &want, 1);
			peek(&rig, rig.b.data + 1024 * (count - 1), &got, 1);
			assert_int_equal(want, got);
			poke(&rig, rig.b.data + 1024 * (count - 1), "\0", 1);
		}
		rounds++;
	}
	rig_close(&rig);
}

/* The deepest ring: 32768 blocks, all in use, index differences of half the 16 bits. */
static void deepest_ring(void **state)
{
	struct rig rig;
	struct wc wc;
	uint32_t i;
	int lap;

	(void)state;
	rig_open_bare(&rig, false);
	qp_open(&rig, &rig.a, 1, 15, 0);
	qp_open(&rig, &rig.b, 2, 6, 15);
	rig_connect(&rig, 1, 1);
	for (lap = 0; lap < 5; lap++) {
		for (i = 0; i < 32768; i++) {
			put_send(&rig.a, OP_SEND, i % 128 == 127 ? F_CE : 0, NULL, 0, 0);
			put_recv(&rig.b, 0, 0, 0);
		}
		ring_sq(&rig.a);
		while (rig.a.side.ready) {
			/* the CQs are small: take what comes */
			struct ea_tx_msg msg;
			struct ea_rx_seg seg;

			if (ea_tx_next(rig.a.side.link.qp, &msg))
				break;
			seg = carry_segment(&msg, 0, 0, true);
			assert_int_equal(feed(&rig.b, &seg, NULL), 0);
			ea_tx_done(rig.a.side.link.qp, &msg);
			assert_true(poll(&rig, &rig.b.rcq, &wc));
			assert_int_equal(wc.syn, 0);
			if (poll(&rig, &rig.a.scq, &wc)) {
				assert_int_equal(wc.syn, 0);
				assert_int_equal(wc.index % 128, 127);
			}
		}
		assert_int_equal(rig.a.scq.ci, 256 * (lap + 1));
		assert_int_equal(rig.b.rcq.ci, 32768 * (lap + 1));
	}
	rig_close(&rig);
}

static void unsignalled(void **state)
{
	struct rig rig;
	int i;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);
	for (i = 0; i < 100; i++) {
		put_one(&rig.a, i % 10 == 9 ? F_CE : 0);
		ring_sq(&rig.a);
		pump(&rig);
		if (i % 10 == 9)
			expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, 0, (uint16_t)(2 * i), 100);
		expect_none(&rig, &rig.a.scq);
	}
	rig_close(&rig);
}

/* Completions are in order although a WRITE ends before the READ in front of it. */
static void order(void **state)
{
	struct ea_tx_msg read, write;
	struct ea_rx_seg seg;
	struct rig rig;
	uint8_t data[100] = { 0 };

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);
	put_read(&rig.a, OP_READ, F_CE, sge_of(&rig.a, 4096, 100), rig.b.key, rig.b.data, 0);
	put_one(&rig.a, F_CE);
	ring_sq(&rig.a);
	assert_int_equal(ea_tx_next(rig.a.side.link.qp, &read), 0);
	assert_int_equal(ea_tx_next(rig.a.side.link.qp, &write), 0);
	ea_tx_done(rig.a.side.link.qp, &read);
	ea_tx_done(rig.a.side.link.qp, &write);
	expect_none(&rig, &rig.a.scq);
	seg = tagged(EA_RDMAP_READ_RESP, rig.a.key, rig.a.data + 4096, 100, true);
	assert_int_equal(feed(&rig.a, &seg, data), 0);
	expect_wc(&rig, &rig.a.scq, OP_READ, 0, 0, 0, 100);
	expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, 0, 2, 100);
	rig_close(&rig);
}

static void fence(void **state)
{
	struct ea_tx_msg msg;
	struct ea_rx_seg seg;
	uint8_t data[100] = { 0 };
	struct rig rig;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 4, 4);
	put_read(&rig.a, OP_READ, F_CE, sge_of(&rig.a, 4096, 50), rig.b.key, rig.b.data, 0);
	put_read(&rig.a, OP_READ, F_CE, sge_of(&rig.a, 8192, 50), rig.b.key, rig.b.data, 0);
	put_one(&rig.a, 0);
	put_one(&rig.a, F_FENCE);
	ring_sq(&rig.a);
	assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), 0);
	ea_tx_done(rig.a.side.link.qp, &msg);
	assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), 0);
	ea_tx_done(rig.a.side.link.qp, &msg);
	/* no fence: passes */
	assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), 0);
	assert_int_equal(msg.opcode, EA_RDMAP_WRITE);
	ea_tx_done(rig.a.side.link.qp, &msg);
	assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), EAGAIN);
	rig.a.side.ready = false;
	seg = tagged(EA_RDMAP_READ_RESP, rig.a.key, rig.a.data + 4096, 50, true);
	assert_int_equal(feed(&rig.a, &seg, data), 0);
	assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), EAGAIN);
	rig.a.side.ready = false;
	seg = tagged(EA_RDMAP_READ_RESP, rig.a.key, rig.a.data + 8192, 50, true);
	assert_int_equal(feed(&rig.a, &seg, data), 0);
	assert_true(rig.a.side.ready);
	assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), 0);
	assert_int_equal(msg.opcode, EA_RDMAP_WRITE);
	rig_close(&rig);
}

static void ord_limit(void **state)
{
	static const uint8_t ords[] = { 1, 3, 128 };
	struct ea_tx_msg msg;
	struct ea_rx_seg seg;
	uint8_t data[8] = { 0 };
	struct rig rig;
	unsigned int k, i;

	(void)state;
	for (k = 0; k < sizeof(ords); k++) {
		rig_open_bare(&rig, false);
		qp_open(&rig, &rig.a, 1, 9, 0);
		qp_open(&rig, &rig.b, 2, 9, 0);
		rig_connect(&rig, ords[k], ords[k]);
		for (i = 0; i < ords[k] + 2u; i++)
			put_read(&rig.a, OP_READ, 0, sge_of(&rig.a, 0, 8), rig.b.key, rig.b.data,
				 0);
		ring_sq(&rig.a);
		for (i = 0; i < ords[k]; i++) {
			assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), 0);
			assert_int_equal(msg.msn, i + 1);
			ea_tx_done(rig.a.side.link.qp, &msg);
		}
		assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), EAGAIN);
		rig.a.side.ready = false;
		seg = tagged(EA_RDMAP_READ_RESP, rig.a.key, rig.a.data, 8, true);
		assert_int_equal(feed(&rig.a, &seg, data), 0);
		assert_true(rig.a.side.ready);
		assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), 0);
		assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), EAGAIN);
		rig_close(&rig);
	}

	/* none at all: the WQE fails */
	rig_open(&rig, false);
	rig_connect(&rig, 0, 0);
	put_read(&rig.a, OP_READ, 0, sge_of(&rig.a, 0, 8), rig.b.key, rig.b.data, 0);
	ring_sq(&rig.a);
	pump(&rig);
	expect_wc(&rig, &rig.a.scq, OP_READ, 0, SYN_ORD, 0, 0);
	rig_close(&rig);
}

/* Responses and requests take turns. */
static void fair(void **state)
{
	static const uint8_t want[] = { EA_RDMAP_READ_RESP, EA_RDMAP_WRITE, EA_RDMAP_READ_RESP,
					EA_RDMAP_WRITE, EA_RDMAP_WRITE };
	struct ea_read_req req;
	uint8_t buf[EA_READ_REQ_LEN];
	struct ea_tx_msg msg;
	struct ea_rx_seg seg;
	struct rig rig;
	unsigned int i;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 4, 4);
	req = (struct ea_read_req){
		.sink_stag = 1, .sink_to = 2, .len = 10, .src_stag = rig.a.key, .src_to = rig.a.data
	};
	ea_read_req_encode(&req, buf);
	for (i = 0; i < 3; i++)
		put_one(&rig.a, 0);
	for (i = 0; i < 2; i++) {
		seg = untagged(EA_RDMAP_READ_REQ, 1, i + 1, 0, 0, sizeof(buf), true);
		assert_int_equal(feed(&rig.a, &seg, buf), 0);
	}
	ring_sq(&rig.a);
	for (i = 0; i < sizeof(want); i++) {
		assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), 0);
		assert_int_equal(msg.opcode, want[i]);
	}
	assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), EAGAIN);
	rig_close(&rig);
}

/* A WQE that lies on two pages, of which the second is gone. */
static void second_block_gone(void **state)
{
	struct sge sge[6];
	struct iovec iov[1];
	struct ea_tx_msg msg;
	uint32_t covered;
	struct rig rig;
	uint16_t index;
	int i, how;

	(void)state;
	for (how = 0; how < 3; how++) {
		rig_open_bare(&rig, true);
		qp_open(&rig, &rig.a, 1, 8, 4); /* 128 blocks a page */
		qp_open(&rig, &rig.b, 2, 8, 4);
		rig_connect(&rig, 1, 1);
		for (i = 0; i < 127; i++)
			put_send(&rig.a, OP_SEND, 0, NULL, 0, 0);
		for (i = 0; i < 127; i++)
			put_recv(&rig.b, 0, 0, 0);
		rig.b.rq_pi = 0;
		ring_sq(&rig.a);
		for (i = 0; i < 127; i++) {
			assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), 0);
			ea_tx_done(rig.a.side.link.qp, &msg);
		}
		for (i = 0; i < 6; i++)
			sge[i] = sge_of(&rig.a, i * 5000, 4000);
		if (how == 2)
			index = put_write_inline(&rig.a, OP_WRITE, 0, "0123456789", 10, rig.b.key,
						 rig.b.data, 0);
		else
			index = put_write(&rig.a, OP_WRITE, 0, sge, 6, rig.b.key, rig.b.data, 0);
		ring_sq(&rig.a);
		if (how == 0) {
			/* at the fetch */
			rig.fail_at = rig.a.sq + PAGE;
			ea_dev_memory_changed(rig.dev);
			assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), EAGAIN);
		} else {
			/* when the payload is asked for */
			assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), 0);
			assert_int_equal(ea_tx_payload(rig.a.side.link.qp, &msg, 0, msg.len, iov, 1,
						       &covered),
					 1);
			assert_int_equal(covered, how == 2 ? 10 : 4000);
			rig.fail_at = rig.a.sq + PAGE;
			ea_dev_memory_changed(rig.dev);
			assert_int_equal(ea_tx_payload(rig.a.side.link.qp, &msg, 0, msg.len, iov, 1,
						       &covered),
					 -EFAULT);
		}
		expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, SYN_FORMAT, index, 0);
		expect_none(&rig, &rig.a.scq);
		rig_close(&rig);
	}
}

/* The sink of an atomic or of an invalidating READ goes away before the answer. */
static void sink_gone(void **state)
{
	struct ea_atomic_resp resp = { .id = 1 };
	uint8_t buf[EA_ATOMIC_RESP_LEN];
	struct ea_rx_seg seg;
	struct ea_tx_msg msg;
	struct rig rig;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);
	put_atomic(&rig.a, OP_FAA, 0, sge_of(&rig.a, 0, 8), rig.b.key, rig.b.data, 1, 0);
	ring_sq(&rig.a);
	assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), 0);
	ea_tx_done(rig.a.side.link.qp, &msg);
	assert_int_equal(ea_mr_dereg(rig.dev, rig.a.key), 0);
	ea_atomic_resp_encode(&resp, buf);
	seg = untagged(EA_RDMAP_ATOMIC_RESP, 3, 1, 0, 0, sizeof(buf), true);
	assert_int_equal(feed(&rig.a, &seg, buf), EPROTO);
	expect_wc(&rig, &rig.a.scq, OP_FAA, 0, SYN_STAG, 0, 0);
	rig_close(&rig);

	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);
	put_read(&rig.a, OP_READ_INV, 0, sge_of(&rig.a, 0, 8), rig.b.key, rig.b.data, rig.a.key);
	ring_sq(&rig.a);
	assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), 0);
	ea_tx_done(rig.a.side.link.qp, &msg);
	seg = tagged(EA_RDMAP_READ_RESP, rig.a.key, rig.a.data, 8, true);
	/* a user's region is not for invalidation by its owner */
	assert_int_equal(feed(&rig.a, &seg, "12345678"), EPROTO);
	expect_wc(&rig, &rig.a.scq, OP_READ_INV, 0, SYN_STAG, 0, 0);
	rig_close(&rig);
}

/* A link's slips: unknown slots, payload out of range, done twice. */
static void link_slips(void **state)
{
	struct iovec iov[2];
	struct ea_tx_msg msg, bad;
	struct ea_rx_seg seg;
	uint32_t covered;
	struct rig rig;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);
	put_one(&rig.a, F_CE);
	ring_sq(&rig.a);
	assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), 0);
	assert_int_equal(ea_tx_payload(rig.a.side.link.qp, &msg, 100, 1, iov, 2, &covered),
			 -EINVAL);
	assert_int_equal(ea_tx_payload(rig.a.side.link.qp, &msg, UINT32_MAX, 2, iov, 2, &covered),
			 -EINVAL);
	assert_int_equal(ea_tx_payload(rig.a.side.link.qp, &msg, 100, 0, iov, 2, &covered), 0);
	bad = msg;
	bad.slot = 2;
	assert_int_equal(ea_tx_payload(rig.a.side.link.qp, &bad, 0, 1, iov, 2, &covered), -EINVAL);
	ea_tx_done(rig.a.side.link.qp, &bad);
	expect_none(&rig, &rig.a.scq);
	ea_tx_done(rig.a.side.link.qp, &msg);
	ea_tx_done(rig.a.side.link.qp, &msg);
	expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, 0, 0, 100);
	expect_none(&rig, &rig.a.scq);
	bad.kind = 2; /* a response that is none */
	assert_int_equal(ea_tx_payload(rig.a.side.link.qp, &bad, 0, 1, iov, 2, &covered), -EINVAL);
	ea_tx_done(rig.a.side.link.qp, &bad);

	seg = tagged(EA_RDMAP_WRITE, rig.a.key, rig.a.data, 10, true);
	assert_int_equal(ea_rx_target(rig.a.side.link.qp, &seg, 10, 1, iov, 2, &covered), -EINVAL);
	assert_int_equal(ea_rx_target(rig.a.side.link.qp, &seg, 10, 0, iov, 2, &covered), 0);
	assert_int_equal(ea_qp_modify(rig.dev, 1, EA_QP_CLOSING), 0);
	assert_int_equal(ea_rx_target(rig.a.side.link.qp, &seg, 0, 1, iov, 2, &covered),
			 -ESHUTDOWN);
	assert_int_equal(ea_rx_end(rig.a.side.link.qp, &seg), ESHUTDOWN);
	assert_int_equal(ea_rx_ctrl(rig.a.side.link.qp, &seg, NULL), ESHUTDOWN);
	rig_close(&rig);
}

/* The device's own key: for QPs that may use it, for local access, without bounds but the map's. */
static void dma_local_key(void **state)
{
	struct ea_qp_attr attr = {
		.qpn = 9, .pdn = 1, .scqn = 1, .rcqn = 1, .sq_shift = 4, .dma_key_ok = true
	};
	struct ea_conn_attr conn = { .ord = 1, .ird = 1 };
	struct iovec iov[2];
	struct ea_tx_msg msg;
	uint32_t covered;
	struct rig rig;
	struct qp qp;

	(void)state;
	rig_open(&rig, false);
	memset(&qp, 0, sizeof(qp));
	qp.rig = &rig;
	qp.qpn = 9;
	qp.sq_shift = 4;
	qp.sq = rig_alloc(&rig, PAGE);
	attr.sq = flat(qp.sq);
	attr.rq = flat(rig_alloc(&rig, PAGE));
	assert_int_equal(ea_qp_create(rig.dev, &attr), 0);
	qp.side.link.ops = rig.a.side.link.ops;
	assert_int_equal(ea_qp_connect(rig.dev, 9, &qp.side.link, &conn), 0);
	put_send(&qp, OP_SEND, F_CE, &(struct sge){ rig.a.data, 10, 0xffffff00 }, 1, 0);
	put_send(&qp, OP_SEND, F_CE, &(struct sge){ 0x10, 10, 0xffffff00 }, 1, 0);
	ring_sq(&qp);
	assert_int_equal(ea_tx_next(qp.side.link.qp, &msg), 0);
	assert_int_equal(ea_tx_payload(qp.side.link.qp, &msg, 0, 10, iov, 2, &covered), 1);
	assert_ptr_equal(iov[0].iov_base, at(&rig, rig.a.data));
	ea_tx_done(qp.side.link.qp, &msg);
	/* nothing is mapped there */
	assert_int_equal(ea_tx_next(qp.side.link.qp, &msg), 0);
	assert_int_equal(ea_tx_payload(qp.side.link.qp, &msg, 0, 10, iov, 2, &covered), -EFAULT);
	rig_close(&rig);

	/* the peer may not name it */
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);
	{
		struct ea_rx_seg seg = tagged(EA_RDMAP_WRITE, 0xffffff00, rig.a.data, 1, true);

		assert_int_equal(feed(&rig.a, &seg, "x"), EPROTO);
	}
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(doorbells),	 cmocka_unit_test(full_ring_before_connect),
		cmocka_unit_test(laps),		 cmocka_unit_test(deepest_ring),
		cmocka_unit_test(unsignalled),	 cmocka_unit_test(order),
		cmocka_unit_test(fence),	 cmocka_unit_test(ord_limit),
		cmocka_unit_test(fair),		 cmocka_unit_test(second_block_gone),
		cmocka_unit_test(sink_gone),	 cmocka_unit_test(link_slips),
		cmocka_unit_test(dma_local_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
