// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The devices as sysfs and /dev/infiniband show them. */
#include <errno.h>
#include <limits.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "adapter/process/device.h"
#include "adapter/process/libc.h"
#include "adapter/process/sysfs.h"
#include "adapter/process/umad.h"
#include "adapter/process/uverbs.h"
#include "adapter/process/vfs.h"

enum {
	PCI_CONFIG_LEN = 256,
	PCI_CLASS_ETHERNET = 0x020000,
	PATH_LEN = 512,
};

const char *sysfs_at(const char *fmt, ...)
{
	static char ring[4][PATH_LEN];
	static unsigned int turn;
	char *buf = ring[turn++ % 4];
	va_list args;

	va_start(args, fmt);
	vsnprintf(buf, PATH_LEN, fmt, args);
	va_end(args);
	return buf;
}

/* ------------------------------------------------------------------ contents made at each open */

static int show_state(char *buf, size_t size, const void *arg, unsigned int number)
{
	struct device_link link;

	(void)number;
	device_link(arg, &link);
	return snprintf(buf, size, "%s\n", link.up ? "4: ACTIVE" : "1: DOWN");
}

static int show_phys_state(char *buf, size_t size, const void *arg, unsigned int number)
{
	struct device_link link;

	(void)number;
	device_link(arg, &link);
	return snprintf(buf, size, "%s\n", link.up ? "5: LinkUp" : "3: Disabled");
}

static int show_rate(char *buf, size_t size, const void *arg, unsigned int number)
{
	struct device_link link;

	(void)number;
	device_link(arg, &link);
	return snprintf(buf, size, "%s\n", link.rate);
}

int sysfs_gid_line(char *buf, size_t size, const uint8_t gid[HOST_GID_LEN])
{
	size_t len = 0;
	int i;

	for (i = 0; i < HOST_GID_LEN; i += 2)
		len += snprintf(buf + len, size - len, "%02x%02x%c", gid[i], gid[i + 1],
				i + 2 < HOST_GID_LEN ? ':' : '\n');
	return len;
}

static int show_gid(char *buf, size_t size, const void *arg, unsigned int number)
{
	uint8_t gid[HOST_GID_LEN];

	/* an empty slot reads as zeros */
	if (host_dev_gid((struct host_dev *)arg, number, gid))
		memset(gid, 0, sizeof(gid));
	return sysfs_gid_line(buf, size, gid);
}

static int show_gid_type(char *buf, size_t size, const void *arg, unsigned int number)
{
	const struct host_dev *dev = arg;
	uint8_t gid[HOST_GID_LEN];

	if (host_dev_gid((struct host_dev *)arg, number, gid))
		return -EINVAL;
	return snprintf(buf, size, "%s\n", dev->mode == HOST_IWARP ? "IB/RoCE v1" : "RoCE v2");
}

static int show_gid_ndev(char *buf, size_t size, const void *arg, unsigned int number)
{
	int ifindex = device_gid_ifindex((struct host_dev *)arg, number);
	char name[IF_NAMESIZE];

	if (!ifindex || !if_indextoname(ifindex, name))
		return -EINVAL;
	return snprintf(buf, size, "%s\n", name);
}

/* ------------------------------------------------------------------ the trees */

void sysfs_guid_text(uint64_t guid, char text[SYSFS_GUID_LEN])
{
	const uint8_t *b = (const uint8_t *)&guid;

	snprintf(text, SYSFS_GUID_LEN, "%02x%02x:%02x%02x:%02x%02x:%02x%02x", b[0], b[1], b[2],
		 b[3], b[4], b[5], b[6], b[7]);
}

