// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "mux/log.h"
#include "mux/mux.h"

/* So many MADs are read before clients get their turn. */
#define RECEIVE_BATCH	    128
#define RETRY_MS	    1000
#define PARK_MS		    2000
#define WARN_MISSING_GID_MS 5000

bool port_same_device(const struct mux_port *a, const struct mux_port *b)
{
	return a == b || strcmp(a->device, b->device) == 0;
}

struct mux_port *port_new(struct mux *mux, const struct port_config *cfg)
{
	struct mux_port *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->mux = mux;
	p->index = mux->n_ports;
	memcpy(p->device, cfg->device, sizeof(p->device));
	p->number = cfg->port;
	p->real = umad_resolve_port(p->device, cfg->port);
	p->rx.fd = -1;
	queue_init(&p->parked);
	p->gids = gidtable_new(p->device, p->real, mux->cfg->prefer_rocev2, mux->notify_fd);
	if (!p->gids)
		goto err_port;
	p->peers = peers_new(p);
	if (!p->peers)
		goto err_gids;
	return p;

err_gids:
	gidtable_free(p->gids);
err_port:
	free(p);
	return NULL;
}

void port_free(struct mux_port *p)
{
	if (!p)
		return;
	paths_free(p->paths);
	sender_free(p->tx);
	umad_file_close(&p->rx);
	peers_free(p->peers);
	gidtable_free(p->gids);
	queue_clear(p->mux, &p->parked);
	free(p);
}

static int start_paths(struct mux_port *p, char why[UMAD_WHY_MAX])
{
	if (!p->paths)
		p->paths = paths_new(p);
	if (!p->paths) {
		strcpy(why, strerror(ENOMEM));
		return ENOMEM;
	}
	return paths_up(p->paths, why);
}

int port_up(struct mux_port *p, char why[UMAD_WHY_MAX])
{
	struct mux *mux = p->mux;
	int err, agent, kept;

	p->real = umad_resolve_port(p->device, p->number);
	kept = state_take_umad(mux, p->device, p->number, &agent);
	if (kept >= 0) {
		p->rx = (struct umad_file){ .fd = kept, .agent = agent };
	} else {
		err = umad_file_open(&p->rx, p->device, p->number, true, why);
		if (err)
			return err;
	}
	p->infiniband = umad_is_infiniband(p->device, p->real);
	p->tx = sender_new(p->device, p->number, mux->cfg->lanes, mux->cfg->probes, mux->notify_fd,
			   why);
	if (!p->tx) {
		err = errno;
		goto err_rx;
	}
	if (mux_watch(mux, p->rx.fd, EPOLLIN, TAG_PORT, p)) {
		err = errno;
		strcpy(why, strerror(err));
		goto err_tx;
	}
	if (p->infiniband) {
		err = start_paths(p, why);
		if (err)
			goto err_watch;
	}
	if (kept < 0)
		state_store_umad(p);
	p->up = true;
	p->said_down = false;
	gidtable_refresh(p->gids);
	log_notice("event=port_up device=%s port=%u link=%s%s", p->device, p->real,
		   p->infiniband ? "InfiniBand" : "Ethernet", kept >= 0 ? " kept=yes" : "");
	return 0;

err_watch:
	mux_unwatch(mux, p->rx.fd);
err_tx:
	sender_free(p->tx);
	p->tx = NULL;
err_rx:
	umad_file_close(&p->rx);
	return err;
}

void port_down(struct mux_port *p, const char *why)
{
	struct mux *mux = p->mux;

	if (!p->up)
		return;
	log_err("event=port_down device=%s port=%u reason=\"%s\"", p->device, p->real, why);
	p->up = false;
	p->retry_at_ms = mux->now + RETRY_MS;
	mux_unwatch(mux, p->rx.fd);
	state_forget_umad(p);
	umad_file_close(&p->rx);
	if (p->paths)
		paths_down(p->paths);
	sender_free(p->tx);
	p->tx = NULL;
	peers_reset(p->peers);
	mux_need_timer(mux);
}

void port_receive(struct mux_port *p)
{
	struct rx_info info = { .hairpin = false };
	struct umad_pkt pkt;

	if (!p->up)
		return;
	for (unsigned int i = 0; i < RECEIVE_BATCH; i++) {
		switch (umad_read(p->rx.fd, &pkt)) {
		case UMAD_READ_NONE:
			return;
		case UMAD_READ_GONE:
			port_down(p, "the device is gone");
			return;
		case UMAD_READ_OTHER:
			p->stats.umad_in++;
			p->stats.drop[DROP_NOT_RECEIVED]++;
			continue;
		case UMAD_READ_MAD:
			break;
		}
		p->stats.umad_in++;
		info.dgid = gidtable_gid(p->gids, pkt.hdr.gid_index);
		route_rx(p, &pkt, &info);
	}
}

/* A guest's address that the host lacks: QEMU then hangs as soon as the guest sends. */
static void warn_missing(struct mux_port *p)
{
	struct mux *mux = p->mux;
	char text[GID_STRLEN];

	for (struct client *c = mux->clients; c; c = c->next) {
		if (c->port != p)
			continue;
		for (struct gid_reg *g = c->gids; g; g = g->next) {
			if (g->warned)
				continue;
			if (mux->now - g->since_ms < WARN_MISSING_GID_MS) {
				mux_need_timer(mux);
				continue;
			}
			g->warned = true;
			if (p->up && gidtable_index(p->gids, g->gid) < 0)
				log_warn(
					"event=gid_not_on_host client=%llu gid=%s device=%s port=%u "
					"hint=\"add the address to the port's network interface\"",
					(unsigned long long)c->owner.serial, gid_str(g->gid, text),
					p->device, p->real);
		}
	}
}

void port_tick(struct mux_port *p)
{
	struct mux *mux = p->mux;
	char why[UMAD_WHY_MAX];
	int err;

	if (!p->up && mux->now >= p->retry_at_ms) {
		p->retry_at_ms = mux->now + RETRY_MS;
		err = port_up(p, why);
		if (err && !p->said_down) {
			p->said_down = true;
			log_err("event=port_down device=%s port=%u reason=\"%s\" retry_ms=%d",
				p->device, p->number, why, RETRY_MS);
		}
	}
	if (!p->up)
		mux_need_timer(mux);
	if (p->parked.count) {
		if (mux->now - p->parked_at_ms >= PARK_MS) {
			p->stats.drop[DROP_NO_SOURCE_INDEX] += p->parked.count;
			queue_clear(mux, &p->parked);
		} else {
			mux_need_timer(mux);
		}
	}
	warn_missing(p);
}
