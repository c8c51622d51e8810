/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_reclaim: chosen blocks become reservations, with a reference of the caller or without one;
 * and gpc_rekey, which publishes them anew.
 * Tests: lib/index/request/reclaim.c lib/index/request/rekey.c lib/index/writer/grant_named.c lib/index/writer/grants.c */
#include "t/lib/cache.h"

#include <pthread.h>

#include "index/peer/handle.h"
#include "index/segment/blocks.h"
#include "index/peer/hold.h"

enum { BLOCKS = 16 };

static enum hold cell_of(gpc *c, gpc_block b)
{
	return hold_of(*seg_cell(&c->seg, pool_record(&c->seg, b), c->peer));
}

/* One block, and what the answer to it is. */
static int reclaim_one(gpc *c, gpc_block b)
{
	int result = 77, got = gpc_reclaim(c, NULL, &b, 1, &result, 0, 1000);

	if (got < 0 || got != (result == 0))
		bail("reclaim returns %d, and %d of the block", got, result);
	return result;
}

/* By a peer that is the writer for so long. */
static int reclaim_by(gpc *c, gpc *d, gpc_block b)
{
	int result;

	must(gpc_writer_drop(c));
	must(gpc_writer_take(d, 0, 60000));
	result = reclaim_one(d, b);
	must(gpc_writer_drop(d));
	must(gpc_writer_take(c, 0, 60000));
	return result;
}

static void is_mine(gpc *c, gpc_block b, uint64_t key, const char *what)
{
	ok(find(c, key) == -1, "%s: the key has gone", what);
	ok(cell_of(c, b) == HOLD_RESERVED, "and the block is reserved");
	clean(c, what);
}

static void test_idle(void)
{
	gpc *c = cache_new(BLOCKS, 0);
	struct gpc_stats before = stats_of(c, -1), after;
	uint64_t cursor = UINT64_MAX;
	struct gpc_event e;
	gpc_block b[3];

	chain_make(c, 0, 1, 3, b);
	must(gpc_event_read(c, &cursor, &e, 1));
	is_int(reclaim_one(c, b[1]), -EBUSY, "a block with a child");
	ok(find(c, 2) == b[1], "is there still");
	is_int(reclaim_one(c, b[2]), 0, "a leaf that nobody holds");
	is_mine(c, b[2], 3, "a leaf");
	is_int(gpc_event_read(c, &cursor, &e, 1), 1, "one event");
	ok(e.what == GPC_REMOVED && e.block == b[2], "it was removed");
	is_int(reclaim_one(c, b[2]), -ESTALE, "it is not live any more");
	after = stats_of(c, -1);
	ok(after.dropped == before.dropped + 1 && after.evicted == before.evicted,
	   "it counts as dropped");
	is_int((long)stats_of(c, c->peer).reserved, 1, "and as reserved");
	must(gpc_release(c, &b[2], 1));
	done(c);
	is_int((long)stats_of(c, -1).reserved, 0, "released");
	is_int((long)stats_of(c, -1).free_blocks, BLOCKS - 2, "it is free");
	cache_end(c);
}

static void test_list(void)
{
	gpc *c = cache_new(BLOCKS, 0);
	gpc_block b[4], list[6];
	gpc_key k[6] = { { { 0 } } };
	int result[6];

	chain_make(c, 0, 1, 4, b);
	memcpy(list, (gpc_block[]){ b[3], b[0], b[2], b[2], GPC_BLOCK(9, 1), b[1] }, sizeof(list));
	k[5] = key_of(c, 9);
	is_int(gpc_reclaim(c, k, list, 6, result, 0, 1000), 2, "two of six");
	ok(result[0] == 0 && result[2] == 0, "leaf first");
	is_int(result[1], -EBUSY, "the root is not");
	is_int(result[3], -ESTALE, "named twice");
	is_int(result[4], -EINVAL, "no block");
	is_int(result[5], -ESTALE, "another key");
	ok(strstr(gpc_last_error(), "blocks[1]") != NULL, "the first refusal: %s",
	   gpc_last_error());
	k[5] = key_of(c, 2);
	is_int(gpc_reclaim(c, k + 5, list + 5, 1, NULL, 0, 1000), 1, "its own key, no results");
	is_int(gpc_reclaim(c, NULL, NULL, 0, NULL, 0, 1000), 0, "nothing");
	must(gpc_release(c, b + 1, 3));
	done(c);
	clean(c, "a list");
	cache_end(c);
}

