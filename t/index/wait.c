/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that cannot have what they want yet: a section of another handle is open, so what
 * was evicted cannot be handed out.  With a timeout of 0, with a short one, and with one
 * that the section does not outlast; and nothing is lost by any of it.
 * Tests: lib/index/writer/grant.c lib/index/writer/grants.c lib/index/peer/ring.c lib/index/request/reserve.c */
#include "t/lib/cache.h"

#include "gpc_device.h"

enum { V = 8, W = 4, SHORT_MS = 15 };

struct scene {
	gpc *c, *other;
	int section; /* of the other handle: holds grace periods up */
};

/* A roomy table, and a writer that is done with its beginning: then publishing needs no
 * grace period. */
static struct scene scene_new(uint32_t vram, uint32_t ram)
{
	struct gpc_config cfg = cache_config(vram, ram);
	struct scene s;
	gpc_block b;

	cfg.max_blocks = 1024;
	s.c = cache_make(&cfg, NULL);
	chain_make(s.c, 0, 12345, 1, NULL);
	must(gpc_evict(s.c, 0, 1, &b, 0, 60000));
	s.other = cache_attach(0, 0);
	s.section = must(gpc_section_enter(s.other));
	return s;
}

static void scene_open(struct scene *s)
{
	gpc_section_leave(s->other, s->section);
}

static void scene_close(struct scene *s)
{
	s->section = must(gpc_section_enter(s->other));
}

static void scene_end(struct scene *s)
{
	must(gpc_close(s->other));
	cache_end(s->c);
}

/* Nothing is held, reserved or on its way, and all of it can be had. */
static void all_is_back(gpc *c, int vram, int ram, const char *when)
{
	static gpc_block b[V];
	struct gpc_stats st;

	settle(c);
	done(c);
	st = stats_of(c, -1);
	ok(!st.reserved && !st.refs && !st.dying, "%s: nothing is held", when);
	is_int(st.live + st.free_blocks, vram + (ram ? ram + 64 : 0), "%s: none is lost", when);
	is_int(gpc_pool_available(c, 0), vram, "%s: all can be had", when);
	is_int(gpc_reserve(c, 0, (uint32_t)vram, b, NULL, 0, 1000), vram, "%s: really", when);
	must(gpc_release(c, b, (uint32_t)vram));
	if (ram) {
		is_int(gpc_reserve(c, 1, (uint32_t)ram, b, NULL, 0, 1000), ram, "%s: in RAM, too",
		       when);
		must(gpc_release(c, b, (uint32_t)ram));
	}
	done(c);
	clean(c, when);
}

static void test_try(void)
{
	struct scene s = scene_new(V, 0);
	gpc_block b[2] = { -7, -7 };
	int i;

	chain_make(s.c, 0, 1, V, NULL);
	for (i = 0; i < 4; i++)
		refused(gpc_reserve(s.c, 0, 1, b, NULL, 0, 0), EAGAIN, "a try, number %d", i);
	is_int(b[0], -7, "nothing is written");
	is_int(stats_of(s.c, -1).live, V - 1, "one block is on its way, not one for each try");
	is_int(stats_of(s.c, -1).reserved, 0, "none is reserved");
	refused(gpc_reserve(s.c, 0, 2, b, NULL, GPC_PARTIAL, 0), EAGAIN, "partly");
	clean(s.c, "tries");
	scene_open(&s);
	settle(s.c);
	is_int(gpc_reserve(s.c, 0, 1, b, NULL, 0, 0), 1, "when it has come, a try is enough");
	must(gpc_release(s.c, b, 1));
	all_is_back(s.c, V, 0, "after tries");
	scene_end(&s);
}

