// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * /dev/infiniband/uverbs0 at byte level: each command, by each of the three ways, and each errno.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/erdma-abi.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#define VERBS_IOCTL 0xC0181B01u
#define EXTENDED    IB_USER_VERBS_CMD_FLAG_EXTENDED

enum {
	ERDMA = 19,
	MANDATORY = 1,
	VALID_OUTPUT = 2,
	RING = 65536,
	BAD_HANDLE = 4711
};

static unsigned char *memory; /* ring and record memory, 1 MiB */
static uint64_t *records;

/* ------------------------------------------------------------------ ways to issue a command */

struct call {
	struct ib_uverbs_ioctl_hdr hdr;
	struct ib_uverbs_attr attrs[24];
};

static void call_begin(struct call *call, uint16_t object, uint16_t method)
{
	memset(call, 0, sizeof(*call));
	call->hdr.length = sizeof(call->hdr);
	call->hdr.object_id = object;
	call->hdr.method_id = method;
	call->hdr.driver_id = ERDMA;
}

static struct ib_uverbs_attr *call_add(struct call *call, uint16_t id, uint16_t len, uint64_t data)
{
	struct ib_uverbs_attr *attr = &call->attrs[call->hdr.num_attrs++];

	attr->attr_id = id;
	attr->len = len;
	attr->flags = MANDATORY;
	attr->data = data;
	call->hdr.length += sizeof(*attr);
	return attr;
}

static int call_do(int fd, struct call *call)
{
	return ioctl(fd, VERBS_IOCTL, call) ? errno : 0;
}

static int invoke_write(int fd, uint32_t command, const void *in, size_t in_len, void *out,
			size_t out_len)
{
	struct call call;
	uint64_t inlined = 0;

	call_begin(&call, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
	call_add(&call, UVERBS_ATTR_WRITE_CMD, 8, command);
	if (in_len && in_len <= 8) {
		memcpy(&inlined, in, in_len);
		call_add(&call, UVERBS_ATTR_CORE_IN, in_len, inlined);
	} else if (in_len) {
		call_add(&call, UVERBS_ATTR_CORE_IN, in_len, (uintptr_t)in);
	}
	if (out_len)
		call_add(&call, UVERBS_ATTR_CORE_OUT, out_len, (uintptr_t)out);
	return call_do(fd, &call);
}

static int plain_write(int fd, uint32_t command, void *in, size_t in_len, void *out, size_t out_len)
{
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		unsigned char body[256];
	} cmd;
	uint64_t response = (uintptr_t)out;
	size_t len = sizeof(cmd.hdr) + in_len;

	memset(&cmd, 0, sizeof(cmd));
	cmd.hdr.command = command;
	cmd.hdr.in_words = len / 4;
	cmd.hdr.out_words = out_len / 4;
	memcpy(cmd.body, in, in_len);
	if (out_len)
		memcpy(cmd.body, &response, sizeof(response));
	return write(fd, &cmd, len) == (ssize_t)len ? 0 : errno;
}

