// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/pci/direct.h"
#include "adapter/pci/func.h"
#include "adapter/wire/rdmap.h"

enum {
	BUDGET = 1 << 20,     /* bytes of one turn, each way */
	MESSAGE_COST = 256,   /* of it for any message */
	PIECE_MAX = 64 << 10, /* what EA_IOV_MAX pieces are enough for */
};

/* One QP's side.  Its message under way goes to the other side. */
struct end {
	struct ea_link link;
	struct pci_direct *pair;
	bool ready;   /* the QP may have something to send */
	bool busy;    /* a message is under way */
	bool begun;   /* the other side has taken its header */
	bool held;    /* the other side's message waits for a receive WQE of this one */
	bool stopped; /* the QP has left the data path */
	enum ea_shutdown how;
	uint32_t off; /* bytes of the message that are placed */
	struct ea_tx_msg msg;
	struct ea_rx_seg seg;
};

struct pci_direct {
	struct end ends[2];
	struct pci_loop *loop;
	struct pci_list place; /* among all */
	struct pci_func *func; /* in whose turn it moves */
	struct pci_work work;
	struct pci_job job;
	bool turning;
};

/* ------------------------------------------------------------------ what the core asks for */

static void wake(struct pci_direct *pair)
{
	/* a turn looks at both sides until neither has anything */
	if (!pair->turning)
		pci_work_queue(pair->loop, &pair->work);
}

static void op_tx_ready(struct ea_link *link)
{
	struct end *end = container_of(link, struct end, link);

	end->ready = true;
	wake(end->pair);
}

static void op_rx_resume(struct ea_link *link)
{
	struct end *end = container_of(link, struct end, link);

	end->held = false;
	wake(end->pair);
}

static void op_shutdown(struct ea_link *link, enum ea_shutdown how)
{
	struct end *end = container_of(link, struct end, link);

	end->stopped = true;
	end->how = how;
	wake(end->pair);
}

static const struct ea_link_ops ops = {
	.tx_ready = op_tx_ready,
	.rx_resume = op_rx_resume,
	.shutdown = op_shutdown,
};

/* ------------------------------------------------------------------ messages */

/* A message is one segment, however long it is. */
static void segment(const struct ea_tx_msg *msg, struct ea_rx_seg *seg)
{
	struct ea_ddp_hdr hdr = {
		.tagged = msg->tagged,
		.last = true,
		.ulp_ctrl = EA_RDMAP_VERSION << 6 | msg->opcode,
		.stag = msg->stag,
		.to = msg->to,
		.ulp_word = msg->ulp_word,
		.qn = msg->qn,
		.msn = msg->msn,
	};

	seg->opcode = msg->opcode;
	seg->tagged = msg->tagged;
	seg->last = true;
	seg->stag = msg->stag;
	seg->to = msg->to;
	seg->qn = msg->qn;
	seg->msn = msg->msn;
	seg->mo = 0;
	seg->ulp_word = msg->ulp_word;
	seg->len = msg->ctrl_len ? msg->ctrl_len : msg->len;
	seg->raw_len = (uint8_t)ea_ddp_encode(&hdr, seg->raw);
}

/* Copy as much as both lists name. */
static uint32_t copy(const struct iovec *to, int n_to, const struct iovec *from, int n_from)
{
	size_t at_to = 0, at_from = 0, piece;
	uint32_t done = 0;
	int i = 0, j = 0;

	while (i < n_to && j < n_from) {
		piece = to[i].iov_len - at_to;
		if (piece > from[j].iov_len - at_from)
			piece = from[j].iov_len - at_from;
		/* both may be the same memory */
		memmove((uint8_t *)to[i].iov_base + at_to,
			(const uint8_t *)from[j].iov_base + at_from, piece);
		done += (uint32_t)piece;
		at_to += piece;
		at_from += piece;
		if (at_to == to[i].iov_len) {
			i++;
			at_to = 0;
		}
		if (at_from == from[j].iov_len) {
			j++;
			at_from = 0;
		}
	}
	return done;
}

/* Place payload until the budget is used up.  False: one of the QPs has ended. */
static bool place(struct end *src, struct end *dst, int *budget)
{
	struct iovec from[EA_IOV_MAX], to[EA_IOV_MAX];
	uint32_t want, got, done;
	int n_from, n_to;

	while (*budget > 0 && src->off < src->msg.len) {
		want = src->msg.len - src->off;
		if (want > PIECE_MAX)
			want = PIECE_MAX;
		n_from = ea_tx_payload(src->link.qp, &src->msg, src->off, want, from, EA_IOV_MAX,
				       &got);
		if (n_from < 0)
			return false;
		n_to = ea_rx_target(dst->link.qp, &src->seg, src->off, got, to, EA_IOV_MAX, &got);
		if (n_to < 0)
			return false;
		done = copy(to, n_to, from, n_from);
		src->off += done;
		*budget -= (int)done;
	}
	return true;
}

