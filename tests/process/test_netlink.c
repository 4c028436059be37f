// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* NETLINK_RDMA, message by message, and that it tells the same as sysfs. */
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <rdma/rdma_netlink.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define TYPE(op) RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, op)

struct request {
	struct nlmsghdr hdr;
	unsigned char attrs[256];
};

static int nl_open(void)
{
	struct sockaddr_nl addr = { .nl_family = AF_NETLINK };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA), one = 1;

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(setsockopt(fd, SOL_NETLINK, NETLINK_EXT_ACK, &one, sizeof(one)), 0);
	return fd;
}

static void begin(struct request *req, uint16_t type, uint16_t flags)
{
	memset(req, 0, sizeof(*req));
	req->hdr.nlmsg_len = NLMSG_HDRLEN;
	req->hdr.nlmsg_type = type;
	req->hdr.nlmsg_flags = NLM_F_REQUEST | flags;
	req->hdr.nlmsg_seq = 77;
}

static void add(struct request *req, uint16_t type, const void *data, size_t len)
{
	struct nlattr attr = { .nla_type = type, .nla_len = NLA_HDRLEN + len };
	char *at = (char *)req + NLMSG_ALIGN(req->hdr.nlmsg_len);

	memcpy(at, &attr, sizeof(attr));
	memcpy(at + NLA_HDRLEN, data, len);
	req->hdr.nlmsg_len = NLMSG_ALIGN(req->hdr.nlmsg_len) + NLA_ALIGN(attr.nla_len);
}

/* Send and receive the first datagram of the answer. */
static ssize_t ask(int fd, const struct request *req, void *buf, size_t size)
{
	struct sockaddr_nl addr = { .nl_family = AF_NETLINK }, from;
	struct iovec iov = { (void *)req, req->hdr.nlmsg_len }, in = { buf, size };
	struct msghdr msg = {
		.msg_name = &addr, .msg_namelen = sizeof(addr), .msg_iov = &iov, .msg_iovlen = 1
	};
	ssize_t n;

	assert_int_equal(sendmsg(fd, &msg, 0), req->hdr.nlmsg_len);
	memset(&from, 0xff, sizeof(from));
	msg = (struct msghdr){
		.msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &in, .msg_iovlen = 1
	};
	n = recvmsg(fd, &msg, MSG_DONTWAIT);
	assert_true(n > 0);
	/* libnl and libmnl check where it came from */
	assert_int_equal(msg.msg_namelen, sizeof(from));
	assert_int_equal(from.nl_family, AF_NETLINK);
	assert_int_equal(from.nl_pid, 0);
	return n;
}

static const void *find(const struct nlmsghdr *msg, uint16_t type, size_t *len)
{
	const char *at = NLMSG_DATA(msg), *end = (const char *)msg + msg->nlmsg_len;

	while (at + NLA_HDRLEN <= end) {
		const struct nlattr *attr = (const struct nlattr *)at;

		if ((attr->nla_type & NLA_TYPE_MASK) == type) {
			*len = attr->nla_len - NLA_HDRLEN;
			return at + NLA_HDRLEN;
		}
		at += NLA_ALIGN(attr->nla_len);
	}
	fail_msg("attribute %u is missing", type);
	return NULL;
}

static uint64_t number(const struct nlmsghdr *msg, uint16_t type, size_t size)
{
	uint64_t value = 0;
	size_t len;
	const void *data = find(msg, type, &len);

	assert_int_equal(len, size);
	memcpy(&value, data, len);
	return value;
}

static const char *text(const struct nlmsghdr *msg, uint16_t type)
{
	size_t len;
	const char *data = find(msg, type, &len);

	assert_int_equal(data[len - 1], 0);
	return data;
}

static void sysfs(const char *path, char *buf, size_t size)
{
	FILE *file = fopen(path, "re");

	assert_non_null(file);
	assert_non_null(fgets(buf, size, file));
	fclose(file);
}

