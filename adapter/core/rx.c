// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Incoming segments: order, protection, placement, and what a whole message does.
 */
#include "adapter/core/core_internal.h"
#include "adapter/core/umem.h"

bool ea_rx_is_ctrl(uint8_t opcode)
{
	return ea_rdmap_is_ctrl(opcode);
}

/* ------------------------------------------------------------------ headers */

static int begin_write(struct ea_qp *qp, const struct ea_rx_seg *seg)
{
	enum ea_fault fault;

	if (!seg->len)
		return 0;
	fault = ea_mr_check(qp, seg->stag, seg->to, seg->len, EA_ACCESS_REMOTE_WRITE);
	if (ea_unlikely(fault))
		return ea_term_peer(qp, ea_term_tagged_cause(fault), seg, NULL);
	return 0;
}

/* A response must be the next piece of the oldest READ and nothing else. */
static int begin_read_resp(struct ea_qp *qp, const struct ea_rx_seg *seg)
{
	const struct ea_orq_entry *read = ea_orq_at(qp, qp->orq_head);
	enum ea_fault fault;
	uint32_t left;

	if (!ea_orq_count(qp) || read->atomic)
		return ea_term_peer(qp, EA_TERM_OPCODE, seg, NULL);
	left = read->len - read->got;
	if (seg->stag != read->stag && read->len)
		return ea_term_peer(qp, EA_TERM_TAGGED_STAG, seg, NULL);
	if (read->len && seg->to != read->to + read->got)
		return ea_term_peer(qp, EA_TERM_TAGGED_BOUNDS, seg, NULL);
	if (seg->len > left || seg->last != (seg->len == left))
		return ea_term_peer(qp, EA_TERM_TAGGED_BOUNDS, seg, NULL);
	if (!seg->len)
		return 0;
	fault = ea_mr_check(qp, seg->stag, seg->to, seg->len, EA_ACCESS_LOCAL_WRITE);
	if (ea_unlikely(fault))
		return ea_term_peer(qp, ea_term_tagged_cause(fault), seg, NULL);
	return 0;
}

/* The next segment of the untagged message that is due on queue @qn? */
static int check_order(struct ea_qp *qp, const struct ea_rx_seg *seg, uint32_t qn, uint32_t mo)
{
	if (ea_unlikely(seg->qn != qn))
		return ea_term_peer(qp, EA_TERM_UNTAGGED_QN, seg, NULL);
	if (ea_unlikely(seg->msn != qp->rx_msn[qn]))
		return ea_term_peer(qp, EA_TERM_UNTAGGED_MSN, seg, NULL);
	if (ea_unlikely(seg->mo != mo))
		return ea_term_peer(qp, EA_TERM_UNTAGGED_MO, seg, NULL);
	return 0;
}

/* An RQE for the message on queue 0. */
static int want_rqe(struct ea_qp *qp)
{
	int err;

	if (qp->rq.open)
		return 0;
	err = ea_rq_open(qp);
	if (ea_unlikely(err == EINVAL)) {
		ea_term_rq(qp, EA_SYN_RECV_FORMAT);
		return EPROTO;
	}
	return err;
}

static int begin_send(struct ea_qp *qp, const struct ea_rx_seg *seg)
{
	const struct ea_rq *rq = &qp->rq;
	enum ea_fault fault;
	int err;

	err = check_order(qp, seg, EA_QN_SEND, qp->rx_mo);
	if (ea_unlikely(err))
		return err;
	if (ea_unlikely(qp->rx_more && seg->opcode != qp->rx_op))
		return ea_term_peer(qp, EA_TERM_OPCODE, seg, NULL);
	err = want_rqe(qp);
	if (ea_unlikely(err))
		return err;
	if (ea_unlikely((uint64_t)seg->mo + seg->len > rq->len))
		return ea_term_codes_send(qp, ea_term_codes(EA_TERM_UNTAGGED_LEN), seg, NULL,
					  EA_SYN_RECV_FORMAT);
	if (!seg->len)
		return 0;
	fault = ea_mr_check(qp, rq->lkey, rq->addr + seg->mo, seg->len, EA_ACCESS_LOCAL_WRITE);
	if (ea_unlikely(fault))
		return ea_term_codes_send(qp, ea_term_codes(EA_TERM_DDP_LOCAL), seg, NULL,
					  ea_fault_local(fault));
	return 0;
}

/* A control message fills one segment of the length its opcode has. */
static int begin_ctrl(struct ea_qp *qp, const struct ea_rx_seg *seg, uint32_t qn, uint32_t min,
		      uint32_t max)
{
	int err;

	err = check_order(qp, seg, qn, 0);
	if (ea_unlikely(err))
		return err;
	if (ea_unlikely(!seg->last || seg->len < min || seg->len > max))
		return ea_term_peer(qp, EA_TERM_STREAM, seg, NULL);
	return 0;
}

static int begin_imm(struct ea_qp *qp, const struct ea_rx_seg *seg)
{
	int err;

	err = begin_ctrl(qp, seg, EA_QN_SEND, EA_IMM_DATA_LEN, EA_IMM_DATA_LEN);
	if (ea_unlikely(err))
		return err;
	if (ea_unlikely(qp->rx_more))
		return ea_term_peer(qp, EA_TERM_OPCODE, seg, NULL);
	return want_rqe(qp);
}

