// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Peers that vanish with data under way.
 *
 * An idle connection has keep-alive.  While data is unacknowledged TCP itself goes on trying for a
 * quarter of an hour, and TCP_USER_TIMEOUT, which bounds that, also ends connections to a peer that
 * lives but takes nothing: a receiver without receive work requests may keep a sender waiting as
 * long as it likes.  So whoever has sent something is looked at now and then, until all of it is
 * acknowledged: no sign of life at all for a while means that the peer is gone.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include "adapter/process/cm/cm.h"

#define LOOK_NS	  (5 * CM_SEC)
#define GONE_NS	  (20 * CM_SEC)
#define GONE_MSEC 20000u

static struct engine_timer look;

/* True: look again. */
static bool look_at(struct cm_conn *conn, uint64_t now)
{
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
	if (now - conn->unacked_since < GONE_NS || info.tcpi_last_ack_recv < GONE_MSEC)
		return true;
	host_log(HOST_LOG_INFO, "connection of QP %u: no sign of the peer for %u ms", conn->qpn,
		 info.tcpi_last_ack_recv);
	conn->sent = false;
	ea_tcp_hangup(conn->link, ETIMEDOUT);
	engine_conn_ready(&conn->ec);
	return false;
}

static void look_around(struct engine_timer *timer)
{
	uint64_t now = engine_now();
	struct cm_conn *conn;
	bool again = false;

	for (conn = cm_conn_next(NULL); conn; conn = cm_conn_next(conn))
		if (conn->sent && conn->phase == CONN_OPEN && look_at(conn, now))
			again = true;
	if (again)
		engine_timer_set(timer, LOOK_NS);
}

void cm_alive_sent(struct cm_conn *conn)
{
	conn->sent = true;
	look.fire = look_around;
	if (!look.due_ns)
		engine_timer_set(&look, LOOK_NS);
}

void cm_alive_forget(void)
{
	look = (struct engine_timer){};
}
