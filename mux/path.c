// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Paths on an InfiniBand link layer, where a MAD goes to a LID. A guest that believes in RoCE has none to give: then the
 * subnet administrator is asked for the path from the client's GID to the destination's, and what is meant for it waits
 * meanwhile. The kernel repeats the query and tells when no answer came. Answers are kept for a while, refusals too.
 *
 * InfiniBand Architecture Specification volume 1, chapter 15.2: the query is SubnAdmGet(PathRecord).
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "mux/hash.h"
#include "mux/log.h"
#include "mux/mux.h"

#define MAX_PATHS	      4096 /* a power of two: the index is the low part of a query's transaction id */
#define PATH_BUCKETS	      4096
#define NO_PATH		      UINT32_MAX
#define MAX_ASKING	      256 /* queries on their way */
#define MAX_ASKING_PER_CLIENT 64
#define ASKING_BUCKETS	      1024
#define MAX_WAITING	      64 /* MADs for one path */
#define GOOD_MS		      60000
#define BAD_MS		      5000
#define QUERY_MS	      1000
#define QUERY_RETRIES	      3

/* Of an SA MAD: header, RMPP header, and the attribute behind them. */
#define SA_CLASS	  0x03
#define SA_CLASS_VERSION  2
#define SA_RMPP_VERSION	  1
#define SA_METHOD_GET	  0x01
#define SA_METHOD_RESP	  0x81
#define SA_ATTR_PATH	  0x0035
#define SA_OFF_CLASS	  1
#define SA_OFF_METHOD	  3
#define SA_OFF_STATUS	  4
#define SA_OFF_TID_LOW	  12
#define SA_OFF_ATTR	  16
#define SA_OFF_COMPONENTS 48
#define SA_OFF_PATH	  56
#define PATH_OFF_DGID	  (SA_OFF_PATH + 8)
#define PATH_OFF_SGID	  (SA_OFF_PATH + 24)
#define PATH_OFF_DLID	  (SA_OFF_PATH + 40)
#define PATH_OFF_NUMB	  (SA_OFF_PATH + 49) /* top bit: reversible */
#define PATH_OFF_SL	  (SA_OFF_PATH + 53) /* low four bits */
#define PATH_REVERSIBLE	  0x80
#define PATH_SL_MASK	  0x0f
/* Which components the query gives. */
#define COMP_DGID	(1ull << 2)
#define COMP_SGID	(1ull << 3)
#define COMP_REVERSIBLE (1ull << 11)
#define COMP_NUMB_PATH	(1ull << 12)
#define BASE_VERSION	1
#define MAD_HEADER	24
#define GSI_QPN		1
#define LID_PERMISSIVE	0xffff
#define LID_MULTICAST	0xc000 /* the first of them */

enum path_state {
	PATH_FREE,
	PATH_ASKING,
	PATH_KNOWN,
	PATH_NONE, /* there is none, or nobody said */
};

struct path {
	uint32_t hash_next;
	uint8_t state;
	uint8_t sl;
	__be16 lid;
	uint32_t round;	 /* of queries, so that a late answer is not taken for this one's */
	uint64_t client; /* who caused the query */
	uint8_t sgid[MUX_GID_SIZE], dgid[MUX_GID_SIZE];
	uint64_t since_ms;
	struct node_queue waiting;
};

struct path_table {
	struct mux_port *port;
	struct umad_file file;
	struct path *paths;
	uint32_t buckets[PATH_BUCKETS];
	uint32_t used;	/* those from here on were never used */
	uint32_t clock; /* where the search for one to replace goes on */
	unsigned int asking;
	uint16_t client_asking[ASKING_BUCKETS];
	uint64_t key;
};

bool path_is_lid(__be16 lid)
{
	uint16_t n = be16toh(lid);

	return n && n < LID_MULTICAST;
}

