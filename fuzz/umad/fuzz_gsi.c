// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * RoCEv2 packets for QP 1 from arbitrary bytes: {u8 how, 36 bytes of addresses and ports, packet}. What is taken for good
 * must have the ICRC of some IPv4 identification, and for IPv6 the one there is.
 */
#include <endian.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/wire/gsi.h"

enum {
	HOW_IPV4 = 1, /* addresses of that family */
	HOW_SEAL = 2, /* put a right ICRC on it, so that what is behind the check is reached */
	PATH_LEN = 36,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void make_path(struct ea_gsi_path *path, const uint8_t *from, int how)
{
	memcpy(path->sgid, from, 16);
	memcpy(path->dgid, from + 16, 16);
	memcpy(&path->sport, from + 32, 2);
	memcpy(&path->dport, from + 34, 2);
	if (how & HOW_IPV4) {
		memset(path->sgid, 0, 12);
		memset(path->sgid + 10, 0xff, 2);
		memcpy(path->dgid, path->sgid, 12);
	}
}

/* Is there an identification that makes this the packet's ICRC? */
static int some_id(const uint8_t *pkt, const struct ea_gsi_path *path, uint32_t icrc)
{
	unsigned int id;

	for (id = 0; id < 65536; id++)
		if (ea_gsi_icrc(pkt, EA_GSI_LEN - EA_GSI_ICRC_LEN, path, id) == icrc)
			return 1;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t copy[EA_GSI_LEN], again[EA_GSI_LEN];
	struct ea_gsi_head head;
	struct ea_gsi_path path;
	const uint8_t *pkt;
	uint32_t icrc;
	int how;

	if (size < 1 + PATH_LEN)
		return 0;
	how = data[0];
	make_path(&path, data + 1, how);
	pkt = data + 1 + PATH_LEN;
	size -= 1 + PATH_LEN;
	if ((how & HOW_SEAL) && size == EA_GSI_LEN) {
		memcpy(copy, pkt, size);
		icrc = htole32(ea_gsi_icrc(copy, size - EA_GSI_ICRC_LEN, &path, data[1]));
		memcpy(copy + size - EA_GSI_ICRC_LEN, &icrc, sizeof(icrc));
		pkt = copy;
		if (ea_gsi_decode(pkt, size, &path, &head) == EA_GSI_BAD_ICRC &&
		    (ea_gid_is_ipv4(path.sgid) || !data[1]))
			abort();
	}
	if (ea_gsi_decode(pkt, size, &path, &head) != EA_GSI_GOOD)
		return 0;
	if (size != EA_GSI_LEN || head.src_qp > EA_GSI_QPN_MASK || head.mad < pkt ||
	    head.mad + EA_MAD_LEN > pkt + size)
		abort();
	memcpy(&icrc, pkt + EA_GSI_LEN - EA_GSI_ICRC_LEN, sizeof(icrc));
	icrc = le32toh(icrc);
	if (ea_gsi_icrc(pkt, EA_GSI_LEN - EA_GSI_ICRC_LEN, &path, 0) != icrc &&
	    (!ea_gid_is_ipv4(path.sgid) || (!(how & HOW_SEAL) && !some_id(pkt, &path, icrc))))
		abort();
	ea_gsi_encode(again, &path, EA_GSI_QPN, head.psn, head.mad);
	if (ea_gsi_decode(again, sizeof(again), &path, &head) != EA_GSI_GOOD)
		abort();
	return 0;
}
