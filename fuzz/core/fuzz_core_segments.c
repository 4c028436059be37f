// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Segments as an enemy at the other end of the stream makes them, into a QP with receives, READs and an atomic
 * outstanding.
 *
 * Each segment takes from the input: kind, opcode, flags, then fields; the flags choose for each field
 * between the value that fits and one of the input's.
 */
#include <string.h>

#include "fuzz/core/box.h"
#include "fuzz/core/input.h"

static uint64_t u64(struct input *in)
{
	uint64_t v = 0;
	int i;

	for (i = 0; i < 8; i++)
		v = v << 8 | u8(in);
	return v;
}

static uint64_t near(struct input *in)
{
	uint32_t v = u8(in);

	return BOX_REGION + (v | (uint32_t)u8(in) << 8);
}

static uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/*
 * Receives of both sizes and four READs or atomics, all of which wait for this fuzzer's answers; behind
 * them a write, a send and a write with immediate that are not done.
 */
static void load(struct box *box, uint8_t kinds)
{
	static const uint8_t ops[] = { 0, 2, 9 };
	struct ea_tx_msg msg;
	uint8_t *w;
	int i;

	for (i = 0; i < 16; i++) {
		w = box->mem + 4 * BOX_PAGE + i * 32;
		put32(w, i + 1);
		put32(w + 4, 1);
		put64(w + 16, BOX_REGION + 4096 + (uint64_t)i * 100);
		put32(w + 24, i % 4 == 3 ? 3000 : 300);
		put32(w + 28, kinds == 255 && i == 5 ? BOX_FOREIGN : BOX_STAG);
	}
	ea_db_rq(box->dev, 1ull << 32 | 16);
	for (i = 0; i < 7; i++) {
		uint64_t op = i >= 4 ? ops[i - 4] : kinds >> i & 1 ? 18 : 1;

		w = box->mem + i * 64;
		memset(w, 0, 64);
		put64(w, 1ull << 52 | 1ull << 32 | op << 27 | 1ull << 22 | (uint64_t)(2 * i + 2));
		switch (op) {
		case 18:
			put64(w + 48, BOX_REGION + 20000);
			put32(w + 56, 8);
			put32(w + 60, BOX_STAG);
			break;
		case 1:
			put32(w + 12, 500);
			put32(w + 16, BOX_STAG);
			put64(w + 20, BOX_REGION + 20000 + (uint64_t)i * 1000);
			break;
		default:
			put64(w, 1ull << 56 | get64(w));
			put32(w + 12, 100);
			put32(w + 16, op == 2 ? 0 : 0x1234);
			put64(w + 20, op == 2 ? 0 : 0x5000);
			put64(w + (op == 2 ? 16 : 32), BOX_REGION);
			put32(w + (op == 2 ? 24 : 40), 100);
			put32(w + (op == 2 ? 28 : 44), BOX_STAG);
			break;
		}
	}
	ea_db_sq(box->dev, 1ull << 32 | 14);
	for (i = 0; i < 7; i++)
		if (!ea_tx_next(box->side[0].link.qp, &msg) && i < 4)
			ea_tx_done(box->side[0].link.qp, &msg);
}

/* A Terminate that names one of the requests above, or nearly so. */
static uint32_t terminate(struct input *in, uint8_t *buf)
{
	struct ea_ddp_hdr hdr = { .last = true };
	uint8_t raw[EA_DDP_HDR_MAX];
	struct ea_terminate term;
	uint8_t opcode = u8(in) % 16;

	hdr.ulp_ctrl = ea_rdmap_ctrl(opcode);
	hdr.tagged = ea_rdmap_is_tagged(opcode);
	hdr.stag = 0x1234;
	hdr.to = 0x5000 + u8(in);
	hdr.qn = opcode == EA_RDMAP_READ_REQ;
	hdr.msn = u8(in) & 7;
	ea_ddp_encode(&hdr, raw);
	ea_terminate_init(&term, ea_term_codes(u8(in) % EA_NR_TERM_CAUSES), raw, 100, NULL);
	return ea_terminate_encode(&term, buf);
}

struct expect {
	uint32_t msn[8];
	uint32_t mo;
	uint32_t reads, got;
};

static uint32_t control(struct input *in, uint8_t opcode, uint8_t flags, uint8_t *buf)
{
	struct ea_atomic_req areq = { .op = u8(in) & 3, .id = 1, .stag = BOX_STAG };
	struct ea_atomic_resp aresp = { .id = u8(in) & 7, .old = 5 };
	struct ea_read_req rreq = { .sink_stag = 9, .sink_to = 9, .src_stag = BOX_STAG };
	uint32_t i;

	switch (opcode) {
	case EA_RDMAP_READ_REQ:
		rreq.src_to = flags & 1 ? u64(in) : near(in);
		rreq.len = flags & 2 ? (uint32_t)u64(in) : u8(in);
		rreq.src_stag += flags & 4 ? u8(in) : 0;
		return ea_read_req_encode(&rreq, buf);
	case EA_RDMAP_ATOMIC_REQ:
		areq.to = flags & 1 ? u64(in) : near(in) & ~7ull;
		areq.add_swap = u64(in);
		areq.add_swap_mask = u64(in);
		areq.stag += flags & 4 ? u8(in) : 0;
		return ea_atomic_req_encode(&areq, buf);
	case EA_RDMAP_ATOMIC_RESP:
		return ea_atomic_resp_encode(&aresp, buf);
	case EA_RDMAP_ACK:
		return ea_ack_encode(flags & 1 ? (uint32_t)u64(in) : u8(in) & 7, buf);
	case EA_RDMAP_TERMINATE:
		if (flags & 1)
			return terminate(in, buf);
		for (i = 0; i < EA_TERMINATE_MAX; i++)
			buf[i] = u8(in);
		return EA_TERMINATE_MIN + u8(in) % (EA_TERMINATE_MAX - EA_TERMINATE_MIN + 1);
	default:
		for (i = 0; i < EA_IMM_DATA_LEN; i++)
			buf[i] = u8(in);
		return EA_IMM_DATA_LEN;
	}
}

