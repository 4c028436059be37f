// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Faults that a peer on the wire must answer by ending the connection, between two implementations.
 *
 *	wire_faults listen ADDRESS
 *	wire_faults connect ADDRESS
 *
 * The client makes one connection for each fault and checks what it gets for it; the server checks
 * that its memory stays whole and that it hears of the end. Exit code 0 if all is as it must be.
 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define PORT "7474"

enum {
	SIZE = 8192,
	RECV = 64,
	GUARD = 1000, /* of the memory, what is registered begins and ends so far from its ends */
	WAIT_MS = 10000
};

enum fault {
	NONE,
	WRITE_BAD_KEY,
	READ_BAD_KEY,
	WRITE_PAST_END,
	READ_PAST_END,
	WRITE_NOT_ALLOWED,
	SEND_TOO_LONG,
	NR_FAULTS
};

static const char *const fault_names[NR_FAULTS] = {
	"no fault",
	"a write with a key that is not there",
	"a read with a key that is not there",
	"a write past the end of the region",
	"a read past the end of the region",
	"a write to a region that is for reading",
	"a send longer than the receive",
};

/* What the server tells with its accept; sides of one byte order. */
struct region {
	uint64_t addr;
	uint32_t key, read_only_key;
};

struct end {
	struct rdma_cm_id *id;
	struct ibv_mr *mr, *read_only, *local;
	uint8_t mem[SIZE], buf[SIZE];
};

static int failures;

static void __attribute__((format(printf, 2, 3))) check(int good, const char *fmt, ...)
{
	va_list ap;

	if (good)
		return;
	failures++;
	va_start(ap, fmt);
	printf("FAULT ");
	vprintf(fmt, ap);
	printf(" (%s)\n", strerror(errno));
	va_end(ap);
	fflush(stdout);
}

static void must(int good, const char *what)
{
	check(good, "%s", what);
	if (!good)
		exit(1);
}

static uint8_t pattern(size_t i, uint8_t seed)
{
	return (uint8_t)(i * 7 + i / 251 + seed);
}

static void fill(uint8_t *p, size_t len, uint8_t seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = pattern(i, seed);
}

static int same(const uint8_t *p, const uint8_t *q, size_t len)
{
	return !memcmp(p, q, len);
}

static int poll_wc(struct ibv_cq *cq, struct ibv_wc *wc)
{
	int i, n;

	for (i = 0; i < WAIT_MS; i++) {
		n = ibv_poll_cq(cq, 1, wc);
		if (n)
			return n > 0;
		usleep(1000);
	}
	errno = ETIMEDOUT;
	return 0;
}