static void build_pci(const struct host_dev *dev, const char *pci)
{
	unsigned char config[PCI_CONFIG_LEN] = {
		DEVICE_VENDOR & 0xff,
		DEVICE_VENDOR >> 8,
		DEVICE_PART & 0xff,
		DEVICE_PART >> 8,
		[4] = 0x06, /* memory space and bus mastering are on */
		[8] = DEVICE_PCI_REVISION,
		[11] = PCI_CLASS_ETHERNET >> 16,
		[0x2c] = DEVICE_VENDOR & 0xff,
		[0x2d] = DEVICE_VENDOR >> 8,
		[0x2e] = DEVICE_PART & 0xff,
		[0x2f] = DEVICE_PART >> 8,
	};
	long i, cpus = sysconf(_SC_NPROCESSORS_CONF);
	char real[PATH_MAX], mask[1024] = "";
	size_t len = 0;
	char bdf[DEVICE_BDF_LEN];

	if (cpus < 1)
		cpus = 1;
	device_bdf(dev, bdf);
	vfs_add_file(sysfs_at("%s/vendor", pci), "0x%04x\n", DEVICE_VENDOR);
	vfs_add_file(sysfs_at("%s/device", pci), "0x%04x\n", DEVICE_PART);
	vfs_add_file(sysfs_at("%s/subsystem_vendor", pci), "0x%04x\n", DEVICE_VENDOR);
	vfs_add_file(sysfs_at("%s/subsystem_device", pci), "0x%04x\n", DEVICE_PART);
	vfs_add_file(sysfs_at("%s/revision", pci), "0x%02x\n", DEVICE_PCI_REVISION);
	vfs_add_file(sysfs_at("%s/class", pci), "0x%06x\n", PCI_CLASS_ETHERNET);
	vfs_add_file(sysfs_at("%s/irq", pci), "0\n");
	vfs_add_file(sysfs_at("%s/enable", pci), "1\n");
	vfs_add_file(sysfs_at("%s/numa_node", pci), "-1\n");
	vfs_add_file(sysfs_at("%s/local_cpulist", pci), cpus > 1 ? "0-%ld\n" : "%ld\n", cpus - 1);
	for (i = (cpus - 1) / 32; i >= 0; i--) {
		unsigned long rest = cpus - i * 32;

		len += snprintf(mask + len, sizeof(mask) - len, "%0*lx%s", len ? 8 : 1,
				rest >= 32 ? 0xfffffffful : (1ul << rest) - 1, i ? "," : "\n");
		if (len >= sizeof(mask) - 16)
			break;
	}
	vfs_add_file(sysfs_at("%s/local_cpus", pci), "%s", mask);
	vfs_add_file(sysfs_at("%s/modalias", pci), "pci:v%08Xd%08Xsv%08Xsd%08Xbc02sc00i00\n",
		     DEVICE_VENDOR, DEVICE_PART, DEVICE_VENDOR, DEVICE_PART);
	vfs_add_file(
		sysfs_at("%s/uevent", pci),
		"DRIVER=erdma\nPCI_CLASS=%X\nPCI_ID=%04X:%04X\nPCI_SUBSYS_ID=%04X:%04X\nPCI_SLOT_NAME=%s\n",
		PCI_CLASS_ETHERNET, DEVICE_VENDOR, DEVICE_PART, DEVICE_VENDOR, DEVICE_PART, bdf);
	/* six BARs and a ROM, none of them in use */
	mask[0] = 0;
	for (i = 0; i < 7; i++)
		strcat(mask, "0x0000000000000000 0x0000000000000000 0x0000000000000000\n");
	vfs_add_file(sysfs_at("%s/resource", pci), "%s", mask);
	vfs_add_bytes(sysfs_at("%s/config", pci), config, sizeof(config));
	vfs_add_link(sysfs_at("%s/subsystem", pci), "../../../bus/pci");
	vfs_add_link(sysfs_at("%s/driver", pci), "../../../bus/pci/drivers/erdma");
	vfs_add_link(sysfs_at("%s/net/%s", pci, dev->ifname),
		     sysfs_at("../../../../class/net/%s", dev->ifname));
	vfs_add_dir("/sys/bus/pci/devices", true);
	vfs_add_link(sysfs_at("/sys/bus/pci/devices/%s", bdf),
		     sysfs_at("../../../devices/pcied0a:00/%s", bdf));
	vfs_add_dir("/sys/bus/pci/drivers/erdma", false);
	vfs_add_link(sysfs_at("/sys/bus/pci/drivers/erdma/%s", bdf),
		     sysfs_at("../../../../devices/pcied0a:00/%s", bdf));

	/*
	 * the interface's own device knows its RDMA device, as with adapters that have one function
	 * for both
	 */
	if (REAL(realpath)(sysfs_at("/sys/class/net/%s/device", dev->ifname), real) &&
	    strlen(real) < PATH_LEN / 2) {
		vfs_add_dir(sysfs_at("%s/infiniband", real), false);
		vfs_add_link(sysfs_at("%s/infiniband/%s", real, dev->name),
			     sysfs_at("/sys/class/infiniband/%s", dev->name));
	}
}

