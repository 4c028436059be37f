// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "mux/server.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#include "mux/log.h"
#include "mux/mux.h"

#define TICK_MS 100
#define EVENTS	256
/* Rounds of events before the loop looks at everything else. */
#define ROUNDS		4
#define EXPIRE_BATCH	4096
#define NODES_PER_CHUNK 64
#define SERIAL_ORPHANS	1
#define SERIAL_MOURNING 2

#define EXIT_DEVICE 3

struct node_chunk {
	struct node_chunk *next;
	struct mux_node nodes[NODES_PER_CHUNK];
};

static struct node_chunk *chunks;

/* Small things ------------------------------------------------------------------------------------- */

uint64_t mux_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

const char *drop_name(enum drop d)
{
	static const char *const names[DROP_COUNT] = {
		[DROP_MALFORMED] = "malformed",
		[DROP_SPOOFED] = "spoofed",
		[DROP_NOT_REGISTERED] = "not_registered",
		[DROP_UNKNOWN_ID] = "unknown_id",
		[DROP_RATE] = "rate",
		[DROP_QUOTA] = "quota",
		[DROP_NO_DESTINATION] = "no_destination",
		[DROP_NO_SOURCE_INDEX] = "gid_not_on_host",
		[DROP_PORT_DOWN] = "port_down",
		[DROP_LANE_FULL] = "send_queue_full",
		[DROP_UNREACHABLE] = "unreachable",
		[DROP_NOT_RECEIVED] = "not_received",
		[DROP_NOT_CM] = "not_cm",
		[DROP_WRONG_SOURCE] = "wrong_source",
		[DROP_NO_OWNER] = "no_owner",
		[DROP_SOURCE_RATE] = "source_rate",
		[DROP_ABSENT] = "client_absent",
		[DROP_QUEUE_FULL] = "client_queue_full",
		[DROP_STALLED] = "client_stalled",
		[DROP_DRAINING] = "draining",
	};

	return names[d];
}

bool bucket_take(struct bucket *b, const struct rate_limit *rate, uint64_t now, unsigned int n)
{
	uint64_t full = (uint64_t)rate->burst * 1000;

	if (!b->at_ms)
		b->tokens = full;
	else
		b->tokens += (now - b->at_ms) * rate->per_second;
	if (b->tokens > full)
		b->tokens = full;
	b->at_ms = now;
	if (b->tokens < (uint64_t)n * 1000)
		return false;
	b->tokens -= (uint64_t)n * 1000;
	return true;
}

struct mux_node *node_get(struct mux *mux)
{
	struct node_chunk *chunk;
	struct mux_node *node;

	if (!mux->free_nodes) {
		chunk = malloc(sizeof(*chunk));
		if (!chunk)
			return NULL;
		chunk->next = chunks;
		chunks = chunk;
		for (unsigned int i = 0; i < NODES_PER_CHUNK; i++)
			node_put(mux, &chunk->nodes[i]);
		mux->nodes += NODES_PER_CHUNK;
	}
	node = mux->free_nodes;
	mux->free_nodes = node->next;
	return node;
}

void node_put(struct mux *mux, struct mux_node *node)
{
	node->next = mux->free_nodes;
	mux->free_nodes = node;
}

void queue_init(struct node_queue *q)
{
	q->head = NULL;
	q->tail = &q->head;
	q->count = 0;
}

void queue_push(struct node_queue *q, struct mux_node *node)
{
	node->next = NULL;
	*q->tail = node;
	q->tail = &node->next;
	q->count++;
}

struct mux_node *queue_pop(struct node_queue *q)
{
	struct mux_node *node = q->head;

	if (!node)
		return NULL;
	q->head = node->next;
	if (!q->head)
		q->tail = &q->head;
	q->count--;
	return node;
}

void queue_clear(struct mux *mux, struct node_queue *q)
{
	struct mux_node *node;

	while ((node = queue_pop(q)))
		node_put(mux, node);
}

void mux_durations(const struct config *cfg, uint32_t durations[T_COUNT])
{
	durations[T_HALF_OPEN] = cfg->half_open_ms;
	durations[T_REJECT] = cfg->reject_ms;
	durations[T_DISCONNECT] = cfg->disconnect_ms;
	durations[T_TIMEWAIT] = cfg->timewait_ms;
	durations[T_SIDR] = cfg->sidr_ms;
	durations[T_SIDR_DONE] = cfg->sidr_done_ms;
	durations[T_MOURN] = cfg->dreq_interval_ms;
}

/* Events ------------------------------------------------------------------------------------------- */

