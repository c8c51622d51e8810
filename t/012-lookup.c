/* SPDX-License-Identifier: Apache-2.0 */
/* Lookups in a table that the test fills: hits, misses, and what is neither. */
#include "config.h"

#include <errno.h>

#include "t/lib/made.h"
#include "t/lib/tap.h"

#define BUCKETS 1024u
#define VRAM GPC_BLOCK(0, 0)             /* pools 0 and 1: space 0, 512 blocks each */
#define RAM  GPC_BLOCK(1, 0)
#define OTHER GPC_BLOCK(2, 0)            /* pool 2: VRAM of space 1 */
#define LAST GPC_BLOCK(3, 0)             /* pool 3: RAM of space 31 */

static struct made f;

static void begin(void)
{
	made_in_memory(&f, 2048, BUCKETS);
	made_add_pool(&f, 0, GPC_VRAM, 0, 0, 512);
	made_add_pool(&f, 1, GPC_RAM, 0, 512, 512);
	made_add_pool(&f, 2, GPC_VRAM, 1, 1024, 512);
	made_add_pool(&f, 3, GPC_RAM, 31, 1536, 512);
}

/* By the path of single keys and as part of a group; -99 when they differ. */
static gpc_block find_in(uint32_t spaces, gpc_key key)
{
	gpc_key keys[5] = { made_key(1u << 20), made_key(2u << 20), key, key,
			    made_key(3u << 20) };
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

static void wipe(struct probe_entry *e)
{
	memset(e, 0, sizeof(*e));
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
			continue;                /* no key bits: flag and spare */
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
	is_int(find_in(~GPC_SPACE(0) & ~GPC_SPACE(1), key), LAST + 2,
	       "and does not disturb");
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
	is_int(probe_one(&l, &key), GPC_BLOCK(4, 2),
	       "one key: found in a pool added since");
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

#define MANY 131072u                     /* keys put in, and as many that are not */

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
	is_int(differences(answer, truth, 2 * MANY), 0,
	       "%s: in groups of all sizes", when);
	memset(answer, 0, sizeof(answer));
	for (i = 0; i < 2 * MANY; i++)
		hits += truth[i] >= 0;
	is_int(gpc_lookup(&f.c, 0, many_keys, 2 * MANY, answer, 0), hits,
	       "%s: in one call", when);
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
	   f.seat->miss == 2 * MANY - put, "counted: hits and misses");
	made_kill_pool(&f, 0);
	for (i = 0; i < 2 * MANY; i++)
		if (truth[i] >= 0 && GPC_POOL(truth[i]) == 0)
			truth[i] = -1;
	compare_many("a pool died");
	made_free(&f);
}

/* ---- the calls ---- */

static gpc_key key[300];
static gpc_block got[300];

/* n chained keys: the first `vram` in VRAM, the others in RAM */
static void chain(uint32_t n, uint32_t vram)
{
	uint32_t i;

	for (i = 0; i < ARRAY_SIZE(key); i++) {
		key[i] = made_key(1000 + i);
		got[i] = 77;
		if (i < n && !made_publish_key(&f, i < vram ? VRAM + (int)i : RAM + (int)i,
					       key[i]))
			bail("the table is too full for the test");
	}
}

static void are_counted(uint64_t lookups, uint64_t vram, uint64_t ram, const char *what)
{
	ok(f.seat->lookups == lookups && f.seat->hit_vram == vram &&
	   f.seat->hit_ram == ram && f.seat->miss == lookups - vram - ram,
	   "%s: %d asked, %d and %d found", what, (int)lookups, (int)vram, (int)ram);
}

static uint32_t stamped(uint64_t tick)
{
	uint32_t i, n = 0;

	for (i = 0; i < 2048; i++)
		n += STAMP_TICK(*seg_stamp(&f.c.seg, i)) == tick;
	return n;
}

static uint32_t open_sections(void)
{
	uint32_t i, n = 0;

	for (i = 0; i < SHM_SECTIONS; i++)
		n += epoch_is_open(seg_section(&f.c.seg, 0, i));
	return n;
}

