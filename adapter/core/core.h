/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The device model of the ERDMA adapter: objects, protection, queue engines, QP states.
 *
 * The model does no I/O: it knows no socket, file, thread, lock or clock.  It reads queue
 * entries through the host's DMA interface, hands outgoing RDMAP messages to a link when the
 * link asks for them (pull), checks each incoming DDP segment and tells the link where its
 * payload goes, and writes completions.  Two hosts drive it: the process host (verbs programs
 * in a plain process) and the PCI host (a function of a virtual machine).
 *
 * Trust: everything that comes from queue memory, doorbells, page lists or the wire is hostile.
 * A bad value ends in an error completion, a Terminate message or a dead QP, never in a crash, an
 * endless loop or an access outside a checked region.
 *
 * Threads: all functions of one ea_dev must be serialised by the caller (the host's engine
 * lock).  Pointers and iovecs that a function returns are valid until that lock is released.
 *
 * Reentrancy: host and link operations (struct ea_host_ops, struct ea_link_ops) are called from inside
 * core functions.  They may only note the request; they must not call back into the core.
 *
 * Numbers (QPN, CQN, STag index, PD) are chosen by the caller, as the Linux driver does.
 * Unless said otherwise an int result is 0 or a positive errno value.
 */
#ifndef EA_CORE_H
#define EA_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <linux/types.h>

struct ea_dev;
struct ea_qp;

/* ------------------------------------------------------------------ limits */

enum {
	EA_MAX_SEND_WR = 8192, /* work requests; the ring has 4 blocks for each */
	EA_MAX_SEND_SGE = 6,
	EA_MAX_RECV_SGE = 1,
	EA_MAX_INLINE = 96,
	EA_MAX_ORD = 128,
	EA_MAX_IRD = 128,
	EA_WQEBB_SHIFT = 5, /* a send queue block has 32 bytes */
	EA_RQE_SHIFT = 5,
	EA_CQE_SHIFT = 5,
	EA_IOV_MAX = 24,     /* most pieces that one payload of up to 64 KiB can have */
	EA_TX_CTRL_MAX = 64, /* bytes of the longest RDMAP header behind a DDP header */
};

/* ------------------------------------------------------------------ host side */

/*
 * How the device reaches memory.
 *
 * map: translate bus address @addr.  @len: in, the bytes wanted; out, how many of them are contiguous
 * at the returned pointer (1..wanted).  NULL when nothing is mapped at @addr, or when @write is set
 * and the memory is read-only.  In the process host a bus address is a virtual address.
 *
 * lost (may be NULL): memory behind a pointer that map has returned cannot be reached any more; from now on
 * map returns NULL for what is missing of it.
 */
struct ea_dma_ops {
	void *(*map)(void *ctx, uint64_t addr, size_t *len, bool write);
	void (*lost)(void *ctx, void *p, size_t len, bool write);
};

enum ea_async_event {
	EA_ASYNC_QP_FATAL,	/* transport or protocol error; number is the QPN */
	EA_ASYNC_QP_ACCESS_ERR, /* the peer broke a protection rule of ours; QPN */
	EA_ASYNC_CQ_ERR,	/* the CQ's memory is gone; CQN */
};

/*
 * What the device tells its host; both only note the event (see Reentrancy).
 * comp_event: CQ @cqn was armed and fired; it is disarmed now.  @eqn as given at creation, @pi the
 * producer index after the completion.
 */
struct ea_host_ops {
	void (*comp_event)(void *ctx, uint32_t cqn, uint32_t eqn, uint32_t pi);
	void (*async_event)(void *ctx, enum ea_async_event event, uint32_t number);
};

struct ea_dev_attr {
	uint32_t max_qp;	/* QPNs 1..max_qp-1; a power of two not above 2^20 */
	uint32_t max_cq;	/* CQNs 1..max_cq-1 */
	uint32_t max_mr;	/* STag indices 0..max_mr-1 */
	uint8_t max_cqe_shift;	/* deepest CQ as a power of two, at most 23 */
	uint8_t max_rq_shift;	/* deepest RQ as a power of two, at most 15 */
	uint32_t dma_local_key; /* 0: none.  Names plain bus addresses for every PD (kernel users) */
};

/*
 * Create a device.  @dma and @host must outlive it; @ctx is handed to their functions.  NULL with
 * errno EINVAL (a limit out of range) or ENOMEM.
 */
