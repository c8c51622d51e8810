/* SPDX-License-Identifier: Apache-2.0 */
/* Victims of a reservation with moves: until the commit their keys are nowhere, while
 * what hung below them is in RAM.
 * Tests: lib/writer/move.c lib/writer/tree.c */
#include "t/lib/tiers.h"

#include "peer/handle.h"

static void test_published_anew(bool give_up)
{
	gpc *c = cache_new(4, 8);
	struct gpc_move m[4];
	gpc_block b[4], x[4], r;
	gpc_key k[5];

	chain_keys(c, 1, 4, k);
	chain_make(c, VRAM, 1, 4, b);
	begin(c, (gpc_block[2]){ b[3], b[2] }, 2, m);
	must(gpc_commit(c, m, 2, NULL, 0, -1));
	r = find(c, 3);
	is_int(GPC_POOL(r), RAM, "the children are in RAM");
	is_int(gpc_reserve(c, VRAM, 3, x, GPC_OPTIONS(gpc_reserve_options, .moves = m), 0, 1000), 3,
	       "two free, one victim");
	ok(m[0].to == -1 && m[1].to == -1 && key_is(m[2].key, k[2]), "the parent in VRAM");
	is_int(find(c, 2), -1, "it is nowhere");
	is_int(find(c, 3), r, "its child is found by itself");
	clean(c, "a parent in between");
	is_int(gpc_publish(c, k + 1, k + 2, x, 1, NULL, 0, -1), 1, "computed anew");
	if (give_up)
		is_int(gpc_commit(c, &m[2], 1, NULL, GPC_CANCEL, -1), 1,
		       "the old bytes are given up");
	else
		is_int(commit_one(c, &m[2]), -EEXIST, "the old bytes come too late");
	is_int(find(c, 2), x[0], "the new ones count");
	clean(c, "published anew");
	is_int(hold(c, 1, 4, b), 4, "the chain is whole");
	must(gpc_release(c, b, 4));
	must(gpc_release(c, x, 3));
	is_int(gpc_drop(c, (gpc_block[1]){ find(c, 2) }, 1, NULL, 0, -1), 1, "drop the new parent");
	ok(find(c, 3) == -1 && find(c, 4) == -1, "and the children that hang there now go");
	nothing_left(c, 4, 8, "published anew");
	cache_end(c);
}

/* The same, and then the old bytes are given up instead. */
static void test_given_up(void)
{
	gpc *c = cache_new(2, 8);
	struct gpc_move m[2];
	gpc_block b[3], x[2];

	chain_make(c, VRAM, 1, 2, b);
	begin(c, &b[1], 1, m);
	must(gpc_commit(c, m, 1, NULL, 0, -1));
	is_int(gpc_reserve(c, VRAM, 2, x, GPC_OPTIONS(gpc_reserve_options, .moves = m), 0, 1000), 2,
	       "one free, one victim");
	is_int(find(c, 1), -1, "the parent is on its way");
	is_int(gpc_commit(c, m, 2, NULL, GPC_CANCEL, -1), 1, "and given up");
	is_int(find(c, 2), -1, "without it the child is no use");
	must(gpc_release(c, x, 2));
	nothing_left(c, 2, 8, "a parent given up");
	cache_end(c);
}

static void test_dropped_child(void)
{
	gpc *c = cache_new(2, 8);
	struct gpc_move m[2];
	gpc_block b[2], x[2], r;

	chain_make(c, VRAM, 1, 2, b);
	begin(c, &b[1], 1, m);
	must(gpc_commit(c, m, 1, NULL, 0, -1));
	r = find(c, 2);
	must(gpc_reserve(c, VRAM, 2, x, GPC_OPTIONS(gpc_reserve_options, .moves = m), 0, 1000));
	is_int(gpc_drop(c, &r, 1, NULL, 0, -1), 1, "the child goes");
	is_int(gpc_commit(c, m, 2, NULL, 0, -1), 1, "the parent comes");
	is_int(GPC_POOL(find(c, 1)), RAM, "and is found");
	is_int(find(c, 2), -1, "alone");
	must(gpc_release(c, x, 2));
	nothing_left(c, 2, 8, "a child dropped");
	cache_end(c);
}

/* Moves of one chain in several calls: the child cannot come before its parent. */
static void test_order(void)
{
	gpc *c = cache_new(2, 8);
	struct gpc_move m[2];
	gpc_block x[2];
	int results[2] = { 77, 77 };

	chain_make(c, VRAM, 1, 2, NULL);
	must(gpc_reserve(c, VRAM, 2, x, GPC_OPTIONS(gpc_reserve_options, .moves = m), 0, 1000));
	is_int(commit_one(c, &m[0]), -ENOENT, "the leaf alone has no parent");
	is_int(commit_one(c, &m[1]), 0, "the parent is first");
	is_int(find(c, 2), -1, "the leaf is lost");
	must(gpc_release(c, x, 2));
	done(c);
	chain_make(c, VRAM, 11, 2, NULL);
	must(gpc_reserve(c, VRAM, 2, x, GPC_OPTIONS(gpc_reserve_options, .moves = m), 0, 1000));
	is_int(gpc_commit(c, m, 2, results, 0, -1), 2, "both in one call");
	ok(!results[0] && !results[1], "is how it should be");
	ok(GPC_POOL(find(c, 11)) == RAM && GPC_POOL(find(c, 12)) == RAM, "both are there");
	must(gpc_release(c, x, 2));
	nothing_left(c, 2, 8, "orders");
	cache_end(c);
}

