// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Doorbell records: how a doorbell is seen that was written to a mapped page.
 *
 * Software stores the value in the queue's record just before it rings, and the adapter looks at the records of
 * all queues again and again (loop.h says how often).  The pages themselves would not do: queues share places on
 * them, so one ring hides another.  A record belongs to one queue, so who may write it needs no check, and a value
 * that names another queue is not one of its doorbells.
 */
#include <errno.h>
#include <stdlib.h>

#include "adapter/core/hw.h"
#include "adapter/pci/func.h"

static const uint64_t *resolve(struct pci_func *func, uint64_t addr)
{
	size_t len = sizeof(uint64_t);
	const void *p;

	if (addr % sizeof(uint64_t))
		return NULL;
	p = pci_dma_ptr(&func->dma, addr, &len, false);
	/* a window may begin anywhere in its file, but only at a page */
	return len == sizeof(uint64_t) ? p : NULL;
}

static uint64_t value_of(const uint64_t *at)
{
	return le64toh(__atomic_load_n((const __le64 *)at, __ATOMIC_ACQUIRE));
}

static bool look(struct pci_poll *poll)
{
	return pci_records_look(container_of(poll, struct pci_func, poll));
}

void pci_records_poll(struct pci_func *func)
{
	func->poll.look = look;
	if (func->db_fd >= 0 && !func->trapped && !func->far && func->records.count)
		pci_poll_add(func->loop, &func->poll);
	else
		pci_poll_del(&func->poll);
}

int pci_record_add(struct pci_func *func, enum pci_ring kind, uint32_t number, uint64_t addr)
{
	struct pci_records *all = &func->records;
	struct pci_record *r, *grown;
	uint32_t room;

	if (!func->may_map)
		return 0;
	if (all->count == all->room) {
		room = all->room ? all->room * 2 : 16;
		grown = realloc(all->list, room * sizeof(*grown));
		if (!grown)
			return ENOMEM;
		all->list = grown;
		all->room = room;
	}
	r = &all->list[all->count++];
	*r = (struct pci_record){
		.at = resolve(func, addr), .addr = addr, .number = number, .kind = kind
	};
	/*
	 * Nothing was rung yet: a queue pair's record that is not empty is left over from its predecessor, and so
	 * are the indices in it.  An old arming of a CQ is no harm, but one that is overlooked would be.
	 */
	if (r->at && kind != PCI_RING_CQ)
		r->last = value_of(r->at);
	pci_records_poll(func);
	return 0;
}

void pci_record_del(struct pci_func *func, enum pci_ring kind, uint32_t number)
{
	struct pci_records *all = &func->records;
	uint32_t i;

	for (i = 0; i < all->count; i++) {
		if (all->list[i].kind != kind || all->list[i].number != number)
			continue;
		all->list[i] = all->list[--all->count];
		break;
	}
	pci_records_poll(func);
}

void pci_records_clear(struct pci_func *func)
{
	free(func->records.list);
	func->records = (struct pci_records){ 0 };
	pci_records_poll(func);
}

static void resolve_all(struct pci_func *func)
{
	struct pci_records *all = &func->records;
	uint32_t i;

	for (i = 0; i < all->count; i++)
		all->list[i].at = resolve(func, all->list[i].addr);
	all->stale = false;
}

bool pci_records_look(struct pci_func *func)
{
	struct pci_records *all = &func->records;
	bool found = false;
	struct pci_record *r;
	uint64_t value;
	uint32_t i;

	if (all->stale)
		resolve_all(func);
	for (i = 0; i < all->count; i++) {
		r = &all->list[i];
		if (!r->at)
			continue;
		value = value_of(r->at);
		if (value == r->last)
			continue;
		r->last = value;
		found = true;
		pci_db_ring(func, r->kind, r->number, value);
	}
	return found;
}
