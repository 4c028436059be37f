// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Doorbells to the core, connections to their turn, and progress made by a program that polls. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include "adapter/process/engine/engine_internal.h"

enum {
	DIRECT_CONNS = 4, /* a CQ with more QPs asks epoll which sockets have input */
	CLAIM_STREAK = 8, /* empty polls in a row before the helper stays away */
	IDLE_POLLS = 64,  /* after that many, system calls are spaced */
	INLINE_BUDGET = 16,
	BULK_COST = 4, /* a turn that has used its own budget up, in those of other connections */
};

#define CLAIM_NS    100000ull /* a poller that has not come back for so long has left */
#define IDLE_GAP_NS 700ull
#define YIELD_NS    15000ull /* a poller that waits so long offers its CPU */
/*
 * How often a poller serves what is not his own: other connections soon, for the peer of one may
 * wait (the target of RDMA often polls for something else), listeners at leisure.
 */
#define OTHERS_NS    2000ull
#define LISTENERS_NS 20000ull

static struct engine_qp *qps;
static struct engine_cq *cqs;
static unsigned int scanned;

static _Atomic(struct engine_kick *) kicks;

static struct engine_conn *ready_head, **ready_tail = &ready_head;

/* Written by pollers under the lock, read by the helper without. */
static _Atomic(uint64_t) poll_stamp;
static _Atomic(uint32_t) poll_streak;
static uint64_t others_stamp;
static unsigned int conn_count;

static struct engine_qp *engine_qp(const struct host_qp *qp)
{
	return qp->engine;
}

/* ------------------------------------------------------------------ doorbells */

static uint64_t record_read(const volatile uint64_t *record)
{
	return __atomic_load_n(record, __ATOMIC_ACQUIRE);
}

void engine_qp_sync(struct host_qp *qp)
{
	uint64_t value;

	value = record_read(qp->rq_record);
	if (value != qp->rq_seen) {
		qp->rq_seen = value;
		ea_db_rq(qp->dev->core, value);
	}
	value = record_read(qp->sq_record);
	if (value != qp->sq_seen) {
		qp->sq_seen = value;
		ea_db_sq(qp->dev->core, value);
	}
}

void engine_cq_sync(struct host_cq *cq)
{
	uint64_t value = record_read(cq->record);

	if (value == cq->seen)
		return;
	cq->seen = value;
	ea_db_cq(cq->dev->core, value);
}

static bool records_changed(const struct host_qp *qp)
{
	return record_read(qp->sq_record) != qp->sq_seen ||
	       record_read(qp->rq_record) != qp->rq_seen;
}

/* ------------------------------------------------------------------ connections */

void engine_conn_ready(struct engine_conn *conn)
{
	if (conn->queued)
		return;
	conn->queued = true;
	conn->next = NULL;
	*ready_tail = conn;
	ready_tail = &conn->next;
}

static void unready(struct engine_conn *conn)
{
	struct engine_conn **at;

	if (!conn->queued)
		return;
	for (at = &ready_head; *at != conn; at = &(*at)->next)
		;
	*at = conn->next;
	if (ready_tail == &conn->next)
		ready_tail = at;
	conn->queued = false;
}

/*
 * Posted receives are normally looked at when input arrives.  When the connection waits for one, or
 * the QP has ended, each post must be seen at once: the flag goes up first, then the record is read
 * again, and a post writes the record first and then reads the flag.
 */
static bool watch_update(struct engine_conn *conn)
{
	struct engine_qp *eqp = engine_qp(conn->qp);
	bool watch = conn->held || ea_qp_state(conn->qp->core) != EA_QP_RTS;

	if (watch == atomic_load_explicit(&eqp->rq_watch, memory_order_relaxed))
		return false;
	atomic_store(&eqp->rq_watch, watch);
	if (!watch || !records_changed(conn->qp))
		return false;
	engine_qp_sync(conn->qp);
	return true;
}

