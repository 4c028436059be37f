/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Doorbell records: the copy of a queue's newest doorbell value in memory.
 *
 * A context owns pages of 16-byte slots. A QP takes a slot for its two records (send queue first),
 * a CQ takes one for its single record; a slot never crosses a page. The kernel pins a page as long
 * as one of its slots is in use, so a page stays where it is until the last of them is given back.
 */
#ifndef ERDMA_DBREC_H
#define ERDMA_DBREC_H

#include <linux/types.h>
#include <pthread.h>

#include <ccan/list.h>

struct erdma_dbrec_pool {
	pthread_mutex_t lock;
	struct list_head pages;
};

void erdma_dbrec_pool_init(struct erdma_dbrec_pool *pool);

/* Frees every page; the objects that used them are gone. */
void erdma_dbrec_pool_destroy(struct erdma_dbrec_pool *pool);

/* Gets a zeroed slot: two records. NULL with errno when memory is short. Any thread. */
__le64 *erdma_dbrec_alloc(struct erdma_dbrec_pool *pool);

/* Gives a slot back. The kernel object that used it is gone. Keeps errno. Any thread. */
void erdma_dbrec_free(struct erdma_dbrec_pool *pool, __le64 *rec);

#endif
