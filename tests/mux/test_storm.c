// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Many at once: 16 clients with 900 connections each (300 under a sanitizer) between two muxes, all with the same ids, over a fabric that loses
 * one MAD in a hundred;
 * 4,096 clients; a million sessions; clients and daemon killed at random under load.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/instrumented.h"
#include "tests/mux/rig.h"

#define SLOW INSTRUMENTED

#define CLIENTS	  16
#define CONNS	  (SLOW ? 300 : 900)
#define BATCH	  16 /* requests in one write */
#define TAG_OFF	  208
#define RESEND_MS 1000
#define STORM_MS  150000 /* for each half, on a machine with much else to do */

/* One end of a connection, as a communication manager keeps it. */
enum end_state {
	IDLE,
	REQ_OUT,
	REP_OUT,
	OPEN,
	DREQ_OUT,
	CLOSED
};

struct end {
	enum end_state state;
	uint32_t peer_id;
	uint64_t tid;
	int64_t resend_ms;
	unsigned int tries;
};

struct out {
	struct out *next;
	uint8_t frame[FRAME];
};

struct storm_client {
	int fd;
	bool active;
	unsigned int number;
	uint8_t gid[16], peer[16];
	struct end ends[CONNS];
	struct out *head, **tail; /* requests not yet sent */
	bool waiting;		  /* for an answer */
	size_t got;
	uint8_t in[FRAME];
	unsigned int closed, refused, opened;
};

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void put_tag(uint8_t *mad, unsigned int client, unsigned int conn)
{
	put_be32(mad + TAG_OFF, 0xc0ffee00 + client);
	put_be32(mad + TAG_OFF + 4, conn);
}

static void queue_mad(struct storm_client *c, const uint8_t *mad)
{
	struct out *o = malloc(sizeof(*o));

	assert_non_null(o);
	frame_mad(o->frame, c->gid, mad);
	o->next = NULL;
	*c->tail = o;
	c->tail = &o->next;
}

/* Sends, again if need be, what the state of an end asks for. */
static void say(struct storm_client *c, unsigned int i, int64_t now)
{
	struct end *e = &c->ends[i];
	uint32_t id = i + 1;
	uint8_t mad[MAD];

	switch (e->state) {
	case REQ_OUT:
		mad_req(mad, id, id, c->gid, c->peer, 0xa000 + c->number, id, SVC_TCP);
		break;
	case REP_OUT:
		mad_rep(mad, id, e->peer_id, e->tid, 0xb000 + c->number, id);
		break;
	case DREQ_OUT:
		mad_pair(mad, DREQ, id, e->peer_id, 0x10000 + id);
		break;
	default:
		return;
	}
	put_tag(mad, c->number, i);
	queue_mad(c, mad);
	e->tries++;
	/* Longer each time, so that a machine with much else to do is not buried in repetitions. */
	e->resend_ms = now + RESEND_MS * (e->tries < 10 ? e->tries : 10) + random() % 200;
}

static void answer_with(struct storm_client *c, unsigned int i, unsigned int attr, uint64_t tid)
{
	uint8_t mad[MAD];

	mad_pair(mad, attr, i + 1, c->ends[i].peer_id, tid);
	put_tag(mad, c->number, i);
	queue_mad(c, mad);
}

