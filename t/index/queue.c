/* SPDX-License-Identifier: Apache-2.0 */
/* The writer's queue of leaves against a list that is searched: whatever comes, is taken out and
 * goes, each that goes is the first of all by stamp, depth and number.
 * Tests: lib/index/table/queue.c lib/index/table/alloc.c */
#include "config.h"

#include <stdlib.h>
#include "t/lib/made.h"
#include "index/table/alloc.h"
#include "index/table/queue.h"

#define RECORDS 8000u
#define STEPS   20000u

static struct made m;
static struct writer w;
static struct queue q;
static struct shm_record *record;
static uint64_t stamp_of[RECORDS];
static bool is_in[RECORDS];
static uint32_t nin;

static uint64_t state;

static uint32_t chance(uint32_t n)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((state >> 33) % n);
}

static bool goes_first(uint32_t a, uint32_t b)
{
	if (stamp_of[a] != stamp_of[b])
		return stamp_of[a] < stamp_of[b];
	if (record[a].depth != record[b].depth)
		return record[a].depth > record[b].depth;
	return a < b;
}

static uint32_t first_of_all(void)
{
	uint32_t i, first = NONE;

	for (i = 0; i < RECORDS; i++)
		if (is_in[i] && (first == NONE || goes_first(i, first)))
			first = i;
	return first;
}

static void come(uint32_t i, uint64_t tick)
{
	uint64_t stamp = tick << STAMP_BITS | chance(4);

	record[i].depth = chance(3);
	stamp_of[i] = stamp;
	is_in[i] = true;
	nin++;
	queue_push(&w, &q, stamp, i);
}

static void leave(uint32_t i)
{
	is_in[i] = false;
	nin--;
	queue_forget(&w, &q, i);
}

/* n of them; some are looked at, since each look is a search. */
static bool go(uint32_t n, uint32_t each)
{
	struct leaf leaf;

	for (; n--; is_in[leaf.record] = false, nin--) {
		uint32_t first = n % each ? NONE : first_of_all();

		if (!queue_pop(&w, &q, &leaf))
			return !nin;
		if (!is_in[leaf.record] || leaf.stamp != stamp_of[leaf.record] ||
		    leaf.depth != record[leaf.record].depth || queue_has(&w, leaf.record) ||
		    (first != NONE && leaf.record != first))
			return false;
	}
	return true;
}

static uint32_t items(void)
{
	uint32_t i, n = q.nfront - q.front_at + q.nheap;

	for (i = 0; i < q.nbags; i++)
		n += q.bags[q.first + i].n;
	return n;
}

/* Stamps: the newest, at times an older one; `step` new ones make the tick go on. */
static bool churn(uint32_t fill, uint32_t step, uint32_t old, uint32_t taken_out)
{
	uint64_t tick = 1000;
	uint32_t i, n;

	for (n = 0; n < STEPS; n++) {
		i = chance(RECORDS);
		if (is_in[i] && chance(100) < taken_out)
			leave(i);
		if (!is_in[i])
			come(i,
			     chance(100) < old ? tick - chance((uint32_t)MIN(tick, 3000u)) : tick);
		if (!(n % step))
			tick++;
		if (nin > fill && !go(nin - fill, 500))
			return false;
		if (items() != q.queued + q.stale || q.queued != nin || q.stale > nin + 4096)
			return false;
	}
	return go(nin + 1, 50);
}

static void churns(const char *what, uint32_t fill, uint32_t step, uint32_t old, uint32_t taken_out)
{
	ok(churn(fill, step, old, taken_out) && !nin && !q.queued, "%s", what);
	queue_free(&q);
}

static void any_order(uint32_t stamps)
{
	uint32_t i;

	for (i = 0; i < RECORDS; i++) {
		record[i].depth = chance(3);
		stamp_of[i] = (uint64_t)(1 + chance(stamps)) << STAMP_BITS | chance(4);
		is_in[i] = true;
		queue_add(&w, &q, stamp_of[i], i);
	}
	nin = RECORDS;
	ok(go(RECORDS / 2, 50), "all at once, of %u stamps: half of them go", stamps);
	for (i = 0; i < RECORDS; i += 2)
		if (is_in[i])
			leave(i);
	ok(go(nin + 1, 50) && !nin, "others are taken out, the rest goes");
	queue_free(&q);
}

static void emptied(void)
{
	uint32_t i, left = 0;

	for (i = 0; i < RECORDS; i++)
		come(i, i);
	go(100, 10);
	queue_empty(&w, &q);
	for (i = 0; i < RECORDS; i++) {
		left += queue_has(&w, i);
		is_in[i] = false;
	}
	nin = 0;
	is_int(left, 0, "none is in an emptied queue");
	come(7, 7);
	ok(go(2, 1), "and one comes and goes");
	queue_free(&q);
}

static int churn_all(struct writer *unused UNUSED, uint64_t arg UNUSED)
{
	churns("newest only", 4000, 50, 0, 0);
	churns("a tick for each", 4000, 1, 0, 0);
	churns("one tick for all", 4000, STEPS + 1, 0, 0);
	churns("a tenth is older", 4000, 20, 10, 0);
	churns("most are older", 4000, 20, 90, 10);
	churns("half is taken out", 6000, 20, 10, 50);
	churns("nothing goes, all is taken out", RECORDS, 20, 50, 100);
	any_order(1u << 30);
	any_order(3);
	emptied();
	return 0;
}

int main(void)
{
	state = 20240607;
	w.node = calloc(RECORDS, sizeof(*w.node));
	made_in_memory(&m, RECORDS, 4096);
	w.seg = m.c.seg;
	w_places(&w);
	record = m.record;
	is_int(writer_run(&w, churn_all, 0), 0, "there was memory");
	ok(!w.memory, "and none of it is left");
	free(w.node);
	made_free(&m);
	return done_testing();
}
