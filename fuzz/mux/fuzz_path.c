// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A subnet administrator that answers anything: path queries, what waits for them, and time that passes. What is sent must go to a
 * LID that was given for just this destination.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "mux/log.h"
#include "mux/mux.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define DESTINATIONS 16
#define QUERIES	     32
#define OFF_METHOD   3
#define OFF_STATUS   4
#define OFF_ATTR     16
#define OFF_DGID     64
#define OFF_DLID     96
#define METHOD_RESP  0x81

static struct mux *mux;
static struct mux_port *port;
static int sa_fd = -1; /* the administrator's end */
static bool has_manager, fails;
static struct umad_pkt queries[QUERIES]; /* the last ones asked */
static unsigned int n_queries;
static uint8_t told[DESTINATIONS][65536 / 8]; /* LIDs, a bit each */

static void make_gid(uint8_t *gid, unsigned int n)
{
	memset(gid, 0, MUX_GID_SIZE);
	gid[0] = 0xfe;
	gid[1] = 0x80;
	gid[15] = (uint8_t)(n % DESTINATIONS);
}

/* In place of the files, the threads and the GID table ------------------------------------------------ */

int umad_file_open(struct umad_file *f, const char *device, unsigned int number, bool receive,
		   char why[UMAD_WHY_MAX])
{
	(void)f;
	(void)device;
	(void)number;
	(void)receive;
	(void)why;
	return ENODEV;
}

int umad_file_open_asking(struct umad_file *f, const char *device, unsigned int number,
			  unsigned int class, unsigned int version, unsigned int rmpp_version,
			  char why[UMAD_WHY_MAX])
{
	int sv[2];

	(void)device;
	(void)number;
	(void)class;
	(void)version;
	(void)rmpp_version;
	(void)why;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sv))
		abort();
	sa_fd = sv[0];
	*f = (struct umad_file){ .fd = sv[1] };
	return 0;
}

void umad_file_close(struct umad_file *f)
{
	if (f->fd >= 0) {
		close(f->fd);
		close(sa_fd);
	}
	f->fd = sa_fd = -1;
}

unsigned int umad_resolve_port(const char *device, unsigned int number)
{
	(void)device;
	return number;
}

bool umad_is_infiniband(const char *device, unsigned int number)
{
	(void)device;
	(void)number;
	return true;
}

bool umad_subnet_manager(const char *device, unsigned int number, uint16_t *lid, uint8_t *sl)
{
	(void)device;
	(void)number;
	*lid = 1;
	*sl = 0;
	return has_manager;
}

ssize_t umad_read_any(int fd, struct umad_pkt *pkt)
{
	ssize_t n = recv(fd, pkt, sizeof(*pkt), MSG_DONTWAIT | MSG_TRUNC);

	return n < 0 ? 0 : n ? n : -1;
}

enum umad_read_result umad_read(int fd, struct umad_pkt *pkt)
{
	(void)fd;
	(void)pkt;
	return UMAD_READ_NONE;
}

int umad_write(int fd, const struct umad_pkt *pkt)
{
	(void)fd;
	if (fails)
		return EIO;
	queries[n_queries++ % QUERIES] = *pkt;
	return 0;
}

static struct sender {
	int unused;
} the_sender;

struct sender *sender_new(const char *device, unsigned int number, unsigned int lanes,
			  unsigned int probes, int notify_fd, char why[UMAD_WHY_MAX])
{
	(void)device;
	(void)number;
	(void)lanes;
	(void)probes;
	(void)notify_fd;
	(void)why;
	return &the_sender;
}

void sender_free(struct sender *s)
{
	(void)s;
}

bool sender_post(struct sender *s, unsigned int lane, const struct umad_pkt *pkt)
{
	uint16_t lid = be16toh(pkt->hdr.lid);

	(void)s;
	(void)lane;
	if (!path_is_lid(pkt->hdr.lid) || pkt->hdr.sl > 15)
		abort();
	if (!(told[pkt->hdr.gid[15] % DESTINATIONS][lid / 8] & 1 << lid % 8))
		abort();
	return true;
}

void sender_flush(struct sender *s)
{
	(void)s;
}

int sender_probe(struct sender *s, const struct umad_pkt *pkt)
{
	(void)s;
	(void)pkt;
	return -1;
}

bool sender_probe_done(struct sender *s, unsigned int i, int *error)
{
	(void)s;
	(void)i;
	(void)error;
	return false;
}

bool sender_failure(struct sender *s, struct sender_failure *f)
{
	(void)s;
	(void)f;
	return false;
}

void sender_stats(const struct sender *s, struct sender_stats *st)
{
	(void)s;
	*st = (struct sender_stats){ 0 };
}

