// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Inline data: exact limits at creation and at post, every size over every number of SGEs at every
 * place of the ring, and buffers that change right after the post.
 */
#include <errno.h>
#include "tests/accept/harness.h"

enum {
	RING_WR = 4,  /* 16 blocks */
	ROUNDS = 200, /* of all combinations: each meets each ring offset about 12 times */
	SRC_LEN = 1024,
	SLOT = 128,
};

static const int sizes[] = { 0, 1, 15, 16, 17, 31, 32, 33, 64, 95, 96 };
enum {
	NSIZES = sizeof(sizes) / sizeof(*sizes)
};

static const struct ts_attr inline_attr = {
	.cap = { .max_send_wr = RING_WR,
		 .max_send_sge = TS_MAX_SEND_SGE,
		 .max_inline_data = TS_MAX_INLINE },
};

static void create_with_inline(uint32_t ask, uint32_t at_least)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 4,
						  .max_recv_wr = 4,
						  .max_send_sge = 1,
						  .max_recv_sge = 1,
						  .max_inline_data = ask } };
	struct ibv_qp_init_attr queried;
	struct ibv_qp_attr qp_attr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	cq = ibv_create_cq(ts_dev()->ctx, 16, NULL, NULL, 0);
	TS_CHECK(cq);
	attr.send_cq = attr.recv_cq = cq;
	errno = 0;
	qp = ibv_create_qp(ts_dev()->pd, &attr);
	if (!at_least) {
		assert_null(qp);
		TS_EQ(errno, EINVAL);
	} else {
		TS_CHECK(qp);
		if (attr.cap.max_inline_data < at_least)
			TS_FAIL("asked for %u bytes inline, got %u", ask, attr.cap.max_inline_data);
		TS_OK(ibv_query_qp(qp, &qp_attr, IBV_QP_CAP, &queried));
		if (qp_attr.cap.max_inline_data < at_least)
			TS_FAIL("ibv_query_qp reports %u bytes inline of %u",
				qp_attr.cap.max_inline_data, at_least);
		TS_OK(ibv_destroy_qp(qp));
	}
	TS_OK(ibv_destroy_cq(cq));
}

static void limits_at_creation(void **state)
{
	(void)state;
	create_with_inline(1, 1);
	create_with_inline(TS_MAX_INLINE, TS_MAX_INLINE);
	create_with_inline(TS_MAX_INLINE + 1, 0);
	create_with_inline(1 << 20, 0);
	create_with_inline(UINT32_MAX, 0);
}

/* @size bytes at uneven places, over @nsge pieces of different lengths. */
static void scatter(struct ibv_sge *sge, int nsge, uint8_t *src, int size)
{
	int left = size, at = 1;

	for (int i = 0; i < nsge; i++) {
		int len = i == nsge - 1 ? left : (size + i) / nsge;

		if (len > left)
			len = left;
		sge[i].addr = (uintptr_t)src + (uintptr_t)at;
		sge[i].length = (uint32_t)len;
		sge[i].lkey = 0xdeadbeef; /* not looked at for inline data */
		at += len + 3;
		left -= len;
	}
}

/* Writes the pattern into the pieces as one byte stream, or (@seed 0) destroys it. */
static void fill_pieces(const struct ibv_sge *sge, int nsge, int size, uint32_t seed)
{
	uint8_t stream[TS_MAX_INLINE + 1];
	int at = 0;

	ts_fill(stream, (size_t)size, seed);
	for (int i = 0; i < nsge; i++) {
		if (seed)
			memcpy((void *)(uintptr_t)sge[i].addr, stream + at, sge[i].length);
		else
			memset((void *)(uintptr_t)sge[i].addr, 0xee, sge[i].length);
		at += (int)sge[i].length;
	}
}

struct bench {
	struct ts_pair pair;
	struct ts_buf remote;
	uint8_t src[SRC_LEN]; /* not registered */
};

