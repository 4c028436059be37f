// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Commands of the COMMON group: event queues, version, configuration, statistics, doorbell pages.
 */
#include <errno.h>
#include <string.h>

#include "adapter/core/hw.h"
#include "adapter/pci/func.h"
#include "adapter/pci/hw.h"

enum {
	FW_MAJOR = 1,
	FW_MINOR = 0,
	EQ_REQ_ADDR = 8,
	EQ_REQ_VECTOR = 16,
	EQ_REQ_EQN = 17,
	EQ_REQ_DEPTH = 18,
	EQ_REQ_QTYPE = 19,
	STATS_REQ_ADDR = 16,
	STATS_REQ_LEN = 24,
	DB_REQ_CFG = 8,
	DB_REQ_RDB = 12,
	DB_REQ_SDB = 14,
	DB_REQ_CDB = 18,
	MTU_MIN = 68,
	MTU_MAX = 65535,
};

static struct pci_eq *ceq(struct pci_func *func, const struct pci_cmd *cmd)
{
	uint8_t eqn = cmd->bytes[EQ_REQ_EQN];

	if (!eqn || eqn >= PCI_EQS || cmd->bytes[EQ_REQ_QTYPE] != EQ_QTYPE_CEQ)
		return NULL;
	return &func->eqs[eqn];
}

static int create_eq(struct pci_func *func, const struct pci_cmd *cmd, uint64_t resp[2])
{
	struct pci_eq *eq = ceq(func, cmd);

	(void)resp;
	if (!eq || cmd->bytes[EQ_REQ_VECTOR] >= PCI_VECTORS || !cmd->bytes[EQ_REQ_VECTOR])
		return EINVAL;
	if (eq->live)
		return EEXIST;
	pci_eq_close(eq);
	return pci_eq_open(eq, ea_le64(cmd->bytes + EQ_REQ_ADDR), cmd->bytes[EQ_REQ_DEPTH],
			   cmd->bytes[EQ_REQ_VECTOR], true);
}

static int destroy_eq(struct pci_func *func, const struct pci_cmd *cmd, uint64_t resp[2])
{
	struct pci_eq *eq = ceq(func, cmd);

	(void)resp;
	if (!eq)
		return EINVAL;
	/* one whose memory went away is still there for the driver */
	if (!eq->live && !eq->shift)
		return ENOENT;
	func->irq.pending &= ~(1u << eq->vector);
	pci_eq_close(eq);
	return 0;
}

static int query_fw_info(struct pci_func *func, const struct pci_cmd *cmd, uint64_t resp[2])
{
	(void)func;
	(void)cmd;
	resp[0] = FW_MAJOR << 16 | FW_MINOR;
	return 0;
}

static int conf_mtu(struct pci_func *func, const struct pci_cmd *cmd, uint64_t resp[2])
{
	uint32_t mtu = ea_le32(cmd->bytes + 8);

	(void)resp;
	if (mtu < MTU_MIN || mtu > MTU_MAX)
		return EINVAL;
	/* streams have no use for it; packets will */
	func->mtu = mtu;
	return 0;
}

static int get_stats(struct pci_func *func, const struct pci_cmd *cmd, uint64_t resp[2])
{
	uint8_t buf[STATS_SIZE] = { 0 };
	struct ea_stats stats;
	__le16 magic = htole16(STATS_MAGIC);
	unsigned int i;

	(void)resp;
	if (ea_le32(cmd->bytes + STATS_REQ_LEN) < STATS_SIZE)
		return EINVAL;
	ea_dev_stats(func->core, &stats);
	const __le64 counters[] = {
		htole64(stats.tx_reqs), htole64(stats.tx_msgs),	 htole64(stats.tx_bytes), 0, 0, 0,
		htole64(stats.rx_msgs), htole64(stats.rx_bytes), htole64(stats.rx_drops), 0, 0,
	};

	memcpy(buf, &magic, sizeof(magic));
	for (i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
		memcpy(buf + STATS_COUNTERS + i * 8, &counters[i], sizeof(counters[i]));
	return pci_func_mem_write(func, ea_le64(cmd->bytes + STATS_REQ_ADDR), buf, sizeof(buf)) ?
		       0 :
		       EFAULT;
}

static int conf_device(struct pci_func *func, const struct pci_cmd *cmd, uint64_t resp[2])
{
	uint32_t cfg = ea_le32(cmd->bytes + 8);

	(void)func;
	(void)resp;
	if ((cfg & CONF_PS_EN) && EA_FIELD(CONF_PGSHIFT, cfg) != DB_PAGE_SHIFT)
		return EOPNOTSUPP;
	return 0;
}

static int alloc_db(struct pci_func *func, const struct pci_cmd *cmd, uint64_t resp[2])
{
	struct pci_db_pages pages;
	int err;

	if (ea_le32(cmd->bytes + DB_REQ_CFG) != (DB_CFG_SQ | DB_CFG_RQ | DB_CFG_CQ))
		return EINVAL;
	err = pci_db_alloc(func, &pages);
	if (!err)
		resp[0] = pages.sdb | (uint64_t)pages.cdb << 32 | (uint64_t)pages.rdb << 48;
	return err;
}

static int free_db(struct pci_func *func, const struct pci_cmd *cmd, uint64_t resp[2])
{
	struct pci_db_pages pages = {
		.sdb = ea_le16(cmd->bytes + DB_REQ_SDB),
		.rdb = ea_le16(cmd->bytes + DB_REQ_RDB),
		.cdb = ea_le16(cmd->bytes + DB_REQ_CDB),
	};

	(void)resp;
	return pci_db_free(func, &pages);
}

pci_cmd_fn pci_cmd_common(uint8_t opcode, uint32_t *min)
{
	static const struct {
		pci_cmd_fn fn;
		uint32_t min;
	} table[] = {
		[CMD_CREATE_EQ] = { create_eq, 32 },	    [CMD_DESTROY_EQ] = { destroy_eq, 24 },
		[CMD_QUERY_FW_INFO] = { query_fw_info, 8 }, [CMD_CONF_MTU] = { conf_mtu, 16 },
		[CMD_GET_STATS] = { get_stats, 32 },	    [CMD_CONF_DEVICE] = { conf_device, 32 },
		[CMD_ALLOC_DB] = { alloc_db, 32 },	    [CMD_FREE_DB] = { free_db, 32 },
	};

	if (opcode >= sizeof(table) / sizeof(table[0]))
		return NULL;
	*min = table[opcode].min;
	return table[opcode].fn;
}
