// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Completion queues: laps, arming, firing, lost memory. */
#include "tests/core/rig.h"

/* One completion on a's send CQ. */
static void complete(struct rig *rig)
{
	put_write_inline(&rig->a, OP_WRITE, F_CE, "x", 1, rig->b.key, rig->b.data, 0);
	ring_sq(&rig->a);
	pump(rig);
}

static void drain(struct rig *rig, struct cq *cq, unsigned int n)
{
	struct wc wc;

	while (n--)
		assert_true(poll(rig, cq, &wc));
	assert_false(poll(rig, cq, &wc));
}

static void owner_laps(void **state)
{
	struct rig rig;
	uint32_t i;
	int mode;

	(void)state;
	for (mode = 0; mode < 2; mode++) {
		rig_open(&rig, mode);
		rig_connect(&rig, 1, 1);
		/* 256 entries on two pages */
		for (i = 0; i < 5 * 256 + 3; i++) {
			complete(&rig);
			expect_wc(&rig, &rig.a.scq, OP_WRITE, 0, 0, (uint16_t)(i * 2), 1);
			expect_none(&rig, &rig.a.scq);
		}
		rig_close(&rig);
	}
}

static void fire_once(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);
	complete(&rig);
	drain(&rig, &rig.a.scq, 1);
	assert_int_equal(fired(&rig, 1), 0); /* not armed at creation */

	arm(&rig, &rig.a.scq, false);
	assert_int_equal(fired(&rig, 1), 0);
	arm(&rig, &rig.a.scq, false); /* twice is once */
	complete(&rig);
	assert_int_equal(fired(&rig, 1), 1);
	complete(&rig);
	assert_int_equal(fired(&rig, 1), 0);

	/* two are there, one is consumed: arming fires at once */
	arm(&rig, &rig.a.scq, false);
	assert_int_equal(fired(&rig, 1), 1);
	complete(&rig);
	assert_int_equal(fired(&rig, 1), 0);
	drain(&rig, &rig.a.scq, 3);

	/* no ARM bit: nothing */
	ea_db_cq(rig.dev, 1ull << 32 | rig.a.scq.ci);
	complete(&rig);
	assert_int_equal(fired(&rig, 1), 0);
	rig_close(&rig);
}

static void solicited_only(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);

	/* a plain one does not fire, nor is it seen at arming */
	arm(&rig, &rig.a.scq, true);
	complete(&rig);
	assert_int_equal(fired(&rig, 1), 0);
	arm(&rig, &rig.a.scq, true);
	assert_int_equal(fired(&rig, 1), 0);
	/* widened to any: it is */
	arm(&rig, &rig.a.scq, false);
	assert_int_equal(fired(&rig, 1), 1);
	drain(&rig, &rig.a.scq, 1);

	/* any, then solicited: stays any */
	arm(&rig, &rig.a.scq, false);
	arm(&rig, &rig.a.scq, true);
	complete(&rig);
	assert_int_equal(fired(&rig, 1), 1);
	drain(&rig, &rig.a.scq, 1);

	/* an error is solicited, whether it comes after the arming or before */
	arm(&rig, &rig.a.scq, true);
	put_write_inline(&rig.a, OP_WRITE, 0, "x", 1, 0, 0, 0);
	ring_sq(&rig.a);
	assert_int_equal(ea_qp_modify(rig.dev, 1, EA_QP_ERROR), 0);
	assert_int_equal(fired(&rig, 1), 1);
	arm(&rig, &rig.a.scq, true);
	assert_int_equal(fired(&rig, 1), 1);
	drain(&rig, &rig.a.scq, 1);
	arm(&rig, &rig.a.scq, true);
	assert_int_equal(fired(&rig, 1), 0);
	rig_close(&rig);
}

/* A solicited entry behind or before CI, with plain ones around it. */
static void solicited_position(void **state)
{
	struct rig rig;
	struct wc wc;
	int consumed;

	(void)state;
	for (consumed = 0; consumed < 4; consumed++) {
		int i;

		rig_open(&rig, false);
		rig_connect(&rig, 1, 1);
		for (i = 0; i < 3; i++)
			put_recv(&rig.b, 0, 0, 0);
		put_send(&rig.a, OP_SEND, 0, NULL, 0, 0);
		put_send(&rig.a, OP_SEND, F_SE, NULL, 0, 0);
		put_send(&rig.a, OP_SEND, 0, NULL, 0, 0);
		ring_sq(&rig.a);
		pump(&rig);
		for (i = 0; i < consumed; i++)
			assert_true(poll(&rig, &rig.b.rcq, &wc));
		arm(&rig, &rig.b.rcq, true);
		assert_int_equal(fired(&rig, rig.b.rcq.cqn), consumed < 2);
		rig_close(&rig);
	}
}

