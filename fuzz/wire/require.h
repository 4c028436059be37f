/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* What must hold whatever the input is: a fuzzer reports the abort. */
#ifndef FUZZ_WIRE_REQUIRE_H
#define FUZZ_WIRE_REQUIRE_H

#include <stdlib.h>

#define require(cond)            \
	do {                     \
		if (!(cond))     \
			abort(); \
	} while (0)

#endif
