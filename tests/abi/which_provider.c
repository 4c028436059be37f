// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Prints one line for each RDMA device that libibverbs lists: its name, the name of the provider
 * that took it, and the file the provider's code is in. With the argument "open" it also opens each
 * and prints what ibv_query_device() says of its vendor.
 *
 * Built against the headers of an rdma-core tree, which show what a public program cannot see.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <infiniband/driver.h>

static int show_vendor(struct ibv_device *device)
{
	struct ibv_device_attr attr;
	struct ibv_context *context;

	context = ibv_open_device(device);
	if (!context || ibv_query_device(context, &attr)) {
		fprintf(stderr, "%s: %s\n", ibv_get_device_name(device), strerror(errno));
		return 1;
	}
	printf("\tvendor_id:\t0x%04x\n", attr.vendor_id);
	return ibv_close_device(context);
}

int main(int argc, char **argv)
{
	struct verbs_device *device;
	struct ibv_device **list;
	Dl_info info;
	int ret = 0;
	int nr, i;

	list = ibv_get_device_list(&nr);
	if (!list) {
		fprintf(stderr, "ibv_get_device_list: %s\n", strerror(errno));
		return 1;
	}
	for (i = 0; i < nr; i++) {
		device = verbs_get_device(list[i]);
		if (!dladdr(device->ops, &info) || !info.dli_fname)
			info.dli_fname = "?";
		printf("%s %s %s\n", ibv_get_device_name(list[i]), device->ops->name,
		       info.dli_fname);
		if (argc > 1 && !strcmp(argv[1], "open"))
			ret |= show_vendor(list[i]);
	}
	ibv_free_device_list(list);
	return ret;
}
