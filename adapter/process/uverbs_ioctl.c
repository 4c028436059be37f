// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Methods: an object, a method, and typed attributes.
 *
 * Every method has a table of the attributes it takes; a call is checked against the table before
 * the method runs.
 */
#include <errno.h>
#include <limits.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "adapter/process/device.h"
#include "adapter/process/libc.h"
#include "adapter/process/uaccess.h"
#include "adapter/process/uverbs_internal.h"

#ifndef RDMA_VERBS_IOCTL
#define RDMA_VERBS_IOCTL _IOWR(0x1b, 1, struct ib_uverbs_ioctl_hdr)
#endif

enum {
	IOCTL_PAGE = 4096, /* longest call, header included */
	INLINE_MAX = 8,	   /* shorter inputs lie in the attribute itself */
	SPECS_MAX = 16,
	CORE_SUPPORT_OPTIONAL_MR_ACCESS = 1,
};

enum attr_type {
	ATTR_END,   /* of a table */
	ATTR_IN,    /* min..max bytes; more only if they are zero */
	ATTR_OUT,   /* at least min bytes */
	ATTR_CONST, /* a number of 4 or 8 bytes */
	ATTR_FLAGS, /* as ATTR_CONST */
	ATTR_IDR,
	ATTR_IDR_NEW,
	ATTR_FD,
	ATTR_FD_NEW,
};

struct attr_spec {
	uint16_t id;
	uint8_t type; /* enum attr_type */
	bool must;
	uint16_t min, max;
};

#define IN(id, must, len)                   \
	{                                   \
		id, ATTR_IN, must, len, len \
	}
#define IN_ANY(id, must)                         \
	{                                        \
		id, ATTR_IN, must, 0, UINT16_MAX \
	}
#define OUT(id, must, len)                          \
	{                                           \
		id, ATTR_OUT, must, len, UINT16_MAX \
	}
#define CONSTANT(id, must)                 \
	{                                  \
		id, ATTR_CONST, must, 4, 8 \
	}
#define FLAGS(id, must)                    \
	{                                  \
		id, ATTR_FLAGS, must, 4, 8 \
	}
#define OBJECT(id, must)                 \
	{                                \
		id, ATTR_IDR, must, 0, 0 \
	}
#define NEW_OBJECT(id)                       \
	{                                    \
		id, ATTR_IDR_NEW, true, 0, 0 \
	}
#define FD(id, must)                    \
	{                               \
		id, ATTR_FD, must, 0, 0 \
	}
#define NEW_FD(id)                          \
	{                                   \
		id, ATTR_FD_NEW, true, 0, 0 \
	}
#define UHW IN_ANY(UVERBS_ATTR_UHW_IN, false), OUT(UVERBS_ATTR_UHW_OUT, false, 0)

struct call {
	const struct method *method;
	uint64_t user_attrs;		    /* address of the program's attributes */
	const struct ib_uverbs_attr *attrs; /* our copy */
	int16_t at[SPECS_MAX]; /* index in attrs of each attribute of the table; -1: not given */
};

struct method {
	uint16_t object, method;
	bool before_context; /* may come before GET_CONTEXT */
	int (*run)(struct host_ctx *ctx, const struct call *call);
	struct attr_spec specs[SPECS_MAX];
};

/* --------------------------------------------------------- what a method sees of its attributes */

static int place(const struct call *call, uint16_t id)
{
	const struct attr_spec *spec = call->method->specs;
	int i;

	for (i = 0; i < SPECS_MAX && spec[i].type != ATTR_END; i++) {
		if (spec[i].id == id)
			return call->at[i];
	}
	return -1;
}

static bool given(const struct call *call, uint16_t id)
{
	return place(call, id) >= 0;
}

/* Where an input lies. */
static uint64_t input_at(const struct ib_uverbs_attr *attr)
{
	return attr->len <= INLINE_MAX ? (uintptr_t)&attr->data : attr->data;
}

