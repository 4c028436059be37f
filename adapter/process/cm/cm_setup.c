// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * MPA set-up on TCP (RFC 5044 7.1, RFC 6581): what rdma_connect, rdma_accept and rdma_reject do.
 *
 * The active side asks for enhanced set-up with IRD and ORD, and offers to send a zero-length RDMA
 * Write first, so that the passive side may send as soon as it likes.  The passive side takes
 * revisions 1 and 2.
 *
 * A peer that knows revision 1 only answers a request of revision 2 by a frame of revision 1, a reject most
 * likely, or by closing (RFC 5044 7.1.2: what to do with a revision that is not supported is not laid down).
 * The active side then dials again, once, and asks by revision 1.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include "adapter/process/cm/cm.h"
#include "adapter/wire/crc32c.h"
#include "adapter/wire/ddp.h"
#include "adapter/wire/rdmap.h"

#define CONNECT_NS (10 * CM_SEC) /* TCP handshake */
#define REPLY_NS   (10 * CM_SEC)
#define REQUEST_NS (20 * CM_SEC)

/* ------------------------------------------------------------------ both sides */

static bool qp_can_connect(const struct host_qp *qp)
{
	enum ea_qp_state state = ea_qp_state(qp->core);

	return !qp->conn && (state == EA_QP_IDLE || state == EA_QP_RTR);
}

static struct host_qp *qp_for(struct host_dev *dev, uint32_t qpn)
{
	struct host_qp *qp = dev->core ? host_qp_find(dev, qpn) : NULL;

	return qp && qp_can_connect(qp) ? qp : NULL;
}

/* Send what is left of out[]: 0 all gone, -EAGAIN, or -errno. */
static int flush_out(struct cm_conn *conn)
{
	ssize_t n;

	while (conn->out_sent < conn->out_len) {
		n = send(conn->ec.efd.fd, conn->out + conn->out_sent,
			 conn->out_len - conn->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0)
			return errno == EINTR ? -EAGAIN : -errno;
		conn->out_sent += (uint32_t)n;
	}
	return 0;
}

/* One FPDU before there is a link: 0 or -errno. */
static int send_fpdu(struct cm_conn *conn, const struct ea_ddp_hdr *hdr, const void *payload,
		     uint32_t payload_len, bool crc)
{
	uint8_t fpdu[EA_FPDU_LEN_SIZE + EA_DDP_HDR_MAX + EA_TERMINATE_MAX +
		     EA_FPDU_TRAILER_MAX] = {};
	uint32_t len = ea_ddp_encode(hdr, fpdu + EA_FPDU_LEN_SIZE);
	uint32_t body;
	__le32 sum;

	if (payload_len)
		memcpy(fpdu + EA_FPDU_LEN_SIZE + len, payload, payload_len);
	len += payload_len;
	body = EA_FPDU_LEN_SIZE + len + ea_fpdu_pad(len);
	fpdu[0] = (uint8_t)(len >> 8);
	fpdu[1] = (uint8_t)len;
	if (crc) {
		sum = ea_crc32c_end(ea_crc32c_add(ea_crc32c_start(), fpdu, body));
		memcpy(fpdu + body, &sum, sizeof(sum));
	}
	return send(conn->ec.efd.fd, fpdu, body + EA_FPDU_CRC_SIZE, MSG_NOSIGNAL | MSG_DONTWAIT) <
			       0 ?
		       -errno :
		       0;
}

/* The first FPDU of the active side: a zero-length RDMA Write (RFC 6581 section 9.2). */
int cm_setup_send_rtr(struct cm_conn *conn, bool crc)
{
	const struct ea_ddp_hdr hdr = { .tagged = true,
					.last = true,
					.ulp_ctrl = ea_rdmap_ctrl(EA_RDMAP_WRITE) };

	return send_fpdu(conn, &hdr, NULL, 0, crc);
}

/* The peer has accepted what cannot be: it is in RTS, and learns of the end as of any other error. */
static void send_terminate(struct cm_conn *conn, enum ea_term_cause cause, bool crc)
{
	const struct ea_ddp_hdr hdr = { .last = true,
					.ulp_ctrl = ea_rdmap_ctrl(EA_RDMAP_TERMINATE),
					.qn = EA_QN_TERMINATE,
					.msn = EA_DDP_FIRST_MSN };
	uint8_t payload[EA_TERMINATE_MAX];
	struct ea_terminate term;

	ea_terminate_init(&term, ea_term_codes(cause), NULL, 0, NULL);
	if (send_fpdu(conn, &hdr, payload, ea_terminate_encode(&term, payload), crc))
		host_log(HOST_LOG_DEBUG, "no Terminate to %s: %s", cm_addr_text(&conn->id->dst),
			 strerror(errno));
}

