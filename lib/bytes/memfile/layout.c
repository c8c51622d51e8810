/* SPDX-License-Identifier: Apache-2.0 */
/* memory_layout.c - are the runs of a layout possible, and does no piece lie on another one?
 *
 * The slots are not enumerated, since a pool may have 2^24 of them.  Two runs of a part overlap if
 * and only if
 *
 *	low <= k0 * step0 + k1 * step1 + k2 * step2 + k3 * step3 <= high,    0 <= k <= most
 *
 * has a solution, where the k count the slots and pieces of both runs, those of the second run
 * backwards.  Equal steps become one.  A step whose multiples fill the gaps of a larger step
 * absorbs that step.  Two remaining steps are decided in as many rounds as Euclid's algorithm
 * takes.  If three or four remain with a common unit, their remainders may decide.  If they do
 * not, one count is tried value by value: if one stride nests in the other, that count has two or
 * three values.  A layout that would take more than TRIES values in all is refused as too
 * irregular.
 * Tests: t/bytes/runs.t */
#include "config.h"

#include "bytes/memfile/memfile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "index/base/err.h"

#define BYTES_MOST ((uint64_t)1 << 62) /* all differences and sums fit int64_t then */
#define SLOTS_MOST (1u << 24)
#define TRIES      (1u << 16) /* for all pairs of runs together, in addition to ... */
#define TRIES_EACH 4u         /* ... this number for each pair */

struct term {
	uint64_t step, most;
};

struct sum {
	int64_t low, high;
	int n;
	struct term term[4];
};

/* ---- has a sum a solution? ---- */

/* The smallest t with low <= t * a mod m <= high, where 0 < low <= high < m; UINT64_MAX: none. */
static uint64_t first_within(uint64_t a, uint64_t m, uint64_t low, uint64_t high)
{
	uint64_t t;

	a %= m;
	if (!a)
		return UINT64_MAX;
	t = (low + a - 1) / a;
	if (t * a <= high)
		return t;
	/* No multiple of a lies there without a turn round m: count the turns, modulo a. */
	t = first_within(m % a, a, a - high % a, a - low % a);
	if (t == UINT64_MAX)
		return t;
	return (uint64_t)(((unsigned __int128)m * t + low + a - 1) / a);
}

/* There are two terms, and neither end of all sums lies within low .. high. */
static bool two_meet(const struct sum *s)
{
	const struct term *x = &s->term[0], *y = &s->term[1];
	int64_t y_end = (int64_t)(y->step * y->most);
	uint64_t width = (uint64_t)(s->high - s->low), first, last, c;

	first = s->low > y_end ? ((uint64_t)(s->low - y_end) + x->step - 1) / x->step : 0;
	last = MIN(x->most, (uint64_t)s->high / x->step);
	if (first > last)
		return false;
	/* For each x from first to last, the rest for y has to meet 0 .. y_end.  If the rest
	 * contains a multiple of y's step, it contains one from there on; if that is beyond y_end,
	 * the rest contains y_end as well. */
	c = ((uint64_t)s->high - first * x->step) % y->step;
	if (c <= width)
		return true;
	return first_within(y->step - x->step % y->step, y->step, y->step - c,
			    y->step - c + width) <= last - first;
}

static void drop(struct sum *s, int i)
{
	s->term[i] = s->term[--s->n];
}

/* Remove terms that can only be zero, and terms that are multiples of others without a gap. */
static void fold(struct sum *s)
{
	int i, j;

	for (i = s->n - 1; i >= 0; i--)
		if (!s->term[i].most)
			drop(s, i);
again:
	for (i = 0; i < s->n; i++) {
		for (j = 0; j < s->n; j++) {
			struct term *a = &s->term[i], *b = &s->term[j];

			if (i != j && b->step % a->step == 0 && a->most >= b->step / a->step - 1) {
				a->most += b->step / a->step * b->most;
				drop(s, j);
				goto again;
			}
		}
	}
}

static uint64_t common(uint64_t a, uint64_t b)
{
	return b ? common(b, a % b) : a;
}

/* Count in units of the common divisor of all steps: pieces in each other's gaps need no search.
 * 0 < low. */
static void scale(struct sum *s)
{
	uint64_t unit = 0;
	int i;

	for (i = 0; i < s->n; i++)
		unit = common(s->term[i].step, unit);
	for (i = 0; i < s->n; i++)
		s->term[i].step /= unit;
	s->low = (int64_t)(((uint64_t)s->low + unit - 1) / unit);
	s->high = (int64_t)((uint64_t)s->high / unit);
}

