// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Commands to /dev/infiniband/uverbs0: their encoding, by each of the three ways, and what they ask. */
#include "tests/process/uverbs_rig.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(probe),
		cmocka_unit_test(headers),
		cmocka_unit_test(lengths),
		cmocka_unit_test(write_framing),
		cmocka_unit_test(write_only),
		cmocka_unit_test(query_device),
		cmocka_unit_test(query_port_and_gids),
		cmocka_unit_test(handles),
	};

	return cmocka_run_group_tests(tests, uverbs_set_up, NULL);
}
