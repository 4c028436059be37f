// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Clients for muxes on real devices: whole CM exchanges through the kernel, with every id and address checked. Says "ok WHAT" or
 * "FAIL WHAT" for each point; exit status 0 if all are ok.
 *
 *	mux_lab [--short | --load | --hold COUNT] SOCKET-0 ADDRESS ADDRESS SOCKET-1 ADDRESS
 *	mux_lab --local SOCKET ADDRESS ADDRESS
 *
 * --hold makes COUNT connections. For each line that it reads, which names what happened meanwhile, it ends one of them, and makes
 * and ends another.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/mux/wire.h"

#define SERVICE 0x0000000001061b58ULL
#define TRY_MS	2000
#define TRIES	10

static unsigned int failures;

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void point(bool ok, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void point(bool ok, const char *fmt, ...)
{
	va_list ap;

	failures += !ok;
	printf("%s ", ok ? "ok" : "FAIL");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
}

/* Two of this program may be clients of one mux at a time. */
static uint64_t ca_guid(unsigned int number)
{
	return (uint64_t)getpid() << 16 | number;
}

static void address(uint8_t *gid, const char *text)
{
	gid4(gid, ntohl(inet_addr(text)));
}

/* A late repetition may come before the answer: nobody waits for it any more. */
static unsigned int request(int fd, const uint8_t *src, const uint8_t *mad)
{
	uint8_t frame[FRAME];

	frame_mad(frame, src, mad);
	wire_send(fd, frame, FRAME);
	do {
		if (!wire_recv(fd, frame, 10000, NULL)) {
			printf("FAIL no answer from the mux\n");
			exit(1);
		}
	} while (host32(frame + F_TYPE) != T_RESP);
	return host32(frame + F_ERR);
}

/* Sends, again if no MAD of the kind expected comes, as a CM does. False if it never comes. */
static bool exchange(int from, const uint8_t *src, const uint8_t *mad, int to, const uint8_t *dst,
		     uint8_t *in)
{
	uint8_t frame[FRAME];

	for (unsigned int i = 0; i < TRIES; i++) {
		int64_t until = now_ms() + TRY_MS;

		/* What the mux refuses while the port is away passes. */
		if (request(from, src, mad)) {
			poll(NULL, 0, 200);
			continue;
		}
		while (now_ms() < until) {
			if (!wire_recv(to, frame, (unsigned int)(until - now_ms()), NULL))
				break;
			if (host32(frame + F_TYPE) || host32(frame + F_OP) != OP_MAD ||
			    frame[F_MAD + M_ATTR + 1] != mad[M_ATTR + 1])
				continue;
			if (memcmp(frame + F_SGID, dst, 16) != 0 ||
			    memcmp(frame + F_GID, src, 16) != 0)
				continue;
			memcpy(in, frame + F_MAD, MAD);
			return true;
		}
	}
	return false;
}

/* So that the answer to the next request is surely one. */
static void settle(void)
{
	poll(NULL, 0, 20);
}

struct side {
	int fd;
	uint8_t gid[16];
	uint32_t id;
	uint64_t guid;
};

/* An established connection: the ids that the peers know. */
struct held {
	uint32_t a_id, b_id, va, vb;
};

/* One connection from REQ to RTU, with MRA if wanted; ids are those of the sides. */
static bool establish(const struct side *a, const struct side *b, bool mra, struct held *h)
{
	uint8_t mad[MAD], in[MAD];
	uint64_t tid;

	h->a_id = a->id;
	h->b_id = b->id;
	mad_req(mad, a->id, 0xaabbccdd00000000 | a->id, a->gid, b->gid, a->guid, 0x111, SERVICE);
	if (!exchange(a->fd, a->gid, mad, b->fd, b->gid, in))
		return false;
	h->va = be32(in + M_LOCAL);
	tid = be64(in + M_TID);
	if (h->va == a->id || h->va >> 24 == 0 || memcmp(in + 32, mad + 32, MAD - 32) != 0)
		return false;
	settle();
	if (mra) {
		mad_pair(mad, MRA, b->id, h->va, tid);
		if (!exchange(b->fd, b->gid, mad, a->fd, a->gid, in) ||
		    be32(in + M_REMOTE) != a->id)
			return false;
		settle();
	}
	mad_rep(mad, b->id, h->va, tid, b->guid, 0x222);
	if (!exchange(b->fd, b->gid, mad, a->fd, a->gid, in))
		return false;
	h->vb = be32(in + M_LOCAL);
	/* The client's transaction id comes back whole, though the kernel changes half of it. */
	if (be32(in + M_REMOTE) != a->id || h->vb >> 24 == 0 ||
	    be64(in + M_TID) != (0xaabbccdd00000000 | a->id))
		return false;
	settle();
	mad_pair(mad, RTU, a->id, h->vb, be64(in + M_TID));
	if (!exchange(a->fd, a->gid, mad, b->fd, b->gid, in) || be32(in + M_REMOTE) != b->id ||
	    be32(in + M_LOCAL) != h->va)
		return false;
	settle();
	return true;
}

/* Ends it from b's side. */
static bool finish(const struct side *a, const struct side *b, const struct held *h)
{
	uint8_t mad[MAD], in[MAD];

	mad_pair(mad, DREQ, h->b_id, h->va, 0x1234567800000000 | h->b_id);
	if (!exchange(b->fd, b->gid, mad, a->fd, a->gid, in) || be32(in + M_REMOTE) != h->a_id ||
	    be32(in + M_LOCAL) != h->vb)
		return false;
	settle();
	mad_pair(mad, DREP, h->a_id, h->vb, be64(in + M_TID));
	if (!exchange(a->fd, a->gid, mad, b->fd, b->gid, in) || be32(in + M_REMOTE) != h->b_id ||
	    be64(in + M_TID) != (0x1234567800000000 | h->b_id))
		return false;
	settle();
	return true;
}

static bool connection(const struct side *a, const struct side *b, bool mra)
{
	struct held h;

	return establish(a, b, mra, &h) && finish(a, b, &h);
}

static void open_side(struct side *s, const char *path, const char *addr, uint64_t guid)
{
	unsigned int err;

	s->fd = wire_connect_wait(path, 10000);
	address(s->gid, addr);
	s->id = 1;
	s->guid = guid;
	err = wire_reg(s->fd, s->gid);
	if (err)
		point(false, "%s registers %s: error %u", path, addr, err);
}

static void sidr(const struct side *a, const struct side *b)
{
	uint8_t mad[MAD], in[MAD];

	mad_sidr_req(mad, 7, 7, 0x0000000001111b58ULL);
	mad[41] = 0x40;
	memcpy(mad + 56, a->gid + 12, 4);
	memcpy(mad + 72, b->gid + 12, 4);
	if (!exchange(a->fd, a->gid, mad, b->fd, b->gid, in)) {
		point(false, "SIDR request");
		return;
	}
	settle();
	mad_header(mad, SIDR_REP, be64(in + M_TID));
	put_be32(mad + 24, be32(in + 24));
	point(exchange(b->fd, b->gid, mad, a->fd, a->gid, in) && be32(in + 24) == 7,
	      "SIDR exchange");
	settle();
}

static void reject(const struct side *a, const struct side *b)
{
	uint8_t mad[MAD], in[MAD];

	mad_req(mad, 99, 99, a->gid, b->gid, a->guid, 0x111, SERVICE);
	if (!exchange(a->fd, a->gid, mad, b->fd, b->gid, in)) {
		point(false, "REQ to be rejected");
		return;
	}
	settle();
	mad_rej(mad, 0, be32(in + M_LOCAL), be64(in + M_TID), 0, 8);
	point(exchange(b->fd, b->gid, mad, a->fd, a->gid, in) && be32(in + M_REMOTE) == 99,
	      "REJ without id");
	settle();
}

/* A destination that nobody has blocks the kernel for a second, and nobody here: eight of them would take eight seconds. */
static void unresolvable(const struct side *a, const struct side *b)
{
	uint8_t mad[MAD], in[MAD], none[16];
	int64_t begin = now_ms(), took;
	bool ok;

	for (unsigned int i = 0; i < 8; i++) {
		gid4(none, 0x0a0000c8 + i);
		mad_req(mad, 200 + i, 200 + i, a->gid, none, a->guid, 1, SERVICE);
		wire_mad(a->fd, a->gid, mad);
	}
	took = now_ms() - begin;
	point(took < 4000, "answers while destinations do not resolve: %lld ms", (long long)took);
	mad_req(mad, 300, 300, a->gid, b->gid, a->guid, 1, SERVICE);
	ok = exchange(a->fd, a->gid, mad, b->fd, b->gid, in);
	took = now_ms() - begin;
	point(ok && took < 6000, "another destination meanwhile: %lld ms", (long long)took);
}

static int local(char **argv)
{
	struct side a, b;

	open_side(&a, argv[0], argv[1], ca_guid(1));
	open_side(&b, argv[0], argv[2], ca_guid(2));
	point(connection(&a, &b, true), "a connection between two clients of one mux");
	close(a.fd);
	close(b.fd);
	return failures != 0;
}

static int load(char **argv)
{
	int64_t until = now_ms() + 15000;
	unsigned int good = 0, bad = 0;
	struct side a, b;

	open_side(&a, argv[0], argv[1], ca_guid(1));
	open_side(&b, argv[3], argv[4], ca_guid(2));
	for (; now_ms() < until; a.id++, b.id++) {
		if (connection(&a, &b, false))
			good++;
		else
			bad++;
	}
	printf("load: %u connections, %u given up\n", good, bad);
	/* One may have been under way. */
	return !(good > 5 && bad <= 1);
}

static int hold(unsigned int count, char **argv)
{
	struct held *held = calloc(count, sizeof(*held));
	struct side a, b;
	unsigned int n = 0;
	char line[128];

	open_side(&a, argv[0], argv[1], ca_guid(1));
	open_side(&b, argv[3], argv[4], ca_guid(2));
	for (; n < count; n++, a.id++, b.id++)
		if (!establish(&a, &b, true, &held[n]))
			break;
	point(n == count, "%u connections are held", n);
	while (n && fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		point(finish(&a, &b, &held[--n]), "an old one ends after %s", line);
		point(connection(&a, &b, true), "a new one after %s", line);
		a.id++;
		b.id++;
	}
	free(held);
	return failures != 0;
}

static int full(char **argv, bool brief)
{
	const unsigned int many = 100;
	struct side a, c, b;
	unsigned int n = 0;

	open_side(&a, argv[0], argv[1], ca_guid(1));
	open_side(&b, argv[3], argv[4], ca_guid(2));
	if (brief)
		return !connection(&a, &b, true);
	open_side(&c, argv[0], argv[2], ca_guid(3));
	point(connection(&a, &b, true), "a connection across two devices, MRA included");
	point(connection(&b, &a, true), "and in the other direction");
	/* Both with id 1. */
	b.id = 2;
	point(connection(&c, &b, false), "another client with the same id");
	point(connection(&a, &c, true), "two clients of one mux");
	sidr(&a, &b);
	reject(&a, &b);
	unresolvable(&a, &b);
	for (unsigned int i = 0; i < many; i++) {
		a.id = 1000 + i;
		b.id = 2000 + i;
		n += connection(&a, &b, false);
	}
	point(n == many, "%u connections in a row of %u", n, many);
	return failures != 0;
}

int main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "--local") == 0)
		return local(argv + 2);
	if (argc == 7 && strcmp(argv[1], "--load") == 0)
		return load(argv + 2);
	if (argc == 7 && strcmp(argv[1], "--short") == 0)
		return full(argv + 2, true);
	if (argc == 8 && strcmp(argv[1], "--hold") == 0 && atoi(argv[2]) > 0)
		return hold((unsigned int)atoi(argv[2]), argv + 3);
	if (argc == 6)
		return full(argv + 1, false);
	fprintf(stderr,
		"usage: mux_lab [--short | --load | --hold COUNT] SOCKET ADDRESS ADDRESS SOCKET "
		"ADDRESS\n"
		"       mux_lab --local SOCKET ADDRESS ADDRESS\n");
	return 2;
}
