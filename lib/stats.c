/* SPDX-License-Identifier: Apache-2.0 */
/* stats.c - what is there, who is there, and what they did.
 *
 * Counters stand where they are counted: a peer's own in its seat, those of the writer
 * in the peer's tally; a reader adds them up.  When a seat is given up, the writer
 * folds its counters into state.past, so sums never fall. */
#include "config.h"

#include "dev.h"
#include "lockfile.h"
#include "outside.h"

#include <errno.h>
#include <string.h>

/* state.past and gpc_stats list the same counters in the same order. */
#define PAST_COUNTERS 12
_Static_assert(offsetof(struct gpc_stats, relocated) -
			       offsetof(struct gpc_stats, lookups) ==
		       PAST_COUNTERS * sizeof(uint64_t),
	       "counters of departed peers");

static uint32_t count_pools(const struct segment *s)
{
	struct pool_set live = pool_live(s);
	uint32_t p, n = 0;

	for (p = 0; p < s->header.geometry.max_pools; p++)
		n += pool_set_has(&live, p);
	return n;
}

static uint32_t count_peers(const struct segment *s)
{
	uint32_t p, n = 0;

	for (p = 0; p < s->header.geometry.max_peers; p++)
		n += load_acquire(&seg_seat(s, p)->state) == SEAT_TAKEN;
	return n;
}

static uint32_t count_mirrors(const struct segment *s)
{
	struct shm_mirror m;
	uint32_t i, n = 0;

	for (i = 0; i < SHM_MIRRORS; i++)
		n += outside_mirror(s, i, &m) && m.state == MIRROR_READY;
	return n;
}

/* Without a writer the word says who was the last one. */
static int32_t writer_peer(const struct segment *s)
{
	uint32_t seat = load_relaxed(&seg_state(s)->writer_peer);

	return outside_writer_alive(s) && seat <= s->header.geometry.max_peers ?
		(int32_t)seat - 1 : -1;
}

static void fill_info(const gpc *c, struct gpc_info *info)
{
	const struct segment *s = &c->seg;
	const struct shm_header *h = &s->header;
	const struct shm_state *st = seg_state(s);

	info->version = h->version;
	info->block_tokens = h->block_tokens;
	info->max_blocks = h->geometry.max_blocks;
	info->max_peers = h->geometry.max_peers;
	info->max_pools = h->geometry.max_pools;
	info->pools = count_pools(s);
	info->peers = count_peers(s);
	info->mirrors = count_mirrors(s);
	info->writer_pid = outside_writer_alive(s) ? load_relaxed(&st->writer_pid) : 0;
	info->writer_peer = writer_peer(s);
	info->writer_generation = load_relaxed(&st->generation);
	info->peer = c->readonly ? -1 : (int32_t)c->peer;
	info->tick_us = h->tick_us;
	info->ahead = h->ahead;
	info->tick = load_relaxed(&seg_line(s)->tick);
	info->bytes = s->at.index_bytes + s->at.control_bytes;
	info->buckets = h->geometry.buckets;
	outside_text(info->hash, sizeof(info->hash), h->hash, sizeof(h->hash));
	outside_text(info->devices, sizeof(info->devices), h->devices,
		     sizeof(h->devices));
	memcpy(info->layout, h->layout, sizeof(info->layout));
}

GPC_EXPORT int gpc_get_info(gpc *c, struct gpc_info *ret)
{
	struct gpc_info info = { .size = sizeof(info) };
	int err = outside_begin(c, true);

	if (err)
		return err;
	err = outside_room(ret, "gpc_info");
	if (!err) {
		fill_info(c, &info);
		outside_give(ret, &info, sizeof(info));
	}
	outside_end(c);
	return err;
}

/* ---- statistics ---- */

/* In another time namespace the clock that a section began by is not ours: no age then. */
static bool same_clock(const struct segment *s, uint32_t peer)
{
	uint64_t its = load_relaxed(&seg_seat(s, peer)->namespaces);
	struct identity me;

	identity_self(&me);
	return !its || !me.namespaces || its >> 32 == me.namespaces >> 32;
}

static void add_sections(const struct segment *s, uint32_t peer, struct gpc_stats *st)
{
	const struct shm_section *sec;
	uint64_t since, now = clock_ns();
	uint64_t oldest = 0;
	uint32_t i;

	for (i = 0; i < SHM_SECTIONS; i++) {
		sec = seg_section(s, peer, i);
		if (!epoch_is_open(sec))
			continue;
		st->sections++;
		since = load_relaxed(&sec->since_ns);
		if (since && since < now)
			oldest = MAX(oldest, now - since);
	}
	if (oldest > st->oldest_section_ns && same_clock(s, peer))
		st->oldest_section_ns = oldest;
}

static void add_seat(const gpc *c, uint32_t peer, struct gpc_stats *st)
{
	const struct segment *s = &c->seg;
	const struct shm_seat *seat = seg_seat(s, peer);
	const struct shm_tally *tally = seg_tally(s, peer);

	st->lookups += load_relaxed(&seat->lookups);
	st->hit_vram += load_relaxed(&seat->hit_vram);
	st->hit_ram += load_relaxed(&seat->hit_ram);
	st->miss += load_relaxed(&seat->miss);
	st->published += load_relaxed(&tally->published);
	st->duplicate += load_relaxed(&tally->duplicate);
	st->evicted += load_relaxed(&tally->evicted);
	st->demoted += load_relaxed(&tally->demoted);
	st->promoted += load_relaxed(&tally->promoted);
	st->dropped += load_relaxed(&tally->dropped);
	st->stale_refs += load_relaxed(&seat->stale_refs);
	st->ring_full += load_relaxed(&seat->ring_full);
	st->refs += load_relaxed(&seat->refs);
	st->reserved += load_relaxed(&tally->reserved);
	add_sections(s, peer, st);
	/* a lock never conflicts with its own description: of the own seat we know */
	if ((!c->readonly && peer == c->peer) || outside_peer_alive(s, peer))
		st->alive = 1;
}

