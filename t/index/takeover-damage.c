/* SPDX-License-Identifier: Apache-2.0 */
/* Takeovers of a large cache with damage: of what its last writer left half done or wrong, in many
 * regions of the table at once and in records, nothing stays, and a pool that had gone is gone.
 * Tests: lib/index/takeover/live.c lib/index/takeover/table.c */
#include "index/takeover/takeover.h"

#include "t/lib/takes.h"

/* ---- damage ---- */

static uint8_t *index_of_hand;
static uint32_t buckets, missing; /* entries that are not there at first */

static struct probe_entry *entry(uint32_t slot)
{
	return SEG_AT(index_of_hand, c->seg.at.table, struct probe_entry, slot);
}

static struct shm_record *record(uint32_t at)
{
	return SEG_AT(index_of_hand, c->seg.at.record, struct shm_record, at);
}

/* Both pools are in space 0, one behind the other. */
static struct probe_key places(uint32_t at)
{
	const struct shm_record *r = record(at);

	return probe_prepare(r->key[0] ^ c->mask[0].w[0], r->key[1] ^ c->mask[0].w[1], buckets);
}

static bool is_blank(uint32_t slot)
{
	const struct probe_entry *e = entry(slot);

	return !(e->w[0] | e->w[1] | (e->w[2] & PROBE_KEY2) | e->w[3]);
}

static void set_entry(uint32_t slot, const struct probe_key *k, uint32_t word)
{
	struct probe_entry *e = entry(slot);

	*e = (struct probe_entry){ { k->w[0], k->w[1], k->w[2] | (e->w[2] & ~PROBE_KEY2), word } };
}

/* A slot of that region, blank or not. */
static uint32_t some_slot(uint32_t region, bool blank)
{
	uint32_t first = region * TAKEOVER_REGION, slot;

	do
		slot = (first + chance(MIN(TAKEOVER_REGION, buckets - first))) * SHM_BUCKET +
		       chance(SHM_BUCKET);
	while (is_blank(slot) != blank);
	return slot;
}

/* Its block, by number; or NOBODY, if another damage was here before. */
static int32_t block_in(uint32_t slot)
{
	uint32_t word = entry(slot)->w[3];
	gpc_block b = (gpc_block)(word - 1);

	if (!word || b < 0 || GPC_POOL(b) > 1 || at_of(b) >= SLOTS ||
	    WORD_STATE(record(at_of(b))->word) != LIVE)
		return NOBODY;
	return (int32_t)at_of(b);
}

static void lose_entry(uint32_t region)
{
	struct probe_entry *e = entry(some_slot(region, false));

	*e = (struct probe_entry){ { 0, 0, e->w[2] & PROBE_OVERFLOW, 0 } };
	missing++;
}

/* No writer sets bits that mean nothing: the entry is no entry. */
static void spoil_entry(uint32_t region)
{
	entry(some_slot(region, false))->w[2] |= 1u << (1 + chance(7));
	missing++;
}

static void add_second(uint32_t region)
{
	uint32_t slot = some_slot(region, false), other, i;
	int32_t at = block_in(slot);
	struct probe_key k;

	if (at == NOBODY)
		return;
	k = places((uint32_t)at);
	other = slot / SHM_BUCKET == k.first ? k.second : k.first;
	for (i = other * SHM_BUCKET; i < (other + 1) * SHM_BUCKET; i++)
		if (is_blank(i)) {
			set_entry(i, &k, entry(slot)->w[3]);
			entry(k.first * SHM_BUCKET)->w[2] |= PROBE_OVERFLOW;
			return;
		}
}

/* They name a block that is free, of no pool, beyond its pool, none at all, or one with another
 * key, or with this key elsewhere. */
static void add_nobody(uint32_t region, uint32_t kind)
{
	uint32_t slot = some_slot(region, true), at;
	struct probe_key k;

	do
		at = chance(SLOTS);
	while ((WORD_STATE(record(at)->word) == LIVE) != (kind > 3));
	k = places(at);
	switch (kind) {
	case 0:
		set_entry(slot, &k, (uint32_t)block_at(at) + 1);
		break;
	case 1:
		set_entry(slot, &k, (5u << 24 | 3) + 1);
		break;
	case 2:
		set_entry(slot, &k, VRAM + 5);
		break;
	case 3:
		set_entry(slot, &k, 0x80000000u + chance(1 << 30));
		break;
	case 4:
		k.w[0] ^= 2;
		set_entry(slot, &k, (uint32_t)block_at(at) + 1);
		break;
	default:
		if (slot / SHM_BUCKET != k.first && slot / SHM_BUCKET != k.second)
			set_entry(slot, &k, (uint32_t)block_at(at) + 1);
	}
}

