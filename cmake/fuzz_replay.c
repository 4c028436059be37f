// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Runs a fuzz target over stored inputs, where libFuzzer is not at hand.
 *
 * Usage: TARGET [FILE|DIRECTORY]...
 *
 * Every regular file named, and every one in a named directory, is given to the target once, and
 * so are the empty input and a few thousand pseudo-random ones from a fixed seed, so that the
 * program tests something before a corpus exists. Exits with 0 when the target survived them all.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define RANDOM_INPUTS	 4096
#define RANDOM_INPUT_MAX 2048

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));

static unsigned long nr_run;

/* The input is copied to memory of its exact size, so that a checker sees a read past its end. */
static int run_bytes(const uint8_t *data, size_t size)
{
	uint8_t *copy;

	copy = malloc(size ? size : 1);
	if (!copy) {
		fprintf(stderr, "no memory for an input of %zu bytes\n", size);
		return -1;
	}
	if (size)
		memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
	nr_run++;
	return 0;
}

static int run_file(const char *path, size_t size)
{
	uint8_t *data;
	size_t nr_read;
	FILE *file;
	int ret;

	file = fopen(path, "rb");
	if (!file) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return -1;
	}
	data = malloc(size ? size : 1);
	if (!data) {
		fprintf(stderr, "%s: no memory for %zu bytes\n", path, size);
		fclose(file);
		return -1;
	}
	nr_read = fread(data, 1, size, file);
	fclose(file);
	ret = run_bytes(data, nr_read);
	free(data);
	return ret;
}

static int run_path(const char *path)
{
	struct dirent *entry;
	char child[4096];
	struct stat st;
	int ret = 0;
	DIR *dir;

	if (stat(path, &st)) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return -1;
	}
	if (S_ISREG(st.st_mode))
		return run_file(path, st.st_size);
	if (!S_ISDIR(st.st_mode))
		return 0;

	dir = opendir(path);
	if (!dir) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return -1;
	}
	while (!ret && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		if (snprintf(child, sizeof(child), "%s/%s", path, entry->d_name) >=
		    (int)sizeof(child)) {
			fprintf(stderr, "%s/%s: path too long\n", path, entry->d_name);
			ret = -1;
			break;
		}
		ret = run_path(child);
	}
	closedir(dir);
	return ret;
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static int run_random(void)
{
	uint64_t state = 0x9e3779b97f4a7c15;
	uint8_t data[RANDOM_INPUT_MAX];
	size_t size, at;
	int i;

	for (i = 0; i < RANDOM_INPUTS; i++) {
		size = next_random(&state) % (sizeof(data) + 1);
		for (at = 0; at < size; at++)
			data[at] = next_random(&state) >> 24;
		if (run_bytes(data, size))
			return -1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	int i;

	if (LLVMFuzzerInitialize)
		LLVMFuzzerInitialize(&argc, &argv);
	if (run_bytes(NULL, 0))
		return 1;
	for (i = 1; i < argc; i++)
		if (run_path(argv[i]))
			return 1;
	if (run_random())
		return 1;
	printf("%lu inputs\n", nr_run);
	return 0;
}
