// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "mux/umad.h"

#include <errno.h>
#include <fcntl.h>
#include <infiniband/umad.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "mux/cm_msg.h"

/* The largest MAD that a node of any port type hands out; a smaller buffer would block its queue. */
#define UMAD_LARGEST_MAD 2048
#define SYSFS_IB	 "/sys/class/infiniband"

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

static void explain_open(const char *device, unsigned int port, int err, char *why)
{
	char path[256];

	snprintf(path, sizeof(path), SYSFS_IB "/%s", device);
	if (!exists(path)) {
		snprintf(why, UMAD_WHY_MAX,
			 "there is no RDMA device %s: see the names in " SYSFS_IB, device);
		return;
	}
	snprintf(path, sizeof(path), SYSFS_IB "/%s/ports/%u", device, port);
	if (port && !exists(path)) {
		snprintf(why, UMAD_WHY_MAX, "device %s has no port %u: see " SYSFS_IB "/%s/ports",
			 device, port, device);
		return;
	}
	if (!exists("/sys/class/infiniband_mad")) {
		snprintf(why, UMAD_WHY_MAX,
			 "the kernel has no user-MAD interface: modprobe ib_umad");
		return;
	}
	if (err == EACCES || err == EPERM) {
		snprintf(
			why, UMAD_WHY_MAX,
			"no permission to open the umad node of %s port %u (%s): start as root and use "
			"--user, or give a group access to /dev/infiniband/umad* by a udev rule; with "
			"exclusive RDMA network namespaces, start in the device's namespace",
			device, port, strerror(err));
		return;
	}
	snprintf(
		why, UMAD_WHY_MAX,
		"cannot open the umad node of %s port %u: %s (an iWARP port has none, and needs no mux)",
		device, port, strerror(err));
}

static void explain_register(const char *device, unsigned int port, int err, char *why)
{
	if (err == EINVAL && exists("/sys/module/ib_cm"))
		snprintf(
			why, UMAD_WHY_MAX,
			"management class 0x%02x (CM) on %s port %u is taken: the kernel module ib_cm is "
			"loaded and serves the device. Start rdmacm-mux before rdma_cm and ib_cm are "
			"loaded, or unload them: modprobe -r rdma_ucm ib_ipoib rpcrdma ib_iser ib_isert "
			"rdma_cm ib_cm",
			CM_CLASS, device, port);
	else if (err == EINVAL)
		snprintf(
			why, UMAD_WHY_MAX,
			"management class 0x%02x (CM) on %s port %u is taken by another program, maybe a "
			"second mux: see fuser /dev/infiniband/umad*",
			CM_CLASS, device, port);
	else if (err == EPROTONOSUPPORT)
		snprintf(why, UMAD_WHY_MAX, "%s port %u has no CM queue pair (QP1)", device, port);
	else
		snprintf(why, UMAD_WHY_MAX,
			 "cannot register for management class 0x%02x on %s port %u: %s", CM_CLASS,
			 device, port, strerror(err));
}

int umad_file_open(struct umad_file *f, const char *device, unsigned int port, bool receive,
		   char why[UMAD_WHY_MAX])
{
	long methods[16 / sizeof(long)] = { 1 << CM_METHOD_SEND };
	int id, flags, err;

	f->fd = -1;
	umad_init();
	errno = 0;
	id = umad_open_port(device, (int)port);
	if (id < 0) {
		err = errno ? errno : -id;
		explain_open(device, port, err, why);
		return err;
	}
	errno = 0;
	f->agent = umad_register(id, receive ? CM_CLASS : 0, receive ? CM_CLASS_VERSION : 0, 0,
				 receive ? methods : NULL);
	if (f->agent < 0) {
		err = errno ? errno : EIO;
		explain_register(device, port, err, why);
		umad_close_port(id);
		return err;
	}
	f->fd = umad_get_fd(id);
	flags = fcntl(f->fd, F_GETFL);
	if (flags >= 0)
		fcntl(f->fd, F_SETFL, flags | O_NONBLOCK);
	fcntl(f->fd, F_SETFD, FD_CLOEXEC);
	return 0;
}

void umad_file_close(struct umad_file *f)
{
	if (f->fd < 0)
		return;
	umad_close_port(f->fd);
	f->fd = -1;
}

unsigned int umad_resolve_port(const char *device, unsigned int port)
{
	umad_port_t attr;

	if (port)
		return port;
	umad_init();
	if (umad_get_port(device, 0, &attr))
		return 1;
	port = (unsigned int)attr.portnum;
	umad_release_port(&attr);
	return port;
}

bool umad_is_infiniband(const char *device, unsigned int port)
{
	char path[256], text[32];
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), SYSFS_IB "/%s/ports/%u/link_layer", device, port);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	len = read(fd, text, sizeof(text));
	close(fd);
	return len >= 10 && memcmp(text, "InfiniBand", 10) == 0;
}

enum umad_read_result umad_read(int fd, struct umad_pkt *pkt)
{
	struct {
		struct umad_pkt pkt;
		uint8_t rest[UMAD_LARGEST_MAD - MUX_MAD_SIZE];
	} buf;
	ssize_t len;

	do
		len = read(fd, &buf, sizeof(buf));
	while (len < 0 && errno == EINTR);
	if (len < 0)
		return errno == EAGAIN ? UMAD_READ_NONE : UMAD_READ_GONE;
	if (len == 0)
		return UMAD_READ_GONE;
	/* Sends that got no response come back as a bare header with a status. */
	if (len != sizeof(buf.pkt) || buf.pkt.hdr.status != 0)
		return UMAD_READ_OTHER;
	*pkt = buf.pkt;
	return UMAD_READ_MAD;
}

int umad_write(int fd, const struct umad_pkt *pkt)
{
	ssize_t len;

	do
		len = write(fd, pkt, sizeof(*pkt));
	while (len < 0 && errno == EINTR);
	if (len < 0)
		return errno;
	return len == sizeof(*pkt) ? 0 : EIO;
}
