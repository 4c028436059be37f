// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Creation without memory: ENOMEM, nothing left behind, and all well when tried again. */
#include "tests/core/rig.h"

/* Allocations until one fails; negative: none does. */
static int fail_after = -1;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	if (fail_after >= 0 && fail_after-- == 0) {
		errno = ENOMEM;
		return NULL;
	}
	return __real_calloc(n, size);
}

static void device(void **state)
{
	static const struct ea_dev_attr attr = { .max_qp = 2, .max_cq = 2, .max_mr = 2 };
	int i;

	(void)state;
	for (i = 0; i < 4; i++) {
		fail_after = i;
		errno = 0;
		assert_null(ea_dev_create(&attr, NULL, NULL, NULL));
		assert_int_equal(errno, ENOMEM);
	}
	fail_after = -1;
	ea_dev_destroy(ea_dev_create(&attr, NULL, NULL, NULL));
}

static void objects(void **state)
{
	struct ea_cq_attr cq = { .cqn = 40, .depth_shift = 4 };
	struct ea_qp_attr qp = { .qpn = 40, .scqn = 40, .rcqn = 40 };
	struct ea_mr_attr mr = { .stag = 40 << 8 };
	struct rig rig;
	int i;

	(void)state;
	rig_open(&rig, false);
	cq.pages = qp.sq = qp.rq = mr.pages = flat(rig_alloc(&rig, PAGE));

	fail_after = 0;
	assert_int_equal(ea_cq_create(rig.dev, &cq), ENOMEM);
	assert_int_equal(ea_cq_create(rig.dev, &cq), 0);
	for (i = 0; i < 4; i++) {
		fail_after = i;
		assert_int_equal(ea_qp_create(rig.dev, &qp), ENOMEM);
		assert_null(ea_qp_find(rig.dev, 40));
		assert_int_equal(ea_cq_destroy(rig.dev, 40), 0);
		assert_int_equal(ea_cq_create(rig.dev, &cq), 0);
	}
	assert_int_equal(ea_qp_create(rig.dev, &qp), 0);
	fail_after = 0;
	assert_int_equal(ea_mr_reg(rig.dev, &mr), ENOMEM);
	assert_int_equal(ea_mr_reg(rig.dev, &mr), 0);
	rig_close(&rig);
}

/* Nothing but creation allocates: traffic, errors and flushing run with no memory left. */
static void traffic(void **state)
{
	struct rig rig;
	struct sge sge;
	int i;

	(void)state;
	rig_open(&rig, true);
	rig_connect(&rig, 8, 8);
	fail_after = 0;
	for (i = 0; i < 10; i++) {
		sge = (struct sge){ rig.a.data, 5000, rig.a.key };
		put_recv(&rig.b, rig.b.data, 5000, rig.b.key);
		put_send(&rig.a, OP_SEND, F_CE, &sge, 1, 0);
		put_read(&rig.a, OP_READ, F_CE, sge, rig.b.key, rig.b.data, 0);
		sge.len = 8;
		put_atomic(&rig.a, OP_FAA, F_CE, sge, rig.b.key, rig.b.data, 1, 0);
		put_write(&rig.a, OP_WRITE, F_CE, &sge, 1, i == 9 ? 0 : rig.b.key, rig.b.data, 0);
		ring_sq(&rig.a);
		pump(&rig);
	}
	assert_int_equal(ea_qp_state(ea_qp_find(rig.dev, 1)), EA_QP_ERROR);
	/* the trap is still set */
	assert_int_equal(fail_after, 0);
	fail_after = -1;
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(device),
		cmocka_unit_test(objects),
		cmocka_unit_test(traffic),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