static void test_arguments(void)
{
	uint32_t start[3] = { 0, 1, 0 }, len[3] = { 9, 9, 9 };

	begin();
	chain(10, 10);
	is_int(gpc_lookup(NULL, 0, key, 1, got, 0), -EINVAL, "lookup: NULL handle");
	is_int(gpc_lookup(&f.c, 0, NULL, 1, got, 0), -EINVAL, "lookup: NULL keys");
	is_int(gpc_lookup(&f.c, 0, key, 1, NULL, 0), -EINVAL, "lookup: NULL blocks");
	is_int(gpc_lookup(&f.c, 0, NULL, 0, NULL, 0), 0, "lookup: nothing of nothing");
	is_int(gpc_lookup(&f.c, 0, key, 1u << 31, got, 0), -EINVAL, "lookup: too many");
	is_int(gpc_lookup(&f.c, 0, key, 1, got, GPC_TAKE), -EINVAL,
	       "lookup: unknown flag");
	is_int(gpc_acquire(&f.c, 0, key, 1, got, GPC_REF), -EINVAL,
	       "acquire: unknown flag");
	is_int(gpc_acquire(&f.c, 0, NULL, 1, got, 0), -EINVAL, "acquire: NULL keys");
	is_int(gpc_acquire(&f.c, 0, key, UINT32_MAX, got, 0), -EINVAL,
	       "acquire: too many");
	is_int(gpc_acquire(&f.c, 0, NULL, 0, NULL, 0), 0, "acquire: nothing of nothing");
	is_int(gpc_match(&f.c, 0, key, start, 1, len, got, GPC_REF), -EINVAL,
	       "match: unknown flag");
	is_int(gpc_match(&f.c, 0, key, NULL, 1, len, got, 0), -EINVAL,
	       "match: NULL start");
	is_int(gpc_match(&f.c, 0, key, start, 1, NULL, got, 0), -EINVAL,
	       "match: NULL len");
	is_int(gpc_match(&f.c, 0, NULL, start, 1, len, got, 0), -EINVAL,
	       "match: NULL keys");
	is_int(gpc_match(&f.c, 0, key, start, 2, len, got, 0), -EINVAL,
	       "match: descending");
	start[1] = start[2] = 1u << 31;
	is_int(gpc_match(&f.c, 0, key, start, 2, len, got, 0), -EINVAL,
	       "match: too many");
	is_int(gpc_match(&f.c, 0, NULL, NULL, 0, NULL, NULL, 0), 0, "match: no sequence");
	ok(got[0] == 77 && len[0] == 9, "outputs are untouched");
	are_counted(0, 0, 0, "refused calls");
	is_int(open_sections(), 0, "and no section is left open");
	made_free(&f);
}

static void test_lookup(void)
{
	uint64_t tick;
	uint32_t i;

	begin();
	chain(150, 100);
	is_int(gpc_lookup(&f.c, 0, key, 200, got, 0), 150, "150 of 200");
	for (i = 0; i < 150 && got[i] == (i < 100 ? VRAM : RAM) + (int)i; i++)
		;
	while (i < 200 && got[i] == -1)
		i++;
	is_int(i, 200, "each block is the right one");
	is_int(got[200], 77, "and nothing is written behind them");
	are_counted(200, 100, 50, "lookup");
	tick = f.line->tick;
	is_int(stamped(tick), 150, "hits are used, all at one tick");
	is_int(gpc_lookup(&f.c, 0, key + 149, 1, got, 0), 1, "a single key");
	is_int(stamped(tick + 1), 1, "is a use as well");
	is_int(gpc_lookup(&f.c, 0, key + 150, 100, got, 0), 0, "misses");
	is_int((long long)(f.line->tick - tick), 1, "touch nothing and take no tick");
	are_counted(301, 100, 51, "lookup");

	is_int(gpc_lookup(&f.c, 0, key, 200, got, GPC_QUIET | GPC_ANYWHERE), 150,
	       "quiet");
	are_counted(301, 100, 51, "quiet lookup");
	is_int((long long)(f.line->tick - tick), 1, "no tick");
	f.pool[1].range = 512ull << 32 | 120;
	is_int(gpc_lookup(&f.c, 0, key, 200, got, 0), 120,
	       "slots that a pool has not are misses");
	ok(got[119] == RAM + 119 && got[120] == -1, "from the first on");
	is_int(open_sections(), 0, "no section is left open");
	made_free(&f);
}

