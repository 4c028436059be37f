/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The PCI function: what stands between a guest's driver and the device model.
 *
 * A function is made once and lives until the process ends; clients (virtual machines) come and go.  Between
 * two clients, and after each reset, it is as new.  All its functions run on the one thread of the
 * event loop; nothing a guest writes can make them fail otherwise than by an error completion, an
 * asynchronous event or a device that no longer answers until its next reset.
 */
#ifndef EA_PCI_FUNC_H
#define EA_PCI_FUNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "adapter/core/core.h"
#include "adapter/pci/config.h"
#include "adapter/pci/dma.h"
#include "adapter/pci/far.h"
#include "adapter/pci/irq.h"
#include "adapter/pci/log.h"
#include "adapter/pci/loop.h"

struct pci_fabric;
struct pci_session;
struct pci_wait;

enum {
	PCI_QBLOCKS = 4,
	PCI_MAX_QP = PCI_QBLOCKS * 1024,
	PCI_MAX_CQ = 2 * PCI_MAX_QP,
	PCI_MAX_MR = 2 * PCI_MAX_QP,
	PCI_MAX_CQE_SHIFT = 20,
	PCI_MAX_RQ_SHIFT = 15,
	PCI_MAX_MR_SHIFT = 40,
	PCI_MAX_GID_SHIFT = 4,
	PCI_MAX_AH_SHIFT = 10,
	PCI_EQS = 32, /* EQN 0 is the command EQ */
	PCI_DB_CONTEXTS = 512,
	PCI_NO_CONTEXT = -1,
	PCI_PAGE0 = 4096,
};

/* Names every bus address for kernel users; an index no driver allocates. */
#define PCI_DMA_LOCAL_KEY 0xffffff00u

struct pci_eq {
	bool live, armed;
	uint8_t shift; /* entries */
	uint8_t vector;
	uint16_t pi, ci; /* running */
	uint64_t addr;
	uint64_t *backlog; /* CEQs: a bit for each CQ whose event found no room; NULL: none */
};

struct pci_cmdq {
	bool live, armed;
	uint32_t depth;	 /* blocks of the SQ, entries of the CQ; a power of two */
	uint16_t ci;	 /* running, blocks */
	uint16_t target; /* up to where commands are there */
	uint32_t pi;	 /* running, completions */
	uint64_t sq, cq;
	uint64_t commands; /* served since INIT */
};

enum pci_ring {
	PCI_RING_SQ,
	PCI_RING_RQ,
	PCI_RING_CQ,
	PCI_RING_NOTHING,
};

/* A doorbell record: eight bytes of guest memory that say what was rung last. */
struct pci_record {
	const uint64_t *at; /* NULL: not reachable, or not aligned */
	uint64_t last;	    /* value seen last */
	uint64_t addr;
	uint32_t number;
	enum pci_ring kind;
};

struct pci_records {
	struct pci_record *list;
	uint32_t count, room;
	bool stale; /* the windows have changed */
};

/* What the host side keeps for a QP the core has. */
struct pci_qp {
	struct pci_wait *wait; /* its peer is being looked for */
	uint32_t cookie;
	int16_t context; /* whose doorbell pages ring it; PCI_NO_CONTEXT: the fixed ones */
	bool live;
	bool kernel;	       /* not a process's */
	struct pci_func *func; /* for the timer */
	struct pci_timer late; /* an RQ doorbell that is served later, see db.c */
	struct pci_job late_job;
	uint64_t late_value;
};

struct pci_func {
	const char *name; /* in messages */
	struct pci_loop *loop;
	struct pci_fabric *fabric;
	struct ea_dev *core;
	uint8_t mac[6];
	bool live;	   /* INIT was done */
	bool told_private; /* said that guest memory is not shared */
	bool may_map;	   /* clients are offered the doorbell pages as memory */
	bool trapped;	   /* this client sends doorbells by message all the same */
	int db_fd;	   /* the pages' file, which the client has; -1: it has not */
	uint32_t mtu;
	struct pci_session *session; /* the client; NULL: none */
	struct pci_far *far;	     /* guest memory is reached by messages; NULL: it is not */
	uint32_t stale_answers;	     /* to such messages, that nobody waits for any more */
	struct pci_dma dma;
	struct pci_irq irq;
	struct pci_config config;
	struct pci_cmdq cmdq;
	struct pci_work cmdq_work; /* commands that are still to be served */
	struct pci_job cmdq_job;
	struct pci_eq aeq;
	struct pci_eq eqs[PCI_EQS];
	struct pci_qp *qps;			 /* PCI_MAX_QP */
	int16_t *cq_context;			 /* PCI_MAX_CQ */
	uint64_t contexts[PCI_DB_CONTEXTS / 64]; /* bits in use */
	uint8_t page0[PCI_PAGE0];
	uint8_t bar2[PCI_BAR2_SIZE];
	struct pci_records records;
	struct pci_poll poll; /* of the records */
	struct pci_log_budget log;
};

/*
 * @name, @loop and @fabric must outlive the function.  @mac: of the guest's network device that carries its
 * TCP connections.  NULL with errno.
 */
struct pci_func *pci_func_create(const char *name, const uint8_t mac[6], struct pci_loop *loop,
				 struct pci_fabric *fabric);
void pci_func_destroy(struct pci_func *func);

/*
 * RESET: all objects dropped, all addresses forgotten, no interrupt any more.  Connections end for
 * their peers.  Before it returns the last DMA has been done.
 */
void pci_func_reset(struct pci_func *func);

