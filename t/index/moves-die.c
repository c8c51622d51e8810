/* SPDX-License-Identifier: Apache-2.0 */
/* The writer dies before each store of a commit, of a publication over a block in RAM, of a
 * demotion that has nothing to copy, and of a drop right after a move; and its successor before
 * each store of its takeover.
 *
 * All the while the key is found and gives references (guarantee A, rule C3), to those who began
 * before the move as well; at the end it has one block, and what it moved from is free.
 *
 *   GPC_T_EACH=1   each store of a successor; else each third, others in each scene
 * Tests: lib/index/writer/move.c lib/index/writer/commit.c */
#include "index/reader/probe_table.h"
#include "index/segment/blocks.h"
#include "index/peer/refs.h"
#include "index/peer/hold.h"

#include "t/lib/dies.h"

enum { BLOCKS = 4, STORES = 400 };

static gpc *d; /* reads */
static int vram, ram, section;
/* d has a section open from before the last move on; LATE: since the writer that is to die has
 * taken over, which gets no empty entry of the table before */
static enum { NOBODY, EARLY, LATE } reads;

/* ---- a cache for each death ---- */

static gpc_block before; /* where the key is before the command ... */

static void reader_begins(void)
{
	section = must(handle_enter(d));
}

static void begin(uint32_t ram_space, int how)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_pool p = pool_of(GPC_RAM, BLOCKS, ram_space);

	cfg.max_blocks = 16; /* takeover stores to each that is free */
	cfg.max_peers = 8;
	p.transit = 2;
	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	vram = pool_new(c, GPC_VRAM, BLOCKS, 0, 0);
	ram = must(gpc_pool_make(c, &p, NULL, -1));
	reads = how;
	dies_between = reads == LATE ? reader_begins : NULL;
	if (reads == EARLY)
		reader_begins();
}

static void end(void)
{
	must(gpc_close(d));
	cache_end(c);
}

/* ---- the key, in whatever block ---- */

static bool gives(gpc_block b)
{
	gpc_key k = key_of(d, 1);
	struct ref_sum sum = { 0 };
	uint32_t record = pool_record(&d->seg, b);
	bool got = b >= 0 && !refs_take(d, record, b, &k, &sum);

	if (got)
		refs_drop(d, record, b, &sum);
	refs_account(d, &sum);
	return got;
}

static gpc_block found(void)
{
	gpc_key k = key_of(d, 1);
	gpc_block b = GPC_NONE;

	if (gpc_acquire(d, 0, &k, 1, &b, 0) == 1)
		must(gpc_release(d, &b, 1));
	return b;
}

static gpc_block in_space(uint32_t space)
{
	gpc_key k = key_of(d, 1);
	struct probe l;

	probe_begin(&l, d, GPC_SPACE(space));
	return probe_one(&l, &k);
}

/* Who began before the move has this block in hand, or asks its space only now. */
static bool is_there(const char *when, uint64_t n)
{
	bool old = !reads || gives(before);
	gpc_block b = found();

	if (b >= 0 && old)
		return true;
	diag("store %d, %s: found in block %d, and the old one %s", (int)n, when, b,
	     old ? "gives references" : "gives none");
	return false;
}

static bool at_rest(gpc_block at, uint64_t n)
{
	struct gpc_stats st;
	int i;

	if (reads)
		handle_leave(d, section);
	for (i = 0; i < 200; i++) {
		must(gpc_writer_serve(c, 1));
		st = stats_of(c, -1);
		if (!st.dying && st.live == (at >= 0) && !waits(c) &&
		    !load_acquire(&seg_state(&c->seg)->recovering))
			break;
	}
	if (i < 200 && found() == at && !gpc_check(c, cache_line, NULL))
		return true;
	diag("store %d: %d live, %d dying, found in %d, want %d", (int)n, (int)st.live,
	     (int)st.dying, found(), at);
	return false;
}

/* ---- what dies in which command ---- */

struct scene {
	const char *what;
	uint32_t ram_space;
	int reads;
	gpc_block (*prepare)(struct shm_command *cmd); /* where the key is to be afterwards */
	bool removes;                                  /* it need not be found meanwhile */
};

static gpc_block put(int pool)
{
	gpc_block b;

	chain_make(c, pool, 1, 1, &b);
	return b;
}

static struct shm_command commit_of(const struct gpc_move *m)
{
	return (struct shm_command){ .op = CMD_COMMIT,
				     .block = m->from,
				     .commit.to = m->to,
				     .commit.move_op =
					     seg_record(&c->seg, pool_record(&c->seg, m->to))->op };
}

static gpc_block goes_down(struct shm_command *cmd)
{
	struct gpc_move m;

	before = put(vram);
	if (must(gpc_demote(c, vram, ram, &before, 1, &m, 0, 60000)) != 1)
		bail("no move");
	*cmd = commit_of(&m);
	return m.to;
}

static gpc_block goes_up(struct shm_command *cmd)
{
	gpc_key k = key_of(c, 1);
	struct gpc_move m;

	before = put(ram);
	must(gpc_acquire(c, 0, &k, 1, &before, 0));
	if (must(gpc_promote(c, &before, 1, vram, &m, 0, 60000)) != 1)
		bail("no move");
	must(gpc_release(c, &before, 1));
	*cmd = commit_of(&m);
	return m.to;
}