static void test_sections_used_up(void)
{
	int i, slot[SHM_SECTIONS];

	begin();
	chain(5, 5);
	for (i = 0; i < (int)SHM_SECTIONS; i++)
		slot[i] = handle_enter(&f.c);
	is_int(gpc_lookup(&f.c, 0, key, 5, got, 0), -EAGAIN, "no section left: -EAGAIN");
	is_int(got[0], 77, "outputs are untouched");
	handle_leave(&f.c, slot[30]);
	is_int(gpc_acquire(&f.c, 0, key, 5, got, 0), 5, "one is enough");
	made_free(&f);
}

static void test_readonly(void)
{
	uint64_t bytes, sum;
	uint32_t start[2] = { 0, 20 }, len;

	begin();
	chain(20, 10);
	f.c.readonly = true;
	f.c.peer = SHM_NO_PEER;
	bytes = f.c.seg.at.control_bytes;
	sum = key_checksum(f.c.seg.control, bytes);
	is_int(gpc_lookup(&f.c, 0, key, 30, got, 0), 20, "read-only: lookup");
	is_int(gpc_lookup(&f.c, 0, key, 1, got, 0), 1, "read-only: of one");
	is_int(gpc_match(&f.c, 0, key, start, 1, &len, got, 0), 20, "read-only: match");
	ok(key_checksum(f.c.seg.control, bytes) == sum, "and nothing is written");
	is_int(gpc_lookup(&f.c, 0, key, 1, got, GPC_REF), -EROFS, "no references");
	is_int(gpc_acquire(&f.c, 0, key, 1, got, 0), -EROFS, "at all");
	made_free(&f);
}

static void test_lookup_ref(void)
{
	uint32_t i, cells = 0;

	begin();
	chain(100, 60);
	is_int(gpc_lookup(&f.c, 0, key, 120, got, GPC_REF), 100,
	       "a reference on every hit");
	for (i = 0; i < 2048; i++)
		cells += *refs_cell(&f.c, i);
	is_int(cells, 100, "and on nothing else");
	ok(f.seat->refs == 100 && f.seat->in_use[0] == 60 && f.seat->in_use[1] == 40,
	   "counted");
	f.record[10].word = WORD(DYING, 1);
	*refs_cell(&f.c, 20) = REF_CAP;
	is_int(gpc_lookup(&f.c, 0, key, 120, got, GPC_REF | GPC_QUIET), 98,
	       "a dying block and one at the cap are misses");
	ok(got[10] == -1 && got[20] == -1 && got[19] == VRAM + 19, "these and no others");
	ok(*refs_cell(&f.c, 10) == 1 && *refs_cell(&f.c, 20) == REF_CAP,
	   "cells as they were");
	is_int((long long)f.seat->stale_refs, 0, "quiet");
	is_int(gpc_lookup(&f.c, 0, key, 120, got, GPC_REF), 98, "once more");
	is_int((long long)f.seat->stale_refs, 1, "the stale one is counted");
	are_counted(240, 118, 80, "lookup with references");
	made_free(&f);
}

