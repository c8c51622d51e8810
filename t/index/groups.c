/* SPDX-License-Identifier: Apache-2.0 */
/* The longest prefix that all KV groups can go on from: against a search that tries every length,
 * and case by case.
 * Tests: lib/index/reader/groups.c */
#include "t/lib/cache.h"

#include "index/peer/refs.h"

enum { MOST = 150, GROUPS = 4 }; /* more than are looked up in one go, twice */

struct test_group {
	uint32_t tokens, last, n;
	gpc_key key[MOST];
	gpc_block at[MOST], blocks[MOST]; /* where it is, or -1; the answer */
};

static struct test_group group[GROUPS];
static uint32_t ngroups;

static int match(gpc *c, uint32_t multiple, uint32_t flags)
{
	struct gpc_group g[GROUPS];
	uint32_t i;

	for (i = 0; i < ngroups; i++)
		g[i] = (struct gpc_group){ .size = sizeof(g[i]),
					   .block_tokens = group[i].tokens,
					   .last = group[i].last,
					   .n = group[i].n,
					   .keys = group[i].key,
					   .blocks = group[i].blocks };
	return gpc_match_groups(c, 0, g, ngroups,
				GPC_OPTIONS(gpc_match_options, .multiple = multiple), flags);
}

static void release_all(gpc *c)
{
	uint32_t i;

	for (i = 0; i < ngroups; i++)
		must(gpc_release(c, group[i].blocks, group[i].n));
}

/* ---- against every length ---- */

/* Is block i of the group needed by a prefix of so many tokens?  By its tokens, one by one. */
static bool is_needed(const struct test_group *g, uint32_t i, uint32_t len)
{
	uint32_t t;

	for (t = i * g->tokens; t < (i + 1) * g->tokens; t++)
		if (t < len && (!g->last || t + g->last >= len))
			return true;
	return false;
}

static bool serves(const struct test_group *g, uint32_t len)
{
	uint32_t i;

	if (len % g->tokens || len > g->n * g->tokens)
		return false;
	for (i = 0; i < g->n; i++)
		if (is_needed(g, i, len) && g->at[i] < 0)
			return false;
	return true;
}

static uint32_t longest(uint32_t multiple)
{
	uint32_t len, i, best = 0;

	for (len = 1; len <= group[0].n * group[0].tokens; len++) {
		for (i = 0; i < ngroups && serves(&group[i], len); i++)
			;
		if (i == ngroups && !(multiple && len % multiple))
			best = len;
	}
	return best;
}

/* What is needed and nothing else. */
static uint32_t wrong_blocks(uint32_t len)
{
	uint32_t i, k, wrong = 0;

	for (i = 0; i < ngroups; i++)
		for (k = 0; k < group[i].n; k++)
			wrong += group[i].blocks[k] !=
				 (is_needed(&group[i], k, len) ? group[i].at[k] : -1);
	return wrong;
}

static uint32_t needs(uint32_t len)
{
	uint32_t i, k, n = 0;

	for (i = 0; i < ngroups; i++)
		for (k = 0; k < group[i].n; k++)
			n += is_needed(&group[i], k, len);
	return n;
}

/* Some of the blocks are there, more of them in front, or few that are far apart. */
static void fill(gpc *c, struct test_group *g, uint32_t number)
{
	uint32_t i, live = chance(g->n + 1), holes = chance(6);
	gpc_key none = { { 0, 0 } };

	for (i = 0; i < g->n; i++) {
		must(gpc_key_import(c, &i, sizeof(i), sizeof(i), 1, number, &g->key[i]));
		g->at[i] = GPC_NONE;
		g->blocks[i] = -7;
		if (i >= live + chance(3) * chance(4) ||
		    (holes == 5 ? chance(30) : holes && !chance(20 * holes)))
			continue;
		must(gpc_reserve(c, 0, 1, &g->at[i], NULL, 0, 60000));
		must(gpc_publish(c, &none, &g->key[i], &g->at[i], 1, NULL, 0, -1));
		must(gpc_release(c, &g->at[i], 1));
	}
}

/* Some take no reference, though lookups find them, as when they go in this very moment: the cell
 * of this peer is full. */
static uint16_t *cell_of(gpc *c, const struct test_group *g, uint32_t i)
{
	return refs_cell(c, pool_record(&c->seg, g->at[i]));
}

static void refuse_some(gpc *c, bool *ret, uint32_t one_of)
{
	uint32_t i, k;

	for (i = 0; i < ngroups; i++)
		for (k = 0; k < group[i].n; k++) {
			ret[i * MOST + k] = group[i].at[k] >= 0 && !chance(one_of);
			if (!ret[i * MOST + k])
				continue;
			*cell_of(c, &group[i], k) = REF_CAP;
			group[i].at[k] |= INT32_MIN; /* none, to the model */
		}
}

static void allow_all(gpc *c, const bool *refused)
{
	uint32_t i;

	for (i = 0; i < ngroups * MOST; i++)
		if (refused[i]) {
			group[i / MOST].at[i % MOST] &= INT32_MAX;
			*cell_of(c, &group[i / MOST], i % MOST) = 0;
		}
}

