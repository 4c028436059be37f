// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Connections: the data phase, and every way it ends. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <infiniband/verbs.h>
#include "adapter/process/cm/cm.h"
#include "adapter/process/cm/oob.h"

enum {
	RX_BUDGET = 256 * 1024,
	TX_BUDGET = 1024 * 1024, /* at once: each call ends with a TCP segment that is not full */
	DRAIN_BYTES = 64 * 1024,
};

#define CLOSING_NS (10 * CM_SEC) /* the peer has that long to end its side */
#define LINGER_NS  (5 * CM_SEC)
#define HELD_NS \
	(1 * CM_SEC) /* the peer has ended, and the program posts no receive for what it sent */
/*
 * A responder sends no FPDU before it has the initiator's first (RFC 5044 section 7.1.2), which
 * makes sure that the initiator is ready.  There are three kinds of initiators:
 *
 *	enhanced set-up, peer to peer	it has promised an indication (RFC 6581 section 9.2): wait for it,
 *					however long that takes
 *	revision 1, or 2 without IRD	it must speak first: wait, however long that takes
 *	enhanced set-up, no more	may wait for ours, as Linux's siw does, whose programs hang with a
 *					responder that keeps to the letter: once it has had the reply for FIRST_MS,
 *					which is for sure when its TCP has acknowledged that, it is ready
 */
enum {
	FIRST_MS = 200,
};
/*
 * Linux's siw arms its receiver after it has sent its reply, and what came in between lies there
 * until more comes.  So an initiator that has heard nothing sends an empty RDMA Write some time
 * after the first FPDU; each time waits longer.
 */
#define NUDGE_NS     (CM_SEC / 100)
#define NUDGE_MAX_NS (CM_SEC / 2)
#define EXIT_NS	     (CM_SEC / 2) /* a process that ends waits that long at most */

static struct cm_conn *conns;

/* ------------------------------------------------------------------ life */

struct cm_conn *cm_conn_alloc(int fd, enum cm_phase phase)
{
	struct cm_conn *conn = calloc(1, sizeof(*conn));

	if (!conn) {
		host_fd_unhide_close(fd);
		errno = ENOMEM;
		return NULL;
	}
	conn->ec.efd.fd = fd;
	conn->phase = phase;
	conn->next = conns;
	if (conns)
		conns->prev = conn;
	conns = conn;
	return conn;
}

struct cm_conn *cm_conn_next(struct cm_conn *conn)
{
	return conn ? conn->next : conns;
}

int cm_conn_watch(struct cm_conn *conn, void (*ready)(struct engine_fd *efd, uint32_t events),
		  uint32_t events)
{
	struct engine_fd *efd = &conn->ec.efd;

	efd->ready = ready;
	if (efd->slot)
		return engine_fd_mod(efd, events);
	if (!events)
		return 0;
	efd->events = events;
	return engine_fd_add(efd);
}

/* Forget QP and link; the socket stays. */
static void detach(struct cm_conn *conn)
{
	struct host_qp *qp = conn->ec.qp;

	engine_timer_cancel(&conn->timer);
	engine_timer_cancel(&conn->first);
	engine_conn_del(&conn->ec);
	if (qp && qp->conn == conn)
		qp->conn = NULL;
	if (conn->link) {
		ea_tcp_destroy(conn->link, false);
		conn->link = NULL;
	}
	if (conn->oob)
		oob_conn_gone(conn);
	if (conn->id)
		conn->id->conn = NULL;
	conn->id = NULL;
	conn->listener = NULL;
}

void cm_conn_free(struct cm_conn *conn)
{
	detach(conn);
	if (conn->prev)
		conn->prev->next = conn->next;
	else
		conns = conn->next;
	if (conn->next)
		conn->next->prev = conn->prev;
	host_fd_unhide_close(conn->ec.efd.fd);
	free(conn);
}

/* ------------------------------------------------------------------ lingering */

/* Throw input away.  True: the stream has ended. */
static bool drain(int fd)
{
	char waste[4096];
	size_t left = DRAIN_BYTES;
	ssize_t n;

	while (left >= sizeof(waste)) {
		n = recv(fd, waste, sizeof(waste), MSG_DONTWAIT);
		if (n <= 0)
			return n == 0 || (errno != EAGAIN && errno != EINTR);
		left -= (size_t)n < left ? (size_t)n : left;
	}
	return false;
}

static void linger_input(struct engine_fd *efd, uint32_t events)
{
	(void)events;
	if (drain(efd->fd))
		cm_conn_free(container_of(efd, struct cm_conn, ec.efd));
}

