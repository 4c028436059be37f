// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Work requests that cannot be right, and what is in the rings after those that can. Most tests post
 * to a QP that is not connected, where the adapter leaves the rings alone.
 */
#include <endian.h>
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "tests/accept/harness.h"
#include "tests/provider/spy.h"

enum {
	MAX_BLOCKS = 4, /* of a WQE */
	GARBAGE = 0xa5,
	SQ_BYTES = 4096,
	RING_WR = 4,
};

#define HDR_INLINE    (1ULL << 25)
#define HDR_SIGNALLED (1ULL << 22)
#define RQ_RESERVED   0xffff0000ULL
#define CQ_SOLICITED  (1ULL << 30)
#define CQ_ARM	      (1ULL << 31)
#define CQ_CMDSN(rec) ((rec) >> 28 & 3)
#define CQ_IDX(rec)   ((rec) >> 56)
#define CQ_CQN(rec)   ((rec) >> 32 & 0xffffff)
#define CQ_CI(rec)    ((rec)&0xffffff)

/* A QP that takes sends, none of which is carried out. */
static void open_idle(struct ts_end *end, uint32_t max_send_wr, int sq_sig_all, bool qp_ex)
{
	struct ts_attr attr = {
		.cap = { .max_send_wr = max_send_wr,
			 .max_recv_wr = RING_WR,
			 .max_send_sge = TS_MAX_SEND_SGE,
			 .max_inline_data = TS_MAX_INLINE },
		.sq_sig_all = sq_sig_all,
		.qp_ex = qp_ex,
	};

	if (!ts_dev()->iwarp)
		ts_skip("in RoCE mode a QP takes no sends before it is connected");
	ts_end_open(end, &attr);
	spy_to_init(end->qp);
}

static uint64_t wqe_hdr(uint32_t block)
{
	uint64_t hdr;

	memcpy(&hdr, spy_qp.sq + (size_t)(block % spy_qp.num_blocks) * SPY_BLOCK, sizeof(hdr));
	return le64toh(hdr);
}

static uint16_t sq_pi(void)
{
	return (uint16_t)le64toh(spy_qp.records[0]);
}

/* The send queue, to be compared later. */
static uint8_t before[SQ_BYTES];

static size_t sq_bytes(void)
{
	size_t len = (size_t)spy_qp.num_blocks * SPY_BLOCK;

	assert_true(len <= sizeof(before));
	return len;
}

static void keep_sq(void)
{
	memcpy(before, spy_qp.sq, sq_bytes());
}

/* Blocks [0, @blocks) are as they were kept. */
static void sq_is_kept(uint32_t blocks)
{
	for (size_t i = 0; i < (size_t)blocks * SPY_BLOCK; i++) {
		if (spy_qp.sq[i] != before[i])
			TS_FAIL("byte %zu of block %zu changed from %#x to %#x", i % SPY_BLOCK,
				i / SPY_BLOCK, before[i], spy_qp.sq[i]);
	}
}

/* Posting @wr fails with @want, names it, and leaves the queue as it was. */
static void must_refuse(struct ibv_qp *qp, struct ibv_send_wr *wr, int want)
{
	struct ibv_send_wr *bad = NULL;
	uint16_t pi = sq_pi();

	TS_EQ(ibv_post_send(qp, wr, &bad), want);
	assert_ptr_equal(bad, wr);
	TS_EQ(sq_pi(), pi);
}

static void a_full_queue_keeps_what_it_holds(void **state)
{
	static uint8_t mem[SQ_BYTES];
	struct ibv_sge sge[5],
		long_inline = { .addr = (uintptr_t)mem, .length = TS_MAX_INLINE + 1 };
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad;
	struct ibv_send_wr write = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = sge, .num_sge = 5 };
	struct ibv_send_wr inlined = { .opcode = IBV_WR_RDMA_WRITE,
				       .sg_list = &long_inline,
				       .num_sge = 1,
				       .send_flags = IBV_SEND_INLINE };
	struct ts_end end;

	(void)state;
	memset(mem, GARBAGE, sizeof(mem));
	for (int i = 0; i < 5; i++)
		sge[i] = (struct ibv_sge){ .addr = (uintptr_t)mem, .length = 8, .lkey = 1 };
	open_idle(&end, 1, 0, false);
	TS_EQ(spy_qp.num_blocks, MAX_BLOCKS);

	for (int i = 0; i < 3; i++)
		TS_OK(ibv_post_send(end.qp, &send, &bad));
	keep_sq();
	must_refuse(end.qp, &write, ENOMEM);
	sq_is_kept(3);
	must_refuse(end.qp, &inlined, EINVAL);
	sq_is_kept(3);
	long_inline.length = TS_MAX_INLINE;
	must_refuse(end.qp, &inlined, ENOMEM);
	sq_is_kept(3);

	TS_OK(ibv_post_send(end.qp, &send, &bad));
	keep_sq();
	must_refuse(end.qp, &send, ENOMEM);
	must_refuse(end.qp, &write, ENOMEM);
	sq_is_kept(MAX_BLOCKS);
	ts_end_close(&end);
}

