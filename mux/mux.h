/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The daemon's objects, and which file does what with them.
 *
 *   server.c    the process: event loop, timer, signals, start and end
 *   port.c      one port of a device: umad files, GID table, coming and going of the device
 *   peers.c     the way out: destinations that answer, and those that have to be tried
 *   listen.c    listening sockets
 *   client.c    a client's connection: frames in, answers and MADs out
 *   owner.c     a client beyond its connection: its GIDs, take-over, its end
 *   route.c     where a MAD goes: client to fabric
 *   route_rx.c  where a MAD goes: fabric to client
 *   obituary.c  speaking for clients that are gone
 *   state.c     what survives a restart
 *   control.c   the control socket; metrics.c: Prometheus
 *
 * One thread, that of the event loop, owns all of it. What other threads need they get by copy (sender.h, gidtable.h).
 */
#ifndef MUX_MUX_H
#define MUX_MUX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "mux/cm_msg.h"
#include "mux/config.h"
#include "mux/gid.h"
#include "mux/gidtable.h"
#include "mux/protocol.h"
#include "mux/sender.h"
#include "mux/session.h"
#include "mux/umad.h"

struct mux;
struct mux_port;
struct client;

/* Why a message was not passed on. drop_name() gives their names in metrics. */
enum drop {
	DROP_MALFORMED,	      /* client: no CM MAD, or impossible lengths */
	DROP_SPOOFED,	      /* client: a GID, CA GUID or peer id that is not its own */
	DROP_NOT_REGISTERED,  /* client: source GID of nobody or of another */
	DROP_UNKNOWN_ID,      /* no session for the id */
	DROP_RATE,	      /* client over its rate */
	DROP_QUOTA,	      /* client or daemon over its number of sessions */
	DROP_NO_DESTINATION,  /* no destination known, or one that can't be */
	DROP_NO_SOURCE_INDEX, /* the client's GID is not in the port's table */
	DROP_PORT_DOWN,
	DROP_LANE_FULL,
	DROP_UNREACHABLE,  /* the destination timed out a moment ago */
	DROP_NOT_RECEIVED, /* umad: a status, a bare header or a MAD of another size */
	DROP_NOT_CM,	   /* umad: not a message that a mux relays */
	DROP_WRONG_SOURCE, /* umad: the session's peer is another */
	DROP_NO_OWNER,	   /* umad: destination GID of nobody */
	DROP_SOURCE_RATE,  /* umad: too many requests from one GID */
	DROP_ABSENT,	   /* the client is gone or not connected now */
	DROP_QUEUE_FULL,   /* the client does not keep up */
	DROP_STALLED,	   /* the client does not read */
	DROP_DRAINING,
	DROP_COUNT,
};

struct bucket {
	uint64_t tokens; /* thousandths */
	uint64_t at_ms;
};

/* A MAD or frame that waits. From a free list; never freed while the daemon runs. */
struct mux_node {
	struct mux_node *next;
	union {
		struct mux_frame frame;
		struct umad_pkt pkt;
	};
};

struct node_queue {
	struct mux_node *head, **tail;
	unsigned int count;
};

/* How far the last request is. A client whose request is read and never answered would wait for ever. */
enum request_state {
	REQUEST_NONE,
	REQUEST_READ,
	REQUEST_ANSWERED, /* or just about to be */
};

/* A client's persistent part; see state.c. */
struct client_rec {
	uint64_t check;	     /* over the fields up to frames */
	uint64_t serial;     /* 0: unused */
	uint64_t started;    /* start time of the peer's process, clock ticks */
	uint64_t ca_guid;    /* first one used */
	uint64_t alias_guid; /* in its place on the wire */
	int32_t pid;
	uint32_t uid, gid;
	uint32_t hello; /* flags; HELLO_SAID if any */
	char device[CONFIG_MAX_NAME];
	uint32_t port;
	char listen[CONFIG_PATH_MAX];
	/* From here on without check sum: changed with every frame. */
	uint32_t in_request; /* enum request_state */
	uint32_t async_out;  /* last_async is in the socket and maybe not read yet */
	uint32_t in_len;
	uint32_t reserved;
	uint8_t in_buf[MUX_FRAME_SIZE];
	struct mux_frame last_async;
};
#define HELLO_SAID (1u << 31)

struct gid_rec {
	uint64_t check;
	uint64_t serial;
	uint8_t gid[MUX_GID_SIZE];
};

/* A registered GID. */
struct gid_reg {
	struct gid_reg *hash_next;
	struct gid_reg *next; /* of the client's */
	struct client *client;
	uint32_t rec; /* index */
	uint64_t since_ms;
	bool warned;  /* that the host does not have it */
	bool adopted; /* the client has it from its earlier connection, and has not said so itself */
	uint8_t gid[MUX_GID_SIZE];
};

