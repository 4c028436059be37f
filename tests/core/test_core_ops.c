// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Every kind of work request, from the bytes of the WQE to the bytes of the completion at both ends. */
#include "tests/core/rig.h"

static bool modes[] = { false, true };

#define FOR_BOTH_MEMORIES(rig, mode)                                                             \
	for (mode = 0; mode < 2 && (rig_open(rig, modes[mode]), rig_connect(rig, 16, 16), true); \
	     mode++, rig_close(rig))

static void expect_imm(const struct wc *wc, uint32_t imm)
{
	/* reversed: software converts a little-endian number to network order */
	assert_int_equal(wc->extra[0], imm & 0xff);
	assert_int_equal(wc->extra[1], imm >> 8 & 0xff);
	assert_int_equal(wc->extra[2], imm >> 16 & 0xff);
	assert_int_equal(wc->extra[3], imm >> 24);
}

static void write_sizes(void **state)
{
	static const uint32_t sizes[] = { 0, 1, 7, 999, 1000, 1001, 4096, 65536, 500001 };
	struct rig rig;
	uint16_t index;
	unsigned int i;
	int mode;

	(void)state;
	FOR_BOTH_MEMORIES(&rig, mode)
	{
		for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			struct sge sge = sge_of(&rig.a, 13, sizes[i]);

			fill(&rig, sge.addr, sge.len, i);
			fill(&rig, rig.b.data, sge.len + 100, 99);
			index = put_write(&rig.a, OP_WRITE, F_CE, &sge, 1, rig.b.key,
					  rig.b.data + 3, 0);
			ring_sq(&rig.a);
			assert_true(rig.a.side.ready);
			pump(&rig);
			expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, 0, index, sizes[i]);
			expect_none(&rig, &rig.b.rcq);
			assert_true(filled(&rig, rig.b.data + 3, sizes[i], i));
			assert_true(filled(&rig, rig.b.data, 3, 99));
		}
	}
}

static void six_sges(void **state)
{
	struct rig rig;
	struct sge sge[6];
	uint32_t n, i, len;
	uint16_t index;
	int mode, kind;

	(void)state;
	FOR_BOTH_MEMORIES(&rig, mode)
	{
		for (kind = 0; kind < 2; kind++) {
			for (n = 0; n <= 6; n++) {
				len = 0;
				for (i = 0; i < n; i++) {
					/* one of them empty, with a key that is none */
					sge[i] = sge_of(&rig.a, 5000 * i + i,
							i == 2 ? 0 : 300 * i + 1);
					if (i == 2)
						sge[i].lkey = 0xdeadbe00;
					len += sge[i].len;
				}
				fill(&rig, rig.a.data, 40000, n);
				if (kind == 0) {
					index = put_write(&rig.a, OP_WRITE, F_CE, sge, n, rig.b.key,
							  rig.b.data + 1, 0);
				} else {
					put_recv(&rig.b, rig.b.data + 1, 20000, rig.b.key);
					index = put_send(&rig.a, OP_SEND, F_CE, sge, n, 0);
				}
				assert_int_equal((uint16_t)(rig.a.sq_pi - index),
						 kind == 0 ? 1 + (n + 1) / 2 : 1 + n / 2);
				ring_sq(&rig.a);
				pump(&rig);
				expect_wc(&rig, &rig.a.scq, kind ? OP_SEND : OP_WRITE, 0, 0, index,
					  len);
				if (kind)
					expect_wc(&rig, &rig.b.rcq, OP_RECV, 1, 0,
						  (uint16_t)(rig.b.rq_pi - 1), len);
				len = 1;
				for (i = 0; i < n; i++) {
					uint8_t want[2000], got[2000];

					peek(&rig, sge[i].addr, want, sge[i].len);
					peek(&rig, rig.b.data + len, got, sge[i].len);
					assert_memory_equal(want, got, sge[i].len);
					len += sge[i].len;
				}
			}
		}
	}
}

