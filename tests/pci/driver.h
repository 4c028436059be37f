/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The Linux driver's part, in the manner of two kernels: probe, commands, queues, doorbells.  Written from the device's
 * contract, and sharing nothing with the server.
 */
#ifndef TESTS_PCI_DRIVER_H
#define TESTS_PCI_DRIVER_H

#include "tests/pci/vm.h"

enum drv_kind {
	DRV_61, /* slots of 64 bytes, fixed doorbell pages */
	DRV_72, /* slots of 128 bytes, doorbell pages by ALLOC_DB */
};

enum {
	DRV_CEQS = 4,
	DRV_WAIT_MS = 30000, /* for what must come, on a machine however busy */
	DRV_DB_SQ_KERNEL = 0x5f000,
	DRV_DB_RQ_KERNEL = 0x61000,
	DRV_DB_CQ_KERNEL = 0x79000,
};

struct drv {
	struct vm *vm;
	enum drv_kind kind;
	uint64_t aeq, csq, ccq, ceq0; /* rings; ceq0 is the command EQ */
	uint64_t ceq[DRV_CEQS + 1];
	uint32_t depth, slot; /* blocks */
	uint16_t csq_pi;
	uint32_t ccq_ci, ceq0_ci, cmdsn;
	uint16_t aeq_ci, ceq_ci[DRV_CEQS + 1];
	bool event_driven;
	uint16_t sdb, rdb, cdb; /* of the one user context; 0: none */
	uint64_t resp[2];	/* of the last command */
	uint16_t index;		/* of the last command's completion */
};

/* A command that completed; returns its syndrome.  The body is what follows the header. */
uint8_t drv_cmd(struct drv *d, uint8_t sub, uint8_t op, const void *body, size_t len);

/* The two steps of drv_cmd(): without the doorbell, and waiting for the completion. */
void drv_put_cmd(struct drv *d, uint8_t sub, uint8_t op, const void *body, size_t len);
uint8_t drv_end_cmd(struct drv *d);

/* Write the queue registers and INIT; poll for INIT_DONE: true when it came. */
bool drv_init(struct drv *d, struct vm *vm, enum drv_kind kind);

/* All of a probe, and for DRV_72 a user context. */
void drv_probe(struct drv *d, struct vm *vm, enum drv_kind kind);

void drv_reset(struct drv *d);

/* Next asynchronous event; false when there is none. */
bool drv_aeqe(struct drv *d, uint8_t *type, uint32_t *number);
/* Next event of CEQ @eqn and its CQN. */
bool drv_ceqe(struct drv *d, unsigned int eqn, uint32_t *cqn);
/* As the interrupt handlers ring at their end. */
void drv_arm_ceq(struct drv *d, unsigned int eqn);

/* ---- objects; each returns the syndrome of its command */

struct drv_cq {
	struct drv *d;
	uint32_t cqn;
	uint8_t shift;
	uint64_t ring, record;
	uint32_t ci;
	uint32_t arms, events;
	bool user;
};

uint8_t drv_create_cq(struct drv *d, struct drv_cq *cq, uint32_t cqn, uint8_t shift, uint32_t eqn,
		      bool user);
uint8_t drv_destroy_cq(struct drv_cq *cq);
void drv_arm_cq(struct drv_cq *cq, bool solicited);

struct drv_wc {
	uint8_t opcode, qtype, syndrome;
	uint32_t index, qpn, size, extra;
};

/* Take a completion; waits up to @ms for it. */
bool drv_poll(struct drv_cq *cq, struct drv_wc *wc, int ms);

struct drv_qp {
	struct drv *d;
	uint32_t qpn, cookie;
	uint8_t sq_shift, rq_shift;
	uint64_t sq, rq, record; /* of the SQ; the RQ's is behind it */
	uint16_t sq_pi, rq_pi;
	bool user;
};

uint8_t drv_create_qp(struct drv *d, struct drv_qp *qp, uint32_t qpn, uint32_t pd,
		      const struct drv_cq *scq, const struct drv_cq *rcq, bool user);
uint8_t drv_destroy_qp(struct drv_qp *qp);
uint8_t drv_modify_qp(struct drv_qp *qp, uint8_t state);

/* The end of a TCP connection. */
struct drv_end {
	uint32_t sip, dip; /* numbers */
	uint16_t sport, dport;
	uint32_t send_nxt, recv_nxt;
};
uint8_t drv_rts(struct drv_qp *qp, uint32_t peer_cookie, const struct drv_end *end);

/* Both ends of a connection; @passive first, as it happens. */
void drv_connect(struct drv_qp *active, struct drv_qp *passive);

/* A region of @len bytes at bus address @addr, at the same virtual address. */
uint8_t drv_reg_mr(struct drv *d, uint32_t stag, uint32_t pd, uint64_t addr, uint64_t len,
		   uint32_t access);
uint8_t drv_dereg_mr(struct drv *d, uint32_t stag);

enum {
	DRV_LOCAL_READ = 1 << 2,
	DRV_LOCAL_WRITE = 1 << 3,
	DRV_REMOTE_READ = 1 << 4,
	DRV_REMOTE_WRITE = 1 << 5,
	DRV_ALL = 0x3c,
};

/*
 * Two QPs that are connected with each other, each with its own CQ on event queue 1, and a region @key of twice @half bytes.
 * Returns the region's bus address.
 */
uint64_t drv_pair(struct drv *d, struct drv_cq cq[2], struct drv_qp qp[2], uint32_t key,
		  uint32_t half);

/* ---- work requests, one SGE, signalled; they ring */

enum {
	WR_WRITE = 0,
	WR_READ = 1,
	WR_SEND = 2,
	WR_SEND_IMM = 3,
	WC_RECV = 4,
	WC_RECV_IMM = 5,
	WR_WRITE_IMM = 9,
	WC_RSP_SEND_IMM = 12,
	WR_READ_INV = 16,
};

struct drv_wr {
	uint8_t op;
	bool solicited, no_bell;
	uint32_t len, lkey, rkey;
	uint64_t addr, raddr;
	uint32_t imm; /* number; WR_READ_INV: the STag to invalidate */
};

void drv_post(struct drv_qp *qp, const struct drv_wr *wr);

/* Any WQE of @blocks blocks; all of its header but index, QPN and size is the caller's. */
void drv_post_raw(struct drv_qp *qp, uint8_t *wqe, uint32_t blocks);

/* REG_MR of @pages <= 4 pages, and LOCAL_INV, of a kernel's fast-registration region; unsignalled. */
void drv_fast_reg(struct drv_qp *qp, uint32_t stag, uint64_t iova, uint32_t len,
		  const uint64_t *pages, uint32_t count, uint32_t access);
void drv_local_inv(struct drv_qp *qp, uint32_t stag, bool fence);
void drv_recv(struct drv_qp *qp, uint64_t addr, uint32_t len, uint32_t lkey);
void drv_ring_sq(struct drv_qp *qp);

#endif
