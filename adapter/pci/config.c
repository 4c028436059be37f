// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <endian.h>
#include <string.h>
#include <linux/pci_regs.h>
#include <linux/types.h>

#include "adapter/pci/config.h"
#include "adapter/pci/irq.h"

enum {
	VENDOR = 0x1ded,
	DEVICE = 0x107f,
	REVISION = 1,
	CLASS_NETWORK_OTHER = 0x0280,
	CAP_MSIX = 0x40,
	BIR_BAR2 = 2,
};

static void put16(uint8_t *p, uint16_t v)
{
	__le16 le = htole16(v);

	memcpy(p, &le, sizeof(le));
}

static void put32(uint8_t *p, uint32_t v)
{
	__le32 le = htole32(v);

	memcpy(p, &le, sizeof(le));
}

void pci_config_init(struct pci_config *config)
{
	uint8_t *c = config->bytes;

	memset(c, 0, PCI_CONFIG_SIZE);
	put16(c + PCI_VENDOR_ID, VENDOR);
	put16(c + PCI_DEVICE_ID, DEVICE);
	put16(c + PCI_STATUS, PCI_STATUS_CAP_LIST);
	c[PCI_REVISION_ID] = REVISION;
	put16(c + PCI_CLASS_DEVICE, CLASS_NETWORK_OTHER);
	put32(c + PCI_BASE_ADDRESS_0, PCI_BASE_ADDRESS_MEM_TYPE_64);
	put32(c + PCI_BASE_ADDRESS_2, PCI_BASE_ADDRESS_MEM_TYPE_64);
	put16(c + PCI_SUBSYSTEM_VENDOR_ID, VENDOR);
	put16(c + PCI_SUBSYSTEM_ID, DEVICE);
	c[PCI_CAPABILITY_LIST] = CAP_MSIX;
	c[CAP_MSIX] = PCI_CAP_ID_MSIX;
	put16(c + CAP_MSIX + PCI_MSIX_FLAGS, PCI_VECTORS - 1);
	put32(c + CAP_MSIX + PCI_MSIX_TABLE, BAR2_MSIX_TABLE | BIR_BAR2);
	put32(c + CAP_MSIX + PCI_MSIX_PBA, BAR2_MSIX_PBA | BIR_BAR2);
}

static uint32_t bar_mask(size_t reg)
{
	switch (reg) {
	case PCI_BASE_ADDRESS_0:
		return ~(uint32_t)(PCI_BAR0_SIZE - 1);
	case PCI_BASE_ADDRESS_2:
		return ~(uint32_t)(PCI_BAR2_SIZE - 1);
	case PCI_BASE_ADDRESS_1:
	case PCI_BASE_ADDRESS_3:
		return 0xffffffff;
	default:
		return 0;
	}
}

/* Which bits of the byte at @off can be written. */
static uint8_t writable(size_t off)
{
	static const uint16_t command = PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER |
					PCI_COMMAND_PARITY | PCI_COMMAND_SERR |
					PCI_COMMAND_INTX_DISABLE;
	static const uint16_t msix = PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL;

	if (off >= PCI_BASE_ADDRESS_0 && off < PCI_BASE_ADDRESS_5 + 4)
		return bar_mask(off & ~(size_t)3) >> 8 * (off & 3);
	switch (off) {
	case PCI_COMMAND:
	case PCI_COMMAND + 1:
		return command >> 8 * (off - PCI_COMMAND);
	case CAP_MSIX + PCI_MSIX_FLAGS:
	case CAP_MSIX + PCI_MSIX_FLAGS + 1:
		return msix >> 8 * (off - CAP_MSIX - PCI_MSIX_FLAGS);
	case PCI_CACHE_LINE_SIZE:
	case PCI_INTERRUPT_LINE:
		return 0xff;
	default:
		return 0;
	}
}

void pci_config_write(struct pci_config *config, size_t off, const uint8_t *data, size_t len)
{
	uint8_t mask;

	for (; len; off++, data++, len--) {
		mask = writable(off);
		config->bytes[off] = (config->bytes[off] & ~mask) | (*data & mask);
	}
}

bool pci_config_msix_masked(const struct pci_config *config)
{
	static const uint16_t both = PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL;
	uint16_t flags = config->bytes[CAP_MSIX + PCI_MSIX_FLAGS] |
			 config->bytes[CAP_MSIX + PCI_MSIX_FLAGS + 1] << 8;

	return (flags & both) == both;
}
