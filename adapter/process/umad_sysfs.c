// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The devices with a user-MAD interface as sysfs and /dev show them: like a RoCE device of rxe. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include "adapter/process/umad.h"
#include "adapter/process/vfs.h"

enum {
	PATH_LEN = 192,
	UMAD_ABI = 5,
	CAP_CM_SUP = 0x00010000,
};

/* ------------------------------------------------------------------ contents made at each open */

static int show_state(char *buf, size_t size, const void *arg, unsigned int number)
{
	const struct umad_dev *dev = arg;
	struct device_link link;

	device_link(&dev->dev, &link);
	if (number)
		return snprintf(buf, size, "%s\n", link.up ? "5: LinkUp" : "3: Disabled");
	return snprintf(buf, size, "%s\n", link.up ? "4: ACTIVE" : "1: DOWN");
}

static int show_rate(char *buf, size_t size, const void *arg, unsigned int number)
{
	const struct umad_dev *dev = arg;
	struct device_link link;

	(void)number;
	device_link(&dev->dev, &link);
	return snprintf(buf, size, "%s\n", link.rate);
}

static struct umad_gid gid_at(const void *arg, unsigned int number)
{
	struct umad_gid table[UMAD_GIDS];

	umad_gid_table((struct umad_dev *)arg, table);
	return table[number];
}

static int show_gid(char *buf, size_t size, const void *arg, unsigned int number)
{
	/* an empty slot is all zeros */
	struct umad_gid slot = gid_at(arg, number);
	size_t len = 0;
	int i;

	for (i = 0; i < HOST_GID_LEN; i += 2)
		len += snprintf(buf + len, size - len, "%02x%02x%c", slot.gid[i], slot.gid[i + 1],
				i + 2 < HOST_GID_LEN ? ':' : '\n');
	return len;
}

static int show_gid_type(char *buf, size_t size, const void *arg, unsigned int number)
{
	return gid_at(arg, number).ifindex ? snprintf(buf, size, "RoCE v2\n") : -EINVAL;
}

static int show_gid_ndev(char *buf, size_t size, const void *arg, unsigned int number)
{
	const struct umad_dev *dev = arg;

	if (!gid_at(arg, number).ifindex)
		return -EINVAL;
	return snprintf(buf, size, "%s\n", dev->dev.ifname);
}

/* Of this process; the kernel's rxe counts for all. */
static const struct {
	const char *name;
	size_t offset;
} counters[] = {
#define COUNTER(name, field)                            \
	{                                               \
		name, offsetof(struct gsi_stats, field) \
	}
	COUNTER("sent_mads", sent),
	COUNTER("send_errors", send_failed),
	COUNTER("rcvd_mads", received),
	COUNTER("delivered_mads", delivered),
	COUNTER("unclaimed_mads", unclaimed),
	COUNTER("queue_overruns", overrun),
	COUNTER("bad_address", bad[EA_GSI_GOOD]),
	COUNTER("bad_length", bad[EA_GSI_BAD_LENGTH]),
	COUNTER("bad_bth", bad[EA_GSI_BAD_BTH]),
	COUNTER("bad_pkey", bad[EA_GSI_BAD_PKEY]),
	COUNTER("bad_qpn", bad[EA_GSI_BAD_QPN]),
	COUNTER("bad_qkey", bad[EA_GSI_BAD_QKEY]),
	COUNTER("icrc_errors", bad[EA_GSI_BAD_ICRC]),
#undef COUNTER
};

enum {
	NCOUNTERS = sizeof(counters) / sizeof(counters[0])
};

static int show_counter(char *buf, size_t size, const void *arg, unsigned int number)
{
	const struct umad_dev *dev = arg;
	uint64_t value = 0;

	engine_lock();
	if (dev->port)
		memcpy(&value, (const char *)&dev->port->gsi.stats + counters[number].offset,
		       sizeof(value));
	engine_unlock();
	return snprintf(buf, size, "%llu\n", (unsigned long long)value);
}

/* ------------------------------------------------------------------ the tree */