static int get_bytes(const struct call *call, uint16_t id, void *dst, size_t len)
{
	const struct ib_uverbs_attr *attr = &call->attrs[place(call, id)];

	if (attr->len <= INLINE_MAX) {
		memcpy(dst, &attr->data, len);
		return 0;
	}
	return uaccess_read(dst, attr->data, len);
}

/* A number of up to 8 bytes; 0 when it was not given. */
static uint64_t get_number(const struct call *call, uint16_t id)
{
	int at = place(call, id);
	uint64_t value = 0;

	if (at >= 0)
		memcpy(&value, &call->attrs[at].data,
		       call->attrs[at].len <= INLINE_MAX ? call->attrs[at].len : INLINE_MAX);
	return value;
}

static uint64_t get_handle(const struct call *call, uint16_t id)
{
	return call->attrs[place(call, id)].data;
}

/* -1 when no descriptor was given. */
static int get_fd(const struct call *call, uint16_t id)
{
	int at = place(call, id);

	if (at < 0)
		return -1;
	/* any number that is none of ours gives EBADF later */
	return call->attrs[at].data <= INT_MAX ? (int)call->attrs[at].data : INT_MAX;
}

static uint64_t user_attr(const struct call *call, int at)
{
	return call->user_attrs + at * sizeof(struct ib_uverbs_attr);
}

static int mark_output(const struct call *call, int at)
{
	uint16_t flags = call->attrs[at].flags | UVERBS_ATTR_F_VALID_OUTPUT;

	return uaccess_write(user_attr(call, at) + offsetof(struct ib_uverbs_attr, flags), &flags,
			     sizeof(flags));
}

/* Write what fits; the rest of a longer buffer is zeroed. */
static int put_bytes(const struct call *call, uint16_t id, const void *src, size_t len)
{
	int at = place(call, id), ret;
	struct uv_udata buffer;

	if (at < 0)
		return 0;
	buffer = (struct uv_udata){ .out = call->attrs[at].data, .out_len = call->attrs[at].len };
	ret = uv_udata_out(&buffer, src, len);
	return ret ? ret : mark_output(call, at);
}

static int put_new(const struct call *call, uint16_t id, uint64_t value)
{
	int at = place(call, id);

	return uaccess_write(user_attr(call, at) + offsetof(struct ib_uverbs_attr, data), &value,
			     sizeof(value));
}

static struct uv_udata get_udata(const struct call *call)
{
	int in = place(call, UVERBS_ATTR_UHW_IN), out = place(call, UVERBS_ATTR_UHW_OUT);
	struct uv_udata udata = { 0 };

	if (in >= 0) {
		udata.in = input_at(&call->attrs[in]);
		udata.in_len = call->attrs[in].len;
	}
	if (out >= 0) {
		udata.out = call->attrs[out].data;
		udata.out_len = call->attrs[out].len;
	}
	return udata;
}

/* ------------------------------------------------------------------ methods */

static int invoke_write(struct host_ctx *ctx, const struct call *call)
{
	struct uv_cmd cmd = {
		.ctx = ctx,
		.command = get_number(call, UVERBS_ATTR_WRITE_CMD),
		.udata = get_udata(call),
	};
	int in = place(call, UVERBS_ATTR_CORE_IN), out = place(call, UVERBS_ATTR_CORE_OUT), ret;

	if (in >= 0) {
		cmd.in = input_at(&call->attrs[in]);
		cmd.in_len = call->attrs[in].len;
	}
	if (out >= 0) {
		cmd.out = call->attrs[out].data;
		cmd.out_len = call->attrs[out].len;
	}
	ret = uv_command(&cmd);
	if (!ret && out >= 0)
		ret = mark_output(call, out);
	return ret;
}

static int get_context(struct host_ctx *ctx, const struct call *call)
{
	uint64_t support = CORE_SUPPORT_OPTIONAL_MR_ACCESS;
	struct uv_udata udata = get_udata(call);
	uint32_t vectors = DEVICE_COMP_VECTORS;
	int ret = uv_get_context(ctx, &udata);

	if (!ret)
		ret = put_bytes(call, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, &vectors,
				sizeof(vectors));
	if (!ret)
		ret = put_bytes(call, UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, &support,
				sizeof(support));
	return ret;
}

