/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - probing the host table.
 *
 * A probe costs one cache line, so the number of lines that are fetched at the same time matters.
 * With each key that is compared, the first bucket of a later key is prefetched, and the
 * comparison is done during the wait.  The comparison has no branches that depend on the data.  The
 * few second buckets are prefetched when a part has been compared, and looked at when the next
 * part has been.  A single key takes branches instead, since the processor's speculation overlaps
 * the reads then.
 *
 * An entry of a dead pool counts as empty, and so does a half wiped entry.  Keys of a run that met
 * such an entry are left to the path of single keys, which goes on after the entry.
 * Tests: t/index/lookup.t t/index/moves-race.t t/bytes/readers.t */
#include "config.h"

#include "index/reader/probe_table.h"

#define NO_BLOCK (-1)

static inline __attribute__((always_inline)) struct probe_entry
entry_load(const struct probe_entry *e)
{
	/* Pairs with (H), (I), (J) of index/table/.  It needs no order of its own: any mix
	 * of old and new words is the entry or a miss, and a hit is a hint. */
	struct words4 x = load_words4(e->w);

	return (struct probe_entry){ { x.w[0], x.w[1], x.w[2], x.w[3] } };
}

static inline const struct probe_entry *bucket_at(const struct probe *l, uint32_t bucket)
{
	return l->table + (uint64_t)bucket * SHM_BUCKET;
}

static inline struct probe_key key_in_space(const struct probe *l, uint32_t space,
					    const gpc_key *key)
{
	return probe_masked(key->w, l->c->mask[space].w, l->buckets);
}

static void choose_usual(struct probe *l, const struct segment *s)
{
	uint32_t pool, half, record;
	uint64_t left;

	l->usual = l->usual_slots = l->usual_record = 0;
	l->usual_range = 0;
	for (half = 0; half < 2; half++) {
		for (left = l->live.bits[half]; left; left &= left - 1) {
			pool = half * 64 + (uint32_t)__builtin_ctzll(left);
			if (pool >= s->header.geometry.max_pools ||
			    !(l->spaces >> (load_relaxed(&seg_pool(s, pool)->space) & 31) & 1))
				continue;
			l->usual_range = load_relaxed(&seg_pool(s, pool)->range);
			record = pool_first(s, l->usual_range, &l->usual_slots);
			l->usual = pool << 24;
			l->usual_record = record;
			return;
		}
	}
}

void probe_begin(struct probe *l, const gpc *c, uint32_t spaces)
{
	const struct segment *s = &c->seg;

	l->c = c;
	l->table = SEG_AT(s->index, s->at.table, const struct probe_entry, 0);
	l->buckets = s->header.geometry.buckets;
	l->live = pool_live(s);
	l->spaces = load_acquire(&seg_state(s)->spaces);
	if (spaces) /* lookups go below RAM only if they name the space */
		l->spaces = (l->spaces | load_acquire(&seg_state(s)->lower_spaces)) & spaces;
	choose_usual(l, s);
}

/* A pool that was added after the call began counts, too: a key that was live before may have
 * moved to it. */

/* Since the call began, a pool may have been added, with the number of an earlier one. */
static bool is_usable(const struct probe *l, gpc_block block)
{
	struct pool_set now;

	if (block < 0)
		return false;
	if (pool_set_has(&l->live, (uint32_t)block >> 24))
		return true;
	now = pool_live(&l->c->seg);
	return pool_set_has(&now, (uint32_t)block >> 24);
}

static gpc_block probe_bucket(const struct probe *l, uint32_t bucket, const struct probe_key *p,
			      int *overflows)
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

gpc_block lookup_in_space(const struct probe *l, uint32_t space, const gpc_key *key)
{
	struct probe_key p = key_in_space(l, space, key);
	int more, unused;
	gpc_block block = probe_bucket(l, p.first, &p, &more);

	return block < 0 && more ? probe_bucket(l, p.second, &p, &unused) : block;
}