/* What the writer has evicted ahead of demand is waited for, and nothing goes besides. */
static void test_tries_ahead(void)
{
	enum { MANY = 64, AHEAD = 4 };
	struct gpc_config cfg = cache_config(MANY, 0);
	struct scene s;
	gpc_block b;
	int i, going;

	cfg.free_target = AHEAD;
	cfg.max_blocks = 1024;
	s.c = cache_make(&cfg, NULL);
	chain_make(s.c, 0, 12345, 1, NULL);
	must(gpc_evict(s.c, 0, 1, &b, 0, 60000));
	s.other = cache_attach(0, 0);
	scene_close(&s);
	for (i = 0; i < MANY; i++)
		chain_make(s.c, 0, 1 + (uint64_t)i, 1, NULL);
	must(gpc_writer_serve(s.c, 1));
	going = (int)stats_of(s.c, -1).dying;
	ok(going > 0, "%d go ahead of demand", going);
	for (i = 0; i < 3; i++)
		refused(gpc_reserve(s.c, 0, 1, &b, NULL, 0, 0), EAGAIN, "ahead: try number %d", i);
	is_int((int)stats_of(s.c, -1).dying, going, "and no others");
	scene_open(&s);
	settle(s.c);
	is_int((int)stats_of(s.c, -1).free_blocks, going, "ahead: they are free");
	clean(s.c, "ahead of demand");
	scene_end(&s);
}

static void test_short(void)
{
	struct scene s = scene_new(V, 0);
	gpc_block b[3];

	chain_make(s.c, 0, 1, V, NULL);
	refused(gpc_reserve(s.c, 0, 3, b, NULL, 0, SHORT_MS), ETIMEDOUT, "a short wait");
	refused(gpc_reserve(s.c, 0, 3, b, NULL, 0, SHORT_MS), ETIMEDOUT, "once more");
	refused(gpc_reserve(s.c, 0, 3, b, NULL, GPC_PARTIAL, SHORT_MS), ETIMEDOUT, "partly");
	clean(s.c, "short waits");
	scene_open(&s);
	all_is_back(s.c, V, 0, "after short waits");
	scene_end(&s);
}

/* The free ones need no grace period. */
static void test_free_ones(void)
{
	struct scene s = scene_new(V, 0);
	gpc_block b[V];

	chain_make(s.c, 0, 1, V - 2, NULL);
	is_int(gpc_reserve(s.c, 0, 2, b, NULL, 0, 0), 2, "two free ones at once");
	refused(gpc_reserve(s.c, 0, 1, b + 2, NULL, 0, 0), EAGAIN, "the third is a victim");
	must(gpc_release(s.c, b, 2));
	done(s.c);
	refused(gpc_reserve(s.c, 0, 4, b, NULL, 0, SHORT_MS), ETIMEDOUT, "two and two");
	is_int(stats_of(s.c, -1).reserved + stats_of(s.c, -1).free_blocks +
		       stats_of(s.c, -1).dying + stats_of(s.c, -1).live,
	       V, "the books agree");
	scene_open(&s);
	all_is_back(s.c, V, 0, "free ones and victims");
	scene_end(&s);
}

static void test_evict(void)
{
	struct scene s = scene_new(V, 0);
	gpc_block b[V] = { -7, -7 };

	chain_make(s.c, 0, 1, V, NULL);
	refused(gpc_evict(s.c, 0, 2, b, 0, 0), EAGAIN, "an eviction, tried");
	refused(gpc_evict(s.c, 0, 2, b, 0, SHORT_MS), ETIMEDOUT, "waited for shortly");
	is_int(b[0], -7, "no id is handed out");
	scene_open(&s);
	all_is_back(s.c, V, 0, "after evictions");
	scene_close(&s);

	chain_make(s.c, 0, 20, V, NULL);
	refused(gpc_evict(s.c, 0, 2, b, GPC_TAKE, 0), EAGAIN, "to be taken, tried");
	refused(gpc_evict(s.c, 0, 2, b, GPC_TAKE, SHORT_MS), ETIMEDOUT, "waited for shortly");
	is_int(b[0], -7, "no id is handed out");
	scene_open(&s);
	all_is_back(s.c, V, 0, "after evictions that nobody took");
	scene_end(&s);
}

