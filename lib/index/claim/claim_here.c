/* SPDX-License-Identifier: Apache-2.0 */
/* claim_here.c - the answers about a claim that this process can give without the writer.
 *
 * Only MINE changes anything, so only the writer may answer MINE.  LIVE is a lookup.  For PENDING
 * the writer notes the blocks of pending keys in shm_shared.hint, by the key's hash.  A note may
 * be old, another key's, or scribbled, so only the record is believed.  If no record confirms a
 * key, the writer is asked.  The writer is also asked if a block of this peer has the pending key:
 * a command that gives that block back may still be on its way.
 * Tests: t/index/claim-ends.t t/index/at-once.t t/index/claims.t t/python/vllm-step.t */
#include "config.h"

#include "index/claim/claim_here.h"

#include "index/peer/wait_word.h"
#include "index/segment/blocks.h"

static uint32_t space_of(const gpc *c, gpc_block block)
{
	return load_relaxed(&seg_pool(&c->seg, (uint32_t)GPC_POOL(block))->space);
}

static bool is_ready(const gpc *c, gpc_block block)
{
	return load_acquire(&seg_pool(&c->seg, (uint32_t)GPC_POOL(block))->state) == POOL_READY;
}

/* The number of blocks from there on that are in one pool, which has one space. */
static uint32_t count_alike(const gpc_block *blocks, uint32_t n)
{
	uint32_t i = 1;

	while (i < n && GPC_POOL(blocks[i]) == GPC_POOL(blocks[0]))
		i++;
	return i;
}

/* It pairs with (f): a reader of the mark sees the fields beside it; and, by its second look, with
 * (u). */
bool claim_mark(const struct shm_record *r, struct claim_mark *ret)
{
	uint32_t word = load_acquire(&r->word);

	if (WORD_STATE(word) != RESERVED || !(load_acquire(&r->flags) & REC_CLAIM))
		return false;
	ret->number = load_acquire(&r->parent[1]);
	ret->since = load_acquire(&r->parent[0]);
	ret->passed = load_acquire(&r->depth);
	ret->key.w[0] = load_acquire(&r->key[0]);
	ret->key.w[1] = load_acquire(&r->key[1]);
	return (load_acquire(&r->flags) & REC_CLAIM) &&
	       load_relaxed(&r->parent[1]) == ret->number && load_relaxed(&r->word) == word;
}

/* The older claims of that peer that are open, as index/table/pending.c counts them. */
static uint32_t count_ahead(const gpc *c, const struct claim_mark *mark, uint32_t owner)
{
	const struct shm_tally *t = seg_tally(&c->seg, owner);
	uint64_t open = load_relaxed(&t->claims_open);
	uint64_t later = load_relaxed(&t->claims) - mark->number - mark->passed;

	return later < open ? (uint32_t)(open - 1 - later) : 0;
}

static bool is_pending_in(const gpc *c, uint32_t space, const gpc_key *key, gpc_block b,
			  struct answer *ret)
{
	uint32_t record = pool_record(&c->seg, b), word, owner;
	const struct shm_record *r;
	struct claim_mark mark = { .number = 0 };
	bool loading;

	if (record == SHM_NO_RECORD || space_of(c, b) != space || !is_ready(c, b))
		return false;
	r = seg_record(&c->seg, record);
	word = load_acquire(&r->word);
	loading = load_relaxed(&r->source) != 0;
	owner = load_relaxed(&r->owner);
	if (WORD_STATE(word) != RESERVED || !(loading || claim_mark(r, &mark)) ||
	    load_relaxed(&r->key[0]) != key->w[0] || load_relaxed(&r->key[1]) != key->w[1] ||
	    owner == c->peer || owner >= c->seg.header.geometry.max_peers)
		return false;
	*ret = (struct answer){ .block = b,
				.to = CLAIM_PENDING,
				.ahead = loading ? 0 : count_ahead(c, &mark, owner) };
	return true;
}

static void find_pending(const gpc *c, uint32_t space, const gpc_key *key, struct answer *ret)
{
	const uint32_t *hint = seg_shared(&c->seg)->hint[wait_hint(key)];
	uint32_t i;

	/* pairs with (g): the record is stored before the hint */
	for (i = 0; i < SHM_HINT_WAYS; i++)
		if (is_pending_in(c, space, key, (gpc_block)load_acquire(&hint[i]) - 1, ret))
			return;
}

void claim_here(gpc *c, const gpc_key *keys, const gpc_block *blocks, uint32_t n,
		struct answer *ret)
{
	gpc_block live[CLAIM_GROUP];
	uint32_t at, k, i, space;

	for (at = 0; at < n; at += k) {
		k = count_alike(blocks + at, n - at);
		space = space_of(c, blocks[at]);
		if (!is_ready(c, blocks[at]) ||
		    gpc_lookup(c, GPC_SPACE(space), keys + at, k, live, GPC_QUIET) < 0)
			for (i = 0; i < k; i++)
				live[i] = GPC_NONE;
		for (i = 0; i < k; i++) {
			ret[at + i] = (struct answer){ .block = live[i],
						       .to = live[i] >= 0 ? CLAIM_LIVE : 0 };
			if (live[i] < 0 && is_ready(c, blocks[at]))
				find_pending(c, space, &keys[at + i], &ret[at + i]);
		}
	}
}
