// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The helper thread, descriptors, and work. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include "adapter/process/engine/engine_internal.h"

enum {
	BATCH = 32,
	READY_BUDGET = 16, /* connections that one unlock may serve */
	LOCK_MISSES = 4,
};

#define NSEC_PER_SEC  1000000000ull
#define MISS_NS	      20000ull /* the lock was busy: let the holder serve the sockets */
#define WINDOW_MIN_NS 30000ull /* between looks at a claim */
#define WINDOW_MAX_NS 250000ull
#define SPIN_NS	      25000ull	 /* looks without sleep after activity, while a CPU is free */
#define LOAD_NS	      1000000ull /* how long an answer about free CPUs is believed */
#define SCAN_SPIN_NS  5000ull	 /* no hook: looks without sleep after activity */
#define SCAN_MIN_NS   10000ull
#define SCAN_MAX_NS   1000000ull
#define SLOT_NONE     0 /* slot 0 is the eventfd */

struct fd_slot {
	struct engine_fd *efd;
	uint32_t gen;
	uint32_t free_next;
};

static struct {
	int epfd, evfd;
	pthread_t thread;
	bool running, parked;
	int load_fd; /* /proc/loadavg, or negative */
	unsigned int cpus;
	struct fd_slot *slots;
	uint32_t nslots, free_slot, nfds;
	struct engine_work *work_head, **work_tail;
	atomic_bool sleeping, wake;
} loop = { .epfd = -1, .evfd = -1, .load_fd = -1, .work_tail = &loop.work_head };

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static __thread bool is_helper;

uint64_t engine_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

/* ------------------------------------------------------------------ descriptors */

static uint64_t slot_key(uint32_t slot)
{
	return (uint64_t)loop.slots[slot].gen << 32 | slot;
}

static int slot_take(struct engine_fd *efd)
{
	struct fd_slot *bigger;
	uint32_t i, old = loop.nslots;

	if (loop.free_slot == SLOT_NONE) {
		bigger = realloc(loop.slots, (old + 256) * sizeof(*bigger));
		if (!bigger)
			return -ENOMEM;
		memset(bigger + old, 0, 256 * sizeof(*bigger));
		loop.slots = bigger;
		loop.nslots = old + 256;
		for (i = loop.nslots - 1; i >= old && i > SLOT_NONE; i--) {
			bigger[i].free_next = loop.free_slot;
			loop.free_slot = i;
		}
	}
	efd->slot = loop.free_slot;
	loop.free_slot = loop.slots[efd->slot].free_next;
	loop.slots[efd->slot].efd = efd;
	return 0;
}

static void slot_give(uint32_t slot)
{
	loop.slots[slot].efd = NULL;
	loop.slots[slot].gen++;
	loop.slots[slot].free_next = loop.free_slot;
	loop.free_slot = slot;
}

/*
 * No events wanted: out of the set, because errors and hang-ups are reported even to a mask of 0.
 */
static int fd_control(struct engine_fd *efd, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.u64 = slot_key(efd->slot) };
	int op = !efd->events ? EPOLL_CTL_ADD : events ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;

	if (efd->events == events)
		return 0;
	if (epoll_ctl(loop.epfd, op, efd->fd, &ev))
		return -errno;
	efd->events = events;
	return 0;
}

int engine_fd_add(struct engine_fd *efd)
{
	uint32_t events = efd->events;
	int ret;

	ret = slot_take(efd);
	if (ret)
		return ret;
	efd->events = 0;
	ret = fd_control(efd, events);
	if (ret) {
		slot_give(efd->slot);
		efd->slot = SLOT_NONE;
		return ret;
	}
	loop.nfds++;
	return 0;
}

int engine_fd_mod(struct engine_fd *efd, uint32_t events)
{
	return fd_control(efd, events);
}

void engine_fd_del(struct engine_fd *efd)
{
	if (efd->slot == SLOT_NONE)
		return;
	fd_control(efd, 0);
	slot_give(efd->slot);
	efd->slot = SLOT_NONE;
	loop.nfds--;
}

unsigned int engine_fd_count(void)
{
	return loop.nfds;
}

static void dispatch(const struct epoll_event *events, int n)
{
	uint32_t slot;
	int i;

	for (i = 0; i < n; i++) {
		slot = (uint32_t)events[i].data.u64;
		/* the descriptor may have been removed since the event was fetched */
		if (slot == SLOT_NONE || slot_key(slot) != events[i].data.u64 ||
		    !loop.slots[slot].efd)
			continue;
		loop.slots[slot].efd->ready(loop.slots[slot].efd, events[i].events);
	}
}

void engine_dispatch(void)
{
	struct epoll_event events[BATCH];

	dispatch(events, epoll_wait(loop.epfd, events, BATCH, 0));
}

/* ------------------------------------------------------------------ work and wake-ups */

