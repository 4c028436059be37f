/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A client of the mux at the level of bytes, written from the description of the protocol and sharing nothing with the daemon.
 *
 * Frames are plain arrays; F_* are offsets in a frame, M_* in the MAD. A failed expectation ends the test with a message.
 */
#ifndef TESTS_MUX_WIRE_H
#define TESTS_MUX_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME 360
#define MAD   256

enum {
	F_TYPE = 0,
	F_OP = 4,
	F_SGID = 8,
	F_ERR = 24,
	F_TAG = 28,
	F_LEN = 32,
	F_UMAD = 36,
	F_LENGTH = 52,
	F_QPN = 56,
	F_GRH = 68,
	F_INDEX = 69,
	F_HOP = 70,
	F_GID = 72,
	F_MAD = 100,
};

enum {
	M_TID = 8,
	M_TID_LOW = 12,
	M_ATTR = 16,
	M_LOCAL = 24,
	M_REMOTE = 28,
};

enum {
	REQ = 0x10,
	MRA,
	REJ,
	REP,
	RTU,
	DREQ,
	DREP,
	SIDR_REQ,
	SIDR_REP,
	LAP,
	APR,
	SAP,
	SPR
};
enum {
	T_REQ,
	T_RESP
};
enum {
	OP_REG,
	OP_UNREG,
	OP_MAD
};

uint32_t be32(const uint8_t *p);
uint64_t be64(const uint8_t *p);
void put_be16(uint8_t *p, uint32_t v);
void put_be24(uint8_t *p, uint32_t v);
void put_be32(uint8_t *p, uint32_t v);
void put_be64(uint8_t *p, uint64_t v);
uint32_t host32(const uint8_t *p);
void put_host32(uint8_t *p, uint32_t v);

/* ::ffff:a.b.c.d from 0xaabbccdd, and a GID from its two halves. */
void gid4(uint8_t *gid, uint32_t addr);
void gid6(uint8_t *gid, uint64_t prefix, uint64_t iid);

/* MADs. Each writes MAD bytes. */
void mad_header(uint8_t *mad, unsigned int attr, uint64_t tid);
void mad_req(uint8_t *mad, uint32_t local, uint64_t tid, const uint8_t *src, const uint8_t *dst,
	     uint64_t ca_guid, uint32_t qpn, uint64_t service);
void mad_pair(uint8_t *mad, unsigned int attr, uint32_t local, uint32_t remote, uint64_t tid);
void mad_rep(uint8_t *mad, uint32_t local, uint32_t remote, uint64_t tid, uint64_t ca_guid,
	     uint32_t qpn);
void mad_rej(uint8_t *mad, uint32_t local, uint32_t remote, uint64_t tid, unsigned int message,
	     unsigned int reason);
void mad_sidr_req(uint8_t *mad, uint32_t id, uint64_t tid, uint64_t service);

/* Connections. */
int wire_connect(const char *path);
/* The socket may not be there yet. */
int wire_connect_wait(const char *path, unsigned int timeout_ms);
void wire_send(int fd, const void *data, size_t len);
/* One whole frame. False on time-out or end of stream; *closed tells which, if not NULL. */
bool wire_recv(int fd, uint8_t *frame, unsigned int timeout_ms, bool *closed);
/* True if the peer closes within the time; frames that come before are thrown away. */
bool wire_closes(int fd, unsigned int timeout_ms);

/* Builds requests as QEMU does. */
void frame_simple(uint8_t *frame, unsigned int op, const uint8_t *sgid);
void frame_mad(uint8_t *frame, const uint8_t *sgid, const uint8_t *mad);
/* Sends a request and takes the next frame for the answer, which must be one; returns its result. */
unsigned int wire_call(int fd, const uint8_t *frame, uint8_t *answer);
unsigned int wire_reg(int fd, const uint8_t *gid);
unsigned int wire_unreg(int fd, const uint8_t *gid);
unsigned int wire_mad(int fd, const uint8_t *sgid, const uint8_t *mad);

#endif
