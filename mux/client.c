// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A client's connection.
 *
 * Crossing frames. A client that has not said hello takes the first frame after its request for the answer. If a MAD
 * was on its way just then, it swallows the MAD and later takes the answer for one. So such a client has at most one
 * MAD in its socket, and a copy of it is kept until it has certainly been read as a MAD: first the socket was seen
 * empty, and after that no request was waiting. An answer given before that carries the MAD again: whichever of the two
 * frames the client takes for the answer, it gets the MAD exactly once. This stays so for all answers until the socket is
 * seen empty, because the answer that carries the MAD may be swallowed just the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mux/log.h"
#include "mux/mux.h"
#include "mux/process.h"

#define BATCH	     16
#define HELLO_SNDBUF (512 * 1024)
#define HELLO_WINDOW 64
/* A client that has said nothing for so long is one of QEMU's kind. */
#define SILENCE_MS 1000

/* What the batch being handled has to be answered with. */
static struct mux_frame answers[BATCH];
static unsigned int n_answers;

static bool said_hello(const struct client *c)
{
	return c->rec->hello & HELLO_SAID;
}

static void make_ready(struct client *c)
{
	struct mux *mux = c->port->mux;

	if (c->ready)
		return;
	c->ready = true;
	c->ready_next = NULL;
	*mux->ready_tail = c;
	mux->ready_tail = &c->ready_next;
	mux->n_ready++;
}

static void unready(struct client *c)
{
	struct mux *mux = c->port->mux;
	struct client **link = &mux->ready;

	if (!c->ready)
		return;
	while (*link != c)
		link = &(*link)->ready_next;
	*link = c->ready_next;
	if (!*link)
		mux->ready_tail = link;
	c->ready = false;
	mux->n_ready--;
}

/* Other processes may hold the same socket (a descriptor store), so closing alone would tell nobody. */
static void close_socket(struct client *c)
{
	struct mux *mux = c->port->mux;

	mux_unwatch(mux, c->fd);
	if (!(mux->quitting && mux->fd_store)) {
		state_forget_client(c);
		shutdown(c->fd, SHUT_RDWR);
	}
	close(c->fd);
	c->fd = -1;
	mux->n_connected--;
}

/* Identity ----------------------------------------------------------------------------------------- */

bool client_match(struct client *c)
{
	struct mux *mux = c->port->mux;
	char buf[1024];
	bool denied;

	c->rule = config_match(mux->cfg, c->rec->listen, c->rec->uid, c->rec->gid,
			       process_cgroup(c->rec->pid, buf, sizeof(buf)), &denied);
	c->limits = c->rule ? &c->rule->limits : &mux->cfg->limits;
	return !denied;
}

/* Whoever may have many connections has as many times what a client may have. */
static bool too_many(const struct client *c)
{
	const struct mux *mux = c->port->mux;
	unsigned int n = 0;

	if (c->limits->max_connections >= mux->cfg->max_clients)
		return false;
	for (const struct client *o = mux->clients; o; o = o->next)
		n += o->rule == c->rule && (c->rule || o->rec->uid == c->rec->uid);
	return n >= c->limits->max_connections;
}

static void link_client(struct mux *mux, struct client *c)
{
	struct client **b = &mux->by_serial[c->owner.serial % CLIENT_BUCKETS];

	c->serial_next = *b;
	*b = c;
	c->next = mux->clients;
	if (c->next)
		c->next->prev = c;
	mux->clients = c;
	mux->n_clients++;
}

static void unlink_client(struct mux *mux, struct client *c)
{
	struct client **b = &mux->by_serial[c->owner.serial % CLIENT_BUCKETS];

	while (*b != c)
		b = &(*b)->serial_next;
	*b = c->serial_next;
	if (c->prev)
		c->prev->next = c->next;
	else
		mux->clients = c->next;
	if (c->next)
		c->next->prev = c->prev;
	mux->n_clients--;
}

