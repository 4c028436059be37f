// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory regions: sizes past 4 GiB and large pages, exact bounds, every wrong key, domain and right
 * told apart, and an end of access that takes effect at once.
 */
#include <errno.h>
#include <sys/mman.h>
#include "tests/accept/harness.h"

#define GIB (1ull << 30)

enum {
	PAGE = 4096,
	TWO_MIB = 2 << 20,
	LINE = 64,
	/* vendor_err of the device for a fault at the responder and in a local region */
	ERR_REMOTE_STAG = 2,
	ERR_REMOTE_ADDR,
	ERR_REMOTE_RIGHT,
	ERR_REMOTE_PD,
	ERR_REMOTE_WRAP,
	ERR_LOCAL_STAG = 0x30,
	ERR_LOCAL_ADDR,
	ERR_LOCAL_RIGHT,
	ERR_LOCAL_PD,
	ERR_LOCAL_WRAP,
};

static void *map(size_t len, int flags)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* A fault ends its connection, so each case has a pair of its own. */
struct bench {
	struct ts_pair pair;
	struct ts_buf local;
};

static void open_bench(struct bench *t)
{
	ts_pair_open(&t->pair, NULL, NULL);
	ts_buf_open(&t->local, PAGE);
	ts_fill(t->local.p, LINE, 21);
}

static void close_bench(struct bench *t)
{
	ts_pair_close(&t->pair);
	ts_buf_close(&t->local);
}

/*
 * A transfer that the responder must refuse.  A read fails with @vendor_err.  A write may be complete
 * for the sender before the responder sees it (RFC 5040 5.1): then the next read tells of the end.
 */
static void must_be_refused(enum ibv_wr_opcode opcode, uint64_t raddr, uint32_t rkey, uint32_t len,
			    uint32_t vendor_err)
{
	struct ts_buf other;
	struct ibv_wc wc;
	struct bench t;

	open_bench(&t);
	ts_buf_open(&other, PAGE);
	TS_OK(ts_post(t.pair.a.qp, opcode, 1, &t.local, 0, len, raddr, rkey, 0));
	ts_poll(t.pair.a.scq, &wc, 1);
	TS_EQ(wc.wr_id, 1);
	if (wc.status == IBV_WC_SUCCESS && opcode == IBV_WR_RDMA_WRITE) {
		int rc = ts_post(t.pair.a.qp, IBV_WR_RDMA_READ, 2, &t.local, 1024, 8,
				 (uintptr_t)other.p, other.mr->rkey, 0);

		/* the distribution's provider refuses posts once it knows of the error */
		if (!rc || ts_dev()->ours) {
			TS_OK(rc);
			ts_poll(t.pair.a.scq, &wc, 1);
			if (wc.status != IBV_WC_REM_ACCESS_ERR && wc.status != IBV_WC_WR_FLUSH_ERR)
				TS_FAIL("a write to where it must not go: the next read gives %s",
					ibv_wc_status_str(wc.status));
		}
	} else if (wc.status != IBV_WC_REM_ACCESS_ERR) {
		TS_FAIL("opcode %d with %u bytes at 0x%llx: %s, expected a remote access error",
			opcode, len, (unsigned long long)raddr, ibv_wc_status_str(wc.status));
	}
	if (wc.status == IBV_WC_REM_ACCESS_ERR)
		TS_EQ(wc.vendor_err, vendor_err);
	close_bench(&t);
	ts_buf_close(&other);
}

