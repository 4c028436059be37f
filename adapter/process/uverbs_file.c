// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* An open uverbs file: object handles, number pools, opening and closing. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "adapter/process/device.h"
#include "adapter/process/fdtab.h"
#include "adapter/process/libc.h"
#include "adapter/process/uaccess.h"
#include "adapter/process/uverbs_internal.h"

enum {
	WORD_BITS = 8 * sizeof(unsigned long)
};

/* ------------------------------------------------------------------ number pools */

static int pool_init(struct uv_pool *pool, uint32_t max)
{
	pool->bits = calloc((max + WORD_BITS - 1) / WORD_BITS, sizeof(unsigned long));
	pool->max = max;
	pool->next = 1;
	return pool->bits ? 0 : -ENOMEM;
}

static uint32_t pool_search(const struct uv_pool *pool, uint32_t from, uint32_t end)
{
	while (from < end) {
		unsigned long used = pool->bits[from / WORD_BITS] >> (from % WORD_BITS);

		if (!used)
			return from;
		if (~used) {
			unsigned int skip = __builtin_ctzl(~used);

			if (from % WORD_BITS + skip < WORD_BITS)
				return from + skip < end ? from + skip : 0;
		}
		from = (from / WORD_BITS + 1) * WORD_BITS;
	}
	return 0;
}

uint32_t uv_pool_take(struct uv_pool *pool)
{
	uint32_t number = pool_search(pool, pool->next, pool->max);

	if (!number)
		number = pool_search(pool, 1, pool->next);
	if (!number)
		return 0;
	pool->bits[number / WORD_BITS] |= 1ul << (number % WORD_BITS);
	pool->next = number + 1 < pool->max ? number + 1 : 1;
	return number;
}

void uv_pool_give(struct uv_pool *pool, uint32_t number)
{
	pool->bits[number / WORD_BITS] &= ~(1ul << (number % WORD_BITS));
}

int uverbs_dev_start(struct host_dev *dev)
{
	struct uverbs_dev *uv = calloc(1, sizeof(*uv));

	if (!uv)
		return -ENOMEM;
	dev->uverbs = uv;
	uv->dev = dev;
	if (pool_init(&uv->pdn, DEVICE_MAX_PD) || pool_init(&uv->stag, dev->max_mr) ||
	    pool_init(&uv->cqn, dev->max_cq) || pool_init(&uv->qpn, dev->max_qp)) {
		uverbs_dev_stop(dev);
		return -ENOMEM;
	}
	return 0;
}

void uverbs_dev_stop(struct host_dev *dev)
{
	struct uverbs_dev *uv = dev->uverbs;

	free(uv->pdn.bits);
	free(uv->stag.bits);
	free(uv->cqn.bits);
	free(uv->qpn.bits);
	free(uv);
	dev->uverbs = NULL;
}

void uverbs_dev_running(struct host_dev *dev)
{
	uv_port_watch(dev->uverbs);
}

void uverbs_summary(struct host_dev *dev, struct uverbs_summary *sum)
{
	memset(sum, 0, sizeof(*sum));
	if (!__atomic_load_n(&dev->core, __ATOMIC_ACQUIRE))
		return;
	engine_lock();
	*sum = dev->uverbs->sum;
	engine_unlock();
}

/* ------------------------------------------------------------------ handles */

static struct uv_obj **handle_slot(struct host_ctx *ctx, uint32_t handle)
{
	struct uv_obj **chunk;

	if (handle >= UV_HANDLE_CHUNK * UV_HANDLE_CHUNKS)
		return NULL;
	chunk = __atomic_load_n(&ctx->handles[handle / UV_HANDLE_CHUNK], __ATOMIC_ACQUIRE);
	return chunk ? &chunk[handle % UV_HANDLE_CHUNK] : NULL;
}

