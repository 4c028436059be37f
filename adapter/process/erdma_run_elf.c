// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Can the adapter be preloaded into this program?  Static, setuid and foreign programs cannot take
 * it.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "adapter/process/erdma_run.h"

enum {
	HEAD_LEN = 512,	 /* enough for headers and for a #! line */
	MAX_SCRIPTS = 5, /* as the kernel */
	MAX_PHDRS = 512,
};

struct check {
	char *err;
	size_t err_size;
	char what[PATH_MAX + 64]; /* how messages name the file */
};

static enum run_verdict refuse(struct check *chk, enum run_verdict verdict, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static enum run_verdict refuse(struct check *chk, enum run_verdict verdict, const char *fmt, ...)
{
	va_list args;
	size_t len;

	len = snprintf(chk->err, chk->err_size, "%s ", chk->what);
	if (len < chk->err_size) {
		va_start(args, fmt);
		vsnprintf(chk->err + len, chk->err_size - len, fmt, args);
		va_end(args);
	}
	return verdict;
}

static bool runnable(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode) && !access(path, X_OK);
}

/* Path of @program, looked for in PATH when it has no slash. */
static enum run_verdict find(struct check *chk, const char *program, char *path, size_t size)
{
	const char *dirs = getenv("PATH"), *end;
	bool seen = false;
	struct stat st;

	snprintf(chk->what, sizeof(chk->what), "%s", *program ? program : "\"\"");
	if (strchr(program, '/')) {
		if (stat(program, &st))
			return refuse(chk,
				      errno == ENOENT || errno == ENOTDIR ? RUN_NOT_FOUND :
									    RUN_CANNOT,
				      "cannot be run: %s", strerror(errno));
		if (S_ISDIR(st.st_mode))
			return refuse(chk, RUN_CANNOT, "is a directory");
		if (!runnable(program))
			return refuse(chk, RUN_CANNOT, "is not executable");
		if (snprintf(path, size, "%s", program) >= (int)size)
			return refuse(chk, RUN_CANNOT, "has too long a path");
		return RUN_FINE;
	}
	if (!dirs)
		dirs = "/usr/local/bin:/usr/bin:/bin";
	for (;; dirs = end + 1) {
		end = strchrnul(dirs, ':');
		if (snprintf(path, size, "%.*s%s%s", (int)(end - dirs), dirs, end > dirs ? "/" : "",
			     program) < (int)size) {
			if (runnable(path))
				return RUN_FINE;
			if (!stat(path, &st) && S_ISREG(st.st_mode))
				seen = true;
		}
		if (!*end)
			break;
	}
	return seen ? refuse(chk, RUN_CANNOT, "is in PATH, but not executable") :
		      refuse(chk, RUN_NOT_FOUND, "is not found in PATH");
}

static const char *machine_name(unsigned int machine, unsigned int class)
{
	switch (machine) {
	case EM_386:
		return "32-bit x86";
	case EM_X86_64:
		return class == ELFCLASS32 ? "x32" : "x86-64";
	case EM_ARM:
		return "32-bit Arm";
	case EM_AARCH64:
		return "64-bit Arm";
	case EM_RISCV:
		return "RISC-V";
	case EM_PPC64:
		return "64-bit POWER";
	case EM_S390:
		return "s390";
	default:
		return "another machine";
	}
}

static int own_machine(void)
{
	ElfW(Ehdr) own;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, &own, sizeof(own));

	if (fd >= 0)
		close(fd);
	return n == sizeof(own) ? own.e_machine : EM_NONE;
}

/* The segment that holds address @va; false: none. */
static bool segment_of(int fd, const ElfW(Ehdr) * elf, ElfW(Addr) va, ElfW(Phdr) * ph)
{
	int i;

	for (i = 0; i < elf->e_phnum; i++) {
		if (pread(fd, ph, sizeof(*ph), elf->e_phoff + i * sizeof(*ph)) == sizeof(*ph) &&
		    ph->p_type == PT_LOAD && va >= ph->p_vaddr && va - ph->p_vaddr < ph->p_filesz)
			return true;
	}
	return false;
}

