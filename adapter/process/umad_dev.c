// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The devices with a user-MAD interface, and their GID tables. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include "adapter/process/gid.h"
#include "adapter/process/settings.h"
#include "adapter/process/umad.h"

static struct umad_dev devices[SETTINGS_MAX_DEVICES];
static int device_count;
static pthread_once_t device_once = PTHREAD_ONCE_INIT;

/* guards the tables that umad_gid_table() keeps */
static pthread_mutex_t gid_lock = PTHREAD_MUTEX_INITIALIZER;
static struct umad_gid tables[SETTINGS_MAX_DEVICES][UMAD_GIDS];

static bool gid_from_text(const char *text, uint8_t gid[HOST_GID_LEN])
{
	char host[sizeof(((struct settings_device *)0)->where)];
	struct in_addr in;

	snprintf(host, sizeof(host), "%.*s", (int)strcspn(text, "%"), text);
	if (inet_pton(AF_INET, host, &in) != 1)
		return inet_pton(AF_INET6, host, gid) == 1;
	gid_of_ipv4(gid, &in);
	return true;
}

static bool umad_dev_init(struct umad_dev *dev, const struct settings_device *set, int index)
{
	dev->dev.index = index;
	dev->dev.mode = HOST_ROCE;
	if (!device_describe(&dev->dev, set->where)) {
		host_log(HOST_LOG_ERROR, "umad \"%s\": no interface has this name or address",
			 set->where);
		return false;
	}
	dev->one_addr = strcmp(dev->dev.ifname, set->where) && gid_from_text(set->where, dev->addr);
	settings_device_name(set, index, true, dev->dev.name);
	return true;
}

static void devices_init(void)
{
	const struct settings *set = settings_get();
	int saved_errno = errno;
	unsigned int i;

	for (i = 0; i < set->numads; i++) {
		/* a place in the list is an index: one that cannot be had ends the list */
		if (!umad_dev_init(&devices[i], &set->umads[i], i))
			break;
		device_count++;
	}
	errno = saved_errno;
}

int umad_dev_count(void)
{
	pthread_once(&device_once, devices_init);
	return device_count;
}

struct umad_dev *umad_dev_get(int index)
{
	return index >= 0 && index < umad_dev_count() ? &devices[index] : NULL;
}

dev_t umad_dev_rdev(const struct umad_dev *dev)
{
	return makedev(DEVICE_UVERBS_MAJOR, UMAD_MINOR + dev->dev.index);
}

/* ------------------------------------------------------------------ GIDs */

static bool gid_from_addr(const struct sockaddr *sa, uint8_t gid[HOST_GID_LEN])
{
	if (!sa || (sa->sa_family != AF_INET && sa->sa_family != AF_INET6))
		return false;
	gid_of_sockaddr(gid, sa);
	return true;
}

/* Where the kernel's order of a new table has it: link-local, then IPv4, then other IPv6. */
static int gid_rank(const uint8_t gid[HOST_GID_LEN])
{
	if (gid_is_link_local(gid))
		return 0;
	return ea_gid_is_ipv4(gid) ? 1 : 2;
}

static void gid_note(struct umad_gid *table, bool *seen, const uint8_t *gid, int ifindex)
{
	int i, room = -1;

	for (i = UMAD_GIDS - 1; i >= 0; i--) {
		if (!table[i].ifindex)
			room = i;
		else if (!memcmp(table[i].gid, gid, HOST_GID_LEN))
			break;
	}
	if (i < 0) {
		if (room < 0)
			return;
		i = room;
		table[i].ifindex = ifindex;
		memcpy(table[i].gid, gid, HOST_GID_LEN);
	}
	seen[i] = true;
}

static void gids_of_interface(const struct umad_dev *dev, struct umad_gid *table, bool *seen)
{
	struct ifaddrs *list, *ifa;
	uint8_t gid[HOST_GID_LEN];
	int rank;

	if (getifaddrs(&list))
		return;
	for (rank = 0; rank < 3; rank++) {
		for (ifa = list; ifa; ifa = ifa->ifa_next) {
			/* an alias label counts: "eth0:1" is an address of eth0 */
			if (strncmp(ifa->ifa_name, dev->dev.ifname, strlen(dev->dev.ifname)) ||
			    (ifa->ifa_name[strlen(dev->dev.ifname)] != 0 &&
			     ifa->ifa_name[strlen(dev->dev.ifname)] != ':'))
				continue;
			if (gid_from_addr(ifa->ifa_addr, gid) && gid_rank(gid) == rank)
				gid_note(table, seen, gid, dev->dev.ifindex);
		}
	}
	freeifaddrs(list);
}

void umad_gid_table(struct umad_dev *dev, struct umad_gid table[UMAD_GIDS])
{
	struct umad_gid *kept = tables[dev->dev.index];
	bool seen[UMAD_GIDS] = { false };
	int saved_errno = errno, i;

	pthread_mutex_lock(&gid_lock);
	if (dev->one_addr)
		gid_note(kept, seen, dev->addr, dev->dev.ifindex);
	else
		gids_of_interface(dev, kept, seen);
	for (i = 0; i < UMAD_GIDS; i++) {
		if (!seen[i])
			memset(&kept[i], 0, sizeof(kept[i]));
	}
	memcpy(table, kept, sizeof(tables[0]));
	pthread_mutex_unlock(&gid_lock);
	errno = saved_errno;
}

void umad_fork_child(void)
{
	int i;

	pthread_mutex_init(&gid_lock, NULL);
	for (i = 0; i < SETTINGS_MAX_DEVICES; i++)
		devices[i].port = NULL;
}
