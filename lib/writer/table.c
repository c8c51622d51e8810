/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - the writer's side of the table.
 *
 * What readers are promised: a key that is live before they start and stays so is found in at
 * most two buckets, whatever the writer does meanwhile.
 *
 *   publish    fill an empty entry of the first bucket; else set the first bucket's flag,
 *              then fill one of the second                                  (rule T3)
 *   unpublish  wipe every entry that names the block; a wiped entry is filled again only
 *              after flush and grace period, so a torn read is the entry or a miss
 *   relocate   copy to the other bucket; flush, grace period; wipe the old one; flush, grace
 *              period; only then is the old place used                      (rule T1)
 *
 * A plain move loses keys: a reader that has passed the new place before the copy and comes
 * to the old one after the wipe finds neither. */
#include "config.h"

#include <stdlib.h>
#include "writer/grace.h"
#include "writer/memory.h"
#include "writer/mirror.h"
#include "writer/retire.h"
#include "writer/table.h"

#define MAX_MOVES 3                      /* length of a chain of relocations */

void table_prefetch(struct writer *w, const struct probe_key *k, bool place)
{
	__builtin_prefetch(&w->table[k->first * SHM_BUCKET], 1);
	__builtin_prefetch(&w->retired_slots[k->first], 1);
	if (place)                       /* every fourth one fills its first bucket up */
		__builtin_prefetch(&w->table[k->second * SHM_BUCKET], 1);
}

/* May a key be in its second bucket as well as in its first?  The flag is never missing (rule T3): a takeover
 * sets it before it looks for anything. */
static bool spills(struct writer *w, const struct probe_key *k)
{
	return w->table[k->first * SHM_BUCKET].w[2] & PROBE_OVERFLOW;
}

static uint32_t slot_block_word(struct writer *w, uint32_t slot)
{
	return load_relaxed(&w->table[slot].w[3]);
}

static void entry_changed(struct writer *w, uint32_t slot)
{
	struct shm_state *st = w_state(w);

	store_relaxed(&st->changes, st->changes + 1);
	mirror_dirty(w, slot);
}

/* Only an empty entry that is usable again: see table_slot_usable(). */
static void entry_fill(struct writer *w, uint32_t slot, const struct probe_key *k,
		       uint32_t block_word)
{
	struct probe_entry *e = &w->table[slot];

	store_relaxed(&e->w[0], k->w[0]);
	store_relaxed(&e->w[1], k->w[1]);
	store_relaxed(&e->w[2], k->w[2] | (e->w[2] & PROBE_OVERFLOW));
	/* (H) key words before the block word; pairs with the entry load of reader/probe.c.  If we
	 * die before it, a successor finds key words without a block and wipes them;
	 * model/relocate.pml. */
	store_release(&e->w[3], block_word);
	entry_changed(w, slot);
}

void table_wipe(struct writer *w, uint32_t slot)
{
	struct probe_entry *e = &w->table[slot];

	/* the block word first: a reader sees the entry, or an empty one */
	store_release(&e->w[3], 0);
	store_relaxed(&e->w[0], 0);
	store_relaxed(&e->w[1], 0);
	store_relaxed(&e->w[2], e->w[2] & TABLE_FLAGS(slot));
	entry_changed(w, slot);
	w->retired_slots[slot / SHM_BUCKET] |= (uint8_t)(1u << slot % SHM_BUCKET);
	grace_slot(w, slot);
}

void table_set_flag(struct writer *w, uint32_t bucket)
{
	struct probe_entry *e = &w->table[bucket * SHM_BUCKET];

	if (e->w[2] & PROBE_OVERFLOW)
		return;
	/* (I) the flag stands before the spilled copy does (entry_fill is a release) */
	store_release(&e->w[2], e->w[2] | PROBE_OVERFLOW);
	entry_changed(w, bucket * SHM_BUCKET);
}