/* All inline lengths at each place of the ring, so that every split of the data by the wrap occurs. */
static void inline_everywhere(void **state)
{
	uint8_t data[96], got[96];
	struct rig rig;
	uint32_t len, i, rounds;
	uint16_t index;
	int mode;

	(void)state;
	FOR_BOTH_MEMORIES(&rig, mode)
	{
		rounds = 0;
		for (len = 0; len <= 96; len++) {
			for (i = 0; i < 24; i++) {
				uint32_t k;

				for (k = 0; k < len; k++)
					data[k] = (uint8_t)(rounds * 31 + k);
				rounds++;
				if (i % 2) {
					index = put_write_inline(&rig.a, OP_WRITE, F_CE, data, len,
								 rig.b.key, rig.b.data + 7, 0);
				} else {
					put_recv(&rig.b, rig.b.data + 7, 96, rig.b.key);
					index = put_send_inline(&rig.a, OP_SEND, F_CE, data, len,
								0);
				}
				ring_sq(&rig.a);
				pump(&rig);
				expect_wc(&rig, &rig.a.scq, i % 2 ? OP_WRITE : OP_SEND, 0, 0, index,
					  len);
				if (!(i % 2))
					expect_wc(&rig, &rig.b.rcq, OP_RECV, 1, 0,
						  (uint16_t)(rig.b.rq_pi - 1), len);
				peek(&rig, rig.b.data + 7, got, len);
				assert_memory_equal(data, got, len);
			}
		}
	}
}

static void send_kinds(void **state)
{
	static const uint32_t imms[] = { 0x01020304, 0x89abcdef };
	struct sge sge;
	struct rig rig;
	struct wc wc;
	uint16_t index;
	unsigned int i;
	int mode;

	(void)state;
	FOR_BOTH_MEMORIES(&rig, mode)
	{
		sge = sge_of(&rig.a, 0, 2500);
		fill(&rig, sge.addr, sge.len, 5);
		for (i = 0; i < 2; i++) {
			put_recv(&rig.b, rig.b.data, 2500, rig.b.key);
			index = put_send(&rig.a, OP_SEND_IMM, F_CE | (i ? F_SE : 0), &sge, 1,
					 imms[i]);
			ring_sq(&rig.a);
			pump(&rig);
			expect_wc(&rig, &rig.a.scq, OP_SEND_IMM, 0, 0, index, 2500);
			assert_true(poll(&rig, &rig.b.rcq, &wc));
			assert_int_equal(wc.opcode, OP_RSP_SEND_IMM);
			assert_int_equal(wc.syn, 0);
			assert_int_equal(wc.size, 2500);
			expect_imm(&wc, imms[i]);
			assert_true(filled(&rig, rig.b.data, 2500, 5));
		}

		/* the peer's own region dies */
		mr_add(&rig, 50 << 8, PD, ALL_ACCESS, rig.b.data + 8192, 4096);
		put_recv(&rig.b, rig.b.data, 4096, rig.b.key);
		index = put_send(&rig.a, OP_SEND_INV, F_CE, &sge, 1, 50 << 8);
		ring_sq(&rig.a);
		pump(&rig);
		expect_wc(&rig, &rig.a.scq, OP_SEND_INV, 0, 0, index, 2500);
		assert_true(poll(&rig, &rig.b.rcq, &wc));
		assert_int_equal(wc.opcode, OP_RECV_INV);
		assert_int_equal(wc.extra[0], 0);
		assert_int_equal(wc.extra[1], 0);
		assert_int_equal(wc.extra[2], 50);
		assert_int_equal(wc.extra[3], 0);

		/* and takes nothing any more */
		put_write(&rig.a, OP_WRITE, F_CE, &sge, 1, 50 << 8, rig.b.data + 8192, 0);
		ring_sq(&rig.a);
		pump(&rig);
		assert_int_equal(rig.b.side.rx_err, EPROTO);
	}
}

static void write_with_imm(void **state)
{
	static const uint32_t imms[] = { 0x01020304, 0x89abcdef };
	static const uint32_t sizes[] = { 0, 64, 5000 };
	struct rig rig;
	struct wc wc;
	uint16_t index;
	unsigned int i, k;
	int mode;

	(void)state;
	FOR_BOTH_MEMORIES(&rig, mode)
	{
		for (i = 0; i < 2; i++) {
			for (k = 0; k < 3; k++) {
				struct sge sge = sge_of(&rig.a, 0, sizes[k]);

				fill(&rig, sge.addr, sge.len, k);
				/* a plain write before it does not count */
				put_write(&rig.a, OP_WRITE, 0, &sge, 1, rig.b.key, rig.b.data, 0);
				put_recv(&rig.b, 0, 0, 0);
				index = put_write(&rig.a, OP_WRITE_IMM, F_CE, &sge, 1, rig.b.key,
						  rig.b.data + 8192, imms[i]);
				ring_sq(&rig.a);
				pump(&rig);
				expect_wc(&rig, &rig.a.scq, OP_WRITE_IMM, 0, 0, index, sizes[k]);
				expect_none(&rig, &rig.a.scq);
				assert_true(poll(&rig, &rig.b.rcq, &wc));
				assert_int_equal(wc.opcode, OP_RECV_IMM);
				assert_int_equal(wc.syn, 0);
				assert_int_equal(wc.size, sizes[k]);
				expect_imm(&wc, imms[i]);
				assert_true(filled(&rig, rig.b.data + 8192, sizes[k], k));
			}
		}
	}
}

