/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_fetch in one process: from where the prefix comes, where it ends, what becomes of its
 * bytes.
 * Tests: lib/bytes/payload/fetch.c lib/bytes/payload/bring.c lib/bytes/payload/results.c */
#include "t/lib/fetch.h"

enum { RAM = 0, VRAM = 1 }; /* made in this order: VRAM spills to RAM */

static gpc *tiers(uint32_t vram, uint32_t ram)
{
	gpc *c = bytes_cache();

	is_int(bytes_ram(c, ram, 0, 0), RAM, "RAM");
	is_int(bytes_vram(c, vram, 0, RAM, 0), VRAM, "VRAM above it");
	return c;
}

/* ---- within a space: moves ---- */

static void test_move(void)
{
	gpc *c = tiers(16, 16);
	gpc_block b[8], r[8];
	gpc_transfer t = 0;
	int results[8];
	gpc_key k[9];

	bytes_chain(c, RAM, 1, 6, r, false);
	chain_keys(c, 1, 8, k);
	is_int(gpc_fetch(c, VRAM, k + 1, 8, b, NULL, 0, NULL, 1000, &t), 6,
	       "six blocks of a prompt are in RAM");
	ok(t, "a transfer brings them");
	is_int(fetch_in(b, 6, VRAM), 6, "to VRAM");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "it is committed");
	is_int(fetch_right(c, b, 6, 1), 6, "every byte");
	is_int(fetch_live(c, 1, 6, VRAM), 6, "and the keys name the blocks in VRAM");
	is_int(gpc_transfer_results(c, t, results, 8), 6, "six results");
	is_int(results[0] | results[5], 0, "all are committed");
	is_int(gpc_release(c, b, 6), 0, "the caller's references are released");
	is_int(gpc_fetch(c, VRAM, k + 1, 8, b, NULL, 0, NULL, 1000, &t), 6, "once more");
	is_int((int)t, 0, "nothing is to be copied");
	must(gpc_release(c, b, 6));
	fetch_end(c, "moved");
}

/* A part is there already, and a part is not. */
static void test_mixed(void)
{
	gpc *c = tiers(16, 16);
	gpc_block b[8], r[8];
	gpc_transfer t = 0;
	gpc_key k[9];

	bytes_chain(c, VRAM, 1, 6, b, false);
	is_int(fetch_spill(c, VRAM, RAM, (gpc_block[2]){ b[5], b[4] }, 2, 0), 2,
	       "two leaves are spilled");
	chain_keys(c, 1, 6, k);
	is_int(gpc_fetch(c, VRAM, k + 1, 6, r, NULL, 0, NULL, 1000, &t), 6,
	       "four are there, two come back");
	ok(r[0] == b[0] && r[3] == b[3], "those that are there are referenced");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "the others are brought");
	is_int(fetch_right(c, r, 6, 1), 6, "every byte");
	must(gpc_release(c, r, 6));
	fetch_end(c, "mixed");
}

/* ---- between spaces: copies ---- */

static void test_spaces(void)
{
	gpc *c = bytes_cache();
	int vram = bytes_vram(c, 16, 0, -1, 0), ram = bytes_ram(c, 16, 2, GPC_POOL_UNCHAINED);
	int other = bytes_vram(c, 16, 1, ram, 0), tier = bytes_ram(c, 16, 0, 0);
	gpc_block b[8], r[8];
	gpc_transfer t = 0;
	gpc_key k[9];

	bytes_chain(c, tier, 1, 2, r, false);
	bytes_chain(c, other, 1, 8, b, false);
	is_int(fetch_spill(c, other, ram, (gpc_block[3]){ b[7], b[6], b[5] }, 3, 0), 3,
	       "three are in RAM that spaces share");
	chain_keys(c, 1, 8, k);
	is_int(gpc_fetch(c, vram, k + 1, 8, r, NULL, 0, NULL, 1000, &t), 8,
	       "from RAM of the space, another GPU, and shared RAM");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "in one transfer");
	is_int(fetch_in(r, 8, vram), 8, "all are in VRAM");
	is_int(fetch_right(c, r, 8, 1), 8, "every byte");
	is_int(fetch_there(c, 1, 8, 1, other), 5, "the other GPU has its own still");
	is_int(fetch_there(c, 1, 8, 2, ram), 3, "so has shared RAM");
	is_int(fetch_there(c, 1, 8, 0, tier), 0, "what was in the space's RAM has moved");
	is_int((int)stats_of(c, info_of(c).peer).fetched, 8, "eight are counted");
	must(gpc_release(c, r, 8));
	fetch_end(c, "spaces");
}

