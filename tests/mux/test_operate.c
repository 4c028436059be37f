// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* What an operator does and sees, the client library, and policies. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "mux/lib/rdmacm-mux.h"
#include "tests/mux/rig.h"

/* Runs muxctl; returns what it printed, in static storage. */
static const char *muxctl(struct rig *r, const char *args, int *status)
{
	static char out[65536];
	char cmd[512];
	size_t n;
	FILE *p;

	snprintf(cmd, sizeof(cmd), "%s -d fab0 -s %s/mux %s 2>&1", MUX_CTL, r->dir, args);
	p = popen(cmd, "re");
	assert_non_null(p);
	n = fread(out, 1, sizeof(out) - 1, p);
	out[n] = '\0';
	*status = pclose(p);
	return out;
}

static void control(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), status;
	const char *out;
	uint8_t mad[MAD];
	struct stat st;
	json_t *list, *s;

	mad_req(mad, 0xa001, 1, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, mad, REQ, GP, 1);
	out = muxctl(r, "status", &status);
	assert_int_equal(status, 0);
	assert_non_null(strstr(out, "1 connected"));
	assert_non_null(strstr(out, "fab0/1 up"));
	out = muxctl(r, "clients", &status);
	assert_non_null(strstr(out, "::ffff:10.0.0.1"));
	out = muxctl(r, "sessions", &status);
	assert_non_null(strstr(out, "req-sent"));
	assert_non_null(strstr(out, "0x0000a001"));
	out = muxctl(r, "--json sessions", &status);
	list = json_loads(out, 0, NULL);
	assert_int_equal(json_array_size(list), 1);
	s = json_array_get(list, 0);
	assert_string_equal(json_string_value(json_object_get(s, "peer")), "::ffff:198.51.100.7");
	assert_string_equal(json_string_value(json_object_get(s, "role")), "active");
	json_decref(list);
	out = muxctl(r, "stats", &status);
	assert_non_null(strstr(out, "REQ"));
	out = muxctl(r, "metrics", &status);
	assert_non_null(
		strstr(out, "rdmacm_mux_messages_total{device=\"fab0\",port=\"1\",direction=\"tx\","
			    "message=\"REQ\"} 1\n"));
	/* Drained: what is there goes on, nothing new comes in. */
	muxctl(r, "drain", &status);
	assert_int_equal(status, 0);
	mad_req(mad, 0xa002, 2, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 3);
	muxctl(r, "drain off", &status);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, mad, REQ, GP, 1);
	muxctl(r, "disconnect 99999", &status);
	assert_int_not_equal(status, 0);
	muxctl(r, "log debug", &status);
	assert_int_equal(status, 0);
	muxctl(r, "log loud", &status);
	assert_int_not_equal(status, 0);
	out = muxctl(r, "nonsense", &status);
	assert_int_not_equal(status, 0);
	assert_non_null(strstr(out, "Usage"));
	muxctl(r, "disconnect 16", &status);
	assert_int_equal(status, 0);
	assert_true(wire_closes(a, RIG_MS));
	close(a);
	/* The control socket is the operator's, the other the group's. */
	assert_int_equal(stat(r->control, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(stat(r->socket, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0660);
	/* Nobody spoils it. */
	a = wire_connect(r->control);
	wire_send(a, "{\n[]\nnull\n{\"command\":7}\n", 24);
	for (unsigned int i = 0; i < 4; i++) {
		char buf[256];

		assert_true(recv(a, buf, 1, 0) == 1);
		while (recv(a, buf, 1, 0) == 1 && buf[0] != '\n')
			;
	}
	close(a);
	assert_int_equal(rig_status(r, "clients"), 0);
}

/* Long tables come in pages, complete. */
static void pages(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), status;
	uint8_t mad[MAD];
	json_t *list;

	for (unsigned int i = 0; i < 1200; i++) {
		mad_req(mad, i, i, GA, GP, CA_A, QPN_A, SVC_TCP);
		assert_int_equal(wire_mad(a, GA, mad), 0);
	}
	(void)status;
	{
		static char out[1 << 20];
		char cmd[256];
		size_t n;
		FILE *p;

		snprintf(cmd, sizeof(cmd), "%s -S %s -j sessions", MUX_CTL, r->control);
		p = popen(cmd, "re");
		n = fread(out, 1, sizeof(out) - 1, p);
		assert_int_equal(pclose(p), 0);
		list = json_loadb(out, n, 0, NULL);
	}
	assert_int_equal(json_array_size(list), 1200);
	json_decref(list);
	close(a);
}

static int setup_metrics(void **state)
{
	struct rig *r = rig_new();
	char opt[64];

	snprintf(opt, sizeof(opt), "metrics_listen=127.0.0.1:%d", 20000 + (int)getpid() % 20000);
	rig_option(r, opt);
	rig_start(r);
	*state = r;
	return 0;
}

static void metrics_http(void **state)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	const char *get = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
	char buf[65536];
	size_t got;
	ssize_t n;
	int fd;

	(void)state;
	addr.sin_port = htons((uint16_t)(20000 + (int)getpid() % 20000));
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (unsigned int i = 0; i < 3; i++) {
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
		if (i == 1)
			get = "GET / HTTP/1.1\r\n\r\n";
		/* In two pieces. */
		wire_send(fd, get, 5);
		poll(NULL, 0, 10);
		wire_send(fd, get + 5, strlen(get) - 5);
		for (got = 0; (n = recv(fd, buf + got, sizeof(buf) - 1 - got, 0)) > 0;
		     got += (size_t)n)
			;
		buf[got] = '\0';
		close(fd);
		if (i == 0) {
			assert_non_null(strstr(buf, "200 OK"));
			assert_non_null(strstr(
				buf, "\nrdmacm_mux_port_up{device=\"fab0\",port=\"1\"} 1\n"));
		} else {
			assert_non_null(strstr(buf, "404"));
		}
	}
}

