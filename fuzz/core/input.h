/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* The fuzzer's bytes, taken one after the other; zeros when there are no more. */
#ifndef FUZZ_CORE_INPUT_H
#define FUZZ_CORE_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct input {
	const uint8_t *p;
	size_t left;
};

static inline uint8_t u8(struct input *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->p++;
}

static inline uint16_t u16(struct input *in)
{
	uint16_t v = u8(in);

	return (uint16_t)(v | u8(in) << 8);
}

static inline void put64(uint8_t *p, uint64_t v)
{
	memcpy(p, &v, sizeof(v));
}

static inline void put32(uint8_t *p, uint32_t v)
{
	memcpy(p, &v, sizeof(v));
}

#endif
