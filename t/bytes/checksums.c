/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums of images from end to end: a spill stores them, a fetch compares; what has changed
 * meanwhile is never committed, goes with its descendants, is counted and named.  VRAM is that of
 * the host device.
 * Tests: lib/bytes/payload/sum.c lib/bytes/payload/bring_copy.c lib/bytes/mapping/sums.c lib/bytes/device/host_sum.c
 *   lib/index/writer/transfer_decide.c */
#include "t/lib/sums.h"

/* ---- what is stored ---- */

static void test_stored(void)
{
	struct gpc_pool_memory seen = { .size = sizeof(seen) };
	gpc *c = tiers(0);
	int i, known = 0;

	must(gpc_pool_memory_get(c, RAM, &seen, NULL, 0));
	is_int(seen.checksums, 1, "RAM keeps checksums");
	must(gpc_pool_memory_get(c, VRAM, &seen, NULL, 0));
	is_int(seen.checksums, 0, "VRAM none");
	spill_chain(c, 0);
	for (i = 1; i <= CHAIN; i++) {
		gpc_block b = find(c, (uint64_t)i);
		uint8_t image[BYTES_IMAGE];
		struct shm_trailer *t;
		gpc_key k = key_of(c, (uint64_t)i);
		uint32_t at;

		for (at = 0; at < BYTES_IMAGE; at++)
			image[at] = *bytes_place(c, b, at);
		t = trailer_of(c, b);
		known += t && t->crc == crc32c(0, image, BYTES_IMAGE) && t->life == life_of(c, b) &&
			 t->key[0] == k.w[0] && t->key[1] == k.w[1];
	}
	is_int(known, CHAIN, "each has its sum, life and key");
	fetch_end(c, "stored");
}

/* ---- damage ---- */

/* Bits of these numbers are flipped in RAM; `space` is RAM's.  The first of them counts. */
static void test_bad(uint32_t space, const int *bad, int nbad, uint64_t at, const char *what)
{
	gpc *c = tiers(space);
	gpc_block b[CHAIN], names;
	gpc_transfer t;
	int results[CHAIN], i, first = bad[0], wrong = 0;
	char want[64];

	spill_chain(c, space ? GPC_COPY : 0);
	if (space)
		must(gpc_pool_clear(c, VRAM, 0, 0, 60000));
	settle(c);
	names = in_space(c, (uint64_t)first, space);
	for (i = 0; i < nbad; i++)
		flip(c, in_space(c, (uint64_t)bad[i], space), at);
	nsaid = 0;
	is_int(fetch_all(c, b, 0, &t), CHAIN, "%s: all of it is on its way", what);
	is_int(gpc_transfer_wait(c, t, 5000), -EBADMSG, "and ends: %s", gpc_last_error());
	is_int(gpc_transfer_wait(c, t, 0), -EBADMSG, "as whoever asks again is told");
	is_int(gpc_transfer_results(c, t, results, CHAIN), CHAIN, "each block has a result");
	for (i = 0; i < CHAIN; i++)
		wrong += results[i] != (i + 1 == first ? -EBADMSG : -ESTALE);
	is_int(wrong, 0, "the first bad one -EBADMSG, the others -ESTALE");
	for (i = 1; i <= CHAIN; i++)
		wrong += (GPC_POOL(find(c, (uint64_t)i)) == VRAM && find(c, (uint64_t)i) >= 0);
	is_int(wrong, 0, "nothing was committed");
	is_int(left(c, space), space ? CHAIN - 1 : first - 1,
	       space ? "the bad one has gone"
		     : "the bad one has gone, with what cannot be without it");
	is_int((long long)stats_of(c, -1).bad, 1, "one is counted");
	is_int((long long)stats_of(c, -1).fetched, 0, "and none as fetched");
	snprintf(want, sizeof(want), "block 0x%08x of pool %d", (unsigned)names, RAM);
	ok(nsaid == 1 && strstr(said[0], want), "named once: %s", nsaid ? said[0] : "nothing");
	must(gpc_release(c, b, CHAIN));
	is_int(fetch_all(c, b, 0, &t), first > 1 ? first - 1 : 0,
	       "the next fetch is of what is good");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "and ends well");
	is_int(fetch_right(c, b, (uint32_t)first - 1, 1), first - 1, "every byte");
	must(gpc_release(c, b, (uint32_t)first - 1));
	fetch_end(c, what);
}

/* ---- streams ---- */

