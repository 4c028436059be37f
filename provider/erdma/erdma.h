/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Objects of the ERDMA provider and the functions its files share.
 *
 * Locks. A QP has a lock for its send queue and one for its receive queue, taken by posters. A CQ
 * has one lock, taken by pollers; it also guards the consumer index of every queue that completes
 * there and the table of its QPs. Another one orders those who arm it. No two locks are ever held
 * together, none is held across a system call.
 *
 * What posters and pollers share are the indices: a poster stores its producer index when all that
 * a poller will read of the slots is written, a poller its consumer index when it has read that.
 */
#ifndef ERDMA_H
#define ERDMA_H

#include <config.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/driver.h>
#include <util/compiler.h>
#include <util/mmio.h>
#include <util/udma_barrier.h>
#include <util/util.h>

#include "erdma_buf.h"
#include "erdma_dbrec.h"
#include "erdma_hw.h"
#include "erdma_lock.h"

#define ERDMA_CACHE_LINE 64
#define __erdma_hot	 __attribute__((aligned(ERDMA_CACHE_LINE)))
#define __erdma_inline	 inline __attribute__((always_inline))
#define __erdma_cold	 __attribute__((noinline, cold))

struct erdma_device {
	struct verbs_device vdev;
};

/* A page of doorbells, mapped. */
struct erdma_db_page {
	uint8_t *addr;
};

struct erdma_context {
	struct verbs_context vctx;
	struct erdma_db_page sdb;
	struct erdma_db_page rdb;
	struct erdma_db_page cdb;
	size_t page_size;
	enum erdma_sdb_type sdb_type;
	uint32_t sdb_offset; /* the slot, for ERDMA_SDB_ENTRY */
	bool roce;	     /* states are the application's; else the kernel's */
	bool atomics;
	uint64_t max_mr_size;
	struct erdma_dbrec_pool dbrecs;
};

struct erdma_pd {
	struct ibv_pd pd;
	struct erdma_pd *parent_of;	  /* parent domain: the real domain it stands for */
	struct erdma_td *td;		  /* parent domain: may be NULL */
	atomic_uint num_users;		  /* parent domains, and QPs and CQs of a parent domain */
	struct erdma_allocator allocator; /* parent domain: for rings */
};

struct erdma_td {
	struct ibv_td td;
	atomic_uint num_users;
};

struct erdma_qp;

/*
 * A place in the ring of a CQ. The count of consumed entries is laps times the size of the ring and
 * the entries before this one.
 */
struct erdma_cq_pos {
	_Atomic(struct erdma_cqe *) cqe;
	uint32_t free_owner; /* the owner bit of entries not yet written in this lap */
	atomic_uint laps;
};

struct erdma_cq {
	struct verbs_cq vcq;

	/* Polling. */
	struct erdma_cq_pos pos __erdma_hot; /* who arms looks at it without the lock */
	uint32_t qps_mask;
	struct erdma_qp **qps; /* hashed by QPN, at most half full; free: &erdma_no_qp */
	struct erdma_cqe *ring;
	struct erdma_cqe *end;
	struct erdma_lock lock;
	int (*poll)(struct erdma_cq *cq, int num_entries, struct ibv_wc *wc) __erdma_hot;
	uint32_t num_qps; /* attached or about to be */

	/* The completion that ibv_start_poll or ibv_next_poll stopped at. */
	uint32_t cur_hdr;
	struct erdma_cqe cur;

	/* Arming. */
	__le64 *dbrec;
	void *db;
	uint64_t cqn_bits;
	uint32_t arm_count;
	struct erdma_lock arm_lock; /* its own, so that a batch of ibv_next_poll may arm */
	atomic_uint num_events;	    /* read from the channel, possibly by another thread */

	struct erdma_buf buf;
	struct erdma_pd *parent; /* parent domain given at creation, or NULL */
};

/* What is remembered of a send WQE, by its first block. */
struct erdma_swr {
	uint64_t wr_id;
	uint16_t next_pi; /* running index after the WQE */
};

struct erdma_sq {
	uint8_t *ring;
	uint32_t mask;		/* blocks minus one */
	uint32_t last_straight; /* a WQE that starts after this block may wrap */
	uint64_t hdr;		/* bits that every WQE has: QPN, and CE if all are signalled */
	struct erdma_swr *wrs;	/* by first block */
	__le64 *dbrec;
	void *db;
	uint64_t db_bits;     /* QPN, in the doorbell's place */
	_Atomic(uint16_t) pi; /* in blocks; pollers only look at it */
	_Atomic(uint16_t) ci; /* in blocks; written under the lock of the send CQ */
	struct erdma_lock lock;
};

