// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The receive queue: waiting for buffers, sizes, malformed entries. */
#include "tests/core/rig.h"

/* Messages wait for their RQEs, in order, and nothing is lost or doubled. */
static void hold(void **state)
{
	struct sge sge;
	struct rig rig;
	int i;

	(void)state;
	rig_open(&rig, true);
	rig_connect(&rig, 1, 1);
	for (i = 0; i < 4; i++) {
		sge = sge_of(&rig.a, 3000 * i, 2500);
		fill(&rig, sge.addr, sge.len, i);
		put_send(&rig.a, OP_SEND, F_CE, &sge, 1, 0);
	}
	ring_sq(&rig.a);
	pump(&rig);
	assert_int_equal(rig.b.side.rx_err, EAGAIN);
	expect_none(&rig, &rig.a.scq);
	for (i = 0; i < 4; i++) {
		assert_false(rig.b.side.resumed);
		put_recv(&rig.b, rig.b.data + 3000 * i, 3000, rig.b.key);
		assert_true(rig.b.side.resumed);
		pump(&rig);
		expect_wc(&rig, &rig.b.rcq, OP_RECV, 1, 0, i, 2500);
		expect_wc(&rig, &rig.a.scq, OP_SEND, 0, 0, i, 2500);
		assert_true(filled(&rig, rig.b.data + 3000 * i, 2500, i));
	}
	assert_int_equal(rig.b.side.rx_err, 0);
	/* an RQE that nobody waits for wakes nobody */
	put_recv(&rig.b, rig.b.data, 3000, rig.b.key);
	assert_false(rig.b.side.resumed);
	rig_close(&rig);
}

/* A write with immediate waits as well; its data is placed before. */
static void hold_immediate(void **state)
{
	struct sge sge;
	struct rig rig;
	struct wc wc;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);
	sge = sge_of(&rig.a, 0, 2500);
	fill(&rig, sge.addr, sge.len, 1);
	put_write(&rig.a, OP_WRITE_IMM, F_CE, &sge, 1, rig.b.key, rig.b.data, 77);
	ring_sq(&rig.a);
	pump(&rig);
	assert_int_equal(rig.b.side.rx_err, EAGAIN);
	assert_true(filled(&rig, rig.b.data, 2500, 1));
	expect_none(&rig, &rig.a.scq);
	put_recv(&rig.b, 0, 0, 0);
	pump(&rig);
	assert_true(poll(&rig, &rig.b.rcq, &wc));
	assert_int_equal(wc.opcode, OP_RECV_IMM);
	expect_wc(&rig, &rig.a.scq, OP_WRITE_IMM, 0, 0, 0, 2500);
	rig_close(&rig);
}

static void exact_and_too_long(void **state)
{
	struct sge sge;
	struct rig rig;
	struct wc wc;
	int i;

	(void)state;
	for (i = 0; i < 3; i++) {
		rig_open(&rig, false);
		rig_connect(&rig, 1, 1);
		fill(&rig, rig.b.data, 8192, 9);
		/* 0: fits; 1: the last segment is one byte too long; 2: a buffer of length 0 */
		put_recv(&rig.b, rig.b.data, i == 2 ? 0 : 2500 - (i == 1), rig.b.key);
		put_recv(&rig.b, rig.b.data, 100, rig.b.key);
		sge = sge_of(&rig.a, 0, 2500);
		put_send(&rig.a, OP_SEND, F_CE, &sge, 1, 0);
		ring_sq(&rig.a);
		pump(&rig);
		if (i == 0) {
			expect_wc(&rig, &rig.b.rcq, OP_RECV, 1, 0, 0, 2500);
			rig_close(&rig);
			continue;
		}
		expect_wc(&rig, &rig.b.rcq, OP_RECV, 1, SYN_RECV_FORMAT, 0, 0);
		expect_wc(&rig, &rig.b.rcq, OP_RECV, 1, SYN_FLUSH, 1, 0);
		expect_none(&rig, &rig.b.rcq);
		assert_int_equal(asyncs(&rig, EA_ASYNC_QP_FATAL, 2), 1);
		/* pump() has carried the Terminate */
		assert_int_equal(rig.b.side.how, EA_SHUT_TERMINATE);
		assert_int_equal(ea_qp_state(ea_qp_find(rig.dev, 1)), EA_QP_ERROR);
		assert_int_equal(asyncs(&rig, EA_ASYNC_QP_FATAL, 1), 1);
		/* that Send had been handed over whole or is told */
		assert_true(poll(&rig, &rig.a.scq, &wc));
		/* not a byte behind the buffer */
		assert_true(filled_from(&rig, rig.b.data, i == 2 ? 0 : 2499, 1000, 9));
		rig_close(&rig);
	}
}