/* The caller's own reference becomes the reservation; anybody else's keeps the block. */
static void test_held(void)
{
	gpc *c = cache_new(BLOCKS, 0), *d = cache_attach(0, 0);
	gpc_block b, got;
	gpc_key k = key_of(c, 1);
	int i;

	chain_make(c, 0, 1, 1, &b);
	is_int(gpc_acquire(c, 0, &k, 1, &got, 0), 1, "held by the caller");
	is_int(gpc_acquire(d, 0, &k, 1, &got, 0), 1, "and by another peer");
	is_int(reclaim_one(c, b), -EBUSY, "so it stays");
	ok(find(c, 1) == b && cell_of(c, b) == HOLD_REF, "findable, and referenced");
	must(gpc_release(d, &b, 1));
	is_int(gpc_acquire(c, 0, &k, 1, &got, 0), 1, "twice by the caller");
	is_int(reclaim_one(c, b), -EBUSY, "so it stays");
	must(gpc_release(c, &b, 1));
	is_int(reclaim_one(c, b), 0, "once by the caller");
	is_mine(c, b, 1, "the reference");
	is_int((long)stats_of(c, c->peer).refs, 0, "no reference is left");
	is_int(gpc_publish(c, NULL, &k, &b, 1, NULL, 0, 1000), 1, "it can be published");
	ok(cell_of(c, b) == HOLD_REF && find(c, 1) == b, "and is a reference again");
	is_int(reclaim_by(c, d, b), -EBUSY, "another peer does not get it");
	must(gpc_release(c, &b, 1));
	is_int(reclaim_by(c, d, b), 0, "now it does");
	must(gpc_close(d));
	for (i = 0; i < 2000 && stats_of(c, -1).free_blocks < BLOCKS; i++)
		must(gpc_writer_serve(c, 1));
	clean(c, "two peers");
	cache_end(c);
}

/* The owner of a CALLER pool knows by the answer; others may not. */
static void test_caller(void)
{
	gpc *c = cache_new(BLOCKS, 0), *d = cache_attach(0, 0);
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = GPC_VRAM,
			      .space = 1,
			      .blocks = 4,
			      .demote_to = -1,
			      .flags = GPC_POOL_CALLER };
	gpc_block b[2], back;
	gpc_key k[2] = { key_of(c, 1), key_of(c, 2) };
	int pool;

	must(gpc_pool_clear(c, 0, 0, GPC_REMOVE, 60000));
	pool = must(gpc_pool_make(c, &p, NULL, 60000));
	b[0] = GPC_BLOCK(pool, 1);
	b[1] = GPC_BLOCK(pool, 2);
	is_int(gpc_publish(c, NULL, k, b, 2, NULL, 0, 1000), 2, "two blocks of the owner");
	must(gpc_release(c, &b[1], 1));
	is_int(reclaim_by(c, d, b[1]), -EPERM, "another peer");
	is_int(reclaim_one(c, b[0]), 0, "the owner, with a reference");
	is_int(reclaim_one(c, b[1]), 0, "the owner, without one");
	clean(c, "CALLER");
	is_int(gpc_returned(c, pool, &back, 1, 0), 0, "both were told by the answer");
	is_int(gpc_publish(c, NULL, k, b, 2, NULL, 0, 1000), 2, "and can be published");
	is_int(gpc_pool_available(c, pool), 0, "they are held");
	must(gpc_release(c, b, 2));
	is_int(gpc_pool_available(c, pool), 2, "and then not");
	must(gpc_close(d));
	cache_end(c);
}