static void linger_timeout(struct engine_timer *timer)
{
	cm_conn_free(container_of(timer, struct cm_conn, timer));
}

/*
 * close() with input unread, or before input that still comes, resets the connection, and the reset
 * may overtake data that the peer has not taken.
 */
void cm_conn_linger(struct cm_conn *conn)
{
	detach(conn);
	conn->phase = CONN_LINGER;
	shutdown(conn->ec.efd.fd, SHUT_WR);
	if (drain(conn->ec.efd.fd) || cm_conn_watch(conn, linger_input, EPOLLIN)) {
		cm_conn_free(conn);
		return;
	}
	conn->timer.fire = linger_timeout;
	engine_timer_set(&conn->timer, LINGER_NS);
}

/* ------------------------------------------------------------------ data phase */

static void tell_disconnected(struct cm_conn *conn)
{
	if (conn->told)
		return;
	conn->told = true;
	if (!conn->id)
		return;
	conn->id->state = CM_DISCONNECT;
	cm_id_event(conn->id, CM_DISCONNECTED, 0);
}

static void notify(struct ea_link *link, void *ctx)
{
	struct cm_conn *conn = ctx;

	(void)link;
	conn->notified = true;
	engine_conn_ready(&conn->ec);
}

static void closing_timeout(struct engine_timer *timer)
{
	struct cm_conn *conn = container_of(timer, struct cm_conn, timer);

	ea_tcp_hangup(conn->link, ETIMEDOUT);
	engine_conn_ready(&conn->ec);
}

static void held_timeout(struct engine_timer *timer)
{
	struct cm_conn *conn = container_of(timer, struct cm_conn, timer);

	ea_tcp_hangup(conn->link, ECONNRESET);
	engine_conn_ready(&conn->ec);
}

static bool first_fpdu_seen(const struct cm_conn *conn)
{
	struct ea_tcp_stats stats;

	ea_tcp_stats(conn->link, &stats);
	return stats.rx_fpdus;
}

static bool all_sent(const struct cm_conn *conn)
{
	int queued = 0;

	return ioctl(conn->ec.efd.fd, SIOCOUTQ, &queued) || !queued;
}

static void first_is_late(struct engine_timer *timer)
{
	struct cm_conn *conn = container_of(timer, struct cm_conn, first);
	struct tcp_info info = { .tcpi_last_ack_recv = FIRST_MS };
	socklen_t len = sizeof(info);

	if (conn->phase != CONN_OPEN || first_fpdu_seen(conn))
		return;
	getsockopt(conn->ec.efd.fd, IPPROTO_TCP, TCP_INFO, &info, &len);
	if (!all_sent(conn) || info.tcpi_last_ack_recv < FIRST_MS) {
		engine_timer_set(timer, FIRST_MS * CM_MSEC);
		return;
	}
	conn->rx_first = false;
	conn->notified = true;
	engine_conn_ready(&conn->ec);
}

static void nudge(struct engine_timer *timer)
{
	struct cm_conn *conn = container_of(timer, struct cm_conn, first);

	if (conn->phase != CONN_OPEN || first_fpdu_seen(conn) || ea_tcp_nudge(conn->link) == EPIPE)
		return;
	conn->nudge_ns *= 5;
	if (conn->nudge_ns <= NUDGE_MAX_NS)
		engine_timer_set(&conn->first, conn->nudge_ns);
}

static void progress_rx(struct cm_conn *conn)
{
	conn->rx_wait = ea_tcp_progress_rx(conn->link, RX_BUDGET);
	if (!(conn->rx_wait & EA_TCP_HELD) && conn->held_end) {
		conn->held_end = false;
		engine_timer_cancel(&conn->timer);
	}
	if (conn->rx_first && first_fpdu_seen(conn)) {
		conn->rx_first = false;
		conn->notified = true;
	}
}

/* Over: the id hears it, the socket lingers until the peer has ended too. */
static uint32_t link_over(struct cm_conn *conn)
{
	int err = ea_tcp_error(conn->link);

	if (err)
		host_log(HOST_LOG_INFO, "connection of QP %u: %s", conn->qpn, strerror(err));
	tell_disconnected(conn);
	if (ea_tcp_peer_closed(conn->link) || err)
		cm_conn_free(conn);
	else
		cm_conn_linger(conn);
	return ENGINE_CONN_GONE;
}

