/* SPDX-License-Identifier: Apache-2.0 */
/* A victim that is on its way to be a reservation counts against the capacity of its pool, as it
 * did before and will again: the room that it seems to leave is nobody's, beside free slots for
 * transit too.  Else RAM would have more than its capacity for good.  A command that a successor
 * runs again would evict anew, since the victim of its predecessor leaves no room then (rules C1,
 * C6).
 * Tests: lib/index/writer/grant_place.c lib/index/writer/grant_again.c lib/index/takeover/others.c */
#include "t/lib/counts.h"
#include "index/peer/handle.h"
#include "index/segment/blocks.h"

#include "t/lib/dies.h"

enum { VRAM, RAM, ROOM = 2, ASKED = 3, STORES = 2000 };
enum { TURN = 64 }; /* commands of one peer, before the next one's */

static gpc *d; /* others */
static uint64_t last_key;

static void fill(int pool, uint32_t n)
{
	while (n--)
		chain_make(c, pool, ++last_key, 1, NULL);
}

/* Of the keys with numbers behind this one. */
static int still_there(uint64_t before)
{
	int n = 0;

	while (before < last_key) {
		gpc_block b = find(c, ++before);

		n += b >= 0 && GPC_POOL(b) == RAM;
	}
	return n;
}

static bool is_within(const char *when)
{
	const struct shm_pool *p = seg_pool(&c->seg, RAM);

	if (p->live + p->reserved <= p->blocks)
		return true;
	diag("%s: %u live, %u reserved, %u blocks", when, p->live, p->reserved, p->blocks);
	return false;
}

/* ---- what waits for its victims ---- */

struct call {
	pthread_t thread;
	bool demotes;
	int n;
	struct gpc_move m[ASKED];
	gpc_block got[ROOM];
};

static void *run(void *arg)
{
	struct call *f = arg;

	f->n = f->demotes ? gpc_demote(d, VRAM, RAM, NULL, ASKED, f->m, 0, 60000)
			  : gpc_evict(d, RAM, ROOM, f->got, GPC_TAKE, 60000);
	return NULL;
}

/* A section holds back what RAM had; returns it. */
static int wait_begin(struct call *f)
{
	const struct timespec pause = { .tv_nsec = 100000 };
	int section;

	fill(RAM, ROOM);
	fill(VRAM, ASKED);
	settle(c);
	serve_begin(c);
	section = must(gpc_section_enter(c));
	if (pthread_create(&f->thread, NULL, run, f))
		bail("no thread");
	while (load_acquire(&seg_pool(&c->seg, RAM)->dying) < ROOM)
		nanosleep(&pause, NULL);
	return section;
}

static void wait_end(struct call *f, int section)
{
	must(gpc_section_leave(c, section));
	pthread_join(f->thread, NULL);
	serve_end();
}

/* It asks for more than RAM has, and waits for those that it evicts. */
static void test_one(void)
{
	struct call f = { .demotes = true };

	c = cache_new(8, ROOM);
	d = cache_attach(0, 0);
	wait_end(&f, wait_begin(&f));
	is_int(f.n, ROOM, "a demotion of more than RAM has brings what RAM has");
	ok(is_within("one demotion"), "and RAM has no more than its capacity");
	must(gpc_close(d));
	settle(c);
	clean(c, "one demotion");
	cache_end(c);
}

/* The keys of another peer come in place of what it evicts; what a third one can demote meanwhile
 * comes, too. */
static int crowd(struct call *f)
{
	gpc *e = cache_attach(0, 0);
	struct gpc_move m;
	gpc_key keys[ROOM];
	int i, n, section = wait_begin(f);

	n = gpc_demote(e, VRAM, RAM, NULL, 1, &m, 0, 0);
	must(gpc_section_leave(c, section));
	pthread_join(f->thread, NULL);
	if (n == 1)
		must(gpc_commit(e, &m, 1, NULL, 0, -1));
	for (i = 0; i < f->n; i++)
		keys[i] = key_of(c, ++last_key);
	if (must(gpc_publish(d, NULL, keys, f->got, ROOM, NULL, 0, -1)) != ROOM)
		bail("not published");
	must(gpc_release(d, f->got, ROOM));
	must(gpc_close(e));
	serve_end();
	settle(c);
	return n;
}

static void test_two(void)
{
	struct call f = { .demotes = false };

	c = cache_new(8, ROOM);
	d = cache_attach(0, 0);
	is_int(crowd(&f), -ENOSPC,
	       "no demotion takes the room of what is on its way to another peer");
	is_int(f.n, ROOM, "which gets it");
	ok(is_within("two commands"), "and RAM has no more than its capacity");
	must(gpc_close(d));
	clean(c, "two commands");
	cache_end(c);
}

/* ---- a writer dies ---- */

static void give_back(gpc_block b)
{
	const struct shm_record *r = seg_record(&c->seg, pool_record(&c->seg, b));

	submit(c, (struct shm_command){
			  .op = CMD_FREE, .block = b, .free.life = WORD_GEN(r->word) + 1 });
	while (waits(c))
		must(gpc_writer_serve(c, 1));
}

/* The blocks that the answer brings; the number of them, or -1. */
static int answer(bool moves, gpc_block *got)
{
	const struct shm_command *head = command(c);
	int i, n;

	for (i = 0; i < 2000 && waits(c); i++)
		must(gpc_writer_serve(c, 1));
	n = head->result;
	if (waits(c) || n > ASKED)
		return -1;
	for (i = 0; i < n; i++)
		got[i] = moves ? head[i].move.to : head[i].block;
	return n;
}

