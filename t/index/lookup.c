/* SPDX-License-Identifier: Apache-2.0 */
/* Lookups in a table that the test fills: hits, misses, and what is neither.
 * Tests: lib/index/reader/probe.c lib/index/reader/probe_table.h lib/index/reader/lookup.c lib/index/segment/blocks.h */
#include "config.h"

#include "t/lib/four_pools.h"

/* By the path of single keys and as part of a group; -99 when they differ. */
static gpc_block find_in(uint32_t spaces, gpc_key key)
{
	gpc_key keys[5] = { made_key(1u << 20), made_key(2u << 20), key, key, made_key(3u << 20) };
	gpc_block blocks[5], one;
	struct probe l;

	probe_begin(&l, &f.c, spaces);
	one = probe_one(&l, &key);
	probe_group(&l, keys, 5, blocks);
	if (blocks[0] != -1 || blocks[1] != -1 || blocks[4] != -1)
		return -98;
	return blocks[2] == one && blocks[3] == one ? one : -99;
}

static gpc_block find(gpc_key key)
{
	return find_in(0, key);
}

static void test_places(void)
{
	gpc_key key = made_key(7);
	struct probe_entry *e;
	struct probe_key p;
	uint32_t i;

	begin();
	is_int(find(key), -1, "an empty table has nothing");
	p = made_probe(&f, 0, key);
	for (i = 0; i < SHM_BUCKET; i++) {
		e = made_fill(&f, p.first * SHM_BUCKET + i, p, VRAM + 100 + (int)i);
		is_int(find(key), VRAM + 100 + (int)i, "found in place %u", i);
		wipe(e);
	}
	e = made_fill(&f, p.second * SHM_BUCKET + 2, p, VRAM + 3);
	is_int(find(key), -1, "not looked for in the second bucket without the flag");
	f.table[p.first * SHM_BUCKET].w[2] |= PROBE_OVERFLOW;
	is_int(find(key), VRAM + 3, "with the flag it is");
	made_fill(&f, p.first * SHM_BUCKET + 0, p, RAM + 3);
	is_int(find(key), RAM + 3, "the first bucket comes first, flag or not");
	wipe(e);
	is_int(find(key), RAM + 3, "alone too");
	f.table[p.first * SHM_BUCKET].w[3] = 0;
	is_int(find(key), -1, "and nothing when both are gone");
	made_free(&f);
}

/* Each of the 88 stored bits decides. */
static void test_bits(void)
{
	gpc_key key = made_key(9);
	struct probe_entry *e;
	int bit, found = 0;

	begin();
	e = made_put(&f, 0, key, VRAM + 1);
	for (bit = 0; bit < 96; bit++) {
		if (bit >= 64 && bit < 72)
			continue; /* no key bits: flag and spare */
		e->w[bit / 32] ^= 1u << bit % 32;
		found += find(key) != -1;
		e->w[bit / 32] ^= 1u << bit % 32;
	}
	is_int(found, 0, "an entry with one bit of 88 different is another key's");
	e->w[2] ^= 0xfe;
	is_int(find(key), VRAM + 1, "the spare bits beside them do not matter");
	made_free(&f);
}

/* What a reader may see of an entry that is being written or wiped. */
static void test_torn(void)
{
	gpc_key key = made_key(11);
	struct probe_entry *e, whole;
	struct probe_key p;
	uint32_t i, part, wrong = 0;

	begin();
	p = made_probe(&f, 0, key);
	e = made_fill(&f, p.first * SHM_BUCKET + 1, p, VRAM + 8);
	whole = *e;
	for (part = 0; part < 15; part++) {
		for (i = 0; i < 4; i++)
			e->w[i] = part >> i & 1 ? whole.w[i] : 0;
		wrong += find(key) != -1;
	}
	is_int(wrong, 0, "parts of an entry are no entry");
	*e = whole;
	e->w[3] = 0;
	made_fill(&f, p.first * SHM_BUCKET + 2, p, VRAM + 9);
	is_int(find(key), VRAM + 9, "half an entry does not hide a whole one behind it");
	f.table[p.first * SHM_BUCKET + 2].w[3] = 0;
	is_int(find(key), -1, "two halves hide nothing");
	f.table[p.first * SHM_BUCKET].w[2] |= PROBE_OVERFLOW;
	made_fill(&f, p.second * SHM_BUCKET + 3, p, VRAM + 10);
	is_int(find(key), VRAM + 10, "not even what stands in the second bucket");
	made_free(&f);
}