struct erdma_rq {
	struct erdma_rqe *ring;
	uint32_t mask;	/* entries minus one */
	atomic_uint pi; /* running; the adapter sees 16 bits; pollers only look */
	atomic_uint ci; /* running; written under the lock of the receive CQ */
	uint64_t hdr;	/* QPN, in the place it has in RQE and doorbell */
	uint64_t *wr_ids;
	__le64 *dbrec;
	void *db;
	struct erdma_lock lock;
};

/* What the current work request of a list still wants. */
enum erdma_wr_data {
	ERDMA_WR_NO_DATA,     /* nothing, or it has been given */
	ERDMA_WR_ANY_DATA,    /* SGEs or inline data, or nothing */
	ERDMA_WR_READ_SINK,   /* one SGE */
	ERDMA_WR_ATOMIC_SINK, /* one SGE */
};

/* The list of work requests between ibv_wr_start and ibv_wr_complete. */
struct erdma_wr_list {
	uint16_t start_pi;
	uint16_t pi;	     /* where the current WQE starts */
	uint32_t num_blocks; /* of the current WQE; 0: none was begun */
	uint32_t head_size;  /* where its data starts */
	enum erdma_wr_data data;
	int err;      /* the first error; the list will not be posted */
	uint8_t *wqe; /* in the ring, or the scratch buffer */
	uint64_t hdr;
};

struct erdma_qp {
	struct verbs_qp vqp;

	struct erdma_sq sq __erdma_hot;
	uint32_t qpn;
	int send_err; /* EINVAL while the state forbids posting to the SQ, else 0 */
	int (*post_send)(struct erdma_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
	uint8_t *scratch; /* ERDMA_MAX_WQE_SIZE; a WQE that wraps is built here */

	struct erdma_rq rq __erdma_hot;
	int (*post_recv)(struct erdma_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

	struct erdma_wr_list list __erdma_hot;
	bool atomics;
	bool sq_sig_all;
	enum ibv_qp_state state; /* as last asked for */
	uint8_t max_rd_atomic;	 /* RoCE: as last asked for */
	uint8_t max_dest_rd_atomic;
	struct ibv_qp_cap cap;
	struct erdma_buf buf;
	__le64 *dbrecs; /* SQ, RQ */
};

static inline struct erdma_device *to_edev(struct ibv_device *dev)
{
	return container_of(dev, struct erdma_device, vdev.device);
}

static inline struct erdma_context *to_ectx(struct ibv_context *context)
{
	return container_of(context, struct erdma_context, vctx.context);
}

static inline struct erdma_pd *to_epd(struct ibv_pd *pd)
{
	return container_of(pd, struct erdma_pd, pd);
}

static inline struct erdma_td *to_etd(struct ibv_td *td)
{
	return container_of(td, struct erdma_td, td);
}

static inline struct erdma_cq *to_ecq(struct ibv_cq *cq)
{
	return container_of(cq, struct erdma_cq, vcq.cq);
}

static inline struct erdma_cq *to_ecq_ex(struct ibv_cq_ex *cq)
{
	return container_of(cq, struct erdma_cq, vcq.cq_ex);
}

static inline struct erdma_qp *to_eqp(struct ibv_qp *qp)
{
	return container_of(qp, struct erdma_qp, vqp.qp);
}

static inline struct erdma_qp *to_eqp_ex(struct ibv_qp_ex *qp)
{
	return container_of(qp, struct erdma_qp, vqp.qp_ex);
}

static __erdma_inline void erdma_set_sge(struct erdma_sge *dst, const struct ibv_sge *src)
{
	dst->addr = htole64(src->addr);
	dst->length = htole32(src->length);
	dst->lkey = htole32(src->lkey);
}

/*
 * Makes queue entries visible, then the record, then tells the adapter. @val is the doorbell value.
 */
static __erdma_inline void erdma_ring(__le64 *rec, void *db, uint64_t val)
{
	udma_to_device_barrier();
	/* The barrier orders it for a device; an adapter that is a thread may rely on the release. */
	__atomic_store_n(rec, htole64(val), __ATOMIC_RELEASE);
	udma_to_device_barrier();
	mmio_write64_le(db, htole64(val));
}

/*
 * Domains. A parent domain passes for the PD it stands for everywhere in the core; what it adds is
 * the promise of its thread domain, and memory for the rings of its objects.
 */
struct ibv_pd *erdma_alloc_pd(struct ibv_context *context);
int erdma_dealloc_pd(struct ibv_pd *pd);
struct ibv_td *erdma_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr);
int erdma_dealloc_td(struct ibv_td *td);
struct ibv_pd *erdma_alloc_parent_domain(struct ibv_context *context,
					 struct ibv_parent_domain_init_attr *attr);

/* An object created in @pd comes or goes: a parent domain in use cannot be deallocated. */
void erdma_pd_get(struct erdma_pd *pd);
void erdma_pd_put(struct erdma_pd *pd);

/* Whether objects created in @pd are used by one thread at a time. */
static inline bool erdma_pd_single_threaded(const struct erdma_pd *pd)
{
	return pd->td;
}

/* Memory regions. */
struct ibv_mr *erdma_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t hca_va,
			    int access);
