/* SPDX-License-Identifier: Apache-2.0 */
/* down.c - from RAM to a tier, ahead of need.
 *
 * The writer names the blocks that are next to go from RAM (GPC_PEEK).  They are held without a
 * use, written, and published in the tier's pool, where the writer checks that their sources are
 * still what was read.  So RAM's own eviction loses nothing, and no peer waits for a write.
 *
 *   copies     (default) The next `ahead` blocks to go have a copy below.  They are looked at when
 *              fewer blocks than that are free.
 *   exclusive  `ahead` blocks are kept free, and written blocks leave RAM.  Half of the free blocks
 *              are used before any block goes, unless gpc_tiers_sync asks: swaps between VRAM and
 *              RAM take blocks for a moment.
 *
 * The order of the pool is that in which blocks left RAM.  Victims come leaf first, and are
 * published in the opposite order, so the first one to go from RAM is the first to go from the
 * tier.  Exclusive pools are not chained, since blocks that come up leave root first.  In other
 * pools a copy needs the copy of its parent, so the ancestors of a victim go down with it
 * (above.c), and are published before it.
 * Tests: t/tiers/chains.t t/tiers/full.t t/tiers/wanted.t t/tiers/die.t t/tiers/long-chain.t
 *   t/bytes/seals.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tiers/steward/above.h"
#include "tiers/steward/steward.h"

#define CALL_MS    2000
#define LOOK_NS    (100 * NS_PER_MS) /* the time between looks at victims if nothing has happened */
#define PAUSE_NS   (NS_PER_MS)
#define PAUSE_MOST (16 * NS_PER_MS)
#define WRITE_NS   (60000 * NS_PER_MS)
#define ROUND_NS   (200 * NS_PER_MS)

struct down { /* one batch */
	struct gpc_tiers *t;
	struct lower *d;
	struct map *map;
	/* the first to go comes first; after the victims come their ancestors, root last */
	uint32_t n, victims;
	gpc_block block[BATCH], slot[BATCH];
	struct about about[BATCH];
	struct above above; /* of one victim */
	bool chains;
	struct tier_item item[BATCH];
	struct iovec *iov;
	uint32_t *sums;          /* seeds and sums of each one's parts; they lie after iov */
	uint8_t *notes;          /* note_room bytes each; they lie after sums */
	const gpc_block *victim; /* the victims of this pool, in the order in which they go ... */
	uint32_t seen;           /* ... and the number of them that were looked at */
};

/* ---- blocks that are wanted below ---- */

/* Was it next to go often enough?  It counts once for each life in RAM. */
static bool is_wanted(struct lower *d, gpc_block block, const struct about *a)
{
	uint32_t count;
	bool new;

	if (!d->uses)
		return true;
	count = uses_count(d->uses, &a->key, block, a->word, &new);
	tier_count(d, TIER_UNWANTED, new &&count < d->min_uses);
	return count >= d->min_uses;
}

/* The block's place in RAM is wanted, and the block need not be written first.  Only we hold the
 * block. */
static bool leave_ram(struct gpc_tiers *t, gpc_block block, const gpc_key *key)
{
	bool left = gpc_reclaim(t->c, key, &block, 1, NULL, 0, CALL_MS) == 1;

	if (left)
		gpc_release(t->c, &block, 1);
	else
		unhold_quietly(t->c, &block, 1);
	return left;
}

static void enlist(struct down *b, gpc_block block, const struct about *a, uint32_t at)
{
	memmove(b->block + at + 1, b->block + at, (b->n - at) * sizeof(*b->block));
	memmove(b->about + at + 1, b->about + at, (b->n - at) * sizeof(*b->about));
	b->block[at] = block;
	b->about[at] = *a;
	b->n++;
}

enum { PASSED, CHOSEN, GONE };

/* Decide about a victim.  GONE: it has left RAM. */
static int look_at(struct down *b, gpc_block block, struct about *ret)
{
	struct gpc_tiers *t = b->t;
	bool exclusive = b->d->exclusive, there;

	if (above_is_among(b->block, b->n, block) || !about_block(t->c, block, ret))
		return PASSED;
	there = lower_has(b->d, &ret->key);
	if (!there && is_wanted(b->d, block, ret))
		return CHOSEN;
	if (!exclusive || !hold_quietly(t->c, block, &ret->key))
		return PASSED;
	return leave_ram(t, block, &ret->key) ? GONE : PASSED;
}

