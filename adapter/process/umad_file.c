// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * /dev/infiniband/umadN.
 *
 * The program's descriptor is an eventfd that counts what waits in the queue, so that poll(), epoll
 * and O_NONBLOCK are the kernel's own; ioctl(), write() and read() are interposed.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "adapter/process/fdtab.h"
#include "adapter/process/libc.h"
#include "adapter/process/uaccess.h"
#include "adapter/process/umad.h"

enum {
	QUEUE_FIRST = 16,
	QUEUE_MOST = UMAD_QUEUE + UMAD_SENDS, /* what came back unanswered always fits */
	OUI_MASK = 0xffffff,
};

static struct umad_file *file_of(struct host_file *file)
{
	return (struct umad_file *)file;
}

/* ------------------------------------------------------------------ the queue */

static bool queue_grow(struct umad_file *file)
{
	unsigned int room = file->room ? file->room * 2 : QUEUE_FIRST, i;
	struct umad_packet *queue;

	if (room > QUEUE_MOST)
		room = QUEUE_MOST;
	if (room == file->room)
		return false;
	queue = malloc(room * sizeof(*queue));
	if (!queue)
		return false;
	for (i = 0; i < file->count; i++)
		queue[i] = file->queue[(file->head + i) % file->room];
	free(file->queue);
	file->queue = queue;
	file->room = room;
	file->head = 0;
	return true;
}

bool umad_file_push(struct umad_file *file, const struct ib_user_mad_hdr *hdr, const uint8_t *mad,
		    uint32_t len)
{
	static const uint64_t one = 1;
	struct umad_packet *pkt;

	if (len == EA_MAD_LEN && file->count >= UMAD_QUEUE)
		return false;
	if (file->count == file->room && !queue_grow(file))
		return false;
	pkt = &file->queue[(file->head + file->count) % file->room];
	memcpy(pkt->hdr, hdr, sizeof(pkt->hdr));
	memcpy(pkt->mad, mad, len);
	pkt->len = len;
	file->count++;
	/* cannot be full: what it counts is in the queue */
	return REAL(write)(file->event_fd, &one, sizeof(one)) == sizeof(one);
}

static void queue_pop(struct umad_file *file)
{
	struct pollfd pfd = { .fd = file->event_fd, .events = POLLIN };
	uint64_t counted;

	file->head = (file->head + 1) % file->room;
	if (--file->count)
		return;
	/* a program that reads it past the interposer must not make this wait */
	if (REAL(poll)(&pfd, 1, 0) == 1 &&
	    REAL(read)(file->event_fd, &counted, sizeof(counted)) < 0)
		errno = 0;
}

/* ------------------------------------------------------------------ read */

/* The oldest MAD to the program; -EAGAIN: there is none. */
static ssize_t take(struct umad_file *file, void *buf, size_t count)
{
	uint8_t out[UMAD_HDR_LEN + EA_MAD_LEN];
	struct umad_packet *pkt;
	ssize_t ret;
	size_t len;

	engine_lock();
	ret = -EAGAIN;
	if (file->count) {
		pkt = &file->queue[file->head];
		len = umad_hdr_len(file);
		memcpy(out, pkt->hdr, len);
		memcpy(out + len, pkt->mad, pkt->len);
		len += pkt->len;
		ret = count < len ? -EINVAL : uaccess_write((uintptr_t)buf, out, len);
		if (!ret) {
			queue_pop(file);
			ret = len;
		}
	}
	engine_unlock();
	return ret;
}

static ssize_t umad_read(struct host_file *base, void *buf, size_t count)
{
	struct umad_file *file = file_of(base);
	struct pollfd pfd = { .fd = file->event_fd, .events = POLLIN };
	ssize_t ret;

	if (file->pid != fdtab_pid())
		return -EIO;
	if (file->flags == O_WRONLY)
		return -EBADF;
	if (count < umad_hdr_len(file))
		return -EINVAL;
	for (;;) {
		ret = take(file, buf, count);
		if (ret != -EAGAIN || (REAL(fcntl)(file->event_fd, F_GETFL) & O_NONBLOCK))
			return ret;
		if (REAL(poll)(&pfd, 1, -1) < 0)
			return -errno;
	}
}

/* ------------------------------------------------------------------ write */

