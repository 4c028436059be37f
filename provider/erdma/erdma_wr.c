// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The ibv_wr_* calls.
 *
 * ibv_wr_start takes the lock of the send queue and ibv_wr_complete or ibv_wr_abort gives it back. A
 * builder finishes the WQE before it and begins a new one, whose data a setter may add. Nothing is
 * told to the adapter, and the producer index stays, until the whole list is complete.
 */

#include <errno.h>
#include <inttypes.h>

#include <ccan/minmax.h>

#include "erdma_wqe.h"

/* IBV_SEND_INLINE has no meaning here: inline data comes by its own setters. */
#define ERDMA_WR_FLAGS (ERDMA_SEND_FLAGS & ~IBV_SEND_INLINE)

static __erdma_cold void fail(struct erdma_qp *qp, int err, const char *why, uint64_t value)
{
	if (qp->list.err)
		return;
	qp->list.err = err;
	verbs_err(verbs_get_ctx(qp->vqp.qp.context),
		  "QP %u: list given up at work request %#" PRIx64 ": %s (%" PRIu64 ")\n", qp->qpn,
		  qp->vqp.qp_ex.wr_id, why, value);
}

static __erdma_inline void finish_current(struct erdma_qp *qp)
{
	struct erdma_wr_list *list = &qp->list;

	if (!list->num_blocks)
		return;
	if (unlikely(list->data > ERDMA_WR_ANY_DATA))
		fail(qp, EINVAL, "READ or atomic without SGE", 0);

	erdma_wqe_finish(qp, list->pi, list->wqe, list->num_blocks, list->hdr);
	qp->sq.wrs[list->pi & qp->sq.mask].next_pi = list->pi + list->num_blocks;
	list->pi += list->num_blocks;
	list->num_blocks = 0;
}

/* Begins a WQE. Returns where it is built, or NULL if the list has failed. */
static __erdma_inline void *begin(struct erdma_qp *qp, uint64_t op, uint32_t head_size,
				  enum erdma_wr_data data)
{
	struct erdma_wr_list *list = &qp->list;
	uint32_t blocks = erdma_wqe_blocks(head_size);

	finish_current(qp);
	if (unlikely(list->err))
		return NULL;
	if (unlikely(erdma_sq_free(&qp->sq, list->pi) < blocks)) {
		fail(qp, ENOMEM, "send queue full, blocks posted", qp->sq.mask + 1);
		return NULL;
	}

	list->hdr = qp->sq.hdr | op | erdma_flag_bits[qp->vqp.qp_ex.wr_flags & ERDMA_WR_FLAGS];
	list->wqe = erdma_wqe_start(qp, list->pi);
	list->num_blocks = blocks;
	list->head_size = head_size;
	list->data = data;
	qp->sq.wrs[list->pi & qp->sq.mask].wr_id = qp->vqp.qp_ex.wr_id;
	return list->wqe;
}

/* Room for @size bytes of data in the current WQE. Returns where to put them, or NULL. */
static __erdma_inline void *extend(struct erdma_qp *qp, uint32_t size)
{
	struct erdma_wr_list *list = &qp->list;
	uint32_t blocks = erdma_wqe_blocks(list->head_size + size);

	if (unlikely(erdma_sq_free(&qp->sq, list->pi) < blocks)) {
		fail(qp, ENOMEM, "send queue full, blocks posted", qp->sq.mask + 1);
		return NULL;
	}
	list->num_blocks = blocks;
	list->data = ERDMA_WR_NO_DATA;
	return list->wqe + list->head_size;
}

/* Every operation with data has its length at the same place. */
static __erdma_inline void set_length(struct erdma_qp *qp, uint32_t length)
{
	static_assert(offsetof(struct erdma_send_wqe, length) ==
			      offsetof(struct erdma_write_wqe, length),
		      "length moved");
	((struct erdma_send_wqe *)qp->list.wqe)->length = htole32(length);
}

