/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Threads that write MADs, so that nobody else waits for a neighbour that does not answer.
 *
 * A lane takes a stream of MADs for destinations that are known to answer; one destination always uses the same lane,
 * which keeps its order. A probe takes one MAD at a time for a destination that may block, and reports what came of it. Each
 * thread has a umad file of its own, because the kernel holds a file's lock while a write blocks.
 *
 * All functions belong to the event loop's thread.
 */
#ifndef MUX_SENDER_H
#define MUX_SENDER_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "mux/umad.h"

struct sender;

struct sender_failure {
	uint8_t gid[MUX_GID_SIZE];
	uint8_t gid_index;
	int error;
	unsigned int count; /* MADs lost by it */
};

/* An error that tells that the destination does not answer: each write to it costs a second. */
static inline bool sender_timed_out(int err)
{
	return err == ETIMEDOUT || err == EHOSTUNREACH || err == ENETUNREACH || err == EHOSTDOWN;
}

/*
 * Opens lanes + probes files on the port and starts the threads. notify_fd is an eventfd, written when sender_probe_done() or
 * sender_failure() have news. Returns NULL with errno and why.
 */
struct sender *sender_new(const char *device, unsigned int port, unsigned int lanes,
			  unsigned int probes, int notify_fd, char why[UMAD_WHY_MAX]);

/* Stops the threads. One that is blocked in a write ends by itself later, and then frees what it used. */
void sender_free(struct sender *s);

/* Puts a MAD on a lane. False if the lane is full. The MAD leaves at the next sender_flush(). */
bool sender_post(struct sender *s, unsigned int lane, const struct umad_pkt *pkt);
void sender_flush(struct sender *s);

/* Gives a MAD to an idle probe. Returns the probe's number, or -1 if all are busy. */
int sender_probe(struct sender *s, const struct umad_pkt *pkt);
/* If probe number i has finished: true, its result in *error, and it is idle again. */
bool sender_probe_done(struct sender *s, unsigned int i, int *error);

/*
 * Fetches one failed write of a lane. False if there is none. After a time-out the lane drops what was posted for the
 * destination up to then, so that others on the lane wait for one of them and not for all.
 */
bool sender_failure(struct sender *s, struct sender_failure *f);

struct sender_stats {
	uint64_t sent;
	uint64_t failed;
	uint64_t duplicates; /* refused because the same transaction was still queued */
};
void sender_stats(const struct sender *s, struct sender_stats *st);

#endif
