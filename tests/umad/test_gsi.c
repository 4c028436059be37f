// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* RoCEv2 packets of MADs, byte by byte, against an ICRC computed here in another way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "adapter/wire/gsi.h"
#include "tests/umad/rxe_packets.h"

enum {
	DATAGRAM_MAX = 40 + 8 + EA_GSI_LEN,
};

static const uint8_t v4_a[16] = { [10] = 0xff, 0xff, 10, 77, 0, 1 };
static const uint8_t v4_b[16] = { [10] = 0xff, 0xff, 10, 77, 0, 2 };
static const uint8_t v6_a[16] = { 0xfd, 0x77, [15] = 1 };
static const uint8_t v6_b[16] = { 0xfd, 0x77, [15] = 2 };

static struct ea_gsi_path path_of(bool v6)
{
	struct ea_gsi_path path = { .sport = 4791, .dport = 4791 };

	memcpy(path.sgid, v6 ? v6_a : v4_a, 16);
	memcpy(path.dgid, v6 ? v6_b : v4_b, 16);
	return path;
}

static void fill_mad(uint8_t mad[EA_MAD_LEN], uint8_t seed)
{
	int i;

	for (i = 0; i < EA_MAD_LEN; i++)
		mad[i] = i * 5 + seed;
}

/* Bit by bit, least significant first: the polynomial of Ethernet. */
static uint32_t slow_crc(uint32_t crc, const uint8_t *p, size_t len)
{
	int bit;

	while (len--) {
		crc ^= *p++;
		for (bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return crc;
}

/* The whole IP datagram as it is on the wire; where the BTH begins. */
static size_t datagram(uint8_t *ip, const struct ea_gsi_path *path, const uint8_t *payload,
		       size_t len, uint16_t id)
{
	bool v6 = !ea_gid_is_ipv4(path->sgid);
	size_t head = v6 ? 40 : 20, udp_len = 8 + len;
	uint8_t *udp = ip + head;

	memset(ip, 0, head + 8);
	if (v6) {
		ip[0] = 0x62;
		ip[1] = 0x34;
		ip[3] = 0x56;
		ip[4] = udp_len >> 8;
		ip[5] = udp_len;
		ip[6] = 17;
		ip[7] = 64;
		memcpy(ip + 8, path->sgid, 16);
		memcpy(ip + 24, path->dgid, 16);
	} else {
		ip[0] = 0x45;
		ip[1] = 0x10;
		ip[2] = (20 + udp_len) >> 8;
		ip[3] = 20 + udp_len;
		ip[4] = id >> 8;
		ip[5] = id;
		ip[6] = 0x40; /* DF */
		ip[8] = 63;
		ip[9] = 17;
		ip[10] = 0x12;
		ip[11] = 0x34;
		memcpy(ip + 12, path->sgid + 12, 4);
		memcpy(ip + 16, path->dgid + 12, 4);
	}
	udp[0] = path->sport >> 8;
	udp[1] = path->sport;
	udp[2] = path->dport >> 8;
	udp[3] = path->dport;
	udp[4] = udp_len >> 8;
	udp[5] = udp_len;
	udp[6] = 0xab;
	udp[7] = 0xcd;
	memcpy(udp + 8, payload, len);
	return head + 8;
}

/* The ICRC of a datagram that has been on the way, as an adapter checks it. */
static uint32_t slow_icrc(const uint8_t *wire, size_t bth, size_t len)
{
	static const uint8_t ones[8] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
	uint8_t ip[DATAGRAM_MAX];

	memcpy(ip, wire, bth + len);
	if (ip[0] >> 4 == 4) {
		ip[1] = ip[8] = ip[10] = ip[11] = 0xff;
	} else {
		ip[0] |= 0x0f;
		ip[1] = ip[2] = ip[3] = ip[7] = 0xff;
	}
	ip[bth - 2] = ip[bth - 1] = 0xff; /* UDP checksum */
	ip[bth + 4] = 0xff;
	return ~slow_crc(slow_crc(0xffffffff, ones, sizeof(ones)), ip, bth + len - 4);
}

static uint32_t wire_icrc(const uint8_t *pkt)
{
	const uint8_t *p = pkt + (EA_GSI_LEN - 4);

	return p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24;
}

static void set_icrc(uint8_t *pkt, uint32_t icrc)
{
	uint8_t *p = pkt + (EA_GSI_LEN - 4);
	int i;

	for (i = 0; i < 4; i++)
		p[i] = icrc >> 8 * i;
}

static void layout(void **state)
{
	static const uint8_t head[20] = { 0x64, 0,    0xff, 0xff, 0, 0, 0, 1, 0, 0xab,
					  0xcd, 0xef, 0x80, 0x01, 0, 0, 0, 0, 0, 1 };
	struct ea_gsi_path path = path_of(false);
	uint8_t mad[EA_MAD_LEN], pkt[EA_GSI_LEN];

	(void)state;
	assert_int_equal(EA_GSI_LEN, 280);
	fill_mad(mad, 1);
	ea_gsi_encode(pkt, &path, 1, 0xabcdef, mad);
	assert_memory_equal(pkt, head, sizeof(head));
	assert_memory_equal(pkt + 20, mad, sizeof(mad));
	ea_gsi_encode(pkt, &path, 0x123456, 0, mad);
	assert_int_equal(pkt[5], 0x12);
	assert_int_equal(pkt[6], 0x34);
	assert_int_equal(pkt[7], 0x56);
}

static void icrc_sent(void **state)
{
	uint8_t mad[EA_MAD_LEN], pkt[EA_GSI_LEN], wire[DATAGRAM_MAX];
	struct ea_gsi_head head;
	size_t bth;
	int v6;

	(void)state;
	for (v6 = 0; v6 < 2; v6++) {
		struct ea_gsi_path path = path_of(v6);

		fill_mad(mad, 7 + v6);
		ea_gsi_encode(pkt, &path, 1, 5, mad);
		/* the kernel's datagram: id 0, DF */
		bth = datagram(wire, &path, pkt, EA_GSI_LEN, 0);
		assert_int_equal(wire_icrc(pkt), slow_icrc(wire, bth, EA_GSI_LEN));
		assert_int_equal(ea_gsi_decode(pkt, EA_GSI_LEN, &path, &head), EA_GSI_GOOD);
		assert_int_equal(head.src_qp, 1);
		assert_int_equal(head.psn, 5);
		assert_memory_equal(head.mad, mad, sizeof(mad));
	}
}

/* What another stack sends: any id. */
static void icrc_received(void **state)
{
	struct ea_gsi_path path = path_of(false);
	uint8_t mad[EA_MAD_LEN], pkt[EA_GSI_LEN], wire[DATAGRAM_MAX];
	struct ea_gsi_head head;
	unsigned int i;
	uint16_t id;
	size_t bth;

	(void)state;
	path.sport = 49152;
	for (i = 0; i < 2000; i++) {
		id = i < 32 ? 1u << i / 2 : i * 31337;
		fill_mad(mad, i);
		ea_gsi_encode(pkt, &path, 1, i, mad);
		bth = datagram(wire, &path, pkt, EA_GSI_LEN, id);
		set_icrc(pkt, slow_icrc(wire, bth, EA_GSI_LEN));
		assert_int_equal(ea_gsi_decode(pkt, EA_GSI_LEN, &path, &head), EA_GSI_GOOD);
		assert_int_equal(wire_icrc(pkt), ea_gsi_icrc(pkt, EA_GSI_LEN - 4, &path, id));
	}
}

/* What the kernel sent. */
static void icrc_of_rxe(void **state)
{
	struct ea_gsi_head head;
	struct ea_gsi_path path;

	(void)state;
	path = path_of(false);
	memcpy(path.sgid, v4_b, 16);
	memcpy(path.dgid, v4_a, 16);
	path.sport = RXE_IPV4_PORT;
	assert_int_equal(wire_icrc(rxe_ipv4),
			 ea_gsi_icrc(rxe_ipv4, EA_GSI_LEN - 4, &path, RXE_IPV4_ID));
	assert_int_equal(ea_gsi_decode(rxe_ipv4, sizeof(rxe_ipv4), &path, &head), EA_GSI_GOOD);
	path = path_of(true);
	memcpy(path.sgid, v6_b, 16);
	memcpy(path.dgid, v6_a, 16);
	path.sport = RXE_IPV6_PORT;
	assert_int_equal(wire_icrc(rxe_ipv6), ea_gsi_icrc(rxe_ipv6, EA_GSI_LEN - 4, &path, 0));
	assert_int_equal(ea_gsi_decode(rxe_ipv6, sizeof(rxe_ipv6), &path, &head), EA_GSI_GOOD);
}

/* Every single bit, and random bursts, in what both sides know. */
static void damage(void **state)
{
	uint8_t mad[EA_MAD_LEN], pkt[EA_GSI_LEN], bad[EA_GSI_LEN];
	unsigned int v6, bit, i, at, missed = 0, tried = 0;
	struct ea_gsi_head head;

	(void)state;
	for (v6 = 0; v6 < 2; v6++) {
		struct ea_gsi_path path = path_of(v6);

		fill_mad(mad, 3);
		ea_gsi_encode(pkt, &path, 1, 9, mad);
		for (bit = 0; bit < EA_GSI_LEN * 8; bit++) {
			memcpy(bad, pkt, sizeof(bad));
			bad[bit / 8] ^= 1 << bit % 8;
			/* what a switch may change is not covered */
			assert_int_equal(ea_gsi_decode(bad, EA_GSI_LEN, &path, &head) ==
						 EA_GSI_GOOD,
					 bit / 8 == 4);
		}
		for (i = 0; i < 100000; i++) {
			memcpy(bad, pkt, sizeof(bad));
			at = 20 + i * 7919 % 250;
			bad[at] ^= 1 + i % 255;
			bad[at + 2] ^= i >> 3;
			bad[at + 5] ^= i >> 9;
			tried += !v6;
			if (ea_gsi_decode(bad, EA_GSI_LEN, &path, &head) == EA_GSI_GOOD) {
				assert_false(v6);
				missed++;
			}
		}
		/* the addresses and the ports are covered, too */
		path.dgid[15] ^= 1;
		assert_int_equal(ea_gsi_decode(pkt, EA_GSI_LEN, &path, &head), EA_GSI_BAD_ICRC);
		path.dgid[15] ^= 1;
		path.sport ^= 1;
		assert_int_equal(ea_gsi_decode(pkt, EA_GSI_LEN, &path, &head), EA_GSI_BAD_ICRC);
	}
	/* over IPv4, one of 2^16 would have the CRC of another id */
	assert_true(missed < tried >> 12);
}

static void refused(void **state)
{
	static const struct {
		size_t at;
		uint8_t value;
		enum ea_gsi_verdict verdict;
	} cases[] = {
		{ 0, 0x65, EA_GSI_BAD_BTH },  { 0, 0x04, EA_GSI_BAD_BTH },
		{ 1, 0x10, EA_GSI_BAD_BTH },  { 1, 0x01, EA_GSI_BAD_BTH },
		{ 2, 0x12, EA_GSI_BAD_PKEY }, { 7, 2, EA_GSI_BAD_QPN },
		{ 5, 1, EA_GSI_BAD_QPN },     { 12, 0, EA_GSI_BAD_QKEY },
		{ 15, 1, EA_GSI_BAD_QKEY },
	};
	struct ea_gsi_path path = path_of(true);
	uint8_t mad[EA_MAD_LEN], pkt[EA_GSI_LEN];
	struct ea_gsi_head head;
	size_t i, len;

	(void)state;
	fill_mad(mad, 3);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ea_gsi_encode(pkt, &path, 1, 9, mad);
		pkt[cases[i].at] = cases[i].value;
		set_icrc(pkt, ea_gsi_icrc(pkt, EA_GSI_LEN - 4, &path, 0));
		assert_int_equal(ea_gsi_decode(pkt, EA_GSI_LEN, &path, &head), cases[i].verdict);
	}
	ea_gsi_encode(pkt, &path, 1, 9, mad);
	for (len = 0; len < EA_GSI_LEN; len++)
		assert_int_equal(ea_gsi_decode(pkt, len, &path, &head), EA_GSI_BAD_LENGTH);
	/* solicited event, migration state, limited membership of the partition: all are taken */
	pkt[1] = 0xc0;
	pkt[2] = 0x7f;
	set_icrc(pkt, ea_gsi_icrc(pkt, EA_GSI_LEN - 4, &path, 0));
	assert_int_equal(ea_gsi_decode(pkt, EA_GSI_LEN, &path, &head), EA_GSI_GOOD);
}

static void responses(void **state)
{
	uint8_t mad[EA_MAD_LEN] = { 1, EA_MAD_CLASS_PERF, 1, EA_MAD_METHOD_GET };

	(void)state;
	assert_false(ea_mad_is_response(mad));
	mad[EA_MAD_AT_METHOD] = EA_MAD_METHOD_GET_RESP;
	assert_true(ea_mad_is_response(mad));
	mad[EA_MAD_AT_METHOD] = EA_MAD_METHOD_TRAP_REPRESS;
	assert_true(ea_mad_is_response(mad));
	mad[EA_MAD_AT_METHOD] = EA_MAD_METHOD_SEND;
	mad[EA_MAD_AT_CLASS] = EA_MAD_CLASS_BM;
	assert_false(ea_mad_is_response(mad));
	mad[23] = 1;
	assert_true(ea_mad_is_response(mad));
	ea_mad_set_tid(mad, 0x0102030405060708);
	assert_int_equal(mad[8], 1);
	assert_int_equal(mad[15], 8);
	assert_true(ea_mad_tid(mad) == 0x0102030405060708);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(layout),	 cmocka_unit_test(icrc_sent),
		cmocka_unit_test(icrc_received), cmocka_unit_test(icrc_of_rxe),
		cmocka_unit_test(damage),	 cmocka_unit_test(refused),
		cmocka_unit_test(responses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
