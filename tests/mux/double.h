/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the two halves of the umad double share: the preloaded library in the daemon (umad_double.c) and the fabric in the test
 * program (fabric.c).
 *
 * The library answers for /dev/infiniband/umadN and the sysfs entries that libibumad reads; everything in the daemon and in
 * libibumad runs unchanged. A umad file is one end of a SOCK_SEQPACKET pair whose other end the fabric has; opening and
 * registering are requests on a second socket. The page shared through the file "shm" lets a test provoke what the kernel does at bad moments.
 */
#ifndef TESTS_MUX_DOUBLE_H
#define TESTS_MUX_DOUBLE_H

#include <stdint.h>

#define DOUBLE_ENV	"UMAD_DOUBLE"
#define DOUBLE_MAX_GIDS 64

struct double_shm {
	_Atomic int64_t clock_skew_ns; /* added to CLOCK_MONOTONIC in the daemon */
	_Atomic uint32_t resolve_ms;   /* how long a write to an unresolvable GID blocks */
	_Atomic uint32_t n_unresolvable;
	uint8_t unresolvable[DOUBLE_MAX_GIDS][16];
	_Atomic uint32_t fault_errno; /* the next fault_count writes fail so */
	_Atomic uint32_t fault_count;
	_Atomic uint32_t bad_writes;	 /* writes that the kernel would refuse */
	_Atomic uint32_t last_bad;	 /* with this errno */
	_Atomic uint32_t blocked;	 /* writes that block now */
	_Atomic uint32_t opened, closed; /* umad files */
	_Atomic uint32_t infiniband;	 /* a GRH is no must */
	_Atomic uint32_t room;		 /* bytes of a file that there is room for; 0: enough */
	_Atomic uint64_t
		allocations; /* calls of malloc and its like; not counted under a sanitizer */
};

enum double_op {
	DOUBLE_OPEN = 1,
	DOUBLE_REGISTER,
	DOUBLE_UNREGISTER,
};

struct double_request {
	uint32_t op;
	uint32_t node; /* OPEN: the N of umadN */
	uint32_t slot; /* UNREGISTER, and REGISTER's wish */
	uint32_t qpn, class, version;
	uint32_t mask; /* first word of the method mask */
};

struct double_reply {
	int32_t error;	 /* positive errno */
	uint32_t hi_tid; /* REGISTER: upper half of this agent's transaction ids */
};

#endif
