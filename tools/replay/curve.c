/* SPDX-License-Identifier: Apache-2.0 */
/* Stack distances, for a replay with one worker.  A request looks its prefix up, then uses all of
 * its blocks, leaf first.  So no block is older than the blocks below it, and the hits are a
 * prefix at any capacity.
 * Tests: t/tools/replay-plot.t t/tools/replay-sticky.t */
#include "config.h"

#include "tools/replay/curve.h"

#include <stdlib.h>
#include <string.h>

struct stack {
	uint32_t *rank; /* for each reference: the number of its id among the different ids */
	uint64_t *last; /* for each id: the time of its last use; 0: never */
	uint64_t *tree; /* of sums: which of the times 1 .. places are the last use of an id */
	uint64_t known, places, now;
	uint64_t present; /* blocks that were used at all */
};

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void stack_free(struct stack *s)
{
	free(s->rank);
	free(s->last);
	free(s->tree);
}

/* names[] has room for all ids. */
static void rank(struct stack *s, const struct trace *t, uint64_t *names)
{
	const uint64_t *name;

	if (t->refs)
		memcpy(names, t->ids, t->refs * sizeof(*names));
	qsort(names, t->refs, sizeof(*names), by_value);
	for (uint64_t i = 0; i < t->refs; i++)
		if (!i || names[i] != names[i - 1])
			names[s->known++] = names[i];
	for (uint64_t i = 0; i < t->refs; i++) {
		name = bsearch(&t->ids[i], names, s->known, sizeof(*names), by_value);
		s->rank[i] = (uint32_t)(name - names);
	}
}

static int stack_make(struct stack *s, const struct trace *t)
{
	size_t room = t->refs + 1;
	uint64_t *names = NULL;

	*s = (struct stack){ 0 };
	if (t->refs < UINT32_MAX) {
		names = calloc(room, sizeof(*names));
		s->rank = calloc(room, sizeof(*s->rank));
		s->last = calloc(room, sizeof(*s->last));
		s->tree = calloc(room, sizeof(*s->tree));
	}
	if (!names || !s->rank || !s->last || !s->tree) {
		free(names);
		return -1;
	}
	rank(s, t, names);
	free(names);
	return 0;
}

/* Clears the stack for so many uses. */
static void stack_clear(struct stack *s, uint64_t uses)
{
	s->places = uses;
	memset(s->last, 0, s->known * sizeof(*s->last));
	memset(s->tree, 0, (uses + 1) * sizeof(*s->tree));
	s->now = s->present = 0;
}

static void add(struct stack *s, uint64_t at, uint64_t v)
{
	for (; at <= s->places; at += at & -at)
		s->tree[at] += v;
}

static uint64_t sum_to(const struct stack *s, uint64_t at)
{
	uint64_t sum = 0;

	for (; at; at -= at & -at)
		sum += s->tree[at];
	return sum;
}

/* 0 means that it was never used. */
static uint64_t distance(const struct stack *s, uint32_t id)
{
	uint64_t last = s->last[id];

	return last ? s->present - sum_to(s, last) + 1 : 0;
}

static void use(struct stack *s, uint32_t id)
{
	if (s->last[id])
		add(s, s->last[id], -UINT64_C(1));
	else
		s->present++;
	s->last[id] = ++s->now;
	add(s, s->now, 1);
}

/* count[d]: how many blocks had that distance when they were looked up */
static void replay(struct stack *s, const struct trace *t, const struct deal *d, uint32_t cache,
		   uint64_t *count)
{
	uint64_t uses = 0;

	for (uint32_t r = 0; r < t->requests; r++)
		if (d->to[r] == cache)
			uses += t->start[r + 1] - t->start[r];
	stack_clear(s, uses);
	for (uint32_t r = 0; r < t->requests; r++) {
		if (d->to[r] != cache)
			continue;
		for (uint64_t i = t->start[r]; i < t->start[r + 1]; i++)
			count[distance(s, s->rank[i])]++;
		for (uint64_t i = t->start[r + 1]; i-- > t->start[r];)
			use(s, s->rank[i]);
	}
}

static int make(struct stack *s, const struct trace *t, const struct deal *d, struct curve *c)
{
	c->hits = calloc(s->known + 1, sizeof(*c->hits));
	if (!c->hits)
		return -1;
	for (uint32_t i = 0; i < d->caches; i++)
		replay(s, t, d, i, c->hits);
	c->hits[0] = 0; /* d = 0 stands for the first use of each id */
	for (uint64_t k = 1; k <= s->known; k++) {
		if (c->hits[k])
			c->most = k;
		c->hits[k] += c->hits[k - 1];
	}
	return 0;
}

int curves_make(const struct trace *t, const struct deal *deals, uint32_t n, struct curve *ret)
{
	struct stack s;
	int r = stack_make(&s, t);

	for (uint32_t i = 0; i < n && !r; i++)
		r = make(&s, t, &deals[i], &ret[i]);
	stack_free(&s);
	if (r)
		cli_error("no memory for the distances");
	return r;
}

uint64_t curve_hits(const struct curve *c, uint64_t blocks)
{
	return c->hits[blocks < c->most ? blocks : c->most];
}

uint64_t curve_blocks(const struct curve *c, uint64_t hits)
{
	uint64_t low = 0, high = c->most, middle;

	if (c->hits[high] < hits)
		return UINT64_MAX;
	while (low < high) {
		middle = low + (high - low) / 2;
		if (c->hits[middle] < hits)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void curve_free(struct curve *c)
{
	free(c->hits);
}
