// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The command queue: fetch, dispatch, complete.
 *
 * The slot size comes from each command's own header, so one device serves drivers of 64 and of
 * 128 bytes a slot.  Every command is answered, whatever it says: one that is not answered within
 * 15 s costs the driver its device.
 */
#include <errno.h>
#include <string.h>

#include "adapter/core/hw.h"
#include "adapter/pci/func.h"
#include "adapter/pci/hw.h"

enum {
	COMMANDS_IN_A_ROW = 16 /* a guest may have queued thousands, each of which takes its time */
};

int pci_cmdq_open(struct pci_func *func)
{
	struct pci_cmdq *q = &func->cmdq;
	uint32_t depth = pci_regs_get32(func, REG_CMDQ_DEPTH);
	uint64_t sq = pci_regs_addr(func, REG_CMDQ_SQ_ADDR_L);
	uint64_t cq = pci_regs_addr(func, REG_CMDQ_CQ_ADDR_L);

	if (depth < CMDQ_BLOCKS_MAX || depth > CMDQ_DEPTH_MAX || (depth & (depth - 1)) ||
	    cq % sizeof(uint64_t))
		return EINVAL;
	memset(q, 0, sizeof(*q));
	q->depth = depth;
	q->sq = sq;
	q->cq = cq;
	q->live = true;
	return 0;
}

void pci_cmdq_close(struct pci_func *func)
{
	pci_work_cancel(&func->cmdq_work);
	pci_job_cancel(&func->cmdq_job);
	memset(&func->cmdq, 0, sizeof(func->cmdq));
}

static void dead(struct pci_func *func, const char *why, uint64_t value)
{
	pci_func_complain(func, "command queue stops until the next reset: %s %#llx", why,
			  (unsigned long long)value);
	func->cmdq.live = false;
}

/* ------------------------------------------------------------------ completion */

static void fire(struct pci_func *func)
{
	func->cmdq.armed = false;
	pci_eq_comp(func, &func->eqs[0], 0, func->cmdq.pi);
}

static void complete(struct pci_func *func, const struct pci_cmd *cmd, uint16_t index, int err,
		     const uint64_t resp[2])
{
	struct pci_cmdq *q = &func->cmdq;
	uint64_t at = q->cq + (uint64_t)(q->pi & (q->depth - 1)) * EA_ENTRY_SIZE;
	uint32_t header =
		(uint32_t)(EA_PREP(EA_CQE_OPCODE, cmd->opcode) | EA_PREP(EA_CQE_QTYPE, CMDQ_QTYPE));
	size_t len = EA_ENTRY_SIZE;
	__be32 *cqe = pci_func_ptr(func, at, &len, true);

	if (!cqe || len < EA_ENTRY_SIZE) {
		dead(func, "no memory for a completion at", at);
		return;
	}
	if (err)
		header |= EA_SYN_GENERAL;
	if (!(q->pi & q->depth))
		header |= EA_CQE_OWNER;
	cqe[1] = htobe32(index);
	cqe[2] = htobe32((uint32_t)resp[0]);
	cqe[3] = htobe32((uint32_t)(resp[0] >> 32));
	cqe[4] = htobe32((uint32_t)resp[1]);
	cqe[5] = htobe32((uint32_t)(resp[1] >> 32));
	__atomic_store_n(&cqe[0], htobe32(header), __ATOMIC_RELEASE);
	q->pi++;
	if (q->armed)
		fire(func);
}

/*
 * An event only ever stands for a completion that was not seen when the queue was armed: the driver of Linux
 * 6.1 that finds none does not arm again.
 */
void pci_cmdq_cq_doorbell(struct pci_func *func, uint64_t value)
{
	struct pci_cmdq *q = &func->cmdq;

	if (!q->live || !(value & EA_CQDB_ARM))
		return;
	if ((q->pi - EA_FIELD(EA_CQDB_CI, value)) & EA_CQDB_CI)
		fire(func);
	else
		q->armed = true;
}

/* ------------------------------------------------------------------ dispatch */