/* True: it has more to do. */
static bool conn_progress(struct engine_conn *conn, uint32_t what)
{
	uint32_t ret;

	unready(conn);
	if (conn->qp)
		engine_qp_sync(conn->qp);
	ret = conn->progress(conn, what);
	if (ret & ENGINE_CONN_GONE)
		return false;
	conn->held = ret & ENGINE_CONN_HELD;
	if (conn->qp && watch_update(conn))
		ret |= ENGINE_CONN_MORE;
	engine_fd_mod(&conn->efd, ret & (EPOLLIN | EPOLLOUT | EPOLLRDHUP));
	if (!(ret & ENGINE_CONN_MORE))
		return false;
	engine_conn_ready(conn);
	return true;
}

static void conn_event(struct engine_fd *efd, uint32_t events)
{
	struct engine_conn *conn =
		(struct engine_conn *)((char *)efd - offsetof(struct engine_conn, efd));

	if (events & (EPOLLERR | EPOLLHUP))
		events |= EPOLLIN | EPOLLOUT | EPOLLRDHUP;
	conn_progress(conn, events & (EPOLLIN | EPOLLOUT | EPOLLRDHUP));
}

int engine_conn_add(struct engine_conn *conn)
{
	int ret;

	conn->efd.ready = conn_event;
	if (conn->efd.slot) {
		ret = engine_fd_mod(&conn->efd, EPOLLIN);
	} else {
		conn->efd.events = EPOLLIN;
		ret = engine_fd_add(&conn->efd);
	}
	if (ret)
		return ret;
	conn->held = false;
	conn->counted = true;
	conn_count++;
	engine_qp(conn->qp)->conn = conn;
	engine_conn_ready(conn);
	return 0;
}

void engine_conn_detach(struct engine_conn *conn)
{
	struct engine_qp *eqp;

	if (!conn->qp)
		return;
	eqp = engine_qp(conn->qp);
	if (eqp && eqp->conn == conn) {
		eqp->conn = NULL;
		engine_qp_watch(conn->qp);
	}
	conn->qp = NULL;
}

void engine_conn_del(struct engine_conn *conn)
{
	engine_conn_detach(conn);
	unready(conn);
	if (conn->counted)
		conn_count--;
	conn->counted = false;
	engine_fd_del(&conn->efd);
}

bool engine_ready_run(unsigned int budget)
{
	unsigned int cost;

	for (; ready_head && budget; budget -= cost < budget ? cost : budget)
		cost = conn_progress(ready_head, 0) ? BULK_COST : 1;
	return ready_head;
}

/* ------------------------------------------------------------------ kicks */

static void kick_serve(struct engine_kick *kick)
{
	struct engine_qp *eqp;

	if (kick->is_cq) {
		engine_cq_sync(((struct engine_cq *)kick)->cq);
		return;
	}
	eqp = (struct engine_qp *)kick;
	engine_qp_sync(eqp->qp);
	/* the core has told the link, and that the engine, when there is something to do */
	if (!eqp->conn) {
		if (ea_qp_sends_pending(eqp->qp->core))
			cm_qp_sends_wait(eqp->qp);
	} else if (eqp->conn->queued) {
		conn_progress(eqp->conn, 0);
	}
}

bool engine_kicks_waiting(void)
{
	return atomic_load(&kicks);
}

void engine_kicks_serve(void)
{
	struct engine_kick *kick, *next;

	while (atomic_load_explicit(&kicks, memory_order_relaxed)) {
		for (kick = atomic_exchange(&kicks, NULL); kick; kick = next) {
			next = kick->next;
			/*
			 * from here on the owner may queue it again; the doorbell is read after
			 * this
			 */
			atomic_store(&kick->queued, false);
			kick_serve(kick);
		}
	}
}

