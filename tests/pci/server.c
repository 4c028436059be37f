// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/pci/server.h"

void server_start(struct server *s, int functions, const char *const *extra)
{
	char args[8][128], line[16] = "";
	const char *argv[32] = { ERDMA_PCI, "-q" };
	int i, n = 2, out[2];

	strcpy(s->dir, "/tmp/erdma-pci-test-XXXXXX");
	assert_non_null(mkdtemp(s->dir));
	assert_true(functions <= 8);
	for (i = 0; i < functions; i++) {
		snprintf(args[i], sizeof(args[i]), "%s/%d," SERVER_MAC, s->dir, i);
		argv[n++] = "-f";
		argv[n++] = args[i];
	}
	while (extra && *extra)
		argv[n++] = *extra++;
	assert_int_equal(pipe(out), 0);
	s->pid = fork();
	assert_true(s->pid >= 0);
	if (!s->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], STDOUT_FILENO);
		close(out[0]);
		close(out[1]);
		execv(argv[0], (char **)(uintptr_t)argv);
		_exit(127);
	}
	close(out[1]);
	assert_int_equal(read(out[0], line, sizeof(line)), 6);
	assert_memory_equal(line, "ready\n", 6);
	close(out[0]);
}

void server_lives(const struct server *s)
{
	int status;

	assert_int_equal(waitpid(s->pid, &status, WNOHANG), 0);
}

void server_stop(struct server *s)
{
	int status;

	server_lives(s);
	assert_int_equal(kill(s->pid, SIGTERM), 0);
	assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
	if (status)
		fail_msg("the server ended with status %#x", status);
	/* it has removed its sockets */
	assert_int_equal(rmdir(s->dir), 0);
}
