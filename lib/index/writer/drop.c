/* SPDX-License-Identifier: Apache-2.0 */
/* drop.c - drops of a block whose bytes are bad, of everything that was computed from it, and of
 * their copies below RAM, which have the same bytes.
 *
 * The command names a block in one of its lives.  The block's state decides which keys go:
 *
 *   the block                        these go
 *   LIVE, at home                    the block
 *   LIVE with REC_MOVED, or DYING    the block that has its key in its space: the target of the move.
 *     with it                        If that is nowhere, or is leaving, too: the key in all spaces
 *   LIVE with REC_LEAVING            the block, and its key in all spaces, since the target is in
 *                                    another space
 *   DYING with REC_LEAVING           its key in all spaces
 *   any other                        nothing: its key was evicted, or others dropped it
 *
 * Each of these takes along all blocks that hang on it.  With CF_EVERYWHERE the key goes in all
 * spaces of VRAM and RAM, whatever has become of the block, and so does the key of each block that
 * goes with it.  A key that is in none of these spaces is put into drop[] all the same, and its
 * copies below RAM go.  A peer that has read such a block may publish blocks behind it, and the
 * steward of the tiers may have them.
 *
 * A key that has moved away may have been evicted there and computed again: then good bytes go.
 *
 *   what was stored last         a successor runs the command again, and
 *   state.drops is odd           begins anew
 *   some keys are in drop[]      begins anew, and adds them once more
 *   all are; copies are DYING    does the same
 *   some blocks are DYING        does the same with the others; with EVERYWHERE the keys in drop[] say
 *                                which these are
 *   the block is DYING           finds its command beside the last key: it makes state.drops even, and
 *                                answers that the block went
 *   state.drops is even again    does the same
 *   drop[] has a key that is     adds it once more: the command is not beside it, since it has
 *     nowhere                    nothing to count
 *
 * So keys are stored in drop[] before anything goes, copies go before blocks, and the named block
 * goes last.  A block that the steward of a tier is about to publish has no record to look up.
 * Its publishes name the drops whose keys have left the tier (`since`), and are refused below keys
 * that were dropped since (tiers/steward/drops.c).
 *
 * A drop of a copy does not concern the block in VRAM or RAM, since the bytes of the copy may have
 * been damaged where they lay.  So such a drop has no number, and its keys are not in drop[].
 *
 * With GPC_ONLY the key goes alone with its copies below RAM, and the blocks behind it stay:
 * nothing was computed from bytes that nobody could read.
 *
 *   a child of the block             then
 *   in a pool that takes gaps        stays without a parent from then on (REC_UNCHAINED), as if it had
 *                                    been published so; a target to which it is moving does the same
 *   in a pool that takes none        goes with all that hangs on it.  Its bytes are not bad: its copies
 *                                    below stay, and no drop has its key
 *   below RAM                        stays: pools of tiers take gaps
 *
 *   the block is                     then
 *   referenced, or being read        it is DYING until that is over, as in any drop
 *   on its way to another block      the target goes as above, without the blocks that hang on it; a
 *                                    target that is not LIVE yet is refused
 *   RESERVED, or of another life     nothing happens
 *   computed again                   its publish is refused if it names an earlier `since`; a publish
 *                                    of a block behind it is not
 *
 *   what was stored last             a successor runs the command again, and
 *   some children have no parent     does the same with the other children; these stay
 *   the key and those are in drop[]  adds the key once more
 *   the block is DYING               finds its command, and answers that it went
 *
 * drop[] tells the steward of the tiers of children that stay, since a drop of a block before the
 * gap takes these along.  It does so before the record says that a child may stay: after that a
 * successor finds no child to tell of (model/alone.pml).
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

/* Leaves first: each block is in the list behind all its descendants. */
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

/* From the roots to the leaves: the descendants of a key in another space go at once with it. */
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

/* Returns the number of descendants of the last block in the list. */
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

/* The copy in that space, if that is a space below RAM; or NONE. */
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

/* The i-th block in the order in which they go: the blocks of the named block go after all
 * others. */
static uint32_t in_turn(struct writer *w, uint32_t first, uint32_t i)
{
	return w->doomed.at[(first + i) % w->doomed.n];
}

/* Store the keys in drop[].  key: stored if no block of the list is in VRAM or RAM.  If it is NULL
 * then, none is stored: false. */
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
	/* if any block has gone, a command that runs again finds its keys here */
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

/* ---- the key goes alone ---- */

/* All blocks of the list have one key.  False: it is only below RAM. */
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
		dropped_end(w); /* the drop of a writer that died in it */
	return is_there || number;
}
