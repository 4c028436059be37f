// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "adapter/pci/fabric.h"
#include "adapter/pci/vfu.h"
#include "fuzz/pci/world.h"

enum {
	ROM_BYTE = 0x5e
};

static void need(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "fuzz: %s\n", what);
	abort();
}

static int new_file(size_t size)
{
	int fd = memfd_create("guest", MFD_CLOEXEC);

	need(fd >= 0 && !ftruncate(fd, (off_t)size), "no guest memory");
	return fd;
}

void world_map(struct world *w)
{
	pci_dma_map(&w->func->dma, WORLD_BUS, WORLD_MEM, w->memfd, 0, true, true);
	pci_func_memory_changed(w->func);
}

void world_open(struct world *w)
{
	static const uint8_t mac[6] = { 0x52, 0x54, 0, 1, 2, 3 };
	static uint8_t rom[WORLD_ROM];

	memset(w, 0, sizeof(*w));
	memset(rom, ROM_BYTE, sizeof(rom));
	pci_log_set_level(PCI_LOG_ERR);
	w->loop = pci_loop_create();
	w->fabric = pci_fabric_create(w->loop);
	w->func = pci_func_create("fuzz", mac, w->loop, w->fabric);
	need(w->func && !pci_fabric_add_func(w->fabric, w->func), "no function");
	w->func->told_private = true;
	w->func->may_map = true;
	w->memfd = new_file(WORLD_MEM);
	w->romfd = new_file(WORLD_ROM);
	need(pwrite(w->romfd, rom, sizeof(rom), 0) == sizeof(rom), "no ROM");
	w->mem = mmap(NULL, WORLD_MEM, PROT_READ | PROT_WRITE, MAP_SHARED, w->memfd, 0);
	need(w->mem != MAP_FAILED, "no guest memory");
	need(!pci_dma_map(&w->func->dma, WORLD_ROM_BUS, WORLD_ROM, w->romfd, 0, true, false),
	     "no ROM");
	world_map(w);
}

void world_close(struct world *w)
{
	uint8_t rom[WORLD_ROM];
	size_t i;

	need(pread(w->romfd, rom, sizeof(rom), 0) == sizeof(rom), "no ROM");
	for (i = 0; i < sizeof(rom); i++)
		need(rom[i] == ROM_BYTE, "the ROM was written");
	pci_fabric_del_func(w->fabric, w->func);
	pci_func_destroy(w->func);
	pci_fabric_destroy(w->fabric);
	pci_loop_destroy(w->loop);
	munmap(w->mem, WORLD_MEM);
	close(w->memfd);
	close(w->romfd);
}

void world_w32(struct world *w, uint32_t off, uint32_t value)
{
	pci_func_write(w->func, VFU_BAR0, off, (uint8_t *)&value, sizeof(value));
}

void world_w64(struct world *w, uint64_t off, uint64_t value)
{
	pci_func_write(w->func, VFU_BAR0, off, (uint8_t *)&value, sizeof(value));
}

void world_run(struct world *w, int rounds)
{
	while (rounds--)
		pci_loop_once(w->loop, 0);
}

static void put32(uint8_t *p, uint32_t v)
{
	memcpy(p, &v, sizeof(v));
}

static void put64(uint8_t *p, uint64_t v)
{
	memcpy(p, &v, sizeof(v));
}

void world_cmd(struct world *w, uint8_t sub, uint8_t op, const uint8_t *body, size_t len)
{
	uint8_t slot[WORLD_SLOT * 32] = { 0 };
	uint32_t i, start = w->csq_pi;

	w->csq_pi += WORLD_SLOT;
	put64(slot, (uint64_t)(WORLD_SLOT - 1) << 52 | (uint64_t)(sub & 3) << 24 |
			    (uint64_t)op << 16 | w->csq_pi);
	memcpy(slot + 8, body, len < sizeof(slot) - 8 ? len : sizeof(slot) - 8);
	for (i = 0; i < WORLD_SLOT; i++)
		memcpy(w->mem + AT_CSQ + ((start + i) % WORLD_DEPTH) * 32, slot + i * 32, 32);
	world_w64(w, 0x200, w->csq_pi);
}

