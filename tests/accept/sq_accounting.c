// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Send queue accounting: room is counted in blocks of the ring, so that a full queue refuses a WR of
 * any size with ENOMEM and overwrites nothing, through many laps of the 16-bit index.
 */
#include <errno.h>
#include "tests/accept/harness.h"

enum {
	SLOT = 512,	/* bytes of remote memory that one WR writes at most */
	ROUNDS = 90000, /* x 2.5 blocks: more than three laps of 65536 */
	LAP_DEPTH = 64,
	PIECE = 40, /* bytes of one SGE */
	MAX_WR = 4096,
};

static uint8_t *slot_of(const struct ts_buf *buf, unsigned int i)
{
	return (uint8_t *)buf->p + (size_t)i * SLOT;
}

/* RDMA WRITE of @nsge pieces of the local slot to the remote slot of the same number: 1 + (nsge + 1) / 2 blocks. */
static int post_write(struct ibv_qp *qp, const struct ts_buf *local, const struct ts_buf *remote,
		      unsigned int slot, int nsge, uint64_t id, bool signalled)
{
	struct ibv_send_wr wr = { .wr_id = id,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .num_sge = nsge,
				  .send_flags = signalled ? IBV_SEND_SIGNALED : 0 };
	struct ibv_sge sge[TS_MAX_SEND_SGE];
	struct ibv_send_wr *bad = NULL;
	int rc;

	for (int i = 0; i < nsge; i++)
		sge[i] = ts_sge(local, (size_t)slot * SLOT + (size_t)i * PIECE, PIECE);
	wr.sg_list = sge;
	wr.wr.rdma.remote_addr = (uintptr_t)slot_of(remote, slot);
	wr.wr.rdma.rkey = remote->mr->rkey;
	rc = ibv_post_send(qp, &wr, &bad);
	if (rc)
		assert_ptr_equal(bad, &wr);
	return rc;
}

static void check_slot(const struct ts_buf *remote, unsigned int slot, int nsge, uint32_t seed)
{
	ssize_t at = ts_differs(slot_of(remote, slot), (size_t)nsge * PIECE, seed);

	if (at >= 0)
		TS_FAIL("byte %zd of slot %u is wrong after a write of %d pieces", at, slot, nsge);
}

/*
 * Nothing is polled, so the provider must take the queue for full however fast the device is.
 * @exact: four times @depth is a power of two, so not one WR more fits the ring.
 */
static void fill_up(unsigned int depth, bool exact)
{
	struct ts_attr attr = { .cap = { .max_send_wr = depth, .max_send_sge = TS_MAX_SEND_SGE },
				.cqe = MAX_WR * 4 };
	struct ts_buf local, remote;
	struct ts_pair pair;
	struct ibv_wc *wc;
	unsigned int n;
	int rc = 0;

	ts_pair_open(&pair, &attr, NULL);
	if (pair.a.attr.cap.max_send_wr < depth)
		TS_FAIL("asked for %u WRs, got %u", depth, pair.a.attr.cap.max_send_wr);
	ts_buf_open(&local, (size_t)(MAX_WR + 2) * SLOT);
	ts_buf_open(&remote, (size_t)(MAX_WR + 2) * SLOT);
	for (n = 0; n < MAX_WR; n++) {
		ts_fill(slot_of(&local, n), SLOT, n);
		rc = post_write(pair.a.qp, &local, &remote, n, TS_MAX_SEND_SGE, n, true);
		if (rc)
			break;
	}
	if (n < pair.a.attr.cap.max_send_wr)
		TS_FAIL("WR %u of max_send_wr %u was refused: %s", n, pair.a.attr.cap.max_send_wr,
			strerror(abs(rc)));
	if (exact && pair.a.attr.cap.max_send_wr == depth)
		TS_EQ(n, depth);
	if (!ts_known_defect("negative errno values"))
		TS_EQ(rc, ENOMEM);
	/* smaller ones do not fit either: the ring is full to the last block */
	if (exact) {
		rc = post_write(pair.a.qp, &local, &remote, n, 1, n, true);
		TS_EQ(abs(rc), ENOMEM);
	}
	wc = calloc(n, sizeof(*wc));
	TS_CHECK(wc);
	ts_poll(pair.a.scq, wc, (int)n);
	for (unsigned int i = 0; i < n; i++) {
		TS_EQ(wc[i].status, IBV_WC_SUCCESS);
		TS_EQ(wc[i].wr_id, i);
		TS_EQ(wc[i].opcode, IBV_WC_RDMA_WRITE);
	}
	/* a read behind them proves that they have arrived */
	TS_OK(ts_post(pair.a.qp, IBV_WR_RDMA_READ, n, &local, (size_t)MAX_WR * SLOT, 8,
		      (uintptr_t)remote.p, remote.mr->rkey, 0));
	ts_poll_ok(pair.a.scq, wc);
	for (unsigned int i = 0; i < n; i++)
		check_slot(&remote, i, TS_MAX_SEND_SGE, i);
	free(wc);
	ts_pair_close(&pair);
	ts_buf_close(&local);
	ts_buf_close(&remote);
}

