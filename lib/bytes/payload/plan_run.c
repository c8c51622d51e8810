/* SPDX-License-Identifier: Apache-2.0 */
/* plan_run.c - makes operations from shapes and pairs of slots.
 * Tests: t/bytes/plan-bytes.t t/bytes/plan.t */
#include "config.h"

#include "bytes/payload/plan.h"

#include "index/base/base.h"

/* Gathered operations, and the chunk of the last one. */
struct op_batch {
	const struct copy_limits *limits;
	const struct plan_host *host;
	uint64_t chunk_at;  /* distance of the chunk from the host's base ... */
	uint64_t chunk_end; /* ... and its end; both are 0 at first */
	int (*emit)(void *arg, const struct copy_op *ops, uint32_t nops);
	void *arg;
	uint32_t n;
	struct copy_op op[PLAN_BATCH];
};

/* ---- out ---- */

static int flush(struct op_batch *b)
{
	int err = b->n ? b->emit(b->arg, b->op, b->n) : 0;

	b->n = 0;
	return err;
}

static int put(struct op_batch *b, const struct copy_op *op)
{
	b->op[b->n++] = *op;
	return b->n == PLAN_BATCH ? flush(b) : 0;
}

/* ---- ends of chunks ---- */

/* The part of an operation on the host's side. */
struct spot {
	uint64_t at, pitch, slice;
};

static struct spot host_place(const struct op_batch *b, const struct copy_op *op)
{
	const uint8_t *at = b->host->is_to ? op->to : op->from;

	return (struct spot){
		(uint64_t)(at - b->host->base),
		b->host->is_to ? op->to_pitch : op->from_pitch,
		b->host->is_to ? op->to_slice : op->from_slice,
	};
}

/* Set the chunk to that of a byte; returns the number of bytes left in it. */
static uint64_t chunk_left(struct op_batch *b, uint64_t at)
{
	if (at < b->chunk_at || at >= b->chunk_end) {
		b->chunk_at = at - at % b->host->chunk;
		b->chunk_end = b->chunk_at + b->host->chunk;
	}
	return b->chunk_end - at;
}

static uint64_t rows_span(const struct copy_op *op, const struct spot *p)
{
	return (op->rows - 1) * p->pitch + op->width;
}

/* The number of pieces of `bytes` bytes, a stride apart, that end within `left`. */
static uint64_t fit(uint64_t left, uint64_t bytes, uint64_t stride, uint64_t most)
{
	return left < bytes ? 0 : MIN(most, (left - bytes) / stride + 1);
}

static void advance(struct copy_op *op, uint64_t to, uint64_t from)
{
	op->to += to;
	op->from += from;
}

/* One row, with an operation for each of its chunks. */
static int put_row(struct op_batch *b, struct copy_op op)
{
	uint64_t bytes = op.width, some;
	int err = 0;

	while (err == 0 && bytes) {
		some = MIN(bytes, chunk_left(b, host_place(b, &op).at));
		op.width = op.to_pitch = op.from_pitch = some;
		err = put(b, &op);
		advance(&op, some, some);
		bytes -= some;
	}
	return err;
}

/* Rows: first those that end within a chunk, then the row that crosses its end, and so on. */
static int put_rows(struct op_batch *b, struct copy_op op)
{
	uint64_t rows = op.rows, some;
	int err = 0;

	while (err == 0 && rows) {
		struct spot p = host_place(b, &op);

		some = fit(chunk_left(b, p.at), op.width, p.pitch, rows);
		op.rows = MAX(some, 1u);
		err = some > 1 ? put(b, &op) : put_row(b, op);
		rows -= op.rows;
		advance(&op, op.rows * op.to_pitch, op.rows * op.from_pitch);
	}
	return err;
}

static int put_slices(struct op_batch *b, struct copy_op op)
{
	uint64_t slices = op.slices, some;
	int err = 0;

	while (err == 0 && slices) {
		struct spot p = host_place(b, &op);

		some = fit(chunk_left(b, p.at), rows_span(&op, &p), p.slice, slices);
		op.slices = MAX(some, 1u);
		err = some ? put(b, &op) : put_rows(b, op);
		slices -= op.slices;
		advance(&op, op.slices * op.to_slice, op.slices * op.from_slice);
	}
	return err;
}

static int put_within_chunks(struct op_batch *b, const struct copy_op *op)
{
	struct spot p;

	if (!b->host->chunk)
		return put(b, op);
	p = host_place(b, op);
	if ((op->slices - 1) * p.slice + rows_span(op, &p) <= chunk_left(b, p.at))
		return put(b, op);
	return put_slices(b, *op);
}

/* ---- one shape ---- */

static inline struct copy_op at_slots(const struct copy_shape *s, const struct copy_pair *pair)
{
	return (struct copy_op){
		.to = s->to + pair->to * s->to_slot,
		.from = s->from + pair->from * s->from_slot,
		.width = s->width,
		.rows = s->rows,
		.to_pitch = s->to_pitch,
		.from_pitch = s->from_pitch,
		.slices = 1,
	};
}

