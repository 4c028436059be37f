/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * GIDs of RoCE ports and the IP addresses they stand for: an IPv4 address is ::ffff:a.b.c.d.
 *
 * Pure functions: any thread, no state.
 */
#ifndef EA_GID_H
#define EA_GID_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include "adapter/process/host.h"

/* @addr: the four bytes of an IPv4 address, in network order. */
void gid_of_ipv4(uint8_t gid[HOST_GID_LEN], const void *addr);

/* @sa is of AF_INET6, or taken as AF_INET. */
void gid_of_sockaddr(uint8_t gid[HOST_GID_LEN], const struct sockaddr *sa);

/* fe80::/10 */
bool gid_is_link_local(const uint8_t gid[HOST_GID_LEN]);

/* The address in its usual form; returns @text. */
const char *gid_text(const uint8_t gid[HOST_GID_LEN], char text[INET6_ADDRSTRLEN]);

#endif
