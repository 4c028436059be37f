// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Parts that need no process around them: MAD fields, GIDs, the session table, rates, rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "mux/cm_msg.h"
#include "mux/config.h"
#include "mux/gid.h"
#include "mux/mux.h"
#include "mux/session.h"

static void cm_fields(void **state)
{
	uint8_t mad[MUX_MAD_SIZE], rep[MUX_MAD_SIZE];

	(void)state;
	cm_build_dreq(mad, 0x1122334455667788, 0xa1a2a3a4, 0xb1b2b3b4, 0x00c1c2c3);
	assert_true(cm_valid(mad));
	assert_int_equal(cm_attr(mad), CM_DREQ);
	assert_int_equal(mad[8], 0x11);
	assert_int_equal(mad[24], 0xa1);
	assert_int_equal(mad[31], 0xb4);
	assert_int_equal(mad[32], 0xc1);
	assert_int_equal(mad[34], 0xc3);
	cm_build_drep(rep, mad);
	assert_int_equal(cm_get32(rep, CM_OFF_LOCAL_ID), 0xb1b2b3b4);
	assert_int_equal(cm_get32(rep, CM_OFF_REMOTE_ID), 0xa1a2a3a4);
	assert_true(cm_get64(rep, CM_OFF_TID) == 0x1122334455667788);
	/* In place. */
	cm_build_drep(mad, mad);
	assert_memory_equal(mad, rep, sizeof(rep));
	cm_build_rej_timeout(mad, 1, 2, 0x0102030405060708);
	assert_int_equal(mad[32] >> 6, 2);
	assert_int_equal(mad[33] >> 1, 8);
	assert_int_equal(cm_get16(mad, 34), 4);
	assert_int_equal(mad[36], 1);
	assert_int_equal(mad[43], 8);
	cm_build_header(mad, CM_SPR + 1, 0);
	assert_false(cm_valid(mad));
	assert_string_equal(cm_name(CM_SIDR_REP), "SIDR_REP");
	assert_string_equal(cm_name(0x1d), "?");
	assert_true(cm_has_remote_id(CM_MRA) && !cm_has_remote_id(CM_REQ) &&
		    !cm_has_remote_id(CM_SIDR_REP));
}

static void cm_addresses(void **state)
{
	uint8_t mad[MUX_MAD_SIZE], src[16], dst[16], want[16];

	(void)state;
	cm_build_header(mad, CM_REQ, 1);
	cm_put64(mad, CM_OFF_SERVICE_ID, 0x0000000001061b58);
	assert_false(cm_ip_addrs(mad, src, dst));
	mad[165] = 0x40;
	cm_put32(mad, 180, 0x0a000001);
	cm_put32(mad, 196, 0xc6336407);
	assert_true(cm_ip_addrs(mad, src, dst));
	assert_int_equal(gid_parse("10.0.0.1", want), 0);
	assert_memory_equal(src, want, 16);
	assert_int_equal(gid_parse("198.51.100.7", want), 0);
	assert_memory_equal(dst, want, 16);
	mad[164] = 1;
	assert_false(cm_ip_addrs(mad, src, dst));
	mad[164] = 0;
	cm_put64(mad, CM_OFF_SERVICE_ID, 0x1000000000000001);
	assert_false(cm_ip_addrs(mad, src, dst));
	cm_build_header(mad, CM_SIDR_REQ, 1);
	cm_put64(mad, CM_OFF_SERVICE_ID, 0x0000000001111b58);
	mad[41] = 0x60;
	for (unsigned int i = 0; i < 16; i++)
		mad[60 + i] = (uint8_t)(i + 1);
	assert_true(cm_ip_addrs(mad, NULL, dst));
	assert_memory_equal(dst, mad + 60, 16);
}

