// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Commands of uverbs, built by hand. */
#include "tests/process/uverbs_rig.h"

unsigned char *memory;
uint64_t *records;

int uverbs_set_up(void **state)
{
	(void)state;
	memory = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	records = (uint64_t *)(memory + (1 << 20) - 4096);
	return memory == MAP_FAILED;
}

void call_begin(struct call *call, uint16_t object, uint16_t method)
{
	memset(call, 0, sizeof(*call));
	call->hdr.length = sizeof(call->hdr);
	call->hdr.object_id = object;
	call->hdr.method_id = method;
	call->hdr.driver_id = ERDMA;
}

struct ib_uverbs_attr *call_add(struct call *call, uint16_t id, uint16_t len, uint64_t data)
{
	struct ib_uverbs_attr *attr = &call->attrs[call->hdr.num_attrs++];

	attr->attr_id = id;
	attr->len = len;
	attr->flags = MANDATORY;
	attr->data = data;
	call->hdr.length += sizeof(*attr);
	return attr;
}

int call_do(int fd, struct call *call)
{
	return ioctl(fd, VERBS_IOCTL, call) ? errno : 0;
}

int invoke_write(int fd, uint32_t command, const void *in, size_t in_len, void *out, size_t out_len)
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

int plain_write(int fd, uint32_t command, void *in, size_t in_len, void *out, size_t out_len)
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

int dev_open(int *async)
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

uint32_t pd_alloc(int fd)
{
	struct ib_uverbs_alloc_pd req = { 0 };
	struct ib_uverbs_alloc_pd_resp resp;

	assert_int_equal(invoke_write(fd, IB_USER_VERBS_CMD_ALLOC_PD, &req, sizeof(req), &resp,
				      sizeof(resp)),
			 0);
	return resp.pd_handle;
}

int pd_destroy(int fd, uint32_t handle)
{
	struct call call;

	call_begin(&call, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY);
	call_add(&call, UVERBS_ATTR_DESTROY_PD_HANDLE, 0, handle);
	return call_do(fd, &call);
}

int channel_create(int fd)
{
	struct ib_uverbs_create_comp_channel req = { 0 };
	struct ib_uverbs_create_comp_channel_resp resp;

	assert_int_equal(invoke_write(fd, IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, &req, sizeof(req),
				      &resp, sizeof(resp)),
			 0);
	return resp.fd;
}

int cq_create(int fd, uint32_t cqe, uint32_t vector, int channel, uint64_t ring, uint64_t record,
	      struct cq *cq)
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

int cq_destroy(int fd, uint32_t handle, struct ib_uverbs_destroy_cq_resp *resp)
{
	struct call call;

	call_begin(&call, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY);
	call_add(&call, UVERBS_ATTR_DESTROY_CQ_HANDLE, 0, handle);
	call_add(&call, UVERBS_ATTR_DESTROY_CQ_RESP, sizeof(*resp), (uintptr_t)resp);
	return call_do(fd, &call);
}

void good_cq(int fd, struct cq *cq)
{
	assert_int_equal(cq_create(fd, 64, 0, -1, (uintptr_t)memory, (uintptr_t)records, cq), 0);
}

int qp_create(int fd, uint32_t pd, uint32_t scq, uint32_t rcq, struct qp *qp)
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

int qp_destroy(int fd, uint32_t handle, uint32_t *events)
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

void usual_qp(struct qp *qp)
{
	*qp = (struct qp){ .cap = { 16, 16, 2, 1, 64 } };
}

int qp_modify(int fd, uint32_t handle, uint32_t mask, uint8_t to)
{
	struct ib_uverbs_modify_qp req = {
		.qp_handle = handle, .attr_mask = mask, .qp_state = to, .port_num = 1
	};

	return invoke_write(fd, IB_USER_VERBS_CMD_MODIFY_QP, &req, sizeof(req), NULL, 0);
}

uint8_t qp_state(int fd, uint32_t handle)
{
	struct ib_uverbs_query_qp req = { .qp_handle = handle };
	struct ib_uverbs_query_qp_resp resp;

	assert_int_equal(invoke_write(fd, IB_USER_VERBS_CMD_QUERY_QP, &req, sizeof(req), &resp,
				      sizeof(resp)),
			 0);
	return resp.qp_state;
}

int mr_reg(int fd, uint32_t pd, uint64_t start, uint64_t len, uint64_t iova, uint32_t access,
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

int mr_destroy(int fd, uint32_t handle)
{
	struct call call;

	call_begin(&call, UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY);
	call_add(&call, UVERBS_ATTR_DESTROY_MR_HANDLE, 0, handle);
	return call_do(fd, &call);
}
