// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Life of a function, and where an access to one of its regions goes.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapter/core/hw.h"
#include "adapter/pci/fabric.h"
#include "adapter/pci/func.h"
#include "adapter/pci/hw.h"
#include "adapter/pci/vfu.h"

/* ------------------------------------------------------------------ what the core asks for */

static void *core_map(void *ctx, uint64_t addr, size_t *len, bool write)
{
	struct pci_func *func = ctx;

	return pci_func_ptr(func, addr, len, write);
}

static void core_comp_event(void *ctx, uint32_t cqn, uint32_t eqn, uint32_t pi)
{
	struct pci_func *func = ctx;

	if (eqn && eqn < PCI_EQS)
		pci_eq_comp(func, &func->eqs[eqn], cqn, pi);
}

static void core_async_event(void *ctx, enum ea_async_event event, uint32_t number)
{
	static const uint8_t types[] = {
		[EA_ASYNC_QP_FATAL] = AEQE_QP_FATAL,
		[EA_ASYNC_QP_ACCESS_ERR] = AEQE_ACC_ERR,
		[EA_ASYNC_CQ_ERR] = AEQE_CQ_ERR,
	};

	pci_eq_async(ctx, types[event], number);
}

static const struct ea_dma_ops core_dma = {
	.map = core_map,
};

static const struct ea_host_ops core_host = {
	.comp_event = core_comp_event,
	.async_event = core_async_event,
};

/* ------------------------------------------------------------------ guest memory */

void *pci_func_ptr(struct pci_func *func, uint64_t addr, size_t *len, bool write)
{
	void *p = pci_dma_ptr(&func->dma, addr, len, write);

	if (p || !func->far)
		return p;
	return pci_far_ptr(func->far, addr, len, write);
}

bool pci_func_mem_read(struct pci_func *func, uint64_t addr, void *to, size_t len)
{
	uint8_t *out = to;
	size_t piece;
	void *p;

	for (; len; out += piece, addr += piece, len -= piece) {
		piece = len;
		p = pci_func_ptr(func, addr, &piece, false);
		if (!p)
			return false;
		memcpy(out, p, piece);
	}
	/* the copy is what is looked at from now on */
	__asm__ __volatile__("" ::: "memory");
	return true;
}

bool pci_func_mem_write(struct pci_func *func, uint64_t addr, const void *from, size_t len)
{
	const uint8_t *in = from;
	size_t piece;
	void *p;

	for (; len; in += piece, addr += piece, len -= piece) {
		piece = len;
		p = pci_func_ptr(func, addr, &piece, true);
		if (!p)
			return false;
		memcpy(p, in, piece);
	}
	return true;
}

/* ------------------------------------------------------------------ life */

static void bar2_init(struct pci_func *func)
{
	int i;

	memset(func->bar2, 0, sizeof(func->bar2));
	/* vectors are masked after reset; see irq.h for what counts */
	for (i = 0; i < PCI_VECTORS; i++)
		func->bar2[BAR2_MSIX_TABLE + i * BAR2_MSIX_ENTRY + 12] = 1;
}

struct pci_func *pci_func_create(const char *name, const uint8_t mac[6], struct pci_loop *loop,
				 struct pci_fabric *fabric)
{
	static const struct ea_dev_attr attr = {
		.max_qp = PCI_MAX_QP,
		.max_cq = PCI_MAX_CQ,
		.max_mr = PCI_MAX_MR,
		.max_cqe_shift = PCI_MAX_CQE_SHIFT,
		.max_rq_shift = PCI_MAX_RQ_SHIFT,
		.dma_local_key = PCI_DMA_LOCAL_KEY,
	};
	struct pci_func *func = calloc(1, sizeof(*func));

	if (!func)
		return NULL;
	func->name = name;
	func->loop = loop;
	func->fabric = fabric;
	func->db_fd = -1;
	memcpy(func->mac, mac, sizeof(func->mac));
	pci_irq_init(&func->irq);
	pci_config_init(&func->config);
	bar2_init(func);
	pci_regs_init(func);
	func->qps = calloc(PCI_MAX_QP, sizeof(*func->qps));
	if (!func->qps)
		goto err_func;
	func->cq_context = calloc(PCI_MAX_CQ, sizeof(*func->cq_context));
	if (!func->cq_context)
		goto err_qps;
	func->core = ea_dev_create(&attr, &core_dma, &core_host, func);
	if (!func->core)
		goto err_cqs;
	return func;

err_cqs:
	free(func->cq_context);
err_qps:
	free(func->qps);
err_func:
	free(func);
	errno = ENOMEM;
	return NULL;
}

void pci_func_reset(struct pci_func *func)
{
	unsigned int i;

	pci_far_settle(func, true);
	func->live = false;
	pci_objects_forget(func);
	ea_dev_reset(func->core);
	pci_cmdq_close(func);
	pci_eq_close(&func->aeq);
	for (i = 0; i < PCI_EQS; i++)
		pci_eq_close(&func->eqs[i]);
	pci_irq_quiet(&func->irq);
	memset(func->contexts, 0, sizeof(func->contexts));
	pci_regs_init(func);
}