static int setup_rules(void **state)
{
	struct rig *r = rig_new();
	char text[1024];

	snprintf(text, sizeof(text),
		 "[port fab0/1]\nlisten = %s\nlisten = %s/vm1\nmode = 0600\n"
		 "[rule vm1]\nlisten = %s/vm1\ngids = 10.0.0.2, fe80::/64\nmax_gids = 2\n"
		 "[rule rest]\ngids = 10.0.0.1\n",
		 r->socket, r->dir, r->dir);
	rig_config(r, text);
	rig_start(r);
	*state = r;
	return 0;
}

static void rules(void **state)
{
	struct rig *r = *state;
	int a = rig_connect(r), b, status;
	char path[128], text[1024];

	snprintf(path, sizeof(path), "%s/vm1", r->dir);
	b = wire_connect_wait(path, RIG_MS);
	assert_int_equal(wire_reg(a, GA), 0);
	assert_int_equal(wire_reg(a, GB), 3);
	assert_int_equal(wire_reg(b, GA), 3);
	assert_int_equal(wire_reg(b, GB), 0);
	assert_int_equal(wire_reg(b, LA), 0);
	assert_int_equal(wire_reg(b, LB), 3);
	/* The operator changes his mind. */
	snprintf(path, sizeof(path), "%s/conf", r->dir);
	rig_write_file(path, "[mux]\nnonsense = 1\n");
	muxctl(r, "reload", &status);
	assert_int_not_equal(status, 0);
	assert_int_equal(wire_reg(b, LB), 3);
	snprintf(text, sizeof(text),
		 "[port fab0/1]\nlisten = %s\nlisten = %s/vm1\n"
		 "[rule vm1]\nlisten = %s/vm1\n[rule rest]\naction = deny\n",
		 r->socket, r->dir, r->dir);
	rig_write_file(path, text);
	muxctl(r, "reload", &status);
	assert_int_equal(status, 0);
	assert_int_equal(wire_reg(b, LB), 0);
	assert_true(wire_closes(a, RIG_MS));
	close(a);
	a = rig_connect(r);
	assert_true(wire_closes(a, RIG_MS));
	close(a);
	close(b);
}

