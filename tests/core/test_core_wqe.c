// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Work requests that are wrong, from the start or after they were checked. */
#include "tests/core/rig.h"

/* One way to spoil a WQE. */
struct spoil {
	const char *what;
	void (*spoil)(struct qp *qp, uint16_t index);
	uint8_t syn;
};

static void qpn(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 0, 0, 1ull << 51);
}
static void other_qpn(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 0, 3ull << 32, 2ull << 32);
}
static void blocks5(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 0, 7ull << 52, 4ull << 52);
}
static void blocks8(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 0, 7ull << 52, 7ull << 52);
}
static void blocks1(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 0, 7ull << 52, 0);
}
static void blocks_past(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 0, 7ull << 52 | 0xffff, 3ull << 52 | (uint16_t)(i + 4));
}
static void index_off(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 0, 0xffff, (uint16_t)(i + 1));
}
static void index_lap(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 0, 0xffff, (uint16_t)(i + 2 + 64));
}
static void opcode4(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 0, 31ull << 27, 4ull << 27);
}
static void opcode7(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 0, 31ull << 27, 7ull << 27);
}
static void opcode12(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 0, 31ull << 27, 12ull << 27);
}
static void opcode19(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 0, 31ull << 27, 19ull << 27);
}
static void opcode31(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 0, 31ull << 27, 31ull << 27);
}
static void sgl7(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 0, 0xffull << 56, 7ull << 56);
}
static void sgl255(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 0, 0xffull << 56, 0xffull << 56);
}
static void sgl3(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 0, 0xffull << 56, 3ull << 56);
}
static void length_more(struct qp *qp, uint16_t i)
{
	patch32(qp, i, 12, 101);
}
static void length_less(struct qp *qp, uint16_t i)
{
	patch32(qp, i, 12, 99);
}
static void sge_sum_wraps(struct qp *qp, uint16_t i)
{
	/* two SGEs whose lengths add up to 2^32 + 100 */
	patch64(qp, i, 0, 0xffull << 56, 2ull << 56);
	patch32(qp, i, 32 + 8, 0xffffffff);
	patch64(qp, i, 48, ~0ull, qp->data);
	patch32(qp, i, 48 + 8, 101);
	patch32(qp, i, 48 + 12, qp->key);
}
static void inl_long(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 0, 0xffull << 56, 97ull << 56 | 1ull << 25);
	patch32(qp, i, 12, 97);
}
static void inl_past(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 0, 0xffull << 56, 33ull << 56 | 1ull << 25);
	patch32(qp, i, 12, 33);
}
static void inl_differs(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 0, 0xffull << 56, 20ull << 56 | 1ull << 25);
}
static void key_index(struct qp *qp, uint16_t i)
{
	patch32(qp, i, 44, 300 << 8);
}
static void key_huge(struct qp *qp, uint16_t i)
{
	patch32(qp, i, 44, 0xfffffe00);
}
static void key_byte(struct qp *qp, uint16_t i)
{
	patch32(qp, i, 44, qp->key + 1);
}
static void key_local(struct qp *qp, uint16_t i)
{
	patch32(qp, i, 44, 0xffffff00);
}
static void key_zero(struct qp *qp, uint16_t i)
{
	patch32(qp, i, 44, 0);
}
static void key_pd(struct qp *qp, uint16_t i)
{
	patch32(qp, i, 44, mr_add(qp->rig, 90 << 8, PD + 1, ALL_ACCESS, qp->data, 4096));
}
static void key_right(struct qp *qp, uint16_t i)
{
	patch32(qp, i, 44, mr_add(qp->rig, 90 << 8, PD, EA_ACCESS_LOCAL_WRITE, qp->data, 4096));
}
static void addr_before(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 32, ~0ull, qp->data - 1);
}
static void addr_after(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 32, ~0ull, qp->data + DATA_SIZE - 99);
}
static void addr_wrap(struct qp *qp, uint16_t i)
{
	patch64(qp, i, 32, ~0ull, UINT64_MAX - 98);
}

