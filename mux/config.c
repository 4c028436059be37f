// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "mux/config.h"

#include <errno.h>
#include <getopt.h>
#include <ini.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mux/log.h"

#define EXIT_USAGE 2
/* inih cuts longer section names silently, so that two of them may become one. */
#define SECTION_MAX 49

static int saved_argc;
static char **saved_argv;

struct parse {
	struct config *cfg;
	const char *file;
	const char *prefix;
	bool failed;
};

static void complain(struct parse *p, const char *section, const char *key, const char *value,
		     const char *what)
{
	fprintf(stderr, "rdmacm-mux: %s: [%s] %s = %s: %s\n", p->file, section, key, value, what);
	p->failed = true;
}

/* Values ------------------------------------------------------------------------------------------- */

static int parse_u32(const char *text, uint32_t *out)
{
	unsigned long v;
	char *end;

	if (*text < '0' || *text > '9')
		return EINVAL;
	errno = 0;
	v = strtoul(text, &end, 0);
	if (errno || *end || v > UINT32_MAX)
		return EINVAL;
	*out = (uint32_t)v;
	return 0;
}

static int parse_bool(const char *text, bool *out)
{
	static const char *const yes[] = { "yes", "true", "on", "1" };
	static const char *const no[] = { "no", "false", "off", "0" };

	for (unsigned int i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
		if (strcmp(text, yes[i]) == 0) {
			*out = true;
			return 0;
		}
		if (strcmp(text, no[i]) == 0) {
			*out = false;
			return 0;
		}
	}
	return EINVAL;
}

/* "rate" or "rate/burst". */
static int parse_rate(const char *text, struct rate_limit *out)
{
	const char *slash = strchr(text, '/');
	char head[16];
	size_t len;

	if (!slash) {
		if (parse_u32(text, &out->per_second))
			return EINVAL;
		out->burst = out->per_second;
		return 0;
	}
	len = (size_t)(slash - text);
	if (len >= sizeof(head))
		return EINVAL;
	memcpy(head, text, len);
	head[len] = '\0';
	return parse_u32(head, &out->per_second) || parse_u32(slash + 1, &out->burst) ? EINVAL : 0;
}

static int parse_mode(const char *text, mode_t *out)
{
	unsigned long v;
	char *end;

	v = strtoul(text, &end, 8);
	if (!*text || *end || v > 0777)
		return EINVAL;
	*out = (mode_t)v;
	return 0;
}

static int parse_nets(const char *text, struct gid_net **nets, unsigned int *n)
{
	char *copy = strdup(text), *save = NULL, *tok;
	struct gid_net *grown;
	/* A list of none is no list of all. */
	int ret = EINVAL;

	if (!copy)
		return ENOMEM;
	for (tok = strtok_r(copy, ", \t", &save); tok; tok = strtok_r(NULL, ", \t", &save)) {
		grown = reallocarray(*nets, *n + 1, sizeof(**nets));
		if (!grown) {
			ret = ENOMEM;
			break;
		}
		*nets = grown;
		ret = gid_net_parse(tok, &grown[*n]);
		if (ret)
			break;
		(*n)++;
	}
	free(copy);
	return ret;
}

static int set_string(char **dst, const char *value)
{
	free(*dst);
	*dst = strdup(value);
	return *dst ? 0 : ENOMEM;
}

/* Sections ----------------------------------------------------------------------------------------- */

struct key {
	const char *name;
	enum {
		K_U32,
		K_BOOL,
		K_RATE,
		K_STRING,
		K_MODE
	} type;
	size_t offset;
};

#define KEY(type, member)                                      \
	{                                                      \
#member, type, offsetof(struct config, member) \
	}

