// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Event files, completion queues, and the way of an event from the model to the program. */
#include <errno.h>
#include <stdlib.h>
#include <infiniband/verbs.h>
#include "adapter/process/device.h"
#include "adapter/process/libc.h"
#include "adapter/process/uaccess.h"
#include "adapter/process/uverbs_internal.h"

enum {
	CQE_SIZE = 1 << EA_CQE_SHIFT
};

/* ------------------------------------------------------------------ event files */

struct event_file {
	struct host_file file;
	struct host_ctx *ctx; /* for comparison only: it may be gone */
	struct host_evq *q;
};

static void event_release(struct host_file *file)
{
	struct event_file *ef = uv_container_of(file, struct event_file, file);

	engine_lock();
	host_evq_close(ef->q);
	host_evq_put(ef->q);
	engine_unlock();
	free(ef);
}

static const struct host_file_ops channel_ops = { .name = "completion channel",
						  .release = event_release };
static const struct host_file_ops async_ops = { .name = "async events", .release = event_release };

static int event_open(struct host_ctx *ctx, const struct host_file_ops *ops, size_t event_size)
{
	struct event_file *ef = calloc(1, sizeof(*ef));
	int fd, ret;

	if (!ef)
		return -ENOMEM;
	ef->q = host_evq_create(&fd, event_size);
	if (!ef->q) {
		ret = -errno;
		free(ef);
		return ret;
	}
	ef->file.ops = ops;
	ef->ctx = ctx;
	ret = host_file_install(&ef->file, fd);
	if (ret) {
		event_release(&ef->file);
		return ret;
	}
	return fd;
}

/* The queue behind @fd, with a reference; NULL with -EBADF. */
static struct host_evq *event_get(struct host_ctx *ctx, int fd, const struct host_file_ops *ops,
				  int *err)
{
	struct host_file *file = fd < 0 ? NULL : host_file_get(fd);
	struct host_evq *q = NULL;

	if (file && file->ops == ops) {
		struct event_file *ef = uv_container_of(file, struct event_file, file);

		if (ef->ctx == ctx) {
			q = ef->q;
			engine_lock();
			host_evq_get(q);
			engine_unlock();
		}
	}
	if (file)
		host_file_put(file);
	if (!q)
		*err = -EBADF;
	return q;
}

struct host_evq *uv_async_get(struct host_ctx *ctx, int fd, int *err)
{
	return event_get(ctx, fd, &async_ops, err);
}

int uv_channel_open(struct host_ctx *ctx)
{
	return event_open(ctx, &channel_ops, sizeof(struct ib_uverbs_comp_event_desc));
}

int uv_async_open(struct host_ctx *ctx)
{
	int fd = event_open(ctx, &async_ops, sizeof(struct ib_uverbs_async_event_desc)), err;
	struct host_evq *q;

	if (fd < 0)
		return fd;
	q = uv_async_get(ctx, fd, &err);
	if (!q)
		return fd;
	engine_lock();
	if (ctx->async)
		host_evq_put(q);
	else
		ctx->async = q;
	engine_unlock();
	return fd;
}

/* -------------------------------------------------------- events of the model; engine lock held */

static void core_comp_event(void *arg, uint32_t cqn, uint32_t eqn, uint32_t pi)
{
	struct host_dev *dev = arg;
	struct host_cq *cq = cqn < dev->max_cq ? dev->cqs[cqn] : NULL;
	struct ib_uverbs_comp_event_desc event;

	(void)eqn, (void)pi;
	if (!cq || !cq->channel)
		return;
	event.cq_handle = cq->user_handle;
	if (host_evq_push(cq->channel, &event))
		host_log(HOST_LOG_ERROR, "no memory for a completion event of CQ %u", cqn);
	else
		cq->comp_events++;
}

static void push_async(struct host_evq *q, uint64_t element, uint32_t type, unsigned int *count)
{
	struct ib_uverbs_async_event_desc event = { .element = element, .event_type = type };

	if (q && !host_evq_push(q, &event))
		(*count)++;
}

void host_qp_async_event(struct host_qp *qp, uint32_t ibv_event)
{
	push_async(qp->async, qp->user_handle, ibv_event, &qp->async_events);
}