static void gid_networks(void **state)
{
	struct gid_net net;
	uint8_t g[16];

	(void)state;
	assert_int_equal(gid_net_parse("10.1.2.0/23", &net), 0);
	assert_int_equal(net.bits, 96 + 23);
	gid_parse("10.1.3.255", g);
	assert_true(gid_in_net(g, &net));
	gid_parse("10.1.4.0", g);
	assert_false(gid_in_net(g, &net));
	assert_int_equal(gid_net_parse("fe80::/10", &net), 0);
	gid_parse("febf::1", g);
	assert_true(gid_in_net(g, &net));
	gid_parse("fec0::1", g);
	assert_false(gid_in_net(g, &net));
	assert_int_equal(gid_net_parse("::/0", &net), 0);
	assert_true(gid_in_net(g, &net));
	assert_int_not_equal(gid_net_parse("10.0.0.0/33", &net), 0);
	assert_int_not_equal(gid_net_parse("fe80::/129", &net), 0);
	assert_int_not_equal(gid_net_parse("fe80::/", &net), 0);
	assert_int_not_equal(gid_net_parse("fe80::/-1", &net), 0);
	assert_int_not_equal(gid_net_parse("10.0.0", &net), 0);
	assert_int_not_equal(
		gid_net_parse("1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb", &net), 0);
	gid_parse("239.1.1.1", g);
	assert_true(gid_is_multicast(g));
	gid_parse("127.1.1.1", g);
	assert_true(gid_is_loopback(g));
}

static void tokens(void **state)
{
	struct rate_limit rate = { 10, 3 };
	struct bucket b = { 0 };

	(void)state;
	for (unsigned int i = 0; i < 3; i++)
		assert_true(bucket_take(&b, &rate, 1000, 1));
	assert_false(bucket_take(&b, &rate, 1000, 1));
	assert_false(bucket_take(&b, &rate, 1099, 1));
	assert_true(bucket_take(&b, &rate, 1100, 1));
	assert_false(bucket_take(&b, &rate, 1100, 1));
	/* Never more than the burst. */
	for (unsigned int i = 0; i < 3; i++)
		assert_true(bucket_take(&b, &rate, 100000, 1));
	assert_false(bucket_take(&b, &rate, 100000, 1));
}

/* Against a plain model, with random operations. */
#define CAP 300

struct model {
	bool used;
	unsigned int owner;
	uint32_t s, vid, local;
	bool linked;
};

static void session_model(void **state)
{
	static const uint32_t durations[T_COUNT] = { 100, 100, 100, 100, 100, 100, 100 };
	struct session_head head = { 0 };
	struct session_rec *recs = calloc(CAP, sizeof(*recs));
	struct session_table *t = session_table_new(&head, recs, CAP, true, durations);
	struct session_owner owners[3];
	struct model m[CAP] = { 0 };
	unsigned int live = 0;
	uint32_t s;

	(void)state;
	srandom(3);
	for (unsigned int i = 0; i < 3; i++)
		session_owner_init(&owners[i], 100 + i);
	for (unsigned int step = 0; step < 200000; step++) {
		unsigned int k = (unsigned int)random() % CAP, o = (unsigned int)random() % 3;
		uint32_t local = (uint32_t)random() % 64;

		if (!m[k].used) {
			struct session_rec rec = { .state = S_ESTABLISHED, .flags = SF_ACTIVE };

			s = session_create(t, &owners[o], &rec, step);
			assert_true(session_is(s));
			m[k] = (struct model){
				.used = true, .owner = o, .s = s, .vid = session_rec(t, s)->vid
			};
			assert_true(m[k].vid >> 24 != 0 && m[k].vid != UINT32_MAX);
			live++;
		} else if (step % 4 == 0) {
			session_delete(t, m[k].s, &owners[m[k].owner]);
			m[k].used = false;
			live--;
		} else if (step % 4 == 1 && !m[k].linked) {
			for (unsigned int i = 0; i < CAP; i++)
				if (m[i].used && m[i].owner == m[k].owner && m[i].local == local)
					m[i].linked = false;
			session_set_local(t, m[k].s, &owners[m[k].owner], local);
			m[k].linked = true;
			m[k].local = local;
		} else if (step % 4 == 2) {
			bool taken = false;

			for (unsigned int i = 0; i < CAP; i++)
				taken |= i != k && m[i].used && m[i].linked && m[i].owner == o &&
					 m[i].local == m[k].local;
			session_move(t, m[k].s, &owners[m[k].owner], &owners[o]);
			if (m[k].owner != o && taken)
				m[k].linked = false;
			m[k].owner = o;
		} else {
			session_suspect(t, m[k].s, &owners[m[k].owner]);
		}
		assert_int_equal(session_count(t), live);
		k = (unsigned int)random() % CAP;
		if (!m[k].used)
			continue;
		assert_int_equal(session_by_vid(t, m[k].vid), m[k].s);
		if (m[k].linked)
			assert_int_equal(session_by_local(t, &owners[m[k].owner], CLASS_CONN,
							  m[k].local),
					 m[k].s);
	}
	assert_int_equal(owners[0].count + owners[1].count + owners[2].count, live);
	session_table_free(t);
	free(recs);
}

