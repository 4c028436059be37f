/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Communication Management MADs: where their fields are, and how to read and change them in place.
 *
 * A MAD is a buffer of MUX_MAD_SIZE bytes without alignment. The functions neither allocate nor keep
 * anything, never read past the buffer, and may be called from any thread. Numbers come and go in host
 * byte order. InfiniBand Architecture Specification volume 1, chapters 12 and 13.4.
 */
#ifndef MUX_CM_MSG_H
#define MUX_CM_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mux/protocol.h"

#define CM_BASE_VERSION	 0x01
#define CM_CLASS	 0x07
#define CM_CLASS_VERSION 0x02
#define CM_METHOD_SEND	 0x03

enum cm_attr {
	CM_REQ = 0x0010,
	CM_MRA = 0x0011,
	CM_REJ = 0x0012,
	CM_REP = 0x0013,
	CM_RTU = 0x0014,
	CM_DREQ = 0x0015,
	CM_DREP = 0x0016,
	CM_SIDR_REQ = 0x0017,
	CM_SIDR_REP = 0x0018,
	CM_LAP = 0x0019,
	CM_APR = 0x001a,
	CM_SAP = 0x001b,
	CM_SPR = 0x001c,
};
#define CM_ATTR_COUNT (CM_SPR - CM_REQ + 1)

/* Byte offsets in the MAD. */
enum cm_offset {
	CM_OFF_STATUS = 4,
	CM_OFF_TID = 8,
	CM_OFF_TID_LOW = 12,
	CM_OFF_ATTR = 16,
	CM_OFF_LOCAL_ID = 24, /* SIDR_REQ: request id */
	CM_OFF_REMOTE_ID = 28,
	CM_OFF_SIDR_REP_ID = 24,
	CM_OFF_SERVICE_ID = 32, /* REQ and SIDR_REQ */

	CM_OFF_REQ_CA_GUID = 40,
	CM_OFF_REQ_QPN = 56,
	CM_OFF_REQ_REMOTE_LID = 78,
	CM_OFF_REQ_LOCAL_GID = 80,
	CM_OFF_REQ_REMOTE_GID = 96,
	CM_OFF_REQ_ALT_LOCAL_GID = 124,
	CM_OFF_REQ_ALT_REMOTE_GID = 140,
	CM_OFF_REQ_PRIVATE = 164,

	CM_OFF_REJ_MSG = 32,	  /* top two bits */
	CM_OFF_REJ_INFO_LEN = 33, /* top seven bits */
	CM_OFF_REJ_REASON = 34,
	CM_OFF_REJ_INFO = 36,

	CM_OFF_REP_QPN = 36,
	CM_OFF_REP_CA_GUID = 52,

	CM_OFF_DREQ_QPN = 32,

	CM_OFF_LAP_ALT_LOCAL_GID = 48,
	CM_OFF_LAP_ALT_REMOTE_GID = 64,

	CM_OFF_SIDR_REQ_PRIVATE = 40,
	CM_OFF_SIDR_REP_STATUS = 28,
	CM_OFF_SIDR_REP_SERVICE_ID = 36,
};

enum cm_rej_reason {
	CM_REJ_NO_RESOURCES = 3,
	CM_REJ_TIMEOUT = 4,
	CM_REJ_INVALID_SERVICE_ID = 8,
	CM_REJ_CONSUMER = 28,
};

enum cm_rej_msg {
	CM_REJ_MSG_REQ = 0,
	CM_REJ_MSG_REP = 1,
	CM_REJ_MSG_OTHER = 2,
};

#define CM_SIDR_UNSUPPORTED 1

uint16_t cm_get16(const uint8_t *mad, size_t off);
uint32_t cm_get24(const uint8_t *mad, size_t off);
uint32_t cm_get32(const uint8_t *mad, size_t off);
uint64_t cm_get64(const uint8_t *mad, size_t off);
void cm_put16(uint8_t *mad, size_t off, uint16_t v);
void cm_put24(uint8_t *mad, size_t off, uint32_t v);
void cm_put32(uint8_t *mad, size_t off, uint32_t v);
void cm_put64(uint8_t *mad, size_t off, uint64_t v);

/* True if the header is that of a CM message that a mux relays: versions, class, method Send, status 0,
 * attribute CM_REQ to CM_SPR.
 */
bool cm_valid(const uint8_t *mad);

/* The attribute, which is an enum cm_attr if cm_valid(). */
unsigned int cm_attr(const uint8_t *mad);

/* "REQ", "SIDR_REP", ...; "?" for anything else. Static storage. */
const char *cm_name(unsigned int attr);

/* True for SIDR_REQ and SIDR_REP, whose ids are a number space of their own. */
bool cm_is_sidr(unsigned int attr);

/* True for messages that have the receiver's id in CM_OFF_REMOTE_ID: all but REQ, SIDR_REQ, SIDR_REP. */
bool cm_has_remote_id(unsigned int attr);

/*
 * The IP addresses that rdma_cm puts in front of the private data of a REQ or SIDR_REQ, as GIDs (an IPv4
 * address a.b.c.d is ::ffff:a.b.c.d). Returns false if the service id is none of rdma_cm's IP port spaces
 * or the header's versions are unknown; src and dst are then untouched. Either may be NULL.
 */
bool cm_ip_addrs(const uint8_t *mad, uint8_t src[MUX_GID_SIZE], uint8_t dst[MUX_GID_SIZE]);

/* Builders. Each writes all MUX_MAD_SIZE bytes; tid is the full 64-bit transaction id. */
void cm_build_header(uint8_t *mad, unsigned int attr, uint64_t tid);
void cm_build_rej(uint8_t *mad, uint64_t tid, uint32_t local, uint32_t remote, enum cm_rej_msg msg,
		  enum cm_rej_reason reason);
/* The same with reason CM_REJ_TIMEOUT, which names the sender by its CA GUID. */
void cm_build_rej_timeout(uint8_t *mad, uint64_t tid, uint32_t local, uint64_t ca_guid);
void cm_build_dreq(uint8_t *mad, uint64_t tid, uint32_t local, uint32_t remote,
		   uint32_t remote_qpn);
/* The answer to the DREQ in dreq: ids swapped, transaction id copied. dreq and mad may be the same. */
void cm_build_drep(uint8_t *mad, const uint8_t *dreq);
/* The answer to a SIDR_REQ that nobody here serves. */
void cm_build_sidr_rep(uint8_t *mad, const uint8_t *sidr_req, unsigned int status);

#endif