static int query_port(struct host_ctx *ctx, const struct call *call)
{
	struct ib_uverbs_query_port_resp_ex resp;
	int ret = uv_query_port(ctx->dev, get_number(call, UVERBS_ATTR_QUERY_PORT_PORT_NUM), &resp);

	return ret ? ret : put_bytes(call, UVERBS_ATTR_QUERY_PORT_RESP, &resp, sizeof(resp));
}

static int query_gid_table(struct host_ctx *ctx, const struct call *call)
{
	uint64_t entry_size = get_number(call, UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE), found = 0,
		 room;
	const struct ib_uverbs_attr *list =
		&call->attrs[place(call, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES)];
	struct ib_uverbs_gid_entry entry;
	unsigned int index;
	int ret;

	if (get_number(call, UVERBS_ATTR_QUERY_GID_TABLE_FLAGS))
		return -EINVAL;
	if (!entry_size || list->len % entry_size)
		return -EINVAL;
	room = list->len / entry_size;
	for (index = 0; index < device_gid_count(ctx->dev); index++) {
		struct uv_udata buffer;

		if (uv_query_gid(ctx->dev, 1, index, &entry))
			continue;
		if (found == room)
			return -EINVAL;
		buffer = (struct uv_udata){ .out = list->data + found * entry_size,
					    .out_len = entry_size };
		ret = uv_udata_out(&buffer, &entry, sizeof(entry));
		if (ret)
			return ret;
		found++;
	}
	ret = mark_output(call, place(call, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES));
	return ret ? ret :
		     put_bytes(call, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, &found,
			       sizeof(found));
}

static int query_gid_entry(struct host_ctx *ctx, const struct call *call)
{
	struct ib_uverbs_gid_entry entry;
	int ret;

	if (get_number(call, UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS))
		return -EINVAL;
	ret = uv_query_gid(ctx->dev, get_number(call, UVERBS_ATTR_QUERY_GID_ENTRY_PORT),
			   get_number(call, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX), &entry);
	return ret ? ret :
		     put_bytes(call, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, &entry, sizeof(entry));
}

static int pd_destroy(struct host_ctx *ctx, const struct call *call)
{
	return uv_pd_dealloc(ctx, get_handle(call, UVERBS_ATTR_DESTROY_PD_HANDLE));
}

static int mr_destroy(struct host_ctx *ctx, const struct call *call)
{
	return uv_mr_dereg(ctx, get_handle(call, UVERBS_ATTR_DESTROY_MR_HANDLE));
}

static int not_supported(struct host_ctx *ctx, const struct call *call)
{
	(void)ctx, (void)call;
	return -EOPNOTSUPP;
}

static int cq_create(struct host_ctx *ctx, const struct call *call)
{
	struct uv_cq_req req = {
		.user_handle = get_number(call, UVERBS_ATTR_CREATE_CQ_USER_HANDLE),
		.cqe = get_number(call, UVERBS_ATTR_CREATE_CQ_CQE),
		.comp_vector = get_number(call, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR),
		.channel_fd = get_fd(call, UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL),
		.async_fd = get_fd(call, UVERBS_ATTR_CREATE_CQ_EVENT_FD),
		.udata = get_udata(call),
	};
	/* accepted by the core and without effect in the driver */
	uint64_t known = IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION |
			 IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
	struct ib_uverbs_destroy_cq_resp gone;
	struct ib_uverbs_create_cq_resp resp;
	int ret;

	if (get_number(call, UVERBS_ATTR_CREATE_CQ_FLAGS) & ~known)
		return -EINVAL;
	ret = uv_cq_create(ctx, &req, &resp);
	if (ret)
		return ret;
	ret = put_bytes(call, UVERBS_ATTR_CREATE_CQ_RESP_CQE, &resp.cqe, sizeof(resp.cqe));
	if (!ret)
		ret = put_new(call, UVERBS_ATTR_CREATE_CQ_HANDLE, resp.cq_handle);
	if (ret)
		uv_cq_destroy(ctx, resp.cq_handle, &gone);
	return ret;
}

