// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Protection domains, thread domains, parent domains. */

#include <errno.h>
#include <stdlib.h>

#include "erdma.h"

#define ERDMA_PARENT_DOMAIN_MASK \
	(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)

struct ibv_pd *erdma_alloc_pd(struct ibv_context *context)
{
	struct ib_uverbs_alloc_pd_resp resp;
	struct ibv_alloc_pd cmd = {};
	struct erdma_pd *pd;
	int ret;

	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;

	ret = ibv_cmd_alloc_pd(context, &pd->pd, &cmd, sizeof(cmd), &resp, sizeof(resp));
	if (ret) {
		free(pd);
		errno = ret;
		return NULL;
	}
	return &pd->pd;
}

static int dealloc_parent_domain(struct erdma_pd *pd)
{
	if (pd->td)
		atomic_fetch_sub(&pd->td->num_users, 1);
	atomic_fetch_sub(&pd->parent_of->num_users, 1);
	free(pd);
	return 0;
}

int erdma_dealloc_pd(struct ibv_pd *ibpd)
{
	struct erdma_pd *pd = to_epd(ibpd);
	int ret;

	/* The kernel knows nothing of parent domains, nor of who was created in one. */
	if (atomic_load(&pd->num_users))
		return EBUSY;
	if (pd->parent_of)
		return dealloc_parent_domain(pd);

	ret = ibv_cmd_dealloc_pd(ibpd);
	if (ret)
		return ret;

	free(pd);
	return 0;
}

struct ibv_td *erdma_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct erdma_td *td;

	if (attr->comp_mask) {
		verbs_err(&to_ectx(context)->vctx, "thread domain: unknown comp_mask %#x\n",
			  attr->comp_mask);
		errno = EOPNOTSUPP;
		return NULL;
	}

	td = calloc(1, sizeof(*td));
	if (!td)
		return NULL;

	td->td.context = context;
	return &td->td;
}

int erdma_dealloc_td(struct ibv_td *ibtd)
{
	struct erdma_td *td = to_etd(ibtd);

	if (atomic_load(&td->num_users))
		return EBUSY;

	free(td);
	return 0;
}

struct ibv_pd *erdma_alloc_parent_domain(struct ibv_context *context,
					 struct ibv_parent_domain_init_attr *attr)
{
	struct erdma_pd *pd, *real;

	if (ibv_check_alloc_parent_domain(attr))
		return NULL;
	if (!check_comp_mask(attr->comp_mask, ERDMA_PARENT_DOMAIN_MASK)) {
		verbs_err(&to_ectx(context)->vctx, "parent domain: unknown comp_mask %#x\n",
			  attr->comp_mask);
		errno = EOPNOTSUPP;
		return NULL;
	}
	if ((attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) &&
	    (!attr->alloc || !attr->free)) {
		verbs_err(&to_ectx(context)->vctx,
			  "parent domain: alloc and free must both be given\n");
		errno = EINVAL;
		return NULL;
	}
	real = to_epd(attr->pd);
	if (real->parent_of) {
		verbs_err(&to_ectx(context)->vctx, "parent domain: the PD is a parent domain\n");
		errno = EINVAL;
		return NULL;
	}

	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;

	pd->parent_of = real;
	atomic_fetch_add(&real->num_users, 1);
	if (attr->td) {
		pd->td = to_etd(attr->td);
		atomic_fetch_add(&pd->td->num_users, 1);
	}
	pd->allocator.pd = &pd->pd;
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
		pd->allocator.alloc = attr->alloc;
		pd->allocator.free = attr->free;
	}
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		pd->allocator.pd_context = attr->pd_context;
	ibv_initialize_parent_domain(&pd->pd, &real->pd);
	return &pd->pd;
}

void erdma_pd_get(struct erdma_pd *pd)
{
	if (pd->parent_of)
		atomic_fetch_add(&pd->num_users, 1);
}

void erdma_pd_put(struct erdma_pd *pd)
{
	if (pd->parent_of)
		atomic_fetch_sub(&pd->num_users, 1);
}
