/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * RDMAP: message kinds, the headers behind the DDP header, and Terminate.  RFC 5040; RFC 7306 for
 * immediate data and atomics.  Two opcodes of the unassigned range carry a Send with immediate
 * data, which no RFC knows, and one an acknowledgement, which RoCE's completions need; a standard peer
 * answers them with a Terminate (unexpected opcode).
 *
 * opcode			DDP model	queue	word		payload
 *  0 RDMA Write		tagged		-	-		data
 *  1 RDMA Read Request		untagged	1	0		EA_READ_REQ_LEN, one segment
 *  2 RDMA Read Response	tagged		-	-		data
 *  3 Send			untagged	0	0		data
 *  4 Send Inv			untagged	0	STag		data
 *  5 Send SE			untagged	0	0		data
 *  6 Send SE Inv		untagged	0	STag		data
 *  7 Terminate			untagged	2	0		EA_TERMINATE_MIN..MAX, one segment
 *  8 Immediate Data		untagged	0	0		EA_IMM_DATA_LEN, one segment
 *  9 Immediate Data SE		untagged	0	0		EA_IMM_DATA_LEN, one segment
 * 10 Atomic Request		untagged	1	0		EA_ATOMIC_REQ_LEN, one segment
 * 11 Atomic Response		untagged	3	0		EA_ATOMIC_RESP_LEN, one segment
 * 12 Send Imm			untagged	0	immediate	data
 * 13 Send SE Imm		untagged	0	immediate	data
 * 14 Acknowledge		untagged	4	0		EA_ACK_LEN, one segment
 *
 * The immediate of opcodes 12 and 13 is the number whose network byte order form the sender
 * posted; that of 8 and 9 fills the first four of eight payload bytes, the others are zero.
 *
 * Pure encode and decode: no I/O, no allocation, no state; any thread.  Encoders return the length
 * written.
 */
#ifndef EA_RDMAP_H
#define EA_RDMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "adapter/wire/ddp.h"

enum ea_rdmap_opcode {
	EA_RDMAP_WRITE = 0,
	EA_RDMAP_READ_REQ = 1,
	EA_RDMAP_READ_RESP = 2,
	EA_RDMAP_SEND = 3,
	EA_RDMAP_SEND_INV = 4,
	EA_RDMAP_SEND_SE = 5,
	EA_RDMAP_SEND_SE_INV = 6,
	EA_RDMAP_TERMINATE = 7,
	EA_RDMAP_IMM = 8,
	EA_RDMAP_IMM_SE = 9,
	EA_RDMAP_ATOMIC_REQ = 10,
	EA_RDMAP_ATOMIC_RESP = 11,
	EA_RDMAP_SEND_IMM = 12,
	EA_RDMAP_SEND_SE_IMM = 13,
	EA_RDMAP_ACK = 14,
	EA_RDMAP_NR_OPCODES = 15,
};

enum ea_rdmap_qn {
	EA_QN_SEND = 0,	    /* Send kinds, Immediate Data */
	EA_QN_READ_REQ = 1, /* RDMA Read Request, Atomic Request: one sequence of MSNs */
	EA_QN_TERMINATE = 2,
	EA_QN_ATOMIC_RESP = 3,
	EA_QN_ACK = 4,
	EA_NR_QN = 5,
};

enum {
	EA_RDMAP_VERSION = 1,
	EA_READ_REQ_LEN = 28,
	EA_IMM_DATA_LEN = 8,
	EA_ATOMIC_REQ_LEN = 52,
	EA_ATOMIC_RESP_LEN = 12,
	EA_ACK_LEN = 4,
	EA_TERMINATE_MIN = 4,
	EA_TERMINATE_MAX = 4 + 2 + EA_DDP_UNTAGGED_LEN + EA_READ_REQ_LEN,
};

/* ------------------------------------------------------------------ opcodes and header checks */

/* The upper layer's control byte of a DDP header: version and opcode. */
uint8_t ea_rdmap_ctrl(uint8_t opcode);

/* The opcode of a control byte, whatever its version. */
uint8_t ea_rdmap_opcode(uint8_t ctrl);

/* Properties of an opcode; false for unassigned ones. */
bool ea_rdmap_is_tagged(uint8_t opcode);
bool ea_rdmap_is_send(uint8_t opcode);	    /* 3..6, 12, 13: data into a receive work request */
bool ea_rdmap_is_ctrl(uint8_t opcode);	    /* payload is an RDMAP header, one segment */
bool ea_rdmap_is_solicited(uint8_t opcode); /* asks for a solicited event */
bool ea_rdmap_has_inv(uint8_t opcode);	    /* the word is a STag to invalidate */
bool ea_rdmap_has_imm(uint8_t opcode);	    /* carries an immediate: 8, 9, 12, 13 */

