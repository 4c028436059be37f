// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Commands of the RDMA group: from the driver's structures to the device model's objects.
 */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "adapter/core/hw.h"
#include "adapter/pci/fabric.h"
#include "adapter/pci/func.h"
#include "adapter/pci/hw.h"

enum {
	PAGE_SHIFT = 12,
	QP_LEN_SHORT = 64, /* Linux 6.1 */
	QP_LEN_LONG = 120, /* with page lists, doorbell pages and type */
	INLINE_PAGES = 4,
	STAG_INDEX_SHIFT = 8,
};

static uint32_t word(const struct pci_cmd *cmd, uint32_t off)
{
	return ea_le32(cmd->bytes + off);
}

static uint64_t dword(const struct pci_cmd *cmd, uint32_t off)
{
	return ea_le64(cmd->bytes + off);
}

static int query_device(struct pci_func *func, const struct pci_cmd *cmd, uint64_t resp[2])
{
	(void)func;
	(void)cmd;
	resp[0] = EA_PREP(CAP0_MAX_GID, PCI_MAX_GID_SHIFT) |
		  EA_PREP(CAP0_MAX_CQE, PCI_MAX_CQE_SHIFT) |
		  EA_PREP(CAP0_FLAGS, CAP_FLAG_ATOMIC | CAP_FLAG_MTT_VA | CAP_FLAG_EXTEND_DB) |
		  EA_PREP(CAP0_MAX_RECV_WR, PCI_MAX_RQ_SHIFT) |
		  EA_PREP(CAP0_MAX_AH, PCI_MAX_AH_SHIFT) |
		  EA_PREP(CAP0_MAX_MR_SIZE, PCI_MAX_MR_SHIFT);
	resp[1] = EA_PREP(CAP1_LOCAL_KEY, PCI_DMA_LOCAL_KEY) | EA_PREP(CAP1_CC, CC_DEFAULT) |
		  EA_PREP(CAP1_QBLOCK, PCI_QBLOCKS);
	return 0;
}

/* ------------------------------------------------------------------ completion queues */

static int create_cq(struct pci_func *func, const struct pci_cmd *cmd, uint64_t resp[2])
{
	uint32_t cfg0 = word(cmd, 8), cfg1 = word(cmd, 20), cfg2 = word(cmd, 36);
	uint64_t addr = word(cmd, 12) | (uint64_t)word(cmd, 16) << 32;
	struct ea_cq_attr attr = {
		.cqn = EA_FIELD(CQ_CFG0_CQN, cfg0),
		.eqn = EA_FIELD(CQ_CFG1_EQN, cfg1),
		.pages = {
			.page_shift = EA_FIELD(CQ_CFG0_PAGE, cfg0) + PAGE_SHIFT,
			.npages = EA_FIELD(CQ_CFG1_COUNT, cfg1),
			.first_off = word(cmd, 32),
			.addr = { addr },
		},
	};
	int context = PCI_NO_CONTEXT;
	int err;

	(void)resp;
	if (EA_FIELD(CQ_CFG0_DEPTH, cfg0) > PCI_MAX_CQE_SHIFT)
		return EINVAL;
	attr.depth_shift = EA_FIELD(CQ_CFG0_DEPTH, cfg0);
	/* Linux 6.1 says "array" for a single page, too, but gives the page. */
	if (attr.pages.npages == 1)
		attr.pages.form = EA_PAGES_INLINE;
	else if (cfg1 & CQ_CFG1_LEVEL)
		attr.pages.form = EA_PAGES_ARRAY;
	else
		return EINVAL;
	if (!attr.eqn || attr.eqn >= PCI_EQS || !func->eqs[attr.eqn].live)
		return ENOENT;
	if (cfg1 & CQ_CFG1_DB_CFG) {
		context = pci_db_find_cq(func, EA_FIELD(CQ_CFG2_DB, cfg2));
		if (context == PCI_NO_CONTEXT)
			return ENOENT;
	}
	err = ea_cq_create(func->core, &attr);
	if (err)
		return err;
	err = pci_record_add(func, PCI_RING_CQ, attr.cqn, dword(cmd, 24));
	if (err) {
		ea_cq_destroy(func->core, attr.cqn);
		return err;
	}
	func->cq_context[attr.cqn] = (int16_t)context;
	return 0;
}