/* The number of values of term i that the other terms can complete, counted from *ret_first on. */
static uint64_t feasible(const struct sum *s, int i, uint64_t all, uint64_t *ret_first)
{
	const struct term *t = &s->term[i];
	int64_t need = s->low - (int64_t)(all - t->step * t->most);
	uint64_t last = MIN(t->most, (uint64_t)s->high / t->step);

	*ret_first = need > 0 ? ((uint64_t)need + t->step - 1) / t->step : 0;
	return *ret_first <= last ? last - *ret_first + 1 : 0;
}

/* 1: there is a solution.  0: there is none.  -1: *tries are used up. */
static int meets(struct sum s, uint32_t *tries)
{
	uint64_t all = 0, fewest = UINT64_MAX, first = 0, k, n, at;
	int i, chosen = 0, found = 0;
	struct term t;

	fold(&s);
	for (i = 0; i < s.n; i++)
		all += s.term[i].step * s.term[i].most;
	if (s.high < 0 || s.low > (int64_t)all)
		return 0;
	if (s.low <= 0 || s.high >= (int64_t)all)
		return 1;
	if (s.n == 1)
		return (uint64_t)s.high / s.term[0].step * s.term[0].step >= (uint64_t)s.low;
	if (s.n == 2)
		return two_meet(&s);
	scale(&s);
	if (s.low > s.high)
		return 0;
	for (i = 0, all = 0; i < s.n; i++)
		all += s.term[i].step * s.term[i].most;
	for (i = 0; i < s.n; i++) {
		n = feasible(&s, i, all, &at);
		if (n < fewest) {
			fewest = n;
			first = at;
			chosen = i;
		}
	}
	t = s.term[chosen];
	drop(&s, chosen);
	s.low -= (int64_t)(first * t.step);
	s.high -= (int64_t)(first * t.step);
	for (k = 0; k < fewest && found == 0; k++) {
		if (!*tries)
			return -1;
		--*tries;
		found = meets(s, tries);
		s.low -= (int64_t)t.step;
		s.high -= (int64_t)t.step;
	}
	return found;
}

/* ---- runs that are possible ---- */

static int check_field(uint32_t i, const char *field, uint64_t value, uint64_t low, uint64_t high)
{
	char name[40];

	if (value >= low && value <= high)
		return 0;
	snprintf(name, sizeof(name), "runs[%u].%s", i, field);
	return err_range(name, value, low, high);
}

static uint64_t pieces_span(const struct shm_run *r)
{
	return r->count > 1 ? (r->count - 1) * r->run_stride : 0;
}

static uint64_t slots_span(const struct shm_run *r, uint32_t slots)
{
	return (slots - 1) * r->slot_stride;
}

static uint64_t run_end(const struct shm_run *r, uint32_t slots)
{
	return r->offset + slots_span(r, slots) + pieces_span(r) + r->bytes;
}

/* So many pieces in a row must be able to end before BYTES_MOST with some stride. */
static int check_room(uint32_t i, uint64_t bytes, uint64_t n, const char *what, uint64_t left)
{
	if (n <= 1 || bytes <= left / (n - 1))
		return 0;
	return err_set(EINVAL,
		       "runs[%u].bytes is %llu: %llu %s of so many bytes must end within %llu "
		       "bytes",
		       i, (unsigned long long)bytes, (unsigned long long)n, what,
		       (unsigned long long)BYTES_MOST);
}

/* Each field is checked by itself, and all ends are at BYTES_MOST at most. */
static int check_run(const struct shm_run *r, uint32_t i, uint32_t nparts, uint32_t slots)
{
	uint64_t left = BYTES_MOST;
	int err;

	if ((err = check_field(i, "part", r->part, 0, nparts - 1)) < 0 ||
	    (err = check_field(i, "count", r->count, 1, UINT32_MAX)) < 0 ||
	    (err = check_field(i, "bytes", r->bytes, 1, left)) < 0)
		return err;
	left -= r->bytes;
	if ((err = check_field(i, "offset", r->offset, 0, left)) < 0)
		return err;
	left -= r->offset;
	err = check_room(i, r->bytes, slots, "slots", left);
	if (err < 0)
		return err;
	err = check_field(i, "slot_stride", r->slot_stride, slots > 1 ? r->bytes : 1,
			  slots > 1 ? left / (slots - 1) : BYTES_MOST);
	if (err < 0 || r->count == 1)
		return err;
	left -= slots_span(r, slots);
	err = check_room(i, r->bytes, r->count, "pieces of a slot", left);
	if (err < 0)
		return err;
	return check_field(i, "run_stride", r->run_stride, r->bytes, left / (r->count - 1));
}

/* Check a run by itself.  By the limits of the strides, two pieces of one slot are apart, and so is
 * one piece of two slots.  So an overlap would be of a later slot's piece and a later piece of an
 * earlier slot. */
