/* SPDX-License-Identifier: Apache-2.0 */
/* Who dies while a transfer is under way.  A writer before each of its stores while it binds, commits,
 * refuses, cuts, drops what is bad, and reaps; its successor before each store of its takeover.  A peer,
 * in each state, with ranks and as a rank; one that is stopped.
 *
 *   GPC_T_EACH=1   each store; else each 13th, others in each scene */
#include <sys/wait.h>

#include "t/lib/dies.h"
#include "t/lib/xfers.h"

enum { VRAM, RAM, BLOCKS = 4, STORES = 800 };

static bool lives;                       /* a process other than this one is the peer */

/* ---- a peer in a process of its own, of which only the seat counts ---- */

static struct ghost { gpc gpc; pid_t pid; uint32_t *state; } ghosts[2];

static void ghost_run(struct ghost *g, bool holds)
{
	gpc *own = cache_attach(0, 0);
	gpc_key k[3];
	gpc_block b[2];

	chain_keys(own, 1, 2, k);
	if (holds)
		must(gpc_acquire(own, 0, k + 1, 2, b, 0));
	store_release(g->state, own->peer + 1);
	for (;;)
		pause();
}

/* Its handle, as far as this process needs one. */
static gpc *ghost_make(struct ghost *g, bool holds)
{
	struct timespec pause = { .tv_nsec = 100000 };

	if (!g->state)
		g->state = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (g->state == MAP_FAILED)
		bail("no page");
	store_release(g->state, 0);
	g->pid = fork();
	if (g->pid < 0)
		bail("no process");
	if (!g->pid)
		ghost_run(g, holds);
	while (!load_acquire(g->state))
		nanosleep(&pause, NULL);
	g->gpc = *c;
	g->gpc.peer = load_acquire(g->state) - 1;
	return &g->gpc;
}

static void ghost_kill(struct ghost *g)
{
	kill(g->pid, SIGKILL);
	while (waitpid(g->pid, NULL, 0) < 0)
		;
}

static uint32_t seat_of(gpc *p)
{
	return load_acquire(&xfers_seat(p)->state);
}

/* The writer looks for the dead. */
static bool is_reaped(gpc *p)
{
	int i;

	for (i = 0; i < 200 && seat_of(p) != SEAT_FREE; i++)
		must(gpc_writer_serve(c, 1));
	return seat_of(p) == SEAT_FREE;
}

/* ---- a cache for each death ---- */

static void begin(gpc_block *b)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_pool ram = pool_of(GPC_RAM, BLOCKS, 0);

	cfg.quarantine_ms = 20;          /* a successor does not know who it was */
	ram.transit = 2;
	cfg.max_blocks = 12;             /* takeover stores to each that is free */
	cfg.max_peers = 8;
	c = cache_make(&cfg, NULL);
	pool_new(c, GPC_VRAM, BLOCKS, 0, 0);
	must(gpc_pool_add(c, &ram, -1));
	chain_make(c, RAM, 1, 2, b);
}

static void hold(gpc_block *b)
{
	gpc_key k[3];

	chain_keys(c, 1, 2, k);
	if (must(gpc_acquire(c, 0, k + 1, 2, b, 0)) != 2)
		bail("no chain");
}

/* ---- a writer, at each store ---- */

struct scene {
	const char *what;
	void (*prepare)(void);           /* by a writer that lives; before, what is said is done */
	void (*command)(gpc *p);         /* put into the ring of the handle, by who is to die */
	bool (*over)(gpc *p);
	bool (*holds)(void);             /* what must be so in the end */
	bool dead;                       /* the peer is another process, which is dead by then */
};

static const struct scene *scene;
static gpc_block sources[2];
static struct xfer bound;

static gpc *peer_of(gpc *d, struct gpc *room)
{
	*room = *d;
	room->peer = lives ? ghosts[0].gpc.peer : c->peer;
	return room;
}

