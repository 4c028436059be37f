// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "fuzz/mux/daemon.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "mux/log.h"

#define MAX_ARGS 32

/* The port is up from the start, and so opens nothing. */
struct sender *sender_new(const char *device, unsigned int port, unsigned int lanes,
			  unsigned int probes, int notify_fd, char why[UMAD_WHY_MAX])
{
	(void)device;
	(void)port;
	(void)lanes;
	(void)probes;
	(void)notify_fd;
	(void)why;
	abort();
}

void sender_free(struct sender *s)
{
	(void)s;
}

void sender_flush(struct sender *s)
{
	(void)s;
}

bool sender_failure(struct sender *s, struct sender_failure *f)
{
	(void)s;
	(void)f;
	return false;
}

void sender_stats(const struct sender *s, struct sender_stats *st)
{
	(void)s;
	*st = (struct sender_stats){ 0 };
}

struct gidtable *gidtable_new(const char *device, unsigned int port, bool prefer_v2, int notify_fd)
{
	static uint8_t table;

	(void)device;
	(void)port;
	(void)prefer_v2;
	(void)notify_fd;
	return (struct gidtable *)(void *)&table;
}

void gidtable_free(struct gidtable *t)
{
	(void)t;
}

bool gidtable_update(struct gidtable *t)
{
	(void)t;
	return true;
}

unsigned int gidtable_refresh(struct gidtable *t)
{
	(void)t;
	return 0;
}

bool gidtable_served(const struct gidtable *t, unsigned int request)
{
	(void)t;
	(void)request;
	return true;
}

struct mux *fuzz_daemon(struct sender *tx, const char *const *options)
{
	static const char *args[MAX_ARGS] = { "mux", "-d", "fuzz0" };
	struct mux *mux = calloc(1, sizeof(*mux));
	uint32_t durations[T_COUNT];
	int n = 3, status;

	for (; *options && n + 2 <= MAX_ARGS; options++) {
		args[n++] = "-o";
		args[n++] = *options;
	}
	mux->cfg = config_from_args(n, (char **)(uintptr_t)args, &status);
	log_set_level(LOG_EMERG);
	mux->now = 1000;
	mux->epoll_fd = epoll_create1(0);
	mux->notify_fd = eventfd(0, EFD_NONBLOCK);
	mux->timer_fd = timerfd_create(CLOCK_MONOTONIC, 0);
	mux->ready_tail = &mux->ready;
	session_owner_init(&mux->orphans, 1);
	session_owner_init(&mux->mourning, 2);
	mux->state = state_open(mux, NULL);
	mux_durations(mux->cfg, durations);
	state_session_head(mux->state)->vid_key = 1;
	mux->sessions = session_table_new(state_session_head(mux->state),
					  state_session_recs(mux->state), mux->cfg->max_sessions,
					  false, durations);
	mux->ports[0] = port_new(mux, &mux->cfg->ports[0]);
	mux->n_ports = 1;
	mux->ports[0]->tx = tx;
	mux->ports[0]->up = true;
	return mux;
}
