// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Commands that create, address and query ids. */
#include <errno.h>
#include <string.h>
#include "adapter/process/cm/cm.h"
#include "adapter/process/uaccess.h"

enum {
	FAMILY_IB = 27, /* AF_IB */
	QPT_RC = 2,
	QPT_UD = 4,
	SOCKADDR_IB_LEN = 48,
	TOS_LEN = 1,
	INT_LEN = 4,
	PORT = 1,
};

/* struct sockaddr_ib of the kernel */
struct sockaddr_ib_wire {
	uint16_t family;
	__be16 pkey;
	__be32 flowinfo;
	uint8_t gid[16];
	__be64 sid, sid_mask;
	uint64_t scope;
};

static size_t addr_size(uint16_t family)
{
	switch (family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	case FAMILY_IB:
		return SOCKADDR_IB_LEN;
	default:
		return 0;
	}
}

int ucma_id(struct ucma_file *file, uint32_t number, struct cm_id **id)
{
	*id = cm_id_find(number);
	if (!*id || (*id)->unseen)
		return -ENOENT;
	return (*id)->file == file ? 0 : -EINVAL;
}

int ucma_id_dev(struct ucma_file *file, uint32_t number, struct cm_id **id)
{
	int ret = ucma_id(file, number, id);

	return ret ? ret : (*id)->dev ? 0 : -EINVAL;
}

/* ------------------------------------------------------------------ create, destroy */

int ucma_create_id(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	const struct rdma_ucm_create_id *cmd = in;
	struct rdma_ucm_create_id_resp resp;
	struct cm_id *id;
	uint8_t qp_type;
	int ret;

	(void)in_len;
	if (out_len < sizeof(resp))
		return -ENOSPC;
	switch (cmd->ps) {
	case RDMA_PS_TCP:
		qp_type = QPT_RC;
		break;
	case RDMA_PS_UDP:
	case RDMA_PS_IPOIB:
		qp_type = QPT_UD;
		break;
	case RDMA_PS_IB:
		qp_type = cmd->qp_type;
		break;
	default:
		return -EINVAL;
	}
	engine_lock();
	id = cm_id_create(file);
	if (id) {
		id->uid = cmd->uid;
		id->ps = cmd->ps;
		id->qp_type = qp_type;
		resp.id = id->number;
	}
	engine_unlock();
	if (!id)
		return -ENOMEM;
	ret = uaccess_write(cmd->response, &resp, sizeof(resp));
	if (ret) {
		engine_lock();
		cm_id_destroy(id);
		engine_unlock();
	}
	return ret;
}

int ucma_destroy_id(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	const struct rdma_ucm_destroy_id *cmd = in;
	struct rdma_ucm_destroy_id_resp resp = {};
	struct cm_id *id;
	int ret;

	(void)in_len;
	if (out_len < sizeof(resp))
		return -ENOSPC;
	engine_lock();
	ret = ucma_id(file, cmd->id, &id);
	if (!ret) {
		resp.events_reported = id->fetched;
		cm_id_destroy(id);
	}
	engine_unlock();
	return ret ? ret : uaccess_write(cmd->response, &resp, sizeof(resp));
}

/* ------------------------------------------------------------------ bind */

static bool ib_any(const union cm_addr *addr)
{
	static const uint8_t zero[16];

	return !memcmp(((const struct sockaddr_ib_wire *)addr)->gid, zero, sizeof(zero));
}

/* Lock not held: asks for devices. */
static int find_device(const union cm_addr *addr, struct host_dev **dev)
{
	*dev = NULL;
	if (addr->sa.sa_family == FAMILY_IB)
		return ib_any(addr) ? 0 : -ENODEV;
	if (cm_addr_any(addr))
		return 0;
	*dev = host_dev_by_addr(&addr->sa);
	return *dev ? 0 : -ENODEV;
}

/* Lock held. */
static int bind_id(struct cm_id *id, const union cm_addr *addr, struct host_dev *dev)
{
	int ret = 0;

	if (id->state != CM_IDLE)
		return -EINVAL;
	id->src = *addr;
	if (addr->sa.sa_family != FAMILY_IB)
		ret = cm_bind(id);
	if (ret) {
		memset(&id->src, 0, sizeof(id->src));
		return ret;
	}
	id->dev = dev;
	id->state = CM_BOUND;
	return 0;
}

