// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Completion events: no wake-up is lost between arming, draining and sleeping; solicited-only is
 * honoured; events are counted exactly.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include "tests/accept/harness.h"

enum {
	ROUNDS = 1000000,
	WINDOW = 64,
	LOST_MS = 10000,
};

static bool event_within(struct ibv_comp_channel *channel, int ms)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	int rc;

	do
		rc = poll(&fd, 1, ms);
	while (rc < 0 && errno == EINTR);
	return rc == 1;
}

static void take_event(struct ibv_comp_channel *channel, struct ibv_cq *want)
{
	struct ibv_cq *cq;
	void *context;

	TS_CHECK(!ibv_get_cq_event(channel, &cq, &context));
	assert_ptr_equal(cq, want);
	assert_ptr_equal(context, want->cq_context);
	ibv_ack_cq_events(cq, 1);
}

/* ------------------------------------------------------------------ the race */

struct producer {
	struct ts_pair *pair;
	const struct ts_buf *local;
	long rounds;
	_Atomic long sent, received;
	_Atomic(const char *) error;
	_Atomic bool stop;
	bool paced; /* one message at a time, sent while the consumer goes to sleep */
};

static void spin(uint32_t n)
{
	for (volatile uint32_t i = 0; i < n; i++)
		;
}

/* Must not fail a cmocka assertion: it is no main thread. */
static void *produce(void *arg)
{
	struct producer *p = arg;
	struct ibv_qp *qp = p->pair->a.qp;
	uint32_t random = 1;
	long reaped = 0;

	while (atomic_load(&p->sent) < p->rounds && !atomic_load(&p->stop)) {
		struct ibv_sge sge = ts_sge(p->local, 0, 8);
		struct ibv_send_wr wr = { .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = IBV_WR_SEND,
					  .send_flags = IBV_SEND_SIGNALED },
				   *bad;
		long sent = atomic_load(&p->sent);
		struct ibv_wc wc[16];
		int n;

		n = ibv_poll_cq(p->pair->a.scq, 16, wc);
		for (int i = 0; i < n; i++)
			if (wc[i].status)
				atomic_store(&p->error, ibv_wc_status_str(wc[i].status));
		reaped += n > 0 ? n : 0;
		if (sent - reaped >= WINDOW ||
		    sent - atomic_load(&p->received) >= (p->paced ? 1 : WINDOW / 2)) {
			sched_yield();
			continue;
		}
		random = random * 1103515245u + 12345;
		spin(random >> 16 & 0xff);
		if (ibv_post_send(qp, &wr, &bad))
			atomic_store(&p->error, "ibv_post_send");
		atomic_fetch_add(&p->sent, 1);
	}
	return NULL;
}

