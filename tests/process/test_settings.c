// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The text of ERDMA_HOST: what is taken, what is refused and with which words, and that it survives
 * a round trip.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "adapter/process/settings.h"

static void defaults(void **state)
{
	struct settings set;
	char err[256];

	(void)state;
	settings_init(&set);
	assert_true(settings_parse(&set, "", err, sizeof(err)));
	assert_int_equal(set.pub.mode, HOST_IWARP);
	assert_true(set.pub.netlink);
	assert_false(set.pub.crc);
	assert_int_equal(set.pub.mulpdu, 0);
	assert_int_equal(set.pub.log_level, HOST_LOG_ERROR);
	assert_int_equal(set.ndevices, 0);
	assert_string_equal(set.drivers, "");
}

static void round_trip(void **state)
{
	static const char text[] =
		"mode=roce;netlink=off;crc=on;mulpdu=1400;log=debug;drivers=/opt/x/liberdma;"
		"device=eth0,name=rdma_a;device=fd00::2;device=10.0.0.1,name=erdma_9";
	struct settings set;
	char err[256], out[1024];

	(void)state;
	settings_init(&set);
	assert_true(settings_parse(&set, text, err, sizeof(err)));
	assert_int_equal(set.pub.mode, HOST_ROCE);
	assert_false(set.pub.netlink);
	assert_true(set.pub.crc);
	assert_int_equal(set.pub.mulpdu, 1400);
	assert_int_equal(set.pub.log_level, HOST_LOG_DEBUG);
	assert_int_equal(set.ndevices, 3);
	assert_string_equal(set.devices[0].where, "eth0");
	assert_string_equal(set.devices[0].name, "rdma_a");
	assert_string_equal(set.devices[1].where, "fd00::2");
	assert_string_equal(set.devices[1].name, "");
	assert_true(settings_format(&set, out, sizeof(out)));
	assert_string_equal(out, text);
	assert_false(settings_format(&set, out, 40));
}

static void refusals(void **state)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{ "mode=ib", "mode is \"ib\"; give iwarp or roce" },
		{ "mode", "\"mode\" has no value" },
		{ "netlink=1", "netlink is \"1\"; give off or on" },
		{ "crc=", "crc is \"\"; give off or on" },
		{ "log=loud", "log is \"loud\"; give off, error, info or debug" },
		{ "mulpdu=127", "mulpdu is \"127\"" },
		{ "mulpdu=-1", "mulpdu is \"-1\"" },
		{ "mulpdu=16385", "mulpdu is \"16385\"" },
		{ "mulpdu=1400x", "mulpdu is \"1400x\"" },
		{ "mulpdu=99999999999999999999", "mulpdu is" },
		{ "speed=5", "\"speed\" is no setting" },
		{ "device=", "device is empty" },
		{ "device=eth0,mtu=5", "\"mtu=5\" is unknown" },
		{ "device=eth0,name=", "1 to 15 characters" },
		{ "device=eth0,name=a-name-that-is-far-too-long", "1 to 15 characters" },
		{ "device=eth0,name=a/b", "letters, digits, _ and - are allowed" },
		{ "device=../x", "name of an interface or an address" },
		{ "device=a,name=x;device=b,name=x", "two devices are named \"x\"" },
		{ "device=a,name=erdma_1;device=b", "two devices are named \"erdma_1\"" },
		{ "device=a;device=b,name=erdma_0", "two devices are named \"erdma_0\"" },
		{ "device=a-name-that-is-longer-than-any-interface-or-address-can-possibly-be-anywhere",
		  "name of an interface or an address" },
	};
	struct settings set;
	char err[256];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		settings_init(&set);
		assert_false(settings_parse(&set, cases[i].text, err, sizeof(err)));
		if (!strstr(err, cases[i].says))
			fail_msg("\"%s\" is refused with \"%s\"; \"%s\" was expected in it",
				 cases[i].text, err, cases[i].says);
	}
}

static void many_devices(void **state)
{
	struct settings set;
	char err[256];
	int i;

	(void)state;
	settings_init(&set);
	for (i = 0; i < SETTINGS_MAX_DEVICES; i++)
		assert_true(settings_set(&set, "device", "lo", err, sizeof(err)));
	assert_false(settings_set(&set, "device", "lo", err, sizeof(err)));
	assert_non_null(strstr(err, "more than 16 devices"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults),
		cmocka_unit_test(round_trip),
		cmocka_unit_test(refusals),
		cmocka_unit_test(many_devices),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
