/* SPDX-License-Identifier: Apache-2.0 */
/* Computed before a drop, published behind it: refused, wherever on its way up something was dropped,
 * by whichever writer, and not when it has nothing to do with that.  The ring of dropped keys, its
 * floor and its readers; drops that follow a key to where it has moved, or take it everywhere.
 * Tests: lib/index/request/dropped.c lib/look/check_dropped.c lib/index/table/dropped.c
 *   lib/index/writer/drop.c lib/index/segment/dropped.c lib/index/writer/command.c */
#include "t/lib/cache.h"

#include "index/peer/handle.h"
#include "index/segment/dropped.h"

enum { VRAM = 0, RAM = 1, OTHER = 2, LOOSE = 3, MIXED = 4 };

static gpc *c, *d; /* who writes; who holds */

static void begin(void)
{
	struct gpc_config cfg = cache_config(64, 64);

	cfg.max_blocks = 1024;
	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	if (pool_new(c, GPC_VRAM, 64, 1, 0) != OTHER ||
	    pool_new(c, GPC_RAM, 64, 2, GPC_POOL_UNCHAINED) != LOOSE ||
	    pool_new(c, GPC_VRAM, 64, 2, 0) != MIXED)
		bail("other numbers of pools");
}

static void end(const char *what)
{
	clean(c, what);
	must(gpc_close(d));
	cache_end(c);
}

/* Key n below key `parent`, or the first of its prompt, by a request that began then; what became
 * of it. */
static int store_since(int pool, uint64_t parent, uint64_t n, uint64_t since, gpc_block *ret)
{
	gpc_key p = key_of(c, parent), k = key_of(c, n);
	gpc_block b = GPC_NONE, got = GPC_NONE;
	struct gpc_publish_options o = { .size = sizeof(o), .resident = &got, .since = since };

	must(gpc_reserve(c, pool, 1, &b, NULL, 0, 10000));
	must(gpc_publish(c, parent ? &p : NULL, &k, &b, 1, &o, 0, 10000));
	if (ret)
		*ret = got;
	must(gpc_release(c, &b, 1));
	return got < 0 ? got : got == b;
}

static gpc_block store(int pool, uint64_t parent, uint64_t n)
{
	gpc_block b;

	if (store_since(pool, parent, n, 0, &b) != 1)
		bail("key %d is not stored", (int)n);
	return b;
}

static int drop(gpc_block b, uint32_t flags)
{
	return must(gpc_drop(c, &b, 1, NULL, flags, 10000));
}

/* It is nowhere, and was not dropped. */
static void evict(int pool, uint64_t n)
{
	gpc_block b = find(c, n);
	gpc_key k = key_of(c, n);

	is_int(must(gpc_reclaim(c, &k, &b, 1, NULL, 0, 10000)), 1, "key %d is evicted", (int)n);
	must(gpc_release(c, &b, 1));
	(void)pool;
}

static void next_writer(void)
{
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	while (load_acquire(&seg_state(&c->seg)->recovering))
		must(gpc_writer_serve(c, 1));
}

/* ---- what is refused ---- */

static void test_parent(void)
{
	uint64_t since, later;

	begin();
	since = gpc_drops(c);
	ok(since & 1, "gpc_drops() is no number that stands for none");
	drop(store(VRAM, 0, 1), 0);
	later = gpc_drops(c);
	ok(later > since, "it grows with a drop");
	store(VRAM, 0, 1);
	is_int(store_since(VRAM, 1, 2, since, NULL), -ESTALE, "below a key that was dropped since");
	ok(strstr(gpc_last_error(), "dropped since"), "and the sentence says so: %s",
	   gpc_last_error());
	is_int(store_since(VRAM, 1, 2, later, NULL), 1,
	       "not by a request that came behind the drop");
	is_int(store_since(VRAM, 0, 1, since, NULL), -ESTALE, "its own key, though that is live");
	is_int(store_since(VRAM, 0, 9, since, NULL), 1, "another prompt");
	is_int(store_since(VRAM, 2, 3, since, NULL), -ESTALE, "two below");
	is_int(store_since(VRAM, 2, 3, 0, NULL), 1, "since 0: not asked");
	end("parents");
}