/* A grace period that cannot end: the caller gives up, and its reference is one still. */
static void test_gives_up(void)
{
	gpc *c = cache_new(BLOCKS, 0), *d = cache_attach(0, 0);
	int section, result = 77;
	gpc_block b[2], got;
	gpc_key k = key_of(c, 1);

	chain_make(c, 0, 1, 1, &b[0]);
	chain_make(c, 0, 11, 1, &b[1]);
	must(gpc_acquire(c, 0, &k, 1, &got, 0));
	settle(c);
	section = must(gpc_section_enter(d));
	is_int(gpc_reclaim(c, NULL, b, 2, &result, 0, 20), -ETIMEDOUT, "a section is open");
	ok(strstr(gpc_last_error(), "section open"), "and the sentence says so: %s",
	   gpc_last_error());
	is_int(result, 77, "no results");
	must(gpc_section_leave(d, section));
	while (stats_of(c, -1).free_blocks < BLOCKS - 1)
		must(gpc_writer_serve(c, 1));
	done(c);
	ok(cell_of(c, b[0]) == HOLD_REF && find(c, 1) == -1,
	   "the key has gone, the reference has not");
	is_int((long)stats_of(c, -1).free_blocks, BLOCKS - 1, "the other one is free");
	clean(c, "given up");
	must(gpc_release(c, &b[0], 1));
	settle(c);
	is_int((long)stats_of(c, -1).free_blocks, BLOCKS, "and then this one");
	clean(c, "all of it");
	must(gpc_close(d));
	cache_end(c);
}

/* A partial block becomes full: its new key hangs where the old one did. */
static void test_rekey(void)
{
	gpc *c = cache_new(BLOCKS, 0);
	gpc_key k[4] = { key_of(c, 1), key_of(c, 2), key_of(c, 50), key_of(c, 51) };
	gpc_key up[2] = { k[0], k[2] }, none = key_of(c, 99);
	gpc_block b[3], got[3], res[3];

	chain_make(c, 0, 1, 3, b);
	is_int(gpc_acquire(c, 0, k, 2, got, 0), 2, "two of three are held");
	is_int(gpc_rekey(c, k + 1, up, k + 2, b + 1, 1,
			 GPC_OPTIONS(gpc_publish_options, .resident = res), 0, 1000),
	       0, "with a child");
	is_int(res[0], -EBUSY, "it keeps its key: %s", gpc_last_error());
	ok(find(c, 2) == b[1] && cell_of(c, b[1]) == HOLD_REF, "and its reference");
	is_int(gpc_rekey(c, NULL, up, k + 2, b + 1, 2,
			 GPC_OPTIONS(gpc_publish_options, .resident = res), 0, 1000),
	       2, "two of a chain");
	ok(res[0] == b[1] && res[1] == b[2], "both live");
	ok(find(c, 2) == -1 && find(c, 3) == -1 && find(c, 50) == b[1] && find(c, 51) == b[2],
	   "under their new keys");
	ok(cell_of(c, b[1]) == HOLD_REF && cell_of(c, b[2]) == HOLD_REF, "and referenced");
	clean(c, "rekeyed");
	is_int(gpc_rekey(c, NULL, &none, k + 1, b + 2, 1,
			 GPC_OPTIONS(gpc_publish_options, .resident = res), 0, 1000),
	       0, "no such parent");
	ok(res[0] == -ENOENT && cell_of(c, b[2]) == HOLD_RESERVED, "it is reserved");
	is_int(gpc_rekey(c, NULL, up, k + 1, b + 2, 1,
			 GPC_OPTIONS(gpc_publish_options, .resident = res), GPC_NO_REF, 1000),
	       1, "a second call goes on");
	ok(find(c, 2) == b[2] && cell_of(c, b[2]) == HOLD_NONE, "and references nothing");
	is_int(gpc_rekey(c, k + 1, NULL, k, b + 2, 1,
			 GPC_OPTIONS(gpc_publish_options, .resident = res), 0, 1000),
	       0, "a key that is live");
	ok(res[0] == b[0] && cell_of(c, b[2]) == HOLD_RESERVED, "is another block's");
	clean(c, "all of it");
	cache_end(c);
}

static int body(void)
{
	test_idle();
	test_list();
	test_held();
	test_caller();
	test_gives_up();
	test_rekey();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(30, body, cache_dir_remove);
}
