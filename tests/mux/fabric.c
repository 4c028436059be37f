// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tests/mux/fabric.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MAX_PORTS	8
#define MAX_FILES	256
#define MAX_GIDS	256
#define FIRST_GIDS	16 /* entries a new port's table has */
#define GID_SLOTS	8192
#define MAX_AGENTS	32
#define BUFFER		(8 * 1024 * 1024)
#define CM_CLASS_WANTED 7
#define SEND_METHOD_BIT (1u << 3)

struct pkt {
	struct pkt *next;
	size_t len;
	uint8_t data[64 + 2048];
};

struct queue {
	struct pkt *head, **tail;
	unsigned int count;
};

struct agent {
	bool used;
	uint32_t class, version, mask;
};

struct file {
	bool used;
	unsigned int port;
	int ctl, data; /* data -1 once unplugged */
	struct agent agents[MAX_AGENTS];
	struct queue backlog; /* the agent's receive queue, beyond the socket */
};

struct port {
	char device[32];
	bool present, ib_cm;
	uint8_t gids[MAX_GIDS][16];
	bool has_gid[MAX_GIDS];
	unsigned int n_gids;
	struct queue written;
};

/* Where a GID is: a hash table with open addressing, made anew when a GID changes. */
struct place {
	uint16_t port, index;
	bool used;
};

struct fabric {
	char dir[128];
	struct double_shm *shm;
	int listen_fd, epoll_fd, stop_fd;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct port ports[MAX_PORTS];
	unsigned int n_ports;
	struct place places[GID_SLOTS];
	struct file files[MAX_FILES];
	bool ib_cm_loaded, carry;
	unsigned int loss;
	uint32_t random;
	uint32_t next_tid;
	fabric_responder responder;
	void *responder_ctx;
};

#define DIE(...)                                         \
	do {                                             \
		fprintf(stderr, "fabric: " __VA_ARGS__); \
		fprintf(stderr, "\n");                   \
		abort();                                 \
	} while (0)

/* Queues ------------------------------------------------------------------------------------------- */

static void queue_init(struct queue *q)
{
	q->head = NULL;
	q->tail = &q->head;
	q->count = 0;
}

static void queue_push(struct queue *q, const void *data, size_t len)
{
	struct pkt *p = malloc(sizeof(*p));

	if (!p || len > sizeof(p->data))
		DIE("no room for %zu bytes", len);
	p->next = NULL;
	p->len = len;
	memcpy(p->data, data, len);
	*q->tail = p;
	q->tail = &p->next;
	q->count++;
}

static void queue_drop(struct queue *q)
{
	struct pkt *p = q->head;

	q->head = p->next;
	if (!q->head)
		q->tail = &q->head;
	q->count--;
	free(p);
}

static void queue_clear(struct queue *q)
{
	while (q->head)
		queue_drop(q);
}

/* sysfs -------------------------------------------------------------------------------------------- */

