// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Finishing the work requests of a QP that has left the data path.
 */
#include "adapter/core/core_internal.h"

/* Blocks and opcode of the WQE at sq->ci as far as they can be believed. */
static uint16_t peek_wqe(struct ea_qp *qp, uint8_t *opcode)
{
	struct ea_sq *sq = &qp->sq;
	uint16_t left = sq->pi - sq->ci;
	const struct ea_sq_rec *rec;
	const uint8_t *wqe;
	uint64_t header;
	uint16_t blocks;

	if (sq->ci != sq->next) {
		rec = &sq->rec[sq->ci & sq->ring.mask];
		*opcode = rec->op;
		return rec->blocks;
	}
	*opcode = EA_OP_SEND;
	wqe = ea_ring_entry(qp->dev, &sq->ring, sq->ci);
	if (!wqe)
		return left;
	header = ea_le64(wqe);
	ea_copied();
	if (EA_FIELD(EA_SQ_OPCODE, header) < EA_OP_COUNT)
		*opcode = EA_FIELD(EA_SQ_OPCODE, header);
	blocks = EA_FIELD(EA_SQ_BLOCKS, header) + 1;
	return blocks < left ? blocks : left;
}

static void flush_sq(struct ea_qp *qp, const struct ea_stop *stop)
{
	struct ea_sq *sq = &qp->sq;
	uint16_t culprit = sq->ci;
	struct ea_cqe cqe = { .qtype = EA_QTYPE_SQ, .qpn = qp->qpn };
	uint16_t blocks;

	if (stop->has_culprit && ea_sq_outstanding(sq, stop->sq_culprit))
		culprit = stop->sq_culprit;
	while (sq->ci != sq->pi) {
		blocks = peek_wqe(qp, &cqe.opcode);
		cqe.index = sq->ci;
		cqe.syndrome = EA_SYN_FLUSH;
		if (stop->sq_syn && sq->ci == culprit)
			cqe.syndrome = stop->sq_syn;
		if (sq->ci == sq->next)
			sq->next += blocks;
		sq->ci += blocks;
		ea_cq_post(qp->dev, qp->scq, &cqe);
	}
	sq->bad = 0;
	sq->imm_due = false;
	sq->stalled = false;
}

static void flush_rq(struct ea_qp *qp, const struct ea_stop *stop)
{
	struct ea_rq *rq = &qp->rq;
	struct ea_cqe cqe = { .qtype = EA_QTYPE_RQ, .qpn = qp->qpn, .opcode = EA_OP_RECV };

	cqe.syndrome = stop->rq_syn ? stop->rq_syn : EA_SYN_FLUSH;
	while (rq->ci != rq->pi) {
		cqe.index = rq->ci++;
		ea_cq_post(qp->dev, qp->rcq, &cqe);
		cqe.syndrome = EA_SYN_FLUSH;
	}
	rq->open = false;
	rq->held = false;
}

void ea_flush(struct ea_qp *qp, const struct ea_stop *stop)
{
	flush_sq(qp, stop);
	flush_rq(qp, stop);
}
