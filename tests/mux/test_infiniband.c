// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* On an InfiniBand link layer: LIDs, and the paths that the subnet administrator knows. The test plays the administrator. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/mux/rig.h"

#define SM_LID	 0x31
#define PEER_LID 0x0412
#define PEER_SL	 5
#define SA	 3 /* the class */
#define GET	 0x01
#define GET_RESP 0x81
#define PATH	 0x35

/* Of a packet. */
#define P_STATUS  4
#define P_TIMEOUT 8
#define P_RETRIES 12
#define P_QPN	  20
#define P_LID	  28
#define P_SL	  30
#define P_GRH	  32
#define P_GID	  36

/* Of an SA MAD with a path record. */
#define M_CLASS	 1
#define M_METHOD 3
#define M_STATUS 4
#define M_COMP	 48
#define M_DGID	 64
#define M_SGID	 80
#define M_DLID	 96
#define M_NUMB	 105
#define M_SL	 109

static unsigned int be16(const uint8_t *p)
{
	return (unsigned int)p[0] << 8 | p[1];
}

static int setup_sm(void **state, unsigned int sm_lid)
{
	struct rig *r = rig_new();

	fabric_infiniband(r->f, r->port, sm_lid);
	rig_start(r);
	*state = r;
	return 0;
}

static int setup(void **state)
{
	return setup_sm(state, SM_LID);
}

static int setup_without_sm(void **state)
{
	return setup_sm(state, 0);
}

/* Sends a REQ to GP that gives this LID. */
static void send_req(int a, uint32_t id, unsigned int lid)
{
	uint8_t mad[MAD];

	mad_req(mad, id, id, GA, GP, CA_A, QPN_A, SVC_TCP);
	put_be16(mad + 78, lid);
	assert_int_equal(wire_mad(a, GA, mad), 0);
}

/* W: a query for the path to GP. */
static void expect_query(struct rig *r, uint8_t *pkt)
{
	const uint8_t *mad = pkt + PKT_MAD;

	assert_true(fabric_written(r->f, r->port, pkt, RIG_MS));
	assert_int_equal(mad[M_CLASS], SA);
	assert_int_equal(mad[M_CLASS + 1], 2);
	assert_int_equal(mad[M_METHOD], GET);
	assert_int_equal(be16(mad + M_ATTR), PATH);
	assert_int_equal(be32(pkt + P_QPN), 1);
	assert_int_equal(be16(pkt + P_LID), SM_LID);
	assert_int_equal(pkt[P_SL], 2);
	assert_int_equal(pkt[P_GRH], 0);
	/* The kernel repeats it, and tells when it gives up. */
	assert_in_range(host32(pkt + P_TIMEOUT), 1, 60000);
	assert_in_range(host32(pkt + P_RETRIES), 1, 15);
	assert_true(be64(mad + M_COMP) == (1ull << 2 | 1ull << 3 | 1ull << 11 | 1ull << 12));
	assert_memory_equal(mad + M_DGID, GP, 16);
	assert_memory_equal(mad + M_SGID, GA, 16);
	assert_int_equal(mad[M_NUMB], 0x81);
}

static void answer(struct rig *r, uint8_t *pkt, unsigned int status, unsigned int dlid)
{
	uint8_t *mad = pkt + PKT_MAD;

	mad[M_METHOD] = GET_RESP;
	put_be16(mad + M_STATUS, status);
	put_be16(mad + M_DLID, dlid);
	mad[M_SL] = 0xf0 | PEER_SL;
	fabric_answer(r->f, r->port, SA, pkt, PKT_SIZE);
}

/* W: a CM MAD for GP. */
static void expect_cm(struct rig *r, unsigned int attr, unsigned int lid, unsigned int sl,
		      uint8_t *mad)
{
	uint8_t pkt[PKT_SIZE];

	assert_true(fabric_written(r->f, r->port, pkt, RIG_MS));
	memcpy(mad, pkt + PKT_MAD, MAD);
	assert_int_equal(be16(mad + M_ATTR), attr);
	assert_memory_equal(pkt + P_GID, GP, 16);
	assert_int_equal(be16(pkt + P_LID), lid);
	assert_int_equal(pkt[P_SL], sl);
}

