/* SPDX-License-Identifier: Apache-2.0 */
/* check_record.c - pools and block records, the truth of the index.
 * Tests: t/look/check-waits.t t/look/check.t */
#include "config.h"

#include "look/check.h"
#include "index/segment/lockfile.h"

#include <string.h>

static const char *state_name(uint32_t word)
{
	static const char *const name[] = { "FREE", "RESERVED", "LIVE", "DYING" };

	return WORD_STATE(word) < ARRAY_SIZE(name) ? name[WORD_STATE(word)] : "no state";
}

gpc_block check_block(const struct check *k, uint32_t record)
{
	uint32_t p = k->pool_of[record];

	if (p == SHM_NO_POOL)
		return GPC_NONE;
	return (gpc_block)(p << 24 | (record - (uint32_t)(seg_pool(k->s, p)->range >> 32)));
}

bool check_pool_ready(const struct check *k, uint32_t pool)
{
	return pool < k->s->header.geometry.max_pools && seg_pool(k->s, pool)->state == POOL_READY;
}

static void bad_record(struct check *k, uint32_t record, const char *what)
{
	uint32_t word = seg_record(k->s, record)->word;
	gpc_block block = check_block(k, record);

	if (block == GPC_NONE)
		check_bad(k, word, "record %u (no block): %s", record, what);
	else
		check_bad(k, word, "record %u (block 0x%08x): %s", record, (uint32_t)block, what);
}

/* ---- pools ---- */

static void check_pool_fields(struct check *k, uint32_t p, const struct shm_pool *pool)
{
	const struct shm_geometry *g = &k->s->header.geometry;

	if (pool->kind < GPC_VRAM || pool->kind > GPC_REMOTE)
		check_bad(k, 0, "pool %u: kind %u is none", p, pool->kind);
	if (pool->space >= GPC_MAX_SPACES)
		check_bad(k, 0, "pool %u: space %u is out of range", p, pool->space);
	if (pool->blocks > (uint32_t)pool->range)
		check_bad(k, 0, "pool %u: %u blocks in %u slots", p, pool->blocks,
			  (uint32_t)pool->range);
	if (pool->demote_to < -1 || pool->demote_to >= (int32_t)g->max_pools)
		check_bad(k, 0, "pool %u: demotes to %d, which is no pool", p, pool->demote_to);
	if (pool->backing_size > sizeof(pool->backing))
		check_bad(k, 0, "pool %u: %u bytes of backing", p, pool->backing_size);
	if (pool->state != POOL_READY || pool->owner == -1)
		return;
	if (pool->owner < 0 || pool->owner >= (int32_t)g->max_peers)
		check_bad(k, 0, "pool %u: its owner %d is no peer", p, pool->owner);
	else if (seg_seat(k->s, (uint32_t)pool->owner)->state == SEAT_FREE)
		check_bad(k, 0, "pool %u: the seat of its owner %d is empty", p, pool->owner);
}

/* Take the records of the pool's range; each may belong to one pool only. */
static void claim_range(struct check *k, uint32_t p, const struct shm_pool *pool)
{
	uint32_t max = k->s->header.geometry.max_blocks;
	uint32_t first = (uint32_t)(pool->range >> 32), slots = (uint32_t)pool->range;
	uint32_t i, other = SHM_NO_POOL;

	if (first > max || slots > max - first || slots > 1u << 24 || !slots) {
		check_bad(k, pool->range, "pool %u: records %u to %u of %u", p, first,
			  first + slots, max);
		return;
	}
	for (i = first; i < first + slots; i++)
		if (k->pool_of[i] == SHM_NO_POOL) {
			k->pool_of[i] = (uint8_t)p;
		} else if (other != k->pool_of[i]) {
			other = k->pool_of[i];
			check_bad(k, pool->range, "pool %u: record %u belongs to pool %u too", p, i,
				  other);
		}
}