/* ---- the batch is written ---- */

/* Keep the first n: the first victims are the more urgent, and the last items are ancestors of
 * others. */
static void cut(struct down *b, uint32_t n)
{
	uint32_t less = b->n - MIN(b->n, n), from = b->chains ? 0 : b->n - less;

	unhold_quietly(b->t->c, b->block + from, less);
	b->n -= less;
	b->victims = b->chains ? b->victims - MIN(b->victims, less) : MIN(b->victims, b->n);
	if (!b->chains)
		return;
	memmove(b->block, b->block + less, b->n * sizeof(*b->block));
	memmove(b->about, b->about + less, b->n * sizeof(*b->about));
}

static void add_note(struct down *b, uint32_t i)
{
	uint32_t room = b->d->note_room;
	uint8_t *to = b->notes + (size_t)i * room;

	b->item[i].note = to;
	b->item[i].note_bytes = notes_pack(b->t->c, b->block[i], &b->about[i], to, room);
}

static void add_sum(struct down *b, uint32_t i)
{
	uint32_t n = images_sums(b->map), *seed = b->sums + (size_t)i * 2 * n, *crc = seed + n;

	b->item[i].has_crc = images_sum(b->t->c, b->map, b->block[i], &b->about[i].key, seed, crc,
					&b->item[i].sum);
	b->item[i].parts = (struct image_parts){ n, b->d->block_bytes / n, seed, crc };
}

static int write_all(struct down *b)
{
	uint32_t i, pieces = images_pieces(b->map);

	b->iov = malloc(b->n * (pieces * sizeof(*b->iov) +
				2 * images_sums(b->map) * sizeof(*b->sums) + b->d->note_room));
	if (!b->iov)
		return -ENOMEM;
	b->sums = (uint32_t *)(b->iov + (size_t)b->n * pieces);
	b->notes = (uint8_t *)(b->sums + (size_t)b->n * 2 * images_sums(b->map));
	for (i = 0; i < b->n; i++) {
		const struct about *a = &b->about[i];

		images_iov(b->map, b->block[i], b->iov + i * pieces);
		b->item[i] = (struct tier_item){
			.slot = (uint64_t)GPC_SLOT(b->slot[i]),
			.key = a->key,
			.parent = a->parent,
			.depth = a->depth,
			.tag = a->tag,
			.iov = b->iov + i * pieces,
			.niov = pieces,
			.ram = b->block[i],
		};
		add_sum(b, i);
		if (b->d->note_room)
			add_note(b, i);
	}
	if (b->d->file)
		tier_disk_write(b->d, b->item, b->n, clock_ns() + WRITE_NS);
	else
		tier_remote_write(b->d->store, b->item, b->n, clock_ns() + WRITE_NS);
	return 0;
}

/* Could its ancestors not be written?  Without them the block would be of no use, and no later
 * round would look for them. */
static bool hangs_on_nothing(const struct down *b, uint32_t i, const gpc_block *resident)
{
	uint32_t k;

	for (k = b->n; b->chains && --k > i;)
		if (resident[k] == -EIO && key_same(&b->about[k].key, &b->about[i].parent))
			return true;
	return false;
}

/* Publish the written blocks; resident[i] is of item i. */
static void publish_all(struct down *b, gpc_block *resident)
{
	struct publish_copy copy[BATCH];
	gpc_block got[BATCH];
	uint32_t at[BATCH], i, k = 0;

	for (i = b->n; i--;) { /* the last one to go is the most recent */
		const struct about *a = &b->about[i];

		resident[i] = -EIO;
		if (b->item[i].result || hangs_on_nothing(b, i, resident))
			continue;
		resident[i] = -ENOTCONN;
		at[k] = i;
		got[k] = -ENOTCONN;
		copy[k++] = (struct publish_copy){
			.key = a->key,
			.parent = a->parent,
			.block = b->slot[i],
			.tag = a->tag,
			.unchained = a->unchained || b->d->exclusive,
			.source = b->block[i],
			.life = WORD_GEN(a->word) + 1,
		};
		/* Comes before the publish: from now on the block follows the fate of its
		 * parent. */
		kin_enter(&b->t->kin, b->d->record + (uint32_t)GPC_SLOT(b->slot[i]), &a->parent,
			  a->alone);
	}
	if (k)
		publish_copies(b->t->c, copy, k, got, &b->t->stop);
	for (i = 0; i < k; i++)
		resident[at[i]] = got[i];
}

