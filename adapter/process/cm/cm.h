/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Connection management: what its files share.
 *
 *	ucma_file.c	the rdma_cm file: commands, the event queue, GET_EVENT
 *	ucma_id.c	commands that create, address and query ids
 *	ucma_conn.c	commands of a connection's life
 *	cm_id.c		the table of ids
 *	cm_addr.c	addresses, source addresses, TCP sockets
 *	cm_listen.c	listeners
 *	cm_setup.c	MPA set-up on TCP, both sides
 *	cm_conn.c	connections: data phase, end, lingering
 *	cm_alive.c	peers that vanish with data under way
 *	oob.c		RC queue pairs whose programs exchange queue pair numbers themselves
 *
 * All state is under the engine lock.  A port of the RDMA port space is the TCP port of the same
 * number.
 */
#ifndef EA_CM_H
#define EA_CM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <rdma/rdma_user_cm.h>
#include "adapter/link/link_tcp.h"
#include "adapter/process/engine/engine.h"
#include "adapter/process/host.h"
#include "adapter/wire/mpa.h"

#define CM_MSEC 1000000ull
#define CM_SEC	1000000000ull

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* Kernel event numbers (enum rdma_cm_event_type). */
enum cm_event_type {
	CM_ADDR_RESOLVED,
	CM_ADDR_ERROR,
	CM_ROUTE_RESOLVED,
	CM_ROUTE_ERROR,
	CM_CONNECT_REQUEST,
	CM_CONNECT_RESPONSE,
	CM_CONNECT_ERROR,
	CM_UNREACHABLE,
	CM_REJECTED,
	CM_ESTABLISHED,
	CM_DISCONNECTED,
	CM_USER = 18, /* written by the program itself */
	CM_INTERNAL = 19,
};

struct cm_id;
struct ucma_file;

union cm_addr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_storage ss;
};

/* ------------------------------------------------------------------ events and files */

struct cm_event {
	struct cm_event *next;
	struct cm_id *id;     /* whose counter it raises: the listener for CONNECT_REQUEST */
	struct cm_id *new_id; /* CONNECT_REQUEST: the id that comes with it */
	struct rdma_ucm_event_resp resp;
};

struct ucma_file {
	struct host_file file;
	int wait_fd;	     /* our copy of the program's end: shares its O_NONBLOCK */
	int drain_fd;	     /* read end of its own, never blocks; -1 until needed */
	int token_fd;	     /* write end */
	unsigned int tokens; /* bytes in the pipe or with a reader that has not got the lock yet */
	unsigned int nevents;
	struct cm_event *head, **tail;
	struct ucma_file *prev, *next; /* all files */
};

/* Queue @event (allocated by malloc, ours now) at @file. */
void ucma_event_push(struct ucma_file *file, struct cm_event *event);

/* Remove what is queued for @id; ids that came with CONNECT_REQUESTs are destroyed. */
void ucma_events_drop(struct ucma_file *file, struct cm_id *id);

/* Move what is queued for @id to the end of @to. */
void ucma_events_move(struct ucma_file *from, struct ucma_file *to, struct cm_id *id);

/* ------------------------------------------------------------------ ids */

enum cm_state {
	CM_IDLE,
	CM_BOUND, /* has a local address */
	CM_LISTENING,
	CM_ADDR_DONE,
	CM_ROUTE_DONE,
	CM_CONNECTING, /* CONNECT done, no answer yet */
	CM_REQUESTED,  /* passive: neither accepted nor rejected */
	CM_CONNECTED,
	CM_DISCONNECT, /* connection over, or refused */
};

enum cm_opt { /* tri-state options */
	CM_OPT_UNSET = -1,
};

