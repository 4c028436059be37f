// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A guest's driver and programs as an enemy: registers, commands, queues, doorbells, page lists and windows, with
 * the engines at work in between.
 *
 * The input: a byte that says how much is set up already, then steps of a byte each with operands.
 */
#include <string.h>

#include "adapter/pci/vfu.h"
#include "fuzz/core/input.h"
#include "fuzz/pci/world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum step {
	REG32,	  /* offset / 4, value */
	REG64,	  /* offset / 8, value */
	DOORBELL, /* page, offset / 8, value */
	COMMAND,  /* sub and opcode, length, body */
	MEMORY,	  /* place, length, bytes */
	SEND,	  /* a work request that is nearly right */
	RECEIVE,
	ARM,
	LIST, /* an entry of the page list */
	WINDOW,
	RESET,
	CONFIG,
	RUN,
	RECORD, /* which, value: a doorbell without a message */
	STEPS,
};

static uint64_t u64(struct input *in)
{
	uint64_t v = 0;
	int i;

	for (i = 0; i < 4; i++)
		v |= (uint64_t)u16(in) << 16 * i;
	return v;
}

/* Near the truth, most of the time. */
static uint64_t address(struct input *in)
{
	uint8_t how = u8(in);

	switch (how & 7) {
	case 0:
		return u64(in);
	case 1:
		return WORLD_ROM_BUS + how;
	case 2:
		return WORLD_BUS + WORLD_MEM - how;
	case 3:
		return WORLD_BUS + (uint32_t)u16(in) * 16;
	default:
		return WORLD_BUS + AT_DATA + (uint32_t)u16(in) * 8;
	}
}

static uint32_t key(struct input *in)
{
	uint8_t how = u8(in);

	return how & 0x80 ? how : how & 0x40 ? PCI_DMA_LOCAL_KEY : 0x100u * (how & 3);
}

static void post_send(struct world *w, struct input *in)
{
	uint8_t wqe[128] = { 0 }, how = u8(in), op = u8(in) & 31, count = u8(in) & 7;
	uint32_t blocks = (how >> 4 & 3) + 1, qp = how & 1, i, v, at = op == 0 || op == 9 ? 32 : 16;
	uint64_t addr;

	v = u16(in);
	memcpy(wqe + 12, &v, 4);
	v = key(in);
	memcpy(wqe + 16, &v, 4);
	addr = address(in);
	memcpy(wqe + 20, &addr, 8);
	memcpy(wqe + 8, &addr, 4);
	if (op == 1 || op >= 14) {
		addr = address(in);
		memcpy(wqe + 32, &addr, 8);
		v = key(in);
		memcpy(wqe + 44, &v, 4);
		memcpy(wqe + 60, &v, 4);
		addr = address(in);
		memcpy(wqe + 48, &addr, 8);
		wqe[56] = 8;
		if (op == 14 || op == 15) {
			v = 0x200 | (how & 0xf);
			memcpy(wqe + 20, &v, 4);
			v = (uint32_t)count << 12 | (how & 0xc0) | 0x3e;
			memcpy(wqe + 24, &v, 4);
		}
	} else {
		for (i = 0; i < count && at + 16 <= sizeof(wqe); i++, at += 16) {
			addr = address(in);
			memcpy(wqe + at, &addr, 8);
			v = u16(in);
			memcpy(wqe + at + 8, &v, 4);
			v = key(in);
			memcpy(wqe + at + 12, &v, 4);
		}
	}
	w->sq_pi[qp] += blocks;
	addr = (uint64_t)count << 56 | (uint64_t)(blocks - 1) << 52 | (uint64_t)(qp + 1) << 32 |
	       (uint64_t)op << 27 | (uint64_t)(how >> 2 & 3) << 24 | 3ull << 22 | w->sq_pi[qp];
	memcpy(wqe, &addr, 8);
	for (i = 0; i < blocks; i++)
		memcpy(w->mem + AT_SQ + qp * 0x1000 + ((w->sq_pi[qp] - blocks + i) & 127) * 32,
		       wqe + i * 32, 32);
	world_w64(w, 0x5f000, (uint64_t)(qp + 1) << 32 | w->sq_pi[qp]);
}

