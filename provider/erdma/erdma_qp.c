// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Creating, changing, asking and destroying queue pairs. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ccan/minmax.h>

#include "erdma.h"
#include "erdma_abi.h"

#define ERDMA_QP_INIT_MASK \
	(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)

/*
 * libibverbs keeps a QP's comp_mask right behind struct ibv_qp_ex. In the last versions with
 * private ABI 34 that structure has one pointer more, wr_flush, than in the first ones, where the
 * mask therefore lies at the place of wr_flush. There is no flush on this adapter and hence no one
 * to call the pointer, so its place is given the value of the mask too.
 */
#define ERDMA_PABI_WITH_TWO_QP_EX_SIZES 34

static int check_cap(struct erdma_context *ctx, const struct ibv_qp_cap *cap)
{
	static const struct {
		const char *name;
		size_t offset;
		uint32_t limit;
	} limits[] = {
		{ "max_send_wr", offsetof(struct ibv_qp_cap, max_send_wr), ERDMA_MAX_SEND_WR },
		{ "max_recv_wr", offsetof(struct ibv_qp_cap, max_recv_wr), ERDMA_MAX_RECV_WR },
		{ "max_send_sge", offsetof(struct ibv_qp_cap, max_send_sge), ERDMA_MAX_SEND_SGE },
		{ "max_recv_sge", offsetof(struct ibv_qp_cap, max_recv_sge), ERDMA_MAX_RECV_SGE },
		{ "max_inline_data", offsetof(struct ibv_qp_cap, max_inline_data),
		  ERDMA_MAX_INLINE },
	};
	uint32_t val;
	unsigned int i;

	for (i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		memcpy(&val, (const char *)cap + limits[i].offset, sizeof(val));
		if (val > limits[i].limit) {
			verbs_err(&ctx->vctx, "QP: %s %u, can be at most %u\n", limits[i].name, val,
				  limits[i].limit);
			return EINVAL;
		}
	}
	return 0;
}

static int check_qp_attr(struct erdma_context *ctx, const struct ibv_qp_init_attr_ex *attr)
{
	if (!check_comp_mask(attr->comp_mask, ERDMA_QP_INIT_MASK)) {
		verbs_err(&ctx->vctx, "QP: unknown comp_mask %#x\n", attr->comp_mask);
		return EOPNOTSUPP;
	}
	if (attr->qp_type != IBV_QPT_RC) {
		verbs_err(
			&ctx->vctx,
			"QP type %d: only RC; the kernel has no address handles for user space, which UD would need\n",
			attr->qp_type);
		return EOPNOTSUPP;
	}
	if (attr->srq) {
		verbs_err(&ctx->vctx, "QP: the adapter has no shared receive queues\n");
		return EOPNOTSUPP;
	}
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags) {
		verbs_err(&ctx->vctx, "QP: unknown create_flags %#x\n", attr->create_flags);
		return EOPNOTSUPP;
	}
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd || !attr->send_cq ||
	    !attr->recv_cq) {
		verbs_err(&ctx->vctx, "QP: PD, send CQ and receive CQ must be given\n");
		return EINVAL;
	}
	return check_cap(ctx, &attr->cap);
}

static size_t rq_offset(uint32_t num_blocks)
{
	return align((size_t)num_blocks * ERDMA_BLOCK_SIZE, ERDMA_HW_PAGE_SIZE);
}

static size_t queues_size(uint32_t num_blocks, uint32_t num_rqe)
{
	return rq_offset(num_blocks) + (size_t)num_rqe * ERDMA_RQE_SIZE;
}

