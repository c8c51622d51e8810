/* SPDX-License-Identifier: Apache-2.0 */
/* A map that has no thread to see its pool go is none: what the caller gave is as it was, and
 * nothing is kept.
 * Tests: lib/bytes/mapping/map.c lib/bytes/mapping/thread.c lib/bytes/mapping/maps.c */
#include "t/lib/memory_files.h"

#include "index/base/err.h"
#include "bytes/mapping/maps.h"

enum { BLOCK = 4096, BLOCKS = 4 };

static bool no_thread;

int __real_thread_start(gpc *c);
int __wrap_thread_start(gpc *c);
int __wrap_thread_start(gpc *c)
{
	return no_thread ? err_set(EAGAIN, "no room for another thread") : __real_thread_start(c);
}

static int make(gpc *c, uint32_t kind)
{
	struct gpc_pool p = pool_with(kind, BLOCKS, 0);
	struct gpc_memory m = memory_of(BLOCK);

	return must(gpc_pool_make(c, &p, &m, -1));
}

static void test_refused(uint32_t kind)
{
	struct gpc_config cfg = cache_config(0, 0);
	uint64_t bytes = 7;
	void *base = &bytes;
	gpc *c, *d;
	int pool;

	cfg.max_blocks = 64;
	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	pool = make(c, kind);
	no_thread = true;
	refused(gpc_pool_map(d, pool, 0, &base, &bytes), EAGAIN, "there is no thread");
	ok(base == &bytes && bytes == 7, "nothing was stored");
	refused(gpc_pool_unmap(d, pool), ENOENT, "and nothing is mapped");
	no_thread = false;
	must(gpc_pool_map(d, pool, 0, &base, &bytes));
	no_thread = true;
	bytes = 7;
	refused(gpc_pool_map(d, pool, 0, &base, &bytes), EAGAIN, "again");
	is_int((int)bytes, 7, "nothing was stored");
	no_thread = false;
	is_int(gpc_pool_unmap(d, pool), 0, "what was mapped before is mapped still");
	no_thread = true;
	refused(gpc_pool_map(d, pool, 0, &base, &bytes), EAGAIN, "and again");
	no_thread = false;
	must(gpc_pool_clear(c, pool, 0, GPC_REMOVE, 5000));
	is_int(make(c, kind), pool, "another pool has its number");
	is_int(gpc_pool_map(d, pool, 0, &base, &bytes), 0,
	       "which is mapped: nobody had the old one");
	must(gpc_close(d));
	cache_end(c);
}

static int body(void)
{
	cache_thread = false;
	test_refused(GPC_RAM);
	test_refused(GPC_VRAM);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(30, body, cache_dir_remove);
}