static int post_plain(struct bench *t, enum ibv_wr_opcode opcode, struct ibv_sge *sge, int nsge,
		      uint64_t id)
{
	struct ibv_send_wr wr = { .wr_id = id,
				  .opcode = opcode,
				  .sg_list = sge,
				  .num_sge = nsge,
				  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
				  .imm_data = htobe32(0x12345678) };
	struct ibv_send_wr *bad = NULL;
	int rc;

	wr.wr.rdma.remote_addr = (uintptr_t)t->remote.p;
	wr.wr.rdma.rkey = t->remote.mr->rkey;
	rc = ibv_post_send(t->pair.a.qp, &wr, &bad);
	if (rc)
		assert_ptr_equal(bad, &wr);
	return rc;
}

static int post_extended(struct bench *t, enum ibv_wr_opcode opcode, struct ibv_sge *sge, int nsge,
			 uint64_t id)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(t->pair.a.qp);
	struct ibv_data_buf buf[TS_MAX_SEND_SGE];

	for (int i = 0; i < nsge; i++) {
		buf[i].addr = (void *)(uintptr_t)sge[i].addr;
		buf[i].length = sge[i].length;
	}
	ibv_wr_start(ex);
	ex->wr_id = id;
	ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	if (opcode == IBV_WR_SEND)
		ibv_wr_send(ex);
	else if (opcode == IBV_WR_SEND_WITH_IMM)
		ibv_wr_send_imm(ex, htobe32(0x12345678));
	else if (opcode == IBV_WR_RDMA_WRITE)
		ibv_wr_rdma_write(ex, t->remote.mr->rkey, (uintptr_t)t->remote.p);
	else
		ibv_wr_rdma_write_imm(ex, t->remote.mr->rkey, (uintptr_t)t->remote.p,
				      htobe32(0x12345678));
	if (nsge == 1)
		ibv_wr_set_inline_data(ex, buf[0].addr, buf[0].length);
	else
		ibv_wr_set_inline_data_list(ex, (size_t)nsge, buf);
	return ibv_wr_complete(ex);
}

/* One transfer; the source is destroyed as soon as the post has returned. */
static void transfer(struct bench *t, bool extended, enum ibv_wr_opcode opcode, int size, int nsge,
		     uint32_t seed)
{
	bool write = opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct ibv_sge sge[TS_MAX_SEND_SGE];
	uint8_t *dst = t->remote.p;
	struct ibv_wc wc;
	int rc;

	memset(dst, 0x55, SLOT);
	if (opcode != IBV_WR_RDMA_WRITE)
		TS_OK(ts_post_recv(t->pair.b.qp, seed, &t->remote, 0, write ? 0 : SLOT));
	scatter(sge, nsge, t->src, size);
	fill_pieces(sge, nsge, size, seed);
	rc = extended ? post_extended(t, opcode, sge, nsge, seed) :
			post_plain(t, opcode, sge, nsge, seed);
	fill_pieces(sge, nsge, size, 0);
	if (rc)
		TS_FAIL("%d bytes in %d pieces: %s", size, nsge, strerror(abs(rc)));
	ts_poll_ok(t->pair.a.scq, &wc);
	TS_EQ(wc.wr_id, seed);
	if (opcode != IBV_WR_RDMA_WRITE) {
		ts_poll_ok(t->pair.b.rcq, &wc);
		TS_EQ(wc.wr_id, seed);
		TS_EQ(wc.byte_len, size);
	} else {
		for (int i = 0; size && i < 1000 && ts_differs(dst, (size_t)size, seed) >= 0; i++)
			ts_sleep_ms(1);
	}
	if (ts_differs(dst, (size_t)size, seed) >= 0)
		TS_FAIL("%d bytes in %d pieces, opcode %d: byte %zd is wrong", size, nsge, opcode,
			ts_differs(dst, (size_t)size, seed));
	if (dst[size] != 0x55)
		TS_FAIL("%d bytes in %d pieces: the byte behind was written", size, nsge);
}