static void from_peer(struct rig *r, const uint8_t *mad, bool grh)
{
	uint8_t pkt[PKT_SIZE] = { 0 };

	pkt[23] = 1;
	put_be16(pkt + P_LID, PEER_LID);
	pkt[P_SL] = PEER_SL;
	if (grh) {
		pkt[P_GRH] = 1;
		pkt[33] = 1;
		memcpy(pkt + P_GID, GP, 16);
	}
	memcpy(pkt + PKT_MAD, mad, MAD);
	fabric_answer(r->f, r->port, 7, pkt, PKT_SIZE);
}

/* A guest that has no LID to give: the path is asked for once, and kept. */
static void asks_for_the_path(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA);
	uint8_t query[PKT_SIZE], mad[MAD], frame[FRAME];
	uint32_t va;

	send_req(a, 0x11, 0);
	expect_query(r, query);
	/* Its repetition, and another connection, wait too. */
	send_req(a, 0x11, 0);
	send_req(a, 0x12, 0xffff);
	rig_expect_no_write(r, a);
	/* An answer to another question is none. */
	put_be32(query + PKT_MAD + 12, be32(query + PKT_MAD + 12) + 0x10000);
	answer(r, query, 0, 0x99);
	rig_expect_no_write(r, a);
	put_be32(query + PKT_MAD + 12, be32(query + PKT_MAD + 12) - 0x10000);
	answer(r, query, 0, PEER_LID);
	expect_cm(r, REQ, PEER_LID, PEER_SL, mad);
	va = be32(mad + M_LOCAL);
	expect_cm(r, REQ, PEER_LID, PEER_SL, mad);
	assert_int_equal(be32(mad + M_LOCAL), va);
	expect_cm(r, REQ, PEER_LID, PEER_SL, mad);
	assert_int_not_equal(be32(mad + M_LOCAL), va);
	/* The peer answers without GRH, and so is known by its LID. */
	mad_rep(mad, 0x77, va, va, CA_P, QPN_P);
	from_peer(r, mad, false);
	assert_true(wire_recv(a, frame, RIG_MS, NULL));
	assert_int_equal(frame[F_MAD + M_ATTR + 1], REP);
	assert_int_equal(be32(frame + F_MAD + M_REMOTE), 0x11);
	poll(NULL, 0, 50);
	mad_pair(mad, RTU, 0x11, 0x77, 0x11);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	expect_cm(r, RTU, PEER_LID, PEER_SL, mad);
	/* And the next needs no question. */
	send_req(a, 0x13, 0);
	expect_cm(r, REQ, PEER_LID, PEER_SL, mad);
	rig_expect_no_write(r, a);
	close(a);
}

/* What the guest knows is believed, and what the peer's own message says. */
static void uses_what_is_known(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA);
	uint8_t mad[MAD], in[MAD];

	send_req(a, 0x11, 0x55);
	expect_cm(r, REQ, 0x55, 0, mad);
	mad_req(mad, 0x78, 0x78, GP, GA, CA_P, QPN_P, SVC_TCP);
	from_peer(r, mad, true);
	rig_expect_mad(a, in, REQ, GA, GP);
	poll(NULL, 0, 50);
	mad_rep(mad, 0x21, 0x78, 0x78, CA_A, QPN_A);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	expect_cm(r, REP, PEER_LID, PEER_SL, mad);
	rig_expect_no_write(r, a);
	close(a);
}

