// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * RoCE mode: RC queue pairs that the program connects by ibv_modify_qp() with GIDs and numbers it
 * has exchanged itself.  ERDMA_HOST must say mode=roce.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <cmocka.h>
#include <infiniband/verbs.h>

enum {
	BUF = 4096,
	WRS = 8,
	POLL_SECONDS = 30,
	BUSY_POLLS = 1000,
	GID_LOOPBACK_MAX = 32,
	MANY = 40,
};

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	char buf[BUF];
};

static struct ibv_context *context;
static union ibv_gid gid;
static uint8_t gid_index;

static int open_device(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	static const uint8_t v4[12] = { [10] = 0xff, [11] = 0xff };
	int i;

	(void)state;
	assert_non_null(list);
	assert_non_null(list[0]);
	context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	assert_non_null(context);
	/* the first that is an IPv4 address */
	for (i = 0; i < GID_LOOPBACK_MAX; i++)
		if (!ibv_query_gid(context, 1, i, &gid) && !memcmp(gid.raw, v4, sizeof(v4)))
			break;
	assert_true(i < GID_LOOPBACK_MAX);
	gid_index = (uint8_t)i;
	return 0;
}

static int close_device(void **state)
{
	(void)state;
	return ibv_close_device(context);
}

static void init(struct end *end)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};

	assert_int_equal(ibv_modify_qp(end->qp, &attr,
				       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					       IBV_QP_ACCESS_FLAGS),
			 0);
}

static void create(struct end *end)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = WRS,
			 .max_recv_wr = WRS,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	memset(end, 0, sizeof(*end));
	end->ctx = context;
	end->pd = ibv_alloc_pd(context);
	assert_non_null(end->pd);
	end->cq = ibv_create_cq(context, 4 * WRS, NULL, NULL, 0);
	assert_non_null(end->cq);
	end->mr = ibv_reg_mr(end->pd, end->buf, BUF,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				     IBV_ACCESS_REMOTE_READ);
	assert_non_null(end->mr);
	attr.send_cq = end->cq;
	attr.recv_cq = end->cq;
	end->qp = ibv_create_qp(end->pd, &attr);
	assert_non_null(end->qp);
	init(end);
}

static void destroy(struct end *end)
{
	assert_int_equal(ibv_destroy_qp(end->qp), 0);
	assert_int_equal(ibv_dereg_mr(end->mr), 0);
	assert_int_equal(ibv_destroy_cq(end->cq), 0);
	assert_int_equal(ibv_dealloc_pd(end->pd), 0);
}

static int rtr(struct end *end, uint32_t qpn, const union ibv_gid *dgid)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qpn, .max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1, .port_num = 1,
			.grh = { .dgid = *dgid, .sgid_index = gid_index, .hop_limit = 1 },
		},
	};

	return ibv_modify_qp(end->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

static int rts_with(struct end *end, uint8_t timeout, uint8_t retry_cnt)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = timeout,
		.retry_cnt = retry_cnt,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};

	return ibv_modify_qp(end->qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* Patient: half a minute, which no delay of a test exceeds. */
static int rts(struct end *end)
{
	return rts_with(end, 20, 7);
}

static void connect_both(struct end *first, struct end *second)
{
	assert_int_equal(rtr(first, second->qp->qp_num, &gid), 0);
	assert_int_equal(rts(first), 0);
	assert_int_equal(rtr(second, first->qp->qp_num, &gid), 0);
	assert_int_equal(rts(second), 0);
}

static void post_recv(struct end *end)
{
	struct ibv_sge sge = { .addr = (uintptr_t)end->buf,
			       .length = BUF / 2,
			       .lkey = end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(ibv_post_recv(end->qp, &wr, &bad), 0);
}

static void post_send(struct end *end, const char *text)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)end->buf + BUF / 2,
		.length = (uint32_t)strlen(text) + 1,
		.lkey = end->mr->lkey,
	};
	struct ibv_send_wr wr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND },
			   *bad;

	strcpy(end->buf + BUF / 2, text);
	assert_int_equal(ibv_post_send(end->qp, &wr, &bad), 0);
}

