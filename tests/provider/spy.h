/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Between the provider and libibverbs.
 *
 * A program that links this file stands in for some of the functions by which a provider asks the
 * kernel: it sees what the provider hands over, may answer with an error instead, and otherwise
 * calls libibverbs. So a test knows where the rings and doorbell records are, can read what was
 * posted and write what a broken adapter might write.
 *
 * State is global and not protected: the test creates and destroys objects from one thread, unless
 * it says otherwise.
 */
#ifndef TEST_PROVIDER_SPY_H
#define TEST_PROVIDER_SPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ibv_qp;
struct ibv_qp_attr;

enum {
	SPY_BLOCK = 32, /* bytes of a block of the send queue, of an RQE and of a CQE */
	SPY_PAGE = 4096,
};

/*
 * The context that was opened last: its pages of doorbells. Before that, @force makes the kernel's
 * answer one of another kind, as other adapters give it.
 */
struct spy_context {
	volatile uint8_t *sdb, *rdb, *cdb;
	bool force;
	uint32_t sdb_type, sdb_offset;
};

extern struct spy_context spy_context;

/* What came and went with the last creation of a CQ or QP. */
struct spy_cq {
	volatile uint64_t *record;
	uint64_t record_before; /* its value when the kernel was asked */
	bool ring_clean;	/* the ring was zero then */
	uint8_t *ring;
	uint32_t cqn, depth;
};

struct spy_qp {
	volatile uint64_t *records; /* send, receive */
	uint64_t records_before[2];
	uint8_t *sq, *rq;
	uint32_t qpn, num_blocks, num_rqes;
};

extern struct spy_cq spy_cq;
extern struct spy_qp spy_qp;

/* The errno value that the next call of a kind is answered with, once; 0: libibverbs answers. */
enum spy_call {
	SPY_CREATE_CQ,
	SPY_CREATE_QP,
	SPY_DESTROY_CQ,
	SPY_DESTROY_QP,
	SPY_REG_MR,
	SPY_DONTFORK,
	SPY_NUM_CALLS,
};

extern int spy_fail[SPY_NUM_CALLS];

/* Called after the kernel has made a QP and before the provider hears of it; NULL: nothing. */
extern void (*spy_qp_made)(void);

/*
 * The number that the provider is told instead of the next QP's real one, once; 0: the real one.
 * The adapter will not know such a QP, but the test may write its completions.
 */
extern uint32_t spy_next_qpn;

/* Called with what the kernel answered to a query of a QP, which it may change; NULL: nothing. */
extern void (*spy_qp_queried)(struct ibv_qp_attr *attr);

/* Whether the @len bytes at @p are kept from children by what the provider asked for. */
bool spy_kept_from_children(const void *p, size_t len);

/* How many ranges the provider has asked for and not given back. */
unsigned int spy_num_ranges(void);

/* RESET to INIT, where an iWARP QP takes work requests that the adapter leaves alone. */
void spy_to_init(struct ibv_qp *qp);

/* Writes entry number @at of the ring as an adapter would, on the first lap if @lap is 0. */
struct spy_cqe {
	uint32_t qpn, index, length;
	uint8_t opcode, qtype, syndrome;
};

void spy_write_cqe(const struct spy_cq *cq, uint32_t at, uint32_t lap, const struct spy_cqe *cqe);

#endif
