// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What a provider's own calls cost, for callgrind.
 *
 *	postpoll SCENARIO [ROUNDS]	one post and one poll per round, nothing else is collected
 *	postpoll memory [QPS]		resident and mapped bytes per QP
 *
 * Each post and each poll stands alone between two switches of the collection, and the completion is
 * given time to arrive in between, so no empty poll is counted (their number is printed; it has to
 * be 0) and the adapter's work in other threads is not either.  bench/run takes from callgrind's
 * output what the provider itself and the libc functions that it calls have used.
 */
#include <errno.h>
#include <valgrind/callgrind.h>
#include "tests/accept/harness.h"

enum {
	DEFAULT_ROUNDS = 400,
	DEFAULT_QPS = 1000,
	WARM_UP = 20,
	ARRIVAL_TRIES = 2000,
	LEN = 4096,
	PIECE = 64,
	PIECES = 4,
};

struct bench {
	struct ts_pair pair;
	struct ts_buf local, remote;
	long empty;
};

struct scenario {
	const char *name;
	void (*round)(struct bench *t, bool collect);
};

static void collect_if(bool on)
{
	if (on)
		CALLGRIND_TOGGLE_COLLECT;
}

/* The one poll that is counted finds its completion. */
static void poll_one(struct bench *t, struct ibv_cq *cq, bool collect)
{
	struct ibv_wc wc;
	int n;

	ts_sleep_ms(1);
	for (int tries = 0;; tries++) {
		collect_if(collect);
		n = ibv_poll_cq(cq, 1, &wc);
		collect_if(collect);
		if (n)
			break;
		if (collect)
			t->empty++;
		if (tries == ARRIVAL_TRIES)
			TS_FAIL("no completion after %d ms", ARRIVAL_TRIES);
		ts_sleep_ms(1);
	}
	if (n < 0 || wc.status)
		TS_FAIL("a completion failed: %s", ibv_wc_status_str(wc.status));
}

static void send_round(struct bench *t, struct ibv_send_wr *wr, bool collect)
{
	struct ibv_send_wr *bad;
	int rc;

	wr->send_flags |= IBV_SEND_SIGNALED;
	wr->wr.rdma.remote_addr = (uintptr_t)t->remote.p;
	wr->wr.rdma.rkey = t->remote.mr->rkey;
	collect_if(collect);
	rc = ibv_post_send(t->pair.a.qp, wr, &bad);
	collect_if(collect);
	TS_OK(rc);
	poll_one(t, t->pair.a.scq, collect);
}

static void inline_write(struct bench *t, bool collect)
{
	struct ibv_sge sge = ts_sge(&t->local, 0, 8);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_INLINE,
				  .sg_list = &sge,
				  .num_sge = 1 };

	send_round(t, &wr, collect);
}

static void write_1_sge(struct bench *t, bool collect)
{
	struct ibv_sge sge = ts_sge(&t->local, 0, PIECE);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1 };

	send_round(t, &wr, collect);
}

static void send_4_sge(struct bench *t, bool collect)
{
	struct ibv_sge sge[PIECES];
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = PIECES };
	struct ibv_wc wc;

	for (int i = 0; i < PIECES; i++)
		sge[i] = ts_sge(&t->local, (size_t)i * PIECE, PIECE);
	TS_OK(ts_post_recv(t->pair.b.qp, 1, &t->remote, 0, LEN));
	send_round(t, &wr, collect);
	ts_poll_ok(t->pair.b.rcq, &wc);
}

static void receive(struct bench *t, bool collect)
{
	struct ibv_sge sge = ts_sge(&t->remote, 0, PIECE);
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_wc wc;
	int rc;

	collect_if(collect);
	rc = ibv_post_recv(t->pair.b.qp, &wr, &bad);
	collect_if(collect);
	TS_OK(rc);
	TS_OK(ts_post(t->pair.a.qp, IBV_WR_SEND, 1, &t->local, 0, PIECE, 0, 0, 0));
	ts_poll_ok(t->pair.a.scq, &wc);
	poll_one(t, t->pair.b.rcq, collect);
}

static const struct scenario scenarios[] = {
	{ "inline_write", inline_write },
	{ "write_1_sge", write_1_sge },
	{ "send_4_sge", send_4_sge },
	{ "receive", receive },
};

static const struct scenario *chosen;
static long rounds;

static void run(void **state)
{
	const struct ts_attr attr = { .cap = { .max_send_sge = PIECES,
					       .max_inline_data = 64,
					       .max_send_wr = 64,
					       .max_recv_wr = 64 } };
	struct bench t = { 0 };

	(void)state;
	ts_pair_open(&t.pair, &attr, &attr);
	ts_buf_open(&t.local, LEN);
	ts_buf_open(&t.remote, LEN);
	for (int i = 0; i < WARM_UP; i++)
		chosen->round(&t, false);
	for (long i = 0; i < rounds; i++)
		chosen->round(&t, true);
	printf("rounds %ld empty %ld\n", rounds, t.empty);
	ts_pair_close(&t.pair);
	ts_buf_close(&t.local);
	ts_buf_close(&t.remote);
}

static void memory(void **state)
{
	struct ts_attr attr = { .cap = { .max_send_wr = 128, .max_recv_wr = 128 } };
	struct ts_end *end = calloc((size_t)rounds, sizeof(*end));
	long bytes;

	(void)state;
	TS_CHECK(end);
	attr.scq = attr.rcq = ibv_create_cq(ts_dev()->ctx, 4096, NULL, NULL, 0);
	TS_CHECK(attr.scq);
	/* the first ones set up what all share */
	for (long i = 0; i < rounds / 10; i++)
		ts_end_open(&end[i], &attr);
	bytes = ts_resident();
	for (long i = rounds / 10; i < rounds; i++)
		ts_end_open(&end[i], &attr);
	printf("bytes_per_qp %ld\n", (ts_resident() - bytes) / (rounds - rounds / 10));
	for (long i = 0; i < rounds; i++)
		ts_end_close(&end[i]);
	TS_OK(ibv_destroy_cq(attr.scq));
	free(end);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest run_test[] = { cmocka_unit_test(run) };
	const struct CMUnitTest memory_test[] = { cmocka_unit_test(memory) };
	char *self[] = { argv[0], NULL };
	bool is_memory;

	if (argc < 2 || argc > 3) {
		fprintf(stderr,
			"usage: %s inline_write|write_1_sge|send_4_sge|receive [ROUNDS] | "
			"memory [QPS]\n",
			argv[0]);
		return 2;
	}
	is_memory = !strcmp(argv[1], "memory");
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++)
		if (!strcmp(argv[1], scenarios[i].name))
			chosen = &scenarios[i];
	if (!chosen && !is_memory) {
		fprintf(stderr, "%s: no scenario \"%s\"\n", argv[0], argv[1]);
		return 2;
	}
	rounds = argc == 3 ? strtol(argv[2], NULL, 10) : is_memory ? DEFAULT_QPS : DEFAULT_ROUNDS;
	if (rounds < 10 || rounds > 1000000) {
		fprintf(stderr, "%s: \"%s\" is no number from 10 to 1000000\n", argv[0], argv[2]);
		return 2;
	}
	return is_memory ? ts_main(1, self, "memory", memory_test, 1, NULL) :
			   ts_main(1, self, "postpoll", run_test, 1, NULL);
}
