/* SPDX-License-Identifier: Apache-2.0 */
/* Histograms: what is counted, in which cell, over departures and writers.
 * Tests: lib/index/table/meter.c lib/look/meter.c lib/index/segment/meter.h lib/index/segment/shm_meter.h */
#include "t/lib/fetch.h"

#include "index/segment/meter.h"

static struct gpc_histogram histogram_of(gpc *c, int what, int peer)
{
	struct gpc_histogram h = { .size = sizeof(h) };

	must(gpc_histogram_get(c, what, peer, &h));
	return h;
}

static long count_of(gpc *c, int what)
{
	return (long)histogram_of(c, what, -1).count;
}

static void test_cells(void)
{
	is_int((long)meter_cell(0), 0, "nothing is in the first cell");
	is_int((long)meter_cell(1), 0, "and one");
	is_int((long)meter_cell(2), 1, "two");
	is_int((long)meter_cell(3), 2, "three is more than two");
	is_int((long)meter_cell(4), 2, "four");
	is_int((long)meter_cell(1ull << 29), 29, "the last bound");
	is_int((long)meter_cell((1ull << 29) + 1), 30, "more than all bounds");
	is_int((long)meter_cell(UINT64_MAX), 30, "the largest of all");
	is_int((long)meter_cell_short(1001), 1, "a little more than a microsecond");
}

/* Steps of the recency, so that blocks have other ages than those before. */
static void let_pass(gpc *c, uint64_t ns)
{
	uint64_t until = clock_ns() + ns;

	while (clock_ns() < until)
		must(gpc_writer_serve(c, 1));
}

static void test_evicted(void)
{
	gpc *c = cache_new(8, 0);
	struct gpc_histogram age, idle;
	double first_age, first_idle;
	gpc_block b[8];
	uint64_t born, used;
	uint32_t i;

	chain_make(c, 0, 4, 1, NULL);
	let_pass(c, 30 * NS_PER_MS);
	born = clock_ns();
	chain_make(c, 0, 1, 1, NULL);
	chain_make(c, 0, 2, 1, NULL);
	is_int(must(gpc_evict(c, 0, 1, b, GPC_PEEK, 60000)), 1, "they wait for their turn");
	let_pass(c, 70 * NS_PER_MS);
	is_int(must(gpc_evict(c, 0, 1, b, 0, 60000)), 1, "one goes before them");
	age = histogram_of(c, GPC_AGE_EVICTED, -1);
	ok(age.count == 1 && age.sum >= 0.095, "it was older than they are: %g s", age.sum);
	idle = histogram_of(c, GPC_IDLE_EVICTED, -1);
	first_age = age.sum;
	first_idle = idle.sum;
	used = clock_ns();
	touch(c, 2);
	touch(c, 1);
	let_pass(c, 70 * NS_PER_MS);
	is_int(must(gpc_evict(c, 0, 2, b, 0, 60000)), 2, "two are evicted");
	age = histogram_of(c, GPC_AGE_EVICTED, -1);
	idle = histogram_of(c, GPC_IDLE_EVICTED, -1);
	is_int((long)age.count, 3, "both are counted by age");
	is_int((long)idle.count, 3, "and by the time since their use");
	is_int((long)age.first_ns, 1000000, "in milliseconds");
	is_int((long)age.cells, 31, "of 31 cells");
	age.sum -= first_age;
	idle.sum -= first_idle;
	ok(age.sum >= 2 * 0.120 && age.sum <= 2e-9 * (double)(clock_ns() - born) + 0.001,
	   "the age is that since they were published: %g s", age.sum);
	ok(idle.sum >= 2 * 0.045 && idle.sum <= 2e-9 * (double)(clock_ns() - used) + 0.001,
	   "the other since they were touched: %g s", idle.sum);
	for (i = 0; i < 6; i++)
		is_int((long)(age.cell[i] + idle.cell[i]), 0, "nothing is below 33 ms: cell %u", i);
	is_int(count_of(c, GPC_REUSE_GAP), 2, "both were used while they waited for their turn");
	ok(histogram_of(c, GPC_REUSE_GAP, -1).sum >= 2 * 0.045, "after a pause");
	chain_make(c, 0, 3, 1, b);
	must(gpc_drop(c, b, 1, NULL, 0, 0));
	must(gpc_writer_serve(c, 1));
	is_int(count_of(c, GPC_AGE_EVICTED), 3, "what is dropped is not evicted");
	cache_end(c);
}

