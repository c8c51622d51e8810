/* SPDX-License-Identifier: Apache-2.0 */
/* The table where it is tight: keys are chosen by their buckets, so that buckets
 * overflow, residents are relocated, and in the end a key finds no place.  Every live
 * key is found all the time, by a thread that never stops looking, too.
 * Tests: lib/index/table/table.c lib/index/table/table.h */
#include <stdlib.h>

#include "t/lib/cache.h"
#include "index/peer/handle.h"
#include "kernels/probe.h"

enum { BLOCKS = 64, BUCKETS = 32, FULL = 4 };

static gpc *new_cache(void)
{
	gpc *c = cache_new(BLOCKS, 0);

	if (info_of(c).buckets != BUCKETS)
		bail("the table has %u buckets", (unsigned)info_of(c).buckets);
	return c;
}

/* ---- keys by their buckets; space 0 has no mask ---- */

static bool in(uint32_t set, uint32_t bucket)
{
	return set >> bucket & 1;
}

/* The next key after *n whose first and second bucket are in these sets. */
static gpc_key next_key(gpc *c, uint64_t *n, uint32_t first, uint32_t second)
{
	struct probe_key p;
	gpc_key k;

	do {
		k = key_of(c, ++*n);
		p = probe_prepare(k.w[0], k.w[1], BUCKETS);
	} while (!in(first, p.first) || !in(second, p.second));
	return k;
}

static void keys_in(gpc *c, uint64_t *n, uint32_t first, uint32_t second, gpc_key *k,
		    uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		k[i] = next_key(c, n, first, second);
}

/* Each by itself; the blocks stay referenced. */
static int publish(gpc *c, const gpc_key *k, gpc_block *b, uint32_t n, gpc_block *res)
{
	must(gpc_reserve(c, 0, n, b, NULL, 0, 60000));
	return must(gpc_publish(c, NULL, k, b, n, GPC_OPTIONS(gpc_publish_options, .resident = res),
				0, -1));
}

static uint32_t misses(gpc *c, const gpc_key *k, const gpc_block *b, uint32_t n)
{
	gpc_block got[BLOCKS], one;
	uint32_t i, bad = 0;

	must(gpc_lookup(c, 0, k, n, got, GPC_QUIET));
	for (i = 0; i < n; i++) {
		must(gpc_lookup(c, 0, &k[i], 1, &one, GPC_QUIET));
		bad += got[i] != b[i] || one != b[i];
	}
	return bad;
}

/* ---- no place at all ---- */

static void test_full(void)
{
	gpc *c = new_cache();
	gpc_key k[2 * FULL + 1];
	gpc_block b[2 * FULL + 1], res[2 * FULL + 1];
	uint64_t n = 0, refused_before;

	keys_in(c, &n, 1u << 5 | 1u << 9, 1u << 5 | 1u << 9, k, 2 * FULL + 1);
	is_int(publish(c, k, b, 2 * FULL, res), 2 * FULL, "two buckets full of keys");
	is_int(misses(c, k, b, 2 * FULL), 0, "all are found");
	refused_before = stats_of(c, -1).no_bucket;
	is_int(publish(c, k + 8, b + 8, 1, res + 8), 0, "one more");
	is_int(res[8], -EAGAIN, "has no place, though half of the table is empty");
	is_int(stats_of(c, -1).no_bucket - refused_before, 1, "which is counted");
	is_int(misses(c, k, b, 2 * FULL), 0, "the others are found still");
	is_int(stats_of(c, info_of(c).peer).reserved, 1, "its block stays reserved");
	clean(c, "two full buckets");
	is_int(gpc_drop(c, &b[3], 1, NULL, 0, -1), 1, "one of them goes");
	is_int(must(gpc_publish(c, NULL, k + 8, b + 8, 1,
				GPC_OPTIONS(gpc_publish_options, .resident = res + 8), 0, -1)),
	       1, "then there is a place");
	b[3] = -1;
	is_int(misses(c, k, b, 2 * FULL + 1), 0, "all are found, and the one that went is not");
	clean(c, "two full buckets again");
	cache_end(c);
}

