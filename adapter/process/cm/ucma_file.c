// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The rdma_cm file: commands come by write(), events wait in a queue.
 *
 * The program's descriptor is the read end of a pipe that holds one byte ("token") for each queued
 * event, so poll, epoll, O_NONBLOCK and signals are the kernel's own.  GET_EVENT takes a token
 * first, without a lock, then the event.  When events are withdrawn, as many tokens are; a reader
 * that was faster finds no event and waits for the next token.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "adapter/process/cm/cm.h"
#include "adapter/process/device.h"
#include "adapter/process/libc.h"
#include "adapter/process/uaccess.h"

enum {
	TOKENS_MAX = 2048, /* fits the smallest pipe that an unprivileged user gets */
	IN_MAX = 512,	   /* no command is longer */
	EVENT_OUT_MIN = offsetof(struct rdma_ucm_event_resp, reserved),
	CMD_GET_EVENT = RDMA_USER_CM_CMD_GET_EVENT,
	CMD_WRITE_EVENT = 24,
	CMD_COUNT = CMD_WRITE_EVENT + 1,
};

static struct ucma_file *files;

/* ------------------------------------------------------------------ tokens */

static void tokens_fill(struct ucma_file *file)
{
	while (file->tokens < file->nevents && file->tokens < TOKENS_MAX) {
		if (write(file->token_fd, "", 1) != 1)
			return;
		file->tokens++;
	}
}

static void tokens_withdraw(struct ucma_file *file)
{
	char path[32], byte;

	if (file->drain_fd < 0 && file->tokens > file->nevents) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", file->wait_fd);
		file->drain_fd = host_fd_hide(open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
	}
	while (file->tokens > file->nevents) {
		if (file->drain_fd < 0) {
			/*
			 * no /proc: only a reader in the same instant can make this wait, and then
			 * for its event
			 */
			struct pollfd pfd = { .fd = file->wait_fd, .events = POLLIN };

			if (poll(&pfd, 1, 0) != 1 || read(file->wait_fd, &byte, 1) != 1)
				return;
		} else if (read(file->drain_fd, &byte, 1) != 1) {
			return;
		}
		file->tokens--;
	}
}

/* ------------------------------------------------------------------ events */

static void append(struct ucma_file *file, struct cm_event *event)
{
	event->next = NULL;
	*file->tail = event;
	file->tail = &event->next;
	file->nevents++;
}

void ucma_event_push(struct ucma_file *file, struct cm_event *event)
{
	append(file, event);
	tokens_fill(file);
}

static void unlink_event(struct ucma_file *file, struct cm_event **at)
{
	struct cm_event *event = *at;

	*at = event->next;
	if (file->tail == &event->next)
		file->tail = at;
	file->nevents--;
}

void ucma_events_drop(struct ucma_file *file, struct cm_id *id)
{
	struct cm_event **at = &file->head, *event;

	while ((event = *at)) {
		if (event->id != id) {
			at = &event->next;
			continue;
		}
		unlink_event(file, at);
		if (event->new_id) {
			cm_id_destroy(event->new_id);
			/* the queue may have changed behind us */
			at = &file->head;
		}
		free(event);
	}
	tokens_withdraw(file);
}

void ucma_events_move(struct ucma_file *from, struct ucma_file *to, struct cm_id *id)
{
	struct cm_event **at = &from->head, *event;

	while ((event = *at)) {
		if (event->id != id) {
			at = &event->next;
			continue;
		}
		unlink_event(from, at);
		append(to, event);
		if (event->new_id)
			event->new_id->file = to;
	}
	tokens_withdraw(from);
	tokens_fill(to);
}

static struct cm_event *event_take(struct ucma_file *file)
{
	struct cm_event *event = file->head;

	file->tokens--;
	if (event)
		unlink_event(file, &file->head);
	tokens_fill(file);
	return event;
}

/*
 * A wildcard listener has no device; the device of a new id is looked for here, where the lock can
 * be given up.  False: no device serves that address, the peer is refused and the program sees
 * nothing.
 */
static bool request_complete(struct cm_event *event)
{
	uint64_t listener_serial = event->id->serial;
	uint32_t listener_number = event->id->number;
	struct host_dev *dev = event->new_id->dev;
	union cm_addr addr = event->new_id->src;

	if (!dev) {
		engine_unlock();
		dev = host_dev_by_addr(&addr.sa);
		engine_lock();
	}
	/*
	 * Nobody else knows the new id yet, and this file stays while its command runs.  But the
	 * listener may have gone meanwhile; it did not take the id along, whose event is in no queue.
	 */
	if (!cm_id_lives(listener_number, listener_serial)) {
		cm_id_destroy(event->new_id);
		return false;
	}
	event->new_id->dev = dev;
	if (event->id->waiting)
		event->id->waiting--;
	if (dev)
		return true;
	cm_setup_reject(event->new_id, NULL, 0);
	cm_id_destroy(event->new_id);
	return false;
}

