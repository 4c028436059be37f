// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The sending side of a TCP link.
 *
 * Work goes in batches: messages are pulled and cut until a batch is full, the batch is sent,
 * perhaps over several calls when the socket is full, and the next one begins.  A frame is the
 * unit: once its first byte is out, all of it must follow, or the stream is broken.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "adapter/core/umem.h"
#include "adapter/link/link_tcp_internal.h"
#include "adapter/wire/crc32c.h"

/* ------------------------------------------------------------------ staging */

static bool pull_message(struct ea_tcp *tcp)
{
	struct ea_tcp_tx *tx = &tcp->tx;

	if (!tx->ready || !tcp->link.qp || tx->nmsgs == TX_MSGS)
		return false;
	if (tcp->closing) {
		if (!tx->term_due)
			return false;
		tx->term_due = false;
	}
	/* before the call, which may set it again */
	tx->ready = false;
	if (ea_tx_next(tcp->link.qp, &tx->msgs[tx->nmsgs]))
		return false;
	tx->ready = true;
	tx->nmsgs++;
	tx->cut = 0;
	return true;
}

/* The source is gone: asked again the core says what that means. */
static int source_faulted(struct ea_tcp *tcp, const struct ea_tx_msg *msg, uint32_t off,
			  uint32_t len, const struct iovec *iov, int n)
{
	struct iovec again[EA_IOV_MAX];
	uint32_t covered;

	ea_memory_lost(tcp->link.qp, iov, n, false);
	n = ea_tx_payload(tcp->link.qp, msg, off, len, again, EA_IOV_MAX, &covered);
	return n < 0 ? -n : EFAULT;
}

static int copy_payload(struct ea_tcp *tcp, const struct ea_tx_msg *msg, uint32_t off, uint32_t len,
			uint8_t *to)
{
	struct iovec iov[EA_IOV_MAX];
	uint32_t covered;
	int i, n;

	while (len) {
		n = ea_tx_payload(tcp->link.qp, msg, off, len, iov, EA_IOV_MAX, &covered);
		if (n < 0)
			return -n;
		for (i = 0; i < n; i++) {
			if (ea_tcp_unlikely(!ea_umem_copy(to, iov[i].iov_base, iov[i].iov_len)))
				return source_faulted(tcp, msg, off, len, iov, n);
			to += iov[i].iov_len;
		}
		off += covered;
		len -= covered;
	}
	return 0;
}

static uint32_t put_header(const struct ea_tx_msg *msg, uint32_t cut, uint32_t ulpdu, bool last,
			   uint8_t *p)
{
	struct ea_ddp_hdr hdr = {
		.tagged = msg->tagged,
		.last = last,
		.ulp_ctrl = ea_rdmap_ctrl(msg->opcode),
	};
	__be16 len = htobe16(ulpdu);

	if (msg->tagged) {
		hdr.stag = msg->stag;
		hdr.to = msg->to + cut;
	} else {
		hdr.ulp_word = msg->ulp_word;
		hdr.qn = msg->qn;
		hdr.msn = msg->msn;
		hdr.mo = cut;
	}
	memcpy(p, &len, sizeof(len));
	return sizeof(len) + ea_ddp_encode(&hdr, p + sizeof(len));
}

static uint8_t put_trailer(uint32_t ulpdu, const uint32_t *crc, uint8_t *p)
{
	static const uint8_t zero[EA_FPDU_ALIGN];
	uint32_t pad = ea_fpdu_pad(ulpdu);
	__le32 sum = 0;

	memset(p, 0, pad);
	if (crc)
		sum = ea_crc32c_end(ea_crc32c_add(*crc, zero, pad));
	memcpy(p + pad, &sum, sizeof(sum));
	return pad + sizeof(sum);
}

