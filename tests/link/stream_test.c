// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * One recorded byte stream, delivered in every way a network may deliver it: in pieces, cut short,
 * and corrupted.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/core/hw.h"
#include "tests/link/peer.h"
#include "tests/wire/check.h"

enum {
	MEM = 1 << 20,
	SENDS = 6,
	TARGET = 512 << 10,
	WRITE_LEN = 30000
};

static const uint32_t send_len[SENDS] = { 0, 1, 100, 5000, 16, 3001 };

/*
 * What a device sends for six Sends and two Writes of any memory of the receiver at @remote.  Ends
 * of messages are noted in @ends.
 */
static void record(struct bytes *stream, uint32_t mulpdu, bool crc, uint64_t remote, size_t *ends)
{
	struct rig rig;
	int fds[2];
	int i, n = 0;

	rig_sockets(fds, false);
	rig_open(&rig, fds[0], MEM, &(struct rig_options){ .crc = crc, .mulpdu = mulpdu });
	for (i = 0; i < SENDS; i++) {
		rig_fill(&rig, 0, send_len[i], i);
		rig_post_send(&rig, 0, send_len[i], RIG_SIGNAL);
		assert_false(peer_read(fds[1], stream, &rig));
		ends[n++] = stream->len;
		if (i % 3)
			continue;
		rig_fill(&rig, 0, WRITE_LEN, 100 + i);
		rig_post_write(&rig, 0, WRITE_LEN, RIG_STAG, remote + TARGET + i * WRITE_LEN, 0);
		assert_false(peer_read(fds[1], stream, &rig));
		ends[n++] = stream->len;
	}
	close(fds[1]);
	rig_close(&rig);
}

enum {
	NR_ENDS = SENDS + 2
};

static void open_receiver(struct rig *rig, int fds[2], bool crc)
{
	int i;

	rig_sockets(fds, false);
	rig_open(rig, fds[0], MEM, &(struct rig_options){ .crc = crc });
	for (i = 0; i < SENDS; i++)
		rig_post_recv(rig, i * 8192, 8192);
}

/* Sends that have arrived, each of them checked. */
static int arrived(struct rig *rig)
{
	struct rig_wc wc;
	int n = 0;

	while (rig_poll(rig, &wc)) {
		if (wc.syndrome)
			continue;
		assert_int_equal(wc.opcode, EA_OP_RECV);
		assert_int_equal(wc.size, send_len[n]);
		assert_true(rig_same(rig, n * 8192, wc.size, n));
		n++;
	}
	return n;
}

static void deliver(uint32_t mulpdu, bool crc, uint32_t most, uint64_t seed)
{
	struct bytes stream = { 0 };
	size_t ends[NR_ENDS], at, piece;
	struct rig rig;
	int fds[2];

	open_receiver(&rig, fds, crc);
	record(&stream, mulpdu, crc, (uintptr_t)rig.mem, ends);
	for (at = 0; at < stream.len; at += piece) {
		piece = 1 + peer_random(&seed, most);
		if (piece > stream.len - at)
			piece = stream.len - at;
		peer_write(fds[1], stream.p + at, piece, &rig);
	}
	rig_pump(&rig, NULL);
	assert_int_equal(arrived(&rig), SENDS);
	assert_true(rig_same(&rig, TARGET, WRITE_LEN, 100));
	assert_true(rig_same(&rig, TARGET + 3 * WRITE_LEN, WRITE_LEN, 103));
	assert_int_equal(ea_tcp_state(rig.link), EA_TCP_OPEN);
	assert_int_equal(rig.events, 0);
	bytes_free(&stream);
	close(fds[1]);
	rig_close(&rig);
}

static void byte_by_byte(void **state)
{
	(void)state;
	deliver(0, false, 1, 1);
	deliver(0, true, 1, 1);
	deliver(128, true, 1, 1);
}

static void random_pieces(void **state)
{
	static const uint32_t most[] = { 3, 30, 300, 3000, 30000 };
	uint64_t seed = 4711;
	size_t i, round;

	(void)state;
	for (i = 0; i < sizeof(most) / sizeof(most[0]); i++) {
		for (round = 0; round < 4; round++) {
			seed += 0x9e3779b97f4a7c15;
			deliver(round & 1 ? 1442 : 0, round & 2, most[i], seed);
		}
	}
}