/* The thread ends in the middle of its command: give back what the command holds. */
static void cancelled(void *arg)
{
	struct ucma_file *file = arg;

	host_file_put(&file->file);
}

/* A cancellation point, as the kernel's write() is.  0 or -errno. */
static int take_token(struct ucma_file *file)
{
	ssize_t n;
	char byte;

	pthread_cleanup_push(cancelled, file);
	/* nothing of ours lies between here and the kernel when the thread is cancelled */
	n = REAL(read)(file->wait_fd, &byte, 1);
	pthread_cleanup_pop(0);
	return n == 1 ? 0 : errno ? -errno : -EIO;
}

static int get_event(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	const struct rdma_ucm_get_event *cmd = in;
	struct rdma_ucm_event_resp resp;
	struct cm_event *event;
	int ret;

	(void)in_len;
	if (out_len < EVENT_OUT_MIN)
		return -ENOSPC;
	do {
		ret = take_token(file);
		if (ret)
			return ret;
		engine_lock();
		event = event_take(file);
		if (event && event->new_id && !request_complete(event)) {
			free(event);
			event = NULL;
		}
		if (event) {
			event->id->fetched++;
			if (event->new_id)
				event->new_id->unseen = false;
			if (event->resp.event == CM_DISCONNECTED)
				cm_id_disconnect_seen(event->id);
			resp = event->resp;
			free(event);
			event = (void *)&resp;
		}
		engine_unlock();
	} while (!event);
	return uaccess_write(cmd->response, &resp, out_len < sizeof(resp) ? out_len : sizeof(resp));
}

/* ------------------------------------------------------------------ commands */

static const ucma_command commands[CMD_COUNT] = {
	[RDMA_USER_CM_CMD_CREATE_ID] = ucma_create_id,
	[RDMA_USER_CM_CMD_DESTROY_ID] = ucma_destroy_id,
	[RDMA_USER_CM_CMD_BIND_IP] = ucma_bind_ip,
	[RDMA_USER_CM_CMD_RESOLVE_IP] = ucma_resolve_ip,
	[RDMA_USER_CM_CMD_RESOLVE_ROUTE] = ucma_resolve_route,
	[RDMA_USER_CM_CMD_QUERY_ROUTE] = ucma_query_route,
	[RDMA_USER_CM_CMD_CONNECT] = ucma_connect,
	[RDMA_USER_CM_CMD_LISTEN] = ucma_listen,
	[RDMA_USER_CM_CMD_ACCEPT] = ucma_accept,
	[RDMA_USER_CM_CMD_REJECT] = ucma_reject,
	[RDMA_USER_CM_CMD_DISCONNECT] = ucma_disconnect,
	[RDMA_USER_CM_CMD_INIT_QP_ATTR] = ucma_init_qp_attr,
	[RDMA_USER_CM_CMD_GET_EVENT] = get_event,
	[RDMA_USER_CM_CMD_SET_OPTION] = ucma_set_option,
	[RDMA_USER_CM_CMD_NOTIFY] = ucma_notify,
	[RDMA_USER_CM_CMD_JOIN_IP_MCAST] = ucma_join_mcast,
	[RDMA_USER_CM_CMD_LEAVE_MCAST] = ucma_leave_mcast,
	[RDMA_USER_CM_CMD_MIGRATE_ID] = ucma_migrate_id,
	[RDMA_USER_CM_CMD_QUERY] = ucma_query,
	[RDMA_USER_CM_CMD_BIND] = ucma_bind,
	[RDMA_USER_CM_CMD_RESOLVE_ADDR] = ucma_resolve_addr,
	[RDMA_USER_CM_CMD_JOIN_MCAST] = ucma_join_mcast,
	[CMD_WRITE_EVENT] = ucma_write_event,
};