/* What the stream still waits for comes before the sums: those of a spill are of bytes that are
 * written first, those of a fetch of bytes that are copied first. */
struct writes {
	struct stream_job job;
	gpc *c;
	gpc_block b[CHAIN];
};

static void writes_run(struct stream_job *job)
{
	struct writes *w = (struct writes *)job;
	int i;

	usleep(30000);
	for (i = 0; i < CHAIN; i++)
		bytes_write(w->c, w->b[i], (uint64_t)i + 1, BYTES_IMAGE);
}

static void test_streams(void)
{
	struct writes *w = calloc(1, sizeof(*w));
	void *stream = host_stream_open(), *other = host_stream_open();
	gpc_block b[CHAIN], leaf_first[CHAIN];
	gpc *c = tiers(0);
	gpc_transfer t;
	gpc_key k[CHAIN + 1];
	int i;

	chain_keys(c, 1, CHAIN, k);
	must(gpc_reserve(c, VRAM, CHAIN, b, NULL, 0, 60000));
	must(gpc_publish(c, NULL, k + 1, b, CHAIN, NULL, 0, 60000));
	must(gpc_release(c, b, CHAIN));
	w->job.run = writes_run;
	w->c = c;
	memcpy(w->b, b, sizeof(b));
	for (i = 0; i < CHAIN; i++)
		leaf_first[i] = b[CHAIN - 1 - i];
	must(stream_submit_to(stream, &w->job));
	is_int(gpc_spill(c, VRAM, RAM, leaf_first, CHAIN, NULL, 0, stream, 5000, &t), CHAIN,
	       "spilled behind who writes");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "committed");
	device_host_delay_us = 20000;
	is_int(gpc_fetch(c, VRAM, k + 1, CHAIN, b, NULL, GPC_VERIFY_FIRST, other, 5000, &t), CHAIN,
	       "fetched by another stream");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "the sums are of what was written and copied");
	device_host_delay_us = 0;
	is_int(fetch_right(c, b, CHAIN, 1), CHAIN, "every byte");
	must(gpc_release(c, b, CHAIN));
	host_stream_close(stream);
	host_stream_close(other);
	fetch_end(c, "streams");
}

/* ---- verified first ---- */

static void test_verify_first(void)
{
	gpc *c = tiers(0);
	struct gpc_fetch_options opt = { .size = sizeof(opt) };
	gpc_block last[CHAIN + 2], own[2];
	int results[CHAIN + 2], i;
	gpc_key k[CHAIN + 3];
	gpc_transfer t = 0;

	opt.results = results;
	spill_chain(c, 0);
	chain_keys(c, 1, CHAIN + 2, k);
	/* two more, which an engine writes to RAM itself */
	must(gpc_reserve(c, RAM, 2, own, NULL, 0, 60000));
	for (i = 0; i < 2; i++)
		bytes_write(c, own[i], CHAIN + 1 + (uint64_t)i, BYTES_IMAGE);
	is_int(gpc_publish(c, k + CHAIN, k + CHAIN + 1, own, 2, NULL, 0, -1), 2,
	       "an engine's own blocks");
	must(gpc_release(c, own, 2));
	{
		gpc_block all[CHAIN + 2];

		is_int(gpc_fetch(c, VRAM, k + 1, CHAIN + 2, all, &opt, GPC_VERIFY_FIRST, NULL, 5000,
				 &t),
		       CHAIN, "verified first: those that have a checksum");
		is_int(results[CHAIN], -EBADMSG, "and why not the next");
		is_int(gpc_transfer_wait(c, t, 5000), 0, "they are good");
		is_int(fetch_right(c, all, CHAIN, 1), CHAIN, "every byte");
		must(gpc_release(c, all, CHAIN));
		is_int(gpc_fetch(c, VRAM, k + 1, CHAIN + 2, all, &opt, 0, NULL, 5000, &t),
		       CHAIN + 2, "without: all of them");
		is_int(gpc_transfer_wait(c, t, 5000), 0, "unverified ones too");
		is_int(fetch_right(c, all, CHAIN + 2, 1), CHAIN + 2, "every byte");
		must(gpc_release(c, all, CHAIN + 2));
	}
	is_int(fetch_spill(c, VRAM, RAM, NULL, 4, 0), 4, "spilled, they are verified from then on");
	for (i = CHAIN + 1; i <= CHAIN + 2; i++) {
		gpc_block f = find(c, (uint64_t)i);

		ok(trailer_of(c, f)->life == life_of(c, f), "number %d has a checksum", i);
	}
	flip(c, find(c, CHAIN + 1), 5);
	is_int(gpc_fetch(c, VRAM, k + 1, CHAIN + 2, last, &opt, GPC_VERIFY_FIRST, NULL, 5000, &t),
	       CHAIN + 2, "a bad one is on its way");
	is_int(gpc_transfer_wait(c, t, 5000), -EBADMSG, "and is found");
	must(gpc_release(c, last, CHAIN + 2));
	fetch_end(c, "verified first");
}

