// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Clients, device and daemon come and go; hostile input. Scenarios S11 and S12. */
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

static int setup(void **state)
{
	struct rig *r = rig_new();

	rig_start(r);
	*state = r;
	return 0;
}

static int teardown(void **state)
{
	rig_free(*state);
	return 0;
}

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

/* Full active connection of a (GA) with P; returns the vid. */
static uint32_t connect_to_p(struct rig *r, int a, uint32_t local, uint32_t peer)
{
	uint8_t mad[MAD], in[MAD];
	uint32_t va;

	mad_req(mad, local, local, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, mad, REQ, GP, 1);
	va = be32(mad + M_LOCAL);
	mad_rep(mad, peer, va, va, CA_P, QPN_P);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, REP, GA, GP);
	/* So that the answer to the next request is a plain one. */
	poll(NULL, 0, 50);
	mad_pair(mad, RTU, local, peer, local);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, mad, RTU, GP, 1);
	return va;
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
	vb = connect_to_p(r, a, 0x12, 0x55);
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
	vb = connect_to_p(r, a, 0x12, 0x55);
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
	uint32_t va = connect_to_p(r, a, 0x21, 0x66);

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

	connect_to_p(r, a, 0x21, 0x66);
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
	uint32_t va = connect_to_p(r, a, 0x31, 0x67);

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

/* Restart ------------------------------------------------------------------------------------------ */

#define MAX_KEPT 64

/* As much of a service manager as keeps descriptors. */
struct manager {
	int fds[MAX_KEPT];
	char names[MAX_KEPT][96];
	unsigned int n;
	char list[MAX_KEPT * 96];
};

static int setup_manager(void **state)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct rig *r = rig_new();
	char path[96];

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/notify", r->dir);
	r->notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(r->notify_fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	snprintf(path, sizeof(path), "%s/state", r->dir);
	rig_option(r, "-S");
	r->opts[r->n_opts++] = strdup(path);
	rig_option(r, "max_sessions_total=4096");
	rig_start(r);
	*state = r;
	return 0;
}

static void manager_forget(struct manager *m, const char *name)
{
	for (unsigned int i = 0; i < m->n; i++) {
		if (strcmp(m->names[i], name) != 0)
			continue;
		close(m->fds[i]);
		m->n--;
		m->fds[i] = m->fds[m->n];
		memcpy(m->names[i], m->names[m->n], sizeof(m->names[i]));
		return;
	}
}

static void manager_collect(struct rig *r, struct manager *m)
{
	char text[1024], control[CMSG_SPACE(sizeof(int))];

	for (;;) {
		struct iovec iov = { text, sizeof(text) - 1 };
		struct msghdr msg = { .msg_iov = &iov,
				      .msg_iovlen = 1,
				      .msg_control = control,
				      .msg_controllen = sizeof(control) };
		ssize_t n = recvmsg(r->notify_fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
		char *name;

		if (n < 0)
			return;
		text[n] = '\0';
		name = strstr(text, "FDNAME=");
		if (!name)
			continue;
		name += 7;
		name[strcspn(name, "\n")] = '\0';
		if (strncmp(text, "FDSTOREREMOVE=1", 15) == 0) {
			manager_forget(m, name);
		} else if (strncmp(text, "FDSTORE=1", 9) == 0 && cmsg) {
			assert_true(m->n < MAX_KEPT);
			memcpy(&m->fds[m->n], CMSG_DATA(cmsg), sizeof(int));
			snprintf(m->names[m->n++], sizeof(m->names[0]), "%s", name);
		}
	}
}

static void manager_restart(struct rig *r, struct manager *m, int sig)
{
	manager_collect(r, m);
	rig_stop(r, sig);
	manager_collect(r, m);
	m->list[0] = '\0';
	for (unsigned int i = 0; i < m->n; i++)
		sprintf(m->list + strlen(m->list), "%s%s", i ? ":" : "", m->names[i]);
	r->pass_fds = m->fds;
	r->pass_names = m->list;
	r->n_pass = m->n;
	rig_start(r);
	r->n_pass = 0;
}

/* The manager does not keep any: what it got is closed. */
static void manager_discard(struct rig *r)
{
	struct manager m = { .n = 0 };

	manager_collect(r, &m);
	for (unsigned int i = 0; i < m.n; i++)
		close(m.fds[i]);
}

static void restart_keeps_all(struct rig *r, int sig)
{
	struct manager m = { .n = 0 };
	int a = rig_connect_reg(r, GA), b = rig_connect_reg(r, GB), c = rig_connect(r);
	uint8_t mad[MAD], in[MAD], frame[FRAME];
	uint32_t va = connect_to_p(r, a, 0x21, 0x66);

	close(c);
	/* In the middle of things: half a request of b, a MAD that a has not read. */
	frame_simple(frame, OP_REG, LB);
	wire_send(b, frame, 100);
	mad_pair(mad, MRA, 0x66, va, 0x9);
	rig_inject(r, GP, 1, mad);
	{
		struct pollfd p = { .fd = a, .events = POLLIN };

		assert_int_equal(poll(&p, 1, RIG_MS), 1);
	}
	poll(NULL, 0, 50);
	manager_restart(r, &m, sig);
	assert_true(rig_logged(r, "event=restored"));
	/* What waits for a client that reads late is kept. */
	poll(NULL, 0, 300);
	assert_int_equal(rig_status(r, "clients"), 2);
	assert_int_equal(rig_status(r, "sessions"), 1);
	rig_expect_mad(a, in, MRA, GA, GP);
	wire_send(b, frame + 100, FRAME - 100);
	assert_true(wire_recv(b, frame, RIG_MS, NULL));
	assert_int_equal(host32(frame + F_TYPE), T_RESP);
	assert_int_equal(host32(frame + F_ERR), 0);
	/* The peer sends on the same umad file as before. */
	mad_pair(mad, DREQ, 0x66, va, 0x77);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, DREQ, GA, GP);
	assert_int_equal(be32(in + M_REMOTE), 0x21);
	poll(NULL, 0, 50);
	mad_pair(mad, DREP, 0x21, 0x66, 0x77);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, mad, DREP, GP, 1);
	assert_int_equal(be32(mad + M_LOCAL), va);
	/* And once more. */
	manager_restart(r, &m, sig);
	assert_int_equal(wire_reg(a, GA), 2);
	assert_int_equal(wire_reg(b, GB), 2);
	assert_int_equal(wire_reg(b, LB), 2);
	close(a);
	close(b);
	rig_wait_status(r, "clients", 0);
	for (unsigned int i = 0; i < m.n; i++)
		close(m.fds[i]);
}