static void on_mad(struct storm_client *c, const uint8_t *frame, int64_t now)
{
	const uint8_t *mad = frame + F_MAD;
	unsigned int attr = mad[M_ATTR + 1], i = be32(mad + TAG_OFF + 4);
	struct end *e;

	/* Nothing crossed: the message is of the partner's same connection, under our id. */
	assert_int_equal(be32(mad + TAG_OFF), 0xc0ffee00 + c->number);
	assert_true(i < CONNS);
	assert_memory_equal(frame + F_SGID, c->gid, 16);
	assert_memory_equal(frame + F_GID, c->peer, 16);
	if (attr != REQ)
		assert_int_equal(be32(mad + M_REMOTE), i + 1);
	e = &c->ends[i];
	switch (attr) {
	case REQ:
		assert_false(c->active);
		if (e->state != IDLE)
			break;
		e->peer_id = be32(mad + M_LOCAL);
		e->tid = be64(mad + M_TID);
		e->state = REP_OUT;
		say(c, i, now);
		break;
	case REP:
		assert_true(c->active);
		if (e->state == REQ_OUT) {
			e->peer_id = be32(mad + M_LOCAL);
			e->state = OPEN;
			c->opened++;
		}
		assert_int_equal(be32(mad + M_LOCAL), e->peer_id);
		answer_with(c, i, RTU, be64(mad + M_TID));
		break;
	case RTU:
		if (e->state == REP_OUT) {
			e->state = OPEN;
			c->opened++;
		}
		break;
	case DREQ:
		assert_int_equal(be32(mad + M_LOCAL), e->peer_id);
		if (e->state != CLOSED) {
			/* Its RTU may have been lost. */
			c->opened += e->state == REP_OUT;
			e->state = CLOSED;
			c->closed++;
		}
		answer_with(c, i, DREP, be64(mad + M_TID));
		break;
	case DREP:
		assert_true(be64(mad + M_TID) == 0x10000 + i + 1);
		if (e->state == DREQ_OUT) {
			e->state = CLOSED;
			c->closed++;
		}
		break;
	default:
		fail_msg("attribute 0x%x", attr);
	}
}

static void on_readable(struct storm_client *c, int64_t now)
{
	ssize_t n;

	while ((n = recv(c->fd, c->in + c->got, FRAME - c->got, MSG_DONTWAIT)) > 0) {
		c->got += (size_t)n;
		if (c->got < FRAME)
			continue;
		c->got = 0;
		if (host32(c->in + F_TYPE) == T_REQ) {
			on_mad(c, c->in, now);
		} else {
			assert_true(c->waiting);
			c->waiting = false;
			/* A rate or full table would be an answer of 3: CM repeats. */
			c->refused += host32(c->in + F_ERR) != 0;
		}
	}
	assert_true(n < 0 && errno == EAGAIN);
}

static void send_next(struct storm_client *c)
{
	struct out *o = c->head;

	if (c->waiting || !o)
		return;
	wire_send(c->fd, o->frame, FRAME);
	c->head = o->next;
	if (!c->head)
		c->tail = &c->head;
	free(o);
	c->waiting = true;
}

/* Runs all clients until each has done `count` of what `done` counts. */
static void run_until(struct storm_client *cs, unsigned int n, size_t counter, unsigned int count)
{
	int64_t until = now_ms() + STORM_MS, now, next_scan = 0;
	struct pollfd *fds = calloc(n, sizeof(*fds));
	bool all = false;

	for (unsigned int i = 0; i < n; i++)
		fds[i] = (struct pollfd){ .fd = cs[i].fd, .events = POLLIN };
	while (!all) {
		for (unsigned int i = 0; i < n; i++)
			send_next(&cs[i]);
		assert_true(poll(fds, n, 20) >= 0);
		now = now_ms();
		assert_true(now < until);
		all = true;
		for (unsigned int i = 0; i < n; i++) {
			if (fds[i].revents)
				on_readable(&cs[i], now);
			if (*(unsigned int *)((char *)&cs[i] + counter) < count || cs[i].head ||
			    cs[i].waiting)
				all = false;
		}
		if (now < next_scan)
			continue;
		next_scan = now + 50;
		for (unsigned int i = 0; i < n; i++)
			for (unsigned int k = 0; k < CONNS; k++)
				if (cs[i].ends[k].resend_ms && now >= cs[i].ends[k].resend_ms)
					say(&cs[i], k, now);
	}
	free(fds);
}