static void full_at_1(void **state)
{
	(void)state;
	fill_up(1, true);
}

static void full_at_16(void **state)
{
	(void)state;
	fill_up(16, true);
}

static void full_at_17(void **state)
{
	(void)state;
	fill_up(17, false);
}

static void full_at_1024(void **state)
{
	(void)state;
	fill_up(1024, true);
}

/* A small WR fits where a large one does not; both are told apart at every fill level. */
static void room_by_blocks(void **state)
{
	struct ts_attr attr = { .cap = { .max_send_wr = 4, .max_send_sge = TS_MAX_SEND_SGE } };
	const int blocks = 16;
	struct ts_buf local, remote;
	struct ts_pair pair;
	struct ibv_wc wc;

	(void)state;
	if (!ts_dev()->ours)
		ts_skip("the distribution's provider, overflow check ignores the WQE size");
	ts_buf_open(&local, 64 * SLOT);
	ts_buf_open(&remote, 64 * SLOT);
	/* the inline flag with 0 bytes is a WR of one block */
	for (int used = 0; used <= blocks; used++) {
		ts_pair_open(&pair, &attr, NULL);
		for (int i = 0; i < used; i++)
			TS_OK(post_write(pair.a.qp, &local, &remote, 0, 0, 0, true));
		for (int nsge = TS_MAX_SEND_SGE; nsge > 0; nsge--) {
			int need = 1 + (nsge + 1) / 2;
			int rc;

			if (used + need <= blocks)
				continue;
			rc = post_write(pair.a.qp, &local, &remote, 1, nsge, 1, true);
			TS_EQ(rc, ENOMEM);
		}
		for (int left = blocks - used; left >= 2; left -= 2)
			TS_OK(post_write(pair.a.qp, &local, &remote, 2, 2, 2, true));
		while (ts_poll_some(pair.a.scq, &wc, 1, 20))
			TS_EQ(wc.status, IBV_WC_SUCCESS);
		ts_pair_close(&pair);
	}
	ts_buf_close(&local);
	ts_buf_close(&remote);
}

