// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Control calls: what they answer, what they refuse, and what other threads may do meanwhile.
 */
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include <rdma/ib_user_ioctl_verbs.h>

#include "tests/accept/harness.h"
#include "tests/provider/spy.h"

enum {
	MSG = 64,
	ORD = 3,
	IRD = 5,
	MR_BYTES = 8 * SPY_PAGE,
};

/* Pages of doorbells: kinds of the send queues', and the places in each. */
enum {
	SDB_PAGE = 0,
	SDB_ENTRY = 1,
	SDB_SHARED = 2,
	SDB_SLOTS = 32,
	SDB_SLOT_SIZE = 128,
	SDB_ENTRIES = 16,
	SDB_ENTRY_SIZE = 256,
	RDB_SLOTS = 128,
	RDB_SLOT_SIZE = 32,
	CDB_SLOTS = 512,
};

/* ------------------------------------------------------------------ destroying a CQ */

struct ack {
	struct ibv_cq *cq;
	atomic_bool destroyed;
	int result;
};

static void *destroyer(void *arg)
{
	struct ack *ack = arg;

	ack->result = ibv_destroy_cq(ack->cq);
	ack->destroyed = true;
	return NULL;
}

static void who_holds_an_event_may_finish(void **state)
{
	struct ts_attr attr = { 0 };
	struct ibv_comp_channel *channel = ibv_create_comp_channel(ts_dev()->ctx);
	struct ack ack = { 0 };
	struct ts_pair pair;
	struct ibv_cq *got;
	struct ts_buf buf;
	struct ibv_wc wc;
	pthread_t thread;
	void *context;

	(void)state;
	TS_CHECK(channel);
	attr.scq = attr.rcq = ibv_create_cq(ts_dev()->ctx, 64, NULL, channel, 0);
	TS_CHECK(attr.rcq);
	ack.cq = attr.rcq;
	ts_buf_open(&buf, SPY_PAGE);
	ts_pair_open(&pair, NULL, &attr);
	TS_OK(ibv_req_notify_cq(attr.rcq, 0));
	TS_OK(ts_post_recv(pair.b.qp, 1, &buf, MSG, MSG));
	TS_OK(ts_post(pair.a.qp, IBV_WR_SEND, 1, &buf, 0, 8, 0, 0, 0));
	TS_CHECK(!ibv_get_cq_event(channel, &got, &context));
	ts_pair_close(&pair);

	/* The event is not acknowledged, so the CQ stays; polling and arming must not hang on it. */
	TS_EQ(pthread_create(&thread, NULL, destroyer, &ack), 0);
	ts_sleep_ms(TS_QUIET_MS);
	for (int i = 0; i < 1000; i++) {
		TS_EQ(ibv_poll_cq(got, 1, &wc), 0);
		TS_OK(ibv_req_notify_cq(got, 0));
	}
	assert_false(ack.destroyed);
	ibv_ack_cq_events(got, 1);
	pthread_join(thread, NULL);
	TS_EQ(ack.result, 0);
	TS_OK(ibv_destroy_comp_channel(channel));
	ts_buf_close(&buf);
}

/* ------------------------------------------------------------------ reasons of failures */

