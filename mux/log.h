/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Structured, rate-limited log lines on standard error.
 *
 * One line is `key=value ...`: an event name first, then what belongs to it. Under systemd (JOURNAL_STREAM
 * is set) each line starts with the "<n>" level mark that the journal takes off. Each call site may
 * write LOG_BURST lines in LOG_INTERVAL_MS; the first line after that says how many were left out.
 *
 * Only the event loop's thread logs.
 */
#ifndef MUX_LOG_H
#define MUX_LOG_H

#include <stdint.h>
#include <syslog.h>

#define LOG_BURST	10
#define LOG_INTERVAL_MS 5000

struct log_site {
	uint64_t since_ms;
	unsigned int count;
	unsigned int left_out;
};

/* Lines less urgent than level (LOG_ERR .. LOG_DEBUG) are dropped. Default LOG_INFO. */
void log_set_level(int level);
int log_get_level(void);
/* Parses "err", "warning", "notice", "info" or "debug"; -1 for others. */
int log_level_parse(const char *text);

void log_line(struct log_site *site, int level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* fmt is "event=name key=%s ..."; texts that may hold blanks stand in double quotes. */
#define mux_log(level, ...)                                         \
	do {                                                        \
		static struct log_site log_site_;                   \
		if ((level) <= log_get_level())                     \
			log_line(&log_site_, (level), __VA_ARGS__); \
	} while (0)

#define log_err(...)	mux_log(LOG_ERR, __VA_ARGS__)
#define log_warn(...)	mux_log(LOG_WARNING, __VA_ARGS__)
#define log_notice(...) mux_log(LOG_NOTICE, __VA_ARGS__)
#define log_info(...)	mux_log(LOG_INFO, __VA_ARGS__)
#define log_debug(...)	mux_log(LOG_DEBUG, __VA_ARGS__)

#endif
