// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Memory regions: every form of page list, bounds, rights, keys, fast registration. */
#include "tests/core/rig.h"

enum {
	STAG = 0x4200,
};

/* A write of @len bytes of @seed into the region by the peer; its result. */
static int remote_write(struct rig *rig, uint32_t stag, uint64_t to, uint32_t len, uint32_t seed)
{
	struct ea_rx_seg seg = tagged(EA_RDMAP_WRITE, stag, to, len, true);
	uint8_t *buf = malloc(len + 1);
	uint64_t tmp = rig->a.data;
	int err;

	fill(rig, tmp, len, seed);
	peek(rig, tmp, buf, len);
	err = feed(&rig->b, &seg, buf);
	free(buf);
	return err;
}

static void reconnect(struct rig *rig)
{
	ea_qp_reset(rig->dev, 1);
	ea_qp_reset(rig->dev, 2);
	rig_connect(rig, 4, 4);
}

/* Scattered pages listed in each form; the region begins and ends in the middle of a page. */
static void page_forms(void **state)
{
	struct ea_mr_attr attr = {
		.stag = STAG, .pdn = PD, .access = ALL_ACCESS, .type = EA_MR_NORMAL
	};
	enum ea_pages_form form;
	struct rig rig;
	uint64_t pages[600], list, mid, top;
	uint32_t n, i;
	int mode;

	(void)state;
	for (mode = 0; mode < 2; mode++) {
		for (form = EA_PAGES_INLINE; form <= EA_PAGES_TREE3; form++) {
			rig_open(&rig, mode);
			rig_connect(&rig, 4, 4);
			n = form == EA_PAGES_INLINE ? 4 : form == EA_PAGES_ARRAY ? 9 : 600;
			pages[0] = rig_alloc(&rig, n * PAGE);
			for (i = 1; i < n; i++)
				pages[i] = pages[0] + (uint64_t)(i * 7 % n) * PAGE;
			/* 7 and these counts have no common divisor */
			list = rig_alloc(&rig, n * 8);
			for (i = 0; i < n; i++)
				poke64(&rig, list + 8 * i, pages[i]);
			attr.start = 0xabcdef0000000 + 100;
			attr.len = (uint64_t)n * PAGE - 100 - 50;
			attr.pages = (struct ea_pages){
				.form = form, .page_shift = 12, .npages = n, .first_off = 100
			};
			switch (form) {
			case EA_PAGES_INLINE:
				memcpy(attr.pages.addr, pages, 32);
				break;
			case EA_PAGES_ARRAY:
				attr.pages.addr[0] = list;
				break;
			default:
				mid = rig_alloc(&rig, PAGE);
				poke64(&rig, mid, list);
				poke64(&rig, mid + 8, list + PAGE);
				attr.pages.addr[0] = mid;
				if (form == EA_PAGES_TREE3) {
					top = rig_alloc(&rig, PAGE);
					poke64(&rig, top, mid);
					attr.pages.addr[0] = top;
				}
				break;
			}
			assert_int_equal(ea_mr_reg(rig.dev, &attr), 0);

			/* over the seams of many pages, and the first and the last byte */
			assert_int_equal(remote_write(&rig, STAG, attr.start + 5, 12000, 3), 0);
			for (i = 0; i < 12000; i++) {
				uint64_t off = 100 + 5 + i;
				uint8_t want, got;

				peek(&rig, rig.a.data + i, &want, 1);
				peek(&rig, pages[off / PAGE] + off % PAGE, &got, 1);
				assert_int_equal(want, got);
			}
			assert_int_equal(remote_write(&rig, STAG, attr.start, 1, 4), 0);
			assert_int_equal(*at(&rig, pages[0] + 100), *at(&rig, rig.a.data));
			assert_int_equal(remote_write(&rig, STAG, attr.start + attr.len - 1, 1, 5),
					 0);
			assert_int_equal(*at(&rig, pages[n - 1] + PAGE - 51),
					 *at(&rig, rig.a.data));

			/* one past either end, and a byte on each side is whole */
			*at(&rig, pages[0] + 99) = 0x11;
			*at(&rig, pages[n - 1] + PAGE - 50) = 0x22;
			assert_int_equal(remote_write(&rig, STAG, attr.start - 1, 2, 6), EPROTO);
			reconnect(&rig);
			assert_int_equal(remote_write(&rig, STAG, attr.start + attr.len - 1, 2, 6),
					 EPROTO);
			assert_int_equal(*at(&rig, pages[0] + 99), 0x11);
			assert_int_equal(*at(&rig, pages[n - 1] + PAGE - 50), 0x22);

			/* a page of the list is unmapped: nothing but an error */
			reconnect(&rig);
			rig.fail_at = pages[1];
			assert_int_equal(remote_write(&rig, STAG, attr.start, 8000, 6), EFAULT);
			reconnect(&rig);
			rig.fail_at = attr.pages.addr[0];
			assert_int_equal(remote_write(&rig, STAG, attr.start, 80, 6), EFAULT);
			rig_close(&rig);
		}
	}
}

