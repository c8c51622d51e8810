/* SPDX-License-Identifier: Apache-2.0 */
/* grace.c - emptied entries and blocks wait for a flush and a grace period.
 *
 * Emptied table entries, copies of relocations and DYING blocks gather in the open batch.
 * One flush at a time takes the batch along; when all mirrors have it, a grace period
 * starts; when that is over, the batch goes to the caller of grace_advance().  The grace period
 * must not start before the flush is over: a kernel that is launched in between would still find
 * the old entry.
 * Tests: t/index/sections.t t/torture/grace.t t/bytes/mirror-order.t */
#include "config.h"

#include "index/table/grace.h"
#include "index/table/alloc.h"
#include "index/table/mirror.h"

#define BATCH_KEPT 4096 /* entries */

struct grace *grace_begin(struct writer *w)
{
	if (w->spare) {
		w->open = w->spare;
		w->spare = NULL;
	} else {
		w->open = writer_alloc(1, sizeof(*w->open));
	}
	return w->open;
}

/* A batch that is over keeps its memory, since the next one is much like it. */
void grace_recycle(struct writer *w, struct grace *b)
{
	if (w->spare || b->entries_size > BATCH_KEPT || b->records_size > BATCH_KEPT ||
	    b->moved_size || b->leaving.size) {
		writer_free(b->entries);
		writer_free(b->records);
		writer_free(b->moved);
		writer_free(b->leaving.at);
		writer_free(b);
		return;
	}
	*b = (struct grace){ .entries = b->entries,
			     .entries_size = b->entries_size,
			     .records = b->records,
			     .records_size = b->records_size };
	w->spare = b;
}

void grace_leaving(struct writer *w, uint32_t record)
{
	struct records *list;

	if (w->node[record].waits)
		return;
	w->node[record].waits = true;
	w_pool_of(w, record)->leaving++;
	list = &grace_open(w)->leaving;
	list->at = writer_grow(list->at, &list->size, list->n + 1, sizeof(*list->at));
	list->at[list->n++] = record;
}

bool grace_idle(struct writer *w)
{
	return !w->open && !w->flushing && !w->grace;
}

/* Cookies of this writer grow even if a peer has scribbled over the epoch. */
static uint64_t start_grace(struct writer *w)
{
	uint64_t *epoch = &seg_shared(&w->seg)->epoch;

	/* Somebody has lowered it, or raised it so far that it might wrap; sections above it count
	 * as old. */
	if (load_relaxed(epoch) - w->last_cookie > 1ull << 56)
		order_swap64(epoch, w->last_cookie);
	w->last_cookie = MAX(epoch_start(&w->seg), w->last_cookie + 1);
	return w->last_cookie;
}

/* The oldest batch whose grace period is over, or NULL. */
static struct grace *take_finished(struct writer *w)
{
	struct grace *b = w->grace;

	if (!b || !epoch_over(&w->seg, b->cookie))
		return NULL;
	w->grace = b->next;
	if (!w->grace)
		w->grace_end = &w->grace;
	b->next = NULL;
	return b;
}

bool grace_advance(struct writer *w, struct grace **ret_over)
{
	bool moved = false;
	struct grace *b;

	if (w->flushing && mirror_flushed(w)) {
		b = w->flushing;
		w->flushing = NULL;
		b->cookie = start_grace(w);
		*w->grace_end = b;
		w->grace_end = &b->next;
		moved = true;
	}
	if (w->ndirty || w->status_dirty)
		grace_open(w);
	if (!w->flushing && w->open) {
		w->flushing = w->open;
		w->open = NULL;
		mirror_flush(w);
		moved = true;
	}
	*ret_over = take_finished(w);
	return moved || *ret_over;
}
