/* SPDX-License-Identifier: Apache-2.0 */
/* plans.h - two layouts at addresses, their plan, and what each operation must keep to. */
#ifndef GPC_T_PLANS_H
#define GPC_T_PLANS_H

#include "bytes/payload/plan.h"
#include "t/lib/layouts.h"

#define FREE_PITCH UINT64_MAX

struct side {
	struct runs l;
	uint8_t *base[SHM_PARTS];
};

static struct side to, from;
static struct plan p;

TAP_FN int make_plan(uint64_t max_pitch)
{
	const struct plan_side t = { to.l.nruns, to.l.run, to.base };
	const struct plan_side f = { from.l.nruns, from.l.run, from.base };
	const struct copy_limits limits = { .max_pitch = max_pitch };

	return plan_make(&t, &f, &limits, &p);
}

/* What an operation must keep to, and what has been copied. */
struct check {
	const struct copy_limits *limits;
	const struct plan_host *host;
	uint64_t bytes;
	uint32_t ops, wrong;
};

TAP_FN bool is_height(uint64_t slice, uint64_t pitch, uint64_t rows)
{
	return slice % pitch == 0 && slice / pitch >= rows;
}

TAP_FN bool keeps_limits(const struct check *c, const struct copy_op *op)
{
	const uint8_t *at = c->host->is_to ? op->to : op->from;
	uint64_t pitch = c->host->is_to ? op->to_pitch : op->from_pitch;
	uint64_t slice = c->host->is_to ? op->to_slice : op->from_slice;
	uint64_t first = (uint64_t)(at - c->host->base);
	uint64_t last = first + (op->slices - 1) * slice + (op->rows - 1) * pitch + op->width - 1;

	if (!op->rows || !op->slices || !op->width || op->to_pitch < op->width ||
	    op->from_pitch < op->width)
		return false;
	if (op->rows == 1 && op->slices == 1 &&
	    (op->to_pitch != op->width || op->from_pitch != op->width))
		return false;
	if ((op->rows > 1 || op->slices > 1) &&
	    (op->to_pitch > c->limits->max_pitch || op->from_pitch > c->limits->max_pitch))
		return false;
	if (op->slices > 1 &&
	    (!c->limits->slices || !is_height(op->to_slice, op->to_pitch, op->rows) ||
	     !is_height(op->from_slice, op->from_pitch, op->rows)))
		return false;
	return !c->host->chunk || first / c->host->chunk == last / c->host->chunk;
}

#endif
