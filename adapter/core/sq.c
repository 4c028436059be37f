// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The send queue: doorbell, fetching and checking work requests, completing them in order.
 */
#include "adapter/core/core_internal.h"

struct wqe {
	uint8_t b[EA_WQE_BLOCKS_MAX * EA_ENTRY_SIZE];
};

static void sq_stall(struct ea_sq *sq)
{
	sq->stalled = true;
}

void ea_sq_kick(struct ea_qp *qp)
{
	if (!qp->sq.stalled)
		return;
	qp->sq.stalled = false;
	if (qp->link)
		qp->link->ops->tx_ready(qp->link);
}

/* ------------------------------------------------------------------ doorbell */

void ea_db_sq(struct ea_dev *dev, uint64_t value)
{
	static const struct ea_stop flush = { .event = EA_NO_EVENT };
	struct ea_qp *qp = ea_qp_find(dev, EA_FIELD(EA_SQDB_QPN, value));
	uint16_t pi = value & EA_SQDB_PI;
	struct ea_sq *sq;
	uint16_t ahead;

	if (!qp)
		return;
	sq = &qp->sq;
	ahead = pi - sq->ci;
	if (ea_unlikely(ahead > sq->ring.mask + 1)) {
		if ((uint16_t)-ahead <= sq->ring.mask + 1)
			return; /* overtaken, and what it rang for is finished */
		ea_term_doorbell(qp, EA_SYN_SEND_FORMAT, 0);
		return;
	}
	/* A doorbell that was overtaken by a later one says nothing new. */
	if (ahead <= (uint16_t)(sq->pi - sq->ci))
		return;
	sq->pi = pi;
	if (ea_likely(qp->state == EA_QP_RTS)) {
		if (qp->link)
			qp->link->ops->tx_ready(qp->link);
	} else if (qp->state >= EA_QP_CLOSING) {
		ea_flush(qp, &flush);
	}
}

/* ------------------------------------------------------------------ completion */

void ea_sq_retire(struct ea_qp *qp)
{
	struct ea_sq *sq = &qp->sq;
	struct ea_cqe cqe;
	struct ea_sq_rec *rec;

	while (sq->ci != sq->next) {
		rec = &sq->rec[sq->ci & sq->ring.mask];
		if (!(rec->flags & EA_SQF_DONE))
			return;
		if (sq->ack_next == sq->ci)
			sq->ack_next += rec->blocks;
		if (rec->flags & EA_SQF_CE) {
			cqe = (struct ea_cqe){
				.opcode = rec->op,
				.qtype = EA_QTYPE_SQ,
				.index = sq->ci,
				.qpn = qp->qpn,
				.size = rec->len,
			};
			sq->ci += rec->blocks;
			ea_cq_post(qp->dev, qp->scq, &cqe);
		} else {
			sq->ci += rec->blocks;
		}
	}
	if (ea_unlikely(sq->bad))
		ea_term_sq(qp, sq->ci, sq->bad);
}

void ea_sq_done(struct ea_qp *qp, uint16_t index)
{
	struct ea_sq *sq = &qp->sq;

	if (!ea_sq_outstanding(sq, index))
		return;
	sq->rec[index & sq->ring.mask].flags |= EA_SQF_DONE;
	ea_sq_retire(qp);
}

/* ------------------------------------------------------------------ fetching */

/*
 * The WQE at sq->next cannot be executed.  Its error is due when those before it are complete.  Returns
 * EAGAIN for ea_tx_next().
 */
static int sq_reject(struct ea_qp *qp, uint8_t syn)
{
	struct ea_sq *sq = &qp->sq;

	if (sq->ci == sq->next)
		ea_term_sq(qp, sq->next, syn);
	else
		sq->bad = syn;
	return EAGAIN;
}

/* Blocks 1.. of the WQE at @index; block 0 is there. */
static bool wqe_read(struct ea_qp *qp, uint16_t index, uint32_t blocks, struct wqe *wqe)
{
	const void *p;
	uint32_t i;

	for (i = 1; i < blocks; i++) {
		p = ea_ring_entry(qp->dev, &qp->sq.ring, (uint32_t)index + i);
		if (ea_unlikely(!p))
			return false;
		memcpy(wqe->b + i * EA_ENTRY_SIZE, p, EA_ENTRY_SIZE);
	}
	ea_copied();
	return true;
}

