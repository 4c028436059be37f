// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Listening sockets. A path is locked through "<path>.lock" while a mux serves it, so that a second one neither
 * steals nor removes it, and a socket that a killed mux left behind can be told from a live one.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "mux/log.h"
#include "mux/mux.h"

#define BACKLOG		512
#define ACCEPT_BATCH	64
#define ACCEPT_PAUSE_MS 1000

struct listener {
	struct listener *next;
	struct mux_port *port;
	sd_event_source *source;
	char path[CONFIG_PATH_MAX];
	int fd;
	int lock_fd;
	bool activated; /* the service manager's socket */
};

static int on_connect(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	struct listener *l = arg;
	struct mux *mux = l->port->mux;

	(void)source;
	(void)events;
	mux->now = mux_now_ms();
	for (unsigned int i = 0;; i++) {
		int client;

		if (i == ACCEPT_BATCH)
			return 0;
		client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (client < 0) {
			if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
				return 0;
			log_err("event=accept_failed socket=%s error=\"%s\"", l->path,
				strerror(errno));
			break;
		}
		if (mux->n_clients >= mux->cfg->max_clients) {
			log_warn("event=client_refused socket=%s reason=\"max_clients is %u\"",
				 l->path, mux->cfg->max_clients);
			mux->refused++;
			close(client);
			break;
		}
		if (client_new(l->port, client, l->path, NULL))
			mux->accepted++;
	}
	/* Others may go meanwhile; a listener that stays readable would keep us spinning. */
	mux->accept_again_ms = mux->now + ACCEPT_PAUSE_MS;
	listeners_enable(mux, false);
	mux_need_timer(mux);
	return 0;
}

void listeners_enable(struct mux *mux, bool on)
{
	for (unsigned int i = 0; i < mux->n_ports; i++)
		for (struct listener *l = mux->ports[i]->listeners; l; l = l->next)
			if (l->source)
				sd_event_source_set_enabled(l->source,
							    on ? SD_EVENT_ON : SD_EVENT_OFF);
	if (on)
		mux->accept_again_ms = 0;
}

static int set_owner(const struct listen_config *cfg)
{
	struct group *gr;
	int err;

	if (chmod(cfg->path, cfg->mode)) {
		err = errno;
		fprintf(stderr, "rdmacm-mux: cannot set the mode of %s: %s\n", cfg->path,
			strerror(err));
		return err;
	}
	if (!cfg->group)
		return 0;
	gr = getgrnam(cfg->group);
	if (!gr) {
		fprintf(stderr, "rdmacm-mux: there is no group %s for socket %s\n", cfg->group,
			cfg->path);
		return EINVAL;
	}
	if (chown(cfg->path, (uid_t)-1, gr->gr_gid)) {
		err = errno;
		fprintf(stderr, "rdmacm-mux: cannot give %s to group %s: %s\n", cfg->path,
			cfg->group, strerror(err));
		return err;
	}
	return 0;
}

/* A mux of another make holds no lock, but answers. */
static bool somebody_answers(const struct sockaddr_un *addr)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool yes;

	if (fd < 0)
		return false;
	yes = connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0 || errno == EAGAIN;
	close(fd);
	return yes;
}

int listen_clear(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct stat st;

	if (lstat(path, &st))
		return errno == ENOENT ? 0 : errno;
	if (!S_ISSOCK(st.st_mode)) {
		fprintf(stderr, "rdmacm-mux: %s is in the way of a socket: it is none\n", path);
		return ENOTSOCK;
	}
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	if (somebody_answers(&addr)) {
		fprintf(stderr,
			"rdmacm-mux: %s is served by another mux: stop that first, or use another "
			"path\n",
			path);
		return EADDRINUSE;
	}
	if (unlink(path)) {
		fprintf(stderr, "rdmacm-mux: cannot remove the old socket %s: %s\n", path,
			strerror(errno));
		return errno;
	}
	return 0;
}

/* Opens and locks the lock file. Whoever held it before may have removed it meanwhile: then once more. */
static int lock_path(struct listener *l, const char *path)
{
	struct stat open_st, path_st;
	int err;

	for (;;) {
		l->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (l->lock_fd < 0)
			return errno;
		if (flock(l->lock_fd, LOCK_EX | LOCK_NB)) {
			err = errno;
			break;
		}
		if (fstat(l->lock_fd, &open_st) == 0 && stat(path, &path_st) == 0 &&
		    open_st.st_ino == path_st.st_ino && open_st.st_dev == path_st.st_dev)
			return 0;
		close(l->lock_fd);
	}
	close(l->lock_fd);
	l->lock_fd = -1;
	return err;
}

static int bind_path(struct listener *l, const struct listen_config *cfg)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	char lock[CONFIG_PATH_MAX + 8];
	int err;

	memcpy(addr.sun_path, cfg->path, sizeof(addr.sun_path));
	snprintf(lock, sizeof(lock), "%s.lock", cfg->path);
	err = lock_path(l, lock);
	if (err && err != EWOULDBLOCK) {
		fprintf(stderr, "rdmacm-mux: cannot lock %s: %s%s\n", lock, strerror(err),
			err == EACCES ? " (-s PREFIX puts the socket elsewhere)" : "");
		return err;
	}
	if (err) {
		fprintf(stderr,
			"rdmacm-mux: %s is served by another mux: stop that first, or use another "
			"prefix (-s)\n",
			cfg->path);
		return EADDRINUSE;
	}
	err = listen_clear(cfg->path);
	if (err) {
		close(l->lock_fd);
		l->lock_fd = -1;
		return err;
	}
	l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0)
		return errno;
	if (bind(l->fd, (struct sockaddr *)&addr, sizeof(addr)) || listen(l->fd, BACKLOG)) {
		err = errno;
		fprintf(stderr, "rdmacm-mux: cannot listen on %s: %s\n", cfg->path, strerror(err));
		return err;
	}
	return set_owner(cfg);
}

int listeners_open(struct mux_port *p, const struct port_config *cfg)
{
	struct listener **link = &p->listeners, *l;
	int err;

	for (struct listen_config *lc = cfg->listens; lc; lc = lc->next) {
		l = calloc(1, sizeof(*l));
		if (!l)
			return ENOMEM;
		l->port = p;
		l->lock_fd = -1;
		memcpy(l->path, lc->path, sizeof(l->path));
		l->fd = state_take_listen(lc->path);
		l->activated = l->fd >= 0;
		*link = l;
		link = &l->next;
		if (!l->activated) {
			err = bind_path(l, lc);
			if (err) {
				/* What is there now is not ours to remove. */
				if (l->lock_fd < 0)
					l->path[0] = '\0';
				return err;
			}
		}
		fcntl(l->fd, F_SETFL, fcntl(l->fd, F_GETFL) | O_NONBLOCK);
		err = sd_event_add_io(p->mux->event, &l->source, l->fd, EPOLLIN, on_connect, l);
		if (err < 0)
			return -err;
	}
	return 0;
}

void listeners_close(struct mux_port *p, bool unlink_paths)
{
	struct listener *l;
	char lock[CONFIG_PATH_MAX + 8];

	while ((l = p->listeners)) {
		p->listeners = l->next;
		sd_event_source_disable_unref(l->source);
		if (l->path[0] && !l->activated && unlink_paths) {
			unlink(l->path);
			snprintf(lock, sizeof(lock), "%s.lock", l->path);
			unlink(lock);
		}
		if (l->fd >= 0)
			close(l->fd);
		if (l->lock_fd >= 0)
			close(l->lock_fd);
		free(l);
	}
}