static void storm(void **state)
{
	static struct storm_client cs[2 * CLIENTS];
	struct rig *r = rig_new();
	unsigned int tries = 0, refused = 0, port1;
	char path[96];
	pid_t second;
	int status;

	(void)state;
	port1 = fabric_add(r->f, "fab1");
	for (unsigned int i = 0; i < 2 * CLIENTS; i++) {
		struct storm_client *c = &cs[i];

		memset(c, 0, sizeof(*c));
		c->active = i < CLIENTS;
		c->number = i % CLIENTS;
		c->tail = &c->head;
		gid4(c->gid, (c->active ? 0x0a010000 : 0x0a020000) + c->number + 1);
		gid4(c->peer, (c->active ? 0x0a020000 : 0x0a010000) + c->number + 1);
		fabric_set_gid(r->f, c->active ? r->port : port1, c->number % 16, c->gid);
	}
	fabric_loss(r->f, 1);
	rig_start(r);
	second = rig_spawn(r, "fab1", NULL);
	snprintf(path, sizeof(path), "%s/mux-fab1-1", r->dir);
	for (unsigned int i = 0; i < 2 * CLIENTS; i++) {
		cs[i].fd = cs[i].active ? rig_connect(r) : wire_connect_wait(path, RIG_MS);
		assert_int_equal(wire_reg(cs[i].fd, cs[i].gid), 0);
	}
	for (unsigned int i = 0; i < CLIENTS; i++)
		for (unsigned int k = 0; k < CONNS; k++) {
			cs[i].ends[k].state = REQ_OUT;
			say(&cs[i], k, now_ms());
		}
	run_until(cs, 2 * CLIENTS, offsetof(struct storm_client, opened), CONNS);
	assert_int_equal(rig_status(r, "sessions"), CLIENTS * CONNS);
	for (unsigned int i = 0; i < CLIENTS; i++)
		for (unsigned int k = 0; k < CONNS; k++) {
			cs[i].ends[k].state = DREQ_OUT;
			say(&cs[i], k, now_ms());
		}
	run_until(cs, 2 * CLIENTS, offsetof(struct storm_client, closed), CONNS);
	for (unsigned int i = 0; i < 2 * CLIENTS; i++) {
		for (unsigned int k = 0; k < CONNS; k++)
			tries += cs[i].ends[k].tries;
		refused += cs[i].refused;
		close(cs[i].fd);
	}
	print_message(
		"%u connections opened and closed, %u requests and replies sent, %u refused for rate\n",
		CLIENTS * CONNS, tries, refused);
	{
		json_t *ans = rig_control(r, "{\"command\":\"stats\"}");
		char *text = json_dumps(ans, JSON_COMPACT);

		print_message("%s\n", text);
		free(text);
		json_decref(ans);
	}
	assert_true(tries > 3 * CLIENTS * CONNS);
	rig_advance(r, 200000);
	rig_wait_status(r, "sessions", 0);
	kill(second, SIGTERM);
	assert_int_equal(waitpid(second, &status, 0), second);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	rig_free(r);
}

/* So many clients that each has a GID. */
static void many_clients(void **state)
{
	const unsigned int n = 4096;
	struct rlimit lim;
	struct rig *r = rig_new();
	int *fds = calloc(n, sizeof(*fds));
	uint8_t mad[MAD], in[MAD], g[16], h[16];

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &lim), 0);
	if (lim.rlim_max < 2 * n + 600)
		skip();
	lim.rlim_cur = lim.rlim_max;
	setrlimit(RLIMIT_NOFILE, &lim);
	rig_start(r);
	for (unsigned int i = 0; i < n; i++) {
		fds[i] = rig_connect(r);
		gid4(g, 0x0b000000 + i + 1);
		assert_int_equal(wire_reg(fds[i], g), 0);
	}
	assert_int_equal(rig_status(r, "clients"), n);
	/* Each reaches its neighbour. */
	for (unsigned int i = 0; i < n; i += 37) {
		gid4(g, 0x0b000000 + i + 1);
		gid4(h, 0x0b000000 + (i + 1) % n + 1);
		mad_req(mad, 1, 1, g, h, 0x1000 + i, 1, SVC_TCP);
		assert_int_equal(wire_mad(fds[i], g, mad), 0);
		rig_expect_mad(fds[(i + 1) % n], in, REQ, h, g);
	}
	for (unsigned int i = 0; i < n; i++)
		close(fds[i]);
	rig_wait_status(r, "clients", 0);
	free(fds);
	rig_free(r);
}

