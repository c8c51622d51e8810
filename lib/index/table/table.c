/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - the writer's side of the table.
 *
 * The promise to readers is this: a key that is live before they start, and stays live, is found
 * in at most two buckets, during all work of the writer.
 *
 *   publish    fill an empty entry of the first bucket; else set the first bucket's flag,
 *              then fill one of the second                                  (rule T3)
 *   unpublish  wipe every entry that names the block; a wiped entry is filled again only
 *              after flush and grace period, so a torn read is the entry or a miss
 *   relocate   copy to the other bucket; flush, grace period; wipe the old one; flush, grace
 *              period; only then is the old place used                      (rule T1)
 *
 * A plain move would lose keys: a reader that passes the new place before the copy, and comes to
 * the old place after the wipe, would find the key in neither.
 * Tests: t/index/many-spilled.t t/index/table.t t/index/seed.t t/bytes/readers.t */
#include "config.h"

#include <stdlib.h>
#include "index/table/grace.h"
#include "index/table/alloc.h"
#include "index/table/table.h"

#define MAX_MOVES 3 /* length of a chain of relocations */

static uint32_t slot_block_word(struct writer *w, uint32_t entry)
{
	return load_relaxed(&w->table[entry].w[3]);
}

void table_set_flag(struct writer *w, uint32_t bucket)
{
	struct probe_entry *e = &w->table[bucket * SHM_BUCKET];

	if (e->w[2] & PROBE_OVERFLOW)
		return;
	/* (I) the flag is stored before the spilled copy (entry_fill is a release) */
	store_release(&e->w[2], e->w[2] | PROBE_OVERFLOW);
	bucket_changed(w, bucket * SHM_BUCKET);
}

void table_spill(struct writer *w, const struct probe_key *k)
{
	table_set_flag(w, k->first);
	w->books[k->first].spilled++;
}

void table_clear_spare_flag(struct writer *w, uint32_t bucket)
{
	struct probe_entry *e = &w->table[bucket * SHM_BUCKET];

	if (w->books[bucket].spilled || !(e->w[2] & PROBE_OVERFLOW))
		return;
	store_release(&e->w[2], e->w[2] & ~PROBE_OVERFLOW);
	bucket_changed(w, bucket * SHM_BUCKET);
}

void table_unspill(struct writer *w, uint32_t bucket)
{
	if (w->books[bucket].spilled)
		w->books[bucket].spilled--;
	table_clear_spare_flag(w, bucket);
}

void table_entry_usable(struct writer *w, uint32_t entry)
{
	bucket_entry_usable(w, entry);
	w->progress = true;
}

static uint32_t free_slot(struct writer *w, uint32_t bucket)
{
	uint32_t usable = bucket_usable(w, bucket);

	return usable ? bucket * SHM_BUCKET + (uint32_t)__builtin_ctz(usable) : NONE;
}

/* The record that an occupied entry names.  Only the writer fills the table, and a takeover has
 * wiped entries that did not name a LIVE block. */
static uint32_t slot_record(struct writer *w, uint32_t entry)
{
	uint32_t word = slot_block_word(w, entry);

	return word ? w_find_record(w, (gpc_block)(word - 1)) : NONE;
}

/* The memory of a relocation is kept for the next one: relocations come and go all the time. */
static void relocation_end(struct writer *w, struct relocation **at)
{
	struct relocation *r = *at;

	*at = r->next;
	r->next = w->old_relocations;
	w->old_relocations = r;
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
	struct relocation *r = w->old_relocations;

	if (r)
		w->old_relocations = r->next;
	else
		r = writer_alloc(1, sizeof(*r));
	if (to / SHM_BUCKET == k.second)
		table_spill(w, &k);
	bucket_fill(w, to, &k, slot_block_word(w, from));
	*r = (struct relocation){ .next = w->relocations,
				  .batch = grace_open(w),
				  .record = record,
				  .from = from,
				  .to = to };
	r->batch->moves = true;
	w->relocations = r;
	w_state(w)->relocated++;
}

static inline __attribute__((always_inline)) void prefetch_records(struct writer *w,
								   uint32_t bucket)
{
	uint32_t i, record;

	for (i = 0; i < SHM_BUCKET; i++) {
		record = slot_record(w, bucket * SHM_BUCKET + i);
		if (record != NONE)
			__builtin_prefetch(w_record(w, record));
	}
}

/* Prefetch the buckets that the records of a bucket could go to. */
static inline __attribute__((always_inline)) void prefetch_ways(struct writer *w, uint32_t bucket)
{
	uint32_t i, record, other;
	struct probe_key k;

	for (i = 0; i < SHM_BUCKET; i++) {
		record = slot_record(w, bucket * SHM_BUCKET + i);
		if (record == NONE)
			continue;
		k = table_key(w, record);
		other = k.first == bucket ? k.second : k.first;
		__builtin_prefetch(&w->table[other * SHM_BUCKET], 1);
		__builtin_prefetch(&w->books[other], 1);
	}
}

