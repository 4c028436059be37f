// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Preloaded into the client of a server in a machine: each rdma_connect() comes half a second later.
 *
 * perftest with -R makes two connections, one behind the other, and its server begins to listen for the second
 * when the first has gone. A client outside the machine is so much faster that it would be refused.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

#define DELAY_NS 500000000

int rdma_connect(void *id, void *param);

int rdma_connect(void *id, void *param)
{
	static const struct timespec delay = { .tv_nsec = DELAY_NS };
	int (*real)(void *, void *);

	real = (int (*)(void *, void *))dlsym(RTLD_NEXT, "rdma_connect");
	nanosleep(&delay, NULL);
	return real(id, param);
}
