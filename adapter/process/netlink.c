// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* NETLINK_RDMA: requests are decoded and answered here. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <pthread.h>
#include <rdma/rdma_netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "adapter/process/device.h"
#include "adapter/process/fdtab.h"
#include "adapter/process/libc.h"
#include "adapter/process/netlink.h"
#include "adapter/process/uverbs.h"

enum {
	MESSAGE_MAX = 2048,  /* one answer */
	DATAGRAM_MAX = 8192, /* what a reader with the usual buffer takes at once */
	REQUEST_MAX = 65536,
	TOP_ATTRS = RDMA_NLDEV_ATTR_MAX,
	NETNS_SHARED = 1,
};

struct nl_socket {
	struct host_file file;
	int peer; /* hidden: answers are written here */
	pthread_mutex_t lock;
	uint32_t portid;
};

struct nl_answer {
	struct nl_socket *sock;
	const struct nlmsghdr *request;
	unsigned char *buf; /* DATAGRAM_MAX */
	size_t len;
};

/* ------------------------------------------------------------------ answers */

static int answer_flush(struct nl_answer *ans)
{
	ssize_t n = 0;

	if (ans->len)
		n = send(ans->sock->peer, ans->buf, ans->len, MSG_DONTWAIT | MSG_NOSIGNAL);
	ans->len = 0;
	return n < 0 ? -ENOBUFS : 0;
}

static struct nlmsghdr *message_begin(struct nl_answer *ans, uint16_t type, uint16_t flags)
{
	struct nlmsghdr *msg;

	if (ans->len + MESSAGE_MAX > DATAGRAM_MAX && answer_flush(ans))
		return NULL;
	msg = (struct nlmsghdr *)(ans->buf + ans->len);
	memset(msg, 0, sizeof(*msg));
	msg->nlmsg_len = NLMSG_HDRLEN;
	msg->nlmsg_type = type;
	msg->nlmsg_flags = flags;
	msg->nlmsg_seq = ans->request->nlmsg_seq;
	msg->nlmsg_pid = ans->sock->portid;
	return msg;
}

static void message_end(struct nl_answer *ans, const struct nlmsghdr *msg)
{
	ans->len += NLMSG_ALIGN(msg->nlmsg_len);
}

/* Attributes are few and short: MESSAGE_MAX holds them all. */
static struct nlattr *put(struct nlmsghdr *msg, uint16_t type, const void *data, size_t len)
{
	struct nlattr *attr = (struct nlattr *)((char *)msg + NLMSG_ALIGN(msg->nlmsg_len));
	size_t padded = NLA_ALIGN(NLA_HDRLEN + len);

	memset(attr, 0, padded);
	attr->nla_type = type;
	attr->nla_len = NLA_HDRLEN + len;
	if (len)
		memcpy((char *)attr + NLA_HDRLEN, data, len);
	msg->nlmsg_len = NLMSG_ALIGN(msg->nlmsg_len) + padded;
	return attr;
}

static void put_u8(struct nlmsghdr *msg, uint16_t type, uint8_t value)
{
	put(msg, type, &value, sizeof(value));
}

static void put_u32(struct nlmsghdr *msg, uint16_t type, uint32_t value)
{
	put(msg, type, &value, sizeof(value));
}

static void put_u64(struct nlmsghdr *msg, uint16_t type, uint64_t value)
{
	put(msg, type, &value, sizeof(value));
}

static void put_text(struct nlmsghdr *msg, uint16_t type, const char *text)
{
	put(msg, type, text, strlen(text) + 1);
}

static struct nlattr *nest_begin(struct nlmsghdr *msg, uint16_t type)
{
	return put(msg, type | NLA_F_NESTED, NULL, 0);
}

static void nest_end(struct nlmsghdr *msg, struct nlattr *nest)
{
	nest->nla_len = (char *)msg + msg->nlmsg_len - (char *)nest;
}

