// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Taking completions from a CQ, for ibv_poll_cq and for the extended interface.
 *
 * Every value of a CQE is checked before it is used as an index: the ring is memory that the
 * adapter writes, and an adapter may fail.
 */

#include <errno.h>
#include <string.h>

#include "erdma.h"

/* vendor_err of a completion that names an operation or a work request that does not exist. */
#define ERDMA_VENDOR_ERR_BAD_CQE 0xff

/* In wc_flags below: there is no such operation. */
#define ERDMA_NO_OP BIT(31)

/*
 * By the low bits of the opcode. The table is complete, so that a good completion is told from a
 * bad one by one test of the header and, in the rare case of flags, one of those.
 */
#define ERDMA_CQE_OP_INDEX   GENMASK(20, 16)
#define ERDMA_NUM_OP_INDICES 32
#define ERDMA_CQE_ODD	     ((ERDMA_CQE_OPCODE & ~ERDMA_CQE_OP_INDEX) | ERDMA_CQE_SYNDROME)

struct erdma_wc_op {
	uint32_t status; /* the first two as they stand in struct ibv_wc */
	uint32_t opcode;
	uint32_t wc_flags;
	uint32_t pad; /* to a power of two */
};

#define WC_OP(op, flags)                              \
	{                                             \
		IBV_WC_SUCCESS, IBV_WC_##op, flags, 0 \
	}
#define WC_NO_OP                                                \
	{                                                       \
		IBV_WC_GENERAL_ERR, IBV_WC_SEND, ERDMA_NO_OP, 0 \
	}

static const struct erdma_wc_op erdma_wc_ops[] = {
	[ERDMA_OP_WRITE] = WC_OP(RDMA_WRITE, 0),
	[ERDMA_OP_READ] = WC_OP(RDMA_READ, 0),
	[ERDMA_OP_SEND] = WC_OP(SEND, 0),
	[ERDMA_OP_SEND_WITH_IMM] = WC_OP(SEND, 0),
	[ERDMA_OP_RECV] = WC_OP(RECV, 0),
	[ERDMA_OP_RECV_IMM] = WC_OP(RECV_RDMA_WITH_IMM, IBV_WC_WITH_IMM),
	[ERDMA_OP_RECV_INV] = WC_OP(RECV, IBV_WC_WITH_INV),
	[7] = WC_NO_OP,
	[8] = WC_NO_OP,
	[ERDMA_OP_WRITE_WITH_IMM] = WC_OP(RDMA_WRITE, 0),
	[10] = WC_NO_OP,
	[11] = WC_NO_OP,
	[ERDMA_OP_RECV_SEND_IMM] = WC_OP(RECV, IBV_WC_WITH_IMM),
	[ERDMA_OP_SEND_WITH_INV] = WC_OP(SEND, 0),
	[ERDMA_OP_REG_MR] = WC_NO_OP,
	[ERDMA_OP_LOCAL_INV] = WC_OP(LOCAL_INV, 0),
	[ERDMA_OP_READ_WITH_INV] = WC_OP(RDMA_READ, 0),
	[ERDMA_OP_ATOMIC_CAS] = WC_OP(COMP_SWAP, 0),
	[ERDMA_OP_ATOMIC_FAA] = WC_OP(FETCH_ADD, 0),
	[ERDMA_NUM_OPS... ERDMA_NUM_OP_INDICES - 1] = WC_NO_OP,
};

static_assert(offsetof(struct ibv_wc, opcode) - offsetof(struct ibv_wc, status) ==
		      offsetof(struct erdma_wc_op, opcode),
	      "struct ibv_wc changed");

