/* SPDX-License-Identifier: Apache-2.0 */
/* bytes/runs - which layouts are possible: those of engines are, fields out of range and pieces that
 * overlap are not, and what is said of small ones is what counting their bytes says.
 * Tests: lib/bytes/memfile/layout.c */
#include "config.h"

#include <errno.h>

#include "index/base/base.h"
#include "gpc.h"
#include "bytes/memfile/memfile.h"
#include "t/lib/crew.h"
#include "t/lib/layouts.h"

#define SLOTS (1u << 24)
#define MOST  ((uint64_t)1 << 62)

static struct runs l;
static uint64_t part[SHM_PARTS], image;

static int check(uint32_t slots)
{
	return memory_check_runs(l.run, l.nruns, l.nparts, slots, part, &image);
}

/* ---- engines ---- */

static void test_engines(void)
{
	int i;

	for (i = 0; i < LAYOUTS; i++) {
		uint64_t each = i == MLA ? 20480 : 32768;

		layout_make(&l, (enum layout_name)i, 61, 16384, SLOTS);
		is_int(check(SLOTS), 0, "2^24 blocks, %s", layout_name[i]);
		is_int(image, 61 * each, "the image is the sum of its pieces");
		if (i != PADDED)
			is_int(part[0], 61 * each * SLOTS / l.nparts, "and fills the parts");
	}
	layout_make(&l, PADDED, 2, 1000, 5);
	is_int(check(5), 0, "padded");
	is_int(part[0], 512 + 3 * 8192 + 4 * 1064 + 1000, "without the last padding");
	layout_make(&l, LAYER_PARTS, 160, 4096, 1000);
	part[160] = 4711;
	is_int(check(1000), 0, "160 parts");
	is_int(part[159], 8192000, "the last one too");
	is_int(part[160], 4711, "no more than there are");
	is_int(memory_check_runs(l.run, l.nruns, 162, 1000, part, &image), 0, "other parts");
	is_int(part[160], 0, "that no run is in need nothing");
	is_int(memory_check_runs(l.run, l.nruns, 160, 1000, NULL, &image), 0, "nobody asks");
}

/* The dearest that is allowed: 512 runs between each other, in one part. */
static void test_cost(void)
{
	uint64_t i, before, ns;

	layout_make(&l, LISTED, 256, 4096, SLOTS);
	before = clock_ns();
	is_int(check(SLOTS), 0, "512 tensors in a row");
	ns = clock_ns() - before;
	diag("%llu us", (unsigned long long)ns / 1000);
	for (i = 0; i < l.nruns; i++) {
		l.run[i].offset = i * 4096;
		l.run[i].slot_stride = 512 * 4096;
	}
	before = clock_ns();
	is_int(check(SLOTS), 0, "512 pieces in each slot");
	ns = MAX(clock_ns() - before, ns);
	diag("%llu us", (unsigned long long)(clock_ns() - before) / 1000);
	for (i = 0; i < l.nruns; i++) {
		l.run[i].count = 7;
		l.run[i].run_stride = 4096 + 8 * i;
		l.run[i].offset = i * 8 * 8192;
		l.run[i].slot_stride = 512 * 8 * 8192;
	}
	before = clock_ns();
	is_int(check(SLOTS), 0, "each with another distance");
	ns = MAX(clock_ns() - before, ns);
	diag("%llu us", (unsigned long long)(clock_ns() - before) / 1000);
	l.run[511].offset -= 3 * 8192;
	is_int(check(SLOTS), -EINVAL, "and one of them too near");
	ok(strstr(gpc_last_error(), "runs[511].offset is ") &&
		   strstr(gpc_last_error(), "runs[510]"),
	   "the sentence names both: %s", gpc_last_error());
	ok(ns < 2000 * NS_PER_MS, "nothing is counted slot by slot");
}

/* ---- bad fields ---- */

struct bad {
	const char *what; /* of the sentence */
	uint32_t slots, nparts;
	struct shm_run run;
};

