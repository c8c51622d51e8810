/* SPDX-License-Identifier: Apache-2.0 */
/* A writer dies before each of its stores while it binds, commits,
 * refuses, cuts, drops what is bad, and reaps; its successor before each store of its takeover.
 *
 *   GPC_T_EACH=1   each store; else each 19th, others in each scene
 * Tests: lib/index/writer/transfer.c lib/index/writer/transfer_decide.c lib/index/writer/transfer_end.c */
#include "t/lib/dies.h"
#include "t/lib/ghosts.h"

enum { STORES = 2000 };

static bool lives; /* a process other than this one is the peer */

/* ---- a writer, at each store ---- */

struct scene {
	const char *what;
	void (*prepare)(void);   /* by a writer that lives; before, what is said is done */
	void (*command)(gpc *p); /* put into the ring of the handle, by who is to die */
	bool (*over)(gpc *p);
	bool (*holds)(void); /* what must be so in the end */
	bool dead;           /* the peer is another process, which is dead by then */
};

static const struct scene *scene;

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
	stops.on_map = scene->dead; /* its first pass reaps */
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

/* The rank passes when somebody has seen that its owner is dead, which then holds nothing. */
static bool rank_passes(gpc *p)
{
	if (!load_acquire(cell_of(p, bound.to[0])))
		store_release(&seg_transfer(&p->seg, p->peer)->rank[3][0], 1);
	return seat_is_free(p);
}

static bool rank_is_over(gpc *p)
{
	const struct shm_xfer *x = seg_xfer(&p->seg, bound.p->peer, 3);

	return seat_is_free(p) && !load_acquire(&x->left);
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
	struct shm_command cmd = { .op = CMD_CUT, .cut.transfer = 1 << 6 | 3, .cut.from = 1 };

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

/* Its owner is dead, and a rank that lives, this handle, copies on until the end. */
static void owner_has_died(void)
{
	const gpc *rank[1] = { c };
	gpc *p = ghost_make(&ghosts[0], true);

	serve_some();
	bound = xfer(p, 3, 1);
	xfer_put(&bound, CMD_PROMOTE, 0, VRAM, sources, 2, rank, 1, 0);
	if (xfer_answer(&bound) != 2)
		bail("not bound");
	*cell_of(p, bound.to[0]) = 1;
	lives = true;
}

/* Its only rank is dead, and has not passed. */
static void rank_has_died(void)
{
	const gpc *rank[1] = { ghost_make(&ghosts[0], false) };

	serve_some();
	hold(sources);
	bound = xfer(c, 3, 1);
	xfer_put(&bound, CMD_PROMOTE, 0, VRAM, sources, 2, rank, 1, 0);
	if (xfer_answer(&bound) != 2)
		bail("not bound");
	must(gpc_release(c, sources, 2));
	lives = true;
}

static void nothing(gpc *p)
{
	(void)p;
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

static const struct scene scenes[] = {
	{ "bind and commit", says_done, puts_fetch, slot_is_over, in_vram, false },
	{ "bind and find them bad", says_done, puts_bad, slot_is_over, is_gone, false },
	{ "commit", is_bound, device_is_done, slot_is_over, in_vram, false },
	{ "refuse", is_dropped, device_is_done, slot_is_over, first_in_vram, false },
	{ "cut", is_bound, puts_cut, cut_is_over, second_in_ram, false },
	{ "reap", peer_has_died, nothing, seat_is_free, in_ram, true },
	{ "reap what is done", peer_was_done, nothing, seat_is_free, in_vram, true },
	{ "reap an owner whose rank copies", owner_has_died, nothing, rank_passes, in_ram, true },
	{ "reap a rank", rank_has_died, nothing, rank_is_over, in_ram, true },
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
	uint64_t n, step = getenv("GPC_T_EACH") ? 1 : 19;
	bool died = true, good = true;

	scene = s;
	for (n = 1 + (s - scenes) % step; n < STORES && died && good; n += step)
		good = first ? dies_before(first, n, &died) : dies_before(n, 0, &died);
	ok(good, "%s: %s dies before store %d", s->what, first ? "a successor" : "a writer",
	   (int)(n - step));
	ok(!good || !died, "%s: all of its stores, %d", s->what, (int)(n - step) - 1);
}

static int body(void)
{
	size_t i;

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
