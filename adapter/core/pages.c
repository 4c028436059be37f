// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Page lists: from a byte offset of a region or ring to host memory.
 */
#include "adapter/core/core_internal.h"

enum {
	PAGE_SHIFT_MIN = 12,
	PAGE_SHIFT_MAX = 30,
	NODE_SHIFT = 9, /* entries of a tree node */
	NODE_MASK = (1 << NODE_SHIFT) - 1,
	PTE_SIZE = 8,
};

/* Keeps all sums of page arithmetic far below 2^64. */
static const uint64_t npages_max = 1ull << 32;

static uint64_t tree_capacity(enum ea_pages_form form)
{
	switch (form) {
	case EA_PAGES_INLINE:
		return 4;
	case EA_PAGES_TREE2:
		return 1ull << (2 * NODE_SHIFT);
	case EA_PAGES_TREE3:
		return 1ull << (3 * NODE_SHIFT);
	default:
		return npages_max;
	}
}

bool ea_pages_cover(const struct ea_pages *pages, uint64_t len)
{
	uint64_t end;

	switch (pages->form) {
	case EA_PAGES_FLAT:
		return !__builtin_add_overflow(pages->addr[0], len ? len - 1 : 0, &end);
	case EA_PAGES_INLINE:
	case EA_PAGES_ARRAY:
	case EA_PAGES_TREE2:
	case EA_PAGES_TREE3:
		break;
	default:
		return false;
	}
	if (pages->page_shift < PAGE_SHIFT_MIN || pages->page_shift > PAGE_SHIFT_MAX)
		return false;
	if (pages->npages > tree_capacity(pages->form))
		return false;
	if (__builtin_add_overflow(pages->first_off, len, &end))
		return false;
	return end <= pages->npages << pages->page_shift;
}

static bool read_pte(const struct ea_dev *dev, uint64_t at, uint64_t *pte)
{
	size_t len = PTE_SIZE;
	const void *p = dev->dma->map(dev->ctx, at, &len, false);

	if (!p || len < PTE_SIZE)
		return false;
	*pte = ea_le64(p);
	ea_copied();
	return true;
}

static bool page_addr(const struct ea_dev *dev, const struct ea_pages *pages, uint64_t page,
		      uint64_t *addr)
{
	uint64_t node = pages->addr[0];

	switch (pages->form) {
	case EA_PAGES_INLINE:
		*addr = pages->addr[page & 3];
		return true;
	case EA_PAGES_TREE3:
		if (!read_pte(dev, node + (page >> (2 * NODE_SHIFT)) * PTE_SIZE, &node))
			return false;
		/* fallthrough */
	case EA_PAGES_TREE2:
		if (!read_pte(dev, node + ((page >> NODE_SHIFT) & NODE_MASK) * PTE_SIZE, &node))
			return false;
		return read_pte(dev, node + (page & NODE_MASK) * PTE_SIZE, addr);
	default:
		return read_pte(dev, node + page * PTE_SIZE, addr);
	}
}

void *ea_pages_map(const struct ea_dev *dev, const struct ea_pages *pages, uint64_t off,
		   size_t *len, bool write)
{
	uint64_t addr, in_page, page, page_size;
	void *p;

	if (pages->form == EA_PAGES_FLAT) {
		addr = pages->addr[0] + off;
	} else {
		off += pages->first_off;
		page = off >> pages->page_shift;
		if (page >= pages->npages || !page_addr(dev, pages, page, &addr))
			return NULL;
		page_size = 1ull << pages->page_shift;
		in_page = off & (page_size - 1);
		addr += in_page;
		if (*len > page_size - in_page)
			*len = page_size - in_page;
	}
	p = dev->dma->map(dev->ctx, addr, len, write);
	return *len ? p : NULL;
}

/* Find out whether the whole ring is one piece of host memory. */
static void ring_resolve(struct ea_dev *dev, struct ea_ring *ring)
{
	uint64_t size = ((uint64_t)ring->mask + 1) * EA_ENTRY_SIZE;
	uint64_t off = 0;
	uint8_t *base = NULL;
	uint8_t *p;
	size_t len;

	ring->base = NULL;
	ring->gen = dev->gen;
	while (off < size) {
		len = size - off;
		p = ea_pages_map(dev, &ring->pages, off, &len, ring->write);
		if (!p || (base && p != base + off))
			return;
		if (!base)
			base = p;
		off += len;
	}
	if ((uintptr_t)base % sizeof(uint64_t) == 0)
		ring->base = base;
}

int ea_ring_init(struct ea_dev *dev, struct ea_ring *ring, const struct ea_pages *pages,
		 uint8_t shift, bool write)
{
	uint64_t first = pages->form == EA_PAGES_FLAT ? pages->addr[0] : pages->first_off;

	if (!ea_pages_cover(pages, (uint64_t)EA_ENTRY_SIZE << shift))
		return EINVAL;
	if (first % (pages->form == EA_PAGES_FLAT ? sizeof(uint64_t) : (size_t)EA_ENTRY_SIZE))
		return EINVAL;
	ring->pages = *pages;
	ring->mask = (1u << shift) - 1;
	ring->write = write;
	ring_resolve(dev, ring);
	return 0;
}

void *ea_ring_entry_slow(struct ea_dev *dev, struct ea_ring *ring, uint32_t index)
{
	uint64_t off = (uint64_t)(index & ring->mask) * EA_ENTRY_SIZE;
	size_t len = EA_ENTRY_SIZE;
	void *p;

	if (ring->gen != dev->gen) {
		ring_resolve(dev, ring);
		if (ring->base)
			return ring->base + off;
	}
	p = ea_pages_map(dev, &ring->pages, off, &len, ring->write);
	if (!p || len < EA_ENTRY_SIZE || (uintptr_t)p % sizeof(uint64_t))
		return NULL;
	return p;
}
