// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Queue memory, doorbells and control calls as an enemy makes them.
 *
 * The input is a list of commands, a byte each with its operands; see enum command.  WQEs come in two kinds: raw
 * bytes, and a half-right one whose header fits its place so that the body is reached.
 */
#include <string.h>

#include "fuzz/core/box.h"
#include "fuzz/core/input.h"

enum command {
	RAW_SQ,	  /* side, place, 32 bytes */
	WQE,	  /* side, opcode and flags, count, 32..128 body bytes */
	RING_SQ,  /* side: the index that fits */
	RING_ANY, /* 9 bytes: which doorbell, value */
	RAW_RQ,	  /* side, place, 32 bytes */
	RQE,	  /* side, length, address; rings */
	ARM,	  /* CQ, solicited, CI */
	STEP,	  /* how many */
	MODIFY,	  /* side, state */
	DEREG,	  /* which */
	CONNECT,
	LIST,	 /* place, 8 bytes of a page list */
	DOWN,	 /* side, errno */
	REFLUSH, /* side, both indices */
	UNMAP,	 /* page */
	COMMANDS,
};

static void bytes(struct input *in, uint8_t *out, size_t n)
{
	while (n--)
		*out++ = u8(in);
}

static uint8_t *at(struct box *box, uint32_t off)
{
	uint32_t page = off / BOX_PAGE;

	if (box->scattered)
		page = BOX_PAGES - 1 - page;
	return box->mem + page * BOX_PAGE + off % BOX_PAGE;
}

struct queues {
	uint16_t sq_pi[2], rq_pi[2];
};

/* Body bytes are mostly free; addresses and keys are made to be near the truth. */
static void wqe(struct box *box, struct queues *q, struct input *in)
{
	int side = u8(in) & 1;
	uint8_t op = u8(in), flags = u8(in), count = u8(in), blocks = (op >> 5 & 3) + 1;
	uint8_t body[128] = { 0 };
	uint32_t i, keys = u8(in), len = 0, start;
	uint64_t header;

	op &= 31;
	start = op == 0 || op == 9 ? 32 : 16;
	if (op == 1 || op == 14 || op >= 16)
		bytes(in, body + 8, 56);
	else
		bytes(in, body + 8, 8);
	switch (op) {
	case 1:
	case 16:
		put32(body + 16, keys & 1 ? BOX_STAG : BOX_FRMR | (keys >> 4));
		put32(body + 44, keys & 2 ? BOX_STAG : BOX_FRMR | (keys >> 4));
		if ((keys & 12) == 12)
			put32(body + 44, BOX_FOREIGN);
		put64(body + 20, BOX_REGION + u16(in));
		put64(body + 32, BOX_REGION + u16(in));
		put32(body + 12, u16(in));
		break;
	case 17:
	case 18:
		put64(body + 32, BOX_REGION + (keys & 4 ? u16(in) : u16(in) & ~7u));
		put32(body + 44, BOX_STAG);
		put64(body + 48, BOX_REGION + u16(in));
		put32(body + 56, 8 | (keys & 8));
		put32(body + 60, keys & 1 ? BOX_STAG : BOX_FRMR);
		break;
	case 14:
	case 15:
		put32(body + 20, BOX_FRMR | (keys >> 4));
		put64(body + 8, keys & 1 ? BOX_REGION : 0x1000ull + u8(in));
		put32(body + 16, u16(in));
		put32(body + 24, (u8(in) & 7u) << 12 | (keys & 6u) << 5 | 0x3e);
		for (i = 0; i < 4; i++)
			put64(body + 32 + 8 * i, BOX_REGION + (uint64_t)(u8(in) & 15) * BOX_PAGE);
		break;
	default:
		if (flags & 8) {
			len = count;
		} else {
			for (i = 0; i < (count & 7u) && start + i * 16 < 128; i++) {
				uint16_t n = u16(in);

				put64(body + start + i * 16, BOX_REGION + u16(in));
				put32(body + start + i * 16 + 8, n);
				put32(body + start + i * 16 + 12,
				      keys >> i & 1 ? BOX_STAG : BOX_FRMR | (keys >> 4));
				len += n;
			}
			count &= 7;
		}
		put32(body + 12, len);
		if (start == 32) {
			put32(body + 16, keys & 0x80 ? BOX_FRMR : BOX_STAG);
			put64(body + 20, BOX_REGION + u16(in));
		} else if (op == 13) {
			put32(body + 8, keys & 0x80 ? BOX_STAG : BOX_FRMR | (keys >> 4));
		}
		break;
	}
	q->sq_pi[side] += blocks;
	header = (uint64_t)count << 56 | (uint64_t)(blocks - 1) << 52 | (uint64_t)(side + 1) << 32 |
		 (uint64_t)op << 27 | (uint64_t)(flags & 15) << 22 | q->sq_pi[side];
	put64(body, header);
	for (i = 0; i < blocks; i++) {
		uint32_t block = (uint16_t)(q->sq_pi[side] - blocks + i) % (1 << BOX_SQ_SHIFT);

		memcpy(at(box, (uint32_t)side * 2 * BOX_PAGE + block * 32), body + i * 32, 32);
	}
	if (flags & 0x80)
		ea_db_sq(box->dev, (uint64_t)(side + 1) << 32 | q->sq_pi[side]);
}

