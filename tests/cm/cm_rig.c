// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <poll.h>
#include <string.h>
#include <time.h>
#include <arpa/inet.h>
#include "tests/cm/cm_rig.h"

enum {
	EVENT_MS = 30000,
	POLL_NS = 1000
};

void rig_listen(struct rig *rig, const char *text, int backlog)
{
	memset(rig, 0, sizeof(*rig));
	if (inet_pton(AF_INET, text, &rig->addr.in.sin_addr) == 1) {
		rig->addr.in.sin_family = AF_INET;
	} else {
		assert_int_equal(inet_pton(AF_INET6, text, &rig->addr.in6.sin6_addr), 1);
		rig->addr.in6.sin6_family = AF_INET6;
	}
	rig->channel = rdma_create_event_channel();
	assert_non_null(rig->channel);
	assert_int_equal(rdma_create_id(rig->channel, &rig->listener, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(rig->listener, &rig->addr.sa), 0);
	assert_int_equal(rdma_listen(rig->listener, backlog), 0);
	rig->addr.in.sin_port = rdma_get_src_port(rig->listener);
	assert_int_not_equal(rig->addr.in.sin_port, 0);
}

void rig_unlisten(struct rig *rig)
{
	assert_int_equal(rdma_destroy_id(rig->listener), 0);
	rdma_destroy_event_channel(rig->channel);
}

struct rdma_cm_event *rig_event(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct pollfd pfd = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	assert_int_equal(poll(&pfd, 1, EVENT_MS), 1);
	assert_int_equal(rdma_get_cm_event(channel, &event), 0);
	assert_string_equal(rdma_event_str(event->event), rdma_event_str(type));
	return event;
}

int rig_expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = rig_event(channel, type);
	int status = event->status;

	assert_int_equal(rdma_ack_cm_event(event), 0);
	return status;
}

void rig_no_event(struct rdma_event_channel *channel, int ms)
{
	struct pollfd pfd = { .fd = channel->fd, .events = POLLIN };

	assert_int_equal(poll(&pfd, 1, ms), 0);
}

static void make_qp(struct rig_end *end)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = RIG_WRS,
			 .max_recv_wr = RIG_WRS,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	end->pd = ibv_alloc_pd(end->id->verbs);
	assert_non_null(end->pd);
	end->cq = ibv_create_cq(end->id->verbs, 4 * RIG_WRS, NULL, NULL, 0);
	assert_non_null(end->cq);
	end->mr = ibv_reg_mr(end->pd, end->buf, sizeof(end->buf),
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				     IBV_ACCESS_REMOTE_READ);
	assert_non_null(end->mr);
	attr.send_cq = end->cq;
	attr.recv_cq = end->cq;
	assert_int_equal(rdma_create_qp(end->id, end->pd, &attr), 0);
}

void rig_client(struct rig_end *end, const struct sockaddr *to)
{
	memset(end, 0, sizeof(*end));
	end->channel = rdma_create_event_channel();
	assert_non_null(end->channel);
	assert_int_equal(rdma_create_id(end->channel, &end->id, end, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(end->id, NULL, (struct sockaddr *)to, EVENT_MS), 0);
	rig_expect(end->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(rdma_resolve_route(end->id, EVENT_MS), 0);
	rig_expect(end->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(end);
}

void rig_connect(struct rig_end *end, const void *data, uint8_t len)
{
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = len,
		.responder_resources = 3,
		.initiator_depth = 2,
	};

	assert_int_equal(rdma_connect(end->id, &param), 0);
}

void rig_server_end(struct rig_end *end, struct rdma_cm_id *id)
{
	memset(end, 0, sizeof(*end));
	end->id = id;
	make_qp(end);
}

void rig_accept(struct rig_end *end, const void *data, uint8_t len)
{
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = len,
		.responder_resources = 1,
		.initiator_depth = 1,
	};

	assert_int_equal(rdma_accept(end->id, &param), 0);
}

void rig_pair(struct rig *rig, struct rig_end *client, struct rig_end *server)
{
	struct rdma_cm_event *event;

	rig_client(client, &rig->addr.sa);
	rig_connect(client, NULL, 0);
	event = rig_event(rig->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	rig_server_end(server, event->id);
	rdma_ack_cm_event(event);
	rig_accept(server, NULL, 0);
	rig_expect(rig->channel, RDMA_CM_EVENT_ESTABLISHED);
	rig_expect(client->channel, RDMA_CM_EVENT_ESTABLISHED);
}

void rig_post_recv(struct rig_end *end, uint64_t wr_id)
{
	struct ibv_sge sge = { .addr = (uintptr_t)end->buf,
			       .length = RIG_BUF / 2,
			       .lkey = end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(ibv_post_recv(end->id->qp, &wr, &bad), 0);
}

void rig_post_send(struct rig_end *end, uint64_t wr_id, const char *text)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)end->buf + RIG_BUF / 2,
		.length = (uint32_t)strlen(text) + 1,
		.lkey = end->mr->lkey,
	};
	struct ibv_send_wr wr = { .wr_id = wr_id,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND },
			   *bad;

	strcpy(end->buf + RIG_BUF / 2, text);
	assert_int_equal(ibv_post_send(end->id->qp, &wr, &bad), 0);
}

enum ibv_wc_status rig_poll(struct rig_end *end, struct ibv_wc *wc)
{
	static const struct timespec pause = { .tv_nsec = POLL_NS };
	time_t limit = time(NULL) + EVENT_MS / 1000;
	int n;

	while (!(n = ibv_poll_cq(end->cq, 1, wc))) {
		assert_true(time(NULL) <= limit);
		nanosleep(&pause, NULL);
	}
	assert_int_equal(n, 1);
	return wc->status;
}

void rig_end_free(struct rig_end *end)
{
	if (end->id->qp)
		rdma_destroy_qp(end->id);
	assert_int_equal(ibv_dereg_mr(end->mr), 0);
	assert_int_equal(ibv_destroy_cq(end->cq), 0);
	assert_int_equal(ibv_dealloc_pd(end->pd), 0);
	assert_int_equal(rdma_destroy_id(end->id), 0);
	if (end->channel)
		rdma_destroy_event_channel(end->channel);
}
