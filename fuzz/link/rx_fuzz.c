// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * An enemy's bytes into a connected QP: link and core together.
 *
 * Input: a byte of options (see enum), then either the stream as it is, or pieces of (16-bit
 * length, ULPDU) that are framed here, so that lengths, padding and CRC are right and the content
 * gets deeper.  Memory begins at bus address 0, so that small numbers are valid addresses; half of
 * it belongs to no region and must stay as it was.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/wire/require.h"
#include "tests/link/peer.h"

enum {
	FRAMED = 1 << 0,
	CRC = 1 << 1,
	RECVS = 1 << 2, /* receive work requests are posted */
	READS = 1 << 3, /* READs and an atomic of ours are outstanding */
	IN_PIECES = 1 << 4,
	SENDS = 1 << 5,	    /* our own sends fill the socket the other way */
	LATE_RECV = 1 << 6, /* one more receive comes after the bytes */
	CLOSES = 1 << 7,    /* then the QP is closed, else destroyed or reset */
	MEM = 1 << 17,
	BUS = 0x1000,
	STREAM_MAX = 1 << 16,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void make_stream(struct bytes *out, uint8_t options, const uint8_t *p, size_t len)
{
	size_t piece;

	if (!(options & FRAMED)) {
		bytes_add(out, p, len < STREAM_MAX ? len : STREAM_MAX);
		return;
	}
	while (len >= 2 && out->len < STREAM_MAX) {
		piece = p[0] << 8 | p[1];
		p += 2;
		len -= 2;
		if (piece > len)
			piece = len;
		peer_fpdu(out, p, piece, options & CRC);
		p += piece;
		len -= piece;
	}
}

static void prepare(struct rig *rig, uint8_t options)
{
	int i;

	if (options & RECVS)
		for (i = 0; i < 4; i++)
			rig_post_recv(rig, i * 1024, 1024);
	if (options & READS) {
		rig_post_read(rig, 0, 100, RIG_STAG, BUS);
		rig_post_cas(rig, 128, RIG_STAG, BUS, 1, 2);
		rig_post_read(rig, 256, 3000, RIG_STAG, BUS);
	}
	if (options & SENDS)
		for (i = 0; i < 8; i++)
			rig_post_send(rig, 0, MEM / 2, RIG_SIGNAL);
}

static void run(struct rig *rig, int peer, uint8_t options, const struct bytes *stream)
{
	size_t at, piece;
	ssize_t sent;

	for (at = 0; at < stream->len; at += sent) {
		piece = options & IN_PIECES ? 1 + at % 17 : stream->len - at;
		if (piece > stream->len - at)
			piece = stream->len - at;
		sent = send(peer, stream->p + at, piece, MSG_DONTWAIT | MSG_NOSIGNAL);
		ea_tcp_progress(rig->link, 3000, 3000);
		if (sent < 0)
			break;
	}
	if (options & LATE_RECV)
		rig_post_recv(rig, 0, 5000);
	rig_pump(rig, NULL);
	if (options & CLOSES) {
		ea_qp_modify(rig->dev, RIG_QPN, EA_QP_CLOSING);
		rig_pump(rig, NULL);
	}
	shutdown(peer, SHUT_WR);
	rig_pump(rig, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct rig_options rig_options = { .bus = BUS };
	static const uint8_t guard[MEM / 2] = { 0 };
	struct bytes stream = { 0 };
	static struct rig rig;
	struct rig_wc wc;
	int fds[2];

	if (!size)
		return 0;
	rig_sockets(fds, false);
	rig_options.crc = (data[0] & FRAMED) && (data[0] & CRC);
	if (!rig.dev) {
		rig_options.mr_len = MEM / 2;
		rig_open(&rig, fds[0], MEM, &rig_options);
	} else {
		rig_connect(&rig, fds[0], &rig_options);
	}
	make_stream(&stream, data[0], data + 1, size - 1);
	prepare(&rig, data[0]);
	run(&rig, fds[1], data[0], &stream);

	require(!memcmp(rig.mem + MEM / 2, guard, sizeof(guard)));
	close(fds[1]);
	rig_disconnect(&rig);
	while (rig_poll(&rig, &wc))
		continue;
	bytes_free(&stream);
	return 0;
}
