// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Hostile clients, and a device that misbehaves or goes away; what the start needs. Scenario S12. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/mux/rig.h"

static void s12_malformed(void **state)
{
	static const struct {
		unsigned int off, value;
	} bad[] = {
		{ 1, 0x03 }, { 1, 0x81 }, { 1, 0x04 },	{ 2, 1 },     { 3, 1 },	    { 0, 0x80 },
		{ 4, 1 },    { 5, 1 },	  { 17, 0x01 }, { 17, 0x0f }, { 17, 0x1d }, { 16, 1 },
	};
	static const int32_t lengths[] = { -1, 0, 24, 35, 257, 2147483647, -2147483647 - 1 };
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), b = rig_connect_reg(r, GB);
	uint8_t mad[MAD], frame[FRAME], zero[16] = { 0 };
	uint32_t va;

	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		mad_req(mad, 1, 1, GA, GP, CA_A, QPN_A, SVC_TCP);
		mad[bad[i].off] = (uint8_t)bad[i].value;
		assert_int_equal(wire_mad(a, GA, mad), 1);
	}
	mad_req(mad, 1, 1, GA, GP, CA_A, QPN_A, SVC_TCP);
	frame_mad(frame, GA, mad);
	for (unsigned int i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		put_host32(frame + F_LEN, (uint32_t)lengths[i]);
		assert_int_equal(wire_call(a, frame, NULL), 1);
	}
	assert_int_equal(wire_mad(a, zero, mad), 1);
	assert_int_equal(wire_mad(a, GB, mad), 3);
	/* The message speaks for another. */
	mad_req(mad, 1, 1, GB, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 3);
	mad_req(mad, 1, 1, GA, GP, CA_A, QPN_A, SVC_TCP);
	memcpy(mad + 124, GB, 16);
	assert_int_equal(wire_mad(a, GA, mad), 3);
	mad_req(mad, 1, 1, GA, GP, CA_A, QPN_A, SVC_TCP);
	memcpy(mad + 180, GB + 12, 4);
	assert_int_equal(wire_mad(a, GA, mad), 3);
	mad_req(mad, 1, 1, GB, GP, CA_B, QPN_B, SVC_TCP);
	assert_int_equal(wire_mad(b, GB, mad), 0);
	rig_expect_write(r, mad, REQ, GP, 2);
	mad_req(mad, 1, 1, GA, GP, CA_B, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 3);
	/* Destinations that are none. */
	mad_req(mad, 1, 1, GA, LB, CA_A, QPN_A, 0x1000000000000001);
	assert_int_equal(wire_mad(a, GA, mad), 1);
	mad_req(mad, 1, 1, GA, zero, CA_A, QPN_A, 0x1000000000000001);
	assert_int_equal(wire_mad(a, GA, mad), 1);
	rig_expect_no_write(r, a);
	/* What the client writes into the address is not looked at. */
	mad_req(mad, 1, 1, GA, GP, CA_A, QPN_A, SVC_TCP);
	frame_mad(frame, GA, mad);
	put_be32(frame + F_QPN, 0x777);
	put_be32(frame + 60, 0x12345678);
	put_be16(frame + 64, 7);
	frame[66] = 3;
	frame[F_GRH] = 0;
	frame[F_INDEX] = 0;
	put_be32(frame + 88, 0x54321);
	frame[92] = 5;
	put_host32(frame + 44, 1000);
	put_host32(frame + 48, 15);
	assert_int_equal(wire_call(a, frame, NULL), 0);
	rig_expect_write(r, mad, REQ, GP, 1);
	va = be32(mad + M_LOCAL);
	mad_rep(mad, 0x70, va, va, CA_P, QPN_P);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, mad, REP, GA, GP);
	poll(NULL, 0, 50);
	/* A short one. */
	mad_pair(mad, RTU, 1, 0x70, 1);
	frame_mad(frame, GA, mad);
	put_host32(frame + F_LEN, 36);
	assert_int_equal(wire_call(a, frame, NULL), 0);
	rig_expect_write(r, mad, RTU, GP, 1);
	for (unsigned int i = 36; i < MAD; i++)
		assert_int_equal(mad[i], 0);
	/* Unknown ids, and the wrong peer's. */
	mad_pair(mad, RTU, 0x999, 0x70, 1);
	assert_int_equal(wire_mad(a, GA, mad), 4);
	mad_pair(mad, LAP, 0x999, 0x70, 1);
	assert_int_equal(wire_mad(a, GA, mad), 4);
	mad_rej(mad, 0x12345678, 0x70, 1, 0, 8);
	assert_int_equal(wire_mad(a, GA, mad), 4);
	mad_pair(mad, RTU, 1, 0x71, 1);
	assert_int_equal(wire_mad(a, GA, mad), 3);
	mad_pair(mad, DREQ, 0x999, 0x70, 1);
	assert_int_equal(wire_mad(a, GA, mad), 4);
	rig_expect_mad(a, mad, DREP, GA, GA);
	poll(NULL, 0, 50);
	rig_expect_no_write(r, a);
	close(a);
	close(b);
}