/* RAM is full: a demotion waits for the block that it evicts there. */
static void test_demote(void)
{
	struct scene s = scene_new(V, W);
	struct gpc_move m[2];
	gpc_block b[V];

	chain_make(s.c, 0, 1, 2, b);
	chain_make(s.c, 1, 100, W, NULL);
	refused(gpc_demote(s.c, 0, 1, &b[1], 1, m, 0, 0), EAGAIN, "a demotion, tried");
	is_int(find(s.c, 2), b[1], "the source is where it was");
	refused(gpc_demote(s.c, 0, 1, NULL, 2, m, 0, SHORT_MS), ETIMEDOUT, "waited for shortly");
	ok(find(s.c, 1) == b[0] && find(s.c, 2) == b[1], "the sources stay");
	scene_open(&s);
	settle(s.c);
	done(s.c);
	is_int(stats_of(s.c, -1).reserved, 0, "no target is left over");
	ok(find(s.c, 1) == b[0] && find(s.c, 2) == b[1], "no source moved by itself");
	is_int(gpc_demote(s.c, 0, 1, NULL, 2, m, 0, 60000), 2, "nobody holds the sources");
	is_int(gpc_commit(s.c, m, 2, NULL, GPC_CANCEL, -1), 2, "cancelled");
	all_is_back(s.c, V, W, "after demotions");
	scene_end(&s);
}

static void test_promote(void)
{
	struct scene s = scene_new(V, W);
	struct gpc_move m[2];
	gpc_block b[2], got[2];
	gpc_key k[3];
	int n;

	chain_keys(s.c, 1, 2, k);
	chain_make(s.c, 1, 1, 2, b);
	chain_make(s.c, 0, 100, V, NULL);
	must(gpc_acquire(s.c, 0, k + 1, 2, got, 0));
	refused(gpc_promote(s.c, b, 2, 0, m, 0, 0), EAGAIN, "a promotion, tried");
	refused(gpc_promote(s.c, b, 2, 0, m, 0, SHORT_MS), ETIMEDOUT, "waited for shortly");
	n = gpc_promote(s.c, b, 2, 0, m, 0, SHORT_MS);
	ok(n == -ENOSPC || n == -ETIMEDOUT, "the sources are pinned still, or just let go: %d", n);
	ok(find(s.c, 1) == b[0] && find(s.c, 2) == b[1], "the sources stay");
	scene_open(&s);
	settle(s.c);
	done(s.c);
	is_int(stats_of(s.c, -1).reserved, 0, "no target is left over");
	is_int(gpc_promote(s.c, b, 2, 0, m, 0, 60000), 2, "they can go up still");
	is_int(gpc_commit(s.c, m, 2, NULL, 0, -1), 2, "and do");
	must(gpc_release(s.c, (gpc_block[2]){ m[0].to, m[1].to }, 2));
	is_int(GPC_POOL(find(s.c, 2)), 0, "with their references");
	all_is_back(s.c, V, W, "after promotions");
	scene_end(&s);
}

/* The section ends while the call waits. */
static void *leave_later(void *arg)
{
	struct scene *s = arg;
	struct timespec pause = { .tv_nsec = 3000000 };

	while (!stats_of(s->c, -1).dying)
		nanosleep(&pause, NULL);
	scene_open(s);
	return NULL;
}

static void test_long(void)
{
	struct scene s = scene_new(V, 0);
	pthread_t thread;
	gpc_block b[4];

	chain_make(s.c, 0, 1, V, NULL);
	if (pthread_create(&thread, NULL, leave_later, &s))
		bail("no thread");
	is_int(gpc_reserve(s.c, 0, 4, b, NULL, 0, 5000), 4, "waited for");
	pthread_join(thread, NULL);
	is_int(stats_of(s.c, -1).reserved, 4, "there they are");
	must(gpc_release(s.c, b, 4));
	all_is_back(s.c, V, 0, "after a wait");
	scene_end(&s);
}

/* ---- the own section ---- */

static void *reserve_elsewhere(void *arg)
{
	gpc_block b;
	int r = gpc_reserve(arg, 0, 1, &b, NULL, 0, 1000);

	if (r == 1)
		must(gpc_release(arg, &b, 1));
	return (void *)(intptr_t)r;
}