struct gidtable *gidtable_new(const char *device, unsigned int number, bool prefer_v2,
			      int notify_fd)
{
	static uint8_t table;

	(void)device;
	(void)number;
	(void)prefer_v2;
	(void)notify_fd;
	return (struct gidtable *)(void *)&table;
}

void gidtable_free(struct gidtable *t)
{
	(void)t;
}

bool gidtable_update(struct gidtable *t)
{
	(void)t;
	return false;
}

void gidtable_refresh(struct gidtable *t)
{
	(void)t;
}

int gidtable_index(const struct gidtable *t, const uint8_t gid[MUX_GID_SIZE])
{
	(void)t;
	(void)gid;
	return 1;
}

const uint8_t *gidtable_gid(const struct gidtable *t, unsigned int index)
{
	(void)t;
	(void)index;
	return NULL;
}

/* Steps -------------------------------------------------------------------------------------------- */

struct input {
	const uint8_t *p;
	size_t left;
};

static unsigned int byte(struct input *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->p++;
}

static void start(void)
{
	static const char *args[] = { "mux", "-d", "fuzz0", "-o", "max_sessions_total=64" };
	uint32_t durations[T_COUNT];
	int status;

	mux = calloc(1, sizeof(*mux));
	mux->cfg =
		config_from_args(sizeof(args) / sizeof(args[0]), (char **)(uintptr_t)args, &status);
	log_set_level(LOG_EMERG);
	mux->epoll_fd = epoll_create1(0);
	mux->notify_fd = eventfd(0, EFD_NONBLOCK);
	mux->timer_fd = timerfd_create(CLOCK_MONOTONIC, 0);
	mux->ready_tail = &mux->ready;
	mux->state = state_open(mux, NULL);
	mux_durations(mux->cfg, durations);
	mux->sessions = session_table_new(state_session_head(mux->state),
					  state_session_recs(mux->state), mux->cfg->max_sessions,
					  false, durations);
	port = port_new(mux, &mux->cfg->ports[0]);
	mux->ports[0] = port;
	mux->n_ports = 1;
	port->tx = &the_sender;
	port->infiniband = true;
	port->up = true;
	port->paths = paths_new(port);
}

static void send_one(struct input *in)
{
	struct umad_pkt pkt = { .hdr = { .length = sizeof(pkt), .grh_present = 1 } };
	uint8_t src[MUX_GID_SIZE];

	make_gid(src, byte(in) & 1);
	make_gid(pkt.hdr.gid, byte(in));
	cm_build_header(pkt.mad, CM_REQ, 1);
	paths_send(port->paths, src, &pkt, 16);
}

/* An answer to a query, right but for what the input changes. */
static void answer(struct input *in)
{
	struct umad_pkt pkt = queries[byte(in) % QUERIES];
	size_t len = sizeof(pkt);
	unsigned int n = pkt.mad[OFF_DGID + 15] % DESTINATIONS;
	uint16_t lid = (uint16_t)(byte(in) << 8 | byte(in));

	pkt.hdr.status = byte(in) % 8 == 1 ? ETIMEDOUT : 0;
	pkt.mad[OFF_METHOD] = METHOD_RESP;
	cm_put16(pkt.mad, OFF_DLID, lid);
	for (unsigned int changes = byte(in) % 4; changes; changes--) {
		unsigned int at = byte(in);

		/* Which destination it is for, and the LID, are what the check knows. */
		if ((at < OFF_DGID || at >= OFF_DGID + MUX_GID_SIZE) && at / 2 != OFF_DLID / 2)
			pkt.mad[at] = (uint8_t)byte(in);
	}
	if (byte(in) % 8 == 1)
		len = byte(in) * 2;
	if (len > sizeof(pkt))
		len = sizeof(pkt);
	told[n][lid / 8] |= (uint8_t)(1 << lid % 8);
	if (sa_fd >= 0 && len && send(sa_fd, &pkt, len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return;
	paths_receive(port->paths);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	char why[UMAD_WHY_MAX];

	if (!mux)
		start();
	mux->now = 1000;
	has_manager = true;
	fails = false;
	n_queries = 0;
	memset(queries, 0, sizeof(queries));
	memset(told, 0, sizeof(told));
	if (paths_up(port->paths, why))
		abort();
	while (in.left) {
		unsigned int b = byte(&in);

		switch (b % 16) {
		case 0 ... 6:
			send_one(&in);
			break;
		case 7 ... 12:
			answer(&in);
			break;
		case 13:
			mux->now += byte(&in) * 500;
			break;
		case 14:
			has_manager = !(b & 0x40);
			fails = b & 0x80;
			break;
		case 15:
			paths_down(port->paths);
			memset(told, 0, sizeof(told));
			if (paths_up(port->paths, why))
				abort();
			break;
		}
	}
	paths_down(port->paths);
	/* Nothing waits any more, and buffers are used again. */
	if (mux->nodes > 4096)
		abort();
	return 0;
}