void pci_func_reset_all(struct pci_func *func)
{
	unsigned int i;

	pci_func_reset(func);
	pci_config_init(&func->config);
	bar2_init(func);
	pci_irq_mask_all(&func->irq, false);
	for (i = 0; i < PCI_VECTORS; i++) {
		pci_irq_mask(&func->irq, i, false);
		pci_irq_mask_table(&func->irq, i, false);
	}
}

void pci_func_client_gone(struct pci_func *func)
{
	pci_func_reset_all(func);
	pci_far_stop(func);
	func->stale_answers = 0;
	pci_irq_clear(&func->irq);
	pci_dma_clear(&func->dma);
	func->told_private = false;
	func->trapped = false;
	/* the next client's doorbells are none of this one's business */
	if (func->db_fd >= 0)
		close(func->db_fd);
	func->db_fd = -1;
	pci_func_memory_changed(func);
}

void pci_func_destroy(struct pci_func *func)
{
	pci_func_client_gone(func);
	ea_dev_destroy(func->core);
	free(func->cq_context);
	free(func->qps);
	free(func);
}

void pci_func_memory_changed(struct pci_func *func)
{
	ea_dev_memory_changed(func->core);
	func->records.stale = true;
}

void pci_func_complain(struct pci_func *func, const char *fmt, ...)
{
	char line[256];
	va_list ap;

	if (!pci_log_allow(&func->log, pci_loop_now(), func->name))
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	pci_log(PCI_LOG_INFO, func->name, "%s", line);
}

/* ------------------------------------------------------------------ BAR 2 */

static void bar2_read(struct pci_func *func, uint32_t off, uint8_t *data, size_t len)
{
	__le64 pba = htole64(func->irq.pending);

	memcpy(func->bar2 + BAR2_MSIX_PBA, &pba, sizeof(pba));
	memcpy(data, func->bar2 + off, len);
}

static void bar2_write(struct pci_func *func, uint32_t off, const uint8_t *data, size_t len)
{
	const uint32_t end = BAR2_MSIX_TABLE + PCI_VECTORS * BAR2_MSIX_ENTRY;
	uint32_t first, last, i;

	if (off >= end)
		return;
	if (len > end - off)
		len = end - off;
	memcpy(func->bar2 + off, data, len);
	first = off / BAR2_MSIX_ENTRY;
	last = (uint32_t)(off + len - 1) / BAR2_MSIX_ENTRY;
	for (i = first; i <= last; i++)
		pci_irq_mask_table(&func->irq, i, func->bar2[i * BAR2_MSIX_ENTRY + 12] & 1);
}

/* ------------------------------------------------------------------ regions */

uint64_t pci_func_region_size(uint32_t region)
{
	switch (region) {
	case VFU_BAR0:
		return PCI_BAR0_SIZE;
	case VFU_BAR2:
		return PCI_BAR2_SIZE;
	case VFU_CONFIG:
		return PCI_CONFIG_SIZE;
	default:
		return 0;
	}
}

void pci_func_ring(struct pci_func *func, uint32_t off, uint64_t value)
{
	if (off < PCI_PAGE0)
		pci_regs_ring(func, off, value);
	else
		pci_db_write(func, off >> DB_PAGE_SHIFT, value);
}

void pci_func_doorbell(struct pci_func *func, uint32_t off, uint64_t value)
{
	if (func->far)
		pci_far_bell(func, off, value);
	else
		pci_func_ring(func, off, value);
}

void pci_func_read(struct pci_func *func, uint32_t region, uint64_t off, uint8_t *data, size_t len)
{
	size_t regs = 0;

	switch (region) {
	case VFU_BAR0:
		/* doorbell pages read as zeros */
		if (off < PCI_PAGE0) {
			regs = len < PCI_PAGE0 - off ? len : PCI_PAGE0 - off;
			pci_regs_read(func, (uint32_t)off, data, regs);
		}
		memset(data + regs, 0, len - regs);
		break;
	case VFU_BAR2:
		bar2_read(func, (uint32_t)off, data, len);
		break;
	case VFU_CONFIG:
		memcpy(data, func->config.bytes + off, len);
		break;
	}
}

void pci_func_write(struct pci_func *func, uint32_t region, uint64_t off, const uint8_t *data,
		    size_t len)
{
	if (!len)
		return;
	switch (region) {
	case VFU_BAR0:
		if (off < PCI_PAGE0) {
			if (len <= PCI_PAGE0 - off)
				pci_regs_write(func, (uint32_t)off, data, len);
		} else if (len == sizeof(uint64_t) && off % sizeof(uint64_t) == 0) {
			pci_func_doorbell(func, (uint32_t)off, ea_le64(data));
		}
		break;
	case VFU_BAR2:
		bar2_write(func, (uint32_t)off, data, len);
		break;
	case VFU_CONFIG:
		pci_config_write(&func->config, off, data, len);
		pci_irq_mask_all(&func->irq, pci_config_msix_masked(&func->config));
		break;
	}
}
