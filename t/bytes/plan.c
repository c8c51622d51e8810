/* SPDX-License-Identifier: Apache-2.0 */
/* bytes/plan - which operations a copy becomes, and what cannot be planned.
 * Tests: lib/bytes/payload/plan.c lib/bytes/payload/plan_run.c */
#include "config.h"

#include <errno.h>

#include "index/base/base.h"
#include "gpc.h"
#include "t/lib/plans.h"

/* ---- choices ---- */

#define LAYERS 32u
#define PIECE  4096u
#define BLOCKS 1024u
#define TENSOR ((uint64_t)BLOCKS * PIECE)

enum parts { EVEN, TIGHT, UNEVEN, DOWN }; /* where the parts of a pool are */
enum slots { FAR, NEAR8, NEAR128, MIXED };

static void place(struct side *s, enum layout_name name, enum parts parts, uint64_t base)
{
	uint64_t piece = name == WHOLE + LAYOUTS ? PIECE / 8 * 5 : PIECE;
	uint32_t i;

	layout_make(&s->l, name % LAYOUTS, LAYERS, piece, BLOCKS);
	for (i = 0; i < s->l.nparts; i++) {
		s->base[i] = (uint8_t *)(uintptr_t)base;
		base += parts == DOWN    ? -3 * TENSOR
			: parts == EVEN  ? 3 * TENSOR
			: parts == TIGHT ? 2 * TENSOR
					 : 2 * TENSOR + 4096 * (1ull << (i % 20));
	}
}

static uint32_t draw_slots(enum slots slots, struct copy_pair *ret)
{
	uint32_t n = slots == NEAR8 ? 8 : 128, i;

	for (i = 0; i < n; i++)
		ret[i] = slots == FAR ? (struct copy_pair){ i * 37 % BLOCKS, i * 101 % BLOCKS }
				      : (struct copy_pair){ 5 + i, 700 + i };
	if (slots == MIXED) /* 100 neighbours, another pair, 27 neighbours */
		ret[100] = (struct copy_pair){ 900, 3 };
	return n;
}

struct seen {
	uint32_t calls, ops, rows_least, rows_most, slices_most;
	uint64_t width_least, width_most;
};

static int see(void *arg, const struct copy_op *ops, uint32_t nops)
{
	struct seen *s = arg;
	uint32_t i;

	if (!nops || nops > PLAN_BATCH)
		bail("%u operations", nops);
	s->calls++;
	for (i = 0; i < nops; i++) {
		s->ops++;
		s->rows_least = MIN(s->rows_least, (uint32_t)ops[i].rows);
		s->rows_most = MAX(s->rows_most, (uint32_t)ops[i].rows);
		s->slices_most = MAX(s->slices_most, (uint32_t)ops[i].slices);
		s->width_least = MIN(s->width_least, ops[i].width);
		s->width_most = MAX(s->width_most, ops[i].width);
	}
	return 0;
}

#define RAM     WHOLE
#define RAM_MLA (WHOLE + LAYOUTS) /* an image of MLA's size */