int erdma_dereg_mr(struct verbs_mr *vmr);

/* Completion queues. */
struct ibv_cq *erdma_create_cq(struct ibv_context *context, int cqe,
			       struct ibv_comp_channel *channel, int comp_vector);
struct ibv_cq_ex *erdma_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
int erdma_destroy_cq(struct ibv_cq *cq);
int erdma_req_notify_cq(struct ibv_cq *cq, int solicited_only);
void erdma_cq_event(struct ibv_cq *cq);
int erdma_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);

/* Chooses the poll functions of a new CQ, and those of the extended interface if @ex. */
void erdma_cq_set_poll_ops(struct erdma_cq *cq, bool ex);

/*
 * The QPs of a CQ. Room is reserved before the kernel creates the QP, so that attaching cannot
 * fail. Completions of a QP that is not attached are passed over by polling; attaching drops those
 * that a former QP of the same number left in the ring, so that nobody takes them for new ones.
 * Detaching leaves the place alone if the number has a new owner already. A QP that is attached to
 * the same CQ twice (send and receive side) counts once.
 */
int erdma_cq_reserve(struct erdma_cq *cq);
void erdma_cq_unreserve(struct erdma_cq *cq);
void erdma_cq_attach(struct erdma_cq *cq, struct erdma_qp *qp);
void erdma_cq_detach(struct erdma_cq *cq, struct erdma_qp *qp);

/* Drops the completions of @qp that have not been polled. */
void erdma_cq_clean(struct erdma_cq *cq, struct erdma_qp *qp);

static __erdma_inline uint32_t erdma_cqe_hdr(const struct erdma_cqe *cqe)
{
	/* Before the rest of the entry is read comes a barrier for what a device wrote, as well. */
	return be32toh(__atomic_load_n(&cqe->hdr, __ATOMIC_ACQUIRE));
}

static __erdma_inline struct erdma_cqe *erdma_cq_next(const struct erdma_cq_pos *pos)
{
	return atomic_load_explicit(&pos->cqe, memory_order_relaxed);
}

/*
 * Whether the adapter has written the entry at @pos, whose first word is @hdr: the owner bit is set
 * on even laps of the ring and clear on odd ones.
 */
static __erdma_inline bool erdma_cqe_valid(const struct erdma_cq_pos *pos, uint32_t hdr)
{
	return (hdr ^ pos->free_owner) & ERDMA_CQE_OWNER;
}

/* The entry at @pos has been dealt with. For the CQ's own position the caller holds the lock. */
static __erdma_inline void erdma_cq_step(const struct erdma_cq *cq, struct erdma_cq_pos *pos)
{
	struct erdma_cqe *next = erdma_cq_next(pos) + 1;

	if (likely(next != cq->end)) {
		atomic_store_explicit(&pos->cqe, next, memory_order_relaxed);
		return;
	}
	/* In this order a reader never sees a count that is too high. */
	atomic_store_explicit(&pos->cqe, cq->ring, memory_order_relaxed);
	pos->free_owner ^= ERDMA_CQE_OWNER;
	atomic_fetch_add_explicit(&pos->laps, 1, memory_order_release);
}

/* Stands in the free places of a CQ's table, so that looking a QP up need not test for NULL. */
extern struct erdma_qp erdma_no_qp;

/* Where @qpn stands, or would stand. The caller holds the lock. */
static inline struct erdma_qp **erdma_cq_place(const struct erdma_cq *cq, uint32_t qpn)
{
	uint32_t i = qpn & cq->qps_mask;

	while (cq->qps[i]->qpn != qpn && cq->qps[i] != &erdma_no_qp)
		i = (i + 1) & cq->qps_mask;
	return &cq->qps[i];
}

/* Queue pairs. */
struct ibv_qp *erdma_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *erdma_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int erdma_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask);
int erdma_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
		   struct ibv_qp_init_attr *init_attr);
int erdma_destroy_qp(struct ibv_qp *qp);

/*
 * Work requests. 0 or a positive errno, and the first request that was not posted in @bad_wr:
 * ENOMEM: the queue is full; EINVAL: the request is wrong, or the QP is in RESET.
 */
int erdma_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int erdma_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

/* Lets posting through, or not, as the state of @qp wants it. */
void erdma_qp_set_post_send(struct erdma_qp *qp, bool allowed);
void erdma_qp_set_post_recv(struct erdma_qp *qp, bool allowed);

/* The ibv_wr_* operations in @send_ops; 0 or EOPNOTSUPP if it lacks one. */
int erdma_qp_set_wr_ops(struct erdma_context *ctx, struct erdma_qp *qp, uint64_t send_ops);

#endif
