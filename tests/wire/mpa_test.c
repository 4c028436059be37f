// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* MPA set-up frames, their negotiation, and FPDU arithmetic, byte by byte. */
#include <stdlib.h>

#include "adapter/wire/crc32c.h"
#include "adapter/wire/mpa.h"
#include "tests/wire/check.h"

#define REQ_KEY 'M', 'P', 'A', ' ', 'I', 'D', ' ', 'R', 'e', 'q', ' ', 'F', 'r', 'a', 'm', 'e'
#define REP_KEY 'M', 'P', 'A', ' ', 'I', 'D', ' ', 'R', 'e', 'p', ' ', 'F', 'r', 'a', 'm', 'e'

#define ACCEPT_ALL (EA_MPA_ACCEPT_STANDARD | EA_MPA_ACCEPT_ERDMA)

static const uint8_t private_data[EA_MPA_PRIVATE_MAX] = { 0xde, 0xad, 0xbe, 0xef };

static void crc_vectors(void **state)
{
	/* RFC 3720 appendix B.4, as bytes on the wire */
	static const uint8_t iscsi_read[48] = {
		0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0,    0, 0, 0,	0, 0, 0, 0,
		0x14, 0,    0, 0, 0, 0, 4, 0, 0,    0, 0, 0x14, 0, 0, 0, 0x18,
		0x28, 0,    0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0,	0, 0, 0, 0,
	};
	static const uint8_t want[][4] = {
		{ 0xaa, 0x36, 0x91, 0x8a }, { 0x43, 0xab, 0xa8, 0x62 }, { 0x4e, 0x79, 0xdd, 0x46 },
		{ 0x5c, 0xdb, 0x3f, 0x11 }, { 0x56, 0x3a, 0x96, 0xd9 },
	};
	uint8_t in[5][48];
	size_t len[5] = { 32, 32, 32, 32, 48 };
	__le32 crc;
	size_t cut;
	int i, j;

	(void)state;
	for (j = 0; j < 32; j++) {
		in[0][j] = 0;
		in[1][j] = 0xff;
		in[2][j] = j;
		in[3][j] = 31 - j;
	}
	memcpy(in[4], iscsi_read, sizeof(iscsi_read));
	for (i = 0; i < 5; i++) {
		for (cut = 0; cut <= len[i]; cut++) {
			uint32_t part = ea_crc32c_add(ea_crc32c_start(), in[i], cut);

			crc = ea_crc32c_end(ea_crc32c_add(part, in[i] + cut, len[i] - cut));
			assert_memory_equal(&crc, want[i], 4);
		}
	}
	crc = ea_crc32c_end(ea_crc32c_add(ea_crc32c_start(), NULL, 0));
	assert_int_equal(crc, 0);
}

static void encode_revision_1(void **state)
{
	static const uint8_t want[] = { REQ_KEY, 0x40, 0x01, 0x00, 0x04, 0xde, 0xad, 0xbe, 0xef };
	static const uint8_t want_reject[] = { REP_KEY, 0x20, 0x01, 0x00, 0x00 };
	struct ea_mpa_frame frame = {
		.revision = EA_MPA_REV_1,
		.crc = true,
		.reject = true, /* a request never says so */
		.private_len = 4,
		.private_data = private_data,
	};
	struct ea_mpa_frame reject = { .revision = EA_MPA_REV_1, .reject = true };
	uint8_t buf[EA_MPA_FRAME_MAX];
	enum ea_mpa_err err;

	(void)state;
	assert_bytes(buf, ea_mpa_encode(EA_MPA_REQUEST, &frame, buf, sizeof(buf), &err), want);
	assert_int_equal(err, EA_MPA_OK);
	assert_int_equal(ea_mpa_frame_len(&frame), sizeof(want));
	assert_bytes(buf, ea_mpa_encode(EA_MPA_REPLY, &reject, buf, sizeof(buf), NULL),
		     want_reject);
}