static const struct {
	int to;
	enum parts to_parts;
	int from;
	enum slots slots;
	uint64_t max_pitch;
	bool slices;
	uint32_t shapes, ops, rows, nslices; /* wanted; rows and slices: the most */
	uint64_t width;
} choice[] = {
	/* images on both sides */
	{ RAM, EVEN, RAM, FAR, FREE_PITCH, 1, 1, 128, 1, 1, 64 * PIECE },
	{ RAM, EVEN, RAM, NEAR128, FREE_PITCH, 1, 1, 1, 1, 1, 8192 * PIECE },
	{ RAM, EVEN, RAM, MIXED, FREE_PITCH, 1, 1, 3, 1, 1, 6400 * PIECE },
	{ RAM, EVEN, RAM, NEAR128, 1, 0, 1, 1, 1, 1, 8192 * PIECE },
	{ CROSS_LAYER, EVEN, RAM, FAR, FREE_PITCH, 1, 1, 128, 1, 1, 64 * PIECE },
	{ CROSS_LAYER_SPLIT, EVEN, CROSS_LAYER_SPLIT, NEAR128, FREE_PITCH, 1, 1, 1, 1, 1,
	  8192 * PIECE },
	/* layers */
	{ ONE_ALLOCATION, EVEN, RAM, FAR, FREE_PITCH, 1, 1, 128, 64, 1, PIECE },
	{ ONE_ALLOCATION, EVEN, RAM, NEAR8, FREE_PITCH, 1, 1, 8, 64, 1, PIECE },
	{ ONE_ALLOCATION, EVEN, RAM, NEAR128, FREE_PITCH, 1, 1, 64, 128, 1, PIECE },
	{ ONE_ALLOCATION, EVEN, RAM, MIXED, FREE_PITCH, 1, 1, 92, 100, 1, PIECE },
	{ RAM, EVEN, ONE_ALLOCATION, FAR, FREE_PITCH, 1, 1, 128, 64, 1, PIECE },
	{ RAM, EVEN, ONE_ALLOCATION, NEAR128, FREE_PITCH, 1, 1, 64, 128, 1, PIECE },
	{ RAM, EVEN, ONE_ALLOCATION, NEAR128, TENSOR, 1, 1, 64, 128, 1, PIECE },
	{ LISTED, EVEN, RAM, FAR, FREE_PITCH, 1, 1, 128, 64, 1, PIECE },
	{ KEYS_THEN_VALUES, EVEN, RAM, FAR, FREE_PITCH, 1, 2, 256, 32, 1, PIECE },
	{ KEYS_THEN_VALUES, EVEN, KEYS_THEN_VALUES, FAR, FREE_PITCH, 1, 1, 128, 64, 1, PIECE },
	{ ONE_ALLOCATION, EVEN, ONE_ALLOCATION, FAR, FREE_PITCH, 1, 1, 128, 64, 1, PIECE },
	{ ONE_ALLOCATION, EVEN, ONE_ALLOCATION, NEAR128, FREE_PITCH, 0, 1, 1, 64, 1, 128 * PIECE },
	{ CROSS_LAYER_SPLIT, EVEN, RAM, FAR, FREE_PITCH, 1, 2, 256, 32, 1, PIECE },
	{ CROSS_LAYER_SPLIT, EVEN, RAM, NEAR128, FREE_PITCH, 1, 2, 2, 32, 128, PIECE },
	{ CROSS_LAYER_SPLIT, EVEN, RAM, NEAR128, FREE_PITCH, 0, 2, 64, 128, 1, PIECE },
	{ CROSS_LAYER_SPLIT, EVEN, RAM, NEAR8, FREE_PITCH, 0, 2, 16, 32, 1, PIECE },
	{ CROSS_LAYER_SPLIT, EVEN, RAM, NEAR128, 64 * PIECE - 1, 1, 2, 256, 32, 1, PIECE },
	/* slots that are slices, and rows that are; padding is not copied */
	{ PADDED, EVEN, PADDED, FAR, FREE_PITCH, 1, 1, 128, 64, 1, PIECE },
	{ PADDED, EVEN, PADDED, NEAR128, FREE_PITCH, 1, 1, 1, 128, 64, PIECE },
	{ PADDED, EVEN, PADDED, NEAR128, FREE_PITCH, 0, 1, 64, 128, 1, PIECE },
	/* a part a layer */
	{ LAYER_PARTS, TIGHT, RAM, FAR, FREE_PITCH, 1, 1, 128, 64, 1, PIECE },
	{ LAYER_PARTS, EVEN, RAM, FAR, FREE_PITCH, 1, 2, 256, 32, 1, PIECE },
	{ LAYER_PARTS, UNEVEN, RAM, FAR, FREE_PITCH, 1, 32, 4096, 2, 1, PIECE },
	{ LAYER_PARTS, DOWN, RAM, FAR, FREE_PITCH, 1, 32, 4096, 2, 1, PIECE },
	{ LAYER_PARTS, UNEVEN, RAM, NEAR128, FREE_PITCH, 1, 32, 64, 128, 1, PIECE },
	{ LAYER_PARTS_BLOCKS, EVEN, RAM, FAR, FREE_PITCH, 1, 1, 128, 32, 1, 2 * PIECE },
	{ LAYER_PARTS_BLOCKS, DOWN, RAM, FAR, FREE_PITCH, 1, 32, 4096, 1, 1, 2 * PIECE },
	{ MLA, EVEN, RAM_MLA, FAR, FREE_PITCH, 1, 2, 256, 32, 1, PIECE },
	{ MLA, EVEN, MLA, NEAR128, FREE_PITCH, 1, 2, 2, 32, 1, 128 * PIECE },
	/* pitches that the device does not take */
	{ ONE_ALLOCATION, EVEN, RAM, FAR, TENSOR, 1, 1, 128, 64, 1, PIECE },
	{ ONE_ALLOCATION, EVEN, RAM, FAR, TENSOR - 1, 1, 64, 8192, 1, 1, PIECE },
	{ RAM, EVEN, ONE_ALLOCATION, FAR, TENSOR - 1, 1, 64, 8192, 1, 1, PIECE },
	{ ONE_ALLOCATION, EVEN, RAM, NEAR128, TENSOR - 1, 1, 64, 64, 128, 1, PIECE },
	{ ONE_ALLOCATION, EVEN, RAM, NEAR8, 64 * PIECE - 1, 1, 64, 512, 1, 1, PIECE },
	{ ONE_ALLOCATION, EVEN, ONE_ALLOCATION, NEAR8, TENSOR - 1, 1, 64, 64, 1, 1, 8 * PIECE },
};

