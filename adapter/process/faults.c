// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The handler of SIGSEGV and SIGBUS, and the calls by which a program sets its own. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include "adapter/core/umem.h"
#include "adapter/process/faults.h"
#include "adapter/process/fdtab.h"
#include "adapter/process/libc.h"

/* What the program wants done at each of the two signals. */
static struct own {
	int sig;
	struct sigaction act;
} owns[] = { { .sig = SIGSEGV }, { .sig = SIGBUS } };

static bool caught;

/* Here, so that the handler finds the address looked up already. */
static int next_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	return REAL(sigaction)(sig, act, old);
}

static int next_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	return REAL(pthread_sigmask)(how, set, old);
}

static struct own *own_of(int sig)
{
	return sig == SIGSEGV ? &owns[0] : sig == SIGBUS ? &owns[1] : NULL;
}

/* ------------------------------------------------------------------ the handler */

static uintptr_t *pc_of(ucontext_t *uc)
{
#if defined(__x86_64__)
	return (uintptr_t *)&uc->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
	return (uintptr_t *)&uc->uc_mcontext.pc;
#else
	static __thread uintptr_t none;

	(void)uc;
	return &none;
#endif
}

/* As if no handler had been there: after the return a fault comes again and finds none. */
static void default_action(int sig, const siginfo_t *info)
{
	struct sigaction act = { .sa_handler = SIG_DFL };

	next_sigaction(sig, &act, NULL);
	if (info->si_code <= 0)
		syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), sig);
}

static void pass_on(int sig, siginfo_t *info, void *ctx)
{
	struct own *own = own_of(sig);
	struct sigaction act = own->act;
	sigset_t mask, old;

	/* ignored is only what somebody has sent */
	if (act.sa_handler == SIG_IGN && info->si_code <= 0)
		return;
	if (act.sa_handler == SIG_DFL || act.sa_handler == SIG_IGN) {
		default_action(sig, info);
		return;
	}
	if (act.sa_flags & SA_RESETHAND)
		own->act.sa_handler = SIG_DFL;
	mask = act.sa_mask;
	if (!(act.sa_flags & SA_NODEFER))
		sigaddset(&mask, sig);
	next_sigmask(SIG_BLOCK, &mask, &old);
	if (act.sa_flags & SA_SIGINFO)
		act.sa_sigaction(sig, info, ctx);
	else
		act.sa_handler(sig);
	next_sigmask(SIG_SETMASK, &old, NULL);
}

static void on_fault(int sig, siginfo_t *info, void *ctx)
{
	int saved_errno = errno;

	if (info->si_code <= 0 || !ea_umem_recover(pc_of(ctx)))
		pass_on(sig, info, ctx);
	errno = saved_errno;
}

static void install(void)
{
	struct sigaction act = {
		.sa_sigaction = on_fault,
		.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART,
	};
	sigset_t none;
	size_t i;

	sigemptyset(&act.sa_mask);
	sigemptyset(&none);
	next_sigmask(SIG_BLOCK, &none, NULL);
	for (i = 0; i < sizeof(owns) / sizeof(owns[0]); i++) {
		/* known before the handler can need it */
		next_sigaction(owns[i].sig, NULL, &owns[i].act);
		next_sigaction(owns[i].sig, &act, NULL);
	}
	__atomic_store_n(&caught, true, __ATOMIC_RELEASE);
}

void faults_catch(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, install);
}

/* ------------------------------------------------------------------ what the program calls */

/* No lock: these may be called in a signal handler and in the child of fork(). */
static bool is_caught(int sig)
{
	/* the child of vfork() has handlers of its own, but our memory is its parent's */
	return own_of(sig) && __atomic_load_n(&caught, __ATOMIC_ACQUIRE) && !fdtab_foreign();
}

INTERPOSE int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction before;
	struct own *own;

	if (!is_caught(sig))
		return next_sigaction(sig, act, old);
	own = own_of(sig);
	before = own->act;
	if (act)
		own->act = *act;
	if (old)
		*old = before;
	return 0;
}

INTERPOSE sighandler_t signal(int sig, sighandler_t handler)
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = SA_RESTART }, old;

	if (!is_caught(sig))
		return REAL(signal)(sig, handler);
	sigemptyset(&act.sa_mask);
	sigaction(sig, &act, &old);
	return old.sa_handler;
}

/* @set without the two signals, where @how would block them. */
static const sigset_t *unblocked(int how, const sigset_t *set, sigset_t *copy)
{
	if (!set || how == SIG_UNBLOCK)
		return set;
	*copy = *set;
	sigdelset(copy, SIGSEGV);
	sigdelset(copy, SIGBUS);
	return copy;
}

INTERPOSE int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	sigset_t copy;

	return next_sigmask(how, unblocked(how, set, &copy), old);
}

INTERPOSE int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	sigset_t copy;

	return REAL(sigprocmask)(how, unblocked(how, set, &copy), old);
}
