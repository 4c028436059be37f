// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Client to fabric: checks, ids, destination. */
#include <endian.h>
#include <string.h>

#include "mux/log.h"
#include "mux/mux.h"

#define GSI_QPN	   1
#define HOP_LIMIT  0xff
#define MAX_PARKED 512

/* One MAD on its way out. */
struct tx {
	struct mux *mux;
	struct mux_port *port;
	struct client *client;
	const struct mux_frame *req;
	uint8_t mad[MUX_MAD_SIZE];
	unsigned int attr;
	enum session_class class;
	bool former; /* the source is a GID that the client gave up a moment ago */
	uint32_t session;
	struct session_addr to;
};

static int refuse(struct tx *tx, enum drop why, int err)
{
	tx->port->stats.drop[why]++;
	tx->client->stats.tx_refused++;
	return err;
}

/* Only clients that said hello know the error for what passes by itself. */
static int refuse_for_now(struct tx *tx, enum drop why)
{
	return refuse(tx, why, tx->client->rec->hello & HELLO_SAID ? MUX_EAGAIN : MUX_EACCES);
}

struct session_owner *route_owner(struct mux *mux, const struct session_rec *r, struct client **c)
{
	struct client *client;

	*c = NULL;
	if (r->owner == mux->orphans.serial)
		return &mux->orphans;
	if (r->owner == mux->mourning.serial)
		return &mux->mourning;
	client = client_by_serial(mux, r->owner);
	*c = client;
	return client ? &client->owner : NULL;
}

/* The way out ------------------------------------------------------------------------------------- */

/* Whether the destination is a client of this port, so that the kernel needn't carry the MAD. */
static bool is_local(struct mux_port *p, const uint8_t *gid, const uint8_t *mad)
{
	struct mux *mux = p->mux;
	unsigned int attr = cm_attr(mad);
	uint32_t s = SESSION_NONE;

	if (!mux->cfg->hairpin)
		return false;
	if (gid_lookup(mux, p, gid))
		return true;
	/* A client that has given up its address still ends its connections. */
	if (cm_has_remote_id(attr))
		s = session_by_vid(mux->sessions, cm_get32(mad, CM_OFF_REMOTE_ID));
	else if (attr == CM_SIDR_REP)
		s = session_by_vid(mux->sessions, cm_get32(mad, CM_OFF_SIDR_REP_ID));
	return session_is(s) && session_rec(mux->sessions, s)->port == p->index &&
	       gid_equal(session_rec(mux->sessions, s)->client_gid, gid);
}

static void hairpin(struct mux_port *p, const uint8_t *src, const uint8_t *dst, const uint8_t *mad)
{
	struct rx_info info = { .dgid = dst, .hairpin = true };
	struct umad_pkt pkt = {
		.hdr = {
			.length = sizeof(pkt),
			.qpn = htobe32(GSI_QPN),
			.grh_present = 1,
			.hop_limit = HOP_LIMIT,
		},
	};
	int index = gidtable_index(p->gids, dst);

	if (index > 0)
		pkt.hdr.gid_index = (uint8_t)index;
	memcpy(pkt.hdr.gid, src, MUX_GID_SIZE);
	memcpy(pkt.mad, mad, MUX_MAD_SIZE);
	p->stats.hairpin++;
	route_rx(p, &pkt, &info);
}

static int send_out(struct mux_port *p, const uint8_t *src, const struct session_addr *to,
		    const uint8_t *mad, uint64_t client_serial)
{
	struct umad_pkt pkt;
	int index = gidtable_index(p->gids, src);

	if (index < 0)
		return DROP_NO_SOURCE_INDEX;
	memset(&pkt.hdr, 0, sizeof(pkt.hdr));
	pkt.hdr.length = sizeof(pkt);
	pkt.hdr.qpn = htobe32(GSI_QPN);
	pkt.hdr.grh_present = 1;
	pkt.hdr.gid_index = (uint8_t)index;
	pkt.hdr.hop_limit = HOP_LIMIT;
	pkt.hdr.lid = to->lid;
	pkt.hdr.sl = to->sl;
	pkt.hdr.path_bits = to->path_bits;
	memcpy(pkt.hdr.gid, to->gid, MUX_GID_SIZE);
	memcpy(pkt.mad, mad, MUX_MAD_SIZE);
	if (p->infiniband && !path_is_lid(to->lid))
		return paths_send(p->paths, src, &pkt, client_serial);
	return peers_send(p->peers, &pkt, client_serial);
}

