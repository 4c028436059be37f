// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The receiving side of a TCP link.
 *
 * Two steps in turn: consume() takes what is in the staging buffer as far as it goes, fill() reads
 * from the socket: into the staging buffer, or, inside a payload, into its target with the staging
 * buffer behind.
 */
#include <endian.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "adapter/core/umem.h"
#include "adapter/link/link_tcp_internal.h"
#include "adapter/wire/crc32c.h"

enum consumed {
	NEED_INPUT,
	IS_HELD,
	IS_ENDED, /* the QP takes nothing more */
};

static uint32_t staged(const struct ea_tcp_rx *rx)
{
	return rx->tail - rx->head;
}

/* An error of this layer or of a header: the core sends a Terminate and ends the QP. */
static void protocol_error(struct ea_tcp *tcp, enum ea_term_cause cause)
{
	struct ea_term_codes codes = ea_term_codes(cause);

	if (!tcp->err)
		tcp->err = cause == EA_TERM_CRC || cause == EA_TERM_FPDU_LEN ? EBADMSG : EPROTO;
	if (tcp->link.qp)
		ea_rx_error(tcp->link.qp, codes.layer, codes.etype, codes.code);
	tcp->closing = true;
}

/* ------------------------------------------------------------------ steps of an FPDU */

/*
 * Parse the header at the head of the staging buffer.  False: not all there, or an error that
 * ended the QP.
 */
static bool take_header(struct ea_tcp *tcp)
{
	struct ea_tcp_rx *rx = &tcp->rx;
	const uint8_t *p = rx->buf + rx->head;
	struct ea_rx_seg *seg = &rx->seg;
	enum ea_rdmap_err rdmap_err;
	uint32_t hdr_len, ulpdu;
	enum ea_ddp_err ddp_err;
	struct ea_ddp_hdr hdr;
	__be16 be_len;

	if (staged(rx) < EA_FPDU_LEN_SIZE + 1)
		return false;
	memcpy(&be_len, p, sizeof(be_len));
	p += sizeof(be_len);
	ulpdu = be16toh(be_len);
	hdr_len = ea_ddp_hdr_len(*p);
	if (ulpdu < hdr_len) {
		protocol_error(tcp, EA_TERM_FPDU_LEN);
		return false;
	}
	if (staged(rx) < EA_FPDU_LEN_SIZE + hdr_len)
		return false;

	ddp_err = ea_ddp_decode(p, hdr_len, &hdr);
	if (ddp_err) {
		protocol_error(tcp, ea_ddp_err_cause(ddp_err));
		return false;
	}
	rdmap_err = ea_rdmap_check(&hdr, ulpdu - hdr_len);
	if (rdmap_err) {
		protocol_error(tcp, ea_rdmap_err_cause(rdmap_err));
		return false;
	}
	seg->opcode = ea_rdmap_opcode(hdr.ulp_ctrl);
	seg->tagged = hdr.tagged;
	seg->last = hdr.last;
	seg->stag = hdr.stag;
	seg->to = hdr.to;
	seg->qn = hdr.qn;
	seg->msn = hdr.msn;
	seg->mo = hdr.mo;
	seg->ulp_word = hdr.ulp_word;
	seg->len = ulpdu - hdr_len;
	seg->raw_len = hdr_len;
	memcpy(seg->raw, p, hdr_len);

	rx->trailer = ea_fpdu_pad(ulpdu) + EA_FPDU_CRC_SIZE;
	rx->off = 0;
	if (tcp->crc)
		rx->crc = ea_crc32c_add(ea_crc32c_start(), rx->buf + rx->head,
					EA_FPDU_LEN_SIZE + hdr_len);
	rx->head += EA_FPDU_LEN_SIZE + hdr_len;
	return true;
}

static void begin_segment(struct ea_tcp *tcp)
{
	struct ea_tcp_rx *rx = &tcp->rx;
	int err;

	rx->resume = false;
	err = ea_rx_begin(tcp->link.qp, &rx->seg);
	if (err == EAGAIN)
		rx->state = RX_HELD;
	else if (err)
		tcp->closing = true;
	else if (ea_rdmap_is_ctrl(rx->seg.opcode))
		rx->state = RX_CTRL;
	else
		rx->state = rx->seg.len ? RX_PAYLOAD : RX_TRAILER;
}