int mux_watch(struct mux *mux, int fd, uint32_t events, enum epoll_tag tag, void *object)
{
	struct epoll_event ev = { .events = events, .data.u64 = (uintptr_t)object | tag };

	return epoll_ctl(mux->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
}

void mux_unwatch(struct mux *mux, int fd)
{
	epoll_ctl(mux->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

static void set_timer(struct mux *mux, bool on)
{
	struct itimerspec its = { 0 };

	if (on)
		its.it_value.tv_nsec = its.it_interval.tv_nsec = TICK_MS * 1000000;
	timerfd_settime(mux->timer_fd, 0, &its, NULL);
	mux->timer_on = on;
}

void mux_need_timer(struct mux *mux)
{
	mux->timer_wanted = true;
	if (!mux->timer_on)
		set_timer(mux, true);
}

/* MADs that were posted in this turn leave together. */
static void flush(struct mux *mux)
{
	for (unsigned int i = 0; i < mux->n_ports; i++)
		if (mux->ports[i]->tx)
			sender_flush(mux->ports[i]->tx);
}

static void *tagged(const struct epoll_event *ev, enum epoll_tag *tag)
{
	*tag = (enum epoll_tag)(ev->data.u64 & EPOLL_TAG_MASK);
	return (void *)(uintptr_t)(ev->data.u64 & ~(uint64_t)EPOLL_TAG_MASK);
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	struct epoll_event events[EVENTS];
	struct mux *mux = arg;
	enum epoll_tag tag;
	void *object;
	int n;

	(void)source;
	(void)revents;
	for (unsigned int round = 0; round < ROUNDS; round++) {
		n = epoll_wait(fd, events, EVENTS, 0);
		if (n <= 0 && !mux->n_ready)
			break;
		mux->now = mux_now_ms();
		/*
		 * Clients first: a request that is there is answered before a MAD is handed over. Their events only
		 * mark them, so that none is freed while the list of events still names it.
		 */
		for (int i = 0; i < n; i++) {
			object = tagged(&events[i], &tag);
			if (tag == TAG_CLIENT)
				client_event(object, events[i].events);
			else if (tag == TAG_PIDFD)
				client_pid_event(object);
		}
		client_run_ready(mux);
		for (int i = 0; i < n; i++) {
			object = tagged(&events[i], &tag);
			if (tag == TAG_PORT)
				port_receive(object);
			else if (tag == TAG_PATHS)
				paths_receive(object);
		}
		client_run_ready(mux);
		flush(mux);
	}
	return 0;
}

static int on_notify(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	struct mux *mux = arg;
	uint64_t count;

	(void)source;
	(void)revents;
	if (read(fd, &count, sizeof(count)) < 0)
		return 0;
	mux->now = mux_now_ms();
	for (unsigned int i = 0; i < mux->n_ports; i++) {
		struct mux_port *p = mux->ports[i];

		peers_notified(p->peers);
		if (gidtable_update(p->gids) && p->up)
			route_unpark(p);
	}
	client_run_ready(mux);
	flush(mux);
	return 0;
}

static void expire(struct mux *mux)
{
	struct session_rec *r;
	struct session_owner *o;
	struct client *c;
	uint32_t s;

	for (unsigned int i = 0; i < EXPIRE_BATCH; i++) {
		s = session_expired(mux->sessions, mux->now);
		if (!session_is(s))
			break;
		r = session_rec(mux->sessions, s);
		o = route_owner(mux, r, &c);
		if (r->state == S_MOURNED)
			obituary_begin(mux, s);
		else
			session_delete(mux->sessions, s, o);
	}
	if (session_timers_pending(mux->sessions))
		mux_need_timer(mux);
}

static int on_tick(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	struct client *c, *next;
	struct mux *mux = arg;
	uint64_t count;

	(void)source;
	(void)revents;
	if (read(fd, &count, sizeof(count)) < 0)
		return 0;
	mux->now = mux_now_ms();
	mux->timer_wanted = false;
	expire(mux);
	obituary_run(mux);
	for (c = mux->clients; c; c = next) {
		next = c->next;
		client_tick(c);
	}
	for (unsigned int i = 0; i < mux->n_ports; i++)
		port_tick(mux->ports[i]);
	if (mux->accept_again_ms && mux->now >= mux->accept_again_ms)
		listeners_enable(mux, true);
	else if (mux->accept_again_ms)
		mux_need_timer(mux);
	client_run_ready(mux);
	flush(mux);
	if (!mux->timer_wanted)
		set_timer(mux, false);
	return 0;
}

static int on_signal(sd_event_source *source, const struct signalfd_siginfo *si, void *arg)
{
	struct mux *mux = arg;

	(void)source;
	if (si->ssi_signo == SIGHUP) {
		mux_reload(mux);
		return 0;
	}
	log_notice("event=stop signal=%s clients=%u sessions=%u", strsignal((int)si->ssi_signo),
		   mux->n_connected, session_count(mux->sessions));
	mux_quit(mux, EXIT_SUCCESS);
	return 0;
}

void mux_quit(struct mux *mux, int status)
{
	mux->quitting = true;
	sd_event_exit(mux->event, status);
}

int mux_reload(struct mux *mux)
{
	struct config *cfg = config_reload(), *old = mux->cfg;
	uint32_t durations[T_COUNT];
	struct client *c, *next;

	if (!cfg) {
		log_err("event=reload_failed reason=\"the configuration is broken, the old one stays\"");
		return EINVAL;
	}
	sd_notify(0, "RELOADING=1");
	/* What was allotted at start stays. */
	cfg->max_clients = old->max_clients < cfg->max_clients ? old->max_clients :
								 cfg->max_clients;
	cfg->max_sessions = old->max_sessions;
	cfg->lanes = old->lanes;
	cfg->probes = old->probes;
	mux->cfg = cfg;
	log_set_level(cfg->log_level);
	mux_durations(cfg, durations);
	session_table_durations(mux->sessions, durations);
	for (c = mux->clients; c; c = next) {
		next = c->next;
		if (!client_match(c) && c->fd >= 0)
			client_disconnect(c, "no rule allows it any more");
	}
	config_free(old);
	mux_need_timer(mux);
	log_notice("event=reloaded");
	sd_notify(0, "READY=1");
	return 0;
}

/* Start and end ------------------------------------------------------------------------------------ */

/* Descriptors: two for each client, and some. The daemon's own come first, or no operator could ask it any more. */
static void raise_files(struct config *cfg)
{
	const rlim_t own = 256;
	rlim_t want = (rlim_t)cfg->max_clients * 2 + own;
	struct rlimit lim, more = { want, want };

	if (getrlimit(RLIMIT_NOFILE, &lim) || lim.rlim_cur >= want)
		return;
	if (lim.rlim_max < want && setrlimit(RLIMIT_NOFILE, &more) == 0)
		return;
	lim.rlim_cur = lim.rlim_max < want ? lim.rlim_max : want;
	setrlimit(RLIMIT_NOFILE, &lim);
	if (getrlimit(RLIMIT_NOFILE, &lim) || lim.rlim_cur >= want)
		return;
	cfg->max_clients =
		(uint32_t)(lim.rlim_cur > 2 * own ? (lim.rlim_cur - own) / 2 : lim.rlim_cur / 4);
	log_notice("event=few_files limit=%llu wanted=%llu max_clients=%u "
		   "hint=\"raise LimitNOFILE\"",
		   (unsigned long long)lim.rlim_cur, (unsigned long long)want, cfg->max_clients);
}

static int drop_privileges(const struct config *cfg)
{
	struct passwd *pw = NULL;
	struct group *gr = NULL;
	gid_t gid = getgid();

	if (!cfg->user && !cfg->group)
		return 0;
	if (cfg->user) {
		pw = getpwnam(cfg->user);
		if (!pw) {
			fprintf(stderr, "rdmacm-mux: there is no user %s\n", cfg->user);
			return EINVAL;
		}
		gid = pw->pw_gid;
	}
	if (cfg->group) {
		gr = getgrnam(cfg->group);
		if (!gr) {
			fprintf(stderr, "rdmacm-mux: there is no group %s\n", cfg->group);
			return EINVAL;
		}
		gid = gr->gr_gid;
	}
	if (setgroups(1, &gid) || setresgid(gid, gid, gid) ||
	    (pw && setresuid(pw->pw_uid, pw->pw_uid, pw->pw_uid)) ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) {
		fprintf(stderr, "rdmacm-mux: cannot become user %s group %s: %s\n",
			cfg->user ? cfg->user : "(same)", cfg->group ? cfg->group : "(its own)",
			strerror(errno));
		return EPERM;
	}
	return 0;
}

/* A daemon started without standard descriptors must not give their numbers to clients. */
static void keep_standard_fds(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

static int add_signals(struct mux *mux)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP };
	sigset_t set;
	int err;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	for (unsigned int i = 0; i < 3; i++)
		sigaddset(&set, signals[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (unsigned int i = 0; i < 3; i++) {
		err = sd_event_add_signal(mux->event, NULL, signals[i], on_signal, mux);
		if (err < 0)
			return -err;
	}
	return 0;
}

static int make_loop(struct mux *mux)
{
	int err;

	err = sd_event_default(&mux->event);
	if (err < 0)
		return -err;
	mux->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	mux->notify_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	mux->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (mux->epoll_fd < 0 || mux->notify_fd < 0 || mux->timer_fd < 0)
		return errno;
	err = sd_event_add_io(mux->event, NULL, mux->epoll_fd, EPOLLIN, on_io, mux);
	if (err >= 0)
		err = sd_event_add_io(mux->event, NULL, mux->notify_fd, EPOLLIN, on_notify, mux);
	if (err >= 0)
		err = sd_event_add_io(mux->event, NULL, mux->timer_fd, EPOLLIN, on_tick, mux);
	if (err < 0)
		return -err;
	return add_signals(mux);
}

static int make_tables(struct mux *mux)
{
	uint32_t durations[T_COUNT];

	mux->ready_tail = &mux->ready;
	session_owner_init(&mux->orphans, SERIAL_ORPHANS);
	session_owner_init(&mux->mourning, SERIAL_MOURNING);
	if (getrandom(&mux->hash_key, sizeof(mux->hash_key), 0) < 0)
		return errno;
	mux->state = state_open(mux, mux->cfg->state_file);
	if (!mux->state)
		return errno;
	mux_durations(mux->cfg, durations);
	mux->sessions = session_table_new(state_session_head(mux->state),
					  state_session_recs(mux->state), mux->cfg->max_sessions,
					  state_checked(mux->state), durations);
	if (!mux->sessions)
		return errno;
	state_back_sessions(mux->state, mux->sessions);
	return 0;
}

static int make_ports(struct mux *mux)
{
	char why[UMAD_WHY_MAX];
	struct mux_port *p;
	int err;

	for (unsigned int i = 0; i < mux->cfg->n_ports; i++) {
		p = port_new(mux, &mux->cfg->ports[i]);
		if (!p)
			return errno;
		mux->ports[mux->n_ports++] = p;
	}
	/* The paths first: a second mux then says that, and not that the device is busy. */
	for (unsigned int i = 0; i < mux->n_ports; i++) {
		err = listeners_open(mux->ports[i], &mux->cfg->ports[i]);
		if (err)
			return err;
	}
	for (unsigned int i = 0; i < mux->n_ports; i++) {
		err = port_up(mux->ports[i], why);
		if (err) {
			fprintf(stderr, "rdmacm-mux: %s\n", why);
			return err;
		}
	}
	return 0;
}

static int make_control(struct mux *mux)
{
	char path[CONFIG_PATH_MAX + 8];

	snprintf(path, sizeof(path), "%s.ctl", mux->cfg->ports[0].listens->path);
	mux->control = control_new(mux, mux->cfg->control_path ? mux->cfg->control_path : path);
	if (!mux->control)
		return errno;
	if (mux->cfg->metrics_listen) {
		mux->metrics = metrics_new(mux, mux->cfg->metrics_listen);
		if (!mux->metrics)
			return errno;
	}
	return 0;
}

static void cleanup(struct mux *mux)
{
	struct node_chunk *chunk;
	bool keep_paths = mux->fd_store && mux->quitting;

	mux->quitting = true;
	if (mux->state)
		state_freeze(mux->state);
	control_free(mux->control, true);
	metrics_free(mux->metrics);
	while (mux->clients)
		client_free(mux->clients);
	for (unsigned int i = 0; i < mux->n_ports; i++) {
		listeners_close(mux->ports[i], !keep_paths);
		port_free(mux->ports[i]);
	}
	session_table_free(mux->sessions);
	state_close(mux->state);
	if (mux->epoll_fd >= 0)
		close(mux->epoll_fd);
	if (mux->notify_fd >= 0)
		close(mux->notify_fd);
	if (mux->timer_fd >= 0)
		close(mux->timer_fd);
	sd_event_unref(mux->event);
	config_free(mux->cfg);
	while ((chunk = chunks)) {
		chunks = chunk->next;
		free(chunk);
	}
	free(mux);
}

int server_run(struct config *cfg)
{
	struct mux *mux;
	int err, status = EXIT_DEVICE;

	keep_standard_fds();
	log_set_level(cfg->log_level);
	mux = calloc(1, sizeof(*mux));
	if (!mux) {
		config_free(cfg);
		return EXIT_FAILURE;
	}
	mux->cfg = cfg;
	mux->epoll_fd = mux->notify_fd = mux->timer_fd = -1;
	mux->now = mux->started_ms = mux_now_ms();
	raise_files(cfg);
	state_fds_init(mux);
	err = make_loop(mux);
	if (!err)
		err = make_tables(mux);
	if (!err)
		err = make_ports(mux);
	if (!err)
		err = make_control(mux);
	if (!err)
		err = drop_privileges(cfg);
	if (err) {
		fprintf(stderr, "rdmacm-mux: not started: %s\n", strerror(err));
		cleanup(mux);
		return status;
	}
	state_restore(mux);
	client_run_ready(mux);
	sd_event_set_watchdog(mux->event, true);
	sd_notifyf(0, "READY=1\nSTATUS=Serving %u port%s", mux->n_ports,
		   mux->n_ports == 1 ? "" : "s");
	log_notice("event=started ports=%u", mux->n_ports);
	mux_need_timer(mux);
	status = sd_event_loop(mux->event);
	sd_notify(0, "STOPPING=1");
	cleanup(mux);
	return status < 0 ? EXIT_FAILURE : status;
}
