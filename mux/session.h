/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Sessions: what the mux remembers of each communication id, and how it finds them.
 *
 * A session stands for one end of one connection (or one SIDR exchange) at one client. Its id on the wire,
 * the vid, is unique over all clients and both classes. A vid is never 0 and its top byte is never 0, so
 * that it can't equal the 24-bit vendor id that Linux puts in place of a local id into some REJs. Vids come
 * from a counter run through a keyed permutation: unique by construction, not to be guessed from outside,
 * and none comes again before 4 billion others.
 *
 * Sessions live in one array of fixed capacity; their persistent part (struct session_rec) in memory
 * that the caller provides and that may be a mapped file. Nothing is allocated after creation; every operation
 * is O(1) except where a list of equal keys is walked. A session that waits for something is on the list
 * of its timer; an established one is on none, so it lives as long as its client.
 *
 * Only the event loop's thread calls.
 */
#ifndef MUX_SESSION_H
#define MUX_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "mux/protocol.h"

#define SESSION_NONE UINT32_MAX

enum session_class {
	CLASS_CONN,
	CLASS_SIDR,
};

enum session_state {
	S_FREE,
	S_REQ_SENT,
	S_REQ_RCVD,
	S_REP_SENT,
	S_REP_RCVD,
	S_ESTABLISHED,
	S_REJECTED,
	S_DREQ, /* sent or received */
	S_TIMEWAIT,
	S_SIDR, /* request sent or received */
	S_SIDR_DONE,
	S_MOURNED, /* client gone, its DREQs are being sent */
	S_STATES,
};

/* Which configured duration a state has. */
enum session_timer {
	T_HALF_OPEN,
	T_REJECT,
	T_DISCONNECT,
	T_TIMEWAIT,
	T_SIDR,
	T_SIDR_DONE,
	T_MOURN,
	T_COUNT,
	T_NONE = T_COUNT,
};

enum session_flag {
	SF_ACTIVE = 1 << 0,  /* the client sent the REQ or SIDR_REQ */
	SF_LOCAL = 1 << 1,   /* local_id is known */
	SF_PEER = 1 << 2,    /* peer_id is known */
	SF_SUSPECT = 1 << 3, /* the guest has probably forgotten it */
	SF_LINKED = 1 << 4,  /* found by local_id; false once the client uses the id anew */
	SF_ORPHAN = 1 << 5,  /* no client any more */
};

/* A peer's address as umad wants it. */
struct session_addr {
	uint8_t gid[MUX_GID_SIZE];
	uint8_t alt_gid[MUX_GID_SIZE]; /* alternate path; zero: none */
	__be16 lid;
	uint8_t sl;
	uint8_t path_bits;
};

/* The persistent part. No pointers: it may be read back by another process. */
struct session_rec {
	uint64_t check; /* over the rest; only kept where the table has a file */
	uint64_t owner; /* serial of the client */
	uint64_t created_ms;
	uint64_t used_ms;
	uint64_t service_id;
	uint64_t own_guid, peer_guid; /* CA GUIDs */
	uint64_t req_tid;  /* active: of the client's own REQ or SIDR_REQ; passive: of the peer's */
	uint64_t dreq_tid; /* of the client's last DREQ or LAP */
	uint32_t vid;
	uint32_t local_id;
	uint32_t peer_id;
	uint32_t own_qpn, peer_qpn;
	uint16_t port; /* index */
	uint8_t class;
	uint8_t state;
	uint8_t flags;
	uint8_t dreqs; /* sent in mourning */
	uint8_t reserved[6];
	uint8_t client_gid[MUX_GID_SIZE];
	struct session_addr peer;
};

struct session {
	uint32_t next_vid, next_local, next_peer, next_reply;
	uint32_t owner_prev, owner_next;
	uint32_t timer_prev, timer_next;
	uint8_t timer;
};

/* A client's sessions, embedded in whatever stands for a client. */
struct session_owner {
	uint64_t serial; /* never 0 */
	uint32_t head, tail;
	uint32_t count;
	uint32_t half_open;
};

struct session_table;

/* The persistent head of the table. */
struct session_head {
	uint64_t vid_key;
	uint32_t vid_counter;
	uint32_t used; /* records from this index on were never used */
};

/*
 * Makes an empty table for capacity sessions over recs (capacity of them, zero-filled or from an earlier run) and
 * head. checked keeps the check sums of the records. durations are in milliseconds, one for each timer.
 * Returns NULL with errno.
 */
struct session_table *session_table_new(struct session_head *head, struct session_rec *recs,
					uint32_t capacity, bool checked,
					const uint32_t durations[T_COUNT]);