gpc_block probe_one(const struct probe *l, const gpc_key *key)
{
	gpc_block block = NO_BLOCK;
	uint32_t left;

	for (left = l->spaces; left && block < 0; left &= left - 1)
		block = lookup_in_space(l, (uint32_t)__builtin_ctz(left), key);
	return block;
}

/* ---- many keys ---- */

struct prober { /* the values that all keys of a part need, in registers */
	gpc_key mask;
	const struct probe_entry *table;
	uint32_t buckets, usual, usual_slots;
};

static inline struct prober look_for(const struct probe_run *r)
{
	const struct probe *l = r->l;

	return (struct prober){ r->mask, l->table, l->buckets, l->usual, l->usual_slots };
}

static inline __attribute__((always_inline)) struct probe_key key_of(const struct prober *l,
								     const gpc_key *key)
{
	return probe_masked(key->w, l->mask.w, l->buckets);
}

/* The first three words of the key's entry, as probe_prepare makes them. */
#ifdef ORDER_VECTORS
typedef __m128i wanted;

static inline __attribute__((always_inline)) wanted want(const struct prober *r, const gpc_key *key)
{
	const __m128i low = _mm_setr_epi32(-1, -1, 0, 0), word2 = _mm_setr_epi32(0, 0, -1, 0);
	const __m128i least = _mm_setr_epi32(1, 1, 1 << 8, 0);
	__m128i k = _mm_xor_si128(_mm_loadu_si128((const __m128i *)key),
				  _mm_loadu_si128((const __m128i *)&r->mask));
	__m128i w = _mm_or_si128(_mm_and_si128(k, low), _mm_and_si128(_mm_slli_epi32(k, 8), word2));

	return _mm_or_si128(w, _mm_and_si128(_mm_cmpeq_epi32(w, _mm_setzero_si128()), least));
}

/* Has the entry the key's bits?  All bits are set in each word that has them; word 3 always
 * counts. */
static inline __attribute__((always_inline)) __m128i has_bits(__m128i entry, wanted k)
{
	return _mm_cmpeq_epi32(_mm_and_si128(entry, _mm_setr_epi32(-1, -1, (int)PROBE_KEY2, 0)), k);
}

/* Which entries of the bucket have the key's bits: bit i = entry i. */
static inline __attribute__((always_inline)) uint32_t bucket_matches(const struct probe_entry *e,
								     wanted k, uint32_t *overflows)
{
	__m128i x = load_vector4(e[0].w);
	__m128i ab = _mm_packs_epi32(has_bits(x, k), has_bits(load_vector4(e[1].w), k));
	__m128i cd = _mm_packs_epi32(has_bits(load_vector4(e[2].w), k),
				     has_bits(load_vector4(e[3].w), k));
	/* a word for each entry, a byte for each of the entry's words */
	__m128i all = _mm_packs_epi16(ab, cd);

	*overflows = (uint32_t)_mm_extract_epi16(x, 4) & PROBE_OVERFLOW;
	return (uint32_t)_mm_movemask_ps(
		_mm_castsi128_ps(_mm_cmpeq_epi32(all, _mm_set1_epi32(-1))));
}
#else
typedef struct probe_key wanted;

static inline wanted want(const struct prober *l, const gpc_key *key)
{
	return key_of(l, key);
}

static inline uint32_t bucket_matches(const struct probe_entry *e, wanted k, uint32_t *overflows)
{
	struct probe_entry x = entry_load(e);
	uint32_t i, m = probe_entry_block(x, k) != NO_BLOCK;

	*overflows = (uint32_t)probe_overflows(x);
	for (i = 1; i < SHM_BUCKET; i++)
		m |= (uint32_t)(probe_entry_block(entry_load(e + i), k) != NO_BLOCK) << i;
	return m;
}
#endif