/* Take the WQE at sq->next in. */
static struct ea_sq_rec *sq_accept(struct ea_sq *sq, uint64_t header, uint32_t blocks, uint32_t len)
{
	struct ea_sq_rec *rec = &sq->rec[sq->next & sq->ring.mask];

	rec->len = len;
	rec->op = EA_FIELD(EA_SQ_OPCODE, header);
	rec->blocks = blocks;
	rec->flags = header & EA_SQ_CE ? EA_SQF_CE : 0;
	rec->sgl_len = EA_FIELD(EA_SQ_SGL_LEN, header);
	if (header & EA_SQ_INLINE)
		rec->flags |= EA_SQF_INLINE;
	sq->next += blocks;
	return rec;
}

/* Are the SGEs or inline bytes of a WRITE or SEND all right?  A syndrome. */
static uint8_t check_sgl(struct ea_qp *qp, uint64_t header, uint32_t blocks, uint32_t start,
			 uint32_t len, struct wqe *wqe)
{
	uint32_t n = EA_FIELD(EA_SQ_SGL_LEN, header);
	uint32_t room = blocks * EA_ENTRY_SIZE - start;
	enum ea_fault fault;
	const uint8_t *sge;
	uint64_t sum = 0;
	uint32_t sge_len;
	uint32_t i;

	if (header & EA_SQ_INLINE) {
		if (n > EA_MAX_INLINE || n > room || n != len)
			return EA_SYN_SEND_FORMAT;
		return EA_SYN_SUCCESS;
	}
	if (n > EA_MAX_SEND_SGE || n * EA_SGE_SIZE > room)
		return EA_SYN_SEND_FORMAT;
	if (!wqe_read(qp, qp->sq.next, blocks, wqe))
		return EA_SYN_SEND_FORMAT;
	for (i = 0; i < n; i++) {
		sge = wqe->b + start + i * EA_SGE_SIZE;
		sge_len = ea_le32(sge + 8);
		if (!sge_len)
			continue;
		sum += sge_len;
		fault = ea_mr_check(qp, ea_le32(sge + 12), ea_le64(sge), sge_len,
				    EA_ACCESS_LOCAL_READ);
		if (ea_unlikely(fault))
			return ea_fault_local(fault);
	}
	return sum == len ? EA_SYN_SUCCESS : EA_SYN_SEND_FORMAT;
}

static int fetch_write(struct ea_qp *qp, uint64_t header, uint32_t blocks, struct wqe *wqe,
		       struct ea_tx_msg *msg)
{
	uint32_t len = ea_le32(wqe->b + EA_WQE_LENGTH);
	struct ea_sq *sq = &qp->sq;
	uint8_t syn;

	syn = check_sgl(qp, header, blocks, EA_WRITE_HDR, len, wqe);
	if (ea_unlikely(syn))
		return sq_reject(qp, syn);
	ea_tx_tagged(msg, EA_RDMAP_WRITE, ea_le32(wqe->b + EA_WRITE_RKEY),
		     ea_le64(wqe->b + EA_WRITE_RADDR), len);
	msg->slot = sq->next;
	msg->kind = EA_TX_SQ_DATA;
	if (EA_FIELD(EA_SQ_OPCODE, header) == EA_OP_WRITE_IMM) {
		msg->kind = EA_TX_SQ_MORE;
		sq->imm_due = true;
		sq->imm_se = header & EA_SQ_SE;
		sq->imm_index = sq->next;
		sq->imm = ea_be32(wqe->b + EA_WQE_IMM);
	}
	sq_accept(sq, header, blocks, len);
	return 0;
}

/* The second message of a write with immediate. */
static int send_imm(struct ea_qp *qp, struct ea_tx_msg *msg)
{
	struct ea_sq *sq = &qp->sq;

	ea_tx_untagged(qp, msg, sq->imm_se ? EA_RDMAP_IMM_SE : EA_RDMAP_IMM, EA_QN_SEND, 0, 0);
	ea_tx_ctrl(msg, ea_imm_encode(sq->imm, msg->ctrl));
	msg->kind = EA_TX_SQ_DATA;
	msg->slot = sq->imm_index;
	sq->imm_due = false;
	return 0;
}

static int fetch_send(struct ea_qp *qp, uint64_t header, uint32_t blocks, struct wqe *wqe,
		      struct ea_tx_msg *msg)
{
	uint32_t len = ea_le32(wqe->b + EA_WQE_LENGTH);
	bool se = header & EA_SQ_SE;
	uint32_t word = 0;
	uint8_t opcode, syn;

