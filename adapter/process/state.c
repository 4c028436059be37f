// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The settings of this process, and its messages. */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "adapter/process/settings.h"

static struct settings settings;
static pthread_once_t settings_once = PTHREAD_ONCE_INIT;

/* A whole line in one system call, so that lines of several processes do not mix. */
static void put_line(char *line, size_t len, size_t size)
{
	if (len > size - 2)
		len = size - 2;
	line[len++] = '\n';
	syscall(SYS_write, STDERR_FILENO, line, len);
}

static void settings_read(void)
{
	const char *text = getenv(SETTINGS_ENV);
	char err[256], line[512];

	settings_init(&settings);
	if (!text || settings_parse(&settings, text, err, sizeof(err)))
		return;
	/* The program would run with other devices than its user asked for: do not let it start. */
	put_line(line, snprintf(line, sizeof(line), "erdma-host: bad %s: %s", SETTINGS_ENV, err),
		 sizeof(line));
	_exit(2);
}

const struct settings *settings_get(void)
{
	pthread_once(&settings_once, settings_read);
	return &settings;
}

const struct host_settings *host_settings(void)
{
	return &settings_get()->pub;
}

void host_log(enum host_log_level level, const char *fmt, ...)
{
	int saved_errno = errno;
	char line[512];
	va_list args;
	size_t len;

	if (level <= host_settings()->log_level) {
		len = snprintf(line, sizeof(line), "erdma-host: ");
		va_start(args, fmt);
		len += vsnprintf(line + len, sizeof(line) - len, fmt, args);
		va_end(args);
		put_line(line, len, sizeof(line));
	}
	errno = saved_errno;
}
