/* SPDX-License-Identifier: Apache-2.0 */
/* What a dead writer may leave in records, each made by hand: wrong ones, forged moves, a pool
 * that goes; and what a takeover makes of it.
 * Tests: lib/index/takeover/live.c lib/index/takeover/others.c lib/index/takeover/tree.c */
#include "t/lib/hand.h"

#include "index/base/key.h"

static void test_bad_record(void)
{
	gpc_block b, x;
	gpc_key k, l;

	begin();
	b = publish(k = key_in(5, 9));
	x = publish(l = key_in(6, 9));
	writer_dies();
	record(b)->check ^= 1;
	writer_comes(false);
	is_int(look(k), -1, "a block whose checksum is wrong is not found any more");
	is_int(look(l), x, "another is");
	recovers();
	end("a wrong checksum");
}

static void test_orphan(void)
{
	gpc_block b[3];

	begin();
	chain_make(c, 0, 1, 3, b);
	writer_dies();
	record(b[1])->word = WORD(FREE, WORD_GEN(record(b[1])->word) + 1);
	writer_comes(false);
	recovers();
	is_int(find(c, 1), b[0], "a parent");
	is_int(find(c, 2), -1, "its child is lost");
	is_int(find(c, 3), -1, "so the child of that goes as well");
	end("an orphan");
}

/* LIVE, with a key like another's, and naming that one as its source; below its own children. */
static void test_forged_move(void)
{
	struct shm_record *r;
	gpc_block b[3], x;

	begin();
	x = publish(key_in(5, 9));
	chain_make(c, 0, 1, 3, b);
	writer_dies();
	r = record(x);
	memcpy(r->key, record(b[0])->key, sizeof(r->key));
	memcpy(r->parent, record(b[2])->key, sizeof(r->parent));
	r->depth = 10;
	r->flags = 0;
	r->check = key_check(r->key, r->parent, r->depth, r->tag);
	r->source_word = record(b[0])->word;
	r->source = (uint32_t)b[0] + 1;
	writer_comes(false);
	recovers();
	is_int(find(c, 3), b[2], "a move to below its own children is none");
	is_int(gpc_drop(c, &b[1], 1, NULL, 0, -1), 1, "they have an end");
	is_int(find(c, 1), b[0], "and a beginning");
	is_int(find(c, 2), -1, "they go");
	end("a forged move");
}

static void test_forged_target(void)
{
	struct gpc_config cfg = cache_config(4, 4);
	struct gpc_move m;
	gpc_block b;
	int result = 0;

	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	chain_make(c, 0, 1, 1, &b);
	is_int(gpc_demote(c, 0, 1, &b, 1, &m, 0, 60000), 1, "a move");
	writer_dies();
	record(4)->depth++;
	writer_comes(false);
	recovers();
	must(gpc_commit(c, &m, 1, &result, 0, -1));
	is_int(result, -ESTALE, "is refused if its target is not at the source's depth");
	is_int(find(c, 1), b, "which stays");
	end("a forged target");
}

/* A child of it would be at the depth of a first block. */
static void test_deepest(void)
{
	gpc_block b, x, resident = GPC_NONE;
	struct shm_record *r;
	gpc_key up, k;

	begin();
	b = publish(up = key_in(5, 9));
	writer_dies();
	r = record(b);
	r->depth = UINT32_MAX;
	r->check = key_check(r->key, r->parent, r->depth, r->tag);
	writer_comes(false);
	recovers();
	k = key_in(6, 9);
	must(gpc_reserve(c, 0, 1, &x, NULL, 0, 60000));
	is_int(gpc_publish(c, &up, &k, &x, 1,
			   GPC_OPTIONS(gpc_publish_options, .resident = &resident), 0, -1),
	       0, "nothing is deeper");
	is_int(resident, -ENOENT, "than the deepest block");
	must(gpc_release(c, &x, 1));
	end("the deepest block");
}

/* The source of a forged move is of no pool; later it is of one. */
static void test_source_of_no_pool(void)
{
	enum { LATER = 32, AT = BLOCKS + 7 };
	struct gpc_config cfg = cache_config(BLOCKS, 0);
	struct gpc_pool p = pool_of(GPC_VRAM, LATER, 1);
	gpc_block b, x[LATER];
	gpc_key k[LATER];
	int pool, i;

	cfg.max_blocks = BLOCKS + LATER;
	cfg.max_pools = 4;
	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	must(gpc_reserve(c, 0, 1, &b, NULL, 0, 60000));
	writer_dies();
	record(b)->source_word = record(AT)->word;
	record(b)->source = AT + 1;
	writer_comes(false);
	recovers();
	pool = must(gpc_pool_make(c, &p, NULL, -1));
	must(gpc_release(c, &b, 1));
	must(gpc_reserve(c, pool, LATER, x, NULL, 0, 60000));
	for (i = 0; i < LATER; i++)
		k[i] = key_of(c, 1000 + (uint64_t)i);
	is_int(gpc_publish(c, NULL, k, x, LATER, NULL, 0, -1), LATER,
	       "a pool where there was none");
	must(gpc_release(c, x, LATER));
	is_int(gpc_evict(c, pool, LATER, x, 0, 1000), LATER, "all of it can be evicted");
	end("a source of no pool");
}

/* Without entries, and made so that a table by a hash of their keys would be one long row. */
static void test_same_hash(void)
{
	enum { MANY = 1 << 18 };
	struct gpc_config cfg = cache_config(MANY, 0);
	struct shm_record *r;
	int i;

	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	writer_dies();
	for (i = 0; i < MANY; i++) {
		r = record(i);
		r->key[0] = ((uint64_t)i + 1) * 0x9e3779b97f4a7c15ull >> 1;
		r->key[1] = r->key[0] ^ 0x1234567;
		r->flags = REC_UNCHAINED;
		r->owner = SHM_NO_PEER;
		r->check = key_check(r->key, r->parent, r->depth, r->tag);
		r->word = WORD(LIVE, 1);
	}
	writer_comes(false);
	recovers();
	ok(stats_of(c, -1).live > MANY / 2, "a takeover of blocks without entries ends");
	end("keys of one hash");
}

static void test_quarantine(void)
{
	gpc_block b;
	int i;

	begin();
	b = publish(key_in(5, 9));
	writer_dies();
	record(b)->owner = SHM_NO_PEER;
	record(b)->flags = REC_QUARANTINE;
	record(b)->word = WORD(DYING, WORD_GEN(record(b)->word));
	writer_comes(false);
	recovers();
	for (i = 0; i < 10; i++)
		must(gpc_writer_serve(c, 5));
	is_int(WORD_STATE(seg_record(&c->seg, (uint32_t)b)->word), DYING,
	       "what was in quarantine stays there");
	clean(c, "a quarantine");
	must(gpc_close(d));
	cache_end(c);
}

/* LIVE, and lingering, which only a DYING block can be. */
static void test_forged_lingers(void)
{
	gpc_block b;

	begin();
	b = publish(key_in(5, 9));
	writer_dies();
	record(b)->flags |= REC_LINGERS;
	writer_comes(false);
	recovers();
	must(gpc_pool_clear(c, 0, 0, 0, 60000));
	is_int(seg_pool(&c->seg, 0)->lingering, 0,
	       "a live block that lingers is counted off by nobody");
	end("a forged flag");
}

static int body(void)
{
	test_forged_lingers();
	test_bad_record();
	test_orphan();
	test_forged_move();
	test_forged_target();
	test_deepest();
	test_source_of_no_pool();
	test_same_hash();
	test_quarantine();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