/* Says hello, so that many requests may be on their way. */
static void say_hello(int fd)
{
	uint8_t frame[FRAME], zero[16] = { 0 };

	frame_simple(frame, 3, zero);
	put_host32(frame + F_LEN, 20);
	put_host32(frame + F_MAD, 1);
	assert_int_equal(wire_call(fd, frame, NULL), 0);
}

/* Sends REQs with ids from first on; returns how many were accepted. */
static unsigned int post_reqs(int fd, const uint8_t *src, const uint8_t *dst, unsigned int first,
			      unsigned int count, uint64_t guid)
{
	uint8_t frames[BATCH * FRAME], frame[FRAME], mad[MAD];
	unsigned int accepted = 0;

	for (unsigned int i = 0; i < count; i += BATCH) {
		unsigned int n = count - i < BATCH ? count - i : BATCH, answers = 0;

		for (unsigned int k = 0; k < n; k++) {
			mad_req(mad, first + i + k, i + k, src, dst, guid, 1, SVC_TCP);
			frame_mad(frames + k * FRAME, src, mad);
		}
		wire_send(fd, frames, n * FRAME);
		while (answers < n) {
			assert_true(wire_recv(fd, frame, RIG_MS, NULL));
			if (host32(frame + F_TYPE) != T_RESP)
				continue;
			answers++;
			accepted += host32(frame + F_ERR) == 0;
		}
	}
	return accepted;
}

/* The table at its limit: each REQ from one client to another makes two sessions. */
static void full_table(void **state)
{
	/* Those that a sanitizer watches take their time. */
	const unsigned int n = 16, total = SLOW ? 64000 : 1000000, each = total / 2 / n;
	struct rig *r = rig_new();
	uint8_t g[16][16], mad[MAD], in[MAD];
	char opt[64];
	int fds[16], last;

	(void)state;
	snprintf(opt, sizeof(opt), "max_sessions_total=%u", total);
	rig_option(r, opt);
	rig_option(r, "max_sessions=1000000");
	rig_option(r, "max_half_open=1000000");
	rig_option(r, "mad_rate=10000000");
	rig_option(r, "request_rate=10000000");
	rig_option(r, "source_rate=10000000");
	rig_start(r);
	for (unsigned int i = 0; i < n; i++) {
		fds[i] = rig_connect(r);
		gid4(g[i], 0x0c000001 + i);
		say_hello(fds[i]);
		assert_int_equal(wire_reg(fds[i], g[i]), 0);
	}
	for (unsigned int i = 0; i < n; i++)
		assert_int_equal(post_reqs(fds[i], g[i], g[(i + 1) % n], 1, each, 0x100 + i), each);
	assert_int_equal(rig_status(r, "sessions"), total);
	/* One more is refused on either side, and what is there goes on. */
	assert_int_equal(post_reqs(fds[0], g[0], g[1], each + 1, 1, 0x100), 0);
	last = rig_connect_reg(r, GA);
	mad_req(mad, 1, 1, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(last, GA, mad), 3);
	mad_req(mad, 1, 1, GP, GA, CA_P, QPN_P, SVC_TCP);
	rig_inject(r, GP, 1, mad);
	rig_expect_write(r, in, REJ, GP, 1);
	assert_int_equal(in[35], 3);
	for (unsigned int i = 0; i < n; i++)
		assert_int_equal(post_reqs(fds[i], g[i], g[(i + 1) % n], each / 2, 1, 0x100 + i),
				 1);
	/* Time makes room, step by step, as that takes a while. */
	rig_advance(r, 301000);
	for (unsigned int i = 0; i < STORM_MS && rig_status(r, "sessions") == total; i += 10)
		poll(NULL, 0, 10);
	mad_req(mad, 1, 1, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(last, GA, mad), 0);
	for (unsigned int i = 0; i < n; i++)
		close(fds[i]);
	close(last);
	rig_free(r);
}