static void session_timers(void **state)
{
	uint32_t durations[T_COUNT];
	struct session_head head = { 0 };
	struct session_rec recs[8] = { 0 }, rec = { .state = S_REQ_SENT, .flags = SF_ACTIVE };
	struct session_table *t;
	struct session_owner o;
	uint32_t a, b;

	(void)state;
	for (unsigned int i = 0; i < T_COUNT; i++)
		durations[i] = 100 * (i + 1);
	t = session_table_new(&head, recs, 8, false, durations);
	session_owner_init(&o, 5);
	a = session_create(t, &o, &rec, 1000);
	b = session_create(t, &o, &rec, 1050);
	assert_int_equal(o.half_open, 2);
	assert_false(session_is(session_expired(t, 1099)));
	assert_int_equal(session_expired(t, 1100), a);
	session_touch(t, a, 1100);
	assert_int_equal(session_expired(t, 1150), b);
	session_set_state(t, b, &o, S_ESTABLISHED, 1150);
	assert_int_equal(o.half_open, 1);
	assert_int_equal(session_expired(t, 1200), a);
	session_delete(t, a, &o);
	assert_false(session_is(session_expired(t, UINT64_MAX / 2)));
	assert_false(session_timers_pending(t));
	/* A full table says so. */
	for (unsigned int i = 0; i < 7; i++)
		assert_true(session_is(session_create(t, &o, &rec, 1)));
	assert_false(session_is(session_create(t, &o, &rec, 1)));
	session_table_free(t);
}

static struct session_owner *any_owner(void *ctx, struct session_rec *rec)
{
	return rec->owner == 5 ? ctx : NULL;
}

static void session_restart(void **state)
{
	static const uint32_t durations[T_COUNT] = { 100, 100, 100, 100, 100, 100, 100 };
	struct session_head head = { 0 };
	struct session_rec recs[8] = { 0 };
	struct session_rec rec = {
		.state = S_REP_SENT, .flags = SF_PEER, .peer_id = 7, .req_tid = 9
	};
	struct session_table *t = session_table_new(&head, recs, 8, true, durations);
	struct session_owner o, other;
	uint32_t a, b, c, vid, broken;

	(void)state;
	session_owner_init(&o, 5);
	session_owner_init(&other, 6);
	a = session_create(t, &o, &rec, 10);
	b = session_create(t, &other, &rec, 20);
	c = session_create(t, &o, &rec, 30);
	session_set_local(t, a, &o, 77);
	vid = session_rec(t, a)->vid;
	session_table_free(t);
	(void)b;
	recs[c].peer_qpn ^= 1; /* torn */
	t = session_table_new(&head, recs, 8, true, durations);
	session_owner_init(&o, 5);
	assert_int_equal(session_restore(t, 100, any_owner, &o, &broken), 1);
	assert_int_equal(broken, 1);
	assert_int_equal(session_by_vid(t, vid), a);
	assert_int_equal(session_by_local(t, &o, CLASS_CONN, 77), a);
	assert_int_equal(session_by_reply(t, &o, CLASS_CONN, 7, 9, recs[a].client_gid), a);
	assert_int_equal(session_expired(t, 110), a);
	assert_int_equal(o.half_open, 1);
	session_delete(t, a, &o);
	session_table_free(t);
}