/* ---- relocation ---- */

/* Buckets 5 and 9 full of keys that have another bucket elsewhere, and a key for both. */
static void fill_two(gpc *c, gpc_key *k, gpc_block *b)
{
	gpc_block res[2 * FULL];
	uint64_t n = 0;

	keys_in(c, &n, 1u << 5, ~(1u << 5 | 1u << 9), k, FULL);
	keys_in(c, &n, 1u << 9, ~(1u << 5 | 1u << 9), k + FULL, FULL);
	keys_in(c, &n, 1u << 5, 1u << 9, k + 2 * FULL, 1);
	if (publish(c, k, b, 2 * FULL, res) != 2 * FULL)
		bail("eight keys");
}

/* Buckets whose keys are looked for in their second bucket as well. */
static int flags(gpc *c)
{
	const struct probe_entry *e =
		SEG_AT(c->seg.index, c->seg.at.table, const struct probe_entry, 0);
	int i, n = 0;

	for (i = 0; i < BUCKETS; i++)
		n += (load_acquire(&e[i * FULL].w[2]) & PROBE_OVERFLOW) != 0;
	return n;
}

static void test_relocation(void)
{
	gpc *c = new_cache();
	gpc_key k[2 * FULL + 1];
	gpc_block b[2 * FULL + 1], res;

	fill_two(c, k, b);
	is_int(misses(c, k, b, 2 * FULL), 0, "two full buckets");
	is_int(publish(c, k + 8, b + 8, 1, &res), 1, "a key for both of them");
	is_int(res, b[8], "gets a place");
	ok(stats_of(c, -1).relocated >= 1, "since another made room");
	is_int(misses(c, k, b, 2 * FULL + 1), 0, "all are found");
	clean(c, "relocated");
	settle(c);
	ok(flags(c) > 0, "with a flag");
	must(gpc_release(c, b, 9));
	is_int(gpc_evict(c, 0, 9, b, 0, 60000), 9, "and all can go again");
	is_int(gpc_lookup(c, 0, k, 9, b, 0), 0, "wherever they stand");
	is_int(flags(c), 0, "and the flag goes with the last of them");
	clean(c, "empty again");
	cache_end(c);
}

static int entries(gpc *c)
{
	const struct probe_entry *e =
		SEG_AT(c->seg.index, c->seg.at.table, const struct probe_entry, 0);
	int i, n = 0;

	for (i = 0; i < BUCKETS * FULL; i++)
		n += load_acquire(&e[i].w[3]) != 0;
	return n;
}

/* A relocation under way: a section of d holds it up, and the publish of key 8. */
struct held_up {
	gpc *c, *d;
	int section;
	gpc_key k[2 * FULL + 1];
	gpc_block b[2 * FULL + 1], res;
	gpc_ticket t;
};

/* With RAM below VRAM, and room there. */
static void hold_up(struct held_up *h)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_pool ram = pool_of(GPC_RAM, 16, 0);

	cfg.max_blocks = BLOCKS;
	h->c = cache_make(&cfg, NULL);
	pool_new(h->c, GPC_VRAM, 16, 0, 0);
	ram.transit = 8;
	must(gpc_pool_make(h->c, &ram, NULL, -1));
	h->d = cache_attach(0, 0);
	h->res = -77;
	fill_two(h->c, h->k, h->b);
	must(gpc_release(h->c, h->b, 2 * FULL));
	h->section = must(gpc_section_enter(h->d));
	must(gpc_reserve(h->c, 0, 1, h->b + 8, NULL, 0, 60000));
	must(gpc_publish(h->c, NULL, h->k + 8, h->b + 8, 1,
			 GPC_OPTIONS(gpc_publish_options, .resident = &h->res, .ticket = &h->t), 0,
			 0));
	while (gpc_ticket_wait(h->c, h->t, 20) == -ETIMEDOUT && entries(h->d) == 2 * FULL)
		; /* the writer has not begun */
	refused(gpc_ticket_wait(h->c, h->t, 20), ETIMEDOUT,
		"a section is open: no room is made yet");
	is_int(misses(h->d, h->k, h->b, 2 * FULL), 0, "the others are found all the while");
	is_int(entries(h->d), 2 * FULL + 1, "and what moves stands in both places");
	clean(h->c, "a relocation under way");
}

