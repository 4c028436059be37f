// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <assert.h>
#include <endian.h>
#include <string.h>
#include <linux/types.h>

#include "adapter/wire/rdmap.h"

enum {
	TERM_LAYER_SHIFT = 28,
	TERM_ETYPE_SHIFT = 24,
	TERM_CODE_SHIFT = 16,
	TERM_NIBBLE = 0x0f,
	TERM_BYTE = 0xff,
	TERM_HAS_SEG_LEN = 0x00008000,	 /* M */
	TERM_HAS_DDP_HDR = 0x00004000,	 /* D */
	TERM_HAS_RDMAP_HDR = 0x00002000, /* R */
};

/* Error codes that are needed by name below. */
enum {
	DDP_TAGGED_BAD_VERSION = 0x04,
	DDP_UNTAGGED_BAD_VERSION = 0x06,
	RDMAP_BAD_VERSION = 0x05,
	RDMAP_BAD_OPCODE = 0x06,
};

struct term_ctrl {
	__be32 ctrl;
} __attribute__((packed));

struct term_seg_len {
	__be16 len;
} __attribute__((packed));

static_assert(sizeof(struct term_ctrl) == EA_TERMINATE_MIN, "terminate control");
static_assert(sizeof(struct term_ctrl) + sizeof(struct term_seg_len) + EA_DDP_HDR_MAX +
			      EA_READ_REQ_LEN ==
		      EA_TERMINATE_MAX,
	      "longest terminate");

static const struct {
	struct ea_term_codes codes;
	const char *text;
} causes[EA_NR_TERM_CAUSES] = {
	[EA_TERM_TAGGED_STAG] = { { 1, 1, 0x00 }, "DDP tagged: invalid STag" },
	[EA_TERM_TAGGED_BOUNDS] = { { 1, 1, 0x01 }, "DDP tagged: base or bounds violation" },
	[EA_TERM_TAGGED_ASSOC] = { { 1, 1, 0x02 }, "DDP tagged: STag not associated with stream" },
	[EA_TERM_TAGGED_WRAP] = { { 1, 1, 0x03 }, "DDP tagged: offset wraps" },
	[EA_TERM_TAGGED_VERSION] = { { 1, 1, DDP_TAGGED_BAD_VERSION },
				     "DDP tagged: invalid version" },
	[EA_TERM_TAGGED_RIGHTS] = { { 0, 1, 0x02 }, "RDMAP: access rights violation" },
	[EA_TERM_UNTAGGED_QN] = { { 1, 2, 0x01 }, "DDP untagged: invalid queue number" },
	[EA_TERM_UNTAGGED_NO_BUFFER] = { { 1, 2, 0x02 }, "DDP untagged: no buffer available" },
	[EA_TERM_UNTAGGED_MSN] = { { 1, 2, 0x03 }, "DDP untagged: MSN out of range" },
	[EA_TERM_UNTAGGED_MO] = { { 1, 2, 0x04 }, "DDP untagged: invalid message offset" },
	[EA_TERM_UNTAGGED_LEN] = { { 1, 2, 0x05 },
				   "DDP untagged: message too long for its buffer" },
	[EA_TERM_UNTAGGED_VERSION] = { { 1, 2, DDP_UNTAGGED_BAD_VERSION },
				       "DDP untagged: invalid version" },
	[EA_TERM_DDP_LOCAL] = { { 1, 0, 0x00 }, "DDP: local catastrophic error" },
	[EA_TERM_REMOTE_STAG] = { { 0, 1, 0x00 }, "RDMAP: invalid STag" },
	[EA_TERM_REMOTE_BOUNDS] = { { 0, 1, 0x01 }, "RDMAP: base or bounds violation" },
	[EA_TERM_REMOTE_RIGHTS] = { { 0, 1, 0x02 }, "RDMAP: access rights violation" },
	[EA_TERM_REMOTE_ASSOC] = { { 0, 1, 0x03 }, "RDMAP: STag not associated with stream" },
	[EA_TERM_REMOTE_WRAP] = { { 0, 1, 0x04 }, "RDMAP: offset wraps" },
	[EA_TERM_REMOTE_PROTECTION] = { { 0, 1, 0xff }, "RDMAP: unspecified protection error" },
	[EA_TERM_CANNOT_INVALIDATE] = { { 0, 1, 0x09 }, "RDMAP: STag cannot be invalidated" },
	[EA_TERM_RDMAP_VERSION] = { { 0, 2, RDMAP_BAD_VERSION }, "RDMAP: invalid version" },
	[EA_TERM_OPCODE] = { { 0, 2, RDMAP_BAD_OPCODE }, "RDMAP: unexpected opcode" },
	[EA_TERM_STREAM] = { { 0, 2, 0x07 }, "RDMAP: catastrophic error of the stream" },
	[EA_TERM_GLOBAL] = { { 0, 2, 0x08 }, "RDMAP: catastrophic error of the device" },
	[EA_TERM_UNSPECIFIED] = { { 0, 2, 0xff }, "RDMAP: unspecified error" },
	[EA_TERM_RDMAP_LOCAL] = { { 0, 0, 0x00 }, "RDMAP: local catastrophic error" },
	[EA_TERM_STREAM_LOST] = { { 2, 0, 0x01 }, "MPA: TCP connection lost" },
	[EA_TERM_CRC] = { { 2, 0, 0x02 }, "MPA: CRC error" },
	[EA_TERM_FPDU_LEN] = { { 2, 0, 0x03 }, "MPA: FPDU length mismatch" },
	[EA_TERM_SETUP_FRAME] = { { 2, 0, 0x04 }, "MPA: invalid request or reply frame" },
	[EA_TERM_MPA_LOCAL] = { { 2, 0, 0x05 }, "MPA: local catastrophic error" },
	[EA_TERM_IRD_SHORT] = { { 2, 0, 0x06 }, "MPA: insufficient IRD resources" },
	[EA_TERM_NO_RTR] = { { 2, 0, 0x07 }, "MPA: no matching RTR option" },
};

