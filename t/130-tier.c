/* SPDX-License-Identifier: Apache-2.0 */
/* Demotion and promotion, both halves around a copy: chains in every order of moves,
 * swaps between full tiers, references that move along, copies between spaces.
 *
 * Every block has bytes: the number of the key that was written there.  Whatever is found
 * must be found over its own bytes. */
#include "t/lib/cache.h"

enum { LONG = 20, VRAM = 0, RAM = 1 };

static uint64_t bytes[4][256];

static uint64_t *bytes_of(gpc_block b)
{
	return &bytes[GPC_POOL(b)][GPC_SLOT(b)];
}

/* ---- a caller that copies ---- */

static void write_chain(gpc *c, int pool, uint64_t from, uint32_t n)
{
	gpc_block b[CACHE_KEYS];
	uint32_t i;

	chain_make(c, pool, from, n, b);
	for (i = 0; i < n; i++)
		*bytes_of(b[i]) = from + i;
}

static void copy(const struct gpc_move *m, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (m[i].to >= 0)
			*bytes_of(m[i].to) = *bytes_of(m[i].from);
}

/* Each key of the chain is found in that pool over its own bytes; pool -1: nowhere. */
static int found_in(gpc *c, int pool, uint64_t from, uint32_t n)
{
	uint32_t i, right = 0;
	gpc_block b;

	for (i = 0; i < n; i++) {
		b = find(c, from + i);
		if (pool < 0 || b < 0)
			right += pool < 0 && b == -1;
		else
			right += GPC_POOL(b) == pool && *bytes_of(b) == from + i;
	}
	return (int)right;
}

static void shuffle(struct gpc_move *m, uint32_t n)
{
	while (n > 1) {
		uint32_t i = chance(n--);
		struct gpc_move x = m[i];

		m[i] = m[n];
		m[n] = x;
	}
}

static void reverse(struct gpc_move *m, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n / 2; i++) {
		struct gpc_move x = m[i];

		m[i] = m[n - 1 - i];
		m[n - 1 - i] = x;
	}
}

static uint32_t hold_chain(gpc *c, uint64_t from, uint32_t n, gpc_block *b)
{
	gpc_key k[CACHE_KEYS + 1];

	chain_keys(c, from, n, k);
	return (uint32_t)must(gpc_acquire(c, 0, k + 1, n, b, 0));
}

static void demote_all(gpc *c, uint32_t n)
{
	struct gpc_move m[CACHE_KEYS];

	if (must(gpc_demote(c, VRAM, -1, NULL, n, m, 0, 1000)) != (int)n)
		bail("%u do not go down", n);
	copy(m, n);
	if (must(gpc_commit(c, m, n, NULL, 0, -1)) != (int)n)
		bail("%u cannot be committed", n);
}

/* ---- whole chains ---- */

typedef void order_fn(struct gpc_move *m, uint32_t n);

static void as_they_are(struct gpc_move *m, uint32_t n)
{
	(void)m;
	(void)n;
}

static void there_and_back(order_fn *order, const char *how)
{
	gpc *c = cache_new(LONG, LONG);
	struct gpc_move m[LONG], v[LONG];
	gpc_block b[LONG];
	uint32_t i;

	write_chain(c, VRAM, 1, LONG);
	is_int(gpc_demote(c, VRAM, RAM, NULL, LONG, m, 0, 1000), LONG, "%s: down", how);
	is_int(found_in(c, VRAM, 1, LONG), LONG, "%s: sources are findable", how);
	copy(m, LONG);
	order(m, LONG);
	is_int(gpc_commit(c, m, LONG, NULL, 0, -1), LONG, "%s: committed", how);
	is_int(found_in(c, RAM, 1, LONG), LONG, "%s: all in RAM", how);
	clean(c, how);
	is_int(hold_chain(c, 1, LONG, b), LONG, "%s: the chain is whole", how);
	is_int(gpc_promote(c, b, LONG, VRAM, m, v, 0, 1000), LONG, "%s: up", how);
	for (i = 0; i < LONG && v[i].to == -1 && m[i].from == b[i]; i++)
		;
	is_int(i, LONG, "%s: root first, without victims", how);
	is_int(found_in(c, RAM, 1, LONG), LONG, "%s: sources are findable", how);
	copy(m, LONG);
	order(m, LONG);
	is_int(gpc_commit(c, m, LONG, NULL, 0, -1), LONG, "%s: committed", how);
	is_int(found_in(c, VRAM, 1, LONG), LONG, "%s: all in VRAM", how);
	for (i = 0; i < LONG; i++)
		b[i] = m[i].to;
	is_int(gpc_release(c, b, LONG), 0, "%s: references moved along", how);
	is_int(stats_of(c, -1).refs, 0, "%s: none is left", how);
	ok(stats_of(c, -1).demoted == LONG && stats_of(c, -1).promoted == LONG,
	   "%s: statistics", how);
	clean(c, how);
	cache_end(c);
}

