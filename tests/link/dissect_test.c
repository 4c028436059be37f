// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A third opinion on the wire format: connections between two devices are written to a capture
 * file, and Wireshark's dissectors must find in it what was sent, and nothing malformed.  Each
 * write of the link becomes TCP segments of its own, as MSG_EOR has it; the linker puts
 * __wrap_sendmsg() between link and libc to see them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/core/hw.h"
#include "adapter/wire/mpa.h"
#include "tests/link/peer.h"
#include "tests/wire/check.h"

enum {
	MEM = 1 << 20,
	PORT_ACTIVE = 40000,
	PORT_PASSIVE = 18515,
	SKIPPED = 77,
	ODD_LEN = 4097,
	WRITE_LEN = 36000,
	READ_LEN = 40000,
};

/* ------------------------------------------------------------------ capture file */

enum {
	IP_LEN = 20,
	TCP_LEN = 20,
	LINKTYPE_RAW = 101,
	TCP_ACK_PSH = 0x18,
	TCP_SYN = 0x02
};

struct capture {
	FILE *file;
	uint32_t seq[2];
	uint32_t packets;
};

static void put16(uint8_t *p, uint16_t v)
{
	p[0] = v >> 8;
	p[1] = v;
}

static void put32(uint8_t *p, uint32_t v)
{
	put16(p, v >> 16);
	put16(p + 2, v);
}

static void capture_open(struct capture *capture, const char *path)
{
	const struct {
		uint32_t magic;
		uint16_t major, minor;
		uint32_t zone, accuracy, most, link;
	} head = { 0xa1b2c3d4, 2, 4, 0, 0, 262144, LINKTYPE_RAW };

	capture->file = fopen(path, "wb");
	assert_non_null(capture->file);
	capture->seq[0] = 1000;
	capture->seq[1] = 2000;
	capture->packets = 0;
	assert_int_equal(fwrite(&head, sizeof(head), 1, capture->file), 1);
}

static void add_packet(struct capture *capture, int from, uint8_t flags, const uint8_t *data,
		       size_t len)
{
	uint8_t pkt[IP_LEN + TCP_LEN] = { 0x45 };
	uint32_t size = sizeof(pkt) + len;
	uint32_t head[4] = { 1000, capture->packets++, size, size };

	put16(pkt + 2, size);
	pkt[8] = 64;
	pkt[9] = 6;
	put32(pkt + 12, 0x0a000001 + from);
	put32(pkt + 16, 0x0a000001 + !from);
	put16(pkt + 20, from ? PORT_PASSIVE : PORT_ACTIVE);
	put16(pkt + 22, from ? PORT_ACTIVE : PORT_PASSIVE);
	put32(pkt + 24, capture->seq[from]);
	put32(pkt + 28, capture->seq[!from]);
	pkt[32] = 0x50;
	pkt[33] = flags;
	put16(pkt + 34, 65535);
	capture->seq[from] += len + !!(flags & TCP_SYN);
	assert_int_equal(fwrite(head, sizeof(head), 1, capture->file), 1);
	assert_int_equal(fwrite(pkt, sizeof(pkt), 1, capture->file), 1);
	if (len)
		assert_int_equal(fwrite(data, 1, len, capture->file), len);
}

/* Sizes of the writes whose bytes were not yet carried, for each side. */
static struct {
	int fd;
	size_t len[4096];
	int head, tail;
} writes[2];

ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);

static ssize_t size_of(const struct msghdr *msg)
{
	ssize_t size = 0;
	size_t i;

	for (i = 0; i < msg->msg_iovlen; i++)
		size += msg->msg_iov[i].iov_len;
	return size;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	ssize_t sent = __real_sendmsg(fd, msg, flags);
	int i;

	for (i = 0; i < 2; i++) {
		if (writes[i].fd != fd || sent < 0)
			continue;
		assert_true(flags & MSG_EOR);
		/* a write that is cut short would need the next one to be joined to it */
		assert_int_equal(sent, size_of(msg));
		assert_true(writes[i].tail < 4096);
		writes[i].len[writes[i].tail++] = sent;
	}
	return sent;
}

/* One write after the other, each in segments of at most @mss bytes. */
static void add_stream(struct capture *capture, int from, const struct bytes *bytes, size_t mss)
{
	size_t at, len, left = 0;

	for (at = 0; at < bytes->len; at += len, left -= len) {
		if (!left) {
			assert_true(writes[from].head < writes[from].tail);
			left = writes[from].len[writes[from].head++];
		}
		len = left < mss ? left : mss;
		assert_true(len <= bytes->len - at);
		add_packet(capture, from, TCP_ACK_PSH, bytes->p + at, len);
	}
	assert_int_equal(left, 0);
}

