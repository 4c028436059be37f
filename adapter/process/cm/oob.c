// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * RC queue pairs whose programs exchange addresses and QP numbers themselves and move them by
 * ibv_modify_qp() (HOST_ROCE).
 *
 * A queue pair number is all that a peer gets besides a GID, so it must lead to the process: its
 * upper 16 bits are the TCP port of a listener of this process, the lower 4 tell its queue pairs
 * apart.  The GID is the IP address.  Of two queue pairs that name each other, the one with the
 * lower number (then GID) connects; the other one waits.  The carrier is an ordinary MPA
 * connection; the private data of its request says who calls whom.  A request for a queue pair that
 * is not in RTR yet waits for that; one from a peer that the queue pair does not name is refused.
 *
 * A peer that is not there is tried again and again.  Nothing tells the program until it sends: a send
 * that finds no connection waits for the time that the program gave at RTS, and then fails with
 * RETRY_EXC_ERR.  The time is 4.096 us * 2^timeout for each of retry_cnt + 1 tries.  The InfiniBand
 * specification lets an adapter take up to four times as long, and times below PATIENCE_NS make use of
 * that: a TCP connection takes longer to set up than the packets do that these times are meant for.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <sys/epoll.h>
#include "adapter/process/cm/oob.h"

enum {
	QPN_INDEX_BITS = 4,
	QPN_PER_PORT = 1 << QPN_INDEX_BITS,
	HASH_SIZE = 1024,
	OOB_VERSION = 1,
	LISTEN_BACKLOG = 1024,
	ACCEPT_BATCH = 16,
};

#define CONNECT_NS   (10 * CM_SEC)
#define WAIT_NS	     (60 * CM_SEC) /* a request waits for RTR that long; then the peer asks again */
#define PATIENCE_NS  (2 * CM_SEC)
#define RETRY_MIN_NS (5 * CM_MSEC)
#define RETRY_MAX_NS (500 * CM_MSEC)

static const char oob_magic[8] = "ERDMA RC";

/* Private data of a request. */
struct oob_hello {
	char magic[8];
	__be32 version;
	__be32 src_qpn, dst_qpn;
	uint8_t sgid[HOST_GID_LEN];
};

struct oob_listener {
	struct engine_fd efd;
	struct host_dev *dev;
	uint16_t port;
	uint16_t used; /* bit for each index */
	struct oob_listener *next;
};

/* A queue pair that is past INIT. */
struct oob_qp {
	struct host_qp *qp;
	struct host_oob_addr addr;
	union cm_addr to;
	bool active;
	struct cm_conn *conn; /* being set up by us; NULL */
	struct engine_timer retry;
	uint64_t delay;
	uint64_t patience; /* see oob_patience() */
	struct engine_timer giveup;
	struct oob_qp *next; /* in the bucket */
};

/* What hangs on a connection that is being set up. */
struct oob_conn {
	struct cm_conn *conn;
	struct oob_qp *oqp;	      /* active */
	struct host_dev *dev;	      /* passive */
	struct oob_hello hello;	      /* passive, once it has come */
	struct oob_conn *prev, *next; /* passive: all that wait for RTR */
	bool waiting;
};

static struct oob_listener *listeners;
static struct oob_qp *buckets[HASH_SIZE];
static struct oob_conn *waiting;

/* ------------------------------------------------------------------ queue pairs */

static struct oob_qp **bucket_of(uint32_t qpn)
{
	return &buckets[qpn % HASH_SIZE];
}

static struct oob_qp *oob_find(const struct host_qp *qp)
{
	struct oob_qp *oqp;

	for (oqp = *bucket_of(qp->qpn); oqp; oqp = oqp->next)
		if (oqp->qp == qp)
			return oqp;
	return NULL;
}

static void oob_remove(struct oob_qp *oqp)
{
	struct oob_qp **at = bucket_of(oqp->qp->qpn);

	while (*at != oqp)
		at = &(*at)->next;
	*at = oqp->next;
	engine_timer_cancel(&oqp->retry);
	engine_timer_cancel(&oqp->giveup);
	if (oqp->conn)
		cm_conn_linger(oqp->conn);
	free(oqp);
}

