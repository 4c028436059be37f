// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tests/mux/rig.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define DIE(...)                                      \
	do {                                          \
		fprintf(stderr, "rig: " __VA_ARGS__); \
		fprintf(stderr, "\n");                \
		abort();                              \
	} while (0)

uint8_t GA[16], GB[16], GP[16], GQ[16], LA[16], LB[16];

static void fill_names(void)
{
	gid4(GA, 0x0a000001);
	gid4(GB, 0x0a000002);
	gid4(GP, 0xc6336407);
	gid4(GQ, 0xc6336408);
	gid6(LA, 0xfe80000000000000, 0x505400fffe123456);
	gid6(LB, 0xfe80000000000000, 0x505401fffe123456);
}

struct rig *rig_new(void)
{
	struct rig *r = calloc(1, sizeof(*r));

	fill_names();
	strcpy(r->dir, "/tmp/mux-test-XXXXXX");
	if (!mkdtemp(r->dir))
		DIE("mkdtemp: %s", strerror(errno));
	snprintf(r->socket, sizeof(r->socket), "%s/mux-fab0-1", r->dir);
	snprintf(r->control, sizeof(r->control), "%s.ctl", r->socket);
	snprintf(r->log, sizeof(r->log), "%s/log", r->dir);
	r->notify_fd = -1;
	r->f = fabric_new(r->dir);
	r->port = fabric_add(r->f, "fab0");
	fabric_set_gid(r->f, r->port, 1, GA);
	fabric_set_gid(r->f, r->port, 2, GB);
	fabric_set_gid(r->f, r->port, 3, LA);
	fabric_set_gid(r->f, r->port, 4, LB);
	return r;
}

int rig_setup_with(void **state, const char *const *options)
{
	struct rig *r = rig_new();

	for (; *options; options++)
		rig_option(r, *options);
	rig_start(r);
	*state = r;
	return 0;
}

int rig_setup(void **state)
{
	static const char *const none[] = { NULL };

	return rig_setup_with(state, none);
}

int rig_teardown(void **state)
{
	rig_free(*state);
	return 0;
}

void rig_write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	if (!f || fputs(text, f) < 0 || fclose(f))
		DIE("%s: %s", path, strerror(errno));
}

void rig_option(struct rig *r, const char *opt)
{
	if (opt[0] != '-')
		r->opts[r->n_opts++] = strdup("-o");
	r->opts[r->n_opts++] = strdup(opt);
}

void rig_config(struct rig *r, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/conf", r->dir);
	rig_write_file(path, text);
	rig_option(r, "-c");
	r->opts[r->n_opts++] = strdup(path);
}

static void child(struct rig *r, const char *device, const char *prefix)
{
	const char *program = r->daemon ? r->daemon : MUX_DAEMON;
	const char *argv[RIG_MAX_OPTS + 8] = { program, "-d", device, "-s", prefix };
	char san[512], num[32];
	int log, n = 5, fd;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned int i = 0; i < r->n_opts; i++)
		argv[n++] = r->opts[i];
	setenv("LD_PRELOAD", MUX_DOUBLE, 1);
	setenv(DOUBLE_ENV, r->dir, 1);
	snprintf(san, sizeof(san), "%s:verify_asan_link_order=0",
		 getenv("ASAN_OPTIONS") ? getenv("ASAN_OPTIONS") : "");
	setenv("ASAN_OPTIONS", san, 1);
	log = open(r->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	dup2(log, STDERR_FILENO);
	if (r->notify_fd >= 0) {
		snprintf(san, sizeof(san), "%s/notify", r->dir);
		setenv("NOTIFY_SOCKET", san, 1);
	}
	if (r->watchdog) {
		snprintf(num, sizeof(num), "%d", (int)getpid());
		setenv("WATCHDOG_PID", num, 1);
		setenv("WATCHDOG_USEC", "100000", 1);
	}
	if (r->n_pass) {
		/* Above all others first, so that none overwrites one that is still to be placed. */
		for (unsigned int i = 0; i < r->n_pass; i++)
			r->pass_fds[i] = fcntl(r->pass_fds[i], F_DUPFD, 512);
		for (unsigned int i = 0; i < r->n_pass; i++)
			dup2(r->pass_fds[i], 3 + (int)i);
		snprintf(num, sizeof(num), "%u", r->n_pass);
		setenv("LISTEN_FDS", num, 1);
		setenv("LISTEN_FDNAMES", r->pass_names, 1);
		snprintf(num, sizeof(num), "%d", (int)getpid());
		setenv("LISTEN_PID", num, 1);
	}
	for (fd = 3 + (int)r->n_pass; fd < 1024; fd++)
		close(fd);
	for (fd = 0; r->closed_std && fd < 3; fd++)
		close(fd);
	if (r->max_files) {
		struct rlimit lim = { r->max_files, r->max_files };

		setrlimit(RLIMIT_NOFILE, &lim);
	}
	execv(program, (char **)(uintptr_t)argv);
	_exit(127);
}

