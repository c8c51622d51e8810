/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_create with ram_memory: the pool of ram_blocks has its memory when the cache appears, and
 * what cannot be had is refused before anything is allocated.
 * Tests: lib/bytes/memfile/pages.c lib/bytes/memfile/draft.c lib/bytes/memfile/create.c lib/index/segment/seed.c
 *   lib/bytes/memfile/memfile.h */
#include "t/lib/ram_memory.h"

#include <fcntl.h>
#include <numaif.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "index/peer/handle.h"
#include "index/segment/lockfile.h"
#include "t/lib/smaps.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* ---- made ---- */

static void test_made(void)
{
	gpc *c = make();
	const struct shm_pool *p = seg_pool(&c->seg, 1);
	struct memory m;
	uint8_t *base;
	int all;

	ok(p->memory && p->block_bytes == BYTES, "the pool of ram_blocks names its memory");
	ok(!memcmp(p->fingerprint, c->seg.header.layout, 32), "of the cache's fingerprint");
	ok(!seg_pool(&c->seg, 0)->memory, "the one in VRAM has none");
	is_int(files(NAME ".p"), 1, "there is one file");
	is_int(memory_open(&c->seg, p->memory, true, &m), 0, "which opens");
	ok(m.kind == GPC_RAM && m.slots == SLOTS && m.nruns == 1 && m.block_bytes == BYTES &&
		   m.run[0].slot_stride == BYTES,
	   "with a slot for each block, and for transit");
	is_int(lock_test(m.fd, MEMORY_LOCK_MADE), 0, "its maker is done with it");
	must(memory_map_images(&c->seg, &m, &base));
	memset(base, 1, SLOTS * BYTES);
	ok(m.images_bytes >= SLOTS * BYTES, "and all its bytes can be written");
	is_int(huge_wishes(NAME ".p", &all), 0, "who maps them asks for no huge pages");
	is_int(all, 1, "there");
	memory_unmap_images(&c->seg, &m, base);
	memory_close(&m);
	memory_sweep(&c->seg);
	is_int(files(NAME ".p"), 1, "a sweep leaves it");
	end(c);
	is_int(files(""), 0, "gpc_unlink removes it with the cache");
}

static void test_own_fingerprint(void)
{
	static const struct gpc_run runs[] = { { 0, 2, 512, 0, 1024, 512 },
					       { 0, 1, 64, SLOTS * 1024, 64, 0 } };
	gpc *c;

	memset(memory.fingerprint, 3, 32);
	memory.nruns = 2;
	memory.runs = runs;
	memory.block_bytes = 0;
	c = make();
	is_int(seg_pool(&c->seg, 1)->block_bytes, 1088, "with runs an image is their sum");
	is_int(seg_pool(&c->seg, 1)->fingerprint[0], 3, "with a fingerprint of its own");
	end(c);
	memory = (struct gpc_memory){ .size = sizeof(memory), .block_bytes = BYTES };
}

/* ---- refused ---- */

static void refuses(struct gpc_memory m, int want, const char *sentence)
{
	struct gpc_config cfg = config();
	gpc *c = NULL;
	int err;

	cfg.ram_memory = &m;
	err = gpc_create(NAME, &cfg, NULL, 0, &c);
	ok(err == want && strstr(gpc_last_error(), sentence), "%d: %s", err, gpc_last_error());
	if (files(""))
		ok(false, "files are left");
}

#define REFUSES(want, sentence, ...)                                                         \
	refuses((struct gpc_memory){ .size = sizeof(struct gpc_memory), __VA_ARGS__ }, want, \
		sentence)

