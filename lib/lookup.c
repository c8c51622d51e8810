/* SPDX-License-Identifier: Apache-2.0 */
/* lookup.c - probing the host table.
 *
 * A probe costs one cache line, and what matters is how many of them are on their way at
 * the same time: a group of keys fetches all its first buckets, compares them without
 * branches that depend on the data, and does the same for the few second buckets.  A
 * single key takes branches instead, since speculation is then what overlaps the reads.
 *
 * An entry of a pool that has died is as good as empty, and so is one in the middle of
 * being wiped: keys of a group that met one are left to the path of single keys, which
 * goes on behind it. */
#include "config.h"

#include "lookup.h"

#define NO_BLOCK (-1)

static inline __attribute__((always_inline)) struct probe_entry
entry_load(const struct probe_entry *e)
{
	/* Pairs with (H), (I), (J) of table.c, and needs no order of its own: any mix of old and
	 * new words is the entry or a miss, and a hit is a hint. */
	struct words4 x = load_words4(e->w);

	return (struct probe_entry){ { x.w[0], x.w[1], x.w[2], x.w[3] } };
}

static inline const struct probe_entry *bucket_at(const struct lookup *l, uint32_t bucket)
{
	return l->table + (uint64_t)bucket * SHM_BUCKET;
}

static inline struct probe_key prepare(const struct lookup *l, uint32_t space,
				       const gpc_key *key)
{
	const gpc_key *mask = &l->c->mask[space];

	return probe_prepare(key->w[0] ^ mask->w[0], key->w[1] ^ mask->w[1], l->buckets);
}

void lookup_begin(struct lookup *l, const gpc *c, uint32_t spaces)
{
	const struct segment *s = &c->seg;

	l->c = c;
	l->table = SEG_AT(s->index, s->at.table, const struct probe_entry, 0);
	l->buckets = s->header.geometry.buckets;
	l->live = pool_live(s);
	l->spaces = load_acquire(&seg_state(s)->spaces);
	if (spaces)
		l->spaces &= spaces;
}

/* ---- one key ---- */

/* A pool that was added after the call began may have got a key that was there before. */
static bool is_usable(const struct lookup *l, gpc_block block)
{
	struct pool_set now;

	if (block < 0)
		return false;
	if (pool_set_has(&l->live, (uint32_t)block >> 24))
		return true;
	now = pool_live(&l->c->seg);
	return pool_set_has(&now, (uint32_t)block >> 24);
}

static gpc_block probe_bucket(const struct lookup *l, uint32_t bucket,
			      const struct probe_key *p, int *overflows)
{
	const struct probe_entry *e = bucket_at(l, bucket);
	struct probe_entry x;
	gpc_block block;
	uint32_t i;

	for (i = 0; i < SHM_BUCKET; i++) {
		x = entry_load(&e[i]);
		if (!i)
			*overflows = probe_overflows(x);
		block = probe_entry_block(x, *p);
		if (is_usable(l, block))
			return block;
	}
	return NO_BLOCK;
}

static gpc_block one_in_space(const struct lookup *l, uint32_t space, const gpc_key *key)
{
	struct probe_key p = prepare(l, space, key);
	int more, unused;
	gpc_block block = probe_bucket(l, p.first, &p, &more);

	return block < 0 && more ? probe_bucket(l, p.second, &p, &unused) : block;
}

gpc_block lookup_one(const struct lookup *l, const gpc_key *key)
{
	gpc_block block = NO_BLOCK;
	uint32_t left;

	for (left = l->spaces; left && block < 0; left &= left - 1)
		block = one_in_space(l, (uint32_t)__builtin_ctz(left), key);
	return block;
}

/* ---- a group ---- */

/* Stands for "look again, one by one"; no pool has this number. */
#define UNSURE  GPC_BLOCK(GPC_MAX_POOLS, 0)

struct wanted {                          /* one key of a group */
	uint32_t w[4];                   /* its words; the block word is 0 */
} __attribute__((aligned(16)));

/* Which entries of the bucket have the key's bits: bit 4 i = entry i. */
static inline __attribute__((always_inline)) uint32_t
bucket_matches(const struct probe_entry *e, const struct wanted *k, uint32_t *overflows)
{
#ifdef ORDER_VECTORS
	/* probe_entry_block for four entries at once, the block word left out */
	const __m128i bits = _mm_setr_epi32(-1, -1, (int)PROBE_KEY2, 0);
	const __m128i key = _mm_load_si128((const __m128i *)k);
	__m128i x = load_vector4(e[0].w), a, b, c, d;
	uint32_t m;

	*overflows = (uint32_t)_mm_extract_epi16(x, 4) & PROBE_OVERFLOW;
	a = _mm_cmpeq_epi32(_mm_and_si128(x, bits), key);
	b = _mm_cmpeq_epi32(_mm_and_si128(load_vector4(e[1].w), bits), key);
	c = _mm_cmpeq_epi32(_mm_and_si128(load_vector4(e[2].w), bits), key);
	d = _mm_cmpeq_epi32(_mm_and_si128(load_vector4(e[3].w), bits), key);
	/* one bit for each of the 16 words; all four of an entry must be set */
	m = (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(_mm_packs_epi32(a, b),
							_mm_packs_epi32(c, d)));
	m &= m >> 1;
	m &= m >> 2;
	return m & 0x1111;
#else
	struct probe_key p = { { k->w[0], k->w[1], k->w[2] }, 0, 0 };
	struct probe_entry x = entry_load(e);
	uint32_t i, m = probe_entry_block(x, p) != NO_BLOCK;

	*overflows = x.w[2] & PROBE_OVERFLOW;
	for (i = 1; i < SHM_BUCKET; i++)
		if (probe_entry_block(entry_load(e + i), p) != NO_BLOCK)
			m |= 1u << 4 * i;
	return m;
#endif
}

