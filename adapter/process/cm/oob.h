/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* RC queue pairs whose programs exchange addresses and QP numbers themselves; see oob.c. */
#ifndef EA_OOB_H
#define EA_OOB_H

#include "adapter/process/cm/cm.h"

enum {
	CM_OOB_MANAGED = 0xffffff, /* as destination: the connection is rdma_cm's affair */
};

enum {
	OOB_TIMEOUT_MAX = 31, /* bounds of what ibv_modify_qp takes */
	OOB_RETRY_MAX = 7,
};

/*
 * How long the peer of @qp may be silent while something is to be sent, in ns; UINT64_MAX: for ever, or
 * until the QP is in RTS; 0: the QP is not connected in this way.
 */
uint64_t oob_patience(const struct host_qp *qp);

void oob_conn_gone(struct cm_conn *conn); /* set-up is over, or the connection goes */
void oob_qp_leaving(struct host_qp *qp);
void oob_forget(void);

#endif
