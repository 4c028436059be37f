/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* What the tests of the wire formats share. */
#ifndef TESTS_WIRE_CHECK_H
#define TESTS_WIRE_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

/* @buf holds exactly the bytes of the array @want. */
#define assert_bytes(buf, len, want)                          \
	do {                                                  \
		assert_int_equal(len, sizeof(want));          \
		assert_memory_equal(buf, want, sizeof(want)); \
	} while (0)

#endif