struct cm_id {
	uint32_t number;
	uint64_t serial; /* no other id has or had it */
	enum cm_state state;
	struct ucma_file *file;
	uint64_t uid;
	uint16_t ps;
	uint8_t qp_type;
	bool rejected_early;	/* passive: the peer has gone before accept */
	bool unseen;		/* came with a CONNECT_REQUEST that the program has not fetched */
	union cm_addr src, dst; /* family 0: none */
	struct host_dev *dev;	/* NULL: none (wildcard, probe) */
	uint32_t fetched;	/* events that the program has taken */
	int fd;			/* bound socket, or -1 */
	/* options */
	bool reuseaddr;
	int afonly; /* CM_OPT_UNSET, 0, 1 */
	int tos;    /* CM_OPT_UNSET, 0..255 */
	/* listener */
	struct engine_fd efd;
	struct engine_timer retry;     /* out of descriptors: accept again later */
	unsigned int backlog, waiting; /* CONNECT_REQUESTs not fetched yet */
	/* connection */
	struct cm_conn *conn;
	uint32_t qpn;		   /* of the connection that is or was; 0: none */
	struct engine_timer nudge; /* see cm_id_disconnect_seen() */
};

struct cm_id *cm_id_create(struct ucma_file *file); /* NULL: no memory */
struct cm_id *cm_id_find(uint32_t number);	    /* NULL: none */
/* Is the id that had this number and serial still there? */
bool cm_id_lives(uint32_t number, uint64_t serial);
void cm_id_destroy(struct cm_id *id); /* ends its connection abruptly; drops its events */
unsigned int cm_id_count(void);
/* Call @fn for each id; it may destroy that id. */
void cm_id_each(void (*fn)(struct cm_id *id, void *arg), void *arg);

/* An event for @id with @status; private data of @data when given. */
void cm_id_event(struct cm_id *id, enum cm_event_type type, int status);
/* The program has fetched DISCONNECTED. */
void cm_id_disconnect_seen(struct cm_id *id);
void cm_id_event_data(struct cm_id *id, enum cm_event_type type, int status, const void *data,
		      size_t len);

/* ------------------------------------------------------------------ addresses */

/* Size of the address by family; 0: neither IPv4 nor IPv6. */
socklen_t cm_addr_len(const union cm_addr *addr);
bool cm_addr_any(const union cm_addr *addr);
__be16 cm_addr_port(const union cm_addr *addr);
void cm_addr_set_port(union cm_addr *addr, __be16 port);
/* ::ffff:a.b.c.d becomes a.b.c.d */
void cm_addr_unmap(union cm_addr *addr);
/* "10.0.0.1:7174" for messages; in a buffer of this thread */
const char *cm_addr_text(const union cm_addr *addr);

/* The local address from which @dst is reached; -errno.  No lock needed; does not block. */
int cm_addr_source(const union cm_addr *dst, union cm_addr *src);

/*
 * A hidden non-blocking TCP socket with the options every connection has; -errno.
 */
int cm_socket(int family, int tos);

/*
 * Bind as the RDMA port space wants it: exclusive unless @id allows reuse; updates id->src.  Sets
 * id->fd.  0 or -errno.
 */
int cm_bind(struct cm_id *id);

/* Options that let a vanished peer be noticed, and NODELAY. */
void cm_socket_tune(int fd);

/* ------------------------------------------------------------------ connections */

enum cm_phase {
	CONN_TCP,     /* active: TCP handshake */
	CONN_REPLY,   /* active: request sent, reply awaited */
	CONN_REQUEST, /* passive: request awaited */
	CONN_PENDING, /* passive: the program decides */
	CONN_OPEN,    /* data */
	CONN_CLOSING, /* the QP has left; the link winds up */
	CONN_LINGER,  /* no link any more: waiting for the peer's end of stream */
};

struct cm_conn {
	struct engine_conn ec;
	enum cm_phase phase;
	struct cm_id *id;	/* NULL: has gone, or out-of-band */
	struct cm_id *listener; /* CONN_REQUEST */
	struct oob_conn *oob;	/* out-of-band: its own state */
	struct host_dev *dev;
	struct engine_timer timer;
	struct ea_link *link;
	struct cm_conn *prev, *next; /* all connections */
	bool rx_first;		     /* passive: nothing is sent before the peer's first FPDU */
	struct engine_timer first;   /* the peer's first FPDU does not come */
	uint64_t nudge_ns;	     /* active: when to look again */
	bool notified;
	unsigned int rx_wait, tx_wait; /* enum ea_tcp_wait */
	bool held_end;		       /* the peer has ended while a message is held */
	bool told;		       /* DISCONNECTED was queued */
	bool sent; /* something was sent that may not be acknowledged yet; see cm_alive.c */
	uint64_t unacked_since;
	/* set-up */
	uint32_t qpn;
	uint8_t ird, ord;
	struct ea_mpa_frame req; /* request sent, or received: private data points into in[] */
	uint32_t out_len, out_sent, in_len;
	uint8_t out[EA_MPA_FRAME_MAX];
	uint8_t in[EA_MPA_FRAME_MAX + 64];
};

