/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A function with guest memory, for fuzzing: one window that it may use, a second one it may only read, and
 * pages around both that nobody may touch.
 */
#ifndef FUZZ_PCI_WORLD_H
#define FUZZ_PCI_WORLD_H

#include <stddef.h>
#include <stdint.h>

#include "adapter/pci/func.h"

enum {
	WORLD_MEM = 1 << 20,
	WORLD_ROM = 4096,
	WORLD_SLOT = 4, /* blocks of a command */
	WORLD_DEPTH = 512,
};

#define WORLD_BUS     0x40000000ull
#define WORLD_ROM_BUS 0x80000000ull

/* Places in guest memory. */
enum {
	AT_AEQ = 0,
	AT_CSQ = 0x10000,
	AT_CCQ = 0x14000,
	AT_CEQ0 = 0x18000,
	AT_CEQ1 = 0x20000,
	AT_CQ = 0x30000, /* one page for each of two */
	AT_SQ = 0x34000, /* 0x1000 for each of two: 128 blocks */
	AT_RQ = 0x38000, /* 0x1000 for each of two */
	AT_LIST = 0x3c000,
	AT_RECORD = 0x3e000, /* three for each of two: SQ, RQ, CQ */
	AT_DATA = 0x40000,
	DATA_LEN = 0x80000,
};

struct world {
	struct pci_loop *loop;
	struct pci_fabric *fabric;
	struct pci_func *func;
	int memfd, romfd;
	uint8_t *mem; /* the guest's own view */
	uint16_t csq_pi;
	uint16_t sq_pi[2], rq_pi[2];
};

void world_open(struct world *w);
void world_close(struct world *w); /* checks that the ROM is whole */

void world_map(struct world *w);
void world_w32(struct world *w, uint32_t off, uint32_t value);
void world_w64(struct world *w, uint64_t off, uint64_t value);

/* INIT, one CEQ. */
void world_init(struct world *w);
/* Two CQs, two connected QPs, regions 0x100 (all rights), 0x200 (fast), 0x300 (all of memory). */
void world_objects(struct world *w);

/* Put a command in the ring and ring; @len of @body are given. */
void world_cmd(struct world *w, uint8_t sub, uint8_t op, const uint8_t *body, size_t len);

/* Some rounds of the event loop. */
void world_run(struct world *w, int rounds);

#endif
