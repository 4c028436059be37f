// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Routing and ids, step by step: registration, active and passive connections, equal ids, rejects without id, both ends local, SIDR. The
 * scenario numbers are those of docs/mux.md's list of tests.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/mux/rig.h"

#define VALID_VID(v) ((v) != 0 && (v) >> 24 != 0 && (v) != UINT32_MAX)

static void s1_registration(void **state)
{
	struct rig *r = *state;
	int a = rig_connect(r), b = rig_connect(r);
	uint8_t frame[FRAME], ans[FRAME], zero[16] = { 0 }, g[16];

	assert_int_equal(wire_reg(a, GA), 0);
	assert_int_equal(wire_reg(a, GA), 2);
	assert_int_equal(wire_reg(b, GA), 3);
	assert_int_equal(wire_reg(a, LA), 0);
	assert_int_equal(wire_reg(b, LB), 0);
	assert_int_equal(wire_unreg(b, GA), 3);
	assert_int_equal(wire_reg(b, GA), 3);
	assert_int_equal(wire_unreg(a, GA), 0);
	assert_int_equal(wire_unreg(a, GA), 4);
	assert_int_equal(wire_reg(a, zero), 1);
	frame_simple(frame, 9, GA);
	assert_int_equal(wire_call(a, frame, ans), 1);
	/* An answer echoes the operation and the GID, and nothing of the MAD. */
	frame_simple(frame, OP_REG, GA);
	assert_int_equal(wire_call(a, frame, ans), 0);
	assert_int_equal(host32(ans + F_OP), OP_REG);
	assert_memory_equal(ans + F_SGID, GA, 16);
	assert_int_equal(host32(ans + F_LEN), 0);
	for (unsigned int i = F_UMAD; i < FRAME; i++)
		assert_int_equal(ans[i], 0);
	put_host32(frame + F_TYPE, T_RESP);
	wire_send(a, frame, FRAME);
	assert_true(wire_closes(a, RIG_MS));
	close(a);
	rig_advance(r, 31000);
	rig_wait_status(r, "clients_in_grace", 0);
	assert_int_equal(wire_reg(b, GA), 0);
	/* Quota: b has LB and GA, a third client takes all that one may have. */
	a = rig_connect(r);
	for (unsigned int i = 0; i < 256; i++) {
		gid4(g, 0x0b000001 + i);
		assert_int_equal(wire_reg(a, g), 0);
	}
	gid4(g, 0x0b010000);
	assert_int_equal(wire_reg(a, g), 3);
	close(a);
	close(b);
}

static void s1_refused_gids(void **state)
{
	struct rig *r = *state;
	int a = rig_connect(r);
	uint8_t g[16];

	gid4(g, 0x7f000001);
	assert_int_equal(wire_reg(a, g), 3);
	gid4(g, 0xe0000001);
	assert_int_equal(wire_reg(a, g), 3);
	gid6(g, 0, 1);
	assert_int_equal(wire_reg(a, g), 3);
	gid6(g, 0xff02000000000000, 1);
	assert_int_equal(wire_reg(a, g), 3);
	/* The same IID under two prefixes are two GIDs. */
	gid6(g, 0x20010db800000001, 0x505400fffe123456);
	assert_int_equal(wire_reg(a, g), 0);
	gid6(g, 0x20010db800000002, 0x505400fffe123456);
	assert_int_equal(wire_reg(a, g), 0);
	close(a);
}

