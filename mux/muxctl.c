// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* rdmacm-muxctl: asks a running mux over its control socket and prints tables. */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "mux/protocol.h"

#define EXIT_USAGE 2
#define PATH_LEN   108
#define READ_STEP  65536

struct ctl {
	int fd;
	bool json;
	const char *arg;
};

static void usage(FILE *out)
{
	fprintf(out,
		"Usage: rdmacm-muxctl [-d DEVICE] [-p PORT] [-s PREFIX | -S SOCKET] [--json] COMMAND\n\n"
		"  status               the mux and its ports\n"
		"  clients              who is connected, with which GIDs\n"
		"  sessions [CLIENT]    communication ids\n"
		"  stats                messages passed on and dropped\n"
		"  metrics              the same as Prometheus text\n"
		"  drain [off]          let no new connections in\n"
		"  reload               read the configuration file again\n"
		"  disconnect CLIENT    close a client's connection\n"
		"  log LEVEL            err, warning, notice, info or debug\n\n"
		"  -d, --device=NAME    the device the mux was started with\n"
		"  -p, --port=N         its port (default 1)\n"
		"  -s, --socket=PREFIX  its prefix (default %s)\n"
		"  -S, --control=PATH   the control socket itself\n"
		"  -j, --json           print the answers as they are\n"
		"  -h, --help           this text\n",
		MUX_DEFAULT_PREFIX);
}

static int connect_to(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0)
		return fd;
	fprintf(stderr, "rdmacm-muxctl: cannot reach a mux on %s: %s\n", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	return -1;
}

/* One line with its end; the caller frees. */
static char *read_line(int fd, size_t *len)
{
	size_t size = 0, got = 0;
	char *buf = NULL, *grown;
	ssize_t n;

	do {
		if (size - got < READ_STEP) {
			size += 2 * READ_STEP;
			grown = realloc(buf, size);
			if (!grown)
				goto err;
			buf = grown;
		}
		n = recv(fd, buf + got, size - got, 0);
		if (n <= 0)
			goto err;
		got += (size_t)n;
	} while (buf[got - 1] != '\n');
	*len = got;
	return buf;

err:
	free(buf);
	return NULL;
}

static json_t *ask(struct ctl *ctl, json_t *req)
{
	char *text = json_dumps(req, JSON_COMPACT), *line;
	json_t *ans = NULL;
	size_t len;

	if (!text || send(ctl->fd, text, strlen(text), MSG_NOSIGNAL) < 0 ||
	    send(ctl->fd, "\n", 1, MSG_NOSIGNAL) < 0) {
		fprintf(stderr, "rdmacm-muxctl: the mux closed the connection\n");
		free(text);
		return NULL;
	}
	free(text);
	line = read_line(ctl->fd, &len);
	if (line)
		ans = json_loadb(line, len, 0, NULL);
	free(line);
	if (!ans) {
		fprintf(stderr, "rdmacm-muxctl: no answer that can be read\n");
		return NULL;
	}
	if (!json_is_true(json_object_get(ans, "ok"))) {
		fprintf(stderr, "rdmacm-muxctl: %s\n",
			json_string_value(json_object_get(ans, "error")));
		json_decref(ans);
		return NULL;
	}
	return ans;
}

static const char *str(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "-";
}

static long long num(const json_t *o, const char *key)
{
	return (long long)json_integer_value(json_object_get(o, key));
}

static const char *yes(const json_t *o, const char *key)
{
	return json_is_true(json_object_get(o, key)) ? "yes" : "no";
}

/* Tables ------------------------------------------------------------------------------------------- */

static void print_status(const json_t *ans)
{
	const json_t *port;
	size_t i;

	printf("version   %s, pid %lld, up %lld s%s\n", str(ans, "version"), num(ans, "pid"),
	       num(ans, "uptime_seconds"),
	       json_is_true(json_object_get(ans, "draining")) ? ", draining" : "");
	printf("clients   %lld connected, %lld in grace, at most %lld\n", num(ans, "clients"),
	       num(ans, "clients_in_grace"), num(ans, "clients_limit"));
	printf("gids      %lld\n", num(ans, "gids"));
	printf("sessions  %lld, %lld of them without client, at most %lld\n", num(ans, "sessions"),
	       num(ans, "sessions_without_client"), num(ans, "sessions_limit"));
	printf("restart   %s\n", json_is_true(json_object_get(ans, "survives_restart")) ?
					 "clients and sessions survive it" :
					 "clients have to connect again");
	json_array_foreach(json_object_get(ans, "ports"), i, port)
		printf("port      %s/%lld %s, %s, %lld peers, %lld MADs waiting\n",
		       str(port, "device"), num(port, "port"),
		       json_is_true(json_object_get(port, "up")) ? "up" : "DOWN", str(port, "link"),
		       num(port, "peers"), num(port, "mads_waiting"));
}