static void test_refused(void)
{
	static const struct gpc_run twice[] = { { 0, 1, 64, 0, 64, 0 }, { 0, 1, 64, 0, 64, 0 } },
				    far[] = { { 1, 1, 64, 0, 64, 0 } };
	struct gpc_config cfg = config();
	gpc *c;

	refuses((struct gpc_memory){ .size = 8, .block_bytes = 1 }, -EINVAL, "size");
	REFUSES(-EINVAL, "block_bytes is 0", .block_bytes = 0);
	REFUSES(-EINVAL, "block_bytes is 18446744073709551615", .block_bytes = UINT64_MAX);
	REFUSES(-EINVAL, "block_bytes is 1152921504606846976", .block_bytes = 1ull << 60);
	REFUSES(-EINVAL, "nruns is 513", .nruns = 513, .runs = twice);
	REFUSES(-EINVAL, "runs is NULL", .nruns = 1);
	REFUSES(-EINVAL, "runs[1]", .nruns = 2, .runs = twice);
	REFUSES(-EINVAL, "runs[0].part is 1", .nruns = 1, .runs = far);
	REFUSES(-EINVAL, "block_bytes is 65", .nruns = 1, .runs = twice, .block_bytes = 65);
	REFUSES(-EINVAL, "device is \"host\"", .block_bytes = 64, .device = "host");
	REFUSES(-EINVAL, "parts is 1", .block_bytes = 64, .parts = 1);
	REFUSES(-EINVAL, "numa is 3", .block_bytes = 64, .numa = 3);
	REFUSES(-EINVAL, "nodes is 0x1", .block_bytes = 64, .nodes = 1);
	REFUSES(-EINVAL, "nodes is 0x8000000000000000", .block_bytes = 64, .numa = GPC_NUMA_BIND,
		.nodes = 1ull << 63);
	REFUSES(-EINVAL, "threads is 17", .block_bytes = 64, .threads = 17);
	REFUSES(-EINVAL, "huge_dir is /proc", .block_bytes = 64, .huge_dir = "/proc");
	REFUSES(-ENOENT, "huge_dir /no/such", .block_bytes = 64, .huge_dir = "/no/such");
	REFUSES(-ENOSPC, "for the memory of its RAM pool", .block_bytes = 1ull << 44);
	cfg.ram_blocks = 0;
	refused(gpc_create(NAME, &cfg, NULL, 0, &c), EINVAL, "no pool for it");
	ok(strstr(gpc_last_error(), "ram_blocks is 0"), "%s", gpc_last_error());
}

/* The whole cache is looked at before any of it is made. */
static void test_whole(void)
{
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = 1ull << 44 };
	unsigned long long missing = 0, need = 0, memory_need = 0, there = 0;
	struct gpc_config cfg = config();
	gpc *c;

	cfg.ram_memory = &m;
	is_int(gpc_create(NAME, &cfg, NULL, 0, &c), -ENOSPC, "too much for gpc_create");
	sscanf(gpc_last_error(),
	       "%*s lacks %*u bytes (%llu MiB): %*s needs %llu MiB, %llu MiB of them for the "
	       "memory of its RAM pool, and %llu MiB are free",
	       &missing, &need, &memory_need, &there);
	ok(memory_need > (SLOTS << 24) && need > memory_need && there &&
		   missing + there + 1 >= need && missing + there <= need + 1,
	   "%llu MiB, of which %llu are the pool's, less %llu, are %llu", need, memory_need, there,
	   missing);
}

/* need - available = missing */
static void test_missing(void)
{
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = 1ull << 44 };
	struct gpc_pool p = {
		.size = sizeof(p), .kind = GPC_RAM, .blocks = SLOTS, .demote_to = -1
	};
	struct gpc_config cfg = config();
	unsigned long long need = 0, there = 0, missing = 0;
	const char *text;
	gpc *c;

	cfg.ram_memory = NULL;
	cfg.ram_blocks = 0;
	cfg.max_blocks = 2 * SLOTS;
	must(gpc_create(NAME, &cfg, NULL, GPC_SERVE, &c));
	is_int(gpc_pool_make(c, &p, &m, 10000), -ENOSPC, "too much for gpc_pool_make");
	text = gpc_last_error();
	if (strstr(text, "needs "))
		sscanf(strstr(text, "needs "), "needs %llu bytes (%*u MiB), and %llu bytes", &need,
		       &there);
	if (strrchr(text, ':'))
		sscanf(strrchr(text, ':'), ": %llu bytes are missing", &missing);
	ok(need > (SLOTS << 24) && there && missing == need - there,
	   "%llu - %llu = %llu are missing", need, there, missing);
	end(c);
}