/* If a batch fails as a whole, the disk is the cause, and the next batch may be written to the
 * same places. */
static bool is_bad_place(const struct down *b, uint32_t at)
{
	int result = b->item[at].result;
	uint32_t i;

	if (result == -ESTALE || result == -ETIME || result == -ECANCELED)
		return false;
	for (i = 0; i < b->n && b->item[i].result; i++)
		;
	return i < b->n || b->n == 1;
}

/* An item of a file was not published: give back its place, and the content of the place. */
static void give_place_back(struct down *b, uint32_t i)
{
	slots_back(b->d, b->slot[i], &b->about[i].key,
		   !b->item[i].result   ? WRITTEN
		   : is_bad_place(b, i) ? BAD_PLACE
					: UNWRITTEN);
}

/* ... and the same for a store, which has no places.  If another slot has the key, the store has
 * it, too. */
static void give_hint_back(struct down *b, uint32_t i, gpc_block resident)
{
	bool whole = !b->item[i].result;

	slots_back(b->d, b->slot[i], &b->about[i].key, whole && resident < 0 ? WRITTEN : UNWRITTEN);
	if (whole && resident >= 0)
		slots_lost(b->d, resident, false);
}

static uint32_t settle(struct down *b, const gpc_block *resident)
{
	struct gpc_tiers *t = b->t;
	uint32_t i, written = 0, born = slots_now();

	for (i = 0; i < b->n; i++) {
		const gpc_key *key = &b->about[i].key;
		bool whole = !b->item[i].result, live = whole && resident[i] == b->slot[i];

		written += live;
		if (live)
			slots_live(b->d, b->slot[i], key, born);
		else if (b->d->file)
			give_place_back(b, i);
		else
			give_hint_back(b, i, resident[i]);
		if (!whole)
			tier_count(b->d, TIER_FAILED, 1);
		else if (resident[i] < 0)
			tier_count(b->d, resident[i] == -ESTALE ? TIER_OVERTAKEN : TIER_REFUSED, 1);
		if (live && b->d->exclusive)
			leave_ram(t, b->block[i], key);
		else if (b->item[i].result != -EINPROGRESS)
			unhold_quietly(t->c, &b->block[i], 1);
	}
	tier_count(b->d, TIER_WRITTEN, written);
	tier_count(b->d, TIER_WRITTEN_BYTES, written * b->d->block_bytes);
	return written;
}

/* Write into at most `room` slots.  Returns the number of blocks that have a copy now. */
static uint32_t write_into(struct down *b, uint32_t room)
{
	gpc_block resident[BATCH];
	uint32_t got = slots_take(b->d, b->slot, load_relaxed(&b->d->broken) ? 0 : room), i;

	cut(b, got);
	if (b->n && write_all(b) == 0) {
		publish_all(b, resident);
		return settle(b, resident);
	}
	for (i = 0; i < b->n; i++)
		slots_back(b->d, b->slot[i], &b->about[i].key, UNWRITTEN);
	cut(b, 0);
	return 0;
}

/* The sources are held, and all of one pool.  Returns the number of blocks that have a copy
 * now. */
static uint32_t write_batch(struct down *b, uint32_t pool)
{
	uint32_t written;

	if (map_get(b->t->c, pool, &b->map) < 0) {
		cut(b, 0);
		return 0;
	}
	if (b->d->file) {
		/* held until the last publish is answered, and refused blocks are free on the
		 * disk: see steward.h */
		pthread_mutex_lock(&b->t->writing);
		written = write_into(b, room_for(b->d, b->n, pool, b->victim, b->seen));
		pthread_mutex_unlock(&b->t->writing);
	} else { /* a store only loses a hint for it */
		written = write_into(b, b->n);
		tier_remote_settled(b->d->store);
	}
	map_put(b->t->c, b->map);
	free(b->iov);
	b->iov = NULL;
	b->n = b->victims = 0;
	return written;
}

/* ---- a round ---- */

/* With a limit on writes an acknowledgement waits for at most this time, and for a batch of this
 * size. */
#define RATE_NS (100 * NS_PER_MS)

