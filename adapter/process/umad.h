/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * User MADs: RoCE devices (node type CA) of which a program sees the management interface only,
 * as the kernel's ib_umad shows it for rxe or a RoCE adapter.
 *
 *   umad_dev.c    the devices that erdma-run --umad names; their GIDs
 *   umad_sysfs.c  how they look in sysfs and /dev
 *   umad_file.c   /dev/infiniband/umadN: open, ioctl, read, write
 *   umad_port.c   agents, requests that wait for a response, who gets what arrives
 *   umad_gsi.c    QP 1: UDP sockets, RoCEv2 packets
 *
 * A port exists while a file of its device is open in this process.  It binds UDP port 4791 on each
 * of its addresses, so that no two processes receive for one address; the one that comes second
 * can send, and is refused the registration of a class.
 *
 * Everything runs under the engine lock but where said.
 */
#ifndef EA_UMAD_H
#define EA_UMAD_H

#include <net/if.h>
#include <rdma/ib_user_mad.h>
#include <stdbool.h>
#include <stdint.h>
#include "adapter/process/device.h"
#include "adapter/process/engine/engine.h"
#include "adapter/process/host.h"
#include "adapter/wire/gsi.h"

enum {
	UMAD_GIDS = 128,       /* table size; entries are the addresses of the interface */
	UMAD_AGENTS = 32,      /* of one file */
	UMAD_MINOR = 0,	       /* of umad0; the major is uverbs' */
	UMAD_QUEUE = 65536,    /* MADs that wait in one file; further ones are dropped */
	UMAD_SENDS = 4096,     /* requests of one file that wait for a response */
	UMAD_HDR_LEN = 64,     /* struct ib_user_mad_hdr */
	UMAD_HDR_OLD_LEN = 56, /* without P_Key index: a file that did not ask for it */
};

/* ------------------------------------------------------------------ devices (umad_dev.c) */

struct umad_port;

struct umad_dev {
	struct host_dev dev; /* name, index, interface, MAC and GUID; no adapter, in no list */
	bool one_addr;	     /* the one GID is this, else all of the interface */
	uint8_t addr[HOST_GID_LEN];
	struct umad_port *port; /* engine lock; NULL: no file is open */
};

/* Any thread, no lock, as all of this part. */
int umad_dev_count(void);
struct umad_dev *umad_dev_get(int index);
dev_t umad_dev_rdev(const struct umad_dev *dev);

struct umad_gid {
	uint8_t gid[HOST_GID_LEN];
	int ifindex; /* 0: the slot is empty */
};

/*
 * The table as the interface's addresses are now; entries that stay keep their index.
 */
void umad_gid_table(struct umad_dev *dev, struct umad_gid table[UMAD_GIDS]);

/* ------------------------------------------------------------------ sysfs (umad_sysfs.c) */

/* Add the devices to the tree; called while it is built. */
void umad_sysfs_build(void);

/* ------------------------------------------------------------------ QP 1 (umad_gsi.c) */

struct gsi_sock {
	struct engine_fd efd;
	struct umad_port *port;
	unsigned int index; /* of its GID */
	uint8_t gid[HOST_GID_LEN];
	int ifindex;
	bool open;
	bool deaf; /* another process has UDP port 4791 of this address: only sends */
};

/* What is counted; hw_counters in sysfs. */
struct gsi_stats {
	uint64_t sent, send_failed, received, delivered, unclaimed, overrun;
	uint64_t bad[EA_GSI_VERDICTS]; /* by reason; [EA_GSI_GOOD] counts datagrams of no address */
};

struct gsi {
	struct gsi_sock socks[UMAD_GIDS];
	struct gsi_stats stats;
	uint32_t psn;
	struct engine_fd watch; /* netlink: addresses come and go; fd -1: cannot be had */
};

/* Where a MAD goes, or where one came from. */
struct gsi_addr {
	uint8_t gid[HOST_GID_LEN];
	unsigned int gid_index; /* of the own GID */
	uint32_t qpn;
	uint8_t hop_limit, traffic_class;
	uint32_t flow_label;
};

void gsi_open(struct umad_port *port);
void gsi_close(struct umad_port *port);