/* In a chain the WRs before the failing one are done, the failing one and those behind it are not. */
static void chain_stops_at_bad_wr(void **state)
{
	struct ts_attr attr = { .cap = { .max_send_wr = 4, .max_send_sge = TS_MAX_SEND_SGE } };
	struct ibv_send_wr wr[6] = { 0 }, *bad = NULL;
	struct ibv_sge sge[TS_MAX_SEND_SGE];
	struct ts_buf local, remote;
	struct ts_pair pair;
	struct ibv_wc wc[6];
	int rc;

	(void)state;
	ts_pair_open(&pair, &attr, NULL);
	ts_buf_open(&local, 8 * SLOT);
	ts_buf_open(&remote, 8 * SLOT);
	ts_fill(local.p, SLOT, 5);
	for (int i = 0; i < TS_MAX_SEND_SGE; i++)
		sge[i] = ts_sge(&local, (size_t)i * PIECE, PIECE);
	for (int i = 0; i < 6; i++) {
		wr[i].wr_id = (uint64_t)i;
		wr[i].next = i < 5 ? &wr[i + 1] : NULL;
		wr[i].opcode = IBV_WR_RDMA_WRITE;
		wr[i].send_flags = IBV_SEND_SIGNALED;
		wr[i].sg_list = sge;
		wr[i].num_sge = TS_MAX_SEND_SGE;
		wr[i].wr.rdma.remote_addr = (uintptr_t)slot_of(&remote, (unsigned int)i);
		wr[i].wr.rdma.rkey = remote.mr->rkey;
	}
	rc = ibv_post_send(pair.a.qp, wr, &bad);
	if (!ts_known_defect("negative errno values"))
		TS_EQ(rc, ENOMEM);
	assert_ptr_equal(bad, &wr[4]);
	ts_poll(pair.a.scq, wc, 4);
	ts_poll_none(pair.a.scq);
	/* an invalid one in the middle: too many SGEs, an opcode that does not exist */
	wr[1].num_sge = TS_MAX_SEND_SGE + 1;
	wr[2].next = NULL;
	bad = NULL;
	rc = ibv_post_send(pair.a.qp, wr, &bad);
	TS_EQ(abs(rc), EINVAL);
	assert_ptr_equal(bad, &wr[1]);
	ts_poll_ok(pair.a.scq, wc);
	TS_EQ(wc[0].wr_id, 0);
	wr[1].num_sge = TS_MAX_SEND_SGE;
	wr[1].opcode = (enum ibv_wr_opcode)63;
	bad = NULL;
	rc = ibv_post_send(pair.a.qp, wr, &bad);
	if (!rc)
		TS_FAIL("opcode 63 was accepted");
	assert_ptr_equal(bad, &wr[1]);
	ts_poll_ok(pair.a.scq, wc);
	ts_poll_none(pair.a.scq);
	/* the refused ones left no trace: the queue still takes all it should */
	wr[1].opcode = IBV_WR_RDMA_WRITE;
	wr[2].next = &wr[3];
	wr[3].next = NULL;
	TS_OK(ibv_post_send(pair.a.qp, wr, &bad));
	ts_poll(pair.a.scq, wc, 4);
	for (int i = 0; i < 4; i++) {
		TS_EQ(wc[i].wr_id, i);
		TS_EQ(wc[i].status, IBV_WC_SUCCESS);
	}
	ts_pair_close(&pair);
	ts_buf_close(&local);
	ts_buf_close(&remote);
}

/* One WR, by ibv_post_send or by ibv_wr_*; with an aborted batch in front of the latter at times. */
static int post_any(struct ts_end *end, const struct ts_buf *local, const struct ts_buf *remote,
		    unsigned int slot, int nsge, uint64_t id, bool signalled, bool abort_first)
{
	struct ibv_sge sge[TS_MAX_SEND_SGE];
	struct ibv_qp_ex *ex;

	if (!end->attr.qp_ex)
		return post_write(end->qp, local, remote, slot, nsge, id, signalled);
	ex = ibv_qp_to_qp_ex(end->qp);
	if (abort_first) {
		ibv_wr_start(ex);
		for (int i = 0; i < 2; i++) {
			ex->wr_id = ~0ull;
			ex->wr_flags = IBV_SEND_SIGNALED;
			ibv_wr_rdma_write(ex, remote->mr->rkey, (uintptr_t)slot_of(remote, slot));
			ibv_wr_set_sge(ex, local->mr->lkey, (uintptr_t)local->p, PIECE);
		}
		ibv_wr_abort(ex);
	}
	for (int i = 0; i < nsge; i++)
		sge[i] = ts_sge(local, (size_t)slot * SLOT + (size_t)i * PIECE, PIECE);
	ibv_wr_start(ex);
	ex->wr_id = id;
	ex->wr_flags = signalled ? IBV_SEND_SIGNALED : 0;
	ibv_wr_rdma_write(ex, remote->mr->rkey, (uintptr_t)slot_of(remote, slot));
	ibv_wr_set_sge_list(ex, (size_t)nsge, sge);
	return ibv_wr_complete(ex);
}

/*
 * Sizes of 1 to 4 blocks in an order that meets the end of the ring in each phase; every eighth WR is
 * signalled, and its completion stands for the ones before it.  A slot is checked once its WR and a
 * later read are complete.
 */
