/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the acceptance tests share: the device under test, connected pairs of QPs in one process,
 * a second process as the peer, and waiting with a limit.
 *
 * The tests use the public API of libibverbs and librdmacm only, so each runs on any iWARP or RoCE
 * device.  tests/accept/run starts them under erdma-run and tells by environment what they stand on:
 *
 *   ER_PROVIDER	"ours" (default) or "system": whose liberdma is loaded.  Debian's own has known
 *			defects; ts_known_defect() skips the expectations that it is known to miss.
 *   ER_SCALE		1..100, percent of the full number of rounds (default 100)
 *   ER_PEER_LAUNCH	command line that the peer process is started with (erdma-run --provider system)
 *   ER_ADDR		address to connect to (127.0.0.1)
 *
 * Every function ends the test by a cmocka failure that names what went wrong; none returns an error
 * unless it says so.  Call them from the test's main thread.
 */
#ifndef ACCEPT_HARNESS_H
#define ACCEPT_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <cmocka.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

enum {
	TS_WAIT_MS = 10000, /* for what must happen */
	TS_QUIET_MS = 100,  /* for what must not happen */
	TS_MAX_INLINE = 96,
	TS_MAX_SEND_SGE = 6,
	TS_PRIVATE_MAX = 255,
};

/* ------------------------------------------------------------------ the device */

struct ts_dev {
	struct ibv_context *ctx;
	struct ibv_device_attr attr;
	struct ibv_pd *pd;
	bool iwarp; /* transport; false: RoCE, connected by ibv_modify_qp */
	bool ours;  /* ER_PROVIDER */
};

/* Opened at the first call, the same for the whole process.  A child after fork() must not use it. */
struct ts_dev *ts_dev(void);

/* A provider may lack the extended calls; the first call finds out by trying. */
bool ts_has_qp_ex(void);
bool ts_has_cq_ex(void);

/* The send_ops_flags that ts_has_qp_ex() asks for. */
uint64_t ts_all_send_ops(void);

/* ------------------------------------------------------------------ expectations */

#define TS_FAIL(...) ts_fail(__FILE__, __LINE__, __VA_ARGS__)
void ts_fail(const char *file, int line, const char *format, ...)
	__attribute__((noreturn, format(printf, 3, 4)));

