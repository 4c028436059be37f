/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Registers, command queue and event queues of the function as numbers: offsets, masks, opcodes.  What they share with
 * the data queues is in adapter/core/hw.h.
 */
#ifndef EA_PCI_HW_H
#define EA_PCI_HW_H

/* ---- BAR 0, page 0 */

enum pci_reg {
	REG_VERSION = 0x00,
	REG_DEV_PROTO = 0x0c,
	REG_DEV_CTRL = 0x10,
	REG_DEV_ST = 0x14,
	REG_MAC_L = 0x18,
	REG_MAC_H = 0x1c,
	REG_CMDQ_SQ_ADDR_L = 0x20,
	REG_CMDQ_SQ_ADDR_H = 0x24,
	REG_CMDQ_CQ_ADDR_L = 0x28,
	REG_CMDQ_CQ_ADDR_H = 0x2c,
	REG_CMDQ_DEPTH = 0x30,
	REG_CMDQ_EQ_DEPTH = 0x34,
	REG_CMDQ_EQ_ADDR_L = 0x38,
	REG_CMDQ_EQ_ADDR_H = 0x3c,
	REG_AEQ_ADDR_L = 0x40,
	REG_AEQ_ADDR_H = 0x44,
	REG_AEQ_DEPTH = 0x48,
	REG_GRP_NUM = 0x4c,
	REG_AEQ_DB = 0x50,
	REG_RECORDS = 0x60, /* four doorbell record addresses */
	REG_RECORDS_END = 0x80,
	REG_STAT_TX_IN_PKTS = 0x80,
	REG_STAT_TX_OUT_PKTS = 0x88,
	REG_STAT_TX_OUT_BYTES = 0x90,
	REG_STAT_RX_PKTS = 0xc0,
	REG_STAT_RX_BYTES = 0xc8,
	REG_STAT_RX_DROP = 0xd0,
	REG_EQ_DB = 0x100, /* 8 bytes for each EQN */
	REG_EQ_DB_END = 0x200,
	REG_CMDQ_SQDB = 0x200,
	REG_CMDQ_CQDB = 0x300,
};

#define DEV_CTRL_RESET 0x1u
#define DEV_CTRL_INIT  0x2u
#define DEV_ST_RESET   0x1u
#define DEV_ST_INIT    0x2u

enum {
	DEV_VERSION = 1,
	DEV_PROTO_IWARP = 0,
	DB_PAGE_SHIFT = 12,
	PAGE_SQ_FIRST = 1,
	PAGE_SQ_LAST = 96,
	PAGE_RQ_FIRST = 97,
	PAGE_RQ_LAST = 120,
	PAGE_CQ_FIRST = 121,
	PAGE_CQ_LAST = 127,
	PAGE_EXT_FIRST = 128, /* three for each context, see db.c */
};

/* ---- event queues */

#define EQDB_ARM   0x80000000ull
#define EQDB_CI	   0x0000ffffull /* the driver's counter has 16 bits */
#define CEQE_DB	   0x8000000000000000ull
#define CEQE_PI	   0x00ffffff00000000ull
#define CEQE_OWNER 0x80000000ull
#define CEQE_CQN   0x000fffffull
#define AEQE_OWNER 0x80000000u
#define AEQE_TYPE  0x00ff0000u

enum {
	EQE_SIZE = 16,
	EQ_SHIFT_MAX = 15,
	EQ_QTYPE_CEQ = 1,
};

enum aeqe_type {
	AEQE_QP_FATAL = 0,
	AEQE_ACC_ERR = 2,
	AEQE_CQ_ERR = 3,
};

/* ---- command queue */

enum {
	CMDQ_BLOCKS_MAX = 8, /* what the header can say */
	CMDQ_DEPTH_MAX = 32768,
	CMDQ_QTYPE = 2,
};

#define CMD_BLOCKS 0x0070000000000000ull /* minus 1 */
#define CMD_COOKIE 0x0000ffff00000000ull
#define CMD_SUB	   0x0000000003000000ull
#define CMD_OPCODE 0x0000000000ff0000ull
#define CMD_INDEX  0x000000000000ffffull

/* Doorbells and completions of the command queue are as those of a data queue: adapter/core/hw.h. */

enum cmd_sub {
	SUB_RDMA = 0,
	SUB_COMMON = 1,
};

