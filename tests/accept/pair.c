// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Queue pairs and how they get connected: by rdma_cm, or by ibv_modify_qp for RoCE.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <unistd.h>
#include "tests/accept/harness.h"

enum {
	DEFAULT_WR = 16,
	DEFAULT_DEPTH = 16,
	SPARE_CQE = 4,
};

/* ------------------------------------------------------------------ ends */

static void attr_defaults(struct ts_attr *attr, const struct ts_attr *from)
{
	if (from)
		*attr = *from;
	else
		memset(attr, 0, sizeof(*attr));
	if (!attr->cap.max_send_wr)
		attr->cap.max_send_wr = DEFAULT_WR;
	if (!attr->cap.max_recv_wr)
		attr->cap.max_recv_wr = DEFAULT_WR;
	if (!attr->cap.max_send_sge)
		attr->cap.max_send_sge = 1;
	if (!attr->cap.max_recv_sge)
		attr->cap.max_recv_sge = 1;
	if (!attr->ird)
		attr->ird = DEFAULT_DEPTH;
	if (!attr->ord)
		attr->ord = DEFAULT_DEPTH;
	if (!attr->cqe)
		attr->cqe = (int)(attr->cap.max_send_wr + attr->cap.max_recv_wr) + SPARE_CQE;
}

static const char *end_cqs(struct ts_end *end, const struct ts_attr *from)
{
	struct ts_dev *dev = ts_dev();

	memset(end, 0, sizeof(*end));
	attr_defaults(&end->attr, from);
	if (end->attr.channel) {
		end->channel = ibv_create_comp_channel(dev->ctx);
		if (!end->channel)
			return "ibv_create_comp_channel";
	}
	end->scq = end->attr.scq;
	if (!end->scq) {
		end->scq = ibv_create_cq(dev->ctx, end->attr.cqe, end, end->channel, 0);
		if (!end->scq)
			return "ibv_create_cq";
		end->own_scq = true;
	}
	end->rcq = end->attr.one_cq ? end->scq : end->attr.rcq;
	if (!end->rcq) {
		end->rcq = ibv_create_cq(dev->ctx, end->attr.cqe, end, end->channel, 0);
		if (!end->rcq)
			return "ibv_create_cq";
		end->own_rcq = true;
	}
	return NULL;
}

static const char *end_qp(struct ts_end *end)
{
	struct ts_dev *dev = ts_dev();
	struct ibv_qp_init_attr_ex ex = {
		.send_cq = end->scq,
		.recv_cq = end->rcq,
		.cap = end->attr.cap,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = end->attr.sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = dev->pd,
	};
	struct ibv_qp_init_attr plain = {
		.send_cq = end->scq,
		.recv_cq = end->rcq,
		.cap = end->attr.cap,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = end->attr.sq_sig_all,
	};

	if (end->attr.qp_ex) {
		ex.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		ex.send_ops_flags = ts_all_send_ops();
		if (end->id) {
			if (rdma_create_qp_ex(end->id, &ex))
				return "rdma_create_qp_ex";
			end->qp = end->id->qp;
		} else {
			end->qp = ibv_create_qp_ex(dev->ctx, &ex);
		}
		end->attr.cap = ex.cap;
	} else if (end->id) {
		if (rdma_create_qp(end->id, dev->pd, &plain))
			return "rdma_create_qp";
		end->qp = end->id->qp;
		end->attr.cap = plain.cap;
	} else {
		end->qp = ibv_create_qp(dev->pd, &plain);
		end->attr.cap = plain.cap;
	}
	return end->qp ? NULL : "ibv_create_qp";
}

static const char *end_try_close(struct ts_end *end)
{
	if (end->qp) {
		int rc = ibv_destroy_qp(end->qp);

		if (rc) {
			errno = rc;
			return "ibv_destroy_qp";
		}
		if (end->id)
			end->id->qp = NULL;
		end->qp = NULL;
	}
	if (end->id && rdma_destroy_id(end->id))
		return "rdma_destroy_id";
	if (end->events)
		rdma_destroy_event_channel(end->events);
	if (end->own_rcq && (errno = ibv_destroy_cq(end->rcq)))
		return "ibv_destroy_cq";
	if (end->own_scq && (errno = ibv_destroy_cq(end->scq)))
		return "ibv_destroy_cq";
	if (end->channel && (errno = ibv_destroy_comp_channel(end->channel)))
		return "ibv_destroy_comp_channel";
	memset(end, 0, sizeof(*end));
	return NULL;
}

