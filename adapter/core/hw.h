/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The bit layouts of the ERDMA queues: work requests, completions, doorbells.  Only numbers; what they
 * mean is in the files that use them.
 */
#ifndef EA_HW_H
#define EA_HW_H

#include <endian.h>
#include <stdint.h>
#include <string.h>
#include <linux/types.h>

/* Opcodes of work requests and of completions. */
enum ea_hw_op {
	EA_OP_WRITE = 0,
	EA_OP_READ = 1,
	EA_OP_SEND = 2,
	EA_OP_SEND_IMM = 3,
	EA_OP_RECV = 4,	    /* completion only */
	EA_OP_RECV_IMM = 5, /* completion only: a write with immediate arrived */
	EA_OP_RECV_INV = 6, /* completion only */
	EA_OP_WRITE_IMM = 9,
	EA_OP_RSP_SEND_IMM = 12, /* completion only: a send with immediate arrived */
	EA_OP_SEND_INV = 13,
	EA_OP_REG_MR = 14,
	EA_OP_LOCAL_INV = 15,
	EA_OP_READ_INV = 16,
	EA_OP_CAS = 17,
	EA_OP_FAA = 18,
	EA_OP_COUNT,
};

enum ea_syndrome {
	EA_SYN_SUCCESS = 0,
	EA_SYN_GENERAL = 1,
	EA_SYN_RECV_FORMAT = 2,
	EA_SYN_RECV_STAG = 3,
	EA_SYN_RECV_ADDR = 4,
	EA_SYN_RECV_RIGHT = 5,
	EA_SYN_RECV_PD = 6,
	EA_SYN_RECV_WRAP = 7,
	EA_SYN_SEND_FORMAT = 8,
	EA_SYN_SEND_ORD = 9,
	EA_SYN_SEND_STAG = 10,
	EA_SYN_SEND_ADDR = 11,
	EA_SYN_SEND_RIGHT = 12,
	EA_SYN_SEND_PD = 13,
	EA_SYN_SEND_WRAP = 14,
	EA_SYN_FLUSH = 15,
	EA_SYN_RETRY = 16,
};

/* A field of a word that is given by its mask. */
#define EA_FIELD(mask, word) (((word) & (mask)) >> __builtin_ctzll(mask))
#define EA_PREP(mask, value) (((uint64_t)(value) << __builtin_ctzll(mask)) & (mask))

/* ---- doorbells */

#define EA_SQDB_QPN 0x000fffff00000000ull
#define EA_SQDB_PI  0x000000000000ffffull
#define EA_RQDB_QPN 0xffffffff00000000ull
#define EA_RQDB_PI  0x000000000000ffffull
#define EA_CQDB_CQN 0x00ffffff00000000ull
#define EA_CQDB_ARM 0x0000000080000000ull
#define EA_CQDB_SOL 0x0000000040000000ull
#define EA_CQDB_CI  0x0000000000ffffffull

/* ---- send queue */

enum {
	EA_ENTRY_SIZE = 32, /* SQ block, RQE and CQE alike */
	EA_WQE_BLOCKS_MAX = 4,
	EA_SGE_SIZE = 16,
	EA_WRITE_HDR = 32, /* WRITE kinds: bytes before SGEs or inline data */
	EA_SEND_HDR = 16,
	EA_READ_SIZE = 48,
	EA_ATOMIC_SIZE = 64,
	EA_REG_MR_SIZE = 32,
	EA_LOCAL_INV_SIZE = 32,
	EA_REG_INLINE_MAX = 4,
};

#define EA_SQ_SGL_LEN 0xff00000000000000ull
#define EA_SQ_BLOCKS  0x0070000000000000ull /* minus 1 */
#define EA_SQ_QPN     0x000fffff00000000ull
#define EA_SQ_OPCODE  0x00000000f8000000ull
#define EA_SQ_INLINE  0x0000000002000000ull
#define EA_SQ_FENCE   0x0000000001000000ull
#define EA_SQ_SE      0x0000000000800000ull
#define EA_SQ_CE      0x0000000000400000ull
#define EA_SQ_INDEX   0x000000000000ffffull

/* Byte offsets in a work request. */
enum {
	EA_WQE_IMM = 8, /* WRITE_IMM, SEND_IMM: four bytes as in the work request */
	EA_WQE_INV = 8, /* SEND_INV, READ_INV: LE32 */
	EA_WQE_LENGTH = 12,
	EA_WRITE_RKEY = 16,
	EA_WRITE_RADDR = 20, /* LE32 low, LE32 high */
	EA_READ_LKEY = 16,
	EA_READ_LADDR = 20, /* LE32 low, LE32 high */
	EA_READ_RADDR = 32,
	EA_READ_RKEY = 44,
	EA_ATOMIC_SWAP_ADD = 16,
	EA_ATOMIC_COMPARE = 24,
	EA_ATOMIC_RADDR = 32,
	EA_ATOMIC_RKEY = 44,
	EA_ATOMIC_LADDR = 48,
	EA_ATOMIC_LLEN = 56,
	EA_ATOMIC_LKEY = 60,
	EA_REG_IOVA = 8,
	EA_REG_LENGTH = 16,
	EA_REG_STAG = 20,
	EA_REG_ATTRS = 24,
	EA_REG_PAGES = 32,
	EA_INV_STAG = 20,
};

#define EA_REG_MTT_CNT	0xfffff000u
#define EA_REG_MTT_TYPE 0x000000c0u
#define EA_REG_ACCESS	0x0000003eu

enum {
	EA_REG_MTT_INLINE = 0,
	EA_REG_MTT_ARRAY = 1
};

/* ---- receive queue */

enum {
	EA_RQE_INDEX = 0, /* LE16 */
	EA_RQE_QPN = 4,
	EA_RQE_ADDR = 16,
	EA_RQE_LENGTH = 24,
	EA_RQE_LKEY = 28,
};

/* ---- completion queue */

#define EA_CQE_OWNER	0x80000000u
#define EA_CQE_OPCODE	0x00ff0000u
#define EA_CQE_QTYPE	0x0000ff00u
#define EA_CQE_SYNDROME 0x000000ffu

enum {
	EA_QTYPE_SQ = 0,
	EA_QTYPE_RQ = 1
};

struct ea_hw_cqe {
	__be32 header;
	__be32 index;
	__be32 qpn;
	union {
		__le32 imm;
		__be32 inv_stag;
		__be32 extra;
	};
	__be32 size;
	__be32 rsvd[3];
};

/* ---- unaligned little-endian loads from queue memory or a copy of it */

static inline uint16_t ea_le16(const void *p)
{
	__le16 v;

	memcpy(&v, p, sizeof(v));
	return le16toh(v);
}

static inline uint32_t ea_le32(const void *p)
{
	__le32 v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

static inline uint64_t ea_le64(const void *p)
{
	__le64 v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

static inline uint32_t ea_be32(const void *p)
{
	__be32 v;

	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}

#endif
