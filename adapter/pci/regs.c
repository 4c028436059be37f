// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The registers: page 0 of BAR 0.  What the driver writes is kept as bytes and looked at when INIT is
 * written; doorbells act at once.
 */
#include <string.h>

#include "adapter/core/hw.h"
#include "adapter/pci/func.h"
#include "adapter/pci/hw.h"

static void set32(struct pci_func *func, uint32_t off, uint32_t value)
{
	__le32 le = htole32(value);

	memcpy(func->page0 + off, &le, sizeof(le));
}

static void set64(struct pci_func *func, uint32_t off, uint64_t value)
{
	__le64 le = htole64(value);

	memcpy(func->page0 + off, &le, sizeof(le));
}

uint32_t pci_regs_get32(const struct pci_func *func, uint32_t off)
{
	return ea_le32(func->page0 + off);
}

uint64_t pci_regs_addr(const struct pci_func *func, uint32_t low)
{
	return ea_le64(func->page0 + low);
}

void pci_regs_init(struct pci_func *func)
{
	const uint8_t *m = func->mac;

	memset(func->page0, 0, sizeof(func->page0));
	set32(func, REG_VERSION, DEV_VERSION);
	set32(func, REG_DEV_PROTO, DEV_PROTO_IWARP);
	set32(func, REG_DEV_ST, DEV_ST_RESET);
	set32(func, REG_MAC_L,
	      (uint32_t)m[2] << 24 | (uint32_t)m[3] << 16 | (uint32_t)m[4] << 8 | m[5]);
	set32(func, REG_MAC_H, (uint32_t)m[0] << 8 | m[1]);
	/* no direct-WQE pages: each context of Linux 6.1 rings on the shared page */
	set32(func, REG_GRP_NUM, 0);
}

void pci_regs_read(struct pci_func *func, uint32_t off, uint8_t *data, size_t len)
{
	struct ea_stats stats;

	if (off < REG_EQ_DB && off + len > REG_STAT_TX_IN_PKTS) {
		ea_dev_stats(func->core, &stats);
		set64(func, REG_STAT_TX_IN_PKTS, stats.tx_msgs);
		set64(func, REG_STAT_TX_OUT_PKTS, stats.tx_msgs);
		set64(func, REG_STAT_TX_OUT_BYTES, stats.tx_bytes);
		set64(func, REG_STAT_RX_PKTS, stats.rx_msgs);
		set64(func, REG_STAT_RX_BYTES, stats.rx_bytes);
		set64(func, REG_STAT_RX_DROP, stats.rx_drops);
	}
	memcpy(data, func->page0 + off, len);
}

static uint8_t log2_of(uint32_t n)
{
	return n && !(n & (n - 1)) ? (uint8_t)__builtin_ctz(n) : UINT8_MAX;
}

/* A client that gives its memory without descriptors is asked for each byte. */
static int reach_queues(struct pci_func *func)
{
	int err;

	if (!pci_far_is(func, func->cmdq.sq)) {
		pci_far_stop(func);
		return 0;
	}
	if (func->db_fd >= 0 && !func->trapped)
		pci_func_complain(func, "the client keeps its memory to itself: doorbells that its "
					"guest writes to shared pages are not seen (-b trapped)");
	err = pci_far_start(func);
	if (err)
		pci_func_complain(func, "INIT: no thread for DMA by message: %s", strerror(err));
	return err;
}

static void dev_init(struct pci_func *func)
{
	uint8_t aeq_shift = log2_of(pci_regs_get32(func, REG_AEQ_DEPTH));
	uint8_t eq_shift = log2_of(pci_regs_get32(func, REG_CMDQ_EQ_DEPTH));
	uint8_t given[REG_RECORDS_END];

	if (func->live) {
		/* a guest that came back without a reset; its new addresses are in place already */
		memcpy(given, func->page0, sizeof(given));
		pci_func_reset(func);
		memcpy(func->page0, given, sizeof(given));
		set32(func, REG_DEV_ST, DEV_ST_RESET);
	}
	if (pci_eq_open(&func->aeq, pci_regs_addr(func, REG_AEQ_ADDR_L), aeq_shift, 0, false) ||
	    pci_eq_open(&func->eqs[0], pci_regs_addr(func, REG_CMDQ_EQ_ADDR_L), eq_shift, 0,
			false) ||
	    pci_cmdq_open(func)) {
		pci_func_complain(
			func,
			"INIT with queues that cannot be: command depth %u, command EQ depth %u, "
			"AEQ depth %u; the function does not start",
			pci_regs_get32(func, REG_CMDQ_DEPTH),
			pci_regs_get32(func, REG_CMDQ_EQ_DEPTH),
			pci_regs_get32(func, REG_AEQ_DEPTH));
		goto err_queues;
	}
	if (reach_queues(func))
		goto err_queues;
	func->live = true;
	set32(func, REG_DEV_ST, DEV_ST_INIT);
	return;

err_queues:
	pci_cmdq_close(func);
	pci_eq_close(&func->aeq);
	pci_eq_close(&func->eqs[0]);
}

void pci_regs_ring(struct pci_func *func, uint32_t off, uint64_t value)
{
	if (!func->live)
		return;
	if (off == REG_CMDQ_SQDB)
		pci_cmdq_sq_doorbell(func, value);
	else if (off == REG_CMDQ_CQDB)
		pci_cmdq_cq_doorbell(func, value);
	else if (off == REG_AEQ_DB)
		pci_eq_doorbell(func, &func->aeq, value);
	else if (off >= REG_EQ_DB && off < REG_EQ_DB_END)
		pci_eq_doorbell(func, &func->eqs[(off - REG_EQ_DB) / sizeof(value)], value);
}

static bool is_storage(uint32_t off, size_t len)
{
	if (off >= REG_CMDQ_SQ_ADDR_L && off + len <= REG_GRP_NUM)
		return true;
	return off >= REG_RECORDS && off + len <= REG_RECORDS_END;
}

void pci_regs_write(struct pci_func *func, uint32_t off, const uint8_t *data, size_t len)
{
	uint32_t ctrl;

	if ((len != sizeof(uint32_t) && len != sizeof(uint64_t)) || off % len)
		return;
	if (is_storage(off, len)) {
		memcpy(func->page0 + off, data, len);
	} else if (off == REG_DEV_CTRL && len == sizeof(uint32_t)) {
		ctrl = ea_le32(data);
		if (ctrl & DEV_CTRL_RESET)
			pci_func_reset(func);
		if (ctrl & DEV_CTRL_INIT)
			dev_init(func);
	} else if (len == sizeof(uint64_t)) {
		pci_func_doorbell(func, off, ea_le64(data));
	}
}
