// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A peer that speaks nonsense: what it gets back, and that it can neither stop nor flood the link.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/core/hw.h"
#include "adapter/wire/mpa.h"
#include "tests/link/peer.h"
#include "tests/wire/check.h"

enum {
	MEM = 1 << 20
};

struct case_ {
	struct rig rig;
	struct bytes out, in;
	int fds[2];
};

static void open_case(struct case_ *c, bool crc)
{
	memset(c, 0, sizeof(*c));
	rig_sockets(c->fds, false);
	rig_open(&c->rig, c->fds[0], MEM, &(struct rig_options){ .crc = crc });
}

static void close_case(struct case_ *c)
{
	bytes_free(&c->out);
	bytes_free(&c->in);
	if (c->fds[1] >= 0)
		close(c->fds[1]);
	rig_close(&c->rig);
}

/*
 * The link answers c->out with nothing but a Terminate of @cause, ends its stream, throws away
 * what follows, and is CLOSED when the peer ends too.
 */
static void expect_terminate(struct case_ *c, enum ea_term_cause cause, bool crc)
{
	struct ea_term_codes want = ea_term_codes(cause);
	static const uint8_t garbage[5000];
	struct ea_terminate term;
	struct peer_fpdu fpdu;
	struct rig_wc wc;
	size_t pos = 0;

	peer_write(c->fds[1], c->out.p, c->out.len, &c->rig);
	assert_true(peer_read(c->fds[1], &c->in, &c->rig));
	assert_true(peer_take(&c->in, &pos, &fpdu, crc));
	assert_int_equal(pos, c->in.len);
	assert_int_equal(fpdu.opcode, EA_RDMAP_TERMINATE);
	assert_int_equal(fpdu.hdr.msn, 1);
	assert_true(ea_terminate_decode(fpdu.payload, fpdu.len, &term));
	assert_int_equal(term.codes.layer, want.layer);
	assert_int_equal(term.codes.etype, want.etype);
	assert_int_equal(term.codes.code, want.code);

	assert_int_equal(ea_tcp_state(c->rig.link), EA_TCP_CLOSING);
	assert_true(ea_qp_state(ea_qp_find(c->rig.dev, RIG_QPN)) > EA_QP_CLOSING);
	assert_int_equal(c->rig.events, 1);
	while (rig_poll(&c->rig, &wc))
		assert_int_not_equal(wc.syndrome, EA_SYN_SUCCESS);
	peer_write(c->fds[1], garbage, sizeof(garbage), &c->rig);
	rig_pump(&c->rig, NULL);
	assert_int_equal(ea_tcp_state(c->rig.link), EA_TCP_CLOSING);
	assert_true(ea_tcp_discarded(c->rig.link) >= sizeof(garbage));
	shutdown(c->fds[1], SHUT_WR);
	rig_pump(&c->rig, NULL);
	assert_int_equal(ea_tcp_state(c->rig.link), EA_TCP_CLOSED);
	assert_int_equal(c->rig.events, 1);
}

