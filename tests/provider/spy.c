// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <infiniband/verbs.h>
#include <rdma/erdma-abi.h>

#include "tests/accept/harness.h"
#include "tests/provider/spy.h"

#define SPY_EXPORT __attribute__((visibility("default")))

enum {
	SPY_MAX_RANGES = 4096,
	CQE_OWNER_BIT = 31,
	CQE_OPCODE_SHIFT = 16,
	CQE_QTYPE_SHIFT = 8,
};

/* Known to libibverbs and its providers only. */
struct verbs_context;
struct verbs_mr;
struct verbs_qp;

SPY_EXPORT int ibv_cmd_create_cq(struct ibv_context *context, int cqe,
				 struct ibv_comp_channel *channel, int comp_vector,
				 struct ibv_cq *cq, void *cmd, size_t cmd_size, void *resp,
				 size_t resp_size);
SPY_EXPORT int ibv_cmd_create_qp_ex(struct ibv_context *context, struct verbs_qp *qp,
				    struct ibv_qp_init_attr_ex *attr, void *cmd, size_t cmd_size,
				    void *resp, size_t resp_size);
SPY_EXPORT int ibv_cmd_get_context(struct verbs_context *context, void *cmd, size_t cmd_size,
				   void *resp, size_t resp_size);
SPY_EXPORT void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset);
SPY_EXPORT int ibv_cmd_destroy_cq(struct ibv_cq *cq);
SPY_EXPORT int ibv_cmd_destroy_qp(struct ibv_qp *qp);
SPY_EXPORT int ibv_cmd_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t hca_va,
			      int access, struct verbs_mr *mr, void *cmd, size_t cmd_size,
			      void *resp, size_t resp_size);
SPY_EXPORT int ibv_cmd_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
				struct ibv_qp_init_attr *init, void *cmd, size_t cmd_size);
SPY_EXPORT int ibv_dontfork_range(void *base, size_t size);
SPY_EXPORT int ibv_dofork_range(void *base, size_t size);

struct spy_context spy_context;
struct spy_cq spy_cq;
struct spy_qp spy_qp;
int spy_fail[SPY_NUM_CALLS];
void (*spy_qp_made)(void);
uint32_t spy_next_qpn;
void (*spy_qp_queried)(struct ibv_qp_attr *attr);

static struct {
	uintptr_t start;
	size_t len;
} ranges[SPY_MAX_RANGES];
static unsigned int num_ranges;

static void *next(const char *name)
{
	void *function = dlsym(RTLD_NEXT, name);

	if (!function) {
		fprintf(stderr, "libibverbs has no %s: %s\n", name, dlerror());
		abort();
	}
	return function;
}

static int fail_once(enum spy_call call)
{
	int err = spy_fail[call];

	spy_fail[call] = 0;
	return err;
}

static bool is_zero(const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (p[i])
			return false;
	}
	return true;
}

int ibv_cmd_create_cq(struct ibv_context *context, int cqe, struct ibv_comp_channel *channel,
		      int comp_vector, struct ibv_cq *cq, void *cmd, size_t cmd_size, void *resp,
		      size_t resp_size)
{
	int (*real)(struct ibv_context *, int, struct ibv_comp_channel *, int, struct ibv_cq *,
		    void *, size_t, void *, size_t) = next("ibv_cmd_create_cq");
	struct erdma_uresp_create_cq answer;
	struct erdma_ureq_create_cq ask;
	int ret;

	memcpy(&ask, (char *)cmd + cmd_size - sizeof(ask), sizeof(ask));
	spy_cq.record = (volatile uint64_t *)(uintptr_t)ask.db_record_va;
	spy_cq.record_before = *spy_cq.record;
	spy_cq.ring = (uint8_t *)(uintptr_t)ask.qbuf_va;
	spy_cq.ring_clean = is_zero(spy_cq.ring, ask.qbuf_len);

	ret = fail_once(SPY_CREATE_CQ);
	if (ret)
		return ret;
	ret = real(context, cqe, channel, comp_vector, cq, cmd, cmd_size, resp, resp_size);
	if (ret)
		return ret;
	memcpy(&answer, (char *)resp + resp_size - sizeof(answer), sizeof(answer));
	spy_cq.cqn = answer.cq_id;
	spy_cq.depth = answer.num_cqe;
	return 0;
}

int ibv_cmd_create_qp_ex(struct ibv_context *context, struct verbs_qp *qp,
			 struct ibv_qp_init_attr_ex *attr, void *cmd, size_t cmd_size, void *resp,
			 size_t resp_size)
{
	int (*real)(struct ibv_context *, struct verbs_qp *, struct ibv_qp_init_attr_ex *, void *,
		    size_t, void *, size_t) = next("ibv_cmd_create_qp_ex");
	struct erdma_uresp_create_qp answer;
	struct erdma_ureq_create_qp ask;
	int ret;

	memcpy(&ask, (char *)cmd + cmd_size - sizeof(ask), sizeof(ask));
	spy_qp.records = (volatile uint64_t *)(uintptr_t)ask.db_record_va;
	spy_qp.records_before[0] = spy_qp.records[0];
	spy_qp.records_before[1] = spy_qp.records[1];
	spy_qp.sq = (uint8_t *)(uintptr_t)ask.qbuf_va;

	ret = fail_once(SPY_CREATE_QP);
	if (ret)
		return ret;
	ret = real(context, qp, attr, cmd, cmd_size, resp, resp_size);
	if (ret)
		return ret;
	memcpy(&answer, (char *)resp + resp_size - sizeof(answer), sizeof(answer));
	if (spy_next_qpn) {
		answer.qp_id = spy_next_qpn;
		memcpy((char *)resp + resp_size - sizeof(answer), &answer, sizeof(answer));
		spy_next_qpn = 0;
	}
	spy_qp.rq = spy_qp.sq + answer.rq_offset;
	spy_qp.qpn = answer.qp_id;
	spy_qp.num_blocks = answer.num_sqe;
	spy_qp.num_rqes = answer.num_rqe;
	if (spy_qp_made)
		spy_qp_made();
	return 0;
}

