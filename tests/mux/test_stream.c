// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The socket: frames in pieces and in bulk, clients that don't read, that flood, that cross; scenarios S8 to S10. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/instrumented.h"
#include "tests/mux/rig.h"

#define SLOW INSTRUMENTED

static int setup_fast(void **state)
{
	return rig_setup_with(state, (const char *[]){ "mad_rate=10000000",
						       "registration_rate=10000000", NULL });
}

static void s8_pieces(void **state)
{
	struct rig *r = *state;
	int a = rig_connect(r), b = rig_connect(r);
	uint8_t frames[3 * FRAME], ans[FRAME], g[16];

	frame_simple(frames, OP_REG, GA);
	for (unsigned int i = 0; i < FRAME; i++) {
		wire_send(a, frames + i, 1);
		if (i % 40 == 0)
			assert_false(wire_recv(a, ans, 2, NULL));
	}
	assert_true(wire_recv(a, ans, RIG_MS, NULL));
	assert_int_equal(host32(ans + F_TYPE), T_RESP);
	assert_int_equal(host32(ans + F_ERR), 0);
	rig_expect_nothing(a);
	/* Three at once. */
	frame_simple(frames, OP_REG, GB);
	frame_simple(frames + FRAME, OP_UNREG, GB);
	frame_simple(frames + 2 * FRAME, OP_UNREG, GB);
	wire_send(a, frames, sizeof(frames));
	for (unsigned int i = 0; i < 3; i++) {
		assert_true(wire_recv(a, ans, RIG_MS, NULL));
		assert_int_equal(host32(ans + F_OP), i ? OP_UNREG : OP_REG);
		assert_int_equal(host32(ans + F_ERR), i == 2 ? 4 : 0);
	}
	/* Part of a frame and the end. */
	gid4(g, 0x0b000001);
	frame_simple(frames, OP_REG, g);
	wire_send(b, frames, 200);
	shutdown(b, SHUT_WR);
	assert_true(wire_closes(b, RIG_MS));
	close(b);
	assert_int_equal(wire_unreg(a, g), 4);
	/* Part of a frame and silence. */
	b = rig_connect(r);
	wire_send(b, frames, FRAME - 1);
	assert_int_equal(wire_reg(a, GB), 0);
	rig_expect_nothing(b);
	wire_send(b, frames + FRAME - 1, 1);
	assert_true(wire_recv(b, ans, RIG_MS, NULL));
	assert_int_equal(host32(ans + F_ERR), 0);
	close(a);
	close(b);
}

/* What was sent before the end of the stream counts. */
static void s8_last_words(void **state)
{
	struct rig *r = *state;
	int a = rig_connect(r), b;
	uint8_t mad[MAD], frame[FRAME];

	assert_int_equal(wire_reg(a, GA), 0);
	mad_req(mad, 1, 1, GA, GP, CA_A, QPN_A, SVC_TCP);
	frame_mad(frame, GA, mad);
	wire_send(a, frame, FRAME);
	shutdown(a, SHUT_WR);
	rig_expect_write(r, mad, REQ, GP, 1);
	close(a);
	for (unsigned int i = 0; i < (SLOW ? 1000 : 10000); i++) {
		b = wire_connect_wait(r->socket, RIG_MS);
		frame_simple(frame, OP_REG, GB);
		wire_send(b, frame, FRAME);
		close(b);
	}
	b = rig_connect(r);
	assert_int_equal(wire_reg(b, LB), 0);
	close(b);
}

static void s8_neighbours(void **state)
{
	struct rig *r = *state;
	int fds[8], again[2];
	char path[64], target[256];
	ssize_t n;

	for (unsigned int i = 0; i < 8; i++)
		fds[i] = rig_connect(r);
	assert_int_equal(wire_reg(fds[7], GA), 0);
	close(fds[3]);
	close(fds[4]);
	for (unsigned int i = 0; i < 2; i++) {
		again[i] = rig_connect(r);
		assert_int_equal(wire_reg(again[i], i ? GB : LA), 0);
	}
	for (unsigned int i = 0; i < 8; i++)
		if (i != 3 && i != 4)
			assert_int_equal(wire_unreg(fds[i], LB), 4);
	/* No client has a standard descriptor's number. */
	for (unsigned int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%u", (int)r->pid, i);
		n = readlink(path, target, sizeof(target) - 1);
		assert_true(n > 0);
		target[n] = '\0';
		assert_null(strstr(target, "socket"));
	}
	for (unsigned int i = 0; i < 8; i++)
		if (i != 3 && i != 4)
			close(fds[i]);
	close(again[0]);
	close(again[1]);
}

static int setup_closed_std(void **state)
{
	struct rig *r = rig_new();

	r->closed_std = true;
	rig_start(r);
	*state = r;
	return 0;
}