static const struct bad bad[] = {
	{ "runs[1].part is 2: it must be 0 to 1", 8, 2, { 2, 1, 8, 1000, 8, 0 } },
	{ "runs[1].part is 4294967295", 8, 2, { UINT32_MAX, 1, 8, 1000, 8, 0 } },
	{ "runs[1].count is 0: it must be 1 to ", 8, 2, { 0, 0, 8, 1000, 8, 0 } },
	{ "runs[1].bytes is 0: it must be 1 to ", 8, 2, { 0, 1, 0, 1000, 8, 0 } },
	{ "runs[1].bytes is 9223372036854775808", 8, 2, { 0, 1, 2 * MOST, 1000, 8, 0 } },
	{ "runs[1].bytes is 18446744073709551615", 8, 2, { 0, 1, UINT64_MAX, 1000, 8, 0 } },
	{ "runs[1].bytes is 1099511627776: 16777216 slots of so many bytes must end within",
	  1u << 24,
	  2,
	  { 0, 1, 1ull << 40, 1000, 1ull << 40, 0 } },
	{ "runs[1].bytes is 1099511627776: 4194305 pieces of a slot of so many bytes must end within",
	  1,
	  2,
	  { 0, (1u << 22) + 1, 1ull << 40, 1000, 1, 1ull << 40 } },
	{ "runs[1].offset is 4611686018427387897: it must be 0 to 4611686018427387896",
	  1,
	  2,
	  { 0, 1, 8, MOST - 7, 8, 0 } },
	{ "runs[1].offset is 18446744073709551615", 8, 2, { 0, 1, 8, UINT64_MAX, 8, 0 } },
	{ "runs[1].slot_stride is 0: it must be 1 to ", 1, 2, { 0, 1, 8, 1000, 0, 0 } },
	{ "runs[1].slot_stride is 7: it must be 8 to ", 8, 2, { 0, 1, 8, 1000, 7, 0 } },
	{ "runs[1].slot_stride is 658812288346769557: it must be 8 to 658812288346769556",
	  8,
	  2,
	  { 0, 1, 8, 1000, (MOST - 1008) / 7 + 1, 0 } },
	{ "runs[1].slot_stride is 9223372036854775808", 8, 2, { 0, 1, 8, 1000, 2 * MOST, 0 } },
	{ "runs[1].slot_stride is 9223372036854775808", 1, 2, { 0, 1, 8, 1000, 2 * MOST, 0 } },
	{ "runs[1].run_stride is 0: it must be 8 to ", 8, 2, { 0, 2, 8, 1000, 16, 0 } },
	{ "runs[1].run_stride is 7: it must be 8 to ", 8, 2, { 0, 2, 8, 1000, 16, 7 } },
	{ "runs[1].run_stride is 9223372036854775808", 8, 2, { 0, 2, 8, 1000, 16, 2 * MOST } },
	{ "runs[1].run_stride is 18446744073709551615",
	  8,
	  2,
	  { 0, UINT32_MAX, 8, 1000, 16, UINT64_MAX } },
	{ "runs[1].run_stride is 8: pieces of a slot lie on those of another",
	  8,
	  2,
	  { 0, 3, 8, 1000, 16, 8 } },
	{ "runs[1].offset is 63: ", 8, 2, { 0, 1, 8, 63, 8, 0 } },
	{ "runs[0], whose offset is 0", 8, 2, { 0, 1, 8, 0, 8, 0 } },
	{ "the number of slots is 0: it must be 1 to 16777216", 0, 2, { 0, 1, 8, 1000, 8, 0 } },
	{ "the number of slots is 16777217", SLOTS + 1, 2, { 0, 1, 8, 1000, 8, 0 } },
	{ "parts is 0: it must be 1 to 512", 8, 0, { 0, 1, 8, 1000, 8, 0 } },
	{ "parts is 513: it must be 1 to 512", 8, 513, { 0, 1, 8, 1000, 8, 0 } },
};

/* A good run 0 in front of each. */
static void test_fields(void)
{
	const struct shm_run good = { 0, 1, 8, 0, 8, 0 };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		l = (struct runs){ 2, bad[i].nparts, { good, bad[i].run } };
		image = part[0] = 4711;
		is_int(check(bad[i].slots), -EINVAL, "refused: %s", bad[i].what);
		ok(strstr(gpc_last_error(), bad[i].what), "the sentence: %s", gpc_last_error());
		ok(image == 4711 && part[0] == 4711, "and nothing was written");
	}
	l.nparts = 1;
	l.nruns = 0;
	is_int(check(8), -EINVAL, "no run");
	ok(strstr(gpc_last_error(), "nruns is 0: it must be 1 to 512"), "%s", gpc_last_error());
	l.nruns = SHM_RUNS + 1;
	is_int(check(8), -EINVAL, "too many, none of which is read");
	ok(strstr(gpc_last_error(), "nruns is 513"), "%s", gpc_last_error());
}

