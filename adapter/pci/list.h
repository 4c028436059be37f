/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Lists whose places are part of what they hold, and the way from such a part back to the whole.
 *
 * A place that is all zero is in no list.  Whoever frees what holds a place removes it before.
 */
#ifndef EA_PCI_LIST_H
#define EA_PCI_LIST_H

#include <stdbool.h>
#include <stddef.h>

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

struct pci_list {
	struct pci_list *prev, *next;
};

static inline void pci_list_init(struct pci_list *head)
{
	head->prev = head;
	head->next = head;
}

static inline bool pci_list_empty(const struct pci_list *head)
{
	return head->next == head;
}

/* Is @place in a list? */
static inline bool pci_list_holds(const struct pci_list *place)
{
	return place->next;
}

/* Put @place, which is in no list, behind @pos: a place, or the head for the first. */
static inline void pci_list_insert(struct pci_list *pos, struct pci_list *place)
{
	place->prev = pos;
	place->next = pos->next;
	place->next->prev = place;
	pos->next = place;
}

/* At the end; no effect on one that is in a list already. */
static inline void pci_list_append(struct pci_list *head, struct pci_list *place)
{
	if (!pci_list_holds(place))
		pci_list_insert(head->prev, place);
}

static inline void pci_list_remove(struct pci_list *place) /* idempotent */
{
	if (!pci_list_holds(place))
		return;
	place->prev->next = place->next;
	place->next->prev = place->prev;
	place->next = NULL;
}

#endif
