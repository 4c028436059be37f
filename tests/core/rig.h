/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A device in a box for the tests of the core: a memory with bus addresses of its own, queues built byte by byte,
 * and a link that is a script.
 *
 * The layouts here are written down a second time, as numbers, so that a slip in the core's own
 * definitions is seen.
 */
#ifndef TESTS_CORE_RIG_H
#define TESTS_CORE_RIG_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "adapter/core/core.h"
#include "adapter/wire/rdmap.h"
#include "tests/core/carry.h"

enum {
	PAGE = 4096,
	MEM_PAGES = 4096,
	MEM_SIZE = MEM_PAGES * PAGE,
	SQ_SHIFT = 6, /* blocks */
	RQ_SHIFT = 4,
	CQ_SHIFT = 8,
	PD = 7,
	LKEY_IDX = 1,
	EVENTS_MAX = 4096,
	ALL_ACCESS = 0x1f,
	DATA_SIZE = 1 << 20,
};

#define BUS 0x7700000000ull /* bus address of the memory's byte 0 */

enum op {
	OP_WRITE = 0,
	OP_READ = 1,
	OP_SEND = 2,
	OP_SEND_IMM = 3,
	OP_RECV = 4,
	OP_RECV_IMM = 5,
	OP_RECV_INV = 6,
	OP_WRITE_IMM = 9,
	OP_RSP_SEND_IMM = 12,
	OP_SEND_INV = 13,
	OP_REG_MR = 14,
	OP_LOCAL_INV = 15,
	OP_READ_INV = 16,
	OP_CAS = 17,
	OP_FAA = 18,
};

enum flag {
	F_CE = 1,
	F_SE = 2,
	F_FENCE = 4,
	F_INLINE = 8
};

enum syndrome {
	SYN_GENERAL = 1,
	SYN_RECV_FORMAT = 2,
	SYN_FORMAT = 8,
	SYN_ORD = 9,
	SYN_STAG = 10,
	SYN_ADDR = 11,
	SYN_RIGHT = 12,
	SYN_PD = 13,
	SYN_WRAP = 14,
	SYN_FLUSH = 15,
	SYN_RETRY = 16,
};

struct event {
	bool async;
	uint32_t kind;	 /* async: enum ea_async_event */
	uint32_t number; /* CQN or QPN */
	uint32_t pi;
};

/* A completion as software sees it. */
struct wc {
	uint32_t opcode, qtype, syn, index, qpn, size;
	uint8_t extra[4];
};

struct cq {
	uint32_t cqn;
	uint64_t ring; /* bus address */
	uint32_t ci;
	uint8_t shift;
};

struct sge {
	uint64_t addr;
	uint32_t len, lkey;
};

/* One side of the scripted link. */
struct side {
	struct ea_link link;
	bool ready, resumed, shut;
	enum ea_shutdown how;
	/* message under way to the peer */
	bool busy;
	struct ea_tx_msg msg;
	uint32_t off;
	uint32_t last_seg; /* payload bytes of the segments sent last */
	int rx_err;	   /* result that ended reception here */
	unsigned int msgs, segs;
};

struct qp {
	struct rig *rig;
	uint32_t qpn;
	struct cq scq, rcq;
	uint64_t sq, rq; /* bus addresses */
	uint8_t sq_shift, rq_shift;
	uint16_t sq_pi, rq_pi; /* software's counters */
	uint64_t data;	       /* bus address of DATA_SIZE bytes under key */
	uint32_t key;
	struct side side;
};

struct rig {
	struct ea_dev *dev;
	uint8_t *mem;
	uint32_t next;	  /* free memory, bytes */
	bool acks;	  /* connect with acknowledgements */
	bool scattered;	  /* neighbouring pages are not neighbours in the host */
	uint64_t fail_at; /* an address that is not mapped any more; 0: none */
	uint32_t mulpdu;  /* payload bytes of a segment */
	struct event events[EVENTS_MAX];
	unsigned int nevents;
	struct qp a, b;
};

static inline struct sge sge_of(const struct qp *qp, uint32_t off, uint32_t len)
{
	return (struct sge){ .addr = qp->data + off, .len = len, .lkey = qp->key };
}

/* The device and two unconnected QPs: 1 and 2, CQs 1 to 4. */
void rig_open(struct rig *rig, bool scattered);
void rig_close(struct rig *rig);
void rig_connect(struct rig *rig, uint8_t ord, uint8_t ird);

/* A test's own sizes: everything but the QPs, then each QP. */
void rig_open_bare(struct rig *rig, bool scattered);
void qp_open(struct rig *rig, struct qp *qp, uint32_t qpn, uint8_t sq_shift, uint8_t rq_shift);
void cq_open(struct rig *rig, struct cq *cq, uint32_t cqn, uint8_t shift);