static void expect(struct end *end, uint64_t wr_id, enum ibv_wc_status status)
{
	time_t limit = time(NULL) + POLL_SECONDS;
	struct ibv_wc wc;
	int polls = 0;

	while (!ibv_poll_cq(end->cq, 1, &wc)) {
		assert_true(time(NULL) <= limit);
		if (++polls > BUSY_POLLS)
			usleep(1000);
	}
	assert_int_equal(wc.status, status);
	assert_int_equal(wc.wr_id, wr_id);
}

static void exchange(struct end *from, struct end *to, const char *text)
{
	post_recv(to);
	post_send(from, text);
	expect(from, 2, IBV_WC_SUCCESS);
	expect(to, 1, IBV_WC_SUCCESS);
	assert_string_equal(to->buf, text);
}

static void test_both_orders(void **state)
{
	struct end a, b;

	(void)state;
	create(&a);
	create(&b);
	connect_both(&a, &b);
	exchange(&a, &b, "a to b");
	exchange(&b, &a, "b to a");
	destroy(&a);
	destroy(&b);
	create(&a);
	create(&b);
	connect_both(&b, &a);
	exchange(&a, &b, "a to b");
	exchange(&b, &a, "b to a");
	destroy(&a);
	destroy(&b);
}

/* What is posted before the other side is ready arrives when it is. */
static void late(struct end *early, struct end *slow)
{
	assert_int_equal(rtr(early, slow->qp->qp_num, &gid), 0);
	assert_int_equal(rts(early), 0);
	post_send(early, "patience");
	usleep(300000);
	post_recv(slow);
	assert_int_equal(rtr(slow, early->qp->qp_num, &gid), 0);
	expect(slow, 1, IBV_WC_SUCCESS);
	expect(early, 2, IBV_WC_SUCCESS);
	assert_string_equal(slow->buf, "patience");
}

static void test_late(void **state)
{
	struct end a, b;

	(void)state;
	create(&a);
	create(&b);
	late(&a, &b);
	destroy(&a);
	destroy(&b);
	create(&a);
	create(&b);
	late(&b, &a);
	destroy(&a);
	destroy(&b);
}

/* A third queue pair that names one of the two gets nothing and disturbs nothing. */
static void test_wrong_peer(void **state)
{
	struct ibv_wc wc;
	struct end a, b, c;

	(void)state;
	create(&c); /* the lowest number of the three calls the others */
	create(&a);
	create(&b);
	assert_int_equal(rtr(&c, b.qp->qp_num, &gid), 0);
	assert_int_equal(rts(&c), 0);
	post_send(&c, "intruder");
	usleep(100000);
	connect_both(&a, &b);
	exchange(&a, &b, "a to b");
	exchange(&b, &a, "b to a");
	assert_int_equal(ibv_poll_cq(c.cq, 1, &wc), 0);
	assert_int_equal(ibv_poll_cq(b.cq, 1, &wc), 0);
	destroy(&c);
	destroy(&a);
	destroy(&b);
}

static void test_reset(void **state)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct end a, b;
	int i;

	(void)state;
	/* the distribution's provider knows no RESET: its indices go on where they were */
	if (!getenv("RDMAV_DRIVERS"))
		skip();
	create(&a);
	create(&b);
	for (i = 0; i < 5; i++) {
		connect_both(&a, &b);
		exchange(&a, &b, "round and round");
		exchange(&b, &a, "round and round");
		assert_int_equal(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
		assert_int_equal(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE), 0);
		init(&a);
		init(&b);
	}
	destroy(&a);
	destroy(&b);
}

static void test_bad_addresses(void **state)
{
	union ibv_gid none = {}, multicast = { .raw = { 0xff, 0x0e, 1 } };
	struct end a;

	(void)state;
	create(&a);
	assert_int_equal(rtr(&a, 0x12345, &none), EINVAL);
	assert_int_equal(rtr(&a, 0x12345, &multicast), EINVAL);
	assert_int_equal(rtr(&a, 5, &gid), EINVAL); /* no port in it */
	assert_int_equal(rts(&a), EINVAL);
	/* the queue pair can still be used */
	assert_int_equal(rtr(&a, 0x12345, &gid), 0);
	destroy(&a);
}

