// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Queue pairs: create, modify by the rules of each personality, query, destroy. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>
#include "adapter/process/device.h"
#include "adapter/process/uaccess.h"
#include "adapter/process/uverbs_internal.h"

enum {
	WQEBB_SIZE = 1 << EA_WQEBB_SHIFT,
	RQE_SIZE = 1 << EA_RQE_SHIFT,
	BLOCKS_PER_WR = 4,
	RQ_ALIGN = 4096,
	QP_MASK_KNOWN = (1 << 21) - 1, /* up to IBV_QP_DEST_QPN */
};

struct host_qp *host_qp_find(struct host_dev *dev, uint32_t qpn)
{
	return dev->qps && qpn < dev->max_qp ? dev->qps[qpn] : NULL;
}

/* ------------------------------------------------------------------ create */

static uint32_t round_up_pow2(uint32_t value)
{
	uint32_t pow2 = 1;

	while (pow2 < value)
		pow2 *= 2;
	return pow2;
}

static int check_caps(const struct ib_uverbs_qp_cap *cap)
{
	if (!cap->max_send_wr || cap->max_send_wr > EA_MAX_SEND_WR || !cap->max_recv_wr ||
	    cap->max_recv_wr > EA_MAX_SEND_WR || cap->max_send_sge > EA_MAX_SEND_SGE ||
	    cap->max_recv_sge > EA_MAX_RECV_SGE || cap->max_inline_data > EA_MAX_INLINE)
		return -EINVAL;
	return 0;
}

/* Engine lock held. */
static void count_users(struct uv_qp *qp, int change)
{
	qp->pd->users += change;
	qp->host.scq->qp_count += change;
	if (qp->host.rcq != qp->host.scq)
		qp->host.rcq->qp_count += change;
}

/* Where programs exchange the numbers, a number must lead to this process. */
static uint32_t qpn_take(struct host_dev *dev)
{
	return dev->mode == HOST_ROCE ? cm_oob_qpn_take(dev) : uv_pool_take(&dev->uverbs->qpn);
}

static void qpn_give(struct host_dev *dev, uint32_t qpn)
{
	if (dev->mode == HOST_ROCE)
		cm_oob_qpn_give(dev, qpn);
	else
		uv_pool_give(&dev->uverbs->qpn, qpn);
}

/* Engine lock held. */
static int qp_install(struct host_ctx *ctx, struct uv_qp *qp, uint64_t buf, uint32_t rq_offset)
{
	struct host_dev *dev = ctx->dev;
	struct ea_qp_attr attr;
	int ret;

	qp->host.qpn = qpn_take(dev);
	if (!qp->host.qpn)
		return -ENOMEM;
	attr = (struct ea_qp_attr){
		.qpn = qp->host.qpn,
		.pdn = qp->pd->pdn,
		.scqn = qp->host.scq->cqn,
		.rcqn = qp->host.rcq->cqn,
		.sq_shift = __builtin_ctz(qp->sq_blocks),
		.rq_shift = __builtin_ctz(qp->rq_depth),
		.sq = {
			.form = EA_PAGES_FLAT,
			.page_shift = 12,
			.npages = ((uint64_t)qp->sq_blocks * WQEBB_SIZE + 4095) / 4096,
			.addr = { buf },
		},
		.rq = {
			.form = EA_PAGES_FLAT,
			.page_shift = 12,
			.npages = ((uint64_t)qp->rq_depth * RQE_SIZE + 4095) / 4096,
			.addr = { buf + rq_offset },
		},
	};
	ret = -ea_qp_create(dev->core, &attr);
	if (ret)
		goto err_number;
	ret = uv_handle_new(ctx, &qp->obj);
	if (ret)
		goto err_core;
	qp->host.handle = qp->obj.handle;
	qp->host.core = ea_qp_find(dev->core, qp->host.qpn);
	count_users(qp, 1);
	__atomic_store_n(&dev->qps[qp->host.qpn], &qp->host, __ATOMIC_RELEASE);
	ret = engine_qp_created(&qp->host);
	if (ret)
		goto err_users;
	dev->uverbs->sum.qp++;
	return 0;

err_users:
	__atomic_store_n(&dev->qps[qp->host.qpn], NULL, __ATOMIC_RELEASE);
	count_users(qp, -1);
	uv_handle_free(ctx, qp->obj.handle);
err_core:
	ea_qp_destroy(dev->core, qp->host.qpn);
err_number:
	qpn_give(dev, qp->host.qpn);
	return ret;
}