static void let_go(struct held_up *h, const char *what)
{
	gpc_section_leave(h->d, h->section);
	is_int(gpc_ticket_wait(h->c, h->t, 2000), 0, "%s: when the section has ended", what);
	is_int(h->res, h->b[8], "the key has its place");
	is_int(misses(h->c, h->k, h->b, 2 * FULL + 1), 0, "what should be found is");
	settle(h->c);
	clean(h->c, what);
	must(gpc_close(h->d));
	cache_end(h->c);
}

static void test_relocation_waits(void)
{
	struct held_up h;

	hold_up(&h);
	is_int(gpc_drop(h.c, &h.b[1], 1, NULL, 0, 0), 0, "what comes behind it waits");
	is_int(misses(h.d, h.k, h.b, 2 * FULL), 0, "so it is found");
	gpc_section_leave(h.d, h.section);
	done(h.c);
	h.b[1] = -1;
	let_go(&h, "a relocation that waited");
}

/* What is being relocated goes, by another peer's command. */
static void test_relocation_undone(bool evicted)
{
	gpc_block x[2 * FULL];
	struct held_up h;
	uint32_t i;
	gpc *e;

	hold_up(&h);
	e = cache_attach(0, 0);
	serve_begin(h.c);
	if (evicted)
		refused(gpc_evict(e, 0, 2 * FULL, x, 0, 0), EAGAIN, "all eight are evicted");
	else
		is_int(gpc_drop(e, h.b, 2 * FULL, NULL, 0, -1), 2 * FULL, "all eight go");
	for (i = 0; i < 2 * FULL; i++)
		h.b[i] = -1;
	for (i = 0; i < 30000 && misses(e, h.k, h.b, 2 * FULL); i++)
		usleep(1000);
	serve_end();
	is_int(misses(h.c, h.k, h.b, 2 * FULL), 0, "they are not found");
	refused(gpc_ticket_wait(h.c, h.t, 20), ETIMEDOUT, "but their places are not free yet");
	clean(h.c, "a relocation whose key went");
	must(gpc_close(e));
	let_go(&h, "a relocation undone");
}

/* The place of a victim, the only one for another key. */
static void test_evicted(void)
{
	gpc *c = new_cache(), *d = cache_attach(0, 0);
	gpc_key k[2 * FULL + 1];
	gpc_block b[2 * FULL + 1], res, x;
	uint64_t n = 0;
	gpc_ticket t;
	int section;

	keys_in(c, &n, 1u << 5 | 1u << 9, 1u << 5 | 1u << 9, k, 2 * FULL + 1);
	is_int(publish(c, k, b, 2 * FULL, NULL), 2 * FULL, "two buckets full of keys");
	settle(c);
	must(gpc_release(c, b, 2 * FULL));
	section = must(gpc_section_enter(d));
	refused(gpc_evict(c, 0, 1, &x, 0, 0), EAGAIN, "one is evicted, and a section is open");
	must(gpc_reserve(c, 0, 1, b + 8, NULL, 0, 60000));
	must(gpc_publish(c, NULL, k + 8, b + 8, 1,
			 GPC_OPTIONS(gpc_publish_options, .resident = &res, .ticket = &t), 0, 0));
	refused(gpc_ticket_wait(c, t, 20), ETIMEDOUT, "its place is not free yet");
	gpc_section_leave(d, section);
	is_int(gpc_ticket_wait(c, t, 2000), 0, "but when the section has ended");
	is_int(res, b[8], "another key is there");
	clean(c, "the place of a victim");
	must(gpc_release(c, b + 8, 1));
	must(gpc_close(d));
	must(gpc_writer_serve(c, 50));
	cache_end(c);
}

