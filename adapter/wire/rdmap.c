// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <assert.h>
#include <endian.h>
#include <linux/types.h>

#include "adapter/wire/rdmap.h"

enum {
	RDMAP_VERSION_SHIFT = 6,
	RDMAP_OPCODE = 0x0f,
};

enum {
	ATOMIC_OPCODE = 0x0000000f,
};

struct rdmap_read_req {
	__be32 sink_stag;
	__be64 sink_to;
	__be32 len;
	__be32 src_stag;
	__be64 src_to;
} __attribute__((packed));

struct rdmap_atomic_req {
	__be32 op;
	__be32 id;
	__be32 stag;
	__be64 to;
	__be64 add_swap;
	__be64 add_swap_mask;
	__be64 compare;
	__be64 compare_mask;
} __attribute__((packed));

struct rdmap_atomic_resp {
	__be32 id;
	__be64 old;
} __attribute__((packed));

struct rdmap_ack {
	__be32 count;
} __attribute__((packed));

struct rdmap_imm {
	__be32 imm;
	__be32 zero;
} __attribute__((packed));

static_assert(sizeof(struct rdmap_read_req) == EA_READ_REQ_LEN, "read request");
static_assert(sizeof(struct rdmap_atomic_req) == EA_ATOMIC_REQ_LEN, "atomic request");
static_assert(sizeof(struct rdmap_atomic_resp) == EA_ATOMIC_RESP_LEN, "atomic response");
static_assert(sizeof(struct rdmap_ack) == EA_ACK_LEN, "acknowledgement");
static_assert(sizeof(struct rdmap_imm) == EA_IMM_DATA_LEN, "immediate data");

enum {
	TAGGED = 1 << 0,
	SEND = 1 << 1,
	CTRL = 1 << 2,
	SOLICITED = 1 << 3,
	INVALIDATE = 1 << 4,
	IMMEDIATE = 1 << 5,
};

static const struct {
	const char *name;
	uint8_t flags;
	uint8_t qn;
	uint8_t min_len, max_len; /* control messages */
} opcodes[EA_RDMAP_NR_OPCODES] = {
	[EA_RDMAP_WRITE] = { "RDMA Write", TAGGED, 0, 0, 0 },
	[EA_RDMAP_READ_REQ] = { "RDMA Read Request", CTRL, EA_QN_READ_REQ, EA_READ_REQ_LEN,
				EA_READ_REQ_LEN },
	[EA_RDMAP_READ_RESP] = { "RDMA Read Response", TAGGED, 0, 0, 0 },
	[EA_RDMAP_SEND] = { "Send", SEND, EA_QN_SEND, 0, 0 },
	[EA_RDMAP_SEND_INV] = { "Send Invalidate", SEND | INVALIDATE, EA_QN_SEND, 0, 0 },
	[EA_RDMAP_SEND_SE] = { "Send SE", SEND | SOLICITED, EA_QN_SEND, 0, 0 },
	[EA_RDMAP_SEND_SE_INV] = { "Send SE Invalidate", SEND | SOLICITED | INVALIDATE, EA_QN_SEND,
				   0, 0 },
	[EA_RDMAP_TERMINATE] = { "Terminate", CTRL, EA_QN_TERMINATE, EA_TERMINATE_MIN,
				 EA_TERMINATE_MAX },
	[EA_RDMAP_IMM] = { "Immediate Data", CTRL | IMMEDIATE, EA_QN_SEND, EA_IMM_DATA_LEN,
			   EA_IMM_DATA_LEN },
	[EA_RDMAP_IMM_SE] = { "Immediate Data SE", CTRL | IMMEDIATE | SOLICITED, EA_QN_SEND,
			      EA_IMM_DATA_LEN, EA_IMM_DATA_LEN },
	[EA_RDMAP_ATOMIC_REQ] = { "Atomic Request", CTRL, EA_QN_READ_REQ, EA_ATOMIC_REQ_LEN,
				  EA_ATOMIC_REQ_LEN },
	[EA_RDMAP_ATOMIC_RESP] = { "Atomic Response", CTRL, EA_QN_ATOMIC_RESP, EA_ATOMIC_RESP_LEN,
				   EA_ATOMIC_RESP_LEN },
	[EA_RDMAP_SEND_IMM] = { "Send Immediate", SEND | IMMEDIATE, EA_QN_SEND, 0, 0 },
	[EA_RDMAP_SEND_SE_IMM] = { "Send SE Immediate", SEND | SOLICITED | IMMEDIATE, EA_QN_SEND, 0,
				   0 },
	[EA_RDMAP_ACK] = { "Acknowledge", CTRL, EA_QN_ACK, EA_ACK_LEN, EA_ACK_LEN },
};

uint8_t ea_rdmap_ctrl(uint8_t opcode)
{
	return EA_RDMAP_VERSION << RDMAP_VERSION_SHIFT | (opcode & RDMAP_OPCODE);
}

uint8_t ea_rdmap_opcode(uint8_t ctrl)
{
	return ctrl & RDMAP_OPCODE;
}

static bool has_flag(uint8_t opcode, uint8_t flag)
{
	return opcode < EA_RDMAP_NR_OPCODES && (opcodes[opcode].flags & flag);
}

bool ea_rdmap_is_tagged(uint8_t opcode)
{
	return has_flag(opcode, TAGGED);
}

bool ea_rdmap_is_send(uint8_t opcode)
{
	return has_flag(opcode, SEND);
}

bool ea_rdmap_is_ctrl(uint8_t opcode)
{
	return has_flag(opcode, CTRL);
}

bool ea_rdmap_is_solicited(uint8_t opcode)
{
	return has_flag(opcode, SOLICITED);
}

