// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <isa-l/crc.h>

#include "adapter/wire/gsi.h"

enum {
	LRH_LEN = 8, /* stands for the local route header of InfiniBand: all ones */
	IPV4_LEN = 20,
	IPV6_LEN = 40,
	UDP_LEN = 8,
	PSEUDO_MAX = LRH_LEN + IPV6_LEN + UDP_LEN,
	IPPROTO_NUMBER_UDP = 17,
	IPV4_VERSION_IHL = 0x45,
	IPV4_AT_ID = 4,
	IPV4_AT_FRAG = 6,
	IPV4_DF = 0x40, /* of the byte at IPV4_AT_FRAG */
	IPV6_FIRST_MASKED = 0x6f,
	BTH_AT_FLAGS = 1,
	BTH_AT_PKEY = 2,
	BTH_AT_RESERVED = 4, /* a switch may write there: counts as ones */
	BTH_AT_QPN = 5,
	BTH_AT_PSN = 9,
	BTH_PAD_VERSION = 0x3f, /* pad count and transport version: both must be 0 */
	PKEY_BASE = 0x7fff,	/* without the membership bit */
	DETH_AT_QKEY = 0,
	DETH_AT_QPN = 5,
	ID_BITS = 16,
};

bool ea_gid_is_ipv4(const uint8_t gid[EA_GSI_GID_LEN])
{
	static const uint8_t prefix[12] = { [10] = 0xff, 0xff };

	return !memcmp(gid, prefix, sizeof(prefix));
}

static void put16(uint8_t *p, uint32_t value)
{
	p[0] = value >> 8;
	p[1] = value;
}

static void put24(uint8_t *p, uint32_t value)
{
	p[0] = value >> 16;
	put16(p + 1, value);
}

static void put32(uint8_t *p, uint32_t value)
{
	put16(p, value >> 16);
	put16(p + 2, value);
}

static uint32_t get24(const uint8_t *p)
{
	return (uint32_t)p[0] << 16 | p[1] << 8 | p[2];
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | get24(p + 1);
}

/* CRC-32 of Ethernet; ISA-L's pointers are not const. */
static uint32_t crc32_add(uint32_t crc, const uint8_t *buf, size_t len)
{
	return crc32_gzip_refl(crc, (unsigned char *)buf, len);
}

/* What the ICRC covers before the BTH: headers with ones where they may change on the way. */
static size_t pseudo_header(uint8_t *p, const struct ea_gsi_path *path, size_t udp_payload,
			    uint16_t id)
{
	size_t udp_len = UDP_LEN + udp_payload;
	uint8_t *ip = p + LRH_LEN, *udp;

	memset(p, 0xff, LRH_LEN);
	if (ea_gid_is_ipv4(path->sgid)) {
		memset(ip, 0, IPV4_LEN);
		ip[0] = IPV4_VERSION_IHL;
		ip[1] = 0xff; /* type of service */
		put16(ip + 2, IPV4_LEN + udp_len);
		put16(ip + IPV4_AT_ID, id);
		ip[IPV4_AT_FRAG] = IPV4_DF;
		ip[8] = 0xff; /* time to live */
		ip[9] = IPPROTO_NUMBER_UDP;
		ip[10] = ip[11] = 0xff; /* checksum */
		memcpy(ip + 12, path->sgid + 12, 4);
		memcpy(ip + 16, path->dgid + 12, 4);
		udp = ip + IPV4_LEN;
	} else {
		memset(ip, 0, IPV6_LEN);
		ip[0] = IPV6_FIRST_MASKED; /* traffic class and flow label count as ones */
		ip[1] = ip[2] = ip[3] = 0xff;
		put16(ip + 4, udp_len);
		ip[6] = IPPROTO_NUMBER_UDP;
		ip[7] = 0xff; /* hop limit */
		memcpy(ip + 8, path->sgid, EA_GSI_GID_LEN);
		memcpy(ip + 24, path->dgid, EA_GSI_GID_LEN);
		udp = ip + IPV6_LEN;
	}
	put16(udp, path->sport);
	put16(udp + 2, path->dport);
	put16(udp + 4, udp_len);
	udp[6] = udp[7] = 0xff; /* checksum */
	return udp + UDP_LEN - p;
}

uint32_t ea_gsi_icrc(const uint8_t *pkt, size_t len, const struct ea_gsi_path *path, uint16_t id)
{
	static const uint8_t ones = 0xff;
	uint8_t pseudo[PSEUDO_MAX];
	size_t n = pseudo_header(pseudo, path, len + EA_GSI_ICRC_LEN, id);
	uint32_t crc = crc32_add(0, pseudo, n);

	if (len <= BTH_AT_RESERVED)
		return crc32_add(crc, pkt, len);
	crc = crc32_add(crc, pkt, BTH_AT_RESERVED);
	crc = crc32_add(crc, &ones, 1);
	return crc32_add(crc, pkt + BTH_AT_RESERVED + 1, len - BTH_AT_RESERVED - 1);
}

