// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What the provider takes and gives back: doorbell records, rings, mappings; what it hands to the
 * kernel is defined and kept from children; a destroy that fails changes nothing.
 */
#include <errno.h>
#include <unistd.h>

#include "tests/accept/harness.h"
#include "tests/provider/spy.h"

enum {
	CYCLES = 1000000, /* the mark of "no leak" */
	HELD = 600,	  /* objects at a time: more than a page has records */
	CONTEXTS = 500,
	SLACK_BYTES = 4 << 20, /* tables that fill once, as numbers go round */
	SLACK_VMAS = 8,
	MSG = 64,
};

static uintptr_t page_of(const volatile void *p)
{
	return (uintptr_t)p / SPY_PAGE;
}

static struct ibv_cq *make_cq(void)
{
	struct ibv_cq *cq = ibv_create_cq(ts_dev()->ctx, 16, NULL, NULL, 0);

	TS_CHECK(cq);
	return cq;
}

static struct ibv_qp *make_qp(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(ts_dev()->pd, &attr);

	TS_CHECK(qp);
	return qp;
}

static void a_million_cycles_leave_nothing(void **state)
{
	long cycles = ts_scale(CYCLES), vmas = 0, resident = 0;
	uintptr_t first_page = 0;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	(void)state;
	for (long i = -100; i < cycles; i++) {
		cq = make_cq();
		qp = make_qp(cq);
		if (i == -1) {
			/* Warmed up. */
			first_page = page_of(spy_qp.records);
			vmas = ts_vma_count();
			resident = ts_resident();
		}
		if (i >= 0 && page_of(spy_qp.records) != first_page)
			TS_FAIL("cycle %ld: the record is in another page than before", i);
		TS_OK(ibv_destroy_qp(qp));
		TS_OK(ibv_destroy_cq(cq));
	}
	if (ts_vma_count() > vmas + SLACK_VMAS)
		TS_FAIL("%ld mappings before, %ld after", vmas, ts_vma_count());
	if (ts_resident() > resident + (long)SLACK_BYTES)
		TS_FAIL("%ld bytes resident before, %ld after", resident, ts_resident());
}

static void record_pages_are_freed(void **state)
{
	static struct ibv_cq *cqs[HELD];
	unsigned int ranges;

	(void)state;
	TS_OK(ibv_destroy_cq(make_cq()));
	ranges = spy_num_ranges();

	/* In order, in reverse, and inside out: no order may keep pages. */
	for (int order = 0; order < 3; order++) {
		for (int i = 0; i < HELD; i++)
			cqs[i] = make_cq();
		if (spy_num_ranges() < ranges + HELD)
			TS_FAIL("%d CQs, only %u ranges are kept from children", HELD,
				spy_num_ranges());
		for (int i = 0; i < HELD; i++) {
			int at = order == 0 ? i : order == 1 ? HELD - 1 - i : (i * 7) % HELD;

			TS_OK(ibv_destroy_cq(cqs[at]));
		}
		/* All pages but one. */
		if (spy_num_ranges() > ranges + 1)
			TS_FAIL("order %d: %u ranges before, %u after", order, ranges,
				spy_num_ranges());
	}
}

static void closing_frees_everything(void **state)
{
	long vmas = 0, resident = 0;
	int fds = 0;

	(void)state;
	for (long i = -20; i < ts_scale(CONTEXTS); i++) {
		struct ibv_context *ctx = ibv_open_device(ts_dev()->ctx->device);
		struct ibv_cq *cq;

		TS_CHECK(ctx);
		cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
		TS_CHECK(cq);
		TS_OK(ibv_destroy_cq(cq));
		TS_OK(ibv_close_device(ctx));
		if (i == -1) {
			vmas = ts_vma_count();
			resident = ts_resident();
			fds = (int)ts_fd_count();
		}
	}
	TS_EQ(ts_fd_count(), fds);
	if (ts_vma_count() > vmas + SLACK_VMAS)
		TS_FAIL("%ld mappings before, %ld after", vmas, ts_vma_count());
	if (ts_resident() > resident + (long)SLACK_BYTES)
		TS_FAIL("%ld bytes resident before, %ld after", resident, ts_resident());
}

/* A program need not destroy what it has before it closes: the kernel's objects end with the file. */
static void closing_with_objects(void **state)
{
	enum {
		LEFT = 20
	};
	/* the program's memory of them is lost, but known here: no leak to a checker */
	static struct ibv_cq *cqs[LEFT];
	static struct ibv_qp *qps[LEFT];
	struct ibv_device *device = ts_dev()->ctx->device;
	long fds = 0;
	int i;

	(void)state;
	for (i = 0; i < LEFT; i++) {
		struct ibv_context *ctx = ibv_open_device(device);
		struct ibv_qp_init_attr attr = {
			.qp_type = IBV_QPT_RC,
			.cap = { .max_send_wr = 4, .max_recv_wr = 4 },
		};
		struct ibv_pd *pd;

		TS_CHECK(ctx);
		pd = ibv_alloc_pd(ctx);
		TS_CHECK(pd);
		cqs[i] = ibv_create_cq(ctx, 16, NULL, NULL, 0);
		TS_CHECK(cqs[i]);
		attr.send_cq = cqs[i];
		attr.recv_cq = cqs[i];
		qps[i] = ibv_create_qp(pd, &attr);
		TS_CHECK(qps[i]);
		TS_OK(ibv_close_device(ctx));
		/* the first QP may make the adapter open what all share */
		if (!i)
			fds = ts_fd_count();
	}
	TS_EQ(ts_fd_count(), fds);
}

