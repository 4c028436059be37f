// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The user-MAD device from arbitrary bytes: what programs write to it and ask of it, and what arrives at its UDP port.
 *
 * The input is a list of records {u8 what, u8 on, u16 length, bytes}; "on" chooses one of some files. The device is on a loopback
 * address, so nothing that is sent leaves the machine.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/wire/gsi.h"

enum {
	FILES = 3,
	BUF = 2048,
	ARG_MAX_LEN = 64,
	WRITE = 0,
	REGISTER,
	REGISTER2,
	UNREGISTER,
	ENABLE_PKEY,
	IOCTL,
	READ,
	REOPEN,
	PACKET,
	SEALED,
	WHATS,
};

static char own[64], other[64];
static int files[FILES], sender = -1;
static struct ea_gsi_path path = { .dport = EA_GSI_UDP_PORT };
static struct sockaddr_in to = { .sin_family = AF_INET };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* The library has looked at its settings by now: once more from the start, with those. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	unsigned int net = getpid();
	char host[96];

	(void)argc;
	snprintf(own, sizeof(own), "127.%u.%u.17", 1 + net / 250 % 250, 1 + net % 250);
	snprintf(other, sizeof(other), "127.%u.%u.18", 1 + net / 250 % 250, 1 + net % 250);
	snprintf(host, sizeof(host), "log=off;umad=%s", own);
	if (getenv("ERDMA_HOST") && !strcmp(getenv("ERDMA_HOST"), host))
		return 0;
	setenv("ERDMA_HOST", host, 1);
	execv("/proc/self/exe", *argv);
	abort();
}

static void prepare(void)
{
	struct sockaddr_in from = { .sin_family = AF_INET };
	socklen_t len = sizeof(from);

	sender = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	inet_pton(AF_INET, other, &from.sin_addr);
	inet_pton(AF_INET, own, &to.sin_addr);
	to.sin_port = htons(EA_GSI_UDP_PORT);
	if (sender < 0 || bind(sender, (struct sockaddr *)&from, sizeof(from)) ||
	    getsockname(sender, (struct sockaddr *)&from, &len))
		abort();
	path.sport = ntohs(from.sin_port);
	memset(path.sgid + 10, 0xff, 2);
	memset(path.dgid + 10, 0xff, 2);
	memcpy(path.sgid + 12, &from.sin_addr, 4);
	memcpy(path.dgid + 12, &to.sin_addr, 4);
}

static void reopen(int i)
{
	if (files[i] > 0)
		close(files[i]);
	files[i] = open("/dev/infiniband/umad0", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (files[i] < 0)
		abort();
}

static void ask(int fd, unsigned long request, const uint8_t *bytes, size_t len)
{
	uint8_t arg[ARG_MAX_LEN] = { 0 };

	memcpy(arg, bytes, len < sizeof(arg) ? len : sizeof(arg));
	ioctl(fd, request, arg);
}

/* What arrives is handled by the library's own thread: give it a moment when there is much. */
static void packet(const uint8_t *bytes, size_t len, int sealed)
{
	uint8_t pkt[EA_GSI_LEN], mad[EA_MAD_LEN] = { 0 };

	if (sealed) {
		memcpy(mad, bytes, len < sizeof(mad) ? len : sizeof(mad));
		ea_gsi_encode(pkt, &path, EA_GSI_QPN, 0, mad);
		bytes = pkt;
		len = sizeof(pkt);
	}
	if (sendto(sender, bytes, len, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to)) < 0)
		usleep(100);
}

static void record(int what, int i, const uint8_t *bytes, size_t len)
{
	uint8_t buf[BUF];
	uint32_t request;

	switch (what) {
	case WRITE:
		if (write(files[i], bytes, len) > (ssize_t)len)
			abort();
		break;
	case REGISTER:
		ask(files[i], 0xc01c1b01, bytes, len);
		break;
	case REGISTER2:
		ask(files[i], 0xc0281b04, bytes, len);
		break;
	case UNREGISTER:
		ask(files[i], 0x40041b02, bytes, len);
		break;
	case ENABLE_PKEY:
		ioctl(files[i], 0x1b03, NULL);
		break;
	case IOCTL:
		if (len < sizeof(request))
			break;
		memcpy(&request, bytes, sizeof(request));
		/* of this device; others are the C library's business */
		ask(files[i], (request & 0xffff00ff) | 0x1b00, bytes + 4, len - 4);
		break;
	case READ:
		if (read(files[i], buf, len < sizeof(buf) ? len : sizeof(buf)) > (ssize_t)len)
			abort();
		break;
	case REOPEN:
		reopen(i);
		break;
	case PACKET:
		packet(bytes, len, 0);
		break;
	case SEALED:
		packet(bytes, len, 1);
		break;
	default:
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t len;
	int i;

	if (sender < 0)
		prepare();
	for (i = 0; i < FILES; i++)
		reopen(i);
	while (size >= 4) {
		len = data[2] | data[3] << 8;
		if (len > size - 4)
			len = size - 4;
		record(data[0] % WHATS, data[1] % FILES, data + 4, len);
		data += 4 + len;
		size -= 4 + len;
	}
	for (i = 0; i < FILES; i++) {
		close(files[i]);
		files[i] = 0;
	}
	return 0;
}