static int check_qp_resp(struct erdma_context *ctx, const struct erdma_uresp_create_qp *resp,
			 uint32_t num_blocks, uint32_t num_rqe)
{
	if (resp->qp_id < ERDMA_QPN_LIMIT && resp->num_sqe == num_blocks &&
	    resp->num_rqe == num_rqe && resp->rq_offset >= (size_t)num_blocks * ERDMA_BLOCK_SIZE &&
	    resp->rq_offset % ERDMA_RQE_SIZE == 0 &&
	    resp->rq_offset + (size_t)num_rqe * ERDMA_RQE_SIZE <= queues_size(num_blocks, num_rqe))
		return 0;

	verbs_err(
		&ctx->vctx,
		"the kernel made QP %u with %u blocks and %u receive entries at %u; wanted are %u and %u in %zu bytes\n",
		resp->qp_id, resp->num_sqe, resp->num_rqe, resp->rq_offset, num_blocks, num_rqe,
		queues_size(num_blocks, num_rqe));
	return EIO;
}

static void *sq_doorbell(const struct erdma_context *ctx, uint32_t qpn)
{
	if (ctx->sdb_type == ERDMA_SDB_ENTRY)
		return ctx->sdb.addr + ctx->sdb_offset * ERDMA_SDB_ENTRY_SIZE;
	return ctx->sdb.addr + qpn % ERDMA_SDB_SLOTS * ERDMA_SDB_SLOT_SIZE;
}

static void init_queues(struct erdma_context *ctx, struct erdma_qp *qp, uint32_t num_blocks,
			uint32_t num_rqe, uint32_t offset)
{
	struct erdma_sq *sq = &qp->sq;
	struct erdma_rq *rq = &qp->rq;

	sq->ring = qp->buf.addr;
	sq->mask = num_blocks - 1;
	sq->last_straight = num_blocks - ERDMA_MAX_WQE_BLOCKS;
	sq->hdr = FIELD_PREP(ERDMA_WQE_QPN, (uint64_t)qp->qpn);
	if (qp->sq_sig_all)
		sq->hdr |= ERDMA_WQE_CE;
	sq->dbrec = &qp->dbrecs[0];
	sq->db = sq_doorbell(ctx, qp->qpn);
	sq->db_bits = FIELD_PREP(ERDMA_SQ_DB_QPN, (uint64_t)qp->qpn);

	rq->ring = qp->buf.addr + offset;
	rq->mask = num_rqe - 1;
	rq->hdr = FIELD_PREP(ERDMA_RQ_DB_QPN, (uint64_t)qp->qpn);
	rq->dbrec = &qp->dbrecs[1];
	rq->db = ctx->rdb.addr + qp->qpn % ERDMA_RDB_SLOTS * ERDMA_RDB_SLOT_SIZE;
}

static int kernel_create_qp(struct erdma_context *ctx, struct erdma_qp *qp,
			    struct ibv_qp_init_attr_ex *attr, uint32_t num_blocks, uint32_t num_rqe)
{
	/* The rest of the attributes is the provider's business. */
	struct ibv_qp_init_attr_ex kattr = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = !!attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = attr->pd,
	};
	struct erdma_create_qp_cmd_resp resp = {};
	struct erdma_create_qp_cmd cmd = {};
	int ret;

	/* The kernel wants both queues, an application may want one only. */
	kattr.cap.max_send_wr = max(attr->cap.max_send_wr, 1u);
	kattr.cap.max_recv_wr = max(attr->cap.max_recv_wr, 1u);

	cmd.db_record_va = (uintptr_t)qp->dbrecs;
	cmd.qbuf_va = (uintptr_t)qp->buf.addr;
	cmd.qbuf_len = queues_size(num_blocks, num_rqe);

	ret = ibv_cmd_create_qp_ex(&ctx->vctx.context, &qp->vqp, &kattr, &cmd.ibv_cmd, sizeof(cmd),
				   &resp.ibv_resp, sizeof(resp));
	if (ret) {
		verbs_err(&ctx->vctx, "creating a QP of %u send and %u receive WRs: error %d\n",
			  kattr.cap.max_send_wr, kattr.cap.max_recv_wr, ret);
		return ret;
	}

	ret = check_qp_resp(ctx, &resp.drv_payload, num_blocks, num_rqe);
	if (ret) {
		ibv_cmd_destroy_qp(&qp->vqp.qp);
		return ret;
	}

	qp->qpn = resp.qp_id;
	init_queues(ctx, qp, num_blocks, num_rqe, resp.rq_offset);
	return 0;
}

