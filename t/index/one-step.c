/* SPDX-License-Identifier: Apache-2.0 */
/* All blocks of a pool go in one step (guarantee E): when the writer comes to the first of them,
 * none is found any more.  The linker puts a look at all of them in between.
 * Tests: lib/index/writer/pools.c */
#include "config.h"

#include "t/lib/cache.h"
#include "index/table/alloc.h"

enum { BLOCKS = 64 };

void __real_retire_subtree(struct writer *w, uint32_t record, uint64_t *sum);
void __wrap_retire_subtree(struct writer *w, uint32_t record, uint64_t *sum);

static gpc *reader;
static gpc_key key[BLOCKS];
static uint32_t cleaned, found, taken;

static uint32_t look(void)
{
	gpc_block b[BLOCKS], one;
	uint32_t i, n = (uint32_t)must(gpc_lookup(reader, 0, key, BLOCKS, b, GPC_QUIET));

	for (i = 0; i < BLOCKS; i++)
		n += gpc_lookup(reader, 0, &key[i], 1, &one, GPC_QUIET) != 0;
	return n;
}

static uint32_t take(void)
{
	gpc_block b[BLOCKS];
	uint32_t n = (uint32_t)must(gpc_lookup(reader, 0, key, BLOCKS, b, GPC_REF));

	must(gpc_release(reader, b, BLOCKS));
	return n;
}

void __wrap_retire_subtree(struct writer *w, uint32_t record, uint64_t *sum)
{
	if (reader) {
		cleaned++;
		found += look();
		taken += take();
	}
	__real_retire_subtree(w, record, sum);
}

static void fill(gpc *c, int pool)
{
	gpc_block b[BLOCKS];
	uint32_t i;

	for (i = 0; i < BLOCKS; i++)
		key[i] = key_of(c, 1 + i);
	must(gpc_reserve(c, pool, BLOCKS, b, NULL, 0, 60000));
	if (must(gpc_publish(c, NULL, key, b, BLOCKS, NULL, 0, -1)) != BLOCKS)
		bail("the pool was not filled");
	must(gpc_release(c, b, BLOCKS));
}

static int body(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	gpc *c, *d;
	int pool;

	cfg.max_blocks = 4 * BLOCKS;
	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	pool_new(c, GPC_RAM, 8, 0, 0); /* the space goes on */
	pool = pool_new(c, GPC_VRAM, BLOCKS, 0, 0);
	fill(c, pool);
	reader = d;
	is_int(look(), 2 * BLOCKS, "a pool of %d blocks", BLOCKS);
	must(gpc_pool_clear(c, pool, 0, GPC_REMOVE, 0));
	is_int(cleaned, BLOCKS, "it is removed, and they are cleaned up one by one");
	is_int(found, 0, "none is found by then");
	is_int(taken, 0, "and nobody gets a reference");
	reader = NULL;
	settle(c);
	clean(c, "a pool that went");
	must(gpc_close(d));
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