static int bind_command(struct ucma_file *file, uint32_t number, const void *raw)
{
	union cm_addr addr = {};
	struct host_dev *dev;
	struct cm_id *id;
	int ret, dev_ret;

	memcpy(&addr.sa.sa_family, raw, sizeof(addr.sa.sa_family));
	memcpy(&addr, raw, addr_size(addr.sa.sa_family));
	dev_ret = find_device(&addr, &dev);
	engine_lock();
	ret = ucma_id(file, number, &id);
	if (!ret && id->state != CM_IDLE)
		ret = -EINVAL;
	if (!ret)
		ret = dev_ret;
	if (!ret)
		ret = bind_id(id, &addr, dev);
	engine_unlock();
	return ret;
}

int ucma_bind_ip(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	const struct rdma_ucm_bind_ip *cmd = in;

	(void)in_len, (void)out_len;
	if (cmd->addr.sin6_family != AF_INET && cmd->addr.sin6_family != AF_INET6)
		return -EINVAL;
	return bind_command(file, cmd->id, &cmd->addr);
}

int ucma_bind(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	const struct rdma_ucm_bind *cmd = in;

	(void)in_len, (void)out_len;
	if (cmd->reserved || !cmd->addr_size || cmd->addr_size != addr_size(cmd->addr.ss_family))
		return -EINVAL;
	return bind_command(file, cmd->id, &cmd->addr);
}

/* ------------------------------------------------------------------ resolve */

/*
 * The source is what the id is bound to, what the program names, or what the kernel's routes say.
 * A wildcard source takes the last, too.
 */
static int resolve(struct ucma_file *file, uint32_t number, const void *raw_src,
		   const void *raw_dst)
{
	union cm_addr src = {}, dst = {}, routed;
	struct host_dev *dev = NULL;
	struct cm_id *id;
	bool bound;
	int ret;

	memcpy(&dst.sa.sa_family, raw_dst, sizeof(dst.sa.sa_family));
	memcpy(&dst, raw_dst, addr_size(dst.sa.sa_family));
	memcpy(&src.sa.sa_family, raw_src, sizeof(src.sa.sa_family));
	memcpy(&src, raw_src, addr_size(src.sa.sa_family));
	if (dst.sa.sa_family == FAMILY_IB || src.sa.sa_family == FAMILY_IB)
		return -ENODEV;

	engine_lock();
	ret = ucma_id(file, number, &id);
	if (!ret && id->state != CM_IDLE && id->state != CM_BOUND)
		ret = -EINVAL;
	if (!ret && id->state == CM_BOUND)
		src = id->src;
	engine_unlock();
	if (ret)
		return ret;
	if (src.sa.sa_family && src.sa.sa_family != dst.sa.sa_family)
		return -EINVAL;
	ret = cm_addr_source(&dst, &routed);
	if (ret)
		return ret;
	if (src.sa.sa_family && !cm_addr_any(&src)) {
		cm_addr_set_port(&routed, 0);
		if (cm_addr_len(&src))
			routed = src;
	} else if (src.sa.sa_family) {
		cm_addr_set_port(&routed, cm_addr_port(&src));
	}
	dev = host_dev_by_addr(&routed.sa);

	engine_lock();
	ret = ucma_id(file, number, &id);
	if (!ret && id->state != CM_IDLE && id->state != CM_BOUND)
		ret = -EINVAL;
	if (ret)
		goto out;
	bound = id->state == CM_BOUND;
	/* the program has named a source: it is taken now, and an error is seen now */
	if (!bound && src.sa.sa_family && (cm_addr_port(&src) || !cm_addr_any(&src))) {
		ret = bind_id(id, &routed, dev);
		if (ret)
			goto out;
	}
	id->dst = dst;
	if (!dev) {
		host_log(HOST_LOG_INFO, "no device serves local address %s", cm_addr_text(&routed));
		cm_id_event(id, CM_ADDR_ERROR, -ENODEV);
		goto out;
	}
	id->src = routed;
	id->dev = dev;
	id->state = CM_ADDR_DONE;
	cm_id_event(id, CM_ADDR_RESOLVED, 0);
out:
	engine_unlock();
	return ret;
}

