/* SPDX-License-Identifier: Apache-2.0 */
/* groups.c - the longest prefix that all KV groups of a prompt can go on from: gpc_match_groups.
 *
 * `end` is the longest prefix that may still be right, and it only shrinks.  Every prefix that
 * reaches into a missing block needs that block.  So the next prefix to try ends where the missing
 * block begins, or before.  A group that needs all blocks is searched from the root on,
 * and any other group backwards from the end.  So each key is looked up once at most, even if
 * `end` shrinks often.
 *
 * References are taken when all groups agree.  A failed reference shrinks `end` like a missing
 * block, and held blocks stay held if the shorter prefix needs them.  It needs fewer blocks at the
 * end and more in front.  So the held blocks of a group are one interval, and each block is taken
 * once and given back once at most.
 * Tests: t/index/groups-race.t t/index/groups.t t/index/touch.t t/tiers/later-structs.t */
#include "config.h"

#include "index/base/key.h"
#include "index/reader/hits.h"
#include "index/reader/take.h"

#include <errno.h>

struct group {
	const gpc_key *keys;
	gpc_block *blocks;
	uint32_t n, tokens, last; /* as in struct gpc_group */
	/* last 0: the number of found keys, from the root on.  Otherwise all keys from `seen` to the
	 * end are found, and all keys from `looked` on were looked up, `ahead` of them at a time */
	uint32_t seen;
	uint32_t looked, ahead;
	uint32_t held, held_end; /* references: on the blocks from `held` to `held_end` */
};

struct search {
	struct call a;
	struct group group[GPC_MAX_GROUPS];
	uint32_t n;
	uint32_t end; /* tokens, a multiple of step */
	uint64_t step;
};

static void shorten(struct search *s, uint64_t tokens)
{
	s->end = (uint32_t)(MIN(s->end, tokens) / s->step * s->step);
}

static uint32_t need_from(const struct group *g, uint32_t end)
{
	return g->last && g->last < end ? (end - g->last) / g->tokens : 0;
}

/* ---- finding ---- */

/* Look up at most PROBE_GROUP keys.  A block without a record counts as none. */
static void look(struct search *s, struct group *g, uint32_t from, uint32_t n)
{
	gpc_block *blocks = g->blocks + from;
	uint32_t i;

	probe_group(&s->a.probe, g->keys + from, n, blocks);
	for (i = 0; i < n; i++)
		if (blocks[i] >= 0 && pool_record(&s->a.c->seg, blocks[i]) == SHM_NO_RECORD)
			blocks[i] = GPC_NONE;
}

static uint32_t leading_hits(const struct group *g, uint32_t from, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n && g->blocks[from + i] >= 0; i++)
		;
	return i;
}

static void find_all(struct search *s, struct group *g)
{
	uint32_t m, got, to;

	while (to = s->end / g->tokens, g->seen < to) {
		m = MIN(to - g->seen, PROBE_GROUP);
		look(s, g, g->seen, m);
		got = leading_hits(g, g->seen, m);
		g->seen += got;
		if (got < m)
			shorten(s, (uint64_t)g->seen * g->tokens);
	}
}

/* Look up the keys from `from` to g->seen, at most PROBE_GROUP.  Each call looks up twice as
 * many keys at a time as the call before: states are far apart, and single lookups in turn would
 * wait for memory each time. */
static void look_back(struct search *s, struct group *g, uint32_t from)
{
	uint32_t n;

	g->looked = MIN(g->looked, g->seen);
	if (from >= g->looked)
		return;
	n = MIN(MAX(g->looked - from, g->ahead), g->looked);
	g->ahead = MIN(2 * g->ahead, PROBE_GROUP);
	g->looked -= n;
	look(s, g, g->looked, n);
}

static void find_last(struct search *s, struct group *g)
{
	uint32_t m, got, from;

	while (g->seen = MIN(g->seen, s->end / g->tokens), from = need_from(g, s->end),
	       g->seen > from) {
		m = MIN(g->seen - from, PROBE_GROUP);
		look_back(s, g, g->seen - m);
		g->seen -= m;
		got = leading_hits(g, g->seen, m);
		if (got < m)
			shorten(s, (uint64_t)(g->seen + got) * g->tokens);
	}
}

static void find(struct search *s)
{
	uint32_t i, was;

	for (i = 0; i < s->n; i++)
		if (!s->group[i].last)
			find_all(s, &s->group[i]);
	do {
		was = s->end;
		for (i = 0; i < s->n; i++)
			if (s->group[i].last)
				find_last(s, &s->group[i]);
	} while (s->end < was);
}

/* ---- references ---- */

static void give_back(struct search *s, struct group *g, uint32_t to)
{
	uint32_t record;

	for (; g->held_end > to && g->held_end > g->held; g->held_end--) {
		record = pool_record(&s->a.c->seg, g->blocks[g->held_end - 1]);
		if (record != SHM_NO_RECORD)
			refs_drop(s->a.c, record, g->blocks[g->held_end - 1], &s->a.sum);
	}
	if (g->held_end > to)
		g->held = g->held_end = to;
}

/* Take references from root to leaf.  Returns the number of those before the first that fails. */
static uint32_t take_some(struct call *a, const gpc_key *keys, gpc_block *blocks, uint32_t n)
{
	uint32_t i, record[PROBE_GROUP];

	for (i = 0; i < n; i++)
		record[i] = pool_record(&a->c->seg, blocks[i]);
	take_prefetch_first(a, record, n);
	for (i = 0; i < n; i++) {
		take_prefetch(a, record, n, i);
		if (key_take(a, &keys[i], &blocks[i], &record[i]))
			break;
	}
	return i;
}

