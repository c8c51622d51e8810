/* SPDX-License-Identifier: Apache-2.0 */
/* A command's answer is taken when a block that it names has gone to another thread of the same
 * handle: what that thread has of the block stays whole (rule C9).
 * Tests: lib/index/peer/hold.c lib/index/request/publish.c lib/index/request/move.c lib/index/writer/commit.c */
#include "config.h"

#include "index/peer/handle.h"
#include "index/peer/hold.h"
#include "index/peer/ring.h"
#include "t/lib/cache.h"

#define ROUND \
	64 /* commands of one peer before the writer looks at what waits (index/writer/loop.c) */
#define MANY (8 * ROUND)

struct writer;
static gpc *writer, *c, *reader;
static int section; /* of the reader: no block that leaves comes back while it is open */
static gpc_block other = GPC_NONE; /* what the other thread has got */
static gpc_ticket refused_later;
static int got, state;

/* ---- the writer stops between two rounds of commands, and between two commits ---- */

static void (*between)(void);

bool __real_retire_advance(struct writer *w);
bool __wrap_retire_advance(struct writer *w);
bool __wrap_retire_advance(struct writer *w)
{
	void (*now)(void) = between;

	between = NULL;
	if (now)
		now();
	return __real_retire_advance(w);
}

static int at;                  /* commits of targets so far */
static bool waits_for_a_bucket; /* all but the first */

int32_t __real_move_commit_target(struct writer *w, uint32_t peer, uint32_t record);
int32_t __wrap_move_commit_target(struct writer *w, uint32_t peer, uint32_t record);
int32_t __wrap_move_commit_target(struct writer *w, uint32_t peer, uint32_t record)
{
	if (at++ && load_acquire(&waits_for_a_bucket))
		return 1; /* MOVE_AGAIN */
	return __real_move_commit_target(w, peer, record);
}

/* ---- another thread of the handle, which waits for a block ---- */

static void *reserve(void *arg)
{
	(void)arg;
	got = gpc_reserve(c, 0, 1, &other, NULL, 0, 60000);
	return NULL;
}

static gpc_block first = GPC_NONE; /* that the reader's thread gets, which is the first to wait */

static void *reserve_first(void *arg)
{
	(void)arg;
	must(gpc_reserve(reader, 0, 1, &first, NULL, 0, 60000));
	return NULL;
}

static uint64_t head_of(const gpc *of)
{
	return load_acquire(&seg_seat(&of->seg, of->peer)->head);
}

static void starts_to_wait(pthread_t *thread, gpc *of, void *(*waits)(void *))
{
	uint64_t before = head_of(of);

	if (pthread_create(thread, NULL, waits, NULL))
		bail("no thread");
	while (head_of(of) == before)
		sched_yield();
	must(gpc_writer_serve(writer, 0));
}

/* A block of VRAM is on its way out, and does not arrive: reserves wait for it. */
static void leaves_slowly(void)
{
	gpc_block b = GPC_NONE;
	gpc_key k = key_of(c, 8000);

	must(gpc_reserve(c, 0, 1, &b, NULL, 0, 10000));
	must(gpc_publish(c, NULL, &k, &b, 1, NULL, GPC_NO_REF, 10000));
	section = must(handle_enter(reader));
	must(gpc_drop(c, &b, 1, NULL, 0, 10000));
}

/* It publishes its block below a parent that there is not, and does not wait. */
static void publishes_in_vain(void)
{
	gpc_key k = key_of(c, 5000), none = key_of(c, 6000);

	must(gpc_publish(c, &none, &k, &other, 1,
			 GPC_OPTIONS(gpc_publish_options, .ticket = &refused_later), 0, 0));
}

/* The block is its reservation still, whole: it can be published. */
static void is_whole(const char *what)
{
	gpc_key k = key_of(c, 7000);
	gpc_block live = GPC_NONE;

	is_int(hold_of(*seg_cell(&c->seg, pool_record(&c->seg, other), c->peer)), HOLD_RESERVED,
	       "%s: the block of the other thread is its reservation", what);
	must(gpc_publish(c, NULL, &k, &other, 1,
			 GPC_OPTIONS(gpc_publish_options, .resident = &live), 0, 0));
	serve_begin(writer);
	must(gpc_ticket_wait(c, GPC_TICKET_ALL, 60000));
	serve_end();
	is_int(live, other, "%s: which it publishes", what);
	is_int(gpc_release(c, &other, 1), 0, "%s: and releases", what);
	clean(c, what);
}

/* ---- a publish of many blocks ---- */

