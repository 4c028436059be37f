// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What vfio-user messages mean for the function.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/pci/func.h"
#include "adapter/pci/session_internal.h"

static size_t body_len(const struct pci_session *s)
{
	return s->hdr.size - sizeof(s->hdr);
}

/* The body starts with a structure of @len bytes and has nothing else. */
static bool body_is(const struct pci_session *s, void *to, size_t len)
{
	if (body_len(s) != len)
		return false;
	memcpy(to, s->body, len);
	return true;
}

_Static_assert(PCI_MAX_MAPPED == 1536, "what version() tells the client");

static int version(struct pci_session *s)
{
	static const char caps[] = "{\"capabilities\":{\"max_msg_fds\":16,"
				   "\"max_data_xfer_size\":1048576,"
				   "\"max_dma_maps\":1536,\"pgsizes\":4096}}";
	struct vfu_version v;
	size_t len = body_len(s);

	if (s->versioned || len < sizeof(v) || len > sizeof(v) + VFU_MAX_VERSION_DATA)
		return EINVAL;
	memcpy(&v, s->body, sizeof(v));
	if (len > sizeof(v) && s->body[len - 1])
		return EINVAL;
	if (v.major != VFU_MAJOR) {
		pci_func_complain(s->func, "client speaks vfio-user %u.%u, not %d.x", v.major,
				  v.minor, VFU_MAJOR);
		return EPROTONOSUPPORT;
	}
	v.minor = VFU_MINOR;
	s->versioned = true;
	pci_session_reply(s, &v, sizeof(v), caps, sizeof(caps));
	return 0;
}

static int dma_map(struct pci_session *s)
{
	struct vfu_dma_map map;
	int err;

	if (!body_is(s, &map, sizeof(map)) || map.argsz < sizeof(map) ||
	    (map.flags & ~(VFU_MAP_READ | VFU_MAP_WRITE)) || s->nfds > 1)
		return EINVAL;
	err = pci_dma_map(&s->func->dma, map.addr, map.size, s->nfds ? s->fds[0] : -1, map.offset,
			  map.flags & VFU_MAP_READ, map.flags & VFU_MAP_WRITE);
	if (err)
		return err;
	pci_func_memory_changed(s->func);
	pci_session_reply(s, NULL, 0, NULL, 0);
	return 0;
}

static int dma_unmap(struct pci_session *s)
{
	struct vfu_dma_unmap unmap;
	int err;

	if (!body_is(s, &unmap, sizeof(unmap)) || unmap.argsz < sizeof(unmap) ||
	    (unmap.flags & ~VFU_UNMAP_ALL))
		return EINVAL;
	/* nobody keeps a pointer over the end of a window */
	pci_far_settle(s->func, false);
	if (unmap.flags & VFU_UNMAP_ALL) {
		if (unmap.addr || unmap.size)
			return EINVAL;
		pci_dma_clear(&s->func->dma);
	} else {
		err = pci_dma_unmap(&s->func->dma, unmap.addr, unmap.size);
		if (err)
			return err;
	}
	pci_func_memory_changed(s->func);
	pci_session_reply(s, &unmap, sizeof(unmap), NULL, 0);
	return 0;
}

static int device_info(struct pci_session *s)
{
	struct vfu_device_info info;

	if (!body_is(s, &info, sizeof(info)) || info.argsz < sizeof(info))
		return EINVAL;
	info = (struct vfu_device_info){
		.argsz = sizeof(info),
		.flags = VFU_DEVICE_RESETS | VFU_DEVICE_PCI,
		.num_regions = VFU_REGIONS,
		.num_irqs = VFU_IRQS,
	};
	pci_session_reply(s, &info, sizeof(info), NULL, 0);
	return 0;
}

/* BAR 0: all but the registers can be mapped. */
static void doorbell_info(struct pci_session *s, struct vfu_region_info *info, uint32_t room)
{
	static const struct vfu_sparse_cap cap = {
		.id = VFU_CAP_SPARSE_MMAP,
		.version = VFU_CAP_VERSION,
		.nr_areas = 1,
		.offset = PCI_PAGE0,
		.size = PCI_BAR0_SIZE - PCI_PAGE0,
	};
	int fd;

	info->argsz = sizeof(*info) + sizeof(cap);
	info->flags |= VFU_REGION_MMAP | VFU_REGION_CAPS;
	/* QEMU wants it in an answer without the capability, too */
	info->cap_offset = sizeof(*info);
	if (room < info->argsz) {
		/* the client will ask again with more room */
		pci_session_reply(s, info, sizeof(*info), NULL, 0);
		return;
	}
	fd = pci_db_file(s->func);
	if (fd < 0) {
		info->argsz = sizeof(*info);
		info->flags &= ~(VFU_REGION_MMAP | VFU_REGION_CAPS);
		info->cap_offset = 0;
		pci_session_reply(s, info, sizeof(*info), NULL, 0);
		return;
	}
	pci_session_reply_fd(s, info, sizeof(*info), &cap, sizeof(cap), fd);
}

