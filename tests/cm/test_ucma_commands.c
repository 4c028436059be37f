// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The write() commands of /dev/infiniband/rdma_cm one by one: results, errors, events.  Runs under
 * the preloaded library; knows nothing of it but the kernel's ABI.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <cmocka.h>
#include <rdma/rdma_user_cm.h>

#define DEVICE "/dev/infiniband/rdma_cm"

enum {
	ADDR_RESOLVED = 0,
	ROUTE_RESOLVED = 2,
	CONNECT_REQUEST = 4,
	USER_EVENT = 18,
	AF_IB_ = 27,
	SOCKADDR_IB = 48,
	NO_ID = 60000,
};

static int open_cm(void)
{
	int fd = open(DEVICE, O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

/* 0 or -errno */
static int command(int fd, uint32_t cmd, const void *in, uint16_t in_len, uint16_t out_len)
{
	uint8_t buf[1024];
	struct rdma_ucm_cmd_hdr hdr = { .cmd = cmd, .in = in_len, .out = out_len };
	ssize_t n;

	memcpy(buf, &hdr, sizeof(hdr));
	memcpy(buf + sizeof(hdr), in, in_len);
	n = write(fd, buf, sizeof(hdr) + in_len);
	if (n < 0)
		return -errno;
	assert_int_equal(n, sizeof(hdr) + in_len);
	return 0;
}

#define COMMAND(fd, cmd, in, out_len) command(fd, cmd, &(in), sizeof(in), out_len)

static uint32_t create_id(int fd)
{
	struct rdma_ucm_create_id_resp resp = { .id = NO_ID };
	struct rdma_ucm_create_id cmd = { .uid = 0x1234,
					  .response = (uintptr_t)&resp,
					  .ps = RDMA_PS_TCP };

	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_CREATE_ID, cmd, sizeof(resp)), 0);
	assert_int_not_equal(resp.id, NO_ID);
	return resp.id;
}

static int destroy_id(int fd, uint32_t id, uint32_t *events)
{
	struct rdma_ucm_destroy_id_resp resp = { .events_reported = 99 };
	struct rdma_ucm_destroy_id cmd = { .response = (uintptr_t)&resp, .id = id };
	int ret = COMMAND(fd, RDMA_USER_CM_CMD_DESTROY_ID, cmd, sizeof(resp));

	if (events)
		*events = resp.events_reported;
	return ret;
}

static struct sockaddr_in in4(const char *text, uint16_t port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(port) };

	inet_pton(AF_INET, text, &sin.sin_addr);
	return sin;
}

static int bind_ip(int fd, uint32_t id, const void *sa, size_t len)
{
	struct rdma_ucm_bind_ip cmd = { .id = id };

	memcpy(&cmd.addr, sa, len);
	return COMMAND(fd, RDMA_USER_CM_CMD_BIND_IP, cmd, 0);
}

static int bind_any(int fd, uint32_t id, const void *sa, uint16_t len)
{
	struct rdma_ucm_bind cmd = { .id = id, .addr_size = len };

	memcpy(&cmd.addr, sa, len);
	return COMMAND(fd, RDMA_USER_CM_CMD_BIND, cmd, 0);
}

static int query_addr(int fd, uint32_t id, struct rdma_ucm_query_addr_resp *resp)
{
	struct rdma_ucm_query cmd = { .response = (uintptr_t)resp,
				      .id = id,
				      .option = RDMA_USER_CM_QUERY_ADDR };

	return COMMAND(fd, RDMA_USER_CM_CMD_QUERY, cmd, sizeof(*resp));
}

static int resolve(int fd, uint32_t id, const void *src, uint16_t src_len, const void *dst,
		   uint16_t dst_len)
{
	struct rdma_ucm_resolve_addr cmd = {
		.id = id,
		.timeout_ms = 1000,
		.src_size = src_len,
		.dst_size = dst_len,
	};

	if (src_len)
		memcpy(&cmd.src_addr, src, src_len);
	memcpy(&cmd.dst_addr, dst, dst_len);
	return COMMAND(fd, RDMA_USER_CM_CMD_RESOLVE_ADDR, cmd, 0);
}