static ssize_t send_mad(struct umad_file *file, const struct ib_user_mad_hdr *hdr, uint8_t *mad,
			size_t len)
{
	struct umad_agent *agent;
	struct gsi_addr to = {
		.gid_index = hdr->gid_index,
		.qpn = be32toh(hdr->qpn),
		.traffic_class = hdr->traffic_class,
	};

	if (hdr->id >= UMAD_AGENTS)
		return -EINVAL;
	agent = file->agents[hdr->id];
	if (!agent)
		return -EIO;
	/* RoCE addresses are GIDs; no MAD is longer */
	if (!hdr->grh_present || len > EA_MAD_LEN)
		return -EINVAL;
	memcpy(to.gid, hdr->gid, sizeof(to.gid));
	return umad_agent_send(file->port, agent, hdr, &to, mad);
}

static ssize_t umad_write(struct host_file *base, const void *buf, size_t count)
{
	struct umad_file *file = file_of(base);
	uint8_t in[UMAD_HDR_LEN + EA_MAD_LEN] = { 0 };
	struct ib_user_mad_hdr hdr = { 0 };
	size_t head = umad_hdr_len(file), most = head + EA_MAD_LEN;
	ssize_t ret;

	if (file->pid != fdtab_pid())
		return -EIO;
	if (file->flags == O_RDONLY)
		return -EBADF;
	if (count < head + EA_MAD_RMPP_LEN)
		return -EINVAL;
	if (uaccess_read(in, (uintptr_t)buf, count < most ? count : most))
		return -EFAULT;
	memcpy(&hdr, in, head);
	engine_lock();
	ret = send_mad(file, &hdr, in + head, count - head);
	engine_unlock();
	return ret ? ret : (ssize_t)count;
}

/* ------------------------------------------------------------------ ioctl */

/* Register @wanted under the lowest free id; the id, or -errno. */
static int add_agent(struct umad_file *file, const struct umad_agent *wanted, uint32_t qpn,
		     uint8_t rmpp_version, bool long_headers)
{
	struct umad_agent *agent;
	unsigned int id;
	int ret;

	if (qpn > EA_GSI_QPN)
		return -EINVAL;
	for (id = 0; id < UMAD_AGENTS && file->agents[id]; id++)
		;
	if (id == UMAD_AGENTS)
		return -ENOMEM;
	agent = malloc(sizeof(*agent));
	if (!agent)
		return -ENOMEM;
	*agent = *wanted;
	agent->file = file;
	agent->id = id;
	ret = umad_agent_add(file->port, agent, qpn, rmpp_version);
	if (ret) {
		free(agent);
		return ret;
	}
	file->agents[id] = agent;
	if (!file->used && long_headers)
		file->pkey_index = true;
	file->used = true;
	return id;
}

static void del_agent(struct umad_file *file, unsigned int id)
{
	umad_agent_del(file->port, file->agents[id]);
	file->agents[id] = NULL;
}

/* The program learns its id, or the registration is undone. */
static int give_id(struct umad_file *file, int id, uint64_t to)
{
	uint32_t value = id;

	if (!uaccess_write(to, &value, sizeof(value)))
		return 0;
	del_agent(file, id);
	return -EFAULT;
}

static int register_agent(struct umad_file *file, uint64_t arg)
{
	struct umad_agent agent = { 0 };
	struct ib_user_mad_reg_req req;
	int id;

	if (uaccess_read(&req, arg, sizeof(req)))
		return -EFAULT;
	agent.mgmt_class = req.mgmt_class;
	agent.class_version = req.mgmt_class_version;
	memcpy(agent.oui, req.oui, sizeof(agent.oui));
	memcpy(agent.methods, req.method_mask, sizeof(agent.methods));
	id = add_agent(file, &agent, req.qpn, req.rmpp_version, false);
	return id < 0 ? id : give_id(file, id, arg + offsetof(struct ib_user_mad_reg_req, id));
}