/* Start the last move of a chain that makes room in this bucket in the end. */
static bool relocate_from(struct writer *w, uint32_t bucket, int moves)
{
	uint32_t i, entry, record, other, to;
	struct probe_key k;

	prefetch_records(w, bucket);
	prefetch_ways(w, bucket);
	for (i = 0; i < SHM_BUCKET; i++) {
		entry = bucket * SHM_BUCKET + i;
		record = slot_record(w, entry);
		if (record == NONE || relocation_of(w, record))
			continue;
		k = table_key(w, record);
		other = k.first == bucket ? k.second : k.first;
		to = free_slot(w, other);
		if (to != NONE) {
			relocation_start(w, record, entry, to);
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

	if (w->books[bucket].retired)
		return true;
	for (r = w->relocations; r; r = r->next)
		if (r->from / SHM_BUCKET == bucket)
			return true;
	return false;
}

static void relocate_due(struct writer *w, const struct probe_key *k)
{
	if (!bucket_usable(w, k->first) && !bucket_usable(w, k->second) &&
	    !room_is_coming(w, k->first) && !room_is_coming(w, k->second))
		relocate_from(w, k->first, 1);
}

static void due_go_on(struct writer *w)
{
	struct probe_key k = w->due[0];

	w->due[0] = w->due[1];
	w->ndue--;
	relocate_due(w, &k);
}

/* A relocation looks at random lines.  So each one waits until two more are due, or until the end
 * of the commands.  When its records are here, their other buckets are prefetched. */
void table_relocate_ahead(struct writer *w, const struct probe_key *k)
{
	if (w->ndue == ARRAY_SIZE(w->due))
		due_go_on(w);
	if (w->ndue)
		prefetch_ways(w, w->due[0].first);
	prefetch_records(w, k->first);
	w->due[w->ndue++] = *k;
}

void table_relocate_due(struct writer *w)
{
	while (w->ndue)
		due_go_on(w);
}

int table_make_room(struct writer *w, const struct probe_key *k)
{
	if (room_is_coming(w, k->first) || room_is_coming(w, k->second) ||
	    relocate_from(w, k->first, MAX_MOVES) || relocate_from(w, k->second, MAX_MOVES))
		return TABLE_WAIT;
	w_state(w)->no_bucket++;
	return TABLE_FULL;
}

/* All readers can see the copies of this batch: wipe the old places. */
void table_copies_done(struct writer *w, struct grace *b)
{
	struct relocation **at = &w->relocations, *r;
	struct probe_key k;

	while ((r = *at) != NULL) {
		if (r->batch != b) {
			at = &r->next;
			continue;
		}
		k = table_key(w, r->record);
		table_wipe(w, r->from);
		if (r->from / SHM_BUCKET == k.second)
			table_unspill(w, k.first);
		relocation_end(w, at);
		w->progress = true;
	}
}

/* Bit i: entry i of the first bucket names this block word; bits from SHM_BUCKET on are for the
 * second bucket (rule T2).  If two entries name one block, they belong to a relocation that is
 * under way, perhaps of a dead writer. */
static uint32_t entries_of(struct writer *w, const struct probe_key *k, uint32_t word)
{
	uint32_t found = bucket_entries_with(w, k->first, word);

	if (found && !w->relocations && !w_state(w)->recovering)
		return found;
	if (bucket_spills(w, k))
		found |= bucket_entries_with(w, k->second, word) << SHM_BUCKET;
	return found;
}

static uint32_t entry_at(const struct probe_key *k, uint32_t bit)
{
	return (bit < SHM_BUCKET ? k->first : k->second) * SHM_BUCKET + bit % SHM_BUCKET;
}

static void rename_entry(struct writer *w, uint32_t entry, uint32_t word)
{
	/* (J) one store replaces the block, for the same key */
	store_release(&w->table[entry].w[3], word);
	bucket_changed(w, entry);
}

void table_remove_copies(struct writer *w, uint32_t record, const struct probe_key *k)
{
	uint32_t found = entries_of(w, k, (uint32_t)w_block(w, record) + 1), bit;
	struct relocation **at = &w->relocations, *r;

	while ((r = *at) != NULL) /* rule T2 */
		if (r->record == record)
			relocation_end(w, at);
		else
			at = &r->next;
	for (; found; found &= found - 1) {
		bit = (uint32_t)__builtin_ctz(found);
		table_wipe(w, entry_at(k, bit));
		if (bit >= SHM_BUCKET)
			table_unspill(w, k->first);
	}
}

void table_retier(struct writer *w, uint32_t from, uint32_t to)
{
	struct probe_key k = table_key(w, from);
	uint32_t found = entries_of(w, &k, (uint32_t)w_block(w, from) + 1);
	struct relocation *r;

	/* Both copies of a relocation in flight are renamed, so the relocation goes on (rule
	 * T2). */
	for (r = w->relocations; r; r = r->next)
		if (r->record == from)
			r->record = to;
	for (; found; found &= found - 1)
		rename_entry(w, entry_at(&k, (uint32_t)__builtin_ctz(found)),
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

uint32_t table_find_ready(struct writer *w, uint32_t space, const gpc_key *key,
			  const struct probe_key *k)
{
	uint32_t found = bucket_match(w, k->first, 0, k->w[0]), record;
	const struct shm_record *r;

	if (bucket_spills(w, k))
		found |= bucket_match(w, k->second, 0, k->w[0]) << SHM_BUCKET;
	for (; found; found &= found - 1) {
		uint32_t entry = entry_at(k, (uint32_t)__builtin_ctz(found));
		gpc_block b = probe_entry_block(w->table[entry], *k);

		record = b < 0 ? NONE : w_find_record(w, b);
		if (record == NONE || !w_is(w, record, LIVE) || w_space(w, record) != space)
			continue;
		r = w_record(w, record);
		if (r->key[0] == key->w[0] && r->key[1] == key->w[1])
			return record;
	}
	return NONE;
}