/* ---- where a prefix ends ---- */

static void test_ends(void)
{
	gpc *c = bytes_cache();
	int vram = bytes_vram(c, 16, 0, -1, 0), second = bytes_vram(c, 16, 0, -1, 0);
	int ram = bytes_ram(c, 16, 1, 0), bare = pool_new(c, GPC_RAM, 4, 2, 0), print;
	struct gpc_pool p = pool_of(GPC_RAM, 4, 3);
	struct gpc_memory m = { .size = sizeof(m),
				.block_bytes = BYTES_IMAGE,
				.fingerprint = { 9 } };
	struct gpc_fetch_options o = { .size = sizeof(o) };
	gpc_block b[8] = { -7, -7, -7, -7, -7, -7, -7, -7 }, r[8];
	gpc_transfer t = 77;
	int results[8], i;
	gpc_key k[9];

	print = must(gpc_pool_make(c, &p, &m, -1));
	o.results = results;
	chain_keys(c, 1, 8, k);
	is_int(gpc_fetch(c, vram, k + 1, 8, b, &o, 0, NULL, 1000, &t), 0, "nothing is cached");
	is_int(results[0], -ENOENT, "which results tell");
	is_int((int)t, 0, "and no transfer is begun");
	is_int(b[0], -7, "no block is told");
	t = 77;
	o.min = 1;
	refused(gpc_fetch(c, vram, k + 1, 8, b, &o, 0, NULL, 1000, &t), ENOENT,
		"one at least is wanted");
	is_int((int)t, 77, "and nothing is told");
	o.min = 0;
	bytes_chain(c, ram, 1, 6, r, false);
	o.most = 4;
	is_int(gpc_fetch(c, vram, k + 1, 8, b, &o, 0, NULL, 1000, &t), 4, "four at most");
	is_int(results[3], 0, "the fourth comes");
	is_int(results[4], -ENOSPC, "the fifth is too many");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "they come");
	must(gpc_release(c, b, 4));
	o.most = 1;
	is_int(gpc_fetch(c, vram, k + 1, 8, b, &o, 0, NULL, 1000, &t), 5,
	       "what is there is none of the most");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "the fifth comes");
	must(gpc_release(c, b, 5));
	o.most = 0;
	o.min = 7;
	refused(gpc_fetch(c, vram, k + 1, 8, b, &o, 0, NULL, 1000, &t), ENOENT,
		"seven are not there");
	o.min = 0;
	o.spaces = GPC_SPACE(5);
	is_int(gpc_fetch(c, vram, k + 1, 8, b, &o, 0, NULL, 1000, &t), 5,
	       "other spaces are not looked in");
	is_int(results[5], -ENOENT, "so the sixth is not there");
	must(gpc_release(c, b, 5));
	o.spaces = 0;
	for (i = 0; i < 3; i++) {
		int pool = i == 0 ? second : i == 1 ? bare : print;

		chain_keys(c, 31 + 10 * (uint64_t)i, 2, k);
		must(gpc_reserve(c, pool, 2, r, NULL, 0, 60000));
		must(gpc_publish(c, k, k + 1, r, 2, NULL, 0, -1));
		must(gpc_release(c, r, 2));
		is_int(gpc_fetch(c, vram, k + 1, 2, b, &o, 0, NULL, 1000, &t), 0, "%s",
		       i == 0   ? "in another VRAM of the space"
		       : i == 1 ? "in a pool without memory"
				: "images of another fingerprint");
		is_int(results[0], -EPROTO, "cannot come");
	}
	fetch_end(c, "prefixes");
}

