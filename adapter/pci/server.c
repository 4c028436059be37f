// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "adapter/pci/func.h"
#include "adapter/pci/server.h"
#include "adapter/pci/session.h"
#include "adapter/pci/unix_socket.h"

struct pci_server {
	struct pci_func *func;
	struct pci_session *session;
	struct pci_fd pfd;
	char *path;
};

static void ended(struct pci_session *session, void *ctx)
{
	struct pci_server *server = ctx;

	pci_log(PCI_LOG_INFO, server->func->name, "client gone");
	server->session = NULL;
	pci_session_close(session);
}

static void ready(struct pci_fd *pfd, uint32_t events)
{
	struct pci_server *server = container_of(pfd, struct pci_server, pfd);
	int fd = accept4(pfd->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	(void)events;
	if (fd < 0)
		return;
	/* one that has gone a moment ago must not be in the way of its successor */
	if (server->session)
		pci_session_serve(server->session);
	if (server->session) {
		pci_func_complain(server->func, "second client refused");
		close(fd);
		return;
	}
	server->session = pci_session_open(server->func, fd, ended, server);
	if (!server->session) {
		pci_func_complain(server->func, "client refused: %s", strerror(errno));
		close(fd);
		return;
	}
	pci_log(PCI_LOG_INFO, server->func->name, "client connected");
}

struct pci_server *pci_server_create(struct pci_func *func, const char *path)
{
	struct pci_server *server = calloc(1, sizeof(*server));
	int err;

	if (!server)
		return NULL;
	server->func = func;
	server->path = strdup(path);
	if (!server->path) {
		err = ENOMEM;
		goto err_server;
	}
	server->pfd = (struct pci_fd){ .events = EPOLLIN, .ready = ready };
	server->pfd.fd = pci_unix_listen(path);
	if (server->pfd.fd < 0) {
		err = errno;
		goto err_path;
	}
	err = pci_fd_add(func->loop, &server->pfd);
	if (err)
		goto err_fd;
	return server;

err_fd:
	close(server->pfd.fd);
	unlink(path);
err_path:
	free(server->path);
err_server:
	free(server);
	errno = err;
	return NULL;
}

void pci_server_destroy(struct pci_server *server)
{
	if (server->session)
		pci_session_close(server->session);
	pci_fd_del(server->func->loop, &server->pfd);
	close(server->pfd.fd);
	unlink(server->path);
	free(server->path);
	free(server);
}
