// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Agents of a port, requests that wait for a response, and who gets what arrives. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "adapter/process/gid.h"
#include "adapter/process/umad.h"

enum {
	MAX_CLASS = 80, /* of those with a table entry in the kernel */
	MAX_CLASS_VERSION = 0x83,
	RMPP_VERSION = 1,
	HI_TID_MASK = 0xffffff, /* the kernel's are below 2^24 as well */
	LOW_TID_BITS = 32,
	METHOD_BITS = 32, /* of a word of the mask */
};

#define NS_PER_MS 1000000ull

/* ------------------------------------------------------------------ the port */

struct umad_port *umad_port_get(struct umad_dev *dev)
{
	struct umad_port *port = dev->port;

	if (!port) {
		port = calloc(1, sizeof(*port));
		if (!port)
			return NULL;
		port->dev = dev;
		gsi_open(port);
		dev->port = port;
	}
	port->files++;
	return port;
}

void umad_port_put(struct umad_port *port)
{
	if (--port->files)
		return;
	gsi_close(port);
	port->dev->port = NULL;
	free(port);
}

/* ------------------------------------------------------------------ agents */

static bool same_class(const struct umad_agent *a, const struct umad_agent *b)
{
	return a->mgmt_class == b->mgmt_class && a->class_version == b->class_version &&
	       (!ea_mad_class_is_vendor2(a->mgmt_class) || !memcmp(a->oui, b->oui, sizeof(a->oui)));
}

static bool methods_taken(const struct umad_port *port, const struct umad_agent *agent)
{
	const struct umad_agent *other;
	unsigned int i;

	for (other = port->agents; other; other = other->next) {
		if (!other->mgmt_class || !same_class(other, agent))
			continue;
		for (i = 0; i < sizeof(agent->methods) / sizeof(agent->methods[0]); i++) {
			if (other->methods[i] & agent->methods[i])
				return true;
		}
	}
	return false;
}

/* Does another process receive what this agent wants? */
static bool port_taken(struct umad_port *port)
{
	const struct gsi_sock *sock;
	char text[INET6_ADDRSTRLEN];

	gsi_sync(port);
	sock = gsi_deaf(port);
	if (!sock)
		return false;
	host_log(HOST_LOG_INFO,
		 "%s: no agent can register: UDP port %d of %s is in use (another process with "
		 "this address, or the kernel's rxe)",
		 port->dev->dev.name, EA_GSI_UDP_PORT, gid_text(sock->gid, text));
	return true;
}

static int check_class(const struct umad_agent *agent, uint8_t rmpp_version)
{
	static const uint8_t no_oui[3];

	if (agent->class_version >= MAX_CLASS_VERSION)
		return -EINVAL;
	/* QP 0's, and this is QP 1 */
	if (ea_mad_class_is_subn(agent->mgmt_class) || agent->mgmt_class >= MAX_CLASS)
		return -EINVAL;
	if (ea_mad_class_is_vendor2(agent->mgmt_class) && !memcmp(agent->oui, no_oui, 3))
		return -EINVAL;
	if (rmpp_version && !ea_mad_class_has_rmpp(agent->mgmt_class))
		return -EINVAL;
	return 0;
}

int umad_agent_add(struct umad_port *port, struct umad_agent *agent, unsigned int qpn,
		   uint8_t rmpp_version)
{
	static uint32_t next_tid;
	int ret;

	if (rmpp_version && rmpp_version != RMPP_VERSION)
		return -EINVAL;
	if (agent->mgmt_class) {
		ret = qpn == EA_GSI_QPN ? check_class(agent, rmpp_version) : 0;
		if (ret)
			return ret;
	}
	/* a RoCE port has no QP 0 */
	if (qpn != EA_GSI_QPN)
		return -EPROTONOSUPPORT;
	if (agent->mgmt_class && (methods_taken(port, agent) || port_taken(port)))
		return -EINVAL;
	next_tid = (next_tid + 1) & HI_TID_MASK;
	if (!next_tid)
		next_tid = 1;
	agent->hi_tid = next_tid;
	agent->next = port->agents;
	port->agents = agent;
	return 0;
}