static int dev_open(int *async)
{
	struct erdma_uresp_alloc_ctx uresp;
	struct ib_uverbs_attr *fd_attr;
	uint32_t vectors = 0;
	uint64_t support = 0;
	struct call call;
	int fd = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	call_begin(&call, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
	call_add(&call, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, 4, (uintptr_t)&vectors);
	call_add(&call, UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, 8, (uintptr_t)&support);
	call_add(&call, UVERBS_ATTR_UHW_OUT, sizeof(uresp), (uintptr_t)&uresp);
	assert_int_equal(call_do(fd, &call), 0);
	assert_true(vectors > 0);
	assert_int_equal(support, 1);
	assert_int_equal(uresp.dev_id, 0x107f);
	assert_int_equal(uresp.sdb_type, 0);
	assert_true(uresp.sdb != uresp.rdb && uresp.rdb != uresp.cdb);
	assert_true(call.attrs[2].flags & VALID_OUTPUT);
	call_begin(&call, UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC);
	fd_attr = call_add(&call, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, 0, 0);
	assert_int_equal(call_do(fd, &call), 0);
	if (async)
		*async = fd_attr->data_s64;
	else
		close(fd_attr->data_s64);
	return fd;
}

static uint32_t pd_alloc(int fd)
{
	struct ib_uverbs_alloc_pd req = { 0 };
	struct ib_uverbs_alloc_pd_resp resp;

	assert_int_equal(invoke_write(fd, IB_USER_VERBS_CMD_ALLOC_PD, &req, sizeof(req), &resp,
				      sizeof(resp)),
			 0);
	return resp.pd_handle;
}

static int pd_destroy(int fd, uint32_t handle)
{
	struct call call;

	call_begin(&call, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY);
	call_add(&call, UVERBS_ATTR_DESTROY_PD_HANDLE, 0, handle);
	return call_do(fd, &call);
}

static int channel_create(int fd)
{
	struct ib_uverbs_create_comp_channel req = { 0 };
	struct ib_uverbs_create_comp_channel_resp resp;

	assert_int_equal(invoke_write(fd, IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, &req, sizeof(req),
				      &resp, sizeof(resp)),
			 0);
	return resp.fd;
}

struct cq {
	uint32_t handle, cqe;
	struct erdma_uresp_create_cq uresp;
};

static int cq_create(int fd, uint32_t cqe, uint32_t vector, int channel, uint64_t ring,
		     uint64_t record, struct cq *cq)
{
	struct erdma_ureq_create_cq ureq = { .db_record_va = record,
					     .qbuf_va = ring,
					     .qbuf_len = cqe * 32 };
	struct ib_uverbs_attr *handle;
	struct call call;
	int ret;

	call_begin(&call, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
	handle = call_add(&call, UVERBS_ATTR_CREATE_CQ_HANDLE, 0, 0);
	call_add(&call, UVERBS_ATTR_CREATE_CQ_CQE, 4, cqe);
	call_add(&call, UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 8, 0x1122334455667788);
	if (channel >= 0)
		call_add(&call, UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, 0, channel);
	call_add(&call, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 4, vector);
	call_add(&call, UVERBS_ATTR_CREATE_CQ_RESP_CQE, 4, (uintptr_t)&cq->cqe);
	call_add(&call, UVERBS_ATTR_UHW_IN, sizeof(ureq), (uintptr_t)&ureq);
	call_add(&call, UVERBS_ATTR_UHW_OUT, sizeof(cq->uresp), (uintptr_t)&cq->uresp);
	ret = call_do(fd, &call);
	cq->handle = handle->data;
	return ret;
}

static int cq_destroy(int fd, uint32_t handle, struct ib_uverbs_destroy_cq_resp *resp)
{
	struct call call;

	call_begin(&call, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY);
	call_add(&call, UVERBS_ATTR_DESTROY_CQ_HANDLE, 0, handle);
	call_add(&call, UVERBS_ATTR_DESTROY_CQ_RESP, sizeof(*resp), (uintptr_t)resp);
	return call_do(fd, &call);
}

static void good_cq(int fd, struct cq *cq)
{
	assert_int_equal(cq_create(fd, 64, 0, -1, (uintptr_t)memory, (uintptr_t)records, cq), 0);
}

struct qp {
	uint32_t handle, qpn;
	struct ib_uverbs_qp_cap cap;
	struct erdma_uresp_create_qp uresp;
	uint32_t buf_len; /* 0: what is needed */
	uint64_t type, flags;
};

static int qp_create(int fd, uint32_t pd, uint32_t scq, uint32_t rcq, struct qp *qp)
{
	struct erdma_ureq_create_qp ureq = {
		.db_record_va = (uintptr_t)(records + 8),
		.qbuf_va = (uintptr_t)memory + RING,
		.qbuf_len = qp->buf_len ? qp->buf_len : RING,
	};
	struct ib_uverbs_qp_cap answer;
	struct ib_uverbs_attr *handle;
	struct call call;
	int ret;

	call_begin(&call, UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
	handle = call_add(&call, UVERBS_ATTR_CREATE_QP_HANDLE, 0, 0);
	call_add(&call, UVERBS_ATTR_CREATE_QP_PD_HANDLE, 0, pd);
	call_add(&call, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, 0, scq);
	call_add(&call, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, 0, rcq);
	call_add(&call, UVERBS_ATTR_CREATE_QP_USER_HANDLE, 8, 0x99);
	call_add(&call, UVERBS_ATTR_CREATE_QP_CAP, sizeof(qp->cap), (uintptr_t)&qp->cap);
	call_add(&call, UVERBS_ATTR_CREATE_QP_TYPE, 8, qp->type ? qp->type : IB_UVERBS_QPT_RC);
	if (qp->flags)
		call_add(&call, UVERBS_ATTR_CREATE_QP_FLAGS, 4, qp->flags);
	call_add(&call, UVERBS_ATTR_CREATE_QP_RESP_CAP, sizeof(answer), (uintptr_t)&answer);
	call_add(&call, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, 4, (uintptr_t)&qp->qpn);
	call_add(&call, UVERBS_ATTR_UHW_IN, sizeof(ureq), (uintptr_t)&ureq);
	call_add(&call, UVERBS_ATTR_UHW_OUT, sizeof(qp->uresp), (uintptr_t)&qp->uresp);
	ret = call_do(fd, &call);
	qp->handle = handle->data;
	if (!ret) {
		/* as asked for, not as rounded; inline space is there for all */
		assert_memory_equal(&answer, &qp->cap,
				    offsetof(struct ib_uverbs_qp_cap, max_inline_data));
		assert_int_equal(answer.max_inline_data, 96);
	}
	return ret;
}

static int qp_destroy(int fd, uint32_t handle, uint32_t *events)
{
	struct ib_uverbs_destroy_qp_resp resp = { 0 };
	struct call call;
	int ret;

	call_begin(&call, UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY);
	call_add(&call, UVERBS_ATTR_DESTROY_QP_HANDLE, 0, handle);
	call_add(&call, UVERBS_ATTR_DESTROY_QP_RESP, sizeof(resp), (uintptr_t)&resp);
	ret = call_do(fd, &call);
	if (events)
		*events = resp.events_reported;
	return ret;
}

static void usual_qp(struct qp *qp)
{
	*qp = (struct qp){ .cap = { 16, 16, 2, 1, 64 } };
}

static int qp_modify(int fd, uint32_t handle, uint32_t mask, uint8_t qp_state)
{
	struct ib_uverbs_modify_qp req = {
		.qp_handle = handle, .attr_mask = mask, .qp_state = qp_state, .port_num = 1
	};

	return invoke_write(fd, IB_USER_VERBS_CMD_MODIFY_QP, &req, sizeof(req), NULL, 0);
}

static uint8_t qp_state(int fd, uint32_t handle)
{
	struct ib_uverbs_query_qp req = { .qp_handle = handle };
	struct ib_uverbs_query_qp_resp resp;

	assert_int_equal(invoke_write(fd, IB_USER_VERBS_CMD_QUERY_QP, &req, sizeof(req), &resp,
				      sizeof(resp)),
			 0);
	return resp.qp_state;
}

static int mr_reg(int fd, uint32_t pd, uint64_t start, uint64_t len, uint64_t iova, uint32_t access,
		  struct ib_uverbs_reg_mr_resp *resp)
{
	struct ib_uverbs_reg_mr req = {
		.start = start,
		.length = len,
		.hca_va = iova,
		.pd_handle = pd,
		.access_flags = access,
	};

	return invoke_write(fd, IB_USER_VERBS_CMD_REG_MR, &req, sizeof(req), resp, sizeof(*resp));
}

static int mr_destroy(int fd, uint32_t handle)
{
	struct call call;

	call_begin(&call, UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY);
	call_add(&call, UVERBS_ATTR_DESTROY_MR_HANDLE, 0, handle);
	return call_do(fd, &call);
}

/* ------------------------------------------------------------------ the encoding */

static void probe(void **state)
{
	int fd = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
	struct call call;

	(void)state;
	/*
	 * libibverbs' first question: anything but ENOTTY and EPROTONOSUPPORT means "yes, there is
	 * INVOKE_WRITE"
	 */
	assert_int_equal(invoke_write(fd, IB_USER_VERBS_CMD_QUERY_DEVICE, NULL, 0, NULL, 0),
			 ENOSPC);
	/* nothing but that before GET_CONTEXT */
	call_begin(&call, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY);
	call_add(&call, UVERBS_ATTR_DESTROY_PD_HANDLE, 0, 0);
	assert_int_equal(call_do(fd, &call), EINVAL);
	call_begin(&call, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
	assert_int_equal(call_do(fd, &call), EINVAL); /* no room for the driver's answer */
	call_add(&call, UVERBS_ATTR_UHW_OUT, 39, (uintptr_t)memory);
	assert_int_equal(call_do(fd, &call), EINVAL);
	call.attrs[0].len = 40;
	assert_int_equal(call_do(fd, &call), 0);
	assert_int_equal(call_do(fd, &call), EINVAL); /* once only */
	close(fd);
}

static void headers(void **state)
{
	int fd = dev_open(NULL);
	uint32_t pd = pd_alloc(fd);
	struct call call, good;

	(void)state;
	call_begin(&good, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY);
	call_add(&good, UVERBS_ATTR_DESTROY_PD_HANDLE, 0, pd);
	call = good;
	call.hdr.length++;
	assert_int_equal(call_do(fd, &call), EINVAL);
	call = good;
	call.hdr.num_attrs = 0;
	assert_int_equal(call_do(fd, &call), EINVAL);
	call = good;
	call.hdr.num_attrs = 300;
	call.hdr.length = sizeof(call.hdr) + 300 * sizeof(call.attrs[0]);
	assert_int_equal(call_do(fd, &call), EINVAL);
	call = good;
	call.hdr.reserved1 = 1;
	assert_int_equal(call_do(fd, &call), EPROTONOSUPPORT);
	call = good;
	call.hdr.reserved2 = 1;
	assert_int_equal(call_do(fd, &call), EPROTONOSUPPORT);
	call = good;
	call.hdr.driver_id = 3;
	assert_int_equal(call_do(fd, &call), EINVAL);
	call = good;
	call.hdr.object_id = 77;
	assert_int_equal(call_do(fd, &call), EPROTONOSUPPORT);
	call = good;
	call.hdr.method_id = 77;
	assert_int_equal(call_do(fd, &call), EPROTONOSUPPORT);
	assert_int_equal(ioctl(fd, VERBS_IOCTL, NULL), -1);
	assert_int_equal(errno, EFAULT);
	assert_int_equal(ioctl(fd, 0xC01C1B01u, &good), -1);
	assert_int_equal(errno, ENOTTY);

	/* attributes */
	call = good;
	call_add(&call, UVERBS_ATTR_DESTROY_PD_HANDLE, 0, pd);
	assert_int_equal(call_do(fd, &call), EINVAL); /* twice */
	call = good;
	call_add(&call, 99, 0, 0);
	assert_int_equal(call_do(fd, &call), EPROTONOSUPPORT); /* unknown and mandatory */
	call = good;
	call.attrs[0].len = 4;
	assert_int_equal(call_do(fd, &call), EINVAL);
	call = good;
	call.attrs[0].data |= 1ull << 32;
	assert_int_equal(call_do(fd, &call), EINVAL);
	call = good;
	call.attrs[0].attr_data.reserved = 1;
	assert_int_equal(call_do(fd, &call), EINVAL);
	call_begin(&call, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY);
	assert_int_equal(call_do(fd, &call), EINVAL); /* missing */
	call = good;
	call_add(&call, 99, 0, 0)->flags = 0;
	assert_int_equal(call_do(fd, &call), 0); /* unknown and optional */
	assert_int_equal(call_do(fd, &good), ENOENT);
	close(fd);
}

static void lengths(void **state)
{
	int fd = dev_open(NULL);
	struct call call;
	struct {
		struct ib_uverbs_query_port_resp_ex resp;
		unsigned char more[32];
	} big;
	unsigned char in[48] = { 0 };

	(void)state;
	memset(&big, 0xff, sizeof(big));
	call_begin(&call, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT);
	call_add(&call, UVERBS_ATTR_QUERY_PORT_PORT_NUM, 8, 1);
	call_add(&call, UVERBS_ATTR_QUERY_PORT_RESP, sizeof(big), (uintptr_t)&big);
	assert_int_equal(call_do(fd, &call), 0);
	assert_int_equal(big.more[0] | big.more[31], 0); /* the tail is zeroed */
	assert_true(call.attrs[1].flags & VALID_OUTPUT);
	call.attrs[1].len = 8;
	assert_int_equal(call_do(fd, &call), EINVAL);
	call.attrs[1].len = sizeof(big.resp);
	call.attrs[1].data = 16;
	assert_int_equal(call_do(fd, &call), EFAULT);
	call.attrs[1].data = (uintptr_t)&big;
	call.attrs[0].data = 2;
	assert_int_equal(call_do(fd, &call), EINVAL);
	call.attrs[0].data = 0x100000001;
	assert_int_equal(call_do(fd, &call), EINVAL);

	/* longer driver data: zeros are allowed, others are not */
	((struct erdma_ureq_create_cq *)in)->db_record_va = (uintptr_t)records;
	((struct erdma_ureq_create_cq *)in)->qbuf_va = (uintptr_t)memory;
	((struct erdma_ureq_create_cq *)in)->qbuf_len = 2048;
	call_begin(&call, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
	call_add(&call, UVERBS_ATTR_UHW_IN, 20, (uintptr_t)in);
	call_add(&call, UVERBS_ATTR_CREATE_CQ_HANDLE, 0, 0);
	call_add(&call, UVERBS_ATTR_CREATE_CQ_CQE, 4, 64);
	call_add(&call, UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 8, 1);
	call_add(&call, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 4, 0);
	call_add(&call, UVERBS_ATTR_CREATE_CQ_RESP_CQE, 4, (uintptr_t)&big);
	assert_int_equal(call_do(fd, &call), EINVAL);
	call.attrs[0].len = 48;
	in[47] = 1;
	assert_int_equal(call_do(fd, &call), EOPNOTSUPP);
	in[47] = 0;
	assert_int_equal(call_do(fd, &call), 0);
	close(fd);
}

/* ------------------------------------------------------------------ queries */

static void query_device(void **state)
{
	struct ib_uverbs_ex_query_device ex_req = { 0 };
	struct ib_uverbs_ex_query_device_resp ex;
	struct ib_uverbs_query_device_resp resp;
	struct ib_uverbs_query_device req = { 0 };
	int fd = dev_open(NULL);

	(void)state;
	assert_int_equal(invoke_write(fd, IB_USER_VERBS_CMD_QUERY_DEVICE, &req, sizeof(req), &resp,
				      sizeof(resp)),
			 0);
	assert_int_equal(resp.vendor_id, 0x1ded);
	assert_int_equal(resp.vendor_part_id, 0x107f);
	assert_int_equal(resp.max_qp % 1024, 1023);
	assert_int_equal(resp.max_qp_wr, 8192);
	assert_int_equal(resp.max_sge, 1);
	assert_int_equal(resp.max_sge_rd, 1);
	assert_int_equal(resp.max_cqe, 1 << 20);
	assert_int_equal(resp.max_qp_rd_atom, 128);
	assert_int_equal(resp.atomic_cap, 2);
	assert_int_equal(resp.device_cap_flags, 1 << 21);
	assert_int_equal(resp.max_pkeys, 0);
	assert_int_equal(resp.phys_port_cnt, 1);
	assert_int_not_equal(resp.node_guid, 0);
	assert_true(resp.fw_ver >> 32);
	assert_int_equal(invoke_write(fd, EXTENDED | IB_USER_VERBS_CMD_QUERY_DEVICE, &ex_req,
				      sizeof(ex_req), &ex, sizeof(ex)),
			 0);
	assert_memory_equal(&ex.base, &resp, sizeof(resp));
	assert_int_equal(ex.response_length, sizeof(ex));
	assert_int_equal(ex.device_cap_flags_ex, resp.device_cap_flags);
	assert_int_equal(invoke_write(fd, EXTENDED | IB_USER_VERBS_CMD_QUERY_DEVICE, &ex_req,
				      sizeof(ex_req), &ex, 184),
			 0);
	assert_int_equal(ex.response_length, 184);
	assert_int_equal(invoke_write(fd, EXTENDED | IB_USER_VERBS_CMD_QUERY_DEVICE, &ex_req,
				      sizeof(ex_req), &ex, 180),
			 ENOSPC);
	ex_req.comp_mask = 1;
	assert_int_equal(invoke_write(fd, EXTENDED | IB_USER_VERBS_CMD_QUERY_DEVICE, &ex_req,
				      sizeof(ex_req), &ex, sizeof(ex)),
			 EINVAL);
	assert_int_equal(invoke_write(fd, IB_USER_VERBS_CMD_POLL_CQ, &req, sizeof(req), &resp,
				      sizeof(resp)),
			 EOPNOTSUPP);
	assert_int_equal(invoke_write(fd, 500, &req, sizeof(req), &resp, sizeof(resp)), EOPNOTSUPP);
	close(fd);
}

static void query_port_and_gids(void **state)
{
	struct ib_uverbs_query_port req = { .port_num = 1 };
	struct ib_uverbs_query_port_resp resp;
	struct ib_uverbs_gid_entry entry, table[4];
	uint64_t found = 0;
	int fd = dev_open(NULL);
	struct call call;

	(void)state;
	assert_int_equal(invoke_write(fd, IB_USER_VERBS_CMD_QUERY_PORT, &req, sizeof(req), &resp,
				      sizeof(resp)),
			 0);
	assert_int_equal(resp.state, 4);
	assert_int_equal(resp.phys_state, 5);
	assert_int_equal(resp.gid_tbl_len, 1);
	assert_int_equal(resp.pkey_tbl_len, 0);
	assert_int_equal(resp.link_layer, 2);
	assert_int_equal(resp.max_msg_sz, UINT32_MAX);
	assert_int_equal(resp.port_cap_flags, 0x90000);
	assert_int_equal(resp.max_mtu, resp.active_mtu);
	req.port_num = 0;
	assert_int_equal(invoke_write(fd, IB_USER_VERBS_CMD_QUERY_PORT, &req, sizeof(req), &resp,
				      sizeof(resp)),
			 EINVAL);

	call_begin(&call, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY);
	call_add(&call, UVERBS_ATTR_QUERY_GID_ENTRY_PORT, 8, 1);
	call_add(&call, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, 8, 0);
	call_add(&call, UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 4, 0);
	call_add(&call, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, sizeof(entry), (uintptr_t)&entry);
	assert_int_equal(call_do(fd, &call), 0);
	assert_int_equal(entry.gid[1], 0);
	assert_int_equal(entry.port_num, 1);
	assert_int_equal(entry.gid_type, 0);
	call.attrs[1].data = 1;
	assert_int_equal(call_do(fd, &call), EINVAL);
	call.attrs[1].data = 0;
	call.attrs[0].data = 2;
	assert_int_equal(call_do(fd, &call), EINVAL);
	call.attrs[0].data = 1;
	call.attrs[2].data = 1;
	assert_int_equal(call_do(fd, &call), EINVAL);

	call_begin(&call, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE);
	call_add(&call, UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, 8, sizeof(entry));
	call_add(&call, UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, 4, 0);
	call_add(&call, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, sizeof(table), (uintptr_t)table);
	call_add(&call, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, 8, (uintptr_t)&found);
	assert_int_equal(call_do(fd, &call), 0);
	assert_int_equal(found, 1);
	assert_memory_equal(&table[0], &entry, sizeof(entry));
	call.attrs[0].data = 0;
	assert_int_equal(call_do(fd, &call), EINVAL);
	call.attrs[0].data = sizeof(entry);
	call.attrs[2].len = 0;
	assert_int_equal(call_do(fd, &call), EINVAL);
	close(fd);
}

/* ------------------------------------------------------------------ PD, MR */

static void handles(void **state)
{
	int fd = dev_open(NULL);
	uint32_t pd[5], i;
	struct cq cq;

	(void)state;
	/* the lowest free number, one space for all kinds */
	for (i = 0; i < 5; i++) {
		pd[i] = pd_alloc(fd);
		assert_int_equal(pd[i], i);
	}
	assert_int_equal(pd_destroy(fd, 1), 0);
	assert_int_equal(pd_destroy(fd, 3), 0);
	assert_int_equal(pd_destroy(fd, 3), ENOENT);
	good_cq(fd, &cq);
	assert_int_equal(cq.handle, 1);
	assert_int_equal(pd_destroy(fd, 1), EINVAL); /* of another kind */
	assert_int_equal(pd_alloc(fd), 3);
	assert_int_equal(pd_alloc(fd), 5);
	assert_int_equal(pd_destroy(fd, 0xffffffff), ENOENT);
	close(fd);
}

static void memory_regions(void **state)
{
	enum {
		LW = 1,
		RW = 2,
		RR = 4,
		RA = 8,
		ON_DEMAND = 64,
		FLUSH = 256,
		RELAXED = 1 << 20
	};
	int fd = dev_open(NULL);
	uint32_t pd = pd_alloc(fd);
	uint64_t at = (uintptr_t)memory;
	struct ib_uverbs_reg_mr_resp mr, other;
	unsigned char *hole, *read_only, *big;
	uint32_t lkey;

	(void)state;
	assert_int_equal(mr_reg(fd, pd, at + 5, 100, at + 5, LW | RW | RR | RA, &mr), 0);
	assert_int_equal(mr.lkey, mr.rkey);
	assert_int_not_equal(mr.lkey >> 8, 0);
	assert_int_equal(pd_destroy(fd, pd), EBUSY);
	lkey = mr.lkey;
	assert_int_equal(mr_destroy(fd, mr.mr_handle), 0);
	assert_int_equal(mr_destroy(fd, mr.mr_handle), ENOENT);
	assert_int_equal(mr_reg(fd, pd, at, 100, at, 0, &mr), 0);
	/* the index is not used again at once */
	assert_int_not_equal(mr.lkey, lkey);
	assert_int_equal(mr_reg(fd, pd, at, 100, at, LW | RELAXED | 0x3ff00000, &other), 0);
	assert_int_equal(mr_reg(fd, pd, at, 100, at + 4096, LW, &other), 0);

	assert_int_equal(mr_reg(fd, BAD_HANDLE, at, 100, at, LW, &other), ENOENT);
	assert_int_equal(mr_reg(fd, pd, at, 0, at, LW, &other), EINVAL);
	assert_int_equal(mr_reg(fd, pd, at, 100, at + 1, LW, &other), EINVAL);
	assert_int_equal(mr_reg(fd, pd, at, 100, at, RW, &other), EINVAL);
	assert_int_equal(mr_reg(fd, pd, at, 100, at, RA, &other), EINVAL);
	assert_int_equal(mr_reg(fd, pd, at, 100, at, LW | ON_DEMAND, &other), EINVAL);
	assert_int_equal(mr_reg(fd, pd, at, 100, at, LW | 1u << 31, &other), EINVAL);
	assert_int_equal(mr_reg(fd, pd, at, 100, at, LW | FLUSH, &other), EOPNOTSUPP);
	assert_int_equal(mr_reg(fd, pd, at, UINT64_MAX - at, at, LW, &other), EINVAL);
	assert_int_equal(mr_reg(fd, pd, UINT64_MAX - 4095, 4096, UINT64_MAX - 4095, LW, &other),
			 EINVAL);
	assert_int_equal(mr_reg(fd, pd, 0, 100, 0, LW, &other), EFAULT);

	/* memory that is not there, in the middle; memory that may not be written or read */
	hole = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(hole + 4096, 4096);
	assert_int_equal(mr_reg(fd, pd, (uintptr_t)hole, 3 * 4096, (uintptr_t)hole, LW, &other),
			 EFAULT);
	assert_int_equal(mr_reg(fd, pd, (uintptr_t)hole, 4096, (uintptr_t)hole, LW, &other), 0);
	assert_int_equal(mr_reg(fd, pd, (uintptr_t)hole + 4095, 2, (uintptr_t)hole + 4095, LW,
				&other),
			 EFAULT);
	read_only = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(
		mr_reg(fd, pd, (uintptr_t)read_only, 4096, (uintptr_t)read_only, RR, &other), 0);
	assert_int_equal(mr_reg(fd, pd, (uintptr_t)read_only, 4096, (uintptr_t)read_only, LW,
				&other),
			 EFAULT);
	mprotect(read_only, 4096, PROT_NONE);
	assert_int_equal(mr_reg(fd, pd, (uintptr_t)read_only, 4096, (uintptr_t)read_only, RR,
				&other),
			 EFAULT);
	/* 4 GiB and a page */
	big = mmap(NULL, (4ull << 30) + 4096, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(big != MAP_FAILED);
	assert_int_equal(mr_reg(fd, pd, (uintptr_t)big, (4ull << 30) + 4096, (uintptr_t)big,
				LW | RW, &other),
			 0);
	/* the page that must not be written lies in the middle */
	assert_int_equal(mprotect(big + (2ull << 30), 4096, PROT_READ), 0);
	assert_int_equal(mr_reg(fd, pd, (uintptr_t)big, 4ull << 30, (uintptr_t)big, LW, &other),
			 EFAULT);
	assert_int_equal(mr_reg(fd, pd, (uintptr_t)big, 4ull << 30, (uintptr_t)big, RR, &other), 0);
	assert_int_equal(mprotect(big + (2ull << 30), 4096, PROT_NONE), 0);
	assert_int_equal(mr_reg(fd, pd, (uintptr_t)big, 4ull << 30, (uintptr_t)big, RR, &other),
			 EFAULT);
	munmap(big, (4ull << 30) + 4096);
	close(fd);
}

/*
 * Registered memory that the program takes away: what is left of it, and what comes in its place.
 */
static void memory_goes(void **state)
{
	enum {
		PAGES = 16,
		PAGE = 4096,
		LW = 1
	};
	int fd = dev_open(NULL), round;
	uint32_t pd = pd_alloc(fd);
	struct ib_uverbs_reg_mr_resp mr;
	unsigned char *p;

	(void)state;
	for (round = 0; round < 200; round++) {
		p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
		assert_true(p != MAP_FAILED);
		assert_int_equal(mr_reg(fd, pd, (uintptr_t)p, PAGES * PAGE, (uintptr_t)p, LW, &mr),
				 0);
		switch (round % 4) {
		case 0:
			assert_int_equal(munmap(p + PAGE, PAGE), 0);
			assert_int_equal(mr_reg(fd, pd, (uintptr_t)p, PAGES * PAGE, (uintptr_t)p,
						LW, &mr),
					 EFAULT);
			break;
		case 1:
			assert_int_equal(mprotect(p, PAGE, PROT_NONE), 0);
			break;
		case 2:
			p = mremap(p, PAGES * PAGE, 2 * PAGES * PAGE, MREMAP_MAYMOVE);
			assert_true(p != MAP_FAILED);
			assert_int_equal(munmap(p + PAGES * PAGE, PAGES * PAGE), 0);
			break;
		case 3:
			assert_ptr_equal(mmap(p, PAGE, PROT_READ,
					      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
					 p);
			break;
		}
		assert_int_equal(mr_destroy(fd, mr.mr_handle), 0);
		assert_int_equal(munmap(p, PAGES * PAGE), 0);
	}
	close(fd);
}

/* ------------------------------------------------------------------ CQ */

static void completion_queues(void **state)
{
	int fd = dev_open(NULL), channel, other_fd;
	uint64_t ring = (uintptr_t)memory, record = (uintptr_t)records;
	struct ib_uverbs_destroy_cq_resp gone;
	struct cq cq, next;
	uint32_t cqn;

	(void)state;
	records[0] = 0x1234;
	good_cq(fd, &cq);
	assert_int_equal(records[0], 0); /* what the last user left there is gone */
	assert_int_equal(cq.cqe, 64);
	assert_int_equal(cq.uresp.num_cqe, 64);
	assert_int_not_equal(cq.uresp.cq_id, 0);
	cqn = cq.uresp.cq_id;
	assert_int_equal(cq_destroy(fd, cq.handle, &gone), 0);
	assert_int_equal(gone.comp_events_reported, 0);
	assert_int_equal(gone.async_events_reported, 0);
	assert_int_equal(cq_destroy(fd, cq.handle, &gone), ENOENT);
	good_cq(fd, &cq);
	assert_int_equal(cq.uresp.cq_id, cqn + 1); /* cyclic */
	assert_int_equal(cq_create(fd, 100, 0, -1, ring, record, &next), 0);
	assert_int_equal(next.cqe, 128);

	assert_int_equal(cq_create(fd, 0, 0, -1, ring, record, &next), EINVAL);
	assert_int_equal(cq_create(fd, (1 << 20) + 1, 0, -1, ring, record, &next), EINVAL);
	assert_int_equal(cq_create(fd, 64, 99, -1, ring, record, &next), EINVAL);
	assert_int_equal(cq_create(fd, 64, 0, -1, 4096, record, &next), EFAULT);
	assert_int_equal(cq_create(fd, 64, 0, -1, ring, 64, &next), EFAULT);
	assert_int_equal(cq_create(fd, 64, 0, -1, ring, record + 1, &next), EINVAL);
	assert_int_equal(cq_create(fd, 64, 0, fd, ring, record, &next), EBADF);
	assert_int_equal(cq_create(fd, 64, 0, 0, ring, record, &next), EBADF);
	assert_int_equal(cq_create(fd, 64, 0, 99999, ring, record, &next), EBADF);
	channel = channel_create(fd);
	assert_int_equal(cq_create(fd, 64, 0, channel, ring, record, &next), 0);
	/* a channel of another context */
	other_fd = dev_open(NULL);
	assert_int_equal(cq_create(other_fd, 64, 0, channel, ring, record, &cq), EBADF);
	close(other_fd);
	/* the channel may go first */
	close(channel);
	assert_int_equal(cq_destroy(fd, next.handle, &gone), 0);
	close(fd);
}

static void deepest_queue(void **state)
{
	int fd = dev_open(NULL);
	size_t len = (1u << 20) * 32;
	void *ring = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct cq cq;

	(void)state;
	assert_int_equal(cq_create(fd, 1 << 20, 0, -1, (uintptr_t)ring, (uintptr_t)records, &cq),
			 0);
	assert_int_equal(cq.cqe, 1 << 20);
	close(fd);
	munmap(ring, len);
}

/* ------------------------------------------------------------------ QP */

static void queue_pairs(void **state)
{
	int fd = dev_open(NULL);
	uint32_t pd = pd_alloc(fd), qpn, events;
	struct ib_uverbs_destroy_cq_resp gone;
	struct qp qp;
	struct cq cq;

	(void)state;
	good_cq(fd, &cq);
	usual_qp(&qp);
	records[8] = records[9] = 7;
	assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), 0);
	assert_int_equal(records[8] | records[9], 0);
	assert_int_equal(qp.uresp.qp_id, qp.qpn);
	assert_int_equal(qp.uresp.num_sqe, 64);
	assert_int_equal(qp.uresp.num_rqe, 16);
	assert_int_equal(qp.uresp.rq_offset, 4096);
	assert_int_equal(pd_destroy(fd, pd), EBUSY);
	assert_int_equal(cq_destroy(fd, cq.handle, &gone), EBUSY);
	qpn = qp.qpn;
	assert_int_equal(qp_destroy(fd, qp.handle, &events), 0);
	assert_int_equal(events, 0);
	assert_int_equal(qp_destroy(fd, qp.handle, NULL), ENOENT);
	assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), 0);
	assert_int_equal(qp.qpn, qpn + 1);

	usual_qp(&qp);
	assert_int_equal(qp_create(fd, BAD_HANDLE, cq.handle, cq.handle, &qp), ENOENT);
	assert_int_equal(qp_create(fd, cq.handle, cq.handle, cq.handle, &qp), EINVAL);
	assert_int_equal(qp_create(fd, pd, BAD_HANDLE, cq.handle, &qp), ENOENT);
	assert_int_equal(qp_create(fd, pd, cq.handle, pd, &qp), EINVAL);
	qp.type = IB_UVERBS_QPT_UD;
	assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), EOPNOTSUPP);
	qp.type = IB_UVERBS_QPT_UC;
	assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), EOPNOTSUPP);
	usual_qp(&qp);
	qp.flags = IB_UVERBS_QP_CREATE_SCATTER_FCS;
	assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), EOPNOTSUPP);
	usual_qp(&qp);
	qp.flags = IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
	assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), 0);
	usual_qp(&qp);
	qp.buf_len = 4096 + 16 * 32 - 1;
	assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), EINVAL);
	qp.buf_len++;
	assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), 0);
	close(fd);
}

