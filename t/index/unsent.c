/* SPDX-License-Identifier: Apache-2.0 */
/* A commit that could not be sent has changed nothing: its targets are reservations as before.
 * Tests: lib/index/request/move.c */
#include "t/lib/cache.h"

#define MOVES 4

static gpc *c, *d;

static void fill_ring(gpc_block b)
{
	static gpc_block fill[4096];
	int i;

	for (i = 0; i < 4096; i++)
		fill[i] = b;
	must(gpc_drop(d, fill, 4096, NULL, 0, 0));
}

/* Demotions have begun, the writer is gone and the ring is full. */
static void begin(struct gpc_move *m, bool held)
{
	gpc_block b[8];
	gpc_key k[9];

	cache_thread = false;
	c = cache_new(8, 8);
	d = cache_attach(0, 0);
	chain_keys(c, 1, 8, k);
	chain_make(c, 0, 1, 8, b);
	serve_begin(c);
	if (held)
		must(gpc_acquire(d, 0, k + 1, 8, b, 0));
	must(gpc_demote(d, 0, 1, held ? (gpc_block[]){ b[7], b[6], b[5], b[4] } : NULL, MOVES, m, 0,
			1000));
	done(d);
	serve_end();
	must(gpc_writer_drop(c));
	fill_ring(GPC_BLOCK(1, 7));
	refused(gpc_commit(d, m, MOVES, NULL, 0, -1), ENOTCONN, "a commit that cannot be sent");
	clean(c, "a commit that was not sent");
	must(gpc_writer_take(c, 0, 0));
	serve_begin(c);
}

static void end(const char *when)
{
	done(d);
	is_int(stats_of(c, -1).reserved, 0, "%s: nothing is reserved", when);
	clean(c, when);
	serve_end();
	must(gpc_close(d));
	must(gpc_writer_serve(c, 50));
	cache_end(c);
}

static void test_given_back(void)
{
	struct gpc_move m[MOVES];
	gpc_block b[MOVES];
	int i;

	begin(m, false);
	for (i = 0; i < MOVES; i++)
		b[i] = m[i].to;
	is_int(gpc_release(d, b, MOVES), 0, "the targets can be given back");
	end("given back");
}

static void test_sent_again(void)
{
	struct gpc_move m[MOVES];
	int i, result[MOVES], right = 0;

	begin(m, false);
	is_int(gpc_commit(d, m, MOVES, result, 0, -1), MOVES, "the same commit, with a writer");
	for (i = 0; i < MOVES; i++)
		right += !result[i] && find(c, 8 - (uint64_t)i) == m[i].to;
	is_int(right, MOVES, "moves them");
	end("sent again");
}

static void test_cancelled(void)
{
	struct gpc_move m[MOVES];

	begin(m, false);
	is_int(gpc_commit(d, m, MOVES, NULL, GPC_CANCEL, -1), MOVES, "given up instead");
	end("cancelled");
}

/* The caller's references move along, or stay where they are. */
static void test_held(void)
{
	struct gpc_move m[MOVES];
	gpc_block b[8];
	int i;

	begin(m, true);
	is_int(stats_of(c, info_of(d).peer).refs, 8, "eight references as before");
	is_int(gpc_commit(d, m, MOVES, NULL, 0, -1), MOVES, "the same commit, with a writer");
	is_int(stats_of(c, info_of(d).peer).refs, 8, "eight references");
	for (i = 0; i < 8; i++)
		b[i] = find(c, (uint64_t)i + 1);
	is_int(gpc_release(d, b, 8), 0, "on the blocks that have the keys now");
	is_int(stats_of(c, -1).refs, 0, "and no others");
	end("held");
}

static int body(void)
{
	test_given_back();
	test_sent_again();
	test_cancelled();
	test_held();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
