// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The two sides of the rdma_cm tests. */
#include <arpa/inet.h>
#include <errno.h>

#include "tests/accept/cm_ends.h"

void cm_need_cm(void)
{
	if (!ts_dev()->iwarp)
		ts_skip("only for iWARP");
}

struct sockaddr_in cm_loopback(int port)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };

	inet_pton(AF_INET, ts_addr(), &addr.sin_addr);
	return addr;
}

void cm_open_listener(struct cm_listener *l, int backlog)
{
	struct sockaddr_in addr = cm_loopback(0);

	cm_need_cm();
	l->events = rdma_create_event_channel();
	TS_CHECK(l->events);
	TS_CHECK(!rdma_create_id(l->events, &l->id, l, RDMA_PS_TCP));
	TS_CHECK(!rdma_bind_addr(l->id, (struct sockaddr *)&addr));
	TS_CHECK(!rdma_listen(l->id, backlog));
	l->port = ntohs(rdma_get_src_port(l->id));
	assert_int_not_equal(l->port, 0);
}

void cm_close_listener(struct cm_listener *l)
{
	TS_CHECK(!rdma_destroy_id(l->id));
	rdma_destroy_event_channel(l->events);
}

void cm_create_qp(struct rdma_cm_id *id, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 }
	};

	TS_CHECK(!rdma_create_qp(id, ts_dev()->pd, &attr));
}

/* Up to rdma_connect. */
void cm_start_client(struct cm_client *c, int port, const void *data, uint8_t len)
{
	struct rdma_conn_param param = { .initiator_depth = 4,
					 .responder_resources = 4,
					 .private_data = data,
					 .private_data_len = len };
	struct sockaddr_in addr = cm_loopback(port);

	cm_need_cm();
	c->events = rdma_create_event_channel();
	TS_CHECK(c->events);
	TS_CHECK(!rdma_create_id(c->events, &c->id, c, RDMA_PS_TCP));
	TS_CHECK(!rdma_resolve_addr(c->id, NULL, (struct sockaddr *)&addr, 2000));
	ts_event(c->events, RDMA_CM_EVENT_ADDR_RESOLVED);
	TS_CHECK(!rdma_resolve_route(c->id, 2000));
	ts_event(c->events, RDMA_CM_EVENT_ROUTE_RESOLVED);
	c->cq = ibv_create_cq(ts_dev()->ctx, 32, NULL, NULL, 0);
	TS_CHECK(c->cq);
	cm_create_qp(c->id, c->cq);
	TS_CHECK(!rdma_connect(c->id, &param));
}

void cm_close_client(struct cm_client *c)
{
	rdma_destroy_qp(c->id);
	TS_CHECK(!rdma_destroy_id(c->id));
	rdma_destroy_event_channel(c->events);
	TS_OK(ibv_destroy_cq(c->cq));
}

struct rdma_cm_event *cm_request(struct cm_listener *l)
{
	struct rdma_cm_event *event =
		ts_event_try(l->events, RDMA_CM_EVENT_CONNECT_REQUEST, TS_WAIT_MS);

	if (!event)
		TS_FAIL("no connect request: %s", strerror(errno));
	assert_ptr_equal(event->listen_id, l->id);
	return event;
}

void cm_accept_id(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	struct rdma_conn_param param = { .initiator_depth = 4,
					 .responder_resources = 4,
					 .private_data = data,
					 .private_data_len = len };

	TS_CHECK(!rdma_accept(id, &param));
}
