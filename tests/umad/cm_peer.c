// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * One side of connections set up by CM messages, through rdmacm-mux and its client library. The other side is another of
 * these on another mux, or any program that uses rdma_cm.
 *
 *	cm_peer listen  SOCKET ADDRESS [OPTIONS]
 *	cm_peer connect SOCKET ADDRESS PEER-ADDRESS [OPTIONS]
 *	cm_peer sidr    SOCKET ADDRESS PEER-ADDRESS [OPTIONS]
 *
 *	--port N     of the port space TCP (UDP for sidr); 4660
 *	--count N    so many connections, or SIDR requests; 1
 *	--reject     listen: refuse them, with reason 28
 *	--end        listen: end them, once they are established
 *	--paths      connect: ask for another path on each (LAP), then suggest one (SAP), and have an answer
 *	--hold       connect: keep them until standard input ends
 *	--refused R  connect: each must be refused, with reason R
 *	--quiet      no line for each message
 *
 * What gets no answer is repeated. Exit status 0 if everything went as it must.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mux/lib/rdmacm-mux.h"

enum {
	REQ = 0x10,
	MRA,
	REJ,
	REP,
	RTU,
	DREQ,
	DREP,
	SIDR_REQ,
	SIDR_REP,
	LAP,
	APR,
	SAP,
	SPR,
};

enum {
	AT_TID = 8,
	AT_ATTR = 16,
	AT_LOCAL = 24,
	AT_REMOTE = 28,
	AT_REASON = 34, /* of a REJ */
	REASON_CONSUMER = 28,
	MOST = 1024,
	TRY_MS = 1000,
	TRIES = 30,
	QPN_BASE = 0x100,
};

enum state {
	IDLE,
	ASKED,
	ESTABLISHED,
	LOADING,    /* waits for APR */
	SUGGESTING, /* waits for SPR */
	LOADED,
	ENDING,
	OVER
};

struct conn {
	enum state state;
	uint32_t peer_id, peer_qpn;
	uint64_t tid;
	struct rmux_address peer;
	int64_t sent_ms;
	unsigned int tries;
	uint8_t last[RMUX_MAD_SIZE]; /* what is repeated */
};

static struct rmux *mux;
static uint8_t own[RMUX_GID_SIZE], peer[RMUX_GID_SIZE];
static struct conn conns[MOST + 1]; /* by own id, from 1 */
static unsigned int count = 1, port = 4660, failures;
static int refused;
static bool reject, end_them, hold, quiet, paths;

static const char *const names[] = { "REQ",	 "MRA",	     "REJ", "REP", "RTU", "DREQ", "DREP",
				     "SIDR_REQ", "SIDR_REP", "LAP", "APR", "SAP", "SPR" };

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void die(const char *what, int err)
{
	fprintf(stderr, "cm_peer: %s: %s\n", what, strerror(err));
	exit(1);
}

static void put(uint8_t *p, unsigned int bytes, uint64_t value)
{
	while (bytes--) {
		p[bytes] = value;
		value >>= 8;
	}
}

static uint64_t get(const uint8_t *p, unsigned int bytes)
{
	uint64_t value = 0;

	while (bytes--)
		value = value << 8 | *p++;
	return value;
}

static const char *show_gid(const uint8_t *gid)
{
	static char text[2][INET6_ADDRSTRLEN];
	static unsigned int turn;
	static const uint8_t v4[12] = { [10] = 0xff, 0xff };
	bool is4 = !memcmp(gid, v4, sizeof(v4));
	char *buf = text[turn++ % 2];

	inet_ntop(is4 ? AF_INET : AF_INET6, is4 ? gid + 12 : gid, buf, INET6_ADDRSTRLEN);
	return buf;
}

