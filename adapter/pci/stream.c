// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/link/link_tcp.h"
#include "adapter/pci/func.h"
#include "adapter/pci/stream.h"

enum {
	BUDGET = 256 << 10,	 /* bytes each way in one turn */
	SOCKET_BUFFER = 4 << 20, /* of a pair within the process */
	KEPT_FDS = 2048,	 /* not for streams; or half, if the process may not have many */
};

/* How long the peer may take to end its side, and a held message may hide the peer's end. */
static const uint64_t closing_ns = 5000000000ull;

struct pci_stream {
	struct pci_loop *loop;
	struct pci_streams *all;
	struct pci_stream *prev, *next;
	struct pci_stream *twin; /* the other end of a pair within the process */
	struct ea_link *link;
	struct pci_fd pfd;
	struct pci_work work;
	struct pci_timer timer;
	uint32_t what; /* what the socket said since the last turn */
	unsigned int rx_wait, tx_wait;
	bool notified; /* by the link */
	bool closing;
	bool held_end; /* the peer has ended behind a held message */
};

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static void stream_free(struct pci_stream *s)
{
	if (s->twin)
		s->twin->twin = NULL;
	pci_work_cancel(&s->work);
	pci_timer_cancel(&s->timer);
	pci_fd_del(s->loop, &s->pfd);
	ea_tcp_destroy(s->link, false);
	close(s->pfd.fd);
	if (s->prev)
		s->prev->next = s->next;
	else
		s->all->first = s->next;
	if (s->next)
		s->next->prev = s->prev;
	free(s);
}

static void notify(struct ea_link *link, void *ctx)
{
	struct pci_stream *s = ctx;

	(void)link;
	s->notified = true;
	pci_work_queue(s->loop, &s->work);
}

static void timeout(struct pci_timer *timer)
{
	struct pci_stream *s = container_of(timer, struct pci_stream, timer);

	ea_tcp_hangup(s->link, ECONNRESET);
	stream_free(s);
}

/* A socket nobody waits for is not watched at all: its hang-up would be told again and again. */
static void set_events(struct pci_stream *s, uint32_t events)
{
	if (!events) {
		pci_fd_del(s->loop, &s->pfd);
	} else if (s->pfd.added) {
		pci_fd_mod(s->loop, &s->pfd, events);
	} else {
		s->pfd.events = events;
		if (pci_fd_add(s->loop, &s->pfd))
			ea_tcp_hangup(s->link, ENOMEM);
	}
}

static void wake_twin(struct pci_stream *s, const struct ea_tcp_stats *before)
{
	struct pci_stream *twin = s->twin;
	struct ea_tcp_stats now;
	uint32_t what = 0;

	if (!twin)
		return;
	ea_tcp_stats(s->link, &now);
	if (now.tx_bytes != before->tx_bytes && !(twin->rx_wait & EA_TCP_HELD))
		what |= EPOLLIN;
	if (now.rx_bytes != before->rx_bytes && (twin->tx_wait & EA_TCP_WAIT_OUT))
		what |= EPOLLOUT;
	if (!what)
		return;
	twin->what |= what;
	pci_work_queue(twin->loop, &twin->work);
}

static void turn(struct pci_work *work)
{
	struct pci_stream *s = container_of(work, struct pci_stream, work);
	bool notified = s->notified;
	uint32_t what = s->what, events = 0;
	struct ea_tcp_stats before;

	s->notified = false;
	s->what = 0;
	ea_tcp_stats(s->link, &before);
	if ((what & EPOLLRDHUP) && (s->rx_wait & EA_TCP_HELD) && !s->held_end) {
		s->held_end = true;
		s->timer.fire = timeout;
		pci_timer_set(s->loop, &s->timer, closing_ns);
	}
	if ((what & EPOLLIN) || (s->rx_wait & (EA_TCP_MORE | EA_TCP_HELD)) || s->closing) {
		s->rx_wait = ea_tcp_progress_rx(s->link, BUDGET);
		if (!(s->rx_wait & EA_TCP_HELD) && s->held_end) {
			s->held_end = false;
			pci_timer_cancel(&s->timer);
		}
	}
	notified |= s->notified;
	/* a full socket is asked again when it says so */
	if (ea_tcp_state(s->link) == EA_TCP_OPEN && (s->tx_wait & EA_TCP_WAIT_OUT))
		notified = false;
	if (notified || (what & EPOLLOUT) || (s->tx_wait & EA_TCP_MORE) || s->closing) {
		s->notified = false;
		s->tx_wait = ea_tcp_progress_tx(s->link, BUDGET);
	}
	wake_twin(s, &before);
	if (ea_tcp_state(s->link) == EA_TCP_CLOSED) {
		stream_free(s);
		return;
	}
	if (ea_tcp_state(s->link) == EA_TCP_CLOSING && !s->closing) {
		s->closing = true;
		s->timer.fire = timeout;
		pci_timer_set(s->loop, &s->timer, closing_ns);
		s->notified = true;
	}
	if (s->rx_wait & EA_TCP_WAIT_IN)
		events |= EPOLLIN;
	if ((s->rx_wait & EA_TCP_HELD) && !s->held_end)
		events |= EPOLLRDHUP;
	if (s->tx_wait & EA_TCP_WAIT_OUT)
		events |= EPOLLOUT;
	set_events(s, events);
	if (s->notified || ((s->rx_wait | s->tx_wait) & EA_TCP_MORE))
		pci_work_queue(s->loop, &s->work);
}

