// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The daemon ends, in whatever way, and starts anew. Scenario S11. */
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

#define MAX_KEPT 64

/* As much of a service manager as keeps descriptors. */
struct manager {
	int fds[MAX_KEPT];
	char names[MAX_KEPT][96];
	unsigned int n;
	char list[MAX_KEPT * 96];
};

/* A daemon with a state file and a service manager that hears it. */
static void start_with_state(struct rig *r, const char *option)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	char path[96];

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/notify", r->dir);
	r->notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(r->notify_fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	snprintf(path, sizeof(path), "%s/state", r->dir);
	rig_option(r, "-S");
	r->opts[r->n_opts++] = strdup(path);
	rig_option(r, option);
	rig_start(r);
}

static int setup_manager(void **state)
{
	struct rig *r = rig_new();

	start_with_state(r, "max_sessions_total=4096");
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
	uint32_t va = rig_established(r, a, 0x21, 0x66);

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
	uint32_t va = rig_established(r, a, 0x21, 0x66);

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

	rig_established(r, a, 0x21, 0x66);
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

static uint64_t room_taken(struct rig *r)
{
	char path[96];
	struct stat st;

	snprintf(path, sizeof(path), "%s/state", r->dir);
	assert_int_equal(stat(path, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

/* A file for a million sessions takes room for those there are, also after a restart has read it. */
static void s11_sparse_state(void **state)
{
	struct rig *r = rig_new();
	struct manager m = { .n = 0 };
	int a;

	start_with_state(r, "max_sessions_total=1000000");
	a = rig_connect_reg(r, GA);
	rig_established(r, a, 0x21, 0x66);
	assert_in_range(room_taken(r), 1, 256 * 1024);
	manager_restart(r, &m, SIGTERM);
	assert_int_equal(rig_status(r, "sessions"), 1);
	assert_in_range(room_taken(r), 1, 256 * 1024);
	close(a);
	rig_wait_status(r, "clients", 0);
	for (unsigned int i = 0; i < m.n; i++)
		close(m.fds[i]);
	close(r->notify_fd);
	rig_free(r);
	(void)state;
}

/* The state's file system is full: what needs a new record is refused, and the rest goes on. */
static void s11_full_file_system(void **state)
{
	struct rig *r = *state;
	struct double_shm *shm = fabric_shm(r->f);
	int a = rig_connect_reg(r, GA);
	unsigned int n = 0, err = 0;
	uint8_t mad[MAD], in[MAD];

	rig_established(r, a, 0x21, 0x66);
	shm->room = (uint32_t)room_taken(r);
	for (; !err && n < 4000; n++) {
		mad_req(mad, 0x1000 + n, n, GA, GP, CA_A, QPN_A, SVC_TCP);
		err = wire_mad(a, GA, mad);
		if (!err)
			rig_expect_write(r, in, REQ, GP, 1);
	}
	assert_int_equal(err, 3);
	assert_in_range(n, 2, 3999);
	assert_true(rig_logged(r, "event=state_full"));
	mad_req(mad, 0x99, 0x99, GP, GA, CA_P, QPN_P, SVC_TCP);
	rig_inject(r, GP, 1, mad);
	rig_expect_write(r, in, REJ, GP, 1);
	assert_int_equal(in[35], 3);
	mad_pair(mad, DREQ, 0x21, 0x66, 1);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, in, DREQ, GP, 1);
	/* Somebody has cleaned up. */
	shm->room = 0;
	mad_req(mad, 0x1000 + n, n, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, in, REQ, GP, 1);
	close(a);
}

static void s11_restart_without_state(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA);
	uint8_t mad[MAD], in[MAD];
	uint32_t va = rig_established(r, a, 0xa001, 0x55);

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

#define T(fn)	   cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
#define T2(fn, up) cmocka_unit_test_setup_teardown(fn, up, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T2(s11_restart, setup_manager),
		T2(s11_killed_daemon, setup_manager),
		T2(s11_restart_without_fds, setup_manager),
		T2(s11_broken_state, setup_manager),
		T2(s11_full_file_system, setup_manager),
		cmocka_unit_test(s11_sparse_state),
		T(s11_restart_without_state),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
