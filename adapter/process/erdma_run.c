// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* erdma-run: start a program with the adapter in it. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <glob.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>
#include "adapter/process/erdma_run.h"
#include "adapter/process/settings.h"

#ifndef ER_VERSION
#define ER_VERSION "unknown"
#endif

enum {
	EXIT_USAGE = 2,
	EXIT_CANNOT = 126,
	EXIT_NOT_FOUND = 127,
};

static const char usage[] =
	"usage: erdma-run [OPTIONS] PROGRAM [ARGUMENTS]\n"
	"\n"
	"Runs PROGRAM with an Elastic RDMA Adapter in software: libibverbs, librdmacm and whatever uses\n"
	"them find a device erdma_0 that works over TCP.  No kernel module, privilege or daemon is needed.\n"
	"Programs that PROGRAM starts see it too.\n"
	"\n"
	"  --provider WHICH    ours (default): this project's libibverbs provider;\n"
	"                      system: the one of the distribution; or the path of one, as in\n"
	"                      /usr/lib/x86_64-linux-gnu/libibverbs/liberdma-rdmav34.so\n"
	"  --device WHERE[,name=NAME]\n"
	"                      a device on this interface, or on the one that has this address; several\n"
	"                      make several devices, the first of which also serves local addresses\n"
	"                      of other interfaces.  Default: one device on the interface of the\n"
	"                      default route\n"
	"  --umad WHERE[,name=NAME]\n"
	"                      a device of another kind: a RoCE port that programs use through\n"
	"                      /dev/infiniband/umadN (rdmacm-mux, ibstat, libibumad); MADs travel as\n"
	"                      RoCEv2 packets.  Its GIDs are the addresses of this interface, or this\n"
	"                      one address; without a name it is roce_0, roce_1, ...\n"
	"  --mode MODE         iwarp (default): connections by rdma_cm; the wire is MPA, DDP, RDMAP over TCP;\n"
	"                      roce: a RoCE device, whose queue pairs programs connect themselves\n"
	"  --no-netlink        refuse NETLINK_RDMA, so that devices are looked for in sysfs\n"
	"  --crc on|off        ask the peer for CRC32C on every FPDU (off)\n"
	"  --mulpdu BYTES      longest ULPDU to send (0: the usual)\n"
	"  --log LEVEL         off, error (default), info or debug; to standard error\n"
	"  --version, --help\n"
	"\n"
	"exit code: the program's; 2 for a wrong option, 126 when PROGRAM cannot take the adapter,\n"
	"127 when it is not found\n";

static void die(int code, const char *fmt, ...) __attribute__((noreturn, format(printf, 2, 3)));

static void die(int code, const char *fmt, ...)
{
	va_list args;

	fprintf(stderr, "erdma-run: ");
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fprintf(stderr, "\n");
	exit(code);
}

/* ------------------------------------------------------------------ our own files */

/* Folder of this program; where /proc is missing, by the name it was started with. */
static void own_folder(char *folder, size_t size)
{
	const char *started = (const char *)getauxval(AT_EXECFN);
	ssize_t len = readlink("/proc/self/exe", folder, size - 1);
	char *slash, *real;

	if (len >= 0) {
		folder[len] = 0;
	} else {
		real = started ? realpath(started, NULL) : NULL;
		if (!real || strlen(real) >= size)
			die(EXIT_CANNOT, "cannot find its own place: %s", strerror(errno));
		strcpy(folder, real);
		free(real);
	}
	slash = strrchr(folder, '/');
	if (slash)
		*slash = 0;
}

/*
 * liberdma-host.so: beside bin in the build tree, in one of the usual folders where it is
 * installed.
 */
static void find_library(const char *folder, char *lib, size_t size)
{
	static const char *const places[] = {
		"../lib",
		"../lib/elastic-rdma",
		"../lib/x86_64-linux-gnu",
		"../lib/aarch64-linux-gnu",
		"../lib64",
		".",
	};
	char path[PATH_MAX * 2];
	size_t i;

	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		char *real;

		snprintf(path, sizeof(path), "%s/%s/liberdma-host.so", folder, places[i]);
		real = realpath(path, NULL);
		if (!real)
			continue;
		if (strlen(real) >= size || strlen(real) >= SETTINGS_MAX_PATH - 32)
			die(EXIT_CANNOT, "the path of %s is too long", real);
		strcpy(lib, real);
		free(real);
		/* it separates entries in LD_PRELOAD */
		if (strpbrk(lib, ": ;"))
			die(EXIT_CANNOT,
			    "\"%s\" cannot be preloaded: its path holds a space, colon or semicolon",
			    lib);
		return;
	}
	die(EXIT_CANNOT, "liberdma-host.so is not in %s/../lib", folder);
}