static int begin_atomic_resp(struct ea_qp *qp, const struct ea_rx_seg *seg)
{
	if (!ea_orq_count(qp) || !ea_orq_at(qp, qp->orq_head)->atomic)
		return ea_term_peer(qp, EA_TERM_OPCODE, seg, NULL);
	return begin_ctrl(qp, seg, EA_QN_ATOMIC_RESP, EA_ATOMIC_RESP_LEN, EA_ATOMIC_RESP_LEN);
}

int ea_rx_begin(struct ea_qp *qp, const struct ea_rx_seg *seg)
{
	if (ea_unlikely(qp->state != EA_QP_RTS)) {
		qp->dev->stats.rx_drops++;
		return ESHUTDOWN;
	}
	if (ea_unlikely(seg->opcode >= EA_RDMAP_NR_OPCODES ||
			ea_rdmap_is_tagged(seg->opcode) != seg->tagged))
		return ea_term_peer(qp, EA_TERM_OPCODE, seg, NULL);

	switch (seg->opcode) {
	case EA_RDMAP_WRITE:
		return begin_write(qp, seg);
	case EA_RDMAP_READ_RESP:
		return begin_read_resp(qp, seg);
	case EA_RDMAP_READ_REQ:
		return begin_ctrl(qp, seg, EA_QN_READ_REQ, EA_READ_REQ_LEN, EA_READ_REQ_LEN);
	case EA_RDMAP_TERMINATE:
		return begin_ctrl(qp, seg, EA_QN_TERMINATE, EA_TERMINATE_MIN, EA_TERMINATE_MAX);
	case EA_RDMAP_IMM:
	case EA_RDMAP_IMM_SE:
		return begin_imm(qp, seg);
	case EA_RDMAP_ATOMIC_REQ:
		return begin_ctrl(qp, seg, EA_QN_READ_REQ, EA_ATOMIC_REQ_LEN, EA_ATOMIC_REQ_LEN);
	case EA_RDMAP_ATOMIC_RESP:
		return begin_atomic_resp(qp, seg);
	case EA_RDMAP_ACK:
		if (!qp->acks)
			return ea_term_peer(qp, EA_TERM_OPCODE, seg, NULL);
		return begin_ctrl(qp, seg, EA_QN_ACK, EA_ACK_LEN, EA_ACK_LEN);
	default:
		return begin_send(qp, seg);
	}
}

/* ------------------------------------------------------------------ payload */

int ea_rx_target(struct ea_qp *qp, const struct ea_rx_seg *seg, uint32_t off, uint32_t len,
		 struct iovec *iov, int max, uint32_t *covered)
{
	uint32_t access, stag;
	enum ea_fault fault;
	uint64_t addr;
	int n = 0;

	*covered = 0;
	if (ea_unlikely(qp->state != EA_QP_RTS))
		return -ESHUTDOWN;
	if (ea_unlikely(off > seg->len || len > seg->len - off))
		return -EINVAL;
	if (!len)
		return 0;
	if (seg->tagged) {
		stag = seg->stag;
		addr = seg->to + off;
		access = seg->opcode == EA_RDMAP_WRITE ? EA_ACCESS_REMOTE_WRITE :
							 EA_ACCESS_LOCAL_WRITE;
	} else {
		stag = qp->rq.lkey;
		addr = qp->rq.addr + seg->mo + off;
		access = EA_ACCESS_LOCAL_WRITE;
	}
	fault = ea_mr_iov(qp, stag, addr, len, access, iov, max, &n, covered);
	if (ea_likely(!fault))
		return n;
	if (seg->tagged)
		ea_term_peer(qp, ea_term_tagged_cause(fault), seg, NULL);
	else
		ea_term_codes_send(qp, ea_term_codes(EA_TERM_DDP_LOCAL), seg, NULL,
				   ea_fault_local(fault));
	return -EFAULT;
}

/* The oldest READ or atomic has its answer. */
static void orq_pop(struct ea_qp *qp)
{
	const struct ea_orq_entry *entry = ea_orq_at(qp, qp->orq_head++);

	if (entry->inv) {
		uint8_t syn = ea_mr_local_inv(qp, entry->inv_stag);

		if (syn) {
			ea_term_sq(qp, entry->index, syn);
			return;
		}
	}
	ea_sq_done(qp, entry->index);
	ea_sq_kick(qp);
}

static void end_write(struct ea_qp *qp, const struct ea_rx_seg *seg)
{
	qp->write_len += seg->len;
	qp->write_open = !seg->last;
	if (!seg->last)
		return;
	qp->last_write_len = qp->write_len;
	qp->write_len = 0;
	qp->dev->stats.rx_msgs++;
	if (qp->last_write_len)
		ea_ack_owe(qp);
}

static void end_read_resp(struct ea_qp *qp, const struct ea_rx_seg *seg)
{
	struct ea_orq_entry *read = ea_orq_at(qp, qp->orq_head);

	read->got += seg->len;
	if (!seg->last)
		return;
	qp->dev->stats.rx_msgs++;
	orq_pop(qp);
}

