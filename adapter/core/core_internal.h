/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the files of the device model share.  Names that only they use carry no contract beyond
 * the comment here; the public manual is core.h.
 */
#ifndef EA_CORE_INTERNAL_H
#define EA_CORE_INTERNAL_H

#include <errno.h>

#include "adapter/core/core.h"
#include "adapter/core/hw.h"
#include "adapter/wire/rdmap.h"

#define ea_likely(x)   __builtin_expect(!!(x), 1)
#define ea_unlikely(x) __builtin_expect(!!(x), 0)

/*
 * Values copied out of shared memory must not be loaded from it a second time after they were checked.
 */
#define ea_copied() __asm__ __volatile__("" ::: "memory")

/* ------------------------------------------------------------------ pages.c */

/* A ring of 32-byte entries in host memory. */
struct ea_ring {
	uint8_t *base; /* all entries when they are contiguous, else NULL */
	uint32_t mask; /* entries - 1 */
	uint32_t gen;  /* ea_dev.gen that base belongs to */
	bool write;
	struct ea_pages pages;
};

/* Do @pages hold @len bytes?  False for forms and sizes that make no sense, too. */
bool ea_pages_cover(const struct ea_pages *pages, uint64_t len);

/* Pointer to byte @off, *@len as for ea_dma_ops.map.  NULL: not there. */
void *ea_pages_map(const struct ea_dev *dev, const struct ea_pages *pages, uint64_t off,
		   size_t *len, bool write);

/* EINVAL when @pages are too few or entries are not aligned. */
int ea_ring_init(struct ea_dev *dev, struct ea_ring *ring, const struct ea_pages *pages,
		 uint8_t shift, bool write);

void *ea_ring_entry_slow(struct ea_dev *dev, struct ea_ring *ring, uint32_t index);

/* ------------------------------------------------------------------ mr.c */

enum ea_fault { /* in the order of both ranges of syndromes */
	EA_FAULT_NONE,
	EA_FAULT_STAG,
	EA_FAULT_ADDR,
	EA_FAULT_RIGHT,
	EA_FAULT_PD,
	EA_FAULT_WRAP,
};

static inline uint8_t ea_fault_local(enum ea_fault fault)
{
	return EA_SYN_SEND_STAG + (fault - EA_FAULT_STAG);
}

static inline uint8_t ea_fault_remote(enum ea_fault fault)
{
	return EA_SYN_RECV_STAG + (fault - EA_FAULT_STAG);
}

struct ea_mr {
	uint32_t stag;
	uint32_t pdn;
	uint32_t access;
	uint8_t type;
	bool valid;
	uint64_t start;
	uint64_t len;
	struct ea_pages pages;
	uint64_t frmr_array; /* FRMR: the array and its size as registered */
	uint64_t frmr_npages;
};

/*
 * May @qp use @len > 0 bytes at @addr of @stag with all rights in @access?  Local rights only: the
 * device's own key is taken too.
 */
enum ea_fault ea_mr_check(const struct ea_qp *qp, uint32_t stag, uint64_t addr, uint64_t len,
			  uint32_t access);

/*
 * Check as above and list the memory.  *@n is the count of iovecs in use, which grows up to @max;
 * *@covered the bytes listed.  Neighbouring pieces are joined.
 */
enum ea_fault ea_mr_iov(const struct ea_qp *qp, uint32_t stag, uint64_t addr, uint64_t len,
			uint32_t access, struct iovec *iov, int max, int *n, uint32_t *covered);

/* Append @len bytes at @p; false when all @max are in use. */
bool ea_iov_add(struct iovec *iov, int max, int *n, void *p, size_t len);

/* The work requests.  Result: a syndrome. */
uint8_t ea_mr_fastreg(const struct ea_qp *qp, const uint8_t *wqe, uint32_t wqe_len);
uint8_t ea_mr_local_inv(const struct ea_qp *qp, uint32_t stag);

/* The peer's wish (Send with Invalidate); false when it is not to be granted. */
bool ea_mr_remote_inv(const struct ea_qp *qp, uint32_t stag);

/* ------------------------------------------------------------------ device */

struct ea_dev {
	struct ea_qp **qps;
	struct ea_cq **cqs;
	struct ea_mr **mrs;
	struct ea_dev_attr attr;
	const struct ea_dma_ops *dma;
	const struct ea_host_ops *host;
	void *ctx;
	uint32_t gen; /* counts changes of the memory map */
	struct ea_stats stats;
};

