/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * PCI configuration space of the function: type 0 header, BAR 0 and BAR 2 as 64-bit memory, one MSI-X
 * capability whose table and pending bits lie in BAR 2.  No ROM, no other BAR: the driver wants
 * exactly these two.
 */
#ifndef EA_PCI_CONFIG_H
#define EA_PCI_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	PCI_CONFIG_SIZE = 256,
	PCI_BAR0_SIZE = 8 << 20, /* registers, doorbells of 6.1 and pages for ALLOC_DB */
	PCI_BAR2_SIZE = 4096,
	BAR2_MSIX_TABLE = 0, /* in BAR 2 */
	BAR2_MSIX_PBA = 0x800,
	BAR2_MSIX_ENTRY = 16,
};

struct pci_config {
	uint8_t bytes[PCI_CONFIG_SIZE];
};

/* As after power-up. */
void pci_config_init(struct pci_config *config);

/* @off + @len <= PCI_CONFIG_SIZE. Bits that are not writable keep their value. */
void pci_config_write(struct pci_config *config, size_t off, const uint8_t *data, size_t len);

/* The function mask of MSI-X. */
bool pci_config_msix_masked(const struct pci_config *config);

#endif
