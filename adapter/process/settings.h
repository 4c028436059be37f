/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Settings on their way from erdma-run to the library in the program: one environment variable,
 *
 *   ERDMA_HOST="mode=iwarp;netlink=on;crc=off;mulpdu=0;log=error;drivers=PATH;device=eth0,name=erdma_0;umad=eth0,name=roce_0"
 *
 * Items may be left out and come in any order; "device" and "umad" may be repeated.  Everything
 * else is an error.
 */
#ifndef EA_SETTINGS_H
#define EA_SETTINGS_H

#include <net/if.h>
#include <stddef.h>
#include "adapter/process/host.h"

#define SETTINGS_ENV "ERDMA_HOST"

enum {
	SETTINGS_MAX_DEVICES = 16,
	SETTINGS_MAX_PATH = 1024,
	SETTINGS_MAX_MULPDU = 16384,
	SETTINGS_MIN_MULPDU = 128,
	SETTINGS_NAME_ROOM = 16, /* with the terminating 0 */
};

struct settings_device {
	char where[64];		       /* interface name or address; empty: the default interface */
	char name[SETTINGS_NAME_ROOM]; /* empty: see settings_device_name() */
};

struct settings {
	struct host_settings pub;
	unsigned int ndevices; /* 0: one device with default values */
	struct settings_device devices[SETTINGS_MAX_DEVICES];
	unsigned int numads; /* devices with a user-MAD interface */
	struct settings_device umads[SETTINGS_MAX_DEVICES];
	char drivers[SETTINGS_MAX_PATH]; /* for RDMAV_DRIVERS; empty: leave alone */
};

/* Default values. */
void settings_init(struct settings *set);

/* One item; false with a message that names the item and the value in @err. */
bool settings_set(struct settings *set, const char *key, const char *value, char *err, size_t size);

/*
 * What the device at place @index of its list is called: as it says, or erdma_<index>, or roce_<index>
 * when it is one @umad.
 */
void settings_device_name(const struct settings_device *dev, uint8_t index, bool umad,
			  char name[SETTINGS_NAME_ROOM]);

/* All of the variable's text; stops at the first error. */
bool settings_parse(struct settings *set, const char *text, char *err, size_t size);

/* The variable's text (without "ERDMA_HOST=") into @buf; false when it does not fit. */
bool settings_format(const struct settings *set, char *buf, size_t size);

/*
 * Those of this process (library only): read from the environment at first use; a bad text ends the
 * process.
 */
const struct settings *settings_get(void);

#endif