/* Name for messages; never NULL. */
const char *ea_rdmap_opcode_str(uint8_t opcode);

enum ea_rdmap_err {
	EA_RDMAP_OK = 0,
	EA_RDMAP_BAD_VERSION,
	EA_RDMAP_BAD_OPCODE, /* unassigned */
	EA_RDMAP_BAD_MODEL,  /* tagged where untagged is due, or the reverse */
	EA_RDMAP_BAD_QN,     /* not the queue of this opcode */
	EA_RDMAP_BAD_MO,     /* control message that does not start at offset 0 */
	EA_RDMAP_BAD_LEN,    /* control message of a wrong length */
	EA_RDMAP_NOT_LAST,   /* control message of more than one segment */
};

/*
 * Check a decoded header with @payload bytes behind it against the table above.  MSNs, message
 * offsets of data, STags and lengths of data are the receiver's affair.
 */
enum ea_rdmap_err ea_rdmap_check(const struct ea_ddp_hdr *hdr, uint32_t payload);

/*
 * ------------------------------------------------------------------ headers behind the DDP header
 */

struct ea_read_req {
	uint32_t sink_stag;
	uint64_t sink_to;
	uint32_t len;
	uint32_t src_stag;
	uint64_t src_to;
};

uint32_t ea_read_req_encode(const struct ea_read_req *req, void *buf);
void ea_read_req_decode(const void *buf, struct ea_read_req *req); /* EA_READ_REQ_LEN bytes */

enum ea_atomic_op { /* RFC 7306 figure 5 */
	EA_ATOMIC_FETCH_ADD = 0,
	EA_ATOMIC_CMP_SWAP = 2,
};

/*
 * Fetch-and-add: a set bit of add_swap_mask stops the carry out of that bit; compare and its mask
 * are 0. Compare-and-swap: compared and swapped under the masks; all ones is the plain 64-bit
 * operation.
 */
struct ea_atomic_req {
	uint8_t op;  /* enum ea_atomic_op */
	uint32_t id; /* comes back in the response */
	uint32_t stag;
	uint64_t to;
	uint64_t add_swap;
	uint64_t add_swap_mask;
	uint64_t compare;
	uint64_t compare_mask;
};

uint32_t ea_atomic_req_encode(const struct ea_atomic_req *req, void *buf);

/* EA_ATOMIC_REQ_LEN bytes; op is 0..15 and not checked. */
void ea_atomic_req_decode(const void *buf, struct ea_atomic_req *req);

/* What the operation of @req makes of @old.  @req->op must be one of enum ea_atomic_op. */
uint64_t ea_atomic_apply(const struct ea_atomic_req *req, uint64_t old);

struct ea_atomic_resp {
	uint32_t id;  /* of the request */
	uint64_t old; /* value before the operation */
};

uint32_t ea_atomic_resp_encode(const struct ea_atomic_resp *resp, void *buf);
void ea_atomic_resp_decode(const void *buf,
			   struct ea_atomic_resp *resp); /* EA_ATOMIC_RESP_LEN bytes */

/*
 * Acknowledge: how many Send, Immediate Data and Write messages of the stream have had their effect, all
 * counted from its start, modulo 2^32.  Writes of no bytes, which have none, are not counted: one of them
 * may start the stream (RFC 6581 RTR).
 */
uint32_t ea_ack_encode(uint32_t count, void *buf);
uint32_t ea_ack_decode(const void *buf); /* EA_ACK_LEN bytes */

uint32_t ea_imm_encode(uint32_t imm, void *buf);
uint32_t ea_imm_decode(const void *buf); /* EA_IMM_DATA_LEN bytes */

/* ------------------------------------------------------------------ Terminate */

enum ea_term_layer {
	EA_TERM_RDMAP = 0,
	EA_TERM_DDP = 1,
	EA_TERM_LLP = 2, /* MPA */
};

enum { /* error types */
	EA_TERM_RDMAP_CATASTROPHIC = 0,
	EA_TERM_RDMAP_PROTECTION = 1,
	EA_TERM_RDMAP_OPERATION = 2,
	EA_TERM_DDP_CATASTROPHIC = 0,
	EA_TERM_DDP_TAGGED = 1,
	EA_TERM_DDP_UNTAGGED = 2,
	EA_TERM_LLP_MPA = 0,
};

