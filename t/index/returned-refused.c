/* SPDX-License-Identifier: Apache-2.0 */
/* A block that came back is told of, also if its owner has named it before in a publish, when that
 * was refused; and once. Tests: lib/index/request/returned.c lib/index/request/publish.c lib/index/writer/command.c */
#include "config.h"

#include "t/lib/cache.h"

static gpc *c, *d;
static int pool;
static gpc_block b, got[4];
static gpc_key k[3];

static int publish(const gpc_key *parent, const gpc_key *key)
{
	gpc_block resident = -2;

	must(gpc_publish(c, parent, key, &b, 1,
			 GPC_OPTIONS(gpc_publish_options, .resident = &resident), GPC_NO_REF, -1));
	return resident;
}

/* Published, and gone again by another peer's drop. */
static void comes_back(void)
{
	is_int(publish(NULL, k), b, "it is published");
	serve_begin(c);
	must(gpc_drop(d, &b, 1, NULL, 0, 60000));
	while (gpc_pool_available(d, pool) || find(d, 1) >= 0)
		;
	serve_end();
}

static void is_told(const char *when)
{
	int n = gpc_returned(c, pool, got, 4, 0);

	while (!n && cache_thread) /* its grace period */
		n = gpc_returned(c, pool, got, 4, 100);
	ok(n == 1 && got[0] == b, "%s: it is told (%d)", when, n);
	is_int(gpc_returned(c, pool, got, 4, 0), 0, "and once");
}

static bool is_back(void)
{
	struct gpc_pool p = { .size = sizeof(p) };

	must(gpc_pool_get(c, pool, &p));
	return !p.live && !p.dying;
}

static void test(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_pool p = pool_of(GPC_VRAM, 4, 0);
	int i;

	cfg.max_blocks = 16;
	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	p.flags = GPC_POOL_CALLER;
	pool = must(gpc_pool_make(c, &p, NULL, -1));
	b = GPC_BLOCK(pool, 1);
	for (i = 0; i < 3; i++)
		k[i] = key_of(c, 1 + (uint64_t)i);
	for (i = 0; i < 2; i++) {
		comes_back();
		while (!is_back())
			if (!cache_thread)
				must(gpc_writer_serve(c, 1));
		if (i)
			is_int(publish(&k[1], &k[2]), -ENOENT, "a publish without its parent");
		is_told(i ? "named by a publish that was refused" : "not named");
	}
	comes_back();
	while (!is_back())
		if (!cache_thread)
			must(gpc_writer_serve(c, 1));
	is_int(publish(&k[1], &k[2]), -ENOENT, "refused");
	is_int(publish(NULL, &k[2]), b, "and published, before it was told");
	is_int(gpc_returned(c, pool, got, 4, 0), 0, "is not told any more");
	must(gpc_close(d));
	clean(c, "at the end");
	cache_end(c);
}

static int body(void)
{
	cache_both(test);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
