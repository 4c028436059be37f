// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The way out of a port.
 *
 * On RoCE a umad write resolves the destination's MAC address, and blocks for a second if nobody answers. So a
 * destination that is not known to answer is tried by a probe first, one MAD at a time, while what else is meant
 * for it waits; once it has answered, its MADs take a lane. A destination that timed out is left alone for a while. Probes
 * are shared fairly: no client may hold all of them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mux/hash.h"
#include "mux/log.h"
#include "mux/mux.h"

#define MAX_PEERS	       16384
#define PEER_BUCKETS	       16384
#define MAX_PENDING	       64   /* MADs a peer may have waiting */
#define MAX_WAITING	       1024 /* peers waiting for a probe */
#define MAX_WAITING_PER_CLIENT 64
#define WAIT_BUCKETS	       1024
#define MAX_PROBES	       16
#define GOOD_MS		       60000 /* after that without use the kernel may have to ask again */
#define NO_PEER		       UINT32_MAX

enum peer_state {
	PEER_UNKNOWN,
	PEER_GOOD,
	PEER_BAD,
};

struct peer {
	uint32_t hash_next;
	uint32_t lru_prev, lru_next;
	uint8_t state;
	bool used, probing, waiting;
	uint8_t gid_index;
	uint8_t gid[MUX_GID_SIZE];
	uint64_t since_ms; /* good: last use; bad: when it timed out */
	uint64_t client;   /* who caused the probe */
	struct node_queue pending;
};

struct peer_table {
	struct mux_port *port;
	struct peer *peers;
	uint32_t buckets[PEER_BUCKETS];
	uint32_t n_peers;
	uint32_t lru_head, lru_tail; /* least recently used first */
	uint32_t waiting[MAX_WAITING];
	unsigned int n_waiting, n_pending;
	uint16_t client_waiting[WAIT_BUCKETS];
	uint32_t probe_peer[MAX_PROBES];
	uint64_t key;
};

struct peer_table *peers_new(struct mux_port *p)
{
	struct peer_table *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->peers = calloc(MAX_PEERS, sizeof(*t->peers));
	if (!t->peers) {
		free(t);
		return NULL;
	}
	memset(t->buckets, 0xff, sizeof(t->buckets));
	memset(t->probe_peer, 0xff, sizeof(t->probe_peer));
	t->lru_head = t->lru_tail = NO_PEER;
	t->port = p;
	t->key = p->mux->hash_key;
	return t;
}

void peers_free(struct peer_table *t)
{
	if (!t)
		return;
	peers_reset(t);
	free(t->peers);
	free(t);
}

static uint32_t *bucket(struct peer_table *t, const uint8_t *gid, unsigned int index)
{
	return &t->buckets[mux_hash_gid(t->key, gid, index, 3) % PEER_BUCKETS];
}

static void lru_del(struct peer_table *t, uint32_t i)
{
	struct peer *p = &t->peers[i];

	if (p->lru_prev == NO_PEER)
		t->lru_head = p->lru_next;
	else
		t->peers[p->lru_prev].lru_next = p->lru_next;
	if (p->lru_next == NO_PEER)
		t->lru_tail = p->lru_prev;
	else
		t->peers[p->lru_next].lru_prev = p->lru_prev;
}

static void lru_add(struct peer_table *t, uint32_t i)
{
	struct peer *p = &t->peers[i];

	p->lru_prev = t->lru_tail;
	p->lru_next = NO_PEER;
	if (t->lru_tail == NO_PEER)
		t->lru_head = i;
	else
		t->peers[t->lru_tail].lru_next = i;
	t->lru_tail = i;
}

static uint32_t find(struct peer_table *t, const uint8_t *gid, unsigned int index)
{
	uint32_t i = *bucket(t, gid, index);

	while (i != NO_PEER && (t->peers[i].gid_index != index || !gid_equal(t->peers[i].gid, gid)))
		i = t->peers[i].hash_next;
	return i;
}