/* The block of the bucket's entry that is the key's.  Its word is read after the key's bits:
 * inside a section, a place that had this key's bits is not given to another key.  An entry that
 * is half wiped leaves its sign in `wiped`, since it must not hide another entry.  `odd` gets a
 * bit for that, and for any block that is not of the usual pool. */
static inline __attribute__((always_inline)) gpc_block match_bucket(const struct prober *l,
								    const struct probe_entry *e,
								    wanted k, uint32_t *overflows,
								    struct probe_odd *o)
{
	uint32_t matches = bucket_matches(e, k, overflows);
	uint32_t at = (uint32_t)__builtin_ctz(matches | 1u << 3);
	uint32_t block = load_relaxed(&e[at].w[3]) - 1;

	uint32_t found = -(uint32_t)(matches != 0);

	o->odd |= (block - l->usual >= l->usual_slots) & found;
	o->wiped |= block & found;
	return (gpc_block)(block | ~found);
}

static inline __attribute__((always_inline)) const struct probe_entry *
prefetch_bucket(const struct prober *l, uint32_t bucket)
{
	const struct probe_entry *e = l->table + (uint64_t)bucket * SHM_BUCKET;

	__builtin_prefetch(e);
	return e;
}

static void run_in_space(struct probe_run *r, const struct probe *l, uint32_t space,
			 const gpc_key *keys, uint32_t n, uint32_t part)
{
	struct prober k;

	r->l = l;
	r->spaces = GPC_SPACE(space);
	r->space = space;
	r->mask = l->c->mask[space];
	r->keys = keys;
	r->n = n;
	r->part = part;
	k = look_for(r);
	_Static_assert(LINES_AHEAD <= PROBE_GROUP, "each has a place");
	for (r->asked = 0; r->asked < MIN(n, LINES_AHEAD); r->asked++)
		r->bucket[r->asked] = prefetch_bucket(&k, key_of(&k, &keys[r->asked]).first);
}

struct found { /* the sum of the comparisons of a part */
	uint32_t second, misses;
	struct probe_odd odd;
};

static inline __attribute__((always_inline)) void
compare_key(const struct prober *k, const struct probe_entry *e, const gpc_key *key, uint32_t i,
	    struct found *f, uint8_t *second, gpc_block *blocks)
{
	uint32_t overflows;
	gpc_block block = match_bucket(k, e, want(k, key), &overflows, &f->odd);

	blocks[i] = block;
	f->misses += (uint32_t)block >> 31;
	second[f->second] = (uint8_t)i;
	f->second += (uint32_t)block >> 31 & overflows;
}

/* Compare a part, and with each of its keys prefetch a later key, as long as there are any. */
static void compare_part(struct probe_run *r, struct probe_part *part, struct found *f,
			 gpc_block *blocks)
{
	struct prober k = look_for(r);
	const gpc_key *keys = r->keys + part->from, *next = r->keys + r->asked;
	uint32_t i, from = part->from, asked = r->asked, more = MIN(part->n, r->n - asked);

	for (i = 0; i < more; i++) {
		const struct probe_entry *e = r->bucket[(from + i) % PROBE_GROUP];

		r->bucket[(asked + i) % PROBE_GROUP] =
			prefetch_bucket(&k, key_of(&k, &next[i]).first);
		compare_key(&k, e, &keys[i], i, f, part->second, blocks);
	}
	r->asked += more;
	for (; i < part->n; i++)
		compare_key(&k, r->bucket[(from + i) % PROBE_GROUP], &keys[i], i, f, part->second,
			    blocks);
}

static void prefetch_seconds(const struct probe_run *r, struct probe_part *part)
{
	struct prober k = look_for(r);
	const gpc_key *keys = r->keys + part->from;
	uint32_t i;

	for (i = 0; i < part->nsecond; i++)
		part->bucket[i] = prefetch_bucket(&k, key_of(&k, &keys[part->second[i]]).second);
}