static void core_async_event(void *arg, enum ea_async_event event, uint32_t number)
{
	struct host_dev *dev = arg;
	struct host_qp *qp;
	struct host_cq *cq;

	switch (event) {
	case EA_ASYNC_QP_FATAL:
	case EA_ASYNC_QP_ACCESS_ERR:
		qp = host_qp_find(dev, number);
		if (qp)
			host_qp_async_event(qp, event == EA_ASYNC_QP_FATAL ?
							IBV_EVENT_QP_FATAL :
							IBV_EVENT_QP_ACCESS_ERR);
		break;
	case EA_ASYNC_CQ_ERR:
		cq = number < dev->max_cq ? dev->cqs[number] : NULL;
		if (cq)
			push_async(cq->async, cq->user_handle, IBV_EVENT_CQ_ERR, &cq->async_events);
		break;
	}
}

const struct ea_host_ops uverbs_core_ops = {
	.comp_event = core_comp_event,
	.async_event = core_async_event,
};

/* ------------------------------------------------------------------ CQ */

static bool match_comp(const void *event, void *arg)
{
	const struct ib_uverbs_comp_event_desc *desc = event;
	const struct host_cq *cq = arg;

	return desc->cq_handle == cq->user_handle;
}

static bool match_async(const void *event, void *arg)
{
	const struct ib_uverbs_async_event_desc *desc = event;
	const struct host_cq *cq = arg;

	return desc->element == cq->user_handle && desc->event_type == IBV_EVENT_CQ_ERR;
}

static int cq_depth(uint32_t cqe, uint32_t *depth)
{
	if (!cqe || cqe > 1u << DEVICE_MAX_CQE_SHIFT)
		return -EINVAL;
	for (*depth = 1; *depth < cqe; *depth *= 2)
		;
	return 0;
}

/*
 * The record the program rings; zeroed, since cells are used again and the provider may clear only
 * later.
 */
static int clear_record(uint64_t va, size_t len)
{
	if (va & (sizeof(uint64_t) - 1))
		return -EINVAL;
	return uaccess_clear(va, len);
}

static void cq_free(struct uv_cq *cq)
{
	if (cq->host.channel)
		host_evq_put(cq->host.channel);
	if (cq->host.async)
		host_evq_put(cq->host.async);
	free(cq);
}

/* Engine lock held. */
static int cq_install(struct host_ctx *ctx, struct uv_cq *cq, uint64_t ring)
{
	struct host_dev *dev = ctx->dev;
	struct uverbs_dev *uv = dev->uverbs;
	struct ea_cq_attr attr;
	int ret;

	cq->host.cqn = uv_pool_take(&uv->cqn);
	if (!cq->host.cqn)
		return -ENOMEM;
	attr = (struct ea_cq_attr){
		.cqn = cq->host.cqn,
		.depth_shift = __builtin_ctz(cq->depth),
		.pages = {
			.form = EA_PAGES_FLAT,
			.page_shift = 12,
			.npages = ((uint64_t)cq->depth * CQE_SIZE + 4095) / 4096,
			.addr = { ring },
		},
	};
	ret = -ea_cq_create(dev->core, &attr);
	if (ret)
		goto err_number;
	ret = uv_handle_new(ctx, &cq->obj);
	if (ret)
		goto err_core;
	cq->host.handle = cq->obj.handle;
	__atomic_store_n(&dev->cqs[cq->host.cqn], &cq->host, __ATOMIC_RELEASE);
	ret = engine_cq_created(&cq->host);
	if (ret)
		goto err_handle;
	uv->sum.cq++;
	return 0;

err_handle:
	__atomic_store_n(&dev->cqs[cq->host.cqn], NULL, __ATOMIC_RELEASE);
	uv_handle_free(ctx, cq->obj.handle);
err_core:
	ea_cq_destroy(dev->core, cq->host.cqn);
err_number:
	uv_pool_give(&uv->cqn, cq->host.cqn);
	return ret;
}

int uv_cq_create(struct host_ctx *ctx, const struct uv_cq_req *req,
		 struct ib_uverbs_create_cq_resp *resp)
{
	struct erdma_uresp_create_cq uresp;
	struct erdma_ureq_create_cq ureq;
	struct uv_cq *cq;
	uint32_t depth;
	int ret;

