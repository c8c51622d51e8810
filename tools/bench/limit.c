/* SPDX-License-Identifier: Apache-2.0 */
/* The best that the machine can do: lines of 64 bytes in memory like that of a cache, in the same
 * folder, as many as its table has.  Each line begins with a word that follows from its number, so
 * these answers are verified like all others.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { WORDS = 16, GROUP_MOST = 4096, WRITES_MOST = 4 };

/* The descriptor of a file without a name. */
static int open_unnamed(const char *dir)
{
	char path[4096];
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0)
		return fd;
	snprintf(path, sizeof(path), "%s/gpc-bench-%d.XXXXXX", dir, (int)getpid());
	fd = mkstemp(path);
	if (fd >= 0)
		unlink(path);
	return fd;
}

static uint64_t page_bytes(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) || fs.f_bsize < 4096 ? 4096 : (uint64_t)fs.f_bsize;
}

bool limit_open(struct limit *l, uint64_t lines, struct bench_row *row)
{
	const char *dir = cache_dir() ? cache_dir() : "/dev/shm";
	int fd = open_unnamed(dir);
	uint64_t page = fd < 0 ? 4096 : page_bytes(fd);
	uint64_t bytes = (lines * 64 + page - 1) / page * page;
	int err = fd < 0                        ? errno
		  : bytes > bench_memory_left() ? ENOMEM
						: posix_fallocate(fd, 0, (off_t)bytes);
	void *p = err ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (fd >= 0)
		close(fd);
	if (p == MAP_FAILED) {
		row_skip(row, "%s: no %llu MiB for the limit: %s", dir,
			 (unsigned long long)(bytes >> 20), strerror(err ? err : errno));
		return false;
	}
	madvise(p, bytes, MADV_HUGEPAGE); /* as the library does */
	*l = (struct limit){ p, lines };
	for (uint64_t i = 0; i < lines; i++)
		l->memory[i * WORDS] = (uint32_t)bench_mix(i);
	return true;
}

void limit_close(struct limit *l)
{
	munmap(l->memory, l->lines * 64);
	l->memory = NULL;
}

static inline uint64_t line_of(const struct limit *l, const gpc_key *key)
{
	return (key->w[0] >> 32) * l->lines >> 32;
}

uint32_t limit_answer(const struct limit *l, const gpc_key *key)
{
	return (uint32_t)bench_mix(line_of(l, key));
}

static inline uint32_t *word_of(const struct limit *l, const gpc_key *key)
{
	return l->memory + line_of(l, key) * WORDS;
}

/* Not inlined: there is one call for each batch, as a caller of the library makes it. */
static __attribute__((noinline)) void one_batch(const struct limit *l, const gpc_key *keys,
						uint32_t n, uint32_t *answers)
{
	for (uint32_t i = 0; i < n; i++)
		__builtin_prefetch(word_of(l, &keys[i]));
	for (uint32_t i = 0; i < n; i++)
		answers[i] = *word_of(l, &keys[i]);
}

void limit_batches(const struct limit *l, const gpc_key *keys, uint32_t n, uint32_t batch,
		   uint32_t *answers)
{
	for (uint32_t i = 0; i < n; i += batch)
		one_batch(l, keys + i, n - i < batch ? n - i : batch, answers + i);
}

void limit_window(const struct limit *l, const gpc_key *keys, uint32_t n, uint32_t window,
		  uint32_t *answers)
{
	uint32_t i;

	for (i = 0; i < window && i < n; i++)
		__builtin_prefetch(word_of(l, &keys[i]));
	for (i = 0; i + window < n; i++) {
		__builtin_prefetch(word_of(l, &keys[i + window]));
		answers[i] = *word_of(l, &keys[i]);
	}
	for (; i < n; i++)
		answers[i] = *word_of(l, &keys[i]);
}

uint32_t limit_chain(const struct limit *l, uint32_t n, uint32_t start)
{
	uint32_t word = start;

	while (n--)
		word = l->memory[((uint64_t)(word ^ n * 0x9e3779b9u) * l->lines >> 32) * WORDS];
	return word;
}

void limit_add(const struct limit *l, const gpc_key *keys, uint32_t n, uint32_t batch)
{
	for (uint32_t i = 0; i < n; i += batch) {
		uint32_t m = n - i < batch ? n - i : batch;

		for (uint32_t j = 0; j < m; j++)
			__builtin_prefetch(word_of(l, &keys[i + j]), 1);
		for (uint32_t j = 0; j < m; j++)
			__atomic_fetch_add(word_of(l, &keys[i + j]) + 1, 1, __ATOMIC_SEQ_CST);
		for (uint32_t j = 0; j < m; j++)
			__atomic_fetch_sub(word_of(l, &keys[i + j]) + 1, 1, __ATOMIC_SEQ_CST);
	}
}

/* Lines that are independent of each other. */
static inline uint32_t *other_word(const struct limit *l, const gpc_key *key, uint32_t which)
{
	uint64_t h = key->w[which & 1] >> (which & 2 ? 0 : 32) & UINT32_MAX;

	return l->memory + (h * l->lines >> 32) * WORDS;
}

void limit_write(const struct limit *l, const gpc_key *keys, uint32_t n, uint32_t batch,
		 uint32_t each)
{
	for (uint32_t i = 0; i < n; i += batch) {
		uint32_t m = n - i < batch ? n - i : batch;

		for (uint32_t j = 0; j < m; j++)
			for (uint32_t k = 0; k < each && k < WRITES_MOST; k++)
				__builtin_prefetch(other_word(l, &keys[i + j], k), 1);
		for (uint32_t j = 0; j < m; j++)
			for (uint32_t k = 0; k < each && k < WRITES_MOST; k++)
				other_word(l, &keys[i + j], k)[2]++;
	}
}
