/* SPDX-License-Identifier: Apache-2.0 */
/* meter.c - histograms of the writer's own work.
 *
 * None of this makes a lookup slower.  The time of a block's last use is its stamp, a tick, which
 * readers raise.  The writer knows the age of a tick from noted moments, each with its tick: 64
 * that are 20 ms apart, 64 that are four times as far apart, and so on.  So the error of an age is
 * at most 1/16 of it, or 20 ms.  Victims mostly come in the order of their stamps, so the last
 * answer often serves for the next one, too.
 *
 * A new writer does not know the time before its start.  An older use or birth counts as if it had
 * happened at that start.
 * Tests: t/index/fold-stores.t t/bytes/histograms.t */
#include "config.h"

#include "index/segment/meter.h"
#include "index/table/lru.h"
#include "index/table/meter.h"

#define MOMENT_NS (20 * NS_PER_MS) /* between moments of the first level */

/* The cell is raised first: shm_meter.h. */
static void observe(struct shm_histogram *h, uint32_t cell, uint64_t value)
{
	store_relaxed(&h->cell[cell], h->cell[cell] + 1);
	store_relaxed(&h->sum, h->sum + value);
}

static void observe_long(struct shm_histogram *h, uint64_t ns)
{
	observe(h, meter_cell((ns + NS_PER_MS - 1) / NS_PER_MS), ns / NS_PER_MS);
}

static void observe_short(struct shm_histogram *h, uint64_t ns)
{
	observe(h, meter_cell_short(ns), ns);
}

static uint64_t since(uint64_t then, uint64_t now)
{
	return now > then ? now - then : 0;
}

/* ---- moments ---- */

/* The i-th kept moment, oldest first. */
static const struct moment *moment_at(const struct moments *m, uint32_t i)
{
	uint32_t first = m->n > MOMENTS ? m->n - MOMENTS : 0;

	return &m->at[(first + i) % MOMENTS];
}

void meter_pass(struct writer *w, uint64_t now)
{
	uint32_t i;

	w->now_ns = now;
	for (i = 0; i < MOMENT_LEVELS; i++) {
		struct moments *m = &w->moments[i];

		/* if one level is not due, the levels after it are due later */
		if (m->n && since(m->at[(m->n - 1) % MOMENTS].ns, now) < MOMENT_NS << 2 * i)
			return;
		m->at[m->n++ % MOMENTS] = (struct moment){ w_tick(w), now };
	}
}

/* The first moment with at least this tick; a use with this stamp was before it. */
static struct moment_span search(const struct moments *m, uint64_t tick)
{
	uint32_t low = 0, high = MIN(m->n, MOMENTS) - 1, mid;

	while (high - low > 1) {
		mid = low + (high - low) / 2;
		if (moment_at(m, mid)->tick < tick)
			low = mid;
		else
			high = mid;
	}
	return (struct moment_span){ moment_at(m, low)->tick, moment_at(m, high)->tick,
				     moment_at(m, high)->ns };
}

/* The time when that tick was the present one.  `last` is the previous answer. */
static uint64_t moment_of(struct writer *w, uint64_t tick, struct moment_span *last)
{
	const struct moments *m = w->moments;
	uint32_t i;

	if (tick > last->after && tick <= last->upto)
		return last->ns;
	if (tick > m->at[(m->n - 1) % MOMENTS].tick)
		return w->now_ns;
	for (i = 0; i < MOMENT_LEVELS; i++, m++)
		if (moment_at(m, 0)->tick < tick && m->at[(m->n - 1) % MOMENTS].tick >= tick) {
			*last = search(m, tick);
			return last->ns;
		}
	/* between the last moment of a coarse level and the first of a finer one, or before all */
	for (i = MOMENT_LEVELS; i--;)
		if (moment_at(&w->moments[i], 0)->tick >= tick)
			return moment_at(&w->moments[i], 0)->ns;
	return w->now_ns;
}

/* ---- notes ---- */

/* Victims of one pass were mostly used, and born, at about the same time. */
static void observe_like_last(struct shm_histogram *h, uint64_t ns, struct observed *last)
{
	if (ns >= last->upto || ns < last->from) {
		uint64_t ms = (ns + NS_PER_MS - 1) / NS_PER_MS;

		last->cell = meter_cell(ms);
		last->ms = ns / NS_PER_MS;
		last->from = last->ms * NS_PER_MS + 1;
		last->upto = (last->ms + 1) * NS_PER_MS;
	}
	observe(h, last->cell, last->ms);
}

void meter_evicted(struct writer *w, uint32_t record)
{
	struct shm_meter *m = seg_meter(&w->seg);
	uint64_t used, born = w->owned[record].born_ns;

	if (!w_is(w, record, LIVE))
		return; /* `owned` has another meaning there */
	used = moment_of(w, STAMP_TICK(lru_stamp(w, record)), &w->asked[0]);
	observe_like_last(&m->idle, since(used, w->now_ns), &w->observed[0]);
	observe_like_last(&m->age, since(MIN(born ? born : w->began_ns, used), w->now_ns),
			  &w->observed[1]);
}

