// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Either side against a peer that speaks MPA by hand on a plain TCP socket. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/socket.h>
#include "adapter/wire/ddp.h"
#include "adapter/wire/mpa.h"
#include "adapter/wire/rdmap.h"
#include "tests/cm/cm_rig.h"

enum {
	WAIT_MS = 20000,
	QUIET_MS = 150,
	FIRST_MS = 200,
	GAP_MS = 1500, /* no two FPDUs of a series are that far apart */
	BRIEF_MS = 30
};

/* zero-length RDMA Write, CRC not in use */
static const uint8_t empty_write[] = {
	0, 14, 0xc1, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
};

static long long milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000ll + now.tv_nsec / 1000000;
}

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

static void send_frame(int fd, enum ea_mpa_kind kind, const struct ea_mpa_frame *frame,
		       uint16_t or_flags)
{
	uint8_t buf[EA_MPA_FRAME_MAX];
	size_t len = ea_mpa_encode(kind, frame, buf, sizeof(buf), NULL);

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
	send_frame(fd, EA_MPA_REQUEST, &req, 0x8000);
	expect_reply(fd, &rep, buf);
	assert_true(rep.reject);
	expect_end(fd);
	rig_no_event(rig.channel, QUIET_MS);
	rig_unlisten(&rig);
}

/*
 * Nothing is sent before the peer's first FPDU; then the message that waits comes.  A peer of enhanced
 * set-up that promised no FPDU and sends none gets it all the same.
 */
