// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Errors of the stream: telling the peer with a Terminate, and making sense of the peer's.
 */
#include "adapter/core/core_internal.h"

enum ea_term_cause ea_term_tagged_cause(enum ea_fault fault)
{
	static const enum ea_term_cause causes[] = {
		[EA_FAULT_NONE] = EA_TERM_DDP_LOCAL,	 [EA_FAULT_STAG] = EA_TERM_TAGGED_STAG,
		[EA_FAULT_ADDR] = EA_TERM_TAGGED_BOUNDS, [EA_FAULT_RIGHT] = EA_TERM_TAGGED_RIGHTS,
		[EA_FAULT_PD] = EA_TERM_TAGGED_ASSOC,	 [EA_FAULT_WRAP] = EA_TERM_TAGGED_WRAP,
	};

	return causes[fault];
}

enum ea_term_cause ea_term_remote_cause(enum ea_fault fault)
{
	static const enum ea_term_cause causes[] = {
		[EA_FAULT_NONE] = EA_TERM_RDMAP_LOCAL,	 [EA_FAULT_STAG] = EA_TERM_REMOTE_STAG,
		[EA_FAULT_ADDR] = EA_TERM_REMOTE_BOUNDS, [EA_FAULT_RIGHT] = EA_TERM_REMOTE_RIGHTS,
		[EA_FAULT_PD] = EA_TERM_REMOTE_ASSOC,	 [EA_FAULT_WRAP] = EA_TERM_REMOTE_WRAP,
	};

	return causes[fault];
}

/* ------------------------------------------------------------------ sending */

static void term_prepare(struct ea_qp *qp, struct ea_term_codes codes, const struct ea_rx_seg *seg,
			 const void *rdma_hdr)
{
	struct ea_terminate term;

	if (seg && seg->raw_len)
		ea_terminate_init(&term, codes, seg->raw, seg->raw_len + seg->len, rdma_hdr);
	else
		ea_terminate_init(&term, codes, NULL, 0, NULL);
	qp->term_len = ea_terminate_encode(&term, qp->term);
}

int ea_term_codes_send(struct ea_qp *qp, struct ea_term_codes codes, const struct ea_rx_seg *seg,
		       const void *rdma_hdr, uint8_t rq_syn)
{
	bool protection =
		(codes.layer == EA_TERM_RDMAP && codes.etype == EA_TERM_RDMAP_PROTECTION) ||
		(codes.layer == EA_TERM_DDP && codes.etype == EA_TERM_DDP_TAGGED);
	struct ea_stop stop = {
		.state = EA_QP_TERMINATE,
		.how = EA_SHUT_TERMINATE,
		.rq_syn = rq_syn,
		.event = protection ? EA_ASYNC_QP_ACCESS_ERR : EA_ASYNC_QP_FATAL,
	};

	if (qp->state != EA_QP_RTS)
		return EPROTO;
	term_prepare(qp, codes, seg, rdma_hdr);
	ea_qp_stop(qp, &stop);
	return EPROTO;
}

int ea_term_peer(struct ea_qp *qp, enum ea_term_cause cause, const struct ea_rx_seg *seg,
		 const void *rdma_hdr)
{
	return ea_term_codes_send(qp, ea_term_codes(cause), seg, rdma_hdr, 0);
}

static void term_local(struct ea_qp *qp, struct ea_stop *stop)
{
	if (qp->state == EA_QP_RTS && qp->link) {
		term_prepare(qp, ea_term_codes(EA_TERM_RDMAP_LOCAL), NULL, NULL);
		stop->state = EA_QP_TERMINATE;
		stop->how = EA_SHUT_TERMINATE;
	} else if (qp->state < EA_QP_CLOSING) {
		stop->state = EA_QP_ERROR;
		stop->how = EA_SHUT_ABORT;
	} else {
		return;
	}
	ea_qp_stop(qp, stop);
}

void ea_term_sq(struct ea_qp *qp, uint16_t index, uint8_t syn)
{
	struct ea_stop stop = {
		.sq_syn = syn, .has_culprit = true, .sq_culprit = index, .event = EA_NO_EVENT
	};

	term_local(qp, &stop);
}

void ea_term_rq(struct ea_qp *qp, uint8_t syn)
{
	struct ea_stop stop = { .rq_syn = syn, .event = EA_NO_EVENT };

	term_local(qp, &stop);
}

void ea_term_doorbell(struct ea_qp *qp, uint8_t sq_syn, uint8_t rq_syn)
{
	struct ea_stop stop = { .sq_syn = sq_syn, .rq_syn = rq_syn, .event = EA_ASYNC_QP_FATAL };

	term_local(qp, &stop);
}

void ea_rx_error(struct ea_qp *qp, uint8_t layer, uint8_t etype, uint8_t code)
{
	struct ea_term_codes codes = { .layer = layer, .etype = etype, .code = code };

	ea_term_codes_send(qp, codes, NULL, NULL, 0);
}

/* ------------------------------------------------------------------ receiving */