static int find_parts(struct host_ctx *ctx, const struct uv_qp_req *req, struct uv_qp *qp)
{
	struct uv_cq *cq;
	int ret = 0;

	qp->pd = uv_handle_find(ctx, req->pd, UV_PD, &ret);
	if (!qp->pd)
		return ret;
	cq = uv_handle_find(ctx, req->scq, UV_CQ, &ret);
	if (!cq)
		return ret;
	qp->host.scq = &cq->host;
	cq = uv_handle_find(ctx, req->rcq, UV_CQ, &ret);
	if (!cq)
		return ret;
	qp->host.rcq = &cq->host;
	return 0;
}

int uv_qp_create(struct host_ctx *ctx, const struct uv_qp_req *req, uint32_t *handle, uint32_t *qpn)
{
	struct erdma_uresp_create_qp uresp;
	struct erdma_ureq_create_qp ureq;
	struct uv_qp *qp;
	uint32_t rq_offset;
	int ret;

	if (req->type != IB_UVERBS_QPT_RC || req->has_srq || !req->has_scq || !req->has_rcq ||
	    !req->has_pd)
		return -EOPNOTSUPP;
	ret = check_caps(&req->cap);
	if (!ret)
		ret = uv_udata_in(&req->udata, &ureq, sizeof(ureq));
	if (ret)
		return ret;
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return -ENOMEM;
	qp->obj.type = UV_QP;
	qp->sq_blocks = round_up_pow2(req->cap.max_send_wr * BLOCKS_PER_WR);
	qp->rq_depth = round_up_pow2(req->cap.max_recv_wr);
	rq_offset = (qp->sq_blocks * WQEBB_SIZE + RQ_ALIGN - 1) & ~(RQ_ALIGN - 1);
	ret = -EINVAL;
	if ((ureq.qbuf_va & (WQEBB_SIZE - 1)) || (ureq.db_record_va & (sizeof(uint64_t) - 1)) ||
	    ureq.qbuf_len < rq_offset + qp->rq_depth * RQE_SIZE)
		goto err_free;
	ret = uaccess_check_range(ureq.qbuf_va, ureq.qbuf_len, false);
	/* records zeroed: cells are used again, and the provider may clear only later */
	if (!ret)
		ret = uaccess_clear(ureq.db_record_va, 2 * sizeof(uint64_t));
	if (ret)
		goto err_free;
	qp->send_sge = req->cap.max_send_sge;
	qp->recv_sge = req->cap.max_recv_sge;
	qp->sig_all = req->sig_all;
	qp->state = IBV_QPS_RESET;
	qp->host.dev = ctx->dev;
	qp->host.ctx = ctx;
	qp->host.user_handle = req->user_handle;
	qp->host.sq_record = (volatile uint64_t *)(uintptr_t)ureq.db_record_va;
	qp->host.rq_record = qp->host.sq_record + 1;
	if (req->async_fd >= 0) {
		qp->host.async = uv_async_get(ctx, req->async_fd, &ret);
		if (!qp->host.async)
			goto err_free;
	}
	engine_lock();
	if (!qp->host.async && ctx->async) {
		qp->host.async = ctx->async;
		host_evq_get(ctx->async);
	}
	ret = find_parts(ctx, req, qp);
	if (!ret)
		ret = qp_install(ctx, qp, ureq.qbuf_va, rq_offset);
	if (!ret) {
		/*
		 * under the lock: another thread that guesses the handle may destroy the QP as soon
		 * as it is free
		 */
		*handle = qp->obj.handle;
		*qpn = qp->host.qpn;
		uresp = (struct erdma_uresp_create_qp){
			.qp_id = qp->host.qpn,
			.num_sqe = qp->sq_blocks,
			.num_rqe = qp->rq_depth,
			.rq_offset = rq_offset,
		};
		ret = uv_udata_out(&req->udata, &uresp, sizeof(uresp));
		if (ret)
			uv_qp_end(ctx, qp);
		engine_unlock();
		return ret;
	}
	if (qp->host.async)
		host_evq_put(qp->host.async);
	engine_unlock();
err_free:
	free(qp);
	return ret;
}

