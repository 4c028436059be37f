// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <linux/magic.h>

#include "adapter/pci/dma.h"
#include "adapter/pci/vfu.h"

enum {
	PAGE = 4096
};

static struct pci_dma *all_tables;

/* ------------------------------------------------------------------ the guard */

static bool replace(uint8_t *at, size_t len)
{
	return mmap(at, len, PROT_READ | PROT_WRITE,
		    MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

static void on_sigbus(int sig, siginfo_t *info, void *ctx)
{
	uint8_t *at = info->si_addr;
	struct pci_dma *dma;
	uint32_t i;

	(void)ctx;
	for (dma = all_tables; dma; dma = dma->next) {
		for (i = 0; i < dma->count; i++) {
			struct pci_window *w = &dma->windows[i];
			size_t off;

			if (!w->mem || at < w->base || at >= w->base + w->len)
				continue;
			w->cut = true;
			/* What lies behind the end of a file is gone as well.  A huge page goes whole. */
			off = (size_t)(at - w->base) & ~(size_t)(PAGE - 1);
			if (replace(w->base + off, w->len - off) || replace(w->base, w->len))
				return;
		}
	}
	signal(sig, SIG_DFL);
	raise(sig);
}

int pci_dma_guard(void)
{
	struct sigaction act = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO };

	sigemptyset(&act.sa_mask);
	return sigaction(SIGBUS, &act, NULL) ? errno : 0;
}

static void list_table(struct pci_dma *dma)
{
	if (dma->listed)
		return;
	dma->listed = true;
	dma->next = all_tables;
	all_tables = dma;
}

static void unlist_table(struct pci_dma *dma)
{
	struct pci_dma **pos = &all_tables;

	if (!dma->listed)
		return;
	while (*pos != dma)
		pos = &(*pos)->next;
	*pos = dma->next;
	dma->listed = false;
}

/* ------------------------------------------------------------------ the table */

/* Index of the first window that ends behind @addr. */
static uint32_t find(const struct pci_dma *dma, uint64_t addr)
{
	uint32_t lo = 0, hi = dma->count, mid;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (dma->windows[mid].addr + (dma->windows[mid].size - 1) < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Pages of the file's memory, of which a mapping must have whole ones; 0 with errno. */
static uint64_t page_of(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs))
		return 0;
	return fs.f_type == HUGETLBFS_MAGIC ? (uint64_t)fs.f_bsize : PAGE;
}

static int map_memory(const struct pci_dma *dma, struct pci_window *w, int fd, uint64_t offset)
{
	int prot = (w->read ? PROT_READ : 0) | (w->write ? PROT_READ | PROT_WRITE : 0);
	uint64_t page = page_of(fd), end, len;
	struct stat st;
	void *mem;

	if (offset % PAGE || __builtin_add_overflow(offset, w->size, &end))
		return EINVAL;
	if (!page || fstat(fd, &st))
		return errno;
	if (S_ISREG(st.st_mode) && end > (uint64_t)st.st_size)
		return EINVAL;
	len = end - offset + offset % page;
	if (__builtin_add_overflow(len, page - 1, &len))
		return EINVAL;
	len -= len % page;
	if (dma->mapped == PCI_MAX_MAPPED || len > PCI_MAX_MAPPED_BYTES - dma->mapped_bytes)
		return ENOSPC;
	mem = mmap(NULL, len, prot, MAP_SHARED | MAP_NORESERVE, fd,
		   (off_t)(offset - offset % page));
	if (mem == MAP_FAILED)
		return errno;
	/* a crash of the server shall not write the guest to disk */
	madvise(mem, len, MADV_DONTDUMP);
	w->base = mem;
	w->len = len;
	w->mem = w->base + offset % page;
	return 0;
}

static void unmap_memory(struct pci_dma *dma, const struct pci_window *w)
{
	if (!w->mem)
		return;
	munmap(w->base, w->len);
	dma->mapped--;
	dma->mapped_bytes -= w->len;
}

int pci_dma_map(struct pci_dma *dma, uint64_t addr, uint64_t size, int fd, uint64_t offset,
		bool read, bool write)
{
	struct pci_window w = { .addr = addr, .size = size, .read = read, .write = write };
	struct pci_window *grown;
	uint64_t last;
	uint32_t at, room;
	int err;

	if (!size || addr % PAGE || size % PAGE || __builtin_add_overflow(addr, size - 1, &last) ||
	    (!read && !write))
		return EINVAL;
	at = find(dma, addr);
	if (at < dma->count && dma->windows[at].addr <= last)
		return EEXIST;
	if (dma->count == VFU_MAX_MAPS)
		return ENOSPC;
	if (dma->count == dma->room) {
		room = dma->room ? dma->room * 2 : 32;
		grown = realloc(dma->windows, room * sizeof(*grown));
		if (!grown)
			return ENOMEM;
		dma->windows = grown;
		dma->room = room;
	}
	if (fd >= 0) {
		err = map_memory(dma, &w, fd, offset);
		if (err)
			return err;
		dma->mapped++;
		dma->mapped_bytes += w.len;
	}
	list_table(dma);
	memmove(&dma->windows[at + 1], &dma->windows[at], (dma->count - at) * sizeof(w));
	dma->windows[at] = w;
	dma->count++;
	return 0;
}

int pci_dma_unmap(struct pci_dma *dma, uint64_t addr, uint64_t size)
{
	uint32_t at = find(dma, addr);
	struct pci_window *w = &dma->windows[at];

	if (at == dma->count || w->addr != addr || w->size != size)
		return ENOENT;
	unmap_memory(dma, w);
	dma->count--;
	memmove(w, w + 1, (dma->count - at) * sizeof(*w));
	return 0;
}

void pci_dma_clear(struct pci_dma *dma)
{
	uint32_t i;

	for (i = 0; i < dma->count; i++)
		unmap_memory(dma, &dma->windows[i]);
	unlist_table(dma);
	free(dma->windows);
	memset(dma, 0, sizeof(*dma));
}

/* ------------------------------------------------------------------ access */

static inline bool inside(const struct pci_window *w, uint64_t addr)
{
	return addr - w->addr < w->size;
}

const struct pci_window *pci_dma_window(const struct pci_dma *dma, uint64_t addr)
{
	uint32_t at = find(dma, addr);

	return at < dma->count && inside(&dma->windows[at], addr) ? &dma->windows[at] : NULL;
}

void *pci_dma_ptr(struct pci_dma *dma, uint64_t addr, size_t *len, bool write)
{
	const struct pci_window *w;
	uint64_t off;

	if (dma->last < dma->count && inside(&dma->windows[dma->last], addr)) {
		w = &dma->windows[dma->last];
	} else {
		w = pci_dma_window(dma, addr);
		if (!w)
			return NULL;
		dma->last = (uint32_t)(w - dma->windows);
	}
	if (!w->mem || w->cut || !(write ? w->write : w->read))
		return NULL;
	off = addr - w->addr;
	if (*len > w->size - off)
		*len = w->size - off;
	return w->mem + off;
}
