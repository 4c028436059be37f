// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* ibv_post_send. */

#include <errno.h>
#include <inttypes.h>

#include "erdma_wqe.h"

void erdma_wqe_copy(struct erdma_sq *sq, uint16_t pi, const uint8_t *wqe, uint32_t num_blocks)
{
	uint32_t i;

	for (i = 0; i < num_blocks; i++)
		memcpy(sq->ring + (((pi + i) & sq->mask) << ERDMA_BLOCK_SHIFT),
		       wqe + (i << ERDMA_BLOCK_SHIFT), ERDMA_BLOCK_SIZE);
}

/* Explains a refusal. The causes are looked for again here, so that the fast path keeps nothing. */
static __erdma_cold int refuse(struct erdma_qp *qp, const struct ibv_send_wr *wr)
{
	struct verbs_context *vctx = verbs_get_ctx(qp->vqp.qp.context);
	uint64_t length = 0;
	int i;

	if (wr->num_sge >= 0 && wr->num_sge <= ERDMA_MAX_SEND_SGE) {
		for (i = 0; i < wr->num_sge; i++)
			length += wr->sg_list[i].length;
	}
	verbs_err(
		vctx,
		"QP %u: work request %#" PRIx64
		" refused: opcode %d, flags %#x, %d SGEs of %" PRIu64
		" bytes; limits are %d SGEs, %d bytes inline, 1 SGE for READ and atomics (8 bytes, %s)\n",
		qp->qpn, wr->wr_id, wr->opcode, wr->send_flags, wr->num_sge, length,
		ERDMA_MAX_SEND_SGE, ERDMA_MAX_INLINE,
		to_ectx(qp->vqp.qp.context)->atomics ? "supported" : "not supported");
	return EINVAL;
}

/*
 * The functions below return the number of blocks of the WQE, 0 if the work request is wrong. A
 * number above @avail means that there is no room and that at most the first block was written.
 */

static __erdma_inline bool read_is_right(const struct ibv_send_wr *wr)
{
	return wr->num_sge == 1 && !(wr->send_flags & IBV_SEND_INLINE);
}

/* All of a READ but its header. */
static __erdma_inline void fill_read(uint8_t *wqe, const struct ibv_send_wr *wr)
{
	struct erdma_read_wqe *read = (struct erdma_read_wqe *)wqe;
	const struct ibv_sge *sink = wr->sg_list;

	read->length = htole32(sink->length);
	read->sink_lkey = htole32(sink->lkey);
	read->sink_addr = htole64(sink->addr);
	read->raddr = htole64(wr->wr.rdma.remote_addr);
	read->rlength = htole32(sink->length);
	read->rkey = htole32(wr->wr.rdma.rkey);
}

static uint32_t put_read(struct erdma_qp *qp, const struct ibv_send_wr *wr, uint16_t pi,
			 uint8_t *wqe, uint32_t avail, uint64_t hdr)
{
	uint32_t blocks = erdma_wqe_blocks(sizeof(struct erdma_read_wqe));

	if (!read_is_right(wr))
		return 0;
	if (blocks > avail)
		return blocks;

	fill_read(wqe, wr);
	erdma_wqe_finish(qp, pi, wqe, blocks, hdr | ERDMA_WQE_OP(READ));
	return blocks;
}