static int resolve_ip(int fd, uint32_t id, const char *dst)
{
	struct rdma_ucm_resolve_ip cmd = { .id = id, .timeout_ms = 1000 };
	struct sockaddr_in sin = in4(dst, 5);

	memcpy(&cmd.dst_addr, &sin, sizeof(sin));
	return COMMAND(fd, RDMA_USER_CM_CMD_RESOLVE_IP, cmd, 0);
}

static int resolve_route(int fd, uint32_t id, uint32_t timeout)
{
	struct rdma_ucm_resolve_route cmd = { .id = id, .timeout_ms = timeout };

	return COMMAND(fd, RDMA_USER_CM_CMD_RESOLVE_ROUTE, cmd, 0);
}

static int get_event(int fd, struct rdma_ucm_event_resp *resp)
{
	struct rdma_ucm_get_event cmd = { .response = (uintptr_t)resp };

	return COMMAND(fd, RDMA_USER_CM_CMD_GET_EVENT, cmd, sizeof(*resp));
}

static void expect_event(int fd, uint32_t id, uint32_t event, int status)
{
	struct rdma_ucm_event_resp resp = {};

	assert_int_equal(get_event(fd, &resp), 0);
	assert_int_equal(resp.id, id);
	assert_int_equal(resp.event, event);
	assert_int_equal((int)resp.status, status);
	assert_int_equal(resp.uid, 0x1234);
}

static int poll_in(int fd, int ms)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN | POLLOUT };

	assert_true(poll(&pfd, 1, ms) >= 0);
	return pfd.revents;
}

static int set_option(int fd, uint32_t id, uint32_t level, uint32_t name, const void *value,
		      uint32_t len)
{
	struct rdma_ucm_set_option cmd = {
		.optval = (uintptr_t)value,
		.id = id,
		.level = level,
		.optname = name,
		.optlen = len,
	};

	return COMMAND(fd, RDMA_USER_CM_CMD_SET_OPTION, cmd, 0);
}

static int init_qp_attr(int fd, uint32_t id, uint32_t state, struct ib_uverbs_qp_attr *resp)
{
	struct rdma_ucm_init_qp_attr cmd = { .response = (uintptr_t)resp,
					     .id = id,
					     .qp_state = state };

	return COMMAND(fd, RDMA_USER_CM_CMD_INIT_QP_ATTR, cmd, sizeof(*resp));
}

/* ------------------------------------------------------------------ tests */

static void test_file(void **state)
{
	struct stat st;
	int fd = open_cm();

	(void)state;
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(S_ISCHR(st.st_mode));
	assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	assert_int_equal(poll_in(fd, 0), 0);
	assert_int_equal(close(fd), 0);
	assert_int_equal(write(fd, "", 1), -1);
	assert_int_equal(errno, EBADF);
}

static void test_framing(void **state)
{
	struct rdma_ucm_cmd_hdr hdr = { .cmd = RDMA_USER_CM_CMD_CREATE_ID, .in = 64 };
	struct rdma_ucm_create_id cmd = { .ps = RDMA_PS_TCP, .response = 16 };
	volatile uintptr_t nowhere = 16;
	uint64_t zero[4] = {};
	int fd = open_cm();

	(void)state;
	assert_int_equal(write(fd, &hdr, 7), -1);
	assert_int_equal(errno, EINVAL);
	/* "in" beyond the buffer */
	assert_int_equal(write(fd, &hdr, sizeof(hdr)), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(command(fd, 25, zero, 8, 0), -EINVAL);
	assert_int_equal(command(fd, UINT32_MAX, zero, 8, 0), -EINVAL);
	assert_int_equal(command(fd, RDMA_USER_CM_CMD_GET_OPTION, zero, 32, 0), -ENOSYS);
	/* a response that cannot be written */
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_CREATE_ID, cmd, 4), -EFAULT);
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_CREATE_ID, cmd, 3), -ENOSPC);
	/* a command that cannot be read */
	assert_int_equal(write(fd, (void *)nowhere, 32), -1);
	assert_int_equal(errno, EFAULT);
	close(fd);
}

