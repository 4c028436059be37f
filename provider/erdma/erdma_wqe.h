/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Building send WQEs: what ibv_post_send and the ibv_wr_* calls have in common.
 *
 * A WQE is written straight into the ring. One that starts so near the end that it may wrap is
 * built in a scratch buffer and copied block by block. Writing more blocks than are free would
 * destroy WQEs the adapter has not fetched, so the space is checked before anything but the first
 * block is written; the first block is free whenever any is.
 */
#ifndef ERDMA_WQE_H
#define ERDMA_WQE_H

#include <string.h>

#include "erdma.h"

/* Bits of a WQE header that an operation brings, besides those of the QP and the flags. */
#define ERDMA_WQE_OP(op) ((uint64_t)ERDMA_OP_##op << ERDMA_WQE_OPCODE_SHIFT)

/* Flags of a work request that have a bit in the header. */
#define ERDMA_SEND_FLAGS (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE)

static const uint32_t erdma_flag_bits[ERDMA_SEND_FLAGS + 1] = {
#define FLAG_BITS(f)                                        \
	[f] = ((f)&IBV_SEND_FENCE ? ERDMA_WQE_FENCE : 0) |  \
	      ((f)&IBV_SEND_SIGNALED ? ERDMA_WQE_CE : 0) |  \
	      ((f)&IBV_SEND_SOLICITED ? ERDMA_WQE_SE : 0) | \
	      ((f)&IBV_SEND_INLINE ? ERDMA_WQE_INLINE : 0)
	FLAG_BITS(0),  FLAG_BITS(1),  FLAG_BITS(2),  FLAG_BITS(3),  FLAG_BITS(4),  FLAG_BITS(5),
	FLAG_BITS(6),  FLAG_BITS(7),  FLAG_BITS(8),  FLAG_BITS(9),  FLAG_BITS(10), FLAG_BITS(11),
	FLAG_BITS(12), FLAG_BITS(13), FLAG_BITS(14), FLAG_BITS(15),
#undef FLAG_BITS
};

/* Blocks that the adapter has completed, or that were never used. */
static __erdma_inline uint32_t erdma_sq_free(const struct erdma_sq *sq, uint16_t pi)
{
	return sq->mask + 1 - (uint16_t)(pi - atomic_load_explicit(&sq->ci, memory_order_acquire));
}

/* Where to build the WQE that starts at @pi. */
static __erdma_inline uint8_t *erdma_wqe_start(const struct erdma_qp *qp, uint16_t pi)
{
	uint32_t block = pi & qp->sq.mask;

	if (unlikely(block > qp->sq.last_straight))
		return qp->scratch;
	return qp->sq.ring + (block << ERDMA_BLOCK_SHIFT);
}

static __erdma_inline uint32_t erdma_wqe_blocks(uint32_t size)
{
	return (size + ERDMA_BLOCK_SIZE - 1) >> ERDMA_BLOCK_SHIFT;
}

void erdma_wqe_copy(struct erdma_sq *sq, uint16_t pi, const uint8_t *wqe, uint32_t num_blocks);

static __erdma_inline void erdma_wqe_set_hdr(uint8_t *wqe, uint16_t pi, uint32_t num_blocks,
					     uint64_t hdr)
{
	hdr |= (uint64_t)(num_blocks - 1) << ERDMA_WQE_BLOCKS_SHIFT;
	hdr |= (uint16_t)(pi + num_blocks);
	*(__le64 *)wqe = htole64(hdr);
}

/* Finishes the WQE that starts at @pi: header, and the ring if it was built elsewhere. */
static __erdma_inline void erdma_wqe_finish(struct erdma_qp *qp, uint16_t pi, uint8_t *wqe,
					    uint32_t num_blocks, uint64_t hdr)
{
	erdma_wqe_set_hdr(wqe, pi, num_blocks, hdr);
	if (unlikely(wqe == qp->scratch))
		erdma_wqe_copy(&qp->sq, pi, wqe, num_blocks);
}

/* Copies up to ERDMA_MAX_INLINE bytes; never reads outside the source. */
static __erdma_inline void erdma_copy_inline(uint8_t *dst, const uint8_t *src, uint32_t len)
{
	struct word {
		uint64_t v;
	} __attribute__((packed, may_alias));
	struct half {
		uint32_t v;
	} __attribute__((packed, may_alias));

	if (len >= sizeof(struct word)) {
		uint32_t last = len - sizeof(struct word);
		uint32_t i;

		/* The last word may overlap the one before. */
		for (i = 0; i < last; i += sizeof(struct word))
			((struct word *)(dst + i))->v = ((const struct word *)(src + i))->v;
		((struct word *)(dst + last))->v = ((const struct word *)(src + last))->v;
	} else if (len >= sizeof(struct half)) {
		uint32_t last = len - sizeof(struct half);
		uint32_t first = ((const struct half *)src)->v;

		((struct half *)(dst + last))->v = ((const struct half *)(src + last))->v;
		((struct half *)dst)->v = first;
	} else if (len) {
		dst[0] = src[0];
		if (len > 1) {
			dst[1] = src[1];
			dst[len - 1] = src[len - 1];
		}
	}
}

#endif