/* ---- a cache that is there ---- */

static int fits(struct gpc_memory m)
{
	struct gpc_config cfg = config();
	gpc *c = NULL;
	int err;

	cfg.ram_memory = m.size ? &m : NULL;
	err = gpc_create(NAME, &cfg, NULL, GPC_IF_ABSENT, &c);
	if (!err)
		must(gpc_close(c));
	return err;
}

static void test_fits(void)
{
	struct gpc_config cfg = config();
	struct gpc_memory other = memory;
	gpc *c = make();

	is_int(fits(memory), 0, "the same is attached to");
	is_int(fits((struct gpc_memory){ 0 }), 0, "so it is by who does not care");
	other.block_bytes = BYTES / 2;
	is_int(fits(other), -EPROTO, "%s", gpc_last_error());
	other = memory;
	other.fingerprint[0] = 1;
	is_int(fits(other), -EPROTO, "%s", gpc_last_error());
	other = memory;
	other.sums = 2;
	is_int(fits(other), -EPROTO, "%s", gpc_last_error());
	ok(strstr(gpc_last_error(), "exists with sums 1 instead of 2"), "which are named");
	other.sums = 1;
	is_int(fits(other), 0, "as many sums");
	is_int(files(NAME ".p"), 1, "and no second file was made");
	end(c);
	cfg.ram_memory = NULL;
	must(gpc_create(NAME, &cfg, NULL, 0, &c));
	is_int(fits(memory), -EPROTO, "%s", gpc_last_error());
	end(c);
}

/* ---- the space of the pool, and parents ---- */

static int fits_place(uint32_t vram, uint32_t space, uint32_t flags)
{
	struct gpc_config cfg = config();
	gpc *c = NULL;
	int err;

	cfg.vram_blocks = vram;
	cfg.ram_space = space;
	cfg.ram_flags = flags;
	err = gpc_create(NAME, &cfg, NULL, GPC_IF_ABSENT, &c);
	if (!err)
		must(gpc_close(c));
	return err;
}

/* A key whose parent is nowhere, into a pool. */
static int orphan(gpc *c, int pool)
{
	gpc_key key[8];
	int answer = 0, r;
	gpc_block b;

	must(gpc_reserve(c, pool, 1, &b, NULL, 0, 60000));
	chain_keys(c, 1, 7, key);
	r = gpc_publish(c, key + 6, key + 7, &b, 1,
			GPC_OPTIONS(gpc_publish_options, .resident = &answer), 0, 1000);
	gpc_release(c, &b, 1);
	return r < 0 ? r : answer < 0 ? answer : 0;
}

static void test_place(uint32_t vram, uint32_t space, uint32_t flags)
{
	struct gpc_config cfg = config();
	int number = vram ? 1 : 0;
	struct gpc_pool p = { .size = sizeof(p) };
	struct gpc_attach_options here = { .size = sizeof(here), .dir = cache_dir };
	gpc *c;

	memcpy(here.layout, cfg.layout, sizeof(here.layout));
	cfg.vram_blocks = vram;
	cfg.ram_space = space;
	cfg.ram_flags = flags;
	must(gpc_create(NAME, &cfg, &here, GPC_SERVE, &c));
	must(gpc_pool_get(c, number, &p));
	ok(p.kind == GPC_RAM && p.space == space && p.flags == flags && p.memory &&
		   p.demote_to == -1,
	   "with %u blocks of VRAM: RAM is in space %u, with flags 0x%x", vram, p.space, p.flags);
	is_int(seg_state(&c->seg)->spaces, (vram ? 1 : 0) | GPC_SPACE(space),
	       "these spaces are in use");
	if (vram) {
		must(gpc_pool_get(c, 0, &p));
		ok(p.kind == GPC_VRAM && !p.space && !p.flags && p.demote_to == 1,
		   "VRAM is in space 0, and demotes to RAM");
		is_int(orphan(c, 0), -ENOENT, "VRAM refuses a key whose parent is nowhere");
	}
	is_int(orphan(c, number), flags ? 0 : -ENOENT, "RAM %s it", flags ? "takes" : "refuses");
	is_int(fits_place(vram, space, flags), 0, "who wants the same attaches");
	is_int(fits_place(vram, 0, 0), 0, "and who does not care");
	is_int(fits_place(vram, space ^ 1, flags), -EPROTO, "another space: %s", gpc_last_error());
	ok(strstr(gpc_last_error(), "but with ram_space"), "names it");
	is_int(fits_place(vram, space, GPC_POOL_UNCHAINED), flags ? 0 : -EPROTO,
	       "without parents: %s", flags ? "as it is" : gpc_last_error());
	ok(flags || strstr(gpc_last_error(), "chained: ram_flags is 0x4"), "which is told");
	end(c);
}