static void errno_tells_the_reason(void **state)
{
	static const int reasons[] = { ENOMEM, EPERM, EINVAL, EMFILE };
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 1, .max_recv_wr = 1 } };
	struct ibv_cq_init_attr_ex ex = { .cqe = 16 };
	struct ibv_cq *cq = ibv_create_cq(ts_dev()->ctx, 16, NULL, NULL, 0);
	static uint8_t mem[SPY_PAGE];

	(void)state;
	TS_CHECK(cq);
	attr.send_cq = attr.recv_cq = cq;
	for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++) {
		spy_fail[SPY_CREATE_CQ] = reasons[i];
		assert_null(ibv_create_cq(ts_dev()->ctx, 16, NULL, NULL, 0));
		TS_EQ(errno, reasons[i]);
		spy_fail[SPY_CREATE_CQ] = reasons[i];
		assert_null(ibv_create_cq_ex(ts_dev()->ctx, &ex));
		TS_EQ(errno, reasons[i]);
		spy_fail[SPY_CREATE_QP] = reasons[i];
		assert_null(ibv_create_qp(ts_dev()->pd, &attr));
		TS_EQ(errno, reasons[i]);
		spy_fail[SPY_REG_MR] = reasons[i];
		assert_null(ibv_reg_mr(ts_dev()->pd, mem, sizeof(mem), 0));
		TS_EQ(errno, reasons[i]);
		/* The first thing of a CQ and of a QP that is kept from children is its ring. */
		spy_fail[SPY_DONTFORK] = reasons[i];
		assert_null(ibv_create_cq(ts_dev()->ctx, 16, NULL, NULL, 0));
		TS_EQ(errno, reasons[i]);
		spy_fail[SPY_DONTFORK] = reasons[i];
		assert_null(ibv_create_qp(ts_dev()->pd, &attr));
		TS_EQ(errno, reasons[i]);
	}
	TS_OK(ibv_destroy_cq(cq));
}

static void what_cannot_be_is_refused(void **state)
{
	struct ibv_context *ctx = ts_dev()->ctx;
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_UD,
					 .cap = { .max_send_wr = 1, .max_recv_wr = 1 } };
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 16, .wc_flags = IBV_WC_EX_WITH_FLOW_TAG };
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr_ex ex;

	(void)state;
	TS_CHECK(cq);
	attr.send_cq = attr.recv_cq = cq;
	assert_null(ibv_create_qp(ts_dev()->pd, &attr));
	TS_EQ(errno, EOPNOTSUPP);
	attr.qp_type = IBV_QPT_UC;
	assert_null(ibv_create_qp(ts_dev()->pd, &attr));
	TS_EQ(errno, EOPNOTSUPP);

	ex = (struct ibv_qp_init_attr_ex){
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.pd = ts_dev()->pd,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_TSO,
	};
	assert_null(ibv_create_qp_ex(ctx, &ex));
	TS_EQ(errno, EOPNOTSUPP);
	ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
	ex.create_flags = IBV_QP_CREATE_SCATTER_FCS;
	assert_null(ibv_create_qp_ex(ctx, &ex));
	TS_EQ(errno, EOPNOTSUPP);

	assert_null(ibv_create_cq_ex(ctx, &cq_attr));
	TS_EQ(errno, EOPNOTSUPP);
	cq_attr.wc_flags = 0;
	cq_attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	cq_attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	assert_null(ibv_create_cq_ex(ctx, &cq_attr));
	TS_EQ(errno, EOPNOTSUPP);
	cq_attr.flags = 0;
	cq_attr.cqe = 0;
	assert_null(ibv_create_cq_ex(ctx, &cq_attr));
	TS_EQ(errno, EINVAL);
	assert_null(ibv_create_cq(ctx, -1, NULL, NULL, 0));
	TS_EQ(errno, EINVAL);
	assert_null(ibv_create_cq(ctx, ts_dev()->attr.max_cqe + 1, NULL, NULL, 0));
	TS_EQ(errno, EINVAL);
	TS_OK(ibv_destroy_cq(cq));
}

/* ------------------------------------------------------------------ queries */

/* As the newer kernels answer in iWARP mode. */
static void exchange_depths(struct ibv_qp_attr *attr)
{
	attr->max_rd_atomic = IRD;
	attr->max_dest_rd_atomic = ORD;
}