struct path_table *paths_new(struct mux_port *p)
{
	struct path_table *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->paths = calloc(MAX_PATHS, sizeof(*t->paths));
	if (!t->paths) {
		free(t);
		return NULL;
	}
	t->port = p;
	t->key = p->mux->hash_key;
	t->file.fd = -1;
	memset(t->buckets, 0xff, sizeof(t->buckets));
	return t;
}

void paths_free(struct path_table *t)
{
	if (!t)
		return;
	paths_down(t);
	free(t->paths);
	free(t);
}

int paths_up(struct path_table *t, char why[UMAD_WHY_MAX])
{
	struct mux_port *p = t->port;
	int err;

	err = umad_file_open_asking(&t->file, p->device, p->number, SA_CLASS, SA_CLASS_VERSION,
				    SA_RMPP_VERSION, why);
	if (err)
		return err;
	if (mux_watch(p->mux, t->file.fd, EPOLLIN, TAG_PATHS, t)) {
		err = errno;
		umad_file_close(&t->file);
	}
	return err;
}

static void drop_waiting(struct path_table *t, struct path *path, enum drop why)
{
	t->port->stats.drop[why] += path->waiting.count;
	queue_clear(t->port->mux, &path->waiting);
}

void paths_down(struct path_table *t)
{
	if (t->file.fd >= 0) {
		mux_unwatch(t->port->mux, t->file.fd);
		umad_file_close(&t->file);
	}
	for (uint32_t i = 0; i < t->used; i++) {
		if (t->paths[i].state == PATH_FREE)
			continue;
		drop_waiting(t, &t->paths[i], DROP_PORT_DOWN);
		t->paths[i].state = PATH_FREE;
	}
	memset(t->buckets, 0xff, sizeof(t->buckets));
	t->asking = 0;
	memset(t->client_asking, 0, sizeof(t->client_asking));
}

static uint32_t *bucket(struct path_table *t, const uint8_t *sgid, const uint8_t *dgid)
{
	uint64_t h = mux_hash_gid(t->key, sgid, mux_hash_gid(t->key, dgid, 0, 0), 0);

	return &t->buckets[h % PATH_BUCKETS];
}

static uint32_t find(struct path_table *t, const uint8_t *sgid, const uint8_t *dgid)
{
	uint32_t i = *bucket(t, sgid, dgid);

	while (i != NO_PATH &&
	       (!gid_equal(t->paths[i].sgid, sgid) || !gid_equal(t->paths[i].dgid, dgid)))
		i = t->paths[i].hash_next;
	return i;
}

static void unchain(struct path_table *t, uint32_t i)
{
	uint32_t *link = bucket(t, t->paths[i].sgid, t->paths[i].dgid);

	while (*link != i)
		link = &t->paths[*link].hash_next;
	*link = t->paths[i].hash_next;
}

/* A place: one never used or free, else one whose answer is old, else any that nothing waits for. */
static uint32_t make_room(struct path_table *t)
{
	uint32_t i;

	if (t->used < MAX_PATHS)
		return t->used++;
	for (unsigned int n = 0; n < MAX_PATHS; n++) {
		i = t->clock++ % MAX_PATHS;
		if (t->paths[i].state == PATH_FREE)
			return i;
		if (t->paths[i].state == PATH_ASKING)
			continue;
		unchain(t, i);
		return i;
	}
	return NO_PATH;
}

static uint32_t make(struct path_table *t, const uint8_t *sgid, const uint8_t *dgid)
{
	uint32_t i = make_room(t), *b;
	struct path *path;

	if (i == NO_PATH)
		return NO_PATH;
	path = &t->paths[i];
	memcpy(path->sgid, sgid, MUX_GID_SIZE);
	memcpy(path->dgid, dgid, MUX_GID_SIZE);
	path->state = PATH_NONE;
	path->since_ms = 0;
	queue_init(&path->waiting);
	b = bucket(t, sgid, dgid);
	path->hash_next = *b;
	*b = i;
	return i;
}