static void test_orders(void)
{
	there_and_back(as_they_are, "as given");
	there_and_back(reverse, "reversed");
	there_and_back(shuffle, "shuffled");
}

/* A commit for each part, the parts from the leaf up and from the root down. */
static void test_in_parts(void)
{
	gpc *c = cache_new(LONG, LONG);
	struct gpc_move m[LONG];
	gpc_block b[LONG];
	uint32_t i;

	write_chain(c, VRAM, 1, LONG);
	must(gpc_demote(c, VRAM, -1, NULL, LONG, m, 0, 1000));
	copy(m, LONG);
	for (i = 0; i < LONG; i += 5) {
		is_int(gpc_commit(c, m + i, 5, NULL, 0, -1), 5, "five, from the leaf up");
		is_int(found_in(c, RAM, LONG - i - 4, 5 + i), 5 + (int)i, "are in RAM");
		is_int(found_in(c, VRAM, 1, LONG - i - 5), LONG - (int)i - 5,
		       "no others");
		is_int(hold_chain(c, 1, LONG, b), LONG, "one chain all the while");
		must(gpc_release(c, b, LONG));
		clean(c, "a chain in two tiers");
	}
	hold_chain(c, 1, LONG, b);
	for (i = 0; i < LONG; i += 5) {
		is_int(gpc_promote(c, b + i, 5, VRAM, m, NULL, 0, 1000), 5,
		       "five, root first");
		copy(m, 5);
		is_int(gpc_commit(c, m, 5, NULL, 0, -1), 5, "go up");
		is_int(found_in(c, VRAM, 1, i + 5), (int)i + 5, "in VRAM");
		is_int(found_in(c, RAM, i + 6, LONG - i - 5), LONG - (int)i - 5,
		       "in RAM");
		must(gpc_release(
			c, (gpc_block[5]){ m[0].to, m[1].to, m[2].to, m[3].to, m[4].to },
			5));
		clean(c, "a chain in two tiers");
	}
	is_int(stats_of(c, -1).refs, 0, "nothing is held");
	cache_end(c);
}

static void test_named_blocks(void)
{
	gpc *c = cache_new(8, 8);
	struct gpc_move m[4] = { { .to = -7 } };
	gpc_block b[4], x;

	chain_make(c, VRAM, 1, 4, b);
	chain_make(c, VRAM, 10, 1, &x);
	refused(gpc_demote(c, VRAM, RAM, b, 1, m, 0, 1000), EPERM,
		"a parent before its children");
	refused(gpc_demote(c, VRAM, RAM, (gpc_block[2]){ b[2], b[3] }, 2, m, 0, 1000),
		EPERM, "even in one call");
	is_int(m[0].to, -7, "nothing is written");
	is_int(gpc_demote(c, VRAM, RAM, (gpc_block[3]){ b[3], b[1], x }, 3, m, 0, 1000),
	       1, "the first ones, up to one that cannot");
	ok(m[0].from == b[3] && key_is(m[0].key, key_of(c, 4)), "is the leaf");
	is_int(gpc_commit(c, m, 1, NULL, GPC_CANCEL, -1), 1, "cancelled");
	is_int(gpc_demote(c, VRAM, RAM, (gpc_block[3]){ b[3], x, b[2] }, 3, m, 0, 1000),
	       3, "leaf first, with another chain in between");
	is_int(gpc_commit(c, m, 3, NULL, 0, -1), 3, "moved");
	is_int(GPC_POOL(find(c, 3)), RAM, "the parent as well");
	refused(gpc_demote(c, VRAM, RAM, (gpc_block[1]){ find(c, 3) }, 1, m, 0, 1000),
		EINVAL, "a block of another pool");
	refused(gpc_demote(c, VRAM, RAM, (gpc_block[1]){ b[3] }, 1, m, 0, 1000), ESTALE,
		"a block that is not live");
	refused(gpc_demote(c, VRAM, RAM, (gpc_block[1]){ GPC_BLOCK(0, 8) }, 1, m, 0,
			   1000),
		EINVAL, "a block that does not exist");
	is_int(gpc_demote(c, VRAM, RAM, b, 0, m, 0, 1000), 0, "none at all");
	must(gpc_demote(c, VRAM, RAM, b + 1, 1, m, 0, 1000));
	refused(gpc_demote(c, VRAM, RAM, b + 1, 1, m + 1, 0, 1000), ENOSPC,
		"one that moves already");
	is_int(gpc_commit(c, m, 1, NULL, 0, -1), 1, "it goes on");
	clean(c, "named blocks");
	cache_end(c);
}

