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

struct erdma_comp {
	const struct erdma_cqe *cqe;
	uint64_t wr_id;
	uint32_t hdr;
	uint32_t qpn;
};

static const struct {
	uint32_t opcode;
	uint32_t wc_flags;
} erdma_wc_ops[ERDMA_NUM_OPS] = {
	[ERDMA_OP_WRITE] = { IBV_WC_RDMA_WRITE, 0 },
	[ERDMA_OP_READ] = { IBV_WC_RDMA_READ, 0 },
	[ERDMA_OP_SEND] = { IBV_WC_SEND, 0 },
	[ERDMA_OP_SEND_WITH_IMM] = { IBV_WC_SEND, 0 },
	[ERDMA_OP_RECV] = { IBV_WC_RECV, 0 },
	[ERDMA_OP_RECV_IMM] = { IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_WITH_IMM },
	[ERDMA_OP_RECV_INV] = { IBV_WC_RECV, IBV_WC_WITH_INV },
	[ERDMA_OP_WRITE_WITH_IMM] = { IBV_WC_RDMA_WRITE, 0 },
	[ERDMA_OP_RECV_SEND_IMM] = { IBV_WC_RECV, IBV_WC_WITH_IMM },
	[ERDMA_OP_SEND_WITH_INV] = { IBV_WC_SEND, 0 },
	[ERDMA_OP_LOCAL_INV] = { IBV_WC_LOCAL_INV, 0 },
	[ERDMA_OP_READ_WITH_INV] = { IBV_WC_RDMA_READ, 0 },
	[ERDMA_OP_ATOMIC_CAS] = { IBV_WC_COMP_SWAP, 0 },
	[ERDMA_OP_ATOMIC_FAA] = { IBV_WC_FETCH_ADD, 0 },
};

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

static __erdma_inline uint32_t hdr_opcode(uint32_t hdr)
{
	return FIELD_GET(ERDMA_CQE_OPCODE, hdr);
}