static uint32_t put_atomic(struct erdma_qp *qp, const struct ibv_send_wr *wr, uint16_t pi,
			   uint8_t *wqe, uint32_t avail, uint64_t hdr)
{
	struct erdma_atomic_wqe *atomic = (struct erdma_atomic_wqe *)wqe;
	uint32_t blocks = erdma_wqe_blocks(sizeof(*atomic));

	if (!qp->atomics || wr->num_sge != 1 || (wr->send_flags & IBV_SEND_INLINE) ||
	    wr->sg_list->length != ERDMA_ATOMIC_LENGTH)
		return 0;
	if (blocks > avail)
		return blocks;

	if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		hdr |= ERDMA_WQE_OP(ATOMIC_CAS);
		atomic->swap_add = htole64(wr->wr.atomic.swap);
		atomic->compare = htole64(wr->wr.atomic.compare_add);
	} else {
		hdr |= ERDMA_WQE_OP(ATOMIC_FAA);
		atomic->swap_add = htole64(wr->wr.atomic.compare_add);
		atomic->compare = 0;
	}
	atomic->raddr = htole64(wr->wr.atomic.remote_addr);
	atomic->rkey = htole32(wr->wr.atomic.rkey);
	atomic->sink_addr = htole64(wr->sg_list->addr);
	atomic->sink_length = htole32(wr->sg_list->length);
	atomic->sink_lkey = htole32(wr->sg_list->lkey);
	erdma_wqe_finish(qp, pi, wqe, blocks, hdr);
	return blocks;
}

static uint32_t put_local_inv(struct erdma_qp *qp, const struct ibv_send_wr *wr, uint16_t pi,
			      uint8_t *wqe, uint64_t hdr)
{
	struct erdma_inv_wqe *inv = (struct erdma_inv_wqe *)wqe;

	if (wr->num_sge || (wr->send_flags & IBV_SEND_INLINE))
		return 0;

	memset(inv, 0, sizeof(*inv));
	inv->stag = htole32(wr->invalidate_rkey);
	erdma_wqe_finish(qp, pi, wqe, 1, hdr | ERDMA_WQE_OP(LOCAL_INV));
	return 1;
}

static __erdma_inline uint32_t put_inline(struct erdma_qp *qp, const struct ibv_send_wr *wr,
					  uint16_t pi, uint8_t *wqe, uint32_t head_size,
					  __le32 *length, uint32_t avail, uint64_t hdr)
{
	uint8_t *dst = wqe + head_size;
	uint64_t total = 0;
	uint32_t blocks;
	int i;

	if (unlikely((uint32_t)wr->num_sge > ERDMA_MAX_SEND_SGE))
		return 0;
	for (i = 0; i < wr->num_sge; i++)
		total += wr->sg_list[i].length;
	if (unlikely(total > ERDMA_MAX_INLINE))
		return 0;
	blocks = erdma_wqe_blocks(head_size + total);
	if (unlikely(blocks > avail))
		return blocks;

	*length = htole32(total);
	for (i = 0; i < wr->num_sge; i++) {
		erdma_copy_inline(dst, (const uint8_t *)(uintptr_t)wr->sg_list[i].addr,
				  wr->sg_list[i].length);
		dst += wr->sg_list[i].length;
	}
	erdma_wqe_finish(qp, pi, wqe, blocks, hdr | total << ERDMA_WQE_SGL_SHIFT);
	return blocks;
}

static __erdma_inline uint32_t put_sges(struct erdma_qp *qp, const struct ibv_send_wr *wr,
					uint16_t pi, uint8_t *wqe, uint32_t head_size,
					__le32 *length, uint32_t avail, uint64_t hdr)
{
	struct erdma_sge *dst = (struct erdma_sge *)(wqe + head_size);
	uint32_t num_sge = wr->num_sge;
	uint64_t total = 0;
	uint32_t blocks, i;

	if (unlikely(num_sge > ERDMA_MAX_SEND_SGE))
		return 0;
	blocks = erdma_wqe_blocks(head_size + num_sge * sizeof(*dst));
	if (unlikely(blocks > avail))
		return blocks;

	for (i = 0; i < num_sge; i++) {
		erdma_set_sge(&dst[i], &wr->sg_list[i]);
		total += wr->sg_list[i].length;
	}
	if (unlikely(total > UINT32_MAX))
		return 0;
	*length = htole32(total);
	erdma_wqe_finish(qp, pi, wqe, blocks, hdr | (uint64_t)num_sge << ERDMA_WQE_SGL_SHIFT);
	return blocks;
}