void check_pools(struct check *k)
{
	const struct shm_state *st = seg_state(k->s);
	uint32_t p, spaces[2] = { 0 }, max = k->s->header.geometry.max_pools;

	for (p = 0; p < 128; p++) {
		const struct shm_pool *pool = p < max ? seg_pool(k->s, p) : NULL;
		bool live = st->live_pools[p >> 6] >> (p & 63) & 1;

		if (live != (pool && pool->state == POOL_READY))
			check_bad(k, 0, "pool %u: %s", p,
				  live ? "counts as live, but is not"
				       : "is ready, but does not count as live");
		if (!pool || pool->state == POOL_FREE)
			continue;
		if (pool->state != POOL_READY && pool->state != POOL_DRAINING) {
			check_bad(k, 0, "pool %u: state %u is none", p, pool->state);
			continue;
		}
		k->space_of[p] = pool->space % GPC_MAX_SPACES;
		if (pool->state == POOL_READY)
			spaces[shm_is_lower(pool->kind)] |= GPC_SPACE(k->space_of[p]);
		check_pool_fields(k, p, pool);
		claim_range(k, p, pool);
	}
	if (st->spaces != spaces[0] || st->lower_spaces != spaces[1])
		check_bad(
			k, 0,
			"state: the sets of spaces are 0x%x and 0x%x, the pools have 0x%x and 0x%x",
			st->spaces, st->lower_spaces, spaces[0], spaces[1]);
}

/* ---- records by key ---- */

static bool same_key(const uint64_t a[2], const uint64_t b[2])
{
	return a[0] == b[0] && a[1] == b[1];
}

/* The place of this key of this space.  It has the record's number + 1, or 0 if the key would go
 * there.  The seed keeps a crafted segment from making this slow. */
static uint32_t *find_key(const struct check *k, const uint64_t key[2], uint32_t space)
{
	uint64_t i = check_mix(check_mix(key[0] ^ k->seed[0], key[1] ^ k->seed[1]), space);

	for (;; i++) {
		uint32_t *at = &k->by_key[i & k->by_key_mask];

		if (!*at || (k->space_of[k->pool_of[*at - 1]] == space &&
			     same_key(seg_record(k->s, *at - 1)->key, key)))
			return at;
	}
}

static bool counts_as(const struct check *k, uint32_t record, uint32_t state)
{
	return k->pool_of[record] != SHM_NO_POOL && check_pool_ready(k, k->pool_of[record]) &&
	       WORD_STATE(seg_record(k->s, record)->word) == state;
}

/* LIVE, and its key names it: the key has not moved to another block. */
bool check_is_live(const struct check *k, uint32_t record)
{
	return counts_as(k, record, LIVE) && !(seg_record(k->s, record)->flags & REC_MOVED);
}

static void index_live(struct check *k)
{
	uint32_t i, *at, max = k->s->header.geometry.max_blocks;

	for (i = 0; i < max; i++) {
		const struct shm_record *r = seg_record(k->s, i);

		if (!check_is_live(k, i))
			continue;
		at = find_key(k, r->key, k->space_of[k->pool_of[i]]);
		if (!*at)
			*at = i + 1;
		else
			check_bad(k, check_mix(r->word, seg_record(k->s, *at - 1)->word),
				  "record %u (block 0x%08x): its key is live in record %u "
				  "(block 0x%08x) of the same space too",
				  i, (uint32_t)check_block(k, i), *at - 1,
				  (uint32_t)check_block(k, *at - 1));
	}
}

bool check_key_is_live(const struct check *k, const uint64_t key[2], uint32_t pool)
{
	uint32_t at = *find_key(k, key, k->space_of[pool]);

	return at && check_is_live(k, at - 1) && !(seg_record(k->s, at - 1)->flags & REC_LEAVING);
}

/* ---- records ---- */

static void check_chain(struct check *k, uint32_t i, const struct shm_record *r)
{
	const struct shm_record *up;
	uint32_t at;

	if (!record_has_parent(r))
		return;
	at = *find_key(k, r->parent, k->space_of[k->pool_of[i]]);
	if (!at) {
		bad_record(k, i, "its parent is not live in its space");
		return;
	}
	up = seg_record(k->s, at - 1);
	if (r->depth != up->depth + 1)
		check_bad(k, check_mix(r->word, up->word),
			  "record %u (block 0x%08x): depth %u, "
			  "but its parent, record %u, has %u",
			  i, (uint32_t)check_block(k, i), r->depth, at - 1, up->depth);
}