/* Success with an operation that does not exist counts as failure. */
static __erdma_inline bool hdr_good(uint32_t hdr)
{
	return !(hdr & ERDMA_CQE_SYNDROME) && hdr_opcode(hdr) < ERDMA_NUM_OPS;
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
 * A send completion names no outstanding WQE. One that was completed before is a duplicate and
 * takes nothing from the application; anything else is reported, for the WQE it stands for would
 * never complete. Returns whether to report it.
 */
static __erdma_cold bool bad_send_index(struct erdma_cq *cq, struct erdma_qp *qp, uint16_t index,
					struct erdma_comp *c)
{
	uint16_t ci = atomic_load_explicit(&qp->sq.ci, memory_order_relaxed);
	uint16_t pi = atomic_load_explicit(&qp->sq.pi, memory_order_relaxed);
	bool done_before = (uint16_t)(ci - index - 1) <= qp->sq.mask;

	verbs_err(verbs_get_ctx(cq->vcq.cq.context),
		  "CQ %u: completion of QP %u names block %u, outstanding are %u..%u: %s\n",
		  (unsigned int)FIELD_GET(ERDMA_CQ_DB_CQN, cq->cqn_bits), qp->qpn, index, ci,
		  (uint16_t)(pi - 1), done_before ? "dropped as a duplicate" : "reported");
	c->wr_id = 0;
	c->hdr = (c->hdr & ~(uint32_t)ERDMA_CQE_OPCODE) | FIELD_PREP(ERDMA_CQE_OPCODE, 0xffu);
	return !done_before;
}

static __erdma_cold void bad_recv(struct erdma_cq *cq, struct erdma_qp *qp)
{
	verbs_err(verbs_get_ctx(cq->vcq.cq.context),
		  "CQ %u: receive completion of QP %u, which has no receive posted: dropped\n",
		  (unsigned int)FIELD_GET(ERDMA_CQ_DB_CQN, cq->cqn_bits), qp->qpn);
}

static __erdma_inline bool take_send(struct erdma_cq *cq, struct erdma_qp *qp,
				     struct erdma_comp *c)
{
	struct erdma_sq *sq = &qp->sq;
	uint16_t index = be32toh(c->cqe->index);
	uint16_t ci = atomic_load_explicit(&sq->ci, memory_order_relaxed);
	uint16_t pi = atomic_load_explicit(&sq->pi, memory_order_relaxed);
	uint32_t block = index & sq->mask;
	uint64_t wqe_hdr;

	if (unlikely((uint16_t)(index - ci) >= (uint16_t)(pi - ci)))
		return bad_send_index(cq, qp, index, c);

	c->wr_id = sq->wr_ids[block];
	wqe_hdr = le64toh(*(__le64 *)(sq->ring + (block << ERDMA_BLOCK_SHIFT)));
	atomic_store_explicit(&sq->ci, index + 1 + FIELD_GET(ERDMA_WQE_BLOCKS, wqe_hdr),
			      memory_order_release);
	return true;
}

static __erdma_inline bool take_recv(struct erdma_cq *cq, struct erdma_qp *qp,
				     struct erdma_comp *c)
{
	struct erdma_rq *rq = &qp->rq;
	uint32_t ci = atomic_load_explicit(&rq->ci, memory_order_relaxed);

	if (unlikely(atomic_load_explicit(&rq->pi, memory_order_relaxed) == ci)) {
		bad_recv(cq, qp);
		return false;
	}

	c->wr_id = rq->wr_ids[be32toh(c->cqe->index) & rq->mask];
	atomic_store_explicit(&rq->ci, ci + 1, memory_order_release);
	return true;
}

/* Takes the next completion of a live QP. Returns false if there is none. */
static __erdma_inline bool take(struct erdma_cq *cq, struct erdma_comp *c)
{
	struct erdma_qp *qp;
	uint32_t ci;

	for (;;) {
		ci = atomic_load_explicit(&cq->ci, memory_order_relaxed);
		c->cqe = &cq->ring[ci & cq->mask];
		c->hdr = erdma_cqe_hdr(c->cqe);
		if (!erdma_cqe_hdr_valid(cq, c->hdr, ci))
			return false;
		udma_from_device_barrier();
		atomic_store_explicit(&cq->ci, ci + 1, memory_order_relaxed);

		c->qpn = be32toh(c->cqe->qpn);
		qp = erdma_cq_slot(cq, c->qpn)->qp;
		if (unlikely(!qp))
			continue;
		if (!(c->hdr & ERDMA_CQE_QTYPE) ? take_send(cq, qp, c) : take_recv(cq, qp, c))
			return true;
	}
}

/* Immediate data, or the key that a send with invalidate named. */
static __erdma_inline __be32 imm_or_inv(const struct erdma_cqe *cqe, uint32_t wc_flags)
{
	if (wc_flags & IBV_WC_WITH_INV)
		return (__force __be32)be32toh(cqe->inv_rkey);
	return htobe32(le32toh(cqe->imm_data));
}

static __erdma_inline int poll(struct erdma_cq *cq, int num_entries, struct ibv_wc *wc,
			       const bool shared)
{
	struct erdma_comp c;
	uint32_t op;
	int n;

	if (shared)
		erdma_spin_lock(&cq->lock);

	for (n = 0; n < num_entries && take(cq, &c); n++, wc++) {
		wc->wr_id = c.wr_id;
		wc->byte_len = be32toh(c.cqe->length);
		wc->qp_num = c.qpn;
		wc->src_qp = 0;
		wc->pkey_index = 0;
		wc->slid = 0;
		wc->sl = 0;
		wc->dlid_path_bits = 0;
		if (unlikely(!hdr_good(c.hdr))) {
			wc->status = hdr_status(c.hdr);
			wc->vendor_err = hdr_vendor_err(c.hdr);
			wc->opcode = IBV_WC_SEND;
			if (hdr_opcode(c.hdr) < ERDMA_NUM_OPS)
				wc->opcode = erdma_wc_ops[hdr_opcode(c.hdr)].opcode;
			wc->wc_flags = 0;
			continue;
		}
		op = hdr_opcode(c.hdr);
		wc->status = IBV_WC_SUCCESS;
		wc->vendor_err = 0;
		wc->opcode = erdma_wc_ops[op].opcode;
		wc->wc_flags = erdma_wc_ops[op].wc_flags;
		if (wc->wc_flags)
			wc->imm_data = imm_or_inv(c.cqe, wc->wc_flags);
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
	struct erdma_comp c;

	if (!take(cq, &c))
		return ENOENT;

	cq->vcq.cq_ex.wr_id = c.wr_id;
	cq->vcq.cq_ex.status = likely(hdr_good(c.hdr)) ? IBV_WC_SUCCESS : hdr_status(c.hdr);
	cq->cur_hdr = c.hdr;
	cq->cur = *c.cqe;
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
	uint32_t op = hdr_opcode(to_ecq_ex(ibcq)->cur_hdr);

	return op < ERDMA_NUM_OPS ? erdma_wc_ops[op].opcode : IBV_WC_SEND;
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

	return hdr_good(hdr) ? erdma_wc_ops[hdr_opcode(hdr)].wc_flags : 0;
}

static __be32 read_imm_data(struct ibv_cq_ex *ibcq)
{
	return imm_or_inv(&to_ecq_ex(ibcq)->cur, read_wc_flags(ibcq));
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
