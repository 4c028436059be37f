/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * uverbs from the inside.
 *
 *   uverbs_file.c    the open file, object handles, number pools, release
 *   uverbs_ioctl.c   methods (way A): decode attributes, call the operations
 *   uverbs_write.c   write commands, by write() and by INVOKE_WRITE (ways C and B)
 *   uverbs_query.c   device, port, GIDs
 *   uverbs_mem.c     PDs and MRs
 *   uverbs_cq.c      completion channels, async files, CQs, events
 *   uverbs_qp.c      QPs
 *   uverbs_port.c    port events
 *
 * All objects of a device are guarded by the engine lock.  Operations below take it themselves;
 * results are 0 or a negative errno.  Handles are the kernel's: the lowest free number of the file.
 */
#ifndef EA_UVERBS_INTERNAL_H
#define EA_UVERBS_INTERNAL_H

#include <rdma/erdma-abi.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <stddef.h>
#include "adapter/process/engine/engine.h"
#include "adapter/process/host.h"
#include "adapter/process/uverbs.h"

#define uv_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* ------------------------------------------------------- number pools (cyclic, as the driver's) */

struct uv_pool {
	unsigned long *bits;
	uint32_t max, next; /* numbers 1..max-1 */
};

struct uverbs_dev {
	struct host_dev *dev;
	struct host_ctx *contexts; /* all open files */
	struct engine_fd links;	   /* news of interfaces; fd -1: cannot be had */
	bool port_up;
	struct uv_pool pdn, stag, cqn, qpn;
	struct uverbs_summary sum;
};

/* 0: none is free. */
uint32_t uv_pool_take(struct uv_pool *pool);
void uv_pool_give(struct uv_pool *pool, uint32_t number);

/* Watch the interface from now on.  Without the engine lock; the engine runs. */
void uv_port_watch(struct uverbs_dev *uv);

/* ------------------------------------------------------------------ objects */

enum uv_type {
	UV_PD = 1,
	UV_MR,
	UV_CQ,
	UV_QP
};

struct uv_obj {
	enum uv_type type;
	uint32_t handle;
};

struct uv_pd {
	struct uv_obj obj;
	uint32_t pdn;
	unsigned int users;
};

struct uv_mr {
	struct uv_obj obj;
	struct uv_pd *pd;
	uint32_t stag;
	uint64_t start, len, iova;
};

struct uv_cq {
	struct uv_obj obj;
	struct host_cq host;
	uint32_t depth;
};

/* struct ibv_qp_attr as far as a query gives it back */
struct uv_qp_attr {
	struct ib_uverbs_qp_dest dest, alt_dest;
	uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
	uint16_t pkey_index;
	uint8_t path_mtu, path_mig_state, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer,
		port_num, timeout, retry_cnt, rnr_retry;
};

struct uv_qp {
	struct uv_obj obj;
	struct host_qp host;
	struct uv_pd *pd;
	uint8_t state; /* enum ibv_qp_state as the program set it */
	bool sig_all;
	uint32_t sq_blocks, rq_depth;
	uint32_t send_sge, recv_sge;
	struct uv_qp_attr attr;
};

enum {
	UV_HANDLE_CHUNK = 1024,
	UV_HANDLE_CHUNKS = 1024
};

struct host_ctx {
	struct host_file file;
	struct host_ctx *prev, *next; /* of the device's contexts */
	struct host_dev *dev;
	bool live;		/* GET_CONTEXT was done */
	struct host_evq *async; /* the first async file's */
	struct uv_obj *
		*handles[UV_HANDLE_CHUNKS]; /* chunks are never moved or freed before the file */
	uint32_t handle_low;		    /* no number below is free */
	uint32_t handle_end;		    /* no number from here on was ever used */
};

/* Engine lock held.  uv_handle_new() takes the lowest number: 0 or -ENOMEM. */
int uv_handle_new(struct host_ctx *ctx, struct uv_obj *obj);
void uv_handle_free(struct host_ctx *ctx, uint32_t handle);
/* NULL with *err -ENOENT (none) or -EINVAL (another type). */
void *uv_handle_find(struct host_ctx *ctx, uint64_t handle, enum uv_type type, int *err);

/* ------------------------------------------------------------------ driver data of a command */

