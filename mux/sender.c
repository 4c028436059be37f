// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "mux/sender.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define LANE_SLOTS    2048
#define LANE_MASK     (LANE_SLOTS - 1)
#define FAILURE_SLOTS 64
/* The kernel refuses a MAD while one with the same transaction id is queued, which takes microseconds. */
#define DUPLICATE_TRIES	  5
#define DUPLICATE_WAIT_NS 200000

/* Destinations that timed out with more MADs for them behind, a lane. */
#define LANE_DEAD 8

enum probe_state {
	PROBE_IDLE,
	PROBE_BUSY,
	PROBE_DONE,
};

/* What was posted for a destination before it timed out: up to index until of the lane. */
struct dead {
	uint32_t until;
	struct sender_failure failure; /* count: those dropped up to now */
};

struct worker {
	struct sender *sender;
	struct umad_file file;
	pthread_t thread;
	int wake_fd;
	bool is_lane;
	_Alignas(64) _Atomic uint32_t head; /* consumer */
	_Atomic bool sleeping;
	_Alignas(64) _Atomic uint32_t tail; /* producer */
	uint32_t unflushed;
	struct umad_pkt *ring; /* lanes only */
	struct dead dead[LANE_DEAD];
	unsigned int n_dead;
	struct umad_pkt probe;
	_Atomic int probe_state;
	int probe_error;
};

struct sender {
	_Atomic unsigned int refs; /* threads and the owner */
	_Atomic bool stop;
	int notify_fd; /* a duplicate, so that it outlives the owner's */
	unsigned int lanes, probes;
	struct worker *workers; /* lanes, then probes */
	_Atomic uint64_t sent, failed, duplicates;
	pthread_mutex_t lock;
	struct sender_failure failures[FAILURE_SLOTS]; /* under lock */
	unsigned int n_failures;
};

static void put(struct sender *s)
{
	if (atomic_fetch_sub(&s->refs, 1) != 1)
		return;
	for (unsigned int i = 0; i < s->lanes + s->probes; i++) {
		struct worker *w = &s->workers[i];

		if (w->file.fd >= 0)
			close(w->file.fd);
		if (w->wake_fd >= 0)
			close(w->wake_fd);
		free(w->ring);
	}
	close(s->notify_fd);
	pthread_mutex_destroy(&s->lock);
	free(s->workers);
	free(s);
}

static void wake(int fd)
{
	uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) < 0)
		return;
}