/* Sends of which all bytes lie before @at. */
static int sends_before(const size_t *ends, size_t at)
{
	int i, n = 0;

	/* the second and the sixth message are Writes */
	for (i = 0; i < NR_ENDS; i++)
		n += ends[i] <= at && i != 1 && i != 5;
	return n;
}

static bool near_end(const size_t *ends, size_t at)
{
	int i;

	for (i = 0; i < NR_ENDS; i++)
		if (at + 62 >= ends[i] && at <= ends[i] + 62)
			return true;
	return at < 62;
}

static bool is_message_end(const size_t *ends, size_t len)
{
	int i;

	for (i = 0; i < NR_ENDS; i++)
		if (ends[i] == len)
			return true;
	return !len;
}

static bool is_fpdu_end(const struct bytes *stream, size_t len, bool crc)
{
	struct peer_fpdu fpdu;
	size_t pos = 0;

	while (pos < len && peer_take(stream, &pos, &fpdu, crc))
		continue;
	return pos == len;
}

/*
 * EOF between messages is an orderly end, anywhere else an error; and what was whole has arrived.
 */
static void cut_short(void **state)
{
	struct bytes stream = { 0 };
	size_t ends[NR_ENDS], len, step;
	bool whole, framed;
	struct rig rig;
	int fds[2];

	(void)state;
	for (len = 0;; len += step) {
		open_receiver(&rig, fds, true);
		stream.len = 0;
		record(&stream, 2000, true, (uintptr_t)rig.mem, ends);
		if (len > stream.len)
			break;
		whole = is_message_end(ends, len);
		framed = is_fpdu_end(&stream, len, true);
		peer_write(fds[1], stream.p, len, &rig);
		shutdown(fds[1], SHUT_WR);
		rig_pump(&rig, NULL);
		assert_int_equal(ea_tcp_state(rig.link), EA_TCP_CLOSED);
		assert_true(ea_tcp_peer_closed(rig.link));
		assert_int_equal(ea_tcp_error(rig.link), framed ? 0 : EPROTO);
		assert_int_equal(ea_qp_state(ea_qp_find(rig.dev, RIG_QPN)),
				 whole ? EA_QP_CLOSING : EA_QP_ERROR);
		assert_int_equal(rig.events, !whole);
		assert_int_equal(arrived(&rig), sends_before(ends, len));
		close(fds[1]);
		rig_close(&rig);
		/* every byte near ends of messages, samples elsewhere */
		step = near_end(ends, len) ? 1 : 61;
	}
	close(fds[1]);
	rig_close(&rig);
	bytes_free(&stream);
}

/*
 * One byte wrong anywhere: with CRC no message from there on is reported, and those before are.
 */
static void corrupted(void **state)
{
	struct bytes stream = { 0 };
	size_t ends[NR_ENDS], at;
	uint64_t seed = 99;
	struct rig rig;
	int fds[2];

	(void)state;
	for (at = 0; at < 45000; at += 1 + at / 40) {
		open_receiver(&rig, fds, true);
		stream.len = 0;
		record(&stream, 2000, true, (uintptr_t)rig.mem, ends);
		if (at >= stream.len) {
			close(fds[1]);
			rig_close(&rig);
			break;
		}
		stream.p[at] ^= 1 << peer_random(&seed, 8);
		peer_write(fds[1], stream.p, stream.len, &rig);
		shutdown(fds[1], SHUT_WR);
		rig_pump(&rig, NULL);
		assert_int_equal(arrived(&rig), sends_before(ends, at));
		assert_true(ea_tcp_error(rig.link) || rig.events);
		assert_int_equal(ea_tcp_state(rig.link), EA_TCP_CLOSED);
		close(fds[1]);
		rig_close(&rig);
	}
	bytes_free(&stream);
}

/*
 * Without CRC anything may arrive, but nothing outside of what was offered, and no call hangs or
 * crashes.
 */