static void a_list_stops_at_the_wrong_request(void **state)
{
	struct ibv_sge sge = { .addr = 1, .length = 1, .lkey = 1 };
	struct ibv_send_wr wr[3] = {
		{ .wr_id = 1, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1, .next = &wr[1] },
		{ .wr_id = 2, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = TS_MAX_SEND_SGE + 1,
		  .next = &wr[2] },
		{ .wr_id = 3, .opcode = IBV_WR_SEND },
	}, *bad = NULL;
	struct ibv_recv_wr recv[3] = {
		{ .wr_id = 1, .next = &recv[1] },
		{ .wr_id = 2, .sg_list = &sge, .num_sge = 2, .next = &recv[2] },
		{ .wr_id = 3 },
	}, *bad_recv = NULL;
	struct ts_end end;

	(void)state;
	open_idle(&end, RING_WR, 0, false);
	TS_EQ(ibv_post_send(end.qp, wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr[1]);
	TS_EQ(sq_pi(), 1);
	TS_EQ(ibv_post_recv(end.qp, recv, &bad_recv), EINVAL);
	assert_ptr_equal(bad_recv, &recv[1]);
	TS_EQ((uint16_t)le64toh(spy_qp.records[1]), 1);
	ts_end_close(&end);
}

static void reads_and_atomics_take_one_sge(void **state)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct ibv_sge sge[2] = { { .addr = 8, .length = 8, .lkey = 1 },
				  { .addr = 16, .length = 8, .lkey = 1 } };
	struct ibv_send_wr wr = { 0 }, *bad;
	bool atomics = ts_dev()->attr.atomic_cap != IBV_ATOMIC_NONE;
	struct ts_end end;

	(void)state;
	open_idle(&end, 8, 0, false);
	for (size_t i = 0; i < sizeof(opcodes) / sizeof(*opcodes); i++) {
		wr.opcode = opcodes[i];
		wr.send_flags = 0;
		wr.sg_list = NULL;
		wr.num_sge = 0;
		must_refuse(end.qp, &wr, EINVAL);
		wr.sg_list = sge;
		wr.num_sge = 2;
		must_refuse(end.qp, &wr, EINVAL);
		wr.num_sge = 1;
		wr.send_flags = IBV_SEND_INLINE;
		must_refuse(end.qp, &wr, EINVAL);
		wr.send_flags = 0;
		if (i && !atomics) {
			must_refuse(end.qp, &wr, EINVAL);
			continue;
		}
		if (i) {
			sge[0].length = 4;
			must_refuse(end.qp, &wr, EINVAL);
			sge[0].length = 8;
		}
		TS_OK(ibv_post_send(end.qp, &wr, &bad));
		assert_false(wqe_hdr(sq_pi() - 2u) & HDR_INLINE);
	}
	ts_end_close(&end);
}

static void unknown_operations_are_refused(void **state)
{
	static const int opcodes[] = { IBV_WR_BIND_MW, IBV_WR_TSO, IBV_WR_DRIVER1, 15, 255, -1 };
	struct ibv_send_wr wr = { 0 };
	struct ts_end end;

	(void)state;
	open_idle(&end, RING_WR, 0, false);
	for (size_t i = 0; i < sizeof(opcodes) / sizeof(*opcodes); i++) {
		wr.opcode = (enum ibv_wr_opcode)opcodes[i];
		must_refuse(end.qp, &wr, EINVAL);
	}
	wr.opcode = IBV_WR_SEND;
	wr.num_sge = -1;
	must_refuse(end.qp, &wr, EINVAL);
	wr.send_flags = IBV_SEND_INLINE;
	must_refuse(end.qp, &wr, EINVAL);
	ts_end_close(&end);
}

