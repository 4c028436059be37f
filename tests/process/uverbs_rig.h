/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * /dev/infiniband/uverbs0 at byte level: commands by each of the three ways, objects by default, and the memory that
 * they are made in.  Results are 0 or an errno; what is not under test fails the test itself.
 */
#ifndef TESTS_PROCESS_UVERBS_RIG_H
#define TESTS_PROCESS_UVERBS_RIG_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/erdma-abi.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#define VERBS_IOCTL 0xC0181B01u
#define EXTENDED    IB_USER_VERBS_CMD_FLAG_EXTENDED

enum {
	ERDMA = 19,
	MANDATORY = 1,
	VALID_OUTPUT = 2,
	RING = 65536,
	BAD_HANDLE = 4711
};

extern unsigned char *memory; /* ring and record memory, 1 MiB */
extern uint64_t *records;

/* Group set-up: takes that memory. */
int uverbs_set_up(void **state);

/* ------------------------------------------------------------------ ways to issue a command */

struct call {
	struct ib_uverbs_ioctl_hdr hdr;
	struct ib_uverbs_attr attrs[24];
};

/* By ioctl: one call, its attributes (@data: a value or a pointer), and off it goes. */
void call_begin(struct call *call, uint16_t object, uint16_t method);
struct ib_uverbs_attr *call_add(struct call *call, uint16_t id, uint16_t len, uint64_t data);
int call_do(int fd, struct call *call);

/* A command of write() within an ioctl, and by write(). */
int invoke_write(int fd, uint32_t command, const void *in, size_t in_len, void *out,
		 size_t out_len);
int plain_write(int fd, uint32_t command, void *in, size_t in_len, void *out, size_t out_len);

/* ------------------------------------------------------------------ objects */

/* A context; @async: its file of asynchronous events, or NULL. */
int dev_open(int *async);

uint32_t pd_alloc(int fd);
int pd_destroy(int fd, uint32_t handle);

int channel_create(int fd);

struct cq {
	uint32_t handle, cqe;
	struct erdma_uresp_create_cq uresp;
};

int cq_create(int fd, uint32_t cqe, uint32_t vector, int channel, uint64_t ring, uint64_t record,
	      struct cq *cq);

int cq_destroy(int fd, uint32_t handle, struct ib_uverbs_destroy_cq_resp *resp);

/* 64 entries at the start of the memory. */
void good_cq(int fd, struct cq *cq);

struct qp {
	uint32_t handle, qpn;
	struct ib_uverbs_qp_cap cap;
	struct erdma_uresp_create_qp uresp;
	uint32_t buf_len; /* 0: what is needed */
	uint64_t type, flags;
};

int qp_create(int fd, uint32_t pd, uint32_t scq, uint32_t rcq, struct qp *qp);
int qp_destroy(int fd, uint32_t handle, uint32_t *events);

/* What qp_create() asks for when a test has no wish of its own. */
void usual_qp(struct qp *qp);

int qp_modify(int fd, uint32_t handle, uint32_t mask, uint8_t to);
uint8_t qp_state(int fd, uint32_t handle);

int mr_reg(int fd, uint32_t pd, uint64_t start, uint64_t len, uint64_t iova, uint32_t access,
	   struct ib_uverbs_reg_mr_resp *resp);

int mr_destroy(int fd, uint32_t handle);

#endif