static gpc_block all[MANY];
static bool found; /* another thread of the handle has found the block by its key meanwhile */

static void first_is_evicted(void);

/* The command of the other thread stands first in the ring. */
static bool is_granted(void)
{
	return load_acquire(&seg_command(&c->seg, c->peer, head_of(c) - MANY - 1)->result) !=
	       CMD_PENDING;
}

static void goes_on(void)
{
	if (!is_granted()) {
		between = goes_on;
		return;
	}
	state = 2;
	while (load_acquire(&other) == GPC_NONE)
		sched_yield();
	publishes_in_vain();
}

/* It takes its reference by the key, so the cell is a number: a release that comes then tells the
 * command that is not answered nothing, and the life of the block alone does. */
static void found_and_released(uint64_t key, gpc_block block)
{
	gpc_key k = key_of(c, key);
	gpc_block hit = GPC_NONE;

	is_int(gpc_acquire(c, 0, &k, 1, &hit, 0), 1,
	       "another thread of the handle finds the block");
	is_int(hit, block, "that one");
	must(gpc_release(c, &block, 1));
}

/* 64 are live, and the call is not answered: the first one is released. */
static void first_is_evicted(void)
{
	if (load_acquire(&seg_command(&c->seg, c->peer, head_of(c) - MANY)->result) ==
	    CMD_PENDING) {
		between = first_is_evicted;
		return;
	}
	state = 1;
	if (found)
		found_and_released(1, all[0]);
	must(gpc_release(c, all, 1));
	handle_leave(reader, section);
	between = goes_on;
}

static void publish(uint32_t flags, const char *what)
{
	static gpc_key keys[MANY];
	static gpc_block resident[MANY];
	pthread_t thread, before;
	uint32_t i;

	cache_thread = false;
	writer = cache_new(MANY + 1, 0);
	c = cache_attach(0, 0);
	reader = cache_attach(0, 0);
	other = GPC_NONE;
	state = 0;
	serve_begin(writer);
	must(gpc_reserve(c, 0, MANY, all, NULL, 0, 10000));
	leaves_slowly();
	serve_end();
	starts_to_wait(&before, reader, reserve_first);
	starts_to_wait(&thread, c, reserve);
	for (i = 0; i < MANY; i++)
		keys[i] = key_of(c, 1 + i);
	between = first_is_evicted;
	must(gpc_publish(c, NULL, keys, all, MANY,
			 GPC_OPTIONS(gpc_publish_options, .resident = resident), flags, 0));
	must(gpc_writer_serve(writer, 0));
	is_int(state, 2, "%s: a block was released and granted before all were answered", what);
	serve_begin(writer);
	pthread_join(before, NULL);
	pthread_join(thread, NULL);
	must(gpc_ticket_wait(c, GPC_TICKET_ALL, 60000));
	serve_end();
	is_int(got, 1, "%s: the other thread has it", what);
	is_int(other, all[0], "%s: that one", what);
	is_whole(what);
	if (!flags)
		must(gpc_release(c, all + 1, MANY - 1));
	is_int((int)stats_of(c, (int)c->peer).refs, 0, "%s: no reference is left", what);
	must(gpc_close(reader));
	must(gpc_close(c));
	cache_end(writer);
}

/* ---- a commit of two, of which one waits ---- */

static void granted_between(void)
{
	if (load_acquire(&other) == GPC_NONE) {
		between = granted_between;
		sched_yield();
		return;
	}
	publishes_in_vain();
	store_release(&waits_for_a_bucket, false);
}

/* Of the first move: the source was dropped; and the program gives the target up before the answer;
 * the target goes live, and another thread finds it before the program gives it up. */
enum course { REFUSED, GIVEN_UP, FOUND };

static struct gpc_move moves[2];

/* The call is not answered, its first commit is over. */
static void first_target_goes(enum course course)
{
	if (course == FOUND) {
		found_and_released(1, moves[0].to);
		handle_leave(reader, section);
	}
	must(gpc_release(c, &moves[0].to, 1));
	between = granted_between;
}