/* ---- full tiers ---- */

/* Both tiers full: each key that comes up sends another one down, and none is lost. */
static void test_swap(void)
{
	gpc *c = cache_new(LONG, LONG);
	struct gpc_move m[LONG], v[LONG];
	gpc_block b[LONG], held[LONG];
	uint32_t i, round;
	int n;

	write_chain(c, VRAM, 1, LONG);
	demote_all(c, LONG);
	write_chain(c, VRAM, 101, LONG);
	for (round = 0; round < 6; round++) {
		uint64_t up = round % 2 ? 101 : 1, down = round % 2 ? 1 : 101;

		is_int(hold_chain(c, up, LONG, b), LONG, "round %u: it is in RAM", round);
		n = gpc_promote(c, b, LONG, VRAM, m, v, 0, 1000);
		is_int(n, LONG, "all can come up");
		for (i = 0; i < LONG && v[i].to >= 0 && v[i].from == m[i].to; i++)
			;
		is_int(i, LONG, "each over a victim");
		copy(v, LONG);
		shuffle(v, LONG);
		is_int(gpc_commit(c, v, LONG, NULL, 0, -1), LONG, "the victims are down");
		clean(c, "victims down, moves under way");
		copy(m, LONG);
		for (i = 0; i < LONG; i++)
			held[i] = m[i].to;
		shuffle(m, LONG);
		is_int(gpc_commit(c, m, LONG, NULL, 0, -1), LONG, "the others up");
		is_int(found_in(c, VRAM, up, LONG), LONG, "where they should be");
		is_int(found_in(c, RAM, down, LONG), LONG, "all of them");
		must(gpc_release(c, held, LONG));
		settle(c);
	}
	is_int(stats_of(c, -1).dropped + stats_of(c, -1).evicted, 0,
	       "nothing was dropped");
	is_int(stats_of(c, -1).live, 2 * LONG, "everything is there");
	clean(c, "six swaps");
	cache_end(c);
}

/* More than the transit slots at once: what RAM cannot take is dropped, no more. */
static void test_transit(void)
{
	enum { N = 100, TRANSIT = 64 };
	gpc *c = cache_new(N, N);
	struct gpc_move m[N], v[N];
	gpc_block b[N];
	int n = 0, i;

	write_chain(c, VRAM, 1, N);
	demote_all(c, N);
	write_chain(c, VRAM, 1001, N);
	is_int(hold_chain(c, 1, N, b), N, "a long one");
	is_int(gpc_promote(c, b, TRANSIT, VRAM, m, v, 0, 1000), TRANSIT,
	       "as many as fit");
	for (i = 0; i < TRANSIT; i++)
		n += v[i].to >= 0;
	is_int(n, TRANSIT, "every victim has a place");
	copy(v, TRANSIT);
	is_int(gpc_commit(c, v, TRANSIT, NULL, 0, -1), TRANSIT, "victims first");
	copy(m, TRANSIT);
	is_int(gpc_commit(c, m, TRANSIT, NULL, 0, -1), TRANSIT, "then the others");
	is_int(stats_of(c, -1).dropped + stats_of(c, -1).evicted, 0,
	       "nothing was dropped");
	for (i = 0; i < TRANSIT; i++)
		b[i] = m[i].to;
	must(gpc_release(c, b, N));
	is_int(found_in(c, VRAM, 1, TRANSIT), TRANSIT, "up");
	is_int(found_in(c, RAM, 1000 + N - TRANSIT + 1, TRANSIT), TRANSIT, "down");
	is_int(gpc_pool_available(c, RAM), N, "transit slots are nobody's capacity");
	clean(c, "transit");
	cache_end(c);
}

