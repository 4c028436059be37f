// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A connected pair that has nothing to do uses no CPU, whatever it did before: after polling, after
 * events, with a held stream, with a listener, and after its connection has ended.
 */
#include <errno.h>
#include <time.h>
#include "tests/accept/harness.h"

enum {
	WATCH_MS = 2000,
	ALLOWED_US = 20000, /* 1 percent */
	MESSAGES = 500,
};

static long cpu_us(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return used.tv_sec * 1000000L + used.tv_nsec / 1000;
}

static void stays_idle(const char *what)
{
	long used;

	/* what was going on may take a moment to calm down */
	ts_sleep_ms(200);
	used = cpu_us();
	ts_sleep_ms(WATCH_MS);
	used = cpu_us() - used;
	print_message("%s: %ld us of CPU in %d ms\n", what, used, WATCH_MS);
	if (used > ALLOWED_US)
		TS_FAIL("%s: %ld us of CPU in %d ms", what, used, WATCH_MS);
}

static void traffic(struct ts_pair *pair, struct ts_buf *buf, int n)
{
	struct ibv_wc wc;

	for (int i = 0; i < n; i++) {
		TS_OK(ts_post_recv(pair->b.qp, 1, buf, 0, 64));
		TS_OK(ts_post(pair->a.qp, IBV_WR_SEND, 1, buf, 64, 64, 0, 0, 0));
		ts_poll_ok(pair->a.scq, &wc);
		ts_poll_ok(pair->b.rcq, &wc);
	}
}

static void device_only(void **state)
{
	(void)state;
	ts_dev();
	stays_idle("an open device");
}

static void after_polling(void **state)
{
	struct ts_buf buf;
	struct ts_pair pair;

	(void)state;
	ts_pair_open(&pair, NULL, NULL);
	ts_buf_open(&buf, 4096);
	stays_idle("a fresh pair");
	traffic(&pair, &buf, MESSAGES);
	stays_idle("a pair after polling");
	ts_pair_close(&pair);
	ts_buf_close(&buf);
}

static void armed(void **state)
{
	struct ts_attr attr = { .channel = true };
	struct ts_buf buf;
	struct ts_pair pair;

	(void)state;
	ts_pair_open(&pair, &attr, &attr);
	ts_buf_open(&buf, 4096);
	traffic(&pair, &buf, MESSAGES);
	TS_OK(ibv_req_notify_cq(pair.a.scq, 0));
	TS_OK(ibv_req_notify_cq(pair.b.rcq, 0));
	stays_idle("a pair with armed CQs");
	ts_pair_close(&pair);
	ts_buf_close(&buf);
}

/* Work that cannot go on: a message without a receive WR, and megabytes behind it. */
static void held_stream(void **state)
{
	const uint32_t len = 16 << 20;
	struct ts_buf buf;
	struct ts_pair pair;

	(void)state;
	ts_pair_open(&pair, NULL, NULL);
	ts_buf_open(&buf, len);
	TS_OK(ts_post(pair.a.qp, IBV_WR_SEND, 1, &buf, 0, 64, 0, 0, 0));
	for (uint64_t i = 0; i < 4; i++)
		TS_OK(ts_post(pair.a.qp, IBV_WR_RDMA_WRITE, i, &buf, 0, len, (uintptr_t)buf.p,
			      buf.mr->rkey, 0));
	stays_idle("a pair whose stream is held");
	ts_pair_close(&pair);
	ts_buf_close(&buf);
}

static void after_the_end(void **state)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ts_buf buf;
	struct ts_pair pair;

	(void)state;
	ts_pair_open(&pair, NULL, NULL);
	ts_buf_open(&buf, 4096);
	traffic(&pair, &buf, 10);
	TS_OK(ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE));
	stays_idle("a pair whose connection has ended");
	ts_pair_close(&pair);
	stays_idle("a process whose pair is gone");
	ts_buf_close(&buf);
}

static void many_pairs(void **state)
{
	enum {
		N = 100
	};
	static struct ts_pair pair[N];
	struct ts_buf buf;

	(void)state;
	ts_buf_open(&buf, 4096);
	for (int i = 0; i < N; i++) {
		ts_pair_open(&pair[i], NULL, NULL);
		traffic(&pair[i], &buf, 5);
	}
	stays_idle("100 pairs");
	for (int i = 0; i < N; i++)
		ts_pair_close(&pair[i]);
	ts_buf_close(&buf);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(device_only),	 cmocka_unit_test(after_polling),
		cmocka_unit_test(armed),	 cmocka_unit_test(held_stream),
		cmocka_unit_test(after_the_end), cmocka_unit_test(many_pairs),
	};

	return ts_main(argc, argv, "idle", tests, sizeof(tests) / sizeof(*tests), NULL);
}
