// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What survives a restart.
 *
 * The records of clients, GIDs and sessions are one file, mapped and changed in place, best under /run: it outlives the process even
 * if that is killed, and is void after a reboot (its times are those of the monotonic clock). Each record has a check sum, so
 * that one that was being written is noticed and dropped. The file descriptors of clients and of the umad file are kept by the
 * service manager (sd_notify's FDSTORE), each under a name that says what it is:
 *   client/SERIAL            umad/DEVICE/PORT/AGENT
 *
 * The file is sparse, and takes room only for records that have been in use: each kind of record has a mark beyond which none
 * ever was, which a restart does not look behind. Room is reserved before it is touched, so that a full file system
 * makes a table full rather than killing the process.
 *
 * Without a file the records are ordinary memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "mux/hash.h"
#include "mux/log.h"
#include "mux/mux.h"

#define STATE_MAGIC	    0x3178756d6d637264ULL
#define STATE_VERSION	    2
#define MAX_GID_RECS	    65536
#define HEADER_SIZE	    4096
#define BOOT_ID_SIZE	    36
#define FIRST_CLIENT_SERIAL 16
/* The file grows in such steps. */
#define GROW_SIZE 16384

struct state_header {
	uint64_t magic;
	uint32_t version;
	uint32_t header_size, client_size, gid_size, session_size;
	uint32_t clients, gids, sessions;
	char boot_id[BOOT_ID_SIZE + 4];
	uint64_t next_serial;
	uint32_t used_clients, used_gids; /* records from these on were never used */
	struct session_head sessions_head;
};

/* The records of one kind. */
struct area {
	char *recs;
	size_t size;	    /* of one */
	size_t backed, end; /* offsets in the file */
};

struct kept_fd {
	int fd; /* -1: taken */
	char *name;
};

struct state {
	struct mux *mux;
	int fd; /* -1: no file */
	void *map;
	size_t size;
	bool frozen;
	struct state_header *header;
	struct client_rec *clients;
	struct gid_rec *gids;
	struct session_rec *sessions;
	struct area client_area, gid_area, session_area;
	uint32_t *free_clients, *free_gids;
	uint32_t n_free_clients, n_free_gids;
};

static struct kept_fd *kept;
static int n_kept;

/* Records ------------------------------------------------------------------------------------------ */

static uint64_t sum_bytes(const void *p, size_t len)
{
	const char *bytes = p;
	uint64_t sum = 0x452821e638d01377ULL, word;

	for (size_t i = 0; i < len; i += sizeof(word)) {
		word = 0;
		memcpy(&word, bytes + i, len - i < sizeof(word) ? len - i : sizeof(word));
		sum = mux_mix64(sum ^ word, 0x9e3779b97f4a7c15ULL + 2 * i);
	}
	return sum;
}

static uint64_t client_sum(const struct client_rec *rec)
{
	return sum_bytes((const char *)rec + sizeof(rec->check),
			 offsetof(struct client_rec, in_request) - sizeof(rec->check));
}

static uint64_t gid_sum(const struct gid_rec *rec)
{
	return sum_bytes((const char *)rec + sizeof(rec->check), sizeof(*rec) - sizeof(rec->check));
}

static size_t round_page(size_t n)
{
	return (n + HEADER_SIZE - 1) & ~(size_t)(HEADER_SIZE - 1);
}

static void read_boot_id(char *id)
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	memset(id, 0, BOOT_ID_SIZE);
	if (fd < 0)
		return;
	if (read(fd, id, BOOT_ID_SIZE) < 0)
		memset(id, 0, BOOT_ID_SIZE);
	close(fd);
}

static void fill_header(struct state_header *h, const struct config *cfg)
{
	memset(h, 0, sizeof(*h));
	h->magic = STATE_MAGIC;
	h->version = STATE_VERSION;
	h->header_size = sizeof(*h);
	h->client_size = sizeof(struct client_rec);
	h->gid_size = sizeof(struct gid_rec);
	h->session_size = sizeof(struct session_rec);
	h->clients = cfg->max_clients;
	h->gids = MAX_GID_RECS;
	h->sessions = cfg->max_sessions;
	read_boot_id(h->boot_id);
	h->next_serial = FIRST_CLIENT_SERIAL;
}