/* No path: what waits is dropped and counted, and the question is not repeated at once. */
static void no_path(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA);
	uint8_t query[PKT_SIZE], mad[MAD];

	send_req(a, 0x11, 0);
	expect_query(r, query);
	answer(r, query, 0x0300, 0);
	rig_wait_dropped(r, "unreachable", 1);
	send_req(a, 0x11, 0);
	rig_wait_dropped(r, "unreachable", 2);
	rig_expect_no_write(r, a);
	assert_true(rig_logged(r, "event=no_path"));
	/* Nobody answers: the kernel says so with the MAD's header alone. */
	rig_advance(r, 6000);
	send_req(a, 0x11, 0);
	expect_query(r, query);
	put_host32(query + P_STATUS, ETIMEDOUT);
	fabric_answer(r->f, r->port, SA, query, PKT_MAD + 24);
	rig_wait_dropped(r, "unreachable", 3);
	/* Nonsense for a LID is no path either. */
	rig_advance(r, 6000);
	send_req(a, 0x11, 0);
	expect_query(r, query);
	answer(r, query, 0, 0xc001);
	rig_wait_dropped(r, "unreachable", 4);
	/* At last there is one. */
	rig_advance(r, 6000);
	send_req(a, 0x11, 0);
	expect_query(r, query);
	answer(r, query, 0, PEER_LID);
	expect_cm(r, REQ, PEER_LID, PEER_SL, mad);
	/* It is asked for again when it is old. */
	rig_advance(r, 61000);
	send_req(a, 0x12, 0);
	expect_query(r, query);
	answer(r, query, 0, 0x66);
	expect_cm(r, REQ, 0x66, PEER_SL, mad);
	close(a);
}

/* The administrator is away, and a client asks for paths to everywhere: another's question is asked all the same. */
static void questions_of_one_client(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), b = rig_connect_reg(r, GB);
	uint8_t mad[MAD], pkt[PKT_SIZE], dst[16];

	for (uint32_t i = 0; i < 300; i++) {
		gid4(dst, 0xc6336500 + i);
		mad_req(mad, 1 + i, 1 + i, GA, dst, CA_A, QPN_A, SVC_TCP);
		assert_int_equal(wire_mad(a, GA, mad), 0);
	}
	mad_req(mad, 1, 1, GB, GP, CA_B, QPN_B, SVC_TCP);
	assert_int_equal(wire_mad(b, GB, mad), 0);
	do
		assert_true(fabric_written(r->f, r->port, pkt, RIG_MS));
	while (memcmp(pkt + PKT_MAD + M_SGID, GB, 16) != 0);
	assert_memory_equal(pkt + PKT_MAD + M_DGID, GP, 16);
	answer(r, pkt, 0, PEER_LID);
	expect_cm(r, REQ, PEER_LID, PEER_SL, mad);
	close(a);
	close(b);
}

static void no_subnet_manager(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA);
	uint8_t mad[MAD];

	send_req(a, 0x11, 0);
	rig_wait_dropped(r, "no_destination", 1);
	assert_true(rig_logged(r, "event=no_subnet_manager"));
	rig_expect_no_write(r, a);
	send_req(a, 0x12, 0x55);
	expect_cm(r, REQ, 0x55, 0, mad);
	close(a);
}

/* The device goes while a question is out, and comes again. */
static void unplugged(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA);
	uint8_t query[PKT_SIZE], mad[MAD];

	send_req(a, 0x11, 0);
	expect_query(r, query);
	fabric_unplug(r->f, r->port);
	rig_wait_dropped(r, "port_down", 1);
	fabric_replug(r->f, r->port);
	fabric_infiniband(r->f, r->port, SM_LID);
	for (unsigned int i = 0; !fabric_has_agent(r->f, r->port) && i < RIG_MS; i += 10) {
		rig_advance(r, 100);
		poll(NULL, 0, 10);
	}
	do
		mad_req(mad, 0x11, 0x11, GA, GP, CA_A, QPN_A, SVC_TCP);
	while (wire_mad(a, GA, mad) == 4);
	expect_query(r, query);
	answer(r, query, 0, PEER_LID);
	expect_cm(r, REQ, PEER_LID, PEER_SL, mad);
	close(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(asks_for_the_path, setup, rig_teardown),
		cmocka_unit_test_setup_teardown(uses_what_is_known, setup, rig_teardown),
		cmocka_unit_test_setup_teardown(no_path, setup, rig_teardown),
		cmocka_unit_test_setup_teardown(questions_of_one_client, setup, rig_teardown),
		cmocka_unit_test_setup_teardown(no_subnet_manager, setup_without_sm, rig_teardown),
		cmocka_unit_test_setup_teardown(unplugged, setup, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