static void put(struct fabric *f, const char *text, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void put(struct fabric *f, const char *text, const char *fmt, ...)
{
	char rel[256], path[512];
	va_list ap;
	FILE *out;

	va_start(ap, fmt);
	vsnprintf(rel, sizeof(rel), fmt, ap);
	va_end(ap);
	snprintf(path, sizeof(path), "%s%s", f->dir, rel);
	for (char *p = path + strlen(f->dir) + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		if (mkdir(path, 0755) && errno != EEXIST)
			DIE("mkdir %s: %s", path, strerror(errno));
		*p = '/';
	}
	/* Readers see the old or the new text, never half of it. */
	strcat(path, ".new");
	out = fopen(path, "w");
	if (!out)
		DIE("%s: %s", path, strerror(errno));
	fprintf(out, "%s\n", text);
	fclose(out);
	snprintf(rel, sizeof(rel), "%s", path);
	path[strlen(path) - 4] = '\0';
	rename(rel, path);
}

static void gid_text(const uint8_t *g, char *text)
{
	for (unsigned int i = 0; i < 8; i++)
		text += sprintf(text, "%s%02x%02x", i ? ":" : "", g[2 * i], g[2 * i + 1]);
}

static void put_gid(struct fabric *f, unsigned int port, unsigned int index)
{
	struct port *p = &f->ports[port];
	char text[64];

	gid_text(p->gids[index], text);
	put(f, text, "/sys/class/infiniband/%s/ports/1/gids/%u", p->device, index);
	put(f, "RoCE v2", "/sys/class/infiniband/%s/ports/1/gid_attrs/types/%u", p->device, index);
}

static void put_port(struct fabric *f, unsigned int port)
{
	const char *d = f->ports[port].device;
	char text[32];

	put(f, "5", "/sys/class/infiniband_mad/abi_version");
	put(f, d, "/sys/class/infiniband_mad/umad%u/ibdev", port);
	put(f, "1", "/sys/class/infiniband_mad/umad%u/port", port);
	put(f, "1: CA", "/sys/class/infiniband/%s/node_type", d);
	put(f, "1.0.0", "/sys/class/infiniband/%s/fw_ver", d);
	put(f, "1", "/sys/class/infiniband/%s/hw_rev", d);
	put(f, "fabric", "/sys/class/infiniband/%s/hca_type", d);
	snprintf(text, sizeof(text), "0200:0000:0000:%04x", port + 1);
	put(f, text, "/sys/class/infiniband/%s/node_guid", d);
	put(f, text, "/sys/class/infiniband/%s/sys_image_guid", d);
	put(f, "0x0", "/sys/class/infiniband/%s/ports/1/lid", d);
	put(f, "0", "/sys/class/infiniband/%s/ports/1/lid_mask_count", d);
	put(f, "0x0", "/sys/class/infiniband/%s/ports/1/sm_lid", d);
	put(f, "0", "/sys/class/infiniband/%s/ports/1/sm_sl", d);
	put(f, "4: ACTIVE", "/sys/class/infiniband/%s/ports/1/state", d);
	put(f, "5: LinkUp", "/sys/class/infiniband/%s/ports/1/phys_state", d);
	put(f, "100 Gb/sec (4X EDR)", "/sys/class/infiniband/%s/ports/1/rate", d);
	put(f, "0x00010000", "/sys/class/infiniband/%s/ports/1/cap_mask", d);
	put(f, "Ethernet", "/sys/class/infiniband/%s/ports/1/link_layer", d);
	put(f, "0xffff", "/sys/class/infiniband/%s/ports/1/pkeys/0", d);
	put(f, "", "/dev/infiniband/umad%u", port);
	for (unsigned int i = 0; i < f->ports[port].n_gids; i++)
		put_gid(f, port, i);
}

static unsigned int gid_slot(const uint8_t *gid)
{
	uint64_t a, b;

	memcpy(&a, gid, 8);
	memcpy(&b, gid + 8, 8);
	return (unsigned int)(((a ^ b * 0x9e3779b97f4a7c15ULL) * 0xd6e8feb86659fd93ULL) >> 40) %
	       GID_SLOTS;
}

static void rehash(struct fabric *f)
{
	memset(f->places, 0, sizeof(f->places));
	for (unsigned int p = 0; p < f->n_ports; p++) {
		for (unsigned int i = 0; i < f->ports[p].n_gids; i++) {
			unsigned int s = gid_slot(f->ports[p].gids[i]);

			if (!f->ports[p].has_gid[i])
				continue;
			while (f->places[s].used)
				s = (s + 1) % GID_SLOTS;
			f->places[s] = (struct place){ (uint16_t)p, (uint16_t)i, true };
		}
	}
}

static const struct place *find_gid(const struct fabric *f, const uint8_t *gid)
{
	unsigned int s = gid_slot(gid);

	for (; f->places[s].used; s = (s + 1) % GID_SLOTS) {
		const struct place *p = &f->places[s];

		if (memcmp(f->ports[p->port].gids[p->index], gid, 16) == 0)
			return p;
	}
	return NULL;
}

/* Delivery (under the lock) ------------------------------------------------------------------------ */

static struct file *class_file(struct fabric *f, unsigned int port, unsigned int class,
			       uint32_t *slot)
{
	for (unsigned int i = 0; i < MAX_FILES; i++) {
		struct file *fl = &f->files[i];

		if (!fl->used || fl->port != port || fl->data < 0)
			continue;
		for (uint32_t a = 0; a < MAX_AGENTS; a++) {
			if (!fl->agents[a].used || fl->agents[a].class != class)
				continue;
			*slot = a;
			return fl;
		}
	}
	return NULL;
}

static struct file *cm_file(struct fabric *f, unsigned int port, uint32_t *slot)
{
	return class_file(f, port, CM_CLASS_WANTED, slot);
}

static void want_write(struct fabric *f, struct file *fl)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT,
				  .data.u64 = (uint64_t)(fl - f->files) << 1 };

	epoll_ctl(f->epoll_fd, EPOLL_CTL_MOD, fl->data, &ev);
}