/* A transfer that fails in the sender's own region; nothing may reach the peer. */
static void must_fail_here(enum ibv_wr_opcode opcode, struct ibv_sge sge, uint32_t vendor_err)
{
	struct ibv_send_wr wr = { .wr_id = 1,
				  .opcode = opcode,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad = NULL;
	struct ts_buf remote;
	struct ibv_wc wc;
	struct bench t;
	int rc;

	open_bench(&t);
	ts_buf_open(&remote, PAGE);
	memset(remote.p, 0x5a, PAGE);
	wr.wr.rdma.remote_addr = (uintptr_t)remote.p;
	wr.wr.rdma.rkey = remote.mr->rkey;
	rc = ibv_post_send(t.pair.a.qp, &wr, &bad);
	TS_OK(rc);
	ts_poll(t.pair.a.scq, &wc, 1);
	if (wc.status != IBV_WC_LOC_ACCESS_ERR && wc.status != IBV_WC_LOC_PROT_ERR)
		TS_FAIL("opcode %d: %s, expected a local access error", opcode,
			ibv_wc_status_str(wc.status));
	TS_EQ(wc.vendor_err, vendor_err);
	for (int i = 0; i < PAGE; i++)
		TS_EQ(((uint8_t *)remote.p)[i], 0x5a);
	close_bench(&t);
	ts_buf_close(&remote);
}

/* ------------------------------------------------------------------ bounds */

/* First and last byte can be written and read, one past either end not. */
static void bounds_of(uint8_t *p, size_t len, size_t guard)
{
	struct ibv_mr *mr = ibv_reg_mr(ts_dev()->pd, p, len, TS_ACCESS_ALL);
	const size_t at[] = { 0, len - 1, len / 2, len > 4 * GIB ? 4 * GIB - 1 : len / 3 };
	struct ibv_wc wc;
	struct bench t;

	if (!mr)
		TS_FAIL("registering 0x%zx bytes: %s", len, strerror(errno));
	TS_EQ(mr->length, len);
	open_bench(&t);
	for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++) {
		uint32_t n = at[i] + LINE <= len ? LINE : 1;

		TS_OK(ts_post(t.pair.a.qp, IBV_WR_RDMA_WRITE, i, &t.local, 0, n,
			      (uintptr_t)p + at[i], mr->rkey, 0));
		ts_poll_ok(t.pair.a.scq, &wc);
		TS_OK(ts_post(t.pair.a.qp, IBV_WR_RDMA_READ, i, &t.local, 1024, n,
			      (uintptr_t)p + at[i], mr->rkey, 0));
		ts_poll_ok(t.pair.a.scq, &wc);
		TS_EQ(wc.byte_len, n);
		TS_EQ(ts_differs(p + at[i], n, 21), -1);
		TS_EQ(ts_differs((uint8_t *)t.local.p + 1024, n, 21), -1);
	}
	close_bench(&t);
	for (int write = 0; write < 2; write++) {
		enum ibv_wr_opcode opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;

		p[len - 1] = 0x33;
		p[0] = 0x44;
		if (guard) {
			p[len] = 0x11;
			p[-1] = 0x22;
		}
		must_be_refused(opcode, (uintptr_t)p + len, mr->rkey, 1, ERR_REMOTE_ADDR);
		must_be_refused(opcode, (uintptr_t)p + len - 1, mr->rkey, 2, ERR_REMOTE_ADDR);
		must_be_refused(opcode, (uintptr_t)p - 1, mr->rkey, 1, ERR_REMOTE_ADDR);
		must_be_refused(opcode, (uintptr_t)p - 1, mr->rkey, LINE, ERR_REMOTE_ADDR);
		ts_sleep_ms(20);
		if (guard) {
			TS_EQ(p[len], 0x11);
			TS_EQ(p[-1], 0x22);
		}
		if (len > 1)
			TS_EQ(p[len - 1], 0x33);
		TS_EQ(p[0], 0x44);
	}
	TS_OK(ibv_dereg_mr(mr));
}

static void size_of(size_t len)
{
	uint8_t *p = map(len + 2 * PAGE, 0);

	if (!p)
		ts_skip("no address space for 0x%zx bytes", len);
	bounds_of(p + PAGE, len, PAGE);
	munmap(p, len + 2 * PAGE);
}

static void one_byte(void **state)
{
	(void)state;
	size_of(1);
}