static void send_free(struct umad_send *send)
{
	struct umad_file *file = send->agent->file;
	struct umad_send **at;

	engine_timer_cancel(&send->timer);
	for (at = &file->sends; *at != send; at = &(*at)->next)
		;
	*at = send->next;
	file->nsends--;
	free(send);
}

void umad_agent_del(struct umad_port *port, struct umad_agent *agent)
{
	struct umad_send *send, *next;
	struct umad_agent **at;

	for (send = agent->file->sends; send; send = next) {
		next = send->next;
		if (send->agent == agent)
			send_free(send);
	}
	for (at = &port->agents; *at != agent; at = &(*at)->next)
		;
	*at = agent->next;
	free(agent);
}

/* ------------------------------------------------------------------ send */

static void send_expired(struct engine_timer *timer)
{
	struct umad_send *send =
		(struct umad_send *)((char *)timer - offsetof(struct umad_send, timer));
	struct umad_file *file = send->agent->file;
	struct ib_user_mad_hdr hdr;

	if (send->retries) {
		send->retries--;
		gsi_send(file->port, &send->to, send->mad);
		engine_timer_set(&send->timer, send->timeout_ms * NS_PER_MS);
		return;
	}
	memcpy(&hdr, send->hdr, sizeof(hdr));
	hdr.status = ETIMEDOUT;
	umad_file_push(file, &hdr, send->mad, EA_MAD_HDR_LEN);
	send_free(send);
}

/* The same transaction is under way; two may only have one id where they answer different peers. */
static bool is_duplicate(const struct umad_file *file, const struct gsi_addr *to,
			 const uint8_t *mad)
{
	const struct umad_send *send;

	for (send = file->sends; send; send = send->next) {
		if (ea_mad_tid(send->mad) != ea_mad_tid(mad) ||
		    send->mad[EA_MAD_AT_CLASS] != mad[EA_MAD_AT_CLASS] ||
		    ea_mad_is_response(send->mad) != ea_mad_is_response(mad))
			continue;
		if (!ea_mad_is_response(mad) || !memcmp(send->to.gid, to->gid, sizeof(to->gid)))
			return true;
	}
	return false;
}

int umad_agent_send(struct umad_port *port, struct umad_agent *agent,
		    const struct ib_user_mad_hdr *hdr, const struct gsi_addr *to,
		    uint8_t mad[EA_MAD_LEN])
{
	struct umad_file *file = agent->file;
	struct umad_send *send = NULL;
	int ret;

	if (!ea_mad_is_response(mad))
		ea_mad_set_tid(mad,
			       (uint64_t)agent->hi_tid << LOW_TID_BITS | (uint32_t)ea_mad_tid(mad));
	if (is_duplicate(file, to, mad))
		return -EINVAL;
	if (hdr->timeout_ms) {
		if (file->nsends >= UMAD_SENDS)
			return -ENOMEM;
		send = calloc(1, sizeof(*send));
		if (!send)
			return -ENOMEM;
	}
	ret = gsi_send(port, to, mad);
	if (ret || !send) {
		free(send);
		return ret;
	}
	send->agent = agent;
	send->to = *to;
	send->timeout_ms = hdr->timeout_ms;
	send->retries = hdr->retries;
	memcpy(send->hdr, hdr, sizeof(send->hdr));
	memcpy(send->mad, mad, sizeof(send->mad));
	send->timer.fire = send_expired;
	engine_timer_set(&send->timer, send->timeout_ms * NS_PER_MS);
	send->next = file->sends;
	file->sends = send;
	file->nsends++;
	return 0;
}

/* ------------------------------------------------------------------ receive */

/* What the kernel lets through to agents of QP 1. */
static bool is_valid(const uint8_t *mad)
{
	if (mad[EA_MAD_AT_BASE_VERSION] != EA_MAD_BASE_VERSION)
		return false;
	if (ea_mad_class_is_subn(mad[EA_MAD_AT_CLASS]))
		return false;
	return mad[EA_MAD_AT_CLASS] != EA_MAD_CLASS_CM ||
	       ea_mad_attr(mad) == EA_MAD_ATTR_CLASS_PORT_INFO ||
	       mad[EA_MAD_AT_METHOD] == EA_MAD_METHOD_SEND;
}