static void give(struct fabric *f, struct file *fl, const void *data, size_t len)
{
	if (!fl->backlog.count &&
	    send(fl->data, data, len, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)len)
		return;
	queue_push(&fl->backlog, data, len);
	want_write(f, fl);
}

static void flush_backlog(struct fabric *f, struct file *fl)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = (uint64_t)(fl - f->files) << 1 };

	while (fl->backlog.count) {
		struct pkt *p = fl->backlog.head;

		if (send(fl->data, p->data, p->len, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)p->len)
			return;
		queue_drop(&fl->backlog);
	}
	epoll_ctl(f->epoll_fd, EPOLL_CTL_MOD, fl->data, &ev);
}

void fabric_reply(struct fabric *f, unsigned int port, const uint8_t *src, unsigned int index,
		  const uint8_t *mad)
{
	uint8_t pkt[PKT_SIZE] = { 0 };
	uint32_t slot = 0, len = PKT_SIZE;
	struct file *fl = cm_file(f, port, &slot);

	if (!fl)
		return;
	memcpy(pkt, &slot, 4);
	memcpy(pkt + 16, &len, 4);
	pkt[23] = 1; /* source QPN 1 */
	pkt[32] = 1;
	pkt[33] = (uint8_t)index;
	pkt[34] = 64;
	memcpy(pkt + 36, src, 16);
	memcpy(pkt + PKT_MAD, mad, 256);
	give(f, fl, pkt, sizeof(pkt));
}

static bool lost(struct fabric *f)
{
	f->random = f->random * 1664525 + 1013904223;
	return f->loss && (f->random >> 8) % 100 < f->loss;
}

static void route(struct fabric *f, unsigned int from, uint8_t *pkt)
{
	const uint8_t *dst = pkt + 36, *src = f->ports[from].gids[pkt[33] % MAX_GIDS];

	const struct place *to = f->carry ? find_gid(f, dst) : NULL;

	if (to) {
		if (!lost(f))
			fabric_reply(f, to->port, src, to->index, pkt + PKT_MAD);
		return;
	}
	if (f->responder) {
		f->responder(f->responder_ctx, f, from, pkt);
		return;
	}
	queue_push(&f->ports[from].written, pkt, PKT_SIZE);
	pthread_cond_broadcast(&f->more);
}

/* Requests ----------------------------------------------------------------------------------------- */

static void end_file(struct fabric *f, struct file *fl)
{
	if (fl->data >= 0)
		close(fl->data);
	close(fl->ctl);
	queue_clear(&fl->backlog);
	fl->used = false;
	(void)f;
}

static void reply_fd(int ctl, const struct double_reply *rep, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { (void *)(uintptr_t)rep, sizeof(*rep) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *cmsg;

	if (fd >= 0) {
		msg.msg_control = control;
		msg.msg_controllen = sizeof(control);
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	}
	sendmsg(ctl, &msg, MSG_NOSIGNAL);
}

static void do_open(struct fabric *f, struct file *fl, const struct double_request *req)
{
	struct double_reply rep = { 0 };
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = (uint64_t)(fl - f->files) << 1 };
	int sv[2], size = BUFFER;

	if (req->node >= f->n_ports || !f->ports[req->node].present) {
		rep.error = ENXIO;
		reply_fd(fl->ctl, &rep, -1);
		return;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv))
		DIE("socketpair: %s", strerror(errno));
	for (unsigned int i = 0; i < 2; i++)
		if (setsockopt(sv[i], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)))
			setsockopt(sv[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	fl->port = req->node;
	fl->data = sv[0];
	epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, fl->data, &ev);
	reply_fd(fl->ctl, &rep, sv[1]);
	close(sv[1]);
}