/*
 * The host got the address a moment ago, and the GID table's snapshot is older: the MAD waits for one that is begun
 * from now on.
 */
static bool park(struct mux_port *p, const uint8_t *src, const struct session_addr *to,
		 const uint8_t *mad)
{
	struct mux_node *node;

	if (p->parked.count >= MAX_PARKED)
		return false;
	node = node_get(p->mux);
	if (!node)
		return false;
	memcpy(node->frame.sgid, src, MUX_GID_SIZE);
	memcpy(node->frame.umad.gid, to->gid, MUX_GID_SIZE);
	node->frame.umad.lid = to->lid;
	node->frame.umad.sl = to->sl;
	node->frame.umad.path_bits = to->path_bits;
	memcpy(node->frame.mad, mad, MUX_MAD_SIZE);
	if (!p->parked.count)
		p->parked_at_ms = p->mux->now;
	p->parked_request = gidtable_refresh(p->gids);
	queue_push(&p->parked, node);
	mux_need_timer(p->mux);
	return true;
}

void route_unpark(struct mux_port *p)
{
	bool last = gidtable_served(p->gids, p->parked_request);
	unsigned int n = p->parked.count;
	struct session_addr to = { .lid = 0 };
	struct mux_node *node;
	int why;

	while (n--) {
		node = queue_pop(&p->parked);
		memcpy(to.gid, node->frame.umad.gid, MUX_GID_SIZE);
		to.lid = node->frame.umad.lid;
		to.sl = node->frame.umad.sl;
		to.path_bits = node->frame.umad.path_bits;
		why = send_out(p, node->frame.sgid, &to, node->frame.mad, 0);
		if (why == DROP_NO_SOURCE_INDEX && !last) {
			queue_push(&p->parked, node);
			continue;
		}
		if (why)
			p->stats.drop[why]++;
		node_put(p->mux, node);
	}
}

int route_emit(struct mux_port *p, const uint8_t *src, const struct session_addr *to,
	       const uint8_t *mad, uint64_t client_serial)
{
	int why;

	if (is_local(p, to->gid, mad)) {
		hairpin(p, src, to->gid, mad);
		return 0;
	}
	if (!p->up) {
		p->stats.drop[DROP_PORT_DOWN]++;
		return DROP_PORT_DOWN;
	}
	why = send_out(p, src, to, mad, client_serial);
	if (why == DROP_NO_SOURCE_INDEX && park(p, src, to, mad))
		return 0;
	if (why)
		p->stats.drop[why]++;
	return why;
}

void route_emit_built(struct mux_port *p, const uint8_t *src, const struct session_addr *to,
		      const uint8_t *mad)
{
	if (!bucket_take(&p->mux->built, &p->mux->cfg->built, p->mux->now, 1)) {
		p->stats.drop[DROP_RATE]++;
		return;
	}
	p->stats.built++;
	route_emit(p, src, to, mad, 0);
}

/* Checks of single fields ------------------------------------------------------------------------- */

static int check_destination(struct tx *tx)
{
	const uint8_t *gid = tx->to.gid, *src = tx->req->sgid;

	if (gid_is_zero(gid) || gid_is_multicast(gid))
		return refuse(tx, DROP_NO_DESTINATION, MUX_EINVAL);
	if (!tx->port->infiniband && gid_is_ipv4(gid) != gid_is_ipv4(src))
		return refuse(tx, DROP_NO_DESTINATION, MUX_EINVAL);
	return MUX_OK;
}

