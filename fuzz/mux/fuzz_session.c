// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The daemon's inside, driven by bytes: clients that send anything, a fabric that sends anything, time that passes.
 *
 * Everything from the client's socket to the destination table is the daemon's own code; only the writing threads and the GID table
 * are replaced, so that one input always does the same. An input is a list of steps; see step().
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/core/input.h"
#include "fuzz/mux/daemon.h"
#include "mux/mux.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CLIENTS 3
#define SEEN	8

/* Stands for the threads: a MAD is written at once. */
struct sender {
	uint32_t seen[SEEN]; /* ids that went out */
	unsigned int n_seen;
	bool probing, fail;
};

static struct sender the_sender;

static void written(struct sender *s, const struct umad_pkt *pkt)
{
	if (!cm_valid(pkt->mad))
		abort();
	/* What the kernel must never be given. */
	if (pkt->hdr.timeout_ms || pkt->hdr.retries || !pkt->hdr.grh_present ||
	    gid_is_zero(pkt->hdr.gid) || gid_is_multicast(pkt->hdr.gid))
		abort();
	s->seen[s->n_seen++ % SEEN] = cm_get32(pkt->mad, CM_OFF_LOCAL_ID);
}

bool sender_post(struct sender *s, unsigned int lane, const struct umad_pkt *pkt)
{
	(void)lane;
	written(s, pkt);
	return true;
}

int sender_probe(struct sender *s, const struct umad_pkt *pkt)
{
	if (s->probing)
		return -1;
	s->probing = true;
	written(s, pkt);
	return 0;
}

bool sender_probe_done(struct sender *s, unsigned int i, int *error)
{
	if (i || !s->probing)
		return false;
	s->probing = false;
	*error = s->fail ? 110 : 0;
	return true;
}

/* Index n of the table is ::ffff:10.0.0.n. */
static void make_gid(uint8_t *gid, unsigned int n)
{
	gid_parse("10.0.0.0", gid);
	gid[15] = (uint8_t)n;
}

int gidtable_index(const struct gidtable *t, const uint8_t gid[MUX_GID_SIZE])
{
	uint8_t want[MUX_GID_SIZE];

	(void)t;
	make_gid(want, gid[15]);
	return gid[15] < 64 && gid_equal(gid, want) ? gid[15] : -1;
}

const uint8_t *gidtable_gid(const struct gidtable *t, unsigned int index)
{
	static uint8_t gid[MUX_GID_SIZE];

	(void)t;
	make_gid(gid, index);
	return index < 64 ? gid : NULL;
}

/* The daemon around it ----------------------------------------------------------------------------- */

static struct mux *mux;
static int fds[CLIENTS];

static void start(void)
{
	static const char *const options[] = {
		"max_sessions_total=64",
		"max_clients=16",
		"max_sessions=20",
		"queue=4",
		"mad_rate=1000000",
		"source_rate=1000000",
		"probes=2",
		"registration_rate=1000000",
		NULL,
	};

	mux = fuzz_daemon(&the_sender, options);
}

static void open_client(unsigned int k)
{
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sv))
		abort();
	fds[k] = sv[0];
	if (!client_new(mux->ports[0], sv[1], "fuzz", NULL)) {
		close(sv[0]);
		fds[k] = -1;
	}
}

static void run(void)
{
	struct epoll_event evs[16];
	int n;

	for (unsigned int turn = 0; turn < 8; turn++) {
		n = epoll_wait(mux->epoll_fd, evs, 16, 0);
		if (n <= 0 && !mux->n_ready)
			return;
		for (int i = 0; i < n; i++) {
			uint64_t d = evs[i].data.u64;
			void *object = (void *)(uintptr_t)(d & ~(uint64_t)EPOLL_TAG_MASK);

			if ((d & EPOLL_TAG_MASK) == TAG_CLIENT)
				client_event(object, evs[i].events);
		}
		client_run_ready(mux);
		peers_notified(mux->ports[0]->peers);
	}
}

/* Frames from the mux: whole ones, and of the right kinds. */
static void read_client(unsigned int k)
{
	struct mux_frame f;
	ssize_t n;

	while (fds[k] >= 0 && (n = recv(fds[k], &f, sizeof(f), MSG_DONTWAIT)) > 0)
		if (n != sizeof(f) || f.msg_type > MUX_MSG_RESP || f.err_code > MUX_EAGAIN)
			abort();
}

static void tick(void)
{
	struct client *c, *next;
	uint32_t s;

	while (session_is(s = session_expired(mux->sessions, mux->now))) {
		struct session_rec *r = session_rec(mux->sessions, s);
		struct session_owner *o = route_owner(mux, r, &c);

		if (!o)
			abort();
		if (r->state == S_MOURNED)
			obituary_begin(mux, s);
		else
			session_delete(mux->sessions, s, o);
	}
	obituary_run(mux);
	for (c = mux->clients; c; c = next) {
		next = c->next;
		client_tick(c);
	}
	if (mux->ports[0]->parked.count)
		route_unpark(mux->ports[0]);
	queue_clear(mux, &mux->ports[0]->parked);
}