static void a_query_tells_what_was_made(void **state)
{
	struct ts_attr a = { .cap = { .max_send_wr = 5,
				      .max_recv_wr = 9,
				      .max_send_sge = 2,
				      .max_inline_data = 20 },
			     .ord = ORD,
			     .ird = IRD,
			     .sq_sig_all = 1 };
	struct ts_attr b = { .ord = IRD, .ird = ORD };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ts_end reset;
	struct ts_pair pair;

	(void)state;
	ts_pair_open(&pair, &a, &b);
	if (ts_dev()->iwarp)
		spy_qp_queried = exchange_depths;
	TS_OK(ibv_query_qp(pair.a.qp, &attr,
			   IBV_QP_CAP | IBV_QP_STATE | IBV_QP_MAX_QP_RD_ATOMIC |
				   IBV_QP_MAX_DEST_RD_ATOMIC,
			   &init));
	assert_memory_equal(&attr.cap, &pair.a.attr.cap, sizeof(attr.cap));
	assert_memory_equal(&init.cap, &pair.a.attr.cap, sizeof(init.cap));
	if (attr.cap.max_send_wr < 5 || attr.cap.max_send_wr > 8)
		TS_FAIL("max_send_wr is %u", attr.cap.max_send_wr);
	TS_EQ(attr.qp_state, IBV_QPS_RTS);
	TS_EQ(attr.max_rd_atomic, ORD);
	TS_EQ(attr.max_dest_rd_atomic, IRD);
	TS_EQ(init.sq_sig_all, 1);
	TS_EQ(init.qp_type, IBV_QPT_RC);
	assert_ptr_equal(init.send_cq, pair.a.scq);
	spy_qp_queried = NULL;
	ts_pair_close(&pair);

	ts_end_open(&reset, NULL);
	TS_OK(ibv_query_qp(reset.qp, &attr, IBV_QP_STATE, &init));
	TS_EQ(attr.qp_state, IBV_QPS_RESET);
	TS_EQ(reset.qp->state, IBV_QPS_RESET);
	ts_end_close(&reset);
}

/* ------------------------------------------------------------------ memory regions */

static void zero_based_regions(void **state)
{
	int access = TS_ACCESS_ALL | IBV_ACCESS_ZERO_BASED;
	struct ts_pair pair;
	struct ibv_mr *mr;
	struct ts_buf buf;
	uint8_t *mem;
	struct ibv_wc wc;

	(void)state;
	mem = mmap(NULL, MR_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	TS_CHECK(mem != MAP_FAILED);
	assert_null(ibv_reg_mr(ts_dev()->pd, mem + 8, MSG, access));
	TS_EQ(errno, EINVAL);

	mr = ibv_reg_mr(ts_dev()->pd, mem, MR_BYTES, access);
	TS_CHECK(mr);
	assert_ptr_equal(mr->addr, mem);
	ts_buf_open(&buf, SPY_PAGE);
	ts_fill(buf.p, MSG, 1);
	ts_pair_open(&pair, NULL, NULL);

	/* Offsets, not addresses: the last bytes. */
	TS_OK(ts_post(pair.a.qp, IBV_WR_RDMA_WRITE, 1, &buf, 0, MSG, MR_BYTES - MSG, mr->rkey, 0));
	ts_poll_ok(pair.a.scq, &wc);
	/* What comes after a write finds it there. */
	TS_OK(ts_post_recv(pair.b.qp, 1, &buf, MSG, MSG));
	TS_OK(ts_post(pair.a.qp, IBV_WR_SEND, 1, &buf, 0, 8, 0, 0, 0));
	ts_poll_ok(pair.b.rcq, &wc);
	ts_poll_ok(pair.a.scq, &wc);
	TS_EQ(ts_differs(mem + MR_BYTES - MSG, MSG, 1), -1);
	/* The buffer's address means nothing. */
	TS_OK(ts_post(pair.a.qp, IBV_WR_RDMA_READ, 2, &buf, 0, MSG, (uintptr_t)mem, mr->rkey, 0));
	ts_poll(pair.a.scq, &wc, 1);
	assert_true(wc.status != IBV_WC_SUCCESS);
	ts_pair_close(&pair);
	TS_OK(ibv_dereg_mr(mr));
	ts_buf_close(&buf);
	munmap(mem, MR_BYTES);
}

static void access_flags_are_checked(void **state)
{
	static const struct {
		int access;
		int err;
	} cases[] = {
		{ 0, 0 },
		{ IBV_ACCESS_LOCAL_WRITE, 0 },
		{ IBV_ACCESS_REMOTE_READ, 0 },
		{ TS_ACCESS_ALL | IBV_ACCESS_REMOTE_ATOMIC, 0 },
		{ TS_ACCESS_ALL | IBV_ACCESS_RELAXED_ORDERING, 0 },
		{ IBV_ACCESS_REMOTE_WRITE, EINVAL },
		{ IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ, EINVAL },
		{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND, EOPNOTSUPP },
		{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, EOPNOTSUPP },
		{ IBV_ACCESS_LOCAL_WRITE | 1 << 8, EOPNOTSUPP },
		{ IBV_ACCESS_LOCAL_WRITE | 1 << 9, EOPNOTSUPP },
	};
	static uint8_t mem[SPY_PAGE];
	struct ibv_mr *mr;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		errno = 0;
		mr = ibv_reg_mr(ts_dev()->pd, mem, sizeof(mem), cases[i].access);
		if (!mr) {
			if (errno != cases[i].err)
				TS_FAIL("access %#x: errno %d, expected %d", cases[i].access, errno,
					cases[i].err);
			continue;
		}
		if (cases[i].err)
			TS_FAIL("access %#x was accepted", cases[i].access);
		TS_OK(ibv_dereg_mr(mr));
	}
	assert_null(ibv_reg_mr(ts_dev()->pd, mem, 0, 0));
	TS_EQ(errno, EINVAL);
	assert_null(ibv_reg_mr(ts_dev()->pd, (void *)(UINTPTR_MAX - 100), SPY_PAGE, 0));
	TS_EQ(errno, EINVAL);
}

