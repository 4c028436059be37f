// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "mux/gidtable.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mux/file.h"
#include "mux/gid.h"

#define IDLE_REFRESH_MS 10000
/* The kernel fills the table a little after it announces the address. */
#define SETTLE_MS 50

struct snapshot {
	uint8_t gid[GIDTABLE_MAX][MUX_GID_SIZE];
	bool valid[GIDTABLE_MAX];
	bool v2[GIDTABLE_MAX];
	unsigned int asked; /* requests when its reading began */
};

struct gidtable {
	char dir[128];
	bool prefer_v2;
	int notify_fd;
	int wake_fd;
	int netlink_fd; /* -1: none, then only the timer */
	pthread_t thread;
	pthread_mutex_t lock;
	bool stop;	    /* under lock */
	unsigned int asked; /* requests so far; under lock */
	/* Three that change places: the thread fills work, the loop looks at current. */
	bool fresh;		  /* under lock: pending is newer than current */
	struct snapshot *pending; /* under lock */
	struct snapshot *work, *current;
	struct snapshot store[3];
};

static void scan(struct gidtable *t, struct snapshot *s)
{
	char path[192], text[64];

	memset(s, 0, sizeof(*s));
	pthread_mutex_lock(&t->lock);
	s->asked = t->asked;
	pthread_mutex_unlock(&t->lock);
	for (unsigned int i = 0; i < GIDTABLE_MAX; i++) {
		snprintf(path, sizeof(path), "%s/gids/%u", t->dir, i);
		if (file_read_text(path, text, sizeof(text)) < 0) {
			/* ENOENT ends the table; an entry without a netdev may refuse to be read. */
			if (errno == ENOENT)
				break;
			continue;
		}
		if (gid_parse(text, s->gid[i]) || gid_is_zero(s->gid[i]))
			continue;
		s->valid[i] = true;
		snprintf(path, sizeof(path), "%s/gid_attrs/types/%u", t->dir, i);
		s->v2[i] = file_read_text(path, text, sizeof(text)) > 0 &&
			   strcmp(text, "RoCE v2") == 0;
	}
}

static int open_netlink(void)
{
	struct sockaddr_nl addr = {
		.nl_family = AF_NETLINK,
		.nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_LINK,
	};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

	if (fd >= 0 && bind(fd, (struct sockaddr *)&addr, sizeof(addr))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static void drain(int fd)
{
	char buf[4096];

	while (recv(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
}

static void publish(struct gidtable *t)
{
	struct snapshot *s;
	uint64_t one = 1;

	pthread_mutex_lock(&t->lock);
	s = t->pending;
	t->pending = t->work;
	t->work = s;
	t->fresh = true;
	pthread_mutex_unlock(&t->lock);
	if (write(t->notify_fd, &one, sizeof(one)) < 0)
		return; /* a full counter wakes as well */
}

static void *watch(void *arg)
{
	struct gidtable *t = arg;
	uint64_t count;
	bool stop;

	for (;;) {
		struct pollfd fds[2] = {
			{ .fd = t->wake_fd, .events = POLLIN },
			{ .fd = t->netlink_fd, .events = POLLIN },
		};

		if (poll(fds, 2, IDLE_REFRESH_MS) < 0 && errno != EINTR)
			break;
		if (fds[0].revents && read(t->wake_fd, &count, sizeof(count)) < 0 &&
		    errno != EAGAIN)
			break;
		pthread_mutex_lock(&t->lock);
		stop = t->stop;
		pthread_mutex_unlock(&t->lock);
		if (stop)
			break;
		if (fds[1].revents) {
			poll(NULL, 0, SETTLE_MS);
			drain(t->netlink_fd);
		}
		scan(t, t->work);
		publish(t);
	}
	return NULL;
}

struct gidtable *gidtable_new(const char *device, unsigned int port, bool prefer_v2, int notify_fd)
{
	struct gidtable *t = calloc(1, sizeof(*t));
	sigset_t all, old;
	int err;

	if (!t)
		return NULL;
	snprintf(t->dir, sizeof(t->dir), "/sys/class/infiniband/%.64s/ports/%u", device, port);
	t->prefer_v2 = prefer_v2;
	t->notify_fd = notify_fd;
	pthread_mutex_init(&t->lock, NULL);
	t->current = &t->store[0];
	t->pending = &t->store[1];
	t->work = &t->store[2];
	t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (t->wake_fd < 0)
		goto err_table;
	t->netlink_fd = open_netlink();
	scan(t, t->current);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&t->thread, NULL, watch, t);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err) {
		errno = err;
		goto err_fds;
	}
	return t;

err_fds:
	if (t->netlink_fd >= 0)
		close(t->netlink_fd);
	close(t->wake_fd);
err_table:
	free(t);
	return NULL;
}

void gidtable_free(struct gidtable *t)
{
	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	t->stop = true;
	pthread_mutex_unlock(&t->lock);
	gidtable_refresh(t);
	pthread_join(t->thread, NULL);
	if (t->netlink_fd >= 0)
		close(t->netlink_fd);
	close(t->wake_fd);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

bool gidtable_update(struct gidtable *t)
{
	struct snapshot *s;
	bool fresh;

	pthread_mutex_lock(&t->lock);
	fresh = t->fresh;
	if (fresh) {
		s = t->pending;
		t->pending = t->current;
		t->current = s;
		t->fresh = false;
	}
	pthread_mutex_unlock(&t->lock);
	return fresh;
}

unsigned int gidtable_refresh(struct gidtable *t)
{
	unsigned int request;
	uint64_t one = 1;

	pthread_mutex_lock(&t->lock);
	request = ++t->asked;
	pthread_mutex_unlock(&t->lock);
	/* fails only when the counter is full, and then the thread is awake */
	(void)!write(t->wake_fd, &one, sizeof(one));
	return request;
}

bool gidtable_served(const struct gidtable *t, unsigned int request)
{
	return (int)(t->current->asked - request) >= 0;
}

int gidtable_index(const struct gidtable *t, const uint8_t gid[MUX_GID_SIZE])
{
	const struct snapshot *s = t->current;
	int found = -1;

	for (int i = 0; i < GIDTABLE_MAX; i++) {
		if (!s->valid[i] || !gid_equal(s->gid[i], gid))
			continue;
		if (s->v2[i] == t->prefer_v2)
			return i;
		if (found < 0)
			found = i;
	}
	return found;
}

const uint8_t *gidtable_gid(const struct gidtable *t, unsigned int index)
{
	return index < GIDTABLE_MAX && t->current->valid[index] ? t->current->gid[index] : NULL;
}
