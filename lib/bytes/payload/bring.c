/* SPDX-License-Identifier: Apache-2.0 */
/* bring.c - a command that binds targets to a transfer, and the copies into these targets.
 *
 * The order (rules B1 to B7, B11):
 *
 *   1  The memory of both sides is held, the way planned, and the stream looked at.  Nothing has
 *      happened yet.
 *   2  A channel and its value are taken; bad[channel] says that no block is bad.
 *   3  The command is sent.  Its answer is taken with ring_lock held.  There a fetch's targets get
 *      their reference, before `taken` passes the answer, and its sources lose theirs: the writer
 *      pins them now.
 *   4  The copies are enqueued, and after those of each stage an event; then the checksums; the
 *      mark comes last.
 *
 * A call that gives up its command leaves an untold channel: the answer may still bind targets,
 * which are cut then.
 * Tests: t/bytes/fetch-late.t t/bytes/notes-fetched.t t/bytes/pools-made-again.t
 *   t/bytes/transfer-stores.t t/bytes/spill.t t/bytes/fetch.t */
#include "config.h"

#include "bytes/payload/bring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "index/peer/hold.h"
#include "index/peer/refs.h"
#include "index/request/note.h"

/* ---- before the command ---- */

int bring_check_ranks(const gpc *c, uint32_t nranks, const int32_t *ranks, const void *moves,
		      const void *nmoves)
{
	uint32_t i, k;

	if (nranks > GPC_MAX_RANKS)
		return err_set(EINVAL, "nranks is %u: at most %d processes copy for one transfer",
			       nranks, GPC_MAX_RANKS);
	if (!nranks)
		return 0;
	if (!ranks || !moves || !nmoves)
		return err_set(EINVAL, "%s is NULL, and nranks is %u",
			       !ranks   ? "ranks"
			       : !moves ? "moves"
					: "nmoves",
			       nranks);
	for (i = 0; i < nranks; i++) {
		if (ranks[i] < 0 || (uint32_t)ranks[i] >= c->seg.header.geometry.max_peers)
			return err_set(EINVAL, "ranks[%u] is %d: it must be a peer, below %u", i,
				       ranks[i], c->seg.header.geometry.max_peers);
		for (k = 0; k < i; k++)
			if (ranks[k] == ranks[i])
				return err_set(EINVAL, "ranks[%u] and ranks[%u] are both peer %d",
					       k, i, ranks[i]);
		if (load_acquire(&seg_seat(&c->seg, (uint32_t)ranks[i])->state) != SEAT_TAKEN)
			return err_set(EINVAL, "ranks[%u] is %d: there is no peer in that seat", i,
				       ranks[i]);
	}
	return 0;
}

/* ---- maps ---- */

struct bring *bring_new(gpc *c, bool fetches, void *stream)
{
	struct bring *b = malloc(sizeof(*b));

	if (!b) {
		err_set(ENOMEM, "no memory for a transfer of %d blocks", GPC_TRANSFER_BLOCKS);
		return NULL;
	}
	b->c = c;
	b->n = b->nlots = b->nranks = 0;
	b->why = 0;
	b->fetches = fetches;
	b->begun = b->copied = b->lost = false;
	b->stages = 1;
	b->stream = stream;
	b->ranks = NULL;
	b->by = NULL;
	b->home = NULL;
	return b;
}

int bring_home(struct bring *b, uint32_t pool)
{
	return map_get(b->c, pool, &b->home);
}

static bool is_same_device(const struct map *a, const struct map *b)
{
	return !a == !b && (!a || (a->device == b->device && !memcmp(a->memory.uuid, b->memory.uuid,
								     sizeof(a->memory.uuid))));
}

/* A transfer has one stream and one mark: one device makes all copies, or our threads make all of
 * them as one lot. */
static int check_by(struct bring *b, const struct pair *p)
{
	if (!b->nlots)
		b->by = p->by;
	else if (!is_same_device(b->by, p->by) || !b->by)
		return err_set(ENOSPC, "another device copies from pool %u: by another call",
			       p->from->pool);
	return 0;
}

