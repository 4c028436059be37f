// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* One-shot timers in a binary heap. */
#include <stdlib.h>
#include "adapter/process/engine/engine_internal.h"

static struct engine_timer **heap; /* heap[1..heap_len] */
static unsigned int heap_len, heap_size;

static void place(struct engine_timer *timer, unsigned int pos)
{
	heap[pos] = timer;
	timer->pos = pos;
}

static void sift_up(struct engine_timer *timer, unsigned int pos)
{
	while (pos > 1 && heap[pos / 2]->due_ns > timer->due_ns) {
		place(heap[pos / 2], pos);
		pos /= 2;
	}
	place(timer, pos);
}

static void sift_down(struct engine_timer *timer, unsigned int pos)
{
	unsigned int child;

	while ((child = pos * 2) <= heap_len) {
		if (child < heap_len && heap[child + 1]->due_ns < heap[child]->due_ns)
			child++;
		if (heap[child]->due_ns >= timer->due_ns)
			break;
		place(heap[child], pos);
		pos = child;
	}
	place(timer, pos);
}

void engine_timer_cancel(struct engine_timer *timer)
{
	struct engine_timer *last;
	unsigned int pos = timer->pos;

	if (!timer->due_ns)
		return;
	timer->due_ns = 0;
	last = heap[heap_len--];
	if (last == timer)
		return;
	if (pos > 1 && heap[pos / 2]->due_ns > last->due_ns)
		sift_up(last, pos);
	else
		sift_down(last, pos);
}

void engine_timer_set(struct engine_timer *timer, uint64_t delay_ns)
{
	struct engine_timer **bigger;
	uint64_t due = engine_now() + delay_ns;
	uint64_t first = engine_timers_due();

	engine_timer_cancel(timer);
	if (heap_len + 1 >= heap_size) {
		bigger = realloc(heap, (heap_size * 2 + 64) * sizeof(*heap));
		if (!bigger) {
			/* A time-out that never comes is worse than one that comes too early. */
			timer->fire(timer);
			return;
		}
		heap = bigger;
		heap_size = heap_size * 2 + 64;
	}
	timer->due_ns = due;
	heap_len++;
	sift_up(timer, heap_len);
	if (due < first)
		engine_wake();
}

uint64_t engine_timers_due(void)
{
	return heap_len ? heap[1]->due_ns : UINT64_MAX;
}

void engine_timers_run(uint64_t now)
{
	struct engine_timer *timer;

	while (heap_len && heap[1]->due_ns <= now) {
		timer = heap[1];
		engine_timer_cancel(timer);
		timer->fire(timer);
	}
}

void engine_timers_forget(void)
{
	heap = NULL;
	heap_len = 0;
	heap_size = 0;
}