static void odd_place_and_length(void **state)
{
	uint8_t *p = map(4 * PAGE, 0);

	(void)state;
	TS_CHECK(p);
	bounds_of(p + PAGE - 3, 5, 1);
	bounds_of(p + 17, 2 * PAGE + 1, 1);
	munmap(p, 4 * PAGE);
}

static void four_gib(void **state)
{
	(void)state;
	size_of(4 * GIB);
}

static void four_gib_and_a_page(void **state)
{
	(void)state;
	size_of(4 * GIB + PAGE);
}

static void six_gib(void **state)
{
	(void)state;
	size_of(6 * GIB + 12345);
}

static void huge_pages(size_t page, int flag)
{
	uint8_t *p = map(2 * page, MAP_HUGETLB | flag);

	if (!p)
		ts_skip("this machine has no free pages of %zu KiB", page / 1024);
	/* mapped without reserve: touching more pages than there are would be SIGBUS */
	if (madvise(p, 2 * page, MADV_POPULATE_WRITE)) {
		munmap(p, 2 * page);
		ts_skip("this machine has no free pages of %zu KiB", page / 1024);
	}
	bounds_of(p, 2 * page, 0);
	bounds_of(p + page - 100, 300, 1);
	munmap(p, 2 * page);
}

static void pages_of_2_mib(void **state)
{
	(void)state;
	huge_pages(TWO_MIB, 21 << MAP_HUGE_SHIFT);
}

static void pages_of_1_gib(void **state)
{
	(void)state;
	huge_pages(GIB, 30 << MAP_HUGE_SHIFT);
}

static void transparent_huge_pages(void **state)
{
	uint8_t *p = map(8 * TWO_MIB, 0), *aligned;

	(void)state;
	TS_CHECK(p);
	aligned = (uint8_t *)(((uintptr_t)p + 2 * TWO_MIB) & ~(uintptr_t)(TWO_MIB - 1));
	madvise(aligned, 4 * TWO_MIB, MADV_HUGEPAGE);
	memset(aligned, 0, 4 * TWO_MIB);
	bounds_of(aligned + PAGE, 3 * TWO_MIB, 1);
	munmap(p, 8 * TWO_MIB);
}

/* addr + len past 2^64 is refused, not taken modulo 2^64. */
static void wrap_of_the_address(void **state)
{
	static const uint64_t at[] = { UINT64_MAX, UINT64_MAX - 7, UINT64_MAX - LINE + 2 };
	struct ts_buf buf;

	(void)state;
	ts_buf_open(&buf, PAGE);
	for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++)
		for (int write = 0; write < 2; write++) {
			struct bench t;
			struct ibv_wc wc;

			open_bench(&t);
			TS_OK(ts_post(t.pair.a.qp, write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, 1,
				      &t.local, 0, LINE, at[i], buf.mr->rkey, 0));
			ts_poll(t.pair.a.scq, &wc, 1);
			if (!write) {
				TS_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
				if (wc.vendor_err != ERR_REMOTE_WRAP &&
				    wc.vendor_err != ERR_REMOTE_ADDR)
					TS_FAIL("vendor_err 0x%x", wc.vendor_err);
			}
			ts_sleep_ms(5);
			for (int j = 0; j < PAGE; j++)
				TS_EQ(((uint8_t *)buf.p)[j], 0);
			close_bench(&t);
		}
	/* and at registration */
	errno = 0;
	assert_null(ibv_reg_mr(ts_dev()->pd, (void *)(uintptr_t)(UINT64_MAX - PAGE + 1), 2 * PAGE,
			       TS_ACCESS_ALL));
	assert_int_not_equal(errno, 0);
	assert_null(ibv_reg_mr(ts_dev()->pd, buf.p, SIZE_MAX - PAGE, TS_ACCESS_ALL));
	ts_buf_close(&buf);
}

/* ------------------------------------------------------------------ keys, domains, rights */