static void queue_pair_limits(void **state)
{
	static const struct {
		struct ib_uverbs_qp_cap cap;
		int err;
	} cases[] = {
		{ { 0, 16, 1, 1, 0 }, EINVAL },	   { { 16, 0, 1, 1, 0 }, EINVAL },
		{ { 8193, 16, 1, 1, 0 }, EINVAL }, { { 16, 8193, 1, 1, 0 }, EINVAL },
		{ { 16, 16, 7, 1, 0 }, EINVAL },   { { 16, 16, 1, 2, 0 }, EINVAL },
		{ { 16, 16, 1, 1, 97 }, EINVAL },  { { 16, 16, 6, 1, 96 }, 0 },
		{ { 1, 1, 0, 0, 0 }, 0 },
	};
	int fd = dev_open(NULL);
	uint32_t pd = pd_alloc(fd);
	struct cq cq;
	size_t i;

	(void)state;
	good_cq(fd, &cq);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct qp qp = { .cap = cases[i].cap };

		assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), cases[i].err);
	}
	close(fd);
}

static void modify_rules(void **state)
{
	enum {
		RESET,
		INIT,
		RTR,
		RTS,
		SQD,
		SQE,
		ERR,
		STATE = 1,
		CUR_STATE = 2,
		PORT = 32,
		AV = 128
	};
	struct ib_uverbs_modify_qp req = { 0 };
	int fd = dev_open(NULL);
	uint32_t pd = pd_alloc(fd);
	struct qp qp;
	struct cq cq;

	(void)state;
	good_cq(fd, &cq);
	usual_qp(&qp);
	assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), 0);
	assert_int_equal(qp_state(fd, qp.handle), INIT); /* the driver has no RESET in iWARP mode */
	assert_int_equal(qp_modify(fd, qp.handle, 0x29, INIT), 0);
	assert_int_equal(qp_modify(fd, qp.handle, 0x29, RTR), 0);
	assert_int_equal(qp_state(fd, qp.handle), RTR);
	/* only the connection manager brings it to RTS */
	assert_int_equal(qp_modify(fd, qp.handle, 0x129181, RTR), EINVAL); /* AV without a port */
	assert_int_equal(qp_modify(fd, qp.handle, STATE, RTS), EINVAL);
	assert_int_equal(qp_modify(fd, qp.handle, 0x12e01, RTS), EINVAL);
	assert_int_equal(qp_modify(fd, qp.handle, PORT, 0), 0);
	assert_int_equal(qp_modify(fd, qp.handle, STATE, SQD), 0);
	assert_int_equal(qp_state(fd, qp.handle), INIT);
	assert_int_equal(qp_modify(fd, qp.handle, STATE, 7), EINVAL);
	assert_int_equal(qp_modify(fd, qp.handle, 1 << 21, 0), EOPNOTSUPP);
	assert_int_equal(qp_modify(fd, qp.handle, STATE | 1 << 25, INIT), EOPNOTSUPP);
	assert_int_equal(qp_modify(fd, BAD_HANDLE, STATE, INIT), ENOENT);
	assert_int_equal(qp_modify(fd, cq.handle, STATE, INIT), EINVAL);
	req.qp_handle = qp.handle;
	req.attr_mask = PORT;
	req.port_num = 2;
	assert_int_equal(invoke_write(fd, IB_USER_VERBS_CMD_MODIFY_QP, &req, sizeof(req), NULL, 0),
			 EINVAL);
	req.attr_mask = CUR_STATE;
	req.cur_qp_state = 9;
	assert_int_equal(invoke_write(fd, IB_USER_VERBS_CMD_MODIFY_QP, &req, sizeof(req), NULL, 0),
			 EINVAL);
	req.attr_mask = AV;
	req.dest.port_num = 1;
	assert_int_equal(invoke_write(fd, IB_USER_VERBS_CMD_MODIFY_QP, &req, sizeof(req), NULL, 0),
			 0);
	assert_int_equal(qp_modify(fd, qp.handle, STATE, ERR), 0);
	assert_int_equal(qp_state(fd, qp.handle), ERR);
	assert_int_equal(qp_modify(fd, qp.handle, STATE, ERR), 0);
	assert_int_equal(qp_destroy(fd, qp.handle, NULL), 0);
	close(fd);
}

