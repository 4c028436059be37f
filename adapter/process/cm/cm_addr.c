// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Addresses, and the TCP sockets that stand behind them. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <netinet/tcp.h>
#include "adapter/process/cm/cm.h"

enum {
	KEEPALIVE_IDLE = 10, /* seconds without traffic before the peer is asked */
	KEEPALIVE_INTERVAL = 3,
	KEEPALIVE_PROBES = 5,
};

socklen_t cm_addr_len(const union cm_addr *addr)
{
	switch (addr->sa.sa_family) {
	case AF_INET:
		return sizeof(addr->in);
	case AF_INET6:
		return sizeof(addr->in6);
	default:
		return 0;
	}
}

bool cm_addr_any(const union cm_addr *addr)
{
	return addr->sa.sa_family == AF_INET  ? addr->in.sin_addr.s_addr == htonl(INADDR_ANY) :
	       addr->sa.sa_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&addr->in6.sin6_addr) :
						true;
}

__be16 cm_addr_port(const union cm_addr *addr)
{
	/* the port is at the same place in both families */
	return addr->sa.sa_family ? addr->in.sin_port : 0;
}

void cm_addr_set_port(union cm_addr *addr, __be16 port)
{
	addr->in.sin_port = port;
}

void cm_addr_unmap(union cm_addr *addr)
{
	struct sockaddr_in in = { .sin_family = AF_INET };

	if (addr->sa.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&addr->in6.sin6_addr))
		return;
	in.sin_port = addr->in6.sin6_port;
	memcpy(&in.sin_addr, &addr->in6.sin6_addr.s6_addr[12], sizeof(in.sin_addr));
	memset(addr, 0, sizeof(*addr));
	addr->in = in;
}

const char *cm_addr_text(const union cm_addr *addr)
{
	static __thread char text[INET6_ADDRSTRLEN + 16];
	char host[INET6_ADDRSTRLEN] = "?";

	if (addr->sa.sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &addr->in6.sin6_addr, host, sizeof(host));
		snprintf(text, sizeof(text), "[%s]:%u", host, ntohs(addr->in6.sin6_port));
	} else {
		inet_ntop(AF_INET, &addr->in.sin_addr, host, sizeof(host));
		snprintf(text, sizeof(text), "%s:%u", host, ntohs(cm_addr_port(addr)));
	}
	return text;
}

/* A connected datagram socket sends nothing, but the kernel picks route and source for it. */
int cm_addr_source(const union cm_addr *dst, union cm_addr *src)
{
	union cm_addr to = *dst;
	socklen_t len = sizeof(*src);
	int fd, ret = 0;

	if (!cm_addr_port(&to))
		cm_addr_set_port(&to, htons(1));
	fd = socket(to.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, &to.sa, cm_addr_len(&to)) || getsockname(fd, &src->sa, &len))
		ret = -errno;
	close(fd);
	if (!ret)
		cm_addr_set_port(src, 0);
	return ret;
}

/*
 * Keep-alive finds a peer whose machine has gone while nothing is under way.  What is under way is
 * found by TCP's own retransmissions; a receiver that does not take its data is no reason to end a
 * connection.
 */
void cm_socket_tune(int fd)
{
	static const int one = 1, idle = KEEPALIVE_IDLE, interval = KEEPALIVE_INTERVAL,
			 probes = KEEPALIVE_PROBES;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

int cm_socket(int family, int tos)
{
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);

	fd = host_fd_hide(fd);
	if (fd >= 0 && tos != CM_OPT_UNSET) {
		if (family == AF_INET6)
			setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &tos, sizeof(tos));
		else
			setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof(tos));
	}
	return fd;
}

/*
 * The first try goes without SO_REUSEADDR, so that another socket on the port, listening or not, is
 * an error as in the RDMA port space.  TIME_WAIT and established connections of a listener that has
 * gone are none there; they allow the second try because their sockets carried the option
 * (cm_listen() sets it).
 */
static int bind_exclusive(int fd, const union cm_addr *addr)
{
	static const int one = 1;

	if (!bind(fd, &addr->sa, cm_addr_len(addr)))
		return 0;
	if (errno != EADDRINUSE)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	return bind(fd, &addr->sa, cm_addr_len(addr)) ? -errno : 0;
}

int cm_bind(struct cm_id *id)
{
	static const int one = 1;
	socklen_t len = sizeof(id->src);
	int fd, ret;

	fd = cm_socket(id->src.sa.sa_family, id->tos);
	if (fd < 0)
		return fd;
	if (id->src.sa.sa_family == AF_INET6 && id->afonly != CM_OPT_UNSET)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &id->afonly, sizeof(id->afonly));
	if (id->reuseaddr) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		ret = bind(fd, &id->src.sa, cm_addr_len(&id->src)) ? -errno : 0;
	} else {
		ret = bind_exclusive(fd, &id->src);
	}
	if (!ret && getsockname(fd, &id->src.sa, &len))
		ret = -errno;
	if (ret) {
		host_fd_unhide_close(fd);
		return ret;
	}
	id->fd = fd;
	return 0;
}
