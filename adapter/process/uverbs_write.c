// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Write commands: framed by write(), or carried by the INVOKE_WRITE method. */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "adapter/process/device.h"
#include "adapter/process/libc.h"
#include "adapter/process/uaccess.h"
#include "adapter/process/uverbs_internal.h"

enum {
	CMD_IN_MAX = 256, /* longest request we read */
	WORD = 4,	  /* bytes that lengths of plain commands count in */
	EX_WORD = 8,
};

#define EXTENDED IB_USER_VERBS_CMD_FLAG_EXTENDED

union request {
	unsigned char bytes[CMD_IN_MAX];
	struct ib_uverbs_query_port query_port;
	struct ib_uverbs_dealloc_pd dealloc_pd;
	struct ib_uverbs_reg_mr reg_mr;
	struct ib_uverbs_dereg_mr dereg_mr;
	struct ib_uverbs_create_cq create_cq;
	struct ib_uverbs_destroy_cq destroy_cq;
	struct ib_uverbs_create_qp create_qp;
	struct ib_uverbs_query_qp query_qp;
	struct ib_uverbs_modify_qp modify_qp;
	struct ib_uverbs_destroy_qp destroy_qp;
	struct ib_uverbs_ex_query_device ex_query_device;
	struct ib_uverbs_ex_modify_qp ex_modify_qp;
};

/* The answer goes to the program's buffer, as much of it as that takes. */
static int answer(const struct uv_cmd *cmd, const void *resp, size_t len)
{
	return uaccess_write(cmd->out, resp, len < cmd->out_len ? len : cmd->out_len);
}

static int cmd_get_context(const struct uv_cmd *cmd, const union request *req)
{
	struct ib_uverbs_get_context_resp resp = { .num_comp_vectors = DEVICE_COMP_VECTORS };
	int ret, fd;

	(void)req;
	ret = uv_get_context(cmd->ctx, &cmd->udata);
	if (ret)
		return ret;
	fd = uv_async_open(cmd->ctx);
	if (fd < 0)
		return fd;
	resp.async_fd = fd;
	ret = answer(cmd, &resp, sizeof(resp));
	if (ret)
		close(fd);
	return ret;
}

static int cmd_query_device(const struct uv_cmd *cmd, const union request *req)
{
	struct ib_uverbs_query_device_resp resp;

	(void)req;
	uv_query_device(cmd->ctx->dev, &resp);
	return answer(cmd, &resp, sizeof(resp));
}

static int cmd_ex_query_device(const struct uv_cmd *cmd, const union request *req)
{
	struct ib_uverbs_ex_query_device_resp resp;

	if (req->ex_query_device.comp_mask || req->ex_query_device.reserved)
		return -EINVAL;
	uv_query_device_ex(cmd->ctx->dev, &resp);
	resp.response_length = cmd->out_len < sizeof(resp) ? cmd->out_len : sizeof(resp);
	return answer(cmd, &resp, sizeof(resp));
}

static int cmd_query_port(const struct uv_cmd *cmd, const union request *req)
{
	struct ib_uverbs_query_port_resp_ex resp;
	int ret = uv_query_port(cmd->ctx->dev, req->query_port.port_num, &resp);

	return ret ? ret : answer(cmd, &resp.legacy_resp, sizeof(resp.legacy_resp));
}

static int cmd_alloc_pd(const struct uv_cmd *cmd, const union request *req)
{
	struct ib_uverbs_alloc_pd_resp resp;
	int ret = uv_pd_alloc(cmd->ctx, &resp.pd_handle);

	(void)req;
	if (ret)
		return ret;
	ret = answer(cmd, &resp, sizeof(resp));
	if (ret)
		uv_pd_dealloc(cmd->ctx, resp.pd_handle);
	return ret;
}

static int cmd_dealloc_pd(const struct uv_cmd *cmd, const union request *req)
{
	return uv_pd_dealloc(cmd->ctx, req->dealloc_pd.pd_handle);
}