static int reserve_cqs(struct erdma_qp *qp, struct erdma_cq *send_cq, struct erdma_cq *recv_cq)
{
	int ret;

	ret = erdma_cq_reserve(send_cq);
	if (ret)
		return ret;
	if (recv_cq == send_cq)
		return 0;

	ret = erdma_cq_reserve(recv_cq);
	if (ret)
		erdma_cq_unreserve(send_cq);
	return ret;
}

static void unreserve_cqs(struct erdma_cq *send_cq, struct erdma_cq *recv_cq)
{
	erdma_cq_unreserve(send_cq);
	if (recv_cq != send_cq)
		erdma_cq_unreserve(recv_cq);
}

/*
 * What is remembered of the work requests lies behind the queues of the device, in the same pages: all of
 * them take memory only as far as they are used.
 */
static int alloc_queues(struct erdma_context *ctx, struct erdma_qp *qp, struct erdma_pd *pd,
			uint32_t num_blocks, uint32_t num_rqe)
{
	size_t queues = queues_size(num_blocks, num_rqe);
	size_t swrs = num_blocks * sizeof(*qp->sq.wrs);
	size_t wr_ids = num_rqe * sizeof(*qp->rq.wr_ids);
	int ret;

	if (erdma_buf_alloc(&qp->buf, queues + swrs + wr_ids, &pd->allocator, ERDMA_RES_TYPE_QP))
		return errno;
	qp->sq.wrs = qp->buf.addr + queues;
	qp->rq.wr_ids = qp->buf.addr + queues + swrs;

	qp->dbrecs = erdma_dbrec_alloc(&ctx->dbrecs);
	if (!qp->dbrecs) {
		ret = errno;
		goto err_buf;
	}

	qp->scratch = calloc(1, ERDMA_MAX_WQE_SIZE);
	if (!qp->scratch) {
		ret = ENOMEM;
		goto err_dbrec;
	}
	return 0;

err_dbrec:
	erdma_dbrec_free(&ctx->dbrecs, qp->dbrecs);
err_buf:
	erdma_buf_free(&qp->buf);
	return ret;
}

static void free_queues(struct erdma_context *ctx, struct erdma_qp *qp)
{
	free(qp->scratch);
	erdma_dbrec_free(&ctx->dbrecs, qp->dbrecs);
	erdma_buf_free(&qp->buf);
}

/* In iWARP mode the kernel connects the QP and tells nobody, so only RESET is known for sure. */
static void apply_state(struct erdma_context *ctx, struct erdma_qp *qp, enum ibv_qp_state state)
{
	bool send = state != IBV_QPS_RESET;
	bool recv = state != IBV_QPS_RESET;

	if (ctx->roce && (state == IBV_QPS_INIT || state == IBV_QPS_RTR))
		send = false;

	qp->state = state;
	erdma_qp_set_post_send(qp, send);
	erdma_qp_set_post_recv(qp, recv);
}

static int init_ex(struct erdma_context *ctx, struct erdma_qp *qp,
		   const struct ibv_qp_init_attr_ex *attr)
{
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))
		return 0;
	return erdma_qp_set_wr_ops(ctx, qp, attr->send_ops_flags);
}

/* Last, because creating the kernel's object clears it. */
static void mark_ex(struct erdma_qp *qp, const struct ibv_qp_init_attr_ex *attr)
{
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))
		return;