void probe_first(struct probe_run *r, uint32_t from, uint32_t n, struct probe_part *part,
		 gpc_block *blocks)
{
	struct found f = { 0, r->spaces ? 0 : n, { 0, 0 } };
	uint32_t i;

	part->from = from;
	part->n = n;
	if (r->spaces)
		compare_part(r, part, &f, blocks);
	else
		for (i = 0; i < n; i++)
			blocks[i] = NO_BLOCK;
	part->nsecond = f.second;
	part->odd = f.odd;
	part->hits = n - f.misses;
	prefetch_seconds(r, part);
}

/* Look up keys one by one: those that met a block of a pool that is not live, and all misses if
 * one of the keys met a half wiped entry. */
static void settle_part(const struct probe_run *r, const struct probe_part *part, gpc_block *blocks)
{
	bool wiped = part->odd.wiped >> 31;
	uint32_t i;

	for (i = 0; i < part->n; i++)
		if (blocks[i] < 0 ? wiped : !pool_set_has(&r->l->live, (uint32_t)blocks[i] >> 24))
			blocks[i] = lookup_in_space(r->l, r->space, &r->keys[part->from + i]);
}

static void second_buckets(const struct probe_run *r, struct probe_part *part, gpc_block *blocks)
{
	struct prober k = look_for(r);
	uint32_t i, at, unused;

	for (i = 0; i < part->nsecond; i++) {
		at = part->second[i];
		blocks[at] = match_bucket(&k, part->bucket[i], want(&k, &r->keys[part->from + at]),
					  &unused, &part->odd);
		part->hits += blocks[at] >= 0;
	}
	part->usual = !part->odd.odd;
	if (__builtin_expect(!part->usual, 0))
		settle_part(r, part, blocks);
}

/* Look up all keys of a group in one space. */
static void group_in_space(const struct probe *l, uint32_t space, const gpc_key *keys, uint32_t n,
			   gpc_block *blocks)
{
	struct probe_run r;
	struct probe_part part;

	run_in_space(&r, l, space, keys, n, n);
	probe_first(&r, 0, n, &part, blocks);
	second_buckets(&r, &part, blocks);
}

/* In the spaces after the first, only those keys are looked up that have no block yet. */
static void next_space(const struct probe *l, uint32_t space, const gpc_key *keys, uint32_t n,
		       gpc_block *blocks)
{
	gpc_key left[PROBE_GROUP];
	gpc_block found[PROBE_GROUP];
	uint8_t at[PROBE_GROUP];
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

void probe_rest(const struct probe_run *r, struct probe_part *part, gpc_block *blocks)
{
	uint32_t left = r->spaces;

	part->usual = !left;
	if (!left)
		return;
	second_buckets(r, part, blocks);
	part->usual &= !(left & (left - 1));
	while ((left &= left - 1))
		next_space(r->l, (uint32_t)__builtin_ctz(left), r->keys + part->from, part->n,
			   blocks);
}

static void start(struct probe_run *r, const struct probe *l, const gpc_key *keys, uint32_t n,
		  uint32_t part)
{
	/* with no space at all, a space without a pool is taken, in which nothing is looked up */
	run_in_space(r, l, l->spaces ? (uint32_t)__builtin_ctz(l->spaces) : 0, keys, n, part);
	r->spaces = l->spaces;
}

/* With several spaces more keys go together, since keys that are not in the first space prefetch
 * no further lines. */
void probe_start(struct probe_run *r, const struct probe *l, const gpc_key *keys, uint32_t n)
{
	start(r, l, keys, n, l->spaces & (l->spaces - 1) ? PROBE_GROUP : PROBE_PART);
}

void probe_group(const struct probe *l, const gpc_key *keys, uint32_t n, gpc_block *blocks)
{
	struct probe_part part;
	struct probe_run r;

	start(&r, l, keys, n, n);
	probe_first(&r, 0, n, &part, blocks);
	probe_rest(&r, &part, blocks);
}
