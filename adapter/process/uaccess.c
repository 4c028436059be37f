// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The program's memory, reached without trusting its addresses. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
#include "adapter/process/fdtab.h"
#include "adapter/process/uaccess.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

enum {
	POPULATE_ALL = 4 << 20, /* ranges up to this size are made present as a whole */
	CLEAR_STEP = 256,
	MAPS_BUFFER = 8192, /* more than a line of /proc/self/maps */
};

/* Bytes copied: fewer than asked for where the program's memory ends, or -EFAULT. */
static ssize_t copy(void *local, uint64_t remote, size_t len, bool write)
{
	struct iovec mine = { local, len }, theirs = { (void *)(uintptr_t)remote, len };
	int saved_errno = errno;
	pid_t self = fdtab_pid();
	ssize_t n;

	if (!len)
		return 0;
	n = write ? process_vm_writev(self, &mine, 1, &theirs, 1, 0) :
		    process_vm_readv(self, &mine, 1, &theirs, 1, 0);
	if (n < 0 && (errno == ENOSYS || errno == EPERM)) {
		/*
		 * a sandbox that forbids the call: trust the program, which then can only harm
		 * itself
		 */
		if (write)
			memcpy(theirs.iov_base, local, len);
		else
			memcpy(local, theirs.iov_base, len);
		n = len;
	}
	errno = saved_errno;
	return n < 0 ? -EFAULT : n;
}

int uaccess_read(void *dst, uint64_t src, size_t len)
{
	return copy(dst, src, len, false) == (ssize_t)len ? 0 : -EFAULT;
}

int uaccess_read_some(void *dst, uint64_t src, size_t least, size_t most, size_t *len)
{
	ssize_t n = copy(dst, src, most, false);

	/*
	 * the end of a mapping may lie in the part that need not be there, or be told in one piece
	 * with it
	 */
	if (n < (ssize_t)least)
		n = copy(dst, src, least, false);
	if (n < (ssize_t)least)
		return -EFAULT;
	*len = n;
	return 0;
}

int uaccess_write(uint64_t dst, const void *src, size_t len)
{
	return copy((void *)src, dst, len, true) == (ssize_t)len ? 0 : -EFAULT;
}

int uaccess_clear(uint64_t dst, size_t len)
{
	static const char zeros[CLEAR_STEP];
	size_t part;
	int ret = 0;

	for (; len && !ret; dst += part, len -= part) {
		part = len < sizeof(zeros) ? len : sizeof(zeros);
		ret = uaccess_write(dst, zeros, part);
	}
	return ret;
}

int uaccess_is_zero(uint64_t src, size_t len)
{
	char buf[CLEAR_STEP];
	size_t part, i;

	for (; len; src += part, len -= part) {
		part = len < sizeof(buf) ? len : sizeof(buf);
		if (uaccess_read(buf, src, part))
			return -EFAULT;
		for (i = 0; i < part; i++) {
			if (buf[i])
				return 0;
		}
	}
	return 1;
}

static bool can_populate(size_t page)
{
	static int known; /* 1 yes, -1 no */
	void *probe;

	if (!known) {
		probe = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
		if (probe == MAP_FAILED)
			return false;
		__atomic_store_n(&known, madvise(probe, page, MADV_POPULATE_WRITE) ? -1 : 1,
				 __ATOMIC_RELAXED);
		munmap(probe, page);
	}
	return known > 0;
}

/* One line of the list of mappings: false when it forbids the use of a part of *@first..@end. */
static bool mapping_allows(const char *line, uint64_t *first, uint64_t end, bool write)
{
	uint64_t from, to;
	char *at;

	from = strtoull(line, &at, 16);
	to = strtoull(at + (*at == '-'), &at, 16);
	if (to <= *first || from >= end)
		return true;
	if (*at != ' ' || from > *first || at[write ? 2 : 1] != (write ? 'w' : 'r'))
		return false;
	*first = to;
	return true;
}

/*
 * Do all mappings between @first and @end allow it?  That is what the kernel finds when it pins the
 * pages; here they are not touched, for they may be many.  Where /proc is missing nothing is known.
 */
static bool mappings_allow(uint64_t first, uint64_t end, bool write)
{
	char *text = malloc(MAPS_BUFFER), *line, *eol;
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	bool allowed = true;
	size_t have = 0;
	ssize_t n;

	while (fd >= 0 && text && allowed && first < end && have < MAPS_BUFFER - 1) {
		n = read(fd, text + have, MAPS_BUFFER - 1 - have);
		if (n <= 0)
			break;
		have += n;
		text[have] = 0;
		for (line = text; allowed && (eol = strchr(line, '\n')); line = eol + 1)
			allowed = mapping_allows(line, &first, end, write);
		have -= line - text;
		memmove(text, line, have);
	}
	if (fd >= 0)
		close(fd);
	free(text);
	return allowed;
}

int uaccess_check_range(uint64_t addr, uint64_t len, bool write)
{
	uint64_t page = sysconf(_SC_PAGESIZE), first = addr & ~(page - 1), end = addr + len;
	int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
	int saved_errno = errno, ret = 0;

	if (!len)
		return 0;
	if (end < addr || end + page - 1 < end)
		return -EINVAL;
	end = (end + page - 1) & ~(page - 1);
	if (can_populate(page) && end - first <= POPULATE_ALL) {
		ret = madvise((void *)(uintptr_t)first, end - first, advice);
	} else {
		/* without MS_SYNC or MS_INVALIDATE this does nothing but look for holes */
		ret = msync((void *)(uintptr_t)first, end - first, MS_ASYNC) ||
		      !mappings_allow(first, end, write);
		if (!ret && can_populate(page))
			ret = madvise((void *)(uintptr_t)first, page, advice) ||
			      madvise((void *)(uintptr_t)(end - page), page, advice);
	}
	ret = ret ? -EFAULT : 0;
	errno = saved_errno;
	return ret;
}
