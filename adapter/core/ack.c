// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Acknowledgements: on connections that agreed on them a Write or Send completes when the peer has
 * placed it, so the program may look at the target, and an error finds its own work request.  READs and
 * atomics need none: their response says it.
 */
#include "adapter/core/core_internal.h"

/* One message tells of all that were received since the last one. */
void ea_ack_next(struct ea_qp *qp, struct ea_tx_msg *msg)
{
	qp->rx_acked = qp->rx_count;
	ea_tx_untagged(qp, msg, EA_RDMAP_ACK, EA_QN_ACK, 0, 0);
	ea_tx_ctrl(msg, ea_ack_encode(qp->rx_count, msg->ctrl));
	msg->kind = EA_TX_ACK;
	msg->slot = 0;
}

static bool waits(const struct ea_sq_rec *rec)
{
	switch (rec->op) {
	case EA_OP_WRITE:
		return rec->len;
	case EA_OP_WRITE_IMM:
	case EA_OP_SEND:
	case EA_OP_SEND_IMM:
	case EA_OP_SEND_INV:
		return true;
	default:
		return false;
	}
}

int ea_ack_received(struct ea_qp *qp, const struct ea_rx_seg *seg, const void *payload)
{
	struct ea_sq *sq = &qp->sq;
	uint32_t count = ea_ack_decode(payload);
	uint32_t news = count - sq->ack_count;
	struct ea_sq_rec *rec;

	/* No more than was sent can have had an effect. */
	if (!news || news > sq->ack_sent - sq->ack_count)
		return ea_term_peer(qp, EA_TERM_STREAM, seg, NULL);
	qp->rx_msn[EA_QN_ACK]++;
	sq->ack_count = count;
	for (; news && sq->ack_next != sq->next; sq->ack_next += rec->blocks) {
		rec = &sq->rec[sq->ack_next & sq->ring.mask];
		if (!waits(rec))
			continue;
		news--;
		if (rec->op == EA_OP_WRITE_IMM && rec->len && !sq->ack_half) {
			sq->ack_half = true;
			if (!news)
				break;
			news--;
		}
		sq->ack_half = false;
		rec->flags |= EA_SQF_DONE;
	}
	ea_sq_retire(qp);
	return qp->state == EA_QP_RTS ? 0 : EPROTO;
}

void ea_ack_until(struct ea_qp *qp, uint16_t index)
{
	struct ea_sq *sq = &qp->sq;
	struct ea_sq_rec *rec;
	uint16_t i;

	for (i = sq->ci; i != index; i += rec->blocks) {
		rec = &sq->rec[i & sq->ring.mask];
		if (waits(rec))
			rec->flags |= EA_SQF_DONE;
	}
	/* The end of the QP has its own cause: an error that waits behind these does not count. */
	sq->bad = 0;
	ea_sq_retire(qp);
}