/* ------------------------------------------------------------------ destroy */

static bool match_async(const void *event, void *arg)
{
	const struct ib_uverbs_async_event_desc *desc = event;
	const struct host_qp *qp = arg;

	return desc->element == qp->user_handle && desc->event_type >= IBV_EVENT_QP_FATAL &&
	       desc->event_type <= IBV_EVENT_SQ_DRAINED;
}

void uv_qp_end(struct host_ctx *ctx, struct uv_qp *qp)
{
	struct host_dev *dev = ctx->dev;

	cm_qp_destroyed(&qp->host);
	engine_qp_destroyed(&qp->host);
	__atomic_store_n(&dev->qps[qp->host.qpn], NULL, __ATOMIC_RELEASE);
	ea_qp_destroy(dev->core, qp->host.qpn);
	count_users(qp, -1);
	if (qp->host.async) {
		host_evq_remove(qp->host.async, match_async, &qp->host);
		host_evq_put(qp->host.async);
	}
	uv_handle_free(ctx, qp->obj.handle);
	qpn_give(dev, qp->host.qpn);
	dev->uverbs->sum.qp--;
	free(qp);
}

int uv_qp_destroy(struct host_ctx *ctx, uint64_t handle, uint32_t *events_reported)
{
	struct uv_qp *qp;
	int ret = 0;

	engine_lock();
	qp = uv_handle_find(ctx, handle, UV_QP, &ret);
	if (qp) {
		*events_reported = qp->host.async_events;
		if (qp->host.async)
			*events_reported -= host_evq_remove(qp->host.async, match_async, &qp->host);
		uv_qp_end(ctx, qp);
	}
	engine_unlock();
	return ret;
}

/* ------------------------------------------------------------------ modify */

static int leave(struct uv_qp *qp, enum ea_qp_state to)
{
	enum ea_qp_state now = ea_qp_state(qp->host.core);

	if (qp->host.conn || (now != EA_QP_IDLE && now != EA_QP_RTR))
		cm_qp_leaving(&qp->host, to);
	return -ea_qp_modify(qp->host.dev->core, qp->host.qpn, to);
}

