/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A MAD on its way between two General Service Interfaces (QP 1) over RoCEv2: one UDP datagram to
 * port 4791 that holds
 *
 *	BTH   12 bytes  UD SEND ONLY, the default P_Key, destination QP, PSN
 *	DETH   8 bytes  Q_Key, source QP
 *	MAD  256 bytes
 *	ICRC   4 bytes
 *
 * (InfiniBand architecture, volume 1, chapters 9 and annex A17.)  The ICRC also covers the IP and
 * UDP headers, except what a router may change, so both sides compute it over headers that only the
 * kernel sees.  Addresses and ports are known, and RoCEv2 over IPv4 has the "don't fragment" flag
 * (DF) set; the identification remains:
 *
 *   - sending, Linux gives id 0 and DF to datagrams of an unconnected socket that is set to
 *     IP_PMTUDISC_DO or IP_PMTUDISC_PROBE.  ea_gsi_encode() presumes this.
 *   - receiving, a socket does not tell it.  A CRC is linear, so the 16 unknown bits span a space of
 *     2^16 ICRC values that a right packet may have; one that is damaged elsewhere has one of them
 *     with a probability of 2^-16, and never one with a single wrong bit.  Over IPv6 nothing is
 *     unknown and the check is whole.
 *
 * Pure functions: any thread, no state.
 */
#ifndef EA_GSI_H
#define EA_GSI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "adapter/wire/mad.h"

enum {
	EA_GSI_UDP_PORT = 4791,
	EA_GSI_QPN = 1,
	EA_GSI_BTH_LEN = 12,
	EA_GSI_DETH_LEN = 8,
	EA_GSI_ICRC_LEN = 4,
	EA_GSI_LEN = EA_GSI_BTH_LEN + EA_GSI_DETH_LEN + EA_MAD_LEN + EA_GSI_ICRC_LEN,
	EA_GSI_OPCODE = 0x64, /* UD, SEND ONLY */
	EA_GSI_PKEY = 0xffff, /* default partition, full member */
	EA_GSI_QPN_MASK = 0xffffff,
	EA_GSI_GID_LEN = 16,
};

#define EA_GSI_QKEY 0x80010000u

/*
 * The addresses of a datagram, as GIDs: an IPv4 address is ::ffff:a.b.c.d.  Both are of one family;
 * the source decides which.
 */
struct ea_gsi_path {
	uint8_t sgid[EA_GSI_GID_LEN], dgid[EA_GSI_GID_LEN];
	uint16_t sport, dport;
};

/* ::ffff:0:0/96 */
bool ea_gid_is_ipv4(const uint8_t gid[EA_GSI_GID_LEN]);

/*
 * Build the UDP payload.  @dest_qp and @psn: 24 bits; the sender is QP 1.
 */
void ea_gsi_encode(uint8_t pkt[EA_GSI_LEN], const struct ea_gsi_path *path, uint32_t dest_qp,
		   uint32_t psn, const uint8_t mad[EA_MAD_LEN]);

/* Why a datagram is no MAD for QP 1. */
enum ea_gsi_verdict {
	EA_GSI_GOOD,
	EA_GSI_BAD_LENGTH,
	EA_GSI_BAD_BTH, /* another opcode or version of the transport, or padding */
	EA_GSI_BAD_PKEY,
	EA_GSI_BAD_QPN, /* not for QP 1 */
	EA_GSI_BAD_QKEY,
	EA_GSI_BAD_ICRC,
	EA_GSI_VERDICTS
};

struct ea_gsi_head {
	uint32_t src_qp, psn;
	const uint8_t *mad; /* in the packet */
};

/* Take a received UDP payload apart; @head is set when it is good. */
enum ea_gsi_verdict ea_gsi_decode(const uint8_t *pkt, size_t len, const struct ea_gsi_path *path,
				  struct ea_gsi_head *head);

/*
 * The ICRC of a UDP payload (without its last four bytes: @len counts those before), as its four
 * bytes on the wire make a little-endian number.  @id is of IPv4's header.
 */
uint32_t ea_gsi_icrc(const uint8_t *pkt, size_t len, const struct ea_gsi_path *path, uint16_t id);

#endif
