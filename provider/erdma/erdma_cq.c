// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Creating, arming and destroying completion queues, and the QPs they know. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ccan/minmax.h>

#include "erdma.h"
#include "erdma_abi.h"

#define ERDMA_CQ_INIT_MASK (IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)
#define ERDMA_CQ_FLAGS	   IBV_CREATE_CQ_ATTR_SINGLE_THREADED
#define ERDMA_CQ_MIN_QPS   4
#define ERDMA_CQ_MAX_CQE   (1 << 24) /* what the consumer count of a doorbell can tell */

struct erdma_qp erdma_no_qp = { .qpn = ERDMA_QPN_NONE };

/* A table for @num_qps QPs: at least twice as large, so that most stand where they belong. */
static struct erdma_qp **alloc_qps(uint32_t num_qps, uint32_t *mask)
{
	uint32_t size = roundup_pow_of_two(num_qps * 2);
	struct erdma_qp **qps;
	uint32_t i;

	qps = malloc(size * sizeof(*qps));
	if (!qps)
		return NULL;
	for (i = 0; i < size; i++)
		qps[i] = &erdma_no_qp;
	*mask = size - 1;
	return qps;
}

/*
 * The record before the first arm: its index and event count differ from those of the first real
 * value, so that the two cannot be taken for each other.
 */
static uint64_t idle_record(const struct erdma_cq *cq)
{
	return ERDMA_CQ_DB_IDX | ERDMA_CQ_DB_CMDSN | cq->cqn_bits;
}

static int kernel_create_cq(struct erdma_context *ctx, struct erdma_cq *cq, uint32_t depth,
			    const struct ibv_cq_init_attr_ex *attr)
{
	struct erdma_create_cq_cmd_resp resp = {};
	struct erdma_create_cq_cmd cmd = {};
	int ret;

	cmd.db_record_va = (uintptr_t)cq->dbrec;
	cmd.qbuf_va = (uintptr_t)cq->buf.addr;
	cmd.qbuf_len = depth * ERDMA_CQE_SIZE;

	ret = ibv_cmd_create_cq(&ctx->vctx.context, depth, attr->channel, attr->comp_vector,
				&cq->vcq.cq, &cmd.ibv_cmd, sizeof(cmd), &resp.ibv_resp,
				sizeof(resp));
	if (ret) {
		verbs_err(&ctx->vctx, "creating a CQ of %u entries, vector %u: error %d\n", depth,
			  attr->comp_vector, ret);
		return ret;
	}

	if (resp.num_cqe != depth || resp.cq_id >= ERDMA_CQN_LIMIT) {
		verbs_err(&ctx->vctx, "the kernel made CQ %u with %u entries, wanted are %u\n",
			  resp.cq_id, resp.num_cqe, depth);
		ibv_cmd_destroy_cq(&cq->vcq.cq);
		return EIO;
	}
	cq->cqn_bits = FIELD_PREP(ERDMA_CQ_DB_CQN, resp.cq_id);
	cq->db = ctx->cdb.addr + resp.cq_id % ERDMA_CDB_SLOTS * ERDMA_CDB_SLOT_SIZE;
	return 0;
}

static int check_cq_attr(struct erdma_context *ctx, const struct ibv_cq_init_attr_ex *attr)
{
	if (!check_comp_mask(attr->comp_mask, ERDMA_CQ_INIT_MASK)) {
		verbs_err(&ctx->vctx, "CQ: unknown comp_mask %#x\n", attr->comp_mask);
		return EOPNOTSUPP;
	}
	if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
	    !check_comp_mask(attr->flags, ERDMA_CQ_FLAGS)) {
		verbs_err(&ctx->vctx, "CQ: flags %#x, known are %#x\n", attr->flags,
			  ERDMA_CQ_FLAGS);
		return EOPNOTSUPP;
	}
	if (!check_comp_mask(attr->wc_flags, IBV_WC_STANDARD_FLAGS)) {
		verbs_err(&ctx->vctx, "CQ: wc_flags %#llx, known are %#x\n",
			  (unsigned long long)attr->wc_flags, IBV_WC_STANDARD_FLAGS);
		return EOPNOTSUPP;
	}
	if (!attr->cqe || attr->cqe > ERDMA_CQ_MAX_CQE) {
		verbs_err(&ctx->vctx, "CQ of %u entries, can be 1..%u\n", attr->cqe,
			  ERDMA_CQ_MAX_CQE);
		return EINVAL;
	}
	return 0;
}

