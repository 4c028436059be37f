// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* How connections end: orderly, abruptly, and without a word. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/core/hw.h"
#include "adapter/wire/mpa.h"
#include "tests/link/peer.h"
#include "tests/wire/check.h"

enum {
	MEM = 4 << 20
};

struct pair {
	struct rig a, b;
};

static void pair_open(struct pair *pair, bool tcp)
{
	int fds[2];

	rig_sockets(fds, tcp);
	rig_open(&pair->a, fds[0], MEM, NULL);
	rig_open(&pair->b, fds[1], MEM, NULL);
}

static void pair_close(struct pair *pair)
{
	rig_close(&pair->a);
	rig_close(&pair->b);
}

static enum ea_qp_state qp_state(struct rig *rig)
{
	return ea_qp_state(ea_qp_find(rig->dev, RIG_QPN));
}

static void expect_closed(struct rig *rig, int err)
{
	assert_int_equal(ea_tcp_state(rig->link), EA_TCP_CLOSED);
	assert_int_equal(ea_tcp_error(rig->link), err);
	assert_int_equal(ea_tcp_progress(rig->link, 1, 1), EA_TCP_ENDED);
}

/* The process of @rig is killed, so to say. */
static void reset(struct rig *rig)
{
	ea_tcp_destroy(rig->link, true);
	rig->link = NULL;
	close(rig->fd);
	rig->fd = -1;
}

static void expect_reset(struct rig *rig)
{
	assert_int_equal(ea_tcp_state(rig->link), EA_TCP_CLOSED);
	assert_true(ea_tcp_error(rig->link) == ECONNRESET || ea_tcp_error(rig->link) == EPIPE);
	assert_int_equal(rig->events, 1);
}

static void orderly(void **state)
{
	struct rig_wc wc;
	struct pair pair;

	(void)state;
	pair_open(&pair, true);
	rig_post_recv(&pair.b, 0, 100);
	assert_int_equal(ea_qp_modify(pair.a.dev, RIG_QPN, EA_QP_CLOSING), 0);
	assert_int_equal(ea_tcp_state(pair.a.link), EA_TCP_CLOSING);
	assert_int_equal(ea_tcp_progress(pair.a.link, 1 << 20, 1 << 20), EA_TCP_WAIT_IN);
	rig_pump(&pair.a, &pair.b);
	expect_closed(&pair.a, 0);
	expect_closed(&pair.b, 0);
	assert_int_equal(qp_state(&pair.b), EA_QP_CLOSING);
	assert_int_equal(pair.a.events + pair.b.events, 0);
	assert_true(rig_poll(&pair.b, &wc));
	assert_int_equal(wc.syndrome, EA_SYN_FLUSH);
	pair_close(&pair);
}

static void both_at_once(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, true);
	ea_qp_modify(pair.a.dev, RIG_QPN, EA_QP_CLOSING);
	ea_qp_modify(pair.b.dev, RIG_QPN, EA_QP_CLOSING);
	rig_pump(&pair.a, &pair.b);
	expect_closed(&pair.a, 0);
	expect_closed(&pair.b, 0);
	pair_close(&pair);
}

/*
 * The sender destroys its QP as soon as its work is complete, while megabytes are still in the
 * kernel and the receiver sends the other way: all of the work arrives.
 */
static void destroyed_after_completion(void **state)
{
	enum {
		LEN = 1 << 20,
		COUNT = 3
	};
	struct rig_wc wc;
	struct pair pair;
	int i, done = 0, buf = 8 << 20;

	(void)state;
	pair_open(&pair, true);
	setsockopt(pair.a.fd, SOL_SOCKET, SO_SNDBUF, &buf, sizeof(buf));
	setsockopt(pair.b.fd, SOL_SOCKET, SO_RCVBUF, &buf, sizeof(buf));
	for (i = 0; i < COUNT; i++) {
		rig_fill(&pair.a, 0, LEN, i);
		rig_post_write(&pair.a, 0, LEN, RIG_STAG, (uintptr_t)pair.b.mem + i * LEN,
			       RIG_SIGNAL);
		while (done == i) {
			ea_tcp_progress_tx(pair.a.link, 1 << 20);
			done += rig_poll(&pair.a, &wc);
			/* the last one stays in the kernel */
			if (done == i && i < COUNT - 1)
				ea_tcp_progress_rx(pair.b.link, 1 << 16);
			else if (done == i)
				ea_tcp_progress_rx(pair.b.link, 1 << 12);
		}
	}
	for (i = 0; i < 20; i++)
		rig_post_write(&pair.b, 3 * LEN, LEN, 0x9999, 0, 0);
	ea_tcp_progress_tx(pair.b.link, 1 << 20);

	assert_int_equal(ea_qp_destroy(pair.a.dev, RIG_QPN), 0);
	assert_null(pair.a.link->qp);
	rig_pump(&pair.a, &pair.b);
	for (i = 0; i < COUNT; i++)
		assert_true(rig_same(&pair.b, i * LEN, LEN, i));
	assert_int_equal(ea_tcp_state(pair.a.link), EA_TCP_CLOSED);
	assert_int_equal(ea_tcp_state(pair.b.link), EA_TCP_CLOSED);
	assert_int_equal(ea_tcp_error(pair.b.link), 0);
	pair_close(&pair);
}

