/* SPDX-License-Identifier: Apache-2.0 */
/* Sections and grace periods: how many, for whom they count, what waits for them and what
 * does not.
 * Tests: lib/index/peer/section.c lib/index/table/grace.c */
#include "t/lib/cache.h"

#include "index/peer/handle.h"

static struct gpc_stats mine(gpc *c)
{
	return stats_of(c, info_of(c).peer);
}

static void test_slots(void)
{
	gpc *c = cache_new(4, 0), *d = cache_attach(0, 0);
	int s[GPC_SECTIONS], i, j, n = 0;

	is_int(find(d, 1), -1, "a peer that only looks up");
	ok(seg_seat(&d->seg, d->peer)->sections <= SHM_OWN_SECTIONS,
	   "makes a grace period read its first slots, and no others");
	for (i = 0; i < GPC_SECTIONS; i++)
		s[i] = must(gpc_section_enter(c));
	for (i = 0; i < GPC_SECTIONS; i++)
		for (j = 0; j < i; j++)
			n += s[i] == s[j];
	is_int(n, 0, "as many sections as a peer may have, all different");
	is_int(mine(c).sections, GPC_SECTIONS, "all open");
	refused(gpc_section_enter(c), EAGAIN, "not one more");
	is_int(find(c, 1), -1, "lookups have their own");
	is_int(gpc_section_enter(d) >= 0, 1, "and so have other peers");
	gpc_section_leave(c, s[17]);
	is_int(mine(c).sections, GPC_SECTIONS - 1, "one is left");
	is_int(gpc_section_enter(c), s[17], "its place is free");
	gpc_section_leave(c, s[17]);
	gpc_section_leave(c, s[17]);
	gpc_section_leave(c, -1);
	gpc_section_leave(c, GPC_SECTIONS);
	gpc_section_leave(c, 1000000);
	gpc_section_leave(NULL, 0);
	is_int(mine(c).sections, GPC_SECTIONS - 1, "what is not open cannot be left");
	for (i = 0; i < GPC_SECTIONS; i++)
		gpc_section_leave(c, s[i]);
	is_int(mine(c).sections, 0, "none is open");
	is_int(stats_of(c, info_of(d).peer).sections, 1, "but the other peer's");
	must(gpc_close(d));
	refused(gpc_section_enter(NULL), EINVAL, "without a handle");
	cache_end(c);
}

static void test_cookies(void)
{
	gpc *c = cache_new(4, 0), *d = cache_attach(0, 0);
	uint64_t a, b, e;
	int s, t, i, n = 0;

	a = gpc_grace_start(c);
	ok(a > 0, "a cookie");
	is_int(gpc_grace_done(c, a), 1, "nothing is open, so its time is over");
	s = must(gpc_section_enter(d));
	is_int(gpc_grace_done(c, a), 1, "for ever");
	b = gpc_grace_start(c);
	ok(b > a, "cookies grow");
	is_int(gpc_grace_done(c, b), 0, "an open section must end");
	is_int(gpc_grace_done(d, b), 0, "whoever asks");
	t = must(gpc_section_enter(c));
	is_int(gpc_grace_done(c, b), 0, "a later section is no matter");
	e = gpc_grace_start(d);
	gpc_section_leave(d, s);
	is_int(gpc_grace_done(c, b), 1, "the first grace period is over");
	is_int(gpc_grace_done(c, e), 0, "the second is not");
	gpc_section_leave(c, t);
	is_int(gpc_grace_done(c, e), 1, "now it is");
	is_int(gpc_grace_done(c, 0), 1, "no cookie, no wait");
	refused(gpc_grace_done(c, e + 1000), EINVAL, "a cookie that was never given");
	for (i = 0; i < 1000; i++) {
		b = gpc_grace_start(c);
		s = must(gpc_section_enter(d));
		n += gpc_grace_done(c, b) == 1;
		gpc_section_leave(d, s);
	}
	is_int(n, 1000, "what begins later is never waited for");
	s = must(gpc_section_enter(d));
	b = gpc_grace_start(c);
	is_int(gpc_grace_done(c, b), 0, "a section open");
	must(gpc_close(d));
	is_int(gpc_grace_done(c, b), 1, "a handle that closes leaves its sections");
	is_int(gpc_grace_start(NULL), 0, "without a handle");
	refused(gpc_grace_done(NULL, 0), EINVAL, "without a handle");
	cache_end(c);
}

