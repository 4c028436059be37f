// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* DDP and RDMAP headers, byte by byte. */
#include <stdlib.h>

#include "adapter/wire/rdmap.h"
#include "tests/wire/check.h"

static const uint8_t write_hdr[] = {
	0xc1, 0x40, 0x01, 0x02, 0x03, 0x04, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
};
static const uint8_t send_inv_hdr[] = {
	0x01, 0x44, 0xaa, 0xbb, 0xcc, 0xdd, 0, 0, 0, 0, 0, 0, 0x01, 0x02, 0, 1, 0, 0,
};

static void encode_tagged(void **state)
{
	struct ea_ddp_hdr hdr = {
		.tagged = true,
		.last = true,
		.ulp_ctrl = ea_rdmap_ctrl(EA_RDMAP_WRITE),
		.stag = 0x01020304,
		.to = 0x1122334455667788,
	};
	uint8_t buf[EA_DDP_HDR_MAX];

	(void)state;
	assert_bytes(buf, ea_ddp_encode(&hdr, buf), write_hdr);
	hdr.last = false;
	ea_ddp_encode(&hdr, buf);
	assert_int_equal(buf[0], 0x81);
}

static void encode_untagged(void **state)
{
	struct ea_ddp_hdr hdr = {
		.ulp_ctrl = ea_rdmap_ctrl(EA_RDMAP_SEND_INV),
		.ulp_word = 0xaabbccdd,
		.qn = EA_QN_SEND,
		.msn = 0x102,
		.mo = 0x10000,
	};
	uint8_t buf[EA_DDP_HDR_MAX];

	(void)state;
	assert_bytes(buf, ea_ddp_encode(&hdr, buf), send_inv_hdr);
}

static void decode_headers(void **state)
{
	struct ea_ddp_hdr hdr;

	(void)state;
	assert_int_equal(ea_ddp_decode(write_hdr, sizeof(write_hdr), &hdr), EA_DDP_OK);
	assert_true(hdr.tagged && hdr.last);
	assert_int_equal(hdr.stag, 0x01020304);
	assert_true(hdr.to == 0x1122334455667788);
	assert_int_equal(ea_rdmap_opcode(hdr.ulp_ctrl), EA_RDMAP_WRITE);
	assert_int_equal(ea_rdmap_check(&hdr, 1000), EA_RDMAP_OK);

	assert_int_equal(ea_ddp_decode(send_inv_hdr, sizeof(send_inv_hdr), &hdr), EA_DDP_OK);
	assert_false(hdr.tagged || hdr.last);
	assert_int_equal(hdr.ulp_word, 0xaabbccdd);
	assert_int_equal(hdr.qn, 0);
	assert_int_equal(hdr.msn, 0x102);
	assert_int_equal(hdr.mo, 0x10000);
	assert_int_equal(ea_rdmap_check(&hdr, 0), EA_RDMAP_OK);
}

static void decode_short(void **state)
{
	const uint8_t *hdrs[] = { write_hdr, send_inv_hdr };
	size_t lens[] = { sizeof(write_hdr), sizeof(send_inv_hdr) };
	struct ea_ddp_hdr hdr;
	uint8_t *copy;
	size_t i, len;

	(void)state;
	for (i = 0; i < 2; i++) {
		assert_int_equal(ea_ddp_hdr_len(hdrs[i][0]), lens[i]);
		for (len = 0; len < lens[i]; len++) {
			copy = malloc(len + 1);
			memcpy(copy + 1, hdrs[i], len);
			assert_int_equal(ea_ddp_decode(copy + 1, len, &hdr), EA_DDP_SHORT);
			free(copy);
		}
	}
}

static void decode_versions(void **state)
{
	struct ea_ddp_hdr hdr;
	uint8_t buf[18];
	int version;

	(void)state;
	for (version = 0; version < 4; version++) {
		memcpy(buf, write_hdr, sizeof(write_hdr));
		buf[0] = 0xc0 | version;
		assert_int_equal(ea_ddp_decode(buf, sizeof(write_hdr), &hdr),
				 version == 1 ? EA_DDP_OK : EA_DDP_TAGGED_VERSION);
		memcpy(buf, send_inv_hdr, sizeof(buf));
		buf[0] = version;
		assert_int_equal(ea_ddp_decode(buf, sizeof(buf), &hdr),
				 version == 1 ? EA_DDP_OK : EA_DDP_UNTAGGED_VERSION);

		memcpy(buf, send_inv_hdr, sizeof(buf));
		buf[1] = version << 6 | EA_RDMAP_SEND;
		assert_int_equal(ea_ddp_decode(buf, sizeof(buf), &hdr), EA_DDP_OK);
		assert_int_equal(ea_rdmap_check(&hdr, 0),
				 version == 1 ? EA_RDMAP_OK : EA_RDMAP_BAD_VERSION);
	}
	/* reserved bits are the sender's affair */
	memcpy(buf, write_hdr, sizeof(write_hdr));
	buf[0] |= 0x3c;
	buf[1] |= 0x30;
	assert_int_equal(ea_ddp_decode(buf, sizeof(write_hdr), &hdr), EA_DDP_OK);
	assert_int_equal(ea_rdmap_check(&hdr, 0), EA_RDMAP_OK);
}

