/* SPDX-License-Identifier: Apache-2.0 */
/* Lookups and matches on a device over two spaces never miss a key because it moves from one to the
 * other (guarantee A): first step by step, two launches in one section with the move between
 * them, then against moves without rest.  On the host device, or on the GPU of
 * GPC_TEST_DEVICE.
 * Tests: lib/bytes/mirror/dev.c kernels/match.cu */
#include "t/lib/mirrors.h"

enum { KEYS = 8, ROUNDS = 100 };

static gpc *c;
static gpc_key key[KEYS];
static gpc_block block[KEYS];
static int vram, ram;

static void begin(uint32_t vram_space, uint32_t ram_space)
{
	struct gpc_config cfg = cache_config(0, 0);
	int i;

	cfg.max_blocks = 512;
	cfg.devices = device_name();
	c = cache_make(&cfg, NULL);
	vram = pool_new(c, GPC_VRAM, 4 * KEYS, vram_space, 0);
	ram = pool_new(c, GPC_RAM, 4 * KEYS, ram_space, 0);
	for (i = 0; i < KEYS; i++) {
		key[i] = key_of(c, 1 + (uint64_t)i);
		chain_hold(c, ram, 1 + (uint64_t)i, 1, &block[i]);
	}
	mirror_sync(c);
}

static void end(const char *what)
{
	must(gpc_release(c, block, KEYS));
	settle(c);
	clean(c, what);
	cache_end(c);
}

static void move_all(int to)
{
	struct gpc_move m[KEYS];
	int i, n = to == vram ? gpc_promote(c, block, KEYS, vram, m, 0, 10000)
			      : gpc_demote(c, vram, ram, block, KEYS, m, 0, 10000);

	if (must(n) != KEYS || must(gpc_commit(c, m, KEYS, NULL, 0, -1)) != KEYS)
		bail("%d of %d begin to move", n, KEYS);
	for (i = 0; i < KEYS; i++)
		block[i] = m[i].to;
}

/* ---- one section, two launches ---- */

static int hits(struct lookup *a, uint32_t space, gpc_block *b)
{
	int i, n = 0;

	must(gpc_dev_lookup(a->d, GPC_SPACE(space), a->keys, KEYS, a->blocks, a->stream));
	ask_get(a, b, KEYS);
	for (i = 0; i < KEYS; i++)
		n += b[i] >= 0;
	return n;
}

static void in_steps(bool rises, const char *what)
{
	gpc_block was[KEYS], b[KEYS];
	struct lookup a;
	gpc_dev *d;
	int s, i;

	begin(rises ? 0 : 1, rises ? 1 : 0);
	if (!rises)
		move_all(vram);
	for (i = 0; i < 2000 && stats_of(c, -1).live > KEYS; i++) /* and they are there alone */
		must(gpc_writer_serve(c, 1));
	mirror_sync(c);
	d = mirror_open(c);
	a = ask_new(d, KEYS, 0);
	ask_put(&a, key, KEYS);
	memcpy(was, block, sizeof(was));
	s = must(gpc_dev_enter(d));
	is_int(hits(&a, 0, b), 0, "%s: they are not in space 0", what);
	move_all(rises ? vram : ram);
	mirror_sync(c);
	for (i = 0; i < 5; i++)
		must(gpc_writer_serve(c, 1));
	mirror_sync(c);
	is_int(hits(&a, 1, b), KEYS, "%s: who asked that first finds them in space 1", what);
	is_int(gpc_ref(c, key, b, KEYS), KEYS, "%s: and gets references", what);
	ok(!memcmp(b, was, sizeof(b)), "%s: where they were", what);
	must(gpc_release(c, b, KEYS));
	is_int(hits(&a, 0, b), KEYS, "%s: by now they are in space 0, too", what);
	must(gpc_dev_leave(d, s, a.stream));
	must(gpc_dev_wait(d, a.stream, 10000));
	for (i = 0; i < 200 && stats_of(c, -1).live > KEYS; i++)
		must(gpc_writer_serve(c, 1));
	is_int(stats_of(c, -1).live, KEYS, "%s: then there alone", what);
	mirror_sync(c);
	s = must(gpc_dev_enter(d));
	is_int(hits(&a, 1, b), 0, "%s: for the device as well", what);
	must(gpc_dev_leave(d, s, a.stream));
	must(gpc_dev_wait(d, a.stream, 10000));
	ask_free(&a);
	must(gpc_dev_close(d));
	end(what);
}

/* ---- without rest ---- */

static struct {
	bool stop;
	uint64_t looks, misses;
} looker;

static void *look(void *arg)
{
	uint32_t start[KEYS + 1], len[KEYS], i;
	gpc_dev *d = mirror_open(c);
	struct lookup a = ask_new(d, KEYS, KEYS);
	gpc_block b[KEYS];

	for (i = 0; i <= KEYS; i++)
		start[i] = i;
	do {
		ask_lookup(&a, 0, key, KEYS, b);
		for (i = 0; i < KEYS; i++)
			looker.misses += b[i] < 0;
		ask_match(&a, 0, key, start, KEYS, len, looker.looks % 2 ? b : NULL);
		for (i = 0; i < KEYS; i++)
			looker.misses += len[i] != 1;
		looker.looks++;
	} while (!__atomic_load_n(&looker.stop, __ATOMIC_ACQUIRE));
	ask_free(&a);
	must(gpc_dev_close(d));
	return arg;
}

static void race(bool rises, const char *what)
{
	pthread_t thread;
	int i;

	begin(rises ? 0 : 1, rises ? 1 : 0);
	looker.stop = false;
	looker.looks = looker.misses = 0;
	if (pthread_create(&thread, NULL, look, NULL))
		bail("no thread");
	for (i = 0; i < ROUNDS; i++) {
		move_all(vram);
		move_all(ram);
	}
	__atomic_store_n(&looker.stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	ok(looker.looks > 0, "%s: %llu rounds of questions", what,
	   (unsigned long long)looker.looks);
	is_int(looker.misses, 0, "%s: no key is missed", what);
	end(what);
}

static int body(void)
{
	cache_thread = false;
	in_steps(true, "up");
	in_steps(false, "down");
	cache_thread = true;
	race(true, "RAM in the higher space");
	race(false, "RAM in the lower space");
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(100, body, cache_dir_remove);
}
