/* SPDX-License-Identifier: Apache-2.0 */
/* A peer dies while its transfer is under way, or is stopped: alone, with ranks that go on, as a
 * rank.  With a writer that goes on, and with a successor.
 * Tests: lib/index/writer/transfer_end.c */
#include "t/lib/ghosts.h"

/* ---- peers ---- */

static void finish(const char *what)
{
	ok(is_quiet(), "%s: nothing is left", what);
	clean(c, what);
	cache_end(c);
}

/* A transfer of the first ghost, with the ranks that are named. */
static void bind_ranks(const gpc *const *ranks, uint32_t n)
{
	bound = xfer(&ghosts[0].gpc, 3, 1);
	xfer_put(&bound, CMD_PROMOTE, 0, VRAM, sources, 2, ranks, n, 0);
	is_int(xfer_answer(&bound), 2, "bound, with %u ranks", n);
}

static void successor(void)
{
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	serve_some();
}

static void test_stopped(void)
{
	begin(sources);
	ghost_make(&ghosts[0], true);
	bind_ranks(NULL, 0);
	stop_process(ghosts[0].pid);
	serve_some();
	is_int(xfers_of(bound.p, 3)->left, 2, "its peer is stopped, the copies are under way");
	xfer_done(&bound);
	ok(ends(&bound), "done: committed all the same");
	ok(in_vram(), "found in VRAM");
	ghost_kill(&ghosts[0]);
	ok(is_reaped(bound.p), "reaped");
	is_int(stats_of(c, -1).fetched, 2, "what it fetched is still counted");
	finish("a stopped peer");
}

/* Ranks that all pass; some before a takeover. */
static void test_ranks(void)
{
	const gpc *ranks[2];

	begin(sources);
	ranks[0] = ghost_make(&ghosts[0], true);
	ranks[1] = c;
	bind_ranks(ranks, 2);
	rank_done(&bound, 1);
	xfer_done(&bound);
	successor();
	is_int(xfers_of(bound.p, 3)->left, 2, "one rank is not enough, nor is the peer's own word");
	rank_done(&bound, 0);
	ok(ends(&bound), "both are");
	ok(in_vram(), "found in VRAM");
	ghost_kill(&ghosts[0]);
	ok(is_reaped(bound.p), "reaped");
	finish("ranks");
}

/* A rank dies, that has not passed, or has. */
static void test_rank_dies(bool passed, bool dies)
{
	const gpc *ranks[2];

	begin(sources);
	ghost_make(&ghosts[0], true);
	ranks[0] = c;
	ranks[1] = ghost_make(&ghosts[1], false);
	bind_ranks(ranks, 2);
	if (passed)
		rank_done(&bound, 1);
	ghost_kill(&ghosts[1]);
	ok(is_reaped(&ghosts[1].gpc), "a rank is dead, and reaped");
	is_int(xfers_of(bound.p, 3)->rank[1], passed ? ghosts[1].gpc.peer : SHM_RANK_GONE,
	       passed ? "it had passed" : "it had not passed");
	if (dies)
		successor();
	serve_some();
	is_int(xfers_of(bound.p, 3)->left, 2, "the other rank copies still");
	is_int(state_of(bound.to[0]), RESERVED, "into its targets");
	rank_done(&bound, 0);
	ok(ends(&bound), "until it has passed");
	ok(passed ? in_vram() : in_ram(), passed ? "committed" : "refused");
	is_int(xfers_of(bound.p, 3)->refused, passed ? 0 : 2, "so many are refused");
	ghost_kill(&ghosts[0]);
	ok(is_reaped(bound.p), "reaped");
	finish("a dead rank");
}

/* The peer dies; its ranks copy on. */
static void test_owner_dies(bool is_rank, bool dies)
{
	const gpc *ranks[2];

	begin(sources);
	ranks[0] = c;
	ranks[1] = ghost_make(&ghosts[0], true);
	bind_ranks(ranks, is_rank ? 2 : 1);
	*cell_of(bound.p, bound.to[1]) = 1;
	ghost_kill(&ghosts[0]);
	serve_some();
	ok(!is_reaped(bound.p), "the peer is dead: its seat stays taken");
	is_int(*cell_of(bound.p, bound.to[1]), 0, "it holds nothing any more");
	if (dies)
		successor();
	serve_some();
	is_int(state_of(bound.to[0]), RESERVED, "its targets are reserved");
	is_int(xfers_of(bound.p, 3)->left, 2, "all of them");
	ok(in_ram(), "the keys are where they were");
	rank_done(&bound, 0);
	ok(is_reaped(bound.p), "the rank has passed: the seat is free");
	is_int(xfers_of(bound.p, 3)->left, 0, "it is over");
	ok(in_ram(), "not committed");
	finish("a dead peer with ranks");
}

/* Without ranks: once its process is gone nothing copies. */
static void test_peer_dies(bool held, bool dies)
{
	begin(sources);
	ghost_make(&ghosts[0], true);
	bind_ranks(NULL, 0);
	if (held)
		*cell_of(bound.p, bound.to[0]) = 1;
	ghost_kill(&ghosts[0]);
	if (dies)
		successor();
	ok(is_reaped(bound.p), "a dead peer is reaped");
	ok(in_ram(), "the keys are where they were");
	finish("a dead peer");
}

/* All ranks are refused by name. */
static void test_bad_ranks(void)
{
	static const uint8_t lists[][3] = {
		{ 200, 255, 255 }, { 0, 0, 255 },     { 7, 255, 255 },
		{ 255, 0, 255 },   { 254, 255, 255 },
	};
	static const int32_t answers[] = { -EINVAL, -EINVAL, -ESRCH, -EINVAL, -EINVAL };
	struct shm_command cmd;
	size_t i;

	begin(sources);
	hold(sources);
	for (i = 0; i < ARRAY_SIZE(lists); i++) {
		memset(&cmd, 0, sizeof(cmd));
		cmd.op = CMD_PROMOTE;
		cmd.move.to_pool = VRAM;
		cmd.block = sources[0];
		cmd.move.transfer = 1 << 6;
		memset(cmd.move.rank, SHM_NO_PEER, sizeof(cmd.move.rank));
		memcpy(cmd.move.rank, lists[i], sizeof(lists[i]));
		is_int(run1(c, cmd), answers[i], "ranks %u, %u", lists[i][0], lists[i][1]);
	}
	must(gpc_release(c, sources, 2));
	finish("ranks that cannot be");
}

static void test_peers(void)
{
	int dies;

	test_stopped();
	test_ranks();
	test_bad_ranks();
	for (dies = 0; dies < 2; dies++) {
		test_rank_dies(false, dies);
		test_rank_dies(true, dies);
		test_owner_dies(false, dies);
		test_owner_dies(true, dies);
		test_peer_dies(false, dies);
		test_peer_dies(true, dies);
	}
}

static int body(void)
{
	test_peers();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