static const struct spoil spoils[] = {
	{ "QPN beyond the table", qpn, SYN_FORMAT },
	{ "QPN of another QP", other_qpn, SYN_FORMAT },
	{ "5 blocks", blocks5, SYN_FORMAT },
	{ "8 blocks", blocks8, SYN_FORMAT },
	{ "index does not fit the blocks", blocks1, SYN_FORMAT },
	{ "more blocks than rung", blocks_past, SYN_FORMAT },
	{ "index off by one", index_off, SYN_FORMAT },
	{ "index of the next lap", index_lap, SYN_FORMAT },
	{ "opcode 4", opcode4, SYN_FORMAT },
	{ "opcode 7", opcode7, SYN_FORMAT },
	{ "opcode 12", opcode12, SYN_FORMAT },
	{ "opcode 19", opcode19, SYN_FORMAT },
	{ "opcode 31", opcode31, SYN_FORMAT },
	{ "7 SGEs", sgl7, SYN_FORMAT },
	{ "255 SGEs", sgl255, SYN_FORMAT },
	{ "SGEs past the last block", sgl3, SYN_FORMAT },
	{ "total length too large", length_more, SYN_FORMAT },
	{ "total length too small", length_less, SYN_FORMAT },
	{ "sum of SGEs wraps", sge_sum_wraps, SYN_ADDR },
	{ "97 inline bytes", inl_long, SYN_FORMAT },
	{ "inline bytes past the last block", inl_past, SYN_FORMAT },
	{ "inline count is not the length", inl_differs, SYN_FORMAT },
	{ "unused key", key_index, SYN_STAG },
	{ "key beyond the table", key_huge, SYN_STAG },
	{ "wrong key byte", key_byte, SYN_STAG },
	{ "the device's own key", key_local, SYN_STAG },
	{ "key 0", key_zero, SYN_STAG },
	{ "other PD", key_pd, SYN_PD },
	{ "no local read", key_right, SYN_RIGHT },
	{ "one byte before", addr_before, SYN_ADDR },
	{ "one byte past", addr_after, SYN_ADDR },
	{ "address wraps", addr_wrap, SYN_WRAP },
};

/* Good, spoilt, good: one success, one error of the right kind, one flush; the peer sees only the first. */
static void bad_wqes(void **state)
{
	struct ea_tx_msg msg;
	struct rig rig;
	unsigned int i;
	struct wc wc;
	uint16_t index;

	(void)state;
	for (i = 0; i < sizeof(spoils) / sizeof(spoils[0]); i++) {
		print_message("  %s\n", spoils[i].what);
		rig_open(&rig, i & 1);
		rig_connect(&rig, 1, 1);
		put_recv(&rig.b, rig.b.data, 100, rig.b.key);
		put_recv(&rig.b, rig.b.data, 100, rig.b.key);
		fill(&rig, rig.a.data, 4096, 3);

		put_one(&rig.a, F_CE);
		index = rig.a.sq_pi;
		put_one(&rig.a, 0);
		spoils[i].spoil(&rig.a, index);
		/* "more blocks than rung" needs that one to be the last */
		if (spoils[i].spoil != blocks_past)
			put_one(&rig.a, 0);
		ring_sq(&rig.a);
		while (!rig.a.side.shut) {
			assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), 0);
			assert_int_equal(msg.opcode, EA_RDMAP_WRITE);
			/* the error waits for the WQE before it */
			assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), EAGAIN);
			assert_false(rig.a.side.shut);
			expect_none(&rig, &rig.a.scq);
			ea_tx_done(rig.a.side.link.qp, &msg);
		}
		expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, 0, 0, 100);
		assert_true(poll(&rig, &rig.a.scq, &wc));
		assert_int_equal(wc.syn, spoils[i].syn);
		assert_int_equal(wc.index, index);
		assert_true(wc.opcode <= 18);
		while (poll(&rig, &rig.a.scq, &wc))
			assert_int_equal(wc.syn, SYN_FLUSH);
		expect_term(&rig.a, EA_TERM_RDMAP_LOCAL, &msg);
		rig_close(&rig);
	}
}