/* A QP that is destroyed inside a message: the peer sees that the stream is not whole. */
static void destroyed_in_the_middle(void **state)
{
	enum {
		LEN = 3 << 20
	};
	struct pair pair;

	(void)state;
	pair_open(&pair, false);
	rig_post_write(&pair.a, 0, LEN, RIG_STAG, (uintptr_t)pair.b.mem, RIG_SIGNAL);
	assert_int_equal(ea_tcp_progress_tx(pair.a.link, SIZE_MAX), EA_TCP_WAIT_OUT);
	ea_qp_destroy(pair.a.dev, RIG_QPN);
	rig_pump(&pair.a, &pair.b);
	assert_int_equal(ea_tcp_state(pair.a.link), EA_TCP_CLOSED);
	assert_int_equal(ea_tcp_state(pair.b.link), EA_TCP_CLOSED);
	assert_int_equal(qp_state(&pair.b), EA_QP_ERROR);
	assert_int_equal(pair.b.events, 1);
	pair_close(&pair);
}

static void reset_by_peer(void **state)
{
	struct rig_wc wc;
	struct pair pair;

	(void)state;
	pair_open(&pair, true);
	rig_post_recv(&pair.b, 0, 100);
	reset(&pair.a);
	rig_pump(&pair.b, NULL);
	expect_closed(&pair.b, ECONNRESET);
	assert_int_equal(qp_state(&pair.b), EA_QP_ERROR);
	assert_int_equal(pair.b.events, 1);
	assert_int_equal(pair.b.last_event, EA_ASYNC_QP_FATAL);
	assert_true(rig_poll(&pair.b, &wc));
	assert_int_not_equal(wc.syndrome, EA_SYN_SUCCESS);
	/* the link of the other side was destroyed under its QP */
	assert_int_equal(qp_state(&pair.a), EA_QP_ERROR);
	pair_close(&pair);
}

/* The reset is found by a send; what had arrived before it is delivered first. */
static void reset_found_by_send(void **state)
{
	struct rig_wc wc;
	struct pair pair;
	int i;

	(void)state;
	pair_open(&pair, true);
	rig_fill(&pair.a, 0, 500, 1);
	rig_post_send(&pair.a, 0, 500, RIG_SIGNAL);
	ea_tcp_progress_tx(pair.a.link, 1 << 20);
	reset(&pair.a);
	rig_post_recv(&pair.b, 0, 1000);
	for (i = 0; i < 3; i++) {
		rig_post_send(&pair.b, 0, 8, RIG_SIGNAL);
		ea_tcp_progress_tx(pair.b.link, 1 << 20);
	}
	rig_pump(&pair.b, NULL);
	expect_reset(&pair.b);
	i = 0;
	while (rig_poll(&pair.b, &wc))
		i += wc.qtype == EA_QTYPE_RQ && !wc.syndrome && wc.size == 500;
	assert_int_equal(i, 1);
	pair_close(&pair);
}

/* The same while a message is held that hides the end of the stream. */
static void reset_found_while_held(void **state)
{
	struct pair pair;
	int i;

	(void)state;
	pair_open(&pair, true);
	rig_post_send(&pair.a, 0, 500, RIG_SIGNAL);
	rig_pump(&pair.a, &pair.b);
	reset(&pair.a);
	for (i = 0; i < 3; i++)
		rig_post_send(&pair.b, 0, 8, RIG_SIGNAL);
	rig_pump(&pair.b, NULL);
	expect_reset(&pair.b);
	pair_close(&pair);
}

/*
 * Nobody takes the message in front of the end: the owner decides, and the core hears of it once.
 */
static void hangup_while_held(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, true);
	rig_post_send(&pair.a, 0, 500, RIG_SIGNAL);
	rig_pump(&pair.a, &pair.b);
	ea_qp_modify(pair.a.dev, RIG_QPN, EA_QP_CLOSING);
	rig_pump(&pair.a, &pair.b);
	assert_int_equal(ea_tcp_state(pair.b.link), EA_TCP_OPEN);
	assert_int_equal(ea_tcp_progress(pair.b.link, 1 << 20, 1 << 20), EA_TCP_HELD);
	ea_tcp_hangup(pair.b.link, 0);
	ea_tcp_hangup(pair.b.link, ETIMEDOUT);
	expect_closed(&pair.b, 0);
	assert_int_equal(qp_state(&pair.b), EA_QP_CLOSING);
	assert_int_equal(pair.b.events, 0);
	pair_close(&pair);
}