uint64_t rig_alloc(struct rig *rig, uint32_t size); /* page aligned bus address */
uint8_t *at(struct rig *rig, uint64_t bus);	    /* one page can be used there */
void poke(struct rig *rig, uint64_t bus, const void *data, size_t len);
void peek(struct rig *rig, uint64_t bus, void *data, size_t len);
void poke64(struct rig *rig, uint64_t bus, uint64_t value);
uint64_t peek64(struct rig *rig, uint64_t bus);
void fill(struct rig *rig, uint64_t bus, uint32_t len, uint32_t seed);
bool filled_from(struct rig *rig, uint64_t bus, uint32_t from, uint32_t len, uint32_t seed);
bool filled(struct rig *rig, uint64_t bus, uint32_t len, uint32_t seed);
struct ea_pages flat(uint64_t bus);
uint32_t mr_add(struct rig *rig, uint32_t stag, uint32_t pdn, uint32_t access, uint64_t start,
		uint64_t len);

/* Work requests; each returns the index of the first block.  Nothing is rung. */
uint16_t put(struct qp *qp, const uint8_t *wqe, uint32_t used, uint32_t op, uint32_t flags,
	     uint32_t sgl_len);
uint16_t put_write(struct qp *qp, uint32_t op, uint32_t flags, const struct sge *sge, uint32_t n,
		   uint32_t rkey, uint64_t raddr, uint32_t imm);
uint16_t put_write_inline(struct qp *qp, uint32_t op, uint32_t flags, const void *data,
			  uint32_t len, uint32_t rkey, uint64_t raddr, uint32_t imm);
uint16_t put_send(struct qp *qp, uint32_t op, uint32_t flags, const struct sge *sge, uint32_t n,
		  uint32_t word);
uint16_t put_send_inline(struct qp *qp, uint32_t op, uint32_t flags, const void *data, uint32_t len,
			 uint32_t word);
uint16_t put_read(struct qp *qp, uint32_t op, uint32_t flags, struct sge sink, uint32_t rkey,
		  uint64_t raddr, uint32_t inv);
uint16_t put_atomic(struct qp *qp, uint32_t op, uint32_t flags, struct sge result, uint32_t rkey,
		    uint64_t raddr, uint64_t swap_add, uint64_t compare);
uint16_t put_reg(struct qp *qp, uint32_t flags, uint32_t stag, uint64_t iova, uint32_t len,
		 uint32_t access, uint32_t type, const uint64_t *pages, uint32_t n);
uint16_t put_inv(struct qp *qp, uint32_t flags, uint32_t stag);
void put_one(struct qp *qp, uint32_t flags); /* a write of 100 bytes from data to the peer's */
void patch64(struct qp *qp, uint16_t index, uint32_t off, uint64_t clear, uint64_t set);
void patch32(struct qp *qp, uint16_t index, uint32_t off, uint32_t value);
void ring_sq(struct qp *qp);
void ring_sq_at(struct qp *qp, uint16_t pi);

void put_recv(struct qp *qp, uint64_t addr, uint32_t len, uint32_t lkey); /* rings */
void ring_rq_at(struct qp *qp, uint16_t pi);

/* Completions: next one or false; the owner bit is checked against the lap. */
bool poll(struct rig *rig, struct cq *cq, struct wc *wc);
void expect_wc(struct rig *rig, struct cq *cq, uint32_t opcode, uint32_t qtype, uint32_t syn,
	       uint32_t index, uint32_t size);
void expect_none(struct rig *rig, struct cq *cq);
void arm(struct rig *rig, struct cq *cq, bool solicited);
unsigned int fired(struct rig *rig, uint32_t cqn); /* and forget */
unsigned int asyncs(struct rig *rig, enum ea_async_event kind, uint32_t qpn);

/* Carry messages until nothing moves. */
void pump(struct rig *rig);

/* The link by hand. */
int feed(struct qp *to, struct ea_rx_seg *seg, const void *payload);
struct ea_rx_seg tagged(uint8_t opcode, uint32_t stag, uint64_t to, uint32_t len, bool last);
struct ea_rx_seg untagged(uint8_t opcode, uint32_t qn, uint32_t msn, uint32_t mo, uint32_t word,
			  uint32_t len, bool last);
/* A shutdown with Terminate was asked for: take it and compare. */
struct ea_terminate expect_term(struct qp *qp, enum ea_term_cause cause, struct ea_tx_msg *msg);

#endif