static void encode_revision_2(void **state)
{
	static const uint8_t want[] = {
		REQ_KEY, 0x18, 0x02, 0x00, 0x06, 0xc0, 0x80, 0xd2, 0x34, 0xde, 0xad,
	};
	struct ea_mpa_frame frame = {
		.revision = EA_MPA_REV_2,
		.enhanced = true,
		.large_fpdu = true,
		.peer_to_peer = true,
		.rtr = EA_MPA_RTR_SEND | EA_MPA_RTR_WRITE | EA_MPA_RTR_READ,
		.ird = 0x80,
		.ord = 0x1234,
		.private_len = 2,
		.private_data = private_data,
	};
	struct ea_mpa_frame got;
	uint8_t buf[EA_MPA_FRAME_MAX];
	size_t need;

	(void)state;
	assert_bytes(buf, ea_mpa_encode(EA_MPA_REQUEST, &frame, buf, sizeof(buf), NULL), want);
	assert_int_equal(ea_mpa_decode(EA_MPA_REQUEST, ACCEPT_ALL, buf, sizeof(want), &got, &need),
			 EA_MPA_OK);
	assert_int_equal(need, sizeof(want));
	assert_true(got.enhanced && got.large_fpdu && got.peer_to_peer);
	assert_false(got.crc || got.markers || got.reject);
	assert_int_equal(got.rtr, frame.rtr);
	assert_int_equal(got.ird, 0x80);
	assert_int_equal(got.ord, 0x1234);
	assert_int_equal(got.private_len, 2);
	assert_ptr_equal(got.private_data, buf + 24);
}

static void encode_erdma(void **state)
{
	static const uint8_t want[] = {
		REP_KEY, 0x00, 0x81, 0x00, 0x02, 0x11, 0x22, 0x33, 0x44, 0, 0, 0, 0x05, 0xde, 0xad,
	};
	struct ea_mpa_frame frame = {
		.revision = EA_MPA_REV_ERDMA,
		.cookie = 0x11223344,
		.cc = 5,
		.private_len = 2,
		.private_data = private_data,
	};
	struct ea_mpa_frame got;
	uint8_t buf[EA_MPA_FRAME_MAX];
	size_t need;

	(void)state;
	assert_bytes(buf, ea_mpa_encode(EA_MPA_REPLY, &frame, buf, sizeof(buf), NULL), want);
	assert_int_equal(ea_mpa_decode(EA_MPA_REPLY, ACCEPT_ALL, buf, 20, &got, &need),
			 EA_MPA_SHORT);
	assert_int_equal(need, sizeof(want));
	assert_int_equal(ea_mpa_decode(EA_MPA_REPLY, ACCEPT_ALL, buf, need, &got, &need),
			 EA_MPA_OK);
	assert_int_equal(got.revision, 129);
	assert_int_equal(got.cookie, 0x11223344);
	assert_int_equal(got.cc, 5);
	assert_int_equal(got.private_len, 2);
	assert_ptr_equal(got.private_data, buf + 28);
}

static void encode_refuses(void **state)
{
	static const struct {
		struct ea_mpa_frame frame;
		enum ea_mpa_err want;
	} cases[] = {
		{ { .revision = 0 }, EA_MPA_BAD_REVISION },
		{ { .revision = 3 }, EA_MPA_BAD_REVISION },
		{ { .revision = 1, .enhanced = true }, EA_MPA_BAD_REVISION },
		{ { .revision = 129, .enhanced = true }, EA_MPA_BAD_REVISION },
		{ { .revision = 1, .markers = true }, EA_MPA_MARKERS },
		{ { .revision = 129, .crc = true }, EA_MPA_CRC_REFUSED },
		{ { .revision = 2, .enhanced = true, .ird = 0x4000 }, EA_MPA_BAD_LENGTH },
		{ { .revision = 2, .enhanced = true, .ord = 0x4000 }, EA_MPA_BAD_LENGTH },
		{ { .revision = 129, .cc = 16 }, EA_MPA_BAD_LENGTH },
		{ { .revision = 1, .private_len = 513 }, EA_MPA_BAD_LENGTH },
		{ { .revision = 2, .enhanced = true, .private_len = 509 }, EA_MPA_BAD_LENGTH },
		{ { .revision = 129, .private_len = 257 }, EA_MPA_BAD_LENGTH },
	};
	struct ea_mpa_frame fits = { .revision = 1,
				     .private_len = 2,
				     .private_data = private_data };
	uint8_t buf[1024];
	enum ea_mpa_err err;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(
			ea_mpa_encode(EA_MPA_REQUEST, &cases[i].frame, buf, sizeof(buf), &err), 0);
		assert_int_equal(err, cases[i].want);
	}
	assert_int_equal(ea_mpa_encode(EA_MPA_REQUEST, &fits, buf, 21, &err), 0);
	assert_int_equal(err, EA_MPA_BAD_LENGTH);
	assert_int_equal(ea_mpa_encode(EA_MPA_REQUEST, &fits, buf, 22, &err), 22);
}

