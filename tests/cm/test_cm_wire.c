// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The passive side against a peer that speaks MPA by hand on a plain TCP socket. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>
#include "adapter/wire/ddp.h"
#include "adapter/wire/mpa.h"
#include "adapter/wire/rdmap.h"
#include "tests/cm/cm_rig.h"

enum {
	WAIT_MS = 3000,
	QUIET_MS = 150,
	BRIEF_MS = 30
};

/* zero-length RDMA Write, CRC not in use */
static const uint8_t empty_write[] = {
	0, 14, 0xc1, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
};

static int tcp_connect(const struct rig *rig)
{
	int fd = socket(rig->addr.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, &rig->addr.sa, sizeof(rig->addr)), 0);
	return fd;
}

static void send_all(int fd, const void *buf, size_t len)
{
	assert_int_equal(send(fd, buf, len, MSG_NOSIGNAL), len);
}

static void send_request(int fd, const struct ea_mpa_frame *frame, uint16_t or_flags)
{
	uint8_t buf[EA_MPA_FRAME_MAX];
	size_t len = ea_mpa_encode(EA_MPA_REQUEST, frame, buf, sizeof(buf), NULL);

	assert_true(len);
	buf[EA_MPA_KEY_LEN] |= (uint8_t)(or_flags >> 8);
	send_all(fd, buf, len);
}

/* What comes within @ms, 0 at the end of the stream, -1 for nothing. */
static ssize_t receive(int fd, void *buf, size_t len, int ms)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, ms) == 1 ? recv(fd, buf, len, 0) : -1;
}

static void expect_reply(int fd, struct ea_mpa_frame *rep, uint8_t buf[EA_MPA_FRAME_MAX])
{
	size_t need;
	ssize_t n = receive(fd, buf, EA_MPA_FRAME_MAX, WAIT_MS);

	assert_true(n > 0);
	assert_int_equal(ea_mpa_decode(EA_MPA_REPLY, EA_MPA_ACCEPT_STANDARD, buf, (size_t)n, rep,
				       &need),
			 EA_MPA_OK);
	assert_int_equal(need, n);
}

static void expect_end(int fd)
{
	uint8_t byte;

	assert_true(receive(fd, &byte, 1, WAIT_MS) <= 0);
	close(fd);
}

static void test_garbage(void **state)
{
	static const char http[] = "GET / HTTP/1.0\r\n\r\n";
	struct ea_mpa_frame req = { .revision = EA_MPA_REV_2, .enhanced = true };
	struct rig rig;
	uint8_t extra[64] = {};
	int fd;

	(void)state;
	rig_listen(&rig, "127.0.0.1", 5);
	fd = tcp_connect(&rig);
	send_all(fd, http, sizeof(http));
	expect_end(fd);
	/* bytes behind the request */
	fd = tcp_connect(&rig);
	{
		size_t len = ea_mpa_encode(EA_MPA_REQUEST, &req, extra, sizeof(extra), NULL);

		send_all(fd, extra, len + 1);
	}
	expect_end(fd);
	/* gone in the middle of it */
	fd = tcp_connect(&rig);
	send_all(fd, "MPA ID Req", 10);
	close(fd);
	rig_no_event(rig.channel, QUIET_MS);
	rig_unlisten(&rig);
}

static void test_markers(void **state)
{
	struct ea_mpa_frame req = { .revision = EA_MPA_REV_1 }, rep;
	uint8_t buf[EA_MPA_FRAME_MAX];
	struct rig rig;
	int fd;

	(void)state;
	rig_listen(&rig, "127.0.0.1", 5);
	fd = tcp_connect(&rig);
	send_request(fd, &req, 0x8000);
	expect_reply(fd, &rep, buf);
	assert_true(rep.reject);
	expect_end(fd);
	rig_no_event(rig.channel, QUIET_MS);
	rig_unlisten(&rig);
}

/*
 * Nothing is sent before the peer's first FPDU; then the message that waits comes.  A peer that
 * promised no FPDU and sends none gets it all the same.
 */