static int destroy_cq(struct pci_func *func, const struct pci_cmd *cmd, uint64_t resp[2])
{
	uint32_t cqn = word(cmd, 8);
	uint32_t i;
	int err;

	(void)resp;
	err = ea_cq_destroy(func->core, cqn);
	if (err)
		return err;
	pci_record_del(func, PCI_RING_CQ, cqn);
	for (i = 1; i < PCI_EQS; i++)
		if (func->eqs[i].backlog)
			func->eqs[i].backlog[cqn / 64] &= ~(1ull << cqn % 64);
	return 0;
}

/* ------------------------------------------------------------------ queue pairs */

/* @first: place of entry 0; @more: of entries 1..3, 0 when the command has none. */
static int ring_pages(const struct pci_cmd *cmd, uint32_t page, uint32_t mtt, uint32_t first,
		      uint32_t more, struct ea_pages *pages)
{
	int i;

	memset(pages, 0, sizeof(*pages));
	pages->page_shift = page + PAGE_SHIFT;
	pages->npages = EA_FIELD(QP_MTT_COUNT, mtt);
	pages->first_off = mtt & QP_MTT_OFFSET;
	pages->addr[0] = dword(cmd, first);
	if (mtt & QP_MTT_LEVEL) {
		pages->form = EA_PAGES_ARRAY;
		return 0;
	}
	pages->form = EA_PAGES_INLINE;
	if (pages->npages > (more ? INLINE_PAGES : 1))
		return EINVAL;
	for (i = 1; i < (int)pages->npages; i++)
		pages->addr[i] = dword(cmd, more + (uint32_t)(i - 1) * 8);
	return 0;
}

/* Never that of another QP of this function, and nobody's guess elsewhere. */
static uint32_t new_cookie(const struct pci_func *func)
{
	uint32_t cookie, i;

	do {
		if (getrandom(&cookie, sizeof(cookie), GRND_NONBLOCK) != sizeof(cookie))
			cookie = (uint32_t)pci_loop_now() * 2654435761u;
		for (i = 0; i < PCI_MAX_QP; i++)
			if (func->qps[i].live && func->qps[i].cookie == cookie)
				break;
	} while (!cookie || i < PCI_MAX_QP);
	return cookie;
}

static int create_qp(struct pci_func *func, const struct pci_cmd *cmd, uint64_t resp[2])
{
	uint32_t cfg0 = word(cmd, 8), cfg1 = word(cmd, 12);
	uint32_t scq = word(cmd, 16), rcq = word(cmd, 20), db = 0;
	bool is_long = cmd->len >= QP_LEN_LONG;
	struct ea_qp_attr attr = {
		.qpn = EA_FIELD(QP_CFG0_QPN, cfg0),
		.pdn = EA_FIELD(QP_CFG1_PD, cfg1),
		.scqn = EA_FIELD(QP_CQ_CQN, scq),
		.rcqn = EA_FIELD(QP_CQ_CQN, rcq),
	};
	int context = PCI_NO_CONTEXT;
	struct pci_qp *qp;
	int err;

	if (EA_FIELD(QP_CFG0_SQ_SHIFT, cfg0) > 15 || EA_FIELD(QP_CFG1_RQ_SHIFT, cfg1) > 15)
		return EINVAL;
	attr.sq_shift = EA_FIELD(QP_CFG0_SQ_SHIFT, cfg0);
	attr.rq_shift = EA_FIELD(QP_CFG1_RQ_SHIFT, cfg1);
	/* a process cannot have this page size, so it cannot name the key for all memory either */
	attr.dma_key_ok = EA_FIELD(QP_CQ_PAGE, scq) == QP_PAGE_KERNEL &&
			  EA_FIELD(QP_CQ_PAGE, rcq) == QP_PAGE_KERNEL;
	err = ring_pages(cmd, EA_FIELD(QP_CQ_PAGE, scq), word(cmd, 40), 24, is_long ? 64 : 0,
			 &attr.sq);
	if (!err)
		err = ring_pages(cmd, EA_FIELD(QP_CQ_PAGE, rcq), word(cmd, 44), 32,
				 is_long ? 88 : 0, &attr.rq);
	if (err)
		return err;
	if (is_long && EA_FIELD(QP_CFG2_TYPE, word(cmd, 116)) != QP_TYPE_RC)
		return EOPNOTSUPP;
	if (scq & QP_CQ_DB_CFG) {
		if (!is_long)
			return EINVAL;
		db = word(cmd, 112);
		context = pci_db_find_sq_rq(func, EA_FIELD(QP_DB_SQ, db), EA_FIELD(QP_DB_RQ, db));
		if (context == PCI_NO_CONTEXT)
			return ENOENT;
	}
	err = ea_qp_create(func->core, &attr);
	if (err)
		return err;
	/* receives first: what answers a send must find its place */
	err = pci_record_add(func, PCI_RING_RQ, attr.qpn, dword(cmd, 56));
	if (err)
		goto err_qp;
	err = pci_record_add(func, PCI_RING_SQ, attr.qpn, dword(cmd, 48));
	if (err)
		goto err_record;
	qp = &func->qps[attr.qpn];
	qp->cookie = new_cookie(func);
	qp->context = (int16_t)context;
	qp->wait = NULL;
	qp->kernel = attr.dma_key_ok;
	qp->func = func;
	qp->live = true;
	resp[0] = qp->cookie;
	return 0;

err_record:
	pci_record_del(func, PCI_RING_RQ, attr.qpn);
err_qp:
	ea_qp_destroy(func->core, attr.qpn);
	return err;
}