/* The reservation goes back before its victim's move is committed. */
static void test_returned(void)
{
	gpc *c = cache_new(2, 8);
	struct gpc_move m[2];
	gpc_block x[2];

	chain_make(c, VRAM, 1, 2, NULL);
	must(gpc_reserve(c, VRAM, 2, x, GPC_OPTIONS(gpc_reserve_options, .moves = m), 0, 1000));
	is_int(gpc_release(c, x, 2), 0, "not needed after all");
	done(c);
	is_int(gpc_commit(c, m, 2, NULL, 0, -1), 2, "what was copied counts all the same");
	ok(GPC_POOL(find(c, 1)) == RAM && GPC_POOL(find(c, 2)) == RAM, "both are there");
	nothing_left(c, 2, 8, "returned");
	cache_end(c);
}

/* The new content is published before the old one's move is committed: what is referenced
 * there is the new. */
static void test_published_first(void)
{
	gpc *c = cache_new(2, 8);
	struct gpc_move m[2];
	gpc_block x[2];
	gpc_key k[3];

	chain_keys(c, 11, 2, k);
	chain_make(c, VRAM, 1, 2, NULL);
	must(gpc_reserve(c, VRAM, 2, x, GPC_OPTIONS(gpc_reserve_options, .moves = m), 0, 1000));
	is_int(gpc_publish(c, k, k + 1, x, 2, NULL, 0, -1), 2, "new keys in their place");
	is_int(gpc_commit(c, m, 2, NULL, 0, -1), 2, "the old ones arrive in RAM");
	ok(GPC_POOL(find(c, 1)) == RAM && find(c, 11) == x[0], "all are found");
	is_int(gpc_reserve(c, VRAM, 1, x, NULL, 0, 1000), -ENOSPC, "the new ones are held");
	is_int(gpc_release(c, x, 2), 0, "where they are");
	refused(gpc_release(c, &m[0].to, 1), EPERM, "the old ones are nobody's");
	nothing_left(c, 2, 8, "published first");
	cache_end(c);
}

/* A key is detached twice, and its child hangs below the first target.  A successor cannot know
 * that; the second is given up, and the child goes on waiting for the first. */
static void test_two_targets(void)
{
	gpc *c = cache_new(2, 8);
	struct gpc_move m[2], again[2];
	gpc_block x[2];
	gpc_key k[3];

	must(gpc_writer_drop(c)); /* places in RAM are given in this order, or in that */
	must(gpc_writer_take(c, 0, 0));
	chain_keys(c, 1, 2, k);
	chain_make(c, VRAM, 1, 2, NULL);
	must(gpc_reserve(c, VRAM, 2, x, GPC_OPTIONS(gpc_reserve_options, .moves = m), 0, 1000));
	must(gpc_publish(c, k, k + 1, x, 1, NULL, 0, -1));
	must(gpc_release(c, x, 2));
	must(gpc_reserve(c, VRAM, 2, x, GPC_OPTIONS(gpc_reserve_options, .moves = again), 0, 1000));
	ok(again[0].to == -1 && key_is(again[1].key, k[1]) && key_is(m[1].key, k[1]),
	   "a key is detached twice");
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	is_int(gpc_commit(c, &again[1], 1, NULL, GPC_CANCEL, -1), 1, "the later one is given up");
	clean(c, "one of two targets given up");
	is_int(commit_one(c, &m[1]), 0, "the earlier one comes");
	is_int(commit_one(c, &m[0]), 0, "so does what hung there");
	ok(GPC_POOL(find(c, 1)) == RAM && GPC_POOL(find(c, 2)) == RAM, "both are there");
	must(gpc_release(c, x, 2));
	nothing_left(c, 2, 8, "two targets");
	cache_end(c);
}

static void succeed(gpc *c)
{
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
}

