// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <linux/types.h>

#include "adapter/wire/crc32c.h"
#include "adapter/wire/mpa.h"
#include "tests/link/peer.h"

#define require(cond)                                                   \
	do {                                                            \
		if (!(cond)) {                                          \
			fprintf(stderr, "peer: not true: %s\n", #cond); \
			abort();                                        \
		}                                                       \
	} while (0)

void bytes_add(struct bytes *bytes, const void *p, size_t len)
{
	if (bytes->len + len > bytes->size) {
		bytes->size = 2 * (bytes->len + len);
		bytes->p = realloc(bytes->p, bytes->size);
		require(bytes->p);
	}
	if (len)
		memcpy(bytes->p + bytes->len, p, len);
	bytes->len += len;
}

void bytes_free(struct bytes *bytes)
{
	free(bytes->p);
	*bytes = (struct bytes){ 0 };
}

void peer_fpdu(struct bytes *out, const void *ulpdu, size_t len, bool crc)
{
	static const uint8_t zero[EA_FPDU_ALIGN];
	size_t start = out->len;
	__be16 be_len = htobe16(len);
	__le32 sum = 0;

	bytes_add(out, &be_len, sizeof(be_len));
	bytes_add(out, ulpdu, len);
	bytes_add(out, zero, ea_fpdu_pad(len));
	if (crc)
		sum = ea_crc32c_end(
			ea_crc32c_add(ea_crc32c_start(), out->p + start, out->len - start));
	bytes_add(out, &sum, sizeof(sum));
}

void peer_segment(struct bytes *out, const struct ea_ddp_hdr *hdr, const void *payload, size_t len,
		  bool crc)
{
	uint8_t *ulpdu = malloc(EA_DDP_HDR_MAX + len);
	uint32_t hdr_len;

	require(ulpdu);
	hdr_len = ea_ddp_encode(hdr, ulpdu);
	if (len)
		memcpy(ulpdu + hdr_len, payload, len);
	peer_fpdu(out, ulpdu, hdr_len + len, crc);
	free(ulpdu);
}

struct ea_ddp_hdr peer_hdr(uint8_t opcode, uint32_t msn)
{
	struct ea_ddp_hdr hdr = {
		.tagged = ea_rdmap_is_tagged(opcode),
		.last = true,
		.ulp_ctrl = ea_rdmap_ctrl(opcode),
		.msn = msn,
	};

	while (!hdr.tagged && ea_rdmap_check(&hdr, 0) == EA_RDMAP_BAD_QN)
		hdr.qn++;
	return hdr;
}

bool peer_take(const struct bytes *in, size_t *pos, struct peer_fpdu *fpdu, bool crc)
{
	const uint8_t *p = in->p + *pos;
	size_t left = in->len - *pos;
	uint32_t ulpdu, pad, hdr_len, i;
	__le32 sum = 0;
	__be16 len;

	if (left < sizeof(len))
		return false;
	memcpy(&len, p, sizeof(len));
	ulpdu = be16toh(len);
	pad = ea_fpdu_pad(ulpdu);
	if (left < ea_fpdu_len(ulpdu))
		return false;
	for (i = 0; i < pad; i++)
		require(!p[sizeof(len) + ulpdu + i]);
	if (crc)
		sum = ea_crc32c_end(ea_crc32c_add(ea_crc32c_start(), p, sizeof(len) + ulpdu + pad));
	require(!memcmp(&sum, p + sizeof(len) + ulpdu + pad, sizeof(sum)));

	require(ea_ddp_decode(p + sizeof(len), ulpdu, &fpdu->hdr) == EA_DDP_OK);
	hdr_len = ea_ddp_hdr_len(p[sizeof(len)]);
	fpdu->opcode = ea_rdmap_opcode(fpdu->hdr.ulp_ctrl);
	fpdu->payload = p + sizeof(len) + hdr_len;
	fpdu->len = ulpdu - hdr_len;
	require(ea_rdmap_check(&fpdu->hdr, fpdu->len) == EA_RDMAP_OK);
	*pos += ea_fpdu_len(ulpdu);
	return true;
}

void peer_write(int fd, const void *p, size_t len, struct rig *rig)
{
	const uint8_t *at = p;
	ssize_t sent;

	while (len) {
		sent = send(fd, at, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent < 0) {
			require(errno == EAGAIN);
			sent = 0;
		}
		at += sent;
		len -= sent;
		if (rig)
			ea_tcp_progress(rig->link, 1 << 20, 1 << 20);
	}
}

bool peer_read(int fd, struct bytes *in, struct rig *rig)
{
	uint8_t buf[16384];
	int quiet = 0;
	ssize_t got;

	while (quiet < 3) {
		rig_pump(rig, NULL);
		got = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
		if (!got || (got < 0 && errno == ECONNRESET))
			return true;
		if (got < 0) {
			require(errno == EAGAIN);
			quiet++;
			continue;
		}
		quiet = 0;
		bytes_add(in, buf, got);
	}
	return false;
}

uint32_t peer_random(uint64_t *state, uint32_t n)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (*state >> 16) % n;
}
