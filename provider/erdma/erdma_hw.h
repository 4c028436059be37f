/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the adapter sees: queue entries, doorbell values, limits. No logic.
 *
 * Send and receive queues are little endian, completions big endian. A send queue is a ring of
 * 32-byte blocks; a WQE takes one to four of them and may wrap. Running indices are 16 bits wide
 * for queues and are never reduced by the depth; the consumer count of a CQ has 24 bits.
 */
#ifndef ERDMA_HW_H
#define ERDMA_HW_H

#include <linux/types.h>
#include <stddef.h>
#include <assert.h>

#include <util/util.h>

#define ERDMA_PCI_VENDOR_ID 0x1ded
#define ERDMA_PCI_DEVICE_ID 0x107f

/* Sizes the adapter works with, whatever the host's page size is. */
#define ERDMA_HW_PAGE_SIZE 4096
#define ERDMA_BLOCK_SHIFT  5
#define ERDMA_BLOCK_SIZE   (1u << ERDMA_BLOCK_SHIFT)
#define ERDMA_RQE_SIZE	   32
#define ERDMA_CQE_SIZE	   32

/* Limits of every adapter; the rest comes from the device query. */
#define ERDMA_MAX_SEND_WR    8192
#define ERDMA_MAX_RECV_WR    65536 /* the receive index has 16 bits */
#define ERDMA_MAX_SEND_SGE   6
#define ERDMA_MAX_RECV_SGE   1
#define ERDMA_MAX_INLINE     96
#define ERDMA_MAX_WQE_BLOCKS 4
#define ERDMA_MAX_WQE_SIZE   (ERDMA_MAX_WQE_BLOCKS * ERDMA_BLOCK_SIZE)
#define ERDMA_MAX_SQ_BLOCKS  (ERDMA_MAX_SEND_WR * ERDMA_MAX_WQE_BLOCKS)
#define ERDMA_ATOMIC_LENGTH  8
#define ERDMA_MIN_CQE	     64

/* QP and CQ numbers have the width of their field in a doorbell. */
#define ERDMA_QPN_LIMIT (1u << 20)
#define ERDMA_CQN_LIMIT (1u << 24)

/*
 * Doorbell pages of a context. A queue's place in its page follows from its number, except for the
 * ENTRY kind of send doorbell page, of which the context owns a single slot.
 */
enum erdma_sdb_type {
	ERDMA_SDB_PAGE = 0,
	ERDMA_SDB_ENTRY = 1,
	ERDMA_SDB_SHARED = 2,
};

#define ERDMA_SDB_SLOTS	     32
#define ERDMA_SDB_SLOT_SIZE  128
#define ERDMA_SDB_ENTRIES    16
#define ERDMA_SDB_ENTRY_SIZE 256
#define ERDMA_RDB_SLOTS	     128
#define ERDMA_RDB_SLOT_SIZE  32
#define ERDMA_CDB_SLOTS	     512
#define ERDMA_CDB_SLOT_SIZE  8

/* Doorbell of a send queue, and its record. */
#define ERDMA_SQ_DB_QPN GENMASK_ULL(51, 32)
#define ERDMA_SQ_DB_PI	GENMASK_ULL(15, 0)

/* Doorbell of a receive queue, its record, and the first 8 bytes of the newest RQE. */
#define ERDMA_RQ_DB_QPN GENMASK_ULL(63, 32)
#define ERDMA_RQ_DB_PI	GENMASK_ULL(15, 0)

/* Doorbell of a completion queue: arms it. */
#define ERDMA_CQ_DB_IDX	  GENMASK_ULL(63, 56)
#define ERDMA_CQ_DB_CQN	  GENMASK_ULL(55, 32)
#define ERDMA_CQ_DB_ARM	  BIT_ULL(31)
#define ERDMA_CQ_DB_SOL	  BIT_ULL(30)
#define ERDMA_CQ_DB_CMDSN GENMASK_ULL(29, 28)
#define ERDMA_CQ_DB_CI	  GENMASK_ULL(23, 0)

/* First 8 bytes of a send WQE. */
#define ERDMA_WQE_SGL_LEN GENMASK_ULL(63, 56) /* SGEs, or bytes when INLINE */
#define ERDMA_WQE_BLOCKS  GENMASK_ULL(54, 52) /* minus one */
#define ERDMA_WQE_QPN	  GENMASK_ULL(51, 32)
#define ERDMA_WQE_OPCODE  GENMASK_ULL(31, 27)
#define ERDMA_WQE_INLINE  BIT_ULL(25)
#define ERDMA_WQE_FENCE	  BIT_ULL(24)
#define ERDMA_WQE_SE	  BIT_ULL(23)
#define ERDMA_WQE_CE	  BIT_ULL(22)
#define ERDMA_WQE_INDEX	  GENMASK_ULL(15, 0) /* running, after this WQE */

#define ERDMA_WQE_SGL_SHIFT    56
#define ERDMA_WQE_OPCODE_SHIFT 27
#define ERDMA_WQE_BLOCKS_SHIFT 52