static struct erdma_cq *create_cq(struct ibv_context *context,
				  const struct ibv_cq_init_attr_ex *attr, bool ex)
{
	struct erdma_context *ctx = to_ectx(context);
	struct erdma_pd *parent = NULL;
	bool single_threaded = false;
	struct erdma_cq *cq;
	uint32_t depth;
	int ret;

	ret = check_cq_attr(ctx, attr);
	if (ret)
		goto err;
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) {
		parent = to_epd(attr->parent_domain);
		if (!parent->parent_of) {
			verbs_err(&ctx->vctx, "CQ: parent_domain is an ordinary PD\n");
			ret = EINVAL;
			goto err;
		}
		single_threaded = erdma_pd_single_threaded(parent);
	}
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS)
		single_threaded |= !!(attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED);

	ret = posix_memalign((void **)&cq, ERDMA_CACHE_LINE, sizeof(*cq));
	if (ret)
		goto err;
	memset(cq, 0, sizeof(*cq));

	depth = roundup_pow_of_two(max(attr->cqe, (uint32_t)ERDMA_MIN_CQE));
	erdma_lock_init(&cq->lock, !single_threaded);
	erdma_lock_init(&cq->arm_lock, !single_threaded);

	cq->qps = alloc_qps(ERDMA_CQ_MIN_QPS, &cq->qps_mask);
	if (!cq->qps) {
		ret = ENOMEM;
		goto err_free;
	}

	if (erdma_buf_alloc(&cq->buf, (size_t)depth * ERDMA_CQE_SIZE,
			    parent ? &parent->allocator : NULL, ERDMA_RES_TYPE_CQ)) {
		ret = errno;
		goto err_qps;
	}
	cq->ring = cq->buf.addr;
	cq->end = cq->ring + depth;
	atomic_init(&cq->pos.cqe, cq->ring);

	cq->dbrec = erdma_dbrec_alloc(&ctx->dbrecs);
	if (!cq->dbrec) {
		ret = errno;
		goto err_buf;
	}

	ret = kernel_create_cq(ctx, cq, depth, attr);
	if (ret)
		goto err_dbrec;

	*cq->dbrec = htole64(idle_record(cq));
	cq->vcq.cq.cqe = depth;
	cq->parent = parent;
	if (parent)
		erdma_pd_get(parent);
	erdma_cq_set_poll_ops(cq, ex);
	return cq;

err_dbrec:
	erdma_dbrec_free(&ctx->dbrecs, cq->dbrec);
err_buf:
	erdma_buf_free(&cq->buf);
err_qps:
	free(cq->qps);
err_free:
	free(cq);
err:
	errno = ret;
	return NULL;
}

struct ibv_cq *erdma_create_cq(struct ibv_context *context, int cqe,
			       struct ibv_comp_channel *channel, int comp_vector)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe > 0 ? cqe : 0,
		.channel = channel,
		.comp_vector = comp_vector,
	};
	struct erdma_cq *cq;

	cq = create_cq(context, &attr, false);
	return cq ? &cq->vcq.cq : NULL;
}

struct ibv_cq_ex *erdma_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct erdma_cq *cq;

	cq = create_cq(context, attr, true);
	return cq ? &cq->vcq.cq_ex : NULL;
}

int erdma_destroy_cq(struct ibv_cq *ibcq)
{
	struct erdma_context *ctx = to_ectx(ibcq->context);
	struct erdma_cq *cq = to_ecq(ibcq);
	int ret;

	/* Waits until all events are acknowledged; who holds one may still poll and arm. */
	ret = ibv_cmd_destroy_cq(ibcq);
	if (ret)
		return ret;

	erdma_dbrec_free(&ctx->dbrecs, cq->dbrec);
	erdma_buf_free(&cq->buf);
	free(cq->qps);
	if (cq->parent)
		erdma_pd_put(cq->parent);
	free(cq);
	return 0;
}

/*
 * How many completions have been consumed. A thread that polls at the same time may make the result
 * too low, which at worst brings an event that has been seen to already.
 */
static uint64_t consumed(const struct erdma_cq *cq)
{
	uint64_t laps = atomic_load_explicit(&cq->pos.laps, memory_order_acquire);

	return laps * (cq->end - cq->ring) + (erdma_cq_next(&cq->pos) - cq->ring);
}

int erdma_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct erdma_cq *cq = to_ecq(ibcq);
	uint64_t val;

	val = cq->cqn_bits | ERDMA_CQ_DB_ARM;
	if (solicited_only)
		val |= ERDMA_CQ_DB_SOL;
	val |= FIELD_PREP(ERDMA_CQ_DB_CMDSN, (uint64_t)atomic_load(&cq->num_events));

	erdma_lock(&cq->arm_lock);
	val |= FIELD_PREP(ERDMA_CQ_DB_IDX, (uint64_t)cq->arm_count++);
	val |= FIELD_PREP(ERDMA_CQ_DB_CI, consumed(cq));
	erdma_ring(cq->dbrec, cq->db, val);
	erdma_unlock(&cq->arm_lock);
	return 0;
}