static void add_past(const struct segment *s, struct gpc_stats *st)
{
	const struct shm_state *state = seg_state(s);
	uint64_t *counter = &st->lookups;
	uint32_t i;

	for (i = 0; i < PAST_COUNTERS; i++)
		counter[i] += load_relaxed(&state->past[i]);
	st->relocated = load_relaxed(&state->relocated);
	st->no_bucket = load_relaxed(&state->no_bucket);
}

static void add_blocks(const struct segment *s, struct gpc_stats *st)
{
	uint32_t p, i;

	for (p = 0; p < s->header.geometry.max_pools; p++) {
		struct pool_span span = outside_span(s, p);

		for (i = 0; i < span.slots; i++)
			switch (WORD_STATE(
				load_relaxed(&seg_record(s, span.first + i)->word))) {
			case FREE:
				st->free_blocks++;
				break;
			case LIVE:
				st->live++;
				break;
			case DYING:
				st->dying++;
				break;
			}
	}
}

static int stats_of_peer(const gpc *c, uint32_t peer, struct gpc_stats *st)
{
	const struct shm_seat *seat;
	struct identity me;

	if (peer >= c->seg.header.geometry.max_peers)
		return err_set(EINVAL, "peer is %d: it must be -1 (all) or a seat, 0 to %u",
			       (int)peer, c->seg.header.geometry.max_peers - 1);
	seat = seg_seat(&c->seg, peer);
	if (load_acquire(&seat->state) == SEAT_FREE)
		return err_set(ENOENT, "peer is %u: nobody has that seat", peer);
	st->pid = load_relaxed(&seat->pid);
	identity_self(&me);
	st->here = me.namespaces && (uint32_t)me.namespaces ==
					    (uint32_t)load_relaxed(&seat->namespaces);
	outside_text(st->label, sizeof(st->label), seat->label, sizeof(seat->label));
	add_seat(c, peer, st);
	/* SEAT_LEFT is stored before the lock goes */
	st->left = !st->alive && load_acquire(&seat->state) == SEAT_LEFT;
	return 0;
}

static void stats_of_all(const gpc *c, struct gpc_stats *st)
{
	const struct segment *s = &c->seg;
	uint32_t p;

	for (p = 0; p < s->header.geometry.max_peers; p++)
		if (load_acquire(&seg_seat(s, p)->state) != SEAT_FREE)
			add_seat(c, p, st);
	add_past(s, st);
	add_blocks(s, st);
}

GPC_EXPORT int gpc_get_stats(gpc *c, int peer, struct gpc_stats *ret)
{
	struct gpc_stats st = { .size = sizeof(st) };
	int err = outside_begin(c, true);

	if (err)
		return err;
	err = outside_room(ret, "gpc_stats");
	dev_count(c);
	if (!err && peer == -1)
		stats_of_all(c, &st);
	else if (!err)
		err = stats_of_peer(c, (uint32_t)peer, &st);
	if (!err)
		outside_give(ret, &st, sizeof(st));
	outside_end(c);
	return err;
}

/* ---- mirrors ---- */

/* The i-th mirror: the live ones, then the retired ones. */
static bool find_mirror(const struct segment *s, int i, struct shm_mirror *ret)
{
	static const uint32_t order[] = { MIRROR_READY, MIRROR_RETIRED };
	uint32_t pass, slot;

	for (pass = 0; pass < ARRAY_SIZE(order); pass++)
		for (slot = 0; slot < SHM_MIRRORS; slot++)
			if (outside_mirror(s, slot, ret) && ret->state == order[pass] &&
			    !i--)
				return true;
	return false;
}

GPC_EXPORT int gpc_get_mirror(gpc *c, int i, struct gpc_mirror *ret)
{
	struct gpc_mirror out = { .size = sizeof(out) };
	struct shm_mirror m;
	int err = outside_begin(c, true);

	if (err)
		return err;
	err = outside_room(ret, "gpc_mirror");
	if (!err && i < 0)
		err = err_set(EINVAL, "i is %d: mirrors count from 0", i);
	else if (!err && !find_mirror(&c->seg, i, &m))
		err = err_set(ENOENT, "i is %d: the cache has fewer mirrors", i);
	if (!err) {
		out.generation = m.generation;
		outside_text(out.device, sizeof(out.device), m.device, sizeof(m.device));
		memcpy(out.uuid, m.uuid, sizeof(out.uuid));
		out.bytes = m.bytes;
		/* changes after flushed: a live mirror is never ahead of the table */
		out.flushed = m.flushed;
		out.changes = load_acquire(&seg_state(&c->seg)->changes);
		out.retired = m.state == MIRROR_RETIRED;
		outside_give(ret, &out, sizeof(out));
	}
	outside_end(c);
	return err;
}
