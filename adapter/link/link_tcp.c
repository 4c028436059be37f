// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Life of a TCP link: creation, what the core asks for, the end.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "adapter/link/link_tcp_internal.h"

static void op_tx_ready(struct ea_link *link)
{
	struct ea_tcp *tcp = to_tcp(link);

	tcp->tx.ready = true;
	tcp->notify(link, tcp->ctx);
}

static void op_rx_resume(struct ea_link *link)
{
	struct ea_tcp *tcp = to_tcp(link);

	tcp->rx.resume = true;
	tcp->notify(link, tcp->ctx);
}

/*
 * ABORT does not reset the connection: work requests complete when the kernel has taken their
 * bytes, and a reset would destroy those bytes.  The stream ends after them.
 */
static void op_shutdown(struct ea_link *link, enum ea_shutdown how)
{
	struct ea_tcp *tcp = to_tcp(link);

	ea_tcp_keep_rest(tcp);
	tcp->closing = true;
	tcp->tx.ready = true;
	tcp->tx.term_due = how == EA_SHUT_TERMINATE;
	if (how == EA_SHUT_ABORT) {
		tcp->link.qp = NULL;
		tcp->down = true;
	}
	tcp->notify(link, tcp->ctx);
}

static const struct ea_link_ops tcp_ops = {
	.tx_ready = op_tx_ready,
	.rx_resume = op_rx_resume,
	.shutdown = op_shutdown,
};

/* Sockets that know no segment size (a socket pair) take the longest FPDU. */
static uint32_t default_mulpdu(int fd)
{
	socklen_t len = sizeof(int);
	int mss;

	if (getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &mss, &len) || mss <= 0)
		return EA_MULPDU_MAX;
	return ea_fpdu_mulpdu(mss);
}

static void link_free(struct ea_tcp *tcp)
{
	free(tcp->rx.copy);
	free(tcp->tx.copies);
	free(tcp->tx.rest);
	free(tcp);
}

/* Is the peer the same address, or is it reached by loopback? */
static bool within_host(int fd)
{
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} own = { 0 }, peer = { 0 };
	socklen_t own_len = sizeof(own), peer_len = sizeof(peer);

	if (getsockname(fd, &own.sa, &own_len) || getpeername(fd, &peer.sa, &peer_len) ||
	    own.sa.sa_family != peer.sa.sa_family)
		return false;
	switch (peer.sa.sa_family) {
	case AF_INET:
		return own.in.sin_addr.s_addr == peer.in.sin_addr.s_addr ||
		       ntohl(peer.in.sin_addr.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
	case AF_INET6:
		return IN6_ARE_ADDR_EQUAL(&own.in6.sin6_addr, &peer.in6.sin6_addr) ||
		       (IN6_IS_ADDR_V4MAPPED(&peer.in6.sin6_addr) &&
			peer.in6.sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
	}
	return false;
}

struct ea_link *ea_tcp_create(const struct ea_tcp_attr *attr)
{
	static const char reno[] = "reno"; /* no system is without it */
	struct ea_tcp *tcp;
	int one = 1;

	if (attr->fd < 0 || attr->rx_len > EA_TCP_RX_STAGE ||
	    (attr->mulpdu && (attr->mulpdu < EA_MULPDU_MIN || attr->mulpdu > EA_MULPDU_MAX))) {
		errno = EINVAL;
		return NULL;
	}
	tcp = calloc(1, sizeof(*tcp));
	if (!tcp)
		return NULL;
	if (attr->crc) {
		tcp->tx.copies = malloc(TX_CRC_COPY);
		tcp->rx.copy = malloc(RX_CRC_COPY);
		if (!tcp->tx.copies || !tcp->rx.copy) {
			link_free(tcp);
			errno = ENOMEM;
			return NULL;
		}
	}
	tcp->link.ops = &tcp_ops;
	tcp->fd = attr->fd;
	tcp->crc = attr->crc;
	tcp->align = attr->align;
	tcp->keep = attr->keep_at_end;
	tcp->mulpdu = attr->mulpdu ? attr->mulpdu : default_mulpdu(attr->fd);
	tcp->notify = attr->notify;
	tcp->ctx = attr->ctx;
	tcp->tx.ready = true;
	if (attr->rx_len)
		memcpy(tcp->rx.buf, attr->rx_data, attr->rx_len);
	tcp->rx.tail = attr->rx_len;
	/* fails on sockets that never delay anyway */
	setsockopt(attr->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	/* there is no network to be fair to, and what paces segments (bbr) costs a third of the bandwidth */
	if (within_host(attr->fd))
		setsockopt(attr->fd, IPPROTO_TCP, TCP_CONGESTION, reno, sizeof(reno) - 1);
	return &tcp->link;
}

void ea_tcp_down(struct ea_tcp *tcp, int err)
{
	tcp->closing = true;
	if (tcp->down)
		return;
	tcp->down = true;
	tcp->err = err;
	if (tcp->link.qp)
		ea_link_down(&tcp->link, err);
	tcp->link.qp = NULL;
}

unsigned int ea_tcp_progress(struct ea_link *link, size_t rx_budget, size_t tx_budget)
{
	unsigned int wait = ea_tcp_progress_rx(link, rx_budget);

	return wait | ea_tcp_progress_tx(link, tx_budget);
}

enum ea_tcp_state ea_tcp_state(const struct ea_link *link)
{
	const struct ea_tcp *tcp = to_tcp(link);

	if (ea_tcp_is_closed(tcp))
		return EA_TCP_CLOSED;
	return tcp->closing ? EA_TCP_CLOSING : EA_TCP_OPEN;
}

int ea_tcp_error(const struct ea_link *link)
{
	return to_tcp(link)->err;
}

bool ea_tcp_peer_closed(const struct ea_link *link)
{
	return to_tcp(link)->rx.eof;
}

uint64_t ea_tcp_discarded(const struct ea_link *link)
{
	return to_tcp(link)->discarded;
}

void ea_tcp_hangup(struct ea_link *link, int err)
{
	struct ea_tcp *tcp = to_tcp(link);

	if (ea_tcp_is_closed(tcp))
		return;
	ea_tcp_down(tcp, err);
	tcp->tx.shut = true;
	tcp->rx.eof = true;
	tcp->rx.state = RX_DISCARD;
}

void ea_tcp_destroy(struct ea_link *link, bool reset)
{
	static const struct linger at_once = { .l_onoff = 1, .l_linger = 0 };
	struct ea_tcp *tcp = to_tcp(link);

	if (reset)
		setsockopt(tcp->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	ea_tcp_down(tcp, ECONNABORTED);
	link_free(tcp);
}

void ea_tcp_stats(const struct ea_link *link, struct ea_tcp_stats *stats)
{
	*stats = to_tcp(link)->stats;
}