static void library(void **state)
{
	struct rig *r = *state;
	struct rmux *a = rmux_open(r->socket, RMUX_REREGISTER_OK), *b = rmux_open(r->socket, 0);
	struct rmux_status st;
	struct rmux_mad in;
	uint8_t mad[MAD];
	uint64_t cookie, next = 0;
	unsigned int got = 0, posted = 0;
	int err, result;
	char path[RMUX_PATH_MAX];

	assert_int_equal(rmux_path(path, NULL, "mlx5_0", 2), 0);
	assert_string_equal(path, "/var/run/rdmacm-mux-mlx5_0-2");
	assert_non_null(a);
	assert_non_null(b);
	assert_int_equal(rmux_info(a)->version, 1);
	assert_true(rmux_info(a)->window > 1);
	assert_int_equal(rmux_register(a, GA), 0);
	assert_int_equal(rmux_register(a, GA), 0);
	assert_int_equal(rmux_register(b, GA), EACCES);
	assert_int_equal(rmux_register(b, GB), 0);
	assert_int_equal(rmux_register(b, GB), EEXIST);
	assert_int_equal(rmux_unregister(b, LA), ENOENT);
	assert_int_equal(rmux_receive(b, &in), EAGAIN);
	mad_req(mad, 1, 1, GA, GB, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(rmux_send(a, GA, NULL, mad, 20), EINVAL);
	assert_int_equal(rmux_send(a, GA, NULL, mad, MAD), 0);
	/* It comes while b waits for something else. */
	while (rmux_query(b, &st) == 0 && !st.received)
		;
	assert_int_equal(st.gids, 1);
	assert_int_equal(st.sessions, 1);
	assert_int_equal(st.port_up, 1);
	/* The query has read it, so waiting for the descriptor would be in vain. */
	assert_int_equal(poll(&(struct pollfd){ .fd = rmux_fd(b), .events = POLLIN }, 1, 0), 0);
	assert_int_equal(rmux_pending(b), 1);
	assert_int_equal(rmux_receive(b, &in), 0);
	assert_int_equal(rmux_pending(b), 0);
	assert_memory_equal(in.destination, GB, 16);
	assert_memory_equal(in.source.gid, GA, 16);
	assert_int_equal(in.length, MAD);
	/* Many at once, without waiting. */
	while (posted < 200 || next < 200) {
		struct pollfd p = { .fd = rmux_fd(a), .events = POLLIN };

		while (posted < 200) {
			mad_req(mad, 100 + posted, 100 + posted, GA, GB, CA_A, QPN_A, SVC_TCP);
			err = rmux_post(a, GA, NULL, mad, MAD, posted);
			if (err)
				break;
			posted++;
		}
		if (posted < 200)
			assert_int_equal(err, EAGAIN);
		while (rmux_result(a, &cookie, &result) == 0) {
			assert_int_equal(cookie, next++);
			assert_int_equal(result, 0);
		}
		if (next < posted)
			assert_int_equal(poll(&p, 1, RIG_MS), 1);
		while (rmux_receive(b, &in) == 0)
			got++;
	}
	while (got < 200) {
		struct pollfd p = { .fd = rmux_fd(b), .events = POLLIN };

		assert_int_equal(poll(&p, 1, RIG_MS), 1);
		while (rmux_receive(b, &in) == 0)
			got++;
	}
	assert_int_equal(rmux_lost(b), 0);
	rig_stop(r, SIGTERM);
	assert_int_equal(rmux_register(a, LA), ECONNRESET);
	assert_int_equal(rmux_receive(a, &in), ECONNRESET);
	rmux_close(a);
	rmux_close(b);
	assert_null(rmux_open(r->socket, 0));
	assert_int_equal(errno, ENOENT);
}

static int setup_replace(void **state)
{
	return rig_setup_with(state, (const char *[]){ "ca_guid=replace", NULL });
}

/* Clones of one machine have one CA GUID. */
static void clones(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), b = rig_connect_reg(r, GB);
	uint8_t mad[MAD], x[MAD], y[MAD];

	mad_req(mad, 1, 1, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, x, REQ, GP, 1);
	mad_req(mad, 1, 1, GB, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(b, GB, mad), 0);
	rig_expect_write(r, y, REQ, GP, 2);
	assert_true(be64(x + 40) != be64(y + 40));
	mad_rej(mad, 1, 0, 1, 2, 4);
	put_be64(mad + 36, CA_A);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, mad, REJ, GP, 1);
	assert_true(be64(mad + 36) == be64(x + 40));
	close(a);
	close(b);
}

