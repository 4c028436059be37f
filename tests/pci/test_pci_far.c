// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory that the server must ask for: in which order it writes, and clients that answer late, wrongly or never.  That
 * all the rest works there as well is shown by the other tests on such memory.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <unistd.h>

#include "tests/pci/driver.h"

enum {
	QUERY_FW = 2,
	READ = 11,
	WRITE = 12,
};

static uint32_t read_version(struct vm *vm)
{
	return vm_r32(vm, 0);
}

/* A machine that waits for a command; its first question is not answered. */
static void ask_nothing(struct vm *vm, struct drv *d, struct vm_dma *dma)
{
	drv_probe(d, vm, DRV_72);
	vm->by_hand = true;
	drv_put_cmd(d, 1, QUERY_FW, NULL, 0);
	vm_w64(vm, 0x200, d->csq_pi);
	assert_true(vm_next_dma(vm, dma, DRV_WAIT_MS));
	assert_int_equal(dma->command, READ);
}

/* Another machine is served meanwhile. */
static void other_works(const struct server *s)
{
	struct vm vm;
	struct drv d;

	vm_keeps_memory = false;
	vm_open(&vm, s, 1);
	drv_probe(&d, &vm, DRV_61);
	vm_close(&vm);
	vm_keeps_memory = true;
}

static bool covers(const struct vm_dma *dma, uint64_t addr, uint64_t len)
{
	return dma->addr < addr + len && addr < dma->addr + dma->count;
}

/* Data, completion, event, and when the client has them all the interrupt. */
static void test_order(void **state)
{
	struct server s;
	struct vm vm;
	struct drv d;
	struct drv_cq cq;
	struct drv_qp qp[2];
	struct vm_dma dma;
	uint64_t buf;
	bool data = false, rest = false, head = false, event = false;

	(void)state;
	server_start(&s, 1, NULL);
	vm_open(&vm, &s, 0);
	drv_probe(&d, &vm, DRV_72);
	buf = vm_alloc(&vm, 2 * 8192);
	memset(vm_at(&vm, buf), 0x5a, 8192);
	assert_int_equal(drv_create_cq(&d, &cq, 1, 4, 1, true), 0);
	assert_int_equal(drv_reg_mr(&d, 0x100, 1, buf, 2 * 8192, DRV_ALL), 0);
	assert_int_equal(drv_create_qp(&d, &qp[0], 1, 1, &cq, &cq, true), 0);
	assert_int_equal(drv_create_qp(&d, &qp[1], 2, 1, &cq, &cq, true), 0);
	drv_connect(&qp[0], &qp[1]);
	drv_arm_cq(&cq, false);
	drv_post(&qp[0], &(struct drv_wr){ .op = 0,
					   .len = 5000,
					   .lkey = 0x100,
					   .addr = buf,
					   .rkey = 0x100,
					   .raddr = buf + 8192 });
	vm.by_hand = true;
	while (!event) {
		assert_true(vm_next_dma(&vm, &dma, DRV_WAIT_MS));
		if (dma.command == WRITE) {
			if (covers(&dma, buf + 8192, 8192)) {
				assert_false(rest || head);
				data = dma.addr + dma.count == buf + 8192 + 5000;
			} else if (covers(&dma, cq.ring, 8)) {
				assert_true(data && rest);
				head = true;
			} else if (covers(&dma, cq.ring, 32)) {
				assert_true(data && !head);
				rest = true;
			} else if (covers(&dma, d.ceq[1], 8)) {
				assert_true(head);
				event = true;
			} else {
				fail_msg("a write to %#llx", (unsigned long long)dma.addr);
			}
		}
		assert_int_equal(vm_irqs(&vm, 1, event ? 50 : 0), 0);
		vm_answer(&vm, &dma, 0);
	}
	vm.by_hand = false;
	assert_int_equal(vm_irqs(&vm, 1, DRV_WAIT_MS), 1);
	assert_memory_equal(vm_at(&vm, buf), vm_at(&vm, buf + 8192), 5000);
	vm_close(&vm);
	server_stop(&s);
}

