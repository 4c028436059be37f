// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/wire/rdmap.h"
#include "tests/core/carry.h"

void carry_raw_header(struct ea_rx_seg *seg)
{
	struct ea_ddp_hdr hdr = {
		.tagged = seg->tagged,
		.last = seg->last,
		.ulp_ctrl = ea_rdmap_ctrl(seg->opcode),
		.stag = seg->stag,
		.to = seg->to,
		.ulp_word = seg->ulp_word,
		.qn = seg->qn,
		.msn = seg->msn,
		.mo = seg->mo,
	};

	seg->raw_len = ea_ddp_encode(&hdr, seg->raw);
}

struct ea_rx_seg carry_segment(const struct ea_tx_msg *msg, uint32_t off, uint32_t len, bool last)
{
	struct ea_rx_seg seg = {
		.opcode = msg->opcode, .tagged = msg->tagged, .len = len, .last = last
	};

	if (msg->tagged) {
		seg.stag = msg->stag;
		seg.to = msg->to + off;
	} else {
		seg.qn = msg->qn;
		seg.msn = msg->msn;
		seg.mo = off;
		seg.ulp_word = msg->ulp_word;
	}
	carry_raw_header(&seg);
	return seg;
}

int carry_gather(struct ea_qp *qp, const struct ea_tx_msg *msg, uint32_t off, uint32_t len,
		 uint8_t *out, carry_check check, void *ctx)
{
	struct iovec iov[EA_IOV_MAX];
	uint32_t done, covered;
	int n, i;

	for (done = 0; done < len;) {
		n = ea_tx_payload(qp, msg, off + done, len - done, iov, EA_IOV_MAX, &covered);
		if (n < 0)
			return n;
		check(ctx, iov, n, covered, len - done);
		for (i = 0; i < n; i++) {
			memcpy(out + done, iov[i].iov_base, iov[i].iov_len);
			done += iov[i].iov_len;
		}
	}
	return 0;
}

int carry_feed(struct ea_qp *qp, const struct ea_rx_seg *seg, const void *payload,
	       carry_check check, void *ctx)
{
	const uint8_t *from = payload;
	struct iovec iov[EA_IOV_MAX];
	uint32_t off = 0, covered;
	int err, n, i;

	if (!qp)
		return ENOTCONN;
	err = ea_rx_begin(qp, seg);
	if (err)
		return err;
	if (ea_rx_is_ctrl(seg->opcode)) {
		/* the core's promise, on which a link's buffer rests */
		if (seg->len > EA_TX_CTRL_MAX)
			abort();
		return ea_rx_ctrl(qp, seg, payload);
	}
	while (off < seg->len) {
		n = ea_rx_target(qp, seg, off, seg->len - off, iov, EA_IOV_MAX, &covered);
		if (n < 0)
			return -n;
		check(ctx, iov, n, covered, seg->len - off);
		for (i = 0; i < n; i++) {
			memcpy(iov[i].iov_base, from + off, iov[i].iov_len);
			off += iov[i].iov_len;
		}
	}
	return ea_rx_end(qp, seg);
}