static void add_half(uint32_t region)
{
	struct probe_entry *e = entry(some_slot(region, true));

	e->w[chance(2)] = 1 + chance(1000);
	if (chance(2))
		e->w[2] |= (1 + chance(1000)) << 8;
}

static void turn_flag(uint32_t region)
{
	entry(some_slot(region, chance(2)) / SHM_BUCKET * SHM_BUCKET)->w[2] ^= PROBE_OVERFLOW;
}

static void damage_table(void)
{
	uint32_t region, regions = (buckets + TAKEOVER_REGION - 1) / TAKEOVER_REGION, i;

	missing = 0;
	for (region = 0; region < regions; region++) {
		for (i = 0; i < 8; i++)
			turn_flag(region);
		if (region % 3 == 0) /* nothing else, as nearly always */
			continue;
		for (i = 0; i < 6; i++) {
			if (region % 3 == 1)
				lose_entry(region);
			add_nobody(region, i);
			add_second(region);
			add_half(region);
		}
		spoil_entry(region);
	}
	ok(missing > regions, "damage in regions of the table, %u", (unsigned)regions);
}

/* `before` without this one and what hangs below it. */
static void expect_gone(int32_t at)
{
	int32_t child;

	before[at].live = false;
	for (child = now[at].first; child != NOBODY; child = now[child].next)
		expect_gone(child);
}

static void damage_records(void)
{
	uint32_t i, at, n = count_live(before, 0, SLOTS);

	for (i = 0; i < 60; i++) {
		do
			at = chance(SLOTS);
		while (!before[at].live);
		if (i % 2)
			record(at)->check ^= 1 + chance(1000);
		else
			record(at)->word = WORD(FREE, WORD_GEN(record(at)->word) + 1);
		expect_gone((int32_t)at);
	}
	ok(count_live(before, 0, SLOTS) < n - 60, "records that are wrong, and lost: %u must go",
	   (unsigned)(n - count_live(before, 0, SLOTS)));
}

static void test_damage(void)
{
	int section;

	settle(c);
	walk(now);
	memcpy(before, now, sizeof(before));
	link_model();
	must(gpc_writer_drop(c));
	must(segment_map_writer(&c->seg, &index_of_hand));
	buckets = c->seg.header.geometry.buckets;
	damage_table();
	damage_records();
	segment_unmap_writer(&c->seg, index_of_hand);
	section = must(gpc_section_enter(d));
	take_by(4);
	is_as_before(false, "damaged");
	is_found(missing, "before its first grace period");
	gpc_section_leave(d, section);
	recover();
	clean(c, "damage");
	is_as_before(false, "damaged");
	is_found(0, "after it");
	evict(8000, "of the others");
	clean(c, "fewer");
}

/* ---- a pool that had gone ---- */

/* The RAM pool goes in one step, which its writer had made when it died. */
static void test_dead_pool(void)
{
	uint32_t n;

	fill(200, 100);
	walk(before);
	n = count_live(before, VRAM, SLOTS);
	ok(n > 30000, "%u blocks in RAM", (unsigned)n);
	memset(before + VRAM, 0, (SLOTS - VRAM) * sizeof(*before));
	must(gpc_writer_drop(c));
	must(segment_map_writer(&c->seg, &index_of_hand));
	SEG_AT(index_of_hand, c->seg.at.state, struct shm_state, 0)->live_pools[0] &= ~2ull;
	segment_unmap_writer(&c->seg, index_of_hand);
	ram_is_gone = true;
	take_by(4);
	recover();
	clean(c, "a pool that had gone");
	is_as_before(false, "the other pool");
	is_found(0, "the other pool");
	must(gpc_writer_serve(c, 50));
	must(gpc_writer_serve(c, 50));
	is_int(info_of(c).pools, 1, "the pool is no more");
}

static int body(void)
{
	trees_begin();
	test_damage();
	test_dead_pool();
	nothing_stays();
	trees_end();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(200, body, cache_dir_remove);
}
