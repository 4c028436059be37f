/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * NETLINK_RDMA: the devices as the kernel's netlink interface tells them, for libibverbs, librdmacm
 * and iproute2's rdma.
 *
 * A socket of this family is one end of a pair; requests are answered at once into the other end,
 * so poll(), recv() and blocking are the kernel's own.  Only what carries netlink addresses is
 * interposed.
 */
#ifndef EA_NETLINK_H
#define EA_NETLINK_H

#include <stdbool.h>
#include <sys/socket.h>
#include "adapter/process/host.h"

/* A new socket of @type (with SOCK_CLOEXEC...), or -1 with errno. */
int netlink_open(int type);

bool netlink_is(const struct host_file *file);

/* Requests from the program; the count, or -1 with errno. */
ssize_t netlink_send(int fd, const void *buf, size_t len, int flags);

#endif
