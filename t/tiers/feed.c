/* SPDX-License-Identifier: Apache-2.0 */
/* Changes that the feed tells the steward of a file late, or not at all: a header is freed when its block is
 * gone, and stays when the block has come again.  A restart after a crash is a copy of the file as
 * it is at that moment.
 * Tests: lib/tiers/steward/feed.c lib/tiers/steward/slots.c */
#include "t/lib/below.h"

#include "index/request/request.h"

static int ram;

/* ---- the feed, and publishes, as the test wants them ---- */

enum { FLOWS, STANDS, OVERWRITTEN };
/* told: 1, the feed has told of a removal; 2, and has been asked again */
static uint32_t feed, told;
static uint32_t hold, held; /* 1: a publish that is answered waits until it is 0 */
static uint32_t hold_start; /* 1: nothing of what was there at the start is published */

int __real_gpc_event_read(gpc *c, uint64_t *cursor, struct gpc_event *out, uint32_t n);
int __wrap_gpc_event_read(gpc *c, uint64_t *cursor, struct gpc_event *out, uint32_t n);
int __real_publish_copies(gpc *c, const struct publish_copy *p, uint32_t n, gpc_block *resident,
			  const uint32_t *stop);
int __wrap_publish_copies(gpc *c, const struct publish_copy *p, uint32_t n, gpc_block *resident,
			  const uint32_t *stop);

int __real_gpc_evict(gpc *c, int pool, uint32_t n, gpc_block *blocks, uint32_t flags,
		     int timeout_ms);
int __wrap_gpc_evict(gpc *c, int pool, uint32_t n, gpc_block *blocks, uint32_t flags,
		     int timeout_ms);

static uint32_t get(const uint32_t *at)
{
	return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}

static void set(uint32_t *at, uint32_t to)
{
	__atomic_store_n(at, to, __ATOMIC_SEQ_CST);
}

static void until(const uint32_t *at, uint32_t least)
{
	while (get(at) < least)
		usleep(500);
}

int __wrap_gpc_event_read(gpc *c, uint64_t *cursor, struct gpc_event *out, uint32_t n)
{
	uint32_t how = get(&feed);
	int got = 0, some, i;

	if (get(&told) == 1)
		set(&told, 2);
	if (how == STANDS)
		return 0;
	while ((some = __real_gpc_event_read(c, cursor, out, n)) > 0 && how == OVERWRITTEN)
		got += some;
	for (i = 0; i < some; i++)
		if (out[i].what == GPC_REMOVED && !get(&told))
			set(&told, 1);
	return how == OVERWRITTEN && got ? -ESTALE : some;
}

int __wrap_publish_copies(gpc *c, const struct publish_copy *p, uint32_t n, gpc_block *resident,
			  const uint32_t *stop)
{
	int got;

	while (p[0].source == GPC_NONE && get(&hold_start))
		usleep(500);
	got = __real_publish_copies(c, p, n, resident, stop);
	while (get(&hold)) {
		set(&held, 1);
		usleep(500);
	}
	return got;
}

/* Who makes room in a tier that is being published does so when all of it is. */
int __wrap_gpc_evict(gpc *c, int pool, uint32_t n, gpc_block *blocks, uint32_t flags,
		     int timeout_ms)
{
	if (pool != ram && get(&hold_start)) {
		set(&hold_start, 0);
		while (!tier_of(c).ready)
			usleep(500);
	}
	return __real_gpc_evict(c, pool, n, blocks, flags, timeout_ms);
}

/* ---- caches ---- */

static gpc_tiers *begin(gpc **ret, struct gpc_tiers_options *o)
{
	int vram;

	*ret = tiers_begin(1024, o, &ram, &vram);
	return tiers_open(o);
}

static gpc_tiers *crash(gpc *c, gpc_tiers *t, struct gpc_tiers_options *o)
{
	char to[128];

	snprintf(to, sizeof(to), "%s.crash", tiers_path);
	tiers_copy_file(to);
	return tiers_crash(c, t, to, o);
}

/* Removed, and nothing waits for the file. */
static void drop(gpc *c, gpc_block b)
{
	gpc_ticket ticket = 0;

	must(gpc_drop(c, &b, 1, &ticket, 0, 0));
	must(gpc_ticket_wait(c, ticket, 5000));
}

/* ---- tests ---- */

/* Nobody knows what was removed: what the index has is compared. */
static void overwritten(void)
{
	struct gpc_tiers_options o;
	gpc_tiers *t;
	gpc_key k[9];
	gpc_block b[8];
	uint32_t i;
	gpc *c;

	t = begin(&c, &o);
	for (i = 0; i < 5; i++) {
		chain_keys(c, 1 + 8 * i, 8, k);
		must(gpc_reserve(c, ram, 8, b, NULL, 0, 60000));
		must(gpc_publish(c, k, k + 1, b, 8,
				 GPC_OPTIONS(gpc_publish_options, .tag = 1 + i % 2), 0, -1));
		must(gpc_release(c, b, 8));
		must(gpc_tiers_sync(c, TIERS_MS));
	}
	is_int(tiers_below(c, 1, 24), 24, "three chains of two tags are on the disk");
	set(&feed, OVERWRITTEN);
	is_int(gpc_pool_clear(c, tier_of(c).pool, 1, 0, 5000), 0,
	       "one tag is cleared, and the feed is overwritten");
	set(&feed, FLOWS);
	t = crash(c, t, &o);
	is_int(tiers_below(c, 1, 8) + tiers_below(c, 17, 8), 0, "its chains do not come back");
	is_int(tiers_below(c, 9, 8), 8, "the other one's does");
	tiers_finish(c, t, "overwritten");
}