static void device_dump(void **state)
{
	unsigned char buf[8192];
	const struct nlmsghdr *msg = (const struct nlmsghdr *)buf, *done;
	struct request req;
	char line[64], guid[64];
	const uint8_t *b;
	size_t len;
	ssize_t n;
	int fd = nl_open();

	(void)state;
	begin(&req, TYPE(RDMA_NLDEV_CMD_GET), NLM_F_DUMP);
	n = ask(fd, &req, buf, sizeof(buf));
	assert_int_equal(msg->nlmsg_type, req.hdr.nlmsg_type);
	assert_int_equal(msg->nlmsg_flags, NLM_F_MULTI);
	assert_int_equal(msg->nlmsg_seq, 77);
	assert_string_equal(text(msg, RDMA_NLDEV_ATTR_DEV_NAME), "erdma_0");
	assert_int_equal(number(msg, RDMA_NLDEV_ATTR_DEV_INDEX, 4), 0);
	assert_int_equal(number(msg, RDMA_NLDEV_ATTR_PORT_INDEX, 4), 1);
	sysfs("/sys/class/infiniband/erdma_0/node_type", line, sizeof(line));
	assert_int_equal(number(msg, RDMA_NLDEV_ATTR_DEV_NODE_TYPE, 1), atoi(line));
	b = find(msg, RDMA_NLDEV_ATTR_NODE_GUID, &len);
	assert_int_equal(len, 8);
	snprintf(guid, sizeof(guid), "%02x%02x:%02x%02x:%02x%02x:%02x%02x\n", b[7], b[6], b[5],
		 b[4], b[3], b[2], b[1], b[0]); /* netlink has it in the host's order */
	sysfs("/sys/class/infiniband/erdma_0/node_guid", line, sizeof(line));
	assert_string_equal(line, guid);
	done = (const struct nlmsghdr *)(buf + NLMSG_ALIGN(msg->nlmsg_len));
	assert_true((const unsigned char *)done + done->nlmsg_len <= buf + n);
	assert_int_equal(done->nlmsg_type, NLMSG_DONE);
	close(fd);
}

static void one_device(void **state)
{
	unsigned char buf[8192];
	const struct nlmsghdr *msg = (const struct nlmsghdr *)buf;
	struct request req;
	uint32_t index = 0;
	int fd = nl_open();

	(void)state;
	begin(&req, TYPE(RDMA_NLDEV_CMD_GET), 0);
	add(&req, RDMA_NLDEV_ATTR_DEV_INDEX, &index, 4);
	ask(fd, &req, buf, sizeof(buf));
	assert_int_equal(msg->nlmsg_flags, 0);
	assert_string_equal(text(msg, RDMA_NLDEV_ATTR_DEV_NAME), "erdma_0");
	index = 9;
	begin(&req, TYPE(RDMA_NLDEV_CMD_GET), 0);
	add(&req, RDMA_NLDEV_ATTR_DEV_INDEX, &index, 4);
	ask(fd, &req, buf, sizeof(buf));
	assert_int_equal(msg->nlmsg_type, NLMSG_ERROR);
	assert_int_equal(((struct nlmsgerr *)NLMSG_DATA(msg))->error, -EINVAL);
	close(fd);
}

static void port(void **state)
{
	unsigned char buf[8192];
	const struct nlmsghdr *msg = (const struct nlmsghdr *)buf;
	uint32_t index = 0, one = 1;
	struct request req;
	char line[64];
	int fd = nl_open();

	(void)state;
	begin(&req, TYPE(RDMA_NLDEV_CMD_PORT_GET), 0);
	add(&req, RDMA_NLDEV_ATTR_DEV_INDEX, &index, 4);
	add(&req, RDMA_NLDEV_ATTR_PORT_INDEX, &one, 4);
	ask(fd, &req, buf, sizeof(buf));
	sysfs("/sys/class/infiniband/erdma_0/ports/1/state", line, sizeof(line));
	assert_int_equal(number(msg, RDMA_NLDEV_ATTR_PORT_STATE, 1), atoi(line));
	sysfs("/sys/class/infiniband/erdma_0/ports/1/gid_attrs/ndevs/0", line, sizeof(line));
	line[strcspn(line, "\n")] = 0;
	assert_string_equal(text(msg, RDMA_NLDEV_ATTR_NDEV_NAME), line);
	begin(&req, TYPE(RDMA_NLDEV_CMD_PORT_GET), NLM_F_DUMP);
	add(&req, RDMA_NLDEV_ATTR_DEV_INDEX, &index, 4);
	ask(fd, &req, buf, sizeof(buf));
	assert_int_equal(number(msg, RDMA_NLDEV_ATTR_PORT_INDEX, 4), 1);
	one = 2;
	begin(&req, TYPE(RDMA_NLDEV_CMD_PORT_GET), 0);
	add(&req, RDMA_NLDEV_ATTR_DEV_INDEX, &index, 4);
	add(&req, RDMA_NLDEV_ATTR_PORT_INDEX, &one, 4);
	ask(fd, &req, buf, sizeof(buf));
	assert_int_equal(msg->nlmsg_type, NLMSG_ERROR);
	close(fd);
}