static void tell(bool out, const uint8_t *mad, const uint8_t *other)
{
	unsigned int attr = get(mad + AT_ATTR, 2);
	const char *name = attr >= REQ && attr <= SPR ? names[attr - REQ] : "?";
	bool has_remote = attr != REQ && attr != SIDR_REQ && attr != SIDR_REP;

	if (quiet)
		return;
	printf("  %s %-8s id %08x", out ? "->" : "<-", name, (uint32_t)get(mad + AT_LOCAL, 4));
	if (has_remote)
		printf("  peer's id %08x", (uint32_t)get(mad + AT_REMOTE, 4));
	if (attr == REJ)
		printf("  reason %u", (unsigned int)get(mad + AT_REASON, 2));
	printf("  %s %s\n", out ? "to" : "from", show_gid(other));
	fflush(stdout);
}

static void post(const uint8_t *mad, const struct rmux_address *to)
{
	const uint8_t *other = to ? to->gid : peer;
	int err = rmux_send(mux, own, to, mad, RMUX_MAD_SIZE);

	tell(true, mad, other);
	/* what the mux refuses for now is repeated like what is lost */
	if (err && err != EAGAIN && err != ENOENT)
		die("the mux refuses a message", err);
}

static void header(uint8_t *mad, unsigned int attr, uint64_t tid)
{
	memset(mad, 0, RMUX_MAD_SIZE);
	mad[0] = 1; /* base version */
	mad[1] = 7; /* CM */
	mad[2] = 2; /* class version */
	mad[3] = 3; /* Send */
	put(mad + AT_TID, 8, tid);
	put(mad + AT_ATTR, 2, attr);
}

/* The header that rdma_cm puts before the user's private data. */
static void cma_header(uint8_t *p)
{
	static const uint8_t v4[12] = { [10] = 0xff, 0xff };
	bool is4 = !memcmp(own, v4, sizeof(v4));

	p[1] = is4 ? 0x40 : 0x60;
	put(p + 2, 2, 50000); /* source port */
	memcpy(p + (is4 ? 16 : 4), is4 ? own + 12 : own, is4 ? 4 : 16);
	memcpy(p + (is4 ? 32 : 20), is4 ? peer + 12 : peer, is4 ? 4 : 16);
}

static void make_req(uint8_t *mad, uint32_t id)
{
	header(mad, REQ, id);
	put(mad + AT_LOCAL, 4, id);
	put(mad + 32, 8, 0x01060000 | port);
	put(mad + 40, 8, 0x0200000000000000 | get(own + 12, 4)); /* CA GUID */
	put(mad + 56, 3, QPN_BASE + id);
	mad[59] = 1;		      /* responder resources */
	mad[63] = 1;		      /* initiator depth */
	mad[67] = 20 << 3;	      /* remote CM response timeout, RC */
	put(mad + 68, 3, id);	      /* first PSN */
	mad[71] = 20 << 3 | 7;	      /* local CM response timeout, retries */
	put(mad + 72, 2, 0xffff);     /* P_Key */
	mad[74] = 3 << 4 | 7;	      /* path MTU 1024, RNR retries */
	mad[75] = 15 << 4;	      /* CM retries */
	put(mad + 76, 4, 0xffffffff); /* LIDs: none */
	memcpy(mad + 80, own, sizeof(own));
	memcpy(mad + 96, peer, sizeof(peer));
	mad[115] = 2;	    /* packet rate */
	mad[117] = 64;	    /* hop limit */
	mad[119] = 17 << 3; /* ack timeout */
	cma_header(mad + 164);
}

static void make_pair(uint8_t *mad, unsigned int attr, uint32_t id, const struct conn *c)
{
	header(mad, attr, c->tid);
	put(mad + AT_LOCAL, 4, id);
	put(mad + AT_REMOTE, 4, c->peer_id);
}

static void make_rep(uint8_t *mad, uint32_t id, const struct conn *c)
{
	make_pair(mad, REP, id, c);
	put(mad + 36, 3, QPN_BASE + id);
	put(mad + 44, 3, id); /* first PSN */
	mad[48] = 1;	      /* responder resources */
	mad[49] = 1;
	mad[51] = 7 << 5; /* RNR retries */
	put(mad + 52, 8, 0x0200000000000000 | get(own + 12, 4));
}