void ea_gsi_encode(uint8_t pkt[EA_GSI_LEN], const struct ea_gsi_path *path, uint32_t dest_qp,
		   uint32_t psn, const uint8_t mad[EA_MAD_LEN])
{
	uint8_t *deth = pkt + EA_GSI_BTH_LEN, *icrc = pkt + EA_GSI_LEN - EA_GSI_ICRC_LEN;
	uint32_t crc;

	memset(pkt, 0, EA_GSI_BTH_LEN + EA_GSI_DETH_LEN);
	pkt[0] = EA_GSI_OPCODE;
	put16(pkt + BTH_AT_PKEY, EA_GSI_PKEY);
	put24(pkt + BTH_AT_QPN, dest_qp);
	put24(pkt + BTH_AT_PSN, psn);
	put32(deth + DETH_AT_QKEY, EA_GSI_QKEY);
	put24(deth + DETH_AT_QPN, EA_GSI_QPN);
	memcpy(deth + EA_GSI_DETH_LEN, mad, EA_MAD_LEN);
	crc = htole32(ea_gsi_icrc(pkt, EA_GSI_LEN - EA_GSI_ICRC_LEN, path, 0));
	memcpy(icrc, &crc, sizeof(crc));
}

/*
 * Is @diff, by which an ICRC differs from that for id 0, one that another id makes?
 * Gaussian elimination over the differences that the single bits make.
 */
static bool spanned(uint32_t diff, size_t len, const struct ea_gsi_path *path, const uint8_t *pkt,
		    uint32_t zero)
{
	uint32_t basis[ID_BITS], vec;
	int i, j, count = 0;

	for (i = 0; i < ID_BITS; i++) {
		vec = zero ^ ea_gsi_icrc(pkt, len, path, 1u << i);
		for (j = 0; j < count; j++) {
			if ((vec ^ basis[j]) < vec)
				vec ^= basis[j];
		}
		if (vec)
			basis[count++] = vec;
		/* the largest first, so that one pass reduces */
		for (j = count - 1; vec && j > 0 && basis[j] > basis[j - 1]; j--) {
			basis[j] = basis[j - 1];
			basis[j - 1] = vec;
		}
	}
	for (j = 0; j < count; j++) {
		if ((diff ^ basis[j]) < diff)
			diff ^= basis[j];
	}
	return !diff;
}

static bool icrc_is_good(const uint8_t *pkt, const struct ea_gsi_path *path)
{
	size_t len = EA_GSI_LEN - EA_GSI_ICRC_LEN;
	uint32_t got, zero = ea_gsi_icrc(pkt, len, path, 0);

	memcpy(&got, pkt + len, sizeof(got));
	got = le32toh(got);
	/* over IPv6, and by a sender like this one, it is the same */
	if (got == zero)
		return true;
	return ea_gid_is_ipv4(path->sgid) && spanned(got ^ zero, len, path, pkt, zero);
}

enum ea_gsi_verdict ea_gsi_decode(const uint8_t *pkt, size_t len, const struct ea_gsi_path *path,
				  struct ea_gsi_head *head)
{
	const uint8_t *deth = pkt + EA_GSI_BTH_LEN;

	if (len != EA_GSI_LEN)
		return EA_GSI_BAD_LENGTH;
	if (pkt[0] != EA_GSI_OPCODE || (pkt[BTH_AT_FLAGS] & BTH_PAD_VERSION))
		return EA_GSI_BAD_BTH;
	if (((pkt[BTH_AT_PKEY] << 8 | pkt[BTH_AT_PKEY + 1]) & PKEY_BASE) != PKEY_BASE)
		return EA_GSI_BAD_PKEY;
	if (get24(pkt + BTH_AT_QPN) != EA_GSI_QPN)
		return EA_GSI_BAD_QPN;
	if (get32(deth + DETH_AT_QKEY) != EA_GSI_QKEY)
		return EA_GSI_BAD_QKEY;
	if (!icrc_is_good(pkt, path))
		return EA_GSI_BAD_ICRC;
	head->src_qp = get24(deth + DETH_AT_QPN);
	head->psn = get24(pkt + BTH_AT_PSN);
	head->mad = deth + EA_GSI_DETH_LEN;
	return EA_GSI_GOOD;
}
