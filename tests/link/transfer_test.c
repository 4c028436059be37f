// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Messages of each kind and size between two devices, over TCP and socket pairs, with and without
 * CRC.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/core/hw.h"
#include "adapter/wire/mpa.h"
#include "tests/link/peer.h"
#include "tests/wire/check.h"

enum {
	MEM = 4 << 20,
	HALF = MEM / 2
};

struct pair {
	struct rig a, b;
};

static void pair_open(struct pair *pair, bool tcp, const struct rig_options *options)
{
	int fds[2];

	rig_sockets(fds, tcp);
	rig_open(&pair->a, fds[0], MEM, options);
	rig_open(&pair->b, fds[1], MEM, options);
}

static void pair_close(struct pair *pair)
{
	rig_close(&pair->a);
	rig_close(&pair->b);
}

static void expect(struct pair *pair, struct rig *rig, uint8_t opcode, uint32_t size)
{
	struct rig_wc wc;

	assert_true(rig_wait(&pair->a, &pair->b, rig, &wc));
	assert_int_equal(wc.syndrome, EA_SYN_SUCCESS);
	assert_int_equal(wc.opcode, opcode);
	if (wc.qtype == EA_QTYPE_RQ)
		assert_int_equal(wc.size, size);
}

static void one_size(struct pair *pair, uint32_t len, uint32_t seed)
{
	struct rig *a = &pair->a, *b = &pair->b;
	uint64_t remote = (uintptr_t)b->mem;

	rig_fill(a, 0, len, seed);
	memset(b->mem, 0xee, len + 8);
	rig_post_recv(b, 4, HALF);
	rig_post_send(a, 0, len, RIG_SIGNAL);
	expect(pair, a, EA_OP_SEND, 0);
	expect(pair, b, EA_OP_RECV, len);
	assert_true(rig_same(b, 4, len, seed));
	assert_int_equal(b->mem[3], 0xee);
	assert_int_equal(b->mem[4 + len], 0xee);

	rig_fill(a, 0, len, ++seed);
	rig_post_recv(b, 0, 0);
	rig_post_write_imm(a, 0, len, RIG_STAG, remote + HALF, htobe32(0x01020304), RIG_SIGNAL);
	expect(pair, a, EA_OP_WRITE_IMM, 0);
	expect(pair, b, EA_OP_RECV_IMM, len);
	assert_true(rig_same(b, HALF, len, seed));

	memset(a->mem, 0, len);
	rig_post_read(a, 0, len, RIG_STAG_RO, remote + HALF);
	expect(pair, a, EA_OP_READ, 0);
	assert_true(rig_same(a, 0, len, seed));
}

