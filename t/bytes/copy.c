/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_copy between pools with memory: VRAM of the host device in layers, RAM in images; each
 * kind of move around a copy, every byte looked at; all that is refused, and why.
 * Tests: lib/bytes/payload/copy.c lib/bytes/payload/pair.c lib/bytes/payload/enqueue.c lib/bytes/payload/transfer.c
 *   lib/bytes/mapping/map.c */
#include "t/lib/bytes.h"

#include <poll.h>

#include "index/base/base.h"
#include "bytes/device/device.h"
#include "bytes/device/host_bytes.h"

enum { RAM = 0, VRAM = 1 }; /* made in this order: VRAM demotes to RAM */

static gpc *tiers(uint32_t vram, uint32_t ram)
{
	gpc *c = bytes_cache();

	is_int(bytes_ram(c, ram, 0, 0), RAM, "RAM");
	is_int(bytes_vram(c, vram, 0, RAM, 0), VRAM, "VRAM above it");
	return c;
}

static void end(gpc *c, const char *when)
{
	settle(c);
	done(c);
	is_int(stats_of(c, -1).reserved + stats_of(c, -1).refs, 0, "%s: nothing is held", when);
	clean(c, when);
	cache_end(c);
}

/* ---- moves ---- */

static void test_demote(void)
{
	gpc *c = tiers(16, 16);
	gpc_block b[8], leaf_first[8];
	struct gpc_move m[8];
	uint32_t i, n = 0;

	bytes_chain(c, VRAM, 1, 8, b, false);
	for (i = 0; i < 8; i++)
		leaf_first[i] = b[7 - i];
	is_int(gpc_demote(c, VRAM, RAM, leaf_first, 8, m, 0, 60000), 8, "eight blocks go down");
	is_int(bytes_copy(c, m, 8), 0, "their bytes first, though nobody references them");
	is_int(gpc_commit(c, m, 8, NULL, 0, -1), 8, "then their keys");
	for (i = 0; i < 8; i++)
		n += bytes_found(c, 1 + i, RAM);
	is_int(n, 8, "all are found in RAM, every byte");
	end(c, "demoted");
}

static void test_promote(void)
{
	gpc *c = tiers(4, 8);
	struct gpc_move m[2], v[2];
	gpc_block b[4], r[2];
	gpc_transfer t[2] = { 0, 0 };
	gpc_key k[3];
	uint32_t i, n = 0;

	bytes_chain(c, RAM, 1, 2, r, false);
	bytes_chain(c, VRAM, 11, 4, b, false);
	chain_keys(c, 1, 2, k);
	is_int(gpc_acquire(c, 0, k + 1, 2, r, 0), 2, "two in RAM");
	is_int(gpc_evict(c, VRAM, 2, b, 0, 60000), 2, "with two free above");
	is_int(gpc_promote(c, r, 2, VRAM, m, 0, 60000), 2, "go up");
	is_int(gpc_demote(c, VRAM, RAM, NULL, 2, v, 0, 60000), 2, "and two others down");
	is_int(gpc_copy(c, v, 2, 0, NULL, &t[0]), 0, "these are copied");
	is_int(gpc_copy(c, m, 2, 0, NULL, &t[1]), 0, "and behind them, on the stream, the first");
	ok(t[1] > t[0] && t[0], "two names");
	is_int(gpc_transfer_wait(c, t[1], 5000), 0, "the later is done");
	is_int(gpc_transfer_wait(c, t[0], 0), 0, "then so is the earlier");
	is_int(gpc_commit(c, v, 2, NULL, 0, -1), 2, "what went down");
	is_int(gpc_commit(c, m, 2, NULL, 0, -1), 2, "and what went up is committed");
	for (i = 0; i < 2; i++)
		n += bytes_found(c, 1 + i, VRAM);
	is_int(n, 2, "what went up has its bytes");
	for (n = i = 0; i < 4; i++)
		n += bytes_found(c, 11 + i, VRAM) + bytes_found(c, 11 + i, RAM);
	is_int(n, 2, "what it displaced as well");
	must(gpc_release(c, (gpc_block[2]){ m[0].to, m[1].to }, 2));
	end(c, "promoted");
}