static int region_info(struct pci_session *s)
{
	struct vfu_region_info info;
	uint32_t room;

	/* some clients send the structure, and some all of the buffer that the answer may fill */
	if (body_len(s) < sizeof(info))
		return EINVAL;
	memcpy(&info, s->body, sizeof(info));
	if (info.argsz < sizeof(info) || info.index >= VFU_REGIONS ||
	    (body_len(s) != sizeof(info) && body_len(s) != info.argsz))
		return EINVAL;
	room = info.argsz;
	info = (struct vfu_region_info){
		.argsz = sizeof(info),
		.index = info.index,
		.size = pci_func_region_size(info.index),
	};
	if (info.size)
		info.flags = VFU_REGION_READS | VFU_REGION_WRITES;
	if (info.index == VFU_BAR0 && s->func->may_map)
		doorbell_info(s, &info, room);
	else
		pci_session_reply(s, &info, sizeof(info), NULL, 0);
	return 0;
}

/* ------------------------------------------------------------------ interrupts */

static uint32_t irq_count(uint32_t index)
{
	switch (index) {
	case VFU_MSIX:
		return PCI_VECTORS;
	case VFU_ERR: /* never raised, but QEMU complains when it is not there */
		return 1;
	default:
		return 0;
	}
}

/*
 * No NORESIZE for MSI-X: with it QEMU takes all vectors away each time one is added, and what is raised in between
 * depends on the pending bits.
 */
static int irq_info(struct pci_session *s)
{
	struct vfu_irq_info info;

	if (!body_is(s, &info, sizeof(info)) || info.argsz < sizeof(info) || info.index >= VFU_IRQS)
		return EINVAL;
	info = (struct vfu_irq_info){
		.argsz = sizeof(info),
		.index = info.index,
		.count = irq_count(info.index),
	};
	if (info.count)
		info.flags = VFU_IRQ_EVENTFD;
	if (info.index == VFU_MSIX)
		info.flags |= VFU_IRQ_MASKABLE;
	pci_session_reply(s, &info, sizeof(info), NULL, 0);
	return 0;
}

/* The write that raises must never block, whatever descriptor it is. */
static int wire(struct pci_session *s, const struct vfu_set_irqs *set)
{
	uint32_t i;
	int flags, fd;

	if (s->nfds && s->nfds != set->count)
		return EINVAL;
	for (i = 0; i < s->nfds; i++) {
		flags = fcntl(s->fds[i], F_GETFL);
		if (flags < 0 || fcntl(s->fds[i], F_SETFL, flags | O_NONBLOCK))
			return EINVAL;
	}
	for (i = 0; i < set->count && set->index == VFU_MSIX; i++) {
		fd = -1;
		if (s->nfds) {
			fd = s->fds[i];
			s->fds[i] = -1;
		}
		pci_irq_wire(&s->func->irq, set->start + i, fd);
	}
	if (set->index == VFU_MSIX)
		s->nfds = 0;
	return 0;
}

static void trigger(struct pci_irq *irq, uint32_t action, uint32_t vector)
{
	switch (action) {
	case VFU_SET_MASK:
		pci_irq_mask(irq, vector, true);
		break;
	case VFU_SET_UNMASK:
		pci_irq_mask(irq, vector, false);
		break;
	default:
		pci_irq_raise(irq, vector);
	}
}