static void wrong_remote_key(void **state)
{
	struct ts_buf buf;

	(void)state;
	ts_buf_open(&buf, PAGE);
	/* the low byte is the key, the rest the index of the region */
	for (int write = 0; write < 2; write++) {
		enum ibv_wr_opcode opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;

		must_be_refused(opcode, (uintptr_t)buf.p, buf.mr->rkey ^ 1, 8, ERR_REMOTE_STAG);
		must_be_refused(opcode, (uintptr_t)buf.p, buf.mr->rkey ^ 1u << 18, 8,
				ERR_REMOTE_STAG);
		must_be_refused(opcode, (uintptr_t)buf.p, 0xffffffff, 8, ERR_REMOTE_STAG);
	}
	for (int i = 0; i < PAGE; i++)
		TS_EQ(((uint8_t *)buf.p)[i], 0);
	ts_buf_close(&buf);
}

static void wrong_local_key(void **state)
{
	struct ts_buf buf;
	struct ibv_sge sge;

	(void)state;
	ts_buf_open(&buf, PAGE);
	for (int read = 0; read < 2; read++) {
		enum ibv_wr_opcode opcode = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;

		sge = ts_sge(&buf, 0, 8);
		sge.lkey ^= 1;
		must_fail_here(opcode, sge, ERR_LOCAL_STAG);
		sge = ts_sge(&buf, 0, 8);
		sge.lkey = 0xffffffff;
		must_fail_here(opcode, sge, ERR_LOCAL_STAG);
		sge = ts_sge(&buf, PAGE - 4, 8);
		must_fail_here(opcode, sge, ERR_LOCAL_ADDR);
		sge = ts_sge(&buf, 0, 8);
		sge.addr -= 1;
		must_fail_here(opcode, sge, ERR_LOCAL_ADDR);
	}
	sge = ts_sge(&buf, 0, 8);
	sge.lkey ^= 1;
	must_fail_here(IBV_WR_SEND, sge, ERR_LOCAL_STAG);
	ts_buf_close(&buf);
}

static void wrong_domain(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(ts_dev()->ctx);
	uint8_t *p = map(PAGE, 0);
	struct ibv_sge sge = { .addr = (uintptr_t)p, .length = 8 };
	struct ibv_mr *mr;

	(void)state;
	TS_CHECK(pd && p);
	mr = ibv_reg_mr(pd, p, PAGE, TS_ACCESS_ALL);
	TS_CHECK(mr);
	must_be_refused(IBV_WR_RDMA_READ, (uintptr_t)p, mr->rkey, 8, ERR_REMOTE_PD);
	must_be_refused(IBV_WR_RDMA_WRITE, (uintptr_t)p, mr->rkey, 8, ERR_REMOTE_PD);
	sge.lkey = mr->lkey;
	must_fail_here(IBV_WR_RDMA_WRITE, sge, ERR_LOCAL_PD);
	must_fail_here(IBV_WR_RDMA_READ, sge, ERR_LOCAL_PD);
	for (int i = 0; i < PAGE; i++)
		TS_EQ(p[i], 0);
	TS_OK(ibv_dereg_mr(mr));
	TS_OK(ibv_dealloc_pd(pd));
	munmap(p, PAGE);
}