/* ------------------------------------------------------------------ RESET in RoCE mode */

static void modify(struct ibv_qp *qp, enum ibv_qp_state to, uint32_t peer_qpn)
{
	struct ibv_qp_attr attr = { .qp_state = to,
				    .port_num = 1,
				    .qp_access_flags = TS_ACCESS_ALL,
				    .path_mtu = IBV_MTU_1024,
				    .dest_qp_num = peer_qpn,
				    .max_dest_rd_atomic = IRD,
				    .min_rnr_timer = 12,
				    .timeout = 14,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .max_rd_atomic = ORD };
	int mask = IBV_QP_STATE;

	switch (to) {
	case IBV_QPS_INIT:
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
		break;
	case IBV_QPS_RTR:
		attr.ah_attr.is_global = 1;
		attr.ah_attr.port_num = 1;
		TS_OK(ibv_query_gid(ts_dev()->ctx, 1, 0, &attr.ah_attr.grh.dgid));
		attr.ah_attr.grh.hop_limit = 64;
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		break;
	case IBV_QPS_RTS:
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC;
		break;
	default:
		break;
	}
	TS_OK(ibv_modify_qp(qp, &attr, mask));
}

static void reset_starts_anew(void **state)
{
	struct ts_end a, b;
	struct ts_buf buf;
	struct ibv_wc wc;
	struct spy_qp seen;

	(void)state;
	if (ts_dev()->iwarp)
		ts_skip("in iWARP mode a QP cannot be connected by ibv_modify_qp");
	ts_buf_open(&buf, SPY_PAGE);
	ts_end_open(&a, NULL);
	seen = spy_qp;
	ts_end_open(&b, NULL);
	for (int round = 0; round < 20; round++) {
		modify(a.qp, IBV_QPS_INIT, 0);
		modify(b.qp, IBV_QPS_INIT, 0);
		TS_EQ(ts_post(a.qp, IBV_WR_SEND, 1, &buf, 0, 8, 0, 0, 0), EINVAL);
		modify(a.qp, IBV_QPS_RTR, b.qp->qp_num);
		modify(b.qp, IBV_QPS_RTR, a.qp->qp_num);
		modify(a.qp, IBV_QPS_RTS, 0);
		modify(b.qp, IBV_QPS_RTS, 0);
		for (uint64_t i = 0; i < 40; i++) {
			TS_OK(ts_post_recv(b.qp, i, &buf, MSG, MSG));
			TS_OK(ts_post(a.qp, IBV_WR_SEND, i, &buf, 0, 8, 0, 0, 0));
			ts_poll_ok(a.scq, &wc);
			TS_EQ(wc.wr_id, i);
			ts_poll_ok(b.rcq, &wc);
			TS_EQ(wc.wr_id, i);
		}
		/* Completions and receives that nobody will hear of. */
		for (uint64_t i = 0; i < 3; i++) {
			TS_OK(ts_post_recv(b.qp, 1000 + i, &buf, MSG, MSG));
			TS_OK(ts_post_recv(a.qp, 1000 + i, &buf, MSG, MSG));
			TS_OK(ts_post(a.qp, IBV_WR_SEND, 1000, &buf, 0, 8, 0, 0, 0));
		}
		ts_sleep_ms(10);
		modify(a.qp, IBV_QPS_ERR, 0);
		modify(a.qp, IBV_QPS_RESET, 0);
		modify(b.qp, IBV_QPS_RESET, 0);
		TS_EQ(seen.records[0], 0);
		TS_EQ(seen.records[1], 0);
		TS_EQ(ts_post(a.qp, IBV_WR_SEND, 1, &buf, 0, 8, 0, 0, 0), EINVAL);
		TS_EQ(ts_post_recv(a.qp, 1, &buf, 0, 8), EINVAL);
		TS_EQ(ibv_poll_cq(a.scq, 1, &wc), 0);
		TS_EQ(ibv_poll_cq(a.rcq, 1, &wc), 0);
		TS_EQ(ibv_poll_cq(b.rcq, 1, &wc), 0);
	}
	ts_end_close(&a);
	ts_end_close(&b);
	ts_buf_close(&buf);
}