/* Make the sockets those of the addresses that the interface has now. */
void gsi_sync(struct umad_port *port);

/* The address of a GID whose UDP port another process has, or NULL. */
const struct gsi_sock *gsi_deaf(const struct umad_port *port);

/*
 * Send to @to from the GID to->gid_index.  0; -EINVAL: no such index, or families that differ;
 * -ENODATA: an empty index; -ETIMEDOUT: no way there, as the kernel says when it cannot resolve an
 * address.  A datagram may be lost like any other.
 */
int gsi_send(struct umad_port *port, const struct gsi_addr *to, const uint8_t mad[EA_MAD_LEN]);

/* ------------------------------------------------------------------ agents (umad_port.c) */

struct umad_file;

struct umad_agent {
	struct umad_agent *next; /* of the port */
	struct umad_file *file;
	unsigned int id;    /* in the file */
	uint32_t hi_tid;    /* upper half of its transaction ids */
	uint8_t mgmt_class; /* 0: sends only */
	uint8_t class_version;
	uint8_t oui[3];
	uint32_t methods[4]; /* bit mask */
};

/* A request that waits for a response, or for its time to be over. */
struct umad_send {
	struct engine_timer timer;
	struct umad_send *next; /* of the file */
	struct umad_agent *agent;
	struct gsi_addr to;
	uint32_t timeout_ms, retries;
	uint8_t hdr[UMAD_HDR_LEN]; /* as the program wrote it */
	uint8_t mad[EA_MAD_LEN];
};

struct umad_port {
	struct umad_dev *dev;
	unsigned int files;
	struct umad_agent *agents;
	struct gsi gsi;
};

/* The device's port, made when there is none; one reference.  NULL with errno. */
struct umad_port *umad_port_get(struct umad_dev *dev);
void umad_port_put(struct umad_port *port);

/*
 * Register @agent, which the caller has filled (class 0: for sending only).  0, or -EINVAL: the
 * class and method are taken, here or by another process; else as the kernel.
 */
int umad_agent_add(struct umad_port *port, struct umad_agent *agent, unsigned int qpn,
		   uint8_t rmpp_version);
/* Forgets what it has sent, too. */
void umad_agent_del(struct umad_port *port, struct umad_agent *agent);

/*
 * Send a MAD of @agent; @mad's transaction id is completed.  Takes a copy of all.  0 or -errno.
 */
int umad_agent_send(struct umad_port *port, struct umad_agent *agent,
		    const struct ib_user_mad_hdr *hdr, const struct gsi_addr *to,
		    uint8_t mad[EA_MAD_LEN]);

/* A MAD has come from @from. */
void umad_port_receive(struct umad_port *port, const struct gsi_addr *from, const uint8_t *mad);

/* ------------------------------------------------------------------ files (umad_file.c) */

struct umad_packet {
	uint8_t hdr[UMAD_HDR_LEN];
	uint32_t len; /* of the MAD: all of it, or its header where it came back unanswered */
	uint8_t mad[EA_MAD_LEN];
};

struct umad_file {
	struct host_file file;
	struct umad_port *port;
	pid_t pid;
	int flags;	 /* access mode of open() */
	int event_fd;	 /* the program's, once more and hidden: readable while a MAD waits */
	bool used;	 /* an agent was registered before */
	bool pkey_index; /* headers are the long form */
	struct umad_agent *agents[UMAD_AGENTS];
	struct umad_send *sends;
	unsigned int nsends;
	/* a ring; grows when it is full */
	struct umad_packet *queue;
	unsigned int head, count, room;
};

/* Of the header that comes before each MAD. */
static inline size_t umad_hdr_len(const struct umad_file *file)
{
	return file->pkey_index ? UMAD_HDR_LEN : UMAD_HDR_OLD_LEN;
}

/* A new descriptor for the program, or -errno.  No lock held. */
int umad_open(struct umad_dev *dev, int flags);

/* Put a MAD into the queue; false: no room, it is dropped. */
bool umad_file_push(struct umad_file *file, const struct ib_user_mad_hdr *hdr, const uint8_t *mad,
		    uint32_t len);

/* In the child of fork(): see host.h. */
void umad_fork_child(void);

#endif
