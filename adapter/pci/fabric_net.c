// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The way to adapters of other processes and hosts.
 *
 * Of the two ends of a connection the one with the smaller address and port asks, the other answers.  The one that
 * asks connects to every process it knows and says whom it looks for.  Who does not have that QP
 * closes; who has it answers as soon as the QP is ready, and the socket is the stream of the two
 * from then on.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "adapter/pci/fabric_internal.h"
#include "adapter/pci/log.h"
#include "adapter/pci/unix_socket.h"

enum {
	HELLO_MAGIC = 0x45524450,
	ANSWER_MAGIC = 0x45524441,
	HELLO_VERSION = 1,
	MAX_LISTENERS = 8,
	MAX_PEERS = 64,
	MAX_CALLERS = 1024, /* that have not been answered */
	MAX_NAMES = 4096,   /* tried for a socket in the folder */
	MAX_SHARES = 16,    /* functions that ask at the same time */
	MAX_DIALS = 512,    /* of one function; more of its QPs wait for their turn */
};

/* Others are asked again after this, then after twice as long, and so on. */
static const uint64_t retry_ns = 500000000;
static const uint64_t caller_ns = PCI_FABRIC_WAIT_NS;

struct hello {
	__be32 magic;
	__be32 version;
	__be32 own_cookie, peer_cookie; /* as the one who asks sees it */
	__be32 sip, dip;
	__be16 sport, dport;
	__be32 send_nxt, recv_nxt;
};

struct answer {
	__be32 magic;
	__be32 version;
};

/* How many are being asked for a function's QPs. */
struct share {
	const struct pci_func *func;
	unsigned int dials; /* 0: unused */
};

/* Asking one process. */
struct pci_dial {
	struct pci_list place; /* among the wait's */
	struct pci_wait *wait;
	struct share *share;
	struct pci_fd pfd;
	bool said;
	uint8_t buf[sizeof(struct answer)];
	uint32_t have;
};

/* Somebody who asks us. */
struct caller {
	struct pci_list place; /* among the net's */
	struct pci_net *net;
	struct pci_fd pfd;
	struct pci_timer timer;
	struct hello hello;
	uint32_t have;
	bool known; /* the whole question is there, and the QP is ours */
	struct pci_fabric_key key;
};

struct listener {
	struct pci_net *net;
	struct pci_fd pfd;
	char *path; /* unix sockets */
};

struct pci_net {
	struct pci_fabric *fabric;
	struct share shares[MAX_SHARES];
	char *dir;
	struct listener listeners[MAX_LISTENERS];
	unsigned int nlisteners;
	struct sockaddr_storage peers[MAX_PEERS];
	socklen_t peer_len[MAX_PEERS];
	unsigned int npeers;
	struct pci_list callers; /* the newest first */
	unsigned int ncallers;
};

static struct pci_net *net_get(struct pci_fabric *fabric)
{
	if (!fabric->net) {
		fabric->net = calloc(1, sizeof(*fabric->net));
		if (fabric->net) {
			fabric->net->fabric = fabric;
			pci_list_init(&fabric->net->callers);
		}
	}
	return fabric->net;
}

/* ------------------------------------------------------------------ asking */

/* The function's, or a new one; NULL when there is none. */
static struct share *share_of(struct pci_net *net, const struct pci_func *func)
{
	struct share *unused = NULL;
	unsigned int i;

	for (i = 0; i < MAX_SHARES; i++) {
		if (!net->shares[i].dials)
			unused = &net->shares[i];
		else if (net->shares[i].func == func)
			return &net->shares[i];
	}
	if (unused)
		unused->func = func;
	return unused;
}

static void dial_end(struct pci_dial *dial, bool keep_fd)
{
	pci_list_remove(&dial->place);
	pci_fd_del(dial->wait->fabric->loop, &dial->pfd);
	dial->share->dials--;
	if (!keep_fd)
		close(dial->pfd.fd);
	free(dial);
}

