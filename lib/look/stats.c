/* SPDX-License-Identifier: Apache-2.0 */
/* stats.c - the blocks, the peers, and the counters of both.
 *
 * Each counter is kept by one process: a peer keeps its own in its seat, and the writer keeps
 * those in the peer's tally.  A reader adds them up.  When a seat is given up, the writer folds
 * its counters into state.past (fold.h), so sums never fall, and no count is in one twice.
 * Tests: t/look/rates.t t/look/stats.t t/look/hits-told.t t/look/stats-fold.t t/look/feed-walk.t
 *   t/index/balance.t */
#include "config.h"

#include "gpc_look.h"
#include "index/segment/descriptor.h"
#include "index/segment/hooks.h"
#include "index/segment/lockfile.h"
#include "look/fold.h"
#include "look/inspect.h"
#include "index/peer/companion.h"
#include "index/segment/files.h"
#include "index/segment/settings.h"

#include <errno.h>
#include <string.h>

static bool is_live(const struct shm_state *st, uint32_t pool)
{
	return st->live_pools[pool >> 6] >> (pool & 63) & 1;
}

static uint32_t count_pools(const struct segment *s, const struct shm_state *st)
{
	uint32_t p, n = 0;

	for (p = 0; p < s->header.geometry.max_pools; p++)
		n += is_live(st, p);
	return n;
}

/* A peer whose lock is free has left or died.  Its seat may be cleared meanwhile, and has no owner
 * then. */
static void count_peers(const gpc *c, struct gpc_info *info)
{
	const struct segment *s = &c->seg;
	uint32_t p, state;

	for (p = 0; p < s->header.geometry.max_peers; p++) {
		state = seg_peek_seat_state(s, p);
		info->peers += state == SEAT_TAKEN;
		if (state == SEAT_FREE)
			continue;
		if (p == c->peer || segment_peer_alive(s, p))
			info->peers_alive++;
		else
			info->peers_dead += seg_peek_seat_state(s, p) != SEAT_FREE;
	}
}

static uint32_t count_mirrors(const struct segment *s)
{
	struct shm_mirror m;
	uint32_t i, n = 0;

	for (i = 0; i < SHM_MIRRORS; i++)
		n += descriptor_read(s, i, &m) && m.state == MIRROR_READY;
	return n;
}

static uint64_t tick_of(const struct segment *s)
{
	uint64_t tick;

	seg_peek_control(s, s->at.shared + offsetof(struct shm_shared, tick), &tick, sizeof(tick));
	return tick;
}

/* Without a writer these words are those of the last one. */
static void fill_writer(const struct segment *s, const struct shm_state *st, struct gpc_info *info)
{
	bool alive = segment_writer_alive(s);

	info->writer_pid = alive ? st->writer_pid : 0;
	info->writer_peer = alive && st->writer_peer <= s->header.geometry.max_peers
				    ? (int32_t)st->writer_peer - 1
				    : -1;
	info->writer_generation = st->generation;
	info->writer_since_ns = alive ? st->served_ns : 0;
}

/* The answer to a process that attaches now.  An attached handle has had it. */
static void fill_refused(const struct segment *s, struct gpc_info *info)
{
	if (!s->snapshot)
		return;
	info->refused = segment_verdict(s->name, s->dir);
	if (!info->refused && !segment_is_named(s, "idx", s->index_fd))
		info->refused =
			err_set(ESTALE, "the name %s belongs to another cache by now", s->name);
	if (info->refused)
		seg_copy_text(info->why, sizeof(info->why), gpc_last_error(), sizeof(info->why));
}

/* The settings that are in force now. */
static void fill_settings(const struct segment *s, const struct shm_header *h,
			  struct gpc_info *info)
{
	uint64_t word[SETTINGS], v;

	seg_peek_control(s, s->at.shared + offsetof(struct shm_shared, setting), word,
			 sizeof(word));
	info->free_target = h->free_target;
	info->peer_quota = h->peer_quota;
	if (setting_value(GPC_SET_FREE_TARGET, word[GPC_SET_FREE_TARGET - 1], &v))
		info->free_target = (int32_t)v;
	if (setting_value(GPC_SET_QUOTA, word[GPC_SET_QUOTA - 1], &v))
		info->peer_quota = (uint32_t)v;
}