/* Fails with errno's text: for calls that return NULL or -1. */
#define TS_CHECK(condition)                                             \
	do {                                                            \
		if (!(condition))                                       \
			TS_FAIL("%s: %s", #condition, strerror(errno)); \
	} while (0)

/* For calls that return 0 or an errno value. */
#define TS_OK(call)                                                                           \
	do {                                                                                  \
		int ts_rc_ = (call);                                                          \
		if (ts_rc_)                                                                   \
			TS_FAIL("%s returned %d (%s)", #call, ts_rc_, strerror(abs(ts_rc_))); \
	} while (0)

#define TS_EQ(have, want)                                                                  \
	do {                                                                               \
		unsigned long long ts_have_ = (unsigned long long)(have);                  \
		unsigned long long ts_want_ = (unsigned long long)(want);                  \
		if (ts_have_ != ts_want_)                                                  \
			TS_FAIL("%s is %llu (0x%llx), expected %s = %llu (0x%llx)", #have, \
				ts_have_, ts_have_, #want, ts_want_, ts_want_);            \
	} while (0)

/* Skip this test with a printed reason. */
void ts_skip(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/*
 * True, with a line printed, when Debian's provider is under test: it is known to miss the expectation
 * that follows.  @defect is the name the reason is known by, for example "overflow check".
 */
bool ts_known_defect(const char *defect);

/* @full rounds scaled by ER_SCALE, at least 1. */
long ts_scale(long full);

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t ts_now(void);
void ts_sleep_ms(int ms);

/* ------------------------------------------------------------------ memory */

struct ts_buf {
	void *p;
	size_t len;
	struct ibv_mr *mr;
};

enum {
	TS_ACCESS_ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ
};

/* Page-aligned, zeroed, registered with TS_ACCESS_ALL in the device's PD. */
void ts_buf_open(struct ts_buf *buf, size_t len);
void ts_buf_close(struct ts_buf *buf);

/* Bytes that depend on @seed and on their place. */
void ts_fill(void *p, size_t len, uint32_t seed);
/* The offset of the first byte that ts_fill() would not have written, or -1. */
ssize_t ts_differs(const void *p, size_t len, uint32_t seed);

/* ------------------------------------------------------------------ pairs */

struct ts_attr {
	struct ibv_qp_cap cap; /* zero fields become 16 WRs, 1 SGE; result of the creation */
	int sq_sig_all;
	int cqe;		  /* depth of own CQs; 0: all WRs and some */
	struct ibv_cq *scq, *rcq; /* NULL: own ones */
	bool one_cq;		  /* own CQ is shared by both queues */
	bool channel;		  /* own CQs have a completion channel */
	bool qp_ex;		  /* create with all send operations of ibv_wr_* */
	uint8_t ird, ord;	  /* 0: 16 */
};

struct ts_end {
	struct ibv_qp *qp;
	struct ibv_cq *scq, *rcq; /* may be the same */
	struct ibv_comp_channel *channel;
	struct rdma_cm_id *id; /* iWARP */
	struct rdma_event_channel *events;
	struct ts_attr attr;
	bool own_scq, own_rcq;
};

struct ts_pair {
	struct ts_end a, b; /* a connects to b; both are in RTS */
};

/* @a, @b: NULL for the defaults. */
void ts_pair_open(struct ts_pair *pair, const struct ts_attr *a, const struct ts_attr *b);
void ts_pair_close(struct ts_pair *pair);

/* The same from several threads; no cmocka failure: NULL, or what went wrong (static text, errno set). */
const char *ts_pair_try(struct ts_pair *pair, const struct ts_attr *a, const struct ts_attr *b);
const char *ts_pair_try_close(struct ts_pair *pair);

/* One end only: CQs and a QP in RESET that belongs to no rdma_cm id. */
void ts_end_open(struct ts_end *end, const struct ts_attr *attr);
void ts_end_close(struct ts_end *end);

/* The next event of @events within TS_WAIT_MS must be @want; NULL with errno when it is another. */
struct rdma_cm_event *ts_event_try(struct rdma_event_channel *events, enum rdma_cm_event_type want,
				   int timeout_ms);
/* The same, acknowledged, and failing the test. */
void ts_event(struct rdma_event_channel *events, enum rdma_cm_event_type want);
/* No event for TS_QUIET_MS. */
void ts_no_event(struct rdma_event_channel *events);

/* ------------------------------------------------------------------ work */

/* Up to @n completions, until @timeout_ms have passed; returns how many.  Status is not looked at. */
int ts_poll_some(struct ibv_cq *cq, struct ibv_wc *wc, int n, int timeout_ms);
/* Exactly @n. */
void ts_poll(struct ibv_cq *cq, struct ibv_wc *wc, int n);
/* Exactly one, successful. */
void ts_poll_ok(struct ibv_cq *cq, struct ibv_wc *wc);
/* None for TS_QUIET_MS. */
void ts_poll_none(struct ibv_cq *cq);

struct ibv_sge ts_sge(const struct ts_buf *buf, size_t off, uint32_t len);

/* One signalled WR with one SGE (@len 0: none); returns ibv_post_send's result. */
int ts_post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint64_t wr_id,
	    const struct ts_buf *local, size_t off, uint32_t len, uint64_t raddr, uint32_t rkey,
	    unsigned int flags);
/* @len 0: no SGE */
int ts_post_recv(struct ibv_qp *qp, uint64_t wr_id, const struct ts_buf *buf, size_t off,
		 uint32_t len);

/* ------------------------------------------------------------------ a peer process */

/*
 * A second process that runs this program again, by ER_PEER_LAUNCH when set, as `argv[0] --peer ROLE`
 * (see ts_main).  Its standard input and output are pipes for a line-wise talk.  On the side of the peer
 * the same functions talk to the parent with a NULL peer.
 */
struct ts_peer {
	pid_t pid;
	FILE *to, *from;
};

void ts_peer_start(struct ts_peer *peer, const char *role);
void ts_say(struct ts_peer *peer, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* One line without its newline, within TS_WAIT_MS; the buffer belongs to the harness. */
char *ts_hear(struct ts_peer *peer);
/* Wait for its exit, which must be with status 0. */
void ts_peer_finish(struct ts_peer *peer);
void ts_peer_kill(struct ts_peer *peer);

/* Sides of a connection between two processes; the passive side prints its port by ts_say(). */
void ts_listen_one(struct ts_end *end, const struct ts_attr *attr);
void ts_connect_to(struct ts_end *end, const struct ts_attr *attr, int port);
/* What a peer needs to reach a buffer: as a line, and back. */
void ts_say_buf(struct ts_peer *peer, const struct ts_buf *buf);
void ts_hear_buf(struct ts_peer *peer, uint64_t *addr, uint32_t *rkey);

/* ------------------------------------------------------------------ main */

struct ts_role {
	const char *name;
	int (*run)(void);
};

/*
 * Runs the tests; with a test's name as argument only that one; with --list prints the names; started
 * as a peer, runs one of @roles (ended by a NULL name; may be NULL).  Returns the exit status.
 */
int ts_main(int argc, char **argv, const char *group, const struct CMUnitTest *tests, size_t ntests,
	    const struct ts_role *roles);

/* ------------------------------------------------------------------ the process */

/*
 * Open descriptors, mappings and resident bytes of this process.  With a sanitizer, whose own memory
 * grows with what it has seen, mappings and bytes are 0.
 */
long ts_fd_count(void);
long ts_vma_count(void);
long ts_resident(void);

struct sockaddr;
/* ER_ADDR or 127.0.0.1, with @port, as text. */
const char *ts_addr(void);

#endif
