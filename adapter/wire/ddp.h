/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * DDP: the header of a segment (RFC 5041 section 4).  Layouts, offsets in bytes:
 *
 *	tagged				untagged
 *	 0  control			 0  control
 *	 1  control of the upper layer	 1  control of the upper layer
 *	 2  STag			 2  word of the upper layer
 *	 6  tagged offset		 6  queue number
 *	14  payload			10  message sequence number
 *					14  message offset
 *					18  payload
 *
 * Pure encode and decode: no I/O, no allocation, no state; any thread.
 */
#ifndef EA_DDP_H
#define EA_DDP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	EA_DDP_VERSION = 1,
	EA_DDP_CTRL_LEN = 2, /* both control bytes */
	EA_DDP_TAGGED_LEN = 14,
	EA_DDP_UNTAGGED_LEN = 18,
	EA_DDP_HDR_MAX = EA_DDP_UNTAGGED_LEN,
	EA_DDP_FIRST_MSN = 1, /* on each queue */
};

/* A header in host byte order. */
struct ea_ddp_hdr {
	bool tagged;
	bool last;	      /* the message ends with this segment */
	uint8_t ulp_ctrl;     /* upper layer's control byte (rdmap.h) */
	uint32_t stag;	      /* tagged */
	uint64_t to;	      /* tagged: where payload byte 0 goes */
	uint32_t ulp_word;    /* untagged: upper layer's word */
	uint32_t qn, msn, mo; /* untagged */
};

enum ea_ddp_err {
	EA_DDP_OK = 0,
	EA_DDP_SHORT,		 /* the segment is shorter than its header */
	EA_DDP_TAGGED_VERSION,	 /* unknown version in a tagged segment */
	EA_DDP_UNTAGGED_VERSION, /* unknown version in an untagged segment */
};

/* Length of the header whose first byte is @ctrl, whatever its version. */
uint32_t ea_ddp_hdr_len(uint8_t ctrl);

/* Encode @hdr into @buf (room for EA_DDP_HDR_MAX); returns the length. */
uint32_t ea_ddp_encode(const struct ea_ddp_hdr *hdr, void *buf);

/*
 * Decode the header at @buf, of which @len bytes are there.  The length is ea_ddp_hdr_len() of the
 * first byte. Reserved bits are not checked (RFC 5041 4.1: ignored by the receiver).
 */
enum ea_ddp_err ea_ddp_decode(const void *buf, size_t len, struct ea_ddp_hdr *hdr);

#endif