/* Or it changes its tier. */
static void test_relocation_moved(void)
{
	struct gpc_move m[2 * FULL];
	struct held_up h;
	uint32_t i;
	gpc *e;

	hold_up(&h);
	e = cache_attach(0, 0);
	serve_begin(h.c);
	is_int(gpc_demote(e, 0, 1, h.b, 2 * FULL, m, 0, 2000), 2 * FULL, "all eight move");
	is_int(gpc_commit(e, m, 2 * FULL, NULL, 0, -1), 2 * FULL, "to RAM");
	serve_end();
	for (i = 0; i < 2 * FULL; i++)
		h.b[i] = m[i].to;
	is_int(misses(h.c, h.k, h.b, 2 * FULL), 0, "and are found there");
	clean(h.c, "a relocation whose block changed");
	must(gpc_close(e));
	let_go(&h, "a relocation that moved");
}

/* ---- churn in a corner ---- */

enum { KEYS = 60, CORNER = 0xf, STAY = 5, MOST = 15 };

struct looker {
	gpc *c;
	const gpc_key *k;
	const gpc_block *b;
	bool stop;
	uint64_t looks, bad;
};

/* Keys that stay, looked for without end. */
static void *look(void *arg)
{
	struct looker *l = arg;

	while (!__atomic_load_n(&l->stop, __ATOMIC_ACQUIRE)) {
		l->bad += misses(l->c, l->k, l->b, STAY);
		l->looks++;
	}
	return NULL;
}