static void print_clients_head(void)
{
	printf("%8s %8s %6s %-12s %-9s %5s %8s %10s %10s %8s %s\n", "CLIENT", "PID", "UID", "PORT",
	       "STATE", "QUEUE", "SESSIONS", "SENT", "RECEIVED", "DROPPED", "GIDS");
}

static void print_client(const json_t *c)
{
	const json_t *gid, *gids = json_object_get(c, "gids");
	char port[80];
	size_t i;

	snprintf(port, sizeof(port), "%s/%lld", str(c, "device"), num(c, "port"));
	printf("%8lld %8lld %6lld %-12s %-9s %5lld %8lld %10lld %10lld %8lld", num(c, "client"),
	       num(c, "pid"), num(c, "uid"), port,
	       !json_is_true(json_object_get(c, "connected")) ? "grace" :
	       json_is_true(json_object_get(c, "stalled"))    ? "stalled" :
								"connected",
	       num(c, "queued"), num(c, "sessions"), num(c, "tx_mads"), num(c, "rx_mads"),
	       num(c, "rx_dropped"));
	json_array_foreach(gids, i, gid) printf("%s%s", i ? "," : " ", json_string_value(gid));
	printf("\n");
}

static void print_sessions_head(void)
{
	printf("%8s %-10s %-7s %-13s %-10s %-10s %-10s %8s %-24s %s\n", "CLIENT", "KIND", "ROLE",
	       "STATE", "WIRE-ID", "CLIENT-ID", "PEER-ID", "IDLE", "GID", "PEER");
}

static void print_session(const json_t *s)
{
	const json_t *client = json_object_get(s, "client");
	char number[24] = "-";

	if (json_is_integer(client))
		snprintf(number, sizeof(number), "%lld", num(s, "client"));
	printf("%8s %-10s %-7s %-13s %-10s %-10s %-10s %7llds %-24s %s\n", number, str(s, "kind"),
	       str(s, "role"), str(s, "state"), str(s, "wire_id"), str(s, "client_id"),
	       str(s, "peer_id"), num(s, "idle_ms") / 1000, str(s, "gid"), str(s, "peer"));
}

static void print_counts(const char *what, json_t *counts)
{
	const char *key;
	json_t *v;

	json_object_foreach(counts, key, v)
		printf("  %-10s %-20s %12lld\n", what, key, (long long)json_integer_value(v));
}

static void print_stats(const json_t *ans)
{
	const json_t *port;
	size_t i;

	printf("connections: %lld accepted, %lld refused; %lld buffers; %lld bytes a client, %lld a session\n",
	       num(ans, "accepted"), num(ans, "refused"), num(ans, "buffers"),
	       num(ans, "bytes_per_client"), num(ans, "bytes_per_session"));
	json_array_foreach(json_object_get(ans, "ports"), i, port)
	{
		printf("%s/%lld: %lld received, %lld written, %lld write errors, %lld inside, %lld own, %lld crossed\n",
		       str(port, "device"), num(port, "port"), num(port, "received"),
		       num(port, "written"), num(port, "write_errors"), num(port, "hairpin"),
		       num(port, "built"), num(port, "crossed"));
		print_counts("sent", json_object_get(port, "tx"));
		print_counts("received", json_object_get(port, "rx"));
		print_counts("dropped", json_object_get(port, "dropped"));
	}
}

/* Commands ----------------------------------------------------------------------------------------- */

static int print_json(json_t *ans)
{
	if (json_dumpf(ans, stdout, JSON_INDENT(2)))
		return EXIT_FAILURE;
	printf("\n");
	return EXIT_SUCCESS;
}

/* Fetches a table page by page. */
static int run_list(struct ctl *ctl, const char *name, json_t *req, void (*head)(void),
		    void (*row)(const json_t *))
{
	json_t *all = json_array(), *ans, *list, *next, *entry;
	int status = EXIT_SUCCESS;
	size_t i;

	if (!ctl->json)
		head();
	do {
		ans = ask(ctl, req);
		if (!ans) {
			json_decref(all);
			return EXIT_FAILURE;
		}
		list = json_object_get(ans, name);
		if (ctl->json)
			json_array_extend(all, list);
		else
			json_array_foreach(list, i, entry) row(entry);
		next = json_object_get(ans, "next");
		if (next)
			json_object_set(req, "cursor", next);
		next = next ? req : NULL;
		json_decref(ans);
	} while (next);
	if (ctl->json)
		status = print_json(all);
	json_decref(all);
	return status;
}

static int run_once(struct ctl *ctl, json_t *req, void (*print)(const json_t *))
{
	json_t *ans = ask(ctl, req);
	int status = EXIT_SUCCESS;

	if (!ans)
		return EXIT_FAILURE;
	if (ctl->json)
		status = print_json(ans);
	else if (print)
		print(ans);
	json_decref(ans);
	return status;
}