static __erdma_inline uint32_t put_wr(struct erdma_qp *qp, const struct ibv_send_wr *wr,
				      uint16_t pi, uint32_t avail)
{
	uint8_t *wqe = erdma_wqe_start(qp, pi);
	struct erdma_write_wqe *write = (struct erdma_write_wqe *)wqe;
	struct erdma_send_wqe *send = (struct erdma_send_wqe *)wqe;
	uint32_t head_size;
	__le32 *length;
	uint64_t hdr;

	hdr = qp->sq.hdr | erdma_flag_bits[wr->send_flags & ERDMA_SEND_FLAGS];

	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
		hdr |= ERDMA_WQE_OP(WRITE);
		goto write;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		hdr |= ERDMA_WQE_OP(WRITE_WITH_IMM);
		write->imm_data = wr->imm_data;
write:
		write->rkey = htole32(wr->wr.rdma.rkey);
		write->raddr = htole64(wr->wr.rdma.remote_addr);
		length = &write->length;
		head_size = sizeof(*write);
		break;
	case IBV_WR_SEND:
		hdr |= ERDMA_WQE_OP(SEND);
		goto send;
	case IBV_WR_SEND_WITH_IMM:
		hdr |= ERDMA_WQE_OP(SEND_WITH_IMM);
		send->imm_data = wr->imm_data;
		goto send;
	case IBV_WR_SEND_WITH_INV:
		hdr |= ERDMA_WQE_OP(SEND_WITH_INV);
		send->invalidate_rkey = htole32(wr->invalidate_rkey);
send:
		length = &send->length;
		head_size = sizeof(*send);
		break;
	case IBV_WR_RDMA_READ:
		return put_read(qp, wr, pi, wqe, avail, hdr);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return put_atomic(qp, wr, pi, wqe, avail, hdr);
	case IBV_WR_LOCAL_INV:
		return put_local_inv(qp, wr, pi, wqe, hdr);
	default:
		return 0;
	}

	if (wr->send_flags & IBV_SEND_INLINE)
		return put_inline(qp, wr, pi, wqe, head_size, length, avail, hdr);
	return put_sges(qp, wr, pi, wqe, head_size, length, avail, hdr);
}

static __erdma_inline void remember(struct erdma_swr *swr, uint64_t wr_id, uint16_t next_pi)
{
	swr->wr_id = wr_id;
	swr->next_pi = next_pi;
}

static __erdma_inline void ring_sq(struct erdma_sq *sq, uint16_t pi)
{
	atomic_store_explicit(&sq->pi, pi, memory_order_release);
	erdma_ring(sq->dbrec, sq->db, sq->db_bits | pi);
}

/*
 * Posts @wr and what follows. The lock is held and is given back. WQEs from the queue's producer
 * index up to @pi have been written already.
 */
static __attribute__((noinline)) int post_any(struct erdma_qp *qp, struct ibv_send_wr *wr,
					      struct ibv_send_wr **bad_wr, uint16_t pi)
{
	struct erdma_sq *sq = &qp->sq;
	uint32_t avail = erdma_sq_free(sq, pi);
	uint32_t blocks;
	int ret = 0;

	while (wr) {
		blocks = avail ? put_wr(qp, wr, pi, avail) : 1;
		if (unlikely(blocks - 1 >= avail)) {
			if (!blocks) {
				ret = refuse(qp, wr);
				break;
			}
			/* A poller may have made room since the list was begun. */
			avail = erdma_sq_free(sq, pi);
			if (blocks <= avail)
				continue;
			ret = ENOMEM;
			break;
		}
		remember(&sq->wrs[pi & sq->mask], wr->wr_id, pi + blocks);
		pi += blocks;
		avail -= blocks;
		wr = wr->next;
	}

	if (pi != atomic_load_explicit(&sq->pi, memory_order_relaxed))
		ring_sq(sq, pi);
	erdma_unlock(&sq->lock);
	if (ret)
		*bad_wr = wr;
	return ret;
}