static void test_choices(void)
{
	const struct plan_host none = { 0 };
	struct copy_pair pairs[128];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(choice); i++) {
		struct copy_limits limits = { choice[i].max_pitch, choice[i].slices, false };
		struct seen s = { .rows_least = UINT32_MAX, .width_least = UINT64_MAX };
		uint32_t n = draw_slots(choice[i].slots, pairs);

		place(&to, (enum layout_name)choice[i].to, choice[i].to_parts, 1ull << 45);
		place(&from, (enum layout_name)choice[i].from, EVEN, 1ull << 44);
		is_int(make_plan(limits.max_pitch), 0, "choice %zu: %s <- %s", i,
		       layout_name[choice[i].to % LAYOUTS], layout_name[choice[i].from % LAYOUTS]);
		is_int(plan_run(&p, &limits, &none, pairs, n, see, &s), 0, "it runs");
		is_int(p.nshapes, choice[i].shapes, "shapes");
		is_int(s.ops, choice[i].ops, "operations");
		is_int(s.calls, (s.ops + PLAN_BATCH - 1) / PLAN_BATCH, "in few calls");
		is_int(s.rows_most, choice[i].rows, "rows");
		is_int(s.slices_most, choice[i].nslices, "slices");
		is_int((long long)s.width_most, (long long)choice[i].width, "width");
		plan_free(&p);
	}
}

/* ---- what cannot be ---- */

static void test_refusals(void)
{
	place(&to, ONE_ALLOCATION, EVEN, 1ull << 45);
	place(&from, MLA, EVEN, 1ull << 44);
	p.nshapes = 4711;
	is_int(make_plan(FREE_PITCH), -EPROTO, "images of another size");
	ok(strstr(gpc_last_error(), "images of 163840 bytes") &&
		   strstr(gpc_last_error(), "have 262144"),
	   "the sentence: %s", gpc_last_error());
	memset(&to.l, 0, sizeof(to.l));
	memset(&from.l, 0, sizeof(from.l));
	layout_add(&to.l, 0, PLAN_CUTS + 1, 4, 0, 8, 8 * BLOCKS);
	layout_add(&from.l, 0, 1, 4 * (PLAN_CUTS + 1), 0, 4 * (PLAN_CUTS + 1), 0);
	is_int(make_plan(FREE_PITCH), -EOVERFLOW, "more cuts than may be");
	ok(strstr(gpc_last_error(), "more than 65536 pieces"), "%s", gpc_last_error());
	to.l.run[0].run_stride = 4;
	is_int(make_plan(FREE_PITCH), 0, "pieces without a gap");
	ok(p.cuts == 1 && p.nshapes == 1, "are none");
	plan_free(&p);
	p.nshapes = 4711;
	to.l.run[0].run_stride = 8 * BLOCKS;
	to.l.run[0].count--;
	from.l.run[0].bytes -= 4;
	is_int(p.nshapes, 4711, "nothing was written");
	is_int(make_plan(FREE_PITCH), 0, "as many as may be");
	ok(p.nshapes == 1 && p.cuts == PLAN_CUTS, "are one shape, for they are even");
	plan_free(&p);
	is_int(make_plan(8 * BLOCKS - 1), -EOVERFLOW, "they are not, when no pitch will do");
	ok(strstr(gpc_last_error(), "more than 4096 pieces at irregular"), "%s", gpc_last_error());
	to.l.run[0].count = PLAN_SHAPES;
	from.l.run[0].bytes = 4 * PLAN_SHAPES;
	is_int(make_plan(8 * BLOCKS - 1), 0, "4096 shapes");
	is_int(p.nshapes, PLAN_SHAPES, "each a row");
	plan_free(&p);
	is_int((long long)(uintptr_t)p.shape, 0, "a plan that is freed is none");
}

