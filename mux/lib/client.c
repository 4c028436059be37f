// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "mux/lib/rdmacm-mux.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "mux/protocol.h"

#define EXPORT	   __attribute__((visibility("default")))
#define MAX_WINDOW 64
#define KEPT_MADS  256 /* as many as the mux queues for a client */
#define BUFFERED   32
#define GSI_QPN	   1

struct posted {
	uint64_t cookie;
	bool done;
	int result;
};

struct rmux {
	int fd;
	bool broken;
	struct rmux_info info;
	/* Bytes read ahead. */
	size_t got, used;
	uint8_t buf[BUFFERED * MUX_FRAME_SIZE];
	/* Requests not answered, and answers not fetched. */
	uint32_t post_head, post_answered, post_tail;
	struct posted posted[MAX_WINDOW];
	/* Answer of the blocking request, which is the only one outstanding then. */
	bool waiting, answered;
	struct mux_frame answer;
	uint32_t mad_head, mad_tail;
	uint64_t lost;
	struct rmux_mad mads[KEPT_MADS];
};

EXPORT int rmux_path(char buf[RMUX_PATH_MAX], const char *prefix, const char *device,
		     unsigned int port)
{
	int n = snprintf(buf, RMUX_PATH_MAX, "%s-%s-%u", prefix ? prefix : MUX_DEFAULT_PREFIX,
			 device, port);

	return n < 0 || n >= RMUX_PATH_MAX ? ENAMETOOLONG : 0;
}

static int to_errno(uint32_t err)
{
	switch (err) {
	case MUX_OK:
		return 0;
	case MUX_EINVAL:
		return EINVAL;
	case MUX_EEXIST:
		return EEXIST;
	case MUX_EACCES:
		return EACCES;
	case MUX_ENOTFOUND:
		return ENOENT;
	case MUX_EAGAIN:
		return EAGAIN;
	default:
		return EIO;
	}
}

static void keep_mad(struct rmux *m, const struct mux_frame *f)
{
	struct rmux_mad *in = &m->mads[m->mad_tail % KEPT_MADS];

	if (m->mad_tail - m->mad_head == KEPT_MADS) {
		m->lost++;
		return;
	}
	memcpy(in->destination, f->sgid, RMUX_GID_SIZE);
	memcpy(in->source.gid, f->umad.gid, RMUX_GID_SIZE);
	in->source.lid = ntohs(f->umad.lid);
	in->source.sl = f->umad.sl;
	in->hop_limit = f->umad.hop_limit;
	in->traffic_class = f->umad.traffic_class;
	in->length = f->umad_len < 0 || f->umad_len > MUX_MAD_SIZE ? MUX_MAD_SIZE :
								     (uint32_t)f->umad_len;
	memcpy(in->mad, f->mad, RMUX_MAD_SIZE);
	m->mad_tail++;
}

static void take_frame(struct rmux *m, const struct mux_frame *f)
{
	struct posted *p;

	if (f->msg_type == MUX_MSG_REQ) {
		if (f->op_code == MUX_OP_MAD)
			keep_mad(m, f);
		return;
	}
	/* Answers come in the order of requests; a blocking one is made only when no other is open. */
	if (m->post_answered != m->post_tail) {
		p = &m->posted[m->post_answered++ % MAX_WINDOW];
		p->done = true;
		p->result = to_errno(f->err_code);
		return;
	}
	if (!m->waiting)
		return;
	m->answer = *f;
	m->answered = true;
}

/* Reads what is there. 0, EAGAIN or ECONNRESET. */
static int fill(struct rmux *m, bool block)
{
	struct mux_frame f;
	ssize_t n;

	if (m->broken)
		return ECONNRESET;
	do
		n = recv(m->fd, m->buf + m->got, sizeof(m->buf) - m->got, block ? 0 : MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return EAGAIN;
	if (n <= 0) {
		m->broken = true;
		return ECONNRESET;
	}
	m->got += (size_t)n;
	for (m->used = 0; m->got - m->used >= MUX_FRAME_SIZE; m->used += MUX_FRAME_SIZE) {
		memcpy(&f, m->buf + m->used, sizeof(f));
		take_frame(m, &f);
	}
	memmove(m->buf, m->buf + m->used, m->got - m->used);
	m->got -= m->used;
	return 0;
}

static int send_all(struct rmux *m, const struct mux_frame *f)
{
	const char *p = (const char *)f;
	size_t left = sizeof(*f);
	ssize_t n;

	while (left) {
		n = send(m->fd, p, left, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			m->broken = true;
			return ECONNRESET;
		}
		p += n;
		left -= (size_t)n;
	}
	return 0;
}

static int call(struct rmux *m, const struct mux_frame *f)
{
	int err;

	if (m->broken)
		return ECONNRESET;
	while (m->post_answered != m->post_tail) {
		err = fill(m, true);
		if (err)
			return err;
	}
	m->waiting = true;
	m->answered = false;
	err = send_all(m, f);
	while (!err && !m->answered)
		err = fill(m, true);
	m->waiting = false;
	return err ? err : to_errno(m->answer.err_code);
}

static int hello(struct rmux *m, unsigned int flags)
{
	struct mux_hello h = { .version = MUX_PROTOCOL_VERSION };
	struct mux_frame f = { .op_code = MUX_OP_HELLO, .umad_len = sizeof(h) };
	int err;

	if (flags & RMUX_REREGISTER_OK)
		h.flags |= MUX_HELLO_REREG_OK;
	if (flags & RMUX_OWN_DESTINATION)
		h.flags |= MUX_HELLO_DEST;
	memcpy(f.mad, &h, sizeof(h));
	err = call(m, &f);
	if (err == EINVAL)
		return 0; /* an old mux */
	if (err)
		return err;
	memcpy(&h, m->answer.mad, sizeof(h));
	m->info = (struct rmux_info){
		.version = h.version,
		.window = h.window < MAX_WINDOW ? h.window : MAX_WINDOW,
		.max_gids = h.max_gids,
		.max_sessions = h.max_sessions,
	};
	return 0;
}

/* Waits while the mux's queue of connections is full; a signal may come meanwhile. */
static int connect_to(int fd, const struct sockaddr_un *addr)
{
	int ret;

	do
		ret = connect(fd, (const struct sockaddr *)addr, sizeof(*addr));
	while (ret < 0 && errno == EINTR);
	return ret < 0 ? errno : 0;
}

EXPORT struct rmux *rmux_open(const char *path, unsigned int flags)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct rmux *m;
	int err;

	if (strlen(path) >= sizeof(addr.sun_path)) {
		errno = ENAMETOOLONG;
		return NULL;
	}
	m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	strcpy(addr.sun_path, path);
	m->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	err = m->fd < 0 ? errno : connect_to(m->fd, &addr);
	if (!err)
		err = hello(m, flags);
	if (!err)
		return m;
	if (m->fd >= 0)
		close(m->fd);
	free(m);
	errno = err;
	return NULL;
}