static void query_qp(void **state)
{
	struct ib_uverbs_query_qp req = { 0 };
	struct ib_uverbs_query_qp_resp resp;
	int fd = dev_open(NULL);
	uint32_t pd = pd_alloc(fd);
	struct qp qp;
	struct cq cq;

	(void)state;
	good_cq(fd, &cq);
	usual_qp(&qp);
	qp.flags = IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
	assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), 0);
	req.qp_handle = qp.handle;
	assert_int_equal(invoke_write(fd, IB_USER_VERBS_CMD_QUERY_QP, &req, sizeof(req), &resp,
				      sizeof(resp)),
			 0);
	assert_int_equal(resp.max_send_wr, 64); /* blocks */
	assert_int_equal(resp.max_recv_wr, 16);
	assert_int_equal(resp.max_send_sge, 2);
	assert_int_equal(resp.max_inline_data, 96);
	assert_int_equal(resp.qp_access_flags, 7);
	assert_int_equal(resp.sq_sig_all, 1);
	assert_int_equal(invoke_write(fd, IB_USER_VERBS_CMD_QUERY_QP, &req, sizeof(req), &resp, 64),
			 ENOSPC);
	close(fd);
}

static void many_objects(void **state)
{
	enum {
		MANY = 3000
	};
	int fd = dev_open(NULL), i;
	uint32_t pd = pd_alloc(fd), first = 0, *qps = calloc(MANY, sizeof(*qps));
	struct qp qp;
	struct cq cq;

	(void)state;
	good_cq(fd, &cq);
	for (i = 0; i < MANY; i++) {
		usual_qp(&qp);
		assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), 0);
		if (!i)
			first = qp.qpn;
		assert_true(qp.qpn == first + i);
		qps[i] = qp.handle;
	}
	/* out of order, half by hand and half by closing the file */
	for (i = 0; i < MANY; i += 2)
		assert_int_equal(qp_destroy(fd, qps[MANY - 1 - i], NULL), 0);
	close(fd);
	free(qps);
	/* numbers go round */
	fd = dev_open(NULL);
	pd = pd_alloc(fd);
	good_cq(fd, &cq);
	for (i = 0; i < 70000; i++) {
		usual_qp(&qp);
		assert_int_equal(qp_create(fd, pd, cq.handle, cq.handle, &qp), 0);
		assert_true(qp.qpn > 0 && qp.qpn < 65536);
		assert_int_equal(qp_destroy(fd, qp.handle, NULL), 0);
	}
	close(fd);
}