/* ------------------------------------------------------------------ cq.c */

struct ea_cq {
	struct ea_ring ring;
	uint64_t pi;
	uint64_t sol_end; /* producer index behind the last solicited entry */
	uint32_t cqn;
	uint32_t eqn;
	uint32_t refs; /* queues that complete here */
	uint8_t shift;
	bool armed;
	bool armed_sol;
	bool dead; /* memory is gone */
};

struct ea_cqe {
	uint8_t opcode;
	uint8_t qtype;
	uint8_t syndrome;
	bool solicited;
	uint16_t index;
	uint32_t qpn;
	uint32_t size;
	uint32_t extra; /* bytes 12..15 as they lie in memory */
};

void ea_cq_post(struct ea_dev *dev, struct ea_cq *cq, const struct ea_cqe *cqe);
void ea_cq_free(struct ea_dev *dev, uint32_t cqn);

/* ------------------------------------------------------------------ queue pairs */

enum ea_sq_flags {
	EA_SQF_CE = 1 << 0,
	EA_SQF_DONE = 1 << 1,
	EA_SQF_INLINE = 1 << 2,
};

/* A work request that was fetched and is not completed; kept under its first block's place. */
struct ea_sq_rec {
	uint32_t len;
	uint8_t op;
	uint8_t blocks;
	uint8_t flags;
	uint8_t sgl_len; /* SGEs or inline bytes */
};

/* A READ or atomic that waits for its response. */
struct ea_orq_entry {
	uint64_t to; /* sink */
	uint32_t stag;
	uint32_t len;
	uint32_t got;	   /* bytes placed */
	uint32_t inv_stag; /* to invalidate when done */
	uint16_t index;	   /* of the WQE */
	bool inv;	   /* there is one to invalidate */
	bool atomic;	   /* len is the request id */
};

/* A READ or atomic of the peer that waits for our response. */
struct ea_irq_entry {
	uint64_t to;	    /* READ: source */
	uint64_t sink_to;   /* READ: sink; atomic: the value that was there */
	uint32_t stag;	    /* READ: source */
	uint32_t sink_stag; /* READ: sink; atomic: the peer's request id */
	uint32_t len;
	bool atomic;
};

enum {
	EA_ORQ_SIZE = EA_MAX_ORD,
	EA_IRQ_SIZE = EA_MAX_IRD,
};

struct ea_sq {
	struct ea_ring ring;
	struct ea_sq_rec *rec;
	uint16_t ci;   /* oldest WQE that is not completed */
	uint16_t next; /* next WQE to fetch */
	uint16_t pi;
	uint8_t bad;  /* syndrome that waits for the WQEs before it; 0: none */
	bool stalled; /* a WQE waits for something; tx_ready() is owed */
	bool imm_due; /* the write is out, its immediate is not */
	bool imm_se;
	uint16_t imm_index; /* of that WQE */
	uint32_t imm;
	uint32_t busy; /* messages the link has not finished */
	/* connections with acknowledgements */
	uint16_t ack_next;  /* oldest WQE that may wait for one */
	bool ack_half;	    /* of which the first message, a write, has it */
	uint32_t ack_count; /* messages acknowledged */
	uint32_t ack_sent;  /* messages handed out that want it */
};

struct ea_rq {
	struct ea_ring ring;
	uint16_t ci;
	uint16_t pi;
	bool held;     /* a segment waits for an RQE */
	bool open;     /* the RQE at ci is in use by a message */
	uint64_t addr; /* copy of that RQE */
	uint32_t len;
	uint32_t lkey;
};

struct ea_qp {
	struct ea_dev *dev;
	struct ea_link *link;
	struct ea_cq *scq, *rcq;
	uint32_t qpn;
	uint32_t pdn;
	uint8_t state;
	bool dma_key_ok;
	bool stopping; /* the link is being told of the end */
	uint8_t ord, ird;
	bool tx_turn;	   /* the send queue is next when both have work */
	bool acks;	   /* agreed: see struct ea_conn_attr */
	uint32_t rx_count; /* messages of the peer that want an acknowledgement */
	uint32_t rx_acked; /* of which it was told */
	/* READs and atomics of ours: head..tail */
	uint8_t orq_head, orq_tail;
	/* of the peer: head (oldest not finished), next (to hand out), tail */
	uint8_t irq_head, irq_next, irq_tail;
	struct ea_sq sq;
	struct ea_rq rq;
	uint32_t tx_msn[EA_NR_QN]; /* of the next message */
	uint32_t rx_msn[EA_NR_QN]; /* expected */
	uint32_t rx_mo;		   /* of the Send under way */
	uint8_t rx_op;		   /* of the Send under way */
	bool rx_more;		   /* a Send is under way */
	bool write_open;	   /* a write of the peer is under way */
	uint32_t write_len;	   /* of the peer's write under way */
	uint32_t last_write_len;   /* of the last whole one */
	uint8_t term_len;	   /* a Terminate waits to be sent */
	uint8_t term[EA_TX_CTRL_MAX];
	struct ea_orq_entry *orq;
	struct ea_irq_entry *irq;
};