/* Sends the query. On InfiniBand a write doesn't resolve anything, and so doesn't block. */
static int ask(struct path_table *t, uint32_t i, uint64_t client_serial)
{
	uint16_t *asking = &t->client_asking[client_serial % ASKING_BUCKETS];
	struct path *path = &t->paths[i];
	struct umad_pkt pkt;
	uint16_t sm_lid;
	uint8_t sm_sl;
	int err;

	/* No client may have all of them: an administrator that is away holds each for seconds. */
	if (t->file.fd < 0 || t->asking >= MAX_ASKING || *asking >= MAX_ASKING_PER_CLIENT)
		return EBUSY;
	if (!umad_subnet_manager(t->port->device, t->port->real, &sm_lid, &sm_sl)) {
		log_warn("event=no_subnet_manager device=%s port=%u "
			 "hint=\"clients that give no LID cannot connect\"",
			 t->port->device, t->port->real);
		return ENETUNREACH;
	}
	memset(&pkt, 0, sizeof(pkt));
	pkt.hdr.agent_id = (uint32_t)t->file.agent;
	pkt.hdr.timeout_ms = QUERY_MS;
	pkt.hdr.retries = QUERY_RETRIES;
	pkt.hdr.length = sizeof(pkt);
	pkt.hdr.qpn = htobe32(GSI_QPN);
	pkt.hdr.lid = htobe16(sm_lid);
	pkt.hdr.sl = sm_sl;
	pkt.mad[0] = BASE_VERSION;
	pkt.mad[SA_OFF_CLASS] = SA_CLASS;
	pkt.mad[SA_OFF_CLASS + 1] = SA_CLASS_VERSION;
	pkt.mad[SA_OFF_METHOD] = SA_METHOD_GET;
	cm_put32(pkt.mad, SA_OFF_TID_LOW, ++path->round * MAX_PATHS + i);
	cm_put16(pkt.mad, SA_OFF_ATTR, SA_ATTR_PATH);
	cm_put64(pkt.mad, SA_OFF_COMPONENTS,
		 COMP_DGID | COMP_SGID | COMP_REVERSIBLE | COMP_NUMB_PATH);
	memcpy(pkt.mad + PATH_OFF_DGID, path->dgid, MUX_GID_SIZE);
	memcpy(pkt.mad + PATH_OFF_SGID, path->sgid, MUX_GID_SIZE);
	pkt.mad[PATH_OFF_NUMB] = PATH_REVERSIBLE | 1;
	err = umad_write(t->file.fd, &pkt);
	if (err) {
		log_warn("event=path_query_failed device=%s port=%u error=\"%s\"", t->port->device,
			 t->port->real, strerror(err));
		return err;
	}
	path->state = PATH_ASKING;
	path->client = client_serial;
	t->asking++;
	++*asking;
	return 0;
}

static void set_lid(const struct path *path, struct umad_pkt *pkt)
{
	pkt->hdr.lid = path->lid;
	pkt->hdr.sl = path->sl;
}

int paths_send(struct path_table *t, const uint8_t *sgid, const struct umad_pkt *pkt,
	       uint64_t client_serial)
{
	struct mux *mux = t->port->mux;
	struct umad_pkt out = *pkt;
	struct mux_node *node;
	struct path *path;
	uint32_t i;

	i = find(t, sgid, pkt->hdr.gid);
	if (i == NO_PATH)
		i = make(t, sgid, pkt->hdr.gid);
	if (i == NO_PATH)
		return DROP_LANE_FULL;
	path = &t->paths[i];
	if (path->state == PATH_KNOWN && mux->now - path->since_ms < GOOD_MS) {
		set_lid(path, &out);
		return peers_send(t->port->peers, &out, client_serial);
	}
	if (path->state == PATH_NONE && path->since_ms && mux->now - path->since_ms < BAD_MS)
		return DROP_UNREACHABLE;
	if (path->state != PATH_ASKING && ask(t, i, client_serial)) {
		path->state = PATH_NONE;
		path->since_ms = 0;
		return DROP_NO_DESTINATION;
	}
	if (path->waiting.count >= MAX_WAITING)
		return DROP_LANE_FULL;
	node = node_get(mux);
	if (!node)
		return DROP_LANE_FULL;
	node->pkt = out;
	queue_push(&path->waiting, node);
	return 0;
}

