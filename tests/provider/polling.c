// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Completions: those of QPs that are gone, those that no adapter should write, and those that are
 * polled by one thread while another posts.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "tests/accept/harness.h"
#include "tests/provider/spy.h"

enum {
	MSG = 64,
	RACE_MESSAGES = 300000,
	MANY_QPS = 70,
	NUMBER_ROUNDS = 2000,
	OP_SEND = 2,
	OP_RECV = 4,
	OP_NONE = 0xee,
	QTYPE_RECV = 1,
	SYN_UNKNOWN = 0x77,
	QPN_BITS = 20,
};

/* An end of its own CQ whose adapter stays quiet, so that the test may write the ring. */
static void open_quiet(struct ts_end *end)
{
	struct ts_attr ts = { .one_cq = true };

	if (!ts_dev()->iwarp)
		ts_skip("in RoCE mode a QP takes no sends before it is connected");
	ts_end_open(end, &ts);
	spy_to_init(end->qp);
}

static void post_sends(struct ibv_qp *qp, uint64_t first, int n)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;

	for (int i = 0; i < n; i++) {
		wr.wr_id = first + (uint64_t)i;
		TS_OK(ibv_post_send(qp, &wr, &bad));
	}
}

static void completions_go_with_their_qp(void **state)
{
	struct ts_attr a = { 0 }, b = { 0 };
	struct ts_pair pair, other;
	struct ts_buf buf;
	struct ibv_wc wc;

	(void)state;
	ts_buf_open(&buf, SPY_PAGE);
	a.scq = b.scq = ibv_create_cq(ts_dev()->ctx, 1024, NULL, NULL, 0);
	TS_CHECK(a.scq);
	a.rcq = b.rcq = a.scq;
	ts_pair_open(&pair, &a, &b);
	ts_pair_open(&other, &a, &b);
	for (uint64_t i = 0; i < 8; i++) {
		TS_OK(ts_post_recv(pair.b.qp, 100 + i, &buf, MSG, MSG));
		TS_OK(ts_post_recv(other.b.qp, 300 + i, &buf, MSG, MSG));
	}
	for (uint64_t i = 0; i < 8; i++) {
		TS_OK(ts_post(pair.a.qp, IBV_WR_SEND, 200 + i, &buf, 0, 8, 0, 0, 0));
		TS_OK(ts_post(other.a.qp, IBV_WR_SEND, 400 + i, &buf, 0, 8, 0, 0, 0));
	}
	/* The last message of each pair has come, and all completions are in the ring. */
	ts_sleep_ms(TS_QUIET_MS);
	ts_pair_close(&pair);

	for (int i = 0; i < 16; i++) {
		ts_poll_ok(a.scq, &wc);
		if (wc.wr_id < 300)
			TS_FAIL("completion %llu of a QP that is gone",
				(unsigned long long)wc.wr_id);
	}
	ts_poll_none(a.scq);
	ts_pair_close(&other);
	TS_OK(ibv_destroy_cq(a.scq));
	ts_buf_close(&buf);
}

static struct spy_cq reuse_cq;

/* As if the number had belonged to a QP before whose completion is still there. */
static void leave_stale_completions(void)
{
	struct spy_cqe stale = { .qpn = spy_qp.qpn, .opcode = OP_SEND };

	spy_write_cqe(&reuse_cq, 0, 0, &stale);
	stale.opcode = OP_RECV;
	stale.qtype = QTYPE_RECV;
	spy_write_cqe(&reuse_cq, 1, 0, &stale);
	spy_qp_made = NULL;
}

static void a_new_qp_inherits_no_completions(void **state)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 }
	};
	struct ibv_cq *cq = ibv_create_cq(ts_dev()->ctx, 16, NULL, NULL, 0);
	struct ibv_qp *qp;
	struct ibv_wc wc;

	(void)state;
	TS_CHECK(cq);
	reuse_cq = spy_cq;
	attr.send_cq = attr.recv_cq = cq;
	spy_qp_made = leave_stale_completions;
	qp = ibv_create_qp(ts_dev()->pd, &attr);
	TS_CHECK(qp);
	TS_EQ(ibv_poll_cq(cq, 1, &wc), 0);
	TS_OK(ibv_destroy_qp(qp));
	TS_OK(ibv_destroy_cq(cq));
}