static void laps(bool extended)
{
	struct ts_attr attr = { .cap = { .max_send_wr = LAP_DEPTH,
					 .max_send_sge = TS_MAX_SEND_SGE },
				.qp_ex = extended };
	const unsigned int group = LAP_DEPTH / 2;
	long rounds = ts_scale(ROUNDS);
	struct ts_buf local, remote;
	struct ts_pair pair;
	uint32_t random = 1;
	struct ibv_wc wc;
	int *nsge;

	if (extended && !ts_has_qp_ex())
		ts_skip("the provider has no ibv_wr_* calls");
	nsge = calloc(group, sizeof(*nsge));
	TS_CHECK(nsge);
	ts_pair_open(&pair, &attr, NULL);
	ts_buf_open(&local, (size_t)(LAP_DEPTH + 1) * SLOT);
	ts_buf_open(&remote, (size_t)(LAP_DEPTH + 1) * SLOT);
	for (long done = 0; done < rounds; done += group) {
		for (unsigned int i = 0; i < group; i++) {
			random = random * 1103515245u + 12345;
			nsge[i] = (int)((random >> 16) % (TS_MAX_SEND_SGE + 1));
			ts_fill(slot_of(&local, i), (size_t)TS_MAX_SEND_SGE * PIECE,
				(uint32_t)done + i);
			TS_OK(post_any(&pair.a, &local, &remote, i, nsge[i], (uint64_t)done + i,
				       i % 8 == 7, random >> 24 & 1));
		}
		TS_OK(ts_post(pair.a.qp, IBV_WR_RDMA_READ, ~1ull, &local, LAP_DEPTH * SLOT, 8,
			      (uintptr_t)remote.p, remote.mr->rkey, 0));
		for (unsigned int i = 7; i < group; i += 8) {
			ts_poll_ok(pair.a.scq, &wc);
			TS_EQ(wc.wr_id, (uint64_t)done + i);
		}
		ts_poll_ok(pair.a.scq, &wc);
		TS_EQ(wc.wr_id, ~1ull);
		for (unsigned int i = 0; i < group; i++)
			check_slot(&remote, i, nsge[i], (uint32_t)done + i);
	}
	ts_poll_none(pair.a.scq);
	free(nsge);
	ts_pair_close(&pair);
	ts_buf_close(&local);
	ts_buf_close(&remote);
}

static void three_laps(void **state)
{
	(void)state;
	laps(false);
}

static void three_laps_extended(void **state)
{
	(void)state;
	laps(true);
}

/* ibv_wr_complete reports the first failure, and then none of the batch is done. */
static void extended_batch_is_atomic(void **state)
{
	struct ts_attr attr = { .cap = { .max_send_wr = 4, .max_send_sge = TS_MAX_SEND_SGE },
				.qp_ex = true };
	struct ts_buf local, remote;
	struct ts_pair pair;
	struct ibv_qp_ex *ex;
	struct ibv_wc wc[4];

	(void)state;
	if (!ts_has_qp_ex())
		ts_skip("the provider has no ibv_wr_* calls");
	ts_pair_open(&pair, &attr, NULL);
	ts_buf_open(&local, 4096);
	ts_buf_open(&remote, 4096);
	ts_fill(local.p, 64, 3);
	ex = ibv_qp_to_qp_ex(pair.a.qp);
	ibv_wr_start(ex);
	for (uint64_t i = 0; i < 17; i++) {
		ex->wr_id = i;
		ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(ex, remote.mr->rkey, (uintptr_t)remote.p);
		ibv_wr_set_sge(ex, local.mr->lkey, (uintptr_t)local.p, 64);
	}
	TS_EQ(ibv_wr_complete(ex), ENOMEM);
	ts_poll_none(pair.a.scq);
	assert_int_equal(*(uint8_t *)remote.p, 0);
	for (uint64_t i = 0; i < 4; i++) {
		ibv_wr_start(ex);
		ex->wr_id = i;
		ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(ex, remote.mr->rkey, (uintptr_t)remote.p);
		ibv_wr_set_sge(ex, local.mr->lkey, (uintptr_t)local.p, 64);
		TS_OK(ibv_wr_complete(ex));
	}
	ts_poll(pair.a.scq, wc, 4);
	ts_poll_none(pair.a.scq);
	ts_pair_close(&pair);
	ts_buf_close(&local);
	ts_buf_close(&remote);
}