static int check_alone(const struct shm_run *r, uint32_t i, uint32_t slots)
{
	uint32_t tries = 0;
	struct sum s = { .n = 2 };

	if (slots == 1 || r->count == 1)
		return 0;
	s.term[0] = (struct term){ r->slot_stride, slots - 2 };
	s.term[1] = (struct term){ r->run_stride, r->count - 2 };
	/* slot_stride * (1 + k) - run_stride * (count - 1 - l) */
	s.low = 1 - (int64_t)r->bytes - (int64_t)r->slot_stride + (int64_t)pieces_span(r);
	s.high = s.low + 2 * (int64_t)(r->bytes - 1);
	if (meets(s, &tries) == 0)
		return 0;
	return err_set(EINVAL,
		       "runs[%u].run_stride is %llu: pieces of a slot lie on those of "
		       "another one; with %u pieces of %llu bytes and slot_stride %llu it must "
		       "leave each its own bytes",
		       i, (unsigned long long)r->run_stride, r->count, (unsigned long long)r->bytes,
		       (unsigned long long)r->slot_stride);
}

static int check_pair(const struct shm_run *run, uint32_t i, uint32_t j, uint32_t slots,
		      uint32_t *tries)
{
	const struct shm_run *a = &run[i], *b = &run[j];
	uint32_t room = *tries + TRIES_EACH;
	struct sum s = { .n = 4 };
	int found;

	if (a->part != b->part || a->offset >= run_end(b, slots) || b->offset >= run_end(a, slots))
		return 0;
	s.term[0] = (struct term){ a->slot_stride, slots - 1 };
	s.term[1] = (struct term){ a->count > 1 ? a->run_stride : 1, a->count - 1 };
	s.term[2] = (struct term){ b->slot_stride, slots - 1 };
	s.term[3] = (struct term){ b->count > 1 ? b->run_stride : 1, b->count - 1 };
	/* a piece of a, less one of b whose slot and piece are counted backwards */
	s.low = 1 - (int64_t)a->bytes - (int64_t)a->offset +
		(int64_t)(run_end(b, slots) - b->bytes);
	s.high = s.low + (int64_t)(a->bytes - 1) + (int64_t)(b->bytes - 1);
	found = meets(s, &room);
	*tries = MIN(*tries, room);
	if (found > 0)
		return err_set(EINVAL,
			       "runs[%u].offset is %llu: with its strides some pieces lie "
			       "on pieces of runs[%u], whose offset is %llu in the same part; "
			       "each byte must belong to one piece",
			       j, (unsigned long long)b->offset, i, (unsigned long long)a->offset);
	if (found < 0)
		return err_set(EINVAL,
			       "runs[%u].slot_stride is %llu: its pieces lie between those "
			       "of runs[%u], whose slot_stride is %llu, and neither order nests in "
			       "the other; it must be the same, or the runs must be apart",
			       j, (unsigned long long)b->slot_stride, i,
			       (unsigned long long)a->slot_stride);
	return 0;
}

static int check_pairs(const struct shm_run *run, uint32_t nruns, uint32_t slots)
{
	uint32_t i, j, tries = TRIES;
	int err = 0;

	for (i = 0; err == 0 && i < nruns; i++)
		err = check_alone(&run[i], i, slots);
	for (i = 0; err == 0 && i < nruns; i++)
		for (j = i + 1; err == 0 && j < nruns; j++)
			err = check_pair(run, i, j, slots, &tries);
	return err;
}

int memory_check_runs(const struct shm_run *run, uint32_t nruns, uint32_t nparts, uint32_t slots,
		      uint64_t *ret_part, uint64_t *ret_image)
{
	uint64_t image = 0;
	uint32_t i;
	int err;

	if ((err = err_range("nruns", nruns, 1, SHM_RUNS)) < 0 ||
	    (err = err_range("parts", nparts, 1, SHM_PARTS)) < 0 ||
	    (err = err_range("the number of slots", slots, 1, SLOTS_MOST)) < 0)
		return err;
	for (i = 0; i < nruns; i++) {
		if ((err = check_run(&run[i], i, nparts, slots)) < 0)
			return err;
		/* Pieces that do not overlap end at BYTES_MOST, so this is at most BYTES_MOST. */
		if ((err = check_field(i, "count", run[i].count, 1,
				       (BYTES_MOST - image) / run[i].bytes)) < 0)
			return err;
		image += run[i].count * run[i].bytes;
	}
	if ((err = check_pairs(run, nruns, slots)) < 0)
		return err;
	*ret_image = image;
	if (ret_part)
		memset(ret_part, 0, nparts * sizeof(*ret_part));
	for (i = 0; ret_part && i < nruns; i++)
		ret_part[run[i].part] = MAX(ret_part[run[i].part], run_end(&run[i], slots));
	return 0;
}