static int answer_error(struct nl_answer *ans, int err)
{
	struct nlmsghdr *msg = message_begin(ans, NLMSG_ERROR, 0);
	struct nlmsgerr error = { .error = err, .msg = *ans->request };

	if (!msg)
		return -ENOBUFS;
	memcpy(NLMSG_DATA(msg), &error, sizeof(error));
	msg->nlmsg_len = NLMSG_LENGTH(sizeof(error));
	/* the request's own header is all of it that comes back */
	msg->nlmsg_flags = NLM_F_CAPPED;
	message_end(ans, msg);
	return 0;
}

static int answer_done(struct nl_answer *ans)
{
	struct nlmsghdr *msg = message_begin(ans, NLMSG_DONE, NLM_F_MULTI);

	if (!msg)
		return -ENOBUFS;
	memset(NLMSG_DATA(msg), 0, sizeof(int));
	msg->nlmsg_len = NLMSG_LENGTH(sizeof(int));
	message_end(ans, msg);
	return 0;
}

/* ------------------------------------------------------------------ contents */

static void put_device_id(struct nlmsghdr *msg, const struct host_dev *dev)
{
	put_u32(msg, RDMA_NLDEV_ATTR_DEV_INDEX, dev->index);
	put_text(msg, RDMA_NLDEV_ATTR_DEV_NAME, dev->name);
}

static void fill_device(struct nlmsghdr *msg, struct host_dev *dev)
{
	bool roce = dev->mode == HOST_ROCE;

	put_device_id(msg, dev);
	put_u32(msg, RDMA_NLDEV_ATTR_PORT_INDEX, 1); /* how many there are */
	put_u64(msg, RDMA_NLDEV_ATTR_CAP_FLAGS, 1 << 21);
	put_text(msg, RDMA_NLDEV_ATTR_FW_VERSION, "");
	put_u64(msg, RDMA_NLDEV_ATTR_NODE_GUID, be64toh(dev->node_guid));
	put_u64(msg, RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, be64toh(dev->node_guid));
	put_u8(msg, RDMA_NLDEV_ATTR_DEV_NODE_TYPE, roce ? 1 : 4);
	put_u8(msg, RDMA_NLDEV_ATTR_DEV_DIM, 0);
	put_text(msg, RDMA_NLDEV_ATTR_DEV_PROTOCOL, roce ? "roce" : "iw");
}

static void fill_port(struct nlmsghdr *msg, struct host_dev *dev)
{
	struct device_link link;

	device_link(dev, &link);
	put_device_id(msg, dev);
	put_u32(msg, RDMA_NLDEV_ATTR_PORT_INDEX, 1);
	/* subnet prefix, LIDs and capabilities exist on InfiniBand links only */
	put_u8(msg, RDMA_NLDEV_ATTR_PORT_STATE, link.up ? 4 : 1);
	put_u8(msg, RDMA_NLDEV_ATTR_PORT_PHYS_STATE, link.up ? 5 : 3);
	put_u32(msg, RDMA_NLDEV_ATTR_NDEV_INDEX, dev->ifindex);
	put_text(msg, RDMA_NLDEV_ATTR_NDEV_NAME, dev->ifname);
}

static void put_summary(struct nlmsghdr *msg, const char *name, uint64_t count)
{
	struct nlattr *entry = nest_begin(msg, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY);

	put_text(msg, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, name);
	put_u64(msg, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, count);
	nest_end(msg, entry);
}

static void fill_resources(struct nlmsghdr *msg, struct host_dev *dev)
{
	struct uverbs_summary sum;
	struct nlattr *table;

	uverbs_summary(dev, &sum);
	put_device_id(msg, dev);
	table = nest_begin(msg, RDMA_NLDEV_ATTR_RES_SUMMARY);
	put_summary(msg, "pd", sum.pd);
	put_summary(msg, "cq", sum.cq);
	put_summary(msg, "qp", sum.qp);
	put_summary(msg, "mr", sum.mr);
	put_summary(msg, "ctx", sum.ctx);
	nest_end(msg, table);
}

