/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The other end of the wire, by hand: builds FPDUs byte by byte, whatever nonsense they carry, and
 * takes apart what the link sends.
 */
#ifndef TESTS_LINK_PEER_H
#define TESTS_LINK_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "adapter/wire/rdmap.h"
#include "tests/link/rig.h"

/* Bytes that grow at the end; zero-initialise, free with bytes_free(). */
struct bytes {
	uint8_t *p;
	size_t len, size;
};

void bytes_add(struct bytes *bytes, const void *p, size_t len);
void bytes_free(struct bytes *bytes);

/* Append an FPDU with any ULPDU; @crc: with a CRC, else zero. */
void peer_fpdu(struct bytes *out, const void *ulpdu, size_t len, bool crc);

/* Append an FPDU of a DDP header and payload. */
void peer_segment(struct bytes *out, const struct ea_ddp_hdr *hdr, const void *payload, size_t len,
		  bool crc);

/* Header of a whole message of @opcode that passes ea_rdmap_check(). */
struct ea_ddp_hdr peer_hdr(uint8_t opcode, uint32_t msn);

/* One received FPDU, taken apart. */
struct peer_fpdu {
	struct ea_ddp_hdr hdr;
	uint8_t opcode;
	const uint8_t *payload; /* into the bytes it was taken from */
	size_t len;
};

/*
 * Take the FPDU at *@pos of @in and move *@pos behind it; false when no whole one is there.
 * Framing, padding and, with @crc, the CRC must be right, or the program ends.
 */
bool peer_take(const struct bytes *in, size_t *pos, struct peer_fpdu *fpdu, bool crc);

/* Write all of @out to @fd, calling progress of @rig in between. */
void peer_write(int fd, const void *p, size_t len, struct rig *rig);

/* Read what @rig sends until it is quiet.  True when the stream has ended. */
bool peer_read(int fd, struct bytes *in, struct rig *rig);

/* A reproducible random number below @n. */
uint32_t peer_random(uint64_t *state, uint32_t n);

#endif