static void all_sizes(bool extended)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						      IBV_WR_SEND_WITH_IMM,
						      IBV_WR_RDMA_WRITE_WITH_IMM };
	long rounds = ts_scale(ROUNDS);
	struct ts_attr attr = inline_attr;
	uint32_t random = 7, seed = 1;
	struct bench t;

	if (extended && !ts_has_qp_ex())
		ts_skip("the provider has no ibv_wr_* calls");
	attr.qp_ex = extended;
	ts_pair_open(&t.pair, &attr, NULL);
	ts_buf_open(&t.remote, 4096);
	for (long round = 0; round < rounds; round++)
		for (int i = 0; i < NSIZES; i++)
			for (int nsge = 1; nsge <= TS_MAX_SEND_SGE; nsge++) {
				random = random * 1103515245u + 12345;
				transfer(&t, extended, opcodes[random >> 16 & 3], sizes[i], nsge,
					 seed++);
			}
	ts_poll_none(t.pair.a.scq);
	ts_pair_close(&t.pair);
	ts_buf_close(&t.remote);
}

static void sizes_plain(void **state)
{
	(void)state;
	all_sizes(false);
}

static void sizes_extended(void **state)
{
	(void)state;
	all_sizes(true);
}

/* Refused at post, and nothing of the queue is harmed: what was posted before arrives intact. */
static void too_long(void **state)
{
	static const uint32_t lens[][3] = {
		{ TS_MAX_INLINE + 1, 0, 0 },
		{ TS_MAX_INLINE, 1, 0 },
		{ 32, 32, 33 },
		{ 1 << 16, 0, 0 },
	};
	struct ts_attr attr = inline_attr;
	static uint8_t big[1 << 16];
	struct ts_buf local;
	struct ibv_wc wc[4];
	struct bench t;

	(void)state;
	ts_pair_open(&t.pair, &attr, NULL);
	ts_buf_open(&t.remote, 65536);
	ts_buf_open(&local, 4096);
	ts_fill(local.p, 64, 9);
	/* hold the stream, so that what is queued behind is certainly not done yet */
	TS_OK(ts_post(t.pair.a.qp, IBV_WR_SEND, 1, &local, 0, 8, 0, 0, 0));
	TS_OK(ts_post(t.pair.a.qp, IBV_WR_RDMA_WRITE, 2, &local, 0, 64, (uintptr_t)t.remote.p,
		      t.remote.mr->rkey, 0));
	for (size_t i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		struct ibv_sge sge[3];
		int rc;

		for (int j = 0; j < 3; j++)
			sge[j] = (struct ibv_sge){ .addr = (uintptr_t)big, .length = lens[i][j] };
		rc = post_plain(&t, IBV_WR_RDMA_WRITE, sge, 3, 3);
		TS_EQ(abs(rc), EINVAL);
		if (!ts_known_defect("negative errno values"))
			TS_EQ(rc, EINVAL);
		rc = post_plain(&t, IBV_WR_SEND, sge, 3, 3);
		TS_EQ(abs(rc), EINVAL);
	}
	TS_OK(ts_post_recv(t.pair.b.qp, 4, &t.remote, 4096, 64));
	ts_poll(t.pair.a.scq, wc, 2);
	TS_EQ(wc[0].status, IBV_WC_SUCCESS);
	TS_EQ(wc[1].status, IBV_WC_SUCCESS);
	ts_poll_ok(t.pair.b.rcq, wc);
	for (int i = 0; i < 1000 && ts_differs(t.remote.p, 64, 9) >= 0; i++)
		ts_sleep_ms(1);
	TS_EQ(ts_differs(t.remote.p, 64, 9), -1);
	ts_poll_none(t.pair.a.scq);
	ts_pair_close(&t.pair);
	ts_buf_close(&t.remote);
	ts_buf_close(&local);
}

