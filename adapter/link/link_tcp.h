/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The TCP link: carries the RDMAP messages of one QP over one connected stream socket, as real
 * iWARP (RFC 5040, 5041, 5044).  It begins behind the MPA set-up, which is the connection
 * manager's affair.
 *
 * Sending: messages are pulled from the core, cut into DDP segments of at most MULPDU bytes,
 * framed, and many FPDUs are gathered into one sendmsg() straight from the application's memory.
 * What a full socket leaves over is remembered as positions; payload is asked from the core again.
 * Receiving: payload goes from the socket into the memory the core has checked; the same read
 * takes the trailer and what follows.  Small FPDUs are read many at a time into a staging buffer
 * and copied. Without CRC no payload byte is touched but by those copies (messages of at most
 * EA_TCP_COPY_MAX bytes when sending, what the staging buffer holds when receiving).
 *
 * With CRC, what is sent is a copy that the CRC was made of, as programs, and READs of memory that
 * lives, may change the source meanwhile; and what is received is kept until its CRC is right.
 *
 * An FPDU that has begun must be finished before anything else can follow.  When the QP ends while
 * the socket is full, the link copies the rest of it (64 KiB at most, its only allocation after
 * creation), so that the end of stream or a Terminate comes between FPDUs.  Only when that payload is
 * what went away does the stream end inside the FPDU: the peer sees a broken stream, not the cause.
 *
 * Bounds: nothing else is allocated after creation.  A link takes EA_TCP_LINK_SIZE bytes at most, and
 * EA_TCP_CRC_SIZE more with CRC; what
 * the peer sends and nobody takes stays in the kernel's socket buffer, whose limit stops the peer.
 *
 * Threads: all functions under the lock that serialises the core (core.h); none blocks.
 *
 * Life:
 *	OPEN	both directions run
 *	CLOSING	the QP has left the data path: what is staged is finished (an FPDU under way, the Terminate), the
 *		sending side is shut, input is thrown away until the peer's end of stream
 *	CLOSED	both directions are over; the owner closes
 * The link never closes the descriptor itself, and it knows no time: how long CLOSING may last,
 * and how long a held message may hide the end of the stream, is the owner's decision.  Closing
 * only when CLOSED is reached makes sure that nothing under way to the peer is lost: a close()
 * with unread input resets the connection.
 */
#ifndef EA_LINK_TCP_H
#define EA_LINK_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "adapter/core/core.h"

struct ea_tcp;

enum {
	EA_TCP_RX_STAGE = 8192, /* staging buffer; most bytes that creation takes over */
	EA_TCP_COPY_MAX = 192, /* longest payload that is copied instead of gathered when sending */
	EA_TCP_LINK_SIZE = 20480, /* memory of one link without CRC, all included */
	EA_TCP_CRC_SIZE = 196608, /* copies of payload on their way */
};

struct ea_tcp_attr {
	int fd;	    /* connected, non-blocking stream socket; the owner's for ever */
	bool crc;   /* MPA CRCs are in use */
	bool align; /* begin each TCP segment with an FPDU (RFC 5044 section 5), as some receivers and
		     * analysers expect; costs a system call for each segment */
	uint32_t mulpdu; /* longest DDP segment to send, EA_MULPDU_MIN..EA_MULPDU_MAX; 0: by TCP_MAXSEG */
	/*
	 * A peer that ends its stream between FPDUs, or resets it there, does not end the link: it stays OPEN with
	 * ea_tcp_peer_closed() true and receives nothing more; ea_tcp_hangup() ends it when the owner likes.  RC queue
	 * pairs outside of iWARP do not notice a peer that leaves until they send.
	 */
	bool keep_at_end;
	const void *rx_data; /* input that was read together with the MPA frame; copied */
	size_t rx_len;	     /* 0..EA_TCP_RX_STAGE */
	/*
	 * The core wants a progress call: it has something to send, a held message can go on, or
	 * the QP has ended.  Called from inside core functions; may only note it.
	 */
	void (*notify)(struct ea_link *link, void *ctx);
	void *ctx;
};