/* R has read bad 1 and 2; 2 is evicted, 1 dropped, and S computes both again. */
static void test_ancestor(void)
{
	uint64_t since, i;
	gpc_block top;

	begin();
	top = store(VRAM, 0, 1);
	store(VRAM, 1, 2);
	since = gpc_drops(c);
	evict(VRAM, 2);
	drop(top, 0);
	for (i = 0; i < 8; i++)
		store(VRAM, i, i + 1);
	is_int(store_since(VRAM, 8, 9, since, NULL), -ESTALE, "eight below what was dropped");
	is_int(store_since(VRAM, 2, 20, since, NULL), -ESTALE, "two below, the first time");
	is_int(store_since(VRAM, 8, 9, gpc_drops(c), NULL), 1, "the same by a later request");
	end("ancestors");
}

/* A block that is older than the drop hangs on nothing that was dropped. */
static void test_older(void)
{
	uint64_t since, i;

	begin();
	for (i = 0; i < 3; i++)
		store(VRAM, i, i + 1);
	next_writer();
	for (i = 3; i < 6; i++)
		store(VRAM, i, i + 1);
	since = gpc_drops(c);
	drop(store(VRAM, 0, 30), 0);
	for (i = 6; i < 9; i++)
		is_int(store_since(VRAM, i, i + 1, since, NULL), 1, "key %d goes on", (int)i + 1);
	next_writer();
	for (i = 9; i < 12; i++)
		is_int(store_since(VRAM, i, i + 1, since, NULL), 1, "and behind another writer: %d",
		       (int)i + 1);
	end("older blocks");
}

/* One that was refused is no parent of the next. */
static void test_in_a_row(void)
{
	gpc_key k[CACHE_KEYS + 1];
	gpc_block b[6], got[6];
	struct gpc_publish_options o = { .size = sizeof(o), .resident = got };
	uint32_t i, stale = 0;

	begin();
	o.since = gpc_drops(c);
	drop(store(VRAM, 0, 1), 0);
	store(VRAM, 0, 1);
	chain_keys(c, 1, 7, k);
	must(gpc_reserve(c, VRAM, 6, b, NULL, 0, 10000));
	is_int(gpc_publish(c, k + 1, k + 2, b, 6, &o, 0, 10000), 0,
	       "a prompt from the second block on");
	for (i = 0; i < 6; i++)
		stale += got[i] == (i ? -ENOENT : -ESTALE);
	is_int(stale, 6, "the first one is stale, and the others have no parent");
	chain_keys(c, 50, 7, k);
	is_int(gpc_publish(c, k, k + 1, b, 6, &o, 0, 10000), 6, "another prompt, in one call");
	must(gpc_release(c, b, 6));
	end("rows");
}

/* A request that began between two drops, and one that began before both. */
static void test_two_requests(void)
{
	uint64_t early, late;

	begin();
	early = gpc_drops(c);
	drop(store(VRAM, 0, 1), 0);
	store(VRAM, 0, 1);
	late = gpc_drops(c);
	drop(store(VRAM, 0, 50), 0);
	is_int(store_since(VRAM, 1, 2, late, NULL), 1, "the later one goes on");
	is_int(store_since(VRAM, 2, 3, early, NULL), -ESTALE, "and says nothing for the other");
	is_int(store_since(VRAM, 2, 3, late, NULL), 1, "which says nothing for it");
	end("two requests");
}

/* Blocks without parents go by their own keys, and what may hang on anything does not go on. */
static void test_loose(void)
{
	uint64_t since;

	begin();
	since = gpc_drops(c);
	drop(store(LOOSE, 0, 1), 0);
	is_int(store_since(LOOSE, 0, 2, since, NULL), 1, "a block without a parent");
	is_int(store_since(LOOSE, 0, 1, since, NULL), -ESTALE, "but not of that key");
	is_int(store_since(LOOSE, 1, 3, since, NULL), -ESTALE,
	       "nor below it, though it is nowhere");
	is_int(store_since(LOOSE, 77, 4, since, NULL), -ESTALE,
	       "below one that is nowhere: who knows what comes before it");
	is_int(store_since(LOOSE, 77, 4, gpc_drops(c), NULL), 1,
	       "while nothing was dropped it may");
	is_int(store_since(LOOSE, 4, 5, since, NULL), -ESTALE, "nor further down");
	end("loose blocks");
}