static void gone_timeout(struct engine_timer *timer)
{
	struct cm_conn *conn = container_of(timer, struct cm_conn, timer);

	/* the first work request that waits has the cause in its completion */
	ea_tcp_hangup(conn->link, ETIMEDOUT);
	engine_conn_ready(&conn->ec);
}

/*
 * The peer has left a link that its end of stream does not end.  Receives that are posted stay;
 * what is to be sent fails after the time that the program gave for a peer that does not answer.
 */
static uint32_t peer_has_left(struct cm_conn *conn)
{
	struct host_qp *qp = conn->ec.qp;
	uint64_t patience;

	conn->rx_wait = 0;
	conn->tx_wait = 0;
	if (!qp || !ea_qp_sends_pending(qp->core) || conn->timer.due_ns)
		return 0;
	patience = oob_patience(qp);
	if (patience != UINT64_MAX) {
		conn->timer.fire = gone_timeout;
		engine_timer_set(&conn->timer, patience);
	}
	return 0;
}

static uint32_t conn_progress(struct engine_conn *ec, uint32_t what)
{
	struct cm_conn *conn = container_of(ec, struct cm_conn, ec);
	bool notified = conn->notified;
	uint32_t ret = 0;

	conn->notified = false;
	if ((what & EPOLLRDHUP) && (conn->rx_wait & EA_TCP_HELD) && !conn->held_end) {
		conn->held_end = true;
		conn->timer.fire = held_timeout;
		engine_timer_set(&conn->timer, HELD_NS);
	}
	if ((what & EPOLLIN) || (conn->rx_wait & (EA_TCP_MORE | EA_TCP_HELD)) ||
	    conn->phase == CONN_CLOSING)
		progress_rx(conn);
	if (ea_tcp_peer_closed(conn->link) && ea_tcp_state(conn->link) == EA_TCP_OPEN)
		return peer_has_left(conn);
	notified |= conn->notified;
	/* a full socket is asked again when it says so, not at each post */
	if (ea_tcp_state(conn->link) == EA_TCP_OPEN && (conn->tx_wait & EA_TCP_WAIT_OUT))
		notified = false;
	if (notified || (what & EPOLLOUT) || (conn->tx_wait & EA_TCP_MORE)) {
		if (conn->rx_first && ea_tcp_state(conn->link) == EA_TCP_OPEN) {
			conn->tx_wait = 0;
		} else {
			conn->notified = false;
			conn->tx_wait = ea_tcp_progress_tx(conn->link, TX_BUDGET);
			if (!conn->sent)
				cm_alive_sent(conn);
		}
	}
	if (ea_tcp_state(conn->link) == EA_TCP_CLOSED)
		return link_over(conn);
	if (ea_tcp_state(conn->link) == EA_TCP_CLOSING && conn->phase == CONN_OPEN) {
		conn->phase = CONN_CLOSING;
		tell_disconnected(conn);
		conn->timer.fire = closing_timeout;
		engine_timer_set(&conn->timer, CLOSING_NS);
		/* the link has more to do in this state */
		ret |= ENGINE_CONN_MORE;
		conn->notified = true;
	}
	if (conn->rx_wait & EA_TCP_WAIT_IN)
		ret |= EPOLLIN;
	if (conn->rx_wait & EA_TCP_HELD)
		ret |= ENGINE_CONN_HELD | (conn->held_end ? 0 : EPOLLRDHUP);
	if (conn->tx_wait & EA_TCP_WAIT_OUT)
		ret |= EPOLLOUT;
	if ((conn->rx_wait | conn->tx_wait) & EA_TCP_MORE)
		ret |= ENGINE_CONN_MORE;
	return ret;
}