/* Regions above 4 GiB: huge pages, and lengths and offsets that need 33 bits. */
static void huge(void **state)
{
	struct ea_mr_attr attr = {
		.stag = STAG, .pdn = PD, .access = ALL_ACCESS, .type = EA_MR_NORMAL
	};
	struct ea_read_req req = { .len = UINT32_MAX };
	uint8_t buf[EA_READ_REQ_LEN];
	struct iovec iov[EA_IOV_MAX];
	struct ea_tx_msg msg;
	struct ea_rx_seg seg;
	uint64_t data, list, start = 1ull << 40;
	struct rig rig;
	uint32_t covered, i;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 4, 4);
	data = rig_alloc(&rig, 4 * PAGE);

	/* 8 pages of 1 GiB; all are the same memory, of which only a little is mapped */
	list = rig_alloc(&rig, PAGE);
	for (i = 0; i < 8; i++)
		poke64(&rig, list + 8 * i, data - 4096);
	attr.start = start;
	attr.len = 8ull << 30;
	attr.pages = (struct ea_pages){
		.form = EA_PAGES_ARRAY, .page_shift = 30, .npages = 8, .addr = { list }
	};
	assert_int_equal(ea_mr_reg(rig.dev, &attr), 0);
	assert_int_equal(remote_write(&rig, STAG, start + (5ull << 30) + 4096, 100, 1), 0);
	assert_true(filled(&rig, data, 100, 1));
	assert_int_equal(remote_write(&rig, STAG, start + (8ull << 30), 1, 1), EPROTO);
	reconnect(&rig);
	assert_int_equal(remote_write(&rig, STAG, start + (8ull << 30) - 1, 2, 1), EPROTO);
	reconnect(&rig);

	/* a READ of 4 GiB - 1: its last bytes are asked for */
	req.src_stag = STAG;
	req.src_to = start + (1ull << 30) + 4096 + 50 - (UINT32_MAX - (4ull << 30) + 1) + 1;
	ea_read_req_encode(&req, buf);
	seg = untagged(EA_RDMAP_READ_REQ, 1, 1, 0, 0, sizeof(buf), true);
	assert_int_equal(feed(&rig.b, &seg, buf), 0);
	assert_int_equal(ea_tx_next(rig.b.side.link.qp, &msg), 0);
	assert_int_equal(msg.len, UINT32_MAX);
	assert_int_equal(ea_tx_payload(rig.b.side.link.qp, &msg, UINT32_MAX - 20, 20, iov,
				       EA_IOV_MAX, &covered),
			 1);
	assert_int_equal(covered, 20);
	assert_ptr_equal(iov[0].iov_base, at(&rig, data + 50 + UINT32_MAX - 20 - (4ull << 30) + 1));
	/* off + len past the message */
	assert_int_equal(ea_tx_payload(rig.b.side.link.qp, &msg, UINT32_MAX - 20, 21, iov,
				       EA_IOV_MAX, &covered),
			 -EINVAL);
	reconnect(&rig);

	/* SGEs whose lengths add up to 2^32 + 100 */
	put_send(&rig.a, OP_SEND, F_CE,
		 (struct sge[]){ { start, UINT32_MAX, STAG }, { start, 101, STAG } }, 2, 0);
	ring_sq(&rig.a);
	pump(&rig);
	expect_wc(&rig, &rig.a.scq, OP_SEND, 0, 8, 0, 0);
	rig_close(&rig);
}

