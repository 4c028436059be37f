/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The process host: what its parts share.
 *
 *   front   (adapter/process/)         interposed libc calls, virtual sysfs and /dev, netlink, own fds,
 *                                      uverbs commands, erdma-run
 *   cm      (adapter/process/cm/)      rdma_cm commands, MPA connection set-up over TCP, out-of-band RC
 *   engine  (adapter/process/engine/)  the engine lock, the helper thread, timers, socket readiness,
 *                                      the verbs hook (inline progress)
 *
 * One device model (struct ea_dev) per device and process.  The engine lock serialises all of the
 * core and everything declared here unless a comment says otherwise.
 *
 * Code in this library that calls an interposed libc function (open, write, close, socket,
 * ioctl...) comes back to the interposer first, which passes it on after a look at the descriptor
 * table; real functions are at hand by REAL() of libc.h where even that is too much.
 */
#ifndef EA_HOST_H
#define EA_HOST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include "adapter/core/core.h"

/* ---------------------------------------------------- settings and messages (front: settings.c) */

enum host_mode {
	HOST_IWARP, /* RNIC; connections by rdma_cm */
	HOST_ROCE,  /* CA on Ethernet; RC connected by ibv_modify_qp (GID + QPN) */
};

enum host_log_level {
	HOST_LOG_OFF,
	HOST_LOG_ERROR, /* something is wrong with this library or its surroundings */
	HOST_LOG_INFO,	/* what a user who asks "why" wants to see: refused commands, lost peers */
	HOST_LOG_DEBUG,
};

/* What erdma-run asked for; constant after the first call.  No lock needed. */
struct host_settings {
	enum host_mode mode;
	bool netlink;	 /* answer NETLINK_RDMA; else refuse it, so that sysfs is searched */
	bool crc;	 /* ask for and accept CRC32C in MPA */
	uint16_t mulpdu; /* most bytes of a ULPDU we send; 0: the link's default */
	enum host_log_level log_level;
};

const struct host_settings *host_settings(void);