/* The core refuses the target; it has ended the QP and asked for a Terminate where one is due. */
static void target_lost(struct ea_tcp *tcp, int err)
{
	if (!tcp->closing)
		ea_tcp_down(tcp, err);
}

/*
 * The target could not be written although the core has listed it: the program's memory has gone.  Asked
 * again the core ends the QP with the right cause, unless the memory is there again; half a segment of
 * it is lost all the same.
 */
static void target_faulted(struct ea_tcp *tcp, uint32_t off, const struct iovec *iov, int n)
{
	struct iovec again[EA_IOV_MAX];
	uint32_t covered, len = 0;
	int i;

	for (i = 0; i < n; i++)
		len += iov[i].iov_len;
	ea_memory_lost(tcp->link.qp, iov, n, true);
	n = ea_rx_target(tcp->link.qp, &tcp->rx.seg, off, len, again, EA_IOV_MAX, &covered);
	if (n < 0)
		target_lost(tcp, -n);
	else
		protocol_error(tcp, EA_TERM_DDP_LOCAL);
}

/* @len payload bytes have arrived where target() has said. */
static void placed(struct ea_tcp *tcp, uint32_t len)
{
	struct ea_tcp_rx *rx = &tcp->rx;

	if (tcp->crc)
		rx->crc = ea_crc32c_add(rx->crc, rx->copy + rx->off, len);
	rx->off += len;
	if (rx->off == rx->seg.len)
		rx->state = RX_TRAILER;
}

/*
 * Where @len bytes of payload from rx->off on go; result as ea_rx_target().  What has a CRC is kept until
 * that is known to be right: nothing wrong is placed, and a program that changes the target at once
 * changes nothing that is still to be checked.
 */
static int target(struct ea_tcp *tcp, uint32_t len, struct iovec *iov, uint32_t *covered)
{
	struct ea_tcp_rx *rx = &tcp->rx;

	if (!tcp->crc)
		return ea_rx_target(tcp->link.qp, &rx->seg, rx->off, len, iov, EA_IOV_MAX, covered);
	iov->iov_base = rx->copy + rx->off;
	iov->iov_len = len;
	*covered = len;
	return 1;
}

/* The CRC was right: place what was kept.  False: the core refuses the target. */
static bool place_kept(struct ea_tcp *tcp)
{
	struct ea_tcp_rx *rx = &tcp->rx;
	struct iovec iov[EA_IOV_MAX];
	uint32_t off, covered;
	const uint8_t *from = rx->copy;
	int i, n;

	for (off = 0; off < rx->seg.len; off += covered) {
		n = ea_rx_target(tcp->link.qp, &rx->seg, off, rx->seg.len - off, iov, EA_IOV_MAX,
				 &covered);
		if (n < 0) {
			target_lost(tcp, -n);
			return false;
		}
		for (i = 0; i < n; i++) {
			if (!ea_umem_copy(iov[i].iov_base, from, iov[i].iov_len)) {
				target_faulted(tcp, off, iov, n);
				return false;
			}
			from += iov[i].iov_len;
		}
	}
	tcp->stats.rx_copied += rx->seg.len;
	return true;
}

/* Copy staged payload to its target. */
static void place_staged(struct ea_tcp *tcp)
{
	struct ea_tcp_rx *rx = &tcp->rx;
	struct iovec iov[EA_IOV_MAX];
	uint32_t len, covered;
	int i, n;

	len = rx->seg.len - rx->off;
	if (len > staged(rx))
		len = staged(rx);
	n = target(tcp, len, iov, &covered);
	if (n < 0) {
		target_lost(tcp, -n);
		return;
	}
	for (i = 0; i < n; i++) {
		if (ea_tcp_unlikely(
			    !ea_umem_copy(iov[i].iov_base, rx->buf + rx->head, iov[i].iov_len))) {
			target_faulted(tcp, rx->off, iov, n);
			return;
		}
		rx->head += iov[i].iov_len;
	}
	tcp->stats.rx_copied += covered;
	placed(tcp, covered);
}

