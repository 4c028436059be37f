// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "adapter/pci/loop.h"

enum {
	BATCH = 64,
	WORK_ROUND = 256, /* items between two looks at the descriptors */
};

/* How long looks that find something may keep the descriptors waiting. */
static const uint64_t poll_round_ns = 100000;

/* How long work may: a guest can have thousands of streams at work, and others wait for their registers. */
static const uint64_t work_round_ns = 500000;

struct pci_loop {
	int epfd;
	bool stop;
	int nevents;
	struct epoll_event events[BATCH]; /* of the round under way */
	struct pci_list work;		  /* head */
	struct pci_list timers;		  /* head; the first is due first */
	struct pci_list polls;		  /* head */
	uint64_t busy_ns;		  /* when something happened last */
	uint64_t look_ns;		  /* what a look takes that finds nothing */
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
	pci_list_init(&loop->work);
	pci_list_init(&loop->timers);
	pci_list_init(&loop->polls);
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
	pci_list_append(&loop->work, &work->place);
}

void pci_work_cancel(struct pci_work *work)
{
	pci_list_remove(&work->place);
}

static bool work_waits(const struct pci_loop *loop)
{
	return !pci_list_empty(&loop->work);
}

/* How many were run. */
static int work_run(struct pci_loop *loop)
{
	struct pci_work *work;
	uint64_t end = 0;
	int n;

	for (n = 0; n < WORK_ROUND && work_waits(loop); n++) {
		if (!end)
			end = pci_loop_now() + work_round_ns;
		else if (pci_loop_now() >= end)
			break;
		work = container_of(loop->work.next, struct pci_work, place);
		pci_work_cancel(work);
		work->run(work);
	}
	return n;
}

/* ------------------------------------------------------------------ polling */

void pci_poll_add(struct pci_loop *loop, struct pci_poll *poll)
{
	if (pci_list_holds(&poll->place))
		return;
	pci_list_append(&loop->polls, &poll->place);
	loop->busy_ns = pci_loop_now();
}

void pci_poll_del(struct pci_poll *poll)
{
	pci_list_remove(&poll->place);
}

static bool polls(const struct pci_loop *loop)
{
	return !pci_list_empty(&loop->polls);
}

/* Look at all, as long as there is something. */
static bool poll_run(struct pci_loop *loop)
{
	uint64_t end = pci_loop_now() + poll_round_ns;
	struct pci_list *pos, *next;
	bool found, any = false;
	struct pci_poll *poll;

	do {
		found = false;
		for (pos = loop->polls.next; pos != &loop->polls; pos = next) {
			next = pos->next;
			poll = container_of(pos, struct pci_poll, place);
			found |= poll->look(poll);
		}
		if (work_run(loop))
			found = true;
		any |= found;
	} while (found && pci_loop_now() < end);
	return any;
}

/* What others on the processor take now and then is not part of a look. */
static void note_look(struct pci_loop *loop, uint64_t ns)
{
	uint64_t most = loop->look_ns + loop->look_ns / 8 + 100;

	loop->look_ns = ns < most ? ns : most;
}

static uint64_t poll_wait_ns(const struct pci_loop *loop, uint64_t now)
{
	uint64_t pause = now - loop->busy_ns;
	uint64_t ns, least = loop->look_ns * PCI_POLL_SHARE;

	if (pause < PCI_POLL_SPIN_NS)
		return 0;
	if (pause / 8 < PCI_POLL_SLEEP_NS)
		/* a pause that has only begun is no time to be thrifty */
		return pause / 8;
	ns = pause / 1000;
	if (ns < PCI_POLL_SLEEP_NS)
		ns = PCI_POLL_SLEEP_NS;
	if (ns > PCI_POLL_SLEEP_MAX_NS)
		ns = PCI_POLL_SLEEP_MAX_NS;
	if (least > PCI_POLL_SLEEP_MOST_NS)
		least = PCI_POLL_SLEEP_MOST_NS;
	return ns < least ? least : ns;
}