	if (req->comp_vector >= DEVICE_COMP_VECTORS)
		return -EINVAL;
	ret = cq_depth(req->cqe, &depth);
	if (!ret)
		ret = uv_udata_in(&req->udata, &ureq, sizeof(ureq));
	if (ret)
		return ret;
	if (ureq.qbuf_va & (CQE_SIZE - 1))
		return -EINVAL;
	/*
	 * the driver pins what the program says; the model writes the whole ring, so that much must
	 * be there
	 */
	ret = uaccess_check_range(ureq.qbuf_va, ureq.qbuf_len, false);
	if (!ret)
		ret = uaccess_check_range(ureq.qbuf_va, (uint64_t)depth * CQE_SIZE, true);
	if (!ret)
		ret = clear_record(ureq.db_record_va, sizeof(uint64_t));
	if (ret)
		return ret;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return -ENOMEM;
	cq->obj.type = UV_CQ;
	cq->depth = depth;
	cq->host.dev = ctx->dev;
	cq->host.ctx = ctx;
	cq->host.user_handle = req->user_handle;
	cq->host.record = (volatile uint64_t *)(uintptr_t)ureq.db_record_va;
	if (req->channel_fd >= 0) {
		cq->host.channel = event_get(ctx, req->channel_fd, &channel_ops, &ret);
		if (!cq->host.channel)
			goto err_free;
	}
	if (req->async_fd >= 0) {
		cq->host.async = uv_async_get(ctx, req->async_fd, &ret);
		if (!cq->host.async)
			goto err_free;
	}
	engine_lock();
	if (!cq->host.async && ctx->async) {
		cq->host.async = ctx->async;
		host_evq_get(ctx->async);
	}
	ret = cq_install(ctx, cq, ureq.qbuf_va);
	if (!ret) {
		/*
		 * under the lock: another thread that guesses the handle may destroy the CQ as soon
		 * as it is free
		 */
		*resp = (struct ib_uverbs_create_cq_resp){
			.cq_handle = cq->obj.handle,
			.cqe = depth,
		};
		uresp = (struct erdma_uresp_create_cq){
			.cq_id = cq->host.cqn,
			.num_cqe = depth,
		};
		ret = uv_udata_out(&req->udata, &uresp, sizeof(uresp));
		if (ret)
			uv_cq_end(ctx, cq);
		engine_unlock();
		return ret;
	}
	engine_unlock();

err_free:
	engine_lock();
	cq_free(cq);
	engine_unlock();
	return ret;
}

void uv_cq_end(struct host_ctx *ctx, struct uv_cq *cq)
{
	struct host_dev *dev = ctx->dev;

	engine_cq_destroyed(&cq->host);
	ea_cq_destroy(dev->core, cq->host.cqn);
	__atomic_store_n(&dev->cqs[cq->host.cqn], NULL, __ATOMIC_RELEASE);
	if (cq->host.channel)
		host_evq_remove(cq->host.channel, match_comp, &cq->host);
	if (cq->host.async)
		host_evq_remove(cq->host.async, match_async, &cq->host);
	uv_handle_free(ctx, cq->obj.handle);
	uv_pool_give(&dev->uverbs->cqn, cq->host.cqn);
	dev->uverbs->sum.cq--;
	cq_free(cq);
}

int uv_cq_destroy(struct host_ctx *ctx, uint64_t handle, struct ib_uverbs_destroy_cq_resp *resp)
{
	struct uv_cq *cq;
	int ret = 0;

	engine_lock();
	cq = uv_handle_find(ctx, handle, UV_CQ, &ret);
	if (cq && cq->host.qp_count) {
		ret = -EBUSY;
	} else if (cq) {
		/*
		 * what the program has not read is taken back, so that it waits for no more
		 * acknowledgements than it can give
		 */
		resp->comp_events_reported = cq->host.comp_events;
		if (cq->host.channel)
			resp->comp_events_reported -=
				host_evq_remove(cq->host.channel, match_comp, &cq->host);
		resp->async_events_reported = cq->host.async_events;
		if (cq->host.async)
			resp->async_events_reported -=
				host_evq_remove(cq->host.async, match_async, &cq->host);
		uv_cq_end(ctx, cq);
	}
	engine_unlock();
	return ret;
}
