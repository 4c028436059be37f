// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* DDP and RDMAP headers from an enemy: the input is a DDP segment. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/wire/rdmap.h"
#include "fuzz/wire/require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_terminate(const uint8_t *payload, size_t len)
{
	uint8_t buf[EA_TERMINATE_MAX];
	struct ea_terminate term;
	uint32_t again;

	if (!ea_terminate_decode(payload, len, &term))
		return;
	require(ea_term_str(term.codes));
	again = ea_terminate_encode(&term, buf);
	require(again <= len && !memcmp(buf + EA_TERMINATE_MIN, payload + EA_TERMINATE_MIN,
					again - EA_TERMINATE_MIN));
}

static void check_ctrl(uint8_t opcode, const uint8_t *payload, size_t len)
{
	uint8_t buf[EA_ATOMIC_REQ_LEN];
	struct ea_atomic_resp resp;
	struct ea_atomic_req atomic;
	struct ea_read_req read;

	switch (opcode) {
	case EA_RDMAP_READ_REQ:
		ea_read_req_decode(payload, &read);
		ea_read_req_encode(&read, buf);
		require(!memcmp(buf, payload, EA_READ_REQ_LEN));
		break;
	case EA_RDMAP_ATOMIC_REQ:
		ea_atomic_req_decode(payload, &atomic);
		ea_atomic_req_encode(&atomic, buf);
		require(!memcmp(buf + 4, payload + 4, EA_ATOMIC_REQ_LEN - 4));
		break;
	case EA_RDMAP_ATOMIC_RESP:
		ea_atomic_resp_decode(payload, &resp);
		ea_atomic_resp_encode(&resp, buf);
		require(!memcmp(buf, payload, EA_ATOMIC_RESP_LEN));
		break;
	case EA_RDMAP_IMM:
	case EA_RDMAP_IMM_SE:
		ea_imm_encode(ea_imm_decode(payload), buf);
		require(!memcmp(buf, payload, 4));
		break;
	case EA_RDMAP_TERMINATE:
		check_terminate(payload, len);
		break;
	default:
		abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ea_ddp_hdr hdr, again;
	uint8_t buf[EA_DDP_HDR_MAX];
	enum ea_rdmap_err rdmap_err;
	enum ea_ddp_err err;
	uint32_t hdr_len;

	err = ea_ddp_decode(data, size, &hdr);
	if (err) {
		require(ea_ddp_err_cause(err) < EA_NR_TERM_CAUSES);
		return 0;
	}
	hdr_len = ea_ddp_hdr_len(data[0]);
	require(ea_ddp_encode(&hdr, buf) == hdr_len && hdr_len <= size);
	require(!ea_ddp_decode(buf, hdr_len, &again) && !memcmp(&hdr, &again, sizeof(hdr)));

	rdmap_err = ea_rdmap_check(&hdr, size - hdr_len);
	if (rdmap_err) {
		require(ea_rdmap_err_cause(rdmap_err) < EA_NR_TERM_CAUSES);
		return 0;
	}
	if (ea_rdmap_is_ctrl(ea_rdmap_opcode(hdr.ulp_ctrl)))
		check_ctrl(ea_rdmap_opcode(hdr.ulp_ctrl), data + hdr_len, size - hdr_len);
	return 0;
}
