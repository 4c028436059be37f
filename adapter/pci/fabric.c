// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Ends that wait, and ends of this process that meet.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/pci/fabric_internal.h"
#include "adapter/pci/func.h"
#include "adapter/pci/hw.h"

struct pci_fabric *pci_fabric_create(struct pci_loop *loop)
{
	struct pci_fabric *fabric = calloc(1, sizeof(*fabric));

	if (!fabric)
		return NULL;
	fabric->loop = loop;
	pci_list_init(&fabric->streams);
	pci_list_init(&fabric->directs);
	pci_list_init(&fabric->waiting);
	return fabric;
}

void pci_fabric_destroy(struct pci_fabric *fabric)
{
	pci_net_destroy(fabric);
	pci_streams_close(&fabric->streams);
	pci_directs_close(&fabric->directs);
	free(fabric->funcs);
	free(fabric);
}

int pci_fabric_add_func(struct pci_fabric *fabric, struct pci_func *func)
{
	struct pci_func **grown;

	grown = realloc(fabric->funcs, (fabric->nfuncs + 1) * sizeof(*grown));
	if (!grown)
		return ENOMEM;
	fabric->funcs = grown;
	fabric->funcs[fabric->nfuncs++] = func;
	return 0;
}

void pci_fabric_del_func(struct pci_fabric *fabric, struct pci_func *func)
{
	uint32_t i;

	for (i = 0; i < fabric->nfuncs && fabric->funcs[i] != func; i++)
		;
	if (i < fabric->nfuncs)
		fabric->funcs[i] = fabric->funcs[--fabric->nfuncs];
}

/*
 * The sequence numbers agree as well when all is right; cookies and addresses are enough, and do not
 * depend on what else a TCP stack may count.
 */
bool pci_fabric_match(const struct pci_fabric_key *a, const struct pci_fabric_key *b)
{
	return a->own_cookie == b->peer_cookie && a->peer_cookie == b->own_cookie &&
	       a->sip == b->dip && a->dip == b->sip && a->sport == b->dport && a->dport == b->sport;
}

bool pci_fabric_owns(const struct pci_fabric *fabric, uint32_t cookie)
{
	uint32_t i, qpn;

	for (i = 0; i < fabric->nfuncs; i++)
		for (qpn = 1; qpn < PCI_MAX_QP; qpn++)
			if (fabric->funcs[i]->qps[qpn].live &&
			    fabric->funcs[i]->qps[qpn].cookie == cookie)
				return true;
	return false;
}

/* ------------------------------------------------------------------ waiting */

static void wait_end(struct pci_wait *wait)
{
	pci_net_forget(wait);
	pci_timer_cancel(&wait->timer);
	pci_timer_cancel(&wait->retry);
	pci_job_cancel(&wait->expired);
	pci_job_cancel(&wait->connect);
	if (wait->fd >= 0)
		close(wait->fd);
	pci_list_remove(&wait->place);
	wait->func->qps[wait->qpn].wait = NULL;
	free(wait);
}

static void wait_expired(struct pci_job *job)
{
	struct pci_wait *wait = container_of(job, struct pci_wait, expired);
	struct pci_func *func = wait->func;
	uint32_t qpn = wait->qpn;
	char ip[INET_ADDRSTRLEN] = "?";

	inet_ntop(AF_INET, &wait->key.dip, ip, sizeof(ip));
	pci_func_complain(func, "QP %u: its peer at %s port %u is on no adapter of this fabric",
			  qpn, ip, ntohs(wait->key.dport));
	wait_end(wait);
	ea_qp_modify(func->core, qpn, EA_QP_ERROR);
	pci_eq_async(func, AEQE_QP_FATAL, qpn);
}

static void wait_timeout(struct pci_timer *timer)
{
	struct pci_wait *wait = container_of(timer, struct pci_wait, timer);

	pci_job_enter(wait->func, &wait->expired);
}

static int connect_now(struct pci_wait *wait, int fd)
{
	int err = pci_stream_open(&wait->fabric->streams, wait->func, wait->qpn, fd);

	if (!err)
		wait_end(wait);
	return err;
}

static void connect_run(struct pci_job *job)
{
	struct pci_wait *wait = container_of(job, struct pci_wait, connect);
	int fd = wait->fd;

	wait->fd = -1;
	if (connect_now(wait, fd))
		close(fd);
}

int pci_wait_connect(struct pci_wait *wait, int fd)
{
	if (!wait->func->far)
		return connect_now(wait, fd);
	if (wait->fd >= 0)
		return EALREADY;
	wait->fd = fd;
	pci_job_enter(wait->func, &wait->connect);
	return 0;
}

/* The two functions must not touch each other's QPs: a socket is between them. */
static int meet_apart(struct pci_func *func, uint32_t qpn, struct pci_wait *other)
{
	int fds[2];
	int err;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds))
		return errno;
	err = pci_stream_open(&func->fabric->streams, func, qpn, fds[0]);
	if (err)
		close(fds[0]);
	/* without the other end this QP sees a peer that has gone, as it would on a wire */
	if (err || pci_wait_connect(other, fds[1]))
		close(fds[1]);
	return err;
}

int pci_fabric_join(struct pci_func *func, uint32_t qpn, const struct pci_fabric_key *key)
{
	struct pci_fabric *fabric = func->fabric;
	struct pci_wait *wait, *other;
	struct pci_list *pos;
	int err;

	pci_fabric_leave(func, qpn);
	for (pos = fabric->waiting.next; pos != &fabric->waiting; pos = pos->next) {
		other = container_of(pos, struct pci_wait, place);
		if (!pci_fabric_match(key, &other->key))
			continue;
		if (other->func != func && (other->func->far || func->far))
			return meet_apart(func, qpn, other);
		err = pci_direct_open(&fabric->directs, func, qpn, other->func, other->qpn);
		if (!err)
			wait_end(other);
		return err;
	}

	wait = calloc(1, sizeof(*wait));
	if (!wait)
		return ENOMEM;
	wait->fabric = fabric;
	wait->func = func;
	wait->qpn = qpn;
	wait->key = *key;
	pci_list_init(&wait->dials);
	pci_list_insert(&fabric->waiting, &wait->place);
	func->qps[qpn].wait = wait;
	wait->fd = -1;
	wait->expired.run = wait_expired;
	wait->connect.run = connect_run;
	wait->timer.fire = wait_timeout;
	pci_timer_set(fabric->loop, &wait->timer, PCI_FABRIC_WAIT_NS);
	if (!pci_net_claim(wait))
		pci_net_ask(wait);
	return 0;
}

void pci_fabric_leave(struct pci_func *func, uint32_t qpn)
{
	if (func->qps[qpn].wait)
		wait_end(func->qps[qpn].wait);
}
