// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * erdma-pci: serves functions of the Elastic RDMA Adapter to virtual machines.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "adapter/pci/fabric.h"
#include "adapter/pci/func.h"
#include "adapter/pci/server.h"

enum {
	MAX_FUNCTIONS = 16
};

struct served {
	char *path;
	uint8_t mac[6];
	struct pci_func *func;
	struct pci_server *server;
};

struct stopper {
	struct pci_fd pfd;
	struct pci_loop *loop;
};

static void on_signal(struct pci_fd *pfd, uint32_t events)
{
	(void)events;
	pci_loop_stop(container_of(pfd, struct stopper, pfd)->loop);
}

/* SIGTERM and SIGINT become events of the loop, also those that come while the program starts. */
static int stop_on_signals(struct stopper *stopper)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	stopper->pfd.events = EPOLLIN;
	stopper->pfd.ready = on_signal;
	stopper->pfd.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (stopper->pfd.fd < 0 || sigprocmask(SIG_BLOCK, &set, NULL))
		return errno;
	return pci_fd_add(stopper->loop, &stopper->pfd);
}

static void usage(FILE *out)
{
	fputs("usage: erdma-pci -f SOCKET,MAC [-f SOCKET,MAC ...] [options]\n"
	      "\n"
	      "Serves one ERDMA PCI function for each -f: a virtual machine monitor connects to\n"
	      "SOCKET by vfio-user; MAC is that of the guest's network device that carries its\n"
	      "TCP connections (52:54:00:12:34:56).\n"
	      "\n"
	      "  -d, --fabric-dir DIR      meet other erdma-pci of this host that name DIR, too\n"
	      "  -l, --listen ADDR:PORT    be found by erdma-pci of other hosts\n"
	      "  -p, --peer ADDR:PORT      look for peers there; may be repeated\n"
	      "  -b, --doorbells mapped|trapped\n"
	      "                            the guest rings in shared memory where its monitor can map\n"
	      "                            it (default), or always by message\n"
	      "  -v, --verbose             tell more; -q, --quiet: errors only\n"
	      "  -h, --help; -V, --version\n",
	      out);
}

static int parse_function(struct served *s, const char *arg)
{
	const char *comma = strrchr(arg, ',');
	unsigned int m[6];
	int i, end = 0;

	if (!comma || comma == arg ||
	    sscanf(comma + 1, "%2x:%2x:%2x:%2x:%2x:%2x%n", &m[0], &m[1], &m[2], &m[3], &m[4], &m[5],
		   &end) != 6 ||
	    comma[1 + end]) {
		fprintf(stderr, "erdma-pci: -f %s: want SOCKET,MAC\n", arg);
		return -1;
	}
	for (i = 0; i < 6; i++)
		s->mac[i] = (uint8_t)m[i];
	if (s->mac[0] & 1 || !memcmp(s->mac, "\0\0\0\0\0\0", 6)) {
		fprintf(stderr, "erdma-pci: -f %s: no MAC of a network device\n", arg);
		return -1;
	}
	s->path = strndup(arg, (size_t)(comma - arg));
	return s->path ? 0 : -1;
}

static int parse_doorbells(bool *mapped, const char *arg)
{
	*mapped = !strcmp(arg, "mapped");
	if (*mapped || !strcmp(arg, "trapped"))
		return 0;
	fprintf(stderr, "erdma-pci: -b %s: want mapped or trapped\n", arg);
	return -1;
}

static int serve(struct served *s, struct pci_loop *loop, struct pci_fabric *fabric, bool mapped)
{
	s->func = pci_func_create(s->path, s->mac, loop, fabric);
	if (!s->func) {
		fprintf(stderr, "erdma-pci: %s: %s\n", s->path, strerror(errno));
		return -1;
	}
	s->func->may_map = mapped;
	if (pci_fabric_add_func(fabric, s->func))
		return -1;
	s->server = pci_server_create(s->func, s->path);
	if (!s->server) {
		fprintf(stderr, "erdma-pci: cannot listen on %s: %s\n", s->path, strerror(errno));
		return -1;
	}
	return 0;
}

static void finish(struct served *s, struct pci_fabric *fabric)
{
	if (s->server)
		pci_server_destroy(s->server);
	if (s->func) {
		pci_fabric_del_func(fabric, s->func);
		pci_func_destroy(s->func);
	}
	free(s->path);
}

static int way_failed(const char *what, const char *where, int err)
{
	if (err)
		fprintf(stderr, "erdma-pci: %s %s: %s\n", what, where, strerror(err));
	return err;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "function", required_argument, NULL, 'f' },
		{ "fabric-dir", required_argument, NULL, 'd' },
		{ "listen", required_argument, NULL, 'l' },
		{ "peer", required_argument, NULL, 'p' },
		{ "doorbells", required_argument, NULL, 'b' },
		{ "verbose", no_argument, NULL, 'v' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	static struct served served[MAX_FUNCTIONS];
	struct stopper stopper = { .pfd.fd = -1 };
	struct pci_fabric *fabric;
	struct pci_loop *loop;
	unsigned int i, n = 0;
	bool mapped = true;
	int opt, ret = 1;

	loop = pci_loop_create();
	fabric = loop ? pci_fabric_create(loop) : NULL;
	if (!fabric) {
		perror("erdma-pci");
		return 1;
	}
	signal(SIGPIPE, SIG_IGN);
	stopper.loop = loop;
	if (stop_on_signals(&stopper)) {
		perror("erdma-pci: SIGTERM");
		goto out;
	}
	/* the sleeps between two looks at doorbell records are meant as they are */
	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	if (pci_dma_guard()) {
		perror("erdma-pci: SIGBUS");
		goto out;
	}
	while ((opt = getopt_long(argc, argv, "f:d:l:p:b:vqhV", options, NULL)) != -1) {
		int err = 0;

		switch (opt) {
		case 'f':
			if (n == MAX_FUNCTIONS) {
				fprintf(stderr, "erdma-pci: more than %d functions\n",
					MAX_FUNCTIONS);
				goto out;
			}
			err = parse_function(&served[n], optarg);
			n += !err;
			break;
		case 'd':
			err = way_failed("fabric folder", optarg,
					 pci_fabric_use_dir(fabric, optarg));
			break;
		case 'l':
			err = way_failed("listen", optarg, pci_fabric_listen(fabric, optarg));
			break;
		case 'p':
			err = way_failed("peer", optarg, pci_fabric_add_peer(fabric, optarg));
			break;
		case 'b':
			err = parse_doorbells(&mapped, optarg);
			break;
		case 'v':
			pci_log_set_level(PCI_LOG_DEBUG);
			break;
		case 'q':
			pci_log_set_level(PCI_LOG_ERR);
			break;
		case 'V':
			puts("erdma-pci " ER_VERSION);
			ret = 0;
			goto out;
		case 'h':
			usage(stdout);
			ret = 0;
			goto out;
		default:
			usage(stderr);
			goto out;
		}
		if (err)
			goto out;
	}
	if (optind != argc) {
		fprintf(stderr, "erdma-pci: %s: not an option\n", argv[optind]);
		goto out;
	}
	if (!n) {
		usage(stderr);
		goto out;
	}
	for (i = 0; i < n; i++)
		if (serve(&served[i], loop, fabric, mapped))
			goto out;
	puts("ready");
	fflush(stdout);
	pci_loop_run(loop);
	ret = 0;
out:
	for (i = 0; i < n; i++)
		finish(&served[i], fabric);
	pci_fabric_destroy(fabric);
	if (stopper.pfd.fd >= 0)
		close(stopper.pfd.fd);
	pci_loop_destroy(loop);
	return ret;
}