struct cm_conn *cm_conn_alloc(int fd,
			      enum cm_phase phase); /* takes @fd; NULL with errno, fd closed */
void cm_conn_free(struct cm_conn *conn);	    /* closes the socket at once */
/* Set-up phases: who is called, for which events (0: none).  0 or -errno. */
int cm_conn_watch(struct cm_conn *conn, void (*ready)(struct engine_fd *efd, uint32_t events),
		  uint32_t events);

/* Close so that what TCP has taken still reaches the peer. */
void cm_conn_linger(struct cm_conn *conn);

/*
 * Hand the socket to a link and the QP to RTS.  @terms as agreed; @extra: bytes behind the MPA
 * frame.  0 or -errno, the connection unchanged then.
 */
int cm_conn_open(struct cm_conn *conn, struct host_qp *qp, const struct ea_mpa_terms *terms,
		 bool active, const void *extra, size_t extra_len);

/* The id goes: end the connection abruptly. */
void cm_conn_abandon(struct cm_conn *conn);

/* The next of all connections after @conn, or the first of all. */
struct cm_conn *cm_conn_next(struct cm_conn *conn);

/* Something was given to TCP: look now and then whether the peer takes it. */
void cm_alive_sent(struct cm_conn *conn);
void cm_alive_forget(void);

/* ------------------------------------------------------------------ set-up */

/* Active side: socket (bound or not) and request; id is ROUTE_DONE.  0 or -errno. */
int cm_setup_connect(struct cm_id *id, const struct rdma_ucm_conn_param *param);

/* Passive side: a fresh socket from @listener. */
void cm_setup_accepted(struct cm_id *listener, int fd);

int cm_setup_accept(struct cm_id *id, const struct rdma_ucm_conn_param *param);
int cm_setup_reject(struct cm_id *id, const void *data, size_t len);
/*
 * The first FPDU of the active side: a zero-length RDMA Write (RFC 6581 section 9.2).  0 or -errno.
 */
int cm_setup_send_rtr(struct cm_conn *conn, bool crc);
/* Answer with a reject and close. */
void cm_setup_refuse(struct cm_conn *conn);
/* Close connections of which no request has come yet. */
void cm_setup_listener_gone(struct cm_id *listener);

/* ------------------------------------------------------------------ listeners */

int cm_listen(struct cm_id *id, int backlog);
void cm_listen_stop(struct cm_id *id);

/* ------------------------------------------------------------------ commands */

/* @in: the request behind the header, zero-padded to the command's size.  0 or -errno. */
typedef int (*ucma_command)(struct ucma_file *file, const void *in, size_t in_len,
			    unsigned int out_len);

int ucma_create_id(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len);
int ucma_destroy_id(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len);
int ucma_bind_ip(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len);
int ucma_bind(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len);
int ucma_resolve_ip(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len);
int ucma_resolve_addr(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len);
int ucma_resolve_route(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len);
int ucma_query_route(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len);
int ucma_query(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len);
int ucma_set_option(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len);
int ucma_migrate_id(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len);
int ucma_join_mcast(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len);
int ucma_leave_mcast(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len);
int ucma_write_event(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len);
int ucma_connect(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len);
int ucma_listen(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len);
int ucma_accept(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len);
int ucma_reject(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len);
int ucma_disconnect(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len);
int ucma_init_qp_attr(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len);
int ucma_notify(struct ucma_file *file, const void *in, size_t in_len, unsigned int out_len);

/* An id of this file: 0, -ENOENT (none the program knows), -EINVAL (another file's).  Lock held. */
int ucma_id(struct ucma_file *file, uint32_t number, struct cm_id **id);
/* As above, and it has a device, else -EINVAL. */
int ucma_id_dev(struct ucma_file *file, uint32_t number, struct cm_id **id);

/* ------------------------------------------------------------------ life of the process */

void cm_ids_forget(void); /* fork child */
void cm_conns_forget(void);
void ucma_files_forget(void);

#endif
