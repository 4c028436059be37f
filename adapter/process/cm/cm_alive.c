// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Peers that vanish with data under way.
 *
 * An idle connection has keep-alive.  While data is unacknowledged TCP itself goes on trying for a
 * quarter of an hour, and TCP_USER_TIMEOUT, which bounds that, also ends connections to a peer that
 * lives but takes nothing: a receiver without receive work requests may keep a sender waiting as
 * long as it likes.  So whoever has sent something is looked at now and then, until all of it is
 * acknowledged: no sign of life at all for a while means that the peer is gone.  A program that has
 * connected its queue pair itself has said how long that is, but no less than a retransmission or two of
 * TCP take.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include "adapter/process/cm/oob.h"

#define LOOK_MIN_NS (CM_SEC / 2)
#define LOOK_NS	    (5 * CM_SEC)
#define GONE_MIN_NS (2 * CM_SEC)
#define GONE_NS	    (20 * CM_SEC)

static struct engine_timer look;

static uint64_t patience_with(const struct cm_conn *conn)
{
	uint64_t patience = conn->ec.qp ? oob_patience(conn->ec.qp) : 0;

	if (!patience)
		return GONE_NS;
	return patience > GONE_MIN_NS ? patience : GONE_MIN_NS;
}

/* True: look again. */
static bool look_at(struct cm_conn *conn, uint64_t now)
{
	uint64_t patience = patience_with(conn);
	struct tcp_info info;
	socklen_t len = sizeof(info);

	if (getsockopt(conn->ec.efd.fd, IPPROTO_TCP, TCP_INFO, &info, &len) || !info.tcpi_unacked) {
		conn->unacked_since = 0;
		/* data that waits for the peer's window is under way too */
		if (!(conn->tx_wait & EA_TCP_WAIT_OUT))
			conn->sent = false;
		return conn->sent;
	}
	if (!conn->unacked_since)
		conn->unacked_since = now;
	if (now - conn->unacked_since < patience || info.tcpi_last_ack_recv * CM_MSEC < patience)
		return true;
	host_log(HOST_LOG_INFO, "connection of QP %u: no sign of the peer for %u ms", conn->qpn,
		 info.tcpi_last_ack_recv);
	conn->sent = false;
	ea_tcp_hangup(conn->link, ETIMEDOUT);
	engine_conn_ready(&conn->ec);
	return false;
}

/* A peer that lives is asked after seldom, and one whose time is short is not missed by much. */
static uint64_t look_delay(const struct cm_conn *conn)
{
	uint64_t delay = patience_with(conn) / 4;

	if (delay < LOOK_MIN_NS)
		return LOOK_MIN_NS;
	return delay < LOOK_NS ? delay : LOOK_NS;
}

static void look_around(struct engine_timer *timer)
{
	uint64_t now = engine_now(), next = UINT64_MAX;
	struct cm_conn *conn;

	for (conn = cm_conn_next(NULL); conn; conn = cm_conn_next(conn))
		if (conn->sent && conn->phase == CONN_OPEN && look_at(conn, now) &&
		    look_delay(conn) < next)
			next = look_delay(conn);
	if (next != UINT64_MAX)
		engine_timer_set(timer, next);
}

void cm_alive_sent(struct cm_conn *conn)
{
	uint64_t delay = look_delay(conn);

	conn->sent = true;
	look.fire = look_around;
	if (!look.due_ns || look.due_ns > engine_now() + delay)
		engine_timer_set(&look, delay);
}

void cm_alive_forget(void)
{
	look = (struct engine_timer){};
}