static void do_register(struct fabric *f, struct file *fl, const struct double_request *req)
{
	struct double_reply rep = { .hi_tid = ++f->next_tid };
	uint32_t slot;

	if (req->class == CM_CLASS_WANTED && (req->mask & SEND_METHOD_BIT) &&
	    (f->ports[fl->port].ib_cm || cm_file(f, fl->port, &slot)))
		rep.error = EINVAL;
	if (!f->ports[fl->port].present)
		rep.error = EPIPE;
	if (!rep.error)
		fl->agents[req->slot] = (struct agent){ true, req->class, req->version, req->mask };
	reply_fd(fl->ctl, &rep, -1);
}

static void on_ctl(struct fabric *f, struct file *fl)
{
	struct double_request req;
	struct double_reply rep = { 0 };
	ssize_t n = recv(fl->ctl, &req, sizeof(req), MSG_DONTWAIT);

	/* An event of the file that had the place before. */
	if (n < 0 && errno == EAGAIN)
		return;
	if (n != sizeof(req)) {
		/* A file that a service manager keeps lives on: its data socket tells. */
		epoll_ctl(f->epoll_fd, EPOLL_CTL_DEL, fl->ctl, NULL);
		if (fl->data < 0)
			end_file(f, fl);
		return;
	}
	if (req.op == DOUBLE_OPEN) {
		do_open(f, fl, &req);
	} else if (req.op == DOUBLE_REGISTER) {
		do_register(f, fl, &req);
	} else {
		fl->agents[req.slot].used = false;
		reply_fd(fl->ctl, &rep, -1);
	}
}

static void on_data(struct fabric *f, struct file *fl, uint32_t events)
{
	uint8_t pkt[PKT_SIZE];
	ssize_t n;

	if (events & EPOLLOUT)
		flush_backlog(f, fl);
	for (unsigned int i = 0; i < 64; i++) {
		n = recv(fl->data, pkt, sizeof(pkt), MSG_DONTWAIT);
		if (n < 0)
			return;
		if (n == 0) {
			end_file(f, fl);
			return;
		}
		route(f, fl->port, pkt);
	}
}

static void on_listen(struct fabric *f)
{
	int fd = accept4(f->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	struct epoll_event ev = { .events = EPOLLIN };

	for (unsigned int i = 0; fd >= 0 && i < MAX_FILES; i++) {
		struct file *fl = &f->files[i];

		if (fl->used)
			continue;
		memset(fl, 0, sizeof(*fl));
		fl->used = true;
		fl->ctl = fd;
		fl->data = -1;
		queue_init(&fl->backlog);
		ev.data.u64 = (uint64_t)i << 1 | 1;
		epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
		return;
	}
	if (fd >= 0)
		close(fd);
}

#define EV_LISTEN (UINT64_MAX - 1)
#define EV_STOP	  UINT64_MAX

static void *run(void *arg)
{
	struct epoll_event evs[64];
	struct fabric *f = arg;
	int n;

	for (;;) {
		n = epoll_wait(f->epoll_fd, evs, 64, -1);
		pthread_mutex_lock(&f->lock);
		for (int i = 0; i < n; i++) {
			uint64_t d = evs[i].data.u64;
			struct file *fl = &f->files[(d >> 1) % MAX_FILES];

			if (d == EV_STOP) {
				pthread_mutex_unlock(&f->lock);
				return NULL;
			}
			if (d == EV_LISTEN)
				on_listen(f);
			else if ((d & 1) && fl->used)
				on_ctl(f, fl);
			else if (fl->used && fl->data >= 0)
				on_data(f, fl, evs[i].events);
		}
		pthread_mutex_unlock(&f->lock);
	}
}

/* For tests ---------------------------------------------------------------------------------------- */

struct fabric *fabric_new(const char *dir)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct fabric *f = calloc(1, sizeof(*f));
	struct epoll_event ev = { .events = EPOLLIN };
	pthread_condattr_t attr;
	char path[256];
	int fd;

	if (!f)
		DIE("out of memory");
	snprintf(f->dir, sizeof(f->dir), "%s", dir);
	snprintf(path, sizeof(path), "%s/shm", dir);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(*f->shm)))
		DIE("%s: %s", path, strerror(errno));
	f->shm = mmap(NULL, sizeof(*f->shm), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (f->shm == MAP_FAILED)
		DIE("mmap: %s", strerror(errno));
	f->shm->resolve_ms = 1000;
	f->carry = true;
	f->random = 1;
	f->next_tid = 0x100;
	pthread_mutex_init(&f->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&f->more, &attr);
	pthread_condattr_destroy(&attr);
	f->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	f->stop_fd = eventfd(0, EFD_CLOEXEC);
	f->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%.90s/fabric", dir);
	if (bind(f->listen_fd, (struct sockaddr *)&addr, sizeof(addr)) || listen(f->listen_fd, 64))
		DIE("%s: %s", addr.sun_path, strerror(errno));
	ev.data.u64 = EV_LISTEN;
	epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, f->listen_fd, &ev);
	ev.data.u64 = EV_STOP;
	epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, f->stop_fd, &ev);
	if (pthread_create(&f->thread, NULL, run, f))
		DIE("no thread");
	return f;
}