static int run(struct pci_func *func, const struct pci_cmd *cmd, uint64_t resp[2])
{
	uint32_t min = 0;
	pci_cmd_fn fn = NULL;
	int err;

	if (cmd->sub == SUB_RDMA)
		fn = pci_cmd_rdma(cmd->opcode, &min);
	else if (cmd->sub == SUB_COMMON)
		fn = pci_cmd_common(cmd->opcode, &min);
	if (!fn)
		err = EOPNOTSUPP;
	else
		err = cmd->len < min ? EINVAL : fn(func, cmd, resp);
	if (err)
		pci_func_complain(func, "command %u/%u refused: %s", cmd->sub, cmd->opcode,
				  strerror(err));
	return err;
}

/* False when there is no reading on. */
static bool fetch(struct pci_func *func, uint16_t pi, struct pci_cmd *cmd, uint16_t *blocks)
{
	struct pci_cmdq *q = &func->cmdq;
	uint16_t left = (uint16_t)(pi - q->ci);
	uint64_t header = 0;
	uint16_t i;

	memset(cmd, 0, sizeof(*cmd));
	*blocks = 1;
	for (i = 0; i < *blocks; i++) {
		uint64_t at = q->sq + (uint64_t)((q->ci + i) & (q->depth - 1)) * EA_ENTRY_SIZE;

		if (!pci_func_mem_read(func, at, cmd->bytes + i * EA_ENTRY_SIZE, EA_ENTRY_SIZE)) {
			dead(func, "no memory for a command at", at);
			return false;
		}
		if (i)
			continue;
		header = ea_le64(cmd->bytes);
		*blocks = (uint16_t)(EA_FIELD(CMD_BLOCKS, header) + 1);
		if (*blocks > left || EA_FIELD(CMD_INDEX, header) != (uint16_t)(q->ci + *blocks)) {
			if (!header && !func->told_private) {
				func->told_private = true;
				pci_log(PCI_LOG_ERR, func->name,
					"the first command is all zeros: is guest memory shared "
					"(share=on)?");
			}
			/* where the next one begins is anybody's guess */
			*blocks = left;
			cmd->sub = UINT8_MAX;
			return true;
		}
	}
	cmd->len = *blocks * EA_ENTRY_SIZE;
	cmd->sub = (uint8_t)EA_FIELD(CMD_SUB, header);
	cmd->opcode = (uint8_t)EA_FIELD(CMD_OPCODE, header);
	return true;
}

/* Serve some commands; the rest when others had their turn. */
static void serve(struct pci_func *func)
{
	struct pci_cmdq *q = &func->cmdq;
	struct pci_cmd cmd;
	uint64_t resp[2];
	uint16_t blocks, index;
	int err, n;

	for (n = 0; n < COMMANDS_IN_A_ROW && q->live && q->ci != q->target; n++) {
		if (!fetch(func, q->target, &cmd, &blocks))
			return;
		index = q->ci;
		q->ci += blocks;
		q->commands++;
		resp[0] = 0;
		resp[1] = 0;
		err = run(func, &cmd, resp);
		complete(func, &cmd, index, err, resp);
	}
	if (q->live && q->ci != q->target)
		pci_work_queue(func->loop, &func->cmdq_work);
}

static void serve_job(struct pci_job *job)
{
	serve(container_of(job, struct pci_func, cmdq_job));
}

static void serve_work(struct pci_work *work)
{
	struct pci_func *func = container_of(work, struct pci_func, cmdq_work);

	pci_job_enter(func, &func->cmdq_job);
}

void pci_cmdq_sq_doorbell(struct pci_func *func, uint64_t value)
{
	struct pci_cmdq *q = &func->cmdq;
	uint16_t pi = (uint16_t)EA_FIELD(EA_SQDB_PI, value);

	if (!q->live)
		return;
	/* what was rung in shared memory before a command comes before it, as on a bus */
	if (pci_list_holds(&func->poll.place))
		pci_records_look(func);
	if ((uint16_t)(pi - q->ci) > q->depth) {
		dead(func, "producer index more than the depth ahead:", pi);
		return;
	}
	q->target = pi;
	func->cmdq_work.run = serve_work;
	func->cmdq_job.run = serve_job;
	serve(func);
}
