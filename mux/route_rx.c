// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Fabric to client: whose is it, under which id. */
#include <endian.h>
#include <string.h>

#include "mux/hash.h"
#include "mux/log.h"
#include "mux/mux.h"

#define GSI_QPN 1
/*
 * Requests that a peer may have open under one id. Each has its own, unless ids are reused before the timers
 * here have run out, or somebody wants the look-ups to take long.
 */
#define MAX_SAME_ID 64

struct rx {
	struct mux *mux;
	struct mux_port *port;
	const struct umad_pkt *in;
	const struct rx_info *info;
	struct umad_pkt pkt; /* as the client gets it */
	unsigned int attr;
	struct session_addr from;
};

static void drop(struct rx *rx, enum drop why)
{
	rx->port->stats.drop[why]++;
	if (log_get_level() >= LOG_DEBUG) {
		char s[GID_STRLEN];

		log_debug("event=rx_drop msg=%s reason=%s src=%s ids=0x%08x/0x%08x",
			  cm_name(rx->attr), drop_name(why), gid_str(rx->from.gid, s),
			  cm_get32(rx->in->mad, CM_OFF_LOCAL_ID),
			  cm_get32(rx->in->mad, CM_OFF_REMOTE_ID));
	}
}

static void deliver(struct rx *rx, struct client *c, const uint8_t *sgid)
{
	if (!c) {
		drop(rx, DROP_ABSENT);
		return;
	}
	rx->port->stats.rx[rx->attr - CM_REQ]++;
	client_deliver(c, sgid, &rx->pkt);
}

/* The address that a reply of the mux itself comes from. */
static const uint8_t *reply_source(struct rx *rx)
{
	return rx->info->dgid;
}

static void reply(struct rx *rx, const uint8_t *mad)
{
	const uint8_t *src = reply_source(rx);

	if (src)
		route_emit_built(rx->port, src, &rx->from, mad);
}

static void reject_req(struct rx *rx, enum cm_rej_reason reason)
{
	uint8_t mad[MUX_MAD_SIZE];

	cm_build_rej(mad, cm_get64(rx->in->mad, CM_OFF_TID), 0,
		     cm_get32(rx->in->mad, CM_OFF_LOCAL_ID), CM_REJ_MSG_REQ, reason);
	reply(rx, mad);
}

/* Too many sessions: say so, once a second and peer. */
static void no_resources(struct rx *rx)
{
	static const struct rate_limit once = { 1, 1 };
	uint64_t h = mux_hash_gid(rx->mux->hash_key, rx->from.gid, 0, 0);

	drop(rx, DROP_QUOTA);
	if (rx->attr == CM_REQ &&
	    bucket_take(&rx->mux->no_resources[h & 255], &once, rx->mux->now, 1))
		reject_req(rx, CM_REJ_NO_RESOURCES);
}

static bool over_source_rate(struct rx *rx)
{
	uint64_t h = mux_hash_gid(rx->mux->hash_key, rx->from.gid, 0, 1);

	return !bucket_take(&rx->mux->source[h & (SOURCE_BUCKETS - 1)], &rx->mux->cfg->source,
			    rx->mux->now, 1);
}

static bool from_peer(struct rx *rx, const struct session_rec *r)
{
	const struct mux_port *p = rx->mux->ports[r->port];

	if (p != rx->port && !port_same_device(p, rx->port))
		return false;
	if (!rx->in->hdr.grh_present)
		return r->peer.lid == rx->in->hdr.lid;
	return gid_equal(r->peer.gid, rx->from.gid) ||
	       (gid_equal(r->peer.alt_gid, rx->from.gid) && !gid_is_zero(rx->from.gid));
}

static void set_state(struct rx *rx, uint32_t s, enum session_state state)
{
	struct session_rec *r = session_rec(rx->mux->sessions, s);
	struct client *c;
	struct session_owner *o = route_owner(rx->mux, r, &c);

	/* What the mux ends for a client that is gone has its own course. */
	if (r->state == S_MOURNED)
		return;
	session_set_state(rx->mux->sessions, s, o, state, rx->mux->now);
	mux_need_timer(rx->mux);
}

/* A request's destination: the GID in the message first, because a peer behind an unrepaired mux sends to
 * its own address; else the GID that the packet was sent to.
 */
static struct gid_reg *destination(struct rx *rx, const uint8_t *named)
{
	struct gid_reg *g = NULL;