static void bad_other_opcodes(void **state)
{
	struct sge small, ok;
	struct ea_tx_msg msg;
	struct rig rig;
	uint8_t syn;
	int i;

	(void)state;
	for (i = 0; i < 9; i++) {
		rig_open(&rig, false);
		rig_connect(&rig, 1, 1);
		ok = sge_of(&rig.a, 0, 8);
		small = sge_of(&rig.a, 0, 7);
		syn = SYN_FORMAT;
		switch (i) {
		case 0: /* READ in one block */
			put_read(&rig.a, OP_READ, 0, ok, rig.b.key, rig.b.data, 0);
			patch64(&rig.a, 0, 0, 7ull << 52 | 0xffff, 1);
			rig.a.sq_pi = 1;
			break;
		case 1: /* READ into a region without local write */
			mr_add(&rig, 90 << 8, PD, ALL_ACCESS & ~EA_ACCESS_LOCAL_WRITE, rig.a.data,
			       4096);
			ok.lkey = 90 << 8;
			put_read(&rig.a, OP_READ, 0, ok, rig.b.key, rig.b.data, 0);
			syn = SYN_RIGHT;
			break;
		case 2: /* READ one byte past the end */
			ok = sge_of(&rig.a, DATA_SIZE - 7, 8);
			put_read(&rig.a, OP_READ, 0, ok, rig.b.key, rig.b.data, 0);
			syn = SYN_ADDR;
			break;
		case 3: /* atomic in one block */
			put_atomic(&rig.a, OP_CAS, 0, ok, rig.b.key, rig.b.data, 1, 1);
			patch64(&rig.a, 0, 0, 7ull << 52 | 0xffff, 1);
			rig.a.sq_pi = 1;
			break;
		case 4: /* no room for the result */
			put_atomic(&rig.a, OP_FAA, 0, small, rig.b.key, rig.b.data, 1, 1);
			break;
		case 5: /* no such region for the result */
			ok.lkey++;
			put_atomic(&rig.a, OP_FAA, 0, ok, rig.b.key, rig.b.data, 1, 1);
			syn = SYN_STAG;
			break;
		case 6: /* a user's region is not for REG_MR */
			put_reg(&rig.a, 0, rig.a.key, 0, 0, ALL_ACCESS, 0, NULL, 0);
			syn = SYN_STAG;
			break;
		case 7:
			put_inv(&rig.a, 0, rig.a.key);
			syn = SYN_STAG;
			break;
		case 8:
			put_inv(&rig.a, 0, 0xffffffff);
			syn = SYN_STAG;
			break;
		}
		ring_sq(&rig.a);
		assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), EAGAIN);
		assert_true(rig.a.side.shut);
		{
			struct wc wc;

			assert_true(poll(&rig, &rig.a.scq, &wc));
			assert_int_equal(wc.syn, syn);
			assert_int_equal(wc.index, 0);
		}
		expect_none(&rig, &rig.a.scq);
		rig_close(&rig);
	}
}

/* The WQE is changed after its check: memory outside a region is not touched all the same. */
static void changed_after_check(void **state)
{
	struct iovec iov[EA_IOV_MAX];
	struct ea_tx_msg msg;
	uint32_t covered;
	struct rig rig;
	int how;

	(void)state;
	for (how = 0; how < 4; how++) {
		rig_open(&rig, false);
		rig_connect(&rig, 1, 1);
		put_one(&rig.a, 0);
		ring_sq(&rig.a);
		assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), 0);
		assert_int_equal(ea_tx_payload(rig.a.side.link.qp, &msg, 0, 100, iov, EA_IOV_MAX,
					       &covered),
				 1);
		switch (how) {
		case 0:
			patch64(&rig.a, 0, 32, ~0ull, rig.a.data + DATA_SIZE - 50);
			break;
		case 1:
			patch32(&rig.a, 0, 32 + 8, 50);
			break;
		case 2:
			patch32(&rig.a, 0, 32 + 12, rig.a.key + 1);
			break;
		case 3:
			assert_int_equal(ea_mr_dereg(rig.dev, rig.a.key), 0);
			break;
		}
		assert_true(ea_tx_payload(rig.a.side.link.qp, &msg, 0, 100, iov, EA_IOV_MAX,
					  &covered) < 0);
		assert_true(rig.a.side.shut);
		{
			struct wc wc;

			assert_true(poll(&rig, &rig.a.scq, &wc));
			assert_int_not_equal(wc.syn, 0);
			assert_int_not_equal(wc.syn, SYN_FLUSH);
		}
		rig_close(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_wqes),
		cmocka_unit_test(bad_other_opcodes),
		cmocka_unit_test(changed_after_check),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
