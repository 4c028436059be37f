// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The control socket: one JSON object a line in, one a line out.
 *
 * {"command": NAME, ...}. Every answer has "ok"; if false, "error" says why. Long tables come in pages of at most PAGE entries: an
 * answer with "next" is continued by the same command with "cursor" set to that.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "mux/log.h"
#include "mux/mux.h"

#define MAX_CONNS      16
#define LINE_MAX_BYTES 4096
#define PAGE	       500

struct conn {
	struct control *control;
	sd_event_source *source;
	int fd; /* -1: unused */
	size_t got;
	char *out;
	size_t len, sent;
	char line[LINE_MAX_BYTES];
};

struct control {
	struct mux *mux;
	sd_event_source *source;
	int fd;
	char path[CONFIG_PATH_MAX];
	struct conn conns[MAX_CONNS];
};

static json_t *fail(const char *why)
{
	return json_pack("{s:b, s:s}", "ok", 0, "error", why);
}

static void set_gid(json_t *o, const char *key, const uint8_t *gid)
{
	char text[GID_STRLEN];

	json_object_set_new(o, key, json_string(gid_str(gid, text)));
}

static void set_int(json_t *o, const char *key, uint64_t v)
{
	json_object_set_new(o, key, json_integer((json_int_t)v));
}

static void set_hex(json_t *o, const char *key, uint64_t v, int digits)
{
	char text[24];

	snprintf(text, sizeof(text), "0x%0*llx", digits, (unsigned long long)v);
	json_object_set_new(o, key, json_string(text));
}

static uint64_t cursor_of(const json_t *req)
{
	json_int_t v = json_integer_value(json_object_get(req, "cursor"));

	return v > 0 ? (uint64_t)v : 0;
}

static json_t *page(const char *name, json_t *list, uint64_t next, bool more)
{
	json_t *o = json_pack("{s:b, s:o}", "ok", 1, name, list);

	if (o && more)
		set_int(o, "next", next);
	return o;
}

/* Commands ----------------------------------------------------------------------------------------- */

static json_t *port_status(struct mux_port *p)
{
	unsigned int known, waiting;
	json_t *o = json_object();

	peers_counts(p->peers, &known, &waiting);
	json_object_set_new(o, "device", json_string(p->device));
	set_int(o, "port", p->real);
	json_object_set_new(o, "up", json_boolean(p->up));
	json_object_set_new(o, "link", json_string(p->infiniband ? "InfiniBand" : "Ethernet"));
	set_int(o, "peers", known);
	set_int(o, "mads_waiting", waiting + p->parked.count);
	return o;
}

static json_t *cmd_status(struct mux *mux, const json_t *req)
{
	json_t *o = json_pack("{s:b, s:s}", "ok", 1, "version", "0.1.0");
	json_t *ports = json_array();

	(void)req;
	set_int(o, "pid", (uint64_t)getpid());
	set_int(o, "uptime_seconds", (mux->now - mux->started_ms) / 1000);
	set_int(o, "clients", mux->n_connected);
	set_int(o, "clients_in_grace", mux->n_clients - mux->n_connected);
	set_int(o, "clients_limit", mux->cfg->max_clients);
	set_int(o, "gids", mux->n_gids);
	set_int(o, "sessions", session_count(mux->sessions));
	set_int(o, "sessions_limit", session_capacity(mux->sessions));
	set_int(o, "sessions_without_client", mux->orphans.count + mux->mourning.count);
	json_object_set_new(o, "draining", json_boolean(mux->draining));
	json_object_set_new(o, "survives_restart", json_boolean(mux->fd_store));
	for (unsigned int i = 0; i < mux->n_ports; i++)
		json_array_append_new(ports, port_status(mux->ports[i]));
	json_object_set_new(o, "ports", ports);
	return o;
}

static int by_serial(const void *a, const void *b)
{
	const struct client *x = *(struct client *const *)a, *y = *(struct client *const *)b;

	return x->owner.serial < y->owner.serial ? -1 : x->owner.serial > y->owner.serial;
}

/* All clients in order of their numbers; the caller frees. */
static struct client **sorted_clients(struct mux *mux)
{
	struct client **list = calloc(mux->n_clients + 1, sizeof(*list));
	size_t n = 0;

	if (!list)
		return NULL;
	for (struct client *c = mux->clients; c; c = c->next)
		list[n++] = c;
	qsort(list, n, sizeof(*list), by_serial);
	return list;
}

