/* SPDX-License-Identifier: Apache-2.0 */
/* retire.c - the way of a block from unpublished to reusable.  It connects the states of records
 * (index/table/record.c), the table, the tree and the queues with the batches
 * (index/table/grace.c).
 *
 * A block is retired in this order: DYING; its entries are emptied; it leaves queue and tree; it
 * joins the open batch.  When flush and grace period of the batch are over, entries are usable,
 * relocations go on, and blocks without references are free.
 * Tests: t/index/balance.t t/index/waited-victim.t t/index/window.t t/index/clear.t
 *   t/index/sources-wait.t t/index/parked.t */
#include "config.h"

#include <stdlib.h>
#include "index/writer/grants.h"
#include "index/table/dropped.h"
#include "index/table/events.h"
#include "index/table/grace.h"
#include "index/table/leave.h"
#include "index/table/lru.h"
#include "index/table/alloc.h"
#include "index/table/meter.h"
#include "index/table/parked.h"
#include "index/table/record.h"
#include "index/table/table.h"
#include "index/table/tree.h"
#include "index/writer/move_bind.h"
#include "index/writer/retire.h"

#define AHEAD           (LINES_AHEAD / 2) /* blocks */
#define AHEAD_AGAIN     4
#define QUARANTINE_ROWS 16384u /* the most rows that are looked at in vain each time */
_Static_assert(AHEAD <= RETIRE_AHEAD, "they fit");

/* ---- into the batch ---- */

void retire_dying(struct writer *w, uint32_t record)
{
	grace_record(w, record);
	if (w_record(w, record)->owner == SHM_NO_PEER)
		w_pool_of(w, record)->coming++;
}

const struct probe_key *retire_prefetch(struct writer *w, struct retire_ahead *a,
					const uint32_t *list, uint32_t n, uint32_t i)
{
	uint32_t at = i ? i + AHEAD - 1 : 0;

	for (; at < MIN(n, i + AHEAD); at++) {
		a->ready[at % RETIRE_AHEAD] = table_key(w, list[at]);
		table_prefetch(w, &a->ready[at % RETIRE_AHEAD]);
		__builtin_prefetch(&w->owned[list[at]], 1);
	}
	if (i + AHEAD_AGAIN < n)
		table_prefetch_second(w, &a->ready[(i + AHEAD_AGAIN) % RETIRE_AHEAD], false);
	return &a->ready[i % RETIRE_AHEAD];
}

/* The holders of a block that its owner evicts are counted at once.  References that are taken
 * after the barrier fail, and those that were taken before it are seen. */
static __attribute__((noinline)) void count_held(struct writer *w, uint32_t record)
{
	order_fence();
	record_set_lingers(w, record, !w_row_is_zero(w, record));
}

/* k: its key, ready for its space. */
static inline __attribute__((always_inline)) void
retire(struct writer *w, uint32_t record, const struct probe_key *k, uint32_t owner, uint64_t op)
{
	uint32_t pool = w->pool_of[record];
	struct wpool *p = &w->pool[pool];
	gpc_block block = GPC_BLOCK(pool, (gpc_block)(record - p->first));
	bool told = w->cleared_pool != pool;

	if (__builtin_expect(w_record(w, record)->source != 0, 0))
		leave_sources(w, record);
	if (told)
		events_prepare_record(w, GPC_REMOVED, record, block,
				      w->dropping ? block : GPC_NONE);
	record_dying(w_record(w, record), owner, op);
	if (told)
		events_commit_prepared(w);
	table_remove(w, record, block, k);
	lru_forget(w, record);
	p->live--;
	p->dying++;
	if (__builtin_expect(p->flags & GPC_POOL_CALLER, 0))
		count_held(w, record);
	w_tell(w, pool);
	tree_leave(w, record);
	grace_record(w, record);
	p->coming += owner == SHM_NO_PEER;
}

void retire_block(struct writer *w, uint32_t record, uint32_t owner, uint64_t op)
{
	struct probe_key k = table_key(w, record);

	retire(w, record, &k, owner, op);
}

void retire_evicted(struct writer *w, uint32_t record, const struct probe_key *k, uint32_t owner,
		    uint64_t op, uint64_t *sum)
{
	if (__builtin_expect(!w->node[record].leaving, 1)) { /* otherwise its key is elsewhere */
		meter_evicted(w, record);
		store_relaxed(sum, *sum + 1);
	}
	retire(w, record, k, owner, op);
}