struct ea_dev *ea_dev_create(const struct ea_dev_attr *attr, const struct ea_dma_ops *dma,
			     const struct ea_host_ops *host, void *ctx);

/* Drop every object without completions or events (RESET).  Links are told to abort. */
void ea_dev_reset(struct ea_dev *dev);

/* Reset and free. */
void ea_dev_destroy(struct ea_dev *dev);

/*
 * The host's memory map has changed (a PCI guest's DMA windows).  The core keeps translations of
 * ring memory, which must stay valid between calls of this function; it drops them now.  Iovecs
 * that a link holds are the link's to drop.
 */
void ea_dev_memory_changed(struct ea_dev *dev);

struct ea_stats {
	uint64_t tx_reqs, tx_msgs, tx_bytes, rx_msgs, rx_bytes, rx_drops;
};

void ea_dev_stats(const struct ea_dev *dev, struct ea_stats *stats);

/* ------------------------------------------------------------------ memory */

enum ea_pages_form {
	EA_PAGES_FLAT,	 /* addr[0] is the bus address of byte 0, contiguous */
	EA_PAGES_INLINE, /* up to four page addresses in addr[] */
	EA_PAGES_ARRAY,	 /* addr[0]: contiguous array of __le64 page addresses */
	EA_PAGES_TREE2,	 /* addr[0]: page of addresses of pages of page addresses */
	EA_PAGES_TREE3,	 /* one level more */
};

/* Where a ring or region lies on the bus (MTT forms of the device). */
struct ea_pages {
	enum ea_pages_form form;
	uint8_t page_shift; /* 12..30; EA_PAGES_FLAT ignores it */
	uint64_t npages;
	uint64_t first_off; /* offset of byte 0 in the first page */
	uint64_t addr[4];
};

enum ea_access { /* bit positions of the device's access field */
	EA_ACCESS_REMOTE_ATOMIC = 1 << 0,
	EA_ACCESS_LOCAL_READ = 1 << 1,
	EA_ACCESS_LOCAL_WRITE = 1 << 2,
	EA_ACCESS_REMOTE_READ = 1 << 3,
	EA_ACCESS_REMOTE_WRITE = 1 << 4,
};

enum ea_mr_type {
	EA_MR_NORMAL, /* valid at once */
	EA_MR_FRMR,   /* made valid by a REG_MR work request */
	EA_MR_DMA,    /* all bus addresses, no bounds */
};

struct ea_mr_attr {
	uint32_t stag; /* index << 8 | key; lkey and rkey */
	uint32_t pdn;
	uint32_t access; /* enum ea_access */
	enum ea_mr_type type;
	uint64_t start; /* first valid address */
	uint64_t len;
	struct ea_pages pages;
};

/*
 * Register a region; the page list is read through the DMA interface at each access, never cached.
 * For EA_MR_FRMR the pages (EA_PAGES_ARRAY) are the array that a REG_MR work request may name, start
 * and len are 0; for EA_MR_DMA only stag, pdn and access count.  EINVAL (index out of range, start +
 * len wraps 2^64, pages do not cover len, unknown access bit), EEXIST (index in use), ENOMEM.
 *
 * A peer's Send with Invalidate makes a region unusable if it is not EA_MR_DMA, belongs to the QP's
 * PD and grants some remote right (RFC 5040 5.3 wants no more); a normal region then stays so
 * until it is deregistered.  The work requests LOCAL_INV and READ_WITH_INV want an EA_MR_FRMR.
 */
int ea_mr_reg(struct ea_dev *dev, const struct ea_mr_attr *attr);

/* Access ends at once, also for transfers in progress (they fail).  By index only; ENOENT. */
int ea_mr_dereg(struct ea_dev *dev, uint32_t stag);

/* ------------------------------------------------------------------ completion queues */

struct ea_cq_attr {
	uint32_t cqn;
	uint32_t eqn; /* opaque, handed to comp_event */
	uint8_t depth_shift;
	struct ea_pages pages;
};

/* EINVAL (limits, pages shorter than the ring), EEXIST, ENOMEM.  Starts not armed, index 0. */
int ea_cq_create(struct ea_dev *dev, const struct ea_cq_attr *attr);

/*
 * After this nothing is written to the ring and no event is raised.  ENOENT; EBUSY while a QP
 * uses it.
 */