	if (named)
		g = gid_lookup(rx->mux, rx->port, named);
	if (!g && rx->info->dgid)
		g = gid_lookup(rx->mux, rx->port, rx->info->dgid);
	return g;
}

static void unowned_request(struct rx *rx)
{
	uint8_t mad[MUX_MAD_SIZE];

	drop(rx, DROP_NO_OWNER);
	if (!rx->mux->cfg->reject_unregistered)
		return;
	if (rx->attr == CM_REQ) {
		reject_req(rx, CM_REJ_INVALID_SERVICE_ID);
	} else {
		cm_build_sidr_rep(mad, rx->in->mad, CM_SIDR_UNSUPPORTED);
		reply(rx, mad);
	}
}

/* The client a request is for; NULL if it has been dealt with. */
static struct client *request_owner(struct rx *rx, struct gid_reg *g)
{
	struct client *c;

	if (!g) {
		unowned_request(rx);
		return NULL;
	}
	c = g->client;
	if (c->fd < 0) {
		/* It may come back in a moment: the peer repeats the request. */
		drop(rx, DROP_ABSENT);
		return NULL;
	}
	if (rx->mux->draining) {
		drop(rx, DROP_DRAINING);
		return NULL;
	}
	if (!owner_make_room(c)) {
		no_resources(rx);
		return NULL;
	}
	return c;
}

/*
 * The session of a REQ or SIDR_REQ, with its client in *c: the one that the first of several like it made, or a new one like rec.
 * named: the destination that the message itself names, or NULL.
 */
static uint32_t request_session(struct rx *rx, struct session_rec *rec, const uint8_t *named,
				struct client **c)
{
	struct gid_reg *g;
	uint32_t s;

	if (over_source_rate(rx)) {
		drop(rx, DROP_SOURCE_RATE);
		return SESSION_NONE;
	}
	g = destination(rx, named);
	s = session_by_peer(rx->mux->sessions, rec->class, rx->port->index, rx->from.gid,
			    rx->from.lid, rec->peer_id, g ? g->gid : NULL, true,
			    (uint32_t)rec->req_tid, rec->peer_guid);
	if (session_is(s)) {
		struct session_rec *r = session_rec(rx->mux->sessions, s);

		route_owner(rx->mux, r, c);
		set_state(rx, s, rec->class == CLASS_SIDR ? S_SIDR : r->state);
		return s;
	}
	if (session_count_peer(rx->mux->sessions, rec->class, rx->port->index, rx->from.gid,
			       rx->from.lid, rec->peer_id, MAX_SAME_ID) == MAX_SAME_ID) {
		drop(rx, DROP_SOURCE_RATE);
		return SESSION_NONE;
	}
	*c = request_owner(rx, g);
	if (!*c)
		return SESSION_NONE;
	memcpy(rec->client_gid, g->gid, MUX_GID_SIZE);
	s = session_create(rx->mux->sessions, &(*c)->owner, rec, rx->mux->now);
	if (!session_is(s))
		no_resources(rx);
	mux_need_timer(rx->mux);
	return s;
}

static void rx_req(struct rx *rx)
{
	const uint8_t *mad = rx->in->mad;
	struct session_rec rec = {
		.class = CLASS_CONN,
		.state = S_REQ_RCVD,
		.flags = SF_PEER,
		.port = (uint16_t)rx->port->index,
		.peer_id = cm_get32(mad, CM_OFF_LOCAL_ID),
		.peer_qpn = cm_get24(mad, CM_OFF_REQ_QPN),
		.peer_guid = cm_get64(mad, CM_OFF_REQ_CA_GUID),
		.service_id = cm_get64(mad, CM_OFF_SERVICE_ID),
		.req_tid = cm_get64(mad, CM_OFF_TID),
		.peer = rx->from,
	};
	struct client *c;
	uint32_t s;

	memcpy(rec.peer.alt_gid, mad + CM_OFF_REQ_ALT_LOCAL_GID, MUX_GID_SIZE);
	s = request_session(rx, &rec, mad + CM_OFF_REQ_REMOTE_GID, &c);
	if (session_is(s))
		deliver(rx, c, session_rec(rx->mux->sessions, s)->client_gid);
}

