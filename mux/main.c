// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "mux/config.h"
#include "mux/server.h"

int main(int argc, char **argv)
{
	struct config *cfg;
	int status;

	cfg = config_from_args(argc, argv, &status);
	if (!cfg)
		return status;
	return server_run(cfg);
}