/* What the client wrote into the address, if it may be believed. */
static int apply_client_destination(struct tx *tx, bool computed)
{
	const struct mux_umad *hdr = &tx->req->umad;
	bool has = (tx->client->rec->hello & MUX_HELLO_DEST) && !gid_is_zero(hdr->gid);

	if (!has || tx->mux->cfg->dest == DEST_CONTENT)
		return computed ? MUX_OK : refuse(tx, DROP_NO_DESTINATION, MUX_EINVAL);
	if (tx->mux->cfg->dest == DEST_STRICT && computed && !gid_equal(tx->to.gid, hdr->gid))
		return refuse(tx, DROP_SPOOFED, MUX_EACCES);
	memcpy(tx->to.gid, hdr->gid, MUX_GID_SIZE);
	tx->to.lid = hdr->lid;
	tx->to.sl = hdr->sl;
	return MUX_OK;
}

static int check_source_address(struct tx *tx)
{
	uint8_t src[MUX_GID_SIZE];

	if (!tx->mux->cfg->check_source_address || !cm_ip_addrs(tx->mad, src, NULL))
		return MUX_OK;
	/* An unspecified address names nobody. */
	if (gid_is_zero(src) || (gid_is_ipv4(src) && cm_get32(src, 12) == 0))
		return MUX_OK;
	if (!owner_has_gid(tx->client, src))
		return refuse(tx, DROP_SPOOFED, MUX_EACCES);
	return MUX_OK;
}

/* Checks the CA GUID at off, and replaces it where the operator wants that. */
static int check_ca_guid(struct tx *tx, size_t off)
{
	uint64_t guid = cm_get64(tx->mad, off);

	switch (tx->mux->cfg->ca_guid) {
	case CA_GUID_OFF:
		return MUX_OK;
	case CA_GUID_REPLACE:
		cm_put64(tx->mad, off, tx->client->rec->alias_guid);
		return MUX_OK;
	case CA_GUID_BIND:
		break;
	}
	if (owner_ca_guid(tx->client, guid))
		return refuse(tx, DROP_SPOOFED, MUX_EACCES);
	return MUX_OK;
}

static int check_own_gid(struct tx *tx, size_t off, bool zero_ok)
{
	const uint8_t *gid = tx->mad + off;

	if (zero_ok && gid_is_zero(gid))
		return MUX_OK;
	if (owner_has_gid(tx->client, gid))
		return MUX_OK;
	return refuse(tx, DROP_SPOOFED, MUX_EACCES);
}

static struct session_rec *rec_of(struct tx *tx)
{
	return session_rec(tx->mux->sessions, tx->session);
}

/* Ids ---------------------------------------------------------------------------------------------- */

static void put_local(struct tx *tx)
{
	cm_put32(tx->mad, CM_OFF_LOCAL_ID, rec_of(tx)->vid);
}

/* A transaction that the client began gets the session's own number, so that equal ids of two clients don't meet. */
static void put_own_tid(struct tx *tx)
{
	cm_put32(tx->mad, CM_OFF_TID_LOW, rec_of(tx)->vid);
}

/*
 * The transaction id of a message that answers the peer stays. One that continues the client's own transaction
 * (an RTU has the TID of the REP, which has that of the REQ) is replaced like the first message's.
 */
static void put_reply_tid(struct tx *tx)
{
	struct session_rec *r = rec_of(tx);

	if ((r->flags & SF_ACTIVE) && cm_get32(tx->mad, CM_OFF_TID_LOW) == (uint32_t)r->req_tid)
		put_own_tid(tx);
}

static int check_peer_id(struct tx *tx)
{
	struct session_rec *r = rec_of(tx);

	if ((r->flags & SF_PEER) && cm_get32(tx->mad, CM_OFF_REMOTE_ID) != r->peer_id)
		return refuse(tx, DROP_SPOOFED, MUX_EACCES);
	return MUX_OK;
}

static bool find_local(struct tx *tx)
{
	tx->session = session_by_local(tx->mux->sessions, &tx->client->owner, tx->class,
				       cm_get32(tx->mad, CM_OFF_LOCAL_ID));
	return session_is(tx->session);
}

static bool find_by_reply(struct tx *tx, size_t id_off)
{
	tx->session = session_by_reply(tx->mux->sessions, &tx->client->owner, tx->class,
				       cm_get32(tx->mad, id_off), cm_get32(tx->mad, CM_OFF_TID_LOW),
				       tx->req->sgid);
	return session_is(tx->session);
}

