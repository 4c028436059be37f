// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* A program that no preloaded library can reach; see plain_user in tests/accept/run. */
#include <stdio.h>

int main(void)
{
	puts("a static program runs");
	return 0;
}