int uv_handle_new(struct host_ctx *ctx, struct uv_obj *obj)
{
	struct uv_obj **slot;
	uint32_t handle;

	for (handle = ctx->handle_low; handle < ctx->handle_end; handle++) {
		slot = handle_slot(ctx, handle);
		if (!*slot)
			goto found;
	}
	if (handle == UV_HANDLE_CHUNK * UV_HANDLE_CHUNKS)
		return -ENOMEM;
	if (handle % UV_HANDLE_CHUNK == 0 && !ctx->handles[handle / UV_HANDLE_CHUNK]) {
		struct uv_obj **chunk = calloc(UV_HANDLE_CHUNK, sizeof(struct uv_obj *));

		if (!chunk)
			return -ENOMEM;
		__atomic_store_n(&ctx->handles[handle / UV_HANDLE_CHUNK], chunk, __ATOMIC_RELEASE);
	}
	ctx->handle_end = handle + 1;
	slot = handle_slot(ctx, handle);
found:
	ctx->handle_low = handle + 1;
	obj->handle = handle;
	__atomic_store_n(slot, obj, __ATOMIC_RELEASE);
	return 0;
}

void uv_handle_free(struct host_ctx *ctx, uint32_t handle)
{
	__atomic_store_n(handle_slot(ctx, handle), NULL, __ATOMIC_RELEASE);
	if (handle < ctx->handle_low)
		ctx->handle_low = handle;
}

void *uv_handle_find(struct host_ctx *ctx, uint64_t handle, enum uv_type type, int *err)
{
	struct uv_obj **slot = handle <= UINT32_MAX ? handle_slot(ctx, handle) : NULL;
	struct uv_obj *obj = slot ? __atomic_load_n(slot, __ATOMIC_ACQUIRE) : NULL;

	if (!obj) {
		*err = -ENOENT;
		return NULL;
	}
	if (obj->type != type) {
		*err = -EINVAL;
		return NULL;
	}
	return obj;
}

struct host_cq *host_cq_by_handle(struct host_ctx *ctx, uint32_t handle)
{
	int err;
	struct uv_cq *cq = uv_handle_find(ctx, handle, UV_CQ, &err);

	return cq ? &cq->host : NULL;
}

struct host_qp *host_qp_by_handle(struct host_ctx *ctx, uint32_t handle)
{
	int err;
	struct uv_qp *qp = uv_handle_find(ctx, handle, UV_QP, &err);

	return qp ? &qp->host : NULL;
}

/* ------------------------------------------------------------------ driver data */

int uv_udata_in(const struct uv_udata *udata, void *dst, size_t len)
{
	if (udata->in_len < len)
		return -EINVAL;
	if (udata->in_len > len) {
		int zero = uaccess_is_zero(udata->in + len, udata->in_len - len);

		if (zero < 0)
			return zero;
		if (!zero)
			return -EOPNOTSUPP;
	}
	return uaccess_read(dst, udata->in, len);
}

int uv_udata_out(const struct uv_udata *udata, const void *src, size_t len)
{
	size_t part = udata->out_len < len ? udata->out_len : len;
	int ret = uaccess_write(udata->out, src, part);

	if (!ret && udata->out_len > len)
		ret = uaccess_clear(udata->out + len, udata->out_len - len);
	return ret;
}

/* ------------------------------------------------------------------ the file */

int uv_get_context(struct host_ctx *ctx, const struct uv_udata *udata)
{
	uint64_t page = sysconf(_SC_PAGESIZE);
	struct erdma_uresp_alloc_ctx resp = {
		.dev_id = DEVICE_PART,
		/* a page each of the file itself; sdb_type 0 */
		.sdb = 0,
		.rdb = page,
		.cdb = 2 * page,
	};
	int ret = 0;

	if (udata->out_len < sizeof(resp))
		return -EINVAL;
	engine_lock();
	if (ctx->live)
		ret = -EINVAL;
	else
		ctx->live = true;
	engine_unlock();
	if (ret)
		return ret;
	ret = uv_udata_out(udata, &resp, sizeof(resp));
	engine_lock();
	if (ret)
		ctx->live = false;
	else
		ctx->dev->uverbs->sum.ctx++;
	engine_unlock();
	return ret;
}