/* What goes wrong, in the terms of the RFCs; ea_term_codes() has layer, type and code. */
enum ea_term_cause {
	/* placing a tagged segment (RFC 5041 7.2); rights are RDMAP's affair (RFC 5040 7.2) */
	EA_TERM_TAGGED_STAG, /* no such STag */
	EA_TERM_TAGGED_BOUNDS,
	EA_TERM_TAGGED_ASSOC, /* STag of another protection domain */
	EA_TERM_TAGGED_WRAP,  /* offset wraps 2^64 */
	EA_TERM_TAGGED_VERSION,
	EA_TERM_TAGGED_RIGHTS,
	/* placing an untagged segment */
	EA_TERM_UNTAGGED_QN,
	EA_TERM_UNTAGGED_NO_BUFFER,
	EA_TERM_UNTAGGED_MSN, /* not the next one */
	EA_TERM_UNTAGGED_MO,
	EA_TERM_UNTAGGED_LEN, /* longer than the receive buffer */
	EA_TERM_UNTAGGED_VERSION,
	EA_TERM_DDP_LOCAL, /* local catastrophe of the DDP layer */
	/* source of an RDMA Read, target of an atomic (RFC 5040 7.2, RFC 7306 8.2) */
	EA_TERM_REMOTE_STAG,
	EA_TERM_REMOTE_BOUNDS,
	EA_TERM_REMOTE_RIGHTS,
	EA_TERM_REMOTE_ASSOC,
	EA_TERM_REMOTE_WRAP,
	EA_TERM_REMOTE_PROTECTION, /* none of those above: misaligned atomic */
	EA_TERM_CANNOT_INVALIDATE, /* STag of a Send with Invalidate */
	/* operation */
	EA_TERM_RDMAP_VERSION,
	EA_TERM_OPCODE, /* unknown or not expected; also an unknown atomic operation */
	EA_TERM_STREAM, /* catastrophe of this stream: IRD exceeded, malformed request */
	EA_TERM_GLOBAL, /* catastrophe of the device */
	EA_TERM_UNSPECIFIED,
	EA_TERM_RDMAP_LOCAL, /* local catastrophe: error of our own transfer, host's wish */
	/* MPA (RFC 5044 8, RFC 6581 10) */
	EA_TERM_STREAM_LOST,
	EA_TERM_CRC,
	EA_TERM_FPDU_LEN,    /* FPDU length contradicts its content */
	EA_TERM_SETUP_FRAME, /* bad MPA request or reply */
	EA_TERM_MPA_LOCAL,
	EA_TERM_IRD_SHORT,
	EA_TERM_NO_RTR,
	EA_NR_TERM_CAUSES,
};

struct ea_term_codes {
	uint8_t layer; /* enum ea_term_layer */
	uint8_t etype;
	uint8_t code;
};

/* Codes of @cause. */
struct ea_term_codes ea_term_codes(enum ea_term_cause cause);

/* The cause to report for a failed decode; EA_NR_TERM_CAUSES for the OK values. */
enum ea_term_cause ea_ddp_err_cause(enum ea_ddp_err err);
enum ea_term_cause ea_rdmap_err_cause(enum ea_rdmap_err err);

/* The error in words, for messages; never NULL. */
const char *ea_term_str(struct ea_term_codes codes);

/*
 * A Terminate message.  @ddp_hdr: raw DDP header of the segment at fault (14 or 18 bytes, as its
 * first byte says); its total length, header and payload, is @seg_len.  @rdmap_hdr: raw Read
 * Request header behind it.  Which of the three are present is told by NULL pointers and
 * has_seg_len (RFC 5040 figure 9).
 */
struct ea_terminate {
	struct ea_term_codes codes;
	bool has_seg_len;
	uint16_t seg_len;
	const void *ddp_hdr;
	const void *rdmap_hdr; /* EA_READ_REQ_LEN bytes; only with ddp_hdr */
};

/*
 * Fill @term for @codes: attaches those of the given copies that RFC 5040 4.8 wants with this
 * error.  @ddp_hdr and @rdmap_hdr may be NULL when not at hand; @seg_len counts only with
 * @ddp_hdr.  Headers whose layout cannot be trusted (version or opcode errors) are left out.
 */
void ea_terminate_init(struct ea_terminate *term, struct ea_term_codes codes, const void *ddp_hdr,
		       uint16_t seg_len, const void *rdmap_hdr);

/* Encode into @buf (room for EA_TERMINATE_MAX). */
uint32_t ea_terminate_encode(const struct ea_terminate *term, void *buf);

/*
 * Decode @len bytes; pointers of @term go into @buf.  False when the flags promise more than @len
 * bytes hold; the codes are valid nevertheless when @len is at least EA_TERMINATE_MIN.
 */
bool ea_terminate_decode(const void *buf, size_t len, struct ea_terminate *term);

#endif