static const struct key global_keys[] = {
	KEY(K_STRING, user),
	KEY(K_STRING, group),
	KEY(K_STRING, state_file),
	KEY(K_STRING, control_path),
	KEY(K_MODE, control_mode),
	KEY(K_STRING, metrics_listen),
	KEY(K_U32, max_clients),
	{ "max_sessions_total", K_U32, offsetof(struct config, max_sessions) },
	KEY(K_U32, lanes),
	KEY(K_U32, probes),
	KEY(K_BOOL, hairpin),
	KEY(K_BOOL, implicit_reg),
	KEY(K_BOOL, reject_unregistered),
	KEY(K_BOOL, reject_foreign_qpn),
	KEY(K_BOOL, check_source_address),
	KEY(K_BOOL, sidr_alias),
	KEY(K_BOOL, obituary_rej),
	KEY(K_BOOL, obituary_dreq),
	KEY(K_BOOL, drep_unknown),
	KEY(K_BOOL, prefer_rocev2),
	KEY(K_U32, half_open_ms),
	KEY(K_U32, reject_ms),
	KEY(K_U32, disconnect_ms),
	KEY(K_U32, timewait_ms),
	KEY(K_U32, sidr_ms),
	KEY(K_U32, sidr_done_ms),
	KEY(K_U32, grace_ms),
	KEY(K_U32, unreg_grace_ms),
	KEY(K_U32, stall_ms),
	KEY(K_U32, stall_close_ms),
	KEY(K_U32, dreq_interval_ms),
	KEY(K_U32, unreachable_ms),
	KEY(K_U32, max_unanswered),
	KEY(K_U32, unanswered_per_second),
	{ "built_rate", K_RATE, offsetof(struct config, built) },
	{ "source_rate", K_RATE, offsetof(struct config, source) },
};

#define LIMIT(type, name, member)                                  \
	{                                                          \
		name, type, offsetof(struct client_limits, member) \
	}

static const struct key limit_keys[] = {
	LIMIT(K_U32, "max_connections", max_connections),
	LIMIT(K_U32, "max_gids", max_gids),
	LIMIT(K_U32, "max_sessions", max_sessions),
	LIMIT(K_U32, "max_half_open", max_half_open),
	LIMIT(K_U32, "queue", queue),
	LIMIT(K_RATE, "mad_rate", mads),
	LIMIT(K_RATE, "request_rate", requests),
	LIMIT(K_RATE, "registration_rate", registrations),
};
#define N_LIMITS (sizeof(limit_keys) / sizeof(limit_keys[0]))

/* Returns 0, ENOENT for an unknown key, EINVAL for a bad value. */
static int set_key(const struct key *keys, size_t n, void *base, const char *name,
		   const char *value)
{
	for (size_t i = 0; i < n; i++) {
		void *p = (char *)base + keys[i].offset;

		if (strcmp(keys[i].name, name) != 0)
			continue;
		switch (keys[i].type) {
		case K_U32:
			return parse_u32(value, p);
		case K_BOOL:
			return parse_bool(value, p);
		case K_RATE:
			return parse_rate(value, p);
		case K_STRING:
			return set_string(p, value);
		case K_MODE:
			return parse_mode(value, p);
		}
	}
	return ENOENT;
}

#define SET_KEY(keys, base, name, value) \
	set_key(keys, sizeof(keys) / sizeof((keys)[0]), base, name, value)

static int set_global(struct config *cfg, const char *name, const char *value)
{
	static const char *const guid_modes[] = { "bind", "replace", "off" };
	static const char *const dest_modes[] = { "content", "client", "strict" };
	int ret;

	if (strcmp(name, "deny") == 0)
		return parse_nets(value, &cfg->deny, &cfg->n_deny);
	if (strcmp(name, "log_level") == 0) {
		cfg->log_level = log_level_parse(value);
		return cfg->log_level < 0 ? EINVAL : 0;
	}
	if (strcmp(name, "ca_guid") == 0) {
		for (unsigned int i = 0; i < 3; i++)
			if (strcmp(value, guid_modes[i]) == 0) {
				cfg->ca_guid = (enum ca_guid_mode)i;
				return 0;
			}
		return EINVAL;
	}
	if (strcmp(name, "destination") == 0) {
		for (unsigned int i = 0; i < 3; i++)
			if (strcmp(value, dest_modes[i]) == 0) {
				cfg->dest = (enum dest_mode)i;
				return 0;
			}
		return EINVAL;
	}
	ret = SET_KEY(limit_keys, &cfg->limits, name, value);
	if (ret == ENOENT)
		ret = SET_KEY(global_keys, cfg, name, value);
	return ret;
}

static struct rule *find_rule(struct config *cfg, const char *name)
{
	struct rule **link = &cfg->rules, *r;

	for (; *link; link = &(*link)->next)
		if (strcmp((*link)->name, name) == 0)
			return *link;
	r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	snprintf(r->name, sizeof(r->name), "%s", name);
	*link = r;
	return r;
}