static void test_ids(void **state)
{
	struct rdma_ucm_create_id bad = { .ps = 0x7777 };
	int fd = open_cm(), other = open_cm();
	uint32_t a, b, c, events;

	(void)state;
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_CREATE_ID, bad, 4), -EINVAL);
	a = create_id(fd);
	b = create_id(fd);
	assert_int_not_equal(a, b);
	assert_int_equal(destroy_id(other, a, NULL), -EINVAL);
	assert_int_equal(destroy_id(fd, NO_ID, NULL), -ENOENT);
	assert_int_equal(destroy_id(fd, a, &events), 0);
	assert_int_equal(events, 0);
	assert_int_equal(destroy_id(fd, a, NULL), -ENOENT);
	/* the lowest number is used again */
	c = create_id(other);
	assert_int_equal(c, a);
	close(fd);
	/* closing the file has destroyed its ids */
	assert_int_equal(destroy_id(other, b, NULL), -ENOENT);
	close(other);
}

static void test_ib_probe(void **state)
{
	uint8_t ib[SOCKADDR_IB] = { AF_IB_ };
	struct rdma_ucm_query_addr_resp resp = {};
	struct rdma_ucm_query query = { .response = (uintptr_t)&resp,
					.option = RDMA_USER_CM_QUERY_GID };
	int fd = open_cm();
	uint32_t id = create_id(fd);

	(void)state;
	assert_int_equal(bind_any(fd, id, ib, sizeof(ib)), 0);
	query.id = id;
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_QUERY, query, sizeof(resp)), 0);
	assert_int_equal(resp.node_guid, 0);
	assert_int_equal(destroy_id(fd, id, NULL), 0);
	id = create_id(fd);
	ib[8] = 0xfe; /* a GID that no device has */
	assert_int_equal(bind_any(fd, id, ib, sizeof(ib)), -ENODEV);
	close(fd);
}

static void test_bind(void **state)
{
	struct sockaddr_in sin = in4("127.0.0.1", 0), foreign = in4("198.51.100.7", 0),
			   any = in4("0.0.0.0", 0);
	struct rdma_ucm_bind reserved = { .addr_size = sizeof(sin), .reserved = 1 };
	struct rdma_ucm_query_addr_resp resp = {};
	struct sockaddr unknown = { .sa_family = 99 };
	int fd = open_cm(), on = 1;
	uint32_t a = create_id(fd), b = create_id(fd), c = create_id(fd), d;
	struct rdma_ucm_listen listen_b = { .backlog = 1 };

	(void)state;
	listen_b.id = b;
	assert_int_equal(bind_any(fd, a, &unknown, sizeof(unknown)), -EINVAL);
	assert_int_equal(bind_any(fd, a, &sin, 12), -EINVAL);
	reserved.id = a;
	memcpy(&reserved.addr, &sin, sizeof(sin));
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_BIND, reserved, 0), -EINVAL);
	assert_int_equal(bind_any(fd, NO_ID, &sin, sizeof(sin)), -ENOENT);
	assert_int_equal(bind_ip(fd, a, &foreign, sizeof(foreign)), -ENODEV);

	assert_int_equal(bind_any(fd, a, &sin, sizeof(sin)), 0);
	assert_int_equal(bind_any(fd, a, &sin, sizeof(sin)), -EINVAL);
	assert_int_equal(query_addr(fd, a, &resp), 0);
	assert_int_equal(resp.src_size, sizeof(sin));
	assert_int_not_equal(resp.node_guid, 0);
	assert_int_equal(resp.port_num, 1);
	memcpy(&sin, &resp.src_addr, sizeof(sin));
	assert_int_not_equal(sin.sin_port, 0);

	/* the same port again */
	assert_int_equal(bind_ip(fd, b, &sin, sizeof(sin)), -EADDRINUSE);
	assert_int_equal(destroy_id(fd, a, NULL), 0);
	assert_int_equal(
		set_option(fd, b, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)), 0);
	assert_int_equal(
		set_option(fd, c, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)), 0);
	assert_int_equal(bind_ip(fd, b, &sin, sizeof(sin)), 0);
	assert_int_equal(bind_ip(fd, c, &sin, sizeof(sin)), 0);
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_LISTEN, listen_b, 0), 0);
	listen_b.id = c;
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_LISTEN, listen_b, 0), -EADDRINUSE);
	assert_int_equal(set_option(fd, b, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on,
				    sizeof(on)),
			 -EINVAL);

	/* a wildcard has no device */
	d = create_id(fd);
	assert_int_equal(bind_any(fd, d, &any, sizeof(any)), 0);
	memset(&resp, 0, sizeof(resp));
	assert_int_equal(query_addr(fd, d, &resp), 0);
	assert_int_equal(resp.node_guid, 0);
	memcpy(&sin, &resp.src_addr, sizeof(sin));
	assert_int_not_equal(sin.sin_port, 0);
	close(fd);
}