/* Blocks until there is something to do or it is time to stop. */
static void doze(struct worker *w)
{
	uint64_t count;

	while (read(w->wake_fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}

static int write_one(struct worker *w, struct umad_pkt *pkt)
{
	static const struct timespec wait = { .tv_nsec = DUPLICATE_WAIT_NS };
	struct sender *s = w->sender;
	int err;

	pkt->hdr.agent_id = (uint32_t)w->file.agent;
	for (unsigned int i = 0;; i++) {
		err = umad_write(w->file.fd, pkt);
		if (err != EINVAL || i == DUPLICATE_TRIES)
			break;
		atomic_fetch_add_explicit(&s->duplicates, 1, memory_order_relaxed);
		nanosleep(&wait, NULL);
	}
	atomic_fetch_add_explicit(err ? &s->failed : &s->sent, 1, memory_order_relaxed);
	return err;
}

static void report(struct sender *s, const struct sender_failure *f)
{
	pthread_mutex_lock(&s->lock);
	if (s->n_failures < FAILURE_SLOTS)
		s->failures[s->n_failures++] = *f;
	pthread_mutex_unlock(&s->lock);
	wake(s->notify_fd);
}

/* Tells what was dropped, once the lane is past it. */
static void settle(struct worker *w, uint32_t index)
{
	for (unsigned int i = 0; i < w->n_dead;) {
		struct dead *d = &w->dead[i];

		if ((int32_t)(d->until - index) > 0) {
			i++;
			continue;
		}
		if (d->failure.count)
			report(w->sender, &d->failure);
		*d = w->dead[--w->n_dead];
	}
}

/* Counts the MAD at index as lost if it was posted before its destination timed out. */
static bool drop_dead(struct worker *w, uint32_t index, const struct umad_pkt *pkt)
{
	settle(w, index);
	for (unsigned int i = 0; i < w->n_dead; i++) {
		struct sender_failure *f = &w->dead[i].failure;

		if (f->gid_index != pkt->hdr.gid_index ||
		    memcmp(f->gid, pkt->hdr.gid, sizeof(f->gid)) != 0)
			continue;
		f->count++;
		atomic_fetch_add_explicit(&w->sender->failed, 1, memory_order_relaxed);
		return true;
	}
	return false;
}

static void lane_failed(struct worker *w, const struct umad_pkt *pkt, int err)
{
	struct sender_failure f = { .gid_index = pkt->hdr.gid_index, .error = err, .count = 1 };

	memcpy(f.gid, pkt->hdr.gid, sizeof(f.gid));
	report(w->sender, &f);
	if (!sender_timed_out(err) || w->n_dead == LANE_DEAD)
		return;
	f.count = 0;
	w->dead[w->n_dead++] = (struct dead){
		.until = atomic_load_explicit(&w->tail, memory_order_acquire),
		.failure = f,
	};
}

static void *lane_main(void *arg)
{
	struct worker *w = arg;
	struct sender *s = w->sender;
	struct umad_pkt *pkt;
	uint32_t head = 0;
	int err;

	while (!atomic_load(&s->stop)) {
		if (head == atomic_load_explicit(&w->tail, memory_order_acquire)) {
			settle(w, head);
			atomic_store(&w->sleeping, true);
			if (head == atomic_load(&w->tail) && !atomic_load(&s->stop))
				doze(w);
			atomic_store(&w->sleeping, false);
			continue;
		}
		pkt = &w->ring[head & LANE_MASK];
		err = drop_dead(w, head, pkt) ? 0 : write_one(w, pkt);
		if (err)
			lane_failed(w, pkt, err);
		atomic_store_explicit(&w->head, ++head, memory_order_release);
	}
	put(s);
	return NULL;
}

static void *probe_main(void *arg)
{
	struct worker *w = arg;
	struct sender *s = w->sender;

	while (!atomic_load(&s->stop)) {
		if (atomic_load_explicit(&w->probe_state, memory_order_acquire) != PROBE_BUSY) {
			doze(w);
			continue;
		}
		w->probe_error = write_one(w, &w->probe);
		atomic_store_explicit(&w->probe_state, PROBE_DONE, memory_order_release);
		wake(s->notify_fd);
	}
	put(s);
	return NULL;
}

static int start(struct worker *w)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&w->thread, NULL, w->is_lane ? lane_main : probe_main, w);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!err)
		atomic_fetch_add(&w->sender->refs, 1);
	return err;
}

struct sender *sender_new(const char *device, unsigned int port, unsigned int lanes,
			  unsigned int probes, int notify_fd, char why[UMAD_WHY_MAX])
{
	struct sender *s = calloc(1, sizeof(*s));
	unsigned int n = lanes + probes, started = 0;
	int err;

	why[0] = '\0';
	if (!s)
		return NULL;
	pthread_mutex_init(&s->lock, NULL);
	atomic_store(&s->refs, 1);
	s->notify_fd = dup(notify_fd);
	s->workers = aligned_alloc(_Alignof(struct worker), n * sizeof(*s->workers));
	if (!s->workers) {
		err = ENOMEM;
		goto err;
	}
	memset(s->workers, 0, n * sizeof(*s->workers));
	s->lanes = lanes;
	s->probes = probes;
	for (unsigned int i = 0; i < n; i++)
		s->workers[i].file.fd = s->workers[i].wake_fd = -1;
	for (unsigned int i = 0; i < n; i++) {
		struct worker *w = &s->workers[i];

		w->sender = s;
		w->is_lane = i < lanes;
		err = umad_file_open(&w->file, device, port, false, why);
		if (err)
			goto err;
		w->wake_fd = eventfd(0, EFD_CLOEXEC);
		w->ring = w->is_lane ? calloc(LANE_SLOTS, sizeof(*w->ring)) : NULL;
		if (w->wake_fd < 0 || (w->is_lane && !w->ring)) {
			err = ENOMEM;
			goto err;
		}
	}
	for (; started < n; started++) {
		err = start(&s->workers[started]);
		if (err)
			goto err;
	}
	return s;

err:
	/* Threads that already run find the flag and let go of their share. */
	sender_free(s);
	errno = err;
	return NULL;
}