static void must(const char *what)
{
	if (what)
		TS_FAIL("%s: %s", what, strerror(errno));
}

void ts_end_open(struct ts_end *end, const struct ts_attr *attr)
{
	must(end_cqs(end, attr));
	must(end_qp(end));
}

void ts_end_close(struct ts_end *end)
{
	must(end_try_close(end));
}

/* ------------------------------------------------------------------ rdma_cm */

struct rdma_cm_event *ts_event_try(struct rdma_event_channel *events, enum rdma_cm_event_type want,
				   int timeout_ms)
{
	struct pollfd fd = { .fd = events->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	int rc;

	do
		rc = poll(&fd, 1, timeout_ms);
	while (rc < 0 && errno == EINTR);
	if (rc == 0)
		errno = ETIMEDOUT;
	if (rc <= 0)
		return NULL;
	if (rdma_get_cm_event(events, &event))
		return NULL;
	if (event->event != want) {
		fprintf(stderr, "event %s with status %d came instead of %s\n",
			rdma_event_str(event->event), event->status, rdma_event_str(want));
		rdma_ack_cm_event(event);
		errno = EPROTO;
		return NULL;
	}
	return event;
}

void ts_event(struct rdma_event_channel *events, enum rdma_cm_event_type want)
{
	struct rdma_cm_event *event = ts_event_try(events, want, TS_WAIT_MS);

	if (!event)
		TS_FAIL("waiting for %s: %s", rdma_event_str(want), strerror(errno));
	TS_CHECK(!rdma_ack_cm_event(event));
}

void ts_no_event(struct rdma_event_channel *events)
{
	struct pollfd fd = { .fd = events->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	if (poll(&fd, 1, TS_QUIET_MS) <= 0)
		return;
	TS_CHECK(!rdma_get_cm_event(events, &event));
	TS_FAIL("unexpected event %s, status %d", rdma_event_str(event->event), event->status);
}

const char *ts_addr(void)
{
	const char *text = getenv("ER_ADDR");

	return text ? text : "127.0.0.1";
}

static const char *resolve(int port, struct rdma_addrinfo **info, bool passive)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP,
				       .ai_flags = passive ? RAI_PASSIVE | RAI_NUMERICHOST :
							     RAI_NUMERICHOST };
	char service[16];

	snprintf(service, sizeof(service), "%d", port);
	return rdma_getaddrinfo(ts_addr(), service, &hints, info) ? "rdma_getaddrinfo" : NULL;
}

static void conn_param(const struct ts_end *end, struct rdma_conn_param *param)
{
	memset(param, 0, sizeof(*param));
	param->responder_resources = end->attr.ird;
	param->initiator_depth = end->attr.ord;
	param->retry_count = 7;
	param->rnr_retry_count = 7;
}

static const char *take_event(struct rdma_event_channel *events, enum rdma_cm_event_type want)
{
	struct rdma_cm_event *event = ts_event_try(events, want, TS_WAIT_MS);

	if (!event)
		return rdma_event_str(want);
	return rdma_ack_cm_event(event) ? "rdma_ack_cm_event" : NULL;
}

static const char *start_listen(struct rdma_cm_id **listener, struct rdma_event_channel *events,
				int *port)
{
	struct rdma_addrinfo *info;
	const char *what;

	if (rdma_create_id(events, listener, NULL, RDMA_PS_TCP))
		return "rdma_create_id";
	what = resolve(0, &info, true);
	if (what)
		return what;
	if (rdma_bind_addr(*listener, info->ai_src_addr))
		return "rdma_bind_addr";
	rdma_freeaddrinfo(info);
	if (rdma_listen(*listener, 4))
		return "rdma_listen";
	*port = ntohs(rdma_get_src_port(*listener));
	return NULL;
}

