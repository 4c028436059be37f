// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "mux/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "mux/gid.h"
#include "mux/hash.h"

#define VID_TOP_BYTE   0xff000000u
#define FEISTEL_ROUNDS 6
#define BEST_REPLY     7

struct session_table {
	struct session_head *head;
	struct session_rec *recs;
	struct session *links;
	uint32_t *by_vid, *by_local, *by_peer, *by_reply;
	uint32_t mask;
	uint32_t capacity;
	uint32_t free; /* list through owner_next */
	uint32_t count;
	uint32_t per_state[S_STATES];
	uint64_t key;
	bool checked;
	bool (*reserve)(void *ctx, uint32_t s);
	void *reserve_ctx;
	uint32_t duration[T_COUNT];
	uint32_t timer_head[T_COUNT], timer_tail[T_COUNT];
};

static const uint8_t state_timer[S_STATES] = {
	[S_FREE] = T_NONE,	    [S_REQ_SENT] = T_HALF_OPEN,	 [S_REQ_RCVD] = T_HALF_OPEN,
	[S_REP_SENT] = T_HALF_OPEN, [S_REP_RCVD] = T_HALF_OPEN,	 [S_ESTABLISHED] = T_NONE,
	[S_REJECTED] = T_REJECT,    [S_DREQ] = T_DISCONNECT,	 [S_TIMEWAIT] = T_TIMEWAIT,
	[S_SIDR] = T_SIDR,	    [S_SIDR_DONE] = T_SIDR_DONE, [S_MOURNED] = T_MOURN,
};

const char *session_state_name(enum session_state state)
{
	static const char *const names[S_STATES] = {
		"free",		"req-sent",    "req-received", "rep-sent",
		"rep-received", "established", "rejected",     "disconnecting",
		"timewait",	"sidr",	       "sidr-done",    "mourned",
	};

	return state < S_STATES ? names[state] : "?";
}

static bool half_open(enum session_state state)
{
	return state >= S_REQ_SENT && state <= S_REP_RCVD;
}

size_t session_size(void)
{
	/* One slot of each index is there for every session. */
	return sizeof(struct session_rec) + sizeof(struct session) + 4 * sizeof(uint32_t);
}

/* Keys --------------------------------------------------------------------------------------------- */

static uint32_t *vid_bucket(const struct session_table *t, uint32_t vid)
{
	return &t->by_vid[mux_hash2(t->key, vid, 1) & t->mask];
}

static uint32_t *local_bucket(const struct session_table *t, uint64_t owner, unsigned int class,
			      uint32_t id)
{
	return &t->by_local[mux_hash2(t->key, owner, (uint64_t) class << 32 | id) & t->mask];
}

static uint32_t *reply_bucket(const struct session_table *t, uint64_t owner, unsigned int class,
			      uint32_t id)
{
	return &t->by_reply[mux_hash2(~t->key, owner, (uint64_t) class << 32 | id) & t->mask];
}

static uint32_t *peer_bucket(const struct session_table *t, unsigned int class, unsigned int port,
			     const uint8_t *gid, __be16 lid, uint32_t id)
{
	uint64_t h = mux_hash_gid(t->key, gid, (uint64_t) class << 32 | id,
				  (uint64_t)port << 16 | (uint16_t)lid);

	return &t->by_peer[h & t->mask];
}

/* Unchains s from a list whose links are at offset off in struct session. */
static void unchain(struct session_table *t, uint32_t *bucket, uint32_t s, size_t off)
{
	uint32_t *link = bucket;

	while (*link != s)
		link = (uint32_t *)((char *)&t->links[*link] + off);
	*link = *(uint32_t *)((char *)&t->links[s] + off);
}

#define UNCHAIN(t, bucket, s, member) unchain(t, bucket, s, offsetof(struct session, member))

static void chain_vid(struct session_table *t, uint32_t s)
{
	uint32_t *b = vid_bucket(t, t->recs[s].vid);

	t->links[s].next_vid = *b;
	*b = s;
}

