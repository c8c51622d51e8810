/* SPDX-License-Identifier: Apache-2.0 */
/* GPC_NO_REF: who publishes keeps nothing of what goes live, and all of what does not.
 * Tests: lib/index/request/publish.c */
#include "t/lib/cache.h"

#include "index/peer/handle.h"

enum { BLOCKS = 16 };

static int me(gpc *c)
{
	return info_of(c).peer;
}

static int publish(gpc *c, const gpc_key *k, const gpc_block *b, uint32_t n, gpc_block *res, int ms,
		   gpc_ticket *t)
{
	return gpc_publish(c, k, k + 1, b, n,
			   GPC_OPTIONS(gpc_publish_options, .resident = res, .ticket = t),
			   GPC_NO_REF, ms);
}

static void holds(gpc *c, uint64_t refs, uint64_t reserved, const char *when)
{
	struct gpc_stats st = stats_of(c, me(c));

	ok(st.refs == refs && st.reserved == reserved, "%s: %d references, %d reservations", when,
	   (int)st.refs, (int)st.reserved);
	is_int(seg_seat(&c->seg, c->peer)->in_use[0], (int64_t)(refs + reserved),
	       "and that is counted");
}

static void test_live(void)
{
	gpc *c = cache_new(BLOCKS, 0);
	gpc_block b[BLOCKS], res[BLOCKS], out[BLOCKS];
	gpc_key k[BLOCKS + 1];
	int i;

	chain_keys(c, 1, 8, k);
	must(gpc_reserve(c, 0, 8, b, NULL, 0, 60000));
	is_int(publish(c, k, b, 8, res, -1, NULL), 8, "a chain");
	ok(!memcmp(b, res, 8 * sizeof(*b)), "all live in their own blocks");
	holds(c, 0, 0, "nothing is kept");
	is_int(gpc_pool_available(c, 0), BLOCKS, "all can be had");
	refused(gpc_release(c, b, 1), EPERM, "there is nothing to release");
	is_int(gpc_evict(c, 0, 2, out, 0, 60000), 2, "the deepest go first");
	ok(out[0] == b[7] && out[1] == b[6], "as after a release");
	is_int(find(c, 6), b[5], "the others stay");

	/* without a chain: the last one of the array goes first, and all are newer than what was
	 * released before */
	must(gpc_reserve(c, 0, 4, b, NULL, 0, 60000));
	chain_keys(c, 101, 4, k);
	is_int(gpc_publish(c, NULL, k + 1, b, 4, NULL, GPC_NO_REF, -1), 4, "four without a chain");
	is_int(gpc_evict(c, 0, 10, out, 0, 60000), 10, "all go");
	for (i = 0; i < 4; i++)
		is_int(out[6 + i], b[3 - i], "the last of the array goes first");
	clean(c, "what was published and forgotten");
	cache_end(c);
}

static void test_resident(void)
{
	gpc *c = cache_new(BLOCKS, 0), *d = cache_attach(0, 0);
	gpc_block b[4], theirs[4], res[4];
	gpc_key k[5];

	chain_keys(c, 1, 4, k);
	serve_begin(c);
	chain_make(d, 0, 1, 2, theirs);
	must(gpc_reserve(c, 0, 4, b, NULL, 0, 60000));
	is_int(publish(c, k, b, 4, res, -1, NULL), 2, "two are there already");
	ok(res[0] == theirs[0] && res[1] == theirs[1] && res[2] == b[2] && res[3] == b[3],
	   "they are named");
	holds(c, 0, 2, "and not referenced, what was brought for them stays reserved");
	must(gpc_release(c, b, 2));
	done(c);
	holds(c, 0, 0, "given back");
	must(gpc_reserve(c, 0, 1, b, NULL, 0, 60000));
	chain_keys(c, 51, 2, k);
	is_int(publish(c, k + 1, b, 1, res, -1, NULL), 0, "a parent that is not live");
	is_int(res[0], -ENOENT, "is refused");
	holds(c, 0, 1, "the block stays reserved");
	is_int(publish(c, k, b, 1, NULL, -1, NULL), 1,
	       "published under another key, nobody asks where");
	holds(c, 0, 0, "nothing is kept");
	serve_end();
	must(gpc_close(d));
	clean(c, "residents");
	cache_end(c);
}

