/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * GIDs as text, and networks of them.
 *
 * Text is that of an IPv6 address; an IPv4 address a.b.c.d stands for ::ffff:a.b.c.d. Pure functions,
 * callable from any thread.
 */
#ifndef MUX_GID_H
#define MUX_GID_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "mux/protocol.h"

#define GID_STRLEN 46

struct gid_net {
	uint8_t gid[MUX_GID_SIZE];
	unsigned int bits; /* 0..128 that must agree */
};

/* Writes the text of gid to buf and returns buf. */
const char *gid_str(const uint8_t gid[MUX_GID_SIZE], char buf[GID_STRLEN]);

/* Parses an IPv4 or IPv6 address. Returns 0, or EINVAL. */
int gid_parse(const char *text, uint8_t gid[MUX_GID_SIZE]);

/* Parses "address" or "address/bits"; for IPv4, bits count from its first byte. Returns 0, or EINVAL. */
int gid_net_parse(const char *text, struct gid_net *net);

bool gid_in_net(const uint8_t gid[MUX_GID_SIZE], const struct gid_net *net);

static inline bool gid_equal(const uint8_t *a, const uint8_t *b)
{
	return memcmp(a, b, MUX_GID_SIZE) == 0;
}

bool gid_is_zero(const uint8_t gid[MUX_GID_SIZE]);
/* ff00::/8, and the IPv4 multicast and broadcast addresses. */
bool gid_is_multicast(const uint8_t gid[MUX_GID_SIZE]);
/* ::1 and ::ffff:127.0.0.0/104. */
bool gid_is_loopback(const uint8_t gid[MUX_GID_SIZE]);
bool gid_is_ipv4(const uint8_t gid[MUX_GID_SIZE]);
bool gid_is_link_local(const uint8_t gid[MUX_GID_SIZE]);

#endif
