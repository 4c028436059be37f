/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* RC queue pairs whose programs exchange addresses and QP numbers themselves; see oob.c. */
#ifndef EA_OOB_H
#define EA_OOB_H

#include "adapter/process/cm/cm.h"

enum {
	CM_OOB_MANAGED = 0xffffff, /* as destination: the connection is rdma_cm's affair */
};

void oob_conn_gone(struct cm_conn *conn); /* set-up is over, or the connection goes */
void oob_qp_leaving(struct host_qp *qp);
void oob_forget(void);

#endif