bool ea_rdmap_has_inv(uint8_t opcode)
{
	return has_flag(opcode, INVALIDATE);
}

bool ea_rdmap_has_imm(uint8_t opcode)
{
	return has_flag(opcode, IMMEDIATE);
}

const char *ea_rdmap_opcode_str(uint8_t opcode)
{
	return opcode < EA_RDMAP_NR_OPCODES ? opcodes[opcode].name : "unassigned opcode";
}

enum ea_rdmap_err ea_rdmap_check(const struct ea_ddp_hdr *hdr, uint32_t payload)
{
	uint8_t opcode = ea_rdmap_opcode(hdr->ulp_ctrl);

	if (hdr->ulp_ctrl >> RDMAP_VERSION_SHIFT != EA_RDMAP_VERSION)
		return EA_RDMAP_BAD_VERSION;
	if (opcode >= EA_RDMAP_NR_OPCODES)
		return EA_RDMAP_BAD_OPCODE;
	if (hdr->tagged != ea_rdmap_is_tagged(opcode))
		return EA_RDMAP_BAD_MODEL;
	if (hdr->tagged)
		return EA_RDMAP_OK;
	if (hdr->qn != opcodes[opcode].qn)
		return EA_RDMAP_BAD_QN;
	if (!ea_rdmap_is_ctrl(opcode))
		return EA_RDMAP_OK;
	if (hdr->mo)
		return EA_RDMAP_BAD_MO;
	if (!hdr->last)
		return EA_RDMAP_NOT_LAST;
	if (payload < opcodes[opcode].min_len || payload > opcodes[opcode].max_len)
		return EA_RDMAP_BAD_LEN;
	return EA_RDMAP_OK;
}

uint32_t ea_read_req_encode(const struct ea_read_req *req, void *buf)
{
	struct rdmap_read_req *wire = buf;

	wire->sink_stag = htobe32(req->sink_stag);
	wire->sink_to = htobe64(req->sink_to);
	wire->len = htobe32(req->len);
	wire->src_stag = htobe32(req->src_stag);
	wire->src_to = htobe64(req->src_to);
	return sizeof(*wire);
}

void ea_read_req_decode(const void *buf, struct ea_read_req *req)
{
	const struct rdmap_read_req *wire = buf;

	req->sink_stag = be32toh(wire->sink_stag);
	req->sink_to = be64toh(wire->sink_to);
	req->len = be32toh(wire->len);
	req->src_stag = be32toh(wire->src_stag);
	req->src_to = be64toh(wire->src_to);
}

uint32_t ea_atomic_req_encode(const struct ea_atomic_req *req, void *buf)
{
	struct rdmap_atomic_req *wire = buf;

	wire->op = htobe32(req->op & ATOMIC_OPCODE);
	wire->id = htobe32(req->id);
	wire->stag = htobe32(req->stag);
	wire->to = htobe64(req->to);
	wire->add_swap = htobe64(req->add_swap);
	wire->add_swap_mask = htobe64(req->add_swap_mask);
	wire->compare = htobe64(req->compare);
	wire->compare_mask = htobe64(req->compare_mask);
	return sizeof(*wire);
}

void ea_atomic_req_decode(const void *buf, struct ea_atomic_req *req)
{
	const struct rdmap_atomic_req *wire = buf;

	req->op = be32toh(wire->op) & ATOMIC_OPCODE;
	req->id = be32toh(wire->id);
	req->stag = be32toh(wire->stag);
	req->to = be64toh(wire->to);
	req->add_swap = be64toh(wire->add_swap);
	req->add_swap_mask = be64toh(wire->add_swap_mask);
	req->compare = be64toh(wire->compare);
	req->compare_mask = be64toh(wire->compare_mask);
}

/* Adds in several fields at once; each set bit of @mask is the highest bit of a field. */
static uint64_t add_in_fields(uint64_t old, uint64_t add, uint64_t mask)
{
	uint64_t low = (old & ~mask) + (add & ~mask);

	return low ^ ((old ^ add) & mask);
}

uint64_t ea_atomic_apply(const struct ea_atomic_req *req, uint64_t old)
{
	if (req->op == EA_ATOMIC_FETCH_ADD)
		return add_in_fields(old, req->add_swap, req->add_swap_mask);
	if ((old ^ req->compare) & req->compare_mask)
		return old;
	return (old & ~req->add_swap_mask) | (req->add_swap & req->add_swap_mask);
}

uint32_t ea_atomic_resp_encode(const struct ea_atomic_resp *resp, void *buf)
{
	struct rdmap_atomic_resp *wire = buf;

	wire->id = htobe32(resp->id);
	wire->old = htobe64(resp->old);
	return sizeof(*wire);
}

void ea_atomic_resp_decode(const void *buf, struct ea_atomic_resp *resp)
{
	const struct rdmap_atomic_resp *wire = buf;

	resp->id = be32toh(wire->id);
	resp->old = be64toh(wire->old);
}

uint32_t ea_ack_encode(uint32_t count, void *buf)
{
	struct rdmap_ack *wire = buf;

	wire->count = htobe32(count);
	return sizeof(*wire);
}

uint32_t ea_ack_decode(const void *buf)
{
	const struct rdmap_ack *wire = buf;

	return be32toh(wire->count);
}

uint32_t ea_imm_encode(uint32_t imm, void *buf)
{
	struct rdmap_imm *wire = buf;

	wire->imm = htobe32(imm);
	wire->zero = 0;
	return sizeof(*wire);
}

uint32_t ea_imm_decode(const void *buf)
{
	const struct rdmap_imm *wire = buf;

	return be32toh(wire->imm);
}