static void big_tree(void **state)
{
	/* TREE3 with page indices above 2^18, TREE2 at its last entry */
	struct ea_mr_attr attr = {
		.stag = STAG, .pdn = PD, .access = ALL_ACCESS, .type = EA_MR_NORMAL
	};
	uint64_t top, mid, bottom, data;
	const uint64_t page = (3ull << 18) + (5 << 9) + 7;
	struct rig rig;

	(void)state;
	rig_open(&rig, true);
	rig_connect(&rig, 4, 4);
	top = rig_alloc(&rig, PAGE);
	mid = rig_alloc(&rig, PAGE);
	bottom = rig_alloc(&rig, PAGE);
	data = rig_alloc(&rig, PAGE);
	poke64(&rig, top + 8 * 3, mid);
	poke64(&rig, mid + 8 * 5, bottom);
	poke64(&rig, bottom + 8 * 7, data);
	attr.start = 0x10000000000;
	attr.len = (page + 1) * PAGE;
	attr.pages = (struct ea_pages){
		.form = EA_PAGES_TREE3, .page_shift = 12, .npages = page + 1, .addr = { top }
	};
	assert_int_equal(ea_mr_reg(rig.dev, &attr), 0);
	assert_int_equal(remote_write(&rig, STAG, attr.start + page * PAGE, PAGE, 2), 0);
	assert_true(filled(&rig, data, PAGE, 2));
	/* entries that are 0 name no memory */
	assert_int_equal(remote_write(&rig, STAG, attr.start, 1, 2), EFAULT);
	assert_int_equal(ea_mr_dereg(rig.dev, STAG), 0);

	reconnect(&rig);
	poke64(&rig, mid + 8 * 511, bottom);
	poke64(&rig, bottom + 8 * 511, data);
	attr.pages = (struct ea_pages){
		.form = EA_PAGES_TREE2, .page_shift = 12, .npages = 1 << 18, .addr = { mid }
	};
	attr.len = (uint64_t)PAGE << 18;
	assert_int_equal(ea_mr_reg(rig.dev, &attr), 0);
	assert_int_equal(remote_write(&rig, STAG, attr.start + attr.len - PAGE, PAGE, 3), 0);
	assert_true(filled(&rig, data, PAGE, 3));
	assert_int_equal(ea_mr_dereg(rig.dev, STAG), 0);

	/* more than the tree can hold */
	attr.pages.npages++;
	assert_int_equal(ea_mr_reg(rig.dev, &attr), EINVAL);
	attr.pages.form = EA_PAGES_TREE3;
	attr.pages.npages = (1ull << 27) + 1;
	assert_int_equal(ea_mr_reg(rig.dev, &attr), EINVAL);
	rig_close(&rig);
}

