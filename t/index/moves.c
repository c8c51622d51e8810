/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to a move between its two halves: the source is dropped, published anew,
 * used; the parent goes or is on its way itself; the wrong peer commits.
 * Tests: lib/index/writer/move.c lib/index/writer/move_bind.c */
#include "t/lib/tiers.h"

/* ---- the source goes ---- */

static void test_dropped_source(void)
{
	gpc *c = cache_new(4, 4);
	struct gpc_move m[2];
	gpc_block b[2];

	chain_make(c, VRAM, 1, 2, b);
	begin(c, (gpc_block[2]){ b[1], b[0] }, 2, m);
	is_int(gpc_drop(c, &b[1], 1, NULL, 0, -1), 1, "a source is dropped");
	is_int(commit_one(c, &m[0]), -ESTALE, "its move is refused");
	is_int(find(c, 2), -1, "the key is gone");
	is_int(commit_one(c, &m[1]), 0, "the other is not");
	is_int(find(c, 1), m[1].to, "and has moved");
	is_int(commit_one(c, &m[0]), -ESTALE, "refused once is refused for ever");
	nothing_left(c, 4, 4, "a dropped source");
	cache_end(c);
}

/* What is being copied is not evicted, though it is the oldest. */
static void test_pinned_source(void)
{
	gpc *c = cache_new(2, 4);
	struct gpc_move m;
	gpc_block b[2], out[2];

	chain_make(c, VRAM, 1, 1, &b[0]);
	chain_make(c, VRAM, 2, 1, &b[1]);
	begin(c, b, 1, &m);
	is_int(gpc_evict(c, VRAM, 2, out, 0, 60000), 1, "one of two can be evicted");
	is_int(out[0], b[1], "the one that no move reads");
	is_int(commit_one(c, &m), 0, "the move ends well");
	is_int(find(c, 1), m.to, "and its key is in RAM");
	nothing_left(c, 2, 4, "a pinned source");
	cache_end(c);
}

/* The source's block is somebody else's by the time of the commit. */
static void test_reused_source(void)
{
	gpc *c = cache_new(1, 4);
	struct gpc_move m;
	gpc_block b, again;

	chain_make(c, VRAM, 1, 1, &b);
	begin(c, &b, 1, &m);
	must(gpc_drop(c, &b, 1, NULL, 0, -1));
	chain_make(c, VRAM, 2, 1, &again);
	is_int(again, b, "the block has another key");
	is_int(commit_one(c, &m), -ESTALE, "which is not moved");
	is_int(find(c, 2), b, "it stays");
	is_int(find(c, 1), -1, "the old one does not come back");
	is_int(gpc_evict(c, VRAM, 1, &again, 0, 60000), 1, "nothing holds it there");
	nothing_left(c, 1, 4, "a source with another key");
	cache_end(c);
}

/* The same key in the same block: another life, whose bytes were not copied. */
static void test_reborn_source(void)
{
	gpc *c = cache_new(1, 4);
	struct gpc_move m;
	gpc_block b, again;

	chain_make(c, VRAM, 1, 1, &b);
	begin(c, &b, 1, &m);
	must(gpc_drop(c, &b, 1, NULL, 0, -1));
	settle(c);
	chain_make(c, VRAM, 1, 1, &again);
	is_int(again, b, "a dropped key is computed anew, in its old block");
	is_int(commit_one(c, &m), -ESTALE, "which is not moved, for all that");
	is_int(find(c, 1), b, "it stays");
	nothing_left(c, 1, 4, "a source reborn");
	cache_end(c);
}

/* A RAM block on its way up is computed anew meanwhile. */
static void test_published_meanwhile(void)
{
	gpc *c = cache_new(4, 4);
	gpc_block r[2], b, res;
	struct gpc_move m;
	gpc_key k[3];

	chain_keys(c, 1, 2, k);
	chain_make(c, RAM, 1, 2, r);
	is_int(hold(c, 1, 1, r), 1, "referenced");
	is_int(gpc_promote(c, r, 1, VRAM, &m, 0, 60000), 1, "on its way up");
	must(gpc_reserve(c, VRAM, 1, &b, NULL, 0, 60000));
	is_int(gpc_publish(c, k, k + 1, &b, 1, GPC_OPTIONS(gpc_publish_options, .resident = &res),
			   0, -1),
	       1, "computed anew");
	is_int(res, b, "is live in its own block");
	is_int(commit_one(c, &m), -ESTALE, "the move comes too late");
	is_int(find(c, 1), b, "the new one stays");
	is_int(find(c, 2), r[1], "its child as well");
	is_int(gpc_release(c, &r[0], 1), 0, "the reference did not move");
	must(gpc_release(c, &b, 1));
	nothing_left(c, 4, 4, "published meanwhile");
	cache_end(c);
}

