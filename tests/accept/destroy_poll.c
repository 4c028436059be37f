// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * One thread polls a CQ shared by 64 QPs while others create, load and destroy QPs: no completion of
 * a destroyed QP is seen, none of a living one is lost, and numbers are reused safely.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include "tests/accept/harness.h"

enum {
	SLOTS = 64,
	WORKERS = 3,
	CYCLES = 6000, /* of all workers together: numbers of QPs come round */
	LOAD = 12,
	BUF = 4096,
};

struct slot {
	struct ts_pair pair;
	bool open;
	_Atomic uint32_t qpn;
	_Atomic uint32_t generation;
	_Atomic uint32_t dead; /* the last generation whose destruction has returned */
	_Atomic uint32_t done; /* completions of this generation */
};

struct job {
	struct slot slot[SLOTS];
	struct ibv_cq *cq;
	struct ts_buf buf;
	_Atomic bool stop;
	_Atomic long cycles, polled, abandoned;
	_Atomic(const char *) error;
	long limit;
};

struct worker {
	struct job *job;
	int index;
	pthread_t thread;
};

/* Which slot, in which life, which WR. */
static uint64_t id_of(uint32_t slot, uint32_t generation, uint32_t n)
{
	return (uint64_t)generation << 32 | slot << 16 | n;
}

static void complain(struct job *job, const char *what)
{
	const char *none = NULL;

	atomic_compare_exchange_strong(&job->error, &none, what);
}

static void *poll_all(void *arg)
{
	struct job *job = arg;

	while (!atomic_load(&job->stop)) {
		uint32_t dead[SLOTS];
		struct ibv_wc wc[16];
		int n;

		for (int i = 0; i < SLOTS; i++)
			dead[i] = atomic_load(&job->slot[i].dead);
		n = ibv_poll_cq(job->cq, 16, wc);
		if (n < 0) {
			complain(job, "ibv_poll_cq failed");
			break;
		}
		for (int i = 0; i < n; i++) {
			uint32_t index = wc[i].wr_id >> 16 & 0xffff;
			uint32_t generation = (uint32_t)(wc[i].wr_id >> 32);
			struct slot *slot = &job->slot[index < SLOTS ? index : 0];

			atomic_fetch_add(&job->polled, 1);
			if (index >= SLOTS)
				complain(job, "a completion has a wr_id that nobody posted");
			else if (generation <= dead[index])
				complain(job, "a completion of a destroyed QP");
			else if (generation != atomic_load(&slot->generation))
				continue; /* destroyed since the call began: allowed */
			else if (wc[i].qp_num != atomic_load(&slot->qpn) &&
				 generation == atomic_load(&slot->generation))
				complain(job, "a completion has another QP's number");
			else if (wc[i].status && wc[i].status != IBV_WC_WR_FLUSH_ERR)
				complain(job, ibv_wc_status_str(wc[i].status));
			else
				atomic_fetch_add(&slot->done, 1);
		}
		if (!n)
			sched_yield();
	}
	return NULL;
}

static const char *load(struct job *job, struct slot *slot, uint32_t index, uint32_t generation)
{
	for (uint32_t i = 0; i < LOAD; i++) {
		struct ibv_sge sge = ts_sge(&job->buf, (size_t)index * 64, 16);
		struct ibv_send_wr wr = { .wr_id = id_of(index, generation, i),
					  .opcode = i & 1 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
					  .sg_list = &sge,
					  .num_sge = 1,
					  .send_flags = IBV_SEND_SIGNALED },
				   *bad;

		wr.wr.rdma.remote_addr = (uintptr_t)job->buf.p + (uintptr_t)index * 64 + 32;
		wr.wr.rdma.rkey = job->buf.mr->rkey;
		if (ibv_post_send(slot->pair.a.qp, &wr, &bad))
			return "ibv_post_send";
	}
	return NULL;
}

/*
 * A slot's next life: half of the QPs live until all their work is done, the others are destroyed
 * with work under way.
 */
static const char *cycle(struct job *job, struct slot *slot, uint32_t index, bool finish)
{
	struct ts_attr attr = { .scq = job->cq };
	uint32_t generation = atomic_load(&slot->generation);
	const char *what;

	if (slot->open) {
		what = ts_pair_try_close(&slot->pair);
		atomic_store(&slot->dead, generation);
		slot->open = false;
		if (what)
			return what;
	}
	what = ts_pair_try(&slot->pair, &attr, NULL);
	if (what)
		return what;
	slot->open = true;
	atomic_store(&slot->done, 0);
	atomic_store(&slot->qpn, slot->pair.a.qp->qp_num);
	atomic_store(&slot->generation, ++generation);
	what = load(job, slot, index, generation);
	if (what || !finish) {
		atomic_fetch_add(&job->abandoned, 1);
		return what;
	}
	for (uint64_t end = ts_now() + TS_WAIT_MS * 1000000ull;
	     atomic_load(&slot->done) < LOAD && !atomic_load(&job->error);) {
		if (ts_now() > end)
			return "completions of a living QP were lost";
		sched_yield();
	}
	return NULL;
}

