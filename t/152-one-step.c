/* SPDX-License-Identifier: Apache-2.0 */
/* All blocks of a pool go in one step (guarantee E): whoever misses one of them finds none
 * afterwards, however long the writer takes to clean up. */
#include "config.h"

#include <sched.h>

#include "cache.h"
#include "order.h"

enum { BLOCKS = 4096, PART = 256, TURNS = 8 };

static gpc_key key[BLOCKS];
static gpc *reader;
static uint32_t looks, late, gone, begun;

static gpc_block look(uint32_t i)
{
	gpc_block b = GPC_NONE;

	must(gpc_lookup(reader, 0, &key[i], 1, &b, GPC_QUIET));
	return b;
}

/* Keys at both ends and between, until one is missing. */
static void *read_on(void *arg)
{
	uint32_t i = 0;

	store_release(&begun, 1);
	while (look(i) >= 0) {
		i = (i + 1365) % BLOCKS;
		looks++;
	}
	for (i = 0; i < BLOCKS; i++)
		late += look(i) >= 0;
	store_release(&gone, 1);
	return arg;
}

static void fill(gpc *c, int pool)
{
	gpc_block b[PART];
	uint32_t i, done;

	for (done = 0; done < BLOCKS; done += PART) {
		for (i = done; i < done + PART; i++)
			key[i] = key_of(c, 1 + i);
		must(gpc_reserve(c, pool, PART, 0, b, NULL, 0, 1000));
		if (must(gpc_publish(c, NULL, key + done, b, PART, 0, NULL, 0, NULL)) != PART)
			bail("the pool was not filled");
		must(gpc_unref(c, b, PART));
	}
}

/* Slots are cleaned up in their order: the reader turns to them in another. */
static void turn(gpc *c)
{
	int pool = pool_new(c, GPC_VRAM, BLOCKS, 0, 0);
	pthread_t thread;

	fill(c, pool);
	gone = begun = 0;
	if (pthread_create(&thread, NULL, read_on, NULL))
		bail("no thread");
	while (!load_acquire(&begun))
		sched_yield();
	must(gpc_clear(c, pool, 0, GPC_REMOVE, 0));
	pthread_join(thread, NULL);
	settle(c);
	must(gpc_writer_serve(c, 50));
}

static int body(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	gpc *c;
	int i;

	cfg.max_blocks = 2 * BLOCKS;
	cfg.max_pools = 16;
	c = cache_make(&cfg, NULL);
	reader = cache_attach(0, 0);
	for (i = 0; i < TURNS; i++)
		turn(c);
	is_int(late, 0, "who misses one block of a pool that goes finds no other: %d pools, %u "
	       "looks", TURNS, looks);
	clean(c, "pools that went");
	must(gpc_close(reader));
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