static void chain_local(struct session_table *t, uint32_t s)
{
	struct session_rec *r = &t->recs[s];
	uint32_t *b = local_bucket(t, r->owner, r->class, r->local_id);

	t->links[s].next_local = *b;
	*b = s;
	r->flags |= SF_LINKED;
}

/* Only passive sessions have keys in by_peer and by_reply; only there the peer's id comes first. */
static bool has_peer_key(const struct session_rec *r)
{
	return !(r->flags & SF_ACTIVE) && (r->flags & SF_PEER);
}

static void chain_peer(struct session_table *t, uint32_t s)
{
	struct session_rec *r = &t->recs[s];
	uint32_t *b;

	if (!has_peer_key(r))
		return;
	b = peer_bucket(t, r->class, r->port, r->peer.gid, r->peer.lid, r->peer_id);
	t->links[s].next_peer = *b;
	*b = s;
}

static void chain_reply(struct session_table *t, uint32_t s)
{
	struct session_rec *r = &t->recs[s];
	uint32_t *b;

	if (!has_peer_key(r))
		return;
	b = reply_bucket(t, r->owner, r->class, r->peer_id);
	t->links[s].next_reply = *b;
	*b = s;
}

static void unchain_reply(struct session_table *t, uint32_t s)
{
	struct session_rec *r = &t->recs[s];

	if (has_peer_key(r))
		UNCHAIN(t, reply_bucket(t, r->owner, r->class, r->peer_id), s, next_reply);
}

/* Check sums --------------------------------------------------------------------------------------- */

static uint64_t rec_sum(const struct session_rec *r)
{
	uint64_t words[(sizeof(*r) - sizeof(r->check)) / sizeof(uint64_t)];
	uint64_t sum = 0x243f6a8885a308d3ULL;

	static_assert(sizeof(*r) % sizeof(uint64_t) == 0, "no tail padding");
	memcpy(words, (const char *)r + sizeof(r->check), sizeof(words));
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		sum = mux_mix64(sum ^ words[i], 0x9e3779b97f4a7c15ULL + 2 * i);
	return sum;
}

void session_changed(struct session_table *t, uint32_t s)
{
	if (t->checked)
		t->recs[s].check = rec_sum(&t->recs[s]);
}

/* Lists -------------------------------------------------------------------------------------------- */

static void owner_add(struct session_table *t, uint32_t s, struct session_owner *o)
{
	struct session *l = &t->links[s];

	l->owner_prev = o->tail;
	l->owner_next = SESSION_NONE;
	if (o->tail == SESSION_NONE)
		o->head = s;
	else
		t->links[o->tail].owner_next = s;
	o->tail = s;
	o->count++;
	if (half_open(t->recs[s].state))
		o->half_open++;
}

static void owner_del(struct session_table *t, uint32_t s, struct session_owner *o)
{
	struct session *l = &t->links[s];

	if (l->owner_prev == SESSION_NONE)
		o->head = l->owner_next;
	else
		t->links[l->owner_prev].owner_next = l->owner_next;
	if (l->owner_next == SESSION_NONE)
		o->tail = l->owner_prev;
	else
		t->links[l->owner_next].owner_prev = l->owner_prev;
	o->count--;
	if (half_open(t->recs[s].state))
		o->half_open--;
}

static void timer_del(struct session_table *t, uint32_t s)
{
	struct session *l = &t->links[s];

	if (l->timer == T_NONE)
		return;
	if (l->timer_prev == SESSION_NONE)
		t->timer_head[l->timer] = l->timer_next;
	else
		t->links[l->timer_prev].timer_next = l->timer_next;
	if (l->timer_next == SESSION_NONE)
		t->timer_tail[l->timer] = l->timer_prev;
	else
		t->links[l->timer_next].timer_prev = l->timer_prev;
	l->timer = T_NONE;
}