/* Nothing that was begun for the QP comes back to it. */
static void qp_quiet(struct pci_func *func, uint32_t qpn)
{
	struct pci_qp *qp = &func->qps[qpn];

	pci_fabric_leave(func, qpn);
	pci_timer_cancel(&qp->late);
	pci_job_cancel(&qp->late_job);
}

static int destroy_qp(struct pci_func *func, const struct pci_cmd *cmd, uint64_t resp[2])
{
	uint32_t qpn = word(cmd, 8);
	int err;

	(void)resp;
	if (qpn >= PCI_MAX_QP || !func->qps[qpn].live)
		return ENOENT;
	qp_quiet(func, qpn);
	pci_record_del(func, PCI_RING_SQ, qpn);
	pci_record_del(func, PCI_RING_RQ, qpn);
	err = ea_qp_destroy(func->core, qpn);
	memset(&func->qps[qpn], 0, sizeof(func->qps[qpn]));
	return err;
}

static int to_rts(struct pci_func *func, const struct pci_cmd *cmd, uint32_t qpn)
{
	struct pci_fabric_key key = {
		.own_cookie = func->qps[qpn].cookie,
		.peer_cookie = word(cmd, 12),
		.send_nxt = word(cmd, 28),
		.recv_nxt = word(cmd, 32),
	};
	enum ea_qp_state state = ea_qp_state(ea_qp_find(func->core, qpn));

	if (state == EA_QP_RTS || state > EA_QP_CLOSING)
		return EINVAL;
	if (EA_FIELD(MOD_CC, word(cmd, 8)) >= CC_COUNT)
		return EINVAL;
	memcpy(&key.dip, cmd->bytes + 16, sizeof(key.dip));
	memcpy(&key.sip, cmd->bytes + 20, sizeof(key.sip));
	memcpy(&key.sport, cmd->bytes + 24, sizeof(key.sport));
	memcpy(&key.dport, cmd->bytes + 26, sizeof(key.dport));
	return pci_fabric_join(func, qpn, &key);
}

static int modify_qp(struct pci_func *func, const struct pci_cmd *cmd, uint64_t resp[2])
{
	uint32_t cfg = word(cmd, 8);
	uint32_t qpn = EA_FIELD(MOD_QPN, cfg);
	uint32_t state = EA_FIELD(MOD_STATE, cfg);

	(void)resp;
	if (qpn >= PCI_MAX_QP || !func->qps[qpn].live)
		return ENOENT;
	if (state == EA_QP_RTS)
		return to_rts(func, cmd, qpn);
	if (state != EA_QP_CLOSING && state != EA_QP_TERMINATE && state != EA_QP_ERROR)
		return EINVAL;
	pci_fabric_leave(func, qpn);
	return ea_qp_modify(func->core, qpn, (enum ea_qp_state)state);
}

static int reflush(struct pci_func *func, const struct pci_cmd *cmd, uint64_t resp[2])
{
	(void)resp;
	return ea_qp_reflush(func->core, word(cmd, 8), (uint16_t)word(cmd, 12),
			     (uint16_t)word(cmd, 16));
}

/* ------------------------------------------------------------------ memory regions */

/*
 * Commands of the first version carry 32 bits of the length.  The page count tells the rest: two pages are 2 GiB at
 * most, so only one length fits.
 */
static uint64_t whole_length(uint32_t low, const struct ea_pages *pages)
{
	uint64_t most = (pages->npages << pages->page_shift) - pages->first_off;
	uint64_t len;

	if (pages->npages << pages->page_shift < pages->first_off)
		return low;
	len = (most & ~0xffffffffull) | low;
	if (len > most && len >= 1ull << 32)
		len -= 1ull << 32;
	return len;
}