/*
 * Create a link; connect it to a QP with ea_qp_connect(dev, qpn, link, ...).  NULL with errno
 * EINVAL (mulpdu, rx_len or fd out of range) or ENOMEM.  Sets TCP_NODELAY on TCP sockets, and
 * the congestion control reno on those whose peer has the same address or one of 127.0.0.0/8.
 */
struct ea_link *ea_tcp_create(const struct ea_tcp_attr *attr);

/* What a progress call leaves. */
enum ea_tcp_wait {
	EA_TCP_WAIT_IN = 1 << 0,  /* call again when the socket is readable (level triggered) */
	EA_TCP_WAIT_OUT = 1 << 1, /* call again when it is writable */
	EA_TCP_MORE = 1 << 2,	  /* the budget is used up; more is possible at once */
	EA_TCP_HELD = 1 << 3,	  /* a message waits for a receive WQE; notify() will tell */
	EA_TCP_ENDED = 1 << 4,	  /* CLOSED */
};

/*
 * Receive, place and deliver about @budget bytes; it is overstepped by one FPDU at most.  Returns
 * enum ea_tcp_wait bits of the receiving side.
 */
unsigned int ea_tcp_progress_rx(struct ea_link *link, size_t budget);

/*
 * Send about @budget bytes, overstepped as above.  Returns enum ea_tcp_wait bits of the sending
 * side; 0: nothing to send until notify().
 */
unsigned int ea_tcp_progress_tx(struct ea_link *link, size_t budget);

/* Both, receiving first, so that answers leave at once.  The union of the bits. */
unsigned int ea_tcp_progress(struct ea_link *link, size_t rx_budget, size_t tx_budget);

enum ea_tcp_state {
	EA_TCP_OPEN,
	EA_TCP_CLOSING,
	EA_TCP_CLOSED,
};

enum ea_tcp_state ea_tcp_state(const struct ea_link *link);

/*
 * Why the link left OPEN: 0 for an orderly end of either side; EPROTO (stream ended inside an
 * FPDU), EBADMSG (bad CRC or framing), ECONNRESET, EPIPE, ETIMEDOUT and so on from the socket, or
 * the value given to ea_tcp_hangup().
 */
int ea_tcp_error(const struct ea_link *link);

/* The peer has ended its sending side, and all it sent was taken or thrown away. */
bool ea_tcp_peer_closed(const struct ea_link *link);

/*
 * Bytes of input thrown away in CLOSING: a peer that does not end can be given up by amount as
 * well as by time.
 */
uint64_t ea_tcp_discarded(const struct ea_link *link);

/*
 * The owner knows that the peer is gone (poll says hang-up while a message is held, keep-alive, a
 * time-out of its own): tell the core (ea_link_down() with @err, 0 for an orderly end) and go to
 * CLOSED.  Input not taken yet is lost.  No effect when CLOSED.
 */
void ea_tcp_hangup(struct ea_link *link, int err);

/*
 * Send an RDMA Write of no bytes, which changes nothing at the peer, past the core.  For a peer that may have missed
 * that input came.  EAGAIN: FPDUs are under way anyway, or the socket is full; EPIPE: not OPEN any more.
 */
int ea_tcp_nudge(struct ea_link *link);

/*
 * Free the link; a QP that is still connected goes down with ECONNABORTED.  The descriptor stays
 * open and is the caller's to close. @reset: arrange (SO_LINGER 0) that close() resets the
 * connection instead of sending what the kernel still has.
 */
void ea_tcp_destroy(struct ea_link *link, bool reset);

struct ea_tcp_stats {
	uint64_t tx_calls, tx_bytes, tx_fpdus; /* system calls, stream bytes */
	uint64_t rx_calls, rx_bytes, rx_fpdus;
	uint64_t rx_copied; /* payload bytes that came by way of the staging buffer */
};

void ea_tcp_stats(const struct ea_link *link, struct ea_tcp_stats *stats);

#endif