/* ------------------------------------------------------------------ set-up frames */

static int send_frame(struct cm_conn *conn, enum ea_mpa_kind kind, const struct ea_mpa_frame *frame)
{
	conn->out_len = (uint32_t)ea_mpa_encode(kind, frame, conn->out, sizeof(conn->out), NULL);
	if (send(conn->ec.efd.fd, conn->out, conn->out_len, MSG_NOSIGNAL | MSG_DONTWAIT) !=
	    (ssize_t)conn->out_len)
		return errno ? -errno : -EIO;
	return 0;
}

static enum ea_mpa_err receive_frame(struct cm_conn *conn, enum ea_mpa_kind kind,
				     struct ea_mpa_frame *frame, size_t *used)
{
	ssize_t n = recv(conn->ec.efd.fd, conn->in + conn->in_len, sizeof(conn->in) - conn->in_len,
			 MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return EA_MPA_SHORT;
	if (n <= 0)
		return EA_MPA_BAD_KEY;
	conn->in_len += (uint32_t)n;
	return ea_mpa_decode(kind, EA_MPA_ACCEPT_2, conn->in, conn->in_len, frame, used);
}

/* ------------------------------------------------------------------ active side */

static void active_start(struct oob_qp *oqp);

static void retry_fire(struct engine_timer *timer)
{
	active_start(container_of(timer, struct oob_qp, retry));
}

/* The peer may not be there yet, or not any more: RC has no way to say so before data flows. */
static void active_failed(struct cm_conn *conn, const char *why)
{
	struct oob_qp *oqp = conn->oob->oqp;

	host_log(HOST_LOG_DEBUG, "QP %#x to %s: %s; trying again", oqp->qp->qpn,
		 cm_addr_text(&oqp->to), why);
	oqp->conn = NULL;
	conn->oob->oqp = NULL;
	cm_conn_free(conn);
	oqp->retry.fire = retry_fire;
	engine_timer_set(&oqp->retry, oqp->delay);
	oqp->delay *= 2;
	if (oqp->delay > RETRY_MAX_NS)
		oqp->delay = RETRY_MAX_NS;
}

static void active_timeout(struct engine_timer *timer)
{
	active_failed(container_of(timer, struct cm_conn, timer), "no answer");
}

static void active_reply(struct engine_fd *efd, uint32_t events)
{
	struct cm_conn *conn = container_of(efd, struct cm_conn, ec.efd);
	struct oob_qp *oqp = conn->oob->oqp;
	struct ea_mpa_terms terms;
	struct ea_mpa_frame rep;
	enum ea_mpa_err err;
	size_t used;

	(void)events;
	err = receive_frame(conn, EA_MPA_REPLY, &rep, &used);
	if (err == EA_MPA_SHORT)
		return;
	if (!err)
		err = ea_mpa_settle(&conn->req, &rep, &terms);
	if (err) {
		active_failed(conn, ea_mpa_strerror(err));
		return;
	}
	engine_timer_cancel(&conn->timer);
	if ((terms.rtr && cm_setup_send_rtr(conn, terms.crc)) ||
	    cm_conn_open(conn, oqp->qp, &terms, true, conn->in + used, conn->in_len - used)) {
		active_failed(conn, "the connection could not be used");
		return;
	}
	engine_timer_cancel(&oqp->giveup);
	oqp->conn = NULL;
	conn->oob->oqp = NULL;
	oob_conn_gone(conn);
}

static void active_connected(struct engine_fd *efd, uint32_t events)
{
	struct cm_conn *conn = container_of(efd, struct cm_conn, ec.efd);
	struct oob_qp *oqp = conn->oob->oqp;
	struct oob_hello hello = {
		.version = htobe32(OOB_VERSION),
		.src_qpn = htobe32(oqp->qp->qpn),
		.dst_qpn = htobe32(oqp->addr.dest_qpn),
	};
	struct ea_mpa_frame frame;
	int ret;

	if (events & (EPOLLERR | EPOLLHUP)) {
		active_failed(conn, "refused");
		return;
	}
	memcpy(hello.magic, oob_magic, sizeof(hello.magic));
	memcpy(hello.sgid, oqp->addr.sgid, sizeof(hello.sgid));
	frame = conn->req;
	frame.private_data = &hello;
	frame.private_len = sizeof(hello);
	ret = send_frame(conn, EA_MPA_REQUEST, &frame);
	if (ret == -EAGAIN)
		return;
	if (ret || cm_conn_watch(conn, active_reply, EPOLLIN)) {
		active_failed(conn, strerror(-ret));
		return;
	}
	conn->phase = CONN_REPLY;
	engine_timer_set(&conn->timer, WAIT_NS + CONNECT_NS);
}

static void active_start(struct oob_qp *oqp)
{
	struct cm_conn *conn = NULL;
	struct oob_conn *oob = calloc(1, sizeof(*oob));
	int fd;

	fd = oob ? cm_socket(oqp->to.sa.sa_family, CM_OPT_UNSET) : -ENOMEM;
	if (fd >= 0) {
		cm_socket_tune(fd);
		conn = cm_conn_alloc(fd, CONN_TCP);
	}
	if (!conn) {
		free(oob);
		oqp->retry.fire = retry_fire;
		engine_timer_set(&oqp->retry, RETRY_MAX_NS);
		return;
	}
	conn->oob = oob;
	oob->conn = conn;
	oob->oqp = oqp;
	oqp->conn = conn;
	conn->dev = oqp->qp->dev;
	conn->timer.fire = active_timeout;
	conn->req = (struct ea_mpa_frame){
		.revision = EA_MPA_REV_2,
		.crc = host_settings()->crc,
		.large_fpdu = true,
		.enhanced = true,
		.peer_to_peer = true,
		.rtr = EA_MPA_RTR_WRITE,
		.ird = oqp->addr.max_rd_atomic,
		.ord = EA_MAX_ORD,
	};
	if ((connect(fd, &oqp->to.sa, cm_addr_len(&oqp->to)) && errno != EINPROGRESS) ||
	    cm_conn_watch(conn, active_connected, EPOLLOUT)) {
		active_failed(conn, strerror(errno));
		return;
	}
	engine_timer_set(&conn->timer, CONNECT_NS);
}

/* ------------------------------------------------------------------ passive side */

static bool is_for(const struct oob_hello *hello, const struct oob_qp *oqp)
{
	return be32toh(hello->src_qpn) == oqp->addr.dest_qpn &&
	       be32toh(hello->dst_qpn) == oqp->qp->qpn &&
	       !memcmp(hello->sgid, oqp->addr.dgid, sizeof(hello->sgid));
}

static void passive_answer(struct cm_conn *conn, struct oob_qp *oqp)
{
	struct ea_mpa_terms terms;
	struct ea_mpa_frame rep;

	engine_timer_cancel(&conn->timer);
	ea_mpa_answer(&conn->req, oqp->addr.max_rd_atomic, EA_MAX_ORD, host_settings()->crc, &rep,
		      &terms);
	conn->dev = oqp->qp->dev;
	if (oqp->qp->conn || cm_conn_open(conn, oqp->qp, &terms, false, NULL, 0)) {
		cm_setup_refuse(conn);
		return;
	}
	engine_timer_cancel(&oqp->giveup);
	oob_conn_gone(conn);
	if (send_frame(conn, EA_MPA_REPLY, &rep))
		shutdown(conn->ec.efd.fd, SHUT_RDWR);
}

static void waiting_add(struct oob_conn *oob)
{
	oob->waiting = true;
	oob->next = waiting;
	if (waiting)
		waiting->prev = oob;
	waiting = oob;
}

static void passive_request(struct cm_conn *conn)
{
	struct oob_conn *oob = conn->oob;
	struct oob_qp *oqp = NULL;
	struct host_qp *qp;

	if (conn->req.private_len != sizeof(oob->hello)) {
		cm_setup_refuse(conn);
		return;
	}
	memcpy(&oob->hello, conn->req.private_data, sizeof(oob->hello));
	qp = host_qp_find(oob->dev, be32toh(oob->hello.dst_qpn));
	if (qp)
		oqp = oob_find(qp);
	if (!qp || memcmp(oob->hello.magic, oob_magic, sizeof(oob_magic)) ||
	    be32toh(oob->hello.version) != OOB_VERSION || (oqp && !is_for(&oob->hello, oqp))) {
		host_log(HOST_LOG_INFO, "QP %#x calls QP %#x, which %s",
			 be32toh(oob->hello.src_qpn), be32toh(oob->hello.dst_qpn),
			 qp ? "names another peer" : "does not exist");
		cm_setup_refuse(conn);
		return;
	}
	if (oqp) {
		passive_answer(conn, oqp);
		return;
	}
	waiting_add(oob);
	if (cm_conn_watch(conn, NULL, 0))
		cm_setup_refuse(conn);
	else
		engine_timer_set(&conn->timer, WAIT_NS);
}

static void passive_input(struct engine_fd *efd, uint32_t events)
{
	struct cm_conn *conn = container_of(efd, struct cm_conn, ec.efd);
	enum ea_mpa_err err;
	size_t used = 0;

	(void)events;
	err = receive_frame(conn, EA_MPA_REQUEST, &conn->req, &used);
	if (err == EA_MPA_SHORT)
		return;
	if (err || used != conn->in_len)
		cm_conn_free(conn);
	else
		passive_request(conn);
}

static void passive_timeout(struct engine_timer *timer)
{
	cm_setup_refuse(container_of(timer, struct cm_conn, timer));
}

static void accept_some(struct engine_fd *efd, uint32_t events)
{
	struct oob_listener *listener = container_of(efd, struct oob_listener, efd);
	struct cm_conn *conn;
	int fd, i;

	(void)events;
	for (i = 0; i < ACCEPT_BATCH; i++) {
		fd = accept4(efd->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0)
			return;
		fd = host_fd_hide(fd);
		if (fd < 0)
			continue;
		cm_socket_tune(fd);
		conn = cm_conn_alloc(fd, CONN_REQUEST);
		if (!conn)
			continue;
		conn->oob = calloc(1, sizeof(*conn->oob));
		if (!conn->oob || cm_conn_watch(conn, passive_input, EPOLLIN)) {
			cm_conn_free(conn);
			continue;
		}
		conn->oob->conn = conn;
		conn->oob->dev = listener->dev;
		conn->timer.fire = passive_timeout;
		engine_timer_set(&conn->timer, 2 * CONNECT_NS);
		passive_input(&conn->ec.efd, EPOLLIN);
	}
}

void oob_conn_gone(struct cm_conn *conn)
{
	struct oob_conn *oob = conn->oob;

	if (!oob)
		return;
	if (oob->waiting) {
		if (oob->prev)
			oob->prev->next = oob->next;
		else
			waiting = oob->next;
		if (oob->next)
			oob->next->prev = oob->prev;
	}
	if (oob->oqp)
		oob->oqp->conn = NULL;
	conn->oob = NULL;
	free(oob);
}

/* ------------------------------------------------------------------ numbers */

static int listen_socket(uint16_t *port)
{
	union cm_addr addr = { .in6.sin6_family = AF_INET6 };
	socklen_t len = sizeof(addr);
	static const int off;
	int fd, ret;

	fd = cm_socket(AF_INET6, CM_OPT_UNSET);
	if (fd < 0) {
		addr.sa.sa_family = AF_INET;
		fd = cm_socket(AF_INET, CM_OPT_UNSET);
	} else {
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	}
	if (fd < 0)
		return fd;
	if (bind(fd, &addr.sa, cm_addr_len(&addr)) || listen(fd, LISTEN_BACKLOG) ||
	    getsockname(fd, &addr.sa, &len)) {
		ret = -errno;
		host_fd_unhide_close(fd);
		return ret;
	}
	*port = ntohs(cm_addr_port(&addr));
	return fd;
}

static struct oob_listener *listener_create(struct host_dev *dev)
{
	struct oob_listener *listener = calloc(1, sizeof(*listener));
	int fd;