/* Of a GID given up, only its own sessions may go on. */
static int check_former(struct tx *tx)
{
	if (tx->former &&
	    (!session_is(tx->session) || !gid_equal(rec_of(tx)->client_gid, tx->req->sgid)))
		return refuse(tx, DROP_NOT_REGISTERED, MUX_EACCES);
	return MUX_OK;
}

static void set_state(struct tx *tx, enum session_state state)
{
	session_set_state(tx->mux->sessions, tx->session, &tx->client->owner, state, tx->mux->now);
}

/* Sends to the session's peer. */
static int send_to_peer(struct tx *tx)
{
	struct session_rec *r = rec_of(tx);

	int why;

	tx->port->stats.tx[tx->attr - CM_REQ]++;
	why = route_emit(tx->port, r->client_gid, &r->peer, tx->mad, tx->client->owner.serial);
	if (why == DROP_LANE_FULL && (tx->client->rec->hello & HELLO_SAID))
		return MUX_EAGAIN;
	return MUX_OK;
}

/* Messages ----------------------------------------------------------------------------------------- */

static int tx_create(struct tx *tx, const struct session_rec *rec)
{
	if (!owner_make_room(tx->client))
		return refuse(tx, DROP_QUOTA, MUX_EACCES);
	tx->session = session_create(tx->mux->sessions, &tx->client->owner, rec, tx->mux->now);
	if (!session_is(tx->session))
		return refuse(tx, DROP_QUOTA, MUX_EACCES);
	mux_need_timer(tx->mux);
	return MUX_OK;
}

static int begin_request(struct tx *tx)
{
	if (tx->mux->draining)
		return refuse(tx, DROP_DRAINING, MUX_EACCES);
	if (!bucket_take(&tx->client->requests, &tx->client->limits->requests, tx->mux->now, 1))
		return refuse_for_now(tx, DROP_RATE);
	return MUX_OK;
}

/* Sends a REQ or SIDR_REQ to tx->to: a repetition in its session, or a new one like rec. */
static int send_request(struct tx *tx, struct session_rec *rec)
{
	int err = check_former(tx);

	if (!err && !session_is(tx->session)) {
		memcpy(rec->client_gid, tx->req->sgid, MUX_GID_SIZE);
		rec->peer = tx->to;
		err = tx_create(tx, rec);
	} else if (!err) {
		set_state(tx, tx->class == CLASS_SIDR ? S_SIDR : rec_of(tx)->state);
	}
	if (err)
		return err;
	put_local(tx);
	put_own_tid(tx);
	return send_to_peer(tx);
}

/* True if the REQ repeats the one that made the session. */
static bool same_req(struct tx *tx)
{
	struct session_rec *r = rec_of(tx);

	return (r->flags & SF_ACTIVE) && r->state < S_REJECTED &&
	       gid_equal(r->peer.gid, tx->to.gid) && gid_equal(r->client_gid, tx->req->sgid) &&
	       r->service_id == cm_get64(tx->mad, CM_OFF_SERVICE_ID) &&
	       r->own_qpn == cm_get24(tx->mad, CM_OFF_REQ_QPN);
}