static void test_own_section(void)
{
	gpc *c = cache_new(V, W);
	struct gpc_move m = { .from = 0, .to = GPC_BLOCK(1, 0) };
	gpc_block b, live, res = -77;
	gpc_ticket t = 0;
	pthread_t thread;
	void *result;
	gpc_key k = key_of(c, 9);
	int section;

	chain_hold(c, 0, 1, 1, &live);
	must(gpc_reserve(c, 0, 1, &b, NULL, 0, 60000));
	section = must(gpc_section_enter(c));
	refused(gpc_reserve(c, 0, 1, &res, NULL, 0, 0), EDEADLK, "reserve");
	refused(gpc_publish(c, NULL, &k, &b, 1, GPC_OPTIONS(gpc_publish_options, .resident = &res),
			    0, -1),
		EDEADLK, "publish");
	refused(gpc_evict(c, 0, 1, &res, 0, 0), EDEADLK, "evict");
	refused(gpc_demote(c, 0, 1, &live, 1, &m, 0, 0), EDEADLK, "demote");
	refused(gpc_promote(c, &live, 1, 0, &m, 0, 0), EDEADLK, "promote");
	refused(gpc_commit(c, &m, 1, NULL, 0, -1), EDEADLK, "commit");
	refused(gpc_ticket_wait(c, 0, 10), EDEADLK, "wait");
	refused(gpc_pool_clear(c, -1, 77, 0, 10), EDEADLK, "clear");
	is_int(res, -77, "nothing is written");
	is_int(find(c, 1), live, "lookups may");
	is_int(gpc_publish(c, NULL, &k, &b, 1,
			   GPC_OPTIONS(gpc_publish_options, .resident = &res, .ticket = &t), 0, 0),
	       0, "no wait, no harm");
	is_int(gpc_release(c, &live, 1), 0, "unref may");
	is_int(gpc_drop(c, &live, 1, NULL, 0, -1), 1, "drop may");
	is_int(gpc_pool_clear(c, -1, 77, 0, 0), 0, "clear may, without waiting");
	if (pthread_create(&thread, NULL, reserve_elsewhere, c))
		bail("no thread");
	serve_begin(c);
	pthread_join(thread, &result);
	serve_end();
	is_int((intptr_t)result, 1, "another thread may all the while");
	gpc_section_leave(c, section);
	is_int(gpc_ticket_wait(c, t, 1000), 0, "afterwards we may, too");
	is_int(res, b, "and it was published");
	must(gpc_release(c, &b, 1));
	all_is_back(c, V, W, "after a section");
	cache_end(c);
}

/* Kept free ahead of demand: then even a try needs no grace period. */
static void test_ahead(void)
{
	struct gpc_config cfg = cache_config(256, 0);
	struct timespec pause = { .tv_nsec = 1000000 };
	struct gpc_stats st = { 0 };
	gpc_block b[64];
	gpc *c, *d;
	int i, section;

	cfg.free_target = 8;
	c = cache_make(&cfg, NULL);
	for (i = 0; i < 64; i++)
		chain_make(c, 0, (uint64_t)i * 100, 4, NULL);
	for (i = 0; i < 1000 && (!i || st.free_blocks < 4 || st.dying); i++) {
		if (!cache_thread)
			must(gpc_writer_serve(c, 1));
		else
			nanosleep(&pause, NULL);
		st = stats_of(c, -1);
	}
	ok(st.free_blocks >= 4 && st.free_blocks <= 8, "%d are free", (int)st.free_blocks);
	is_int(st.live + st.free_blocks, 256, "the others are in use");
	ok(find(c, 3) == -1 && find(c, 6303) >= 0, "the oldest leaves had to go");
	is_int(gpc_pool_available(c, 0), 256, "all can be had");
	d = cache_attach(0, 0);
	section = must(gpc_section_enter(d));
	is_int(gpc_reserve(c, 0, 4, b, NULL, 0, 0), 4, "with a section open all the while");
	gpc_section_leave(d, section);
	must(gpc_close(d));
	must(gpc_release(c, b, 4));
	is_int(info_of(c).free_target, 8, "as configured");
	clean(c, "free_target of demand");
	cache_end(c);
}

