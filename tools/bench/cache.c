/* SPDX-License-Identifier: Apache-2.0 */
/* Caches to measure.  They have private names that nobody can guess, and a writer in a process of
 * its own.  Their keys follow from numbers, so nothing has to be kept to know them again.
 * Tests: t/tools/bench-ends.t */
#include "config.h"

#include "tools/bench/bench.h"

#include "tools/common/cli.h"

#include <errno.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

enum {
	PART = 1024,       /* blocks of one command */
	BLOCK_BYTES = 320, /* bytes of a block in memory, with everything that a bench counts */
	HUGE_MIB = 64,     /* free space of a hugetlbfs that is worth a try */
};

int must(int r, const char *what)
{
	if (r < 0)
		bench_fail("%s: %s", what, cli_gpc_text(r));
	return r;
}

/* ---- where ---- */

static const char *find_huge(void)
{
	static char dir[256];
	FILE *f = setmntent("/proc/self/mounts", "r");
	uint64_t most = (uint64_t)HUGE_MIB << 20;
	struct mntent *m;
	struct statfs fs;

	while (f && (m = getmntent(f)) != NULL) {
		if (strcmp(m->mnt_type, "hugetlbfs") || statfs(m->mnt_dir, &fs) ||
		    access(m->mnt_dir, W_OK))
			continue;
		/* a mount without a size limit reports no free bytes: see free_huge() */
		if (fs.f_blocks && (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < most)
			continue;
		snprintf(dir, sizeof(dir), "%s", m->mnt_dir);
		break;
	}
	if (f)
		endmntent(f);
	return dir[0] ? dir : NULL;
}

/* The bytes of free huge pages of the usual size. */
static uint64_t free_huge(void)
{
	FILE *f = fopen("/proc/meminfo", "r");
	uint64_t pages = 0, kib = 0;
	char line[128];

	while (f && fgets(line, sizeof(line), f)) {
		sscanf(line, "HugePages_Free: %lu", &pages);
		sscanf(line, "Hugepagesize: %lu kB", &kib);
	}
	if (f)
		fclose(f);
	return pages * kib << 10;
}

const char *cache_dir(void)
{
	static const char *dir;

	if (!bench.huge)
		return bench.dir;
	if (!dir)
		dir = bench.dir ? bench.dir : find_huge();
	if (!dir || free_huge() < (uint64_t)HUGE_MIB << 20) {
		cli_error("--huge: %s%s; as root: echo 2048 >/proc/sys/vm/nr_hugepages; "
			  "mount -t hugetlbfs none DIR; then gpc-bench --huge --dir DIR",
			  dir ? dir : "no hugetlbfs that you may write to is mounted",
			  dir ? " has too few free pages" : "");
		exit(EXIT_RUNTIME);
	}
	return dir;
}

/* ---- keys ---- */

void cache_keys(gpc *c, uint64_t salt, const uint64_t *numbers, uint32_t n, gpc_key *keys)
{
	uint64_t digests[PART];

	for (uint32_t i = 0; i < n; i += PART) {
		uint32_t m = n - i < PART ? n - i : PART;

		for (uint32_t j = 0; j < m; j++)
			digests[j] = salt + numbers[i + j];
		must(gpc_key_import(c, digests, 8, 8, m, 0, keys + i), "keys");
	}
}

void cache_key_run(const struct bench_cache *b, uint64_t first, uint32_t n, gpc_key *keys)
{
	uint64_t numbers[PART];

	for (uint32_t i = 0; i < n; i += PART) {
		uint32_t m = n - i < PART ? n - i : PART;

		for (uint32_t j = 0; j < m; j++)
			numbers[j] = first + i + j;
		cache_keys(b->c, b->salt, numbers, m, keys + i);
	}
}

void cache_insert(struct bench_cache *b, uint64_t first, uint32_t n, gpc_block *blocks)
{
	gpc_key keys[PART];

	cache_key_run(b, first, n, keys);
	must(gpc_reserve(b->c, 0, n, blocks, NULL, 0, -1), "reserve");
	if (must(gpc_publish(b->c, NULL, keys, blocks, n, NULL, 0, -1), "publish") != (int)n)
		bench_fail("a key of the bench was there already");
	must(gpc_release(b->c, blocks, n), "unref");
}

static uint64_t published(gpc *c)
{
	struct gpc_stats s = { .size = sizeof(s) };

	must(gpc_stats_get(c, -1, &s), "statistics");
	return s.published;
}

/* The writer works on a part while the keys of the next part are made. */
static void fill(struct bench_cache *b)
{
	gpc_ticket ticket = 0;
	gpc_key keys[PART];

	for (uint64_t i = 0; i < b->entries; i += PART) {
		uint32_t n = b->entries - i < PART ? (uint32_t)(b->entries - i) : PART;

		if (!(i % (1u << 18)))
			report_progress("%llu of %llu entries", (unsigned long long)i,
					(unsigned long long)b->entries);
		cache_key_run(b, i, n, keys);
		must(gpc_reserve(b->c, 0, n, b->block_of + i, NULL, 0, -1), "reserve");
		must(gpc_publish(b->c, NULL, keys, b->block_of + i, n,
				 GPC_OPTIONS(gpc_publish_options, .ticket = &ticket), 0, 0),
		     "publish");
		must(gpc_release(b->c, b->block_of + i, n), "unref");
	}
	if (ticket)
		must(gpc_ticket_wait(b->c, ticket, -1), "wait");
	if (published(b->c) != b->entries)
		bench_fail("not all keys of the bench could be published");
	report_progress(NULL);
}

/* ---- making and removing ---- */

gpc *cache_attach_stock(const char *name, uint32_t stock)
{
	struct gpc_attach_options opt = { .size = sizeof(opt),
					  .dir = cache_dir(),
					  .label = "gpc-bench",
					  .timeout_ms = 5000,
					  .stock = stock };
	gpc *c;

	must(gpc_attach(name, &opt, 0, &c), "attach");
	return c;
}

gpc *cache_attach(const char *name)
{
	return cache_attach_stock(name, 0);
}

/* If it cannot write its answer, the parent's call fails. */
static int be_writer(struct crew_child *child, void *arg)
{
	gpc *c = cache_attach(arg);
	int r = gpc_writer_take(c, 0, 0);

	if (r < 0) {
		snprintf(child->text, sizeof(child->text), "writer: %s", cli_gpc_text(r));
		return EXIT_RUNTIME;
	}
	crew_set(&child->ready, 1);
	do
		r = gpc_writer_serve(c, -1);
	while (r >= 0 || r == -EINTR || r == -ETIMEDOUT || r == -EAGAIN);
	return EXIT_RUNTIME;
}

uint64_t bench_memory_left(void)
{
	FILE *f = fopen("/proc/meminfo", "r");
	uint64_t kib = UINT64_MAX >> 10;
	char line[128];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %lu", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib << 10;
}

static bool has_room(uint64_t blocks, struct bench_row *row)
{
	uint64_t need = blocks * BLOCK_BYTES, have = bench_memory_left();

	if (need <= have)
		return true;
	row_skip(row, "%llu blocks take some %llu MiB of memory, and %llu are available",
		 (unsigned long long)blocks, (unsigned long long)(need >> 20),
		 (unsigned long long)(have >> 20));
	return false;
}

static int create(struct bench_cache *b, struct gpc_config *cfg, struct bench_row *row)
{
	struct gpc_attach_options opt = { .size = sizeof(opt),
					  .dir = cfg->dir,
					  .label = "gpc-bench" };
	uint32_t draw;
	int r;

	if (getrandom(&draw, sizeof(draw), 0) != sizeof(draw))
		bench_fail("no random numbers: %s", strerror(errno));
	snprintf(b->name, sizeof(b->name), "gpc-bench-%d-%08x", (int)getpid(), draw);
	crew_will_remove(b->name);
	r = gpc_create(b->name, cfg, &opt, 0, &b->c);
	if (r == -ENOSPC)
		row_skip(row, "%s", cli_gpc_text(r));
	else
		must(r, "create");
	return r;
}

bool cache_open(struct bench_cache *b, struct gpc_config *cfg, uint64_t entries,
		enum cache_writer writer, struct bench_row *row)
{
	*b = (struct bench_cache){ .entries = entries, .salt = bench_random() >> 2 };
	cfg->size = sizeof(*cfg);
	cfg->dir = cache_dir();
	if (!has_room(cfg->vram_blocks ? cfg->vram_blocks : cfg->max_blocks, row) ||
	    create(b, cfg, row) < 0)
		return false;
	if (writer == CACHE_SELF) {
		must(gpc_writer_take(b->c, 0, 0), "writer_take");
	} else {
		crew_start(&b->writer, be_writer, b->name);
		crew_wait_ready(&b->writer, 1);
	}
	b->block_of = bench_alloc(b->entries, sizeof(*b->block_of));
	fill(b);
	return true;
}

void cache_close(struct bench_cache *b)
{
	crew_kill(&b->writer);
	gpc_close(b->c);
	gpc_unlink(b->name, cache_dir());
	free(b->block_of);
	b->c = NULL;
}

uint64_t cache_writer_ns(const struct bench_cache *b)
{
	struct timespec ts;
	clockid_t id;

	if (clock_getcpuclockid(b->writer.pid, &id) || clock_gettime(id, &ts))
		bench_fail("the writer's clock cannot be read");
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}
