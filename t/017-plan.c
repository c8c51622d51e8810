/* SPDX-License-Identifier: Apache-2.0 */
/* 017-plan - which operations copies become, and that they copy what they are to and nothing else. */
#include "config.h"

#include <errno.h>

#include "base/base.h"
#include "gpc.h"
#include "payload/plan.h"
#include "segment/memory.h"
#include "t/lib/crew.h"
#include "t/lib/layouts.h"

#define FREE_PITCH UINT64_MAX

struct side {
	struct runs l;
	uint8_t *base[SHM_PARTS];
};

static struct side to, from;
static struct plan p;

static int make(uint64_t max_pitch)
{
	const struct plan_side t = { to.l.nruns, to.l.run, to.base };
	const struct plan_side f = { from.l.nruns, from.l.run, from.base };
	const struct copy_limits limits = { .max_pitch = max_pitch };

	return plan_make(&t, &f, &limits, &p);
}

/* ---- choices ---- */

#define LAYERS 32u
#define PIECE 4096u
#define BLOCKS 1024u
#define TENSOR ((uint64_t)BLOCKS * PIECE)

enum parts { EVEN, TIGHT, UNEVEN, DOWN };        /* where the parts of a pool are */
enum slots { FAR, NEAR8, NEAR128, MIXED };

static void place(struct side *s, enum layout_name name, enum parts parts, uint64_t base)
{
	uint64_t piece = name == WHOLE + LAYOUTS ? PIECE / 8 * 5 : PIECE;
	uint32_t i;

	layout_make(&s->l, name % LAYOUTS, LAYERS, piece, BLOCKS);
	for (i = 0; i < s->l.nparts; i++) {
		s->base[i] = (uint8_t *)(uintptr_t)base;
		base += parts == DOWN ? -3 * TENSOR
			: parts == EVEN ? 3 * TENSOR
			: parts == TIGHT ? 2 * TENSOR : 2 * TENSOR + 4096 * (1ull << (i % 20));
	}
}