/* ------------------------------------------------------------------ doorbells */

static uint64_t doorbell(const volatile uint8_t *page, size_t offset)
{
	uint64_t val = *(const volatile uint64_t *)(page + offset);

	return le64toh(val);
}

/* A QP and its CQ with doorbells of a kind: each value stands at its place. */
static void ring_all(uint32_t sdb_type, uint32_t sdb_offset)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 }
	};
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad_send;
	struct ibv_recv_wr recv = { .wr_id = 1 }, *bad_recv;
	struct ibv_context *ctx;
	size_t place;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	memset(&spy_context, 0, sizeof(spy_context));
	spy_context.force = true;
	spy_context.sdb_type = sdb_type;
	spy_context.sdb_offset = sdb_offset;
	ctx = ibv_open_device(ts_dev()->ctx->device);
	TS_CHECK(ctx);
	assert_true(spy_context.sdb && spy_context.rdb && spy_context.cdb);
	pd = ibv_alloc_pd(ctx);
	TS_CHECK(pd);
	cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	TS_CHECK(cq);
	attr.send_cq = attr.recv_cq = cq;
	qp = ibv_create_qp(pd, &attr);
	TS_CHECK(qp);
	spy_to_init(qp);

	place = sdb_type == SDB_ENTRY ? sdb_offset * SDB_ENTRY_SIZE :
					spy_qp.qpn % SDB_SLOTS * SDB_SLOT_SIZE;
	if (ts_dev()->iwarp) {
		TS_OK(ibv_post_send(qp, &send, &bad_send));
		TS_EQ(doorbell(spy_context.sdb, place), (uint64_t)spy_qp.qpn << 32 | 1);
		TS_EQ(le64toh(spy_qp.records[0]), (uint64_t)spy_qp.qpn << 32 | 1);
	}
	TS_OK(ibv_post_recv(qp, &recv, &bad_recv));
	TS_EQ(doorbell(spy_context.rdb, spy_qp.qpn % RDB_SLOTS * RDB_SLOT_SIZE),
	      (uint64_t)spy_qp.qpn << 32 | 1);
	TS_OK(ibv_req_notify_cq(cq, 0));
	TS_EQ(doorbell(spy_context.cdb, spy_cq.cqn % CDB_SLOTS * sizeof(uint64_t)),
	      le64toh(*spy_cq.record));

	TS_OK(ibv_destroy_qp(qp));
	TS_OK(ibv_destroy_cq(cq));
	TS_OK(ibv_dealloc_pd(pd));
	TS_OK(ibv_close_device(ctx));
}