int ea_cq_destroy(struct ea_dev *dev, uint32_t cqn);

/*
 * Raise the event of an armed CQ although nothing new is in it; programs must expect such events.
 * No effect when it is not armed or does not exist.
 */
void ea_cq_nudge(struct ea_dev *dev, uint32_t cqn);

/* ------------------------------------------------------------------ queue pairs */

enum ea_qp_state { /* numbers as in MODIFY_QP, iWARP form */
	EA_QP_IDLE = 0,
	EA_QP_RTR = 1,
	EA_QP_RTS = 2,
	EA_QP_CLOSING = 3,
	EA_QP_TERMINATE = 4,
	EA_QP_ERROR = 5,
};

struct ea_qp_attr {
	uint32_t qpn;
	uint32_t pdn;
	uint32_t scqn, rcqn;
	uint8_t sq_shift; /* blocks of 32 bytes; at most 15 */
	uint8_t rq_shift;
	bool dma_key_ok; /* may name dma_local_key: QPs of a kernel, never a user's */
	struct ea_pages sq, rq;
};

/*
 * EINVAL (number, depth, or pages shorter than a ring), EEXIST, ENOENT (a CQ), ENOMEM.  All memory the
 * QP ever needs is allocated here: 9 KiB for the deepest READ queues and 8 bytes for each block
 * of the send queue.
 */
int ea_qp_create(struct ea_dev *dev, const struct ea_qp_attr *attr);

/* No CQE of this QP is written afterwards; a link is told to abort and detached.  ENOENT. */
int ea_qp_destroy(struct ea_dev *dev, uint32_t qpn);

/* NULL when there is no such QP. */
struct ea_qp *ea_qp_find(struct ea_dev *dev, uint32_t qpn);

enum ea_qp_state ea_qp_state(const struct ea_qp *qp);
uint32_t ea_qp_num(const struct ea_qp *qp);

/* Send work requests are there that have not been completed. */
bool ea_qp_sends_pending(const struct ea_qp *qp);

/*
 * Leave the data path: @state is EA_QP_CLOSING, EA_QP_TERMINATE or EA_QP_ERROR.  Both queues are
 * flushed in order (FLUSH_ERR, signalled or not), WQEs whose doorbell comes later too; the link is
 * told to shut down (CLOSING: finish the FPDU under way, then end the stream; others: abort).
 * Accepted in each state; ERROR on IDLE succeeds.  A QP that has left the data path before only takes
 * the new state (never one before TERMINATE or ERROR), and its stream ends as it was told then.
 * EINVAL for another @state, ENOENT.
 */
int ea_qp_modify(struct ea_dev *dev, uint32_t qpn, enum ea_qp_state state);

/*
 * Complete with FLUSH_ERR all WQEs up to the indices that are not finished yet (REFLUSH); idempotent.
 * EINVAL when the QP has not left the data path, ENOENT.
 */
int ea_qp_reflush(struct ea_dev *dev, uint32_t qpn, uint16_t sq_pi, uint16_t rq_pi);

/*
 * The peer does not answer (RoCE mode; the host has waited as long as its program asked for): the oldest
 * send completes with RETRY_EXC_ERR, all else with FLUSH_ERR, the state is EA_QP_ERROR, a link is told to
 * abort, and QP_FATAL tells of it.  No effect on a QP that has left the data path.  ENOENT.
 */
int ea_qp_unreachable(struct ea_dev *dev, uint32_t qpn);

/*
 * Back to a fresh IDLE QP: indices 0, rings empty (RoCEv2 RESET).  No completion is written.  A
 * link is aborted.  ENOENT.
 */
int ea_qp_reset(struct ea_dev *dev, uint32_t qpn);

/* ------------------------------------------------------------------ doorbells */

/*
 * The 64-bit values software writes.  Numbers of nobody are ignored, and so are doorbells that were
 * overtaken: indices behind the one rung last, up to one depth behind the oldest WQE.  Any other
 * index that lies more than the depth ahead ends the QP with SEND_WQE_FORMAT_ERR or
 * RECV_WQE_FORMAT_ERR on the oldest WQE and QP_FATAL.  In state IDLE/RTR a send doorbell is
 * remembered and served at RTS.
 *
 * An arming whose consumer index is behind the producer fires at once.  Arming for solicited
 * completions does not narrow a pending request for any.
 */