/* Its parent in its own space was not dropped, and the request may have read the same key in another
 * one. */
static void test_other_space(void)
{
	uint64_t since, i;
	gpc_block bad;

	begin();
	bad = store(VRAM, 0, 1);
	for (i = 0; i < 4; i++)
		store(OTHER, i, i + 1);
	since = gpc_drops(c);
	drop(bad, 0);
	is_int(store_since(OTHER, 1, 20, since, NULL), -ESTALE,
	       "below the key of a block that was dropped in another space");
	is_int(store_since(OTHER, 4, 5, since, NULL), -ESTALE, "four below it, among older blocks");
	is_int(store_since(OTHER, 4, 5, gpc_drops(c), NULL), 1, "a later request goes on");
	since = gpc_drops(c);
	drop(store(OTHER, 0, 30), 0);
	is_int(store_since(OTHER, 5, 6, since, NULL), 1, "a drop of something else there: it may");
	drop(store(VRAM, 0, 31), 0);
	is_int(store_since(OTHER, 6, 7, since, NULL), 1, "and of something else elsewhere");
	next_writer();
	is_int(store_since(OTHER, 7, 8, since, NULL), 1, "the next writer knows that");
	end("other spaces");
}

/* RAM that several GPUs share has the second half of a prompt, and what comes before is in VRAM. */
static void test_behind_gap(void)
{
	uint64_t since;
	gpc_block bad;

	begin();
	bad = store(VRAM, 0, 1);
	store(LOOSE, 1, 2);
	store(LOOSE, 2, 3);
	store(LOOSE, 0, 11);
	store(LOOSE, 11, 12);
	since = gpc_drops(c);
	drop(bad, GPC_EVERYWHERE);
	is_int(store_since(LOOSE, 3, 4, since, NULL), -ESTALE,
	       "below older blocks that hang on what was dropped, and not in the tree");
	is_int(store_since(LOOSE, 12, 13, since, NULL), 1, "below those that have a root");
	store(LOOSE, 70, 71);
	store(LOOSE, 71, 72);
	since = gpc_drops(c);
	drop(store(LOOSE, 0, 30), 0);
	is_int(store_since(LOOSE, 72, 73, since, NULL), -ESTALE,
	       "below older ones whose way up has a gap");
	store(LOOSE, 80, 81);
	is_int(store_since(MIXED, 81, 82, since, NULL), -ESTALE, "or in VRAM, below younger ones");
	end("older blocks behind a gap");
}

static void test_rekey(void)
{
	struct gpc_publish_options o = { .size = sizeof(o) };
	gpc_key from, to, parent;
	gpc_block b, got = GPC_NONE;

	begin();
	o.since = gpc_drops(c);
	o.resident = &got;
	drop(store(VRAM, 0, 1), 0);
	store(VRAM, 0, 1);
	b = store(VRAM, 0, 2);
	from = key_of(c, 2);
	to = key_of(c, 3);
	parent = key_of(c, 1);
	is_int(gpc_rekey(c, &from, &parent, &to, &b, 1, &o, 0, 10000), 0,
	       "a block gets another key");
	is_int(got, -ESTALE, "but not below what was dropped since");
	o.since = 0;
	is_int(gpc_rekey(c, NULL, &parent, &to, &b, 1, &o, 0, 10000), 1,
	       "without a number that of the call counts");
	must(gpc_release(c, &b, 1));
	end("rekeys");
}