static void test_limits(void)
{
	uint32_t i;

	l = (struct runs){ 1, 1, { { 0, 1, MOST, 0, MOST, UINT64_MAX } } };
	is_int(check(1), 0, "one piece as large as may be, its run_stride anything");
	ok(image == MOST && part[0] == MOST, "it has all bytes");
	l.nruns = l.nparts = 2;
	l.run[1] = l.run[0];
	l.run[1].part = 1;
	is_int(check(1), -EINVAL, "two of them, each possible");
	ok(strstr(gpc_last_error(), "runs[1].count is 1"), "make an image that is not: %s",
	   gpc_last_error());
	l = (struct runs){ 1, 1, { { 0, UINT32_MAX, 63, 7, (uint64_t)UINT32_MAX * 63, 63 } } };
	is_int(check(1u << 24), 0, "2^56 pieces without a gap");
	is_int(part[0], 7 + 63 * (uint64_t)UINT32_MAX * SLOTS, "all bytes but 7");
	l.run[0].slot_stride--;
	is_int(check(1u << 24), -EINVAL, "a byte less");
	/* Neither nests: slots of one are 3 units apart, those of the other 5, and always half
	 * a unit from each other. */
	l = (struct runs){ 2,
			   1,
			   { { 0, 100000, 16, 0, 3ull << 40, 17 },
			     { 0, 1, 16, 1ull << 39, 5ull << 40, 0 } } };
	is_int(check(1u << 18), -EINVAL, "too irregular to tell");
	ok(strstr(gpc_last_error(), "runs[1].slot_stride is 5497558138880"), "%s",
	   gpc_last_error());
	is_int(check(1u << 14), 0, "with fewer slots it can be told: they do not overlap");
	for (i = 2; i < 500; i++) {
		l.run[i] = l.run[i & 1];
		l.run[i].offset += i * 4000000;
	}
	l.nruns = 500;
	is_int(check(1u << 14), -EINVAL, "of many such pairs it cannot");
}

/* ---- small layouts, byte by byte ---- */

#define BYTES  8192u
#define ROUNDS 60000

static bool overlaps(uint32_t slots, uint64_t *ret_end)
{
	static uint8_t seen[BYTES];
	uint32_t i, s, j, b;
	bool found = false;

	memset(seen, 0, sizeof(seen));
	*ret_end = 0;
	for (i = 0; i < l.nruns; i++)
		for (s = 0; s < slots; s++)
			for (j = 0; j < l.run[i].count; j++)
				for (b = 0; b < l.run[i].bytes; b++) {
					uint64_t at = l.run[i].offset + s * l.run[i].slot_stride +
						      j * l.run[i].run_stride + b;

					if (at >= BYTES)
						bail("beyond the map");
					found |= seen[at];
					seen[at] = 1;
					*ret_end = MAX(*ret_end, at + 1);
				}
	return found;
}

static uint32_t draw(uint64_t *seed, uint32_t slots)
{
	static const uint32_t units[] = { 1, 1, 2, 4, 6, 8, 15 };
	uint32_t unit = units[crew_random(seed, ARRAY_SIZE(units))], i;

	l.nparts = 1;
	l.nruns = 1 + crew_random(seed, 3);
	for (i = 0; i < l.nruns; i++)
		l.run[i] = (struct shm_run){
			.count = 1 + crew_random(seed, 1 + crew_random(seed, 12)),
			.bytes = 1 + crew_random(seed, 1 + crew_random(seed, unit + 3)),
			.offset = crew_random(seed, 1 + crew_random(seed, 600)),
			.slot_stride = unit * (1 + crew_random(seed, 200 / unit)),
			.run_stride = unit * (1 + crew_random(seed, 200 / unit)),
		};
	for (i = 1; i < l.nruns; i++) {
		if (crew_random(seed, 2))
			l.run[i].slot_stride = l.run[0].slot_stride;
		if (crew_random(seed, 2))
			l.run[i].run_stride = l.run[0].run_stride;
	}
	return slots;
}

static void test_small(void)
{
	uint64_t seed = 0x9e3779b97f4a7c15ull, end;
	uint32_t round, good = 0, bad_ones = 0, wrong = 0, interleaved = 0;

	for (round = 0; round < ROUNDS; round++) {
		uint32_t slots = draw(&seed, 1 + crew_random(&seed, 15));
		bool found = overlaps(slots, &end);
		int err = check(slots);

		wrong += err != (found ? -EINVAL : 0) || (!found && part[0] != end);
		good += !found;
		bad_ones += found;
		interleaved += !found && l.nruns > 1 && slots > 1 &&
			       l.run[0].slot_stride != l.run[1].slot_stride;
		if (wrong == 1 && err != (found ? -EINVAL : 0))
			diag("round %u: %d, and overlap is %d", round, err, found);
	}
	is_int(wrong, 0, "of %u that overlap and %u that do not, each is told", bad_ones, good);
	ok(good > ROUNDS / 10 && bad_ones > ROUNDS / 10 && interleaved > ROUNDS / 100,
	   "there were enough of each kind");
}

static int body(void)
{
	test_engines();
	test_cost();
	test_fields();
	test_limits();
	test_small();
	return done_testing();
}

int main(void)
{
	return tap_guard(60, body, NULL);
}