void engine_work_queue(struct engine_work *work)
{
	if (work->queued)
		return;
	work->queued = true;
	work->next = NULL;
	*loop.work_tail = work;
	loop.work_tail = &work->next;
}

void engine_work_cancel(struct engine_work *work)
{
	struct engine_work **at;

	if (!work->queued)
		return;
	for (at = &loop.work_head; *at != work; at = &(*at)->next)
		;
	*at = work->next;
	if (loop.work_tail == &work->next)
		loop.work_tail = at;
	work->queued = false;
}

static void work_run(void)
{
	struct engine_work *work;

	while ((work = loop.work_head)) {
		engine_work_cancel(work);
		work->run(work);
	}
}

void engine_wake(void)
{
	uint64_t one = 1;

	if (is_helper || atomic_exchange(&loop.wake, true) || !atomic_load(&loop.sleeping))
		return;
	/* fails only when the counter is full, and then the helper is awake */
	if (write(loop.evfd, &one, sizeof(one)) < 0)
		return;
}

void engine_before_unlock(void)
{
	work_run();
	if (engine_ready_run(READY_BUDGET) && !engine_claimed(engine_now()))
		engine_wake();
	work_run();
}

/* ------------------------------------------------------------------ helper thread */

static struct timespec to_timespec(uint64_t ns)
{
	return (struct timespec){
		.tv_sec = (time_t)(ns / NSEC_PER_SEC),
		.tv_nsec = (long)(ns % NSEC_PER_SEC),
	};
}

/* Sleep for @ns at most, without looking at the sockets. */
static void nap(uint64_t ns)
{
	struct pollfd pfd = { .fd = loop.evfd, .events = POLLIN };
	struct timespec ts = to_timespec(ns);
	uint64_t count;

	if (ppoll(&pfd, 1, &ts, NULL) == 1 && read(loop.evfd, &count, sizeof(count)) < 0)
		return;
}

static int wait_events(struct epoll_event *events, uint64_t ns)
{
	static bool no_pwait2; /* before Linux 5.11, and under valgrind, which says so each time */
	struct timespec ts = to_timespec(ns);
	uint64_t count;
	int i, n = 0;

	if (!ns)
		return epoll_wait(loop.epfd, events, BATCH, 0);
	if (!no_pwait2) {
		n = epoll_pwait2(loop.epfd, events, BATCH, ns == UINT64_MAX ? NULL : &ts, NULL);
		no_pwait2 = n < 0 && errno == ENOSYS;
	}
	if (no_pwait2)
		n = epoll_wait(loop.epfd, events, BATCH,
			       ns > 1000000000000ull ? -1 : (int)((ns + 999999) / 1000000));
	for (i = 0; i < n; i++)
		if (events[i].data.u64 == SLOT_NONE && read(loop.evfd, &count, sizeof(count)) < 0)
			break;
	return n;
}

struct helper_state {
	uint64_t due; /* of the first timer */
	uint64_t window, scan_ns, active;
	unsigned int misses;
	bool more; /* ready connections are left */
	bool scan; /* there are contexts without hook */
	uint64_t load_time;
	bool cpu_free;
};

/*
 * Is there a CPU that nobody else wants?  Then a brief spin after activity serves the target of
 * RDMA two context switches sooner.  Where every CPU is taken it would keep a program from running,
 * most likely the very one that waits for us.
 */
static bool cpu_free(struct helper_state *st, uint64_t now)
{
	unsigned int running = 0;
	char text[64] = "", *slash;
	ssize_t n;

	if (now - st->load_time < LOAD_NS)
		return st->cpu_free;
	st->load_time = now;
	n = loop.load_fd >= 0 ? pread(loop.load_fd, text, sizeof(text) - 1, 0) : -1;
	slash = n > 0 ? strchr(text, '/') : NULL;
	/* "0.20 0.18 0.12 1/80 11206": runnable tasks, this one among them */
	while (slash && slash > text && slash[-1] != ' ')
		slash--;
	if (slash)
		running = (unsigned int)strtoul(slash, NULL, 10);
	st->cpu_free = running && running <= loop.cpus;
	return st->cpu_free;
}

static uint64_t helper_timeout(struct helper_state *st, uint64_t now)
{
	uint64_t ns = st->due == UINT64_MAX ? UINT64_MAX : st->due > now ? st->due - now : 0;

	if (st->more)
		return 0;
	if (now - st->active < (st->scan ? SCAN_SPIN_NS : SPIN_NS) &&
	    (st->scan || cpu_free(st, now)))
		return 0;
	if (st->scan && st->scan_ns < ns)
		ns = st->scan_ns;
	return ns;
}

void engine_park(void)
{
	loop.parked = true;
}

