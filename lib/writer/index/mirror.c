/* SPDX-License-Identifier: Apache-2.0 */
/* mirror.c - the writer keeps the copies on devices in step with the table.
 *
 * A flush takes the marks of all changed entries along when it begins, so it covers exactly
 * the changes made before, and flushes never overlap (rule T5).  Each entry is listed once,
 * with the value it has then.  A mirror whose flush fails or takes too long is retired: its
 * peers are told, and the index goes on without it.
 * Tests: t/162-mirror.t t/163-mirror-order.t t/503-device-mirrors.t t/220-readers.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "writer/index/memory.h"
#include "writer/index/mirror.h"

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

static struct mirror_status status_now(struct writer *w)
{
	struct mirror_status status = { .sequence = w_state(w)->changes,
					.spaces = w_state(w)->spaces };
	uint32_t p;

	for (p = 0; p < w->max_pools; p++)
		if (w->pool[p].state != POOL_FREE && w->pool[p].kind != GPC_VRAM)
			status.ram_pools[p >> 6] |= 1ull << (p & 63);
	return status;
}

static struct shm_mirror *description(struct writer *w, uint32_t i)
{
	return SEG_AT(w->seg.index, w->seg.at.mirror, struct shm_mirror, i);
}

static void retire_mirror(struct writer *w, uint32_t i, const char *why)
{
	struct shm_mirror *d = description(w, i);

	log_say(&w->c->log, LOG_ERR, "mirror %u (%s) is retired: %s", i, d->device, why);
	w->mirror[i].retired = true;
	w->mirror[i].flushing = false;
	/* (U) pairs with the load in device/descriptor.c: sections that began before it are waited
	 * for by the grace period that follows */
	store_release(&d->state, MIRROR_RETIRED);
	store_release(&d->generation, d->generation + 1);
	order_fence();
}

/* rule T5: the list is made, and the marks dropped, at the beginning; model/mirror.pml */
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
	status = status_now(w);
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
			store_release(&description(w, i)->flushed, w->flush_sequence);
	}
	return !busy;
}

/* What a predecessor's mirror left outside of its process. */
static void sweep(struct writer *w, struct shm_mirror *old)
{
	const struct driver *d;

	old->device[sizeof(old->device) - 1] = 0;
	if (old->state != MIRROR_NONE && driver_find(old->device, &d) == 0)
		d->mirror->sweep(&w->seg, old);
}

/* Generations name mirrors: no two of a cache ever had the same. */
static uint32_t next_generation(struct writer *w)
{
	uint32_t i, gen = w_state(w)->generation;

	for (i = 0; i < SHM_MIRRORS; i++)
		gen = MAX(gen, description(w, i)->generation);
	return gen + 1;
}

static bool has_mirror_on(struct writer *w, const char *device)
{
	uint32_t i;

	for (i = 0; i < w->nmirrors; i++)
		if (!strncmp(description(w, i)->device, device, sizeof(description(w, i)->device)))
			return true;
	return false;
}

/* Two writers may number their devices differently: the first one's UUID stays. */
static void find_predecessor(struct writer *w, const char *device, uint8_t uuid[16])
{
	uint32_t i;

	for (i = w->nmirrors; i < SHM_MIRRORS; i++) {
		const struct shm_mirror *d = description(w, i);

		if (d->generation && !strncmp(d->device, device, sizeof(d->device) - 1))
			memcpy(uuid, d->uuid, sizeof(d->uuid));
	}
}

/* One device of the list: create, upload, publish (rule T6).  A device that cannot be had
 * costs its mirror, never the index. */
static void open_one(struct writer *w, const char *device)
{
	struct wmirror m = { 0 };
	const struct driver *driver;
	struct shm_mirror d = { 0 }, *to = description(w, w->nmirrors), old = *to;
	uint32_t gen = next_generation(w);
	struct mirror_status status = status_now(w);

	find_predecessor(w, device, d.uuid);
	m.ops = driver_find(device, &driver) < 0 ? NULL : driver->mirror;
	if (!m.ops || m.ops->create(&w->seg, device, gen, &d, &m.mirror) < 0 ||
	    m.ops->upload(m.mirror, w->table, (uint64_t)w->buckets * SHM_BUCKET, &status) < 0) {
		log_say(&w->c->log, LOG_ERR, "no mirror on %s: %s", device, gpc_last_error());
		if (m.mirror)
			m.ops->destroy(m.mirror);
		return;
	}
	store_release(&to->state, MIRROR_NONE);
	order_fence();
	to->bytes = d.bytes;
	memcpy(to->uuid, d.uuid, sizeof(to->uuid));
	memcpy(to->device, d.device, sizeof(to->device));
	memcpy(to->handle, d.handle, sizeof(to->handle));
	store_relaxed(&to->flushed, status.sequence);
	store_release(&to->generation, gen);
	/* (W) published: pairs with the load in device/descriptor.c.  Before it a successor sees no
	 * mirror of ours, and sweeps what we left by its generation. */
	store_release(&to->state, MIRROR_READY);
	sweep(w, &old);
	w->mirror[w->nmirrors++] = m;
}

/* Before the first change: nothing is dirty yet, and nothing is freed until a grace period
 * that begins after this (rule T6). */
void mirror_open_all(struct writer *w)
{
	char list[sizeof(w->seg.header.devices) + 1], *device, *rest = list;
	uint32_t i;

	memcpy(list, w->seg.header.devices, sizeof(w->seg.header.devices));
	list[sizeof(list) - 1] = 0;
	while ((device = strsep(&rest, ",")) != NULL)
		if (*device && strcmp(device, "none") && w->nmirrors < SHM_MIRRORS &&
		    !has_mirror_on(w, device))
			open_one(w, device);
	for (i = w->nmirrors; i < SHM_MIRRORS; i++) {
		struct shm_mirror *d = description(w, i), old = *d;

		store_release(&d->state, MIRROR_NONE);
		sweep(w, &old);
	}
	order_fence();
}

void mirror_close_all(struct writer *w)
{
	uint32_t i;

	for (i = 0; i < w->nmirrors; i++) {
		store_release(&description(w, i)->state, MIRROR_NONE);
		w->mirror[i].ops->destroy(w->mirror[i].mirror);
	}
	w->nmirrors = 0;
}