/* A client process that works until it is killed. */
static void busy_client(struct rig *r, unsigned int number)
{
	uint8_t g[16], frame[FRAME], mad[MAD];
	unsigned int n = 0;
	int fd;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	gid4(g, 0x0b000001 + number);
	for (;;) {
		fd = wire_connect(r->socket);
		if (fd < 0) {
			poll(NULL, 0, 5);
			continue;
		}
		frame_simple(frame, OP_REG, g);
		while (send(fd, frame, FRAME, MSG_NOSIGNAL) == FRAME &&
		       recv(fd, frame, FRAME, MSG_WAITALL) == FRAME) {
			n++;
			mad_req(mad, n % 50, n, g, n % 3 ? GP : GA, 0x1000 + number, n, SVC_TCP);
			frame_mad(frame, g, mad);
		}
		close(fd);
	}
}

static unsigned int count_fds(pid_t pid)
{
	unsigned int n = 0;
	char path[64];
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	d = opendir(path);
	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void kill_at_random(bool with_state)
{
	const unsigned int n = 6;
	struct rig *r = rig_new();
	uint8_t pkt[PKT_SIZE];
	unsigned int before;
	char path[96];
	pid_t pids[6];

	rig_option(r, "mad_rate=100000");
	rig_option(r, "grace_ms=200");
	if (with_state) {
		snprintf(path, sizeof(path), "%s/state", r->dir);
		rig_option(r, "-S");
		r->opts[r->n_opts++] = strdup(path);
	}
	rig_start(r);
	before = count_fds(r->pid);
	srandom(with_state ? 8 : 7);
	for (unsigned int i = 0; i < n; i++) {
		pids[i] = fork();
		if (!pids[i])
			busy_client(r, i);
	}
	for (unsigned int round = 0; round < 60; round++) {
		unsigned int victim = (unsigned int)random() % n;

		poll(NULL, 0, (int)(random() % 20));
		while (fabric_written(r->f, r->port, pkt, 0))
			;
		if (random() % 10 == 0) {
			rig_stop(r, SIGKILL);
			rig_start(r);
			continue;
		}
		kill(pids[victim], SIGKILL);
		waitpid(pids[victim], NULL, 0);
		pids[victim] = fork();
		if (!pids[victim])
			busy_client(r, victim);
	}
	for (unsigned int i = 0; i < n; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	rig_wait_status(r, "clients", 0);
	rig_wait_status(r, "clients_in_grace", 0);
	rig_wait_status(r, "gids", 0);
	for (unsigned int i = 0; i < 300 && rig_status(r, "sessions"); i++) {
		rig_advance(r, 40000);
		poll(NULL, 0, 20);
		while (fabric_written(r->f, r->port, pkt, 0))
			;
	}
	assert_int_equal(rig_status(r, "sessions"), 0);
	/* The last control connection may still be open. */
	for (unsigned int i = 0; count_fds(r->pid) > before && i < RIG_MS; i += 10)
		poll(NULL, 0, 10);
	assert_true(count_fds(r->pid) <= before);
	rig_free(r);
}

static void random_kills(void **state)
{
	(void)state;
	kill_at_random(false);
}

/* The records that a killed daemon leaves are found by the next one, at whatever point it was. */
static void random_kills_with_state(void **state)
{
	(void)state;
	kill_at_random(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(storm),
		cmocka_unit_test(many_clients),
		cmocka_unit_test(full_table),
		cmocka_unit_test(random_kills),
		cmocka_unit_test(random_kills_with_state),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