static void s11_restart(void **state)
{
	restart_keeps_all(*state, SIGTERM);
}

static void s11_killed_daemon(void **state)
{
	restart_keeps_all(*state, SIGKILL);
}

/* The records are there, the connections are not: clients that come back find theirs. */
static void s11_restart_without_fds(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA);
	uint8_t mad[MAD], in[MAD];
	uint32_t va = connect_to_p(r, a, 0x21, 0x66);

	rig_stop(r, SIGKILL);
	manager_discard(r);
	assert_true(wire_closes(a, RIG_MS));
	close(a);
	rig_start(r);
	assert_int_equal(rig_status(r, "clients_in_grace"), 1);
	a = rig_connect(r);
	mad_pair(mad, MRA, 0x21, 0x66, 0x21);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, mad, MRA, GP, 1);
	assert_int_equal(be32(mad + M_LOCAL), va);
	mad_pair(mad, DREQ, 0x66, va, 0x77);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, DREQ, GA, GP);
	close(a);
}

static void s11_broken_state(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), fd;
	char path[96], junk[64];
	struct stat st;

	connect_to_p(r, a, 0x21, 0x66);
	rig_stop(r, SIGKILL);
	manager_discard(r);
	close(a);
	/* Damage all over it: what does not hold is dropped, and the daemon serves. */
	snprintf(path, sizeof(path), "%s/state", r->dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(fstat(fd, &st), 0);
	memset(junk, 0xa5, sizeof(junk));
	for (off_t off = 4096; off < st.st_size; off += 4096 + 96)
		assert_int_equal(pwrite(fd, junk, sizeof(junk), off), sizeof(junk));
	close(fd);
	rig_start(r);
	assert_int_equal(rig_status(r, "sessions"), 0);
	a = rig_connect_reg(r, GA);
	close(a);
}

static void s11_restart_without_state(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA);
	uint8_t mad[MAD], in[MAD];
	uint32_t va = connect_to_p(r, a, 0xa001, 0x55);

	rig_stop(r, SIGKILL);
	assert_true(wire_closes(a, RIG_MS));
	close(a);
	/* The killed one left its socket file. */
	assert_int_equal(access(r->socket, F_OK), 0);
	rig_start(r);
	a = rig_connect(r);
	mad_pair(mad, DREQ, 0x55, va, 0x1);
	rig_inject(r, GP, 1, mad);
	rig_expect_write(r, mad, DREP, GP, 1);
	assert_int_equal(be32(mad + M_LOCAL), va);
	assert_int_equal(be32(mad + M_REMOTE), 0x55);
	mad_pair(mad, DREQ, 0xa001, 0x55, 0x2);
	assert_int_equal(wire_mad(a, GA, mad), 4);
	rig_expect_mad(a, in, DREP, GA, GA);
	assert_int_equal(be32(in + M_LOCAL), 0x55);
	assert_int_equal(be32(in + M_REMOTE), 0xa001);
	close(a);
}

/* S12 ---------------------------------------------------------------------------------------------- */

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

static void s12_sigterm(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), status;
	uint8_t mad[MAD];

	/* Even while a write blocks. */
	fabric_shm(r->f)->resolve_ms = 600000;
	memcpy(fabric_shm(r->f)->unresolvable[0], GQ, 16);
	fabric_shm(r->f)->n_unresolvable = 1;
	mad_req(mad, 1, 1, GA, GQ, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	for (unsigned int i = 0; !fabric_shm(r->f)->blocked && i < RIG_MS; i++)
		poll(NULL, 0, 1);
	status = rig_stop(r, SIGTERM);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_true(wire_closes(a, RIG_MS));
	assert_int_not_equal(access(r->socket, F_OK), 0);
	assert_int_not_equal(access(r->control, F_OK), 0);
	close(a);
}

#define T(fn)	   cmocka_unit_test_setup_teardown(fn, setup, teardown)
#define T2(fn, up) cmocka_unit_test_setup_teardown(fn, up, teardown)

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
		T2(s11_restart, setup_manager),
		T2(s11_killed_daemon, setup_manager),
		T2(s11_restart_without_fds, setup_manager),
		T2(s11_broken_state, setup_manager),
		T(s11_restart_without_state),
		T(s12_malformed),
		T(s12_umad_input),
		T(s12_unplug),
		cmocka_unit_test(s12_ib_cm),
		cmocka_unit_test(s12_wrong_device),
		T(s12_second_instance),
		T(s12_sigterm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
