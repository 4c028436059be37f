// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "mux/gid.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#define IPV4_MAPPED_BITS 96
#define GID_BITS	 128

static const uint8_t ipv4_mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

const char *gid_str(const uint8_t gid[MUX_GID_SIZE], char buf[GID_STRLEN])
{
	return inet_ntop(AF_INET6, gid, buf, GID_STRLEN);
}

int gid_parse(const char *text, uint8_t gid[MUX_GID_SIZE])
{
	uint8_t ip4[4];

	if (inet_pton(AF_INET6, text, gid) == 1)
		return 0;
	if (inet_pton(AF_INET, text, ip4) != 1)
		return EINVAL;
	memcpy(gid, ipv4_mapped, sizeof(ipv4_mapped));
	memcpy(gid + sizeof(ipv4_mapped), ip4, sizeof(ip4));
	return 0;
}

int gid_net_parse(const char *text, struct gid_net *net)
{
	const char *slash = strchr(text, '/');
	char addr[GID_STRLEN];
	unsigned long bits;
	size_t len;
	char *end;
	int ret;

	len = slash ? (size_t)(slash - text) : strlen(text);
	if (len >= sizeof(addr))
		return EINVAL;
	memcpy(addr, text, len);
	addr[len] = '\0';
	ret = gid_parse(addr, net->gid);
	if (ret)
		return ret;
	net->bits = GID_BITS;
	if (!slash)
		return 0;
	if (slash[1] < '0' || slash[1] > '9')
		return EINVAL;
	bits = strtoul(slash + 1, &end, 10);
	if (*end)
		return EINVAL;
	if (!strchr(addr, ':'))
		bits += IPV4_MAPPED_BITS;
	if (bits > GID_BITS)
		return EINVAL;
	net->bits = (unsigned int)bits;
	return 0;
}

bool gid_in_net(const uint8_t gid[MUX_GID_SIZE], const struct gid_net *net)
{
	unsigned int bytes = net->bits / 8, rest = net->bits % 8;

	if (memcmp(gid, net->gid, bytes) != 0)
		return false;
	return rest == 0 || (gid[bytes] ^ net->gid[bytes]) >> (8 - rest) == 0;
}

bool gid_is_zero(const uint8_t gid[MUX_GID_SIZE])
{
	static const uint8_t zero[MUX_GID_SIZE];

	return gid_equal(gid, zero);
}

bool gid_is_ipv4(const uint8_t gid[MUX_GID_SIZE])
{
	return memcmp(gid, ipv4_mapped, sizeof(ipv4_mapped)) == 0;
}

bool gid_is_multicast(const uint8_t gid[MUX_GID_SIZE])
{
	static const uint8_t broadcast[4] = { 0xff, 0xff, 0xff, 0xff };

	if (gid[0] == 0xff)
		return true;
	return gid_is_ipv4(gid) && (gid[12] >> 4 == 0xe || memcmp(gid + 12, broadcast, 4) == 0);
}

bool gid_is_loopback(const uint8_t gid[MUX_GID_SIZE])
{
	static const uint8_t ip6[MUX_GID_SIZE] = { [15] = 1 };

	return gid_equal(gid, ip6) || (gid_is_ipv4(gid) && gid[12] == 127);
}

bool gid_is_link_local(const uint8_t gid[MUX_GID_SIZE])
{
	return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}