static uint32_t find_or_make(struct peer_table *t, const uint8_t *gid, unsigned int index)
{
	uint32_t i = find(t, gid, index), *link;
	struct peer *p;

	if (i != NO_PEER) {
		if (t->lru_tail != i) {
			lru_del(t, i);
			lru_add(t, i);
		}
		return i;
	}
	if (t->n_peers < MAX_PEERS) {
		i = t->n_peers++;
	} else {
		i = t->lru_head;
		while (i != NO_PEER && (t->peers[i].probing || t->peers[i].waiting))
			i = t->peers[i].lru_next;
		if (i == NO_PEER)
			return NO_PEER;
		lru_del(t, i);
		link = bucket(t, t->peers[i].gid, t->peers[i].gid_index);
		while (*link != i)
			link = &t->peers[*link].hash_next;
		*link = t->peers[i].hash_next;
	}
	p = &t->peers[i];
	memset(p, 0, sizeof(*p));
	p->used = true;
	p->gid_index = (uint8_t)index;
	memcpy(p->gid, gid, MUX_GID_SIZE);
	queue_init(&p->pending);
	link = bucket(t, gid, index);
	p->hash_next = *link;
	*link = i;
	lru_add(t, i);
	return i;
}

static unsigned int lane_of(const struct peer_table *t, const struct umad_pkt *pkt)
{
	return (unsigned int)(mux_hash_gid(t->key, pkt->hdr.gid, pkt->hdr.lid, 4) >> 32);
}

static int to_lane(struct peer_table *t, const struct umad_pkt *pkt)
{
	return sender_post(t->port->tx, lane_of(t, pkt), pkt) ? 0 : DROP_LANE_FULL;
}

/* Probes ------------------------------------------------------------------------------------------- */

static bool start_probe(struct peer_table *t, uint32_t i)
{
	struct peer *p = &t->peers[i];
	int slot = sender_probe(t->port->tx, &p->pending.head->pkt);

	if (slot < 0)
		return false;
	node_put(t->port->mux, queue_pop(&p->pending));
	t->n_pending--;
	t->probe_peer[slot] = i;
	p->probing = true;
	return true;
}

static unsigned int probes_of(const struct peer_table *t, uint64_t client)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < MAX_PROBES; i++)
		n += t->probe_peer[i] != NO_PEER && t->peers[t->probe_peer[i]].client == client;
	return n;
}

/* One probe stays free of any one client, if there is more than one. */
static bool may_probe(const struct peer_table *t, uint64_t client)
{
	unsigned int probes = t->port->mux->cfg->probes;

	return probes == 1 || probes_of(t, client) < probes - 1;
}

static void wait_for_probe(struct peer_table *t, uint32_t i)
{
	t->peers[i].waiting = true;
	t->waiting[t->n_waiting++] = i;
	t->client_waiting[t->peers[i].client % WAIT_BUCKETS]++;
}

/* Gives idle probes to those who wait: first whose client has the fewest at work, then who waits longest. */
static void assign_probes(struct peer_table *t)
{
	while (t->n_waiting) {
		unsigned int best = 0, fewest = UINT32_MAX, n;
		uint32_t i;

		for (unsigned int w = 0; w < t->n_waiting && fewest; w++) {
			n = probes_of(t, t->peers[t->waiting[w]].client);
			if (n < fewest) {
				fewest = n;
				best = w;
			}
		}
		i = t->waiting[best];
		if (!may_probe(t, t->peers[i].client) || !start_probe(t, i))
			return;
		t->peers[i].waiting = false;
		t->client_waiting[t->peers[i].client % WAIT_BUCKETS]--;
		memmove(&t->waiting[best], &t->waiting[best + 1],
			(t->n_waiting - best - 1) * sizeof(t->waiting[0]));
		t->n_waiting--;
	}
}

static void drop_pending(struct peer_table *t, struct peer *p, enum drop why)
{
	t->port->stats.drop[why] += p->pending.count;
	t->n_pending -= p->pending.count;
	queue_clear(t->port->mux, &p->pending);
}

static void flush_pending(struct peer_table *t, struct peer *p)
{
	struct mux_node *node;
	int why;

	while ((node = queue_pop(&p->pending))) {
		t->n_pending--;
		why = to_lane(t, &node->pkt);
		if (why)
			t->port->stats.drop[why]++;
		node_put(t->port->mux, node);
	}
}