static const struct {
	uint8_t status;
	uint8_t vendor_err;
} erdma_syndromes[ERDMA_NUM_SYN] = {
	[ERDMA_SYN_SUCCESS] = { IBV_WC_SUCCESS, 0 },
	[ERDMA_SYN_GENERAL] = { IBV_WC_GENERAL_ERR, 0 },
	[ERDMA_SYN_RECV_FORMAT] = { IBV_WC_GENERAL_ERR, 0x01 },
	[ERDMA_SYN_RECV_STAG] = { IBV_WC_REM_ACCESS_ERR, 0x02 },
	[ERDMA_SYN_RECV_BOUNDS] = { IBV_WC_REM_ACCESS_ERR, 0x03 },
	[ERDMA_SYN_RECV_RIGHTS] = { IBV_WC_REM_ACCESS_ERR, 0x04 },
	[ERDMA_SYN_RECV_PD] = { IBV_WC_REM_ACCESS_ERR, 0x05 },
	[ERDMA_SYN_RECV_WRAP] = { IBV_WC_REM_ACCESS_ERR, 0x06 },
	[ERDMA_SYN_SEND_FORMAT] = { IBV_WC_LOC_QP_OP_ERR, 0x20 },
	[ERDMA_SYN_SEND_ORD] = { IBV_WC_GENERAL_ERR, 0x21 },
	[ERDMA_SYN_SEND_STAG] = { IBV_WC_LOC_ACCESS_ERR, 0x30 },
	[ERDMA_SYN_SEND_BOUNDS] = { IBV_WC_LOC_ACCESS_ERR, 0x31 },
	[ERDMA_SYN_SEND_RIGHTS] = { IBV_WC_LOC_ACCESS_ERR, 0x32 },
	[ERDMA_SYN_SEND_PD] = { IBV_WC_LOC_ACCESS_ERR, 0x33 },
	[ERDMA_SYN_SEND_WRAP] = { IBV_WC_LOC_ACCESS_ERR, 0x34 },
	[ERDMA_SYN_FLUSH] = { IBV_WC_WR_FLUSH_ERR, 0 },
	[ERDMA_SYN_RETRY] = { IBV_WC_RETRY_EXC_ERR, 0 },
};

static __erdma_inline const struct erdma_wc_op *hdr_op(uint32_t hdr)
{
	return &erdma_wc_ops[FIELD_GET(ERDMA_CQE_OP_INDEX, hdr)];
}

/* Success with an operation that does not exist counts as failure. */
static __erdma_inline bool hdr_good(uint32_t hdr)
{
	return !(hdr & ERDMA_CQE_ODD) && !(hdr_op(hdr)->wc_flags & ERDMA_NO_OP);
}

static enum ibv_wc_status hdr_status(uint32_t hdr)
{
	uint32_t syndrome = FIELD_GET(ERDMA_CQE_SYNDROME, hdr);

	if (hdr_good(hdr))
		return IBV_WC_SUCCESS;
	if (!syndrome || syndrome >= ERDMA_NUM_SYN)
		return IBV_WC_GENERAL_ERR;
	return erdma_syndromes[syndrome].status;
}

static uint32_t hdr_vendor_err(uint32_t hdr)
{
	uint32_t syndrome = FIELD_GET(ERDMA_CQE_SYNDROME, hdr);

	if (hdr_good(hdr))
		return 0;
	if (!syndrome)
		return ERDMA_VENDOR_ERR_BAD_CQE;
	return syndrome < ERDMA_NUM_SYN ? erdma_syndromes[syndrome].vendor_err : 0;
}

/*
 * Immediate data, or the key that a send with invalidate named, as both stand in struct ibv_wc:
 * one in network order, the other in the host's.
 */
static __erdma_inline uint32_t imm_or_inv(const struct erdma_cqe *cqe, uint32_t wc_flags)
{
	if (wc_flags & IBV_WC_WITH_INV)
		return be32toh(cqe->inv_rkey);
	return (__force uint32_t)htobe32(le32toh(cqe->imm_data));
}

/* The WQE whose first block has the running index @index, or NULL if none such is outstanding. */
static __erdma_inline struct erdma_swr *find_swr(const struct erdma_sq *sq, uint16_t index)
{
	uint16_t ci = atomic_load_explicit(&sq->ci, memory_order_relaxed);
	uint16_t pi = atomic_load_explicit(&sq->pi, memory_order_acquire);
	struct erdma_swr *swr = &sq->wrs[index & sq->mask];

	if (unlikely((uint16_t)(index - ci) >= (uint16_t)(pi - ci)))
		return NULL;
	/* What an older lap left in a place that is no first block now is too far away. */
	if (unlikely((uint16_t)(swr->next_pi - index - 1) >= ERDMA_MAX_WQE_BLOCKS))
		return NULL;
	return swr;
}