void fabric_free(struct fabric *f)
{
	uint64_t one = 1;

	if (write(f->stop_fd, &one, sizeof(one)) < 0)
		DIE("eventfd: %s", strerror(errno));
	pthread_join(f->thread, NULL);
	for (unsigned int i = 0; i < MAX_FILES; i++)
		if (f->files[i].used)
			end_file(f, &f->files[i]);
	for (unsigned int i = 0; i < f->n_ports; i++)
		queue_clear(&f->ports[i].written);
	close(f->listen_fd);
	close(f->epoll_fd);
	close(f->stop_fd);
	munmap(f->shm, sizeof(*f->shm));
	pthread_mutex_destroy(&f->lock);
	pthread_cond_destroy(&f->more);
	free(f);
}

struct double_shm *fabric_shm(struct fabric *f)
{
	return f->shm;
}

unsigned int fabric_add(struct fabric *f, const char *device)
{
	unsigned int n;

	pthread_mutex_lock(&f->lock);
	n = f->n_ports++;
	snprintf(f->ports[n].device, sizeof(f->ports[n].device), "%s", device);
	f->ports[n].present = true;
	f->ports[n].n_gids = FIRST_GIDS;
	queue_init(&f->ports[n].written);
	put_port(f, n);
	pthread_mutex_unlock(&f->lock);
	return n;
}

void fabric_set_gid(struct fabric *f, unsigned int port, unsigned int index, const uint8_t *gid)
{
	struct port *p = &f->ports[port];

	pthread_mutex_lock(&f->lock);
	p->has_gid[index] = gid != NULL;
	memset(p->gids[index], 0, 16);
	if (gid)
		memcpy(p->gids[index], gid, 16);
	for (; p->n_gids <= index; p->n_gids++)
		put_gid(f, port, p->n_gids);
	put_gid(f, port, index);
	rehash(f);
	pthread_mutex_unlock(&f->lock);
}

void fabric_infiniband(struct fabric *f, unsigned int port, unsigned int sm_lid)
{
	const char *d = f->ports[port].device;
	char text[32];

	pthread_mutex_lock(&f->lock);
	f->shm->infiniband = 1;
	snprintf(text, sizeof(text), "0x%x", sm_lid);
	put(f, "InfiniBand", "/sys/class/infiniband/%s/ports/1/link_layer", d);
	put(f, text, "/sys/class/infiniband/%s/ports/1/sm_lid", d);
	put(f, sm_lid ? "2" : "0", "/sys/class/infiniband/%s/ports/1/sm_sl", d);
	pthread_mutex_unlock(&f->lock);
}

void fabric_ib_cm(struct fabric *f, bool loaded, unsigned int port, bool serves)
{
	char path[256];

	pthread_mutex_lock(&f->lock);
	f->ib_cm_loaded = loaded;
	f->ports[port].ib_cm = serves;
	if (loaded) {
		put(f, "live", "/sys/module/ib_cm/initstate");
	} else {
		snprintf(path, sizeof(path), "%s/sys/module/ib_cm/initstate", f->dir);
		unlink(path);
		snprintf(path, sizeof(path), "%s/sys/module/ib_cm", f->dir);
		rmdir(path);
	}
	pthread_mutex_unlock(&f->lock);
}

