// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The verbs hook: the data path functions that a provider puts into a context are wrapped, so that
 * the program's own posts and polls run the engine.
 *
 * libibverbs and providers call verbs_set_ops() through their PLT; the definition here comes first.
 * The structure it gets grows at its front from version to version, so the public struct
 * ibv_context is found by the size field that stands right in front of it.  Functions of extended
 * CQs and QPs are set by the provider's create functions; these are wrapped when the context has
 * been opened (libibverbs overwrites them once).
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "adapter/process/engine/engine_internal.h"

#define EXPORT __attribute__((visibility("default")))

enum {
	HOOK_FDS = 4096,     /* command descriptors looked up directly */
	SEARCH_BYTES = 2048, /* longest private part in front of the public context */
};

struct hook {
	struct ibv_context *ibctx;
	struct host_ctx *ctx;
	struct host_dev *dev;
	int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
	int (*post_recv)(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
	int (*poll_cq)(struct ibv_cq *cq, int n, struct ibv_wc *wc);
	int (*req_notify_cq)(struct ibv_cq *cq, int solicited_only);
	struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *context,
					  struct ibv_cq_init_attr_ex *attr);
	struct ibv_qp *(*create_qp_ex)(struct ibv_context *context,
				       struct ibv_qp_init_attr_ex *attr);
	struct hook *next; /* all; records are never freed */
};

static struct hook *hooks[HOOK_FDS];
static struct hook *all_hooks;
static pthread_mutex_t hook_lock = PTHREAD_MUTEX_INITIALIZER; /* for changes of the tables */

static struct hook *hook_find(const struct ibv_context *ibctx)
{
	unsigned int fd = (unsigned int)ibctx->cmd_fd;
	struct hook *hook;

	if (fd < HOOK_FDS)
		return __atomic_load_n(&hooks[fd], __ATOMIC_ACQUIRE);
	for (hook = __atomic_load_n(&all_hooks, __ATOMIC_ACQUIRE); hook; hook = hook->next)
		if (hook->ibctx == ibctx)
			return hook;
	return NULL;
}

static struct engine_qp *qp_find(const struct hook *hook, uint32_t qpn)
{
	struct host_qp *qp;

	if (!hook->ctx || qpn >= hook->dev->max_qp)
		return NULL;
	qp = __atomic_load_n(&hook->dev->qps[qpn], __ATOMIC_ACQUIRE);
	return qp ? __atomic_load_n((struct engine_qp **)&qp->engine, __ATOMIC_ACQUIRE) : NULL;
}

static struct engine_cq *cq_find(const struct hook *hook, uint32_t handle)
{
	struct host_cq *cq = hook->ctx ? host_cq_by_handle(hook->ctx, handle) : NULL;

	return cq ? __atomic_load_n((struct engine_cq **)&cq->engine, __ATOMIC_ACQUIRE) : NULL;
}

/* ------------------------------------------------------------------ wrappers */

/* The provider's functions leave errno alone, and so must what is added to them. */
static void kick(struct engine_kick *doorbell)
{
	int saved_errno = errno;

	engine_kick(doorbell);
	errno = saved_errno;
}

static bool poll_inline(struct engine_cq *ecq)
{
	int saved_errno = errno;
	bool ret = engine_poll_inline(ecq);

	errno = saved_errno;
	return ret;
}

static int hook_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct hook *hook = hook_find(qp->context);
	struct engine_qp *eqp;
	int ret = hook->post_send(qp, wr, bad);

	/* a failed call may have posted the first requests of its list */
	eqp = qp_find(hook, qp->qp_num);
	if (eqp)
		kick(&eqp->kick);
	return ret;
}

static int hook_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct hook *hook = hook_find(qp->context);
	struct engine_qp *eqp;
	int ret = hook->post_recv(qp, wr, bad);

	eqp = qp_find(hook, qp->qp_num);
	if (!eqp)
		return ret;
	atomic_thread_fence(memory_order_seq_cst); /* see watch_update() */
	if (atomic_load_explicit(&eqp->rq_watch, memory_order_relaxed))
		kick(&eqp->kick);
	return ret;
}

