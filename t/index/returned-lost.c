/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_returned when the feed was overwritten, the writer is another, or there is none:
 * each block is told of all the same, once.
 * Tests: lib/index/request/returned.c */
#include "t/lib/returned.h"

#include "gpc_device.h"

enum { FLOOD = 1500 };

/* ---- a feed that was overwritten ---- */

static void flood(int busy, uint32_t n)
{
	gpc_block b;
	gpc_key k;

	while (n--) {
		k = key_of(c, 1 << 20 | n);
		must(gpc_reserve(other, busy, 1, &b, NULL, 0, 60000));
		must(gpc_publish(other, NULL, &k, &b, 1, NULL, 0, -1));
		must(gpc_release(other, &b, 1));
	}
}

/* So many changes that the feed has none of those before. */
static void overwrite(int busy, uint64_t cursor)
{
	struct gpc_event ch;

	flood(busy, FLOOD);
	is_int(gpc_event_read(c, &cursor, &ch, 1), -ESTALE, "the feed has lost what was before");
}

static void all_back(void)
{
	int i;

	for (i = 0; i < 5000 && stats_of(c, info_of(owner).peer).reserved < BLOCKS; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	is_int(stats_of(c, info_of(owner).peer).reserved, BLOCKS, "all are back, untold");
}

static void test_lost(void)
{
	const uint32_t all = (1u << BLOCKS) - 1;
	uint64_t cursor = UINT64_MAX;
	gpc_block b[6];
	uint32_t bits = 0;
	int busy, i;

	begin();
	busy = pool_new(other, GPC_VRAM, 4, 3, 0);
	must(gpc_event_read(c, &cursor, NULL, 0));
	cache(own, BLOCKS);
	must(gpc_pool_clear(other, pool, 0, 0, 60000));
	all_back();
	overwrite(busy, cursor);
	is_int(back(BLOCKS), all, "all are told of");
	ok(none(), "once");

	/* in the midst of finding out, some go and come once more */
	cache(own, BLOCKS);
	must(gpc_pool_clear(other, pool, 0, 0, 60000));
	all_back();
	overwrite(busy, cursor);
	is_int(gpc_returned(owner, pool, b, 6, 1000), 6, "some are told of");
	cache(b, 6);
	is_int(gpc_evict(other, pool, 6, b, 0, 60000), 6, "filled, and evicted again");
	is_int(back(BLOCKS), all, "these, and the rest");
	ok(none(), "once");

	/* told of or not: what was published since is not the owner's */
	cache(own, BLOCKS);
	must(gpc_pool_clear(other, pool, 0, 0, 60000));
	all_back();
	overwrite(busy, cursor);
	cache(own + 3, 5);
	is_int(back(BLOCKS - 5), all & ~(31u << 3), "without those that it has published since");
	ok(none(), "and no more");
	is_int(gpc_evict(other, pool, 5, b, 0, 60000), 5, "which go as well");
	for (i = 0; i < 5; i++)
		bits |= 1u << GPC_SLOT(b[i]);
	is_int(back(5), bits, "and are told of then");
	flood(busy, FLOOD);
	ok(none(), "a feed full of others' changes has nothing for it");
	end("a feed that was overwritten");
}

/* ---- another writer ---- */

static void test_takeover(void)
{
	uint64_t cursor = UINT64_MAX;
	struct gpc_event ch[64];
	int section, told = 0, i, n;
	uint32_t bits;
	gpc_block b[2];

	cache_thread = false;
	begin();
	must(gpc_event_read(c, &cursor, NULL, 0));
	cache(own, 6);
	is_int(gpc_evict(other, pool, 2, b, 0, 60000), 2, "two are evicted");
	bits = 1u << GPC_SLOT(b[0]) | 1u << GPC_SLOT(b[1]);
	section = must(gpc_section_enter(other));
	must(gpc_pool_clear(owner, pool, 0, 0, 60000));
	serve_end();
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	serve_begin(c);
	is_int(back(2), bits, "which is told by another writer's time");
	ok(none(), "but not the four whose grace period is not over");
	gpc_section_leave(other, section);
	is_int(back(4), 63 & ~bits, "until it is");
	ok(none(), "once");
	while ((n = must(gpc_event_read(c, &cursor, ch, 64))) > 0)
		for (i = 0; i < n; i++)
			told += ch[i].what == GPC_RETURNED;
	is_int(told, 6, "the feed has one change for each");
	end("another writer");
	cache_thread = true;
}

/* ---- without a writer ---- */

static void test_no_writer(void)
{
	gpc_block b[2];

	cache_thread = false;
	begin();
	cache(own, 2);
	is_int(gpc_evict(other, pool, 1, b, 0, 60000), 1, "one is evicted");
	serve_end();
	must(gpc_writer_drop(c));
	is_int(gpc_returned(owner, pool, b, 2, 1000), 1, "told without a writer");
	is_int(gpc_returned(owner, pool, b, 2, 0), 0, "a look needs none");
	refused(gpc_returned(owner, pool, b, 2, 5000), ENOTCONN, "who waits is told");
	must(gpc_writer_take(c, 0, 0));
	serve_begin(c);
	end("no writer");
	cache_thread = true;
}

/* The call that added the pool had no answer: who finds the pool keeps it. */
static void test_found(void)
{
	struct gpc_pool p = pool_of(GPC_VRAM, 4, 5), q = { .size = sizeof(q) };
	gpc_block b[4];
	int n = -1, i;

	cache_thread = false;
	begin();
	serve_end();
	must(gpc_writer_drop(c));
	p.flags = GPC_POOL_CALLER;
	refused(gpc_pool_make(owner, &p, NULL, -1), ENOTCONN, "a pool is added without a writer");
	must(gpc_writer_take(c, 0, 0));
	serve_begin(c);
	done(owner);
	for (i = 0; i < 8 && n < 0; i++)
		if (i != pool && gpc_pool_get(owner, i, &q) == 0)
			n = i;
	ok(n >= 0 && q.space == 5, "the next one adds it");
	for (i = 0; i < 4; i++)
		b[i] = GPC_BLOCK(n, i);
	is_int(gpc_release(owner, b, 4), 0, "the owner has its blocks");
	is_int(gpc_returned(owner, n, b, 4, 0), 0, "from the start");
	cache(b, 4);
	is_int(gpc_evict(other, n, 3, b, 0, 60000), 3, "three are evicted");
	for (i = 0; i < 3 && gpc_returned(owner, n, b, 1, 2000) == 1; i++)
		;
	is_int(i, 3, "and told");
	end("found");
	cache_thread = true;
}

static int body(void)
{
	cache_thread = true;
	test_lost();
	test_takeover();
	test_no_writer();
	test_found();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