void engine_kick(struct engine_kick *kick)
{
	if (engine_trylock()) {
		kick_serve(kick);
		engine_unlock();
		return;
	}
	if (!atomic_exchange(&kick->queued, true)) {
		kick->next = atomic_load_explicit(&kicks, memory_order_relaxed);
		while (!atomic_compare_exchange_weak(&kicks, &kick->next, kick))
			;
	}
	atomic_thread_fence(memory_order_seq_cst);
	if (engine_trylock())
		engine_unlock();
}

/* ------------------------------------------------------------------ polling programs */

bool engine_claimed(uint64_t now)
{
	return atomic_load_explicit(&poll_streak, memory_order_relaxed) >= CLAIM_STREAK &&
	       now - atomic_load_explicit(&poll_stamp, memory_order_relaxed) < CLAIM_NS;
}

static void claim(uint64_t now)
{
	uint32_t streak = atomic_load_explicit(&poll_streak, memory_order_relaxed);

	if (now - atomic_load_explicit(&poll_stamp, memory_order_relaxed) >= CLAIM_NS)
		streak = 0;
	if (streak < CLAIM_STREAK)
		atomic_store_explicit(&poll_streak, streak + 1, memory_order_relaxed);
	atomic_store_explicit(&poll_stamp, now, memory_order_relaxed);
}

/*
 * Input is asked for directly.  A full socket is not asked at each poll, which would take its lock
 * from the side that empties it: epoll tells when a good part of it is free.  True: there is such a
 * socket.
 */
static bool poll_conns(struct engine_cq *ecq, unsigned int *own)
{
	struct engine_conn *conn;
	bool full = false;
	unsigned int i;

	/* by index: progress may remove a QP's connection, never the QP */
	for (i = 0; i < ecq->nqps; i++) {
		conn = ecq->qps[i]->conn;
		if (!conn)
			continue;
		++*own;
		if (conn->held)
			continue;
		full |= conn->efd.events & EPOLLOUT;
		if (conn->efd.events & EPOLLIN)
			conn_progress(conn, EPOLLIN);
	}
	return full;
}

bool engine_poll_inline(struct engine_cq *ecq)
{
	uint64_t now = engine_now();
	unsigned int own = 0;

	if (ecq->idle_polls >= IDLE_POLLS) {
		if (now - ecq->last_try < IDLE_GAP_NS)
			return false;
	} else {
		ecq->idle_polls++;
	}
	ecq->last_try = now;
	if (!ecq->idle_since || ecq->idle_polls <= 1) {
		ecq->idle_since = now;
	} else if (now - ecq->idle_since > YIELD_NS) {
		/*
		 * the peer, or what it waits for, may need this CPU; costs little when nobody does
		 */
		ecq->idle_since = now;
		sched_yield();
	}
	if (!engine_trylock())
		return false;
	claim(now);
	if (ecq->nqps > DIRECT_CONNS || poll_conns(ecq, &own) ||
	    now - others_stamp > (conn_count > own ? OTHERS_NS : LISTENERS_NS)) {
		engine_dispatch();
		others_stamp = now;
	}
	engine_ready_run(INLINE_BUDGET);
	engine_unlock();
	return true;
}

/* ------------------------------------------------------------------ contexts without hook */

bool engine_scan_needed(void)
{
	return scanned;
}

bool engine_scan(void)
{
	struct engine_qp *eqp;
	struct engine_cq *ecq;
	bool found = false;

	for (eqp = qps; eqp; eqp = eqp->next) {
		if (!eqp->scan || !records_changed(eqp->qp))
			continue;
		kick_serve(&eqp->kick);
		found = true;
	}
	for (ecq = cqs; ecq; ecq = ecq->next) {
		if (!ecq->scan || record_read(ecq->cq->record) == ecq->cq->seen)
			continue;
		engine_cq_sync(ecq->cq);
		found = true;
	}
	return found;
}

/* ------------------------------------------------------------------ objects */

