// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory regions: registration, keys, rights and bounds.
 */
#include <stdlib.h>

#include "adapter/core/core_internal.h"

#define STAG_INDEX_SHIFT 8
#define ACCESS_ALL                                                                \
	(EA_ACCESS_REMOTE_ATOMIC | EA_ACCESS_LOCAL_READ | EA_ACCESS_LOCAL_WRITE | \
	 EA_ACCESS_REMOTE_READ | EA_ACCESS_REMOTE_WRITE)
#define ACCESS_LOCAL (EA_ACCESS_LOCAL_READ | EA_ACCESS_LOCAL_WRITE)

int ea_mr_reg(struct ea_dev *dev, const struct ea_mr_attr *attr)
{
	uint32_t index = attr->stag >> STAG_INDEX_SHIFT;
	struct ea_mr *mr;
	uint64_t end;

	if (index >= dev->attr.max_mr || (attr->access & ~ACCESS_ALL))
		return EINVAL;
	if (dev->mrs[index])
		return EEXIST;
	switch (attr->type) {
	case EA_MR_NORMAL:
		if (attr->len && __builtin_add_overflow(attr->start, attr->len - 1, &end))
			return EINVAL;
		if (!ea_pages_cover(&attr->pages, attr->len))
			return EINVAL;
		break;
	case EA_MR_FRMR:
		if (attr->pages.form != EA_PAGES_ARRAY || !ea_pages_cover(&attr->pages, 0))
			return EINVAL;
		break;
	case EA_MR_DMA:
		break;
	default:
		return EINVAL;
	}

	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return ENOMEM;
	mr->stag = attr->stag;
	mr->pdn = attr->pdn;
	mr->access = attr->access;
	mr->type = attr->type;
	mr->valid = attr->type != EA_MR_FRMR;
	if (attr->type == EA_MR_DMA) {
		mr->len = UINT64_MAX;
		mr->pages.form = EA_PAGES_FLAT;
	} else {
		mr->start = attr->start;
		mr->len = attr->len;
		mr->pages = attr->pages;
		mr->frmr_array = attr->pages.addr[0];
		mr->frmr_npages = attr->pages.npages;
	}
	dev->mrs[index] = mr;
	return 0;
}

int ea_mr_dereg(struct ea_dev *dev, uint32_t stag)
{
	uint32_t index = stag >> STAG_INDEX_SHIFT;

	if (index >= dev->attr.max_mr || !dev->mrs[index])
		return ENOENT;
	free(dev->mrs[index]);
	dev->mrs[index] = NULL;
	return 0;
}

static struct ea_mr *mr_find(const struct ea_dev *dev, uint32_t stag)
{
	uint32_t index = stag >> STAG_INDEX_SHIFT;
	struct ea_mr *mr;

	if (ea_unlikely(index >= dev->attr.max_mr))
		return NULL;
	mr = dev->mrs[index];
	return mr && mr->stag == stag ? mr : NULL;
}

static inline enum ea_fault mr_lookup(const struct ea_qp *qp, uint32_t stag, uint64_t addr,
				      uint64_t len, uint32_t access, const struct ea_mr **found)
{
	static const struct ea_mr all_memory = {
		.len = UINT64_MAX,
		.pages.form = EA_PAGES_FLAT,
	};
	const struct ea_mr *mr = mr_find(qp->dev, stag);
	uint64_t end, off;

	if (ea_unlikely(!mr)) {
		if (!qp->dma_key_ok || !stag || stag != qp->dev->attr.dma_local_key ||
		    (access & ~ACCESS_LOCAL))
			return EA_FAULT_STAG;
		if (__builtin_add_overflow(addr, len - 1, &end))
			return EA_FAULT_WRAP;
		*found = &all_memory;
		return EA_FAULT_NONE;
	}
	if (ea_unlikely(!mr->valid))
		return EA_FAULT_STAG;
	if (ea_unlikely(mr->pdn != qp->pdn))
		return EA_FAULT_PD;
	if (ea_unlikely((mr->access & access) != access))
		return EA_FAULT_RIGHT;
	if (ea_unlikely(__builtin_add_overflow(addr, len - 1, &end)))
		return EA_FAULT_WRAP;
	if (mr->type != EA_MR_DMA) {
		off = addr - mr->start;
		if (ea_unlikely(addr < mr->start || off > mr->len || len > mr->len - off))
			return EA_FAULT_ADDR;
	}
	*found = mr;
	return EA_FAULT_NONE;
}

enum ea_fault ea_mr_check(const struct ea_qp *qp, uint32_t stag, uint64_t addr, uint64_t len,
			  uint32_t access)
{
	const struct ea_mr *mr;

	return mr_lookup(qp, stag, addr, len, access, &mr);
}

bool ea_iov_add(struct iovec *iov, int max, int *n, void *p, size_t len)
{
	if (*n && (uint8_t *)iov[*n - 1].iov_base + iov[*n - 1].iov_len == p) {
		iov[*n - 1].iov_len += len;
		return true;
	}
	if (*n >= max)
		return false;
	iov[*n].iov_base = p;
	iov[*n].iov_len = len;
	++*n;
	return true;
}

