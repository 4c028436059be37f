/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * CRC32C as MPA uses it (RFC 5044 section 4.4; the polynomial and byte order of iSCSI, RFC 3720
 * appendix B.4).
 *
 * A CRC is built in steps so that header, scattered payload and padding need not be contiguous:
 *
 *	crc = ea_crc32c_start();
 *	crc = ea_crc32c_add(crc, header, header_len);
 *	crc = ea_crc32c_add(crc, payload, payload_len);
 *	trailer = ea_crc32c_end(crc);
 *
 * Pure functions: any thread, no state.
 */
#ifndef EA_CRC32C_H
#define EA_CRC32C_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/types.h>

/* The value before the first byte. */
static inline uint32_t ea_crc32c_start(void)
{
	return UINT32_MAX;
}

/* Continue @crc over @len bytes at @buf; @buf may be NULL when @len is 0. */
uint32_t ea_crc32c_add(uint32_t crc, const void *buf, size_t len);

/* The finished value as it goes on the wire: its four bytes, lowest first. */
static inline __le32 ea_crc32c_end(uint32_t crc)
{
	return htole32(~crc);
}

#endif