static void race(long rounds, bool paced)
{
	struct ts_attr attr = { .channel = true,
				.cap = { .max_recv_wr = WINDOW, .max_send_wr = WINDOW } };
	struct producer producer = { .rounds = rounds, .paced = paced };
	struct ts_attr sender = { .cap = { .max_send_wr = WINDOW } };
	long slept = 0, received = 0;
	struct ts_buf local, remote;
	struct ts_pair pair;
	pthread_t thread;

	ts_pair_open(&pair, &sender, &attr);
	ts_buf_open(&local, 4096);
	ts_buf_open(&remote, 4096);
	for (int i = 0; i < WINDOW; i++)
		TS_OK(ts_post_recv(pair.b.qp, (uint64_t)i, &remote, 0, 64));
	producer.pair = &pair;
	producer.local = &local;
	TS_OK(ibv_req_notify_cq(pair.b.rcq, 0));
	TS_OK(pthread_create(&thread, NULL, produce, &producer));
	while (received < rounds) {
		struct ibv_wc wc[8];
		int n;

		if (!event_within(pair.b.channel, LOST_MS)) {
			atomic_store(&producer.stop, true);
			pthread_join(thread, NULL);
			if (atomic_load(&producer.error))
				TS_FAIL("the producer failed: %s", atomic_load(&producer.error));
			n = ibv_poll_cq(pair.b.rcq, 8, wc);
			TS_FAIL("no event for %d ms in round %ld of %ld; %ld sent, %ld received; "
				"%d completions wait in the CQ",
				LOST_MS, received, rounds, atomic_load(&producer.sent), received,
				n);
		}
		slept++;
		take_event(pair.b.channel, pair.b.rcq);
		/* arm first, then drain: what comes after the last look raises an event */
		TS_OK(ibv_req_notify_cq(pair.b.rcq, 0));
		while ((n = ibv_poll_cq(pair.b.rcq, 8, wc)) > 0)
			for (int i = 0; i < n; i++) {
				if (wc[i].status)
					TS_FAIL("receive %ld: %s", received,
						ibv_wc_status_str(wc[i].status));
				TS_OK(ts_post_recv(pair.b.qp, (uint64_t)received, &remote, 0, 64));
				received++;
				atomic_store(&producer.received, received);
			}
		TS_EQ(n, 0);
	}
	pthread_join(thread, NULL);
	if (atomic_load(&producer.error))
		TS_FAIL("the producer failed: %s", atomic_load(&producer.error));
	TS_EQ(received, rounds);
	print_message("%ld messages, %ld wake-ups\n", received, slept);
	ts_pair_close(&pair);
	ts_buf_close(&local);
	ts_buf_close(&remote);
}

static void nothing_lost_paced(void **state)
{
	(void)state;
	race(ts_scale(ROUNDS / 4), true);
}

static void nothing_lost_streaming(void **state)
{
	(void)state;
	race(ts_scale(ROUNDS), false);
}

/* ------------------------------------------------------------------ single rules */

struct rules {
	struct ts_pair pair;
	struct ts_buf local, remote;
};

static void open_rules(struct rules *t)
{
	struct ts_attr attr = { .channel = true };

	ts_pair_open(&t->pair, NULL, &attr);
	ts_buf_open(&t->local, 4096);
	ts_buf_open(&t->remote, 4096);
	for (uint64_t i = 0; i < 12; i++)
		TS_OK(ts_post_recv(t->pair.b.qp, i, &t->remote, 0, 64));
}

static void close_rules(struct rules *t)
{
	ts_pair_close(&t->pair);
	ts_buf_close(&t->local);
	ts_buf_close(&t->remote);
}

static void send_one(struct rules *t, unsigned int flags)
{
	struct ibv_wc wc;

	TS_OK(ts_post(t->pair.a.qp, IBV_WR_SEND, 1, &t->local, 0, 8, 0, 0, flags));
	ts_poll_ok(t->pair.a.scq, &wc);
}

/* No event without arming, one event per arming. */
static void one_event_per_arm(void **state)
{
	struct ibv_comp_channel *channel;
	struct ibv_wc wc;
	struct rules t;

	(void)state;
	open_rules(&t);
	channel = t.pair.b.channel;
	send_one(&t, 0);
	assert_false(event_within(channel, TS_QUIET_MS));
	ts_poll_ok(t.pair.b.rcq, &wc);
	TS_OK(ibv_req_notify_cq(t.pair.b.rcq, 0));
	assert_false(event_within(channel, TS_QUIET_MS));
	send_one(&t, 0);
	send_one(&t, 0);
	assert_true(event_within(channel, TS_WAIT_MS));
	take_event(channel, t.pair.b.rcq);
	send_one(&t, 0);
	assert_false(event_within(channel, TS_QUIET_MS));
	for (int i = 0; i < 3; i++)
		ts_poll_ok(t.pair.b.rcq, &wc);
	/* armed twice is armed once */
	TS_OK(ibv_req_notify_cq(t.pair.b.rcq, 0));
	TS_OK(ibv_req_notify_cq(t.pair.b.rcq, 0));
	send_one(&t, 0);
	assert_true(event_within(channel, TS_WAIT_MS));
	take_event(channel, t.pair.b.rcq);
	send_one(&t, 0);
	assert_false(event_within(channel, TS_QUIET_MS));
	close_rules(&t);
}

