/* SPDX-License-Identifier: Apache-2.0 */
/* A pool that goes, and one that has gone: every call that names one of its blocks says -ESTALE, from
 * the moment the pool goes, and of a block that never was, -EINVAL.
 * Tests: lib/index/peer/refuse.c lib/index/request/publish.c lib/index/request/reclaim.c lib/index/claim/claim.c */
#include "config.h"

#include "index/peer/handle.h"
#include "t/lib/cache.h"

#define ROUND \
	64 /* commands of one peer before the writer looks at what waits (index/writer/loop.c) */
#define MANY (8 * ROUND)

static gpc *writer, *c, *other;
static int pool;

static uint64_t head_of(const gpc *of)
{
	return load_acquire(&seg_seat(&of->seg, of->peer)->head);
}

static void *remove_pool(void *arg)
{
	(void)arg;
	must(gpc_pool_clear(other, pool, 0, GPC_REMOVE, 60000));
	return NULL;
}

static void begin(uint32_t flags)
{
	struct gpc_config cfg = cache_config(4, 0);
	struct gpc_pool p = pool_of(GPC_VRAM, MANY, 1);

	cache_thread = false;
	cfg.max_blocks = 2 * MANY;
	writer = cache_make(&cfg, NULL);
	c = cache_attach(0, 0);
	other = cache_attach(0, 0);
	serve_begin(writer);
	p.flags = flags;
	pool = must(gpc_pool_make(c, &p, NULL, 10000));
	serve_end();
}

static void end(void)
{
	must(gpc_close(other));
	must(gpc_close(c));
	cache_end(writer);
}

/* Publishes stand in the ring when the pool is removed. */
static void test_goes(uint32_t flags, const char *what)
{
	static gpc_key keys[MANY];
	static gpc_block blocks[MANY], got[MANY];
	uint32_t i, live = 0, stale = 0;
	pthread_t thread;
	uint64_t before;

	begin(flags);
	serve_begin(writer);
	for (i = 0; i < MANY; i++) {
		keys[i] = key_of(c, 1 + i);
		blocks[i] = GPC_BLOCK(pool, (gpc_block)i);
	}
	if (!flags)
		must(gpc_reserve(c, pool, MANY, blocks, NULL, 0, 10000));
	serve_end();
	before = head_of(other);
	must(gpc_publish(c, NULL, keys, blocks, MANY,
			 GPC_OPTIONS(gpc_publish_options, .resident = got), GPC_NO_REF, 0));
	if (pthread_create(&thread, NULL, remove_pool, NULL))
		bail("no thread");
	while (head_of(other) == before)
		sched_yield();
	serve_begin(writer);
	must(gpc_ticket_wait(c, GPC_TICKET_ALL, 60000));
	serve_end();
	for (i = 0; i < MANY; i++) {
		live += got[i] == blocks[i];
		stale += got[i] == -ESTALE;
	}
	is_int((int)(live + stale), MANY, "%s: each publish went through, or the pool had gone",
	       what);
	ok(stale > 0, "%s: %u of them", what, stale);
	if (!flags) /* they are the program's as long as it has not released them */
		gpc_release(c, blocks, MANY);
	serve_begin(writer);
	pthread_join(thread, NULL);
	serve_end();
	end();
}

static void test_gone(void)
{
	gpc_block b, resident, never = GPC_BLOCK(9, 0);
	gpc_key k;
	struct gpc_claim claim;
	int result;

	begin(GPC_POOL_CALLER);
	k = key_of(c, 1);
	b = GPC_BLOCK(pool, 0);
	serve_begin(writer);
	must(gpc_publish(c, NULL, &k, &b, 1, NULL, GPC_NO_REF, 10000));
	must(gpc_pool_clear(other, pool, 0, GPC_REMOVE, 10000));
	resident = 0;
	must(gpc_publish(c, NULL, &k, &b, 1,
			 GPC_OPTIONS(gpc_publish_options, .resident = &resident), 0, 10000));
	is_int(resident, -ESTALE, "gone: publish");
	must(gpc_publish(c, NULL, &k, &never, 1,
			 GPC_OPTIONS(gpc_publish_options, .resident = &resident), 0, 10000));
	is_int(resident, -EINVAL, "never was: publish");
	is_int(gpc_reclaim(c, NULL, &b, 1, &result, 0, 10000), 0, "gone: reclaim");
	is_int(result, -ESTALE, "gone: reclaim says so");
	is_int(gpc_reclaim(c, NULL, &never, 1, &result, 0, 10000), 0, "never was: reclaim");
	is_int(result, -EINVAL, "never was: reclaim says so");
	refused(gpc_claim(c, &k, &b, 1, &claim, 0, 10000), ESTALE, "gone: claim");
	refused(gpc_claim(c, &k, &never, 1, &claim, 0, 10000), EINVAL, "never was: claim");
	refused(gpc_claim_drop(c, &b, 1, 10000), ESTALE, "gone: the end of a claim");
	refused(gpc_drop(c, &b, 1, NULL, 0, 10000), ESTALE, "gone: drop");
	refused(gpc_drop(c, &never, 1, NULL, 0, 10000), EINVAL, "never was: drop");
	refused(gpc_release(c, &b, 1), EPERM, "gone: a release, of what nobody holds");
	serve_end();
	end();
}

static int body(void)
{
	test_goes(GPC_POOL_CALLER, "CALLER blocks");
	test_goes(0, "blocks of the cache");
	test_gone();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
