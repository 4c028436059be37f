/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Devices and the interfaces behind them: what sysfs, netlink and the query verbs show. */
#ifndef EA_DEVICE_H
#define EA_DEVICE_H

#include <net/if.h>
#include "adapter/process/host.h"

enum {
	DEVICE_VENDOR = 0x1ded,
	DEVICE_PART = 0x107f,
	DEVICE_PCI_REVISION = 0x01,
	DEVICE_UVERBS_MAJOR = 231, /* as the kernel's; minors 192.. are uverbs */
	DEVICE_UVERBS_MINOR = 192,
	DEVICE_CM_MAJOR = 10, /* misc */
	DEVICE_CM_MINOR = 121,
	DEVICE_UVERBS_ABI = 6,
	DEVICE_DRIVER_ABI = 1,
	DEVICE_CM_ABI = 4,
	DEVICE_DRIVER_ID = 19, /* RDMA_DRIVER_ERDMA */

	DEVICE_FW_MAJOR = 1,
	DEVICE_FW_MINOR = 0,
	DEVICE_FW_SUB = 0,

	DEVICE_MAX_QP = 64 * 1024,	  /* of the hardware: number 0 is not usable */
	DEVICE_MAX_QP_ROCE = 1024 * 1024, /* numbers are wider there: they lead to a process */
	DEVICE_MAX_CQ = 2 * DEVICE_MAX_QP,
	DEVICE_MAX_PD = 128 * 1024,
	DEVICE_MAX_CQE_SHIFT = 20,
	DEVICE_COMP_VECTORS = 4,
};

/* What the interface is like now. */
struct device_link {
	bool up;	     /* running, with carrier */
	unsigned int mtu;    /* of the interface, bytes */
	unsigned int ib_mtu; /* enum ibv_mtu */
	unsigned int mbps;   /* speed; 1000 when unknown, as the kernel takes it */
	unsigned int active_speed, active_width; /* as ibv_query_port tells */
	const char *rate;			 /* as sysfs tells */
};

void device_link(const struct host_dev *dev, struct device_link *link);

/*
 * Fill in interface, MAC and a GUID of its own for a device that is not in the list, on the
 * interface @where names or that has this address.  @dev->index is set.  False: there is none.
 */
bool device_describe(struct host_dev *dev, const char *where);

unsigned int device_gid_count(const struct host_dev *dev);

/* Interface of GID @index, 0 when the slot is empty. */
int device_gid_ifindex(struct host_dev *dev, unsigned int index);

dev_t device_uverbs_rdev(const struct host_dev *dev);
dev_t device_cm_rdev(void);

/* The device's place in the PCI tree, "ed0a:00:00.0". */
enum {
	DEVICE_BDF_LEN = 24
};
void device_bdf(const struct host_dev *dev, char bdf[DEVICE_BDF_LEN]);

#endif