static int cq_destroy(struct host_ctx *ctx, const struct call *call)
{
	struct ib_uverbs_destroy_cq_resp resp;
	int ret = uv_cq_destroy(ctx, get_handle(call, UVERBS_ATTR_DESTROY_CQ_HANDLE), &resp);

	return ret ? ret : put_bytes(call, UVERBS_ATTR_DESTROY_CQ_RESP, &resp, sizeof(resp));
}

static int qp_create(struct host_ctx *ctx, const struct call *call)
{
	struct uv_qp_req req = {
		.user_handle = get_number(call, UVERBS_ATTR_CREATE_QP_USER_HANDLE),
		.has_pd = given(call, UVERBS_ATTR_CREATE_QP_PD_HANDLE),
		.has_scq = given(call, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE),
		.has_rcq = given(call, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE),
		.has_srq = given(call, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE) ||
			   given(call, UVERBS_ATTR_CREATE_QP_XRCD_HANDLE) ||
			   given(call, UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE),
		.type = get_number(call, UVERBS_ATTR_CREATE_QP_TYPE),
		.async_fd = get_fd(call, UVERBS_ATTR_CREATE_QP_EVENT_FD),
		.udata = get_udata(call),
	};
	uint64_t flags = get_number(call, UVERBS_ATTR_CREATE_QP_FLAGS);
	uint32_t handle, qpn, events;
	int ret;

	if (flags & ~(uint64_t)IB_UVERBS_QP_CREATE_SQ_SIG_ALL)
		return -EOPNOTSUPP;
	req.sig_all = flags & IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
	if (req.has_pd)
		req.pd = get_handle(call, UVERBS_ATTR_CREATE_QP_PD_HANDLE);
	if (req.has_scq)
		req.scq = get_handle(call, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE);
	if (req.has_rcq)
		req.rcq = get_handle(call, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE);
	ret = get_bytes(call, UVERBS_ATTR_CREATE_QP_CAP, &req.cap, sizeof(req.cap));
	if (!ret)
		ret = uv_qp_create(ctx, &req, &handle, &qpn);
	if (ret)
		return ret;
	/*
	 * The answer is what was asked for, not what rounding made of it; but inline data costs the
	 * device nothing, and rsockets on iWARP look whether they got any without asking.
	 */
	req.cap.max_inline_data = EA_MAX_INLINE;
	ret = put_bytes(call, UVERBS_ATTR_CREATE_QP_RESP_CAP, &req.cap, sizeof(req.cap));
	if (!ret)
		ret = put_bytes(call, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &qpn, sizeof(qpn));
	if (!ret)
		ret = put_new(call, UVERBS_ATTR_CREATE_QP_HANDLE, handle);
	if (ret)
		uv_qp_destroy(ctx, handle, &events);
	return ret;
}

static int qp_destroy(struct host_ctx *ctx, const struct call *call)
{
	struct ib_uverbs_destroy_qp_resp resp;
	int ret = uv_qp_destroy(ctx, get_handle(call, UVERBS_ATTR_DESTROY_QP_HANDLE),
				&resp.events_reported);

	return ret ? ret : put_bytes(call, UVERBS_ATTR_DESTROY_QP_RESP, &resp, sizeof(resp));
}

static int async_alloc(struct host_ctx *ctx, const struct call *call)
{
	int fd = uv_async_open(ctx), ret;

	if (fd < 0)
		return fd;
	ret = put_new(call, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, fd);
	if (ret)
		close(fd);
	return ret;
}