static void test_pool_gone(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_move m;
	gpc_block b;
	gpc *c;

	cfg.max_blocks = 256;
	c = cache_make(&cfg, NULL);
	pool_new(c, GPC_VRAM, 4, 0, 0);
	pool_new(c, GPC_RAM, 4, 0, 0);
	chain_make(c, VRAM, 1, 1, &b);
	begin(c, &b, 1, &m);
	is_int(gpc_pool_clear(c, RAM, 0, GPC_REMOVE, 0), 1, "the target's pool is removed");
	is_int(commit_one(c, &m), -ESTALE, "the move is refused");
	is_int(find(c, 1), b, "the source stays");
	is_int(gpc_pool_clear(c, RAM, 0, GPC_REMOVE, 1000) == -ENOENT ||
		       gpc_pool_get(c, RAM, &(struct gpc_pool){ .size = 8 }) == -ENOENT,
	       1, "the pool is gone");
	is_int(gpc_evict(c, VRAM, 1, &b, 0, 60000), 1, "nothing holds the source");
	clean(c, "a pool that went");
	cache_end(c);
}

/* ---- used meanwhile ---- */

/* Used after its move began: in RAM it is as recent as it was. */
static void test_recency(void)
{
	gpc *c = cache_new(4, 3);
	struct gpc_move m;
	gpc_block a, b, out;

	chain_make(c, VRAM, 1, 1, &a);
	chain_make(c, VRAM, 2, 1, &b);
	begin(c, &a, 1, &m);
	touch(c, 2);
	is_int(touch(c, 1), a, "used while it moves");
	must(gpc_commit(c, &m, 1, NULL, 0, -1));
	begin(c, &b, 1, &m);
	must(gpc_commit(c, &m, 1, NULL, 0, -1));
	is_int(gpc_evict(c, RAM, 1, &out, 0, 60000), 1, "one goes");
	is_int(find(c, 2), -1, "the one that was used before");
	ok(find(c, 1) >= 0, "the other stays");
	nothing_left(c, 4, 3, "used meanwhile");

	/* the same on the way up, and for one that was released meanwhile */
	chain_make(c, RAM, 3, 1, &b);
	is_int(hold(c, 1, 1, &a), 1, "held");
	is_int(gpc_promote(c, &a, 1, VRAM, &m, 0, 60000), 1, "on its way up");
	chain_make(c, VRAM, 4, 1, &b);
	is_int(gpc_release(c, &a, 1), 0, "released: used now");
	must(gpc_commit(c, &m, 1, NULL, 0, -1));
	is_int(gpc_evict(c, VRAM, 1, &out, 0, 60000), 1, "one goes");
	is_int(find(c, 4), -1, "the one that was used before");
	is_int(find(c, 1), m.to, "the other stays");
	nothing_left(c, 4, 3, "released meanwhile");
	cache_end(c);
}

/* What moves cannot be had: neither the source nor the target. */
static void test_avail(void)
{
	gpc *c = cache_new(4, 4);
	struct gpc_move m[4];
	gpc_block b[4], x;

	chain_make(c, VRAM, 1, 4, b);
	begin(c, (gpc_block[3]){ b[3], b[2], b[1] }, 3, m);
	is_int(gpc_pool_available(c, RAM), 1, "three targets are taken");
	is_int(gpc_reserve(c, RAM, 1, &x, NULL, 0, 60000), 1, "one block can be had");
	refused(gpc_reserve(c, RAM, 1, &x, NULL, 0, 1000), ENOSPC, "and no more");
	must(gpc_release(c, &x, 1));
	must(gpc_commit(c, m, 3, NULL, 0, -1));
	settle(c);
	done(c);
	is_int(gpc_pool_available(c, RAM), 4, "all of RAM, when the moves are over");
	nothing_left(c, 4, 4, "avail");
	cache_end(c);
}