static int tx_req(struct tx *tx)
{
	struct session_rec rec = {
		.class = CLASS_CONN,
		.state = S_REQ_SENT,
		.flags = SF_ACTIVE | SF_LOCAL,
		.port = (uint16_t)tx->port->index,
		.local_id = cm_get32(tx->mad, CM_OFF_LOCAL_ID),
		.service_id = cm_get64(tx->mad, CM_OFF_SERVICE_ID),
		.own_qpn = cm_get24(tx->mad, CM_OFF_REQ_QPN),
		.req_tid = cm_get64(tx->mad, CM_OFF_TID),
	};
	int err;

	err = begin_request(tx);
	if (!err && !gid_equal(tx->mad + CM_OFF_REQ_LOCAL_GID, tx->req->sgid))
		err = refuse(tx, DROP_SPOOFED, MUX_EACCES);
	if (!err)
		err = check_own_gid(tx, CM_OFF_REQ_ALT_LOCAL_GID, true);
	if (!err)
		err = check_source_address(tx);
	if (!err)
		err = check_ca_guid(tx, CM_OFF_REQ_CA_GUID);
	if (err)
		return err;
	rec.own_guid = cm_get64(tx->mad, CM_OFF_REQ_CA_GUID);
	memcpy(tx->to.gid, tx->mad + CM_OFF_REQ_REMOTE_GID, MUX_GID_SIZE);
	memcpy(tx->to.alt_gid, tx->mad + CM_OFF_REQ_ALT_REMOTE_GID, MUX_GID_SIZE);
	if (tx->port->infiniband)
		tx->to.lid = htobe16(cm_get16(tx->mad, CM_OFF_REQ_REMOTE_LID));
	err = apply_client_destination(tx, true);
	if (!err)
		err = check_destination(tx);
	if (err)
		return err;
	if (find_local(tx) && !same_req(tx)) {
		session_unlink_local(tx->mux->sessions, tx->session, &tx->client->owner);
		tx->session = SESSION_NONE;
	}
	return send_request(tx, &rec);
}

static int tx_sidr_req(struct tx *tx)
{
	struct session_rec rec = {
		.class = CLASS_SIDR,
		.state = S_SIDR,
		.flags = SF_ACTIVE | SF_LOCAL,
		.port = (uint16_t)tx->port->index,
		.local_id = cm_get32(tx->mad, CM_OFF_LOCAL_ID),
		.service_id = cm_get64(tx->mad, CM_OFF_SERVICE_ID),
		.req_tid = cm_get64(tx->mad, CM_OFF_TID),
	};
	const uint8_t *hdr_gid = tx->req->umad.gid;
	bool computed;
	int err;

	err = begin_request(tx);
	if (!err)
		err = check_source_address(tx);
	if (err)
		return err;
	computed = cm_ip_addrs(tx->mad, NULL, tx->to.gid);
	/* The message has no GID of its own. An address that is not the client's own GID once more is meant. */
	if (!computed && !gid_is_zero(hdr_gid) && !gid_equal(hdr_gid, tx->req->sgid)) {
		memcpy(tx->to.gid, hdr_gid, MUX_GID_SIZE);
		if (tx->port->infiniband)
			tx->to.lid = tx->req->umad.lid;
		computed = true;
	}
	err = apply_client_destination(tx, computed);
	if (!err)
		err = check_destination(tx);
	if (err)
		return err;
	if (find_local(tx) && (!gid_equal(rec_of(tx)->peer.gid, tx->to.gid) ||
			       rec_of(tx)->service_id != rec.service_id ||
			       (uint32_t)rec_of(tx)->req_tid != (uint32_t)rec.req_tid)) {
		session_unlink_local(tx->mux->sessions, tx->session, &tx->client->owner);
		tx->session = SESSION_NONE;
	}
	return send_request(tx, &rec);
}

/* MRA and REP may be the first message of a passive session that has the client's id. */
static int find_or_bind(struct tx *tx)
{
	uint32_t local = cm_get32(tx->mad, CM_OFF_LOCAL_ID);
	uint32_t bound;

	if (find_local(tx) && rec_of(tx)->peer_id == cm_get32(tx->mad, CM_OFF_REMOTE_ID) &&
	    (rec_of(tx)->flags & SF_PEER))
		return check_former(tx);
	bound = tx->session;
	/* A guest that started anew while the peer still asks has a new id. */
	if (find_by_reply(tx, CM_OFF_REMOTE_ID) &&
	    (!(rec_of(tx)->flags & SF_LOCAL) || rec_of(tx)->local_id == local ||
	     rec_of(tx)->state < S_ESTABLISHED)) {
		int err = check_former(tx);

		if (err)
			return err;
		session_unlink_local(tx->mux->sessions, tx->session, &tx->client->owner);
		session_set_local(tx->mux->sessions, tx->session, &tx->client->owner, local);
		return MUX_OK;
	}
	if (session_is(bound))
		return refuse(tx, DROP_SPOOFED, MUX_EACCES);
	return refuse(tx, DROP_UNKNOWN_ID, MUX_ENOTFOUND);
}