static int cmd_reg_mr(const struct uv_cmd *cmd, const union request *req)
{
	struct uv_mr_req mr = {
		.start = req->reg_mr.start,
		.len = req->reg_mr.length,
		.iova = req->reg_mr.hca_va,
		.pd = req->reg_mr.pd_handle,
		.access = req->reg_mr.access_flags,
	};
	struct ib_uverbs_reg_mr_resp resp;
	int ret = uv_mr_reg(cmd->ctx, &mr, &resp);

	if (ret)
		return ret;
	ret = answer(cmd, &resp, sizeof(resp));
	if (ret)
		uv_mr_dereg(cmd->ctx, resp.mr_handle);
	return ret;
}

static int cmd_dereg_mr(const struct uv_cmd *cmd, const union request *req)
{
	return uv_mr_dereg(cmd->ctx, req->dereg_mr.mr_handle);
}

static int cmd_create_comp_channel(const struct uv_cmd *cmd, const union request *req)
{
	struct ib_uverbs_create_comp_channel_resp resp;
	int fd = uv_channel_open(cmd->ctx), ret;

	(void)req;
	if (fd < 0)
		return fd;
	resp.fd = fd;
	ret = answer(cmd, &resp, sizeof(resp));
	if (ret)
		close(fd);
	return ret;
}

static int cmd_create_cq(const struct uv_cmd *cmd, const union request *req)
{
	struct uv_cq_req cq = {
		.user_handle = req->create_cq.user_handle,
		.cqe = req->create_cq.cqe,
		.comp_vector = req->create_cq.comp_vector,
		.channel_fd = req->create_cq.comp_channel,
		.async_fd = -1,
		.udata = cmd->udata,
	};
	struct ib_uverbs_destroy_cq_resp gone;
	struct ib_uverbs_create_cq_resp resp;
	int ret = uv_cq_create(cmd->ctx, &cq, &resp);

	if (ret)
		return ret;
	ret = answer(cmd, &resp, sizeof(resp));
	if (ret)
		uv_cq_destroy(cmd->ctx, resp.cq_handle, &gone);
	return ret;
}

static int cmd_destroy_cq(const struct uv_cmd *cmd, const union request *req)
{
	struct ib_uverbs_destroy_cq_resp resp;
	int ret = uv_cq_destroy(cmd->ctx, req->destroy_cq.cq_handle, &resp);

	return ret ? ret : answer(cmd, &resp, sizeof(resp));
}

static int cmd_create_qp(const struct uv_cmd *cmd, const union request *req)
{
	const struct ib_uverbs_create_qp *in = &req->create_qp;
	struct uv_qp_req qp = {
		.user_handle = in->user_handle,
		.pd = in->pd_handle,
		.scq = in->send_cq_handle,
		.rcq = in->recv_cq_handle,
		.has_pd = true,
		.has_scq = true,
		.has_rcq = true,
		.has_srq = in->is_srq,
		.cap = {
			.max_send_wr = in->max_send_wr,
			.max_recv_wr = in->max_recv_wr,
			.max_send_sge = in->max_send_sge,
			.max_recv_sge = in->max_recv_sge,
			.max_inline_data = in->max_inline_data,
		},
		.type = in->qp_type,
		.sig_all = in->sq_sig_all,
		.async_fd = -1,
		.udata = cmd->udata,
	};
	struct ib_uverbs_create_qp_resp resp = {
		.max_send_wr = in->max_send_wr,
		.max_recv_wr = in->max_recv_wr,
		.max_send_sge = in->max_send_sge,
		.max_recv_sge = in->max_recv_sge,
		.max_inline_data = EA_MAX_INLINE,
	};
	uint32_t events;
	int ret = uv_qp_create(cmd->ctx, &qp, &resp.qp_handle, &resp.qpn);

	if (ret)
		return ret;
	ret = answer(cmd, &resp, sizeof(resp));
	if (ret)
		uv_qp_destroy(cmd->ctx, resp.qp_handle, &events);
	return ret;
}

