/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of CALLER blocks: what gpc_pool_available says of them, and that nobody but the owner gets
 * any of its blocks, whatever way is tried.
 * Tests: lib/index/writer/pools.c lib/index/request/evict.c */
#include "t/lib/owned.h"

enum { BLOCKS = 24, ROUNDS = 400 };

static gpc *c, *owner, *other;
static int pool;

static void begin(uint32_t blocks)
{
	struct gpc_config cfg = cache_config(0, 0);

	cfg.max_blocks = 1024;
	c = cache_make(&cfg, NULL);
	owner = cache_attach(0, 0);
	other = cache_attach(0, 0);
	serve_begin(c);
	pool = pool_new(owner, GPC_VRAM, blocks, 0, GPC_POOL_CALLER);
}

static void end(const char *what)
{
	owned_end(c, owner, other, pool, what);
}

/* All peers see the same; once it is reached it is as it was, too. */
static bool becomes(int want)
{
	int i, got = -1;

	for (i = 0; i < 2000; i++) {
		got = gpc_pool_available(owner, pool);
		if (got == want && gpc_pool_available(other, pool) == want)
			return true;
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	diag("avail is %d, not %d", got, want);
	return false;
}

/* ---- avail, one way after the other ---- */

static void fill(uint64_t from, uint32_t n, gpc_block *b)
{
	gpc_key k[BLOCKS];
	uint32_t i;

	for (i = 0; i < n; i++)
		k[i] = key_of(c, from + i);
	if (must(gpc_publish(owner, NULL, k, b, n, GPC_OPTIONS(gpc_publish_options, .tag = 9), 0,
			     -1)) != (int)n)
		bail("not published");
}

static void test_avail(void)
{
	gpc_block b[8], got[8];
	gpc_key k[8];
	uint32_t i;

	begin(8);
	for (i = 0; i < 8; i++) {
		b[i] = GPC_BLOCK(pool, (gpc_block)i);
		k[i] = key_of(c, 1 + i);
	}
	is_int(gpc_pool_available(owner, pool), 0, "all are the owner's: none to be had");
	fill(1, 8, b);
	is_int(gpc_pool_available(owner, pool), 0, "all held");
	must(gpc_release(owner, b, 8));
	is_int(gpc_pool_available(owner, pool), 8, "all cached, held by nobody");
	is_int(gpc_pool_available(other, pool), 8, "for all who ask");
	is_int(gpc_evict(other, pool, 2, got, 0, 60000), 2, "another peer evicts two");
	is_int(gpc_pool_available(owner, pool), 6, "which are the owner's again");
	is_int(gpc_pool_available(other, pool), 6, "for all who ask");
	is_int(gpc_evict(owner, pool, 1, got, 0, 60000), 1, "the owner evicts one");
	is_int(gpc_pool_available(owner, pool), 5, "it is its own");
	is_int(gpc_evict(owner, pool, 1, got, GPC_TAKE, 60000), 1, "and takes one");
	is_int(gpc_pool_available(owner, pool), 4, "which is the same");
	is_int(gpc_lookup(other, 0, k, 8, got, GPC_QUIET), 4, "four are left");
	for (i = 0; got[i] < 0; i++)
		;
	is_int(gpc_drop(other, got + i, 1, NULL, 0, -1), 1, "one is dropped");
	is_int(gpc_pool_available(owner, pool), 3, "at once");
	is_int(gpc_lookup(other, 0, k, 8, got, GPC_REF), 3, "the others are held");
	is_int(gpc_pool_available(owner, pool), 0, "so none is to be had");
	is_int(gpc_pool_clear(other, pool, 9, 0, 1000), 3, "cleared under their holder");
	ok(becomes(0), "still none");
	for (i = 0; i < 8; i++)
		if (got[i] >= 0)
			must(gpc_release(other, &got[i], 1));
	ok(becomes(0), "and when the holder lets go they are the owner's");
	end("avail");
}

/* ---- avail, in any order ---- */

static struct {
	uint64_t key;
	int held;
	bool live, lingers;
} model[BLOCKS];
static gpc *holder[2];

static int model_avail(void)
{
	int i, n = 0;

	for (i = 0; i < BLOCKS; i++)
		n += model[i].live && !model[i].held;
	return n;
}

static gpc_block block(int i)
{
	return GPC_BLOCK(pool, (gpc_block)i);
}

static void gone(int i)
{
	model[i].live = false;
	model[i].lingers = model[i].held;
}

static void act_publish(uint64_t key)
{
	int i = (int)chance(BLOCKS), j;
	gpc_block b = block(i), res = -7;
	gpc_key k = key_of(c, key);

	if (model[i].live || model[i].lingers)
		return;
	for (j = 0; j < 2000; j++) { /* until its grace period is over */
		must(gpc_publish(
			owner, NULL, &k, &b, 1,
			GPC_OPTIONS(gpc_publish_options, .tag = key % 3 + 1, .resident = &res), 0,
			-1));
		if (res == b)
			break;
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	if (res != b)
		bail("block %d: %d", i, res);
	model[i].key = key;
	model[i].live = true;
	model[i].held = 1;
}

/* By one peer at a time, or else it would be counted twice. */
static void act_hold(void)
{
	int i = (int)chance(BLOCKS), by = (int)chance(2);
	gpc_key k = key_of(c, model[i].key);
	gpc_block b;

	if (model[i].held) {
		b = block(i);
		must(gpc_release(holder[model[i].held - 1], &b, 1));
		model[i].held = 0;
		model[i].lingers = false;
	} else if (model[i].live) {
		if (must(gpc_acquire(holder[by], 0, &k, 1, &b, 0)) != 1)
			bail("key %d is not found", (int)model[i].key);
		model[i].held = by + 1;
	}
}

static void act_evict(uint32_t flags)
{
	gpc_block b[4];
	int i, n = must(gpc_evict(flags ? owner : holder[chance(2)], pool, 1 + chance(4), b, flags,
				  5000));

	for (i = 0; i < n; i++)
		gone(GPC_SLOT(b[i]));
}

static void act_drop(void)
{
	int i = (int)chance(BLOCKS);
	gpc_block b = block(i);

	if (must(gpc_drop(holder[chance(2)], &b, 1, NULL, 0, -1)))
		gone(i);
}

static void act_clear(void)
{
	uint32_t tag = 1 + chance(3);
	int i;

	must(gpc_pool_clear(holder[chance(2)], pool, tag, 0, 60000));
	for (i = 0; i < BLOCKS; i++)
		if (model[i].live && model[i].key % 3 + 1 == tag)
			gone(i);
}

static void test_model(void)
{
	uint64_t key = 100;
	int i, j, good = 0;
	gpc_block b;

	begin(BLOCKS);
	holder[0] = owner;
	holder[1] = other;
	memset(model, 0, sizeof(model));
	for (i = 0; i < ROUNDS; i++) {
		for (j = 0; j < 6; j++)
			act_publish(key++);
		for (j = 0; j < 8; j++)
			act_hold();
		switch (chance(5)) {
		case 0:
			act_evict(0);
			break;
		case 1:
			act_evict(GPC_TAKE);
			break;
		case 2:
			act_drop();
			break;
		case 3:
			act_clear();
			break;
		}
		if (!becomes(model_avail()))
			break;
		good++;
	}
	is_int(good, ROUNDS, "after everything that happens it is what nobody holds");
	for (i = 0; i < BLOCKS; i++) {
		b = block(i);
		if (model[i].held)
			must(gpc_release(holder[model[i].held - 1], &b, 1));
	}
	end("avail, in any order");
}

/* ---- whose blocks they are ---- */

static void test_take(void)
{
	gpc_block b[8], got[8] = { -7, -7, -7, -7, -7, -7, -7, -7 };
	uint32_t i;

	begin(8);
	for (i = 0; i < 8; i++)
		b[i] = GPC_BLOCK(pool, (gpc_block)i);
	fill(1, 8, b);
	must(gpc_release(owner, b, 8));
	refused(gpc_reserve(other, pool, 1, got, NULL, 0, 1000), EPERM, "none is reserved");
	refused(gpc_reserve(other, pool, 1, got, NULL, GPC_PARTIAL, 0), EPERM, "or tried");
	refused(gpc_reserve(owner, pool, 1, got, NULL, 0, 1000), EPERM,
		"by the owner neither, who has them");
	refused(gpc_evict(other, pool, 2, got, GPC_TAKE, 1000), EPERM, "none is taken");
	refused(gpc_evict(other, pool, 2, got, GPC_TAKE, 0), EPERM, "or tried to");
	is_int(got[0], -7, "nothing is told");
	is_int(find(c, 1), b[0], "nothing has gone");
	is_int(gpc_pool_available(c, pool), 8, "not one");
	is_int(gpc_evict(owner, pool, 3, got, GPC_TAKE, 60000), 3, "the owner may take");
	fill(11, 3, got);
	must(gpc_release(owner, got, 3));
	is_int(gpc_evict(owner, pool, 3, got, 0, 60000), 3, "or evict");
	fill(21, 3, got);
	must(gpc_release(owner, got, 3));
	is_int(gpc_pool_available(c, pool), 8, "and fill them anew");
	end("whose blocks they are");
}

/* Blocks of its own do not count: it has them all. */
static void test_quota(void)
{
	gpc_block b[8], got[8];
	int i;

	begin(1);
	must(gpc_close(owner));
	owner = cache_attach(0, 2);
	pool = pool_new(owner, GPC_VRAM, 8, 0, GPC_POOL_CALLER);
	for (i = 0; i < 8; i++)
		b[i] = GPC_BLOCK(pool, i);
	fill(1, 8, b);
	must(gpc_release(owner, b, 8));
	is_int(gpc_evict(owner, pool, 5, got, GPC_TAKE, 60000), 5, "beyond a quota of 2");
	is_int(gpc_evict(owner, pool, 5, got, 0, 60000), 3, "either way");
	end("an owner's quota");
}

/* The owner's RAM pool is where another pool's victims would go: none of its blocks is taken
 * for them, and none is reserved for moves. */
static void test_moves_into(void)
{
	struct gpc_pool v = pool_of(GPC_VRAM, 4, 0), p = { .size = sizeof(p) };
	gpc_block b[8], got[4];
	struct gpc_move m[4];
	int vram, ram, i;

	begin(1);
	ram = pool_new(owner, GPC_RAM, 8, 0, GPC_POOL_CALLER);
	must(gpc_pool_get(other, ram, &p));
	is_int(p.transit, 0, "no transit slots: nothing moves there");
	v.demote_to = ram;
	refused(gpc_pool_make(other, &v, NULL, -1), EINVAL, "no pool demotes to it");
	/* a number that was another pool's */
	v.demote_to = pool_new(other, GPC_RAM, 8, 0, GPC_POOL_OWNED);
	vram = must(gpc_pool_make(other, &v, NULL, -1));
	must(gpc_pool_clear(other, v.demote_to, 0, GPC_REMOVE, 2000));
	must(gpc_pool_clear(owner, ram, 0, GPC_REMOVE, 2000));
	for (i = 0; i < 3 && ram != v.demote_to; i++)
		ram = pool_new(owner, GPC_RAM, 8, 0, GPC_POOL_CALLER);
	is_int(ram, v.demote_to, "but a pool demotes to a number that is the owner's now");
	for (i = 0; i < 8; i++)
		b[i] = GPC_BLOCK(ram, i);
	fill(1, 8, b);
	must(gpc_release(owner, b, 8));
	must(gpc_reserve(other, vram, 4, got, NULL, 0, 60000));
	for (i = 0; i < 4; i++) {
		gpc_key k = key_of(c, 31 + (uint64_t)i);

		must(gpc_publish(other, NULL, &k, &got[i], 1, NULL, 0, -1));
	}
	must(gpc_release(other, got, 4));
	refused(gpc_demote(other, vram, ram, NULL, 1, m, 0, 1000), EPERM, "no demotion into it");
	is_int(gpc_pool_available(c, ram), 8, "all the owner's blocks are as they were");
	done(other);
	end("moves into it");
}

static int body(void)
{
	cache_thread = true;
	test_avail();
	test_model();
	test_take();
	test_quota();
	test_moves_into();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