void sender_free(struct sender *s)
{
	struct timespec until;
	bool started;

	if (!s)
		return;
	atomic_store(&s->stop, true);
	for (unsigned int i = 0; i < s->lanes + s->probes; i++)
		if (s->workers[i].wake_fd >= 0)
			wake(s->workers[i].wake_fd);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 100000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	for (unsigned int i = 0; i < s->lanes + s->probes; i++) {
		started = s->workers[i].thread != 0;
		if (started && pthread_timedjoin_np(s->workers[i].thread, NULL, &until))
			pthread_detach(s->workers[i].thread);
	}
	put(s);
}

bool sender_post(struct sender *s, unsigned int lane, const struct umad_pkt *pkt)
{
	struct worker *w = &s->workers[lane % s->lanes];
	uint32_t tail = atomic_load_explicit(&w->tail, memory_order_relaxed) + w->unflushed;

	if (tail - atomic_load_explicit(&w->head, memory_order_acquire) >= LANE_SLOTS)
		return false;
	w->ring[tail & LANE_MASK] = *pkt;
	w->unflushed++;
	return true;
}

void sender_flush(struct sender *s)
{
	for (unsigned int i = 0; i < s->lanes; i++) {
		struct worker *w = &s->workers[i];

		if (!w->unflushed)
			continue;
		atomic_fetch_add(&w->tail, w->unflushed);
		w->unflushed = 0;
		if (atomic_load(&w->sleeping))
			wake(w->wake_fd);
	}
}

int sender_probe(struct sender *s, const struct umad_pkt *pkt)
{
	for (unsigned int i = 0; i < s->probes; i++) {
		struct worker *w = &s->workers[s->lanes + i];

		if (atomic_load_explicit(&w->probe_state, memory_order_acquire) != PROBE_IDLE)
			continue;
		w->probe = *pkt;
		atomic_store_explicit(&w->probe_state, PROBE_BUSY, memory_order_release);
		wake(w->wake_fd);
		return (int)i;
	}
	return -1;
}

bool sender_probe_done(struct sender *s, unsigned int i, int *error)
{
	struct worker *w = &s->workers[s->lanes + i];

	if (atomic_load_explicit(&w->probe_state, memory_order_acquire) != PROBE_DONE)
		return false;
	*error = w->probe_error;
	atomic_store_explicit(&w->probe_state, PROBE_IDLE, memory_order_relaxed);
	return true;
}

bool sender_failure(struct sender *s, struct sender_failure *f)
{
	bool found;

	pthread_mutex_lock(&s->lock);
	found = s->n_failures > 0;
	if (found)
		*f = s->failures[--s->n_failures];
	pthread_mutex_unlock(&s->lock);
	return found;
}

void sender_stats(const struct sender *s, struct sender_stats *st)
{
	st->sent = atomic_load_explicit(&s->sent, memory_order_relaxed);
	st->failed = atomic_load_explicit(&s->failed, memory_order_relaxed);
	st->duplicates = atomic_load_explicit(&s->duplicates, memory_order_relaxed);
}
