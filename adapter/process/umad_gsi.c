// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* QP 1 of a RoCE port: MADs in RoCEv2 packets, sent and received by UDP sockets. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "adapter/process/gid.h"
#include "adapter/process/libc.h"
#include "adapter/process/umad.h"

#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif
/* linux/in6.h, which does not go with netinet/in.h */
#define GSI_IPV6_FLOWINFO 11

enum {
	RECV_BATCH = 64, /* then others get their turn */
	RECV_BUFFER = 4 << 20,
	CONTROL_LEN = 256,
	FLOW_LABEL_MASK = 0xfffff,
};

union sock_addr {
	struct sockaddr sa;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* The socket address of a GID; its length. */
static socklen_t addr_of_gid(union sock_addr *addr, const uint8_t gid[HOST_GID_LEN], int ifindex,
			     uint16_t port)
{
	memset(addr, 0, sizeof(*addr));
	if (ea_gid_is_ipv4(gid)) {
		addr->v4.sin_family = AF_INET;
		addr->v4.sin_port = htons(port);
		memcpy(&addr->v4.sin_addr, gid + 12, 4);
		return sizeof(addr->v4);
	}
	addr->v6.sin6_family = AF_INET6;
	addr->v6.sin6_port = htons(port);
	memcpy(&addr->v6.sin6_addr, gid, HOST_GID_LEN);
	if (gid_is_link_local(gid))
		addr->v6.sin6_scope_id = ifindex;
	return sizeof(addr->v6);
}

static uint16_t port_of_addr(const union sock_addr *addr)
{
	return ntohs(addr->sa.sa_family == AF_INET6 ? addr->v6.sin6_port : addr->v4.sin_port);
}

/* ------------------------------------------------------------------ receive */

static void read_control(struct msghdr *msg, struct gsi_addr *from)
{
	struct cmsghdr *c;
	int value;

	for (c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_len < CMSG_LEN(1))
			continue;
		value = *CMSG_DATA(c);
		if (c->cmsg_len >= CMSG_LEN(sizeof(value)))
			memcpy(&value, CMSG_DATA(c), sizeof(value));
		if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TTL) ||
		    (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_HOPLIMIT))
			from->hop_limit = value;
		else if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) ||
			 (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS))
			from->traffic_class = value;
		else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == GSI_IPV6_FLOWINFO)
			from->flow_label = ntohl(value) & FLOW_LABEL_MASK;
	}
}

