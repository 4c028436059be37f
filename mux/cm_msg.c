// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "mux/cm_msg.h"

#include <endian.h>
#include <string.h>

/* rdma_cm's private data header in front of REQ and SIDR_REQ. */
enum cma_hdr {
	CMA_OFF_VERSION = 0,
	CMA_OFF_IP_VERSION = 1, /* high nibble */
	CMA_OFF_SRC = 4,
	CMA_OFF_DST = 20,
	CMA_IP4_IN_FIELD = 12,
};

enum rdma_port_space {
	RDMA_PORT_SPACE_IPOIB = 0x0002,
	RDMA_PORT_SPACE_TCP = 0x0106,
	RDMA_PORT_SPACE_UDP = 0x0111,
	RDMA_PORT_SPACE_IB = 0x013f,
};

uint16_t cm_get16(const uint8_t *mad, size_t off)
{
	__be16 v;

	memcpy(&v, mad + off, sizeof(v));
	return be16toh(v);
}

uint32_t cm_get24(const uint8_t *mad, size_t off)
{
	return (uint32_t)mad[off] << 16 | (uint32_t)mad[off + 1] << 8 | mad[off + 2];
}

uint32_t cm_get32(const uint8_t *mad, size_t off)
{
	__be32 v;

	memcpy(&v, mad + off, sizeof(v));
	return be32toh(v);
}

uint64_t cm_get64(const uint8_t *mad, size_t off)
{
	__be64 v;

	memcpy(&v, mad + off, sizeof(v));
	return be64toh(v);
}

void cm_put16(uint8_t *mad, size_t off, uint16_t v)
{
	__be16 be = htobe16(v);

	memcpy(mad + off, &be, sizeof(be));
}

void cm_put24(uint8_t *mad, size_t off, uint32_t v)
{
	mad[off] = (uint8_t)(v >> 16);
	mad[off + 1] = (uint8_t)(v >> 8);
	mad[off + 2] = (uint8_t)v;
}

void cm_put32(uint8_t *mad, size_t off, uint32_t v)
{
	__be32 be = htobe32(v);

	memcpy(mad + off, &be, sizeof(be));
}

void cm_put64(uint8_t *mad, size_t off, uint64_t v)
{
	__be64 be = htobe64(v);

	memcpy(mad + off, &be, sizeof(be));
}

unsigned int cm_attr(const uint8_t *mad)
{
	return cm_get16(mad, CM_OFF_ATTR);
}

bool cm_valid(const uint8_t *mad)
{
	unsigned int attr = cm_attr(mad);

	return mad[0] == CM_BASE_VERSION && mad[1] == CM_CLASS && mad[2] == CM_CLASS_VERSION &&
	       mad[3] == CM_METHOD_SEND && cm_get16(mad, CM_OFF_STATUS) == 0 && attr >= CM_REQ &&
	       attr <= CM_SPR;
}

const char *cm_name(unsigned int attr)
{
	static const char *const names[CM_ATTR_COUNT] = {
		"REQ",	    "MRA",	"REJ", "REP", "RTU", "DREQ", "DREP",
		"SIDR_REQ", "SIDR_REP", "LAP", "APR", "SAP", "SPR",
	};

	return attr >= CM_REQ && attr <= CM_SPR ? names[attr - CM_REQ] : "?";
}

bool cm_is_sidr(unsigned int attr)
{
	return attr == CM_SIDR_REQ || attr == CM_SIDR_REP;
}

bool cm_has_remote_id(unsigned int attr)
{
	return attr != CM_REQ && !cm_is_sidr(attr);
}

static void ip_field_to_gid(const uint8_t *field, bool ip4, uint8_t gid[MUX_GID_SIZE])
{
	if (!ip4) {
		memcpy(gid, field, MUX_GID_SIZE);
		return;
	}
	memset(gid, 0, MUX_GID_SIZE);
	gid[10] = 0xff;
	gid[11] = 0xff;
	memcpy(gid + CMA_IP4_IN_FIELD, field + CMA_IP4_IN_FIELD, MUX_GID_SIZE - CMA_IP4_IN_FIELD);
}

