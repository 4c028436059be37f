/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * librdmacm-mux: send and receive CM MADs through rdmacm-mux.
 *
 * For programs that stand for a virtual machine, or for anything else that needs its own CM beside others on one RDMA port.
 *
 *	struct rmux *m = rmux_open("/run/rdmacm-mux-mlx5_0-1", 0);
 *	rmux_register(m, gid);
 *	rmux_send(m, gid, NULL, mad, 256);
 *	...when rmux_pending(m), or rmux_fd(m) is readable:
 *	while ((err = rmux_receive(m, &in)) == 0)
 *		handle(&in);
 *
 * Functions return 0 or a positive errno, rmux_open() a pointer or NULL with errno. A refusal by the mux is
 *	EINVAL		the MAD or request is malformed, or the operation unknown to an old mux
 *	EEXIST		the GID is registered by this client already
 *	EACCES		owned by another client, forbidden, or over a quota or rate
 *	ENOENT		unknown GID or communication id, or the port is down
 *	EAGAIN		over a rate: the same may succeed later
 *	ECONNRESET	the connection is gone; only rmux_close() is of use
 *
 * A struct rmux belongs to one thread at a time. Nothing is allocated after rmux_open().
 *
 * The mux accepts a MAD before it is sent, so success means that the MAD is on its way as a datagram: it may be lost, and the
 * caller's CM repeats it. Ids, transaction ids and GIDs in MADs are the caller's own; the mux translates.
 */
#ifndef RDMACM_MUX_H
#define RDMACM_MUX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RMUX_GID_SIZE 16
#define RMUX_MAD_SIZE 256
#define RMUX_PATH_MAX 108

struct rmux;

/* rmux_open() flags */
#define RMUX_REREGISTER_OK 1u /* registering a GID twice is no error */
#define RMUX_OWN_DESTINATION \
	2u /* addresses given to rmux_send() are meant, if the operator lets us */

/* An address on the fabric. */
struct rmux_address {
	uint8_t gid[RMUX_GID_SIZE];
	uint16_t lid; /* InfiniBand link layer only; host byte order */
	uint8_t sl;
};

/* An incoming MAD. */
struct rmux_mad {
	uint8_t destination[RMUX_GID_SIZE]; /* the GID of ours that it is for */
	struct rmux_address source;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint32_t length; /* valid bytes of mad */
	uint8_t mad[RMUX_MAD_SIZE];
};

struct rmux_info {
	uint32_t version; /* of the protocol; 0: an old mux, which knows no more than REG, UNREG and MAD */
	uint32_t window; /* requests that may be outstanding */
	uint32_t max_gids;
	uint32_t max_sessions;
};

struct rmux_status {
	int port_up;
	uint32_t gids;
	uint32_t sessions;
	uint64_t sent, received, refused, dropped; /* MADs; as the mux counts */
};

/*
 * Writes the path of the mux's socket for a device and port to buf. prefix NULL: the default, /var/run/rdmacm-mux. Returns 0 or
 * ENAMETOOLONG.
 */
int rmux_path(char buf[RMUX_PATH_MAX], const char *prefix, const char *device, unsigned int port);

/* Connects and says hello; blocks for the answer. */
struct rmux *rmux_open(const char *path, unsigned int flags);
void rmux_close(struct rmux *m);

/*
 * For poll(): readable when rmux_receive() or rmux_result() may have something new. What another function has read beside
 * its own answer is kept, and no news of this descriptor: so fetch until EAGAIN, or ask rmux_pending(), before waiting.
 */
int rmux_fd(const struct rmux *m);
/* 1 if rmux_receive() or rmux_result() has something already, else 0. */
int rmux_pending(const struct rmux *m);
const struct rmux_info *rmux_info(const struct rmux *m);

/* Block until the mux has answered, which it does at once. MADs that come meanwhile are kept for rmux_receive(). */
int rmux_register(struct rmux *m, const uint8_t gid[RMUX_GID_SIZE]);
int rmux_unregister(struct rmux *m, const uint8_t gid[RMUX_GID_SIZE]);
int rmux_query(struct rmux *m, struct rmux_status *status);
/*
 * Sends length (36 to 256) bytes of a MAD from gid. The destination is found in the message; to (or NULL) is needed for SIDR_REQs that
 * carry no IP addresses, and on InfiniBand.
 */
int rmux_send(struct rmux *m, const uint8_t gid[RMUX_GID_SIZE], const struct rmux_address *to,
	      const void *mad, size_t length);

/*
 * The same without waiting. cookie comes back with the result. EAGAIN: the window is full, fetch results first; the socket is full, poll for
 * writing. Needs a mux that knows hello: else EOPNOTSUPP.
 */
int rmux_post(struct rmux *m, const uint8_t gid[RMUX_GID_SIZE], const struct rmux_address *to,
	      const void *mad, size_t length, uint64_t cookie);
/* The next result of rmux_post(), in order of posting: EAGAIN if there is none yet, else 0 with the MAD's own result in *result. */
int rmux_result(struct rmux *m, uint64_t *cookie, int *result);

/* The next incoming MAD; EAGAIN if there is none. */
int rmux_receive(struct rmux *m, struct rmux_mad *in);

/* How many incoming MADs were lost because nobody fetched them while requests waited for answers. */
uint64_t rmux_lost(const struct rmux *m);

#ifdef __cplusplus
}
#endif

#endif