/* The slots up to @pi are free from here on: all that is needed from them has been read. */
static __erdma_inline void free_sq(struct erdma_sq *sq, uint16_t pi)
{
	atomic_store_explicit(&sq->ci, pi, memory_order_release);
}

/*
 * Takes the oldest receive. Its place in the ring is @index, of which only the low bits count.
 * Returns false if none is posted.
 */
static __erdma_inline bool take_rq(struct erdma_rq *rq, uint32_t index, uint64_t *wr_id)
{
	uint32_t ci = atomic_load_explicit(&rq->ci, memory_order_relaxed);

	if (unlikely(atomic_load_explicit(&rq->pi, memory_order_acquire) == ci))
		return false;
	*wr_id = rq->wr_ids[index & rq->mask];
	atomic_store_explicit(&rq->ci, ci + 1, memory_order_release);
	return true;
}

/* A completion that has been taken from the ring. */
struct erdma_comp {
	uint64_t wr_id;
	uint32_t hdr;
};

/*
 * A send completion names no outstanding WQE. One that was completed before is a duplicate and
 * takes nothing from the application; anything else is reported, for the WQE it stands for would
 * never complete. Returns whether to report it.
 */
static __erdma_cold bool bad_send(struct erdma_cq *cq, struct erdma_qp *qp, uint16_t index,
				  struct erdma_comp *c)
{
	uint16_t ci = atomic_load_explicit(&qp->sq.ci, memory_order_relaxed);
	uint16_t pi = atomic_load_explicit(&qp->sq.pi, memory_order_relaxed);
	bool done_before = (uint16_t)(ci - index - 1) <= qp->sq.mask;

	verbs_err(verbs_get_ctx(cq->vcq.cq.context),
		  "CQ %u: completion of QP %u names block %u, outstanding are %u up to %u: %s\n",
		  (unsigned int)FIELD_GET(ERDMA_CQ_DB_CQN, cq->cqn_bits), qp->qpn, index, ci, pi,
		  done_before ? "dropped as a duplicate" : "reported");
	c->wr_id = 0;
	c->hdr |= ERDMA_CQE_OPCODE; /* no operation: whatever the syndrome, it failed */
	return !done_before;
}

static __erdma_cold void bad_recv(struct erdma_cq *cq, struct erdma_qp *qp)
{
	verbs_err(verbs_get_ctx(cq->vcq.cq.context),
		  "CQ %u: receive completion of QP %u, which has no receive posted: dropped\n",
		  (unsigned int)FIELD_GET(ERDMA_CQ_DB_CQN, cq->cqn_bits), qp->qpn);
}

/* Whether the completion of a live QP at @cqe is one to report. Frees its slot of the queue. */
static __erdma_inline bool account(struct erdma_cq *cq, struct erdma_qp *qp,
				   const struct erdma_cqe *cqe, struct erdma_comp *c)
{
	uint32_t index = be32toh(cqe->index);
	struct erdma_swr *swr;

	if (c->hdr & ERDMA_CQE_QTYPE) {
		if (likely(take_rq(&qp->rq, index, &c->wr_id)))
			return true;
		bad_recv(cq, qp);
		return false;
	}

	swr = find_swr(&qp->sq, index);
	if (unlikely(!swr))
		return bad_send(cq, qp, index, c);
	c->wr_id = swr->wr_id;
	free_sq(&qp->sq, swr->next_pi);
	return true;
}

/*
 * Takes the next completion of a live QP, whatever it may be, and passes over those of QPs that are
 * gone. Returns its place in the ring, which stays as it is while the lock is held, or NULL.
 */
static __erdma_inline const struct erdma_cqe *take(struct erdma_cq *cq, struct erdma_comp *c)
{
	const struct erdma_cqe *cqe;
	struct erdma_qp *qp;

	for (;;) {
		cqe = erdma_cq_next(&cq->pos);
		c->hdr = erdma_cqe_hdr(cqe);
		if (!erdma_cqe_valid(&cq->pos, c->hdr))
			return NULL;
		udma_from_device_barrier();
		erdma_cq_step(cq, &cq->pos);

		qp = *erdma_cq_place(cq, be32toh(cqe->qpn));
		if (likely(qp != &erdma_no_qp) && account(cq, qp, cqe, c))
			return cqe;
	}
}

