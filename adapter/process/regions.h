/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Memory that programs have registered, and what becomes of it.
 *
 * Hardware pins registered pages, so that a program may unmap them and a late transfer still lands
 * somewhere.  Here nothing is pinned.  Calls that unmap or protect memory are watched: what they
 * take from a registered region is checked page by page from then on, and a transfer there fails
 * instead of ending the program.  Memory that nobody took away costs one load.
 *
 * What is unmapped without such a call, by the C library inside free() for one, is noticed when a transfer
 * runs into it (faults.h), and then belongs to the same list.
 */
#ifndef EA_REGIONS_H
#define EA_REGIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A region comes and goes; each pair with the same values.  0 or -ENOMEM.  Any thread. */
int regions_add(uint64_t start, uint64_t len);
void regions_remove(uint64_t start, uint64_t len);

/* Something was taken from registered regions. */
extern unsigned int regions_gone;

/* May these bytes be reached?  To be asked when regions_gone is not 0. */
bool regions_reachable(uint64_t addr, size_t len, bool write);

/* A transfer has failed to reach these bytes: from now on they are checked. */
void regions_lost(uint64_t addr, size_t len, bool write);

void regions_fork_child(void);

#endif
