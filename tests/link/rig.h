/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A device with one QP, its memory, and a TCP link over a socket of the test: everything that
 * stands behind a connected QP, without a host.  The test plays provider (posts work requests,
 * polls) and engine (calls progress).
 */
#ifndef TESTS_LINK_RIG_H
#define TESTS_LINK_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "adapter/core/core.h"
#include "adapter/link/link_tcp.h"

enum {
	RIG_QPN = 5,
	RIG_STAG = 0x1234 << 8 | 0x56,	  /* all rights over rig.mem */
	RIG_STAG_RO = 0x1235 << 8 | 0x57, /* remote read only, same memory */
	RIG_SQ_SHIFT = 10,		  /* blocks of 32 bytes */
	RIG_RQ_SHIFT = 8,
	RIG_CQ_SHIFT = 12,
};

struct rig {
	struct ea_dev *dev;
	struct ea_link *link;
	int fd;
	uint8_t *mem;
	size_t mem_len;
	uint64_t bus; /* address of mem[0] for the device */
	uint8_t *sq, *rq, *cq;
	uint16_t sq_pi, rq_pi;
	uint32_t cq_ci;
	bool tcp;	       /* the socket moves bytes on its own time */
	unsigned int notified; /* by the link */
	unsigned int events;   /* async */
	enum ea_async_event last_event;
};

/* A completion in plain terms. */
struct rig_wc {
	uint8_t opcode, qtype, syndrome;
	uint32_t index, size, extra;
};

struct rig_options {
	bool crc;
	bool align;
	uint32_t mulpdu;
	uint8_t ord, ird; /* 0: 16 */
	const void *rx_data;
	size_t rx_len;
	uint64_t bus;  /* address of the memory for the device; 0: its real one */
	size_t mr_len; /* bytes from the start that the regions cover; 0: all */
};

/*
 * Make a rig with @mem_len bytes of memory on @fd, which it takes over.  Ends the program on
 * failure.
 */
void rig_open(struct rig *rig, int fd, size_t mem_len, const struct rig_options *options);

/* End the link and make the QP a fresh one; the descriptor is closed unless it is negative. */
void rig_disconnect(struct rig *rig);

/* Connect a QP that was disconnected. */
void rig_connect(struct rig *rig, int fd, const struct rig_options *options);

/* Disconnect and free all. */
void rig_close(struct rig *rig);

/* A connected pair of non-blocking sockets: TCP over loopback, or a socket pair. */
void rig_sockets(int fds[2], bool tcp);

/* ---- posting; addresses are offsets in rig.mem */

enum rig_flags {
	RIG_SIGNAL = 1 << 0,
	RIG_FENCE = 1 << 1,
	RIG_SOLICITED = 1 << 2,
};

void rig_post_send(struct rig *rig, size_t off, uint32_t len, unsigned int flags);
void rig_post_send_imm(struct rig *rig, size_t off, uint32_t len, uint32_t imm, unsigned int flags);
void rig_post_write(struct rig *rig, size_t off, uint32_t len, uint32_t rkey, uint64_t raddr,
		    unsigned int flags);
void rig_post_write_imm(struct rig *rig, size_t off, uint32_t len, uint32_t rkey, uint64_t raddr,
			uint32_t imm, unsigned int flags);
/* A send of @n pieces of @each bytes, @stride apart. */
void rig_post_send_sgl(struct rig *rig, size_t off, uint32_t each, uint32_t n, size_t stride);
void rig_post_read(struct rig *rig, size_t off, uint32_t len, uint32_t rkey, uint64_t raddr);
void rig_post_cas(struct rig *rig, size_t off, uint32_t rkey, uint64_t raddr, uint64_t compare,
		  uint64_t swap);
void rig_post_recv(struct rig *rig, size_t off, uint32_t len);

/* Take one completion; false when there is none. */
bool rig_poll(struct rig *rig, struct rig_wc *wc);

/* Call progress of both (the second may be NULL) until nothing moves any more. */
void rig_pump(struct rig *a, struct rig *b);

/* As rig_pump() until @rig has a completion, within about five seconds; false when none comes. */
bool rig_wait(struct rig *a, struct rig *b, struct rig *waits, struct rig_wc *wc);

/* Fill @len bytes at @off with a pattern of @seed; compare with it. */
void rig_fill(struct rig *rig, size_t off, size_t len, uint32_t seed);
bool rig_same(const struct rig *rig, size_t off, size_t len, uint32_t seed);

#endif