static int refuse_third(void *arg, const struct copy_op *ops, uint32_t nops)
{
	uint32_t *calls = arg;

	(void)ops;
	(void)nops;
	return ++*calls == 3 ? -EIO : 0;
}

static void test_stop(void)
{
	const struct copy_limits limits = { .max_pitch = TENSOR - 1 };
	const struct plan_host none = { 0 }, chunks = { (uint8_t *)(1ull << 45), 1000, true };
	struct copy_pair pairs[128];
	uint32_t n = draw_slots(FAR, pairs), calls = 0;

	place(&to, ONE_ALLOCATION, EVEN, 1ull << 45);
	place(&from, RAM, EVEN, 1ull << 44);
	is_int(make_plan(limits.max_pitch), 0, "8192 rows");
	is_int(plan_run(&p, &limits, &none, pairs, n, refuse_third, &calls), -EIO, "refused");
	is_int(calls, 3, "then nothing more comes");
	calls = 0;
	is_int(plan_run(&p, &limits, &chunks, pairs, n, refuse_third, &calls), -EIO, "in chunks");
	is_int(calls, 3, "neither");
	calls = 0;
	is_int(plan_run(&p, &limits, &none, pairs, 3, refuse_third, &calls), -EIO, "the last call");
	is_int(calls, 3, "of three");
	calls = 0;
	is_int(plan_run(&p, &limits, &none, pairs, 0, refuse_third, &calls), 0, "no pair");
	is_int(calls, 0, "no call");
	plan_free(&p);
}

/* Two parts at one place are a mistake of who lent them, and no reason to crash, nor for operations
 * that a device refuses. */
static int look(void *arg, const struct copy_op *ops, uint32_t nops)
{
	struct check *c = arg;
	uint32_t i;

	for (i = 0; i < nops; i++) {
		c->ops++;
		c->wrong += !keeps_limits(c, &ops[i]);
	}
	return 0;
}

static void test_same_place(void)
{
	place(&to, LAYER_PARTS, EVEN, 1ull << 45);
	place(&from, RAM, EVEN, 1ull << 44);
	to.base[7] = to.base[6] = to.base[3];
	is_int(make_plan(FREE_PITCH), 0, "parts that lie on each other");
	is_int(p.cuts, 64, "each of their pieces is copied");
	plan_free(&p);
}

static uint8_t *part_at(uint64_t base, uint32_t i, uint32_t step)
{
	static const uint64_t steps[] = { PIECE / 2, PIECE, 2 * PIECE, 4 * PIECE, 3 * TENSOR };

	return (uint8_t *)(uintptr_t)(base + i * steps[step]);
}

static void test_between(void)
{
	static const enum layout_name name[] = { LAYER_PARTS, LAYER_PARTS_BLOCKS, RAM };
	const struct plan_host none = { 0 };
	const struct copy_limits limits = { FREE_PITCH, true, false };
	struct check c = { .limits = &limits, .host = &none };
	struct copy_pair pairs[128];
	uint32_t n = draw_slots(NEAR128, pairs), round, layers, i, err = 0;

	for (round = 0; round < 2 * 3 * 3 * 5 * 5; round++) {
		layers = round % 2 ? 2 : 8;
		layout_make(&to.l, name[round / 2 % 3], layers, PIECE, BLOCKS);
		layout_make(&from.l, name[round / 6 % 3], layers, PIECE, BLOCKS);
		for (i = 0; i < layers; i++) {
			to.base[i] = part_at(1ull << 45, i, round / 18 % 5);
			from.base[i] = part_at(1ull << 44, i, round / 90);
		}
		err |= make_plan(FREE_PITCH) < 0 ||
		       plan_run(&p, &limits, &none, pairs, n, look, &c) < 0;
		plan_free(&p);
	}
	is_int(err, 0, "parts between each other, in all ways");
	is_int(c.wrong, 0, "%u operations that a device takes", c.ops);
}

