// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Event files: order, nothing lost when the pipe is full, and exact counts when events are taken
 * back under a reader's eyes.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/resource.h>
#include <cmocka.h>
#include "adapter/process/engine/engine.h"
#include "adapter/process/host.h"

static void push(struct host_evq *q, uint64_t value)
{
	engine_lock();
	assert_int_equal(host_evq_push(q, &value), 0);
	engine_unlock();
}

static bool is_value(const void *event, void *arg)
{
	return *(const uint64_t *)event == *(uint64_t *)arg;
}

static unsigned int take_back(struct host_evq *q, uint64_t value)
{
	unsigned int n;

	engine_lock();
	n = host_evq_remove(q, is_value, &value);
	engine_unlock();
	return n;
}

static void put(struct host_evq *q)
{
	engine_lock();
	host_evq_put(q);
	engine_unlock();
}

static void like_the_kernels(void **state)
{
	struct pollfd poll_fd = { .events = POLLIN | POLLOUT };
	struct host_evq *q;
	uint64_t value;

	(void)state;
	q = host_evq_create(&poll_fd.fd, sizeof(value));
	assert_non_null(q);
	assert_int_equal(fcntl(poll_fd.fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fcntl(poll_fd.fd, F_GETFL) & O_NONBLOCK, 0);
	assert_int_equal(poll(&poll_fd, 1, 0), 0);
	fcntl(poll_fd.fd, F_SETFL, O_NONBLOCK);
	assert_int_equal(read(poll_fd.fd, &value, sizeof(value)), -1);
	assert_int_equal(errno, EAGAIN);
	push(q, 5);
	push(q, 6);
	assert_int_equal(poll(&poll_fd, 1, 0), 1);
	assert_int_equal(poll_fd.revents, POLLIN);
	assert_int_equal(read(poll_fd.fd, &value, sizeof(value)), sizeof(value));
	assert_int_equal(value, 5);
	assert_int_equal(read(poll_fd.fd, &value, sizeof(value)), sizeof(value));
	assert_int_equal(value, 6);
	assert_int_equal(read(poll_fd.fd, &value, sizeof(value)), -1);
	assert_int_equal(errno, EAGAIN);
	/* the program's end is closed: neither a signal nor an error */
	close(poll_fd.fd);
	push(q, 7);
	assert_null(host_evq_create(&poll_fd.fd, 0));
	assert_int_equal(errno, EINVAL);
	put(q);
}

static void taking_back(void **state)
{
	struct host_evq *q;
	uint64_t value;
	int fd, i;

	(void)state;
	q = host_evq_create(&fd, sizeof(value));
	assert_int_equal(take_back(q, 1), 0);
	for (i = 0; i < 30; i++)
		push(q, i % 3);
	assert_int_equal(take_back(q, 1), 10);
	assert_int_equal(take_back(q, 1), 0);
	for (i = 0; i < 20; i++) {
		assert_int_equal(read(fd, &value, sizeof(value)), sizeof(value));
		assert_int_equal(value, i % 2 ? 2 : 0);
	}
	fcntl(fd, F_SETFL, O_NONBLOCK);
	assert_int_equal(read(fd, &value, sizeof(value)), -1);
	close(fd);
	put(q);
}

/* Who has no descriptor left must still be able to destroy what has events. */
static void taking_back_at_the_limit(void **state)
{
	struct rlimit limit, none;
	struct host_evq *q;
	uint64_t value;
	int fd, i;

	(void)state;
	q = host_evq_create(&fd, sizeof(value));
	for (i = 0; i < 30; i++)
		push(q, i % 3);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(dup(fd), -1);
	assert_int_equal(take_back(q, 1), 10);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (i = 0; i < 20; i++) {
		assert_int_equal(read(fd, &value, sizeof(value)), sizeof(value));
		assert_int_equal(value, i % 2 ? 2 : 0);
	}
	close(fd);
	put(q);
}

/* More than a pipe holds: the rest waits in memory, in order, and comes as the program reads. */
static void overflow(void **state)
{
	enum {
		MANY = 30000
	};
	struct pollfd poll_fd = { .events = POLLIN };
	struct host_evq *q;
	uint64_t value, i;

	(void)state;
	assert_int_equal(engine_start(), 0);
	q = host_evq_create(&poll_fd.fd, sizeof(value));
	for (i = 0; i < MANY; i++)
		push(q, i);
	/* one from the pipe, one from what did not fit */
	assert_int_equal(take_back(q, 17), 1);
	assert_int_equal(take_back(q, MANY - 1), 1);
	for (i = 0; i < MANY - 1; i++) {
		if (i == 17)
			continue;
		assert_int_equal(poll(&poll_fd, 1, 5000), 1);
		assert_int_equal(read(poll_fd.fd, &value, sizeof(value)), sizeof(value));
		assert_int_equal(value, i);
	}
	assert_int_equal(poll(&poll_fd, 1, 50), 0);
	push(q, 1);
	assert_int_equal(poll(&poll_fd, 1, 5000), 1);
	close(poll_fd.fd);
	/* with events left in memory */
	for (i = 0; i < MANY; i++)
		push(q, i);
	put(q);
}

struct reader {
	int fd;
	unsigned int got[4];
};

static void *read_all(void *arg)
{
	struct reader *r = arg;
	uint64_t value;

	while (read(r->fd, &value, sizeof(value)) == sizeof(value) && value < 4)
		r->got[value]++;
	return NULL;
}

/* Whatever was pushed was either read or taken back: destroy calls wait for exactly that number. */
static void exact_counts(void **state)
{
	unsigned int pushed[4] = { 0 }, back[4] = { 0 }, i;
	struct reader r = { 0 };
	struct host_evq *q;
	pthread_t thread;

	(void)state;
	q = host_evq_create(&r.fd, sizeof(uint64_t));
	assert_int_equal(pthread_create(&thread, NULL, read_all, &r), 0);
	for (i = 0; i < 20000; i++) {
		uint64_t value = i % 4;

		push(q, value);
		pushed[value]++;
		if (i % 7 == 0)
			back[(i / 7) % 4] += take_back(q, (i / 7) % 4);
	}
	push(q, 99);
	pthread_join(thread, NULL);
	for (i = 0; i < 4; i++)
		assert_int_equal(pushed[i], r.got[i] + back[i]);
	close(r.fd);
	put(q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(like_the_kernels),
		cmocka_unit_test(taking_back),
		cmocka_unit_test(taking_back_at_the_limit),
		cmocka_unit_test(overflow),
		cmocka_unit_test(exact_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