static int cmd_query_qp(const struct uv_cmd *cmd, const union request *req)
{
	struct ib_uverbs_query_qp_resp resp;
	int ret = uv_qp_query(cmd->ctx, req->query_qp.qp_handle, &resp);

	return ret ? ret : answer(cmd, &resp, sizeof(resp));
}

static int cmd_modify_qp(const struct uv_cmd *cmd, const union request *req)
{
	return uv_qp_modify(cmd->ctx, &req->modify_qp);
}

static int cmd_ex_modify_qp(const struct uv_cmd *cmd, const union request *req)
{
	struct ib_uverbs_ex_modify_qp_resp resp = {
		.response_length = cmd->out_len < sizeof(resp) ? cmd->out_len : sizeof(resp),
	};
	int ret = uv_qp_modify(cmd->ctx, &req->ex_modify_qp.base);

	return ret ? ret : answer(cmd, &resp, sizeof(resp));
}

static int cmd_destroy_qp(const struct uv_cmd *cmd, const union request *req)
{
	struct ib_uverbs_destroy_qp_resp resp;
	int ret = uv_qp_destroy(cmd->ctx, req->destroy_qp.qp_handle, &resp.events_reported);

	return ret ? ret : answer(cmd, &resp, sizeof(resp));
}

static const struct command {
	uint32_t number;
	uint16_t in,
		out; /* shortest request and answer; more of the latter only for extended ones */
	int (*run)(const struct uv_cmd *cmd, const union request *req);
} commands[] = {
	{ IB_USER_VERBS_CMD_GET_CONTEXT, 8, 8, cmd_get_context },
	{ IB_USER_VERBS_CMD_QUERY_DEVICE, 8, 176, cmd_query_device },
	{ IB_USER_VERBS_CMD_QUERY_PORT, 16, 40, cmd_query_port },
	{ IB_USER_VERBS_CMD_ALLOC_PD, 8, 4, cmd_alloc_pd },
	{ IB_USER_VERBS_CMD_DEALLOC_PD, 4, 0, cmd_dealloc_pd },
	{ IB_USER_VERBS_CMD_REG_MR, 40, 12, cmd_reg_mr },
	{ IB_USER_VERBS_CMD_DEREG_MR, 4, 0, cmd_dereg_mr },
	{ IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, 8, 4, cmd_create_comp_channel },
	{ IB_USER_VERBS_CMD_CREATE_CQ, 32, 8, cmd_create_cq },
	{ IB_USER_VERBS_CMD_DESTROY_CQ, 16, 8, cmd_destroy_cq },
	{ IB_USER_VERBS_CMD_CREATE_QP, 56, 32, cmd_create_qp },
	{ IB_USER_VERBS_CMD_QUERY_QP, 16, 128, cmd_query_qp },
	{ IB_USER_VERBS_CMD_MODIFY_QP, 112, 0, cmd_modify_qp },
	{ IB_USER_VERBS_CMD_DESTROY_QP, 16, 4, cmd_destroy_qp },
	{ IB_USER_VERBS_CMD_QUERY_DEVICE | EXTENDED, 8, 184, cmd_ex_query_device },
	{ IB_USER_VERBS_CMD_MODIFY_QP | EXTENDED, 112, 0, cmd_ex_modify_qp },
};

static const struct command *find_command(uint32_t number)
{
	size_t i;

	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (commands[i].number == number)
			return &commands[i];
	}
	return NULL;
}