static void chardevs(void **state)
{
	unsigned char buf[8192];
	const struct nlmsghdr *msg = (const struct nlmsghdr *)buf;
	struct request req;
	uint32_t index = 0;
	int fd = nl_open();

	(void)state;
	begin(&req, TYPE(RDMA_NLDEV_CMD_GET_CHARDEV), 0);
	add(&req, RDMA_NLDEV_ATTR_DEV_INDEX, &index, 4);
	add(&req, RDMA_NLDEV_ATTR_CHARDEV_TYPE, "uverbs", 7);
	ask(fd, &req, buf, sizeof(buf));
	assert_string_equal(text(msg, RDMA_NLDEV_ATTR_CHARDEV_NAME), "uverbs0");
	assert_int_equal(number(msg, RDMA_NLDEV_ATTR_CHARDEV_ABI, 8), 1);
	assert_int_equal(number(msg, RDMA_NLDEV_ATTR_CHARDEV, 8), 231 << 8 | 192);
	assert_int_equal(number(msg, RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, 4), 19);
	begin(&req, TYPE(RDMA_NLDEV_CMD_GET_CHARDEV), 0);
	add(&req, RDMA_NLDEV_ATTR_CHARDEV_TYPE, "rdma_cm", 8);
	ask(fd, &req, buf, sizeof(buf));
	assert_string_equal(text(msg, RDMA_NLDEV_ATTR_CHARDEV_NAME), "rdma_cm");
	assert_int_equal(number(msg, RDMA_NLDEV_ATTR_CHARDEV_ABI, 8), 4);
	begin(&req, TYPE(RDMA_NLDEV_CMD_GET_CHARDEV), 0);
	add(&req, RDMA_NLDEV_ATTR_CHARDEV_TYPE, "umad", 5);
	ask(fd, &req, buf, sizeof(buf));
	assert_int_equal(((struct nlmsgerr *)NLMSG_DATA(msg))->error, -ENODEV);
	close(fd);
}

static void system_get(void **state)
{
	unsigned char buf[8192];
	const struct nlmsghdr *msg = (const struct nlmsghdr *)buf;
	struct request req;
	int fd = nl_open();

	(void)state;
	begin(&req, TYPE(RDMA_NLDEV_CMD_SYS_GET), NLM_F_ACK);
	ask(fd, &req, buf, sizeof(buf));
	assert_int_equal(number(msg, RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, 1), 1);
	msg = (const struct nlmsghdr *)(buf + NLMSG_ALIGN(msg->nlmsg_len));
	assert_int_equal(msg->nlmsg_type, NLMSG_ERROR);
	assert_int_equal(((struct nlmsgerr *)NLMSG_DATA(msg))->error, 0);
	close(fd);
}

