/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - two layouts become shapes.
 *
 *   cut      Both images are walked side by side, and cut wherever either of them is.
 *   join     Cuts that follow each other on both sides become one, in whatever order the images
 *            have them.
 *   fold     The cuts of one width are sorted by address.  From the first cut that is left, rows of
 *            equal steps begin with a step to one of the next CANDIDATES, and the longest of these
 *            rows is taken.  So layers that alternate (for instance K, V, K, V at equal distances)
 *            are folded separately.
 *
 * Both steps of a fold are at least the width and at most max_pitch.  So a pitched copy can take a
 * shape, and a shape whose addresses descend is copied row by row.
 * Tests: t/bytes/plan-strides.t t/bytes/plan.t t/bytes/plan-bytes.t */
#include "config.h"

#include "bytes/payload/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "index/base/err.h"

#define CANDIDATES 64u

struct cut {
	uint64_t to, from, width, to_slot, from_slot;
	bool folded;
};

struct cuts {
	struct cut *cut;
	uint32_t n, room;
};

/* ---- cut ---- */

struct plan_walk {
	const struct plan_side *side;
	uint32_t run, piece;
	uint64_t at; /* the position in the piece */
};

/* Pieces without a gap between them count as one. */
static bool is_one(const struct shm_run *r)
{
	return r->count == 1 || r->run_stride == r->bytes;
}

static uint64_t piece_bytes(const struct plan_walk *w)
{
	const struct shm_run *r = &w->side->run[w->run];

	return is_one(r) ? r->count * r->bytes : r->bytes;
}

static uint64_t walk_address(const struct plan_walk *w)
{
	const struct shm_run *r = &w->side->run[w->run];

	return (uint64_t)(uintptr_t)w->side->base[r->part] + r->offset + w->piece * r->run_stride +
	       w->at;
}

static void walk_on(struct plan_walk *w, uint64_t bytes)
{
	const struct shm_run *r = &w->side->run[w->run];

	w->at += bytes;
	if (w->at < piece_bytes(w))
		return;
	w->at = 0;
	if (is_one(r) || ++w->piece == r->count) {
		w->piece = 0;
		w->run++;
	}
}

static void walk_to(struct plan_walk *w, uint64_t at)
{
	uint64_t step;

	for (; at; at -= step) {
		step = MIN(at, piece_bytes(w) - w->at);
		walk_on(w, step);
	}
}

uint64_t plan_image_bytes(const struct plan_side *s)
{
	uint64_t bytes = 0;
	uint32_t i;

	for (i = 0; i < s->nruns; i++)
		bytes += s->run[i].count * s->run[i].bytes;
	return bytes;
}

static int add_cut(struct cuts *c, const struct cut *cut)
{
	if (c->n == PLAN_CUTS)
		return err_set(EOVERFLOW,
			       "the two layouts cut an image into more than %u pieces: "
			       "at most so many can be copied",
			       PLAN_CUTS);
	if (c->n == c->room) {
		uint32_t room = c->room ? 2 * c->room : 256;
		struct cut *more = realloc(c->cut, room * sizeof(*more));

		if (!more)
			return err_set(ENOMEM, "no memory for the plan of a copy");
		c->cut = more;
		c->room = room;
	}
	c->cut[c->n++] = *cut;
	return 0;
}

static int cut_image(const struct plan_side *to, const struct plan_side *from, uint64_t at,
		     uint64_t left, struct cuts *ret)
{
	struct plan_walk t = { .side = to }, f = { .side = from };
	uint64_t image = plan_image_bytes(to);
	int err = 0;

	if (plan_image_bytes(from) != image)
		return err_set(EPROTO,
			       "images of %llu bytes cannot be copied to blocks whose "
			       "images have %llu",
			       (unsigned long long)plan_image_bytes(from),
			       (unsigned long long)image);
	walk_to(&t, at);
	walk_to(&f, at);
	while (err == 0 && left) {
		uint64_t width = MIN(MIN(piece_bytes(&t) - t.at, piece_bytes(&f) - f.at), left);

		err = add_cut(ret, &(struct cut){ walk_address(&t), walk_address(&f), width,
						  to->run[t.run].slot_stride,
						  from->run[f.run].slot_stride, false });
		walk_on(&t, width);
		walk_on(&f, width);
		left -= width;
	}
	return err;
}

/* ---- join ---- */

static int order(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int order_slots(const struct cut *a, const struct cut *b)
{
	int by = order(a->to_slot, b->to_slot);

	return by ? by : order(a->from_slot, b->from_slot);
}

static int by_address(const void *va, const void *vb)
{
	const struct cut *a = va, *b = vb;
	int by = order_slots(a, b);

	return by ? by : order(a->to, b->to);
}

static void join_cuts(struct cuts *c)
{
	uint32_t i, n = 0;

	qsort(c->cut, c->n, sizeof(*c->cut), by_address);
	for (i = 1; i < c->n; i++) {
		struct cut *a = &c->cut[n], *b = &c->cut[i];

		if (!order_slots(a, b) && a->to + a->width == b->to &&
		    a->from + a->width == b->from)
			a->width += b->width;
		else
			c->cut[++n] = *b;
	}
	c->n = n + 1;
}

/* ---- fold ---- */

static int by_width(const void *va, const void *vb)
{
	const struct cut *a = va, *b = vb;
	int by = order_slots(a, b);

	by = by ? by : order(a->width, b->width);
	return by ? by : order(a->to, b->to);
}

/* The cuts of one width, with their strides, by address. */
struct fold {
	struct cut *cut;
	uint32_t n;
};

static struct cut *find_cut(const struct fold *g, uint64_t to, uint64_t from)
{
	uint32_t low = 0, high = g->n;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (g->cut[mid].to < to)
			low = mid + 1;
		else
			high = mid;
	}
	if (low == g->n || g->cut[low].to != to || g->cut[low].from != from || g->cut[low].folded)
		return NULL;
	return &g->cut[low];
}

