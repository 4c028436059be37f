// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The doorbell pages of BAR 0, and who may ring where.  A client that maps them rings without a message; what was
 * rung is then in the doorbell records (record.c), and nobody reads the pages.
 *
 * Pages 1..127 are those of Linux 6.1 and of the kernel: kind by page, everybody's.  From PAGE_EXT_FIRST on each
 * context that asked with ALLOC_DB has three pages of its own; a queue that was created with
 * such pages is rung on them only, one without on the fixed pages only.  So a process cannot ring
 * for another one's queue, nor for the kernel's.
 *
 * The driver that uses ALLOC_DB maps two of the pages crosswise: what it was given as RQ page is rung for CQs, and
 * what it was given as CQ page for RQs.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "adapter/core/hw.h"
#include "adapter/pci/func.h"
#include "adapter/pci/hw.h"

enum {
	PAGES_OF_CONTEXT = 3,
	SDB = 0,
	RDB = 1,
	CDB = 2,
};

_Static_assert((PAGE_EXT_FIRST + PCI_DB_CONTEXTS * PAGES_OF_CONTEXT) << DB_PAGE_SHIFT <=
		       PCI_BAR0_SIZE,
	       "doorbell pages lie in BAR 0");

static bool in_use(const struct pci_func *func, uint32_t context)
{
	return context < PCI_DB_CONTEXTS && func->contexts[context / 64] >> context % 64 & 1;
}

static enum pci_ring fixed_kind(uint32_t page)
{
	if (page >= PAGE_SQ_FIRST && page <= PAGE_SQ_LAST)
		return PCI_RING_SQ;
	if (page >= PAGE_RQ_FIRST && page <= PAGE_RQ_LAST)
		return PCI_RING_RQ;
	return page <= PAGE_CQ_LAST ? PCI_RING_CQ : PCI_RING_NOTHING;
}

static enum pci_ring own_kind(uint32_t page)
{
	switch ((page - PAGE_EXT_FIRST) % PAGES_OF_CONTEXT) {
	case SDB:
		return PCI_RING_SQ;
	case RDB:
		return PCI_RING_CQ;
	default:
		return PCI_RING_RQ;
	}
}

static bool qp_is_of(const struct pci_func *func, uint32_t qpn, int context)
{
	return qpn < PCI_MAX_QP && func->qps[qpn].live && func->qps[qpn].context == context;
}

/*
 * The kernel driver notes what a receive request belongs to only after it has rung for it.  A QP that has
 * stopped completes the request in the doorbell, and with a monitor that waits for the server's
 * answer the completion would always be there first, and be taken for another's.
 */
static const uint64_t late_ns = 10000000;

static void late_run(struct pci_job *job)
{
	struct pci_qp *qp = container_of(job, struct pci_qp, late_job);

	ea_db_rq(qp->func->core, qp->late_value);
}

static void ring_late(struct pci_timer *timer)
{
	struct pci_qp *qp = container_of(timer, struct pci_qp, late);

	pci_job_enter(qp->func, &qp->late_job);
}

static void ring_rq(struct pci_func *func, uint32_t qpn, uint64_t value)
{
	struct pci_qp *qp = &func->qps[qpn];

	if (!qp->kernel || ea_qp_state(ea_qp_find(func->core, qpn)) < EA_QP_CLOSING) {
		ea_db_rq(func->core, value);
		return;
	}
	qp->late_value = value;
	qp->late.fire = ring_late;
	qp->late_job.run = late_run;
	pci_timer_set(func->loop, &qp->late, late_ns);
}

void pci_db_ring(struct pci_func *func, enum pci_ring kind, uint32_t number, uint64_t value)
{
	switch (kind) {
	case PCI_RING_SQ:
		if (EA_FIELD(EA_SQDB_QPN, value) == number)
			ea_db_sq(func->core, value);
		break;
	case PCI_RING_RQ:
		if (EA_FIELD(EA_RQDB_QPN, value) == number)
			ring_rq(func, number, value);
		break;
	case PCI_RING_CQ:
		if (EA_FIELD(EA_CQDB_CQN, value) == number)
			ea_db_cq(func->core, value);
		break;
	case PCI_RING_NOTHING:
		break;
	}
}

