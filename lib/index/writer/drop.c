/* SPDX-License-Identifier: Apache-2.0 */
/* drop.c - drops of a block whose bytes are bad, of everything that was computed from it, and of
 * their copies below RAM, which have the same bytes.
 *
 * The command names a block in one of its lives.  The block's state decides which keys go:
 *
 *   the block is                     these go
 *   LIVE, at home                    the block
 *   LIVE or DYING, with REC_MOVED    the block of the same space that has the key now: the target of
 *                                    the move.  If there is none, or it is leaving: the key in all
 *                                    spaces
 *   LIVE with REC_LEAVING            the block, and its key in all spaces, since the target is in
 *                                    another space
 *   DYING with REC_LEAVING           its key in all spaces
 *   in any other state               nothing: its key was evicted, or others dropped it
 *
 * Each of these takes along all blocks that hang on it.  With CF_EVERYWHERE the key goes in all
 * spaces of VRAM and RAM, whatever has become of the block, and so does the key of each block that
 * goes with it.  A key that is in none of these spaces is put into drop[] all the same, and its
 * copies below RAM go: a peer that has read the bad bytes may still publish descendants, and the
 * steward of the tiers may hold some.
 *
 * A key that has moved away may have been evicted there and computed again: then good bytes go.
 *
 *   the last store before a death  a successor runs the command again, and
 *   state.drops is odd             begins anew
 *   some keys are in drop[]        begins anew, and adds these keys once more
 *   all keys are, and copies are   does the same
 *     DYING
 *   some blocks are DYING          does the same with the other blocks; with EVERYWHERE it finds these
 *                                  by the keys in drop[]
 *   the named block is DYING       finds the command stored with the last key: it makes state.drops
 *                                  even, and answers that the block went
 *   state.drops is even again      does the same
 *   drop[] has a key that is in    adds the key once more.  Such a key is stored without its command,
 *     no space and has no copy     because the command's answer counts no block for it
 *
 * So keys are stored in drop[] before anything goes, copies go before blocks, and the named block
 * goes last.  A block that the steward of a tier is about to publish has no record to look up.
 * The steward's publishes carry `since`: its tiers have carried out all drops before that number.
 * The publish of a block is refused if its key or the key of an ancestor was dropped after that
 * (tiers/steward/drops.c).
 *
 * A drop of a copy does not concern the block in VRAM or RAM, since the bytes of the copy may have
 * been damaged where they lay.  So such a drop has no number, and its keys are not in drop[].
 *
 * With GPC_ONLY only the key and its copies below RAM go, and the descendants stay: nothing was
 * computed from bytes that nobody could read.
 *
 *   a child of the block is          then
 *   in a pool that takes gaps        it stays, from then on without a parent (REC_UNCHAINED), as if it
 *                                    had been published so; the same goes for the target of its move
 *   in a pool that takes no gaps     it goes with all that hangs on it.  Its bytes are not bad: its
 *                                    copies below RAM stay, and no drop has its key
 *   below RAM                        it stays: pools of tiers take gaps
 *
 *   the block is                     then
 *   referenced, or being read        it is DYING until that is over, as in any drop
 *   on its way to another block      the target goes as above, without the blocks that hang on it; a
 *                                    target that is not LIVE yet is refused
 *   RESERVED, or of another life     nothing happens
 *   computed again                   its publish is refused if that carries an earlier `since`; the
 *                                    publish of a descendant is not
 *
 *   the last store before a death    a successor runs the command again, and
 *   some children have no parent     does the same with the other children; the first ones stay
 *   the key and the children that    adds the key once more
 *     stay are in drop[]
 *   the block is DYING               finds its command, and answers that it went
 *
 * drop[] also lists the children that stay, for the steward of the tiers: a later drop of a block
 * before the gap must take them along.  A child is listed before its record says that it stays:
 * after that a successor finds no child to list (model/alone.pml).
 * Tests: t/index/drops-die.t t/index/drops-alone.t t/index/drops-since.t t/tiers/drop-dies.t
 *   t/tiers/drops-alone.t t/tiers/drops.t */
#include "config.h"

#include "index/writer/drop.h"
#include "index/table/alloc.h"
#include "index/table/dropped.h"
#include "index/table/leave.h"
#include "index/table/table.h"
#include "index/table/tree.h"
#include "index/writer/retire.h"

/* ---- the blocks that go ---- */

