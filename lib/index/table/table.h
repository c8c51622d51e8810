/* SPDX-License-Identifier: Apache-2.0 */
/* table.h - entries, buckets, relocation. */
#ifndef GPC_TABLE_TABLE_H
#define GPC_TABLE_TABLE_H

#include "index/table/grace.h"
#include "index/table/mirror.h"

/* ---- the four entries of a bucket, as the writer reads and stores them ---- */

/* Bit i: word number `at` (0 or 3) of the bucket's entry i has this value.  It has no branches,
 * which would be mispredicted. */
static inline __attribute__((always_inline)) uint32_t
bucket_match(const struct writer *w, uint32_t bucket, int at, uint32_t value)
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

/* The entries that name this block word, or none. */
static inline uint32_t bucket_entries_with(const struct writer *w, uint32_t bucket, uint32_t word)
{
	return bucket_match(w, bucket, 3, word);
}

/* Bit i: entry i can be filled. */
static inline uint32_t bucket_usable(const struct writer *w, uint32_t bucket)
{
	uint32_t q = w->books[bucket].retired;

	return bucket_entries_with(w, bucket, 0) & ~(q | q >> 4);
}

/* May a key be in its second bucket as well as in its first?  The flag is never missing (rule T3):
 * a takeover sets all needed flags before it looks for any key. */
static inline bool bucket_spills(const struct writer *w, const struct probe_key *k)
{
	return w->table[k->first * SHM_BUCKET].w[2] & PROBE_OVERFLOW;
}

static inline void bucket_changed(struct writer *w, uint32_t entry)
{
	struct shm_state *st = w_state(w);

	store_relaxed(&st->changes, st->changes + 1);
	if (w->nmirrors)
		mirror_dirty(w, entry);
}

/* The entry has to be empty and usable again: see table_entry_usable(). */
static inline void bucket_fill(struct writer *w, uint32_t entry, const struct probe_key *k,
			       uint32_t block_word)
{
	struct probe_entry *e = &w->table[entry];

	store_relaxed(&e->w[0], k->w[0]);
	store_relaxed(&e->w[1], k->w[1]);
	store_relaxed(&e->w[2], k->w[2] | (e->w[2] & PROBE_OVERFLOW));
	/* (H) the key words are stored before the block word; pairs with the entry load of
	 * index/reader/probe.c.  If we die before it, a successor finds key words without a block
	 * and wipes them; t/model/relocate.pml. */
	store_release(&e->w[3], block_word);
	bucket_changed(w, entry);
}

/* bits of word 2 that do not belong to the entry itself */
#define BUCKET_FLAGS(entry) ((entry) % SHM_BUCKET ? 0 : PROBE_OVERFLOW)

/* Empty the entry; it retires with the caller's batch. */
static inline void bucket_wipe(struct writer *w, uint32_t entry)
{
	struct probe_entry *e = &w->table[entry];

	/* the block word goes first, so a reader sees the entry, or an empty one */
	store_release(&e->w[3], 0);
	store_relaxed(&e->w[0], 0);
	store_relaxed(&e->w[1], 0);
	store_relaxed(&e->w[2], e->w[2] & BUCKET_FLAGS(entry));
	bucket_changed(w, entry);
	w->books[entry / SHM_BUCKET].retired |= (uint8_t)(1u << entry % SHM_BUCKET);
}

static inline void bucket_entry_usable(struct writer *w, uint32_t entry)
{
	w->books[entry / SHM_BUCKET].retired &= (uint8_t) ~(1u << entry % SHM_BUCKET);
}

/* ---- keys and entries ---- */

struct relocation { /* rule T1 */
	struct relocation *next;
	struct grace *batch;       /* the batch in which its copy waits */
	uint32_t record, from, to; /* entries */
};

/* A key made ready; and the key of a record. */
static inline struct probe_key table_ready(struct writer *w, uint32_t space, const uint64_t key[2])
{
	return probe_masked(key, w->c->mask[space].w, w->buckets);
}

static inline struct probe_key table_key(struct writer *w, uint32_t record)
{
	return table_ready(w, w_space(w, record), w_record(w, record)->key);
}

enum { TABLE_OK = 0, TABLE_WAIT, TABLE_FULL };
struct place {
	uint32_t entry;
	bool spilled; /* it is in the key's second bucket */
	/* Both buckets are full once it is filled.  The answer is computed first: a load of
	 * four words stalls behind four stores to them. */
	bool full;
};

/* A copy comes into the second bucket of this key; and: an entry of its keys has left their second
 * bucket. */
void table_spill(struct writer *w, const struct probe_key *k);
void table_unspill(struct writer *w, uint32_t bucket);
/* Carry out relocations that were begun ahead of need and have waited for their memory; at the end
 * of a round of commands. */
