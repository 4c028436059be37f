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
	BUDGET = 256 << 10, /* bytes each way in one turn */
	KEPT_FDS = 2048,    /* not for streams; or half, if the process may not have many */
};

/* How long the peer may take to end its side, and a held message may hide the peer's end. */
static const uint64_t closing_ns = 5000000000ull;

struct pci_stream {
	struct pci_loop *loop;
	struct pci_list place; /* among all */
	struct pci_func *func;
	struct ea_link *link;
	struct pci_fd pfd;
	struct pci_work work;
	struct pci_timer timer;
	struct pci_job turn, give_up; /* what work and timer are for */
	uint32_t what;		      /* what the socket said since the last turn */
	unsigned int rx_wait, tx_wait;
	bool notified; /* by the link */
	bool closing;
	bool held_end; /* the peer has ended behind a held message */
};

static void stream_free(struct pci_stream *s)
{
	pci_work_cancel(&s->work);
	pci_timer_cancel(&s->timer);
	pci_job_cancel(&s->turn);
	pci_job_cancel(&s->give_up);
	pci_fd_del(s->loop, &s->pfd);
	ea_tcp_destroy(s->link, false);
	close(s->pfd.fd);
	pci_list_remove(&s->place);
	free(s);
}

static void notify(struct ea_link *link, void *ctx)
{
	struct pci_stream *s = ctx;

	(void)link;
	s->notified = true;
	pci_work_queue(s->loop, &s->work);
}

static void give_up(struct pci_job *job)
{
	struct pci_stream *s = container_of(job, struct pci_stream, give_up);

	ea_tcp_hangup(s->link, ECONNRESET);
	stream_free(s);
}

static void timeout(struct pci_timer *timer)
{
	struct pci_stream *s = container_of(timer, struct pci_stream, timer);

	pci_job_enter(s->func, &s->give_up);
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

static void turn(struct pci_job *job)
{
	struct pci_stream *s = container_of(job, struct pci_stream, turn);
	bool notified = s->notified;
	uint32_t what = s->what, events = 0;

	s->notified = false;
	s->what = 0;
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
		pci_far_sync(s->func);
		s->tx_wait = ea_tcp_progress_tx(s->link, BUDGET);
	}
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
	/* a turn that has to wait looks at the socket again when it is over */
	if (s->func->far)
		pci_fd_del(s->loop, pfd);
	pci_work_queue(s->loop, &s->work);
}

static void wants_turn(struct pci_work *work)
{
	struct pci_stream *s = container_of(work, struct pci_stream, work);

	pci_job_enter(s->func, &s->turn);
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

int pci_stream_open(struct pci_list *all, struct pci_func *func, uint32_t qpn, int fd)
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
	s->func = func;
	s->work.run = wants_turn;
	s->turn.run = turn;
	s->give_up.run = give_up;
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
	pci_list_append(all, &s->place);
	s->rx_wait = EA_TCP_WAIT_IN;
	s->notified = true;
	pci_work_queue(s->loop, &s->work);
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

void pci_streams_close(struct pci_list *all)
{
	struct pci_list *pos, *next;

	for (pos = all->next; pos != all; pos = next) {
		next = pos->next;
		stream_free(container_of(pos, struct pci_stream, place));
	}
}