static int set_rule(struct rule *r, const char *name, const char *value)
{
	uint32_t v;

	if (strcmp(name, "action") == 0) {
		r->deny = strcmp(value, "deny") == 0;
		return r->deny || strcmp(value, "allow") == 0 ? 0 : EINVAL;
	}
	if (strcmp(name, "listen") == 0)
		return set_string(&r->listen, value);
	if (strcmp(name, "cgroup") == 0)
		return set_string(&r->cgroup, value);
	if (strcmp(name, "uid") == 0) {
		r->has_uid = true;
		r->uid = parse_u32(value, &v) ? 0 : v;
		return parse_u32(value, &v);
	}
	if (strcmp(name, "gid") == 0) {
		r->has_gid = true;
		r->gid = parse_u32(value, &v) ? 0 : v;
		return parse_u32(value, &v);
	}
	if (strcmp(name, "gids") == 0)
		return parse_nets(value, &r->nets, &r->n_nets);
	for (unsigned int i = 0; i < N_LIMITS; i++)
		if (strcmp(limit_keys[i].name, name) == 0)
			r->own_limits |= 1u << i;
	return SET_KEY(limit_keys, &r->limits, name, value);
}

/* Limits that a rule does not set are the common ones, wherever in the file and on the command line those stand. */
static void inherit_limits(struct rule *r, const struct client_limits *common)
{
	struct client_limits own = r->limits;

	r->limits = *common;
	for (unsigned int i = 0; i < N_LIMITS; i++) {
		size_t size = limit_keys[i].type == K_RATE ? sizeof(struct rate_limit) :
							     sizeof(uint32_t);

		if (r->own_limits & 1u << i)
			memcpy((char *)&r->limits + limit_keys[i].offset,
			       (char *)&own + limit_keys[i].offset, size);
	}
}

/* The socket of a port that names none: the original tool's rule. */
static int default_path(char *path, const char *prefix, const char *device, unsigned int port)
{
	int n = snprintf(path, CONFIG_PATH_MAX, "%s-%s-%u", prefix, device, port);

	return n < 0 || n >= CONFIG_PATH_MAX ? ENAMETOOLONG : 0;
}

static struct listen_config *add_listen(struct port_config *port, const char *path)
{
	struct listen_config **link = &port->listens, *l;

	while (*link)
		link = &(*link)->next;
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	if (path)
		snprintf(l->path, sizeof(l->path), "%s", path);
	l->mode = 0660;
	*link = l;
	return l;
}

static struct port_config *find_port(struct config *cfg, const char *device, unsigned int port)
{
	struct port_config *p;

	for (unsigned int i = 0; i < cfg->n_ports; i++)
		if (strcmp(cfg->ports[i].device, device) == 0 && cfg->ports[i].port == port)
			return &cfg->ports[i];
	if (cfg->n_ports == CONFIG_MAX_PORTS || strlen(device) >= CONFIG_MAX_NAME || !*device)
		return NULL;
	p = &cfg->ports[cfg->n_ports++];
	snprintf(p->device, sizeof(p->device), "%s", device);
	p->port = port;
	return p;
}

/* The command line's port comes before the file's: the control socket is named after the first. */
static bool first_port(struct config *cfg, const char *device, unsigned int port)
{
	struct port_config *p = find_port(cfg, device, port), first;

	if (!p)
		return false;
	first = *p;
	memmove(&cfg->ports[1], &cfg->ports[0], (size_t)(p - cfg->ports) * sizeof(*p));
	cfg->ports[0] = first;
	return true;
}

/* "[port mlx5_0/2]": listen = path starts a further socket, mode and group are those of the last one. */
static int set_port(struct config *cfg, const char *which, const char *name, const char *value)
{
	const char *slash = strrchr(which, '/');
	struct port_config *p;
	struct listen_config *l;
	char device[CONFIG_MAX_NAME];
	uint32_t port = 1;
	size_t len = slash ? (size_t)(slash - which) : strlen(which);

	if (len >= sizeof(device) || (slash && parse_u32(slash + 1, &port)))
		return EINVAL;
	memcpy(device, which, len);
	device[len] = '\0';
	p = find_port(cfg, device, port);
	if (!p)
		return EINVAL;
	if (strcmp(name, "listen") == 0) {
		if (strlen(value) >= CONFIG_PATH_MAX)
			return ENAMETOOLONG;
		return add_listen(p, strcmp(value, "default") == 0 ? NULL : value) ? 0 : ENOMEM;
	}
	if (!p->listens && !add_listen(p, NULL))
		return ENOMEM;
	for (l = p->listens; l->next; l = l->next)
		;
	if (strcmp(name, "mode") == 0)
		return parse_mode(value, &l->mode);
	if (strcmp(name, "group") == 0)
		return set_string(&l->group, value);
	return ENOENT;
}