/* Segments that no receiver may take. */
static void bad_segments(void **state)
{
	static const uint8_t payload[1000];
	static const struct {
		uint8_t opcode;
		uint32_t len;
		enum ea_term_cause cause;
		/* set on top of a good header */
		uint8_t ulp_ctrl;
		uint32_t qn, msn, mo, stag;
		bool flip_model, not_last, recv;
	} cases[] = {
		{ .opcode = EA_RDMAP_WRITE,
		  .len = 8,
		  .cause = EA_TERM_TAGGED_STAG,
		  .stag = 0x999900 },
		{ .opcode = EA_RDMAP_WRITE,
		  .len = 8,
		  .cause = EA_TERM_TAGGED_RIGHTS,
		  .stag = RIG_STAG_RO },
		{ .opcode = EA_RDMAP_WRITE,
		  .len = 8,
		  .cause = EA_TERM_RDMAP_VERSION,
		  .ulp_ctrl = 0x80 },
		{ .opcode = EA_RDMAP_WRITE, .len = 8, .cause = EA_TERM_OPCODE, .ulp_ctrl = 0x4e },
		{ .opcode = EA_RDMAP_WRITE, .len = 8, .cause = EA_TERM_OPCODE, .ulp_ctrl = 0x4f },
		{ .opcode = EA_RDMAP_WRITE, .len = 8, .cause = EA_TERM_OPCODE, .flip_model = true },
		{ .opcode = EA_RDMAP_READ_RESP, .len = 8, .cause = EA_TERM_OPCODE },
		{ .opcode = EA_RDMAP_SEND, .len = 8, .cause = EA_TERM_OPCODE, .flip_model = true },
		{ .opcode = EA_RDMAP_SEND, .len = 8, .cause = EA_TERM_UNTAGGED_QN, .qn = 1 },
		{ .opcode = EA_RDMAP_SEND, .len = 8, .cause = EA_TERM_UNTAGGED_QN, .qn = 7 },
		{ .opcode = EA_RDMAP_SEND, .len = 8, .cause = EA_TERM_UNTAGGED_MSN, .msn = 2 },
		{ .opcode = EA_RDMAP_SEND,
		  .len = 8,
		  .cause = EA_TERM_UNTAGGED_MSN,
		  .msn = UINT32_MAX },
		{ .opcode = EA_RDMAP_SEND,
		  .len = 8,
		  .cause = EA_TERM_UNTAGGED_MO,
		  .mo = 8,
		  .recv = true },
		{ .opcode = EA_RDMAP_SEND,
		  .len = 1000,
		  .cause = EA_TERM_UNTAGGED_LEN,
		  .recv = true },
		{ .opcode = EA_RDMAP_SEND_INV,
		  .len = 8,
		  .cause = EA_TERM_CANNOT_INVALIDATE,
		  .recv = true },
		{ .opcode = EA_RDMAP_READ_REQ, .len = EA_READ_REQ_LEN - 1, .cause = EA_TERM_STREAM },
		{ .opcode = EA_RDMAP_READ_REQ, .len = EA_READ_REQ_LEN + 1, .cause = EA_TERM_STREAM },
		{ .opcode = EA_RDMAP_READ_REQ,
		  .len = EA_READ_REQ_LEN,
		  .cause = EA_TERM_STREAM,
		  .not_last = true },
		{ .opcode = EA_RDMAP_READ_REQ,
		  .len = EA_READ_REQ_LEN,
		  .cause = EA_TERM_UNTAGGED_MO,
		  .mo = 1 },
		{ .opcode = EA_RDMAP_ATOMIC_REQ, .len = 8, .cause = EA_TERM_STREAM },
		{ .opcode = EA_RDMAP_ATOMIC_RESP,
		  .len = EA_ATOMIC_RESP_LEN,
		  .cause = EA_TERM_OPCODE },
		{ .opcode = EA_RDMAP_IMM, .len = 9, .cause = EA_TERM_STREAM, .recv = true },
		{ .opcode = EA_RDMAP_TERMINATE, .len = 3, .cause = EA_TERM_STREAM },
		{ .opcode = EA_RDMAP_TERMINATE,
		  .len = EA_TERMINATE_MAX + 1,
		  .cause = EA_TERM_STREAM },
	};
	struct ea_ddp_hdr hdr;
	struct case_ c;
	size_t i;
	int crc;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (crc = 0; crc < 2; crc++) {
			open_case(&c, crc);
			if (cases[i].recv)
				rig_post_recv(&c.rig, 0, 64);
			hdr = peer_hdr(cases[i].opcode, cases[i].msn ? cases[i].msn : 1);
			hdr.stag = cases[i].stag;
			hdr.to = (uintptr_t)c.rig.mem;
			if (cases[i].ulp_ctrl)
				hdr.ulp_ctrl = cases[i].ulp_ctrl;
			if (cases[i].qn)
				hdr.qn = cases[i].qn;
			hdr.mo = cases[i].mo;
			hdr.tagged ^= cases[i].flip_model;
			hdr.last = !cases[i].not_last;
			peer_segment(&c.out, &hdr, payload, cases[i].len, crc);
			expect_terminate(&c, cases[i].cause, crc);
			close_case(&c);
		}
	}
}

