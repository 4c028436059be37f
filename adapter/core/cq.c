// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Completion queues: writing entries, arming, firing.
 */
#include <stdlib.h>

#include "adapter/core/core_internal.h"

int ea_cq_create(struct ea_dev *dev, const struct ea_cq_attr *attr)
{
	struct ea_cq *cq;
	int err;

	if (!attr->cqn || attr->cqn >= dev->attr.max_cq ||
	    attr->depth_shift > dev->attr.max_cqe_shift)
		return EINVAL;
	if (dev->cqs[attr->cqn])
		return EEXIST;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return ENOMEM;
	err = ea_ring_init(dev, &cq->ring, &attr->pages, attr->depth_shift, true);
	if (err) {
		free(cq);
		return err;
	}
	cq->cqn = attr->cqn;
	cq->eqn = attr->eqn;
	cq->shift = attr->depth_shift;
	dev->cqs[attr->cqn] = cq;
	return 0;
}

void ea_cq_free(struct ea_dev *dev, uint32_t cqn)
{
	free(dev->cqs[cqn]);
	dev->cqs[cqn] = NULL;
}

int ea_cq_destroy(struct ea_dev *dev, uint32_t cqn)
{
	if (cqn >= dev->attr.max_cq || !dev->cqs[cqn])
		return ENOENT;
	if (dev->cqs[cqn]->refs)
		return EBUSY;
	ea_cq_free(dev, cqn);
	return 0;
}

static void cq_fire(struct ea_dev *dev, struct ea_cq *cq)
{
	cq->armed = false;
	dev->host->comp_event(dev->ctx, cq->cqn, cq->eqn, (uint32_t)cq->pi);
}

void ea_cq_post(struct ea_dev *dev, struct ea_cq *cq, const struct ea_cqe *cqe)
{
	struct ea_hw_cqe *slot;
	uint32_t header;

	if (ea_unlikely(cq->dead))
		return;
	slot = ea_ring_entry(dev, &cq->ring, (uint32_t)cq->pi);
	if (ea_unlikely(!slot)) {
		cq->dead = true;
		dev->host->async_event(dev->ctx, EA_ASYNC_CQ_ERR, cq->cqn);
		return;
	}

	header = EA_PREP(EA_CQE_OPCODE, cqe->opcode) | EA_PREP(EA_CQE_QTYPE, cqe->qtype) |
		 cqe->syndrome;
	if (!(cq->pi >> cq->shift & 1))
		header |= EA_CQE_OWNER;
	slot->index = htobe32(cqe->index);
	slot->qpn = htobe32(cqe->qpn);
	slot->extra = cqe->extra;
	slot->size = htobe32(cqe->size);
	memset(slot->rsvd, 0, sizeof(slot->rsvd));
	/* The owner bit gives the entry away: all the rest must be there before. */
	__atomic_store_n(&slot->header, htobe32(header), __ATOMIC_RELEASE);

	cq->pi++;
	if (cqe->solicited || cqe->syndrome)
		cq->sol_end = cq->pi;
	if (cq->armed && (!cq->armed_sol || cq->sol_end == cq->pi))
		cq_fire(dev, cq);
}

void ea_cq_nudge(struct ea_dev *dev, uint32_t cqn)
{
	if (cqn < dev->attr.max_cq && dev->cqs[cqn] && dev->cqs[cqn]->armed)
		cq_fire(dev, dev->cqs[cqn]);
}

void ea_db_cq(struct ea_dev *dev, uint64_t value)
{
	uint32_t cqn = EA_FIELD(EA_CQDB_CQN, value);
	struct ea_cq *cq;
	uint64_t unread;

	if (cqn >= dev->attr.max_cq || !dev->cqs[cqn] || !(value & EA_CQDB_ARM))
		return;
	cq = dev->cqs[cqn];
	/* A pending request for any completion is not narrowed by one for solicited ones. */
	cq->armed_sol = (value & EA_CQDB_SOL) && (!cq->armed || cq->armed_sol);
	cq->armed = true;

	/* Entries that software has not seen when it arms: it will not look again before an event. */
	unread = (cq->pi - EA_FIELD(EA_CQDB_CI, value)) & EA_CQDB_CI;
	if (unread && (!cq->armed_sol || cq->sol_end + unread > cq->pi))
		cq_fire(dev, cq);
}
