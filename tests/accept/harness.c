// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tests/accept/harness.h"

enum {
	LAUNCH_WORDS = 32,
	LINE_MAX_BYTES = 4096,
	PEER_IN_FD = 20, /* the peer's ends of the talk; its stdout belongs to cmocka */
	PEER_OUT_FD = 21,
};

static const char *program;
static struct ts_peer parent; /* on the peer's side */

/* ------------------------------------------------------------------ expectations */

void ts_fail(const char *file, int line, const char *format, ...)
{
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	print_error("%s\n", text);
	_fail(file, line);
	abort();
}

void ts_skip(const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	print_message("skipped: %s\n", text);
	skip();
	abort();
}

bool ts_known_defect(const char *defect)
{
	if (ts_dev()->ours)
		return false;
	print_message("skipped in part: the distribution's provider, %s\n", defect);
	return true;
}

long ts_scale(long full)
{
	const char *text = getenv("ER_SCALE");
	long percent = text ? strtol(text, NULL, 10) : 100;

	if (percent < 1 || percent > 100)
		TS_FAIL("ER_SCALE is \"%s\": give a percentage from 1 to 100", text);
	full = full * percent / 100;
	return full ? full : 1;
}

uint64_t ts_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void ts_sleep_ms(int ms)
{
	struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	while (nanosleep(&time, &time) && errno == EINTR)
		;
}

/* ------------------------------------------------------------------ the device */

static bool provider_is_ours(void)
{
	const char *text = getenv("ER_PROVIDER");

	return !text || strcmp(text, "system") != 0;
}

/*
 * librdmacm opens devices of its own and an id's QP must be made on that context, so an iWARP test
 * works on librdmacm's.
 */
static struct ibv_context *open_context(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL, **cm;
	const char *name = getenv("ER_DEVICE");
	bool iwarp;
	int i;

	TS_CHECK(list);
	for (i = 0; list[i]; i++)
		if (!name || !strcmp(name, ibv_get_device_name(list[i])))
			break;
	if (!list[i])
		TS_FAIL("there is no RDMA device%s%s", name ? " named " : "", name ? name : "");
	iwarp = list[i]->transport_type == IBV_TRANSPORT_IWARP;
	if (!iwarp) {
		ctx = ibv_open_device(list[i]);
		TS_CHECK(ctx);
	} else {
		cm = rdma_get_devices(NULL);
		TS_CHECK(cm);
		for (int j = 0; cm[j]; j++)
			if (!strcmp(ibv_get_device_name(cm[j]->device),
				    ibv_get_device_name(list[i])))
				ctx = cm[j];
		if (!ctx)
			TS_FAIL("librdmacm does not know %s", ibv_get_device_name(list[i]));
		rdma_free_devices(cm);
	}
	ibv_free_device_list(list);
	return ctx;
}

struct ts_dev *ts_dev(void)
{
	static struct ts_dev dev;

	if (dev.ctx)
		return &dev;
	dev.ctx = open_context();
	dev.iwarp = dev.ctx->device->transport_type == IBV_TRANSPORT_IWARP;
	dev.ours = provider_is_ours();
	TS_OK(ibv_query_device(dev.ctx, &dev.attr));
	dev.pd = ibv_alloc_pd(dev.ctx);
	TS_CHECK(dev.pd);
	return &dev;
}

uint64_t ts_all_send_ops(void)
{
	return IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
	       IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
	       IBV_QP_EX_WITH_SEND_WITH_INV;
}

bool ts_has_qp_ex(void)
{
	static int known = -1;
	struct ibv_qp_init_attr_ex attr = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
	};
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	if (known >= 0)
		return known;
	cq = ibv_create_cq(ts_dev()->ctx, 8, NULL, NULL, 0);
	TS_CHECK(cq);
	attr.pd = ts_dev()->pd;
	attr.send_cq = attr.recv_cq = cq;
	attr.send_ops_flags = ts_all_send_ops();
	errno = 0;
	qp = ibv_create_qp_ex(ts_dev()->ctx, &attr);
	if (!qp && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
		TS_FAIL("ibv_create_qp_ex with ibv_wr_* operations: %s", strerror(errno));
	known = qp && ibv_qp_to_qp_ex(qp);
	if (qp)
		TS_OK(ibv_destroy_qp(qp));
	TS_OK(ibv_destroy_cq(cq));
	return known;
}