static void s12_umad_input(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA);
	uint8_t mad[MAD], in[MAD], raw[64 + 2048] = { 0 };
	uint32_t va;

	/* A send that got no response. */
	put_host32(raw + 4, ETIMEDOUT);
	fabric_inject_raw(r->f, r->port, raw, 64 + 24);
	/* A full-sized one with a status. */
	mad_req(raw + 64, 1, 1, GP, GA, CA_P, QPN_P, SVC_TCP);
	fabric_inject_raw(r->f, r->port, raw, 64 + 256);
	/* One of another size. */
	put_host32(raw + 4, 0);
	fabric_inject_raw(r->f, r->port, raw, 64 + 2048);
	rig_wait_dropped(r, "not_received", 3);
	/* Not CM; no source address. */
	mad_req(mad, 1, 1, GP, GA, CA_P, QPN_P, SVC_TCP);
	mad[3] = 0x81;
	rig_inject(r, GP, 1, mad);
	fabric_inject_raw(r->f, r->port, raw, 64 + 256);
	rig_wait_dropped(r, "not_cm", 2);
	rig_expect_nothing(a);
	mad_req(mad, 0x31, 0x31, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, mad, REQ, GP, 1);
	va = be32(mad + M_LOCAL);
	/* The right id from the wrong sender. */
	mad_rep(mad, 0x70, va, va, CA_Q, QPN_P);
	rig_inject(r, GQ, 1, mad);
	rig_wait_dropped(r, "wrong_source", 1);
	rig_expect_nothing(a);
	mad_rep(mad, 0x70, va, va, CA_P, QPN_P);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, REP, GA, GP);
	close(a);
}

static unsigned long cpu_ticks(pid_t pid)
{
	unsigned long user = 0, sys = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
				&user, &sys),
			 2);
	fclose(f);
	return user + sys;
}

static void s12_unplug(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA);
	uint8_t mad[MAD], in[MAD];
	unsigned long before;
	unsigned int err;

	mad_req(mad, 1, 1, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, in, REQ, GP, 1);
	fabric_unplug(r->f, r->port);
	for (unsigned int i = 0; !rig_logged(r, "event=port_down") && i < RIG_MS; i += 5)
		poll(NULL, 0, 5);
	assert_int_equal(wire_mad(a, GA, mad), 4);
	before = cpu_ticks(r->pid);
	poll(NULL, 0, 400);
	/* No spinning: of 40 ticks of time it used few. */
	assert_true(cpu_ticks(r->pid) - before < 20);
	fabric_replug(r->f, r->port);
	for (unsigned int i = 0; i < RIG_MS && !fabric_has_agent(r->f, r->port); i += 10) {
		poll(NULL, 0, 10);
		rig_advance(r, 100);
	}
	for (unsigned int i = 0; i < RIG_MS; i += 20) {
		err = wire_mad(a, GA, mad);
		assert_true(err == 0 || err == 4);
		if (!err)
			break;
		poll(NULL, 0, 20);
	}
	rig_expect_write(r, in, REQ, GP, 1);
	assert_int_equal(wire_reg(a, GA), 2);
	mad_req(mad, 0x78, 0x78, GQ, GA, CA_Q, QPN_P, SVC_TCP);
	rig_inject(r, GQ, 1, mad);
	rig_expect_mad(a, in, REQ, GA, GQ);
	close(a);
}