static void deliver(struct umad_agent *agent, const struct gsi_addr *from, const uint8_t *mad)
{
	struct umad_port *port = agent->file->port;
	struct ib_user_mad_hdr hdr = {
		.id = agent->id,
		.qpn = htonl(from->qpn),
		.grh_present = 1,
		.gid_index = from->gid_index,
		.hop_limit = from->hop_limit,
		.traffic_class = from->traffic_class,
		.flow_label = htonl(from->flow_label),
	};

	hdr.length = EA_MAD_LEN + umad_hdr_len(agent->file);
	memcpy(hdr.gid, from->gid, sizeof(hdr.gid));
	if (umad_file_push(agent->file, &hdr, mad, EA_MAD_LEN))
		port->gsi.stats.delivered++;
	else
		port->gsi.stats.overrun++;
}

static bool receive_response(struct umad_port *port, const struct gsi_addr *from,
			     const uint8_t *mad)
{
	uint64_t tid = ea_mad_tid(mad);
	struct umad_agent *agent;
	struct umad_send *send;

	for (agent = port->agents; agent; agent = agent->next) {
		if (agent->hi_tid == tid >> LOW_TID_BITS)
			break;
	}
	if (!agent)
		return false;
	for (send = agent->file->sends; send; send = send->next) {
		if (send->agent == agent && ea_mad_tid(send->mad) == tid &&
		    send->mad[EA_MAD_AT_CLASS] == mad[EA_MAD_AT_CLASS] &&
		    !memcmp(send->to.gid, from->gid, sizeof(from->gid)))
			break;
	}
	if (!send)
		return false;
	deliver(agent, from, mad);
	send_free(send);
	return true;
}

static struct umad_agent *find_agent(const struct umad_port *port, const uint8_t *mad)
{
	unsigned int method = mad[EA_MAD_AT_METHOD];
	struct umad_agent wanted = {
		.mgmt_class = mad[EA_MAD_AT_CLASS],
		.class_version = mad[EA_MAD_AT_CLASS_VERSION],
	};
	struct umad_agent *agent;

	memcpy(wanted.oui, mad + EA_MAD_AT_OUI, sizeof(wanted.oui));
	for (agent = port->agents; agent; agent = agent->next) {
		if (agent->mgmt_class && same_class(agent, &wanted) &&
		    (agent->methods[method / METHOD_BITS] & 1u << method % METHOD_BITS))
			return agent;
	}
	return NULL;
}

/* A request that nobody is registered for, as a kernel answers it. */
static void refuse(struct umad_port *port, const struct gsi_addr *from, const uint8_t *mad)
{
	uint8_t resp[EA_MAD_LEN];

	memcpy(resp, mad, sizeof(resp));
	resp[EA_MAD_AT_METHOD] = EA_MAD_METHOD_GET_RESP;
	resp[EA_MAD_AT_STATUS] = EA_MAD_STATUS_UNSUPPORTED >> 8;
	resp[EA_MAD_AT_STATUS + 1] = EA_MAD_STATUS_UNSUPPORTED & 0xff;
	gsi_send(port, from, resp);
}

void umad_port_receive(struct umad_port *port, const struct gsi_addr *from, const uint8_t *mad)
{
	struct umad_agent *agent;

	if (!is_valid(mad))
		goto unclaimed;
	if (ea_mad_is_response(mad)) {
		if (receive_response(port, from, mad))
			return;
		goto unclaimed;
	}
	agent = find_agent(port, mad);
	if (agent) {
		deliver(agent, from, mad);
		return;
	}
	if (mad[EA_MAD_AT_METHOD] == EA_MAD_METHOD_GET ||
	    mad[EA_MAD_AT_METHOD] == EA_MAD_METHOD_SET)
		refuse(port, from, mad);
unclaimed:
	port->gsi.stats.unclaimed++;
}