static void decode_largest(void **state)
{
	struct ea_mpa_frame frame = {
		.revision = EA_MPA_REV_2,
		.enhanced = true,
		.private_len = EA_MPA_PRIVATE_MAX - EA_MPA_ENHANCED_LEN,
		.private_data = private_data,
	};
	uint8_t buf[EA_MPA_FRAME_MAX];
	struct ea_mpa_frame got;
	size_t need;

	(void)state;
	assert_int_equal(ea_mpa_encode(EA_MPA_REQUEST, &frame, buf, sizeof(buf), NULL),
			 EA_MPA_FRAME_MAX);
	assert_int_equal(ea_mpa_decode(EA_MPA_REQUEST, ACCEPT_ALL, buf, sizeof(buf), &got, &need),
			 EA_MPA_OK);
	assert_int_equal(got.private_len, 508);
	assert_memory_equal(got.private_data, private_data, 508);
}

static void decode_errors(void **state)
{
	static const struct {
		enum ea_mpa_kind kind;
		unsigned int accept;
		uint8_t frame[28];
		enum ea_mpa_err want;
	} cases[] = {
		{ EA_MPA_REQUEST, ACCEPT_ALL, { REP_KEY, 0, 1, 0, 0 }, EA_MPA_BAD_KEY },
		{ EA_MPA_REPLY, ACCEPT_ALL, { REQ_KEY, 0, 1, 0, 0 }, EA_MPA_BAD_KEY },
		{ EA_MPA_REQUEST, ACCEPT_ALL, { REQ_KEY, 0, 0, 0, 0 }, EA_MPA_BAD_REVISION },
		{ EA_MPA_REQUEST, ACCEPT_ALL, { REQ_KEY, 0, 3, 0, 0 }, EA_MPA_BAD_REVISION },
		{ EA_MPA_REQUEST,
		  EA_MPA_ACCEPT_STANDARD,
		  { REQ_KEY, 0, 129, 0, 0 },
		  EA_MPA_BAD_REVISION },
		{ EA_MPA_REQUEST,
		  EA_MPA_ACCEPT_ERDMA,
		  { REQ_KEY, 0, 2, 0, 0 },
		  EA_MPA_BAD_REVISION },
		{ EA_MPA_REQUEST, ACCEPT_ALL, { REQ_KEY, 0, 1, 2, 1 }, EA_MPA_BAD_LENGTH },
		{ EA_MPA_REQUEST, ACCEPT_ALL, { REQ_KEY, 0, 129, 1, 1 }, EA_MPA_BAD_LENGTH },
		{ EA_MPA_REQUEST, ACCEPT_ALL, { REQ_KEY, 0x10, 2, 0, 3 }, EA_MPA_NO_ENHANCED_DATA },
		{ EA_MPA_REQUEST, ACCEPT_ALL, { REQ_KEY, 0x80, 1, 0, 0 }, EA_MPA_MARKERS },
		{ EA_MPA_REPLY, ACCEPT_ALL, { REP_KEY, 0x80, 129, 0, 0 }, EA_MPA_MARKERS },
		{ EA_MPA_REQUEST, ACCEPT_ALL, { REQ_KEY, 0x40, 129, 0, 0 }, EA_MPA_CRC_REFUSED },
		/* reserved bits, and the reject bit of a request, mean nothing */
		{ EA_MPA_REQUEST, ACCEPT_ALL, { REQ_KEY, 0x27, 1, 0, 0 }, EA_MPA_OK },
		/* revision 1 has no enhanced set-up */
		{ EA_MPA_REQUEST, ACCEPT_ALL, { REQ_KEY, 0x10, 1, 0, 0 }, EA_MPA_OK },
	};
	struct ea_mpa_frame got;
	size_t i, need;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(ea_mpa_decode(cases[i].kind, cases[i].accept, cases[i].frame,
					       sizeof(cases[i].frame), &got, &need),
				 cases[i].want);
		assert_false(got.reject);
		assert_non_null(ea_mpa_strerror(cases[i].want));
	}
}

