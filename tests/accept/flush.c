// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Flush after error: every posted WR completes exactly once, in order per queue, also the ones posted
 * in the error state; nothing comes after the QP is destroyed; a QP in RESET takes no WR.
 */
#include <errno.h>
#include "tests/accept/harness.h"

enum {
	RD_LEN = 64,
	DEPTH = 32,
	MAX_WC = 2 * DEPTH + 4,
	SEND_ID = 0x1000,
	RECV_ID = 0x2000,
};

enum path {
	PLAIN,	  /* ibv_post_send, ibv_poll_cq */
	EXTENDED, /* ibv_wr_*, ibv_start_poll */
};

struct bench {
	struct ts_pair pair;
	struct ts_buf local, remote;
	enum path path;
	bool separate;
};

static const struct ts_attr *attr_of(enum path path, bool one_cq)
{
	static struct ts_attr attr;

	attr = (struct ts_attr){ .cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH },
				 .one_cq = one_cq,
				 .qp_ex = path == EXTENDED };
	return &attr;
}

static void open_bench(struct bench *t, enum path path, bool one_cq)
{
	if (path == EXTENDED && !ts_has_qp_ex())
		ts_skip("the provider has no ibv_wr_* calls");
	t->path = path;
	t->separate = !one_cq;
	ts_buf_open(&t->local, 65536);
	ts_buf_open(&t->remote, 65536);
	ts_pair_open(&t->pair, attr_of(path, one_cq), NULL);
}

static void close_bench(struct bench *t)
{
	ts_pair_close(&t->pair);
	ts_buf_close(&t->local);
	ts_buf_close(&t->remote);
}

/* By the path under test. */
static int post_one(struct bench *t, enum ibv_wr_opcode opcode, uint64_t id, bool signalled)
{
	struct ibv_send_wr wr = { .wr_id = id,
				  .opcode = opcode,
				  .num_sge = 1,
				  .send_flags = signalled ? IBV_SEND_SIGNALED : 0 };
	struct ibv_sge sge = ts_sge(&t->local, 0, RD_LEN);
	struct ibv_qp *qp = t->pair.a.qp;
	struct ibv_send_wr *bad = NULL;
	struct ibv_qp_ex *ex;
	int rc;

	if (t->path == PLAIN) {
		wr.sg_list = &sge;
		wr.wr.rdma.remote_addr = (uintptr_t)t->remote.p;
		wr.wr.rdma.rkey = t->remote.mr->rkey;
		rc = ibv_post_send(qp, &wr, &bad);
		if (rc)
			assert_ptr_equal(bad, &wr);
		return rc;
	}
	ex = ibv_qp_to_qp_ex(qp);
	ibv_wr_start(ex);
	ex->wr_id = id;
	ex->wr_flags = signalled ? IBV_SEND_SIGNALED : 0;
	if (opcode == IBV_WR_RDMA_READ)
		ibv_wr_rdma_read(ex, t->remote.mr->rkey, (uintptr_t)t->remote.p);
	else
		ibv_wr_send(ex);
	ibv_wr_set_sge(ex, sge.lkey, sge.addr, sge.length);
	return ibv_wr_complete(ex);
}

/*
 * Reads cannot complete while the peer's stream is held by a message that found no receive WR, so all
 * of them are outstanding whatever the timing.  The message in front of them is WR SEND_ID; it completes
 * or is flushed.
 */
static void make_outstanding(struct bench *t, int reads, bool signalled)
{
	TS_OK(post_one(t, IBV_WR_SEND, SEND_ID, true));
	for (int i = 1; i <= reads; i++)
		TS_OK(post_one(t, IBV_WR_RDMA_READ, SEND_ID + (uint64_t)i, signalled));
}

static void post_recvs(struct bench *t, int n)
{
	for (int i = 0; i < n; i++)
		TS_OK(ts_post_recv(t->pair.a.qp, RECV_ID + (uint64_t)i, &t->local, 4096, 64));
}