static void test_next_writer(void)
{
	gpc *c = cache_new(8, 0), *d = cache_attach(0, 0);
	gpc_block b;

	is_int(count_of(c, GPC_TAKEOVER), 0, "the first writer takes over from nobody");
	chain_make(c, 0, 1, 2, NULL);
	is_int(must(gpc_evict(c, 0, 1, &b, 0, 60000)), 1, "one goes");
	must(gpc_writer_drop(c));
	must(gpc_writer_take(d, 0, 0));
	is_int(count_of(c, GPC_TAKEOVER), 1, "the second one does");
	ok(histogram_of(c, GPC_TAKEOVER, -1).sum > 0, "which takes time");
	is_int(count_of(c, GPC_AGE_EVICTED), 1, "what the first one counted stays");
	is_int(must(gpc_evict(d, 0, 1, &b, 0, 60000)), 1, "the other one goes");
	is_int(count_of(c, GPC_AGE_EVICTED), 2, "and is counted, though its birth is unknown");
	ok(histogram_of(c, GPC_AGE_EVICTED, -1).sum < 60, "since this writer began");
	must(gpc_close(d));
	must(gpc_close(c));
	must(gpc_unlink(cache_name, cache_dir));
}

static void test_round_trips(void)
{
	gpc *c = cache_new(8, 0), *d = cache_attach(0, 0);
	int seat = info_of(d).peer;
	struct gpc_histogram h = { .size = sizeof(h) };
	long before;
	gpc_block b;

	is_int((long)histogram_of(c, GPC_ROUND_TRIP, seat).count, 0, "who has asked for nothing");
	serve_begin(c);
	is_int(must(gpc_reserve(d, 0, 1, &b, NULL, 0, 60000)), 1, "a reservation");
	is_int((long)histogram_of(c, GPC_ROUND_TRIP, seat).count, 1, "is one round trip");
	ok(histogram_of(c, GPC_ROUND_TRIP, seat).sum > 0, "that takes time");
	is_int((long)histogram_of(c, GPC_ROUND_TRIP, seat).first_ns, 1000, "in microseconds");
	must(gpc_release(d, &b, 1));
	serve_end();
	before = count_of(c, GPC_ROUND_TRIP);
	must(gpc_close(d));
	while (gpc_stats_get(c, seat, &(struct gpc_stats){ .size = 100 }) == 0)
		must(gpc_writer_serve(c, 1));
	refused(gpc_histogram_get(c, GPC_ROUND_TRIP, seat, &h), ENOENT, "an empty seat");
	ok(count_of(c, GPC_ROUND_TRIP) >= before, "its round trips count when it has left");
	cache_end(c);
}

static void test_copies(void)
{
	gpc *c = bytes_cache();
	int ram = bytes_ram(c, 16, 0, 0), vram = bytes_vram(c, 16, 0, ram, 0);
	struct gpc_histogram h;
	gpc_transfer t = 0;
	gpc_block b[8];
	gpc_key k[9];

	bytes_chain(c, vram, 1, 8, b, false);
	is_int(fetch_spill(c, vram, ram, NULL, 3, 0), 3, "three are spilled");
	settle(c);
	h = histogram_of(c, GPC_COPY_VRAM_RAM, -1);
	is_int((long)h.count, 1, "by one transfer");
	is_int((long)h.blocks, 3, "of three blocks");
	is_int((long)h.bytes, (long)stats_of(c, -1).spilled_bytes, "and their bytes");
	ok(h.sum > 0 && h.sum < 60, "that takes time");
	chain_keys(c, 1, 8, k);
	is_int(gpc_fetch(c, vram, k + 1, 8, b, NULL, 0, NULL, 1000, &t), 8, "all are fetched");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "to the end");
	h = histogram_of(c, GPC_COPY_RAM_VRAM, -1);
	is_int((long)(h.count * 10 + h.blocks), 13, "one transfer of three blocks the other way");
	is_int((long)h.bytes, (long)stats_of(c, -1).fetched_bytes, "and their bytes");
	is_int(count_of(c, GPC_COPY_VRAM_VRAM) + count_of(c, GPC_COPY_RAM_RAM), 0,
	       "none between the same tiers");
	must(gpc_release(c, b, 8));
	fetch_end(c, "histograms");
}

static void test_arguments(void)
{
	gpc *c = cache_new(8, 0);
	struct gpc_histogram h = { .size = sizeof(h) };

	refused(gpc_histogram_get(c, 0, -1, &h), EINVAL, "no histogram");
	refused(gpc_histogram_get(c, GPC_COPY_RAM_RAM + 1, -1, &h), EINVAL, "nor this");
	refused(gpc_histogram_get(c, GPC_TAKEOVER, 0, &h), EINVAL, "of a peer");
	refused(gpc_histogram_get(c, GPC_ROUND_TRIP, -2, &h), EINVAL, "below all seats");
	refused(gpc_histogram_get(c, GPC_ROUND_TRIP, 1000, &h), EINVAL, "behind all seats");
	refused(gpc_histogram_get(c, GPC_ROUND_TRIP, -1, NULL), EINVAL, "no place for it");
	h.size = 0;
	refused(gpc_histogram_get(c, GPC_ROUND_TRIP, -1, &h), EINVAL, "no size");
	cache_end(c);
}

static int body(void)
{
	test_cells();
	test_evicted();
	test_next_writer();
	test_round_trips();
	test_copies();
	test_arguments();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
