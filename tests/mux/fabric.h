/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A fabric for muxes: umad devices without RDMA, in a thread of the test program.
 *
 * Ports have GIDs. A MAD that a mux writes goes to the port that has its destination GID, as a switch would carry it; one
 * for a GID that no port has is kept for the test to look at, which so can play any peer. See double.h for the other half. All
 * functions may be called from the test's threads.
 */
#ifndef TESTS_MUX_FABRIC_H
#define TESTS_MUX_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/mux/double.h"

#define PKT_SIZE 320
#define PKT_MAD	 64

struct fabric;

/* Makes the directory tree under dir, which exists. Never returns NULL: a failure ends the test. */
struct fabric *fabric_new(const char *dir);
void fabric_free(struct fabric *f);
struct double_shm *fabric_shm(struct fabric *f);

/* Adds a RoCE device with one port; returns the port's number here. */
unsigned int fabric_add(struct fabric *f, const char *device);
/* A GID at an index of the port's table; NULL takes it away. */
void fabric_set_gid(struct fabric *f, unsigned int port, unsigned int index, const uint8_t *gid);
/* Makes the port's link layer InfiniBand; sm_lid 0: without a subnet manager. Before the daemon starts. */
void fabric_infiniband(struct fabric *f, unsigned int port, unsigned int sm_lid);
/* The kernel module ib_cm: loaded at all, and serving the port. */
void fabric_ib_cm(struct fabric *f, bool loaded, unsigned int port, bool serves);
/* Unplugs (its files get EIO) and plugs in again. */
void fabric_unplug(struct fabric *f, unsigned int port);
void fabric_replug(struct fabric *f, unsigned int port);
/* Of a hundred MADs between ports so many are lost. */
void fabric_loss(struct fabric *f, unsigned int percent);
/* Whether MADs for the ports' own GIDs are carried (the default) or kept for the test too. */
void fabric_carry(struct fabric *f, bool on);

/* Hands the port's CM agent a MAD from src, addressed to the GID at index. */
void fabric_inject(struct fabric *f, unsigned int port, const uint8_t *src, unsigned int index,
		   const uint8_t *mad);
/* Hands a packet to the agent of a class on the port; its first word becomes the agent's. */
void fabric_answer(struct fabric *f, unsigned int port, unsigned int class, uint8_t *pkt,
		   size_t len);
/* Hands it any bytes at all. */
void fabric_inject_raw(struct fabric *f, unsigned int port, const void *data, size_t len);

/* The next packet (PKT_SIZE bytes) that a mux wrote for a GID that nobody has. False after timeout_ms. */
bool fabric_written(struct fabric *f, unsigned int port, uint8_t *pkt, unsigned int timeout_ms);
/* How many are waiting to be fetched. */
unsigned int fabric_count(struct fabric *f, unsigned int port);
/* True once a CM agent is registered on the port. */
bool fabric_has_agent(struct fabric *f, unsigned int port);

/* A responder in the fabric's thread: called for each packet for a GID that nobody has, instead of keeping it. It may answer with
 * fabric_reply(). For load, where a round trip through the test's own thread would count.
 */
typedef void (*fabric_responder)(void *ctx, struct fabric *f, unsigned int port, uint8_t *pkt);
void fabric_respond(struct fabric *f, fabric_responder fn, void *ctx);
void fabric_reply(struct fabric *f, unsigned int port, const uint8_t *src, unsigned int index,
		  const uint8_t *mad);

#endif