void ea_memory_lost(const struct ea_qp *qp, const struct iovec *iov, int n, bool write)
{
	const struct ea_dev *dev = qp->dev;
	int i;

	for (i = 0; i < n && dev->dma->lost; i++)
		dev->dma->lost(dev->ctx, iov[i].iov_base, iov[i].iov_len, write);
}

enum ea_fault ea_mr_iov(const struct ea_qp *qp, uint32_t stag, uint64_t addr, uint64_t len,
			uint32_t access, struct iovec *iov, int max, int *n, uint32_t *covered)
{
	bool write = access & ~(EA_ACCESS_LOCAL_READ | EA_ACCESS_REMOTE_READ);
	const struct ea_mr *mr;
	enum ea_fault fault;
	size_t piece;
	void *p;

	fault = mr_lookup(qp, stag, addr, len, access, &mr);
	if (ea_unlikely(fault))
		return fault;
	addr -= mr->start;
	while (len) {
		piece = len;
		p = ea_pages_map(qp->dev, &mr->pages, addr, &piece, write);
		if (ea_unlikely(!p))
			return EA_FAULT_ADDR;
		if (!ea_iov_add(iov, max, n, p, piece))
			break;
		addr += piece;
		len -= piece;
		*covered += piece;
	}
	return EA_FAULT_NONE;
}

/* ------------------------------------------------------------------ work requests on regions */

/* An FRMR of the QP's PD, whatever its key byte. */
static uint8_t frmr_find(const struct ea_qp *qp, uint32_t stag, struct ea_mr **found)
{
	struct ea_dev *dev = qp->dev;
	uint32_t index = stag >> STAG_INDEX_SHIFT;
	struct ea_mr *mr = index < dev->attr.max_mr ? dev->mrs[index] : NULL;

	if (!mr || mr->type != EA_MR_FRMR)
		return EA_SYN_SEND_STAG;
	if (mr->pdn != qp->pdn)
		return EA_SYN_SEND_PD;
	*found = mr;
	return EA_SYN_SUCCESS;
}

uint8_t ea_mr_fastreg(const struct ea_qp *qp, const uint8_t *wqe, uint32_t wqe_len)
{
	uint32_t attrs = ea_le32(wqe + EA_REG_ATTRS);
	uint32_t stag = ea_le32(wqe + EA_REG_STAG);
	uint64_t iova = ea_le64(wqe + EA_REG_IOVA);
	uint32_t len = ea_le32(wqe + EA_REG_LENGTH);
	uint32_t count = EA_FIELD(EA_REG_MTT_CNT, attrs);
	struct ea_pages pages;
	struct ea_mr *mr;
	uint8_t syn;
	uint64_t end;
	uint32_t i;

	syn = frmr_find(qp, stag, &mr);
	if (syn)
		return syn;
	/* A valid STag must be invalidated before it can be bound anew. */
	if (mr->valid)
		return EA_SYN_SEND_STAG;
	if (len && __builtin_add_overflow(iova, (uint64_t)len - 1, &end))
		return EA_SYN_SEND_WRAP;

	pages = mr->pages;
	pages.npages = count;
	pages.first_off = iova & ((1ull << pages.page_shift) - 1);
	switch (EA_FIELD(EA_REG_MTT_TYPE, attrs)) {
	case EA_REG_MTT_INLINE:
		if (count > EA_REG_INLINE_MAX || EA_REG_PAGES + count * 8 > wqe_len)
			return EA_SYN_SEND_FORMAT;
		pages.form = EA_PAGES_INLINE;
		for (i = 0; i < count; i++)
			pages.addr[i] = ea_le64(wqe + EA_REG_PAGES + i * 8);
		break;
	case EA_REG_MTT_ARRAY:
		if (count > mr->frmr_npages)
			return EA_SYN_SEND_FORMAT;
		pages.form = EA_PAGES_ARRAY;
		pages.addr[0] = mr->frmr_array;
		break;
	default:
		return EA_SYN_SEND_FORMAT;
	}
	if (!ea_pages_cover(&pages, len))
		return EA_SYN_SEND_ADDR;

	mr->pages = pages;
	mr->stag = stag;
	mr->access = EA_FIELD(EA_REG_ACCESS, attrs);
	mr->start = iova;
	mr->len = len;
	mr->valid = true;
	return EA_SYN_SUCCESS;
}

uint8_t ea_mr_local_inv(const struct ea_qp *qp, uint32_t stag)
{
	struct ea_mr *mr;
	uint8_t syn;

	syn = frmr_find(qp, stag, &mr);
	if (syn)
		return syn;
	if (mr->stag != stag)
		return EA_SYN_SEND_STAG;
	/* May have been invalidated by the peer already; that is no error. */
	mr->valid = false;
	return EA_SYN_SUCCESS;
}

bool ea_mr_remote_inv(const struct ea_qp *qp, uint32_t stag)
{
	struct ea_mr *mr = mr_find(qp->dev, stag);

	if (!mr || mr->type == EA_MR_DMA || mr->pdn != qp->pdn)
		return false;
	/* What the peer may not touch it may not take away either. */
	if (mr->valid && !(mr->access & ~ACCESS_LOCAL))
		return false;
	mr->valid = false;
	return true;
}