static const char *start_connect(struct ts_end *end, int port)
{
	struct rdma_conn_param param;
	struct rdma_addrinfo *info;
	const char *what;

	end->events = rdma_create_event_channel();
	if (!end->events)
		return "rdma_create_event_channel";
	if (rdma_create_id(end->events, &end->id, end, RDMA_PS_TCP))
		return "rdma_create_id";
	what = resolve(port, &info, false);
	if (what)
		return what;
	if (rdma_resolve_addr(end->id, NULL, info->ai_dst_addr, TS_WAIT_MS))
		return "rdma_resolve_addr";
	rdma_freeaddrinfo(info);
	what = take_event(end->events, RDMA_CM_EVENT_ADDR_RESOLVED);
	if (what)
		return what;
	if (rdma_resolve_route(end->id, TS_WAIT_MS))
		return "rdma_resolve_route";
	what = take_event(end->events, RDMA_CM_EVENT_ROUTE_RESOLVED);
	if (!what)
		what = end_qp(end);
	if (what)
		return what;
	conn_param(end, &param);
	return rdma_connect(end->id, &param) ? "rdma_connect" : NULL;
}

/* Takes the request that waits at the listener's channel; the new id moves to a channel of its own. */
static const char *finish_listen(struct ts_end *end, struct rdma_event_channel *events)
{
	struct rdma_conn_param param;
	struct rdma_cm_event *event;
	const char *what;

	event = ts_event_try(events, RDMA_CM_EVENT_CONNECT_REQUEST, TS_WAIT_MS);
	if (!event)
		return "RDMA_CM_EVENT_CONNECT_REQUEST";
	end->id = event->id;
	if (rdma_ack_cm_event(event))
		return "rdma_ack_cm_event";
	end->events = rdma_create_event_channel();
	if (!end->events)
		return "rdma_create_event_channel";
	if (rdma_migrate_id(end->id, end->events))
		return "rdma_migrate_id";
	what = end_qp(end);
	if (what)
		return what;
	conn_param(end, &param);
	if (rdma_accept(end->id, &param))
		return "rdma_accept";
	return take_event(end->events, RDMA_CM_EVENT_ESTABLISHED);
}

static const char *pair_by_cm(struct ts_pair *pair)
{
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct rdma_cm_id *listener;
	const char *what;
	int port;

	if (!events)
		return "rdma_create_event_channel";
	what = start_listen(&listener, events, &port);
	if (!what)
		what = start_connect(&pair->a, port);
	if (!what)
		what = finish_listen(&pair->b, events);
	if (!what)
		what = take_event(pair->a.events, RDMA_CM_EVENT_ESTABLISHED);
	if (!what && rdma_destroy_id(listener))
		what = "rdma_destroy_id";
	if (!what)
		rdma_destroy_event_channel(events);
	return what;
}

/* ------------------------------------------------------------------ out of band (RoCE) */

/* The GID of an IPv4 address where there is one: it is reachable from everywhere. */
static int pick_gid(union ibv_gid *gid)
{
	struct ibv_port_attr port;
	static const uint8_t v4_prefix[12] = { [10] = 0xff, [11] = 0xff };

	if (ibv_query_port(ts_dev()->ctx, 1, &port))
		return -1;
	for (int i = 0; i < port.gid_tbl_len; i++)
		if (!ibv_query_gid(ts_dev()->ctx, 1, i, gid) &&
		    !memcmp(gid->raw, v4_prefix, sizeof(v4_prefix)))
			return i;
	return ibv_query_gid(ts_dev()->ctx, 1, 0, gid) ? -1 : 0;
}

static const char *to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = TS_ACCESS_ALL };

	errno = ibv_modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	return errno ? "ibv_modify_qp to INIT" : NULL;
}

static const char *to_rts(struct ts_end *end, uint32_t qpn, const union ibv_gid *gid, int gid_index)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qpn,
		.rq_psn = 0,
		.max_dest_rd_atomic = end->attr.ird,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = *gid,
				      .sgid_index = (uint8_t)gid_index,
				      .hop_limit = 64 } },
	};

	errno = ibv_modify_qp(end->qp, &attr,
			      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				      IBV_QP_MIN_RNR_TIMER);
	if (errno)
		return "ibv_modify_qp to RTR";
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.sq_psn = 0;
	attr.max_rd_atomic = end->attr.ord;
	errno = ibv_modify_qp(end->qp, &attr,
			      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	return errno ? "ibv_modify_qp to RTS" : NULL;
}