static void test_resolve(void **state)
{
	struct sockaddr_in dst = in4("127.0.0.1", 7), src = in4("127.0.0.1", 0),
			   foreign = in4("198.51.100.7", 1);
	struct sockaddr_in6 dst6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_in broken = { .sin_family = 99 };
	struct rdma_ucm_query_addr_resp resp = {};
	int fd = open_cm();
	uint32_t id = create_id(fd), events;

	(void)state;
	assert_int_equal(resolve(fd, id, NULL, 0, &broken, sizeof(broken)), -EINVAL);
	assert_int_equal(resolve(fd, id, NULL, 0, &dst, 4), -EINVAL);
	assert_int_equal(resolve(fd, id, &src, sizeof(src), &dst6, sizeof(dst6)), -EINVAL);
	assert_int_equal(resolve_route(fd, id, 1000), -EINVAL);
	assert_int_equal(poll_in(fd, 0), 0);

	assert_int_equal(resolve(fd, id, NULL, 0, &dst, sizeof(dst)), 0);
	assert_int_equal(poll_in(fd, 1000), POLLIN);
	expect_event(fd, id, ADDR_RESOLVED, 0);
	assert_int_equal(query_addr(fd, id, &resp), 0);
	assert_int_equal(resp.dst_size, sizeof(dst));
	assert_int_not_equal(resp.node_guid, 0);
	assert_memory_equal(&((struct sockaddr_in *)&resp.src_addr)->sin_addr, &src.sin_addr, 4);
	assert_int_equal(resolve(fd, id, NULL, 0, &dst, sizeof(dst)), -EINVAL);
	assert_int_equal(resolve_route(fd, id, 0), -EINVAL);
	assert_int_equal(resolve_route(fd, id, 1000), 0);
	expect_event(fd, id, ROUTE_RESOLVED, 0);
	assert_int_equal(resolve_route(fd, id, 1000), -EINVAL);
	assert_int_equal(destroy_id(fd, id, &events), 0);
	assert_int_equal(events, 2);

	/* an event that was not fetched does not count, and goes */
	id = create_id(fd);
	assert_int_equal(resolve_ip(fd, id, "127.0.0.1"), 0);
	assert_int_equal(poll_in(fd, 1000), POLLIN);
	assert_int_equal(destroy_id(fd, id, &events), 0);
	assert_int_equal(events, 0);
	assert_int_equal(poll_in(fd, 0), 0);

	/* a source that is not ours */
	id = create_id(fd);
	assert_true(resolve(fd, id, &foreign, sizeof(foreign), &dst, sizeof(dst)) < 0);
	close(fd);
}

