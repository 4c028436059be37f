/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The engine of a process: one lock, one helper thread, socket readiness, timers, and inline
 * progress from the program's own verbs calls.
 *
 * Who makes progress:
 *   - a program that posts runs the send side of its QP itself (hook.c);
 *   - a program that polls an empty CQ receives for the connections of that CQ itself.  While it
 *     goes on polling, the helper thread does not wake for packets (it is "claimed");
 *   - everything else (programs that sleep or look only at memory, targets of RDMA, connection
 *     set-up, timers) is served by the helper thread, which sleeps in epoll_wait() and blocks all
 *     signals.
 *
 * The engine starts with the first uverbs or rdma_cm file that is opened.  The child of a fork()
 * has none until it opens a file of its own.
 */
#ifndef EA_ENGINE_H
#define EA_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

struct host_qp;
struct host_cq;
struct host_ctx;

/* Start the helper thread if it does not run yet (thread-safe, idempotent).  0 or -errno. */
int engine_start(void);

/* The process ends: the helper thread does nothing any more.  Lock held. */
void engine_park(void);

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t engine_now(void);

/* ------------------------------------------------------------------ lock */

/*
 * The engine lock.  Not recursive.  Never held while blocking.  engine_unlock() first serves what
 * threads that found the lock busy have left (doorbells), and connections that are ready.
 */
void engine_lock(void);
bool engine_trylock(void);
void engine_unlock(void);
bool engine_lock_held(void); /* by this thread; for assertions */

/* ------------------------------------------------------------------ descriptors, timers, work */

/* All with the lock held. */

/*
 * A descriptor the engine watches (level triggered).  Callback runs with the lock held, in any
 * thread.
 */
struct engine_fd {
	int fd;
	uint32_t events; /* EPOLLIN | EPOLLOUT ...; read only for the owner after add */
	void (*ready)(struct engine_fd *efd, uint32_t events);
	uint32_t slot, gen; /* private */
};

int engine_fd_add(struct engine_fd *efd);		   /* 0 or -errno */
int engine_fd_mod(struct engine_fd *efd, uint32_t events); /* no system call when nothing changes */
void engine_fd_del(struct engine_fd *efd); /* no callback afterwards; does not close; idempotent */

/* A one-shot timer; a little late at most.  Zero-initialise. */
struct engine_timer {
	uint64_t due_ns; /* CLOCK_MONOTONIC; 0: idle */
	void (*fire)(struct engine_timer *timer);
	unsigned int pos; /* private */
};

void engine_timer_set(struct engine_timer *timer, uint64_t delay_ns);
void engine_timer_cancel(struct engine_timer *timer);

/*
 * Run once soon, with the lock held, from a clean stack: when the lock is given back or in the
 * helper thread.
 */
struct engine_work {
	void (*run)(struct engine_work *work);
	struct engine_work *next;
	bool queued;
};

void engine_work_queue(struct engine_work *work);
void engine_work_cancel(struct engine_work *work);

/* ------------------------------------------------------------------ connections; lock held */

/* What engine_conn.progress returns besides EPOLLIN and EPOLLOUT. */
enum {
	ENGINE_CONN_MORE = 1u << 30, /* the budget is used up; call again */
	ENGINE_CONN_HELD = 1u << 29, /* waits for a receive WQE */
	ENGINE_CONN_GONE = 1u << 31, /* was removed by engine_conn_del(); do not touch it */
};

/*
 * A connection in data phase.  @progress moves what it can in both directions without blocking,
 * within its own budget, and tells what to wait for: EPOLLIN, EPOLLOUT, EPOLLRDHUP and the bits
 * above.  It is called by the helper thread, by posts and by polls. engine_conn_del() inside
 * progress is allowed; then it returns ENGINE_CONN_GONE.
 */
struct engine_conn {
	struct engine_fd efd; /* fd set by the owner, the rest private */
	/* @what: EPOLLIN, EPOLLOUT, EPOLLRDHUP: what the socket said; 0: queued, or more is left */
	uint32_t (*progress)(struct engine_conn *conn, uint32_t what);
	struct host_qp *qp;	  /* NULL when the QP is gone already */
	struct engine_conn *next; /* private */
	bool queued, held, counted;
};

/* qp and efd.fd set; efd may be registered already.  Queues it once.  0 or -errno. */
int engine_conn_add(struct engine_conn *conn);
void engine_conn_del(struct engine_conn *conn);	   /* idempotent */
void engine_conn_detach(struct engine_conn *conn); /* the QP goes, the connection stays */
void engine_conn_ready(struct engine_conn *conn);  /* call progress soon */

/* ------------------------------------------------------------------ objects; lock held */

/* Give doorbells that the program has rung since the last look to the core. */
void engine_qp_sync(struct host_qp *qp);
void engine_cq_sync(struct host_cq *cq);

/*
 * The QP is not, or not any longer, in RTS: from now on each doorbell is looked at when it rings,
 * so that late work requests are flushed.  Call before ea_qp_modify() to an error or closing state.
 */
void engine_qp_watch(struct host_qp *qp);

#endif