static void ready(struct pci_fd *pfd, uint32_t events)
{
	struct pci_stream *s = container_of(pfd, struct pci_stream, pfd);

	if (events & (EPOLLHUP | EPOLLERR))
		events |= pfd->events;
	s->what |= events;
	pci_work_queue(s->loop, &s->work);
}

bool pci_stream_may_have(int fd)
{
	static rlim_t most;
	struct rlimit lim;

	if (!most) {
		if (getrlimit(RLIMIT_NOFILE, &lim))
			return false;
		/* the usual soft limit is for programs that use select() */
		lim.rlim_cur = lim.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &lim) && getrlimit(RLIMIT_NOFILE, &lim))
			return false;
		most = lim.rlim_cur - (lim.rlim_cur / 2 < KEPT_FDS ? lim.rlim_cur / 2 : KEPT_FDS);
	}
	return (rlim_t)fd < most;
}

int pci_stream_open(struct pci_streams *all, struct pci_func *func, uint32_t qpn, int fd,
		    struct pci_stream **stream)
{
	static const struct ea_conn_attr conn = { .ord = EA_MAX_ORD, .ird = EA_MAX_IRD };
	struct ea_tcp_attr attr = { .fd = fd, .notify = notify };
	struct pci_stream *s;
	int err;

	if (!pci_stream_may_have(fd))
		return EMFILE;
	s = calloc(1, sizeof(*s));
	if (!s)
		return ENOMEM;
	s->loop = func->loop;
	s->all = all;
	s->work.run = turn;
	s->pfd = (struct pci_fd){ .fd = fd, .events = EPOLLIN, .ready = ready };
	attr.ctx = s;
	s->link = ea_tcp_create(&attr);
	if (!s->link) {
		err = errno;
		goto err_stream;
	}
	err = pci_fd_add(s->loop, &s->pfd);
	if (err)
		goto err_link;
	err = ea_qp_connect(func->core, qpn, s->link, &conn);
	if (err)
		goto err_fd;
	s->next = all->first;
	if (s->next)
		s->next->prev = s;
	all->first = s;
	s->rx_wait = EA_TCP_WAIT_IN;
	s->notified = true;
	pci_work_queue(s->loop, &s->work);
	if (stream)
		*stream = s;
	return 0;

err_fd:
	pci_fd_del(s->loop, &s->pfd);
err_link:
	ea_tcp_destroy(s->link, false);
	pci_work_cancel(&s->work);
err_stream:
	free(s);
	return err;
}

static void more_room(int fd)
{
	int size = SOCKET_BUFFER;

	/* allowed to root only; the others get what the system grants */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)))
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

int pci_stream_pair(struct pci_streams *all, struct pci_func *a, uint32_t a_qpn, struct pci_func *b,
		    uint32_t b_qpn)
{
	struct pci_stream *sa = NULL, *sb = NULL;
	int fds[2];
	int err;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds))
		return errno;
	more_room(fds[0]);
	more_room(fds[1]);
	err = pci_stream_open(all, b, b_qpn, fds[1], &sb);
	if (err) {
		close(fds[0]);
		close(fds[1]);
		return err;
	}
	err = pci_stream_open(all, a, a_qpn, fds[0], &sa);
	if (err) {
		/* the other QP sees a peer that has gone, as it would on a wire */
		close(fds[0]);
		return err;
	}
	sa->twin = sb;
	sb->twin = sa;
	return 0;
}

void pci_streams_close(struct pci_streams *all)
{
	struct pci_stream *s, *next;

	for (s = all->first; s; s = next) {
		next = s->next;
		stream_free(s);
	}
}