static void doorbells_of_all_kinds(void **state)
{
	(void)state;
	ring_all(SDB_PAGE, 0);
	ring_all(SDB_SHARED, 0);
	ring_all(SDB_ENTRY, 0);
	ring_all(SDB_ENTRY, 7);
	ring_all(SDB_ENTRY, SDB_ENTRIES - 1);

	/* What a future kernel might say. */
	spy_context.sdb_type = SDB_ENTRY;
	spy_context.sdb_offset = SDB_ENTRIES;
	assert_null(ibv_open_device(ts_dev()->ctx->device));
	TS_EQ(errno, EIO);
	spy_context.sdb_type = SDB_SHARED + 1;
	assert_null(ibv_open_device(ts_dev()->ctx->device));
	TS_EQ(errno, EOPNOTSUPP);
}

/* ------------------------------------------------------------------ domains */

static void domains_count_their_users(void **state)
{
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_parent_domain_init_attr pd_attr = { 0 };
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 16, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD };
	struct ibv_context *ctx = ts_dev()->ctx;
	struct ibv_qp_init_attr qp_attr = { .qp_type = IBV_QPT_RC,
					    .cap = { .max_send_wr = 1, .max_recv_wr = 1 } };
	struct ibv_pd *pd, *parent;
	struct ibv_cq_ex *cq;
	struct ibv_td *td;
	struct ibv_qp *qp;

	(void)state;
	pd = ibv_alloc_pd(ctx);
	td = ibv_alloc_td(ctx, &td_attr);
	TS_CHECK(pd && td);
	pd_attr.pd = pd;
	pd_attr.td = td;
	parent = ibv_alloc_parent_domain(ctx, &pd_attr);
	TS_CHECK(parent);
	cq_attr.parent_domain = parent;
	cq = ibv_create_cq_ex(ctx, &cq_attr);
	TS_CHECK(cq);
	qp_attr.send_cq = qp_attr.recv_cq = ibv_cq_ex_to_cq(cq);
	qp = ibv_create_qp(parent, &qp_attr);
	TS_CHECK(qp);

	TS_EQ(ibv_dealloc_td(td), EBUSY);
	TS_EQ(ibv_dealloc_pd(pd), EBUSY);
	TS_EQ(ibv_dealloc_pd(parent), EBUSY);
	TS_OK(ibv_destroy_qp(qp));
	TS_EQ(ibv_dealloc_pd(parent), EBUSY);
	TS_OK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	TS_EQ(ibv_dealloc_td(td), EBUSY);
	TS_OK(ibv_dealloc_pd(parent));
	TS_OK(ibv_dealloc_td(td));
	TS_OK(ibv_dealloc_pd(pd));

	pd_attr.pd = NULL;
	assert_null(ibv_alloc_parent_domain(ctx, &pd_attr));
	TS_EQ(errno, EINVAL);
}

struct arena {
	int mode; /* of the next request: its own memory, the default, none */
	unsigned int given, returned, asked;
	void *last;
};

enum {
	OWN,
	DEFAULT,
	NONE
};