static void wr_start(struct ibv_qp_ex *ibqp)
{
	struct erdma_qp *qp = to_eqp_ex(ibqp);

	erdma_lock(&qp->sq.lock);
	qp->list.start_pi = atomic_load_explicit(&qp->sq.pi, memory_order_relaxed);
	qp->list.pi = qp->list.start_pi;
	qp->list.num_blocks = 0;
	qp->list.err = qp->send_err;
}

static int wr_complete(struct ibv_qp_ex *ibqp)
{
	struct erdma_qp *qp = to_eqp_ex(ibqp);
	struct erdma_sq *sq = &qp->sq;
	int err;

	finish_current(qp);
	err = qp->list.err;
	if (likely(!err && qp->list.pi != qp->list.start_pi)) {
		atomic_store_explicit(&sq->pi, qp->list.pi, memory_order_release);
		erdma_ring(sq->dbrec, sq->db, sq->db_bits | qp->list.pi);
	}
	erdma_unlock(&sq->lock);
	return err;
}

static void wr_abort(struct ibv_qp_ex *ibqp)
{
	erdma_unlock(&to_eqp_ex(ibqp)->sq.lock);
}

static __erdma_inline struct erdma_send_wqe *begin_send(struct ibv_qp_ex *ibqp, uint64_t op)
{
	struct erdma_send_wqe *wqe;

	wqe = begin(to_eqp_ex(ibqp), op, sizeof(*wqe), ERDMA_WR_ANY_DATA);
	if (likely(wqe))
		wqe->length = 0;
	return wqe;
}

static void wr_send(struct ibv_qp_ex *ibqp)
{
	begin_send(ibqp, ERDMA_WQE_OP(SEND));
}

static void wr_send_imm(struct ibv_qp_ex *ibqp, __be32 imm_data)
{
	struct erdma_send_wqe *wqe = begin_send(ibqp, ERDMA_WQE_OP(SEND_WITH_IMM));

	if (likely(wqe))
		wqe->imm_data = imm_data;
}

static void wr_send_inv(struct ibv_qp_ex *ibqp, uint32_t invalidate_rkey)
{
	struct erdma_send_wqe *wqe = begin_send(ibqp, ERDMA_WQE_OP(SEND_WITH_INV));

	if (likely(wqe))
		wqe->invalidate_rkey = htole32(invalidate_rkey);
}

static __erdma_inline struct erdma_write_wqe *begin_write(struct ibv_qp_ex *ibqp, uint64_t op,
							  uint32_t rkey, uint64_t raddr)
{
	struct erdma_write_wqe *wqe;

	wqe = begin(to_eqp_ex(ibqp), op, sizeof(*wqe), ERDMA_WR_ANY_DATA);
	if (likely(wqe)) {
		wqe->length = 0;
		wqe->rkey = htole32(rkey);
		wqe->raddr = htole64(raddr);
	}
	return wqe;
}