	syn = check_sgl(qp, header, blocks, EA_SEND_HDR, len, wqe);
	if (ea_unlikely(syn))
		return sq_reject(qp, syn);
	switch (EA_FIELD(EA_SQ_OPCODE, header)) {
	case EA_OP_SEND_IMM:
		opcode = se ? EA_RDMAP_SEND_SE_IMM : EA_RDMAP_SEND_IMM;
		word = ea_be32(wqe->b + EA_WQE_IMM);
		break;
	case EA_OP_SEND_INV:
		opcode = se ? EA_RDMAP_SEND_SE_INV : EA_RDMAP_SEND_INV;
		word = ea_le32(wqe->b + EA_WQE_INV);
		break;
	default:
		opcode = se ? EA_RDMAP_SEND_SE : EA_RDMAP_SEND;
		break;
	}
	ea_tx_untagged(qp, msg, opcode, EA_QN_SEND, word, len);
	msg->kind = EA_TX_SQ_DATA;
	msg->slot = qp->sq.next;
	sq_accept(&qp->sq, header, blocks, len);
	return 0;
}

/* May one more request that wants a response be sent?  Else the result of the fetch is in *@err. */
static bool orq_room(struct ea_qp *qp, int *err)
{
	if (ea_likely(ea_orq_count(qp) < qp->ord))
		return true;
	if (!qp->ord) {
		*err = sq_reject(qp, EA_SYN_SEND_ORD);
	} else {
		sq_stall(&qp->sq);
		*err = EAGAIN;
	}
	return false;
}

static struct ea_orq_entry *orq_push(struct ea_qp *qp, uint32_t stag, uint64_t to, uint32_t len,
				     bool atomic)
{
	struct ea_orq_entry *entry = ea_orq_at(qp, qp->orq_tail++);

	entry->stag = stag;
	entry->to = to;
	entry->len = len;
	entry->got = 0;
	entry->inv = false;
	entry->index = qp->sq.next;
	entry->atomic = atomic;
	return entry;
}

static int fetch_read(struct ea_qp *qp, uint64_t header, uint32_t blocks, struct wqe *wqe,
		      struct ea_tx_msg *msg)
{
	struct ea_orq_entry *entry;
	struct ea_read_req req;
	enum ea_fault fault;
	int err;

	if (blocks * EA_ENTRY_SIZE < EA_READ_SIZE || !wqe_read(qp, qp->sq.next, blocks, wqe))
		return sq_reject(qp, EA_SYN_SEND_FORMAT);
	req.len = ea_le32(wqe->b + EA_WQE_LENGTH);
	req.sink_stag = ea_le32(wqe->b + EA_READ_LKEY);
	req.sink_to = ea_le64(wqe->b + EA_READ_LADDR);
	req.src_stag = ea_le32(wqe->b + EA_READ_RKEY);
	req.src_to = ea_le64(wqe->b + EA_READ_RADDR);
	if (req.len) {
		fault = ea_mr_check(qp, req.sink_stag, req.sink_to, req.len, EA_ACCESS_LOCAL_WRITE);
		if (fault)
			return sq_reject(qp, ea_fault_local(fault));
	}
	if (!orq_room(qp, &err))
		return err;
	ea_tx_untagged(qp, msg, EA_RDMAP_READ_REQ, EA_QN_READ_REQ, 0, 0);
	ea_tx_ctrl(msg, ea_read_req_encode(&req, msg->ctrl));
	msg->kind = EA_TX_SQ_MORE;
	msg->slot = qp->sq.next;
	entry = orq_push(qp, req.sink_stag, req.sink_to, req.len, false);
	if (EA_FIELD(EA_SQ_OPCODE, header) == EA_OP_READ_INV) {
		entry->inv = true;
		entry->inv_stag = ea_le32(wqe->b + EA_WQE_INV);
		/*
		 * Linux's rdma_rw names the sink with the key it had before it was bound for this
		 * READ: the index decides.
		 */
		if ((entry->inv_stag ^ req.sink_stag) <= UINT8_MAX)
			entry->inv_stag = req.sink_stag;
	}
	sq_accept(&qp->sq, header, blocks, req.len);
	return 0;
}

static int fetch_atomic(struct ea_qp *qp, uint64_t header, uint32_t blocks, struct wqe *wqe,
			struct ea_tx_msg *msg)
{
	struct ea_atomic_req req = { .op = EA_ATOMIC_FETCH_ADD };
	enum ea_fault fault;
	uint32_t lkey, len;
	uint64_t laddr;
	int err;