/* iWARP: the program only ever leaves RTS; how it gets there is the connection manager's matter. */
static int modify_iwarp(struct uv_qp *qp, const struct ib_uverbs_modify_qp *req)
{
	static const enum ea_qp_state target[] = {
		[IBV_QPS_RESET] = EA_QP_IDLE,  [IBV_QPS_INIT] = EA_QP_IDLE,
		[IBV_QPS_RTR] = EA_QP_RTR,     [IBV_QPS_RTS] = EA_QP_RTS,
		[IBV_QPS_SQD] = EA_QP_CLOSING, [IBV_QPS_SQE] = EA_QP_TERMINATE,
		[IBV_QPS_ERR] = EA_QP_ERROR,
	};
	enum ea_qp_state to;
	int ret = 0;

	if (!(req->attr_mask & IBV_QP_STATE))
		return 0;
	to = target[req->qp_state];
	switch (ea_qp_state(qp->host.core)) {
	case EA_QP_IDLE:
	case EA_QP_RTR:
		if (to == EA_QP_RTS)
			return -EINVAL;
		if (to == EA_QP_ERROR)
			ret = leave(qp, to);
		break;
	case EA_QP_RTS:
		if (to == EA_QP_CLOSING || to == EA_QP_TERMINATE || to == EA_QP_ERROR)
			ret = leave(qp, to);
		break;
	case EA_QP_TERMINATE:
		if (to == EA_QP_ERROR)
			ret = leave(qp, to);
		break;
	case EA_QP_CLOSING:
		if (to == EA_QP_ERROR)
			ret = leave(qp, to);
		else if (to != EA_QP_CLOSING && to != EA_QP_IDLE)
			return -ECONNABORTED;
		break;
	case EA_QP_ERROR:
		break;
	}
	if (!ret)
		qp->state = req->qp_state;
	return ret;
}

/*
 * The transitions of an RC queue pair: which attributes must and may come with each (InfiniBand
 * 1.4, table 96 and following).
 */
static const struct {
	uint8_t from, to;
	uint32_t must, may;
} transitions[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0 },
	{ IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS },
	{ IBV_QPS_INIT, IBV_QPS_RTR,
	  IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	  IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX },
	{ IBV_QPS_RTR, IBV_QPS_RTS,
	  IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		  IBV_QP_MAX_QP_RD_ATOMIC,
	  IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
		  IBV_QP_PATH_MIG_STATE },
	{ IBV_QPS_RTS, IBV_QPS_RTS, 0,
	  IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE |
		  IBV_QP_MIN_RNR_TIMER },
};

static int check_transition(uint8_t from, uint8_t to, uint32_t mask)
{
	size_t i;

	mask &= ~IBV_QP_STATE;
	/* these two are always possible and take nothing */
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return mask ? -EINVAL : 0;
	if (to == IBV_QPS_SQD && (from == IBV_QPS_RTS || from == IBV_QPS_SQD))
		return -EOPNOTSUPP;
	for (i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++) {
		if (transitions[i].from != from || transitions[i].to != to)
			continue;
		if ((mask & transitions[i].must) != transitions[i].must ||
		    (mask & ~(transitions[i].must | transitions[i].may)))
			return -EINVAL;
		return 0;
	}
	return -EINVAL;
}

static int to_rtr(struct uv_qp *qp, const struct ib_uverbs_modify_qp *req, const uint8_t *sgid)
{
	struct host_oob_addr addr = {
		.sgid_index = req->dest.sgid_index,
		.max_rd_atomic = req->max_dest_rd_atomic,
		.dest_qpn = req->dest_qp_num,
	};

	/* Ethernet has no LIDs: the peer is named by its GID */
	if (!req->dest.is_global)
		return -EINVAL;
	if (req->path_mtu < IBV_MTU_256 || req->path_mtu > IBV_MTU_4096 ||
	    req->max_dest_rd_atomic > EA_MAX_IRD)
		return -EINVAL;
	if (!sgid)
		return -EINVAL;
	memcpy(addr.sgid, sgid, sizeof(addr.sgid));
	memcpy(addr.dgid, req->dest.dgid, sizeof(addr.dgid));
	return cm_oob_rtr(&qp->host, &addr);
}

static int to_rts(struct uv_qp *qp, const struct ib_uverbs_modify_qp *req)
{
	struct host_oob_rts rts = {
		.max_rd_atomic = req->max_rd_atomic,
		.timeout = req->timeout,
		.retry_cnt = req->retry_cnt,
	};

	return cm_oob_rts(&qp->host, &rts);
}

