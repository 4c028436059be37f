// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What the device says of itself, the limits it keeps, and which ways of connecting it knows.
 */
#include <ctype.h>
#include <errno.h>
#include "tests/accept/harness.h"

enum {
	VENDOR_ALIBABA = 0x1ded,
	PART_ERDMA = 0x107f,
	QP_UNIT = 1024,
	MAX_RD_ATOM = 128,
	MAX_WR = 8192,
};

static void names_and_numbers(void **state)
{
	struct ts_dev *dev = ts_dev();
	const struct ibv_device *ibdev = dev->ctx->device;
	uint64_t guid = ibv_get_device_guid(dev->ctx->device);

	(void)state;
	TS_EQ(dev->attr.vendor_id, VENDOR_ALIBABA);
	TS_EQ(dev->attr.vendor_part_id, PART_ERDMA);
	assert_true(!strncmp(ibdev->name, "erdma_", 6) || getenv("ER_DEVICE"));
	TS_EQ(ibdev->node_type, dev->iwarp ? IBV_NODE_RNIC : IBV_NODE_CA);
	TS_EQ(ibdev->transport_type, dev->iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB);
	assert_true(guid != 0);
	TS_EQ(dev->attr.node_guid, guid);
	TS_EQ(dev->attr.sys_image_guid, guid);
	TS_EQ(dev->attr.phys_port_cnt, 1);
	assert_true(dev->ctx->num_comp_vectors >= 1);
}

/* Three numbers with dots, nothing else. */
static void firmware_version(void **state)
{
	const char *text = ts_dev()->attr.fw_ver;
	unsigned int a, b, c;
	int end = 0;

	(void)state;
	if (sscanf(text, "%u.%u.%u%n", &a, &b, &c, &end) != 3 || text[end])
		TS_FAIL("the firmware version is \"%s\"", text);
}

static void limits(void **state)
{
	const struct ibv_device_attr *attr = &ts_dev()->attr;

	(void)state;
	if ((attr->max_qp + 1) % QP_UNIT || attr->max_qp <= 0)
		TS_FAIL("max_qp %d is not one less than a multiple of %d", attr->max_qp, QP_UNIT);
	TS_EQ(attr->max_sge, 1);
	TS_EQ(attr->max_sge_rd, 1);
	TS_EQ(attr->max_qp_wr, MAX_WR);
	TS_EQ(attr->max_qp_rd_atom, MAX_RD_ATOM);
	TS_EQ(attr->max_qp_init_rd_atom, MAX_RD_ATOM);
	TS_EQ(attr->max_srq, 0);
	TS_EQ(attr->max_mcast_grp, 0);
	assert_true(attr->max_cqe >= 1 << 16);
	assert_true(attr->max_mr >= attr->max_qp || !ts_dev()->iwarp);
	assert_true(attr->max_mr_size > 4ull << 30);
	assert_true(attr->page_size_cap & 4096);
	assert_true(attr->device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS);
}

static void port(void **state)
{
	struct ibv_port_attr attr;

	(void)state;
	TS_OK(ibv_query_port(ts_dev()->ctx, 1, &attr));
	TS_EQ(attr.link_layer, IBV_LINK_LAYER_ETHERNET);
	TS_EQ(attr.state, IBV_PORT_ACTIVE);
	TS_EQ(attr.phys_state, 5); /* link up */
	assert_in_range(attr.active_mtu, IBV_MTU_256, IBV_MTU_4096);
	TS_EQ(attr.max_mtu, attr.active_mtu);
	TS_EQ(attr.max_msg_sz, 0xffffffff);
	if (ts_dev()->iwarp) {
		TS_EQ(attr.gid_tbl_len, 1);
		TS_EQ(attr.pkey_tbl_len, 0);
	} else {
		assert_true(attr.gid_tbl_len >= 1);
		TS_EQ(attr.pkey_tbl_len, 1);
	}
	assert_int_not_equal(ibv_query_port(ts_dev()->ctx, 0, &attr), 0);
	assert_int_not_equal(ibv_query_port(ts_dev()->ctx, 2, &attr), 0);
}