static void peer_vanishes(void **state)
{
	struct rig_wc wc;
	struct pair pair;

	(void)state;
	pair_open(&pair, true);
	rig_post_read(&pair.a, 0, 64, RIG_STAG, (uintptr_t)pair.b.mem);
	ea_tcp_progress_tx(pair.a.link, 1 << 20);
	ea_tcp_hangup(pair.a.link, ETIMEDOUT);
	expect_closed(&pair.a, ETIMEDOUT);
	assert_true(rig_poll(&pair.a, &wc));
	assert_int_equal(wc.opcode, EA_OP_READ);
	assert_int_equal(wc.syndrome, EA_SYN_RETRY);
	assert_int_equal(pair.a.events, 1);
	pair_close(&pair);
}

/* The peer ends its side only; our side follows at once, and its queued work is flushed. */
static void half_close(void **state)
{
	struct bytes in = { 0 };
	struct rig_wc wc;
	struct rig rig;
	int fds[2];

	(void)state;
	rig_sockets(fds, true);
	rig_open(&rig, fds[0], MEM, NULL);
	shutdown(fds[1], SHUT_WR);
	rig_post_recv(&rig, 0, 10);
	rig_pump(&rig, NULL);
	expect_closed(&rig, 0);
	rig_post_send(&rig, 0, 10, RIG_SIGNAL);
	assert_true(rig_poll(&rig, &wc));
	assert_int_equal(wc.syndrome, EA_SYN_FLUSH);
	assert_true(rig_poll(&rig, &wc));
	assert_int_equal(wc.syndrome, EA_SYN_FLUSH);
	assert_true(peer_read(fds[1], &in, &rig));
	assert_int_equal(in.len, 0);
	bytes_free(&in);
	close(fds[1]);
	rig_close(&rig);
}

/*
 * Closing with input under way must not reset the connection: the peer gets all bytes and a clean
 * end.
 */
static void no_reset_on_close(void **state)
{
	enum {
		LEN = 300000
	};
	struct bytes in = { 0 };
	static uint8_t noise[1 << 20];
	struct rig_wc wc;
	struct rig rig;
	int fds[2];

	(void)state;
	rig_sockets(fds, true);
	rig_open(&rig, fds[0], MEM, NULL);
	rig_fill(&rig, 0, LEN, 1);
	rig_post_write(&rig, 0, LEN, 0x777, 0, RIG_SIGNAL);
	assert_true(rig_wait(&rig, NULL, &rig, &wc));
	ea_qp_modify(rig.dev, RIG_QPN, EA_QP_CLOSING);
	ea_tcp_progress_tx(rig.link, 1 << 20);
	assert_int_equal(send(fds[1], noise, sizeof(noise) / 4, MSG_DONTWAIT) > 0, 1);
	rig_pump(&rig, NULL);
	assert_true(ea_tcp_discarded(rig.link) > 0);
	assert_true(peer_read(fds[1], &in, &rig));
	assert_true(in.len > LEN);
	close(fds[1]);
	rig_pump(&rig, NULL);
	expect_closed(&rig, 0);
	bytes_free(&in);
	rig_close(&rig);
}

/* A wrong key is told to the side that used it, in both directions. */
static void terminate_each_way(void **state)
{
	struct rig_wc wc;
	struct pair pair;
	struct rig *bad, *good;
	int i;

	(void)state;
	for (i = 0; i < 2; i++) {
		pair_open(&pair, true);
		bad = i ? &pair.b : &pair.a;
		good = i ? &pair.a : &pair.b;
		rig_post_read(bad, 0, 100, 0x777700, (uintptr_t)good->mem);
		assert_true(rig_wait(bad, good, bad, &wc));
		assert_int_equal(wc.opcode, EA_OP_READ);
		assert_int_equal(wc.syndrome, EA_SYN_RECV_STAG);
		rig_pump(bad, good);
		assert_int_equal(ea_tcp_state(bad->link), EA_TCP_CLOSED);
		assert_int_equal(ea_tcp_state(good->link), EA_TCP_CLOSED);
		assert_int_equal(bad->events, 1);
		assert_int_equal(good->events, 1);
		assert_int_equal(good->last_event, EA_ASYNC_QP_ACCESS_ERR);
		pair_close(&pair);
	}
}