/* Four buckets, where up to 15 of 16 places are taken: 60 keys come and go, 5 stay. */
static void test_corner(uint32_t steps)
{
	gpc *c = new_cache(), *d = cache_attach(0, 0);
	gpc_key k[KEYS];
	gpc_block b[KEYS], res;
	struct looker l = { .c = d, .k = k, .b = b };
	uint32_t i, at, live = STAY, bad = 0, unclean = 0, full = 0;
	uint64_t n = 0;
	pthread_t thread;

	keys_in(c, &n, CORNER, CORNER, k, KEYS);
	for (i = 0; i < KEYS; i++)
		b[i] = -1;
	for (i = 0; i < STAY; i++)
		must(publish(c, k + i, b + i, 1, NULL));
	if (pthread_create(&thread, NULL, look, &l))
		bail("no thread");
	for (i = 0; i < steps; i++) {
		at = STAY + chance(KEYS - STAY);
		if (b[at] >= 0) {
			must(gpc_release(c, &b[at], 1));
			must(gpc_drop(c, &b[at], 1, NULL, 0, -1));
			b[at] = -1;
			live--;
		} else if (live < MOST) {
			if (publish(c, k + at, b + at, 1, &res) == 1) {
				live++;
			} else {
				bad += res != -EAGAIN;
				full++;
				must(gpc_release(c, &b[at], 1));
				b[at] = -1;
			}
		}
		bad += misses(c, k, b, KEYS);
		if (i % 200 == 199)
			unclean += gpc_check(c, cache_line, NULL) != 0;
	}
	__atomic_store_n(&l.stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	is_int(bad, 0, "%u steps: what is live is found, nothing else is", steps);
	is_int(l.bad, 0, "what stays is found at every moment: %d looks", (int)l.looks);
	is_int(unclean, 0, "clean all the while");
	ok(stats_of(c, -1).relocated > 20, "%d relocations", (int)stats_of(c, -1).relocated);
	is_int(stats_of(c, -1).no_bucket, full, "%u had no place", full);
	must(gpc_close(d));
	cache_end(c);
}

/* A whole table as full as it gets, of keys as they come. */
static void test_whole(uint32_t steps)
{
	enum { SMALL = 16 };
	gpc *c = cache_new(SMALL, 0);
	gpc_key k[SMALL];
	gpc_block b[SMALL], res;
	uint32_t i, at, bad = 0;
	uint64_t n = 0;

	for (i = 0; i < SMALL; i++)
		b[i] = -1;
	for (i = 0; i < steps; i++) {
		at = i % SMALL;
		if (b[at] >= 0)
			must(gpc_release(c, &b[at], 1));
		k[at] = key_of(c, ++n);
		if (publish(c, k + at, b + at, 1, &res) != 1) {
			bad += res != -EAGAIN;
			must(gpc_release(c, &b[at], 1));
			b[at] = -1;
		}
		if (i >= SMALL)
			bad += misses(c, k, b, SMALL);
	}
	is_int(bad, 0, "a full cache of 16: every live key is found, %d times", (int)steps);
	diag("%d relocations, %d without a place", (int)stats_of(c, -1).relocated,
	     (int)stats_of(c, -1).no_bucket);
	clean(c, "a full cache");
	cache_end(c);
}

/* A spilled key goes while it is on its way back to its first bucket.  Another one has spilled
 * from there, so the bucket keeps its flag.  In RAM it may be by then. */
static void test_relocation_home(bool moves)
{
	enum { HOME = 20, AWAY = 21, NEAR = 5, FAR = 9 };
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_pool ram = pool_of(GPC_RAM, 8, 0);
	gpc *c, *d, *e;
	gpc_key k[16];
	gpc_block b[16], res[16];
	struct gpc_move m;
	uint64_t n = 0;
	gpc_ticket t;
	int section;

	cfg.max_blocks = BLOCKS;
	ram.transit = 8;
	c = cache_make(&cfg, NULL);
	pool_new(c, GPC_VRAM, 40, 0, 0);
	must(gpc_pool_make(c, &ram, NULL, -1));
	d = cache_attach(0, 0);
	e = cache_attach(0, 0);
	keys_in(c, &n, 1u << HOME, ~(1u << HOME | 1u << NEAR | 1u << FAR), k, FULL);
	keys_in(c, &n, 1u << HOME, 1u << NEAR, k + 4, 1);
	keys_in(c, &n, 1u << HOME, 1u << AWAY, k + 5, 1);
	keys_in(c, &n, 1u << NEAR, 1u << FAR, k + 6, FULL - 1);
	keys_in(c, &n, 1u << FAR, 1u << NEAR, k + 9, FULL);
	keys_in(c, &n, 1u << NEAR, 1u << FAR, k + 13, 1);
	is_int(publish(c, k, b, 13, res), 13, "two have spilled from one bucket");
	must(gpc_release(c, b, 13));
	is_int(gpc_drop(c, b, 1, NULL, 0, -1), 1, "where there is room again");
	settle(c);
	b[0] = -1;
	section = must(gpc_section_enter(d));
	must(gpc_reserve(c, 0, 1, b + 13, NULL, 0, 60000));
	must(gpc_publish(c, NULL, k + 13, b + 13, 1,
			 GPC_OPTIONS(gpc_publish_options, .resident = res, .ticket = &t), 0, 0));
	refused(gpc_ticket_wait(c, t, 20), ETIMEDOUT, "a spilled key is on its way home");
	serve_begin(c);
	if (moves) {
		is_int(gpc_demote(e, 0, 1, b + 4, 1, &m, 0, 2000), 1, "and moves");
		is_int(gpc_commit(e, &m, 1, NULL, 0, -1), 1, "to RAM");
		b[4] = m.to;
	}
	is_int(gpc_drop(e, b + 4, 1, NULL, 0, -1), 1, "and goes");
	serve_end();
	b[4] = -1;
	gpc_section_leave(d, section);
	is_int(gpc_ticket_wait(c, t, 2000), 0, "another has its place");
	settle(c);
	is_int(misses(c, k, b, 14), 0, "the other one that has spilled is found");
	clean(c, "a relocation to the first bucket");
	must(gpc_close(e));
	must(gpc_close(d));
	cache_end(c);
}

static void tests(void)
{
	test_full();
	test_relocation();
	test_relocation_waits();
	test_relocation_undone(false);
	test_relocation_undone(true);
	test_evicted();
	test_relocation_moved();
	test_relocation_home(false);
	test_relocation_home(true);
	test_corner(3000);
	test_whole(3000);
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