/* Everything up to the serial number says whether the records can be understood. */
static bool same_layout(const struct state_header *a, const struct state_header *b)
{
	return memcmp(a, b, offsetof(struct state_header, next_serial)) == 0;
}

/* The file's room up to offset end. */
static int back(struct state *st, struct area *a, size_t end)
{
	size_t size;
	int err = 0;

	while (!err && a->backed < end) {
		size = a->end - a->backed < GROW_SIZE ? a->end - a->backed : GROW_SIZE;
		err = posix_fallocate(st->fd, (off_t)a->backed, (off_t)size);
		if (!err)
			a->backed += size;
	}
	return err;
}

/* Makes record i usable. */
static bool reserve(struct state *st, struct area *a, uint32_t i)
{
	size_t end = (size_t)(a->recs - (char *)st->map) + ((size_t)i + 1) * a->size;
	int err;

	if (st->fd < 0 || end <= a->backed)
		return true;
	err = back(st, a, end);
	if (err)
		log_err("event=state_full size=%zu reason=\"%s\" "
			"hint=\"the file system of the state file has no room\"",
			end, strerror(err));
	return !err;
}

static bool reserve_session(void *ctx, uint32_t i)
{
	struct state *st = ctx;

	return reserve(st, &st->session_area, i);
}

static int open_file(struct state *st, const char *path, const struct state_header *want)
{
	struct state_header have;
	ssize_t len;
	int err;

	st->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (st->fd < 0) {
		err = errno;
		fprintf(stderr, "rdmacm-mux: cannot open state file %s: %s\n", path, strerror(err));
		return err;
	}
	if (flock(st->fd, LOCK_EX | LOCK_NB)) {
		err = errno;
		fprintf(stderr, "rdmacm-mux: state file %s is in use by another mux\n", path);
		return err;
	}
	len = pread(st->fd, &have, sizeof(have), 0);
	/* One that a killed mux has just made has no number yet. */
	if (len && (len != sizeof(have) || (have.magic && have.magic != STATE_MAGIC))) {
		fprintf(stderr, "rdmacm-mux: %s is no state file: it stays as it is\n", path);
		return EINVAL;
	}
	if (!len || !same_layout(&have, want)) {
		if (lseek(st->fd, 0, SEEK_END) > 0)
			log_notice("event=state_discarded file=%s "
				   "reason=\"of an earlier boot, another version or other limits\"",
				   path);
		if (ftruncate(st->fd, 0) || ftruncate(st->fd, (off_t)st->size)) {
			err = errno;
			fprintf(stderr, "rdmacm-mux: cannot size state file %s to %zu bytes: %s\n",
				path, st->size, strerror(err));
			return err;
		}
	}
	err = posix_fallocate(st->fd, 0, HEADER_SIZE);
	if (err) {
		fprintf(stderr, "rdmacm-mux: no room for state file %s: %s\n", path, strerror(err));
		return err;
	}
	st->map = mmap(NULL, st->size, PROT_READ | PROT_WRITE, MAP_SHARED, st->fd, 0);
	return st->map == MAP_FAILED ? errno : 0;
}

/* Lays out an area of count records behind what is at *offset; the first used ones have their room. */
static int make_area(struct state *st, struct area *a, size_t *offset, size_t size, uint32_t count,
		     uint32_t used)
{
	*a = (struct area){
		.recs = (char *)st->map + *offset,
		.size = size,
		.backed = *offset,
		.end = *offset + round_page(size * count),
	};
	*offset = a->end;
	/* A file that somebody copied may have lost it. */
	return st->fd >= 0 && used ? back(st, a, a->backed + size * used) : 0;
}

/* Lists the records of one kind that are free, the first ones last. */
static uint32_t *list_free(const struct area *a, uint32_t count, uint32_t used, size_t serial_off,
			   uint32_t *n)
{
	uint32_t *list = calloc(count, sizeof(*list));

	*n = 0;
	for (uint32_t i = count; list && i--;)
		if (i >= used || !*(const uint64_t *)(a->recs + i * a->size + serial_off))
			list[(*n)++] = i;
	return list;
}

