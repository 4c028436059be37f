// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Listeners.  The backlog of rdma_listen() counts requests, so the socket's own is as long as may
 * be.
 */
#include <errno.h>
#include <sys/epoll.h>
#include "adapter/process/cm/cm.h"

enum {
	ACCEPT_BATCH = 16,
	TCP_BACKLOG = 4096, /* the kernel cuts it to net.core.somaxconn */
	RETRY_MSEC = 50,
};

static void accept_some(struct engine_fd *efd, uint32_t events)
{
	struct cm_id *id = container_of(efd, struct cm_id, efd);
	int fd, i;

	(void)events;
	for (i = 0; i < ACCEPT_BATCH; i++) {
		fd = accept4(efd->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			if (errno != EMFILE && errno != ENFILE && errno != ENOMEM &&
			    errno != ENOBUFS)
				return;
			/* the socket stays readable: do not spin on it */
			host_log(HOST_LOG_ERROR,
				 "no descriptor for a connection to %s; trying again",
				 cm_addr_text(&id->src));
			engine_fd_mod(efd, 0);
			engine_timer_set(&id->retry, RETRY_MSEC * CM_MSEC);
			return;
		}
		fd = host_fd_hide(fd);
		if (fd >= 0)
			cm_setup_accepted(id, fd);
	}
}

static void retry(struct engine_timer *timer)
{
	struct cm_id *id = container_of(timer, struct cm_id, retry);

	engine_fd_mod(&id->efd, EPOLLIN);
}

int cm_listen(struct cm_id *id, int backlog)
{
	static const int one = 1;
	int ret;

	/* sockets of connections inherit it; see cm_bind() */
	setsockopt(id->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (listen(id->fd, TCP_BACKLOG))
		return -errno;
	id->efd = (struct engine_fd){ .fd = id->fd, .events = EPOLLIN, .ready = accept_some };
	ret = engine_fd_add(&id->efd);
	if (ret)
		return ret;
	id->retry.fire = retry;
	id->backlog = (unsigned int)backlog;
	id->waiting = 0;
	id->state = CM_LISTENING;
	return 0;
}

void cm_listen_stop(struct cm_id *id)
{
	if (id->state != CM_LISTENING)
		return;
	engine_timer_cancel(&id->retry);
	engine_fd_del(&id->efd);
	cm_setup_listener_gone(id);
}
