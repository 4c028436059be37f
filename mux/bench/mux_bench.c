// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * How fast the mux is, over a loopback umad: the daemon as it is, its kernel side played by the test fabric.
 *
 * Pairs of clients (or one, with itself) have a connection each; one end sends, the MAD goes through umad out and in again, and the other end
 * receives it. So each MAD is relayed twice: client to fabric, and fabric to client. The daemon may be held to one core; the
 * generator and the fabric share the rest.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/mux/rig.h"

#define PAIRS_PER_PORT 100
#define WINDOW	       24 /* MADs on their way for each pair */
#define SEND_BATCH     16
#define RECV_FRAMES    64
#define STAMP	       128 /* offset in the MAD of the time it was sent */
#define OP_HELLO       3
#define STALL_ROUNDS   3

struct pair {
	int a, b;
	unsigned int port;
	uint8_t ga[16], gb[16];
	uint8_t frame[FRAME]; /* what a sends, prepared */
	uint32_t outstanding;
	size_t a_part, b_part; /* bytes of a frame not yet whole */
	uint8_t b_buf[RECV_FRAMES * FRAME + FRAME];
};

struct bench {
	struct rig *r;
	FILE *results; /* lines "NAME VALUE" for a program; NULL: none */
	struct pair *pairs;
	unsigned int n;
	bool solo;	   /* one client is both ends */
	const char *other; /* a daemon to run in place of ours */
	double seconds;
	bool pin;
	uint64_t *samples;
	size_t n_samples, max_samples;
};

