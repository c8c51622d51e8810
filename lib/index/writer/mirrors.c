/* SPDX-License-Identifier: Apache-2.0 */
/* mirrors.c - the copies on devices begin and end with their writer.
 *
 * The header of the index names the devices.  The files that a predecessor has left there are
 * swept, and its mirrors are never written to.
 * Tests: t/bytes/device-mirrors.t t/bytes/mirror.t */
#include "config.h"

#include <errno.h>
#include <string.h>
#include "index/segment/hooks.h"
#include "index/table/mirror.h"
#include "index/writer/mirrors.h"

/* The parts of a predecessor's mirror that lie outside of its process. */
static void sweep(struct writer *w, struct shm_mirror *old)
{
	const struct mirror_ops *ops;

	old->device[sizeof(old->device) - 1] = 0;
	if (old->state != MIRROR_NONE && hooks.mirror_find(old->device, &ops) == 0)
		ops->sweep(&w->seg, old);
}

/* Generations name mirrors, so no two mirrors of a cache ever had the same. */
static uint32_t next_generation(struct writer *w)
{
	uint32_t i, gen = w_state(w)->generation;

	for (i = 0; i < SHM_MIRRORS; i++)
		gen = MAX(gen, mirror_description(w, i)->generation);
	return gen + 1;
}

static bool has_mirror_on(struct writer *w, const char *device)
{
	uint32_t i;

	for (i = 0; i < w->nmirrors; i++)
		if (!strncmp(mirror_description(w, i)->device, device,
			     sizeof(mirror_description(w, i)->device)))
			return true;
	return false;
}

/* Two writers may number their devices differently, so the first writer's UUID stays. */
static void find_predecessor(struct writer *w, const char *device, uint8_t uuid[16])
{
	uint32_t i;

	for (i = w->nmirrors; i < SHM_MIRRORS; i++) {
		const struct shm_mirror *d = mirror_description(w, i);

		if (d->generation && !strncmp(d->device, device, sizeof(d->device) - 1))
			memcpy(uuid, d->uuid, sizeof(d->uuid));
	}
}

/* One device of the list: create, upload, publish (rule T6).  If a device fails, the cache goes
 * without its mirror, and the index is unharmed. */
static void open_one(struct writer *w, const char *device)
{
	struct wmirror m = { 0 };
	struct shm_mirror d = { 0 }, *to = mirror_description(w, w->nmirrors), old = *to;
	uint32_t gen = next_generation(w);
	struct mirror_status status = mirror_status(w);

	find_predecessor(w, device, d.uuid);
	if (hooks.mirror_find(device, &m.ops) < 0 ||
	    m.ops->create(&w->seg, device, gen, &d, &m.mirror) < 0 ||
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
	/* (W) published: pairs with the load in index/segment/descriptor.c.  Before it a successor
	 * sees no mirror of ours, and sweeps the files that we left by their generation. */
	store_release(&to->state, MIRROR_READY);
	sweep(w, &old);
	w->mirror[w->nmirrors++] = m;
}

/* Runs before the first change: nothing is dirty yet, and nothing is freed until a grace
 * period that begins after this (rule T6). */
void mirrors_open(struct writer *w)
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
		struct shm_mirror *d = mirror_description(w, i), old = *d;

		store_release(&d->state, MIRROR_NONE);
		sweep(w, &old);
	}
	order_fence();
}

void mirrors_close(struct writer *w)
{
	uint32_t i;

	for (i = 0; i < w->nmirrors; i++) {
		store_release(&mirror_description(w, i)->state, MIRROR_NONE);
		w->mirror[i].ops->destroy(w->mirror[i].mirror);
	}
	w->nmirrors = 0;
}