int ucma_resolve_ip(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	const struct rdma_ucm_resolve_ip *cmd = in;
	uint16_t src = cmd->src_addr.sin6_family, dst = cmd->dst_addr.sin6_family;

	(void)in_len, (void)out_len;
	if ((src && src != AF_INET && src != AF_INET6) || (dst != AF_INET && dst != AF_INET6))
		return -EINVAL;
	return resolve(file, cmd->id, &cmd->src_addr, &cmd->dst_addr);
}

int ucma_resolve_addr(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	const struct rdma_ucm_resolve_addr *cmd = in;
	static const uint16_t none;

	(void)in_len, (void)out_len;
	if (cmd->reserved ||
	    (cmd->src_size && cmd->src_size != addr_size(cmd->src_addr.ss_family)) ||
	    !cmd->dst_size || cmd->dst_size != addr_size(cmd->dst_addr.ss_family))
		return -EINVAL;
	return resolve(file, cmd->id, cmd->src_size ? (const void *)&cmd->src_addr : &none,
		       &cmd->dst_addr);
}

int ucma_resolve_route(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	const struct rdma_ucm_resolve_route *cmd = in;
	struct cm_id *id;
	int ret;

	(void)in_len, (void)out_len;
	engine_lock();
	ret = ucma_id_dev(file, cmd->id, &id);
	if (!ret && (!cmd->timeout_ms || id->state != CM_ADDR_DONE))
		ret = -EINVAL;
	if (!ret) {
		id->state = CM_ROUTE_DONE;
		cm_id_event(id, CM_ROUTE_RESOLVED, 0);
	}
	engine_unlock();
	return ret;
}

/* ------------------------------------------------------------------ query */

static void fill_sockaddr(void *to, size_t size, const union cm_addr *addr)
{
	size_t len = addr_size(addr->sa.sa_family);

	if (len <= size)
		memcpy(to, addr, len);
}

int ucma_query_route(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	const struct rdma_ucm_query *cmd = in;
	struct rdma_ucm_query_route_resp resp = {};
	struct cm_id *id;
	int ret;

	(void)in_len;
	if (out_len < offsetof(struct rdma_ucm_query_route_resp, ibdev_index))
		return -ENOSPC;
	engine_lock();
	ret = ucma_id(file, cmd->id, &id);
	if (!ret) {
		fill_sockaddr(&resp.src_addr, sizeof(resp.src_addr), &id->src);
		fill_sockaddr(&resp.dst_addr, sizeof(resp.dst_addr), &id->dst);
		if (id->dev) {
			resp.node_guid = id->dev->node_guid;
			resp.port_num = PORT;
			resp.ibdev_index = (uint32_t)id->dev->index;
			host_dev_gid(id->dev, 0, resp.ib_route[0].sgid);
			host_dev_gid(id->dev, 0, resp.ib_route[0].dgid);
		}
	}
	engine_unlock();
	if (ret)
		return ret;
	return uaccess_write(cmd->response, &resp, out_len < sizeof(resp) ? out_len : sizeof(resp));
}

static void query_device(const struct cm_id *id, struct rdma_ucm_query_addr_resp *resp)
{
	if (!id->dev)
		return;
	resp->node_guid = id->dev->node_guid;
	resp->port_num = PORT;
	resp->ibdev_index = (uint32_t)id->dev->index;
}

static void query_addr(const struct cm_id *id, struct rdma_ucm_query_addr_resp *resp)
{
	resp->src_size = (uint16_t)addr_size(id->src.sa.sa_family);
	resp->dst_size = (uint16_t)addr_size(id->dst.sa.sa_family);
	fill_sockaddr(&resp->src_addr, sizeof(resp->src_addr), &id->src);
	fill_sockaddr(&resp->dst_addr, sizeof(resp->dst_addr), &id->dst);
	query_device(id, resp);
}

static void query_gid(const struct cm_id *id, struct rdma_ucm_query_addr_resp *resp)
{
	struct sockaddr_ib_wire src = { .family = FAMILY_IB }, dst = { .family = FAMILY_IB };

	/* the peer's hardware address is not known here; its place stays empty */
	if (id->dev)
		host_dev_gid(id->dev, 0, src.gid);
	memcpy(&resp->src_addr, &src, sizeof(src));
	memcpy(&resp->dst_addr, &dst, sizeof(dst));
	resp->src_size = SOCKADDR_IB_LEN;
	resp->dst_size = SOCKADDR_IB_LEN;
	query_device(id, resp);
}