void retire_count(struct writer *w, uint32_t record, uint64_t *sum)
{
	if (w->node[record].leaving)
		return;
	if (sum) {
		store_relaxed(sum, *sum + 1);
		return;
	}
	meter_evicted(w, record);
	w_count_lost(w);
}

static void retire_lost(struct writer *w, uint32_t record, uint64_t *sum)
{
	retire_count(w, record, sum);
	retire_block(w, record, SHM_NO_PEER, 0);
}

void retire_some(struct writer *w, const uint32_t *list, uint32_t n)
{
	struct retire_ahead ahead;
	const struct probe_key *k;
	uint32_t i;

	for (i = 0; i < n; i++) {
		k = retire_prefetch(w, &ahead, list, n, i);
		if (w->node[list[i]].first == NONE && w_is(w, list[i], LIVE))
			retire_evicted(w, list[i], k, SHM_NO_PEER, 0, &w_state(w)->past.evicted);
		else
			retire_subtree(w, list[i], NULL);
	}
}

void retire_subtree(struct writer *w, uint32_t record, uint64_t *sum)
{
	uint32_t *list = NULL, size = 0, i, n;

	if (w->node[record].first == NONE) {
		retire_lost(w, record, sum);
		return;
	}
	n = tree_collect(w, record, &list, &size, 0);
	for (i = 0; i < n; i++) /* deepest first (rule C5) */
		retire_lost(w, list[i], sum);
	writer_free(list);
}

void retire_alone(struct writer *w, uint32_t record, uint64_t *sum)
{
	bool dropping = w->dropping;
	uint32_t child, next;

	w->dropping = false; /* descendants that have to go as well are not bad themselves */
	for (child = w->node[record].first; child != NONE; child = next) {
		next = w->node[child].next;
		if (!(w_pool_of(w, child)->flags & GPC_POOL_UNCHAINED)) {
			retire_subtree(w, child, sum);
			continue;
		}
		if (!shm_is_lower(w_pool_of(w, child)->kind))
			dropped_left(w, w_block(w, child));
		record_leave_alone(w, child);
		tree_attach(w, child, NONE);
	}
	w->dropping = dropping;
	retire_lost(w, record, sum);
}

/* ---- out of the batch ---- */

/* Somebody waits for the block, or holds it, or reads it; or it was held before. */
static __attribute__((noinline)) void arrive_late(struct writer *w, uint32_t record, bool held)
{
	struct shm_record *r = w_record(w, record);
	bool in_use;

	if (held)
		record_set_lingers(w, record, true);
	in_use = (held || w->node[record].readers) &&
		 (r->owner == SHM_NO_PEER || !grant_has_alone(w, record));
	if (w->missing.n && grant_expects(w, record)) {
		retire_dying(w, record); /* commands do not run yet (rule T7) */
		return;
	}
	if (r->owner != SHM_NO_PEER) {
		if (grant_arrived(w, record, in_use))
			return;
		/* rule S4: it is not waited for, and another victim is taken */
		r->owner = SHM_NO_PEER;
		r->op = 0;
	} else {
		w_pool_of(w, record)->coming--;
	}
	if (!in_use) {
		record_free(w, record);
		return;
	}
	parked_add(w, record);
}

/* Flush and grace period are over for this DYING block. */
static inline __attribute__((always_inline)) void arrive(struct writer *w, uint32_t record)
{
	const struct shm_record *r = w_record(w, record);
	uint32_t pool = w->pool_of[record];
	struct wpool *p = &w->pool[pool];
	bool held;

	if (WORD_STATE(load_relaxed(&r->word)) != DYING)
		return;
	held = !w_row_is_zero(w, record);
	if (__builtin_expect(held || r->owner != SHM_NO_PEER || (r->flags & REC_LINGERS) ||
				     w->node[record].readers || w->missing.n,
			     0)) {
		arrive_late(w, record, held);
		return;
	}
	p->coming--;
	p->dying--;
	record_freed(w, pool, record);
}

struct depth {
	uint32_t record, depth;
};

static int deepest_first(const void *a, const void *b)
{
	const struct depth *x = a, *y = b;

	return x->depth == y->depth ? 0 : x->depth > y->depth ? -1 : 1;
}

/* The blocks with REC_LEAVING, deepest first, since descendants of a block may have been on their
 * way as well. */