static json_t *client_json(struct client *c)
{
	json_t *o = json_object(), *gids = json_array();
	char text[GID_STRLEN];

	set_int(o, "client", c->owner.serial);
	set_int(o, "pid", (uint64_t)c->rec->pid);
	set_int(o, "uid", c->rec->uid);
	json_object_set_new(o, "device", json_string(c->port->device));
	set_int(o, "port", c->port->real);
	json_object_set_new(o, "socket", json_string(c->rec->listen));
	json_object_set_new(o, "rule", c->rule ? json_string(c->rule->name) : json_null());
	json_object_set_new(o, "connected", json_boolean(c->fd >= 0));
	json_object_set_new(o, "stalled", json_boolean(c->stalled));
	json_object_set_new(o, "hello", json_boolean((c->rec->hello & HELLO_SAID) != 0));
	for (struct gid_reg *g = c->gids; g; g = g->next)
		json_array_append_new(gids, json_string(gid_str(g->gid, text)));
	json_object_set_new(o, "gids", gids);
	set_int(o, "sessions", c->owner.count);
	set_int(o, "half_open", c->owner.half_open);
	set_int(o, "queued", c->queue.count);
	set_int(o, "tx_mads", c->stats.tx_mads);
	set_int(o, "tx_refused", c->stats.tx_refused);
	set_int(o, "rx_mads", c->stats.rx_mads);
	set_int(o, "rx_dropped", c->stats.rx_dropped);
	set_int(o, "crossed", c->stats.ambiguous);
	return o;
}

static json_t *cmd_clients(struct mux *mux, const json_t *req)
{
	struct client **all = sorted_clients(mux);
	uint64_t cursor = cursor_of(req);
	json_t *list = json_array();
	size_t n = 0;
	unsigned int i;

	if (!all)
		return fail("out of memory");
	for (i = 0; i < mux->n_clients && n < PAGE; i++) {
		if (all[i]->owner.serial <= cursor)
			continue;
		json_array_append_new(list, client_json(all[i]));
		cursor = all[i]->owner.serial;
		n++;
	}
	free(all);
	return page("clients", list, cursor, i < mux->n_clients);
}

static json_t *session_json(struct mux *mux, uint32_t s)
{
	struct session_rec *r = session_rec(mux->sessions, s);
	json_t *o = json_object();
	struct client *c;

	route_owner(mux, r, &c);
	json_object_set_new(o, "client",
			    c ? json_integer((json_int_t)c->owner.serial) : json_null());
	json_object_set_new(o, "kind", json_string(r->class == CLASS_SIDR ? "sidr" : "connection"));
	json_object_set_new(o, "role", json_string(r->flags & SF_ACTIVE ? "active" : "passive"));
	json_object_set_new(o, "state", json_string(session_state_name(r->state)));
	json_object_set_new(o, "device", json_string(mux->ports[r->port]->device));
	set_int(o, "port", mux->ports[r->port]->real);
	set_gid(o, "gid", r->client_gid);
	set_gid(o, "peer", r->peer.gid);
	set_hex(o, "wire_id", r->vid, 8);
	if (r->flags & SF_LOCAL)
		set_hex(o, "client_id", r->local_id, 8);
	if (r->flags & SF_PEER)
		set_hex(o, "peer_id", r->peer_id, 8);
	set_hex(o, "service_id", r->service_id, 16);
	json_object_set_new(o, "suspect", json_boolean((r->flags & SF_SUSPECT) != 0));
	set_int(o, "age_ms", mux->now - r->created_ms);
	set_int(o, "idle_ms", mux->now - r->used_ms);
	return o;
}

static json_t *cmd_sessions(struct mux *mux, const json_t *req)
{
	json_int_t client = json_integer_value(json_object_get(req, "client"));
	uint64_t cursor = cursor_of(req);
	json_t *list = json_array();
	uint32_t s = cursor > UINT32_MAX ? SESSION_NONE : (uint32_t)cursor;
	/* Sessions looked at, so that a search for few among many does not hold the loop. */
	unsigned int looked = 0;

	for (s = session_walk(mux->sessions, s); session_is(s);
	     s = session_walk(mux->sessions, s + 1)) {
		if (looked++ == PAGE * 20 || json_array_size(list) == PAGE)
			break;
		if (!client || session_rec(mux->sessions, s)->owner == (uint64_t)client)
			json_array_append_new(list, session_json(mux, s));
	}
	return page("sessions", list, s, session_is(s));
}

static json_t *message_counts(const uint64_t *counts)
{
	json_t *o = json_object();

	for (unsigned int i = 0; i < CM_ATTR_COUNT; i++)
		if (counts[i])
			set_int(o, cm_name(CM_REQ + i), counts[i]);
	return o;
}