/* A PCI reset: as RESET, and configuration space and masks as after power-up. */
void pci_func_reset_all(struct pci_func *func);

/* The client has gone: reset, windows unmapped, vectors unwired. */
void pci_func_client_gone(struct pci_func *func);

/* The table of windows is about to change or has changed. */
void pci_func_memory_changed(struct pci_func *func);

/* A doorbell at offset @off of BAR 0 that a message brought: rings at once or in its turn. */
void pci_func_doorbell(struct pci_func *func, uint32_t off, uint64_t value);
/* Rings. */
void pci_func_ring(struct pci_func *func, uint32_t off, uint64_t value);

/* As pci_dma_ptr(), wherever the memory is. */
void *pci_func_ptr(struct pci_func *func, uint64_t addr, size_t *len, bool write);

/* Copy whole ranges, over window borders too; false when a byte is not reachable (part may be done). */
bool pci_func_mem_read(struct pci_func *func, uint64_t addr, void *to, size_t len);
bool pci_func_mem_write(struct pci_func *func, uint64_t addr, const void *from, size_t len);

/* Size of a region (enum vfu_region); 0: not there. */
uint64_t pci_func_region_size(uint32_t region);

/* @off + @len lies in the region. */
void pci_func_read(struct pci_func *func, uint32_t region, uint64_t off, uint8_t *data, size_t len);
void pci_func_write(struct pci_func *func, uint32_t region, uint64_t off, const uint8_t *data,
		    size_t len);

/* A limited message about what the guest did. */
void pci_func_complain(struct pci_func *func, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- regs.c: page 0 of BAR 0; @off + @len <= PCI_PAGE0 */
void pci_regs_init(struct pci_func *func);
void pci_regs_read(struct pci_func *func, uint32_t off, uint8_t *data, size_t len);
void pci_regs_write(struct pci_func *func, uint32_t off, const uint8_t *data, size_t len);
void pci_regs_ring(struct pci_func *func, uint32_t off, uint64_t value); /* a doorbell */
uint32_t pci_regs_get32(const struct pci_func *func, uint32_t off);
uint64_t pci_regs_addr(const struct pci_func *func, uint32_t low); /* a pair of halves */

/* ---- db.c: the other pages of BAR 0 */

/* A doorbell by message. */
void pci_db_write(struct pci_func *func, uint32_t page, uint64_t value);

/* Ring for queue @number if @value names it. */
void pci_db_ring(struct pci_func *func, enum pci_ring kind, uint32_t number, uint64_t value);

/* The file for a client that maps the doorbell pages; made anew for each client.  -1: not offered, or no memory. */
int pci_db_file(struct pci_func *func);

/* The context whose pages are these; PCI_NO_CONTEXT when there is none. */
int pci_db_find_sq_rq(const struct pci_func *func, uint32_t sdb, uint32_t rdb);
int pci_db_find_cq(const struct pci_func *func, uint32_t cdb);

/* Page numbers of a new context; ENOSPC. */
struct pci_db_pages {
	uint16_t sdb, rdb, cdb;
};
int pci_db_alloc(struct pci_func *func, struct pci_db_pages *pages);
int pci_db_free(struct pci_func *func, const struct pci_db_pages *pages); /* ENOENT */

/* ---- record.c */

/* Watch a queue's record at bus address @addr.  ENOMEM. */
int pci_record_add(struct pci_func *func, enum pci_ring kind, uint32_t number, uint64_t addr);
void pci_record_del(struct pci_func *func, enum pci_ring kind, uint32_t number);
void pci_records_clear(struct pci_func *func);

/* Take what was rung so far. */
bool pci_records_look(struct pci_func *func);

/* Records are polled only while a client maps the pages and there are queues. */
void pci_records_poll(struct pci_func *func);

/* ---- eq.c */

/* EINVAL: @shift or alignment; ENOMEM.  Starts armed, empty.  @ceq: keeps events that find no room. */
int pci_eq_open(struct pci_eq *eq, uint64_t addr, uint8_t shift, uint8_t vector, bool ceq);
void pci_eq_close(struct pci_eq *eq);

/* An event of CQ @cqn; of no effect on a queue that is not there. */
void pci_eq_comp(struct pci_func *func, struct pci_eq *eq, uint32_t cqn, uint32_t pi);
void pci_eq_async(struct pci_func *func, uint8_t type, uint32_t number);
void pci_eq_doorbell(struct pci_func *func, struct pci_eq *eq, uint64_t value);

/* ---- cmdq.c */

/* EINVAL: the registers make no queue. */
int pci_cmdq_open(struct pci_func *func);
void pci_cmdq_close(struct pci_func *func);
void pci_cmdq_sq_doorbell(struct pci_func *func, uint64_t value);
void pci_cmdq_cq_doorbell(struct pci_func *func, uint64_t value);

/* A command, copied out of guest memory; what the guest did not send is 0. */
struct pci_cmd {
	uint8_t sub, opcode;
	uint32_t len;
	uint8_t bytes[256];
};

/* A command's work: 0, or a positive errno, which becomes an error completion. */
typedef int (*pci_cmd_fn)(struct pci_func *func, const struct pci_cmd *cmd, uint64_t resp[2]);

/* Null when there is no such command.  *@min: bytes it must have. */
pci_cmd_fn pci_cmd_rdma(uint8_t opcode, uint32_t *min);	  /* cmd_rdma.c */
pci_cmd_fn pci_cmd_common(uint8_t opcode, uint32_t *min); /* cmd_common.c */

/* Drop what cmd_rdma.c keeps for QPs and CQs. */
void pci_objects_forget(struct pci_func *func);

#endif
