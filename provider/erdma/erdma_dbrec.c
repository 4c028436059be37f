// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

#include <config.h>

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <util/bitmap.h>
#include <util/util.h>

#include "erdma_buf.h"
#include "erdma_dbrec.h"

#define ERDMA_DBREC_SLOT_SIZE 16

struct erdma_dbrec_page {
	struct list_node entry; /* pages with free slots stand first */
	struct erdma_buf buf;
	unsigned int num_slots;
	unsigned int num_used;
	unsigned long used[];
};

void erdma_dbrec_pool_init(struct erdma_dbrec_pool *pool)
{
	pthread_mutex_init(&pool->lock, NULL);
	list_head_init(&pool->pages);
}

void erdma_dbrec_pool_destroy(struct erdma_dbrec_pool *pool)
{
	struct erdma_dbrec_page *page, *next;

	list_for_each_safe(&pool->pages, page, next, entry) {
		list_del(&page->entry);
		erdma_buf_free(&page->buf);
		free(page);
	}
	pthread_mutex_destroy(&pool->lock);
}

static struct erdma_dbrec_page *add_page(struct erdma_dbrec_pool *pool)
{
	struct erdma_dbrec_page *page;
	struct erdma_buf buf;
	unsigned int slots;

	if (erdma_buf_alloc(&buf, ERDMA_DBREC_SLOT_SIZE, NULL, 0))
		return NULL;

	slots = buf.size / ERDMA_DBREC_SLOT_SIZE;
	page = calloc(1, sizeof(*page) + BITS_TO_LONGS(slots) * sizeof(unsigned long));
	if (!page) {
		erdma_buf_free(&buf);
		return NULL;
	}

	page->buf = buf;
	page->num_slots = slots;
	list_add(&pool->pages, &page->entry);
	return page;
}

__le64 *erdma_dbrec_alloc(struct erdma_dbrec_pool *pool)
{
	struct erdma_dbrec_page *page;
	unsigned int slot;
	void *rec = NULL;

	pthread_mutex_lock(&pool->lock);
	page = list_top(&pool->pages, struct erdma_dbrec_page, entry);
	if (!page || page->num_used == page->num_slots)
		page = add_page(pool);
	if (!page)
		goto out;

	slot = bitmap_find_free_region(page->used, page->num_slots, 1);
	bitmap_set_bit(page->used, slot);
	if (++page->num_used == page->num_slots) {
		list_del(&page->entry);
		list_add_tail(&pool->pages, &page->entry);
	}

	rec = page->buf.addr + slot * ERDMA_DBREC_SLOT_SIZE;
	memset(rec, 0, ERDMA_DBREC_SLOT_SIZE);
out:
	pthread_mutex_unlock(&pool->lock);
	return rec;
}

static struct erdma_dbrec_page *find_page(struct erdma_dbrec_pool *pool, uintptr_t addr)
{
	struct erdma_dbrec_page *page;

	list_for_each(&pool->pages, page, entry) {
		if (addr - (uintptr_t)page->buf.addr < page->buf.size)
			return page;
	}
	return NULL;
}

void erdma_dbrec_free(struct erdma_dbrec_pool *pool, __le64 *rec)
{
	struct erdma_dbrec_page *page, *other;

	pthread_mutex_lock(&pool->lock);
	page = find_page(pool, (uintptr_t)rec);
	assert(page);

	bitmap_clear_bit(page->used,
			 ((uintptr_t)rec - (uintptr_t)page->buf.addr) / ERDMA_DBREC_SLOT_SIZE);
	page->num_used--;

	list_del(&page->entry);
	other = list_top(&pool->pages, struct erdma_dbrec_page, entry);
	/* The last page with room stays even when empty, so that a loop does not map and unmap. */
	if (!page->num_used && other && other->num_used < other->num_slots) {
		erdma_buf_free(&page->buf);
		free(page);
	} else {
		list_add(&pool->pages, &page->entry);
	}
	pthread_mutex_unlock(&pool->lock);
}
