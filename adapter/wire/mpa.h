/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * MPA: the frames that set up an RDMA connection on a TCP stream, and the framing (FPDU) of what
 * follows.  RFC 5044 (revision 1), RFC 6581 (revision 2, enhanced set-up), and revision 129 of the
 * ERDMA kernel driver, whose frames always carry eight more bytes.
 *
 * Pure encode and decode: no I/O, no allocation, no state; any thread.
 *
 * Markers are never used and a peer that wants them is refused.  The CRC field of an FPDU is always
 * present; it holds a CRC32C of length, DDP segment and padding when either side asked for CRCs at
 * set-up, and is zero and not checked otherwise.
 */
#ifndef EA_MPA_H
#define EA_MPA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ------------------------------------------------------------------ set-up frames */

enum {
	EA_MPA_KEY_LEN = 16,
	EA_MPA_FIXED_LEN = 20,	  /* key, flags and revision, private data length */
	EA_MPA_ENHANCED_LEN = 4,  /* IRD and ORD words; counted in the private data length */
	EA_MPA_ERDMA_LEN = 8,	  /* cookie and congestion control; not counted */
	EA_MPA_PRIVATE_MAX = 512, /* RFC 5044 7.1.1; includes EA_MPA_ENHANCED_LEN */
	EA_MPA_ERDMA_PRIVATE_MAX = 256,
	EA_MPA_FRAME_MAX = EA_MPA_FIXED_LEN + EA_MPA_PRIVATE_MAX,
	EA_MPA_IRD_ORD_MAX = 0x3fff, /* on the wire this value means "not negotiated" */
};

enum ea_mpa_revision {
	EA_MPA_REV_1 = 1,
	EA_MPA_REV_2 = 2,
	EA_MPA_REV_ERDMA = 129,
};

/* Sets of revisions that a decoder takes. */
enum ea_mpa_accept {
	EA_MPA_ACCEPT_1 = 1 << 0,
	EA_MPA_ACCEPT_2 = 1 << 1,
	EA_MPA_ACCEPT_ERDMA = 1 << 2,
	EA_MPA_ACCEPT_STANDARD = EA_MPA_ACCEPT_1 | EA_MPA_ACCEPT_2,
};

enum ea_mpa_kind {
	EA_MPA_REQUEST,
	EA_MPA_REPLY,
};

/* Ready-to-receive indications of RFC 6581 section 9.2: what the active side sends first. */
enum ea_mpa_rtr {
	EA_MPA_RTR_NONE = 0,
	EA_MPA_RTR_SEND = 1 << 0,  /* zero-length Send */
	EA_MPA_RTR_WRITE = 1 << 1, /* zero-length RDMA Write */
	EA_MPA_RTR_READ = 1 << 2,  /* zero-length RDMA Read */
};

struct ea_mpa_frame {
	uint8_t revision; /* enum ea_mpa_revision */
	bool markers;	  /* the sender wants to receive markers */
	bool crc;	  /* the sender wants CRCs */
	bool reject;	  /* reply only */
	bool large_fpdu;  /* sender takes FPDUs longer than a TCP segment; bit 0x0800, which
					 * siw uses the same way and others ignore */
	/* revision 2 */
	bool enhanced;	   /* IRD and ORD words present */
	bool peer_to_peer; /* active side sends an RTR indication first */
	uint8_t rtr;	   /* enum ea_mpa_rtr: offered (request) or chosen (reply) */
	uint16_t ird, ord; /* of the sender, 0..EA_MPA_IRD_ORD_MAX */
	/* revision 129 */
	uint32_t cookie; /* of the sender's QP */
	uint8_t cc;	 /* congestion control id, 0..15 */

	uint16_t private_len;	  /* without the enhanced words */
	const void *private_data; /* decode: points into the input buffer */
};

enum ea_mpa_err {
	EA_MPA_OK = 0,
	EA_MPA_SHORT,		  /* not an error: more bytes are needed */
	EA_MPA_BAD_KEY,		  /* neither side of an MPA set-up, or the wrong one */
	EA_MPA_BAD_REVISION,	  /* not among those accepted */
	EA_MPA_BAD_LENGTH,	  /* private data length above the limit */
	EA_MPA_NO_ENHANCED_DATA,  /* enhanced flag, but no room for IRD and ORD */
	EA_MPA_MARKERS,		  /* peer wants markers */
	EA_MPA_CRC_REFUSED,	  /* revision 129 with the CRC flag */
	EA_MPA_REVISION_MISMATCH, /* reply of another revision than the request */
	EA_MPA_NOT_ENHANCED,	  /* reply to an enhanced request without IRD and ORD */
	EA_MPA_REJECTED,	  /* the peer refused the connection */
	EA_MPA_IRD_SHORT,	  /* responder's ORD above initiator's IRD (RFC 6581 9.1) */
	EA_MPA_NO_RTR,		  /* no common ready-to-receive indication */
};