struct ea_term_codes ea_term_codes(enum ea_term_cause cause)
{
	return causes[cause].codes;
}

static bool same_codes(struct ea_term_codes a, struct ea_term_codes b)
{
	return a.layer == b.layer && a.etype == b.etype && a.code == b.code;
}

const char *ea_term_str(struct ea_term_codes codes)
{
	size_t i;

	for (i = 0; i < EA_NR_TERM_CAUSES; i++)
		if (same_codes(causes[i].codes, codes))
			return causes[i].text;
	if (codes.layer == EA_TERM_RDMAP && codes.etype == EA_TERM_RDMAP_CATASTROPHIC)
		return causes[EA_TERM_RDMAP_LOCAL].text;
	return "unknown Terminate code";
}

enum ea_term_cause ea_ddp_err_cause(enum ea_ddp_err err)
{
	switch (err) {
	case EA_DDP_OK:
		break;
	case EA_DDP_SHORT:
		return EA_TERM_FPDU_LEN;
	case EA_DDP_TAGGED_VERSION:
		return EA_TERM_TAGGED_VERSION;
	case EA_DDP_UNTAGGED_VERSION:
		return EA_TERM_UNTAGGED_VERSION;
	}
	return EA_NR_TERM_CAUSES;
}

enum ea_term_cause ea_rdmap_err_cause(enum ea_rdmap_err err)
{
	switch (err) {
	case EA_RDMAP_OK:
		break;
	case EA_RDMAP_BAD_VERSION:
		return EA_TERM_RDMAP_VERSION;
	case EA_RDMAP_BAD_OPCODE:
	case EA_RDMAP_BAD_MODEL:
		return EA_TERM_OPCODE;
	case EA_RDMAP_BAD_QN:
		return EA_TERM_UNTAGGED_QN;
	case EA_RDMAP_BAD_MO:
		return EA_TERM_UNTAGGED_MO;
	case EA_RDMAP_BAD_LEN:
	case EA_RDMAP_NOT_LAST:
		return EA_TERM_STREAM;
	}
	return EA_NR_TERM_CAUSES;
}