/* The table at the top of rdmap.h. */
static const struct {
	bool tagged, ctrl, send, solicited, inv, imm;
	uint32_t qn, min, max;
} table[EA_RDMAP_NR_OPCODES] = {
	[0] = { .tagged = true },
	[1] = { .ctrl = true, .qn = 1, .min = 28, .max = 28 },
	[2] = { .tagged = true },
	[3] = { .send = true },
	[4] = { .send = true, .inv = true },
	[5] = { .send = true, .solicited = true },
	[6] = { .send = true, .solicited = true, .inv = true },
	[7] = { .ctrl = true, .qn = 2, .min = 4, .max = 52 },
	[8] = { .ctrl = true, .imm = true, .min = 8, .max = 8 },
	[9] = { .ctrl = true, .imm = true, .solicited = true, .min = 8, .max = 8 },
	[10] = { .ctrl = true, .qn = 1, .min = 52, .max = 52 },
	[11] = { .ctrl = true, .qn = 3, .min = 12, .max = 12 },
	[12] = { .send = true, .imm = true },
	[13] = { .send = true, .imm = true, .solicited = true },
	[14] = { .ctrl = true, .qn = 4, .min = 4, .max = 4 },
};

static void opcode_properties(void **state)
{
	int op;

	(void)state;
	for (op = 0; op < EA_RDMAP_NR_OPCODES; op++) {
		assert_int_equal(ea_rdmap_is_tagged(op), table[op].tagged);
		assert_int_equal(ea_rdmap_is_send(op), table[op].send);
		assert_int_equal(ea_rdmap_is_ctrl(op), table[op].ctrl);
		assert_int_equal(ea_rdmap_is_solicited(op), table[op].solicited);
		assert_int_equal(ea_rdmap_has_inv(op), table[op].inv);
		assert_int_equal(ea_rdmap_has_imm(op), table[op].imm);
		assert_int_equal(ea_rdmap_ctrl(op), 0x40 | op);
		assert_string_not_equal(ea_rdmap_opcode_str(op), ea_rdmap_opcode_str(15));
	}
	for (op = EA_RDMAP_NR_OPCODES; op < 256; op++)
		assert_false(ea_rdmap_is_tagged(op) || ea_rdmap_is_send(op) ||
			     ea_rdmap_is_ctrl(op) || ea_rdmap_is_solicited(op) ||
			     ea_rdmap_has_inv(op) || ea_rdmap_has_imm(op));
}

static void check_each_opcode(void **state)
{
	struct ea_ddp_hdr good, hdr;
	int op;

	(void)state;
	for (op = 0; op < 16; op++) {
		good = (struct ea_ddp_hdr){ .ulp_ctrl = 0x40 | op, .last = true, .msn = 7 };
		if (op >= EA_RDMAP_NR_OPCODES) {
			assert_int_equal(ea_rdmap_check(&good, 0), EA_RDMAP_BAD_OPCODE);
			continue;
		}
		good.tagged = table[op].tagged;
		good.qn = table[op].qn;
		assert_int_equal(ea_rdmap_check(&good, table[op].max), EA_RDMAP_OK);

		hdr = good;
		hdr.tagged = !good.tagged;
		assert_int_equal(ea_rdmap_check(&hdr, table[op].max), EA_RDMAP_BAD_MODEL);
		if (good.tagged)
			continue;

		hdr = good;
		for (hdr.qn = 0; hdr.qn < 6; hdr.qn++)
			assert_int_equal(ea_rdmap_check(&hdr, table[op].max),
					 hdr.qn == good.qn ? EA_RDMAP_OK : EA_RDMAP_BAD_QN);
		hdr = good;
		hdr.mo = 1;
		assert_int_equal(ea_rdmap_check(&hdr, table[op].max),
				 table[op].ctrl ? EA_RDMAP_BAD_MO : EA_RDMAP_OK);
		hdr = good;
		hdr.last = false;
		assert_int_equal(ea_rdmap_check(&hdr, table[op].max),
				 table[op].ctrl ? EA_RDMAP_NOT_LAST : EA_RDMAP_OK);
		if (!table[op].ctrl)
			continue;
		assert_int_equal(ea_rdmap_check(&good, table[op].min), EA_RDMAP_OK);
		assert_int_equal(ea_rdmap_check(&good, table[op].min - 1), EA_RDMAP_BAD_LEN);
		assert_int_equal(ea_rdmap_check(&good, table[op].max + 1), EA_RDMAP_BAD_LEN);
	}
}