/* Send what is repeated until it is answered. */
static void ask(struct conn *c)
{
	c->sent_ms = now_ms();
	c->tries = 1;
	post(c->last, &c->peer);
}

static void finish(struct conn *c, bool good, const char *why)
{
	if (c->state != OVER && !good) {
		failures++;
		printf("  connection %u: %s\n", (unsigned int)(c - conns), why);
	}
	c->state = OVER;
}

static void repeat(void)
{
	int64_t now = now_ms();

	for (unsigned int id = 1; id <= count; id++) {
		struct conn *c = &conns[id];

		if (c->state == IDLE || c->state == ESTABLISHED || c->state == LOADED ||
		    c->state == OVER || now - c->sent_ms < TRY_MS)
			continue;
		if (c->tries++ == TRIES) {
			finish(c, false, "no answer");
			continue;
		}
		c->sent_ms = now;
		post(c->last, &c->peer);
	}
}

static bool all(enum state state)
{
	for (unsigned int id = 1; id <= count; id++)
		if (conns[id].state != state && conns[id].state != OVER)
			return false;
	return true;
}

static void dreq(uint32_t id)
{
	struct conn *c = &conns[id];

	c->state = ENDING;
	c->tid = 0x1000 + id;
	make_pair(c->last, DREQ, id, c);
	put(c->last + 32, 3, c->peer_qpn);
	ask(c);
}

/* LAP and SAP: another path between the same ends; what is at these places says enough for both. */
static void suggest(uint32_t id, unsigned int attr)
{
	struct conn *c = &conns[id];

	c->state = attr == LAP ? LOADING : SUGGESTING;
	c->tid = 0x2000 + id;
	make_pair(c->last, attr, id, c);
	put(c->last + 36, 3, c->peer_qpn);
	memcpy(c->last + 48, own, sizeof(own));
	memcpy(c->last + 64, peer, sizeof(peer));
	ask(c);
}

/* ------------------------------------------------------------------ what comes */

static struct conn *by_peer(const struct rmux_mad *in)
{
	uint32_t id = get(in->mad + AT_LOCAL, 4);

	for (unsigned int i = 1; i <= count; i++)
		if (conns[i].state != IDLE && conns[i].peer_id == id &&
		    !memcmp(conns[i].peer.gid, in->source.gid, RMUX_GID_SIZE))
			return &conns[i];
	return NULL;
}

static void on_req(const struct rmux_mad *in)
{
	struct conn *c = by_peer(in);
	uint8_t mad[RMUX_MAD_SIZE];

	if (!c) {
		for (c = conns + 1; c->state != IDLE; c++)
			if (c == conns + count)
				return;
		c->peer = in->source;
		c->peer_id = get(in->mad + AT_LOCAL, 4);
		c->peer_qpn = get(in->mad + 56, 3);
		c->tid = get(in->mad + AT_TID, 8);
	}
	if (reject) {
		make_pair(mad, REJ, 0, c);
		put(mad + AT_REASON, 2, REASON_CONSUMER);
		post(mad, &c->peer);
		finish(c, true, NULL);
		return;
	}
	if (c->state != IDLE && c->state != ASKED)
		return;
	c->state = ASKED;
	make_rep(c->last, c - conns, c);
	ask(c);
}

static void on_rep(struct conn *c, const struct rmux_mad *in)
{
	uint8_t mad[RMUX_MAD_SIZE];

	if (c->state != ASKED && c->state != ESTABLISHED)
		return;
	c->peer_id = get(in->mad + AT_LOCAL, 4);
	c->peer_qpn = get(in->mad + 36, 3);
	c->tid = get(in->mad + AT_TID, 8);
	c->state = ESTABLISHED;
	make_pair(mad, RTU, c - conns, c);
	post(mad, &c->peer);
	if (refused)
		finish(c, false, "not refused");
}