static int setup_small(void **state)
{
	return rig_setup_with(state, (const char *[]){ "max_sessions=20", "max_clients=3", NULL });
}

static void exhaustion(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), b = rig_connect_reg(r, GB), c = rig_connect(r), d;
	uint8_t mad[MAD], in[MAD];

	for (unsigned int i = 0; i < 20; i++) {
		mad_req(mad, i, i, GA, GP, CA_A, QPN_A, SVC_TCP);
		assert_int_equal(wire_mad(a, GA, mad), 0);
		rig_expect_write(r, in, REQ, GP, 1);
	}
	mad_req(mad, 20, 20, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 3);
	/* A retransmission takes no room. */
	mad_req(mad, 19, 19, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, in, REQ, GP, 1);
	mad_req(mad, 0x99, 0x99, GP, GA, CA_P, QPN_P, SVC_TCP);
	rig_inject(r, GP, 1, mad);
	rig_expect_write(r, in, REJ, GP, 1);
	assert_int_equal(in[35], 3);
	assert_int_equal(be32(in + M_REMOTE), 0x99);
	/* The guest starts anew: its old sessions make room. */
	assert_int_equal(wire_reg(a, GA), 2);
	mad_req(mad, 20, 20, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, in, REQ, GP, 1);
	/* Others are not touched by it. */
	mad_req(mad, 1, 1, GB, GP, CA_B, QPN_B, SVC_TCP);
	assert_int_equal(wire_mad(b, GB, mad), 0);
	rig_expect_write(r, in, REQ, GP, 2);
	d = rig_connect(r);
	assert_true(wire_closes(d, RIG_MS));
	close(d);
	close(c);
	rig_wait_status(r, "clients", 2);
	/* Accepting goes on after a pause. */
	rig_advance(r, 2000);
	d = rig_connect(r);
	assert_int_equal(wire_reg(d, LA), 0);
	close(a);
	close(b);
	close(d);
}

