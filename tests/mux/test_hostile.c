// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Clients, hosts and operators at their worst: the daemon goes on, and nobody but the one at fault loses anything. */
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
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/mux/rig.h"

/* A virtual machine has a socket of its own, "vm1": that is its identity. */
static int setup_vm(void **state)
{
	struct rig *r = rig_new();
	char text[1024];

	snprintf(text, sizeof(text),
		 "[port fab0/1]\nlisten = %s\nlisten = %s/vm1\n"
		 "[rule vm1]\nlisten = %s/vm1\nmax_connections = 3\n[rule rest]\ngids = 10.0.0.2\n",
		 r->socket, r->dir, r->dir);
	rig_config(r, text);
	rig_start(r);
	*state = r;
	return 0;
}

/* A process that connects to path, sends a REQ from GA to GP, which is written, and lives until it is killed. */
static pid_t start_victim(struct rig *r, const char *path)
{
	uint8_t mad[MAD];
	pid_t pid;
	int go[2];

	assert_int_equal(pipe(go), 0);
	pid = fork();
	if (!pid) {
		int fd;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fd = wire_connect_wait(path, RIG_MS);
		mad_req(mad, 1, 1, GA, GP, CA_A, QPN_A, SVC_TCP);
		if (wire_reg(fd, GA) == 0 && wire_mad(fd, GA, mad) == 0)
			(void)!write(go[1], "", 1);
		pause();
		_exit(0);
	}
	assert_int_equal(read(go[0], mad, 1), 1);
	rig_expect_write(r, mad, REQ, GP, 1);
	close(go[0]);
	close(go[1]);
	return pid;
}

/*
 * A virtual machine is killed, and its successor, connected already, registers the address before the daemon has looked at the
 * death: the successor is the owner, and the sessions of the dead one are spoken for.
 */
static void successor_before_obituary(void **state)
{
	struct rig *r = *state;
	uint8_t frame[FRAME], answer[FRAME], mad[MAD];
	int next, status;
	char path[128];
	pid_t pid;

	snprintf(path, sizeof(path), "%s/vm1", r->dir);
	pid = start_victim(r, path);
	next = wire_connect_wait(path, RIG_MS);
	assert_int_equal(wire_reg(next, GB), 0);
	/* Request first, death second; the daemon sees both at once. */
	kill(r->pid, SIGSTOP);
	assert_int_equal(waitpid(r->pid, &status, WUNTRACED), r->pid);
	assert_true(WIFSTOPPED(status));
	frame_simple(frame, OP_REG, GA);
	wire_send(next, frame, sizeof(frame));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	kill(r->pid, SIGCONT);
	assert_true(wire_recv(next, answer, RIG_MS, NULL));
	assert_int_equal(host32(answer + F_ERR), 0);
	rig_expect_write(r, mad, REJ, GP, 1);
	assert_int_equal(wire_reg(next, GA), 2);
	close(next);
}

static void unresolvable(struct rig *r, const uint8_t *a, const uint8_t *b, uint32_t ms)
{
	struct double_shm *shm = fabric_shm(r->f);

	shm->resolve_ms = ms;
	memcpy(shm->unresolvable[0], a, 16);
	if (b)
		memcpy(shm->unresolvable[1], b, 16);
	shm->n_unresolvable = b ? 2 : 1;
}

static int setup_one_lane(void **state)
{
	return rig_setup_with(state,
			      (const char *[]){ "lanes=1", "probes=1", "unreachable_ms=1", NULL });
}

static void send_req(int a, uint32_t id, const uint8_t *dst)
{
	uint8_t mad[MAD];

	mad_req(mad, id, id, GA, dst, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
}

/* A MAD for this destination is written, maybe after others. */
static bool arrives(struct rig *r, const uint8_t *dst)
{
	uint8_t pkt[PKT_SIZE];

	while (fabric_written(r->f, r->port, pkt, 3000))
		if (memcmp(pkt + 36, dst, 16) == 0)
			return true;
	return false;
}

/* A host dies with MADs on their way, and the failure of the last is told when the next already waits for its probe. */
static void late_failure(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA);
	uint8_t mad[MAD];

	send_req(a, 1, GP);
	rig_expect_write(r, mad, REQ, GP, 1);
	unresolvable(r, GP, GQ, 300);
	send_req(a, 2, GP);
	send_req(a, 3, GP);
	rig_wait_dropped(r, "unreachable", 1);
	unresolvable(r, GP, GQ, 1500);
	send_req(a, 4, GQ);
	for (unsigned int ms = 0; !fabric_shm(r->f)->blocked && ms < RIG_MS; ms++)
		poll(NULL, 0, 1);
	send_req(a, 5, GP);
	fabric_shm(r->f)->n_unresolvable = 0;
	/* One that is sent in the very millisecond in which a failure is told is lost with it. */
	for (uint32_t id = 6; !arrives(r, GP); id++) {
		assert_true(id < 20);
		send_req(a, id, GP);
	}
	assert_true(rig_status(r, "gids") == 1);
	close(a);
}