static int on_key(void *user, const char *section, const char *name, const char *value)
{
	struct parse *p = user;
	struct rule *r;
	int ret;

	if (strlen(section) >= SECTION_MAX) {
		complain(p, section, name, value, "the section's name is too long");
		return 1;
	}
	if (strcmp(section, "mux") == 0) {
		ret = set_global(p->cfg, name, value);
	} else if (strncmp(section, "port ", 5) == 0) {
		ret = set_port(p->cfg, section + 5, name, value);
	} else if (strncmp(section, "rule ", 5) == 0) {
		r = find_rule(p->cfg, section + 5);
		ret = r ? set_rule(r, name, value) : ENOMEM;
	} else {
		complain(p, section, name, value, "unknown section (mux, port NAME/N, rule NAME)");
		return 1;
	}
	if (ret == ENOENT)
		complain(p, section, name, value, "unknown key");
	else if (ret)
		complain(p, section, name, value, ret == EINVAL ? "bad value" : strerror(ret));
	return 1;
}

/* Whole configuration ------------------------------------------------------------------------------ */

static struct config *config_default(void)
{
	struct config *cfg = calloc(1, sizeof(*cfg));

	if (!cfg)
		return NULL;
	cfg->control_mode = 0600;
	cfg->log_level = LOG_INFO;
	cfg->max_clients = 4096 + 64;
	cfg->max_sessions = 1000000;
	cfg->lanes = 2;
	cfg->probes = 4;
	cfg->hairpin = true;
	cfg->implicit_reg = true;
	cfg->reject_unregistered = true;
	cfg->check_source_address = true;
	cfg->sidr_alias = true;
	cfg->obituary_rej = true;
	cfg->obituary_dreq = true;
	cfg->drep_unknown = true;
	cfg->prefer_rocev2 = true;
	cfg->half_open_ms = 300000;
	cfg->reject_ms = 30000;
	cfg->disconnect_ms = 120000;
	cfg->timewait_ms = 30000;
	cfg->sidr_ms = 120000;
	cfg->sidr_done_ms = 30000;
	cfg->grace_ms = 30000;
	cfg->unreg_grace_ms = 120000;
	cfg->stall_ms = 5000;
	cfg->stall_close_ms = 120000;
	cfg->dreq_interval_ms = 5000;
	cfg->unreachable_ms = 2000;
	cfg->max_unanswered = 256;
	cfg->unanswered_per_second = 8;
	cfg->built = (struct rate_limit){ 200, 200 };
	cfg->source = (struct rate_limit){ 1000, 2000 };
	cfg->limits = (struct client_limits){
		.max_connections = UINT32_MAX,
		.max_gids = 256,
		.max_sessions = 65536,
		.max_half_open = 4096,
		.queue = 256,
		.mads = { 4000, 4000 },
		.requests = { 1000, 2000 },
		.registrations = { 100, 512 },
	};
	return cfg;
}

static void free_listens(struct listen_config *l)
{
	struct listen_config *next;

	for (; l; l = next) {
		next = l->next;
		free(l->group);
		free(l);
	}
}

void config_free(struct config *cfg)
{
	struct rule *next;

	if (!cfg)
		return;
	for (unsigned int i = 0; i < cfg->n_ports; i++)
		free_listens(cfg->ports[i].listens);
	for (struct rule *r = cfg->rules; r; r = next) {
		next = r->next;
		free(r->listen);
		free(r->cgroup);
		free(r->nets);
		free(r);
	}
	free(cfg->user);
	free(cfg->group);
	free(cfg->state_file);
	free(cfg->control_path);
	free(cfg->metrics_listen);
	free(cfg->deny);
	free(cfg);
}

static int read_file(struct parse *p)
{
	int ret = ini_parse(p->file, on_key, p);

	if (ret < 0) {
		fprintf(stderr, "rdmacm-mux: %s: cannot read: %s\n", p->file, strerror(errno));
		return EIO;
	}
	if (ret > 0) {
		fprintf(stderr, "rdmacm-mux: %s: line %d is neither a section nor key = value\n",
			p->file, ret);
		return EINVAL;
	}
	return p->failed ? EINVAL : 0;
}