/* 1: said; 0: later; -1: nobody there. */
static int say_hello(struct pci_dial *dial)
{
	const struct pci_fabric_key *key = &dial->wait->key;
	struct hello hello = {
		.magic = htonl(HELLO_MAGIC),
		.version = htonl(HELLO_VERSION),
		.own_cookie = htonl(key->own_cookie),
		.peer_cookie = htonl(key->peer_cookie),
		.sip = key->sip,
		.dip = key->dip,
		.sport = key->sport,
		.dport = key->dport,
		.send_nxt = htonl(key->send_nxt),
		.recv_nxt = htonl(key->recv_nxt),
	};
	ssize_t n = send(dial->pfd.fd, &hello, sizeof(hello), MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN ? 0 : -1;
	return n == sizeof(hello) ? 1 : -1;
}

static void dial_ready(struct pci_fd *pfd, uint32_t events)
{
	struct pci_dial *dial = container_of(pfd, struct pci_dial, pfd);
	struct pci_wait *wait = dial->wait;
	struct answer answer;
	ssize_t n;
	int rc, fd;

	if (!dial->said) {
		rc = events & (EPOLLERR | EPOLLHUP) ? -1 : say_hello(dial);
		if (rc < 0)
			dial_end(dial, false);
		if (rc <= 0)
			return;
		dial->said = true;
		pci_fd_mod(wait->fabric->loop, pfd, EPOLLIN);
		return;
	}
	n = recv(pfd->fd, dial->buf + dial->have, sizeof(dial->buf) - dial->have, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		dial_end(dial, false);
		return;
	}
	dial->have += (uint32_t)n;
	if (dial->have < sizeof(dial->buf))
		return;
	memcpy(&answer, dial->buf, sizeof(answer));
	if (answer.magic != htonl(ANSWER_MAGIC) || answer.version != htonl(HELLO_VERSION)) {
		dial_end(dial, false);
		return;
	}
	fd = pfd->fd;
	dial_end(dial, true);
	if (pci_wait_connect(wait, fd))
		close(fd);
}

static void dial_start(struct pci_wait *wait, int fd)
{
	struct share *share = share_of(wait->fabric->net, wait->func);
	struct pci_dial *dial = NULL;

	if (share && share->dials < MAX_DIALS && pci_stream_may_have(fd))
		dial = calloc(1, sizeof(*dial));
	if (!dial) {
		close(fd);
		return;
	}
	dial->wait = wait;
	dial->share = share;
	dial->pfd = (struct pci_fd){ .fd = fd, .events = EPOLLOUT, .ready = dial_ready };
	if (pci_fd_add(wait->fabric->loop, &dial->pfd)) {
		close(fd);
		free(dial);
		return;
	}
	share->dials++;
	pci_list_append(&wait->dials, &dial->place);
}

static bool is_ours(const struct pci_net *net, const char *path)
{
	unsigned int i;

	for (i = 0; i < net->nlisteners; i++)
		if (net->listeners[i].path && !strcmp(net->listeners[i].path, path))
			return true;
	return false;
}

static void dial_dir(struct pci_wait *wait, const struct pci_net *net)
{
	DIR *dir = opendir(net->dir);
	struct dirent *entry;
	char path[512];
	int fd;

	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.' || !strstr(entry->d_name, ".fabric"))
			continue;
		if (snprintf(path, sizeof(path), "%s/%s", net->dir, entry->d_name) >=
			    (int)sizeof(path) ||
		    is_ours(net, path))
			continue;
		fd = pci_unix_connect(path);
		if (fd >= 0)
			dial_start(wait, fd);
	}
	closedir(dir);
}