void ea_db_sq(struct ea_dev *dev, uint64_t value);
void ea_db_rq(struct ea_dev *dev, uint64_t value);
void ea_db_cq(struct ea_dev *dev, uint64_t value);

/* ------------------------------------------------------------------ links: the way to the peer */

enum ea_shutdown {
	/* complete the FPDU under way, send EOF, read and discard until the peer's EOF */
	EA_SHUT_GRACEFUL,
	/* pull one more message (Terminate) by ea_tx_next(), send it, then as GRACEFUL */
	EA_SHUT_TERMINATE,
	/* close at once, but let what the transport has accepted arrive: its WQEs are complete */
	EA_SHUT_ABORT,
};

struct ea_link;

/* Called by the core; each only notes the request, the work is done in the link's next progress. */
struct ea_link_ops {
	/* ea_tx_next() has, or may have, something again */
	void (*tx_ready)(struct ea_link *link);
	/* a segment that was held (EAGAIN from ea_rx_begin) may be offered again */
	void (*rx_resume)(struct ea_link *link);
	/*
	 * The QP leaves RTS.  ABORT: link->qp is NULL already and the core never uses the link
	 * again.  The others: messages taken before are void (ea_tx_done() has no effect), but
	 * within this call, and not later, ea_tx_payload() still works, so that the rest of an FPDU
	 * under way can be copied: afterwards its memory belongs to the program again.
	 */
	void (*shutdown)(struct ea_link *link, enum ea_shutdown how);
};

/* Embedded in the link's own structure; filled by the link, qp set by ea_qp_connect(). */
struct ea_link {
	const struct ea_link_ops *ops;
	struct ea_qp *qp; /* NULL when detached */
};

struct ea_conn_attr {
	uint8_t ord; /* RDMA READs and atomics we may have outstanding (peer's IRD), 0..128 */
	uint8_t ird; /* the peer's that we accept, 0..128 */
	/*
	 * Both ends are such devices and have agreed that a Write or Send completes when the peer says that it
	 * has had its effect, as on a RoCE RC QP; else (RFC 5040) when the transport has taken its bytes.
	 */
	bool acks;
};

/*
 * Move a QP to RTS over @link.  The link must be ready for tx_ready() at once.  Ring indices go on,
 * message sequence numbers start over; a link the QP still had (CLOSING, the stream has not ended
 * yet) is aborted.  EINVAL: state is not IDLE, RTR or CLOSING, @attr is out of range; ENOENT.
 */
int ea_qp_connect(struct ea_dev *dev, uint32_t qpn, struct ea_link *link,
		  const struct ea_conn_attr *attr);

/*
 * The stream has ended.  @err 0: EOF at an FPDU boundary; else a positive errno (ECONNRESET, EPROTO for
 * EOF inside an FPDU, EBADMSG for a bad CRC, ETIMEDOUT...).  A QP in RTS is flushed; it goes to
 * CLOSING after an EOF between messages of the peer, otherwise to ERROR with an async QP_FATAL.  With
 * ETIMEDOUT, and with any error where Writes and Sends wait for the peer (struct ea_conn_attr.acks), the
 * oldest send WQE completes with RETRY_EXC_ERR.  The link is detached (link->qp =
 * NULL); no effect on a link without a QP.
 */
void ea_link_down(struct ea_link *link, int err);

/* ---- outgoing */

/*
 * One RDMAP message on its way out.  The link segments it (DDP) and frames it (MPA).  Fields above the
 * line are for the link; the rest belongs to the core.  A data message has @len payload bytes, named
 * by ea_tx_payload(); a control message has @len 0 and all that follows its DDP header in @ctrl.
 */
struct ea_tx_msg {
	uint8_t opcode; /* RDMAP opcode */
	bool tagged;
	uint8_t ctrl_len;  /* bytes in ctrl[]; 0 for data messages */
	uint32_t stag;	   /* tagged: target STag */
	uint64_t to;	   /* tagged: target offset of payload byte 0 */
	uint32_t qn, msn;  /* untagged: queue and message sequence number */
	uint32_t ulp_word; /* untagged: STag to invalidate, immediate, or 0; a number */
	uint32_t len;
	uint8_t ctrl[EA_TX_CTRL_MAX];
	/* ---- */
	uint8_t kind;
	uint32_t slot;
};