static void test_spaces(void)
{
	gpc_key key = made_key(13), only = made_key(14);

	begin();
	made_put(&f, 1, key, OTHER + 1);
	is_int(find(key), OTHER + 1, "found wherever it is");
	is_int(find_in(GPC_SPACE(0), key), -1, "not in a space where it is not");
	is_int(find_in(GPC_SPACE(1), key), OTHER + 1, "but in its own");
	made_put(&f, 31, key, LAST + 2);
	is_int(find(key), OTHER + 1, "the lower space comes first");
	is_int(find_in(GPC_SPACE(31), key), LAST + 2, "unless it is not asked");
	made_put(&f, 0, key, VRAM + 3);
	is_int(find(key), VRAM + 3, "space 0 before all");
	is_int(find_in(GPC_SPACE(1) | GPC_SPACE(31), key), OTHER + 1, "a set, ascending");
	is_int(find_in(GPC_SPACE(7), key), -1, "a space without pools has nothing");
	is_int(find_in(~GPC_SPACE(0) & ~GPC_SPACE(1), key), LAST + 2, "and does not disturb");
	made_put(&f, 31, only, LAST + 9);
	is_int(find(only), LAST + 9, "the last of three");
	made_free(&f);
}

static void test_dead_pools(void)
{
	gpc_key key = made_key(15);
	struct probe_entry *e;
	struct probe_key p;

	begin();
	p = made_probe(&f, 0, key);
	made_fill(&f, p.first * SHM_BUCKET + 0, p, VRAM + 1);
	made_kill_pool(&f, 0);
	is_int(find(key), -1, "blocks of a dead pool are gone in one step");
	made_fill(&f, p.first * SHM_BUCKET + 3, p, RAM + 2);
	is_int(find(key), RAM + 2, "they hide no live one");
	f.table[p.first * SHM_BUCKET].w[2] |= PROBE_OVERFLOW;
	f.table[p.first * SHM_BUCKET + 3].w[3] = 0;
	e = made_fill(&f, p.second * SHM_BUCKET + 0, p, RAM + 3);
	is_int(find(key), RAM + 3, "in the second bucket neither");
	wipe(e);
	made_put(&f, 1, key, OTHER + 4);
	is_int(find(key), OTHER + 4, "nor in another space");
	made_add_pool(&f, 0, GPC_VRAM, 0, 0, 512);
	is_int(find(key), VRAM + 1, "a pool that is live is looked at");
	f.table[p.first * SHM_BUCKET].w[3] = (uint32_t)GPC_BLOCK(7, 1) + 1;
	is_int(find(key), OTHER + 4, "a number that no pool has counts as dead");
	f.table[p.first * SHM_BUCKET].w[3] = UINT32_MAX;
	is_int(find(key), OTHER + 4, "so does what is no block");
	made_free(&f);
}

/* A key may move to a pool that is younger than the call that looks for it. */
static void test_new_pool(void)
{
	gpc_key key = made_key(17), keys[2] = { key, key };
	gpc_block blocks[2];
	struct probe l;

	begin();
	probe_begin(&l, &f.c, 0);
	made_add_pool(&f, 4, GPC_VRAM, 0, 0, 4);
	made_put(&f, 0, key, GPC_BLOCK(4, 2));
	is_int(probe_one(&l, &key), GPC_BLOCK(4, 2), "one key: found in a pool added since");
	probe_group(&l, keys, 2, blocks);
	is_int(blocks[1], GPC_BLOCK(4, 2), "a group: too");
	made_free(&f);
}

