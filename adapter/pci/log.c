// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "adapter/pci/log.h"

static enum pci_log_level log_level = PCI_LOG_INFO;

void pci_log_set_level(enum pci_log_level level)
{
	log_level = level;
}

/* Who reads the log may have stopped; a write would wait for him, and with it all machines. */
static bool writable(void)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };

	return poll(&p, 1, 0) == 1;
}

void pci_log(enum pci_log_level level, const char *who, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	if (level > log_level || !writable())
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	fprintf(stderr, "erdma-pci: %s%s%s\n", who ? who : "", who ? ": " : "", line);
}

bool pci_log_allow(struct pci_log_budget *budget, uint64_t now_ns, const char *who)
{
	static const uint64_t window_ns = 10000000000ull;
	static const uint32_t burst = 20;

	if (now_ns - budget->since_ns > window_ns) {
		budget->since_ns = now_ns;
		budget->used = 0;
	}
	if (budget->used > burst)
		return false;
	if (budget->used++ == burst) {
		pci_log(PCI_LOG_INFO, who, "more messages of this kind are left out");
		return false;
	}
	return true;
}