static int make_areas(struct state *st)
{
	struct state_header *h = st->header;
	size_t offset = HEADER_SIZE;
	int err;

	if (h->used_clients > h->clients)
		h->used_clients = h->clients;
	if (h->used_gids > h->gids)
		h->used_gids = h->gids;
	if (h->sessions_head.used > h->sessions)
		h->sessions_head.used = h->sessions;
	err = make_area(st, &st->client_area, &offset, sizeof(*st->clients), h->clients,
			h->used_clients);
	if (!err)
		err = make_area(st, &st->gid_area, &offset, sizeof(*st->gids), h->gids,
				h->used_gids);
	if (!err)
		err = make_area(st, &st->session_area, &offset, sizeof(*st->sessions), h->sessions,
				h->sessions_head.used);
	if (err) {
		fprintf(stderr, "rdmacm-mux: no room for the state file: %s\n", strerror(err));
		return err;
	}
	st->clients = (struct client_rec *)st->client_area.recs;
	st->gids = (struct gid_rec *)st->gid_area.recs;
	st->sessions = (struct session_rec *)st->session_area.recs;
	st->free_clients = list_free(&st->client_area, h->clients, h->used_clients,
				     offsetof(struct client_rec, serial), &st->n_free_clients);
	st->free_gids = list_free(&st->gid_area, h->gids, h->used_gids,
				  offsetof(struct gid_rec, serial), &st->n_free_gids);
	return st->free_clients && st->free_gids ? 0 : ENOMEM;
}

struct state *state_open(struct mux *mux, const char *path)
{
	struct state *st = calloc(1, sizeof(*st));
	struct state_header want;
	int err = ENOMEM;

	if (!st)
		return NULL;
	fill_header(&want, mux->cfg);
	st->mux = mux;
	st->fd = -1;
	st->size = HEADER_SIZE + round_page((size_t)want.clients * sizeof(struct client_rec)) +
		   round_page((size_t)want.gids * sizeof(struct gid_rec)) +
		   round_page((size_t)want.sessions * sizeof(struct session_rec));
	st->map = MAP_FAILED;
	if (path) {
		err = open_file(st, path, &want);
		if (err)
			goto err;
	} else {
		st->map = mmap(NULL, st->size, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (st->map == MAP_FAILED)
			goto err;
	}
	st->header = st->map;
	if (st->header->magic != STATE_MAGIC)
		*st->header = want;
	err = make_areas(st);
	if (err)
		goto err;
	return st;

err:
	state_close(st);
	errno = err;
	return NULL;
}

void state_close(struct state *st)
{
	if (!st)
		return;
	if (st->map != MAP_FAILED)
		munmap(st->map, st->size);
	if (st->fd >= 0)
		close(st->fd);
	free(st->free_clients);
	free(st->free_gids);
	free(st);
}

void state_freeze(struct state *st)
{
	st->frozen = st->fd >= 0;
}

struct session_head *state_session_head(struct state *st)
{
	return &st->header->sessions_head;
}

struct session_rec *state_session_recs(struct state *st)
{
	return st->sessions;
}

void state_back_sessions(struct state *st, struct session_table *t)
{
	session_table_backing(t, reserve_session, st);
}

bool state_checked(const struct state *st)
{
	return st->fd >= 0;
}

uint64_t state_next_serial(struct state *st)
{
	return st->header->next_serial++;
}

/* The record that is the last of the free ones, with its room; UINT32_MAX if there is none. */
static uint32_t take_free(struct state *st, struct area *a, const uint32_t *list, uint32_t *n,
			  uint32_t *used)
{
	uint32_t i;

	if (!*n)
		return UINT32_MAX;
	i = list[*n - 1];
	if (!reserve(st, a, i))
		return UINT32_MAX;
	--*n;
	if (*used <= i)
		*used = i + 1;
	return i;
}

struct client_rec *state_client_get(struct state *st)
{
	uint32_t i = take_free(st, &st->client_area, st->free_clients, &st->n_free_clients,
			       &st->header->used_clients);
	struct client_rec *rec;