/* Started by a service manager: its socket, signs of life, news. */
static void service(void **state)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct rig *r = rig_new();
	unsigned int alive = 0;
	bool ready = false, stopping = false;
	int fds[1], a;
	char text[256];
	ssize_t n;

	(void)state;
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/notify", r->dir);
	r->notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(r->notify_fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", r->socket);
	fds[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fds[0], (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(fds[0], 5), 0);
	/* A client may be early. */
	a = rig_connect(r);
	r->pass_fds = fds;
	r->pass_names = "rdmacm-mux.socket";
	r->n_pass = 1;
	r->watchdog = true;
	rig_start(r);
	assert_int_equal(wire_reg(a, GA), 0);
	for (unsigned int i = 0; alive < 3 && i < RIG_MS / 10; i++) {
		n = recv(r->notify_fd, text, sizeof(text) - 1, MSG_DONTWAIT);
		if (n < 0) {
			poll(NULL, 0, 10);
			continue;
		}
		text[n] = '\0';
		alive += strstr(text, "WATCHDOG=1") != NULL;
		ready |= strstr(text, "READY=1") != NULL;
	}
	assert_true(alive >= 3 && ready);
	rig_stop(r, SIGTERM);
	while ((n = recv(r->notify_fd, text, sizeof(text) - 1, MSG_DONTWAIT)) > 0) {
		text[n] = '\0';
		stopping |= strstr(text, "STOPPING=1") != NULL;
	}
	assert_true(stopping);
	/* The manager's socket stays. */
	assert_int_equal(access(r->socket, F_OK), 0);
	close(a);
	close(fds[0]);
	close(r->notify_fd);
	rig_free(r);
}

static void privileges(void **state)
{
	struct rig *r = rig_new();
	unsigned int uid = 0;
	unsigned long long caps = 1;
	char path[64], line[256];
	FILE *f;
	int a;

	(void)state;
	if (geteuid() != 0)
		skip();
	rig_option(r, "-u");
	r->opts[r->n_opts++] = strdup("nobody");
	rig_start(r);
	a = rig_connect_reg(r, GA);
	snprintf(path, sizeof(path), "/proc/%d/status", (int)r->pid);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		sscanf(line, "Uid: %u", &uid);
		sscanf(line, "CapEff: %llx", &caps);
	}
	fclose(f);
	assert_int_not_equal(uid, 0);
	assert_true(caps == 0);
	close(a);
	rig_wait_status(r, "clients", 0);
	rig_free(r);
}

/* Two devices in one process: each has clients and addresses of its own. */
static void two_ports(void **state)
{
	struct rig *r = rig_new();
	char path[128], text[512];
	uint8_t mad[MAD], pkt[PKT_SIZE];
	unsigned int second;
	int a, b;

	(void)state;
	second = fabric_add(r->f, "fab1");
	fabric_set_gid(r->f, second, 5, GA);
	fabric_carry(r->f, false);
	snprintf(text, sizeof(text), "[port fab1/1]\nlisten = %s/second\n", r->dir);
	rig_config(r, text);
	rig_start(r);
	a = rig_connect_reg(r, GA);
	snprintf(path, sizeof(path), "%s/second", r->dir);
	b = wire_connect_wait(path, RIG_MS);
	assert_int_equal(wire_reg(b, GA), 0);
	mad_req(mad, 1, 1, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(b, GA, mad), 0);
	assert_true(fabric_written(r->f, second, pkt, RIG_MS));
	assert_int_equal(pkt[33], 5);
	/* The id is known on its own device only. */
	mad_rep(mad, 0x70, be32(pkt + PKT_MAD + M_LOCAL), 1, CA_P, QPN_P);
	rig_inject(r, GP, 1, mad);
	rig_wait_dropped(r, "wrong_source", 1);
	rig_expect_nothing(b);
	fabric_inject(r->f, second, GP, 5, mad);
	rig_expect_mad(b, mad, REP, GA, GP);
	/* One goes, the other stays. */
	fabric_unplug(r->f, second);
	for (unsigned int i = 0; !rig_logged(r, "event=port_down") && i < RIG_MS; i += 5)
		poll(NULL, 0, 5);
	mad_req(mad, 1, 1, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, mad, REQ, GP, 1);
	assert_int_equal(wire_mad(b, GA, mad), 4);
	close(a);
	close(b);
	rig_free(r);
}

static unsigned int log_lines(struct rig *r, const char *text)
{
	FILE *f = fopen(r->log, "re");
	unsigned int n = 0;
	char line[1024];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, text) != NULL;
	fclose(f);
	return n;
}