EXPORT void rmux_close(struct rmux *m)
{
	if (!m)
		return;
	close(m->fd);
	free(m);
}

EXPORT int rmux_fd(const struct rmux *m)
{
	return m->fd;
}

EXPORT int rmux_pending(const struct rmux *m)
{
	return m->mad_head != m->mad_tail || m->post_head != m->post_answered;
}

EXPORT const struct rmux_info *rmux_info(const struct rmux *m)
{
	return &m->info;
}

static int simple(struct rmux *m, enum mux_op op, const uint8_t *gid)
{
	struct mux_frame f = { .op_code = op };

	if (gid)
		memcpy(f.sgid, gid, RMUX_GID_SIZE);
	return call(m, &f);
}

EXPORT int rmux_register(struct rmux *m, const uint8_t gid[RMUX_GID_SIZE])
{
	return simple(m, MUX_OP_REG, gid);
}

EXPORT int rmux_unregister(struct rmux *m, const uint8_t gid[RMUX_GID_SIZE])
{
	return simple(m, MUX_OP_UNREG, gid);
}

EXPORT int rmux_query(struct rmux *m, struct rmux_status *status)
{
	struct mux_query q;
	int err = simple(m, MUX_OP_QUERY, NULL);

	if (err)
		return err;
	memcpy(&q, m->answer.mad, sizeof(q));
	*status = (struct rmux_status){
		.port_up = (int)q.port_up,
		.gids = q.gids,
		.sessions = q.sessions,
		.sent = q.tx_mads,
		.received = q.rx_mads,
		.refused = q.tx_refused,
		.dropped = q.rx_dropped,
	};
	return 0;
}

static int make_mad(struct mux_frame *f, const uint8_t *gid, const struct rmux_address *to,
		    const void *mad, size_t length)
{
	if (length < MUX_MIN_MAD_SIZE || length > MUX_MAD_SIZE)
		return EINVAL;
	*f = (struct mux_frame){ .op_code = MUX_OP_MAD, .umad_len = (int32_t)length };
	memcpy(f->sgid, gid, RMUX_GID_SIZE);
	f->umad.qpn = htonl(GSI_QPN);
	f->umad.grh_present = 1;
	if (to) {
		memcpy(f->umad.gid, to->gid, RMUX_GID_SIZE);
		f->umad.lid = htons(to->lid);
		f->umad.sl = to->sl;
	}
	memcpy(f->mad, mad, length);
	return 0;
}

EXPORT int rmux_send(struct rmux *m, const uint8_t gid[RMUX_GID_SIZE],
		     const struct rmux_address *to, const void *mad, size_t length)
{
	struct mux_frame f;
	int err = make_mad(&f, gid, to, mad, length);

	return err ? err : call(m, &f);
}

EXPORT int rmux_post(struct rmux *m, const uint8_t gid[RMUX_GID_SIZE],
		     const struct rmux_address *to, const void *mad, size_t length, uint64_t cookie)
{
	struct mux_frame f;
	ssize_t n;
	int err;

	if (m->broken)
		return ECONNRESET;
	if (!m->info.version)
		return EOPNOTSUPP;
	if (m->post_tail - m->post_head >= m->info.window)
		return EAGAIN;
	err = make_mad(&f, gid, to, mad, length);
	if (err)
		return err;
	/* A unix socket takes a frame whole or not at all. */
	do
		n = send(m->fd, &f, sizeof(f), MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return EAGAIN;
	if (n != sizeof(f)) {
		m->broken = true;
		return ECONNRESET;
	}
	m->posted[m->post_tail++ % MAX_WINDOW] = (struct posted){ .cookie = cookie };
	return 0;
}

EXPORT int rmux_result(struct rmux *m, uint64_t *cookie, int *result)
{
	struct posted *p;
	int err;

	if (m->post_head == m->post_answered) {
		err = fill(m, false);
		if (err)
			return err;
		if (m->post_head == m->post_answered)
			return EAGAIN;
	}
	p = &m->posted[m->post_head++ % MAX_WINDOW];
	*cookie = p->cookie;
	*result = p->result;
	return 0;
}

EXPORT int rmux_receive(struct rmux *m, struct rmux_mad *in)
{
	int err;

	if (m->mad_head == m->mad_tail) {
		err = fill(m, false);
		if (err)
			return err;
		if (m->mad_head == m->mad_tail)
			return EAGAIN;
	}
	*in = m->mads[m->mad_head++ % KEPT_MADS];
	return 0;
}

EXPORT uint64_t rmux_lost(const struct rmux *m)
{
	return m->lost;
}