void table_clear_spare_flag(struct writer *w, uint32_t bucket)
{
	struct probe_entry *e = &w->table[bucket * SHM_BUCKET];

	if (w->spilled[bucket] || !(e->w[2] & PROBE_OVERFLOW))
		return;
	store_release(&e->w[2], e->w[2] & ~PROBE_OVERFLOW);
	entry_changed(w, bucket * SHM_BUCKET);
}

static void spilled_less(struct writer *w, uint32_t bucket)
{
	if (w->spilled[bucket])
		w->spilled[bucket]--;
	table_clear_spare_flag(w, bucket);
}

void table_slot_usable(struct writer *w, uint32_t slot)
{
	w->retired_slots[slot / SHM_BUCKET] &= (uint8_t)~(1u << slot % SHM_BUCKET);
	w->progress = true;
}

/* Bit i: slot i of the bucket has this value as its word number `at`, 0 or 3.  Without branches, which would
 * be mispredicted. */
static inline uint32_t match(struct writer *w, uint32_t bucket, int at, uint32_t value)
{
	const struct probe_entry *e = &w->table[bucket * SHM_BUCKET];

	_Static_assert(SHM_BUCKET == 4, "four are looked at");
#ifdef ORDER_VECTORS
	const __m128i *v = (const __m128i *)(const void *)e;
	__m128i a = at ? _mm_unpackhi_epi32(v[0], v[1]) : _mm_unpacklo_epi32(v[0], v[1]);
	__m128i b = at ? _mm_unpackhi_epi32(v[2], v[3]) : _mm_unpacklo_epi32(v[2], v[3]);

	a = at ? _mm_unpackhi_epi64(a, b) : _mm_unpacklo_epi64(a, b);
	a = _mm_cmpeq_epi32(a, _mm_set1_epi32((int)value));
	return (uint32_t)_mm_movemask_ps(_mm_castsi128_ps(a));
#else
	return (uint32_t)(load_relaxed(&e[0].w[at]) == value) |
	       (uint32_t)(load_relaxed(&e[1].w[at]) == value) << 1 |
	       (uint32_t)(load_relaxed(&e[2].w[at]) == value) << 2 |
	       (uint32_t)(load_relaxed(&e[3].w[at]) == value) << 3;
#endif
}

/* Those that name this block word, or none. */
static inline uint32_t slots_with(struct writer *w, uint32_t bucket, uint32_t word)
{
	return match(w, bucket, 3, word);
}

/* Bit i: slot i can be filled. */
static inline uint32_t usable_slots(struct writer *w, uint32_t bucket)
{
	uint32_t q = w->retired_slots[bucket];

	return slots_with(w, bucket, 0) & ~(q | q >> 4);
}

static uint32_t free_slot(struct writer *w, uint32_t bucket)
{
	uint32_t usable = usable_slots(w, bucket);

	return usable ? bucket * SHM_BUCKET + (uint32_t)__builtin_ctz(usable) : NONE;
}

/* Record that an occupied slot names.  The writer alone fills the table, and takeover has
 * wiped what did not name a LIVE block. */
static uint32_t slot_record(struct writer *w, uint32_t slot)
{
	uint32_t word = slot_block_word(w, slot);

	return word ? w_find_record(w, (gpc_block)(word - 1)) : NONE;
}

static struct relocation *relocation_of(struct writer *w, uint32_t record)
{
	struct relocation *r;

	for (r = w->relocations; r && r->record != record; r = r->next)
		;
	return r;
}

static void relocation_start(struct writer *w, uint32_t record, uint32_t from, uint32_t to)
{
	struct probe_key k = table_key(w, record);
	struct relocation *r = writer_alloc(1, sizeof(*r));

	if (to / SHM_BUCKET == k.second) {
		table_set_flag(w, k.first);
		w->spilled[k.first]++;
	}
	entry_fill(w, to, &k, slot_block_word(w, from));
	*r = (struct relocation){ .next = w->relocations, .batch = grace_open(w),
				  .record = record, .from = from, .to = to };
	r->batch->moves = true;
	w->relocations = r;
	w_state(w)->relocated++;
}