void sysfs_build_port(const char *port, const struct host_dev *dev, uint32_t caps)
{
	vfs_add_show(sysfs_at("%s/state", port), show_state, dev, 0);
	vfs_add_show(sysfs_at("%s/phys_state", port), show_phys_state, dev, 0);
	vfs_add_show(sysfs_at("%s/rate", port), show_rate, dev, 0);
	vfs_add_file(sysfs_at("%s/link_layer", port), "Ethernet\n");
	vfs_add_file(sysfs_at("%s/lid", port), "0x0\n");
	vfs_add_file(sysfs_at("%s/sm_lid", port), "0x0\n");
	vfs_add_file(sysfs_at("%s/lid_mask_count", port), "0\n");
	vfs_add_file(sysfs_at("%s/sm_sl", port), "0\n");
	vfs_add_file(sysfs_at("%s/cap_mask", port), "0x%08x\n", caps);
}

static void build_port(const struct host_dev *dev, const char *port)
{
	bool roce = dev->mode == HOST_ROCE;
	unsigned int i;

	sysfs_build_port(port, dev, uverbs_port_caps(dev));
	for (i = 0; i < device_gid_count(dev); i++) {
		vfs_add_show(sysfs_at("%s/gids/%u", port, i), show_gid, dev, i);
		vfs_add_show(sysfs_at("%s/gid_attrs/types/%u", port, i), show_gid_type, dev, i);
		vfs_add_show(sysfs_at("%s/gid_attrs/ndevs/%u", port, i), show_gid_ndev, dev, i);
	}
	if (roce)
		vfs_add_file(sysfs_at("%s/pkeys/0", port), "0xffff\n");
}

static int open_uverbs(const struct vnode *node, int flags)
{
	return uverbs_open(host_dev_get(node->number), flags);
}

static int open_cm(const struct vnode *node, int flags)
{
	(void)node;
	return ucma_open(flags);
}

