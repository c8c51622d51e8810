/* SPDX-License-Identifier: Apache-2.0 */
/* bench-plan - what the planner of copies costs: nanoseconds a block of plan_run, for operations
 * that nobody carries out, and microseconds of plan_make and memory_check_runs. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "index/base/base.h"
#include "bytes/memfile/memfile.h"
#include "t/lib/plans.h"

#define PIECE  16384u
#define BLOCKS 4096u
#define PAIRS  128u
#define ROUNDS 20000u
#define CHUNK  ((uint64_t)1 << 30)

static const struct {
	enum layout_name name;
	bool near, uneven;
	const char *what;
} row[] = {
	{ WHOLE, false, false, "an image" },
	{ ONE_ALLOCATION, false, false, "64 pieces, one shape" },
	{ KEYS_THEN_VALUES, false, false, "64 pieces, two shapes" },
	{ LAYER_PARTS, false, true, "64 pieces, 32 shapes" },
	{ ONE_ALLOCATION, true, false, "64 pieces, one shape, neighbours" },
	{ CROSS_LAYER_SPLIT, true, false, "64 pieces, two shapes, neighbours" },
};

static uint64_t ops;

static int count(void *arg, const struct copy_op *op, uint32_t nops)
{
	(void)arg;
	__asm__ volatile("" : : "r"(op) : "memory");
	ops += nops;
	return 0;
}

static void place(struct side *s, enum layout_name name, uint64_t base, bool uneven)
{
	uint64_t bytes[SHM_PARTS], image;
	uint32_t i;

	layout_make(&s->l, name, 32, PIECE, BLOCKS);
	if (memory_check_runs(s->l.run, s->l.nruns, s->l.nparts, BLOCKS, bytes, &image) < 0)
		abort();
	for (i = 0; i < s->l.nparts; i++) {
		s->base[i] = (uint8_t *)(uintptr_t)base;
		base += bytes[i] + (uneven ? 4096ull << i % 20 : 0);
	}
}

static void time_row(size_t i)
{
	const struct copy_limits limits = { UINT64_MAX, true, false };
	const struct plan_host host = { (const uint8_t *)(1ull << 44), CHUNK, false };
	struct copy_pair pairs[PAIRS];
	uint64_t begin, ns, make_ns;
	uint32_t k;

	for (k = 0; k < PAIRS; k++)
		pairs[k] = row[i].near ? (struct copy_pair){ k, k + 77 }
				       : (struct copy_pair){ k * 1237 % BLOCKS, k * 2741 % BLOCKS };
	place(&to, row[i].name, 1ull << 45, row[i].uneven);
	place(&from, WHOLE, 1ull << 44, false);
	begin = clock_ns();
	if (make_plan(limits.max_pitch) < 0)
		abort();
	make_ns = clock_ns() - begin;
	ops = 0;
	begin = clock_ns();
	for (k = 0; k < ROUNDS; k++)
		plan_run(&p, &limits, &host, pairs, PAIRS, count, NULL);
	ns = clock_ns() - begin;
	printf("%-36s %8.1f ns a block  %6.2f operations a block  plan made in %.1f us\n",
	       row[i].what, (double)ns / ROUNDS / PAIRS, (double)ops / ROUNDS / PAIRS,
	       (double)make_ns / 1000);
	plan_free(&p);
}

static void time_check(void)
{
	uint64_t image, begin, ns;

	layout_make(&to.l, LISTED, 256, PIECE, 1u << 24);
	begin = clock_ns();
	if (memory_check_runs(to.l.run, to.l.nruns, 1, 1u << 24, NULL, &image) < 0)
		abort();
	ns = clock_ns() - begin;
	printf("%-36s %8.1f us\n", "512 runs, 2^24 blocks, checked", (double)ns / 1000);
}

int main(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(row); i++)
		time_row(i);
	time_check();
	return 0;
}