static ssize_t ucma_write(struct host_file *hf, const void *buf, size_t count)
{
	struct ucma_file *file = container_of(hf, struct ucma_file, file);
	struct rdma_ucm_cmd_hdr hdr;
	uint64_t in[IN_MAX / sizeof(uint64_t)] = {};
	size_t len;
	int ret;

	if (count < sizeof(hdr))
		return -EINVAL;
	ret = uaccess_read(&hdr, (uintptr_t)buf, sizeof(hdr));
	if (ret)
		return ret;
	if (hdr.cmd >= CMD_COUNT || hdr.in + sizeof(hdr) > count)
		return -EINVAL;
	if (!commands[hdr.cmd])
		return hdr.cmd == RDMA_USER_CM_CMD_GET_OPTION ? -ENOSYS : -EINVAL;
	len = hdr.in < sizeof(in) ? hdr.in : sizeof(in);
	ret = uaccess_read(in, (uintptr_t)buf + sizeof(hdr), len);
	if (ret)
		return ret;
	errno = 0;
	ret = commands[hdr.cmd](file, in, len, hdr.out);
	if (ret && hdr.cmd != CMD_GET_EVENT)
		host_log(HOST_LOG_INFO, "rdma_cm command %u: %s", hdr.cmd, strerror(-ret));
	return ret ? ret : (ssize_t)count;
}

/* ------------------------------------------------------------------ open and close */

static void destroy_of_file(struct cm_id *id, void *file)
{
	/* one that the program has not seen goes with its event, and that with its listener */
	if (id->file == file && !id->unseen)
		cm_id_destroy(id);
}

static void ucma_release(struct host_file *hf)
{
	struct ucma_file *file = container_of(hf, struct ucma_file, file);

	engine_lock();
	cm_id_each(destroy_of_file, file);
	if (file->prev)
		file->prev->next = file->next;
	else
		files = file->next;
	if (file->next)
		file->next->prev = file->prev;
	engine_unlock();
	host_fd_unhide_close(file->wait_fd);
	host_fd_unhide_close(file->token_fd);
	if (file->drain_fd >= 0)
		host_fd_unhide_close(file->drain_fd);
	free(file);
}

static const struct host_file_ops ucma_ops = {
	.name = "rdma_cm",
	.write = ucma_write,
	.release = ucma_release,
};

int ucma_open(int flags)
{
	struct ucma_file *file;
	int fds[2], ret;

	ret = engine_start();
	if (ret)
		return ret;
	file = calloc(1, sizeof(*file));
	if (!file)
		return -ENOMEM;
	if (pipe2(fds, O_CLOEXEC)) {
		ret = -errno;
		goto err_free;
	}
	file->file.ops = &ucma_ops;
	file->file.rdev = device_cm_rdev();
	file->tail = &file->head;
	file->drain_fd = -1;
	file->token_fd = host_fd_hide(fds[1]);
	if (file->token_fd < 0) {
		ret = file->token_fd;
		goto err_pipe;
	}
	fcntl(file->token_fd, F_SETFL, O_WRONLY | O_NONBLOCK);
	if (flags & O_NONBLOCK)
		fcntl(fds[0], F_SETFL, O_NONBLOCK);
	file->wait_fd = host_fd_hide(fcntl(fds[0], F_DUPFD_CLOEXEC, 0));
	if (file->wait_fd < 0) {
		ret = file->wait_fd;
		goto err_token;
	}
	engine_lock();
	file->next = files;
	if (files)
		files->prev = file;
	files = file;
	engine_unlock();
	if (!(flags & O_CLOEXEC))
		fcntl(fds[0], F_SETFD, 0);
	ret = host_file_install(&file->file, fds[0]);
	if (ret) {
		ucma_release(&file->file);
		return ret;
	}
	return fds[0];

err_token:
	host_fd_unhide_close(file->token_fd);
err_pipe:
	close(fds[0]);
err_free:
	free(file);
	return ret;
}

int ucma_migrate_id(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	const struct rdma_ucm_migrate_id *cmd = in;
	struct rdma_ucm_migrate_resp resp = {};
	struct host_file *old_hf;
	struct ucma_file *old;
	struct cm_id *id;
	int ret;

	(void)in_len;
	if (out_len < sizeof(resp))
		return -ENOSPC;
	old_hf = host_file_get((int)cmd->fd);
	if (!old_hf)
		return -ENOENT;
	ret = -EINVAL;
	if (old_hf->ops != &ucma_ops)
		goto out_put;
	old = container_of(old_hf, struct ucma_file, file);
	engine_lock();
	ret = ucma_id(old, cmd->id, &id);
	if (!ret) {
		if (old != file)
			ucma_events_move(old, file, id);
		id->file = file;
		resp.events_reported = id->fetched;
	}
	engine_unlock();
	if (!ret)
		ret = uaccess_write(cmd->response, &resp, sizeof(resp));
out_put:
	host_file_put(old_hf);
	return ret;
}

void ucma_files_forget(void)
{
	files = NULL;
}