static int to_reset(struct uv_qp *qp)
{
	int ret;

	if (qp->host.conn || ea_qp_state(qp->host.core) != EA_QP_IDLE)
		cm_qp_leaving(&qp->host, EA_QP_ERROR);
	ret = -ea_qp_reset(qp->host.dev->core, qp->host.qpn);
	if (ret)
		return ret;
	*qp->host.sq_record = *qp->host.rq_record = 0;
	qp->host.sq_seen = qp->host.rq_seen = 0;
	return 0;
}

static void keep_attributes(struct uv_qp *qp, const struct ib_uverbs_modify_qp *req)
{
	struct uv_qp_attr *attr = &qp->attr;
	uint32_t mask = req->attr_mask;

	if (mask & IBV_QP_AV)
		attr->dest = req->dest;
	if (mask & IBV_QP_ALT_PATH)
		attr->alt_dest = req->alt_dest;
	if (mask & IBV_QP_QKEY)
		attr->qkey = req->qkey;
	if (mask & IBV_QP_RQ_PSN)
		attr->rq_psn = req->rq_psn & 0xffffff;
	if (mask & IBV_QP_SQ_PSN)
		attr->sq_psn = req->sq_psn & 0xffffff;
	if (mask & IBV_QP_DEST_QPN)
		attr->dest_qp_num = req->dest_qp_num;
	if (mask & IBV_QP_PKEY_INDEX)
		attr->pkey_index = req->pkey_index;
	if (mask & IBV_QP_PATH_MTU)
		attr->path_mtu = req->path_mtu;
	if (mask & IBV_QP_PATH_MIG_STATE)
		attr->path_mig_state = req->path_mig_state;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		attr->max_rd_atomic = req->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		attr->max_dest_rd_atomic = req->max_dest_rd_atomic;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		attr->min_rnr_timer = req->min_rnr_timer;
	if (mask & IBV_QP_PORT)
		attr->port_num = req->port_num;
	if (mask & IBV_QP_TIMEOUT)
		attr->timeout = req->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		attr->retry_cnt = req->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		attr->rnr_retry = req->rnr_retry;
}

static bool core_has_left(const struct uv_qp *qp)
{
	enum ea_qp_state now = ea_qp_state(qp->host.core);

	return now == EA_QP_CLOSING || now == EA_QP_TERMINATE || now == EA_QP_ERROR;
}

/* @sgid: what the address vector's index names, NULL when there is no such GID */
static int modify_roce(struct uv_qp *qp, const struct ib_uverbs_modify_qp *req, const uint8_t *sgid)
{
	uint8_t from = core_has_left(qp) ? IBV_QPS_ERR : qp->state;
	uint8_t to = req->attr_mask & IBV_QP_STATE ? req->qp_state : from;
	int ret;

	if ((req->attr_mask & IBV_QP_CUR_STATE) && req->cur_qp_state != from)
		return -EINVAL;
	ret = check_transition(from, to, req->attr_mask);
	if (ret)
		return ret;
	if (to == IBV_QPS_RESET && from != IBV_QPS_RESET)
		ret = to_reset(qp);
	else if (to == IBV_QPS_RTR)
		ret = to_rtr(qp, req, sgid);
	else if (to == IBV_QPS_RTS && from == IBV_QPS_RTR)
		ret = to_rts(qp, req);
	else if (to == IBV_QPS_ERR && !core_has_left(qp))
		ret = leave(qp, EA_QP_ERROR);
	if (ret)
		return ret;
	if (to == IBV_QPS_RESET)
		memset(&qp->attr, 0, sizeof(qp->attr));
	keep_attributes(qp, req);
	qp->state = to;
	return 0;
}

