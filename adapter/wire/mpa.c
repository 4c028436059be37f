// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <assert.h>
#include <endian.h>
#include <string.h>
#include <linux/types.h>

#include "adapter/wire/mpa.h"

enum {
	MPA_MARKERS = 0x8000,
	MPA_CRC = 0x4000,
	MPA_REJECT = 0x2000,
	MPA_ENHANCED = 0x1000,
	MPA_LARGE_FPDU = 0x0800,
	MPA_REVISION = 0x00ff,
};

enum {
	V2_IRD_PEER_TO_PEER = 0x8000,
	V2_IRD_RTR_SEND = 0x4000,
	V2_ORD_RTR_WRITE = 0x8000,
	V2_ORD_RTR_READ = 0x4000,
	V2_VALUE = 0x3fff,
};

enum {
	ERDMA_CC = 0x0000000f,
};

struct mpa_fixed {
	uint8_t key[EA_MPA_KEY_LEN];
	__be16 flags;
	__be16 private_len;
} __attribute__((packed));

struct mpa_enhanced {
	__be16 ird;
	__be16 ord;
} __attribute__((packed));

struct mpa_erdma {
	__be32 cookie;
	__be32 cc;
} __attribute__((packed));

static_assert(sizeof(struct mpa_fixed) == EA_MPA_FIXED_LEN, "MPA frame");
static_assert(sizeof(struct mpa_enhanced) == EA_MPA_ENHANCED_LEN, "MPA enhanced words");
static_assert(sizeof(struct mpa_erdma) == EA_MPA_ERDMA_LEN, "MPA ERDMA words");

static const char *const mpa_keys[] = {
	[EA_MPA_REQUEST] = "MPA ID Req Frame",
	[EA_MPA_REPLY] = "MPA ID Rep Frame",
};

const char *ea_mpa_strerror(enum ea_mpa_err err)
{
	switch (err) {
	case EA_MPA_OK:
		return "no error";
	case EA_MPA_SHORT:
		return "frame incomplete";
	case EA_MPA_BAD_KEY:
		return "not the expected MPA frame";
	case EA_MPA_BAD_REVISION:
		return "MPA revision not supported";
	case EA_MPA_BAD_LENGTH:
		return "MPA length or value out of range";
	case EA_MPA_NO_ENHANCED_DATA:
		return "enhanced MPA frame without IRD and ORD";
	case EA_MPA_MARKERS:
		return "peer wants MPA markers";
	case EA_MPA_CRC_REFUSED:
		return "MPA CRC not possible with this revision";
	case EA_MPA_REVISION_MISMATCH:
		return "MPA reply of another revision than the request";
	case EA_MPA_NOT_ENHANCED:
		return "MPA reply lacks IRD and ORD";
	case EA_MPA_REJECTED:
		return "connection rejected by the peer";
	case EA_MPA_IRD_SHORT:
		return "peer's ORD exceeds our IRD";
	case EA_MPA_NO_RTR:
		return "no common ready-to-receive indication";
	}
	return "unknown MPA error";
}

/* Bytes between the fixed part and the private data; those of revision 2 count as private data. */
static size_t extension_len(const struct ea_mpa_frame *frame)
{
	if (frame->revision == EA_MPA_REV_ERDMA)
		return EA_MPA_ERDMA_LEN;
	return frame->enhanced ? EA_MPA_ENHANCED_LEN : 0;
}

static size_t private_max(uint8_t revision)
{
	return revision == EA_MPA_REV_ERDMA ? EA_MPA_ERDMA_PRIVATE_MAX : EA_MPA_PRIVATE_MAX;
}

size_t ea_mpa_frame_len(const struct ea_mpa_frame *frame)
{
	return EA_MPA_FIXED_LEN + extension_len(frame) + frame->private_len;
}

static enum ea_mpa_err check_frame(const struct ea_mpa_frame *frame, size_t size)
{
	size_t private_len = frame->private_len;

	switch (frame->revision) {
	case EA_MPA_REV_1:
		if (frame->enhanced)
			return EA_MPA_BAD_REVISION;
		break;
	case EA_MPA_REV_2:
		break;
	case EA_MPA_REV_ERDMA:
		if (frame->enhanced)
			return EA_MPA_BAD_REVISION;
		if (frame->crc)
			return EA_MPA_CRC_REFUSED;
		break;
	default:
		return EA_MPA_BAD_REVISION;
	}
	if (frame->markers)
		return EA_MPA_MARKERS;
	if (frame->enhanced)
		private_len += EA_MPA_ENHANCED_LEN;
	if (private_len > private_max(frame->revision) || frame->ird > EA_MPA_IRD_ORD_MAX ||
	    frame->ord > EA_MPA_IRD_ORD_MAX || frame->cc > ERDMA_CC ||
	    size < ea_mpa_frame_len(frame))
		return EA_MPA_BAD_LENGTH;
	return EA_MPA_OK;
}