static void register_checks(void **state)
{
	struct ea_mr_attr good, attr;
	struct rig rig;

	(void)state;
	rig_open(&rig, false);
	good = (struct ea_mr_attr){ .stag = STAG,
				    .pdn = PD,
				    .access = ALL_ACCESS,
				    .type = EA_MR_NORMAL,
				    .start = 4096,
				    .len = 4096 };
	good.pages = (struct ea_pages){
		.form = EA_PAGES_INLINE, .page_shift = 12, .npages = 1, .addr = { rig.a.data }
	};
	attr = good;
	/* the driver hands index 0 out once its allocator has wrapped */
	attr.stag = 0x12;
	assert_int_equal(ea_mr_reg(rig.dev, &attr), 0);
	assert_int_equal(ea_mr_reg(rig.dev, &attr), EEXIST);
	assert_int_equal(ea_mr_dereg(rig.dev, 0), 0);
	attr.stag = 512 << 8;
	assert_int_equal(ea_mr_reg(rig.dev, &attr), EINVAL);
	attr = good;
	attr.access = 0x20;
	assert_int_equal(ea_mr_reg(rig.dev, &attr), EINVAL);
	attr = good;
	attr.type = 3;
	assert_int_equal(ea_mr_reg(rig.dev, &attr), EINVAL);
	attr = good;
	attr.start = UINT64_MAX - 4094;
	assert_int_equal(ea_mr_reg(rig.dev, &attr), EINVAL);
	attr.start = UINT64_MAX - 4095;
	assert_int_equal(ea_mr_reg(rig.dev, &attr), 0);
	assert_int_equal(ea_mr_dereg(rig.dev, STAG), 0);
	attr = good;
	attr.pages.first_off = 1;
	assert_int_equal(ea_mr_reg(rig.dev, &attr), EINVAL);
	attr.pages.first_off = UINT64_MAX;
	assert_int_equal(ea_mr_reg(rig.dev, &attr), EINVAL);
	attr = good;
	attr.len = 4097;
	assert_int_equal(ea_mr_reg(rig.dev, &attr), EINVAL);
	attr = good;
	attr.len = UINT64_MAX;
	assert_int_equal(ea_mr_reg(rig.dev, &attr), EINVAL);
	attr = good;
	attr.pages.form = EA_PAGES_ARRAY;
	attr.pages.npages = UINT64_MAX;
	assert_int_equal(ea_mr_reg(rig.dev, &attr), EINVAL);
	attr = good;
	attr.pages = flat(UINT64_MAX - 4094);
	assert_int_equal(ea_mr_reg(rig.dev, &attr), EINVAL);

	assert_int_equal(ea_mr_reg(rig.dev, &good), 0);
	assert_int_equal(ea_mr_reg(rig.dev, &good), EEXIST);
	/* by index only */
	assert_int_equal(ea_mr_dereg(rig.dev, STAG | 0x77), 0);
	assert_int_equal(ea_mr_dereg(rig.dev, STAG), ENOENT);
	assert_int_equal(ea_mr_dereg(rig.dev, UINT32_MAX), ENOENT);
	rig_close(&rig);
}

/* Each remote right, and only that, lets its operation through. */
static void rights(void **state)
{
	struct {
		uint32_t op;
		uint32_t right;
	} cases[] = {
		{ OP_WRITE, EA_ACCESS_REMOTE_WRITE },
		{ OP_READ, EA_ACCESS_REMOTE_READ },
		{ OP_FAA, EA_ACCESS_REMOTE_ATOMIC },
	};
	uint32_t access;
	struct rig rig;
	unsigned int i;
	struct wc wc;

	(void)state;
	for (i = 0; i < 3; i++) {
		for (access = 0; access < 32; access++) {
			struct sge sge;

			rig_open(&rig, false);
			rig_connect(&rig, 4, 4);
			sge = (struct sge){ rig.a.data, 8, rig.a.key };
			mr_add(&rig, STAG, PD, access, rig.b.data, 4096);
			poke64(&rig, rig.b.data, 7);
			poke64(&rig, rig.a.data, 9);
			if (cases[i].op == OP_WRITE)
				put_write(&rig.a, OP_WRITE, F_CE, &sge, 1, STAG, rig.b.data, 0);
			else if (cases[i].op == OP_READ)
				put_read(&rig.a, OP_READ, F_CE, sge, STAG, rig.b.data, 0);
			else
				put_atomic(&rig.a, OP_FAA, F_CE, sge, STAG, rig.b.data, 1, 0);
			ring_sq(&rig.a);
			pump(&rig);
			assert_true(poll(&rig, &rig.a.scq, &wc));
			if (access & cases[i].right) {
				assert_int_equal(wc.syn, 0);
				assert_int_equal(rig.b.side.rx_err, 0);
			} else {
				/* a READ or atomic waits for its answer and hears of it */
				if (cases[i].op != OP_WRITE)
					assert_int_equal(wc.syn, 5);
				assert_int_equal(rig.b.side.rx_err, EPROTO);
				assert_int_equal(asyncs(&rig, EA_ASYNC_QP_ACCESS_ERR, 2), 1);
				assert_true(peek64(&rig, rig.b.data) == 7);
			}
			rig_close(&rig);
		}
	}
}

