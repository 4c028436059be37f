// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Objects by commands to /dev/infiniband/uverbs0: memory regions, completion queues, queue pairs. */
#include "tests/process/uverbs_rig.h"

static void memory_regions(void **state)
{
	enum {
		LW = 1,
		RW = 2,
		RR = 4,
		RA = 8,
		ON_DEMAND = 64,
		FLUSH = 256,
		RELAXED = 1 << 20
	};
	int fd = dev_open(NULL);
	uint32_t pd = pd_alloc(fd);
	uint64_t at = (uintptr_t)memory;
	struct ib_uverbs_reg_mr_resp mr, other;
	unsigned char *hole, *read_only, *big;
	uint32_t lkey;

	(void)state;
	assert_int_equal(mr_reg(fd, pd, at + 5, 100, at + 5, LW | RW | RR | RA, &mr), 0);
	assert_int_equal(mr.lkey, mr.rkey);
	assert_int_not_equal(mr.lkey >> 8, 0);
	assert_int_equal(pd_destroy(fd, pd), EBUSY);
	lkey = mr.lkey;
	assert_int_equal(mr_destroy(fd, mr.mr_handle), 0);
	assert_int_equal(mr_destroy(fd, mr.mr_handle), ENOENT);
	assert_int_equal(mr_reg(fd, pd, at, 100, at, 0, &mr), 0);
	/* the index is not used again at once */
	assert_int_not_equal(mr.lkey, lkey);
	assert_int_equal(mr_reg(fd, pd, at, 100, at, LW | RELAXED | 0x3ff00000, &other), 0);
	assert_int_equal(mr_reg(fd, pd, at, 100, at + 4096, LW, &other), 0);

	assert_int_equal(mr_reg(fd, BAD_HANDLE, at, 100, at, LW, &other), ENOENT);
	assert_int_equal(mr_reg(fd, pd, at, 0, at, LW, &other), EINVAL);
	assert_int_equal(mr_reg(fd, pd, at, 100, at + 1, LW, &other), EINVAL);
	assert_int_equal(mr_reg(fd, pd, at, 100, at, RW, &other), EINVAL);
	assert_int_equal(mr_reg(fd, pd, at, 100, at, RA, &other), EINVAL);
	assert_int_equal(mr_reg(fd, pd, at, 100, at, LW | ON_DEMAND, &other), EINVAL);
	assert_int_equal(mr_reg(fd, pd, at, 100, at, LW | 1u << 31, &other), EINVAL);
	assert_int_equal(mr_reg(fd, pd, at, 100, at, LW | FLUSH, &other), EOPNOTSUPP);
	assert_int_equal(mr_reg(fd, pd, at, UINT64_MAX - at, at, LW, &other), EINVAL);
	assert_int_equal(mr_reg(fd, pd, UINT64_MAX - 4095, 4096, UINT64_MAX - 4095, LW, &other),
			 EINVAL);
	assert_int_equal(mr_reg(fd, pd, 0, 100, 0, LW, &other), EFAULT);

	/* memory that is not there, in the middle; memory that may not be written or read */
	hole = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(hole + 4096, 4096);
	assert_int_equal(mr_reg(fd, pd, (uintptr_t)hole, 3 * 4096, (uintptr_t)hole, LW, &other),
			 EFAULT);
	assert_int_equal(mr_reg(fd, pd, (uintptr_t)hole, 4096, (uintptr_t)hole, LW, &other), 0);
	assert_int_equal(mr_reg(fd, pd, (uintptr_t)hole + 4095, 2, (uintptr_t)hole + 4095, LW,
				&other),
			 EFAULT);
	read_only = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(
		mr_reg(fd, pd, (uintptr_t)read_only, 4096, (uintptr_t)read_only, RR, &other), 0);
	assert_int_equal(mr_reg(fd, pd, (uintptr_t)read_only, 4096, (uintptr_t)read_only, LW,
				&other),
			 EFAULT);
	mprotect(read_only, 4096, PROT_NONE);
	assert_int_equal(mr_reg(fd, pd, (uintptr_t)read_only, 4096, (uintptr_t)read_only, RR,
				&other),
			 EFAULT);
	/* 4 GiB and a page */
	big = mmap(NULL, (4ull << 30) + 4096, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(big != MAP_FAILED);
	assert_int_equal(mr_reg(fd, pd, (uintptr_t)big, (4ull << 30) + 4096, (uintptr_t)big,
				LW | RW, &other),
			 0);
	/* the page that must not be written lies in the middle */
	assert_int_equal(mprotect(big + (2ull << 30), 4096, PROT_READ), 0);
	assert_int_equal(mr_reg(fd, pd, (uintptr_t)big, 4ull << 30, (uintptr_t)big, LW, &other),
			 EFAULT);
	assert_int_equal(mr_reg(fd, pd, (uintptr_t)big, 4ull << 30, (uintptr_t)big, RR, &other), 0);
	assert_int_equal(mprotect(big + (2ull << 30), 4096, PROT_NONE), 0);
	assert_int_equal(mr_reg(fd, pd, (uintptr_t)big, 4ull << 30, (uintptr_t)big, RR, &other),
			 EFAULT);
	munmap(big, (4ull << 30) + 4096);
	close(fd);
}

/*
 * Registered memory that the program takes away: what is left of it, and what comes in its place.
 */
static void memory_goes(void **state)
{
	enum {
		PAGES = 16,
		PAGE = 4096,
		LW = 1
	};
	int fd = dev_open(NULL), round;
	uint32_t pd = pd_alloc(fd);
	struct ib_uverbs_reg_mr_resp mr;
	unsigned char *p;

	(void)state;
	for (round = 0; round < 200; round++) {
		p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
		assert_true(p != MAP_FAILED);
		assert_int_equal(mr_reg(fd, pd, (uintptr_t)p, PAGES * PAGE, (uintptr_t)p, LW, &mr),
				 0);
		switch (round % 4) {
		case 0:
			assert_int_equal(munmap(p + PAGE, PAGE), 0);
			assert_int_equal(mr_reg(fd, pd, (uintptr_t)p, PAGES * PAGE, (uintptr_t)p,
						LW, &mr),
					 EFAULT);
			break;
		case 1:
			assert_int_equal(mprotect(p, PAGE, PROT_NONE), 0);
			break;
		case 2:
			p = mremap(p, PAGES * PAGE, 2 * PAGES * PAGE, MREMAP_MAYMOVE);
			assert_true(p != MAP_FAILED);
			assert_int_equal(munmap(p + PAGES * PAGE, PAGES * PAGE), 0);
			break;
		case 3:
			assert_ptr_equal(mmap(p, PAGE, PROT_READ,
					      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
					 p);
			break;
		}
		assert_int_equal(mr_destroy(fd, mr.mr_handle), 0);
		assert_int_equal(munmap(p, PAGES * PAGE), 0);
	}
	close(fd);
}

static void completion_queues(void **state)
{
	int fd = dev_open(NULL), channel, other_fd;
	uint64_t ring = (uintptr_t)memory, record = (uintptr_t)records;
	struct ib_uverbs_destroy_cq_resp gone;
	struct cq cq, next;
	uint32_t cqn;

	(void)state;
	records[0] = 0x1234;
	good_cq(fd, &cq);
	assert_int_equal(records[0], 0); /* what the last user left there is gone */
	assert_int_equal(cq.cqe, 64);
	assert_int_equal(cq.uresp.num_cqe, 64);
	assert_int_not_equal(cq.uresp.cq_id, 0);
	cqn = cq.uresp.cq_id;
	assert_int_equal(cq_destroy(fd, cq.handle, &gone), 0);
	assert_int_equal(gone.comp_events_reported, 0);
	assert_int_equal(gone.async_events_reported, 0);
	assert_int_equal(cq_destroy(fd, cq.handle, &gone), ENOENT);
	good_cq(fd, &cq);
	assert_int_equal(cq.uresp.cq_id, cqn + 1); /* cyclic */
	assert_int_equal(cq_create(fd, 100, 0, -1, ring, record, &next), 0);
	assert_int_equal(next.cqe, 128);

	assert_int_equal(cq_create(fd, 0, 0, -1, ring, record, &next), EINVAL);
	assert_int_equal(cq_create(fd, (1 << 20) + 1, 0, -1, ring, record, &next), EINVAL);
	assert_int_equal(cq_create(fd, 64, 99, -1, ring, record, &next), EINVAL);
	assert_int_equal(cq_create(fd, 64, 0, -1, 4096, record, &next), EFAULT);
	assert_int_equal(cq_create(fd, 64, 0, -1, ring, 64, &next), EFAULT);
	assert_int_equal(cq_create(fd, 64, 0, -1, ring, record + 1, &next), EINVAL);
	assert_int_equal(cq_create(fd, 64, 0, fd, ring, record, &next), EBADF);
	assert_int_equal(cq_create(fd, 64, 0, 0, ring, record, &next), EBADF);
	assert_int_equal(cq_create(fd, 64, 0, 99999, ring, record, &next), EBADF);
	channel = channel_create(fd);
	assert_int_equal(cq_create(fd, 64, 0, channel, ring, record, &next), 0);
	/* a channel of another context */
	other_fd = dev_open(NULL);
	assert_int_equal(cq_create(other_fd, 64, 0, channel, ring, record, &cq), EBADF);
	close(other_fd);
	/* the channel may go first */
	close(channel);
	assert_int_equal(cq_destroy(fd, next.handle, &gone), 0);
	close(fd);
}

static void deepest_queue(void **state)
{
	int fd = dev_open(NULL);
	size_t len = (1u << 20) * 32;
	void *ring = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct cq cq;

	(void)state;
	assert_int_equal(cq_create(fd, 1 << 20, 0, -1, (uintptr_t)ring, (uintptr_t)records, &cq),
			 0);
	assert_int_equal(cq.cqe, 1 << 20);
	close(fd);
	munmap(ring, len);
}

static void queue_pairs(void **state)
{
	int fd = dev_open(NULL);
	uint32_t pd = pd_alloc(fd), qpn, events;
	struct ib_uverbs_destroy_cq_resp gone;
	struct qp qp;
	struct cq cq;

	(void)state;
	good_cq(fd, &cq);
	usual_qp(&qp);
	records[8] = records[9] = 7;
	assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), 0);
	assert_int_equal(records[8] | records[9], 0);
	assert_int_equal(qp.uresp.qp_id, qp.qpn);
	assert_int_equal(qp.uresp.num_sqe, 64);
	assert_int_equal(qp.uresp.num_rqe, 16);
	assert_int_equal(qp.uresp.rq_offset, 4096);
	assert_int_equal(pd_destroy(fd, pd), EBUSY);
	assert_int_equal(cq_destroy(fd, cq.handle, &gone), EBUSY);
	qpn = qp.qpn;
	assert_int_equal(qp_destroy(fd, qp.handle, &events), 0);
	assert_int_equal(events, 0);
	assert_int_equal(qp_destroy(fd, qp.handle, NULL), ENOENT);
	assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), 0);
	assert_int_equal(qp.qpn, qpn + 1);

	usual_qp(&qp);
	assert_int_equal(qp_create(fd, BAD_HANDLE, cq.handle, cq.handle, &qp), ENOENT);
	assert_int_equal(qp_create(fd, cq.handle, cq.handle, cq.handle, &qp), EINVAL);
	assert_int_equal(qp_create(fd, pd, BAD_HANDLE, cq.handle, &qp), ENOENT);
	assert_int_equal(qp_create(fd, pd, cq.handle, pd, &qp), EINVAL);
	qp.type = IB_UVERBS_QPT_UD;
	assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), EOPNOTSUPP);
	qp.type = IB_UVERBS_QPT_UC;
	assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), EOPNOTSUPP);
	usual_qp(&qp);
	qp.flags = IB_UVERBS_QP_CREATE_SCATTER_FCS;
	assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), EOPNOTSUPP);
	usual_qp(&qp);
	qp.flags = IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
	assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), 0);
	usual_qp(&qp);
	qp.buf_len = 4096 + 16 * 32 - 1;
	assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), EINVAL);
	qp.buf_len++;
	assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), 0);
	close(fd);
}