/* Operations; work requests and completions share the numbers. */
enum erdma_opcode {
	ERDMA_OP_WRITE = 0,
	ERDMA_OP_READ = 1,
	ERDMA_OP_SEND = 2,
	ERDMA_OP_SEND_WITH_IMM = 3,
	ERDMA_OP_RECV = 4,
	ERDMA_OP_RECV_IMM = 5, /* a write with immediate arrived */
	ERDMA_OP_RECV_INV = 6, /* a send with invalidate arrived */
	ERDMA_OP_WRITE_WITH_IMM = 9,
	ERDMA_OP_RECV_SEND_IMM = 12, /* a send with immediate arrived */
	ERDMA_OP_SEND_WITH_INV = 13,
	ERDMA_OP_REG_MR = 14,
	ERDMA_OP_LOCAL_INV = 15,
	ERDMA_OP_READ_WITH_INV = 16,
	ERDMA_OP_ATOMIC_CAS = 17,
	ERDMA_OP_ATOMIC_FAA = 18,
	ERDMA_NUM_OPS,
};

struct erdma_sge {
	__le64 addr;
	__le32 length;
	__le32 lkey;
};

/* SEND, SEND_WITH_IMM, SEND_WITH_INV. SGEs or inline bytes follow. */
struct erdma_send_wqe {
	__le64 hdr;
	union {
		__be32 imm_data;
		__le32 invalidate_rkey;
	};
	__le32 length;
};

/* WRITE, WRITE_WITH_IMM. SGEs or inline bytes follow. */
struct erdma_write_wqe {
	__le64 hdr;
	__be32 imm_data;
	__le32 length;
	__le32 rkey;
	__le64 raddr;
	__le32 rsvd;
} __attribute__((packed, aligned(4)));

struct erdma_read_wqe {
	__le64 hdr;
	__le32 rsvd0;
	__le32 length;
	__le32 sink_lkey;
	__le64 sink_addr;
	__le32 rsvd1;
	__le64 raddr;
	__le32 rlength;
	__le32 rkey;
} __attribute__((packed, aligned(4)));

struct erdma_atomic_wqe {
	__le64 hdr;
	__le64 rsvd0;
	__le64 swap_add;
	__le64 compare;
	__le64 raddr;
	__le32 rsvd1;
	__le32 rkey;
	__le64 sink_addr;
	__le32 sink_length;
	__le32 sink_lkey;
};

struct erdma_inv_wqe {
	__le64 hdr;
	__le32 rsvd0[3];
	__le32 stag;
	__le64 rsvd1;
};

struct erdma_rqe {
	__le64 hdr;
	__le64 rsvd;
	struct erdma_sge sge;
};

/* First word of a CQE. */
#define ERDMA_CQE_OWNER	   BIT(31)
#define ERDMA_CQE_OPCODE   GENMASK(23, 16)
#define ERDMA_CQE_QTYPE	   GENMASK(15, 8) /* 0: send queue */
#define ERDMA_CQE_SYNDROME GENMASK(7, 0)

/* No queue pair has these numbers. */
#define ERDMA_QPN_DROPPED 0xffffffffu /* in a CQE: to be passed over */
#define ERDMA_QPN_NONE	  0xfffffffeu /* of a QP that is none */

struct erdma_cqe {
	__be32 hdr;
	__be32 index;
	__be32 qpn;
	union {
		__le32 imm_data; /* bytes in the reverse of network order */
		__be32 inv_rkey;
	};
	__be32 length;
	__be32 rsvd[3];
};

/* What went wrong with a work request. */
enum erdma_syndrome {
	ERDMA_SYN_SUCCESS = 0,
	ERDMA_SYN_GENERAL = 1,
	ERDMA_SYN_RECV_FORMAT = 2,
	ERDMA_SYN_RECV_STAG = 3,
	ERDMA_SYN_RECV_BOUNDS = 4,
	ERDMA_SYN_RECV_RIGHTS = 5,
	ERDMA_SYN_RECV_PD = 6,
	ERDMA_SYN_RECV_WRAP = 7,
	ERDMA_SYN_SEND_FORMAT = 8,
	ERDMA_SYN_SEND_ORD = 9,
	ERDMA_SYN_SEND_STAG = 10,
	ERDMA_SYN_SEND_BOUNDS = 11,
	ERDMA_SYN_SEND_RIGHTS = 12,
	ERDMA_SYN_SEND_PD = 13,
	ERDMA_SYN_SEND_WRAP = 14,
	ERDMA_SYN_FLUSH = 15,
	ERDMA_SYN_RETRY = 16,
	ERDMA_NUM_SYN,
};

static_assert(sizeof(struct erdma_sge) == 16, "SGE layout");
static_assert(sizeof(struct erdma_send_wqe) == 16, "SEND layout");
static_assert(sizeof(struct erdma_write_wqe) == 32, "WRITE layout");
static_assert(offsetof(struct erdma_write_wqe, raddr) == 20, "WRITE layout");
static_assert(sizeof(struct erdma_read_wqe) == 48, "READ layout");
static_assert(offsetof(struct erdma_read_wqe, raddr) == 32, "READ layout");
static_assert(sizeof(struct erdma_atomic_wqe) == 64, "ATOMIC layout");
static_assert(offsetof(struct erdma_inv_wqe, stag) == 20, "LOCAL_INV layout");
static_assert(sizeof(struct erdma_inv_wqe) == 32, "LOCAL_INV layout");
static_assert(sizeof(struct erdma_rqe) == ERDMA_RQE_SIZE, "RQE layout");
static_assert(sizeof(struct erdma_cqe) == ERDMA_CQE_SIZE, "CQE layout");

#endif