static uint64_t count_rows(const struct fold *g, const struct copy_shape *s)
{
	uint64_t to = (uint64_t)(uintptr_t)s->to, from = (uint64_t)(uintptr_t)s->from, n = 1;

	while (find_cut(g, to + n * s->to_pitch, from + n * s->from_pitch))
		n++;
	return n;
}

/* The longest row of equal steps that begins at cut i, as a shape. */
static struct copy_shape fold_from(const struct fold *g, uint32_t i, uint32_t left,
				   uint64_t max_pitch)
{
	const struct cut *a = &g->cut[i], *b;
	struct copy_shape best = {
		.to = (uint8_t *)(uintptr_t)a->to,
		.from = (const uint8_t *)(uintptr_t)a->from,
		.to_slot = a->to_slot,
		.from_slot = a->from_slot,
		.width = a->width,
		.rows = 1,
		.to_pitch = a->width,
		.from_pitch = a->width,
	};
	struct copy_shape s = best;
	uint32_t tried = 0;

	for (b = a + 1; b < g->cut + g->n && tried < CANDIDATES && best.rows < left; b++) {
		s.to_pitch = b->to - a->to;
		s.from_pitch = b->from - a->from;
		if (s.to_pitch > max_pitch)
			break;
		if (b->folded)
			continue;
		tried++;
		if (b->from < a->from || s.from_pitch < a->width || s.to_pitch < a->width ||
		    s.from_pitch > max_pitch)
			continue;
		s.rows = count_rows(g, &s);
		if (s.rows > best.rows)
			best = s;
	}
	return best;
}

/* Cut i need not be marked: fold_group() only looks at later cuts. */
static void mark_folded(const struct fold *g, uint32_t i, const struct copy_shape *s)
{
	const struct cut *a = &g->cut[i];
	uint64_t k;

	for (k = 1; k < s->rows; k++)
		find_cut(g, a->to + k * s->to_pitch, a->from + k * s->from_pitch)->folded = true;
}

static int fold_group(const struct fold *g, uint64_t max_pitch, struct plan *p)
{
	uint32_t i, left = g->n;

	for (i = 0; i < g->n; i++) {
		struct copy_shape *s = &p->shape[p->nshapes];

		if (g->cut[i].folded)
			continue;
		if (p->nshapes == PLAN_SHAPES)
			return err_set(EOVERFLOW,
				       "the two layouts cut an image into more than "
				       "%u pieces at irregular distances: at most so many can "
				       "be copied",
				       PLAN_SHAPES);
		*s = fold_from(g, i, left, max_pitch);
		mark_folded(g, i, s);
		left -= (uint32_t)s->rows;
		p->nshapes++;
		p->cuts += (uint32_t)s->rows;
	}
	return 0;
}

static int fold_cuts(struct cuts *c, uint64_t max_pitch, struct plan *p)
{
	struct fold g = { c->cut, 0 };
	int err = 0;

	qsort(c->cut, c->n, sizeof(*c->cut), by_width);
	while (err == 0 && g.cut < c->cut + c->n) {
		struct cut *next = g.cut;

		while (next < c->cut + c->n && next->width == g.cut->width &&
		       !order_slots(next, g.cut))
			next++;
		g.n = (uint32_t)(next - g.cut);
		err = fold_group(&g, max_pitch, p);
		g.cut = next;
	}
	return err;
}

int plan_make(const struct plan_side *to, const struct plan_side *from,
	      const struct copy_limits *limits, struct plan *ret)
{
	return plan_make_part(to, from, limits, 0, plan_image_bytes(to), ret);
}

int plan_make_part(const struct plan_side *to, const struct plan_side *from,
		   const struct copy_limits *limits, uint64_t at, uint64_t bytes, struct plan *ret)
{
	struct cuts c = { 0 };
	struct plan p = { 0 };
	int err = cut_image(to, from, at, bytes, &c);

	if (err < 0)
		goto out;
	join_cuts(&c);
	p.shape = malloc(MIN(c.n, PLAN_SHAPES) * sizeof(*p.shape));
	if (!p.shape) {
		err = err_set(ENOMEM, "no memory for the plan of a copy");
		goto out;
	}
	err = fold_cuts(&c, limits->max_pitch, &p);
	if (err < 0)
		plan_free(&p);
	else
		*ret = p;
out:
	free(c.cut);
	return err;
}

void plan_free(struct plan *p)
{
	free(p->shape);
	*p = (struct plan){ 0 };
}
