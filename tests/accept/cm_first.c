// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The listener's side of MPA, seen by a peer on a plain socket: who may send first, and what becomes of
 * those that are no peers.
 */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/accept/cm_ends.h"

enum {
	MPA_KEY_LEN = 16,
	MPA_LEN = 20,
	MPA_CRC = 0x40,
	MPA_REJECT = 0x20,
	MPA_ENHANCED = 0x10,
};

static uint32_t crc32c(const uint8_t *p, size_t len)
{
	uint32_t crc = 0xffffffff;

	while (len--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return ~crc;
}

static size_t read_within(int sock, void *buf, size_t len, int ms)
{
	struct pollfd fd = { .fd = sock, .events = POLLIN };
	size_t have = 0;

	while (have < len && poll(&fd, 1, ms) == 1) {
		ssize_t n = read(sock, (uint8_t *)buf + have, len - have);

		if (n <= 0)
			break;
		have += (size_t)n;
	}
	return have;
}

static void say_mpa(int sock, uint8_t flags, uint8_t revision)
{
	uint8_t frame[MPA_LEN] = "MPA ID Req Frame";

	frame[16] = flags;
	frame[17] = revision;
	TS_CHECK(write(sock, frame, sizeof(frame)) == sizeof(frame));
}

/* RFC 6581: peer-to-peer, and a promise to send an RDMA Write of no bytes first; depths of 16. */
static void say_enhanced_mpa(int sock)
{
	uint8_t frame[MPA_LEN + 4] = "MPA ID Req Frame";
	static const uint8_t words[4] = { 0x80, 16, 0x80, 16 };

	frame[16] = MPA_CRC | MPA_ENHANCED;
	frame[17] = 2;
	frame[19] = sizeof(words);
	memcpy(frame + MPA_LEN, words, sizeof(words));
	TS_CHECK(write(sock, frame, sizeof(frame)) == sizeof(frame));
}

/* Length, DDP segment, CRC: no padding is needed for the segments here. */
static void say_fpdu(int sock, const uint8_t *segment, uint8_t len)
{
	uint8_t fpdu[64] = { 0, len };
	uint32_t crc;

	memcpy(fpdu + 2, segment, len);
	crc = htole32(crc32c(fpdu, 2u + len));
	memcpy(fpdu + 2 + len, &crc, sizeof(crc));
	TS_CHECK(write(sock, fpdu, 6u + len) == 6 + len);
}

/* DDP untagged, last, version 1; RDMAP version 1, Send; queue 0, MSN 1, offset 0; 4 bytes. */
static const uint8_t send_segment[22] = { 0x41, 0x43, [13] = 1, [18] = 'p', 'o', 'n', 'g' };
/* DDP tagged, last, version 1; RDMAP version 1, Write; no bytes. */
static const uint8_t empty_write[14] = { 0xc1, 0x40 };

/*
 * The peer is this test itself over a plain socket.  The program posts a send as soon as it can; nothing
 * of it may be on the wire for @quiet_ms unless the active side's first FPDU has come, and then at once
 * (RFC 5044 7.1.2 rule 3).
 */
static void passive_waits(bool enhanced, int quiet_ms)
{
	uint8_t in[256], reply[MPA_LEN + 4];
	const size_t reply_len = enhanced ? MPA_LEN + 4 : MPA_LEN;
	const size_t send_len = 2 + sizeof(send_segment) + 4;
	struct sockaddr_in addr;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct ts_buf buf;
	struct ibv_cq *cq;
	struct cm_listener l;
	struct ibv_wc wc[2];
	uint32_t crc;
	size_t n;
	int sock;

	cm_open_listener(&l, 1);
	ts_buf_open(&buf, 4096);
	cq = ibv_create_cq(ts_dev()->ctx, 32, NULL, NULL, 0);
	TS_CHECK(cq);
	addr = cm_loopback(l.port);
	sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	TS_CHECK(sock >= 0 && !connect(sock, (struct sockaddr *)&addr, sizeof(addr)));
	if (enhanced)
		say_enhanced_mpa(sock);
	else
		say_mpa(sock, MPA_CRC, 1);
	event = cm_request(&l);
	id = event->id;
	rdma_ack_cm_event(event);
	cm_create_qp(id, cq);
	TS_OK(ts_post_recv(id->qp, 1, &buf, 0, 64));
	cm_accept_id(id, NULL, 0);
	ts_event(l.events, RDMA_CM_EVENT_ESTABLISHED);
	memcpy((uint8_t *)buf.p + 1024, "ping", 4);
	TS_OK(ts_post(id->qp, IBV_WR_SEND, 2, &buf, 1024, 4, 0, 0, 0));
	TS_EQ(read_within(sock, reply, reply_len, TS_WAIT_MS), reply_len);
	assert_memory_equal(reply, "MPA ID Rep Frame", MPA_KEY_LEN);
	TS_EQ(reply[16] & (MPA_REJECT | 0x80), 0);
	TS_EQ(reply[16] & MPA_CRC, MPA_CRC);
	TS_EQ(reply[17], enhanced ? 2 : 1);
	n = read_within(sock, in, 1, quiet_ms);
	if (n)
		TS_FAIL("the passive side sent data before the active side's first FPDU");
	/* our first FPDU sets it free */
	if (enhanced)
		say_fpdu(sock, empty_write, sizeof(empty_write));
	else
		say_fpdu(sock, send_segment, sizeof(send_segment));
	TS_EQ(read_within(sock, in, send_len, TS_WAIT_MS), send_len);
	TS_EQ(in[1], sizeof(send_segment));
	assert_memory_equal(in + 20, "ping", 4);
	memcpy(&crc, in + 24, 4);
	TS_EQ(le32toh(crc), crc32c(in, 24));
	if (enhanced)
		say_fpdu(sock, send_segment, sizeof(send_segment));
	ts_poll(cq, wc, 2);
	TS_EQ(wc[0].status, IBV_WC_SUCCESS);
	TS_EQ(wc[1].status, IBV_WC_SUCCESS);
	assert_memory_equal(buf.p, "pong", 4);
	close(sock);
	ts_event(l.events, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(id);
	TS_CHECK(!rdma_destroy_id(id));
	TS_OK(ibv_destroy_cq(cq));
	cm_close_listener(&l);
	ts_buf_close(&buf);
}

static void passive_never_sends_first(void **state)
{
	(void)state;
	passive_waits(true, 1000);
}

/*
 * A peer that promises nothing may be one that waits for us, as Linux's siw does: after a while, long enough for
 * an active side to be ready, the passive side may send.
 */
static void passive_is_not_hasty(void **state)
{
	(void)state;
	passive_waits(false, 100);
}

/* Peers that are no iWARP peers: nothing reaches the program, and the listener stays usable. */
static void garbage_before_the_request(void **state)
{
	static const char *const lines[] = { "GET / HTTP/1.0\r\n\r\n", "", "MPA ID Req Fram",
					     "MPA ID Rep Frame\x40\x01\x00\x00" };
	struct rdma_cm_event *event;
	struct sockaddr_in addr;
	struct cm_listener l;
	struct cm_client c;
	uint8_t in[64];
	int sock;

	(void)state;
	cm_open_listener(&l, 4);
	addr = cm_loopback(l.port);
	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
		size_t len = i == 3 ? MPA_LEN : strlen(lines[i]);

		sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		TS_CHECK(sock >= 0 && !connect(sock, (struct sockaddr *)&addr, sizeof(addr)));
		TS_CHECK(write(sock, lines[i], len) == (ssize_t)len);
		if (i == 0 || i == 3)
			TS_EQ(read_within(sock, in, sizeof(in), 1000), 0);
		close(sock);
	}
	/* markers are refused by a reject frame */
	sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	TS_CHECK(sock >= 0 && !connect(sock, (struct sockaddr *)&addr, sizeof(addr)));
	say_mpa(sock, 0x80, 1);
	TS_EQ(read_within(sock, in, MPA_LEN, TS_WAIT_MS), MPA_LEN);
	TS_EQ(in[16] & MPA_REJECT, MPA_REJECT);
	close(sock);
	ts_no_event(l.events);
	cm_start_client(&c, l.port, NULL, 0);
	event = cm_request(&l);
	TS_CHECK(!rdma_reject(event->id, NULL, 0));
	{
		struct rdma_cm_id *id = event->id;

		rdma_ack_cm_event(event);
		TS_CHECK(!rdma_destroy_id(id));
	}
	ts_event(c.events, RDMA_CM_EVENT_REJECTED);
	cm_close_client(&c);
	cm_close_listener(&l);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(passive_never_sends_first),
		cmocka_unit_test(passive_is_not_hasty),
		cmocka_unit_test(garbage_before_the_request),
	};

	return ts_main(argc, argv, "cm_first", tests, sizeof(tests) / sizeof(*tests), NULL);
}