/* Goes on with polling after @n entries, with the lock held, and gives it back. */
static __erdma_cold int poll_any(struct erdma_cq *cq, int n, int num_entries, struct ibv_wc *wc)
{
	const struct erdma_cqe *cqe;
	struct erdma_comp c;

	for (; n < num_entries; n++, wc++) {
		cqe = take(cq, &c);
		if (!cqe)
			break;
		wc->wr_id = c.wr_id;
		wc->status = hdr_status(c.hdr);
		wc->opcode = c.hdr & ERDMA_CQE_OPCODE & ~ERDMA_CQE_OP_INDEX ? IBV_WC_SEND :
									      hdr_op(c.hdr)->opcode;
		wc->vendor_err = hdr_vendor_err(c.hdr);
		wc->byte_len = be32toh(cqe->length);
		wc->qp_num = be32toh(cqe->qpn);
		wc->wc_flags = 0;
		if (hdr_good(c.hdr)) {
			wc->wc_flags = hdr_op(c.hdr)->wc_flags;
			wc->invalidated_rkey = imm_or_inv(cqe, wc->wc_flags);
		}
	}
	erdma_unlock(&cq->lock);
	return n;
}

static __erdma_cold int poll_contended(struct erdma_cq *cq, int num_entries, struct ibv_wc *wc)
{
	erdma_lock_contended(&cq->lock);
	return poll_any(cq, 0, num_entries, wc);
}

/*
 * Good completions of live QPs. Before one is touched that is anything else, the work is handed
 * over; so this function calls nobody and keeps everything in registers.
 */
static __erdma_inline int poll(struct erdma_cq *cq, int num_entries, struct ibv_wc *wc,
			       const bool shared)
{
	const struct erdma_wc_op *op;
	const struct erdma_cqe *cqe;
	struct erdma_swr *swr;
	struct erdma_qp *qp;
	uint32_t hdr, index;
	int n;

	if (shared && unlikely(!erdma_spin_trylock(&cq->lock)))
		return poll_contended(cq, num_entries, wc);

	for (n = 0; n < num_entries; n++, wc++) {
		cqe = erdma_cq_next(&cq->pos);
		hdr = erdma_cqe_hdr(cqe);
		if (!erdma_cqe_valid(&cq->pos, hdr))
			break;
		udma_from_device_barrier();

		/* First what needs no more than the entry itself: few values stay alive after it. */
		wc->qp_num = be32toh(cqe->qpn);
		wc->byte_len = be32toh(cqe->length);
		wc->vendor_err = 0;
		index = be32toh(cqe->index);
		qp = cq->qps[wc->qp_num & cq->qps_mask];
		if (unlikely(qp->qpn != wc->qp_num || (hdr & ERDMA_CQE_ODD)))
			return poll_any(cq, n, num_entries, wc);
		op = hdr_op(hdr);
		memcpy(&wc->status, &op->status, sizeof(wc->status) + sizeof(wc->opcode));
		wc->wc_flags = op->wc_flags;
		if (unlikely(op->wc_flags)) {
			if (unlikely(op->wc_flags & ERDMA_NO_OP))
				return poll_any(cq, n, num_entries, wc);
			wc->invalidated_rkey = imm_or_inv(cqe, op->wc_flags);
		}

		if (hdr & ERDMA_CQE_QTYPE) {
			if (unlikely(!take_rq(&qp->rq, index, &wc->wr_id)))
				return poll_any(cq, n, num_entries, wc);
		} else {
			swr = find_swr(&qp->sq, index);
			if (unlikely(!swr))
				return poll_any(cq, n, num_entries, wc);
			wc->wr_id = swr->wr_id;
			free_sq(&qp->sq, swr->next_pi);
		}
		erdma_cq_step(cq, &cq->pos);
	}

	if (shared)
		erdma_spin_unlock(&cq->lock);
	return n;
}

static int poll_shared(struct erdma_cq *cq, int num_entries, struct ibv_wc *wc)
{
	return poll(cq, num_entries, wc, true);
}

static int poll_single(struct erdma_cq *cq, int num_entries, struct ibv_wc *wc)
{
	return poll(cq, num_entries, wc, false);
}