static json_t *cmd_stats(struct mux *mux, const json_t *req)
{
	json_t *o = json_pack("{s:b}", "ok", 1), *ports = json_array();
	struct sender_stats st = { 0 };

	(void)req;
	set_int(o, "accepted", mux->accepted);
	set_int(o, "refused", mux->refused);
	set_int(o, "buffers", mux->nodes);
	set_int(o, "bytes_per_session", session_size());
	set_int(o, "bytes_per_client", sizeof(struct client) + sizeof(struct client_rec));
	for (unsigned int i = 0; i < mux->n_ports; i++) {
		struct mux_port *p = mux->ports[i];
		json_t *port = port_status(p), *drops = json_object();

		if (p->tx)
			sender_stats(p->tx, &st);
		json_object_set_new(port, "tx", message_counts(p->stats.tx));
		json_object_set_new(port, "rx", message_counts(p->stats.rx));
		set_int(port, "hairpin", p->stats.hairpin);
		set_int(port, "built", p->stats.built);
		set_int(port, "crossed", p->stats.crossed);
		set_int(port, "received", p->stats.umad_in);
		set_int(port, "written", st.sent);
		set_int(port, "write_errors", st.failed);
		set_int(port, "write_duplicates", st.duplicates);
		for (unsigned int d = 0; d < DROP_COUNT; d++)
			if (p->stats.drop[d])
				set_int(drops, drop_name(d), p->stats.drop[d]);
		json_object_set_new(port, "dropped", drops);
		json_array_append_new(ports, port);
	}
	json_object_set_new(o, "ports", ports);
	return o;
}

static json_t *cmd_metrics(struct mux *mux, const json_t *req)
{
	char *text = metrics_text(mux);
	json_t *o;

	(void)req;
	if (!text)
		return fail("out of memory");
	o = json_pack("{s:b, s:s}", "ok", 1, "text", text);
	free(text);
	return o;
}

static json_t *cmd_drain(struct mux *mux, const json_t *req)
{
	const json_t *off = json_object_get(req, "off");

	mux->draining = !json_is_true(off);
	log_notice("event=drain on=%d sessions=%u", mux->draining, session_count(mux->sessions));
	return json_pack("{s:b, s:b, s:i}", "ok", 1, "draining", mux->draining, "sessions",
			 (int)session_count(mux->sessions));
}

static json_t *cmd_reload(struct mux *mux, const json_t *req)
{
	(void)req;
	return mux_reload(mux) ?
		       fail("the configuration is broken, the old one stays: see the log") :
		       json_pack("{s:b}", "ok", 1);
}

static json_t *cmd_disconnect(struct mux *mux, const json_t *req)
{
	json_int_t serial = json_integer_value(json_object_get(req, "client"));
	struct client *c = serial > 0 ? client_by_serial(mux, (uint64_t)serial) : NULL;

	if (!c)
		return fail("no such client");
	if (c->fd >= 0)
		client_disconnect(c, "by the operator");
	return json_pack("{s:b}", "ok", 1);
}

static json_t *cmd_log(struct mux *mux, const json_t *req)
{
	const char *text = json_string_value(json_object_get(req, "level"));
	int level = text ? log_level_parse(text) : -1;

	(void)mux;
	if (level < 0)
		return fail("level must be err, warning, notice, info or debug");
	log_set_level(level);
	return json_pack("{s:b}", "ok", 1);
}

static json_t *run(struct mux *mux, const char *line)
{
	static const struct {
		const char *name;
		json_t *(*run)(struct mux *mux, const json_t *req);
	} commands[] = {
		{ "status", cmd_status },     { "clients", cmd_clients },
		{ "sessions", cmd_sessions }, { "stats", cmd_stats },
		{ "metrics", cmd_metrics },   { "drain", cmd_drain },
		{ "reload", cmd_reload },     { "disconnect", cmd_disconnect },
		{ "log", cmd_log },
	};
	json_t *req = json_loads(line, JSON_REJECT_DUPLICATES, NULL), *ans = NULL;
	const char *name = json_string_value(json_object_get(req, "command"));

	mux->now = mux_now_ms();
	for (unsigned int i = 0; name && i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(commands[i].name, name) == 0)
			ans = commands[i].run(mux, req);
	if (!ans)
		ans = fail(name ? "unknown command" : "not a JSON object with a \"command\"");
	json_decref(req);
	return ans;
}

/* Connections -------------------------------------------------------------------------------------- */

static void conn_end(struct conn *c)
{
	sd_event_source_disable_unref(c->source);
	c->source = NULL;
	close(c->fd);
	c->fd = -1;
	free(c->out);
	c->out = NULL;
}

