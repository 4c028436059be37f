// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Terminate messages: codes of every cause, attached headers, hostile input. */
#include <stdlib.h>

#include "adapter/wire/rdmap.h"
#include "tests/wire/check.h"

static const uint8_t tagged_hdr[EA_DDP_TAGGED_LEN] = { 0xc1, 0x40, 1, 2, 3, 4 };
static const uint8_t untagged_hdr[EA_DDP_UNTAGGED_LEN] = { 0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1 };
static const uint8_t read_hdr[EA_READ_REQ_LEN] = { 0xaa, 0xbb };

static void codes_of_causes(void **state)
{
	static const struct {
		enum ea_term_cause cause;
		uint8_t layer, etype, code;
	} want[] = {
		{ EA_TERM_TAGGED_STAG, 1, 1, 0 },
		{ EA_TERM_TAGGED_BOUNDS, 1, 1, 1 },
		{ EA_TERM_TAGGED_ASSOC, 1, 1, 2 },
		{ EA_TERM_TAGGED_WRAP, 1, 1, 3 },
		{ EA_TERM_TAGGED_VERSION, 1, 1, 4 },
		{ EA_TERM_TAGGED_RIGHTS, 0, 1, 2 },
		{ EA_TERM_UNTAGGED_QN, 1, 2, 1 },
		{ EA_TERM_UNTAGGED_NO_BUFFER, 1, 2, 2 },
		{ EA_TERM_UNTAGGED_MSN, 1, 2, 3 },
		{ EA_TERM_UNTAGGED_MO, 1, 2, 4 },
		{ EA_TERM_UNTAGGED_LEN, 1, 2, 5 },
		{ EA_TERM_UNTAGGED_VERSION, 1, 2, 6 },
		{ EA_TERM_DDP_LOCAL, 1, 0, 0 },
		{ EA_TERM_REMOTE_STAG, 0, 1, 0 },
		{ EA_TERM_REMOTE_BOUNDS, 0, 1, 1 },
		{ EA_TERM_REMOTE_RIGHTS, 0, 1, 2 },
		{ EA_TERM_REMOTE_ASSOC, 0, 1, 3 },
		{ EA_TERM_REMOTE_WRAP, 0, 1, 4 },
		{ EA_TERM_REMOTE_PROTECTION, 0, 1, 0xff },
		{ EA_TERM_CANNOT_INVALIDATE, 0, 1, 9 },
		{ EA_TERM_RDMAP_VERSION, 0, 2, 5 },
		{ EA_TERM_OPCODE, 0, 2, 6 },
		{ EA_TERM_STREAM, 0, 2, 7 },
		{ EA_TERM_GLOBAL, 0, 2, 8 },
		{ EA_TERM_UNSPECIFIED, 0, 2, 0xff },
		{ EA_TERM_RDMAP_LOCAL, 0, 0, 0 },
		{ EA_TERM_STREAM_LOST, 2, 0, 1 },
		{ EA_TERM_CRC, 2, 0, 2 },
		{ EA_TERM_FPDU_LEN, 2, 0, 3 },
		{ EA_TERM_SETUP_FRAME, 2, 0, 4 },
		{ EA_TERM_MPA_LOCAL, 2, 0, 5 },
		{ EA_TERM_IRD_SHORT, 2, 0, 6 },
		{ EA_TERM_NO_RTR, 2, 0, 7 },
	};
	struct ea_term_codes unknown = { 3, 3, 3 };
	struct ea_term_codes codes;
	size_t i;

	(void)state;
	assert_int_equal(sizeof(want) / sizeof(want[0]), EA_NR_TERM_CAUSES);
	for (i = 0; i < EA_NR_TERM_CAUSES; i++) {
		codes = ea_term_codes(want[i].cause);
		assert_int_equal(codes.layer, want[i].layer);
		assert_int_equal(codes.etype, want[i].etype);
		assert_int_equal(codes.code, want[i].code);
		assert_string_not_equal(ea_term_str(codes), ea_term_str(unknown));
	}
	assert_int_equal(ea_ddp_err_cause(EA_DDP_OK), EA_NR_TERM_CAUSES);
	assert_int_equal(ea_ddp_err_cause(EA_DDP_SHORT), EA_TERM_FPDU_LEN);
	assert_int_equal(ea_ddp_err_cause(EA_DDP_TAGGED_VERSION), EA_TERM_TAGGED_VERSION);
	assert_int_equal(ea_ddp_err_cause(EA_DDP_UNTAGGED_VERSION), EA_TERM_UNTAGGED_VERSION);
	assert_int_equal(ea_rdmap_err_cause(EA_RDMAP_OK), EA_NR_TERM_CAUSES);
	assert_int_equal(ea_rdmap_err_cause(EA_RDMAP_BAD_VERSION), EA_TERM_RDMAP_VERSION);
	assert_int_equal(ea_rdmap_err_cause(EA_RDMAP_BAD_OPCODE), EA_TERM_OPCODE);
	assert_int_equal(ea_rdmap_err_cause(EA_RDMAP_BAD_MODEL), EA_TERM_OPCODE);
	assert_int_equal(ea_rdmap_err_cause(EA_RDMAP_BAD_QN), EA_TERM_UNTAGGED_QN);
	assert_int_equal(ea_rdmap_err_cause(EA_RDMAP_BAD_MO), EA_TERM_UNTAGGED_MO);
	assert_int_equal(ea_rdmap_err_cause(EA_RDMAP_BAD_LEN), EA_TERM_STREAM);
	assert_int_equal(ea_rdmap_err_cause(EA_RDMAP_NOT_LAST), EA_TERM_STREAM);
}