/*
 * Every prefix asks for more, never more than the frame has; the first wrong byte is found at
 * once.
 */
static void decode_prefixes(void **state)
{
	static const uint8_t frame[] = {
		REQ_KEY, 0x10, 0x02, 0x00, 0x06, 0x00, 0x01, 0x00, 0x02, 0xaa, 0xbb, 0x55,
	};
	const size_t total = sizeof(frame) - 1;
	struct ea_mpa_frame got;
	uint8_t *copy;
	size_t len, need;

	(void)state;
	for (len = 0; len < total; len++) {
		/* exact size, for the checkers */
		copy = malloc(len + 1);
		memcpy(copy + 1, frame, len);
		assert_int_equal(ea_mpa_decode(EA_MPA_REQUEST, ACCEPT_ALL, copy + 1, len, &got,
					       &need),
				 EA_MPA_SHORT);
		assert_int_equal(need, len < 20 ? 20 : total);
		if (len && len <= EA_MPA_KEY_LEN) {
			copy[len] ^= 1;
			assert_int_equal(ea_mpa_decode(EA_MPA_REQUEST, ACCEPT_ALL, copy + 1, len,
						       &got, &need),
					 EA_MPA_BAD_KEY);
		}
		free(copy);
	}
	assert_int_equal(ea_mpa_decode(EA_MPA_REQUEST, ACCEPT_ALL, frame, sizeof(frame), &got,
				       &need),
			 EA_MPA_OK);
	assert_int_equal(need, total);
}

static void negotiate(void **state)
{
	struct ea_mpa_frame req = { .revision = EA_MPA_REV_2, .enhanced = true, .ird = 4, .ord = 9 };
	struct ea_mpa_terms passive, active;
	struct ea_mpa_frame rep;

	(void)state;
	/* our IRD is bounded by the peer's ORD and the reverse */
	ea_mpa_answer(&req, 128, 128, false, &rep, &passive);
	assert_int_equal(passive.ird, 9);
	assert_int_equal(passive.ord, 4);
	assert_int_equal(rep.ird, 9);
	assert_int_equal(rep.ord, 4);
	assert_false(passive.crc || rep.crc || rep.peer_to_peer || passive.large_fpdu);
	assert_int_equal(ea_mpa_settle(&req, &rep, &active), EA_MPA_OK);
	assert_int_equal(active.ird, 4);
	assert_int_equal(active.ord, 9);
	assert_int_equal(active.rtr, EA_MPA_RTR_NONE);

	/* a smaller acceptor lowers the initiator's ORD */
	ea_mpa_answer(&req, 2, 1, true, &rep, &passive);
	assert_int_equal(passive.ird, 2);
	assert_int_equal(passive.ord, 1);
	assert_true(passive.crc && rep.crc);
	assert_int_equal(ea_mpa_settle(&req, &rep, &active), EA_MPA_OK);
	assert_int_equal(active.ord, 2);
	assert_true(active.crc);

	/* "not negotiated" bounds nothing */
	req.ird = req.ord = EA_MPA_IRD_ORD_MAX;
	ea_mpa_answer(&req, 16, 17, false, &rep, &passive);
	assert_int_equal(passive.ird, 16);
	assert_int_equal(passive.ord, 17);

	/* CRC and long FPDUs in the initiator's request */
	req.crc = req.large_fpdu = true;
	ea_mpa_answer(&req, 1, 1, false, &rep, &passive);
	assert_true(passive.crc && rep.crc && passive.large_fpdu && rep.large_fpdu);
	assert_int_equal(ea_mpa_settle(&req, &rep, &active), EA_MPA_OK);
	assert_true(active.crc && active.large_fpdu);
	rep.large_fpdu = false;
	assert_int_equal(ea_mpa_settle(&req, &rep, &active), EA_MPA_OK);
	assert_false(active.large_fpdu);

	/* revision 129 negotiates nothing */
	req = (struct ea_mpa_frame){ .revision = EA_MPA_REV_ERDMA, .crc = true };
	ea_mpa_answer(&req, 128, 127, true, &rep, &passive);
	assert_false(rep.crc || passive.crc || rep.enhanced);
	assert_int_equal(passive.ird, 128);
	assert_int_equal(passive.ord, 127);
}