	if (blocks * EA_ENTRY_SIZE < EA_ATOMIC_SIZE || !wqe_read(qp, qp->sq.next, blocks, wqe))
		return sq_reject(qp, EA_SYN_SEND_FORMAT);
	laddr = ea_le64(wqe->b + EA_ATOMIC_LADDR);
	len = ea_le32(wqe->b + EA_ATOMIC_LLEN);
	lkey = ea_le32(wqe->b + EA_ATOMIC_LKEY);
	if (len < sizeof(uint64_t))
		return sq_reject(qp, EA_SYN_SEND_FORMAT);
	fault = ea_mr_check(qp, lkey, laddr, sizeof(uint64_t), EA_ACCESS_LOCAL_WRITE);
	if (fault)
		return sq_reject(qp, ea_fault_local(fault));
	if (!orq_room(qp, &err))
		return err;

	req.stag = ea_le32(wqe->b + EA_ATOMIC_RKEY);
	req.to = ea_le64(wqe->b + EA_ATOMIC_RADDR);
	req.add_swap = ea_le64(wqe->b + EA_ATOMIC_SWAP_ADD);
	if (EA_FIELD(EA_SQ_OPCODE, header) == EA_OP_CAS) {
		req.op = EA_ATOMIC_CMP_SWAP;
		req.add_swap_mask = UINT64_MAX;
		req.compare = ea_le64(wqe->b + EA_ATOMIC_COMPARE);
		req.compare_mask = UINT64_MAX;
	}
	ea_tx_untagged(qp, msg, EA_RDMAP_ATOMIC_REQ, EA_QN_READ_REQ, 0, 0);
	req.id = msg->msn;
	ea_tx_ctrl(msg, ea_atomic_req_encode(&req, msg->ctrl));
	msg->kind = EA_TX_SQ_MORE;
	msg->slot = qp->sq.next;
	orq_push(qp, lkey, laddr, req.id, true);
	sq_accept(&qp->sq, header, blocks, sizeof(uint64_t));
	return 0;
}

/* REG_MR and LOCAL_INV change what earlier messages may use: they wait until those are out. */
static int fetch_local(struct ea_qp *qp, uint64_t header, uint32_t blocks, struct wqe *wqe)
{
	struct ea_sq *sq = &qp->sq;
	struct ea_sq_rec *rec;
	uint8_t syn;

	if (sq->busy) {
		sq_stall(sq);
		return EAGAIN;
	}
	if (!wqe_read(qp, sq->next, blocks, wqe))
		return sq_reject(qp, EA_SYN_SEND_FORMAT);
	if (EA_FIELD(EA_SQ_OPCODE, header) == EA_OP_REG_MR)
		syn = ea_mr_fastreg(qp, wqe->b, blocks * EA_ENTRY_SIZE);
	else
		syn = ea_mr_local_inv(qp, ea_le32(wqe->b + EA_INV_STAG));
	if (syn)
		return sq_reject(qp, syn);
	rec = sq_accept(sq, header, blocks, 0);
	rec->flags |= EA_SQF_DONE;
	ea_sq_retire(qp);
	return 0;
}

/* The next WQE; *@sent tells whether it made a message. */
static int sq_fetch(struct ea_qp *qp, struct ea_tx_msg *msg, bool *sent)
{
	struct ea_sq *sq = &qp->sq;
	struct wqe wqe;
	const void *p;
	uint64_t header;
	uint32_t blocks;

	p = ea_ring_entry(qp->dev, &sq->ring, sq->next);
	if (ea_unlikely(!p))
		return sq_reject(qp, EA_SYN_SEND_FORMAT);
	memcpy(wqe.b, p, EA_ENTRY_SIZE);
	ea_copied();
	header = ea_le64(wqe.b);
	blocks = EA_FIELD(EA_SQ_BLOCKS, header) + 1;
	if (ea_unlikely(EA_FIELD(EA_SQ_QPN, header) != qp->qpn || blocks > EA_WQE_BLOCKS_MAX ||
			blocks > (uint16_t)(sq->pi - sq->next) ||
			(header & EA_SQ_INDEX) != (uint16_t)(sq->next + blocks)))
		return sq_reject(qp, EA_SYN_SEND_FORMAT);
	if (ea_unlikely((header & EA_SQ_FENCE) && ea_orq_count(qp))) {
		sq_stall(sq);
		return EAGAIN;
	}

	*sent = true;
	switch (EA_FIELD(EA_SQ_OPCODE, header)) {
	case EA_OP_WRITE:
	case EA_OP_WRITE_IMM:
		return fetch_write(qp, header, blocks, &wqe, msg);
	case EA_OP_SEND:
	case EA_OP_SEND_IMM:
	case EA_OP_SEND_INV:
		return fetch_send(qp, header, blocks, &wqe, msg);
	case EA_OP_READ:
	case EA_OP_READ_INV:
		return fetch_read(qp, header, blocks, &wqe, msg);
	case EA_OP_CAS:
	case EA_OP_FAA:
		return fetch_atomic(qp, header, blocks, &wqe, msg);
	case EA_OP_REG_MR:
	case EA_OP_LOCAL_INV:
		*sent = false;
		return fetch_local(qp, header, blocks, &wqe);
	default:
		return sq_reject(qp, EA_SYN_SEND_FORMAT);
	}
}