/* ------------------------------------------------------------------ requests */

typedef void (*fill_function)(struct nlmsghdr *msg, struct host_dev *dev);

/* Top-level attributes of a request; only those we use are kept. */
struct nl_request {
	const void *attr[TOP_ATTRS];
	uint16_t len[TOP_ATTRS];
};

static int parse(const struct nlmsghdr *msg, struct nl_request *req)
{
	const char *at = NLMSG_DATA(msg);
	size_t left = msg->nlmsg_len - NLMSG_HDRLEN;

	memset(req, 0, sizeof(*req));
	while (left >= NLA_HDRLEN) {
		const struct nlattr *attr = (const struct nlattr *)at;
		uint16_t type = attr->nla_type & NLA_TYPE_MASK;
		size_t padded = NLA_ALIGN(attr->nla_len);

		if (attr->nla_len < NLA_HDRLEN || attr->nla_len > left)
			return -EINVAL;
		if (type < TOP_ATTRS) {
			req->attr[type] = at + NLA_HDRLEN;
			req->len[type] = attr->nla_len - NLA_HDRLEN;
		}
		if (padded >= left)
			break;
		at += padded;
		left -= padded;
	}
	return 0;
}

/* 0, -EINVAL (not given or malformed). */
static int get_u32(const struct nl_request *req, uint16_t type, uint32_t *value)
{
	if (!req->attr[type] || req->len[type] < sizeof(*value))
		return -EINVAL;
	memcpy(value, req->attr[type], sizeof(*value));
	return 0;
}

static bool is_text(const struct nl_request *req, uint16_t type, const char *text)
{
	return req->attr[type] && strnlen(req->attr[type], req->len[type]) == strlen(text) &&
	       !memcmp(req->attr[type], text, strlen(text));
}

static int get_device(const struct nl_request *req, struct host_dev **dev)
{
	uint32_t index;

	if (get_u32(req, RDMA_NLDEV_ATTR_DEV_INDEX, &index))
		return -EINVAL;
	*dev = index <= INT32_MAX ? host_dev_get(index) : NULL;
	return *dev ? 0 : -EINVAL;
}

static int answer_one(struct nl_answer *ans, struct host_dev *dev, fill_function fill,
		      uint16_t flags)
{
	struct nlmsghdr *msg = message_begin(ans, ans->request->nlmsg_type, flags);

	if (!msg)
		return -ENOBUFS;
	fill(msg, dev);
	message_end(ans, msg);
	return 0;
}

/* GET, PORT_GET and RES_GET are made alike: one device, or a dump. */
static int do_get(struct nl_answer *ans, const struct nl_request *req, bool dump,
		  fill_function fill, bool by_port)
{
	struct host_dev *dev = NULL;
	uint32_t port;
	int i, ret;

	if (!dump) {
		ret = get_device(req, &dev);
		if (ret)
			return ret;
		if (by_port && (get_u32(req, RDMA_NLDEV_ATTR_PORT_INDEX, &port) || port != 1))
			return -EINVAL;
		return answer_one(ans, dev, fill, 0);
	}
	/* ports are dumped for one device */
	if (by_port) {
		ret = get_device(req, &dev);
		if (ret)
			return ret;
	}
	for (i = 0; i < host_dev_count(); i++) {
		if (dev && dev != host_dev_get(i))
			continue;
		ret = answer_one(ans, host_dev_get(i), fill, NLM_F_MULTI);
		if (ret)
			return ret;
	}
	return answer_done(ans);
}

/* The kernel's 64-bit form of a device number. */
static uint64_t encode_dev(dev_t rdev)
{
	uint64_t ma = major(rdev), mi = minor(rdev);

	return (mi & 0xff) | ma << 8 | (mi & ~0xffull) << 12;
}

