// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Commands of /dev/infiniband/rdma_cm from an enemy.  Input: a sequence of
 *
 *	u8 command, u8 flags, u8 length, u8 out / 2, length bytes
 *
 * Flag bit 0: the first eight bytes become the address of a buffer (the response, or an option's
 * value); bit 1: the
 * command goes to the second file; bit 2: the header's length is one more than there is.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <rdma/rdma_user_cm.h>

enum {
	HEAD = 4,
	COMMANDS_MAX = 64,
	PLACE_RESPONSE = 1 << 0,
	SECOND_FILE = 1 << 1,
	LIE_LENGTH = 1 << 2,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t response[1024];
	uint8_t buf[sizeof(struct rdma_ucm_cmd_hdr) + UINT8_MAX + 64];
	struct rdma_ucm_cmd_hdr hdr;
	uint64_t addr = (uintptr_t)response;
	int fds[2], count, flags;
	size_t len;

	fds[0] = open("/dev/infiniband/rdma_cm", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	fds[1] = open("/dev/infiniband/rdma_cm", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (fds[0] < 0 || fds[1] < 0)
		__builtin_trap();
	for (count = 0; size >= HEAD && count < COMMANDS_MAX; count++) {
		flags = data[1];
		len = data[2];
		hdr = (struct rdma_ucm_cmd_hdr){ .cmd = data[0],
						 .in = (uint16_t)len,
						 .out = (uint16_t)(data[3] * 2) };
		data += HEAD;
		size -= HEAD;
		if (len > size)
			len = size;
		/* requests longer than the input are zero behind it */
		memset(buf, 0, sizeof(buf));
		memcpy(buf + sizeof(hdr), data, len);
		data += len;
		size -= len;
		if (flags & PLACE_RESPONSE)
			memcpy(buf + sizeof(hdr) +
				       (hdr.cmd == RDMA_USER_CM_CMD_CREATE_ID ?
						offsetof(struct rdma_ucm_create_id, response) :
						0),
			       &addr, sizeof(addr));
		if (hdr.cmd == RDMA_USER_CM_CMD_MIGRATE_ID &&
		    hdr.in >= sizeof(struct rdma_ucm_migrate_id)) {
			uint32_t fd = (uint32_t)fds[!(flags & SECOND_FILE)];

			memcpy(buf + sizeof(hdr) + offsetof(struct rdma_ucm_migrate_id, fd), &fd,
			       sizeof(fd));
		}
		len = sizeof(hdr) + hdr.in;
		if (flags & LIE_LENGTH)
			hdr.in++;
		memcpy(buf, &hdr, sizeof(hdr));
		if (write(fds[!!(flags & SECOND_FILE)], buf, len) > (ssize_t)len)
			__builtin_trap();
	}
	close(fds[0]);
	close(fds[1]);
	return 0;
}