static inline uint8_t ea_orq_count(const struct ea_qp *qp)
{
	return qp->orq_tail - qp->orq_head;
}

static inline uint8_t ea_irq_count(const struct ea_qp *qp)
{
	return qp->irq_tail - qp->irq_head;
}

static inline struct ea_orq_entry *ea_orq_at(const struct ea_qp *qp, uint8_t pos)
{
	return &qp->orq[pos % EA_ORQ_SIZE];
}

static inline struct ea_irq_entry *ea_irq_at(const struct ea_qp *qp, uint8_t pos)
{
	return &qp->irq[pos % EA_IRQ_SIZE];
}

static inline void *ea_ring_entry(struct ea_dev *dev, struct ea_ring *ring, uint32_t index)
{
	if (ea_likely(ring->base && ring->gen == dev->gen))
		return ring->base + (size_t)(index & ring->mask) * EA_ENTRY_SIZE;
	return ea_ring_entry_slow(dev, ring, index);
}

/* qp.c */
void ea_qp_free(struct ea_dev *dev, uint32_t qpn);

/*
 * Leave the data path for @state (CLOSING, TERMINATE, ERROR): @how says what the link shall do.  The
 * SQ is flushed with @sq_syn on the WQE at @sq_culprit (or on the oldest when it is none of those
 * outstanding), the RQ with @rq_syn on its first.  A stopped QP only changes state.
 */
struct ea_stop {
	enum ea_qp_state state;
	enum ea_shutdown how;
	uint8_t sq_syn; /* 0: FLUSH */
	uint8_t rq_syn; /* 0: FLUSH */
	bool has_culprit;
	uint16_t sq_culprit;
	int event; /* enum ea_async_event, or EA_NO_EVENT */
};

enum {
	EA_NO_EVENT = -1
};

void ea_qp_stop(struct ea_qp *qp, const struct ea_stop *stop);

/* sq.c */
struct ea_tx_msg;
int ea_sq_next(struct ea_qp *qp, struct ea_tx_msg *msg);
void ea_sq_done(struct ea_qp *qp, uint16_t index); /* this WQE has had its effect */
void ea_sq_retire(struct ea_qp *qp);		   /* complete what is done, in order */
int ea_sq_payload(struct ea_qp *qp, uint16_t index, uint32_t off, uint32_t len, struct iovec *iov,
		  int max, uint32_t *covered);
void ea_sq_kick(struct ea_qp *qp); /* what a stalled WQE waited for may be there */

static inline bool ea_sq_outstanding(const struct ea_sq *sq, uint16_t index)
{
	return (uint16_t)(index - sq->ci) < (uint16_t)(sq->next - sq->ci);
}

/* ack.c */

/* The message is one that the peer acknowledges. */
static inline bool ea_ack_wanted(const struct ea_tx_msg *msg)
{
	if (msg->opcode == EA_RDMAP_WRITE)
		return msg->len;
	return ea_rdmap_is_send(msg->opcode) || msg->opcode == EA_RDMAP_IMM ||
	       msg->opcode == EA_RDMAP_IMM_SE;
}

static inline bool ea_ack_due(const struct ea_qp *qp)
{
	return qp->rx_count != qp->rx_acked;
}

/* A message of the peer has had its effect. */
static inline void ea_ack_owe(struct ea_qp *qp)
{
	if (ea_likely(!qp->acks))
		return;
	qp->rx_count++;
	if (qp->link)
		qp->link->ops->tx_ready(qp->link);
}

void ea_ack_next(struct ea_qp *qp, struct ea_tx_msg *msg);
int ea_ack_received(struct ea_qp *qp, const struct ea_rx_seg *seg, const void *payload);

/* The peer stopped at the WQE at @index: those before it have had their effect. */
void ea_ack_until(struct ea_qp *qp, uint16_t index);

