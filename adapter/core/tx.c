// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What the link pulls: messages of the send queue, responses, a Terminate.
 */
#include "adapter/core/core_internal.h"

/* The QP has left the data path; a Terminate may be left to say. */
static int next_after_stop(struct ea_qp *qp, struct ea_tx_msg *msg)
{
	if (!qp->term_len)
		return qp->state < EA_QP_RTS ? EAGAIN : ESHUTDOWN;
	qp->tx_msn[EA_QN_TERMINATE] = EA_DDP_FIRST_MSN;
	ea_tx_untagged(qp, msg, EA_RDMAP_TERMINATE, EA_QN_TERMINATE, 0, 0);
	memcpy(msg->ctrl, qp->term, qp->term_len);
	ea_tx_ctrl(msg, qp->term_len);
	msg->kind = EA_TX_TERMINATE;
	msg->slot = 0;
	qp->term_len = 0;
	return 0;
}

int ea_tx_next(struct ea_qp *qp, struct ea_tx_msg *msg)
{
	int err;

	if (ea_unlikely(qp->state != EA_QP_RTS))
		return next_after_stop(qp, msg);

	if (ea_unlikely(ea_ack_due(qp))) {
		ea_ack_next(qp, msg);
		goto out;
	}
	/* After a message of the send queue a response has precedence, and the reverse. */
	if (ea_unlikely(ea_resp_pending(qp) && !qp->tx_turn)) {
		qp->tx_turn = true;
		ea_resp_next(qp, msg);
		goto out;
	}
	err = ea_sq_next(qp, msg);
	if (ea_likely(!err)) {
		qp->tx_turn = false;
		if (ea_unlikely(qp->acks))
			qp->sq.ack_sent += ea_ack_wanted(msg);
	} else if (qp->state == EA_QP_RTS && ea_resp_pending(qp)) {
		ea_resp_next(qp, msg);
	} else {
		return err;
	}
out:
	qp->dev->stats.tx_msgs++;
	qp->dev->stats.tx_bytes += msg->len;
	return 0;
}

static bool responds(const struct ea_tx_msg *msg)
{
	return msg->kind == EA_TX_READ_RESP || msg->kind == EA_TX_ATOMIC_RESP;
}

int ea_tx_payload(struct ea_qp *qp, const struct ea_tx_msg *msg, uint32_t off, uint32_t len,
		  struct iovec *iov, int max, uint32_t *covered)
{
	*covered = 0;
	if (ea_unlikely(qp->state != EA_QP_RTS && !qp->stopping))
		return -ESHUTDOWN;
	if (ea_unlikely(off > msg->len || len > msg->len - off))
		return -EINVAL;
	if (!len)
		return 0;
	if (responds(msg))
		return ea_resp_payload(qp, msg->slot, off, len, iov, max, covered);
	if (ea_unlikely(!ea_sq_outstanding(&qp->sq, msg->slot)))
		return -EINVAL;
	return ea_sq_payload(qp, msg->slot, off, len, iov, max, covered);
}

void ea_tx_done(struct ea_qp *qp, const struct ea_tx_msg *msg)
{
	if (ea_unlikely(qp->state != EA_QP_RTS))
		return;
	switch (msg->kind) {
	case EA_TX_SQ_DATA:
	case EA_TX_SQ_MORE:
		if (qp->sq.busy)
			qp->sq.busy--;
		if (msg->kind == EA_TX_SQ_DATA && !(qp->acks && ea_ack_wanted(msg)))
			ea_sq_done(qp, msg->slot);
		if (!qp->sq.busy)
			ea_sq_kick(qp);
		break;
	case EA_TX_READ_RESP:
	case EA_TX_ATOMIC_RESP:
		ea_resp_done(qp);
		break;
	}
}