/* A host dies, and a client has posted many MADs for it before that is known: others on the same lane are not held up by each of them. */
static void dead_host_holds_lane_once(void **state)
{
	struct double_shm *shm = fabric_shm(((struct rig *)*state)->f);
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA);
	uint8_t mad[MAD];

	send_req(a, 1, GP);
	rig_expect_write(r, mad, REQ, GP, 1);
	send_req(a, 2, GQ);
	rig_expect_write(r, mad, REQ, GQ, 1);
	unresolvable(r, GP, NULL, 1500);
	for (uint32_t i = 0; i < 40; i++)
		send_req(a, 10 + i, GP);
	send_req(a, 3, GQ);
	rig_expect_write(r, mad, REQ, GQ, 1);
	assert_true(shm->bad_writes < 5);
	rig_wait_dropped(r, "unreachable", 40);
	/* It is back: what is posted from now on arrives. */
	shm->n_unresolvable = 0;
	rig_advance(r, 1000);
	send_req(a, 60, GP);
	rig_expect_write(r, mad, REQ, GP, 1);
	close(a);
}

/* Starts a daemon that must refuse to, and says why. */
static void expect_refusal(struct rig *r, const char *device, const char *prefix, const char *why)
{
	pid_t pid = rig_spawn(r, device, prefix);
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0);
	assert_true(rig_logged(r, why));
}

static void expect_content(const char *path, const char *text)
{
	char buf[64] = "";
	FILE *f = fopen(path, "re");

	assert_non_null(f);
	assert_non_null(fgets(buf, sizeof(buf), f));
	fclose(f);
	assert_string_equal(buf, text);
}

/* The operator names files that are something else: none is removed or written to. */
static void wrong_files(void **state)
{
	static const char text[] = "precious\n";
	struct rig *r = *state;
	char path[128], prefix[128], option[160];

	snprintf(path, sizeof(path), "%s/file-fab0-1", r->dir);
	snprintf(prefix, sizeof(prefix), "%s/file", r->dir);
	rig_write_file(path, text);
	expect_refusal(r, NULL, prefix, "file-fab0-1 is in the way of a socket");
	expect_content(path, text);
	snprintf(option, sizeof(option), "control_path=%s", path);
	rig_option(r, option);
	expect_refusal(r, NULL, NULL, "file-fab0-1 is in the way of a socket");
	expect_content(path, text);
	free(r->opts[--r->n_opts]);
	free(r->opts[--r->n_opts]);
	snprintf(option, sizeof(option), "state_file=%s", path);
	rig_option(r, option);
	expect_refusal(r, NULL, NULL, "file-fab0-1 is no state file");
	expect_content(path, text);
}

/* Two muxes, and the second has a copy of the first one's configuration: it takes nothing away. */
static void control_of_another(void **state)
{
	struct rig *r = *state;
	char option[160], prefix[128];

	fabric_add(r->f, "fab1");
	rig_start(r);
	snprintf(option, sizeof(option), "control_path=%s", r->control);
	rig_option(r, option);
	snprintf(prefix, sizeof(prefix), "%s/second", r->dir);
	expect_refusal(r, "fab1", prefix, "is served by another mux");
	assert_int_equal(rig_status(r, "clients"), 0);
}

