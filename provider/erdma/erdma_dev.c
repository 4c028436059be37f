// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The device: recognising it, opening it, asking it and its port. */

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "erdma.h"
#include "erdma_abi.h"

#define ERDMA_ABI_MIN 0
#define ERDMA_ABI_MAX ERDMA_ABI_VERSION

static int query_device(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
			struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct ib_uverbs_ex_query_device_resp resp;
	size_t resp_size = sizeof(resp);
	uint64_t fw;
	int ret;

	ret = ibv_cmd_query_device_any(context, input, attr, attr_size, &resp, &resp_size);
	if (ret)
		return ret;

	fw = resp.base.fw_ver;
	snprintf(attr->orig_attr.fw_ver, sizeof(attr->orig_attr.fw_ver), "%u.%u.%u",
		 (unsigned int)FIELD_GET(GENMASK_ULL(47, 32), fw),
		 (unsigned int)FIELD_GET(GENMASK_ULL(31, 16), fw),
		 (unsigned int)FIELD_GET(GENMASK_ULL(15, 0), fw));
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	struct ibv_query_port cmd;

	return ibv_cmd_query_port(context, port, attr, &cmd, sizeof(cmd));
}

static void unmap_db_page(struct erdma_context *ctx, struct erdma_db_page *page)
{
	if (page->addr)
		munmap(page->addr, ctx->page_size);
	page->addr = NULL;
}

static void unmap_db_pages(struct erdma_context *ctx)
{
	unmap_db_page(ctx, &ctx->cdb);
	unmap_db_page(ctx, &ctx->rdb);
	unmap_db_page(ctx, &ctx->sdb);
}

static int map_db_page(struct erdma_context *ctx, struct erdma_db_page *page, const char *what,
		       uint64_t offset)
{
	void *addr;

	addr = mmap(NULL, ctx->page_size, PROT_WRITE, MAP_SHARED, ctx->vctx.context.cmd_fd, offset);
	if (addr == MAP_FAILED) {
		verbs_err(&ctx->vctx, "mapping the %s doorbells at %#llx: error %d\n", what,
			  (unsigned long long)offset, errno);
		return errno;
	}
	page->addr = addr;
	return 0;
}

static int map_db_pages(struct erdma_context *ctx, const struct erdma_uresp_alloc_ctx *resp)
{
	int ret;

	switch (resp->sdb_type) {
	case ERDMA_SDB_PAGE:
	case ERDMA_SDB_SHARED:
		break;
	case ERDMA_SDB_ENTRY:
		if (resp->sdb_offset < ERDMA_SDB_ENTRIES)
			break;
		verbs_err(&ctx->vctx, "send doorbell slot %u of %u\n", resp->sdb_offset,
			  ERDMA_SDB_ENTRIES);
		return EIO;
	default:
		verbs_err(&ctx->vctx, "send doorbells of unknown type %u\n", resp->sdb_type);
		return EOPNOTSUPP;
	}
	ctx->sdb_type = resp->sdb_type;
	ctx->sdb_offset = resp->sdb_offset;

	ret = map_db_page(ctx, &ctx->sdb, "send", resp->sdb);
	if (!ret)
		ret = map_db_page(ctx, &ctx->rdb, "receive", resp->rdb);
	if (!ret)
		ret = map_db_page(ctx, &ctx->cdb, "completion", resp->cdb);
	if (ret)
		unmap_db_pages(ctx);
	return ret;
}

static int read_limits(struct erdma_context *ctx)
{
	struct ibv_device_attr_ex attr;
	int ret;

	ret = query_device(&ctx->vctx.context, NULL, &attr, sizeof(attr.orig_attr));
	if (ret) {
		verbs_err(&ctx->vctx, "querying the device: error %d\n", ret);
		return ret;
	}
	ctx->atomics = attr.orig_attr.atomic_cap != IBV_ATOMIC_NONE;
	ctx->max_mr_size = attr.orig_attr.max_mr_size;
	return 0;
}