static int check_range(const char *name, uint32_t v, uint32_t lo, uint32_t hi)
{
	if (v >= lo && v <= hi)
		return 0;
	fprintf(stderr, "rdmacm-mux: %s is %u, must be from %u to %u\n", name, v, lo, hi);
	return EINVAL;
}

/* Fills in what depends on several keys, and checks. */
static int config_finish(struct config *cfg, const char *prefix)
{
	int ret;

	if (!cfg->n_ports) {
		fprintf(stderr, "rdmacm-mux: no device given: use -d DEVICE, or a [port DEVICE/N] "
				"section in the configuration file\n");
		return EINVAL;
	}
	ret = check_range("max_clients", cfg->max_clients, 1, 65536) ||
	      check_range("max_sessions_total", cfg->max_sessions, 16, 1 << 24) ||
	      check_range("lanes", cfg->lanes, 1, 16) ||
	      check_range("probes", cfg->probes, 1, 16) ||
	      check_range("queue", cfg->limits.queue, 1, 65536) ||
	      check_range("max_gids", cfg->limits.max_gids, 1, 4096);
	if (ret)
		return EINVAL;
	for (struct rule *r = cfg->rules; r; r = r->next)
		inherit_limits(r, &cfg->limits);
	for (struct rule *r = cfg->rules; r; r = r->next)
		if (check_range("queue", r->limits.queue, 1, 65536) ||
		    check_range("max_gids", r->limits.max_gids, 1, 4096))
			return EINVAL;
	for (unsigned int i = 0; i < cfg->n_ports; i++) {
		struct port_config *p = &cfg->ports[i];

		if (!p->listens && !add_listen(p, NULL))
			return ENOMEM;
		for (struct listen_config *l = p->listens; l; l = l->next)
			if (!l->path[0] && default_path(l->path, prefix, p->device, p->port)) {
				fprintf(stderr,
					"rdmacm-mux: socket path %s-%s-%u is longer than %d "
					"bytes\n",
					prefix, p->device, p->port, CONFIG_PATH_MAX - 1);
				return EINVAL;
			}
	}
	return 0;
}

static void usage(FILE *out)
{
	fprintf(out,
		"Usage: rdmacm-mux -d DEVICE [-p PORT] [-s PREFIX] [options]\n"
		"       rdmacm-mux -c FILE [options]\n"
		"Shares the communication-management agent of an RDMA port among virtual machines.\n\n"
		"  -d, --device=NAME      RDMA device, as in /sys/class/infiniband\n"
		"  -p, --port=N           its port (default 1)\n"
		"  -s, --socket=PREFIX    clients connect to PREFIX-DEVICE-PORT (default %s)\n"
		"  -c, --config=FILE      configuration file, see rdmacm-mux.conf(5)\n"
		"  -o, --option=KEY=VALUE one key of the file's [mux] section\n"
		"  -u, --user=NAME        user to become once the device is open\n"
		"  -S, --state=FILE       keep clients and sessions over a restart\n"
		"  -v, --verbose          log every message\n"
		"  -V, --version          print the version\n"
		"  -h, --help             this text\n",
		MUX_DEFAULT_PREFIX);
}

static int set_option(struct config *cfg, const char *text)
{
	const char *eq = strchr(text, '=');
	char key[CONFIG_MAX_NAME];
	int ret;

	if (!eq || (size_t)(eq - text) >= sizeof(key)) {
		fprintf(stderr, "rdmacm-mux: -o %s: expected KEY=VALUE\n", text);
		return EINVAL;
	}
	memcpy(key, text, (size_t)(eq - text));
	key[eq - text] = '\0';
	ret = set_global(cfg, key, eq + 1);
	if (ret)
		fprintf(stderr, "rdmacm-mux: -o %s: %s\n", text,
			ret == ENOENT ? "unknown key" : "bad value");
	return ret;
}