/* A run lies on the caller's stack, where anything may have been before. */
static void test_no_space(void)
{
	gpc_key keys[2] = { made_key(17), made_key(18) };
	gpc_block blocks[2] = { 0, 0 };
	struct probe_part part;
	struct probe_run run;
	struct probe l;

	begin();
	probe_begin(&l, &f.c, GPC_SPACE(9));
	memset(&run, 0x5a, sizeof(run));
	probe_start(&run, &l, keys, 2);
	probe_first(&run, 0, 2, &part, blocks);
	probe_rest(&run, &part, blocks);
	ok(blocks[0] == -1 && blocks[1] == -1 && !part.hits,
	   "a space without pools: several keys are misses");
	made_free(&f);
}

/* ---- a full-size table against what was put into it ---- */

#define MANY 131072u /* keys put in, and as many that are not */

static gpc_key many_keys[2 * MANY];
static gpc_block truth[2 * MANY], answer[2 * MANY];

/* Number i's place in a random order of all, the missing ones among them. */
static uint32_t shuffled(uint32_t i)
{
	return (i * 0x9e3779b1u + 12345) % (2 * MANY);
}

static void fill_many(void)
{
	static const uint32_t space[4] = { 0, 0, 1, 31 };
	uint32_t i, at;
	gpc_block block;

	made_in_memory(&f, MANY, MANY / 2);
	for (i = 0; i < 4; i++)
		made_add_pool(&f, i, i & 1 ? GPC_RAM : GPC_VRAM, space[i], i * (MANY / 4),
			      MANY / 4);
	for (i = 0; i < 2 * MANY; i++) {
		at = shuffled(i);
		many_keys[at] = made_key(i + 1);
		truth[at] = -1;
		if (i >= MANY)
			continue;
		block = GPC_BLOCK((int)(i % 4), (int)(i / 4));
		made_live(&f, block, many_keys[at], 1);
		if (made_put(&f, space[i % 4], many_keys[at], block))
			truth[at] = block;
	}
}

static uint32_t differences(const gpc_block *a, const gpc_block *b, uint32_t n)
{
	uint32_t i, differ = 0;

	for (i = 0; i < n; i++)
		differ += a[i] != b[i];
	return differ;
}

static void compare_many(const char *when)
{
	struct probe l;
	uint32_t i, n, hits = 0;

	probe_begin(&l, &f.c, 0);
	for (i = 0; i < 2 * MANY; i++)
		answer[i] = probe_one(&l, &many_keys[i]);
	is_int(differences(answer, truth, 2 * MANY), 0, "%s: one by one", when);
	for (i = 0; i < 2 * MANY; i += n) {
		n = MIN(1 + i % PROBE_GROUP, 2 * MANY - i);
		probe_group(&l, many_keys + i, n, answer + i);
	}
	is_int(differences(answer, truth, 2 * MANY), 0, "%s: in groups of all sizes", when);
	memset(answer, 0, sizeof(answer));
	for (i = 0; i < 2 * MANY; i++)
		hits += truth[i] >= 0;
	is_int(gpc_lookup(&f.c, 0, many_keys, 2 * MANY, answer, 0), hits, "%s: in one call", when);
	is_int(differences(answer, truth, 2 * MANY), 0, "with the same answers");
}

static void test_many(void)
{
	uint32_t i, put = 0, spilled = 0;

	fill_many();
	for (i = 0; i < 2 * MANY; i++)
		put += truth[i] >= 0;
	for (i = 0; i < MANY / 2; i++)
		spilled += f.table[i * SHM_BUCKET].w[2] & PROBE_OVERFLOW;
	ok(put > MANY - MANY / 100 && spilled > MANY / 100,
	   "%u of %u keys are in, %u buckets overflow", put, MANY, spilled);
	compare_many("all pools");
	ok(f.seat->lookups == 2 * MANY && f.seat->hit_vram + f.seat->hit_ram == put &&
		   f.seat->miss == 2 * MANY - put,
	   "counted: hits and misses");
	made_kill_pool(&f, 0);
	for (i = 0; i < 2 * MANY; i++)
		if (truth[i] >= 0 && GPC_POOL(truth[i]) == 0)
			truth[i] = -1;
	compare_many("a pool died");
	made_free(&f);
}

static int body(void)
{
	test_places();
	test_bits();
	test_torn();
	test_spaces();
	test_dead_pools();
	test_new_pool();
	test_no_space();
	test_many();
	return done_testing();
}

int main(void)
{
	return tap_guard(50, body, NULL);
}
