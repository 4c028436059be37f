// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The table of ids: numbers are small and the lowest free one is taken, as librdmacm's index map
 * likes it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "adapter/process/cm/cm.h"

#define NUDGE_NS (5 * CM_MSEC)

enum {
	IDS_GROW = 64,
	IDS_MAX = 65536
};

static struct cm_id **ids;
static uint32_t ids_size, ids_used, ids_low; /* ids_low: nothing below is free */
static uint64_t ids_made;

static bool ids_grow(void)
{
	struct cm_id **bigger;
	uint32_t size = ids_size + (ids_size > IDS_GROW ? ids_size : IDS_GROW);

	if (size > IDS_MAX)
		size = IDS_MAX;
	if (size == ids_size)
		return false;
	bigger = realloc(ids, size * sizeof(*bigger));
	if (!bigger)
		return false;
	memset(bigger + ids_size, 0, (size - ids_size) * sizeof(*bigger));
	ids = bigger;
	ids_size = size;
	return true;
}

struct cm_id *cm_id_create(struct ucma_file *file)
{
	struct cm_id *id;

	while (ids_low < ids_size && ids[ids_low])
		ids_low++;
	if (ids_low == ids_size && !ids_grow())
		return NULL;
	id = calloc(1, sizeof(*id));
	if (!id)
		return NULL;
	id->number = ids_low;
	id->serial = ++ids_made;
	id->file = file;
	id->fd = -1;
	id->afonly = CM_OPT_UNSET;
	id->tos = CM_OPT_UNSET;
	ids[ids_low++] = id;
	ids_used++;
	return id;
}

struct cm_id *cm_id_find(uint32_t number)
{
	return number < ids_size ? ids[number] : NULL;
}

bool cm_id_lives(uint32_t number, uint64_t serial)
{
	struct cm_id *id = cm_id_find(number);

	return id && id->serial == serial;
}

unsigned int cm_id_count(void)
{
	return ids_used;
}

void cm_id_each(void (*fn)(struct cm_id *id, void *arg), void *arg)
{
	uint32_t i;

	for (i = 0; i < ids_size; i++)
		if (ids[i])
			fn(ids[i], arg);
}

void cm_id_destroy(struct cm_id *id)
{
	/* out of the table first: dropping a CONNECT_REQUEST destroys further ids */
	ids[id->number] = NULL;
	ids_used--;
	if (id->number < ids_low)
		ids_low = id->number;
	cm_listen_stop(id);
	engine_timer_cancel(&id->nudge);
	ucma_events_drop(id->file, id);
	if (id->conn)
		cm_conn_abandon(id->conn);
	if (id->fd >= 0)
		host_fd_unhide_close(id->fd);
	free(id);
}

void cm_id_event_data(struct cm_id *id, enum cm_event_type type, int status, const void *data,
		      size_t len)
{
	struct cm_event *event = calloc(1, sizeof(*event));

	if (!event) {
		host_log(HOST_LOG_ERROR, "no memory for event %d of id %u", type, id->number);
		return;
	}
	event->id = id;
	event->resp.uid = id->uid;
	event->resp.id = id->number;
	event->resp.event = type;
	event->resp.status = (uint32_t)status;
	if (data) {
		if (len > sizeof(event->resp.param.conn.private_data) - 1)
			len = sizeof(event->resp.param.conn.private_data) - 1;
		memcpy(event->resp.param.conn.private_data, data, len);
		event->resp.param.conn.private_data_len = (uint8_t)len;
	}
	ucma_event_push(id->file, event);
}

static void nudge(struct engine_timer *timer)
{
	struct cm_id *id = container_of(timer, struct cm_id, nudge);
	struct host_qp *qp = host_qp_find(id->dev, id->qpn);

	if (!qp)
		return;
	ea_cq_nudge(id->dev->core, qp->rcq->cqn);
	if (qp->scq != qp->rcq)
		ea_cq_nudge(id->dev->core, qp->scq->cqn);
}

/*
 * A thread that sleeps on the completion channel may have seen the flushed receives before another
 * one has noted the end of the connection, and sleeps again; rsockets do so.  On hardware the flush
 * takes its time and comes last.  Here the sleeper is woken once more.
 */
void cm_id_disconnect_seen(struct cm_id *id)
{
	if (!id->dev || !id->qpn)
		return;
	id->nudge.fire = nudge;
	engine_timer_set(&id->nudge, NUDGE_NS);
}

void cm_id_event(struct cm_id *id, enum cm_event_type type, int status)
{
	cm_id_event_data(id, type, status, NULL, 0);
}

void cm_ids_forget(void)
{
	ids = NULL;
	ids_size = 0;
	ids_used = 0;
	ids_low = 0;
}