static void dies_in_scene(struct shm_command cmd, uint64_t last)
{
	static uint64_t count;
	gpc *d = cache_attach(0, 0);
	struct gpc room, *p = peer_of(d, &room);
	int i;

	(void)cmd;
	stops.count = &count;
	stops.last = last;
	stops.on_map = scene->dead;      /* its first pass reaps */
	must(gpc_writer_take(d, 0, 0));
	for (i = 0; !scene->dead && i < 3 && load_acquire(&seg_state(&d->seg)->recovering); i++)
		must(gpc_writer_serve(d, 1));
	scene->command(p);
	if (!scene->dead)
		stops_begin();
	for (i = 0; i < 100 && !scene->over(p); i++)
		gpc_writer_serve(d, 1);
	_exit(scene->over(p) ? 0 : 1);
}

static bool all_answered(gpc *p)
{
	const struct shm_seat *seat = seg_seat(&p->seg, p->peer);

	return load_acquire(&seat->tail) == seat->head;
}

static bool slot_is_over(gpc *p)
{
	const struct shm_xfer *x = seg_xfer(&p->seg, p->peer, 3);

	return all_answered(p) && load_relaxed(&x->value) == 1 && !load_acquire(&x->left);
}

static bool seat_is_free(gpc *p)
{
	return load_acquire(&seg_seat(&p->seg, p->peer)->state) == SEAT_FREE;
}

/* Done says so before the command is there: whoever binds it decides. */
static void says_done(void)
{
	hold(sources);
	store_release(&xfers_words(c)->done[3], 1);
}

static void puts_fetch(gpc *p)
{
	struct xfer x = xfer(p, 3, 1);

	xfer_put(&x, CMD_PROMOTE, 0, VRAM, sources, 2, NULL, 0, 0);
}

static void puts_bad(gpc *p)
{
	puts_fetch(p);
	store_release(&xfers_words(p)->bad[3], 1);
}

static void is_bound(void)
{
	hold(sources);
	bound = xfer(c, 3, 1);
	if (fetch(&bound, VRAM, sources, 2) != 2)
		bail("not bound");
}

static void is_dropped(void)
{
	is_bound();
	must(gpc_drop(c, sources + 1, 1, NULL, 0, -1));
}

static void device_is_done(gpc *p)
{
	store_release(&seg_transfer(&p->seg, p->peer)->done[3], 1);
}

static void puts_cut(gpc *p)
{
	struct shm_command cmd = { .op = CMD_CUT, .transfer = 1 << 6 | 3, .from = 1 };

	put(p, &cmd, 1);
}

/* Done is enqueued behind the answer (rule B3). */
static bool cut_is_over(gpc *p)
{
	if (all_answered(p))
		device_is_done(p);
	return slot_is_over(p);
}

static void peer_has_died(void)
{
	gpc *p = ghost_make(&ghosts[0], true);

	serve_some();
	bound = xfer(p, 3, 1);
	if (fetch(&bound, VRAM, sources, 2) != 2)
		bail("not bound");
	*cell_of(p, bound.to[0]) = 1;
	lives = true;
}

static void peer_was_done(void)
{
	peer_has_died();
	xfer_done(&bound);
}

static void nothing(gpc *p)
{
	(void)p;
}

static bool in_vram(void)
{
	return find(c, 1) >> 24 == VRAM && find(c, 2) >> 24 == VRAM;
}

static bool is_gone(void)
{
	return find(c, 1) < 0 && find(c, 2) < 0;
}

static bool first_in_vram(void)
{
	return find(c, 1) >> 24 == VRAM && find(c, 2) < 0;
}

static bool second_in_ram(void)
{
	return find(c, 1) >> 24 == VRAM && find(c, 2) >> 24 == RAM;
}

static bool in_ram(void)
{
	return find(c, 1) >> 24 == RAM && find(c, 2) >> 24 == RAM;
}

