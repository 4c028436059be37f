// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Protection domains and memory regions. */
#include <errno.h>
#include <stdlib.h>
#include "adapter/process/device.h"
#include "adapter/process/regions.h"
#include "adapter/process/uaccess.h"
#include "adapter/process/uverbs_internal.h"

#define MR_ACCESS_OPTIONAL 0x3ff00000u /* bits 20..29: may be ignored */

enum {
	MR_PAGE = 4096, /* start and iova must agree below this */
	MR_ACCESS_KNOWN = IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_WRITE |
			  IB_UVERBS_ACCESS_REMOTE_READ | IB_UVERBS_ACCESS_REMOTE_ATOMIC |
			  IB_UVERBS_ACCESS_MW_BIND | IB_UVERBS_ACCESS_ZERO_BASED |
			  IB_UVERBS_ACCESS_HUGETLB,
	MR_ACCESS_FLUSH = 1 << 8 | 1 << 9,
};

#define MR_MAX_SIZE (1ull << 46)

/* ------------------------------------------------------------------ PD */

int uv_pd_alloc(struct host_ctx *ctx, uint32_t *handle)
{
	struct uverbs_dev *uv = ctx->dev->uverbs;
	struct uv_pd *pd = calloc(1, sizeof(*pd));
	int ret;

	if (!pd)
		return -ENOMEM;
	pd->obj.type = UV_PD;
	engine_lock();
	pd->pdn = uv_pool_take(&uv->pdn);
	ret = pd->pdn ? uv_handle_new(ctx, &pd->obj) : -ENOMEM;
	if (ret && pd->pdn)
		uv_pool_give(&uv->pdn, pd->pdn);
	if (!ret) {
		*handle = pd->obj.handle;
		uv->sum.pd++;
	}
	engine_unlock();
	if (ret)
		free(pd);
	return ret;
}

void uv_pd_end(struct host_ctx *ctx, struct uv_pd *pd)
{
	uv_handle_free(ctx, pd->obj.handle);
	uv_pool_give(&ctx->dev->uverbs->pdn, pd->pdn);
	ctx->dev->uverbs->sum.pd--;
	free(pd);
}

int uv_pd_dealloc(struct host_ctx *ctx, uint64_t handle)
{
	struct uv_pd *pd;
	int ret = 0;

	engine_lock();
	pd = uv_handle_find(ctx, handle, UV_PD, &ret);
	if (pd && pd->users)
		ret = -EBUSY;
	else if (pd)
		uv_pd_end(ctx, pd);
	engine_unlock();
	return ret;
}

/* ------------------------------------------------------------------ MR */

static int check_access(uint32_t access)
{
	access &= ~MR_ACCESS_OPTIONAL;
	if (access & MR_ACCESS_FLUSH)
		return -EOPNOTSUPP;
	/* on-demand paging is among the unknown */
	if (access & ~MR_ACCESS_KNOWN)
		return -EINVAL;
	if ((access & (IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_ATOMIC)) &&
	    !(access & IB_UVERBS_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	return 0;
}

static uint32_t core_access(uint32_t access)
{
	uint32_t core = EA_ACCESS_LOCAL_READ;

	if (access & IB_UVERBS_ACCESS_LOCAL_WRITE)
		core |= EA_ACCESS_LOCAL_WRITE;
	if (access & IB_UVERBS_ACCESS_REMOTE_WRITE)
		core |= EA_ACCESS_REMOTE_WRITE;
	if (access & IB_UVERBS_ACCESS_REMOTE_READ)
		core |= EA_ACCESS_REMOTE_READ;
	if (access & IB_UVERBS_ACCESS_REMOTE_ATOMIC)
		core |= EA_ACCESS_REMOTE_ATOMIC;
	return core;
}

int uv_mr_reg(struct host_ctx *ctx, const struct uv_mr_req *req, struct ib_uverbs_reg_mr_resp *resp)
{
	struct uverbs_dev *uv = ctx->dev->uverbs;
	struct ea_mr_attr attr;
	uint32_t index = 0;
	struct uv_mr *mr;
	struct uv_pd *pd;
	int ret;

	if (!req->len || req->len > MR_MAX_SIZE ||
	    (req->start & (MR_PAGE - 1)) != (req->iova & (MR_PAGE - 1)) ||
	    req->iova + req->len < req->iova)
		return -EINVAL;
	ret = check_access(req->access);
	if (!ret)
		ret = uaccess_check_range(req->start, req->len,
					  req->access & IB_UVERBS_ACCESS_LOCAL_WRITE);
	if (ret)
		return ret;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	mr->obj.type = UV_MR;
	ret = regions_add(req->start, req->len);
	if (ret) {
		free(mr);
		return ret;
	}
	mr->start = req->start;
	mr->len = req->len;
	mr->iova = req->iova;
	engine_lock();
	pd = uv_handle_find(ctx, req->pd, UV_PD, &ret);
	if (!pd)
		goto err_unlock;
	ret = -ENOMEM;
	index = uv_pool_take(&uv->stag);
	if (!index)
		goto err_unlock;
	mr->stag = index << 8;
	mr->pd = pd;
	attr = (struct ea_mr_attr){
		.stag = mr->stag,
		.pdn = pd->pdn,
		.access = core_access(req->access),
		.type = EA_MR_NORMAL,
		.start = req->iova,
		.len = req->len,
		.pages = {
			.form = EA_PAGES_FLAT,
			.page_shift = 12,
			.npages = ((req->start & (MR_PAGE - 1)) + req->len + MR_PAGE - 1) / MR_PAGE,
			.addr = { req->start },
		},
	};
	ret = -ea_mr_reg(ctx->dev->core, &attr);
	if (ret)
		goto err_number;
	ret = uv_handle_new(ctx, &mr->obj);
	if (ret)
		goto err_dereg;
	pd->users++;
	uv->sum.mr++;
	*resp = (struct ib_uverbs_reg_mr_resp){
		.mr_handle = mr->obj.handle,
		.lkey = mr->stag,
		.rkey = mr->stag,
	};
	engine_unlock();
	return 0;

err_dereg:
	ea_mr_dereg(ctx->dev->core, mr->stag);
err_number:
	uv_pool_give(&uv->stag, index);
err_unlock:
	engine_unlock();
	regions_remove(mr->start, mr->len);
	free(mr);
	return ret;
}

void uv_mr_end(struct host_ctx *ctx, struct uv_mr *mr)
{
	ea_mr_dereg(ctx->dev->core, mr->stag);
	regions_remove(mr->start, mr->len);
	uv_handle_free(ctx, mr->obj.handle);
	uv_pool_give(&ctx->dev->uverbs->stag, mr->stag >> 8);
	ctx->dev->uverbs->sum.mr--;
	mr->pd->users--;
	free(mr);
}

int uv_mr_dereg(struct host_ctx *ctx, uint64_t handle)
{
	struct uv_mr *mr;
	int ret = 0;

	engine_lock();
	mr = uv_handle_find(ctx, handle, UV_MR, &ret);
	if (mr)
		uv_mr_end(ctx, mr);
	engine_unlock();
	return ret;
}