static void lengths_that_wrap_are_refused(void **state)
{
	static uint8_t mem[TS_MAX_INLINE];
	struct ibv_sge sge[3] = { { .addr = (uintptr_t)mem, .length = 16 },
				  { .addr = (uintptr_t)mem, .length = 0xfffffff8 },
				  { .addr = (uintptr_t)mem, .length = 8 } };
	struct ibv_data_buf bufs[2] = { { .addr = mem, .length = 16 },
					{ .addr = mem, .length = SIZE_MAX - 7 } };
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = 2, .send_flags = IBV_SEND_INLINE
	};
	struct ibv_qp_ex *ex;
	struct ts_end end;

	(void)state;
	open_idle(&end, RING_WR, 0, ts_has_qp_ex());
	keep_sq();
	must_refuse(end.qp, &wr, EINVAL);
	sge[1].length = UINT32_MAX;
	must_refuse(end.qp, &wr, EINVAL);
	/* A message of 4 GiB and more, not inline. */
	wr.send_flags = 0;
	wr.num_sge = 3;
	must_refuse(end.qp, &wr, EINVAL);
	wr.opcode = IBV_WR_RDMA_WRITE;
	must_refuse(end.qp, &wr, EINVAL);

	ex = ibv_qp_to_qp_ex(end.qp);
	assert_non_null(ex);
	ibv_wr_start(ex);
	ex->wr_flags = 0;
	ibv_wr_send(ex);
	ibv_wr_set_inline_data_list(ex, 2, bufs);
	TS_EQ(ibv_wr_complete(ex), EINVAL);
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, mem, SIZE_MAX);
	TS_EQ(ibv_wr_complete(ex), EINVAL);
	ibv_wr_start(ex);
	ibv_wr_rdma_write(ex, 1, 0);
	ibv_wr_set_sge_list(ex, 3, sge);
	TS_EQ(ibv_wr_complete(ex), EINVAL);
	TS_EQ(sq_pi(), 0);
	ts_end_close(&end);
}