/* A call that finds neither room nor a writer takes nothing from those before it. */
static void test_full_ring(void)
{
	gpc *c = cache_new(V, 0);
	gpc_ticket first = 0, last = 0, none = 77;
	gpc_block b[2], there = GPC_NONE;
	gpc_key k[2] = { key_of(c, 1), key_of(c, 2) };
	int n;

	must(gpc_reserve(c, 0, 2, b, NULL, 0, 60000));
	must(gpc_writer_drop(c));
	must(gpc_publish(c, NULL, k, b, 1,
			 GPC_OPTIONS(gpc_publish_options, .resident = &there, .ticket = &first), 0,
			 0));
	do
		n = gpc_drop(c, b + 1, 1, NULL, 0, 0);
	while (n >= 0);
	is_int(n, -EAGAIN, "the ring is full");
	refused(gpc_drop(c, b + 1, 1, &none, 0, 0), EAGAIN, "for a drop");
	is_int(none, 77, "which has no ticket");
	refused(gpc_publish(c, NULL, k + 1, b + 1, 1,
			    GPC_OPTIONS(gpc_publish_options, .ticket = &none), 0, 0),
		EAGAIN, "for a publish");
	is_int(none, 77, "nor has that one");
	refused(gpc_publish(c, NULL, k + 1, b + 1, 5000,
			    GPC_OPTIONS(gpc_publish_options, .ticket = &none), 0, 0),
		EINVAL, "more than a ring");
	is_int(none, 77, "nor that");
	refused(gpc_publish(c, NULL, k + 1, b + 1, 1,
			    GPC_OPTIONS(gpc_publish_options, .ticket = &last), 0, -1),
		ENOTCONN, "a publish that waits for room");
	is_int((long)last, 0, "whose ticket is 0: nothing of it was sent");
	must(gpc_writer_take(c, 0, 0));
	is_int(gpc_ticket_wait(c, first, 2000), 0, "a new writer serves what was sent");
	is_int(there, b[0], "and the first publish is told where its block is");
	is_int(find(c, 2), GPC_NONE, "the other was not sent");
	must(gpc_release(c, b, 2));
	all_is_back(c, V, 0, "after a full ring");
	cache_end(c);
}

/* A drop that was sent and not answered: its ticket is its own. */
static void test_drop_unanswered(void)
{
	gpc *c = cache_new(V, 0);
	gpc_ticket t = 0;
	gpc_block b, there;
	gpc_key k = key_of(c, 1);

	must(gpc_reserve(c, 0, 1, &b, NULL, 0, 60000));
	must(gpc_publish(c, NULL, &k, &b, 1, GPC_OPTIONS(gpc_publish_options, .resident = &there),
			 0, -1));
	must(gpc_release(c, &b, 1));
	must(gpc_writer_drop(c));
	refused(gpc_drop(c, &b, 1, &t, 0, -1), ENOTCONN, "a drop without a writer");
	refused(gpc_ticket_wait(c, t, 0), ENOTCONN, "its ticket stands for it");
	must(gpc_writer_take(c, 0, 0));
	is_int(gpc_ticket_wait(c, t, 2000), 0, "a new writer serves it");
	is_int(find(c, 1), GPC_NONE, "and then the key is gone");
	all_is_back(c, V, 0, "after an unanswered drop");
	cache_end(c);
}

static void tests(void)
{
	test_try();
	test_short();
	test_free_ones();
	test_evict();
	test_demote();
	test_promote();
	test_long();
	test_own_section();
	test_ahead();
}

static int body(void)
{
	cache_both(tests);
	cache_thread = false; /* where a writer can be missing */
	test_tries_ahead();
	test_full_ring();
	test_drop_unanswered();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