static void build_device(const struct host_dev *dev)
{
	dev_t rdev = device_uverbs_rdev(dev);
	char bdf[DEVICE_BDF_LEN], guid[SYSFS_GUID_LEN];
	char pci[64], ib[128], verbs[128], port[160];

	device_bdf(dev, bdf);
	sysfs_guid_text(dev->node_guid, guid);
	snprintf(pci, sizeof(pci), "/sys/devices/pcied0a:00/%s", bdf);
	snprintf(ib, sizeof(ib), "%s/infiniband/%s", pci, dev->name);
	snprintf(verbs, sizeof(verbs), "%s/infiniband_verbs/uverbs%d", pci, dev->index);
	vfs_add_dir(pci, false);
	build_pci(dev, pci);

	vfs_add_file(sysfs_at("%s/node_type", ib), "%s\n",
		     dev->mode == HOST_IWARP ? "4: RNIC" : "1: CA");
	vfs_add_file(sysfs_at("%s/node_guid", ib), "%s\n", guid);
	vfs_add_file(sysfs_at("%s/sys_image_guid", ib), "%s\n", guid);
	vfs_add_file(sysfs_at("%s/node_desc", ib), "Elastic RDMA Adapter stack\n");
	vfs_add_file(sysfs_at("%s/fw_ver", ib), "\n");
	vfs_add_file(sysfs_at("%s/uevent", ib), "NAME=%s\n", dev->name);
	vfs_add_link(sysfs_at("%s/device", ib), sysfs_at("../../../%s", bdf));
	vfs_add_link(sysfs_at("%s/subsystem", ib), "../../../../../class/infiniband");
	snprintf(port, sizeof(port), "%s/ports/1", ib);
	build_port(dev, port);
	vfs_add_link(sysfs_at("/sys/class/infiniband/%s", dev->name),
		     sysfs_at("../../%s", ib + strlen("/sys/")));

	vfs_add_file(sysfs_at("%s/ibdev", verbs), "%s\n", dev->name);
	vfs_add_file(sysfs_at("%s/dev", verbs), "%u:%u\n", major(rdev), minor(rdev));
	vfs_add_file(sysfs_at("%s/abi_version", verbs), "%d\n", DEVICE_DRIVER_ABI);
	vfs_add_file(sysfs_at("%s/uevent", verbs),
		     "MAJOR=%u\nMINOR=%u\nDEVNAME=infiniband/uverbs%d\n", major(rdev), minor(rdev),
		     dev->index);
	vfs_add_link(sysfs_at("%s/device", verbs), sysfs_at("../../../%s", bdf));
	vfs_add_link(sysfs_at("%s/subsystem", verbs), "../../../../../class/infiniband_verbs");
	vfs_add_link(sysfs_at("/sys/class/infiniband_verbs/uverbs%d", dev->index),
		     sysfs_at("../../%s", verbs + strlen("/sys/")));

	vfs_add_chr(sysfs_at("/dev/infiniband/uverbs%d", dev->index), rdev, open_uverbs,
		    dev->index);
}

static void build_cm(void)
{
	static const char cm[] = "/sys/devices/virtual/misc/rdma_cm";
	dev_t rdev = device_cm_rdev();

	vfs_add_dir(cm, false);
	vfs_add_file(sysfs_at("%s/abi_version", cm), "%d\n", DEVICE_CM_ABI);
	vfs_add_file(sysfs_at("%s/dev", cm), "%u:%u\n", major(rdev), minor(rdev));
	vfs_add_file(sysfs_at("%s/uevent", cm),
		     "MAJOR=%u\nMINOR=%u\nDEVNAME=infiniband/rdma_cm\nDEVMODE=0666\n", major(rdev),
		     minor(rdev));
	vfs_add_link(sysfs_at("%s/subsystem", cm), "../../../../class/misc");
	vfs_add_link("/sys/class/misc/rdma_cm", "../../devices/virtual/misc/rdma_cm");
	vfs_add_chr("/dev/infiniband/rdma_cm", rdev, open_cm, 0);
}

void sysfs_build(void)
{
	int i, count = host_dev_count();

	/* these are ours alone, also where the machine has RDMA devices */
	vfs_add_dir("/sys/class/infiniband", false);
	vfs_add_dir("/sys/class/infiniband_verbs", false);
	vfs_add_dir("/sys/class/infiniband_mad", false);
	vfs_add_dir("/dev/infiniband", false);
	vfs_add_dir("/sys/bus/pci/devices", true);
	vfs_add_dir("/sys/bus/pci/drivers", true);
	vfs_add_file("/sys/class/infiniband_verbs/abi_version", "%d\n", DEVICE_UVERBS_ABI);
	vfs_add_dir("/sys/devices/pcied0a:00", false);
	for (i = 0; i < count; i++)
		build_device(host_dev_get(i));
	build_cm();
	umad_sysfs_build();
}
