/* SPDX-License-Identifier: Apache-2.0 */
/* When the writer decides a transfer: before commands that its peer sent after done; as often as its age
 * says; when there is a bucket. */
#include <unistd.h>

#include "t/lib/xfers.h"

enum { VRAM, RAM, OTHER };               /* pools: OTHER is VRAM of a space of its own */

static gpc *p, *q;                       /* peers */

static void begin(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_pool ram = pool_of(GPC_RAM, 16, 0);

	cfg.max_blocks = 80;
	cfg.max_peers = 8;
	ram.transit = 2;
	c = cache_make(&cfg, NULL);
	p = cache_attach(0, 0);
	q = cache_attach(0, 0);
	pool_new(c, GPC_VRAM, 16, 0, 0);
	must(gpc_pool_add(c, &ram, -1));
	pool_new(c, GPC_VRAM, 16, 1, GPC_POOL_UNCHAINED);
}

static void end(const char *what)
{
	ok(is_quiet(), "%s: nothing is left", what);
	clean(c, what);
	must(gpc_close(q));
	must(gpc_close(p));
	cache_end(c);
}

/* A chain of numbers 1 .. n in a pool, on which a handle has references. */
static void hold(gpc *holder, uint32_t n, gpc_block *b)
{
	gpc_key keys[CACHE_KEYS + 1];

	chain_keys(holder, 1, n, keys);
	if (must(gpc_acquire(holder, 0, keys + 1, n, b, 0)) != (int)n)
		bail("no chain");
}

static void chain(gpc *holder, int pool, uint32_t n, gpc_block *b)
{
	chain_make(c, pool, 1, n, b);
	hold(holder, n, b);
}

/* A block that is reserved by hand: no cell has it. */
static gpc_block reserve(int pool)
{
	uint64_t at = xfers_seat(p)->head;

	if (run1(p, (struct shm_command){ .op = CMD_RESERVE, .pool = (uint8_t)pool }) != 1)
		bail("no block");
	return seg_command(&p->seg, p->peer, at)->block;
}

/* The peer saw done, and publishes a child below what it has fetched: in one pass of the writer, which has
 * looked at that transfer a moment ago, and whose bell does not ring yet. */
static void test_child_of_fetched(void)
{
	enum { N = 12 };
	gpc_block b[N], child[N];
	struct xfer x[N];
	uint32_t i, good = 0;
	int chained;

	begin();
	chained = pool_new(c, GPC_VRAM, 2 * N, 2, 0);
	chain(p, RAM, N, b);
	for (i = 0; i < N; i++) {
		child[i] = reserve(chained);
		x[i] = xfer(p, i, i + 1);
		if (fetch(&x[i], chained, b + i, 1) != 1)
			bail("not bound");
	}
	usleep(15000);                   /* from here on it looks each 1 ms */
	for (i = 0; i < N; i++) {
		struct shm_command cmd = { .op = CMD_PUBLISH, .block = child[i] };
		gpc_key parent = key_of(c, i + 1), own = key_of(c, 1000 + i);
		uint64_t at;

		memcpy(cmd.parent, parent.w, sizeof(cmd.parent));
		memcpy(cmd.key, own.w, sizeof(cmd.key));
		must(gpc_writer_serve(c, 0));
		xfer_done(&x[i]);
		at = put(p, &cmd, 1);
		store_relaxed(&seg_shared(&p->seg)->pending[p->peer >> 6], 0);
		good += answer(p, at) == child[i];
		take_answers(p);
	}
	is_int(good, N, "children of what has been fetched by then");
	must(gpc_release(p, b, N));
	end("children of fetched blocks");
}

static int body(void)
{
	test_child_of_fetched();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(20, body, cache_dir_remove);
}