/* A message of nothing needs no buffer, whatever the key. */
static void zero_length(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);
	put_recv(&rig.b, 0xdead, 0, 0xdeadbeef);
	put_recv(&rig.b, 0xdead, 100, 0xdeadbeef);
	put_send(&rig.a, OP_SEND, F_CE, NULL, 0, 0);
	put_send(&rig.a, OP_SEND, F_CE, NULL, 0, 0);
	ring_sq(&rig.a);
	pump(&rig);
	expect_wc(&rig, &rig.b.rcq, OP_RECV, 1, 0, 0, 0);
	expect_wc(&rig, &rig.b.rcq, OP_RECV, 1, 0, 1, 0);
	rig_close(&rig);
}

static void malformed(void **state)
{
	struct {
		uint32_t off;
		uint8_t byte;
		uint8_t syn;
	} cases[] = {
		{ 0, 2, SYN_RECV_FORMAT }, /* index */
		{ 1, 1, SYN_RECV_FORMAT },
		{ 4, 1, SYN_RECV_FORMAT }, /* QPN */
		{ 6, 0x10, SYN_RECV_FORMAT },
		{ 28, 1, 10 },	  /* key byte */
		{ 30, 9, 10 },	  /* key index */
		{ 21, 0x12, 11 }, /* address */
		{ 2, 0x77, 0 },	  /* reserved */
		{ 9, 0x77, 0 },
	};
	struct sge sge;
	struct rig rig;
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		rig_open(&rig, false);
		rig_connect(&rig, 1, 1);
		put_recv(&rig.b, rig.b.data, 100, rig.b.key);
		poke(&rig, rig.b.rq + cases[i].off, &cases[i].byte, 1);
		sge = sge_of(&rig.a, 0, 100);
		put_send(&rig.a, OP_SEND, 0, &sge, 1, 0);
		ring_sq(&rig.a);
		pump(&rig);
		expect_wc(&rig, &rig.b.rcq, OP_RECV, 1, cases[i].syn, 0, cases[i].syn ? 0 : 100);
		rig_close(&rig);
	}
}

static void rights(void **state)
{
	struct sge sge;
	struct rig rig;
	int i;

	(void)state;
	for (i = 0; i < 4; i++) {
		static const uint8_t syn[] = { 12, 13, 14, 0 };

		rig_open(&rig, false);
		rig_connect(&rig, 1, 1);
		mr_add(&rig, 90 << 8, i == 1 ? PD + 1 : PD,
		       i == 0 ? ALL_ACCESS & ~EA_ACCESS_LOCAL_WRITE : EA_ACCESS_LOCAL_WRITE,
		       rig.b.data, 4096);
		put_recv(&rig.b, i == 2 ? UINT64_MAX - 50 : rig.b.data, 100, 90 << 8);
		sge = sge_of(&rig.a, 0, 100);
		put_send(&rig.a, OP_SEND, 0, &sge, 1, 0);
		ring_sq(&rig.a);
		pump(&rig);
		expect_wc(&rig, &rig.b.rcq, OP_RECV, 1, syn[i], 0, syn[i] ? 0 : 100);
		rig_close(&rig);
	}
}