static int tx_mra(struct tx *tx)
{
	int err = find_or_bind(tx);

	if (err)
		return err;
	session_touch(tx->mux->sessions, tx->session, tx->mux->now);
	put_local(tx);
	put_reply_tid(tx);
	return send_to_peer(tx);
}

static int tx_rep(struct tx *tx)
{
	struct session_rec *r;
	int err = find_or_bind(tx);

	if (!err)
		err = check_ca_guid(tx, CM_OFF_REP_CA_GUID);
	if (err)
		return err;
	r = rec_of(tx);
	r->own_qpn = cm_get24(tx->mad, CM_OFF_REP_QPN);
	r->own_guid = cm_get64(tx->mad, CM_OFF_REP_CA_GUID);
	if (r->state == S_REQ_RCVD || r->state == S_REP_SENT)
		set_state(tx, S_REP_SENT);
	else
		session_changed(tx->mux->sessions, tx->session);
	put_local(tx);
	put_reply_tid(tx);
	return send_to_peer(tx);
}

static int tx_rej(struct tx *tx)
{
	uint32_t local = cm_get32(tx->mad, CM_OFF_LOCAL_ID);
	uint32_t remote = cm_get32(tx->mad, CM_OFF_REMOTE_ID);
	bool timeout = cm_get16(tx->mad, CM_OFF_REJ_REASON) == CM_REJ_TIMEOUT;
	int err;

	if (timeout) {
		err = check_ca_guid(tx, CM_OFF_REJ_INFO);
		if (err)
			return err;
	}
	if (find_local(tx) && (remote == rec_of(tx)->peer_id || !(rec_of(tx)->flags & SF_PEER) ||
			       (timeout && !remote))) {
		err = check_former(tx);
		if (err)
			return err;
		put_local(tx);
		put_reply_tid(tx);
		set_state(tx, S_REJECTED);
		return send_to_peer(tx);
	}
	if (session_is(tx->session) && local)
		return refuse(tx, DROP_SPOOFED, MUX_EACCES);
	/* A server that has not yet made an id has 0 there, or what Linux copies from the REQ: the vendor's. */
	if (local >> 24 || timeout || !find_by_reply(tx, CM_OFF_REMOTE_ID))
		return refuse(tx, DROP_UNKNOWN_ID, MUX_ENOTFOUND);
	err = check_former(tx);
	if (err)
		return err;
	set_state(tx, S_REJECTED);
	return send_to_peer(tx);
}

/* Messages of a connection that both ends know. */
static int tx_pair(struct tx *tx)
{
	int err;

	if (!find_local(tx))
		return refuse(tx, DROP_UNKNOWN_ID, MUX_ENOTFOUND);
	err = check_former(tx);
	if (!err)
		err = check_peer_id(tx);
	if (!err && tx->attr == CM_LAP)
		err = check_own_gid(tx, CM_OFF_LAP_ALT_LOCAL_GID, true);
	if (err)
		return err;
	put_local(tx);
	switch (tx->attr) {
	case CM_RTU:
		if (rec_of(tx)->state < S_ESTABLISHED)
			set_state(tx, S_ESTABLISHED);
		put_reply_tid(tx);
		break;
	case CM_LAP:
		memcpy(rec_of(tx)->peer.alt_gid, tx->mad + CM_OFF_LAP_ALT_REMOTE_GID, MUX_GID_SIZE);
		/* fallthrough */
	case CM_DREQ:
		rec_of(tx)->dreq_tid = cm_get64(tx->mad, CM_OFF_TID);
		put_own_tid(tx);
		if (tx->attr == CM_DREQ)
			set_state(tx, S_DREQ);
		else
			session_changed(tx->mux->sessions, tx->session);
		break;
	case CM_DREP:
		set_state(tx, S_TIMEWAIT);
		break;
	default:
		put_reply_tid(tx);
		session_touch(tx->mux->sessions, tx->session, tx->mux->now);
		break;
	}
	return send_to_peer(tx);
}