static void s2_active(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA);
	uint8_t mad[MAD], out[MAD], in[MAD];
	uint32_t va, tid_low;

	mad_req(mad, 0xa001, 0x000000110000a001, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, REQ, GP, 1);
	va = be32(out + M_LOCAL);
	tid_low = be32(out + M_TID_LOW);
	assert_true(VALID_VID(va));
	assert_memory_equal(out, mad, 8);
	assert_memory_equal(out + 16, mad + 16, 8);
	assert_memory_equal(out + 28, mad + 28, MAD - 28);
	/* A retransmission is one. */
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, REQ, GP, 1);
	assert_int_equal(be32(out + M_LOCAL), va);
	assert_int_equal(be32(out + M_TID_LOW), tid_low);
	assert_int_equal(rig_status(r, "sessions"), 1);

	mad_pair(mad, MRA, 0x55, va, be64(out + M_TID));
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, MRA, GA, GP);
	assert_int_equal(be32(in + M_LOCAL), 0x55);
	assert_int_equal(be32(in + M_REMOTE), 0xa001);
	mad_rep(mad, 0x55, va, 0x7700000000 | tid_low, CA_P, QPN_P);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, REP, GA, GP);
	assert_int_equal(be32(in + M_REMOTE), 0xa001);
	assert_true(be64(in + M_TID) == 0x000000110000a001);
	assert_memory_equal(in + 32, mad + 32, MAD - 32);

	mad_pair(mad, RTU, 0xa001, 0x55, be64(in + M_TID));
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, RTU, GP, 1);
	assert_int_equal(be32(out + M_LOCAL), va);
	assert_int_equal(be32(out + M_REMOTE), 0x55);
	/* Idle for ten days: the connection is still there. */
	rig_advance(r, 864000000);
	assert_int_equal(wire_reg(a, LA), 0);
	mad_pair(mad, DREQ, 0x55, va, 0x7700000042);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, DREQ, GA, GP);
	assert_int_equal(be32(in + M_REMOTE), 0xa001);
	mad_pair(mad, DREP, 0xa001, 0x55, be64(in + M_TID));
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, DREP, GP, 1);
	assert_int_equal(be32(out + M_LOCAL), va);
	assert_int_equal(be32(out + M_TID_LOW), 0x42);
	rig_advance(r, 10000);
	mad_pair(mad, DREQ, 0x55, va, 0x7700000042);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, DREQ, GA, GP);
	rig_advance(r, 121000);
	rig_wait_status(r, "sessions", 0);
	rig_inject(r, GP, 1, mad);
	rig_expect_write(r, out, DREP, GP, 1);
	assert_int_equal(be32(out + M_LOCAL), va);
	assert_int_equal(be32(out + M_REMOTE), 0x55);
	assert_int_equal(be32(out + M_TID_LOW), 0x42);
	rig_expect_nothing(a);
	close(a);
}

static void s2_reuse_of_an_id(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA);
	uint8_t mad[MAD], out[MAD], in[MAD];
	uint32_t va, vb;

	mad_req(mad, 7, 7, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, REQ, GP, 1);
	va = be32(out + M_LOCAL);
	mad_rej(mad, 0, va, 7, 0, 8);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, REJ, GA, GP);
	assert_int_equal(be32(in + M_REMOTE), 7);
	/* The same id for a new connection while the old one lingers. */
	mad_req(mad, 7, 8, GA, GP, CA_A, QPN_A + 1, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, REQ, GP, 1);
	vb = be32(out + M_LOCAL);
	assert_int_not_equal(va, vb);
	/* A late reject of the old one names the old one; its id is the same to the client. */
	mad_rep(mad, 0x60, vb, 8, CA_P, QPN_P);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, REP, GA, GP);
	mad_pair(mad, RTU, 7, 0x60, 8);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, RTU, GP, 1);
	assert_int_equal(be32(out + M_LOCAL), vb);
	close(a);
}