static void test_query(void **state)
{
	struct rdma_ucm_query_route_resp route = {};
	struct rdma_ucm_query_path_resp path = { .num_paths = 7 };
	uint64_t big[64] = {};
	struct rdma_ucm_query cmd = {};
	int fd = open_cm();
	uint32_t id = create_id(fd);

	(void)state;
	assert_int_equal(resolve_ip(fd, id, "127.0.0.1"), 0);
	expect_event(fd, id, ADDR_RESOLVED, 0);
	cmd.id = id;
	cmd.response = (uintptr_t)&route;
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_QUERY_ROUTE, cmd, sizeof(route)), 0);
	assert_int_equal(route.num_paths, 0);
	assert_int_equal(route.port_num, 1);
	assert_int_not_equal(route.node_guid, 0);
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_QUERY_ROUTE, cmd, 100), -ENOSPC);

	cmd.response = (uintptr_t)&path;
	cmd.option = RDMA_USER_CM_QUERY_PATH;
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_QUERY, cmd, sizeof(path)), 0);
	assert_int_equal(path.num_paths, 0);
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_QUERY, cmd, 4), -ENOSPC);
	cmd.response = (uintptr_t)big;
	cmd.option = RDMA_USER_CM_QUERY_GID;
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_QUERY, cmd,
				 sizeof(struct rdma_ucm_query_addr_resp)),
			 0);
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_QUERY, cmd, 8), -ENOSPC);
	cmd.option = 77;
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_QUERY, cmd, sizeof(big)), -ENOSYS);
	cmd.id = NO_ID;
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_QUERY, cmd, sizeof(big)), -ENOENT);
	close(fd);
}

static void test_options(void **state)
{
	int fd = open_cm(), value = 1;
	uint32_t id = create_id(fd);
	uint8_t byte = 8;

	(void)state;
	assert_int_equal(set_option(fd, id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1), 0);
	assert_int_equal(set_option(fd, id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &value, 4),
			 -EINVAL);
	assert_int_equal(set_option(fd, id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &value, 4),
			 0);
	assert_int_equal(set_option(fd, id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &byte, 1),
			 -EINVAL);
	assert_int_equal(set_option(fd, id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &value, 4), 0);
	assert_int_equal(set_option(fd, id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &byte, 1),
			 -EINVAL);
	assert_int_equal(set_option(fd, id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1),
			 0);
	assert_int_equal(set_option(fd, id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &value, 4),
			 -EINVAL);
	assert_int_equal(set_option(fd, id, RDMA_OPTION_ID, 9, &value, 4), -ENOSYS);
	assert_int_equal(set_option(fd, id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &value, 4),
			 -EINVAL);
	assert_int_equal(set_option(fd, id, 5, 1, &value, 4), -ENOSYS);
	assert_int_equal(set_option(fd, id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, (void *)16, 1),
			 -EFAULT);
	assert_int_equal(set_option(fd, NO_ID, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1),
			 -ENOENT);
	close(fd);
}