static const struct method methods[] = {
	{ UVERBS_OBJECT_DEVICE,
	  UVERBS_METHOD_INVOKE_WRITE,
	  true,
	  invoke_write,
	  {
		  IN_ANY(UVERBS_ATTR_CORE_IN, false),
		  OUT(UVERBS_ATTR_CORE_OUT, false, 0),
		  CONSTANT(UVERBS_ATTR_WRITE_CMD, true),
		  UHW,
	  } },
	{ UVERBS_OBJECT_DEVICE,
	  UVERBS_METHOD_GET_CONTEXT,
	  true,
	  get_context,
	  {
		  OUT(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, false, 4),
		  OUT(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, false, 8),
		  UHW,
	  } },
	{ UVERBS_OBJECT_DEVICE,
	  UVERBS_METHOD_QUERY_PORT,
	  false,
	  query_port,
	  {
		  CONSTANT(UVERBS_ATTR_QUERY_PORT_PORT_NUM, true),
		  OUT(UVERBS_ATTR_QUERY_PORT_RESP, true, sizeof(struct ib_uverbs_query_port_resp)),
	  } },
	{ UVERBS_OBJECT_DEVICE,
	  UVERBS_METHOD_QUERY_GID_TABLE,
	  false,
	  query_gid_table,
	  {
		  CONSTANT(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, true),
		  FLAGS(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, false),
		  OUT(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, true, 0),
		  OUT(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, true, 8),
	  } },
	{ UVERBS_OBJECT_DEVICE,
	  UVERBS_METHOD_QUERY_GID_ENTRY,
	  false,
	  query_gid_entry,
	  {
		  CONSTANT(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, true),
		  CONSTANT(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, true),
		  FLAGS(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, true),
		  OUT(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, true,
		      sizeof(struct ib_uverbs_gid_entry)),
	  } },
	{ UVERBS_OBJECT_PD,
	  UVERBS_METHOD_PD_DESTROY,
	  false,
	  pd_destroy,
	  {
		  OBJECT(UVERBS_ATTR_DESTROY_PD_HANDLE, true),
	  } },
	{ UVERBS_OBJECT_MR,
	  UVERBS_METHOD_MR_DESTROY,
	  false,
	  mr_destroy,
	  {
		  OBJECT(UVERBS_ATTR_DESTROY_MR_HANDLE, true),
	  } },
	{ UVERBS_OBJECT_MR,
	  UVERBS_METHOD_REG_DMABUF_MR,
	  false,
	  not_supported,
	  {
		  NEW_OBJECT(UVERBS_ATTR_REG_DMABUF_MR_HANDLE),
		  OBJECT(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, true),
		  IN(UVERBS_ATTR_REG_DMABUF_MR_OFFSET, true, 8),
		  IN(UVERBS_ATTR_REG_DMABUF_MR_LENGTH, true, 8),
		  IN(UVERBS_ATTR_REG_DMABUF_MR_IOVA, true, 8),
		  IN(UVERBS_ATTR_REG_DMABUF_MR_FD, true, 4),
		  FLAGS(UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, true),
		  OUT(UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, true, 4),
		  OUT(UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, true, 4),
	  } },
	{ UVERBS_OBJECT_CQ,
	  UVERBS_METHOD_CQ_CREATE,
	  false,
	  cq_create,
	  {
		  NEW_OBJECT(UVERBS_ATTR_CREATE_CQ_HANDLE),
		  IN(UVERBS_ATTR_CREATE_CQ_CQE, true, 4),
		  IN(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, true, 8),
		  FD(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, false),
		  IN(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, true, 4),
		  FLAGS(UVERBS_ATTR_CREATE_CQ_FLAGS, false),
		  OUT(UVERBS_ATTR_CREATE_CQ_RESP_CQE, true, 4),
		  FD(UVERBS_ATTR_CREATE_CQ_EVENT_FD, false),
		  UHW,
	  } },
	{ UVERBS_OBJECT_CQ,
	  UVERBS_METHOD_CQ_DESTROY,
	  false,
	  cq_destroy,
	  {
		  OBJECT(UVERBS_ATTR_DESTROY_CQ_HANDLE, true),
		  OUT(UVERBS_ATTR_DESTROY_CQ_RESP, true, sizeof(struct ib_uverbs_destroy_cq_resp)),
	  } },
	{ UVERBS_OBJECT_QP,
	  UVERBS_METHOD_QP_CREATE,
	  false,
	  qp_create,
	  {
		  NEW_OBJECT(UVERBS_ATTR_CREATE_QP_HANDLE),
		  OBJECT(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, false),
		  OBJECT(UVERBS_ATTR_CREATE_QP_PD_HANDLE, false),
		  OBJECT(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, false),
		  OBJECT(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, false),
		  OBJECT(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, false),
		  OBJECT(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, false),
		  IN(UVERBS_ATTR_CREATE_QP_USER_HANDLE, true, 8),
		  IN(UVERBS_ATTR_CREATE_QP_CAP, true, sizeof(struct ib_uverbs_qp_cap)),
		  CONSTANT(UVERBS_ATTR_CREATE_QP_TYPE, true),
		  FLAGS(UVERBS_ATTR_CREATE_QP_FLAGS, false),
		  FD(UVERBS_ATTR_CREATE_QP_EVENT_FD, false),
		  OUT(UVERBS_ATTR_CREATE_QP_RESP_CAP, true, sizeof(struct ib_uverbs_qp_cap)),
		  OUT(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, true, 4),
		  UHW,
	  } },
	{ UVERBS_OBJECT_QP,
	  UVERBS_METHOD_QP_DESTROY,
	  false,
	  qp_destroy,
	  {
		  OBJECT(UVERBS_ATTR_DESTROY_QP_HANDLE, true),
		  OUT(UVERBS_ATTR_DESTROY_QP_RESP, true, sizeof(struct ib_uverbs_destroy_qp_resp)),
	  } },
	{ UVERBS_OBJECT_ASYNC_EVENT,
	  UVERBS_METHOD_ASYNC_EVENT_ALLOC,
	  false,
	  async_alloc,
	  {
		  NEW_FD(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE),
	  } },
};