static void read_request(void **state)
{
	static const uint8_t want[] = {
		0x01, 0x02, 0x03, 0x04, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x00, 0x01,
		0x00, 0x00, 0x0a, 0x0b, 0x0c, 0x0d, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28,
	};
	struct ea_read_req req = {
		.sink_stag = 0x01020304,
		.sink_to = 0x1112131415161718,
		.len = 65536,
		.src_stag = 0x0a0b0c0d,
		.src_to = 0x2122232425262728,
	};
	uint8_t buf[EA_READ_REQ_LEN];
	struct ea_read_req got;

	(void)state;
	assert_bytes(buf, ea_read_req_encode(&req, buf), want);
	ea_read_req_decode(want, &got);
	assert_int_equal(got.sink_stag, req.sink_stag);
	assert_true(got.sink_to == req.sink_to && got.src_to == req.src_to);
	assert_int_equal(got.len, req.len);
	assert_int_equal(got.src_stag, req.src_stag);
}

static void atomic_messages(void **state)
{
	static const uint8_t want_req[] = {
		0, 0,	 0,    2,    0,	   0,	 0,    9,    0x0a, 0x0b, 0x0c, 0x0d, 0,
		0, 0,	 0,    0,    0,	   0x10, 0x08, 0,    0,	   0,	 0,    0,    0,
		0, 0x55, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0,    0,    0,
		0, 0,	 0,    0,    0x44, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	};
	static const uint8_t want_resp[] = { 0, 0, 0, 9, 0x81, 0x82, 0x83, 0x84, 5, 6, 7, 8 };
	struct ea_atomic_req got, req = {
		.op = EA_ATOMIC_CMP_SWAP,
		.id = 9,
		.stag = 0x0a0b0c0d,
		.to = 0x1008,
		.add_swap = 0x55,
		.add_swap_mask = UINT64_MAX,
		.compare = 0x44,
		.compare_mask = UINT64_MAX,
	};
	struct ea_atomic_resp resp = { .id = 9, .old = 0x8182838405060708 };
	struct ea_atomic_resp got_resp;
	uint8_t buf[EA_ATOMIC_REQ_LEN];

	(void)state;
	assert_bytes(buf, ea_atomic_req_encode(&req, buf), want_req);
	ea_atomic_req_decode(want_req, &got);
	assert_int_equal(got.op, req.op);
	assert_int_equal(got.id, req.id);
	assert_int_equal(got.stag, req.stag);
	assert_true(got.to == req.to && got.add_swap == req.add_swap &&
		    got.add_swap_mask == req.add_swap_mask && got.compare == req.compare &&
		    got.compare_mask == req.compare_mask);
	/* only the low four bits are the operation */
	buf[0] = 0xff;
	buf[3] = 0xf2;
	ea_atomic_req_decode(buf, &got);
	assert_int_equal(got.op, EA_ATOMIC_CMP_SWAP);

	assert_bytes(buf, ea_atomic_resp_encode(&resp, buf), want_resp);
	ea_atomic_resp_decode(want_resp, &got_resp);
	assert_int_equal(got_resp.id, 9);
	assert_true(got_resp.old == resp.old);
}

static void atomic_results(void **state)
{
	struct ea_atomic_req add = { .op = EA_ATOMIC_FETCH_ADD, .add_swap = 3 };
	struct ea_atomic_req swap = {
		.op = EA_ATOMIC_CMP_SWAP,
		.add_swap = 0x1122334455667788,
		.add_swap_mask = UINT64_MAX,
		.compare = 7,
		.compare_mask = UINT64_MAX,
	};

	(void)state;
	assert_true(ea_atomic_apply(&add, 4) == 7);
	assert_true(ea_atomic_apply(&add, UINT64_MAX) == 2);
	/* two fields of 32 bits: no carry from the low one */
	add.add_swap = 0x0000000100000001;
	add.add_swap_mask = 0x8000000080000000;
	assert_true(ea_atomic_apply(&add, 0x00000005ffffffff) == 0x0000000600000000);
	assert_true(ea_atomic_apply(&add, 0xffffffff7fffffff) == 0x0000000080000000);

	assert_true(ea_atomic_apply(&swap, 7) == 0x1122334455667788);
	assert_true(ea_atomic_apply(&swap, 8) == 8);
	swap.compare_mask = 0xff;
	assert_true(ea_atomic_apply(&swap, 0xab07) == 0x1122334455667788);
	swap.add_swap_mask = 0xff00;
	assert_true(ea_atomic_apply(&swap, 0xab07) == 0x7707);
}

static void immediate_data(void **state)
{
	static const uint8_t want[] = { 0x89, 0xab, 0xcd, 0xef, 0, 0, 0, 0 };
	uint8_t buf[EA_IMM_DATA_LEN];

	(void)state;
	assert_bytes(buf, ea_imm_encode(0x89abcdef, buf), want);
	assert_int_equal(ea_imm_decode(want), 0x89abcdef);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(encode_tagged),     cmocka_unit_test(encode_untagged),
		cmocka_unit_test(decode_headers),    cmocka_unit_test(decode_short),
		cmocka_unit_test(decode_versions),   cmocka_unit_test(opcode_properties),
		cmocka_unit_test(check_each_opcode), cmocka_unit_test(read_request),
		cmocka_unit_test(atomic_messages),   cmocka_unit_test(atomic_results),
		cmocka_unit_test(immediate_data),
	};

	return cmocka_run_group_tests_name("rdmap", tests, NULL, NULL);
}
