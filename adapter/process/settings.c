// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The text of ERDMA_HOST: parsed strictly, written by erdma-run and for the programs that a program
 * starts.
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "adapter/process/settings.h"

static const char *const mode_names[] = { [HOST_IWARP] = "iwarp", [HOST_ROCE] = "roce" };
static const char *const switch_names[] = { "off", "on" };
static const char *const level_names[] = {
	[HOST_LOG_OFF] = "off",
	[HOST_LOG_ERROR] = "error",
	[HOST_LOG_INFO] = "info",
	[HOST_LOG_DEBUG] = "debug",
};

#define NAMES(table) table, sizeof(table) / sizeof(table[0])

void settings_init(struct settings *set)
{
	memset(set, 0, sizeof(*set));
	set->pub.mode = HOST_IWARP;
	set->pub.netlink = true;
	set->pub.log_level = HOST_LOG_ERROR;
}

static bool complain(char *err, size_t size, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static bool complain(char *err, size_t size, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(err, size, fmt, args);
	va_end(args);
	return false;
}

/* Index of @value in @names, or -1 with the possible values in @err. */
static int choose(const char *key, const char *value, const char *const *names, size_t count,
		  char *err, size_t size)
{
	char all[128] = "";
	size_t i;

	for (i = 0; i < count; i++) {
		if (!strcmp(value, names[i]))
			return i;
		if (i)
			strcat(all, i + 1 == count ? " or " : ", ");
		strcat(all, names[i]);
	}
	complain(err, size, "%s is \"%.64s\"; give %s", key, value, all);
	return -1;
}

void settings_device_name(const struct settings_device *dev, uint8_t index, bool umad,
			  char name[SETTINGS_NAME_ROOM])
{
	if (dev->name[0])
		strcpy(name, dev->name);
	else
		snprintf(name, SETTINGS_NAME_ROOM, "%s_%u", umad ? "roce" : "erdma", index);
}

static bool name_is_taken(const char *name, const struct settings_device *list, unsigned int count,
			  bool umad)
{
	char other[SETTINGS_NAME_ROOM];
	unsigned int i;

	for (i = 0; i < count; i++) {
		settings_device_name(&list[i], i, umad, other);
		if (!strcmp(name, other))
			return true;
	}
	return false;
}

/* Add what @value describes to the adapters, or to the devices with a user-MAD interface. */
static bool set_device(struct settings *set, bool umad, const char *value, char *err, size_t size)
{
	struct settings_device *list = umad ? set->umads : set->devices;
	unsigned int *count = umad ? &set->numads : &set->ndevices;
	char mine[SETTINGS_NAME_ROOM];
	struct settings_device *dev;
	const char *comma = strchr(value, ',');
	size_t len = comma ? (size_t)(comma - value) : strlen(value);

	if (*count == SETTINGS_MAX_DEVICES)
		return complain(err, size, "more than %d devices", SETTINGS_MAX_DEVICES);
	dev = &list[*count];
	memset(dev, 0, sizeof(*dev));
	if (len >= sizeof(dev->where))
		return complain(
			err, size,
			"device \"%.64s...\": the name of an interface or an address is expected",
			value);
	memcpy(dev->where, value, len);
	if (strpbrk(dev->where, ";/ "))
		return complain(err, size,
				"device \"%s\": the name of an interface or an address is expected",
				dev->where);
	if (comma) {
		const char *name = comma + 1, *c;

		if (strncmp(name, "name=", 5))
			return complain(err, size,
					"device \"%.64s\": \"%.32s\" is unknown; give name=NAME",
					dev->where, name);
		name += 5;
		if (!*name || strlen(name) >= sizeof(dev->name))
			return complain(err, size,
					"device name \"%.32s\": 1 to %zu characters are expected",
					name, sizeof(dev->name) - 1);
		for (c = name; *c; c++) {
			if (!isalnum((unsigned char)*c) && *c != '_' && *c != '-')
				return complain(
					err, size,
					"device name \"%s\": letters, digits, _ and - are allowed",
					name);
		}
		strcpy(dev->name, name);
	}
	if (!dev->where[0] && (umad || !dev->name[0]))
		return complain(err, size, "device is empty; give an interface or an address");
	settings_device_name(dev, *count, umad, mine);
	if (name_is_taken(mine, set->devices, set->ndevices, false) ||
	    name_is_taken(mine, set->umads, set->numads, true))
		return complain(
			err, size,
			"two devices are named \"%s\"; one without a name is %s_ and its place in the list",
			mine, umad ? "roce" : "erdma");
	++*count;
	return true;
}

bool settings_set(struct settings *set, const char *key, const char *value, char *err, size_t size)
{
	int found;

	if (!strcmp(key, "mode")) {
		found = choose(key, value, NAMES(mode_names), err, size);
		set->pub.mode = found;
	} else if (!strcmp(key, "netlink")) {
		found = choose(key, value, NAMES(switch_names), err, size);
		set->pub.netlink = found;
	} else if (!strcmp(key, "crc")) {
		found = choose(key, value, NAMES(switch_names), err, size);
		set->pub.crc = found;
	} else if (!strcmp(key, "log")) {
		found = choose(key, value, NAMES(level_names), err, size);
		set->pub.log_level = found;
	} else if (!strcmp(key, "mulpdu")) {
		char *end;
		unsigned long number = strtoul(value, &end, 10);

		if (!isdigit((unsigned char)value[0]) || *end ||
		    (number && (number < SETTINGS_MIN_MULPDU || number > SETTINGS_MAX_MULPDU)))
			return complain(
				err, size,
				"mulpdu is \"%.32s\"; give %d to %d bytes, or 0 for the usual size",
				value, SETTINGS_MIN_MULPDU, SETTINGS_MAX_MULPDU);
		set->pub.mulpdu = number;
		found = 0;
	} else if (!strcmp(key, "drivers")) {
		if (strlen(value) >= sizeof(set->drivers) || strpbrk(value, ";\n"))
			return complain(err, size,
					"drivers is too long or holds a semicolon: \"%.64s\"",
					value);
		strcpy(set->drivers, value);
		found = 0;
	} else if (!strcmp(key, "device")) {
		return set_device(set, false, value, err, size);
	} else if (!strcmp(key, "umad")) {
		return set_device(set, true, value, err, size);
	} else {
		return complain(err, size, "\"%.64s\" is no setting", key);
	}
	return found >= 0;
}

bool settings_parse(struct settings *set, const char *text, char *err, size_t size)
{
	char item[SETTINGS_MAX_PATH + 32];
	const char *end;
	char *equals;
	size_t len;

	for (; *text; text = *end ? end + 1 : end) {
		end = strchrnul(text, ';');
		len = end - text;
		if (!len)
			continue;
		if (len >= sizeof(item))
			return complain(err, size, "an item of %zu characters is too long", len);
		memcpy(item, text, len);
		item[len] = 0;
		equals = strchr(item, '=');
		if (!equals)
			return complain(err, size, "\"%.64s\" has no value", item);
		*equals = 0;
		if (!settings_set(set, item, equals + 1, err, size))
			return false;
	}
	return true;
}

/* Add an item @key for each of @list to the @len bytes in @buf.  As snprintf() the length, or too much. */
static size_t format_devices(const char *key, const struct settings_device *list,
			     unsigned int count, char *buf, size_t size, size_t len)
{
	unsigned int i;

	for (i = 0; i < count && len < size; i++)
		len += snprintf(buf + len, size - len, ";%s=%s%s%s", key, list[i].where,
				list[i].name[0] ? ",name=" : "", list[i].name);
	return len;
}

bool settings_format(const struct settings *set, char *buf, size_t size)
{
	size_t len;

	len = snprintf(buf, size, "mode=%s;netlink=%s;crc=%s;mulpdu=%u;log=%s",
		       mode_names[set->pub.mode], switch_names[set->pub.netlink],
		       switch_names[set->pub.crc], set->pub.mulpdu,
		       level_names[set->pub.log_level]);
	if (set->drivers[0] && len < size)
		len += snprintf(buf + len, size - len, ";drivers=%s", set->drivers);
	len = format_devices("device", set->devices, set->ndevices, buf, size, len);
	len = format_devices("umad", set->umads, set->numads, buf, size, len);
	return len < size;
}
