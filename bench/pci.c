// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * How fast erdma-pci is: a wire-level vfio-user client plays two virtual machines with one function each and writes
 * from one's memory to the other's.  What is measured is the adapter alone, without a guest's share.
 *
 * usage: pci [--quick] [--trapped] [PART...]; PART: rate, latency, bandwidth, wake, idle; all without one.
 * Prints lines of a name, a number and a unit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <endian.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/pci/driver.h"

enum {
	KEY = 0x100,
	BUF = 8 << 20,
	BIG = 1 << 20,
	CQ_SHIFT = 10,
	ROUNDS_MAX = 100000,
};

/* The two sides; the first one writes. */
static struct server server;
static struct vm vm[2];
static struct drv drv[2];
static struct drv_cq cq[2];
static struct drv_qp qp[2];
static uint64_t buf[2];
static bool quick;
static uint64_t samples[ROUNDS_MAX];

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* The scheduler may put both on one processor, where each waits for the other's time to be up. */
static void take_processor(pid_t pid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		sched_setaffinity(pid, sizeof(set), &set);
}

static void stand_open(bool trapped)
{
	static const char *const by_message[] = { "-b", "trapped", NULL };
	struct drv_end a = { 1, 2, 3, 4, 5, 6 }, b = { 2, 1, 4, 3, 6, 5 };
	int i;

	server_start(&server, 2, trapped ? by_message : NULL);
	take_processor(0, 0);
	take_processor(server.pid, 1);
	vm_maps_doorbells = !trapped;
	for (i = 0; i < 2; i++) {
		vm_open(&vm[i], &server, i);
		drv_probe(&drv[i], &vm[i], DRV_72);
		assert_int_equal(drv_create_cq(&drv[i], &cq[i], 1, CQ_SHIFT, 1, true), 0);
		assert_int_equal(drv_create_qp(&drv[i], &qp[i], 1, 1, &cq[i], &cq[i], true), 0);
		buf[i] = vm_alloc(&vm[i], BUF);
		memset(vm_at(&vm[i], buf[i]), i + 1, BUF);
		assert_int_equal(drv_reg_mr(&drv[i], KEY, 1, buf[i], BUF, DRV_ALL), 0);
	}
	assert_int_equal(drv_rts(&qp[1], qp[0].cookie, &b), 0);
	assert_int_equal(drv_rts(&qp[0], qp[1].cookie, &a), 0);
}

static void stand_close(void)
{
	vm_close(&vm[0]);
	vm_close(&vm[1]);
	server_stop(&server);
}

/* ------------------------------------------------------------------ a poster and a poller with no fat */

/* A signalled WRITE of one SGE. */
static void post(uint32_t len, bool ring)
{
	const uint32_t mask = (1u << qp[0].sq_shift) - 1, at = qp[0].sq_pi & mask;
	uint64_t *wqe = vm_at(&vm[0], qp[0].sq + (uint64_t)at * 32);

	qp[0].sq_pi += 2;
	wqe[1] = htole64((uint64_t)len << 32);
	wqe[2] = htole64(buf[1] << 32 | KEY);
	wqe[3] = htole64(buf[1] >> 32);
	wqe[4] = htole64(buf[0]);
	wqe[5] = htole64((uint64_t)KEY << 32 | len);
	wqe[0] = htole64(1ull << 56 | 1ull << 52 | (uint64_t)qp[0].qpn << 32 | 1ull << 22 |
			 qp[0].sq_pi);
	if (ring)
		drv_ring_sq(&qp[0]);
}

static bool poll_cq(void)
{
	const uint32_t *cqe =
		vm_at(&vm[0], cq[0].ring + (uint64_t)(cq[0].ci & ((1u << CQ_SHIFT) - 1)) * 32);
	uint32_t header = be32toh(__atomic_load_n(cqe, __ATOMIC_ACQUIRE));

	if ((header >> 31) == (cq[0].ci >> CQ_SHIFT & 1))
		return false;
	if (header & 0xff) {
		fprintf(stderr, "pci: completion with syndrome %u\n", header & 0xff);
		exit(1);
	}
	cq[0].ci++;
	return true;
}