static void add_setup(struct capture *capture, bool crc)
{
	struct ea_mpa_frame req = {
		.revision = EA_MPA_REV_2,
		.enhanced = true,
		.crc = crc,
		.ird = 16,
		.ord = 16,
		.private_len = 4,
		.private_data = "abc",
	};
	uint8_t buf[EA_MPA_FRAME_MAX];
	struct ea_mpa_terms terms;
	struct ea_mpa_frame rep;
	size_t len;

	add_packet(capture, 0, TCP_SYN, NULL, 0);
	add_packet(capture, 1, TCP_SYN | 0x10, NULL, 0);
	len = ea_mpa_encode(EA_MPA_REQUEST, &req, buf, sizeof(buf), NULL);
	add_packet(capture, 0, TCP_ACK_PSH, buf, len);
	ea_mpa_answer(&req, 16, 16, false, &rep, &terms);
	len = ea_mpa_encode(EA_MPA_REPLY, &rep, buf, sizeof(buf), NULL);
	add_packet(capture, 1, TCP_ACK_PSH, buf, len);
}

/* ------------------------------------------------------------------ traffic */

/* Two devices with the test in between, who sees every byte. */
struct wiretap {
	struct rig rigs[2];
	int fds[2];
	struct capture *capture;
	size_t mss;
};

static void open_wiretap(struct wiretap *tap, struct capture *capture, uint32_t mulpdu, bool crc,
			 size_t mss)
{
	struct rig_options options = { .crc = crc, .mulpdu = mulpdu, .align = true };
	int fds[2];
	int i;

	tap->capture = capture;
	tap->mss = mss;
	for (i = 0; i < 2; i++) {
		rig_sockets(fds, false);
		rig_open(&tap->rigs[i], fds[0], MEM, &options);
		tap->fds[i] = fds[1];
		writes[i].fd = fds[0];
		/* as much as anyone may have; the default would do but for accounting */
		setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &(int){ 1 << 20 }, sizeof(int));
		writes[i].head = 0;
		writes[i].tail = 0;
	}
}

static void close_wiretap(struct wiretap *tap)
{
	int i;

	for (i = 0; i < 2; i++) {
		rig_close(&tap->rigs[i]);
		close(tap->fds[i]);
	}
}

/* Carry bytes both ways until both sides are quiet. */
static void carry(struct wiretap *tap)
{
	struct bytes bytes = { 0 };
	int i, quiet = 0;

	while (quiet < 4) {
		for (i = 0; i < 2; i++) {
			bytes.len = 0;
			peer_read(tap->fds[i], &bytes, &tap->rigs[i]);
			quiet = bytes.len ? 0 : quiet + 1;
			add_stream(tap->capture, i, &bytes, tap->mss);
			peer_write(tap->fds[!i], bytes.p, bytes.len, &tap->rigs[!i]);
		}
	}
	bytes_free(&bytes);
}

/* Each kind of message the core sends; the last one has a wrong key and ends the connection. */
static void all_messages(struct wiretap *tap)
{
	struct rig *a = &tap->rigs[0], *b = &tap->rigs[1];
	uint64_t remote = (uintptr_t)b->mem;
	int i;

	for (i = 0; i < 24; i++)
		rig_post_recv(b, 0, 65536);
	rig_fill(a, 0, 65536, 7);
	for (i = 0; i < 16; i++)
		rig_post_send(a, 0, i * i * i, RIG_SIGNAL | (i & 1 ? RIG_SOLICITED : 0));
	rig_post_write(a, 0, ODD_LEN, RIG_STAG, remote, RIG_SIGNAL);
	rig_post_write_imm(a, 0, WRITE_LEN, RIG_STAG, remote, 5, RIG_SIGNAL);
	rig_post_send_imm(a, 0, 77, 6, RIG_SIGNAL);
	rig_post_read(a, 0, READ_LEN, RIG_STAG, remote);
	rig_post_cas(a, 0, RIG_STAG, remote + 64, 1, 2);
	carry(tap);
	rig_post_read(a, 0, 100, 0x777700, 0x1000);
	carry(tap);
}