/* Removed and written again before the feed tells of the first. */
static void comes_again(void)
{
	struct gpc_tiers_options o;
	gpc_tiers *t;
	gpc_block b;
	gpc *c;

	t = begin(&c, &o);
	tiers_fill(c, ram, 1, 40, 8);
	tiers_fill(c, ram, 1, 8, 8); /* in RAM as well, and the next to go but one */
	b = tiers_block_below(c, 8);
	set(&feed, STANDS);
	drop(c, b);
	/* its slot has come back, and is the first to be taken */
	must(gpc_tiers_sync(c, TIERS_MS));
	tiers_fill(c, ram, 41, 8, 8);
	is_int(tiers_block_below(c, 8), b,
	       "a key that was removed is written into the same slot again");
	set(&feed, FLOWS);
	must(gpc_tiers_sync(c, TIERS_MS));
	/* RAM has it no more, and so it is not written a third time */
	tiers_fill(c, ram, 49, 8, 8);
	t = crash(c, t, &o);
	is_int(tiers_below(c, 1, 8), 8, "what the feed told late has not freed its header");
	tiers_finish(c, t, "comes again");
}

/* Removed when its publish is answered, and before the steward has taken note of that. */
static void gone_at_once(void)
{
	struct gpc_tiers_options o;
	gpc_tiers *t;
	gpc *c;

	t = begin(&c, &o);
	tiers_fill(c, ram, 1, 16, 8);
	set(&told, 0);
	set(&held, 0);
	set(&hold, 1);
	bytes_chain(c, ram, 17, 8, (gpc_block[8]){ 0 }, false);
	until(&held, 1);
	ok(tiers_block_below(c, 16) >= 0, "a block goes to the disk");
	drop(c, find(c, 16));
	until(&told, 2);
	is_int(tiers_block_below(c, 16), -1, "it is dropped, of which the feed has told");
	set(&hold, 0);
	must(gpc_tiers_sync(c, TIERS_MS));
	t = crash(c, t, &o);
	is_int(tiers_below(c, 9, 7), 7, "the others come back");
	is_int(tiers_block_below(c, 16), -1, "and it does not");
	tiers_finish(c, t, "gone at once");
}

/* What RAM is about to give up is in the file already, and not published yet. */
static void starts_with(uint32_t n)
{
	struct gpc_tiers_options o;
	gpc_tiers *t;
	int below;
	gpc *c;

	t = begin(&c, &o);
	tiers_fill(c, ram, 1, n, 8);
	below = tiers_below(c, 1, (int)n);
	ok(n == 96 ? below == 64 : below > 0 && below < 64, "a file has %d of 64 blocks", below);
	must(gpc_tiers_close(t));
	o.disk_blocks = 0;
	set(&hold_start, 1);
	t = tiers_open(&o);
	is_int(gpc_tiers_sync(c, 100), -ETIMEDOUT,
	       "it is opened again, and nothing is published for a while");
	set(&hold_start, 0);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, 96), below, "nothing of it has gone");
	is_int((int)tier_of(c).written, 0, "nor was written again");
	is_int((int)tier_of(c).restored, below, "all that was found is published");
	tiers_finish(c, t, n == 96 ? "starts full" : "starts with room");
}

/* The steward finds that its pool has gone before the feed has told of it, and another pool has the
 * number by then. */
static void pool_ends(void)
{
	struct gpc_tiers_options o;
	gpc_tiers *t;
	int pool;
	gpc *c;

	t = begin(&c, &o);
	tiers_fill(c, ram, 1, 40, 8);
	pool = tier_of(c).pool;
	is_int(tiers_below(c, 1, 24), 24, "blocks are on the disk");
	set(&feed, STANDS);
	/* nobody acknowledges that while the feed stands */
	gpc_pool_clear(c, pool, 0, GPC_REMOVE, 0);
	while (tier_of(c).state != GPC_TIER_DOWN)
		usleep(500);
	is_int(bytes_ram(c, 16, 0, 0), pool, "a pool of RAM has the number");
	set(&feed, FLOWS);
	must(gpc_tiers_close(t));
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, 24), 0, "what was removed does not come back");
	tiers_finish(c, t, "pool ends");
}

static int body(void)
{
	overwritten();
	comes_again();
	gone_at_once();
	starts_with(96);
	starts_with(40);
	pool_ends();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
