/* SPDX-License-Identifier: Apache-2.0 */
/* meter.c - histograms, for their readers.
 * Tests: t/look/stats-fold.t t/bytes/histograms.t */
#include "config.h"

#include "look/fold.h"
#include "look/inspect.h"
#include "gpc_look.h"
#include "index/segment/meter.h"

#include <errno.h>
#include <string.h>

_Static_assert(SHM_CELLS <= ARRAY_SIZE(((struct gpc_histogram *)0)->cell), "cells");

static void peek_meter(const struct segment *s, uint64_t at, void *to, size_t bytes)
{
	seg_peek_index(s, s->at.state + SHM_METER + at, to, bytes);
}

static void add(struct shm_histogram *to, const struct shm_histogram *from)
{
	uint32_t i;

	to->sum += from->sum;
	for (i = 0; i < SHM_CELLS; i++)
		to->cell[i] += from->cell[i];
}

static void add_seat(const struct segment *s, uint32_t peer, struct shm_histogram *to)
{
	uint64_t at = s->at.seat + (uint64_t)peer * sizeof(struct shm_seat);
	struct shm_histogram h;

	if (seg_peek_seat_state(s, peer) == SEAT_FREE)
		return;
	seg_peek_control(s, at + offsetof(struct shm_seat, round_trip), &h, sizeof(h));
	add(to, &h);
}

static void sum_round_trips(const struct segment *s, struct shm_histogram *ret)
{
	struct folding f = { 0 };
	uint32_t i;

	do {
		fold_begin(s, &f);
		peek_meter(s,
			   fold_is_saved(&f) ? offsetof(struct shm_meter, folded)
					     : offsetof(struct shm_meter, round_trip),
			   ret, sizeof(*ret));
		for (i = 0; i < s->header.geometry.max_peers; i++)
			if (fold_has(&f, i))
				add_seat(s, i, ret);
	} while (fold_again(s, &f));
}

static int round_trips_of(const gpc *c, int peer, struct shm_histogram *ret)
{
	const struct segment *s = &c->seg;

	if (peer == -1) {
		sum_round_trips(s, ret);
		return 0;
	}
	if (peer < 0 || peer >= (int)s->header.geometry.max_peers)
		return err_set(EINVAL, "peer is %d: it must be -1 (all) or a seat, 0 to %u", peer,
			       s->header.geometry.max_peers - 1);
	if (seg_peek_seat_state(s, (uint32_t)peer) == SEAT_FREE)
		return err_set(ENOENT, "peer is %d: nobody has that seat", peer);
	memset(ret, 0, sizeof(*ret));
	add_seat(s, (uint32_t)peer, ret);
	return 0;
}

static void give(const struct shm_histogram *h, bool is_long, struct gpc_histogram *out)
{
	uint32_t i;

	out->cells = SHM_CELLS;
	out->first_ns = is_long ? NS_PER_MS : 1000;
	out->sum = (double)h->sum * (is_long ? 1e-3 : 1e-9);
	for (i = 0; i < SHM_CELLS; i++)
		out->count += out->cell[i] = h->cell[i];
}

static void fill(const gpc *c, int what, struct gpc_histogram *out)
{
	struct shm_histogram h;
	struct shm_meter m;

	peek_meter(&c->seg, 0, &m, sizeof(m));
	if (what >= GPC_COPY_VRAM_VRAM) {
		out->blocks = m.copied_blocks[what - GPC_COPY_VRAM_VRAM];
		out->bytes = m.copied_bytes[what - GPC_COPY_VRAM_VRAM];
	}
	h = what == GPC_AGE_EVICTED    ? m.age
	    : what == GPC_IDLE_EVICTED ? m.idle
	    : what == GPC_REUSE_GAP    ? m.gap
	    : what == GPC_TAKEOVER     ? m.takeover
				       : m.copy[what - GPC_COPY_VRAM_VRAM];
	give(&h, what <= GPC_REUSE_GAP, out);
}

GPC_EXPORT int gpc_histogram_get(gpc *c, int what, int peer, struct gpc_histogram *ret)
{
	struct gpc_histogram out = { .size = sizeof(out) };
	struct shm_histogram h;
	int err = handle_check(c, false);

	if (!err)
		err = inspect_room(ret, "gpc_histogram");
	if (!err && (what < GPC_AGE_EVICTED || what > GPC_COPY_RAM_RAM))
		err = err_set(EINVAL,
			      "what is %d: it must be one of GPC_AGE_EVICTED (%d) to "
			      "GPC_COPY_RAM_RAM (%d)",
			      what, GPC_AGE_EVICTED, GPC_COPY_RAM_RAM);
	if (!err && peer != -1 && what != GPC_ROUND_TRIP)
		err = err_set(EINVAL, "peer is %d: of one peer there is only GPC_ROUND_TRIP", peer);
	if (!err && what == GPC_ROUND_TRIP)
		err = round_trips_of(c, peer, &h);
	if (err)
		return err;
	if (what == GPC_ROUND_TRIP)
		give(&h, false, &out);
	else
		fill(c, what, &out);
	inspect_give(ret, &out, sizeof(out));
	return 0;
}