static void *arena_alloc(struct ibv_pd *pd, void *context, size_t size, size_t alignment,
			 uint64_t type)
{
	struct arena *arena = context;

	assert_non_null(pd);
	assert_int_equal(type >> 32, RDMA_DRIVER_ERDMA);
	TS_EQ(size % SPY_PAGE, 0);
	TS_EQ(alignment % SPY_PAGE, 0);
	arena->asked++;
	if (arena->mode == DEFAULT)
		return IBV_ALLOCATOR_USE_DEFAULT;
	if (arena->mode == NONE)
		return NULL;
	arena->last = aligned_alloc(alignment, size);
	assert_non_null(arena->last);
	/* What was there before is not to be seen by the kernel. */
	memset(arena->last, 0xff, size);
	arena->given++;
	return arena->last;
}

static void arena_free(struct ibv_pd *pd, void *context, void *p, uint64_t type)
{
	struct arena *arena = context;

	assert_non_null(pd);
	assert_int_equal(type >> 32, RDMA_DRIVER_ERDMA);
	arena->returned++;
	free(p);
}

static void rings_of_the_application(void **state)
{
	struct arena arena = { .mode = OWN };
	struct ibv_parent_domain_init_attr pd_attr = {
		.pd = ts_dev()->pd,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			     IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
		.alloc = arena_alloc,
		.free = arena_free,
		.pd_context = &arena,
	};
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 100, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD };
	struct ibv_pd *plain = ts_dev()->pd;
	struct ts_attr attr = { 0 };
	struct ibv_cq_ex *cq;
	struct ts_pair pair;
	struct ts_buf buf;
	struct ibv_wc wc[2];

	(void)state;
	ts_buf_open(&buf, SPY_PAGE);
	cq_attr.parent_domain = ibv_alloc_parent_domain(ts_dev()->ctx, &pd_attr);
	TS_CHECK(cq_attr.parent_domain);
	for (int mode = OWN; mode <= DEFAULT; mode++) {
		memset(&arena, 0, sizeof(arena));
		arena.mode = mode;
		cq = ibv_create_cq_ex(ts_dev()->ctx, &cq_attr);
		TS_CHECK(cq);
		if (mode == OWN)
			assert_ptr_equal(spy_cq.ring, arena.last);
		assert_true(spy_cq.ring_clean);
		attr.scq = attr.rcq = ibv_cq_ex_to_cq(cq);
		ts_dev()->pd = cq_attr.parent_domain;
		ts_pair_open(&pair, &attr, &attr);
		ts_dev()->pd = plain;
		TS_EQ(arena.asked, 3);
		TS_OK(ts_post_recv(pair.b.qp, 1, &buf, MSG, MSG));
		TS_OK(ts_post(pair.a.qp, IBV_WR_SEND, 2, &buf, 0, 8, 0, 0, 0));
		ts_poll(attr.scq, wc, 2);
		TS_EQ(wc[0].status | wc[1].status, 0);
		ts_pair_close(&pair);
		TS_OK(ibv_destroy_cq(attr.scq));
		TS_EQ(arena.given, mode == OWN ? 3 : 0);
		TS_EQ(arena.returned, arena.given);
	}

	arena.mode = NONE;
	assert_null(ibv_create_cq_ex(ts_dev()->ctx, &cq_attr));
	TS_EQ(errno, ENOMEM);
	arena.mode = OWN;
	spy_fail[SPY_DONTFORK] = EAGAIN;
	assert_null(ibv_create_cq_ex(ts_dev()->ctx, &cq_attr));
	TS_EQ(errno, EAGAIN);
	spy_fail[SPY_CREATE_CQ] = EPERM;
	assert_null(ibv_create_cq_ex(ts_dev()->ctx, &cq_attr));
	TS_EQ(errno, EPERM);
	TS_EQ(arena.returned, arena.given);
	TS_OK(ibv_dealloc_pd(cq_attr.parent_domain));

	pd_attr.free = NULL;
	assert_null(ibv_alloc_parent_domain(ts_dev()->ctx, &pd_attr));
	TS_EQ(errno, EINVAL);
	pd_attr.comp_mask = 1u << 31;
	assert_null(ibv_alloc_parent_domain(ts_dev()->ctx, &pd_attr));
	TS_EQ(errno, EOPNOTSUPP);
	ts_buf_close(&buf);
}