/* Is the trailer at the head of the staging buffer right?  The CRC covers the padding. */
static bool trailer_ok(struct ea_tcp *tcp, const uint8_t *trailer)
{
	struct ea_tcp_rx *rx = &tcp->rx;
	uint32_t pad = rx->trailer - EA_FPDU_CRC_SIZE;
	__le32 crc;

	if (!tcp->crc)
		return true;
	crc = ea_crc32c_end(ea_crc32c_add(rx->crc, trailer, pad));
	return !memcmp(&crc, trailer + pad, sizeof(crc));
}

static void end_segment(struct ea_tcp *tcp)
{
	struct ea_tcp_rx *rx = &tcp->rx;
	bool ctrl = rx->state == RX_CTRL;
	uint32_t ctrl_len = ctrl ? rx->seg.len : 0;
	const uint8_t *payload = rx->buf + rx->head;
	int err;

	if (ctrl && tcp->crc)
		rx->crc = ea_crc32c_add(rx->crc, payload, ctrl_len);
	if (!trailer_ok(tcp, payload + ctrl_len)) {
		protocol_error(tcp, EA_TERM_CRC);
		return;
	}
	if (tcp->crc && !ctrl && !place_kept(tcp))
		return;
	rx->head += ctrl_len + rx->trailer;
	rx->state = RX_HDR;
	tcp->stats.rx_fpdus++;
	if (ctrl)
		err = ea_rx_ctrl(tcp->link.qp, &rx->seg, payload);
	else
		err = ea_rx_end(tcp->link.qp, &rx->seg);
	if (err)
		tcp->closing = true;
}

/* Take all that is staged as far as it goes. */
static enum consumed consume(struct ea_tcp *tcp)
{
	struct ea_tcp_rx *rx = &tcp->rx;

	while (!tcp->closing) {
		switch (rx->state) {
		case RX_HDR:
			if (!take_header(tcp))
				return tcp->closing ? IS_ENDED : NEED_INPUT;
			begin_segment(tcp);
			break;
		case RX_HELD:
			if (!rx->resume)
				return IS_HELD;
			begin_segment(tcp);
			break;
		case RX_PAYLOAD:
			if (!staged(rx))
				return NEED_INPUT;
			place_staged(tcp);
			break;
		case RX_CTRL:
			if (staged(rx) < rx->seg.len + rx->trailer)
				return NEED_INPUT;
			end_segment(tcp);
			break;
		case RX_TRAILER:
			if (staged(rx) < rx->trailer)
				return NEED_INPUT;
			end_segment(tcp);
			break;
		case RX_DISCARD:
			return IS_ENDED;
		}
	}
	return IS_ENDED;
}

/* ------------------------------------------------------------------ reading */

/* Make all of the staging buffer but what it holds usable. */
static void compact(struct ea_tcp_rx *rx)
{
	uint32_t len = staged(rx);

	if (!rx->head)
		return;
	if (len)
		memmove(rx->buf, rx->buf + rx->head, len);
	rx->head = 0;
	rx->tail = len;
}

/*
 * Read once.  Returns the bytes read; 0 at the end of the stream; or -1 with errno.  *@want is
 * what was asked for, so that the caller sees whether the socket is empty now.  ESHUTDOWN: the
 * target was refused, or is gone, and nothing read.
 */
static ssize_t fill(struct ea_tcp *tcp, size_t *want)
{
	struct ea_tcp_rx *rx = &tcp->rx;
	struct iovec iov[EA_IOV_MAX + 1];
	struct msghdr msg = { .msg_iov = iov };
	uint32_t left, covered = 0;
	struct iovec *stage = iov;
	ssize_t got;
	int n = 0;

	compact(rx);
	if (rx->state == RX_PAYLOAD) {
		left = rx->seg.len - rx->off;
		n = target(tcp, left, iov, &covered);
		if (n < 0) {
			target_lost(tcp, -n);
			errno = ESHUTDOWN;
			return -1;
		}
		stage += n;
	}
	stage->iov_base = rx->buf + rx->tail;
	stage->iov_len = sizeof(rx->buf) - rx->tail;
	if (covered >= RX_LARGE)
		stage->iov_len = RX_AHEAD;
	/* what follows the listed memory is still payload */
	if (!covered || covered == rx->seg.len - rx->off)
		n++;
	*want = covered + (stage < iov + n ? stage->iov_len : 0);
	msg.msg_iovlen = n;
	got = recvmsg(tcp->fd, &msg, MSG_DONTWAIT);
	tcp->stats.rx_calls++;
	if (got < 0 && errno == EFAULT && covered) {
		/* the input is still in the socket */
		target_faulted(tcp, rx->off, iov, (int)(stage - iov));
		errno = ESHUTDOWN;
	}
	if (got <= 0)
		return got;
	tcp->stats.rx_bytes += got;
	if (covered) {
		left = (size_t)got < covered ? (uint32_t)got : covered;
		placed(tcp, left);
		rx->tail += got - left;
	} else {
		rx->tail += got;
	}
	return got;
}