/* One datagram; false: there is none. */
static bool receive_one(struct gsi_sock *sock)
{
	struct umad_port *port = sock->port;
	uint8_t pkt[EA_GSI_LEN + 1]; /* one more shows what is too long */
	_Alignas(struct cmsghdr) uint8_t control[CONTROL_LEN];
	union sock_addr source;
	struct iovec iov = { pkt, sizeof(pkt) };
	struct msghdr msg = {
		.msg_name = &source,
		.msg_namelen = sizeof(source),
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct gsi_addr from = { .gid_index = sock->index };
	struct ea_gsi_path path = { .dport = EA_GSI_UDP_PORT };
	enum ea_gsi_verdict verdict;
	struct ea_gsi_head head;
	ssize_t len;

	memset(&source, 0, sizeof(source));
	len = REAL(recvmsg)(sock->efd.fd, &msg, MSG_DONTWAIT);
	if (len < 0)
		return errno == EINTR;
	if (source.sa.sa_family != AF_INET && source.sa.sa_family != AF_INET6) {
		port->gsi.stats.bad[EA_GSI_GOOD]++;
		return true;
	}
	gid_of_sockaddr(path.sgid, &source.sa);
	memcpy(path.dgid, sock->gid, HOST_GID_LEN);
	path.sport = port_of_addr(&source);
	verdict = ea_gsi_decode(pkt, len, &path, &head);
	if (verdict != EA_GSI_GOOD) {
		port->gsi.stats.bad[verdict]++;
		return true;
	}
	port->gsi.stats.received++;
	memcpy(from.gid, path.sgid, HOST_GID_LEN);
	from.qpn = head.src_qp;
	read_control(&msg, &from);
	umad_port_receive(port, &from, head.mad);
	return true;
}

static void sock_ready(struct engine_fd *efd, uint32_t events)
{
	struct gsi_sock *sock = (struct gsi_sock *)((char *)efd - offsetof(struct gsi_sock, efd));
	int i;

	(void)events;
	for (i = 0; i < RECV_BATCH && receive_one(sock); i++)
		;
}

/* ------------------------------------------------------------------ sockets */

static void sock_option(int fd, int level, int name, int value)
{
	/* what a kernel lacks costs a field of the header or some speed */
	REAL(setsockopt)(fd, level, name, &value, sizeof(value));
}

static void sock_options(int fd, bool v4)
{
	sock_option(fd, SOL_SOCKET, SO_RCVBUF, RECV_BUFFER);
	if (v4) {
		/* DF, and so identification 0: see adapter/wire/gsi.h */
		sock_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
		sock_option(fd, IPPROTO_IP, IP_RECVTTL, 1);
		sock_option(fd, IPPROTO_IP, IP_RECVTOS, 1);
		return;
	}
	sock_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
	sock_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	sock_option(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
	sock_option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
	sock_option(fd, IPPROTO_IPV6, GSI_IPV6_FLOWINFO, 1);
	/* RoCE devices send no UDP checksum; the ICRC covers more */
	sock_option(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
}

static int sock_bind(int fd, const struct gsi_sock *sock, uint16_t port)
{
	union sock_addr addr;
	socklen_t len = addr_of_gid(&addr, sock->gid, sock->ifindex, port);

	return REAL(bind)(fd, &addr.sa, len) ? -errno : 0;
}

static void sock_close(struct gsi_sock *sock)
{
	if (!sock->open)
		return;
	engine_fd_del(&sock->efd);
	host_fd_unhide_close(sock->efd.fd);
	sock->open = sock->deaf = false;
}

static void sock_open(struct gsi_sock *sock)
{
	bool v4 = ea_gid_is_ipv4(sock->gid);
	char text[INET6_ADDRSTRLEN];
	int fd, err;

	fd = REAL(socket)(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	fd = host_fd_hide(fd);
	if (fd < 0)
		return;
	sock_options(fd, v4);
	err = sock_bind(fd, sock, EA_GSI_UDP_PORT);
	sock->deaf = err == -EADDRINUSE;
	if (sock->deaf)
		err = sock_bind(fd, sock, 0);
	if (!err) {
		sock->efd = (struct engine_fd){ .fd = fd, .events = EPOLLIN, .ready = sock_ready };
		err = engine_fd_add(&sock->efd);
	}
	if (!err) {
		sock->open = true;
		return;
	}
	/* a tentative IPv6 address: the next notice about it makes another try */
	host_log(HOST_LOG_DEBUG, "%s: no socket on %s: %s", sock->port->dev->dev.name,
		 gid_text(sock->gid, text), strerror(-err));
	host_fd_unhide_close(fd);
}

void gsi_sync(struct umad_port *port)
{
	struct umad_gid table[UMAD_GIDS];
	struct gsi_sock *sock;
	int i;

	umad_gid_table(port->dev, table);
	for (i = 0; i < UMAD_GIDS; i++) {
		sock = &port->gsi.socks[i];
		/* one that another process had may be free by now */
		if (sock->open && (sock->deaf || !table[i].ifindex ||
				   memcmp(sock->gid, table[i].gid, HOST_GID_LEN)))
			sock_close(sock);
		if (sock->open || !table[i].ifindex)
			continue;
		sock->port = port;
		sock->index = i;
		sock->ifindex = table[i].ifindex;
		memcpy(sock->gid, table[i].gid, HOST_GID_LEN);
		sock_open(sock);
	}
}

const struct gsi_sock *gsi_deaf(const struct umad_port *port)
{
	int i;

	for (i = 0; i < UMAD_GIDS; i++) {
		if (port->gsi.socks[i].open && port->gsi.socks[i].deaf)
			return &port->gsi.socks[i];
	}
	return NULL;
}

/* ------------------------------------------------------------------ addresses come and go */

static void watch_ready(struct engine_fd *efd, uint32_t events)
{
	struct gsi *gsi = (struct gsi *)((char *)efd - offsetof(struct gsi, watch));
	struct umad_port *port =
		(struct umad_port *)((char *)gsi - offsetof(struct umad_port, gsi));
	char notice[4096];

	(void)events;
	/* also after an overrun: what they say is read anew anyway */
	while (REAL(recv)(efd->fd, notice, sizeof(notice), MSG_DONTWAIT) > 0 || errno == ENOBUFS)
		errno = 0;
	gsi_sync(port);
}

static void watch_open(struct gsi *gsi)
{
	struct sockaddr_nl addr = {
		.nl_family = AF_NETLINK,
		.nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_LINK,
	};
	int fd = REAL(socket)(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

	gsi->watch.fd = -1;
	fd = host_fd_hide(fd);
	if (fd < 0)
		return;
	gsi->watch = (struct engine_fd){ .fd = fd, .events = EPOLLIN, .ready = watch_ready };
	if (REAL(bind)(fd, (struct sockaddr *)&addr, sizeof(addr)) || engine_fd_add(&gsi->watch)) {
		host_fd_unhide_close(fd);
		gsi->watch.fd = -1;
	}
}

void gsi_open(struct umad_port *port)
{
	watch_open(&port->gsi);
	gsi_sync(port);
}

void gsi_close(struct umad_port *port)
{
	struct gsi *gsi = &port->gsi;
	int i;

	if (gsi->watch.fd >= 0) {
		engine_fd_del(&gsi->watch);
		host_fd_unhide_close(gsi->watch.fd);
	}
	for (i = 0; i < UMAD_GIDS; i++)
		sock_close(&gsi->socks[i]);
}

/* ------------------------------------------------------------------ send */

static void put_traffic_class(struct msghdr *msg, uint8_t *control, bool v4, int value)
{
	struct cmsghdr *c = (struct cmsghdr *)control;

	msg->msg_control = control;
	msg->msg_controllen = CMSG_SPACE(sizeof(value));
	c->cmsg_level = v4 ? IPPROTO_IP : IPPROTO_IPV6;
	c->cmsg_type = v4 ? IP_TOS : IPV6_TCLASS;
	c->cmsg_len = CMSG_LEN(sizeof(value));
	memcpy(CMSG_DATA(c), &value, sizeof(value));
}

int gsi_send(struct umad_port *port, const struct gsi_addr *to, const uint8_t mad[EA_MAD_LEN])
{
	_Alignas(struct cmsghdr) uint8_t control[CONTROL_LEN] = { 0 };
	struct ea_gsi_path path = { .dport = EA_GSI_UDP_PORT };
	union sock_addr source = { 0 }, dest;
	socklen_t len = sizeof(source);
	uint8_t pkt[EA_GSI_LEN];
	struct iovec iov = { pkt, sizeof(pkt) };
	struct msghdr msg = { .msg_name = &dest, .msg_iov = &iov, .msg_iovlen = 1 };
	struct gsi_sock *sock;
	bool v4;

	if (to->gid_index >= UMAD_GIDS)
		return -EINVAL;
	sock = &port->gsi.socks[to->gid_index];
	if (!sock->open)
		gsi_sync(port);
	if (!sock->open)
		return -ENODATA;
	v4 = ea_gid_is_ipv4(sock->gid);
	if (v4 != ea_gid_is_ipv4(to->gid))
		return -EINVAL;
	path.sport = EA_GSI_UDP_PORT;
	if (sock->deaf) {
		if (REAL(getsockname)(sock->efd.fd, &source.sa, &len))
			return -errno;
		path.sport = port_of_addr(&source);
	}
	memcpy(path.sgid, sock->gid, HOST_GID_LEN);
	memcpy(path.dgid, to->gid, HOST_GID_LEN);
	ea_gsi_encode(pkt, &path, to->qpn & EA_GSI_QPN_MASK, port->gsi.psn++ & EA_GSI_QPN_MASK,
		      mad);
	msg.msg_namelen = addr_of_gid(&dest, to->gid, sock->ifindex, EA_GSI_UDP_PORT);
	if (to->traffic_class)
		put_traffic_class(&msg, control, v4, to->traffic_class);
	if (REAL(sendmsg)(sock->efd.fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof(pkt)) {
		port->gsi.stats.sent++;
		return 0;
	}
	port->gsi.stats.send_failed++;
	switch (errno) {
	case EAGAIN:
	case ENOBUFS:
	case ENOMEM:
	case EPERM: /* a packet filter's, like one further on */
		return 0;
	case EACCES: /* a broadcast address */
		return -EINVAL;
	default:
		return -ETIMEDOUT;
	}
}