static void test_bad_numbers(void)
{
	gpc_key k;
	gpc_block b;
	struct gpc_publish_options o = { .size = sizeof(o) };

	begin();
	k = key_of(c, 1);
	must(gpc_reserve(c, VRAM, 1, &b, NULL, 0, 10000));
	o.since = gpc_drops(c) + 2;
	refused(gpc_publish(c, NULL, &k, &b, 1, &o, 0, 10000), EINVAL, "a number to come");
	refused(gpc_rekey(c, NULL, NULL, &k, &b, 1, &o, 0, 10000), EINVAL, "of a rekey, too");
	o.since = gpc_drops(c) + 1;
	refused(gpc_publish(c, NULL, &k, &b, 1, &o, 0, 10000), EINVAL, "one that is no number");
	must(gpc_release(c, &b, 1));
	end("bad numbers");
}

/* ---- the next writer ---- */

static void test_next_writer(void)
{
	uint64_t since, i;
	gpc_block top;

	begin();
	top = store(VRAM, 0, 1);
	since = gpc_drops(c);
	drop(top, 0);
	for (i = 0; i < 4; i++)
		store(VRAM, i, i + 1);
	next_writer();
	is_int(store_since(VRAM, 0, 1, since, NULL), -ESTALE, "the next writer knows the keys");
	is_int(store_since(VRAM, 4, 5, since, NULL), -ESTALE,
	       "and not that what it has found is older than the drop");
	is_int(store_since(VRAM, 4, 5, gpc_drops(c), NULL), 1, "later requests go on");
	end("takeovers");
}

/* ---- the ring ---- */

static void drop_many(uint64_t from, uint32_t n)
{
	gpc_block b[64];
	uint32_t i;

	for (i = 0; i < n; i += 64) {
		chain_make(c, VRAM, from + i, 64, b);
		drop(b[0], 0);
	}
}

static bool is_chain(const gpc_key *got, uint64_t from, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++) /* the block that was named comes last */
		if (!key_is(got[i], key_of(c, from + n - 1 - i)))
			return false;
	return true;
}

static void test_ring(void)
{
	static gpc_key got[SHM_DROPS];
	uint64_t first, second, upto = 7, third;
	gpc_key k[CACHE_KEYS + 1];

	begin();
	first = gpc_drops(c);
	is_int(dropped_since(&c->seg, first, got, NULL, SHM_DROPS, &upto), 0, "no keys yet");
	ok(upto == first, "up to now");
	drop_many(1000, 64);
	second = gpc_drops(c);
	drop_many(2000, 64);
	third = gpc_drops(c);
	is_int(dropped_since(&c->seg, first, got, NULL, SHM_DROPS, &upto), 128,
	       "the keys of two drops");
	ok(is_chain(got, 1000, 64) && is_chain(got + 64, 2000, 64) && upto == third,
	   "in their order");
	is_int(dropped_since(&c->seg, second, got, NULL, SHM_DROPS, &upto), 64, "since a number");
	ok(is_chain(got, 2000, 64) && upto == third, "those behind it");
	is_int(dropped_since(&c->seg, first, got, NULL, 100, &upto), 100,
	       "as many as there is room for");
	ok(upto == second, "of whole drops");
	refused(dropped_since(&c->seg, first, got, NULL, 63, &upto), ENOSPC,
		"no room for one drop");
	ok(upto == second, "which says nothing");
	chain_keys(c, 1060, 8, k);
	is_int(gpc_dropped(c, first, k + 1, 8), 4, "so many of eight keys were dropped");
	is_int(gpc_dropped(c, second, k + 1, 8), 0, "none since then");
	refused(gpc_dropped(c, 0, k + 1, 8), EINVAL, "since 0");
	ok(dropped_none(&c->seg, third) && !dropped_none(&c->seg, second), "nothing came since");
	end("the ring");
}