/* The buffer's region goes away between two pieces of a segment. */
static void dereg_in_the_middle(void **state)
{
	struct iovec iov[EA_IOV_MAX];
	struct ea_rx_seg seg;
	struct ea_tx_msg msg;
	uint32_t covered;
	struct rig rig;

	(void)state;
	rig_open(&rig, true);
	rig_connect(&rig, 1, 1);
	put_recv(&rig.b, rig.b.data, 10000, rig.b.key);
	seg = untagged(EA_RDMAP_SEND, 0, 1, 0, 0, 8192, true);
	assert_int_equal(ea_rx_begin(rig.b.side.link.qp, &seg), 0);
	assert_int_equal(ea_rx_target(rig.b.side.link.qp, &seg, 0, 8192, iov, 1, &covered), 1);
	assert_int_equal(covered, 4096);
	assert_int_equal(ea_mr_dereg(rig.dev, rig.b.key), 0);
	assert_int_equal(ea_rx_target(rig.b.side.link.qp, &seg, 4096, 4096, iov, EA_IOV_MAX,
				      &covered),
			 -EFAULT);
	expect_wc(&rig, &rig.b.rcq, OP_RECV, 1, 10, 0, 0);
	expect_term(&rig.b, EA_TERM_DDP_LOCAL, &msg);
	rig_close(&rig);
}

static void doorbell_too_far(void **state)
{
	struct ea_tx_msg msg;
	struct rig rig;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);
	put_recv(&rig.b, rig.b.data, 100, rig.b.key);
	put_recv(&rig.b, rig.b.data, 100, rig.b.key);
	ring_rq_at(&rig.b, 1); /* old ones */
	ring_rq_at(&rig.b, 0xfff0);
	assert_int_equal(ea_qp_state(rig.b.side.link.qp), EA_QP_RTS);
	ring_rq_at(&rig.b, 17); /* one more than the ring has */
	expect_wc(&rig, &rig.b.rcq, OP_RECV, 1, SYN_RECV_FORMAT, 0, 0);
	expect_wc(&rig, &rig.b.rcq, OP_RECV, 1, SYN_FLUSH, 1, 0);
	expect_none(&rig, &rig.b.rcq);
	assert_int_equal(asyncs(&rig, EA_ASYNC_QP_FATAL, 2), 1);
	expect_term(&rig.b, EA_TERM_RDMAP_LOCAL, &msg);
	rig_close(&rig);
}

/* Three laps of the index, several RQEs with one doorbell. */
static void laps(void **state)
{
	struct rig rig;
	uint32_t i, k, total = 0;

	(void)state;
	rig_open_bare(&rig, true);
	qp_open(&rig, &rig.a, 1, 6, 0);
	qp_open(&rig, &rig.b, 2, 6, 8); /* two pages */
	rig_connect(&rig, 1, 1);
	while (total < 3 * 65536 + 20) {
		for (k = 0; k < 32; k++)
			put_recv(&rig.b, rig.b.data, 96, rig.b.key);
		for (k = 0; k < 32; k++)
			put_send_inline(&rig.a, OP_SEND, k == 31 ? F_CE : 0, &total, 4, 0);
		ring_sq(&rig.a);
		pump(&rig);
		for (i = 0; i < 32; i++, total++)
			expect_wc(&rig, &rig.b.rcq, OP_RECV, 1, 0, (uint16_t)total, 4);
		expect_wc(&rig, &rig.a.scq, OP_SEND, 0, 0, (uint16_t)(total - 1), 4);
	}
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hold),
		cmocka_unit_test(hold_immediate),
		cmocka_unit_test(exact_and_too_long),
		cmocka_unit_test(zero_length),
		cmocka_unit_test(malformed),
		cmocka_unit_test(rights),
		cmocka_unit_test(dereg_in_the_middle),
		cmocka_unit_test(doorbell_too_far),
		cmocka_unit_test(laps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
