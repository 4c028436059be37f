// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "mux/log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOG_LINE_MAX 1024

static const char *const level_names[] = {
	[LOG_ERR] = "err",   [LOG_WARNING] = "warning", [LOG_NOTICE] = "notice",
	[LOG_INFO] = "info", [LOG_DEBUG] = "debug",
};

static int log_level = LOG_INFO;

void log_set_level(int level)
{
	log_level = level;
}

int log_get_level(void)
{
	return log_level;
}

int log_level_parse(const char *text)
{
	for (int i = LOG_ERR; i <= LOG_DEBUG; i++)
		if (strcmp(text, level_names[i]) == 0)
			return i;
	return -1;
}

static bool writable(void)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };

	return poll(&p, 1, 0) == 1;
}

void log_line(struct log_site *site, int level, const char *fmt, ...)
{
	char line[LOG_LINE_MAX];
	struct timespec ts;
	size_t len = 0;
	uint64_t now;
	va_list ap;
	int n;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	now = (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
	if (now - site->since_ms >= LOG_INTERVAL_MS) {
		site->since_ms = now;
		site->count = 0;
	}
	/* Who reads the log may have stopped; a write would wait for him. */
	if (site->count++ >= LOG_BURST || !writable()) {
		site->left_out++;
		return;
	}
	if (getenv("JOURNAL_STREAM"))
		len = (size_t)snprintf(line, sizeof(line), "<%d>", level);
	else
		len = (size_t)snprintf(line, sizeof(line), "rdmacm-mux: level=%s ",
				       level_names[level]);
	va_start(ap, fmt);
	n = vsnprintf(line + len, sizeof(line) - len - 32, fmt, ap);
	va_end(ap);
	if (n < 0)
		return;
	len += (size_t)n < sizeof(line) - len - 32 ? (size_t)n : sizeof(line) - len - 33;
	if (site->left_out) {
		len += (size_t)snprintf(line + len, sizeof(line) - len - 1, " left_out=%u",
					site->left_out);
		site->left_out = 0;
	}
	line[len++] = '\n';
	/* One write, so that lines of several processes stay whole. */
	if (write(STDERR_FILENO, line, len) < 0)
		return;
}