static void test_floor(void)
{
	static gpc_key got[SHM_DROPS];
	uint64_t first, second, upto;
	uint32_t i;

	begin();
	first = gpc_drops(c);
	drop_many(1000, 64);
	second = gpc_drops(c);
	for (i = 0; i < SHM_DROPS; i += 64)
		drop_many(2000, 64);
	refused(dropped_since(&c->seg, first, got, NULL, SHM_DROPS, &upto), ESTALE,
		"keys are there no more");
	refused(gpc_dropped(c, first, got, 1), ESTALE, "by key as well");
	is_int(dropped_since(&c->seg, second, got, NULL, SHM_DROPS, &upto), SHM_DROPS,
	       "and the last 65,536 are");
	store(VRAM, 0, 1);
	is_int(store_since(VRAM, 1, 2, first, NULL), -ESTALE,
	       "who has looked before them is refused");
	is_int(store_since(VRAM, 1, 2, second, NULL), 1, "who has not, goes on");
	is_int(store_since(VRAM, 0, 2063, second, NULL), -ESTALE, "a key of the ring is found");
	next_writer();
	is_int(store_since(VRAM, 1, 3, first, NULL), -ESTALE, "the next writer has the floor");
	is_int(store_since(VRAM, 1, 3, second, NULL), 1, "and the same numbers");
	end("the floor");
}

/* ---- what goes ---- */

/* gpc_check() of a ring with one wrong word. */
static void test_forged(uint64_t at, size_t field, uint64_t to, const char *what)
{
	uint8_t *index = NULL;
	uint64_t *word, was;

	begin();
	drop_many(1000, 128);
	must(segment_map_writer(&c->seg, &index));
	word = (uint64_t *)(index + at + field);
	was = *word;
	*word = to;
	is_int(gpc_check(c, NULL, NULL), 1, "%s is a violation", what);
	*word = was;
	segment_unmap_writer(&c->seg, index);
	end(what);
}

static void test_check(void)
{
	uint64_t state, ring;

	begin();
	state = c->seg.at.state;
	ring = c->seg.at.drop + 3 * sizeof(struct shm_drop);
	end("an empty ring");
	test_forged(state, offsetof(struct shm_state, drops_floor), 1, "a floor without an end");
	test_forged(ring, offsetof(struct shm_drop, number), 2, "an even number");
	test_forged(ring, offsetof(struct shm_drop, number), 99, "a number to come");
	test_forged(ring + 64 * sizeof(struct shm_drop), offsetof(struct shm_drop, number), 1,
		    "a number that falls");
	test_forged(ring, offsetof(struct shm_drop, key) + 8, UINT64_MAX, "a root key");
	test_forged(ring, offsetof(struct shm_drop, command), UINT64_MAX, "a seat that is none");
}

static gpc_block in_space(uint32_t space, uint64_t n)
{
	gpc_key k = key_of(c, n);
	gpc_block b = GPC_NONE;

	must(gpc_lookup(c, GPC_SPACE(space), &k, 1, &b, GPC_QUIET));
	return b;
}

static gpc_block hold(uint64_t n)
{
	gpc_key k = key_of(c, n);
	gpc_block b = GPC_NONE;

	must(gpc_lookup(d, 0, &k, 1, &b, GPC_REF | GPC_QUIET));
	return b;
}

/* Key 1 moves from `b`, which is held; before the grace period of that is over, or behind it. */
static void move_to(int to, gpc_block b, bool late)
{
	int section = late ? 0 : must(gpc_section_enter(d));
	struct gpc_move m;

	must(gpc_demote(c, VRAM, to, &b, 1, &m, 0, 10000));
	is_int(gpc_commit(c, &m, 1, NULL, 0, 10000), 1, "a key moves to pool %d", to);
	must(gpc_writer_serve(c, 5));
	is_int(WORD_STATE(seg_record(&c->seg, (uint32_t)b)->word), late ? DYING : LIVE,
	       "where it was is %s", late ? "DYING" : "LIVE");
	if (!late)
		must(gpc_section_leave(d, section));
}

static void test_moved(bool late)
{
	gpc_block b;

	begin();
	store(VRAM, 0, 1);
	b = hold(1);
	move_to(RAM, b, late);
	store(VRAM, 1, 2);
	is_int(drop(b, 0), 1, "it is dropped by the block that is held");
	is_int(find(c, 1), GPC_NONE, "and so is its target");
	is_int(find(c, 2), GPC_NONE, "with what hangs on that");
	is_int(drop(b, 0), 0, "once");
	must(gpc_release(d, &b, 1));
	end("moved blocks");
}

