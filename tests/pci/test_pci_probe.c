// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * From power-up to the first RDMA WRITE, step by step as two kernels do it, with every value that is
 * visible on the bus.
 */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <unistd.h>

#include "tests/pci/driver.h"

static uint32_t be_at(struct vm *vm, uint64_t addr)
{
	uint32_t v;

	memcpy(&v, vm_at(vm, addr), 4);
	return be32toh(v);
}

static uint64_t le_at(struct vm *vm, uint64_t addr)
{
	uint64_t v;

	memcpy(&v, vm_at(vm, addr), 8);
	return le64toh(v);
}

/* The values of one kernel; 4 CEQs as a guest with 4 processors has. */
struct column {
	enum drv_kind kind;
	uint64_t create_eq1, query_device, query_fw;
	uint32_t step; /* blocks of a command */
};

static const struct column columns[] = {
	{ DRV_61, 0x0010000001000002, 0x001000000000000a, 0x001000000102000c, 2 },
	{ DRV_72, 0x0030000001000004, 0x0030000000000014, 0x0030000001020018, 4 },
};

static void check_identity(struct vm *vm)
{
	uint8_t config[256];
	uint32_t i, bars[6];

	vm_read(vm, VM_CONFIG, 0, config, sizeof(config));
	assert_int_equal(config[0] | config[1] << 8, 0x1ded);
	assert_int_equal(config[2] | config[3] << 8, 0x107f);
	assert_int_equal(config[0x0e], 0); /* header type */
	assert_int_equal(config[0x3d], 0); /* no INTx */
	memcpy(bars, config + 0x10, sizeof(bars));
	assert_int_equal(bars[0] & 0xf, 4); /* memory, 64 bits, not prefetchable */
	assert_int_equal(bars[2] & 0xf, 4);
	for (i = 1; i < 6; i += i == 1 ? 2 : 1)
		assert_int_equal(bars[i], 0);
	memcpy(&i, config + 0x30, sizeof(i)); /* no ROM */
	assert_int_equal(i, 0);
	assert_true(config[6] & 0x10);
	i = config[0x34];
	assert_int_equal(config[i], 0x11);
	assert_int_equal(config[i + 1], 0); /* the only capability */
	assert_int_equal((config[i + 2] | config[i + 3] << 8) & 0x7ff, 31);
	assert_int_equal(config[i + 4], 2); /* table: BAR 2, offset 0 */
	assert_int_equal(config[i + 8] | config[i + 9] << 8,
			 0x802); /* pending bits: BAR 2, 0x800 */
}

static void check_probe(struct vm *vm, struct drv *d, const struct column *c)
{
	uint32_t n, cq = 0;
	uint64_t eqe;

	/* CREATE_EQ 1..4: completions on the first lap, no event: the command CQ is not armed yet */
	assert_int_equal(le_at(vm, d->csq), c->create_eq1);
	for (n = 0; n < DRV_CEQS; n++, cq++) {
		assert_int_equal(be_at(vm, d->ccq + cq * 32), 0x80000200);
		assert_int_equal(be_at(vm, d->ccq + cq * 32 + 4), n * c->step);
	}
	assert_int_equal(le_at(vm, d->csq + 4 * c->step * 32), c->query_device);
	assert_int_equal(be_at(vm, d->ccq + cq * 32 + 4), 4 * c->step);
	eqe = le_at(vm, d->ceq0);
	assert_int_equal(eqe & 0x800fffff, 0x80000000); /* owner of lap 0, CQN 0 */
	/* QUERY_DEVICE: word 0 at 8 (low), 12 (high), word 1 at 16, 20 */
	assert_int_equal(be_at(vm, d->ccq + cq * 32 + 12) >> 8 & 0xff, 20);  /* CQEs 2^20 */
	assert_int_equal(be_at(vm, d->ccq + cq * 32 + 8) >> 16 & 0xff, 15);  /* receive WRs */
	assert_true(be_at(vm, d->ccq + cq * 32 + 8) >> 24 & 0x08);	     /* EXTEND_DB */
	assert_int_equal(be_at(vm, d->ccq + cq * 32 + 16) >> 16 & 0xfff, 4); /* QBLOCK */
	assert_int_equal(be_at(vm, d->ccq + cq * 32 + 16) >> 28, 1);	     /* CUBIC */
	assert_int_equal(be_at(vm, d->ccq + cq * 32 + 20), 0xffffff00);	     /* local key */
	cq++;
	assert_int_equal(le_at(vm, d->csq + 5 * c->step * 32), c->query_fw);
	assert_int_equal(be_at(vm, d->ccq + cq * 32 + 4), 5 * c->step);
	assert_int_not_equal(be_at(vm, d->ccq + cq * 32 + 8), 0);
	assert_int_equal(le_at(vm, d->ceq0 + 16) & 0x800fffff, 0x80000000);

	assert_int_equal(vm_r32(vm, 0x18), 0x00123456);
	assert_int_equal(vm_r32(vm, 0x1c), 0x00005254);
}

static void check_stats(struct vm *vm, struct drv *d)
{
	uint64_t buf = vm_alloc(vm, 256);
	uint8_t body[24] = { 0 };
	uint32_t len = 256;
	uint16_t magic;

	memset(vm_at(vm, buf), 0xee, 256);
	memcpy(body + 8, &buf, 8);
	memcpy(body + 16, &len, 4);
	assert_int_equal(drv_cmd(d, 1, 4, body, sizeof(body)), 0);
	memcpy(&magic, vm_at(vm, buf), 2);
	assert_int_equal(magic, 0x5566);
	assert_int_equal(le_at(vm, buf + 16), 0);
}

