// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Queue pairs: creation, states, and the link they are bound to.
 */
#include <stdlib.h>

#include "adapter/core/core_internal.h"

enum {
	SQ_SHIFT_MAX = 15
};

int ea_qp_create(struct ea_dev *dev, const struct ea_qp_attr *attr)
{
	struct ea_qp *qp;
	int err = ENOMEM;

	if (!attr->qpn || attr->qpn >= dev->attr.max_qp || attr->sq_shift > SQ_SHIFT_MAX ||
	    attr->rq_shift > dev->attr.max_rq_shift)
		return EINVAL;
	if (dev->qps[attr->qpn])
		return EEXIST;
	if (attr->scqn >= dev->attr.max_cq || !dev->cqs[attr->scqn] ||
	    attr->rcqn >= dev->attr.max_cq || !dev->cqs[attr->rcqn])
		return ENOENT;

	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return ENOMEM;
	qp->sq.rec = calloc((size_t)1 << attr->sq_shift, sizeof(*qp->sq.rec));
	if (!qp->sq.rec)
		goto err_qp;
	qp->orq = calloc(EA_ORQ_SIZE, sizeof(*qp->orq));
	if (!qp->orq)
		goto err_rec;
	qp->irq = calloc(EA_IRQ_SIZE, sizeof(*qp->irq));
	if (!qp->irq)
		goto err_orq;
	err = ea_ring_init(dev, &qp->sq.ring, &attr->sq, attr->sq_shift, false);
	if (err)
		goto err_irq;
	err = ea_ring_init(dev, &qp->rq.ring, &attr->rq, attr->rq_shift, false);
	if (err)
		goto err_irq;

	qp->dev = dev;
	qp->qpn = attr->qpn;
	qp->pdn = attr->pdn;
	qp->dma_key_ok = attr->dma_key_ok;
	qp->scq = dev->cqs[attr->scqn];
	qp->rcq = dev->cqs[attr->rcqn];
	qp->scq->refs++;
	qp->rcq->refs++;
	dev->qps[attr->qpn] = qp;
	return 0;

err_irq:
	free(qp->irq);
err_orq:
	free(qp->orq);
err_rec:
	free(qp->sq.rec);
err_qp:
	free(qp);
	return err;
}

static void link_abort(struct ea_qp *qp)
{
	struct ea_link *link = qp->link;

	if (!link)
		return;
	qp->link = NULL;
	link->qp = NULL;
	link->ops->shutdown(link, EA_SHUT_ABORT);
}

void ea_qp_free(struct ea_dev *dev, uint32_t qpn)
{
	struct ea_qp *qp = dev->qps[qpn];

	dev->qps[qpn] = NULL;
	link_abort(qp);
	qp->scq->refs--;
	qp->rcq->refs--;
	free(qp->irq);
	free(qp->orq);
	free(qp->sq.rec);
	free(qp);
}

int ea_qp_destroy(struct ea_dev *dev, uint32_t qpn)
{
	if (!ea_qp_find(dev, qpn))
		return ENOENT;
	ea_qp_free(dev, qpn);
	return 0;
}

struct ea_qp *ea_qp_find(struct ea_dev *dev, uint32_t qpn)
{
	return qpn < dev->attr.max_qp ? dev->qps[qpn] : NULL;
}

enum ea_qp_state ea_qp_state(const struct ea_qp *qp)
{
	return qp->state;
}

uint32_t ea_qp_num(const struct ea_qp *qp)
{
	return qp->qpn;
}

bool ea_qp_sends_pending(const struct ea_qp *qp)
{
	return qp->sq.ci != qp->sq.pi;
}

/* Forget what belongs to one connection; ring indices stay. */
static void stream_init(struct ea_qp *qp)
{
	int i;

	qp->orq_head = 0;
	qp->orq_tail = 0;
	qp->irq_head = 0;
	qp->irq_next = 0;
	qp->irq_tail = 0;
	qp->sq.bad = 0;
	qp->sq.stalled = false;
	qp->sq.imm_due = false;
	qp->sq.busy = 0;
	qp->rq.held = false;
	qp->rq.open = false;
	qp->sq.ack_next = qp->sq.next;
	qp->sq.ack_half = false;
	qp->sq.ack_count = 0;
	qp->sq.ack_sent = 0;
	qp->rx_count = 0;
	qp->rx_acked = 0;
	for (i = 0; i < EA_NR_QN; i++) {
		qp->tx_msn[i] = EA_DDP_FIRST_MSN;
		qp->rx_msn[i] = EA_DDP_FIRST_MSN;
	}
	qp->rx_mo = 0;
	qp->rx_more = false;
	qp->write_open = false;
	qp->write_len = 0;
	qp->last_write_len = 0;
	qp->term_len = 0;
}