static uint32_t batch_of(const struct lower *d)
{
	uint64_t rate = d->file ? d->t->opt.write_rate : 0;
	uint64_t n = rate ? rate / 10 / MAX(d->block_bytes, 1u) : BATCH;

	n = MIN(n, (uint64_t)BATCH);
	n = MIN(n, MAX((64ull << 20) / MAX(d->block_bytes, 1u), 1u));
	return (uint32_t)MAX(n, 1u);
}

static bool is_early(const struct lower *d)
{
	return d->file && tier_disk_turn(d) > clock_ns() + RATE_NS;
}

/* The ancestors of victims are listed after them, the deepest first. */
static void enlist_above(struct down *b, gpc_block block)
{
	uint32_t at = b->victims;
	struct about a;

	if (!about_block(b->t->c, block, &a) || !hold_about(b->t->c, block, &a.key, &a))
		return; /* it was dropped, with all descendants */
	while (at < b->n && b->about[at].depth >= a.depth)
		at++;
	enlist(b, block, &a, at);
}

/* The block's ancestors join the batch.  A full batch is written before more join.  In a long chain
 * the root comes first, so that no block is ever there without its parent, whatever ends this.
 * False: more is left, or the time for this is over. */
static bool choose_above(struct down *b, const struct about *a, uint32_t pool, uint32_t most,
			 uint32_t *moved)
{
	struct above *up = &b->above;
	uint32_t i;

	above_find(b->d, pool, a, b->block, b->n, up);
	if (b->n && b->n + up->n + 1 > most)
		*moved += write_batch(b, pool);
	for (i = up->n; i-- > up->n - MIN(up->n, ABOVE_MOST);) {
		enlist_above(b, up->block[i % ABOVE_MOST]);
		if (b->n < most)
			continue;
		*moved += write_batch(b, pool);
		if (is_early(b->d) || steward_stops(b->t))
			return false;
	}
	return up->n <= ABOVE_MOST;
}

/* A victim joins the batch.  Returns the number of blocks that have a copy now.  The block is held
 * first, so its ancestors stay as long. */
static uint32_t choose(struct down *b, gpc_block victim, const gpc_key *key, uint32_t pool,
		       uint32_t most)
{
	uint32_t moved = 0;
	struct about a;

	if (!hold_about(b->t->c, victim, key, &a))
		return 0;
	if (b->chains && !choose_above(b, &a, pool, most, &moved)) {
		unhold_quietly(b->t->c, &victim, 1);
		return moved;
	}
	enlist(b, victim, &a, b->victims++);
	return b->n == most ? moved + write_batch(b, pool) : moved;
}

/* A batch has blocks of one pool. */
static uint32_t write_wish(struct down *b, const struct wish *wish, uint32_t most, uint32_t *pool)
{
	gpc_block block = wanted_find(b->d, wish);
	uint32_t moved = 0;

	if (block < 0 || above_is_among(b->block, b->n, block))
		return 0;
	if (b->n && (uint32_t)GPC_POOL(block) != *pool)
		moved = write_batch(b, *pool);
	*pool = (uint32_t)GPC_POOL(block);
	return moved + choose(b, block, &wish->key, *pool, most);
}

/* Write blocks that peers want below.  No block there has to stay for blocks that are next to
 * go. */
static uint32_t write_wanted(struct lower *d)
{
	uint32_t most = batch_of(d), moved = 0, pool = 0;
	struct down *b = d->batch;
	struct wish wish;

	*b = (struct down){ .t = d->t, .d = d, .chains = above_applies(d) };
	while (!steward_stops(d->t) && lower_is_ready(d) && wanted_any(&d->wanted)) {
		if (is_early(d)) {
			d->later = true;
			break;
		}
		if (wanted_take(&d->wanted, &wish, 1))
			moved += write_wish(b, &wish, most, &pool);
	}
	return b->n ? moved + write_batch(b, pool) : moved;
}