/* Whom a doorbell names, and whether it may be rung there. */
static bool may_ring(const struct pci_func *func, enum pci_ring kind, int context, uint64_t value,
		     uint32_t *number)
{
	switch (kind) {
	case PCI_RING_SQ:
		*number = (uint32_t)EA_FIELD(EA_SQDB_QPN, value);
		return qp_is_of(func, *number, context);
	case PCI_RING_RQ:
		*number = (uint32_t)EA_FIELD(EA_RQDB_QPN, value);
		return qp_is_of(func, *number, context);
	case PCI_RING_CQ:
		*number = (uint32_t)EA_FIELD(EA_CQDB_CQN, value);
		return *number < PCI_MAX_CQ && func->cq_context[*number] == context;
	default:
		return false;
	}
}

void pci_db_write(struct pci_func *func, uint32_t page, uint64_t value)
{
	int context = PCI_NO_CONTEXT;
	enum pci_ring kind;
	uint32_t number;

	/* a client that maps has no reason to send these, so one that sends does not map */
	if (!func->trapped) {
		func->trapped = true;
		pci_records_poll(func);
	}
	if (!func->live)
		return;
	if (page < PAGE_EXT_FIRST) {
		kind = fixed_kind(page);
	} else {
		kind = own_kind(page);
		context = (int)(page - PAGE_EXT_FIRST) / PAGES_OF_CONTEXT;
		if (!in_use(func, (uint32_t)context))
			return;
	}
	if (may_ring(func, kind, context, value, &number))
		pci_db_ring(func, kind, number, value);
}

int pci_db_file(struct pci_func *func)
{
	int fd;

	if (!func->may_map || func->db_fd >= 0)
		return func->db_fd;
	fd = memfd_create("erdma doorbells", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	/* the client has no use for another size */
	if (ftruncate(fd, PCI_BAR0_SIZE) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		close(fd);
		return -1;
	}
	func->db_fd = fd;
	pci_records_poll(func);
	return fd;
}

/* ------------------------------------------------------------------ contexts */

static uint32_t page_of(uint32_t context, uint32_t which)
{
	return PAGE_EXT_FIRST + context * PAGES_OF_CONTEXT + which;
}

/* The context that @page is page @which of. */
static int find(const struct pci_func *func, uint32_t page, uint32_t which)
{
	uint32_t context;

	if (page < PAGE_EXT_FIRST || (page - PAGE_EXT_FIRST) % PAGES_OF_CONTEXT != which)
		return PCI_NO_CONTEXT;
	context = (page - PAGE_EXT_FIRST) / PAGES_OF_CONTEXT;
	return in_use(func, context) ? (int)context : PCI_NO_CONTEXT;
}

int pci_db_find_sq_rq(const struct pci_func *func, uint32_t sdb, uint32_t rdb)
{
	int context = find(func, sdb, SDB);

	return context == find(func, rdb, RDB) ? context : PCI_NO_CONTEXT;
}

int pci_db_find_cq(const struct pci_func *func, uint32_t cdb)
{
	return find(func, cdb, CDB);
}

int pci_db_alloc(struct pci_func *func, struct pci_db_pages *pages)
{
	uint32_t i;

	for (i = 0; i < PCI_DB_CONTEXTS && in_use(func, i); i++)
		;
	if (i == PCI_DB_CONTEXTS)
		return ENOSPC;
	func->contexts[i / 64] |= 1ull << i % 64;
	pages->sdb = (uint16_t)page_of(i, SDB);
	pages->rdb = (uint16_t)page_of(i, RDB);
	pages->cdb = (uint16_t)page_of(i, CDB);
	return 0;
}

int pci_db_free(struct pci_func *func, const struct pci_db_pages *pages)
{
	int context = pci_db_find_sq_rq(func, pages->sdb, pages->rdb);

	if (context == PCI_NO_CONTEXT || context != pci_db_find_cq(func, pages->cdb))
		return ENOENT;
	func->contexts[context / 64] &= ~(1ull << context % 64);
	return 0;
}