bool ts_has_cq_ex(void)
{
	static int known = -1;
	struct ibv_cq_init_attr_ex attr = { .cqe = 8 };
	struct ibv_cq_ex *cq;

	if (known >= 0)
		return known;
	errno = 0;
	cq = ibv_create_cq_ex(ts_dev()->ctx, &attr);
	if (!cq && errno != EOPNOTSUPP && errno != ENOSYS)
		TS_FAIL("ibv_create_cq_ex: %s", strerror(errno));
	known = cq != NULL;
	if (cq)
		TS_OK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	return known;
}

/* ------------------------------------------------------------------ memory */

void ts_buf_open(struct ts_buf *buf, size_t len)
{
	buf->len = len;
	buf->p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	TS_CHECK(buf->p != MAP_FAILED);
	buf->mr = ibv_reg_mr(ts_dev()->pd, buf->p, len, TS_ACCESS_ALL);
	TS_CHECK(buf->mr);
}

void ts_buf_close(struct ts_buf *buf)
{
	TS_OK(ibv_dereg_mr(buf->mr));
	TS_CHECK(!munmap(buf->p, buf->len));
}

static uint8_t pattern(size_t place, uint32_t seed)
{
	uint32_t x = (uint32_t)place * 2654435761u + seed * 40503u;

	return (uint8_t)(x >> 24 ^ x >> 13 ^ x);
}

void ts_fill(void *p, size_t len, uint32_t seed)
{
	uint8_t *byte = p;

	for (size_t i = 0; i < len; i++)
		byte[i] = pattern(i, seed);
}

ssize_t ts_differs(const void *p, size_t len, uint32_t seed)
{
	const uint8_t *byte = p;

	for (size_t i = 0; i < len; i++)
		if (byte[i] != pattern(i, seed))
			return (ssize_t)i;
	return -1;
}

/* ------------------------------------------------------------------ work */

int ts_poll_some(struct ibv_cq *cq, struct ibv_wc *wc, int n, int timeout_ms)
{
	uint64_t end = ts_now() + (uint64_t)timeout_ms * 1000000u;
	int have = 0, idle = 0;

	while (have < n) {
		int rc = ibv_poll_cq(cq, n - have, wc + have);

		if (rc < 0)
			TS_FAIL("ibv_poll_cq returned %d", rc);
		have += rc;
		if (rc) {
			idle = 0;
			continue;
		}
		/* the peer may need this CPU */
		if (++idle > 1000)
			ts_sleep_ms(1);
		else if (idle > 100)
			sched_yield();
		if (ts_now() > end)
			break;
	}
	return have;
}

void ts_poll(struct ibv_cq *cq, struct ibv_wc *wc, int n)
{
	int have = ts_poll_some(cq, wc, n, TS_WAIT_MS);

	if (have != n)
		TS_FAIL("%d completions came in %d ms, expected %d", have, TS_WAIT_MS, n);
}

void ts_poll_ok(struct ibv_cq *cq, struct ibv_wc *wc)
{
	ts_poll(cq, wc, 1);
	if (wc->status)
		TS_FAIL("WR 0x%llx of QP %u completed with %s, vendor_err 0x%x",
			(unsigned long long)wc->wr_id, wc->qp_num, ibv_wc_status_str(wc->status),
			wc->vendor_err);
}

void ts_poll_none(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	if (ts_poll_some(cq, &wc, 1, TS_QUIET_MS))
		TS_FAIL("a completion came that must not: WR 0x%llx of QP %u, %s",
			(unsigned long long)wc.wr_id, wc.qp_num, ibv_wc_status_str(wc.status));
}