int bring_lot(struct bring *b, uint32_t pool, uint32_t *ret_lot)
{
	struct bring_lot *l = &b->lot[b->nlots];
	uint32_t i;
	int err;

	for (i = 0; i < b->nlots; i++)
		if (b->lot[i].map->pool == pool) {
			*ret_lot = i;
			return 0;
		}
	err = map_get(b->c, pool, &l->map);
	if (err)
		return err;
	err = b->fetches ? pair_get(b->c, b->home, l->map, b->stages, &l->pair)
			 : pair_get(b->c, l->map, b->home, b->stages, &l->pair);
	if (!err)
		err = check_by(b, l->pair);
	if (!err && b->by && sum_kept(l->map))
		err = sum_prepare(b->c, b->home, l->map);
	if (err) {
		map_put(b->c, l->map);
		return err;
	}
	*ret_lot = b->nlots++;
	return 0;
}

/* ---- the channel is begun ---- */

static uint32_t all_maps(const struct bring *b, struct map *map[GPC_MAX_POOLS + 1])
{
	uint32_t i, n = 0;

	if (b->home)
		map[n++] = b->home;
	for (i = 0; i < b->nlots; i++)
		map[n++] = b->lot[i].map;
	return n;
}

static int make_room(gpc *c, uint32_t channel)
{
	struct channel *s = &c->transfers->channel[channel];

	if (!s->bound)
		s->bound = malloc(GPC_TRANSFER_BLOCKS * sizeof(*s->bound));
	return s->bound ? 0
			: err_set(ENOMEM, "no memory for a transfer of %d blocks",
				  GPC_TRANSFER_BLOCKS);
}

int bring_begin(struct bring *b)
{
	struct map *map[GPC_MAX_POOLS + 1];
	struct transfer_take start = {
		.device = b->by ? b->by->device : NULL,
		.uuid = b->by ? b->by->memory.uuid : NULL,
		.map = map,
		.nmaps = all_maps(b, map),
		.commits = true,
	};
	int err = b->nranks ? 0 : check_stream(b->by, b->stream);

	if (!err && !b->nranks && !b->by)
		err = host_start(b->c);
	if (!err && b->by)
		err = pin_words(b->c, b->by->device, b->c->peer);
	if (!err)
		err = transfer_take(b->c, &start, &b->channel);
	if (err)
		return err;
	b->begun = true;
	err = events_make(b->c, b->channel, b->stages);
	if (!err)
		err = make_room(b->c, b->channel);
	if (err) {
		transfer_drop(b->c, b->channel);
		b->begun = false;
		b->home = NULL;
		b->nlots = 0;
	}
	return err;
}

/* ---- the command is sent ---- */

/* The answer to a command that was given up: its targets are cut. */
static void take_late(struct transfers *t, uint32_t channel, int32_t result)
{
	struct channel *s = &t->channel[channel];

	pthread_mutex_lock(&t->lock);
	if (s->state == CHANNEL_BEGUN || s->state == CHANNEL_UNTOLD) {
		s->cut = 0;
		s->enqueued = false;
		transfer_set(t, channel, result > 0 ? CHANNEL_TORN : CHANNEL_CUT);
	}
	pthread_mutex_unlock(&t->lock);
}

/* The target has the caller's reference from here on, and the note of its source. */
static void take_target(gpc *c, const struct shm_command *s, bool fetches, struct ref_sum *sum)
{
	uint32_t to = pool_record(&c->seg, s->move.to), from = pool_record(&c->seg, s->block);

	if (to == SHM_NO_RECORD)
		return;
	if (seg_keeps_notes(&c->seg))
		notes_move(c, to);
	if (!fetches)
		return;
	hold_step(c, to, s->move.to, HOLD_FETCHED, sum);
	if (from == SHM_NO_RECORD)
		return;
	refs_stamp_end(c, from);
	refs_drop(c, from, s->block, sum);
}

static void take_answer(gpc *c, struct op *op)
{
	const struct shm_command *head = ring_entry(c, op, 0);
	bool fetches = head->op == CMD_PROMOTE;
	struct ref_sum sum = { 0 };
	uint32_t i;

	op->result = MIN(head->result, (int32_t)op->n);
	if (op->abandoned) {
		take_late(c->transfers, op->pool, op->result);
		return;
	}
	for (i = 0; op->result > 0 && i < (uint32_t)op->result; i++) {
		const struct shm_command *s = ring_entry(c, op, i);

		if (s->move.to >= 0)
			take_target(c, s, fetches, &sum);
		op->out[i] = (struct answer){ { { s->block, s->move.to, GPC_NONE } } };
	}
	if (op->result >= 0 && (uint32_t)op->result < op->n)
		op->out[op->result].result = ring_entry(c, op, (uint32_t)op->result)->result;
	refs_account(c, &sum);
}

