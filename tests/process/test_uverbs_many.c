// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Many objects, many threads, and files that are closed meanwhile. */
#include "tests/process/uverbs_rig.h"

static void many_objects(void **state)
{
	enum {
		MANY = 3000
	};
	int fd = dev_open(NULL), i;
	uint32_t pd = pd_alloc(fd), first = 0, *qps = calloc(MANY, sizeof(*qps));
	struct qp qp;
	struct cq cq;

	(void)state;
	good_cq(fd, &cq);
	for (i = 0; i < MANY; i++) {
		usual_qp(&qp);
		assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), 0);
		if (!i)
			first = qp.qpn;
		assert_true(qp.qpn == first + i);
		qps[i] = qp.handle;
	}
	/* out of order, half by hand and half by closing the file */
	for (i = 0; i < MANY; i += 2)
		assert_int_equal(qp_destroy(fd, qps[MANY - 1 - i], NULL), 0);
	close(fd);
	free(qps);
	/* numbers go round */
	fd = dev_open(NULL);
	pd = pd_alloc(fd);
	good_cq(fd, &cq);
	for (i = 0; i < 70000; i++) {
		usual_qp(&qp);
		assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), 0);
		assert_true(qp.qpn > 0 && qp.qpn < 65536);
		assert_int_equal(qp_destroy(fd, qp.handle, NULL), 0);
	}
	close(fd);
}

struct worker {
	pthread_t thread;
	int fd;
	uint32_t pd;
	unsigned int number;
	unsigned char *memory;
	unsigned int failures;
};

/*
 * Objects of its own on a shared file, and blind destroys of whatever handle the others may have.
 */
static void *work(void *arg)
{
	struct worker *w = arg;
	uint64_t at = (uintptr_t)w->memory;
	struct ib_uverbs_reg_mr_resp mr;
	struct erdma_ureq_create_cq ureq = { .db_record_va = at + 60000,
					     .qbuf_va = at,
					     .qbuf_len = 2048 };
	struct erdma_uresp_create_cq uresp;
	struct ib_uverbs_destroy_cq_resp gone;
	struct ib_uverbs_attr *handle;
	struct call call;
	uint32_t cqe;
	int i, err;

	for (i = 0; i < 300; i++) {
		if (mr_reg(w->fd, w->pd, at, 4096, at, 7, &mr))
			w->failures++;
		/* someone else's guess may have been quicker */
		err = mr_destroy(w->fd, mr.mr_handle);
		if (err && err != ENOENT && err != EINVAL)
			w->failures++;
		call_begin(&call, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
		handle = call_add(&call, UVERBS_ATTR_CREATE_CQ_HANDLE, 0, 0);
		call_add(&call, UVERBS_ATTR_CREATE_CQ_CQE, 4, 64);
		call_add(&call, UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 8, at);
		call_add(&call, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 4, 0);
		call_add(&call, UVERBS_ATTR_CREATE_CQ_RESP_CQE, 4, (uintptr_t)&cqe);
		call_add(&call, UVERBS_ATTR_UHW_IN, sizeof(ureq), (uintptr_t)&ureq);
		call_add(&call, UVERBS_ATTR_UHW_OUT, sizeof(uresp), (uintptr_t)&uresp);
		if (call_do(w->fd, &call)) {
			w->failures++;
			continue;
		}
		err = cq_destroy(w->fd, handle->data, &gone);
		if (err && err != ENOENT && err != EINVAL)
			w->failures++;
		cq_destroy(w->fd, i % 8, &gone);
		mr_destroy(w->fd, i % 8);
	}
	return NULL;
}

static void many_threads(void **state)
{
	enum {
		THREADS = 4
	};
	struct worker workers[THREADS];
	int fd = dev_open(NULL), i;
	uint32_t pd = pd_alloc(fd);

	(void)state;
	for (i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){
			.fd = fd, .pd = pd, .number = i, .memory = memory + i * 65536
		};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		assert_int_equal(workers[i].failures, 0);
	}
	close(fd);
}

/* A file that is closed while another thread is in a command on it. */
static void *command_until_closed(void *arg)
{
	struct ib_uverbs_query_device req = { 0 };
	struct ib_uverbs_query_device_resp resp;
	int fd = *(int *)arg;

	while (!invoke_write(fd, IB_USER_VERBS_CMD_QUERY_DEVICE, &req, sizeof(req), &resp,
			     sizeof(resp)))
		;
	return NULL;
}

static void close_under_way(void **state)
{
	pthread_t thread;
	int i, fd;

	(void)state;
	for (i = 0; i < 50; i++) {
		fd = dev_open(NULL);
		assert_int_equal(pthread_create(&thread, NULL, command_until_closed, &fd), 0);
		usleep(200);
		close(fd);
		pthread_join(thread, NULL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_objects),
		cmocka_unit_test(many_threads),
		cmocka_unit_test(close_under_way),
	};

	return cmocka_run_group_tests(tests, uverbs_set_up, NULL);
}
