// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Devices: which interface each is paired with, its identity, addresses and GIDs. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <netpacket/packet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>
#include <infiniband/verbs.h>
#include "adapter/process/device.h"
#include "adapter/process/engine/engine.h"
#include "adapter/process/fdtab.h"
#include "adapter/process/gid.h"
#include "adapter/process/libc.h"
#include "adapter/process/regions.h"
#include "adapter/process/settings.h"
#include "adapter/process/uverbs.h"

enum {
	ADDR_LIFE_NS = 1000000000, /* how long the list of local addresses is believed */
	ADDR_MAX = 1024,
};

struct local_addr {
	int family;	  /* AF_INET or AF_INET6 */
	uint8_t addr[16]; /* network order; IPv4 in the first four */
	int ifindex;
	bool link_local;
};

struct gid_slot {
	bool used, seen;
	int ifindex;
	uint8_t gid[HOST_GID_LEN];
};

static struct host_dev devices[SETTINGS_MAX_DEVICES];
static struct gid_slot gids[SETTINGS_MAX_DEVICES][HOST_ROCE_GIDS];
static int device_count;
static pthread_once_t device_once = PTHREAD_ONCE_INIT;

/* guards what follows and the GID tables; also held while a device gets its model */
static pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER;
static struct local_addr *addrs;
static unsigned int addr_count;
static uint64_t addr_time; /* 0: never read */

/* ------------------------------------------------------------------ addresses of this host */

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static void addr_add(const struct ifaddrs *ifa)
{
	struct local_addr *la = &addrs[addr_count];

	if (addr_count == ADDR_MAX || !ifa->ifa_addr)
		return;
	memset(la, 0, sizeof(*la));
	la->family = ifa->ifa_addr->sa_family;
	if (la->family == AF_INET) {
		memcpy(la->addr, &((const struct sockaddr_in *)ifa->ifa_addr)->sin_addr, 4);
	} else if (la->family == AF_INET6) {
		const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)ifa->ifa_addr;

		memcpy(la->addr, &sin6->sin6_addr, 16);
		la->link_local = IN6_IS_ADDR_LINKLOCAL(&sin6->sin6_addr);
	} else {
		return;
	}
	la->ifindex = if_nametoindex(ifa->ifa_name);
	addr_count++;
}

/* device_lock held */
static void addrs_read(void)
{
	struct ifaddrs *list, *ifa;

	if (!addrs) {
		addrs = calloc(ADDR_MAX, sizeof(*addrs));
		if (!addrs)
			return;
	}
	if (getifaddrs(&list)) {
		host_log(HOST_LOG_ERROR, "cannot read the addresses of this host: %s",
			 strerror(errno));
		return;
	}
	addr_count = 0;
	for (ifa = list; ifa; ifa = ifa->ifa_next)
		addr_add(ifa);
	freeifaddrs(list);
	addr_time = now_ns();
}

static bool addrs_stale(void)
{
	return !addr_time || now_ns() - addr_time > ADDR_LIFE_NS;
}

static const struct local_addr *addr_find(int family, const uint8_t *addr, int scope)
{
	size_t len = family == AF_INET ? 4 : 16;
	unsigned int i;

	for (i = 0; i < addr_count; i++) {
		if (addrs[i].family == family && !memcmp(addrs[i].addr, addr, len) &&
		    (!addrs[i].link_local || !scope || addrs[i].ifindex == scope))
			return &addrs[i];
	}
	return NULL;
}

struct host_dev *host_dev_by_addr(const struct sockaddr *sa)
{
	struct host_dev *dev = NULL;
	int family = sa->sa_family, scope = 0, i, ifindex = 0;
	const struct local_addr *la;
	int saved_errno = errno;
	uint8_t addr[16];

	if (!host_dev_count())
		return NULL;
	if (family == AF_INET) {
		memcpy(addr, &((const struct sockaddr_in *)sa)->sin_addr, 4);
	} else if (family == AF_INET6) {
		const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)sa;

