// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Immediate data and invalidation: the 32 bits arrive as they were given, in network order, over each
 * way of polling and between processes that may run different libraries.
 */
#include <errno.h>
#include "tests/accept/harness.h"

static const uint32_t values[] = { 0x01020304, 0x89abcdef, 0, 0xffffffff, 0x80000000, 1 };
enum {
	NVALUES = sizeof(values) / sizeof(*values),
	REMOTE_LEN = 65536,
};
static const uint32_t lens[] = { 0, 1, 8, 4096, 40000 };
enum {
	NLENS = sizeof(lens) / sizeof(*lens)
};

static int post_imm(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t value, uint64_t id,
		    const struct ts_buf *local, uint32_t len, uint64_t raddr, uint32_t rkey)
{
	struct ibv_send_wr wr = { .wr_id = id,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED,
				  .imm_data = htobe32(value) };
	struct ibv_sge sge = ts_sge(local, 0, len);
	struct ibv_send_wr *bad = NULL;

	if (opcode == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = value;
	if (len) {
		wr.sg_list = &sge;
		wr.num_sge = 1;
	}
	wr.wr.rdma.remote_addr = raddr;
	wr.wr.rdma.rkey = rkey;
	return ibv_post_send(qp, &wr, &bad);
}

static void check_recv(const struct ibv_wc *wc, enum ibv_wr_opcode sent, uint32_t value,
		       uint64_t id, uint32_t len, uint32_t qpn)
{
	TS_EQ(wc->status, IBV_WC_SUCCESS);
	TS_EQ(wc->wr_id, id);
	TS_EQ(wc->qp_num, qpn);
	TS_EQ(wc->byte_len, len);
	TS_EQ(wc->opcode,
	      sent == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
	if (sent == IBV_WR_SEND) {
		TS_EQ(wc->wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV), 0);
		return;
	}
	TS_EQ(wc->wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV), IBV_WC_WITH_IMM);
	TS_EQ(be32toh(wc->imm_data), value);
}

static void by_poll_cq(void **state)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND_WITH_IMM,
						      IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND };
	struct ts_buf local, remote;
	struct ts_pair pair;
	struct ibv_wc wc;
	uint64_t id = 0;

	(void)state;
	ts_pair_open(&pair, NULL, NULL);
	ts_buf_open(&local, REMOTE_LEN);
	ts_buf_open(&remote, REMOTE_LEN);
	for (int i = 0; i < NVALUES; i++)
		for (int j = 0; j < NLENS; j++)
			for (size_t k = 0; k < sizeof(opcodes) / sizeof(*opcodes); k++) {
				ts_fill(local.p, lens[j], (uint32_t)++id);
				TS_OK(ts_post_recv(pair.b.qp, id, &remote, 0, REMOTE_LEN));
				TS_OK(post_imm(pair.a.qp, opcodes[k], values[i], id, &local,
					       lens[j], (uintptr_t)remote.p, remote.mr->rkey));
				ts_poll_ok(pair.a.scq, &wc);
				TS_EQ(wc.opcode, opcodes[k] == IBV_WR_RDMA_WRITE_WITH_IMM ?
							 IBV_WC_RDMA_WRITE :
							 IBV_WC_SEND);
				ts_poll(pair.b.rcq, &wc, 1);
				check_recv(&wc, opcodes[k], values[i], id, lens[j],
					   pair.b.qp->qp_num);
				TS_EQ(ts_differs(remote.p, lens[j], (uint32_t)id), -1);
			}
	ts_poll_none(pair.b.rcq);
	ts_pair_close(&pair);
	ts_buf_close(&local);
	ts_buf_close(&remote);
}

