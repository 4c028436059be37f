/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* What the files of the engine share. */
#ifndef EA_ENGINE_INTERNAL_H
#define EA_ENGINE_INTERNAL_H

#include <stdatomic.h>
#include <stddef.h>
#include <infiniband/verbs.h>
#include "adapter/process/engine/engine.h"
#include "adapter/process/host.h"

/* A doorbell rung while the lock was busy; the holder serves it. */
struct engine_kick {
	struct engine_kick *next;
	_Atomic(bool) queued;
	bool is_cq;
};

struct engine_qp {
	struct engine_kick kick;
	struct host_qp *qp;
	struct engine_conn *conn;
	atomic_bool rq_watch;			  /* post_recv must ring */
	bool scan;				  /* no hook: the helper looks at the records */
	struct engine_qp *prev, *next;		  /* all QPs */
	int (*wr_complete)(struct ibv_qp_ex *qp); /* provider's, when wrapped */
};

struct engine_cq {
	struct engine_kick kick;
	struct host_cq *cq;
	struct engine_qp **qps; /* each QP once */
	unsigned int nqps, size;
	bool scan;
	struct engine_cq *prev, *next;
	uint32_t idle_polls; /* empty inline polls in a row; written by pollers, a hint */
	uint64_t last_try, idle_since;
	int (*start_poll)(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr);
	int (*next_poll)(struct ibv_cq_ex *cq);
};

/* lock.c */
void engine_lock_reinit(void); /* fork child */
bool engine_lock_wanted(void); /* someone sleeps for the lock */

/* timer.c; lock held */
uint64_t engine_timers_due(void); /* when the first is due; UINT64_MAX: none */
void engine_timers_run(uint64_t now);
void engine_timers_forget(void); /* fork child, as all that forget */

/* loop.c */
void engine_wake(void);	    /* the helper thread shall look; any thread */
void engine_dispatch(void); /* take events of all descriptors without waiting; lock held */
unsigned int engine_fd_count(void);
void engine_before_unlock(void); /* work, ready connections, wake-ups; lock held */

/* progress.c */
bool engine_kicks_waiting(void);
void engine_kicks_serve(void);		    /* lock held */
void engine_kick(struct engine_kick *kick); /* lock not held: serve now or leave it to the holder */
bool engine_ready_run(unsigned int budget); /* lock held; true: some are left */
bool engine_poll_inline(struct engine_cq *cq); /* lock not held; true: something may have arrived */
bool engine_scan(void); /* lock held; look at records of contexts without hook; true: found work */
bool engine_scan_needed(void);
void engine_progress_forget(void);

/* Inline pollers are at work: the helper thread need not watch the sockets now. */
bool engine_claimed(uint64_t now);

/* hook.c */
bool engine_ctx_hooked(struct host_ctx *ctx);
void engine_hooks_forget(void);

#endif
