// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <assert.h>
#include <endian.h>
#include <string.h>
#include <linux/types.h>

#include "adapter/wire/ddp.h"

enum {
	DDP_TAGGED = 0x80,
	DDP_LAST = 0x40,
	DDP_VERSION = 0x03,
};

struct ddp_tagged {
	uint8_t ctrl;
	uint8_t ulp_ctrl;
	__be32 stag;
	__be64 to;
} __attribute__((packed));

struct ddp_untagged {
	uint8_t ctrl;
	uint8_t ulp_ctrl;
	__be32 ulp_word;
	__be32 qn;
	__be32 msn;
	__be32 mo;
} __attribute__((packed));

static_assert(sizeof(struct ddp_tagged) == EA_DDP_TAGGED_LEN, "tagged DDP header");
static_assert(sizeof(struct ddp_untagged) == EA_DDP_UNTAGGED_LEN, "untagged DDP header");

uint32_t ea_ddp_hdr_len(uint8_t ctrl)
{
	return ctrl & DDP_TAGGED ? EA_DDP_TAGGED_LEN : EA_DDP_UNTAGGED_LEN;
}

uint32_t ea_ddp_encode(const struct ea_ddp_hdr *hdr, void *buf)
{
	uint8_t ctrl = EA_DDP_VERSION;

	if (hdr->last)
		ctrl |= DDP_LAST;
	if (hdr->tagged) {
		struct ddp_tagged *tagged = buf;

		tagged->ctrl = ctrl | DDP_TAGGED;
		tagged->ulp_ctrl = hdr->ulp_ctrl;
		tagged->stag = htobe32(hdr->stag);
		tagged->to = htobe64(hdr->to);
		return sizeof(*tagged);
	} else {
		struct ddp_untagged *untagged = buf;

		untagged->ctrl = ctrl;
		untagged->ulp_ctrl = hdr->ulp_ctrl;
		untagged->ulp_word = htobe32(hdr->ulp_word);
		untagged->qn = htobe32(hdr->qn);
		untagged->msn = htobe32(hdr->msn);
		untagged->mo = htobe32(hdr->mo);
		return sizeof(*untagged);
	}
}

enum ea_ddp_err ea_ddp_decode(const void *buf, size_t len, struct ea_ddp_hdr *hdr)
{
	const struct ddp_untagged *untagged = buf;
	const struct ddp_tagged *tagged = buf;

	memset(hdr, 0, sizeof(*hdr));
	if (!len)
		return EA_DDP_SHORT;
	hdr->tagged = tagged->ctrl & DDP_TAGGED;
	hdr->last = tagged->ctrl & DDP_LAST;
	if ((tagged->ctrl & DDP_VERSION) != EA_DDP_VERSION)
		return hdr->tagged ? EA_DDP_TAGGED_VERSION : EA_DDP_UNTAGGED_VERSION;
	if (len < ea_ddp_hdr_len(tagged->ctrl))
		return EA_DDP_SHORT;

	hdr->ulp_ctrl = tagged->ulp_ctrl;
	if (hdr->tagged) {
		hdr->stag = be32toh(tagged->stag);
		hdr->to = be64toh(tagged->to);
	} else {
		hdr->ulp_word = be32toh(untagged->ulp_word);
		hdr->qn = be32toh(untagged->qn);
		hdr->msn = be32toh(untagged->msn);
		hdr->mo = be32toh(untagged->mo);
	}
	return EA_DDP_OK;
}