/* One file in folder @dir. */
static void put(const char *dir, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void put(const char *dir, const char *name, const char *fmt, ...)
{
	char path[PATH_LEN], text[PATH_LEN];
	va_list args;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	vfs_add_file(path, "%s", text);
}

static void put_show(const char *dir, const char *name, vnode_show show, const struct umad_dev *dev,
		     unsigned int number)
{
	char path[PATH_LEN];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	vfs_add_show(path, show, dev, number);
}

static void put_link(const char *dir, const char *name, const char *target)
{
	char path[PATH_LEN];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	vfs_add_link(path, target);
}

static void build_port(const struct umad_dev *dev, const char *ib)
{
	char port[PATH_LEN / 2], name[48];
	unsigned int i;

	snprintf(port, sizeof(port), "%s/ports/1", ib);
	put_show(port, "state", show_state, dev, 0);
	put_show(port, "phys_state", show_state, dev, 1);
	put_show(port, "rate", show_rate, dev, 0);
	put(port, "link_layer", "Ethernet\n");
	put(port, "lid", "0x0\n");
	put(port, "lid_mask_count", "0\n");
	put(port, "sm_lid", "0x0\n");
	put(port, "sm_sl", "0\n");
	put(port, "cap_mask", "0x%08x\n", CAP_CM_SUP);
	put(port, "pkeys/0", "0x%04x\n", EA_GSI_PKEY);
	for (i = 0; i < UMAD_GIDS; i++) {
		snprintf(name, sizeof(name), "gids/%u", i);
		put_show(port, name, show_gid, dev, i);
		snprintf(name, sizeof(name), "gid_attrs/types/%u", i);
		put_show(port, name, show_gid_type, dev, i);
		snprintf(name, sizeof(name), "gid_attrs/ndevs/%u", i);
		put_show(port, name, show_gid_ndev, dev, i);
	}
	for (i = 0; i < NCOUNTERS; i++) {
		snprintf(name, sizeof(name), "hw_counters/%s", counters[i].name);
		put_show(port, name, show_counter, dev, i);
	}
}

static int open_umad(const struct vnode *node, int flags)
{
	return umad_open(umad_dev_get(node->number), flags);
}

static void build_device(const struct umad_dev *dev)
{
	const uint8_t *g = (const uint8_t *)&dev->dev.node_guid;
	char ib[PATH_LEN / 3], mad[PATH_LEN / 3], link[PATH_LEN / 2], name[24];
	dev_t rdev = umad_dev_rdev(dev);

	snprintf(ib, sizeof(ib), "/sys/devices/virtual/infiniband/%s", dev->dev.name);
	vfs_add_dir(ib, false);
	put(ib, "node_type", "1: CA\n");
	put(ib, "node_guid", "%02x%02x:%02x%02x:%02x%02x:%02x%02x\n", g[0], g[1], g[2], g[3], g[4],
	    g[5], g[6], g[7]);
	put(ib, "sys_image_guid", "%02x%02x:%02x%02x:%02x%02x:%02x%02x\n", g[0], g[1], g[2], g[3],
	    g[4], g[5], g[6], g[7]);
	put(ib, "node_desc", "Elastic RDMA Adapter GSI\n");
	put(ib, "fw_ver", "%d.%d.%d\n", DEVICE_FW_MAJOR, DEVICE_FW_MINOR, DEVICE_FW_SUB);
	put(ib, "hw_rev", "0\n");
	put(ib, "hca_type", "software GSI\n");
	put(ib, "parent", "%s\n", dev->dev.ifname);
	put(ib, "uevent", "NAME=%s\n", dev->dev.name);
	put_link(ib, "subsystem", "../../../../class/infiniband");
	build_port(dev, ib);
	snprintf(link, sizeof(link), "../..%s", ib + strlen("/sys"));
	put_link("/sys/class/infiniband", dev->dev.name, link);

	snprintf(name, sizeof(name), "umad%d", dev->dev.index);
	snprintf(mad, sizeof(mad), "/sys/devices/virtual/infiniband_mad/%s", name);
	vfs_add_dir(mad, false);
	put(mad, "ibdev", "%s\n", dev->dev.name);
	put(mad, "port", "1\n");
	put(mad, "dev", "%u:%u\n", major(rdev), minor(rdev));
	put(mad, "uevent", "MAJOR=%u\nMINOR=%u\nDEVNAME=infiniband/%s\n", major(rdev), minor(rdev),
	    name);
	put_link(mad, "subsystem", "../../../../class/infiniband_mad");
	snprintf(link, sizeof(link), "../..%s", mad + strlen("/sys"));
	put_link("/sys/class/infiniband_mad", name, link);

	snprintf(link, sizeof(link), "/dev/infiniband/%s", name);
	vfs_add_chr(link, rdev, open_umad, dev->dev.index);
}

void umad_sysfs_build(void)
{
	int i;

	vfs_add_file("/sys/class/infiniband_mad/abi_version", "%d\n", UMAD_ABI);
	for (i = 0; i < umad_dev_count(); i++)
		build_device(umad_dev_get(i));
}