static int tx_sidr_rep(struct tx *tx)
{
	struct mux *mux = tx->mux;
	int err;

	if (mux->cfg->sidr_alias) {
		tx->session = session_by_vid(mux->sessions, cm_get32(tx->mad, CM_OFF_SIDR_REP_ID));
		if (session_is(tx->session) &&
		    (rec_of(tx)->owner != tx->client->owner.serial ||
		     rec_of(tx)->class != CLASS_SIDR || (rec_of(tx)->flags & SF_ACTIVE)))
			tx->session = SESSION_NONE;
	} else {
		find_by_reply(tx, CM_OFF_SIDR_REP_ID);
	}
	if (!session_is(tx->session))
		return refuse(tx, DROP_UNKNOWN_ID, MUX_ENOTFOUND);
	err = check_former(tx);
	if (err)
		return err;
	cm_put32(tx->mad, CM_OFF_SIDR_REP_ID, rec_of(tx)->peer_id);
	set_state(tx, S_SIDR_DONE);
	return send_to_peer(tx);
}

/*
 * A guest whose connection the mux has forgotten would repeat its DREQ for more than a minute. Its answer is certain:
 * the peer, too, has no partner any more.
 */
static void answer_lost_dreq(struct tx *tx)
{
	struct umad_pkt pkt = { .hdr = { .length = sizeof(pkt), .grh_present = 1 } };

	pkt.hdr.qpn = htobe32(GSI_QPN);
	memcpy(pkt.hdr.gid, tx->req->umad.gid, MUX_GID_SIZE);
	cm_build_drep(pkt.mad, tx->mad);
	tx->port->stats.built++;
	client_deliver(tx->client, tx->req->sgid, &pkt);
}

int route_tx(struct client *c, const struct mux_frame *req)
{
	struct tx tx = {
		.mux = c->port->mux,
		.port = c->port,
		.client = c,
		.req = req,
		.session = SESSION_NONE,
	};
	int err;

	if (!bucket_take(&c->mads, &c->limits->mads, tx.mux->now, 1))
		return refuse_for_now(&tx, DROP_RATE);
	if (req->umad_len < MUX_MIN_MAD_SIZE || req->umad_len > MUX_MAD_SIZE ||
	    !cm_valid(req->mad) || gid_is_zero(req->sgid))
		return refuse(&tx, DROP_MALFORMED, MUX_EINVAL);
	memcpy(tx.mad, req->mad, (size_t)req->umad_len);
	tx.attr = cm_attr(tx.mad);
	tx.class = cm_is_sidr(tx.attr) ? CLASS_SIDR : CLASS_CONN;
	err = owner_may_use(c, req->sgid, &tx.former);
	if (err)
		return refuse(&tx, DROP_NOT_REGISTERED, err);
	/* Without a port only what stays inside could be sent, and few would understand which. */
	if (!tx.port->up)
		return refuse(&tx, DROP_PORT_DOWN, MUX_ENOTFOUND);
	switch (tx.attr) {
	case CM_REQ:
		err = tx_req(&tx);
		break;
	case CM_MRA:
		err = tx_mra(&tx);
		break;
	case CM_REJ:
		err = tx_rej(&tx);
		break;
	case CM_REP:
		err = tx_rep(&tx);
		break;
	case CM_SIDR_REQ:
		err = tx_sidr_req(&tx);
		break;
	case CM_SIDR_REP:
		err = tx_sidr_rep(&tx);
		break;
	default:
		err = tx_pair(&tx);
		if (err == MUX_ENOTFOUND && tx.attr == CM_DREQ && tx.mux->cfg->drep_unknown)
			answer_lost_dreq(&tx);
		break;
	}
	if (!err)
		c->stats.tx_mads++;
	if (log_get_level() >= LOG_DEBUG) {
		char s[GID_STRLEN], d[GID_STRLEN];

		log_debug("event=tx client=%llu msg=%s local=0x%08x src=%s dst=%s err=%d",
			  (unsigned long long)c->owner.serial, cm_name(tx.attr),
			  cm_get32(req->mad, CM_OFF_LOCAL_ID), gid_str(req->sgid, s),
			  gid_str(session_is(tx.session) ? rec_of(&tx)->peer.gid : tx.to.gid, d),
			  err);
	}
	return err;
}