/* Cut the next FPDU from the current message. */
static int cut_frame(struct ea_tcp *tcp)
{
	struct ea_tcp_tx *tx = &tcp->tx;
	struct ea_tcp_frame *frame = &tx->frames[tx->nframes];
	const struct ea_tx_msg *msg = &tx->msgs[tx->msg];
	uint32_t hdr_len = msg->tagged ? EA_DDP_TAGGED_LEN : EA_DDP_UNTAGGED_LEN;
	uint8_t *head = tx->buf + tx->scratch;
	uint32_t crc = ea_crc32c_start();
	uint32_t len, ulpdu;
	int err;

	len = msg->ctrl_len;
	if (!len) {
		len = msg->len - tx->cut;
		if (len > tcp->mulpdu - hdr_len)
			len = tcp->mulpdu - hdr_len;
	}
	ulpdu = hdr_len + len;
	frame->off = tx->cut;
	frame->len = 0;
	frame->copy = NULL;
	frame->msg = tx->msg;
	frame->scratch = tx->scratch;
	frame->ends_msg = msg->ctrl_len || tx->cut + len == msg->len;
	frame->head_len = put_header(msg, tx->cut, ulpdu, frame->ends_msg, head);

	if (msg->ctrl_len) {
		memcpy(head + frame->head_len, msg->ctrl, len);
		frame->head_len += len;
	} else if (len <= EA_TCP_COPY_MAX) {
		err = copy_payload(tcp, msg, tx->cut, len, head + frame->head_len);
		if (err)
			return err;
		frame->head_len += len;
	} else {
		frame->len = len;
	}
	if (tcp->crc) {
		crc = ea_crc32c_add(crc, head, frame->head_len);
		/* the program, or a peer, may change the source until it is sent: the CRC is of a copy */
		err = copy_payload(tcp, msg, frame->off, frame->len, tx->copies + tx->copied);
		if (err)
			return err;
		frame->copy = tx->copies + tx->copied;
		crc = ea_crc32c_add(crc, frame->copy, frame->len);
		tx->copied += frame->len;
	}
	frame->tail_len = put_trailer(ulpdu, tcp->crc ? &crc : NULL, head + frame->head_len);

	tx->scratch += frame->head_len + frame->tail_len;
	tx->nframes++;
	tx->cut += len;
	if (frame->ends_msg)
		tx->msg++;
	return 0;
}

/*
 * A message cannot be read any more; the core has ended the QP, with or without telling the link.
 */
static void payload_lost(struct ea_tcp *tcp, int err)
{
	if (!tcp->closing)
		ea_tcp_down(tcp, err);
}

static void stage_batch(struct ea_tcp *tcp)
{
	enum {
		FRAME_MAX = FPDU_HDR_MAX + EA_TCP_COPY_MAX + EA_FPDU_TRAILER_MAX
	};
	struct ea_tcp_tx *tx = &tcp->tx;
	uint32_t bytes = 0;
	int err;

	if (tx->msg < tx->nmsgs) {
		tx->msgs[0] = tx->msgs[tx->msg];
		tx->nmsgs = 1;
	} else {
		tx->nmsgs = 0;
	}
	tx->msg = 0;
	tx->frame = 0;
	tx->nframes = 0;
	tx->scratch = 0;
	tx->copied = 0;
	while (tx->nframes < TX_FRAMES && bytes < TX_BATCH &&
	       tx->scratch + FRAME_MAX <= TX_SCRATCH &&
	       (!tcp->crc || tx->copied + tcp->mulpdu <= TX_CRC_COPY)) {
		if (tx->msg == tx->nmsgs && !pull_message(tcp))
			return;
		err = cut_frame(tcp);
		if (err) {
			payload_lost(tcp, err);
			return;
		}
		bytes += tx->frames[tx->nframes - 1].len;
	}
}

/* ------------------------------------------------------------------ sending */

static bool add_scratch(struct iovec *iov, int *n, uint8_t *p, uint32_t len)
{
	struct iovec *last = &iov[*n - 1];

	if (!len)
		return true;
	if (*n && (uint8_t *)last->iov_base + last->iov_len == p) {
		last->iov_len += len;
		return true;
	}
	if (*n == TX_IOV)
		return false;
	iov[(*n)++] = (struct iovec){ .iov_base = p, .iov_len = len };
	return true;
}

/* Payload of @frame from its byte @skip on; result as ea_tx_payload(). */
static int frame_payload(struct ea_tcp *tcp, const struct ea_tcp_frame *frame, uint32_t skip,
			 struct iovec *iov, int max, uint32_t *covered)
{
	struct ea_tcp_tx *tx = &tcp->tx;

	if (frame->copy) {
		*covered = frame->len - skip;
		iov->iov_base = (uint8_t *)frame->copy + skip;
		iov->iov_len = *covered;
		return 1;
	}
	if (ea_tcp_unlikely(tx->rest)) {
		*covered = frame->len - skip;
		iov->iov_base = tx->rest + (skip - tx->rest_off);
		iov->iov_len = *covered;
		return 1;
	}
	if (!tcp->link.qp)
		return -ESHUTDOWN;
	return ea_tx_payload(tcp->link.qp, &tx->msgs[frame->msg], frame->off + skip,
			     frame->len - skip, iov, max, covered);
}