static void bad_framing(void **state)
{
	static const struct {
		uint8_t ulpdu[20];
		size_t len;
		enum ea_term_cause cause;
	} cases[] = {
		{ { 0 }, 0, EA_TERM_FPDU_LEN },
		{ { 0xc1 }, 1, EA_TERM_FPDU_LEN },
		{ { 0xc1, 0x40 }, 13, EA_TERM_FPDU_LEN },
		{ { 0x41, 0x43 }, 17, EA_TERM_FPDU_LEN },
		{ { 0xc0, 0x40 }, 14, EA_TERM_TAGGED_VERSION },
		{ { 0xc2, 0x40 }, 14, EA_TERM_TAGGED_VERSION },
		{ { 0x40, 0x43 }, 18, EA_TERM_UNTAGGED_VERSION },
	};
	struct case_ c;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		open_case(&c, false);
		peer_fpdu(&c.out, cases[i].ulpdu, cases[i].len, false);
		expect_terminate(&c, cases[i].cause, false);
		close_case(&c);
	}
}

static void bad_crc(void **state)
{
	struct ea_ddp_hdr hdr;
	struct rig_wc wc;
	struct case_ c;

	(void)state;
	open_case(&c, true);
	rig_post_recv(&c.rig, 0, 64);
	hdr = peer_hdr(EA_RDMAP_SEND, 1);
	peer_segment(&c.out, &hdr, "payload", 7, false);
	peer_write(c.fds[1], c.out.p, c.out.len, &c.rig);
	assert_int_equal(ea_tcp_error(c.rig.link), EBADMSG);
	c.out.len = 0;
	assert_true(rig_poll(&c.rig, &wc));
	assert_int_not_equal(wc.syndrome, EA_SYN_SUCCESS);
	expect_terminate(&c, EA_TERM_CRC, true);
	close_case(&c);
}

/* The header that broke a rule comes back in the Terminate. */
static void terminate_copies_header(void **state)
{
	struct ea_ddp_hdr hdr, copy;
	struct ea_terminate term;
	struct ea_read_req req;
	struct peer_fpdu fpdu;
	uint8_t buf[EA_READ_REQ_LEN];
	struct case_ c;
	size_t pos = 0;

	(void)state;
	open_case(&c, false);
	req = (struct ea_read_req){
		.sink_stag = 1, .len = 64, .src_stag = 0x777700, .src_to = 4096
	};
	ea_read_req_encode(&req, buf);
	hdr = peer_hdr(EA_RDMAP_READ_REQ, 1);
	peer_segment(&c.out, &hdr, buf, sizeof(buf), false);
	peer_write(c.fds[1], c.out.p, c.out.len, &c.rig);
	assert_true(peer_read(c.fds[1], &c.in, &c.rig));
	assert_true(peer_take(&c.in, &pos, &fpdu, false));
	assert_true(ea_terminate_decode(fpdu.payload, fpdu.len, &term));
	assert_string_equal(ea_term_str(term.codes),
			    ea_term_str(ea_term_codes(EA_TERM_REMOTE_STAG)));
	assert_int_equal(term.seg_len, EA_DDP_UNTAGGED_LEN + EA_READ_REQ_LEN);
	assert_non_null(term.ddp_hdr);
	assert_int_equal(ea_ddp_decode(term.ddp_hdr, EA_DDP_UNTAGGED_LEN, &copy), EA_DDP_OK);
	assert_memory_equal(&copy, &hdr, sizeof(hdr));
	assert_non_null(term.rdmap_hdr);
	assert_memory_equal(term.rdmap_hdr, buf, sizeof(buf));
	close_case(&c);
}

/* @count READs of @len bytes each, as the peer would ask for them. */
static void ask_for_reads(struct case_ *c, uint32_t count, uint32_t len)
{
	struct ea_read_req req = { .len = len, .src_stag = RIG_STAG };
	uint8_t buf[EA_READ_REQ_LEN];
	struct ea_ddp_hdr hdr;
	uint32_t i;

	req.src_to = (uintptr_t)c->rig.mem;
	ea_read_req_encode(&req, buf);
	for (i = 0; i < count; i++) {
		hdr = peer_hdr(EA_RDMAP_READ_REQ, i + 1);
		peer_segment(&c->out, &hdr, buf, sizeof(buf), false);
	}
	peer_write(c->fds[1], c->out.p, c->out.len, &c->rig);
	rig_pump(&c->rig, NULL);
}

/* More READs than our IRD: the peer is stopped, not queued. */
static void too_many_reads(void **state)
{
	struct case_ c;

	(void)state;
	open_case(&c, false);
	ask_for_reads(&c, 18, 1 << 19);
	assert_int_equal(c.rig.events, 1);
	assert_int_equal(ea_tcp_state(c.rig.link), EA_TCP_CLOSING);
	close_case(&c);
}

