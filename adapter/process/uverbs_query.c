// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* What the device, its port and its GIDs are. */
#include <errno.h>
#include <string.h>
#include <infiniband/verbs.h>
#include "adapter/process/device.h"
#include "adapter/process/uverbs_internal.h"

enum {
	CAP_MEM_MGT_EXTENSIONS = 1 << 21,
	PAGE_SIZE_CAP = 0x7ffff000,
	PORT_CAP_CM = 1 << 16,
	PORT_CAP_DEVICE_MGMT = 1 << 19,
	PORT_CAP_IP_BASED_GIDS = 1 << 26,
	PORT_FLAG_GRH_REQUIRED = 1,
	PHYS_LINK_UP = 5,
	PHYS_DISABLED = 3,
	MAX_AH = 8192,
	SPEED_EX_AT = 2, /* of query_port's reserved bytes: u32 active_speed_ex of newer kernels */
};

#define MAX_MR_SIZE (1ull << 46)

uint32_t uverbs_port_caps(const struct host_dev *dev)
{
	return PORT_CAP_CM | PORT_CAP_DEVICE_MGMT |
	       (dev->mode == HOST_ROCE ? PORT_CAP_IP_BASED_GIDS : 0);
}

void uv_query_device(struct host_dev *dev, struct ib_uverbs_query_device_resp *resp)
{
	bool roce = dev->mode == HOST_ROCE;

	*resp = (struct ib_uverbs_query_device_resp){
		.fw_ver = (uint64_t)DEVICE_FW_MAJOR << 32 | DEVICE_FW_MINOR << 16 | DEVICE_FW_SUB,
		.node_guid = dev->node_guid,
		.sys_image_guid = dev->node_guid,
		.max_mr_size = MAX_MR_SIZE,
		.page_size_cap = PAGE_SIZE_CAP,
		.vendor_id = DEVICE_VENDOR,
		.vendor_part_id = DEVICE_PART,
		.hw_ver = DEVICE_PCI_REVISION,
		.max_qp = dev->max_qp - 1,
		.max_qp_wr = EA_MAX_SEND_WR,
		.device_cap_flags = CAP_MEM_MGT_EXTENSIONS,
		.max_sge = EA_MAX_RECV_SGE, /* the smaller of both queues' */
		.max_sge_rd = 1,
		.max_cq = dev->max_cq - 1,
		.max_cqe = 1u << DEVICE_MAX_CQE_SHIFT,
		.max_mr = dev->max_mr,
		.max_pd = DEVICE_MAX_PD,
		.max_qp_rd_atom = EA_MAX_IRD,
		.max_res_rd_atom = EA_MAX_IRD * dev->max_qp,
		.max_qp_init_rd_atom = EA_MAX_ORD,
		.atomic_cap = IBV_ATOMIC_GLOB,
		.max_mw = 1,
		.max_ah = roce ? MAX_AH : 0,
		.max_pkeys = roce,
		.phys_port_cnt = 1,
	};
}

void uv_query_device_ex(struct host_dev *dev, struct ib_uverbs_ex_query_device_resp *resp)
{
	memset(resp, 0, sizeof(*resp));
	uv_query_device(dev, &resp->base);
	resp->device_cap_flags_ex = resp->base.device_cap_flags;
}

int uv_query_port(struct host_dev *dev, uint64_t port, struct ib_uverbs_query_port_resp_ex *resp)
{
	bool roce = dev->mode == HOST_ROCE;
	struct device_link link;
	uint32_t speed;

	if (port != 1)
		return -EINVAL;
	device_link(dev, &link);
	memset(resp, 0, sizeof(*resp));
	resp->legacy_resp = (struct ib_uverbs_query_port_resp){
		.port_cap_flags = uverbs_port_caps(dev),
		.max_msg_sz = UINT32_MAX,
		.gid_tbl_len = device_gid_count(dev),
		.pkey_tbl_len = roce,
		.state = link.up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
		.max_mtu = link.ib_mtu,
		.active_mtu = link.ib_mtu,
		.active_width = link.active_width,
		.active_speed = link.active_speed,
		.phys_state = link.up ? PHYS_LINK_UP : PHYS_DISABLED,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
		.flags = roce ? PORT_FLAG_GRH_REQUIRED : 0,
	};
	speed = link.active_speed;
	memcpy(resp->reserved + SPEED_EX_AT, &speed, sizeof(speed));
	return 0;
}

int uv_query_gid(struct host_dev *dev, uint64_t port, uint64_t index,
		 struct ib_uverbs_gid_entry *entry)
{
	int ret;

	if (port != 1 || index > UINT32_MAX)
		return -EINVAL;
	memset(entry, 0, sizeof(*entry));
	ret = host_dev_gid(dev, index, (uint8_t *)entry->gid);
	if (ret)
		return ret;
	entry->gid_index = index;
	entry->port_num = port;
	entry->gid_type = dev->mode == HOST_ROCE ? IB_UVERBS_GID_TYPE_ROCE_V2 :
						   IB_UVERBS_GID_TYPE_IB;
	entry->netdev_ifindex = device_gid_ifindex(dev, index);
	return 0;
}