/* A target is a reservation: it may simply go back. */
static void test_returned_target(void)
{
	gpc *c = cache_new(4, 4);
	struct gpc_move m;
	gpc_block b, res = -77;
	gpc_key k = key_of(c, 9);

	chain_make(c, VRAM, 1, 1, &b);
	begin(c, &b, 1, &m);
	is_int(gpc_publish(c, NULL, &k, &m.to, 1,
			   GPC_OPTIONS(gpc_publish_options, .resident = &res), 0, -1),
	       0, "a target is for its move");
	is_int(res, -EPERM, "and nothing else");
	is_int(gpc_release(c, &m.to, 1), 0, "it goes back");
	done(c);
	is_int(commit_one(c, &m), -ESTALE, "so the move is over");
	is_int(find(c, 1), b, "the source is where it was");
	begin(c, &b, 1, &m);
	is_int(commit_one(c, &m), 0, "and may move again");
	refused(gpc_release(c, &m.to, 1), EPERM, "a target that is live is nobody's");
	nothing_left(c, 4, 4, "a target returned");
	cache_end(c);
}

/* ---- a chain that goes down and comes up again ---- */

/* 1 in VRAM, 2 in RAM, 3 in VRAM again, 4 beside them; 1 is the least recent. */
static gpc *hairpin(uint32_t ram)
{
	gpc *c = cache_new(3, ram);
	struct gpc_move m[2];
	gpc_block b[3];

	chain_make(c, VRAM, 1, 3, b);
	begin(c, (gpc_block[2]){ b[2], b[1] }, 2, m);
	must(gpc_commit(c, m, 2, NULL, 0, -1));
	must(gpc_lookup(c, 0, (gpc_key[1]){ key_of(c, 3) }, 1, b, GPC_REF));
	must(gpc_promote(c, b, 1, VRAM, m, 0, 60000));
	must(gpc_commit(c, m, 1, NULL, 0, -1));
	must(gpc_release(c, &m[0].to, 1));
	settle(c);
	chain_make(c, VRAM, 4, 1, NULL);
	touch(c, 3);
	touch(c, 4);
	if (GPC_POOL(find(c, 1)) || !GPC_POOL(find(c, 2)) || GPC_POOL(find(c, 3)))
		bail("no such chain");
	return c;
}

/* All of VRAM can be had, again and again. */
static void vram_is_sound(gpc *c, int ram, const char *when)
{
	gpc_block b[3];
	int i, n = 0;

	for (i = 0; i < 4; i++) {
		n += gpc_reserve(c, VRAM, 3, b, NULL, 0, 1000) == 3;
		must(gpc_release(c, b, 3));
		chain_make(c, VRAM, 100 + (uint64_t)i * 10, 3, NULL);
	}
	is_int(n, 4, "%s: VRAM can be had", when);
	must(gpc_pool_clear(c, -1, 0, 0, 60000));
	nothing_left(c, 3, ram, when);
	cache_end(c);
}

static void test_hairpin(void)
{
	gpc *c = hairpin(4);
	gpc_block b[3], out;
	struct gpc_move m[3];

	is_int(gpc_evict(c, VRAM, 1, &out, 0, 60000), 1, "one goes");
	ok(find(c, 3) == -1 || (find(c, 2) >= 0 && find(c, 1) >= 0), "no child without parents");
	vram_is_sound(c, 4, "one evicted");

	c = hairpin(4);
	is_int(gpc_evict(c, VRAM, 2, b, 0, 60000), 2, "two go");
	ok(b[0] != b[1], "two blocks");
	vram_is_sound(c, 4, "two evicted");

	c = hairpin(4);
	is_int(gpc_reserve(c, VRAM, 3, b, NULL, 0, 60000), 3, "all of VRAM");
	is_int(stats_of(c, -1).live, 0, "nothing is left");
	must(gpc_release(c, b, 3));
	vram_is_sound(c, 4, "dropped at once");

	c = hairpin(4);
	is_int(gpc_demote(c, VRAM, RAM, NULL, 3, m, 0, 60000), 3, "all of VRAM");
	is_int(gpc_commit(c, m, 3, NULL, 0, -1), 3, "goes to RAM");
	is_int(GPC_POOL(find(c, 1)) + GPC_POOL(find(c, 2)) + GPC_POOL(find(c, 3)), 3, "all");
	vram_is_sound(c, 4, "demoted at once");

	c = hairpin(2);
	chain_make(c, RAM, 20, 1, NULL);
	is_int(gpc_demote(c, VRAM, RAM, NULL, 3, m, 0, 60000), 1, "RAM can drop one");
	must(gpc_commit(c, m, 1, NULL, 0, -1));
	is_int(gpc_reserve(c, VRAM, 3, b, NULL, 0, 60000), 3, "all of VRAM, RAM is full");
	must(gpc_release(c, b, 3));
	vram_is_sound(c, 2, "some saved, some dropped");
}