/* The pool is full of blocks that are held. */
/* Why the prefix ends, when the writer gives a part of it: a block that another peer loads, the
 * quota. */
static void test_given_in_part(void)
{
	gpc *c = tiers(16, 16), *d = cache_attach(0, 0), *e = cache_attach(0, 0);
	struct gpc_fetch_options o = { .size = sizeof(o) };
	gpc_block b[6], r[6], own[2];
	gpc_transfer t = 0, other = 0;
	int results[6];
	gpc_key k[7];

	bytes_chain(c, RAM, 1, 6, r, false);
	chain_keys(c, 1, 6, k);
	serve_begin(c);
	o.results = results;
	device_host_delay_us = 20000;
	is_int(gpc_fetch(d, VRAM, k + 5, 2, own, NULL, 0, NULL, 1000, &other), 2,
	       "a peer loads the last two");
	device_host_delay_us = 0;
	is_int(gpc_fetch(e, VRAM, k + 1, 6, b, &o, 0, NULL, 1000, &t), 4, "the others come");
	is_int(results[3], 0, "the fourth, too");
	is_int(results[4], -EALREADY, "the next is loaded by another peer");
	is_int(gpc_transfer_wait(e, t, 5000) | gpc_transfer_wait(d, other, 5000), 0,
	       "all are there");
	must(gpc_release(e, b, 4));
	must(gpc_release(d, own, 2));
	must(gpc_close(e));
	e = cache_attach(0, 3);
	bytes_chain(c, RAM, 11, 6, r, false);
	chain_keys(c, 11, 6, k);
	is_int(gpc_fetch(e, VRAM, k + 1, 6, b, &o, 0, NULL, 1000, &t), 3, "a quota of three");
	is_int(results[3], -EDQUOT, "ends the prefix");
	is_int(gpc_transfer_wait(e, t, 5000), 0, "they come");
	must(gpc_release(e, b, 3));
	must(gpc_close(e));
	must(gpc_close(d));
	serve_end();
	fetch_end(c, "given in part");
}

static void test_full(void)
{
	gpc *c = tiers(4, 8);
	struct gpc_fetch_options o = { .size = sizeof(o) };
	gpc_block b[8], r[8], held[2];
	gpc_transfer t = 0;
	int results[8];
	gpc_key k[9];

	bytes_chain(c, RAM, 1, 6, r, false);
	must(gpc_reserve(c, VRAM, 2, held, NULL, 0, 60000));
	chain_keys(c, 1, 6, k);
	o.results = results;
	is_int(gpc_fetch(c, VRAM, k + 1, 6, b, &o, 0, NULL, 1000, &t), 2, "two blocks are free");
	is_int(results[2], -ENOSPC, "the third has no place");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "they come");
	is_int(fetch_right(c, b, 2, 1), 2, "every byte");
	refused(gpc_fetch(c, VRAM, k + 3, 4, r, &o, 0, NULL, 0, &t), ENOSPC, "no more");
	is_int((int)stats_of(c, -1).refs, 2, "and of what was not brought nothing is held");
	must(gpc_release(c, b, 2));
	must(gpc_release(c, held, 2));
	fetch_end(c, "full");
}

/* ---- release before done, drop of a source ---- */

