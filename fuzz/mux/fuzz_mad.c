// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Fields of MADs that hold anything: nothing is read or written beyond them, and what is built holds what it should. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mux/cm_msg.h"
#include "mux/gid.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *mad = calloc(1, MUX_MAD_SIZE), *out = malloc(MUX_MAD_SIZE), src[16], dst[16];
	char text[GID_STRLEN];
	uint8_t again[16];

	memcpy(mad, data, size < MUX_MAD_SIZE ? size : MUX_MAD_SIZE);
	if (cm_valid(mad) && cm_name(cm_attr(mad))[0] == '?')
		abort();
	if (cm_ip_addrs(mad, src, dst)) {
		if (!gid_str(src, text) || gid_parse(text, again) || !gid_equal(src, again))
			abort();
		cm_ip_addrs(mad, NULL, NULL);
	}
	cm_build_drep(out, mad);
	if (cm_get32(out, CM_OFF_REMOTE_ID) != cm_get32(mad, CM_OFF_LOCAL_ID) || !cm_valid(out))
		abort();
	cm_build_sidr_rep(out, mad, CM_SIDR_UNSUPPORTED);
	if (cm_get64(out, CM_OFF_TID) != cm_get64(mad, CM_OFF_TID))
		abort();
	free(mad);
	free(out);
	return 0;
}