int erdma_poll_cq(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc)
{
	struct erdma_cq *cq = to_ecq(ibcq);

	return cq->poll(cq, num_entries, wc);
}

/*
 * The extended interface. The lock is held from a successful start to the end, and the current
 * completion is a copy: its slot is free already, and its QP may go away.
 */
static __erdma_inline int step(struct erdma_cq *cq)
{
	const struct erdma_cqe *cqe;
	struct erdma_comp c;

	cqe = take(cq, &c);
	if (!cqe)
		return ENOENT;

	cq->vcq.cq_ex.wr_id = c.wr_id;
	cq->vcq.cq_ex.status = likely(hdr_good(c.hdr)) ? IBV_WC_SUCCESS : hdr_status(c.hdr);
	cq->cur_hdr = c.hdr;
	cq->cur = *cqe;
	return 0;
}

static int start_poll_single(struct ibv_cq_ex *ibcq, struct ibv_poll_cq_attr *attr)
{
	if (unlikely(attr->comp_mask))
		return EINVAL;
	return step(to_ecq_ex(ibcq));
}

static int start_poll_shared(struct ibv_cq_ex *ibcq, struct ibv_poll_cq_attr *attr)
{
	struct erdma_cq *cq = to_ecq_ex(ibcq);
	int ret;

	if (unlikely(attr->comp_mask))
		return EINVAL;

	erdma_spin_lock(&cq->lock);
	ret = step(cq);
	if (ret)
		erdma_spin_unlock(&cq->lock);
	return ret;
}

static int next_poll(struct ibv_cq_ex *ibcq)
{
	return step(to_ecq_ex(ibcq));
}

static void end_poll_single(struct ibv_cq_ex *ibcq)
{
}

static void end_poll_shared(struct ibv_cq_ex *ibcq)
{
	erdma_spin_unlock(&to_ecq_ex(ibcq)->lock);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ibcq)
{
	return hdr_op(to_ecq_ex(ibcq)->cur_hdr)->opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ibcq)
{
	return hdr_vendor_err(to_ecq_ex(ibcq)->cur_hdr);
}

static uint32_t read_byte_len(struct ibv_cq_ex *ibcq)
{
	return be32toh(to_ecq_ex(ibcq)->cur.length);
}

static unsigned int read_wc_flags(struct ibv_cq_ex *ibcq)
{
	uint32_t hdr = to_ecq_ex(ibcq)->cur_hdr;

	return hdr_good(hdr) ? hdr_op(hdr)->wc_flags : 0;
}

static __be32 read_imm_data(struct ibv_cq_ex *ibcq)
{
	return (__force __be32)imm_or_inv(&to_ecq_ex(ibcq)->cur, read_wc_flags(ibcq));
}

static uint32_t read_qp_num(struct ibv_cq_ex *ibcq)
{
	return be32toh(to_ecq_ex(ibcq)->cur.qpn);
}

/* Fields of datagrams and of the InfiniBand link layer: a connected QP has none of them. */
static uint32_t read_none_u32(struct ibv_cq_ex *ibcq)
{
	return 0;
}

static uint8_t read_none_u8(struct ibv_cq_ex *ibcq)
{
	return 0;
}

void erdma_cq_set_poll_ops(struct erdma_cq *cq, bool ex)
{
	struct ibv_cq_ex *ibcq = &cq->vcq.cq_ex;

	cq->poll = cq->lock.shared ? poll_shared : poll_single;
	if (!ex)
		return;

	ibcq->start_poll = cq->lock.shared ? start_poll_shared : start_poll_single;
	ibcq->next_poll = next_poll;
	ibcq->end_poll = cq->lock.shared ? end_poll_shared : end_poll_single;
	ibcq->read_opcode = read_opcode;
	ibcq->read_vendor_err = read_vendor_err;
	ibcq->read_byte_len = read_byte_len;
	ibcq->read_imm_data = read_imm_data;
	ibcq->read_qp_num = read_qp_num;
	ibcq->read_wc_flags = read_wc_flags;
	ibcq->read_src_qp = read_none_u32;
	ibcq->read_slid = read_none_u32;
	ibcq->read_sl = read_none_u8;
	ibcq->read_dlid_path_bits = read_none_u8;
}