static void test_early(void)
{
	gpc *c = tiers(8, 8);
	gpc_block b[4], r[4];
	gpc_transfer t = 0;
	int results[4], bad;
	gpc_key k[5];

	bytes_chain(c, RAM, 1, 4, r, false);
	chain_keys(c, 1, 4, k);
	device_host_delay_us = 20000;
	is_int(gpc_fetch(c, VRAM, k + 1, 4, b, NULL, 0, NULL, 1000, &t), 4,
	       "four are on their way");
	device_host_delay_us = 0;
	is_int(gpc_transfer_wait(c, t, 0), -EAGAIN, "and not there yet");
	is_int(gpc_transfer_results(c, t, results, 4), -EAGAIN, "nor are results");
	is_int(gpc_release(c, b, 4), 0, "they are released all the same");
	refused(gpc_release(c, b, 1), EPERM, "once");
	is_int(fetch_live(c, 1, 4, RAM), 4, "the keys are where they were");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "the transfer ends");
	is_int(fetch_live(c, 1, 4, VRAM), 4, "and is committed");
	clean(c, "released before done");

	bytes_chain(c, RAM, 11, 4, r, false);
	chain_keys(c, 11, 4, k);
	device_host_delay_us = 20000;
	is_int(gpc_fetch(c, VRAM, k + 1, 4, b, NULL, 0, NULL, 1000, &t), 4, "four more");
	device_host_delay_us = 0;
	must(gpc_drop(c, &r[2], 1, NULL, 0, -1));
	is_int(gpc_transfer_wait(c, t, 5000), 0, "a source is dropped meanwhile");
	is_int(gpc_transfer_results(c, t, results, 4), 4, "results tell");
	for (bad = 0; bad < 4 && !results[bad]; bad++)
		;
	is_int(bad, 2, "two are committed");
	is_int(results[2], -ESTALE, "the third is refused");
	is_int(fetch_right(c, b, 4, 11), 4, "but its bytes stay as long as it is held");
	must(gpc_release(c, b, 4));
	fetch_end(c, "early");
}

/* ---- a copy is refused ---- */

static void test_torn(void)
{
	gpc *c = tiers(16, 16);
	struct gpc_fetch_options o = { .size = sizeof(o) };
	gpc_block b[12], r[12];
	gpc_transfer t = 0;
	int results[12], n, i;
	uint32_t at;
	gpc_key k[13];

	o.results = results;
	for (at = 1; at < 5; at++) {
		uint64_t first = at * 20;

		bytes_chain(c, RAM, first, 12, r, false);
		chain_keys(c, first, 12, k);
		t = 0;
		device_host_copy_fail_at = at;
		n = gpc_fetch(c, VRAM, k + 1, 12, b, &o, 0, NULL, 1000, &t);
		device_host_copy_fail_at = 0;
		ok(n == -EIO || n >= 0, "operation %u is refused: %d", at, n);
		if (n == 12)
			diag("there was no such operation");
		if (n > 0) {
			is_int(results[n], n < 12 ? -EIO : 0, "results tell");
			is_int(gpc_transfer_wait(c, t, 5000), 0, "what was whole is committed");
			is_int(fetch_right(c, b, (uint32_t)n, first), n, "every byte");
			must(gpc_release(c, b, (uint32_t)n));
		} else {
			is_int((int)t, 0, "and there is no transfer");
		}
		for (i = 0; i < 200 && c->transfers->used; i++) {
			gpc_writer_serve(c, 1);
			transfer_sweep(c);
		}
		is_int((int)c->transfers->used, 0, "no slot is left");
		is_int(fetch_live(c, first, 12, RAM) + fetch_live(c, first, 12, VRAM), 12,
		       "all keys are there");
		is_int((int)stats_of(c, -1).reserved, 0, "nothing is reserved");
		clean(c, "torn");
		must(gpc_evict(c, VRAM, 16, b, 0, 60000));
		must(gpc_evict(c, RAM, 16, b, 0, 60000));
	}
	fetch_end(c, "torn");
}

static int body(void)
{
	test_move();
	test_mixed();
	test_spaces();
	test_ends();
	test_given_in_part();
	test_full();
	test_early();
	test_torn();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