/*
 * Sanitizers' libraries end a program in which they are not first.  Look whether it needs one;
 * whatever cannot be read means no.
 */
static void find_sanitizer(int fd, const ElfW(Ehdr) * elf, const ElfW(Phdr) * dynamic, char *first,
			   size_t size)
{
	ElfW(Dyn) entry;
	ElfW(Addr) strings = 0;
	ElfW(Phdr) ph;
	size_t i, count = dynamic->p_filesz / sizeof(entry);
	char name[64];
	ssize_t n;

	for (i = 0; i < count && !strings; i++) {
		if (pread(fd, &entry, sizeof(entry), dynamic->p_offset + i * sizeof(entry)) !=
		    sizeof(entry))
			return;
		if (entry.d_tag == DT_STRTAB)
			strings = entry.d_un.d_ptr;
	}
	if (!strings || !segment_of(fd, elf, strings, &ph))
		return;
	for (i = 0; i < count; i++) {
		if (pread(fd, &entry, sizeof(entry), dynamic->p_offset + i * sizeof(entry)) !=
		    sizeof(entry))
			return;
		if (entry.d_tag != DT_NEEDED)
			continue;
		n = pread(fd, name, sizeof(name) - 1,
			  ph.p_offset + (strings - ph.p_vaddr) + entry.d_un.d_val);
		if (n <= 0)
			continue;
		name[n] = 0;
		if (!strncmp(name, "libasan.so", 10) || !strncmp(name, "libtsan.so", 10) ||
		    !strncmp(name, "libclang_rt.asan", 16)) {
			snprintf(first, size, "%s", name);
			return;
		}
	}
}

static enum run_verdict check_elf(struct check *chk, int fd, const unsigned char *head, size_t len,
				  struct run_program *program)
{
	const ElfW(Ehdr) *elf = (const ElfW(Ehdr) *)head;
	ElfW(Phdr) ph, dynamic = { .p_filesz = 0 };
	int own = own_machine(), i;
	bool dynamically = false;

	/* class and machine lie at the same place in both classes */
	if (len < sizeof(Elf32_Ehdr))
		return refuse(chk, RUN_CANNOT, "is a damaged ELF file");
	if (own != EM_NONE && (head[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) ||
			       elf->e_machine != own))
		return refuse(chk, RUN_CANNOT, "is a program for %s; this adapter is for %s",
			      machine_name(elf->e_machine, head[EI_CLASS]),
			      machine_name(own, sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32));
	if (len < sizeof(*elf) || elf->e_phentsize != sizeof(ph) || elf->e_phnum > MAX_PHDRS)
		return refuse(chk, RUN_CANNOT, "is a damaged ELF file");
	if (elf->e_type != ET_EXEC && elf->e_type != ET_DYN)
		return refuse(chk, RUN_CANNOT, "is an ELF file, but no program");
	for (i = 0; i < elf->e_phnum; i++) {
		if (pread(fd, &ph, sizeof(ph), elf->e_phoff + i * sizeof(ph)) != sizeof(ph))
			return refuse(chk, RUN_CANNOT, "is a damaged ELF file");
		dynamically |= ph.p_type == PT_INTERP;
		if (ph.p_type == PT_DYNAMIC)
			dynamic = ph;
	}
	if (dynamically) {
		find_sanitizer(fd, elf, &dynamic, program->first, sizeof(program->first));
		return RUN_FINE;
	}
	return refuse(
		chk, RUN_CANNOT,
		"is statically linked: it asks the kernel itself, so there is no library that the adapter could be put before");
}

static enum run_verdict check_privileges(struct check *chk, const char *path, const struct stat *st)
{
	char caps[64];