static int do_get_chardev(struct nl_answer *ans, const struct nl_request *req)
{
	struct host_dev *dev = NULL;
	struct nlmsghdr *msg;
	char name[32];
	int ret;

	if (!req->attr[RDMA_NLDEV_ATTR_CHARDEV_TYPE])
		return -EINVAL;
	if (req->attr[RDMA_NLDEV_ATTR_DEV_INDEX]) {
		ret = get_device(req, &dev);
		if (ret)
			return ret;
	}
	if (is_text(req, RDMA_NLDEV_ATTR_CHARDEV_TYPE, "uverbs") && dev) {
		snprintf(name, sizeof(name), "uverbs%d", dev->index);
	} else if (is_text(req, RDMA_NLDEV_ATTR_CHARDEV_TYPE, "rdma_cm") && !dev) {
		strcpy(name, "rdma_cm");
	} else {
		return -ENODEV;
	}
	msg = message_begin(ans, ans->request->nlmsg_type, 0);
	if (!msg)
		return -ENOBUFS;
	put_text(msg, RDMA_NLDEV_ATTR_CHARDEV_NAME, name);
	put_u64(msg, RDMA_NLDEV_ATTR_CHARDEV_ABI, dev ? DEVICE_DRIVER_ABI : DEVICE_CM_ABI);
	put_u64(msg, RDMA_NLDEV_ATTR_CHARDEV,
		encode_dev(dev ? device_uverbs_rdev(dev) : device_cm_rdev()));
	if (dev)
		put_u32(msg, RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, DEVICE_DRIVER_ID);
	message_end(ans, msg);
	return 0;
}

static int do_sys_get(struct nl_answer *ans)
{
	struct nlmsghdr *msg = message_begin(ans, ans->request->nlmsg_type, 0);

	if (!msg)
		return -ENOBUFS;
	put_u8(msg, RDMA_NLDEV_SYS_ATTR_NETNS_MODE, NETNS_SHARED);
	/* nothing is pinned here, so a fork copies everything */
	put_u8(msg, RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, 1);
	message_end(ans, msg);
	return 0;
}

