/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Faults in registered memory that the program has given back behind our back: a handler of SIGSEGV and
 * SIGBUS in front of the program's own.
 *
 * The handler comes with the first registered region.  From then on sigaction() and signal() set and tell
 * the program's handlers for these signals, which get all faults but those of the adapter's copies
 * (umem.h), as if ours were not there.  A thread never blocks these two signals: the kernel would end the
 * program at a fault instead of asking anyone.
 *
 * A program that sets its handlers by system call, as the Go run-time does after its start, takes ours away;
 * then a transfer into memory that it has freed ends it, as any access of its own would.
 */
#ifndef EA_FAULTS_H
#define EA_FAULTS_H

/* Install the handler.  Any thread; idempotent. */
void faults_catch(void);

#endif