static void misaligned_atomic(void **state)
{
	struct rig rig;
	int i;

	(void)state;
	for (i = 1; i < 8; i++) {
		rig_open(&rig, false);
		rig_connect(&rig, 4, 4);
		poke64(&rig, rig.b.data, 7);
		poke64(&rig, rig.b.data + 8, 7);
		put_atomic(&rig.a, OP_FAA, F_CE, (struct sge){ rig.a.data, 8, rig.a.key },
			   rig.b.key, rig.b.data + i, 1, 0);
		ring_sq(&rig.a);
		pump(&rig);
		expect_wc(&rig, &rig.a.scq, OP_FAA, 0, 4, 0, 0);
		assert_true(peek64(&rig, rig.b.data) == 7);
		assert_true(peek64(&rig, rig.b.data + 8) == 7);
		rig_close(&rig);
	}
}

/* Alignment is asked of the address that the peer names and of the memory behind it. */
static void skewed_atomic(void **state)
{
	struct ea_mr_attr attr = { .stag = STAG,
				   .pdn = PD,
				   .access = ALL_ACCESS,
				   .type = EA_MR_NORMAL,
				   .start = 0x1004,
				   .len = 64 };
	struct rig rig;
	int i;

	(void)state;
	for (i = 0; i < 2; i++) {
		rig_open(&rig, false);
		rig_connect(&rig, 4, 4);
		attr.pages = flat(rig.b.data);
		assert_int_equal(ea_mr_reg(rig.dev, &attr), 0);
		put_atomic(&rig.a, OP_FAA, F_CE, (struct sge){ rig.a.data, 8, rig.a.key }, STAG,
			   i ? 0x1008 : 0x100c, 1, 0);
		ring_sq(&rig.a);
		pump(&rig);
		expect_wc(&rig, &rig.a.scq, OP_FAA, 0, 4, 0, 0);
		assert_true(peek64(&rig, rig.b.data) == 0);
		assert_true(peek64(&rig, rig.b.data + 8) == 0);
		rig_close(&rig);
	}
}

