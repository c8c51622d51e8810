/* SPDX-License-Identifier: Apache-2.0 */
/* bucket.h - the four entries of a bucket, as the writer looks at them and stores them.
 * Tests: t/index/table.t */
#ifndef GPC_WRITER_INDEX_BUCKET_H
#define GPC_WRITER_INDEX_BUCKET_H

#include "index/table/mirror.h"

/* Bit i: entry i of the bucket has this value as its word number `at`, 0 or 3.  Without branches,
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

/* Those that name this block word, or none. */
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
 * a takeover sets it before it looks for anything. */
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

/* Only an empty entry that is usable again: see table_entry_usable(). */
static inline void bucket_fill(struct writer *w, uint32_t entry, const struct probe_key *k,
			       uint32_t block_word)
{
	struct probe_entry *e = &w->table[entry];

	store_relaxed(&e->w[0], k->w[0]);
	store_relaxed(&e->w[1], k->w[1]);
	store_relaxed(&e->w[2], k->w[2] | (e->w[2] & PROBE_OVERFLOW));
	/* (H) key words before the block word; pairs with the entry load of index/reader/probe.c.  If we
	 * die before it, a successor finds key words without a block and wipes them;
	 * model/relocate.pml. */
	store_release(&e->w[3], block_word);
	bucket_changed(w, entry);
}

/* Bits of word 2 that are not the entry's own. */
#define BUCKET_FLAGS(entry) ((entry) % SHM_BUCKET ? 0 : PROBE_OVERFLOW)

/* The entry is empty; its entry retires with the caller's batch. */
static inline void bucket_wipe(struct writer *w, uint32_t entry)
{
	struct probe_entry *e = &w->table[entry];

	/* the block word first: a reader sees the entry, or an empty one */
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

#endif
