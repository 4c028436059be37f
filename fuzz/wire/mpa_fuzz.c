// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * MPA set-up frames from an enemy.  The first byte chooses kind and revisions.  Whatever decodes
 * must encode again to a frame that decodes to the same values, and negotiation must keep within
 * both sides' limits.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/wire/mpa.h"
#include "fuzz/wire/require.h"

enum {
	KIND = 1 << 0,
	ACCEPT_SHIFT = 1,
	ACCEPT_MASK = 7,
	OUR_IRD = 128,
	OUR_ORD = 16,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void encode_again(enum ea_mpa_kind kind, const struct ea_mpa_frame *frame)
{
	uint8_t buf[EA_MPA_FRAME_MAX];
	struct ea_mpa_frame got;
	size_t len, need;

	len = ea_mpa_encode(kind, frame, buf, sizeof(buf), NULL);
	require(len == ea_mpa_frame_len(frame));
	require(ea_mpa_decode(kind, ACCEPT_MASK, buf, len, &got, &need) == EA_MPA_OK);
	require(need == len && got.revision == frame->revision && got.crc == frame->crc &&
		got.reject == frame->reject && got.enhanced == frame->enhanced &&
		got.ird == frame->ird && got.ord == frame->ord && got.rtr == frame->rtr &&
		got.peer_to_peer == frame->peer_to_peer && got.cookie == frame->cookie &&
		got.cc == frame->cc && got.private_len == frame->private_len);
	require(!memcmp(got.private_data, frame->private_data, frame->private_len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ea_mpa_terms terms, active;
	struct ea_mpa_frame frame, rep;
	unsigned int accept;
	enum ea_mpa_kind kind;
	enum ea_mpa_err err;
	size_t need;

	if (!size)
		return 0;
	kind = data[0] & KIND ? EA_MPA_REPLY : EA_MPA_REQUEST;
	accept = data[0] >> ACCEPT_SHIFT & ACCEPT_MASK;
	err = ea_mpa_decode(kind, accept, data + 1, size - 1, &frame, &need);
	require(ea_mpa_strerror(err));
	if (err == EA_MPA_SHORT)
		require(need > size - 1 && need <= EA_MPA_FRAME_MAX);
	if (err != EA_MPA_OK)
		return 0;
	require(need <= size - 1 && need == ea_mpa_frame_len(&frame));
	encode_again(kind, &frame);

	ea_mpa_answer(&frame, OUR_IRD, OUR_ORD, false, &rep, &terms);
	require(terms.ird <= OUR_IRD && terms.ord <= OUR_ORD);
	rep.private_data = data;
	encode_again(EA_MPA_REPLY, &rep);
	require(ea_mpa_settle(&frame, &rep, &active) != EA_MPA_REVISION_MISMATCH);
	return 0;
}