static void first_write(struct vm *vm, struct drv *d, const struct column *c)
{
	struct drv_cq cq;
	struct drv_qp qp[2];
	struct drv_wc wc;
	uint64_t from = vm_alloc(vm, 4096), to = vm_alloc(vm, 4096);
	uint32_t cqn, i;

	for (i = 0; i < 4096; i++)
		((uint8_t *)vm_at(vm, from))[i] = (uint8_t)(i * 7 + 1);
	assert_int_equal(drv_create_cq(d, &cq, 1, 6, 1, true), 0);
	drv_arm_cq(&cq, false);
	assert_int_equal(drv_reg_mr(d, 0x100, 1, from, 4096, DRV_ALL), 0);
	assert_int_equal(drv_reg_mr(d, 0x200, 1, to, 4096, DRV_ALL), 0);
	assert_int_equal(drv_create_qp(d, &qp[0], 1, 1, &cq, &cq, true), 0);
	assert_int_equal(drv_create_qp(d, &qp[1], 2, 1, &cq, &cq, true), 0);
	assert_int_not_equal(qp[0].cookie, qp[1].cookie);
	drv_connect(&qp[0], &qp[1]);
	assert_int_equal(vm_irqs(vm, 1, 0), 0);
	drv_post(&qp[0], &(struct drv_wr){ .op = WR_WRITE,
					   .len = 4096,
					   .lkey = 0x100,
					   .addr = from,
					   .rkey = 0x200,
					   .raddr = to });
	assert_true(drv_poll(&cq, &wc, DRV_WAIT_MS));
	assert_int_equal(be_at(vm, cq.ring), 0x80000000);
	assert_int_equal(be_at(vm, cq.ring + 4), 0);
	assert_int_equal(be_at(vm, cq.ring + 8), 1);
	assert_int_equal(be_at(vm, cq.ring + 16), 4096);
	/* complete means sent; it arrives a moment later */
	for (i = 0; i < DRV_WAIT_MS && memcmp(vm_at(vm, from), vm_at(vm, to), 4096); i++)
		vm_idle(vm, 1000);
	assert_memory_equal(vm_at(vm, from), vm_at(vm, to), 4096);
	/* the event: CQN 1, owner of lap 0, and vector 1 */
	assert_int_equal(vm_irqs(vm, 1, DRV_WAIT_MS), 1);
	assert_int_equal(le_at(vm, d->ceq[1]), 0x0000000180000001);
	assert_true(drv_ceqe(d, 1, &cqn));
	assert_int_equal(cqn, 1);
	drv_arm_ceq(d, 1);
	assert_int_equal(vm_irqs(vm, 1, 50), 0);
	(void)c;
}

static void run_column(const struct column *c)
{
	struct server s;
	struct vm vm;
	struct drv d;

	server_start(&s, 1, NULL);
	vm_open(&vm, &s, 0);
	check_identity(&vm);
	drv_probe(&d, &vm, c->kind);
	check_probe(&vm, &d, c);
	if (c->kind == DRV_72)
		check_stats(&vm, &d);
	first_write(&vm, &d, c);
	drv_reset(&d);
	assert_int_equal(vm_r32(&vm, 0x14) & 3, 1);
	vm_close(&vm);
	server_stop(&s);
}

static void test_linux_61(void **state)
{
	(void)state;
	run_column(&columns[0]);
}

static void test_linux_72(void **state)
{
	(void)state;
	run_column(&columns[1]);
}

/* Deferred probes, module reloads, guests that come back with and without RESET. */
static void test_again_and_again(void **state)
{
	struct server s;
	struct vm vm;
	struct drv d;
	int i;

	(void)state;
	server_start(&s, 1, NULL);
	vm_open(&vm, &s, 0);
	for (i = 0; i < 12; i++) {
		vm.used = 0;
		drv_probe(&d, &vm, i % 2 ? DRV_72 : DRV_61);
		first_write(&vm, &d, &columns[i % 2]);
		if (i % 3 == 0)
			drv_reset(&d);
		else if (i % 3 == 1)
			assert_int_equal(vm_call(&vm, 13, NULL, 0, &(struct vm_reply){ 0 }), 0);
	}
	vm_close(&vm);
	server_stop(&s);
}

/* No interrupt before INIT, none after RESET; a long run of commands wraps all rings. */
static void test_many_commands(void **state)
{
	struct server s;
	struct vm vm;
	struct drv d;
	int kind, i;

	(void)state;
	server_start(&s, 1, NULL);
	vm_open(&vm, &s, 0);
	for (kind = DRV_61; kind <= DRV_72; kind++) {
		vm.used = 0;
		vm_wire(&vm, 0);
		vm_w64(&vm, 0x300, 1ull << 31);
		vm_w64(&vm, 0x200, 2);
		assert_int_equal(vm_irqs(&vm, 0, 20), 0);
		drv_probe(&d, &vm, (enum drv_kind)kind);
		for (i = 0; i < (vm_keeps_memory ? 100 : 1500); i++)
			assert_int_equal(drv_cmd(&d, 1, 2, NULL, 0), 0);
		drv_reset(&d);
		vm_w64(&vm, 0x200, (uint16_t)(d.csq_pi + d.slot));
		vm_w64(&vm, 0x300, 1ull << 31);
		vm_w64(&vm, 0x100, 1ull << 31);
		assert_int_equal(vm_irqs(&vm, 0, 20), 0);
	}
	vm_close(&vm);
	server_stop(&s);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_linux_61),
		cmocka_unit_test(test_linux_72),
		cmocka_unit_test(test_again_and_again),
		cmocka_unit_test(test_many_commands),
	};

	vm_maps_doorbells = MAPPED;
	vm_keeps_memory = FAR;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