/* rq.c */
struct ea_rq_end {
	uint8_t opcode;
	bool solicited;
	uint32_t size;
	uint32_t extra; /* bytes 12..15 of the CQE as they lie in memory */
};

/* Fetch the oldest RQE.  EAGAIN: none, rx_resume() is owed; EINVAL: malformed. */
int ea_rq_open(struct ea_qp *qp);
void ea_rq_complete(struct ea_qp *qp, const struct ea_rq_end *end);

/* resp.c */
int ea_resp_next(struct ea_qp *qp, struct ea_tx_msg *msg);
void ea_resp_done(struct ea_qp *qp);
int ea_resp_payload(struct ea_qp *qp, uint32_t slot, uint32_t off, uint32_t len, struct iovec *iov,
		    int max, uint32_t *covered);
int ea_resp_read(struct ea_qp *qp, const struct ea_rx_seg *seg, const void *payload);
int ea_resp_atomic(struct ea_qp *qp, const struct ea_rx_seg *seg, const void *payload);

static inline bool ea_resp_pending(const struct ea_qp *qp)
{
	return qp->irq_next != qp->irq_tail;
}

/* flush.c */
void ea_flush(struct ea_qp *qp, const struct ea_stop *stop);

/* term.c */

/*
 * End the QP because of what the peer sent: a Terminate with @codes and copies of @seg's header and of
 * @rdma_hdr (the Read Request behind it); both may be NULL.  @rq_syn: syndrome of the oldest RQE, 0
 * for FLUSH.  Returns EPROTO.
 */
int ea_term_codes_send(struct ea_qp *qp, struct ea_term_codes codes, const struct ea_rx_seg *seg,
		       const void *rdma_hdr, uint8_t rq_syn);
int ea_term_peer(struct ea_qp *qp, enum ea_term_cause cause, const struct ea_rx_seg *seg,
		 const void *rdma_hdr);

/* Causes of a failed check: of a tagged segment, of a READ source or atomic target. */
enum ea_term_cause ea_term_tagged_cause(enum ea_fault fault);
enum ea_term_cause ea_term_remote_cause(enum ea_fault fault);

/*
 * End the QP because of a WQE of its own, which completes with @syn: the SQ's at @index (the oldest
 * when that one is not outstanding), the RQ's oldest.
 */
void ea_term_sq(struct ea_qp *qp, uint16_t index, uint8_t syn);
void ea_term_rq(struct ea_qp *qp, uint8_t syn);

/* A doorbell that cannot be right; there may be no WQE to tell it. */
void ea_term_doorbell(struct ea_qp *qp, uint8_t sq_syn, uint8_t rq_syn);

/* The peer's Terminate. */
void ea_term_received(struct ea_qp *qp, const struct ea_rx_seg *seg, const void *payload);

/* ------------------------------------------------------------------ tx.c */

/* Kinds of ea_tx_msg.kind */
enum ea_tx_kind {
	EA_TX_SQ_DATA,	 /* slot: WQE index; the WQE is done with it */
	EA_TX_SQ_MORE,	 /* slot: WQE index; another message or a response follows */
	EA_TX_READ_RESP, /* slot: place in the IRQ */
	EA_TX_ATOMIC_RESP,
	EA_TX_TERMINATE,
	EA_TX_ACK,
};

static inline void ea_tx_tagged(struct ea_tx_msg *msg, uint8_t opcode, uint32_t stag, uint64_t to,
				uint32_t len)
{
	msg->opcode = opcode;
	msg->tagged = true;
	msg->ctrl_len = 0;
	msg->stag = stag;
	msg->to = to;
	msg->qn = 0;
	msg->msn = 0;
	msg->ulp_word = 0;
	msg->len = len;
}

/* Takes the queue's next sequence number. */
static inline void ea_tx_untagged(struct ea_qp *qp, struct ea_tx_msg *msg, uint8_t opcode,
				  uint32_t qn, uint32_t word, uint32_t len)
{
	msg->opcode = opcode;
	msg->tagged = false;
	msg->ctrl_len = 0;
	msg->stag = 0;
	msg->to = 0;
	msg->qn = qn;
	msg->msn = qp->tx_msn[qn]++;
	msg->ulp_word = word;
	msg->len = len;
}

/* The message is the header of @len bytes that was written to msg->ctrl. */
static inline void ea_tx_ctrl(struct ea_tx_msg *msg, uint32_t len)
{
	msg->ctrl_len = len;
	msg->len = 0;
}

#endif