static void rqe(struct box *box, struct queues *q, struct input *in)
{
	int side = u8(in) & 1;
	uint16_t len = u16(in);
	uint64_t addr = BOX_REGION + u16(in);
	uint8_t *slot;

	slot = at(box, 4 * BOX_PAGE + (uint32_t)side * 2048 +
			       (q->rq_pi[side] % (1u << BOX_RQ_SHIFT)) * 32);
	q->rq_pi[side]++;
	put32(slot, q->rq_pi[side]);
	put32(slot + 4, side + 1);
	put64(slot + 16, addr);
	put32(slot + 24, len);
	put32(slot + 28, BOX_STAG);
	ea_db_rq(box->dev, (uint64_t)(side + 1) << 32 | q->rq_pi[side]);
}

static void command(struct box *box, struct queues *q, struct input *in)
{
	uint8_t side, op, raw[32];
	uint64_t value;
	int n;

	switch (u8(in) % COMMANDS) {
	case RAW_SQ:
		side = u8(in) & 1;
		op = u8(in);
		bytes(in, raw, sizeof(raw));
		memcpy(at(box, side * 2u * BOX_PAGE + op * 32u), raw, sizeof(raw));
		break;
	case WQE:
		wqe(box, q, in);
		break;
	case RING_SQ:
		side = u8(in) & 1;
		ea_db_sq(box->dev, (uint64_t)(side + 1) << 32 | q->sq_pi[side]);
		break;
	case RING_ANY:
		op = u8(in);
		bytes(in, raw, 8);
		memcpy(&value, raw, 8);
		/* numbers up to 8 are likelier than those of 20 bits */
		if (op & 4)
			value &= ~(0xfffff8ull << 32);
		if (op % 3 == 0)
			ea_db_sq(box->dev, value);
		else if (op % 3 == 1)
			ea_db_rq(box->dev, value);
		else
			ea_db_cq(box->dev, value);
		break;
	case RAW_RQ:
		side = u8(in) & 1;
		op = u8(in) & 31;
		bytes(in, raw, sizeof(raw));
		memcpy(at(box, 4 * BOX_PAGE + side * 2048u + op * 32u), raw, sizeof(raw));
		break;
	case RQE:
		rqe(box, q, in);
		break;
	case ARM:
		op = u8(in);
		ea_db_cq(box->dev, (uint64_t)((op & 1) + 1) << 32 | 1u << 31 |
					   (uint64_t)(op >> 1 & 1) << 30 | u8(in));
		break;
	case STEP:
		for (n = u8(in) & 31; n >= 0; n--) {
			box_step(box, 0);
			box_step(box, 1);
		}
		break;
	case MODIFY:
		side = u8(in) & 1;
		ea_qp_modify(box->dev, side + 1, u8(in) % 8);
		break;
	case DEREG:
		ea_mr_dereg(box->dev, u8(in) & 1 ? BOX_STAG : BOX_FRMR);
		break;
	case CONNECT:
		box->depth = u8(in) % 5;
		box_connect(box);
		for (n = 0; n < 2; n++)
			if (u8(in) & 1) {
				ea_qp_reset(box->dev, n + 1);
				q->sq_pi[n] = 0;
				q->rq_pi[n] = 0;
			}
		box_connect(box);
		break;
	case LIST:
		op = u8(in) % (BOX_REGION_LEN / BOX_PAGE);
		n = u8(in);
		value = BOX_REGION + (uint64_t)(n & 15) * BOX_PAGE;
		put64(at(box, BOX_LIST_PAGE * BOX_PAGE + op * 8u),
		      n & 16 ? value << (n >> 5) : value);
		break;
	case DOWN:
		side = u8(in) & 1;
		ea_link_down(&box->side[side].link, u8(in) & 127);
		break;
	case REFLUSH:
		side = u8(in) & 1;
		op = u8(in);
		ea_qp_reflush(box->dev, side + 1, q->sq_pi[side] + (op & 3),
			      q->rq_pi[side] + (op >> 6));
		break;
	case UNMAP:
		box->unmapped = u8(in) % BOX_PAGES;
		ea_dev_memory_changed(box->dev);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct queues q = { { 0 }, { 0 } };
	struct box box;
	int n;

	if (size > 4096)
		return -1;
	box_open(&box, u8(&in));
	while (in.left)
		command(&box, &q, &in);
	for (n = 0; n < 64; n++) {
		box_step(&box, 0);
		box_step(&box, 1);
	}
	box_close(&box);
	return 0;
}
