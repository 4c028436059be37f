// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Event files: a pipe from the adapter to the program.
 *
 * read(), poll(), epoll, O_NONBLOCK and SIGIO on the program's end are the kernel's own.  The
 * adapter keeps the write end and a second descriptor of the read end, both hidden: the latter lets
 * it take back events of an object that is being destroyed, and keeps a write after the program has
 * closed its end from raising SIGPIPE.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "adapter/process/engine/engine.h"
#include "adapter/process/host.h"
#include "adapter/process/libc.h"

enum {
	EVENT_MAX = 64,	   /* bytes */
	READ_EVENTS = 256, /* at a time */
};

struct host_evq {
	size_t size;	       /* of one event */
	int write_fd, read_fd; /* hidden */
	unsigned int refs;
	bool closed;	/* nobody will read any more */
	bool own_flags; /* read_fd never blocks, whatever the program does with its own */
	/* events that did not fit into the pipe, oldest first */
	unsigned char *over;
	size_t over_len, over_room; /* bytes */
	bool watched;		    /* writable is a member of the engine's set */
	struct engine_fd writable;
};

static void evq_free(struct host_evq *q)
{
	if (q->write_fd >= 0)
		host_fd_unhide_close(q->write_fd);
	if (q->read_fd >= 0)
		host_fd_unhide_close(q->read_fd);
	free(q->over);
	free(q);
}

/* Another open description of a pipe's end; -1 where /proc is missing or closed to this process. */
static int reopen(int fd)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return REAL(open)(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

struct host_evq *host_evq_create(int *read_fd, size_t event_size)
{
	struct host_evq *q;
	int ends[2], copy, err;

	if (!event_size || event_size > EVENT_MAX) {
		errno = EINVAL;
		return NULL;
	}
	q = calloc(1, sizeof(*q));
	if (!q)
		return NULL;
	q->size = event_size;
	q->refs = 1;
	q->write_fd = q->read_fd = -1;
	if (pipe2(ends, O_CLOEXEC)) {
		err = errno;
		goto err_free;
	}
	q->write_fd = host_fd_hide(ends[1]);
	if (q->write_fd < 0) {
		err = -q->write_fd;
		goto err_read;
	}
	/* an open description of its own, so that this flag is not the program's */
	if (REAL(fcntl)(q->write_fd, F_SETFL, O_NONBLOCK)) {
		err = errno;
		goto err_read;
	}
	copy = reopen(ends[0]);
	q->own_flags = copy >= 0;
	if (copy < 0)
		copy = REAL(fcntl)(ends[0], F_DUPFD_CLOEXEC, 0);
	q->read_fd = host_fd_hide(copy);
	if (q->read_fd < 0) {
		err = -q->read_fd;
		goto err_read;
	}
	*read_fd = ends[0];
	return q;

err_read:
	REAL(close)(ends[0]);
err_free:
	evq_free(q);
	errno = err;
	return NULL;
}

void host_evq_get(struct host_evq *q)
{
	q->refs++;
}

void host_evq_close(struct host_evq *q)
{
	q->closed = true;
	q->over_len = 0;
}

void host_evq_put(struct host_evq *q)
{
	if (--q->refs)
		return;
	if (q->watched)
		engine_fd_del(&q->writable);
	evq_free(q);
}

/*
 * Bytes that went into the pipe: whole events only, since each is written by itself and is shorter
 * than PIPE_BUF.
 */
static size_t pipe_fill(struct host_evq *q, const unsigned char *events, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = REAL(write)(q->write_fd, events + done, q->size);

		if (n == (ssize_t)q->size)
			done += n;
		else if (n >= 0 || errno != EINTR)
			break;
	}
	return done;
}

static void overflow_drain(struct engine_fd *efd, uint32_t events)
{
	struct host_evq *q = (struct host_evq *)((char *)efd - offsetof(struct host_evq, writable));
	size_t done = pipe_fill(q, q->over, q->over_len);

	(void)events;
	memmove(q->over, q->over + done, q->over_len - done);
	q->over_len -= done;
	if (!q->over_len) {
		engine_fd_del(&q->writable);
		q->watched = false;
	}
}

static int overflow_add(struct host_evq *q, const void *events, size_t len)
{
	if (q->over_room - q->over_len < len) {
		size_t room = (q->over_len + len) * 2;
		void *over = realloc(q->over, room);

		if (!over)
			return -ENOMEM;
		q->over = over;
		q->over_room = room;
	}
	memcpy(q->over + q->over_len, events, len);
	q->over_len += len;
	if (!q->watched) {
		q->writable = (struct engine_fd){
			.fd = q->write_fd,
			.events = EPOLLOUT,
			.ready = overflow_drain,
		};
		q->watched = !engine_fd_add(&q->writable);
	}
	return 0;
}

int host_evq_push(struct host_evq *q, const void *event)
{
	int saved_errno = errno, ret = 0;

	if (q->closed)
		return 0;
	if (q->over_len || pipe_fill(q, event, q->size) != q->size)
		ret = overflow_add(q, event, q->size);
	errno = saved_errno;
	return ret;
}

/* Does read() return at once?  Only a descriptor that shares the program's flags must be asked. */
static bool readable(const struct host_evq *q)
{
	struct pollfd pfd = { .fd = q->read_fd, .events = POLLIN };

	return q->own_flags || poll(&pfd, 1, 0) == 1;
}

/* Move all that is in the pipe to *@buf.  Needs no descriptor: there may be none left. */
static size_t pipe_empty(struct host_evq *q, unsigned char **buf)
{
	size_t len = 0, room = 0;
	unsigned char *more;
	ssize_t n;
	int waiting;

	*buf = NULL;
	if (ioctl(q->read_fd, FIONREAD, &waiting) || !waiting)
		return 0;
	for (;;) {
		/* whole events only: both are multiples of their size */
		if (len == room) {
			more = realloc(*buf, room * 2 + READ_EVENTS * q->size);
			if (!more)
				break;
			*buf = more;
			room = room * 2 + READ_EVENTS * q->size;
		}
		if (!readable(q))
			break;
		n = REAL(read)(q->read_fd, *buf + len, room - len);
		if (n <= 0)
			break;
		len += n;
	}
	return len;
}

static size_t sift(const struct host_evq *q, unsigned char *events, size_t len,
		   bool (*match)(const void *event, void *arg), void *arg, unsigned int *removed)
{
	size_t from, to = 0;

	for (from = 0; from + q->size <= len; from += q->size) {
		if (match(events + from, arg)) {
			(*removed)++;
			continue;
		}
		memmove(events + to, events + from, q->size);
		to += q->size;
	}
	return to;
}

unsigned int host_evq_remove(struct host_evq *q, bool (*match)(const void *event, void *arg),
			     void *arg)
{
	unsigned int removed = 0;
	int saved_errno = errno;
	unsigned char *events;
	size_t len, done;

	len = pipe_empty(q, &events);
	len = sift(q, events, len, match, arg, &removed);
	q->over_len = sift(q, q->over, q->over_len, match, arg, &removed);
	done = pipe_fill(q, events, len);
	if (done < len) {
		/* cannot be: the pipe had room for more than this before */
		host_log(HOST_LOG_ERROR,
			 "%zu bytes of events are lost: the pipe does not take them back",
			 len - done);
	}
	free(events);
	errno = saved_errno;
	return removed;
}