/* More queue pairs than one port names. */
static void test_many(void **state)
{
	static struct end ends[MANY];
	int i;

	(void)state;
	for (i = 0; i < MANY; i++)
		create(&ends[i]);
	for (i = 0; i < MANY; i += 2)
		connect_both(&ends[i], &ends[i + 1]);
	for (i = 0; i < MANY; i += 2) {
		exchange(&ends[i], &ends[i + 1], "one");
		exchange(&ends[i + 1], &ends[i], "two");
	}
	for (i = 0; i < MANY; i++)
		destroy(&ends[i]);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void expect_event(enum ibv_event_type type, struct ibv_qp *qp)
{
	struct pollfd pfd = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	assert_int_equal(poll(&pfd, 1, POLL_SECONDS * 1000), 1);
	assert_int_equal(ibv_get_async_event(context, &event), 0);
	assert_int_equal(event.event_type, type);
	assert_ptr_equal(event.element.qp, qp);
	ibv_ack_async_event(&event);
}

static enum ibv_qp_state state_of(struct end *end)
{
	struct ibv_qp_init_attr init_attr;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init_attr), 0);
	return attr.qp_state;
}

/* The first send has the cause, all else is flushed, and the program hears of it. */
static void expect_unreachable(struct end *end)
{
	int i;

	expect(end, 2, IBV_WC_RETRY_EXC_ERR);
	expect(end, 2, IBV_WC_WR_FLUSH_ERR);
	for (i = 0; i < 2; i++)
		expect(end, 1, IBV_WC_WR_FLUSH_ERR);
	expect_event(IBV_EVENT_QP_FATAL, end->qp);
	/* so is what is posted now; once told of the state the distribution's provider takes nothing more */
	post_recv(end);
	expect(end, 1, IBV_WC_WR_FLUSH_ERR);
	post_send(end, "late");
	expect(end, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(state_of(end), IBV_QPS_ERR);
}

/*
 * Sends to a peer that is not there fail after the time that was asked for: 2^17 * 4.096 us for each of
 * four tries.  The number of the peer decides who of the two would connect.
 */
static void unreachable(uint32_t qpn)
{
	struct ibv_wc wc;
	struct end a;
	double start;

	create(&a);
	post_recv(&a);
	post_recv(&a);
	assert_int_equal(rtr(&a, qpn, &gid), 0);
	assert_int_equal(rts_with(&a, 17, 3), 0);
	usleep(100000);
	assert_int_equal(ibv_poll_cq(a.cq, 1, &wc), 0);
	assert_int_equal(state_of(&a), IBV_QPS_RTS);
	start = seconds();
	post_send(&a, "anybody there?");
	post_send(&a, "hello?");
	expect_unreachable(&a);
	assert_true(seconds() - start >= 4 * 131072 * 4.096e-6);
	destroy(&a);
}

static void test_unreachable(void **state)
{
	struct end other;

	(void)state;
	unreachable(1 << 4);	  /* lower than ours: it should call */
	unreachable(0xffff << 4); /* higher: nobody listens there, most likely */
	/* a process that has no such queue pair, and a queue pair that has no such peer */
	create(&other);
	unreachable(other.qp->qp_num ^ 0xf);
	unreachable(other.qp->qp_num);
	assert_int_equal(rtr(&other, 1 << 4, &gid), 0);
	assert_int_equal(rts(&other), 0);
	unreachable(other.qp->qp_num);
	destroy(&other);
}

/* After the error the queue pair can be used again. */
static void test_unreachable_again(void **state)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct end a, b;

	(void)state;
	create(&a);
	create(&b);
	post_recv(&a);
	post_recv(&a);
	assert_int_equal(rtr(&a, 1 << 4, &gid), 0);
	assert_int_equal(rts_with(&a, 10, 1), 0);
	post_send(&a, "anybody there?");
	post_send(&a, "hello?");
	expect_unreachable(&a);
	/* the distribution's provider knows no RESET */
	if (getenv("RDMAV_DRIVERS")) {
		assert_int_equal(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
		init(&a);
		connect_both(&a, &b);
		exchange(&a, &b, "a to b");
		exchange(&b, &a, "b to a");
	}
	destroy(&a);
	destroy(&b);
}

/* Time-out 0 is for ever: the peer that comes after all gets what was sent. */
static void test_no_timeout(void **state)
{
	struct ibv_wc wc;
	struct end a, b;

	(void)state;
	create(&a);
	create(&b);
	post_recv(&b);
	assert_int_equal(rtr(&a, b.qp->qp_num, &gid), 0);
	assert_int_equal(rts_with(&a, 0, 0), 0);
	post_send(&a, "patience");
	usleep(500000);
	assert_int_equal(ibv_poll_cq(a.cq, 1, &wc), 0);
	assert_int_equal(rtr(&b, a.qp->qp_num, &gid), 0);
	assert_int_equal(rts(&b), 0);
	expect(&b, 1, IBV_WC_SUCCESS);
	expect(&a, 2, IBV_WC_SUCCESS);
	destroy(&a);
	destroy(&b);
}

static void test_bad_timeout(void **state)
{
	struct end a;

	(void)state;
	create(&a);
	assert_int_equal(rtr(&a, 1 << 4, &gid), 0);
	assert_int_equal(rts_with(&a, 32, 7), EINVAL);
	assert_int_equal(rts_with(&a, 14, 8), EINVAL);
	assert_int_equal(rts(&a), 0);
	destroy(&a);
}

/* A peer that goes later, and one that goes before anything was exchanged. */
static void peer_goes(bool idle)
{
	struct end a, b;

	create(&a);
	create(&b);
	assert_int_equal(rtr(&a, b.qp->qp_num, &gid), 0);
	assert_int_equal(rts_with(&a, 10, 7), 0);
	assert_int_equal(rtr(&b, a.qp->qp_num, &gid), 0);
	assert_int_equal(rts(&b), 0);
	if (!idle)
		exchange(&a, &b, "a to b");
	post_recv(&a);
	post_recv(&a);
	destroy(&b);
	post_send(&a, "anybody there?");
	post_send(&a, "hello?");
	expect_unreachable(&a);
	destroy(&a);
}

static void test_peer_goes(void **state)
{
	(void)state;
	peer_goes(false);
	peer_goes(true);
}

/* Between processes; the other one is killed with a receive of ours outstanding. */
static void test_processes(void **state)
{
	int to_child[2], to_parent[2];
	struct ibv_wc wc;
	struct end end;
	uint32_t qpn;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(to_child), 0);
	assert_int_equal(pipe(to_parent), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid)
		open_device(NULL);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		open_device(NULL);
		create(&end);
		qpn = end.qp->qp_num;
		if (write(to_parent[1], &qpn, sizeof(qpn)) != sizeof(qpn) ||
		    read(to_child[0], &qpn, sizeof(qpn)) != sizeof(qpn))
			_exit(1);
		post_recv(&end);
		if (rtr(&end, qpn, &gid) || rts(&end))
			_exit(2);
		post_send(&end, "from the child");
		expect(&end, 2, IBV_WC_SUCCESS);
		pause();
	}
	create(&end);
	post_recv(&end);
	assert_int_equal(read(to_parent[0], &qpn, sizeof(qpn)), sizeof(qpn));
	assert_int_equal(rtr(&end, qpn, &gid), 0);
	assert_int_equal(rts_with(&end, 14, 7), 0);
	qpn = end.qp->qp_num;
	assert_int_equal(write(to_child[1], &qpn, sizeof(qpn)), sizeof(qpn));
	expect(&end, 1, IBV_WC_SUCCESS);
	assert_string_equal(end.buf, "from the child");
	post_recv(&end);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	usleep(100000);
	/* the end of the peer shows when something is sent */
	assert_int_equal(ibv_poll_cq(end.cq, 1, &wc), 0);
	post_send(&end, "anybody there?");
	expect(&end, 2, IBV_WC_RETRY_EXC_ERR);
	expect(&end, 1, IBV_WC_WR_FLUSH_ERR);
	destroy(&end);
	assert_int_equal(ibv_close_device(context), 0);
}

int main(void)
{
	const struct CMUnitTest first[] = {
		cmocka_unit_test(test_processes), /* forks before anything is open */
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_both_orders),   cmocka_unit_test(test_late),
		cmocka_unit_test(test_wrong_peer),    cmocka_unit_test(test_reset),
		cmocka_unit_test(test_bad_addresses), cmocka_unit_test(test_many),
		cmocka_unit_test(test_unreachable),   cmocka_unit_test(test_unreachable_again),
		cmocka_unit_test(test_no_timeout),    cmocka_unit_test(test_bad_timeout),
		cmocka_unit_test(test_peer_goes),
	};
	int failed = cmocka_run_group_tests(first, NULL, NULL);

	return failed ? failed : cmocka_run_group_tests(tests, open_device, close_device);
}
