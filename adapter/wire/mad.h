/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Management datagrams (InfiniBand architecture, volume 1, chapter 13): the header that all of them
 * begin with, and what tells a response from a request.
 *
 * A MAD is 256 bytes anywhere in memory; fields are read and written by these functions, so that
 * no alignment is asked for.  Pure functions: any thread, no state.
 */
#ifndef EA_MAD_H
#define EA_MAD_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
	EA_MAD_LEN = 256,
	EA_MAD_HDR_LEN = 24,  /* what all MADs share */
	EA_MAD_RMPP_LEN = 36, /* that and the header of segmented messages */

	EA_MAD_BASE_VERSION = 1,

	EA_MAD_CLASS_SUBN_LID = 0x01,
	EA_MAD_CLASS_SUBN_DIRECTED = 0x81,
	EA_MAD_CLASS_SUBN_ADM = 0x03,
	EA_MAD_CLASS_PERF = 0x04,
	EA_MAD_CLASS_BM = 0x05,
	EA_MAD_CLASS_DEV_MGT = 0x06,
	EA_MAD_CLASS_CM = 0x07,
	/* vendor classes whose MADs name the vendor by its OUI, and have the segment header */
	EA_MAD_CLASS_VENDOR2_FIRST = 0x30,
	EA_MAD_CLASS_VENDOR2_LAST = 0x4f,

	EA_MAD_METHOD_GET = 0x01,
	EA_MAD_METHOD_SET = 0x02,
	EA_MAD_METHOD_SEND = 0x03,
	EA_MAD_METHOD_TRAP_REPRESS = 0x07,
	EA_MAD_METHOD_RESP = 0x80, /* the bit */
	EA_MAD_METHOD_GET_RESP = 0x81,

	EA_MAD_ATTR_CLASS_PORT_INFO = 0x0001,
	EA_MAD_BM_ATTR_MOD_RESP = 1, /* attribute modifier of a baseboard management response */

	EA_MAD_STATUS_UNSUPPORTED = 0x000c, /* this combination of method and attribute */
};

/* Where the fields lie. */
enum {
	EA_MAD_AT_BASE_VERSION = 0,
	EA_MAD_AT_CLASS = 1,
	EA_MAD_AT_CLASS_VERSION = 2,
	EA_MAD_AT_METHOD = 3,
	EA_MAD_AT_STATUS = 4,
	EA_MAD_AT_TID = 8,
	EA_MAD_AT_ATTR = 16,
	EA_MAD_AT_ATTR_MOD = 20,
	EA_MAD_AT_OUI = 37, /* of the vendor classes above */
};

static inline uint16_t ea_mad_attr(const uint8_t *mad)
{
	return (uint16_t)(mad[EA_MAD_AT_ATTR] << 8 | mad[EA_MAD_AT_ATTR + 1]);
}

static inline uint64_t ea_mad_tid(const uint8_t *mad)
{
	uint64_t tid;

	memcpy(&tid, mad + EA_MAD_AT_TID, sizeof(tid));
	return be64toh(tid);
}

static inline void ea_mad_set_tid(uint8_t *mad, uint64_t tid)
{
	tid = htobe64(tid);
	memcpy(mad + EA_MAD_AT_TID, &tid, sizeof(tid));
}

/* Does it answer a request, so that its transaction id is the requester's? */
static inline bool ea_mad_is_response(const uint8_t *mad)
{
	return (mad[EA_MAD_AT_METHOD] & EA_MAD_METHOD_RESP) ||
	       mad[EA_MAD_AT_METHOD] == EA_MAD_METHOD_TRAP_REPRESS ||
	       (mad[EA_MAD_AT_CLASS] == EA_MAD_CLASS_BM &&
		(mad[EA_MAD_AT_ATTR_MOD + 3] & EA_MAD_BM_ATTR_MOD_RESP));
}

static inline bool ea_mad_class_is_vendor2(uint8_t mgmt_class)
{
	return mgmt_class >= EA_MAD_CLASS_VENDOR2_FIRST && mgmt_class <= EA_MAD_CLASS_VENDOR2_LAST;
}

static inline bool ea_mad_class_is_subn(uint8_t mgmt_class)
{
	return mgmt_class == EA_MAD_CLASS_SUBN_LID || mgmt_class == EA_MAD_CLASS_SUBN_DIRECTED;
}

/* Classes whose messages may be longer than one MAD. */
static inline bool ea_mad_class_has_rmpp(uint8_t mgmt_class)
{
	return mgmt_class == EA_MAD_CLASS_SUBN_ADM || mgmt_class == EA_MAD_CLASS_DEV_MGT ||
	       mgmt_class == 0x11 /* BIS */ || ea_mad_class_is_vendor2(mgmt_class);
}

#endif