/* The smallest buffer there is: one unread frame makes the socket unwritable, and its reading an event. */
static void set_buffer(struct client *c)
{
	int size = said_hello(c) ? HELLO_SNDBUF : 1;

	setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

static void fill_rec(struct client *c, int fd, const char *listen)
{
	struct ucred cred = { .pid = 0, .uid = (uid_t)-1, .gid = (gid_t)-1 };
	socklen_t len = sizeof(cred);
	struct client_rec *rec = c->rec;

	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
	rec->pid = cred.pid;
	rec->uid = cred.uid;
	rec->gid = cred.gid;
	rec->started = process_started(cred.pid);
	rec->port = c->port->number;
	memcpy(rec->device, c->port->device, sizeof(rec->device));
	snprintf(rec->listen, sizeof(rec->listen), "%s", listen);
	rec->serial = state_next_serial(c->port->mux->state);
	/* Locally administered, and no other client's. */
	rec->alias_guid = 0x0200000000000000ULL | (rec->serial & 0xffffffffffffULL);
	state_client_changed(c->port->mux->state, rec);
}

struct client *client_new(struct mux_port *p, int fd, const char *listen, struct client_rec *rec)
{
	struct client *c = calloc(1, sizeof(*c));
	struct mux *mux = p->mux;
	bool restored = rec != NULL;

	if (!c)
		goto err;
	c->port = p;
	c->fd = fd;
	c->pidfd = -1;
	c->rec = rec ? rec : state_client_get(mux->state);
	if (!c->rec)
		goto err;
	if (!restored)
		fill_rec(c, fd, listen);
	queue_init(&c->answers);
	queue_init(&c->queue);
	session_owner_init(&c->owner, c->rec->serial);
	c->mads = c->requests = c->registrations = (struct bucket){ 0 };
	/* How long it did not read while nobody was there is not its fault. */
	c->gone_at_ms = c->async_at_ms = mux->now;
	if (!client_match(c) && !restored) {
		log_warn("event=client_refused uid=%u gid=%u pid=%d socket=%s "
			 "reason=\"no rule allows it\"",
			 c->rec->uid, c->rec->gid, c->rec->pid, listen);
		mux->refused++;
		goto err_rec;
	}
	if (!restored && too_many(c)) {
		log_warn("event=client_refused uid=%u gid=%u pid=%d socket=%s "
			 "reason=\"max_connections is %u\"",
			 c->rec->uid, c->rec->gid, c->rec->pid, listen, c->limits->max_connections);
		mux->refused++;
		goto err_rec;
	}
	c->pidfd = process_pidfd(fd, c->rec->pid);
	if (fd < 0 && c->pidfd >= 0 && process_started(c->rec->pid) != c->rec->started) {
		/* The number is another process's by now. */
		close(c->pidfd);
		c->pidfd = -1;
	}
	link_client(mux, c);
	if (fd < 0) {
		if (c->pidfd >= 0)
			mux_watch(mux, c->pidfd, EPOLLIN, TAG_PIDFD, c);
		mux_need_timer(mux);
		return c;
	}
	set_buffer(c);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	if (mux_watch(mux, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, TAG_CLIENT, c)) {
		log_err("event=client_lost reason=\"epoll: %s\"", strerror(errno));
		unlink_client(mux, c);
		goto err_rec;
	}
	mux->n_connected++;
	if (!restored) {
		state_store_client(c);
		c->since_ms = mux->now;
		mux_need_timer(mux);
	}
	log_info("event=client_connected client=%llu pid=%d uid=%u socket=%s%s",
		 (unsigned long long)c->owner.serial, c->rec->pid, c->rec->uid, c->rec->listen,
		 restored ? " restored=yes" : "");
	make_ready(c);
	return c;

err_rec:
	state_client_put(mux->state, c->rec);
err:
	if (c && c->pidfd >= 0)
		close(c->pidfd);
	free(c);
	if (fd >= 0)
		close(fd);
	return NULL;
}

void client_free(struct client *c)
{
	struct mux *mux = c->port->mux;

	if (c->fd >= 0)
		close_socket(c);
	if (c->pidfd >= 0) {
		mux_unwatch(mux, c->pidfd);
		close(c->pidfd);
	}
	unready(c);
	queue_clear(mux, &c->answers);
	queue_clear(mux, &c->queue);
	owner_drop_gids(c);
	unlink_client(mux, c);
	state_client_put(mux->state, c->rec);
	free(c);
}

void client_disconnect(struct client *c, const char *why)
{
	struct mux *mux = c->port->mux;

	log_info("event=client_disconnected client=%llu pid=%d reason=\"%s\" gids=%u sessions=%u",
		 (unsigned long long)c->owner.serial, c->rec->pid, why, c->n_gids, c->owner.count);
	close_socket(c);
	c->gone_at_ms = mux->now;
	c->closing = c->hangup = false;
	c->stalled = false;
	c->rec->async_out = 0;
	c->rec->in_len = 0;
	c->rec->in_request = REQUEST_NONE;
	queue_clear(mux, &c->answers);
	queue_clear(mux, &c->queue);
	if (!c->n_gids && !c->owner.count) {
		client_free(c);
		return;
	}
	if (!mux->cfg->grace_ms || process_exited(c->pidfd)) {
		owner_dead(c);
		return;
	}
	if (c->pidfd >= 0)
		mux_watch(mux, c->pidfd, EPOLLIN, TAG_PIDFD, c);
	mux_need_timer(mux);
}

void client_pid_event(struct client *c)
{
	c->exited = true;
	make_ready(c);
}

/* Out ---------------------------------------------------------------------------------------------- */

/* Sends up to n frames, each whole or not at all. Returns how many went, or -1 if the connection is broken. */
static int send_frames(struct client *c, struct mux_frame **frames, unsigned int n)
{
	struct mmsghdr msgs[BATCH];
	struct iovec iov[BATCH];
	int sent;

	for (unsigned int i = 0; i < n; i++) {
		iov[i] = (struct iovec){ frames[i], sizeof(*frames[i]) };
		msgs[i].msg_hdr = (struct msghdr){ .msg_iov = &iov[i], .msg_iovlen = 1 };
		msgs[i].msg_len = 0;
	}
	do
		sent = sendmmsg(c->fd, msgs, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent < 0)
		return errno == EAGAIN || errno == ENOBUFS ? 0 : -1;
	for (int i = 0; i < sent; i++)
		if (msgs[i].msg_len != sizeof(struct mux_frame))
			return -1;
	return sent;
}

static void send_failed(struct client *c)
{
	c->closing = true;
}

/* Sends from a queue until it is empty or the socket full. True if it is empty. */
static bool send_queue(struct client *c, struct node_queue *q)
{
	struct mux_frame *frames[BATCH];
	unsigned int n;
	int sent;

	while (q->count) {
		n = 0;
		for (struct mux_node *node = q->head; node && n < BATCH; node = node->next)
			frames[n++] = &node->frame;
		sent = send_frames(c, frames, n);
		if (sent < 0) {
			send_failed(c);
			return false;
		}
		for (int i = 0; i < sent; i++)
			node_put(c->port->mux, queue_pop(q));
		if (sent) {
			c->async_at_ms = c->port->mux->now;
			c->stalled = false;
		}
		if ((unsigned int)sent < n)
			return false;
	}
	return true;
}

static void flush_batch(struct client *c)
{
	struct mux_frame *frames[BATCH];
	struct mux_node *node;
	int sent = 0;

	for (unsigned int i = 0; i < n_answers; i++)
		frames[i] = &answers[i];
	c->rec->in_request = REQUEST_ANSWERED;
	if (n_answers && !c->answers.count)
		sent = send_frames(c, frames, n_answers);
	if (sent < 0) {
		send_failed(c);
		sent = (int)n_answers;
	}
	c->stats.answers += n_answers;
	for (unsigned int i = (unsigned int)sent; i < n_answers; i++) {
		node = node_get(c->port->mux);
		if (!node) {
			send_failed(c);
			break;
		}
		node->frame = answers[i];
		queue_push(&c->answers, node);
	}
	n_answers = 0;
	c->rec->in_request = REQUEST_NONE;
}

void client_finish_request(struct client *c)
{
	/* If the end came while the answer was being sent, it is taken for sent: that is nearly all of the time. */
	if (c->rec->in_request != REQUEST_READ)
		return;
	memset(&answers[0], 0, sizeof(answers[0]));
	answers[0].msg_type = MUX_MSG_RESP;
	answers[0].op_code = MUX_OP_REG;
	answers[0].err_code = MUX_ENOTFOUND;
	n_answers = 1;
	flush_batch(c);
}

static void refill_unanswered(struct client *c)
{
	const struct config *cfg = c->port->mux->cfg;
	uint64_t now = c->port->mux->now;
	uint64_t n = (now - c->unanswered_at_ms) * cfg->unanswered_per_second / 1000;

	if (!n)
		return;
	c->unanswered -= n < c->unanswered ? (unsigned int)n : c->unanswered;
	c->unanswered_at_ms = now;
}

/* Hands over what the client can take. */
static void pump(struct client *c)
{
	struct mux *mux = c->port->mux;
	struct mux_frame *frame;
	int sent;

	if (!c->queue.count || c->closing)
		return;
	if (said_hello(c)) {
		unsigned int before = c->queue.count;

		send_queue(c, &c->queue);
		c->stats.rx_mads += before - c->queue.count;
		return;
	}
	if (c->rec->async_out || c->rec->in_len)
		return;
	refill_unanswered(c);
	if (c->unanswered >= mux->cfg->max_unanswered)
		return;
	frame = &c->queue.head->frame;
	sent = send_frames(c, &frame, 1);
	if (sent < 0)
		send_failed(c);
	if (sent <= 0)
		return;
	c->rec->last_async = *frame;
	c->rec->async_out = 1;
	c->async_at_ms = mux->now;
	c->unanswered++;
	c->stats.rx_mads++;
	node_put(mux, queue_pop(&c->queue));
}

void client_deliver(struct client *c, const uint8_t *sgid, const struct umad_pkt *pkt)
{
	struct mux *mux = c->port->mux;
	struct mux_node *node = NULL;

	if (c->fd < 0) {
		c->port->stats.drop[DROP_ABSENT]++;
		return;
	}
	if (!c->stalled && c->queue.count < c->limits->queue)
		node = node_get(mux);
	if (!node) {
		c->port->stats.drop[c->stalled ? DROP_STALLED : DROP_QUEUE_FULL]++;
		c->stats.rx_dropped++;
		return;
	}
	memset(&node->frame, 0, offsetof(struct mux_frame, umad));
	node->frame.msg_type = MUX_MSG_REQ;
	node->frame.op_code = MUX_OP_MAD;
	memcpy(node->frame.sgid, sgid, MUX_GID_SIZE);
	node->frame.umad_len = MUX_MAD_SIZE;
	node->frame.umad = pkt->hdr;
	memcpy(node->frame.mad, pkt->mad, MUX_MAD_SIZE);
	node->frame.reserved = 0;
	if (!c->queue.count && !c->rec->async_out)
		c->async_at_ms = mux->now;
	queue_push(&c->queue, node);
	make_ready(c);
	mux_need_timer(mux);
}

/* In ----------------------------------------------------------------------------------------------- */

static int handle_hello(struct client *c, const struct mux_frame *req, struct mux_frame *ans)
{
	struct mux_hello ask, grant = { .version = MUX_PROTOCOL_VERSION };

	memcpy(&ask, req->mad, sizeof(ask));
	if (req->umad_len < (int32_t)sizeof(ask) || req->umad_len > MUX_MAD_SIZE || !ask.version)
		return MUX_EINVAL;
	grant.flags = ask.flags & (MUX_HELLO_REREG_OK | MUX_HELLO_DEST);
	if (c->port->mux->cfg->dest == DEST_CONTENT)
		grant.flags &= ~(uint32_t)MUX_HELLO_DEST;
	grant.window = HELLO_WINDOW;
	grant.max_gids = c->limits->max_gids;
	grant.max_sessions = c->limits->max_sessions;
	c->rec->hello = HELLO_SAID | grant.flags;
	state_client_changed(c->port->mux->state, c->rec);
	c->rec->async_out = 0;
	set_buffer(c);
	memcpy(ans->mad, &grant, sizeof(grant));
	ans->umad_len = sizeof(grant);
	return MUX_OK;
}

static int handle_query(struct client *c, struct mux_frame *ans)
{
	struct mux_query q = {
		.version = MUX_PROTOCOL_VERSION,
		.port_up = c->port->up,
		.gids = c->n_gids,
		.sessions = c->owner.count,
		.tx_mads = c->stats.tx_mads,
		.rx_mads = c->stats.rx_mads,
		.tx_refused = c->stats.tx_refused,
		.rx_dropped = c->stats.rx_dropped,
	};

	memcpy(ans->mad, &q, sizeof(q));
	ans->umad_len = sizeof(q);
	return MUX_OK;
}

static int handle_reg(struct client *c, const struct mux_frame *req)
{
	int err;

	if (!bucket_take(&c->registrations, &c->limits->registrations, c->port->mux->now, 1)) {
		c->port->stats.drop[DROP_RATE]++;
		return MUX_EACCES;
	}
	if (req->op_code == MUX_OP_UNREG)
		return owner_unreg(c, req->sgid);
	err = owner_reg(c, req->sgid);
	if (err == MUX_EEXIST && (c->rec->hello & MUX_HELLO_REREG_OK))
		return MUX_OK;
	return err;
}

static void handle_frame(struct client *c, const struct mux_frame *req)
{
	struct mux_frame *ans = &answers[n_answers];
	int err;

	c->stats.frames_in++;
	c->unanswered = 0;
	c->rec->in_request = REQUEST_READ;
	memset(ans, 0, sizeof(*ans));
	switch (req->op_code) {
	case MUX_OP_REG:
	case MUX_OP_UNREG:
		err = handle_reg(c, req);
		break;
	case MUX_OP_MAD:
		err = route_tx(c, req);
		break;
	case MUX_OP_HELLO:
		err = handle_hello(c, req, ans);
		break;
	case MUX_OP_QUERY:
		err = said_hello(c) ? handle_query(c, ans) : MUX_EINVAL;
		break;
	default:
		err = MUX_EINVAL;
		break;
	}
	if (!said_hello(c) && c->rec->async_out) {
		*ans = c->rec->last_async;
		ans->op_code = MUX_OP_MAD;
		c->stats.ambiguous++;
		c->port->stats.crossed++;
	} else {
		ans->op_code = req->op_code;
		memcpy(ans->sgid, req->sgid, MUX_GID_SIZE);
		if (said_hello(c))
			ans->tag = req->tag;
	}
	ans->msg_type = MUX_MSG_RESP;
	ans->err_code = (uint32_t)err;
	n_answers++;
}

enum input {
	IN_SOME,    /* requests were handled */
	IN_NOTHING, /* nothing was there */
	IN_PART,    /* part of a request */
	IN_END,	    /* the peer has closed, or must be */
};

static enum input read_requests(struct client *c, bool *drained)
{
	static union {
		uint8_t bytes[(BATCH + 1) * MUX_FRAME_SIZE];
		uint64_t align;
	} buf;
	struct client_rec *rec = c->rec;
	struct mux_frame frame;
	size_t len = rec->in_len, off = 0;
	ssize_t n;

	memcpy(buf.bytes, rec->in_buf, len);
	do
		n = recv(c->fd, buf.bytes + len, BATCH * MUX_FRAME_SIZE - len, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	*drained = n < 0 || len + (size_t)n < BATCH * MUX_FRAME_SIZE;
	if (n == 0)
		return IN_END;
	if (n < 0) {
		if (errno != EAGAIN)
			return IN_END;
		return len ? IN_PART : IN_NOTHING;
	}
	len += (size_t)n;
	rec->in_len = 0;
	for (; len - off >= MUX_FRAME_SIZE; off += MUX_FRAME_SIZE) {
		memcpy(&frame, buf.bytes + off, sizeof(frame));
		if (frame.msg_type != MUX_MSG_REQ) {
			flush_batch(c);
			return IN_END;
		}
		handle_frame(c, &frame);
	}
	flush_batch(c);
	memcpy(rec->in_buf, buf.bytes + off, len - off);
	rec->in_len = (uint32_t)(len - off);
	return off ? IN_SOME : IN_PART;
}

bool client_has_ended(struct client *c)
{
	char byte;

	return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static bool all_read(struct client *c)
{
	int queued = 0;

	return ioctl(c->fd, SIOCOUTQ, &queued) == 0 && queued == 0;
}

static void step(struct client *c)
{
	bool drained = true, was_read;
	enum input in;

	if (c->fd < 0) {
		if (c->exited)
			owner_dead(c);
		return;
	}
	if (c->adopts) {
		c->adopts = false;
		owner_adopt(c);
	}
	if (c->answers.count && !send_queue(c, &c->answers)) {
		/* Who doesn't read answers gets no further requests read. */
		if (c->closing)
			client_disconnect(c, "connection broken");
		return;
	}
	was_read = c->rec->async_out && all_read(c);
	in = read_requests(c, &drained);
	if (was_read && in == IN_NOTHING) {
		c->rec->async_out = 0;
		c->stalled = false;
	}
	if (in == IN_END || c->closing) {
		client_disconnect(c, in == IN_END ? "closed by the client" : "connection broken");
		return;
	}
	/* Edges are seen once: what follows the last request, and be it the end, has to be fetched now. */
	if (!drained || c->hangup) {
		make_ready(c);
		return;
	}
	pump(c);
	if (c->closing)
		client_disconnect(c, "connection broken");
}

void client_event(struct client *c, uint32_t events)
{
	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		c->hangup = true;
	make_ready(c);
}

void client_run_ready(struct mux *mux)
{
	struct client *c;
	/* One round: those who become ready meanwhile come next, after new events. */
	unsigned int n = mux->n_ready;

	while (n-- && mux->ready) {
		c = mux->ready;
		mux->ready = c->ready_next;
		if (!mux->ready)
			mux->ready_tail = &mux->ready;
		mux->n_ready--;
		c->ready = false;
		step(c);
	}
}

void client_tick(struct client *c)
{
	struct mux *mux = c->port->mux;
	const struct config *cfg = mux->cfg;
	uint64_t waited;

	if (c->fd < 0) {
		if (mux->now - c->gone_at_ms >= cfg->grace_ms)
			owner_dead(c);
		else
			mux_need_timer(mux);
		return;
	}
	if (c->since_ms && !c->stats.frames_in) {
		/* QEMU does not repeat its registrations, and a guest that only waits for connections sends nothing. */
		if (mux->now - c->since_ms >= SILENCE_MS) {
			c->since_ms = 0;
			c->adopts = true;
			make_ready(c);
		}
		mux_need_timer(mux);
	}
	if (!c->rec->async_out && !c->queue.count)
		return;
	mux_need_timer(mux);
	if (!c->rec->async_out && !said_hello(c)) {
		make_ready(c);
		c->async_at_ms = mux->now;
		return;
	}
	/* A frame may have been read without an event if the client then went silent. */
	if (c->rec->async_out && all_read(c)) {
		make_ready(c);
		return;
	}
	waited = mux->now - c->async_at_ms;
	if (waited >= cfg->stall_close_ms) {
		log_warn("event=client_stalled client=%llu pid=%d waited_ms=%llu action=closed",
			 (unsigned long long)c->owner.serial, c->rec->pid,
			 (unsigned long long)waited);
		client_disconnect(c, "does not read");
	} else if (waited >= cfg->stall_ms && !c->stalled) {
		c->stalled = true;
		log_notice("event=client_stalled client=%llu pid=%d waited_ms=%llu action=drop",
			   (unsigned long long)c->owner.serial, c->rec->pid,
			   (unsigned long long)waited);
	}
}