static void negotiate_rtr(void **state)
{
	static const uint8_t chosen[8] = {
		EA_MPA_RTR_WRITE, EA_MPA_RTR_SEND, EA_MPA_RTR_WRITE, EA_MPA_RTR_WRITE,
		EA_MPA_RTR_READ,  EA_MPA_RTR_READ, EA_MPA_RTR_WRITE, EA_MPA_RTR_WRITE,
	};
	struct ea_mpa_frame req = { .revision = EA_MPA_REV_2,
				    .enhanced = true,
				    .peer_to_peer = true };
	struct ea_mpa_terms passive, active;
	struct ea_mpa_frame rep;

	(void)state;
	for (req.rtr = 0; req.rtr < 8; req.rtr++) {
		ea_mpa_answer(&req, 1, 1, false, &rep, &passive);
		assert_true(rep.peer_to_peer);
		assert_int_equal(passive.rtr, chosen[req.rtr]);
		assert_int_equal(rep.rtr, chosen[req.rtr]);
		assert_int_equal(ea_mpa_settle(&req, &rep, &active), EA_MPA_OK);
		assert_int_equal(active.rtr, passive.rtr);
	}
	req.rtr = EA_MPA_RTR_READ;
	rep.rtr = EA_MPA_RTR_WRITE;
	assert_int_equal(ea_mpa_settle(&req, &rep, &active), EA_MPA_NO_RTR);
}

static void settle_errors(void **state)
{
	struct ea_mpa_frame req = { .revision = EA_MPA_REV_2, .enhanced = true, .ird = 4, .ord = 4 };
	struct ea_mpa_frame rep = req;
	struct ea_mpa_terms terms;

	(void)state;
	rep.reject = true;
	assert_int_equal(ea_mpa_settle(&req, &rep, &terms), EA_MPA_REJECTED);
	rep = req;
	rep.revision = EA_MPA_REV_1;
	assert_int_equal(ea_mpa_settle(&req, &rep, &terms), EA_MPA_REVISION_MISMATCH);
	rep = req;
	rep.enhanced = false;
	assert_int_equal(ea_mpa_settle(&req, &rep, &terms), EA_MPA_NOT_ENHANCED);
	rep = req;
	rep.ord = 5;
	assert_int_equal(ea_mpa_settle(&req, &rep, &terms), EA_MPA_IRD_SHORT);
}

static void fpdu_arithmetic(void **state)
{
	uint32_t len, emss;

	(void)state;
	assert_int_equal(ea_fpdu_pad(14), 0);
	assert_int_equal(ea_fpdu_pad(15), 3);
	assert_int_equal(ea_fpdu_pad(16), 2);
	assert_int_equal(ea_fpdu_pad(17), 1);
	assert_int_equal(ea_fpdu_len(14), 20);
	assert_int_equal(ea_fpdu_len(15), 24);
	for (len = 0; len <= 0xffff; len++)
		assert_int_equal(ea_fpdu_len(len) % 4, 0);

	assert_int_equal(ea_fpdu_mulpdu(1460), 1454);
	assert_int_equal(ea_fpdu_mulpdu(1448), 1442);
	assert_int_equal(ea_fpdu_mulpdu(1449), 1442);
	assert_int_equal(ea_fpdu_mulpdu(65483), 65474);
	assert_int_equal(ea_fpdu_mulpdu(0), 128);
	assert_int_equal(ea_fpdu_mulpdu(UINT32_MAX), 65534);
	for (emss = 140; emss < 70000; emss++) {
		uint32_t mulpdu = ea_fpdu_mulpdu(emss);

		assert_true(ea_fpdu_len(mulpdu) <= emss && mulpdu <= EA_MULPDU_MAX);
		assert_int_equal(ea_fpdu_pad(mulpdu), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(crc_vectors),	     cmocka_unit_test(encode_revision_1),
		cmocka_unit_test(encode_revision_2), cmocka_unit_test(encode_erdma),
		cmocka_unit_test(encode_refuses),    cmocka_unit_test(decode_largest),
		cmocka_unit_test(decode_errors),     cmocka_unit_test(decode_prefixes),
		cmocka_unit_test(negotiate),	     cmocka_unit_test(negotiate_rtr),
		cmocka_unit_test(settle_errors),     cmocka_unit_test(fpdu_arithmetic),
	};

	return cmocka_run_group_tests_name("mpa", tests, NULL, NULL);
}
