/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The kernel's user-MAD files: opening and registering through libibumad, reading and writing one MAD a call.
 *
 * Two kinds of file are used, because a write on a RoCE port may block for a second in neighbour resolution and
 * holds a lock meanwhile that reads and deliveries of the same file need:
 *   receive    registered as the one agent for method Send of the CM class
 *   send only  registered without a class; conflicts with nothing
 *
 * Opening and closing belong to one thread (libibumad keeps global state); umad_read() and umad_write() may be called
 * from any.
 */
#ifndef MUX_UMAD_H
#define MUX_UMAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "mux/protocol.h"

/* What one read or write moves; also the tail of struct mux_frame. */
struct umad_pkt {
	struct mux_umad hdr;
	uint8_t mad[MUX_MAD_SIZE];
};

static_assert(sizeof(struct umad_pkt) == MUX_UMAD_HDR_SIZE + MUX_MAD_SIZE, "umad packet");

struct umad_file {
	int fd; /* -1: closed */
	int agent;
};

#define UMAD_WHY_MAX 512

/*
 * Opens the umad node of a port (0: any port) and registers. Returns 0, or a positive errno and a sentence for the
 * operator in why.
 */
int umad_file_open(struct umad_file *f, const char *device, unsigned int port, bool receive,
		   char why[UMAD_WHY_MAX]);
/*
 * The same for a file that asks the managers of a class and gets their answers, by the transaction id, and what the kernel
 * has to say of those that did not come.
 */
int umad_file_open_asking(struct umad_file *f, const char *device, unsigned int port,
			  unsigned int class, unsigned int version, unsigned int rmpp_version,
			  char why[UMAD_WHY_MAX]);
void umad_file_close(struct umad_file *f);

/* The port's number where the operator gave 0; port otherwise. */
unsigned int umad_resolve_port(const char *device, unsigned int port);

/* True if the port's link layer is InfiniBand, where addresses are LIDs. */
bool umad_is_infiniband(const char *device, unsigned int port);

/* Where the subnet manager of an InfiniBand port is; false if there is none. */
bool umad_subnet_manager(const char *device, unsigned int port, uint16_t *lid, uint8_t *sl);

enum umad_read_result {
	UMAD_READ_MAD,
	UMAD_READ_NONE,	 /* nothing waits */
	UMAD_READ_OTHER, /* something that is no received 256-byte MAD: to be skipped */
	UMAD_READ_GONE,	 /* the device went away */
};

/* Reads one packet without blocking. */
enum umad_read_result umad_read(int fd, struct umad_pkt *pkt);

/*
 * Reads whatever is there, and fills pkt as far as it goes. Returns its length, which may be more than pkt's, 0 if nothing waits, or
 * -1 if the device went away.
 */
ssize_t umad_read_any(int fd, struct umad_pkt *pkt);

/* Writes one packet; may block. Returns 0 or a positive errno. */
int umad_write(int fd, const struct umad_pkt *pkt);

#endif
