/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The daemon around what a fuzzer drives: one port, and neither threads nor a table of GIDs, so that one input always does the
 * same. What is sent and which GIDs there are is the fuzzer's: it defines sender_post(), sender_probe(), sender_probe_done(),
 * gidtable_index() and gidtable_gid().
 */
#ifndef FUZZ_MUX_DAEMON_H
#define FUZZ_MUX_DAEMON_H

#include "mux/mux.h"

/* A daemon whose port is up and sends with @tx. @options, up to a NULL, are as behind -o. */
struct mux *fuzz_daemon(struct sender *tx, const char *const *options);

#endif
