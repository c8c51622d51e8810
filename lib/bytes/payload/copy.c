/* SPDX-License-Identifier: Apache-2.0 */
/* copy.c - gpc_copy: checked as a whole, then enqueued.
 *
 *   1  The memory of both pools is held (rule B11).
 *   2  Every block is looked at.  If one is refused, nothing has been enqueued.
 *   3  The way from layout to layout is planned once; RAM that a GPU copies is registered.
 *   4  A channel is taken, and the operations are enqueued.  The mark follows them (rule B3), even
 *      if an operation was refused.
 * Tests: t/bytes/copies-race.t t/bytes/copy-device.t t/bytes/copy-dies.t t/bytes/copy.t
 *   t/bytes/copies-end.t t/bytes/copy-stores.t */
#include "config.h"

#include "bytes/payload/transfers.h"

#include <errno.h>
#include <string.h>

#include "index/peer/hold.h"
#include "index/peer/refs.h"
#include "index/peer/refuse.h"

/* ---- may it be copied? ---- */

static bool is_skipped(const struct gpc_move *m)
{
	return m->to == GPC_NONE;
}

/* The pools must be those of the first move that is not skipped. */
static int check_pools(const gpc *c, const struct gpc_move *moves, uint32_t n, uint32_t *ret_first)
{
	uint32_t i, first = n;

	for (i = 0; i < n; i++) {
		const struct gpc_move *m = &moves[i];

		if (is_skipped(m))
			continue;
		if (pool_record(&c->seg, m->from) == SHM_NO_RECORD)
			return refuse_move_block(c, i, ".from", m->from);
		if (pool_record(&c->seg, m->to) == SHM_NO_RECORD)
			return refuse_move_block(c, i, ".to", m->to);
		first = MIN(first, i);
		if (GPC_POOL(m->from) != GPC_POOL(moves[first].from))
			return err_set(EINVAL,
				       "moves[%u].from is a block of pool %d, and moves[%u].from "
				       "one of pool %d: one call copies from one pool",
				       i, GPC_POOL(m->from), first, GPC_POOL(moves[first].from));
		if (GPC_POOL(m->to) != GPC_POOL(moves[first].to))
			return err_set(EINVAL,
				       "moves[%u].to is a block of pool %d, and moves[%u].to one "
				       "of pool %d: one call copies to one pool",
				       i, GPC_POOL(m->to), first, GPC_POOL(moves[first].to));
	}
	*ret_first = first;
	return 0;
}

static bool is_reserved(const gpc *c, uint32_t record, gpc_block block)
{
	if (hold_is_pool_owner(c, block))
		return hold_has_owned(c, record, block);
	return hold_of(load_relaxed(refs_cell(c, record))) == HOLD_RESERVED;
}

static bool may_be_read(const gpc *c, uint32_t record, gpc_block block, uint32_t to)
{
	uint16_t cell = load_relaxed(refs_cell(c, record));

	return hold_refs(cell) || is_reserved(c, record, block) ||
	       load_relaxed(&seg_record(&c->seg, to)->source) == record + 1;
}

/* Both pools are mapped by now, so their slots are within the layouts, unless somebody has forged
 * them. */
static int check_move(const gpc *c, uint32_t i, const struct gpc_move *m, const struct pair *p)
{
	uint32_t to = pool_record(&c->seg, m->to), from = pool_record(&c->seg, m->from);

	if (to == SHM_NO_RECORD || (uint32_t)GPC_SLOT(m->to) >= p->to->memory.slots)
		return refuse_move_block(c, i, ".to", m->to);
	if (from == SHM_NO_RECORD || (uint32_t)GPC_SLOT(m->from) >= p->from->memory.slots)
		return refuse_move_block(c, i, ".from", m->from);
	if (!is_reserved(c, to, m->to))
		return err_set(EPERM,
			       "moves[%u].to is block 0x%x, which this handle has not "
			       "reserved: only into a reservation may be copied",
			       i, (unsigned)m->to);
	if (!may_be_read(c, from, m->from, to))
		return err_set(EPERM,
			       "moves[%u].from is block 0x%x, which this handle does not hold, "
			       "and which is not the source of the move whose target is 0x%x",
			       i, (unsigned)m->from, (unsigned)m->to);
	return 0;
}

static void mark_slot(uint64_t *slots, gpc_block b, bool on)
{
	uint32_t s = (uint32_t)GPC_SLOT(b);

	slots[s / 64] = (slots[s / 64] & ~(1ull << (s & 63))) | (uint64_t)on << (s & 63);
}

static bool is_marked(const uint64_t *slots, gpc_block b)
{
	uint32_t s = (uint32_t)GPC_SLOT(b);

	return slots[s / 64] >> (s & 63) & 1;
}

/* Copies of one call run in any order.  So no slot is written twice; and within one pool no slot
 * is read by one copy and written by another. */
static int check_overlap(struct transfers *t, const struct pair *p, const struct gpc_move *moves,
			 uint32_t n)
{
	uint32_t i;
	int err = 0;

	pthread_mutex_lock(&t->marks);
	for (i = 0; !err && i < n; i++) {
		if (is_skipped(&moves[i]))
			continue;
		if (is_marked(p->slots, moves[i].to))
			err = err_set(EINVAL,
				      "moves[%u].to is block 0x%x, which is that of an earlier "
				      "move of this call, too",
				      i, (unsigned)moves[i].to);
		mark_slot(p->slots, moves[i].to, true);
	}
	for (i = 0; !err && p->to == p->from && i < n; i++)
		if (!is_skipped(&moves[i]) && is_marked(p->slots, moves[i].from))
			err = err_set(EINVAL,
				      "moves[%u].from is block 0x%x, which is a `to` of this "
				      "call, too: copy it by an earlier call",
				      i, (unsigned)moves[i].from);
	for (i = 0; i < n; i++)
		if (!is_skipped(&moves[i]))
			mark_slot(p->slots, moves[i].to, false);
	pthread_mutex_unlock(&t->marks);
	return err;
}