static int reg_mr(struct pci_func *func, const struct pci_cmd *cmd, uint64_t resp[2])
{
	uint32_t cfg0 = word(cmd, 8), cfg1 = word(cmd, 12), cfg2 = word(cmd, 28);
	uint32_t version = EA_FIELD(MR_CFG0_VERSION, cfg0);
	uint32_t level = EA_FIELD(MR_CFG2_LEVEL, cfg2);
	struct ea_mr_attr attr = {
		.stag = (uint32_t)(EA_FIELD(MR_CFG0_INDEX, cfg0) << STAG_INDEX_SHIFT |
				   EA_FIELD(MR_CFG0_KEY, cfg0)),
		.pdn = EA_FIELD(MR_CFG1_PD, cfg1),
		.access = EA_FIELD(MR_CFG1_ACCESS, cfg1),
		.type = (enum ea_mr_type)EA_FIELD(MR_CFG1_TYPE, cfg1),
	};
	struct ea_pages *pages = &attr.pages;
	uint32_t i;

	(void)resp;
	if (version > 1)
		return EOPNOTSUPP;
	if (attr.type == EA_MR_DMA)
		return ea_mr_reg(func->core, &attr);

	pages->page_shift = EA_FIELD(MR_CFG2_PAGE, cfg2);
	pages->npages = EA_FIELD(MR_CFG2_COUNT, cfg2);
	if (version) {
		if (EA_FIELD(MR_CFG2_NODE, cfg2))
			return EOPNOTSUPP;
		pages->npages |= (uint64_t)word(cmd, 44) << 20;
	}
	/* the two high words take the place of the second address */
	if (version && !level && pages->npages > 1)
		return EINVAL;
	pages->form = (enum ea_pages_form)(EA_PAGES_INLINE + level);
	for (i = 0; i < (level || version ? 1 : INLINE_PAGES); i++)
		pages->addr[i] = dword(cmd, 32 + i * 8);
	if (pages->page_shift < PAGE_SHIFT || pages->page_shift > 30)
		return EINVAL;
	if (attr.type == EA_MR_FRMR)
		return ea_mr_reg(func->core, &attr);

	attr.start = dword(cmd, 16);
	pages->first_off = attr.start & ((1ull << pages->page_shift) - 1);
	attr.len = version ? word(cmd, 24) | (uint64_t)word(cmd, 40) << 32 :
			     whole_length(word(cmd, 24), pages);
	return ea_mr_reg(func->core, &attr);
}

static int dereg_mr(struct pci_func *func, const struct pci_cmd *cmd, uint64_t resp[2])
{
	(void)resp;
	return ea_mr_dereg(func->core, (uint32_t)EA_FIELD(MR_CFG0_INDEX, word(cmd, 8))
					       << STAG_INDEX_SHIFT);
}

/* ------------------------------------------------------------------ table */

/* GIDs, address handles and QUERY_QP belong to RoCEv2, which register DEV_PROTO does not offer. */
pci_cmd_fn pci_cmd_rdma(uint8_t opcode, uint32_t *min)
{
	static const struct {
		pci_cmd_fn fn;
		uint32_t min;
	} table[] = {
		[CMD_QUERY_DEVICE] = { query_device, 8 },
		[CMD_CREATE_QP] = { create_qp, QP_LEN_SHORT },
		[CMD_DESTROY_QP] = { destroy_qp, 16 },
		[CMD_MODIFY_QP] = { modify_qp, 40 },
		[CMD_CREATE_CQ] = { create_cq, 40 },
		[CMD_DESTROY_CQ] = { destroy_cq, 16 },
		[CMD_REFLUSH] = { reflush, 24 },
		[CMD_REG_MR] = { reg_mr, 64 },
		[CMD_DEREG_MR] = { dereg_mr, 16 },
	};

	if (opcode >= sizeof(table) / sizeof(table[0]))
		return NULL;
	*min = table[opcode].min;
	return table[opcode].fn;
}

void pci_objects_forget(struct pci_func *func)
{
	uint32_t i;

	for (i = 0; i < PCI_MAX_QP; i++)
		if (func->qps[i].live)
			qp_quiet(func, i);
	memset(func->qps, 0, PCI_MAX_QP * sizeof(*func->qps));
	memset(func->cq_context, 0, PCI_MAX_CQ * sizeof(*func->cq_context));
	pci_records_clear(func);
}