/* The life of a region for fast registration. */
static void fast_registration(void **state)
{
	struct ea_mr_attr frmr = {
		.stag = STAG, .pdn = PD, .access = ALL_ACCESS, .type = EA_MR_FRMR
	};
	struct ea_tx_msg msg;
	uint64_t array, pages[4];
	struct rig rig;
	uint16_t index;
	uint32_t i;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 4, 4);
	array = rig_alloc(&rig, PAGE);
	frmr.pages = (struct ea_pages){
		.form = EA_PAGES_ARRAY, .page_shift = 12, .npages = 16, .addr = { array }
	};
	assert_int_equal(ea_mr_reg(rig.dev, &frmr), 0);

	/* not valid yet */
	assert_int_equal(remote_write(&rig, STAG, 0, 1, 1), EPROTO);
	reconnect(&rig);
	put_recv(&rig.b, rig.b.data, 10, rig.b.key);

	/* inline list: 2 pages from offset 0x30; the write in front must be out first */
	pages[0] = rig.b.data + 3 * PAGE;
	pages[1] = rig.b.data + PAGE;
	put_write_inline(&rig.b, OP_WRITE, 0, "x", 1, rig.a.key, rig.a.data, 0);
	index = put_reg(&rig.b, F_CE, STAG | 1, 0x7030, 2 * PAGE - 0x30, EA_ACCESS_REMOTE_WRITE, 0,
			pages, 2);
	ring_sq(&rig.b);
	assert_int_equal(ea_tx_next(rig.b.side.link.qp, &msg), 0);
	assert_int_equal(ea_tx_next(rig.b.side.link.qp, &msg), EAGAIN);
	rig.b.side.ready = false;
	ea_tx_done(rig.b.side.link.qp, &msg);
	assert_true(rig.b.side.ready);
	assert_int_equal(ea_tx_next(rig.b.side.link.qp, &msg), EAGAIN);
	expect_wc(&rig, &rig.b.scq, OP_REG_MR, 0, 0, index, 0);

	assert_int_equal(remote_write(&rig, STAG | 1, 0x7030, 2 * PAGE - 0x30, 5), 0);
	assert_true(filled(&rig, pages[0] + 0x30, 10, 5));
	assert_int_equal(*at(&rig, pages[1]), *at(&rig, rig.a.data + PAGE - 0x30));

	/* bound twice without invalidation */
	put_reg(&rig.b, F_CE, STAG | 2, 0x7000, PAGE, ALL_ACCESS, 0, pages, 1);
	ring_sq(&rig.b);
	assert_int_equal(ea_tx_next(rig.b.side.link.qp, &msg), EAGAIN);
	expect_wc(&rig, &rig.b.scq, OP_REG_MR, 0, SYN_STAG, (uint16_t)(index + 2), 0);
	reconnect(&rig);
	rig.b.sq_pi = 0;

	/* the old key is refused after local invalidation and a new binding by array */
	for (i = 0; i < 16; i++)
		poke64(&rig, array + 8 * i, rig.b.data + (uint64_t)i * PAGE);
	put_inv(&rig.b, F_CE, STAG | 1);
	put_reg(&rig.b, F_CE, STAG | 9, 0x100000, 16 * PAGE, ALL_ACCESS, 1, NULL, 16);
	ring_sq(&rig.b);
	assert_int_equal(ea_tx_next(rig.b.side.link.qp, &msg), EAGAIN);
	expect_wc(&rig, &rig.b.scq, OP_LOCAL_INV, 0, 0, 0, 0);
	expect_wc(&rig, &rig.b.scq, OP_REG_MR, 0, 0, 1, 0);
	assert_int_equal(remote_write(&rig, STAG | 9, 0x100000 + 5 * PAGE, 100, 6), 0);
	assert_true(filled(&rig, rig.b.data + 5 * PAGE, 100, 6));
	assert_int_equal(remote_write(&rig, STAG | 1, 0x100000, 1, 6), EPROTO);
	reconnect(&rig);
	rig.b.sq_pi = 0;

	/* invalidation by the wrong key; then by the right one, twice */
	put_inv(&rig.b, F_CE, STAG | 9);
	put_inv(&rig.b, F_CE, STAG | 9);
	put_inv(&rig.b, F_CE, STAG | 8);
	ring_sq(&rig.b);
	assert_int_equal(ea_tx_next(rig.b.side.link.qp, &msg), EAGAIN);
	expect_wc(&rig, &rig.b.scq, OP_LOCAL_INV, 0, 0, 0, 0);
	expect_wc(&rig, &rig.b.scq, OP_LOCAL_INV, 0, 0, 1, 0);
	expect_wc(&rig, &rig.b.scq, OP_LOCAL_INV, 0, SYN_STAG, 2, 0);
	rig_close(&rig);
}

static void bad_fast_registration(void **state)
{
	struct {
		uint64_t iova;
		uint32_t len, type, n;
		uint8_t syn;
	} cases[] = {
		{ 0, PAGE, 0, 5, 8 },	     /* 5 pages inline */
		{ 0, PAGE, 0, 0, SYN_ADDR }, /* none */
		{ 0, PAGE + 1, 0, 1, SYN_ADDR },
		{ 1, PAGE, 0, 1, SYN_ADDR },
		{ UINT64_MAX - 10, PAGE, 0, 2, SYN_WRAP },
		{ 0, PAGE, 1, 17, 8 }, /* array of 16 */
		{ 0, 16 * PAGE + 1, 1, 16, SYN_ADDR },
		{ 0, PAGE, 2, 1, 8 },
		{ 0, PAGE, 3, 1, 8 },
	};
	struct ea_mr_attr frmr = { .stag = STAG, .pdn = PD, .type = EA_MR_FRMR };
	struct ea_tx_msg msg;
	uint64_t pages[4];
	struct rig rig;
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		rig_open(&rig, false);
		rig_connect(&rig, 1, 1);
		frmr.pages = (struct ea_pages){ .form = EA_PAGES_ARRAY,
						.page_shift = 12,
						.npages = 16,
						.addr = { rig_alloc(&rig, PAGE) } };
		assert_int_equal(ea_mr_reg(rig.dev, &frmr), 0);
		pages[0] = pages[1] = pages[2] = pages[3] = rig.a.data;
		put_reg(&rig.a, 0, STAG, cases[i].iova, cases[i].len, ALL_ACCESS, cases[i].type,
			pages, cases[i].n);
		ring_sq(&rig.a);
		assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), EAGAIN);
		expect_wc(&rig, &rig.a.scq, OP_REG_MR, 0, cases[i].syn, 0, 0);
		rig_close(&rig);
	}

	/* another PD's */
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);
	frmr.pdn = PD + 1;
	assert_int_equal(ea_mr_reg(rig.dev, &frmr), 0);
	put_inv(&rig.a, 0, STAG);
	ring_sq(&rig.a);
	assert_int_equal(ea_tx_next(rig.a.side.link.qp, &msg), EAGAIN);
	expect_wc(&rig, &rig.a.scq, OP_LOCAL_INV, 0, 13, 0, 0);
	rig_close(&rig);
}