struct worker {
	pthread_t thread;
	int fd;
	uint32_t pd;
	unsigned int number;
	unsigned char *memory;
	unsigned int failures;
};

/*
 * Objects of its own on a shared file, and blind destroys of whatever handle the others may have.
 */
static void *work(void *arg)
{
	struct worker *w = arg;
	uint64_t at = (uintptr_t)w->memory;
	struct ib_uverbs_reg_mr_resp mr;
	struct erdma_ureq_create_cq ureq = { .db_record_va = at + 60000,
					     .qbuf_va = at,
					     .qbuf_len = 2048 };
	struct erdma_uresp_create_cq uresp;
	struct ib_uverbs_destroy_cq_resp gone;
	struct ib_uverbs_attr *handle;
	struct call call;
	uint32_t cqe;
	int i, err;

	for (i = 0; i < 300; i++) {
		if (mr_reg(w->fd, w->pd, at, 4096, at, 7, &mr))
			w->failures++;
		/* someone else's guess may have been quicker */
		err = mr_destroy(w->fd, mr.mr_handle);
		if (err && err != ENOENT && err != EINVAL)
			w->failures++;
		call_begin(&call, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
		handle = call_add(&call, UVERBS_ATTR_CREATE_CQ_HANDLE, 0, 0);
		call_add(&call, UVERBS_ATTR_CREATE_CQ_CQE, 4, 64);
		call_add(&call, UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 8, at);
		call_add(&call, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 4, 0);
		call_add(&call, UVERBS_ATTR_CREATE_CQ_RESP_CQE, 4, (uintptr_t)&cqe);
		call_add(&call, UVERBS_ATTR_UHW_IN, sizeof(ureq), (uintptr_t)&ureq);
		call_add(&call, UVERBS_ATTR_UHW_OUT, sizeof(uresp), (uintptr_t)&uresp);
		if (call_do(w->fd, &call)) {
			w->failures++;
			continue;
		}
		err = cq_destroy(w->fd, handle->data, &gone);
		if (err && err != ENOENT && err != EINVAL)
			w->failures++;
		cq_destroy(w->fd, i % 8, &gone);
		mr_destroy(w->fd, i % 8);
	}
	return NULL;
}

static void many_threads(void **state)
{
	enum {
		THREADS = 4
	};
	struct worker workers[THREADS];
	int fd = dev_open(NULL), i;
	uint32_t pd = pd_alloc(fd);

	(void)state;
	for (i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){
			.fd = fd, .pd = pd, .number = i, .memory = memory + i * 65536
		};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		assert_int_equal(workers[i].failures, 0);
	}
	close(fd);
}