static __erdma_cold int post_contended(struct erdma_qp *qp, struct ibv_send_wr *wr,
				       struct ibv_send_wr **bad_wr)
{
	erdma_lock_contended(&qp->sq.lock);
	return post_any(qp, wr, bad_wr, atomic_load_explicit(&qp->sq.pi, memory_order_relaxed));
}

/* Operations of the fast path, by work request opcode; the others have no head. */
static const struct erdma_fast_op {
	uint32_t hdr;
	uint32_t head_size;
} erdma_fast_ops[] = {
	[IBV_WR_RDMA_WRITE] = { ERDMA_WQE_OP(WRITE), sizeof(struct erdma_write_wqe) },
	[IBV_WR_RDMA_WRITE_WITH_IMM] = { ERDMA_WQE_OP(WRITE_WITH_IMM),
					 sizeof(struct erdma_write_wqe) },
	[IBV_WR_SEND] = { ERDMA_WQE_OP(SEND), sizeof(struct erdma_send_wqe) },
	[IBV_WR_SEND_WITH_IMM] = { ERDMA_WQE_OP(SEND_WITH_IMM), sizeof(struct erdma_send_wqe) },
	[IBV_WR_RDMA_READ] = { ERDMA_WQE_OP(READ), sizeof(struct erdma_read_wqe) },
	[IBV_WR_ATOMIC_CMP_AND_SWP] = {},
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = {},
	[IBV_WR_LOCAL_INV] = {},
};

#define ERDMA_NUM_FAST_OPS (sizeof(erdma_fast_ops) / sizeof(erdma_fast_ops[0]))

/* Copies the data of @num SGEs behind each other. Returns whether they are few and short enough. */
static __erdma_inline bool fast_inline(uint8_t *dst, const struct ibv_sge *src, uint32_t num,
				       uint32_t *length)
{
	const struct ibv_sge *end = src + num;
	uint32_t total = 0;

	if (likely(num == 1)) {
		if (unlikely(src->length > ERDMA_MAX_INLINE))
			return false;
		*length = src->length;
		erdma_copy_inline(dst, (const uint8_t *)(uintptr_t)src->addr, src->length);
		return true;
	}
	if (unlikely(num > ERDMA_MAX_SEND_SGE))
		return false;
	for (; src != end; src++) {
		if (unlikely(src->length > ERDMA_MAX_INLINE - total))
			return false;
		erdma_copy_inline(dst + total, (const uint8_t *)(uintptr_t)src->addr, src->length);
		total += src->length;
	}
	*length = total;
	return true;
}

/* Sets @num SGEs. Returns whether they and the message are not too many and too long. */
static __erdma_inline bool fast_sges(struct erdma_sge *dst, const struct ibv_sge *src, uint32_t num,
				     uint32_t *length)
{
	const struct ibv_sge *end = src + num;
	uint64_t total = 0;

	if (likely(num == 1)) {
		erdma_set_sge(dst, src);
		*length = src->length;
		return true;
	}
	if (unlikely(num > ERDMA_MAX_SEND_SGE))
		return false;
	for (; src != end; src++, dst++) {
		erdma_set_sge(dst, src);
		total += src->length;
	}
	*length = total;
	return total <= UINT32_MAX;
}

/*
 * Sends, writes and READs that are right, do not wrap, and find room for the largest WQE. Anything
 * else is handed over, at the latest when the blocks are written but not their header, which is no
 * harm; so this function calls nobody and keeps everything in registers.
 */
static __erdma_inline int post_send(struct erdma_qp *qp, struct ibv_send_wr *wr,
				    struct ibv_send_wr **bad_wr, const bool shared)
{
	struct erdma_sq *sq = &qp->sq;
	const struct erdma_fast_op *op;
	struct erdma_write_wqe *write;
	struct erdma_send_wqe *send;
	uint32_t avail, block, blocks, num, length, pi;
	uint64_t hdr;
	uint8_t *wqe;

