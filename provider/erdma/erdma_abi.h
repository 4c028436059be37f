/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The driver data that travels with the standard uverbs commands.
 *
 * The sizes are part of the contract: the kernel refuses a context reply buffer that is too
 * short and, in some versions, writes a whole QP reply whatever room it was told about. The
 * declarations below are exactly the kernel's structures and nothing more.
 */
#ifndef ERDMA_ABI_H
#define ERDMA_ABI_H

#include <infiniband/kern-abi.h>
#include <rdma/erdma-abi.h>
#include <kernel-abi/erdma-abi.h>

DECLARE_DRV_CMD(erdma_get_context_cmd, IB_USER_VERBS_CMD_GET_CONTEXT, empty, erdma_uresp_alloc_ctx);
DECLARE_DRV_CMD(erdma_create_cq_cmd, IB_USER_VERBS_CMD_CREATE_CQ, erdma_ureq_create_cq,
		erdma_uresp_create_cq);
DECLARE_DRV_CMD(erdma_create_qp_cmd, IB_USER_VERBS_CMD_CREATE_QP, erdma_ureq_create_qp,
		erdma_uresp_create_qp);

/*
 * libibverbs gained a parameter of this command (an array of file descriptors that a process may
 * hand in) together with a new private ABI number; 34 is the last number without it.
 */
#define ERDMA_LAST_PABI_WITHOUT_FD_ARR 34

#if IBVERBS_PABI_VERSION > ERDMA_LAST_PABI_WITHOUT_FD_ARR
#define erdma_cmd_get_context(vctx, cmd, cmd_size, resp, resp_size) \
	ibv_cmd_get_context(vctx, cmd, cmd_size, NULL, resp, resp_size)
#else
#define erdma_cmd_get_context(vctx, cmd, cmd_size, resp, resp_size) \
	ibv_cmd_get_context(vctx, cmd, cmd_size, resp, resp_size)
#endif

#endif