static void wrong_rights(void **state)
{
	uint8_t *p = map(PAGE, 0);
	struct ibv_sge sge = { .addr = (uintptr_t)p, .length = 8 };
	struct ibv_mr *mr;

	(void)state;
	TS_CHECK(p);
	mr = ibv_reg_mr(ts_dev()->pd, p, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	TS_CHECK(mr);
	must_be_refused(IBV_WR_RDMA_WRITE, (uintptr_t)p, mr->rkey, 8, ERR_REMOTE_RIGHT);
	TS_OK(ibv_dereg_mr(mr));
	mr = ibv_reg_mr(ts_dev()->pd, p, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	TS_CHECK(mr);
	must_be_refused(IBV_WR_RDMA_READ, (uintptr_t)p, mr->rkey, 8, ERR_REMOTE_RIGHT);
	TS_OK(ibv_dereg_mr(mr));
	/* no flag at all: the local side may still be read */
	mr = ibv_reg_mr(ts_dev()->pd, p, PAGE, 0);
	TS_CHECK(mr);
	must_be_refused(IBV_WR_RDMA_WRITE, (uintptr_t)p, mr->rkey, 8, ERR_REMOTE_RIGHT);
	must_be_refused(IBV_WR_RDMA_READ, (uintptr_t)p, mr->rkey, 8, ERR_REMOTE_RIGHT);
	sge.lkey = mr->lkey;
	must_fail_here(IBV_WR_RDMA_READ, sge, ERR_LOCAL_RIGHT);
	for (int i = 0; i < PAGE; i++)
		TS_EQ(p[i], 0);
	TS_OK(ibv_dereg_mr(mr));
	munmap(p, PAGE);
}

/* A receive buffer without local write, or too short. */
static void bad_receive_buffer(void **state)
{
	struct ibv_wc wc, sent;
	struct bench t;
	struct ibv_mr *mr;
	uint8_t *p = map(PAGE, 0);

	(void)state;
	TS_CHECK(p);
	for (int i = 0; i < 2; i++) {
		struct ibv_sge sge = { .addr = (uintptr_t)p, .length = i ? 32 : LINE };
		struct ibv_recv_wr wr = { .wr_id = 9, .sg_list = &sge, .num_sge = 1 }, *bad;

		open_bench(&t);
		mr = ibv_reg_mr(ts_dev()->pd, p, PAGE, i ? IBV_ACCESS_LOCAL_WRITE : 0);
		TS_CHECK(mr);
		sge.lkey = mr->lkey;
		TS_OK(ibv_post_recv(t.pair.b.qp, &wr, &bad));
		TS_OK(ts_post(t.pair.a.qp, IBV_WR_SEND, 1, &t.local, 0, LINE, 0, 0, 0));
		ts_poll(t.pair.b.rcq, &wc, 1);
		TS_EQ(wc.wr_id, 9);
		if (wc.status == IBV_WC_SUCCESS)
			TS_FAIL("a message was received into %s",
				i ? "a buffer too short for it" : "a region without local write");
		ts_poll(t.pair.a.scq, &sent, 1);
		for (int j = i ? 32 : 0; j < PAGE; j++)
			TS_EQ(p[j], 0);
		close_bench(&t);
		TS_OK(ibv_dereg_mr(mr));
	}
	munmap(p, PAGE);
}

/* What the library or the device must not register. */
static void refused_registrations(void **state)
{
	uint8_t *p = map(PAGE, 0);

	(void)state;
	TS_CHECK(p);
	errno = 0;
	assert_null(ibv_reg_mr(ts_dev()->pd, p, PAGE, IBV_ACCESS_REMOTE_WRITE));
	TS_EQ(errno, EINVAL);
	errno = 0;
	assert_null(ibv_reg_mr(ts_dev()->pd, p, PAGE, IBV_ACCESS_REMOTE_ATOMIC));
	TS_EQ(errno, EINVAL);
	errno = 0;
	assert_null(ibv_reg_mr(ts_dev()->pd, p, 0, TS_ACCESS_ALL));
	TS_EQ(errno, EINVAL);
	if (!ts_known_defect("IBV_ACCESS_ZERO_BASED is ignored")) {
		struct ibv_mr *mr =
			ibv_reg_mr(ts_dev()->pd, p, PAGE, TS_ACCESS_ALL | IBV_ACCESS_ZERO_BASED);

		/* refused, or it does what it says */
		if (mr) {
			struct ibv_wc wc;
			struct bench t;

			open_bench(&t);
			TS_OK(ts_post(t.pair.a.qp, IBV_WR_RDMA_READ, 1, &t.local, 1024, 8, 16,
				      mr->rkey, 0));
			ts_poll_ok(t.pair.a.scq, &wc);
			close_bench(&t);
			TS_OK(ibv_dereg_mr(mr));
		} else if (errno != EINVAL && errno != EOPNOTSUPP) {
			TS_FAIL("IBV_ACCESS_ZERO_BASED: %s", strerror(errno));
		}
	}
	munmap(p, PAGE);
}

/* ------------------------------------------------------------------ the end of access */

static void dereg_stops_access(void **state)
{
	struct ts_buf buf, victim;
	uint8_t *p = map(PAGE, 0);
	uint32_t rkey;

	(void)state;
	TS_CHECK(p);
	ts_buf_open(&victim, PAGE);
	ts_buf_open(&buf, PAGE);
	rkey = victim.mr->rkey;
	TS_OK(ibv_dereg_mr(victim.mr));
	must_be_refused(IBV_WR_RDMA_WRITE, (uintptr_t)victim.p, rkey, 8, ERR_REMOTE_STAG);
	must_be_refused(IBV_WR_RDMA_READ, (uintptr_t)victim.p, rkey, 8, ERR_REMOTE_STAG);
	for (int i = 0; i < PAGE; i++)
		TS_EQ(((uint8_t *)victim.p)[i], 0);
	/* the same memory again: another key */
	victim.mr = ibv_reg_mr(ts_dev()->pd, victim.p, PAGE, TS_ACCESS_ALL);
	TS_CHECK(victim.mr);
	assert_int_not_equal(victim.mr->rkey, rkey);
	must_be_refused(IBV_WR_RDMA_READ, (uintptr_t)victim.p, rkey, 8, ERR_REMOTE_STAG);
	ts_buf_close(&victim);
	ts_buf_close(&buf);
	munmap(p, PAGE);
}

/* In the middle of a transfer: no byte is placed after ibv_dereg_mr has returned. */
static void dereg_in_mid_transfer(void **state)
{
	const size_t len = 64 << 20;
	uint8_t *p = map(len, 0);
	struct ts_buf local;
	struct ts_pair pair;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	size_t written;

	(void)state;
	TS_CHECK(p);
	ts_buf_open(&local, len);
	memset(local.p, 0xc3, len);
	for (int round = 0; round < 3; round++) {
		ts_pair_open(&pair, NULL, NULL);
		mr = ibv_reg_mr(ts_dev()->pd, p, len, TS_ACCESS_ALL);
		TS_CHECK(mr);
		TS_OK(ts_post(pair.a.qp, IBV_WR_RDMA_WRITE, 1, &local, 0, (uint32_t)len,
			      (uintptr_t)p, mr->rkey, 0));
		ts_sleep_ms(round * 3);
		TS_OK(ibv_dereg_mr(mr));
		memset(p, 0, len);
		ts_sleep_ms(TS_QUIET_MS);
		ts_poll_some(pair.a.scq, &wc, 1, TS_QUIET_MS);
		written = 0;
		for (size_t i = 0; i < len; i++)
			written += p[i] != 0;
		if (written)
			TS_FAIL("%zu bytes were placed after ibv_dereg_mr returned", written);
		ts_pair_close(&pair);
	}
	ts_buf_close(&local);
	munmap(p, len);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_byte),
		cmocka_unit_test(odd_place_and_length),
		cmocka_unit_test(four_gib),
		cmocka_unit_test(four_gib_and_a_page),
		cmocka_unit_test(six_gib),
		cmocka_unit_test(pages_of_2_mib),
		cmocka_unit_test(pages_of_1_gib),
		cmocka_unit_test(transparent_huge_pages),
		cmocka_unit_test(wrap_of_the_address),
		cmocka_unit_test(wrong_remote_key),
		cmocka_unit_test(wrong_local_key),
		cmocka_unit_test(wrong_domain),
		cmocka_unit_test(wrong_rights),
		cmocka_unit_test(bad_receive_buffer),
		cmocka_unit_test(refused_registrations),
		cmocka_unit_test(dereg_stops_access),
		cmocka_unit_test(dereg_in_mid_transfer),
	};

	return ts_main(argc, argv, "memory_region", tests, sizeof(tests) / sizeof(*tests), NULL);
}