/* Up, when it has just come down, and both blocks are seen. */
static gpc_block goes_back(struct shm_command *cmd)
{
	gpc_key k = key_of(c, 1);
	struct gpc_move m;
	gpc_block b;

	b = put(vram);
	if (must(gpc_demote(c, vram, ram, &b, 1, &m, 0, 60000)) != 1 ||
	    must(gpc_commit(c, &m, 1, NULL, 0, -1)) != 1)
		bail("no move");
	before = b;
	must(gpc_acquire(c, 0, &k, 1, &b, 0));
	if (must(gpc_promote(c, &b, 1, vram, &m, 0, 60000)) != 1)
		bail("no second move");
	must(gpc_release(c, &b, 1));
	*cmd = commit_of(&m);
	return m.to;
}

static gpc_block comes_anew(struct shm_command *cmd)
{
	gpc_key k = key_of(c, 1);
	gpc_block b;

	before = put(ram);
	must(gpc_reserve(c, vram, 1, &b, NULL, 0, 60000));
	*cmd = (struct shm_command){ .op = CMD_PUBLISH,
				     .block = b,
				     .publish.key = { k.w[0], k.w[1] } };
	return b;
}

static gpc_block is_known(struct shm_command *cmd)
{
	gpc_block b;

	before = put(vram);
	b = put(ram);
	*cmd = (struct shm_command){ .op = CMD_DEMOTE,
				     .pool = (uint8_t)vram,
				     .move.to_pool = (uint8_t)ram,
				     .block = before };
	return b;
}

static gpc_block is_dropped(struct shm_command *cmd)
{
	struct gpc_move m;

	before = put(vram);
	if (must(gpc_demote(c, vram, ram, &before, 1, &m, 0, 60000)) != 1 ||
	    must(gpc_commit(c, &m, 1, NULL, 0, -1)) != 1)
		bail("no move");
	*cmd = (struct shm_command){ .op = CMD_DROP, .block = m.to };
	return GPC_NONE;
}

static const struct scene scenes[] = {
	{ "down, in one space", 0, NOBODY, goes_down, false },
	{ "down, in one space, under a reader's eyes", 0, EARLY, goes_down, false },
	{ "up, in one space, under a reader's eyes", 0, EARLY, goes_up, false },
	{ "there and back, under a reader's eyes", 0, EARLY, goes_back, false },
	{ "published over, under a reader's eyes", 0, EARLY, comes_anew, false },
	{ "down, between spaces", 1, NOBODY, goes_down, false },
	{ "down, between spaces, under a reader's eyes", 1, LATE, goes_down, false },
	{ "up, between spaces", 1, NOBODY, goes_up, false },
	{ "up, between spaces, under a reader's eyes", 1, LATE, goes_up, false },
	{ "known there already", 1, EARLY, is_known, false },
	{ "dropped where it went", 0, EARLY, is_dropped, true },
};

/* The library has not sent it: what it holds for the command goes back by hand. */
static void forget(gpc_block b)
{
	struct ref_sum sum = { 0 };

	if (b >= 0)
		hold_step(c, pool_record(&c->seg, b), b, HOLD_PART, &sum);
	refs_account(c, &sum);
}

static bool dies_before(const struct scene *s, uint64_t n, uint64_t of_successor, bool *died)
{
	struct shm_command cmd;
	gpc_block at;
	bool good;

	begin(s->ram_space, s->reads);
	at = s->prepare(&cmd);
	must(gpc_writer_drop(c));
	*died = writer_dies(cmd, n);
	good = s->removes || is_there("without a writer", n);
	if (of_successor) {
		*died = successor_dies(of_successor);
		good &= s->removes || is_there("without its successor", of_successor);
	}
	must(gpc_writer_take(c, 0, 0));
	good &= s->removes || is_there("with a new one", n);
	must(gpc_writer_serve(c, 1));
	good &= s->removes || is_there("which serves", n);
	/* nobody who looks at the old space first misses it */
	good &= s->removes || !reads || !s->ram_space ||
		in_space(before >> 24 == vram ? 0 : 1) >= 0;
	forget(at);
	good &= at_rest(at, n);
	end();
	return good;
}

static void test_writer(const struct scene *s)
{
	bool died = true, good = true;
	uint64_t n;

	for (n = 1; n < STORES && died && good; n++)
		good = dies_before(s, n, 0, &died);
	ok(good, "%s: a writer dies before store %d", s->what, (int)n - 1);
	ok(!good || !died, "%s: all of its stores, %d", s->what, (int)n - 2);
}

/* The first one has done all; or dies in the middle, some stores after its commit.  Takeover has
 * the same stores in each scene: a third of them, others in the next one. */
static void test_successor(const struct scene *s, uint64_t first)
{
	uint64_t n, step = getenv("GPC_T_EACH") ? 1 : 3;
	bool died = true, good = true;

	for (n = 1 + (uint64_t)(s - scenes) % step; n < STORES && died && good; n += step)
		good = dies_before(s, first, n, &died);
	ok(good, "%s: a successor dies before store %d", s->what, (int)(n - step));
	ok(!good || !died, "%s: all of its stores, %d", s->what, (int)(n - step) - 1);
}

static int body(void)
{
	size_t i;

	for (i = 0; i < sizeof(scenes) / sizeof(*scenes); i++)
		test_writer(&scenes[i]);
	for (i = 0; i < sizeof(scenes) / sizeof(*scenes); i++)
		if (scenes[i].reads)
			test_successor(&scenes[i], i % 2 ? STORES : 12);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