enum cmd_rdma {
	CMD_QUERY_DEVICE = 0,
	CMD_CREATE_QP = 1,
	CMD_DESTROY_QP = 2,
	CMD_MODIFY_QP = 3,
	CMD_CREATE_CQ = 4,
	CMD_DESTROY_CQ = 5,
	CMD_REFLUSH = 6,
	CMD_REG_MR = 8,
	CMD_DEREG_MR = 9,
	CMD_SET_GID = 14,
	CMD_CREATE_AH = 15,
	CMD_DESTROY_AH = 16,
	CMD_QUERY_QP = 17,
};

enum cmd_common {
	CMD_CREATE_EQ = 0,
	CMD_DESTROY_EQ = 1,
	CMD_QUERY_FW_INFO = 2,
	CMD_CONF_MTU = 3,
	CMD_GET_STATS = 4,
	CMD_CONF_DEVICE = 5,
	CMD_ALLOC_DB = 8,
	CMD_FREE_DB = 9,
};

/* QUERY_DEVICE */
#define CAP0_MAX_GID	   0x000f000000000000ull
#define CAP0_MAX_CQE	   0x0000ff0000000000ull
#define CAP0_FLAGS	   0x00000000ff000000ull
#define CAP0_MAX_RECV_WR   0x0000000000ff0000ull
#define CAP0_MAX_AH	   0x000000000000ff00ull
#define CAP0_MAX_MR_SIZE   0x00000000000000ffull
#define CAP1_LOCAL_KEY	   0xffffffff00000000ull
#define CAP1_CC		   0x00000000f0000000ull
#define CAP1_QBLOCK	   0x000000000fff0000ull
#define CAP_FLAG_ATOMIC	   0x80u
#define CAP_FLAG_MTT_VA	   0x20u
#define CAP_FLAG_EXTEND_DB 0x08u

enum {
	QPS_PER_QBLOCK = 1024
};

/* CREATE_CQ */
#define CQ_CFG0_DEPTH  0xff000000u
#define CQ_CFG0_PAGE   0x00f00000u
#define CQ_CFG0_CQN    0x000fffffu
#define CQ_CFG1_COUNT  0xffff0000u
#define CQ_CFG1_LEVEL  0x00008000u
#define CQ_CFG1_DB_CFG 0x00000800u
#define CQ_CFG1_EQN    0x000003ffu
#define CQ_CFG2_DB     0x0000ffffu

/* CREATE_QP */
#define QP_CFG0_SQ_SHIFT 0xfff00000u
#define QP_CFG0_QPN	 0x000fffffu
#define QP_CFG1_RQ_SHIFT 0xfff00000u
#define QP_CFG1_PD	 0x000fffffu
#define QP_CQ_PAGE	 0xf0000000u
#define QP_CQ_DB_CFG	 0x02000000u
#define QP_CQ_CQN	 0x00ffffffu
#define QP_MTT_OFFSET	 0xfffff000u /* in place */
#define QP_MTT_COUNT	 0x00000ffeu
#define QP_MTT_LEVEL	 0x00000001u
#define QP_DB_SQ	 0xffff0000u
#define QP_DB_RQ	 0x0000ffffu
#define QP_CFG2_TYPE	 0x0000000fu

enum {
	QP_PAGE_KERNEL = 8, /* 1 MiB: no user QP can have it */
	QP_TYPE_RC = 0,
};

/* MODIFY_QP */
#define MOD_STATE 0xff000000u
#define MOD_CC	  0x00f00000u
#define MOD_QPN	  0x000fffffu

enum {
	CC_COUNT = 5,
	CC_DEFAULT = 1, /* CUBIC */
};

/* REG_MR */
#define MR_CFG0_VERSION 0x70000000u
#define MR_CFG0_KEY	0x0ff00000u
#define MR_CFG0_INDEX	0x000fffffu
#define MR_CFG1_PD	0xfffff000u
#define MR_CFG1_TYPE	0x000000c0u
#define MR_CFG1_ACCESS	0x0000003eu
#define MR_CFG2_PAGE	0xf8000000u
#define MR_CFG2_NODE	0x07000000u
#define MR_CFG2_LEVEL	0x00300000u
#define MR_CFG2_COUNT	0x000fffffu

/* CONF_DEVICE */
#define CONF_PS_EN   0x80000000u
#define CONF_PGSHIFT 0x0000001fu

/* ALLOC_DB */
#define DB_CFG_SQ 0x1u
#define DB_CFG_RQ 0x2u
#define DB_CFG_CQ 0x4u

/* GET_STATS */
enum {
	STATS_MAGIC = 0x5566,
	STATS_COUNTERS = 16,
	STATS_SIZE = 16 + 11 * 8,
};

#endif
