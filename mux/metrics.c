// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Counters as Prometheus text, over the control socket and, if asked for, over HTTP. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mux/log.h"
#include "mux/mux.h"

#define MAX_SCRAPES 16
#define REQUEST_MAX 4096

struct scrape {
	struct metrics *metrics;
	sd_event_source *source;
	int fd; /* -1: unused */
	size_t got;
	char *reply;
	size_t len, sent;
	char request[REQUEST_MAX];
};

struct metrics {
	struct mux *mux;
	sd_event_source *source;
	int fd;
	struct scrape scrapes[MAX_SCRAPES];
};

static void head(FILE *f, const char *name, const char *type, const char *help)
{
	fprintf(f, "# HELP rdmacm_mux_%s %s\n# TYPE rdmacm_mux_%s %s\n", name, help, name, type);
}

static void write_global(FILE *f, struct mux *mux)
{
	head(f, "clients", "gauge", "Clients by whether they are connected now");
	fprintf(f, "rdmacm_mux_clients{state=\"connected\"} %u\n", mux->n_connected);
	fprintf(f, "rdmacm_mux_clients{state=\"grace\"} %u\n", mux->n_clients - mux->n_connected);
	head(f, "clients_accepted_total", "counter", "Connections accepted");
	fprintf(f, "rdmacm_mux_clients_accepted_total %llu\n", (unsigned long long)mux->accepted);
	head(f, "clients_refused_total", "counter", "Connections refused by policy or limit");
	fprintf(f, "rdmacm_mux_clients_refused_total %llu\n", (unsigned long long)mux->refused);
	head(f, "gids", "gauge", "Registered GIDs");
	fprintf(f, "rdmacm_mux_gids %u\n", mux->n_gids);
	head(f, "sessions", "gauge", "Communication ids by state");
	for (unsigned int i = S_FREE + 1; i < S_STATES; i++)
		fprintf(f, "rdmacm_mux_sessions{state=\"%s\"} %u\n", session_state_name(i),
			session_count_state(mux->sessions, i));
	head(f, "sessions_limit", "gauge", "Most sessions the mux keeps");
	fprintf(f, "rdmacm_mux_sessions_limit %u\n", session_capacity(mux->sessions));
	head(f, "buffers", "gauge", "Message buffers ever allocated");
	fprintf(f, "rdmacm_mux_buffers %zu\n", mux->nodes);
	head(f, "draining", "gauge", "1 if no new connections are let in");
	fprintf(f, "rdmacm_mux_draining %d\n", mux->draining);
	head(f, "uptime_seconds", "gauge", "Time since the start");
	fprintf(f, "rdmacm_mux_uptime_seconds %llu\n",
		(unsigned long long)(mux->now - mux->started_ms) / 1000);
}

#define FOR_PORTS(mux, p)                                                   \
	for (unsigned int port_i_ = 0; port_i_ < (mux)->n_ports; port_i_++) \
		if (((p) = (mux)->ports[port_i_]))

static void write_ports(FILE *f, struct mux *mux)
{
	struct sender_stats st;
	struct mux_port *p;

	head(f, "port_up", "gauge", "1 if the port can send and receive");
	FOR_PORTS(mux, p)
	fprintf(f, "rdmacm_mux_port_up{device=\"%s\",port=\"%u\"} %d\n", p->device, p->real, p->up);
	head(f, "messages_total", "counter", "CM messages passed on");
	FOR_PORTS(mux, p)
	for (unsigned int i = 0; i < CM_ATTR_COUNT; i++) {
		fprintf(f,
			"rdmacm_mux_messages_total{device=\"%s\",port=\"%u\",direction=\"tx\","
			"message=\"%s\"} %llu\n",
			p->device, p->real, cm_name(CM_REQ + i),
			(unsigned long long)p->stats.tx[i]);
		fprintf(f,
			"rdmacm_mux_messages_total{device=\"%s\",port=\"%u\",direction=\"rx\","
			"message=\"%s\"} %llu\n",
			p->device, p->real, cm_name(CM_REQ + i),
			(unsigned long long)p->stats.rx[i]);
	}
	head(f, "hairpin_total", "counter", "Messages between two clients, handed over inside");
	FOR_PORTS(mux, p)
	fprintf(f, "rdmacm_mux_hairpin_total{device=\"%s\",port=\"%u\"} %llu\n", p->device, p->real,
		(unsigned long long)p->stats.hairpin);
	head(f, "built_total", "counter", "Messages made by the mux itself");
	FOR_PORTS(mux, p)
	fprintf(f, "rdmacm_mux_built_total{device=\"%s\",port=\"%u\"} %llu\n", p->device, p->real,
		(unsigned long long)p->stats.built);
	head(f, "crossed_total", "counter",
	     "Answers that carried a MAD again, because the client may have taken it for an answer");
	FOR_PORTS(mux, p)
	fprintf(f, "rdmacm_mux_crossed_total{device=\"%s\",port=\"%u\"} %llu\n", p->device, p->real,
		(unsigned long long)p->stats.crossed);
	head(f, "umad_writes_total", "counter", "Writes to the kernel by result");
	FOR_PORTS(mux, p)
	{
		if (!p->tx)
			continue;
		sender_stats(p->tx, &st);
		fprintf(f,
			"rdmacm_mux_umad_writes_total{device=\"%s\",port=\"%u\",result=\"sent\"} %llu\n",
			p->device, p->real, (unsigned long long)st.sent);
		fprintf(f,
			"rdmacm_mux_umad_writes_total{device=\"%s\",port=\"%u\",result=\"failed\"} %llu\n",
			p->device, p->real, (unsigned long long)st.failed);
	}
	head(f, "dropped_total", "counter", "Messages not passed on, by reason");
	FOR_PORTS(mux, p)
	for (unsigned int i = 0; i < DROP_COUNT; i++)
		fprintf(f,
			"rdmacm_mux_dropped_total{device=\"%s\",port=\"%u\",reason=\"%s\"} %llu\n",
			p->device, p->real, drop_name(i), (unsigned long long)p->stats.drop[i]);
}

