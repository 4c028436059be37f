/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Two ends of a connection in one process, by librdmacm; every step fails the test when it fails.
 */
#ifndef CM_RIG_H
#define CM_RIG_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

enum {
	RIG_BUF = 4096,
	RIG_WRS = 16
};

struct rig_end {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char buf[RIG_BUF];
};

struct rig {
	struct rdma_event_channel *channel; /* of the listener */
	struct rdma_cm_id *listener;
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
		struct sockaddr_storage ss;
	} addr;
};

/* A listener at @text (port chosen), and where to call it. */
void rig_listen(struct rig *rig, const char *text, int backlog);
void rig_unlisten(struct rig *rig);

/* Next event of the channel; must be @type.  Acknowledged by rdma_ack_cm_event(). */
struct rdma_cm_event *rig_event(struct rdma_event_channel *channel, enum rdma_cm_event_type type);
/* The same, acknowledged; returns the status. */
int rig_expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type);
/* No event comes within @ms. */
void rig_no_event(struct rdma_event_channel *channel, int ms);

/* A client up to ROUTE_RESOLVED with PD, CQ, QP and buffer. */
void rig_client(struct rig_end *end, const struct sockaddr *to);
void rig_connect(struct rig_end *end, const void *data, uint8_t len);
/* PD, CQ, QP for an id that came with a CONNECT_REQUEST. */
void rig_server_end(struct rig_end *end, struct rdma_cm_id *id);
void rig_accept(struct rig_end *end, const void *data, uint8_t len);

/* Both ends connected; the server's events go on at the listener's channel. */
void rig_pair(struct rig *rig, struct rig_end *client, struct rig_end *server);

void rig_post_recv(struct rig_end *end, uint64_t wr_id);
void rig_post_send(struct rig_end *end, uint64_t wr_id, const char *text);
/* One completion within half a minute; its status. */
enum ibv_wc_status rig_poll(struct rig_end *end, struct ibv_wc *wc);
void rig_end_free(struct rig_end *end);

#endif