	if (shared && unlikely(!erdma_spin_trylock(&sq->lock)))
		return post_contended(qp, wr, bad_wr);

	pi = atomic_load_explicit(&sq->pi, memory_order_relaxed);
	avail = erdma_sq_free(sq, pi);

	for (; wr; wr = wr->next) {
		block = pi & sq->mask;
		if (unlikely(avail < ERDMA_MAX_WQE_BLOCKS || block > sq->last_straight ||
			     wr->opcode >= ERDMA_NUM_FAST_OPS))
			return post_any(qp, wr, bad_wr, pi);

		wqe = sq->ring + (block << ERDMA_BLOCK_SHIFT);
		op = &erdma_fast_ops[wr->opcode];
		hdr = sq->hdr | op->hdr | erdma_flag_bits[wr->send_flags & ERDMA_SEND_FLAGS];
		if (op->head_size == sizeof(*write)) {
			write = (struct erdma_write_wqe *)wqe;
			write->rkey = htole32(wr->wr.rdma.rkey);
			write->raddr = htole64(wr->wr.rdma.remote_addr);
		} else if (unlikely(op->head_size != sizeof(*send))) {
			if (!op->head_size || !read_is_right(wr))
				return post_any(qp, wr, bad_wr, pi);
			fill_read(wqe, wr);
			blocks = erdma_wqe_blocks(sizeof(struct erdma_read_wqe));
			num = 0;
			goto finish;
		}

		num = wr->num_sge;
		if (wr->send_flags & IBV_SEND_INLINE) {
			if (unlikely(!fast_inline(wqe + op->head_size, wr->sg_list, num, &length)))
				return post_any(qp, wr, bad_wr, pi);
			num = length;
			blocks = erdma_wqe_blocks(op->head_size + num);
		} else {
			if (unlikely(!fast_sges((struct erdma_sge *)(wqe + op->head_size),
						wr->sg_list, num, &length)))
				return post_any(qp, wr, bad_wr, pi);
			blocks = erdma_wqe_blocks(op->head_size + num * sizeof(struct erdma_sge));
		}
		/* At the same places in both; without immediate data that place is not looked at. */
		send = (struct erdma_send_wqe *)wqe;
		send->imm_data = wr->imm_data;
		send->length = htole32(length);
finish:
		erdma_wqe_set_hdr(wqe, pi, blocks, hdr | (uint64_t)num << ERDMA_WQE_SGL_SHIFT);
		pi += blocks;
		remember(&sq->wrs[block], wr->wr_id, pi);
		avail -= blocks;
	}

	ring_sq(sq, pi);
	if (shared)
		erdma_spin_unlock(&sq->lock);
	return 0;
}

static int post_send_shared(struct erdma_qp *qp, struct ibv_send_wr *wr,
			    struct ibv_send_wr **bad_wr)
{
	return post_send(qp, wr, bad_wr, true);
}

static int post_send_single(struct erdma_qp *qp, struct ibv_send_wr *wr,
			    struct ibv_send_wr **bad_wr)
{
	return post_send(qp, wr, bad_wr, false);
}

static int post_send_forbidden(struct erdma_qp *qp, struct ibv_send_wr *wr,
			       struct ibv_send_wr **bad_wr)
{
	verbs_err(verbs_get_ctx(qp->vqp.qp.context), "QP %u: no sends can be posted in state %d\n",
		  qp->qpn, qp->state);
	*bad_wr = wr;
	return EINVAL;
}

void erdma_qp_set_post_send(struct erdma_qp *qp, bool allowed)
{
	qp->send_err = allowed ? 0 : EINVAL;
	if (!allowed)
		qp->post_send = post_send_forbidden;
	else
		qp->post_send = qp->sq.lock.shared ? post_send_shared : post_send_single;
}

int erdma_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct erdma_qp *qp = to_eqp(ibqp);

	return qp->post_send(qp, wr, bad_wr);
}