static int cq_link(struct engine_cq *ecq, struct engine_qp *eqp)
{
	struct engine_qp **bigger;
	unsigned int i;

	for (i = 0; i < ecq->nqps; i++)
		if (ecq->qps[i] == eqp)
			return 0;
	if (ecq->nqps == ecq->size) {
		bigger = realloc(ecq->qps, (ecq->size * 2 + 4) * sizeof(*bigger));
		if (!bigger)
			return -ENOMEM;
		ecq->qps = bigger;
		ecq->size = ecq->size * 2 + 4;
	}
	ecq->qps[ecq->nqps++] = eqp;
	return 0;
}

static void cq_unlink(struct engine_cq *ecq, struct engine_qp *eqp)
{
	unsigned int i;

	for (i = 0; i < ecq->nqps; i++) {
		if (ecq->qps[i] == eqp) {
			ecq->qps[i] = ecq->qps[--ecq->nqps];
			return;
		}
	}
}

int engine_qp_created(struct host_qp *qp)
{
	struct engine_qp *eqp = calloc(1, sizeof(*eqp));

	if (!eqp)
		return -ENOMEM;
	eqp->qp = qp;
	eqp->scan = !engine_ctx_hooked(qp->ctx);
	if (cq_link(qp->scq->engine, eqp))
		goto err_free;
	if (cq_link(qp->rcq->engine, eqp))
		goto err_scq;
	eqp->next = qps;
	if (qps)
		qps->prev = eqp;
	qps = eqp;
	if (eqp->scan && !scanned++)
		engine_wake();
	__atomic_store_n(&qp->engine, eqp, __ATOMIC_RELEASE);
	return 0;

err_scq:
	cq_unlink(qp->scq->engine, eqp);
err_free:
	free(eqp);
	return -ENOMEM;
}

void engine_qp_destroyed(struct host_qp *qp)
{
	struct engine_qp *eqp = engine_qp(qp);

	if (!eqp)
		return;
	engine_kicks_serve();
	engine_qp_sync(qp);
	if (eqp->conn)
		engine_conn_detach(eqp->conn);
	cq_unlink(qp->scq->engine, eqp);
	cq_unlink(qp->rcq->engine, eqp);
	if (eqp->prev)
		eqp->prev->next = eqp->next;
	else
		qps = eqp->next;
	if (eqp->next)
		eqp->next->prev = eqp->prev;
	if (eqp->scan)
		scanned--;
	qp->engine = NULL;
	free(eqp);
}

void engine_qp_watch(struct host_qp *qp)
{
	struct engine_qp *eqp = engine_qp(qp);

	if (!eqp)
		return;
	atomic_store(&eqp->rq_watch, true);
	engine_qp_sync(qp);
}

int engine_cq_created(struct host_cq *cq)
{
	struct engine_cq *ecq = calloc(1, sizeof(*ecq));

	if (!ecq)
		return -ENOMEM;
	ecq->kick.is_cq = true;
	ecq->cq = cq;
	ecq->scan = !engine_ctx_hooked(cq->ctx);
	ecq->next = cqs;
	if (cqs)
		cqs->prev = ecq;
	cqs = ecq;
	if (ecq->scan && !scanned++)
		engine_wake();
	__atomic_store_n(&cq->engine, ecq, __ATOMIC_RELEASE);
	return 0;
}

void engine_cq_destroyed(struct host_cq *cq)
{
	struct engine_cq *ecq = cq->engine;

	if (!ecq)
		return;
	engine_kicks_serve();
	if (ecq->prev)
		ecq->prev->next = ecq->next;
	else
		cqs = ecq->next;
	if (ecq->next)
		ecq->next->prev = ecq->prev;
	if (ecq->scan)
		scanned--;
	cq->engine = NULL;
	free(ecq->qps);
	free(ecq);
}

void engine_progress_forget(void)
{
	qps = NULL;
	cqs = NULL;
	scanned = 0;
	atomic_store(&kicks, NULL);
	ready_head = NULL;
	ready_tail = &ready_head;
	atomic_store(&poll_streak, 0);
	others_stamp = 0;
	conn_count = 0;
}
