// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Commands to /dev/infiniband/uverbs0 from arbitrary bytes, by write() and by ioctl.
 *
 * The input is a list of records: {u8 what, u8 length, bytes}.  A command names memory; a 64-bit
 * word of the form POINTER | offset (see patch()) becomes the address of harness memory, everything
 * else stays as it is and is a bad address or a plain number.  Queue rings lie in memory of their
 * own, so whatever is created runs on real memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#define VERBS_IOCTL   0xC0181B01u
#define POINTER	      0x5a00000000000000ull
#define POINTER_MASK  0xff00000000000000ull
#define LOWEST_MAPPED 0x100000000000ull /* below lie only words of lengths and numbers */
#define USER_MAX      0x00007fffffffffffull

enum {
	AREA_SIZE = 1 << 20,
	COMMAND_MAX = 256,
	WRITE = 0,
	IOCTL = 1,
	CLOSE_FD = 2,
	REOPEN = 3,
	READ_EVENTS = 4,
};

static unsigned char *area;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/*
 * Words that ask for it become addresses in the area: the low 20 bits are the offset.  Others that
 * could by chance be valid addresses are spoilt: a command writes its answer where it is told to,
 * and the fuzzer picks up addresses from comparisons it watches.
 */
static void patch(unsigned char *bytes, size_t len)
{
	uint64_t word;
	size_t i;

	for (i = 0; i + sizeof(word) <= len; i += sizeof(word)) {
		memcpy(&word, bytes + i, sizeof(word));
		if ((word & POINTER_MASK) == POINTER)
			word = (uintptr_t)area + (word & (AREA_SIZE - 1));
		else if (word >= LOWEST_MAPPED && word <= USER_MAX)
			word |= ~USER_MAX;
		memcpy(bytes + i, &word, sizeof(word));
	}
}

static int reopen(int fd)
{
	close(fd);
	return open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC | O_NONBLOCK);
}

/*
 * A call that always succeeds in a fresh file, so that most inputs get further than "no context".
 */
static void get_context(int fd)
{
	struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr attr;
	} call = {
		.hdr = { .length = sizeof(call), .method_id = 3, .num_attrs = 1, .driver_id = 19 },
		.attr = { .attr_id = 0x1001, .len = 40, .flags = 1, .data = (uintptr_t)area },
	};

	ioctl(fd, VERBS_IOCTL, &call);
}

static void one(int *fd, unsigned int what, unsigned char *bytes, size_t len)
{
	char event[16];
	uint32_t number;

	patch(bytes, len);
	switch (what % 5) {
	case WRITE:
		if (write(*fd, bytes, len) == -1 && errno == 0)
			abort();
		break;
	case IOCTL: {
		unsigned char call[COMMAND_MAX + 64];
		struct ib_uverbs_ioctl_hdr *hdr = (struct ib_uverbs_ioctl_hdr *)call;

		/* the parts that only a fool gets wrong are right most of the time */
		memset(call, 0, sizeof(call));
		memcpy(call, bytes, len);
		if (len >= sizeof(*hdr) && !(hdr->reserved2 & 0x80000000)) {
			hdr->num_attrs = (len - sizeof(*hdr)) / sizeof(struct ib_uverbs_attr);
			hdr->length = sizeof(*hdr) + hdr->num_attrs * sizeof(struct ib_uverbs_attr);
			hdr->driver_id = 19;
			hdr->reserved1 = hdr->reserved2 = 0;
		}
		ioctl(*fd, VERBS_IOCTL, call);
		break;
	}
	case CLOSE_FD:
		/* only descriptors that commands may have made */
		number = len ? bytes[0] : 0;
		if (number > 2 && (int)number != *fd)
			close(number);
		break;
	case REOPEN:
		*fd = reopen(*fd);
		get_context(*fd);
		break;
	case READ_EVENTS:
		number = len ? bytes[0] : 0;
		if (number > 2 && fcntl(number, F_GETFL) >= 0 && (int)number != *fd) {
			fcntl(number, F_SETFL, O_NONBLOCK);
			if (read(number, event, sizeof(event)) < 0)
				break;
		}
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned char bytes[COMMAND_MAX];
	int fd;

	if (!area) {
		area = mmap(NULL, AREA_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
		if (area == MAP_FAILED)
			abort();
	}
	fd = reopen(-1);
	if (fd < 0)
		abort();
	get_context(fd);
	while (size >= 2) {
		size_t len = data[1];
		unsigned int what = data[0];

		data += 2;
		size -= 2;
		if (len > size)
			len = size;
		memcpy(bytes, data, len);
		one(&fd, what, bytes, len);
		data += len;
		size -= len;
	}
	close(fd);
	/* channels and async files that an input left open would fill the table */
	close_range(3 + 32, 1023, 0);
	memset(area, 0, 4096);
	return 0;
}