		memcpy(addr, &sin6->sin6_addr, 16);
		scope = sin6->sin6_scope_id;
		if (IN6_IS_ADDR_V4MAPPED(&sin6->sin6_addr)) {
			family = AF_INET;
			memmove(addr, addr + 12, 4);
		}
	} else {
		return NULL;
	}
	pthread_mutex_lock(&device_lock);
	if (addrs_stale())
		addrs_read();
	la = addr_find(family, addr, scope);
	if (!la && addr_time && now_ns() - addr_time > ADDR_LIFE_NS / 100) {
		addrs_read();
		la = addr_find(family, addr, scope);
	}
	if (la)
		ifindex = la->ifindex;
	pthread_mutex_unlock(&device_lock);
	/* all of 127.0.0.0/8 is local without being assigned */
	if (!ifindex && family == AF_INET && addr[0] == 127)
		ifindex = if_nametoindex("lo");
	errno = saved_errno;
	if (!ifindex)
		return NULL;
	for (i = 0; i < device_count; i++) {
		if (devices[i].ifindex == ifindex)
			return &devices[i];
		if (devices[i].any_addr && !dev)
			dev = &devices[i];
	}
	return dev;
}

/* ------------------------------------------------------------------ which interface */

static bool find_by_route(const char *path, bool v6, char ifname[IF_NAMESIZE])
{
	FILE *file = fopen(path, "re");
	unsigned long best = ~0ul, metric, flags;
	char line[512], name[IF_NAMESIZE];
	bool found = false;

	if (!file)
		return false;
	while (fgets(line, sizeof(line), file)) {
		if (v6) {
			char dst[33], plen[3];

			if (sscanf(line, "%32s %2s %*s %*s %*s %lx %*s %*s %lx %15s", dst, plen,
				   &metric, &flags, name) != 5 ||
			    strcmp(plen, "00") || strspn(dst, "0") != 32)
				continue;
		} else {
			unsigned long dst, mask;

			if (sscanf(line, "%15s %lx %*s %lx %*s %*s %lu %lx", name, &dst, &flags,
				   &metric, &mask) != 5 ||
			    dst || mask)
				continue;
		}
		/* RTF_UP; a reject route counts as none */
		if (!(flags & 1) || (flags & 0x200) || metric >= best || !strcmp(name, "lo"))
			continue;
		best = metric;
		strcpy(ifname, name);
		found = true;
	}
	fclose(file);
	return found;
}

static bool find_default(char ifname[IF_NAMESIZE])
{
	struct ifaddrs *list, *ifa;
	bool found = false;

	if (find_by_route("/proc/net/route", false, ifname) ||
	    find_by_route("/proc/net/ipv6_route", true, ifname))
		return true;
	if (getifaddrs(&list))
		return false;
	/* first an interface that is up and has an address, at last the loopback one */
	for (ifa = list; ifa && !found; ifa = ifa->ifa_next) {
		if (ifa->ifa_addr && (ifa->ifa_flags & IFF_UP) &&
		    !(ifa->ifa_flags & IFF_LOOPBACK) &&
		    (ifa->ifa_addr->sa_family == AF_INET || ifa->ifa_addr->sa_family == AF_INET6)) {
			snprintf(ifname, IF_NAMESIZE, "%s", ifa->ifa_name);
			found = true;
		}
	}
	for (ifa = list; ifa && !found; ifa = ifa->ifa_next) {
		if (ifa->ifa_flags & IFF_LOOPBACK) {
			snprintf(ifname, IF_NAMESIZE, "%s", ifa->ifa_name);
			found = true;
		}
	}
	freeifaddrs(list);
	return found;
}

static bool find_by_address(const char *text, char ifname[IF_NAMESIZE])
{
	char host[INET6_ADDRSTRLEN + IF_NAMESIZE + 1], *scope;
	const struct local_addr *la;
	uint8_t addr[16];
	int family;

	if (snprintf(host, sizeof(host), "%s", text) >= (int)sizeof(host))
		return false;
	scope = strchr(host, '%');
	if (scope)
		*scope++ = 0;
	family = strchr(host, ':') ? AF_INET6 : AF_INET;
	if (inet_pton(family, host, addr) != 1)
		return false;
	pthread_mutex_lock(&device_lock);
	if (addrs_stale())
		addrs_read();
	la = addr_find(family, addr, scope ? (int)if_nametoindex(scope) : 0);
	if (la && !if_indextoname(la->ifindex, ifname))
		la = NULL;
	pthread_mutex_unlock(&device_lock);
	if (!la && family == AF_INET && addr[0] == 127 && if_nametoindex("lo")) {
		strcpy(ifname, "lo");
		return true;
	}
	return la != NULL;
}

