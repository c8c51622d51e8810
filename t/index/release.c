/* SPDX-License-Identifier: Apache-2.0 */
/* Holds that are given up before the writer has answered: none of them may stay behind, whatever
 * the answer is.  One thread is the writer, so it decides when commands run.
 * Tests: lib/index/request/release.c lib/index/peer/hold.c */
#include "t/lib/cache.h"

#define BLOCKS 16

static gpc *c, *d; /* the writer; a peer */

static void begin(void)
{
	struct gpc_config cfg = cache_config(BLOCKS, 0);

	cache_thread = false;
	cfg.max_blocks = 2 * BLOCKS;
	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
}

static void serve(void)
{
	must(gpc_writer_serve(c, 0));
	must(gpc_writer_serve(c, 0));
}

static void end(const char *when)
{
	serve_begin(c);
	done(d);
	serve_end();
	serve();
	is_int(stats_of(c, -1).reserved, 0, "%s: nothing is reserved", when);
	is_int(stats_of(c, -1).refs, 0, "%s: nor referenced", when);
	is_int(gpc_pool_available(c, 0), BLOCKS, "%s: all are available", when);
	clean(c, when);
	must(gpc_close(d));
	must(gpc_writer_serve(c, 50));
	cache_end(c);
}

static gpc_block one(void)
{
	gpc_block b;

	serve_begin(c);
	must(gpc_reserve(d, 0, 1, &b, NULL, 0, 60000));
	serve_end();
	return b;
}

/* The peer sends it, and gives the block up at once. */
static gpc_ticket publish_and_leave(gpc_key key, const gpc_key *parent, gpc_block b)
{
	gpc_ticket t;

	must(gpc_publish(d, parent, &key, &b, 1, GPC_OPTIONS(gpc_publish_options, .ticket = &t), 0,
			 0));
	is_int(gpc_release(d, &b, 1), 0, "given up before the answer");
	refused(gpc_release(d, &b, 1), EPERM, "which works once");
	return t;
}

static void test_duplicate(void)
{
	int i, n = 0;

	begin();
	chain_make(c, 0, 1, 1, NULL);
	for (i = 0; i < BLOCKS + 4; i++) {
		gpc_block b = one();
		gpc_key key = key_of(c, 1);

		must(gpc_publish(d, NULL, &key, &b, 1, NULL, 0, 0));
		must(gpc_release(d, &b, 1));
		serve();
		n += stats_of(c, -1).reserved != 0;
		clean(c, "a duplicate that was given up");
	}
	is_int(n, 0, "a reservation ends with the answer, though its peer does not come back");
	end("duplicates");
}

static void test_refusal(void)
{
	gpc_key nowhere;
	gpc_block b;

	begin();
	nowhere = key_of(c, 77);
	b = one();
	publish_and_leave(key_of(c, 1), &nowhere, b);
	clean(c, "before the answer");
	serve();
	is_int(stats_of(c, -1).reserved, 0, "refused: the reservation ends");
	clean(c, "after it");
	end("a refusal");
}

static void test_success(void)
{
	gpc_ticket t;
	gpc_block b, got;

	begin();
	b = one();
	t = publish_and_leave(key_of(c, 1), NULL, b);
	serve();
	is_int(find(c, 1), b, "published");
	is_int(gpc_evict(c, 0, 1, &got, 0, 60000), 1, "nobody holds it");
	is_int(got, b, "so it can go");
	is_int(gpc_ticket_wait(d, t, 0), 0, "the peer comes back for the answer");
	end("a success");
}

/* Live already, and the answer not taken: another thread of the peer has found it meanwhile. */
static void test_found_meanwhile(void)
{
	gpc_key key;
	gpc_block b, found;

	begin();
	key = key_of(c, 1);
	b = one();
	must(gpc_publish(d, NULL, &key, &b, 1, NULL, 0, 0));
	serve();
	is_int(gpc_acquire(d, 0, &key, 1, &found, 0), 1, "found before the answer is taken");
	is_int(stats_of(c, info_of(d).peer).refs, 2, "two references");
	is_int(gpc_release(d, &b, 1), 0, "one goes");
	is_int(gpc_evict(c, 0, 1, &found, 0, 0), 0, "the other one holds it");
	is_int(gpc_release(d, &b, 1), 0, "and goes");
	refused(gpc_release(d, &b, 1), EPERM, "there is no third");
	end("two references");
}

/* The first release comes before the publish runs, the other thread after it. */
static void test_found_after(void)
{
	gpc_key key;
	gpc_block b, found;

	begin();
	key = key_of(c, 1);
	b = one();
	publish_and_leave(key, NULL, b);
	serve();
	is_int(gpc_acquire(d, 0, &key, 1, &found, 0), 1, "found, before the answer is taken");
	is_int(stats_of(c, -1).refs, 1, "one reference");
	clean(c, "a reference after a release");
	is_int(gpc_release(d, &found, 1), 0, "which goes");
	end("one reference");
}

static void test_no_writer(void)
{
	gpc_key key;
	gpc_block b;

	begin();
	chain_make(c, 0, 1, 1, NULL);
	key = key_of(c, 1);
	b = one();
	must(gpc_writer_drop(c));
	refused(gpc_publish(d, NULL, &key, &b, 1, NULL, 0, -1), ENOTCONN,
		"a publish without a writer");
	is_int(gpc_release(d, &b, 1), 0, "given up");
	must(gpc_writer_take(c, 0, 0));
	serve();
	is_int(stats_of(c, -1).reserved, 0, "the next writer ends it");
	end("no writer");
}