static void tagged_segment(void **state)
{
	static const uint8_t want[] = {
		0x11, 0x01, 0xc0, 0x00, 0x03, 0xf6, 0xc1, 0x40, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0,
	};
	uint8_t buf[EA_TERMINATE_MAX];
	struct ea_terminate term, got;
	uint32_t len;

	(void)state;
	ea_terminate_init(&term, ea_term_codes(EA_TERM_TAGGED_BOUNDS), tagged_hdr, 1014, read_hdr);
	len = ea_terminate_encode(&term, buf);
	assert_bytes(buf, len, want);
	assert_true(ea_terminate_decode(buf, len, &got));
	assert_int_equal(got.codes.layer, 1);
	assert_int_equal(got.codes.etype, 1);
	assert_int_equal(got.codes.code, 1);
	assert_true(got.has_seg_len);
	assert_int_equal(got.seg_len, 1014);
	assert_ptr_equal(got.ddp_hdr, buf + 6);
	assert_null(got.rdmap_hdr);
}

static void read_request(void **state)
{
	uint8_t buf[EA_TERMINATE_MAX];
	struct ea_terminate term, got;

	(void)state;
	ea_terminate_init(&term, ea_term_codes(EA_TERM_REMOTE_RIGHTS), untagged_hdr, 46, read_hdr);
	assert_int_equal(ea_terminate_encode(&term, buf), EA_TERMINATE_MAX);
	assert_int_equal(buf[0], 0x01);
	assert_int_equal(buf[1], 0x02);
	assert_int_equal(buf[2], 0xe0);
	assert_memory_equal(buf + 6, untagged_hdr, 18);
	assert_memory_equal(buf + 24, read_hdr, 28);
	assert_true(ea_terminate_decode(buf, sizeof(buf), &got));
	assert_ptr_equal(got.ddp_hdr, buf + 6);
	assert_ptr_equal(got.rdmap_hdr, buf + 24);
}

static void without_segment(void **state)
{
	static const enum ea_term_cause bare[] = {
		EA_TERM_TAGGED_VERSION,
		EA_TERM_UNTAGGED_VERSION,
		EA_TERM_RDMAP_VERSION,
		EA_TERM_OPCODE,
		EA_TERM_RDMAP_LOCAL,
		EA_TERM_DDP_LOCAL,
		EA_TERM_CRC,
		EA_TERM_FPDU_LEN,
		EA_TERM_NO_RTR,
	};
	static const uint8_t want_crc[] = { 0x20, 0x02, 0, 0 };
	uint8_t buf[EA_TERMINATE_MAX];
	struct ea_terminate term;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bare) / sizeof(bare[0]); i++) {
		ea_terminate_init(&term, ea_term_codes(bare[i]), tagged_hdr, 14, read_hdr);
		assert_int_equal(ea_terminate_encode(&term, buf), EA_TERMINATE_MIN);
	}
	ea_terminate_init(&term, ea_term_codes(EA_TERM_TAGGED_STAG), NULL, 14, read_hdr);
	assert_int_equal(ea_terminate_encode(&term, buf), EA_TERMINATE_MIN);
	ea_terminate_init(&term, ea_term_codes(EA_TERM_CRC), NULL, 0, NULL);
	assert_bytes(buf, ea_terminate_encode(&term, buf), want_crc);
}

/* Each combination of flags over each length: no read past the end, no pointer out of the input. */
static void hostile(void **state)
{
	static const uint8_t flags[] = { 0x00, 0x20, 0x40, 0x60, 0x80, 0xa0, 0xc0, 0xe0 };
	struct ea_terminate term;
	size_t i, len, want;
	uint8_t *buf;
	int tagged;
	bool ok;

	(void)state;
	for (i = 0; i < sizeof(flags); i++) {
		for (tagged = 0; tagged < 2; tagged++) {
			want = 4;
			if (flags[i] & 0x80)
				want += 2;
			if (flags[i] & 0x40)
				want += tagged ? 14 : 18;
			if (flags[i] & 0x20)
				want += 28;
			for (len = 0; len < 80; len++) {
				buf = malloc(len + 1);
				memset(buf + 1, tagged ? 0xff : 0x00, len);
				if (len > 2)
					buf[3] = flags[i];
				ok = ea_terminate_decode(buf + 1, len, &term);
				/* an RDMAP header without a DDP header has no place */
				assert_int_equal(ok, len >= want && (flags[i] & 0x60) != 0x20);
				if (ok && term.rdmap_hdr)
					assert_true((const uint8_t *)term.rdmap_hdr + 28 <=
						    buf + 1 + len);
				free(buf);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(codes_of_causes), cmocka_unit_test(tagged_segment),
		cmocka_unit_test(read_request),	   cmocka_unit_test(without_segment),
		cmocka_unit_test(hostile),
	};

	return cmocka_run_group_tests_name("terminate", tests, NULL, NULL);
}