static void on_rej(struct conn *c, const struct rmux_mad *in)
{
	finish(c, refused == (int)get(in->mad + AT_REASON, 2), "refused");
}

static void on_path(struct conn *c, const struct rmux_mad *in)
{
	uint8_t mad[RMUX_MAD_SIZE];

	c->tid = get(in->mad + AT_TID, 8);
	make_pair(mad, get(in->mad + AT_ATTR, 2) + 1, c - conns, c);
	mad[33] = 1; /* not supported */
	post(mad, &c->peer);
}

static void on_dreq(struct conn *c, const struct rmux_mad *in)
{
	uint8_t mad[RMUX_MAD_SIZE];

	c->tid = get(in->mad + AT_TID, 8);
	make_pair(mad, DREP, c - conns, c);
	post(mad, &c->peer);
	finish(c, true, NULL);
}

static void handle(const struct rmux_mad *in, bool listening)
{
	unsigned int attr = get(in->mad + AT_ATTR, 2);
	uint32_t id = get(in->mad + (attr == SIDR_REP ? AT_LOCAL : AT_REMOTE), 4);
	struct conn *c = id && id <= count ? &conns[id] : NULL;

	tell(false, in->mad, in->source.gid);
	if (attr == REQ) {
		if (listening)
			on_req(in);
		return;
	}
	if (!c)
		return;
	switch (attr) {
	case MRA: /* it will take longer */
		c->tries = 1;
		break;
	case REP:
		on_rep(c, in);
		break;
	case REJ:
		on_rej(c, in);
		break;
	case RTU:
		if (c->state != ASKED)
			break;
		c->state = ESTABLISHED;
		if (end_them)
			dreq(id);
		break;
	case DREQ:
		on_dreq(c, in);
		break;
	case DREP:
		finish(c, true, NULL);
		break;
	case LAP:
	case SAP:
		on_path(c, in);
		break;
	case APR:
		if (c->state == LOADING)
			suggest(id, SAP);
		break;
	case SPR:
		if (c->state == SUGGESTING)
			c->state = LOADED;
		break;
	case SIDR_REP:
		finish(c, in->mad[28] == 0, "the SIDR request is refused");
		if (!quiet && in->mad[28] == 0)
			printf("  service: QP %#x, Q_Key %#x\n", (unsigned int)get(in->mad + 32, 3),
			       (uint32_t)get(in->mad + 44, 4));
		break;
	default:
		break;
	}
}

/* Until all connections have come to this state, or are over. */
static void run(enum state until, bool listening)
{
	struct rmux_mad in;
	int err;

	while (!all(until)) {
		struct pollfd pfd = { .fd = rmux_fd(mux), .events = POLLIN };

		poll(&pfd, 1, TRY_MS / 10);
		while (!(err = rmux_receive(mux, &in)))
			handle(&in, listening);
		if (err != EAGAIN)
			die("the mux", err);
		repeat();
	}
}

static void start_sidr(uint32_t id)
{
	uint8_t *mad = conns[id].last;

	header(mad, SIDR_REQ, id);
	put(mad + AT_LOCAL, 4, id);
	put(mad + 28, 2, 0xffff); /* P_Key */
	put(mad + 32, 8, 0x01110000 | port);
	cma_header(mad + 40);
}

static void start(bool sidr)
{
	for (uint32_t id = 1; id <= count; id++) {
		struct conn *c = &conns[id];

		c->state = ASKED;
		memcpy(c->peer.gid, peer, sizeof(peer));
		if (sidr)
			start_sidr(id);
		else
			make_req(c->last, id);
		ask(c);
	}
}