/* One line "erdma-host: ..." on stderr when @level is asked for; keeps errno.  Any thread. */
void host_log(enum host_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ------------------------------------------------------------------ devices (front: device.c) */

/*
 * One device.  Described from the launcher's settings at first use; lives until the process ends.
 * Constant after creation: everything above the line.
 */
struct host_dev {
	char name[16]; /* erdma_0 */
	int index;     /* 0.. ; uverbs<index>; the ibdev_index of rdma_cm answers */
	enum host_mode mode;
	char ifname[16]; /* paired interface */
	int ifindex;
	uint8_t mac[6];
	uint64_t node_guid; /* network order */
	bool any_addr;	    /* serves every local address, not only those of ifname */
	uint32_t max_qp, max_cq, max_mr;
	/* ---- valid after host_dev_start(), engine lock */
	struct ea_dev *core;
	struct host_qp **qps; /* by QPN, size max_qp; entries written under the engine lock, read with
					   acquire by the hook */
	struct host_cq **cqs;	   /* by CQN, size max_cq */
	struct uverbs_dev *uverbs; /* private to uverbs */
};

int host_dev_count(void);
struct host_dev *host_dev_get(int index);

/*
 * Give the device its model and tables when it has none yet (a uverbs or rdma_cm file is being
 * opened). Thread-safe; call without the engine lock.  0 or -errno.
 */
int host_dev_start(struct host_dev *dev);

/*
 * The device that serves local address @sa (AF_INET, AF_INET6; a wildcard gives NULL).  NULL: none.
 * Asks the kernel for addresses when needed; call without the engine lock.
 */
struct host_dev *host_dev_by_addr(const struct sockaddr *sa);

/*
 * GID @index of port 1: iWARP index 0 is the MAC and ten zeros; RoCE: the link-local GID and one of
 * each address.  0, -EINVAL (index beyond the table) or -ENODATA (empty slot).  Any thread.
 */
enum {
	HOST_ROCE_GIDS = 128,
	HOST_GID_LEN = 16
};
int host_dev_gid(struct host_dev *dev, unsigned int index, uint8_t gid[HOST_GID_LEN]);
/* The first index of this GID, or -ENOENT. */
int host_dev_gid_find(struct host_dev *dev, const uint8_t gid[HOST_GID_LEN]);

/* ------------------------------------------------------------------ fork (front: file.c) */

/*
 * In the child of fork() the adapter starts anew: inherited device files answer EIO, all hidden
 * descriptors are closed, and the device tables are forgotten (not freed: their locks and lists may
 * be half-way). These run in the child, one thread, before the program's code; they forget state,
 * re-initialise locks, and touch neither descriptors nor the core.
 */
void engine_fork_child(void);
void cm_fork_child(void);

/* ------------------------------------------------------------------ own files (front: file.c) */

/*
 * A file descriptor that is a device file of ours.  Embedded in the owner's structure.  Results are
 * 0 or the byte count, or a negative errno that the interposer turns into -1 and errno.
 * ops run without the engine lock and may be called by several threads at once.
 */
struct host_file;

struct host_file_ops {
	const char *name; /* for messages: "rdma_cm" */
	ssize_t (*write)(struct host_file *file, const void *buf, size_t count); /* NULL: EINVAL */
	ssize_t (*read)(struct host_file *file, void *buf,
			size_t count); /* NULL: the real descriptor's */
	int (*ioctl)(struct host_file *file, unsigned long request, void *arg); /* NULL: ENOTTY */
	void (*release)(
		struct host_file *file); /* last descriptor closed, last operation over; frees */
	bool fork_safe;			 /* goes on working in the child of fork() */
};

struct host_file {
	const struct host_file_ops *ops;
	dev_t rdev; /* what fstat() shows (S_ISCHR); 0: show the real descriptor */
	int refs;   /* private to file.c */
};

/*
 * Make @fd (an open descriptor of the real kernel) stand for @file; takes over @fd.  0 or -errno.
 */
int host_file_install(struct host_file *file, int fd);

/*
 * The file behind a descriptor, with a reference, or NULL when @fd is not ours; host_file_put()
 * gives it back.
 */
struct host_file *host_file_get(int fd);
void host_file_put(struct host_file *file);

/*
 * Move an internal descriptor out of the way of the program: the new number (high, CLOEXEC,
 * protected from close, dup2, closefrom), or -errno with @fd closed.  host_fd_unhide_close() closes
 * it.  @fd may be what the call that makes it returned: where that failed the result is -errno, too.
 */
int host_fd_hide(int fd);
void host_fd_unhide_close(int fd);

/* ----------------------------------------------------------------- event files (front: event.c) */

/*
 * A pipe whose read end belongs to the program: completion channels, async files, rdma_cm channels.
 * Every event is one atomic write.  Never blocks; overflow is kept in memory and drained by the
 * engine.
 */
struct host_evq;

/* *read_fd: the program's end (O_CLOEXEC).  One reference.  NULL with errno.  No lock needed. */
struct host_evq *host_evq_create(int *read_fd, size_t event_size);
void host_evq_get(struct host_evq *q); /* engine lock held, as all below */
void host_evq_put(struct host_evq *q);
void host_evq_close(
	struct host_evq *q); /* the program's end is gone: events are dropped from now on */
int host_evq_push(struct host_evq *q,
		  const void *event); /* wakes no thread of ours; 0 or -ENOMEM */
/*
 * Take out all events not yet read by the program for which @match is true; returns how many.
 * Order of the others is kept.
 */
unsigned int host_evq_remove(struct host_evq *q, bool (*match)(const void *event, void *arg),
			     void *arg);

/* ---------------------------------------------------------------- verbs objects (front: uverbs) */

struct host_ctx; /* one open uverbs file */
struct cm_conn;

struct host_cq {
	struct host_dev *dev;
	struct host_ctx *ctx;
	uint32_t cqn;
	uint32_t handle;
	uint64_t user_handle;
	volatile uint64_t *record;		/* doorbell record in the program's memory */
	uint64_t seen;				/* last doorbell value given to the core */
	struct host_evq *channel;		/* or NULL */
	struct host_evq *async;			/* or NULL */
	unsigned int comp_events, async_events; /* pushed so far */
	unsigned int qp_count;			/* QPs that use this CQ */
	void *engine;				/* engine's own */
};

struct host_qp {
	struct host_dev *dev;
	struct host_ctx *ctx;
	uint32_t qpn;
	uint32_t handle;
	uint64_t user_handle;
	struct host_cq *scq, *rcq;
	volatile uint64_t *sq_record, *rq_record;
	uint64_t sq_seen, rq_seen; /* last doorbell values given to the core */
	struct ea_qp *core;
	struct cm_conn *conn;	   /* cm's: the connection that carries this QP; NULL */
	struct host_evq *async;	   /* or NULL */
	unsigned int async_events; /* pushed so far */
	void *engine;		   /* engine's own */
};

/* Engine lock held. */
struct host_qp *host_qp_find(struct host_dev *dev, uint32_t qpn);

/*
 * The context behind a uverbs command descriptor, without a lock (the program must not close it
 * meanwhile); NULL.
 */
struct host_ctx *host_ctx_by_fd(int cmd_fd);
struct host_dev *host_ctx_dev(struct host_ctx *ctx);
/* By the handle that struct ibv_cq carries; no lock needed by a caller that owns the ibv_cq. */
struct host_cq *host_cq_by_handle(struct host_ctx *ctx, uint32_t handle);
struct host_qp *host_qp_by_handle(struct host_ctx *ctx, uint32_t handle);

/*
 * Report an async event of a QP (IBV_EVENT_QP_FATAL...) on its context's async file; engine lock
 * held.
 */
void host_qp_async_event(struct host_qp *qp, uint32_t ibv_event);

/* --------------------------------------------------------------- what uverbs calls (cm, engine) */

/*
 * A QP that cm connected leaves RTS by ibv_modify_qp (@to: CLOSING, TERMINATE, ERROR); called
 * before ea_qp_modify() with the engine lock held.  cm queues DISCONNECTED for its id and lets the
 * link wind up.  Also called before a QP goes to RESET in HOST_ROCE (with ERROR; ea_qp_reset()
 * follows).  Called for every QP that has left IDLE or RTR or whose conn is set.
 */
void cm_qp_leaving(struct host_qp *qp, enum ea_qp_state to);
/* Sends wait at a QP that has no connection.  Engine lock held. */
void cm_qp_sends_wait(struct host_qp *qp);
/* Before the QP is destroyed; the connection ends abruptly.  Engine lock held. */
void cm_qp_destroyed(struct host_qp *qp);

/*
 * HOST_ROCE: ibv_modify_qp asks for RTR with this remote end; the carrier is set up in the
 * background.  Engine lock held. 0 or -errno (EINVAL: GID of no known form).
 */
struct host_oob_addr {
	uint8_t dgid[HOST_GID_LEN];
	uint8_t sgid[HOST_GID_LEN]; /* looked up from sgid_index */
	uint8_t sgid_index;
	uint8_t max_rd_atomic; /* at RTR: max_dest_rd_atomic, what we accept */
	uint32_t dest_qpn;
};
/*
 * QP numbers in this mode lead to the process (see cm/oob.c); 20 bits; 0: none to be had.  Engine
 * lock held.
 */
uint32_t cm_oob_qpn_take(struct host_dev *dev);
void cm_oob_qpn_give(struct host_dev *dev, uint32_t qpn);
int cm_oob_rtr(struct host_qp *qp, const struct host_oob_addr *addr);
/*
 * At RTS: for how long the peer may be silent before a send fails (ibv_modify_qp's timeout and
 * retry_cnt; timeout 0: for ever).  0, -EINVAL.
 */
struct host_oob_rts {
	uint8_t max_rd_atomic;
	uint8_t timeout, retry_cnt;
};
int cm_oob_rts(struct host_qp *qp, const struct host_oob_rts *rts);

/*
 * The program opened /dev/infiniband/rdma_cm: a new descriptor (installed as a host_file) or
 * -errno.
 */
int ucma_open(int flags);

/*
 * Objects come and go (engine lock held): the engine keeps its lists by them.  created: 0 or
 * -ENOMEM.
 */
int engine_qp_created(struct host_qp *qp);
void engine_qp_destroyed(struct host_qp *qp);
int engine_cq_created(struct host_cq *cq);
void engine_cq_destroyed(struct host_cq *cq);

/*
 * A command of this context is about to run / its descriptor was closed; no lock.  The verbs hook
 * wraps functions that libibverbs sets after verbs_set_ops(), and keeps what it needs by context.
 */
void engine_ctx_command(struct host_ctx *ctx);
void engine_ctx_closed(struct host_ctx *ctx);

#endif