static void s3_passive(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), b = rig_connect_reg(r, LB);
	uint8_t mad[MAD], out[MAD], in[MAD], lp[16];
	uint32_t vb;

	mad_req(mad, 0x77, 0x500000077, GP, GA, CA_P, QPN_P, SVC_TCP);
	for (unsigned int i = 0; i < 2; i++) {
		rig_inject(r, GP, 1, mad);
		rig_expect_mad(a, in, REQ, GA, GP);
		assert_memory_equal(in, mad, MAD);
	}
	assert_int_equal(rig_status(r, "sessions"), 1);
	mad_pair(mad, MRA, 0xb001, 0x77, 0x500000077);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, MRA, GP, 1);
	vb = be32(out + M_LOCAL);
	assert_true(VALID_VID(vb));
	mad_rep(mad, 0xb001, 0x77, 0x500000077, CA_A, QPN_A);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, REP, GP, 1);
	assert_int_equal(be32(out + M_LOCAL), vb);
	assert_int_equal(be32(out + M_REMOTE), 0x77);
	assert_int_equal(be32(out + M_TID_LOW), 0x77);
	assert_memory_equal(out + 32, mad + 32, MAD - 32);
	mad_pair(mad, RTU, 0x77, vb, 0x500000077);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, RTU, GA, GP);
	assert_int_equal(be32(in + M_REMOTE), 0xb001);

	mad_req(mad, 0x78, 0x78, GQ, GA, CA_Q, QPN_P, SVC_TCP);
	rig_inject(r, GQ, 1, mad);
	rig_expect_mad(a, in, REQ, GA, GQ);
	mad_rej(mad, 0, 0x78, 0x78, 0, 8);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, REJ, GQ, 1);
	assert_int_equal(be32(out + M_LOCAL), 0);
	assert_int_equal(be32(out + M_REMOTE), 0x78);
	/* Linux copies the REQ's vendor id to where the local id would be. */
	mad_req(mad, 0x79, 0x79, GP, GA, CA_P, QPN_P, SVC_TCP);
	put_be32(mad + 28, 0x0c);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, REQ, GA, GP);
	mad_rej(mad, 0x0c, 0x79, 0x79, 0, 8);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, REJ, GP, 1);
	assert_int_equal(be32(out + M_LOCAL), 0x0c);

	gid6(lp, 0xfe80000000000000, 0x0202c9fffe000007);
	mad_req(mad, 0x7a, 0x7a, lp, LB, CA_P, QPN_P, SVC_TCP);
	rig_inject(r, lp, 4, mad);
	rig_expect_mad(b, in, REQ, LB, lp);
	rig_expect_nothing(a);
	close(a);
	close(b);
}

static void s3_same_peer_id_twice(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA);
	uint8_t mad[MAD], out[MAD], in[MAD];

	/* Two peers with the same id and even the same transaction low half as others use. */
	mad_req(mad, 0x40, 0x4001, GP, GA, CA_P, QPN_P, SVC_TCP);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, REQ, GA, GP);
	mad_req(mad, 0x40, 0x4002, GQ, GA, CA_Q, QPN_P, SVC_TCP);
	rig_inject(r, GQ, 1, mad);
	rig_expect_mad(a, in, REQ, GA, GQ);
	mad_rep(mad, 0x1, 0x40, 0x4001, CA_A, QPN_A);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, REP, GP, 1);
	mad_rep(mad, 0x2, 0x40, 0x4002, CA_A, QPN_A);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, REP, GQ, 1);
	close(a);
}

static void s4_equal_ids(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), b = rig_connect_reg(r, GB);
	uint8_t mad[MAD], out[MAD], in[MAD];
	uint32_t va, vb, vs, ta, tb;

	mad_req(mad, 1, 1, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, REQ, GP, 1);
	va = be32(out + M_LOCAL);
	ta = be32(out + M_TID_LOW);
	mad_req(mad, 1, 1, GB, GP, CA_B, QPN_B, SVC_TCP);
	assert_int_equal(wire_mad(b, GB, mad), 0);
	rig_expect_write(r, out, REQ, GP, 2);
	vb = be32(out + M_LOCAL);
	tb = be32(out + M_TID_LOW);
	assert_int_not_equal(va, vb);
	assert_int_not_equal(ta, tb);
	mad_rep(mad, 0x91, va, ta, CA_P, QPN_P);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, REP, GA, GP);
	assert_int_equal(be32(in + M_REMOTE), 1);
	mad_rep(mad, 0x92, vb, tb, CA_P, QPN_P);
	rig_inject(r, GP, 2, mad);
	rig_expect_mad(b, in, REP, GB, GP);
	assert_int_equal(be32(in + M_REMOTE), 1);
	/* A SIDR request of the same number is another thing. */
	mad_sidr_req(mad, 1, 1, SVC_UDP);
	mad[41] = 0x40;
	memcpy(mad + 56, GA + 12, 4);
	memcpy(mad + 72, GP + 12, 4);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, SIDR_REQ, GP, 1);
	vs = be32(out + M_LOCAL);
	assert_true(VALID_VID(vs) && vs != va && vs != vb);
	mad_header(mad, SIDR_REP, be32(out + M_TID_LOW));
	put_be32(mad + 24, vs);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, SIDR_REP, GA, GP);
	assert_int_equal(be32(in + 24), 1);
	/* B tries A's id on the wire. */
	mad_pair(mad, DREQ, va, 0x91, 9);
	assert_int_equal(wire_mad(b, GB, mad), 4);
	rig_expect_mad(b, in, DREP, GB, GB);
	rig_expect_no_write(r, b);
	close(a);
	close(b);
}