static void check_live(struct check *k, uint32_t i, const struct shm_record *r)
{
	const gpc_key key = { { r->key[0], r->key[1] } };
	uint8_t entries = k->entries[i];

	if (key_is_zero(&key) || key_is_root(&key))
		bad_record(k, i, "live without a block's key");
	if (r->check != key_check(r->key, r->parent, r->depth, r->tag))
		bad_record(k, i, "its check word is wrong");
	if (!entries) {
		bad_record(k, i, "live, but no table entry names it");
	} else if ((entries & 15) > 1 || entries >> 4 > 1) {
		bad_record(k, i, "two table entries of one bucket name it");
	} else if (entries == 0x11 && !k->open_sections) {
		/* The second entry is of a relocation.  If a section is open, its grace period may
		 * last. */
		k->unfinished = true;
		if (!k->last || check_passes_over(k))
			bad_record(k, i, "a table entry in each of its buckets names it");
	}
	check_chain(k, i, r);
}

static void check_owned(struct check *k, uint32_t i, const struct shm_record *r)
{
	if (r->owner >= k->s->header.geometry.max_peers)
		bad_record(k, i, "reserved by nobody");
	else if (seg_seat(k->s, r->owner)->state == SEAT_FREE)
		bad_record(k, i, "reserved by a peer whose seat is empty");
}

static void check_source(struct check *k, uint32_t i, const struct shm_record *r)
{
	if (r->source > k->s->header.geometry.max_blocks || r->source == i + 1)
		check_bad(k, r->word,
			  "record %u (block 0x%08x): moves from record %u, which "
			  "cannot be",
			  i, (uint32_t)check_block(k, i), r->source - 1);
}

static void check_record(struct check *k, uint32_t i)
{
	const struct shm_record *r = seg_record(k->s, i);
	uint32_t state = WORD_STATE(r->word);

	if (state > DYING) {
		bad_record(k, i, "its state is none");
		return;
	}
	if (k->pool_of[i] == SHM_NO_POOL) {
		if (state != FREE)
			check_bad(k, r->word, "record %u (no block): %s outside of every pool", i,
				  state_name(r->word));
		return;
	}
	if (counts_as(k, i, RESERVED))
		check_owned(k, i, r);
	if ((state == RESERVED || state == LIVE) && r->source)
		check_source(k, i, r);
	if (check_is_live(k, i))
		check_live(k, i, r);
}

/* The writer's counts of its pools, which gpc_pool_available() and others use.  A writer that was
 * killed leaves them wrong by one block, and its successor counts anew. */
static void check_counts(struct check *k)
{
	struct {
		uint32_t live, reserved, dying, lingering;
	} n[GPC_MAX_POOLS + 1] = { 0 };
	uint32_t i, p;

	if (!segment_writer_alive(k->s))
		return;
	for (i = 0; i < k->s->header.geometry.max_blocks; i++) {
		const struct shm_record *r = seg_record(k->s, i);
		uint32_t state = WORD_STATE(r->word);
		bool moved = state == LIVE && (r->flags & REC_MOVED);

		if (k->pool_of[i] == SHM_NO_POOL)
			continue;
		p = k->pool_of[i];
		n[p].live += state == LIVE && !moved;
		n[p].reserved += state == RESERVED;
		n[p].dying += state == DYING || moved;
		n[p].lingering += state == DYING && (r->flags & REC_LINGERS);
	}
	for (p = 0; p < k->s->header.geometry.max_pools; p++) {
		const struct shm_pool *pool = seg_pool(k->s, p);

		if (check_pool_ready(k, p) &&
		    (pool->live != n[p].live || pool->reserved != n[p].reserved ||
		     pool->dying != n[p].dying || pool->lingering != n[p].lingering))
			check_bad(
				k, check_mix(check_mix(n[p].live, n[p].reserved), n[p].dying),
				"pool %u: %u live, %u reserved and %u dying blocks, %u held, and it is said to "
				"have %u, %u, %u, %u",
				p, n[p].live, n[p].reserved, n[p].dying, n[p].lingering, pool->live,
				pool->reserved, pool->dying, pool->lingering);
	}
}

void check_records(struct check *k)
{
	uint32_t i, max = k->s->header.geometry.max_blocks;

	index_live(k);
	for (i = 0; i < max; i++)
		check_record(k, i);
	check_counts(k);
}