static void test_acquire(void)
{
	static const uint32_t lengths[] = { 0, 1, 2, 63, 64, 65, 128, 130 };
	uint64_t refs = 0, asked = 0;
	uint32_t i, n;

	for (i = 0; i < ARRAY_SIZE(lengths); i++) {
		n = lengths[i];
		begin();
		chain(n, n / 2);
		made_publish_key(&f, VRAM + 500, key[n + 1]);
		is_int(gpc_acquire(&f.c, 0, key, 200, got, 0), n, "a prefix of %u", n);
		ok((!n || got[n - 1] == RAM + (int)n - 1) && got[n] == 77 &&
		   got[n + 1] == 77,
		   "blocks past it are untouched");
		are_counted(200, n / 2, n - n / 2, "acquire");
		is_int(f.seat->refs, n, "all referenced");
		is_int(stamped(f.line->tick ? f.line->tick : 99), n, "all at one tick");
		made_free(&f);
	}

	begin();
	chain(130, 130);
	is_int(gpc_acquire(&f.c, 0, key, 64, got, GPC_QUIET), 64,
	       "no further than asked");
	is_int(gpc_acquire(&f.c, 0, key, 130, got, GPC_QUIET), 130, "to the very end");
	refs += 64 + 130;
	is_int(f.seat->refs, refs, "references are counted");
	is_int(f.seat->lookups, asked, "quiet calls are not");
	f.record[70].word = WORD(DYING, 1);
	got[70] = 77;
	is_int(gpc_acquire(&f.c, 0, key, 130, got, 0), 70, "cut where a reference fails");
	ok(got[70] == 77 && *refs_cell(&f.c, 71) == 1, "nothing is taken behind it");
	is_int(f.seat->stale_refs, 1, "counted as stale");
	*refs_cell(&f.c, 5) = REF_CAP;
	is_int(gpc_acquire(&f.c, 0, key, 130, got, 0), 5, "cut at the cap");
	is_int(gpc_acquire(&f.c, 0, key + 5, 10, got, 0), -EOVERFLOW,
	       "an error at the first");
	is_int(f.seat->refs, refs + 75, "no reference is lost");
	is_int(open_sections(), 0, "no section is left open");
	made_free(&f);
}

static void test_match(void)
{
	uint32_t start[6] = { 3, 3, 13, 100, 180, 280 }, len[5], i;

	begin();
	chain(250, 100);
	wipe(made_put(&f, 0, made_key(5), VRAM));        /* a place that was used */
	f.record[150].word = WORD(DYING, 1);
	is_int(gpc_match(&f.c, 0, key, start, 5, len, got, 0), 0 + 10 + 87 + 80 + 70,
	       "the sum of all");
	ok(len[0] == 0 && len[1] == 10 && len[2] == 87 && len[3] == 80 && len[4] == 70,
	   "an empty one, whole ones, and one that is cut");
	for (i = 3; i < 250 && got[i] == (i < 100 ? VRAM : RAM) + (int)i; i++)
		;
	is_int(i, 250, "blocks are indexed like keys");
	ok(got[2] == 77 && got[250] == 77, "only the matched part is written");
	are_counted(277, 97, 150, "match");
	is_int(stamped(f.line->tick), 247, "all hits at one tick");
	is_int(f.seat->refs, 0, "no references: these are hints");
	is_int(gpc_match(&f.c, 0, key, start, 5, len, NULL, GPC_QUIET), 247,
	       "without blocks");
	is_int(gpc_match(&f.c, GPC_SPACE(1), key, start, 5, len, NULL, 0), 0,
	       "another space");
	is_int(len[4], 0, "has nothing");
	made_free(&f);
}

/* A sequence that begins in one space and goes on in another. */
static void test_match_spaces(void)
{
	uint32_t start[2] = { 0, 120 }, len, i;

	begin();
	chain(50, 50);
	for (i = 30; i < 110; i++)
		made_publish_key(&f, LAST + (int)i, key[i]);
	is_int(gpc_match(&f.c, 0, key, start, 1, &len, got, 0), 110,
	       "on through another space");
	ok(got[49] == VRAM + 49 && got[50] == LAST + 50,
	   "the lowest space as far as it goes");
	is_int(gpc_acquire(&f.c, 0, key, 120, got, 0), 110, "acquire: the same");
	ok(f.seat->in_use[0] == 50 && f.seat->in_use[3] == 60, "of both pools");
	is_int(gpc_acquire(&f.c, GPC_SPACE(31), key, 120, got, 0), 0,
	       "a prefix begins at 0");
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
	test_arguments();
	test_lookup();
	test_sections_used_up();
	test_readonly();
	test_lookup_ref();
	test_acquire();
	test_match();
	test_match_spaces();
	return done_testing();
}

int main(void)
{
	return tap_guard(50, body, NULL);
}
