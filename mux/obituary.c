// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Speaking for clients that are gone.
 *
 * Their sessions wait in mux->mourning; each is told to its peer as soon as the rate of the mux's own messages allows, and then moves to
 * mux->orphans, where it answers what still comes until its timer runs out.
 */
#include "mux/mux.h"

#define DREQ_TRIES 3

static void emit(struct mux *mux, uint32_t s, const uint8_t *mad)
{
	struct session_rec *r = session_rec(mux->sessions, s);
	struct mux_port *p = mux->ports[r->port];

	p->stats.built++;
	route_emit(p, r->client_gid, &r->peer, mad, 0);
}

/* The transaction id of what we begin: the kernel sets the upper half. */
static uint64_t own_tid(const struct session_rec *r)
{
	return r->vid;
}

static void set_state(struct mux *mux, uint32_t s, enum session_state state)
{
	struct session_rec *r = session_rec(mux->sessions, s);
	struct client *c;

	session_set_state(mux->sessions, s, route_owner(mux, r, &c), state, mux->now);
}

static void send_dreq(struct mux *mux, uint32_t s)
{
	struct session_rec *r = session_rec(mux->sessions, s);
	uint8_t mad[MUX_MAD_SIZE];

	cm_build_dreq(mad, own_tid(r), r->vid, r->peer_id, r->peer_qpn);
	r->dreqs++;
	set_state(mux, s, S_MOURNED);
	emit(mux, s, mad);
}

/* Whether a session has anything to say. */
static bool has_news(const struct mux *mux, const struct session_rec *r)
{
	switch (r->state) {
	case S_REQ_SENT:
	case S_REQ_RCVD:
	case S_REP_SENT:
	case S_REP_RCVD:
		return mux->cfg->obituary_rej;
	case S_ESTABLISHED:
		return mux->cfg->obituary_dreq;
	default:
		return false;
	}
}

static void tell(struct mux *mux, uint32_t s)
{
	struct session_rec *r = session_rec(mux->sessions, s);
	enum session_state state = r->state;
	uint8_t mad[MUX_MAD_SIZE];

	switch (state) {
	case S_REQ_SENT:
		cm_build_rej_timeout(mad, own_tid(r), r->vid, r->own_guid);
		break;
	case S_REQ_RCVD:
		cm_build_rej(mad, r->req_tid, 0, r->peer_id, CM_REJ_MSG_REQ, CM_REJ_CONSUMER);
		break;
	case S_REP_SENT:
		cm_build_rej(mad, r->req_tid, r->vid, r->peer_id, CM_REJ_MSG_OTHER,
			     CM_REJ_CONSUMER);
		break;
	case S_REP_RCVD:
		cm_build_rej(mad, own_tid(r), r->vid, r->peer_id, CM_REJ_MSG_REP, CM_REJ_CONSUMER);
		break;
	case S_ESTABLISHED:
		send_dreq(mux, s);
		return;
	default:
		return;
	}
	set_state(mux, s, S_REJECTED);
	emit(mux, s, mad);
}

void obituary_run(struct mux *mux)
{
	while (session_is(mux->mourning.head)) {
		uint32_t s = mux->mourning.head;
		struct session_rec *r = session_rec(mux->sessions, s);
		bool news = has_news(mux, r);

		/* While the port is away its news wait; sessions without any go on. */
		if (news && (!mux->ports[r->port]->up ||
			     !bucket_take(&mux->obituary, &mux->cfg->built, mux->now, 1)))
			break;
		session_move(mux->sessions, s, &mux->mourning, &mux->orphans);
		if (news)
			tell(mux, s);
		else if (r->state < S_REJECTED)
			set_state(mux, s, S_TIMEWAIT);
	}
	if (obituary_pending(mux))
		mux_need_timer(mux);
}

bool obituary_pending(const struct mux *mux)
{
	return session_is(mux->mourning.head);
}

void obituary_begin(struct mux *mux, uint32_t s)
{
	struct session_rec *r = session_rec(mux->sessions, s);

	if (r->dreqs >= DREQ_TRIES)
		set_state(mux, s, S_TIMEWAIT);
	else if (bucket_take(&mux->obituary, &mux->cfg->built, mux->now, 1))
		send_dreq(mux, s);
	else
		session_touch(mux->sessions, s, mux->now);
}

void obituary_answered(struct mux *mux, uint32_t s)
{
	struct session_rec *r = session_rec(mux->sessions, s);

	if (r->state == S_ESTABLISHED || r->state == S_MOURNED)
		set_state(mux, s, S_TIMEWAIT);
}