/* An id seen in a section is nobody else's until the section ends. */
static void test_ids(void)
{
	gpc *c = cache_new(8, 0), *d = cache_attach(0, 0);
	gpc_block seen, b[8];
	gpc_key k = key_of(c, 1);
	int s, i, n, bad = 0;

	chain_make(c, 0, 1, 1, NULL);
	chain_make(c, 0, 2, 1, NULL);
	s = must(gpc_section_enter(d));
	is_int(gpc_lookup(d, 0, &k, 1, &seen, 0), 1, "seen in a section");
	is_int(gpc_drop(c, &seen, 1, NULL, 0, -1), 1, "then dropped");
	for (i = 0; i < 8; i++) {
		n = gpc_reserve(c, 0, 6, b, NULL, 0, 0);
		if (n != 6)
			break;
		while (n--)
			bad += b[n] == seen;
		must(gpc_release(c, b, 6));
		done(c);
	}
	is_int(i, 8, "others can be had all the while");
	is_int(bad, 0, "that one never");
	is_int(stats_of(c, -1).dying, 1, "it waits");
	is_int(gpc_ref(d, &k, &seen, 1), 0, "it cannot be referenced any more");
	gpc_section_leave(d, s);
	settle(c);
	is_int(gpc_reserve(c, 0, 7, b, NULL, 0, 60000), 7, "after the section it can");
	must(gpc_release(c, b, 7));
	must(gpc_close(d));
	clean(c, "ids in a section");
	cache_end(c);
}

/* An eviction waits for the sections that were open when it began, not for later ones. */
static void test_evict(void)
{
	gpc *c = cache_new(8, 0), *d = cache_attach(0, 0);
	gpc_block out[8];
	int before, after, i;

	chain_make(c, 0, 1, 8, NULL);
	before = must(gpc_section_enter(d));
	refused(gpc_evict(c, 0, 2, out, 0, 20), ETIMEDOUT, "an eviction in vain");
	while (stats_of(c, -1).dying < 2) /* a busy machine may not have begun */
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	is_int(find(c, 8), -1, "its victims are not found");
	is_int(stats_of(c, -1).dying, 2, "they wait");
	after = must(gpc_section_enter(d));
	gpc_section_leave(d, before);
	settle(c);
	is_int(stats_of(c, -1).dying, 0, "for the section that was there before");
	is_int(stats_of(c, info_of(d).peer).sections, 1, "not for the later one");
	refused(gpc_evict(c, 0, 1, out, 0, 20), ETIMEDOUT, "which holds the next one up");
	gpc_section_leave(d, after);
	is_int(gpc_evict(c, 0, 3, out, 0, 60000), 3, "no section, no wait");
	for (i = 0; i < 3 && GPC_POOL(out[i]) == 0; i++)
		;
	is_int(i, 3, "three ids");
	settle(c);
	is_int(stats_of(c, -1).free_blocks, 6, "all that went are free");
	must(gpc_close(d));
	clean(c, "evictions beside sections");
	cache_end(c);
}

/* A long section holds back what went, and nothing else. */
static void test_long_section(void)
{
	struct gpc_config cfg = cache_config(64, 0);
	gpc *c, *d;
	uint64_t i;
	int s, n = 0;

	cfg.max_blocks = 1024;
	c = cache_make(&cfg, NULL);
	chain_make(c, 0, 999, 1, NULL);
	d = cache_attach(0, 0);
	s = must(gpc_section_enter(d));
	for (i = 0; i < 60; i++)
		chain_make(c, 0, 1000 + i, 1, NULL);
	for (i = 0; i < 60; i++)
		n += find(d, 1000 + i) >= 0;
	is_int(n, 60, "publishing goes on, and looking");
	ok(mine(d).oldest_section_ns > 0, "its age is known");
	is_int(mine(d).sections, 1, "and whose it is");
	is_int(mine(c).sections, 0, "nobody else's");
	gpc_section_leave(d, s);
	is_int(mine(d).oldest_section_ns, 0, "no section, no age");
	must(gpc_close(d));
	clean(c, "a long section");
	cache_end(c);
}

/* ---- threads of one process ---- */

struct crowd {
	gpc *c;
	int bad;
};

static void *crowd_run(void *arg)
{
	struct crowd *w = arg;
	uint64_t cookie;
	int i, s;

	for (i = 0; i < 2000; i++) {
		s = gpc_section_enter(w->c);
		if (s < 0)
			__atomic_fetch_add(&w->bad, 1, __ATOMIC_RELAXED);
		cookie = gpc_grace_start(w->c);
		if (gpc_grace_done(w->c, cookie)) /* our own is open */
			__atomic_fetch_add(&w->bad, 1, __ATOMIC_RELAXED);
		gpc_section_leave(w->c, s);
	}
	return NULL;
}

static void test_threads(void)
{
	struct crowd w = { .c = cache_new(4, 0) };
	pthread_t thread[4];
	uint64_t cookie;
	int i;

	for (i = 0; i < 4; i++)
		if (pthread_create(&thread[i], NULL, crowd_run, &w))
			bail("no thread");
	for (i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	is_int(w.bad, 0, "a grace period that began in a section outlasts it, in all threads");
	is_int(mine(w.c).sections, 0, "no section is left over");
	cookie = gpc_grace_start(w.c);
	is_int(gpc_grace_done(w.c, cookie), 1, "and none is waited for");
	cache_end(w.c);
}

static void tests(void)
{
	test_slots();
	test_cookies();
	test_ids();
	test_evict();
	test_long_section();
	test_threads();
}

static int body(void)
{
	cache_both(tests);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