static const struct scene scenes[] = {
	{ "bind and commit", says_done, puts_fetch, slot_is_over, in_vram, false },
	{ "bind and find them bad", says_done, puts_bad, slot_is_over, is_gone, false },
	{ "commit", is_bound, device_is_done, slot_is_over, in_vram, false },
	{ "refuse", is_dropped, device_is_done, slot_is_over, first_in_vram, false },
	{ "cut", is_bound, puts_cut, cut_is_over, second_in_ram, false },
	{ "reap", peer_has_died, nothing, seat_is_free, in_ram, true },
	{ "reap what is done", peer_was_done, nothing, seat_is_free, in_vram, true },
};

static bool at_rest(gpc *p, uint64_t n)
{
	int i;

	for (i = 0; i < 200; i++) {
		struct gpc_stats st = stats_of(c, -1);

		if (scene->over(p) && !st.dying && !st.reserved &&
		    !load_acquire(&seg_state(&c->seg)->recovering))
			break;
		must(gpc_writer_serve(c, 1));
	}
	if (i < 200 && scene->holds() && !gpc_check(c, cache_line, NULL))
		return true;
	diag("store %d: over %d, %d dying, %d reserved; the keys are in %x and %x", (int)n,
	     scene->over(p), (int)stats_of(c, -1).dying, (int)stats_of(c, -1).reserved,
	     (unsigned)find(c, 1), (unsigned)find(c, 2));
	return false;
}

static bool dies_before(uint64_t n, uint64_t of_successor, bool *died)
{
	struct gpc room, *p;
	bool good;
	int i;

	lives = false;
	begin(sources);
	scene->prepare();
	must(gpc_writer_drop(c));
	if (scene->dead)
		ghost_kill(&ghosts[0]);
	*died = dies(dies_in_scene, (struct shm_command){ .op = CMD_NOP }, n);
	if (of_successor)
		*died = successor_dies(of_successor);
	must(gpc_writer_take(c, 0, 0));
	p = peer_of(c, &room);
	if (!scene->dead) {
		for (i = 0; i < 100 && !scene->over(p); i++)
			must(gpc_writer_serve(c, 1));
		take_answers(c);
		must(gpc_release(c, sources, 2));
	}
	good = at_rest(p, n);
	cache_end(c);
	return good;
}

static void test_each(const struct scene *s, uint64_t first)
{
	uint64_t n, step = getenv("GPC_T_EACH") ? 1 : 13;
	bool died = true, good = true;

	scene = s;
	for (n = 1 + (s - scenes) % step; n < STORES && died && good; n += step)
		good = first ? dies_before(first, n, &died) : dies_before(n, 0, &died);
	ok(good, "%s: %s dies before store %d", s->what, first ? "a successor" : "a writer",
	   (int)(n - step));
	ok(!good || !died, "%s: all of its stores, %d", s->what, (int)(n - step) - 1);
}

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
	kill(ghosts[0].pid, SIGSTOP);
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
		{ 200, 255, 255 }, { 0, 0, 255 }, { 7, 255, 255 }, { 255, 0, 255 }, { 254, 255, 255 },
	};
	static const int32_t answers[] = { -EINVAL, -EINVAL, -ESRCH, -EINVAL, -EINVAL };
	struct shm_command cmd;
	size_t i;

	begin(sources);
	hold(sources);
	for (i = 0; i < ARRAY_SIZE(lists); i++) {
		memset(&cmd, 0, sizeof(cmd));
		cmd.op = CMD_PROMOTE;
		cmd.to_pool = VRAM;
		cmd.block = sources[0];
		cmd.transfer = 1 << 6;
		memset(cmd.rank, SHM_NO_PEER, sizeof(cmd.rank));
		memcpy(cmd.rank, lists[i], sizeof(lists[i]));
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
	size_t i;

	test_peers();

	for (i = 0; i < ARRAY_SIZE(scenes); i++)
		test_each(&scenes[i], 0);
	for (i = 0; i < ARRAY_SIZE(scenes); i++)
		test_each(&scenes[i], scenes[i].dead ? 150 : 30);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(400, body, cache_dir_remove);
}
