/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A device for fuzzing: two connected QPs in one memory, of which parts must never be read or written.
 *
 * Layout by page of 4 KiB: 0-1 SQ of A, 2-3 SQ of B, 4 RQs, 5-6 CQs, 8-23 the region, 24-26 page
 * lists, all else secret.
 */
#ifndef FUZZ_CORE_BOX_H
#define FUZZ_CORE_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "adapter/core/core.h"
#include "adapter/wire/rdmap.h"

enum {
	BOX_PAGE = 4096,
	BOX_PAGES = 32,
	BOX_SIZE = BOX_PAGE * BOX_PAGES,
	BOX_SQ_SHIFT = 8,
	BOX_RQ_SHIFT = 5,
	BOX_CQ_SHIFT = 7,
	BOX_PD = 3,
	BOX_STAG = 0x100,
	BOX_FRMR = 0x200,
	BOX_FRMR_PAGES = 4,
	BOX_FOREIGN = 0x300, /* of another protection domain */
	BOX_LIST_PAGE = 24,
};

#define BOX_BUS	       0x100000000ull
#define BOX_REGION     (BOX_BUS + 8 * BOX_PAGE)
#define BOX_REGION_LEN (16u * BOX_PAGE)
#define BOX_LIST       (BOX_BUS + BOX_LIST_PAGE * BOX_PAGE)
#define BOX_NODE2      (BOX_LIST + BOX_PAGE)
#define BOX_NODE3      (BOX_NODE2 + BOX_PAGE)

struct box_side {
	struct ea_link link;
	bool ready, resumed, shut, held, busy;
	enum ea_shutdown how;
	struct ea_tx_msg msg;
	uint32_t off;
};

struct box {
	struct ea_dev *dev;
	uint8_t *mem;
	struct box_side side[2];
	bool scattered;
	bool acks;
	uint32_t unmapped; /* a page that is not there; 0: all are */
	uint8_t depth;	   /* READs each side may have in flight */
};

/* @how: bit 0 scattered memory, bits 2:1 the form of the region's page list, bit 3 acknowledgements. */
void box_open(struct box *box, uint8_t how);
void box_close(struct box *box); /* checks that the secret is whole */
void box_connect(struct box *box);

/* Let @from send one segment to the other side; false when it had none. */
bool box_step(struct box *box, int from);

/* Give a segment to @to as a link does. */
int box_feed(struct box *box, int to, const struct ea_rx_seg *seg, const void *payload);

/* Aborts when a piece lies outside what the peer or the device may touch. */
void box_check_iov(const struct box *box, const struct iovec *iov, int n, bool ring_ok);

#endif