static int answer(struct conn *c, const char *line)
{
	json_t *ans = run(c->control->mux, line);
	char *text = json_dumps(ans, JSON_COMPACT);
	int n;

	json_decref(ans);
	if (!text)
		return ENOMEM;
	n = asprintf(&c->out, "%s\n", text);
	free(text);
	if (n < 0) {
		c->out = NULL;
		return ENOMEM;
	}
	c->len = (size_t)n;
	c->sent = 0;
	return 0;
}

/* Sends what is left of the answer. False if the connection is over. */
static bool send_rest(struct conn *c)
{
	ssize_t n = send(c->fd, c->out + c->sent, c->len - c->sent, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n < 0 && errno != EAGAIN)
		return false;
	if (n > 0)
		c->sent += (size_t)n;
	if (c->sent == c->len) {
		free(c->out);
		c->out = NULL;
	}
	return sd_event_source_set_io_events(c->source, c->out ? EPOLLOUT : EPOLLIN) >= 0;
}

/* Answers complete lines, one after the other. False if the connection is over. */
static bool serve(struct conn *c)
{
	char *end;

	while (!c->out && (end = memchr(c->line, '\n', c->got))) {
		size_t used = (size_t)(end - c->line) + 1;

		*end = '\0';
		if (answer(c, c->line) || !send_rest(c))
			return false;
		memmove(c->line, c->line + used, c->got - used);
		c->got -= used;
	}
	return c->got < sizeof(c->line);
}

static int on_conn(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	struct conn *c = arg;
	bool alive = true;
	ssize_t n;

	(void)source;
	(void)revents;
	if (c->out) {
		alive = send_rest(c) && serve(c);
	} else {
		n = recv(fd, c->line + c->got, sizeof(c->line) - c->got, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN))
			alive = false;
		if (n > 0) {
			c->got += (size_t)n;
			alive = serve(c);
		}
	}
	if (!alive)
		conn_end(c);
	return 0;
}

static int on_control(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	struct control *ctl = arg;
	struct conn *c = NULL;
	int conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)source;
	(void)revents;
	if (conn < 0)
		return 0;
	for (unsigned int i = 0; i < MAX_CONNS && !c; i++)
		if (ctl->conns[i].fd < 0)
			c = &ctl->conns[i];
	if (!c) {
		c = &ctl->conns[0];
		conn_end(c);
	}
	c->control = ctl;
	c->fd = conn;
	c->got = 0;
	if (sd_event_add_io(ctl->mux->event, &c->source, conn, EPOLLIN, on_conn, c) < 0)
		conn_end(c);
	return 0;
}

struct control *control_new(struct mux *mux, const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct control *ctl = calloc(1, sizeof(*ctl));
	int err;

	if (!ctl)
		return NULL;
	ctl->mux = mux;
	ctl->fd = -1;
	for (unsigned int i = 0; i < MAX_CONNS; i++)
		ctl->conns[i].fd = -1;
	if (strlen(path) >= sizeof(addr.sun_path)) {
		fprintf(stderr, "rdmacm-mux: control socket path %s is longer than %zu bytes\n",
			path, sizeof(addr.sun_path) - 1);
		err = ENAMETOOLONG;
		goto err;
	}
	strcpy(addr.sun_path, path);
	strcpy(ctl->path, path);
	err = listen_clear(path);
	if (err)
		goto err;
	ctl->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (ctl->fd < 0 || bind(ctl->fd, (struct sockaddr *)&addr, sizeof(addr)) ||
	    chmod(path, mux->cfg->control_mode) || listen(ctl->fd, MAX_CONNS)) {
		err = errno;
		fprintf(stderr, "rdmacm-mux: cannot make the control socket %s: %s\n", path,
			strerror(err));
		goto err;
	}
	err = -sd_event_add_io(mux->event, &ctl->source, ctl->fd, EPOLLIN, on_control, ctl);
	if (err <= 0)
		return ctl;
err:
	if (ctl->fd >= 0)
		close(ctl->fd);
	free(ctl);
	errno = err;
	return NULL;
}

void control_free(struct control *ctl, bool unlink_path)
{
	if (!ctl)
		return;
	for (unsigned int i = 0; i < MAX_CONNS; i++)
		if (ctl->conns[i].fd >= 0)
			conn_end(&ctl->conns[i]);
	sd_event_source_disable_unref(ctl->source);
	if (unlink_path)
		unlink(ctl->path);
	close(ctl->fd);
	free(ctl);
}
