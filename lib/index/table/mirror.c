/* SPDX-License-Identifier: Apache-2.0 */
/* mirror.c - the writer keeps the copies on devices in step with the table.
 *
 * A flush takes the marks of all changed entries along when it begins, so it covers exactly
 * the changes made before, and flushes never overlap (rule T5).  Each entry is listed once,
 * with the value it has then.  A mirror whose flush fails or takes too long is retired: its peers
 * learn of it, and the index goes on without it.
 * Tests: t/bytes/mirror.t t/bytes/mirror-order.t t/bytes/readers.t t/bytes/device-mirrors.t */
#include "config.h"

#include <errno.h>
#include "index/table/alloc.h"
#include "index/table/mirror.h"

#define FLUSH_LIMIT_NS (2000 * NS_PER_MS)

void mirror_dirty(struct writer *w, uint32_t slot)
{
	uint64_t bit = 1ull << (slot & 63);

	if (!w->nmirrors || (w->dirty_bit[slot >> 6] & bit))
		return;
	w->dirty_bit[slot >> 6] |= bit;
	w->dirty = writer_grow(w->dirty, &w->dirty_size, w->ndirty + 1, sizeof(*w->dirty));
	w->dirty[w->ndirty++] = slot;
}

void mirror_pools_changed(struct writer *w)
{
	struct shm_state *st = w_state(w);

	store_relaxed(&st->changes, st->changes + 1);
	w->status_dirty = w->nmirrors > 0;
}

struct mirror_status mirror_status(struct writer *w)
{
	struct mirror_status status = { .sequence = w_state(w)->changes,
					.spaces = w_state(w)->spaces };
	uint32_t p;

	for (p = 0; p < w->max_pools; p++)
		if (w->pool[p].state != POOL_FREE && w->pool[p].kind != GPC_VRAM)
			status.ram_pools[p >> 6] |= 1ull << (p & 63);
	return status;
}

static void retire_mirror(struct writer *w, uint32_t i, const char *why)
{
	struct shm_mirror *d = mirror_description(w, i);

	log_say(&w->c->log, LOG_ERR, "mirror %u (%s) is retired: %s", i, d->device, why);
	w->mirror[i].retired = true;
	w->mirror[i].flushing = false;
	/* (U) pairs with the load in index/segment/descriptor.c: the grace period that follows
	 * waits for sections that began before it */
	store_release(&d->state, MIRROR_RETIRED);
	store_release(&d->generation, d->generation + 1);
	order_fence();
}

/* rule T5: the list is made, and the marks are dropped, at the beginning; t/model/mirror.pml */
static uint32_t take_dirty(struct writer *w)
{
	uint32_t i, n = w->ndirty;

	w->changes = writer_grow(w->changes, &w->changes_size, n, sizeof(*w->changes));
	for (i = 0; i < n; i++) {
		uint32_t slot = w->dirty[i];

		w->changes[i] = (struct launch_change){ .slot = slot, .entry = w->table[slot] };
		w->dirty_bit[slot >> 6] &= ~(1ull << (slot & 63));
	}
	w->ndirty = 0;
	return n;
}

void mirror_flush(struct writer *w)
{
	struct mirror_status status;
	uint32_t i, n;

	if (!w->nmirrors)
		return;
	n = take_dirty(w);
	status = mirror_status(w);
	w->status_dirty = false;
	w->flush_sequence = status.sequence;
	w->flush_deadline_ns = clock_ns() + FLUSH_LIMIT_NS;
	for (i = 0; i < w->nmirrors; i++) {
		struct wmirror *m = &w->mirror[i];

		if (m->retired)
			continue;
		m->flushing = true;
		if (m->ops->flush(m->mirror, w->changes, n, &status) < 0)
			retire_mirror(w, i, gpc_last_error());
	}
}

bool mirror_flushed(struct writer *w)
{
	uint32_t i, busy = 0;

	for (i = 0; i < w->nmirrors; i++) {
		struct wmirror *m = &w->mirror[i];
		int err;

		if (!m->flushing)
			continue;
		err = m->ops->flushed(m->mirror);
		if (err == -EAGAIN && clock_ns() > w->flush_deadline_ns)
			retire_mirror(w, i, "its flush does not end");
		else if (err == -EAGAIN)
			busy++;
		else if (err < 0)
			retire_mirror(w, i, gpc_last_error());
		else
			m->flushing = false;
		if (err == 0) /* (V) pairs with sync.c */
			store_release(&mirror_description(w, i)->flushed, w->flush_sequence);
	}
	return !busy;
}