int ea_sq_next(struct ea_qp *qp, struct ea_tx_msg *msg)
{
	struct ea_sq *sq = &qp->sq;
	bool sent;
	int err;

	if (sq->imm_due) {
		sq->busy++;
		return send_imm(qp, msg);
	}
	while (sq->next != sq->pi) {
		if (ea_unlikely(sq->bad))
			return EAGAIN;
		err = sq_fetch(qp, msg, &sent);
		if (err)
			return err;
		qp->dev->stats.tx_reqs++;
		if (sent) {
			sq->busy++;
			return 0;
		}
	}
	return EAGAIN;
}

/* ------------------------------------------------------------------ payload */

static int inline_payload(struct ea_qp *qp, uint16_t index, uint32_t at, uint32_t len,
			  struct iovec *iov, int max, uint32_t *covered)
{
	uint32_t in_block, piece;
	uint8_t *p;
	int n = 0;

	while (len) {
		in_block = at % EA_ENTRY_SIZE;
		piece = EA_ENTRY_SIZE - in_block;
		if (piece > len)
			piece = len;
		p = ea_ring_entry(qp->dev, &qp->sq.ring, (uint32_t)index + at / EA_ENTRY_SIZE);
		if (!p) {
			ea_term_sq(qp, index, EA_SYN_SEND_FORMAT);
			return -EFAULT;
		}
		if (!ea_iov_add(iov, max, &n, p + in_block, piece))
			break;
		at += piece;
		len -= piece;
		*covered += piece;
	}
	return n;
}

int ea_sq_payload(struct ea_qp *qp, uint16_t index, uint32_t off, uint32_t len, struct iovec *iov,
		  int max, uint32_t *covered)
{
	struct ea_sq *sq = &qp->sq;
	const struct ea_sq_rec *rec = &sq->rec[index & sq->ring.mask];
	uint32_t at, piece, i, sge_len, want;
	uint8_t sge[EA_SGE_SIZE];
	const uint8_t *p;
	uint32_t done;
	uint8_t syn;
	int n = 0;

	at = rec->op == EA_OP_WRITE || rec->op == EA_OP_WRITE_IMM ? EA_WRITE_HDR : EA_SEND_HDR;
	if (rec->flags & EA_SQF_INLINE)
		return inline_payload(qp, index, at + off, len, iov, max, covered);

	/* The SGEs may have been changed since they were checked: nothing is taken for granted. */
	for (i = 0; i < rec->sgl_len && len; i++, at += EA_SGE_SIZE) {
		p = ea_ring_entry(qp->dev, &sq->ring, (uint32_t)index + at / EA_ENTRY_SIZE);
		if (!p)
			break;
		memcpy(sge, p + at % EA_ENTRY_SIZE, EA_SGE_SIZE);
		ea_copied();
		sge_len = ea_le32(sge + 8);
		if (off >= sge_len) {
			off -= sge_len;
			continue;
		}
		piece = sge_len - off;
		if (piece > len)
			piece = len;
		want = *covered + piece;
		done = *covered;
		syn = ea_mr_iov(qp, ea_le32(sge + 12), ea_le64(sge) + off, piece,
				EA_ACCESS_LOCAL_READ, iov, max, &n, covered);
		if (ea_unlikely(syn)) {
			ea_term_sq(qp, index, ea_fault_local(syn));
			return -EFAULT;
		}
		if (*covered < want)
			return n;
		len -= *covered - done;
		off = 0;
	}
	if (ea_unlikely(len)) {
		ea_term_sq(qp, index, EA_SYN_SEND_FORMAT);
		return -EFAULT;
	}
	return n;
}