static void rx_sidr_req(struct rx *rx)
{
	const uint8_t *mad = rx->in->mad;
	struct session_rec rec = {
		.class = CLASS_SIDR,
		.state = S_SIDR,
		.flags = SF_PEER,
		.port = (uint16_t)rx->port->index,
		.peer_id = cm_get32(mad, CM_OFF_LOCAL_ID),
		.service_id = cm_get64(mad, CM_OFF_SERVICE_ID),
		.req_tid = cm_get64(mad, CM_OFF_TID),
		.peer = rx->from,
	};
	uint8_t named[MUX_GID_SIZE];
	struct session_rec *r;
	struct client *c;
	uint32_t s;

	s = request_session(rx, &rec, cm_ip_addrs(mad, NULL, named) ? named : NULL, &c);
	if (!session_is(s))
		return;
	r = session_rec(rx->mux->sessions, s);
	/* A Linux guest tells SIDR requests apart by id and LID alone, and all LIDs are 0 on RoCE. */
	if (rx->mux->cfg->sidr_alias)
		cm_put32(rx->pkt.mad, CM_OFF_LOCAL_ID, r->vid);
	deliver(rx, c, r->client_gid);
}

/* The client's own transaction id comes back. */
static void restore_tid(struct rx *rx, const struct session_rec *r)
{
	uint64_t tid;

	if (cm_get32(rx->in->mad, CM_OFF_TID_LOW) != r->vid)
		return;
	if (rx->attr == CM_DREP || rx->attr == CM_APR)
		tid = r->dreq_tid;
	else
		tid = r->req_tid;
	cm_put64(rx->pkt.mad, CM_OFF_TID, tid);
}

static void rx_unknown(struct rx *rx)
{
	uint8_t mad[MUX_MAD_SIZE];

	drop(rx, DROP_UNKNOWN_ID);
	/* Whoever asks for the end of a connection that is none gets it confirmed. */
	if (rx->attr == CM_DREQ && rx->mux->cfg->drep_unknown) {
		cm_build_drep(mad, rx->in->mad);
		reply(rx, mad);
	}
}

/* A message for a session whose client is gone. */
static void rx_orphan(struct rx *rx, uint32_t s)
{
	const struct session_rec *r = session_rec(rx->mux->sessions, s);
	uint8_t mad[MUX_MAD_SIZE];

	drop(rx, DROP_ABSENT);
	if (rx->attr == CM_DREQ && rx->mux->cfg->drep_unknown) {
		cm_build_drep(mad, rx->in->mad);
		route_emit_built(rx->port, r->client_gid, &rx->from, mad);
	}
	if (rx->attr == CM_DREQ || rx->attr == CM_DREP)
		obituary_answered(rx->mux, s);
}

static void rx_pair(struct rx *rx)
{
	const uint8_t *mad = rx->in->mad;
	uint32_t s = session_by_vid(rx->mux->sessions, cm_get32(mad, CM_OFF_REMOTE_ID));
	struct session_owner *o;
	struct session_rec *r;
	struct client *c;

	/* Before the client's first message its vid is on no wire. */
	if (session_is(s) && (session_rec(rx->mux->sessions, s)->class != CLASS_CONN ||
			      !(session_rec(rx->mux->sessions, s)->flags & SF_LOCAL)))
		s = SESSION_NONE;
	if (!session_is(s)) {
		rx_unknown(rx);
		return;
	}
	r = session_rec(rx->mux->sessions, s);
	if (!from_peer(rx, r)) {
		drop(rx, DROP_WRONG_SOURCE);
		return;
	}
	o = route_owner(rx->mux, r, &c);
	if (o == &rx->mux->orphans || o == &rx->mux->mourning) {
		rx_orphan(rx, s);
		return;
	}
	cm_put32(rx->pkt.mad, CM_OFF_REMOTE_ID, r->local_id);
	restore_tid(rx, r);
	switch (rx->attr) {
	case CM_REP:
		if (!(r->flags & SF_PEER) && (r->flags & SF_ACTIVE)) {
			r->flags |= SF_PEER;
			r->peer_id = cm_get32(mad, CM_OFF_LOCAL_ID);
			r->peer_qpn = cm_get24(mad, CM_OFF_REP_QPN);
			r->peer_guid = cm_get64(mad, CM_OFF_REP_CA_GUID);
			r->peer.lid = rx->from.lid;
			r->peer.sl = rx->from.sl;
			r->peer.path_bits = rx->from.path_bits;
		}
		set_state(rx, s, r->state < S_ESTABLISHED ? S_REP_RCVD : r->state);
		break;
	case CM_RTU:
		set_state(rx, s, r->state < S_ESTABLISHED ? S_ESTABLISHED : r->state);
		break;
	case CM_REJ:
		set_state(rx, s, S_REJECTED);
		break;
	case CM_DREQ:
		set_state(rx, s, S_DREQ);
		break;
	case CM_DREP:
		set_state(rx, s, S_TIMEWAIT);
		break;
	case CM_LAP:
		memcpy(r->peer.alt_gid, mad + CM_OFF_LAP_ALT_LOCAL_GID, MUX_GID_SIZE);
		session_changed(rx->mux->sessions, s);
		break;
	default:
		session_touch(rx->mux->sessions, s, rx->mux->now);
		break;
	}
	deliver(rx, c, r->client_gid);
}