static void s5_rej_without_id(void **state)
{
	struct rig *r = *state;
	int a, b;
	uint8_t mad[MAD], out[MAD], in[MAD];
	uint32_t va;

	/* Before anything else. */
	mad_rej(mad, 0x90, 0, 1, 2, 4);
	rig_inject(r, GP, 1, mad);
	rig_wait_dropped(r, "unknown_id", 1);
	a = rig_connect_reg(r, GA);
	b = rig_connect_reg(r, GB);
	mad_req(mad, 0x90, 0x90, GP, GA, CA_P, QPN_P, SVC_TCP);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, REQ, GA, GP);
	mad_req(mad, 0x91, 0x91, GQ, GB, CA_Q, QPN_P, SVC_TCP);
	rig_inject(r, GQ, 2, mad);
	rig_expect_mad(b, in, REQ, GB, GQ);
	mad_rej(mad, 0x90, 0, 0x90, 2, 4);
	put_be64(mad + 36, CA_P);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, REJ, GA, GP);
	assert_memory_equal(in, mad, MAD);
	put_be64(mad + 36, CA_Q);
	rig_inject(r, GQ, 2, mad);
	rig_wait_dropped(r, "unknown_id", 2);
	rig_expect_nothing(b);
	mad_req(mad, 0xc001, 0xc001, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, REQ, GP, 1);
	va = be32(out + M_LOCAL);
	mad_rej(mad, 0xc001, 0, 0xc001, 2, 4);
	put_be64(mad + 36, CA_A);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, REJ, GP, 1);
	assert_int_equal(be32(out + M_LOCAL), va);
	assert_int_equal(be32(out + M_REMOTE), 0);
	assert_true(be64(out + 36) == CA_A);
	close(a);
	close(b);
}

/* Both ends here, with whatever addresses: a whole connection from a's side. */
static void local_connection(struct rig *r, int a, int b, const uint8_t *ga, const uint8_t *gb,
			     bool hairpin)
{
	uint8_t mad[MAD], in[MAD], frame[FRAME];
	uint32_t va, vb;

	mad_req(mad, 1, 1, ga, gb, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, ga, mad), 0);
	assert_true(wire_recv(b, frame, RIG_MS, NULL));
	assert_memory_equal(frame + F_SGID, gb, 16);
	assert_memory_equal(frame + F_GID, ga, 16);
	assert_int_equal(host32(frame + F_LENGTH), 320);
	assert_int_equal(host32(frame + F_UMAD + 4), 0);
	va = be32(frame + F_MAD + M_LOCAL);
	assert_true(VALID_VID(va));
	mad_rep(mad, 1, va, be64(frame + F_MAD + M_TID), CA_B, QPN_B);
	assert_int_equal(wire_mad(b, gb, mad), 0);
	rig_expect_mad(a, in, REP, ga, gb);
	vb = be32(in + M_LOCAL);
	assert_true(VALID_VID(vb) && vb != va);
	assert_int_equal(be32(in + M_REMOTE), 1);
	mad_pair(mad, RTU, 1, vb, be64(in + M_TID));
	assert_int_equal(wire_mad(a, ga, mad), 0);
	rig_expect_mad(b, in, RTU, gb, ga);
	assert_int_equal(be32(in + M_LOCAL), va);
	assert_int_equal(be32(in + M_REMOTE), 1);
	mad_pair(mad, DREQ, 1, va, 0x99);
	assert_int_equal(wire_mad(b, gb, mad), 0);
	rig_expect_mad(a, in, DREQ, ga, gb);
	assert_int_equal(be32(in + M_REMOTE), 1);
	mad_pair(mad, DREP, 1, vb, be64(in + M_TID));
	assert_int_equal(wire_mad(a, ga, mad), 0);
	rig_expect_mad(b, in, DREP, gb, ga);
	assert_int_equal(be32(in + M_REMOTE), 1);
	assert_true(be64(in + M_TID) == 0x99);
	if (hairpin)
		assert_int_equal(fabric_count(r->f, r->port), 0);
}