/* What the peer's error is to the requester. */
static uint8_t syndrome(struct ea_term_codes codes)
{
	static const struct {
		enum ea_term_cause cause;
		uint8_t syn;
	} map[] = {
		{ EA_TERM_TAGGED_STAG, EA_SYN_RECV_STAG },
		{ EA_TERM_TAGGED_BOUNDS, EA_SYN_RECV_ADDR },
		{ EA_TERM_TAGGED_RIGHTS, EA_SYN_RECV_RIGHT },
		{ EA_TERM_TAGGED_ASSOC, EA_SYN_RECV_PD },
		{ EA_TERM_TAGGED_WRAP, EA_SYN_RECV_WRAP },
		{ EA_TERM_REMOTE_STAG, EA_SYN_RECV_STAG },
		{ EA_TERM_REMOTE_BOUNDS, EA_SYN_RECV_ADDR },
		{ EA_TERM_REMOTE_RIGHTS, EA_SYN_RECV_RIGHT },
		{ EA_TERM_REMOTE_ASSOC, EA_SYN_RECV_PD },
		{ EA_TERM_REMOTE_WRAP, EA_SYN_RECV_WRAP },
		{ EA_TERM_REMOTE_PROTECTION, EA_SYN_RECV_ADDR },
		{ EA_TERM_CANNOT_INVALIDATE, EA_SYN_RECV_STAG },
		{ EA_TERM_UNTAGGED_LEN, EA_SYN_RECV_FORMAT },
	};
	struct ea_term_codes c;
	unsigned int i;

	for (i = 0; i < sizeof(map) / sizeof(map[0]); i++) {
		c = ea_term_codes(map[i].cause);
		if (c.layer == codes.layer && c.etype == codes.etype && c.code == codes.code)
			return map[i].syn;
	}
	return EA_SYN_GENERAL;
}

static bool sends_untagged(uint8_t op)
{
	return op == EA_OP_SEND || op == EA_OP_SEND_IMM || op == EA_OP_SEND_INV ||
	       op == EA_OP_WRITE_IMM;
}

/* The WQE whose message on the Send queue had @msn. */
static bool find_send(const struct ea_qp *qp, uint32_t msn, uint16_t *index)
{
	const struct ea_sq *sq = &qp->sq;
	const struct ea_sq_rec *rec;
	uint32_t at, count = 0;
	uint16_t i;

	for (i = sq->ci; i != sq->next; i += rec->blocks) {
		rec = &sq->rec[i & sq->ring.mask];
		count += sends_untagged(rec->op);
	}
	if (sq->imm_due)
		count--;
	at = msn - (qp->tx_msn[EA_QN_SEND] - count);
	if (at >= count)
		return false;
	for (i = sq->ci; i != sq->next; i += rec->blocks) {
		rec = &sq->rec[i & sq->ring.mask];
		if (sends_untagged(rec->op) && !at--) {
			*index = i;
			return true;
		}
	}
	return false;
}

/* The WQE that wrote to @to of @stag. */
static bool find_write(struct ea_qp *qp, uint32_t stag, uint64_t to, uint16_t *index)
{
	struct ea_sq *sq = &qp->sq;
	const struct ea_sq_rec *rec;
	const uint8_t *p;
	uint64_t start;
	uint16_t i;

	for (i = sq->ci; i != sq->next; i += rec->blocks) {
		rec = &sq->rec[i & sq->ring.mask];
		if (rec->op != EA_OP_WRITE && rec->op != EA_OP_WRITE_IMM)
			continue;
		p = ea_ring_entry(qp->dev, &sq->ring, i);
		if (!p || ea_le32(p + EA_WRITE_RKEY) != stag)
			continue;
		start = ea_le64(p + EA_WRITE_RADDR);
		if (to - start < rec->len || to == start) {
			*index = i;
			return true;
		}
	}
	return false;
}

/* The READ or atomic whose request had @msn. */
static bool find_request(const struct ea_qp *qp, uint32_t msn, uint16_t *index)
{
	uint8_t count = ea_orq_count(qp);
	uint32_t at = msn - (qp->tx_msn[EA_QN_READ_REQ] - count);

	if (at >= count)
		return false;
	*index = ea_orq_at(qp, qp->orq_head + at)->index;
	return true;
}

void ea_term_received(struct ea_qp *qp, const struct ea_rx_seg *seg, const void *payload)
{
	struct ea_stop stop = {
		.state = EA_QP_ERROR,
		.how = EA_SHUT_GRACEFUL,
		.event = EA_ASYNC_QP_FATAL,
	};
	struct ea_terminate term;
	struct ea_ddp_hdr hdr;
	bool copied;

	copied = ea_terminate_decode(payload, seg->len, &term) && term.ddp_hdr &&
		 ea_ddp_decode(term.ddp_hdr, EA_DDP_HDR_MAX, &hdr) == EA_DDP_OK;
	stop.sq_syn = syndrome(term.codes);
	if (copied) {
		switch (ea_rdmap_opcode(hdr.ulp_ctrl)) {
		case EA_RDMAP_WRITE:
			stop.has_culprit = find_write(qp, hdr.stag, hdr.to, &stop.sq_culprit);
			break;
		case EA_RDMAP_READ_REQ:
		case EA_RDMAP_ATOMIC_REQ:
			stop.has_culprit = find_request(qp, hdr.msn, &stop.sq_culprit);
			break;
		case EA_RDMAP_READ_RESP:
		case EA_RDMAP_ATOMIC_RESP:
			/* Our answer was wrong for the peer, no request of ours. */
			stop.sq_syn = 0;
			break;
		default:
			stop.has_culprit = find_send(qp, hdr.msn, &stop.sq_culprit);
			break;
		}
	}
	if (qp->acks && stop.has_culprit)
		ea_ack_until(qp, stop.sq_culprit);
	ea_qp_stop(qp, &stop);
}
