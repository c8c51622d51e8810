/* SPDX-License-Identifier: Apache-2.0 */
/* many.c - keys of prompts, of several at a time.
 *
 * A lane has one prompt.  When the prompt ends, the lane takes the next one, so prompts of
 * different lengths keep all lanes busy until few are left.  A lane without a prompt repeats the
 * work of lane 0, which stores the same keys to the same place.
 * Tests: t/index/many-keys.t t/index/keys.t */
#include "config.h"

#include <errno.h>
#include "index/base/err.h"
#include "index/base/lanes.h"

/* Fewer prompts than these are faster one after the other. */
#define FEW 3

struct many {
	const struct key_secret *s;
	uint32_t block_tokens, flags;
	const struct gpc_prompt *next, *end;
	struct lanes lanes;
	size_t left[LANES]; /* full blocks of each lane's prompt; the first `busy` have one */
	const struct gpc_prompt *prompt[LANES];
	uint32_t busy;
};

/* The usual blocks, as plain_block in key.c: an even number of tokens, no extras. */
static void begin(struct many *m)
{
	struct lanes *l = &m->lanes;

	l->begun = sip_start(m->s);
	sip_word(&l->begun, DOMAIN_BLOCK | (uint64_t)m->block_tokens << 8, ROUNDS_C);
	l->last = (8 + 16 + 4ull * m->block_tokens) << 56;
	l->words = m->block_tokens / 2;
}

static void fill_lanes(struct many *m)
{
	for (; m->busy < LANES && m->next < m->end; m->next++) {
		const struct gpc_prompt *p = m->next;
		uint32_t i = m->busy;

		if (p->nx || p->n < m->block_tokens) {
			key_hash_rest(m->s, m->block_tokens, p, m->flags, 0, p->parent);
			continue;
		}
		m->prompt[i] = p;
		m->left[i] = p->n / m->block_tokens;
		m->lanes.parent[i] = p->parent ? *p->parent : (gpc_key){ { 0, 0 } };
		m->lanes.tokens[i] = p->tokens;
		m->lanes.key[i] = p->ret_keys;
		m->busy++;
	}
}

static void copy_lane(struct many *m, uint32_t to, uint32_t from)
{
	m->prompt[to] = m->prompt[from];
	m->left[to] = m->left[from];
	m->lanes.parent[to] = m->lanes.parent[from];
	m->lanes.tokens[to] = m->lanes.tokens[from];
	m->lanes.key[to] = m->lanes.key[from];
}

static void lane_rest(struct many *m, uint32_t i)
{
	const struct gpc_prompt *p = m->prompt[i];

	key_hash_rest(m->s, m->block_tokens, p, m->flags, (size_t)(m->lanes.tokens[i] - p->tokens),
		      &m->lanes.parent[i]);
}

/* Until the shortest prompt of a lane has ended. */
static void run_lanes(struct many *m, void (*run)(struct lanes *l, uint32_t blocks))
{
	size_t blocks = m->left[0];
	uint32_t i;

	for (i = 1; i < m->busy; i++)
		blocks = MIN(blocks, m->left[i]);
	for (i = m->busy; i < LANES; i++)
		copy_lane(m, i, 0);
	run(&m->lanes, (uint32_t)blocks);
	for (i = m->busy; i--;) {
		m->left[i] -= blocks;
		if (m->left[i])
			continue;
		lane_rest(m, i); /* a tail, or nothing */
		copy_lane(m, i, --m->busy);
	}
}

static __attribute__((noinline)) void hash_lanes(struct many *m,
						 void (*run)(struct lanes *l, uint32_t blocks))
{
	begin(m);
	for (fill_lanes(m); m->busy >= FEW; fill_lanes(m))
		run_lanes(m, run);
	while (m->busy)
		lane_rest(m, --m->busy);
}

/* The number of keys in all.  Nothing is hashed before all prompts are checked. */
static int check(uint32_t block_tokens, const struct gpc_prompt *p, uint32_t n, uint32_t flags)
{
	uint64_t keys = 0;
	uint32_t i;
	int r;

	for (i = 0; i < n; i++) {
		r = key_hash_check(block_tokens, p, i, flags);
		if (r < 0)
			return r;
		keys += (uint32_t)r;
	}
	if (keys > INT32_MAX)
		return err_set(EINVAL, "the prompts make %llu keys: at most %d a call",
			       (unsigned long long)keys, INT32_MAX);
	return (int)keys;
}

int key_hash(const struct key_secret *s, uint32_t block_tokens, const struct gpc_prompt *p,
	     uint32_t n, uint32_t flags, void (*run)(struct lanes *l, uint32_t blocks))
{
	int keys = check(block_tokens, p, n, flags);
	uint32_t i;

	if (keys <= 0)
		return keys;
	if (run && n >= FEW && !(block_tokens & 1) && !(flags & GPC_GROUP)) {
		hash_lanes(&(struct many){ .s = s,
					   .block_tokens = block_tokens,
					   .flags = flags,
					   .next = p,
					   .end = p + n },
			   run);
		return keys;
	}
	for (i = 0; i < n; i++)
		key_hash_rest(s, block_tokens, p + i, flags, 0, p[i].parent);
	return keys;
}