static uint32_t draw_slots(enum slots slots, struct copy_pair *ret)
{
	uint32_t n = slots == NEAR8 ? 8 : 128, i;

	for (i = 0; i < n; i++)
		ret[i] = slots == FAR ? (struct copy_pair){ i * 37 % BLOCKS, i * 101 % BLOCKS }
				      : (struct copy_pair){ 5 + i, 700 + i };
	if (slots == MIXED)              /* 100 neighbours, another pair, 27 neighbours */
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

#define RAM WHOLE
#define RAM_MLA (WHOLE + LAYOUTS)        /* an image of MLA's size */

static const struct {
	int to;
	enum parts to_parts;
	int from;
	enum slots slots;
	uint64_t max_pitch;
	bool slices;
	uint32_t shapes, ops, rows, nslices;     /* wanted; rows and slices: the most */
	uint64_t width;
} choice[] = {
	/* images on both sides */
	{ RAM, EVEN, RAM, FAR, FREE_PITCH, 1,                         1, 128, 1, 1, 64 * PIECE },
	{ RAM, EVEN, RAM, NEAR128, FREE_PITCH, 1,                     1, 1, 1, 1, 8192 * PIECE },
	{ RAM, EVEN, RAM, MIXED, FREE_PITCH, 1,                       1, 3, 1, 1, 6400 * PIECE },
	{ RAM, EVEN, RAM, NEAR128, 1, 0,                              1, 1, 1, 1, 8192 * PIECE },
	{ CROSS_LAYER, EVEN, RAM, FAR, FREE_PITCH, 1,                 1, 128, 1, 1, 64 * PIECE },
	{ CROSS_LAYER_SPLIT, EVEN, CROSS_LAYER_SPLIT, NEAR128, FREE_PITCH, 1,
								      1, 1, 1, 1, 8192 * PIECE },
	/* layers */
	{ ONE_ALLOCATION, EVEN, RAM, FAR, FREE_PITCH, 1,              1, 128, 64, 1, PIECE },
	{ ONE_ALLOCATION, EVEN, RAM, NEAR8, FREE_PITCH, 1,            1, 8, 64, 1, PIECE },
	{ ONE_ALLOCATION, EVEN, RAM, NEAR128, FREE_PITCH, 1,          1, 64, 128, 1, PIECE },
	{ ONE_ALLOCATION, EVEN, RAM, MIXED, FREE_PITCH, 1,            1, 92, 100, 1, PIECE },
	{ RAM, EVEN, ONE_ALLOCATION, FAR, FREE_PITCH, 1,              1, 128, 64, 1, PIECE },
	{ RAM, EVEN, ONE_ALLOCATION, NEAR128, FREE_PITCH, 1,          1, 64, 128, 1, PIECE },
	{ RAM, EVEN, ONE_ALLOCATION, NEAR128, TENSOR, 1,              1, 64, 128, 1, PIECE },
	{ LISTED, EVEN, RAM, FAR, FREE_PITCH, 1,                      1, 128, 64, 1, PIECE },
	{ KEYS_THEN_VALUES, EVEN, RAM, FAR, FREE_PITCH, 1,            2, 256, 32, 1, PIECE },
	{ KEYS_THEN_VALUES, EVEN, KEYS_THEN_VALUES, FAR, FREE_PITCH, 1, 1, 128, 64, 1, PIECE },
	{ ONE_ALLOCATION, EVEN, ONE_ALLOCATION, FAR, FREE_PITCH, 1,   1, 128, 64, 1, PIECE },
	{ ONE_ALLOCATION, EVEN, ONE_ALLOCATION, NEAR128, FREE_PITCH, 0, 1, 1, 64, 1, 128 * PIECE },
	{ CROSS_LAYER_SPLIT, EVEN, RAM, FAR, FREE_PITCH, 1,           2, 256, 32, 1, PIECE },
	{ CROSS_LAYER_SPLIT, EVEN, RAM, NEAR128, FREE_PITCH, 1,       2, 2, 32, 128, PIECE },
	{ CROSS_LAYER_SPLIT, EVEN, RAM, NEAR128, FREE_PITCH, 0,       2, 64, 128, 1, PIECE },
	{ CROSS_LAYER_SPLIT, EVEN, RAM, NEAR8, FREE_PITCH, 0,         2, 16, 32, 1, PIECE },
	/* slots that are slices, and rows that are; padding is not copied */
	{ PADDED, EVEN, PADDED, FAR, FREE_PITCH, 1,                   1, 128, 64, 1, PIECE },
	{ PADDED, EVEN, PADDED, NEAR128, FREE_PITCH, 1,               1, 1, 128, 64, PIECE },
	{ PADDED, EVEN, PADDED, NEAR128, FREE_PITCH, 0,               1, 64, 128, 1, PIECE },
	/* a part a layer */
	{ LAYER_PARTS, TIGHT, RAM, FAR, FREE_PITCH, 1,                1, 128, 64, 1, PIECE },
	{ LAYER_PARTS, EVEN, RAM, FAR, FREE_PITCH, 1,                 2, 256, 32, 1, PIECE },
	{ LAYER_PARTS, UNEVEN, RAM, FAR, FREE_PITCH, 1,               32, 4096, 2, 1, PIECE },
	{ LAYER_PARTS, DOWN, RAM, FAR, FREE_PITCH, 1,                 32, 4096, 2, 1, PIECE },
	{ LAYER_PARTS, UNEVEN, RAM, NEAR128, FREE_PITCH, 1,           32, 64, 128, 1, PIECE },
	{ LAYER_PARTS_BLOCKS, EVEN, RAM, FAR, FREE_PITCH, 1,          1, 128, 32, 1, 2 * PIECE },
	{ LAYER_PARTS_BLOCKS, DOWN, RAM, FAR, FREE_PITCH, 1,          32, 4096, 1, 1, 2 * PIECE },
	{ MLA, EVEN, RAM_MLA, FAR, FREE_PITCH, 1,                     2, 256, 32, 1, PIECE },
	{ MLA, EVEN, MLA, NEAR128, FREE_PITCH, 1,                     2, 2, 32, 1, 128 * PIECE },
	/* pitches that the device does not take */
	{ ONE_ALLOCATION, EVEN, RAM, FAR, TENSOR, 1,                  1, 128, 64, 1, PIECE },
	{ ONE_ALLOCATION, EVEN, RAM, FAR, TENSOR - 1, 1,              64, 8192, 1, 1, PIECE },
	{ RAM, EVEN, ONE_ALLOCATION, FAR, TENSOR - 1, 1,              64, 8192, 1, 1, PIECE },
	{ ONE_ALLOCATION, EVEN, RAM, NEAR128, TENSOR - 1, 1,          64, 64, 128, 1, PIECE },
	{ ONE_ALLOCATION, EVEN, RAM, NEAR8, 64 * PIECE - 1, 1,        64, 512, 1, 1, PIECE },
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
		is_int(make(limits.max_pitch), 0, "choice %zu: %s <- %s", i,
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
	is_int(make(FREE_PITCH), -EPROTO, "images of another size");
	ok(strstr(gpc_last_error(), "images of 163840 bytes") &&
	   strstr(gpc_last_error(), "have 262144"), "the sentence: %s", gpc_last_error());
	memset(&to.l, 0, sizeof(to.l));
	memset(&from.l, 0, sizeof(from.l));
	layout_add(&to.l, 0, PLAN_CUTS + 1, 4, 0, 8, 8 * BLOCKS);
	layout_add(&from.l, 0, 1, 4 * (PLAN_CUTS + 1), 0, 4 * (PLAN_CUTS + 1), 0);
	is_int(make(FREE_PITCH), -EOVERFLOW, "more cuts than may be");
	ok(strstr(gpc_last_error(), "more than 65536 pieces"), "%s", gpc_last_error());
	to.l.run[0].count--;
	from.l.run[0].bytes -= 4;
	is_int(p.nshapes, 4711, "nothing was written");
	is_int(make(FREE_PITCH), 0, "as many as may be");
	ok(p.nshapes == 1 && p.cuts == PLAN_CUTS, "are one shape, for they are even");
	plan_free(&p);
	is_int(make(8 * BLOCKS - 1), -EOVERFLOW, "they are not, when no pitch will do");
	ok(strstr(gpc_last_error(), "more than 4096 pieces at irregular"), "%s", gpc_last_error());
	to.l.run[0].count = PLAN_SHAPES;
	from.l.run[0].bytes = 4 * PLAN_SHAPES;
	is_int(make(8 * BLOCKS - 1), 0, "4096 shapes");
	is_int(p.nshapes, PLAN_SHAPES, "each a row");
	plan_free(&p);
	is_int((long long)(uintptr_t)p.shape, 0, "a plan that is freed is none");
}

/* Two parts at one place are a mistake of who lent them, and no reason to crash. */
static void test_same_place(void)
{
	place(&to, LAYER_PARTS, EVEN, 1ull << 45);
	place(&from, RAM, EVEN, 1ull << 44);
	to.base[7] = to.base[6] = to.base[3];
	is_int(make(FREE_PITCH), 0, "parts that lie on each other");
	is_int(p.cuts, 64, "each of their pieces is copied");
	plan_free(&p);
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
	is_int(make(limits.max_pitch), 0, "8192 rows");
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

/* ---- at random, byte by byte ---- */

#define ARENA 65536u
#define FEW 12u                          /* slots */
#define ROUNDS 12000

static uint8_t source[ARENA], target[ARENA], wanted[ARENA];
static uint64_t seed = 0x2545f4914f6cdd1dull;

static uint32_t dice(uint32_t below)
{
	return crew_random(&seed, below);
}

/* Runs of a random shape, `left` bytes of an image altogether. */
static void random_runs(struct runs *l, uint64_t left)
{
	bool by_slot = dice(2);
	uint32_t i, nparts = 1 + dice(3);
	uint64_t end[3] = { 0 }, slot = 0;

	memset(l, 0, sizeof(*l));
	while (left) {
		uint64_t bytes = 1 + dice((uint32_t)MIN(left, 24u));
		uint32_t count = 1 + dice((uint32_t)MIN(left / bytes, 6u));
		uint32_t part = by_slot ? 0 : dice(nparts);
		uint64_t gap = dice(2) ? 0 : dice(9), stride = bytes + gap;
		uint64_t r = by_slot ? stride : FEW * stride + (dice(2) ? 0 : stride * dice(3));

		if (l->nruns == 40) {
			count = 1;
			bytes = left;
		}
		if (by_slot) {
			layout_add(l, part, count, bytes, slot, 0, r);
			slot += count * MAX(r, bytes) + dice(3);
		} else {
			layout_add(l, part, count, bytes, end[part], MAX(stride, bytes),
				   MAX(r, FEW * MAX(stride, bytes)));
			end[part] += count * MAX(r, FEW * MAX(stride, bytes)) + dice(4);
		}
		left -= count * bytes;
	}
	slot += dice(2) ? 0 : dice(30);
	for (i = 0; by_slot && i < l->nruns; i++)
		l->run[i].slot_stride = slot;
	for (i = l->nruns - 1; i > 0 && dice(2); i--) {          /* another order of the image */
		uint32_t j = dice(i + 1);
		struct shm_run r = l->run[i];

		l->run[i] = l->run[j];
		l->run[j] = r;
	}
	l->nparts = 3;
}

static void random_side(struct side *s, uint8_t *arena, uint32_t layers, uint64_t piece)
{
	static const enum layout_name name[] = {
		WHOLE, LAYER_PARTS, LAYER_PARTS_BLOCKS, ONE_ALLOCATION, KEYS_THEN_VALUES,
		CROSS_LAYER, CROSS_LAYER_SPLIT, PADDED, LISTED,
	};
	uint64_t bytes[SHM_PARTS], image, at = dice(64), gap = dice(3) ? dice(200) : 0;
	uint32_t i, k;
	bool down = !dice(3), even = dice(2);

	if (dice(2))
		random_runs(&s->l, 2 * layers * piece);
	else
		layout_make(&s->l, name[dice(ARRAY_SIZE(name))], layers, piece, FEW);
	if (memory_check_runs(s->l.run, s->l.nruns, s->l.nparts, FEW, bytes, &image) < 0)
		bail("a layout of this test: %s", gpc_last_error());
	if (image != 2 * layers * piece)
		bail("an image of %llu bytes", (unsigned long long)image);
	for (i = 0; i < s->l.nparts; i++) {
		k = down ? s->l.nparts - 1 - i : i;
		s->base[k] = arena + at;
		at += bytes[k] + (even ? gap : dice(200));
	}
	if (at > ARENA)
		bail("%llu bytes do not fit", (unsigned long long)at);
}

static uint64_t byte_at(const struct side *s, uint32_t slot, uint64_t i)
{
	const struct shm_run *r = s->l.run;

	for (; i >= r->count * r->bytes; r++)
		i -= r->count * r->bytes;
	return (uintptr_t)s->base[r->part] + r->offset + slot * r->slot_stride +
	       i / r->bytes * r->run_stride + i % r->bytes;
}

/* What an operation must keep to, and what has been copied. */
struct check {
	const struct copy_limits *limits;
	const struct plan_host *host;
	uint64_t bytes;
	uint32_t ops, wrong;
};

static bool is_height(uint64_t slice, uint64_t pitch, uint64_t rows)
{
	return slice % pitch == 0 && slice / pitch >= rows;
}

static bool keeps_limits(const struct check *c, const struct copy_op *op)
{
	const uint8_t *at = c->host->is_to ? op->to : op->from;
	uint64_t pitch = c->host->is_to ? op->to_pitch : op->from_pitch;
	uint64_t slice = c->host->is_to ? op->to_slice : op->from_slice;
	uint64_t first = (uint64_t)(at - c->host->base);
	uint64_t last = first + (op->slices - 1) * slice + (op->rows - 1) * pitch + op->width - 1;

	if (!op->rows || !op->slices || !op->width || op->to_pitch < op->width ||
	    op->from_pitch < op->width)
		return false;
	if ((op->rows > 1 || op->slices > 1) &&
	    (op->to_pitch > c->limits->max_pitch || op->from_pitch > c->limits->max_pitch))
		return false;
	if (op->slices > 1 && (!c->limits->slices ||
			       !is_height(op->to_slice, op->to_pitch, op->rows) ||
			       !is_height(op->from_slice, op->from_pitch, op->rows)))
		return false;
	return !c->host->chunk || first / c->host->chunk == last / c->host->chunk;
}

static int carry_out(void *arg, const struct copy_op *ops, uint32_t nops)
{
	struct check *c = arg;
	uint64_t s, r;
	uint32_t i;

	c->wrong += !nops || nops > PLAN_BATCH;
	for (i = 0; i < nops; i++) {
		const struct copy_op *op = &ops[i];

		c->ops++;
		c->wrong += !keeps_limits(c, op);
		for (s = 0; s < op->slices; s++)
			for (r = 0; r < op->rows; r++)
				memcpy(op->to + s * op->to_slice + r * op->to_pitch,
				       op->from + s * op->from_slice + r * op->from_pitch,
				       op->width);
		c->bytes += op->slices * op->rows * op->width;
	}
	return 0;
}

/* Pairs, no target twice, with neighbours among them. */
static uint32_t random_pairs(struct copy_pair *ret)
{
	bool used[FEW] = { false };
	uint32_t i, n = 0, most = 1 + dice(FEW);
	struct copy_pair at = { dice(FEW), dice(FEW) };

	for (i = 0; i < 50 && n < most; i++) {
		if (used[at.to] || dice(4) == 0) {
			at = (struct copy_pair){ dice(FEW), dice(FEW) };
			continue;
		}
		used[at.to] = true;
		ret[n++] = at;
		at.from = (at.from + 1) % FEW;
		at.to = (at.to + 1) % FEW;
	}
	return n;
}

static uint64_t random_limit(void)
{
	return dice(2) ? FREE_PITCH : 1 + dice(1 + dice(2000));
}

static bool one_round(uint64_t *ret_ops, uint32_t *ret_slices)
{
	uint32_t layers = 1 + dice(6), n, i;
	uint64_t piece = 4 + 4 * dice(5), b;
	struct copy_limits limits = { random_limit(), dice(2), false };
	struct plan_host host = { .is_to = dice(2) };
	struct check c = { &limits, &host, 0, 0, 0 };
	struct copy_pair pairs[FEW];

	random_side(&from, source, layers, piece);
	random_side(&to, target, layers, piece);
	n = random_pairs(pairs);
	host.base = (host.is_to ? target : source) - dice(5000);
	host.chunk = dice(2) ? 0 : 1 + dice(1 + dice(4000));
	if (make(limits.max_pitch) < 0)
		bail("no plan: %s", gpc_last_error());
	for (i = 0; i < ARENA; i++) {
		source[i] = (uint8_t)(i * 167 + (i >> 8) * 59 + 1);
		target[i] = wanted[i] = (uint8_t)(i * 31 + (i >> 8));
	}
	for (i = 0; i < n; i++)
		for (b = 0; b < 2 * layers * piece; b++)
			wanted[byte_at(&to, pairs[i].to, b) - (uintptr_t)target] =
				*(uint8_t *)(uintptr_t)byte_at(&from, pairs[i].from, b);
	if (plan_run(&p, &limits, &host, pairs, n, carry_out, &c) < 0)
		return false;
	*ret_ops += c.ops;
	if (!host.chunk && c.ops > n * p.nshapes)
		c.wrong++;
	*ret_slices += limits.slices && c.ops < n;
	plan_free(&p);
	return !c.wrong && c.bytes == n * 2 * layers * piece && !memcmp(target, wanted, ARENA);
}

static void test_random(void)
{
	uint64_t ops = 0;
	uint32_t i, wrong = 0, folded = 0;

	for (i = 0; i < ROUNDS; i++) {
		if (!one_round(&ops, &folded) && !wrong++)
			diag("round %u is the first that is wrong", i);
	}
	is_int(wrong, 0, "%d copies between layouts at random, by %llu operations, byte by byte",
	       ROUNDS, (unsigned long long)ops);
	ok(folded > ROUNDS / 50, "%u of them with fewer operations than blocks", folded);
}

static int body(void)
{
	test_choices();
	test_refusals();
	test_same_place();
	test_stop();
	test_random();
	return done_testing();
}

int main(void)
{
	return tap_guard(60, body, NULL);
}