void table_relocate_due(struct writer *w);
void table_relocate_ahead(struct writer *w, const struct probe_key *k);
/* No bucket of the key has a usable entry.  Begin to make one (TABLE_WAIT); or TABLE_FULL. */
int table_make_room(struct writer *w, const struct probe_key *k);
/* A usable entry for the key: TABLE_OK.  TABLE_WAIT: there will be one after the next grace
 * periods.  TABLE_FULL: there is none.  The entry is filled after the record's commit. */
static inline __attribute__((always_inline)) int
table_place(struct writer *w, const struct probe_key *k, struct place *ret)
{
	uint32_t usable = bucket_usable(w, k->first);

	ret->spilled = !usable;
	if (!usable)
		usable = bucket_usable(w, k->second);
	if (__builtin_expect(!usable, 0)) {
		*ret = (struct place){ .entry = NONE };
		return table_make_room(w, k);
	}
	ret->entry = (ret->spilled ? k->second : k->first) * SHM_BUCKET +
		     (uint32_t)__builtin_ctz(usable);
	ret->full = !(usable & (usable - 1)) && (ret->spilled || !bucket_usable(w, k->second));
	return TABLE_OK;
}

static inline __attribute__((always_inline)) void
table_fill(struct writer *w, gpc_block block, const struct probe_key *k, const struct place *place)
{
	if (place->spilled)
		table_spill(w, k);
	bucket_fill(w, place->entry, k, (uint32_t)block + 1);
	if (__builtin_expect(place->full, 0))
		table_relocate_ahead(w, k);
}

/* The key will be looked for, placed or removed soon.  Prefetch its first bucket; and, when that
 * is here, its second bucket, if it matters. */
static inline __attribute__((always_inline)) void table_prefetch(struct writer *w,
								 const struct probe_key *k)
{
	__builtin_prefetch(&w->table[k->first * SHM_BUCKET], 1);
	__builtin_prefetch(&w->books[k->first], 1);
}

/* It has no branch, which would be mispredicted: a prefetch of a present line costs nothing. */
static inline __attribute__((always_inline)) void
table_prefetch_second(struct writer *w, const struct probe_key *k, bool place)
{
	uint32_t usable = place ? bucket_usable(w, k->first) : 3;
	uint32_t second = (uint32_t)bucket_spills(w, k) | !(usable & (usable - 1));
	uint32_t bucket = k->first ^ ((k->first ^ k->second) & (0u - second));

	__builtin_prefetch(&w->table[bucket * SHM_BUCKET], 1);
	__builtin_prefetch(&w->books[bucket], 1);
}

/* The record that is LIVE under this key in this space, or NONE. */
uint32_t table_find(struct writer *w, uint32_t space, const gpc_key *key);
uint32_t table_find_ready(struct writer *w, uint32_t space, const gpc_key *key,
			  const struct probe_key *k);
/* Empty one entry, which retires with the open batch. */
static inline void table_wipe(struct writer *w, uint32_t entry)
{
	bucket_wipe(w, entry);
	grace_entry(w, entry);
}

/* Empty every entry that names the block.  There may be two, or a relocation of the block, while
 * relocations go on or a dead writer's entries are looked for (rule T2). */
void table_remove_copies(struct writer *w, uint32_t record, const struct probe_key *k);
static inline __attribute__((always_inline)) void
table_remove(struct writer *w, uint32_t record, gpc_block block, const struct probe_key *k)
{
	uint32_t found, bucket = k->first;

	if (__builtin_expect(w->relocations || w_state(w)->recovering, 0)) {
		table_remove_copies(w, record, k);
		return;
	}
	found = bucket_entries_with(w, bucket, (uint32_t)block + 1);
	if (!found && bucket_spills(w, k)) {
		bucket = k->second;
		found = bucket_entries_with(w, bucket, (uint32_t)block + 1);
	}
	if (__builtin_expect(!found || (found & (found - 1)), 0)) {
		table_remove_copies(w, record, k);
		return;
	}
	table_wipe(w, bucket * SHM_BUCKET + (uint32_t)__builtin_ctz(found));
	if (bucket != k->first)
		table_unspill(w, k->first);
}
/* Every entry that names `from` gets the name `to` instead: same key, same space. */
void table_retier(struct writer *w, uint32_t from, uint32_t to);
bool table_has(struct writer *w, uint32_t record);
void table_copies_done(struct writer *w, struct grace *b);
void table_entry_usable(struct writer *w, uint32_t entry);
void table_set_flag(struct writer *w, uint32_t bucket);
void table_clear_spare_flag(struct writer *w, uint32_t bucket);

#endif
