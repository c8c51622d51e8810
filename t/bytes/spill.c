/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_spill and gpc_spill_ahead in one process: to RAM of the space, to RAM that spaces share, what
 * the caller names and what the writer chooses; RAM to RAM.
 * Tests: lib/bytes/payload/spill.c lib/bytes/payload/bring.c */
#include "t/lib/fetch.h"

static void test_spill(void)
{
	gpc *c = bytes_cache();
	int ram = bytes_ram(c, 16, 0, 0), vram = bytes_vram(c, 16, 0, ram, 0);
	gpc_block b[8], leaf_first[8];
	gpc_transfer t = 0;
	int results[8], i;

	bytes_chain(c, vram, 1, 8, b, false);
	for (i = 0; i < 8; i++)
		leaf_first[i] = b[7 - i];
	is_int(gpc_spill(c, vram, -1, leaf_first, 3, NULL, 0, NULL, 1000, &t), 3,
	       "three named leaves");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "are spilled");
	is_int(gpc_transfer_results(c, t, results, 8), 3, "three results");
	is_int(results[0] | results[1] | results[2], 0, "all committed");
	is_int(fetch_live(c, 1, 5, vram) + fetch_live(c, 6, 3, ram), 8,
	       "every byte, where it should be");
	settle(c);
	is_int((int)stats_of(c, -1).reserved, 0, "targets are held by nobody");
	is_int(gpc_spill(c, vram, ram, NULL, 4, NULL, 0, NULL, 1000, &t), 4,
	       "four that the writer chooses");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "are spilled");
	is_int(fetch_live(c, 1, 1, vram) + fetch_live(c, 2, 7, ram), 8, "the root is left");
	is_int(gpc_spill(c, vram, ram, NULL, 0, NULL, 0, NULL, 1000, &t), 0, "none");
	is_int((int)t, 0, "is no transfer");
	fetch_end(c, "spilled");
}

/* A source that is held stays readable until its last hold has gone. */
static void test_held(void)
{
	gpc *c = bytes_cache();
	int ram = bytes_ram(c, 16, 0, 0), vram = bytes_vram(c, 16, 0, ram, 0);
	gpc_transfer t = 0;
	gpc_block b[2], r[2];
	gpc_key k[3];

	bytes_chain(c, vram, 1, 2, b, true);
	is_int(gpc_spill(c, vram, ram, (gpc_block[2]){ b[1], b[0] }, 2, NULL, 0, NULL, 1000, &t), 2,
	       "two that are held");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "are spilled");
	is_int(fetch_right(c, b, 2, 1), 2, "and have their bytes still");
	is_int(fetch_live(c, 1, 2, ram), 2, "as those have that are found");
	is_int(gpc_release(c, b, 2), 0, "the references are the caller's");
	chain_keys(c, 1, 2, k);
	is_int(gpc_fetch(c, vram, k + 1, 2, r, NULL, 0, NULL, 1000, &t), 2, "they come back");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "all the way");
	is_int(fetch_right(c, r, 2, 1), 2, "every byte");
	must(gpc_release(c, r, 2));
	fetch_end(c, "held");
}

static void test_spaces(void)
{
	gpc *c = bytes_cache();
	int ram = bytes_ram(c, 16, 1, GPC_POOL_UNCHAINED), vram = bytes_vram(c, 16, 0, ram, 0);
	gpc_block b[6];
	gpc_transfer t = 0;

	bytes_chain(c, vram, 1, 6, b, false);
	is_int(fetch_spill(c, vram, ram, (gpc_block[2]){ b[5], b[4] }, 2, GPC_COPY), 2,
	       "two are copied");
	is_int(fetch_there(c, 1, 6, 0, vram), 6, "and stay");
	is_int(fetch_there(c, 1, 6, 1, ram), 2, "and are there, too");
	is_int(gpc_spill(c, vram, ram, (gpc_block[3]){ b[5], b[4], b[3] }, 3, NULL, GPC_COPY, NULL,
			 1000, &t),
	       3, "two that are there already, and one");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "which is copied");
	is_int(gpc_transfer_results(c, t, NULL, 0), 1, "alone");
	is_int(fetch_there(c, 1, 6, 1, ram), 3, "three are there");
	t = 5;
	is_int(gpc_spill(c, vram, ram, (gpc_block[1]){ b[5] }, 1, NULL, 0, NULL, 1000, &t), 1,
	       "without GPC_COPY, where the space has it");
	is_int((int)t, 0, "nothing is copied");
	is_int(fetch_there(c, 1, 6, 0, vram), 5, "and the key leaves");
	fetch_end(c, "spaces");
}