/* A completion that is there when arming raises the event, whether it came before or after the last poll. */
static void arming_a_full_cq(void **state)
{
	struct ibv_comp_channel *channel;
	struct ibv_wc wc;
	struct rules t;

	(void)state;
	open_rules(&t);
	channel = t.pair.b.channel;
	for (int round = 0; round < 5; round++) {
		send_one(&t, 0);
		send_one(&t, 0);
		ts_poll_ok(t.pair.b.rcq, &wc);
		ts_sleep_ms(TS_QUIET_MS); /* the second has arrived by now */
		TS_OK(ibv_req_notify_cq(t.pair.b.rcq, 0));
		if (!event_within(channel, 1000))
			TS_FAIL("round %d: a completion waits in the CQ, arming raised no event",
				round);
		take_event(channel, t.pair.b.rcq);
		ts_poll_ok(t.pair.b.rcq, &wc);
		TS_OK(ts_post_recv(t.pair.b.qp, 1, &t.remote, 0, 64));
		TS_OK(ts_post_recv(t.pair.b.qp, 1, &t.remote, 0, 64));
	}
	close_rules(&t);
}

/*
 * A program may take an event, arm, and poll less than there is: the rest raises the next event, whether
 * or not it has had a part in the last one.
 */
static void arming_and_not_draining(void **state)
{
	struct ibv_comp_channel *channel;
	struct ibv_wc wc;
	struct rules t;

	(void)state;
	open_rules(&t);
	channel = t.pair.b.channel;
	TS_OK(ibv_req_notify_cq(t.pair.b.rcq, 0));
	for (int i = 0; i < 6; i++)
		send_one(&t, 0);
	ts_sleep_ms(TS_QUIET_MS); /* all six have arrived by now */
	for (int i = 0; i < 6; i++) {
		if (!event_within(channel, 1000))
			TS_FAIL("%d completions wait in the CQ, and no event tells of them", 6 - i);
		take_event(channel, t.pair.b.rcq);
		TS_OK(ibv_req_notify_cq(t.pair.b.rcq, 0));
		ts_poll_ok(t.pair.b.rcq, &wc);
	}
	close_rules(&t);
}

static void solicited_with(int solicited_only)
{
	struct ibv_comp_channel *channel;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_wc wc[4];
	struct rules t;

	open_rules(&t);
	channel = t.pair.b.channel;
	TS_OK(ibv_req_notify_cq(t.pair.b.rcq, solicited_only));
	send_one(&t, 0);
	send_one(&t, 0);
	if (event_within(channel, TS_QUIET_MS))
		TS_FAIL("armed with solicited_only %d, a plain message raised an event",
			solicited_only);
	send_one(&t, IBV_SEND_SOLICITED);
	assert_true(event_within(channel, TS_WAIT_MS));
	take_event(channel, t.pair.b.rcq);
	ts_poll(t.pair.b.rcq, wc, 3);
	/* arming for all takes precedence over an earlier solicited-only */
	TS_OK(ibv_req_notify_cq(t.pair.b.rcq, solicited_only));
	TS_OK(ibv_req_notify_cq(t.pair.b.rcq, 0));
	send_one(&t, 0);
	assert_true(event_within(channel, TS_WAIT_MS));
	take_event(channel, t.pair.b.rcq);
	ts_poll(t.pair.b.rcq, wc, 1);
	/* a failure counts as solicited */
	TS_OK(ibv_req_notify_cq(t.pair.b.rcq, solicited_only));
	assert_false(event_within(channel, TS_QUIET_MS));
	TS_OK(ibv_modify_qp(t.pair.b.qp, &attr, IBV_QP_STATE));
	assert_true(event_within(channel, TS_WAIT_MS));
	take_event(channel, t.pair.b.rcq);
	close_rules(&t);
}