/* Leaves first: each block is in the list after all its descendants. */
static void doom(struct writer *w, uint32_t record, bool alone)
{
	struct records *d = &w->doomed;
	uint32_t i, end;

	if (record == NONE || w->node[record].doomed || !w_is(w, record, LIVE))
		return;
	if (alone) {
		w->node[record].doomed = true;
		d->at = writer_grow(d->at, &d->size, d->n + 1, sizeof(*d->at));
		d->at[d->n++] = record;
		return;
	}
	end = tree_collect(w, record, &d->at, &d->size, d->n);
	for (i = d->n; i < end; i++) {
		if (w->node[d->at[i]].doomed)
			continue;
		w->node[d->at[i]].doomed = true;
		d->at[d->n++] = d->at[i];
	}
}

static bool is_key(const uint64_t key[2])
{
	const gpc_key k = { { key[0], key[1] } };

	return !key_is_zero(&k) && !key_is_root(&k);
}

static void doom_key(struct writer *w, const uint64_t key[2], bool alone)
{
	const gpc_key k = { { key[0], key[1] } };
	uint32_t space;

	if (!is_key(key))
		return;
	for (space = 0; space < GPC_MAX_SPACES; space++)
		if (w_state(w)->spaces >> space & 1)
			doom(w, table_find(w, space, &k), alone);
}

/* The block has left: follow its key to the place where it is now. */
static void follow(struct writer *w, uint32_t record, bool alone)
{
	const struct shm_record *r = w_record(w, record);
	gpc_key key = w_key(w, record);
	uint32_t to = r->flags & REC_MOVED ? table_find(w, w_space(w, record), &key) : NONE;

	if (to != NONE && !w->node[to].leaving)
		doom(w, to, alone);
	else
		doom_key(w, r->key, alone);
}

/* Roots first: when a key is found in another space, its descendants there are doomed together with
 * it. */
static void doom_everywhere(struct writer *w, const uint64_t key[2], uint64_t number)
{
	uint64_t head = w_state(w)->drops_head, at;
	uint32_t from = 0, to, i;

	doom_key(w, key, false);
	if (number)
		for (at = 0; (at = dropped_find(w, number, at)) < head; at++)
			doom_key(w, dropped_at(w, at)->key, false);
	while (from < w->doomed.n) {
		to = w->doomed.n;
		for (i = to; i-- > from;)
			doom_key(w, w_record(w, w->doomed.at[i])->key, false);
		from = to;
	}
}

/* Returns how many blocks of the list go after all others (in_turn()): the blocks found by way of
 * the named block, or all if there are none of these. */
static uint32_t gather(struct writer *w, uint32_t record, const struct shm_command *cmd,
		       uint64_t number, uint64_t key[2])
{
	const struct shm_record *r = w_record(w, record);
	bool means = w_means(w, record, cmd->drop.life), lives = means && w_is(w, record, LIVE);
	bool left = (lives || (means && w_is(w, record, DYING))) &&
		    r->flags & (REC_MOVED | REC_LEAVING);
	uint32_t first;

	w->doomed.n = 0;
	if (lives && !leave_is_moved(w, record))
		doom(w, record, cmd->drop.alone);
	if (left)
		follow(w, record, cmd->drop.alone);
	first = w->doomed.n;
	key[0] = lives || left ? r->key[0] : cmd->drop.key[0];
	key[1] = lives || left ? r->key[1] : cmd->drop.key[1];
	if (cmd->flags & CF_EVERYWHERE)
		doom_everywhere(w, key, number);
	return first ? first : w->doomed.n;
}

/* ---- the blocks go ---- */

static bool is_upper(struct writer *w, uint32_t record)
{
	return !shm_is_lower(w_pool_of(w, record)->kind);
}

/* The LIVE copy in that space, if the space is below RAM; else NONE. */
static uint32_t find_copy(struct writer *w, uint32_t space, const uint64_t key[2])
{
	const gpc_key k = { { key[0], key[1] } };
	uint32_t copy = w_state(w)->lower_spaces >> space & 1 ? table_find(w, space, &k) : NONE;

	return copy != NONE && w_is(w, copy, LIVE) ? copy : NONE;
}

static bool has_copies(struct writer *w, const uint64_t key[2])
{
	uint32_t space;

	for (space = 0; space < GPC_MAX_SPACES && find_copy(w, space, key) == NONE; space++)
		;
	return space < GPC_MAX_SPACES;
}

static void drop_copies(struct writer *w, const uint64_t key[2], uint64_t *sum)
{
	uint32_t space, copy;

	for (space = 0; space < GPC_MAX_SPACES; space++) {
		copy = find_copy(w, space, key);
		if (copy != NONE)
			retire_subtree(w, copy, sum);
	}
}