static void s6_local(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), b = rig_connect_reg(r, GB);
	uint8_t mad[MAD], in[MAD];
	uint32_t vc;

	local_connection(r, a, b, GA, GB, true);
	/* With itself. */
	mad_req(mad, 5, 5, GA, GA, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_mad(a, in, REQ, GA, GA);
	vc = be32(in + M_LOCAL);
	mad_rep(mad, 6, vc, be64(in + M_TID), CA_A, QPN_A);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_mad(a, in, REP, GA, GA);
	assert_int_equal(be32(in + M_REMOTE), 5);
	assert_int_not_equal(be32(in + M_LOCAL), vc);
	close(a);
	close(b);
}

static void s6_not_on_host(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), b;
	uint8_t far[16];

	gid4(far, 0x0a0000fe);
	b = rig_connect_reg(r, far);
	local_connection(r, a, b, GA, far, true);
	close(a);
	close(b);
}

static int setup_no_hairpin(void **state)
{
	return rig_setup_with(state, (const char *[]){ "hairpin=no", NULL });
}

static void s6_loopback(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), b = rig_connect_reg(r, GB);
	uint8_t mad[MAD], far[16];

	local_connection(r, a, b, GA, GB, false);
	/* From an address that the host lacks nothing can be sent, but the answer is given before that is known. */
	gid4(far, 0x0a0000fe);
	assert_int_equal(wire_reg(b, far), 0);
	mad_req(mad, 9, 9, far, GA, CA_B, QPN_B, SVC_TCP);
	assert_int_equal(wire_mad(b, far, mad), 0);
	rig_advance(r, 3000);
	rig_wait_dropped(r, "gid_not_on_host", 1);
	/* It arrives on the host: the next one waits for the table to be read, and goes. */
	fabric_set_gid(r->f, r->port, 5, far);
	assert_int_equal(wire_mad(b, far, mad), 0);
	rig_expect_mad(a, mad, REQ, GA, far);
	close(a);
	close(b);
}

/*
 * An address comes while the table is being read for another reason: what is sent from it at once does not fall to
 * that older reading.
 */
static void s6_late_address(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), b = rig_connect_reg(r, GB);
	uint8_t mad[MAD], far[16];

	/* a long table, which takes its time */
	gid4(far, 0x0a0000fd);
	fabric_set_gid(r->f, r->port, 255, far);
	for (unsigned int i = 1; i <= 100; i++) {
		gid4(far, 0x0a000100 + i);
		/* has the table read, which has no such address yet */
		assert_int_equal(wire_reg(b, far), 0);
		fabric_set_gid(r->f, r->port, 5, far);
		mad_req(mad, i, i, far, GA, CA_B, QPN_B, SVC_TCP);
		assert_int_equal(wire_mad(b, far, mad), 0);
		rig_expect_mad(a, mad, REQ, GA, far);
		assert_int_equal(wire_unreg(b, far), 0);
	}
	close(a);
	close(b);
}

static void sidr_addrs(uint8_t *mad, const uint8_t *src, const uint8_t *dst)
{
	mad[41] = 0x40;
	memcpy(mad + 56, src + 12, 4);
	memcpy(mad + 72, dst + 12, 4);
}

