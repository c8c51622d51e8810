/* SPDX-License-Identifier: Apache-2.0 */
/* bytes/plan-strides - pieces that touch each other in slot 0 and in no other one, on the side that
 * is read.  The side that is written is in t/bytes/plan.c.
 * Tests: lib/bytes/payload/plan.c */
#include "config.h"

#include "index/base/base.h"
#include "gpc.h"
#include "t/lib/plans.h"

enum { SLOTS = 8, PIECE = 8 };

static uint8_t bytes[2][4096];

static int copy_all(void *arg, const struct copy_op *ops, uint32_t nops)
{
	uint64_t slice, row;
	uint32_t i;

	(void)arg;
	for (i = 0; i < nops; i++)
		for (slice = 0; slice < ops[i].slices; slice++)
			for (row = 0; row < ops[i].rows; row++)
				memcpy(ops[i].to + slice * ops[i].to_slice + row * ops[i].to_pitch,
				       ops[i].from + slice * ops[i].from_slice +
					       row * ops[i].from_pitch,
				       ops[i].width);
	return 0;
}

/* Both pieces of a slot. */
static bool is_copied(uint32_t slot)
{
	const uint8_t *at = bytes[0] + slot * 2 * PIECE;
	const struct shm_run *r = from.l.run;

	return !memcmp(at, bytes[1] + r[0].offset + slot * r[0].slot_stride, PIECE) &&
	       !memcmp(at + PIECE, bytes[1] + r[1].offset + slot * r[1].slot_stride, PIECE);
}

static void test_from(uint64_t first, uint64_t second, uint32_t shapes)
{
	const struct copy_limits limits = { .max_pitch = FREE_PITCH, .slices = true };
	const struct plan_host none = { 0 };
	struct copy_pair pairs[SLOTS];
	uint32_t i, good = 0;

	to.l.nruns = from.l.nruns = 0;
	layout_add(&to.l, 0, 2, PIECE, 0, 2 * PIECE, PIECE);
	layout_add(&from.l, 0, 1, PIECE, 0, first, 0);
	layout_add(&from.l, 0, 1, PIECE, PIECE, second, 0);
	to.base[0] = bytes[0];
	from.base[0] = bytes[1];
	memset(bytes[0], 0, sizeof(bytes[0]));
	for (i = 0; i < SLOTS; i++)
		pairs[i] = (struct copy_pair){ i, i };
	is_int(make_plan(FREE_PITCH), 0, "slots %d and %d apart", (int)first, (int)second);
	is_int(p.nshapes, shapes, "shapes");
	is_int(plan_run(&p, &limits, &none, pairs, SLOTS, copy_all, NULL), 0, "copied");
	for (i = 0; i < SLOTS; i++)
		good += is_copied(i);
	is_int(good, SLOTS, "every byte of each slot");
	plan_free(&p);
}

static int body(void)
{
	uint32_t i;

	for (i = 0; i < sizeof(bytes[1]); i++)
		bytes[1][i] = (uint8_t)(i * 0x9e3779b1u >> 24);
	test_from(32, 32, 1);
	test_from(32, 96, 2);
	test_from(96, 32, 2);
	return done_testing();
}

int main(void)
{
	return tap_guard(20, body, NULL);
}
