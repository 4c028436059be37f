// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Clients come and go, and their processes die. Scenario S11. */
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

/* A connection whose process is a child, so that it can die; the parent has the socket too. */
static int connect_as_child(struct rig *r, pid_t *pid)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *cmsg;
	int sv[2], fd;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	*pid = fork();
	if (!*pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fd = wire_connect_wait(r->socket, RIG_MS);
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
		sendmsg(sv[1], &msg, 0);
		pause();
		_exit(0);
	}
	assert_int_equal(recvmsg(sv[0], &msg, MSG_CMSG_CLOEXEC), 1);
	cmsg = CMSG_FIRSTHDR(&msg);
	memcpy(&fd, CMSG_DATA(cmsg), sizeof(fd));
	close(sv[0]);
	close(sv[1]);
	return fd;
}

static void kill_child(pid_t pid, int fd)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(fd);
}

static void s11_dead_process(void **state)
{
	struct rig *r = *state;
	uint8_t mad[MAD], in[MAD], pkt[PKT_SIZE];
	bool saw_timeout = false, saw_consumer = false;
	uint32_t va, vb;
	pid_t pid;
	int a = connect_as_child(r, &pid), c;

	assert_int_equal(wire_reg(a, GA), 0);
	mad_req(mad, 0x11, 0x11, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, mad, REQ, GP, 1);
	va = be32(mad + M_LOCAL);
	vb = rig_established(r, a, 0x12, 0x55);
	mad_req(mad, 0x99, 0x99, GQ, GA, CA_Q, QPN_P, SVC_TCP);
	rig_inject(r, GQ, 1, mad);
	rig_expect_mad(a, in, REQ, GA, GQ);
	kill_child(pid, a);
	/* In any order: the two rejects and the DREQ. */
	for (unsigned int i = 0; i < 3; i++) {
		assert_true(fabric_written(r->f, r->port, pkt, RIG_MS));
		memcpy(mad, pkt + PKT_MAD, MAD);
		if (mad[M_ATTR + 1] == DREQ) {
			assert_memory_equal(pkt + 36, GP, 16);
			assert_int_equal(be32(mad + M_LOCAL), vb);
			assert_int_equal(be32(mad + M_REMOTE), 0x55);
			assert_int_equal(be32(mad + 32) >> 8, QPN_P);
		} else if (mad[35] == 4) {
			saw_timeout = true;
			assert_memory_equal(pkt + 36, GP, 16);
			assert_int_equal(be32(mad + M_LOCAL), va);
			assert_int_equal(be32(mad + M_REMOTE), 0);
			assert_true(be64(mad + 36) == CA_A);
			assert_int_equal(mad[32] >> 6, 2);
		} else {
			saw_consumer = true;
			assert_int_equal(mad[35], 28);
			assert_memory_equal(pkt + 36, GQ, 16);
			assert_int_equal(be32(mad + M_LOCAL), 0);
			assert_int_equal(be32(mad + M_REMOTE), 0x99);
			assert_int_equal(mad[32] >> 6, 0);
		}
	}
	assert_true(saw_timeout && saw_consumer);
	/* The address is free, and the next client, on the same descriptor, gets nothing of the old one's. */
	c = rig_connect_reg(r, GA);
	mad_rep(mad, 0x56, va, va, CA_P, QPN_P);
	rig_inject(r, GP, 1, mad);
	rig_wait_dropped(r, "client_absent", 1);
	rig_expect_nothing(c);
	/* The DREQ is repeated twice, as nobody answers. */
	for (unsigned int i = 0; i < 2; i++) {
		rig_advance(r, 5000);
		rig_expect_write(r, mad, DREQ, GP, 1);
		assert_int_equal(be32(mad + M_LOCAL), vb);
	}
	rig_advance(r, 6000);
	rig_expect_no_write(r, c);
	/* A peer's DREQ is confirmed. */
	mad_pair(mad, DREQ, 0x55, vb, 0x4242);
	rig_inject(r, GP, 1, mad);
	rig_expect_write(r, mad, DREP, GP, 1);
	assert_int_equal(be32(mad + M_LOCAL), vb);
	assert_int_equal(be32(mad + M_REMOTE), 0x55);
	rig_advance(r, 31000);
	rig_wait_status(r, "sessions", 0);
	close(c);
}

/* The end of a process is seen in two steps, its sockets' and its own, in a race; its GIDs are free after both, without waiting. */
static void s11_dead_at_once(void **state)
{
	struct rig *r = *state;
	unsigned int waited = 0;
	pid_t pid;
	int a, b;

	for (unsigned int i = 0; i < 20; i++) {
		a = connect_as_child(r, &pid);
		assert_int_equal(wire_reg(a, GA), 0);
		close(a);
		kill(pid, SIGKILL);
		b = rig_connect(r);
		for (; wire_reg(b, GA) && waited < RIG_MS; waited += 2)
			poll(NULL, 0, 2);
		assert_int_equal(wire_unreg(b, GA), 0);
		close(b);
		waitpid(pid, NULL, 0);
	}
}