/* Who reads the log has stopped. */
static void nobody_reads_log(void **state)
{
	struct rig *r = *state;
	char page[4096] = { 0 };
	int in, out, a;

	assert_int_equal(mkfifo(r->log, 0600), 0);
	out = open(r->log, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	in = open(r->log, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	while (write(in, page, sizeof(page)) > 0)
		;
	rig_start(r);
	a = rig_connect_reg(r, GA);
	assert_int_equal(wire_reg(a, GB), 0);
	close(a);
	/* The rig wants to read it at the end. */
	unlink(r->log);
	rig_write_file(r->log, "");
	close(in);
	close(out);
}

static int setup_stopped(void **state)
{
	*state = rig_new();
	return 0;
}

static int setup_one_word(void **state)
{
	return rig_setup_with(state, (const char *[]){ "built_rate=0/1", NULL });
}

/* A host asks for the end of connections that never were, and uses up what the mux answers to such: the dead are still spoken for. */
static void obituary_in_flood(void **state)
{
	struct rig *r = *state;
	pid_t pid = start_victim(r, r->socket);
	uint8_t mad[MAD];

	for (uint32_t i = 0; i < 10; i++) {
		mad_pair(mad, DREQ, 0x100 + i, 0x77000000 + i, i);
		rig_inject(r, GQ, 1, mad);
	}
	rig_wait_dropped(r, "rate", 9);
	rig_expect_write(r, mad, DREP, GQ, 1);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	rig_expect_write(r, mad, REJ, GP, 1);
}

/* A machine connects again and again: it has its share, and others have theirs. */
static void many_connections(void **state)
{
	struct rig *r = *state;
	int fd[3], more, other;
	char path[128];

	snprintf(path, sizeof(path), "%s/vm1", r->dir);
	for (unsigned int i = 0; i < 3; i++) {
		fd[i] = wire_connect_wait(path, RIG_MS);
		assert_int_equal(wire_reg(fd[i], i ? LA : GA), i < 2 ? 0 : 3);
	}
	more = wire_connect_wait(path, RIG_MS);
	assert_true(wire_closes(more, RIG_MS));
	close(more);
	assert_true(rig_logged(r, "max_connections is 3"));
	other = rig_connect_reg(r, GB);
	close(fd[2]);
	rig_wait_status(r, "clients", 3);
	more = wire_connect_wait(path, RIG_MS);
	assert_int_equal(wire_reg(more, LB), 0);
	close(more);
	close(other);
	close(fd[0]);
	close(fd[1]);
}

/* A host sends many requests under one id, which all would have to be looked at for each further one. */
static void one_id_for_all(void **state)
{
	enum {
		REQUESTS = 500,
		MOST = 64
	};
	struct rig *r = *state;
	uint8_t mad[MAD];
	int a = rig_connect_reg(r, GA);

	for (uint32_t i = 0; i < REQUESTS; i++) {
		mad_req(mad, 0x99, 1000 + i, GQ, GA, CA_Q, QPN_P, SVC_TCP);
		rig_inject(r, GQ, 1, mad);
	}
	rig_wait_dropped(r, "source_rate", REQUESTS - MOST);
	rig_wait_status(r, "sessions", MOST);
	/* Its other ids and other hosts are as welcome as before. */
	mad_req(mad, 0x9a, 1, GQ, GA, CA_Q, QPN_P, SVC_TCP);
	rig_inject(r, GQ, 1, mad);
	mad_req(mad, 0x99, 1, GP, GA, CA_P, QPN_P, SVC_TCP);
	rig_inject(r, GP, 1, mad);
	rig_wait_status(r, "sessions", MOST + 2);
	close(a);
}

/* The process may have few descriptors, and clients take all they get: the operator's connection still has one. */
static void few_files(void **state)
{
	enum {
		CLIENTS = 150
	};
	struct rig *r = *state;
	int fd[CLIENTS];

	r->max_files = 200;
	rig_start(r);
	for (unsigned int i = 0; i < CLIENTS; i++)
		fd[i] = wire_connect_wait(r->socket, RIG_MS);
	rig_wait_status(r, "clients", rig_status(r, "clients_limit"));
	for (unsigned int i = 0; i < CLIENTS; i++)
		close(fd[i]);
}

#define T2(fn, up) cmocka_unit_test_setup_teardown(fn, up, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T2(successor_before_obituary, setup_vm),
		T2(late_failure, setup_one_lane),
		T2(dead_host_holds_lane_once, setup_one_lane),
		T2(wrong_files, setup_stopped),
		T2(control_of_another, setup_stopped),
		T2(nobody_reads_log, setup_stopped),
		T2(obituary_in_flood, setup_one_word),
		T2(few_files, setup_stopped),
		T2(one_id_for_all, setup_one_word),
		T2(many_connections, setup_vm),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