bool cm_ip_addrs(const uint8_t *mad, uint8_t src[MUX_GID_SIZE], uint8_t dst[MUX_GID_SIZE])
{
	const uint8_t *hdr =
		mad + (cm_attr(mad) == CM_SIDR_REQ ? CM_OFF_SIDR_REQ_PRIVATE : CM_OFF_REQ_PRIVATE);
	unsigned int ip_version = hdr[CMA_OFF_IP_VERSION] >> 4;

	if (cm_get32(mad, CM_OFF_SERVICE_ID) != 0)
		return false;
	switch (cm_get16(mad, CM_OFF_SERVICE_ID + 4)) {
	case RDMA_PORT_SPACE_IPOIB:
	case RDMA_PORT_SPACE_TCP:
	case RDMA_PORT_SPACE_UDP:
	case RDMA_PORT_SPACE_IB:
		break;
	default:
		return false;
	}
	if (hdr[CMA_OFF_VERSION] != 0 || (ip_version != 4 && ip_version != 6))
		return false;
	if (src)
		ip_field_to_gid(hdr + CMA_OFF_SRC, ip_version == 4, src);
	if (dst)
		ip_field_to_gid(hdr + CMA_OFF_DST, ip_version == 4, dst);
	return true;
}

void cm_build_header(uint8_t *mad, unsigned int attr, uint64_t tid)
{
	memset(mad, 0, MUX_MAD_SIZE);
	mad[0] = CM_BASE_VERSION;
	mad[1] = CM_CLASS;
	mad[2] = CM_CLASS_VERSION;
	mad[3] = CM_METHOD_SEND;
	cm_put64(mad, CM_OFF_TID, tid);
	cm_put16(mad, CM_OFF_ATTR, (uint16_t)attr);
}

void cm_build_rej(uint8_t *mad, uint64_t tid, uint32_t local, uint32_t remote, enum cm_rej_msg msg,
		  enum cm_rej_reason reason)
{
	cm_build_header(mad, CM_REJ, tid);
	cm_put32(mad, CM_OFF_LOCAL_ID, local);
	cm_put32(mad, CM_OFF_REMOTE_ID, remote);
	mad[CM_OFF_REJ_MSG] = (uint8_t)(msg << 6);
	cm_put16(mad, CM_OFF_REJ_REASON, (uint16_t)reason);
}

void cm_build_rej_timeout(uint8_t *mad, uint64_t tid, uint32_t local, uint64_t ca_guid)
{
	cm_build_rej(mad, tid, local, 0, CM_REJ_MSG_OTHER, CM_REJ_TIMEOUT);
	mad[CM_OFF_REJ_INFO_LEN] = sizeof(ca_guid) << 1;
	cm_put64(mad, CM_OFF_REJ_INFO, ca_guid);
}

void cm_build_dreq(uint8_t *mad, uint64_t tid, uint32_t local, uint32_t remote, uint32_t remote_qpn)
{
	cm_build_header(mad, CM_DREQ, tid);
	cm_put32(mad, CM_OFF_LOCAL_ID, local);
	cm_put32(mad, CM_OFF_REMOTE_ID, remote);
	cm_put24(mad, CM_OFF_DREQ_QPN, remote_qpn);
}

void cm_build_drep(uint8_t *mad, const uint8_t *dreq)
{
	uint64_t tid = cm_get64(dreq, CM_OFF_TID);
	uint32_t local = cm_get32(dreq, CM_OFF_REMOTE_ID);
	uint32_t remote = cm_get32(dreq, CM_OFF_LOCAL_ID);

	cm_build_header(mad, CM_DREP, tid);
	cm_put32(mad, CM_OFF_LOCAL_ID, local);
	cm_put32(mad, CM_OFF_REMOTE_ID, remote);
}

void cm_build_sidr_rep(uint8_t *mad, const uint8_t *sidr_req, unsigned int status)
{
	uint64_t service_id = cm_get64(sidr_req, CM_OFF_SERVICE_ID);
	uint64_t tid = cm_get64(sidr_req, CM_OFF_TID);
	uint32_t id = cm_get32(sidr_req, CM_OFF_LOCAL_ID);

	cm_build_header(mad, CM_SIDR_REP, tid);
	cm_put32(mad, CM_OFF_SIDR_REP_ID, id);
	mad[CM_OFF_SIDR_REP_STATUS] = (uint8_t)status;
	cm_put64(mad, CM_OFF_SIDR_REP_SERVICE_ID, service_id);
}
