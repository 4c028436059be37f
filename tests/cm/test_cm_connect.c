// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Connections by librdmacm: how they come, are refused, and end. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include "tests/cm/cm_rig.h"
#include "tests/instrumented.h"

enum {
	CYCLES = 1000,
	MEMORY_SLACK = 4096, /* KiB */
	CANCELS = 200,
	THREADS = 8,
	PER_THREAD = 20,
};

static const char *const loopback = "127.0.0.1";

static void test_private_data(void **state)
{
	static const char call[] = "who is there", answer[] = "the server";
	struct rig_end client, server;
	struct rdma_cm_event *event;
	struct ibv_wc wc;
	struct rig rig;

	(void)state;
	rig_listen(&rig, loopback, 5);
	rig_client(&client, &rig.addr.sa);
	rig_connect(&client, call, sizeof(call));
	event = rig_event(rig.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_ptr_equal(event->listen_id, rig.listener);
	assert_int_equal(event->param.conn.private_data_len, sizeof(call));
	assert_memory_equal(event->param.conn.private_data, call, sizeof(call));
	/* what the client asks for, seen from here */
	assert_int_equal(event->param.conn.responder_resources, 2);
	assert_int_equal(event->param.conn.initiator_depth, 3);
	rig_server_end(&server, event->id);
	assert_int_equal(rdma_ack_cm_event(event), 0);
	rig_post_recv(&server, 7);
	rig_accept(&server, answer, sizeof(answer));
	event = rig_event(client.channel, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(event->param.conn.private_data_len, sizeof(answer));
	assert_memory_equal(event->param.conn.private_data, answer, sizeof(answer));
	assert_int_equal(rdma_ack_cm_event(event), 0);
	assert_int_equal(rig_expect(rig.channel, RDMA_CM_EVENT_ESTABLISHED), 0);

	rig_post_send(&client, 9, "hello");
	assert_int_equal(rig_poll(&client, &wc), IBV_WC_SUCCESS);
	assert_int_equal(rig_poll(&server, &wc), IBV_WC_SUCCESS);
	assert_string_equal(server.buf, "hello");

	/* a receive that is left is flushed; each side hears of the end once */
	rig_post_recv(&server, 8);
	assert_int_equal(rdma_disconnect(client.id), 0);
	assert_int_equal(rig_expect(client.channel, RDMA_CM_EVENT_DISCONNECTED), 0);
	assert_int_equal(rig_expect(rig.channel, RDMA_CM_EVENT_DISCONNECTED), 0);
	assert_int_equal(rig_poll(&server, &wc), IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(wc.wr_id, 8);
	assert_int_equal(rdma_disconnect(server.id), 0);
	rig_no_event(rig.channel, 50);
	rig_no_event(client.channel, 0);
	/*
	 * what is posted now is flushed too; after a move to ERR Debian's provider refuses it
	 * itself
	 */
	if (client.id->verbs->device->transport_type != IBV_TRANSPORT_IWARP)
		goto out;
	rig_post_send(&client, 10, "late");
	assert_int_equal(rig_poll(&client, &wc), IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(wc.wr_id, 10);
	rig_post_recv(&server, 11);
	assert_int_equal(rig_poll(&server, &wc), IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(wc.wr_id, 11);
out:
	rig_end_free(&client);
	rig_end_free(&server);
	rig_unlisten(&rig);
}

static void test_reject(void **state)
{
	static const char reason[] = "not today";
	struct rdma_cm_event *event;
	struct rig_end client;
	struct rig rig;

	(void)state;
	rig_listen(&rig, loopback, 5);
	rig_client(&client, &rig.addr.sa);
	rig_connect(&client, NULL, 0);
	event = rig_event(rig.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(rdma_reject(event->id, reason, sizeof(reason)), 0);
	assert_int_equal(rdma_reject(event->id, reason, sizeof(reason)), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_destroy_id(event->id), 0);
	rdma_ack_cm_event(event);
	event = rig_event(client.channel, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(event->status, -ECONNRESET);
	assert_int_equal(event->param.conn.private_data_len, sizeof(reason));
	assert_memory_equal(event->param.conn.private_data, reason, sizeof(reason));
	rdma_ack_cm_event(event);
	rig_end_free(&client);
	rig_unlisten(&rig);
}

static void test_nobody_listens(void **state)
{
	struct rig_end client;
	struct rig rig;

	(void)state;
	rig_listen(&rig, loopback, 5);
	rig_unlisten(&rig);
	rig_client(&client, &rig.addr.sa);
	rig_connect(&client, NULL, 0);
	assert_true(rig_expect(client.channel, RDMA_CM_EVENT_REJECTED) < 0);
	rig_end_free(&client);
}

static void test_backlog(void **state)
{
	struct rig_end first, second, third;
	struct rdma_cm_event *event;
	struct rig rig;

	(void)state;
	rig_listen(&rig, loopback, 1);
	rig_client(&first, &rig.addr.sa);
	rig_client(&second, &rig.addr.sa);
	rig_client(&third, &rig.addr.sa);
	rig_connect(&first, NULL, 0);
	rig_no_event(first.channel, 50);
	/* one request waits already */
	rig_connect(&second, NULL, 0);
	rig_expect(second.channel, RDMA_CM_EVENT_REJECTED);
	/* fetched, not answered: the place is free */
	event = rig_event(rig.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	rig_connect(&third, NULL, 0);
	rig_no_event(third.channel, 50);
	assert_int_equal(rdma_destroy_id(event->id), 0);
	rdma_ack_cm_event(event);
	/* an undecided request that is destroyed is refused, one that was never fetched too */
	rig_expect(first.channel, RDMA_CM_EVENT_REJECTED);
	rig_unlisten(&rig);
	rig_expect(third.channel, RDMA_CM_EVENT_REJECTED);
	rig_end_free(&first);
	rig_end_free(&second);
	rig_end_free(&third);
}

static void test_peer_gone_before_accept(void **state)
{
	struct rdma_conn_param param = {};
	struct rig_end client, server;
	struct rdma_cm_event *event;
	struct rig rig;

	(void)state;
	rig_listen(&rig, loopback, 5);
	rig_client(&client, &rig.addr.sa);
	rig_connect(&client, NULL, 0);
	event = rig_event(rig.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	rig_server_end(&server, event->id);
	rdma_ack_cm_event(event);
	rig_end_free(&client);
	usleep(20000);
	assert_int_equal(rdma_accept(server.id, &param), -1);
	assert_int_equal(errno, ECONNRESET);
	rig_no_event(rig.channel, 20);
	rig_end_free(&server);
	rig_unlisten(&rig);
}

static void test_passive_sends_first(void **state)
{
	struct rig_end client, server;
	struct rdma_cm_event *event;
	struct ibv_wc wc;
	struct rig rig;

	(void)state;
	rig_listen(&rig, loopback, 5);
	rig_client(&client, &rig.addr.sa);
	rig_post_recv(&client, 1);
	rig_connect(&client, NULL, 0);
	event = rig_event(rig.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	rig_server_end(&server, event->id);
	rdma_ack_cm_event(event);
	rig_accept(&server, NULL, 0);
	rig_post_send(&server, 2, "server first");
	assert_int_equal(rig_poll(&client, &wc), IBV_WC_SUCCESS);
	assert_string_equal(client.buf, "server first");
	assert_int_equal(rig_poll(&server, &wc), IBV_WC_SUCCESS);
	rig_end_free(&client);
	rig_end_free(&server);
	rig_unlisten(&rig);
}

static void pair_at(const char *listen_at, const char *call)
{
	struct rig_end client, server;
	struct rig rig, to;
	struct ibv_wc wc;

	rig_listen(&rig, listen_at, 5);
	to = rig;
	if (call) {
		rig_listen(&to, call, 1);
		rig_unlisten(&to);
		to.addr.in.sin_port = rig.addr.in.sin_port;
		rig.addr.ss = to.addr.ss;
	}
	rig_pair(&rig, &client, &server);
	rig_post_recv(&server, 1);
	rig_post_send(&client, 2, call ? call : listen_at);
	assert_int_equal(rig_poll(&server, &wc), IBV_WC_SUCCESS);
	assert_string_equal(server.buf, call ? call : listen_at);
	/* the new id has addresses of the caller's family */
	assert_int_equal(rdma_get_local_addr(server.id)->sa_family, rig.addr.sa.sa_family);
	rig_end_free(&client);
	rig_end_free(&server);
	rig_unlisten(&rig);
}

static void test_addresses(void **state)
{
	(void)state;
	pair_at("127.0.0.1", NULL);
	pair_at("127.0.0.77", NULL);
	pair_at("::1", NULL);
	pair_at("0.0.0.0", "127.0.0.1");
	pair_at("::", "::1");
	pair_at("::", "127.0.0.1");
}

static void test_qp_destroyed(void **state)
{
	struct rig_end client, server;
	struct ibv_wc wc;
	struct rig rig;

	(void)state;
	rig_listen(&rig, loopback, 5);
	rig_pair(&rig, &client, &server);
	rig_post_recv(&server, 5);
	rdma_destroy_qp(client.id);
	rig_expect(rig.channel, RDMA_CM_EVENT_DISCONNECTED);
	assert_int_equal(rig_poll(&server, &wc), IBV_WC_WR_FLUSH_ERR);
	rig_expect(client.channel, RDMA_CM_EVENT_DISCONNECTED);
	rig_end_free(&client);
	rig_end_free(&server);

	/* the id alone goes */
	rig_pair(&rig, &client, &server);
	rig_post_recv(&client, 6);
	{
		struct ibv_qp *qp = server.id->qp;

		server.id->qp = NULL;
		assert_int_equal(rdma_destroy_id(server.id), 0);
		rig_expect(client.channel, RDMA_CM_EVENT_DISCONNECTED);
		assert_int_equal(rig_poll(&client, &wc), IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(ibv_destroy_qp(qp), 0);
		ibv_dereg_mr(server.mr);
		ibv_destroy_cq(server.cq);
		ibv_dealloc_pd(server.pd);
	}
	rig_end_free(&client);
	rig_unlisten(&rig);
}

/* The peer is another process, which is killed in mid-life. */
static void test_killed(void **state)
{
	struct rig_end client, server;
	struct rdma_cm_event *event;
	struct ibv_wc wc;
	struct rig rig;
	int pipefd[2], i;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(pipefd), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pipefd[1]);
		if (read(pipefd[0], &rig, sizeof(rig)) != sizeof(rig))
			_exit(1);
		rig_client(&client, &rig.addr.sa);
		rig_post_recv(&client, 1);
		rig_connect(&client, NULL, 0);
		rig_expect(client.channel, RDMA_CM_EVENT_ESTABLISHED);
		for (i = 0; i < RIG_WRS; i++)
			rig_post_send(&client, 2, "to the end");
		pause();
		_exit(0);
	}
	rig_listen(&rig, loopback, 5);
	assert_int_equal(write(pipefd[1], &rig, sizeof(rig)), sizeof(rig));
	event = rig_event(rig.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	rig_server_end(&server, event->id);
	rdma_ack_cm_event(event);
	for (i = 0; i < RIG_WRS; i++)
		rig_post_recv(&server, (uint64_t)i);
	rig_accept(&server, NULL, 0);
	rig_expect(rig.channel, RDMA_CM_EVENT_ESTABLISHED);
	for (i = 0; i < RIG_WRS; i++)
		assert_int_equal(rig_poll(&server, &wc), IBV_WC_SUCCESS);
	rig_post_recv(&server, 99);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	rig_expect(rig.channel, RDMA_CM_EVENT_DISCONNECTED);
	assert_int_equal(rig_poll(&server, &wc), IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(wc.wr_id, 99);
	rig_end_free(&server);
	rig_unlisten(&rig);
	close(pipefd[0]);
	close(pipefd[1]);
}

static unsigned int open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int count = 0;

	assert_non_null(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

/* The kibibytes that are not shared with files. */
static long private_memory(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "re");
	char line[256];
	long kib = -1;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		sscanf(line, "Anonymous: %ld", &kib);
	fclose(file);
	assert_true(kib > 0);
	return kib;
}

/*
 * Connections come and go, and nothing of them is left: no descriptor, and no memory, neither of them here
 * nor with the peer, which is this process.  The distribution's provider keeps a little for each queue pair
 * it had.  ER_CM_CYCLES asks for another number of rounds.
 */
static void test_cycles(void **state)
{
	const char *wish = getenv("ER_CM_CYCLES");
	int i, cycles = wish ? atoi(wish) : CYCLES, warm = cycles / 4;
	struct rig_end client, server;
	unsigned int before, after;
	long memory = 0, more;
	struct rig rig;

	(void)state;
	assert_true(cycles > 8);
	rig_listen(&rig, loopback, 5);
	before = open_descriptors();
	for (i = 0; i < cycles; i++) {
		/* the first rounds open what is kept */
		if (i == 2)
			before = open_descriptors();
		if (i == warm)
			memory = private_memory();
		rig_pair(&rig, &client, &server);
		if (i & 1) {
			rdma_disconnect(client.id);
			rig_expect(client.channel, RDMA_CM_EVENT_DISCONNECTED);
			rig_expect(rig.channel, RDMA_CM_EVENT_DISCONNECTED);
		}
		rig_end_free(&client);
		rig_end_free(&server);
	}
	/* the last sockets may still wait for their peer's end */
	for (i = 0; (after = open_descriptors()) > before && i < 100; i++)
		usleep(20000);
	assert_true(after <= before);
	more = private_memory() - memory;
	print_message("%d cycles: %u descriptors and %ld KiB more\n", cycles, after - before, more);
	/* the allocators of the sanitizers keep what is freed for a while */
	if (!INSTRUMENTED)
		assert_true(more < MEMORY_SLACK + (getenv("RDMAV_DRIVERS") ? 0 : cycles / 4));
	rig_unlisten(&rig);
}

static void *poller_main(void *arg)
{
	struct rig_end *end = arg;
	struct ibv_wc wc;

	for (;;) {
		ibv_poll_cq(end->cq, 1, &wc);
		pthread_testcancel();
	}
	return NULL;
}

/* ibv_poll_cq() is no cancellation point: a thread that is cancelled in it leaves nothing locked. */
static void test_cancelled_poller(void **state)
{
	struct rig_end client, server;
	pthread_t thread;
	struct rig rig;
	struct ibv_wc wc;
	int i;

	(void)state;
	rig_listen(&rig, loopback, 5);
	rig_pair(&rig, &client, &server);
	for (i = 0; i < CANCELS; i++) {
		assert_int_equal(pthread_create(&thread, NULL, poller_main, &server), 0);
		usleep(300);
		assert_int_equal(pthread_cancel(thread), 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
		rig_post_recv(&client, 1);
		rig_post_send(&server, 2, "still alive");
		assert_int_equal(rig_poll(&client, &wc), IBV_WC_SUCCESS);
		assert_int_equal(rig_poll(&server, &wc), IBV_WC_SUCCESS);
	}
	rig_end_free(&client);
	rig_end_free(&server);
	rig_unlisten(&rig);
}

struct caller {
	pthread_t thread;
	const struct rig *rig;
};

static void *caller_main(void *arg)
{
	struct caller *caller = arg;
	struct rig_end client;
	struct ibv_wc wc;
	int i;

	for (i = 0; i < PER_THREAD; i++) {
		rig_client(&client, &caller->rig->addr.sa);
		rig_post_recv(&client, 1);
		rig_connect(&client, NULL, 0);
		rig_expect(client.channel, RDMA_CM_EVENT_ESTABLISHED);
		rig_post_send(&client, 2, "ping");
		/* own completion and the answer, in any order */
		assert_int_equal(rig_poll(&client, &wc), IBV_WC_SUCCESS);
		assert_int_equal(rig_poll(&client, &wc), IBV_WC_SUCCESS);
		assert_int_equal(rdma_disconnect(client.id), 0);
		rig_expect(client.channel, RDMA_CM_EVENT_DISCONNECTED);
		rig_end_free(&client);
	}
	return NULL;
}

static void *server_main(void *arg)
{
	struct rig_end *server = arg;
	struct ibv_wc wc;

	assert_int_equal(rig_poll(server, &wc), IBV_WC_SUCCESS);
	rig_post_send(server, 3, "pong");
	assert_int_equal(rig_poll(server, &wc), IBV_WC_SUCCESS);
	return NULL;
}

static void test_threads(void **state)
{
	static struct rig_end servers[THREADS * PER_THREAD];
	pthread_t server_threads[THREADS * PER_THREAD];
	unsigned int requests = 0, ended = 0, i;
	struct caller callers[THREADS];
	struct rdma_cm_event *event;
	struct rig rig;

	(void)state;
	rig_listen(&rig, loopback, 1024);
	for (i = 0; i < THREADS; i++) {
		callers[i].rig = &rig;
		assert_int_equal(pthread_create(&callers[i].thread, NULL, caller_main, &callers[i]),
				 0);
	}
	while (ended < THREADS * PER_THREAD) {
		assert_int_equal(rdma_get_cm_event(rig.channel, &event), 0);
		switch (event->event) {
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			rig_server_end(&servers[requests], event->id);
			rig_post_recv(&servers[requests], 1);
			rig_accept(&servers[requests], NULL, 0);
			assert_int_equal(pthread_create(&server_threads[requests], NULL,
							server_main, &servers[requests]),
					 0);
			requests++;
			break;
		case RDMA_CM_EVENT_ESTABLISHED:
			break;
		case RDMA_CM_EVENT_DISCONNECTED:
			ended++;
			break;
		default:
			fail_msg("unexpected %s", rdma_event_str(event->event));
		}
		rdma_ack_cm_event(event);
	}
	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
	for (i = 0; i < THREADS * PER_THREAD; i++) {
		assert_int_equal(pthread_join(server_threads[i], NULL), 0);
		rig_end_free(&servers[i]);
	}
	rig_unlisten(&rig);
}

/* Argument: a pattern of the tests to run. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed), /* first: forks before anything is open */
		cmocka_unit_test(test_private_data),
		cmocka_unit_test(test_reject),
		cmocka_unit_test(test_nobody_listens),
		cmocka_unit_test(test_backlog),
		cmocka_unit_test(test_peer_gone_before_accept),
		cmocka_unit_test(test_passive_sends_first),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_qp_destroyed),
		cmocka_unit_test(test_cycles),
		cmocka_unit_test(test_cancelled_poller),
		cmocka_unit_test(test_threads),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
