/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * MSI-X vectors: wired to eventfds by the client, masked by it or by the table, pending meanwhile.
 *
 * A vector that is raised while it is masked or not wired stays pending and is delivered when that
 * ends.  Clients that keep the MSI-X table to themselves never write it; then only what they say by
 * messages counts.
 */
#ifndef EA_PCI_IRQ_H
#define EA_PCI_IRQ_H

#include <stdbool.h>
#include <stdint.h>

enum {
	PCI_VECTORS = 32
};

struct pci_irq {
	int fd[PCI_VECTORS];   /* eventfd or -1 */
	uint32_t masked;       /* by message */
	uint32_t table_masked; /* by the vector control word */
	bool all_masked;       /* by the capability's function mask */
	bool held; /* what is raised waits: the memory it tells of is still on its way */
	uint32_t pending;
};

void pci_irq_init(struct pci_irq *irq);

/* Close what is wired, forget all. */
void pci_irq_clear(struct pci_irq *irq);

void pci_irq_raise(struct pci_irq *irq, unsigned int vector);

/* Let what is raised wait, or deliver it. */
void pci_irq_hold(struct pci_irq *irq, bool hold);

/* Forget pending vectors (RESET). */
void pci_irq_quiet(struct pci_irq *irq);

/* Takes over @fd; -1 unwires. */
void pci_irq_wire(struct pci_irq *irq, unsigned int vector, int fd);
void pci_irq_mask(struct pci_irq *irq, unsigned int vector, bool masked);
void pci_irq_mask_table(struct pci_irq *irq, unsigned int vector, bool masked);
void pci_irq_mask_all(struct pci_irq *irq, bool masked);

#endif
