// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include "adapter/process/cm/oob.h"

void oob_conn_gone(struct cm_conn *conn)
{
	(void)conn;
}

void oob_qp_leaving(struct host_qp *qp)
{
	(void)qp;
}

void oob_forget(void)
{
}

int cm_oob_rtr(struct host_qp *qp, const struct host_oob_addr *addr)
{
	(void)qp, (void)addr;
	return -EOPNOTSUPP;
}

int cm_oob_rts(struct host_qp *qp, uint8_t max_rd_atomic)
{
	(void)qp, (void)max_rd_atomic;
	return -EOPNOTSUPP;
}