/* No room for the command that gives the block back. */
static void test_full_ring(void)
{
	static gpc_block fill[4095];
	gpc_key key;
	gpc_block b;
	int i;

	begin();
	chain_make(c, 0, 1, 1, &b);
	for (i = 0; i < 4095; i++)
		fill[i] = b;
	key = key_of(c, 1);
	b = one();
	serve_begin(c);
	done(d);
	serve_end();
	must(gpc_drop(d, fill, 4095, NULL, 0, 0));
	must(gpc_publish(d, NULL, &key, &b, 1, NULL, 0, 0));
	is_int(gpc_release(d, &b, 1), 0, "given up, and the ring is full");
	refused(gpc_release(d, &b, 1), EPERM, "once");
	clean(c, "while the ring is full");
	end("a full ring");
}

/* A reservation whose call was given up. */
static void test_abandoned(void)
{
	gpc_block b[4];

	begin();
	refused(gpc_reserve(d, 0, 4, b, NULL, 0, 1), ETIMEDOUT, "nobody serves");
	serve();
	is_int(stats_of(c, -1).reserved, 0, "nobody waits for it: nothing is given");
	clean(c, "a call that was withdrawn");
	end("a call that was given up");
}

static void test_close(void)
{
	gpc_block b;

	begin();
	chain_make(c, 0, 1, 1, NULL);
	b = one();
	publish_and_leave(key_of(c, 1), NULL, b);
	serve_begin(c);
	must(gpc_close(d));
	serve_end();
	serve();
	is_int(stats_of(c, -1).reserved, 0, "closed with a publish under way");
	d = cache_attach(0, 0);
	end("a close");
}

/* A duplicate whose resident has gone is published again: not when its block was given up. */
static void test_again(void)
{
	gpc_key key;
	gpc_block b, resident = -7, there;
	gpc_ticket t;

	begin();
	chain_make(c, 0, 1, 1, &there);
	key = key_of(c, 1);
	b = one();
	must(gpc_publish(d, NULL, &key, &b, 1,
			 GPC_OPTIONS(gpc_publish_options, .resident = &resident, .ticket = &t), 0,
			 0));
	must(gpc_release(d, &b, 1));
	serve();
	is_int(gpc_drop(c, &there, 1, NULL, 0, -1), 1, "the resident block goes");
	serve();
	is_int(gpc_ticket_wait(d, t, 0), 0, "the answer");
	is_int(resident, -EPERM, "says that the block was given up");
	end("a resident that went");
}

static void test_twice_in_a_call(void)
{
	gpc_key key[2];
	gpc_block b[2], resident[2];

	begin();
	key[0] = key_of(c, 1);
	key[1] = key_of(c, 2);
	b[0] = b[1] = one();
	serve_begin(c);
	is_int(gpc_publish(d, NULL, key, b, 2,
			   GPC_OPTIONS(gpc_publish_options, .resident = resident), 0, -1),
	       1, "one block twice");
	serve_end();
	ok(resident[0] == b[0] && resident[1] == -EPERM, "the first one counts");
	is_int(gpc_release(d, b, 1), 0, "one reference");
	refused(gpc_release(d, b, 1), EPERM, "and no other");
	end("one block twice");
}

/* CALLER blocks are their owner's, whatever the answer is. */
static void test_caller(void)
{
	struct gpc_pool p = pool_of(GPC_VRAM, 4, 1);
	gpc_key key, nowhere;
	gpc_block b;
	int pool;

	begin();
	key = key_of(c, 1);
	nowhere = key_of(c, 77);
	p.flags = GPC_POOL_CALLER;
	serve_begin(c);
	pool = must(gpc_pool_make(d, &p, NULL, -1));
	serve_end();
	b = GPC_BLOCK(pool, 2);
	must(gpc_publish(d, &nowhere, &key, &b, 1, NULL, 0, 0));
	is_int(gpc_release(d, &b, 1), 0, "its owner gives it up");
	clean(c, "before the answer");
	serve();
	serve_begin(c);
	done(d);
	clean(c, "a refusal");
	is_int(gpc_publish(d, NULL, &key, &b, 1, NULL, 0, -1), 1, "and has it again");
	is_int(gpc_release(d, &b, 1), 0, "as a reference");
	is_int(gpc_pool_clear(d, pool, 0, GPC_REMOVE, 1000), 0, "the pool goes");
	serve_end();
	clean(c, "a pool of CALLER blocks that went");
	is_int(pool_new(c, GPC_VRAM, 4, 0, 0), pool, "another one takes its records");
	clean(c, "what the owner had is nowhere");
	must(gpc_pool_clear(c, pool, 0, GPC_REMOVE, 60000));
	end("CALLER blocks");
}

static int body(void)
{
	test_duplicate();
	test_refusal();
	test_success();
	test_found_meanwhile();
	test_found_after();
	test_no_writer();
	test_full_ring();
	test_abandoned();
	test_close();
	test_again();
	test_twice_in_a_call();
	test_caller();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
