// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The device: tables of objects by number, reset, counters.
 */
#include <stdlib.h>

#include "adapter/core/core_internal.h"

enum {
	NUMBERS_MAX = 1 << 20, /* width of QPNs and CQNs in queue entries */
	STAGS_MAX = 1 << 24,
	CQE_SHIFT_MAX = 23, /* doorbells carry 24 bits of a consumer index */
	RQ_SHIFT_MAX = 15,
};

struct ea_dev *ea_dev_create(const struct ea_dev_attr *attr, const struct ea_dma_ops *dma,
			     const struct ea_host_ops *host, void *ctx)
{
	struct ea_dev *dev;

	if (attr->max_qp < 2 || attr->max_qp > NUMBERS_MAX || (attr->max_qp & (attr->max_qp - 1)) ||
	    attr->max_cq < 2 || attr->max_cq > NUMBERS_MAX || attr->max_mr < 2 ||
	    attr->max_mr > STAGS_MAX || attr->max_cqe_shift > CQE_SHIFT_MAX ||
	    attr->max_rq_shift > RQ_SHIFT_MAX) {
		errno = EINVAL;
		return NULL;
	}
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return NULL;
	dev->attr = *attr;
	dev->dma = dma;
	dev->host = host;
	dev->ctx = ctx;
	dev->qps = calloc(attr->max_qp, sizeof(*dev->qps));
	if (!dev->qps)
		goto err_dev;
	dev->cqs = calloc(attr->max_cq, sizeof(*dev->cqs));
	if (!dev->cqs)
		goto err_qps;
	dev->mrs = calloc(attr->max_mr, sizeof(*dev->mrs));
	if (!dev->mrs)
		goto err_cqs;
	return dev;

err_cqs:
	free(dev->cqs);
err_qps:
	free(dev->qps);
err_dev:
	free(dev);
	errno = ENOMEM;
	return NULL;
}

void ea_dev_reset(struct ea_dev *dev)
{
	uint32_t i;

	for (i = 0; i < dev->attr.max_qp; i++)
		if (dev->qps[i])
			ea_qp_free(dev, i);
	for (i = 0; i < dev->attr.max_cq; i++)
		if (dev->cqs[i])
			ea_cq_free(dev, i);
	for (i = 0; i < dev->attr.max_mr; i++) {
		free(dev->mrs[i]);
		dev->mrs[i] = NULL;
	}
	dev->gen++;
}

void ea_dev_destroy(struct ea_dev *dev)
{
	ea_dev_reset(dev);
	free(dev->mrs);
	free(dev->cqs);
	free(dev->qps);
	free(dev);
}

void ea_dev_memory_changed(struct ea_dev *dev)
{
	dev->gen++;
}

void ea_dev_stats(const struct ea_dev *dev, struct ea_stats *stats)
{
	*stats = dev->stats;
}