static void fill_info(const gpc *c, struct gpc_info *info)
{
	const struct segment *s = &c->seg;
	const struct shm_header *h = &s->header;
	struct shm_state st;

	seg_peek_state(s, &st);
	info->version = h->version;
	info->block_tokens = h->block_tokens;
	info->max_blocks = h->geometry.max_blocks;
	info->max_peers = h->geometry.max_peers;
	info->max_pools = h->geometry.max_pools;
	info->pools = count_pools(s, &st);
	count_peers(c, info);
	info->mirrors = count_mirrors(s);
	fill_writer(s, &st, info);
	info->peer = c->readonly ? -1 : (int32_t)c->peer;
	info->tick_us = h->tick_us;
	fill_settings(s, h, info);
	info->quarantine_ms = h->quarantine_ms;
	info->keep_tokens = seg_keeps(s, KEEP_TOKENS);
	info->keep_digests = seg_keeps(s, KEEP_DIGESTS);
	info->tick = tick_of(s);
	info->bytes = s->at.index_bytes + s->at.control_bytes;
	info->buckets = h->geometry.buckets;
	seg_copy_text(info->hash, sizeof(info->hash), h->hash, sizeof(h->hash));
	seg_copy_text(info->devices, sizeof(info->devices), h->devices, sizeof(h->devices));
	memcpy(info->layout, h->layout, sizeof(info->layout));
	info->max_aliases = h->geometry.alias_buckets * SHM_ALIASES;
	info->created_ns = h->created_ns;
	info->life = c->readonly ? 0 : companion_life(seg_seat(s, c->peer));
	fill_refused(s, info);
}

GPC_EXPORT int gpc_info_get(gpc *c, struct gpc_info *ret)
{
	struct gpc_info info = { .size = sizeof(info) };
	int err = handle_check(c, false);

	if (!err)
		err = inspect_room(ret, "gpc_info");
	if (err)
		return err;
	fill_info(c, &info);
	inspect_give(ret, &info, sizeof(info));
	return 0;
}

/* ---- statistics ---- */

/* In another time namespace, the clock by which a section began is not ours, so there is no
 * age. */
static bool same_clock(uint64_t its, uint64_t mine)
{
	return !its || !mine || its >> 32 == mine >> 32;
}

/* A process keeps its own namespaces: those that it chooses are for its children. */
static uint64_t my_namespaces(gpc *c)
{
	uint64_t mine = load_relaxed(&c->namespaces);
	struct identity me;

	if (!mine) {
		identity_self(&me);
		mine = me.namespaces;
		store_relaxed(&c->namespaces, mine);
	}
	return mine;
}

static void add_sections(const struct inspect_peer *p, uint64_t mine, struct gpc_stats *st)
{
	uint64_t since, now = clock_ns(), oldest = 0;
	uint32_t i;

	for (i = 0; i < p->nsections; i++) {
		if (!epoch_is_open(&p->section[i]))
			continue;
		st->sections++;
		since = p->section[i].since_ns;
		if (since && since < now)
			oldest = MAX(oldest, now - since);
	}
	if (oldest > st->oldest_section_ns && same_clock(p->seat.namespaces, mine))
		st->oldest_section_ns = oldest;
}

/* By the writer's clock.  If that clock is not ours, there is no age, or a wrong one. */
static uint64_t age_of_refs(const struct shm_seat *seat)
{
	uint64_t now = clock_ns(), since = seat->refs_since_ns;

	return seat->refs && since && since < now ? now - since : 0;
}

/* All channels are read at once, since each look at a snapshot is a system call. */
static uint64_t transfers_of(const struct segment *s, uint32_t peer)
{
	struct shm_xfer x[SHM_TRANSFERS];
	uint64_t n = 0;
	uint32_t i;

	seg_peek_index(s, s->at.xfer + (uint64_t)peer * sizeof(x), x, sizeof(x));
	for (i = 0; i < SHM_TRANSFERS; i++)
		n += x[i].left != 0;
	return n;
}

