// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Prints the frequency of this processor's time stamp counter in kHz, which an emulated machine sees as its own.
 * Its kernel would measure it, and be wrong by a multiple when it is interrupted.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

struct moment {
	uint64_t ticks;
	uint64_t ns;
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* The closest pair of many readings, as this program is interrupted, too. */
static struct moment moment(void)
{
	uint64_t best = UINT64_MAX, before, after, ns;
	struct moment m = { 0 };
	int i;

	for (i = 0; i < 1000; i++) {
		before = __rdtsc();
		ns = now_ns();
		after = __rdtsc();
		if (after - before < best) {
			best = after - before;
			m = (struct moment){ .ticks = before + best / 2, .ns = ns };
		}
	}
	return m;
}

int main(void)
{
	const struct timespec pause = { .tv_nsec = 300000000 };
	struct moment first = moment(), last;

	nanosleep(&pause, NULL);
	last = moment();
	printf("%.0f\n", (double)(last.ticks - first.ticks) * 1e6 / (double)(last.ns - first.ns));
	return 0;
}
