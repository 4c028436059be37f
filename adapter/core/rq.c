// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The receive queue: doorbell, fetching an RQE for a message, completing it.
 */
#include "adapter/core/core_internal.h"

void ea_db_rq(struct ea_dev *dev, uint64_t value)
{
	static const struct ea_stop flush = { .event = EA_NO_EVENT };
	struct ea_qp *qp = ea_qp_find(dev, EA_FIELD(EA_RQDB_QPN, value));
	uint16_t pi = value & EA_RQDB_PI;
	struct ea_rq *rq;
	uint16_t ahead;

	if (!qp)
		return;
	rq = &qp->rq;
	ahead = pi - rq->ci;
	if (ea_unlikely(ahead > rq->ring.mask + 1)) {
		if ((uint16_t)-ahead <= rq->ring.mask + 1)
			return; /* overtaken, and what it rang for is finished */
		ea_term_doorbell(qp, 0, EA_SYN_RECV_FORMAT);
		return;
	}
	/* A doorbell that was overtaken by a later one says nothing new. */
	if (ahead <= (uint16_t)(rq->pi - rq->ci))
		return;
	rq->pi = pi;
	if (ea_unlikely(qp->state >= EA_QP_CLOSING)) {
		ea_flush(qp, &flush);
	} else if (rq->held) {
		rq->held = false;
		if (qp->link)
			qp->link->ops->rx_resume(qp->link);
	}
}

int ea_rq_open(struct ea_qp *qp)
{
	uint8_t rqe[EA_ENTRY_SIZE];
	struct ea_rq *rq = &qp->rq;
	const void *p;

	if (rq->ci == rq->pi) {
		rq->held = true;
		return EAGAIN;
	}
	p = ea_ring_entry(qp->dev, &rq->ring, rq->ci);
	if (ea_unlikely(!p))
		return EINVAL;
	memcpy(rqe, p, sizeof(rqe));
	ea_copied();
	if (ea_unlikely(ea_le16(rqe + EA_RQE_INDEX) != (uint16_t)(rq->ci + 1) ||
			ea_le32(rqe + EA_RQE_QPN) != qp->qpn))
		return EINVAL;
	rq->addr = ea_le64(rqe + EA_RQE_ADDR);
	rq->len = ea_le32(rqe + EA_RQE_LENGTH);
	rq->lkey = ea_le32(rqe + EA_RQE_LKEY);
	rq->open = true;
	return 0;
}

void ea_rq_complete(struct ea_qp *qp, const struct ea_rq_end *end)
{
	struct ea_rq *rq = &qp->rq;
	struct ea_cqe cqe = {
		.opcode = end->opcode,
		.qtype = EA_QTYPE_RQ,
		.solicited = end->solicited,
		.index = rq->ci,
		.qpn = qp->qpn,
		.size = end->size,
		.extra = end->extra,
	};

	rq->open = false;
	rq->ci++;
	ea_cq_post(qp->dev, qp->rcq, &cqe);
}