static void any_true_value_is_true(void **state)
{
	static const int trues[] = { 1, 2, -2, 0x100 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
	struct ts_end end;

	(void)state;
	for (size_t i = 0; i < sizeof(trues) / sizeof(*trues); i++) {
		open_idle(&end, RING_WR, trues[i], false);
		TS_OK(ibv_post_send(end.qp, &wr, &bad));
		assert_true(wqe_hdr(0) & HDR_SIGNALLED);
		ts_end_close(&end);

		ts_end_open(&end, &(struct ts_attr){ .one_cq = true });
		TS_OK(ibv_req_notify_cq(end.scq, trues[i]));
		assert_true(le64toh(*spy_cq.record) & CQ_SOLICITED);
		TS_OK(ibv_req_notify_cq(end.scq, 0));
		assert_false(le64toh(*spy_cq.record) & CQ_SOLICITED);
		ts_end_close(&end);
	}
}

static void receive_doorbells_are_clean(void **state)
{
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;
	struct ts_end end;
	uint64_t record;

	(void)state;
	ts_end_open(&end, NULL);
	spy_to_init(end.qp);
	memset(spy_qp.rq, GARBAGE, (size_t)spy_qp.num_rqes * SPY_BLOCK);
	for (uint32_t i = 1; i <= spy_qp.num_rqes; i++) {
		TS_OK(ibv_post_recv(end.qp, &wr, &bad));
		record = le64toh(spy_qp.records[1]);
		TS_EQ(record & RQ_RESERVED, 0);
		TS_EQ(record & 0xffff, i);
		TS_EQ(record >> 32, end.qp->qp_num);
	}
	TS_EQ(ibv_post_recv(end.qp, &wr, &bad), ENOMEM);
	assert_ptr_equal(bad, &wr);
	ts_end_close(&end);
}

/* ------------------------------------------------------------------ doorbells */

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CAN_COUNT true

enum {
	TRAP_FLAG = 0x100
};

static uint8_t *watched;
static volatile sig_atomic_t writes;

static void protect(int prot)
{
	if (mprotect(watched, SPY_PAGE, prot))
		_exit(99);
}

/* The page is made writable for one instruction. */
static void on_write(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	(void)sig;
	if ((uint8_t *)info->si_addr < watched || (uint8_t *)info->si_addr >= watched + SPY_PAGE)
		_exit(98);
	writes = writes + 1;
	protect(PROT_READ | PROT_WRITE);
	uc->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static void after_write(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	(void)sig;
	(void)info;
	protect(PROT_READ);
	uc->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
}

static void count_writes(volatile void *doorbells)
{
	struct sigaction fault = { .sa_sigaction = on_write, .sa_flags = SA_SIGINFO };
	struct sigaction step = { .sa_sigaction = after_write, .sa_flags = SA_SIGINFO };

	watched = (uint8_t *)((uintptr_t)doorbells & ~(uintptr_t)(SPY_PAGE - 1));
	writes = 0;
	TS_CHECK(!sigaction(SIGSEGV, &fault, NULL) && !sigaction(SIGTRAP, &step, NULL));
	protect(PROT_READ);
}

static int stop_counting(void)
{
	protect(PROT_READ | PROT_WRITE);
	signal(SIGSEGV, SIG_DFL);
	signal(SIGTRAP, SIG_DFL);
	return writes;
}
#else
#define CAN_COUNT false

static void count_writes(volatile void *doorbells)
{
	(void)doorbells;
}

static int stop_counting(void)
{
	return 0;
}
#endif

/*
 * A list of sends rings once, by either interface.  Receives ring one by one: their doorbell is the
 * first word of the entry, and no driver is known to ring for entries before it.
 */
static void a_list_of_sends_rings_once(void **state)
{
	struct ibv_send_wr wr[RING_WR] = { 0 }, *bad;
	struct ibv_recv_wr recv[RING_WR] = { 0 }, *bad_recv;
	struct ibv_qp_ex *ex;
	struct ts_end end;

	(void)state;
	if (!CAN_COUNT)
		ts_skip("counting writes needs single steps, and no sanitizer");
	for (int i = 0; i < RING_WR; i++) {
		wr[i].opcode = IBV_WR_SEND;
		wr[i].next = i + 1 < RING_WR ? &wr[i + 1] : NULL;
		recv[i].next = i + 1 < RING_WR ? &recv[i + 1] : NULL;
	}
	open_idle(&end, 2 * RING_WR, 0, true);

	count_writes(spy_context.sdb);
	TS_OK(ibv_post_send(end.qp, wr, &bad));
	TS_EQ(stop_counting(), 1);
	TS_EQ(sq_pi(), RING_WR);

	count_writes(spy_context.rdb);
	TS_OK(ibv_post_recv(end.qp, recv, &bad_recv));
	TS_EQ(stop_counting(), RING_WR);
	TS_EQ((uint16_t)le64toh(spy_qp.records[1]), RING_WR);

	ex = ibv_qp_to_qp_ex(end.qp);
	count_writes(spy_context.sdb);
	ibv_wr_start(ex);
	for (int i = 0; i < RING_WR; i++)
		ibv_wr_send(ex);
	TS_OK(ibv_wr_complete(ex));
	TS_EQ(stop_counting(), 1);
	TS_EQ(sq_pi(), 2 * RING_WR);
	ts_end_close(&end);
}

static void arm_records_count(void **state)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(ts_dev()->ctx);
	struct ts_attr attr = { 0 };
	struct spy_cq seen;
	struct ts_pair pair;
	struct ibv_cq *got;
	struct ts_buf buf;
	struct ibv_wc wc;
	uint64_t record;
	void *context;

	(void)state;
	TS_CHECK(channel);
	attr.scq = attr.rcq = ibv_create_cq(ts_dev()->ctx, 16, NULL, channel, 0);
	TS_CHECK(attr.rcq);
	seen = spy_cq;
	ts_buf_open(&buf, SPY_PAGE);
	ts_pair_open(&pair, NULL, &attr);
	for (unsigned int i = 0; i < 300; i++) {
		TS_OK(ibv_req_notify_cq(attr.rcq, 0));
		record = le64toh(*seen.record);
		assert_true(record & CQ_ARM);
		TS_EQ(CQ_IDX(record), i & 0xff);
		TS_EQ(CQ_CMDSN(record), i & 3);
		TS_EQ(CQ_CI(record), i);
		TS_EQ(CQ_CQN(record), seen.cqn);

		TS_OK(ts_post_recv(pair.b.qp, i, &buf, 64, 64));
		TS_OK(ts_post(pair.a.qp, IBV_WR_SEND, i, &buf, 0, 8, 0, 0, 0));
		TS_CHECK(!ibv_get_cq_event(channel, &got, &context));
		ibv_ack_cq_events(got, 1);
		ts_poll_ok(attr.rcq, &wc);
		ts_poll_ok(pair.a.scq, &wc);
	}
	ts_pair_close(&pair);
	TS_OK(ibv_destroy_cq(attr.rcq));
	TS_OK(ibv_destroy_comp_channel(channel));
	ts_buf_close(&buf);
}

static void queues_of_no_length(void **state)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC };
	struct ibv_cq *cq = ibv_create_cq(ts_dev()->ctx, 1, NULL, NULL, 0);
	struct ibv_qp *qp;

	(void)state;
	TS_CHECK(cq);
	attr.send_cq = attr.recv_cq = cq;
	for (int i = 0; i < 3; i++) {
		attr.cap = (struct ibv_qp_cap){ .max_send_wr = i == 1,
						.max_recv_wr = i == 2,
						.max_send_sge = i == 1,
						.max_recv_sge = i == 2 };
		qp = ibv_create_qp(ts_dev()->pd, &attr);
		TS_CHECK(qp);
		TS_OK(ibv_destroy_qp(qp));
	}
	TS_OK(ibv_destroy_cq(cq));
}