/* ---- NUMA ---- */

static void test_policy(uint32_t numa, int want, const char *what)
{
	unsigned long allowed[16] = { 0 }, nodes[16] = { 0 };
	int mode = -1, node, strays = 0;
	struct memory m;
	uint8_t *base;
	uint64_t i;
	gpc *c;

	memory.numa = numa;
	c = make();
	if (get_mempolicy(NULL, allowed, 1024, NULL, MPOL_F_MEMS_ALLOWED))
		bail("no nodes");
	must(memory_open(&c->seg, seg_pool(&c->seg, 1)->memory, true, &m));
	must(memory_map_images(&c->seg, &m, &base));
	get_mempolicy(&mode, nodes, 1024, base, MPOL_F_ADDR);
	is_int(mode, want, "%s: the kernel has that policy for another mapping", what);
	ok(numa == m.numa && (want == MPOL_DEFAULT ? !m.nodes : m.nodes == (allowed[0] & m.nodes)),
	   "and the file says it");
	ok(want == MPOL_DEFAULT || nodes[0] == m.nodes, "on the nodes 0x%lx", nodes[0]);
	for (i = 0; i < m.images_bytes; i += 4096)
		strays += get_mempolicy(&node, NULL, 0, base + i, MPOL_F_NODE | MPOL_F_ADDR) ||
			  (m.nodes && !(m.nodes >> node & 1));
	is_int(strays, 0, "no page is elsewhere");
	memory_unmap_images(&c->seg, &m, base);
	memory_close(&m);
	get_mempolicy(&mode, NULL, 0, NULL, 0);
	is_int(mode, MPOL_DEFAULT, "the thread's own policy is as it was");
	end(c);
	memory.numa = 0;
}

static void test_numa(void)
{
	unsigned long one = 1;

	if (set_mempolicy(MPOL_PREFERRED, &one, 64)) {
		skip(15, "this user may not set a policy");
		return;
	}
	set_mempolicy(MPOL_DEFAULT, NULL, 0);
	test_policy(GPC_NUMA_DEFAULT, MPOL_DEFAULT, "none");
	test_policy(GPC_NUMA_INTERLEAVE, MPOL_INTERLEAVE, "interleave");
	test_policy(GPC_NUMA_BIND, MPOL_BIND, "bind");
}

/* ---- huge pages ---- */

/* MiB of the pool; steps of one thread; more MiB than the index has */
enum { BIG = 96, BIG_STEPS = 3, MORE = 8 };

/* Calls for the pool.  With too few huge pages one that takes more than most_mib fails. */
static struct {
	int calls, most_mib, longest_mib, last_mib;
} asked;

/* Processors, those that control groups allow, and the threads that a pool is made with. */
static uint32_t processors, threads;
static uint64_t allowed = UINT64_MAX;

uint64_t __wrap_segment_processors(void);
uint64_t __wrap_segment_processors(void)
{
	return allowed;
}

uint32_t __real_parallel_processors(void);
uint32_t __wrap_parallel_processors(void);
uint32_t __wrap_parallel_processors(void)
{
	return processors ? processors : __real_parallel_processors();
}

void __real_parallel_run(uint32_t n, void (*run)(void *job), void *jobs, size_t bytes, uint32_t of);
void __wrap_parallel_run(uint32_t n, void (*run)(void *job), void *jobs, size_t bytes, uint32_t of);
void __wrap_parallel_run(uint32_t n, void (*run)(void *job), void *jobs, size_t bytes, uint32_t of)
{
	threads = n;
	__real_parallel_run(n, run, jobs, bytes, of);
}

