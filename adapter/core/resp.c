// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The responder: READs and atomics of the peer, answered in the order of their arrival.
 */
#include "adapter/core/core_internal.h"
#include "adapter/core/umem.h"

/*
 * Room for one more request?  The peer may have as many in flight as was agreed.  It may see the end
 * of a response before the link reports it done, so only those the link has not begun count, as long
 * as there are places.
 */
static bool irq_room(const struct ea_qp *qp)
{
	return (uint8_t)(qp->irq_tail - qp->irq_next) < qp->ird && ea_irq_count(qp) < EA_IRQ_SIZE;
}

static void irq_push(struct ea_qp *qp, const struct ea_irq_entry *entry)
{
	*ea_irq_at(qp, qp->irq_tail++) = *entry;
	if (qp->link)
		qp->link->ops->tx_ready(qp->link);
}

int ea_resp_read(struct ea_qp *qp, const struct ea_rx_seg *seg, const void *payload)
{
	struct ea_read_req req;
	enum ea_fault fault;

	ea_read_req_decode(payload, &req);
	if (!irq_room(qp))
		return ea_term_peer(qp, EA_TERM_STREAM, seg, payload);
	/* A READ of nothing touches no memory: its STag is not looked at. */
	if (req.len) {
		fault = ea_mr_check(qp, req.src_stag, req.src_to, req.len, EA_ACCESS_REMOTE_READ);
		if (fault)
			return ea_term_peer(qp, ea_term_remote_cause(fault), seg, payload);
	}
	irq_push(qp, &(struct ea_irq_entry){
			     .to = req.src_to,
			     .stag = req.src_stag,
			     .len = req.len,
			     .sink_to = req.sink_to,
			     .sink_stag = req.sink_stag,
		     });
	return 0;
}

/* Execute an atomic at @target, which is naturally aligned.  False: the memory is gone. */
static bool execute(uint64_t *target, const struct ea_atomic_req *req, uint64_t *old)
{
	uint64_t seen;

	/* the first guess is most likely wrong, and brings the value */
	*old = 0;
	do {
		seen = *old;
		if (!ea_umem_cmpxchg(target, old, ea_atomic_apply(req, seen)))
			return false;
	} while (*old != seen);
	return true;
}

int ea_resp_atomic(struct ea_qp *qp, const struct ea_rx_seg *seg, const void *payload)
{
	struct ea_irq_entry entry = { .atomic = true };
	struct ea_atomic_req req;
	uint32_t covered = 0;
	enum ea_fault fault;
	struct iovec iov;
	int n = 0;

	ea_atomic_req_decode(payload, &req);
	if (req.op != EA_ATOMIC_FETCH_ADD && req.op != EA_ATOMIC_CMP_SWAP)
		return ea_term_peer(qp, EA_TERM_OPCODE, seg, NULL);
	if (!irq_room(qp))
		return ea_term_peer(qp, EA_TERM_STREAM, seg, NULL);
	fault = ea_mr_iov(qp, req.stag, req.to, sizeof(uint64_t), EA_ACCESS_REMOTE_ATOMIC, &iov, 1,
			  &n, &covered);
	if (fault)
		return ea_term_peer(qp, ea_term_remote_cause(fault), seg, NULL);
	if (req.to % sizeof(uint64_t) || covered != sizeof(uint64_t) ||
	    (uintptr_t)iov.iov_base % sizeof(uint64_t))
		return ea_term_peer(qp, EA_TERM_REMOTE_PROTECTION, seg, NULL);
	if (!execute(iov.iov_base, &req, &entry.sink_to))
		return ea_term_peer(qp, ea_term_remote_cause(EA_FAULT_ADDR), seg, NULL);
	entry.sink_stag = req.id;
	irq_push(qp, &entry);
	return 0;
}

int ea_resp_next(struct ea_qp *qp, struct ea_tx_msg *msg)
{
	const struct ea_irq_entry *entry = ea_irq_at(qp, qp->irq_next);
	struct ea_atomic_resp resp;

	if (entry->atomic) {
		resp.id = entry->sink_stag;
		resp.old = entry->sink_to;
		ea_tx_untagged(qp, msg, EA_RDMAP_ATOMIC_RESP, EA_QN_ATOMIC_RESP, 0, 0);
		ea_tx_ctrl(msg, ea_atomic_resp_encode(&resp, msg->ctrl));
		msg->kind = EA_TX_ATOMIC_RESP;
	} else {
		ea_tx_tagged(msg, EA_RDMAP_READ_RESP, entry->sink_stag, entry->sink_to, entry->len);
		msg->kind = EA_TX_READ_RESP;
	}
	msg->slot = qp->irq_next++;
	return 0;
}

void ea_resp_done(struct ea_qp *qp)
{
	if (qp->irq_head != qp->irq_next)
		qp->irq_head++;
}

int ea_resp_payload(struct ea_qp *qp, uint32_t slot, uint32_t off, uint32_t len, struct iovec *iov,
		    int max, uint32_t *covered)
{
	const struct ea_irq_entry *entry = ea_irq_at(qp, slot);
	enum ea_fault fault;
	int n = 0;

	if ((uint8_t)(slot - qp->irq_head) >= (uint8_t)(qp->irq_next - qp->irq_head) ||
	    entry->atomic)
		return -EINVAL;
	fault = ea_mr_iov(qp, entry->stag, entry->to + off, len, EA_ACCESS_REMOTE_READ, iov, max,
			  &n, covered);
	if (ea_unlikely(fault)) {
		ea_term_peer(qp, ea_term_remote_cause(fault), NULL, NULL);
		return -EFAULT;
	}
	return n;
}
