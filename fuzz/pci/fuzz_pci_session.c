// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What a client may send, with the right framing and without, and with descriptors of all kinds; and how it may answer
 * when its memory is reached by messages.
 *
 * The input is a list of messages: a byte for the kind, a byte for the length of the body, the body.  Answers take a
 * byte each.
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
	size_t have; /* bytes in sink */
	uint8_t sink[65536];
};

static void ended(struct pci_session *session, void *ctx)
{
	struct client *c = ctx;

	c->session = NULL;
	pci_session_close(session);
}

/* NULL: in a window that the input has given, and that is nowhere. */
static uint8_t *at(struct world *w, uint64_t addr, uint64_t len)
{
	if (addr < WORLD_BUS || addr - WORLD_BUS > WORLD_MEM ||
	    len > WORLD_MEM - (addr - WORLD_BUS))
		return NULL;
	return w->mem + (addr - WORLD_BUS);
}

/* The server's question at the head of the sink. */
static void answer(struct world *w, struct client *c, struct input *in)
{
	static struct {
		struct vfu_hdr hdr;
		struct vfu_dma_access access;
		uint8_t data[4096];
	} msg;
	uint8_t how = in->left ? u8(in) : UINT8_MAX;
	uint8_t *place;
	size_t data = 0;

	memcpy(&msg, c->sink, sizeof(msg.hdr) + sizeof(msg.access));
	if (msg.access.count > sizeof(msg.data))
		abort();
	place = at(w, msg.access.addr, msg.access.count);
	if (msg.hdr.command == VFU_DMA_READ) {
		data = msg.access.count;
		if (place)
			memcpy(msg.data, place, data);
	} else if (msg.hdr.command == VFU_DMA_WRITE) {
		if (place)
			memcpy(place, c->sink + sizeof(msg.hdr) + sizeof(msg.access),
			       msg.access.count);
	} else {
		abort();
	}
	msg.hdr.flags = VFU_TYPE_REPLY;
	msg.hdr.size = (uint32_t)(sizeof(msg.hdr) + sizeof(msg.access) + data);
	switch (how) {
	case 0:
		msg.hdr.flags |= VFU_ERROR;
		msg.hdr.error = how;
		msg.hdr.size = sizeof(msg.hdr);
		break;
	case 1:
		msg.access.count++;
		break;
	case 2:
		return;
	case 3:
		msg.hdr.id++;
		break;
	case 4:
		msg.hdr.size = sizeof(msg.hdr) + u8(in);
		break;
	case 5:
		pci_far_settle(w->func, false);
		pci_dma_unmap(&w->func->dma, WORLD_BUS, WORLD_MEM);
		pci_func_memory_changed(w->func);
		break;
	}
	if (send(c->sock, &msg, msg.hdr.size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return;
}

/* Let the server work, and take what it says. */
static void pump(struct world *w, struct client *c, struct input *in, int rounds)
{
	struct vfu_hdr hdr;
	ssize_t n;

	while (rounds--) {
		world_run(w, 1);
		n = recv(c->sock, c->sink + c->have, sizeof(c->sink) - c->have, MSG_DONTWAIT);
		if (n > 0)
			c->have += (size_t)n;
		while (c->have >= sizeof(hdr)) {
			memcpy(&hdr, c->sink, sizeof(hdr));
			if (hdr.size > sizeof(c->sink)) {
				/* a region read as long as it gets: of no interest */
				c->have = 0;
				return;
			}
			if (c->have < hdr.size)
				break;
			if (!(hdr.flags & VFU_TYPE_MASK))
				answer(w, c, in);
			c->have -= hdr.size;
			memmove(c->sink, c->sink + hdr.size, c->have);
		}
	}
}

/* The client has memory that it keeps to itself, and a driver that starts. */
static void keep_memory(struct world *w, struct client *c, struct input *in)
{
	pci_far_settle(w->func, true);
	pci_dma_clear(&w->func->dma);
	pci_dma_map(&w->func->dma, WORLD_BUS, WORLD_MEM, -1, 0, true, true);
	pci_func_memory_changed(w->func);
	world_init(w);
	pump(w, c, in, 40);
	if (w->func->live)
		world_objects(w);
	pump(w, c, in, 100);
}

static void say(struct world *w, struct client *c, struct input *in, const void *bytes, size_t len,
		int fd, int nfds)
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
	pump(w, c, in, w->func->far ? 12 : 2);
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
	c.have = 0;
	c.session = pci_session_open(w.func, socks[1], ended, &c);
	if (!c.session)
		abort();
	if (u8(&in) & 1)
		say(&w, &c, &in, &hello, sizeof(hello), -1, 0);
	while (in.left && c.session) {
		kind = u8(&in);
		len = u8(&in);
		for (i = 0; i < len; i++)
			buf[sizeof(hdr) + i] = u8(&in);
		fd = kind & 0x20 ? w.memfd : event;
		if ((kind & 0x1f) == 0x1f) {
			say(&w, &c, &in, buf + sizeof(hdr), len, fd, kind >> 6);
			continue;
		}
		if ((kind & 0x1f) == 0x1e) {
			keep_memory(&w, &c, &in);
			continue;
		}
		hdr.id++;
		hdr.command = kind & 0x1f;
		hdr.size = (uint32_t)sizeof(hdr) + len;
		hdr.flags = len & 1 && len > 32 ? VFU_NO_REPLY : 0;
		memcpy(buf, &hdr, sizeof(hdr));
		say(&w, &c, &in, buf, hdr.size, fd, kind >> 6);
	}
	close(c.sock);
	world_run(&w, 2);
	if (c.session)
		pci_session_close(c.session);
	close(event);
	world_close(&w);
	return 0;
}
