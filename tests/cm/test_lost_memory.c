// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Registered memory that goes without a call of the program that the library could see: transfers there
 * fail with their cause, and nothing else happens.  And the program's own faults are its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "tests/cm/cm_rig.h"
#include "tests/instrumented.h"

enum {
	BIG = 1 << 20, /* malloc() maps such a block, and free() unmaps it */
	SMALL_LEN = 64,
	LARGE_LEN = 300000,
	OFFSET = 4096 * 4 + 8,
	WAIT_MS = 20000,
};

/* ------------------------------------------------------------------ ways to lose memory */

struct block {
	char *p;
	size_t len;
	int fd;
	void *again;
	bool unmapped;
};

static void by_free(struct block *block)
{
	free(block->p);
}

static void by_realloc(struct block *block)
{
	block->again = realloc(block->p, 4096);
}

static void by_system_call(struct block *block)
{
	syscall(SYS_munmap, block->p, block->len);
	block->unmapped = true;
}

static void by_protection(struct block *block)
{
	syscall(SYS_mprotect, block->p, block->len, PROT_NONE);
}

static void by_truncation(struct block *block)
{
	assert_int_equal(ftruncate(block->fd, 0), 0);
}

static const struct way {
	const char *name;
	void (*lose)(struct block *block);
	bool of_malloc, of_file;
} ways[] = {
	{ "munmap", by_system_call, false, false },  { "free", by_free, true, false },
	{ "realloc", by_realloc, true, false },	     { "mprotect", by_protection, false, false },
	{ "ftruncate", by_truncation, false, true },
};

static void get_block(struct block *block, const struct way *way)
{
	*block = (struct block){ .len = BIG, .fd = -1 };
	if (way->of_malloc) {
		block->p = malloc(BIG);
		assert_non_null(block->p);
	} else {
		if (way->of_file) {
			block->fd = memfd_create("block", MFD_CLOEXEC);
			assert_true(block->fd >= 0);
			assert_int_equal(ftruncate(block->fd, BIG), 0);
		}
		block->p = mmap(NULL, BIG, PROT_READ | PROT_WRITE,
				way->of_file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, block->fd,
				0);
		assert_ptr_not_equal(block->p, MAP_FAILED);
	}
	memset(block->p, 0x5a, BIG);
}

static void put_block(struct block *block, const struct way *way)
{
	free(block->again);
	/* where it was, others may have memory by now */
	if (!way->of_malloc && !block->unmapped)
		munmap(block->p, block->len);
	if (block->fd >= 0)
		close(block->fd);
}

/* ------------------------------------------------------------------ ways to use it */

