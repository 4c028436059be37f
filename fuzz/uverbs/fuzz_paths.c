// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Paths into the virtual tree, and the text of ERDMA_HOST, from arbitrary bytes.
 *
 * Only calls that change nothing are made: a path may well lead out of the tree.  Answers about one
 * path must agree.
 */
#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "adapter/process/settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(const char *path)
{
	char real[PATH_MAX], link[PATH_MAX];
	struct stat st, again;
	struct dirent *entry;
	ssize_t len;
	DIR *dir;

	if (!lstat(path, &st) && S_ISLNK(st.st_mode)) {
		len = readlink(path, link, sizeof(link));
		if (len <= 0)
			abort();
	}
	if (stat(path, &st) || !realpath(path, real))
		return;
	/* what the path leads to is what its real path names */
	if (stat(real, &again) || again.st_ino != st.st_ino || again.st_mode != st.st_mode) {
		/* below /proc things come and go */
		if (!strncmp(real, "/sys/", 5))
			abort();
		return;
	}
	if (!S_ISDIR(st.st_mode) || strncmp(real, "/sys/", 5))
		return;
	dir = opendir(path);
	if (!dir)
		return;
	while ((entry = readdir(dir)))
		;
	closedir(dir);
}

static void parse(const char *text)
{
	char err[256], out[8192], again[8192];
	struct settings set, copy;

	settings_init(&set);
	if (!settings_parse(&set, text, err, sizeof(err))) {
		if (!err[0])
			abort();
		return;
	}
	/* what was understood can be told, and is then understood the same way */
	if (!settings_format(&set, out, sizeof(out)))
		return;
	settings_init(&copy);
	if (!settings_parse(&copy, out, err, sizeof(err)) ||
	    !settings_format(&copy, again, sizeof(again)) || strcmp(out, again))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const starts[] = {
		"/sys/class/infiniband/erdma_0/",
		"/sys/class/",
		"/sys/",
		"/dev/infiniband/",
		"/",
		"/sys/bus/pci/devices/ed0a:00:00.0/",
	};
	char text[PATH_MAX + 64];
	unsigned int which;

	if (!size || size > PATH_MAX)
		return 0;
	which = data[0] % 8;
	if (which < 6) {
		snprintf(text, sizeof(text), "%s%.*s", starts[which], (int)size - 1,
			 (const char *)data + 1);
		look(text);
	} else {
		memcpy(text, data + 1, size - 1);
		text[size - 1] = 0;
		parse(text);
	}
	return 0;
}
