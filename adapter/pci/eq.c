// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Event queues: entries, arming, interrupts.
 *
 * A queue starts armed.  One interrupt disarms it; the driver's doorbell arms it again and is
 * answered at once when entries are left.  A doorbell that finds nothing raises nothing, or the
 * driver, which rings in each handler run, would never rest.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/core/hw.h"
#include "adapter/pci/func.h"
#include "adapter/pci/hw.h"

enum {
	BACKLOG_WORDS = PCI_MAX_CQ / 64
};

int pci_eq_open(struct pci_eq *eq, uint64_t addr, uint8_t shift, uint8_t vector, bool ceq)
{
	if (!shift || shift > EQ_SHIFT_MAX || addr % EQE_SIZE)
		return EINVAL;
	if (ceq) {
		eq->backlog = calloc(BACKLOG_WORDS, sizeof(*eq->backlog));
		if (!eq->backlog)
			return ENOMEM;
	}
	eq->addr = addr;
	eq->shift = shift;
	eq->vector = vector;
	eq->pi = 0;
	eq->ci = 0;
	eq->armed = true;
	eq->live = true;
	return 0;
}

void pci_eq_close(struct pci_eq *eq)
{
	free(eq->backlog);
	memset(eq, 0, sizeof(*eq));
}

static bool full(const struct pci_eq *eq)
{
	return (uint16_t)(eq->pi - eq->ci) >= 1u << eq->shift;
}

static bool first_lap(const struct pci_eq *eq)
{
	return !(eq->pi >> eq->shift & 1);
}

/* @word holds the owner bit and is seen last.  Both in the byte order of memory. */
static void push(struct pci_func *func, struct pci_eq *eq, __le64 word, __le64 rest)
{
	uint64_t at = eq->addr + (uint64_t)(eq->pi & ((1u << eq->shift) - 1)) * EQE_SIZE;
	size_t len = EQE_SIZE;
	__le64 *entry = pci_func_ptr(func, at, &len, true);

	if (!entry || len < EQE_SIZE) {
		pci_func_complain(func, "event queue of vector %u: no memory at %#llx", eq->vector,
				  (unsigned long long)at);
		eq->live = false;
		return;
	}
	entry[1] = rest;
	__atomic_store_n(&entry[0], word, __ATOMIC_RELEASE);
	eq->pi++;
	if (!eq->armed)
		return;
	eq->armed = false;
	pci_irq_raise(&func->irq, eq->vector);
}

void pci_eq_comp(struct pci_func *func, struct pci_eq *eq, uint32_t cqn, uint32_t pi)
{
	uint64_t word = EA_PREP(CEQE_PI, pi) | EA_PREP(CEQE_CQN, cqn);

	if (!eq->live)
		return;
	if (full(eq)) {
		if (eq->backlog)
			eq->backlog[cqn / 64] |= 1ull << cqn % 64;
		return;
	}
	if (first_lap(eq))
		word |= CEQE_OWNER;
	push(func, eq, htole64(word), 0);
}

/* There is no type with a second word, and a full queue can only lose the event. */
void pci_eq_async(struct pci_func *func, uint8_t type, uint32_t number)
{
	struct pci_eq *eq = &func->aeq;
	uint32_t header = (uint32_t)EA_PREP(AEQE_TYPE, type);

	if (!eq->live)
		return;
	if (full(eq)) {
		pci_func_complain(func, "asynchronous event %u of %u is lost: the queue is full",
				  type, number);
		return;
	}
	if (first_lap(eq))
		header |= AEQE_OWNER;
	push(func, eq, htole64((uint64_t)number << 32 | header), 0);
}

static void take_backlog(struct pci_func *func, struct pci_eq *eq)
{
	uint32_t i, bit;

	for (i = 0; i < BACKLOG_WORDS; i++) {
		while (eq->backlog[i]) {
			if (!eq->live || full(eq))
				return;
			bit = (uint32_t)__builtin_ctzll(eq->backlog[i]);
			eq->backlog[i] &= eq->backlog[i] - 1;
			pci_eq_comp(func, eq, i * 64 + bit, 0);
		}
	}
}

void pci_eq_doorbell(struct pci_func *func, struct pci_eq *eq, uint64_t value)
{
	if (!eq->live)
		return;
	eq->ci = (uint16_t)EA_FIELD(EQDB_CI, value);
	if (eq->backlog)
		take_backlog(func, eq);
	if (!(value & EQDB_ARM))
		return;
	eq->armed = eq->pi == eq->ci;
	if (!eq->armed)
		pci_irq_raise(&func->irq, eq->vector);
}