int uv_qp_modify(struct host_ctx *ctx, const struct ib_uverbs_modify_qp *req)
{
	uint8_t sgid[HOST_GID_LEN];
	bool has_gid = false;
	struct uv_qp *qp;
	int ret = 0;

	if (req->attr_mask & ~QP_MASK_KNOWN)
		return -EOPNOTSUPP;
	/* asks the kernel for addresses: not under the engine lock */
	if (ctx->dev->mode == HOST_ROCE && (req->attr_mask & IBV_QP_AV))
		has_gid = !host_dev_gid(ctx->dev, req->dest.sgid_index, sgid);
	engine_lock();
	qp = uv_handle_find(ctx, req->qp_handle, UV_QP, &ret);
	if (!qp)
		goto out;
	ret = -EINVAL;
	if (((req->attr_mask & IBV_QP_STATE) && req->qp_state > IBV_QPS_ERR) ||
	    ((req->attr_mask & IBV_QP_CUR_STATE) && req->cur_qp_state > IBV_QPS_ERR) ||
	    ((req->attr_mask & IBV_QP_PORT) && req->port_num != 1) ||
	    ((req->attr_mask & IBV_QP_AV) && req->dest.port_num != 1) ||
	    ((req->attr_mask & IBV_QP_ALT_PATH) &&
	     (req->alt_dest.port_num != 1 || req->alt_port_num != 1)))
		goto out;
	ret = ctx->dev->mode == HOST_IWARP ? modify_iwarp(qp, req) :
					     modify_roce(qp, req, has_gid ? sgid : NULL);
out:
	engine_unlock();
	return ret;
}

/* ------------------------------------------------------------------ query */

static uint8_t query_state(const struct uv_qp *qp)
{
	switch (ea_qp_state(qp->host.core)) {
	case EA_QP_CLOSING:
	case EA_QP_TERMINATE:
	case EA_QP_ERROR:
		return IBV_QPS_ERR;
	case EA_QP_RTS:
		return qp->host.dev->mode == HOST_IWARP ? IBV_QPS_RTS : qp->state;
	default:
		if (qp->host.dev->mode == HOST_IWARP)
			return qp->state == IBV_QPS_RTR ? IBV_QPS_RTR : IBV_QPS_INIT;
		return qp->state;
	}
}

int uv_qp_query(struct host_ctx *ctx, uint64_t handle, struct ib_uverbs_query_qp_resp *resp)
{
	struct device_link link;
	struct uv_qp *qp;
	int ret = 0;

	device_link(ctx->dev, &link);
	memset(resp, 0, sizeof(*resp));
	engine_lock();
	qp = uv_handle_find(ctx, handle, UV_QP, &ret);
	if (!qp)
		goto out;
	/* the driver tells blocks, not work requests */
	resp->max_send_wr = qp->sq_blocks;
	resp->max_recv_wr = qp->rq_depth;
	resp->max_send_sge = qp->send_sge;
	resp->max_recv_sge = qp->recv_sge;
	resp->max_inline_data = EA_MAX_INLINE;
	resp->qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				IBV_ACCESS_REMOTE_READ;
	resp->qp_state = resp->cur_qp_state = query_state(qp);
	resp->path_mtu = link.ib_mtu;
	resp->sq_sig_all = qp->sig_all;
	if (ctx->dev->mode == HOST_ROCE) {
		const struct uv_qp_attr *attr = &qp->attr;

		resp->dest = attr->dest;
		resp->alt_dest = attr->alt_dest;
		resp->qkey = attr->qkey;
		resp->rq_psn = attr->rq_psn;
		resp->sq_psn = attr->sq_psn;
		resp->dest_qp_num = attr->dest_qp_num;
		resp->pkey_index = attr->pkey_index;
		if (attr->path_mtu)
			resp->path_mtu = attr->path_mtu;
		resp->path_mig_state = attr->path_mig_state;
		resp->max_rd_atomic = attr->max_rd_atomic;
		resp->max_dest_rd_atomic = attr->max_dest_rd_atomic;
		resp->min_rnr_timer = attr->min_rnr_timer;
		resp->port_num = attr->port_num;
		resp->timeout = attr->timeout;
		resp->retry_cnt = attr->retry_cnt;
		resp->rnr_retry = attr->rnr_retry;
	}
out:
	engine_unlock();
	return ret;
}
