/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The two sides of the rdma_cm tests, step by step.  As in harness.h, each function ends the test with a
 * message when a step fails.
 */
#ifndef ACCEPT_CM_ENDS_H
#define ACCEPT_CM_ENDS_H

#include <netinet/in.h>

#include "tests/accept/harness.h"

struct cm_listener {
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	int port;
};

struct cm_client {
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
};

/* Skips the test where the device is not an iWARP one. */
void cm_need_cm(void);

/* @port of the address that the tests connect to. */
struct sockaddr_in cm_loopback(int port);

/* A listener on a port of the kernel's choice, in an event channel of its own. */
void cm_open_listener(struct cm_listener *l, int backlog);
void cm_close_listener(struct cm_listener *l);

/* A QP of 8 + 8 work requests whose queues both complete in @cq. */
void cm_create_qp(struct rdma_cm_id *id, struct ibv_cq *cq);

/* Up to rdma_connect() with @len bytes of private data; cm_close_client() destroys all of it. */
void cm_start_client(struct cm_client *c, int port, const void *data, uint8_t len);
void cm_close_client(struct cm_client *c);

/* The next event of the listener, a CONNECT_REQUEST; the caller acknowledges it. */
struct rdma_cm_event *cm_request(struct cm_listener *l);

/* rdma_accept() with @len bytes of private data. */
void cm_accept_id(struct rdma_cm_id *id, const void *data, uint8_t len);

#endif
