// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "mux/umad.h"

#include <errno.h>
#include <fcntl.h>
#include <infiniband/umad.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mux/cm_msg.h"
#include "mux/file.h"

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

static void explain_register(const char *device, unsigned int port, unsigned int class, int err,
			     char *why)
{
	if (err == EINVAL && exists("/sys/module/ib_cm"))
		snprintf(
			why, UMAD_WHY_MAX,
			"management class 0x%02x (CM) on %s port %u is taken: the kernel module ib_cm is "
			"loaded and serves the device. Start rdmacm-mux before rdma_cm and ib_cm are "
			"loaded, or unload them: modprobe -r rdma_ucm ib_ipoib rpcrdma ib_iser ib_isert "
			"rdma_cm ib_cm",
			class, device, port);
	else if (err == EINVAL)
		snprintf(
			why, UMAD_WHY_MAX,
			"management class 0x%02x (CM) on %s port %u is taken by another program, maybe a "
			"second mux: see fuser /dev/infiniband/umad*",
			class, device, port);
	else if (err == EPROTONOSUPPORT)
		snprintf(why, UMAD_WHY_MAX, "%s port %u has no CM queue pair (QP1)", device, port);
	else
		snprintf(why, UMAD_WHY_MAX,
			 "cannot register for management class 0x%02x on %s port %u: %s", class,
			 device, port, strerror(err));
}

/* An agent of the class; one without methods is asked nothing, and 0 is no class at all. */
static int open_agent(struct umad_file *f, const char *device, unsigned int port,
		      unsigned int class, unsigned int version, unsigned int rmpp_version,
		      long methods[16 / sizeof(long)], char why[UMAD_WHY_MAX])
{
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
	f->agent = umad_register(id, (int)class, (int)version, (uint8_t)rmpp_version, methods);
	if (f->agent < 0) {
		err = errno ? errno : EIO;
		explain_register(device, port, class, err, why);
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

int umad_file_open(struct umad_file *f, const char *device, unsigned int port, bool receive,
		   char why[UMAD_WHY_MAX])
{
	long methods[16 / sizeof(long)] = { 1 << CM_METHOD_SEND };

	if (!receive)
		return open_agent(f, device, port, 0, 0, 0, NULL, why);
	return open_agent(f, device, port, CM_CLASS, CM_CLASS_VERSION, 0, methods, why);
}

int umad_file_open_asking(struct umad_file *f, const char *device, unsigned int port,
			  unsigned int class, unsigned int version, unsigned int rmpp_version,
			  char why[UMAD_WHY_MAX])
{
	return open_agent(f, device, port, class, version, rmpp_version, NULL, why);
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

/* An attribute of a port; false if there is none. */
static bool read_attribute(const char *device, unsigned int port, const char *name, char text[32])
{
	char path[256];

	snprintf(path, sizeof(path), SYSFS_IB "/%s/ports/%u/%s", device, port, name);
	return file_read_text(path, text, 32) >= 0;
}

bool umad_is_infiniband(const char *device, unsigned int port)
{
	char text[32];

	return read_attribute(device, port, "link_layer", text) &&
	       strncmp(text, "InfiniBand", 10) == 0;
}

bool umad_subnet_manager(const char *device, unsigned int port, uint16_t *lid, uint8_t *sl)
{
	char text[32];

	if (!read_attribute(device, port, "sm_lid", text))
		return false;
	*lid = (uint16_t)strtoul(text, NULL, 0);
	*sl = read_attribute(device, port, "sm_sl", text) ? (uint8_t)strtoul(text, NULL, 0) : 0;
	return *lid != 0;
}

ssize_t umad_read_any(int fd, struct umad_pkt *pkt)
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
		return errno == EAGAIN ? 0 : -1;
	if (len == 0)
		return -1;
	memcpy(pkt, &buf, (size_t)len < sizeof(*pkt) ? (size_t)len : sizeof(*pkt));
	return len;
}

enum umad_read_result umad_read(int fd, struct umad_pkt *pkt)
{
	ssize_t len = umad_read_any(fd, pkt);

	if (len <= 0)
		return len ? UMAD_READ_GONE : UMAD_READ_NONE;
	/* Sends that got no response come back as a bare header with a status. */
	return len == sizeof(*pkt) && !pkt->hdr.status ? UMAD_READ_MAD : UMAD_READ_OTHER;
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