/* ------------------------------------------------------------------ identity */

static uint64_t mix(uint64_t hash, const void *data, size_t len)
{
	const uint8_t *byte = data;

	/* FNV-1a */
	while (len--)
		hash = (hash ^ *byte++) * 0x100000001b3ull;
	return hash;
}

static void read_mac(struct host_dev *dev)
{
	struct ifreq req;
	int fd = REAL(socket)(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return;
	memset(&req, 0, sizeof(req));
	strcpy(req.ifr_name, dev->ifname);
	if (!REAL(ioctl)(fd, SIOCGIFHWADDR, &req))
		memcpy(dev->mac, req.ifr_hwaddr.sa_data, sizeof(dev->mac));
	REAL(close)(fd);
}

/* A GUID of this machine's, network namespace's and device's own; @salt makes further ones. */
static uint64_t local_guid(const struct host_dev *dev, const char *salt)
{
	uint64_t hash, value;
	char text[64] = "";
	uint8_t guid[8];
	struct stat st;
	int fd;

	hash = mix(0xcbf29ce484222325ull, dev->mac, sizeof(dev->mac));
	hash = mix(hash, &dev->index, sizeof(dev->index));
	fd = REAL(open)("/etc/machine-id", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		fd = REAL(open)("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		if (read(fd, text, sizeof(text)) > 0)
			hash = mix(hash, text, sizeof(text));
		REAL(close)(fd);
	}
	if (!gethostname(text, sizeof(text)))
		hash = mix(hash, text, strnlen(text, sizeof(text)));
	if (!REAL(stat)("/proc/self/ns/net", &st))
		hash = mix(hash, &st.st_ino, sizeof(st.st_ino));
	hash = mix(hash, salt, strlen(salt));
	memcpy(guid, &hash, sizeof(guid));
	/* an EUI-64 with the universal bit clear: "locally administered" in its modified form */
	guid[0] &= ~3;
	guid[3] = 0xff;
	guid[4] = 0xfe;
	guid[7] |= 1;
	memcpy(&value, guid, sizeof(value));
	return value;
}

/*
 * EUI-64 of the MAC, as the kernel's driver makes it, where the MAC is the manufacturer's.  A MAC
 * that software chose (containers, virtual interfaces) or none (lo) says little: there the machine
 * and the network namespace are mixed in, so that two containers differ.
 */
static uint64_t make_guid(const struct host_dev *dev)
{
	const uint8_t *mac = dev->mac;
	const uint8_t guid[8] = { mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5] };
	static const uint8_t no_mac[6];
	uint64_t value;
	int i;

	memcpy(&value, guid, sizeof(value));
	for (i = 0; i < dev->index; i++) {
		if (devices[i].node_guid == value)
			break;
	}
	if (i == dev->index && !(mac[0] & 3) && memcmp(mac, no_mac, sizeof(no_mac)))
		return value;
	return local_guid(dev, "");
}

static bool find_interface(const char *where, char ifname[IF_NAMESIZE])
{
	if (strlen(where) >= IF_NAMESIZE || !if_nametoindex(where))
		return find_by_address(where, ifname);
	strcpy(ifname, where);
	return true;
}

bool device_describe(struct host_dev *dev, const char *where)
{
	if (!find_interface(where, dev->ifname))
		return false;
	dev->ifindex = if_nametoindex(dev->ifname);
	read_mac(dev);
	dev->node_guid = local_guid(dev, where);
	return true;
}

static bool device_init(struct host_dev *dev, const struct settings_device *set)
{
	if (!set->where[0]) {
		if (!find_default(dev->ifname)) {
			host_log(HOST_LOG_ERROR, "no network interface is up; there is no device");
			return false;
		}
	} else if (!find_interface(set->where, dev->ifname)) {
		host_log(HOST_LOG_ERROR, "device \"%s\": no interface has this name or address",
			 set->where);
		return false;
	}
	dev->ifindex = if_nametoindex(dev->ifname);
	dev->index = dev - devices;
	settings_device_name(set, dev->index, false, dev->name);
	dev->mode = host_settings()->mode;
	dev->any_addr = dev->index == 0;
	dev->max_qp = dev->mode == HOST_ROCE ? DEVICE_MAX_QP_ROCE : DEVICE_MAX_QP;
	dev->max_cq = DEVICE_MAX_CQ;
	dev->max_mr = 2 * dev->max_qp;
	read_mac(dev);
	dev->node_guid = make_guid(dev);
	return true;
}

static void devices_init(void)
{
	static const struct settings_device any;
	const struct settings *set = settings_get();
	int saved_errno = errno;
	unsigned int i;

	if (!set->ndevices) {
		device_count = device_init(&devices[0], &any);
	} else {
		for (i = 0; i < set->ndevices; i++) {
			/* a place in the list is an index: one that cannot be had ends the list */
			if (!device_init(&devices[i], &set->devices[i]))
				break;
			device_count++;
		}
	}
	errno = saved_errno;
}

int host_dev_count(void)
{
	pthread_once(&device_once, devices_init);
	return device_count;
}

struct host_dev *host_dev_get(int index)
{
	return index >= 0 && index < host_dev_count() ? &devices[index] : NULL;
}

dev_t device_uverbs_rdev(const struct host_dev *dev)
{
	return makedev(DEVICE_UVERBS_MAJOR, DEVICE_UVERBS_MINOR + dev->index);
}

dev_t device_cm_rdev(void)
{
	return makedev(DEVICE_CM_MAJOR, DEVICE_CM_MINOR);
}

void device_bdf(const struct host_dev *dev, char bdf[DEVICE_BDF_LEN])
{
	/* a PCI domain that no firmware hands out */
	snprintf(bdf, DEVICE_BDF_LEN, "ed0a:00:%02x.0", dev->index & 0x1f);
}

/* ------------------------------------------------------------------ the port */

/* InfiniBand's names for a speed, as the kernel derives them for an Ethernet port. */
static const struct {
	unsigned int mbps;
	unsigned int width, speed; /* widths: 1 is 1X, 2 is 4X; speeds: 1 SDR ... 32 EDR */
	const char *rate;
} speeds[] = {
	{ 1000, 1, 1, "2.5 Gb/sec (1X SDR)" },	   { 10000, 1, 8, "10 Gb/sec (1X FDR10)" },
	{ 20000, 2, 2, "20 Gb/sec (4X DDR)" },	   { 25000, 1, 32, "25 Gb/sec (1X EDR)" },
	{ 40000, 2, 8, "40 Gb/sec (4X FDR10)" },   { 50000, 1, 64, "50 Gb/sec (1X HDR)" },
	{ 100000, 2, 32, "100 Gb/sec (4X EDR)" },  { 200000, 2, 64, "200 Gb/sec (4X HDR)" },
	{ 400000, 2, 128, "400 Gb/sec (4X NDR)" },
};

static unsigned int read_speed(int fd, struct ifreq *req)
{
	struct ethtool_cmd cmd = { .cmd = ETHTOOL_GSET };
	unsigned int mbps;

	req->ifr_data = (char *)&cmd;
	if (REAL(ioctl)(fd, SIOCETHTOOL, req))
		return 0;
	mbps = (unsigned int)cmd.speed_hi << 16 | cmd.speed;
	return mbps == (unsigned int)SPEED_UNKNOWN ? 0 : mbps;
}

void device_link(const struct host_dev *dev, struct device_link *link)
{
	int saved_errno = errno;
	struct ifreq req;
	unsigned int i;
	int fd;

	memset(link, 0, sizeof(*link));
	link->mtu = 1500;
	fd = REAL(socket)(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0) {
		memset(&req, 0, sizeof(req));
		strcpy(req.ifr_name, dev->ifname);
		if (!REAL(ioctl)(fd, SIOCGIFFLAGS, &req))
			link->up = (req.ifr_flags & (IFF_UP | IFF_RUNNING)) ==
				   (IFF_UP | IFF_RUNNING);
		if (!REAL(ioctl)(fd, SIOCGIFMTU, &req))
			link->mtu = req.ifr_mtu;
		link->mbps = read_speed(fd, &req);
		REAL(close)(fd);
	}
	for (link->ib_mtu = IBV_MTU_256; link->ib_mtu < IBV_MTU_4096; link->ib_mtu++) {
		if (link->mtu < 256u << link->ib_mtu)
			break;
	}
	if (!link->mbps)
		link->mbps = 1000;
	for (i = 0; i + 1 < sizeof(speeds) / sizeof(speeds[0]); i++) {
		if (link->mbps <= speeds[i].mbps)
			break;
	}
	link->active_width = speeds[i].width;
	link->active_speed = speeds[i].speed;
	link->rate = speeds[i].rate;
	errno = saved_errno;
}

/* ------------------------------------------------------------------ GIDs */

unsigned int device_gid_count(const struct host_dev *dev)
{
	return dev->mode == HOST_IWARP ? 1 : HOST_ROCE_GIDS;
}

static void gid_note(struct gid_slot *table, const struct local_addr *la, unsigned int *room)
{
	uint8_t gid[HOST_GID_LEN];
	unsigned int i;

	if (la->family == AF_INET6)
		memcpy(gid, la->addr, HOST_GID_LEN);
	else
		gid_of_ipv4(gid, la->addr);
	for (i = 0; i < HOST_ROCE_GIDS; i++) {
		if (table[i].used && table[i].ifindex == la->ifindex &&
		    !memcmp(table[i].gid, gid, sizeof(gid))) {
			table[i].seen = true;
			return;
		}
	}
	while (*room < HOST_ROCE_GIDS && table[*room].used)
		(*room)++;
	if (*room == HOST_ROCE_GIDS)
		return;
	table[*room].used = table[*room].seen = true;
	table[*room].ifindex = la->ifindex;
	memcpy(table[*room].gid, gid, sizeof(gid));
}

/*
 * Bring a RoCE table up to date; an entry that stays keeps its index.  The order of a new table is
 * the kernel's: link-local first, then IPv4, then other IPv6 addresses of the paired interface;
 * then those of other interfaces that the device serves too.  Every GID is an address that a peer
 * can reach.
 */
static void gids_refresh(struct host_dev *dev)
{
	struct gid_slot *table = gids[dev->index];
	unsigned int i, pass, room = 0;

	addrs_read();
	for (i = 0; i < HOST_ROCE_GIDS; i++)
		table[i].seen = false;
	for (pass = 0; pass < 4; pass++) {
		for (i = 0; i < addr_count; i++) {
			const struct local_addr *la = &addrs[i];
			unsigned int own;

			if (la->ifindex == dev->ifindex)
				own = la->link_local ? 0 : la->family == AF_INET ? 1 : 2;
			else
				own = dev->any_addr && !la->link_local ? 3 : 4;
			if (own == pass)
				gid_note(table, la, &room);
		}
	}
	for (i = 0; i < HOST_ROCE_GIDS; i++) {
		if (!table[i].seen)
			memset(&table[i], 0, sizeof(table[i]));
	}
}

static int gid_get(struct host_dev *dev, unsigned int index, struct gid_slot *slot)
{
	static uint64_t refreshed[SETTINGS_MAX_DEVICES];
	int saved_errno = errno;

	if (index >= device_gid_count(dev))
		return -EINVAL;
	if (dev->mode == HOST_IWARP) {
		memset(slot, 0, sizeof(*slot));
		memcpy(slot->gid, dev->mac, sizeof(dev->mac));
		slot->ifindex = dev->ifindex;
		return 0;
	}
	pthread_mutex_lock(&device_lock);
	if (!refreshed[dev->index] || now_ns() - refreshed[dev->index] > ADDR_LIFE_NS) {
		gids_refresh(dev);
		refreshed[dev->index] = now_ns();
	}
	*slot = gids[dev->index][index];
	pthread_mutex_unlock(&device_lock);
	errno = saved_errno;
	return slot->used ? 0 : -ENODATA;
}

int host_dev_gid(struct host_dev *dev, unsigned int index, uint8_t gid[HOST_GID_LEN])
{
	struct gid_slot slot;
	int ret = gid_get(dev, index, &slot);

	if (!ret)
		memcpy(gid, slot.gid, HOST_GID_LEN);
	return ret;
}

int host_dev_gid_find(struct host_dev *dev, const uint8_t gid[HOST_GID_LEN])
{
	uint8_t entry[HOST_GID_LEN];
	int i, ret;

	for (i = 0; (ret = host_dev_gid(dev, i, entry)) != -EINVAL; i++) {
		if (!ret && !memcmp(entry, gid, sizeof(entry)))
			return i;
	}
	return -ENOENT;
}

int device_gid_ifindex(struct host_dev *dev, unsigned int index)
{
	struct gid_slot slot;

	return gid_get(dev, index, &slot) ? 0 : slot.ifindex;
}

/* ------------------------------------------------------------------ the model */

/* Bus addresses are the program's own. */
static void *dma_map(void *ctx, uint64_t addr, size_t *len, bool write)
{
	(void)ctx;
	if (__builtin_expect(__atomic_load_n(&regions_gone, __ATOMIC_ACQUIRE) != 0, 0) &&
	    !regions_reachable(addr, *len, write))
		return NULL;
	return (void *)(uintptr_t)addr;
}

static void dma_lost(void *ctx, void *p, size_t len, bool write)
{
	(void)ctx;
	regions_lost((uintptr_t)p, len, write);
}

static const struct ea_dma_ops dma_ops = { .map = dma_map, .lost = dma_lost };

static void *table_alloc(size_t count)
{
	/* mostly never touched: leave the pages to the kernel */
	void *table = mmap(NULL, count * sizeof(void *), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return table == MAP_FAILED ? NULL : table;
}

static int dev_start(struct host_dev *dev)
{
	struct ea_dev_attr attr = {
		.max_qp = dev->max_qp,
		.max_cq = dev->max_cq,
		.max_mr = dev->max_mr,
		.max_cqe_shift = DEVICE_MAX_CQE_SHIFT,
		.max_rq_shift =
			13, /* EA_MAX_SEND_WR, which the kernel's driver reports for both queues */
	};
	struct ea_dev *core;
	int ret;

	dev->qps = table_alloc(dev->max_qp);
	dev->cqs = table_alloc(dev->max_cq);
	if (!dev->qps || !dev->cqs) {
		ret = -ENOMEM;
		goto err_tables;
	}
	ret = uverbs_dev_start(dev);
	if (ret)
		goto err_tables;
	core = ea_dev_create(&attr, &dma_ops, &uverbs_core_ops, dev);
	if (!core) {
		ret = -errno;
		goto err_uverbs;
	}
	ret = engine_start();
	if (ret)
		goto err_core;
	__atomic_store_n(&dev->core, core, __ATOMIC_RELEASE);
	return 0;

err_core:
	ea_dev_destroy(core);
err_uverbs:
	uverbs_dev_stop(dev);
err_tables:
	if (dev->qps)
		munmap(dev->qps, dev->max_qp * sizeof(void *));
	if (dev->cqs)
		munmap(dev->cqs, dev->max_cq * sizeof(void *));
	dev->qps = NULL;
	dev->cqs = NULL;
	return ret;
}

int host_dev_start(struct host_dev *dev)
{
	bool first = false;
	int ret = 0;

	if (__atomic_load_n(&dev->core, __ATOMIC_ACQUIRE))
		return 0;
	pthread_mutex_lock(&device_lock);
	if (!dev->core) {
		ret = dev_start(dev);
		first = !ret;
	}
	pthread_mutex_unlock(&device_lock);
	/* takes the engine lock, which comes before this one */
	if (first)
		uverbs_dev_running(dev);
	if (ret)
		host_log(HOST_LOG_ERROR, "device %s cannot start: %s", dev->name, strerror(-ret));
	return ret;
}

void device_fork_child(void)
{
	int i;

	regions_fork_child();
	pthread_mutex_init(&device_lock, NULL);
	/* another thread may have been in the middle of reading them */
	addrs = NULL;
	addr_count = 0;
	addr_time = 0;
	for (i = 0; i < SETTINGS_MAX_DEVICES; i++) {
		devices[i].core = NULL;
		devices[i].qps = NULL;
		devices[i].cqs = NULL;
		devices[i].uverbs = NULL;
	}
}