static void queue_pair_limits(void **state)
{
	static const struct {
		struct ib_uverbs_qp_cap cap;
		int err;
	} cases[] = {
		{ { 0, 16, 1, 1, 0 }, EINVAL },	   { { 16, 0, 1, 1, 0 }, EINVAL },
		{ { 8193, 16, 1, 1, 0 }, EINVAL }, { { 16, 8193, 1, 1, 0 }, EINVAL },
		{ { 16, 16, 7, 1, 0 }, EINVAL },   { { 16, 16, 1, 2, 0 }, EINVAL },
		{ { 16, 16, 1, 1, 97 }, EINVAL },  { { 16, 16, 6, 1, 96 }, 0 },
		{ { 1, 1, 0, 0, 0 }, 0 },
	};
	int fd = dev_open(NULL);
	uint32_t pd = pd_alloc(fd);
	struct cq cq;
	size_t i;

	(void)state;
	good_cq(fd, &cq);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct qp qp = { .cap = cases[i].cap };

		assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), cases[i].err);
	}
	close(fd);
}

static void modify_rules(void **state)
{
	enum {
		RESET,
		INIT,
		RTR,
		RTS,
		SQD,
		SQE,
		ERR,
		STATE = 1,
		CUR_STATE = 2,
		PORT = 32,
		AV = 128
	};
	struct ib_uverbs_modify_qp req = { 0 };
	int fd = dev_open(NULL);
	uint32_t pd = pd_alloc(fd);
	struct qp qp;
	struct cq cq;

	(void)state;
	good_cq(fd, &cq);
	usual_qp(&qp);
	assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), 0);
	assert_int_equal(qp_state(fd, qp.handle), INIT); /* the driver has no RESET in iWARP mode */
	assert_int_equal(qp_modify(fd, qp.handle, 0x29, INIT), 0);
	assert_int_equal(qp_modify(fd, qp.handle, 0x29, RTR), 0);
	assert_int_equal(qp_state(fd, qp.handle), RTR);
	/* only the connection manager brings it to RTS */
	assert_int_equal(qp_modify(fd, qp.handle, 0x129181, RTR), EINVAL); /* AV without a port */
	assert_int_equal(qp_modify(fd, qp.handle, STATE, RTS), EINVAL);
	assert_int_equal(qp_modify(fd, qp.handle, 0x12e01, RTS), EINVAL);
	assert_int_equal(qp_modify(fd, qp.handle, PORT, 0), 0);
	assert_int_equal(qp_modify(fd, qp.handle, STATE, SQD), 0);
	assert_int_equal(qp_state(fd, qp.handle), INIT);
	assert_int_equal(qp_modify(fd, qp.handle, STATE, 7), EINVAL);
	assert_int_equal(qp_modify(fd, qp.handle, 1 << 21, 0), EOPNOTSUPP);
	assert_int_equal(qp_modify(fd, qp.handle, STATE | 1 << 25, INIT), EOPNOTSUPP);
	assert_int_equal(qp_modify(fd, BAD_HANDLE, STATE, INIT), ENOENT);
	assert_int_equal(qp_modify(fd, cq.handle, STATE, INIT), EINVAL);
	req.qp_handle = qp.handle;
	req.attr_mask = PORT;
	req.port_num = 2;
	assert_int_equal(invoke_write(fd, IB_USER_VERBS_CMD_MODIFY_QP, &req, sizeof(req), NULL, 0),
			 EINVAL);
	req.attr_mask = CUR_STATE;
	req.cur_qp_state = 9;
	assert_int_equal(invoke_write(fd, IB_USER_VERBS_CMD_MODIFY_QP, &req, sizeof(req), NULL, 0),
			 EINVAL);
	req.attr_mask = AV;
	req.dest.port_num = 1;
	assert_int_equal(invoke_write(fd, IB_USER_VERBS_CMD_MODIFY_QP, &req, sizeof(req), NULL, 0),
			 0);
	assert_int_equal(qp_modify(fd, qp.handle, STATE, ERR), 0);
	assert_int_equal(qp_state(fd, qp.handle), ERR);
	assert_int_equal(qp_modify(fd, qp.handle, STATE, ERR), 0);
	assert_int_equal(qp_destroy(fd, qp.handle, NULL), 0);
	close(fd);
}