static void wait_cq(void)
{
	while (!poll_cq())
		;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint64_t quantile(uint32_t n, double q)
{
	qsort(samples, n, sizeof(samples[0]), by_value);
	return samples[(uint32_t)(q * (n - 1))];
}

/* ------------------------------------------------------------------ parts */

/* Writes a second with @window of them under way and a doorbell for each @batch. */
static double rate(uint32_t count, uint32_t window, uint32_t batch)
{
	uint32_t posted = 0, done = 0;
	uint64_t start = now_ns();

	while (done < count) {
		while (posted < count && posted - done < window) {
			posted++;
			post(8, !(posted % batch) || posted == count || posted - done == window);
		}
		while (poll_cq())
			done++;
	}
	return count * 1e9 / (double)(now_ns() - start);
}

/* Of many short turns: what others do on the machine only ever takes away. */
static double best_rate(uint32_t window, uint32_t batch)
{
	uint32_t turns = quick ? 50 : 200, i;
	double r, best = 0;

	for (i = 0; i < turns; i++) {
		r = rate(5000, window, batch);
		best = r > best ? r : best;
	}
	return best;
}

static void bench_rate(void)
{
	printf("rate_8 %.0f writes/s\n", best_rate(128, 1));
	printf("rate_8_batch_16 %.0f writes/s\n", best_rate(128, 16));
}

static void bench_latency(void)
{
	static const uint32_t sizes[] = { 8, 4096 };
	uint32_t i, k, n = quick ? 5000 : 50000;
	uint64_t start;

	for (k = 0; k < 2; k++) {
		for (i = 0; i < n; i++) {
			start = now_ns();
			post(sizes[k], true);
			wait_cq();
			samples[i] = now_ns() - start;
		}
		printf("latency_%u_median %.2f us\n", sizes[k], (double)quantile(n, 0.5) / 1e3);
		printf("latency_%u_p99 %.2f us\n", sizes[k], (double)quantile(n, 0.99) / 1e3);
	}
}

/* MB/s of writes of BIG bytes, two under way. */
static double write_bandwidth(uint32_t count)
{
	uint32_t posted = 0, done = 0;
	uint64_t start = now_ns();

	while (done < count) {
		while (posted < count && posted - done < 2) {
			post(BIG, true);
			posted++;
		}
		while (poll_cq())
			done++;
	}
	return count * (double)BIG * 1e3 / (double)(now_ns() - start);
}

static double memcpy_bandwidth(uint32_t count)
{
	uint64_t start = now_ns();
	uint32_t i;

	for (i = 0; i < count; i++) {
		memcpy(vm_at(&vm[1], buf[1]), vm_at(&vm[0], buf[0]), BIG);
		__asm__ __volatile__("" ::: "memory");
	}
	return count * (double)BIG * 1e3 / (double)(now_ns() - start);
}

/* The best of many short turns each, as above. */
static void bench_bandwidth(void)
{
	uint32_t turns = quick ? 20 : 60, i;
	double r, ours = 0, theirs = 0;

	for (i = 0; i < turns; i++) {
		r = write_bandwidth(50);
		ours = r > ours ? r : ours;
		r = memcpy_bandwidth(50);
		theirs = r > theirs ? r : theirs;
	}
	printf("bandwidth_1m %.0f MB/s\n", ours);
	printf("memcpy_1m %.0f MB/s\n", theirs);
	printf("bandwidth_ratio %.2f of memcpy\n", ours / theirs);
}

/* A write after a pause: the time until a doorbell is seen. */
static void bench_wake(void)
{
	static const uint32_t pauses_us[] = { 100, 1000, 10000, 100000 };
	uint32_t i, k, n = quick ? 10 : 30;
	uint64_t start;

	for (k = 0; k < 4; k++) {
		for (i = 0; i < n; i++) {
			usleep(pauses_us[k]);
			start = now_ns();
			post(8, true);
			wait_cq();
			samples[i] = now_ns() - start;
		}
		printf("after_%u_us_median %.1f us\n", pauses_us[k],
		       (double)quantile(n, 0.5) / 1e3);
		printf("after_%u_us_most %.1f us\n", pauses_us[k], (double)quantile(n, 1) / 1e3);
	}
}

static uint64_t cpu_ns(pid_t pid)
{
	unsigned long long ns = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%llu", &ns) != 1) {
		fprintf(stderr, "pci: %s cannot be read\n", path);
		exit(1);
	}
	fclose(f);
	return ns;
}

static void bench_idle(void)
{
	uint64_t start, cpu;

	/* long enough for the pause to count as one */
	usleep(4500000);
	start = now_ns();
	cpu = cpu_ns(server.pid);
	usleep(quick ? 500000 : 3000000);
	printf("idle_cpu %.2f %%\n",
	       (double)(cpu_ns(server.pid) - cpu) * 100 / (double)(now_ns() - start));
}

static const struct {
	const char *name;
	void (*run)(void);
} parts[] = {
	{ "rate", bench_rate }, { "latency", bench_latency }, { "bandwidth", bench_bandwidth },
	{ "wake", bench_wake }, { "idle", bench_idle },
};

int main(int argc, char **argv)
{
	const uint32_t count = sizeof(parts) / sizeof(parts[0]);
	bool trapped = false;
	uint32_t wanted = 0, i;
	int arg;

	for (arg = 1; arg < argc; arg++) {
		if (!strcmp(argv[arg], "--quick")) {
			quick = true;
			continue;
		}
		if (!strcmp(argv[arg], "--trapped")) {
			trapped = true;
			continue;
		}
		for (i = 0; i < count && strcmp(argv[arg], parts[i].name); i++)
			;
		if (i == count) {
			fprintf(stderr, "usage: pci [--quick] [--trapped] "
					"[rate|latency|bandwidth|wake|idle ...]\n");
			return 2;
		}
		wanted |= 1u << i;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	stand_open(trapped);
	for (i = 0; i < count; i++)
		if (!wanted || (wanted & 1u << i))
			parts[i].run();
	stand_close();
	return 0;
}