static int wait_exit(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void s12_ib_cm(void **state)
{
	struct rig *r = rig_new();

	(void)state;
	fabric_ib_cm(r->f, true, r->port, true);
	assert_int_not_equal(wait_exit(rig_spawn(r, NULL, NULL)), 0);
	assert_true(rig_logged(r, "ib_cm"));
	assert_true(rig_logged(r, "fab0 port 1"));
	assert_true(rig_logged(r, "0x07"));
	assert_true(rig_logged(r, "modprobe -r"));
	assert_int_not_equal(access(r->socket, F_OK), 0);
	/* Loaded, but for other devices. */
	fabric_ib_cm(r->f, true, r->port, false);
	rig_start(r);
	rig_free(r);
}

static void s12_wrong_device(void **state)
{
	struct rig *r = rig_new();

	(void)state;
	assert_int_not_equal(wait_exit(rig_spawn(r, "nosuch0", NULL)), 0);
	assert_true(rig_logged(r, "there is no RDMA device nosuch0"));
	rig_free(r);
}

static void s12_second_instance(void **state)
{
	struct rig *r = *state;
	int a;

	assert_int_not_equal(wait_exit(rig_spawn(r, NULL, NULL)), 0);
	assert_true(rig_logged(r, "served by another mux"));
	a = rig_connect_reg(r, GA);
	close(a);
	/* On another path it's the device that is taken. */
	{
		char prefix[96];

		snprintf(prefix, sizeof(prefix), "%s/other", r->dir);
		assert_int_not_equal(wait_exit(rig_spawn(r, NULL, prefix)), 0);
		assert_true(rig_logged(r, "taken by another program"));
	}
	a = rig_connect_reg(r, GB);
	close(a);
}

/* It ends at once, whatever it waits for: a write that blocks, a client that does not read. */
static void ends(struct rig *r, int sig)
{
	int a = rig_connect_reg(r, GA), b = rig_connect_reg(r, GB), status;
	uint8_t mad[MAD];

	fabric_shm(r->f)->resolve_ms = 600000;
	memcpy(fabric_shm(r->f)->unresolvable[0], GQ, 16);
	fabric_shm(r->f)->n_unresolvable = 1;
	mad_req(mad, 1, 1, GA, GQ, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	for (unsigned int i = 0; !fabric_shm(r->f)->blocked && i < RIG_MS; i++)
		poll(NULL, 0, 1);
	for (unsigned int i = 0; i < 300; i++) {
		mad_req(mad, 100 + i, 100 + i, GP, GB, CA_P, QPN_P, SVC_TCP);
		rig_inject(r, GP, 2, mad);
	}
	rig_wait_dropped(r, "client_queue_full", 1);
	status = rig_stop(r, sig);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_true(wire_closes(a, RIG_MS));
	assert_int_not_equal(access(r->socket, F_OK), 0);
	assert_int_not_equal(access(r->control, F_OK), 0);
	close(a);
	close(b);
}

static void s12_sigterm(void **state)
{
	ends(*state, SIGTERM);
}

static void s12_sigint(void **state)
{
	ends(*state, SIGINT);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(s12_malformed),
		T(s12_umad_input),
		T(s12_unplug),
		cmocka_unit_test(s12_ib_cm),
		cmocka_unit_test(s12_wrong_device),
		T(s12_second_instance),
		T(s12_sigterm),
		T(s12_sigint),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