/* Is there a provider named @stem-rdmavNN.so? */
static bool provider_exists(const char *stem)
{
	char pattern[PATH_MAX + 32];
	glob_t found;
	bool yes;

	snprintf(pattern, sizeof(pattern), "%s-rdmav*.so", stem);
	yes = !glob(pattern, 0, NULL, &found);
	if (yes)
		globfree(&found);
	return yes;
}

/*
 * @file without links in its folder, but with the name that was given: libibverbs looks at that, and a provider may be
 * a link to the library that it is part of.  False: errno, or too long.
 */
static bool absolute(const char *file, char *path, size_t size)
{
	const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
	char folder[PATH_MAX], *real;
	bool fits;

	snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(name - file) : 1,
		 slash ? file : ".");
	real = realpath(folder, NULL);
	if (!real)
		return false;
	fits = snprintf(path, size, "%s/%s", strcmp(real, "/") ? real : "", name) < (int)size;
	free(real);
	errno = ENAMETOOLONG;
	return fits;
}

/* What RDMAV_DRIVERS has to name: a path without "-rdmavNN.so". */
static void find_provider(const char *which, const char *lib, char *drivers, size_t size)
{
	char stem[PATH_MAX + 32], *suffix;
	struct stat st;

	if (!strcmp(which, "system")) {
		drivers[0] = 0;
		return;
	}
	if (!strcmp(which, "ours")) {
		snprintf(stem, sizeof(stem), "%.*s/liberdma", (int)(strrchr(lib, '/') - lib), lib);
		if (!provider_exists(stem))
			die(EXIT_CANNOT,
			    "this project's provider %s-rdmav*.so is not there; build it, or take the distribution's with --provider system",
			    stem);
	} else {
		if (stat(which, &st) || !absolute(which, stem, PATH_MAX))
			die(EXIT_USAGE,
			    "--provider \"%s\": %s (give ours, system, or the path of a provider)",
			    which, strerror(errno));
		if (S_ISDIR(st.st_mode)) {
			strcat(stem, "/liberdma");
		} else {
			suffix = strstr(strrchr(stem, '/'), "-rdmav");
			if (!suffix)
				die(EXIT_USAGE,
				    "--provider \"%s\": libibverbs takes only files whose names end in -rdmavNN.so",
				    which);
			*suffix = 0;
		}
		if (!provider_exists(stem))
			die(EXIT_USAGE, "--provider \"%s\": there is no %s-rdmavNN.so", which,
			    stem);
	}
	if (strlen(stem) >= size || strpbrk(stem, ":;"))
		die(EXIT_CANNOT, "the provider's path %s is too long or holds a colon or semicolon",
		    stem);
	strcpy(drivers, stem);
}

/* ------------------------------------------------------------------ options */

static bool address_is_local(const char *text)
{
	struct ifaddrs *list, *ifa;
	unsigned char addr[16], *have;
	bool v6 = strchr(text, ':'), found = false;
	char host[64];

	snprintf(host, sizeof(host), "%.*s", (int)strcspn(text, "%"), text);
	if (inet_pton(v6 ? AF_INET6 : AF_INET, host, addr) != 1 || getifaddrs(&list))
		return false;
	for (ifa = list; ifa && !found; ifa = ifa->ifa_next) {
		if (!ifa->ifa_addr || ifa->ifa_addr->sa_family != (v6 ? AF_INET6 : AF_INET))
			continue;
		have = v6 ? (unsigned char *)&((struct sockaddr_in6 *)ifa->ifa_addr)->sin6_addr :
			    (unsigned char *)&((struct sockaddr_in *)ifa->ifa_addr)->sin_addr;
		found = !memcmp(have, addr, v6 ? 16 : 4);
	}
	freeifaddrs(list);
	return found || (!v6 && addr[0] == 127);
}