static void by_cq_ex(void **state)
{
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 64,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM,
	};
	struct ibv_poll_cq_attr poll_attr = { 0 };
	struct ts_buf local, remote;
	struct ts_attr attr = { 0 };
	struct ts_pair pair;
	struct ibv_cq_ex *cq;
	struct ibv_wc wc;

	(void)state;
	if (!ts_has_cq_ex())
		ts_skip("the provider has no extended CQ");
	cq = ibv_create_cq_ex(ts_dev()->ctx, &cq_attr);
	TS_CHECK(cq);
	attr.rcq = ibv_cq_ex_to_cq(cq);
	ts_pair_open(&pair, NULL, &attr);
	ts_buf_open(&local, REMOTE_LEN);
	ts_buf_open(&remote, REMOTE_LEN);
	for (uint64_t id = 0; id < 2 * NVALUES; id++) {
		enum ibv_wr_opcode opcode = id & 1 ? IBV_WR_SEND_WITH_IMM :
						     IBV_WR_RDMA_WRITE_WITH_IMM;
		uint64_t end = ts_now() + TS_WAIT_MS * 1000000ull;
		int rc;

		TS_OK(ts_post_recv(pair.b.qp, id, &remote, 0, REMOTE_LEN));
		TS_OK(post_imm(pair.a.qp, opcode, values[id / 2], id, &local, 100,
			       (uintptr_t)remote.p, remote.mr->rkey));
		ts_poll_ok(pair.a.scq, &wc);
		while ((rc = ibv_start_poll(cq, &poll_attr)) == ENOENT)
			assert_true(ts_now() < end);
		TS_OK(rc);
		TS_EQ(cq->wr_id, id);
		TS_EQ(cq->status, IBV_WC_SUCCESS);
		TS_EQ(be32toh(ibv_wc_read_imm_data(cq)), values[id / 2]);
		TS_EQ(ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
		TS_EQ(ibv_wc_read_byte_len(cq), 100);
		TS_EQ(ibv_wc_read_qp_num(cq), pair.b.qp->qp_num);
		TS_EQ(ibv_wc_read_opcode(cq), id & 1 ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM);
		ibv_end_poll(cq);
	}
	ts_pair_close(&pair);
	TS_OK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	ts_buf_close(&local);
	ts_buf_close(&remote);
}

/* The peer names a region of its own; after the message that region takes nothing more. */
static void send_with_invalidate(void **state)
{
	struct ts_buf local, remote, victim;
	struct ts_pair pair;
	struct ibv_wc wc;
	int rc;

	(void)state;
	if (!ts_dev()->ours)
		ts_skip("the distribution's provider has no SEND_WITH_INV");
	ts_pair_open(&pair, NULL, NULL);
	ts_buf_open(&local, 4096);
	ts_buf_open(&remote, 4096);
	ts_buf_open(&victim, 4096);
	ts_fill(local.p, 64, 1);
	TS_OK(ts_post_recv(pair.b.qp, 5, &remote, 0, 4096));
	rc = post_imm(pair.a.qp, IBV_WR_SEND_WITH_INV, victim.mr->rkey, 4, &local, 64, 0, 0);
	TS_OK(rc);
	ts_poll_ok(pair.a.scq, &wc);
	TS_EQ(wc.opcode, IBV_WC_SEND);
	ts_poll(pair.b.rcq, &wc, 1);
	TS_EQ(wc.status, IBV_WC_SUCCESS);
	TS_EQ(wc.opcode, IBV_WC_RECV);
	TS_EQ(wc.byte_len, 64);
	TS_EQ(wc.wc_flags & (IBV_WC_WITH_INV | IBV_WC_WITH_IMM), IBV_WC_WITH_INV);
	TS_EQ(wc.invalidated_rkey, victim.mr->rkey);
	TS_EQ(ts_differs(remote.p, 64, 1), -1);
	/* the region is closed to the peer now */
	memset(victim.p, 0x77, 4096);
	TS_OK(ts_post(pair.a.qp, IBV_WR_RDMA_READ, 6, &local, 1024, 64, (uintptr_t)victim.p,
		      victim.mr->rkey, 0));
	ts_poll(pair.a.scq, &wc, 1);
	TS_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
	assert_int_not_equal(((uint8_t *)local.p)[1024], 0x77);
	ts_pair_close(&pair);
	ts_buf_close(&local);
	ts_buf_close(&remote);
	ts_buf_close(&victim);
}