/* ------------------------------------------------------------------ decoding */

static const struct method *find_method(uint16_t object, uint16_t number)
{
	size_t i;

	for (i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		if (methods[i].object == object && methods[i].method == number)
			return &methods[i];
	}
	return NULL;
}

static int check_attr(const struct attr_spec *spec, const struct ib_uverbs_attr *attr)
{
	int zero;

	if (attr->attr_data.reserved)
		return -EINVAL;
	switch (spec->type) {
	case ATTR_CONST:
	case ATTR_FLAGS:
		return attr->len == 4 || attr->len == 8 ? 0 : -EINVAL;
	case ATTR_IN:
		if (attr->len < spec->min)
			return -EINVAL;
		if (attr->len <= spec->max)
			return 0;
		zero = uaccess_is_zero(input_at(attr) + spec->max, attr->len - spec->max);
		return zero < 0 ? zero : zero ? 0 : -EOPNOTSUPP;
	case ATTR_OUT:
		return attr->len < spec->min ? -EINVAL : 0;
	case ATTR_IDR:
		return attr->len || attr->data > UINT32_MAX ? -EINVAL : 0;
	default:
		return attr->len ? -EINVAL : 0;
	}
}

/* Sort the attributes by the method's table. */
static int decode(struct call *call, unsigned int count)
{
	const struct attr_spec *specs = call->method->specs;
	unsigned int i, j;
	int ret;

	for (j = 0; j < SPECS_MAX; j++)
		call->at[j] = -1;
	for (i = 0; i < count; i++) {
		const struct ib_uverbs_attr *attr = &call->attrs[i];

		for (j = 0; j < SPECS_MAX && specs[j].type != ATTR_END; j++) {
			if (specs[j].id == attr->attr_id)
				break;
		}
		if (j == SPECS_MAX || specs[j].type == ATTR_END) {
			if (attr->flags & UVERBS_ATTR_F_MANDATORY)
				return -EPROTONOSUPPORT;
			continue;
		}
		if (call->at[j] >= 0)
			return -EINVAL;
		ret = check_attr(&specs[j], attr);
		if (ret)
			return ret;
		call->at[j] = i;
	}
	for (j = 0; j < SPECS_MAX && specs[j].type != ATTR_END; j++) {
		if (specs[j].must && call->at[j] < 0)
			return -EINVAL;
	}
	return 0;
}