static int register_agent2(struct umad_file *file, uint64_t arg)
{
	uint32_t flags = IB_USER_MAD_REG_FLAGS_CAP;
	struct umad_agent agent = { 0 };
	struct ib_user_mad_reg_req2 req;
	int id;

	if (uaccess_read(&req, arg, sizeof(req)))
		return -EFAULT;
	if (req.qpn > EA_GSI_QPN)
		return -EINVAL;
	if (req.flags & ~IB_USER_MAD_REG_FLAGS_CAP) {
		if (uaccess_write(arg + offsetof(struct ib_user_mad_reg_req2, flags), &flags,
				  sizeof(flags)))
			return -EFAULT;
		return -EINVAL;
	}
	if (req.mgmt_class && (req.oui & ~OUI_MASK))
		return -EINVAL;
	agent.mgmt_class = req.mgmt_class;
	agent.class_version = req.mgmt_class_version;
	agent.oui[0] = req.oui >> 16;
	agent.oui[1] = req.oui >> 8;
	agent.oui[2] = req.oui;
	memcpy(agent.methods, req.method_mask, sizeof(agent.methods));
	id = add_agent(file, &agent, req.qpn, req.rmpp_version, true);
	return id < 0 ? id : give_id(file, id, arg + offsetof(struct ib_user_mad_reg_req2, id));
}

static int unregister_agent(struct umad_file *file, uint64_t arg)
{
	uint32_t id;

	if (uaccess_read(&id, arg, sizeof(id)))
		return -EFAULT;
	if (id >= UMAD_AGENTS || !file->agents[id])
		return -EINVAL;
	del_agent(file, id);
	return 0;
}

static int enable_pkey(struct umad_file *file)
{
	if (file->used)
		return -EINVAL;
	file->pkey_index = true;
	return 0;
}

static int umad_ioctl(struct host_file *base, unsigned long request, void *arg)
{
	struct umad_file *file = file_of(base);
	int ret;

	if (file->pid != fdtab_pid())
		return -EIO;
	engine_lock();
	/* the kernel looks at 32 bits */
	switch ((uint32_t)request) {
	case IB_USER_MAD_REGISTER_AGENT:
		ret = register_agent(file, (uintptr_t)arg);
		break;
	case IB_USER_MAD_REGISTER_AGENT2:
		ret = register_agent2(file, (uintptr_t)arg);
		break;
	case IB_USER_MAD_UNREGISTER_AGENT:
		ret = unregister_agent(file, (uintptr_t)arg);
		break;
	case IB_USER_MAD_ENABLE_PKEY:
		ret = enable_pkey(file);
		break;
	default:
		ret = -ENOTTY;
	}
	engine_unlock();
	return ret;
}

/* ------------------------------------------------------------------ open, close */

static void umad_release(struct host_file *base)
{
	struct umad_file *file = file_of(base);
	unsigned int id;

	engine_lock();
	for (id = 0; id < UMAD_AGENTS; id++) {
		if (file->agents[id])
			del_agent(file, id);
	}
	umad_port_put(file->port);
	engine_unlock();
	host_fd_unhide_close(file->event_fd);
	free(file->queue);
	free(file);
}

static const struct host_file_ops umad_ops = {
	.name = "umad",
	.read = umad_read,
	.write = umad_write,
	.ioctl = umad_ioctl,
	.release = umad_release,
};

int umad_open(struct umad_dev *dev, int flags)
{
	int efd_flags = (flags & O_CLOEXEC ? EFD_CLOEXEC : 0) |
			(flags & O_NONBLOCK ? EFD_NONBLOCK : 0);
	struct umad_file *file;
	int fd, ret;

	ret = engine_start();
	if (ret)
		return ret;
	file = calloc(1, sizeof(*file));
	if (!file)
		return -ENOMEM;
	file->file.ops = &umad_ops;
	file->file.rdev = umad_dev_rdev(dev);
	file->pid = fdtab_pid();
	file->flags = flags & O_ACCMODE;
	fd = eventfd(0, efd_flags);
	if (fd < 0) {
		ret = -errno;
		goto err_file;
	}
	file->event_fd = host_fd_hide(REAL(fcntl)(fd, F_DUPFD_CLOEXEC, 0));
	if (file->event_fd < 0) {
		ret = file->event_fd;
		goto err_fd;
	}
	engine_lock();
	file->port = umad_port_get(dev);
	ret = file->port ? 0 : -ENOMEM;
	engine_unlock();
	if (ret)
		goto err_hidden;
	ret = host_file_install(&file->file, fd);
	if (!ret)
		return fd;
	engine_lock();
	umad_port_put(file->port);
	engine_unlock();
	host_fd_unhide_close(file->event_fd);
	free(file);
	return ret; /* the descriptor is closed */

err_hidden:
	host_fd_unhide_close(file->event_fd);
err_fd:
	REAL(close)(fd);
err_file:
	free(file);
	return ret;
}
