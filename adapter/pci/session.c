// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Framing and replies; what the messages mean is in request.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "adapter/pci/func.h"
#include "adapter/pci/session_internal.h"

enum {
	MESSAGES_IN_A_ROW = 64,
	OUT_MAX = 4 << 20, /* bytes that wait for a client which does not read */
};

static void drop_fds(struct pci_session *s)
{
	while (s->nfds)
		close(s->fds[--s->nfds]);
}

/* ------------------------------------------------------------------ out */

static void set_events(struct pci_session *s)
{
	pci_fd_mod(s->func->loop, &s->pfd, s->out_len ? EPOLLOUT : EPOLLIN);
}

/* sendmsg(), and @fd with it unless it is negative. */
static ssize_t send_with_fd(int sock, struct iovec *iov, size_t iovlen, int fd)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = iovlen };
	struct cmsghdr *c;
	ssize_t n;

	if (fd >= 0) {
		msg.msg_control = control.buf;
		msg.msg_controllen = sizeof(control.buf);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	do {
		n = sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	return n;
}

static void drop_out_fd(struct pci_session *s)
{
	if (s->out_fd >= 0)
		close(s->out_fd);
	s->out_fd = -1;
}

static void flush(struct pci_session *s)
{
	struct iovec iov;
	ssize_t n;

	while (s->out_len) {
		iov = (struct iovec){ s->out + s->out_off, s->out_len };
		n = send_with_fd(s->pfd.fd, &iov, 1, s->out_fd);
		if (n < 0) {
			if (errno != EAGAIN)
				s->broken = true;
			return;
		}
		drop_out_fd(s);
		s->out_off += (size_t)n;
		s->out_len -= (size_t)n;
	}
	free(s->out);
	s->out = NULL;
	s->out_off = 0;
}

/* Behind what waits already. */
static void keep_rest(struct pci_session *s, const struct iovec *iov, int n, size_t sent)
{
	size_t total = 0, piece;
	uint8_t *out;
	int i;

	for (i = 0; i < n; i++)
		total += iov[i].iov_len;
	out = s->out_len + total - sent > OUT_MAX ? NULL : malloc(s->out_len + total - sent);
	if (!out) {
		s->broken = true;
		return;
	}
	if (s->out_len)
		memcpy(out, s->out + s->out_off, s->out_len);
	free(s->out);
	s->out = out;
	s->out_off = 0;
	for (i = 0; i < n; i++) {
		piece = iov[i].iov_len;
		if (sent >= piece) {
			sent -= piece;
			continue;
		}
		memcpy(s->out + s->out_len, (const uint8_t *)iov[i].iov_base + sent, piece - sent);
		s->out_len += piece - sent;
		sent = 0;
	}
}

static void send_message(struct pci_session *s, struct vfu_hdr *hdr, const void *a, size_t a_len,
			 const void *b, size_t b_len, int fd)
{
	struct iovec iov[3] = {
		{ .iov_base = hdr, .iov_len = sizeof(*hdr) },
		{ .iov_base = (void *)(uintptr_t)a, .iov_len = a_len },
		{ .iov_base = (void *)(uintptr_t)b, .iov_len = b_len },
	};
	ssize_t n = 0;

	hdr->size = (uint32_t)(sizeof(*hdr) + a_len + b_len);
	if (!s->out_len) {
		n = send_with_fd(s->pfd.fd, iov, 3, fd);
		if (n < 0 && errno != EAGAIN) {
			s->broken = true;
			return;
		}
		if (n < 0) {
			n = 0;
			if (fd >= 0) {
				s->out_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
				s->broken |= s->out_fd < 0;
			}
		}
	}
	if ((size_t)n < hdr->size)
		keep_rest(s, iov, 3, (size_t)n);
}

static void send_reply(struct pci_session *s, struct vfu_hdr *hdr, const void *a, size_t a_len,
		       const void *b, size_t b_len, int fd)
{
	if (s->hdr.flags & VFU_NO_REPLY)
		return;
	hdr->id = s->hdr.id;
	hdr->command = s->hdr.command;
	send_message(s, hdr, a, a_len, b, b_len, fd);
}

bool pci_session_request(struct pci_session *s, uint16_t id, uint16_t command, const void *a,
			 size_t a_len, const void *b, size_t b_len)
{
	struct vfu_hdr hdr = { .id = id, .command = command, .flags = VFU_TYPE_CMD };

	if (s->broken)
		return false;
	send_message(s, &hdr, a, a_len, b, b_len, -1);
	if (s->out_len)
		set_events(s);
	return !s->broken;
}

void pci_session_reply(struct pci_session *s, const void *a, size_t a_len, const void *b,
		       size_t b_len)
{
	pci_session_reply_fd(s, a, a_len, b, b_len, -1);
}

void pci_session_reply_fd(struct pci_session *s, const void *a, size_t a_len, const void *b,
			  size_t b_len, int fd)
{
	struct vfu_hdr hdr = { .flags = VFU_TYPE_REPLY };

	send_reply(s, &hdr, a, a_len, b, b_len, fd);
}

static void reply_error(struct pci_session *s, int err)
{
	struct vfu_hdr hdr = { .flags = VFU_TYPE_REPLY | VFU_ERROR, .error = (uint32_t)err };

	send_reply(s, &hdr, NULL, 0, NULL, 0, -1);
}

/* ------------------------------------------------------------------ in */

/* Descriptors come with the first bytes of a message.  False: more than anybody may send. */
static bool take_fds(struct pci_session *s, struct msghdr *msg)
{
	struct cmsghdr *c;
	uint32_t i, n;
	int fd;

	for (c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (uint32_t)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		for (i = 0; i < n; i++) {
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (s->nfds < VFU_MAX_FDS)
				s->fds[s->nfds++] = fd;
			else
				close(fd);
		}
	}
	return !(msg->msg_flags & MSG_CTRUNC);
}

/* 1: something came; 0: nothing now; -1: the end. */
static int receive(struct pci_session *s, void *to, size_t len, bool first)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(VFU_MAX_FDS * sizeof(int))];
	} control;
	struct iovec iov = { .iov_base = to, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (first) {
		msg.msg_control = control.buf;
		msg.msg_controllen = sizeof(control.buf);
	}
	do {
		n = recvmsg(s->pfd.fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? 0 : -1;
	if (!n)
		return -1;
	if (first && !take_fds(s, &msg)) {
		pci_func_complain(s->func, "client: more than %d descriptors in a message",
				  VFU_MAX_FDS);
		return -1;
	}
	s->have += (size_t)n;
	return 1;
}

/* Of a question that the server may have asked. */
static bool is_answer(const struct pci_session *s)
{
	return (s->hdr.flags & VFU_TYPE_MASK) == VFU_TYPE_REPLY &&
	       (s->func->far || s->func->stale_answers) &&
	       (s->hdr.command == VFU_DMA_READ || s->hdr.command == VFU_DMA_WRITE);
}

static bool header_ok(struct pci_session *s)
{
	const struct vfu_hdr *hdr = &s->hdr;
	size_t body;

	if (hdr->size < sizeof(*hdr) || hdr->size > VFU_MSG_MAX) {
		pci_func_complain(s->func, "client: message of %u bytes", hdr->size);
		return false;
	}
	if ((hdr->flags & VFU_TYPE_MASK) != VFU_TYPE_CMD && !is_answer(s)) {
		pci_func_complain(s->func, "client: message of type %u that is no command",
				  hdr->flags & VFU_TYPE_MASK);
		return false;
	}
	body = hdr->size - sizeof(*hdr);
	if (body > s->room) {
		free(s->body);
		s->room = 0;
		s->body = malloc(body);
		if (!s->body)
			return false;
		s->room = body;
	}
	return true;
}

static void handle(struct pci_session *s)
{
	int err;

	if (is_answer(s)) {
		if (!pci_far_reply(s->func, &s->hdr, s->body)) {
			pci_func_complain(s->func, "client: an answer that nobody asked for");
			s->broken = true;
		}
	} else {
		err = s->hdr.flags & ~VFU_FLAGS_ALL ? EINVAL : pci_request(s);
		if (err)
			reply_error(s, err);
	}
	drop_fds(s);
	s->have = 0;
	/* a long message is rare */
	if (s->room > SESSION_KEEP) {
		free(s->body);
		s->body = NULL;
		s->room = 0;
	}
}

/* True: a whole message was handled. */
static bool step(struct pci_session *s)
{
	const size_t head = sizeof(s->hdr);
	int rc;

	if (s->have < head) {
		rc = receive(s, (uint8_t *)&s->hdr + s->have, head - s->have, true);
		if (rc <= 0) {
			s->broken |= rc < 0;
			return false;
		}
		if (s->have < head)
			return true;
		if (!header_ok(s)) {
			s->broken = true;
			return false;
		}
	}
	if (s->have < s->hdr.size) {
		rc = receive(s, s->body + (s->have - head), s->hdr.size - s->have, false);
		if (rc <= 0) {
			s->broken |= rc < 0;
			return false;
		}
		if (s->have < s->hdr.size)
			return true;
	}
	handle(s);
	return true;
}

void pci_session_serve(struct pci_session *s)
{
	int i;

	flush(s);
	for (i = 0; i < MESSAGES_IN_A_ROW && !s->broken && !s->out_len; i++)
		if (!step(s))
			break;
	if (s->broken)
		s->ended(s, s->ctx);
	else
		set_events(s);
}

static void ready(struct pci_fd *pfd, uint32_t events)
{
	struct pci_session *s = container_of(pfd, struct pci_session, pfd);

	/* with replies waiting, input is not read, so the end would not be seen */
	if ((events & (EPOLLHUP | EPOLLERR)) && s->out_len)
		s->broken = true;
	pci_session_serve(s);
}

/* ------------------------------------------------------------------ life */

struct pci_session *pci_session_open(struct pci_func *func, int fd,
				     void (*ended)(struct pci_session *session, void *ctx),
				     void *ctx)
{
	struct pci_session *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return NULL;
	s->func = func;
	s->out_fd = -1;
	s->ended = ended;
	s->ctx = ctx;
	s->pfd = (struct pci_fd){ .fd = fd, .events = EPOLLIN, .ready = ready };
	err = pci_fd_add(func->loop, &s->pfd);
	if (err) {
		free(s);
		errno = err;
		return NULL;
	}
	func->session = s;
	return s;
}

void pci_session_close(struct pci_session *s)
{
	s->func->session = NULL;
	pci_fd_del(s->func->loop, &s->pfd);
	close(s->pfd.fd);
	drop_fds(s);
	drop_out_fd(s);
	free(s->out);
	free(s->body);
	pci_func_client_gone(s->func);
	free(s);
}