/* The peer's end of stream. */
static void end_of_stream(struct ea_tcp *tcp)
{
	struct ea_tcp_rx *rx = &tcp->rx;
	bool whole = rx->state == RX_HDR && !staged(rx);

	rx->eof = true;
	if (whole && tcp->keep && !tcp->tx.err)
		return;
	if (rx->state != RX_DISCARD)
		ea_tcp_down(tcp, tcp->tx.err ? tcp->tx.err : whole ? 0 : EPROTO);
	rx->state = RX_DISCARD;
	if (tcp->tx.shut)
		ea_tcp_down(tcp, 0);
}

static void socket_failed(struct ea_tcp *tcp, int err)
{
	tcp->rx.eof = true;
	tcp->rx.state = RX_DISCARD;
	tcp->tx.shut = true;
	ea_tcp_down(tcp, err);
}

static unsigned int after_end(const struct ea_tcp *tcp)
{
	return ea_tcp_is_closed(tcp) ? EA_TCP_ENDED : 0;
}

/* Throw away input until the end of the stream. */
static unsigned int discard(struct ea_tcp *tcp, size_t budget)
{
	struct ea_tcp_rx *rx = &tcp->rx;
	ssize_t got;

	rx->state = RX_DISCARD;
	while (!rx->eof) {
		if (!budget)
			return EA_TCP_MORE | EA_TCP_WAIT_IN;
		got = recv(tcp->fd, rx->buf, sizeof(rx->buf), MSG_DONTWAIT);
		tcp->stats.rx_calls++;
		if (got > 0) {
			tcp->discarded += got;
			budget -= (size_t)got < budget ? (size_t)got : budget;
		} else if (!got) {
			end_of_stream(tcp);
		} else if (errno == EAGAIN) {
			return EA_TCP_WAIT_IN;
		} else if (errno != EINTR) {
			socket_failed(tcp, errno);
		}
	}
	return after_end(tcp);
}

unsigned int ea_tcp_progress_rx(struct ea_link *link, size_t budget)
{
	struct ea_tcp *tcp = to_tcp(link);
	struct ea_tcp_rx *rx = &tcp->rx;
	bool drained = false;
	size_t want;
	ssize_t got;

	if (rx->eof)
		return after_end(tcp);
	for (;;) {
		switch (consume(tcp)) {
		case IS_ENDED:
			return discard(tcp, budget);
		case IS_HELD:
			return EA_TCP_HELD;
		case NEED_INPUT:
			break;
		}
		if (drained)
			return EA_TCP_WAIT_IN;
		if (!budget)
			return EA_TCP_MORE | EA_TCP_WAIT_IN;

		got = fill(tcp, &want);
		if (ea_tcp_likely(got > 0)) {
			/* a short read has emptied the socket: no call to be told so again */
			drained = (size_t)got < want;
			budget -= (size_t)got < budget ? (size_t)got : budget;
		} else if (!got) {
			end_of_stream(tcp);
			return after_end(tcp);
		} else if (errno == EAGAIN) {
			return EA_TCP_WAIT_IN;
		} else if (errno == ECONNRESET && tcp->keep) {
			end_of_stream(tcp);
			return after_end(tcp);
		} else if (errno != EINTR && errno != ESHUTDOWN) {
			socket_failed(tcp, errno);
			return after_end(tcp);
		}
	}
}