static void s7_sidr(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), b = rig_connect_reg(r, GB);
	uint8_t mad[MAD], out[MAD], in[MAD], lp[16];
	uint32_t id1, id2;

	assert_int_equal(wire_reg(a, LA), 0);
	mad_sidr_req(mad, 0x21, 0x1100000021, SVC_UDP);
	sidr_addrs(mad, GA, GP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, SIDR_REQ, GP, 1);
	assert_true(VALID_VID(be32(out + 24)));
	mad_header(mad, SIDR_REP, 0x5500000000 | be32(out + M_TID_LOW));
	put_be32(mad + 24, be32(out + 24));
	put_be24(mad + 33, QPN_P);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, SIDR_REP, GA, GP);
	assert_int_equal(be32(in + 24), 0x21);
	assert_true(be64(in + M_TID) == 0x1100000021);

	mad_sidr_req(mad, 0x31, 0x31, SVC_UDP);
	sidr_addrs(mad, GP, GB);
	rig_inject(r, GP, 2, mad);
	rig_expect_mad(b, in, SIDR_REQ, GB, GP);
	gid6(lp, 0xfe80000000000000, 0x0202c9fffe000007);
	mad_sidr_req(mad, 0x32, 0x32, SVC_UDP);
	mad[41] = 0x60;
	memcpy(mad + 44, lp, 16);
	memcpy(mad + 60, LA, 16);
	rig_inject(r, lp, 3, mad);
	rig_expect_mad(a, in, SIDR_REQ, LA, lp);
	/* Another service id: the bytes are no address, the packet's own destination counts. */
	mad_sidr_req(mad, 0x33, 0x33, 0x1000000000000001);
	sidr_addrs(mad, GP, GA);
	rig_inject(r, GP, 2, mad);
	rig_expect_mad(b, in, SIDR_REQ, GB, GP);
	/* Equal request ids of two peers. */
	mad_sidr_req(mad, 0x40, 0x41, SVC_UDP);
	sidr_addrs(mad, GP, GA);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, SIDR_REQ, GA, GP);
	id1 = be32(in + 24);
	mad_sidr_req(mad, 0x40, 0x42, SVC_UDP);
	sidr_addrs(mad, GQ, GA);
	rig_inject(r, GQ, 1, mad);
	rig_expect_mad(a, in, SIDR_REQ, GA, GQ);
	id2 = be32(in + 24);
	assert_int_not_equal(id1, id2);
	mad_header(mad, SIDR_REP, 0x42);
	put_be32(mad + 24, id2);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, SIDR_REP, GQ, 1);
	assert_int_equal(be32(out + 24), 0x40);
	put_be32(mad + 24, id1);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, SIDR_REP, GP, 1);
	assert_int_equal(be32(out + 24), 0x40);
	/* Not to be answered by another. */
	assert_int_equal(wire_mad(b, GB, mad), 4);

	mad_sidr_req(mad, 0x22, 0x22, SVC_UDP);
	sidr_addrs(mad, GB, GP);
	assert_int_equal(wire_mad(a, GA, mad), 3);
	mad_sidr_req(mad, 0x23, 0x23, 0x1000000000000001);
	assert_int_equal(wire_mad(a, GA, mad), 1);
	rig_expect_no_write(r, a);
	close(a);
	close(b);
}

static void other_messages(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA);
	uint8_t mad[MAD], out[MAD], in[MAD];
	uint32_t va;

	mad_req(mad, 3, 3, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, REQ, GP, 1);
	va = be32(out + M_LOCAL);
	mad_rep(mad, 0x70, va, be32(out + M_TID_LOW), CA_P, QPN_P);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, REP, GA, GP);
	for (unsigned int attr = APR; attr <= SPR; attr++) {
		mad_pair(mad, attr, 3, 0x70, 0x1234);
		assert_int_equal(wire_mad(a, GA, mad), 0);
		rig_expect_write(r, out, attr, GP, 1);
		assert_int_equal(be32(out + M_LOCAL), va);
		mad_pair(mad, attr, 0x70, va, 0x4321);
		rig_inject(r, GP, 1, mad);
		rig_expect_mad(a, in, attr, GA, GP);
		assert_int_equal(be32(in + M_REMOTE), 3);
	}
	/* A new path to the peer: its messages then come from there as well. */
	mad_header(mad, LAP, 0x77);
	put_be32(mad + 24, 3);
	put_be32(mad + 28, 0x70);
	memcpy(mad + 48, GA, 16);
	memcpy(mad + 64, GQ, 16);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, LAP, GP, 1);
	mad_pair(mad, APR, 0x70, va, be64(out + M_TID));
	rig_inject(r, GQ, 1, mad);
	rig_expect_mad(a, in, APR, GA, GQ);
	assert_true(be64(in + M_TID) == 0x77);
	memcpy(mad + 48, GB, 16);
	mad_header(mad, LAP, 0x78);
	put_be32(mad + 24, 3);
	put_be32(mad + 28, 0x70);
	memcpy(mad + 48, GB, 16);
	assert_int_equal(wire_mad(a, GA, mad), 3);
	close(a);
}