static void established(struct cm_id *id, const void *data, size_t len)
{
	id->state = CM_CONNECTED;
	cm_id_event_data(id, CM_ESTABLISHED, 0, data, len);
}

/* ------------------------------------------------------------------ active side */

/* Errors of the attempt, as the kernel's driver and connection manager report them. */
static void active_failed(struct cm_conn *conn, int err, const void *data, size_t len)
{
	struct cm_id *id = conn->id;
	enum cm_event_type type;

	switch (err) {
	case ECONNRESET:
	case ECONNREFUSED:
		type = CM_REJECTED;
		break;
	case ETIMEDOUT:
		type = CM_UNREACHABLE;
		break;
	default:
		type = CM_CONNECT_ERROR;
	}
	host_log(HOST_LOG_INFO, "connection to %s: %s", cm_addr_text(&id->dst), strerror(err));
	id->conn = NULL;
	id->state = CM_DISCONNECT;
	conn->id = NULL;
	cm_id_event_data(id, type, -err, data, len);
	cm_conn_linger(conn);
}

static void active_timeout(struct engine_timer *timer)
{
	active_failed(container_of(timer, struct cm_conn, timer), ETIMEDOUT, NULL, 0);
}

static void active_established(struct cm_conn *conn, const struct ea_mpa_frame *rep, size_t used)
{
	struct cm_id *id = conn->id;
	struct host_qp *qp = qp_for(conn->dev, conn->qpn);
	struct ea_mpa_terms terms;
	socklen_t len = sizeof(id->src);
	uint8_t data[EA_MPA_PRIVATE_MAX];
	uint16_t data_len = rep->private_len;
	enum ea_mpa_err err;
	int ret;

	err = ea_mpa_settle(&conn->req, rep, &terms);
	if (err == EA_MPA_REJECTED) {
		active_failed(conn, ECONNRESET, rep->private_data, data_len);
		return;
	}
	if (err || !qp) {
		host_log(HOST_LOG_INFO, "reply of %s: %s", cm_addr_text(&id->dst),
			 err ? ea_mpa_strerror(err) : "the QP has left its initial state");
		if (err == EA_MPA_IRD_SHORT || err == EA_MPA_NO_RTR)
			send_terminate(conn,
				       err == EA_MPA_NO_RTR ? EA_TERM_NO_RTR : EA_TERM_IRD_SHORT,
				       terms.crc);
		active_failed(conn, EINVAL, NULL, 0);
		return;
	}
	if (data_len)
		memcpy(data, rep->private_data, data_len);
	engine_timer_cancel(&conn->timer);
	ret = terms.rtr ? cm_setup_send_rtr(conn, terms.crc) : 0;
	if (!ret)
		ret = cm_conn_open(conn, qp, &terms, true, conn->in + used, conn->in_len - used);
	if (ret) {
		active_failed(conn, -ret, NULL, 0);
		return;
	}
	getsockname(conn->ec.efd.fd, &id->src.sa, &len);
	if (id->dev->mode == HOST_ROCE) {
		/* the library moves the QP on, says so by ACCEPT, and makes ESTABLISHED of it */
		id->state = CM_CONNECTED;
		cm_id_event_data(id, CM_CONNECT_RESPONSE, 0, data, data_len);
		return;
	}
	established(id, data, data_len);
}

static void active_encode(struct cm_conn *conn, const void *data)
{
	conn->req.private_data = data;
	conn->out_sent = 0;
	conn->out_len = (uint32_t)ea_mpa_encode(EA_MPA_REQUEST, &conn->req, conn->out,
						sizeof(conn->out), NULL);
	conn->req.private_data = NULL;
}

static int dial(struct cm_conn *conn);