static void test_ram(void)
{
	gpc *c = bytes_cache();
	int a = bytes_ram(c, 300, 0, 0), b = bytes_ram(c, 300, 1, 0);
	static gpc_block r[200], s[200];
	gpc_transfer t = 0;
	gpc_key k[201];

	bytes_chain(c, a, 1, 200, r, false);
	chain_keys(c, 1, 200, k);
	is_int(gpc_fetch(c, b, k + 1, 200, s, NULL, 0, NULL, 1000, &t), 200, "200 from RAM to RAM");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "by threads");
	is_int(fetch_right(c, s, 200, 1), 200, "every byte");
	must(gpc_release(c, s, 200));
	is_int(gpc_pool_clear(c, b, 0, 0, -1), 0, "the copies go");
	refused(gpc_spill(c, a, b, NULL, 8, NULL, GPC_COPY, c, 1000, &t), EINVAL,
		"a stream is of no use");
	refused(gpc_spill(c, a, b, (gpc_block[2]){ GPC_BLOCK(a, 0), -1 }, 2, NULL, GPC_COPY, NULL,
			  1000, &t),
		EINVAL, "no block");
	ok(strstr(gpc_last_error(), "blocks[1] is -1") != NULL, "which is named: %s",
	   gpc_last_error());
	is_int(gpc_spill(c, a, b, NULL, 1, NULL, GPC_COPY, NULL, 1000, &t), 1,
	       "and a leaf back, the other way");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "its parent is not there");
	is_int(gpc_transfer_results(c, t, (int[1]){ 0 }, 1), 1, "so the writer");
	fetch_end(c, "RAM to RAM");
}

/* ---- ahead ---- */

static int ahead_pool(gpc *c, uint32_t blocks, uint32_t space, int to, uint32_t ahead,
		      uint32_t flags)
{
	struct gpc_pool p = pool_of(GPC_VRAM, blocks, space);
	struct gpc_memory m = { .size = sizeof(m), .device = "host" };
	struct gpc_run run[2];

	bytes_layers(run, blocks);
	p.flags = flags;
	p.demote_to = to;
	p.spill_ahead = ahead;
	m.nruns = 2;
	m.runs = run;
	return must(gpc_pool_make(c, &p, &m, -1));
}

static int step(gpc *c, int pool)
{
	gpc_transfer t = 0;
	int n = must(gpc_spill_ahead(c, pool, NULL, 1000, &t));

	ok(!n == !t, "%d on their way, and a name for them", n);
	must(gpc_transfer_wait(c, t, 5000));
	settle(c);
	return n;
}