/* Both stay: a RAM that several GPUs share. */
static void test_spaces(void)
{
	gpc *c = bytes_cache();
	struct gpc_move m[3], skip = { .from = -1, .to = -1 };
	gpc_block b[2];
	gpc_key k[3];
	int vram = bytes_vram(c, 8, 0, -1, 0), ram = bytes_ram(c, 8, 1, GPC_POOL_UNCHAINED);
	int other = bytes_vram(c, 8, 2, -1, 0);

	bytes_chain(c, vram, 1, 2, b, true);
	is_int(gpc_demote(c, vram, ram, (gpc_block[2]){ b[1], b[0] }, 2, m, GPC_COPY, 60000), 2,
	       "copied to another space");
	m[2] = m[1];
	m[1] = skip;
	is_int(bytes_copy(c, m, 3), 0, "with one between that is skipped");
	is_int(gpc_commit(c, m, 3, NULL, 0, -1), 2, "committed, and the references move along");
	chain_keys(c, 1, 2, k);
	must(gpc_lookup(c, GPC_SPACE(1), k + 1, 2, b, 0));
	ok(bytes_are(c, b[0], 1, BYTES_IMAGE) && bytes_are(c, b[1], 2, BYTES_IMAGE),
	   "RAM has the bytes");
	must(gpc_reserve(c, other, 2, (gpc_block[2]){ 0 }, NULL, 0, 60000));
	m[0] = (struct gpc_move){ .from = b[0], .to = GPC_BLOCK(other, 0) };
	m[1] = (struct gpc_move){ .from = b[1], .to = GPC_BLOCK(other, 1) };
	is_int(bytes_copy(c, m, 2), 0,
	       "from there to another VRAM, between reference and reservation");
	ok(bytes_are(c, m[0].to, 1, BYTES_IMAGE) && bytes_are(c, m[1].to, 2, BYTES_IMAGE),
	   "and there they are");
	m[2] = (struct gpc_move){ .from = m[0].to, .to = m[1].to };
	is_int(bytes_copy(c, &m[2], 1), 0, "within one pool");
	ok(bytes_are(c, m[1].to, 1, BYTES_IMAGE), "too");
	m[1] = (struct gpc_move){ .from = m[0].to, .to = GPC_BLOCK(vram, 5) };
	refused(gpc_copy(c, (struct gpc_move[2]){ m[2], { .from = m[2].to, .to = m[0].to } }, 2, 0,
			 NULL, NULL),
		EINVAL, "but not from what the call writes");
	ok(strstr(gpc_last_error(), "moves[0].from"), "which is named: %s", gpc_last_error());
	refused(gpc_copy(c, (struct gpc_move[2]){ m[2], m[2] }, 2, 0, NULL, NULL), EINVAL,
		"nor twice to one block");
	ok(strstr(gpc_last_error(), "moves[1].to"), "which is named: %s", gpc_last_error());
	is_int(bytes_copy(c, &m[2], 1), 0, "and a refusal leaves nothing behind");
	refused(gpc_copy(c,
			 (struct gpc_move[2]){ { .from = b[0], .to = m[0].to },
					       { .from = b[1], .to = m[0].to } },
			 2, 0, NULL, NULL),
		EINVAL, "between pools neither");
	ok(strstr(gpc_last_error(), "moves[1].to"), "%s", gpc_last_error());
	must(gpc_release(c, b, 2));
	must(gpc_release(c, (gpc_block[2]){ m[0].to, m[2].to }, 2));
	end(c, "spaces");
}

/* By threads: many blocks, of other sizes of pieces on either side. */
static void test_ram(void)
{
	gpc *c = bytes_cache();
	struct gpc_pool p = pool_of(GPC_RAM, 300, 1);
	struct gpc_run run[3] = {
		{ .count = 2, .bytes = BYTES_PIECE, .run_stride = BYTES_PIECE },
		{ .count = 1, .bytes = 3 * BYTES_PIECE, .offset = 2 * BYTES_PIECE },
		{ .count = 3,
		  .bytes = BYTES_PIECE,
		  .offset = 7 * BYTES_PIECE,
		  .run_stride = BYTES_PIECE }
	};
	struct gpc_memory m = { .size = sizeof(m), .nruns = 3, .runs = run };
	static gpc_block a[300], b[300];
	static struct gpc_move mv[300];
	int from = bytes_ram(c, 300, 0, 0), to, i, n = 0, round;
	gpc_transfer t[8];

	run[0].slot_stride = run[1].slot_stride = run[2].slot_stride = 11 * BYTES_PIECE;
	to = must(gpc_pool_make(c, &p, &m, -1));
	must(gpc_reserve(c, from, 300, a, NULL, 0, 60000));
	must(gpc_reserve(c, to, 300, b, NULL, 0, 60000));
	for (i = 0; i < 300; i++) {
		bytes_write(c, a[i], (uint64_t)i, BYTES_IMAGE);
		mv[i] = (struct gpc_move){ .from = a[i], .to = b[i * 7 % 300] };
	}
	for (round = 0; round < 8; round++) {
		uint32_t at = (uint32_t)round * 38, k = MIN(38u, 300 - at);

		must(gpc_copy(c, mv + at, k, 0, NULL, &t[round]));
	}
	is_int(gpc_transfer_wait(c, GPC_TRANSFER_ALL, 10000), 0, "eight transfers from RAM to RAM");
	for (i = 0; i < 300; i++)
		n += bytes_are(c, mv[i].to, (uint64_t)i, BYTES_IMAGE);
	is_int(n, 300, "every byte of 300 blocks, through other pieces");
	refused(gpc_copy(c, mv, 1, 0, c, NULL), EINVAL, "with a stream");
	must(gpc_release(c, a, 300));
	must(gpc_release(c, b, 300));
	end(c, "RAM to RAM");
}