size_t ea_mpa_encode(enum ea_mpa_kind kind, const struct ea_mpa_frame *frame, void *buf,
		     size_t size, enum ea_mpa_err *err)
{
	struct mpa_fixed *fixed = buf;
	uint8_t *p = (uint8_t *)buf + EA_MPA_FIXED_LEN;
	uint16_t private_len = frame->private_len;
	uint16_t flags = frame->revision;
	enum ea_mpa_err rc;

	rc = check_frame(frame, size);
	if (err)
		*err = rc;
	if (rc)
		return 0;

	if (frame->crc)
		flags |= MPA_CRC;
	if (frame->reject && kind == EA_MPA_REPLY)
		flags |= MPA_REJECT;
	if (frame->large_fpdu)
		flags |= MPA_LARGE_FPDU;

	if (frame->revision == EA_MPA_REV_ERDMA) {
		struct mpa_erdma *ext = (struct mpa_erdma *)p;

		ext->cookie = htobe32(frame->cookie);
		ext->cc = htobe32(frame->cc);
	} else if (frame->enhanced) {
		struct mpa_enhanced *ext = (struct mpa_enhanced *)p;
		uint16_t ird = frame->ird;
		uint16_t ord = frame->ord;

		flags |= MPA_ENHANCED;
		private_len += EA_MPA_ENHANCED_LEN;
		if (frame->peer_to_peer)
			ird |= V2_IRD_PEER_TO_PEER;
		if (frame->rtr & EA_MPA_RTR_SEND)
			ird |= V2_IRD_RTR_SEND;
		if (frame->rtr & EA_MPA_RTR_WRITE)
			ord |= V2_ORD_RTR_WRITE;
		if (frame->rtr & EA_MPA_RTR_READ)
			ord |= V2_ORD_RTR_READ;
		ext->ird = htobe16(ird);
		ext->ord = htobe16(ord);
	}
	memcpy(fixed->key, mpa_keys[kind], EA_MPA_KEY_LEN);
	fixed->flags = htobe16(flags);
	fixed->private_len = htobe16(private_len);
	if (frame->private_len)
		memcpy(p + extension_len(frame), frame->private_data, frame->private_len);
	return ea_mpa_frame_len(frame);
}

static bool revision_accepted(uint8_t revision, unsigned int accept)
{
	switch (revision) {
	case EA_MPA_REV_1:
		return accept & EA_MPA_ACCEPT_1;
	case EA_MPA_REV_2:
		return accept & EA_MPA_ACCEPT_2;
	case EA_MPA_REV_ERDMA:
		return accept & EA_MPA_ACCEPT_ERDMA;
	default:
		return false;
	}
}

static void decode_enhanced(const struct mpa_enhanced *ext, struct ea_mpa_frame *frame)
{
	uint16_t ird = be16toh(ext->ird);
	uint16_t ord = be16toh(ext->ord);

	frame->ird = ird & V2_VALUE;
	frame->ord = ord & V2_VALUE;
	frame->peer_to_peer = ird & V2_IRD_PEER_TO_PEER;
	if (ird & V2_IRD_RTR_SEND)
		frame->rtr |= EA_MPA_RTR_SEND;
	if (ord & V2_ORD_RTR_WRITE)
		frame->rtr |= EA_MPA_RTR_WRITE;
	if (ord & V2_ORD_RTR_READ)
		frame->rtr |= EA_MPA_RTR_READ;
}

enum ea_mpa_err ea_mpa_decode(enum ea_mpa_kind kind, unsigned int accept, const void *buf,
			      size_t len, struct ea_mpa_frame *frame, size_t *need)
{
	const struct mpa_fixed *fixed = buf;
	const uint8_t *p = (const uint8_t *)buf + EA_MPA_FIXED_LEN;
	size_t private_len, total;
	uint16_t flags;

	memset(frame, 0, sizeof(*frame));
	*need = EA_MPA_FIXED_LEN;
	if (!len)
		return EA_MPA_SHORT;
	if (memcmp(buf, mpa_keys[kind], len < EA_MPA_KEY_LEN ? len : EA_MPA_KEY_LEN))
		return EA_MPA_BAD_KEY;
	if (len < EA_MPA_FIXED_LEN)
		return EA_MPA_SHORT;

	flags = be16toh(fixed->flags);
	private_len = be16toh(fixed->private_len);
	frame->revision = flags & MPA_REVISION;
	frame->markers = flags & MPA_MARKERS;
	frame->crc = flags & MPA_CRC;
	frame->reject = kind == EA_MPA_REPLY && (flags & MPA_REJECT);
	frame->large_fpdu = flags & MPA_LARGE_FPDU;
	frame->enhanced = frame->revision == EA_MPA_REV_2 && (flags & MPA_ENHANCED);

	if (!revision_accepted(frame->revision, accept))
		return EA_MPA_BAD_REVISION;
	if (private_len > private_max(frame->revision))
		return EA_MPA_BAD_LENGTH;
	if (frame->enhanced && private_len < EA_MPA_ENHANCED_LEN) {
		frame->enhanced = false;
		return EA_MPA_NO_ENHANCED_DATA;
	}

	total = EA_MPA_FIXED_LEN + private_len;
	if (frame->revision == EA_MPA_REV_ERDMA)
		total += EA_MPA_ERDMA_LEN;
	*need = total;
	if (len < total)
		return EA_MPA_SHORT;

	if (frame->revision == EA_MPA_REV_ERDMA) {
		const struct mpa_erdma *ext = (const struct mpa_erdma *)p;

		frame->cookie = be32toh(ext->cookie);
		frame->cc = be32toh(ext->cc) & ERDMA_CC;
	} else if (frame->enhanced) {
		decode_enhanced((const struct mpa_enhanced *)p, frame);
		private_len -= EA_MPA_ENHANCED_LEN;
	}
	frame->private_len = private_len;
	frame->private_data = p + extension_len(frame);

	if (frame->markers)
		return EA_MPA_MARKERS;
	if (frame->revision == EA_MPA_REV_ERDMA && frame->crc)
		return EA_MPA_CRC_REFUSED;
	return EA_MPA_OK;
}