static void test_random(void)
{
	bool refused[GROUPS * MOST];
	int r;

	static const uint32_t tokens[] = { 4, 4, 8, 12, 16, 1 },
			      last[] = { 0, 1, 3, 4, 5, 30, 200 },
			      multiples[] = { 0, 0, 1, 8, 24, 100, 5000 };
	gpc *c = cache_new(GROUPS * MOST, 0);
	uint32_t round, i, multiple, want, got[4] = { 0 }, flags, number = 0;
	struct gpc_stats before, after;

	for (round = 0; round < 3000; round++) {
		must(gpc_pool_clear(c, 0, 0, 0, -1));
		ngroups = 1 + chance(GROUPS);
		for (i = 0; i < ngroups; i++) {
			group[i].tokens = tokens[chance(6)];
			group[i].last = last[chance(7)];
			group[i].n = chance(MOST + 1);
			fill(c, &group[i], number++);
		}
		multiple = multiples[chance(7)];
		flags = chance(2) ? GPC_REF : 0;
		memset(refused, 0, sizeof(refused));
		if (flags && chance(2))
			refuse_some(c, refused, 2 + chance(40));
		want = longest(multiple);
		got[3] += want > 0;
		before = stats_of(c, info_of(c).peer);
		r = match(c, multiple, flags);
		i = r == -EOVERFLOW && flags ? 0 : (uint32_t)must(r);
		after = stats_of(c, info_of(c).peer);
		got[0] += i == want;
		got[1] += !wrong_blocks(want);
		got[2] +=
			after.refs - before.refs == (flags ? needs(want) : 0) &&
			after.hit_vram - before.hit_vram == needs(want) &&
			after.lookups - after.miss - (before.lookups - before.miss) == needs(want);
		if (flags)
			release_all(c);
		allow_all(c, refused);
	}
	is_int(got[0], round, "the length is that of a search that tries all");
	is_int(got[1], round, "the blocks are those that are needed, and no others");
	is_int(got[2], round, "so are the references, and the counts");
	ok(got[3] > round / 5, "%u of %u have a prefix", got[3], round);
	is_int((long long)stats_of(c, -1).refs, 0, "all references are given back");
	clean(c, "random groups");
	cache_end(c);
}

/* ---- case by case ---- */

static void all_live(gpc *c, uint32_t i, uint32_t tokens, uint32_t last, uint32_t n)
{
	uint32_t k;

	group[i] = (struct test_group){ .tokens = tokens, .last = last, .n = n };
	for (k = 0; k < n; k++) {
		must(gpc_key_import(c, &k, sizeof(k), sizeof(k), 1, i, &group[i].key[k]));
		must(gpc_reserve(c, 0, 1, &group[i].at[k], NULL, 0, 60000));
		must(gpc_publish(c, NULL, &group[i].key[k], &group[i].at[k], 1, NULL, 0, -1));
		must(gpc_release(c, &group[i].at[k], 1));
	}
}

static void goes(gpc *c, uint32_t i, uint32_t k)
{
	must(gpc_drop(c, &group[i].at[k], 1, NULL, 0, -1));
	group[i].at[k] = GPC_NONE;
}

/* A model with full attention, a window and a state, of blocks of three sizes. */
static void test_hybrid(void)
{
	gpc *c = cache_new(GROUPS * MOST, 0);

	ngroups = 3;
	all_live(c, 0, 16, 0, 16); /* 256 tokens */
	all_live(c, 1, 32, 63, 8); /* a window of 64 */
	all_live(c, 2, 64, 1, 4);
	is_int(match(c, 0, 0), 256, "all");
	is_int(wrong_blocks(256), 0, "16 blocks, the last two, the last one");
	is_int(needs(256), 16 + 2 + 1, "no more");
	is_int(match(c, 96, 0), 192, "in chunks of 96");
	goes(c, 2, 3);
	is_int(match(c, 0, GPC_REF), 192, "without the last state");
	is_int(wrong_blocks(192), 0, "what it needs");
	release_all(c);
	goes(c, 1, 0);
	is_int(match(c, 0, 0), 192, "blocks in front of the window may go");
	goes(c, 0, 11);
	is_int(match(c, 0, 0), 128, "none in front of full attention may");
	goes(c, 1, 2);
	is_int(match(c, 0, GPC_REF), 0, "a hole in each window");
	is_int(wrong_blocks(0), 0, "no block");
	is_int((long long)stats_of(c, -1).refs, 0, "and no reference");
	goes(c, 0, 0);
	is_int(match(c, 0, GPC_QUIET), 0, "no root");
	ngroups = 0;
	is_int(match(c, 0, 0), 0, "no groups");
	clean(c, "hybrid");
	cache_end(c);
}