void world_init(struct world *w)
{
	uint8_t body[24] = { 0 };

	w->csq_pi = 0;
	world_w32(w, 0x40, WORLD_BUS + AT_AEQ);
	world_w32(w, 0x44, 0);
	world_w32(w, 0x48, 4096);
	world_w32(w, 0x20, WORLD_BUS + AT_CSQ);
	world_w32(w, 0x24, 0);
	world_w32(w, 0x30, WORLD_DEPTH);
	world_w32(w, 0x28, WORLD_BUS + AT_CCQ);
	world_w32(w, 0x2c, 0);
	world_w32(w, 0x38, WORLD_BUS + AT_CEQ0);
	world_w32(w, 0x3c, 0);
	world_w32(w, 0x34, 128);
	world_w32(w, 0x10, 2);
	world_w64(w, 0x300, 1ull << 31);
	put64(body, WORLD_BUS + AT_CEQ1);
	body[8] = 1;
	body[9] = 1;
	body[10] = 12;
	body[11] = 1;
	world_cmd(w, 1, 0, body, sizeof(body));
}

void world_objects(struct world *w)
{
	uint8_t body[112];
	uint32_t i;

	for (i = 0; i < 2; i++) {
		memset(body, 0, sizeof(body));
		put32(body, 6 << 24 | (i + 1));
		put32(body + 4, (uint32_t)(WORLD_BUS + AT_CQ + i * 0x1000));
		put32(body + 12, 1 << 16 | 1);
		put64(body + 16, WORLD_BUS + AT_RECORD + i * 24 + 16);
		world_cmd(w, 0, 4, body, 32);
		memset(body, 0, sizeof(body));
		put32(body, 7 << 20 | (i + 1));
		put32(body + 4, 6 << 20 | 1);
		/* the first is a kernel's */
		put32(body + 8, (i ? 0 : 8u) << 28 | (i + 1));
		put32(body + 12, (i ? 0 : 8u) << 28 | (i + 1));
		put64(body + 16, WORLD_BUS + AT_SQ + i * 0x1000);
		put64(body + 24, WORLD_BUS + AT_RQ + i * 0x1000);
		put32(body + 32, 1 << 1);
		put32(body + 36, 1 << 1);
		put64(body + 40, WORLD_BUS + AT_RECORD + i * 24);
		put64(body + 48, WORLD_BUS + AT_RECORD + i * 24 + 8);
		world_cmd(w, 0, 1, body, 112);
		w->sq_pi[i] = 0;
		w->rq_pi[i] = 0;
	}
	for (i = 0; i < DATA_LEN / 4096; i++)
		put64(w->mem + AT_LIST + i * 8, WORLD_BUS + AT_DATA + i * 4096);
	memset(body, 0, sizeof(body));
	put32(body, 1u << 31 | 1);
	put32(body + 4, 1 << 12 | 0x3e);
	put64(body + 8, WORLD_BUS + AT_DATA);
	put32(body + 16, DATA_LEN);
	put32(body + 20, 12u << 27 | 1 << 20 | DATA_LEN / 4096);
	put64(body + 24, WORLD_BUS + AT_LIST);
	world_cmd(w, 0, 8, body, 56);
	put32(body, 2);
	put32(body + 4, 1 << 12 | 1 << 6 | 0x3e);
	world_cmd(w, 0, 8, body, 56);
	put32(body, 3);
	put32(body + 4, 1 << 12 | 2 << 6 | 0x3e);
	world_cmd(w, 0, 8, body, 56);
	for (i = 0; i < 2; i++) {
		memset(body, 0, sizeof(body));
		put32(body, 2u << 24 | (i + 1));
		put32(body + 4, w->func->qps[2 - i].cookie);
		put32(body + 8, 2 - i);
		put32(body + 12, i + 1);
		world_cmd(w, 0, 3, body, 32);
	}
}