static void test_caller(void)
{
	gpc *c = bytes_cache();
	int vram = bytes_vram(c, 4, 0, -1, GPC_POOL_CALLER), ram = bytes_ram(c, 4, 1, 0);
	struct gpc_move m = { .to = GPC_BLOCK(vram, 2) };

	must(gpc_reserve(c, ram, 1, &m.from, NULL, 0, 60000));
	bytes_write(c, m.from, 5, BYTES_IMAGE);
	is_int(bytes_copy(c, &m, 1), 0, "into a CALLER block, which its record says is ours");
	ok(bytes_are(c, m.to, 5, BYTES_IMAGE), "there they are");
	m = (struct gpc_move){ .from = m.to, .to = m.from };
	is_int(bytes_copy(c, &m, 1), 0, "and back");
	m.to = GPC_BLOCK(vram, 1);
	must(gpc_publish(c, NULL, (gpc_key[1]){ key_of(c, 1) }, &m.to, 1, NULL, 0, -1));
	refused(gpc_copy(c, &m, 1, 0, NULL, NULL), EPERM, "not over one that is published");
	must(gpc_release(c, (gpc_block[2]){ m.to, GPC_BLOCK(ram, 0) }, 2));
	settle(c);
	clean(c, "CALLER blocks");
	cache_end(c);
}

/* ---- refused ---- */

static bool refused_one(gpc *c, gpc_block from, gpc_block to, int err, const char *word,
			const char *what)
{
	struct gpc_move m = { .from = from, .to = to };
	gpc_transfer t = 77;
	bool good = refused(gpc_copy(c, &m, 1, 0, NULL, &t), err, "%s", what);

	good &= ok(strstr(gpc_last_error(), word), "and told so: %s", gpc_last_error());
	return good & is_int(t, 77, "no name for it");
}