static void lists_of_wr_calls_are_whole_or_nothing(void **state)
{
	static uint8_t mem[TS_MAX_INLINE];
	struct ibv_qp_ex *ex;
	struct ts_end end;

	(void)state;
	open_idle(&end, RING_WR, 0, true);
	ex = ibv_qp_to_qp_ex(end.qp);
	assert_non_null(ex);
	ex->wr_flags = IBV_SEND_SIGNALED;

	/* Full: the error comes at the end, and nothing was posted. */
	ibv_wr_start(ex);
	for (unsigned int i = 0; i <= spy_qp.num_blocks; i++) {
		ex->wr_id = i;
		ibv_wr_send(ex);
	}
	TS_EQ(ibv_wr_complete(ex), ENOMEM);
	TS_EQ(sq_pi(), 0);

	/* Just full. */
	ibv_wr_start(ex);
	for (unsigned int i = 0; i < spy_qp.num_blocks; i++)
		ibv_wr_send(ex);
	ibv_wr_abort(ex);
	TS_EQ(sq_pi(), 0);

	/* A READ without its SGE, data for an operation that has had it. */
	ibv_wr_start(ex);
	ibv_wr_rdma_read(ex, 1, 2);
	TS_EQ(ibv_wr_complete(ex), EINVAL);
	ibv_wr_start(ex);
	ibv_wr_rdma_read(ex, 1, 2);
	ibv_wr_set_inline_data(ex, mem, 8);
	TS_EQ(ibv_wr_complete(ex), EINVAL);
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, 1, 2, 3);
	ibv_wr_set_sge(ex, 1, 2, 3);
	TS_EQ(ibv_wr_complete(ex), EINVAL);
	ibv_wr_start(ex);
	ibv_wr_set_sge(ex, 1, 2, 3);
	TS_EQ(ibv_wr_complete(ex), 0);
	TS_EQ(sq_pi(), 0);

	/* After all that the queue has all its room. */
	ibv_wr_start(ex);
	for (unsigned int i = 0; i < RING_WR; i++) {
		ibv_wr_rdma_write(ex, 1, 2);
		ibv_wr_set_inline_data(ex, mem, TS_MAX_INLINE);
	}
	TS_OK(ibv_wr_complete(ex));
	TS_EQ(sq_pi(), RING_WR * MAX_BLOCKS);
	ts_end_close(&end);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_full_queue_keeps_what_it_holds),
		cmocka_unit_test(a_list_stops_at_the_wrong_request),
		cmocka_unit_test(reads_and_atomics_take_one_sge),
		cmocka_unit_test(unknown_operations_are_refused),
		cmocka_unit_test(lengths_that_wrap_are_refused),
		cmocka_unit_test(any_true_value_is_true),
		cmocka_unit_test(receive_doorbells_are_clean),
		cmocka_unit_test(a_list_of_sends_rings_once),
		cmocka_unit_test(arm_records_count),
		cmocka_unit_test(queues_of_no_length),
		cmocka_unit_test(lists_of_wr_calls_are_whole_or_nothing),
	};

	return ts_main(argc, argv, "posting", tests, sizeof(tests) / sizeof(*tests), NULL);
}