/* A file that is closed while another thread is in a command on it. */
static void *command_until_closed(void *arg)
{
	struct ib_uverbs_query_device req = { 0 };
	struct ib_uverbs_query_device_resp resp;
	int fd = *(int *)arg;

	while (!invoke_write(fd, IB_USER_VERBS_CMD_QUERY_DEVICE, &req, sizeof(req), &resp,
			     sizeof(resp)))
		;
	return NULL;
}

static void close_under_way(void **state)
{
	pthread_t thread;
	int i, fd;

	(void)state;
	for (i = 0; i < 50; i++) {
		fd = dev_open(NULL);
		assert_int_equal(pthread_create(&thread, NULL, command_until_closed, &fd), 0);
		usleep(200);
		close(fd);
		pthread_join(thread, NULL);
	}
}

/* ------------------------------------------------------------------ write() */

static void write_framing(void **state)
{
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_alloc_pd req;
	} cmd = { .hdr = { IB_USER_VERBS_CMD_ALLOC_PD, sizeof(cmd) / 4, 1 } };
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_ex_cmd_hdr ex;
		struct ib_uverbs_ex_query_device req;
	} xcmd = {
		.hdr = { EXTENDED | IB_USER_VERBS_CMD_QUERY_DEVICE, 1, 304 / 8 },
	};
	struct ib_uverbs_ex_query_device_resp ex;
	struct ib_uverbs_alloc_pd_resp resp;
	int fd = dev_open(NULL);

	(void)state;
	cmd.req.response = (uintptr_t)&resp;
	assert_int_equal(write(fd, &cmd, sizeof(cmd)), sizeof(cmd));
	assert_int_equal(resp.pd_handle, 0);
	assert_int_equal(write(fd, &cmd, 4), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(write(fd, &cmd, sizeof(cmd) - 4), -1);
	assert_int_equal(errno, EINVAL);
	cmd.hdr.in_words = 2;
	assert_int_equal(write(fd, &cmd, 8), -1);
	assert_int_equal(errno, ENOSPC);
	cmd.hdr.in_words = sizeof(cmd) / 4;
	cmd.hdr.out_words = 0;
	assert_int_equal(write(fd, &cmd, sizeof(cmd)), -1);
	assert_int_equal(errno, ENOSPC);
	cmd.hdr.out_words = 1;
	cmd.hdr.command = IB_USER_VERBS_CMD_POST_SEND;
	assert_int_equal(write(fd, &cmd, sizeof(cmd)), -1);
	assert_int_equal(errno, EOPNOTSUPP);
	cmd.hdr.command = 1 << 24;
	assert_int_equal(write(fd, &cmd, sizeof(cmd)), -1);
	assert_int_equal(errno, EINVAL);
	cmd.hdr.command = IB_USER_VERBS_CMD_ALLOC_PD;
	cmd.req.response = 8;
	assert_int_equal(write(fd, &cmd, sizeof(cmd)), -1);
	assert_int_equal(errno, EFAULT);
	/* that one was taken back */
	cmd.req.response = (uintptr_t)&resp;
	assert_int_equal(write(fd, &cmd, sizeof(cmd)), sizeof(cmd));
	assert_int_equal(resp.pd_handle, 1);
	/* a bad buffer; a constant that the compiler cannot see through */
	assert_int_equal(write(fd, (void *)((uintptr_t)fd + 64), sizeof(cmd)), -1);
	assert_int_equal(errno, EFAULT);

	xcmd.ex.response = (uintptr_t)&ex;
	assert_int_equal(write(fd, &xcmd, sizeof(xcmd)), sizeof(xcmd));
	assert_int_equal(ex.base.vendor_id, 0x1ded);
	xcmd.ex.cmd_hdr_reserved = 1;
	assert_int_equal(write(fd, &xcmd, sizeof(xcmd)), -1);
	assert_int_equal(errno, EINVAL);
	xcmd.ex.cmd_hdr_reserved = 0;
	xcmd.hdr.in_words = 2;
	assert_int_equal(write(fd, &xcmd, sizeof(xcmd)), -1);
	assert_int_equal(errno, EINVAL);
	xcmd.hdr.in_words = 1;
	xcmd.ex.response = 0;
	assert_int_equal(write(fd, &xcmd, sizeof(xcmd)), -1);
	assert_int_equal(errno, EINVAL);
	close(fd);
}