/* Slots of a group may be at the end of the ring and at its beginning. */
static void pad_ring(void)
{
	while (dies_seat(c)->head % SHM_RING + ASKED > SHM_RING) {
		submit(c, (struct shm_command){ .op = CMD_NOP });
		while (waits(c))
			must(gpc_writer_serve(c, 1));
	}
}

/* A writer dies in the command, before store n, and its successor runs it again: have as many keys
 * gone as it brings blocks? */
static bool run_twice(struct shm_command cmd, int want, uint64_t n, bool *died)
{
	int r, i, before = still_there(0), after;
	gpc_block got[ASKED];
	bool good;

	pad_ring();
	must(gpc_writer_drop(c));
	*died = writer_dies(cmd, n);
	must(gpc_writer_take(c, 0, 0));
	r = answer(cmd.op == CMD_DEMOTE, got);
	after = still_there(0);
	good = r == want && after == before - want && is_within("a successor") && counts_agree(c);
	if (!good)
		diag("answer %d, %d of %d keys are left", r, after, before);
	for (i = 0; i < r; i++)
		give_back(got[i]);
	must(gpc_pool_clear(c, RAM, 0, 0, 60000));
	must(gpc_pool_clear(c, VRAM, 0, 0, 60000));
	settle(c);
	last_key = 0;
	return good;
}

static void test_dies(struct shm_command cmd, int want, const char *what)
{
	bool died = true, good = true;
	uint64_t n;

	c = cache_new(8, ROOM);
	for (n = 1; n < STORES && died && good; n++) {
		fill(RAM, ROOM);
		fill(VRAM, ASKED);
		settle(c);
		good = run_twice(cmd, want, n, &died);
	}
	ok(good, "a writer dies before store %d of %s: %d of RAM go", (int)n - 1, what, want);
	ok(!good || !died, "all of its stores: %d", (int)n - 2);
	clean(c, what);
	cache_end(c);
}

/* The same behind two commands that have met. */
static void test_dies_crowded(struct shm_command cmd)
{
	struct call f = { .demotes = false };
	bool died = true, good = true;
	uint64_t n;

	c = cache_new(8, ROOM);
	for (n = 1; n < STORES && died && good; n++) {
		d = cache_attach(0, 0);
		crowd(&f);
		must(gpc_close(d));
		settle(c);
		good = run_twice(cmd, 1, n, &died);
	}
	ok(good,
	   "a writer dies before store %d of a demotion into RAM that two have filled: one goes",
	   (int)n - 1);
	ok(!good || !died, "all of its stores: %d", (int)n - 2);
	cache_end(c);
}

static void put(gpc *e, struct shm_command cmd)
{
	struct shm_seat *s = seg_seat(&e->seg, e->peer);

	cmd.count = 1;
	cmd.result = CMD_PENDING;
	*seg_command(&e->seg, e->peer, s->head) = cmd;
	store_release(&s->head, s->head + 1);
}

/* An evict that runs again behind so many that its peer's turn is over: another peer's command
 * comes before it, and its victims are charged all the same. */
static void test_turns(void)
{
	struct shm_command reserve = { .op = CMD_RESERVE, .pool = VRAM, .block = GPC_NONE };
	struct shm_command demote = { .op = CMD_DEMOTE,
				      .flags = CF_TRY,
				      .pool = VRAM,
				      .block = GPC_NONE,
				      .move.to_pool = RAM,
				      .move.any = 1 };
	const struct shm_command *other;
	gpc_block b;
	int section, i;

	c = cache_new(2, ROOM);
	d = cache_attach(0, 0);
	fill(RAM, ROOM);
	fill(VRAM, 1);
	chain_make(c, VRAM, ++last_key, 1, &b);
	settle(c);
	section = must(gpc_section_enter(c));
	must(gpc_drop(c, &b, 1, NULL, 0, -1));
	for (i = 0; i < TURN; i++)
		put(c, reserve); /* they wait for the block that was dropped */
	submit(c, (struct shm_command){
			  .op = CMD_EVICT, .flags = CF_TAKE, .pool = RAM, .block = GPC_NONE });
	while (seg_pool(&c->seg, RAM)->dying < 1)
		must(gpc_writer_serve(c, 1));
	must(gpc_writer_drop(c));
	other = seg_command(&d->seg, d->peer, seg_seat(&d->seg, d->peer)->head);
	put(d, demote);
	must(gpc_writer_take(c, 0, 0));
	for (i = 0; i < 2000 && load_acquire(&other->result) == CMD_PENDING; i++)
		must(gpc_writer_serve(c, 1));
	must(gpc_section_leave(c, section));
	while (waits(c))
		must(gpc_writer_serve(c, 1));
	is_int(command(c)->result, 1, "an evict that runs again has its victim");
	ok(is_within("turns"), "and RAM has no more than its capacity");
	cache_end(c);
}

static int body(void)
{
	struct shm_command demote = { .op = CMD_DEMOTE,
				      .pool = VRAM,
				      .block = GPC_NONE,
				      .move.to_pool = RAM,
				      .move.any = 1 };
	struct shm_command reserve = { .op = CMD_RESERVE, .pool = RAM, .block = GPC_NONE };

	test_one();
	test_two();
	test_turns();
	demote.count = 1;
	test_dies(demote, 1, "a demotion");
	test_dies_crowded(demote);
	demote.count = ASKED;
	test_dies(demote, ROOM, "a demotion of more than RAM has");
	reserve.count = 1;
	test_dies(reserve, 1, "a reserve");
	reserve.count = ASKED;
	reserve.flags = CF_PARTIAL;
	test_dies(reserve, ROOM, "a reserve of more than RAM has");
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