static void wait_input(void)
{
	struct rmux_mad in;
	char byte;

	printf("  %u established; waiting\n", count);
	fflush(stdout);
	for (;;) {
		struct pollfd pfd[2] = { { .fd = 0, .events = POLLIN },
					 { .fd = rmux_fd(mux), .events = POLLIN } };

		poll(pfd, 2, rmux_pending(mux) ? 0 : -1);
		while (!rmux_receive(mux, &in))
			handle(&in, false);
		if ((pfd[1].revents & POLLHUP) || (pfd[0].revents && read(0, &byte, 1) <= 0))
			return;
	}
}

static void address(uint8_t *gid, const char *text)
{
	memset(gid, 0, RMUX_GID_SIZE);
	gid[10] = gid[11] = 0xff;
	if (inet_pton(AF_INET, text, gid + 12) == 1 || inet_pton(AF_INET6, text, gid) == 1)
		return;
	fprintf(stderr, "cm_peer: \"%s\" is no address\n", text);
	exit(2);
}

static void usage(void)
{
	fprintf(stderr,
		"usage: cm_peer listen SOCKET ADDRESS [--port N] [--count N] [--reject | --end] [--quiet]\n"
		"       cm_peer connect SOCKET ADDRESS PEER [--port N] [--count N] [--paths] [--hold] [--refused REASON] [--quiet]\n"
		"       cm_peer sidr SOCKET ADDRESS PEER [--port N] [--count N] [--quiet]\n");
	exit(2);
}

static void options(int argc, char **argv)
{
	static const struct option list[] = {
		{ "port", required_argument, NULL, 'p' },
		{ "count", required_argument, NULL, 'n' },
		{ "reject", no_argument, NULL, 'r' },
		{ "end", no_argument, NULL, 'e' },
		{ "hold", no_argument, NULL, 'h' },
		{ "paths", no_argument, NULL, 'P' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "refused", required_argument, NULL, 'R' },
		{ 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", list, NULL)) != -1) {
		switch (option) {
		case 'p':
			port = atoi(optarg);
			break;
		case 'n':
			count = atoi(optarg);
			break;
		case 'R':
			refused = atoi(optarg);
			break;
		case 'r':
			reject = true;
			break;
		case 'e':
			end_them = true;
			break;
		case 'h':
			hold = true;
			break;
		case 'P':
			paths = true;
			break;
		case 'q':
			quiet = true;
			break;
		default:
			usage();
		}
	}
	if (!count || count > MOST || port > 65535)
		usage();
}

static void connect_all(void)
{
	start(false);
	run(ESTABLISHED, false);
	if (paths) {
		for (uint32_t id = 1; id <= count; id++)
			if (conns[id].state == ESTABLISHED)
				suggest(id, LAP);
		run(LOADED, false);
	}
	if (hold)
		wait_input();
	for (uint32_t id = 1; id <= count; id++)
		if (conns[id].state == ESTABLISHED || conns[id].state == LOADED)
			dreq(id);
	run(OVER, false);
}

int main(int argc, char **argv)
{
	bool listening, sidr;
	int err;

	options(argc, argv);
	argc -= optind;
	argv += optind;
	if (argc < 1)
		usage();
	listening = !strcmp(argv[0], "listen");
	sidr = !strcmp(argv[0], "sidr");
	if (!listening && !sidr && strcmp(argv[0], "connect") != 0)
		usage();
	if (argc != (listening ? 3 : 4))
		usage();
	address(own, argv[2]);
	if (!listening)
		address(peer, argv[3]);
	mux = rmux_open(argv[1], RMUX_REREGISTER_OK);
	if (!mux)
		die(argv[1], errno);
	err = rmux_register(mux, own);
	if (err)
		die("the mux does not register the address", err);
	if (listening) {
		printf("  listening on %s\n", show_gid(own));
		fflush(stdout);
		run(OVER, true);
	} else if (sidr) {
		start(true);
		run(OVER, false);
	} else {
		connect_all();
	}
	rmux_close(mux);
	printf("  %u of %u %s as they must\n", count - failures, count,
	       sidr ? "requests answered" : "connections went");
	return failures != 0;
}
