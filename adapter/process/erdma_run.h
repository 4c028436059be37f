/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* erdma-run's look at a program before it starts it. */
#ifndef EA_ERDMA_RUN_H
#define EA_ERDMA_RUN_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum run_verdict {
	RUN_FINE,
	RUN_NOT_FOUND, /* exit code 127 */
	RUN_CANNOT,    /* exit code 126: found, but the adapter would not be in it */
};

/* What is known of a program. */
struct run_program {
	char path[PATH_MAX];
	/* library that insists on coming before all others (a sanitizer's); empty: none */
	char first[64];
};

/*
 * Find @name as the shell would and see whether a library can be preloaded into it.  Anything but
 * RUN_FINE comes with a message in @err that names the cause.
 */
enum run_verdict run_check(const char *name, struct run_program *program, char *err,
			   size_t err_size);

#endif
