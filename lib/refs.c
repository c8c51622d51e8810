/* SPDX-License-Identifier: Apache-2.0 */
/* refs.c - taking, dropping and counting references.
 *
 * The counts.  A block counts once in the seat's held[pool] while the own cell is nonzero
 * or the block is marked as reserved by this handle.  Cell and mark are two words, so
 * threads of one process that change both for one block at the same moment could count it
 * twice or not at all.  They never do:
 *
 *   - a reservation begins and ends (mine_set, mine_clear after giving back) while the
 *     record is RESERVED; refs_take does not touch the cell of a record that is not LIVE,
 *     and when it is LIVE but goes before the cell is raised, the section of the caller
 *     keeps it from becoming anybody's reservation until the cell is lowered again;
 *   - a publish raises the cell first (refs_add) and clears the mark when it is
 *     acknowledged, so the cell is above zero whatever other threads add and take back
 *     meanwhile. */
#include "config.h"

#include <errno.h>
#include "refs.h"

static void sum_held(struct ref_sum *sum, uint32_t pool, int32_t by)
{
	sum->pools[pool >> 6] |= 1ull << (pool & 63);
	sum->held[pool] += by;
}

/* Pools are below GPC_MAX_POOLS + 1 = 128: pool_record has checked, and block ids have
 * no more bits.  The counters are unsigned; what is added may be negative. */
void refs_account(gpc *c, const struct ref_sum *sum)
{
	struct shm_seat *seat = seg_seat(&c->seg, c->peer);
	uint32_t half, pool;
	uint64_t left;

	if (sum->refs)
		count_add(&seat->refs, (uint64_t)sum->refs);
	for (half = 0; half < 2; half++) {
		for (left = sum->pools[half]; left; left &= left - 1) {
			pool = half * 64 + (uint32_t)__builtin_ctzll(left);
			if (sum->held[pool])
				count_add(&seat->held[pool], (uint32_t)sum->held[pool]);
		}
	}
}

bool refs_mine_set(gpc *c, uint32_t record, struct ref_sum *sum, uint32_t pool)
{
	uint64_t bit = 1ull << (record & 63);

	if (order_or64(&c->mine[record >> 6], bit) & bit)
		return false;
	if (!load_relaxed(refs_cell(c, record)))
		sum_held(sum, pool, 1);
	return true;
}

bool refs_mine_clear(gpc *c, uint32_t record, struct ref_sum *sum, uint32_t pool)
{
	uint64_t bit = 1ull << (record & 63);

	if (!(order_and64(&c->mine[record >> 6], ~bit) & bit))
		return false;
	if (!load_relaxed(refs_cell(c, record)))
		sum_held(sum, pool, -1);
	return true;
}

int refs_add(gpc *c, uint32_t record, gpc_block block, struct ref_sum *sum)
{
	uint16_t *cell = refs_cell(c, record);
	uint16_t old = order_add16(cell, 1);             /* (T) */

	/* Threads at the cap at the same moment overshoot it by one each; below the
	 * wrap there is room for as many as it has references. */
	if (old >= REF_CAP) {
		order_dec16(cell);
		return err_set(EOVERFLOW, "%u references of this peer on block 0x%x",
			       REF_CAP, (unsigned)block);
	}
	if (!old && !refs_mine(c, record))
		sum_held(sum, (uint32_t)GPC_POOL(block), 1);
	sum->refs++;
	return 0;
}

bool refs_drop(gpc *c, uint32_t record, gpc_block block, struct ref_sum *sum)
{
	/* (c) what was done with the block is done; pairs with the writer's reading of
	 * the row before it frees.  If we die before it, reaping clears the cell. */
	uint16_t old = order_dec16(refs_cell(c, record));

	if (!old)
		return false;
	if (old == 1 && !refs_mine(c, record))
		sum_held(sum, (uint32_t)GPC_POOL(block), -1);
	sum->refs--;
	return true;
}

/* The word that a record has while it is LIVE and holds `key`, else 0 (FREE, generation
 * 0).
 *
 * The key is written before the word becomes LIVE (the acquire pairs with (C))
 * and again only after the word has left this generation.  A second look at the word,
 * after the key, that finds it unchanged proves that both halves of the key are of
 * this generation. */
static uint32_t live_word(const struct shm_record *r, const gpc_key *key)
{
	uint32_t word = load_acquire(&r->word);

	if (WORD_STATE(word) != LIVE || load_acquire(&r->key[0]) != key->w[0] ||
	    load_acquire(&r->key[1]) != key->w[1] || load_relaxed(&r->word) != word)
		return 0;
	return word;
}

static bool still_there(const gpc *c, uint32_t record, gpc_block block,
			const gpc_key *key)
{
	struct pool_set live = pool_live(&c->seg);

	/* the pool's bit is part of the state: clearing it is how a pool dies; and its
	 * range is part of what the id means */
	return pool_set_has(&live, (uint32_t)block >> 24) &&
	       pool_record(&c->seg, block) == record &&
	       live_word(seg_record(&c->seg, record), key);
}

int refs_take(gpc *c, uint32_t record, gpc_block block, const gpc_key *key,
	      struct ref_sum *sum)
{
	int err;

	/* a hint that is stale already costs no barrier and leaves the cell alone */
	if (!live_word(seg_record(&c->seg, record), key))
		return -ESTALE;
	/* (T) the cell, a full barrier, then everything again: either the writer sees
	 * the cell when it reads the row a second time, or we see DYING.  Pairs with
	 * (D); model/refs.pml.  If we die from here on, reaping clears the cell. */
	err = refs_add(c, record, block, sum);
	if (err)
		return err;
	if (still_there(c, record, block, key))
		return 0;
	refs_drop(c, record, block, sum);
	return -ESTALE;
}