static void finish_leaving(struct writer *w, const struct records *list)
{
	struct depth *order = writer_alloc(list->n, sizeof(*order));
	uint32_t i, record;

	for (i = 0; i < list->n; i++)
		order[i] = (struct depth){ list->at[i], w_record(w, list->at[i])->depth };
	qsort(order, list->n, sizeof(*order), deepest_first);
	for (i = 0; i < list->n; i++) {
		record = order[i].record;
		w->node[record].waits = false;
		w_pool_of(w, record)->leaving--;
		if (w->missing.n) /* takeover: lookups may not find its target yet */
			grace_leaving(w, record);
		else if (lru_may_leave(w, record))
			retire_block(w, record, SHM_NO_PEER, 0);
		else
			lru_offer(w, record);
	}
	writer_free(order);
	w->progress = true;
}

static void finish(struct writer *w, struct grace *b)
{
	uint32_t i;

	if (b->moves)
		table_copies_done(w, b);
	for (i = 0; i < b->nentries; i++)
		bucket_entry_usable(w, b->entries[i]);
	if (b->nentries)
		w->progress = true;
	leave_batch(w, b);
	if (b->leaving.n)
		finish_leaving(w, &b->leaving);
	for (i = 0; i < b->nrecords; i++)
		arrive(w, b->records[i]);
	if (b->then)
		b->then(w);
	grace_recycle(w, b);
}

bool retire_advance(struct writer *w)
{
	bool moved = false, again;
	struct grace *over;

	do {
		again = grace_advance(w, &over);
		if (over)
			finish(w, over);
		moved |= again;
	} while (again);
	return moved;
}

/* ---- reservations that end ---- */

void retire_reservation(struct writer *w, uint32_t record)
{
	move_unbind(w, record);
	if (w->node[record].bound)
		return; /* something may still be copied there (rule B5) */
	record_free(w, record);
}

void retire_target(struct writer *w, uint32_t record)
{
	move_unbind(w, record);
	record_refuse(w, record);
	if (w_row_is_zero(w, record))
		record_free(w, record);
	else
		parked_add(w, record);
}

void retire_kept(struct writer *w, uint32_t record)
{
	move_unbind(w, record);
	if (!w->node[record].bound) /* otherwise other ranks copy there */
		retire_target(w, record);
}

/* ---- blocks that wait for a process to end ---- */

/* The reservation of a dead peer, whose kernels may write there until its process has gone. */
void retire_quarantine(struct writer *w, uint32_t record, const struct identity *who)
{
	if (w_is(w, record, RESERVED)) {
		move_unbind(w, record);
		if (w->node[record].bound)
			return; /* other ranks copy there */
		record_quarantine(w, record);
	}
	w->quarantine = writer_grow(w->quarantine, &w->quarantine_size, w->nquarantine + 1,
				    sizeof(*w->quarantine));
	w->quarantine[w->nquarantine++] = (struct quarantine){
		.record = record,
		.until_ns = clock_ns() + w->seg.header.quarantine_ms * NS_PER_MS,
		.who = *who,
	};
}

/* A quarantine lasts until the owner of the block has gone, if that can be seen from here; else for
 * a time. */
static bool is_quarantined(const struct quarantine *q, enum identity_answer owner)
{
	return owner == IDENTITY_THERE || (owner == IDENTITY_UNKNOWN && clock_ns() < q->until_ns);
}

static enum identity_answer look_at(struct identity *who, const struct identity *next)
{
	*who = *next;
	return identity_look(who);
}

/* Records of one owner are mostly side by side, so the owner is looked at once. */
void retire_poll_quarantine(struct writer *w)
{
	enum identity_answer owner = IDENTITY_UNKNOWN;
	struct identity who = { 0 };
	uint32_t rows = QUARANTINE_ROWS;

	if (!w->quarantine_hand)
		w->quarantine_hand = w->nquarantine;
	for (; rows && w->quarantine_hand; rows--) {
		struct quarantine *q = &w->quarantine[--w->quarantine_hand];
		uint32_t record = q->record;

		if (q->who.pid != who.pid || q->who.start_time != who.start_time ||
		    q->who.namespaces != who.namespaces)
			owner = look_at(&who, &q->who);
		if (is_quarantined(q, owner))
			continue;
		/* a freed block does not count as a row: each block is freed once */
		rows++;
		*q = w->quarantine[--w->nquarantine];
		if (w_row_is_zero(w, record))
			record_free(w, record);
		else
			retire_dying(w, record);
	}
}