/* A value names one life of a channel, and a refused command has used it up. */
static void ask_anew(gpc *c, struct shm_command *cmds)
{
	uint32_t channel = (uint32_t)cmds->move.transfer % SHM_TRANSFERS;

	transfer_renew(c, channel);
	cmds->move.transfer = transfer_name(c->transfers, channel);
	cmds->group_state = GROUP_OPEN;
}

/* The channel after a command that failed. */
static void ask_failed(struct bring *b, bool pending)
{
	struct transfers *t = b->c->transfers;

	pthread_mutex_lock(&t->lock);
	if (pending && t->channel[b->channel].state == CHANNEL_BEGUN)
		transfer_set(t, b->channel, CHANNEL_UNTOLD);
	pthread_mutex_unlock(&t->lock);
	if (pending)
		map_poke(b->c);
	else
		transfer_drop(b->c, b->channel);
	b->begun = false;
	b->home = NULL;
	b->nlots = 0;
}

static struct shm_command *commands(const struct bring *b, const struct shm_command *head)
{
	struct shm_command *cmds = calloc(b->n, sizeof(*cmds));
	uint32_t i;

	if (!cmds) {
		err_set(ENOMEM, "no memory for %u commands", b->n);
		return NULL;
	}
	cmds[0] = *head;
	cmds[0].move.transfer = transfer_name(b->c->transfers, b->channel);
	memset(cmds[0].move.rank, SHM_NO_PEER, sizeof(cmds[0].move.rank));
	for (i = 0; i < b->nranks; i++)
		cmds[0].move.rank[i] = (uint8_t)b->ranks[i];
	for (i = 0; i < b->n; i++)
		cmds[i].block = b->item[i].from;
	return cmds;
}

static void fill_items(struct bring *b, const struct op *op, uint32_t n)
{
	struct channel *s = &b->c->transfers->channel[b->channel];
	uint32_t i, record;

	s->op = op->position + 1;
	for (i = 0; i < n; i++) {
		struct bring_item *item = &b->item[i];
		const struct shm_record *r;

		item->from = op->out[i].block;
		item->to = op->out[i].to;
		record = pool_record(&b->c->seg, item->to);
		if (record == SHM_NO_RECORD) {
			item->to = GPC_NONE;
			continue;
		}
		r = seg_record(&b->c->seg, record); /* the transfer has the target, which stays */
		item->key = (gpc_key){ { load_relaxed(&r->key[0]), load_relaxed(&r->key[1]) } };
		item->op = load_relaxed(&r->op);
	}
}

int bring_ask(struct bring *b, const struct shm_command *head, uint64_t deadline)
{
	struct group_call how = { .take = take_answer,
				  .anew = ask_anew,
				  .tag = (uint8_t)b->channel };
	struct shm_command *cmds = commands(b, head);
	struct op *op = NULL;
	int got = -ENOMEM;

	/* All ones: no block is bad; a device stores a lower number.  It is stored before the
	 * command, so before any done word. */
	store_relaxed(&seg_transfer(&b->c->seg, b->c->peer)->bad[b->channel], UINT64_MAX);
	if (cmds)
		got = request_group_by(b->c, cmds, b->n, deadline, &how, &op);
	free(cmds);
	if (got < 0) {
		ask_failed(b, how.pending);
		return got;
	}
	b->why = (uint32_t)got < b->n ? op->out[got].result : 0;
	b->n = (uint32_t)got;
	fill_items(b, op, b->n);
	free(op);
	return got;
}

/* Between the map and the answer a pool may have gone, and another may have its number.  From the
 * answer on targets and pinned sources keep the pools as they are, so one look is enough (rule
 * B11). */