/*
 * List what is staged, from the first unsent byte on, and no frame more once @budget bytes are
 * listed, or, aligned, once a TCP segment is full. Returns the number of iovecs (at least 1), or a
 * negative errno when payload cannot be read.
 */
static int gather(struct ea_tcp *tcp, struct iovec *iov, size_t budget)
{
	struct ea_tcp_tx *tx = &tcp->tx;
	uint32_t done = tx->frame_off;
	size_t listed = 0;
	int i, rc, n = 0;

	for (i = tx->frame; i < tx->nframes && listed < budget; i++) {
		const struct ea_tcp_frame *frame = &tx->frames[i];
		uint32_t left = frame->head_len + frame->len + frame->tail_len - done;
		uint8_t *head = tx->buf + frame->scratch;
		uint32_t skip, covered;

		if (tcp->align && n && (tx->frame_off || listed + left > ea_fpdu_len(tcp->mulpdu)))
			break;
		listed += left;
		skip = done < frame->head_len ? done : frame->head_len;
		done -= skip;
		if (!add_scratch(iov, &n, head + skip, frame->head_len - skip))
			break;
		skip = done < frame->len ? done : frame->len;
		done -= skip;
		if (skip < frame->len) {
			if (n == TX_IOV)
				break;
			rc = frame_payload(tcp, frame, skip, iov + n, TX_IOV - n, &covered);
			if (rc < 0)
				return rc;
			n += rc;
			if (covered < frame->len - skip)
				break;
		}
		if (!add_scratch(iov, &n, head + frame->head_len + done, frame->tail_len - done))
			break;
		done = 0;
	}
	return n;
}

static size_t total(const struct iovec *iov, int n)
{
	size_t len = 0;
	int i;

	for (i = 0; i < n; i++)
		len += iov[i].iov_len;
	return len;
}

static void advance(struct ea_tcp *tcp, size_t sent)
{
	struct ea_tcp_tx *tx = &tcp->tx;

	while (sent) {
		const struct ea_tcp_frame *frame = &tx->frames[tx->frame];
		uint32_t left = frame->head_len + frame->len + frame->tail_len - tx->frame_off;

		if (sent < left) {
			tx->frame_off += sent;
			return;
		}
		sent -= left;
		tx->frame_off = 0;
		tx->frame++;
		tcp->stats.tx_fpdus++;
		/* after the end of the QP nobody asks for what was pulled before */
		if (frame->ends_msg && tcp->link.qp && !tcp->closing)
			ea_tx_done(tcp->link.qp, &tx->msgs[frame->msg]);
	}
}

/* ------------------------------------------------------------------ the end */

/*
 * Payload can be read for the last time.  Without a copy, for want of memory or of the region, the
 * stream has to end inside the frame.
 */
void ea_tcp_keep_rest(struct ea_tcp *tcp)
{
	struct ea_tcp_tx *tx = &tcp->tx;
	const struct ea_tcp_frame *frame = &tx->frames[tx->frame];
	uint32_t skip;

	if (!tx->frame_off || tcp->closing || !tcp->link.qp || frame->copy)
		return;
	skip = tx->frame_off < frame->head_len ? 0 : tx->frame_off - frame->head_len;
	if (skip >= frame->len)
		return;
	tx->rest = malloc(frame->len - skip);
	if (!tx->rest)
		return;
	tx->rest_off = skip;
	if (copy_payload(tcp, &tx->msgs[frame->msg], frame->off + skip, frame->len - skip,
			 tx->rest)) {
		free(tx->rest);
		tx->rest = NULL;
	}
}

/* The QP has ended: of what is staged only a frame that has begun is still sent. */
static void drop_unsent(struct ea_tcp *tcp)
{
	struct ea_tcp_tx *tx = &tcp->tx;

	tx->ending = true;
	tx->nframes = tx->frame;
	tx->nmsgs = 0;
	if (tx->frame_off) {
		tx->nframes++;
		tx->nmsgs = tx->frames[tx->frame].msg + 1;
	}
	tx->msg = tx->nmsgs;
}

/* The frame under way cannot be finished, so nothing may follow it. */
static void break_stream(struct ea_tcp *tcp)
{
	struct ea_tcp_tx *tx = &tcp->tx;

	tx->frame_off = 0;
	tx->nframes = tx->frame;
	tx->nmsgs = 0;
	tx->msg = 0;
	tx->term_due = false;
}