/* The records of a bucket, and then the buckets that these could go to, all together. */
static void prefetch_ways(struct writer *w, uint32_t bucket)
{
	uint32_t record[SHM_BUCKET], i;
	struct probe_key k;

	for (i = 0; i < SHM_BUCKET; i++) {
		record[i] = slot_record(w, bucket * SHM_BUCKET + i);
		if (record[i] != NONE)
			__builtin_prefetch(w_record(w, record[i]));
	}
	for (i = 0; i < SHM_BUCKET; i++)
		if (record[i] != NONE) {
			k = table_key(w, record[i]);
			__builtin_prefetch(&w->table[(k.first == bucket ? k.second : k.first) * SHM_BUCKET], 1);
		}
}

/* Start the last move of a chain that ends up making room in this bucket. */
static bool relocate_from(struct writer *w, uint32_t bucket, int moves)
{
	uint32_t i, slot, record, other, to;
	struct probe_key k;

	prefetch_ways(w, bucket);
	for (i = 0; i < SHM_BUCKET; i++) {
		slot = bucket * SHM_BUCKET + i;
		record = slot_record(w, slot);
		if (record == NONE || relocation_of(w, record))
			continue;
		k = table_key(w, record);
		other = k.first == bucket ? k.second : k.first;
		to = free_slot(w, other);
		if (to != NONE) {
			relocation_start(w, record, slot, to);
			return true;
		}
	}
	if (moves <= 1)
		return false;
	for (i = 0; i < SHM_BUCKET; i++) {
		record = slot_record(w, bucket * SHM_BUCKET + i);
		if (record == NONE || relocation_of(w, record))
			continue;
		k = table_key(w, record);
		if (relocate_from(w, k.first == bucket ? k.second : k.first, moves - 1))
			return true;
	}
	return false;
}

/* Will a place of this bucket become usable by itself? */
static bool room_is_coming(struct writer *w, uint32_t bucket)
{
	const struct relocation *r;

	if (w->retired_slots[bucket])
		return true;
	for (r = w->relocations; r; r = r->next)
		if (r->from / SHM_BUCKET == bucket)
			return true;
	return false;
}

/* Are both buckets of a key full when this slot is?  Asked before it is filled: a load of four words stalls
 * behind four stores to them. */
static bool fills_up(struct writer *w, const struct probe_key *k, uint32_t slot)
{
	uint32_t bit = 1u << slot % SHM_BUCKET;

	if (slot / SHM_BUCKET == k->first)
		return usable_slots(w, k->first) == bit && !usable_slots(w, k->second);
	return usable_slots(w, k->second) == bit && !usable_slots(w, k->first);
}

/* Begin to make room before the next key needs it. */
static void relocate_ahead(struct writer *w, const struct probe_key *k)
{
	if (!room_is_coming(w, k->first) && !room_is_coming(w, k->second))
		relocate_from(w, k->first, 1);
}

int table_place(struct writer *w, const struct probe_key *k, uint32_t *ret_slot)
{
	*ret_slot = free_slot(w, k->first);
	if (*ret_slot == NONE)
		*ret_slot = free_slot(w, k->second);
	if (*ret_slot != NONE)
		return TABLE_OK;
	if (room_is_coming(w, k->first) || room_is_coming(w, k->second) ||
	    relocate_from(w, k->first, MAX_MOVES) || relocate_from(w, k->second, MAX_MOVES))
		return TABLE_WAIT;
	w_state(w)->no_bucket++;
	return TABLE_FULL;
}

void table_fill(struct writer *w, uint32_t record, const struct probe_key *k, uint32_t slot)
{
	bool full = fills_up(w, k, slot);

	if (slot / SHM_BUCKET == k->second) {
		table_set_flag(w, k->first);
		w->spilled[k->first]++;
	}
	entry_fill(w, slot, k, (uint32_t)w_block(w, record) + 1);
	if (full)
		relocate_ahead(w, k);
}