static int hook_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct hook *hook = hook_find(cq->context);
	struct engine_cq *ecq;
	int ret = hook->poll_cq(cq, n, wc);

	if (ret < 0 || n <= 0)
		return ret;
	ecq = cq_find(hook, cq->handle);
	if (!ecq)
		return ret;
	if (ret) {
		if (ecq->idle_polls)
			ecq->idle_polls = 0;
		return ret;
	}
	return poll_inline(ecq) ? hook->poll_cq(cq, n, wc) : 0;
}

static int hook_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	struct hook *hook = hook_find(cq->context);
	struct engine_cq *ecq;
	int ret = hook->req_notify_cq(cq, solicited_only);

	ecq = cq_find(hook, cq->handle);
	if (ecq)
		kick(&ecq->kick);
	return ret;
}

/*
 * In the child of a fork() the device behind inherited objects is gone: nothing to poll, nothing to
 * post to.
 */
static int hook_start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	struct engine_cq *ecq = cq_find(hook_find(cq->context), cq->handle);
	int ret;

	if (!ecq)
		return ENOENT;
	ret = ecq->start_poll(cq, attr);
	if (ret != ENOENT) {
		if (ecq->idle_polls)
			ecq->idle_polls = 0;
		return ret;
	}
	return poll_inline(ecq) ? ecq->start_poll(cq, attr) : ret;
}

static int hook_wr_complete(struct ibv_qp_ex *qp)
{
	struct engine_qp *eqp = qp_find(hook_find(qp->qp_base.context), qp->qp_base.qp_num);
	int ret;

	if (!eqp) {
		/* gives the lock of the queue back */
		qp->wr_abort(qp);
		return EIO;
	}
	ret = eqp->wr_complete(qp);
	kick(&eqp->kick);
	return ret;
}

static struct ibv_cq_ex *hook_create_cq_ex(struct ibv_context *context,
					   struct ibv_cq_init_attr_ex *attr)
{
	struct hook *hook = hook_find(context);
	struct ibv_cq_ex *cq = hook->create_cq_ex(context, attr);
	struct engine_cq *ecq;

	if (!cq)
		return NULL;
	ecq = cq_find(hook, cq->handle);
	if (ecq && cq->start_poll) {
		ecq->start_poll = cq->start_poll;
		cq->start_poll = hook_start_poll;
	}
	return cq;
}

static struct ibv_qp *hook_create_qp_ex(struct ibv_context *context,
					struct ibv_qp_init_attr_ex *attr)
{
	struct hook *hook = hook_find(context);
	struct ibv_qp *qp = hook->create_qp_ex(context, attr);
	struct engine_qp *eqp;
	struct ibv_qp_ex *qpx;

	/* only with this request is there a struct ibv_qp_ex around the QP */
	if (!qp || !(attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))
		return qp;
	qpx = (struct ibv_qp_ex *)
		qp; /* its first member; the function is in libibverbs, which is not linked here */
	eqp = qp_find(hook, qp->qp_num);
	if (eqp && qpx->wr_complete) {
		eqp->wr_complete = qpx->wr_complete;
		qpx->wr_complete = hook_wr_complete;
	}
	return qp;
}

/* ------------------------------------------------------------------ installation */

/* Offset of the public context, or NULL; see the head of this file. */
static struct ibv_context *public_context(void *vctx)
{
	size_t off;

	for (off = 0; off < SEARCH_BYTES; off += sizeof(size_t)) {
		if (*(size_t *)((char *)vctx + off) ==
		    off + sizeof(size_t) + sizeof(struct ibv_context))
			return (struct ibv_context *)((char *)vctx + off + sizeof(size_t));
	}
	return NULL;
}

static struct hook *hook_for(struct ibv_context *ibctx, struct host_ctx *ctx)
{
	struct hook *hook = hook_find(ibctx);
	unsigned int fd = (unsigned int)ibctx->cmd_fd;

	if (!hook) {
		hook = calloc(1, sizeof(*hook));
		if (!hook)
			return NULL;
		hook->next = all_hooks;
		__atomic_store_n(&all_hooks, hook, __ATOMIC_RELEASE);
	}
	if (hook->ctx != ctx || hook->ibctx != ibctx) {
		hook->create_cq_ex = NULL;
		hook->create_qp_ex = NULL;
		hook->dev = host_ctx_dev(ctx);
		hook->ibctx = ibctx;
		__atomic_store_n(&hook->ctx, ctx, __ATOMIC_RELEASE);
	}
	if (fd < HOOK_FDS)
		__atomic_store_n(&hooks[fd], hook, __ATOMIC_RELEASE);
	return hook;
}