static struct config *from_file(const char *text, int *status)
{
	char path[] = "/tmp/mux-conf-XXXXXX", *argv[] = { "mux", "-c", path, NULL };
	int fd = mkstemp(path);
	struct config *cfg;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	cfg = config_from_args(3, argv, status);
	unlink(path);
	return cfg;
}

static void config_rules(void **state)
{
	const struct rule *rule;
	struct config *cfg;
	bool denied;
	uint8_t g[16];
	int status;

	(void)state;
	cfg = from_file(
		"[mux]\nmax_gids = 8\ndeny = 10.0.0.1\nca_guid = replace\n"
		"[port mlx5_0/2]\nlisten = default\nmode = 0600\nlisten = /run/vm1.sock\n"
		"[rule vm1]\nlisten = /run/vm1.sock\nuid = 107\ngids = 10.0.0.0/24, fe80::/64\n"
		"max_sessions = 100\n[rule nobody]\nuid = 65534\naction = deny\n"
		"[rule rest]\ngid = 36\nmad_rate = 10/20\n",
		&status);
	assert_non_null(cfg);
	assert_int_equal(cfg->n_ports, 1);
	assert_string_equal(cfg->ports[0].device, "mlx5_0");
	assert_int_equal(cfg->ports[0].port, 2);
	assert_string_equal(cfg->ports[0].listens->path, "/var/run/rdmacm-mux-mlx5_0-2");
	assert_int_equal(cfg->ports[0].listens->mode, 0600);
	assert_string_equal(cfg->ports[0].listens->next->path, "/run/vm1.sock");
	assert_int_equal(cfg->ca_guid, CA_GUID_REPLACE);
	rule = config_match(cfg, "/run/vm1.sock", 107, 1, NULL, &denied);
	assert_string_equal(rule->name, "vm1");
	assert_false(denied);
	assert_int_equal(rule->limits.max_gids, 8);
	assert_int_equal(rule->limits.max_sessions, 100);
	gid_parse("10.0.0.7", g);
	assert_true(config_gid_allowed(cfg, rule, g));
	gid_parse("10.0.1.7", g);
	assert_false(config_gid_allowed(cfg, rule, g));
	gid_parse("10.0.0.1", g);
	assert_false(config_gid_allowed(cfg, rule, g));
	config_match(cfg, "/x", 65534, 36, NULL, &denied);
	assert_true(denied);
	rule = config_match(cfg, "/x", 1, 36, NULL, &denied);
	assert_false(denied);
	assert_int_equal(rule->limits.mads.burst, 20);
	assert_null(config_match(cfg, "/x", 1, 1, NULL, &denied));
	assert_true(denied);
	config_free(cfg);
}

/* A rule's place in the file says nothing about its limits, and a cgroup's name is not that of all that begin like it. */
static void config_rule_values(void **state)
{
	const struct rule *rule;
	struct config *cfg;
	bool denied;
	int status;

	(void)state;
	cfg = from_file("[rule vm1]\ncgroup = /machine/vm1\nmax_sessions = 100\n"
			"[rule vms]\ncgroup = /machine/\n"
			"[mux]\nmax_gids = 8\nmax_sessions = 50\nmad_rate = 10/20\n"
			"[port a/1]\nlisten = default\n",
			&status);
	assert_non_null(cfg);
	rule = config_match(cfg, "/x", 1, 1, "/machine/vm1", &denied);
	assert_string_equal(rule->name, "vm1");
	assert_int_equal(rule->limits.max_gids, 8);
	assert_int_equal(rule->limits.max_sessions, 100);
	assert_int_equal(rule->limits.mads.burst, 20);
	rule = config_match(cfg, "/x", 1, 1, "/machine/vm1/emulator", &denied);
	assert_string_equal(rule->name, "vm1");
	rule = config_match(cfg, "/x", 1, 1, "/machine/vm10", &denied);
	assert_string_equal(rule->name, "vms");
	assert_int_equal(rule->limits.max_sessions, 50);
	assert_null(config_match(cfg, "/x", 1, 1, "/machine.slice", &denied));
	assert_true(denied);
	config_free(cfg);
}