static void gids(void **state)
{
	static const uint8_t zero[16];
	struct ibv_port_attr attr;
	union ibv_gid gid;

	(void)state;
	TS_OK(ibv_query_port(ts_dev()->ctx, 1, &attr));
	TS_OK(ibv_query_gid(ts_dev()->ctx, 1, 0, &gid));
	assert_memory_not_equal(gid.raw, zero, sizeof(zero));
	if (ts_dev()->iwarp) /* six bytes of a MAC address, ten zeros */
		assert_memory_equal(gid.raw + 6, zero, 10);
	errno = 0;
	assert_int_not_equal(ibv_query_gid(ts_dev()->ctx, 1, attr.gid_tbl_len, &gid), 0);
	TS_EQ(errno, EINVAL);
	errno = 0;
	assert_int_not_equal(ibv_query_gid(ts_dev()->ctx, 1, 1000, &gid), 0);
	TS_EQ(errno, EINVAL);
}

/* ------------------------------------------------------------------ creation */

static void create_qp_fails(struct ibv_qp_init_attr attr, int want, int other)
{
	struct ibv_cq *cq = ibv_create_cq(ts_dev()->ctx, 16, NULL, NULL, 0);
	struct ibv_qp *qp;

	TS_CHECK(cq);
	attr.send_cq = attr.recv_cq = cq;
	errno = 0;
	qp = ibv_create_qp(ts_dev()->pd, &attr);
	if (qp)
		TS_FAIL("a QP of type %d with %u+%u WRs and %u+%u SGEs was created", attr.qp_type,
			attr.cap.max_send_wr, attr.cap.max_recv_wr, attr.cap.max_send_sge,
			attr.cap.max_recv_sge);
	if (errno != want && errno != other)
		TS_FAIL("creation failed with %s, expected %s", strerror(errno), strerror(want));
	TS_OK(ibv_destroy_cq(cq));
}

static void creation_limits(void **state)
{
	const struct ibv_qp_init_attr good = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 }
	};
	struct ibv_qp_init_attr attr;

	(void)state;
	attr = good;
	attr.cap.max_send_sge = TS_MAX_SEND_SGE + 1;
	create_qp_fails(attr, EINVAL, EINVAL);
	attr = good;
	attr.cap.max_recv_sge = 2;
	create_qp_fails(attr, EINVAL, EINVAL);
	attr = good;
	attr.cap.max_send_wr = MAX_WR + 1;
	create_qp_fails(attr, EINVAL, EINVAL);
	attr = good;
	attr.cap.max_recv_wr = 1 << 20;
	create_qp_fails(attr, EINVAL, EINVAL);
	attr = good;
	attr.qp_type = IBV_QPT_UC;
	create_qp_fails(attr, EOPNOTSUPP, EINVAL);
	attr.qp_type = IBV_QPT_RAW_PACKET;
	create_qp_fails(attr, EOPNOTSUPP, EPERM);
	if (ts_dev()->iwarp) {
		attr.qp_type = IBV_QPT_UD;
		create_qp_fails(attr, EOPNOTSUPP, EINVAL);
	}
}

static void what_is_not_offered(void **state)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_ah_attr ah = { .port_num = 1 };

	(void)state;
	errno = 0;
	assert_null(ibv_create_srq(ts_dev()->pd, &srq));
	if (errno != EOPNOTSUPP && errno != ENOSYS)
		TS_FAIL("ibv_create_srq: %s", strerror(errno));
	errno = 0;
	assert_null(ibv_create_ah(ts_dev()->pd, &ah));
	if (errno != EOPNOTSUPP && errno != ENOSYS)
		TS_FAIL("ibv_create_ah: %s", strerror(errno));
	errno = 0;
	assert_null(ibv_create_cq(ts_dev()->ctx, ts_dev()->attr.max_cqe + 1, NULL, NULL, 0));
	if (!ts_known_defect("ibv_create_cq sets EIO for every failure"))
		TS_EQ(errno, EINVAL);
	errno = 0;
	assert_null(ibv_create_cq(ts_dev()->ctx, 8, NULL, NULL, ts_dev()->ctx->num_comp_vectors));
	if (ts_dev()->ours)
		TS_EQ(errno, EINVAL);
}