static void quiet_until_first_fpdu(const struct ea_mpa_frame *req, bool peer_sends)
{
	uint8_t buf[EA_MPA_FRAME_MAX];
	struct rig_end server;
	struct rdma_cm_event *event;
	struct ea_mpa_frame rep;
	struct ea_ddp_hdr hdr;
	struct rig rig;
	long long start;
	ssize_t n;
	int fd;

	rig_listen(&rig, "127.0.0.1", 5);
	fd = tcp_connect(&rig);
	send_frame(fd, EA_MPA_REQUEST, req, 0);
	event = rig_event(rig.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(event->param.conn.private_data_len, req->private_len);
	rig_server_end(&server, event->id);
	rdma_ack_cm_event(event);
	start = milliseconds();
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
	/* only one that has chosen enhanced set-up and promised nothing may wait for ours */
	if (req->rtr || !req->enhanced)
		assert_int_equal(receive(fd, buf, sizeof(buf), 3 * QUIET_MS), -1);
	if (peer_sends)
		send_all(fd, empty_write, sizeof(empty_write));
	n = receive(fd, buf, sizeof(buf), WAIT_MS);
	if (!peer_sends)
		assert_true(milliseconds() - start >= FIRST_MS);
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
	struct ea_mpa_frame plain2 = { .revision = EA_MPA_REV_2 };
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
	quiet_until_first_fpdu(&plain2, true);
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

/* A listener that no adapter knows. */
static int tcp_listen(struct sockaddr_in *addr)
{
	socklen_t len = sizeof(*addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*addr = (struct sockaddr_in){ .sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	assert_int_equal(bind(fd, (struct sockaddr *)addr, sizeof(*addr)), 0);
	assert_int_equal(listen(fd, 5), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)addr, &len), 0);
	return fd;
}

/* The next request; its private data lies in @buf. */
static int take_request(int listener, struct ea_mpa_frame *req, uint8_t buf[EA_MPA_FRAME_MAX])
{
	struct pollfd pfd = { .fd = listener, .events = POLLIN };
	size_t need;
	ssize_t n;
	int fd;

	assert_int_equal(poll(&pfd, 1, WAIT_MS), 1);
	fd = accept(listener, NULL, NULL);
	assert_true(fd >= 0);
	n = receive(fd, buf, EA_MPA_FRAME_MAX, WAIT_MS);
	assert_true(n > 0);
	assert_int_equal(ea_mpa_decode(EA_MPA_REQUEST, EA_MPA_ACCEPT_STANDARD, buf, (size_t)n, req,
				       &need),
			 EA_MPA_OK);
	assert_int_equal(need, n);
	return fd;
}

/*
 * @client connects to a listener of ours, which stays, with @data.  The connection, and the request as
 * take_request() gives it.
 */
static int take_client(struct rig_end *client, int *listener, const char *data,
		       struct ea_mpa_frame *req, uint8_t buf[EA_MPA_FRAME_MAX])
{
	struct sockaddr_in addr;

	*listener = tcp_listen(&addr);
	rig_client(client, (struct sockaddr *)&addr);
	rig_connect(client, data, strlen(data));
	return take_request(*listener, req, buf);
}

/*
 * The active side sends its first FPDU at once, and repeats it a few times for a peer that may have
 * missed it, until it hears something.
 */
static void active_to_responder(bool peer_sends)
{
	struct ea_mpa_frame req, rep;
	struct ea_mpa_terms terms;
	uint8_t buf[EA_MPA_FRAME_MAX];
	struct rig_end client;
	int fd, listener;
	size_t size;

	fd = take_client(&client, &listener, "", &req, buf);
	close(listener);
	ea_mpa_answer(&req, 1, 1, false, &rep, &terms);
	assert_int_equal(terms.rtr, EA_MPA_RTR_WRITE);
	size = ea_mpa_encode(EA_MPA_REPLY, &rep, buf, sizeof(buf), NULL);
	if (peer_sends) {
		memcpy(buf + size, empty_write, sizeof(empty_write));
		size += sizeof(empty_write);
	}
	send_all(fd, buf, size);
	rig_expect(client.channel, RDMA_CM_EVENT_ESTABLISHED);
	if (peer_sends) /* one more may be due before what has come is looked at */
		assert_in_range(count_empty_writes(fd, GAP_MS), 1, 2);
	else
		assert_int_equal(count_empty_writes(fd, GAP_MS), 4);
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

enum old_peer {
	OLD_CLOSES,
	OLD_RESETS,
	OLD_REJECTS,
	OLD_ANSWERS,
};

/* A peer that knows revision 1 only is asked again by revision 1, once. */
static void old_responder(enum old_peer kind, bool accepts)
{
	static const struct linger at_once = { .l_onoff = 1, .l_linger = 0 };
	struct ea_mpa_frame req, rep = { .revision = EA_MPA_REV_1 };
	uint8_t buf[EA_MPA_FRAME_MAX];
	struct rdma_cm_event *event;
	struct rig_end client;
	int fd, listener;

	fd = take_client(&client, &listener, "hello", &req, buf);
	assert_int_equal(req.revision, EA_MPA_REV_2);
	assert_int_equal(req.private_len, 5);
	assert_memory_equal(req.private_data, "hello", 5);
	rep.reject = kind == OLD_REJECTS;
	if (kind == OLD_RESETS)
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	if (kind == OLD_REJECTS || kind == OLD_ANSWERS)
		send_frame(fd, EA_MPA_REPLY, &rep, 0);
	if (kind == OLD_REJECTS || kind == OLD_ANSWERS)
		expect_end(fd);
	else
		close(fd);

	fd = take_request(listener, &req, buf);
	assert_int_equal(req.revision, EA_MPA_REV_1);
	assert_false(req.enhanced);
	assert_int_equal(req.private_len, 5);
	assert_memory_equal(req.private_data, "hello", 5);
	rep.reject = !accepts;
	rep.private_data = "well";
	rep.private_len = 4;
	send_frame(fd, EA_MPA_REPLY, &rep, 0);
	event = rig_event(client.channel,
			  accepts ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_REJECTED);
	assert_int_equal(event->param.conn.private_data_len, 4);
	assert_memory_equal(event->param.conn.private_data, "well", 4);
	rdma_ack_cm_event(event);
	if (accepts) {
		/* the first FPDU is the active side's by every revision */
		rig_post_send(&client, 1, "first");
		assert_true(receive(fd, buf, sizeof(buf), WAIT_MS) > 0);
		close(fd);
		rig_expect(client.channel, RDMA_CM_EVENT_DISCONNECTED);
	} else {
		expect_end(fd);
	}
	rig_no_event(client.channel, BRIEF_MS);
	close(listener);
	rig_end_free(&client);
}

static void test_old_responder(void **state)
{
	(void)state;
	old_responder(OLD_CLOSES, true);
	old_responder(OLD_RESETS, true);
	old_responder(OLD_REJECTS, true);
	old_responder(OLD_ANSWERS, true);
	old_responder(OLD_REJECTS, false);
}

/* A reject by revision 2 is the peer's last word, and so is a reply that has begun. */
static void test_no_second_try(void **state)
{
	struct ea_mpa_frame req,
		rep = { .revision = EA_MPA_REV_2, .enhanced = true, .reject = true };
	uint8_t buf[EA_MPA_FRAME_MAX];
	struct rig_end client;
	int fd, listener, how;

	(void)state;
	for (how = 0; how < 2; how++) {
		fd = take_client(&client, &listener, "", &req, buf);
		if (how)
			send_all(fd, "MPA ID", 6);
		else
			send_frame(fd, EA_MPA_REPLY, &rep, 0);
		shutdown(fd, SHUT_WR);
		rig_expect(client.channel, RDMA_CM_EVENT_REJECTED);
		expect_end(fd);
		assert_int_equal(
			poll(&(struct pollfd){ .fd = listener, .events = POLLIN }, 1, BRIEF_MS), 0);
		close(listener);
		rig_end_free(&client);
	}
}

/* A reply that cannot be met is answered by a Terminate of MPA's codes (RFC 6581 section 8). */
static void bad_terms(const struct ea_mpa_frame *rep, uint8_t code)
{
	struct ea_mpa_frame req;
	uint8_t buf[EA_MPA_FRAME_MAX];
	struct ea_terminate term;
	struct rig_end client;
	struct ea_ddp_hdr hdr;
	int fd, listener;
	ssize_t n;

	fd = take_client(&client, &listener, "", &req, buf);
	close(listener);
	send_frame(fd, EA_MPA_REPLY, rep, 0);
	assert_int_equal(rig_expect(client.channel, RDMA_CM_EVENT_CONNECT_ERROR), -EINVAL);
	n = receive(fd, buf, sizeof(buf), WAIT_MS);
	assert_int_equal(n, ea_fpdu_len(EA_DDP_UNTAGGED_LEN + EA_TERMINATE_MIN));
	assert_int_equal(ea_ddp_decode(buf + EA_FPDU_LEN_SIZE, EA_DDP_HDR_MAX, &hdr), EA_DDP_OK);
	assert_false(hdr.tagged);
	assert_true(hdr.last);
	assert_int_equal(ea_rdmap_opcode(hdr.ulp_ctrl), EA_RDMAP_TERMINATE);
	assert_int_equal(hdr.qn, EA_QN_TERMINATE);
	assert_int_equal(hdr.msn, EA_DDP_FIRST_MSN);
	assert_true(ea_terminate_decode(buf + EA_FPDU_LEN_SIZE + EA_DDP_UNTAGGED_LEN,
					EA_TERMINATE_MIN, &term));
	assert_int_equal(term.codes.layer, 2);
	assert_int_equal(term.codes.etype, 0);
	assert_int_equal(term.codes.code, code);
	expect_end(fd);
	rig_end_free(&client);
}

static void test_bad_terms(void **state)
{
	struct ea_mpa_frame rep = {
		.revision = EA_MPA_REV_2,
		.enhanced = true,
		.peer_to_peer = true,
		.rtr = EA_MPA_RTR_WRITE,
		.ird = 2,
		.ord = 4, /* of which the client takes three */
	};

	(void)state;
	bad_terms(&rep, 6);
	rep.ord = 3;
	rep.rtr = EA_MPA_RTR_READ;
	bad_terms(&rep, 7);
}

/* Markers are refused on this side, too. */
static void test_marker_reply(void **state)
{
	struct ea_mpa_frame req, rep;
	struct ea_mpa_terms terms;
	uint8_t buf[EA_MPA_FRAME_MAX];
	struct rig_end client;
	int fd, listener;

	(void)state;
	fd = take_client(&client, &listener, "", &req, buf);
	ea_mpa_answer(&req, 1, 1, false, &rep, &terms);
	send_frame(fd, EA_MPA_REPLY, &rep, 0x8000);
	assert_int_equal(rig_expect(client.channel, RDMA_CM_EVENT_REJECTED), -ECONNREFUSED);
	expect_end(fd);
	close(listener);
	rig_end_free(&client);
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
	send_frame(fd, EA_MPA_REQUEST, &req, 0);
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
		cmocka_unit_test(test_garbage),	      cmocka_unit_test(test_markers),
		cmocka_unit_test(test_quiet),	      cmocka_unit_test(test_active_first),
		cmocka_unit_test(test_slow),	      cmocka_unit_test(test_long_private_data),
		cmocka_unit_test(test_old_responder), cmocka_unit_test(test_no_second_try),
		cmocka_unit_test(test_bad_terms),     cmocka_unit_test(test_marker_reply),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
