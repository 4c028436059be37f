/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the operator can set: command line, configuration file, and the rules for clients.
 *
 * rdmacm-mux.conf(5) describes every key. A configuration is read whole and checked before it is used;
 * reloading makes a new one. Single-threaded.
 */
#ifndef MUX_CONFIG_H
#define MUX_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "mux/gid.h"

#define CONFIG_MAX_PORTS 64
#define CONFIG_MAX_NAME	 64
#define CONFIG_PATH_MAX	 108 /* sun_path */

enum ca_guid_mode {
	CA_GUID_BIND,	 /* a GUID belongs to the first client that uses it */
	CA_GUID_REPLACE, /* each client gets one of its own on the wire */
	CA_GUID_OFF,
};

enum dest_mode {
	DEST_CONTENT, /* computed from the message */
	DEST_CLIENT,  /* taken from clients that asked for it in their hello */
	DEST_STRICT,  /* such a client's must agree with the computed one */
};

struct rate_limit {
	uint32_t per_second;
	uint32_t burst;
};

/* What a client may do. */
struct client_limits {
	uint32_t max_connections; /* of all clients that the rule holds for, or of one user without rules */
	uint32_t max_gids;
	uint32_t max_sessions;
	uint32_t max_half_open;
	uint32_t queue; /* frames */
	struct rate_limit mads;
	struct rate_limit requests;	 /* REQ and SIDR_REQ */
	struct rate_limit registrations; /* REG and UNREG */
};

struct rule {
	struct rule *next;
	char name[CONFIG_MAX_NAME];
	bool deny;
	/* Conditions; unset ones hold always. */
	char *listen; /* path of the listening socket */
	char *cgroup; /* the peer's cgroup, or one above it */
	bool has_uid, has_gid;
	uid_t uid;
	gid_t gid;
	/* What it grants. No network: all GIDs that nothing else forbids. */
	struct gid_net *nets;
	unsigned int n_nets;
	uint32_t own_limits; /* a bit for each limit that the rule sets itself */
	struct client_limits limits;
};

struct listen_config {
	struct listen_config *next;
	char path[CONFIG_PATH_MAX];
	mode_t mode;
	char *group; /* NULL: leave */
};

struct port_config {
	char device[CONFIG_MAX_NAME];
	unsigned int port;	       /* 0: any, as the original tool had it */
	struct listen_config *listens; /* at least one */
};

struct config {
	struct port_config ports[CONFIG_MAX_PORTS];
	unsigned int n_ports;

	char *user, *group; /* to become after opening devices; NULL: stay */
	char *state_file;   /* NULL: none */
	char *control_path; /* NULL: first socket's path and ".ctl" */
	mode_t control_mode;
	char *metrics_listen; /* "address:port" or NULL */
	int log_level;

	uint32_t max_clients;
	uint32_t max_sessions;
	uint32_t lanes;	 /* sender threads for destinations that answer */
	uint32_t probes; /* sender threads for the others */

	bool hairpin;
	bool implicit_reg;
	bool reject_unregistered;  /* REJ 8 or SIDR_REP 1 for GIDs nobody has */
	bool reject_foreign_qpn;   /* drop received MADs whose source is not QP 1 */
	bool check_source_address; /* rdma_cm's source address must be the client's */
	bool sidr_alias;
	bool obituary_rej, obituary_dreq; /* speak for vanished clients */
	bool drep_unknown;		  /* answer DREQs of unknown connections */
	bool prefer_rocev2;
	enum ca_guid_mode ca_guid;
	enum dest_mode dest;

	/* Milliseconds. */
	uint32_t half_open_ms, reject_ms, disconnect_ms, timewait_ms, sidr_ms, sidr_done_ms;
	uint32_t grace_ms, unreg_grace_ms, stall_ms, stall_close_ms;
	uint32_t dreq_interval_ms;
	uint32_t unreachable_ms; /* how long a destination that timed out is not tried again */
	uint32_t max_unanswered; /* deliveries to a client that sends nothing */
	uint32_t unanswered_per_second;

	struct rate_limit built;  /* messages that the mux makes itself */
	struct rate_limit source; /* REQ and SIDR_REQ received from one GID */

	struct client_limits limits; /* where no rule says otherwise */
	struct gid_net *deny;	     /* GIDs that no client may register */
	unsigned int n_deny;
	struct rule *rules; /* first match wins; none: everybody may */
};

/*
 * Reads the command line and the file it names. Returns a configuration that the caller frees, or NULL with
 * the process's exit status in *status; then everything has been said on stdout or stderr.
 */
struct config *config_from_args(int argc, char **argv, int *status);

/* Reads the same command line and file again. NULL: broken, and said so in the log. */
struct config *config_reload(void);

void config_free(struct config *cfg);

/* The rule for a client, or NULL for none. *denied tells a refusal. cgroup may be NULL. */
const struct rule *config_match(const struct config *cfg, const char *listen, uid_t uid, gid_t gid,
				const char *cgroup, bool *denied);

/* Whether rule (or NULL) and the global lists allow registering gid. */
bool config_gid_allowed(const struct config *cfg, const struct rule *rule,
			const uint8_t gid[MUX_GID_SIZE]);

#endif
