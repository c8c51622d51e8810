/* SPDX-License-Identifier: Apache-2.0 */
/* Stack distances, as a replay with one worker uses blocks: a request looks its prefix up, then
 * uses all of its blocks, leaf first.  So a block is never older than those below it: what hits is
 * a prefix, whatever the capacity.
 * Tests: t/tools/replay-plot.t */
#include "config.h"

#include "tools/replay/curve.h"

#include <stdlib.h>
#include <string.h>

struct stack {
	uint64_t *names, known; /* the different ids, sorted */
	uint64_t *last;         /* when each was used last; 0: never */
	uint64_t *tree;         /* of sums: which of the times 1 .. places are somebody's last */
	uint64_t places, now;
	uint64_t present; /* blocks that were used at all */
};

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void stack_free(struct stack *s)
{
	free(s->names);
	free(s->last);
	free(s->tree);
}

static int stack_make(struct stack *s, const struct trace *t)
{
	size_t room = t->refs + 1;

	*s = (struct stack){ .places = t->refs };
	s->names = calloc(room, sizeof(*s->names));
	s->last = calloc(room, sizeof(*s->last));
	s->tree = calloc(room, sizeof(*s->tree));
	if (!s->names || !s->last || !s->tree)
		return -1;
	if (t->refs)
		memcpy(s->names, t->ids, t->refs * sizeof(*s->names));
	qsort(s->names, t->refs, sizeof(*s->names), by_value);
	for (uint64_t i = 0; i < t->refs; i++)
		if (!i || s->names[i] != s->names[i - 1])
			s->names[s->known++] = s->names[i];
	return 0;
}

static void stack_clear(struct stack *s)
{
	memset(s->last, 0, (s->places + 1) * sizeof(*s->last));
	memset(s->tree, 0, (s->places + 1) * sizeof(*s->tree));
	s->now = s->present = 0;
}

static uint64_t *last_of(const struct stack *s, uint64_t id)
{
	const uint64_t *name = bsearch(&id, s->names, s->known, sizeof(id), by_value);

	return s->last + (name - s->names);
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

/* 0: it was never used. */
static uint64_t distance(const struct stack *s, uint64_t id)
{
	uint64_t last = *last_of(s, id);

	return last ? s->present - sum_to(s, last) + 1 : 0;
}

static void use(struct stack *s, uint64_t id)
{
	uint64_t *last = last_of(s, id);

	if (*last)
		add(s, *last, -UINT64_C(1));
	else
		s->present++;
	*last = ++s->now;
	add(s, s->now, 1);
}

/* count[d]: how many blocks had that distance when they were looked up */
static void replay(struct stack *s, const struct trace *t, uint32_t first, uint32_t step,
		   uint64_t *count)
{
	stack_clear(s);
	for (uint64_t r = first; r < t->requests; r += step) {
		for (uint64_t i = t->start[r]; i < t->start[r + 1]; i++)
			count[distance(s, t->ids[i])]++;
		for (uint64_t i = t->start[r + 1]; i-- > t->start[r];)
			use(s, t->ids[i]);
	}
}

int curve_make(const struct trace *t, uint32_t caches, struct curve *ret)
{
	struct curve c = { 0 };
	struct stack s;
	int r = stack_make(&s, t);

	if (!r)
		c.hits = calloc(s.known + 1, sizeof(*c.hits));
	if (r || !c.hits) {
		stack_free(&s);
		cli_error("no memory for the distances");
		return -1;
	}
	for (uint32_t i = 0; i < caches; i++)
		replay(&s, t, i, caches, c.hits);
	c.hits[0] = 0; /* the first use of each */
	for (uint64_t d = 1; d <= s.known; d++) {
		if (c.hits[d])
			c.most = d;
		c.hits[d] += c.hits[d - 1];
	}
	stack_free(&s);
	*ret = c;
	return 0;
}

uint64_t curve_hits(const struct curve *c, uint64_t blocks)
{
	return c->hits[blocks < c->most ? blocks : c->most];
}

void curve_free(struct curve *c)
{
	free(c->hits);
}