static void query_qp(void **state)
{
	struct ib_uverbs_query_qp req = { 0 };
	struct ib_uverbs_query_qp_resp resp;
	int fd = dev_open(NULL);
	uint32_t pd = pd_alloc(fd);
	struct qp qp;
	struct cq cq;

	(void)state;
	good_cq(fd, &cq);
	usual_qp(&qp);
	qp.flags = IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
	assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), 0);
	req.qp_handle = qp.handle;
	assert_int_equal(invoke_write(fd, IB_USER_VERBS_CMD_QUERY_QP, &req, sizeof(req), &resp,
				      sizeof(resp)),
			 0);
	assert_int_equal(resp.max_send_wr, 64); /* blocks */
	assert_int_equal(resp.max_recv_wr, 16);
	assert_int_equal(resp.max_send_sge, 2);
	assert_int_equal(resp.max_inline_data, 96);
	assert_int_equal(resp.qp_access_flags, 7);
	assert_int_equal(resp.sq_sig_all, 1);
	assert_int_equal(invoke_write(fd, IB_USER_VERBS_CMD_QUERY_QP, &req, sizeof(req), &resp, 64),
			 ENOSPC);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_regions),    cmocka_unit_test(memory_goes),
		cmocka_unit_test(completion_queues), cmocka_unit_test(deepest_queue),
		cmocka_unit_test(queue_pairs),	     cmocka_unit_test(queue_pair_limits),
		cmocka_unit_test(modify_rules),	     cmocka_unit_test(query_qp),
	};

	return cmocka_run_group_tests(tests, uverbs_set_up, NULL);
}
