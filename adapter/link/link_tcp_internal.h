/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* What the files of the TCP link share. */
#ifndef EA_LINK_TCP_INTERNAL_H
#define EA_LINK_TCP_INTERNAL_H

#include <errno.h>

#include "adapter/link/link_tcp.h"
#include "adapter/wire/mpa.h"
#include "adapter/wire/rdmap.h"

#define ea_tcp_likely(x)   __builtin_expect(!!(x), 1)
#define ea_tcp_unlikely(x) __builtin_expect(!!(x), 0)

enum {
	FPDU_HDR_MAX = EA_FPDU_LEN_SIZE + EA_DDP_HDR_MAX,
	TX_MSGS = 32,	       /* messages pulled and not done */
	TX_FRAMES = 64,	       /* FPDUs staged */
	TX_SCRATCH = 4096,     /* headers, copied payload, trailers of those */
	TX_BATCH = 1024 << 10, /* payload bytes staged at once */
	TX_IOV = 128,
	TX_CRC_COPY = 128 << 10, /* payload of staged FPDUs, when it must not change any more */
	RX_CRC_COPY = 64 << 10,	 /* payload of the current FPDU until its CRC is known */
	RX_LARGE = 4096, /* payload from which on staging is kept small, so that little is copied */
	RX_AHEAD = 256,	 /* staging behind a large payload: trailer, next header, a small message */
};

enum ea_tcp_rx_state {
	RX_HDR,	 /* between FPDUs or inside a header */
	RX_HELD, /* the core has no receive WQE for this segment */
	RX_PAYLOAD,
	RX_CTRL, /* collecting a control message and its trailer */
	RX_TRAILER,
	RX_DISCARD, /* the QP takes nothing more */
};

/*
 * One FPDU in the order of the stream.  Its scratch bytes are header, copied payload and trailer.
 */
struct ea_tcp_frame {
	uint32_t off, len; /* payload gathered from the message; len 0: none, or it is in scratch */
	const uint8_t *copy; /* of that payload; NULL: it is read where it lies */
	uint16_t scratch;
	uint8_t head_len; /* header and copied payload */
	uint8_t tail_len; /* padding and CRC */
	uint8_t msg;
	bool ends_msg;
};

struct ea_tcp_tx {
	bool ready;    /* the core may have a message */
	bool shut;     /* nothing more can be sent */
	bool ending;   /* frames not begun were dropped */
	bool term_due; /* a Terminate is still to be pulled */
	uint8_t frame, nframes;
	uint8_t msg, nmsgs; /* msg: the one being cut; nmsgs: cut or done all */
	uint16_t scratch;   /* bytes in use */
	uint32_t frame_off; /* bytes of the current frame that are sent */
	uint32_t cut;	    /* payload bytes of the message being cut that are staged */
	int err;	    /* of the socket */
	uint8_t *rest;	    /* payload of the frame under way, once the QP has ended */
	uint32_t rest_off;  /* where in the frame's payload it starts */
	struct ea_tcp_frame frames[TX_FRAMES];
	struct ea_tx_msg msgs[TX_MSGS];
	uint8_t *copies; /* with CRC: TX_CRC_COPY bytes */
	uint32_t copied; /* of them in use */
	uint8_t buf[TX_SCRATCH];
};

struct ea_tcp_rx {
	enum ea_tcp_rx_state state;
	bool eof;	 /* nothing more can be received */
	bool resume;	 /* the held segment may be offered again */
	uint8_t trailer; /* padding and CRC bytes of the current FPDU */
	uint32_t off;	 /* payload bytes placed */
	uint32_t crc;
	uint32_t head, tail; /* bytes in buf */
	struct ea_rx_seg seg;
	uint8_t *copy; /* with CRC: RX_CRC_COPY bytes */
	uint8_t buf[EA_TCP_RX_STAGE];
};

struct ea_tcp {
	struct ea_link link; /* first: a pointer to one is a pointer to the other */
	int fd;
	int err;
	uint32_t mulpdu;
	bool crc;
	bool align;
	bool keep; /* the peer's end of stream is not the end of the link */
	bool down; /* the core was told, or has told us */
	bool closing;
	void (*notify)(struct ea_link *link, void *ctx);
	void *ctx;
	uint64_t discarded;
	struct ea_tcp_stats stats;
	struct ea_tcp_tx tx;
	struct ea_tcp_rx rx;
};

_Static_assert(sizeof(struct ea_tcp) <= EA_TCP_LINK_SIZE, "promise of link_tcp.h");
_Static_assert((int)TX_CRC_COPY + (int)RX_CRC_COPY <= (int)EA_TCP_CRC_SIZE,
	       "promise of link_tcp.h");

static inline struct ea_tcp *to_tcp(const struct ea_link *link)
{
	return (struct ea_tcp *)link;
}

static inline bool ea_tcp_is_closed(const struct ea_tcp *tcp)
{
	return tcp->tx.shut && tcp->rx.eof;
}

/* The QP ends now: keep what the frame under way still has to send. */
void ea_tcp_keep_rest(struct ea_tcp *tcp);

/* The stream is over for the QP: tell the core once, leave OPEN. */
void ea_tcp_down(struct ea_tcp *tcp, int err);

#endif