static void add_counts(const struct inspect_peer *p, struct gpc_stats *st)
{
	const struct shm_seat *seat = &p->seat;
	const struct shm_tally *tally = &p->tally;

	st->lookups += seat->lookups;
	st->hit_vram += seat->hit_vram;
	st->hit_ram += seat->hit_ram;
	st->miss += seat->miss;
	st->hit_own += seat->hit_own;
	st->hit_disk += seat->hit_disk;
	st->hit_store += seat->hit_store;
	st->published += tally->published;
	st->duplicate += tally->duplicate;
	st->evicted += tally->evicted;
	st->demoted += tally->demoted;
	st->promoted += tally->promoted;
	st->dropped += tally->dropped;
	st->stale_refs += seat->stale_refs;
	st->ring_full += seat->ring_full;
	st->fetched += tally->fetched;
	st->spilled += tally->spilled;
	st->bad += tally->bad;
	st->commands += tally->commands;
	st->fetched_bytes += tally->fetched_bytes;
	st->spilled_bytes += tally->spilled_bytes;
}

/* The state of the seat now, which goes with it. */
static void add_seat(const struct segment *s, uint32_t peer, const struct inspect_peer *p,
		     uint64_t mine, struct gpc_stats *st)
{
	const struct shm_seat *seat = &p->seat;
	const struct shm_tally *tally = &p->tally;

	st->pending += MIN(seat->head - seat->tail, SHM_RING);
	st->refs += seat->refs;
	st->reserved += tally->reserved;
	st->transfers += tally->transfers ? transfers_of(s, peer) : 0;
	st->claims += tally->claims_open;
	add_sections(p, mine, st);
	st->refs_ns = MAX(st->refs_ns, age_of_refs(seat));
	st->alive |= p->alive;
}

static void add_past(const struct shm_past *past, struct gpc_stats *st)
{
	st->lookups += past->lookups;
	st->hit_vram += past->hit_vram;
	st->hit_ram += past->hit_ram;
	st->miss += past->miss;
	st->hit_own += past->hit_own;
	st->hit_disk += past->hit_disk;
	st->hit_store += past->hit_store;
	st->published += past->published;
	st->duplicate += past->duplicate;
	st->evicted += past->evicted;
	st->demoted += past->demoted;
	st->promoted += past->promoted;
	st->dropped += past->dropped;
	st->stale_refs += past->stale_refs;
	st->ring_full += past->ring_full;
	st->fetched += past->fetched;
	st->spilled += past->spilled;
	st->bad += past->bad;
	st->commands += past->commands;
	st->fetched_bytes += past->fetched_bytes;
	st->spilled_bytes += past->spilled_bytes;
}

static void past_of(const struct segment *s, const struct folding *f, struct shm_past *ret)
{
	seg_peek_index(s,
		       s->at.state + (fold_is_saved(f)
					      ? SHM_METER + offsetof(struct shm_meter, folded_past)
					      : offsetof(struct shm_state, past)),
		       ret, sizeof(*ret));
}

/* The numbers are those that the writer counts: see struct shm_pool.  Blocks that it counts in no
 * other state are free.  If the numbers do not fit together, none are free. */
static void add_blocks(const struct segment *s, const struct shm_state *state, struct gpc_stats *st)
{
	struct shm_pool pool;
	uint64_t slots, used;
	uint32_t p;

	for (p = 0; p < s->header.geometry.max_pools; p++) {
		if (!is_live(state, p) || !seg_peek_pool(s, p, &pool))
			continue;
		pool_first(s, pool.range, &pool.blocks);
		slots = pool.blocks;
		used = (uint64_t)pool.live + pool.reserved + pool.dying;
		st->live += MIN(pool.live, slots);
		st->dying += MIN(pool.dying, slots);
		st->free_blocks += slots - MIN(used, slots);
	}
}

static int stats_of_peer(gpc *c, uint32_t peer, struct gpc_stats *st)
{
	uint64_t mine = my_namespaces(c);
	struct inspect_peer p;

	if (peer >= c->seg.header.geometry.max_peers)
		return err_set(EINVAL, "peer is %d: it must be -1 (all) or a seat, 0 to %u",
			       (int)peer, c->seg.header.geometry.max_peers - 1);
	if (!inspect_peer(&c->seg, peer, c->peer, &p))
		return err_set(ENOENT, "peer is %u: nobody has that seat", peer);
	st->pid = p.seat.pid;
	st->here = mine && (uint32_t)mine == (uint32_t)p.seat.namespaces;
	if (same_clock(p.seat.namespaces, mine))
		st->start_time = p.seat.start_time;
	seg_copy_text(st->label, sizeof(st->label), p.seat.label, sizeof(p.seat.label));
	add_counts(&p, st);
	add_seat(&c->seg, peer, &p, mine, st);
	st->left = !st->alive && p.seat.state == SEAT_LEFT;
	st->leader =
		p.seat.leader <= c->seg.header.geometry.max_peers ? (int32_t)p.seat.leader - 1 : -1;
	return 0;
}

