/* SPDX-License-Identifier: Apache-2.0 */
/* bytes/plan-bytes - operations copy what they are to and nothing else: layouts, slots and limits at
 * random, and every byte is compared with a copy piece by piece.
 * Tests: lib/bytes/payload/plan_run.c lib/bytes/payload/plan.c */
#include "config.h"

#include "index/base/base.h"
#include "gpc.h"
#include "bytes/memfile/memfile.h"
#include "t/lib/crew.h"
#include "t/lib/plans.h"

#define ARENA 65536u
#define FEW   12u /* slots */
#ifdef __SANITIZE_THREAD__
#define ROUNDS 500
#else
#define ROUNDS 12000
#endif

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
	for (i = l->nruns - 1; i > 0 && dice(2); i--) { /* another order of the image */
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
		WHOLE,
		LAYER_PARTS,
		LAYER_PARTS_BLOCKS,
		ONE_ALLOCATION,
		KEYS_THEN_VALUES,
		CROSS_LAYER,
		CROSS_LAYER_SPLIT,
		PADDED,
		LISTED,
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

/* The image in up to four parts, whose borders are anywhere, one after the other. */
static int run_parts(const struct copy_limits *limits, const struct plan_host *host,
		     const struct copy_pair *pairs, uint32_t n, struct check *c)
{
	const struct plan_side t = { to.l.nruns, to.l.run, to.base };
	const struct plan_side f = { from.l.nruns, from.l.run, from.base };
	uint64_t image = plan_image_bytes(&t), at = 0, bytes;
	uint32_t part, parts = 1 + dice(4);
	int err = 0;

	for (part = 0; err == 0 && at < image; part++, at += bytes) {
		bytes = part < parts ? 1 + dice((uint32_t)(image - at)) : image - at;
		err = plan_make_part(&t, &f, limits, at, bytes, &p);
		if (err)
			break;
		err = plan_run(&p, limits, host, pairs, n, carry_out, c);
		plan_free(&p);
	}
	return err;
}

static uint64_t random_limit(void)
{
	return dice(2) ? FREE_PITCH : 1 + dice(1 + dice(2000));
}

/* As one image, or in parts. */
static bool one_round(bool by_parts, uint64_t *ret_ops, uint32_t *ret_slices)
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
	if (make_plan(limits.max_pitch) < 0)
		bail("no plan: %s", gpc_last_error());
	for (i = 0; i < ARENA; i++) {
		source[i] = (uint8_t)(i * 167 + (i >> 8) * 59 + 1);
		target[i] = wanted[i] = (uint8_t)(i * 31 + (i >> 8));
	}
	for (i = 0; i < n; i++)
		for (b = 0; b < 2 * layers * piece; b++)
			wanted[byte_at(&to, pairs[i].to, b) - (uintptr_t)target] =
				*(uint8_t *)(uintptr_t)byte_at(&from, pairs[i].from, b);
	if (by_parts) {
		plan_free(&p);
		if (run_parts(&limits, &host, pairs, n, &c) < 0)
			return false;
		return !c.wrong && c.bytes == n * 2 * layers * piece &&
		       !memcmp(target, wanted, ARENA);
	}
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
		if (!one_round(false, &ops, &folded) && !wrong++)
			diag("round %u is the first that is wrong", i);
	}
	is_int(wrong, 0, "%d copies between layouts at random, by %llu operations, byte by byte",
	       ROUNDS, (unsigned long long)ops);
	ok(folded > ROUNDS / 50, "%u of them with fewer operations than blocks", folded);
}

static void test_parts(void)
{
	uint64_t ops = 0;
	uint32_t i, wrong = 0, none = 0;

	for (i = 0; i < ROUNDS / 4; i++)
		if (!one_round(true, &ops, &none) && !wrong++)
			diag("round %u is the first that is wrong: %s", i, gpc_last_error());
	is_int(wrong, 0, "%d copies in parts whose borders are anywhere", ROUNDS / 4);
}

static int body(void)
{
	test_random();
	test_parts();
	return done_testing();
}

int main(void)
{
	return tap_guard(60, body, NULL);
}