static void check_devices(const char *option, const struct settings_device *list,
			  unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		const char *where = list[i].where;

		if (*where && !if_nametoindex(where) && !address_is_local(where))
			die(EXIT_USAGE,
			    "--%s \"%s\": there is no interface of this name, and none has this address",
			    option, where);
	}
}

static void set_or_die(struct settings *set, const char *key, const char *value)
{
	char err[256];

	if (!settings_set(set, key, value, err, sizeof(err)))
		die(EXIT_USAGE, "--%s: %s", key, err);
}

/*
 * Put @entry in front of the list in the environment variable @name; behind it where something there must see the
 * program's calls first.
 */
static void prepend(const char *name, const char *entry)
{
	const char *old = getenv(name);
	/* it turns sockets into RDMA ones, and must not meet those of the adapter */
	bool behind = old && strstr(old, "librspreload");
	char *list = NULL;

	if (!old || !*old) {
		if (setenv(name, entry, 1))
			die(EXIT_CANNOT, "cannot set %s: %s", name, strerror(errno));
		return;
	}
	if (asprintf(&list, "%s:%s", behind ? old : entry, behind ? entry : old) < 0 ||
	    setenv(name, list, 1))
		die(EXIT_CANNOT, "cannot set %s: %s", name, strerror(errno));
	free(list);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "provider", required_argument, NULL, 'p' },
		{ "device", required_argument, NULL, 'd' },
		{ "umad", required_argument, NULL, 'a' },
		{ "mode", required_argument, NULL, 'm' },
		{ "no-netlink", no_argument, NULL, 'n' },
		{ "crc", required_argument, NULL, 'c' },
		{ "mulpdu", required_argument, NULL, 'u' },
		{ "log", required_argument, NULL, 'l' },
		{ "version", no_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	char folder[PATH_MAX], lib[PATH_MAX], err[PATH_MAX + 512], text[8192];
	const char *provider = "ours";
	struct run_program program;
	enum run_verdict verdict;
	struct settings set;
	int option;

	settings_init(&set);
	/* "+": the first word that is no option is the program */
	while ((option = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
		switch (option) {
		case 'p':
			provider = optarg;
			break;
		case 'd':
			set_or_die(&set, "device", optarg);
			break;
		case 'a':
			set_or_die(&set, "umad", optarg);
			break;
		case 'm':
			set_or_die(&set, "mode", optarg);
			break;
		case 'n':
			set_or_die(&set, "netlink", "off");
			break;
		case 'c':
			set_or_die(&set, "crc", optarg);
			break;
		case 'u':
			set_or_die(&set, "mulpdu", optarg);
			break;
		case 'l':
			set_or_die(&set, "log", optarg);
			break;
		case 'v':
			printf("erdma-run " ER_VERSION "\n");
			return 0;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			fprintf(stderr, "erdma-run: `erdma-run --help` lists the options\n");
			return EXIT_USAGE;
		}
	}
	if (optind == argc) {
		if (argc > 1)
			die(EXIT_USAGE,
			    "no program is given; `erdma-run --help` lists the options");
		fputs(usage, stderr);
		return EXIT_USAGE;
	}
	check_devices("device", set.devices, set.ndevices);
	check_devices("umad", set.umads, set.numads);
	own_folder(folder, sizeof(folder));
	find_library(folder, lib, sizeof(lib));
	find_provider(provider, lib, set.drivers, sizeof(set.drivers));
	verdict = run_check(argv[optind], &program, err, sizeof(err));
	if (verdict != RUN_FINE)
		die(verdict == RUN_NOT_FOUND ? EXIT_NOT_FOUND : EXIT_CANNOT, "%s", err);

	if (!settings_format(&set, text, sizeof(text)))
		die(EXIT_USAGE, "the settings are too long");
	if (setenv(SETTINGS_ENV, text, 1))
		die(EXIT_CANNOT, "cannot set " SETTINGS_ENV ": %s", strerror(errno));
	prepend("LD_PRELOAD", lib);
	if (program.first[0])
		prepend("LD_PRELOAD", program.first);
	if (set.drivers[0])
		prepend("RDMAV_DRIVERS", set.drivers);
	execvp(program.path, argv + optind);
	die(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT, "cannot run %s: %s", program.path,
	    strerror(errno));
}