/* Lengths whose sum passes 2^32 are too long, not short. */
static void sum_wraps(void **state)
{
	struct ts_attr attr = inline_attr;
	struct ibv_sge sge[3];
	struct ibv_wc wc;
	struct bench t;

	(void)state;
	if (!ts_dev()->ours)
		ts_skip("the distribution's provider, the inline length sum can wrap");
	ts_pair_open(&t.pair, &attr, NULL);
	ts_buf_open(&t.remote, 4096);
	sge[0] = (struct ibv_sge){ .addr = (uintptr_t)t.src, .length = 64 };
	sge[1] = (struct ibv_sge){ .addr = (uintptr_t)t.src, .length = UINT32_MAX - 31 };
	sge[2] = (struct ibv_sge){ .addr = (uintptr_t)t.src, .length = 0 };
	TS_EQ(post_plain(&t, IBV_WR_SEND, sge, 3, 1), EINVAL);
	TS_EQ(post_plain(&t, IBV_WR_RDMA_WRITE, sge, 2, 1), EINVAL);
	sge[0].length = 1u << 31;
	sge[1].length = 1u << 31;
	sge[2].length = 16;
	TS_EQ(post_plain(&t, IBV_WR_SEND, sge, 3, 1), EINVAL);
	if (ts_has_qp_ex()) {
		struct ts_pair other;

		attr.qp_ex = true;
		ts_pair_open(&other, &attr, NULL);
		ts_pair_close(&t.pair);
		t.pair = other;
		TS_EQ(post_extended(&t, IBV_WR_SEND, sge, 3, 1), EINVAL);
		TS_EQ(post_extended(&t, IBV_WR_RDMA_WRITE, sge, 3, 1), EINVAL);
	}
	/* the queue is as it was */
	transfer(&t, false, IBV_WR_RDMA_WRITE, 96, 6, 11);
	ts_poll_none(t.pair.a.scq);
	/* without the inline flag a message of 4 GiB in total is too long as well, never a short one */
	for (int i = 0; i < 3; i++)
		sge[i].lkey = t.remote.mr->lkey;
	{
		struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE,
					  .sg_list = sge,
					  .num_sge = 3,
					  .send_flags = IBV_SEND_SIGNALED },
				   *bad = NULL;
		int rc;

		wr.wr.rdma.remote_addr = (uintptr_t)t.remote.p;
		wr.wr.rdma.rkey = t.remote.mr->rkey;
		rc = ibv_post_send(t.pair.a.qp, &wr, &bad);
		if (!rc) {
			ts_poll(t.pair.a.scq, &wc, 1);
			assert_int_not_equal(wc.status, IBV_WC_SUCCESS);
		} else {
			TS_EQ(rc, EINVAL);
		}
	}
	ts_pair_close(&t.pair);
	ts_buf_close(&t.remote);
}

/* The flag is for sends and writes; a read with it has nowhere to put its data. */
static void not_for_reads(void **state)
{
	struct ts_attr attr = inline_attr;
	struct bench t;
	struct ibv_sge sge;

	(void)state;
	if (!ts_dev()->ours)
		ts_skip("the distribution's provider hands the inline flag of a read to the device");
	ts_pair_open(&t.pair, &attr, NULL);
	ts_buf_open(&t.remote, 4096);
	sge = ts_sge(&t.remote, 0, 8);
	TS_EQ(post_plain(&t, IBV_WR_RDMA_READ, &sge, 1, 1), EINVAL);
	TS_EQ(post_plain(&t, IBV_WR_RDMA_READ, NULL, 0, 1), EINVAL);
	transfer(&t, false, IBV_WR_SEND, 33, 2, 5);
	ts_pair_close(&t.pair);
	ts_buf_close(&t.remote);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limits_at_creation), cmocka_unit_test(sizes_plain),
		cmocka_unit_test(sizes_extended),     cmocka_unit_test(too_long),
		cmocka_unit_test(sum_wraps),	      cmocka_unit_test(not_for_reads),
	};

	return ts_main(argc, argv, "inline", tests, sizeof(tests) / sizeof(*tests), NULL);
}