/* Try again by revision 1.  False: that has been done, or cannot be. */
static bool fall_back(struct cm_conn *conn)
{
	uint8_t data[EA_MPA_PRIVATE_MAX];
	union cm_addr local;
	socklen_t len = sizeof(local);
	int fd;

	if (conn->req.revision != EA_MPA_REV_2 || getsockname(conn->ec.efd.fd, &local.sa, &len))
		return false;
	fd = cm_socket(conn->id->dst.sa.sa_family, conn->id->tos);
	if (fd < 0)
		return false;
	host_log(HOST_LOG_INFO, "%s does not take MPA revision 2; trying revision 1",
		 cm_addr_text(&conn->id->dst));
	memcpy(data, conn->out + EA_MPA_FIXED_LEN + EA_MPA_ENHANCED_LEN, conn->req.private_len);
	/* from the same address; the old port is still in use */
	cm_addr_set_port(&local, 0);
	if (bind(fd, &local.sa, cm_addr_len(&local)))
		host_log(HOST_LOG_DEBUG, "%s: %s", cm_addr_text(&local), strerror(errno));
	cm_socket_tune(fd);
	engine_fd_del(&conn->ec.efd);
	host_fd_unhide_close(conn->ec.efd.fd);
	conn->ec.efd.fd = fd;
	conn->phase = CONN_TCP;
	conn->in_len = 0;
	conn->req.revision = EA_MPA_REV_1;
	conn->req.enhanced = false;
	conn->req.peer_to_peer = false;
	conn->req.rtr = EA_MPA_RTR_NONE;
	active_encode(conn, data);
	return !dial(conn);
}

static void active_reply(struct engine_fd *efd, uint32_t events)
{
	struct cm_conn *conn = container_of(efd, struct cm_conn, ec.efd);
	struct ea_mpa_frame rep;
	enum ea_mpa_err err;
	size_t need;
	ssize_t n;
	int ret;

	(void)events;
	n = recv(efd->fd, conn->in + conn->in_len, sizeof(conn->in) - conn->in_len, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		ret = n ? errno : ECONNRESET;
		if (ret != ECONNRESET || conn->in_len || !fall_back(conn))
			active_failed(conn, ret, NULL, 0);
		return;
	}
	conn->in_len += (uint32_t)n;
	err = ea_mpa_decode(EA_MPA_REPLY, EA_MPA_ACCEPT_STANDARD, conn->in, conn->in_len, &rep,
			    &need);
	switch (err) {
	case EA_MPA_SHORT:
		return;
	case EA_MPA_OK:
		if (rep.revision == EA_MPA_REV_1 && fall_back(conn))
			return;
		active_established(conn, &rep, need);
		return;
	case EA_MPA_MARKERS:
		active_failed(conn, ECONNREFUSED, NULL, 0);
		return;
	default:
		host_log(HOST_LOG_INFO, "reply of %s: %s", cm_addr_text(&conn->id->dst),
			 ea_mpa_strerror(err));
		active_failed(conn, EINVAL, NULL, 0);
	}
}

/* The handshake is over, or may be. */
static void active_connected(struct engine_fd *efd, uint32_t events)
{
	struct cm_conn *conn = container_of(efd, struct cm_conn, ec.efd);
	socklen_t len = sizeof(int);
	int err = 0, ret;

	if (events & (EPOLLERR | EPOLLHUP))
		getsockopt(efd->fd, SOL_SOCKET, SO_ERROR, &err, &len);
	ret = err ? -err : flush_out(conn);
	if (ret == -EAGAIN)
		return;
	if (!ret)
		ret = cm_conn_watch(conn, active_reply, EPOLLIN);
	if (ret) {
		active_failed(conn, ret == -EPIPE ? ECONNRESET : -ret, NULL, 0);
		return;
	}
	conn->phase = CONN_REPLY;
	engine_timer_set(&conn->timer, REPLY_NS);
}

static void request_encode(struct cm_conn *conn, const struct rdma_ucm_conn_param *param)
{
	conn->req = (struct ea_mpa_frame){
		.revision = EA_MPA_REV_2,
		.crc = host_settings()->crc,
		.large_fpdu = true,
		.enhanced = true,
		.peer_to_peer = true,
		.rtr = EA_MPA_RTR_WRITE,
		.ird = param->responder_resources,
		.ord = param->initiator_depth,
		.private_len = param->private_data_len,
	};
	active_encode(conn, param->private_data);
}

/* Connect the socket and go on from there.  0 or a positive errno. */
static int dial(struct cm_conn *conn)
{
	struct cm_id *id = conn->id;
	int ret;

	if (connect(conn->ec.efd.fd, &id->dst.sa, cm_addr_len(&id->dst)) && errno != EINPROGRESS)
		return errno;
	ret = cm_conn_watch(conn, active_connected, EPOLLOUT);
	if (ret)
		return -ret;
	engine_timer_set(&conn->timer, CONNECT_NS);
	return 0;
}