/* Registers, messages and other functions do not wait for an answer. */
static void test_never_answers(void **state)
{
	struct vm_reply reply;
	struct vm_dma dma;
	struct server s;
	struct vm vm;
	struct drv d;

	(void)state;
	server_start(&s, 2, NULL);
	vm_open(&vm, &s, 0);
	ask_nothing(&vm, &d, &dma);
	vm.far = false; /* what comes now is an answer to us */
	assert_int_not_equal(read_version(&vm), 0);
	other_works(&s);
	/* doorbells without end */
	for (uint32_t i = 0; i < 5000; i++)
		vm_w64(&vm, 0x5f000, (uint64_t)(i % 3000) << 32 | i);
	/* a reset does not wait either, and a new start finds the client as it is */
	drv_reset(&d);
	assert_int_equal(vm_r32(&vm, 0x14), 1);
	vm_answer(&vm, &dma, 0); /* too late, and no harm */
	assert_int_equal(vm_call(&vm, 13, NULL, 0, &reply), 0);
	vm.far = true;
	vm.by_hand = false;
	drv_probe(&d, &vm, DRV_61);
	vm_close(&vm);
	server_stop(&s);
}

/* An unmap is answered at once, whatever is under way. */
static void test_unmap(void **state)
{
	struct vm_dma dma;
	struct server s;
	struct vm vm;
	struct drv d;

	(void)state;
	server_start(&s, 1, NULL);
	vm_open(&vm, &s, 0);
	ask_nothing(&vm, &d, &dma);
	vm.far = false;
	assert_int_equal(vm_dma_unmap(&vm, VM_BUS, VM_MEM), 0);
	assert_int_equal(vm_dma_map(&vm, VM_BUS, VM_MEM, -1, 0, 3), 0);
	/* the command was lost, and the queue with it */
	vm_answer(&vm, &dma, 0);
	vm.far = true;
	vm.by_hand = false;
	drv_reset(&d);
	drv_probe(&d, &vm, DRV_72);
	/* with descriptors all the same: no question any more */
	vm.by_hand = true;
	drv_put_cmd(&d, 1, QUERY_FW, NULL, 0);
	vm_w64(&vm, 0x200, d.csq_pi);
	assert_true(vm_next_dma(&vm, &dma, DRV_WAIT_MS));
	vm.far = false;
	assert_int_equal(vm_dma_unmap(&vm, VM_BUS, VM_MEM), 0);
	assert_int_equal(vm_dma_map(&vm, VM_BUS, VM_MEM, vm.memfd, 0, 3), 0);
	drv_reset(&d);
	drv_probe(&d, &vm, DRV_61);
	/* an old one may still be answered */
	vm_answer(&vm, &dma, 0);
	assert_int_equal(drv_cmd(&d, 1, QUERY_FW, NULL, 0), 0);
	vm_close(&vm);
	server_stop(&s);
}

/* The client says no, says nonsense, or dies. */
static void test_bad_answers(void **state)
{
	enum {
		REFUSED,
		ADDRESS,
		LENGTH,
		ID,
		TWICE,
		DIES,
		KINDS
	};
	struct vm_reply reply;
	struct vm_dma dma, wrong;
	struct server s;
	struct vm vm;
	struct drv d;
	int kind;

	(void)state;
	server_start(&s, 2, NULL);
	for (kind = 0; kind < KINDS; kind++) {
		vm_open(&vm, &s, 0);
		ask_nothing(&vm, &d, &dma);
		wrong = dma;
		switch (kind) {
		case REFUSED:
			vm_answer(&vm, &dma, EFAULT);
			vm.far = false;
			assert_int_not_equal(read_version(&vm), 0);
			assert_int_equal(vm_call(&vm, 13, NULL, 0, &reply), 0);
			vm.far = true;
			vm.by_hand = false;
			drv_probe(&d, &vm, DRV_61);
			break;
		case ADDRESS:
			wrong.addr += 4096;
			vm_answer(&vm, &wrong, 0);
			assert_true(vm_is_closed(&vm));
			break;
		case LENGTH:
			wrong.count--;
			vm_answer(&vm, &wrong, 0);
			assert_true(vm_is_closed(&vm));
			break;
		case ID:
			wrong.id += 7;
			vm_answer(&vm, &wrong, 0);
			assert_true(vm_is_closed(&vm));
			break;
		case TWICE:
			vm_answer(&vm, &dma, 0);
			vm_answer(&vm, &dma, 0);
			/* the next question may be under way */
			while (vm_next_dma(&vm, &wrong, 100))
				;
			break;
		}
		vm_close(&vm);
		other_works(&s);
	}
	server_stop(&s);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_never_answers),
		cmocka_unit_test(test_unmap),
		cmocka_unit_test(test_bad_answers),
	};

	vm_keeps_memory = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