/* The highest value says that a side leaves the matter to upper layers; it bounds nothing. */
static uint16_t bound(uint16_t wish, uint16_t peer)
{
	return peer == EA_MPA_IRD_ORD_MAX || wish < peer ? wish : peer;
}

static uint8_t choose_rtr(uint8_t offered)
{
	if (offered & EA_MPA_RTR_WRITE)
		return EA_MPA_RTR_WRITE;
	if (offered & EA_MPA_RTR_READ)
		return EA_MPA_RTR_READ;
	if (offered & EA_MPA_RTR_SEND)
		return EA_MPA_RTR_SEND;
	return EA_MPA_RTR_WRITE;
}

void ea_mpa_answer(const struct ea_mpa_frame *req, uint16_t ird, uint16_t ord, bool crc,
		   struct ea_mpa_frame *rep, struct ea_mpa_terms *terms)
{
	memset(rep, 0, sizeof(*rep));
	memset(terms, 0, sizeof(*terms));
	terms->ird = ird;
	terms->ord = ord;
	rep->revision = req->revision;
	if (req->revision != EA_MPA_REV_ERDMA) {
		/* RFC 5044 7.1.1: CRCs are used when either side asks for them */
		terms->crc = crc || req->crc;
		terms->large_fpdu = req->large_fpdu;
		rep->large_fpdu = req->large_fpdu;
	}
	rep->crc = terms->crc;
	if (!req->enhanced)
		return;

	terms->ird = bound(ird, req->ord);
	terms->ord = bound(ord, req->ird);
	rep->enhanced = true;
	rep->ird = terms->ird;
	rep->ord = terms->ord;
	if (req->peer_to_peer) {
		terms->rtr = choose_rtr(req->rtr);
		rep->peer_to_peer = true;
		rep->rtr = terms->rtr;
	}
}

enum ea_mpa_err ea_mpa_settle(const struct ea_mpa_frame *req, const struct ea_mpa_frame *rep,
			      struct ea_mpa_terms *terms)
{
	uint8_t common;

	memset(terms, 0, sizeof(*terms));
	terms->crc = req->crc || rep->crc;
	terms->large_fpdu = req->large_fpdu && rep->large_fpdu;
	terms->ird = req->ird;
	terms->ord = req->ord;
	if (rep->reject)
		return EA_MPA_REJECTED;
	if (rep->revision != req->revision)
		return EA_MPA_REVISION_MISMATCH;
	if (!req->enhanced)
		return EA_MPA_OK;
	if (!rep->enhanced)
		return EA_MPA_NOT_ENHANCED;

	terms->ord = bound(req->ord, rep->ird);
	if (rep->ord != EA_MPA_IRD_ORD_MAX && rep->ord > req->ird)
		return EA_MPA_IRD_SHORT;
	if (!req->peer_to_peer)
		return EA_MPA_OK;

	common = req->rtr & rep->rtr;
	if (!common && req->rtr)
		return EA_MPA_NO_RTR;
	terms->rtr = choose_rtr(common ? common : rep->rtr);
	return EA_MPA_OK;
}

uint32_t ea_fpdu_mulpdu(uint32_t emss)
{
	uint32_t overhead = EA_FPDU_LEN_SIZE + EA_FPDU_CRC_SIZE + emss % EA_FPDU_ALIGN;

	if (emss < EA_MULPDU_MIN + overhead)
		return EA_MULPDU_MIN;
	if (emss - overhead > EA_MULPDU_MAX)
		return EA_MULPDU_MAX;
	return emss - overhead;
}