static void dial_hosts(struct pci_wait *wait, const struct pci_net *net)
{
	unsigned int i;
	int fd;

	for (i = 0; i < net->npeers; i++) {
		fd = socket(net->peers[i].ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (fd < 0)
			continue;
		if (connect(fd, (const struct sockaddr *)&net->peers[i], net->peer_len[i]) &&
		    errno != EINPROGRESS)
			close(fd);
		else
			dial_start(wait, fd);
	}
}

static void ask(struct pci_wait *wait)
{
	const struct pci_net *net = wait->fabric->net;

	/* those who were asked before may not have answered yet: they hold the question */
	if (pci_list_empty(&wait->dials)) {
		if (net->dir)
			dial_dir(wait, net);
		dial_hosts(wait, net);
	}
	wait->pause_ns = wait->pause_ns ? 2 * wait->pause_ns : retry_ns;
	pci_timer_set(wait->fabric->loop, &wait->retry, wait->pause_ns);
}

static void ask_again(struct pci_timer *timer)
{
	ask(container_of(timer, struct pci_wait, retry));
}

void pci_net_ask(struct pci_wait *wait)
{
	const struct pci_fabric_key *key = &wait->key;
	int cmp = memcmp(&key->sip, &key->dip, sizeof(key->sip));

	if (!cmp)
		cmp = memcmp(&key->sport, &key->dport, sizeof(key->sport));
	if (!wait->fabric->net || cmp >= 0)
		return;
	wait->retry.fire = ask_again;
	ask(wait);
}

void pci_net_forget(struct pci_wait *wait)
{
	struct pci_list *pos, *next;

	for (pos = wait->dials.next; pos != &wait->dials; pos = next) {
		next = pos->next;
		dial_end(container_of(pos, struct pci_dial, place), false);
	}
}

/* ------------------------------------------------------------------ answering */

static void caller_end(struct caller *c, bool keep_fd)
{
	struct pci_net *net = c->net;

	pci_list_remove(&c->place);
	net->ncallers--;
	pci_timer_cancel(&c->timer);
	pci_fd_del(net->fabric->loop, &c->pfd);
	if (!keep_fd)
		close(c->pfd.fd);
	free(c);
}

static void caller_timeout(struct pci_timer *timer)
{
	caller_end(container_of(timer, struct caller, timer), false);
}

/* True: the caller is gone, and the wait is over when it was connected. */
static bool answer_caller(struct caller *c, struct pci_wait *wait)
{
	static const struct {
		uint32_t magic, version;
	} numbers = { ANSWER_MAGIC, HELLO_VERSION };
	struct answer answer = { htonl(numbers.magic), htonl(numbers.version) };
	int fd = c->pfd.fd;

	if (!pci_fabric_match(&c->key, &wait->key))
		return false;
	if (send(fd, &answer, sizeof(answer), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(answer)) {
		caller_end(c, false);
		return true;
	}
	caller_end(c, true);
	if (pci_wait_connect(wait, fd))
		close(fd);
	return true;
}

bool pci_net_claim(struct pci_wait *wait)
{
	struct pci_net *net = wait->fabric->net;
	struct pci_fabric_key key = wait->key;
	struct pci_list *pos;
	struct caller *c;

	if (!net)
		return false;
	for (pos = net->callers.next; pos != &net->callers; pos = pos->next) {
		c = container_of(pos, struct caller, place);
		if (c->known && pci_fabric_match(&c->key, &key))
			return answer_caller(c, wait);
	}
	return false;
}

static bool hello_ok(struct caller *c)
{
	const struct hello *h = &c->hello;

	if (h->magic != htonl(HELLO_MAGIC) || h->version != htonl(HELLO_VERSION))
		return false;
	c->key = (struct pci_fabric_key){
		.own_cookie = ntohl(h->own_cookie),
		.peer_cookie = ntohl(h->peer_cookie),
		.sip = h->sip,
		.dip = h->dip,
		.sport = h->sport,
		.dport = h->dport,
		.send_nxt = ntohl(h->send_nxt),
		.recv_nxt = ntohl(h->recv_nxt),
	};
	return pci_fabric_owns(c->net->fabric, c->key.peer_cookie);
}

static void caller_ready(struct pci_fd *pfd, uint32_t events)
{
	struct caller *c = container_of(pfd, struct caller, pfd);
	struct pci_list *waiting = &c->net->fabric->waiting, *pos;
	ssize_t n;

	(void)events;
	/* nothing is to come before our answer, so this is its end */
	if (c->known) {
		caller_end(c, false);
		return;
	}
	n = recv(pfd->fd, (uint8_t *)&c->hello + c->have, sizeof(c->hello) - c->have, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		caller_end(c, false);
		return;
	}
	c->have += (uint32_t)n;
	if (c->have < sizeof(c->hello))
		return;
	if (!hello_ok(c)) {
		caller_end(c, false);
		return;
	}
	c->known = true;
	for (pos = waiting->next; pos != waiting; pos = pos->next)
		if (answer_caller(c, container_of(pos, struct pci_wait, place)))
			return;
}

/* Room for one more: those who have not said what they want stand first, the oldest of them. */
static bool callers_make_room(struct pci_net *net)
{
	struct pci_list *pos;
	struct caller *c;

	if (net->ncallers < MAX_CALLERS)
		return true;
	for (pos = net->callers.prev; pos != &net->callers; pos = pos->prev) {
		c = container_of(pos, struct caller, place);
		if (!c->known) {
			caller_end(c, false);
			return true;
		}
	}
	return false;
}

static void listener_ready(struct pci_fd *pfd, uint32_t events)
{
	struct pci_net *net = container_of(pfd, struct listener, pfd)->net;
	int fd = accept4(pfd->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct caller *c = NULL;

	(void)events;
	if (fd < 0)
		return;
	if (callers_make_room(net) && pci_stream_may_have(fd))
		c = calloc(1, sizeof(*c));
	if (!c) {
		close(fd);
		return;
	}
	c->net = net;
	c->pfd = (struct pci_fd){ .fd = fd, .events = EPOLLIN, .ready = caller_ready };
	if (pci_fd_add(net->fabric->loop, &c->pfd)) {
		close(fd);
		free(c);
		return;
	}
	pci_list_insert(&net->callers, &c->place);
	net->ncallers++;
	c->timer.fire = caller_timeout;
	pci_timer_set(net->fabric->loop, &c->timer, caller_ns);
}

/* ------------------------------------------------------------------ set-up */

static int add_listener(struct pci_net *net, int fd, const char *path)
{
	struct listener *l;
	int err;

	if (net->nlisteners == MAX_LISTENERS)
		return ENOSPC;
	l = &net->listeners[net->nlisteners];
	l->net = net;
	l->path = NULL;
	if (path) {
		l->path = strdup(path);
		if (!l->path)
			return ENOMEM;
	}
	l->pfd = (struct pci_fd){ .fd = fd, .events = EPOLLIN, .ready = listener_ready };
	err = pci_fd_add(net->fabric->loop, &l->pfd);
	if (err) {
		free(l->path);
		return err;
	}
	net->nlisteners++;
	return 0;
}

int pci_fabric_use_dir(struct pci_fabric *fabric, const char *dir)
{
	static unsigned int count;
	struct pci_net *net = net_get(fabric);
	char path[512];
	int err, fd;

	if (!net)
		return ENOMEM;
	if (net->dir)
		return EEXIST;
	if (mkdir(dir, 0700) && errno != EEXIST)
		return errno;
	/* the number is another process's, too, where each has a PID namespace of its own */
	do {
		if (snprintf(path, sizeof(path), "%s/%d-%u.fabric", dir, (int)getpid(), count++) >=
		    (int)sizeof(path))
			return ENAMETOOLONG;
		fd = pci_unix_listen(path);
	} while (fd < 0 && errno == EADDRINUSE && count < MAX_NAMES);
	if (fd < 0)
		return errno;
	net->dir = strdup(dir);
	err = net->dir ? add_listener(net, fd, path) : ENOMEM;
	if (err) {
		close(fd);
		unlink(path);
	}
	return err;
}

/* The last colon parts address and port; [..] around an IPv6 address is taken off. */
static int resolve(const char *where, bool passive, struct addrinfo **list)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
				  .ai_flags = passive ? AI_PASSIVE : 0 };
	const char *colon = strrchr(where, ':');
	char host[256];
	size_t len;

	if (!colon || !colon[1])
		return EINVAL;
	len = (size_t)(colon - where);
	if (len >= 2 && where[0] == '[' && where[len - 1] == ']') {
		where++;
		len -= 2;
	}
	if (len >= sizeof(host))
		return ENAMETOOLONG;
	memcpy(host, where, len);
	host[len] = 0;
	return getaddrinfo(len ? host : NULL, colon + 1, &hints, list) ? EADDRNOTAVAIL : 0;
}

int pci_fabric_listen(struct pci_fabric *fabric, const char *where)
{
	struct pci_net *net = net_get(fabric);
	struct addrinfo *list;
	int err, fd, one = 1;

	if (!net)
		return ENOMEM;
	err = resolve(where, true, &list);
	if (err)
		return err;
	fd = socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		err = errno;
		goto out;
	}
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, list->ai_addr, list->ai_addrlen) || listen(fd, 64))
		err = errno;
	else
		err = add_listener(net, fd, NULL);
	if (err)
		close(fd);