/* ------------------------------------------------------------------ timers */

void pci_timer_cancel(struct pci_timer *timer)
{
	pci_list_remove(&timer->place);
}

static struct pci_timer *timer_at(struct pci_list *place)
{
	return container_of(place, struct pci_timer, place);
}

static bool timers_wait(const struct pci_loop *loop)
{
	return !pci_list_empty(&loop->timers);
}

void pci_timer_set(struct pci_loop *loop, struct pci_timer *timer, uint64_t delay_ns)
{
	struct pci_list *pos;

	pci_timer_cancel(timer);
	timer->due_ns = pci_loop_now() + delay_ns;
	/* delays are of a few kinds only, so the place is near the end */
	for (pos = loop->timers.prev;
	     pos != &loop->timers && timer_at(pos)->due_ns > timer->due_ns;)
		pos = pos->prev;
	pci_list_insert(pos, &timer->place);
}

static void timers_run(struct pci_loop *loop)
{
	uint64_t now = pci_loop_now();
	struct pci_timer *timer;

	while (timers_wait(loop)) {
		timer = timer_at(loop->timers.next);
		if (timer->due_ns > now)
			break;
		pci_timer_cancel(timer);
		timer->fire(timer);
	}
}

/* UINT64_MAX: for ever. */
static uint64_t wait_ns(const struct pci_loop *loop, int timeout_ms)
{
	uint64_t wait = timeout_ms < 0 ? UINT64_MAX : (uint64_t)timeout_ms * 1000000;
	uint64_t now, due, ns;

	if (work_waits(loop))
		return 0;
	if (!polls(loop) && !timers_wait(loop))
		return wait;
	now = pci_loop_now();
	if (polls(loop)) {
		ns = poll_wait_ns(loop, now);
		wait = ns < wait ? ns : wait;
	}
	if (timers_wait(loop)) {
		due = timer_at(loop->timers.next)->due_ns;
		ns = due <= now ? 0 : due - now;
		wait = ns < wait ? ns : wait;
	}
	return wait;
}

/* ------------------------------------------------------------------ rounds */

static int wait_events(struct pci_loop *loop, uint64_t ns)
{
	struct timespec ts = { .tv_sec = (time_t)(ns / 1000000000),
			       .tv_nsec = (long)(ns % 1000000000) };
	int n;

	/* only between two looks do parts of a millisecond matter */
	if (polls(loop) && ns != UINT64_MAX) {
		n = epoll_pwait2(loop->epfd, loop->events, BATCH, &ts, NULL);
		/* not in kernels before 5.11 */
		if (n >= 0 || errno != ENOSYS)
			return n;
	}
	return epoll_wait(loop->epfd, loop->events, BATCH,
			  ns == UINT64_MAX ? -1 : (int)((ns + 999999) / 1000000));
}

void pci_loop_once(struct pci_loop *loop, int timeout_ms)
{
	struct pci_fd *pfd;
	uint64_t before, now;
	bool busy;
	int i, n;

	n = wait_events(loop, wait_ns(loop, timeout_ms));
	loop->nevents = n < 0 ? 0 : n;
	busy = loop->nevents;
	for (i = 0; i < loop->nevents; i++) {
		pfd = loop->events[i].data.ptr;
		if (pfd)
			pfd->ready(pfd, loop->events[i].events);
	}
	loop->nevents = 0;
	if (polls(loop)) {
		before = pci_loop_now();
		busy |= poll_run(loop);
		now = pci_loop_now();
		if (busy)
			loop->busy_ns = now;
		else
			note_look(loop, now - before);
	} else {
		work_run(loop);
	}
	if (timers_wait(loop))
		timers_run(loop);
}

void pci_loop_run(struct pci_loop *loop)
{
	while (!loop->stop)
		pci_loop_once(loop, -1);
	loop->stop = false;
}

void pci_loop_stop(struct pci_loop *loop)
{
	loop->stop = true;
}
