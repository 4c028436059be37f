// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What a client may send, with the right framing and without, and with descriptors of all kinds.
 *
 * The input is a list of messages: a byte for the kind, a byte for the length of the body, the body.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/pci/session.h"
#include "adapter/pci/vfu.h"
#include "fuzz/core/input.h"
#include "fuzz/pci/world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct client {
	int sock;
	struct pci_session *session;
	uint8_t sink[65536];
};

static void ended(struct pci_session *session, void *ctx)
{
	struct client *c = ctx;

	c->session = NULL;
	pci_session_close(session);
}

static void say(struct world *w, struct client *c, const void *bytes, size_t len, int fd, int nfds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(20 * sizeof(int))];
	} control = { 0 };
	struct iovec iov = { (void *)(uintptr_t)bytes, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *cm;
	int i, fds[20];

	if (nfds) {
		for (i = 0; i < nfds; i++)
			fds[i] = fd;
		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
		cm = CMSG_FIRSTHDR(&msg);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
		memcpy(CMSG_DATA(cm), fds, (size_t)nfds * sizeof(int));
	}
	if (sendmsg(c->sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return;
	world_run(w, 2);
	while (recv(c->sock, c->sink, sizeof(c->sink), MSG_DONTWAIT) > 0)
		;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct {
		struct vfu_hdr hdr;
		struct vfu_version version;
	} hello = { { 0, VFU_VERSION, sizeof(hello), 0, 0 }, { 0, 0 } };
	struct input in = { data, size };
	static struct client c;
	uint8_t buf[sizeof(struct vfu_hdr) + 256];
	struct vfu_hdr hdr = { 0 };
	struct world w;
	int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), socks[2], fd;
	uint8_t kind, len, i;

	world_open(&w);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, socks))
		abort();
	c.sock = socks[0];
	c.session = pci_session_open(w.func, socks[1], ended, &c);
	if (!c.session)
		abort();
	if (u8(&in) & 1)
		say(&w, &c, &hello, sizeof(hello), -1, 0);
	while (in.left && c.session) {
		kind = u8(&in);
		len = u8(&in);
		for (i = 0; i < len; i++)
			buf[sizeof(hdr) + i] = u8(&in);
		fd = kind & 0x20 ? w.memfd : event;
		if ((kind & 0x1f) == 0x1f) {
			say(&w, &c, buf + sizeof(hdr), len, fd, kind >> 6);
			continue;
		}
		hdr.id++;
		hdr.command = kind & 0x1f;
		hdr.size = (uint32_t)sizeof(hdr) + len;
		hdr.flags = len & 1 && len > 32 ? VFU_NO_REPLY : 0;
		memcpy(buf, &hdr, sizeof(hdr));
		say(&w, &c, buf, hdr.size, fd, kind >> 6);
	}
	close(c.sock);
	world_run(&w, 2);
	if (c.session)
		pci_session_close(c.session);
	close(event);
	world_close(&w);
	return 0;
}