static void *work(void *arg)
{
	struct worker *me = arg;
	struct job *job = me->job;
	uint32_t index = (uint32_t)me->index;
	unsigned int turn = 0;

	while (!atomic_load(&job->error) && atomic_fetch_add(&job->cycles, 1) < job->limit) {
		const char *what = cycle(job, &job->slot[index], index, turn++ % 2 == 0);

		if (what)
			complain(job, what);
		index += WORKERS;
		if (index >= SLOTS)
			index = (uint32_t)me->index;
	}
	return NULL;
}

static void shared_by_64(void **state)
{
	struct worker worker[WORKERS];
	struct job *job = calloc(1, sizeof(*job));
	pthread_t poller;
	struct ibv_wc wc;

	(void)state;
	if (!ts_dev()->ours)
		ts_skip("the distribution's provider, use after free between poll and destroy");
	TS_CHECK(job);
	job->limit = ts_scale(CYCLES);
	job->cq = ibv_create_cq(ts_dev()->ctx, 4 * SLOTS * LOAD, NULL, NULL, 0);
	TS_CHECK(job->cq);
	ts_buf_open(&job->buf, (size_t)BUF * 2);
	TS_OK(pthread_create(&poller, NULL, poll_all, job));
	for (int i = 0; i < WORKERS; i++) {
		worker[i] = (struct worker){ .job = job, .index = i };
		TS_OK(pthread_create(&worker[i].thread, NULL, work, &worker[i]));
	}
	for (int i = 0; i < WORKERS; i++)
		pthread_join(worker[i].thread, NULL);
	if (!atomic_load(&job->error))
		for (int i = 0; i < SLOTS; i++)
			if (job->slot[i].open) {
				ts_pair_close(&job->slot[i].pair);
				atomic_store(&job->slot[i].dead,
					     atomic_load(&job->slot[i].generation));
			}
	ts_sleep_ms(TS_QUIET_MS);
	atomic_store(&job->stop, true);
	pthread_join(poller, NULL);
	if (atomic_load(&job->error))
		TS_FAIL("%s; after %ld cycles, errno %s", atomic_load(&job->error),
			atomic_load(&job->cycles), strerror(errno));
	TS_EQ(ibv_poll_cq(job->cq, 1, &wc), 0);
	print_message("%ld lives, %ld completions, %ld destroyed under load\n", job->limit,
		      atomic_load(&job->polled), atomic_load(&job->abandoned));
	TS_OK(ibv_destroy_cq(job->cq));
	ts_buf_close(&job->buf);
	free(job);
}

/*
 * Without any other thread: stale completions of a QP in the middle of the CQ vanish, those around
 * them stay, in order, also when the ring wraps.
 */
static void middle_vanishes(void **state)
{
	struct ts_attr attr = { 0 };
	struct ts_pair pair[3];
	struct ts_buf buf;
	struct ibv_wc wc;

	(void)state;
	if (!ts_dev()->ours)
		ts_skip("the distribution's provider leaves completions of destroyed QPs in the CQ");
	ts_buf_open(&buf, 4096);
	attr.scq = ibv_create_cq(ts_dev()->ctx, 62, NULL, NULL, 0);
	TS_CHECK(attr.scq);
	for (uint64_t round = 0; round < 40; round++) {
		for (int i = 0; i < 3; i++)
			ts_pair_open(&pair[i], &attr, NULL);
		/* completions in the order 0 1 2 0 1 2 ... */
		for (uint64_t i = 0; i < 12; i++) {
			TS_OK(ts_post(pair[i % 3].a.qp, IBV_WR_RDMA_READ, round << 8 | i, &buf, 0,
				      8, (uintptr_t)buf.p + 64, buf.mr->rkey, 0));
			ts_sleep_ms(1);
		}
		ts_sleep_ms(20);
		ts_pair_close(&pair[1]);
		for (int i = 0, last[3] = { -1, -1, -1 }; i < 8; i++) {
			int n;

			ts_poll_ok(attr.scq, &wc);
			TS_EQ(wc.wr_id >> 8, round);
			n = (int)(wc.wr_id & 0xff);
			if (n % 3 == 1)
				TS_FAIL("a completion of the destroyed QP was returned");
			if (n <= last[n % 3])
				TS_FAIL("completion %d came after %d", n, last[n % 3]);
			last[n % 3] = n;
			TS_EQ(wc.qp_num, pair[n % 3].a.qp->qp_num);
		}
		ts_pair_close(&pair[0]);
		ts_pair_close(&pair[2]);
		TS_EQ(ibv_poll_cq(attr.scq, 1, &wc), 0);
	}
	TS_OK(ibv_destroy_cq(attr.scq));
	ts_buf_close(&buf);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(middle_vanishes),
		cmocka_unit_test(shared_by_64),
	};

	return ts_main(argc, argv, "destroy_poll", tests, sizeof(tests) / sizeof(*tests), NULL);
}