static void write_failed(struct peer_table *t, struct peer *p, int err, unsigned int count)
{
	char text[GID_STRLEN];

	log_notice("event=send_failed device=%s port=%u dst=%s error=\"%s\"", t->port->device,
		   t->port->real, gid_str(p->gid, text), strerror(err));
	t->port->stats.drop[DROP_UNREACHABLE] += count;
	/* The table that the index came from is out of date. */
	if (err == ENODATA || err == EINVAL)
		gidtable_refresh(t->port->gids);
	/* The failure of an earlier MAD says nothing that the probe, which what waits now gets, would not say. */
	if (p->waiting || p->probing)
		return;
	p->state = sender_timed_out(err) ? PEER_BAD : PEER_UNKNOWN;
	p->since_ms = t->port->mux->now;
	drop_pending(t, p, DROP_UNREACHABLE);
}

void peers_notified(struct peer_table *t)
{
	struct mux_port *port = t->port;
	struct sender_failure f;
	uint32_t i;
	int err;

	if (!port->tx)
		return;
	for (unsigned int slot = 0; slot < port->mux->cfg->probes && slot < MAX_PROBES; slot++) {
		struct peer *p;

		if (t->probe_peer[slot] == NO_PEER || !sender_probe_done(port->tx, slot, &err))
			continue;
		p = &t->peers[t->probe_peer[slot]];
		t->probe_peer[slot] = NO_PEER;
		p->probing = false;
		if (err) {
			write_failed(t, p, err, 1);
			continue;
		}
		p->state = PEER_GOOD;
		p->since_ms = port->mux->now;
		flush_pending(t, p);
	}
	while (sender_failure(port->tx, &f)) {
		i = find(t, f.gid, f.gid_index);
		if (i != NO_PEER)
			write_failed(t, &t->peers[i], f.error, f.count);
	}
	assign_probes(t);
}

int peers_send(struct peer_table *t, const struct umad_pkt *pkt, uint64_t client_serial)
{
	struct mux *mux = t->port->mux;
	struct mux_node *node;
	struct peer *p;
	uint32_t i;

	/* On InfiniBand nothing is resolved. */
	if (t->port->infiniband)
		return to_lane(t, pkt);
	i = find_or_make(t, pkt->hdr.gid, pkt->hdr.gid_index);
	if (i == NO_PEER)
		return DROP_LANE_FULL;
	p = &t->peers[i];
	if (p->state == PEER_GOOD) {
		if (mux->now - p->since_ms < GOOD_MS) {
			p->since_ms = mux->now;
			return to_lane(t, pkt);
		}
		p->state = PEER_UNKNOWN;
	}
	if (p->state == PEER_BAD) {
		if (mux->now - p->since_ms < mux->cfg->unreachable_ms)
			return DROP_UNREACHABLE;
		p->state = PEER_UNKNOWN;
	}
	if (p->pending.count >= MAX_PENDING)
		return DROP_LANE_FULL;
	if (!p->probing && !p->waiting) {
		if (t->n_waiting >= MAX_WAITING ||
		    t->client_waiting[client_serial % WAIT_BUCKETS] >= MAX_WAITING_PER_CLIENT)
			return DROP_LANE_FULL;
		p->client = client_serial;
	}
	node = node_get(mux);
	if (!node)
		return DROP_LANE_FULL;
	node->pkt = *pkt;
	queue_push(&p->pending, node);
	t->n_pending++;
	if (p->probing || p->waiting)
		return 0;
	if (t->n_waiting || !may_probe(t, client_serial) || !start_probe(t, i)) {
		wait_for_probe(t, i);
		assign_probes(t);
	}
	return 0;
}

void peers_reset(struct peer_table *t)
{
	for (uint32_t i = 0; i < t->n_peers; i++) {
		struct peer *p = &t->peers[i];

		drop_pending(t, p, DROP_PORT_DOWN);
		p->state = PEER_UNKNOWN;
		p->probing = p->waiting = false;
	}
	memset(t->probe_peer, 0xff, sizeof(t->probe_peer));
	memset(t->client_waiting, 0, sizeof(t->client_waiting));
	t->n_waiting = 0;
}

bool peers_busy(const struct peer_table *t)
{
	return t->n_pending > 0;
}

void peers_counts(const struct peer_table *t, unsigned int *known, unsigned int *waiting)
{
	*known = t->n_peers;
	*waiting = t->n_pending;
}
