// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Port events: the interface goes up or down, and every open context is told. */
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <infiniband/verbs.h>
#include "adapter/process/device.h"
#include "adapter/process/libc.h"
#include "adapter/process/uverbs_internal.h"

enum {
	NEWS_MAX = 8192,
	NEWS_PER_CALL = 16
};

static void tell(struct uverbs_dev *uv, bool up)
{
	struct ib_uverbs_async_event_desc event = {
		.element = 1, /* the port */
		.event_type = up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR,
	};
	struct host_ctx *ctx;

	for (ctx = uv->contexts; ctx; ctx = ctx->next) {
		if (ctx->async)
			host_evq_push(ctx->async, &event);
	}
}

static void one_link(struct uverbs_dev *uv, const struct nlmsghdr *msg)
{
	const struct ifinfomsg *info = NLMSG_DATA(msg);
	const unsigned int need = IFF_UP | IFF_RUNNING;
	bool up;

	if (msg->nlmsg_len < NLMSG_LENGTH(sizeof(*info)) || info->ifi_index != uv->dev->ifindex)
		return;
	up = msg->nlmsg_type == RTM_NEWLINK && (info->ifi_flags & need) == need;
	if (up == uv->port_up)
		return;
	uv->port_up = up;
	tell(uv, up);
}

static void news(struct engine_fd *efd, uint32_t events)
{
	struct uverbs_dev *uv = uv_container_of(efd, struct uverbs_dev, links);
	char buf[NEWS_MAX] __attribute__((aligned(8)));
	struct device_link link;
	int rounds;

	(void)events;
	for (rounds = 0; rounds < NEWS_PER_CALL; rounds++) {
		ssize_t n = REAL(recv)(efd->fd, buf, sizeof(buf), MSG_DONTWAIT);
		const struct nlmsghdr *msg = (const struct nlmsghdr *)buf;

		if (n < 0 && errno == ENOBUFS) {
			/* some news are lost: look for ourselves */
			device_link(uv->dev, &link);
			if (link.up != uv->port_up) {
				uv->port_up = link.up;
				tell(uv, link.up);
			}
			continue;
		}
		if (n <= 0)
			return;
		for (; NLMSG_OK(msg, n); msg = NLMSG_NEXT(msg, n)) {
			if (msg->nlmsg_type == RTM_NEWLINK || msg->nlmsg_type == RTM_DELLINK)
				one_link(uv, msg);
		}
	}
}

void uv_port_watch(struct uverbs_dev *uv)
{
	struct sockaddr_nl addr = { .nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK };
	struct device_link link;
	int fd;

	device_link(uv->dev, &link);
	uv->port_up = link.up;
	uv->links.fd = -1;
	fd = REAL(socket)(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
	if (fd >= 0 && REAL(bind)(fd, (struct sockaddr *)&addr, sizeof(addr))) {
		REAL(close)(fd);
		fd = -1;
	}
	if (fd >= 0)
		fd = host_fd_hide(fd);
	if (fd < 0) {
		host_log(HOST_LOG_INFO, "device %s: no port events: link changes cannot be watched",
			 uv->dev->name);
		return;
	}
	uv->links = (struct engine_fd){ .fd = fd, .events = EPOLLIN, .ready = news };
	engine_lock();
	if (engine_fd_add(&uv->links)) {
		host_fd_unhide_close(fd);
		uv->links.fd = -1;
	}
	engine_unlock();
}