static void s11_answered_dreq(void **state)
{
	struct rig *r = *state;
	uint8_t mad[MAD];
	uint32_t vb;
	pid_t pid;
	int a = connect_as_child(r, &pid), c;

	assert_int_equal(wire_reg(a, GA), 0);
	vb = rig_established(r, a, 0x12, 0x55);
	kill_child(pid, a);
	rig_expect_write(r, mad, DREQ, GP, 1);
	c = rig_connect(r);
	mad_pair(mad, DREP, 0x55, vb, be64(mad + M_TID));
	rig_inject(r, GP, 1, mad);
	rig_wait_dropped(r, "client_absent", 1);
	rig_advance(r, 6000);
	rig_expect_no_write(r, c);
	close(c);
}

static void s11_reconnect(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), b;
	uint8_t mad[MAD], in[MAD];
	uint32_t va = rig_established(r, a, 0x21, 0x66);

	close(a);
	rig_wait_status(r, "clients_in_grace", 1);
	/* A REQ is not answered now: the peer will repeat it. */
	mad_req(mad, 0x77, 0x77, GP, GA, CA_P, QPN_P, SVC_TCP);
	rig_inject(r, GP, 1, mad);
	rig_wait_dropped(r, "client_absent", 1);
	b = rig_connect(r);
	/* No registration, as QEMU does it: the first MAD brings all back. */
	mad_pair(mad, MRA, 0x21, 0x66, 0x21);
	assert_int_equal(wire_mad(b, GA, mad), 0);
	rig_expect_write(r, mad, MRA, GP, 1);
	assert_int_equal(be32(mad + M_LOCAL), va);
	mad_pair(mad, DREQ, 0x66, va, 0x1);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(b, in, DREQ, GA, GP);
	assert_int_equal(be32(in + M_REMOTE), 0x21);
	rig_expect_no_write(r, b);
	close(b);
	/* By registration. */
	rig_wait_status(r, "clients_in_grace", 1);
	b = rig_connect_reg(r, GA);
	assert_int_equal(rig_status(r, "clients_in_grace"), 0);
	mad_pair(mad, DREP, 0x21, 0x66, 0x1);
	assert_int_equal(wire_mad(b, GA, mad), 0);
	rig_expect_write(r, mad, DREP, GP, 1);
	close(b);
}

/* A guest that only listens: its device connects again and says nothing. */
static void s11_silent_reconnect(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), b;
	uint8_t mad[MAD], in[MAD];

	close(a);
	rig_wait_status(r, "clients_in_grace", 1);
	b = rig_connect(r);
	rig_advance(r, 1500);
	rig_wait_status(r, "clients_in_grace", 0);
	mad_req(mad, 0x77, 0x77, GP, GA, CA_P, QPN_P, SVC_TCP);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(b, in, REQ, GA, GP);
	poll(NULL, 0, 50);
	/* Should it register after all, that is no sign of a new life. */
	assert_int_equal(wire_reg(b, GA), 0);
	assert_int_equal(wire_reg(b, GA), 2);
	close(b);
}

/* But a new connection that speaks for itself gets nothing unasked. */
static void s11_speaking_reconnect(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), b;

	close(a);
	rig_wait_status(r, "clients_in_grace", 1);
	b = rig_connect_reg(r, GB);
	rig_advance(r, 1500);
	poll(NULL, 0, 300);
	assert_int_equal(rig_status(r, "clients_in_grace"), 1);
	close(b);
}

static void s11_grace_is_not_for_others(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), b;
	uint8_t mad[MAD];
	pid_t pid;

	rig_established(r, a, 0x21, 0x66);
	close(a);
	rig_wait_status(r, "clients_in_grace", 1);
	b = connect_as_child(r, &pid);
	assert_int_equal(wire_reg(b, GA), 3);
	rig_advance(r, 31000);
	rig_expect_write(r, mad, DREQ, GP, 1);
	assert_int_equal(wire_reg(b, GA), 0);
	kill_child(pid, b);
}

static void s11_unregistered_but_connected(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA);
	uint8_t mad[MAD], in[MAD];
	uint32_t va = rig_established(r, a, 0x31, 0x67);

	assert_int_equal(wire_unreg(a, GA), 0);
	mad_pair(mad, DREQ, 0x67, va, 1);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, DREQ, GA, GP);
	poll(NULL, 0, 50);
	mad_pair(mad, DREP, 0x31, 0x67, 1);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, mad, DREP, GP, 1);
	/* But nothing new. */
	mad_req(mad, 0x32, 0x32, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 3);
	/* A REQ to the address that is nobody's now. */
	mad_req(mad, 0x78, 0x78, GP, GA, CA_P, QPN_P, SVC_TCP);
	rig_inject(r, GP, 1, mad);
	rig_expect_write(r, mad, REJ, GP, 1);
	assert_int_equal(be32(mad + M_REMOTE), 0x78);
	assert_int_equal(mad[35], 8);
	mad_sidr_req(mad, 0x79, 0x79, SVC_UDP);
	rig_inject(r, GP, 1, mad);
	rig_expect_write(r, mad, SIDR_REP, GP, 1);
	assert_int_equal(be32(mad + 24), 0x79);
	assert_int_equal(mad[28], 1);
	close(a);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(s11_dead_process),
		T(s11_dead_at_once),
		T(s11_answered_dreq),
		T(s11_reconnect),
		T(s11_silent_reconnect),
		T(s11_speaking_reconnect),
		T(s11_grace_is_not_for_others),
		T(s11_unregistered_but_connected),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