static void wr_rdma_write(struct ibv_qp_ex *ibqp, uint32_t rkey, uint64_t raddr)
{
	begin_write(ibqp, ERDMA_WQE_OP(WRITE), rkey, raddr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ibqp, uint32_t rkey, uint64_t raddr,
			      __be32 imm_data)
{
	struct erdma_write_wqe *wqe = begin_write(ibqp, ERDMA_WQE_OP(WRITE_WITH_IMM), rkey, raddr);

	if (likely(wqe))
		wqe->imm_data = imm_data;
}

static void wr_rdma_read(struct ibv_qp_ex *ibqp, uint32_t rkey, uint64_t raddr)
{
	struct erdma_read_wqe *wqe;

	wqe = begin(to_eqp_ex(ibqp), ERDMA_WQE_OP(READ), sizeof(*wqe), ERDMA_WR_READ_SINK);
	if (likely(wqe)) {
		wqe->rkey = htole32(rkey);
		wqe->raddr = htole64(raddr);
	}
}

static __erdma_inline void begin_atomic(struct ibv_qp_ex *ibqp, uint64_t op, uint32_t rkey,
					uint64_t raddr, uint64_t compare, uint64_t swap_add)
{
	struct erdma_atomic_wqe *wqe;

	wqe = begin(to_eqp_ex(ibqp), op, sizeof(*wqe), ERDMA_WR_ATOMIC_SINK);
	if (likely(wqe)) {
		wqe->rkey = htole32(rkey);
		wqe->raddr = htole64(raddr);
		wqe->compare = htole64(compare);
		wqe->swap_add = htole64(swap_add);
	}
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ibqp, uint32_t rkey, uint64_t raddr,
			      uint64_t compare, uint64_t swap)
{
	begin_atomic(ibqp, ERDMA_WQE_OP(ATOMIC_CAS), rkey, raddr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ibqp, uint32_t rkey, uint64_t raddr, uint64_t add)
{
	begin_atomic(ibqp, ERDMA_WQE_OP(ATOMIC_FAA), rkey, raddr, 0, add);
}

static void wr_local_inv(struct ibv_qp_ex *ibqp, uint32_t invalidate_rkey)
{
	struct erdma_inv_wqe *wqe;

	wqe = begin(to_eqp_ex(ibqp), ERDMA_WQE_OP(LOCAL_INV), sizeof(*wqe), ERDMA_WR_NO_DATA);
	if (likely(wqe)) {
		memset(wqe, 0, sizeof(*wqe));
		wqe->stag = htole32(invalidate_rkey);
	}
}

static void set_read_sink(struct erdma_qp *qp, const struct ibv_sge *sge)
{
	struct erdma_read_wqe *wqe = (struct erdma_read_wqe *)qp->list.wqe;

	wqe->length = htole32(sge->length);
	wqe->rlength = wqe->length;
	wqe->sink_addr = htole64(sge->addr);
	wqe->sink_lkey = htole32(sge->lkey);
	qp->list.data = ERDMA_WR_NO_DATA;
}

static void set_atomic_sink(struct erdma_qp *qp, const struct ibv_sge *sge)
{
	struct erdma_atomic_wqe *wqe = (struct erdma_atomic_wqe *)qp->list.wqe;

	if (sge->length != ERDMA_ATOMIC_LENGTH)
		fail(qp, EINVAL, "atomic on a buffer that is not of 8 bytes", sge->length);
	wqe->sink_addr = htole64(sge->addr);
	wqe->sink_length = htole32(sge->length);
	wqe->sink_lkey = htole32(sge->lkey);
	qp->list.data = ERDMA_WR_NO_DATA;
}

static __erdma_inline void set_sges(struct erdma_qp *qp, size_t num_sge,
				    const struct ibv_sge *sg_list)
{
	struct erdma_sge *dst;
	uint64_t total = 0;
	size_t i;

	if (unlikely(!qp->list.num_blocks))
		return;
	if (unlikely(qp->list.data != ERDMA_WR_ANY_DATA)) {
		if (qp->list.data == ERDMA_WR_READ_SINK && num_sge == 1)
			set_read_sink(qp, sg_list);
		else if (qp->list.data == ERDMA_WR_ATOMIC_SINK && num_sge == 1)
			set_atomic_sink(qp, sg_list);
		else
			fail(qp, EINVAL, "SGEs that the work request does not take", num_sge);
		return;
	}
	if (unlikely(num_sge > ERDMA_MAX_SEND_SGE)) {
		fail(qp, EINVAL, "too many SGEs", num_sge);
		return;
	}

	dst = extend(qp, num_sge * sizeof(*dst));
	if (unlikely(!dst))
		return;
	for (i = 0; i < num_sge; i++) {
		erdma_set_sge(&dst[i], &sg_list[i]);
		total += sg_list[i].length;
	}
	if (unlikely(total > UINT32_MAX)) {
		fail(qp, EINVAL, "message too long", total);
		return;
	}
	set_length(qp, total);
	qp->list.hdr |= (uint64_t)num_sge << ERDMA_WQE_SGL_SHIFT;
}

static void wr_set_sge(struct ibv_qp_ex *ibqp, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	set_sges(to_eqp_ex(ibqp), 1, &sge);
}

static void wr_set_sge_list(struct ibv_qp_ex *ibqp, size_t num_sge, const struct ibv_sge *sg_list)
{
	set_sges(to_eqp_ex(ibqp), num_sge, sg_list);
}

/* Room for @length bytes of inline data. Returns where to put them, or NULL. */
static __erdma_inline uint8_t *begin_inline(struct erdma_qp *qp, uint64_t length)
{
	uint8_t *dst;

	if (unlikely(!qp->list.num_blocks))
		return NULL;
	if (unlikely(qp->list.data != ERDMA_WR_ANY_DATA)) {
		fail(qp, EINVAL, "inline data that the work request does not take", length);
		return NULL;
	}
	if (unlikely(length > ERDMA_MAX_INLINE)) {
		fail(qp, EINVAL, "too much inline data", length);
		return NULL;
	}

	dst = extend(qp, length);
	if (likely(dst)) {
		set_length(qp, length);
		qp->list.hdr |= ERDMA_WQE_INLINE | length << ERDMA_WQE_SGL_SHIFT;
	}
	return dst;
}

static void wr_set_inline_data(struct ibv_qp_ex *ibqp, void *addr, size_t length)
{
	uint8_t *dst = begin_inline(to_eqp_ex(ibqp), length);

	if (likely(dst))
		erdma_copy_inline(dst, addr, length);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ibqp, size_t num_buf,
				    const struct ibv_data_buf *buf_list)
{
	struct erdma_qp *qp = to_eqp_ex(ibqp);
	uint64_t total = 0;
	uint8_t *dst;
	size_t i;

	/* Each length is compared for itself, so that no sum can wrap. */
	for (i = 0; i < num_buf && total <= ERDMA_MAX_INLINE; i++)
		total += min(buf_list[i].length, (size_t)ERDMA_MAX_INLINE + 1);

	dst = begin_inline(qp, total);
	if (unlikely(!dst))
		return;
	for (i = 0; i < num_buf; i++) {
		erdma_copy_inline(dst, buf_list[i].addr, buf_list[i].length);
		dst += buf_list[i].length;
	}
}

#define ERDMA_ATOMIC_OPS (IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

#define ERDMA_WR_OPS                                                                            \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_LOCAL_INV |   \
	 IBV_QP_EX_WITH_SEND_WITH_INV | ERDMA_ATOMIC_OPS)

int erdma_qp_set_wr_ops(struct erdma_context *ctx, struct erdma_qp *qp, uint64_t send_ops)
{
	struct ibv_qp_ex *ex = &qp->vqp.qp_ex;
	uint64_t known = ERDMA_WR_OPS;

	if (!ctx->atomics)
		known &= ~(uint64_t)ERDMA_ATOMIC_OPS;
	if (send_ops & ~known) {
		verbs_err(&ctx->vctx, "QP: send_ops_flags %#" PRIx64 ", known are %#" PRIx64 "\n",
			  send_ops, known);
		return EOPNOTSUPP;
	}

	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;

	/* What was not asked for stays NULL. */
	if (send_ops & IBV_QP_EX_WITH_SEND)
		ex->wr_send = wr_send;
	if (send_ops & IBV_QP_EX_WITH_SEND_WITH_IMM)
		ex->wr_send_imm = wr_send_imm;
	if (send_ops & IBV_QP_EX_WITH_SEND_WITH_INV)
		ex->wr_send_inv = wr_send_inv;
	if (send_ops & IBV_QP_EX_WITH_RDMA_WRITE)
		ex->wr_rdma_write = wr_rdma_write;
	if (send_ops & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)
		ex->wr_rdma_write_imm = wr_rdma_write_imm;
	if (send_ops & IBV_QP_EX_WITH_RDMA_READ)
		ex->wr_rdma_read = wr_rdma_read;
	if (send_ops & IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP)
		ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	if (send_ops & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
		ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	if (send_ops & IBV_QP_EX_WITH_LOCAL_INV)
		ex->wr_local_inv = wr_local_inv;
	return 0;
}