static void commit(enum course course, const char *what)
{
	struct gpc_config cfg = cache_config(3, 4);
	gpc_block low[2] = { GPC_NONE, GPC_NONE };
	int result[2] = { 1, 1 };
	gpc_key k[2];
	pthread_t thread, before;

	cache_thread = false;
	writer = cache_make(&cfg, NULL);
	c = cache_attach(0, 0);
	reader = cache_attach(0, 0);
	other = GPC_NONE;
	state = 0;
	serve_begin(writer);
	must(gpc_reserve(c, 1, 2, low, NULL, 0, 10000));
	k[0] = key_of(c, 1);
	k[1] = key_of(c, 2);
	is_int(gpc_publish(c, NULL, k, low, 2, NULL, 0, 10000), 2, "%s: two blocks in RAM", what);
	is_int(gpc_promote(c, low, 2, 0, moves, 0, 10000), 2, "%s: come up", what);
	if (course != FOUND)
		is_int(gpc_drop(c, low, 1, NULL, 0, 10000), 1, "%s: the first one is dropped",
		       what);
	leaves_slowly();
	serve_end();
	if (course == FOUND)
		starts_to_wait(&before, reader, reserve_first);
	starts_to_wait(&thread, c, reserve);
	at = 0;
	waits_for_a_bucket = true;
	is_int(gpc_commit(c, moves, 2, result, 0, 0), -EAGAIN, "%s: the commit is not answered",
	       what);
	must(gpc_writer_serve(writer, 0));
	if (course == REFUSED)
		waits_for_a_bucket = false;
	else
		first_target_goes(course);
	serve_begin(writer);
	if (course == FOUND)
		pthread_join(before, NULL);
	pthread_join(thread, NULL);
	/* the first wait is for the commit, and behind its answer stands a publish by then */
	must(gpc_ticket_wait(c, GPC_TICKET_ALL, 60000));
	must(gpc_ticket_wait(c, GPC_TICKET_ALL, 60000));
	serve_end();
	is_int(got, 1, "%s: the target goes to the other thread", what);
	is_int(other, moves[0].to, "%s: that one", what);
	is_whole(what);
	if (course != FOUND) {
		handle_leave(reader, section);
		must(gpc_release(c, low, 1));
	}
	must(gpc_release(c, &moves[1].to, 1));
	is_int((int)stats_of(c, (int)c->peer).refs, 0, "%s: no reference is left", what);
	must(gpc_close(reader));
	must(gpc_close(c));
	cache_end(writer);
}

/* ---- a pool of CALLER blocks that goes between two rounds ---- */

static int pool;

static void *remove_pool(void *arg)
{
	(void)arg;
	must(gpc_pool_clear(reader, pool, 0, GPC_REMOVE, 60000));
	return NULL;
}

static int add_pool(void)
{
	struct gpc_pool p = pool_of(GPC_VRAM, MANY, 0);

	p.flags = GPC_POOL_CALLER;
	return must(gpc_pool_make(c, &p, NULL, 10000));
}

static int publish_all(uint64_t from, int timeout_ms)
{
	static gpc_key keys[MANY];
	static gpc_block blocks[MANY];
	uint32_t i;

	for (i = 0; i < MANY; i++) {
		keys[i] = key_of(c, from + i);
		blocks[i] = GPC_BLOCK(pool, (gpc_block)i);
	}
	return must(gpc_publish(c, NULL, keys, blocks, MANY, NULL, GPC_NO_REF, timeout_ms));
}

static void pool_goes(void)
{
	struct gpc_config cfg = cache_config(4, 0);
	pthread_t thread;
	uint64_t before;
	int number;

	cache_thread = false;
	cfg.max_blocks = 2 * MANY;
	writer = cache_make(&cfg, NULL);
	c = cache_attach(0, 0);
	reader = cache_attach(0, 0);
	serve_begin(writer);
	number = pool = add_pool();
	serve_end();
	before = head_of(reader);
	publish_all(1, 0);
	if (pthread_create(&thread, NULL, remove_pool, NULL))
		bail("no thread");
	while (head_of(reader) == before)
		sched_yield();
	serve_begin(writer);
	must(gpc_ticket_wait(c, GPC_TICKET_ALL, 60000));
	pthread_join(thread, NULL);
	is_int((int)stats_of(c, (int)c->peer).refs, 0,
	       "pool: nothing is referenced when it has gone");
	clean(c, "pool gone");
	pool = add_pool();
	is_int(pool, number, "pool: its number has another one, of the same peer");
	is_int(publish_all(10001, 60000), MANY, "pool: all of its blocks can be published");
	clean(c, "pool again");
	serve_end();
	must(gpc_close(reader));
	must(gpc_close(c));
	cache_end(writer);
}

static int body(void)
{
	publish(0, "publish");
	publish(GPC_NO_REF, "publish without references");
	found = true;
	publish(0, "publish found");
	commit(REFUSED, "commit");
	commit(GIVEN_UP, "commit given up");
	commit(FOUND, "commit found");
	pool_goes();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