/* Where the pages of the context that is being opened can be mapped. */
static struct {
	bool known;
	uint64_t sdb, rdb, cdb;
} offsets;

int ibv_cmd_get_context(struct verbs_context *context, void *cmd, size_t cmd_size, void *resp,
			size_t resp_size)
{
	int (*real)(struct verbs_context *, void *, size_t, void *, size_t) =
		next("ibv_cmd_get_context");
	struct erdma_uresp_alloc_ctx answer;
	char *place = (char *)resp + resp_size - sizeof(answer);
	int ret = real(context, cmd, cmd_size, resp, resp_size);

	if (ret)
		return ret;
	memcpy(&answer, place, sizeof(answer));
	if (spy_context.force) {
		answer.sdb_type = spy_context.sdb_type;
		answer.sdb_offset = spy_context.sdb_offset;
		memcpy(place, &answer, sizeof(answer));
	}
	offsets.sdb = answer.sdb;
	offsets.rdb = answer.rdb;
	offsets.cdb = answer.cdb;
	offsets.known = true;
	return 0;
}

void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	static void *(*real)(void *, size_t, int, int, int, off_t);
	void *got;

	if (!real)
		real = next("mmap");
	got = real(addr, len, prot, flags, fd, offset);
	if (got == MAP_FAILED || !(flags & MAP_SHARED) || fd < 0 || !offsets.known)
		return got;
	if ((uint64_t)offset == offsets.sdb)
		spy_context.sdb = got;
	else if ((uint64_t)offset == offsets.rdb)
		spy_context.rdb = got;
	else if ((uint64_t)offset == offsets.cdb)
		spy_context.cdb = got;
	return got;
}

int ibv_cmd_destroy_cq(struct ibv_cq *cq)
{
	int (*real)(struct ibv_cq *) = next("ibv_cmd_destroy_cq");
	int ret = fail_once(SPY_DESTROY_CQ);

	return ret ? ret : real(cq);
}

int ibv_cmd_destroy_qp(struct ibv_qp *qp)
{
	int (*real)(struct ibv_qp *) = next("ibv_cmd_destroy_qp");
	int ret = fail_once(SPY_DESTROY_QP);

	return ret ? ret : real(qp);
}

int ibv_cmd_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t hca_va, int access,
		   struct verbs_mr *mr, void *cmd, size_t cmd_size, void *resp, size_t resp_size)
{
	int (*real)(struct ibv_pd *, void *, size_t, uint64_t, int, struct verbs_mr *, void *,
		    size_t, void *, size_t) = next("ibv_cmd_reg_mr");
	int ret = fail_once(SPY_REG_MR);

	return ret ? ret :
		     real(pd, addr, length, hca_va, access, mr, cmd, cmd_size, resp, resp_size);
}

int ibv_cmd_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		     struct ibv_qp_init_attr *init, void *cmd, size_t cmd_size)
{
	int (*real)(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *, void *,
		    size_t) = next("ibv_cmd_query_qp");
	int ret = real(qp, attr, mask, init, cmd, cmd_size);

	if (!ret && spy_qp_queried)
		spy_qp_queried(attr);
	return ret;
}

int ibv_dontfork_range(void *base, size_t size)
{
	int (*real)(void *, size_t) = next("ibv_dontfork_range");
	int err = fail_once(SPY_DONTFORK);

	if (err) {
		errno = err;
		return -1;
	}
	if (num_ranges < SPY_MAX_RANGES) {
		ranges[num_ranges].start = (uintptr_t)base;
		ranges[num_ranges].len = size;
		num_ranges++;
	}
	return real(base, size);
}

int ibv_dofork_range(void *base, size_t size)
{
	int (*real)(void *, size_t) = next("ibv_dofork_range");

	for (unsigned int i = 0; i < num_ranges; i++) {
		if (ranges[i].start == (uintptr_t)base && ranges[i].len == size) {
			ranges[i] = ranges[--num_ranges];
			break;
		}
	}
	return real(base, size);
}

bool spy_kept_from_children(const void *p, size_t len)
{
	uintptr_t start = (uintptr_t)p;

	for (unsigned int i = 0; i < num_ranges; i++) {
		if (start >= ranges[i].start && start + len <= ranges[i].start + ranges[i].len)
			return true;
	}
	return false;
}

unsigned int spy_num_ranges(void)
{
	return num_ranges;
}

void spy_to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	TS_OK(ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

void spy_write_cqe(const struct spy_cq *cq, uint32_t at, uint32_t lap, const struct spy_cqe *cqe)
{
	uint32_t *words = (uint32_t *)(cq->ring + (size_t)(at % cq->depth) * SPY_BLOCK);
	uint32_t owner = lap % 2 ? 0 : 1;

	words[1] = htobe32(cqe->index);
	words[2] = htobe32(cqe->qpn);
	words[3] = 0;
	words[4] = htobe32(cqe->length);
	atomic_thread_fence(memory_order_release);
	*(volatile uint32_t *)words =
		htobe32(owner << CQE_OWNER_BIT | (uint32_t)cqe->opcode << CQE_OPCODE_SHIFT |
			(uint32_t)cqe->qtype << CQE_QTYPE_SHIFT | cqe->syndrome);
}