void ea_qp_stop(struct ea_qp *qp, const struct ea_stop *stop)
{
	bool running = qp->state < EA_QP_CLOSING;

	qp->state = stop->state;
	if (!running)
		return;
	/* before the flush, which gives the memory of an FPDU under way back to the program */
	if (qp->link) {
		if (stop->how == EA_SHUT_ABORT) {
			link_abort(qp);
		} else {
			qp->stopping = true;
			qp->link->ops->shutdown(qp->link, stop->how);
			qp->stopping = false;
		}
	}
	ea_flush(qp, stop);
	if (stop->event != EA_NO_EVENT)
		qp->dev->host->async_event(qp->dev->ctx, stop->event, qp->qpn);
}

int ea_qp_modify(struct ea_dev *dev, uint32_t qpn, enum ea_qp_state state)
{
	struct ea_qp *qp = ea_qp_find(dev, qpn);
	struct ea_stop stop = {
		.state = state,
		.how = state == EA_QP_CLOSING ? EA_SHUT_GRACEFUL : EA_SHUT_ABORT,
		.event = EA_NO_EVENT,
	};

	if (!qp)
		return ENOENT;
	switch (state) {
	case EA_QP_CLOSING:
	case EA_QP_TERMINATE:
		/* Neither is a way back from an error. */
		if (qp->state > EA_QP_CLOSING)
			return 0;
		break;
	case EA_QP_ERROR:
		break;
	default:
		return EINVAL;
	}
	ea_qp_stop(qp, &stop);
	return 0;
}

int ea_qp_reflush(struct ea_dev *dev, uint32_t qpn, uint16_t sq_pi, uint16_t rq_pi)
{
	static const struct ea_stop flush = { .event = EA_NO_EVENT };
	struct ea_qp *qp = ea_qp_find(dev, qpn);

	if (!qp)
		return ENOENT;
	if (qp->state < EA_QP_CLOSING)
		return EINVAL;
	/* Indices behind ours come from a request that is older than the doorbells since. */
	if ((uint16_t)(sq_pi - qp->sq.ci) <= qp->sq.ring.mask + 1)
		qp->sq.pi = sq_pi;
	if ((uint16_t)(rq_pi - qp->rq.ci) <= qp->rq.ring.mask + 1)
		qp->rq.pi = rq_pi;
	ea_flush(qp, &flush);
	return 0;
}

int ea_qp_unreachable(struct ea_dev *dev, uint32_t qpn)
{
	static const struct ea_stop stop = {
		.state = EA_QP_ERROR,
		.how = EA_SHUT_ABORT,
		.sq_syn = EA_SYN_RETRY,
		.event = EA_ASYNC_QP_FATAL,
	};
	struct ea_qp *qp = ea_qp_find(dev, qpn);

	if (!qp)
		return ENOENT;
	if (qp->state < EA_QP_CLOSING)
		ea_qp_stop(qp, &stop);
	return 0;
}

int ea_qp_reset(struct ea_dev *dev, uint32_t qpn)
{
	struct ea_qp *qp = ea_qp_find(dev, qpn);

	if (!qp)
		return ENOENT;
	link_abort(qp);
	qp->state = EA_QP_IDLE;
	qp->sq.ci = 0;
	qp->sq.next = 0;
	qp->sq.pi = 0;
	qp->rq.ci = 0;
	qp->rq.pi = 0;
	stream_init(qp);
	return 0;
}

int ea_qp_connect(struct ea_dev *dev, uint32_t qpn, struct ea_link *link,
		  const struct ea_conn_attr *attr)
{
	struct ea_qp *qp = ea_qp_find(dev, qpn);

	if (!qp)
		return ENOENT;
	if (qp->state == EA_QP_RTS || qp->state > EA_QP_CLOSING || attr->ord > EA_MAX_ORD ||
	    attr->ird > EA_MAX_IRD)
		return EINVAL;
	/* A QP that is used again need not wait for the end of its last stream. */
	link_abort(qp);
	stream_init(qp);
	qp->ord = attr->ord;
	qp->ird = attr->ird;
	qp->acks = attr->acks;
	qp->link = link;
	link->qp = qp;
	qp->state = EA_QP_RTS;
	if (qp->sq.next != qp->sq.pi)
		link->ops->tx_ready(link);
	return 0;
}

void ea_link_down(struct ea_link *link, int err)
{
	struct ea_qp *qp = link->qp;
	struct ea_stop stop = { .state = EA_QP_CLOSING,
				.how = EA_SHUT_ABORT,
				.event = EA_NO_EVENT };

	if (!qp)
		return;
	link->qp = NULL;
	qp->link = NULL;
	if (qp->state != EA_QP_RTS)
		return;
	if (err || qp->rx_more || qp->write_open) {
		stop.state = EA_QP_ERROR;
		stop.event = EA_ASYNC_QP_FATAL;
		if (err == ETIMEDOUT || (err && qp->acks))
			stop.sq_syn = EA_SYN_RETRY;
	}
	ea_qp_stop(qp, &stop);
}