/* The slots have no gap between them: are they wider rows, or more rows? */
static bool is_whole(const struct copy_shape *s, uint64_t n, struct copy_op *op)
{
	if (s->to_slot == s->width && s->from_slot == s->width &&
	    (s->rows == 1 || (n * s->width <= s->to_pitch && n * s->width <= s->from_pitch))) {
		op->width *= n;
		if (s->rows == 1)
			op->to_pitch = op->from_pitch = op->width;
		return true;
	}
	if (s->rows == 1 || s->to_slot != s->rows * s->to_pitch ||
	    s->from_slot != s->rows * s->from_pitch)
		return false;
	op->rows *= n;
	return true;
}

/* A stride is wide enough if pieces have bytes of their own.  An engine that lends two overlapping
 * parts gets garbage; the tests here and below keep it from operations that fail. */
static bool can_be_pitch(const struct op_batch *b, const struct copy_shape *s)
{
	return s->to_slot >= s->width && s->from_slot >= s->width &&
	       s->to_slot <= b->limits->max_pitch && s->from_slot <= b->limits->max_pitch;
}

/* A slice is `height` pitches, and has at most that many rows. */
static bool is_slice(uint64_t stride, uint64_t pitch, uint64_t rows, uint64_t max_pitch)
{
	return stride <= max_pitch && stride % pitch == 0 && stride / pitch >= rows;
}

/* Slots may be slices of rows, or rows may be slices of slots. */
static bool is_slices(const struct op_batch *b, const struct copy_shape *s, uint64_t n,
		      struct copy_op *op)
{
	uint64_t most = b->limits->max_pitch;

	if (!b->limits->slices)
		return false;
	if (is_slice(s->to_slot, s->to_pitch, s->rows, most) &&
	    is_slice(s->from_slot, s->from_pitch, s->rows, most)) {
		op->slices = n;
		op->to_slice = s->to_slot;
		op->from_slice = s->from_slot;
		return true;
	}
	if (!can_be_pitch(b, s) || !is_slice(s->to_pitch, s->to_slot, n, most) ||
	    !is_slice(s->from_pitch, s->from_slot, n, most))
		return false;
	op->slices = s->rows;
	op->to_slice = s->to_pitch;
	op->from_slice = s->from_pitch;
	op->rows = n;
	op->to_pitch = s->to_slot;
	op->from_pitch = s->from_slot;
	return true;
}

static int put_cuts(struct op_batch *b, const struct copy_shape *s, uint64_t n, struct copy_op op)
{
	uint64_t i;
	int err = 0;

	op.rows = n;
	op.to_pitch = s->to_slot;
	op.from_pitch = s->from_slot;
	for (i = 0; err == 0 && i < s->rows; i++) {
		err = put_within_chunks(b, &op);
		advance(&op, s->to_pitch, s->from_pitch);
	}
	return err;
}

static int put_blocks(struct op_batch *b, const struct copy_shape *s, uint64_t n, struct copy_op op)
{
	int err = 0;

	while (err == 0 && n--) {
		err = put_within_chunks(b, &op);
		advance(&op, s->to_slot, s->from_slot);
	}
	return err;
}

/* n neighbours, in the form with the fewest operations. */
static int put_neighbours(struct op_batch *b, const struct copy_shape *s, uint64_t n,
			  const struct copy_pair *first)
{
	struct copy_op op = at_slots(s, first);

	if (is_whole(s, n, &op))
		return put_within_chunks(b, &op);
	if (s->rows > 1 && is_slices(b, s, n, &op))
		return put_within_chunks(b, &op);
	if (s->rows < n && can_be_pitch(b, s))
		return put_cuts(b, s, n, op);
	return put_blocks(b, s, n, op);
}

/* ---- all pairs ---- */

static uint32_t count_neighbours(const struct copy_pair *pairs, uint32_t n)
{
	uint32_t i = 1;

	while (i < n && pairs[i].to == pairs[i - 1].to + 1 &&
	       pairs[i].from == pairs[i - 1].from + 1)
		i++;
	return i;
}

int plan_run(const struct plan *p, const struct copy_limits *limits, const struct plan_host *host,
	     const struct copy_pair *pairs, uint32_t n,
	     int (*emit)(void *arg, const struct copy_op *ops, uint32_t nops), void *arg)
{
	struct op_batch b;
	uint32_t i, near, k;
	int err = 0;

	b.limits = limits;
	b.host = host;
	b.chunk_at = b.chunk_end = 0;
	b.emit = emit;
	b.arg = arg;
	b.n = 0;
	for (i = 0; err == 0 && i < n; i += near) {
		near = count_neighbours(pairs + i, n - i);
		for (k = 0; err == 0 && k < p->nshapes; k++) {
			if (near > 1) {
				err = put_neighbours(&b, &p->shape[k], near, &pairs[i]);
			} else {
				struct copy_op op = at_slots(&p->shape[k], &pairs[i]);

				err = put_within_chunks(&b, &op);
			}
		}
	}
	return err ? err : flush(&b);
}