/* One round: sleep, then serve.  Returns without serving when an inline poller does it. */
static void helper_round(struct helper_state *st)
{
	struct epoll_event events[BATCH];
	uint64_t now = engine_now();
	bool woken;
	int n = 0;

	atomic_store(&loop.sleeping, true);
	woken = atomic_exchange(&loop.wake, false);
	if (!woken) {
		if (engine_claimed(now) && st->due > now) {
			nap(st->window);
			st->window = st->window * 2 < WINDOW_MAX_NS ? st->window * 2 :
								      WINDOW_MAX_NS;
			atomic_store(&loop.sleeping, false);
			if (!atomic_load(&loop.wake) && engine_claimed(engine_now()))
				return;
		} else {
			st->window = WINDOW_MIN_NS;
			n = wait_events(events, helper_timeout(st, now));
		}
	}
	atomic_store(&loop.sleeping, false);
	/* nothing happened while spinning */
	if (n <= 0 && !woken && !st->more && !st->scan && !atomic_load(&loop.wake) &&
	    st->due > engine_now())
		return;

	if (!engine_trylock()) {
		/* Whoever holds it is probably a poller that serves the sockets himself. */
		if (++st->misses < LOCK_MISSES) {
			atomic_store(&loop.wake, false);
			nap(MISS_NS);
			atomic_store(&loop.wake, true);
			return;
		}
		engine_lock();
	}
	st->misses = 0;
	if (loop.parked) {
		engine_unlock();
		for (;;)
			pause();
	}
	dispatch(events, n);
	now = engine_now();
	if (engine_timers_due() <= now)
		engine_timers_run(now);
	st->more = engine_ready_run(READY_BUDGET);
	st->scan = engine_scan_needed();
	if (st->scan && engine_scan()) {
		st->scan_ns = SCAN_MIN_NS;
		st->active = now;
	} else if (st->scan && n <= 0 && st->scan_ns < SCAN_MAX_NS) {
		st->scan_ns += st->scan_ns / 2;
	}
	if (n > 0)
		st->active = now;
	work_run();
	st->due = engine_timers_due();
	engine_unlock();
}

static void *helper_main(void *arg)
{
	struct helper_state st = {
		.due = UINT64_MAX,
		.window = WINDOW_MIN_NS,
		.scan_ns = SCAN_MIN_NS,
	};

	(void)arg;
	is_helper = true;
	prctl(PR_SET_TIMERSLACK, 1);
	for (;;)
		helper_round(&st);
	return NULL;
}

/* ------------------------------------------------------------------ start and fork */

/*
 * The child starts with no engine; what the parent's lists point to is forgotten, not freed.
 * Descriptors are closed by the owner of the descriptor table.
 */
void engine_fork_child(void)
{
	pthread_mutex_init(&start_lock, NULL);
	memset(&loop, 0, sizeof(loop));
	loop.epfd = -1;
	loop.evfd = -1;
	loop.load_fd = -1;
	loop.work_tail = &loop.work_head;
	is_helper = false;
	engine_lock_reinit();
	engine_timers_forget();
	engine_progress_forget();
	engine_hooks_forget();
}

static int start_thread(void)
{
	sigset_t all, old;
	int ret;

	/* but not those of a fault, see faults.h */
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(&loop.thread, NULL, helper_main, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (ret)
		return -ret;
	pthread_setname_np(loop.thread, "erdma-engine");
	pthread_detach(loop.thread);
	return 0;
}

static int start(void)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = SLOT_NONE };
	long cpus;
	int ret;

	cpus = sysconf(_SC_NPROCESSORS_ONLN);
	loop.cpus = cpus > 0 ? (unsigned int)cpus : 1;
	loop.load_fd = host_fd_hide(open("/proc/loadavg", O_RDONLY | O_CLOEXEC));
	loop.epfd = host_fd_hide(epoll_create1(EPOLL_CLOEXEC));
	if (loop.epfd < 0) {
		ret = loop.epfd;
		goto err_load;
	}
	loop.evfd = host_fd_hide(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (loop.evfd < 0) {
		ret = loop.evfd;
		goto err_epfd;
	}
	if (epoll_ctl(loop.epfd, EPOLL_CTL_ADD, loop.evfd, &ev)) {
		ret = -errno;
		goto err_evfd;
	}
	ret = start_thread();
	if (ret)
		goto err_evfd;
	loop.running = true;
	return 0;

err_evfd:
	host_fd_unhide_close(loop.evfd);
err_epfd:
	host_fd_unhide_close(loop.epfd);
err_load:
	if (loop.load_fd >= 0)
		host_fd_unhide_close(loop.load_fd);
	return ret;
}

int engine_start(void)
{
	int ret = 0;

	pthread_mutex_lock(&start_lock);
	if (!loop.running)
		ret = start();
	pthread_mutex_unlock(&start_lock);
	return ret;
}
