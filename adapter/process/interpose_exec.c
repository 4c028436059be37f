// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Programs that a program starts see the same devices, also where it gives them an environment of
 * its own making.
 *
 * These calls come from children of vfork() too: no memory but the stack, no lock, no shared state.
 */
#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "adapter/process/libc.h"
#include "adapter/process/settings.h"
#include "adapter/process/vfs.h"

enum {
	ENV_TEXT_MAX = 8192
};

extern char **environ;

#define PRELOAD "LD_PRELOAD="
#define HOST	SETTINGS_ENV "="
#define DRIVERS "RDMAV_DRIVERS="

/* made before main(), constant after */
static char preload_entry[SETTINGS_MAX_PATH]; /* LD_PRELOAD=this library */
static char host_entry[ENV_TEXT_MAX];
static char drivers_entry[SETTINGS_MAX_PATH + sizeof(DRIVERS)];
static const char *self_path; /* in preload_entry */

__attribute__((constructor)) static void remember_environment(void)
{
	const struct settings *set = settings_get();
	size_t used = strlen(HOST);
	Dl_info info;

	if (!dladdr((void *)&remember_environment, &info) || !info.dli_fname ||
	    info.dli_fname[0] != '/' ||
	    strlen(PRELOAD) + strlen(info.dli_fname) >= sizeof(preload_entry))
		return;
	snprintf(preload_entry, sizeof(preload_entry), PRELOAD "%s", info.dli_fname);
	memcpy(host_entry, HOST, used);
	if (!settings_format(set, host_entry + used, sizeof(host_entry) - used))
		return;
	if (set->drivers[0])
		snprintf(drivers_entry, sizeof(drivers_entry), DRIVERS "%s", set->drivers);
	self_path = preload_entry + strlen(PRELOAD);
}

static const char *entry_of(char *const env[], const char *name)
{
	size_t len = strlen(name);

	for (; env && *env; env++) {
		if (!strncmp(*env, name, len))
			return *env + len;
	}
	return NULL;
}

static size_t count_of(char *const list[])
{
	size_t count = 0;

	while (list && list[count])
		count++;
	return count;
}

/* Is @path one of the colon or space separated entries of @list? */
static bool holds(const char *list, const char *path)
{
	size_t len = strlen(path), part;

	while (*list) {
		part = strcspn(list, ": ");
		if (part == len && !memcmp(list, path, len))
			return true;
		list += part + (list[part] != 0);
	}
	return false;
}

/* Nothing to add: the usual case. */
static bool complete(char *const env[])
{
	const char *preload;

	if (!self_path)
		return true;
	if (vfs_cwd_entry()[0] || entry_of(env, VFS_CWD_ENV))
		return false;
	preload = entry_of(env, PRELOAD);
	return preload && holds(preload, self_path) && entry_of(env, HOST) &&
	       (!drivers_entry[0] || entry_of(env, DRIVERS));
}

/*
 * The environment @env with what is missing, in @room (count_of(env) + 4 pointers); @text takes an
 * LD_PRELOAD of both ours and the program's.
 */
static char **add_missing(char *const env[], char **room, char *text)
{
	const char *preload = entry_of(env, PRELOAD);
	size_t count = 0;
	char *end;

	for (; env && *env; env++) {
		if (strncmp(*env, PRELOAD, strlen(PRELOAD)) &&
		    strncmp(*env, VFS_CWD_ENV, strlen(VFS_CWD_ENV)))
			room[count++] = *env;
	}
	if (!preload || !*preload) {
		room[count++] = preload_entry;
	} else if (holds(preload, self_path)) {
		room[count++] = (char *)preload - strlen(PRELOAD);
	} else {
		end = stpcpy(text, preload_entry);
		*end++ = ':';
		strcpy(end, preload);
		room[count++] = text;
	}
	if (!entry_of(room, HOST))
		room[count++] = host_entry;
	room[count] = NULL;
	if (drivers_entry[0] && !entry_of(room, DRIVERS))
		room[count++] = drivers_entry;
	/* a working directory the kernel does not know of */
	if (vfs_cwd_entry()[0])
		room[count++] = (char *)vfs_cwd_entry();
	room[count] = NULL;
	return room;
}