static int set_irqs(struct pci_session *s)
{
	struct vfu_set_irqs set;
	size_t len = body_len(s);
	uint32_t data, action, count, i;
	int err;

	if (len < sizeof(set))
		return EINVAL;
	memcpy(&set, s->body, sizeof(set));
	data = set.flags & VFU_SET_DATA;
	action = set.flags & VFU_SET_ACTION;
	/* argsz counts descriptors as if they were in the message, or not: clients differ */
	if ((set.flags & ~(VFU_SET_DATA | VFU_SET_ACTION)) || set.argsz < sizeof(set) ||
	    __builtin_popcount(data) != 1 || __builtin_popcount(action) != 1 ||
	    set.index >= VFU_IRQS)
		return EINVAL;
	count = irq_count(set.index);
	if (set.start > count || set.count > count - set.start)
		return EINVAL;
	if (len != sizeof(set) + (data == VFU_SET_DATA_BOOL ? set.count : 0))
		return EINVAL;

	if (data == VFU_SET_DATA_EVENTFD) {
		if (action != VFU_SET_TRIGGER)
			return EOPNOTSUPP;
		err = wire(s, &set);
		if (err)
			return err;
	} else if (s->nfds) {
		return EINVAL;
	} else if (set.index == VFU_MSIX && data == VFU_SET_DATA_NONE && !set.count) {
		if (action != VFU_SET_TRIGGER)
			return EINVAL;
		for (i = 0; i < PCI_VECTORS; i++)
			pci_irq_wire(&s->func->irq, i, -1);
	} else if (set.index == VFU_MSIX) {
		for (i = 0; i < set.count; i++)
			if (data == VFU_SET_DATA_NONE || s->body[sizeof(set) + i])
				trigger(&s->func->irq, action, set.start + i);
	}
	pci_session_reply(s, NULL, 0, NULL, 0);
	return 0;
}

/* ------------------------------------------------------------------ regions */

static int access_ok(const struct vfu_region_access *a)
{
	uint64_t end;

	if (a->count > VFU_MAX_XFER || __builtin_add_overflow(a->offset, a->count, &end) ||
	    end > pci_func_region_size(a->region))
		return EINVAL;
	return 0;
}

static int region_read(struct pci_session *s)
{
	struct vfu_region_access a;
	uint8_t small[PCI_CONFIG_SIZE];
	uint8_t *data = small;
	int err;

	if (!body_is(s, &a, sizeof(a)))
		return EINVAL;
	err = access_ok(&a);
	if (err)
		return err;
	if (a.count > sizeof(small)) {
		data = malloc(a.count);
		if (!data)
			return ENOMEM;
	}
	pci_func_read(s->func, a.region, a.offset, data, a.count);
	pci_session_reply(s, &a, sizeof(a), data, a.count);
	if (data != small)
		free(data);
	return 0;
}

static int region_write(struct pci_session *s)
{
	struct vfu_region_access a;
	int err;

	if (body_len(s) < sizeof(a))
		return EINVAL;
	memcpy(&a, s->body, sizeof(a));
	if (body_len(s) - sizeof(a) != a.count)
		return EINVAL;
	err = access_ok(&a);
	if (err)
		return err;
	pci_func_write(s->func, a.region, a.offset, s->body + sizeof(a), a.count);
	pci_session_reply(s, &a, sizeof(a), NULL, 0);
	return 0;
}

static int device_reset(struct pci_session *s)
{
	if (body_len(s))
		return EINVAL;
	pci_func_reset_all(s->func);
	pci_session_reply(s, NULL, 0, NULL, 0);
	return 0;
}

/* ------------------------------------------------------------------ dispatch */

int pci_request(struct pci_session *s)
{
	int err;

	if (!s->versioned) {
		/* nothing can be agreed any more when this goes wrong */
		err = s->hdr.command == VFU_VERSION ? version(s) : EPROTO;
		s->broken = err;
		return err;
	}
	switch (s->hdr.command) {
	case VFU_DMA_MAP:
		return dma_map(s);
	case VFU_DMA_UNMAP:
		return dma_unmap(s);
	case VFU_DEVICE_GET_INFO:
		return device_info(s);
	case VFU_DEVICE_GET_REGION_INFO:
		return region_info(s);
	case VFU_DEVICE_GET_IRQ_INFO:
		return irq_info(s);
	case VFU_DEVICE_SET_IRQS:
		return set_irqs(s);
	case VFU_REGION_READ:
		return region_read(s);
	case VFU_REGION_WRITE:
		return region_write(s);
	case VFU_DEVICE_RESET:
		return device_reset(s);
	case VFU_VERSION:
		return EINVAL;
	default:
		/* among them migration: its state cannot be carried, the peers would lose the stream */
		return EOPNOTSUPP;
	}
}