/* No room anywhere: the blocks in use stay, and the caller uses RAM from where it is. */
static void test_no_room(void)
{
	gpc *c = cache_new(4, 4);
	struct gpc_move m[4] = { { .to = -7 } }, v[4];
	gpc_block b[4], held[4];

	write_chain(c, VRAM, 1, 4);
	demote_all(c, 4);
	chain_hold(c, VRAM, 11, 3, held);
	write_chain(c, VRAM, 20, 1);
	hold_chain(c, 1, 4, b);
	is_int(gpc_promote(c, b, 4, VRAM, m, v, 0, 1000), 1, "one block can be had");
	ok(m[0].from == b[0] && v[0].to >= 0, "for the root");
	copy(v, 1);
	is_int(gpc_commit(c, v, 1, NULL, 0, -1), 1, "its victim goes down");
	copy(m, 1);
	is_int(gpc_commit(c, m, 1, NULL, 0, -1), 1, "and it comes up");
	refused(gpc_promote(c, b + 1, 3, VRAM, m, v, 0, 1000), ENOSPC, "no more");
	is_int(found_in(c, RAM, 2, 3), 3, "the others are where they were");
	is_int(gpc_acquire(c, 0, (gpc_key[1]){ key_of(c, 1) }, 1, b, 0), 1, "usable");
	is_int(stats_of(c, -1).dropped + stats_of(c, -1).evicted, 0,
	       "nothing was dropped");
	clean(c, "no room");
	cache_end(c);
}

static void test_no_victims(void)
{
	gpc *c = cache_new(4, 8);
	struct gpc_move m[4];
	gpc_block b[4];

	write_chain(c, VRAM, 1, 4);
	demote_all(c, 4);
	write_chain(c, VRAM, 11, 4);
	hold_chain(c, 1, 4, b);
	is_int(gpc_promote(c, b, 2, VRAM, m, NULL, 0, 1000), 2,
	       "nobody saves the victims");
	is_int(found_in(c, -1, 13, 2), 2, "so they are dropped");
	is_int(found_in(c, VRAM, 11, 2), 2, "no more than needed");
	copy(m, 2);
	is_int(gpc_commit(c, m, 2, NULL, 0, -1), 2, "the others come up");
	is_int(stats_of(c, -1).evicted, 2, "two evictions");
	clean(c, "victims that nobody wants");
	cache_end(c);
}

/* ---- references ---- */

static void test_references(void)
{
	gpc *c = cache_new(4, 4), *d = cache_attach(0, 0);
	struct gpc_move m[2];
	gpc_block b[2], theirs[2];
	gpc_key k[3];

	chain_keys(c, 1, 2, k);
	write_chain(c, VRAM, 1, 2);
	must(gpc_acquire(c, 0, k + 1, 2, b, 0));
	must(gpc_acquire(c, 0, k + 1, 1, b, 0));
	must(gpc_acquire(d, 0, k + 1, 2, theirs, 0));
	is_int(gpc_demote(c, VRAM, RAM, (gpc_block[2]){ b[1], b[0] }, 2, m, 0, 1000), 2,
	       "blocks in use may move");
	copy(m, 2);
	is_int(gpc_commit(c, m, 2, NULL, 0, -1), 2, "and do");
	is_int(found_in(c, RAM, 1, 2), 2, "the keys have moved");
	ok(*bytes_of(theirs[0]) == 1 && *bytes_of(theirs[1]) == 2,
	   "the old bytes are there");
	is_int(stats_of(c, -1).dying, 2, "for those who use them still");
	is_int(gpc_release(c, (gpc_block[2]){ m[1].to, m[0].to }, 2), 0,
	       "one reference of each block moved along");
	refused(gpc_release(c, &m[1].to, 1), EPERM, "one only");
	is_int(gpc_release(c, &b[0], 1), 0, "the second one stayed");
	refused(gpc_release(c, &b[1], 1), EPERM, "where there was one");
	is_int(gpc_release(d, theirs, 2), 0, "the other peer's stay until it is through");
	settle(c);
	ok(!stats_of(c, -1).dying && !stats_of(c, -1).refs, "then all is free");
	clean(c, "references");
	must(gpc_close(d));
	cache_end(c);
}

