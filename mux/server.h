/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef MUX_SERVER_H
#define MUX_SERVER_H

struct config;

/*
 * Runs the daemon with a configuration, which it takes over, until a signal or the control socket ends it. Returns the process's
 * exit status; what went wrong has been said on stderr. To be called once in a process, before any thread was started.
 */
int server_run(struct config *cfg);

#endif
