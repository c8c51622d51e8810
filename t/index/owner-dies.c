/* SPDX-License-Identifier: Apache-2.0 */
/* The owner of a pool is killed: its blocks are misses from one moment on, all others stay,
 * and the pool's number comes back with another generation.
 * Tests: lib/index/writer/pools.c lib/index/writer/reap.c */
#include "t/lib/crew.h"

#define CHAIN 6

enum { GATE_MADE, GATE_KEPT, GATE_FULL, GATE_DEAD, GATE_GONE, GATE_END, GATE_LOOKED };
enum { N_POOL, N_GENERATION, N_SEAT, N_LOOKS };

static uint32_t pool_flags;

static int add_pool(gpc *c, uint32_t kind, uint32_t flags, uint32_t space)
{
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = kind,
			      .flags = flags,
			      .space = space,
			      .blocks = 16,
			      .demote_to = -1,
			      .backing_size = 4 };
	int n;

	memcpy(p.backing, "mine", 4);
	n = gpc_pool_make(c, &p, NULL, -1);
	need(n >= 0, "pool_add: %s", gpc_last_error());
	must_be(p.number, n);
	must_be(p.owner, flags ? crew_seat(c) : -1);
	crew->count[N_GENERATION] = p.generation;
	return n;
}

static gpc_block take_block(gpc *c, int pool, uint32_t i)
{
	gpc_block b = GPC_BLOCK(pool, (gpc_block)i);

	if (!(pool_flags & GPC_POOL_CALLER) || pool == 0)
		must_be(gpc_reserve(c, pool, 1, &b, NULL, 0, -1), 1);
	return b;
}

/* Keys first .. first + CHAIN of one chain that begins with `parent`. */
static void publish_chain(gpc *c, int pool, gpc_key parent, uint64_t first, gpc_block *b)
{
	gpc_key k[CHAIN + 1] = { parent };
	uint32_t i;

	for (i = 0; i < CHAIN; i++) {
		k[i + 1] = crew_key(first + i);
		b[i] = take_block(c, pool, i);
		crew_write(b[i], k[i + 1]);
	}
	must_be(gpc_publish(c, k, k + 1, b, CHAIN, NULL, 0, -1), CHAIN);
}

static int found(gpc *c, uint64_t first)
{
	gpc_key k[CHAIN];
	gpc_block b[CHAIN];
	int i;

	for (i = 0; i < CHAIN; i++)
		k[i] = crew_key(first + (uint64_t)i);
	return gpc_lookup(c, 0, k, CHAIN, b, 0);
}

static int owner(int me)
{
	gpc *c = crew_attach("owner");
	gpc_block b[CHAIN];
	int pool;

	crew_wait(GATE_MADE, 1);
	pool = add_pool(c, GPC_VRAM, pool_flags, 0);
	crew->count[N_POOL] = (uint64_t)pool;
	crew->count[N_SEAT] = (uint64_t)crew_seat(c);
	publish_chain(c, pool, crew_no_key, 100, b);
	crew_open(GATE_KEPT);
	crew_wait(GATE_FULL, 1);
	for (;;)
		pause();
	return 1;
}

/* Whoever holds a block of a dead owner's pool can rely on its number: gpc_pool_get(3). */
static void next_owner(gpc *c, int held)
{
	struct gpc_pool p = {
		.size = sizeof(p), .kind = GPC_VRAM, .space = 5, .blocks = 16, .demote_to = -1
	};
	int pool = gpc_pool_make(c, &p, NULL, -1);

	need(pool >= 0, "pool_add: %s", gpc_last_error());
	need(pool != held, "the next owner has pool %d, of which somebody holds blocks", pool);
	must_be(gpc_pool_get(c, held, &p), -ENOENT);
	must_be(gpc_pool_clear(c, pool, 0, GPC_REMOVE, -1), 0);
}