static int end_send(struct ea_qp *qp, const struct ea_rx_seg *seg)
{
	struct ea_rq_end end = { .opcode = EA_OP_RECV };

	qp->rx_mo += seg->len;
	qp->rx_op = seg->opcode;
	qp->rx_more = !seg->last;
	if (!seg->last)
		return 0;
	end.size = qp->rx_mo;
	end.solicited = ea_rdmap_is_solicited(seg->opcode);
	if (ea_rdmap_has_inv(seg->opcode)) {
		if (!ea_mr_remote_inv(qp, seg->ulp_word))
			return ea_term_peer(qp, EA_TERM_CANNOT_INVALIDATE, seg, NULL);
		end.opcode = EA_OP_RECV_INV;
		end.extra = htobe32(seg->ulp_word);
	} else if (ea_rdmap_has_imm(seg->opcode)) {
		end.opcode = EA_OP_RSP_SEND_IMM;
		end.extra = htole32(seg->ulp_word);
	}
	qp->rx_mo = 0;
	qp->rx_msn[EA_QN_SEND]++;
	qp->dev->stats.rx_msgs++;
	ea_rq_complete(qp, &end);
	ea_ack_owe(qp);
	return 0;
}

int ea_rx_end(struct ea_qp *qp, const struct ea_rx_seg *seg)
{
	if (ea_unlikely(qp->state != EA_QP_RTS))
		return ESHUTDOWN;
	qp->dev->stats.rx_bytes += seg->len;
	switch (seg->opcode) {
	case EA_RDMAP_WRITE:
		end_write(qp, seg);
		return 0;
	case EA_RDMAP_READ_RESP:
		end_read_resp(qp, seg);
		return qp->state == EA_QP_RTS ? 0 : EPROTO;
	default:
		return end_send(qp, seg);
	}
}

/* ------------------------------------------------------------------ control messages */

static int rx_imm(struct ea_qp *qp, const struct ea_rx_seg *seg, const void *payload)
{
	struct ea_rq_end end = {
		.opcode = EA_OP_RECV_IMM,
		.solicited = seg->opcode == EA_RDMAP_IMM_SE,
		.size = qp->last_write_len,
		.extra = htole32(ea_imm_decode(payload)),
	};

	qp->last_write_len = 0;
	qp->rx_msn[EA_QN_SEND]++;
	ea_rq_complete(qp, &end);
	ea_ack_owe(qp);
	return 0;
}

static int rx_atomic_resp(struct ea_qp *qp, const struct ea_rx_seg *seg, const void *payload)
{
	const struct ea_orq_entry *entry = ea_orq_at(qp, qp->orq_head);
	struct ea_atomic_resp resp;
	uint32_t covered = 0;
	struct iovec iov[2];
	enum ea_fault fault;
	int n = 0;

	ea_atomic_resp_decode(payload, &resp);
	if (resp.id != entry->len)
		return ea_term_peer(qp, EA_TERM_STREAM, seg, NULL);
	fault = ea_mr_iov(qp, entry->stag, entry->to, sizeof(resp.old), EA_ACCESS_LOCAL_WRITE, iov,
			  2, &n, &covered);
	if (fault || covered != sizeof(resp.old)) {
		ea_term_sq(qp, entry->index, ea_fault_local(fault ? fault : EA_FAULT_ADDR));
		return EPROTO;
	}
	if (!ea_umem_copy(iov[0].iov_base, &resp.old, iov[0].iov_len) ||
	    (n == 2 && !ea_umem_copy(iov[1].iov_base, (const uint8_t *)&resp.old + iov[0].iov_len,
				     iov[1].iov_len))) {
		ea_term_sq(qp, entry->index, ea_fault_local(EA_FAULT_ADDR));
		return EPROTO;
	}
	qp->rx_msn[EA_QN_ATOMIC_RESP]++;
	orq_pop(qp);
	return 0;
}

int ea_rx_ctrl(struct ea_qp *qp, const struct ea_rx_seg *seg, const void *payload)
{
	if (ea_unlikely(qp->state != EA_QP_RTS))
		return ESHUTDOWN;
	qp->dev->stats.rx_msgs++;
	qp->dev->stats.rx_bytes += seg->len;
	switch (seg->opcode) {
	case EA_RDMAP_READ_REQ:
		qp->rx_msn[EA_QN_READ_REQ]++;
		return ea_resp_read(qp, seg, payload);
	case EA_RDMAP_ATOMIC_REQ:
		qp->rx_msn[EA_QN_READ_REQ]++;
		return ea_resp_atomic(qp, seg, payload);
	case EA_RDMAP_IMM:
	case EA_RDMAP_IMM_SE:
		return rx_imm(qp, seg, payload);
	case EA_RDMAP_ATOMIC_RESP:
		return rx_atomic_resp(qp, seg, payload);
	case EA_RDMAP_ACK:
		return ea_ack_received(qp, seg, payload);
	default:
		ea_term_received(qp, seg, payload);
		return ESHUTDOWN;
	}
}