/* To the end of its timer's list, which so is sorted by time of last use. */
static void timer_add(struct session_table *t, uint32_t s)
{
	struct session *l = &t->links[s];
	uint8_t timer = state_timer[t->recs[s].state];

	l->timer = timer;
	if (timer == T_NONE)
		return;
	l->timer_prev = t->timer_tail[timer];
	l->timer_next = SESSION_NONE;
	if (t->timer_tail[timer] == SESSION_NONE)
		t->timer_head[timer] = s;
	else
		t->links[t->timer_tail[timer]].timer_next = s;
	t->timer_tail[timer] = s;
}

/* Virtual ids -------------------------------------------------------------------------------------- */

static uint32_t permute(uint64_t key, uint32_t v)
{
	uint32_t left = v >> 16, right = v & 0xffff;

	for (unsigned int i = 0; i < FEISTEL_ROUNDS; i++) {
		uint32_t f = (uint32_t)(mux_hash2(key, right, i) >> 20) & 0xffff;
		uint32_t tmp = left ^ f;

		left = right;
		right = tmp;
	}
	return left << 16 | right;
}

static uint32_t new_vid(struct session_table *t)
{
	uint32_t vid;

	do
		vid = permute(t->head->vid_key, t->head->vid_counter++);
	while (!(vid & VID_TOP_BYTE) || vid == UINT32_MAX || session_is(session_by_vid(t, vid)));
	return vid;
}

/* Table -------------------------------------------------------------------------------------------- */