/* All that tshark has to say about the capture. */
static void tshark(const char *path, struct bytes *out)
{
	char command[256], buf[4096];
	size_t got;
	FILE *pipe;

	/* payload that by chance looks like an upper protocol is not our matter */
	snprintf(command, sizeof(command),
		 "tshark -n -V -r %s --disable-protocol rpcordma --disable-protocol smb_direct "
		 "2>/dev/null",
		 path);
	pipe = popen(command, "r");
	assert_non_null(pipe);
	while ((got = fread(buf, 1, sizeof(buf), pipe)) > 0)
		bytes_add(out, buf, got);
	bytes_add(out, "", 1);
	assert_int_equal(pclose(pipe), 0);
}

static int count(const struct bytes *out, const char *text)
{
	const char *p = (const char *)out->p;
	int n = 0;

	while ((p = strstr(p, text))) {
		p += strlen(text);
		n++;
	}
	return n;
}

static int segments(uint32_t mulpdu, uint32_t len)
{
	uint32_t most = mulpdu - EA_DDP_TAGGED_LEN;

	return (len + most - 1) / most;
}

static void dissect(uint32_t mulpdu, bool crc, size_t mss)
{
	char path[] = "/tmp/link_dissect.XXXXXX";
	struct bytes out = { 0 };
	struct capture capture;
	struct wiretap tap;
	int fd;

	fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	capture_open(&capture, path);
	add_setup(&capture, crc);
	open_wiretap(&tap, &capture, mulpdu, crc, mss);
	all_messages(&tap);
	close_wiretap(&tap);
	fclose(capture.file);

	tshark(path, &out);
	assert_int_equal(count(&out, "alformed"), 0);
	assert_int_equal(count(&out, "Bad length"), 0);
	assert_int_equal(count(&out, "Severity level: Error"), 0);
	assert_int_equal(count(&out, "MPA Request Frame") + count(&out, "Request frame header"), 1);

	/* sizes 0, 1, 8, 27 ... 3375; at the longest segment size none is cut */
	if (mulpdu > 4096) {
		assert_int_equal(count(&out, "OpCode: Send (0x3)"), 8);
		assert_int_equal(count(&out, "OpCode: Send with SE (0x5)"), 8);
	}
	assert_int_equal(count(&out, "OpCode: Write (0x0)"),
			 segments(mulpdu, ODD_LEN) + segments(mulpdu, WRITE_LEN));
	assert_int_equal(count(&out, "OpCode: Read Request (0x1)"), 2);
	assert_int_equal(count(&out, "OpCode: Read Response (0x2)"), segments(mulpdu, READ_LEN));
	assert_int_equal(count(&out, "OpCode: Terminate (0x7)"), 1);
	assert_int_equal(count(&out, "OpCode: Atomic Request (0xa)"), 1);
	assert_int_equal(count(&out, "OpCode: Atomic Response (0xb)"), 1);
	/* Immediate Data and Send with immediate, which it has no names for */
	assert_int_equal(count(&out, "(0x8)"), 1);
	assert_int_equal(count(&out, "(0xc)"), 1);

	assert_int_equal(count(&out, "OpCode: CmpSwap (2)"), 1);
	assert_int_equal(count(&out, "Swap Data: 2"), 1);
	assert_int_equal(count(&out, "Compare Data: 1"), 1);
	assert_int_equal(count(&out, "Compare Mask: 0xffffffffffffffff"), 1);
	assert_int_equal(count(&out, "RDMA Read Message Size: 40000 bytes"), 1);
	assert_int_equal(count(&out, "Error Code for RDMA layer: Invalid STag"), 1);
	assert_int_equal(count(&out, "R bit: Set"), 1);
	/* tshark computes each CRC itself */
	assert_int_equal(count(&out, "Good CRC32"), crc ? count(&out, "ULPDU length:") : 0);
	bytes_free(&out);
	unlink(path);
}

static void ethernet(void **state)
{
	(void)state;
	dissect(ea_fpdu_mulpdu(1448), true, 1448);
	dissect(ea_fpdu_mulpdu(1448), false, 1448);
}

static void loopback(void **state)
{
	(void)state;
	dissect(ea_fpdu_mulpdu(32741), true, 32741);
	dissect(EA_MULPDU_MAX, false, 65550);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ethernet),
		cmocka_unit_test(loopback),
	};

	if (system("tshark --version >/dev/null 2>&1"))
		return SKIPPED;
	return cmocka_run_group_tests_name("dissect", tests, NULL, NULL);
}