/* Take the message under way a step on.  True: it is finished. */
static bool deliver(struct end *src, struct end *dst, int *budget)
{
	int err;

	if (!src->begun) {
		err = ea_rx_begin(dst->link.qp, &src->seg);
		if (err) {
			dst->held = err == EAGAIN;
			return false;
		}
		src->begun = true;
	}
	if (src->msg.ctrl_len) {
		err = ea_rx_ctrl(dst->link.qp, &src->seg, src->msg.ctrl);
	} else {
		if (!place(src, dst, budget) || src->off < src->msg.len)
			return false;
		err = ea_rx_end(dst->link.qp, &src->seg);
	}
	src->busy = false;
	src->begun = false;
	/* what the other side refused has had no effect; its Terminate will say so */
	if (!err && src->link.qp)
		ea_tx_done(src->link.qp, &src->msg);
	return !err;
}

static bool over(const struct pci_direct *pair)
{
	return pair->ends[0].stopped || pair->ends[1].stopped;
}

/* Move messages from @src; true when one was finished or bytes were placed. */
static bool move(struct end *src, struct end *dst, int *budget)
{
	bool moved = false;
	int before;

	while (*budget > 0 && !over(src->pair)) {
		if (!src->busy) {
			if (!src->ready)
				break;
			if (ea_tx_next(src->link.qp, &src->msg)) {
				src->ready = false;
				break;
			}
			segment(&src->msg, &src->seg);
			src->busy = true;
			src->off = 0;
			*budget -= MESSAGE_COST;
		}
		if (dst->held)
			break;
		before = *budget;
		if (!deliver(src, dst, budget)) {
			moved |= before != *budget;
			break;
		}
		moved = true;
	}
	return moved;
}

/* ------------------------------------------------------------------ the end */

static void direct_free(struct pci_direct *pair)
{
	pci_work_cancel(&pair->work);
	pci_job_cancel(&pair->job);
	pci_list_remove(&pair->place);
	free(pair);
}

/* A Terminate comes between messages only. */
static void last_words(struct end *src, struct end *dst)
{
	struct ea_tx_msg msg;
	struct ea_rx_seg seg;

	if (!src->stopped || src->how != EA_SHUT_TERMINATE || !src->link.qp || !dst->link.qp ||
	    dst->stopped || (src->busy && src->begun))
		return;
	if (ea_tx_next(src->link.qp, &msg))
		return;
	segment(&msg, &seg);
	if (!ea_rx_begin(dst->link.qp, &seg))
		ea_rx_ctrl(dst->link.qp, &seg, msg.ctrl);
}

static void direct_end(struct pci_direct *pair)
{
	struct end *a = &pair->ends[0], *b = &pair->ends[1];

	pair->turning = true;
	last_words(a, b);
	last_words(b, a);
	ea_link_down(&a->link, b->busy && b->begun ? EPROTO : 0);
	ea_link_down(&b->link, a->busy && a->begun ? EPROTO : 0);
	direct_free(pair);
}

static void turn(struct pci_job *job)
{
	struct pci_direct *pair = container_of(job, struct pci_direct, job);
	struct end *a = &pair->ends[0], *b = &pair->ends[1];
	int there = BUDGET, back = BUDGET;
	bool moved = true;

	pair->turning = true;
	while (moved && there > 0 && back > 0 && !over(pair)) {
		moved = move(a, b, &there);
		moved |= move(b, a, &back);
	}
	pair->turning = false;
	if (over(pair))
		direct_end(pair);
	else if (moved)
		pci_work_queue(pair->loop, &pair->work);
}

static void wants_turn(struct pci_work *work)
{
	struct pci_direct *pair = container_of(work, struct pci_direct, work);

	pci_job_enter(pair->func, &pair->job);
}

int pci_direct_open(struct pci_list *all, struct pci_func *a, uint32_t a_qpn, struct pci_func *b,
		    uint32_t b_qpn)
{
	static const struct ea_conn_attr conn = { .ord = EA_MAX_ORD, .ird = EA_MAX_IRD };
	struct pci_direct *pair = calloc(1, sizeof(*pair));
	int err, i;

	if (!pair)
		return ENOMEM;
	pair->loop = a->loop;
	pair->func = a;
	pair->work.run = wants_turn;
	pair->job.run = turn;
	for (i = 0; i < 2; i++) {
		pair->ends[i].pair = pair;
		pair->ends[i].link.ops = &ops;
		pair->ends[i].ready = true;
	}
	pci_list_append(all, &pair->place);
	err = ea_qp_connect(b->core, b_qpn, &pair->ends[1].link, &conn);
	if (!err)
		err = ea_qp_connect(a->core, a_qpn, &pair->ends[0].link, &conn);
	if (err) {
		direct_end(pair);
		return err;
	}
	pci_work_queue(pair->loop, &pair->work);
	return 0;
}

void pci_directs_close(struct pci_list *all)
{
	while (!pci_list_empty(all))
		direct_end(container_of(all->next, struct pci_direct, place));
}