static int serve(struct nl_answer *ans)
{
	const struct nlmsghdr *msg = ans->request;
	bool dump = (msg->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
	struct nl_request req;
	int ret;

	if (RDMA_NL_GET_CLIENT(msg->nlmsg_type) != RDMA_NL_NLDEV)
		return -EINVAL;
	ret = parse(msg, &req);
	if (ret)
		return ret;
	switch (RDMA_NL_GET_OP(msg->nlmsg_type)) {
	case RDMA_NLDEV_CMD_GET:
		return do_get(ans, &req, dump, fill_device, false);
	case RDMA_NLDEV_CMD_PORT_GET:
		return do_get(ans, &req, dump, fill_port, true);
	case RDMA_NLDEV_CMD_RES_GET:
		return do_get(ans, &req, dump, fill_resources, false);
	case RDMA_NLDEV_CMD_GET_CHARDEV:
		return do_get_chardev(ans, &req);
	case RDMA_NLDEV_CMD_SYS_GET:
		return do_sys_get(ans);
	default:
		return -EINVAL;
	}
}

static void serve_all(struct nl_answer *ans, const unsigned char *buf, size_t len)
{
	while (len >= NLMSG_HDRLEN) {
		const struct nlmsghdr *msg = (const struct nlmsghdr *)buf;
		size_t padded = NLMSG_ALIGN(msg->nlmsg_len);
		int ret;

		if (msg->nlmsg_len < NLMSG_HDRLEN || msg->nlmsg_len > len)
			break;
		ans->request = msg;
		if ((msg->nlmsg_flags & NLM_F_REQUEST) && msg->nlmsg_type >= NLMSG_MIN_TYPE) {
			ret = serve(ans);
			if (ret || ((msg->nlmsg_flags & NLM_F_ACK) &&
				    (msg->nlmsg_flags & NLM_F_DUMP) != NLM_F_DUMP))
				answer_error(ans, ret);
		}
		if (padded >= len)
			break;
		buf += padded;
		len -= padded;
	}
	answer_flush(ans);
}

/* ------------------------------------------------------------------ the socket */

static void nl_release(struct host_file *file)
{
	struct nl_socket *sock = (struct nl_socket *)file;

	host_fd_unhide_close(sock->peer);
	pthread_mutex_destroy(&sock->lock);
	free(sock);
}

static const struct host_file_ops nl_ops = {
	.name = "netlink",
	.release = nl_release,
};

bool netlink_is(const struct host_file *file)
{
	return file->ops == &nl_ops;
}

static struct nl_socket *nl_get(int fd)
{
	struct host_file *file = host_file_get(fd);

	if (file && !netlink_is(file)) {
		host_file_put(file);
		file = NULL;
	}
	return (struct nl_socket *)file;
}

static uint32_t next_portid(void)
{
	static uint32_t sequence;

	/* the kernel, too, starts with the process id */
	return getpid() + (__atomic_fetch_add(&sequence, 1, __ATOMIC_RELAXED) << 22);
}

int netlink_open(int type)
{
	struct nl_socket *sock;
	int ends[2], ret;

	if (!host_settings()->netlink) {
		errno = EPROTONOSUPPORT;
		return -1;
	}
	if ((type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK)) != SOCK_RAW &&
	    (type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK)) != SOCK_DGRAM) {
		errno = ESOCKTNOSUPPORT;
		return -1;
	}
	sock = calloc(1, sizeof(*sock));
	if (!sock)
		return -1;
	if (REAL(socketpair)(AF_UNIX, SOCK_SEQPACKET | (type & (SOCK_CLOEXEC | SOCK_NONBLOCK)), 0,
			     ends)) {
		free(sock);
		return -1;
	}
	sock->file.ops = &nl_ops;
	sock->portid = next_portid();
	pthread_mutex_init(&sock->lock, NULL);
	sock->peer = host_fd_hide(ends[1]);
	if (sock->peer < 0) {
		REAL(close)(ends[0]);
		errno = -sock->peer;
		free(sock);
		return -1;
	}
	ret = host_file_install(&sock->file, ends[0]);
	if (ret) {
		nl_release(&sock->file);
		errno = -ret;
		return -1;
	}
	return ends[0];
}

ssize_t netlink_send(int fd, const void *buf, size_t len, int flags)
{
	int saved_errno = errno;
	struct nl_answer ans = { 0 };
	struct nl_socket *sock;
	unsigned char *copy;

	(void)flags;
	if (len > REQUEST_MAX) {
		errno = EMSGSIZE;
		return -1;
	}
	sock = nl_get(fd);
	if (!sock) {
		errno = EIO;
		return -1;
	}
	/* aligned, with room for the answers behind */
	copy = malloc(NLMSG_ALIGN(len) + DATAGRAM_MAX);
	if (!copy) {
		host_file_put(&sock->file);
		return -1;
	}
	memcpy(copy, buf, len);
	ans.sock = sock;
	ans.buf = copy + NLMSG_ALIGN(len);
	pthread_mutex_lock(&sock->lock);
	serve_all(&ans, copy, len);
	pthread_mutex_unlock(&sock->lock);
	free(copy);
	host_file_put(&sock->file);
	errno = saved_errno;
	return len;
}

/* ------------------------------------------------------------------ interposed calls */

INTERPOSE int socket(int domain, int type, int protocol)
{
	if (domain == AF_NETLINK && protocol == NETLINK_RDMA)
		return netlink_open(type);
	return REAL(socket)(domain, type, protocol);
}

/* Is @fd one of these sockets? */
static bool ours(int fd)
{
	struct host_file *file = fdtab_peek(fd);
	bool is;

	/* connections of this library itself come by here too: no more than this for them */
	if (!file || !netlink_is(file))
		return false;
	file = host_file_get(fd);
	if (!file)
		return false;
	is = netlink_is(file);
	host_file_put(file);
	return is;
}