static void test_cancel(void)
{
	gpc *c = cache_new(4, 4);
	struct gpc_move m[4];
	gpc_block b[4];
	int results[2] = { 77, 77 };

	write_chain(c, VRAM, 1, 4);
	hold_chain(c, 1, 4, b);
	is_int(gpc_demote(c, VRAM, RAM, (gpc_block[2]){ b[3], b[2] }, 2, m, 0, 1000), 2,
	       "begun");
	is_int(gpc_commit(c, m, 2, results, GPC_CANCEL, -1), 2, "given up");
	ok(!results[0] && !results[1], "without fault");
	is_int(found_in(c, VRAM, 1, 4), 4, "nothing moved");
	is_int(gpc_release(c, b, 4), 0, "references are where they were");
	is_int(stats_of(c, -1).reserved, 0, "targets went back");
	is_int(gpc_commit(c, m, 2, results, 0, -1), 0, "it is too late for a commit");
	ok(results[0] == -ESTALE && results[1] == -ESTALE, "the targets are not ours");
	is_int(gpc_commit(c, m, 2, results, GPC_CANCEL, -1), 0, "and to cancel again");
	is_int(stats_of(c, -1).demoted, 0, "no demotion");
	is_int(gpc_pool_available(c, RAM), 4, "RAM is free");
	clean(c, "given up");
	cache_end(c);
}

/* The caller learns where the key and its reference are, however often it asks. */
static void cancel_too_late(gpc *c, const struct gpc_move *m)
{
	int result = 77, i;

	for (i = 0; i < 2; i++) {
		is_int(gpc_commit(c, m, 1, &result, GPC_CANCEL, -1), 0, "too late to give it up");
		is_int(result, -EEXIST, "since it is committed");
		ok(strstr(gpc_last_error(), "committed already"), "%s", gpc_last_error());
	}
	is_int(found_in(c, RAM, 1, 1), 1, "the key is where it went");
	refused(gpc_release(c, &m->from, 1), EPERM, "no reference stayed behind");
	is_int(gpc_release(c, &m->to, 1), 0, "it moved along");
}

static void begin_one(gpc *c, struct gpc_move *m)
{
	gpc_block b;

	write_chain(c, VRAM, 1, 1);
	hold_chain(c, 1, 1, &b);
	is_int(gpc_demote(c, VRAM, RAM, &b, 1, m, 0, 1000), 1, "begun");
	copy(m, 1);
}

static void test_cancel_late(void)
{
	gpc *c = cache_new(4, 4);
	struct gpc_move m;

	begin_one(c, &m);
	is_int(gpc_commit(c, &m, 1, NULL, 0, -1), 1, "committed");
	is_int(gpc_commit(c, &m, 1, NULL, 0, -1), 1, "again: done before");
	cancel_too_late(c, &m);
	clean(c, "too late");
	cache_end(c);
}

/* The commit is pending, and the next writer makes it before it comes to the cancel. */
static void test_cancel_pending(void)
{
	gpc *c = cache_new(4, 4);
	struct gpc_move m;

	begin_one(c, &m);
	must(gpc_writer_drop(c));
	refused(gpc_commit(c, &m, 1, NULL, 0, -1), ENOTCONN, "nobody commits it");
	must(gpc_writer_take(c, 0, 1000));
	cancel_too_late(c, &m);
	clean(c, "a pending commit");
	cache_end(c);
}

/* ---- between spaces ---- */

static gpc *two_spaces(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	gpc *c;

	cfg.max_blocks = 512;
	c = cache_make(&cfg, NULL);
	pool_new(c, GPC_VRAM, 8, 0, 0);
	pool_new(c, GPC_VRAM, 8, 1, 0);
	pool_new(c, GPC_RAM, 8, 2, GPC_POOL_UNCHAINED);
	return c;
}

