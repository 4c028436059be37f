// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Connections by rdma_cm, and what it says of them, without data: QEMU's data path is no witness of connection management.
 *
 *	cm_events listen PORT			accepts all, and says after each event how many there are in which state
 *	cm_events connect ADDRESS PORT COUNT	COUNT in a row, each made and ended; exit status 0 if all were
 *	cm_events hold ADDRESS PORT COUNT	COUNT at a time, ended when a line or the end comes on standard input
 *	cm_events churn ADDRESS PORT COUNT	COUNT held, and others made and ended until the process is killed
 *	cm_events refused ADDRESS PORT		exit status 0 if the connection is rejected for lack of a listener
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RESOLVE_MS 5000
#define TRIES	   3
/* The CM's reason for a service id that nobody listens on. */
#define REJ_INVALID_SERVICE_ID 8

static _Noreturn void die(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static int make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	return rdma_create_qp(id, NULL, &attr) ? errno : 0;
}

static void drop(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	rdma_destroy_id(id);
}

/* The next event of a kind, or whatever came instead. */
static enum rdma_cm_event_type next_event(struct rdma_event_channel *ch, int *status)
{
	enum rdma_cm_event_type type;
	struct rdma_cm_event *ev;

	do {
		if (rdma_get_cm_event(ch, &ev))
			die("rdma_get_cm_event");
		type = ev->event;
		*status = ev->status;
		rdma_ack_cm_event(ev);
	} while (type == RDMA_CM_EVENT_TIMEWAIT_EXIT);
	return type;
}

/* One connection; NULL with the event that came in its place. */
static struct rdma_cm_id *connect_to(const char *address, const char *port,
				     enum rdma_cm_event_type *got, int *status)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;

	if (!ch || rdma_create_id(ch, &id, NULL, RDMA_PS_TCP))
		die("rdma_create_id");
	if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
		die(address);
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, RESOLVE_MS))
		die("rdma_resolve_addr");
	*got = next_event(ch, status);
	if (*got != RDMA_CM_EVENT_ADDR_RESOLVED)
		goto err;
	if (rdma_resolve_route(id, RESOLVE_MS))
		die("rdma_resolve_route");
	*got = next_event(ch, status);
	if (*got != RDMA_CM_EVENT_ROUTE_RESOLVED)
		goto err;
	if (make_qp(id))
		die("rdma_create_qp");
	if (rdma_connect(id, &param))
		die("rdma_connect");
	*got = next_event(ch, status);
	if (*got != RDMA_CM_EVENT_ESTABLISHED)
		goto err;
	return id;

err:
	drop(id);
	rdma_destroy_event_channel(ch);
	return NULL;
}

/* Ends a connection and waits for rdma_cm to say so. */
static int end(struct rdma_cm_id *id)
{
	struct rdma_event_channel *ch = id->channel;
	enum rdma_cm_event_type got;
	int status;

	if (rdma_disconnect(id))
		die("rdma_disconnect");
	got = next_event(ch, &status);
	drop(id);
	rdma_destroy_event_channel(ch);
	if (got == RDMA_CM_EVENT_DISCONNECTED)
		return 0;
	printf("disconnecting: %s, status %d\n", rdma_event_str(got), status);
	return 1;
}

static struct rdma_cm_id *connect_or_say(const char *address, const char *port, unsigned int number)
{
	enum rdma_cm_event_type got;
	struct rdma_cm_id *id;
	int status;

	id = connect_to(address, port, &got, &status);
	if (!id)
		printf("connection %u: %s, status %d\n", number, rdma_event_str(got), status);
	return id;
}

static int connect_many(char **argv)
{
	unsigned int count = (unsigned int)atoi(argv[2]), good = 0;

	for (unsigned int i = 0; i < count; i++) {
		struct rdma_cm_id *id = connect_or_say(argv[0], argv[1], i);

		good += id && end(id) == 0;
	}
	printf("%u connections of %u\n", good, count);
	return good != count;
}

static int hold(char **argv, int churn)
{
	unsigned int count = (unsigned int)atoi(argv[2]), bad = 0;
	struct rdma_cm_id **ids = calloc(count, sizeof(struct rdma_cm_id *));
	char line[16];

	for (unsigned int i = 0; i < count; i++) {
		/* The one before may have been the first of its time after something broke. */
		for (unsigned int k = 0; !ids[i] && k < TRIES; k++)
			ids[i] = connect_or_say(argv[0], argv[1], i);
		if (!ids[i])
			return 1;
	}
	printf("%u held\n", count);
	while (churn) {
		struct rdma_cm_id *id = connect_or_say(argv[0], argv[1], count);

		if (id)
			end(id);
	}
	if (!fgets(line, sizeof(line), stdin))
		line[0] = '\0';
	for (unsigned int i = 0; i < count; i++)
		bad += (unsigned int)end(ids[i]);
	printf("%u released, %u of them badly\n", count, bad);
	return bad != 0;
}

static int refused(char **argv)
{
	enum rdma_cm_event_type got;
	struct rdma_cm_id *id;
	int status;

	id = connect_to(argv[0], argv[1], &got, &status);
	printf("%s, status %d\n", rdma_event_str(got), status);
	if (id)
		end(id);
	return got != RDMA_CM_EVENT_REJECTED || status != REJ_INVALID_SERVICE_ID;
}

static _Noreturn void serve(const char *port)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };
	struct rdma_event_channel *ch = rdma_create_event_channel();
	unsigned int requests = 0, established = 0, ended = 0, failed = 0;
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;

	if (!ch || rdma_create_id(ch, &id, NULL, RDMA_PS_TCP))
		die("rdma_create_id");
	if (rdma_bind_addr(id, (struct sockaddr *)&any) || rdma_listen(id, 64))
		die("rdma_listen");
	for (;;) {
		enum rdma_cm_event_type type;

		if (rdma_get_cm_event(ch, &ev))
			die("rdma_get_cm_event");
		type = ev->event;
		id = ev->id;
		rdma_ack_cm_event(ev);
		switch (type) {
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			requests++;
			if (make_qp(id) || rdma_accept(id, &param)) {
				printf("not accepted: %s\n", strerror(errno));
				failed++;
				drop(id);
			}
			break;
		case RDMA_CM_EVENT_ESTABLISHED:
			established++;
			break;
		case RDMA_CM_EVENT_DISCONNECTED:
			ended++;
			rdma_disconnect(id);
			drop(id);
			break;
		case RDMA_CM_EVENT_TIMEWAIT_EXIT:
			break;
		default:
			printf("%s\n", rdma_event_str(type));
			failed++;
			drop(id);
			break;
		}
		printf("requests=%u established=%u ended=%u failed=%u open=%u\n", requests,
		       established, ended, failed, requests - ended - failed);
	}
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3 && strcmp(argv[1], "listen") == 0)
		serve(argv[2]);
	if (argc == 4 && strcmp(argv[1], "refused") == 0)
		return refused(argv + 2);
	if (argc == 5 && strcmp(argv[1], "connect") == 0)
		return connect_many(argv + 2);
	if (argc == 5 && strcmp(argv[1], "hold") == 0)
		return hold(argv + 2, 0);
	if (argc == 5 && strcmp(argv[1], "churn") == 0)
		return hold(argv + 2, 1);
	fprintf(stderr, "usage: cm_events listen PORT | refused ADDRESS PORT |\n"
			"       connect ADDRESS PORT COUNT | hold ADDRESS PORT COUNT | "
			"churn ADDRESS PORT COUNT\n");
	return 2;
}
