/* SPDX-License-Identifier: Apache-2.0 */
/* Accesses to as many lines as a pair of insert and evict touches, in memory of the same size: the
 * time of a writer that did nothing but fetch these lines.
 *
 *   lines  written  they belong to       bytes of memory for each block
 *       4        3  records              64, in the order of age
 *       1        0  rows of cells        64, in the order of age
 *       3        3  the tree             32, in the order of age
 *       8        3  private arrays       eight of 8, in the order of age
 *       4        2  the table            32, at random places
 *       2        2  the feed             one after the other
 *       2        2  a ring               one after the other
 *
 * Blocks that came one after the other go one after the other, so the lines of a block are next to
 * those of the block before.  If there are several lines of one kind, each belongs to a block that
 * is 64 steps further on its way.  Only the table's places are chosen by hash.  The lines of each
 * pair are drawn before the run, and prefetched some pairs ahead.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/bench.h"

#include <stdlib.h>

enum {
	AHEAD = 5,   /* pairs */
	WORDS = 16,  /* of a line */
	FLOW = 1024, /* lines that are used in order, again and again */
	PARTS = 32,  /* of the memory */
	BEHIND = 64, /* blocks */
};

static const struct part {
	uint8_t n, written;
	uint8_t from, parts; /* of the memory */
	uint8_t each;        /* blocks of a line; 0: anywhere */
	uint8_t step;        /* each line has parts of its own */
} parts[] = {
	{ 4, 3, 0, 8, 1, 0 },  { 1, 0, 8, 8, 1, 0 },  { 3, 3, 16, 4, 2, 0 },
	{ 8, 3, 24, 1, 8, 1 }, { 4, 2, 20, 4, 0, 0 },
};

bool floor_open(struct bench_floor *f, uint64_t entries, uint32_t pairs, struct bench_row *row)
{
	uint64_t lines = (entries * 256 / 64 + PARTS - 1) / PARTS * PARTS;

	*f = (struct bench_floor){ .n = pairs };
	if (!limit_open(&f->limit, lines + FLOW, row))
		return false;
	f->limit.lines = lines;
	f->at = bench_alloc((size_t)pairs * FLOOR_LINES, sizeof(*f->at));
	return true;
}

void floor_close(struct bench_floor *f)
{
	f->limit.lines += FLOW;
	limit_close(&f->limit);
	free(f->at);
}

/* The k-th line of that kind, of a pair whose block is number `block` in the order of age. */
static uint32_t draw(const struct bench_floor *f, const struct part *p, uint64_t block, uint32_t k)
{
	uint64_t part = f->limit.lines / PARTS, from = (p->from + k * p->step) * part,
		 all = part * p->parts;

	if (!p->each)
		return (uint32_t)(from + bench_below(all));
	block += p->step ? 0 : (uint64_t)k * BEHIND;
	return (uint32_t)(from + block / p->each % all);
}

/* The lines that are written come first. */
void floor_prepare(void *arg)
{
	struct bench_floor *f = arg;
	uint64_t block = bench_below(f->limit.lines);

	f->sum = 0;
	for (uint32_t i = 0; i < f->n; i++, block++) {
		uint32_t *write = f->at + (size_t)i * FLOOR_LINES, *read = write + FLOOR_WRITTEN;

		for (uint32_t p = 0; p < sizeof(parts) / sizeof(parts[0]); p++)
			for (uint32_t k = 0; k < parts[p].n; k++)
				*(k < parts[p].written ? write++ : read++) =
					draw(f, &parts[p], block, k);
		for (uint32_t k = 0; k < 4; k++)
			*write++ = (uint32_t)(f->limit.lines + (i / 4 + k * FLOW / 4) % FLOW);
	}
}

static void ask(const struct bench_floor *f, uint32_t i)
{
	const uint32_t *at = f->at + (size_t)i * FLOOR_LINES;

	for (uint32_t k = 0; k < FLOOR_LINES; k++)
		if (k < FLOOR_WRITTEN)
			__builtin_prefetch(f->limit.memory + (size_t)at[k] * WORDS, 1);
		else
			__builtin_prefetch(f->limit.memory + (size_t)at[k] * WORDS);
}

int floor_run(void *arg)
{
	struct bench_floor *f = arg;
	uint32_t sum = 0;

	for (uint32_t i = 0; i < AHEAD && i < f->n; i++)
		ask(f, i);
	for (uint32_t i = 0; i < f->n; i++) {
		const uint32_t *at = f->at + (size_t)i * FLOOR_LINES;

		if (i + AHEAD < f->n)
			ask(f, i + AHEAD);
		for (uint32_t k = 0; k < FLOOR_WRITTEN; k++)
			f->limit.memory[(size_t)at[k] * WORDS + 2]++;
		for (uint32_t k = FLOOR_WRITTEN; k < FLOOR_LINES; k++)
			sum += f->limit.memory[(size_t)at[k] * WORDS];
	}
	f->sum = sum;
	return 0;
}

bool floor_verify(void *arg)
{
	const struct bench_floor *f = arg;
	uint32_t sum = 0;

	for (uint32_t i = 0; i < f->n; i++)
		for (uint32_t k = FLOOR_WRITTEN; k < FLOOR_LINES; k++)
			sum += (uint32_t)bench_mix(f->at[(size_t)i * FLOOR_LINES + k]);
	return sum == f->sum;
}