static void wild_numbers_are_passed_over(void **state)
{
	static const uint32_t qpns[] = { 0,	     1u << QPN_BITS, 0x01000000, 0x7fffffff,
					 0xfffff000, 0xfffffffd,     0xfffffffe, 0xffffffff };
	enum {
		N = sizeof(qpns) / sizeof(*qpns)
	};
	struct ts_end end;
	struct ibv_wc wc;

	(void)state;
	open_quiet(&end);
	post_sends(end.qp, 7, 1);
	for (uint32_t i = 0; i < N; i++) {
		struct spy_cqe cqe = { .qpn = qpns[i], .opcode = OP_SEND, .qtype = i % 2 };

		spy_write_cqe(&spy_cq, i, 0, &cqe);
	}
	TS_EQ(ibv_poll_cq(end.scq, 1, &wc), 0);
	spy_write_cqe(&spy_cq, N, 0, &(struct spy_cqe){ .qpn = spy_qp.qpn, .opcode = OP_SEND });
	TS_EQ(ibv_poll_cq(end.scq, 1, &wc), 1);
	TS_EQ(wc.wr_id, 7);
	TS_EQ(wc.status, IBV_WC_SUCCESS);
	ts_end_close(&end);
}

static void every_operation_number_is_safe(void **state)
{
	struct ts_end end;
	struct ibv_wc wc;
	uint32_t at = 0;

	(void)state;
	open_quiet(&end);
	for (uint32_t op = 0; op < 256; op++, at++) {
		struct spy_cqe cqe = { .qpn = spy_qp.qpn, .index = op, .opcode = (uint8_t)op };

		post_sends(end.qp, op, 1);
		spy_write_cqe(&spy_cq, at, at / spy_cq.depth, &cqe);
		TS_EQ(ibv_poll_cq(end.scq, 1, &wc), 1);
		TS_EQ(wc.wr_id, op);
		TS_EQ(wc.qp_num, spy_qp.qpn);
		if (op >= 19)
			TS_EQ(wc.status, IBV_WC_GENERAL_ERR);
	}
	/* And every syndrome. */
	for (uint32_t syn = 1; syn < 256; syn++, at++) {
		struct spy_cqe cqe = {
			.qpn = spy_qp.qpn, .index = at, .opcode = OP_SEND, .syndrome = (uint8_t)syn
		};

		post_sends(end.qp, syn, 1);
		spy_write_cqe(&spy_cq, at, at / spy_cq.depth, &cqe);
		TS_EQ(ibv_poll_cq(end.scq, 1, &wc), 1);
		TS_EQ(wc.wr_id, syn);
		if (wc.status == IBV_WC_SUCCESS)
			TS_FAIL("syndrome %u is success", syn);
		if (syn > 16)
			TS_EQ(wc.status, IBV_WC_GENERAL_ERR);
	}
	ts_end_close(&end);
}