/* The copies of this batch have been seen by everybody: wipe the old places. */
void table_copies_done(struct writer *w, struct batch *b)
{
	struct relocation **at = &w->relocations, *r;
	struct probe_key k;

	while ((r = *at) != NULL) {
		if (r->batch != b) {
			at = &r->next;
			continue;
		}
		*at = r->next;
		k = table_key(w, r->record);
		table_wipe(w, r->from);
		if (r->from / SHM_BUCKET == k.second)
			spilled_less(w, k.first);
		free(r);
		w->progress = true;
	}
}

/* Bit i: slot i of the first bucket names this block word; from bit SHM_BUCKET on, of the second (rule T2).
 * Two entries of one block are those of a relocation that is under way, a dead writer's included. */
static uint32_t entries_of(struct writer *w, const struct probe_key *k, uint32_t word)
{
	uint32_t found = slots_with(w, k->first, word);

	if (found && !w->relocations && !w_state(w)->recovering)
		return found;
	if (spills(w, k))
		found |= slots_with(w, k->second, word) << SHM_BUCKET;
	return found;
}

static uint32_t entry_slot(const struct probe_key *k, uint32_t bit)
{
	return (bit < SHM_BUCKET ? k->first : k->second) * SHM_BUCKET + bit % SHM_BUCKET;
}

static void rename_entry(struct writer *w, uint32_t slot, uint32_t word)
{
	/* (J) one store: the same key, another block */
	store_release(&w->table[slot].w[3], word);
	entry_changed(w, slot);
}

void table_remove(struct writer *w, uint32_t record)
{
	struct probe_key k = table_key(w, record);
	uint32_t word = (uint32_t)w_block(w, record) + 1;
	uint32_t found = entries_of(w, &k, word), bit;
	struct relocation **at = &w->relocations, *r;

	while ((r = *at) != NULL)        /* rule T2 */
		if (r->record == record) {
			*at = r->next;
			free(r);
		} else {
			at = &r->next;
		}
	for (; found; found &= found - 1) {
		bit = (uint32_t)__builtin_ctz(found);
		table_wipe(w, entry_slot(&k, bit));
		if (bit >= SHM_BUCKET)
			spilled_less(w, k.first);
	}
}

void table_retier(struct writer *w, uint32_t from, uint32_t to)
{
	struct probe_key k = table_key(w, from);
	uint32_t found = entries_of(w, &k, (uint32_t)w_block(w, from) + 1);
	struct relocation *r;

	/* both copies of a relocation in flight are renamed, so it goes on (rule T2) */
	for (r = w->relocations; r; r = r->next)
		if (r->record == from)
			r->record = to;
	for (; found; found &= found - 1)
		rename_entry(w, entry_slot(&k, (uint32_t)__builtin_ctz(found)),
			     (uint32_t)w_block(w, to) + 1);
}

bool table_has(struct writer *w, uint32_t record)
{
	struct probe_key k = table_key(w, record);

	return entries_of(w, &k, (uint32_t)w_block(w, record) + 1) != 0;
}

uint32_t table_find(struct writer *w, uint32_t space, const gpc_key *key)
{
	struct probe_key k = table_ready(w, space, key->w);

	return table_find_ready(w, space, key, &k);
}

uint32_t table_find_ready(struct writer *w, uint32_t space, const gpc_key *key, const struct probe_key *k)
{
	uint32_t found = match(w, k->first, 0, k->w[0]), record;
	const struct shm_record *r;

	if (spills(w, k))
		found |= match(w, k->second, 0, k->w[0]) << SHM_BUCKET;
	for (; found; found &= found - 1) {
		uint32_t slot = entry_slot(k, (uint32_t)__builtin_ctz(found));
		gpc_block b = probe_entry_block(w->table[slot], *k);

		record = b < 0 ? NONE : w_find_record(w, b);
		if (record == NONE || !w_is(w, record, LIVE) || w_space(w, record) != space)
			continue;
		r = w_record(w, record);
		if (r->key[0] == key->w[0] && r->key[1] == key->w[1])
			return record;
	}
	return NONE;
}
