// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* What a client owns, and what becomes of it. */
#include <stdlib.h>
#include <string.h>

#include "mux/hash.h"
#include "mux/log.h"
#include "mux/mux.h"

struct client *client_by_serial(struct mux *mux, uint64_t serial)
{
	struct client *c = mux->by_serial[serial % CLIENT_BUCKETS];

	while (c && c->owner.serial != serial)
		c = c->serial_next;
	return c;
}

static struct gid_reg **gid_bucket(struct mux *mux, unsigned int port, const uint8_t *gid)
{
	return &mux->gids[mux_hash_gid(mux->hash_key, gid, port, 0) % GID_BUCKETS];
}

struct gid_reg *gid_lookup(struct mux *mux, const struct mux_port *p, const uint8_t *gid)
{
	struct gid_reg *g = *gid_bucket(mux, p->index, gid);

	while (g && (g->client->port != p || !gid_equal(g->gid, gid)))
		g = g->hash_next;
	return g;
}

bool owner_has_gid(const struct client *c, const uint8_t *gid)
{
	struct gid_reg *g = gid_lookup(c->port->mux, c->port, gid);

	return g && g->client == c;
}

static void gid_attach(struct client *c, struct gid_reg *g)
{
	g->client = c;
	g->next = c->gids;
	c->gids = g;
	c->n_gids++;
}

static void gid_detach(struct client *c, struct gid_reg *g)
{
	struct gid_reg **link = &c->gids;

	while (*link != g)
		link = &(*link)->next;
	*link = g->next;
	c->n_gids--;
}

static int gid_add(struct client *c, const uint8_t *gid, uint32_t rec)
{
	struct mux *mux = c->port->mux;
	struct gid_reg **b = gid_bucket(mux, c->port->index, gid);
	struct gid_reg *g = calloc(1, sizeof(*g));

	if (!g)
		return MUX_EACCES;
	memcpy(g->gid, gid, MUX_GID_SIZE);
	g->since_ms = mux->now;
	g->rec = rec;
	g->hash_next = *b;
	*b = g;
	gid_attach(c, g);
	mux->n_gids++;
	return MUX_OK;
}

static void gid_del(struct client *c, struct gid_reg *g)
{
	struct mux *mux = c->port->mux;
	struct gid_reg **link = gid_bucket(mux, c->port->index, g->gid);

	while (*link != g)
		link = &(*link)->hash_next;
	*link = g->hash_next;
	gid_detach(c, g);
	state_gid_put(mux->state, g->rec);
	mux->n_gids--;
	free(g);
}

int owner_restore_gid(struct client *c, const uint8_t *gid, uint32_t rec)
{
	if (gid_lookup(c->port->mux, c->port, gid))
		return MUX_EEXIST;
	return gid_add(c, gid, rec);
}

/* Take-over ---------------------------------------------------------------------------------------- */

/* The same process, or the same VM by the operator's word: a socket of its own. */
static bool same_identity(const struct client *a, const struct client *b)
{
	if (a->rec->uid != b->rec->uid)
		return false;
	/* Processes of another PID namespace have none here, and so no identity. */
	if (a->rec->pid > 0 && a->rec->started && a->rec->pid == b->rec->pid &&
	    a->rec->started == b->rec->started)
		return true;
	return a->rule && a->rule == b->rule && a->rule->listen;
}

/* Everything of a client that lost its connection goes to the one that came in its place. */
static void take_over(struct client *c, struct client *old)
{
	struct mux *mux = c->port->mux;
	struct gid_reg *g;

	log_info("event=client_resumed client=%llu was=%llu gids=%u sessions=%u",
		 (unsigned long long)c->owner.serial, (unsigned long long)old->owner.serial,
		 old->n_gids, old->owner.count);
	while ((g = old->gids)) {
		gid_detach(old, g);
		gid_attach(c, g);
		state_gid_owner(mux->state, g->rec, c->owner.serial);
	}
	while (session_is(old->owner.head))
		session_move(mux->sessions, old->owner.head, &old->owner, &c->owner);
	if (!c->rec->ca_guid)
		c->rec->ca_guid = old->rec->ca_guid;
	c->rec->alias_guid = old->rec->alias_guid;
	state_client_changed(mux->state, c->rec);
	client_free(old);
}

/*
 * True if c came in the place of the GID's owner, which lost its connection: all of that is c's now. The look at the owner may
 * have ended it for good, so the GID can be nobody's afterwards.
 */
