/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Messages for the operator: one line each on standard error.  A guest can cause as many as it
 * likes, so those of one function are limited to a burst (see pci_log_allow()).
 */
#ifndef EA_PCI_LOG_H
#define EA_PCI_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum pci_log_level {
	PCI_LOG_ERR,
	PCI_LOG_INFO,
	PCI_LOG_DEBUG,
};

void pci_log_set_level(enum pci_log_level level);

void pci_log(enum pci_log_level level, const char *who, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* What is left for a guest to cause. */
struct pci_log_budget {
	uint64_t since_ns;
	uint32_t used;
};

/* May another line be written?  At most 20 in 10 s; the one after the last says so. */
bool pci_log_allow(struct pci_log_budget *budget, uint64_t now_ns, const char *who);

#endif