INTERPOSE int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	const struct sockaddr_nl *nl = (const struct sockaddr_nl *)addr;
	struct nl_socket *sock;

	if (!ours(fd))
		return REAL(bind)(fd, addr, len);
	if (len < sizeof(*nl) || nl->nl_family != AF_NETLINK) {
		errno = EINVAL;
		return -1;
	}
	sock = nl_get(fd);
	if (sock) {
		if (nl->nl_pid)
			sock->portid = nl->nl_pid;
		host_file_put(&sock->file);
	}
	return 0;
}

INTERPOSE int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	return ours(fd) ? 0 : REAL(connect)(fd, addr, len);
}

static void name_out(uint32_t portid, struct sockaddr *addr, socklen_t *len)
{
	struct sockaddr_nl nl = { .nl_family = AF_NETLINK, .nl_pid = portid };

	if (!addr || !len)
		return;
	memcpy(addr, &nl, *len < sizeof(nl) ? *len : sizeof(nl));
	*len = sizeof(nl);
}

INTERPOSE int getsockname(int fd, struct sockaddr *restrict addr, socklen_t *restrict len)
{
	struct nl_socket *sock;

	if (!ours(fd))
		return REAL(getsockname)(fd, addr, len);
	sock = nl_get(fd);
	if (sock) {
		name_out(sock->portid, addr, len);
		host_file_put(&sock->file);
	}
	return 0;
}

INTERPOSE int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	/* acknowledgement and strictness options: nothing here depends on them */
	if (level == SOL_NETLINK && ours(fd))
		return 0;
	return REAL(setsockopt)(fd, level, name, value, len);
}

INTERPOSE ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	return ours(fd) ? netlink_send(fd, buf, len, flags) : REAL(send)(fd, buf, len, flags);
}

INTERPOSE ssize_t sendto(int fd, const void *buf, size_t len, int flags,
			 const struct sockaddr *addr, socklen_t alen)
{
	return ours(fd) ? netlink_send(fd, buf, len, flags) :
			  REAL(sendto)(fd, buf, len, flags, addr, alen);
}

static ssize_t send_pieces(int fd, const struct msghdr *msg, int flags)
{
	size_t len = 0, at = 0, i;
	unsigned char *all;
	ssize_t n;

	for (i = 0; i < msg->msg_iovlen; i++)
		len += msg->msg_iov[i].iov_len;
	if (len > REQUEST_MAX) {
		errno = EMSGSIZE;
		return -1;
	}
	all = malloc(len + 1);
	if (!all)
		return -1;
	for (i = 0; i < msg->msg_iovlen; i++) {
		memcpy(all + at, msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len);
		at += msg->msg_iov[i].iov_len;
	}
	n = netlink_send(fd, all, len, flags);
	free(all);
	return n;
}

INTERPOSE ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	return ours(fd) ? send_pieces(fd, msg, flags) : REAL(sendmsg)(fd, msg, flags);
}

INTERPOSE ssize_t recvfrom(int fd, void *restrict buf, size_t len, int flags,
			   struct sockaddr *restrict addr, socklen_t *restrict alen)
{
	ssize_t n;

	if (!ours(fd))
		return REAL(recvfrom)(fd, buf, len, flags, addr, alen);
	n = REAL(recv)(fd, buf, len, flags);
	if (n >= 0)
		name_out(0, addr, alen); /* from the kernel */
	return n;
}

INTERPOSE ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct msghdr bare;
	ssize_t n;

	if (!ours(fd))
		return REAL(recvmsg)(fd, msg, flags);
	bare = *msg;
	bare.msg_name = NULL;
	bare.msg_namelen = 0;
	n = REAL(recvmsg)(fd, &bare, flags);
	if (n < 0)
		return n;
	msg->msg_flags = bare.msg_flags;
	msg->msg_controllen = bare.msg_controllen;
	if (msg->msg_name)
		name_out(0, msg->msg_name, &msg->msg_namelen);
	return n;
}