static void a_wrong_index_is_no_silence(void **state)
{
	struct spy_cqe cqe = { .opcode = OP_SEND };
	struct ts_end end;
	struct ibv_wc wc;

	(void)state;
	open_quiet(&end);
	cqe.qpn = spy_qp.qpn;
	post_sends(end.qp, 10, 3);

	/* What is not posted yet: an error, for the request it stands for would wait for ever. */
	cqe.index = 3;
	spy_write_cqe(&spy_cq, 0, 0, &cqe);
	TS_EQ(ibv_poll_cq(end.scq, 1, &wc), 1);
	TS_EQ(wc.status, IBV_WC_GENERAL_ERR);
	TS_EQ(wc.qp_num, spy_qp.qpn);

	/* The same again is a duplicate. */
	cqe.index = 1;
	spy_write_cqe(&spy_cq, 1, 0, &cqe);
	spy_write_cqe(&spy_cq, 2, 0, &cqe);
	TS_EQ(ibv_poll_cq(end.scq, 1, &wc), 1);
	TS_EQ(wc.wr_id, 11);
	TS_EQ(wc.status, IBV_WC_SUCCESS);
	TS_EQ(ibv_poll_cq(end.scq, 1, &wc), 0);

	/* All is as it should be afterwards. */
	cqe.index = 2;
	spy_write_cqe(&spy_cq, 3, 0, &cqe);
	TS_EQ(ibv_poll_cq(end.scq, 1, &wc), 1);
	TS_EQ(wc.wr_id, 12);

	/* No receive is posted. */
	cqe.opcode = OP_RECV;
	cqe.qtype = QTYPE_RECV;
	spy_write_cqe(&spy_cq, 4, 0, &cqe);
	TS_EQ(ibv_poll_cq(end.scq, 1, &wc), 0);
	ts_end_close(&end);
}

/* ------------------------------------------------------------------ posting beside polling */

struct race {
	struct ts_pair pair;
	struct ts_buf buf, target;
	long messages;
	atomic_bool failed;
};

static void *poster(void *arg)
{
	struct race *race = arg;
	struct ibv_sge sge = ts_sge(&race->buf, 0, 8);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	int ret;

	wr.wr.rdma.remote_addr = (uintptr_t)race->target.p;
	wr.wr.rdma.rkey = race->target.mr->rkey;
	for (long i = 0; i < race->messages && !race->failed;) {
		wr.wr_id = (uint64_t)i;
		ret = ibv_post_send(race->pair.a.qp, &wr, &bad);
		if (!ret) {
			i++;
		} else if (ret == ENOMEM) {
			sched_yield();
		} else {
			race->failed = true;
		}
	}
	return NULL;
}

static void slots_are_read_before_they_are_free(void **state)
{
	struct ts_attr attr = { .cap = { .max_send_wr = 1 } };
	static struct race race;
	uint64_t limit;
	struct ibv_wc wc;
	pthread_t thread;

	(void)state;
	memset(&race, 0, sizeof(race));
	race.messages = ts_scale(RACE_MESSAGES);
	ts_buf_open(&race.buf, SPY_PAGE);
	ts_buf_open(&race.target, SPY_PAGE);
	ts_pair_open(&race.pair, &attr, NULL);
	TS_EQ(pthread_create(&thread, NULL, poster, &race), 0);

	limit = ts_now() + 150ULL * 1000000000;
	for (long i = 0; i < race.messages;) {
		if (ibv_poll_cq(race.pair.a.scq, 1, &wc) != 1) {
			if (race.failed || ts_now() > limit)
				TS_FAIL("stuck at message %ld", i);
			continue;
		}
		if (wc.status || wc.wr_id != (uint64_t)i) {
			race.failed = true;
			TS_FAIL("completion %ld has wr_id %llu, status %d", i,
				(unsigned long long)wc.wr_id, wc.status);
		}
		i++;
	}
	pthread_join(thread, NULL);
	assert_false(race.failed);
	ts_pair_close(&race.pair);
	ts_buf_close(&race.target);
	ts_buf_close(&race.buf);
}

struct numbered {
	struct ibv_qp *qp;
	uint32_t qpn, posted;
};

static void open_numbered(struct numbered *n, struct ibv_cq *cq, uint32_t qpn)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
					 .send_cq = cq,
					 .recv_cq = cq,
					 .cap = { .max_send_wr = 1, .max_recv_wr = 1 } };

	spy_next_qpn = qpn;
	n->qp = ibv_create_qp(ts_dev()->pd, &attr);
	TS_CHECK(n->qp);
	spy_to_init(n->qp);
	n->qpn = qpn;
	n->posted = 0;
}

/*
 * QPs whose numbers differ in high bits only or in low bits only come and go in any order, and each
 * gets its own completions all the time.
 */
