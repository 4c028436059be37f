/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Keyed hashing for tables whose keys strangers choose (GIDs, communication ids). Not cryptographic, but
 * without the key nobody can aim at one bucket. Pure functions.
 */
#ifndef MUX_HASH_H
#define MUX_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t mux_mix64(uint64_t a, uint64_t b)
{
	__extension__ unsigned __int128 m = (unsigned __int128)a * b;

	return (uint64_t)m ^ (uint64_t)(m >> 64);
}

/* Hash of two words under a key. */
static inline uint64_t mux_hash2(uint64_t key, uint64_t a, uint64_t b)
{
	return mux_mix64(a ^ key ^ 0x9e3779b97f4a7c15ULL,
			 mux_mix64(b ^ 0xd6e8feb86659fd93ULL, key | 1));
}

/* Hash of a GID and two words under a key. */
static inline uint64_t mux_hash_gid(uint64_t key, const uint8_t gid[16], uint64_t a, uint64_t b)
{
	uint64_t w[2];

	memcpy(w, gid, sizeof(w));
	return mux_hash2(mux_hash2(key, w[0], w[1]), a, b);
}

#endif