struct former_gid {
	uint8_t gid[MUX_GID_SIZE];
	uint64_t at_ms; /* 0: none */
};
#define FORMER_GIDS 8

struct client_stats {
	uint64_t frames_in, answers, tx_mads, rx_mads, tx_refused, rx_dropped, ambiguous;
};

struct client {
	struct client *prev, *next; /* of all */
	struct client *serial_next;
	struct client *ready_next;
	bool ready;
	struct mux_port *port;
	struct client_rec *rec;
	const struct rule *rule;
	const struct client_limits *limits;
	int fd;	      /* -1: not connected, within its grace time */
	int pidfd;    /* -1: unknown or exited */
	bool closing; /* to be closed at the end of the turn */
	bool hangup;  /* the peer has closed its side */
	bool exited;  /* the process is gone, and the connection was before it */
	bool stalled;
	uint64_t async_at_ms; /* since when the client has not read */
	uint64_t since_ms;    /* connected; 0: what silence means has been looked at */
	bool adopts;	      /* silent for a while: to look for its earlier connection */
	uint64_t gone_at_ms;
	unsigned int unanswered; /* MADs handed over since the client's last frame */
	uint64_t unanswered_at_ms;
	struct bucket mads, requests, registrations;
	struct node_queue answers; /* only clients that do not read have some */
	struct node_queue queue;   /* MADs */
	struct gid_reg *gids;
	unsigned int n_gids;
	struct guid_reg *guids;
	unsigned int n_guids;
	struct former_gid former[FORMER_GIDS];
	struct session_owner owner;
	struct client_stats stats;
};

struct port_stats {
	uint64_t tx[CM_ATTR_COUNT]; /* accepted from clients */
	uint64_t rx[CM_ATTR_COUNT]; /* received for clients, hairpins included */
	uint64_t hairpin;
	uint64_t built;	  /* made by the mux */
	uint64_t crossed; /* answers that carried a MAD again */
	uint64_t umad_in;
	uint64_t drop[DROP_COUNT];
};

struct peer_table;
struct path_table;
struct listener;

struct mux_port {
	struct mux *mux;
	unsigned int index;
	char device[CONFIG_MAX_NAME];
	unsigned int number; /* as configured */
	unsigned int real;   /* as the kernel counts */
	bool up;
	bool infiniband;
	bool said_down;
	uint64_t retry_at_ms;
	struct umad_file rx;
	struct sender *tx;
	struct gidtable *gids;
	struct peer_table *peers;
	struct path_table *paths; /* NULL but on InfiniBand */
	struct node_queue parked; /* sources not yet in the GID table; frame: sgid and packet */
	uint64_t parked_at_ms;
	unsigned int parked_request; /* of the snapshot that the last of them waits for */
	struct listener *listeners;
	struct port_stats stats;
};

/* What a received MAD's routing needs beside the MAD. */
struct rx_info {
	const uint8_t *dgid; /* destination GID, or NULL if unknown */
	bool hairpin;
};

/* A CA GUID that a client uses, so that no other may. */
struct guid_reg {
	struct guid_reg *hash_next;
	struct guid_reg *next; /* of the client's */
	struct client *client;
	uint64_t guid;
};
#define CLIENT_GUIDS 8

#define CLIENT_BUCKETS 4096
#define SOURCE_BUCKETS 4096
#define GID_BUCKETS    8192

struct mux {
	struct config *cfg;
	sd_event *event;
	uint64_t now; /* milliseconds, monotonic; set at the start of each turn */
	uint64_t started_ms;
	int epoll_fd;  /* clients and umad files, inside sd-event's */
	int notify_fd; /* eventfd of senders and GID tables */
	int timer_fd;
	bool timer_on, timer_wanted;
	bool draining;
	bool quitting;
	int exit_status;
	bool fd_store; /* a service manager keeps our descriptors */
	uint64_t hash_key;

	struct mux_port *ports[CONFIG_MAX_PORTS];
	unsigned int n_ports;

	struct session_table *sessions;
	struct session_owner orphans;  /* sessions whose client is gone for good */
	struct session_owner mourning; /* those of them that still have something to say */
	struct gid_reg *gids[GID_BUCKETS];
	struct guid_reg *guids[GID_BUCKETS];
	struct client *by_serial[CLIENT_BUCKETS];
	uint32_t n_gids;
	struct client *clients; /* connected or in grace */
	unsigned int n_clients, n_connected;
	struct client *ready, **ready_tail;
	unsigned int n_ready;
	struct mux_node *free_nodes;
	size_t nodes;		/* ever made */
	struct bucket built;	/* answers to what has no client */
	struct bucket obituary; /* words for clients that are gone, which nobody else can use up */
	struct bucket source[SOURCE_BUCKETS];
	struct bucket no_resources[256];
	uint64_t accept_again_ms;
	uint64_t accepted, refused;