static void *map_zero(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* The indexes hold s + 1 nowhere: SESSION_NONE is all ones, so they are set once. Touched lazily it would be
 * nicer, but 16 MiB for a million sessions is small beside the records.
 */
static uint32_t *new_index(uint32_t slots)
{
	uint32_t *p = map_zero((size_t)slots * sizeof(*p));

	if (p)
		memset(p, 0xff, (size_t)slots * sizeof(*p));
	return p;
}

static void unmap(void *p, size_t size)
{
	if (p)
		munmap(p, size);
}

struct session_table *session_table_new(struct session_head *head, struct session_rec *recs,
					uint32_t capacity, bool checked,
					const uint32_t durations[T_COUNT])
{
	struct session_table *t = calloc(1, sizeof(*t));
	uint32_t slots = 16;

	if (!t)
		return NULL;
	while (slots < capacity)
		slots <<= 1;
	t->head = head;
	t->recs = recs;
	t->capacity = capacity;
	t->mask = slots - 1;
	t->checked = checked;
	t->free = SESSION_NONE;
	if (getrandom(&t->key, sizeof(t->key), 0) != sizeof(t->key))
		goto err_table;
	if (!head->vid_key && getrandom(&head->vid_key, sizeof(head->vid_key), 0) < 0)
		goto err_table;
	t->links = map_zero((size_t)capacity * sizeof(*t->links));
	t->by_vid = new_index(slots);
	t->by_local = new_index(slots);
	t->by_peer = new_index(slots);
	t->by_reply = new_index(slots);
	if (!t->links || !t->by_vid || !t->by_local || !t->by_peer || !t->by_reply) {
		session_table_free(t);
		errno = ENOMEM;
		return NULL;
	}
	for (unsigned int i = 0; i < T_COUNT; i++)
		t->timer_head[i] = t->timer_tail[i] = SESSION_NONE;
	session_table_durations(t, durations);
	return t;

err_table:
	free(t);
	return NULL;
}

void session_table_free(struct session_table *t)
{
	size_t size;

	if (!t)
		return;
	size = ((size_t)t->mask + 1) * sizeof(uint32_t);
	unmap(t->links, (size_t)t->capacity * sizeof(*t->links));
	unmap(t->by_vid, size);
	unmap(t->by_local, size);
	unmap(t->by_peer, size);
	unmap(t->by_reply, size);
	free(t);
}

void session_table_durations(struct session_table *t, const uint32_t durations[T_COUNT])
{
	memcpy(t->duration, durations, sizeof(t->duration));
}

void session_table_backing(struct session_table *t, bool (*reserve)(void *ctx, uint32_t s),
			   void *ctx)
{
	t->reserve = reserve;
	t->reserve_ctx = ctx;
}

void session_owner_init(struct session_owner *o, uint64_t serial)
{
	*o = (struct session_owner){ .serial = serial, .head = SESSION_NONE, .tail = SESSION_NONE };
}

struct session_rec *session_rec(struct session_table *t, uint32_t s)
{
	return &t->recs[s];
}

static void insert(struct session_table *t, uint32_t s, struct session_owner *o)
{
	struct session_rec *r = &t->recs[s];
	bool linked = r->flags & SF_LINKED;

	t->count++;
	t->per_state[r->state]++;
	chain_vid(t, s);
	if ((r->flags & SF_LOCAL) && linked)
		chain_local(t, s);
	chain_peer(t, s);
	chain_reply(t, s);
	owner_add(t, s, o);
	timer_add(t, s);
}

uint32_t session_create(struct session_table *t, struct session_owner *o,
			const struct session_rec *rec, uint64_t now_ms)
{
	struct session_rec *r;
	uint32_t s = t->free;

	if (s != SESSION_NONE)
		t->free = t->links[s].owner_next;
	else if (t->head->used < t->capacity &&
		 (!t->reserve || t->reserve(t->reserve_ctx, t->head->used)))
		s = t->head->used++;
	else
		return SESSION_NONE;
	r = &t->recs[s];
	*r = *rec;
	r->owner = o->serial;
	r->created_ms = r->used_ms = now_ms;
	r->vid = new_vid(t);
	if (r->flags & SF_LOCAL)
		r->flags |= SF_LINKED;
	insert(t, s, o);
	session_changed(t, s);
	return s;
}

void session_delete(struct session_table *t, uint32_t s, struct session_owner *o)
{
	struct session_rec *r = &t->recs[s];

	timer_del(t, s);
	owner_del(t, s, o);
	unchain_reply(t, s);
	if (has_peer_key(r))
		UNCHAIN(t, peer_bucket(t, r->class, r->port, r->peer.gid, r->peer.lid, r->peer_id),
			s, next_peer);
	if (r->flags & SF_LINKED)
		UNCHAIN(t, local_bucket(t, r->owner, r->class, r->local_id), s, next_local);
	UNCHAIN(t, vid_bucket(t, r->vid), s, next_vid);
	t->per_state[r->state]--;
	t->count--;
	memset(r, 0, sizeof(*r));
	t->links[s].owner_next = t->free;
	t->free = s;
}

static int by_used(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return x[0] < y[0] ? -1 : x[0] > y[0];
}

uint32_t session_restore(struct session_table *t, uint64_t now_ms,
			 struct session_owner *(*owner_of)(void *ctx, struct session_rec *rec),
			 void *ctx, uint32_t *broken)
{
	struct session_owner *o;
	struct session_rec *r;
	uint64_t(*order)[2];
	uint32_t used, kept = 0;

	*broken = 0;
	if (t->head->used > t->capacity)
		t->head->used = t->capacity;
	used = t->head->used;
	order = calloc(used ? used : 1, sizeof(*order));
	if (!order)
		return 0;
	for (uint32_t s = 0; s < used; s++) {
		order[s][0] = t->recs[s].used_ms;
		order[s][1] = s;
	}
	/* The timer lists are sorted by time of last use. */
	qsort(order, used, sizeof(*order), by_used);
	for (uint32_t i = 0; i < used; i++) {
		uint32_t s = (uint32_t)order[i][1];

		r = &t->recs[s];
		o = NULL;
		if (r->state != S_FREE) {
			if (r->state < S_STATES && r->check == rec_sum(r) && r->used_ms <= now_ms &&
			    !session_is(session_by_vid(t, r->vid)))
				o = owner_of(ctx, r);
			else
				++*broken;
		}
		if (!o) {
			memset(r, 0, sizeof(*r));
			t->links[s].owner_next = t->free;
			t->free = s;
			continue;
		}
		r->owner = o->serial;
		insert(t, s, o);
		session_changed(t, s);
		kept++;
	}
	free(order);
	return kept;
}

uint32_t session_by_vid(const struct session_table *t, uint32_t vid)
{
	uint32_t s = *vid_bucket(t, vid);

	while (s != SESSION_NONE && t->recs[s].vid != vid)
		s = t->links[s].next_vid;
	return s;
}

uint32_t session_by_local(const struct session_table *t, const struct session_owner *o,
			  enum session_class class, uint32_t local_id)
{
	uint32_t s = *local_bucket(t, o->serial, class, local_id);

	for (; s != SESSION_NONE; s = t->links[s].next_local) {
		const struct session_rec *r = &t->recs[s];

		if (r->owner == o->serial && r->class == class && r->local_id == local_id)
			break;
	}
	return s;
}

static bool is_of_peer(const struct session_rec *r, enum session_class class, unsigned int port,
		       const uint8_t *peer_gid, __be16 peer_lid, uint32_t peer_id)
{
	return r->class == class && r->port == port && r->peer_id == peer_id &&
	       r->peer.lid == peer_lid && gid_equal(r->peer.gid, peer_gid);
}

uint32_t session_by_peer(const struct session_table *t, enum session_class class, unsigned int port,
			 const uint8_t *peer_gid, __be16 peer_lid, uint32_t peer_id,
			 const uint8_t *dgid, bool strict, uint32_t tid_low, uint64_t guid)
{
	uint32_t s = *peer_bucket(t, class, port, peer_gid, peer_lid, peer_id);

	for (; s != SESSION_NONE; s = t->links[s].next_peer) {
		const struct session_rec *r = &t->recs[s];

		if (!is_of_peer(r, class, port, peer_gid, peer_lid, peer_id))
			continue;
		if (dgid && !gid_equal(r->client_gid, dgid))
			continue;
		if (strict && ((uint32_t)r->req_tid != tid_low || r->peer_guid != guid))
			continue;
		if (!strict && guid && r->peer_guid != guid)
			continue;
		break;
	}
	return s;
}

unsigned int session_count_peer(const struct session_table *t, enum session_class class,
				unsigned int port, const uint8_t *peer_gid, __be16 peer_lid,
				uint32_t peer_id, unsigned int limit)
{
	uint32_t s = *peer_bucket(t, class, port, peer_gid, peer_lid, peer_id);
	unsigned int n = 0;

	for (; s != SESSION_NONE && n < limit; s = t->links[s].next_peer)
		n += is_of_peer(&t->recs[s], class, port, peer_gid, peer_lid, peer_id);
	return n;
}

uint32_t session_by_reply(const struct session_table *t, const struct session_owner *o,
			  enum session_class class, uint32_t peer_id, uint32_t tid_low,
			  const uint8_t *client_gid)
{
	uint32_t s = *reply_bucket(t, o->serial, class, peer_id), best = SESSION_NONE;
	int best_score = -1;

	for (; s != SESSION_NONE; s = t->links[s].next_reply) {
		const struct session_rec *r = &t->recs[s];
		int score;

		if (r->owner != o->serial || r->class != class || r->peer_id != peer_id)
			continue;
		score = ((uint32_t)r->req_tid == tid_low) * 4 +
			gid_equal(r->client_gid, client_gid) * 2 + !(r->flags & SF_LOCAL);
		if (score > best_score) {
			best = s;
			best_score = score;
		}
		/* Nothing fits better, and hosts that all use one id may have made the list long. */
		if (score == BEST_REPLY)
			break;
	}
	return best;
}

void session_set_local(struct session_table *t, uint32_t s, struct session_owner *o,
		       uint32_t local_id)
{
	uint32_t old = session_by_local(t, o, t->recs[s].class, local_id);

	if (session_is(old))
		session_unlink_local(t, old, o);
	t->recs[s].local_id = local_id;
	t->recs[s].flags |= SF_LOCAL;
	chain_local(t, s);
	session_changed(t, s);
}

void session_unlink_local(struct session_table *t, uint32_t s, struct session_owner *o)
{
	struct session_rec *r = &t->recs[s];

	if (!(r->flags & SF_LINKED))
		return;
	UNCHAIN(t, local_bucket(t, o->serial, r->class, r->local_id), s, next_local);
	r->flags &= (uint8_t)~SF_LINKED;
	session_changed(t, s);
}

void session_set_state(struct session_table *t, uint32_t s, struct session_owner *o,
		       enum session_state state, uint64_t now_ms)
{
	struct session_rec *r = &t->recs[s];

	timer_del(t, s);
	if (half_open(r->state))
		o->half_open--;
	if (half_open(state))
		o->half_open++;
	t->per_state[r->state]--;
	t->per_state[state]++;
	r->state = (uint8_t)state;
	r->used_ms = now_ms;
	timer_add(t, s);
	session_changed(t, s);
}

void session_touch(struct session_table *t, uint32_t s, uint64_t now_ms)
{
	timer_del(t, s);
	t->recs[s].used_ms = now_ms;
	timer_add(t, s);
	session_changed(t, s);
}

void session_suspect(struct session_table *t, uint32_t s, struct session_owner *o)
{
	struct session *l = &t->links[s];

	t->recs[s].flags |= SF_SUSPECT;
	session_changed(t, s);
	owner_del(t, s, o);
	l->owner_prev = SESSION_NONE;
	l->owner_next = o->head;
	if (o->head == SESSION_NONE)
		o->tail = s;
	else
		t->links[o->head].owner_prev = s;
	o->head = s;
	o->count++;
	if (half_open(t->recs[s].state))
		o->half_open++;
}

void session_move(struct session_table *t, uint32_t s, struct session_owner *from,
		  struct session_owner *to)
{
	struct session_rec *r = &t->recs[s];
	bool linked = r->flags & SF_LINKED;

	owner_del(t, s, from);
	unchain_reply(t, s);
	if (linked)
		session_unlink_local(t, s, from);
	r->owner = to->serial;
	/* A session that the new owner made itself keeps the id. */
	if (linked && !session_is(session_by_local(t, to, r->class, r->local_id)))
		chain_local(t, s);
	chain_reply(t, s);
	owner_add(t, s, to);
	session_changed(t, s);
}

uint32_t session_expired(struct session_table *t, uint64_t now_ms)
{
	for (unsigned int i = 0; i < T_COUNT; i++) {
		uint32_t s = t->timer_head[i];

		if (s != SESSION_NONE && now_ms - t->recs[s].used_ms >= t->duration[i])
			return s;
	}
	return SESSION_NONE;
}

bool session_timers_pending(const struct session_table *t)
{
	for (unsigned int i = 0; i < T_COUNT; i++)
		if (t->timer_head[i] != SESSION_NONE)
			return true;
	return false;
}

uint32_t session_count(const struct session_table *t)
{
	return t->count;
}

uint32_t session_count_state(const struct session_table *t, enum session_state state)
{
	return t->per_state[state];
}

uint32_t session_capacity(const struct session_table *t)
{
	return t->capacity;
}

uint32_t session_next_of(const struct session_table *t, uint32_t s)
{
	return t->links[s].owner_next;
}

uint32_t session_walk(const struct session_table *t, uint32_t s)
{
	for (; s < t->head->used; s++)
		if (t->recs[s].state != S_FREE)
			return s;
	return SESSION_NONE;
}