static void test_needs_device(void **state)
{
	struct rdma_ucm_connect conn = { .conn_param.valid = 1 };
	struct rdma_ucm_accept acc = { .conn_param.valid = 1 };
	struct rdma_ucm_reject rej = {};
	struct rdma_ucm_disconnect disc = {};
	struct rdma_ucm_notify note = { .event = 4 };
	struct rdma_ucm_join_mcast join = {};
	struct rdma_ucm_destroy_id leave = {};
	struct ib_uverbs_qp_attr attr = {};
	int fd = open_cm();
	uint32_t id = create_id(fd);

	(void)state;
	conn.id = acc.id = rej.id = disc.id = note.id = join.id = leave.id = id;
	assert_int_equal(resolve_route(fd, id, 1000), -EINVAL);
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_CONNECT, conn, 0), -EINVAL);
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_ACCEPT, acc, 0), -EINVAL);
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_REJECT, rej, 0), -EINVAL);
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_DISCONNECT, disc, 0), -EINVAL);
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_NOTIFY, note, 0), -EINVAL);
	assert_int_equal(init_qp_attr(fd, id, 1, &attr), -EINVAL);
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_JOIN_MCAST, join, 4), -EINVAL);
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_JOIN_MCAST, join, 3), -ENOSPC);
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_LEAVE_MCAST, leave, 4), -ENOENT);

	/* with a device, in the wrong state */
	assert_int_equal(resolve_ip(fd, id, "127.0.0.1"), 0);
	expect_event(fd, id, ADDR_RESOLVED, 0);
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_CONNECT, conn, 0), -EINVAL);
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_ACCEPT, acc, 0), -EINVAL);
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_REJECT, rej, 0), -EINVAL);
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_DISCONNECT, disc, 0), -EINVAL);
	rej.reason = 3;
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_REJECT, rej, 0), -EINVAL);
	assert_int_equal(resolve_route(fd, id, 1000), 0);
	expect_event(fd, id, ROUTE_RESOLVED, 0);
	/* no such QP */
	conn.conn_param.qp_num = 4242;
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_CONNECT, conn, 0), -EINVAL);
	conn.conn_param.valid = 0;
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_CONNECT, conn, 0), -EINVAL);
	assert_int_equal(command(fd, RDMA_USER_CM_CMD_CONNECT, &conn, 200, 0), -EINVAL);

	assert_int_equal(init_qp_attr(fd, id, 1, &attr), 0);
	assert_int_equal(attr.qp_attr_mask, 0x29);
	assert_int_equal(attr.qp_access_flags, 0);
	assert_int_equal(attr.port_num, 1);
	assert_int_equal(init_qp_attr(fd, id, 3, &attr), 0);
	assert_int_equal(attr.qp_attr_mask, 0x29);
	assert_int_equal(init_qp_attr(fd, id, 7, &attr), -EINVAL);
	close(fd);
}

static void on_alarm(int sig)
{
	(void)sig;
}

static void *wait_event(void *arg)
{
	struct rdma_ucm_event_resp resp;

	get_event(*(int *)arg, &resp);
	return NULL;
}

