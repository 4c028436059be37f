/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A port's GID table, as sysfs shows it, kept current without ever stalling the event loop.
 *
 * A thread reads the table when asked, when an address of the host changes, and now and then; the loop sees whole snapshots.
 * All functions belong to the loop's thread.
 */
#ifndef MUX_GIDTABLE_H
#define MUX_GIDTABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "mux/protocol.h"

/* The umad header has one byte for the index. */
#define GIDTABLE_MAX 256

struct gidtable;

/*
 * Starts watching; the first snapshot is there on return. notify_fd is an eventfd that is written when a newer one is.
 * prefer_v2 tells which of two entries of one address counts on RoCE. Returns NULL with errno.
 */
struct gidtable *gidtable_new(const char *device, unsigned int port, bool prefer_v2, int notify_fd);
void gidtable_free(struct gidtable *t);

/* Takes over the newest snapshot. True if there was a newer one. */
bool gidtable_update(struct gidtable *t);
/*
 * Asks for a new snapshot soon. Many requests in a row are served by one. Returns the number of the request, to be asked
 * about with gidtable_served(): the next snapshot may have been begun before.
 */
unsigned int gidtable_refresh(struct gidtable *t);
/* Was the current snapshot begun after that request? */
bool gidtable_served(const struct gidtable *t, unsigned int request);

/* Index of a GID, or -1. */
int gidtable_index(const struct gidtable *t, const uint8_t gid[MUX_GID_SIZE]);
/* GID at an index, or NULL. Good until the next gidtable_update(). */
const uint8_t *gidtable_gid(const struct gidtable *t, unsigned int index);

#endif