/* A slot that was spilled to, then freed, and written by an engine: the old sum says nothing. */
static void test_another_life(void)
{
	gpc *c = tiers(0);
	gpc_key k[CHAIN + 1];
	gpc_block b[CHAIN], again[32];
	gpc_transfer t;
	int i, n;

	spill_chain(c, 0);
	must(gpc_pool_clear(c, RAM, 0, 0, 60000));
	settle(c);
	n = must(gpc_reserve(c, RAM, 32, again, NULL, GPC_PARTIAL, 60000));
	chain_keys(c, 1, CHAIN, k);
	for (i = 0; i < CHAIN; i++)
		bytes_write(c, again[i], 1 + (uint64_t)i, BYTES_IMAGE);
	is_int(must(gpc_publish(c, k, k + 1, again, CHAIN, NULL, 0, -1)), CHAIN,
	       "the same keys in slots that had been spilled to");
	must(gpc_release(c, again, (uint32_t)n));
	flip(c, find(c, 3), 77); /* the engine's own affair */
	is_int(fetch_all(c, b, 0, &t), CHAIN, "they are fetched");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "unverified");
	is_int(fetch_right(c, b, CHAIN, 1), CHAIN - 1, "as they are");
	must(gpc_release(c, b, CHAIN));
	fetch_end(c, "another life");
}

/* ---- without ---- */

static void test_none(void)
{
	gpc *c = listening();
	struct gpc_pool p = pool_of(GPC_RAM, 32, 0);
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = BYTES_IMAGE, .no_checksums = 1 };
	struct gpc_pool_memory seen = { .size = sizeof(seen) };
	gpc_block b[CHAIN];
	gpc_transfer t;

	must(gpc_pool_make(c, &p, &m, -1));
	bytes_vram(c, 32, 0, RAM, 0);
	must(gpc_pool_memory_get(c, RAM, &seen, NULL, 0));
	is_int(seen.checksums, 0, "no checksums are kept");
	spill_chain(c, 0);
	ok(!trailer_of(c, find(c, 1)), "there is no trailer");
	flip(c, find(c, 3), 9);
	is_int(fetch_all(c, b, GPC_VERIFY_FIRST, &t), 0, "nothing can be verified");
	is_int(fetch_all(c, b, 0, &t), CHAIN, "nothing is found");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "nothing is wrong");
	is_int(fetch_right(c, b, CHAIN, 1), CHAIN - 1, "bytes are as they are");
	must(gpc_release(c, b, CHAIN));
	fetch_end(c, "no checksums");
}

/* ---- RAM to RAM ---- */

static void test_carried(bool to_keeps)
{
	gpc *c = tiers(0);
	struct gpc_pool p = pool_of(GPC_RAM, 32, 1);
	struct gpc_memory m = { .size = sizeof(m),
				.block_bytes = BYTES_IMAGE,
				.no_checksums = !to_keeps };
	gpc_block b[CHAIN], at;
	gpc_key k[CHAIN + 1];
	gpc_transfer t = 0;
	int far, i, known = 0;

	p.flags = GPC_POOL_UNCHAINED;
	far = must(gpc_pool_make(c, &p, &m, -1));
	spill_chain(c, 0);
	chain_keys(c, 1, CHAIN, k);
	is_int(gpc_fetch(c, far, k + 1, CHAIN, b, NULL, GPC_VERIFY_FIRST, NULL, 5000, &t), CHAIN,
	       "RAM to RAM %s checksums", to_keeps ? "with" : "without");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "is verified");
	for (i = 0; to_keeps && i < CHAIN; i++)
		known += trailer_of(c, b[i])->life == life_of(c, b[i]) &&
			 trailer_of(c, b[i])->crc ==
				 trailer_of(c, in_space(c, 1 + (uint64_t)i, 0))->crc;
	is_int(known, to_keeps ? CHAIN : 0, "sums go along");
	must(gpc_release(c, b, CHAIN));
	must(gpc_pool_clear(c, far, 0, 0, 60000));
	settle(c);
	at = in_space(c, 4, 0);
	flip(c, at, BYTES_IMAGE - 1);
	is_int(gpc_fetch(c, far, k + 1, CHAIN, b, NULL, 0, NULL, 5000, &t), CHAIN, "one is bad");
	is_int(gpc_transfer_wait(c, t, 5000), -EBADMSG, "and is found");
	is_int(left(c, 0), 3, "it has gone, with its descendants");
	is_int(left(c, 1), 0, "nothing was committed");
	must(gpc_release(c, b, CHAIN));
	fetch_end(c, "carried");
}

