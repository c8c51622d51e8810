/* SPDX-License-Identifier: Apache-2.0 */
/* A commit is refused since the pool of its target goes.  The pool stays until its peer has taken the
 * answer, which empties the target's cell, so whoever gets that block next has it whole.
 * Tests: lib/index/request/move.c lib/index/peer/hold.c */
#include "config.h"

#include <pthread.h>

#include "index/peer/handle.h"
#include "index/segment/blocks.h"
#include "t/lib/cache.h"

#define RAM 1

static gpc *writer;
static uint32_t serving = 1, paused, stop;

static void *serve(void *arg)
{
	(void)arg;
	while (!load_acquire(&stop)) {
		store_release(&paused, !load_acquire(&serving));
		if (load_relaxed(&paused))
			sched_yield();
		else
			must(gpc_writer_serve(writer, 1));
	}
	return NULL;
}

static void pause_writer(void)
{
	store_release(&serving, 0);
	while (!load_acquire(&paused))
		sched_yield();
}

static int add_pool(gpc *c)
{
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = GPC_VRAM,
			      .flags = GPC_POOL_OWNED,
			      .blocks = 4,
			      .demote_to = -1 };

	return must(gpc_pool_make(c, &p, NULL, 60000));
}

/* Served by hand until the pool is in that state. */
static bool comes_to(int pool, uint32_t state)
{
	const struct shm_pool *p = seg_pool(&writer->seg, (uint32_t)pool);
	int i;

	for (i = 0; i < 5000 && load_acquire(&p->state) != state; i++)
		must(gpc_writer_serve(writer, 1));
	return load_acquire(&p->state) == state;
}

static bool is_answered(const gpc *of)
{
	const struct shm_seat *seat = seg_seat(&of->seg, of->peer);

	return load_acquire(&seat->tail) == load_relaxed(&seat->head);
}

/* A reference in RAM, and a place for it in the pool of another peer. */
static void begin(gpc *c, int pool, gpc_block *low, struct gpc_move *m)
{
	gpc_key k = key_of(c, 1);

	must(gpc_reserve(c, RAM, 1, low, NULL, 0, 60000));
	is_int(gpc_publish(c, NULL, &k, low, 1, NULL, 0, 1000), 1, "a block in RAM, referenced");
	is_int(gpc_promote(c, low, 1, pool, m, 0, 60000), 1, "it begins to come up");
}

static int body(void)
{
	struct gpc_config cfg = cache_config(4, 4);
	gpc *c, *owner, *next;
	pthread_t thread;
	struct gpc_move m;
	gpc_block low, b[4];
	gpc_key k[4];
	uint32_t record;
	int pool, i, result = 1;

	cache_thread = false;
	cfg.max_blocks = 100;
	writer = cache_make(&cfg, NULL);
	must(pthread_create(&thread, NULL, serve, NULL));
	c = cache_attach(0, 0);
	owner = cache_attach(0, 0);
	next = cache_attach(0, 0);
	pool = add_pool(owner);
	begin(c, pool, &low, &m);
	record = pool_record(&c->seg, m.to);
	pause_writer();
	must(gpc_close(owner));
	ok(comes_to(pool, POOL_DRAINING), "the pool that it comes to goes, with its owner");
	is_int(gpc_commit(c, &m, 1, &result, 0, 0), -EAGAIN, "its commit is not answered yet");
	for (i = 0; i < 5000 && !is_answered(c); i++)
		must(gpc_writer_serve(writer, 1));
	ok(is_answered(c), "it is refused");
	for (i = 0; i < 5; i++)
		must(gpc_writer_serve(writer, 30));
	is_int((int)seg_pool(&writer->seg, (uint32_t)pool)->state, POOL_DRAINING,
	       "the pool waits for its peer");
	is_int(gpc_ticket_wait(c, GPC_TICKET_ALL, 0), 0, "which takes the answer");
	is_int(*seg_cell(&c->seg, record, c->peer), 0, "nothing is held there");
	ok(comes_to(pool, POOL_FREE), "and the pool has gone");
	is_int((int)stats_of(c, (int)c->peer).refs, 1, "one reference is left, in RAM");
	store_release(&serving, 1);
	is_int(add_pool(next), pool, "another pool gets its number");
	is_int(gpc_reserve(c, pool, 4, b, NULL, 0, 60000), 4, "all of its blocks can be had");
	for (i = 0; i < 4; i++)
		k[i] = key_of(c, 10 + (uint64_t)i);
	is_int(gpc_publish(c, NULL, k, b, 4, NULL, 0, 1000), 4, "and published");
	is_int((int)stats_of(c, (int)c->peer).refs, 5, "five references");
	must(gpc_release(c, b, 4));
	must(gpc_release(c, &low, 1));
	is_int((int)stats_of(c, (int)c->peer).refs, 0, "and none");
	clean(c, "after all");
	store_release(&stop, 1);
	must(pthread_join(thread, NULL));
	must(gpc_close(next));
	must(gpc_close(c));
	cache_end(writer);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