char *metrics_text(struct mux *mux)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	write_global(f, mux);
	write_ports(f, mux);
	if (fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}

/* HTTP --------------------------------------------------------------------------------------------- */

static void scrape_end(struct scrape *s)
{
	sd_event_source_disable_unref(s->source);
	s->source = NULL;
	close(s->fd);
	s->fd = -1;
	free(s->reply);
	s->reply = NULL;
}

static int make_reply(struct scrape *s)
{
	bool found = strncmp(s->request, "GET /metrics ", 13) == 0;
	char *text = found ? metrics_text(s->metrics->mux) :
			     strdup("only GET /metrics is served here\n");
	int n;

	if (!text)
		return ENOMEM;
	n = asprintf(
		&s->reply,
		"HTTP/1.0 %s\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %zu\r\n"
		"Connection: close\r\n\r\n%s",
		found ? "200 OK" : "404 Not Found", strlen(text), text);
	free(text);
	if (n < 0) {
		s->reply = NULL;
		return ENOMEM;
	}
	s->len = (size_t)n;
	s->sent = 0;
	return 0;
}

static int on_scrape(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	struct scrape *s = arg;
	ssize_t n;

	if (!s->reply) {
		n = recv(fd, s->request + s->got, REQUEST_MAX - 1 - s->got, MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n <= 0) {
			scrape_end(s);
			return 0;
		}
		s->got += (size_t)n;
		s->request[s->got] = '\0';
		if (!strstr(s->request, "\r\n\r\n") && !strstr(s->request, "\n\n")) {
			if (s->got == REQUEST_MAX - 1)
				scrape_end(s);
			return 0;
		}
		if (make_reply(s)) {
			scrape_end(s);
			return 0;
		}
		sd_event_source_set_io_events(source, EPOLLOUT);
	}
	(void)revents;
	n = send(fd, s->reply + s->sent, s->len - s->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0 && errno != EAGAIN) {
		scrape_end(s);
		return 0;
	}
	if (n > 0)
		s->sent += (size_t)n;
	if (s->sent == s->len)
		scrape_end(s);
	return 0;
}

static int on_scraper(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	struct metrics *m = arg;
	struct scrape *s = NULL;
	int conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)source;
	(void)revents;
	if (conn < 0)
		return 0;
	for (unsigned int i = 0; i < MAX_SCRAPES && !s; i++)
		if (m->scrapes[i].fd < 0)
			s = &m->scrapes[i];
	/* The oldest that did not finish makes room for the newest. */
	if (!s) {
		s = &m->scrapes[0];
		scrape_end(s);
	}
	s->metrics = m;
	s->fd = conn;
	s->got = 0;
	if (sd_event_add_io(m->mux->event, &s->source, conn, EPOLLIN, on_scrape, s) < 0)
		scrape_end(s);
	return 0;
}

/* "address:port", the address in brackets if it has colons; "port" alone is the loopback address's. */
static int listen_tcp(const char *where)
{
	struct addrinfo hints = { .ai_flags = AI_PASSIVE | AI_NUMERICHOST,
				  .ai_socktype = SOCK_STREAM };
	const char *colon = strrchr(where, ':');
	struct addrinfo *ai = NULL;
	char host[64] = "127.0.0.1";
	int fd, one = 1;

	if (colon) {
		size_t len = (size_t)(colon - where);
		bool brackets = len >= 2 && where[0] == '[' && where[len - 1] == ']';

		if (len >= sizeof(host))
			return -1;
		snprintf(host, sizeof(host), "%.*s", (int)(brackets ? len - 2 : len),
			 where + brackets);
	}
	if (getaddrinfo(host, colon ? colon + 1 : where, &hints, &ai)) {
		errno = EINVAL;
		return -1;
	}
	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (bind(fd, ai->ai_addr, ai->ai_addrlen) || listen(fd, MAX_SCRAPES)) {
			close(fd);
			fd = -1;
		}
	}
	freeaddrinfo(ai);
	return fd;
}

struct metrics *metrics_new(struct mux *mux, const char *where)
{
	struct metrics *m = calloc(1, sizeof(*m));
	int err;

	if (!m)
		return NULL;
	m->mux = mux;
	for (unsigned int i = 0; i < MAX_SCRAPES; i++)
		m->scrapes[i].fd = -1;
	m->fd = listen_tcp(where);
	if (m->fd < 0) {
		err = errno;
		fprintf(stderr, "rdmacm-mux: cannot serve metrics on %s: %s\n", where,
			strerror(err));
		goto err;
	}
	err = sd_event_add_io(mux->event, &m->source, m->fd, EPOLLIN, on_scraper, m);
	if (err >= 0)
		return m;
	err = -err;
	close(m->fd);
err:
	free(m);
	errno = err;
	return NULL;
}

void metrics_free(struct metrics *m)
{
	if (!m)
		return;
	for (unsigned int i = 0; i < MAX_SCRAPES; i++)
		if (m->scrapes[i].fd >= 0)
			scrape_end(&m->scrapes[i]);
	sd_event_source_disable_unref(m->source);
	close(m->fd);
	free(m);
}