static const char *pair_by_modify(struct ts_pair *pair)
{
	union ibv_gid gid;
	const char *what;
	int gid_index = pick_gid(&gid);

	if (gid_index < 0)
		return "no GID";
	what = end_qp(&pair->a);
	if (!what)
		what = end_qp(&pair->b);
	if (!what)
		what = to_init(pair->a.qp);
	if (!what)
		what = to_init(pair->b.qp);
	if (!what)
		what = to_rts(&pair->a, pair->b.qp->qp_num, &gid, gid_index);
	if (!what)
		what = to_rts(&pair->b, pair->a.qp->qp_num, &gid, gid_index);
	return what;
}

/* ------------------------------------------------------------------ pairs */

const char *ts_pair_try(struct ts_pair *pair, const struct ts_attr *a, const struct ts_attr *b)
{
	const char *what;

	memset(pair, 0, sizeof(*pair));
	what = end_cqs(&pair->a, a);
	if (!what)
		what = end_cqs(&pair->b, b);
	if (what)
		return what;
	return ts_dev()->iwarp ? pair_by_cm(pair) : pair_by_modify(pair);
}

void ts_pair_open(struct ts_pair *pair, const struct ts_attr *a, const struct ts_attr *b)
{
	must(ts_pair_try(pair, a, b));
}

const char *ts_pair_try_close(struct ts_pair *pair)
{
	const char *what = end_try_close(&pair->a);

	return what ? what : end_try_close(&pair->b);
}

void ts_pair_close(struct ts_pair *pair)
{
	must(ts_pair_try_close(pair));
}

/* ------------------------------------------------------------------ the sides of two processes */

/* In RoCE mode the number given for the port names a TCP listener over which QPN and GID are swapped. */
static void swap_by_tcp(struct ts_end *end, int sock)
{
	struct {
		union ibv_gid gid;
		__be32 qpn;
	} mine, yours;
	int gid_index = pick_gid(&mine.gid);

	TS_CHECK(gid_index >= 0);
	must(end_qp(end));
	must(to_init(end->qp));
	mine.qpn = htobe32(end->qp->qp_num);
	TS_CHECK(write(sock, &mine, sizeof(mine)) == sizeof(mine));
	TS_CHECK(read(sock, &yours, sizeof(yours)) == sizeof(yours));
	must(to_rts(end, be32toh(yours.qpn), &yours.gid, gid_index));
	/* neither side may use the connection before both have it */
	TS_CHECK(write(sock, "", 1) == 1 && read(sock, &yours, 1) == 1);
}

static void listen_by_tcp(struct ts_end *end)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	socklen_t len = sizeof(addr);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), sock;

	inet_pton(AF_INET, ts_addr(), &addr.sin_addr);
	TS_CHECK(listener >= 0 && !bind(listener, (struct sockaddr *)&addr, sizeof(addr)) &&
		 !listen(listener, 1) && !getsockname(listener, (struct sockaddr *)&addr, &len));
	ts_say(NULL, "%d", ntohs(addr.sin_port));
	sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	TS_CHECK(sock >= 0);
	swap_by_tcp(end, sock);
	close(sock);
	close(listener);
}

static void connect_by_tcp(struct ts_end *end, int port)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	inet_pton(AF_INET, ts_addr(), &addr.sin_addr);
	TS_CHECK(sock >= 0 && !connect(sock, (struct sockaddr *)&addr, sizeof(addr)));
	swap_by_tcp(end, sock);
	close(sock);
}

void ts_listen_one(struct ts_end *end, const struct ts_attr *attr)
{
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	int port;

	must(end_cqs(end, attr));
	if (!ts_dev()->iwarp) {
		listen_by_tcp(end);
		return;
	}
	events = rdma_create_event_channel();
	TS_CHECK(events);
	must(start_listen(&listener, events, &port));
	ts_say(NULL, "%d", port);
	must(finish_listen(end, events));
	TS_CHECK(!rdma_destroy_id(listener));
	rdma_destroy_event_channel(events);
}

void ts_connect_to(struct ts_end *end, const struct ts_attr *attr, int port)
{
	must(end_cqs(end, attr));
	if (!ts_dev()->iwarp) {
		connect_by_tcp(end, port);
		return;
	}
	must(start_connect(end, port));
	ts_event(end->events, RDMA_CM_EVENT_ESTABLISHED);
}