/* Hold the blocks that the group needs for `end`, and no others.  False: `end` is shorter now. */
static bool hold(struct search *s, struct group *g)
{
	uint32_t i, m, got, from = need_from(g, s->end);

	give_back(s, g, s->end / g->tokens);
	for (i = from; i < g->held; i += m) {
		m = MIN(g->held - i, PROBE_GROUP);
		got = take_some(&s->a, g->keys + i, g->blocks + i, m);
		if (got == m)
			continue;
		give_back(s, g, g->held);
		g->held = from;
		g->held_end = i + got;
		shorten(s, (uint64_t)g->held_end * g->tokens);
		return false;
	}
	g->held = from;
	return true;
}

static bool hold_all(struct search *s)
{
	uint32_t i;

	for (i = 0; i < s->n; i++)
		if (!hold(s, &s->group[i]))
			return false;
	return true;
}

/* ---- the answer ---- */

static void answer(struct search *s, struct group *g)
{
	uint32_t i, record, from = need_from(g, s->end), to = s->end / g->tokens;

	for (i = 0; i < from; i++)
		g->blocks[i] = GPC_NONE;
	for (; i < to && !s->a.quiet; i++) {
		record = pool_record(&s->a.c->seg, g->blocks[i]);
		if (record != SHM_NO_RECORD)
			hits_use_one(&s->a, g->blocks[i], record, i);
	}
	for (i = to; i < g->n; i++)
		g->blocks[i] = GPC_NONE;
}

static uint32_t needed(const struct search *s)
{
	uint32_t i, n = 0;

	for (i = 0; i < s->n; i++)
		n += s->end / s->group[i].tokens - need_from(&s->group[i], s->end);
	return n;
}

/* ---- arguments ---- */

static int read_group(const gpc *c, const struct gpc_group *from, uint32_t i, struct group *to)
{
	struct gpc_group g;
	int err = err_struct("gpc_group", from, sizeof(g), &g, sizeof(g));

	if (err)
		return err;
	if (g.block_tokens > KEY_MAX_TOKENS)
		return err_set(EINVAL, "groups[%u].block_tokens is %u: at most %u", i,
			       g.block_tokens, KEY_MAX_TOKENS);
	if (g.n > INT32_MAX)
		return err_set(EINVAL, "groups[%u].n is %u: at most %d keys", i, g.n, INT32_MAX);
	if (g.n && (!g.keys || !g.blocks))
		return err_set(EINVAL, "groups[%u].%s is NULL", i, g.keys ? "blocks" : "keys");
	*to = (struct group){ .keys = g.keys,
			      .blocks = g.blocks,
			      .n = g.n,
			      .last = g.last,
			      .tokens =
				      g.block_tokens ? g.block_tokens : c->seg.header.block_tokens,
			      .seen = g.last ? g.n : 0,
			      .looked = g.n,
			      .ahead = 1,
			      .held = g.n,
			      .held_end = g.n };
	return 0;
}

/* The least common multiple, or a number above any prefix. */
static uint64_t multiple_of_both(uint64_t a, uint32_t b)
{
	uint64_t x = a, y = b, rest;

	while (y) {
		rest = x % y;
		x = y;
		y = rest;
	}
	return MIN(a / x * b, (uint64_t)INT32_MAX + 1);
}

/* Read the caller's array, whose structs have the size that the caller knows. */
static int read_groups(const gpc *c, const struct gpc_group *groups, uint32_t multiple,
		       struct search *s)
{
	const struct gpc_group *g;
	uint64_t longest = INT32_MAX;
	uint32_t i;
	int err;

	s->step = multiple ? multiple : 1;
	for (i = 0; i < s->n; i++) {
		g = (const void *)((const char *)groups + (size_t)i * groups->size);
		if (g->size != groups->size)
			return err_set(EINVAL,
				       "groups[%u].size is %u, and groups[0].size is %u: they "
				       "are the same",
				       i, g->size, groups->size);
		err = read_group(c, g, i, &s->group[i]);
		if (err)
			return err;
		s->step = multiple_of_both(s->step, s->group[i].tokens);
		longest = MIN(longest, (uint64_t)g->n * s->group[i].tokens);
	}
	s->end = INT32_MAX;
	shorten(s, longest);
	return 0;
}

static int read_arguments(const gpc *c, const struct gpc_group *groups, uint32_t n,
			  const struct gpc_match_options *opt, uint32_t flags, struct search *s)
{
	struct gpc_match_options o = { 0 };
	int err = err_flags(flags, GPC_QUIET | GPC_TOUCH | GPC_REF);

	if (!err && opt)
		err = err_struct("gpc_match_options", opt, sizeof(o), &o, sizeof(o));
	if (err)
		return err;
	if (n > GPC_MAX_GROUPS)
		return err_set(EINVAL, "n is %u: at most %d groups", n, GPC_MAX_GROUPS);
	if (n && !groups)
		return err_set(EINVAL, "groups is NULL");
	s->n = n;
	return n ? read_groups(c, groups, o.multiple, s) : 0;
}

GPC_EXPORT int gpc_match_groups(gpc *c, uint32_t spaces, const struct gpc_group *groups, uint32_t n,
				const struct gpc_match_options *opt, uint32_t flags)
{
	struct search s;
	uint32_t i, asked;
	int err = handle_check(c, flags & GPC_REF);

	if (!err)
		err = read_arguments(c, groups, n, opt, flags, &s);
	if (err || !n)
		return err;
	err = call_begin_any(&s.a, c, spaces, flags, flags & GPC_REF);
	if (err)
		return err;
	asked = needed(&s);
	do {
		find(&s);
	} while (s.a.refs && !hold_all(&s));
	for (i = 0; i < n; i++)
		answer(&s, &s.group[i]);
	call_end(&s.a, asked);
	return !s.end && s.a.overflow ? -EOVERFLOW : (int)s.end;
}