static void to_error(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	TS_OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

/* Sorts completions by queue: the two kinds of wr_id say which. */
struct seen {
	struct ibv_wc send[MAX_WC], recv[MAX_WC];
	int nsend, nrecv;
};

static void sort(struct seen *seen, const struct ibv_wc *wc, int n)
{
	for (int i = 0; i < n; i++) {
		if (wc[i].wr_id >= RECV_ID)
			seen->recv[seen->nrecv++] = wc[i];
		else
			seen->send[seen->nsend++] = wc[i];
	}
}

static void collect(struct bench *t, struct seen *seen, int nsend, int nrecv)
{
	struct ibv_wc wc[MAX_WC];

	seen->nsend = seen->nrecv = 0;
	if (t->separate) {
		ts_poll(t->pair.a.scq, wc, nsend);
		sort(seen, wc, nsend);
		ts_poll(t->pair.a.rcq, wc, nrecv);
		sort(seen, wc, nrecv);
		ts_poll_none(t->pair.a.scq);
		ts_poll_none(t->pair.a.rcq);
	} else {
		ts_poll(t->pair.a.scq, wc, nsend + nrecv);
		sort(seen, wc, nsend + nrecv);
		ts_poll_none(t->pair.a.scq);
	}
	TS_EQ(seen->nsend, nsend);
	TS_EQ(seen->nrecv, nrecv);
}

/* FIFO, right ids and QP number; flushed, but that the first failure may carry the cause. */
static void check_queue(struct bench *t, const struct ibv_wc *wc, int n, uint64_t first_id,
			int may_succeed)
{
	bool failed = false;

	for (int i = 0; i < n; i++) {
		TS_EQ(wc[i].wr_id, first_id + (uint64_t)i);
		TS_EQ(wc[i].qp_num, t->pair.a.qp->qp_num);
		if (i < may_succeed && !failed && !wc[i].status)
			continue;
		if (wc[i].status == IBV_WC_SUCCESS)
			TS_FAIL("WR %d of %d succeeded after the QP was in error", i, n);
		if (failed && wc[i].status != IBV_WC_WR_FLUSH_ERR)
			TS_FAIL("WR %d of %d: %s, expected a flush", i, n,
				ibv_wc_status_str(wc[i].status));
		failed = true;
	}
}

static void flush(enum path path, bool one_cq, int reads, int recvs, bool signalled)
{
	struct seen seen;
	struct bench t;
	int more;

	open_bench(&t, path, one_cq);
	make_outstanding(&t, reads, signalled);
	post_recvs(&t, recvs);
	to_error(t.pair.a.qp);
	more = ts_known_defect("posting in the error state is refused") ? 0 : 1;
	if (more) {
		TS_OK(post_one(&t, IBV_WR_SEND, SEND_ID + (uint64_t)reads + 1, signalled));
		TS_OK(ts_post_recv(t.pair.a.qp, RECV_ID + (uint64_t)recvs, &t.local, 4096, 64));
	}
	collect(&t, &seen, 1 + reads + more, recvs + more);
	check_queue(&t, seen.send, seen.nsend, SEND_ID, 1);
	check_queue(&t, seen.recv, seen.nrecv, RECV_ID, 0);
	close_bench(&t);
}

static void plain_separate_cqs(void **state)
{
	(void)state;
	flush(PLAIN, false, 5, 7, true);
}

static void plain_shared_cq(void **state)
{
	(void)state;
	flush(PLAIN, true, 5, 7, true);
}

/* A WR that asked for no completion gets one when it fails. */
static void plain_unsignalled(void **state)
{
	(void)state;
	flush(PLAIN, false, 5, 3, false);
}

static void plain_nothing_outstanding(void **state)
{
	(void)state;
	flush(PLAIN, false, 0, 0, true);
}

static void plain_nearly_full_queues(void **state)
{
	(void)state;
	/* IRD 16 limits what is on the wire; the rest waits in the queue */
	flush(PLAIN, false, DEPTH - 2, DEPTH - 1, true);
}

static void extended_calls(void **state)
{
	(void)state;
	flush(EXTENDED, false, 5, 7, true);
}

static void extended_unsignalled(void **state)
{
	(void)state;
	flush(EXTENDED, true, 5, 7, false);
}

/* Many posts in the error state, far more than the queue's depth, none lost. */
static void error_state_goes_on(void **state)
{
	struct ibv_wc wc[2];
	struct bench t;

	(void)state;
	open_bench(&t, PLAIN, false);
	to_error(t.pair.a.qp);
	if (ts_known_defect("posting in the error state is refused")) {
		close_bench(&t);
		return;
	}
	for (uint64_t i = 0; i < 5 * DEPTH; i++) {
		TS_OK(post_one(&t, IBV_WR_SEND, SEND_ID + i, i & 1));
		TS_OK(ts_post_recv(t.pair.a.qp, RECV_ID + i, &t.local, 4096, 64));
		ts_poll(t.pair.a.scq, wc, 1);
		TS_EQ(wc[0].wr_id, SEND_ID + i);
		TS_EQ(wc[0].status, IBV_WC_WR_FLUSH_ERR);
		ts_poll(t.pair.a.rcq, wc, 1);
		TS_EQ(wc[0].wr_id, RECV_ID + i);
		TS_EQ(wc[0].status, IBV_WC_WR_FLUSH_ERR);
	}
	/* and the queue's limit holds in this state too: the flushes below are not polled */
	for (uint64_t i = 0; i < DEPTH; i++)
		TS_OK(ts_post_recv(t.pair.a.qp, RECV_ID + i, &t.local, 4096, 64));
	TS_EQ(ts_post_recv(t.pair.a.qp, RECV_ID, &t.local, 4096, 64), ENOMEM);
	close_bench(&t);
}

/* The peer goes away: the same without a modify_qp of ours. */
static void peer_disconnects(void **state)
{
	struct seen seen;
	struct bench t;
	struct ibv_wc wc;

	(void)state;
	open_bench(&t, PLAIN, false);
	/* in RoCE mode RTS is reached before the peer has been heard */
	TS_OK(post_one(&t, IBV_WR_RDMA_READ, SEND_ID, true));
	ts_poll_ok(t.pair.a.scq, &wc);
	make_outstanding(&t, 4, true);
	if (ts_dev()->iwarp)
		post_recvs(&t, 6);
	TS_OK(ibv_destroy_qp(t.pair.b.qp));
	t.pair.b.qp = NULL;
	if (t.pair.b.id)
		t.pair.b.id->qp = NULL;
	collect(&t, &seen, 5, ts_dev()->iwarp ? 6 : 0);
	check_queue(&t, seen.send, seen.nsend, SEND_ID, 1);
	check_queue(&t, seen.recv, seen.nrecv, RECV_ID, 0);
	if (!ts_dev()->iwarp && seen.send[0].status && seen.send[0].status != IBV_WC_RETRY_EXC_ERR)
		TS_FAIL("the first request fails with %s", ibv_wc_status_str(seen.send[0].status));
	if (t.pair.a.events)
		ts_event(t.pair.a.events, RDMA_CM_EVENT_DISCONNECTED);
	close_bench(&t);
}

/* On RoCE a peer that has left is noticed by what is sent to it; receives stay posted until then. */
static void vanished_peer_is_noticed_by_sending(void **state)
{
	struct seen seen;
	struct bench t;
	struct ibv_wc wc;

	(void)state;
	if (ts_dev()->iwarp)
		ts_skip("only for RoCE");
	open_bench(&t, PLAIN, false);
	TS_OK(post_one(&t, IBV_WR_RDMA_READ, SEND_ID, true));
	ts_poll_ok(t.pair.a.scq, &wc);
	post_recvs(&t, 3);
	TS_OK(ibv_destroy_qp(t.pair.b.qp));
	t.pair.b.qp = NULL;
	ts_poll_none(t.pair.a.rcq);
	TS_OK(post_one(&t, IBV_WR_RDMA_READ, SEND_ID, true));
	collect(&t, &seen, 1, 3);
	TS_EQ(seen.send[0].status, IBV_WC_RETRY_EXC_ERR);
	check_queue(&t, seen.recv, seen.nrecv, RECV_ID, 0);
	close_bench(&t);
}

/* On RoCE: so is one that has gone before anything was exchanged, or was never there. */
static void peer_that_never_came(void **state)
{
	struct seen seen;
	struct bench t;

	(void)state;
	if (ts_dev()->iwarp)
		ts_skip("only for RoCE");
	open_bench(&t, PLAIN, false);
	TS_OK(ibv_destroy_qp(t.pair.b.qp));
	t.pair.b.qp = NULL;
	post_recvs(&t, 3);
	for (int i = 0; i < 3; i++)
		TS_OK(post_one(&t, IBV_WR_SEND, SEND_ID + (uint64_t)i, true));
	collect(&t, &seen, 3, 3);
	TS_EQ(seen.send[0].status, IBV_WC_RETRY_EXC_ERR);
	check_queue(&t, seen.send, seen.nsend, SEND_ID, 1);
	check_queue(&t, seen.recv, seen.nrecv, RECV_ID, 0);
	close_bench(&t);
}

static void local_disconnect(void **state)
{
	struct seen seen;
	struct bench t;

	(void)state;
	if (!ts_dev()->iwarp)
		ts_skip("only with rdma_cm");
	open_bench(&t, PLAIN, false);
	make_outstanding(&t, 4, true);
	post_recvs(&t, 6);
	TS_CHECK(!rdma_disconnect(t.pair.a.id));
	collect(&t, &seen, 5, 6);
	check_queue(&t, seen.send, seen.nsend, SEND_ID, 1);
	check_queue(&t, seen.recv, seen.nrecv, RECV_ID, 0);
	ts_event(t.pair.a.events, RDMA_CM_EVENT_DISCONNECTED);
	ts_event(t.pair.b.events, RDMA_CM_EVENT_DISCONNECTED);
	TS_CHECK(!rdma_disconnect(t.pair.b.id));
	ts_no_event(t.pair.a.events);
	ts_no_event(t.pair.b.events);
	close_bench(&t);
}

/* Completions that nobody polled go away with their QP; the CQ serves another QP afterwards. */
static void nothing_after_destroy(void **state)
{
	struct ts_attr attr = { 0 };
	struct ts_pair other;
	struct ibv_wc wc;
	struct bench t;
	struct ibv_cq *cq;

	(void)state;
	if (!ts_dev()->ours)
		ts_skip("the distribution's provider leaves completions of destroyed QPs in the CQ");
	cq = ibv_create_cq(ts_dev()->ctx, 4 * DEPTH, NULL, NULL, 0);
	TS_CHECK(cq);
	ts_buf_open(&t.local, 65536);
	ts_buf_open(&t.remote, 65536);
	attr.scq = attr.rcq = cq;
	attr.cap.max_send_wr = attr.cap.max_recv_wr = DEPTH;
	t.path = PLAIN;
	ts_pair_open(&t.pair, &attr, NULL);
	ts_pair_open(&other, &attr, NULL);
	make_outstanding(&t, 5, true);
	post_recvs(&t, 7);
	to_error(t.pair.a.qp);
	ts_sleep_ms(TS_QUIET_MS);
	/* one completion of a living QP among those of the dead one */
	TS_OK(ts_post(other.a.qp, IBV_WR_RDMA_WRITE, 77, &t.local, 0, 64, (uintptr_t)t.remote.p,
		      t.remote.mr->rkey, 0));
	ts_sleep_ms(TS_QUIET_MS);
	ts_pair_close(&t.pair);
	ts_poll_ok(cq, &wc);
	TS_EQ(wc.wr_id, 77);
	TS_EQ(wc.qp_num, other.a.qp->qp_num);
	ts_poll_none(cq);
	ts_pair_close(&other);
	ts_poll_none(cq);
	TS_OK(ibv_destroy_cq(cq));
	ts_buf_close(&t.local);
	ts_buf_close(&t.remote);
}

static void reset_takes_nothing(void **state)
{
	struct ts_buf buf;
	struct ts_end end;
	int rc;

	(void)state;
	ts_buf_open(&buf, 4096);
	ts_end_open(&end, NULL);
	if (!ts_known_defect("posting in RESET is not refused")) {
		rc = ts_post(end.qp, IBV_WR_SEND, 1, &buf, 0, 8, 0, 0, 0);
		TS_EQ(rc, EINVAL);
		rc = ts_post_recv(end.qp, 1, &buf, 0, 8);
		TS_EQ(rc, EINVAL);
	}
	ts_poll_none(end.scq);
	ts_end_close(&end);
	ts_buf_close(&buf);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_separate_cqs),
		cmocka_unit_test(plain_shared_cq),
		cmocka_unit_test(plain_unsignalled),
		cmocka_unit_test(plain_nothing_outstanding),
		cmocka_unit_test(plain_nearly_full_queues),
		cmocka_unit_test(extended_calls),
		cmocka_unit_test(extended_unsignalled),
		cmocka_unit_test(error_state_goes_on),
		cmocka_unit_test(peer_disconnects),
		cmocka_unit_test(vanished_peer_is_noticed_by_sending),
		cmocka_unit_test(peer_that_never_came),
		cmocka_unit_test(local_disconnect),
		cmocka_unit_test(nothing_after_destroy),
		cmocka_unit_test(reset_takes_nothing),
	};

	return ts_main(argc, argv, "flush", tests, sizeof(tests) / sizeof(*tests), NULL);
}
