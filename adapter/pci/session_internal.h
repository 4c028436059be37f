/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* What framing and meaning of messages share. */
#ifndef EA_PCI_SESSION_INTERNAL_H
#define EA_PCI_SESSION_INTERNAL_H

#include "adapter/pci/session.h"
#include "adapter/pci/vfu.h"

enum {
	SESSION_KEEP = 65536 /* bytes of the message buffer that stay between messages */
};

struct pci_session {
	struct pci_func *func;
	struct pci_fd pfd;
	void (*ended)(struct pci_session *session, void *ctx);
	void *ctx;
	bool broken;	/* the connection is to be ended */
	bool versioned; /* VERSION was agreed */
	/* the message being received */
	struct vfu_hdr hdr;
	uint8_t *body;
	size_t room; /* of body */
	size_t have; /* bytes of header and body */
	int fds[VFU_MAX_FDS];
	uint32_t nfds;
	/* replies the socket has not taken */
	uint8_t *out;
	size_t out_off, out_len;
	int out_fd; /* goes with the first byte of them; -1: none */
};

/*
 * Serve the message that was received.  0: the reply was given with pci_session_reply(); else a positive
 * errno for an error reply.  Descriptors that are used are taken out of fds[] (set to the last, count
 * lowered) or duplicated; the rest is closed by the caller.
 */
int pci_request(struct pci_session *s);

/* The reply's body is @a, then @b. */
void pci_session_reply(struct pci_session *s, const void *a, size_t a_len, const void *b,
		       size_t b_len);

/* With a descriptor, which stays the caller's; negative: none. */
void pci_session_reply_fd(struct pci_session *s, const void *a, size_t a_len, const void *b,
			  size_t b_len, int fd);

#endif