/* Most calls are shorter than this, so one copy gets header and attributes, and it fits the stack. */
enum {
	USUAL_LENGTH = sizeof(struct ib_uverbs_ioctl_hdr) + 14 * sizeof(struct ib_uverbs_attr)
};

/*
 * @usual has USUAL_LENGTH bytes.  *@hdr is there or in memory to be freed, when the call is longer; of that the
 * stacks of small threads have not enough.
 */
static int read_message(void *usual, uint64_t arg, struct ib_uverbs_ioctl_hdr **hdr)
{
	struct ib_uverbs_ioctl_hdr *head = usual, *all = usual;
	uint16_t length, num_attrs;
	size_t have;
	int ret = uaccess_read_some(head, arg, sizeof(*head), USUAL_LENGTH, &have);

	*hdr = head;
	if (ret)
		return ret;
	length = head->length;
	num_attrs = head->num_attrs;
	if (length > IOCTL_PAGE || length != sizeof(*head) + num_attrs * sizeof(head->attrs[0]))
		return -EINVAL;
	if (have >= length)
		return 0;
	if (length > USUAL_LENGTH)
		all = malloc(length);
	if (!all)
		return -ENOMEM;
	*hdr = all;
	ret = uaccess_read(all, arg, length);
	/* another thread may have written there since */
	if (!ret && (all->length != length || all->num_attrs != num_attrs))
		ret = -EINVAL;
	return ret;
}

static int run_message(struct host_ctx *ctx, uint64_t arg, const struct ib_uverbs_ioctl_hdr *hdr)
{
	struct call call;
	int ret, udata;

	if (hdr->reserved1 || hdr->reserved2)
		return -EPROTONOSUPPORT;
	if (hdr->driver_id != DEVICE_DRIVER_ID)
		return -EINVAL;
	call.method = find_method(hdr->object_id, hdr->method_id);
	if (!call.method)
		return -EPROTONOSUPPORT;
	call.user_attrs = arg + sizeof(*hdr);
	call.attrs = hdr->attrs;
	ret = decode(&call, hdr->num_attrs);
	if (ret)
		return ret;
	if (!ctx->live && !call.method->before_context)
		return -EINVAL;
	engine_ctx_command(ctx);
	ret = call.method->run(ctx, &call);
	/* what comes before there is a context is libibverbs finding out what there is */
	if (ret && ctx->live && call.method->run != invoke_write)
		host_log(HOST_LOG_INFO, "uverbs method %u of object %u failed: %s", hdr->method_id,
			 hdr->object_id, strerror(-ret));
	udata = place(&call, UVERBS_ATTR_UHW_OUT);
	if (!ret && udata >= 0)
		ret = mark_output(&call, udata);
	return ret;
}

static int verbs_ioctl(struct host_ctx *ctx, uint64_t arg)
{
	unsigned char usual[USUAL_LENGTH] __attribute__((aligned(8)));
	struct ib_uverbs_ioctl_hdr *hdr;
	int ret = read_message(usual, arg, &hdr);

	if (!ret)
		ret = run_message(ctx, arg, hdr);
	if (hdr != (void *)usual)
		free(hdr);
	return ret;
}

int uv_ioctl(struct host_file *file, unsigned long request, void *arg)
{
	if ((uint32_t)request != (uint32_t)RDMA_VERBS_IOCTL)
		return -ENOTTY;
	engine_ctx_command(uv_container_of(file, struct host_ctx, file));
	return verbs_ioctl(uv_container_of(file, struct host_ctx, file), (uintptr_t)arg);
}