out:
	freeaddrinfo(list);
	return err;
}

int pci_fabric_add_peer(struct pci_fabric *fabric, const char *where)
{
	struct pci_net *net = net_get(fabric);
	struct addrinfo *list;
	int err;

	if (!net)
		return ENOMEM;
	if (net->npeers == MAX_PEERS)
		return ENOSPC;
	err = resolve(where, false, &list);
	if (err)
		return err;
	memcpy(&net->peers[net->npeers], list->ai_addr, list->ai_addrlen);
	net->peer_len[net->npeers++] = list->ai_addrlen;
	freeaddrinfo(list);
	return 0;
}

void pci_net_destroy(struct pci_fabric *fabric)
{
	struct pci_net *net = fabric->net;
	struct pci_list *pos, *next;
	unsigned int i;

	if (!net)
		return;
	for (pos = net->callers.next; pos != &net->callers; pos = next) {
		next = pos->next;
		caller_end(container_of(pos, struct caller, place), false);
	}
	for (i = 0; i < net->nlisteners; i++) {
		pci_fd_del(fabric->loop, &net->listeners[i].pfd);
		close(net->listeners[i].pfd.fd);
		if (net->listeners[i].path)
			unlink(net->listeners[i].path);
		free(net->listeners[i].path);
	}
	free(net->dir);
	free(net);
	fabric->net = NULL;
}