static bool succeed(struct client *c, const uint8_t *gid)
{
	struct gid_reg *g = gid_lookup(c->port->mux, c->port, gid);

	if (!g || g->client == c || !same_identity(c, g->client))
		return false;
	/* The end of the old connection may not have been looked at yet. */
	if (g->client->fd >= 0 && client_has_ended(g->client))
		client_disconnect(g->client, "closed by the client");
	g = gid_lookup(c->port->mux, c->port, gid);
	if (!g || g->client->fd >= 0)
		return false;
	take_over(c, g->client);
	return true;
}

void owner_adopt(struct client *c)
{
	struct client *found = NULL;

	if (c->n_gids || c->port->mux->n_clients == c->port->mux->n_connected)
		return;
	for (struct client *old = c->port->mux->clients; old; old = old->next) {
		if (old->fd >= 0 || old->port != c->port || old->rec->hello ||
		    !same_identity(c, old) || strcmp(old->rec->listen, c->rec->listen) != 0)
			continue;
		if (found)
			return;
		found = old;
	}
	if (!found)
		return;
	take_over(c, found);
	for (struct gid_reg *g = c->gids; g; g = g->next)
		g->adopted = true;
}

/* GIDs --------------------------------------------------------------------------------------------- */

static void remember_former(struct client *c, const uint8_t *gid)
{
	struct former_gid *oldest = &c->former[0];

	for (unsigned int i = 1; i < FORMER_GIDS; i++)
		if (c->former[i].at_ms < oldest->at_ms)
			oldest = &c->former[i];
	memcpy(oldest->gid, gid, MUX_GID_SIZE);
	oldest->at_ms = c->port->mux->now;
}

static void forget_former(struct client *c, const uint8_t *gid)
{
	for (unsigned int i = 0; i < FORMER_GIDS; i++)
		if (c->former[i].at_ms && gid_equal(c->former[i].gid, gid))
			c->former[i].at_ms = 0;
}

static bool is_former(const struct client *c, const uint8_t *gid)
{
	const struct mux *mux = c->port->mux;

	for (unsigned int i = 0; i < FORMER_GIDS; i++)
		if (c->former[i].at_ms && gid_equal(c->former[i].gid, gid))
			return mux->now - c->former[i].at_ms < mux->cfg->unreg_grace_ms;
	return false;
}

/* A guest that registers an address again has started anew and knows none of its old connections. */
static void suspect_sessions(struct client *c, const uint8_t *gid)
{
	struct session_table *t = c->port->mux->sessions;
	uint32_t s = c->owner.head, next;
	unsigned int n = 0;

	for (; session_is(s); s = next) {
		struct session_rec *r = session_rec(t, s);

		next = session_next_of(t, s);
		if ((r->flags & SF_SUSPECT) || !gid_equal(r->client_gid, gid))
			continue;
		session_suspect(t, s, &c->owner);
		n++;
	}
	if (n)
		log_notice("event=guest_restarted client=%llu sessions=%u "
			   "hint=\"unload the guest's RDMA driver before a reboot\"",
			   (unsigned long long)c->owner.serial, n);
}

static int gid_new(struct client *c, const uint8_t *gid, const char *how)
{
	struct mux *mux = c->port->mux;
	char text[GID_STRLEN];
	uint32_t rec;
	int err;

	if (!config_gid_allowed(mux->cfg, c->rule, gid)) {
		log_notice("event=gid_refused client=%llu gid=%s reason=\"not allowed by policy\"",
			   (unsigned long long)c->owner.serial, gid_str(gid, text));
		return MUX_EACCES;
	}
	if (c->n_gids >= c->limits->max_gids)
		return MUX_EACCES;
	rec = state_gid_get(mux->state, c->owner.serial, gid);
	if (rec == UINT32_MAX)
		return MUX_EACCES;
	err = gid_add(c, gid, rec);
	if (err) {
		state_gid_put(mux->state, rec);
		return err;
	}
	forget_former(c, gid);
	if (gidtable_index(c->port->gids, gid) < 0)
		gidtable_refresh(c->port->gids);
	mux_need_timer(mux);
	log_info("event=gid_registered client=%llu gid=%s how=%s",
		 (unsigned long long)c->owner.serial, gid_str(gid, text), how);
	return MUX_OK;
}