int bring_check(const struct bring *b)
{
	const struct map *m = b->home;
	uint32_t i;

	for (i = 0; m && map_is_of_pool(b->c, m) && i < b->nlots; i++)
		m = b->lot[i].map;
	if (!m || map_is_of_pool(b->c, m))
		return 0;
	return err_set(
		ESTALE,
		"pool %u has gone, and another one has its number: what is bound there is not "
		"copied",
		m->pool);
}

/* ---- the end ---- */

/* The blocks for gpc_transfer_results, stored before anybody can see the transfer done. */
static uint32_t tell_targets(struct bring *b, uint32_t n)
{
	struct channel *s = &b->c->transfers->channel[b->channel];
	uint32_t i, k = 0;

	for (i = 0; i < n; i++)
		if (b->item[i].to >= 0)
			s->bound[k++] = (struct bound){ pool_record(&b->c->seg, b->item[i].to), i };
	s->n = k;
	return k;
}

static gpc_transfer finish_ranks(struct bring *b)
{
	struct transfers *t = b->c->transfers;
	gpc_transfer name;

	pthread_mutex_lock(&t->lock);
	name = transfer_name(t, b->channel);
	t->channel[b->channel].ranked = true;
	transfer_set(t, b->channel, CHANNEL_MARKED);
	pthread_mutex_unlock(&t->lock);
	return name;
}

/* The copier enqueues the mark. */
static gpc_transfer finish_copies(struct bring *b)
{
	struct copy_pair *pairs;
	uint64_t value, *word = transfer_word(b->c, b->channel, &value);
	const struct pair *p = b->lot[0].pair;
	gpc_transfer name;
	uint32_t i, k = 0;
	int err;

	if (b->by) {
		err = b->by->device->mark(b->by->memory.uuid, word, value, b->stream);
		return transfer_end(b->c, b->channel, err, !err);
	}
	pairs = b->c->transfers->job[b->channel].pairs;
	for (i = 0; i < b->n; i++)
		if (b->item[i].to >= 0)
			pairs[k++] = (struct copy_pair){ (uint32_t)GPC_SLOT(b->item[i].from),
							 (uint32_t)GPC_SLOT(b->item[i].to) };
	name = transfer_end(b->c, b->channel, 0, true);
	host_submit(b->c, b->channel, p, k);
	return name;
}

gpc_transfer bring_finish(struct bring *b, uint32_t whole, bool all)
{
	gpc_transfer name = transfer_name(b->c->transfers, b->channel);
	uint32_t told = tell_targets(b, whole), i, bound = 0;

	b->begun = false;
	for (i = 0; i < b->n; i++)
		bound += b->item[i].to >= 0;
	if (b->lost) {
		name = 0;
	} else if (!bound) {
		transfer_drop(b->c, b->channel);
		name = 0;
	} else if (all) {
		name = b->nranks ? finish_ranks(b) : finish_copies(b);
	} else {
		tear(b->c, b->channel, told ? whole : 0, b->copied);
		name = told ? name : 0;
	}
	b->home = NULL;
	b->nlots = 0;
	return name;
}

void bring_tell(const struct bring *b, uint32_t n, struct gpc_move *moves, uint32_t *nmoves)
{
	uint32_t i, k = 0;

	for (i = 0; i < n; i++) {
		const struct bring_item *item = &b->item[i];

		if (item->to >= 0)
			moves[k++] = (struct gpc_move){ item->from, item->to, item->key, item->op };
	}
	*nmoves = k;
}

void bring_unref(gpc *c, const gpc_block *blocks, uint32_t n)
{
	struct ref_sum sum = { 0 };
	uint32_t i, record;

	for (i = 0; i < n; i++) {
		record = pool_record(&c->seg, blocks[i]);
		if (record == SHM_NO_RECORD)
			continue;
		refs_stamp_end(c, record);
		refs_drop(c, record, blocks[i], &sum);
	}
	refs_account(c, &sum);
}

void bring_end(struct bring *b)
{
	uint32_t i;

	if (!b)
		return;
	if (b->begun) { /* no target is bound */
		transfer_drop(b->c, b->channel);
	} else {
		for (i = 0; i < b->nlots; i++)
			map_put(b->c, b->lot[i].map);
		if (b->home)
			map_put(b->c, b->home);
	}
	free(b);
}