static void single_threaded_objects_work(void **state)
{
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 256,
					       .wc_flags = IBV_WC_STANDARD_FLAGS,
					       .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					       .flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED };
	struct ibv_parent_domain_init_attr pd_attr = { .pd = ts_dev()->pd };
	struct ibv_pd *plain = ts_dev()->pd;
	struct ibv_poll_cq_attr poll_attr = { 0 };
	struct ts_attr attr = { .qp_ex = true };
	struct ibv_cq_ex *cq;
	struct ibv_qp_ex *ex;
	struct ts_pair pair;
	struct ts_buf buf;
	struct ibv_td *td;
	uint64_t limit;
	int ret;

	(void)state;
	ts_buf_open(&buf, SPY_PAGE);
	td = ibv_alloc_td(ts_dev()->ctx, &td_attr);
	TS_CHECK(td);
	pd_attr.td = td;
	ts_dev()->pd = ibv_alloc_parent_domain(ts_dev()->ctx, &pd_attr);
	TS_CHECK(ts_dev()->pd);
	cq = ibv_create_cq_ex(ts_dev()->ctx, &cq_attr);
	TS_CHECK(cq);
	attr.scq = attr.rcq = ibv_cq_ex_to_cq(cq);
	ts_pair_open(&pair, &attr, &attr);
	ex = ibv_qp_to_qp_ex(pair.a.qp);
	assert_non_null(ex);

	for (uint64_t i = 0; i < 1000; i++) {
		unsigned int seen = 0;

		TS_OK(ts_post_recv(pair.b.qp, i, &buf, MSG, MSG));
		if (i % 2) {
			TS_OK(ts_post(pair.a.qp, IBV_WR_SEND, i, &buf, 0, 8, 0, 0, 0));
		} else {
			ibv_wr_start(ex);
			ex->wr_id = i;
			ex->wr_flags = IBV_SEND_SIGNALED;
			ibv_wr_send(ex);
			ibv_wr_set_inline_data(ex, buf.p, 8);
			TS_OK(ibv_wr_complete(ex));
		}
		limit = ts_now() + TS_WAIT_MS * 1000000ULL;
		while (seen != 3) {
			ret = ibv_start_poll(cq, &poll_attr);
			if (ret == ENOENT) {
				if (ts_now() > limit)
					TS_FAIL("message %llu: nothing comes",
						(unsigned long long)i);
				continue;
			}
			TS_OK(ret);
			do {
				TS_EQ(cq->status, IBV_WC_SUCCESS);
				TS_EQ(cq->wr_id, i);
				seen |= ibv_wc_read_opcode(cq) == IBV_WC_RECV ? 1 : 2;
			} while (!ibv_next_poll(cq));
			ibv_end_poll(cq);
		}
	}
	ts_pair_close(&pair);
	TS_OK(ibv_destroy_cq(attr.scq));
	TS_OK(ibv_dealloc_pd(ts_dev()->pd));
	ts_dev()->pd = plain;
	TS_OK(ibv_dealloc_td(td));
	ts_buf_close(&buf);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_holds_an_event_may_finish),
		cmocka_unit_test(errno_tells_the_reason),
		cmocka_unit_test(what_cannot_be_is_refused),
		cmocka_unit_test(a_query_tells_what_was_made),
		cmocka_unit_test(zero_based_regions),
		cmocka_unit_test(access_flags_are_checked),
		cmocka_unit_test(reset_starts_anew),
		cmocka_unit_test(doorbells_of_all_kinds),
		cmocka_unit_test(domains_count_their_users),
		cmocka_unit_test(rings_of_the_application),
		cmocka_unit_test(single_threaded_objects_work),
	};

	return ts_main(argc, argv, "control", tests, sizeof(tests) / sizeof(*tests), NULL);
}