/* On the caller's stack. */
#define FULL_ENVIRONMENT(env)                                                    \
	(complete(env) ?                                                         \
		 (char **)(env) :                                                \
		 add_missing(                                                    \
			 env,                                                    \
			 memset(alloca((count_of(env) + 5) * sizeof(char *)), 0, \
				(count_of(env) + 5) * sizeof(char *)),           \
			 alloca(sizeof(preload_entry) + 2 +                      \
				(entry_of(env, PRELOAD) ? strlen(entry_of(env, PRELOAD)) : 0))))

INTERPOSE int execve(const char *path, char *const argv[], char *const envp[])
{
	return REAL(execve)(path, argv, FULL_ENVIRONMENT(envp));
}

INTERPOSE int execv(const char *path, char *const argv[])
{
	return REAL(execve)(path, argv, FULL_ENVIRONMENT(environ));
}

INTERPOSE int execvpe(const char *file, char *const argv[], char *const envp[])
{
	return REAL(execvpe)(file, argv, FULL_ENVIRONMENT(envp));
}

INTERPOSE int execvp(const char *file, char *const argv[])
{
	return REAL(execvpe)(file, argv, FULL_ENVIRONMENT(environ));
}

INTERPOSE int fexecve(int fd, char *const argv[], char *const envp[])
{
	return REAL(fexecve)(fd, argv, FULL_ENVIRONMENT(envp));
}

INTERPOSE int execveat(int dirfd, const char *path, char *const argv[], char *const envp[],
		       int flags)
{
	return REAL(execveat)(dirfd, path, argv, FULL_ENVIRONMENT(envp), flags);
}

/* The list forms.  @args stands behind @first. */
#define COLLECT(argv, first, last)                                       \
	do {                                                             \
		size_t n_ = 1;                                           \
		va_list args_;                                           \
                                                                         \
		va_start(args_, last);                                   \
		while (va_arg(args_, char *))                            \
			n_++;                                            \
		va_end(args_);                                           \
		(argv) = alloca((n_ + 1) * sizeof(char *));              \
		(argv)[0] = (char *)(first);                             \
		va_start(args_, last);                                   \
		for (n_ = 1; ((argv)[n_] = va_arg(args_, char *)); n_++) \
			;                                                \
		va_end(args_);                                           \
	} while (0)

INTERPOSE int execl(const char *path, const char *arg, ...)
{
	char **argv;

	COLLECT(argv, arg, arg);
	return REAL(execve)(path, argv, FULL_ENVIRONMENT(environ));
}

INTERPOSE int execlp(const char *file, const char *arg, ...)
{
	char **argv;

	COLLECT(argv, arg, arg);
	return REAL(execvpe)(file, argv, FULL_ENVIRONMENT(environ));
}

INTERPOSE int execle(const char *path, const char *arg, ...)
{
	char **argv, **envp;
	va_list args;

	COLLECT(argv, arg, arg);
	/* the environment follows the end of the list */
	va_start(args, arg);
	while (va_arg(args, char *))
		;
	envp = va_arg(args, char **);
	va_end(args);
	return REAL(execve)(path, argv, FULL_ENVIRONMENT(envp));
}

INTERPOSE int posix_spawn(pid_t *restrict pid, const char *restrict path,
			  const posix_spawn_file_actions_t *restrict actions,
			  const posix_spawnattr_t *restrict attr, char *const argv[restrict],
			  char *const envp[restrict])
{
	return REAL(posix_spawn)(pid, path, actions, attr, argv, FULL_ENVIRONMENT(envp));
}

INTERPOSE int posix_spawnp(pid_t *restrict pid, const char *restrict file,
			   const posix_spawn_file_actions_t *restrict actions,
			   const posix_spawnattr_t *restrict attr, char *const argv[restrict],
			   char *const envp[restrict])
{
	return REAL(posix_spawnp)(pid, file, actions, attr, argv, FULL_ENVIRONMENT(envp));
}