void meter_used(struct writer *w, uint64_t then, uint64_t stamp)
{
	uint64_t from = STAMP_TICK(then), to = STAMP_TICK(stamp);

	if (to > from)
		observe_long(&seg_meter(&w->seg)->gap, since(moment_of(w, from, &w->asked[0]),
							     moment_of(w, to, &w->asked[1])));
}

void meter_copied(struct writer *w, uint32_t tiers, uint32_t record)
{
	struct shm_meter *m = seg_meter(&w->seg);

	store_relaxed(&m->copied_blocks[tiers], m->copied_blocks[tiers] + 1);
	store_relaxed(&m->copied_bytes[tiers],
		      m->copied_bytes[tiers] + w_pool_of(w, record)->block_bytes);
}

void meter_transfer(struct writer *w, uint32_t tiers, uint64_t begun_ns)
{
	observe_short(&seg_meter(&w->seg)->copy[tiers], since(begun_ns, clock_ns()));
}

/* ---- seats that are given up ---- */

/* The counters of a seat, and of its tally, with their places in struct shm_past. */
static const struct {
	uint16_t past, from;
	bool of_tally;
} counts[] = {
#define SEAT(name)                                                                      \
	{                                                                               \
		offsetof(struct shm_past, name), offsetof(struct shm_seat, name), false \
	}
#define TALLY(name)                                                                     \
	{                                                                               \
		offsetof(struct shm_past, name), offsetof(struct shm_tally, name), true \
	}
	SEAT(lookups),        SEAT(hit_vram),   SEAT(hit_ram),    SEAT(miss),
	SEAT(hit_own),        SEAT(hit_disk),   SEAT(hit_store),  SEAT(stale_refs),
	SEAT(ring_full),      TALLY(published), TALLY(duplicate), TALLY(evicted),
	TALLY(demoted),       TALLY(promoted),  TALLY(dropped),   TALLY(fetched),
	TALLY(spilled),       TALLY(bad),       TALLY(commands),  TALLY(fetched_bytes),
	TALLY(spilled_bytes),
#undef SEAT
#undef TALLY
};

static uint64_t *count_of(struct writer *w, uint32_t peer, size_t i)
{
	uint8_t *at = counts[i].of_tally ? (uint8_t *)w_tally(w, peer)
					 : (uint8_t *)seg_seat(&w->seg, peer);

	return (uint64_t *)(at + counts[i].from);
}

static void store_words(uint64_t *to, const uint64_t *from, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		store_relaxed(&to[i], from ? from[i] : 0);
}

#define PAST_WORDS (sizeof(struct shm_past) / sizeof(uint64_t))

/* The words that it reads stay as they are while the fold is under way, so a second run stores the
 * same. */
static void end_fold(struct writer *w)
{
	struct shm_meter *m = seg_meter(&w->seg);
	uint64_t seat = load_relaxed(&m->folding);
	size_t i;

	store_words(&m->round_trip.sum, &m->folded.sum, 1 + SHM_CELLS);
	store_words(&w_state(w)->past.lookups, &m->folded_past.lookups, PAST_WORDS);
	if (seat < w->max_peers) {
		store_words(&seg_seat(&w->seg, (uint32_t)seat)->round_trip.sum, NULL,
			    1 + SHM_CELLS);
		for (i = 0; i < ARRAY_SIZE(counts); i++)
			store_relaxed(count_of(w, (uint32_t)seat, i), 0);
	}
	/* (q) the sums and the empty seat are stored before the number that is even again.  Pairs
	 * with look/fold.h.  Before it a successor does all of it once more. */
	store_release(&m->folds, m->folds + 1);
}

void meter_fold(struct writer *w, uint32_t peer)
{
	struct shm_meter *m = seg_meter(&w->seg);
	const uint64_t *past = &m->round_trip.sum, *seat = &seg_seat(&w->seg, peer)->round_trip.sum;
	uint64_t *to = &m->folded.sum, *sum;
	size_t i;

	order_stores(); /* the number that ended the last fold is stored before its sums go */
	for (i = 0; i <= SHM_CELLS; i++)
		store_relaxed(&to[i], past[i] + load_relaxed(&seat[i]));
	store_words(&m->folded_past.lookups, &w_state(w)->past.lookups, PAST_WORDS);
	for (i = 0; i < ARRAY_SIZE(counts); i++) {
		sum = (uint64_t *)((uint8_t *)&m->folded_past + counts[i].past);
		store_relaxed(sum, *sum + load_relaxed(count_of(w, peer, i)));
	}
	store_relaxed(&m->folding, peer);
	/* (q) the sums are stored before the number that is odd.  Before it a successor begins
	 * anew. */
	store_release(&m->folds, m->folds + 1);
	order_stores(); /* ... and that number before counted values change */
	end_fold(w);
}

/* ---- a writer ---- */

void meter_begin(struct writer *w)
{
	w->began_ns = clock_ns();
	meter_pass(w, w->began_ns);
	if (load_relaxed(&seg_meter(&w->seg)->folds) & 1)
		end_fold(w);
}

void meter_taken_over(struct writer *w)
{
	if (w_state(w)->generation > 1)
		observe_short(&seg_meter(&w->seg)->takeover, since(w->began_ns, clock_ns()));
}