void fabric_unplug(struct fabric *f, unsigned int port)
{
	char path[512];

	pthread_mutex_lock(&f->lock);
	f->ports[port].present = false;
	snprintf(path, sizeof(path),
		 "rm -rf %s/sys/class/infiniband/%s %s/sys/class/infiniband_mad/umad%u "
		 "%s/dev/infiniband/umad%u",
		 f->dir, f->ports[port].device, f->dir, port, f->dir, port);
	if (system(path))
		DIE("%s", path);
	for (unsigned int i = 0; i < MAX_FILES; i++) {
		struct file *fl = &f->files[i];

		if (!fl->used || fl->port != port || fl->data < 0)
			continue;
		close(fl->data);
		fl->data = -1;
		queue_clear(&fl->backlog);
		memset(fl->agents, 0, sizeof(fl->agents));
	}
	pthread_mutex_unlock(&f->lock);
}

void fabric_replug(struct fabric *f, unsigned int port)
{
	pthread_mutex_lock(&f->lock);
	f->ports[port].present = true;
	put_port(f, port);
	pthread_mutex_unlock(&f->lock);
}

void fabric_loss(struct fabric *f, unsigned int percent)
{
	pthread_mutex_lock(&f->lock);
	f->loss = percent;
	pthread_mutex_unlock(&f->lock);
}

void fabric_carry(struct fabric *f, bool on)
{
	pthread_mutex_lock(&f->lock);
	f->carry = on;
	pthread_mutex_unlock(&f->lock);
}

void fabric_inject(struct fabric *f, unsigned int port, const uint8_t *src, unsigned int index,
		   const uint8_t *mad)
{
	pthread_mutex_lock(&f->lock);
	fabric_reply(f, port, src, index, mad);
	pthread_mutex_unlock(&f->lock);
}

void fabric_answer(struct fabric *f, unsigned int port, unsigned int class, uint8_t *pkt,
		   size_t len)
{
	struct file *fl;
	uint32_t slot;

	pthread_mutex_lock(&f->lock);
	fl = class_file(f, port, class, &slot);
	if (fl) {
		memcpy(pkt, &slot, sizeof(slot));
		give(f, fl, pkt, len);
	}
	pthread_mutex_unlock(&f->lock);
}

void fabric_inject_raw(struct fabric *f, unsigned int port, const void *data, size_t len)
{
	struct file *fl;
	uint32_t slot;

	pthread_mutex_lock(&f->lock);
	fl = cm_file(f, port, &slot);
	if (fl)
		give(f, fl, data, len);
	pthread_mutex_unlock(&f->lock);
}

bool fabric_written(struct fabric *f, unsigned int port, uint8_t *pkt, unsigned int timeout_ms)
{
	struct queue *q = &f->ports[port].written;
	struct timespec until;
	bool found;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += timeout_ms / 1000;
	until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&f->lock);
	while (!q->count && pthread_cond_timedwait(&f->more, &f->lock, &until) == 0)
		;
	found = q->count > 0;
	if (found) {
		memcpy(pkt, q->head->data, PKT_SIZE);
		queue_drop(q);
	}
	pthread_mutex_unlock(&f->lock);
	return found;
}

unsigned int fabric_count(struct fabric *f, unsigned int port)
{
	unsigned int n;

	pthread_mutex_lock(&f->lock);
	n = f->ports[port].written.count;
	pthread_mutex_unlock(&f->lock);
	return n;
}

bool fabric_has_agent(struct fabric *f, unsigned int port)
{
	uint32_t slot;
	bool found;

	pthread_mutex_lock(&f->lock);
	found = cm_file(f, port, &slot) != NULL;
	pthread_mutex_unlock(&f->lock);
	return found;
}

void fabric_respond(struct fabric *f, fabric_responder fn, void *ctx)
{
	pthread_mutex_lock(&f->lock);
	f->responder = fn;
	f->responder_ctx = ctx;
	pthread_mutex_unlock(&f->lock);
}
