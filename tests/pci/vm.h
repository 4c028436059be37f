/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A virtual machine as the server sees it: a vfio-user client with guest memory and eventfds.  Written from
 * the protocol, and sharing nothing with the server.
 */
#ifndef TESTS_PCI_VM_H
#define TESTS_PCI_VM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/pci/server.h"

enum {
	VM_MEM = 64 << 20,
	VM_VECTORS = 32,
	VM_BAR0 = 0,
	VM_BAR2 = 2,
	VM_CONFIG = 7,
};

/* Guest memory begins here on the bus. */
#define VM_BUS 0x40000000ull

struct vm {
	int sock;
	int memfd;
	uint8_t *mem;
	uint64_t used; /* bytes handed out by vm_alloc() */
	int event[VM_VECTORS];
	uint16_t id;
	bool far;	   /* memory without a descriptor */
	bool receiving;	   /* what comes may be an answer */
	bool by_hand;	   /* the test answers what the server asks, or not */
	bool posted;	   /* register writes want no reply */
	uint8_t *bar0;	   /* where its pages are mapped; NULL: not */
	uint64_t messages; /* register writes sent */
};

/* vm_open() maps the doorbell pages. */
extern bool vm_maps_doorbells;

/* vm_open() gives memory without a descriptor: the server asks for each byte. */
extern bool vm_keeps_memory;

/* What the server asks of such memory. */
struct vm_dma {
	uint16_t id, command; /* 11: read, 12: write */
	uint64_t addr, count;
	uint8_t data[8192]; /* to write */
};

/* A reply; error is the errno of an error reply. */
struct vm_reply {
	uint32_t error;
	uint32_t len;
	uint8_t body[8192];
};

/* Connect to function @number; nothing is said yet. */
void vm_connect(struct vm *vm, const struct server *s, int number);

/* Connect, agree on the version, map all memory, wire nothing. */
void vm_open(struct vm *vm, const struct server *s, int number);

/*
 * Map the doorbell pages as the server offers them: vm_w64() writes there without a message then.  False: they are not
 * offered.
 */
bool vm_map_doorbells(struct vm *vm);

/* Drop the connection as a VM that dies does. */
void vm_close(struct vm *vm);

/* ---- messages */

/* Send; @fds are sent along.  The flags word of the header is @flags. */
void vm_send(struct vm *vm, uint16_t command, uint32_t flags, const void *body, size_t len,
	     const int *fds, int nfds);

/* Receive a reply to the message sent last.  False: the server has closed the connection. */
bool vm_recv(struct vm *vm, uint16_t command, struct vm_reply *reply);

/* Both; returns the error of the reply. */
uint32_t vm_call(struct vm *vm, uint16_t command, const void *body, size_t len,
		 struct vm_reply *reply);

/* Answer what the server asks; called by all that wait.  Machines with by_hand set are left out. */
void vm_serve(void);

/* Let some time pass: @us, or until the server asks something. */
void vm_idle(struct vm *vm, unsigned int us);

/* The next question, which is not answered; false when there is none within @ms. */
bool vm_next_dma(struct vm *vm, struct vm_dma *dma, int ms);

/* Answer it: do it in memory, or say @error. */
void vm_answer(struct vm *vm, const struct vm_dma *dma, uint32_t error);

/* The server has closed the connection, or does so soon. */
bool vm_is_closed(struct vm *vm);

uint32_t vm_dma_map(struct vm *vm, uint64_t addr, uint64_t size, int fd, uint64_t offset,
		    uint32_t flags);
uint32_t vm_dma_unmap(struct vm *vm, uint64_t addr, uint64_t size);
uint32_t vm_set_irqs(struct vm *vm, uint32_t flags, uint32_t index, uint32_t start, uint32_t count,
		     const int *fds, int nfds);

/* Make an eventfd for a vector and wire it. */
void vm_wire(struct vm *vm, unsigned int vector);

/* Interrupts since the last call; waits up to @ms for the first. */
uint64_t vm_irqs(struct vm *vm, unsigned int vector, int ms);

/* ---- regions */

void vm_read(struct vm *vm, uint32_t region, uint64_t off, void *data, uint32_t len);
void vm_write(struct vm *vm, uint32_t region, uint64_t off, const void *data, uint32_t len);
uint32_t vm_r32(struct vm *vm, uint64_t off); /* BAR 0 */
void vm_w32(struct vm *vm, uint64_t off, uint32_t value);
void vm_w64(struct vm *vm, uint64_t off, uint64_t value);

/* ---- memory */

/* Bus address of @size zeroed bytes, whole pages. */
uint64_t vm_alloc(struct vm *vm, size_t size);
void *vm_at(struct vm *vm, uint64_t addr);

#endif