static void test_get_event(void **state)
{
	struct sigaction sa = { .sa_handler = on_alarm };
	struct rdma_ucm_event_resp resp;
	struct rdma_ucm_get_event cmd = { .response = (uintptr_t)&resp };
	int fd = open_cm(), flags;
	uint32_t id = create_id(fd), events;
	pthread_t thread;
	void *result;

	(void)state;
	assert_int_equal(COMMAND(fd, RDMA_USER_CM_CMD_GET_EVENT, cmd, 100), -ENOSPC);
	flags = fcntl(fd, F_GETFL);
	fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	assert_int_equal(get_event(fd, &resp), -EAGAIN);
	fcntl(fd, F_SETFL, flags);

	sigaction(SIGALRM, &sa, NULL);
	/* more than one, for the first may come before the wait */
	ualarm(20000, 20000);
	assert_int_equal(get_event(fd, &resp), -EINTR);
	ualarm(0, 0);

	/* the waiting thread can be cancelled, and others go on */
	assert_int_equal(pthread_create(&thread, NULL, wait_event, &fd), 0);
	usleep(20000);
	assert_int_equal(pthread_cancel(thread), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, PTHREAD_CANCELED);

	/* the waiting thread is woken, and has fetched the event */
	assert_int_equal(pthread_create(&thread, NULL, wait_event, &fd), 0);
	usleep(20000);
	assert_int_equal(resolve_ip(fd, id, "127.0.0.1"), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(destroy_id(fd, id, &events), 0);
	assert_int_equal(events, 1);

	/* a cancelled command holds nothing: closing the file ends its ids */
	id = create_id(fd);
	assert_int_equal(pthread_create(&thread, NULL, wait_event, &fd), 0);
	usleep(20000);
	pthread_cancel(thread);
	pthread_join(thread, NULL);
	close(fd);
	fd = open_cm();
	assert_int_equal(destroy_id(fd, id, NULL), -ENOENT);
	close(fd);
}

static void test_migrate(void **state)
{
	struct rdma_ucm_migrate_resp resp = {};
	struct rdma_ucm_migrate_id cmd = { .response = (uintptr_t)&resp };
	int from = open_cm(), to = open_cm();
	uint32_t id = create_id(from), events;

	(void)state;
	cmd.id = id;
	cmd.fd = (uint32_t)from;
	assert_int_equal(resolve_ip(from, id, "127.0.0.1"), 0);
	expect_event(from, id, ADDR_RESOLVED, 0);
	assert_int_equal(resolve_route(from, id, 1000), 0);
	assert_int_equal(COMMAND(to, RDMA_USER_CM_CMD_MIGRATE_ID, cmd, 3), -ENOSPC);
	assert_int_equal(COMMAND(to, RDMA_USER_CM_CMD_MIGRATE_ID, cmd, sizeof(resp)), 0);
	assert_int_equal(resp.events_reported, 1);
	/* what was not fetched came along */
	assert_int_equal(poll_in(from, 0), 0);
	expect_event(to, id, ROUTE_RESOLVED, 0);
	assert_int_equal(destroy_id(from, id, NULL), -EINVAL);
	assert_int_equal(destroy_id(to, id, &events), 0);
	assert_int_equal(events, 2);
	cmd.fd = 0;
	assert_true(COMMAND(to, RDMA_USER_CM_CMD_MIGRATE_ID, cmd, sizeof(resp)) < 0);
	close(from);
	close(to);
}

static void test_write_event(void **state)
{
	struct {
		uint32_t id, reserved, event, status;
		uint64_t arg;
	} cmd = { .event = USER_EVENT, .status = 5, .arg = 0xfeed };
	struct rdma_ucm_event_resp resp = {};
	int fd = open_cm();

	(void)state;
	cmd.id = create_id(fd);
	assert_int_equal(COMMAND(fd, 24, cmd, 0), 0);
	assert_int_equal(get_event(fd, &resp), 0);
	assert_int_equal(resp.event, USER_EVENT);
	assert_int_equal(resp.status, 5);
	assert_memory_equal(&resp.param, &cmd.arg, sizeof(cmd.arg));
	cmd.event = ADDR_RESOLVED;
	assert_int_equal(COMMAND(fd, 24, cmd, 0), -EINVAL);
	close(fd);
}

/* More events than the smallest pipe holds, and numbers that stay small. */
static void test_many(void **state)
{
	enum {
		MANY = 5000
	};
	int fd = open_cm(), i;
	struct rdma_ucm_event_resp resp;
	uint32_t id, first = create_id(fd), *ids;

	(void)state;
	assert_int_equal(destroy_id(fd, first, NULL), 0);
	ids = calloc(MANY, sizeof(*ids));
	for (i = 0; i < MANY; i++) {
		ids[i] = create_id(fd);
		assert_int_equal(resolve_ip(fd, ids[i], "127.0.0.1"), 0);
	}
	for (i = 0; i < MANY; i++)
		expect_event(fd, ids[i], ADDR_RESOLVED, 0);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	assert_int_equal(get_event(fd, &resp), -EAGAIN);
	for (i = 0; i < MANY; i++)
		assert_int_equal(destroy_id(fd, ids[i], NULL), 0);
	for (i = 0; i < 4 * MANY; i++) {
		id = create_id(fd);
		assert_int_equal(id, first);
		assert_int_equal(destroy_id(fd, id, NULL), 0);
	}
	free(ids);
	close(fd);
}

/* ------------------------------------------------------------------ ids of requests not fetched */

static int listen_on(int fd, uint32_t id)
{
	struct rdma_ucm_listen cmd = { .id = id, .backlog = 8 };

	return COMMAND(fd, RDMA_USER_CM_CMD_LISTEN, cmd, 0);
}

/* A peer that asks for a connection, seen by the listener on @fd.  Its socket. */
static int call(int fd, uint32_t listener, const char *text)
{
	static const char request[] = "MPA ID Req Frame\0\1\0";
	struct rdma_ucm_query_addr_resp resp = {};
	struct sockaddr_in to = in4(text, 0);
	int sock;

	assert_int_equal(query_addr(fd, listener, &resp), 0);
	to.sin_port = ((struct sockaddr_in *)&resp.src_addr)->sin_port;
	sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(sock >= 0);
	assert_int_equal(connect(sock, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(write(sock, request, sizeof(request)), sizeof(request));
	assert_int_equal(poll_in(fd, 30000) & POLLIN, POLLIN);
	return sock;
}

static void test_unseen_id(void **state)
{
	struct sockaddr_in any = in4("0.0.0.0", 0);
	struct rdma_ucm_event_resp resp;
	uint32_t low, listener;
	int fd = open_cm(), sock;

	(void)state;
	low = create_id(fd);
	listener = create_id(fd);
	assert_int_equal(bind_ip(fd, listener, &any, sizeof(any)), 0);
	assert_int_equal(listen_on(fd, listener), 0);
	assert_int_equal(destroy_id(fd, low, NULL), 0);
	sock = call(fd, listener, "127.0.0.1");
	/* the new id took this number, and only its event makes it known */
	assert_int_equal(destroy_id(fd, low, NULL), -ENOENT);
	assert_int_equal(get_event(fd, &resp), 0);
	assert_int_equal(resp.event, CONNECT_REQUEST);
	assert_int_equal(resp.id, low);
	assert_int_equal(destroy_id(fd, low, NULL), 0);
	close(sock);

	/* the file goes with a request that nobody has fetched, whose number is below the listener's */
	sock = call(fd, listener, "127.0.0.1");
	close(fd);
	close(sock);
}

/* While the device of a request is looked for, another command may run: this one. */
static struct {
	int fd;
	uint32_t listener;
	bool due;
} meanwhile;

__attribute__((visibility("default"))) int getifaddrs(struct ifaddrs **list)
{
	int (*real)(struct ifaddrs **) = (int (*)(struct ifaddrs **))dlsym(RTLD_NEXT, "getifaddrs");

	if (meanwhile.due) {
		meanwhile.due = false;
		assert_int_equal(destroy_id(meanwhile.fd, meanwhile.listener, NULL), 0);
	}
	return real(list);
}

static void test_listener_goes(void **state)
{
	struct sockaddr_in any = in4("0.0.0.0", 0);
	struct rdma_ucm_event_resp resp;
	int fd = open_cm(), sock;
	uint32_t listener, next;
	char byte;

	(void)state;
	listener = create_id(fd);
	assert_int_equal(bind_ip(fd, listener, &any, sizeof(any)), 0);
	assert_int_equal(listen_on(fd, listener), 0);
	/* an address that no interface has: the host's addresses are read anew */
	sock = call(fd, listener, "127.0.0.2");
	/* a list of the last ten milliseconds would be believed */
	usleep(20000);
	meanwhile.fd = fd;
	meanwhile.listener = listener;
	meanwhile.due = true;
	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(get_event(fd, &resp), -EAGAIN);
	assert_false(meanwhile.due);
	/* the peer hears of it, and no id is left behind */
	while (read(sock, &byte, 1) > 0)
		;
	close(sock);
	next = create_id(fd);
	assert_int_equal(next, listener);
	assert_int_equal(create_id(fd), listener + 1);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_file),	      cmocka_unit_test(test_framing),
		cmocka_unit_test(test_ids),	      cmocka_unit_test(test_ib_probe),
		cmocka_unit_test(test_bind),	      cmocka_unit_test(test_resolve),
		cmocka_unit_test(test_query),	      cmocka_unit_test(test_options),
		cmocka_unit_test(test_needs_device),  cmocka_unit_test(test_get_event),
		cmocka_unit_test(test_migrate),	      cmocka_unit_test(test_write_event),
		cmocka_unit_test(test_many),	      cmocka_unit_test(test_unseen_id),
		cmocka_unit_test(test_listener_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