/* An immediate without data and without a buffer in the receive WR. */
static void no_buffer(void **state)
{
	struct ts_buf local;
	struct ts_pair pair;
	struct ibv_wc wc;

	(void)state;
	ts_pair_open(&pair, NULL, NULL);
	ts_buf_open(&local, 4096);
	for (uint64_t id = 0; id < NVALUES; id++) {
		enum ibv_wr_opcode opcode = id & 1 ? IBV_WR_SEND_WITH_IMM :
						     IBV_WR_RDMA_WRITE_WITH_IMM;

		TS_OK(ts_post_recv(pair.b.qp, id, NULL, 0, 0));
		TS_OK(post_imm(pair.a.qp, opcode, values[id], id, &local, 0, (uintptr_t)local.p,
			       local.mr->rkey));
		ts_poll_ok(pair.a.scq, &wc);
		ts_poll(pair.b.rcq, &wc, 1);
		check_recv(&wc, opcode, values[id], id, 0, pair.b.qp->qp_num);
	}
	ts_pair_close(&pair);
	ts_buf_close(&local);
}

/* ------------------------------------------------------------------ two processes */

static int receiver(void)
{
	struct ts_buf remote;
	struct ts_end end;
	struct ibv_wc wc;

	ts_buf_open(&remote, REMOTE_LEN);
	ts_listen_one(&end, NULL);
	ts_say_buf(NULL, &remote);
	for (uint64_t id = 0; id < 2 * NVALUES; id++) {
		TS_OK(ts_post_recv(end.qp, id, &remote, 0, REMOTE_LEN));
		ts_say(NULL, "ready");
		ts_poll(end.rcq, &wc, 1);
		ts_say(NULL, "%d %d %d %u %08x", wc.status, wc.opcode,
		       wc.wc_flags & IBV_WC_WITH_IMM, wc.byte_len, be32toh(wc.imm_data));
	}
	ts_hear(NULL);
	ts_end_close(&end);
	ts_buf_close(&remote);
	return 0;
}

static void to_another_process(void **state)
{
	struct ts_buf local;
	struct ts_peer peer;
	struct ts_end end;
	struct ibv_wc wc;
	uint64_t raddr;
	uint32_t rkey;

	(void)state;
	ts_peer_start(&peer, "receiver");
	ts_buf_open(&local, REMOTE_LEN);
	ts_connect_to(&end, NULL, atoi(ts_hear(&peer)));
	ts_hear_buf(&peer, &raddr, &rkey);
	for (uint64_t id = 0; id < 2 * NVALUES; id++) {
		enum ibv_wr_opcode opcode = id & 1 ? IBV_WR_SEND_WITH_IMM :
						     IBV_WR_RDMA_WRITE_WITH_IMM;
		char want[128];

		assert_string_equal(ts_hear(&peer), "ready");
		TS_OK(post_imm(end.qp, opcode, values[id / 2], id, &local, 777, raddr, rkey));
		ts_poll_ok(end.scq, &wc);
		snprintf(want, sizeof(want), "%d %d %d %u %08x", IBV_WC_SUCCESS,
			 id & 1 ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_WITH_IMM, 777u,
			 values[id / 2]);
		assert_string_equal(ts_hear(&peer), want);
	}
	ts_say(&peer, "bye");
	ts_end_close(&end);
	ts_peer_finish(&peer);
	ts_buf_close(&local);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_poll_cq),		cmocka_unit_test(by_cq_ex),
		cmocka_unit_test(send_with_invalidate), cmocka_unit_test(no_buffer),
		cmocka_unit_test(to_another_process),
	};
	const struct ts_role roles[] = { { "receiver", receiver }, { NULL, NULL } };

	return ts_main(argc, argv, "immediate", tests, sizeof(tests) / sizeof(*tests), roles);
}