static void segment(struct box *box, struct input *in, struct expect *e)
{
	static uint8_t payload[70000];
	uint8_t ctrl[EA_TX_CTRL_MAX] = { 0 };
	uint8_t opcode = u8(in), flags = u8(in), form = u8(in);
	struct ea_rx_seg seg = { .opcode = opcode % 18 };
	bool is_ctrl;
	int err;

	if (seg.opcode > 15)
		seg.opcode = u8(in);
	is_ctrl = ea_rx_is_ctrl(seg.opcode);
	seg.tagged = seg.opcode == EA_RDMAP_WRITE || seg.opcode == EA_RDMAP_READ_RESP;
	seg.tagged ^= (form & 0x81) == 0x81;
	seg.last = is_ctrl || form & 2;
	seg.len = u8(in) | (form & 4 ? (uint32_t)u8(in) << 8 : 0);
	if (is_ctrl)
		seg.len = control(in, seg.opcode, flags, ctrl);
	switch (seg.opcode) {
	case EA_RDMAP_WRITE:
		seg.stag = BOX_STAG + (flags & 1 ? u8(in) : 0);
		seg.to = flags & 2 ? u64(in) : near(in);
		break;
	case EA_RDMAP_READ_RESP:
		seg.stag = BOX_STAG;
		seg.to = BOX_REGION + 20000 + (uint64_t)e->reads * 1000 + e->got;
		if (seg.len > 500 - e->got)
			seg.len = 500 - e->got;
		seg.last = e->got + seg.len == 500;
		break;
	case EA_RDMAP_READ_REQ:
	case EA_RDMAP_ATOMIC_REQ:
		seg.qn = 1;
		break;
	case EA_RDMAP_TERMINATE:
		seg.qn = 2;
		break;
	case EA_RDMAP_ATOMIC_RESP:
		seg.qn = 3;
		break;
	default:
		seg.mo = e->mo;
		seg.ulp_word = flags & 4 ? BOX_STAG : (uint32_t)u8(in);
		break;
	}
	if (form & 8)
		seg.qn = u8(in) & 7;
	seg.msn = e->msn[seg.qn & 7];
	if (form & 16)
		seg.msn += u8(in);
	if (form & 32)
		seg.mo += u8(in);
	if (form & 64)
		seg.len ^= u8(in);
	if (flags & 0x80 && form & 0x80)
		seg.to ^= 1ull << (u8(in) & 63);
	if (is_ctrl && seg.len > sizeof(ctrl))
		seg.len = sizeof(ctrl) + 1;
	seg.raw_len = flags & 64 ? sizeof(seg.raw) : 0;

	/* what the link itself may find */
	if ((form & 0xfe) == 0xfe)
		ea_rx_error(box->side[0].link.qp, flags & 15, flags >> 4, form);
	err = box_feed(box, 0, &seg, is_ctrl ? ctrl : payload);
	if (err)
		return;
	switch (seg.opcode) {
	case EA_RDMAP_READ_RESP:
		e->got += seg.len;
		if (seg.last) {
			e->got = 0;
			e->reads++;
		}
		break;
	case EA_RDMAP_ATOMIC_RESP:
		e->reads++;
		e->msn[3]++;
		break;
	case EA_RDMAP_READ_REQ:
	case EA_RDMAP_ATOMIC_REQ:
		e->msn[1]++;
		break;
	case EA_RDMAP_ACK:
		e->msn[EA_QN_ACK]++;
		break;
	case EA_RDMAP_WRITE:
		break;
	default:
		e->mo = seg.last ? 0 : e->mo + seg.len;
		e->msn[0] += seg.last;
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct expect e = { .msn = { 1, 1, 1, 1, 1 } };
	struct input in = { data, size };
	struct ea_tx_msg msg;
	struct iovec iov[EA_IOV_MAX];
	uint32_t covered, len;
	struct box box;
	int n;

	if (size > 4096)
		return -1;
	box_open(&box, u8(&in) & 14);
	load(&box, u8(&in));
	while (in.left && box.side[0].link.qp && !box.side[0].shut) {
		segment(&box, &in, &e);
		if (!box.side[0].link.qp || ea_tx_next(box.side[0].link.qp, &msg))
			continue;
		/* a response's beginning, or whole when it is short */
		len = msg.len < 100 ? msg.len : 100;
		n = ea_tx_payload(box.side[0].link.qp, &msg, msg.len - len, len, iov, EA_IOV_MAX,
				  &covered);
		if (n > 0)
			box_check_iov(&box, iov, n, true);
		ea_tx_done(box.side[0].link.qp, &msg);
	}
	box_close(&box);
	return 0;
}
