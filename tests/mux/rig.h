/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A daemon under test: its directory, its fabric, its process. A failed expectation ends the test with a message.
 */
#ifndef TESTS_MUX_RIG_H
#define TESTS_MUX_RIG_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "tests/mux/fabric.h"
#include "tests/mux/wire.h"

#define RIG_MAX_OPTS 24
#define RIG_MS	     20000 /* how long to wait for what must come */
#define RIG_QUIET_MS \
	60 /* how long to wait for what must not come, after a round trip proved the daemon idle */

struct rig {
	char dir[64];
	char socket[96]; /* of port 0 */
	char control[104];
	char log[96]; /* what the daemon said */
	struct fabric *f;
	unsigned int port;
	const char *daemon; /* another program in place of the daemon; NULL: the one built here */
	pid_t pid;	    /* 0: not running */
	char *opts[RIG_MAX_OPTS];
	unsigned int n_opts;
	/* For a play of the service manager. */
	int notify_fd; /* -1: none */
	int *pass_fds;
	const char *pass_names;
	unsigned int n_pass;
	bool closed_std;	/* start with descriptors 0 to 2 closed */
	unsigned int max_files; /* descriptors that it may have; 0: as many as we */
	bool watchdog;		/* ask for signs of life every 100 ms */
};

/* The names of the specification's test vectors. */
extern uint8_t GA[16], GB[16], GP[16], GQ[16], LA[16], LB[16];
#define CA_A	0x505400fffe00000aULL
#define CA_B	0x505400fffe00000bULL
#define CA_P	0x0002c90300000007ULL
#define CA_Q	0x0002c90300000008ULL
#define QPN_A	0x111
#define QPN_B	0x222
#define QPN_P	0x777
#define SVC_TCP 0x0000000001061b58ULL
#define SVC_UDP 0x0000000001111b58ULL

/* A directory and a fabric with one device "fab0" that has GA and GB at index 1 and 2, LA at 3, LB at 4. */
struct rig *rig_new(void);
/* For cmocka: a rig that runs, in *state. */
int rig_setup(void **state);
/* The same with options, as rig_option() takes them, up to a NULL. */
int rig_setup_with(void **state, const char *const *options);
int rig_teardown(void **state);
/* Writes a whole file. */
void rig_write_file(const char *path, const char *text);
/* One more option for the daemon's command line, or "key=value" for -o. */
void rig_option(struct rig *r, const char *opt);
/* A configuration file, DIR/conf, for its command line. */
void rig_config(struct rig *r, const char *text);
/* Starts the daemon and waits until it serves. */
void rig_start(struct rig *r);
/* Starts it without waiting. device NULL: fab0. */
pid_t rig_spawn(struct rig *r, const char *device, const char *prefix);
/* Ends it by a signal; returns what waitpid() gave. */
int rig_stop(struct rig *r, int sig);
/* Ends everything; the daemon must have been well until now. */
void rig_free(struct rig *r);

int rig_connect(struct rig *r);
/* A client that has a GID. */
int rig_connect_reg(struct rig *r, const uint8_t *gid);
/* A whole active connection of client a, which has GA, with P; ids are theirs. Returns the one on the wire. */
uint32_t rig_established(struct rig *r, int a, uint32_t local, uint32_t peer);
/* Lets the daemon's clock jump. */
void rig_advance(struct rig *r, unsigned int ms);
/* One command to the control socket; the caller drops the reference. */
json_t *rig_control(struct rig *r, const char *request);
/* A number in the answer to "status". */
json_int_t rig_status(struct rig *r, const char *key);
/* A drop counter of port 0. */
json_int_t rig_dropped(struct rig *r, const char *reason);
/* Waits until "status" shows a number. */
void rig_wait_status(struct rig *r, const char *key, json_int_t value);
void rig_wait_dropped(struct rig *r, const char *reason, json_int_t at_least);
/* True once the log has the text. */
bool rig_logged(struct rig *r, const char *text);

/* W: the next MAD the daemon wrote, checked for what all have: dst, one GID index, QPN 1 and so on. */
void rig_expect_write(struct rig *r, uint8_t *mad, unsigned int attr, const uint8_t *dst,
		      unsigned int index);
/* Nothing was written. Made sure of by a request and its answer on fd. */
void rig_expect_no_write(struct rig *r, int fd);
/* w: a MAD from src to the GID at index. */
void rig_inject(struct rig *r, const uint8_t *src, unsigned int index, const uint8_t *mad);
/* c: the next frame is an incoming MAD, with these GIDs. */
void rig_expect_mad(int fd, uint8_t *mad, unsigned int attr, const uint8_t *sgid,
		    const uint8_t *from);
void rig_expect_nothing(int fd);

#endif