	if (!listener)
		return NULL;
	fd = listen_socket(&listener->port);
	if (fd < 0)
		goto err_free;
	listener->dev = dev;
	listener->efd = (struct engine_fd){ .fd = fd, .events = EPOLLIN, .ready = accept_some };
	if (engine_fd_add(&listener->efd))
		goto err_fd;
	listener->next = listeners;
	listeners = listener;
	return listener;

err_fd:
	host_fd_unhide_close(fd);
err_free:
	free(listener);
	return NULL;
}

uint32_t cm_oob_qpn_take(struct host_dev *dev)
{
	struct oob_listener *listener;
	unsigned int index;

	for (listener = listeners; listener; listener = listener->next)
		if (listener->dev == dev && listener->used != UINT16_MAX)
			break;
	if (!listener)
		listener = listener_create(dev);
	if (!listener)
		return 0;
	index = (unsigned int)__builtin_ctz(~(unsigned int)listener->used);
	listener->used |= (uint16_t)(1u << index);
	return (uint32_t)listener->port << QPN_INDEX_BITS | index;
}

/* Listeners stay: their ports will be wanted again, and a late peer gets an answer. */
void cm_oob_qpn_give(struct host_dev *dev, uint32_t qpn)
{
	struct oob_listener *listener;

	for (listener = listeners; listener; listener = listener->next)
		if (listener->dev == dev && listener->port == qpn >> QPN_INDEX_BITS)
			listener->used &= (uint16_t) ~(1u << (qpn % QPN_PER_PORT));
}

/* ------------------------------------------------------------------ what uverbs calls */

static uint64_t patience_of(const struct host_oob_rts *rts)
{
	uint64_t ns = (4096ull << rts->timeout) * (rts->retry_cnt + 1u);

	if (!rts->timeout)
		return UINT64_MAX;
	if (ns >= PATIENCE_NS)
		return ns;
	return 4 * ns < PATIENCE_NS ? 4 * ns : PATIENCE_NS;
}

static int peer_address(struct host_qp *qp, const struct host_oob_addr *addr, union cm_addr *to)
{
	static const uint8_t zero[HOST_GID_LEN];
	struct in6_addr in6;

	memset(to, 0, sizeof(*to));
	memcpy(&in6, addr->dgid, sizeof(in6));
	if (!memcmp(addr->dgid, zero, sizeof(zero)) || in6.s6_addr[0] == 0xff ||
	    !(addr->dest_qpn >> QPN_INDEX_BITS) || addr->dest_qpn >> (QPN_INDEX_BITS + 16))
		return -EINVAL;
	to->in6.sin6_family = AF_INET6;
	to->in6.sin6_addr = in6;
	to->in6.sin6_port = htons((uint16_t)(addr->dest_qpn >> QPN_INDEX_BITS));
	if (IN6_IS_ADDR_LINKLOCAL(&in6)) {
		/*
		 * the link-local GID is made from the MAC, and need not be an address of this host
		 */
		if (host_dev_gid_find(qp->dev, addr->dgid) >= 0)
			to->in6.sin6_addr = in6addr_loopback;
		else
			to->in6.sin6_scope_id = (uint32_t)qp->dev->ifindex;
	}
	cm_addr_unmap(to);
	return 0;
}

int cm_oob_rtr(struct host_qp *qp, const struct host_oob_addr *addr)
{
	bool managed = addr->dest_qpn == CM_OOB_MANAGED;
	struct oob_conn *oob, *next;
	struct oob_qp *oqp;
	int order = 0, ret = 0;

	if (oob_find(qp))
		return -EINVAL;
	oqp = calloc(1, sizeof(*oqp));
	if (!oqp)
		return -ENOMEM;
	oqp->qp = qp;
	oqp->addr = *addr;
	oqp->delay = RETRY_MIN_NS;
	oqp->patience = managed ? 0 : UINT64_MAX;
	if (!managed) {
		ret = peer_address(qp, addr, &oqp->to);
		order = qp->qpn != addr->dest_qpn ?
				(qp->qpn < addr->dest_qpn ? -1 : 1) :
				memcmp(addr->sgid, addr->dgid, sizeof(addr->sgid));
		if (!ret && !order) {
			host_log(HOST_LOG_INFO, "QP %#x names itself as its peer", qp->qpn);
			ret = -EOPNOTSUPP;
		}
	}
	if (ret) {
		free(oqp);
		return ret;
	}
	oqp->next = *bucket_of(qp->qpn);
	*bucket_of(qp->qpn) = oqp;
	if (managed)
		return 0;
	if (order < 0) {
		active_start(oqp);
		return 0;
	}
	for (oob = waiting; oob; oob = next) {
		next = oob->next;
		if (be32toh(oob->hello.dst_qpn) != qp->qpn || oob->dev != qp->dev)
			continue;
		if (is_for(&oob->hello, oqp) && !qp->conn)
			passive_answer(oob->conn, oqp);
		else
			cm_setup_refuse(oob->conn);
	}
	return 0;
}

/* The peer's IRD bounds what we may have outstanding; the program's own bound is not needed beside it. */
int cm_oob_rts(struct host_qp *qp, const struct host_oob_rts *rts)
{
	struct oob_qp *oqp = oob_find(qp);

	if (!oqp || rts->max_rd_atomic > EA_MAX_ORD || rts->timeout > OOB_TIMEOUT_MAX ||
	    rts->retry_cnt > OOB_RETRY_MAX)
		return -EINVAL;
	if (!oqp->patience) /* rdma_cm's */
		return 0;
	oqp->patience = patience_of(rts);
	/* sends may wait already, and the peer may have come and gone */
	engine_qp_sync(qp);
	if (qp->conn)
		engine_conn_ready(&qp->conn->ec);
	else if (ea_qp_sends_pending(qp->core))
		cm_qp_sends_wait(qp);
	return 0;
}

uint64_t oob_patience(const struct host_qp *qp)
{
	struct oob_qp *oqp = oob_find(qp);

	return oqp ? oqp->patience : 0;
}

static void giveup_fire(struct engine_timer *timer)
{
	struct oob_qp *oqp = container_of(timer, struct oob_qp, giveup);
	struct host_qp *qp = oqp->qp;

	host_log(HOST_LOG_INFO, "QP %#x: QP %#x at %s cannot be reached", qp->qpn,
		 oqp->addr.dest_qpn, cm_addr_text(&oqp->to));
	oob_remove(oqp);
	engine_qp_watch(qp);
	ea_qp_unreachable(qp->dev->core, qp->qpn);
}

void cm_qp_sends_wait(struct host_qp *qp)
{
	struct oob_qp *oqp = oob_find(qp);

	if (!oqp || !oqp->patience || oqp->patience == UINT64_MAX || oqp->giveup.due_ns)
		return;
	oqp->giveup.fire = giveup_fire;
	engine_timer_set(&oqp->giveup, oqp->patience);
	/* by now the peer may be there */
	oqp->delay = RETRY_MIN_NS;
	if (oqp->retry.due_ns)
		engine_timer_set(&oqp->retry, 0);
}

void oob_qp_leaving(struct host_qp *qp)
{
	struct oob_qp *oqp = oob_find(qp);

	if (oqp)
		oob_remove(oqp);
}

void oob_forget(void)
{
	listeners = NULL;
	waiting = NULL;
	memset(buckets, 0, sizeof(buckets));
}
