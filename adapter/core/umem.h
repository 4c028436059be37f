/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Memory that its owner can take away at any moment.
 *
 * Hardware pins registered pages.  A host without that power hands out addresses (struct ea_dma_ops) behind
 * which nothing may be left when they are used: the C library gives a large block back to the kernel inside
 * free(), a file is cut short.  Copies by the kernel report that as EFAULT.  Those that the adapter makes
 * itself go through these functions, which report it as well, provided the host has a handler for SIGSEGV
 * and SIGBUS that asks ea_umem_recover().  Without a handler, and with a bug, a fault ends the process as
 * any other does.
 *
 * They cost nothing over plain accesses where the place of a fault is known by the address of the instruction
 * (x86-64); elsewhere the thread sets a mark.
 *
 * Threads: any; a fault is recovered from in the thread that has it.
 */
#ifndef EA_UMEM_H
#define EA_UMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* memcpy().  False: a fault on either side; any part may have been copied. */
bool ea_umem_copy(void *dst, const void *src, size_t len);

/*
 * Where *@p, naturally aligned, holds *@old, put @value there; in any case *@old is what was there.
 * Sequentially consistent.  False: a fault.
 */
bool ea_umem_cmpxchg(uint64_t *p, uint64_t *old, uint64_t value);

/*
 * For the handler of SIGSEGV and SIGBUS, for signals that come from a fault (si_code above 0): *@pc is the address
 * of the instruction at fault.  True: an access of the functions above; go on at *@pc, which has been changed.
 * False: none of them.  May not return, and jump out of the handler instead, so the handler must be installed with
 * SA_NODEFER and must not have changed the thread's signal mask.
 */
bool ea_umem_recover(uintptr_t *pc);

#endif