void erdma_cq_event(struct ibv_cq *ibcq)
{
	atomic_fetch_add(&to_ecq(ibcq)->num_events, 1);
}

/* Moves all QPs to another table, which is large enough. The caller holds the lock. */
static void move_qps(struct erdma_cq *cq, struct erdma_qp **qps, uint32_t mask)
{
	struct erdma_qp **old = cq->qps;
	uint32_t old_mask = cq->qps_mask;
	uint32_t i;

	cq->qps = qps;
	cq->qps_mask = mask;
	for (i = 0; i <= old_mask; i++) {
		if (old[i] != &erdma_no_qp)
			*erdma_cq_place(cq, old[i]->qpn) = old[i];
	}
}

int erdma_cq_reserve(struct erdma_cq *cq)
{
	struct erdma_qp **spare = NULL, **old;
	uint32_t spare_mask = 0, want;

	for (;;) {
		erdma_lock(&cq->lock);
		want = cq->num_qps + 1;
		if (want * 2 > cq->qps_mask + 1 && want * 2 <= spare_mask + 1) {
			old = cq->qps;
			move_qps(cq, spare, spare_mask);
			spare = old;
		}
		if (want * 2 <= cq->qps_mask + 1) {
			cq->num_qps = want;
			erdma_unlock(&cq->lock);
			free(spare);
			return 0;
		}
		erdma_unlock(&cq->lock);

		/* Not under the lock; another thread may have been faster meanwhile. */
		free(spare);
		spare = alloc_qps(want, &spare_mask);
		if (!spare)
			return ENOMEM;
	}
}

void erdma_cq_unreserve(struct erdma_cq *cq)
{
	erdma_lock(&cq->lock);
	cq->num_qps--;
	erdma_unlock(&cq->lock);
}

/* Makes pending completions of @qpn ones that polling passes over. The caller holds the lock. */
static void drop_completions(struct erdma_cq *cq, uint32_t qpn)
{
	struct erdma_cqe *start = erdma_cq_next(&cq->pos), *cqe = start;
	struct erdma_cq_pos pos = { .free_owner = cq->pos.free_owner };

	atomic_init(&pos.cqe, start);
	do {
		if (!erdma_cqe_valid(&pos, erdma_cqe_hdr(cqe)))
			break;
		udma_from_device_barrier();
		if (be32toh(cqe->qpn) == qpn)
			cqe->qpn = htobe32(ERDMA_QPN_DROPPED);
		erdma_cq_step(cq, &pos);
		cqe = erdma_cq_next(&pos);
	} while (cqe != start);
}

void erdma_cq_attach(struct erdma_cq *cq, struct erdma_qp *qp)
{
	struct erdma_qp **place;

	erdma_lock(&cq->lock);
	place = erdma_cq_place(cq, qp->qpn);
	if (*place != qp) {
		/*
		 * A QP that posted nothing has no completions. The place may still hold a QP of the
		 * same number, which the kernel has forgotten and whose owner is about to detach.
		 */
		drop_completions(cq, qp->qpn);
		*place = qp;
	}
	erdma_unlock(&cq->lock);
}

/* Frees a place; QPs that stand behind it for want of room move up. The caller holds the lock. */
static void free_place(struct erdma_cq *cq, struct erdma_qp **place)
{
	struct erdma_qp **qps = cq->qps;
	uint32_t mask = cq->qps_mask;
	uint32_t hole = place - qps;
	uint32_t i;

	for (i = (hole + 1) & mask; qps[i] != &erdma_no_qp; i = (i + 1) & mask) {
		/* It may move if it stands at least as far from home as from the hole. */
		if (((i - qps[i]->qpn) & mask) >= ((i - hole) & mask)) {
			qps[hole] = qps[i];
			hole = i;
		}
	}
	qps[hole] = &erdma_no_qp;
}

void erdma_cq_detach(struct erdma_cq *cq, struct erdma_qp *qp)
{
	struct erdma_qp **place;

	erdma_lock(&cq->lock);
	place = erdma_cq_place(cq, qp->qpn);
	if (*place == qp)
		free_place(cq, place);
	erdma_unlock(&cq->lock);
}

void erdma_cq_clean(struct erdma_cq *cq, struct erdma_qp *qp)
{
	erdma_lock(&cq->lock);
	drop_completions(cq, qp->qpn);
	erdma_unlock(&cq->lock);
}
