// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Memory regions. */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "erdma.h"

#define ERDMA_ACCESS_REMOTE_CHANGE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

/*
 * The kernel takes several flags without acting on them. A flag that changes what an address means
 * or promises an object that does not exist is refused here; one that is only a hint passes.
 */
#define ERDMA_ACCESS_KNOWN                                                           \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB |     \
	 IBV_ACCESS_OPTIONAL_RANGE)

static int check_access(struct erdma_context *ctx, int access)
{
	if (access & ~ERDMA_ACCESS_KNOWN) {
		verbs_err(&ctx->vctx, "MR access %#x: the adapter has no %s%s%s\n", access,
			  access & IBV_ACCESS_ON_DEMAND ? "on-demand paging " : "",
			  access & IBV_ACCESS_MW_BIND ? "memory windows " : "",
			  access & ~(ERDMA_ACCESS_KNOWN | IBV_ACCESS_ON_DEMAND |
				     IBV_ACCESS_MW_BIND) ?
				  "support for the other flags" :
				  "");
		return EOPNOTSUPP;
	}
	if ((access & ERDMA_ACCESS_REMOTE_CHANGE) && !(access & IBV_ACCESS_LOCAL_WRITE)) {
		verbs_err(&ctx->vctx,
			  "MR access %#x: remote write or atomic needs local write as well\n",
			  access);
		return EINVAL;
	}
	return 0;
}

static int check_range(struct erdma_context *ctx, void *addr, size_t length)
{
	if (!length || length > ctx->max_mr_size) {
		verbs_err(&ctx->vctx, "MR length %zu is not in 1..%" PRIu64 "\n", length,
			  ctx->max_mr_size);
		return EINVAL;
	}
	if ((uintptr_t)addr + (length - 1) < (uintptr_t)addr) {
		verbs_err(&ctx->vctx, "MR of %zu bytes at %p runs past the address space\n", length,
			  addr);
		return EINVAL;
	}
	return 0;
}

struct ibv_mr *erdma_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t hca_va,
			    int access)
{
	struct erdma_context *ctx = to_ectx(pd->context);
	struct ib_uverbs_reg_mr_resp resp;
	struct ibv_reg_mr cmd;
	struct verbs_mr *vmr;
	int ret;

	ret = check_access(ctx, access);
	if (!ret)
		ret = check_range(ctx, addr, length);
	if (ret)
		goto err;

	if (access & IBV_ACCESS_ZERO_BASED) {
		/* Offsets are addresses that start at 0; the kernel wants both to agree in a page. */
		if ((uintptr_t)addr % ctx->page_size) {
			verbs_err(&ctx->vctx, "zero-based MR at %p does not start on a page\n",
				  addr);
			ret = EINVAL;
			goto err;
		}
		hca_va = 0;
		access &= ~IBV_ACCESS_ZERO_BASED;
	}

	vmr = calloc(1, sizeof(*vmr));
	if (!vmr)
		return NULL;

	ret = ibv_cmd_reg_mr(pd, addr, length, hca_va, access, vmr, &cmd, sizeof(cmd), &resp,
			     sizeof(resp));
	if (ret) {
		verbs_err(&ctx->vctx, "registering %zu bytes at %p, access %#x: error %d\n", length,
			  addr, access, ret);
		free(vmr);
		goto err;
	}
	return &vmr->ibv_mr;

err:
	errno = ret;
	return NULL;
}

int erdma_dereg_mr(struct verbs_mr *vmr)
{
	int ret;

	ret = ibv_cmd_dereg_mr(vmr);
	if (ret)
		return ret;

	free(vmr);
	return 0;
}