static void dma_region(void **state)
{
	struct ea_mr_attr attr = { .stag = STAG,
				   .pdn = PD,
				   .type = EA_MR_DMA,
				   .access = EA_ACCESS_LOCAL_READ | EA_ACCESS_REMOTE_WRITE };
	struct rig rig;

	(void)state;
	rig_open(&rig, true);
	rig_connect(&rig, 1, 1);
	assert_int_equal(ea_mr_reg(rig.dev, &attr), 0);
	assert_int_equal(remote_write(&rig, STAG, rig.b.data + 5, 9000, 1), 0);
	assert_true(filled(&rig, rig.b.data + 5, 9000, 1));
	/* nothing is mapped there */
	assert_int_equal(remote_write(&rig, STAG, 0, 1, 1), EFAULT);
	reconnect(&rig);
	assert_int_equal(remote_write(&rig, STAG, UINT64_MAX, 2, 1), EPROTO);
	reconnect(&rig);
	/* the peer cannot take it away */
	put_recv(&rig.b, 0, 0, 0);
	put_send(&rig.a, OP_SEND_INV, 0, NULL, 0, STAG);
	ring_sq(&rig.a);
	pump(&rig);
	assert_int_equal(rig.b.side.rx_err, EPROTO);
	rig_close(&rig);
}

/* Neighbouring pieces are one iovec; a short iovec list covers what it can. */
static void iovecs(void **state)
{
	struct iovec iov[EA_IOV_MAX];
	struct ea_rx_seg seg;
	uint32_t covered;
	struct rig rig;
	int n, mode;

	(void)state;
	for (mode = 0; mode < 2; mode++) {
		rig_open(&rig, mode);
		rig_connect(&rig, 1, 1);
		seg = tagged(EA_RDMAP_WRITE, rig.b.key, rig.b.data + 1, 65535, true);
		assert_int_equal(ea_rx_begin(rig.b.side.link.qp, &seg), 0);
		n = ea_rx_target(rig.b.side.link.qp, &seg, 0, 65535, iov, EA_IOV_MAX, &covered);
		assert_int_equal(n, mode ? 16 : 1);
		assert_int_equal(covered, 65535);
		n = ea_rx_target(rig.b.side.link.qp, &seg, 4000, 60000, iov, 3, &covered);
		assert_int_equal(n, mode ? 3 : 1);
		assert_int_equal(covered, mode ? 95 + 2 * PAGE : 60000);
		rig_close(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(page_forms),
		cmocka_unit_test(huge),
		cmocka_unit_test(big_tree),
		cmocka_unit_test(register_checks),
		cmocka_unit_test(rights),
		cmocka_unit_test(misaligned_atomic),
		cmocka_unit_test(skewed_atomic),
		cmocka_unit_test(fast_registration),
		cmocka_unit_test(bad_fast_registration),
		cmocka_unit_test(dma_region),
		cmocka_unit_test(iovecs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
