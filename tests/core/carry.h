/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What a link does between two QPs, without a wire: cuts a message into segments, collects their payload
 * and hands them to the other side.  For the tests of the core and its fuzzers.
 */
#ifndef TESTS_CORE_CARRY_H
#define TESTS_CORE_CARRY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "adapter/core/core.h"

/*
 * Looks at each list of memory that the core has given, before it is used: @n pieces of @covered bytes, of
 * @wanted that were asked for.  Does not return when it is wrong.
 */
typedef void (*carry_check)(void *ctx, const struct iovec *iov, int n, uint32_t covered,
			    uint32_t wanted);

/* Payload bytes @off..@off+@len-1 of @msg as a segment, its raw header included. */
struct ea_rx_seg carry_segment(const struct ea_tx_msg *msg, uint32_t off, uint32_t len, bool last);

/* The raw header that belongs to the fields of @seg. */
void carry_raw_header(struct ea_rx_seg *seg);

/* Copy payload of @msg to @out.  0, or what ea_tx_payload() says. */
int carry_gather(struct ea_qp *qp, const struct ea_tx_msg *msg, uint32_t off, uint32_t len,
		 uint8_t *out, carry_check check, void *ctx);

/* Give a segment to @qp (NULL: ENOTCONN).  0 or what the core says. */
int carry_feed(struct ea_qp *qp, const struct ea_rx_seg *seg, const void *payload,
	       carry_check check, void *ctx);

#endif