int cm_setup_connect(struct cm_id *id, const struct rdma_ucm_conn_param *param)
{
	static const int one = 1;
	struct cm_conn *conn;
	int fd, ret;

	if (!qp_for(id->dev, param->qp_num) || param->responder_resources > EA_MAX_IRD ||
	    param->initiator_depth > EA_MAX_ORD)
		return -EINVAL;
	fd = id->fd >= 0 ? id->fd : cm_socket(id->dst.sa.sa_family, id->tos);
	if (fd < 0)
		return fd;
	id->fd = -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	cm_socket_tune(fd);
	conn = cm_conn_alloc(fd, CONN_TCP);
	if (!conn)
		return -errno;
	conn->dev = id->dev;
	conn->id = id;
	conn->qpn = param->qp_num;
	conn->timer.fire = active_timeout;
	request_encode(conn, param);
	id->conn = conn;
	id->state = CM_CONNECTING;
	ret = dial(conn);
	if (ret) {
		active_failed(conn, ret, NULL, 0);
		return 0;
	}
	/* to this host the handshake is over already */
	active_connected(&conn->ec.efd, EPOLLOUT);
	return 0;
}

/* ------------------------------------------------------------------ passive side */

static void passive_timeout(struct engine_timer *timer)
{
	cm_conn_free(container_of(timer, struct cm_conn, timer));
}

/* Answer in one send: the socket's buffer is empty.  0 or -errno. */
static int send_reply(struct cm_conn *conn, const struct ea_mpa_frame *rep)
{
	conn->out_len =
		(uint32_t)ea_mpa_encode(EA_MPA_REPLY, rep, conn->out, sizeof(conn->out), NULL);
	conn->out_sent = 0;
	return flush_out(conn);
}

static void refuse(struct cm_conn *conn, const void *data, size_t len)
{
	struct ea_mpa_terms terms;
	struct ea_mpa_frame rep;

	ea_mpa_answer(&conn->req, 0, 0, false, &rep, &terms);
	rep.reject = true;
	rep.private_data = data;
	rep.private_len = (uint16_t)len;
	send_reply(conn, &rep);
	cm_conn_linger(conn);
}

void cm_setup_refuse(struct cm_conn *conn)
{
	refuse(conn, NULL, 0);
}

/* A complete request: it becomes an event with an id of its own. */
static void passive_request(struct cm_conn *conn)
{
	struct cm_id *listener = conn->listener, *id;
	struct rdma_ucm_conn_param *param;
	struct cm_event *event;
	socklen_t len = sizeof(union cm_addr);

	engine_timer_cancel(&conn->timer);
	conn->listener = NULL;
	if (listener->waiting >= listener->backlog) {
		host_log(HOST_LOG_INFO, "backlog %u of %s is full", listener->backlog,
			 cm_addr_text(&listener->src));
		refuse(conn, NULL, 0);
		return;
	}
	id = cm_id_create(listener->file);
	event = calloc(1, sizeof(*event));
	if (!id || !event || cm_conn_watch(conn, NULL, 0) ||
	    getsockname(conn->ec.efd.fd, &id->src.sa, &len)) {
		free(event);
		if (id)
			cm_id_destroy(id);
		refuse(conn, NULL, 0);
		return;
	}
	len = sizeof(union cm_addr);
	getpeername(conn->ec.efd.fd, &id->dst.sa, &len);
	cm_addr_unmap(&id->src);
	cm_addr_unmap(&id->dst);
	id->ps = listener->ps;
	id->qp_type = listener->qp_type;
	id->dev = listener->dev;
	id->tos = listener->tos;
	id->state = CM_REQUESTED;
	id->unseen = true;
	id->conn = conn;
	conn->id = id;
	conn->phase = CONN_PENDING;

	event->id = listener;
	event->new_id = id;
	event->resp.uid = listener->uid;
	event->resp.id = id->number;
	event->resp.event = CM_CONNECT_REQUEST;
	param = &event->resp.param.conn;
	param->private_data_len =
		(uint8_t)(conn->req.private_len < UINT8_MAX ? conn->req.private_len : UINT8_MAX);
	memcpy(param->private_data, conn->req.private_data, param->private_data_len);
	param->responder_resources = EA_MAX_IRD;
	param->initiator_depth = EA_MAX_ORD;
	if (conn->req.enhanced && conn->req.ord < EA_MAX_IRD)
		param->responder_resources = (uint8_t)conn->req.ord;
	if (conn->req.enhanced && conn->req.ird < EA_MAX_ORD)
		param->initiator_depth = (uint8_t)conn->req.ird;
	listener->waiting++;
	ucma_event_push(listener->file, event);
}