/* The move of a key that is live again hangs below its parent, for a successor too. */
static void test_dropped_parent(bool succeeds)
{
	gpc *c = cache_new(3, 8);
	struct gpc_move m[2];
	gpc_block x[2], parent;
	gpc_key k[3];

	chain_keys(c, 1, 2, k);
	chain_make(c, VRAM, 1, 2, NULL);
	must(gpc_reserve(c, VRAM, 2, x, GPC_OPTIONS(gpc_reserve_options, .moves = m), 0, 1000));
	ok(key_is(m[1].key, k[2]), "the leaf is on its way");
	must(gpc_publish(c, k + 1, k + 2, x, 1, NULL, 0, -1));
	if (succeeds)
		succeed(c);
	parent = find(c, 1);
	is_int(gpc_drop(c, &parent, 1, NULL, 0, -1), 1, "its parent is dropped");
	is_int(gpc_publish(c, k, k + 1, x + 1, 1, NULL, 0, -1), 1, "and computed anew");
	is_int(commit_one(c, &m[1]), -ESTALE, "the old bytes do not come back");
	is_int(find(c, 2), -1, "they are nowhere");
	must(gpc_release(c, x, 2));
	nothing_left(c, 3, 8, "a parent dropped");
	cache_end(c);
}

/* The store that takes it out; then the writer dies. */
static void evict_by_hand(gpc *c, gpc_block b)
{
	struct shm_record *r;
	uint8_t *index = NULL;

	must(segment_map_writer(&c->seg, &index));
	r = SEG_AT(index, c->seg.at.record, struct shm_record, pool_record(&c->seg, b));
	r->owner = SHM_NO_PEER;
	store_release(&r->word, WORD(DYING, WORD_GEN(r->word)));
	segment_unmap_writer(&c->seg, index);
}

/* Below a key that a writer evicted and died, a detached key keeps what hangs below it until its
 * own commit. */
static void test_parent_evicted(bool anew)
{
	gpc *c = cache_new(3, 8);
	struct gpc_move m[2];
	gpc_block b[3], x[2], r;
	gpc_key k[2];

	chain_keys(c, 1, 1, k);
	chain_make(c, VRAM, 1, 3, b);
	begin(c, &b[2], 1, m);
	must(gpc_commit(c, m, 1, NULL, 0, -1));
	r = find(c, 3);
	is_int(gpc_reserve(c, VRAM, 2, x, GPC_OPTIONS(gpc_reserve_options, .moves = m), 0, 1000), 2,
	       "one free, one victim");
	must(gpc_writer_drop(c));
	evict_by_hand(c, b[0]);
	uncounted = 1;
	must(gpc_writer_take(c, 0, 0));
	ok(find(c, 1) == -1 && find(c, 2) == -1, "two are gone, and one of them may come back");
	is_int(find(c, 3), r, "what hung there waits for it");
	clean(c, "below a key that is gone");
	if (anew)
		is_int(gpc_publish(c, k, k + 1, x, 1, NULL, 0, -1), 1, "computed anew");
	is_int(commit_one(c, &m[1]), anew ? 0 : -ENOENT, "the commit is told");
	is_int(find(c, 3), anew ? r : -1, "it stays if there is a chain");
	must(gpc_release(c, x, 2));
	nothing_left(c, 3, 8, "a parent evicted");
	uncounted = 0;
	cache_end(c);
}

/* Two blocks of a chain detached and computed anew, one below the other: whichever copy is given
 * up first, what hung below stays (prefix --seed 7001 --sequence 3486). */
static void test_both_anew(bool parent_first)
{
	gpc *c = cache_new(3, 8);
	struct gpc_move m[3];
	gpc_block b[3], x[3];
	gpc_key k[4];

	chain_keys(c, 1, 3, k);
	chain_make(c, VRAM, 1, 3, b);
	begin(c, &b[2], 1, m);
	is_int(commit_one(c, m), 0, "the last of a chain is in RAM");
	must(gpc_reserve(c, VRAM, 3, x, GPC_OPTIONS(gpc_reserve_options, .moves = m), 0, 1000));
	ok(key_is(m[1].key, k[2]) && key_is(m[2].key, k[1]), "the others are on their way");
	is_int(gpc_publish(c, k, k + 1, x, 2, NULL, 0, -1), 2, "and computed anew");
	must(gpc_commit(c, &m[parent_first ? 2 : 1], 1, NULL, GPC_CANCEL, -1));
	ok(find(c, 3) >= 0, "the last is there, one copy given up");
	must(gpc_commit(c, &m[parent_first ? 1 : 2], 1, NULL, GPC_CANCEL, -1));
	ok(find(c, 3) >= 0, "and both");
	clean(c, "both anew");
	must(gpc_release(c, x, 3));
	nothing_left(c, 3, 8, "both anew");
	cache_end(c);
}

static void tests(void)
{
	test_both_anew(false);
	test_both_anew(true);
	test_dropped_parent(false);
	if (!cache_thread)
		test_dropped_parent(true);
	test_published_anew(false);
	test_published_anew(true);
	test_given_up();
	test_dropped_child();
	test_order();
	test_returned();
	test_published_first();
	test_two_targets();
	if (cache_thread) /* which takes the seat before the test's own hand */
		return;
	test_parent_evicted(false);
	test_parent_evicted(true);
}

static int body(void)
{
	cache_both(tests);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