static void stats_of_all(gpc *c, struct gpc_stats *st)
{
	const struct gpc_stats none = *st;
	uint64_t mine = my_namespaces(c);
	const struct segment *s = &c->seg;
	struct shm_state state;
	struct inspect_peer p;
	struct shm_past past;
	struct folding f = { 0 };
	uint32_t i;

	do {
		*st = none;
		fold_begin(s, &f);
		past_of(s, &f, &past);
		add_past(&past, st);
		for (i = 0; i < s->header.geometry.max_peers; i++)
			if (inspect_peer(s, i, c->peer, &p)) {
				add_seat(s, i, &p, mine, st);
				if (fold_has(&f, i))
					add_counts(&p, st);
			}
	} while (fold_again(s, &f));
	seg_peek_state(s, &state);
	st->relocated = state.relocated;
	st->no_bucket = state.no_bucket;
	st->aliases = state.aliases;
	add_blocks(s, &state, st);
}

GPC_EXPORT int gpc_stats_get(gpc *c, int peer, struct gpc_stats *ret)
{
	struct gpc_stats st = { .size = sizeof(st), .leader = -1 };
	int err = handle_check(c, false);

	if (!err)
		err = inspect_room(ret, "gpc_stats");
	if (err)
		return err;
	hooks.handle_count(c);
	if (peer == -1)
		stats_of_all(c, &st);
	else
		err = stats_of_peer(c, (uint32_t)peer, &st);
	if (!err)
		inspect_give(ret, &st, sizeof(st));
	return err;
}

/* The peer tells the library the sources of its hits, which the library cannot see. */
GPC_EXPORT int gpc_hits_add(gpc *c, uint64_t own, uint64_t disk, uint64_t store)
{
	int err = handle_check(c, true);
	struct shm_seat *seat;

	if (err)
		return err;
	seat = seg_seat(&c->seg, c->peer);
	if (own)
		count_add(&seat->hit_own, own);
	if (disk)
		count_add(&seat->hit_disk, disk);
	if (store)
		count_add(&seat->hit_store, store);
	return 0;
}

/* ---- mirrors ---- */

/* The i-th mirror: the live ones, then the retired ones. */
static bool find_mirror(const struct segment *s, int i, struct shm_mirror *ret)
{
	static const uint32_t order[] = { MIRROR_READY, MIRROR_RETIRED };
	uint32_t pass, slot;

	for (pass = 0; pass < ARRAY_SIZE(order); pass++)
		for (slot = 0; slot < SHM_MIRRORS; slot++)
			if (descriptor_read(s, slot, ret) && ret->state == order[pass] && !i--)
				return true;
	return false;
}

GPC_EXPORT int gpc_mirror_get(gpc *c, int i, struct gpc_mirror *ret)
{
	struct gpc_mirror out = { .size = sizeof(out) };
	struct shm_state st;
	struct shm_mirror m;
	int err = handle_check(c, false);

	if (!err)
		err = inspect_room(ret, "gpc_mirror");
	if (err)
		return err;
	if (i < 0)
		return err_set(EINVAL, "i is %d: mirrors count from 0", i);
	if (!find_mirror(&c->seg, i, &m))
		return err_set(ENOENT, "i is %d: the cache has fewer mirrors", i);
	/* it is read after `flushed`, so a live mirror is never ahead of the table */
	seg_peek_state(&c->seg, &st);
	out.generation = m.generation;
	seg_copy_text(out.device, sizeof(out.device), m.device, sizeof(m.device));
	memcpy(out.uuid, m.uuid, sizeof(out.uuid));
	out.bytes = m.bytes;
	out.flushed = m.flushed;
	out.changes = st.changes;
	out.retired = m.state == MIRROR_RETIRED;
	inspect_give(ret, &out, sizeof(out));
	return 0;
}