static struct config *config_read(int argc, char **argv, int *status)
{
	static const struct option longs[] = {
		{ "device", required_argument, NULL, 'd' },
		{ "port", required_argument, NULL, 'p' },
		{ "socket", required_argument, NULL, 's' },
		{ "config", required_argument, NULL, 'c' },
		{ "option", required_argument, NULL, 'o' },
		{ "user", required_argument, NULL, 'u' },
		{ "state", required_argument, NULL, 'S' },
		{ "verbose", no_argument, NULL, 'v' },
		{ "version", no_argument, NULL, 'V' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const char *prefix = MUX_DEFAULT_PREFIX, *device = NULL;
	struct config *cfg = config_default();
	struct parse parse = { .cfg = cfg };
	uint32_t port = 1;
	int c;

	*status = EXIT_USAGE;
	if (!cfg)
		return NULL;
	/* The file first, wherever it stands, so that the command line wins. */
	optind = 0;
	while ((c = getopt_long(argc, argv, "d:p:s:c:o:u:S:vVh", longs, NULL)) != -1) {
		if (c == '?')
			goto err;
		if (c == 'c') {
			parse.file = optarg;
			if (read_file(&parse))
				goto err;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "rdmacm-mux: unexpected argument %s\n", argv[optind]);
		goto err;
	}
	optind = 0;
	while ((c = getopt_long(argc, argv, "d:p:s:c:o:u:S:vVh", longs, NULL)) != -1) {
		switch (c) {
		case 'd':
			device = optarg;
			break;
		case 'p':
			if (parse_u32(optarg, &port) || port > 254) {
				fprintf(stderr, "rdmacm-mux: port %s is no number from 0 to 254\n",
					optarg);
				goto err;
			}
			break;
		case 's':
			prefix = optarg;
			break;
		case 'o':
			if (set_option(cfg, optarg))
				goto err;
			break;
		case 'u':
			if (set_string(&cfg->user, optarg))
				goto err;
			break;
		case 'S':
			if (set_string(&cfg->state_file, optarg))
				goto err;
			break;
		case 'v':
			cfg->log_level = LOG_DEBUG;
			break;
		case 'V':
			puts("rdmacm-mux 0.1.0");
			*status = 0;
			goto err;
		case 'h':
			usage(stdout);
			*status = 0;
			goto err;
		default:
			break;
		}
	}
	if (device && !first_port(cfg, device, port)) {
		fprintf(stderr, "rdmacm-mux: device name \"%s\" is empty or longer than %d bytes\n",
			device, CONFIG_MAX_NAME - 1);
		goto err;
	}
	if (config_finish(cfg, prefix))
		goto err;
	*status = 0;
	return cfg;

err:
	config_free(cfg);
	return NULL;
}

struct config *config_from_args(int argc, char **argv, int *status)
{
	saved_argc = argc;
	saved_argv = argv;
	return config_read(argc, argv, status);
}

struct config *config_reload(void)
{
	int status;

	return config_read(saved_argc, saved_argv, &status);
}

/* Whether path is prefix or lies below it. The prefix of a name is another name. */
static bool in_cgroup(const char *path, const char *prefix)
{
	size_t len = strlen(prefix);

	if (!path || !len || strncmp(path, prefix, len) != 0)
		return false;
	return prefix[len - 1] == '/' || !path[len] || path[len] == '/';
}

const struct rule *config_match(const struct config *cfg, const char *listen, uid_t uid, gid_t gid,
				const char *cgroup, bool *denied)
{
	*denied = false;
	for (const struct rule *r = cfg->rules; r; r = r->next) {
		if ((r->has_uid && r->uid != uid) || (r->has_gid && r->gid != gid))
			continue;
		if (r->listen && strcmp(r->listen, listen) != 0)
			continue;
		if (r->cgroup && !in_cgroup(cgroup, r->cgroup))
			continue;
		*denied = r->deny;
		return r;
	}
	*denied = cfg->rules != NULL;
	return NULL;
}

static bool in_nets(const uint8_t *gid, const struct gid_net *nets, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		if (gid_in_net(gid, &nets[i]))
			return true;
	return false;
}

bool config_gid_allowed(const struct config *cfg, const struct rule *rule,
			const uint8_t gid[MUX_GID_SIZE])
{
	if (gid_is_zero(gid) || gid_is_multicast(gid))
		return false;
	/* of use on one machine only: a rule has to name it */
	if (gid_is_loopback(gid) && !(rule && rule->n_nets))
		return false;
	if (in_nets(gid, cfg->deny, cfg->n_deny))
		return false;
	return !rule || !rule->n_nets || in_nets(gid, rule->nets, rule->n_nets);
}
