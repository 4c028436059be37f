// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The contract of the extended CQ: what start, next and end of a poll leave behind, and that the
 * variants with and without locks agree.
 */
#include <errno.h>
#include <pthread.h>
#include "tests/accept/harness.h"

enum {
	BATCH = 8,
	LAPS = 40
};

struct bench {
	struct ibv_cq_ex *cq;
	struct ts_pair pair;
	struct ts_buf buf;
};

static void open_bench(struct bench *t, uint32_t flags)
{
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 30,
		.wc_flags = IBV_WC_STANDARD_FLAGS,
		.comp_mask = flags ? IBV_CQ_INIT_ATTR_MASK_FLAGS : 0,
		.flags = flags,
	};
	struct ts_attr attr = { .cap = { .max_send_wr = 32 } };

	if (!ts_has_cq_ex())
		ts_skip("the provider has no extended CQ");
	t->cq = ibv_create_cq_ex(ts_dev()->ctx, &cq_attr);
	if (!t->cq && errno == EOPNOTSUPP) {
		cq_attr.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM |
				   IBV_WC_EX_WITH_QP_NUM;
		t->cq = ibv_create_cq_ex(ts_dev()->ctx, &cq_attr);
	}
	TS_CHECK(t->cq);
	attr.scq = ibv_cq_ex_to_cq(t->cq);
	ts_pair_open(&t->pair, &attr, NULL);
	ts_buf_open(&t->buf, 4096);
}

static void close_bench(struct bench *t)
{
	ts_pair_close(&t->pair);
	TS_OK(ibv_destroy_cq(ibv_cq_ex_to_cq(t->cq)));
	ts_buf_close(&t->buf);
}

static void post_reads(struct bench *t, uint64_t first, int n)
{
	for (int i = 0; i < n; i++)
		TS_OK(ts_post(t->pair.a.qp, IBV_WR_RDMA_READ, first + (uint64_t)i, &t->buf, 0, 8,
			      (uintptr_t)t->buf.p + 64, t->buf.mr->rkey, 0));
}

/* Until a completion is there, as a program does it. */
static void start(struct bench *t)
{
	uint64_t end = ts_now() + TS_WAIT_MS * 1000000ull;
	struct ibv_poll_cq_attr attr = { 0 };
	int rc;

	while ((rc = ibv_start_poll(t->cq, &attr)) == ENOENT)
		if (ts_now() > end)
			TS_FAIL("no completion for %d ms", TS_WAIT_MS);
	TS_OK(rc);
}

static void contract(uint32_t flags)
{
	struct ibv_poll_cq_attr attr = { 0 };
	uint64_t next = 0, posted = 0;
	struct bench t;
	struct ibv_wc wc;

	open_bench(&t, flags);
	/* ENOENT leaves it untouched and unlocked: any number of times, and ibv_poll_cq works after it */
	for (int i = 0; i < 100; i++)
		TS_EQ(ibv_start_poll(t.cq, &attr), ENOENT);
	TS_EQ(ibv_poll_cq(ibv_cq_ex_to_cq(t.cq), 1, &wc), 0);
	for (int lap = 0; lap < LAPS; lap++) {
		uint64_t until;

		post_reads(&t, posted, BATCH);
		posted += BATCH;
		/* read some, stop without having seen ENOENT: the others stay */
		start(&t);
		TS_EQ(t.cq->wr_id, next);
		TS_EQ(t.cq->status, IBV_WC_SUCCESS);
		TS_EQ(ibv_wc_read_opcode(t.cq), IBV_WC_RDMA_READ);
		next++;
		for (int i = 0; i < lap % 3; i++)
			if (!ibv_next_poll(t.cq)) {
				TS_EQ(t.cq->wr_id, next);
				next++;
			} else {
				break;
			}
		ibv_end_poll(t.cq);
		/* the rest, with ENOENT from next_poll in between */
		until = ts_now() + TS_WAIT_MS * 1000000ull;
		while (next < posted) {
			int rc = ibv_start_poll(t.cq, &attr);

			if (rc == ENOENT) {
				assert_true(ts_now() < until);
				continue;
			}
			TS_OK(rc);
			do {
				TS_EQ(t.cq->wr_id, next);
				TS_EQ(ibv_wc_read_qp_num(t.cq), t.pair.a.qp->qp_num);
				next++;
			} while (!(rc = ibv_next_poll(t.cq)));
			TS_EQ(rc, ENOENT);
			ibv_end_poll(t.cq);
		}
		TS_EQ(ibv_start_poll(t.cq, &attr), ENOENT);
	}
	/* mixed with the plain call */
	post_reads(&t, posted, 3);
	start(&t);
	TS_EQ(t.cq->wr_id, posted);
	ibv_end_poll(t.cq);
	ts_poll_ok(ibv_cq_ex_to_cq(t.cq), &wc);
	TS_EQ(wc.wr_id, posted + 1);
	start(&t);
	TS_EQ(t.cq->wr_id, posted + 2);
	ibv_end_poll(t.cq);
	close_bench(&t);
}

static void with_locks(void **state)
{
	(void)state;
	contract(0);
}

static void single_threaded(void **state)
{
	(void)state;
	contract(IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
}

static void failures(void **state)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct bench t;

	(void)state;
	open_bench(&t, 0);
	TS_OK(ibv_modify_qp(t.pair.a.qp, &attr, IBV_QP_STATE));
	post_reads(&t, 0, 4);
	for (uint64_t i = 0; i < 4; i++) {
		start(&t);
		TS_EQ(t.cq->wr_id, i);
		TS_EQ(t.cq->status, IBV_WC_WR_FLUSH_ERR);
		TS_EQ(ibv_wc_read_qp_num(t.cq), t.pair.a.qp->qp_num);
		ibv_end_poll(t.cq);
	}
	close_bench(&t);
}

/* What the device cannot tell is refused at creation. */
static void unsupported_flags(void **state)
{
	static const uint64_t flags[] = { IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
					  IBV_WC_EX_WITH_CVLAN,
					  IBV_WC_EX_WITH_FLOW_TAG,
					  IBV_WC_EX_WITH_TM_INFO,
					  IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
					  1ull << 40 };

	(void)state;
	if (!ts_has_cq_ex())
		ts_skip("the provider has no extended CQ");
	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
		struct ibv_cq_init_attr_ex attr = { .cqe = 8, .wc_flags = flags[i] };
		struct ibv_cq_ex *cq;

		errno = 0;
		cq = ibv_create_cq_ex(ts_dev()->ctx, &attr);
		if (cq)
			TS_FAIL("wc_flags 0x%llx were accepted", (unsigned long long)flags[i]);
		TS_EQ(errno, EOPNOTSUPP);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(with_locks),
		cmocka_unit_test(single_threaded),
		cmocka_unit_test(failures),
		cmocka_unit_test(unsupported_flags),
	};

	return ts_main(argc, argv, "cq_ex", tests, sizeof(tests) / sizeof(*tests), NULL);
}