static void config_errors(void **state)
{
	static const char *const bad[] = {
		"[mux]\nmax_gids = many\n[port a/1]\nlisten = default\n",
		"[mux]\nno_such_key = 1\n[port a/1]\nlisten = default\n",
		"[nonsense]\nx = 1\n[port a/1]\nlisten = default\n",
		"[port a/x]\nlisten = default\n",
		"[port a/1]\nmode = 999\n",
		"[port a/1]\nlisten = default\n[rule r]\ngids = 10.0.0.0/99\n",
		"[mux]\nhairpin = maybe\n[port a/1]\nlisten = default\n",
		"[mux]\nbuilt_rate = 5/\n[port a/1]\nlisten = default\n",
		"[mux]\nlanes = 0\n[port a/1]\nlisten = default\n",
		"[port a/1]\nlisten = default\n[rule r]\ngids =\n",
		"[port a/1]\nlisten = default\n"
		"[rule 0123456789-0123456789-0123456789-0123456789-1]\nuid = 1\n"
		"[rule 0123456789-0123456789-0123456789-0123456789-2]\nuid = 2\n",
		"not a line\n",
		"",
	};
	int status;

	(void)state;
	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_null(from_file(bad[i], &status));
		assert_int_not_equal(status, 0);
	}
}

static struct config *from_words(char *a, char *b, char *c, char *d, int *status)
{
	char *argv[] = { (char[]){ "mux" }, a, b, c, d, NULL };
	int argc = 1;

	while (argv[argc])
		argc++;
	*status = 0;
	return config_from_args(argc, argv, status);
}

#define W(text) ((char[]){ text })

/* The options of the original tool, taken literally and no further. */
static void command_line(void **state)
{
	char prefix[120] = "/tmp/";
	struct config *cfg;
	int status;

	(void)state;
	cfg = from_words(W("-d"), W("mlx5_0"), W("-p"), W("2"), &status);
	assert_non_null(cfg);
	assert_string_equal(cfg->ports[0].listens->path, "/var/run/rdmacm-mux-mlx5_0-2");
	config_free(cfg);
	cfg = from_words(W("-d"), W("mlx5_0"), W("-p"), W("0"), &status);
	assert_non_null(cfg);
	assert_string_equal(cfg->ports[0].listens->path, "/var/run/rdmacm-mux-mlx5_0-0");
	config_free(cfg);
	assert_null(from_words(W("-d"), W("mlx5_0"), W("-p"), W("2x"), &status));
	assert_int_not_equal(status, 0);
	assert_null(from_words(W("-d"), W("mlx5_0"), W("-p"), W("-1"), &status));
	assert_int_not_equal(status, 0);
	assert_null(from_words(W("-d"), W("mlx5_0"), W("-p"), W("99999999999"), &status));
	assert_int_not_equal(status, 0);
	assert_null(from_words(W("-p"), W("1"), NULL, NULL, &status));
	assert_int_not_equal(status, 0);
	assert_null(from_words(W("-d"), W("mlx5_0"), W("-x"), NULL, &status));
	assert_int_not_equal(status, 0);
	assert_null(from_words(W("-h"), NULL, NULL, NULL, &status));
	assert_int_equal(status, 0);
	/* "PREFIX-mlx5_0-1" has to be shorter than a socket's 108 bytes. */
	memset(prefix + 5, 'x', 93);
	cfg = from_words(W("-d"), W("mlx5_0"), W("-s"), prefix, &status);
	assert_non_null(cfg);
	assert_int_equal(strlen(cfg->ports[0].listens->path), 107);
	config_free(cfg);
	prefix[98] = 'x';
	assert_null(from_words(W("-d"), W("mlx5_0"), W("-s"), prefix, &status));
	assert_int_not_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cm_fields),	   cmocka_unit_test(cm_addresses),
		cmocka_unit_test(gid_networks),	   cmocka_unit_test(tokens),
		cmocka_unit_test(session_model),   cmocka_unit_test(session_timers),
		cmocka_unit_test(session_restart), cmocka_unit_test(config_rules),
		cmocka_unit_test(config_errors),   cmocka_unit_test(config_rule_values),
		cmocka_unit_test(command_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