static void free_context(struct ibv_context *context)
{
	struct erdma_context *ctx = to_ectx(context);

	/*
	 * Closes the command file, and the adapter looks at the records of QPs and CQs that were not
	 * destroyed until then.
	 */
	verbs_uninit_context(&ctx->vctx);
	unmap_db_pages(ctx);
	erdma_dbrec_pool_destroy(&ctx->dbrecs);
	free(ctx);
}

static const struct verbs_context_ops erdma_context_ops = {
	.alloc_parent_domain = erdma_alloc_parent_domain,
	.alloc_pd = erdma_alloc_pd,
	.alloc_td = erdma_alloc_td,
	.cq_event = erdma_cq_event,
	.create_cq = erdma_create_cq,
	.create_cq_ex = erdma_create_cq_ex,
	.create_qp = erdma_create_qp,
	.create_qp_ex = erdma_create_qp_ex,
	.dealloc_pd = erdma_dealloc_pd,
	.dealloc_td = erdma_dealloc_td,
	.dereg_mr = erdma_dereg_mr,
	.destroy_cq = erdma_destroy_cq,
	.destroy_qp = erdma_destroy_qp,
	.free_context = free_context,
	.modify_qp = erdma_modify_qp,
	.poll_cq = erdma_poll_cq,
	.post_recv = erdma_post_recv,
	.post_send = erdma_post_send,
	.query_device_ex = query_device,
	.query_port = query_port,
	.query_qp = erdma_query_qp,
	.reg_mr = erdma_reg_mr,
	.req_notify_cq = erdma_req_notify_cq,
};

static struct verbs_context *alloc_context(struct ibv_device *device, int cmd_fd,
					   void *private_data)
{
	struct erdma_get_context_cmd_resp resp = {};
	struct ibv_get_context cmd = {};
	struct erdma_context *ctx;
	int ret;

	ctx = verbs_init_and_alloc_context(device, cmd_fd, ctx, vctx, RDMA_DRIVER_ERDMA);
	if (!ctx)
		return NULL;

	ctx->page_size = sysconf(_SC_PAGESIZE);
	ctx->roce = device->node_type != IBV_NODE_RNIC;
	erdma_dbrec_pool_init(&ctx->dbrecs);

	ret = erdma_cmd_get_context(&ctx->vctx, &cmd, sizeof(cmd), &resp.ibv_resp, sizeof(resp));
	if (ret) {
		verbs_err(&ctx->vctx, "opening the device: error %d\n", ret);
		goto err_uninit;
	}

	ret = map_db_pages(ctx, &resp.drv_payload);
	if (ret)
		goto err_uninit;

	verbs_set_ops(&ctx->vctx, &erdma_context_ops);

	ret = read_limits(ctx);
	if (ret)
		goto err_unmap;

	return &ctx->vctx;

err_unmap:
	unmap_db_pages(ctx);
err_uninit:
	erdma_dbrec_pool_destroy(&ctx->dbrecs);
	verbs_uninit_context(&ctx->vctx);
	free(ctx);
	errno = ret;
	return NULL;
}

static struct verbs_device *alloc_device(struct verbs_sysfs_dev *sysfs_dev)
{
	struct erdma_device *dev;

	dev = calloc(1, sizeof(*dev));
	return dev ? &dev->vdev : NULL;
}

static void uninit_device(struct verbs_device *vdev)
{
	free(to_edev(&vdev->device));
}

static const struct verbs_match_ent erdma_match_table[] = {
	VERBS_DRIVER_ID(RDMA_DRIVER_ERDMA),
	VERBS_PCI_MATCH(ERDMA_PCI_VENDOR_ID, ERDMA_PCI_DEVICE_ID, NULL),
	{}
};

static const struct verbs_device_ops erdma_dev_ops = {
	.name = "erdma",
	.match_min_abi_version = ERDMA_ABI_MIN,
	.match_max_abi_version = ERDMA_ABI_MAX,
	.match_table = erdma_match_table,
	.alloc_context = alloc_context,
	.alloc_device = alloc_device,
	.uninit_device = uninit_device,
};

PROVIDER_DRIVER(erdma, erdma_dev_ops);