/* The layout of the segment is in doubt, so nothing of it is sent back. */
static bool layout_unknown(struct ea_term_codes codes)
{
	switch (codes.layer) {
	case EA_TERM_RDMAP:
		return codes.etype == EA_TERM_RDMAP_OPERATION &&
		       (codes.code == RDMAP_BAD_VERSION || codes.code == RDMAP_BAD_OPCODE);
	case EA_TERM_DDP:
		return (codes.etype == EA_TERM_DDP_TAGGED &&
			codes.code == DDP_TAGGED_BAD_VERSION) ||
		       (codes.etype == EA_TERM_DDP_UNTAGGED &&
			codes.code == DDP_UNTAGGED_BAD_VERSION);
	default:
		return true;
	}
}

void ea_terminate_init(struct ea_terminate *term, struct ea_term_codes codes, const void *ddp_hdr,
		       uint16_t seg_len, const void *rdmap_hdr)
{
	memset(term, 0, sizeof(*term));
	term->codes = codes;
	/* type 0 of RDMAP and DDP, and all of MPA, are errors without a segment at fault */
	if (!ddp_hdr || !codes.etype || layout_unknown(codes))
		return;
	term->has_seg_len = true;
	term->seg_len = seg_len;
	term->ddp_hdr = ddp_hdr;
	if (codes.layer == EA_TERM_RDMAP)
		term->rdmap_hdr = rdmap_hdr;
}

uint32_t ea_terminate_encode(const struct ea_terminate *term, void *buf)
{
	struct term_ctrl *ctrl = buf;
	uint8_t *p = (uint8_t *)buf + sizeof(*ctrl);
	uint32_t bits;

	bits = (uint32_t)(term->codes.layer & TERM_NIBBLE) << TERM_LAYER_SHIFT |
	       (uint32_t)(term->codes.etype & TERM_NIBBLE) << TERM_ETYPE_SHIFT |
	       (uint32_t)term->codes.code << TERM_CODE_SHIFT;
	if (term->has_seg_len) {
		struct term_seg_len *seg_len = (struct term_seg_len *)p;

		bits |= TERM_HAS_SEG_LEN;
		seg_len->len = htobe16(term->seg_len);
		p += sizeof(*seg_len);
	}
	if (term->ddp_hdr) {
		uint32_t len = ea_ddp_hdr_len(*(const uint8_t *)term->ddp_hdr);

		bits |= TERM_HAS_DDP_HDR;
		memcpy(p, term->ddp_hdr, len);
		p += len;
	}
	if (term->ddp_hdr && term->rdmap_hdr) {
		bits |= TERM_HAS_RDMAP_HDR;
		memcpy(p, term->rdmap_hdr, EA_READ_REQ_LEN);
		p += EA_READ_REQ_LEN;
	}
	ctrl->ctrl = htobe32(bits);
	return p - (uint8_t *)buf;
}

bool ea_terminate_decode(const void *buf, size_t len, struct ea_terminate *term)
{
	const struct term_ctrl *ctrl = buf;
	const uint8_t *p = buf;
	const uint8_t *end = p + len;
	uint32_t bits, hdr_len;

	memset(term, 0, sizeof(*term));
	if (len < sizeof(*ctrl))
		return false;
	bits = be32toh(ctrl->ctrl);
	term->codes.layer = bits >> TERM_LAYER_SHIFT & TERM_NIBBLE;
	term->codes.etype = bits >> TERM_ETYPE_SHIFT & TERM_NIBBLE;
	term->codes.code = bits >> TERM_CODE_SHIFT & TERM_BYTE;
	p += sizeof(*ctrl);

	if (bits & TERM_HAS_SEG_LEN) {
		const struct term_seg_len *seg_len = (const struct term_seg_len *)p;

		if ((size_t)(end - p) < sizeof(*seg_len))
			return false;
		term->has_seg_len = true;
		term->seg_len = be16toh(seg_len->len);
		p += sizeof(*seg_len);
	}
	if (bits & TERM_HAS_DDP_HDR) {
		if (p == end)
			return false;
		hdr_len = ea_ddp_hdr_len(*p);
		if ((size_t)(end - p) < hdr_len)
			return false;
		term->ddp_hdr = p;
		p += hdr_len;
	}
	if (bits & TERM_HAS_RDMAP_HDR) {
		if (!term->ddp_hdr || (size_t)(end - p) < EA_READ_REQ_LEN)
			return false;
		term->rdmap_hdr = p;
	}
	return true;
}
