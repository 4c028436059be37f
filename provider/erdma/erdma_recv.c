// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* ibv_post_recv. */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "erdma.h"

/* Ends a list at @wr, which is too much or wrong. The lock is held and is given back. */
static __erdma_cold int refuse(struct erdma_qp *qp, struct ibv_recv_wr *wr,
			       struct ibv_recv_wr **bad_wr)
{
	int ret = ENOMEM;

	erdma_unlock(&qp->rq.lock);
	if ((uint32_t)wr->num_sge > ERDMA_MAX_RECV_SGE) {
		verbs_err(verbs_get_ctx(qp->vqp.qp.context),
			  "QP %u: receive %#" PRIx64 " refused: %d SGEs, can be 0..%d\n", qp->qpn,
			  wr->wr_id, wr->num_sge, ERDMA_MAX_RECV_SGE);
		ret = EINVAL;
	}
	*bad_wr = wr;
	return ret;
}

/* The lock is held and is given back. */
static __erdma_inline int post_locked(struct erdma_qp *qp, struct ibv_recv_wr *wr,
				      struct ibv_recv_wr **bad_wr, const bool shared)
{
	struct erdma_rq *rq = &qp->rq;
	struct erdma_rqe *rqe;
	uint32_t pi, slot;
	uint64_t hdr;

	pi = atomic_load_explicit(&rq->pi, memory_order_relaxed);
	for (; wr; wr = wr->next) {
		if (unlikely(pi - atomic_load_explicit(&rq->ci, memory_order_acquire) > rq->mask ||
			     (uint32_t)wr->num_sge > ERDMA_MAX_RECV_SGE))
			return refuse(qp, wr, bad_wr);

		slot = pi++ & rq->mask;
		rq->wr_ids[slot] = wr->wr_id;
		rqe = &rq->ring[slot];
		/* Half of the word is reserved, but the doorbell carries it: it is written as 0. */
		hdr = rq->hdr | (uint16_t)pi;
		rqe->hdr = htole64(hdr);
		if (likely(wr->num_sge))
			erdma_set_sge(&rqe->sge, wr->sg_list);
		else
			memset(&rqe->sge, 0, sizeof(rqe->sge));

		atomic_store_explicit(&rq->pi, pi, memory_order_release);
		/*
		 * Once per entry and not once per list: the doorbell is the entry's first word, and
		 * nothing says that the adapter takes one for entries it was not told about.
		 */
		erdma_ring(rq->dbrec, rq->db, hdr);
	}

	if (shared)
		erdma_spin_unlock(&rq->lock);
	return 0;
}

static __erdma_cold int post_contended(struct erdma_qp *qp, struct ibv_recv_wr *wr,
				       struct ibv_recv_wr **bad_wr)
{
	erdma_lock_contended(&qp->rq.lock);
	return post_locked(qp, wr, bad_wr, true);
}

static __erdma_inline int post_recv(struct erdma_qp *qp, struct ibv_recv_wr *wr,
				    struct ibv_recv_wr **bad_wr, const bool shared)
{
	if (shared && unlikely(!erdma_spin_trylock(&qp->rq.lock)))
		return post_contended(qp, wr, bad_wr);
	return post_locked(qp, wr, bad_wr, shared);
}

static int post_recv_shared(struct erdma_qp *qp, struct ibv_recv_wr *wr,
			    struct ibv_recv_wr **bad_wr)
{
	return post_recv(qp, wr, bad_wr, true);
}

static int post_recv_single(struct erdma_qp *qp, struct ibv_recv_wr *wr,
			    struct ibv_recv_wr **bad_wr)
{
	return post_recv(qp, wr, bad_wr, false);
}

static int post_recv_forbidden(struct erdma_qp *qp, struct ibv_recv_wr *wr,
			       struct ibv_recv_wr **bad_wr)
{
	verbs_err(verbs_get_ctx(qp->vqp.qp.context),
		  "QP %u: no receives can be posted in state %d\n", qp->qpn, qp->state);
	*bad_wr = wr;
	return EINVAL;
}

void erdma_qp_set_post_recv(struct erdma_qp *qp, bool allowed)
{
	if (!allowed)
		qp->post_recv = post_recv_forbidden;
	else
		qp->post_recv = qp->rq.lock.shared ? post_recv_shared : post_recv_single;
}

int erdma_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct erdma_qp *qp = to_eqp(ibqp);

	return qp->post_recv(qp, wr, bad_wr);
}
