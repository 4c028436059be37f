// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Accesses to memory that goes away: every size at every place, right up to a page that is not there. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <cmocka.h>

#include "adapter/core/umem.h"

enum {
	SIZES = 300,
	PLACES = 32,
	ROOM = SIZES + 2 * PLACES,
	PATTERN = 0xa5,
};

static void on_fault(int sig, siginfo_t *info, void *ctx)
{
	ucontext_t *uc = ctx;
	uintptr_t pc = 0;

	(void)info;
#ifdef __x86_64__
	pc = (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];
#endif
	if (!ea_umem_recover(&pc)) {
		signal(sig, SIG_DFL);
		return;
	}
#ifdef __x86_64__
	uc->uc_mcontext.gregs[REG_RIP] = (greg_t)pc;
#endif
}

/* In each test: the test library has handlers of its own. */
static void catch_faults(void)
{
	struct sigaction act = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER };

	sigemptyset(&act.sa_mask);
	assert_int_equal(sigaction(SIGSEGV, &act, NULL), 0);
	assert_int_equal(sigaction(SIGBUS, &act, NULL), 0);
}

static void copies(void **state)
{
	static uint8_t from[ROOM], to[ROOM], want[ROOM];
	size_t len, in, out, i;

	(void)state;
	catch_faults();
	for (i = 0; i < ROOM; i++)
		from[i] = (uint8_t)(i * 7 + 1);
	for (len = 0; len <= SIZES; len++) {
		for (in = 0; in < PLACES; in += 5) {
			for (out = 0; out < PLACES; out += 3) {
				memset(to, PATTERN, sizeof(to));
				memset(want, PATTERN, sizeof(want));
				for (i = 0; i < len; i++)
					want[out + i] = from[in + i];
				assert_true(ea_umem_copy(to + out, from + in, len));
				assert_memory_equal(to, want, sizeof(to));
			}
		}
	}
}

/* A page, and none before and behind it. */
static uint8_t *lone_page(size_t page)
{
	uint8_t *p = mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	assert_int_equal(mprotect(p + page, page, PROT_READ | PROT_WRITE), 0);
	return p + page;
}

static void faults(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), len, beyond;
	uint8_t *a = lone_page(page), other[SIZES] = {};

	(void)state;
	catch_faults();
	for (len = 1; len <= SIZES; len++) {
		assert_true(ea_umem_copy(a + page - len, other, len));
		assert_true(ea_umem_copy(other, a + page - len, len));
		assert_true(ea_umem_copy(a, other, len));
		for (beyond = 1; beyond <= len; beyond += beyond < 20 ? 1 : 17) {
			assert_false(ea_umem_copy(a + page - len + beyond, other, len));
			assert_false(ea_umem_copy(other, a + page - len + beyond, len));
			assert_false(ea_umem_copy(a - beyond, other, len));
			assert_false(ea_umem_copy(other, a - beyond, len));
		}
	}
	/* nothing is touched for nothing */
	assert_true(ea_umem_copy(a + page, other, 0));
	/* memory that may only be read */
	assert_int_equal(mprotect(a, page, PROT_READ), 0);
	assert_false(ea_umem_copy(a, other, 8));
	assert_true(ea_umem_copy(other, a, 8));
	munmap(a - page, 3 * page);
}

static void past_the_end_of_a_file(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd = memfd_create("short", MFD_CLOEXEC);
	uint8_t *p, other[64] = {};

	(void)state;
	catch_faults();
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)page), 0);
	p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	assert_true(ea_umem_copy(p + page - sizeof(other), other, sizeof(other)));
	assert_false(ea_umem_copy(p + page - 1, other, sizeof(other)));
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_false(ea_umem_copy(p, other, 1));
	munmap(p, 2 * page);
	close(fd);
}

static void compare_and_swap(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *a = lone_page(page);
	uint64_t *p = (uint64_t *)a, old = 1;

	(void)state;
	catch_faults();
	*p = 5;
	assert_true(ea_umem_cmpxchg(p, &old, 9));
	assert_int_equal(old, 5);
	assert_int_equal(*p, 5);
	assert_true(ea_umem_cmpxchg(p, &old, 9));
	assert_int_equal(old, 5);
	assert_int_equal(*p, 9);
	assert_false(ea_umem_cmpxchg((uint64_t *)(a + page), &old, 1));
	assert_false(ea_umem_cmpxchg((uint64_t *)(a - 8), &old, 1));
	munmap(a - page, 3 * page);
}

/* Code of others is not recovered. */
static void other_code(void **state)
{
	uintptr_t pc = (uintptr_t)other_code, before = pc;

	(void)state;
	catch_faults();
	assert_false(ea_umem_recover(&pc));
	assert_int_equal(pc, before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies),
		cmocka_unit_test(faults),
		cmocka_unit_test(past_the_end_of_a_file),
		cmocka_unit_test(compare_and_swap),
		cmocka_unit_test(other_code),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
