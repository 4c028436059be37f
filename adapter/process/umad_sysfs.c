// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The devices with a user-MAD interface as sysfs and /dev show them: like a RoCE device of rxe. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include "adapter/process/sysfs.h"
#include "adapter/process/umad.h"
#include "adapter/process/vfs.h"

enum {
	PATH_LEN = 64,
	UMAD_ABI = 5,
	CAP_CM_SUP = 0x00010000,
};

/* ------------------------------------------------------------------ contents made at each open */

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

	return sysfs_gid_line(buf, size, slot.gid);
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

static void build_port(const struct umad_dev *dev, const char *port)
{
	unsigned int i;

	sysfs_build_port(port, &dev->dev, CAP_CM_SUP);
	vfs_add_file(sysfs_at("%s/pkeys/0", port), "0x%04x\n", EA_GSI_PKEY);
	for (i = 0; i < UMAD_GIDS; i++) {
		vfs_add_show(sysfs_at("%s/gids/%u", port, i), show_gid, dev, i);
		vfs_add_show(sysfs_at("%s/gid_attrs/types/%u", port, i), show_gid_type, dev, i);
		vfs_add_show(sysfs_at("%s/gid_attrs/ndevs/%u", port, i), show_gid_ndev, dev, i);
	}
	for (i = 0; i < NCOUNTERS; i++)
		vfs_add_show(sysfs_at("%s/hw_counters/%s", port, counters[i].name), show_counter,
			     dev, i);
}

static int open_umad(const struct vnode *node, int flags)
{
	return umad_open(umad_dev_get(node->number), flags);
}

static void build_device(const struct umad_dev *dev)
{
	char ib[PATH_LEN], port[PATH_LEN + 8], mad[PATH_LEN], name[24], guid[SYSFS_GUID_LEN];
	dev_t rdev = umad_dev_rdev(dev);

	sysfs_guid_text(dev->dev.node_guid, guid);
	snprintf(ib, sizeof(ib), "/sys/devices/virtual/infiniband/%s", dev->dev.name);
	vfs_add_dir(ib, false);
	vfs_add_file(sysfs_at("%s/node_type", ib), "1: CA\n");
	vfs_add_file(sysfs_at("%s/node_guid", ib), "%s\n", guid);
	vfs_add_file(sysfs_at("%s/sys_image_guid", ib), "%s\n", guid);
	vfs_add_file(sysfs_at("%s/node_desc", ib), "Elastic RDMA Adapter GSI\n");
	vfs_add_file(sysfs_at("%s/fw_ver", ib), "%d.%d.%d\n", DEVICE_FW_MAJOR, DEVICE_FW_MINOR,
		     DEVICE_FW_SUB);
	vfs_add_file(sysfs_at("%s/hw_rev", ib), "0\n");
	vfs_add_file(sysfs_at("%s/hca_type", ib), "software GSI\n");
	vfs_add_file(sysfs_at("%s/parent", ib), "%s\n", dev->dev.ifname);
	vfs_add_file(sysfs_at("%s/uevent", ib), "NAME=%s\n", dev->dev.name);
	vfs_add_link(sysfs_at("%s/subsystem", ib), "../../../../class/infiniband");
	snprintf(port, sizeof(port), "%s/ports/1", ib);
	build_port(dev, port);
	vfs_add_link(sysfs_at("/sys/class/infiniband/%s", dev->dev.name),
		     sysfs_at("../..%s", ib + strlen("/sys")));

	snprintf(name, sizeof(name), "umad%d", dev->dev.index);
	snprintf(mad, sizeof(mad), "/sys/devices/virtual/infiniband_mad/%s", name);
	vfs_add_dir(mad, false);
	vfs_add_file(sysfs_at("%s/ibdev", mad), "%s\n", dev->dev.name);
	vfs_add_file(sysfs_at("%s/port", mad), "1\n");
	vfs_add_file(sysfs_at("%s/dev", mad), "%u:%u\n", major(rdev), minor(rdev));
	vfs_add_file(sysfs_at("%s/uevent", mad), "MAJOR=%u\nMINOR=%u\nDEVNAME=infiniband/%s\n",
		     major(rdev), minor(rdev), name);
	vfs_add_link(sysfs_at("%s/subsystem", mad), "../../../../class/infiniband_mad");
	vfs_add_link(sysfs_at("/sys/class/infiniband_mad/%s", name),
		     sysfs_at("../..%s", mad + strlen("/sys")));

	vfs_add_chr(sysfs_at("/dev/infiniband/%s", name), rdev, open_umad, dev->dev.index);
}

void umad_sysfs_build(void)
{
	int i;

	vfs_add_file("/sys/class/infiniband_mad/abi_version", "%d\n", UMAD_ABI);
	for (i = 0; i < umad_dev_count(); i++)
		build_device(umad_dev_get(i));
}
