// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <string.h>
#include <unistd.h>

#include "adapter/pci/irq.h"

void pci_irq_init(struct pci_irq *irq)
{
	int i;

	memset(irq, 0, sizeof(*irq));
	for (i = 0; i < PCI_VECTORS; i++)
		irq->fd[i] = -1;
}

void pci_irq_clear(struct pci_irq *irq)
{
	int i;

	for (i = 0; i < PCI_VECTORS; i++)
		if (irq->fd[i] >= 0)
			close(irq->fd[i]);
	pci_irq_init(irq);
}

static void deliver(struct pci_irq *irq, unsigned int vector)
{
	static const uint64_t one = 1;
	uint32_t bit = 1u << vector;
	ssize_t n;

	if (!(irq->pending & bit) || irq->held || irq->all_masked ||
	    ((irq->masked | irq->table_masked) & bit) || irq->fd[vector] < 0)
		return;
	irq->pending &= ~bit;
	/* Fails only on a counter that is full, and so has an event that nobody has taken. */
	n = write(irq->fd[vector], &one, sizeof(one));
	(void)n;
}

void pci_irq_raise(struct pci_irq *irq, unsigned int vector)
{
	if (vector >= PCI_VECTORS)
		return;
	irq->pending |= 1u << vector;
	deliver(irq, vector);
}

static void deliver_all(struct pci_irq *irq)
{
	unsigned int i;

	for (i = 0; i < PCI_VECTORS && irq->pending; i++)
		deliver(irq, i);
}

void pci_irq_hold(struct pci_irq *irq, bool hold)
{
	irq->held = hold;
	deliver_all(irq);
}

void pci_irq_quiet(struct pci_irq *irq)
{
	irq->pending = 0;
}

void pci_irq_wire(struct pci_irq *irq, unsigned int vector, int fd)
{
	if (irq->fd[vector] >= 0)
		close(irq->fd[vector]);
	irq->fd[vector] = fd;
	deliver(irq, vector);
}

static void set_mask(struct pci_irq *irq, uint32_t *mask, unsigned int vector, bool masked)
{
	if (masked)
		*mask |= 1u << vector;
	else
		*mask &= ~(1u << vector);
	deliver(irq, vector);
}

void pci_irq_mask(struct pci_irq *irq, unsigned int vector, bool masked)
{
	set_mask(irq, &irq->masked, vector, masked);
}

void pci_irq_mask_table(struct pci_irq *irq, unsigned int vector, bool masked)
{
	set_mask(irq, &irq->table_masked, vector, masked);
}

void pci_irq_mask_all(struct pci_irq *irq, bool masked)
{
	irq->all_masked = masked;
	deliver_all(irq);
}