/*
 * Functions set by libibverbs' own second call are the dummies; those are wrapped too and replaced
 * by the third.
 */
static void hook_install(struct ibv_context *ibctx, struct host_ctx *ctx)
{
	struct ibv_context_ops *ops = &ibctx->ops;
	struct hook *hook;

	pthread_mutex_lock(&hook_lock);
	hook = hook_for(ibctx, ctx);
	if (hook) {
		if (ops->post_send != hook_post_send)
			hook->post_send = ops->post_send;
		if (ops->post_recv != hook_post_recv)
			hook->post_recv = ops->post_recv;
		if (ops->poll_cq != hook_poll_cq)
			hook->poll_cq = ops->poll_cq;
		if (ops->req_notify_cq != hook_req_notify_cq)
			hook->req_notify_cq = ops->req_notify_cq;
		ops->post_send = hook_post_send;
		ops->post_recv = hook_post_recv;
		ops->poll_cq = hook_poll_cq;
		ops->req_notify_cq = hook_req_notify_cq;
	}
	pthread_mutex_unlock(&hook_lock);
}

static void hook_install_ex(struct hook *hook)
{
	struct verbs_context *vctx = verbs_get_ctx(hook->ibctx);

	if (!vctx)
		return;
	pthread_mutex_lock(&hook_lock);
	if (vctx->create_cq_ex && vctx->create_cq_ex != hook_create_cq_ex) {
		hook->create_cq_ex = vctx->create_cq_ex;
		vctx->create_cq_ex = hook_create_cq_ex;
	}
	if (vctx->create_qp_ex && vctx->create_qp_ex != hook_create_qp_ex) {
		hook->create_qp_ex = vctx->create_qp_ex;
		vctx->create_qp_ex = hook_create_qp_ex;
	}
	pthread_mutex_unlock(&hook_lock);
}

static struct hook *hook_of_ctx(const struct host_ctx *ctx)
{
	struct hook *hook;

	for (hook = __atomic_load_n(&all_hooks, __ATOMIC_ACQUIRE); hook; hook = hook->next)
		if (hook->ctx == ctx)
			return hook;
	return NULL;
}

void engine_ctx_command(struct host_ctx *ctx)
{
	struct hook *hook = hook_of_ctx(ctx);

	if (hook)
		hook_install_ex(hook);
}

bool engine_ctx_hooked(struct host_ctx *ctx)
{
	return hook_of_ctx(ctx);
}

/* Records stay for the next context with that descriptor; nobody may use this one now. */
void engine_ctx_closed(struct host_ctx *ctx)
{
	struct hook *hook = hook_of_ctx(ctx);

	if (hook)
		hook->ctx = NULL;
}

void engine_hooks_forget(void)
{
	struct hook *hook;

	pthread_mutex_init(&hook_lock, NULL);
	for (hook = all_hooks; hook; hook = hook->next)
		hook->ctx = NULL;
}

typedef void (*set_ops_fn)(void *vctx, const void *ops);

/*
 * RTLD_NEXT finds libibverbs when it was linked or loaded with RTLD_GLOBAL; otherwise it is among
 * the dependencies of whoever calls.
 */
static set_ops_fn real_set_ops(void *caller)
{
	set_ops_fn fn = (set_ops_fn)dlsym(RTLD_NEXT, "verbs_set_ops");
	Dl_info info;
	void *handle;

	if (fn)
		return fn;
	if (dladdr(caller, &info) && info.dli_fname) {
		handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
		if (handle) {
			fn = (set_ops_fn)dlsym(handle, "verbs_set_ops");
			dlclose(handle);
		}
	}
	return fn;
}

EXPORT void verbs_set_ops(void *vctx, const void *ops);

EXPORT void verbs_set_ops(void *vctx, const void *ops)
{
	set_ops_fn real = real_set_ops(__builtin_return_address(0));
	struct ibv_context *ibctx;
	struct host_ctx *ctx;

	if (!real) {
		fprintf(stderr, "erdma: no verbs_set_ops in libibverbs of this process\n");
		abort();
	}
	real(vctx, ops);
	ibctx = public_context(vctx);
	ctx = ibctx ? host_ctx_by_fd(ibctx->cmd_fd) : NULL;
	if (ctx)
		hook_install(ibctx, ctx);
}