static void the_socket(void **state)
{
	struct pollfd poll_fd = { .fd = nl_open(), .events = POLLIN };
	unsigned char buf[8192];
	struct sockaddr_nl addr;
	socklen_t len = sizeof(addr);
	struct request req;
	int other;

	(void)state;
	assert_int_equal(getsockname(poll_fd.fd, (struct sockaddr *)&addr, &len), 0);
	assert_int_equal(len, sizeof(addr));
	assert_int_equal(addr.nl_family, AF_NETLINK);
	assert_int_not_equal(addr.nl_pid, 0);
	assert_int_equal(poll(&poll_fd, 1, 0), 0);
	assert_int_equal(recv(poll_fd.fd, buf, sizeof(buf), MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	begin(&req, TYPE(RDMA_NLDEV_CMD_SYS_GET), 0);
	assert_int_equal(send(poll_fd.fd, &req, req.hdr.nlmsg_len, 0), req.hdr.nlmsg_len);
	assert_int_equal(poll(&poll_fd, 1, 0), 1);
	/* a peek with truncation tells the whole length, as libnl uses it */
	assert_true(recv(poll_fd.fd, buf, 1, MSG_PEEK | MSG_TRUNC) > NLMSG_HDRLEN);
	assert_true(recv(poll_fd.fd, buf, sizeof(buf), 0) > NLMSG_HDRLEN);
	close(poll_fd.fd);

	assert_int_equal(socket(AF_NETLINK, SOCK_STREAM, NETLINK_RDMA), -1);
	assert_int_equal(errno, ESOCKTNOSUPPORT);
	/* other families are the kernel's */
	other = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	assert_true(other >= 0);
	len = sizeof(addr);
	assert_int_equal(getsockname(other, (struct sockaddr *)&addr, &len), 0);
	close(other);
}

static void malformed(void **state)
{
	unsigned char buf[8192];
	struct request req;
	struct nlattr bad = { .nla_type = RDMA_NLDEV_ATTR_DEV_INDEX, .nla_len = 200 };
	int fd = nl_open(), i;

	(void)state;
	/* unknown operations and clients */
	begin(&req, TYPE(200), 0);
	ask(fd, &req, buf, sizeof(buf));
	assert_int_equal(((struct nlmsgerr *)NLMSG_DATA(buf))->error, -EINVAL);
	begin(&req, RDMA_NL_GET_TYPE(3, 1), 0);
	ask(fd, &req, buf, sizeof(buf));
	assert_int_equal(((struct nlmsgerr *)NLMSG_DATA(buf))->error, -EINVAL);
	/* an attribute that runs over the end */
	begin(&req, TYPE(RDMA_NLDEV_CMD_GET), 0);
	memcpy(req.attrs, &bad, sizeof(bad));
	req.hdr.nlmsg_len += sizeof(bad);
	ask(fd, &req, buf, sizeof(buf));
	assert_int_equal(((struct nlmsgerr *)NLMSG_DATA(buf))->error, -EINVAL);
	/* lengths that lie are dropped, as by the kernel */
	begin(&req, TYPE(RDMA_NLDEV_CMD_GET), NLM_F_DUMP);
	req.hdr.nlmsg_len = 5000;
	assert_int_equal(send(fd, &req, NLMSG_HDRLEN, 0), NLMSG_HDRLEN);
	req.hdr.nlmsg_len = 3;
	assert_int_equal(send(fd, &req, NLMSG_HDRLEN, 0), NLMSG_HDRLEN);
	assert_int_equal(send(fd, &req, 2, 0), 2);
	assert_int_equal(recv(fd, buf, sizeof(buf), MSG_DONTWAIT), -1);
	for (i = 0; i < 10000; i++) {
		struct request noise;
		size_t j, len = rand() % sizeof(noise);

		for (j = 0; j < sizeof(noise); j++)
			((unsigned char *)&noise)[j] = rand();
		noise.hdr.nlmsg_len = len;
		noise.hdr.nlmsg_type = TYPE(rand() % 20);
		noise.hdr.nlmsg_flags |= NLM_F_REQUEST;
		send(fd, &noise, len, 0);
		while (recv(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
			;
	}
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(device_dump), cmocka_unit_test(one_device),
		cmocka_unit_test(port),	       cmocka_unit_test(chardevs),
		cmocka_unit_test(system_get),  cmocka_unit_test(the_socket),
		cmocka_unit_test(malformed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
