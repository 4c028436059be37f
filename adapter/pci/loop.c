// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "adapter/pci/loop.h"

enum {
	BATCH = 64,
	WORK_ROUND = 256, /* items between two looks at the descriptors */
};

struct pci_loop {
	int epfd;
	volatile sig_atomic_t stop;
	int nevents;
	struct epoll_event events[BATCH]; /* of the round under way */
	struct pci_work work;		  /* head */
	struct pci_timer timers;	  /* head; the first is due first */
};

struct pci_loop *pci_loop_create(void)
{
	struct pci_loop *loop = calloc(1, sizeof(*loop));

	if (!loop)
		return NULL;
	loop->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epfd < 0) {
		free(loop);
		return NULL;
	}
	loop->work.prev = &loop->work;
	loop->work.next = &loop->work;
	loop->timers.prev = &loop->timers;
	loop->timers.next = &loop->timers;
	return loop;
}

void pci_loop_destroy(struct pci_loop *loop)
{
	close(loop->epfd);
	free(loop);
}

uint64_t pci_loop_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* ------------------------------------------------------------------ descriptors */

int pci_fd_add(struct pci_loop *loop, struct pci_fd *pfd)
{
	struct epoll_event ev = { .events = pfd->events, .data.ptr = pfd };

	if (epoll_ctl(loop->epfd, EPOLL_CTL_ADD, pfd->fd, &ev))
		return errno;
	pfd->added = true;
	return 0;
}

void pci_fd_mod(struct pci_loop *loop, struct pci_fd *pfd, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = pfd };

	if (!pfd->added || pfd->events == events)
		return;
	pfd->events = events;
	epoll_ctl(loop->epfd, EPOLL_CTL_MOD, pfd->fd, &ev);
}

void pci_fd_del(struct pci_loop *loop, struct pci_fd *pfd)
{
	int i;

	if (!pfd->added)
		return;
	pfd->added = false;
	epoll_ctl(loop->epfd, EPOLL_CTL_DEL, pfd->fd, NULL);
	for (i = 0; i < loop->nevents; i++)
		if (loop->events[i].data.ptr == pfd)
			loop->events[i].data.ptr = NULL;
}

/* ------------------------------------------------------------------ work */

void pci_work_queue(struct pci_loop *loop, struct pci_work *work)
{
	if (work->next)
		return;
	work->prev = loop->work.prev;
	work->next = &loop->work;
	work->prev->next = work;
	loop->work.prev = work;
}

void pci_work_cancel(struct pci_work *work)
{
	if (!work->next)
		return;
	work->prev->next = work->next;
	work->next->prev = work->prev;
	work->next = NULL;
}

static bool work_waits(const struct pci_loop *loop)
{
	return loop->work.next != &loop->work;
}

static void work_run(struct pci_loop *loop)
{
	struct pci_work *work;
	int n;

	for (n = 0; n < WORK_ROUND && work_waits(loop); n++) {
		work = loop->work.next;
		pci_work_cancel(work);
		work->run(work);
	}
}

/* ------------------------------------------------------------------ timers */

void pci_timer_cancel(struct pci_timer *timer)
{
	if (!timer->next)
		return;
	timer->prev->next = timer->next;
	timer->next->prev = timer->prev;
	timer->next = NULL;
}

void pci_timer_set(struct pci_loop *loop, struct pci_timer *timer, uint64_t delay_ns)
{
	struct pci_timer *pos;

	pci_timer_cancel(timer);
	timer->due_ns = pci_loop_now() + delay_ns;
	/* delays are of a few kinds only, so the place is near the end */
	for (pos = loop->timers.prev; pos != &loop->timers && pos->due_ns > timer->due_ns;)
		pos = pos->prev;
	timer->prev = pos;
	timer->next = pos->next;
	pos->next->prev = timer;
	pos->next = timer;
}

static void timers_run(struct pci_loop *loop)
{
	uint64_t now = pci_loop_now();
	struct pci_timer *timer;

	for (timer = loop->timers.next; timer != &loop->timers && timer->due_ns <= now;
	     timer = loop->timers.next) {
		pci_timer_cancel(timer);
		timer->fire(timer);
	}
}

static int wait_ms(const struct pci_loop *loop, int timeout_ms)
{
	uint64_t now, due;
	int ms;

	if (work_waits(loop))
		return 0;
	if (loop->timers.next == &loop->timers)
		return timeout_ms;
	now = pci_loop_now();
	due = loop->timers.next->due_ns;
	ms = due <= now ? 0 : (int)((due - now) / 1000000 + 1);
	return timeout_ms >= 0 && timeout_ms < ms ? timeout_ms : ms;
}

/* ------------------------------------------------------------------ rounds */

void pci_loop_once(struct pci_loop *loop, int timeout_ms)
{
	struct pci_fd *pfd;
	int i, n;

	n = epoll_wait(loop->epfd, loop->events, BATCH, wait_ms(loop, timeout_ms));
	loop->nevents = n < 0 ? 0 : n;
	for (i = 0; i < loop->nevents; i++) {
		pfd = loop->events[i].data.ptr;
		if (pfd)
			pfd->ready(pfd, loop->events[i].events);
	}
	loop->nevents = 0;
	work_run(loop);
	if (loop->timers.next != &loop->timers)
		timers_run(loop);
}

void pci_loop_run(struct pci_loop *loop)
{
	loop->stop = 0;
	while (!loop->stop)
		pci_loop_once(loop, -1);
}

void pci_loop_stop(struct pci_loop *loop)
{
	loop->stop = 1;
}
