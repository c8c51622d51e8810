/* SPDX-License-Identifier: Apache-2.0 */
/* transfer_decide.c - the targets of transfers become LIVE, or go.
 * Tests: t/index/transfers-die.t t/index/transfers.t t/bytes/notes-fetched.t t/bytes/checksums.t */
#include "config.h"

#include <errno.h>
#include "index/writer/commit.h"
#include "index/table/alloc.h"
#include "index/table/dropped.h"
#include "index/table/meter.h"
#include "index/table/pending.h"
#include "index/table/tree.h"
#include "index/writer/move.h"
#include "index/writer/move_bind.h"
#include "index/writer/retire.h"
#include "index/writer/transfers.h"

/* The targets that are not decided, in the order of their commit. */
static uint32_t list_targets(struct writer *w, const struct transfer *t)
{
	struct records *list = &w->order;
	uint32_t i;

	list->n = 0;
	list->at = writer_grow(list->at, &list->size, t->n, sizeof(*list->at));
	for (i = 0; i < t->n; i++)
		if (t->target[i] != NONE)
			list->at[list->n++] = t->target[i];
	move_order(w, list->at, list->n);
	return list->n;
}

static void forget_target(struct writer *w, struct transfer *t, uint32_t record)
{
	w->node[record].bound = false;
	t->target[w_record(w, record)->op - t->op] = NONE;
	t->left--;
}

/* No more copies go to the target, and earlier copies do not count. */
static void refuse(struct writer *w, struct transfer *t, uint32_t record)
{
	struct shm_xfer *x = xfer_of(w, t);

	move_unbind(w, record);
	store_relaxed(&x->refused, x->refused + 1);
	forget_target(w, t, record);
	retire_target(w, record);
}

static void quarantine(struct writer *w, struct transfer *t, uint32_t record)
{
	struct shm_xfer *x = xfer_of(w, t);

	move_unbind(w, record);
	store_relaxed(&x->refused, x->refused + 1);
	forget_target(w, t, record);
	retire_quarantine(w, record, &w->peer[t->peer].who);
}

/* Was a child published in VRAM, or not moved?  Then its parent stays there (guarantee G). */
static bool leaves_children(struct writer *w, uint32_t record)
{
	const struct shm_record *r = w_record(w, record);
	uint32_t source = r->source - 1;

	return r->source && !(r->flags & REC_COPY) && w_pool_of(w, record)->kind == GPC_RAM &&
	       w_pool_of(w, source)->kind == GPC_VRAM && w_space(w, source) == w_space(w, record) &&
	       w->node[source].blockers;
}

/* The index in struct shm_meter.  Pool numbers may be forged. */
static uint32_t tiers_of(struct writer *w, const struct transfer *t)
{
	const struct shm_xfer *x = xfer_of(w, t);
	uint32_t from = MIN(x->from, GPC_MAX_POOLS), to = MIN(x->to, GPC_MAX_POOLS);

	return 2 * (w->pool[from].kind == GPC_RAM) + (w->pool[to].kind == GPC_RAM);
}

static void count_commit(struct writer *w, struct transfer *t, uint32_t record)
{
	struct shm_tally *tally = w_tally(w, t->peer);
	bool down = w_pool_of(w, record)->kind == GPC_RAM;
	uint64_t *n = down ? &tally->spilled : &tally->fetched;
	uint64_t *bytes = down ? &tally->spilled_bytes : &tally->fetched_bytes;

	t->brought++;
	meter_copied(w, tiers_of(w, t), record);
	store_relaxed(n, *n + 1);
	store_relaxed(bytes, *bytes + w_pool(w, w->pool_of[record])->block_bytes);
}

/* False: it waits for a bucket. */
static bool commit(struct writer *w, struct transfer *t, uint32_t record)
{
	uint32_t source = w_record(w, record)->source - 1;
	int32_t err = leaves_children(w, record) ? -EPERM : move_commit_target(w, t->peer, record);

	if (err == MOVE_AGAIN)
		return false;
	if (err < 0) {
		refuse(w, t, record);
		return true;
	}
	forget_target(w, t, record);
	pending_end(w, record);
	w->node[source].readers--;
	count_commit(w, t, record);
	return true;
}

/* Show the decided blocks to the peer; at the end, wake waiting threads. */
bool transfer_tell(struct writer *w, struct transfer *t)
{
	uint32_t peer;

	/* (t) all decisions are stored before the number that counts them; pairs with
	 * look/transfers.c.  Before it a successor counts targets that are still RESERVED. */
	store_release(&xfer_of(w, t)->left, t->left);
	if (t->left)
		return false;
	if (t->brought) /* a transfer without commits says nothing about copies */
		meter_transfer(w, tiers_of(w, t), t->begun_ns);
	w_answered(w, t->peer);
	peer = t->peer;
	transfer_remove(w, t);
	transfer_tell_count(w, peer);
	return true;
}

bool transfer_commit(struct writer *w, struct transfer *t)
{
	uint32_t i, n = list_targets(w, t);

	for (i = 0; i < n; i++)
		if (!commit(w, t, w->order.at[i]))
			break;
	return transfer_tell(w, t);
}

bool transfer_refuse(struct writer *w, struct transfer *t, uint64_t from)
{
	uint32_t i, n = list_targets(w, t);

	for (i = 0; i < n; i++)
		if (w_record(w, w->order.at[i])->op - t->op >= from)
			refuse(w, t, w->order.at[i]);
	return transfer_tell(w, t);
}

bool transfer_quarantine(struct writer *w, struct transfer *t)
{
	uint32_t i, n = list_targets(w, t);

	for (i = 0; i < n; i++)
		quarantine(w, t, w->order.at[i]);
	return transfer_tell(w, t);
}

/* The source's bytes have changed since they came to RAM.  It is dropped once, since its word is
 * another one then.  Nothing was computed from these bytes, so descendants stay; and copies below
 * RAM have bytes of their own. */
static void drop_source(struct writer *w, const struct transfer *t, uint32_t record)
{
	const struct shm_record *r = w_record(w, record);
	struct shm_tally *tally = w_tally(w, t->peer);
	uint32_t source = r->source - 1;

	if (!r->source || w_word(w, source) != r->source_word || !w->node[source].in_tree ||
	    w_pool_of(w, source)->kind != GPC_RAM)
		return;
	log_say(&w->c->log, LOG_WARNING,
		"block 0x%08x of pool %u, key %016llx%016llx: its bytes have another checksum than when "
		"they were spilled; it is dropped",
		(uint32_t)w_block(w, source), w->pool_of[source],
		(unsigned long long)w_record(w, source)->key[0],
		(unsigned long long)w_record(w, source)->key[1]);
	store_relaxed(&tally->bad, tally->bad + 1);
	dropped_begin(w);
	retire_alone(w, source, &tally->dropped);
	dropped_end(w);
}

/* A checksum was wrong, so nothing is committed.  The source goes before its target is refused,
 * which names the source to a successor. */
bool transfer_refuse_bad(struct writer *w, struct transfer *t, uint64_t bad)
{
	struct shm_xfer *x = xfer_of(w, t);
	uint32_t entry = (uint32_t)MIN(bad - 1, (uint64_t)t->n - 1); /* 0: the peer's own fault */

	store_relaxed(&x->bad, entry + 1);
	if (bad == (uint64_t)entry + 1 && t->target[entry] != NONE)
		drop_source(w, t, t->target[entry]);
	return transfer_refuse(w, t, 0);
}