pid_t rig_spawn(struct rig *r, const char *device, const char *prefix)
{
	char text[96];
	pid_t pid;

	if (!prefix) {
		snprintf(text, sizeof(text), "%s/mux", r->dir);
		prefix = text;
	}
	pid = fork();
	if (pid < 0)
		DIE("fork: %s", strerror(errno));
	if (!pid)
		child(r, device ? device : "fab0", prefix);
	return pid;
}

static void show_log(struct rig *r)
{
	char buf[8192];
	int fd = open(r->log, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	while (fd >= 0 && (n = read(fd, buf, sizeof(buf))) > 0)
		fwrite(buf, 1, (size_t)n, stderr);
	if (fd >= 0)
		close(fd);
}

void rig_start(struct rig *r)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int status, fd;

	r->pid = rig_spawn(r, NULL, NULL);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", r->control);
	for (unsigned int waited = 0;; waited += 5) {
		json_t *ans;

		if (waitpid(r->pid, &status, WNOHANG) == r->pid) {
			show_log(r);
			DIE("the daemon ended at start, status 0x%x", status);
		}
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0) {
			close(fd);
			ans = rig_control(r, "{\"command\":\"status\"}");
			json_decref(ans);
			return;
		}
		close(fd);
		if (waited > RIG_MS)
			DIE("the daemon does not serve");
		poll(NULL, 0, 5);
	}
}

int rig_stop(struct rig *r, int sig)
{
	int status;

	kill(r->pid, sig);
	if (waitpid(r->pid, &status, 0) != r->pid)
		DIE("waitpid: %s", strerror(errno));
	r->pid = 0;
	return status;
}

void rig_free(struct rig *r)
{
	char cmd[128];
	int status;

	if (r->pid) {
		status = rig_stop(r, SIGTERM);
		if (!WIFEXITED(status) || WEXITSTATUS(status)) {
			show_log(r);
			DIE("the daemon did not end well: status 0x%x", status);
		}
	}
	if (rig_logged(r, "Sanitizer")) {
		show_log(r);
		DIE("a sanitizer complained");
	}
	fabric_free(r->f);
	for (unsigned int i = 0; i < r->n_opts; i++)
		free(r->opts[i]);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", r->dir);
	if (system(cmd))
		DIE("%s", cmd);
	free(r);
}

int rig_connect(struct rig *r)
{
	return wire_connect_wait(r->socket, RIG_MS);
}

int rig_connect_reg(struct rig *r, const uint8_t *gid)
{
	int fd = rig_connect(r);
	unsigned int err = wire_reg(fd, gid);

	if (err)
		DIE("REG: error %u", err);
	return fd;
}

static void must_take(int fd, const uint8_t *mad)
{
	unsigned int err = wire_mad(fd, GA, mad);

	if (err)
		DIE("MAD with attribute 0x%02x: error %u", mad[M_ATTR + 1], err);
}

uint32_t rig_established(struct rig *r, int a, uint32_t local, uint32_t peer)
{
	uint8_t mad[MAD], in[MAD];
	uint32_t va;

	mad_req(mad, local, local, GA, GP, CA_A, QPN_A, SVC_TCP);
	must_take(a, mad);
	rig_expect_write(r, mad, REQ, GP, 1);
	va = be32(mad + M_LOCAL);
	mad_rep(mad, peer, va, va, CA_P, QPN_P);
	rig_inject(r, GP, 1, mad);
	rig_expect_mad(a, in, REP, GA, GP);
	/* So that the answer to the next request is a plain one. */
	poll(NULL, 0, 50);
	mad_pair(mad, RTU, local, peer, local);
	must_take(a, mad);
	rig_expect_write(r, mad, RTU, GP, 1);
	return va;
}

void rig_advance(struct rig *r, unsigned int ms)
{
	fabric_shm(r->f)->clock_skew_ns += (int64_t)ms * 1000000;
}

json_t *rig_control(struct rig *r, const char *request)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char *buf = malloc(1 << 20);
	size_t got = 0;
	json_t *ans;
	ssize_t n;

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", r->control);
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
		DIE("%s: %s", r->control, strerror(errno));
	wire_send(fd, request, strlen(request));
	wire_send(fd, "\n", 1);
	while (!got || buf[got - 1] != '\n') {
		n = recv(fd, buf + got, (1 << 20) - got, 0);
		if (n <= 0) {
			show_log(r);
			DIE("control socket closed after %zu bytes of an answer to %s", got,
			    request);
		}
		got += (size_t)n;
	}
	close(fd);
	ans = json_loadb(buf, got, 0, NULL);
	if (!ans)
		DIE("no JSON: %.*s", (int)got, buf);
	free(buf);
	return ans;
}

json_int_t rig_status(struct rig *r, const char *key)
{
	json_t *ans = rig_control(r, "{\"command\":\"status\"}");
	json_t *v = json_object_get(ans, key);
	json_int_t n;

	if (!v)
		DIE("status has no %s", key);
	n = json_integer_value(v);
	json_decref(ans);
	return n;
}