/* Paths that a REQ or a LAP names besides the first: messages may come from there, and from nowhere else. */
static void alternate_paths(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA);
	uint8_t mad[MAD], out[MAD], in[MAD], elsewhere[16];
	uint32_t va, vb;

	gid4(elsewhere, 0xc6336409);
	/* Active: the client's REQ names it. */
	mad_req(mad, 3, 3, GA, GP, CA_A, QPN_A, SVC_TCP);
	memcpy(mad + 124, GA, 16);
	memcpy(mad + 140, GQ, 16);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, out, REQ, GP, 1);
	assert_memory_equal(out + 140, GQ, 16);
	va = be32(out + M_LOCAL);
	mad_rep(mad, 0x70, va, be32(out + M_TID_LOW), CA_P, QPN_P);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, REP, GA, GP);
	mad_pair(mad, MRA, 0x70, va, 1);
	rig_inject(r, GQ, 1, mad);
	rig_expect_mad(a, in, MRA, GA, GQ);
	rig_inject(r, elsewhere, 1, mad);
	rig_wait_dropped(r, "wrong_source", 1);
	/* Passive: the peer's REQ names it. */
	mad_req(mad, 0x71, 0x71, GP, GA, CA_P, QPN_P, SVC_TCP);
	memcpy(mad + 124, GQ, 16);
	memcpy(mad + 140, GA, 16);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, REQ, GA, GP);
	mad_rep(mad, 4, 0x71, 0x71, CA_A, QPN_A);
	wire_mad(a, GA, mad);
	rig_expect_write(r, out, REP, GP, 1);
	vb = be32(out + M_LOCAL);
	mad_pair(mad, RTU, 0x71, vb, 0x71);
	rig_inject(r, GQ, 1, mad);
	rig_expect_mad(a, in, RTU, GA, GQ);
	assert_int_equal(be32(in + M_REMOTE), 4);
	rig_inject(r, elsewhere, 1, mad);
	rig_wait_dropped(r, "wrong_source", 2);
	/* The peer names another one later, from the first. */
	mad_header(mad, LAP, 0x90);
	put_be32(mad + 24, 0x71);
	put_be32(mad + 28, vb);
	memcpy(mad + 48, elsewhere, 16);
	memcpy(mad + 64, GA, 16);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, LAP, GA, GP);
	assert_int_equal(be32(in + M_REMOTE), 4);
	assert_memory_equal(in + 48, elsewhere, 16);
	mad_pair(mad, APR, 4, 0x71, be64(in + M_TID));
	wire_mad(a, GA, mad);
	rig_expect_write(r, out, APR, GP, 1);
	assert_int_equal(be32(out + M_LOCAL), vb);
	mad_pair(mad, DREQ, 0x71, vb, 0x91);
	rig_inject(r, elsewhere, 1, mad);
	rig_expect_mad(a, in, DREQ, GA, elsewhere);
	rig_inject(r, GQ, 1, mad);
	rig_wait_dropped(r, "wrong_source", 3);
	close(a);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(s1_registration),
		T(s1_refused_gids),
		T(s2_active),
		T(s2_reuse_of_an_id),
		T(s3_passive),
		T(s3_same_peer_id_twice),
		T(s4_equal_ids),
		T(s5_rej_without_id),
		T(s6_local),
		T(s6_not_on_host),
		cmocka_unit_test_setup_teardown(s6_loopback, setup_no_hairpin, rig_teardown),
		cmocka_unit_test_setup_teardown(s6_late_address, setup_no_hairpin, rig_teardown),
		T(s7_sidr),
		T(other_messages),
		T(alternate_paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