#if IBVERBS_PABI_VERSION == ERDMA_PABI_WITH_TWO_QP_EX_SIZES
	{
		uintptr_t mask = VERBS_QP_EX;

		static_assert(offsetof(struct ibv_qp_ex, wr_flush) + sizeof(mask) ==
				      sizeof(struct ibv_qp_ex),
			      "wr_flush is not the last member");
		memcpy(&qp->vqp.qp_ex.wr_flush, &mask, sizeof(mask));
	}
#endif
	qp->vqp.comp_mask |= VERBS_QP_EX;
}

static struct erdma_qp *create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct erdma_context *ctx = to_ectx(context);
	struct erdma_cq *send_cq, *recv_cq;
	uint32_t num_blocks, num_rqe;
	struct erdma_qp *qp;
	bool shared;
	int ret;

	ret = check_qp_attr(ctx, attr);
	if (ret)
		goto err;
	send_cq = to_ecq(attr->send_cq);
	recv_cq = to_ecq(attr->recv_cq);

	ret = posix_memalign((void **)&qp, ERDMA_CACHE_LINE, sizeof(*qp));
	if (ret)
		goto err;
	memset(qp, 0, sizeof(*qp));

	shared = !erdma_pd_single_threaded(to_epd(attr->pd));
	erdma_lock_init(&qp->sq.lock, shared);
	erdma_lock_init(&qp->rq.lock, shared);
	qp->sq_sig_all = !!attr->sq_sig_all;
	qp->atomics = ctx->atomics;

	ret = init_ex(ctx, qp, attr);
	if (ret)
		goto err_free;

	num_blocks = roundup_pow_of_two(max(attr->cap.max_send_wr, 1u) * ERDMA_MAX_WQE_BLOCKS);
	num_rqe = roundup_pow_of_two(max(attr->cap.max_recv_wr, 1u));
	ret = alloc_queues(ctx, qp, to_epd(attr->pd), num_blocks, num_rqe);
	if (ret)
		goto err_free;

	ret = reserve_cqs(qp, send_cq, recv_cq);
	if (ret)
		goto err_queues;

	ret = kernel_create_qp(ctx, qp, attr, num_blocks, num_rqe);
	if (ret)
		goto err_unreserve;

	mark_ex(qp, attr);
	qp->cap = (struct ibv_qp_cap){
		.max_send_wr = num_blocks / ERDMA_MAX_WQE_BLOCKS,
		.max_recv_wr = num_rqe,
		.max_send_sge = ERDMA_MAX_SEND_SGE,
		.max_recv_sge = ERDMA_MAX_RECV_SGE,
		.max_inline_data = ERDMA_MAX_INLINE,
	};
	attr->cap = qp->cap;
	apply_state(ctx, qp, IBV_QPS_RESET);

	erdma_cq_attach(send_cq, qp);
	erdma_cq_attach(recv_cq, qp);
	erdma_pd_get(to_epd(attr->pd));
	return qp;

err_unreserve:
	unreserve_cqs(send_cq, recv_cq);
err_queues:
	free_queues(ctx, qp);
err_free:
	free(qp);
err:
	errno = ret;
	return NULL;
}

struct ibv_qp *erdma_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex attr_ex = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct erdma_qp *qp;

	qp = create_qp(pd->context, &attr_ex);
	if (!qp)
		return NULL;
	attr->cap = attr_ex.cap;
	return &qp->vqp.qp;
}

struct ibv_qp *erdma_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct erdma_qp *qp;

	qp = create_qp(context, attr);
	return qp ? &qp->vqp.qp : NULL;
}

int erdma_destroy_qp(struct ibv_qp *ibqp)
{
	struct erdma_context *ctx = to_ectx(ibqp->context);
	struct erdma_cq *send_cq = to_ecq(ibqp->send_cq);
	struct erdma_cq *recv_cq = to_ecq(ibqp->recv_cq);
	struct erdma_pd *pd = to_epd(ibqp->pd);
	struct erdma_qp *qp = to_eqp(ibqp);
	int ret;

	/* Until the kernel has let go of it the QP is as good as before. */
	ret = ibv_cmd_destroy_qp(ibqp);
	if (ret)
		return ret;

	/* After this no poller holds the QP nor can find it. */
	erdma_cq_detach(send_cq, qp);
	erdma_cq_detach(recv_cq, qp);
	unreserve_cqs(send_cq, recv_cq);
	free_queues(ctx, qp);
	free(qp);
	erdma_pd_put(pd);
	return 0;
}