static void expect_async(struct rig_end *end, enum ibv_event_type type)
{
	struct pollfd pfd = { .fd = end->id->verbs->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	for (;;) {
		assert_int_equal(poll(&pfd, 1, WAIT_MS), 1);
		assert_int_equal(ibv_get_async_event(end->id->verbs, &event), 0);
		ibv_ack_async_event(&event);
		/* both ends share the file */
		if (event.element.qp == end->id->qp)
			break;
	}
	assert_int_equal(event.event_type, type);
}

static int post(struct rig_end *end, enum ibv_wr_opcode opcode, struct ibv_sge sge, uint64_t raddr,
		uint32_t rkey)
{
	struct ibv_send_wr wr = { .wr_id = 1,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = raddr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = raddr;
		wr.wr.rdma.rkey = rkey;
	}
	return ibv_post_send(end->id->qp, &wr, &bad);
}

enum use {
	RECEIVE,
	SEND,
	WRITE_TARGET,
	READ_SOURCE,
	READ_SINK,
	ATOMIC_TARGET,
	ATOMIC_SINK,
	USES,
};

static bool at_server(enum use use)
{
	return use == RECEIVE || use == WRITE_TARGET || use == READ_SOURCE || use == ATOMIC_TARGET;
}

static void check(struct rig_end *client, struct rig_end *server, enum use use)
{
	struct ibv_wc wc;

	switch (use) {
	case RECEIVE:
		assert_int_equal(rig_poll(server, &wc), IBV_WC_LOC_ACCESS_ERR);
		break;
	case SEND:
		assert_int_equal(rig_poll(client, &wc), IBV_WC_LOC_ACCESS_ERR);
		break;
	case WRITE_TARGET:
		/* on iWARP it may have completed before the peer said so */
		expect_async(server, IBV_EVENT_QP_ACCESS_ERR);
		rig_poll(client, &wc);
		assert_true(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_REM_ACCESS_ERR);
		break;
	case READ_SOURCE:
	case ATOMIC_TARGET:
		assert_int_equal(rig_poll(client, &wc), IBV_WC_REM_ACCESS_ERR);
		expect_async(server, IBV_EVENT_QP_ACCESS_ERR);
		break;
	case READ_SINK:
		assert_int_equal(rig_poll(client, &wc), IBV_WC_WR_FLUSH_ERR);
		expect_async(client, IBV_EVENT_QP_ACCESS_ERR);
		break;
	default:
		assert_int_equal(rig_poll(client, &wc), IBV_WC_LOC_ACCESS_ERR);
	}
}

static void use_lost(struct rig *rig, const struct way *way, enum use use, uint32_t len)
{
	struct rig_end client, server, *owner;
	struct ibv_recv_wr rwr = { .wr_id = 2, .num_sge = 1 }, *bad;
	struct ibv_sge lost_sge, sge;
	static char other[LARGE_LEN];
	struct ibv_mr *mr, *other_mr;
	struct block block;
	uint64_t at;

	rig_pair(rig, &client, &server);
	owner = at_server(use) ? &server : &client;
	get_block(&block, way);
	mr = ibv_reg_mr(owner->pd, block.p, BIG - 64,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_ATOMIC);
	other_mr = ibv_reg_mr(at_server(use) ? client.pd : server.pd, other, sizeof(other),
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	assert_non_null(mr);
	assert_non_null(other_mr);
	at = ((uintptr_t)block.p + OFFSET) & ~(uint64_t)7;
	lost_sge = (struct ibv_sge){ .addr = at, .length = len, .lkey = mr->lkey };
	sge = (struct ibv_sge){ .addr = (uintptr_t)other, .length = len, .lkey = other_mr->lkey };

	rwr.sg_list = use == RECEIVE ? &lost_sge : &sge;
	if (use == RECEIVE)
		assert_int_equal(ibv_post_recv(server.id->qp, &rwr, &bad), 0);
	way->lose(&block);
	switch (use) {
	case RECEIVE:
		assert_int_equal(post(&client, IBV_WR_SEND, sge, 0, 0), 0);
		break;
	case SEND:
		assert_int_equal(post(&client, IBV_WR_SEND, lost_sge, 0, 0), 0);
		break;
	case WRITE_TARGET:
		assert_int_equal(post(&client, IBV_WR_RDMA_WRITE, sge, at, mr->rkey), 0);
		break;
	case READ_SOURCE:
		assert_int_equal(post(&client, IBV_WR_RDMA_READ, sge, at, mr->rkey), 0);
		break;
	case READ_SINK:
		assert_int_equal(post(&client, IBV_WR_RDMA_READ, lost_sge, (uintptr_t)other,
				      other_mr->rkey),
				 0);
		break;
	case ATOMIC_TARGET:
		sge.length = sizeof(uint64_t);
		assert_int_equal(post(&client, IBV_WR_ATOMIC_FETCH_AND_ADD, sge, at, mr->rkey), 0);
		break;
	default:
		lost_sge.length = sizeof(uint64_t);
		assert_int_equal(post(&client, IBV_WR_ATOMIC_FETCH_AND_ADD, lost_sge,
				      (uintptr_t)other, other_mr->rkey),
				 0);
	}
	check(&client, &server, use);
	rig_expect(rig->channel, RDMA_CM_EVENT_DISCONNECTED);
	rig_expect(client.channel, RDMA_CM_EVENT_DISCONNECTED);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dereg_mr(other_mr), 0);
	put_block(&block, way);
	rig_end_free(&client);
	rig_end_free(&server);
}

static void test_transfers(void **state)
{
	struct rig rig;
	size_t i;
	int use;

	(void)state;
	rig_listen(&rig, "127.0.0.1", 5);
	for (i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		/* the allocators of the sanitizers keep what is freed for a while */
		if (ways[i].of_malloc && INSTRUMENTED)
			continue;
		for (use = 0; use < USES; use++) {
			print_message("%s, use %d\n", ways[i].name, use);
			use_lost(&rig, &ways[i], use, SMALL_LEN);
			if (use != ATOMIC_TARGET && use != ATOMIC_SINK)
				use_lost(&rig, &ways[i], use, LARGE_LEN);
		}
	}
	rig_unlisten(&rig);
}

/* ------------------------------------------------------------------ the program's own faults */

static sigjmp_buf back;
static int *volatile nowhere = (int *)8;
static volatile sig_atomic_t seen_signal;

static void own_handler(int sig)
{
	seen_signal = sig;
	siglongjmp(back, 1);
}

static void own_action(int sig, siginfo_t *info, void *ctx)
{
	assert_non_null(ctx);
	assert_ptr_equal(info->si_addr, nowhere);
	seen_signal = sig;
	siglongjmp(back, 1);
}

static void fault(void)
{
	*nowhere = 1;
}

static void test_own_handlers(void **state)
{
	struct sigaction act = { .sa_sigaction = own_action, .sa_flags = SA_SIGINFO }, old, none;
	struct rig_end client, server;
	struct rig rig;
	int status;
	pid_t pid;

	(void)state;
	/* once a region has been registered, ours is in front */
	rig_listen(&rig, "127.0.0.1", 5);
	rig_pair(&rig, &client, &server);
	assert_int_equal(sigaction(SIGSEGV, &act, &none), 0);
	assert_int_equal(sigaction(SIGSEGV, NULL, &old), 0);
	assert_ptr_equal(old.sa_sigaction, own_action);
	assert_int_equal(old.sa_flags & SA_SIGINFO, SA_SIGINFO);
	if (!sigsetjmp(back, 1))
		fault();
	assert_int_equal(seen_signal, SIGSEGV);
	assert_ptr_equal(signal(SIGSEGV, own_handler), old.sa_handler);
	seen_signal = 0;
	if (!sigsetjmp(back, 1))
		fault();
	assert_int_equal(seen_signal, SIGSEGV);
	seen_signal = 0;
	if (!sigsetjmp(back, 1))
		raise(SIGSEGV);
	assert_int_equal(seen_signal, SIGSEGV);
	/* a child that shares this memory until it starts another program changes its own handler */
	pid = vfork();
	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(sigaction(SIGSEGV, NULL, &old), 0);
	assert_ptr_equal(old.sa_handler, own_handler);
	assert_int_equal(sigaction(SIGSEGV, &none, NULL), 0);
	rig_end_free(&client);
	rig_end_free(&server);
	rig_unlisten(&rig);
}

/* Ends as the kernel would end it. */
static void ends_by(void (*how)(void), int sig)
{
	pid_t pid;
	int status;

	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		signal(SIGBUS, SIG_DFL);
		how();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), sig);
}