/* ---- the writer goes ---- */

/* The copies end when nobody is the writer: the next one decides by what the device has said. */
static void test_takeover(void)
{
	gpc *c, *d;
	gpc_block b[CHAIN];
	gpc_transfer t;

	cache_thread = false;
	c = tiers(0);
	spill_chain(c, 0);
	flip(c, find(c, 5), 100);
	d = cache_attach(0, 0);
	device_host_delay_us = 3000;
	serve_begin(c);
	is_int(fetch_all(d, b, 0, &t), CHAIN, "on its way");
	serve_end();
	must(gpc_writer_drop(c));
	device_host_delay_us = 0;
	is_int(gpc_transfer_wait(d, t, 2000), -ENOTCONN, "done, and nobody decides");
	must(gpc_writer_take(d, 0, 60000));
	is_int(gpc_transfer_wait(d, t, 5000), -EBADMSG, "the next writer finds it bad");
	is_int(left(d, 0), 4, "and drops it");
	is_int((long long)stats_of(d, -1).bad, 1, "counted once");
	must(gpc_release(d, b, CHAIN));
	settle(d);
	done(d);
	clean(d, "after the takeover");
	must(gpc_close(c));
	cache_end(d);
}

/* Two have the same source under way: both are told, it is dropped and counted once. */
static void test_two(void)
{
	gpc *c, *d;
	gpc_block b[CHAIN], e[CHAIN];
	gpc_transfer t, u;
	struct gpc_pool p = pool_of(GPC_VRAM, 32, 2);
	struct gpc_memory m = { .size = sizeof(m), .device = bytes_device };
	struct gpc_run run[2];
	gpc_key k[CHAIN + 1];
	int far;

	cache_thread = true;
	c = tiers(1);
	bytes_layers(run, 32);
	m.nruns = 2;
	m.runs = run;
	p.flags = GPC_POOL_OWNED;
	far = must(gpc_pool_make(c, &p, &m, -1));
	d = cache_attach(0, 0);
	spill_chain(c, GPC_COPY);
	must(gpc_pool_clear(c, VRAM, 0, 0, 60000));
	flip(c, in_space(c, 6, 1), 0);
	chain_keys(c, 1, CHAIN, k);
	device_host_delay_us = 2000;
	is_int(fetch_all(c, b, 0, &t), CHAIN, "one fetches");
	is_int(gpc_fetch(d, far, k + 1, CHAIN, e, NULL, 0, NULL, 5000, &u), CHAIN, "another, too");
	device_host_delay_us = 0;
	is_int(gpc_transfer_wait(c, t, 5000), -EBADMSG, "one is told");
	is_int(gpc_transfer_wait(d, u, 5000), -EBADMSG, "the other, too");
	is_int((long long)stats_of(c, -1).bad, 1, "it is counted once");
	is_int(left(c, 1), CHAIN - 1, "and what follows it stays, as its pool takes gaps");
	must(gpc_release(c, b, CHAIN));
	must(gpc_release(d, e, CHAIN));
	done(d);
	must(gpc_close(d));
	fetch_end(c, "two");
}

static void tests(void)
{
	test_stored();
	test_bad(0, (int[]){ 3 }, 1, 0, "moves, one bit");
	test_bad(0, (int[]){ 4, 6, 7 }, 3, BYTES_IMAGE - 1, "moves, several");
	test_bad(1, (int[]){ 1 }, 1, 700, "copies, the root");
	test_bad(1, (int[]){ CHAIN }, 1, 1000, "copies, the leaf");
	test_streams();
	test_verify_first();
	test_another_life();
	test_none();
	test_carried(true);
	test_carried(false);
}

static int body(void)
{
	cache_both(tests);
	test_takeover();
	test_two();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