/* The adapter starts again at index 0 and has forgotten what was posted. */
static void reset_queues(struct erdma_qp *qp)
{
	erdma_cq_clean(to_ecq(qp->vqp.qp.send_cq), qp);
	if (qp->vqp.qp.recv_cq != qp->vqp.qp.send_cq)
		erdma_cq_clean(to_ecq(qp->vqp.qp.recv_cq), qp);

	erdma_lock(&qp->sq.lock);
	atomic_store(&qp->sq.pi, 0);
	atomic_store(&qp->sq.ci, 0);
	*qp->sq.dbrec = 0;
	erdma_unlock(&qp->sq.lock);

	erdma_lock(&qp->rq.lock);
	atomic_store(&qp->rq.pi, 0);
	atomic_store(&qp->rq.ci, 0);
	*qp->rq.dbrec = 0;
	erdma_unlock(&qp->rq.lock);
}

int erdma_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int attr_mask)
{
	struct erdma_context *ctx = to_ectx(ibqp->context);
	struct erdma_qp *qp = to_eqp(ibqp);
	struct ibv_modify_qp cmd = {};
	int ret;

	ret = ibv_cmd_modify_qp(ibqp, attr, attr_mask, &cmd, sizeof(cmd));
	if (ret) {
		verbs_info(&ctx->vctx, "QP %u: modify, mask %#x, state %d: error %d\n", qp->qpn,
			   attr_mask, attr_mask & IBV_QP_STATE ? (int)attr->qp_state : -1, ret);
		return ret;
	}

	if (attr_mask & IBV_QP_MAX_QP_RD_ATOMIC)
		qp->max_rd_atomic = attr->max_rd_atomic;
	if (attr_mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		qp->max_dest_rd_atomic = attr->max_dest_rd_atomic;

	if (attr_mask & IBV_QP_STATE) {
		/* In iWARP mode a QP keeps its indices for life. */
		if (ctx->roce && attr->qp_state == IBV_QPS_RESET)
			reset_queues(qp);
		apply_state(ctx, qp, attr->qp_state);
	}
	return 0;
}

int erdma_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int attr_mask,
		   struct ibv_qp_init_attr *init_attr)
{
	struct erdma_context *ctx = to_ectx(ibqp->context);
	struct erdma_qp *qp = to_eqp(ibqp);
	struct ibv_query_qp cmd;
	uint8_t initiator;
	int ret;

	ret = ibv_cmd_query_qp(ibqp, attr, attr_mask, init_attr, &cmd, sizeof(cmd));
	if (ret)
		return ret;

	/* The kernel counts send WRs in blocks, and gives what was asked for elsewhere. */
	attr->cap = qp->cap;
	init_attr->cap = qp->cap;
	init_attr->sq_sig_all = qp->sq_sig_all;

	if (ctx->roce) {
		/* It does not keep the read depths. */
		attr->max_rd_atomic = qp->max_rd_atomic;
		attr->max_dest_rd_atomic = qp->max_dest_rd_atomic;
	} else {
		/* It has one name for RESET and INIT, and the read depths exchanged. */
		initiator = attr->max_dest_rd_atomic;
		attr->max_dest_rd_atomic = attr->max_rd_atomic;
		attr->max_rd_atomic = initiator;
		if (attr->qp_state == IBV_QPS_INIT && qp->state == IBV_QPS_RESET)
			attr->qp_state = IBV_QPS_RESET;
	}
	return 0;
}