struct uv_udata {
	uint64_t in, out; /* the program's addresses; in may be a copy's */
	size_t in_len, out_len;
};

/*
 * Read @len bytes of driver data: -EINVAL when shorter, -EOPNOTSUPP when longer with anything but
 * zeros behind.
 */
int uv_udata_in(const struct uv_udata *udata, void *dst, size_t len);
/* Write what fits, zero the rest of a longer buffer. */
int uv_udata_out(const struct uv_udata *udata, const void *src, size_t len);

/* ------------------------------------------------------------------ operations */

int uv_get_context(struct host_ctx *ctx, const struct uv_udata *udata);
/* A new file (O_CLOEXEC): its descriptor. */
int uv_async_open(struct host_ctx *ctx);
int uv_channel_open(struct host_ctx *ctx);
/* The queue of an async file of this context, with a reference; NULL with *err -EBADF. */
struct host_evq *uv_async_get(struct host_ctx *ctx, int fd, int *err);

void uv_query_device(struct host_dev *dev, struct ib_uverbs_query_device_resp *resp);
void uv_query_device_ex(struct host_dev *dev, struct ib_uverbs_ex_query_device_resp *resp);
int uv_query_port(struct host_dev *dev, uint64_t port, struct ib_uverbs_query_port_resp_ex *resp);
int uv_query_gid(struct host_dev *dev, uint64_t port, uint64_t index,
		 struct ib_uverbs_gid_entry *entry);

int uv_pd_alloc(struct host_ctx *ctx, uint32_t *handle);
int uv_pd_dealloc(struct host_ctx *ctx, uint64_t handle);

struct uv_mr_req {
	uint64_t start, len, iova, pd;
	uint32_t access;
};
int uv_mr_reg(struct host_ctx *ctx, const struct uv_mr_req *req,
	      struct ib_uverbs_reg_mr_resp *resp);
int uv_mr_dereg(struct host_ctx *ctx, uint64_t handle);

struct uv_cq_req {
	uint64_t user_handle;
	uint32_t cqe, comp_vector;
	int channel_fd; /* -1: none */
	int async_fd;	/* -1: the context's first */
	struct uv_udata udata;
};
int uv_cq_create(struct host_ctx *ctx, const struct uv_cq_req *req,
		 struct ib_uverbs_create_cq_resp *resp);
int uv_cq_destroy(struct host_ctx *ctx, uint64_t handle, struct ib_uverbs_destroy_cq_resp *resp);

struct uv_qp_req {
	uint64_t user_handle, pd, scq, rcq;
	bool has_pd, has_scq, has_rcq, has_srq;
	struct ib_uverbs_qp_cap cap;
	uint32_t type; /* enum ib_uverbs_qp_type */
	bool sig_all;
	int async_fd;
	struct uv_udata udata;
};
int uv_qp_create(struct host_ctx *ctx, const struct uv_qp_req *req, uint32_t *handle,
		 uint32_t *qpn);
int uv_qp_destroy(struct host_ctx *ctx, uint64_t handle, uint32_t *events_reported);
int uv_qp_modify(struct host_ctx *ctx, const struct ib_uverbs_modify_qp *req);
int uv_qp_query(struct host_ctx *ctx, uint64_t handle, struct ib_uverbs_query_qp_resp *resp);

/* The file is closed: end all objects of a kind.  Engine lock held. */
void uv_mr_end(struct host_ctx *ctx, struct uv_mr *mr);
void uv_pd_end(struct host_ctx *ctx, struct uv_pd *pd);
void uv_cq_end(struct host_ctx *ctx, struct uv_cq *cq);
void uv_qp_end(struct host_ctx *ctx, struct uv_qp *qp);

/* ------------------------------------------------------------------ entry points */

int uv_ioctl(struct host_file *file, unsigned long request, void *arg);
ssize_t uv_write(struct host_file *file, const void *buf, size_t count);

/* A write command that came by INVOKE_WRITE. */
struct uv_cmd {
	struct host_ctx *ctx;
	uint32_t command; /* with IB_USER_VERBS_CMD_FLAG_EXTENDED */
	uint64_t in, out;
	size_t in_len, out_len;
	struct uv_udata udata;
};
int uv_command(const struct uv_cmd *cmd);

#endif