/* A whole life of objects by write() alone, as with a library that knows no ioctl. */
static void write_only(void **state)
{
	struct {
		struct ib_uverbs_create_cq core;
		struct erdma_ureq_create_cq uhw;
	} create_cq = { .core = { .user_handle = 5, .cqe = 64, .comp_channel = -1 },
			.uhw = { (uintptr_t)records, (uintptr_t)memory, 2048, 0 } };
	struct {
		struct ib_uverbs_create_cq_resp core;
		struct erdma_uresp_create_cq uhw;
	} cq;
	struct {
		struct ib_uverbs_create_qp core;
		struct erdma_ureq_create_qp uhw;
	} create_qp = { .uhw = { (uintptr_t)(records + 8), (uintptr_t)memory + RING, RING, 0 } };
	struct {
		struct ib_uverbs_create_qp_resp core;
		struct erdma_uresp_create_qp uhw;
	} qp;
	struct {
		struct ib_uverbs_get_context_resp core;
		struct erdma_uresp_alloc_ctx uhw;
	} context;
	struct ib_uverbs_get_context get = { 0 };
	struct ib_uverbs_alloc_pd alloc = { 0 };
	struct ib_uverbs_alloc_pd_resp pd;
	struct ib_uverbs_dealloc_pd dealloc;
	struct ib_uverbs_destroy_qp destroy_qp = { 0 };
	struct ib_uverbs_destroy_qp_resp qp_gone;
	struct ib_uverbs_destroy_cq destroy_cq = { 0 };
	struct ib_uverbs_destroy_cq_resp cq_gone;
	struct ib_uverbs_reg_mr reg = { .start = (uintptr_t)memory,
					.length = 10,
					.hca_va = (uintptr_t)memory };
	struct ib_uverbs_reg_mr_resp mr;
	struct ib_uverbs_dereg_mr dereg;
	struct pollfd async = { .events = POLLIN };
	int fd = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);

	(void)state;
	assert_int_equal(plain_write(fd, IB_USER_VERBS_CMD_GET_CONTEXT, &get, sizeof(get), &context,
				     sizeof(context)),
			 0);
	assert_int_equal(context.uhw.dev_id, 0x107f);
	async.fd = context.core.async_fd;
	assert_int_equal(poll(&async, 1, 0), 0);
	assert_int_equal(plain_write(fd, IB_USER_VERBS_CMD_ALLOC_PD, &alloc, sizeof(alloc), &pd,
				     sizeof(pd)),
			 0);
	assert_int_equal(
		plain_write(fd, IB_USER_VERBS_CMD_REG_MR, &reg, sizeof(reg), &mr, sizeof(mr)), 0);
	assert_int_equal(plain_write(fd, IB_USER_VERBS_CMD_CREATE_CQ, &create_cq, sizeof(create_cq),
				     &cq, sizeof(cq)),
			 0);
	assert_int_equal(cq.uhw.num_cqe, 64);
	create_qp.core.pd_handle = pd.pd_handle;
	create_qp.core.send_cq_handle = create_qp.core.recv_cq_handle = cq.core.cq_handle;
	create_qp.core.max_send_wr = create_qp.core.max_recv_wr = 8;
	create_qp.core.qp_type = IB_UVERBS_QPT_RC;
	assert_int_equal(plain_write(fd, IB_USER_VERBS_CMD_CREATE_QP, &create_qp, sizeof(create_qp),
				     &qp, sizeof(qp)),
			 0);
	assert_int_equal(qp.uhw.qp_id, qp.core.qpn);
	destroy_qp.qp_handle = qp.core.qp_handle;
	assert_int_equal(plain_write(fd, IB_USER_VERBS_CMD_DESTROY_QP, &destroy_qp,
				     sizeof(destroy_qp), &qp_gone, sizeof(qp_gone)),
			 0);
	destroy_cq.cq_handle = cq.core.cq_handle;
	assert_int_equal(plain_write(fd, IB_USER_VERBS_CMD_DESTROY_CQ, &destroy_cq,
				     sizeof(destroy_cq), &cq_gone, sizeof(cq_gone)),
			 0);
	dereg.mr_handle = mr.mr_handle;
	assert_int_equal(
		plain_write(fd, IB_USER_VERBS_CMD_DEREG_MR, &dereg, sizeof(dereg), NULL, 0), 0);
	dealloc.pd_handle = pd.pd_handle;
	assert_int_equal(plain_write(fd, IB_USER_VERBS_CMD_DEALLOC_PD, &dealloc, sizeof(dealloc),
				     NULL, 0),
			 0);
	assert_int_equal(plain_write(fd, IB_USER_VERBS_CMD_DEALLOC_PD, &dealloc, sizeof(dealloc),
				     NULL, 0),
			 ENOENT);
	close(async.fd);
	close(fd);
}

static int set_up(void **state)
{
	(void)state;
	memory = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	records = (uint64_t *)(memory + (1 << 20) - 4096);
	return memory == MAP_FAILED;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(probe),
		cmocka_unit_test(headers),
		cmocka_unit_test(lengths),
		cmocka_unit_test(query_device),
		cmocka_unit_test(query_port_and_gids),
		cmocka_unit_test(handles),
		cmocka_unit_test(memory_regions),
		cmocka_unit_test(memory_goes),
		cmocka_unit_test(completion_queues),
		cmocka_unit_test(deepest_queue),
		cmocka_unit_test(queue_pairs),
		cmocka_unit_test(queue_pair_limits),
		cmocka_unit_test(modify_rules),
		cmocka_unit_test(query_qp),
		cmocka_unit_test(many_objects),
		cmocka_unit_test(many_threads),
		cmocka_unit_test(close_under_way),
		cmocka_unit_test(write_framing),
		cmocka_unit_test(write_only),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