static void s9_stops_reading(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), b = rig_connect_reg(r, GB);
	uint8_t mad[MAD], in[MAD], frame[FRAME];
	unsigned int got = 0, last = 0, id;
	json_int_t dropped;

	for (unsigned int i = 1; i <= 2000; i++) {
		mad_req(mad, i, i, GP, GB, CA_P, QPN_P, SVC_TCP);
		rig_inject(r, GP, 2, mad);
	}
	mad_req(mad, 1, 1, GQ, GA, CA_Q, QPN_P, SVC_TCP);
	rig_inject(r, GQ, 1, mad);
	rig_expect_mad(a, in, REQ, GA, GQ);
	dropped = rig_dropped(r, "client_queue_full");
	assert_true(dropped >= 2000 - 257 && dropped < 2000);
	/* It reads again: what was kept, in order. A request now and then shows that the guest lives. */
	while (got < 2000 - (unsigned int)dropped) {
		assert_true(wire_recv(b, frame, RIG_MS, NULL));
		if (host32(frame + F_TYPE) == T_RESP && host32(frame + F_OP) != OP_MAD)
			continue;
		id = be32(frame + F_MAD + M_LOCAL);
		assert_true(id > last);
		last = id;
		if (++got % 100 == 0) {
			/* After a pause in which the mux sees the frame read, the answer is a plain one. */
			frame_simple(frame, OP_UNREG, LB);
			wire_send(b, frame, FRAME);
			do {
				assert_true(wire_recv(b, frame, RIG_MS, NULL));
				if (host32(frame + F_OP) == OP_MAD &&
				    host32(frame + F_TYPE) == T_REQ) {
					last = be32(frame + F_MAD + M_LOCAL);
					got++;
				}
			} while (host32(frame + F_TYPE) != T_RESP);
		}
	}
	rig_expect_nothing(b);
	mad_req(mad, 5000, 5000, GQ, GB, CA_Q, QPN_P, SVC_TCP);
	rig_inject(r, GQ, 2, mad);
	rig_expect_mad(b, in, REQ, GB, GQ);
	close(a);
	close(b);
}

static void s9_stalled_is_closed(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), b = rig_connect_reg(r, GB);
	uint8_t mad[MAD];

	mad_req(mad, 1, 1, GP, GB, CA_P, QPN_P, SVC_TCP);
	rig_inject(r, GP, 2, mad);
	mad_req(mad, 2, 2, GP, GB, CA_P, QPN_P, SVC_TCP);
	rig_inject(r, GP, 2, mad);
	rig_wait_status(r, "sessions", 2);
	rig_advance(r, 6000);
	for (unsigned int i = 0; !rig_logged(r, "action=drop") && i < RIG_MS; i += 10)
		poll(NULL, 0, 10);
	mad_req(mad, 3, 3, GP, GB, CA_P, QPN_P, SVC_TCP);
	rig_inject(r, GP, 2, mad);
	rig_wait_dropped(r, "client_stalled", 1);
	rig_advance(r, 120000);
	for (unsigned int i = 0; !rig_logged(r, "action=closed") && i < RIG_MS; i += 10)
		poll(NULL, 0, 10);
	assert_true(wire_closes(b, RIG_MS));
	assert_int_equal(wire_reg(a, LA), 0);
	close(a);
	close(b);
}

static int setup_slow_rate(void **state)
{
	return rig_setup_with(state, (const char *[]){ "mad_rate=1/200", NULL });
}

static void s9_flood(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), b = rig_connect_reg(r, GB);
	unsigned int refused = 0, err;
	uint8_t mad[MAD];

	for (unsigned int i = 0; i < 400; i++) {
		mad_req(mad, 1, 1, GA, GP, CA_A, QPN_A, SVC_TCP);
		err = wire_mad(a, GA, mad);
		assert_true(err == 0 || err == 3);
		refused += err == 3;
	}
	assert_true(refused > 100 && refused <= 200);
	mad_req(mad, 1, 1, GB, GP, CA_B, QPN_B, SVC_TCP);
	assert_int_equal(wire_mad(b, GB, mad), 0);
	assert_true(rig_dropped(r, "rate") == refused);
	close(a);
	close(b);
}