void session_table_free(struct session_table *t);
void session_table_durations(struct session_table *t, const uint32_t durations[T_COUNT]);
/*
 * Before record s is used for the first time reserve(ctx, s) is called; if it returns false, the table counts as full.
 * Without one the memory of all records is there.
 */
void session_table_backing(struct session_table *t, bool (*reserve)(void *ctx, uint32_t s),
			   void *ctx);

/*
 * Takes over the records of an earlier run: for each whose sum holds calls owner_of(ctx, rec), which returns
 * its owner or NULL to drop it, and may set rec->port. Returns how many were kept; *broken counts those whose sum is wrong.
 */
uint32_t session_restore(struct session_table *t, uint64_t now_ms,
			 struct session_owner *(*owner_of)(void *ctx, struct session_rec *rec),
			 void *ctx, uint32_t *broken);

void session_owner_init(struct session_owner *o, uint64_t serial);

/* Read access; the pointer is good until the session is deleted. Change only through session_changed(). */
static inline bool session_is(uint32_t s)
{
	return s != SESSION_NONE;
}
struct session_rec *session_rec(struct session_table *t, uint32_t s);
/* To be called after fields of the record other than keys were changed. */
void session_changed(struct session_table *t, uint32_t s);

/*
 * Makes a session with a new vid. rec gives the fields; class, flags (SF_ACTIVE, SF_LOCAL, SF_PEER), state, port,
 * the GIDs and ids are used. Returns SESSION_NONE if the table is full.
 */
uint32_t session_create(struct session_table *t, struct session_owner *o,
			const struct session_rec *rec, uint64_t now_ms);
void session_delete(struct session_table *t, uint32_t s, struct session_owner *o);

/* Look-ups; SESSION_NONE if there is none. */
uint32_t session_by_vid(const struct session_table *t, uint32_t vid);
uint32_t session_by_local(const struct session_table *t, const struct session_owner *o,
			  enum session_class class, uint32_t local_id);
/*
 * Passive sessions by the peer's address and id. tid's low half and guid must agree where strict; otherwise the
 * newest with that peer is taken. dgid NULL: any.
 */
uint32_t session_by_peer(const struct session_table *t, enum session_class class, unsigned int port,
			 const uint8_t *peer_gid, __be16 peer_lid, uint32_t peer_id,
			 const uint8_t *dgid, bool strict, uint32_t tid_low, uint64_t guid);
/* How many sessions session_by_peer() would have to look at for this address and id, up to limit. */
unsigned int session_count_peer(const struct session_table *t, enum session_class class,
				unsigned int port, const uint8_t *peer_gid, __be16 peer_lid,
				uint32_t peer_id, unsigned int limit);
/* A client's passive session by the peer's id; the same TID, GID and no local id yet are preferred in this order. */
uint32_t session_by_reply(const struct session_table *t, const struct session_owner *o,
			  enum session_class class, uint32_t peer_id, uint32_t tid_low,
			  const uint8_t *client_gid);

/* The client's own id becomes known (a passive session's first answer). */
void session_set_local(struct session_table *t, uint32_t s, struct session_owner *o,
		       uint32_t local_id);
/* The client uses the id anew: look-ups by it no longer find this session. */
void session_unlink_local(struct session_table *t, uint32_t s, struct session_owner *o);
/* Sets the state, the time of last use and so the timer. */
void session_set_state(struct session_table *t, uint32_t s, struct session_owner *o,
		       enum session_state state, uint64_t now_ms);
/* A message came: the timer starts again. */
void session_touch(struct session_table *t, uint32_t s, uint64_t now_ms);
/* The guest behind it started anew: first to go when the client's quota is full. */
void session_suspect(struct session_table *t, uint32_t s, struct session_owner *o);
/* From one client to another. */
void session_move(struct session_table *t, uint32_t s, struct session_owner *from,
		  struct session_owner *to);

/* The next session whose timer has run out, or SESSION_NONE. The caller deletes it or changes its state. */
uint32_t session_expired(struct session_table *t, uint64_t now_ms);
/* True if any session waits for a timer. */
bool session_timers_pending(const struct session_table *t);

uint32_t session_count(const struct session_table *t);
uint32_t session_count_state(const struct session_table *t, enum session_state state);
uint32_t session_capacity(const struct session_table *t);
const char *session_state_name(enum session_state state);
/* Bytes that one session takes. */
size_t session_size(void);

/* Next session of an owner: start with o->head. */
uint32_t session_next_of(const struct session_table *t, uint32_t s);
/* Next session in use at or after index s, for walking all in steps; SESSION_NONE at the end. */
uint32_t session_walk(const struct session_table *t, uint32_t s);

#endif