struct ibv_sge ts_sge(const struct ts_buf *buf, size_t off, uint32_t len)
{
	return (struct ibv_sge){ .addr = (uintptr_t)buf->p + off,
				 .length = len,
				 .lkey = buf->mr ? buf->mr->lkey : 0 };
}

int ts_post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint64_t wr_id,
	    const struct ts_buf *local, size_t off, uint32_t len, uint64_t raddr, uint32_t rkey,
	    unsigned int flags)
{
	struct ibv_send_wr wr = { .wr_id = wr_id,
				  .opcode = opcode,
				  .send_flags = flags | IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad = NULL;
	struct ibv_sge sge;
	int rc;

	if (len) {
		sge = ts_sge(local, off, len);
		wr.sg_list = &sge;
		wr.num_sge = 1;
	}
	wr.wr.rdma.remote_addr = raddr;
	wr.wr.rdma.rkey = rkey;
	rc = ibv_post_send(qp, &wr, &bad);
	if (rc && bad != &wr)
		TS_FAIL("ibv_post_send returned %d, and bad_wr is not the WR that failed", rc);
	return rc;
}

int ts_post_recv(struct ibv_qp *qp, uint64_t wr_id, const struct ts_buf *buf, size_t off,
		 uint32_t len)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id }, *bad = NULL;
	struct ibv_sge sge;
	int rc;

	if (len) {
		sge = ts_sge(buf, off, len);
		wr.sg_list = &sge;
		wr.num_sge = 1;
	}
	rc = ibv_post_recv(qp, &wr, &bad);
	if (rc && bad != &wr)
		TS_FAIL("ibv_post_recv returned %d, and bad_wr is not the WR that failed", rc);
	return rc;
}

/* ------------------------------------------------------------------ a peer process */

void ts_peer_start(struct ts_peer *peer, const char *role)
{
	char *words[LAUNCH_WORDS], *launch = NULL, *save = NULL;
	const char *text = getenv("ER_PEER_LAUNCH");
	int to[2], from[2], n = 0;

	TS_CHECK(!pipe2(to, O_CLOEXEC) && !pipe2(from, O_CLOEXEC));
	if (text) {
		launch = strdup(text);
		TS_CHECK(launch);
		for (char *word = strtok_r(launch, " ", &save); word && n < LAUNCH_WORDS - 4;
		     word = strtok_r(NULL, " ", &save))
			words[n++] = word;
	}
	words[n++] = (char *)program;
	words[n++] = (char *)"--peer";
	words[n++] = (char *)role;
	words[n] = NULL;
	fflush(NULL);
	peer->pid = fork();
	TS_CHECK(peer->pid >= 0);
	if (!peer->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(STDERR_FILENO, STDOUT_FILENO);
		dup2(to[0], PEER_IN_FD);
		dup2(from[1], PEER_OUT_FD);
		execvp(words[0], words);
		fprintf(stderr, "%s: %s\n", words[0], strerror(errno));
		_exit(127);
	}
	free(launch);
	close(to[0]);
	close(from[1]);
	peer->to = fdopen(to[1], "w");
	peer->from = fdopen(from[0], "r");
	TS_CHECK(peer->to && peer->from);
	setvbuf(peer->from, NULL, _IONBF, 0);
}

void ts_say(struct ts_peer *peer, const char *format, ...)
{
	FILE *to = peer ? peer->to : parent.to;
	va_list args;

	va_start(args, format);
	vfprintf(to, format, args);
	va_end(args);
	fputc('\n', to);
	if (fflush(to))
		TS_FAIL("the other process hears nothing: %s", strerror(errno));
}

char *ts_hear(struct ts_peer *peer)
{
	static char line[LINE_MAX_BYTES];
	FILE *from = peer ? peer->from : parent.from;
	struct pollfd fd = { .fd = fileno(from), .events = POLLIN };

	if (poll(&fd, 1, TS_WAIT_MS * 3) <= 0)
		TS_FAIL("the other process says nothing for %d ms", TS_WAIT_MS * 3);
	if (!fgets(line, sizeof(line), from))
		TS_FAIL("the other process has ended");
	line[strcspn(line, "\n")] = 0;
	return line;
}