static void numbers_of_all_kinds(void **state)
{
	static struct numbered live[MANY_QPS];
	struct ibv_cq *cq = ibv_create_cq(ts_dev()->ctx, 64, NULL, NULL, 0);
	uint32_t at = 0, next = 1;
	struct ibv_wc wc;

	(void)state;
	if (!ts_dev()->iwarp)
		ts_skip("in RoCE mode a QP takes no sends before it is connected");
	TS_CHECK(cq);
	srand(1);
	for (int round = 0; round < NUMBER_ROUNDS; round++) {
		struct numbered *n = &live[rand() % MANY_QPS];

		if (n->qp) {
			TS_OK(ibv_destroy_qp(n->qp));
			n->qp = NULL;
		} else {
			/* Three low ends, and ever new high ones. */
			open_numbered(n, cq, next++ << 9 | (uint32_t)(rand() % 3));
			next %= 1u << (QPN_BITS - 9);
			next += !next;
		}
		for (int i = 0; i < MANY_QPS; i++) {
			struct spy_cqe cqe = { .qpn = live[i].qpn, .opcode = OP_SEND };

			/* Of those that are gone as well. */
			if (!live[i].qpn)
				continue;
			cqe.index = live[i].posted;
			if (live[i].qp)
				post_sends(live[i].qp, (uint64_t)i, 1);
			spy_write_cqe(&spy_cq, at, at / spy_cq.depth, &cqe);
			at++;
			TS_EQ(ibv_poll_cq(cq, 1, &wc), live[i].qp ? 1 : 0);
			if (!live[i].qp)
				continue;
			live[i].posted++;
			TS_EQ(wc.wr_id, i);
			TS_EQ(wc.qp_num, live[i].qpn);
			TS_EQ(wc.status, IBV_WC_SUCCESS);
		}
	}
	for (int i = 0; i < MANY_QPS; i++) {
		if (live[i].qp)
			TS_OK(ibv_destroy_qp(live[i].qp));
	}
	TS_OK(ibv_destroy_cq(cq));
}

static void receive_queues_of_any_depth(void **state)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC };
	struct ibv_cq *cq = ibv_create_cq(ts_dev()->ctx, 16, NULL, NULL, 0);
	uint32_t max = (uint32_t)ts_dev()->attr.max_qp_wr;
	struct ibv_recv_wr wr = { 0 }, *bad;
	struct ibv_qp *qp;

	(void)state;
	TS_CHECK(cq);
	attr.send_cq = attr.recv_cq = cq;
	for (uint32_t depth = 1; depth <= 65536; depth *= 2) {
		attr.cap = (struct ibv_qp_cap){ .max_recv_wr = depth, .max_recv_sge = 1 };
		qp = ibv_create_qp(ts_dev()->pd, &attr);
		if (!qp && depth > max)
			break;
		TS_CHECK(qp);
		if (attr.cap.max_recv_wr < depth)
			TS_FAIL("asked for %u receives, got %u", depth, attr.cap.max_recv_wr);
		spy_to_init(qp);
		for (uint32_t i = 0; i < attr.cap.max_recv_wr; i++)
			TS_OK(ibv_post_recv(qp, &wr, &bad));
		TS_EQ(ibv_post_recv(qp, &wr, &bad), ENOMEM);
		TS_OK(ibv_destroy_qp(qp));
	}
	TS_OK(ibv_destroy_cq(cq));
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(completions_go_with_their_qp),
		cmocka_unit_test(a_new_qp_inherits_no_completions),
		cmocka_unit_test(wild_numbers_are_passed_over),
		cmocka_unit_test(every_operation_number_is_safe),
		cmocka_unit_test(a_wrong_index_is_no_silence),
		cmocka_unit_test(slots_are_read_before_they_are_free),
		cmocka_unit_test(numbers_of_all_kinds),
		cmocka_unit_test(receive_queues_of_any_depth),
	};

	return ts_main(argc, argv, "polling", tests, sizeof(tests) / sizeof(*tests), NULL);
}
