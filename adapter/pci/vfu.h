/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The vfio-user protocol as bytes: headers, commands, payloads.  All numbers are in the byte order of
 * the host, as the protocol has it.  Only layouts; what the messages do is in session.c.
 */
#ifndef EA_PCI_VFU_H
#define EA_PCI_VFU_H

#include <stddef.h>
#include <stdint.h>

enum vfu_command {
	VFU_VERSION = 1,
	VFU_DMA_MAP = 2,
	VFU_DMA_UNMAP = 3,
	VFU_DEVICE_GET_INFO = 4,
	VFU_DEVICE_GET_REGION_INFO = 5,
	VFU_DEVICE_GET_REGION_IO_FDS = 6,
	VFU_DEVICE_GET_IRQ_INFO = 7,
	VFU_DEVICE_SET_IRQS = 8,
	VFU_REGION_READ = 9,
	VFU_REGION_WRITE = 10,
	VFU_DMA_READ = 11,
	VFU_DMA_WRITE = 12,
	VFU_DEVICE_RESET = 13,
	VFU_REGION_WRITE_MULTI = 15,
	VFU_DEVICE_FEATURE = 16,
	VFU_MIG_DATA_READ = 17,
	VFU_MIG_DATA_WRITE = 18,
};

#define VFU_TYPE_MASK  0xfu
#define VFU_TYPE_CMD   0x0u
#define VFU_TYPE_REPLY 0x1u
#define VFU_NO_REPLY   0x10u
#define VFU_ERROR      0x20u
#define VFU_FLAGS_ALL  (VFU_TYPE_MASK | VFU_NO_REPLY | VFU_ERROR)

enum {
	VFU_MAJOR = 0,
	VFU_MINOR = 0,
	VFU_MAX_FDS = 16,	     /* in one message; no client takes more */
	VFU_MAX_XFER = 1 << 20,	     /* bytes of one region access */
	VFU_MAX_VERSION_DATA = 4096, /* of JSON */
	VFU_MAX_MAPS = 65535,
};

struct vfu_hdr {
	uint16_t id;
	uint16_t command;
	uint32_t size; /* with this header */
	uint32_t flags;
	uint32_t error;
};

struct vfu_version {
	uint16_t major;
	uint16_t minor;
	/* JSON, ends with NUL */
};

#define VFU_MAP_READ  0x1u
#define VFU_MAP_WRITE 0x2u

struct vfu_dma_map {
	uint32_t argsz;
	uint32_t flags;
	uint64_t offset;
	uint64_t addr;
	uint64_t size;
};

#define VFU_UNMAP_DIRTY 0x1u
#define VFU_UNMAP_ALL	0x2u

struct vfu_dma_unmap {
	uint32_t argsz;
	uint32_t flags;
	uint64_t addr;
	uint64_t size;
};

#define VFU_DEVICE_RESETS 0x1u
#define VFU_DEVICE_PCI	  0x2u

struct vfu_device_info {
	uint32_t argsz;
	uint32_t flags;
	uint32_t num_regions;
	uint32_t num_irqs;
};

#define VFU_REGION_READS  0x1u
#define VFU_REGION_WRITES 0x2u
#define VFU_REGION_MMAP	  0x4u
#define VFU_REGION_CAPS	  0x8u

struct vfu_region_info {
	uint32_t argsz;
	uint32_t flags;
	uint32_t index;
	uint32_t cap_offset;
	uint64_t size;
	uint64_t offset;
};

enum {
	VFU_CAP_SPARSE_MMAP = 1,
	VFU_CAP_VERSION = 1,
};

/* The capability that names the parts of a region which can be mapped; this one names one part. */
struct vfu_sparse_cap {
	uint16_t id;
	uint16_t version;
	uint32_t next; /* 0: the last */
	uint32_t nr_areas;
	uint32_t reserved;
	uint64_t offset; /* in the region, and in its file behind the region's own offset */
	uint64_t size;
};

#define VFU_IRQ_EVENTFD	 0x1u
#define VFU_IRQ_MASKABLE 0x2u

struct vfu_irq_info {
	uint32_t argsz;
	uint32_t flags;
	uint32_t index;
	uint32_t count;
};

#define VFU_SET_DATA_NONE    0x01u
#define VFU_SET_DATA_BOOL    0x02u
#define VFU_SET_DATA_EVENTFD 0x04u
#define VFU_SET_DATA	     0x07u
#define VFU_SET_MASK	     0x08u
#define VFU_SET_UNMASK	     0x10u
#define VFU_SET_TRIGGER	     0x20u
#define VFU_SET_ACTION	     0x38u

struct vfu_set_irqs {
	uint32_t argsz;
	uint32_t flags;
	uint32_t index;
	uint32_t start;
	uint32_t count;
	/* DATA_BOOL: a byte for each */
};

struct vfu_region_access {
	uint64_t offset;
	uint32_t region;
	uint32_t count;
	/* data */
};

/* DMA_READ, DMA_WRITE: from the server to the client. */
struct vfu_dma_access {
	uint64_t addr;
	uint64_t count;
	/* data: of a write, or of the answer to a read */
};

/* As the kernel's VFIO numbers the regions and interrupts of a PCI function. */
enum vfu_region {
	VFU_BAR0 = 0,
	VFU_BAR2 = 2,
	VFU_ROM = 6,
	VFU_CONFIG = 7,
	VFU_VGA = 8,
	VFU_REGIONS = 9,
};

enum vfu_irq {
	VFU_INTX = 0,
	VFU_MSI = 1,
	VFU_MSIX = 2,
	VFU_ERR = 3,
	VFU_REQ = 4,
	VFU_IRQS = 5,
};

/* Longest message that is ever sent or taken. */
#define VFU_MSG_MAX (sizeof(struct vfu_hdr) + sizeof(struct vfu_region_access) + VFU_MAX_XFER)

#endif