int owner_reg(struct client *c, const uint8_t *gid)
{
	struct gid_reg *g = gid_lookup(c->port->mux, c->port, gid);
	char text[GID_STRLEN];

	if (gid_is_zero(gid))
		return MUX_EINVAL;
	if (!g)
		return gid_new(c, gid, "request");
	if (g->client == c && g->adopted) {
		g->adopted = false;
		return MUX_OK;
	}
	if (g->client == c) {
		suspect_sessions(c, gid);
		return MUX_EEXIST;
	}
	if (succeed(c, gid))
		return MUX_OK;
	g = gid_lookup(c->port->mux, c->port, gid);
	if (!g)
		return gid_new(c, gid, "request");
	log_notice("event=gid_refused client=%llu gid=%s reason=\"client %llu has it\"",
		   (unsigned long long)c->owner.serial, gid_str(gid, text),
		   (unsigned long long)g->client->owner.serial);
	return MUX_EACCES;
}

int owner_unreg(struct client *c, const uint8_t *gid)
{
	struct gid_reg *g = gid_lookup(c->port->mux, c->port, gid);

	if (!g)
		return MUX_ENOTFOUND;
	if (g->client != c)
		return MUX_EACCES;
	remember_former(c, gid);
	gid_del(c, g);
	return MUX_OK;
}

int owner_may_use(struct client *c, const uint8_t *gid, bool *former)
{
	struct gid_reg *g = gid_lookup(c->port->mux, c->port, gid);

	*former = false;
	if (g && g->client == c)
		return MUX_OK;
	if (is_former(c, gid)) {
		*former = true;
		return MUX_OK;
	}
	if (succeed(c, gid))
		return MUX_OK;
	if (gid_lookup(c->port->mux, c->port, gid) || !c->port->mux->cfg->implicit_reg)
		return MUX_EACCES;
	/* A device that has reconnected does not repeat its registrations. */
	if (!bucket_take(&c->registrations, &c->limits->registrations, c->port->mux->now, 1))
		return MUX_EACCES;
	return gid_new(c, gid, "use");
}

bool owner_make_room(struct client *c)
{
	struct session_table *t = c->port->mux->sessions;
	struct session_owner *o = &c->owner;

	while (o->count >= c->limits->max_sessions || o->half_open >= c->limits->max_half_open ||
	       session_count(t) >= session_capacity(t)) {
		/* Suspects stand first. */
		if (!session_is(o->head) || !(session_rec(t, o->head)->flags & SF_SUSPECT))
			return false;
		session_delete(t, o->head, o);
	}
	return true;
}

/* CA GUIDs ----------------------------------------------------------------------------------------- */

static struct guid_reg **guid_bucket(struct mux *mux, uint64_t guid)
{
	return &mux->guids[mux_hash2(mux->hash_key, guid, 7) % GID_BUCKETS];
}

int owner_ca_guid(struct client *c, uint64_t guid)
{
	struct mux *mux = c->port->mux;
	struct guid_reg **b = guid_bucket(mux, guid), *r;

	if (!guid)
		return MUX_OK;
	for (r = *b; r; r = r->hash_next)
		if (r->guid == guid && port_same_device(r->client->port, c->port))
			return r->client == c ? MUX_OK : MUX_EACCES;
	if (c->n_guids >= CLIENT_GUIDS)
		return MUX_EACCES;
	r = calloc(1, sizeof(*r));
	if (!r)
		return MUX_EACCES;
	*r = (struct guid_reg){ .hash_next = *b, .next = c->guids, .client = c, .guid = guid };
	*b = r;
	c->guids = r;
	c->n_guids++;
	if (!c->rec->ca_guid) {
		c->rec->ca_guid = guid;
		state_client_changed(mux->state, c->rec);
	}
	return MUX_OK;
}

void owner_drop_gids(struct client *c)
{
	struct guid_reg **link, *r;

	while (c->gids)
		gid_del(c, c->gids);
	while ((r = c->guids)) {
		link = guid_bucket(c->port->mux, r->guid);
		while (*link != r)
			link = &(*link)->hash_next;
		*link = r->hash_next;
		c->guids = r->next;
		free(r);
	}
	c->n_guids = 0;
}

void owner_dead(struct client *c)
{
	struct mux *mux = c->port->mux;

	log_info("event=client_gone client=%llu pid=%d gids=%u sessions=%u",
		 (unsigned long long)c->owner.serial, c->rec->pid, c->n_gids, c->owner.count);
	while (session_is(c->owner.head)) {
		uint32_t s = c->owner.head;

		session_unlink_local(mux->sessions, s, &c->owner);
		session_rec(mux->sessions, s)->flags |= SF_ORPHAN;
		session_move(mux->sessions, s, &c->owner, &mux->mourning);
	}
	client_free(c);
	mux_need_timer(mux);
	obituary_run(mux);
}