static void garbled_without_crc(void **state)
{
	struct bytes stream = { 0 };
	size_t ends[NR_ENDS], at;
	uint64_t seed = 4242;
	struct rig rig;
	int fds[2];
	int round, i;

	(void)state;
	for (round = 0; round < 300; round++) {
		open_receiver(&rig, fds, false);
		stream.len = 0;
		record(&stream, 2000, false, (uintptr_t)rig.mem, ends);
		for (i = 0; i < 1 + round % 5; i++) {
			at = peer_random(&seed, round % 2 ? 400 : stream.len);
			stream.p[at] = peer_random(&seed, 256);
		}
		peer_write(fds[1], stream.p, stream.len, &rig);
		shutdown(fds[1], SHUT_WR);
		rig_pump(&rig, NULL);
		/* a message may have become a longer one that is held for a receive WQE */
		if (ea_tcp_state(rig.link) != EA_TCP_CLOSED) {
			assert_true(ea_tcp_progress_rx(rig.link, 1) & EA_TCP_HELD);
			ea_tcp_hangup(rig.link, ECONNRESET);
		}
		assert_int_equal(ea_tcp_state(rig.link), EA_TCP_CLOSED);
		close(fds[1]);
		rig_close(&rig);
	}
	bytes_free(&stream);
}

/* The program changes what is being sent: the peer sees some of it, and never a wrong CRC. */
static void source_changes(void **state)
{
	enum {
		LEN = 700 << 10
	};
	struct bytes stream = {};
	struct peer_fpdu fpdu;
	size_t pos = 0, got = 0;
	struct rig_wc wc;
	struct rig rig;
	int fds[2];

	(void)state;
	rig_sockets(fds, false);
	rig_open(&rig, fds[0], MEM, &(struct rig_options){ .crc = true });
	rig_fill(&rig, 0, LEN, 1);
	rig_post_write(&rig, 0, LEN, RIG_STAG, TARGET, RIG_SIGNAL);
	assert_int_equal(ea_tcp_progress_tx(rig.link, SIZE_MAX), EA_TCP_WAIT_OUT);
	rig_fill(&rig, 0, LEN, 2);
	assert_false(peer_read(fds[1], &stream, &rig));
	while (peer_take(&stream, &pos, &fpdu, true)) {
		assert_int_equal(fpdu.hdr.to, TARGET + got);
		got += fpdu.len;
	}
	assert_int_equal(pos, stream.len);
	assert_int_equal(got, LEN);
	assert_true(rig_poll(&rig, &wc));
	assert_int_equal(wc.syndrome, EA_SYN_SUCCESS);
	bytes_free(&stream);
	close(fds[1]);
	rig_close(&rig);
}

/* Nothing is placed before its CRC was right. */
static void placed_when_right(void **state)
{
	struct ea_ddp_hdr hdr = peer_hdr(EA_RDMAP_WRITE, 0);
	static uint8_t payload[WRITE_LEN];
	struct bytes stream = {};
	struct rig rig;
	int fds[2], bad;

	(void)state;
	memset(payload, 7, sizeof(payload));
	for (bad = 0; bad < 2; bad++) {
		open_receiver(&rig, fds, true);
		hdr.stag = RIG_STAG;
		hdr.to = (uintptr_t)rig.mem + TARGET;
		stream.len = 0;
		peer_segment(&stream, &hdr, payload, sizeof(payload), true);
		stream.p[stream.len - 1] ^= bad;
		peer_write(fds[1], stream.p, stream.len - 1, &rig);
		rig_pump(&rig, NULL);
		assert_int_equal(rig.mem[TARGET], 0);
		assert_int_equal(rig.mem[TARGET + WRITE_LEN - 1], 0);
		peer_write(fds[1], stream.p + stream.len - 1, 1, &rig);
		rig_pump(&rig, NULL);
		if (bad) {
			assert_int_equal(rig.mem[TARGET], 0);
			assert_int_equal(ea_tcp_error(rig.link), EBADMSG);
		} else {
			assert_memory_equal(rig.mem + TARGET, payload, sizeof(payload));
			assert_int_equal(ea_tcp_state(rig.link), EA_TCP_OPEN);
		}
		close(fds[1]);
		rig_close(&rig);
	}
	bytes_free(&stream);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(byte_by_byte),	       cmocka_unit_test(random_pieces),
		cmocka_unit_test(cut_short),	       cmocka_unit_test(corrupted),
		cmocka_unit_test(garbled_without_crc), cmocka_unit_test(source_changes),
		cmocka_unit_test(placed_when_right),
	};

	return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