static int check_moves(gpc *c, const struct pair *p, const struct gpc_move *moves, uint32_t n)
{
	uint32_t i;
	int err = 0;

	for (i = 0; !err && i < n; i++)
		if (!is_skipped(&moves[i]))
			err = check_move(c, i, &moves[i], p);
	return err ? err : check_overlap(c->transfers, p, moves, n);
}

/* ---- enqueued ---- */

static uint32_t next_pairs(const struct gpc_move *moves, uint32_t n, uint32_t *at,
			   struct copy_pair *pairs, uint32_t room)
{
	uint32_t k = 0;

	for (; *at < n && k < room; ++*at)
		if (!is_skipped(&moves[*at]))
			pairs[k++] = (struct copy_pair){ (uint32_t)GPC_SLOT(moves[*at].from),
							 (uint32_t)GPC_SLOT(moves[*at].to) };
	return k;
}

static int pin_moves(gpc *c, const struct pair *p, const struct gpc_move *moves, uint32_t n)
{
	struct copy_pair pairs[ROUND];
	uint32_t at = 0, k;
	int err = 0;

	while (!err && (k = next_pairs(moves, n, &at, pairs, ROUND)) != 0)
		err = pin_pair(c, p, pairs, k);
	return err;
}

/* By a device: the mark is enqueued after the enqueued copies, even if some copies were
 * refused. */
static int by_device(gpc *c, uint32_t channel, const struct pair *p, const struct gpc_move *moves,
		     uint32_t n, void *stream, gpc_transfer *ret)
{
	struct copy_pair pairs[ROUND];
	uint64_t value, *word = transfer_word(c, channel, &value);
	uint32_t at = 0, k;
	int err = 0, mark;

	while (!err && (k = next_pairs(moves, n, &at, pairs, ROUND)) != 0)
		err = enqueue_pairs(p, 0, pairs, k, stream);
	if (!err)
		err = p->by->device->event_record(c->transfers->channel[channel].events->event[0],
						  stream);
	mark = p->by->device->mark(p->by->memory.uuid, word, value, stream);
	*ret = transfer_end(c, channel, err ? err : mark, !mark);
	return err || mark ? -EIO : 0;
}

/* By our threads, which refuse nothing once there is memory for the list. */
static int by_threads(gpc *c, uint32_t channel, const struct pair *p, const struct gpc_move *moves,
		      uint32_t n, gpc_transfer *ret)
{
	uint64_t value, *word = transfer_word(c, channel, &value);
	struct copy_pair *pairs;
	uint32_t at = 0, k;
	int err = host_start(c);

	if (!err)
		err = host_room(c, channel, n, &pairs);
	if (err) {
		/* (e) nothing was enqueued, so we store done ourselves: pairs with is_done */
		store_release(word, value);
		transfer_end(c, channel, 0, true);
		return err;
	}
	k = next_pairs(moves, n, &at, pairs, n);
	*ret = transfer_end(c, channel, 0, true);
	host_submit(c, channel, p, k);
	return 0;
}

/* With both maps held.  Their holds go to the transfer, or stay with the caller. */
static int copy(gpc *c, struct map *to, struct map *from, const struct gpc_move *moves, uint32_t n,
		void *stream, gpc_transfer *ret, bool *ret_over)
{
	const struct pair *p;
	uint32_t channel;
	int err = pair_get(c, to, from, 1, &p);

	if (!err)
		err = check_moves(c, p, moves, n);
	if (!err)
		err = check_stream(p->by, stream);
	if (!err)
		err = pin_moves(c, p, moves, n);
	if (!err)
		err = transfer_begin(c, to, from, &channel);
	if (err)
		return err;
	*ret_over = true;
	err = events_make(c, channel, 1);
	if (err) {
		transfer_drop(c, channel);
		return err;
	}
	return p->by ? by_device(c, channel, p, moves, n, stream, ret)
		     : by_threads(c, channel, p, moves, n, ret);
}

static int copy_pools(gpc *c, const struct gpc_move *first, const struct gpc_move *moves,
		      uint32_t n, void *stream, gpc_transfer *ret)
{
	struct map *to, *from;
	bool over = false;
	int err = map_get(c, (uint32_t)GPC_POOL(first->to), &to);

	if (err)
		return err;
	err = map_get(c, (uint32_t)GPC_POOL(first->from), &from);
	if (!err) {
		err = copy(c, to, from, moves, n, stream, ret, &over);
		if (!over)
			map_put(c, from);
	}
	if (!over)
		map_put(c, to);
	return err;
}

GPC_EXPORT int gpc_copy(gpc *c, const struct gpc_move *moves, uint32_t n, uint32_t flags,
			void *stream, gpc_transfer *ret)
{
	gpc_transfer name = 0;
	uint32_t first = n;
	int err = handle_check(c, true);

	if (err == 0)
		err = err_flags(flags, 0);
	if (err == 0)
		err = err_count(n, "moves");
	if (err == 0 && n && !moves)
		err = err_set(EINVAL, "moves is NULL, and n is %u", n);
	if (err == 0)
		err = check_pools(c, moves, n, &first);
	if (err < 0)
		return err;
	if (first < n)
		err = copy_pools(c, &moves[first], moves, n, stream, &name);
	if (ret && (!err || name))
		*ret = name;
	return err;
}