json_int_t rig_dropped(struct rig *r, const char *reason)
{
	json_t *ans = rig_control(r, "{\"command\":\"stats\"}");
	json_t *port = json_array_get(json_object_get(ans, "ports"), 0);
	json_int_t n =
		json_integer_value(json_object_get(json_object_get(port, "dropped"), reason));

	json_decref(ans);
	return n;
}

void rig_wait_status(struct rig *r, const char *key, json_int_t value)
{
	for (unsigned int waited = 0; rig_status(r, key) != value; waited += 10) {
		if (waited > RIG_MS)
			DIE("%s stays %lld, not %lld", key, (long long)rig_status(r, key),
			    (long long)value);
		poll(NULL, 0, 10);
	}
}

void rig_wait_dropped(struct rig *r, const char *reason, json_int_t at_least)
{
	for (unsigned int waited = 0; rig_dropped(r, reason) < at_least; waited += 10) {
		if (waited > RIG_MS)
			DIE("dropped %s stays %lld, below %lld", reason,
			    (long long)rig_dropped(r, reason), (long long)at_least);
		poll(NULL, 0, 10);
	}
}

bool rig_logged(struct rig *r, const char *text)
{
	FILE *f = fopen(r->log, "re");
	char line[2048];
	bool found = false;

	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f))
		found = strstr(line, text) != NULL;
	fclose(f);
	return found;
}

static const char *hex(const uint8_t *p, char *text)
{
	for (unsigned int i = 0; i < 16; i++)
		sprintf(text + 2 * i, "%02x", p[i]);
	return text;
}

void rig_expect_write(struct rig *r, uint8_t *mad, unsigned int attr, const uint8_t *dst,
		      unsigned int index)
{
	uint8_t pkt[PKT_SIZE];
	char x[33], y[33];

	if (!fabric_written(r->f, r->port, pkt, RIG_MS)) {
		show_log(r);
		DIE("no MAD with attribute 0x%x was written", attr);
	}
	memcpy(mad, pkt + PKT_MAD, MAD);
	if (((unsigned int)mad[M_ATTR] << 8 | mad[M_ATTR + 1]) != attr)
		DIE("attribute 0x%02x%02x was written, not 0x%x", mad[M_ATTR], mad[M_ATTR + 1],
		    attr);
	if (memcmp(pkt + 36, dst, 16) != 0)
		DIE("destination %s, not %s", hex(pkt + 36, x), hex(dst, y));
	if (host32(pkt + 8) || host32(pkt + 12))
		DIE("timeout %u, retries %u", host32(pkt + 8), host32(pkt + 12));
	if (be32(pkt + 20) != 1 || pkt[32] != 1)
		DIE("QPN %u, GRH %u", be32(pkt + 20), pkt[32]);
	if (pkt[33] != index)
		DIE("GID index %u, not %u", pkt[33], index);
	if (pkt[28] || pkt[29] || pkt[30] || pkt[56] || pkt[57])
		DIE("LID, SL or P_Key index set");
}

void rig_expect_no_write(struct rig *r, int fd)
{
	uint8_t zero[16] = { 0 };

	if (wire_unreg(fd, zero) != 4)
		DIE("UNREG of the zero GID");
	poll(NULL, 0, RIG_QUIET_MS);
	if (fabric_count(r->f, r->port))
		DIE("%u MADs were written", fabric_count(r->f, r->port));
}

void rig_inject(struct rig *r, const uint8_t *src, unsigned int index, const uint8_t *mad)
{
	fabric_inject(r->f, r->port, src, index, mad);
}

void rig_expect_mad(int fd, uint8_t *mad, unsigned int attr, const uint8_t *sgid,
		    const uint8_t *from)
{
	uint8_t frame[FRAME];
	char x[33], y[33];

	if (!wire_recv(fd, frame, RIG_MS, NULL))
		DIE("no MAD with attribute 0x%x came", attr);
	if (host32(frame + F_TYPE) != T_REQ || host32(frame + F_OP) != OP_MAD ||
	    host32(frame + F_LEN) != MAD || host32(frame + F_ERR))
		DIE("type %u operation %u length %u error %u", host32(frame + F_TYPE),
		    host32(frame + F_OP), host32(frame + F_LEN), host32(frame + F_ERR));
	memcpy(mad, frame + F_MAD, MAD);
	if (((unsigned int)mad[M_ATTR] << 8 | mad[M_ATTR + 1]) != attr)
		DIE("attribute 0x%02x%02x came, not 0x%x", mad[M_ATTR], mad[M_ATTR + 1], attr);
	if (memcmp(frame + F_SGID, sgid, 16) != 0)
		DIE("for %s, not %s", hex(frame + F_SGID, x), hex(sgid, y));
	if (memcmp(frame + F_GID, from, 16) != 0)
		DIE("from %s, not %s", hex(frame + F_GID, x), hex(from, y));
}

void rig_expect_nothing(int fd)
{
	uint8_t frame[FRAME];

	if (wire_recv(fd, frame, RIG_QUIET_MS, NULL))
		DIE("a frame came: type %u operation %u attribute 0x%02x", host32(frame + F_TYPE),
		    host32(frame + F_OP), frame[F_MAD + M_ATTR + 1]);
}