	if (i == UINT32_MAX)
		return NULL;
	rec = &st->clients[i];
	memset(rec, 0, sizeof(*rec));
	return rec;
}

void state_client_put(struct state *st, struct client_rec *rec)
{
	if (st->frozen)
		return;
	rec->serial = 0;
	st->free_clients[st->n_free_clients++] = (uint32_t)(rec - st->clients);
}

void state_client_changed(struct state *st, struct client_rec *rec)
{
	if (st->fd >= 0)
		rec->check = client_sum(rec);
}

uint32_t state_gid_get(struct state *st, uint64_t serial, const uint8_t *gid)
{
	uint32_t i = take_free(st, &st->gid_area, st->free_gids, &st->n_free_gids,
			       &st->header->used_gids);
	struct gid_rec *rec;

	if (i == UINT32_MAX)
		return UINT32_MAX;
	rec = &st->gids[i];
	rec->serial = serial;
	memcpy(rec->gid, gid, MUX_GID_SIZE);
	rec->check = gid_sum(rec);
	return i;
}

void state_gid_put(struct state *st, uint32_t i)
{
	if (st->frozen)
		return;
	st->gids[i].serial = 0;
	st->free_gids[st->n_free_gids++] = i;
}

void state_gid_owner(struct state *st, uint32_t i, uint64_t serial)
{
	st->gids[i].serial = serial;
	st->gids[i].check = gid_sum(&st->gids[i]);
}

/* Kept descriptors --------------------------------------------------------------------------------- */

void state_fds_init(struct mux *mux)
{
	char **names = NULL;
	int n = sd_listen_fds_with_names(1, &names);

	mux->fd_store = getenv("NOTIFY_SOCKET") && mux->cfg->state_file;
	if (n <= 0)
		return;
	kept = calloc((size_t)n, sizeof(*kept));
	if (!kept)
		n = 0;
	for (int i = 0; i < n; i++) {
		kept[i].fd = SD_LISTEN_FDS_START + i;
		kept[i].name = names ? names[i] : NULL;
	}
	n_kept = n;
	free(names);
}

static int take(const char *name)
{
	for (int i = 0; i < n_kept; i++) {
		if (kept[i].fd >= 0 && kept[i].name && strcmp(kept[i].name, name) == 0) {
			int fd = kept[i].fd;

			kept[i].fd = -1;
			return fd;
		}
	}
	return -1;
}

int state_take_umad(struct mux *mux, const char *device, unsigned int port, int *agent)
{
	char prefix[CONFIG_MAX_NAME + 32];
	int fd = -1;

	(void)mux;
	snprintf(prefix, sizeof(prefix), "umad/%s/%u/", device, port);
	for (int i = 0; i < n_kept && fd < 0; i++) {
		if (kept[i].fd < 0 || !kept[i].name ||
		    strncmp(kept[i].name, prefix, strlen(prefix)) != 0)
			continue;
		*agent = atoi(kept[i].name + strlen(prefix));
		fd = kept[i].fd;
		kept[i].fd = -1;
	}
	return fd;
}

static bool listens_on(int fd, const char *path)
{
	/* The historic name of /run, which the default path has and units do not. */
	static const char old[] = "/var/run/";

	if (sd_is_socket_unix(fd, SOCK_STREAM, 1, path, 0) > 0)
		return true;
	return strncmp(path, old, sizeof(old) - 1) == 0 &&
	       sd_is_socket_unix(fd, SOCK_STREAM, 1, path + strlen("/var"), 0) > 0;
}

int state_take_listen(const char *path)
{
	for (int i = 0; i < n_kept; i++) {
		if (kept[i].fd >= 0 && listens_on(kept[i].fd, path)) {
			int fd = kept[i].fd;

			kept[i].fd = -1;
			return fd;
		}
	}
	return -1;
}

static void store(struct mux *mux, int fd, const char *name)
{
	char text[512];

	if (!mux->fd_store)
		return;
	snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s", name);
	sd_pid_notify_with_fds(0, 0, text, &fd, 1);
}

static void forget(struct mux *mux, const char *name)
{
	char text[512];

	if (!mux->fd_store)
		return;
	snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", name);
	sd_notify(0, text);
}

static void client_name(const struct client_rec *rec, char name[64])
{
	snprintf(name, 64, "client/%llu", (unsigned long long)rec->serial);
}

static void umad_name(const struct mux_port *p, char *name, size_t size)
{
	snprintf(name, size, "umad/%s/%u/%d", p->device, p->number, p->rx.agent);
}

void state_store_client(struct client *c)
{
	char name[64];

	client_name(c->rec, name);
	store(c->port->mux, c->fd, name);
}

void state_forget_client(struct client *c)
{
	char name[64];

	client_name(c->rec, name);
	forget(c->port->mux, name);
}

void state_store_umad(struct mux_port *p)
{
	char name[CONFIG_MAX_NAME + 64];

	umad_name(p, name, sizeof(name));
	store(p->mux, p->rx.fd, name);
}

void state_forget_umad(struct mux_port *p)
{
	char name[CONFIG_MAX_NAME + 64];

	umad_name(p, name, sizeof(name));
	forget(p->mux, name);
}

/* Restart ------------------------------------------------------------------------------------------ */

static struct mux_port *find_port(struct mux *mux, const char *device, unsigned int number)
{
	for (unsigned int i = 0; i < mux->n_ports; i++)
		if (strcmp(mux->ports[i]->device, device) == 0 && mux->ports[i]->number == number)
			return mux->ports[i];
	return NULL;
}

static struct session_owner *owner_of(void *ctx, struct session_rec *rec)
{
	struct mux *mux = ctx;
	struct client *c;

