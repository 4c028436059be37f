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
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/core/input.h"
#include "fuzz/mux/daemon.h"
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

struct sender {
	int unused;
};

static struct sender the_sender;

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

static void start(void)
{
	static const char *const options[] = { "max_sessions_total=64", NULL };

	mux = fuzz_daemon(&the_sender, options);
	port = mux->ports[0];
	port->infiniband = true;
	port->paths = paths_new(port);
}

static void send_one(struct input *in)
{
	struct umad_pkt pkt = { .hdr = { .length = sizeof(pkt), .grh_present = 1 } };
	uint8_t src[MUX_GID_SIZE];

	make_gid(src, u8(in) & 1);
	make_gid(pkt.hdr.gid, u8(in));
	cm_build_header(pkt.mad, CM_REQ, 1);
	paths_send(port->paths, src, &pkt, 16);
}

/* An answer to a query, right but for what the input changes. */
static void answer(struct input *in)
{
	struct umad_pkt pkt = queries[u8(in) % QUERIES];
	size_t len = sizeof(pkt);
	unsigned int n = pkt.mad[OFF_DGID + 15] % DESTINATIONS;
	uint16_t lid = (uint16_t)(u8(in) << 8 | u8(in));

	pkt.hdr.status = u8(in) % 8 == 1 ? ETIMEDOUT : 0;
	pkt.mad[OFF_METHOD] = METHOD_RESP;
	cm_put16(pkt.mad, OFF_DLID, lid);
	for (unsigned int changes = u8(in) % 4; changes; changes--) {
		unsigned int at = u8(in);

		/* Which destination it is for, and the LID, are what the check knows. */
		if ((at < OFF_DGID || at >= OFF_DGID + MUX_GID_SIZE) && at / 2 != OFF_DLID / 2)
			pkt.mad[at] = u8(in);
	}
	if (u8(in) % 8 == 1)
		len = u8(in) * 2;
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
		unsigned int b = u8(&in);

		switch (b % 16) {
		case 0 ... 6:
			send_one(&in);
			break;
		case 7 ... 12:
			answer(&in);
			break;
		case 13:
			mux->now += u8(&in) * 500;
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