int uv_command(const struct uv_cmd *cmd)
{
	const struct command *command = find_command(cmd->command);
	union request req = { 0 };
	int ret;

	if (!command)
		return -EOPNOTSUPP;
	if (cmd->in_len < command->in || cmd->out_len < command->out)
		return -ENOSPC;
	if (!cmd->ctx->live && command->run != cmd_get_context)
		return -EINVAL;
	ret = uaccess_read(&req, cmd->in, cmd->in_len < sizeof(req) ? cmd->in_len : sizeof(req));
	if (ret)
		return ret;
	ret = command->run(cmd, &req);
	if (ret)
		host_log(HOST_LOG_INFO, "uverbs command %u failed: %s",
			 cmd->command & IB_USER_VERBS_CMD_COMMAND_MASK, strerror(-ret));
	return ret;
}

/* ------------------------------------------------------------------ write() */

static int plain_command(struct uv_cmd *cmd, const struct ib_uverbs_cmd_hdr *hdr, uint64_t buf,
			 size_t count)
{
	const struct command *command = find_command(cmd->command);
	int ret;

	if (!command)
		return -EOPNOTSUPP;
	if ((size_t)hdr->in_words * WORD != count)
		return -EINVAL;
	if (count < sizeof(*hdr) + command->in || (size_t)hdr->out_words * WORD < command->out)
		return -ENOSPC;
	cmd->in = buf + sizeof(*hdr);
	cmd->in_len = command->in;
	if (command->out) {
		/* the address of the answer leads the request */
		ret = uaccess_read(&cmd->out, cmd->in, sizeof(cmd->out));
		if (ret)
			return ret;
		cmd->out_len = command->out;
		cmd->udata.out = cmd->out + command->out;
		cmd->udata.out_len = (size_t)hdr->out_words * WORD - command->out;
	}
	cmd->udata.in = cmd->in + command->in;
	cmd->udata.in_len = count - sizeof(*hdr) - command->in;
	return uv_command(cmd);
}

static int extended_command(struct uv_cmd *cmd, const struct ib_uverbs_cmd_hdr *hdr, uint64_t buf,
			    size_t count)
{
	struct ib_uverbs_ex_cmd_hdr ex;
	int ret;

	if (count < sizeof(*hdr) + sizeof(ex))
		return -EINVAL;
	ret = uaccess_read(&ex, buf + sizeof(*hdr), sizeof(ex));
	if (ret)
		return ret;
	if (!find_command(cmd->command))
		return -EOPNOTSUPP;
	if (ex.cmd_hdr_reserved || ((size_t)hdr->in_words + ex.provider_in_words) * EX_WORD !=
					   count - sizeof(*hdr) - sizeof(ex))
		return -EINVAL;
	if (!ex.response != !(hdr->out_words + ex.provider_out_words))
		return -EINVAL;
	cmd->in = buf + sizeof(*hdr) + sizeof(ex);
	cmd->in_len = (size_t)hdr->in_words * EX_WORD;
	cmd->out = ex.response;
	cmd->out_len = (size_t)hdr->out_words * EX_WORD;
	cmd->udata.in = cmd->in + cmd->in_len;
	cmd->udata.in_len = (size_t)ex.provider_in_words * EX_WORD;
	cmd->udata.out = cmd->out + cmd->out_len;
	cmd->udata.out_len = (size_t)ex.provider_out_words * EX_WORD;
	return uv_command(cmd);
}

ssize_t uv_write(struct host_file *file, const void *buf, size_t count)
{
	struct uv_cmd cmd = { .ctx = uv_container_of(file, struct host_ctx, file) };
	uint64_t addr = (uintptr_t)buf;
	struct ib_uverbs_cmd_hdr hdr;
	int ret;

	if (count < sizeof(hdr))
		return -EINVAL;
	ret = uaccess_read(&hdr, addr, sizeof(hdr));
	if (ret)
		return ret;
	if (hdr.command & ~(IB_USER_VERBS_CMD_COMMAND_MASK | EXTENDED))
		return -EINVAL;
	cmd.command = hdr.command;
	engine_ctx_command(cmd.ctx);
	ret = hdr.command & EXTENDED ? extended_command(&cmd, &hdr, addr, count) :
				       plain_command(&cmd, &hdr, addr, count);
	return ret ? ret : (ssize_t)count;
}
