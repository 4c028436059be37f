/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* What both kinds of devices have in common in sysfs.  For building the tree (vfs.h): one thread. */
#ifndef EA_SYSFS_H
#define EA_SYSFS_H

#include <stddef.h>
#include <stdint.h>
#include "adapter/process/host.h"

enum {
	SYSFS_GUID_LEN = 24 /* as text */
};

/* "a/b" from pieces, in a buffer that none of the next three calls uses. */
const char *sysfs_at(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* @guid: in network order. */
void sysfs_guid_text(uint64_t guid, char text[SYSFS_GUID_LEN]);

/* The line of a file with a GID; its length. */
int sysfs_gid_line(char *buf, size_t size, const uint8_t gid[HOST_GID_LEN]);

/* In the folder @port: the state of @dev's interface, and what an Ethernet port has without a choice. */
void sysfs_build_port(const char *port, const struct host_dev *dev, uint32_t caps);

#endif