static void test_ahead(void)
{
	gpc *c = bytes_cache();
	int ram = bytes_ram(c, 32, 0, 0), vram = ahead_pool(c, 16, 0, ram, 5, GPC_POOL_OWNED);
	struct gpc_pool p = { .size = sizeof(p) };
	gpc_transfer t[2] = { 0, 0 };
	gpc_block b[16];

	must(gpc_pool_get(c, vram, &p));
	is_int((int)p.spill_ahead, 5, "the pool says how many");
	is_int(step(c, vram), 0, "all are free: nothing is due");
	bytes_chain(c, vram, 1, 14, b, false);
	is_int(step(c, vram), 3, "two are free: three go");
	is_int(fetch_live(c, 12, 3, ram), 3, "the leaves");
	is_int(step(c, vram), 0, "five are free now");
	bytes_chain(c, vram, 31, 4, b, false);
	device_host_delay_us = 20000;
	is_int(gpc_spill_ahead(c, vram, NULL, 1000, &t[0]), 4, "one is free: four go");
	device_host_delay_us = 0;
	is_int(gpc_spill_ahead(c, vram, NULL, 1000, &t[1]), 0, "those under way count");
	is_int(gpc_transfer_wait(c, t[0], 5000), 0, "they end");
	is_int((int)t[1], 0, "no transfer for nothing");
	fetch_end(c, "ahead");
}

/* What has left and waits for a grace period is free soon. */
static void test_ahead_dying(void)
{
	gpc *c = bytes_cache(), *reader = cache_attach(0, 0);
	int ram = bytes_ram(c, 32, 0, 0), vram = ahead_pool(c, 16, 0, ram, 5, GPC_POOL_OWNED),
	    section;
	gpc_transfer t = 0;
	gpc_block b[16];

	bytes_chain(c, vram, 1, 16, b, false);
	section = must(gpc_section_enter(reader));
	is_int(gpc_spill_ahead(c, vram, NULL, 1000, &t), 5, "none is free: five go");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "they have gone, and somebody still reads");
	is_int((int)stats_of(c, -1).dying, 5, "none of them is free so far");
	is_int(gpc_spill_ahead(c, vram, NULL, 1000, &t), 0, "they are free soon: nothing is due");
	must(gpc_section_leave(reader, section));
	settle(c);
	is_int(step(c, vram), 0, "they are free: nothing is due");
	gpc_close(reader);
	fetch_end(c, "ahead, dying");
}

/* What has left and is held is free nobody knows when. */
static void test_ahead_lingering(void)
{
	gpc *c = bytes_cache();
	int ram = bytes_ram(c, 32, 0, 0), vram = ahead_pool(c, 16, 0, ram, 5, GPC_POOL_OWNED), i;
	const struct shm_pool *p = seg_pool(&c->seg, (uint32_t)vram);
	gpc_block b[16];

	bytes_chain(c, vram, 1, 16, b, true);
	must(gpc_release(c, b, 14));
	is_int(fetch_spill(c, vram, ram, (gpc_block[]){ b[15], b[14] }, 2, 0), 2,
	       "two that are held have gone");
	for (i = 0; i < 2000 && p->lingering < 2; i++)
		must(gpc_writer_serve(c, 1));
	is_int((int)p->lingering, 2, "and keep their blocks");
	is_int(must(gpc_spill_ahead(c, vram, NULL, 1000, NULL)), 5, "which are not free: five go");
	must(gpc_transfer_wait(c, GPC_TRANSFER_ALL, 5000));
	must(gpc_release(c, b + 14, 2));
	settle(c);
	is_int((int)p->lingering, 0, "until they are released");
	fetch_end(c, "ahead, lingering");
}

/* Blocks that somebody reads stay, though they are the least recent ones. */
static void test_ahead_used(void)
{
	gpc *c = bytes_cache();
	int ram = bytes_ram(c, 32, 0, 0), vram = ahead_pool(c, 16, 0, ram, 5, GPC_POOL_OWNED);
	gpc_block held[7], b[7];

	bytes_chain(c, vram, 1, 7, held, true);
	bytes_chain(c, vram, 31, 7, b, false);
	is_int(step(c, vram), 3, "two are free: three go");
	is_int(fetch_live(c, 35, 3, ram), 3, "those that nobody uses");
	is_int(fetch_live(c, 1, 7, vram), 7, "what is in use stays");
	must(gpc_release(c, held, 7));
	fetch_end(c, "ahead, in use");
}