	struct state *state;
	struct control *control;
	struct metrics *metrics;
};

/* server.c */
uint64_t mux_now_ms(void);
const char *drop_name(enum drop d);
/* Takes n tokens; false if there are not enough. */
bool bucket_take(struct bucket *b, const struct rate_limit *rate, uint64_t now, unsigned int n);
struct mux_node *node_get(struct mux *mux);
void node_put(struct mux *mux, struct mux_node *node);
void queue_init(struct node_queue *q);
void queue_push(struct node_queue *q, struct mux_node *node);
struct mux_node *queue_pop(struct node_queue *q);
void queue_clear(struct mux *mux, struct node_queue *q);
/* Lets the timer run, because something now waits for it. */
void mux_need_timer(struct mux *mux);
void mux_durations(const struct config *cfg, uint32_t durations[T_COUNT]);
int mux_reload(struct mux *mux);
void mux_quit(struct mux *mux, int status);
/* Events of the inner epoll set carry one of these, tagged in the low bits of the pointer. */
enum epoll_tag {
	TAG_CLIENT,
	TAG_PORT,
	TAG_PIDFD,
	TAG_PATHS
};
#define EPOLL_TAG_MASK 3ul
int mux_watch(struct mux *mux, int fd, uint32_t events, enum epoll_tag tag, void *object);
void mux_unwatch(struct mux *mux, int fd);

/* port.c */
struct mux_port *port_new(struct mux *mux, const struct port_config *cfg);
void port_free(struct mux_port *p);
/* Opens the device. Returns 0, or a positive errno with why. */
int port_up(struct mux_port *p, char why[UMAD_WHY_MAX]);
void port_down(struct mux_port *p, const char *why);
void port_receive(struct mux_port *p);
void port_tick(struct mux_port *p);
/* Any port of the same device can receive for an alternate path. */
bool port_same_device(const struct mux_port *a, const struct mux_port *b);

/* peers.c */
struct peer_table *peers_new(struct mux_port *p);
void peers_free(struct peer_table *t);
/* Sends; hdr must be complete. client may be NULL. Returns 0 or the reason why not. */
int peers_send(struct peer_table *t, const struct umad_pkt *pkt, uint64_t client_serial);
/* News of the sender threads. */
void peers_notified(struct peer_table *t);
/* The device is gone: what waits is lost. */
void peers_reset(struct peer_table *t);
bool peers_busy(const struct peer_table *t);
void peers_counts(const struct peer_table *t, unsigned int *known, unsigned int *waiting);

/* path.c */
struct path_table *paths_new(struct mux_port *p);
void paths_free(struct path_table *t);
/* Opens its file. Returns 0, or a positive errno with why. */
int paths_up(struct path_table *t, char why[UMAD_WHY_MAX]);
/* The device is gone: what waits is lost, and all is asked anew. */
void paths_down(struct path_table *t);
/* Sends like peers_send(), once it is known where to; sgid is the client's. Returns 0 or the reason why not. */
int paths_send(struct path_table *t, const uint8_t *sgid, const struct umad_pkt *pkt,
	       uint64_t client_serial);
/* Answers have come. */
void paths_receive(struct path_table *t);
/* Whether a MAD can be sent there: not 0, which guests without one write, nor the permissive LID, nor a group's. */
bool path_is_lid(__be16 lid);

/* listen.c */
int listeners_open(struct mux_port *p, const struct port_config *cfg);
void listeners_close(struct mux_port *p, bool unlink_paths);
void listeners_enable(struct mux *mux, bool on);
/*
 * Makes room for a socket at path: removes one that a killed process left behind. Returns 0, or a positive errno when what is
 * there must stay, and then says why.
 */
int listen_clear(const char *path);

/* client.c */
/* Takes over fd, always. rec NULL: a new client; else one restored. */
struct client *client_new(struct mux_port *p, int fd, const char *listen, struct client_rec *rec);
void client_event(struct client *c, uint32_t events);
void client_pid_event(struct client *c);
/* Queues an incoming MAD. sgid is the client's GID. */
void client_deliver(struct client *c, const uint8_t *sgid, const struct umad_pkt *pkt);
void client_run_ready(struct mux *mux);
void client_tick(struct client *c);
/* Loses its connection; the rest is owner.c's. */
void client_disconnect(struct client *c, const char *why);
/* After a restart: answers the request that was being handled when the last run ended. */
void client_finish_request(struct client *c);
/* Ends it now, without speaking for it. */
void client_free(struct client *c);
/* True if the peer has closed and nothing of it is left to read. */
bool client_has_ended(struct client *c);
/* Finds its rule in the current configuration; false if that refuses it. */
bool client_match(struct client *c);