/* The length of a write is told once, with the immediate that follows it. */
static void immediate_alone(void **state)
{
	uint8_t imm[EA_IMM_DATA_LEN];
	struct ea_rx_seg seg;
	struct rig rig;
	struct wc wc;
	int i;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);
	ea_imm_encode(7, imm);
	for (i = 0; i < 3; i++) {
		put_recv(&rig.b, 0, 0, 0);
		if (i == 1) {
			seg = tagged(EA_RDMAP_WRITE, rig.b.key, rig.b.data, 5, false);
			assert_int_equal(feed(&rig.b, &seg, "12345"), 0);
			seg = tagged(EA_RDMAP_WRITE, rig.b.key, rig.b.data + 5, 4, true);
			assert_int_equal(feed(&rig.b, &seg, "6789"), 0);
		}
		seg = untagged(EA_RDMAP_IMM, 0, i + 1, 0, 0, sizeof(imm), true);
		assert_int_equal(feed(&rig.b, &seg, imm), 0);
		assert_true(poll(&rig, &rig.b.rcq, &wc));
		assert_int_equal(wc.opcode, OP_RECV_IMM);
		assert_int_equal(wc.size, i == 1 ? 9 : 0);
		expect_imm(&wc, 7);
	}
	rig_close(&rig);
}

static void solicited(void **state)
{
	struct {
		uint32_t op;
		uint32_t flags;
		bool event;
	} cases[] = {
		{ OP_SEND, 0, false },	    { OP_SEND, F_SE, true },
		{ OP_SEND_IMM, 0, false },  { OP_SEND_IMM, F_SE, true },
		{ OP_SEND_INV, 0, false },  { OP_SEND_INV, F_SE, true },
		{ OP_WRITE_IMM, 0, false }, { OP_WRITE_IMM, F_SE, true },
	};
	struct rig rig;
	struct wc wc;
	unsigned int i;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sge sge = sge_of(&rig.a, 0, 10);
		uint32_t stag = mr_add(&rig, (60 + i) << 8, PD, ALL_ACCESS, rig.b.data, 10);

		put_recv(&rig.b, rig.b.data, 100, rig.b.key);
		arm(&rig, &rig.b.rcq, true);
		if (cases[i].op == OP_WRITE_IMM)
			put_write(&rig.a, OP_WRITE_IMM, cases[i].flags, &sge, 1, rig.b.key,
				  rig.b.data, 1);
		else
			put_send(&rig.a, cases[i].op, cases[i].flags, &sge, 1, stag);
		ring_sq(&rig.a);
		pump(&rig);
		assert_int_equal(fired(&rig, rig.b.rcq.cqn), cases[i].event);
		assert_true(poll(&rig, &rig.b.rcq, &wc));
		assert_int_equal(wc.syn, 0);
	}
	rig_close(&rig);
}

static void read_sizes(void **state)
{
	static const uint32_t sizes[] = { 0, 1, 1000, 1001, 65536, 300000 };
	struct rig rig;
	uint16_t index;
	unsigned int i;
	int mode;

	(void)state;
	FOR_BOTH_MEMORIES(&rig, mode)
	{
		for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			fill(&rig, rig.b.data + 77, sizes[i], i);
			fill(&rig, rig.a.data, sizes[i] + 20, 98);
			/* the inline flag means nothing here */
			index = put_read(&rig.a, OP_READ, F_CE | F_INLINE,
					 sge_of(&rig.a, 9, sizes[i]), rig.b.key, rig.b.data + 77,
					 0);
			ring_sq(&rig.a);
			pump(&rig);
			expect_wc(&rig, &rig.a.scq, OP_READ, 0, 0, index, sizes[i]);
			expect_none(&rig, &rig.b.scq);
			expect_none(&rig, &rig.b.rcq);
			assert_true(filled(&rig, rig.a.data + 9, sizes[i], i));
			assert_true(filled(&rig, rig.a.data, 9, 98));
		}
	}
}

