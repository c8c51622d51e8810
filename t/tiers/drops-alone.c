/* SPDX-License-Identifier: Apache-2.0 */
/* A key that is dropped alone (GPC_ONLY) goes from the file as well, and what follows it stays there,
 * over a restart; a drop of what is before the hole takes what is behind it, in RAM, too, unless the hole was
 * filled; and a bad slot of the file takes nothing along.
 * Tests: lib/tiers/steward/drops.c lib/tiers/steward/up.c lib/index/writer/drop.c */
#include "t/lib/below.h"

enum { CHAIN = 8 };

static int ram, vram;

static gpc *begin(struct gpc_tiers_options *o, gpc_tiers **t)
{
	gpc *c = tiers_cache(1024);

	ram = bytes_ram(c, 24, 0, GPC_POOL_UNCHAINED);
	vram = bytes_vram(c, 64, 1, -1, 0);
	tiers_file();
	*o = tiers_options(64);
	o->ahead = 64;
	*t = tiers_open(o);
	tiers_fill(c, ram, 1, 2 * CHAIN, CHAIN);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, 2 * CHAIN), 2 * CHAIN, "two chains are in RAM and on disk");
	return c;
}

static int drop(gpc *c, uint64_t n, uint32_t flags)
{
	gpc_block b = find(c, n);

	return must(gpc_drop(c, &b, 1, NULL, flags, 60000));
}

static int in_ram(gpc *c, uint64_t first, uint32_t n)
{
	int there = 0;
	uint32_t i;

	for (i = 0; i < n; i++)
		there += find(c, first + i) >= 0;
	return there;
}

static void test_hole(void)
{
	struct gpc_tiers_options o;
	gpc_tiers *t;
	gpc *c = begin(&o, &t);

	is_int(drop(c, 3, GPC_ONLY), 1, "one is dropped alone");
	is_int(in_ram(c, 1, CHAIN), CHAIN - 1, "RAM has the others");
	is_int(tiers_below(c, 1, CHAIN), CHAIN - 1, "so has the disk");
	is_int(tiers_block_below(c, 3), -1, "but not that one");
	must(gpc_tiers_close(t));
	t = tiers_again(c, &o);
	is_int(tiers_below(c, 1, CHAIN), CHAIN - 1, "behind a restart, too");
	is_int(tiers_block_below(c, 3), -1, "and it is not back");
	tiers_finish(c, t, "a hole");
}

/* A block in RAM hangs on nothing there any more, and the steward knows. */
static void test_before_the_hole(void)
{
	struct gpc_tiers_options o;
	gpc_tiers *t;
	gpc *c = begin(&o, &t);

	must(drop(c, 3, GPC_ONLY));
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(in_ram(c, 4, CHAIN - 3), CHAIN - 3, "behind the hole all are there");
	is_int(drop(c, 1, 0), 1, "the first block is dropped with what follows it");
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(in_ram(c, 1, CHAIN), 0, "RAM has nothing of the chain");
	is_int(tiers_below(c, 1, CHAIN), 0, "nor has the disk");
	is_int(tiers_below(c, CHAIN + 1, CHAIN), CHAIN, "the other one is there");
	is_int(in_ram(c, CHAIN + 1, CHAIN), CHAIN, "in RAM, too");
	tiers_finish(c, t, "before the hole");
}

static void test_filled(void)
{
	struct gpc_tiers_options o;
	gpc_tiers *t;
	gpc *c = begin(&o, &t);

	must(drop(c, 3, GPC_ONLY));
	tiers_grow(c, ram, 2, 3, 1);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, CHAIN), CHAIN, "the hole is filled, and goes below");
	is_int(drop(c, CHAIN + 1, 0), 1, "the other chain is dropped");
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(in_ram(c, 1, CHAIN), CHAIN, "RAM has all of the first one");
	is_int(tiers_below(c, 1, CHAIN), CHAIN, "so has the disk");
	is_int(drop(c, 2, 0), 1, "a drop of what comes before");
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(in_ram(c, 1, CHAIN), 1, "takes all that follows");
	is_int(tiers_below(c, 1, CHAIN), 1, "below, too");
	tiers_finish(c, t, "filled");
}

/* A block without its parent moves to VRAM of the same space, whose pool takes none: it is none the less behind the
 * hole. */
static void test_in_vram(void)
{
	struct gpc_tiers_options o;
	struct gpc_move m;
	gpc_tiers *t;
	gpc *c = begin(&o, &t);
	int above = bytes_vram(c, 16, 0, ram, 0);
	gpc_key k = key_of(c, 4);
	gpc_block b;

	must(drop(c, 3, GPC_ONLY));
	must(gpc_lookup(c, 0, &k, 1, &b, GPC_REF));
	is_int(must(gpc_promote(c, &b, 1, above, &m, 0, 60000)), 1, "what is behind a hole moves");
	bytes_copy(c, &m, 1);
	is_int(must(gpc_commit(c, &m, 1, NULL, 0, 60000)), 1, "to VRAM");
	must(gpc_release(c, &m.to, 1));
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(drop(c, 1, 0), 1, "what is before the hole is dropped");
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(in_ram(c, 1, CHAIN), 0, "VRAM has nothing of the chain either");
	is_int(tiers_below(c, 1, CHAIN), 0, "nor has the disk");
	tiers_finish(c, t, "in VRAM");
}

/* Nobody keeps the file while it is dropped. */
static void test_unkept(void)
{
	struct gpc_tiers_options o;
	gpc_tiers *t;
	gpc *c = begin(&o, &t);
	gpc_block b = find(c, 3);
	int r;

	must(gpc_tiers_close(t));
	r = gpc_drop(c, &b, 1, NULL, GPC_ONLY, 60000);
	ok(r == 1 || r == -ENOTCONN, "dropped while nobody keeps the file: %d", r);
	t = tiers_again(c, &o);
	is_int(tiers_block_below(c, 3), -1, "the next steward forgets it");
	is_int(tiers_below(c, 1, CHAIN), CHAIN - 1, "and nothing else");
	tiers_finish(c, t, "unkept");
}

/* The disk has other bytes than were written. */
static void test_bad_slot(void)
{
	struct gpc_tiers_options o;
	gpc_tiers *t;
	gpc *c = begin(&o, &t);
	gpc_key k[CHAIN + 1];
	char byte;
	int fd;
	long at;

	must(gpc_pool_clear(c, ram, 0, 0, 60000));
	at = tiers_find_image(3);
	fd = open(tiers_path, O_RDWR);
	if (at < 0 || fd < 0 || pread(fd, &byte, 1, at + 100) != 1)
		bail("no image");
	byte ^= 1;
	if (pwrite(fd, &byte, 1, at + 100) != 1)
		bail("pwrite");
	close(fd);
	chain_keys(c, 1, CHAIN, k);
	is_int(gpc_prefetch(c, ram, k + 1, CHAIN, 0, 60000), 2, "a prefetch ends at a bad slot");
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, CHAIN), CHAIN - 1, "which is the only one that goes");
	tiers_grow(c, ram, 2, 3, 1);
	is_int(gpc_prefetch(c, ram, k + 1, CHAIN, 0, 60000), CHAIN, "when it is back, all come up");
	tiers_finish(c, t, "a bad slot");
}

static int body(void)
{
	test_hole();
	test_before_the_hole();
	test_filled();
	test_in_vram();
	test_unkept();
	test_bad_slot();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(100, body, cache_dir_remove);
}