static void all_device_memory_is_kept_from_children(void **state)
{
	unsigned int ranges = spy_num_ranges();
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	(void)state;
	cq = make_cq();
	assert_true(spy_kept_from_children(spy_cq.ring, (size_t)spy_cq.depth * SPY_BLOCK));
	assert_true(spy_kept_from_children((void *)spy_cq.record, sizeof(*spy_cq.record)));

	qp = make_qp(cq);
	assert_true(spy_kept_from_children(spy_qp.sq, (size_t)spy_qp.num_blocks * SPY_BLOCK));
	assert_true(spy_kept_from_children(spy_qp.rq, (size_t)spy_qp.num_rqes * SPY_BLOCK));
	assert_true(spy_kept_from_children((void *)spy_qp.records, 2 * sizeof(*spy_qp.records)));

	/* Rings at once; the page of records may serve others. */
	TS_OK(ibv_destroy_qp(qp));
	TS_OK(ibv_destroy_cq(cq));
	if (spy_num_ranges() > ranges + 1)
		TS_FAIL("%u ranges before, %u after", ranges, spy_num_ranges());
}

static void the_kernel_sees_defined_memory(void **state)
{
	struct ibv_cq *cq[2];
	struct ibv_qp *qp[2];

	(void)state;
	/* Twice with use in between, so that what is handed over has been used before. */
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < 2; i++) {
			cq[i] = make_cq();
			TS_EQ(spy_cq.record_before, 0);
			assert_true(spy_cq.ring_clean);
			TS_EQ((uintptr_t)spy_cq.ring % SPY_PAGE, 0);
			TS_EQ((uintptr_t)spy_cq.record % sizeof(uint64_t), 0);
			TS_OK(ibv_req_notify_cq(cq[i], 0));

			qp[i] = make_qp(cq[i]);
			TS_EQ(spy_qp.records_before[0], 0);
			TS_EQ(spy_qp.records_before[1], 0);
			TS_EQ((uintptr_t)spy_qp.sq % SPY_PAGE, 0);
			TS_EQ((uintptr_t)spy_qp.records % (2 * sizeof(uint64_t)), 0);
		}
		for (int i = 0; i < 2; i++) {
			TS_OK(ibv_destroy_qp(qp[i]));
			TS_OK(ibv_destroy_cq(cq[i]));
		}
	}
}

static void one_message(struct ts_pair *pair, struct ts_buf *buf, uint64_t wr_id)
{
	struct ibv_wc wc;

	TS_OK(ts_post_recv(pair->b.qp, wr_id, buf, MSG, MSG));
	TS_OK(ts_post(pair->a.qp, IBV_WR_SEND, wr_id, buf, 0, MSG, 0, 0, 0));
	ts_poll_ok(pair->a.scq, &wc);
	TS_EQ(wc.wr_id, wr_id);
	ts_poll_ok(pair->b.rcq, &wc);
	TS_EQ(wc.wr_id, wr_id);
}

static void a_failed_destroy_changes_nothing(void **state)
{
	struct ts_pair pair;
	struct ts_buf buf;

	(void)state;
	ts_buf_open(&buf, SPY_PAGE);
	ts_pair_open(&pair, NULL, NULL);
	one_message(&pair, &buf, 1);

	for (int round = 0; round < 3; round++) {
		spy_fail[SPY_DESTROY_QP] = EIO;
		TS_EQ(ibv_destroy_qp(pair.a.qp), EIO);
		spy_fail[SPY_DESTROY_QP] = EBUSY;
		TS_EQ(ibv_destroy_qp(pair.b.qp), EBUSY);
		spy_fail[SPY_DESTROY_CQ] = EIO;
		TS_EQ(ibv_destroy_cq(pair.a.scq), EIO);
		one_message(&pair, &buf, (uint64_t)round + 2);
	}
	ts_pair_close(&pair);
	ts_buf_close(&buf);
}

static void a_used_cq_cannot_be_destroyed(void **state)
{
	struct ibv_cq *cq = make_cq();
	struct ibv_qp *qp = make_qp(cq);
	struct ibv_wc wc;

	(void)state;
	TS_EQ(ibv_destroy_cq(cq), EBUSY);
	TS_EQ(ibv_poll_cq(cq, 1, &wc), 0);
	TS_OK(ibv_destroy_qp(qp));
	TS_OK(ibv_destroy_cq(cq));
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_million_cycles_leave_nothing),
		cmocka_unit_test(record_pages_are_freed),
		cmocka_unit_test(closing_frees_everything),
		cmocka_unit_test(closing_with_objects),
		cmocka_unit_test(all_device_memory_is_kept_from_children),
		cmocka_unit_test(the_kernel_sees_defined_memory),
		cmocka_unit_test(a_failed_destroy_changes_nothing),
		cmocka_unit_test(a_used_cq_cannot_be_destroyed),
	};

	return ts_main(argc, argv, "resources", tests, sizeof(tests) / sizeof(*tests), NULL);
}
