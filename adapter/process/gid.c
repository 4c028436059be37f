// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <arpa/inet.h>
#include <string.h>
#include "adapter/process/gid.h"
#include "adapter/wire/gsi.h"

enum {
	IPV4_AT = 12 /* behind the prefix */
};

void gid_of_ipv4(uint8_t gid[HOST_GID_LEN], const void *addr)
{
	static const uint8_t prefix[IPV4_AT] = { [10] = 0xff, 0xff };

	memcpy(gid, prefix, sizeof(prefix));
	memcpy(gid + IPV4_AT, addr, HOST_GID_LEN - IPV4_AT);
}

void gid_of_sockaddr(uint8_t gid[HOST_GID_LEN], const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET6)
		memcpy(gid, &((const struct sockaddr_in6 *)sa)->sin6_addr, HOST_GID_LEN);
	else
		gid_of_ipv4(gid, &((const struct sockaddr_in *)sa)->sin_addr);
}

bool gid_is_link_local(const uint8_t gid[HOST_GID_LEN])
{
	return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

const char *gid_text(const uint8_t gid[HOST_GID_LEN], char text[INET6_ADDRSTRLEN])
{
	bool v4 = ea_gid_is_ipv4(gid);

	inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? gid + IPV4_AT : gid, text, INET6_ADDRSTRLEN);
	return text;
}