/* More keys than are looked up in one go, and lengths that no number of tokens has. */
static void test_large(void)
{
	enum { N = 20000 };
	gpc *c = cache_new(4, 0);
	gpc_key *keys = calloc(N, sizeof(*keys));
	gpc_block *b = malloc(2 * N * sizeof(*b)), one;
	struct gpc_group g[2] = { { .size = sizeof(g[0]),
				    .block_tokens = 65536,
				    .last = 1,
				    .n = N,
				    .keys = keys,
				    .blocks = b },
				  { .size = sizeof(g[0]),
				    .block_tokens = 65535,
				    .last = 1,
				    .n = N,
				    .keys = keys,
				    .blocks = b + N } };
	uint32_t i;

	for (i = 0; i < N; i++)
		keys[i] = key_of(c, i);
	must(gpc_reserve(c, 0, 1, &one, NULL, 0, 60000));
	must(gpc_publish(c, NULL, &keys[9], &one, 1, NULL, 0, -1));
	is_int(gpc_match_groups(c, 0, g, 1, NULL, 0), 10 * 65536, "far back");
	ok(b[9] == one && b[8] == -1 && b[10] == -1 && b[N - 1] == -1, "one block");
	is_int(gpc_match_groups(c, 0, g, 2, NULL, 0), 0, "the least multiple of both is too long");
	g[0].block_tokens = g[1].block_tokens = 2;
	is_int(gpc_match_groups(c, 0, g, 2, GPC_OPTIONS(gpc_match_options, .multiple = UINT32_MAX),
				0),
	       0, "so is the chunk");
	is_int(gpc_match_groups(c, 0, g, 2, NULL, GPC_REF), 20, "one key, in two groups");
	must(gpc_release(c, b, 2 * N));
	is_int((long long)stats_of(c, -1).refs, 1, "a reference for each");
	must(gpc_release(c, &one, 1));
	free(keys);
	free(b);
	cache_end(c);
}

/* ---- who may ---- */

static void test_cap(void)
{
	gpc *c = cache_new(8, 0);
	uint32_t i;

	ngroups = 2;
	all_live(c, 0, 16, 0, 2);
	all_live(c, 1, 16, 0, 2);
	for (i = 0; i < 32768; i++)
		must(gpc_ref(c, &group[1].key[1], &group[1].at[1], 1));
	is_int(match(c, 0, GPC_REF), 16, "a block that takes no more references ends it");
	release_all(c);
	is_int((long long)stats_of(c, -1).refs, 32768, "what is beyond is given back");
	group[1].key[0] = group[1].key[1];
	refused(match(c, 0, GPC_REF), EOVERFLOW, "nothing is left");
	is_int((long long)stats_of(c, -1).refs, 32768, "nothing is held");
	is_int(wrong_blocks(0), 0, "and no block named");
	for (i = 0; i < 32768; i++)
		must(gpc_release(c, &group[1].at[1], 1));
	cache_end(c);
}

static void test_read_only(void)
{
	gpc *c = cache_new(8, 0), *r = NULL;

	ngroups = 1;
	all_live(c, 0, 16, 17, 4);
	must(gpc_attach(cache_name, GPC_OPTIONS(gpc_attach_options, .dir = cache_dir), GPC_READONLY,
			&r));
	is_int(match(r, 0, 0), 64, "a read-only handle finds");
	is_int(wrong_blocks(64), 0, "the blocks");
	refused(match(r, 0, GPC_REF), EROFS, "and holds none");
	must(gpc_close(r));
	cache_end(c);
}

static void test_refused(void)
{
	gpc *c = cache_new(8, 0);
	gpc_key k[2] = { { { 0, 0 } } };
	gpc_block b[2] = { 5, 5 };
	struct gpc_group g[2] = { { .size = sizeof(g[0]), .n = 1, .keys = k, .blocks = b }, { 0 } };

	g[1] = g[0];
	refused(gpc_match_groups(c, 0, g, GPC_MAX_GROUPS + 1, NULL, 0), EINVAL, "too many groups");
	refused(gpc_match_groups(c, 0, NULL, 1, NULL, 0), EINVAL, "no array");
	refused(gpc_match_groups(c, 0, g, 2, NULL, GPC_DEVICE), EINVAL, "a flag");
	g[1].size += 8;
	refused(gpc_match_groups(c, 0, g, 2, NULL, 0), EINVAL, "sizes that differ");
	g[1] = g[0];
	g[1].block_tokens = 65537;
	refused(gpc_match_groups(c, 0, g, 2, NULL, 0), EINVAL, "blocks of too many tokens");
	g[1] = g[0];
	g[1].blocks = NULL;
	refused(gpc_match_groups(c, 0, g, 2, NULL, 0), EINVAL, "no blocks");
	ok(b[0] == 5 && b[1] == 5, "nothing was written");
	is_int(gpc_match_groups(c, 0, g, 1, NULL, 0), 0, "a key that is none");
	is_int(b[0], -1, "is not found");
	cache_end(c);
}

static int body(void)
{
	test_random();
	test_hybrid();
	test_large();
	test_cap();
	test_read_only();
	test_refused();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
