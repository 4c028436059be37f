// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Commands of a connection's life. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include "adapter/process/cm/cm.h"
#include "adapter/process/cm/oob.h"
#include "adapter/process/gid.h"
#include "adapter/process/uaccess.h"

enum {
	BACKLOG_MAX = 1024,
	REASON_DEFAULT = 28, /* "consumer defined" */
	REASON_VENDOR = 35,
	ACK_TIMEOUT = 18,
	RETRY_COUNT = 7,
	CONNECT_MIN = offsetof(struct rdma_ucm_connect, ece),
	ACCEPT_MIN = offsetof(struct rdma_ucm_accept, ece),
};

int ucma_listen(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	const struct rdma_ucm_listen *cmd = in;
	int backlog = (int)cmd->backlog;
	struct cm_id *id;
	int ret;

	(void)in_len, (void)out_len;
	if (backlog <= 0 || backlog > BACKLOG_MAX)
		backlog = BACKLOG_MAX;
	engine_lock();
	ret = ucma_id(file, cmd->id, &id);
	if (!ret && id->state == CM_IDLE) {
		memset(&id->src, 0, sizeof(id->src));
		id->src.sa.sa_family = AF_INET;
		ret = cm_bind(id);
		if (!ret)
			id->state = CM_BOUND;
	}
	if (!ret)
		ret = id->state == CM_BOUND && id->fd >= 0 ? cm_listen(id, backlog) : -EINVAL;
	engine_unlock();
	return ret;
}

int ucma_connect(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	const struct rdma_ucm_connect *cmd = in;
	struct cm_id *id;
	int ret;

	(void)out_len;
	if (in_len < CONNECT_MIN || !cmd->conn_param.valid)
		return -EINVAL;
	engine_lock();
	ret = ucma_id_dev(file, cmd->id, &id);
	if (!ret)
		ret = id->state == CM_ROUTE_DONE ? cm_setup_connect(id, &cmd->conn_param) : -EINVAL;
	engine_unlock();
	return ret;
}

static int accept_id(struct cm_id *id, const struct rdma_ucm_accept *cmd)
{
	int ret;

	if (!cmd->conn_param.valid) {
		/* RoCE: the library has seen the answer to its CONNECT */
		if (id->dev->mode == HOST_ROCE &&
		    (id->state == CM_CONNECTED || id->state == CM_DISCONNECT))
			return 0;
		return -EINVAL;
	}
	if (id->state != CM_REQUESTED)
		return -EINVAL;
	id->uid = cmd->uid;
	ret = cm_setup_accept(id, &cmd->conn_param);
	if (ret)
		id->uid = 0;
	return ret;
}

int ucma_accept(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	const struct rdma_ucm_accept *cmd = in;
	struct cm_id *id;
	int ret;

	(void)out_len;
	if (in_len < ACCEPT_MIN)
		return -EINVAL;
	engine_lock();
	ret = ucma_id_dev(file, cmd->id, &id);
	if (!ret)
		ret = accept_id(id, cmd);
	engine_unlock();
	return ret;
}

int ucma_reject(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	const struct rdma_ucm_reject *cmd = in;
	struct cm_id *id;
	int ret;

	(void)in_len, (void)out_len;
	if (cmd->reason && cmd->reason != REASON_DEFAULT && cmd->reason != REASON_VENDOR)
		return -EINVAL;
	engine_lock();
	ret = ucma_id_dev(file, cmd->id, &id);
	if (!ret)
		ret = id->state == CM_REQUESTED ?
			      cm_setup_reject(id, cmd->private_data, cmd->private_data_len) :
			      -EINVAL;
	engine_unlock();
	return ret;
}

/*
 * librdmacm moves the QP to SQD first, and that has ended the connection; a program that manages
 * its QP itself ends it here.
 */
int ucma_disconnect(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	const struct rdma_ucm_disconnect *cmd = in;
	struct cm_conn *conn;
	struct host_qp *qp;
	struct cm_id *id;
	int ret;

	(void)in_len, (void)out_len;
	engine_lock();
	ret = ucma_id_dev(file, cmd->id, &id);
	if (!ret && id->state != CM_CONNECTED && id->state != CM_DISCONNECT &&
	    id->state != CM_CONNECTING && id->state != CM_REQUESTED)
		ret = -EINVAL;
	if (!ret && id->state == CM_CONNECTED && id->conn && id->conn->ec.qp) {
		conn = id->conn;
		qp = conn->ec.qp;
		cm_qp_leaving(qp, EA_QP_CLOSING);
		ea_qp_modify(qp->dev->core, qp->qpn, EA_QP_CLOSING);
		engine_conn_ready(&conn->ec);
	}
	engine_unlock();
	return ret;
}