static void peer_close(struct ts_peer *peer, int *status)
{
	fclose(peer->to);
	TS_CHECK(waitpid(peer->pid, status, 0) == peer->pid);
	fclose(peer->from);
}

void ts_peer_finish(struct ts_peer *peer)
{
	int status;

	peer_close(peer, &status);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		TS_FAIL("the peer process ended with %s %d",
			WIFEXITED(status) ? "exit status" : "signal",
			WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

void ts_peer_kill(struct ts_peer *peer)
{
	int status;

	TS_CHECK(!kill(peer->pid, SIGKILL));
	peer_close(peer, &status);
}

void ts_say_buf(struct ts_peer *peer, const struct ts_buf *buf)
{
	ts_say(peer, "%llx %x", (unsigned long long)(uintptr_t)buf->p, buf->mr->rkey);
}

void ts_hear_buf(struct ts_peer *peer, uint64_t *addr, uint32_t *rkey)
{
	unsigned long long where;
	char *line = ts_hear(peer);

	if (sscanf(line, "%llx %x", &where, rkey) != 2)
		TS_FAIL("\"%s\" names no buffer", line);
	*addr = where;
}

/* ------------------------------------------------------------------ main */

/* cmocka's assertions need a running test; a peer's failure ends its process. */
static const struct ts_role *peer_role;

static void run_role(void **state)
{
	(void)state;
	TS_EQ(peer_role->run(), 0);
}

static int peer_main(const struct ts_role *roles, const char *name)
{
	const struct CMUnitTest test[] = { { name, run_role, NULL, NULL, NULL } };

	for (peer_role = roles; peer_role && peer_role->name; peer_role++)
		if (!strcmp(peer_role->name, name))
			break;
	if (!peer_role || !peer_role->name) {
		fprintf(stderr, "%s: no role %s\n", program, name);
		return 2;
	}
	parent.to = fdopen(PEER_OUT_FD, "w");
	parent.from = fdopen(PEER_IN_FD, "r");
	if (!parent.to || !parent.from) {
		fprintf(stderr, "%s: --peer is for the tests' own use\n", program);
		return 2;
	}
	setvbuf(parent.from, NULL, _IONBF, 0);
	return _cmocka_run_group_tests(name, test, 1, NULL, NULL) ? 1 : 0;
}

int ts_main(int argc, char **argv, const char *group, const struct CMUnitTest *tests, size_t ntests,
	    const struct ts_role *roles)
{
	program = argv[0];
	signal(SIGPIPE, SIG_IGN);
	if (argc == 3 && !strcmp(argv[1], "--peer"))
		return peer_main(roles, argv[2]);
	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (size_t i = 0; i < ntests; i++)
			puts(tests[i].name);
		return 0;
	}
	if (argc == 2)
		cmocka_set_test_filter(argv[1]);
	return _cmocka_run_group_tests(group, tests, ntests, NULL, NULL);
}

/* ------------------------------------------------------------------ the process */

long ts_fd_count(void)
{
	DIR *dir = opendir("/proc/self/fd");
	long n = 0;

	TS_CHECK(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 3; /* ".", ".." and the descriptor of the folder itself */
}

long ts_vma_count(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return 0;
#else
	FILE *file = fopen("/proc/self/maps", "re");
	long n = 0;
	int c;

	TS_CHECK(file);
	while ((c = fgetc(file)) != EOF)
		n += c == '\n';
	fclose(file);
	return n;
#endif
}

long ts_resident(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return 0;
#else
	FILE *file = fopen("/proc/self/statm", "re");
	long size, resident;

	TS_CHECK(file);
	if (fscanf(file, "%ld %ld", &size, &resident) != 2)
		TS_FAIL("/proc/self/statm cannot be read");
	fclose(file);
	return resident * sysconf(_SC_PAGESIZE);
#endif
}