/* Pieces that touch each other in slot 0, and in no other one. */
static void test_strides(void)
{
	place(&to, RAM, EVEN, 1ull << 45);
	place(&from, RAM, EVEN, 1ull << 44);
	to.l.nruns = from.l.nruns = 0;
	layout_add(&to.l, 0, 1, 8, 0, 100, 0);
	layout_add(&to.l, 0, 1, 8, 8, 200, 0);
	layout_add(&from.l, 0, 2, 8, 0, 16, 8);
	is_int(make_plan(FREE_PITCH), 0, "slots at two distances");
	is_int(p.nshapes, 2, "are two shapes");
	plan_free(&p);
	to.l.run[1].slot_stride = 100;
	is_int(make_plan(FREE_PITCH), 0, "slots at one distance");
	is_int(p.nshapes, 1, "are one");
	is_int((long long)p.shape[0].width, 16, "of 16 bytes");
	plan_free(&p);
}

/* ---- chunks ---- */

static const struct {
	int to;
	enum slots slots;
	uint64_t base, chunk; /* of the host's side: before the first byte; bytes */
	uint32_t ops, rows;
} chunked[] = {
	{ RAM, FAR, 0, 64 * PIECE, 128, 1 },
	{ RAM, FAR, 0, 32 * PIECE, 256, 1 },
	{ RAM, FAR, PIECE, 64 * PIECE, 256, 1 },
	{ RAM, NEAR128, 0, 64 * 64 * PIECE, 3, 1 },
	{ RAM, NEAR128, 0, 1ull << 40, 1, 1 },
	{ ONE_ALLOCATION, FAR, 0, 64 * PIECE, 128, 64 },
	{ ONE_ALLOCATION, FAR, 0, 32 * PIECE, 256, 32 },
	{ ONE_ALLOCATION, FAR, PIECE / 2, 64 * PIECE, 128 * 3, 63 }, /* a row in two */
	{ ONE_ALLOCATION, FAR, PIECE / 2, 16 * PIECE, 128 * 12, 15 },
	{ CROSS_LAYER_SPLIT, NEAR128, 0, 1ull << 40, 2, 32 },
	{ CROSS_LAYER_SPLIT, NEAR128, 0, 64 * 64 * PIECE, 6, 32 }, /* slices 59, 64, 5 */
};

static void test_chunks(void)
{
	const struct copy_limits limits = { FREE_PITCH, true, false };
	struct copy_pair pairs[128];
	uint32_t i, k, n;

	for (i = 0; i < ARRAY_SIZE(chunked); i++) {
		struct seen s = { .rows_least = UINT32_MAX, .width_least = UINT64_MAX };
		struct plan_host host = { (uint8_t *)(1ull << 44) - chunked[i].base,
					  chunked[i].chunk, false };
		struct check c = { .limits = &limits, .host = &host };

		n = draw_slots(chunked[i].slots, pairs);
		for (k = 0; k < n; k++) /* RAM: 5 to 132 */
			pairs[k].from = chunked[i].slots == FAR ? pairs[k].from : 5 + k;
		place(&to, (enum layout_name)chunked[i].to, EVEN, 1ull << 45);
		place(&from, RAM, EVEN, 1ull << 44);
		is_int(make_plan(FREE_PITCH), 0, "chunks %u: %s", i, layout_name[chunked[i].to]);
		is_int(plan_run(&p, &limits, &host, pairs, n, see, &s), 0, "it runs");
		is_int(s.ops, chunked[i].ops, "operations");
		is_int(s.rows_most, chunked[i].rows, "rows");
		is_int(plan_run(&p, &limits, &host, pairs, n, look, &c), 0, "again");
		is_int(c.wrong, 0, "none goes from one into another");
		plan_free(&p);
	}
}

static int body(void)
{
	test_choices();
	test_refusals();
	test_same_place();
	test_between();
	test_strides();
	test_chunks();
	test_stop();
	return done_testing();
}

int main(void)
{
	return tap_guard(60, body, NULL);
}