/* Holds blocks of both, and children of the owner's in its own pool, while the owner dies. */
static int worker(int me)
{
	gpc *c = crew_attach("worker");
	struct gpc_pool p = { .size = sizeof(p) };
	gpc_block own[CHAIN], theirs[CHAIN], below[CHAIN], b;
	gpc_key k = crew_key(100);
	int i, n, pool;

	crew_wait(GATE_KEPT, 1);
	pool = (int)crew->count[N_POOL];
	publish_chain(c, 0, crew_no_key, 200, own);
	publish_chain(c, 0, crew_key(100 + CHAIN - 1), 300, below);
	for (i = 0; i < CHAIN; i++) {
		gpc_key key = crew_key(100 + (uint64_t)i);

		must_be(gpc_acquire(c, 0, &key, 1, &theirs[i], 0), 1);
		must_be(GPC_POOL(theirs[i]), pool);
	}
	must_be(gpc_pool_get(c, pool, &p), 0);
	need(!memcmp(p.backing, "mine", 4), "its backing is there");
	crew_open(GATE_FULL);
	/* looks on: all of it, until none of it */
	do {
		n = found(c, 100);
		need(n == CHAIN || n == 0 || crew_is_open(GATE_DEAD, 1), "%d are found", n);
		must_be(found(c, 200), CHAIN);
		crew->count[N_LOOKS]++;
		crew_open(GATE_LOOKED);
	} while (n && crew_goes_on(GATE_END, 1));
	must_be(found(c, 100), 0);
	must_be(gpc_acquire(c, 0, &k, 1, &b, 0), 0);
	must_be(gpc_ref(c, &k, &theirs[0], 1), 0);
	must_be(gpc_pool_get(c, pool, &p), -ENOENT);
	must_be(gpc_reserve(c, pool, 1, &b, NULL, 0, -1), -ESTALE);
	next_owner(c, pool);
	/* its chain hung below theirs */
	crew_until(found(c, 300) == 0, crew_breath());
	must_be(found(c, 200), CHAIN);
	for (i = 0; i < CHAIN; i++)
		need(crew_holds(own[i], crew_key(200 + (uint64_t)i)), "other bytes");
	must_be(gpc_release(c, theirs, CHAIN), 0);
	must_be(gpc_release(c, below, CHAIN), 0);
	crew_open(GATE_GONE);
	crew_wait(GATE_END, 1);
	must_be(found(c, 200), CHAIN);
	must_be(gpc_release(c, own, CHAIN), 0);
	gpc_close(c);
	return 0;
}

/* The number is used again, for the same keys. */
static void keep_again(gpc *c)
{
	uint64_t generation = crew->count[N_GENERATION];
	gpc_block b[CHAIN];
	int pool;

	do { /* it goes when all its blocks have come back */
		gpc_writer_serve(c, 1);
		pool = add_pool(c, GPC_VRAM, pool_flags, 0);
	} while (pool != (int)crew->count[N_POOL] &&
		 gpc_pool_clear(c, pool, 0, GPC_REMOVE, -1) >= 0);
	need(crew->count[N_GENERATION] > generation, "generation %llu after %llu",
	     (unsigned long long)crew->count[N_GENERATION], (unsigned long long)generation);
	publish_chain(c, pool, crew_no_key, 100, b);
	must_be(found(c, 100), CHAIN);
	must_be(gpc_release(c, b, CHAIN), 0);
}

static gpc *new_cache(void)
{
	struct gpc_config cfg = {
		.vram_blocks = 32, .max_blocks = 128, .max_peers = 5, .max_pools = 3
	};

	return crew_create(cfg, 0);
}

static int writer(int me)
{
	gpc *c = me ? crew_attach("standby") : new_cache();

	must_be(gpc_writer_take(c, GPC_STANDBY, -1), 0);
	crew_open(GATE_MADE);
	crew_serve(c, GATE_GONE, 1);
	crew_until(crew_seat_is_free(c, (int)crew->count[N_SEAT]), gpc_writer_serve(c, 1));
	crew_check(c);
	keep_again(c);
	crew_check(c);
	crew_open(GATE_END);
	crew_serve(c, GATE_END, 2);
	gpc_close(c);
	return 0;
}

static void test(uint32_t flags, bool both, const char *what)
{
	pid_t w, k, p, standby = -1;

	memset(crew, 0, sizeof(*crew));
	scratch_files("", true);
	pool_flags = flags;
	w = crew_fork(writer, 0);
	if (both) {
		crew_wait(GATE_MADE, 1);
		standby = crew_fork(writer, 1);
	}
	k = crew_fork(owner, 1);
	p = crew_fork(worker, 2);
	crew_wait(GATE_LOOKED, 3);
	crew_open(GATE_DEAD);
	if (both)
		crew_kill(w);
	crew_kill(k);
	crew_wait(GATE_END, 1);
	crew_join(p, what);
	crew_open(GATE_END);
	crew_join(both ? standby : w, "the writer");
}

static int body(void)
{
	crew_begin();
	test(GPC_POOL_OWNED, false, "a worker beside an owner that is killed");
	test(GPC_POOL_CALLER, false, "beside one with blocks of its own");
	test(GPC_POOL_OWNED, true, "beside one that is killed together with the writer");
	test(GPC_POOL_CALLER, true, "the same, with blocks of its own");
	return done_testing();
}

int main(void)
{
	scratch_make("t320");
	return tap_guard(60, body, scratch_remove);
}