/* The answer comes later. */
static void test_late(void)
{
	gpc *c = cache_new(BLOCKS, 0), *d = cache_attach(0, 0);
	gpc_block b[4], res[4] = { -7, -7, -7, -7 }, got;
	gpc_ticket t = 0;
	gpc_key k[5];
	int r;

	chain_keys(d, 1, 4, k);
	serve_begin(c);
	must(gpc_reserve(d, 0, 3, b, NULL, 0, 60000));
	serve_end();
	is_int(publish(d, k, b, 3, res, 0, &t), 0, "submitted");
	serve_begin(c);
	is_int(gpc_ticket_wait(d, t, 2000), 0, "answered");
	ok(!memcmp(b, res, 3 * sizeof(*b)), "all are live");
	holds(d, 0, 0, "nothing is kept");
	if (!cache_thread) {
		must(gpc_reserve(d, 0, 1, b, NULL, 0, 60000));
		serve_end();
		must(gpc_writer_drop(c));
		refused(publish(d, k + 3, b, 1, res, 1000, &t), ENOTCONN, "no writer");
		must(gpc_writer_take(c, 0, 0));
		serve_begin(c);
		is_int(gpc_ticket_wait(d, t, 2000), 0, "the next one has published it");
		is_int(res[0], b[0], "where it was to be");
		holds(d, 0, 0, "nothing is kept");
	}
	/* a reference that a thread takes before the answer is that thread's */
	must(gpc_reserve(d, 0, 1, b, NULL, 0, 60000));
	chain_keys(d, 51, 1, k);
	is_int(publish(d, k, b, 1, res, 0, &t), 0, "submitted");
	while (find(c, 51) < 0)
		sched_yield();
	is_int(gpc_acquire(d, 0, k + 1, 1, &got, 0), 1, "found, and referenced");
	is_int(gpc_ticket_wait(d, t, 2000), 0, "then the answer");
	holds(d, 1, 0, "that reference stays");
	must(gpc_release(d, &got, 1));
	/* given up before the answer, though it would have been released */
	must(gpc_reserve(d, 0, 1, b, NULL, 0, 60000));
	chain_keys(d, 61, 1, k);
	is_int(publish(d, k, b, 1, res, 0, &t), 0, "submitted");
	r = gpc_release(d, b, 1);
	ok(r == 0 || r == -EPERM, "before the answer, or behind it");
	is_int(gpc_ticket_wait(d, t, 2000), 0, "released once");
	done(d);
	holds(d, 0, 0, "nothing is kept");
	serve_end();
	must(gpc_close(d));
	clean(c, "late answers");
	cache_end(c);
}

/* Part of the answers is there, and the program gives a block up: the answer takes nothing from who
 * has referenced it since. */
static void test_given_up(void)
{
	gpc *c = cache_new(BLOCKS, 0), *d = cache_attach(0, 0);
	struct shm_command *second;
	gpc_block b[2], res[2], got;
	gpc_ticket t = 0;
	gpc_key k[3];
	int32_t result;

	chain_keys(d, 1, 2, k);
	serve_begin(c);
	must(gpc_reserve(d, 0, 2, b, NULL, 0, 60000));
	serve_end();
	is_int(publish(d, k, b, 2, res, 0, &t), 0, "submitted");
	second = seg_command(&d->seg, d->peer, seg_seat(&d->seg, d->peer)->head - 1);
	while (find(c, 2) < 0 || load_acquire(&second->result) == CMD_PENDING)
		cache_thread ? sched_yield() : must(gpc_writer_serve(c, 1));
	result = second->result;
	store_release(&second->result, CMD_PENDING); /* as if the writer was between the two */
	is_int(gpc_release(d, b, 1), 0, "given up before the answer");
	refused(gpc_release(d, b, 1), EPERM, "once");
	is_int(gpc_acquire(d, 0, k + 1, 1, &got, 0), 1, "it is live, and referenced anew");
	store_release(&second->result, result);
	serve_begin(c);
	is_int(gpc_ticket_wait(d, t, 2000), 0, "then the answer");
	serve_end();
	holds(d, 1, 0, "which leaves the new reference");
	is_int(gpc_release(d, &got, 1), 0, "until it is released");
	holds(d, 0, 0, "now");
	refused(gpc_release(d, b + 1, 1), EPERM, "behind the answer there is nothing to release");
	must(gpc_close(d));
	clean(c, "given up");
	cache_end(c);
}

/* Blocks of its own allocator: live ones are nobody's, and come back when they go. */
static void test_caller(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	gpc_block b[2] = { 0, 1 }, back[2];
	gpc_key k[3];
	gpc *c;

	cfg.max_blocks = 16;
	c = cache_make(&cfg, NULL);
	pool_new(c, GPC_VRAM, 4, 0, GPC_POOL_CALLER);
	chain_keys(c, 1, 2, k);
	is_int(publish(c, k, b, 2, NULL, -1, NULL), 2, "blocks of its own");
	is_int((int)stats_of(c, me(c)).refs, 0, "are not referenced");
	is_int(gpc_pool_available(c, 0), 2, "so they can be had");
	is_int(gpc_drop(c, b, 1, NULL, 0, -1), 1, "dropped");
	settle(c);
	is_int(gpc_returned(c, 0, back, 2, 1000), 2, "they come back");
	clean(c, "blocks of its own");
	cache_end(c);
}

/* In parts; each part's blocks are free to go before the next is sent. */
static void test_many(void)
{
	enum { MANY = 2500 };
	static gpc_block b[MANY], res[MANY];
	static gpc_key k[MANY + 1];
	gpc *c = cache_new(MANY, 0);
	int i, same = 0;

	for (i = 0; i < MANY; i++)
		k[i + 1] = key_of(c, (uint64_t)i + 1);
	must(gpc_reserve(c, 0, MANY, b, NULL, 0, 5000));
	is_int(publish(c, k, b, MANY, res, -1, NULL), MANY, "many");
	for (i = 0; i < MANY; i++)
		same += b[i] == res[i];
	is_int(same, MANY, "all in their own blocks");
	holds(c, 0, 0, "nothing is kept");
	is_int(gpc_evict(c, 0, 1, res, 0, 60000), 1, "one goes");
	is_int(res[0], b[MANY - 1], "the deepest");
	clean(c, "many");
	cache_end(c);
}

static void tests(void)
{
	test_live();
	test_resident();
	test_late();
	test_given_up();
	test_caller();
	test_many();
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