/* No descriptors left: no spinning, and on it goes when there are some. */
static void out_of_files(void **state)
{
	struct rig *r = *state;
	struct rlimit few = { 60, 60 }, old;
	int fds[60];

	assert_int_equal(prlimit(r->pid, RLIMIT_NOFILE, NULL, &old), 0);
	few.rlim_max = old.rlim_max;
	assert_int_equal(prlimit(r->pid, RLIMIT_NOFILE, &few, NULL), 0);
	for (unsigned int i = 0; i < 60; i++)
		fds[i] = rig_connect(r);
	for (unsigned int i = 0; !rig_logged(r, "event=accept_failed") && i < RIG_MS; i += 5)
		poll(NULL, 0, 5);
	poll(NULL, 0, 300);
	assert_in_range(log_lines(r, "event=accept_failed"), 1, 5);
	assert_int_equal(wire_reg(fds[0], GA), 0);
	assert_int_equal(prlimit(r->pid, RLIMIT_NOFILE, &old, NULL), 0);
	rig_advance(r, 2000);
	assert_int_equal(wire_reg(fds[59], GB), 0);
	for (unsigned int i = 0; i < 60; i++)
		close(fds[i]);
}

static int setup_load(void **state)
{
	return rig_setup_with(state, (const char *[]){ "mad_rate=10000000", NULL });
}

/* Passing a MAD on allocates nothing. */
static void no_allocation(void **state)
{
	struct rig *r = *state;
	struct double_shm *shm = fabric_shm(r->f);
	int a = rig_connect_reg(r, GA);
	uint8_t mad[MAD], in[MAD];
	uint64_t before = 0;
	uint32_t va;

	mad_req(mad, 1, 1, GA, GP, CA_A, QPN_A, SVC_TCP);
	assert_int_equal(wire_mad(a, GA, mad), 0);
	rig_expect_write(r, in, REQ, GP, 1);
	va = be32(in + M_LOCAL);
	mad_rep(mad, 0x55, va, va, CA_P, QPN_P);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, REP, GA, GP);
	poll(NULL, 0, 100);
	for (unsigned int i = 0; i < 3000; i++) {
		uint8_t frame[FRAME];

		if (i == 1000)
			before = shm->allocations;
		mad_pair(mad, MRA, 1, 0x55, i);
		frame_mad(frame, GA, mad);
		wire_send(a, frame, FRAME);
		do
			assert_true(wire_recv(a, frame, RIG_MS, NULL));
		while (host32(frame + F_TYPE) != T_RESP);
		rig_expect_write(r, in, MRA, GP, 1);
		mad_pair(mad, MRA, 0x55, va, i);
		rig_inject(r, GP, 1, mad);
	}
	if (!before)
		skip();
	/* A queue that is longer than any before takes a chunk of buffers, and keeps it. */
	assert_in_range(shm->allocations - before, 0, 3);
	close(a);
}

static int setup_registrations(void **state)
{
	return rig_setup_with(state, (const char *[]){ "registration_rate=1000000", NULL });
}

/* A client that provokes a line with each request does not fill the disk, and what was left out is told. */
static void log_rate(void **state)
{
	struct rig *r = *state;
	int a = rig_connect_reg(r, GA), b = rig_connect(r);
	unsigned int n;

	for (unsigned int i = 0; i < 2000; i++)
		assert_int_equal(wire_reg(b, GA), 3);
	/* The clock goes on meanwhile, and each of its intervals has some lines. */
	n = log_lines(r, "event=gid_refused");
	assert_in_range(n, 1, 400);
	rig_advance(r, 60000);
	assert_int_equal(wire_reg(b, GA), 3);
	assert_true(rig_logged(r, "left_out="));
	/* Other lines are not held up by it. */
	assert_int_equal(wire_reg(b, GB), 0);
	assert_true(rig_logged(r, "gid=::ffff:10.0.0.2 how=request"));
	close(a);
	close(b);
}

#define T(fn)	   cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
#define T2(fn, up) cmocka_unit_test_setup_teardown(fn, up, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(control),
		T(pages),
		T2(metrics_http, setup_metrics),
		T2(rules, setup_rules),
		T(library),
		T2(clones, setup_replace),
		T2(exhaustion, setup_small),
		cmocka_unit_test(service),
		cmocka_unit_test(privileges),
		cmocka_unit_test(two_ports),
		T(out_of_files),
		T2(no_allocation, setup_load),
		T2(log_rate, setup_registrations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