/* The session that a waiting MAD begins learns where its peer is. */
static void tell_session(struct mux *mux, const struct umad_pkt *pkt)
{
	uint32_t s = session_by_vid(mux->sessions, cm_get32(pkt->mad, CM_OFF_LOCAL_ID));
	struct session_rec *r;

	if (!session_is(s))
		return;
	r = session_rec(mux->sessions, s);
	if (!(r->flags & SF_ACTIVE) || !gid_equal(r->peer.gid, pkt->hdr.gid))
		return;
	r->peer.lid = pkt->hdr.lid;
	r->peer.sl = pkt->hdr.sl;
	session_changed(mux->sessions, s);
}

static void answered(struct path_table *t, struct path *path, const uint8_t *mad)
{
	struct mux *mux = t->port->mux;
	struct mux_node *node;
	__be16 lid;
	int why;

	t->asking--;
	t->client_asking[path->client % ASKING_BUCKETS]--;
	path->since_ms = mux->now;
	lid = mad ? htobe16(cm_get16(mad, PATH_OFF_DLID)) : 0;
	if (!path_is_lid(lid)) {
		char text[GID_STRLEN];

		log_notice("event=no_path device=%s port=%u dst=%s reason=\"%s\"", t->port->device,
			   t->port->real, gid_str(path->dgid, text),
			   mad ? "the subnet administrator knows none" :
				 "the subnet administrator does not answer");
		path->state = PATH_NONE;
		drop_waiting(t, path, DROP_UNREACHABLE);
		return;
	}
	path->state = PATH_KNOWN;
	path->lid = lid;
	path->sl = mad[PATH_OFF_SL] & PATH_SL_MASK;
	while ((node = queue_pop(&path->waiting))) {
		set_lid(path, &node->pkt);
		tell_session(mux, &node->pkt);
		why = peers_send(t->port->peers, &node->pkt, 0);
		if (why)
			t->port->stats.drop[why]++;
		node_put(mux, node);
	}
}

static struct path *asked_by(struct path_table *t, const uint8_t *mad)
{
	uint32_t id = cm_get32(mad, SA_OFF_TID_LOW), i = id % MAX_PATHS;
	struct path *path = &t->paths[i];

	if (mad[SA_OFF_CLASS] != SA_CLASS || i >= t->used || path->state != PATH_ASKING ||
	    id != path->round * MAX_PATHS + i)
		return NULL;
	return path;
}

void paths_receive(struct path_table *t)
{
	struct umad_pkt pkt;
	struct path *path;
	ssize_t len;

	/* The end of the device is the receiving file's news; until then this one is level and quiet. */
	while (t->file.fd >= 0 && (len = umad_read_any(t->file.fd, &pkt)) != 0) {
		if (len < 0) {
			mux_unwatch(t->port->mux, t->file.fd);
			return;
		}
		if ((size_t)len < sizeof(pkt.hdr) + MAD_HEADER)
			continue;
		path = asked_by(t, pkt.mad);
		if (!path)
			continue;
		if (pkt.hdr.status || len != sizeof(pkt) ||
		    pkt.mad[SA_OFF_METHOD] != SA_METHOD_RESP ||
		    cm_get16(pkt.mad, SA_OFF_ATTR) != SA_ATTR_PATH)
			answered(t, path, NULL);
		else if (cm_get16(pkt.mad, SA_OFF_STATUS) ||
			 !gid_equal(pkt.mad + PATH_OFF_DGID, path->dgid))
			answered(t, path, (const uint8_t[MUX_MAD_SIZE]){ 0 });
		else
			answered(t, path, pkt.mad);
	}
}