/* What an error is called, for messages; never NULL. */
const char *ea_mpa_strerror(enum ea_mpa_err err);

/* Bytes that @frame takes when encoded. */
size_t ea_mpa_frame_len(const struct ea_mpa_frame *frame);

/*
 * Encode @frame into @buf of @size bytes.  Returns the length, or 0 with *@err:
 * EA_MPA_BAD_REVISION; EA_MPA_BAD_LENGTH (private data, IRD, ORD or congestion control id above
 * the limit, or @size too small); EA_MPA_MARKERS and EA_MPA_CRC_REFUSED for flags that are never
 * sent.  @err may be NULL.  A reply with reject set keeps the extension words.
 */
size_t ea_mpa_encode(enum ea_mpa_kind kind, const struct ea_mpa_frame *frame, void *buf,
		     size_t size, enum ea_mpa_err *err);

/*
 * Decode a frame of @kind from the first @len bytes of a stream.
 *
 * EA_MPA_SHORT: *@need is the number of bytes (more than @len) after which another call gets
 * further; a caller that reads exactly that many never takes bytes behind the frame.  Garbage is
 * reported from the first wrong byte on. EA_MPA_OK: *@need is the frame's length; bytes from there
 * on belong to the first FPDU. EA_MPA_MARKERS, EA_MPA_CRC_REFUSED: as EA_MPA_OK, but the
 * connection must be refused (with a reject reply when this was a request). All others: the frame
 * is unusable.  EA_MPA_NO_ENHANCED_DATA wants a reject reply (RFC 6581 9). Reserved bits are not
 * checked, and the reject bit of a request neither (RFC 5044 7.1.1).
 */
enum ea_mpa_err ea_mpa_decode(enum ea_mpa_kind kind, unsigned int accept, const void *buf,
			      size_t len, struct ea_mpa_frame *frame, size_t *need);

/* What both sides have agreed on. */
struct ea_mpa_terms {
	bool crc;
	bool large_fpdu;   /* both sides take FPDUs longer than a TCP segment */
	uint8_t rtr;	   /* enum ea_mpa_rtr: what the active side sends first */
	uint16_t ird, ord; /* of the local side */
};

/*
 * The passive side's answer.  @req is the request; @ird and @ord are the local wishes (at most the
 * device limits); @crc: this side wants CRCs on its own account.  Fills @rep without private data,
 * cookie and cc, and @terms.  IRD and ORD are bounded by the peer's ORD and IRD where the request
 * carries them (RFC 6581 9.1).  Of the offered RTR indications a zero-length Write is taken before
 * a Read before a Send; none offered in peer-to-peer mode: Write.
 */
void ea_mpa_answer(const struct ea_mpa_frame *req, uint16_t ird, uint16_t ord, bool crc,
		   struct ea_mpa_frame *rep, struct ea_mpa_terms *terms);

/*
 * The active side's view of the reply @rep to @req.  Fills @terms.  Errors: EA_MPA_REJECTED,
 * EA_MPA_REVISION_MISMATCH, EA_MPA_NOT_ENHANCED; EA_MPA_IRD_SHORT and EA_MPA_NO_RTR, which want a
 * Terminate with EA_TERM_IRD_SHORT or EA_TERM_NO_RTR.  An ORD above the peer's IRD is lowered to
 * it.
 */
enum ea_mpa_err ea_mpa_settle(const struct ea_mpa_frame *req, const struct ea_mpa_frame *rep,
			      struct ea_mpa_terms *terms);

/* ------------------------------------------------------------------ FPDUs */

enum {
	EA_FPDU_LEN_SIZE = 2,
	EA_FPDU_CRC_SIZE = 4,
	EA_FPDU_ALIGN = 4,
	EA_FPDU_TRAILER_MAX = EA_FPDU_ALIGN - 1 + EA_FPDU_CRC_SIZE,
	EA_MULPDU_MIN = 128,   /* RFC 5044 section 3: never below */
	EA_MULPDU_MAX = 65534, /* longest that needs no padding */
};

/* Zero bytes between a DDP segment of @ulpdu bytes and the CRC (RFC 5044 section 4.2). */
static inline uint32_t ea_fpdu_pad(uint32_t ulpdu)
{
	return -(ulpdu + EA_FPDU_LEN_SIZE) & (EA_FPDU_ALIGN - 1);
}

/* Bytes of a whole FPDU. */
static inline uint32_t ea_fpdu_len(uint32_t ulpdu)
{
	return EA_FPDU_LEN_SIZE + ulpdu + ea_fpdu_pad(ulpdu) + EA_FPDU_CRC_SIZE;
}

/*
 * Largest DDP segment whose FPDU fits a TCP segment of @emss bytes (RFC 5044 section 4.1 without
 * markers), within EA_MULPDU_MIN..EA_MULPDU_MAX.
 */
uint32_t ea_fpdu_mulpdu(uint32_t emss);

#endif