/* owner.c */
struct gid_reg *gid_lookup(struct mux *mux, const struct mux_port *p, const uint8_t *gid);
/* Registers. Returns an enum mux_err. */
int owner_reg(struct client *c, const uint8_t *gid);
int owner_unreg(struct client *c, const uint8_t *gid);
/* Whether the client may use gid as its source now: 0, or an enum mux_err. *former: only for its old sessions. */
int owner_may_use(struct client *c, const uint8_t *gid, bool *former);
/* What a silent client's earlier connection had becomes its own, if there is no doubt which that was. */
void owner_adopt(struct client *c);
bool owner_has_gid(const struct client *c, const uint8_t *gid);
/* Room for one more session of the client; sessions of an earlier life of its guest make way. */
bool owner_make_room(struct client *c);
/* A CA GUID that the client uses: refused if another has it. */
int owner_ca_guid(struct client *c, uint64_t guid);
void owner_drop_gids(struct client *c);
/* The connection is gone for good: GIDs go, sessions are mourned. */
void owner_dead(struct client *c);
struct client *client_by_serial(struct mux *mux, uint64_t serial);
/* Puts a GID back at a restart. */
int owner_restore_gid(struct client *c, const uint8_t *gid, uint32_t rec);

/* route.c */
/* Handles one MAD request. Returns an enum mux_err for the answer. */
int route_tx(struct client *c, const struct mux_frame *req);
/* Sends pkt's MAD from src to to, inside the mux if it can be. */
int route_emit(struct mux_port *p, const uint8_t *src, const struct session_addr *to,
	       const uint8_t *mad, uint64_t client_serial);
/* The same for messages of the mux's own, which have a rate. */
void route_emit_built(struct mux_port *p, const uint8_t *src, const struct session_addr *to,
		      const uint8_t *mad);
void route_unpark(struct mux_port *p);
/* The object whose list holds the session; NULL client for orphans. */
struct session_owner *route_owner(struct mux *mux, const struct session_rec *r, struct client **c);

/* route_rx.c */
void route_rx(struct mux_port *p, const struct umad_pkt *pkt, const struct rx_info *info);

/* obituary.c */
void obituary_begin(struct mux *mux, uint32_t s);
void obituary_run(struct mux *mux);
bool obituary_pending(const struct mux *mux);
/* A DREQ's answer came for a session without client. */
void obituary_answered(struct mux *mux, uint32_t s);

/* state.c */
/* path NULL: nothing survives. Returns NULL with errno, and says why on stderr. */
struct state *state_open(struct mux *mux, const char *path);
void state_close(struct state *st);
/* From now on records stay as they are, for the next run. */
void state_freeze(struct state *st);
struct session_head *state_session_head(struct state *st);
struct session_rec *state_session_recs(struct state *st);
/* The table takes room in the file as it grows. */
void state_back_sessions(struct state *st, struct session_table *t);
bool state_checked(const struct state *st);
struct client_rec *state_client_get(struct state *st);
void state_client_put(struct state *st, struct client_rec *rec);
void state_client_changed(struct state *st, struct client_rec *rec);
/* Index of a new record, or UINT32_MAX. */
uint32_t state_gid_get(struct state *st, uint64_t serial, const uint8_t *gid);
void state_gid_put(struct state *st, uint32_t rec);
void state_gid_owner(struct state *st, uint32_t rec, uint64_t serial);
uint64_t state_next_serial(struct state *st);
/* Descriptors that the service manager kept for us. */
void state_fds_init(struct mux *mux);
int state_take_umad(struct mux *mux, const char *device, unsigned int port, int *agent);
int state_take_listen(const char *path);
void state_restore(struct mux *mux);
void state_store_client(struct client *c);
void state_forget_client(struct client *c);
void state_store_umad(struct mux_port *p);
void state_forget_umad(struct mux_port *p);

/* control.c, metrics.c */
struct control *control_new(struct mux *mux, const char *path);
void control_free(struct control *ctl, bool unlink_path);
struct metrics *metrics_new(struct mux *mux, const char *where);
void metrics_free(struct metrics *m);
/* The text of all metrics; the caller frees it. NULL without memory. */
char *metrics_text(struct mux *mux);

#endif