static unsigned int finish(struct ea_tcp *tcp)
{
	shutdown(tcp->fd, SHUT_WR);
	tcp->tx.shut = true;
	if (!tcp->rx.eof)
		return EA_TCP_WAIT_IN;
	ea_tcp_down(tcp, 0);
	return EA_TCP_ENDED;
}

/*
 * The socket takes nothing more.  What the peer had sent before may still lie in it and is read
 * first, unless nobody takes it.
 */
static unsigned int socket_failed(struct ea_tcp *tcp, int err)
{
	struct ea_tcp_tx *tx = &tcp->tx;

	break_stream(tcp);
	tx->ending = true;
	tx->shut = true;
	tx->err = err;
	if (tcp->rx.state == RX_HELD) {
		tcp->rx.state = RX_DISCARD;
		tcp->rx.eof = true;
	}
	if (!tcp->rx.eof)
		return EA_TCP_WAIT_IN | EA_TCP_MORE;
	ea_tcp_down(tcp, err);
	return EA_TCP_ENDED;
}

int ea_tcp_nudge(struct ea_link *link)
{
	static const struct ea_tx_msg msg = { .tagged = true, .opcode = EA_RDMAP_WRITE };
	uint8_t fpdu[FPDU_HDR_MAX + EA_FPDU_TRAILER_MAX];
	struct ea_tcp *tcp = to_tcp(link);
	uint32_t len, crc;
	ssize_t sent;

	if (tcp->closing || tcp->tx.shut)
		return EPIPE;
	if (tcp->tx.frame < tcp->tx.nframes)
		return EAGAIN;
	len = put_header(&msg, 0, EA_DDP_TAGGED_LEN, true, fpdu);
	crc = ea_crc32c_add(ea_crc32c_start(), fpdu, len);
	len += put_trailer(EA_DDP_TAGGED_LEN, tcp->crc ? &crc : NULL, fpdu + len);
	sent = send(tcp->fd, fpdu, len, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent < 0)
		return errno == EINTR || errno == EWOULDBLOCK ? EAGAIN : errno;
	if ((size_t)sent < len) {
		/* nothing can follow a part of a frame */
		ea_tcp_hangup(link, ENOBUFS);
		return EPIPE;
	}
	tcp->stats.tx_calls++;
	tcp->stats.tx_bytes += (uint64_t)sent;
	tcp->stats.tx_fpdus++;
	return 0;
}

unsigned int ea_tcp_progress_tx(struct ea_link *link, size_t budget)
{
	struct ea_tcp *tcp = to_tcp(link);
	struct ea_tcp_tx *tx = &tcp->tx;
	struct iovec iov[TX_IOV];
	struct msghdr msg = { .msg_iov = iov };
	int flags = MSG_NOSIGNAL | MSG_DONTWAIT;
	bool faulted = false;
	ssize_t sent;
	int n;

	/* TCP appends nothing to a segment that ends here */
	if (tcp->align)
		flags |= MSG_EOR;
	if (tx->shut)
		return tcp->rx.eof ? EA_TCP_ENDED : 0;
	for (;;) {
		if (tcp->closing && !tx->ending)
			drop_unsent(tcp);
		if (tx->frame == tx->nframes)
			stage_batch(tcp);
		/* pulling and cutting may have ended the QP */
		if (tcp->closing && !tx->ending)
			continue;
		if (tx->frame == tx->nframes)
			return tcp->closing ? finish(tcp) : 0;
		if (!budget)
			return EA_TCP_MORE;

		n = gather(tcp, iov, budget);
		if (ea_tcp_unlikely(n < 0)) {
			payload_lost(tcp, -n);
			if (tx->ending)
				break_stream(tcp);
			continue;
		}
		msg.msg_iovlen = n;
		sent = sendmsg(tcp->fd, &msg, flags);
		tcp->stats.tx_calls++;
		if (sent < 0) {
			if (errno == EINTR)
				continue;
			if (errno == EAGAIN)
				return EA_TCP_WAIT_OUT;
			if (errno == EFAULT && !faulted && tcp->link.qp) {
				/* gathered again, what is gone is noticed */
				faulted = true;
				ea_memory_lost(tcp->link.qp, iov, n, false);
				continue;
			}
			return socket_failed(tcp, errno);
		}
		tcp->stats.tx_bytes += sent;
		advance(tcp, sent);
		/* no call to be told again that the socket is full */
		if ((size_t)sent < total(iov, n))
			return EA_TCP_WAIT_OUT;
		budget -= (size_t)sent < budget ? (size_t)sent : budget;
	}
}