static void solicited_only(void **state)
{
	(void)state;
	solicited_with(1);
}

/* Any value but 0 asks for it. */
static void solicited_is_a_truth_value(void **state)
{
	(void)state;
	if (!ts_dev()->ours)
		ts_skip("the distribution's provider, solicited_only is not normalised");
	solicited_with(2);
	solicited_with(-2);
	solicited_with(256);
}

/* The send CQ raises events as well; writes with immediate count as solicited when asked. */
static void send_cq_and_immediate(void **state)
{
	struct ts_attr attr = { .channel = true };
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				  .imm_data = 1,
				  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED },
			   *bad;
	struct ts_buf buf;
	struct ts_pair pair;

	(void)state;
	ts_pair_open(&pair, &attr, &attr);
	ts_buf_open(&buf, 4096);
	TS_OK(ts_post_recv(pair.b.qp, 1, NULL, 0, 0));
	TS_OK(ibv_req_notify_cq(pair.a.scq, 0));
	TS_OK(ibv_req_notify_cq(pair.b.rcq, 1));
	wr.wr.rdma.remote_addr = (uintptr_t)buf.p;
	wr.wr.rdma.rkey = buf.mr->rkey;
	TS_OK(ibv_post_send(pair.a.qp, &wr, &bad));
	assert_true(event_within(pair.a.channel, TS_WAIT_MS));
	take_event(pair.a.channel, pair.a.scq);
	assert_true(event_within(pair.b.channel, TS_WAIT_MS));
	take_event(pair.b.channel, pair.b.rcq);
	ts_pair_close(&pair);
	ts_buf_close(&buf);
}

/* The descriptor works with O_NONBLOCK, and a channel serves several CQs. */
static void channel_of_two(void **state)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(ts_dev()->ctx);
	struct ibv_cq *cq[2], *got;
	struct ts_attr attr = { 0 };
	struct ts_pair pair[2];
	unsigned int seen = 0;
	struct ts_buf buf;
	void *context;

	(void)state;
	TS_CHECK(channel);
	ts_buf_open(&buf, 4096);
	for (int i = 0; i < 2; i++) {
		cq[i] = ibv_create_cq(ts_dev()->ctx, 32, &pair[i], channel, 0);
		TS_CHECK(cq[i]);
		attr.rcq = cq[i];
		ts_pair_open(&pair[i], NULL, &attr);
		TS_OK(ts_post_recv(pair[i].b.qp, 1, NULL, 0, 0));
		TS_OK(ibv_req_notify_cq(cq[i], 0));
	}
	TS_CHECK(!fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK));
	errno = 0;
	assert_int_equal(ibv_get_cq_event(channel, &got, &context), -1);
	TS_EQ(errno, EAGAIN);
	for (int i = 0; i < 2; i++)
		TS_OK(ts_post(pair[i].a.qp, IBV_WR_SEND, 1, NULL, 0, 0, 0, 0, 0));
	while (seen != 3) {
		assert_true(event_within(channel, TS_WAIT_MS));
		TS_CHECK(!ibv_get_cq_event(channel, &got, &context));
		for (unsigned int i = 0; i < 2; i++)
			if (got == cq[i]) {
				assert_ptr_equal(context, &pair[i]);
				assert_false(seen & 1u << i);
				seen |= 1u << i;
			}
		ibv_ack_cq_events(got, 1);
	}
	/* a CQ that still uses the channel keeps it */
	TS_EQ(ibv_destroy_comp_channel(channel), EBUSY);
	for (int i = 0; i < 2; i++) {
		ts_pair_close(&pair[i]);
		TS_OK(ibv_destroy_cq(cq[i]));
	}
	TS_OK(ibv_destroy_comp_channel(channel));
	ts_buf_close(&buf);
}