static void send_bus(void)
{
	raise(SIGBUS);
}

static void ignored_fault(void)
{
	signal(SIGSEGV, SIG_IGN);
	raise(SIGSEGV);
	fault();
}

static void test_default(void **state)
{
	struct rig_end client, server;
	struct rig rig;

	(void)state;
	rig_listen(&rig, "127.0.0.1", 5);
	rig_pair(&rig, &client, &server);
	ends_by(fault, SIGSEGV);
	ends_by(send_bus, SIGBUS);
	ends_by(ignored_fault, SIGSEGV);
	rig_end_free(&client);
	rig_end_free(&server);
	rig_unlisten(&rig);
}

/* A thread that blocks all signals, as many programs' workers do. */
static void *blocked_main(void *arg)
{
	struct rig *rig = arg;
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	use_lost(rig, &ways[0], RECEIVE, SMALL_LEN);
	use_lost(rig, &ways[0], SEND, SMALL_LEN);
	sigprocmask(SIG_BLOCK, &all, NULL);
	use_lost(rig, &ways[0], ATOMIC_TARGET, SMALL_LEN);
	return arg;
}

static void test_blocked(void **state)
{
	pthread_t thread;
	struct rig rig;
	void *ret;

	(void)state;
	rig_listen(&rig, "127.0.0.1", 5);
	assert_int_equal(pthread_create(&thread, NULL, blocked_main, &rig), 0);
	assert_int_equal(pthread_join(thread, &ret), 0);
	assert_ptr_equal(ret, &rig);
	rig_unlisten(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_transfers),
		cmocka_unit_test(test_own_handlers),
		cmocka_unit_test(test_default),
		cmocka_unit_test(test_blocked),
	};

	/* and does not get wiser */
	mallopt(M_MMAP_THRESHOLD, BIG / 2);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