static void await_end(struct end *end, const char *name)
{
	struct pollfd pfd = { .fd = end->id->channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	if (poll(&pfd, 1, WAIT_MS) != 1 || rdma_get_cm_event(end->id->channel, &event)) {
		check(0, "%s: the connection does not end", name);
		return;
	}
	check(event->event == RDMA_CM_EVENT_DISCONNECTED, "%s: event %s", name,
	      rdma_event_str(event->event));
	rdma_ack_cm_event(event);
}

static struct rdma_addrinfo *resolve(const char *address, int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *ai;

	must(!rdma_getaddrinfo(address, PORT, &hints, &ai), "rdma_getaddrinfo");
	return ai;
}

static struct ibv_qp_init_attr qp_attr(void)
{
	return (struct ibv_qp_init_attr){
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
}

static void end_free(struct end *end)
{
	if (end->mr)
		rdma_dereg_mr(end->mr);
	if (end->read_only)
		rdma_dereg_mr(end->read_only);
	if (end->local)
		rdma_dereg_mr(end->local);
	rdma_destroy_ep(end->id);
	free(end);
}

static void end_regions(struct end *end)
{
	end->local = rdma_reg_msgs(end->id, end->buf, SIZE);
	must(end->local != NULL, "rdma_reg_msgs");
}

/* ------------------------------------------------------------------ server */

static void serve(struct rdma_cm_id *listener, enum fault fault)
{
	struct end *end = calloc(1, sizeof(*end));
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct region region;
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	uint8_t *before = malloc(SIZE);
	struct ibv_wc wc;
	size_t i;

	must(end && before && !rdma_get_request(listener, &end->id), "rdma_get_request");
	fill(end->mem, SIZE, 1);
	memcpy(before, end->mem, SIZE);
	end_regions(end);
	end->mr = ibv_reg_mr(end->id->pd, end->mem + GUARD, SIZE - 2 * GUARD,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				     IBV_ACCESS_REMOTE_READ);
	end->read_only =
		ibv_reg_mr(end->id->pd, end->mem + GUARD, SIZE - 2 * GUARD, IBV_ACCESS_REMOTE_READ);
	must(end->mr && end->read_only, "ibv_reg_mr");
	must(!rdma_post_recv(end->id, NULL, end->buf, RECV, end->local), "rdma_post_recv");
	region =
		(struct region){ (uintptr_t)end->mem + GUARD, end->mr->rkey, end->read_only->rkey };
	param.private_data = &region;
	param.private_data_len = sizeof(region);
	must(!rdma_accept(end->id, &param), "rdma_accept");
	/*
	 * The client waits for this one: siw, when it finds a fault in what comes with the first FPDU, never says
	 * that the connection was established.
	 */
	must(!rdma_post_send(end->id, NULL, end->buf, RECV, end->local, IBV_SEND_SIGNALED), "post");
	/* siw may flush it, if the fault comes before it has noted that it was sent */
	check(poll_wc(end->id->send_cq, &wc), "%s: the server's send", fault_names[fault]);
	await_end(end, fault_names[fault]);
	/* as rdma_disconnect() does; siw keeps its receives until then */
	ibv_modify_qp(end->id->qp, &error, IBV_QP_STATE);
	if (fault == NONE) {
		for (i = GUARD; i < SIZE - GUARD; i++)
			before[i] = pattern(i - GUARD, 2);
	}
	check(same(end->mem, before, SIZE), "%s: the server's memory is not as it must be",
	      fault_names[fault]);
	check(poll_wc(end->id->recv_cq, &wc), "%s: no completion of the receive",
	      fault_names[fault]);
	check(wc.status != IBV_WC_SUCCESS, "%s: the receive has succeeded", fault_names[fault]);
	if (fault == SEND_TOO_LONG)
		printf("server: %s: %s\n", fault_names[fault], ibv_wc_status_str(wc.status));
	end_free(end);
	free(before);
}

static void server(const char *address)
{
	struct rdma_addrinfo *ai = resolve(address, RAI_PASSIVE | RAI_NUMERICHOST);
	struct ibv_qp_init_attr attr = qp_attr();
	struct rdma_cm_id *listener;
	int fault;

	must(!rdma_create_ep(&listener, ai, NULL, &attr), "rdma_create_ep");
	must(!rdma_listen(listener, 4), "rdma_listen");
	for (fault = 0; fault < NR_FAULTS; fault++)
		serve(listener, (enum fault)fault);
	rdma_destroy_ep(listener);
	rdma_freeaddrinfo(ai);
}

/* ------------------------------------------------------------------ client */

static int post(struct end *end, enum ibv_wr_opcode op, uint32_t len, uint64_t remote, uint32_t key)
{
	struct ibv_sge sge = { (uintptr_t)end->buf, len, end->local->lkey };
	struct ibv_send_wr wr = {
		.opcode = op,
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { remote, key },
	};
	struct ibv_send_wr *bad;

	return ibv_post_send(end->id->qp, &wr, &bad);
}

/* Write all of the region, read it back. */
static void no_fault(struct end *end, const struct region *region)
{
	uint32_t len = SIZE - 2 * GUARD;
	struct ibv_wc wc;
	size_t i;

	fill(end->buf, len, 2);
	must(!post(end, IBV_WR_RDMA_WRITE, len, region->addr, region->key), "post");
	check(poll_wc(end->id->send_cq, &wc) && !wc.status, "the write: %s",
	      ibv_wc_status_str(wc.status));
	memset(end->buf, 0, len);
	must(!post(end, IBV_WR_RDMA_READ, len, region->addr, region->key), "post");
	check(poll_wc(end->id->send_cq, &wc) && !wc.status, "the read: %s",
	      ibv_wc_status_str(wc.status));
	for (i = 0; i < len && end->buf[i] == pattern(i, 2); i++)
		;
	check(i == len, "byte %zu differs", i);
	/* takes the event, too */
	check(!rdma_disconnect(end->id), "rdma_disconnect");
}

static void make(struct end *end, enum fault fault, const struct region *region)
{
	uint64_t last = region->addr + SIZE - 2 * GUARD - 1;
	int is_read = 0, ret = -1;
	struct ibv_wc wc;

	fill(end->buf, SIZE, 3);
	switch (fault) {
	case WRITE_BAD_KEY:
		ret = post(end, IBV_WR_RDMA_WRITE, 100, region->addr, region->key ^ 0x5500);
		break;
	case READ_BAD_KEY:
		is_read = 1;
		ret = post(end, IBV_WR_RDMA_READ, 100, region->addr, region->key ^ 0x5500);
		break;
	case WRITE_PAST_END:
		ret = post(end, IBV_WR_RDMA_WRITE, 2, last, region->key);
		break;
	case READ_PAST_END:
		is_read = 1;
		ret = post(end, IBV_WR_RDMA_READ, 2, last, region->key);
		break;
	case WRITE_NOT_ALLOWED:
		ret = post(end, IBV_WR_RDMA_WRITE, 1, region->addr, region->read_only_key);
		break;
	case SEND_TOO_LONG:
		ret = post(end, IBV_WR_SEND, RECV + 1, 0, 0);
		break;
	default:
		break;
	}
	must(!ret, "post");
	check(poll_wc(end->id->send_cq, &wc), "%s: no completion", fault_names[fault]);
	printf("client: %s: %s\n", fault_names[fault], ibv_wc_status_str(wc.status));
	if (is_read) {
		check(wc.status != IBV_WC_SUCCESS, "%s succeeded", fault_names[fault]);
		check(end->buf[0] == pattern(0, 3) && end->buf[1] == pattern(1, 3),
		      "%s brought data", fault_names[fault]);
	}
}

static void client(const char *address)
{
	struct rdma_addrinfo *ai = resolve(address, RAI_NUMERICHOST);
	int fault;

	for (fault = 0; fault < NR_FAULTS; fault++) {
		struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
		struct end *end = calloc(1, sizeof(*end));
		struct ibv_qp_init_attr attr = qp_attr();
		struct region region;
		struct ibv_wc wc;

		must(end && !rdma_create_ep(&end->id, ai, NULL, &attr), "rdma_create_ep");
		end_regions(end);
		must(!rdma_post_recv(end->id, NULL, end->buf, RECV, end->local), "rdma_post_recv");
		must(!rdma_connect(end->id, &param), "rdma_connect");
		must(poll_wc(end->id->recv_cq, &wc) && !wc.status, "the server's send");
		must(end->id->event->param.conn.private_data_len >= sizeof(region), "accept");
		memcpy(&region, end->id->event->param.conn.private_data, sizeof(region));
		if (fault == NONE) {
			no_fault(end, &region);
		} else {
			make(end, (enum fault)fault, &region);
			await_end(end, fault_names[fault]);
		}
		end_free(end);
	}
	rdma_freeaddrinfo(ai);
}

int main(int argc, char **argv)
{
	/* what was said is seen even if one of the two never ends */
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3 && !strcmp(argv[1], "listen")) {
		server(argv[2]);
	} else if (argc == 3 && !strcmp(argv[1], "connect")) {
		client(argv[2]);
	} else {
		fprintf(stderr, "usage: wire_faults listen|connect ADDRESS\n");
		return 2;
	}
	return failures ? 1 : 0;
}