/* Users before what they use. */
static void end_all(struct host_ctx *ctx)
{
	static const enum uv_type order[] = { UV_QP, UV_CQ, UV_MR, UV_PD };
	struct uv_obj **slot, *obj;
	unsigned int i;
	uint32_t handle;

	for (i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		for (handle = 0; handle < ctx->handle_end; handle++) {
			slot = handle_slot(ctx, handle);
			obj = *slot;
			if (!obj || obj->type != order[i])
				continue;
			switch (obj->type) {
			case UV_QP:
				uv_qp_end(ctx, uv_container_of(obj, struct uv_qp, obj));
				break;
			case UV_CQ:
				uv_cq_end(ctx, uv_container_of(obj, struct uv_cq, obj));
				break;
			case UV_MR:
				uv_mr_end(ctx, uv_container_of(obj, struct uv_mr, obj));
				break;
			case UV_PD:
				uv_pd_end(ctx, uv_container_of(obj, struct uv_pd, obj));
				break;
			}
		}
	}
}

static void ctx_release(struct host_file *file)
{
	struct host_ctx *ctx = uv_container_of(file, struct host_ctx, file);
	unsigned int i;

	engine_ctx_closed(ctx);
	engine_lock();
	end_all(ctx);
	if (ctx->next)
		ctx->next->prev = ctx->prev;
	*(ctx->prev ? &ctx->prev->next : &ctx->dev->uverbs->contexts) = ctx->next;
	if (ctx->live)
		ctx->dev->uverbs->sum.ctx--;
	if (ctx->async)
		host_evq_put(ctx->async);
	engine_unlock();
	for (i = 0; i < UV_HANDLE_CHUNKS; i++)
		free(ctx->handles[i]);
	free(ctx);
}

static const struct host_file_ops ctx_ops = {
	.name = "uverbs",
	.write = uv_write,
	.ioctl = uv_ioctl,
	.release = ctx_release,
};

struct host_ctx *host_ctx_by_fd(int cmd_fd)
{
	struct host_file *file = fdtab_peek(cmd_fd);

	return file && file->ops == &ctx_ops ? uv_container_of(file, struct host_ctx, file) : NULL;
}

struct host_dev *host_ctx_dev(struct host_ctx *ctx)
{
	return ctx->dev;
}

int uverbs_open(struct host_dev *dev, int flags)
{
	struct host_ctx *ctx;
	int fd, ret;

	ret = host_dev_start(dev);
	if (ret)
		return ret;
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return -ENOMEM;
	ctx->file.ops = &ctx_ops;
	ctx->file.rdev = device_uverbs_rdev(dev);
	ctx->dev = dev;
	/* the doorbell pages; mmap() of them needs no help from us */
	fd = memfd_create("erdma doorbells",
			  MFD_ALLOW_SEALING | (flags & O_CLOEXEC ? MFD_CLOEXEC : 0));
	if (fd < 0) {
		ret = -errno;
		goto err_free;
	}
	if (ftruncate(fd, 3 * sysconf(_SC_PAGESIZE)) ||
	    REAL(fcntl)(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		ret = -errno;
		REAL(close)(fd);
		goto err_free;
	}
	/* in the list first: once the descriptor stands for it, another thread may close it */
	engine_lock();
	ctx->next = dev->uverbs->contexts;
	if (ctx->next)
		ctx->next->prev = ctx;
	dev->uverbs->contexts = ctx;
	engine_unlock();
	ret = host_file_install(&ctx->file, fd);
	if (ret) {
		ctx_release(&ctx->file);
		return ret;
	}
	return fd;

err_free:
	free(ctx);
	return ret;
}