static void reads_both_ways(void **state)
{
	struct rig rig;
	uint16_t first;
	unsigned int i;

	(void)state;
	rig_open(&rig, true);
	rig_connect(&rig, 3, 3);
	fill(&rig, rig.a.data, 60000, 1);
	fill(&rig, rig.b.data, 60000, 2);
	for (i = 0; i < 20; i++) {
		put_read(&rig.a, OP_READ, F_CE, sge_of(&rig.a, 100000 + 2000 * i, 2000), rig.b.key,
			 rig.b.data + 2000 * i, 0);
		put_read(&rig.b, OP_READ, F_CE, sge_of(&rig.b, 100000 + 2000 * i, 2000), rig.a.key,
			 rig.a.data + 2000 * i, 0);
	}
	ring_sq(&rig.a);
	ring_sq(&rig.b);
	pump(&rig);
	first = 0;
	for (i = 0; i < 20; i++, first += 2) {
		expect_wc(&rig, &rig.a.scq, OP_READ, 0, 0, first, 2000);
		expect_wc(&rig, &rig.b.scq, OP_READ, 0, 0, first, 2000);
	}
	assert_true(filled(&rig, rig.a.data + 100000, 40000, 2));
	assert_true(filled(&rig, rig.b.data + 100000, 40000, 1));
	rig_close(&rig);
}

static void atomics(void **state)
{
	struct rig rig;
	uint64_t target, result;
	uint16_t index;
	int mode;

	(void)state;
	FOR_BOTH_MEMORIES(&rig, mode)
	{
		target = rig.b.data + 4096;
		/* an unaligned result that lies on two pages */
		result = rig.a.data + 4096 - 3;
		poke64(&rig, target, 0x1122334455667788);

		index = put_atomic(&rig.a, OP_FAA, F_CE | F_INLINE,
				   (struct sge){ result, 8, rig.a.key }, rig.b.key, target,
				   0xf000000000000001, 0);
		ring_sq(&rig.a);
		pump(&rig);
		expect_wc(&rig, &rig.a.scq, OP_FAA, 0, 0, index, 8);
		assert_true(peek64(&rig, result) == 0x1122334455667788);
		assert_true(peek64(&rig, target) == 0x0122334455667789);

		index = put_atomic(&rig.a, OP_CAS, F_CE, (struct sge){ result, 8, rig.a.key },
				   rig.b.key, target, 42, 0x0122334455667789);
		ring_sq(&rig.a);
		pump(&rig);
		expect_wc(&rig, &rig.a.scq, OP_CAS, 0, 0, index, 8);
		assert_true(peek64(&rig, result) == 0x0122334455667789);
		assert_true(peek64(&rig, target) == 42);

		/* no match: nothing is stored; a longer result buffer is taken */
		put_atomic(&rig.a, OP_CAS, F_CE, (struct sge){ result, 64, rig.a.key }, rig.b.key,
			   target, 43, 41);
		ring_sq(&rig.a);
		pump(&rig);
		assert_true(peek64(&rig, result) == 42);
		assert_true(peek64(&rig, target) == 42);
	}
}

static void invalidating_read(void **state)
{
	uint64_t pages[1];
	struct rig rig;
	struct ea_mr_attr frmr = { .stag = 70 << 8, .pdn = PD, .type = EA_MR_FRMR };
	uint16_t index;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 4, 4);
	pages[0] = rig.a.data;
	frmr.pages = (struct ea_pages){ .form = EA_PAGES_ARRAY,
					.page_shift = 12,
					.npages = 16,
					.addr = { rig_alloc(&rig, 128) } };
	assert_int_equal(ea_mr_reg(rig.dev, &frmr), 0);
	fill(&rig, rig.b.data, 100, 6);

	put_reg(&rig.a, 0, 70 << 8 | 5, 0x1000, 4096, ALL_ACCESS, 0, pages, 1);
	index = put_read(&rig.a, OP_READ_INV, F_CE, (struct sge){ 0x1010, 100, 70 << 8 | 5 },
			 rig.b.key, rig.b.data, 70 << 8 | 5);
	/* the region is gone when the READ has ended */
	put_read(&rig.a, OP_READ, F_CE | F_FENCE, (struct sge){ 0x1010, 100, 70 << 8 | 5 },
		 rig.b.key, rig.b.data, 0);
	ring_sq(&rig.a);
	pump(&rig);
	expect_wc(&rig, &rig.a.scq, OP_READ_INV, 0, 0, index, 100);
	assert_true(filled(&rig, rig.a.data + 0x10, 100, 6));
	expect_wc(&rig, &rig.a.scq, OP_READ, 0, 10, (uint16_t)(index + 2), 0);
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(write_sizes),	     cmocka_unit_test(six_sges),
		cmocka_unit_test(inline_everywhere), cmocka_unit_test(send_kinds),
		cmocka_unit_test(write_with_imm),    cmocka_unit_test(immediate_alone),
		cmocka_unit_test(solicited),	     cmocka_unit_test(read_sizes),
		cmocka_unit_test(reads_both_ways),   cmocka_unit_test(atomics),
		cmocka_unit_test(invalidating_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