int __real_madvise(void *at, size_t n, int advice);
int __wrap_madvise(void *at, size_t n, int advice);
int __wrap_madvise(void *at, size_t n, int advice)
{
	int mib = (int)(n >> 20);

	if (advice == MADV_COLLAPSE && mib > MORE && threads == 1) {
		asked.calls++;
		asked.last_mib = mib;
		asked.longest_mib = MAX(asked.longest_mib, mib);
		if (asked.most_mib && mib > asked.most_mib) {
			errno = ENOMEM;
			return -1;
		}
	}
	return __real_madvise(at, n, advice);
}

static void big(uint32_t numa, uint32_t wanted, int most_mib)
{
	struct gpc_memory m = memory;
	struct gpc_config cfg = config();
	gpc *c = NULL;

	m.block_bytes = 1 << 20;
	m.threads = wanted;
	m.numa = numa;
	cfg.ram_memory = &m;
	cfg.ram_blocks = BIG;
	cfg.max_blocks = 0;
	memset(&asked, 0, sizeof(asked));
	asked.most_mib = most_mib;
	must(gpc_create(NAME, &cfg, NULL, 0, &c));
	asked.most_mib = 0;
	end(c);
}

/* Each call waits for all processors, and an mmap of this process waits for it. */
static void test_collapse(void)
{
	int all;

	big(GPC_NUMA_DEFAULT, 1, 0);
	is_int(asked.calls, BIG_STEPS, "a step asks once for its huge pages");
	all = asked.longest_mib;
	ok(all > 64, "for all of them: %d MiB", all);
	ok(asked.last_mib < all / 2, "the last step is short: %d MiB", asked.last_mib);
	big(GPC_NUMA_INTERLEAVE, 1, 0);
	is_int(asked.calls, BIG_STEPS, "also with pages of all nodes");
	big(GPC_NUMA_DEFAULT, 1, 64);
	ok(asked.calls == BIG_STEPS + 2 && asked.longest_mib == all,
	   "again for parts of it where there are too few: %d", asked.calls);
}

/* Some processors stay for an engine that starts meanwhile. */
static void test_threads(void)
{
	static const struct {
		uint32_t processors;
		uint64_t allowed;
		uint32_t wanted, threads;
	} is[] = {
		{ 1, UINT64_MAX, 0, 1 },   { 2, UINT64_MAX, 0, 1 },   { 3, UINT64_MAX, 0, 2 },
		{ 8, UINT64_MAX, 0, 7 },   { 15, UINT64_MAX, 0, 14 }, { 16, UINT64_MAX, 0, 14 },
		{ 17, UINT64_MAX, 0, 15 }, { 18, UINT64_MAX, 0, 16 }, { 192, UINT64_MAX, 0, 16 },
		{ 2, UINT64_MAX, 16, 16 }, { 16, UINT64_MAX, 1, 1 },  { 16, 4, 0, 3 },
		{ 16, 1, 0, 1 },           { 2, 64, 0, 1 },           { 192, 17, 0, 15 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(is); i++) {
		processors = is[i].processors;
		allowed = is[i].allowed;
		big(GPC_NUMA_DEFAULT, is[i].wanted, 0);
		ok(threads == is[i].threads,
		   "%u processors, %llu allowed, %u threads wanted: %u make it", is[i].processors,
		   (unsigned long long)is[i].allowed, is[i].wanted, threads);
	}
	processors = 0;
	allowed = UINT64_MAX;
}

static int body(void)
{
	test_made();
	test_own_fingerprint();
	test_collapse();
	test_threads();
	test_refused();
	test_whole();
	test_missing();
	test_fits();
	test_place(0, 0, 0);
	test_place(0, 31, GPC_POOL_UNCHAINED);
	test_place(4, 3, 0);
	test_place(4, 0, GPC_POOL_UNCHAINED);
	test_numa();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(30, body, cache_dir_remove);
}