int ucma_query(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	const struct rdma_ucm_query *cmd = in;
	struct rdma_ucm_query_path_resp path = {};
	struct rdma_ucm_query_addr_resp resp = {};
	struct cm_id *id;
	int ret;

	(void)in_len;
	engine_lock();
	ret = ucma_id(file, cmd->id, &id);
	if (!ret) {
		switch (cmd->option) {
		case RDMA_USER_CM_QUERY_ADDR:
			query_addr(id, &resp);
			break;
		case RDMA_USER_CM_QUERY_GID:
			query_gid(id, &resp);
			break;
		case RDMA_USER_CM_QUERY_PATH:
			break;
		default:
			ret = -ENOSYS;
		}
	}
	engine_unlock();
	if (ret)
		return ret;
	if (cmd->option == RDMA_USER_CM_QUERY_PATH)
		return out_len < sizeof(path) ? -ENOSPC :
						uaccess_write(cmd->response, &path, sizeof(path));
	if (out_len < offsetof(struct rdma_ucm_query_addr_resp, ibdev_index))
		return -ENOSPC;
	return uaccess_write(cmd->response, &resp, out_len < sizeof(resp) ? out_len : sizeof(resp));
}

/* ------------------------------------------------------------------ options */

static int set_id_option(struct cm_id *id, uint32_t name, const void *value, uint32_t len)
{
	uint32_t number = 0;

	switch (name) {
	case RDMA_OPTION_ID_TOS:
		if (len != TOS_LEN)
			return -EINVAL;
		id->tos = *(const uint8_t *)value;
		return 0;
	case RDMA_OPTION_ID_REUSEADDR:
		if (len != INT_LEN)
			return -EINVAL;
		memcpy(&number, value, INT_LEN);
		if (number ? id->state == CM_LISTENING : id->state != CM_IDLE)
			return -EINVAL;
		id->reuseaddr = number;
		if (id->fd >= 0) {
			int on = number ? 1 : 0;

			setsockopt(id->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		}
		return 0;
	case RDMA_OPTION_ID_AFONLY:
		if (len != INT_LEN || (id->state != CM_IDLE && id->state != CM_BOUND))
			return -EINVAL;
		memcpy(&number, value, INT_LEN);
		id->afonly = number ? 1 : 0;
		return 0;
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		/* TCP has its own timers */
		return len != TOS_LEN || id->qp_type != QPT_RC ? -EINVAL : 0;
	default:
		return -ENOSYS;
	}
}

int ucma_set_option(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	const struct rdma_ucm_set_option *cmd = in;
	uint8_t value[INT_LEN] = {};
	struct cm_id *id;
	int ret;

	(void)in_len, (void)out_len;
	ret = uaccess_read(value, cmd->optval,
			   cmd->optlen < sizeof(value) ? cmd->optlen : sizeof(value));
	engine_lock();
	if (ucma_id(file, cmd->id, &id))
		ret = ucma_id(file, cmd->id, &id);
	else if (!ret && cmd->level == RDMA_OPTION_ID)
		ret = set_id_option(id, cmd->optname, value, cmd->optlen);
	else if (!ret)
		/* path records are InfiniBand's */
		ret = cmd->level == RDMA_OPTION_IB && cmd->optname == RDMA_OPTION_IB_PATH ?
			      -EINVAL :
			      -ENOSYS;
	engine_unlock();
	return ret;
}

/* ------------------------------------------------------------------ multicast: not on iWARP */

int ucma_join_mcast(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	struct cm_id *id;
	uint32_t number;
	int ret;

	if (out_len < sizeof(struct rdma_ucm_create_id_resp))
		return -ENOSPC;
	/*
	 * both forms have response and uid in front; the id follows the address in one, uid in the
	 * other
	 */
	number = in_len >= sizeof(struct rdma_ucm_join_mcast) ?
			 ((const struct rdma_ucm_join_mcast *)in)->id :
			 ((const struct rdma_ucm_join_ip_mcast *)in)->id;
	engine_lock();
	ret = ucma_id_dev(file, number, &id);
	if (!ret)
		ret = id->qp_type == QPT_UD ? -ENOSYS : -EINVAL;
	engine_unlock();
	return ret;
}

int ucma_leave_mcast(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len)
{
	(void)file, (void)in, (void)in_len;
	/* no join ever succeeds, so no number is one */
	return out_len < sizeof(struct rdma_ucm_destroy_id_resp) ? -ENOSPC : -ENOENT;
}