static void s9_unresolvable(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), b = rig_connect_reg(r, GB);
	struct double_shm *shm = fabric_shm(r->f);
	uint8_t mad[MAD], in[MAD], g[16];

	/* So long that nothing would come in time if it waited for it. */
	shm->resolve_ms = 600000;
	for (unsigned int i = 0; i < 8; i++) {
		gid4(g, 0xcb007100 + i);
		memcpy(shm->unresolvable[i], g, 16);
	}
	shm->n_unresolvable = 8;
	for (unsigned int i = 0; i < 8; i++) {
		gid4(g, 0xcb007100 + i);
		mad_req(mad, 10 + i, 10 + i, GA, g, CA_A, QPN_A, SVC_TCP);
		assert_int_equal(wire_mad(a, GA, mad), 0);
	}
	for (unsigned int i = 0; !shm->blocked && i < RIG_MS; i++)
		poll(NULL, 0, 1);
	assert_true(shm->blocked >= 1);
	mad_req(mad, 1, 1, GB, GP, CA_B, QPN_B, SVC_TCP);
	assert_int_equal(wire_mad(b, GB, mad), 0);
	rig_expect_write(r, mad, REQ, GP, 2);
	mad_req(mad, 0x44, 0x44, GQ, GA, CA_Q, QPN_P, SVC_TCP);
	rig_inject(r, GQ, 1, mad);
	rig_expect_mad(a, in, REQ, GA, GQ);
	assert_true(shm->blocked >= 1);
	/* And one client alone never holds all the threads there are for this. */
	assert_true(shm->blocked < 4);
	close(a);
	close(b);
}

static void s9_unreachable_is_left_alone(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA);
	struct double_shm *shm = fabric_shm(r->f);
	uint8_t mad[MAD];

	shm->resolve_ms = 1;
	memcpy(shm->unresolvable[0], GQ, 16);
	shm->n_unresolvable = 1;
	mad_req(mad, 1, 1, GA, GQ, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_wait_dropped(r, "unreachable", 1);
	assert_int_equal(shm->bad_writes, 1);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_wait_dropped(r, "unreachable", 2);
	assert_int_equal(shm->bad_writes, 1);
	/* After a while it is tried again, and answers. */
	shm->n_unresolvable = 0;
	rig_advance(r, 3000);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, mad, REQ, GQ, 1);
	close(a);
}

static void duplicate_transaction(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA);
	struct double_shm *shm = fabric_shm(r->f);
	uint8_t mad[MAD];

	/* The kernel refuses while the same transaction is queued; that passes. */
	shm->fault_errno = EINVAL;
	shm->fault_count = 2;
	mad_req(mad, 1, 1, GA, GQ, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, mad, REQ, GQ, 1);
	assert_int_equal(shm->bad_writes, 2);
	close(a);
}

static void send_numbered(struct rig *r, uint32_t va, uint32_t number)
{
	uint8_t mad[MAD];

	mad_pair(mad, MRA, 0x55, va, 0x1000 + number);
	put_be32(mad + 100, number);
	rig_inject(r, GP, 1, mad);
}

static void wait_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	assert_int_equal(poll(&p, 1, RIG_MS), 1);
}

static void s10_crossing(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA);
	uint8_t frame[FRAME], m[FRAME], mad[MAD];
	uint32_t va = rig_established(r, a, 0xa001, 0x55);

	/* The request is a MAD. */
	send_numbered(r, va, 1);
	wait_readable(a);
	mad_pair(mad, MRA, 0xa001, 0x55, 0x3333);
	frame_mad(frame, GA, mad);
	wire_send(a, frame, FRAME);
	assert_true(wire_recv(a, m, RIG_MS, NULL));
	assert_int_equal(host32(m + F_TYPE), T_REQ);
	assert_int_equal(be32(m + F_MAD + 100), 1);
	assert_true(wire_recv(a, frame, RIG_MS, NULL));
	assert_int_equal(host32(frame + F_TYPE), T_RESP);
	assert_int_equal(host32(frame + F_OP), OP_MAD);
	assert_int_equal(host32(frame + F_ERR), 0);
	assert_memory_equal(frame + F_SGID, m + F_SGID, 16);
	assert_memory_equal(frame + F_LEN, m + F_LEN, 4 + 320);
	rig_expect_write(r, mad, MRA, GP, 1);
	/* The request is a registration. */
	poll(NULL, 0, 50);
	send_numbered(r, va, 2);
	wait_readable(a);
	frame_simple(frame, OP_REG, LA);
	wire_send(a, frame, FRAME);
	assert_true(wire_recv(a, m, RIG_MS, NULL));
	assert_int_equal(host32(m + F_TYPE), T_REQ);
	assert_true(wire_recv(a, frame, RIG_MS, NULL));
	assert_int_equal(host32(frame + F_TYPE), T_RESP);
	assert_int_equal(host32(frame + F_OP), OP_MAD);
	assert_memory_equal(frame + F_LEN, m + F_LEN, 4 + 320);
	/* One at a time. */
	poll(NULL, 0, 50);
	send_numbered(r, va, 3);
	send_numbered(r, va, 4);
	wait_readable(a);
	poll(NULL, 0, 50);
	assert_int_equal(recv(a, m, FRAME, MSG_PEEK), FRAME);
	{
		uint8_t two[2 * FRAME];

		assert_int_equal(recv(a, two, sizeof(two), MSG_PEEK), FRAME);
	}
	assert_true(wire_recv(a, m, RIG_MS, NULL));
	assert_int_equal(be32(m + F_MAD + 100), 3);
	assert_true(wire_recv(a, m, RIG_MS, NULL));
	assert_int_equal(be32(m + F_MAD + 100), 4);
	/* Read, and time passed: a plain answer. */
	poll(NULL, 0, 100);
	frame_simple(frame, OP_UNREG, LB);
	assert_int_equal(wire_call(a, frame, m), 4);
	assert_int_equal(host32(m + F_OP), OP_UNREG);
	assert_int_equal(host32(m + F_LEN), 0);
	close(a);
}