/* The doorbell carries 24 bits of CI. */
static void ci_wraps(void **state)
{
	struct rig rig;
	uint64_t i;

	(void)state;
	rig_open(&rig, false);
	rig_connect(&rig, 1, 1);
	/* a QP of its own in error flushes fast: each doorbell makes up to 64 CQEs */
	assert_int_equal(ea_qp_modify(rig.dev, 1, EA_QP_ERROR), 0);
	for (i = 0; i < 64; i++)
		put_send(&rig.a, OP_SEND, 0, NULL, 0, 0);
	for (i = 0; i < (1u << 24) - 64; i += 64) {
		rig.a.sq_pi = (uint16_t)(i + 64);
		ring_sq(&rig.a);
	}
	rig.a.scq.ci = (1u << 24) - 64;
	arm(&rig, &rig.a.scq, false);
	assert_int_equal(fired(&rig, 1), 0);
	rig.a.sq_pi = 0;
	ring_sq(&rig.a);
	assert_int_equal(fired(&rig, 1), 1);
	arm(&rig, &rig.a.scq, false);
	assert_int_equal(fired(&rig, 1), 1);
	arm(&rig, &rig.a.scq, true);
	assert_int_equal(fired(&rig, 1), 1);
	rig.a.scq.ci = 1u << 24;
	arm(&rig, &rig.a.scq, false);
	arm(&rig, &rig.a.scq, true);
	assert_int_equal(fired(&rig, 1), 0);
	rig_close(&rig);
}

static void memory_gone(void **state)
{
	struct rig rig;
	int i;

	(void)state;
	rig_open(&rig, true);
	rig_connect(&rig, 1, 1);
	for (i = 0; i < 127; i++)
		complete(&rig);
	rig.fail_at = rig.a.scq.ring + PAGE;
	ea_dev_memory_changed(rig.dev);
	complete(&rig);
	assert_int_equal(asyncs(&rig, EA_ASYNC_CQ_ERR, 1), 0);
	complete(&rig);
	complete(&rig);
	assert_int_equal(asyncs(&rig, EA_ASYNC_CQ_ERR, 1), 1);
	rig.fail_at = 0;
	drain(&rig, &rig.a.scq, 128);
	rig_close(&rig);
}