/* Steps -------------------------------------------------------------------------------------------- */

static uint32_t some_id(struct input *in)
{
	unsigned int b = u8(in);

	return b & 0x80 ? the_sender.seen[b % SEEN] : b;
}

/* A MAD that is one, mostly: header, ids, GIDs and addresses from few values, then bytes at will. */
static void make_mad(struct input *in, uint8_t *mad)
{
	unsigned int n;

	cm_build_header(mad, CM_REQ + u8(in) % CM_ATTR_COUNT, u8(in) & 3);
	cm_put32(mad, CM_OFF_LOCAL_ID, some_id(in));
	cm_put32(mad, CM_OFF_REMOTE_ID, some_id(in));
	if (cm_attr(mad) == CM_REQ) {
		make_gid(mad + CM_OFF_REQ_LOCAL_GID, u8(in) % 8);
		make_gid(mad + CM_OFF_REQ_REMOTE_GID, u8(in) % 80);
	} else if (cm_attr(mad) == CM_SIDR_REQ) {
		cm_put64(mad, CM_OFF_SERVICE_ID, 0x0000000001110000);
		mad[41] = 0x40;
		mad[56] = mad[72] = 10;
		mad[59] = (uint8_t)(u8(in) % 8);
		mad[75] = (uint8_t)(u8(in) % 80);
	} else if (cm_attr(mad) == CM_REJ) {
		mad[CM_OFF_REJ_REASON + 1] = (uint8_t)(u8(in) % 6);
	}
	for (n = u8(in) % 8; n; n--)
		mad[u8(in)] = u8(in);
}

static void client_frame(struct input *in, unsigned int k)
{
	struct mux_frame f = { .op_code = u8(in) % 6, .umad_len = MUX_MAD_SIZE };

	make_gid(f.sgid, u8(in) % 8);
	if (f.op_code == MUX_OP_HELLO) {
		struct mux_hello h = { .version = 1, .flags = u8(in) };

		memcpy(f.mad, &h, sizeof(h));
	} else if (f.op_code >= MUX_OP_MAD) {
		f.op_code = MUX_OP_MAD;
		make_mad(in, f.mad);
		make_gid(f.umad.gid, u8(in) % 80);
	}
	if (fds[k] >= 0 && send(fds[k], &f, sizeof(f), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return;
}

static void client_bytes(struct input *in, unsigned int k)
{
	size_t n = u8(in) * 4;

	if (n > in->left)
		n = in->left;
	if (fds[k] >= 0 && n && send(fds[k], in->p, n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		n = 0;
	in->p += n;
	in->left -= n;
}

static void from_fabric(struct input *in)
{
	struct umad_pkt pkt = { .hdr = { .length = sizeof(pkt) } };
	struct rx_info info = { .hairpin = false };

	pkt.hdr.grh_present = u8(in) % 16 != 0;
	pkt.hdr.gid_index = (uint8_t)(u8(in) % 8);
	make_gid(pkt.hdr.gid, u8(in) % 80);
	make_mad(in, pkt.mad);
	info.dgid = gidtable_gid(mux->ports[0]->gids, pkt.hdr.gid_index);
	route_rx(mux->ports[0], &pkt, &info);
}

static void step(struct input *in)
{
	unsigned int b = u8(in), k = (b >> 4) % CLIENTS;

	switch (b & 15) {
	case 0 ... 5:
		client_frame(in, k);
		break;
	case 6 ... 9:
		from_fabric(in);
		break;
	case 10:
		client_bytes(in, k);
		break;
	case 11:
		read_client(k);
		break;
	case 12:
		mux->now += u8(in) * 1000;
		tick();
		break;
	case 13:
		if (fds[k] >= 0)
			close(fds[k]);
		open_client(k);
		break;
	case 14:
		the_sender.fail = !the_sender.fail;
		break;
	case 15:
		mux->ports[0]->up = !mux->ports[0]->up;
		break;
	}
	run();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };

	if (!mux)
		start();
	memset(&the_sender, 0, sizeof(the_sender));
	mux->ports[0]->up = true;
	for (unsigned int k = 0; k < CLIENTS; k++)
		open_client(k);
	while (in.left)
		step(&in);
	/* All goes, and nothing is left. */
	mux->ports[0]->up = true;
	for (unsigned int k = 0; k < CLIENTS; k++) {
		read_client(k);
		if (fds[k] >= 0)
			close(fds[k]);
	}
	run();
	for (unsigned int i = 0; i < 300 && (mux->clients || session_count(mux->sessions)); i++) {
		mux->now += 40000;
		tick();
		run();
	}
	if (mux->clients || session_count(mux->sessions) || mux->n_gids || mux->mourning.count ||
	    mux->orphans.count)
		abort();
	return 0;
}