/* The block of the bucket's entry that is the key's.  Its word is read after the key's
 * bits: inside a section a place that had this key's bits is not given to another. */
static inline __attribute__((always_inline)) gpc_block
match_bucket(const struct probe_entry *e, const struct wanted *k, uint32_t *overflows)
{
	uint32_t matches = bucket_matches(e, k, overflows);
	uint32_t block = load_relaxed(&e[__builtin_ctz(matches | 0x1000) / 4].w[3]) - 1;
	uint32_t wiped = -(block >> 31), none = -(uint32_t)!matches;

	/* (wiped ? UNSURE : block), without a branch: an entry in the middle of being
	 * wiped must not hide another one */
	block = (block & ~wiped) | ((uint32_t)UNSURE & wiped);
	return (gpc_block)(block | none);
}

/* The few that are not in their first bucket. */
static void second_buckets(const struct lookup *l, uint32_t space, const gpc_key *keys,
			   const struct wanted *want, const uint8_t *at, uint32_t n,
			   gpc_block *blocks)
{
	const struct probe_entry *bucket[LOOKUP_GROUP];
	uint32_t i, unused;

	for (i = 0; i < n; i++) {
		bucket[i] = bucket_at(l, prepare(l, space, &keys[at[i]]).second);
		__builtin_prefetch(bucket[i]);
	}
	for (i = 0; i < n; i++)
		blocks[at[i]] = match_bucket(bucket[i], &want[at[i]], &unused);
}

static void first_buckets(const struct lookup *l, uint32_t space, const gpc_key *keys,
			  uint32_t n, gpc_block *blocks)
{
	const struct probe_entry *bucket[LOOKUP_GROUP];
	struct wanted want[LOOKUP_GROUP];
	uint8_t second[LOOKUP_GROUP];
	uint32_t i, overflows, nsecond = 0;

	for (i = 0; i < n; i++) {
		struct probe_key p = prepare(l, space, &keys[i]);

		bucket[i] = bucket_at(l, p.first);
		__builtin_prefetch(bucket[i]);
		want[i] = (struct wanted){ { p.w[0], p.w[1], p.w[2], 0 } };
	}
	for (i = 0; i < n; i++) {
		blocks[i] = match_bucket(bucket[i], &want[i], &overflows);
		second[nsecond] = (uint8_t)i;
		nsecond += (uint32_t)blocks[i] >> 31 & overflows;
	}
	if (nsecond)
		second_buckets(l, space, keys, want, second, nsecond, blocks);
}

static void group_in_space(const struct lookup *l, uint32_t space, const gpc_key *keys,
			   uint32_t n, gpc_block *blocks)
{
	uint64_t unsettled = 0;
	uint32_t i;

	first_buckets(l, space, keys, n, blocks);
	for (i = 0; i < n; i++) {
		uint32_t pool = (uint32_t)blocks[i] >> 24;

		unsettled |= ~(l->live.bits[pool >> 6 & 1] >> (pool & 63)) &
			     ~((uint32_t)blocks[i] >> 31);
	}
	if (__builtin_expect(!(unsettled & 1), 1))
		return;
	for (i = 0; i < n; i++)
		if (blocks[i] >= 0 && !pool_set_has(&l->live, (uint32_t)blocks[i] >> 24))
			blocks[i] = one_in_space(l, space, &keys[i]);
}

/* Spaces behind the first are asked for the keys that are still without a block. */
static void next_space(const struct lookup *l, uint32_t space, const gpc_key *keys,
		       uint32_t n, gpc_block *blocks)
{
	gpc_key left[LOOKUP_GROUP];
	gpc_block found[LOOKUP_GROUP];
	uint8_t at[LOOKUP_GROUP];
	uint32_t i, nleft = 0;

	for (i = 0; i < n; i++) {
		left[nleft] = keys[i];
		at[nleft] = (uint8_t)i;
		nleft += (uint32_t)blocks[i] >> 31;
	}
	if (!nleft)
		return;
	group_in_space(l, space, left, nleft, found);
	for (i = 0; i < nleft; i++)
		blocks[at[i]] = found[i];
}

void lookup_group(const struct lookup *l, const gpc_key *keys, uint32_t n,
		  gpc_block *blocks)
{
	uint32_t i, left = l->spaces;

	if (!left) {
		for (i = 0; i < n; i++)
			blocks[i] = NO_BLOCK;
		return;
	}
	group_in_space(l, (uint32_t)__builtin_ctz(left), keys, n, blocks);
	while ((left &= left - 1))
		next_space(l, (uint32_t)__builtin_ctz(left), keys, n, blocks);
}