static void create_checks(void **state)
{
	struct ea_cq_attr attr = { .cqn = 20, .depth_shift = 7 };
	struct rig rig;
	uint64_t ring;

	(void)state;
	rig_open(&rig, false);
	ring = rig_alloc(&rig, 3 * PAGE);
	attr.pages = flat(ring);

	attr.cqn = 0;
	assert_int_equal(ea_cq_create(rig.dev, &attr), EINVAL);
	attr.cqn = 512;
	assert_int_equal(ea_cq_create(rig.dev, &attr), EINVAL);
	attr.cqn = 1;
	assert_int_equal(ea_cq_create(rig.dev, &attr), EEXIST);
	attr.cqn = 20;
	attr.depth_shift = 21;
	assert_int_equal(ea_cq_create(rig.dev, &attr), EINVAL);
	attr.depth_shift = 7;
	attr.pages = flat(ring + 4);
	assert_int_equal(ea_cq_create(rig.dev, &attr), EINVAL);
	attr.pages = flat(UINT64_MAX - 4095);
	assert_int_equal(ea_cq_create(rig.dev, &attr), 0);
	assert_int_equal(ea_cq_destroy(rig.dev, 20), 0);
	attr.pages = flat(UINT64_MAX - 4087);
	assert_int_equal(ea_cq_create(rig.dev, &attr), EINVAL);

	/* one page holds 128 entries, from offset 32 on only 127 */
	attr.pages = (struct ea_pages){
		.form = EA_PAGES_INLINE, .page_shift = 12, .npages = 1, .addr = { ring }
	};
	assert_int_equal(ea_cq_create(rig.dev, &attr), 0);
	assert_int_equal(ea_cq_destroy(rig.dev, 20), 0);
	attr.pages.first_off = 32;
	assert_int_equal(ea_cq_create(rig.dev, &attr), EINVAL);
	attr.pages.npages = 2;
	attr.pages.addr[1] = ring + PAGE;
	assert_int_equal(ea_cq_create(rig.dev, &attr), 0);
	assert_int_equal(ea_cq_destroy(rig.dev, 20), 0);
	attr.pages.first_off = 33;
	assert_int_equal(ea_cq_create(rig.dev, &attr), EINVAL);
	attr.pages.first_off = UINT64_MAX - 31;
	assert_int_equal(ea_cq_create(rig.dev, &attr), EINVAL);
	attr.pages.first_off = 0;
	attr.pages.npages = 5;
	assert_int_equal(ea_cq_create(rig.dev, &attr), EINVAL);
	attr.pages.npages = 0;
	assert_int_equal(ea_cq_create(rig.dev, &attr), EINVAL);
	attr.pages.npages = 2;
	attr.pages.page_shift = 11;
	assert_int_equal(ea_cq_create(rig.dev, &attr), EINVAL);
	attr.pages.page_shift = 31;
	assert_int_equal(ea_cq_create(rig.dev, &attr), EINVAL);
	attr.pages.page_shift = 12;
	attr.pages.form = 17;
	assert_int_equal(ea_cq_create(rig.dev, &attr), EINVAL);

	assert_int_equal(ea_cq_destroy(rig.dev, 20), ENOENT);
	assert_int_equal(ea_cq_destroy(rig.dev, 0), ENOENT);
	assert_int_equal(ea_cq_destroy(rig.dev, UINT32_MAX), ENOENT);
	assert_int_equal(ea_cq_destroy(rig.dev, 1), EBUSY);
	assert_int_equal(ea_qp_destroy(rig.dev, 1), 0);
	assert_int_equal(ea_cq_destroy(rig.dev, 1), 0);
	/* its number is dead */
	arm(&rig, &rig.a.scq, false);
	rig_close(&rig);
}

/* One CQ for both queues of two QPs. */
static void shared(void **state)
{
	struct ea_qp_attr attr = { .pdn = PD, .scqn = 30, .rcqn = 30, .sq_shift = 6, .rq_shift = 4 };
	struct ea_conn_attr conn = { .ord = 1, .ird = 1 };
	struct rig rig;
	struct qp *qps[2];
	struct cq cq;
	struct wc wc;
	uint32_t seen = 0;
	int i;

	(void)state;
	rig_open(&rig, false);
	cq_open(&rig, &cq, 30, 6);
	qps[0] = &rig.a;
	qps[1] = &rig.b;
	for (i = 0; i < 2; i++) {
		assert_int_equal(ea_qp_destroy(rig.dev, i + 1), 0);
		attr.qpn = i + 1;
		attr.sq = flat(qps[i]->sq);
		attr.rq = flat(qps[i]->rq);
		assert_int_equal(ea_qp_create(rig.dev, &attr), 0);
		assert_int_equal(ea_qp_connect(rig.dev, i + 1, &qps[i]->side.link, &conn), 0);
	}
	for (i = 0; i < 2; i++) {
		put_recv(qps[i], 0, 0, 0);
		put_send(qps[i], OP_SEND, F_CE, NULL, 0, 0);
		ring_sq(qps[i]);
	}
	pump(&rig);
	while (poll(&rig, &cq, &wc)) {
		assert_int_equal(wc.syn, 0);
		seen |= 1u << (wc.qpn * 2 + wc.qtype);
	}
	assert_int_equal(seen, 0x3c);
	assert_int_equal(ea_cq_destroy(rig.dev, 30), EBUSY);
	assert_int_equal(ea_qp_destroy(rig.dev, 1), 0);
	assert_int_equal(ea_cq_destroy(rig.dev, 30), EBUSY);
	assert_int_equal(ea_qp_destroy(rig.dev, 2), 0);
	assert_int_equal(ea_cq_destroy(rig.dev, 30), 0);
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(owner_laps),	  cmocka_unit_test(fire_once),
		cmocka_unit_test(solicited_only), cmocka_unit_test(solicited_position),
		cmocka_unit_test(ci_wraps),	  cmocka_unit_test(memory_gone),
		cmocka_unit_test(create_checks),  cmocka_unit_test(shared),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