/* Into another space: a move, whose source goes when it can. */
static void test_left(bool late)
{
	gpc_block held;

	begin();
	store(VRAM, 0, 1);
	held = hold(1);
	move_to(LOOSE, held, late);
	is_int(drop(held, 0), 1, "it is dropped");
	is_int(find(c, 1), GPC_NONE, "and its target in the other space");
	must(gpc_release(d, &held, 1));
	end("blocks that left");
}

static void test_everywhere(void)
{
	gpc_block b, held;

	begin();
	b = store(VRAM, 0, 1);
	store(VRAM, 1, 2);
	store(OTHER, 0, 1);
	store(OTHER, 1, 2);
	store(OTHER, 2, 3);
	store(LOOSE, 3, 4);
	store(LOOSE, 77, 2);
	store(LOOSE, 2, 5);
	store(LOOSE, 0, 9);
	is_int(drop(b, 0), 1, "a block alone");
	ok(in_space(0, 2) < 0 && in_space(1, 2) >= 0 && in_space(2, 2) >= 0,
	   "others of its key stay");
	b = store(VRAM, 0, 1);
	held = hold(1);
	is_int(drop(b, GPC_EVERYWHERE), 1, "everywhere");
	is_int(in_space(0, 1), GPC_NONE, "it goes");
	is_int(in_space(1, 1), GPC_NONE, "in another space, too");
	is_int(in_space(1, 3), GPC_NONE, "with what hangs on it");
	is_int(in_space(2, 2), GPC_NONE, "and what follows it elsewhere, without its parent there");
	is_int(in_space(2, 5), GPC_NONE, "with what hangs on that");
	ok(in_space(2, 9) >= 0 && in_space(2, 4) >= 0, "and nothing else: not behind a gap");
	store(OTHER, 0, 1);
	is_int(drop(held, 0), 0, "the block that is held is not live");
	is_int(drop(held, GPC_EVERYWHERE), 1, "and its key is, elsewhere");
	is_int(in_space(1, 1), GPC_NONE, "no more");
	must(gpc_release(d, &held, 1));
	end("everywhere");
}

/* R has read key 1, which is evicted; who holds its block still finds the bytes bad, and S computes it
 * again. */
static void test_nowhere(void)
{
	uint64_t since, drops;
	gpc_block held, moved;

	begin();
	store(VRAM, 0, 1);
	held = hold(1);
	must(gpc_pool_clear(c, VRAM, 0, 0, 10000));
	since = gpc_drops(c);
	is_int(drop(held, 0), 0, "a block whose key is nowhere");
	ok(gpc_drops(c) == since, "which is no drop");
	is_int(drop(held, GPC_EVERYWHERE), 0, "everywhere");
	ok(gpc_drops(c) > since, "which is one, of the key");
	store(VRAM, 0, 1);
	is_int(store_since(VRAM, 1, 2, since, NULL), -ESTALE, "what follows the key is refused");
	is_int(store_since(VRAM, 1, 2, gpc_drops(c), NULL), 1, "not of later requests");
	must(gpc_release(d, &held, 1));
	drops = gpc_drops(c);
	must(gpc_reserve(c, VRAM, 1, &moved, NULL, 0, 10000));
	is_int(drop(moved, GPC_EVERYWHERE), 0, "a block without a key");
	ok(gpc_drops(c) == drops, "is no drop at all");
	must(gpc_release(c, &moved, 1));
	end("nowhere");
}

static int body(void)
{
	test_parent();
	test_ancestor();
	test_older();
	test_in_a_row();
	test_two_requests();
	test_loose();
	test_other_space();
	test_behind_gap();
	test_rekey();
	test_bad_numbers();
	test_next_writer();
	test_ring();
	test_floor();
	test_check();
	test_moved(false);
	test_moved(true);
	test_left(false);
	test_left(true);
	test_everywhere();
	test_nowhere();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