static void test_ahead_elsewhere(void)
{
	gpc *c = bytes_cache();
	int ram = bytes_ram(c, 32, 1, GPC_POOL_UNCHAINED);
	int vram = ahead_pool(c, 16, 0, ram, 2, GPC_POOL_OWNED);
	gpc_block b[8];
	int n, first;

	bytes_chain(c, vram, 1, 3, b, false);
	bytes_chain(c, vram, 11, 3, b, false);
	bytes_chain(c, vram, 21, 3, b, false);
	first = step(c, vram);
	is_int(first, 2, "the two least recent leaves are copied");
	n = fetch_there(c, 1, 30, 1, ram);
	is_int(n, 2, "to the other space");
	is_int(fetch_there(c, 1, 3, 0, vram) + fetch_there(c, 11, 3, 0, vram) +
		       fetch_there(c, 21, 3, 0, vram),
	       9, "and stay where they are");
	is_int(step(c, vram), 0, "they have a copy: nothing is due");
	must(gpc_evict(c, vram, 2, b, 0, 60000));
	is_int(step(c, vram), 2, "when they are gone, the next two");
	is_int(fetch_there(c, 1, 30, 1, ram), 4, "are copied");
	fetch_end(c, "ahead, elsewhere");
}

/* What the driver refuses stays where it is. */
/* What the engine has counts as free: gpc cannot know what it does with it. */
static void test_ahead_of_caller(void)
{
	gpc *c = bytes_cache();
	int ram = bytes_ram(c, 32, 0, 0), i, n;
	int vram = ahead_pool(c, 16, 0, ram, 5, GPC_POOL_CALLER);
	gpc_block b[14], back[16];
	gpc_key k[14];

	for (i = 0; i < 14; i++) {
		b[i] = GPC_BLOCK(vram, i);
		k[i] = key_of(c, (uint64_t)i + 1);
	}
	is_int(step(c, vram), 0, "an engine's own blocks: all are its: nothing is due");
	is_int(gpc_publish(c, NULL, k, b, 14, NULL, 0, 2000), 14, "it publishes fourteen");
	must(gpc_release(c, b, 14));
	settle(c);
	is_int(step(c, vram), 3, "two are its: three go");
	for (n = 0; n < 3;)
		n += must(gpc_returned(c, vram, back, 16, 2000));
	is_int(n, 3, "and are its again");
	is_int(step(c, vram), 0, "then no more");
	fetch_end(c, "ahead of an engine's own blocks");
}

static void test_torn(void)
{
	gpc *c = bytes_cache();
	int ram = bytes_ram(c, 16, 0, 0), vram = bytes_vram(c, 16, 0, ram, 0), n, i;
	gpc_transfer t = 0;
	gpc_block b[4];

	bytes_chain(c, vram, 1, 4, b, false);
	device_host_copy_fail_at = 1;
	refused(gpc_spill(c, vram, ram, NULL, 4, NULL, 0, NULL, 1000, &t), EIO,
		"the first copy is refused");
	is_int((int)t, 0, "no transfer");
	for (i = 0; i < 200 && c->transfers->used; i++) {
		gpc_writer_serve(c, 1);
		transfer_sweep(c);
	}
	n = fetch_live(c, 1, 4, vram);
	is_int(n, 4, "all four are where they were");
	is_int((int)stats_of(c, -1).reserved, 0, "and nothing is reserved");
	is_int(gpc_spill(c, vram, ram, NULL, 4, NULL, 0, NULL, 1000, &t), 4, "once more");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "all go");
	is_int(fetch_live(c, 1, 4, ram), 4, "every byte");
	fetch_end(c, "torn");
}

static int body(void)
{
	test_spill();
	test_held();
	test_spaces();
	test_ram();
	test_ahead();
	test_ahead_dying();
	test_ahead_lingering();
	test_ahead_used();
	test_ahead_elsewhere();
	test_ahead_of_caller();
	test_torn();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