static void test_keep(void)
{
	gpc *c = two_spaces();
	struct gpc_move m[4];
	gpc_block b[4], r[4];
	gpc_key k[5];

	chain_keys(c, 1, 4, k);
	write_chain(c, 0, 1, 4);
	hold_chain(c, 1, 4, b);
	is_int(gpc_demote(c, 0, 2, (gpc_block[4]){ b[3], b[2], b[1], b[0] }, 4, m,
			  GPC_COPY, 1000),
	       4, "a copy for everybody");
	copy(m, 4);
	is_int(gpc_commit(c, m, 4, NULL, 0, -1), 4, "made");
	is_int(stats_of(c, -1).live, 8, "both are live");
	is_int(gpc_lookup(c, GPC_SPACE(0), k + 1, 4, r, 0), 4, "here");
	is_int(gpc_lookup(c, GPC_SPACE(2), k + 1, 4, r, 0), 4, "and there");
	ok(*bytes_of(r[0]) == 1 && *bytes_of(r[3]) == 4, "with the same bytes");
	clean(c, "two copies");
	is_int(gpc_acquire(c, GPC_SPACE(2), k + 1, 4, r, 0), 4, "the shared copy");
	is_int(gpc_promote(c, r, 4, 1, m, NULL, GPC_COPY, 1000), 4, "for another GPU");
	copy(m, 4);
	is_int(gpc_commit(c, m, 4, NULL, 0, -1), 4, "made");
	is_int(stats_of(c, -1).live, 12, "three are live");
	is_int(gpc_lookup(c, GPC_SPACE(1), k + 1, 4, r, 0), 4, "in the third place, too");
	ok(*bytes_of(r[0]) == 1 && *bytes_of(r[3]) == 4 && GPC_POOL(r[0]) == 1,
	   "same bytes");
	refused(gpc_promote(c, (gpc_block[1]){ b[0] }, 1, 0, m, NULL, GPC_COPY, 1000),
		EINVAL, "to where it is");
	clean(c, "three copies");
	cache_end(c);
}

/* A pool that takes children without their parent, for one worker's space. */
static void test_forget(void)
{
	gpc *c = two_spaces();
	struct gpc_move m[4];
	gpc_block b[4], r;
	gpc_key k[5];

	chain_keys(c, 1, 4, k);
	write_chain(c, 0, 1, 4);
	write_chain(c, 1, 1, 4);
	is_int(gpc_demote(c, 0, 2, NULL, 2, m, 0, 1000), 2, "the leaves of one");
	copy(m, 2);
	is_int(gpc_commit(c, m, 2, NULL, 0, -1), 2, "go to the shared space");
	is_int(gpc_lookup(c, GPC_SPACE(0), k + 1, 4, b, 0), 2, "two are left");
	is_int(gpc_demote(c, 1, 2, NULL, 3, m, 0, 1000), 3, "the leaves of the other");
	ok(m[0].to == -1 && m[1].to == -1 && m[2].to >= 0, "two are there already");
	is_int(gpc_lookup(c, GPC_SPACE(1), k + 1, 4, b, GPC_QUIET), 2,
	       "their sources are gone");
	copy(m, 3);
	is_int(gpc_commit(c, m, 3, NULL, 0, -1), 1, "one to commit");
	is_int(gpc_lookup(c, GPC_SPACE(2), k + 1, 4, b, 0), 3, "three are shared");
	ok(b[0] == -1 && *bytes_of(b[1]) == 2 && *bytes_of(b[3]) == 4,
	   "over their bytes");
	is_int(gpc_demote(c, 1, 2, NULL, 1, m, GPC_COPY, 1000), 1, "the last one, kept");
	is_int(gpc_commit(c, m, 1, NULL, 0, -1), 1, "copied");
	is_int(gpc_demote(c, 1, 2, NULL, 1, m, GPC_COPY, 1000), 1, "once more");
	is_int(m[0].to, -1, "is not needed");
	is_int(gpc_lookup(c, GPC_SPACE(1), k + 1, 1, &r, 0), 1,
	       "and nothing is forgotten");
	settle(c);
	clean(c, "what is there already");
	cache_end(c);
}

static void tests(void)
{
	test_orders();
	test_in_parts();
	test_named_blocks();
	test_swap();
	test_transit();
	test_no_room();
	test_no_victims();
	test_references();
	test_cancel();
	test_cancel_late();
	if (!cache_thread)       /* whose handle would serve itself */
		test_cancel_pending();
	test_keep();
	test_forget();
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