static int attr_iwarp(struct ib_uverbs_qp_attr *attr, uint32_t state, bool has_conn)
{
	attr->qp_state = state;
	attr->port_num = 1;
	if (has_conn && state == IBV_QPS_RTS) {
		attr->qp_attr_mask = IBV_QP_PORT;
		return 0;
	}
	if (has_conn && state != IBV_QPS_INIT && state != IBV_QPS_RTR)
		return -EINVAL;
	attr->qp_attr_mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT;
	if (has_conn)
		attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	return 0;
}

static uint8_t gid_index_of(struct host_dev *dev, const union cm_addr *addr)
{
	uint8_t gid[HOST_GID_LEN];
	int index;

	gid_of_sockaddr(gid, &addr->sa);
	index = host_dev_gid_find(dev, gid);
	return index < 0 ? 0 : (uint8_t)index;
}

/*
 * RoCE: the library makes all the steps to RTS, as with InfiniBand.  The carrier is a TCP
 * connection here too, which CONNECT and ACCEPT set up; a destination of CM_OOB_MANAGED says so to
 * cm_oob_rtr().
 */
static int attr_roce(struct ib_uverbs_qp_attr *attr, uint32_t state, const struct cm_id *id)
{
	attr->qp_state = state;
	attr->port_num = 1;
	switch (state) {
	case IBV_QPS_INIT:
		attr->qp_attr_mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX |
				     IBV_QP_PORT;
		attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
					IBV_ACCESS_REMOTE_ATOMIC;
		return 0;
	case IBV_QPS_RTR:
		attr->qp_attr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER;
		attr->path_mtu = IBV_MTU_1024;
		attr->dest_qp_num = CM_OOB_MANAGED;
		attr->max_dest_rd_atomic = EA_MAX_IRD;
		attr->ah_attr.is_global = 1;
		attr->ah_attr.port_num = 1;
		attr->ah_attr.grh.hop_limit = UINT8_MAX;
		attr->ah_attr.grh.sgid_index = gid_index_of(id->dev, &id->src);
		gid_of_sockaddr(attr->ah_attr.grh.dgid, &id->dst.sa);
		return 0;
	case IBV_QPS_RTS:
		attr->qp_attr_mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
		attr->max_rd_atomic = EA_MAX_ORD;
		attr->timeout = ACK_TIMEOUT;
		attr->retry_cnt = RETRY_COUNT;
		attr->rnr_retry = RETRY_COUNT;
		return 0;
	default:
		return -EINVAL;
	}
}

int ucma_init_qp_attr(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	const struct rdma_ucm_init_qp_attr *cmd = in;
	struct ib_uverbs_qp_attr resp = {};
	struct cm_id *id;
	int ret;

	(void)in_len;
	if (out_len < sizeof(resp))
		return -ENOSPC;
	if (cmd->qp_state > IBV_QPS_ERR)
		return -EINVAL;
	engine_lock();
	ret = ucma_id_dev(file, cmd->id, &id);
	if (!ret)
		ret = id->dev->mode == HOST_ROCE ?
			      attr_roce(&resp, cmd->qp_state, id) :
			      attr_iwarp(&resp, cmd->qp_state, id->state >= CM_CONNECTING);
	engine_unlock();
	if (ret)
		return ret;
	return uaccess_write(cmd->response, &resp, sizeof(resp));
}

int ucma_notify(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	const struct rdma_ucm_notify *cmd = in;
	struct cm_id *id;
	int ret;

	(void)in_len, (void)out_len;
	engine_lock();
	ret = ucma_id_dev(file, cmd->id, &id);
	if (!ret && id->state < CM_CONNECTING && id->state != CM_LISTENING)
		ret = -EINVAL;
	engine_unlock();
	return ret;
}

/* The program writes an event to its own id (rdma-core 65). */
int ucma_write_event(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	struct write_event {
		uint32_t id, reserved, event, status;
		uint8_t param[];
	};
	const struct write_event *cmd = in;
	struct cm_event *event;
	struct cm_id *id;
	size_t len = in_len > sizeof(*cmd) ? in_len - sizeof(*cmd) : 0;
	int ret;

	(void)out_len;
	if (in_len < sizeof(*cmd) || cmd->reserved ||
	    (cmd->event != CM_USER && cmd->event != CM_INTERNAL))
		return -EINVAL;
	event = calloc(1, sizeof(*event));
	if (!event)
		return -ENOMEM;
	engine_lock();
	ret = ucma_id(file, cmd->id, &id);
	if (ret) {
		free(event);
	} else {
		event->id = id;
		event->resp.uid = id->uid;
		event->resp.id = id->number;
		event->resp.event = cmd->event;
		event->resp.status = cmd->status;
		memcpy(&event->resp.param, cmd->param,
		       len < sizeof(event->resp.param) ? len : sizeof(event->resp.param));
		ucma_event_push(file, event);
	}
	engine_unlock();
	return ret;
}
