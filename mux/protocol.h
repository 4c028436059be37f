/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The protocol between rdmacm-mux and its clients.
 *
 * Transport: an AF_UNIX stream socket. Every message in both directions is one frame of exactly
 * MUX_FRAME_SIZE bytes; there is no length prefix and no handshake. Integers of the frame header
 * are in host byte order, since both ends run on one machine; everything inside the address and
 * the MAD that the InfiniBand specification calls big-endian is big-endian.
 *
 *   client to mux   MUX_MSG_REQ with MUX_OP_REG, _UNREG or _MAD; exactly one answer for each, in
 *                   request order, on the same connection
 *   mux to client   MUX_MSG_RESP: an answer; the result is in err_code
 *                   MUX_MSG_REQ with MUX_OP_MAD: an incoming MAD, which has no answer. sgid is the
 *                   client's own GID (the destination), umad.gid the sender's
 *
 * A client that never sends MUX_OP_HELLO is taken for QEMU's pvrdma device: it writes a request and
 * takes the next frame for the answer. To such a client an answer may come with MUX_OP_MAD and carry
 * the MAD that the client may have taken for the answer; see the mux's manual, "Crossing frames".
 *
 * A client that says hello tells answers from MADs by msg_type and by tag, may have many requests
 * outstanding, and may use the operations above MUX_OP_MAD. An older mux answers MUX_OP_HELLO with
 * MUX_EINVAL and the connection stays usable.
 */
#ifndef MUX_PROTOCOL_H
#define MUX_PROTOCOL_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/types.h>

#define MUX_DEFAULT_PREFIX "/var/run/rdmacm-mux"
#define MUX_FRAME_SIZE	   360
#define MUX_MAD_SIZE	   256
#define MUX_UMAD_HDR_SIZE  64
#define MUX_GID_SIZE	   16
#define MUX_MIN_MAD_SIZE   36

enum mux_msg_type {
	MUX_MSG_REQ = 0,
	MUX_MSG_RESP = 1,
};

enum mux_op {
	MUX_OP_REG = 0, /* own the GID in sgid */
	MUX_OP_UNREG = 1,
	MUX_OP_MAD = 2,	  /* send the MAD with source sgid */
	MUX_OP_HELLO = 3, /* struct mux_hello in mad[], both ways */
	MUX_OP_QUERY = 4, /* answer: struct mux_query in mad[] */
};

/* Values of err_code. Those above MUX_ENOTFOUND go only to clients that said hello. */
enum mux_err {
	MUX_OK = 0,	   /* a MAD: accepted, not yet transmitted */
	MUX_EINVAL = 1,	   /* malformed frame or MAD, unknown operation */
	MUX_EEXIST = 2,	   /* REG of a GID that this connection owns already */
	MUX_EACCES = 3,	   /* owned by another client, refused by policy, quota or rate */
	MUX_ENOTFOUND = 4, /* unknown GID or communication id, or the port is down */
	MUX_EAGAIN = 5,	   /* over a rate or quota: the same request may succeed later */
};

/* What a hello asks for and is granted. */
enum mux_hello_flags {
	MUX_HELLO_REREG_OK = 1 << 0, /* REG of a GID owned already succeeds */
	MUX_HELLO_DEST = 1 << 1,     /* umad.gid of a sent MAD is its true destination */
};

#define MUX_PROTOCOL_VERSION 1

struct mux_hello {
	uint32_t version;      /* asked: highest known; answer: the one in use */
	uint32_t flags;	       /* enum mux_hello_flags; answer: those granted */
	uint32_t window;       /* answer: requests that may be outstanding */
	uint32_t max_gids;     /* answer */
	uint32_t max_sessions; /* answer */
};

struct mux_query {
	uint32_t version;
	uint32_t port_up;  /* 1: MADs can be sent */
	uint32_t gids;	   /* registered by this client */
	uint32_t sessions; /* communication ids of this client that the mux keeps */
	uint64_t tx_mads;  /* accepted from this client */
	uint64_t rx_mads;  /* handed to this client */
	uint64_t tx_refused;
	uint64_t rx_dropped; /* for this client, queue full or not reading */
};

/* The kernel's umad header in its P_Key form, as both the frame and /dev/infiniband/umadN have it. */
struct mux_umad {
	uint32_t agent_id;
	uint32_t status;
	uint32_t timeout_ms;
	uint32_t retries;
	uint32_t length;
	__be32 qpn;
	__be32 qkey;
	__be16 lid;
	uint8_t sl;
	uint8_t path_bits;
	uint8_t grh_present;
	uint8_t gid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint8_t gid[MUX_GID_SIZE]; /* the remote one */
	__be32 flow_label;
	uint16_t pkey_index;
	uint8_t reserved[6];
};

struct mux_frame {
	uint32_t msg_type;
	uint32_t op_code;
	uint8_t sgid[MUX_GID_SIZE];
	uint32_t err_code;
	uint32_t tag;	  /* echoed in the answer to a client that said hello, else undefined */
	int32_t umad_len; /* valid bytes of mad[] */
	struct mux_umad umad;
	uint8_t mad[MUX_MAD_SIZE];
	uint32_t reserved;
};

static_assert(sizeof(struct mux_umad) == MUX_UMAD_HDR_SIZE, "umad header");
static_assert(offsetof(struct mux_umad, gid) == 36, "umad gid");
static_assert(offsetof(struct mux_umad, pkey_index) == 56, "umad pkey_index");
static_assert(sizeof(struct mux_frame) == MUX_FRAME_SIZE, "frame size");
static_assert(offsetof(struct mux_frame, sgid) == 8, "frame sgid");
static_assert(offsetof(struct mux_frame, err_code) == 24, "frame err_code");
static_assert(offsetof(struct mux_frame, umad_len) == 32, "frame umad_len");
static_assert(offsetof(struct mux_frame, umad) == 36, "frame umad");
static_assert(offsetof(struct mux_frame, mad) == 100, "frame mad");

#endif