/* ---- refusals ---- */

static void test_wrong_moves(void)
{
	gpc *c = cache_new(4, 4), *d = cache_attach(0, 0);
	struct gpc_move m, forged, none = { .from = -1, .to = -1 };
	gpc_block b, free_one = GPC_BLOCK(RAM, 3);
	int results[3] = { 77, 77, 77 };

	chain_make(c, VRAM, 1, 1, &b);
	begin(c, &b, 1, &m);
	serve_begin(c);
	is_int(gpc_commit(d, &m, 1, results, 0, -1), 0, "another peer commits");
	is_int(results[0], -ESTALE, "what is not its own");
	is_int(gpc_commit(d, &m, 1, results, GPC_CANCEL, -1), 0, "or cancels it");
	is_int(results[0], -ESTALE, "in vain");
	serve_end();
	is_int(stats_of(c, info_of(d).peer).refs, 0, "and has nothing of it");
	forged = m;
	forged.op++;
	is_int(commit_one(c, &forged), -ESTALE, "another operation's number");
	forged = m;
	forged.to = free_one;
	is_int(commit_one(c, &forged), -ESTALE, "a target that was never given");
	forged.to = GPC_BLOCK(RAM, 200);
	is_int(commit_one(c, &forged), -EINVAL, "a target that does not exist");
	is_int(gpc_commit(c, (struct gpc_move[3]){ none, m, none }, 3, results, 0, -1), 1,
	       "-1 has nothing to commit");
	ok(!results[0] && !results[1] && !results[2], "and is no fault");
	is_int(find(c, 1), m.to, "the good one has moved");
	is_int(gpc_commit(c, NULL, 0, NULL, 0, -1), 0, "no moves");
	refused(gpc_commit(c, NULL, 1, NULL, 0, -1), EINVAL, "no list");
	refused(gpc_commit(c, &m, 1, NULL, GPC_COPY, -1), EINVAL, "a flag of others");
	refused(gpc_commit(c, &m, 4097, NULL, 0, -1), EINVAL, "too many");
	nothing_left(c, 4, 4, "wrong moves");
	must(gpc_close(d));
	cache_end(c);
}