/* The receive queue: all of max_recv_wr fit, one more is refused, and it wraps for many laps. */
static void receive_queue(void **state)
{
	struct ts_attr attr = { .cap = { .max_recv_wr = 32 } };
	long rounds = ts_scale(70000);
	struct ts_buf local, remote;
	struct ts_pair pair;
	struct ibv_wc wc;
	unsigned int n;
	int rc = 0;

	(void)state;
	ts_pair_open(&pair, NULL, &attr);
	ts_buf_open(&local, 4096);
	ts_buf_open(&remote, 64 * 64);
	for (n = 0; n < 1000; n++) {
		rc = ts_post_recv(pair.b.qp, n, &remote, (n % 64) * 64, 64);
		if (rc)
			break;
	}
	if (pair.b.attr.cap.max_recv_wr == 32)
		TS_EQ(n, 32);
	if (n < pair.b.attr.cap.max_recv_wr)
		TS_FAIL("%u receives fit, max_recv_wr is %u", n, pair.b.attr.cap.max_recv_wr);
	if (!ts_known_defect("negative errno values"))
		TS_EQ(rc, ENOMEM);
	for (long i = 0; i < rounds; i++) {
		*(uint64_t *)local.p = (uint64_t)i * 0x9e3779b97f4a7c15ull;
		TS_OK(ts_post(pair.a.qp, IBV_WR_SEND, (uint64_t)i, &local, 0, 8, 0, 0, 0));
		ts_poll_ok(pair.a.scq, &wc);
		ts_poll_ok(pair.b.rcq, &wc);
		TS_EQ(wc.wr_id, i);
		TS_EQ(wc.byte_len, 8);
		TS_EQ(wc.opcode, IBV_WC_RECV);
		TS_EQ(*(uint64_t *)((uint8_t *)remote.p + (size_t)(i % 64) * 64),
		      (uint64_t)i * 0x9e3779b97f4a7c15ull);
		TS_OK(ts_post_recv(pair.b.qp, (uint64_t)i + n, &remote, ((size_t)i + n) % 64 * 64,
				   64));
	}
	ts_pair_close(&pair);
	ts_buf_close(&local);
	ts_buf_close(&remote);
}

/* Send-only and receive-only QPs are legal. */
static void zero_depths(void **state)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC };
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	(void)state;
	if (!ts_dev()->ours)
		ts_skip("the distribution's provider, max_send_wr or max_recv_wr of 0 fails");
	cq = ibv_create_cq(ts_dev()->ctx, 16, NULL, NULL, 0);
	TS_CHECK(cq);
	for (int i = 0; i < 4; i++) {
		memset(&attr.cap, 0, sizeof(attr.cap));
		attr.send_cq = attr.recv_cq = cq;
		if (i & 1) {
			attr.cap.max_send_wr = 8;
			attr.cap.max_send_sge = 1;
		}
		if (i & 2) {
			attr.cap.max_recv_wr = 8;
			attr.cap.max_recv_sge = 1;
		}
		qp = ibv_create_qp(ts_dev()->pd, &attr);
		TS_CHECK(qp);
		TS_OK(ibv_destroy_qp(qp));
	}
	TS_OK(ibv_destroy_cq(cq));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(full_at_1),
		cmocka_unit_test(full_at_16),
		cmocka_unit_test(full_at_17),
		cmocka_unit_test(full_at_1024),
		cmocka_unit_test(room_by_blocks),
		cmocka_unit_test(chain_stops_at_bad_wr),
		cmocka_unit_test(three_laps),
		cmocka_unit_test(three_laps_extended),
		cmocka_unit_test(extended_batch_is_atomic),
		cmocka_unit_test(receive_queue),
		cmocka_unit_test(zero_depths),
	};

	return ts_main(argc, argv, "sq_accounting", tests, sizeof(tests) / sizeof(*tests), NULL);
}