	if (rec->owner == mux->orphans.serial || rec->owner == mux->mourning.serial) {
		if (rec->port >= mux->n_ports)
			return NULL;
		return rec->owner == mux->orphans.serial ? &mux->orphans : &mux->mourning;
	}
	c = client_by_serial(mux, rec->owner);
	if (!c)
		return NULL;
	rec->port = (uint16_t)c->port->index;
	return &c->owner;
}

static unsigned int restore_clients(struct state *st)
{
	unsigned int n = 0;
	char name[64];

	for (uint32_t i = 0; i < st->header->used_clients; i++) {
		struct client_rec *rec = &st->clients[i];
		struct mux_port *p;
		struct client *c;
		int fd;

		if (!rec->serial)
			continue;
		client_name(rec, name);
		fd = take(name);
		p = rec->check == client_sum(rec) ? find_port(st->mux, rec->device, rec->port) :
						    NULL;
		if (!p || rec->in_len >= MUX_FRAME_SIZE) {
			if (fd >= 0)
				close(fd);
			state_client_put(st, rec);
			continue;
		}
		c = client_new(p, fd, rec->listen, rec);
		if (!c)
			continue;
		if (fd >= 0)
			client_finish_request(c);
		n++;
	}
	return n;
}

void state_restore(struct mux *mux)
{
	struct state *st = mux->state;
	unsigned int clients = 0, gids = 0;
	uint32_t sessions = 0, broken = 0;

	if (st->fd >= 0) {
		clients = restore_clients(st);
		for (uint32_t i = 0; i < st->header->used_gids; i++) {
			struct gid_rec *rec = &st->gids[i];
			struct client *c;

			if (!rec->serial)
				continue;
			c = rec->check == gid_sum(rec) ? client_by_serial(mux, rec->serial) : NULL;
			if (!c || owner_restore_gid(c, rec->gid, i))
				state_gid_put(st, i);
			else
				gids++;
		}
		sessions = session_restore(mux->sessions, mux->now, owner_of, mux, &broken);
		if (clients || sessions || broken)
			log_notice("event=restored clients=%u gids=%u sessions=%u broken=%u",
				   clients, gids, sessions, broken);
	}
	/* What nobody claimed. */
	for (int i = 0; i < n_kept; i++) {
		if (kept[i].fd >= 0) {
			if (kept[i].name)
				forget(mux, kept[i].name);
			close(kept[i].fd);
		}
		free(kept[i].name);
	}
	free(kept);
	kept = NULL;
	n_kept = 0;
}