static uint32_t spill(struct lower *d, uint32_t pool, bool drain)
{
	uint32_t want = room_due(d, pool, drain), most = batch_of(d), moved = 0;
	uint64_t until = clock_ns() + ROUND_NS;
	struct gpc_tiers *t = d->t;
	struct down *b = d->batch;
	gpc_block *victim;
	struct about a;
	int n, i, what;

	if (!want)
		return 0;
	if (is_early(d)) {
		d->later = true;
		return 0;
	}
	victim = malloc(want * sizeof(*victim));
	n = victim ? gpc_evict(t->c, (int)pool, want, victim, GPC_PEEK, CALL_MS) : 0;
	/* the writer has looked for releases (index/table/parked.c), so fewer may be due */
	n = MIN(n, (int)room_due(d, pool, drain));
	*b = (struct down){ .t = t, .d = d, .chains = above_applies(d), .victim = victim };
	for (i = 0; i < n && !steward_stops(t) && !is_early(d); i++) {
		/* the rest of a slow round is asked for again, behind blocks that peers want below */
		if (moved && clock_ns() > until)
			break;
		b->seen = (uint32_t)i + 1;
		what = look_at(b, victim[i], &a);
		moved += what == CHOSEN ? choose(b, victim[i], &a.key, pool, most) : what == GONE;
	}
	if (b->n)
		moved += write_batch(b, pool);
	free(victim);
	return moved;
}

/* For all pools: the number of blocks that have a copy now, or have left RAM. */
static uint32_t round_of(struct lower *d, bool drain)
{
	struct gpc_tiers *t = d->t;
	uint32_t p, moved = 0;

	/* blocks that we have given back count as free from then on */
	ring_wait(t->c, ring_last_ticket(t->c), clock_ns() + CALL_MS * NS_PER_MS);
	moved = write_wanted(d);
	for (p = 0; p < t->c->seg.header.geometry.max_pools && !steward_stops(t); p++)
		if (lower_is_ready(d) && images_fit_pool(d, seg_pool(&t->c->seg, p)))
			moved += spill(d, p, drain);
	return moved;
}

/* If nothing was published or evicted since, the same blocks are next to go, except for used
 * ones.  A store that was down may be up. */
static bool has_changed(const struct lower *d)
{
	return load_acquire(&seg_state(&d->t->c->seg)->events_head) != d->events ||
	       clock_ns() - d->looked_ns >= LOOK_NS;
}

int down_begin(struct gpc_tiers *t)
{
	uint32_t i;

	for (i = 0; i < t->nlower; i++) {
		struct lower *d = &t->lower[i];

		d->batch = malloc(sizeof(struct down));
		d->uses = d->min_uses > 1 ? uses_new() : NULL;
		if (!d->batch || (d->min_uses > 1 && !d->uses) || wanted_begin(&d->wanted) < 0)
			return err_set(ENOMEM, "no memory for a batch of blocks on its way to %s",
				       d->store ? "the store" : "the disk");
	}
	return 0;
}

void down_end(struct gpc_tiers *t)
{
	uint32_t i;

	for (i = 0; i < t->nlower; i++) {
		free(t->lower[i].batch);
		free(t->lower[i].uses);
		wanted_end(&t->lower[i].wanted);
	}
}

static void tell_idle(struct lower *d, uint64_t asked)
{
	store_release(&d->idle, asked);
	board_wake(d->t);
}

static void write_down(struct lower *d)
{
	struct gpc_tiers *t = d->t;
	const struct shm_board *board = seg_board(&t->c->seg);
	uint64_t pause = PAUSE_NS, asked, events;
	uint32_t seen, moved;

	while (!steward_stops(t)) {
		seen = board_bell(t);
		asked = load_acquire(&board->idle_asked);
		events = load_acquire(&seg_state(&t->c->seg)->events_head);
		if (asked == load_relaxed(&d->idle) && !has_changed(d) &&
		    !(lower_is_ready(d) && wanted_any(&d->wanted))) {
			board_sleep(t, seen, pause);
			pause = MIN(2 * pause, PAUSE_MOST);
			continue;
		}
		/* Due blocks may be among the blocks that were found at the start, which the index
		 * does not know before they are published.  Each would be written twice, and the
		 * found one would be refused.  And found blocks go in the order of their ages,
		 * which is known when all are published. */
		if (d->file && !load_acquire(&t->published)) {
			board_sleep(t, seen, PAUSE_MOST);
			continue;
		}
		d->later = false;
		moved = round_of(d, asked != d->idle);
		if (d->later && !moved)
			board_sleep(t, seen, PAUSE_MOST);
		if (d->later || moved) {
			pause = PAUSE_NS;
			continue;
		}
		/* a failed write does not count as work that is left */
		d->events = events;
		d->looked_ns = clock_ns();
		if (asked != d->idle)
			tell_idle(d, asked);
	}
}

void down_thread(struct gpc_tiers *t)
{
	write_down(t->disk);
}

void store_thread(struct gpc_tiers *t)
{
	write_down(t->store);
}