/* A peer that asks for data and never reads: its requests end, our memory does not grow. */
static void reader_that_never_reads(void **state)
{
	struct ea_tcp_stats before, after;
	struct case_ c;
	uint32_t i;

	(void)state;
	open_case(&c, false);
	ask_for_reads(&c, 16, 1 << 20);
	ea_tcp_stats(c.rig.link, &before);
	assert_true(before.tx_bytes < 4 << 20);
	for (i = 0; i < 100; i++)
		assert_int_equal(ea_tcp_progress(c.rig.link, 1 << 20, 1 << 20),
				 EA_TCP_WAIT_IN | EA_TCP_WAIT_OUT);
	ea_tcp_stats(c.rig.link, &after);
	assert_int_equal(after.tx_bytes, before.tx_bytes);
	/* gone without a word */
	close(c.fds[1]);
	c.fds[1] = -1;
	rig_pump(&c.rig, NULL);
	assert_int_equal(ea_tcp_state(c.rig.link), EA_TCP_CLOSED);
	close_case(&c);
}

/* A flood against a link that is held stays in the kernel. */
static void flood_while_held(void **state)
{
	static uint8_t payload[60000];
	struct ea_tcp_stats stats;
	struct ea_ddp_hdr hdr;
	struct case_ c;
	size_t sent = 0;
	ssize_t n;

	(void)state;
	open_case(&c, false);
	hdr = peer_hdr(EA_RDMAP_SEND, 1);
	peer_segment(&c.out, &hdr, payload, sizeof(payload), false);
	for (;;) {
		n = send(c.fds[1], c.out.p + sent % c.out.len, c.out.len - sent % c.out.len,
			 MSG_DONTWAIT);
		if (n < 0 && ea_tcp_progress(c.rig.link, 1 << 20, 1 << 20) == EA_TCP_HELD) {
			n = send(c.fds[1], c.out.p, 1, MSG_DONTWAIT);
			if (n < 0)
				break;
		}
		sent += n > 0 ? n : 0;
		assert_true(sent < 64 << 20);
	}
	ea_tcp_stats(c.rig.link, &stats);
	assert_true(stats.rx_bytes <= EA_TCP_RX_STAGE);
	ea_tcp_hangup(c.rig.link, ETIMEDOUT);
	assert_int_equal(ea_tcp_state(c.rig.link), EA_TCP_CLOSED);
	assert_int_equal(ea_tcp_error(c.rig.link), ETIMEDOUT);
	assert_int_equal(c.rig.events, 1);
	close_case(&c);
}

/* The peer's own Terminate ends the QP; nothing is sent in return but the end of the stream. */
static void terminate_received(void **state)
{
	uint8_t buf[EA_TERMINATE_MAX];
	struct ea_terminate term;
	struct ea_ddp_hdr hdr;
	struct rig_wc wc;
	struct case_ c;
	uint32_t len;

	(void)state;
	open_case(&c, true);
	rig_post_recv(&c.rig, 0, 64);
	ea_terminate_init(&term, ea_term_codes(EA_TERM_GLOBAL), NULL, 0, NULL);
	len = ea_terminate_encode(&term, buf);
	hdr = peer_hdr(EA_RDMAP_TERMINATE, 1);
	peer_segment(&c.out, &hdr, buf, len, true);
	peer_write(c.fds[1], c.out.p, c.out.len, &c.rig);
	assert_true(peer_read(c.fds[1], &c.in, &c.rig));
	assert_int_equal(c.in.len, 0);
	assert_int_equal(c.rig.events, 1);
	assert_int_equal(ea_qp_state(ea_qp_find(c.rig.dev, RIG_QPN)), EA_QP_ERROR);
	assert_true(rig_poll(&c.rig, &wc));
	assert_int_not_equal(wc.syndrome, EA_SYN_SUCCESS);
	assert_int_equal(ea_tcp_state(c.rig.link), EA_TCP_CLOSING);
	close_case(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_segments),	    cmocka_unit_test(bad_framing),
		cmocka_unit_test(bad_crc),	    cmocka_unit_test(terminate_copies_header),
		cmocka_unit_test(too_many_reads),   cmocka_unit_test(reader_that_never_reads),
		cmocka_unit_test(flood_while_held), cmocka_unit_test(terminate_received),
	};

	return cmocka_run_group_tests_name("hostile", tests, NULL, NULL);
}
