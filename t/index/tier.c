/* SPDX-License-Identifier: Apache-2.0 */
/* Demotion and promotion, both halves around a copy: chains in every order of moves,
 * named blocks, swaps between full tiers.
 * Tests: lib/index/request/move.c lib/index/writer/move.c lib/index/writer/grant_source.c lib/index/writer/grant_place.c */
#include "t/lib/copied.h"

#include "gpc_device.h"

enum { LONG = 20 };

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
	struct gpc_move m[LONG];
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
	is_int(gpc_promote(c, b, LONG, VRAM, m, 0, 1000), LONG, "%s: up", how);
	for (i = 0; i < LONG && m[i].from == b[i]; i++)
		;
	is_int(i, LONG, "%s: root first", how);
	is_int(found_in(c, RAM, 1, LONG), LONG, "%s: sources are findable", how);
	copy(m, LONG);
	order(m, LONG);
	is_int(gpc_commit(c, m, LONG, NULL, 0, -1), LONG, "%s: committed", how);
	is_int(found_in(c, VRAM, 1, LONG), LONG, "%s: all in VRAM", how);
	for (i = 0; i < LONG; i++)
		b[i] = m[i].to;
	is_int(gpc_release(c, b, LONG), 0, "%s: references moved along", how);
	is_int(stats_of(c, -1).refs, 0, "%s: none is left", how);
	ok(stats_of(c, -1).demoted == LONG && stats_of(c, -1).promoted == LONG, "%s: statistics",
	   how);
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
	must(gpc_demote(c, VRAM, -1, NULL, LONG, m, 0, 60000));
	copy(m, LONG);
	for (i = 0; i < LONG; i += 5) {
		is_int(gpc_commit(c, m + i, 5, NULL, 0, -1), 5, "five, from the leaf up");
		is_int(found_in(c, RAM, LONG - i - 4, 5 + i), 5 + (int)i, "are in RAM");
		is_int(found_in(c, VRAM, 1, LONG - i - 5), LONG - (int)i - 5, "no others");
		is_int(hold_chain(c, 1, LONG, b), LONG, "one chain all the while");
		must(gpc_release(c, b, LONG));
		clean(c, "a chain in two tiers");
	}
	hold_chain(c, 1, LONG, b);
	for (i = 0; i < LONG; i += 5) {
		is_int(gpc_promote(c, b + i, 5, VRAM, m, 0, 60000), 5, "five, root first");
		copy(m, 5);
		is_int(gpc_commit(c, m, 5, NULL, 0, -1), 5, "go up");
		is_int(found_in(c, VRAM, 1, i + 5), (int)i + 5, "in VRAM");
		is_int(found_in(c, RAM, i + 6, LONG - i - 5), LONG - (int)i - 5, "in RAM");
		must(gpc_release(c, (gpc_block[5]){ m[0].to, m[1].to, m[2].to, m[3].to, m[4].to },
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
	refused(gpc_demote(c, VRAM, RAM, b, 1, m, 0, 1000), EPERM, "a parent before its children");
	refused(gpc_demote(c, VRAM, RAM, (gpc_block[2]){ b[2], b[3] }, 2, m, 0, 1000), EPERM,
		"even in one call");
	is_int(m[0].to, -7, "nothing is written");
	is_int(gpc_demote(c, VRAM, RAM, (gpc_block[3]){ b[3], b[1], x }, 3, m, 0, 60000), 1,
	       "the first ones, up to one that cannot");
	ok(m[0].from == b[3] && key_is(m[0].key, key_of(c, 4)), "is the leaf");
	is_int(gpc_commit(c, m, 1, NULL, GPC_CANCEL, -1), 1, "cancelled");
	is_int(gpc_demote(c, VRAM, RAM, (gpc_block[3]){ b[3], x, b[2] }, 3, m, 0, 60000), 3,
	       "leaf first, with another chain in between");
	is_int(gpc_commit(c, m, 3, NULL, 0, -1), 3, "moved");
	is_int(GPC_POOL(find(c, 3)), RAM, "the parent as well");
	refused(gpc_demote(c, VRAM, RAM, (gpc_block[1]){ find(c, 3) }, 1, m, 0, 1000), EINVAL,
		"a block of another pool");
	refused(gpc_demote(c, VRAM, RAM, (gpc_block[1]){ b[3] }, 1, m, 0, 1000), ESTALE,
		"a block that is not live");
	refused(gpc_demote(c, VRAM, RAM, (gpc_block[1]){ GPC_BLOCK(0, 8) }, 1, m, 0, 1000), EINVAL,
		"a block that does not exist");
	is_int(gpc_demote(c, VRAM, RAM, b, 0, m, 0, 1000), 0, "none at all");
	must(gpc_demote(c, VRAM, RAM, b + 1, 1, m, 0, 60000));
	refused(gpc_demote(c, VRAM, RAM, b + 1, 1, m + 1, 0, 1000), ENOSPC,
		"one that moves already");
	is_int(gpc_commit(c, m, 1, NULL, 0, -1), 1, "it goes on");
	clean(c, "named blocks");
	cache_end(c);
}

/* ---- full tiers ---- */

/* As much of VRAM is kept free as comes up at a time: then as much goes down, and none is lost. */
static void test_swap(void)
{
	gpc *c = cache_new(2 * LONG, LONG);
	struct gpc_move m[LONG], v[LONG];
	gpc_block b[LONG], held[LONG];
	uint32_t i, round;

	write_chain(c, VRAM, 1, LONG);
	demote_all(c, LONG);
	write_chain(c, VRAM, 101, LONG);
	for (round = 0; round < 6; round++) {
		uint64_t up = round % 2 ? 101 : 1, down = round % 2 ? 1 : 101;

		is_int(hold_chain(c, up, LONG, b), LONG, "round %u: it is in RAM", round);
		is_int(gpc_promote(c, b, LONG, VRAM, m, 0, 1000), LONG, "all can come up");
		clean(c, "moves under way");
		copy(m, LONG);
		for (i = 0; i < LONG; i++)
			held[i] = m[i].to;
		shuffle(m, LONG);
		is_int(gpc_commit(c, m, LONG, NULL, 0, -1), LONG, "and do");
		is_int(gpc_demote(c, VRAM, RAM, NULL, LONG, v, 0, 1000), LONG, "as many go down");
		copy(v, LONG);
		shuffle(v, LONG);
		is_int(gpc_commit(c, v, LONG, NULL, 0, -1), LONG, "into their places");
		is_int(found_in(c, VRAM, up, LONG), LONG, "where they should be");
		is_int(found_in(c, RAM, down, LONG), LONG, "all of them");
		must(gpc_release(c, held, LONG));
		settle(c);
	}
	is_int(stats_of(c, -1).dropped + stats_of(c, -1).evicted, 0, "nothing was dropped");
	is_int(stats_of(c, -1).live, 2 * LONG, "everything is there");
	clean(c, "six swaps");
	cache_end(c);
}

/* A full RAM whose keys have gone up, while a section keeps their blocks: what comes down has the
 * transit slots, and the rest waits. */
static void test_transit(void)
{
	enum { N = 100, TRANSIT = 64 };
	gpc *c = cache_new(2 * N, N), *d = cache_attach(0, 0);
	struct gpc_move m[N], v[N];
	gpc_block b[N];
	int section, i;

	write_chain(c, VRAM, 1, N);
	demote_all(c, N);
	write_chain(c, VRAM, 1001, N);
	is_int(hold_chain(c, 1, N, b), N, "a long one");
	settle(c);
	section = must(gpc_section_enter(d));
	is_int(gpc_promote(c, b, N, VRAM, m, 0, 1000), N, "comes up");
	copy(m, N);
	is_int(gpc_commit(c, m, N, NULL, 0, -1), N, "while readers may be in RAM");
	is_int(gpc_demote(c, VRAM, RAM, NULL, TRANSIT, v, 0, 1000), TRANSIT,
	       "there are transit slots for so many");
	copy(v, TRANSIT);
	is_int(gpc_commit(c, v, TRANSIT, NULL, 0, -1), TRANSIT, "go down");
	refused(gpc_demote(c, VRAM, RAM, NULL, 1, v, 0, 0), EAGAIN, "and no more now");
	gpc_section_leave(d, section);
	is_int(gpc_demote(c, VRAM, RAM, NULL, N - TRANSIT, v, 0, 1000), N - TRANSIT,
	       "the others when the section is over");
	copy(v, N - TRANSIT);
	is_int(gpc_commit(c, v, N - TRANSIT, NULL, 0, -1), N - TRANSIT, "go down, too");
	is_int(stats_of(c, -1).dropped + stats_of(c, -1).evicted, 0, "nothing was dropped");
	for (i = 0; i < N; i++)
		b[i] = m[i].to;
	must(gpc_release(c, b, N));
	is_int(found_in(c, VRAM, 1, N), N, "up");
	is_int(found_in(c, RAM, 1001, N), N, "down");
	settle(c);
	is_int(gpc_pool_available(c, RAM), N, "transit slots are nobody's capacity");
	clean(c, "transit");
	must(gpc_close(d));
	cache_end(c);
}

/* No room anywhere: the blocks in use stay, and the caller uses RAM from where it is. */
static void test_no_room(void)
{
	gpc *c = cache_new(4, 4);
	struct gpc_move m[4] = { { .to = -7 } };
	gpc_block b[4], held[4];

	write_chain(c, VRAM, 1, 4);
	demote_all(c, 4);
	chain_hold(c, VRAM, 11, 3, held);
	write_chain(c, VRAM, 20, 1);
	hold_chain(c, 1, 4, b);
	refused(gpc_demote(c, VRAM, RAM, NULL, 1, m, 0, 1000), ENOSPC, "RAM is in use");
	is_int(gpc_promote(c, b, 4, VRAM, m, 0, 60000), 1, "one block can be had");
	is_int(m[0].from, b[0], "for the root");
	copy(m, 1);
	is_int(gpc_commit(c, m, 1, NULL, 0, -1), 1, "and it comes up");
	refused(gpc_promote(c, b + 1, 3, VRAM, m, 0, 1000), ENOSPC, "no more");
	is_int(found_in(c, RAM, 2, 3), 3, "the others are where they were");
	is_int(gpc_acquire(c, 0, (gpc_key[1]){ key_of(c, 1) }, 1, b, 0), 1, "usable");
	is_int(stats_of(c, -1).evicted, 1, "one was evicted");
	clean(c, "no room");
	cache_end(c);
}

static void test_evicts(void)
{
	gpc *c = cache_new(4, 8);
	struct gpc_move m[4];
	gpc_block b[4];

	write_chain(c, VRAM, 1, 4);
	demote_all(c, 4);
	write_chain(c, VRAM, 11, 4);
	hold_chain(c, 1, 4, b);
	is_int(gpc_promote(c, b, 2, VRAM, m, 0, 60000), 2, "nothing went down before");
	is_int(found_in(c, -1, 13, 2), 2, "so the least recent go");
	is_int(found_in(c, VRAM, 11, 2), 2, "no more than needed");
	copy(m, 2);
	is_int(gpc_commit(c, m, 2, NULL, 0, -1), 2, "the others come up");
	is_int(stats_of(c, -1).evicted, 2, "two evictions");
	clean(c, "victims");
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
	test_evicts();
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
