/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that ends while a writer takes over and serves, at each request for it in turn: the seat
 * is free again, nothing of the writer's memory is left, and the next writer answers the commands.
 * Tests: lib/index/table/alloc.c lib/index/takeover/open.c lib/index/writer/grant_place.c */
#include "t/lib/cache.h"
#include "t/lib/counted.h"

#include "index/peer/handle.h"
#include "index/segment/blocks.h"
#include "index/table/alloc.h"

enum { VRAM = 64, RAM = 64, CHAIN = 8, MOVES = 8, MOST = 400 };

static gpc *c, *b; /* c serves; the commands are b's, by hand */
static gpc_block named[MOVES], target[MOVES];
static uint32_t nmoves;
static uint64_t keys_made;

static struct {
	bool on, failed;
	uint32_t left; /* requests until one fails */
} memory;

/* ---- memory that ends ---- */

static bool is_refused(void)
{
	if (!memory.on || memory.left--)
		return false;
	return memory.failed = true;
}

/* ---- commands ---- */

static struct shm_seat *seat(void)
{
	return seg_seat(&b->seg, b->peer);
}

static struct shm_command *entry(uint64_t at)
{
	return seg_command(&b->seg, b->peer, at);
}

/* All entries alike, but for `count`; the writer is shown them by show(). */
static void put(uint64_t at, struct shm_command cmd, uint32_t n)
{
	uint32_t i;

	cmd.result = CMD_PENDING;
	for (i = 0; i < n; i++) {
		cmd.count = i ? 0 : n;
		*entry(at + i) = cmd;
	}
}

static void show(uint64_t head)
{
	store_release(&seat()->head, head);
}

/* Until all is answered and has passed its grace period: 0, or that of the writer. */
static int serve(void)
{
	uint32_t i;
	int err = 0;

	for (i = 0; i < 2000 && err >= 0; i++) {
		if (i && seat()->tail == seat()->head && !stats_of(c, -1).dying)
			break;
		err = gpc_writer_serve(c, i ? 1 : 0);
	}
	seat()->taken = seat()->tail; /* as the library does, that knows nothing of these */
	return MIN(err, 0);
}

/* Moves begin, and others are evicted. */
static uint64_t begin(void)
{
	uint64_t at = seat()->head;

	put(at,
	    (struct shm_command){
		    .op = CMD_DEMOTE, .block = GPC_NONE, .move = { .to_pool = 1, .any = 1 } },
	    MOVES);
	put(at + MOVES, (struct shm_command){ .op = CMD_EVICT, .block = GPC_NONE }, CHAIN);
	show(at + MOVES + CHAIN);
	return at;
}

static void read_moves(uint64_t at)
{
	uint32_t i;

	nmoves = (uint32_t)MAX(entry(at)->result, 0);
	for (i = 0; i < nmoves; i++) {
		named[i] = entry(at + i)->block;
		target[i] = entry(at + i)->move.to;
	}
}

/* The moves are committed, a chain is dropped, and the pool is cleared of the rest. */
static void end(void)
{
	uint64_t at = seat()->head;
	uint32_t i;

	put(at, (struct shm_command){ .op = CMD_COMMIT }, nmoves);
	for (i = 0; i < nmoves; i++) {
		entry(at + i)->block = named[i];
		entry(at + i)->commit.to = target[i];
		entry(at + i)->commit.move_op =
			seg_record(&b->seg, pool_record(&b->seg, target[i]))->op;
	}
	at += nmoves;
	put(at++, (struct shm_command){ .op = CMD_DROP, .block = find(c, keys_made) }, 1);
	put(at++, (struct shm_command){ .op = CMD_CLEAR, .pool = 0, .flags = CF_IDLE }, 1);
	show(at);
}

/* ---- writers ---- */

static void fill(void)
{
	uint32_t i;

	for (i = 0; i < VRAM / CHAIN; i++, keys_made += CHAIN)
		chain_make(c, 0, keys_made + 1, CHAIN, NULL);
	must(serve());
}

static int work(uint64_t at, bool *ended)
{
	int err = gpc_writer_take(c, 0, 0);

	if (err == 0)
		err = serve();
	if (err)
		return err;
	read_moves(at);
	end();
	*ended = true;
	return serve();
}

/* A writer whose request number `good` fails, counted from 0: true, there was one.  All that it
 * left to do is done. */
static bool one_writer(uint32_t good, uint32_t *wrong, int64_t *lost)
{
	uint64_t before = allocations;
	uint64_t at = begin();
	bool ended = false;
	int err;

	memory.left = good;
	memory.failed = false;
	memory.on = true;
	err = work(at, &ended);
	memory.on = false;
	if (err == 0)
		must(gpc_writer_drop(c));
	*lost += (int64_t)(allocations - before);
	*wrong += err && (err != -ENOMEM || gpc_writer_serve(c, 0) != -ENOTCONN);
	must(gpc_writer_take(c, 0, 0));
	must(serve());
	if (!ended) {
		read_moves(at);
		end();
		must(serve());
	}
	*wrong += seat()->tail != seat()->head || nmoves != MOVES;
	return memory.failed;
}

/* ---- a writer inside another one ---- */

static int inner(struct writer *w, uint64_t arg)
{
	writer_free(writer_alloc(1, 1));
	return (int)arg;
}

/* A log function of one handle serves another one, and closes it. */
static int outer(struct writer *w, uint64_t arg)
{
	const struct writer_memory *before = w->memory;
	gpc *other = cache_new(VRAM, 0);
	bool mine;
	void *p;

	is_int(writer_run(other->writer, inner, arg), (int)arg, "a writer inside another one");
	cache_end(other);
	p = writer_alloc(1, 1);
	mine = w->memory != before;
	writer_free(p);
	return mine && w->memory == before;
}

static void test_nested(void)
{
	gpc *own = cache_new(VRAM, 0);
	char name[sizeof(cache_name)];

	memcpy(name, cache_name, sizeof(name));
	is_int(writer_run(own->writer, outer, 7), 1, "the outer one's memory is its own again");
	memcpy(cache_name, name, sizeof(name));
	cache_end(own);
}

static int body(void)
{
	struct gpc_config cfg = cache_config(VRAM, RAM);
	uint32_t n = 0, wrong = 0;
	int64_t lost = 0;
	bool failed = true;

	test_nested();
	cfg.devices = "host"; /* what a mirror has is none of the writer's, and goes with it, too */
	c = cache_make(&cfg, NULL);
	b = cache_attach(0, 0);
	for (; failed && n < MOST; n++) {
		fill();
		must(gpc_writer_drop(c));
		failed = one_writer(n, &wrong, &lost);
	}
	ok(!failed && n > 40, "memory ended at each of %u requests", (unsigned)n - 1);
	is_int(wrong, 0, "each time the writer gave the seat up, and the next one did the work");
	is_int(lost, 0, "nothing of its memory was left");
	clean(c, "after all of these");
	must(gpc_close(b));
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(200, body, cache_dir_remove);
}