static void post_recv(struct world *w, struct input *in)
{
	uint32_t qp = u8(in) & 1, v = u16(in);
	uint8_t *rqe = w->mem + AT_RQ + qp * 0x1000 + (w->rq_pi[qp] & 63) * 32;
	uint64_t addr = address(in), bell;

	w->rq_pi[qp]++;
	bell = (uint64_t)(qp + 1) << 32 | w->rq_pi[qp];
	memcpy(rqe, &bell, 8);
	memcpy(rqe + 16, &addr, 8);
	memcpy(rqe + 24, &v, 4);
	v = key(in);
	memcpy(rqe + 28, &v, 4);
	world_w64(w, 0x61000, bell);
}

static void step(struct world *w, struct input *in)
{
	uint8_t body[120] = { 0 }, a, b;
	uint32_t i, off;
	uint64_t v;

	switch (u8(in) % STEPS) {
	case REG32:
		off = u8(in) * 4u;
		v = address(in);
		world_w32(w, off, (uint32_t)v);
		break;
	case REG64:
		off = u8(in) * 8u;
		world_w64(w, off, u64(in));
		break;
	case DOORBELL:
		off = (u16(in) & 2047) << 12;
		off += u8(in) * 8u;
		world_w64(w, off, u64(in));
		break;
	case COMMAND:
		a = u8(in);
		b = u8(in) % (sizeof(body) + 1);
		for (i = 0; i < b; i++)
			body[i] = u8(in);
		world_cmd(w, a >> 6, a & 31, body, b);
		break;
	case MEMORY:
		off = (uint32_t)u16(in) * 16;
		b = u8(in);
		for (i = 0; i < b; i++)
			w->mem[(off + i) % WORLD_MEM] = u8(in);
		break;
	case SEND:
		post_send(w, in);
		break;
	case RECEIVE:
		post_recv(w, in);
		break;
	case ARM:
		a = u8(in);
		v = (uint64_t)(1 + (a & 1)) << 32 | 1ull << 31 | (uint64_t)(a >> 1 & 1) << 30 |
		    a >> 2;
		world_w64(w, 0x79000, v);
		break;
	case LIST:
		a = u8(in);
		v = address(in);
		memcpy(w->mem + AT_LIST + a * 8, &v, 8);
		break;
	case WINDOW:
		a = u8(in);
		pci_dma_unmap(&w->func->dma, WORLD_BUS, WORLD_MEM);
		pci_func_memory_changed(w->func);
		if (a & 1)
			world_run(w, 3);
		if (a & 2)
			world_map(w);
		else
			pci_dma_map(&w->func->dma, WORLD_BUS, AT_DATA + (a >> 2) * 4096u, w->memfd,
				    0, true, true);
		pci_func_memory_changed(w->func);
		if (a & 0xf0)
			break;
		pci_dma_clear(&w->func->dma);
		world_map(w);
		break;
	case RESET:
		a = u8(in);
		if (a & 1)
			pci_func_reset_all(w->func);
		if (a & 2)
			world_w32(w, 0x10, 1);
		if (a & 4)
			world_init(w);
		if (a & 8)
			world_objects(w);
		break;
	case CONFIG:
		a = u8(in);
		v = u64(in);
		b = u8(in) % 9;
		if (a + b <= PCI_CONFIG_SIZE)
			pci_func_write(w->func, VFU_CONFIG, a, (uint8_t *)&v, b);
		pci_func_write(w->func, VFU_BAR2, a * 8u, (uint8_t *)&v, b);
		pci_func_read(w->func, VFU_BAR0, a * 4u, body, b);
		break;
	case RECORD:
		a = u8(in) % 6;
		v = u8(in);
		/* of a queue that is there, and not far from the truth */
		if (v & 1)
			v = (uint64_t)(1 + a / 3) << 32 | 1ull << 31 | u16(in);
		else
			v = u64(in);
		memcpy(w->mem + AT_RECORD + a * 8, &v, 8);
		w->func->trapped = false;
		pci_db_file(w->func);
		pci_records_poll(w->func);
		break;
	case RUN:
		world_run(w, 1 + (u8(in) & 7));
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct world w;
	uint8_t ready = u8(&in);

	world_open(&w);
	if (ready & 3)
		world_init(&w);
	if (ready & 2)
		world_objects(&w);
	while (in.left)
		step(&w, &in);
	world_run(&w, 8);
	world_close(&w);
	return 0;
}