	/* the dynamic linker ignores LD_PRELOAD when the program gains rights by being started */
	if ((st->st_mode & S_ISUID) && st->st_uid != getuid())
		return refuse(
			chk, RUN_CANNOT,
			"is setuid (to uid %u): the dynamic linker loads nothing into such a program; run a copy without the bit",
			st->st_uid);
	if ((st->st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && st->st_gid != getgid())
		return refuse(
			chk, RUN_CANNOT,
			"is setgid (to gid %u): the dynamic linker loads nothing into such a program; run a copy without the bit",
			st->st_gid);
	if (getuid() && getxattr(path, "security.capability", caps, sizeof(caps)) > 0)
		return refuse(
			chk, RUN_CANNOT,
			"has file capabilities: the dynamic linker loads nothing into such a program; run a copy without them, or as root");
	return RUN_FINE;
}

/* The interpreter named by a #! line, or false. */
static bool interpreter(const char *head, char *name, size_t size)
{
	char line[HEAD_LEN], *word, *rest;

	snprintf(line, sizeof(line), "%.*s", (int)strcspn(head + 2, "\n"), head + 2);
	word = strtok_r(line, " \t", &rest);
	if (!word)
		return false;
	/* what env starts is what counts */
	if (!strcmp(word, "/usr/bin/env") || !strcmp(word, "/bin/env")) {
		do {
			word = strtok_r(NULL, " \t", &rest);
		} while (word && (word[0] == '-' || strchr(word, '=')));
		if (!word)
			return false;
	}
	return snprintf(name, size, "%s", word) < (int)size;
}

enum run_verdict run_check(const char *wanted, struct run_program *program, char *err,
			   size_t err_size)
{
	struct check *chk = malloc(sizeof(*chk));
	char file[PATH_MAX], name[PATH_MAX];
	unsigned char head[HEAD_LEN + 1];
	enum run_verdict verdict;
	struct stat st;
	int depth, fd;
	ssize_t len;

	if (!chk) {
		snprintf(err, err_size, "out of memory");
		return RUN_CANNOT;
	}
	chk->err = err;
	chk->err_size = err_size;
	memset(program, 0, sizeof(*program));
	verdict = find(chk, wanted, program->path, sizeof(program->path));
	snprintf(file, sizeof(file), "%s", program->path);
	for (depth = 0; verdict == RUN_FINE; depth++) {
		snprintf(chk->what, sizeof(chk->what), depth ? "%s, which runs this script," : "%s",
			 file);
		fd = open(file, O_RDONLY | O_CLOEXEC);
		if (fd < 0 && errno == EACCES)
			/* executable but not readable: nothing can be said */
			break;
		if (fd < 0 || fstat(fd, &st)) {
			verdict = refuse(chk, RUN_CANNOT, "cannot be read: %s", strerror(errno));
			if (fd >= 0)
				close(fd);
			break;
		}
		len = read(fd, head, HEAD_LEN);
		head[len < 0 ? 0 : len] = 0;
		if (len >= SELFMAG && !memcmp(head, ELFMAG, SELFMAG)) {
			verdict = check_elf(chk, fd, head, len, program);
			if (verdict == RUN_FINE)
				verdict = check_privileges(chk, file, &st);
			close(fd);
			break;
		}
		close(fd);
		if (depth == MAX_SCRIPTS) {
			verdict = refuse(chk, RUN_CANNOT, "is a script of a script of a script...");
		} else if (len >= 2 && head[0] == '#' && head[1] == '!') {
			if (!interpreter((const char *)head, name, sizeof(name)))
				verdict = refuse(chk, RUN_CANNOT,
						 "is a script without an interpreter");
			else
				verdict = find(chk, name, file, sizeof(file));
		} else if (len > 0 && memchr(head, 0, len)) {
			verdict = refuse(chk, RUN_CANNOT, "is neither an ELF program nor a script");
		} else {
			/* text without #!: the shell's */
			verdict = find(chk, "/bin/sh", file, sizeof(file));
		}
	}
	free(chk);
	return verdict;
}