static void test_refused(void)
{
	gpc *c = tiers(8, 8), *d;
	struct gpc_pool p = pool_of(GPC_RAM, 4, 3), odd = pool_of(GPC_RAM, 4, 4);
	struct gpc_memory m = { .size = sizeof(m),
				.block_bytes = BYTES_IMAGE,
				.fingerprint = { 9 } };
	struct gpc_move two[2];
	gpc_block b[4], v, r, x, y, none;
	int bare = pool_new(c, GPC_RAM, 4, 2, 0), print, size;

	print = must(gpc_pool_make(c, &p, &m, -1));
	m = (struct gpc_memory){ .size = sizeof(m), .block_bytes = BYTES_IMAGE / 2 };
	size = must(gpc_pool_make(c, &odd, &m, -1));
	bytes_chain(c, VRAM, 1, 1, &v, true);
	bytes_chain(c, VRAM, 2, 1, &none, false);
	must(gpc_reserve(c, RAM, 1, &r, NULL, 0, 60000));
	must(gpc_reserve(c, bare, 1, b, NULL, 0, 60000));
	must(gpc_reserve(c, print, 1, &x, NULL, 0, 60000));
	must(gpc_reserve(c, size, 1, &y, NULL, 0, 60000));
	refused_one(c, v, GPC_BLOCK(9, 0), EINVAL, "0x9000000", "a block of no pool");
	refused_one(c, GPC_BLOCK(VRAM, 8), r, EINVAL, "moves[0].from", "a slot beyond its pool");
	refused_one(c, -1, r, EINVAL, "moves[0].from", "nothing, to something");
	refused_one(c, v, b[0], ENOENT, "gpc_pool_make", "a pool without memory");
	refused_one(c, v, x, EPROTO, "fingerprint", "images of another fingerprint");
	refused_one(c, v, y, EPROTO, "6144 bytes", "images of another size");
	refused_one(c, v, v, EPERM, "moves[0].to", "over a reference");
	refused_one(c, v, GPC_BLOCK(RAM, 7), EPERM, "0x7,", "into a block of nobody");
	refused_one(c, none, r, EPERM, "moves[0].from", "out of a block that is not held");
	two[0] = (struct gpc_move){ .from = v, .to = r };
	two[1] = (struct gpc_move){ .from = none, .to = r };
	bytes_write(c, r, 50, BYTES_IMAGE);
	refused(gpc_copy(c, two, 2, 0, NULL, NULL), EPERM, "one good, one not");
	ok(bytes_are(c, r, 50, BYTES_IMAGE), "then none is copied");
	two[1] = (struct gpc_move){ .from = r, .to = r };
	refused(gpc_copy(c, two, 2, 0, NULL, NULL), EINVAL, "two pools to copy from");
	two[1] = (struct gpc_move){ .from = v, .to = x };
	refused(gpc_copy(c, two, 2, 0, NULL, NULL), EINVAL, "two to copy to");
	refused(gpc_copy(c, NULL, 1, 0, NULL, NULL), EINVAL, "no moves");
	refused(gpc_copy(c, two, 1, GPC_COPY, NULL, NULL), EINVAL, "a flag");
	refused(gpc_copy(NULL, two, 1, 0, NULL, NULL), EINVAL, "no handle");
	is_int(gpc_copy(c, NULL, 0, 0, NULL, NULL), 0, "no moves at all are done");
	d = cache_attach(0, 0);
	two[0].from = GPC_BLOCK(VRAM, 0);
	refused(gpc_copy(d, two, 1, 0, NULL, NULL), EPERM, "another peer's reservation");
	must(gpc_close(d));
	must(gpc_release(c, (gpc_block[5]){ v, r, b[0], x, y }, 5));
	end(c, "refused");
}

/* ---- what a driver refuses ---- */

static void test_fails(void)
{
	gpc *c = tiers(8, 8);
	gpc_block b[4], r[4];
	struct gpc_move m[4];
	gpc_transfer t = 0;
	int i;

	bytes_chain(c, VRAM, 1, 4, b, true);
	must(gpc_reserve(c, RAM, 4, r, NULL, 0, 60000));
	for (i = 0; i < 4; i++) { /* no two neighbours on both sides: an operation each, or more */
		m[i] = (struct gpc_move){ .from = b[i], .to = r[i * 2 % 4 + i / 2] };
		bytes_write(c, m[i].to, 70, BYTES_IMAGE);
	}
	device_host_copy_fail_at = 3;
	refused(gpc_copy(c, m, 4, 0, NULL, &t), EIO, "the third operation is refused");
	is_int(device_host_copy_fail_at, 0, "it was that one");
	ok(t, "what was enqueued has a name");
	refused(gpc_transfer_wait(c, t, 5000), EIO, "which ends in an error");
	ok(!bytes_are(c, m[0].to, 70, BYTES_IMAGE), "the first one's bytes have come");
	ok(bytes_are(c, m[3].to, 70, BYTES_IMAGE), "the last one's have not");
	is_int(bytes_copy(c, m, 4), 0, "the same again");
	for (i = 0; i < 4 && bytes_are(c, m[i].to, 1 + (uint64_t)i, BYTES_IMAGE); i++)
		;
	is_int(i, 4, "ends well");
	must(gpc_release(c, b, 4));
	must(gpc_release(c, r, 4));
	end(c, "refused by the device");
}

/* ---- many at once, and late ---- */