/* ------------------------------------------------------------------ acknowledgement */

struct destroyer {
	struct ibv_cq *cq;
	_Atomic bool done;
	int rc;
};

static void *destroy(void *arg)
{
	struct destroyer *d = arg;

	d->rc = ibv_destroy_cq(d->cq);
	atomic_store(&d->done, true);
	return NULL;
}

/* Destroying waits until the events that were fetched are acknowledged; meanwhile the CQ can be used. */
static void destroy_waits_for_ack(void **state)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(ts_dev()->ctx);
	struct destroyer d = { 0 };
	struct ts_attr attr = { 0 };
	struct ts_pair pair;
	struct ibv_cq *cq;
	pthread_t thread;
	struct ibv_wc wc;
	void *context;

	(void)state;
	TS_CHECK(channel);
	d.cq = ibv_create_cq(ts_dev()->ctx, 32, NULL, channel, 0);
	TS_CHECK(d.cq);
	attr.rcq = d.cq;
	ts_pair_open(&pair, NULL, &attr);
	for (int i = 0; i < 2; i++) {
		TS_OK(ts_post_recv(pair.b.qp, 1, NULL, 0, 0));
		TS_OK(ibv_req_notify_cq(d.cq, 0));
		TS_OK(ts_post(pair.a.qp, IBV_WR_SEND, 1, NULL, 0, 0, 0, 0, 0));
		ts_poll_ok(pair.a.scq, &wc);
		assert_true(event_within(channel, TS_WAIT_MS));
		TS_CHECK(!ibv_get_cq_event(channel, &cq, &context));
		ts_poll_ok(d.cq, &wc);
	}
	/* one that is never fetched: it must not count */
	TS_OK(ts_post_recv(pair.b.qp, 1, NULL, 0, 0));
	TS_OK(ibv_req_notify_cq(d.cq, 0));
	TS_OK(ts_post(pair.a.qp, IBV_WR_SEND, 1, NULL, 0, 0, 0, 0, 0));
	assert_true(event_within(channel, TS_WAIT_MS));
	ts_pair_close(&pair);
	TS_OK(pthread_create(&thread, NULL, destroy, &d));
	ts_sleep_ms(TS_QUIET_MS);
	assert_false(atomic_load(&d.done));
	if (ts_dev()->ours) /* the other holds a spinlock while it waits */
		TS_EQ(ibv_poll_cq(d.cq, 1, &wc), 0);
	ibv_ack_cq_events(d.cq, 1);
	ts_sleep_ms(TS_QUIET_MS);
	assert_false(atomic_load(&d.done));
	ibv_ack_cq_events(d.cq, 1);
	for (int i = 0; i < 500 && !atomic_load(&d.done); i++)
		ts_sleep_ms(10);
	if (!atomic_load(&d.done))
		TS_FAIL("ibv_destroy_cq does not return although all events are acknowledged");
	pthread_join(thread, NULL);
	TS_OK(d.rc);
	/* the event of a destroyed CQ is gone from the channel */
	assert_false(event_within(channel, TS_QUIET_MS));
	TS_OK(ibv_destroy_comp_channel(channel));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_event_per_arm),
		cmocka_unit_test(arming_a_full_cq),
		cmocka_unit_test(arming_and_not_draining),
		cmocka_unit_test(solicited_only),
		cmocka_unit_test(solicited_is_a_truth_value),
		cmocka_unit_test(send_cq_and_immediate),
		cmocka_unit_test(channel_of_two),
		cmocka_unit_test(destroy_waits_for_ack),
		cmocka_unit_test(nothing_lost_paced),
		cmocka_unit_test(nothing_lost_streaming),
	};

	return ts_main(argc, argv, "arm_poll", tests, sizeof(tests) / sizeof(*tests), NULL);
}