/*
 * The next message to send.  Order of SQ messages is kept; responses are interleaved fairly.  Several
 * messages may be taken before the first is done.  EAGAIN: nothing now, tx_ready() will tell.
 * ESHUTDOWN: nothing ever again.  Errors of a WQE are found here; it completes with its error, after
 * those before it have completed, and the QP ends.
 */
int ea_tx_next(struct ea_qp *qp, struct ea_tx_msg *msg);

/*
 * Memory of payload bytes @off..@off+@len-1 of @msg (off + len <= msg->len), checked anew.  Returns the
 * number of iovecs filled (1..max; 0 for @len 0), which may cover less than @len when max is too
 * small; *@covered tells.  Neighbouring pieces are joined.  A negative errno when the region went away
 * meanwhile: the QP has ended and shutdown(TERMINATE) was called; between FPDUs the link sends that
 * Terminate, inside one it can only end the stream.
 */
int ea_tx_payload(struct ea_qp *qp, const struct ea_tx_msg *msg, uint32_t off, uint32_t len,
		  struct iovec *iov, int max, uint32_t *covered);

/*
 * An access to memory that ea_tx_payload() or ea_rx_target() has listed ended with a fault (EFAULT, umem.h).  The
 * host learns it, and the same call, made again, fails with what follows for the QP.
 */
void ea_memory_lost(const struct ea_qp *qp, const struct iovec *iov, int n, bool write);

/* All bytes of @msg were accepted by the transport (in the order of ea_tx_next). */
void ea_tx_done(struct ea_qp *qp, const struct ea_tx_msg *msg);

/* ---- incoming */

/* A decoded DDP segment header. */
struct ea_rx_seg {
	uint8_t opcode; /* RDMAP opcode */
	bool tagged;
	bool last;
	uint32_t stag;	      /* tagged */
	uint64_t to;	      /* tagged */
	uint32_t qn, msn, mo; /* untagged */
	uint32_t ulp_word;    /* untagged, host order number */
	uint32_t len;	      /* payload bytes of this segment */
	/* raw headers for Terminate's copy */
	uint8_t raw_len;
	uint8_t raw[18];
};

/*
 * A segment's header has arrived; called once for each segment, in order, before payload.
 * 0: go on.  Data segments (Send kinds, Write, Read Response) are placed with ea_rx_target() and
 *    finished by ea_rx_end(); control messages (ea_rx_is_ctrl) are collected by the link (len <=
 *    EA_TX_CTRL_MAX is guaranteed) and given to ea_rx_ctrl().
 * EAGAIN: no receive WQE; keep the segment, read nothing more from this peer, offer it again after
 *    rx_resume().
 * Another errno: protocol or protection error (EPROTO), or the QP has ended before (ESHUTDOWN).  The
 *    core has ended the QP and asked for a shutdown (with Terminate where the RFCs want one); the
 *    link discards the rest of the input.
 *
 * A Write of no bytes names no memory, so its STag is not looked at.
 */
int ea_rx_begin(struct ea_qp *qp, const struct ea_rx_seg *seg);

/* Read Request, Terminate, Immediate Data, Atomic Request or Response? */
bool ea_rx_is_ctrl(uint8_t opcode);

/*
 * Where payload bytes @off..@off+@len-1 of the segment go; checked anew at each call, so a region
 * that is deregistered in the middle of a transfer takes no byte more.  Result as ea_tx_payload().
 */
int ea_rx_target(struct ea_qp *qp, const struct ea_rx_seg *seg, uint32_t off, uint32_t len,
		 struct iovec *iov, int max, uint32_t *covered);

/* All payload of the data segment is placed (and its CRC was right).  Errors as ea_rx_begin(). */
int ea_rx_end(struct ea_qp *qp, const struct ea_rx_seg *seg);

/* A whole control message.  Errors as ea_rx_begin(). */
int ea_rx_ctrl(struct ea_qp *qp, const struct ea_rx_seg *seg, const void *payload);

/*
 * The link found an error of its layer (bad CRC, bad FPDU length, DDP version...): end the QP with a
 * Terminate of @layer, @etype, @code (RFC 5040 4.8).  No effect on a QP that has ended.
 */
void ea_rx_error(struct ea_qp *qp, uint8_t layer, uint8_t etype, uint8_t code);

#endif