int cm_conn_open(struct cm_conn *conn, struct host_qp *qp, const struct ea_mpa_terms *terms,
		 bool active, const void *extra, size_t extra_len)
{
	struct ea_conn_attr attr = {
		.ord = (uint8_t)(terms->ord < EA_MAX_ORD ? terms->ord : EA_MAX_ORD),
		.ird = (uint8_t)(terms->ird < EA_MAX_IRD ? terms->ird : EA_MAX_IRD),
		.acks = conn->oob,
	};
	struct ea_tcp_attr tcp = {
		.fd = conn->ec.efd.fd,
		.crc = terms->crc,
		.mulpdu = host_settings()->mulpdu ? host_settings()->mulpdu :
			  terms->large_fpdu	  ? EA_MULPDU_MAX :
						    0,
		.keep_at_end = conn->oob,
		.rx_data = extra,
		.rx_len = extra_len,
		.notify = notify,
		.ctx = conn,
	};
	int ret;

	conn->link = ea_tcp_create(&tcp);
	if (!conn->link)
		return -errno;
	engine_qp_sync(qp);
	conn->ec.qp = qp;
	conn->ec.progress = conn_progress;
	ret = engine_conn_add(&conn->ec);
	if (ret)
		goto err_link;
	ret = -ea_qp_connect(qp->dev->core, qp->qpn, conn->link, &attr);
	if (ret)
		goto err_engine;
	qp->conn = conn;
	conn->qpn = qp->qpn;
	if (conn->id)
		conn->id->qpn = qp->qpn;
	conn->phase = CONN_OPEN;
	conn->rx_first = !active;
	if (conn->rx_first && !terms->rtr && conn->req.enhanced) {
		conn->first.fire = first_is_late;
		engine_timer_set(&conn->first, FIRST_MS * CM_MSEC);
	} else if (active && qp->dev->mode == HOST_IWARP) {
		conn->nudge_ns = NUDGE_NS;
		conn->first.fire = nudge;
		engine_timer_set(&conn->first, NUDGE_NS);
	}
	conn->rx_wait = EA_TCP_MORE;
	conn->tx_wait = EA_TCP_MORE;
	return 0;

err_engine:
	engine_conn_del(&conn->ec);
err_link:
	conn->ec.qp = NULL;
	ea_tcp_destroy(conn->link, false);
	conn->link = NULL;
	return ret;
}

/* ------------------------------------------------------------------ ends from this side */

void cm_qp_leaving(struct host_qp *qp, enum ea_qp_state to)
{
	struct cm_conn *conn = qp->conn;

	(void)to;
	engine_qp_watch(qp);
	oob_qp_leaving(qp);
	if (!conn)
		return;
	tell_disconnected(conn);
	/* what the core asks of the link is done when the lock is given back */
	engine_conn_ready(&conn->ec);
}

void cm_qp_destroyed(struct host_qp *qp)
{
	struct cm_conn *conn = qp->conn;

	oob_qp_leaving(qp);
	if (!conn)
		return;
	engine_qp_sync(qp);
	tell_disconnected(conn);
	engine_conn_detach(&conn->ec);
	qp->conn = NULL;
	engine_conn_ready(&conn->ec);
}

void cm_conn_abandon(struct cm_conn *conn)
{
	struct host_qp *qp = conn->ec.qp;

	conn->id->conn = NULL;
	conn->id = NULL;
	switch (conn->phase) {
	case CONN_OPEN:
	case CONN_CLOSING:
		if (conn->phase == CONN_OPEN && qp) {
			engine_qp_watch(qp);
			ea_qp_modify(qp->dev->core, qp->qpn, EA_QP_ERROR);
		}
		engine_conn_ready(&conn->ec);
		break;
	case CONN_PENDING:
		/* an undecided request is refused */
		cm_setup_refuse(conn);
		break;
	default:
		cm_conn_linger(conn);
	}
}

/* ------------------------------------------------------------------ life of the process */

/*
 * A process that ends while data is on its way: what TCP has taken is sent, and the peer sees an
 * orderly end instead of a reset.  Bounded, for a peer that does not read; and for a program whose
 * signal handler calls exit() in the middle of a call that holds the lock.
 */
static void __attribute__((destructor)) cm_exit(void)
{
	static const struct timespec step = { .tv_nsec = 1000000 };
	uint64_t end = engine_now() + EXIT_NS;
	struct cm_conn *conn, *next;
	unsigned int left;

	while (!engine_trylock()) {
		if (engine_now() >= end)
			return;
		nanosleep(&step, NULL);
	}
	if (!conns) {
		engine_unlock();
		return;
	}
	for (conn = conns; conn; conn = conn->next) {
		if (conn->phase == CONN_OPEN && !conn->rx_first)
			ea_tcp_progress_tx(conn->link, TX_BUDGET);
		shutdown(conn->ec.efd.fd, SHUT_WR);
	}
	engine_park();
	for (;;) {
		left = 0;
		for (conn = conns; conn; conn = next) {
			next = conn->next;
			if (!drain(conn->ec.efd.fd) || !all_sent(conn))
				left++;
		}
		if (!left || engine_now() >= end)
			break;
		nanosleep(&step, NULL);
	}
	engine_unlock();
}

void cm_conns_forget(void)
{
	conns = NULL;
	cm_alive_forget();
}

void cm_fork_child(void)
{
	cm_ids_forget();
	cm_conns_forget();
	ucma_files_forget();
	oob_forget();
}
