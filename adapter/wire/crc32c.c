// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <isa-l/crc.h>

#include "adapter/wire/crc32c.h"

/*
 * ISA-L counts in int and takes a pointer to non-const; it inverts neither on entry nor at the
 * end.
 */
#define CRC_STEP ((size_t)1 << 30)

uint32_t ea_crc32c_add(uint32_t crc, const void *buf, size_t len)
{
	const uint8_t *p = buf;

	while (len) {
		size_t step = len < CRC_STEP ? len : CRC_STEP;

		crc = crc32_iscsi((unsigned char *)p, (int)step, crc);
		p += step;
		len -= step;
	}
	return crc;
}
