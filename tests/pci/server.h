/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Starting and ending the real program under test. */
#ifndef TESTS_PCI_SERVER_H
#define TESTS_PCI_SERVER_H

#include <sys/types.h>

struct server {
	pid_t pid;
	char dir[64]; /* of its sockets */
};

#define SERVER_MAC "52:54:00:12:34:56"

/*
 * Start the program with a function at "DIR/0", "DIR/1", ... (@functions of them) and @extra, further arguments
 * that end with NULL (may be NULL).  Returns when it listens.  Ends the test on failure.
 */
void server_start(struct server *s, int functions, const char *const *extra);

/* End it and demand that it ends well (no crash, no leak under a sanitizer). */
void server_stop(struct server *s);

/* It must be running. */
void server_lives(const struct server *s);

#endif