/* A peer that gives up its own REQ does not know our id, and names itself instead. */
static void rx_rej_without_id(struct rx *rx)
{
	const uint8_t *mad = rx->in->mad;
	bool timeout = cm_get16(mad, CM_OFF_REJ_REASON) == CM_REJ_TIMEOUT;
	struct session_rec *r;
	struct client *c;
	uint32_t s;

	s = session_by_peer(rx->mux->sessions, CLASS_CONN, rx->port->index, rx->from.gid,
			    rx->from.lid, cm_get32(mad, CM_OFF_LOCAL_ID), NULL, false, 0,
			    timeout ? cm_get64(mad, CM_OFF_REJ_INFO) : 0);
	if (!session_is(s)) {
		drop(rx, DROP_UNKNOWN_ID);
		return;
	}
	r = session_rec(rx->mux->sessions, s);
	route_owner(rx->mux, r, &c);
	set_state(rx, s, S_REJECTED);
	deliver(rx, c, r->client_gid);
}

static void rx_sidr_rep(struct rx *rx)
{
	uint32_t s = session_by_vid(rx->mux->sessions, cm_get32(rx->in->mad, CM_OFF_SIDR_REP_ID));
	struct session_rec *r;
	struct client *c;

	if (!session_is(s) || session_rec(rx->mux->sessions, s)->class != CLASS_SIDR ||
	    !(session_rec(rx->mux->sessions, s)->flags & SF_ACTIVE)) {
		drop(rx, DROP_UNKNOWN_ID);
		return;
	}
	r = session_rec(rx->mux->sessions, s);
	if (!from_peer(rx, r)) {
		drop(rx, DROP_WRONG_SOURCE);
		return;
	}
	route_owner(rx->mux, r, &c);
	cm_put32(rx->pkt.mad, CM_OFF_SIDR_REP_ID, r->local_id);
	restore_tid(rx, r);
	set_state(rx, s, S_SIDR_DONE);
	deliver(rx, c, r->client_gid);
}

void route_rx(struct mux_port *p, const struct umad_pkt *pkt, const struct rx_info *info)
{
	struct rx rx = { .mux = p->mux, .port = p, .in = pkt, .info = info, .pkt = *pkt };

	if (!cm_valid(pkt->mad)) {
		drop(&rx, DROP_NOT_CM);
		return;
	}
	rx.attr = cm_attr(pkt->mad);
	if (p->mux->cfg->reject_foreign_qpn && pkt->hdr.qpn != htobe32(GSI_QPN)) {
		drop(&rx, DROP_WRONG_SOURCE);
		return;
	}
	if (pkt->hdr.grh_present)
		memcpy(rx.from.gid, pkt->hdr.gid, MUX_GID_SIZE);
	else if (!p->infiniband) {
		drop(&rx, DROP_NOT_CM);
		return;
	}
	rx.from.lid = pkt->hdr.lid;
	rx.from.sl = pkt->hdr.sl;
	rx.from.path_bits = pkt->hdr.path_bits;
	if (log_get_level() >= LOG_DEBUG) {
		char s[GID_STRLEN];

		log_debug("event=rx msg=%s ids=0x%08x/0x%08x src=%s hairpin=%d", cm_name(rx.attr),
			  cm_get32(pkt->mad, CM_OFF_LOCAL_ID), cm_get32(pkt->mad, CM_OFF_REMOTE_ID),
			  gid_str(rx.from.gid, s), info->hairpin);
	}
	switch (rx.attr) {
	case CM_REQ:
		rx_req(&rx);
		break;
	case CM_SIDR_REQ:
		rx_sidr_req(&rx);
		break;
	case CM_SIDR_REP:
		rx_sidr_rep(&rx);
		break;
	case CM_REJ:
		if (!cm_get32(pkt->mad, CM_OFF_REMOTE_ID)) {
			rx_rej_without_id(&rx);
			break;
		}
		/* fallthrough */
	default:
		rx_pair(&rx);
		break;
	}
}