/* The i-th block in the order in which the blocks go.  The first ones of the list, which gather()
 * has counted, go after all others, so the named block goes last. */
static uint32_t in_turn(struct writer *w, uint32_t first, uint32_t i)
{
	return w->doomed.at[(first + i) % w->doomed.n];
}

/* Store the keys in drop[].  If the list has no block of VRAM or RAM, `key` is stored instead.  If
 * there is no such block and key is NULL, nothing is stored, and the result is false. */
static bool tell(struct writer *w, uint32_t first, const uint64_t *key, uint64_t command)
{
	uint32_t n = w->doomed.n, i, last = n;

	for (i = 0; i < n; i++)
		if (is_upper(w, in_turn(w, first, i)))
			last = i;
	if (last == n && !key)
		return false;
	dropped_begin(w);
	for (i = 0; i <= last && i < n; i++)
		if (is_upper(w, in_turn(w, first, i)))
			dropped_tell(w, w_record(w, in_turn(w, first, i))->key,
				     w_space(w, in_turn(w, first, i)), i == last ? command : 0);
	if (last == n)
		dropped_tell(w, key, NONE, command);
	/* once a block has gone, a command that runs again finds the keys in drop[] */
	order_stores();
	return true;
}

static void carry_out(struct writer *w, uint32_t first, const uint64_t *key, uint64_t command,
		      uint64_t *sum)
{
	uint32_t n = w->doomed.n, i, record;
	bool upper = tell(w, first, key, command), copies = upper && w_state(w)->lower_spaces;

	for (i = 0; i < n; i++)
		w->node[w->doomed.at[i]].doomed = false;
	for (i = 0; copies && i < n; i++)
		if (is_upper(w, w->doomed.at[i]))
			drop_copies(w, w_record(w, w->doomed.at[i])->key, sum);
	if (copies && key)
		drop_copies(w, key, sum);
	w->dropping = true;
	for (i = 0; i < n; i++) {
		record = in_turn(w, first, i);
		if (w_is(w, record, LIVE))
			retire_subtree(w, record, sum);
	}
	w->dropping = false;
	if (upper)
		dropped_end(w);
}

/* ---- only the key goes ---- */

/* All blocks of the list have one key.  False: all these blocks are below RAM. */
static bool tell_alone(struct writer *w, uint64_t command)
{
	const uint64_t *key = NULL;
	uint32_t i;

	for (i = 0; i < w->doomed.n; i++)
		if (is_upper(w, w->doomed.at[i]))
			key = w_record(w, w->doomed.at[i])->key;
	if (!key)
		return false;
	dropped_begin(w);
	dropped_tell(w, key, NONE, command | SHM_DROP_IS(SHM_DROP_KEY));
	order_stores();
	return true;
}

static void carry_out_alone(struct writer *w, uint64_t command, uint64_t *sum)
{
	uint32_t i, space, copy;
	bool upper = tell_alone(w, command);
	const uint64_t *key = w_record(w, w->doomed.at[0])->key;

	for (i = 0; i < w->doomed.n; i++)
		w->node[w->doomed.at[i]].doomed = false;
	for (space = 0; upper && space < GPC_MAX_SPACES; space++) {
		copy = find_copy(w, space, key);
		if (copy != NONE)
			retire_alone(w, copy, sum);
	}
	w->dropping = true;
	for (i = 0; i < w->doomed.n; i++)
		if (w_is(w, w->doomed.at[i], LIVE))
			retire_alone(w, w->doomed.at[i], sum);
	w->dropping = false;
	if (upper)
		dropped_end(w);
}

int32_t drop_block(struct writer *w, uint32_t peer, uint64_t position,
		   const struct shm_command *cmd, uint32_t record)
{
	uint64_t command = (uint64_t)(peer + 1) << 56 | position, number = 0, key[2];
	bool everywhere, is_there;
	uint32_t first;

	if (position < w->peer[peer].again) /* a writer that died may have run it */
		number = dropped_by(w, command);
	first = gather(w, record, cmd, number, key);
	if (cmd->drop.alone && first) {
		carry_out_alone(w, command, &w_tally(w, peer)->dropped);
		return 1;
	}
	everywhere = cmd->flags & CF_EVERYWHERE && is_key(key);
	is_there = first || (everywhere && has_copies(w, key));
	if (is_there || (everywhere && !number))
		carry_out(w, first, everywhere ? key : NULL, is_there ? command : 0,
			  &w_tally(w, peer)->dropped);
	else
		dropped_end(w); /* of a drop in which an earlier writer died */
	return is_there || number;
}
