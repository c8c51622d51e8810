/* SPDX-License-Identifier: Apache-2.0 */
/* refs.c - taking, dropping and counting references.
 *
 * The counts.  A block counts once in the seat's in_use[pool] while the own cell says that the
 * program holds it: references, RESERVED or PENDING (index/peer/hold.h).  Each change of a cell
 * is one step from an old value to a new one, and the thread that makes the step counts the
 * difference.  refs_take adds to the cell before it looks at the record again.  If the cell has a
 * reservation's value, the record was LIVE a moment ago, in the same section: so a publish or
 * commit is done, and only its answer is missing.
 * Tests: t/index/refs.t t/bytes/lent-source.t */
#include "config.h"

#include <errno.h>
#include "index/peer/refs.h"
#include "index/peer/hold.h"

/* Pool numbers are below GPC_MAX_POOLS + 1 = 128, since pool_record has checked them and block ids
 * have no more bits.  The counters are unsigned; the addend may be negative. */
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
				count_add(&seat->in_use[pool], (uint32_t)sum->held[pool]);
		}
	}
}

/* The cell had too many references, or the value of a reservation. */
static int add_to_special(gpc *c, uint32_t record, gpc_block block, uint16_t old,
			  struct ref_sum *sum)
{
	enum hold hold = hold_of(old);

	if (hold == HOLD_PENDING || hold == HOLD_BACK) {
		/* The hold is our own reservation, and the block is LIVE by now, so references are
		 * added to the cell's value.  Another thread may have made this step before us. */
		hold_step_from(c, record, block, HOLD_LIVE, (uint16_t)(old + 1), sum);
		sum->refs++;
		return 0;
	}
	/* Threads that reach the cap at the same moment may exceed it by one each.  There is room
	 * for that below the next value. */
	count_sub(refs_cell(c, record), 1);
	if (hold != HOLD_REF)
		return -ESTALE;
	return err_set(EOVERFLOW, "%u references of this peer on block 0x%x", REF_CAP,
		       (unsigned)block);
}

static int refs_add(gpc *c, uint32_t record, gpc_block block, struct ref_sum *sum)
{
	uint16_t old = order_add16(refs_cell(c, record), 1); /* (T) */

	refs_show(c);
	if (__builtin_expect(old >= REF_CAP, 0))
		return add_to_special(c, record, block, old, sum);
	if (!old)
		refs_sum_held(sum, (uint32_t)GPC_POOL(block), 1);
	sum->refs++;
	return 0;
}

bool refs_drop(gpc *c, uint32_t record, gpc_block block, struct ref_sum *sum)
{
	/* (c) the uses of the block are over before the cell is lowered; pairs with the writer's
	 * reading of the row before it frees.  If we die before it, reaping clears the cell. */
	uint16_t old = order_dec16(refs_cell(c, record), CELL_REFS);

	if (!old)
		return false;
	if (old == 1)
		refs_sum_held(sum, (uint32_t)GPC_POOL(block), -1);
	sum->refs--;
	return true;
}

/* The word that a record has while it is LIVE and holds `key`, else 0 (FREE, generation
 * 0).
 *
 * The key is written before the word becomes LIVE (the acquire pairs with (C)), and again only
 * after the word has left this generation.  The word is read again after the key.  If it is
 * unchanged, both halves of the key are of this generation. */
static uint32_t live_word(const struct shm_record *r, const gpc_key *key)
{
	uint32_t word = load_acquire(&r->word);

	if (WORD_STATE(word) != LIVE || load_acquire(&r->key[0]) != key->w[0] ||
	    load_acquire(&r->key[1]) != key->w[1] || load_relaxed(&r->word) != word)
		return 0;
	return word;
}

static bool still_there(const gpc *c, uint32_t record, gpc_block block, const gpc_key *key)
{
	struct pool_set live = pool_live(&c->seg);

	/* The pool's bit is part of the state, since a pool dies when its bit is cleared.  Its
	 * range is part of the id's meaning. */
	return pool_set_has(&live, (uint32_t)block >> 24) &&
	       pool_record(&c->seg, block) == record && live_word(seg_record(&c->seg, record), key);
}

int refs_take(gpc *c, uint32_t record, gpc_block block, const gpc_key *key, struct ref_sum *sum)
{
	int err;

	/* a hint that is already stale then costs no barrier, and no store to the cell */
	if (!live_word(seg_record(&c->seg, record), key))
		return -ESTALE;
	/* (T) the cell is raised, a full barrier, and then everything is read again.  Either the
	 * writer sees the cell when it reads the row a second time, or we see DYING.  Pairs with
	 * (D); t/model/refs.pml.  If we die from here on, reaping clears the cell. */
	err = refs_add(c, record, block, sum);
	if (err)
		return err;
	if (still_there(c, record, block, key))
		return 0;
	refs_drop(c, record, block, sum);
	return -ESTALE;
}

/* The window may be moved at this moment.  Then the use is in stamp[], which is not looked at, and
 * goes to use[] as well.  Either we see the new window, or the writer sees a tick that is beyond
 * the old window. */
void refs_stamp_late(const gpc *c, uint32_t record, uint64_t to)
{
	order_raise64(seg_stamp(&c->seg, record), to, 2);
	order_fence();
	if (use_fits(to, load_relaxed(&seg_state(&c->seg)->uses_from)))
		use_raise(seg_use(&c->seg, record), (uint32_t)to);
}

/* ---- lent ---- */

int refs_lend_begin(gpc *c)
{
	uint16_t *lent;

	if (load_acquire(&c->lent))
		return 0;
	/* pages of zeros: only those with lent records take memory */
	lent = calloc(c->seg.header.geometry.max_blocks, sizeof(*lent));
	if (!lent)
		return err_set(ENOMEM, "no memory to tell what streams are to release");
	pthread_mutex_lock(&c->ring_lock);
	if (c->lent)
		free(lent);
	else
		store_release(&c->lent, lent);
	pthread_mutex_unlock(&c->ring_lock);
	return 0;
}

/* The reference is counted first and compared then: if two threads lend the last reference, at
 * most one succeeds. */
bool refs_lend(gpc *c, uint32_t record)
{
	uint16_t cell;

	count_add(&c->nlent, 1);
	if (order_add16(&c->lent[record], 1) < (cell = load_relaxed(refs_cell(c, record))) &&
	    cell <= CELL_REFS)
		return true;
	refs_lend_end(c, record);
	return false;
}

void refs_lend_end(gpc *c, uint32_t record)
{
	order_add16(&c->lent[record], UINT16_MAX);
	count_sub(&c->nlent, 1);
}

bool refs_all_lent(const gpc *c, uint32_t record)
{
	return load_relaxed(refs_cell(c, record)) <= load_relaxed(&c->lent[record]);
}