/*
 * What QEMU does: a request is written, and the next 360 bytes are the answer whatever they are; frames read otherwise are incoming MADs unless both
 * type and operation say no.
 */
struct qemu {
	int fd;
	uint32_t *incoming;
	unsigned int n_incoming, swallowed, skipped;
};

static void qemu_incoming(struct qemu *q, const uint8_t *frame)
{
	if (host32(frame + F_TYPE) != T_REQ && host32(frame + F_OP) != OP_MAD) {
		q->skipped++;
		return;
	}
	/* A guest throws away what is no CM MAD. */
	if (frame[F_MAD] != 1)
		return;
	q->incoming[q->n_incoming++] = be32(frame + F_MAD + 100);
}

static void qemu_async(struct qemu *q)
{
	uint8_t frame[FRAME];
	ssize_t n = recv(q->fd, frame, FRAME, MSG_DONTWAIT);

	if (n < 0)
		return;
	assert_int_equal(n, FRAME);
	qemu_incoming(q, frame);
}

static void qemu_request(struct qemu *q, unsigned int kind)
{
	uint8_t frame[FRAME], mad[MAD];

	if (kind) {
		mad_pair(mad, MRA, 0xa001, 0x55, 0x3333);
		frame_mad(frame, GA, mad);
	} else {
		frame_simple(frame, OP_REG, LA);
	}
	wire_send(q->fd, frame, FRAME);
	assert_int_equal(recv(q->fd, frame, FRAME, MSG_WAITALL), FRAME);
	q->swallowed += host32(frame + F_TYPE) != T_RESP;
}

static void s10_interleavings(void **state)
{
	struct rig *r = *state;
	const unsigned int steps = SLOW ? 15000 : 100000;
	struct qemu q = { .fd = rig_connect_reg(r, GA) };
	uint32_t va = rig_established(r, q.fd, 0xa001, 0x55), sent = 0;
	uint8_t pkt[PKT_SIZE];

	srandom(1);
	q.incoming = calloc(steps, 2 * sizeof(*q.incoming));
	poll(NULL, 0, 50);
	for (unsigned int i = 0; i < steps; i++) {
		unsigned int dice = (unsigned int)random() % 100;

		if (dice < 45 && sent - q.n_incoming < 100)
			send_numbered(r, va, ++sent);
		else if (dice < 70)
			qemu_request(&q, dice & 1);
		else
			qemu_async(&q);
		while (fabric_written(r->f, r->port, pkt, 0))
			;
	}
	for (unsigned int i = 0; q.n_incoming < sent && i < RIG_MS / 10; i++) {
		struct pollfd p = { .fd = q.fd, .events = POLLIN };

		poll(&p, 1, 10);
		qemu_async(&q);
	}
	print_message("%u MADs, %u of them taken for an answer first, %u frames skipped\n", sent,
		      q.swallowed, q.skipped);
	assert_int_equal(q.n_incoming, sent);
	for (unsigned int i = 0; i < sent; i++)
		assert_int_equal(q.incoming[i], i + 1);
	/* It must have happened, or nothing was tested. */
	assert_true(q.swallowed > 0);
	rig_expect_nothing(q.fd);
	free(q.incoming);
	close(q.fd);
}

#define T(fn)	   cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
#define T2(fn, up) cmocka_unit_test_setup_teardown(fn, up, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(s8_pieces),
		T2(s8_last_words, setup_fast),
		T(s8_neighbours),
		{ "s8_closed_standard_descriptors", s8_neighbours, setup_closed_std, rig_teardown,
		  NULL },
		T(s9_stops_reading),
		T(s9_stalled_is_closed),
		T2(s9_flood, setup_slow_rate),
		T(s9_unresolvable),
		T(s9_unreachable_is_left_alone),
		T(duplicate_transaction),
		T(s10_crossing),
		T2(s10_interleavings, setup_fast),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
