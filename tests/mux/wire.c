// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tests/mux/wire.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MS 20000

#define DIE(...)                                         \
	do {                                             \
		fprintf(stderr, "client: " __VA_ARGS__); \
		fprintf(stderr, "\n");                   \
		abort();                                 \
	} while (0)

uint32_t be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

uint64_t be64(const uint8_t *p)
{
	return (uint64_t)be32(p) << 32 | be32(p + 4);
}

void put_be16(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

void put_be24(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 16);
	put_be16(p + 1, v);
}

void put_be32(uint8_t *p, uint32_t v)
{
	put_be16(p, v >> 16);
	put_be16(p + 2, v);
}

void put_be64(uint8_t *p, uint64_t v)
{
	put_be32(p, (uint32_t)(v >> 32));
	put_be32(p + 4, (uint32_t)v);
}

uint32_t host32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, 4);
	return v;
}

void put_host32(uint8_t *p, uint32_t v)
{
	memcpy(p, &v, 4);
}

void gid4(uint8_t *gid, uint32_t addr)
{
	memset(gid, 0, 16);
	gid[10] = gid[11] = 0xff;
	put_be32(gid + 12, addr);
}

void gid6(uint8_t *gid, uint64_t prefix, uint64_t iid)
{
	put_be64(gid, prefix);
	put_be64(gid + 8, iid);
}

void mad_header(uint8_t *mad, unsigned int attr, uint64_t tid)
{
	memset(mad, 0, MAD);
	mad[0] = 1;
	mad[1] = 7;
	mad[2] = 2;
	mad[3] = 3;
	put_be64(mad + M_TID, tid);
	put_be16(mad + M_ATTR, attr);
}

void mad_req(uint8_t *mad, uint32_t local, uint64_t tid, const uint8_t *src, const uint8_t *dst,
	     uint64_t ca_guid, uint32_t qpn, uint64_t service)
{
	bool ip4 = src[10] == 0xff && src[11] == 0xff;

	mad_header(mad, REQ, tid);
	put_be32(mad + 24, local);
	put_be64(mad + 32, service);
	put_be64(mad + 40, ca_guid);
	put_be24(mad + 56, qpn);
	memcpy(mad + 80, src, 16);
	memcpy(mad + 96, dst, 16);
	/* rdma_cm's own header */
	mad[165] = ip4 ? 0x40 : 0x60;
	put_be16(mad + 166, 40000);
	if (ip4) {
		memcpy(mad + 180, src + 12, 4);
		memcpy(mad + 196, dst + 12, 4);
	} else {
		memcpy(mad + 168, src, 16);
		memcpy(mad + 184, dst, 16);
	}
	for (unsigned int i = 200; i < MAD; i++)
		mad[i] = (uint8_t)i;
}

void mad_pair(uint8_t *mad, unsigned int attr, uint32_t local, uint32_t remote, uint64_t tid)
{
	mad_header(mad, attr, tid);
	put_be32(mad + 24, local);
	put_be32(mad + 28, remote);
	for (unsigned int i = 128; i < MAD; i++)
		mad[i] = (uint8_t)(i * 3);
}

void mad_rep(uint8_t *mad, uint32_t local, uint32_t remote, uint64_t tid, uint64_t ca_guid,
	     uint32_t qpn)
{
	mad_pair(mad, REP, local, remote, tid);
	put_be24(mad + 36, qpn);
	put_be64(mad + 52, ca_guid);
}

void mad_rej(uint8_t *mad, uint32_t local, uint32_t remote, uint64_t tid, unsigned int message,
	     unsigned int reason)
{
	mad_pair(mad, REJ, local, remote, tid);
	mad[32] = (uint8_t)(message << 6);
	put_be16(mad + 34, reason);
}

void mad_sidr_req(uint8_t *mad, uint32_t id, uint64_t tid, uint64_t service)
{
	mad_header(mad, SIDR_REQ, tid);
	put_be32(mad + 24, id);
	put_be16(mad + 28, 0xffff);
	put_be64(mad + 32, service);
}

