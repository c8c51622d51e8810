/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_check of the memory of pools: each of its sentences, by one field of a pool's description that
 * is wrong, or by a file that is not there.
 * Tests: lib/look/check_memory.c */
#include "t/lib/memory_files.h"

#include "index/peer/handle.h"

enum { IMAGE = 4096, VRAM = 0, RAM = 1, BLOCKS = 8 };

static gpc *c;
static uint8_t *hand; /* the index, written to */

static struct {
	const char *want;
	int lines, hits;
} heard;

static void look_for(void *arg, const char *line)
{
	(void)arg;
	heard.lines++;
	heard.hits += strstr(line, heard.want) != NULL;
}

/* That line among so many. */
static void says_with(int lines, const char *want)
{
	heard.want = want;
	heard.lines = heard.hits = 0;
	must(gpc_check(c, look_for, NULL));
	ok(heard.lines == lines && heard.hits == 1, "%s", want);
}

static void says(const char *want)
{
	says_with(1, want);
}

static struct shm_pool *forge(uint32_t p)
{
	return SEG_AT(hand, c->seg.at.pool, struct shm_pool, p);
}

static void test_files(void)
{
	struct shm_pool *pool = forge(RAM), was = *pool;

	pool->block_bytes = 2 * IMAGE;
	says("pool 1: its memory has images of 4096 bytes, the pool of 8192");
	*pool = was;
	pool->fingerprint[0] ^= 1;
	says("pool 1: its memory has another fingerprint");
	*pool = was;
	pool->memory = 0;
	says("pool 1: images of 4096 bytes, but no memory");
	*pool = was;
	clean(c, "as it was");
}

static void test_devices(void)
{
	struct shm_pool *pool = forge(VRAM), was = *pool;

	pool->uuid[0][0] ^= 1;
	says("pool 0: its memory is on another device");
	*pool = was;
	clean(c, "as it was");
}

static void test_kinds(void)
{
	struct shm_pool *pool = forge(RAM), was = *pool;

	pool->memory = forge(VRAM)->memory;
	says_with(3, "pool 1: another pool has its memory, too");
	says_with(3, "pool 1: its memory is of kind");
	says_with(3, "pool 1: its memory has 8 slots, the pool 18");
	*pool = was;
	clean(c, "as it was");
}

static void test_gone(void)
{
	struct shm_pool *pool = forge(RAM), was = *pool;

	pool->memory++;
	says("pool 1: its memory: ");
	*pool = was;
	clean(c, "as it was");
}

static int body(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_memory m = memory_of(IMAGE);
	struct gpc_pool p;

	cfg.max_blocks = 64;
	cfg.max_pools = 4;
	c = cache_make(&cfg, NULL);
	p = pool_with(GPC_VRAM, BLOCKS, 0);
	is_int(must(gpc_pool_make(c, &p, &m, -1)), VRAM, "a pool of VRAM");
	p = pool_with(GPC_RAM, 2 * BLOCKS, 1);
	is_int(must(gpc_pool_make(c, &p, &m, -1)), RAM, "a pool of RAM");
	clean(c, "with memory");
	must(segment_map_writer(&c->seg, &hand));
	test_files();
	test_devices();
	test_kinds();
	test_gone();
	segment_unmap_writer(&c->seg, hand);
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