/* All CQ depths up to the limit, and as many entries as asked for. */
static void cq_depths(void **state)
{
	const int ask[] = { 1, 2, 63, 64, 65, 1000, 4096, 100000, ts_dev()->attr.max_cqe };

	(void)state;
	for (size_t i = 0; i < sizeof(ask) / sizeof(*ask); i++) {
		struct ibv_cq *cq = ibv_create_cq(ts_dev()->ctx, ask[i], NULL, NULL, 0);

		if (!cq)
			TS_FAIL("a CQ of %d entries: %s", ask[i], strerror(errno));
		if (cq->cqe < ask[i])
			TS_FAIL("asked for %d entries, got %d", ask[i], cq->cqe);
		TS_OK(ibv_destroy_cq(cq));
	}
}

/* What a query gives back is what the creation said. */
static void query_qp(void **state)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ts_attr want = { .cap = { .max_send_wr = 10,
					 .max_recv_wr = 20,
					 .max_send_sge = 3,
					 .max_inline_data = 40 } };
	struct ts_pair pair;

	(void)state;
	ts_pair_open(&pair, &want, NULL);
	memset(&attr, 0xaa, sizeof(attr));
	TS_OK(ibv_query_qp(pair.a.qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init));
	TS_EQ(attr.qp_state, IBV_QPS_RTS);
	TS_EQ(init.qp_type, IBV_QPT_RC);
	assert_ptr_equal(init.send_cq, pair.a.scq);
	assert_ptr_equal(init.recv_cq, pair.a.rcq);
	assert_true(attr.cap.max_recv_wr >= 20);
	assert_true(attr.cap.max_inline_data >= 40);
	assert_true(attr.cap.max_send_sge >= 3);
	if (!ts_known_defect("ibv_query_qp reports blocks as max_send_wr")) {
		TS_EQ(attr.cap.max_send_wr, pair.a.attr.cap.max_send_wr);
		TS_EQ(init.cap.max_send_wr, pair.a.attr.cap.max_send_wr);
		TS_EQ(attr.cap.max_recv_wr, pair.a.attr.cap.max_recv_wr);
	}
	attr.qp_state = IBV_QPS_ERR;
	TS_OK(ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE));
	TS_OK(ibv_query_qp(pair.a.qp, &attr, IBV_QP_STATE, &init));
	TS_EQ(attr.qp_state, IBV_QPS_ERR);
	ts_pair_close(&pair);
}

/* ------------------------------------------------------------------ out of band */

/* In iWARP mode RTS is not reached by ibv_modify_qp, and says so; in RoCE mode it is. */
static void connect_by_modify(void **state)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ts_pair pair;
	struct ts_end end;
	int rc;

	(void)state;
	if (!ts_dev()->iwarp) {
		/* the harness connects so */
		ts_pair_open(&pair, NULL, NULL);
		ts_pair_close(&pair);
		return;
	}
	ts_end_open(&end, NULL);
	rc = ibv_modify_qp(end.qp, &attr,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (!rc) {
		attr.qp_state = IBV_QPS_RTR;
		attr.dest_qp_num = 1;
		attr.path_mtu = IBV_MTU_1024;
		attr.max_dest_rd_atomic = 1;
		attr.ah_attr.is_global = 1;
		attr.ah_attr.port_num = 1;
		rc = ibv_modify_qp(end.qp, &attr,
				   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					   IBV_QP_MIN_RNR_TIMER);
	}
	if (!rc) {
		attr.qp_state = IBV_QPS_RTS;
		rc = ibv_modify_qp(end.qp, &attr,
				   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					   IBV_QP_MAX_QP_RD_ATOMIC);
	}
	if (rc != EINVAL && rc != EOPNOTSUPP)
		TS_FAIL("RTS by ibv_modify_qp returned %d (%s)", rc, strerror(abs(rc)));
	ts_end_close(&end);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_and_numbers),
		cmocka_unit_test(firmware_version),
		cmocka_unit_test(limits),
		cmocka_unit_test(port),
		cmocka_unit_test(gids),
		cmocka_unit_test(creation_limits),
		cmocka_unit_test(what_is_not_offered),
		cmocka_unit_test(cq_depths),
		cmocka_unit_test(query_qp),
		cmocka_unit_test(connect_by_modify),
	};

	return ts_main(argc, argv, "identity", tests, sizeof(tests) / sizeof(*tests), NULL);
}