static void quiet_until_first_fpdu(const struct ea_mpa_frame *req, bool peer_sends)
{
	uint8_t buf[EA_MPA_FRAME_MAX];
	struct rig_end server;
	struct rdma_cm_event *event;
	struct ea_mpa_frame rep;
	struct ea_ddp_hdr hdr;
	struct rig rig;
	ssize_t n;
	int fd;

	rig_listen(&rig, "127.0.0.1", 5);
	fd = tcp_connect(&rig);
	send_request(fd, req, 0);
	event = rig_event(rig.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(event->param.conn.private_data_len, req->private_len);
	rig_server_end(&server, event->id);
	rdma_ack_cm_event(event);
	rig_accept(&server, "yes", 3);
	rig_expect(rig.channel, RDMA_CM_EVENT_ESTABLISHED);
	rig_post_send(&server, 1, "impatient");
	expect_reply(fd, &rep, buf);
	assert_false(rep.reject);
	assert_int_equal(rep.revision, req->revision);
	assert_int_equal(rep.private_len, 3);
	assert_memory_equal(rep.private_data, "yes", 3);
	if (req->rtr)
		assert_int_equal(rep.rtr, req->rtr);
	assert_int_equal(receive(fd, buf, sizeof(buf), req->rtr ? 3 * QUIET_MS : BRIEF_MS), -1);
	if (peer_sends)
		send_all(fd, empty_write, sizeof(empty_write));
	n = receive(fd, buf, sizeof(buf), WAIT_MS);
	assert_int_equal(n, ea_fpdu_len(EA_DDP_UNTAGGED_LEN + sizeof("impatient")));
	assert_int_equal(ea_ddp_decode(buf + EA_FPDU_LEN_SIZE, EA_DDP_HDR_MAX, &hdr), EA_DDP_OK);
	assert_false(hdr.tagged);
	assert_int_equal(ea_rdmap_opcode(hdr.ulp_ctrl), EA_RDMAP_SEND);
	assert_int_equal(hdr.msn, EA_DDP_FIRST_MSN);
	assert_string_equal((char *)buf + EA_FPDU_LEN_SIZE + EA_DDP_UNTAGGED_LEN, "impatient");
	close(fd);
	rig_expect(rig.channel, RDMA_CM_EVENT_DISCONNECTED);
	rig_end_free(&server);
	rig_unlisten(&rig);
}

static void test_quiet(void **state)
{
	struct ea_mpa_frame rev1 = { .revision = EA_MPA_REV_1,
				     .private_len = 4,
				     .private_data = "rev1" };
	struct ea_mpa_frame rev2 = {
		.revision = EA_MPA_REV_2, .enhanced = true, .ird = 4, .ord = 4
	};
	struct ea_mpa_frame p2p = {
		.revision = EA_MPA_REV_2,
		.enhanced = true,
		.peer_to_peer = true,
		.rtr = EA_MPA_RTR_WRITE,
	};

	(void)state;
	quiet_until_first_fpdu(&rev1, true);
	quiet_until_first_fpdu(&rev2, true);
	quiet_until_first_fpdu(&p2p, true);
	quiet_until_first_fpdu(&rev1, false);
	quiet_until_first_fpdu(&rev2, false);
}

/* What comes on @fd within @ms must be empty RDMA Writes; how many. */
static int count_empty_writes(int fd, int ms)
{
	uint8_t buf[sizeof(empty_write)];
	int n = 0;

	while (receive(fd, buf, sizeof(buf), ms) == (ssize_t)sizeof(buf)) {
		assert_memory_equal(buf, empty_write, sizeof(buf));
		n++;
	}
	return n;
}

/*
 * The active side sends its first FPDU at once, and repeats it a few times for a peer that may have
 * missed it, until it hears something.
 */
static void active_to_responder(bool peer_sends)
{
	struct sockaddr_in addr = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct ea_mpa_frame req, rep;
	socklen_t len = sizeof(addr);
	struct ea_mpa_terms terms;
	uint8_t buf[EA_MPA_FRAME_MAX];
	struct rig_end client;
	size_t need, size;
	int fd, listener;
	ssize_t n;

	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
	rig_client(&client, (struct sockaddr *)&addr);
	rig_connect(&client, NULL, 0);
	fd = accept(listener, NULL, NULL);
	assert_true(fd >= 0);
	close(listener);
	n = receive(fd, buf, sizeof(buf), WAIT_MS);
	assert_true(n > 0);
	assert_int_equal(ea_mpa_decode(EA_MPA_REQUEST, EA_MPA_ACCEPT_STANDARD, buf, (size_t)n, &req,
				       &need),
			 EA_MPA_OK);
	ea_mpa_answer(&req, 1, 1, false, &rep, &terms);
	assert_int_equal(terms.rtr, EA_MPA_RTR_WRITE);
	size = ea_mpa_encode(EA_MPA_REPLY, &rep, buf, sizeof(buf), NULL);
	send_all(fd, buf, size);
	rig_expect(client.channel, RDMA_CM_EVENT_ESTABLISHED);
	if (peer_sends) {
		send_all(fd, empty_write, sizeof(empty_write));
		/* some may have been on their way */
		assert_in_range(count_empty_writes(fd, 2 * QUIET_MS), 1, 3);
	} else {
		assert_int_equal(count_empty_writes(fd, 3 * QUIET_MS), 4);
	}
	close(fd);
	rig_expect(client.channel, RDMA_CM_EVENT_DISCONNECTED);
	rig_end_free(&client);
}

static void test_active_first(void **state)
{
	(void)state;
	active_to_responder(true);
	active_to_responder(false);
}

/* A slow active side: the frame comes byte by byte. */
static void test_slow(void **state)
{
	struct ea_mpa_frame req = { .revision = EA_MPA_REV_2,
				    .enhanced = true,
				    .private_len = 5,
				    .private_data = "slow!" };
	uint8_t buf[EA_MPA_FRAME_MAX];
	size_t len = ea_mpa_encode(EA_MPA_REQUEST, &req, buf, sizeof(buf), NULL), i;
	struct rdma_cm_event *event;
	struct rig rig;
	int fd;

	(void)state;
	rig_listen(&rig, "127.0.0.1", 5);
	fd = tcp_connect(&rig);
	for (i = 0; i < len; i++) {
		send_all(fd, buf + i, 1);
		usleep(1000);
	}
	event = rig_event(rig.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(event->param.conn.private_data_len, 5);
	assert_memory_equal(event->param.conn.private_data, "slow!", 5);
	assert_int_equal(rdma_destroy_id(event->id), 0);
	rdma_ack_cm_event(event);
	close(fd);
	rig_unlisten(&rig);
}

/* More private data than an event can carry is cut, not overrun. */
static void test_long_private_data(void **state)
{
	static uint8_t data[EA_MPA_PRIVATE_MAX - EA_MPA_ENHANCED_LEN];
	struct ea_mpa_frame req = { .revision = EA_MPA_REV_2,
				    .enhanced = true,
				    .private_len = sizeof(data),
				    .private_data = data };
	struct rdma_cm_event *event;
	struct rig rig;
	int fd;

	(void)state;
	memset(data, 0x5a, sizeof(data));
	rig_listen(&rig, "127.0.0.1", 5);
	fd = tcp_connect(&rig);
	send_request(fd, &req, 0);
	event = rig_event(rig.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(event->param.conn.private_data_len, UINT8_MAX);
	assert_memory_equal(event->param.conn.private_data, data, UINT8_MAX);
	assert_int_equal(rdma_destroy_id(event->id), 0);
	rdma_ack_cm_event(event);
	close(fd);
	rig_unlisten(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_garbage), cmocka_unit_test(test_markers),
		cmocka_unit_test(test_quiet),	cmocka_unit_test(test_active_first),
		cmocka_unit_test(test_slow),	cmocka_unit_test(test_long_private_data),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