/* The QP ends while the socket is full inside an FPDU: the rest of that FPDU still goes out. */
static void unfinished_frame(void **state)
{
	enum {
		LEN = 3 << 20
	};
	struct rig_wc wc;
	struct pair pair;

	(void)state;
	/* an orderly end: between FPDUs, though inside a message */
	pair_open(&pair, false);
	rig_post_write(&pair.a, 0, LEN, RIG_STAG, (uintptr_t)pair.b.mem, RIG_SIGNAL);
	assert_int_equal(ea_tcp_progress_tx(pair.a.link, SIZE_MAX), EA_TCP_WAIT_OUT);
	assert_int_equal(ea_qp_modify(pair.a.dev, RIG_QPN, EA_QP_CLOSING), 0);
	/* the program may use its memory again at once */
	memset(pair.a.mem, 0xee, LEN);
	rig_pump(&pair.a, &pair.b);
	assert_int_equal(ea_tcp_state(pair.a.link), EA_TCP_CLOSED);
	assert_int_equal(ea_tcp_state(pair.b.link), EA_TCP_CLOSED);
	assert_int_equal(ea_tcp_error(pair.b.link), 0);
	assert_null(memchr(pair.b.mem, 0xee, LEN));
	pair_close(&pair);

	/* a Terminate arrives behind it */
	pair_open(&pair, false);
	rig_post_write(&pair.a, 0, LEN, RIG_STAG, (uintptr_t)pair.b.mem, RIG_SIGNAL);
	assert_int_equal(ea_tcp_progress_tx(pair.a.link, SIZE_MAX), EA_TCP_WAIT_OUT);
	rig_post_read(&pair.b, 0, 100, 0x777700, (uintptr_t)pair.a.mem);
	assert_true(rig_wait(&pair.b, &pair.a, &pair.b, &wc));
	assert_int_equal(wc.opcode, EA_OP_READ);
	assert_int_equal(wc.syndrome, EA_SYN_RECV_STAG);
	pair_close(&pair);
}

/*
 * The region goes away while a message is on its way: no byte more, an error on both sides, no
 * hang.
 */
static void region_gone(void **state)
{
	enum {
		LEN = 3 << 20
	};
	struct rig_wc wc;
	struct pair pair;

	(void)state;
	pair_open(&pair, false);
	rig_post_write(&pair.a, 0, LEN, RIG_STAG, (uintptr_t)pair.b.mem, RIG_SIGNAL);
	assert_int_equal(ea_tcp_progress_tx(pair.a.link, SIZE_MAX), EA_TCP_WAIT_OUT);
	assert_int_equal(ea_mr_dereg(pair.a.dev, RIG_STAG), 0);
	rig_pump(&pair.a, &pair.b);
	assert_int_equal(ea_tcp_state(pair.a.link), EA_TCP_CLOSED);
	assert_int_equal(ea_tcp_state(pair.b.link), EA_TCP_CLOSED);
	assert_true(rig_poll(&pair.a, &wc));
	assert_int_not_equal(wc.syndrome, EA_SYN_SUCCESS);
	assert_int_equal(qp_state(&pair.b), EA_QP_ERROR);
	pair_close(&pair);

	pair_open(&pair, false);
	rig_post_write(&pair.a, 0, LEN, RIG_STAG, (uintptr_t)pair.b.mem, RIG_SIGNAL);
	ea_tcp_progress_tx(pair.a.link, SIZE_MAX);
	ea_tcp_progress_rx(pair.b.link, 1000);
	assert_int_equal(ea_mr_dereg(pair.b.dev, RIG_STAG), 0);
	rig_pump(&pair.a, &pair.b);
	assert_int_equal(ea_tcp_state(pair.a.link), EA_TCP_CLOSED);
	assert_int_equal(ea_tcp_state(pair.b.link), EA_TCP_CLOSED);
	assert_true(rig_poll(&pair.a, &wc));
	assert_int_not_equal(wc.syndrome, EA_SYN_SUCCESS);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(orderly),
		cmocka_unit_test(both_at_once),
		cmocka_unit_test(destroyed_after_completion),
		cmocka_unit_test(destroyed_in_the_middle),
		cmocka_unit_test(reset_by_peer),
		cmocka_unit_test(reset_found_by_send),
		cmocka_unit_test(reset_found_while_held),
		cmocka_unit_test(hangup_while_held),
		cmocka_unit_test(peer_vanishes),
		cmocka_unit_test(half_close),
		cmocka_unit_test(no_reset_on_close),
		cmocka_unit_test(terminate_each_way),
		cmocka_unit_test(unfinished_frame),
		cmocka_unit_test(region_gone),
	};

	return cmocka_run_group_tests_name("end", tests, NULL, NULL);
}