static void result(struct bench *b, double value, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void result(struct bench *b, double value, const char *fmt, ...)
{
	va_list ap;

	if (!b->results)
		return;
	va_start(ap, fmt);
	vfprintf(b->results, fmt, ap);
	va_end(ap);
	fprintf(b->results, " %.6g\n", value);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* CPU time of all threads of the daemon, in nanoseconds. */
static uint64_t cpu_ns(pid_t pid)
{
	clockid_t clock;
	struct timespec ts;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &ts))
		return 0;
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static long rss_kib(pid_t pid)
{
	char path[64], line[256];
	long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmRSS: %ld", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

static void hello(int fd)
{
	uint8_t frame[FRAME], zero[16] = { 0 };
	int size = 1 << 20;

	frame_simple(frame, OP_HELLO, zero);
	put_host32(frame + F_LEN, 20);
	put_host32(frame + F_MAD, 1);
	if (wire_call(fd, frame, NULL)) {
		fprintf(stderr, "hello refused\n");
		exit(1);
	}
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

static void wait_mad(int fd, uint8_t *mad)
{
	uint8_t frame[FRAME];

	if (!wire_recv(fd, frame, RIG_MS, NULL)) {
		fprintf(stderr, "no MAD came at set-up\n");
		exit(1);
	}
	memcpy(mad, frame + F_MAD, MAD);
}

static void connect_pair(struct bench *b, unsigned int i, bool aware)
{
	struct pair *p = &b->pairs[i];
	unsigned int k = i % PAIRS_PER_PORT;
	uint8_t mad[MAD], in[MAD];
	uint32_t peer;
	char path[128];

	memset(p, 0, offsetof(struct pair, b_buf));
	p->port = i / PAIRS_PER_PORT;
	snprintf(path, sizeof(path), "%s/mux-fab%u-1", b->r->dir, p->port);
	gid4(p->ga, 0x0a000000 + (p->port << 16) + 2 * k + 10);
	gid4(p->gb, 0x0a000000 + (p->port << 16) + 2 * k + 11);
	p->a = wire_connect_wait(path, RIG_MS);
	p->b = b->solo ? p->a : wire_connect_wait(path, RIG_MS);
	if (aware) {
		hello(p->a);
		if (!b->solo)
			hello(p->b);
	}
	wire_reg(p->a, p->ga);
	wire_reg(p->b, p->gb);
	/* Both ends' ids differ, as QEMU's own mux keeps them in one table. */
	mad_req(mad, 2 * i + 1, 1, p->ga, p->gb, 0x1000 + 2 * i, 1, SVC_TCP);
	wire_mad(p->a, p->ga, mad);
	wait_mad(p->b, in);
	mad_rep(mad, 2 * i + 2, be32(in + M_LOCAL), be64(in + M_TID),
		(b->solo ? 0x1000 : 0x1001) + 2 * i, 1);
	poll(NULL, 0, aware ? 0 : 20);
	wire_mad(p->b, p->gb, mad);
	wait_mad(p->a, in);
	poll(NULL, 0, aware ? 0 : 20);
	peer = be32(in + M_LOCAL);
	mad_pair(mad, RTU, 2 * i + 1, peer, be64(in + M_TID));
	wire_mad(p->a, p->ga, mad);
	wait_mad(p->b, in);
	/* QEMU's own mux does not pass on an MRA. */
	mad_pair(mad, aware ? MRA : RTU, 2 * i + 1, peer, 1);
	frame_mad(p->frame, p->ga, mad);
}

static void pin(pid_t pid, unsigned int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(pid, sizeof(set), &set);
}

static void start(struct bench *b, unsigned int pairs, bool aware)
{
	unsigned int ports = (pairs + PAIRS_PER_PORT - 1) / PAIRS_PER_PORT;
	char path[128];
	FILE *f;

	b->r = rig_new();
	snprintf(path, sizeof(path), "%s/conf", b->r->dir);
	f = fopen(path, "we");
	fprintf(f, "[mux]\nhairpin = no\nmad_rate = 100000000\nregistration_rate = 100000000\n"
		   "request_rate = 100000000\nsource_rate = 100000000\nmax_sessions = 1000000\n"
		   "max_half_open = 1000000\nlog_level = warning\nlanes = 1\n");
	for (unsigned int i = 0; i < ports; i++) {
		char name[16];

		snprintf(name, sizeof(name), "fab%u", i);
		if (i)
			fabric_add(b->r->f, name);
		fprintf(f, "[port fab%u/1]\nlisten = %s/mux-fab%u-1\n", i, b->r->dir, i);
	}
	fclose(f);
	for (unsigned int i = 0; i < pairs; i++) {
		unsigned int k = i % PAIRS_PER_PORT, port = i / PAIRS_PER_PORT;
		uint8_t g[16];

		gid4(g, 0x0a000000 + (port << 16) + 2 * k + 10);
		fabric_set_gid(b->r->f, port, 2 * k + 10, g);
		gid4(g, 0x0a000000 + (port << 16) + 2 * k + 11);
		fabric_set_gid(b->r->f, port, 2 * k + 11, g);
	}
	if (b->other) {
		b->r->daemon = b->other;
		b->r->pid = rig_spawn(b->r, NULL, NULL);
	} else {
		rig_option(b->r, "-c");
		b->r->opts[b->r->n_opts++] = strdup(path);
		rig_start(b->r);
	}
	b->n = pairs;
	b->pairs = calloc(pairs, sizeof(*b->pairs));
	for (unsigned int i = 0; i < pairs; i++)
		connect_pair(b, i, aware);
	if (b->pin) {
		char cmd[96];

		/* All threads of it. */
		snprintf(cmd, sizeof(cmd), "taskset -a -p 1 %d >/dev/null", (int)b->r->pid);
		if (system(cmd))
			fprintf(stderr, "not pinned\n");
		pin(0, 1);
	}
}

static void stop(struct bench *b)
{
	for (unsigned int i = 0; i < b->n; i++) {
		close(b->pairs[i].a);
		if (!b->solo)
			close(b->pairs[i].b);
	}
	free(b->pairs);
	/* Another one knows no quiet end. */
	if (b->other)
		rig_stop(b->r, SIGKILL);
	rig_free(b->r);
}

static void send_some(struct pair *p, unsigned int n, uint64_t stamp)
{
	static uint8_t frames[SEND_BATCH][FRAME];
	struct mmsghdr msgs[SEND_BATCH];
	struct iovec iov[SEND_BATCH];
	int sent;

	if (n > SEND_BATCH)
		n = SEND_BATCH;
	for (unsigned int i = 0; i < n; i++) {
		memcpy(frames[i], p->frame, FRAME);
		put_be64(frames[i] + F_MAD + STAMP, stamp);
		iov[i] = (struct iovec){ frames[i], FRAME };
		memset(&msgs[i], 0, sizeof(msgs[i]));
		msgs[i].msg_hdr.msg_iov = &iov[i];
		msgs[i].msg_hdr.msg_iovlen = 1;
	}
	sent = sendmmsg(p->a, msgs, n, MSG_DONTWAIT);
	if (sent > 0)
		p->outstanding += (uint32_t)sent;
}

/* Answers to a: thrown away. */
static void drain_answers(struct pair *p)
{
	static uint8_t buf[RECV_FRAMES * FRAME];

	/* Where one client is both ends, they come with its MADs. */
	while (p->a != p->b && recv(p->a, buf, sizeof(buf), MSG_DONTWAIT) == (ssize_t)sizeof(buf))
		;
}

static unsigned int receive(struct bench *b, struct pair *p, bool sample)
{
	unsigned int n = 0;
	uint64_t now;
	size_t off;
	ssize_t got;

	got = recv(p->b, p->b_buf + p->b_part, RECV_FRAMES * FRAME, MSG_DONTWAIT);
	if (got <= 0)
		return 0;
	p->b_part += (size_t)got;
	now = sample ? now_ns() : 0;
	for (off = 0; p->b_part - off >= FRAME; off += FRAME) {
		if (host32(p->b_buf + off + F_TYPE) != T_REQ)
			continue;
		if (sample && b->n_samples < b->max_samples)
			b->samples[b->n_samples++] = now - be64(p->b_buf + off + F_MAD + STAMP);
		n++;
	}
	memmove(p->b_buf, p->b_buf + off, p->b_part - off);
	p->b_part -= off;
	p->outstanding -= n < p->outstanding ? n : p->outstanding;
	return n;
}

/* How many pairs so many clients are. */
static unsigned int pairs_of(struct bench *b, unsigned int clients)
{
	b->solo = clients == 1;
	return b->solo ? 1 : clients / 2;
}

static void throughput(struct bench *b, unsigned int clients)
{
	unsigned int pairs = pairs_of(b, clients);
	uint64_t begin, cpu, end, done = 0, last = 0;
	double wall, used;

	start(b, pairs, true);
	begin = now_ns();
	cpu = cpu_ns(b->r->pid);
	end = begin + (uint64_t)(b->seconds * 1e9);
	last = begin;
	while (now_ns() < end) {
		for (unsigned int i = 0; i < pairs; i++) {
			struct pair *p = &b->pairs[i];
			unsigned int n = receive(b, p, false);

			done += n;
			if (n)
				last = now_ns();
			if (p->outstanding < WINDOW)
				send_some(p, WINDOW - p->outstanding, 0);
			drain_answers(p);
		}
		/* What a full queue dropped never comes back. */
		if (now_ns() - last > 500000000) {
			for (unsigned int i = 0; i < pairs; i++)
				b->pairs[i].outstanding = 0;
			last = now_ns();
		}
	}
	wall = (double)(now_ns() - begin) / 1e9;
	used = (double)(cpu_ns(b->r->pid) - cpu) / 1e9;
	printf("throughput %5u clients: %9.0f MADs/s through it, %9.0f relayed/s; daemon used %.2f core; "
	       "%9.0f relayed/s a core\n",
	       clients, (double)done / wall, 2 * (double)done / wall, used / wall,
	       2 * (double)done / used);
	result(b, 2 * (double)done / used, "relayed %u", clients);
	stop(b);
}

static int by_value(const void *x, const void *y)
{
	uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;

	return a < b ? -1 : a > b;
}

static uint64_t percentile(struct bench *b, unsigned int permille)
{
	return b->n_samples ? b->samples[(b->n_samples - 1) * permille / 1000] : 0;
}

/* MADs at a steady rate, spread over the pairs; the time from send to receive. With inject, REQs for a client that does not read. */
static void run_latency(struct bench *b, double rate, bool inject, const uint8_t *stalled)
{
	struct epoll_event evs[256];
	uint64_t begin, end, next, step = (uint64_t)(1e9 / rate), sent = 0, injected = 0;
	int ep = epoll_create1(0), n;

	b->n_samples = 0;
	for (unsigned int i = 0; i < b->n; i++) {
		struct epoll_event ev = { .events = EPOLLIN, .data.u64 = i };

		b->pairs[i].outstanding = 0;
		epoll_ctl(ep, EPOLL_CTL_ADD, b->pairs[i].b, &ev);
	}
	begin = next = now_ns();
	end = begin + (uint64_t)(b->seconds * 1e9);
	while (next < end) {
		uint64_t now = now_ns();

		if (now >= next) {
			struct pair *p = &b->pairs[(sent * 7919) % b->n];

			drain_answers(p);
			send_some(p, 1, now);
			sent++;
			next += step;
			if (inject && sent % 8 == 0) {
				uint8_t mad[MAD];

				injected++;
				mad_req(mad, (uint32_t)injected, injected, GP, stalled, CA_P, QPN_P,
					SVC_TCP);
				fabric_inject(b->r->f, 0, GP, 1, mad);
			}
		}
		n = epoll_wait(ep, evs, 256, 0);
		for (int i = 0; i < n; i++)
			receive(b, &b->pairs[evs[i].data.u64], true);
	}
	for (unsigned int i = 0; i < 200 && b->n_samples < sent; i++) {
		n = epoll_wait(ep, evs, 256, 5);
		for (int k = 0; k < n; k++)
			receive(b, &b->pairs[evs[k].data.u64], true);
	}
	close(ep);
	qsort(b->samples, b->n_samples, sizeof(*b->samples), by_value);
	printf("p50 %7.1f us  p99 %7.1f us  p99.9 %7.1f us  (%zu of %llu at %.0f/s)\n",
	       (double)percentile(b, 500) / 1e3, (double)percentile(b, 990) / 1e3,
	       (double)percentile(b, 999) / 1e3, b->n_samples, (unsigned long long)sent, rate);
}

static void latency(struct bench *b, unsigned int clients, double rate)
{
	start(b, pairs_of(b, clients), true);
	printf("latency    %5u clients: ", clients);
	run_latency(b, rate, false, GA);
	result(b, (double)percentile(b, 500) / 1e3, "p50 %u", clients);
	result(b, (double)percentile(b, 990) / 1e3, "p99 %u", clients);
	stop(b);
}

/*
 * QEMU's way: one request at a time, and its answer, for which a virtual machine stands still. The other end takes the MADs as they
 * come. The only way that QEMU's own mux knows too.
 */
static void qemu_way(struct bench *b, unsigned int clients, const char *name)
{
	uint64_t *sent_at, begin, end, cpu, now, relayed = 0;
	unsigned int pairs = pairs_of(b, clients);
	uint8_t frame[FRAME];
	struct pollfd *fds;
	double used;

	start(b, pairs, false);
	fds = calloc(2 * (size_t)pairs, sizeof(*fds));
	sent_at = calloc(pairs, sizeof(*sent_at));
	for (unsigned int i = 0; i < pairs; i++) {
		fds[2 * i] = (struct pollfd){ .fd = b->pairs[i].a, .events = POLLIN };
		fds[2 * i + 1] = (struct pollfd){ .fd = b->pairs[i].b, .events = POLLIN };
	}
	b->n_samples = 0;
	cpu = cpu_ns(b->r->pid);
	begin = now_ns();
	end = begin + (uint64_t)(b->seconds * 1e9);
	while ((now = now_ns()) < end) {
		for (unsigned int i = 0; i < pairs; i++) {
			if (sent_at[i])
				continue;
			sent_at[i] = now_ns();
			wire_send(b->pairs[i].a, b->pairs[i].frame, FRAME);
		}
		poll(fds, 2 * pairs, 100);
		for (unsigned int i = 0; i < pairs; i++) {
			if (fds[2 * i].revents && recv(fds[2 * i].fd, frame, FRAME, 0) == FRAME) {
				if (b->n_samples < b->max_samples)
					b->samples[b->n_samples++] = now_ns() - sent_at[i];
				sent_at[i] = 0;
				relayed++;
			}
			while (fds[2 * i + 1].revents &&
			       recv(fds[2 * i + 1].fd, frame, FRAME, MSG_DONTWAIT) == FRAME)
				relayed++;
		}
	}
	used = (double)(cpu_ns(b->r->pid) - cpu) / 1e9;
	qsort(b->samples, b->n_samples, sizeof(*b->samples), by_value);
	printf("%-10s %5u clients, QEMU's way: answer p50 %.1f us  p99 %.1f us  p99.9 %.1f us (%zu); %9.0f relayed/s a core\n",
	       name, clients, (double)percentile(b, 500) / 1e3, (double)percentile(b, 990) / 1e3,
	       (double)percentile(b, 999) / 1e3, b->n_samples, (double)relayed / used);
	result(b, (double)percentile(b, 500) / 1e3, "%s p50 %u", name, clients);
	result(b, (double)percentile(b, 990) / 1e3, "%s p99 %u", name, clients);
	result(b, (double)relayed / used, "%s relayed %u", name, clients);
	free(fds);
	free(sent_at);
	stop(b);
}

/* Ours and another in turns. */
static void compare(struct bench *b, const char *other)
{
	for (unsigned int clients = 2; clients <= 16; clients += 14) {
		b->other = NULL;
		qemu_way(b, clients, "answer");
		b->other = other;
		if (other)
			qemu_way(b, clients, "other");
	}
	b->other = NULL;
}

static int by_number(const void *x, const void *y)
{
	double a = *(const double *)x, b = *(const double *)y;

	return a < b ? -1 : a > b;
}

/* In turns, as a busy machine's p99 moves by more than what is looked for. */
static void stalled_neighbour(struct bench *b, unsigned int clients, double rate)
{
	double quiet[STALL_ROUNDS], disturbed[STALL_ROUNDS], ratio;
	int fd;

	start(b, pairs_of(b, clients), true);
	fd = rig_connect(b->r);
	wire_reg(fd, GA);
	for (unsigned int i = 0; i < STALL_ROUNDS; i++) {
		printf("undisturbed %4u clients: ", clients);
		run_latency(b, rate, false, GA);
		quiet[i] = (double)percentile(b, 990) / 1e3;
		printf("stalled one %4u clients: ", clients);
		run_latency(b, rate, true, GA);
		disturbed[i] = (double)percentile(b, 990) / 1e3;
	}
	qsort(quiet, STALL_ROUNDS, sizeof(quiet[0]), by_number);
	qsort(disturbed, STALL_ROUNDS, sizeof(quiet[0]), by_number);
	ratio = disturbed[STALL_ROUNDS / 2] / quiet[STALL_ROUNDS / 2];
	printf("  p99 next to a client that does not read: %.2f of the undisturbed; it lost %lld MADs, others none\n",
	       ratio, (long long)rig_dropped(b->r, "client_queue_full"));
	result(b, quiet[STALL_ROUNDS / 2], "undisturbed %u", clients);
	result(b, disturbed[STALL_ROUNDS / 2], "disturbed %u", clients);
	close(fd);
	stop(b);
}

static void swallow(void *ctx, struct fabric *f, unsigned int port, uint8_t *pkt)
{
	(void)f;
	(void)port;
	(void)pkt;
	++*(unsigned long *)ctx;
}

static void memory(struct bench *b, unsigned int sessions)
{
	unsigned long gone = 0;
	unsigned int clients = 1000;
	long base, with_clients, with_sessions;
	int *fds = calloc(clients, sizeof(*fds));
	uint8_t mad[MAD], g[16];

	start(b, pairs_of(b, 2), true);
	fabric_respond(b->r->f, swallow, &gone);
	base = rss_kib(b->r->pid);
	for (unsigned int i = 0; i < clients; i++) {
		fds[i] = rig_connect(b->r);
		gid4(g, 0x0b000001 + i);
		wire_reg(fds[i], g);
	}
	with_clients = rss_kib(b->r->pid);
	for (unsigned int i = 0; i < sessions; i++) {
		mad_req(mad, i + 10, i + 10, b->pairs[0].ga, GP, 0x1000, 1, SVC_TCP);
		wire_mad(b->pairs[0].a, b->pairs[0].ga, mad);
	}
	with_sessions = rss_kib(b->r->pid);
	printf("memory     %ld KiB idle; %.0f bytes a client with a GID (%u); %.0f bytes a session (%lld)\n",
	       base, (double)(with_clients - base) * 1024 / clients, clients,
	       (double)(with_sessions - with_clients) * 1024 / sessions,
	       (long long)rig_status(b->r, "sessions"));
	result(b, (double)(with_clients - base) * 1024 / clients, "memory client");
	result(b, (double)(with_sessions - with_clients) * 1024 / sessions, "memory session");
	for (unsigned int i = 0; i < clients; i++)
		close(fds[i]);
	free(fds);
	stop(b);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "seconds", required_argument, NULL, 's' },
		{ "pin", no_argument, NULL, 'p' },
		{ "quick", no_argument, NULL, 'q' },
		{ "results", required_argument, NULL, 'r' },
		{ "other", required_argument, NULL, 'o' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct bench b = { .seconds = 3, .max_samples = 4000000 };
	struct rlimit lim;
	const char *results = NULL, *other = NULL;
	bool quick = false;
	double rate = 10000;
	int c;

	while ((c = getopt_long(argc, argv, "s:pqr:o:h", longs, NULL)) != -1) {
		switch (c) {
		case 's':
			b.seconds = atof(optarg);
			break;
		case 'p':
			b.pin = true;
			break;
		case 'o':
			other = optarg;
			break;
		case 'r':
			results = optarg;
			break;
		case 'q':
			quick = true;
			b.seconds = 0.2;
			rate = 1000;
			break;
		default:
			printf("Usage: mux_bench [--seconds=N] [--pin] [--quick] [--results=FILE] [--other=PROGRAM]\n"
			       "  --pin    the daemon on the first core, all else on the second\n"
			       "  --quick  only show that it runs\n"
			       "  --results=FILE  the figures once more, one a line\n"
			       "  --other=PROGRAM another mux, to compare with in QEMU's protocol\n");
			return c == 'h' ? 0 : 2;
		}
	}
	if (results) {
		b.results = fopen(results, "we");
		if (!b.results) {
			fprintf(stderr, "%s: %s\n", results, strerror(errno));
			return 1;
		}
	}
	getrlimit(RLIMIT_NOFILE, &lim);
	lim.rlim_cur = lim.rlim_max;
	setrlimit(RLIMIT_NOFILE, &lim);
	b.samples = malloc(b.max_samples * sizeof(*b.samples));
	setvbuf(stdout, NULL, _IOLBF, 0);
	throughput(&b, 1);
	throughput(&b, 16);
	if (!quick)
		throughput(&b, 1000);
	compare(&b, other);
	latency(&b, 1, rate);
	latency(&b, 16, rate);
	if (!quick) {
		latency(&b, 1000, rate);
		stalled_neighbour(&b, 1000, rate);
	}
	memory(&b, quick ? 1000 : 60000);
	free(b.samples);
	if (b.results && fclose(b.results)) {
		perror("results");
		return 1;
	}
	return 0;
}