int wire_connect(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		DIE("socket: %s", strerror(errno));
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr))) {
		close(fd);
		return -1;
	}
	return fd;
}

int wire_connect_wait(const char *path, unsigned int timeout_ms)
{
	for (unsigned int waited = 0;; waited += 5) {
		int fd = wire_connect(path);

		if (fd >= 0)
			return fd;
		if (waited >= timeout_ms)
			DIE("cannot connect to %s: %s", path, strerror(errno));
		poll(NULL, 0, 5);
	}
}

void wire_send(int fd, const void *data, size_t len)
{
	const char *p = data;
	ssize_t n;

	for (; len; p += n, len -= (size_t)n) {
		n = send(fd, p, len, MSG_NOSIGNAL);
		if (n < 0)
			DIE("send: %s", strerror(errno));
	}
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

bool wire_recv(int fd, uint8_t *frame, unsigned int timeout_ms, bool *closed)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int64_t until = now_ms() + timeout_ms, left = timeout_ms;
	size_t got = 0;
	ssize_t n;

	if (closed)
		*closed = false;
	do {
		if (poll(&p, 1, (int)left) > 0) {
			n = recv(fd, frame + got, FRAME - got, 0);
			if (n <= 0) {
				if (closed)
					*closed = true;
				if (got)
					DIE("stream ends inside a frame, after %zu bytes", got);
				return false;
			}
			/* QEMU takes what one recv() gives for a frame. */
			if (got == 0 && n != FRAME)
				DIE("a frame came in pieces: %zd bytes first", n);
			got += (size_t)n;
			if (got == FRAME)
				return true;
		}
		left = until - now_ms();
	} while (left > 0);
	if (got)
		DIE("a frame stopped after %zu bytes", got);
	return false;
}

bool wire_closes(int fd, unsigned int timeout_ms)
{
	int64_t until = now_ms() + timeout_ms, left = timeout_ms;
	uint8_t frame[FRAME];
	bool closed = false;

	for (; left > 0 && !closed; left = until - now_ms())
		wire_recv(fd, frame, (unsigned int)left, &closed);
	return closed;
}

void frame_simple(uint8_t *frame, unsigned int op, const uint8_t *sgid)
{
	memset(frame, 0, FRAME);
	put_host32(frame + F_OP, op);
	memcpy(frame + F_SGID, sgid, 16);
}

void frame_mad(uint8_t *frame, const uint8_t *sgid, const uint8_t *mad)
{
	frame_simple(frame, OP_MAD, sgid);
	put_host32(frame + F_LEN, MAD);
	put_be32(frame + F_QPN, 1);
	frame[F_GRH] = 1;
	frame[F_INDEX] = 1;
	frame[F_HOP] = 0xff;
	/* QEMU puts its own GID here, once more. */
	memcpy(frame + F_GID, sgid, 16);
	memcpy(frame + F_MAD, mad, MAD);
}

unsigned int wire_call(int fd, const uint8_t *frame, uint8_t *answer)
{
	uint8_t buf[FRAME];

	if (!answer)
		answer = buf;
	wire_send(fd, frame, FRAME);
	if (!wire_recv(fd, answer, ANSWER_MS, NULL))
		DIE("no answer to operation %u", host32(frame + F_OP));
	if (host32(answer + F_TYPE) != T_RESP)
		DIE("a MAD came in place of an answer to operation %u", host32(frame + F_OP));
	return host32(answer + F_ERR);
}

unsigned int wire_reg(int fd, const uint8_t *gid)
{
	uint8_t frame[FRAME];

	frame_simple(frame, OP_REG, gid);
	return wire_call(fd, frame, NULL);
}

unsigned int wire_unreg(int fd, const uint8_t *gid)
{
	uint8_t frame[FRAME];

	frame_simple(frame, OP_UNREG, gid);
	return wire_call(fd, frame, NULL);
}

unsigned int wire_mad(int fd, const uint8_t *sgid, const uint8_t *mad)
{
	uint8_t frame[FRAME];

	frame_mad(frame, sgid, mad);
	return wire_call(fd, frame, NULL);
}