static void sizes(bool tcp, bool crc, uint32_t mulpdu)
{
	static const uint32_t lens[] = {
		0,    1,    3,	  4,	7,    64,   191,   192,	  193,	 1423,	1424,	1428,
		1429, 4095, 4096, 8191, 8192, 9000, 65516, 65520, 65535, 65536, 200001, HALF - 64
	};
	struct rig_options options = { .crc = crc, .mulpdu = mulpdu };
	struct pair pair;
	size_t i;

	pair_open(&pair, tcp, &options);
	for (i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
		one_size(&pair, lens[i], 77 * i);
	assert_int_equal(pair.a.events + pair.b.events, 0);
	pair_close(&pair);
}

static void over_tcp(void **state)
{
	(void)state;
	sizes(true, false, 0);
	sizes(true, true, 0);
}

static void over_socket_pair(void **state)
{
	(void)state;
	sizes(false, false, 0);
	sizes(false, true, 0);
}

static void short_segments(void **state)
{
	(void)state;
	sizes(true, true, EA_MULPDU_MIN);
	sizes(true, false, 1442);
	sizes(false, true, 1443);
}

static void longest_segments(void **state)
{
	(void)state;
	sizes(true, false, EA_MULPDU_MAX);
	sizes(true, true, EA_MULPDU_MAX - 1);
}

/* Sockets so small that each FPDU takes many writes. */
static void small_sockets(void **state)
{
	static const uint32_t lens[] = { 10, 1000, 30000, 65536, 300000 };
	struct rig_options options = { .mulpdu = EA_MULPDU_MAX, .crc = true };
	struct pair pair;
	int tcp;
	size_t i;

	(void)state;
	for (tcp = 0; tcp < 2; tcp++) {
		/* TCP gets so slow with less that it would be a test of patience */
		int size = tcp ? 32768 : 1;

		pair_open(&pair, tcp, &options);
		setsockopt(pair.a.fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
		setsockopt(pair.b.fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
		for (i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
			one_size(&pair, lens[i], i);
		pair_close(&pair);
	}
}

static void gathered_pieces(void **state)
{
	struct pair pair;
	uint32_t n, i;

	(void)state;
	pair_open(&pair, true, &(struct rig_options){ .crc = true, .mulpdu = 2000 });
	for (n = 1; n <= 6; n++) {
		rig_fill(&pair.a, 0, 6 * 5000, n);
		rig_post_recv(&pair.b, 0, HALF);
		rig_post_send_sgl(&pair.a, 0, 777, n, 5000);
		expect(&pair, &pair.a, EA_OP_SEND, 0);
		expect(&pair, &pair.b, EA_OP_RECV, 777 * n);
		for (i = 0; i < n; i++)
			assert_memory_equal(pair.b.mem + 777 * i, pair.a.mem + 5000 * i, 777);
	}
	pair_close(&pair);
}

static void atomics(void **state)
{
	struct pair pair;
	uint64_t *remote, *local;

	(void)state;
	pair_open(&pair, true, NULL);
	remote = (uint64_t *)(pair.b.mem + 64);
	local = (uint64_t *)pair.a.mem;
	*remote = 7;
	rig_post_cas(&pair.a, 0, RIG_STAG, (uintptr_t)remote, 7, 99);
	expect(&pair, &pair.a, EA_OP_CAS, 0);
	assert_int_equal(*local, 7);
	assert_int_equal(*remote, 99);
	rig_post_cas(&pair.a, 0, RIG_STAG, (uintptr_t)remote, 7, 1);
	expect(&pair, &pair.a, EA_OP_CAS, 0);
	assert_int_equal(*local, 99);
	assert_int_equal(*remote, 99);
	pair_close(&pair);
}

static void immediates(void **state)
{
	struct rig_wc wc;
	struct pair pair;

	(void)state;
	pair_open(&pair, true, NULL);
	rig_post_recv(&pair.b, 0, 64);
	rig_post_send_imm(&pair.a, 0, 5, 0x89abcdef, RIG_SIGNAL);
	assert_true(rig_wait(&pair.a, &pair.b, &pair.b, &wc));
	assert_int_equal(wc.opcode, EA_OP_RSP_SEND_IMM);
	/* the provider reads LE and stores BE; the program sees the bytes it posted */
	assert_int_equal(htobe32(le32toh(wc.extra)), 0x89abcdef);
	assert_int_equal(wc.size, 5);
	pair_close(&pair);
}

/* Both directions at once, deep queues, every kind mixed: order and content hold. */
static void mixed_load(void **state)
{
	enum {
		ROUNDS = 3000,
		DEPTH = 48,
		SLOT = 20000
	};
	uint64_t seed = 88172645463325252ull;
	uint32_t len[2][DEPTH], sent[2] = { 0 }, got[2] = { 0 };
	struct rig_wc wc;
	struct pair pair;
	struct rig *rigs[2] = { &pair.a, &pair.b };
	int i, idle = 0;

	(void)state;
	pair_open(&pair, true, &(struct rig_options){ .mulpdu = 3000 });
	for (i = 0; i < 2; i++)
		for (uint32_t n = 0; n < DEPTH; n++)
			rig_post_recv(rigs[i], HALF + n * SLOT, SLOT);
	while (got[0] < ROUNDS || got[1] < ROUNDS) {
		for (i = 0; i < 2; i++) {
			struct rig *rig = rigs[i], *peer = rigs[!i];
			uint32_t slot = sent[i] % DEPTH;

			/* a slot is free again when its message was received */
			while (sent[i] < ROUNDS && sent[i] - got[!i] < DEPTH) {
				slot = sent[i] % DEPTH;
				len[i][slot] = peer_random(&seed, 8) ? peer_random(&seed, 300) :
								       peer_random(&seed, SLOT);
				rig_fill(rig, slot * SLOT, len[i][slot], sent[i]);
				rig_post_send(rig, slot * SLOT, len[i][slot],
					      sent[i] % 16 ? 0 : RIG_SIGNAL);
				sent[i]++;
			}
			ea_tcp_progress(rig->link, 1 + peer_random(&seed, 30000),
					1 + peer_random(&seed, 30000));
			while (rig_poll(rig, &wc)) {
				idle = 0;
				assert_int_equal(wc.syndrome, EA_SYN_SUCCESS);
				if (wc.qtype == EA_QTYPE_SQ)
					continue;
				slot = got[i] % DEPTH;
				assert_int_equal(wc.size, len[!i][slot]);
				assert_true(rig_same(rig, HALF + slot * SLOT, wc.size, got[i]));
				rig_post_recv(rig, HALF + slot * SLOT, SLOT);
				got[i]++;
			}
			(void)peer;
		}
		assert_true(idle++ < 1000000);
	}
	pair_close(&pair);
}

/* Bytes that were read together with the MPA frame come first. */
static void handed_over_input(void **state)
{
	uint8_t early[EA_TCP_RX_STAGE];
	struct rig_wc wc;
	struct rig a, b;
	ssize_t got;
	int fds[2];
	int i;

	(void)state;
	rig_sockets(fds, false);
	rig_open(&a, fds[0], MEM, NULL);
	rig_fill(&a, 0, 3000, 5);
	for (i = 0; i < 4; i++)
		rig_post_send(&a, 0, 3000, RIG_SIGNAL);
	rig_pump(&a, NULL);
	got = recv(fds[1], early, sizeof(early), 0);
	assert_int_equal(got, sizeof(early));
	rig_open(&b, fds[1], MEM, &(struct rig_options){ .rx_data = early, .rx_len = got });
	for (i = 0; i < 4; i++)
		rig_post_recv(&b, i * 4096, 4096);
	for (i = 0; i < 4; i++) {
		assert_true(rig_wait(&a, &b, &b, &wc));
		assert_int_equal(wc.size, 3000);
		assert_true(rig_same(&b, i * 4096, 3000, 5));
	}
	rig_close(&a);
	rig_close(&b);
}

/* A message without a receive WQE stops its own connection, and that only. */
static void hold_and_resume(void **state)
{
	struct pair one, two;
	struct rig_wc wc;
	unsigned int notified;
	int i;

	(void)state;
	pair_open(&one, true, NULL);
	pair_open(&two, true, NULL);
	for (i = 0; i < 20; i++) {
		rig_fill(&one.a, i * 4096, 4000, i);
		rig_post_send(&one.a, i * 4096, 4000, RIG_SIGNAL);
	}
	rig_pump(&one.a, &one.b);
	assert_false(rig_poll(&one.b, &wc));
	assert_int_equal(ea_tcp_progress_rx(one.b.link, 1 << 20), EA_TCP_HELD);
	one_size(&two, 10000, 3);

	for (i = 0; i < 20; i++) {
		notified = one.b.notified;
		rig_post_recv(&one.b, i * 4096, 4096);
		assert_true(one.b.notified > notified);
		assert_true(rig_wait(&one.a, &one.b, &one.b, &wc));
		assert_int_equal(wc.size, 4000);
		assert_true(rig_same(&one.b, i * 4096, 4000, i));
		assert_false(rig_poll(&one.b, &wc));
	}
	pair_close(&one);
	pair_close(&two);
}

/*
 * A reader that does not read stops the writer, not the writer's other direction; nothing is lost.
 */
static void backpressure(void **state)
{
	enum {
		LEN = 1 << 20,
		COUNT = 64
	};
	struct rig_wc wc;
	struct pair pair;
	int i, sent = 0, done = 0;
	bool received = false;

	(void)state;
	pair_open(&pair, true, NULL);
	rig_fill(&pair.a, 0, LEN, 9);
	for (i = 0; i < COUNT; i++)
		rig_post_write(&pair.a, 0, LEN, RIG_STAG, (uintptr_t)pair.b.mem, RIG_SIGNAL);
	for (i = 0; i < 1000; i++)
		if (ea_tcp_progress_tx(pair.a.link, SIZE_MAX) == EA_TCP_WAIT_OUT)
			sent++;
	assert_int_equal(sent, 1000);
	rig_post_recv(&pair.a, HALF, 64);
	rig_post_send(&pair.b, 0, 8, RIG_SIGNAL);
	ea_tcp_progress_tx(pair.b.link, 1 << 20);
	while (!received) {
		ea_tcp_progress_rx(pair.a.link, 1 << 20);
		while (rig_poll(&pair.a, &wc)) {
			received |= wc.qtype == EA_QTYPE_RQ;
			done += wc.qtype == EA_QTYPE_SQ;
		}
	}
	assert_true(done < COUNT);
	while (done < COUNT) {
		if (rig_poll(&pair.a, &wc)) {
			assert_int_equal(wc.syndrome, EA_SYN_SUCCESS);
			done++;
		} else {
			ea_tcp_progress(pair.b.link, 1 << 20, 1 << 20);
			ea_tcp_progress(pair.a.link, 1 << 20, 1 << 20);
		}
	}
	rig_pump(&pair.a, &pair.b);
	assert_true(rig_same(&pair.b, 0, LEN, 9));
	pair_close(&pair);
}

/* A call moves what its budget says and one FPDU more at most, and says that there is more. */
static void budgets(void **state)
{
	enum {
		LEN = 1 << 20
	};
	struct ea_tcp_stats before, after;
	struct rig_wc wc;
	struct pair pair;
	size_t most = EA_MULPDU_MAX + EA_TCP_RX_STAGE;
	unsigned int wait;
	int calls = 0;

	(void)state;
	pair_open(&pair, true, NULL);
	rig_fill(&pair.a, 0, LEN, 4);
	rig_post_write(&pair.a, 0, LEN, RIG_STAG, (uintptr_t)pair.b.mem, RIG_SIGNAL);
	while (!rig_poll(&pair.a, &wc)) {
		ea_tcp_stats(pair.b.link, &before);
		wait = ea_tcp_progress_rx(pair.b.link, 10000);
		ea_tcp_stats(pair.b.link, &after);
		assert_true(after.rx_bytes - before.rx_bytes <= 10000 + most);
		calls += !!(wait & EA_TCP_MORE);
		ea_tcp_progress_tx(pair.a.link, 100000);
	}
	assert_true(calls > 1);
	assert_int_equal(ea_tcp_progress_rx(pair.b.link, 0), EA_TCP_MORE | EA_TCP_WAIT_IN);
	rig_post_write(&pair.a, 0, 8, RIG_STAG, (uintptr_t)pair.b.mem, RIG_SIGNAL);
	assert_int_equal(ea_tcp_progress_tx(pair.a.link, 0), EA_TCP_MORE);
	assert_int_equal(ea_tcp_progress_tx(pair.a.link, 1), 0);
	rig_pump(&pair.a, &pair.b);
	assert_true(rig_same(&pair.b, 0, LEN, 4));
	pair_close(&pair);
}

/*
 * The longest message there is, 4 GiB - 1, at an address whose offsets pass 2^32.  The receiver
 * here is no device, so that no memory is touched: offsets, lengths and flags of all segments must
 * add up.
 */
static void longest_message(void **state)
{
	const uint32_t len = UINT32_MAX;
	const uint64_t to = 0xffffffff00000ull;
	struct bytes in = { 0 };
	uint64_t total = 0;
	struct peer_fpdu fpdu;
	struct rig_wc wc;
	size_t pos = 0;
	bool last = false;
	struct rig rig;
	int fds[2];

	(void)state;
	rig_sockets(fds, true);
	rig_open(&rig, fds[0], (size_t)len + 4096,
		 &(struct rig_options){ .mulpdu = EA_MULPDU_MAX });
	rig_post_write(&rig, 1, len, 0x777, to, RIG_SIGNAL);
	bytes_add(&in, (uint8_t[1]){ 0 }, 1);
	in.p = realloc(in.p, 1 << 20);
	in.size = 1 << 20;
	in.len = 0;
	while (!last) {
		struct pollfd pfd = { .fd = fds[1], .events = POLLIN };
		ssize_t got;

		ea_tcp_progress_tx(rig.link, 1 << 20);
		assert_int_equal(poll(&pfd, 1, 5000), 1);
		got = recv(fds[1], in.p + in.len, in.size - in.len, 0);
		assert_true(got > 0);
		in.len += got;
		pos = 0;
		while (peer_take(&in, &pos, &fpdu, false)) {
			assert_false(last);
			assert_int_equal(fpdu.opcode, EA_RDMAP_WRITE);
			assert_int_equal(fpdu.hdr.stag, 0x777);
			assert_true(fpdu.hdr.to == to + total);
			total += fpdu.len;
			last = fpdu.hdr.last;
			assert_int_equal(last, total == len);
		}
		memmove(in.p, in.p + pos, in.len - pos);
		in.len -= pos;
	}
	assert_int_equal(in.len, 0);
	ea_tcp_progress_tx(rig.link, 1);
	assert_true(rig_poll(&rig, &wc));
	assert_int_equal(wc.syndrome, EA_SYN_SUCCESS);
	bytes_free(&in);
	close(fds[1]);
	rig_close(&rig);
}

/*
 * A large message costs about one system call for each FPDU, and little of it is copied in user
 * space.
 */
static void cost_of_large_messages(void **state)
{
	enum {
		LEN = 1 << 20,
		COUNT = 16
	};
	struct ea_tcp_stats tx, rx;
	struct pair pair;
	int i;

	(void)state;
	pair_open(&pair, true, &(struct rig_options){ .mulpdu = EA_MULPDU_MAX });
	for (i = 0; i < COUNT; i++)
		rig_post_write(&pair.a, 0, LEN, RIG_STAG, (uintptr_t)pair.b.mem, RIG_SIGNAL);
	/* a whole FPDU must lie in the socket, or calls are spent on waiting */
	for (i = 0; i < 2000; i++) {
		ea_tcp_progress_tx(pair.a.link, 1 << 18);
		ea_tcp_progress_rx(pair.b.link, 1 << 18);
	}
	rig_pump(&pair.a, &pair.b);
	ea_tcp_stats(pair.a.link, &tx);
	ea_tcp_stats(pair.b.link, &rx);
	assert_int_equal(rx.rx_bytes, tx.tx_bytes);
	assert_int_equal(rx.rx_fpdus, tx.tx_fpdus);
	assert_int_equal(tx.tx_fpdus, COUNT * 17);
	assert_true(rx.rx_copied < rx.rx_bytes / 4);
	pair_close(&pair);
}

/* Within a host connections have reno, whatever the system's have for the network. */
static void congestion_control(void **state)
{
	static const char *const others[] = { "cubic", "bbr" };
	char name[16] = "";
	socklen_t len = sizeof(name);
	struct rig rig;
	int fds[2];
	size_t i;

	(void)state;
	rig_sockets(fds, true);
	for (i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		setsockopt(fds[0], IPPROTO_TCP, TCP_CONGESTION, others[i], strlen(others[i]));
	rig_open(&rig, fds[0], MEM, &(struct rig_options){ 0 });
	assert_int_equal(getsockopt(fds[0], IPPROTO_TCP, TCP_CONGESTION, name, &len), 0);
	assert_string_equal(name, "reno");
	rig_close(&rig);
	close(fds[1]);
}

static void create_errors(void **state)
{
	static const struct ea_tcp_attr bad[] = {
		{ .fd = -1 },
		{ .fd = 0, .mulpdu = EA_MULPDU_MIN - 1 },
		{ .fd = 0, .mulpdu = EA_MULPDU_MAX + 1 },
		{ .fd = 0, .rx_len = EA_TCP_RX_STAGE + 1 },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		errno = 0;
		assert_null(ea_tcp_create(&bad[i]));
		assert_int_equal(errno, EINVAL);
	}
}

/* The bytes of a nudge, and that it keeps out of a frame under way. */
static void nudge_one(bool crc)
{
	static const uint8_t head[] = { 0, 14, 0xc1, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
	struct bytes in = { 0 };
	struct peer_fpdu fpdu;
	struct rig rig;
	size_t pos = 0;
	int fds[2];

	rig_sockets(fds, false);
	rig_open(&rig, fds[0], MEM, &(struct rig_options){ .crc = crc });
	assert_int_equal(ea_tcp_nudge(rig.link), 0);
	assert_false(peer_read(fds[1], &in, &rig));
	assert_int_equal(in.len, sizeof(head) + EA_FPDU_CRC_SIZE);
	assert_memory_equal(in.p, head, sizeof(head));
	assert_true(peer_take(&in, &pos, &fpdu, crc));
	assert_int_equal(fpdu.opcode, EA_RDMAP_WRITE);
	assert_int_equal(fpdu.len, 0);

	rig_post_write(&rig, 0, HALF, RIG_STAG, 0, 0);
	ea_tcp_progress_tx(rig.link, SIZE_MAX);
	assert_int_equal(ea_tcp_nudge(rig.link), EAGAIN);
	assert_false(peer_read(fds[1], &in, &rig));
	assert_int_equal(ea_tcp_nudge(rig.link), 0);
	assert_false(peer_read(fds[1], &in, &rig));
	while (pos < in.len)
		assert_true(peer_take(&in, &pos, &fpdu, crc));
	assert_int_equal(fpdu.len, 0);

	ea_tcp_hangup(rig.link, ECONNRESET);
	assert_int_equal(ea_tcp_nudge(rig.link), EPIPE);
	close(fds[1]);
	bytes_free(&in);
	rig_close(&rig);
}

static void nudges(void **state)
{
	struct pair pair;

	(void)state;
	nudge_one(false);
	nudge_one(true);
	/* a device takes it without a trace */
	pair_open(&pair, true, &(struct rig_options){ .crc = true });
	assert_int_equal(ea_tcp_nudge(pair.a.link), 0);
	one_size(&pair, 100, 1);
	assert_int_equal(ea_tcp_nudge(pair.b.link), 0);
	one_size(&pair, 100, 2);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(over_tcp),
		cmocka_unit_test(over_socket_pair),
		cmocka_unit_test(congestion_control),
		cmocka_unit_test(short_segments),
		cmocka_unit_test(longest_segments),
		cmocka_unit_test(small_sockets),
		cmocka_unit_test(gathered_pieces),
		cmocka_unit_test(atomics),
		cmocka_unit_test(immediates),
		cmocka_unit_test(mixed_load),
		cmocka_unit_test(handed_over_input),
		cmocka_unit_test(hold_and_resume),
		cmocka_unit_test(backpressure),
		cmocka_unit_test(budgets),
		cmocka_unit_test(longest_message),
		cmocka_unit_test(cost_of_large_messages),
		cmocka_unit_test(nudges),
		cmocka_unit_test(create_errors),
	};

	return cmocka_run_group_tests_name("transfer", tests, NULL, NULL);
}