static void passive_input(struct engine_fd *efd, uint32_t events)
{
	struct cm_conn *conn = container_of(efd, struct cm_conn, ec.efd);
	enum ea_mpa_err err;
	size_t need = 0;
	ssize_t n;

	(void)events;
	n = recv(efd->fd, conn->in + conn->in_len, sizeof(conn->in) - conn->in_len, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		cm_conn_free(conn);
		return;
	}
	conn->in_len += (uint32_t)n;
	err = ea_mpa_decode(EA_MPA_REQUEST, EA_MPA_ACCEPT_STANDARD, conn->in, conn->in_len,
			    &conn->req, &need);
	if (err == EA_MPA_SHORT)
		return;
	if (err == EA_MPA_OK && need == conn->in_len) {
		passive_request(conn);
		return;
	}
	host_log(HOST_LOG_INFO, "request to %s: %s", cm_addr_text(&conn->listener->src),
		 err ? ea_mpa_strerror(err) : "bytes behind it");
	if (err == EA_MPA_MARKERS || err == EA_MPA_NO_ENHANCED_DATA)
		refuse(conn, NULL, 0);
	else
		cm_conn_free(conn);
}

void cm_setup_accepted(struct cm_id *listener, int fd)
{
	struct cm_conn *conn;

	cm_socket_tune(fd);
	conn = cm_conn_alloc(fd, CONN_REQUEST);
	if (!conn)
		return;
	conn->listener = listener;
	conn->timer.fire = passive_timeout;
	if (cm_conn_watch(conn, passive_input, EPOLLIN)) {
		cm_conn_free(conn);
		return;
	}
	engine_timer_set(&conn->timer, REQUEST_NS);
	passive_input(&conn->ec.efd, EPOLLIN);
}

void cm_setup_listener_gone(struct cm_id *listener)
{
	struct cm_conn *conn, *next;

	for (conn = cm_conn_next(NULL); conn; conn = next) {
		next = cm_conn_next(conn);
		if (conn->listener == listener)
			cm_conn_free(conn);
	}
}

/*
 * Nobody may send between request and reply, so there is nothing to read unless the peer has gone.
 */
static bool peer_gone(const struct cm_conn *conn)
{
	char byte;
	ssize_t n = recv(conn->ec.efd.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	return n >= 0 || (errno != EAGAIN && errno != EINTR);
}

int cm_setup_accept(struct cm_id *id, const struct rdma_ucm_conn_param *param)
{
	struct cm_conn *conn = id->conn;
	struct host_qp *qp = qp_for(id->dev, param->qp_num);
	struct ea_mpa_terms terms;
	struct ea_mpa_frame rep;
	int ret = -EINVAL;

	if (!qp || param->responder_resources > EA_MAX_IRD || param->initiator_depth > EA_MAX_ORD)
		goto err_refuse;
	ret = -ECONNRESET;
	if (peer_gone(conn))
		goto err_refuse;
	ea_mpa_answer(&conn->req, param->responder_resources, param->initiator_depth,
		      host_settings()->crc, &rep, &terms);
	rep.private_data = param->private_data;
	rep.private_len = param->private_data_len;
	conn->dev = id->dev;
	/*
	 * first the QP, as its receives must be there when the peer may send; nothing is sent until
	 * then
	 */
	ret = cm_conn_open(conn, qp, &terms, false, NULL, 0);
	if (ret)
		goto err_refuse;
	if (send_reply(conn, &rep))
		shutdown(conn->ec.efd.fd, SHUT_RDWR); /* the link finds the end */
	established(id, NULL, 0);
	return 0;

err_refuse:
	id->conn = NULL;
	id->state = CM_DISCONNECT;
	conn->id = NULL;
	refuse(conn, NULL, 0);
	return ret;
}

int cm_setup_reject(struct cm_id *id, const void *data, size_t len)
{
	struct cm_conn *conn = id->conn;

	id->conn = NULL;
	id->state = CM_DISCONNECT;
	conn->id = NULL;
	refuse(conn, data, len);
	return 0;
}