static void print_text(const json_t *ans)
{
	fputs(str(ans, "text"), stdout);
}

static void print_drain(const json_t *ans)
{
	printf("draining: %s, %lld sessions left\n", yes(ans, "draining"), num(ans, "sessions"));
}

static int set_client(json_t *req, const char *arg)
{
	char *end;
	long long n = strtoll(arg, &end, 10);

	if (!*arg || *end || n <= 0) {
		fprintf(stderr,
			"rdmacm-muxctl: \"%s\" is no client number: see rdmacm-muxctl clients\n",
			arg);
		return EINVAL;
	}
	json_object_set_new(req, "client", json_integer(n));
	return 0;
}

static int run(struct ctl *ctl, const char *cmd)
{
	json_t *req = json_pack("{s:s}", "command", cmd);
	int status = EXIT_USAGE;

	if (strcmp(cmd, "status") == 0) {
		status = run_once(ctl, req, print_status);
	} else if (strcmp(cmd, "clients") == 0) {
		status = run_list(ctl, "clients", req, print_clients_head, print_client);
	} else if (strcmp(cmd, "sessions") == 0) {
		if (!ctl->arg || !set_client(req, ctl->arg))
			status = run_list(ctl, "sessions", req, print_sessions_head, print_session);
	} else if (strcmp(cmd, "stats") == 0) {
		status = run_once(ctl, req, print_stats);
	} else if (strcmp(cmd, "metrics") == 0) {
		status = run_once(ctl, req, print_text);
	} else if (strcmp(cmd, "drain") == 0) {
		if (ctl->arg && strcmp(ctl->arg, "off") == 0)
			json_object_set_new(req, "off", json_true());
		status = run_once(ctl, req, print_drain);
	} else if (strcmp(cmd, "reload") == 0) {
		status = run_once(ctl, req, NULL);
	} else if (strcmp(cmd, "disconnect") == 0 && ctl->arg) {
		if (!set_client(req, ctl->arg))
			status = run_once(ctl, req, NULL);
	} else if (strcmp(cmd, "log") == 0 && ctl->arg) {
		json_object_set_new(req, "level", json_string(ctl->arg));
		status = run_once(ctl, req, NULL);
	} else {
		fprintf(stderr, "rdmacm-muxctl: %s: no such command, or its argument is missing\n",
			cmd);
		usage(stderr);
	}
	json_decref(req);
	return status;
}

static int find_socket(char path[PATH_LEN], const char *prefix, const char *device,
		       const char *port)
{
	int n;

	if (!device) {
		fprintf(stderr, "rdmacm-muxctl: say which mux: -d DEVICE, or -S SOCKET\n");
		return EINVAL;
	}
	/* Where the packaged unit has it, unless a mux was started by hand. */
	snprintf(path, PATH_LEN, "/run/rdmacm-mux/%s-%s.ctl", device, port);
	if (strcmp(prefix, MUX_DEFAULT_PREFIX) == 0 && access(path, F_OK) == 0)
		return 0;
	n = snprintf(path, PATH_LEN, "%s-%s-%s.ctl", prefix, device, port);
	if (n >= 0 && n < PATH_LEN)
		return 0;
	fprintf(stderr, "rdmacm-muxctl: socket path %s-%s-%s.ctl is too long\n", prefix, device,
		port);
	return ENAMETOOLONG;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "device", required_argument, NULL, 'd' },
		{ "port", required_argument, NULL, 'p' },
		{ "socket", required_argument, NULL, 's' },
		{ "control", required_argument, NULL, 'S' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const char *prefix = MUX_DEFAULT_PREFIX, *device = NULL, *port = "1", *control = NULL;
	struct ctl ctl = { .fd = -1 };
	char path[PATH_LEN];
	int c, status;

	while ((c = getopt_long(argc, argv, "d:p:s:S:jh", longs, NULL)) != -1) {
		switch (c) {
		case 'd':
			device = optarg;
			break;
		case 'p':
			port = optarg;
			break;
		case 's':
			prefix = optarg;
			break;
		case 'S':
			control = optarg;
			break;
		case 'j':
			ctl.json = true;
			break;
		case 'h':
			usage(stdout);
			return EXIT_SUCCESS;
		default:
			return EXIT_USAGE;
		}
	}
	if (optind == argc || argc - optind > 2) {
		usage(stderr);
		return EXIT_USAGE;
	}
	ctl.arg = argc - optind == 2 ? argv[optind + 1] : NULL;
	if (!control) {
		if (find_socket(path, prefix, device, port))
			return EXIT_USAGE;
		control = path;
	}
	ctl.fd = connect_to(control);
	if (ctl.fd < 0)
		return EXIT_FAILURE;
	status = run(&ctl, argv[optind]);
	close(ctl.fd);
	return status;
}