static void test_refused_begins(void)
{
	gpc *c = cache_new(4, 4), *d = cache_attach(0, 0);
	struct gpc_move m = { .to = -7 }, n;
	gpc_block b, r;

	chain_make(c, VRAM, 1, 1, &b);
	chain_make(c, RAM, 2, 1, &r);
	refused(gpc_promote(c, &r, 1, VRAM, &m, 0, 1000), EPERM, "without a reference");
	must(gpc_acquire(d, 0, (gpc_key[1]){ key_of(d, 2) }, 1, &r, 0));
	refused(gpc_promote(c, &r, 1, VRAM, &m, 0, 1000), EPERM, "with another peer's");
	is_int(hold(c, 2, 1, &r), 1, "with one's own");
	is_int(gpc_promote(c, &r, 1, VRAM, &m, 0, 60000), 1, "it goes");
	serve_begin(c);
	refused(gpc_promote(d, &r, 1, VRAM, &n, 0, 1000), ENOSPC, "once");
	serve_end();
	is_int(gpc_commit(c, &m, 1, NULL, 0, -1), 1, "up");
	is_int(find(c, 2), m.to, "it is");
	must(gpc_release(c, &m.to, 1));
	refused(gpc_promote(c, &m.to, 1, VRAM, &n, 0, 1000), EINVAL, "it is there already");
	refused(gpc_promote(c, &r, 1, 9, &n, 0, 1000), ENOENT, "no such pool");
	refused(gpc_promote(c, &r, 1, 99, &n, 0, 1000), EINVAL, "no such number");
	refused(gpc_promote(c, &r, 1, -1, &n, 0, 1000), EINVAL, "no number at all");
	refused(gpc_promote(c, NULL, 1, VRAM, &n, 0, 1000), EINVAL, "no blocks");
	refused(gpc_promote(c, &r, 1, VRAM, NULL, 0, 1000), EINVAL, "no room for moves");
	is_int(gpc_promote(c, NULL, 0, VRAM, NULL, 0, 1000), 0, "nothing to promote");
	refused(gpc_demote(c, VRAM, VRAM, &b, 1, &n, 0, 1000), EINVAL, "to itself");
	refused(gpc_demote(c, RAM, -1, NULL, 1, &n, 0, 1000), ENOENT, "RAM has nothing below it");
	refused(gpc_demote(c, VRAM, -5, &b, 1, &n, 0, 1000), EINVAL, "no pool");
	refused(gpc_demote(c, VRAM, 9, &b, 1, &n, 0, 1000), ENOENT, "a pool that is not there");
	refused(gpc_demote(c, 9, RAM, &b, 1, &n, 0, 1000), EINVAL, "a source pool that is not");
	refused(gpc_demote(c, 99, RAM, &b, 1, &n, 0, 1000), EINVAL, "a source out of range");
	refused(gpc_demote(c, VRAM, RAM, &b, 1, NULL, 0, 1000), EINVAL, "no room for moves");
	refused(gpc_demote(c, VRAM, RAM, &b, 1, &n, GPC_COPY, 1000), EINVAL,
		"kept within one space");
	refused(gpc_demote(c, VRAM, RAM, &b, 1, &n, GPC_TAKE, 1000), EINVAL, "a flag of others");
	must(gpc_close(d));
	must(gpc_pool_clear(c, -1, 0, 0, 60000));
	settle(c);
	refused(gpc_demote(c, VRAM, -1, NULL, 1, &n, 0, 1000), ENOSPC, "no leaf to demote");
	nothing_left(c, 4, 4, "refusals");
	cache_end(c);
}

/* To a space whose pool wants parents, where the parent is not. */
static void test_parent_not_there(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_move m[2];
	gpc_block b[2], x;
	gpc_key k;
	gpc *c;

	cfg.max_blocks = 256;
	c = cache_make(&cfg, NULL);
	pool_new(c, GPC_VRAM, 4, 0, 0);
	pool_new(c, GPC_RAM, 4, 3, 0);
	chain_make(c, VRAM, 1, 2, b);
	begin(c, &b[1], 1, m);
	is_int(commit_one(c, m), -ENOENT, "its parent does not live there");
	is_int(find(c, 2), b[1], "the source stays");
	begin(c, (gpc_block[2]){ b[1], b[0] }, 2, m);
	k = key_of(c, 1);
	must(gpc_reserve(c, RAM, 1, &x, NULL, 0, 60000));
	is_int(gpc_publish(c, NULL, &k, &x, 1, NULL, 0, -1), 1, "the parent comes by itself");
	is_int(gpc_commit(c, m, 2, NULL, 0, -1), 1, "then the child may");
	is_int(gpc_lookup(c, GPC_SPACE(3), &m[0].key, 1, b, 0), 1, "it is there");
	is_int(find(c, 1), m[1].from, "the parent's source stays: it was not moved");
	is_int(gpc_lookup(c, GPC_SPACE(0), &m[0].key, 1, b, 0), 0, "the child's is gone");
	must(gpc_release(c, &x, 1));
	nothing_left(c, 4, 4, "parents elsewhere");
	cache_end(c);
}

static void tests(void)
{
	test_dropped_source();
	test_pinned_source();
	test_reused_source();
	test_reborn_source();
	test_published_meanwhile();
	test_pool_gone();
	test_recency();
	test_avail();
	test_returned_target();
	test_hairpin();
	test_wrong_moves();
	test_refused_begins();
	test_parent_not_there();
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
