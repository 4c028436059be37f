/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* /dev/infiniband/uverbsN: what the rest of the front uses of it. */
#ifndef EA_UVERBS_H
#define EA_UVERBS_H

#include "adapter/process/host.h"

/* Open the device: a new descriptor, or -errno.  @flags as for open(). */
int uverbs_open(struct host_dev *dev, int flags);

/* The device's number pools, made before its model and gone after it.  0 or -errno. */
int uverbs_dev_start(struct host_dev *dev);
void uverbs_dev_stop(struct host_dev *dev);
/* The device runs, and the engine with it: start watching its port. */
void uverbs_dev_running(struct host_dev *dev);

/* What the model tells: events for completion channels and async files. */
extern const struct ea_host_ops uverbs_core_ops;

/* port_cap_flags of port 1. */
uint32_t uverbs_port_caps(const struct host_dev *dev);

/*
 * How many objects of each kind the process has now, for netlink's resource summary.  Takes the
 * engine lock.
 */
struct uverbs_summary {
	unsigned int pd, cq, qp, mr, ctx;
};
void uverbs_summary(struct host_dev *dev, struct uverbs_summary *sum);

#endif