static void test_in_flight(void)
{
	gpc *c = tiers(8, 8);
	struct gpc_move m;
	gpc_transfer t[GPC_TRANSFERS], x = 5;
	struct pollfd p = { .events = POLLIN };
	int i, n = 0;

	bytes_chain(c, VRAM, 1, 1, &m.from, true);
	must(gpc_reserve(c, RAM, 1, &m.to, NULL, 0, 60000));
	device_host_delay_us = 200;
	for (i = 0; i < GPC_TRANSFERS; i++)
		n += gpc_copy(c, &m, 1, 0, NULL, &t[i]) == 0;
	is_int(n, GPC_TRANSFERS, "64 copies at once");
	device_host_delay_us = 20000;
	while (gpc_copy(c, &m, 1, 0, NULL, &x) == 0)
		n++;
	refused(gpc_copy(c, &m, 1, 0, NULL, &x), EAGAIN, "no more than are under way");
	p.fd = must(gpc_transfer_fd(c, t[GPC_TRANSFERS - 1]));
	is_int(poll(&p, 1, 5000), 1, "poll tells of the end of the last");
	is_int(gpc_transfer_wait(c, t[GPC_TRANSFERS - 1], 0), 0, "which has ended");
	close(p.fd);
	is_int(gpc_transfer_wait(c, GPC_TRANSFER_ALL, 20000), 0, "all have");
	device_host_delay_us = 0;
	is_int(bytes_copy(c, &m, 1), 0, "and there is room again");
	ok(bytes_are(c, m.to, 1, BYTES_IMAGE), "for bytes that are right");
	must(gpc_release(c, (gpc_block[2]){ m.from, m.to }, 2));
	end(c, "in flight");
}

/* Rule B11: the pools go while copies are queued; rule B12: close waits for these. */
static void test_late(void)
{
	gpc *c = tiers(8, 8), *d = cache_attach(0, 0);
	struct gpc_move m = { 0 };
	gpc_transfer t;
	void *base;
	uint64_t bytes;
	uint8_t *at;

	bytes_chain(c, VRAM, 1, 1, &m.from, true);
	serve_begin(c);
	must(gpc_reserve(d, RAM, 1, &m.to, NULL, 0, 60000));
	must(gpc_acquire(d, 0, (gpc_key[1]){ key_of(c, 1) }, 1, &m.from, 0));
	bytes_write(d, m.to, 70, BYTES_IMAGE);
	at = bytes_place(c, m.to, 0);
	device_host_delay_us = 50000;
	must(gpc_copy(d, &m, 1, 0, NULL, &t));
	must(gpc_release(d, (gpc_block[2]){ m.from, m.to }, 2));
	must(gpc_pool_clear(d, RAM, 0, GPC_REMOVE, 0));
	must(gpc_release(c, &m.from, 1));
	is_int(gpc_transfer_wait(d, t, 0), -EAGAIN, "the copy has yet to begin");
	is_int(gpc_pool_unmap(d, RAM), 0, "the caller unmaps the pool, which has gone");
	is_int(gpc_transfer_wait(d, t, 5000), 0, "the copy ends");
	is_int(at[0], bytes_at(1, 0), "where it was to go");
	refused(gpc_pool_map(d, RAM, 0, &base, &bytes), ENOENT, "there is no such pool");
	refused(gpc_copy(d, &m, 1, 0, NULL, &t), ESTALE, "nor such blocks");
	serve_end();
	device_host_delay_us = 0;
	must(gpc_close(d));
	cache_end(c);
}

static void test_close(void)
{
	gpc *c = tiers(8, 8), *d = cache_attach(0, 0);
	struct gpc_move m = { 0 };
	uint8_t *at;
	int fd;
	gpc_transfer t;
	struct pollfd p = { .events = POLLIN };

	bytes_chain(c, VRAM, 1, 1, &m.from, true);
	serve_begin(c);
	must(gpc_reserve(d, RAM, 1, &m.to, NULL, 0, 60000));
	must(gpc_acquire(d, 0, (gpc_key[1]){ key_of(c, 1) }, 1, &m.from, 0));
	bytes_write(d, m.to, 70, BYTES_IMAGE);
	at = bytes_place(c, m.to, 0);
	device_host_delay_us = 30000;
	must(gpc_copy(d, &m, 1, 0, NULL, &t));
	fd = must(gpc_transfer_fd(d, t));
	must(gpc_close(d));
	is_int(at[0], bytes_at(1, 0), "close returns when the copy has ended");
	p.fd = fd;
	is_int(poll(&p, 1, 0), 1, "and leaves no descriptor that never tells");
	close(fd);
	device_host_delay_us = 0;
	serve_end();
	must(gpc_release(c, &m.from, 1));
	must(gpc_pool_unmap(c, RAM));
	end(c, "closed");
}

static int body(void)
{
	test_demote();
	test_promote();
	test_spaces();
	test_ram();
	test_caller();
	test_refused();
	test_fails();
	test_in_flight();
	test_late();
	test_close();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
