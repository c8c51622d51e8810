/* SPDX-License-Identifier: Apache-2.0 */
/* Makes batches from one change of the feed, or from all blocks that are there.
 *
 * The publisher lags a little behind the writer, so a block that the feed names may have left its
 * place when its change is read.  Its key is then looked up once more.  If the key is gone by
 * then, consumers are told neither of the key nor of its end.  A consumer that knows no tokens of a
 * block could not use the block.  A consumer that misses a block between its store and its end has
 * lost nothing.
 * Tests: t/kv/slow.t t/kv/events.t */
#include "config.h"

#include "tools/daemon/events/events.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WALK = 256, CHUNK = 4096, TRIES = 64 };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static const char *medium_of(uint8_t kind)
{
	switch (kind) {
	case GPC_VRAM:
		return "GPU";
	case GPC_RAM:
		return "CPU";
	case GPC_DISK:
		return "DISK";
	default:
		return "EXTERNAL";
	}
}

/* ---- facts ---- */

void batches_ask_again(struct batches *b)
{
	for (int i = 0; i < GPC_MAX_POOLS; i++)
		b->pool[i].asked = false;
}

/* NULL means that the pool is gone, and the facts of its blocks are no longer of use. */
static const struct pool_facts *facts_of(struct batches *b, gpc_block block)
{
	struct pool_facts *f = &b->pool[GPC_POOL(block)];
	struct gpc_pool p = { .size = sizeof(p) };

	if (!f->asked) {
		f->asked = true;
		f->there = gpc_pool_get(b->c, GPC_POOL(block), &p) >= 0;
		f->kind = (uint8_t)p.kind;
		f->space = (uint8_t)p.space;
		if (f->there)
			b->spaces |= GPC_SPACE(f->space);
	}
	return f->there ? f : NULL;
}

uint32_t batches_space(struct batches *b, gpc_block block)
{
	const struct pool_facts *f = facts_of(b, block);

	return f ? f->space : 0;
}

static uint64_t name_of(const gpc_key *key, const uint8_t *digest, uint32_t bytes)
{
	return bytes ? wire_hash(digest, bytes) : key->w[0];
}

/* A root names a namespace and is no block; the highest bit of its key says so. */
static bool is_root(const gpc_key *parent)
{
	return parent->w[1] >> 63;
}

static bool is_first(const gpc_key *parent)
{
	return (!parent->w[0] && !parent->w[1]) || is_root(parent);
}

/* The parent may be in any space.  A block at the end of no known chain has no root. */
static gpc_key root_of(const gpc_key *parent, const struct told_block *told)
{
	return is_root(parent) ? *parent : told ? told->root : (gpc_key){ { 0, 0 } };
}

/* The tokens of the block, from the place where the key is now; -1 means that the key is gone. */
static int tokens_of(struct batches *b, const gpc_key *key, gpc_block block, uint32_t space)
{
	gpc_block at = block;
	int n;

	if (!b->keep_tokens)
		return 0;
	for (int tries = 0; tries < TRIES; tries++) {
		n = gpc_tokens_get(b->c, key, at, b->tokens, b->block_tokens);
		if (n != -ESTALE)
			return n > 0 ? n : 0;
		if (gpc_lookup(b->c, GPC_SPACE(space), key, 1, &at, GPC_QUIET) < 1)
			return -1;
	}
	return -1;
}

static struct told_block block_of(struct batches *b, const struct gpc_event *e,
				  const struct pool_facts *f)
{
	const struct told_block *parent =
		is_first(&e->parent) ? NULL : told_find_any(&b->told, &e->parent, f->space);

	return (struct told_block){
		.key = e->key,
		.parent = e->parent,
		.block = e->block,
		.group = e->group,
		.hash = name_of(&e->key, e->digest, e->digest_bytes),
		.root = root_of(&e->parent, parent),
		.depth = parent ? parent->depth + 1 : 0,
		.space = f->space,
		.kind = f->kind,
	};
}

/* ---- events ---- */

static void put_stored(struct batches *b, const struct told_block *it, int ntokens)
{
	const struct told_block *parent = NULL;
	struct wire_stored s = {
		.hashes = &it->hash,
		.n = 1,
		.tokens = b->tokens,
		.ntokens = (uint32_t)ntokens,
		.block_tokens = b->block_tokens,
		.medium = medium_of(it->kind),
		.group = it->group,
		.has_parent = !is_first(&it->parent),
	};

	if (s.has_parent)
		parent = told_find_any(&b->told, &it->parent, it->space);
	s.parent = parent ? parent->hash : it->parent.w[0];
	words_of(&b->words, b->c, &it->root);
	s.adapter = b->words.adapter;
	s.salt = b->words.salt;
	wire_stored(&b->wire, &s);
}

void batches_empty(struct batches *b)
{
	wire_begin(&b->wire, now(), 0);
	wire_end(&b->wire, 0);
}

/* A block was stored in one place and removed from another place of the same space; either of them
 * may be absent.  It is one rank. */
static void put_change(struct batches *b, const struct told_block *in, int ntokens,
		       const struct told_block *out)
{
	uint32_t rank = in ? in->space : out ? out->space : 0;

	wire_begin(&b->wire, now(), (in != NULL) + (out != NULL));
	if (in)
		put_stored(b, in, ntokens);
	if (out)
		wire_removed(&b->wire, &out->hash, 1, medium_of(out->kind), out->group);
	wire_end(&b->wire, rank);
}

/* The end of a block by removal or move.  Before `settled`, consumers may know more than
 * `told`. */
static bool ended(struct batches *b, const struct gpc_event *e, gpc_block block, bool again,
		  struct told_block *ret)
{
	const struct pool_facts *f = facts_of(b, block);
	const struct told_block *old = f ? told_find(&b->told, &e->key, f->space) : NULL;

	if (again || e->seq <= b->settled) {
		if (!f)
			return false;
		*ret = block_of(b, e, f);
		ret->block = block;
		return true;
	}
	/* the block is of a pool that is gone */
	for (uint32_t s = 0; !f && s < GPC_MAX_SPACES; s++) {
		old = told_find(&b->told, &e->key, s);
		if (old && old->block == block)
			break;
		old = NULL;
	}
	if (!old)
		return false;
	*ret = *old;
	return true;
}

static bool change(struct batches *b, const struct gpc_event *e, bool again)
{
	bool stores = e->what == GPC_STORED || e->what == GPC_MOVED;
	const struct pool_facts *f = stores ? facts_of(b, e->block) : NULL;
	struct told_block in, out;
	bool ends = e->what == GPC_REMOVED ? ended(b, e, e->block, again, &out)
		    : e->what == GPC_MOVED ? ended(b, e, e->was, again, &out)
					   : false;
	int ntokens = f ? tokens_of(b, &e->key, e->block, f->space) : -1;

	if (ntokens >= 0)
		in = block_of(b, e, f);
	if (ntokens >= 0 && ends && !is_root(&in.root))
		in.root = out.root;
	if (ntokens >= 0 && ends && in.space != out.space)
		ntokens = -1; /* a pool was made anew since the change */
	put_change(b, ntokens >= 0 ? &in : NULL, ntokens, ends ? &out : NULL);
	if (again)
		return true;
	if (ends)
		told_remove(&b->told, &out.key, out.space);
	return ntokens < 0 || told_put(&b->told, &in);
}

bool batches_is_clear(const struct gpc_event *e)
{
	return e->what == GPC_CLEARED && !e->tag;
}

/* If no other block is there, one word says it.  Otherwise each block is named. */
static bool clear(struct batches *b, const struct gpc_event *e)
{
	struct told_block *all;
	int64_t n = told_list(&b->told, GPC_POOL(e->block), &all);
	bool everything = n > 0 && n == b->told.n;

	if (n < 0)
		return false;
	wire_begin(&b->wire, now(), everything ? 1 : (uint32_t)n);
	if (everything)
		wire_cleared(&b->wire);
	for (int64_t i = 0; i < n; i++) {
		if (!everything)
			wire_removed(&b->wire, &all[i].hash, 1, medium_of(all[i].kind),
				     all[i].group);
		told_remove(&b->told, &all[i].key, all[i].space);
	}
	wire_end(&b->wire, n ? all[0].space : 0);
	free(all);
	return true;
}

bool batches_next(struct batches *b, const struct gpc_event *e)
{
	bool done = true;

	if (batches_is_clear(e))
		done = clear(b, e);
	else if (e->what == GPC_STORED || e->what == GPC_REMOVED || e->what == GPC_MOVED)
		done = change(b, e, false);
	else
		batches_empty(b);
	b->last = e->seq;
	return done;
}

void batches_again(struct batches *b, const struct gpc_event *e)
{
	if (e->what == GPC_STORED || e->what == GPC_REMOVED || e->what == GPC_MOVED)
		change(b, e, true);
	else
		batches_empty(b);
}

/* ---- all blocks that are there ---- */

static void keep_space(struct snapshot *s, uint32_t space)
{
	int64_t n = 0;

	for (int64_t i = 0; i < s->n; i++)
		if (s->all[i].space == space)
			s->all[n++] = s->all[i];
	s->n = n;
}

/* Some consumers clear one rank, and others clear all blocks of the publisher.  So all ranks are
 * cleared before the first block. */
int snapshot_begin(struct batches *b, struct snapshot *s, uint64_t first, int only)
{
	uint32_t of[GPC_MAX_SPACES] = { 0 };

	*s = (struct snapshot){ .first = first, .last = b->last };
	s->n = told_list(&b->told, -1, &s->all);
	if (s->n < 0)
		return -ENOMEM;
	if (only >= 0)
		keep_space(s, (uint32_t)only);
	for (int64_t i = 0; i < s->n; i++)
		of[s->all[i].space]++;
	while (s->space < GPC_MAX_SPACES - 1 && !of[s->space])
		s->space++;
	s->space = s->n ? s->space : only >= 0 ? (uint32_t)only : 0;
	s->clears = only >= 0 ? 0 : b->spaces & ~GPC_SPACE(s->space);
	s->batches = (uint64_t)__builtin_popcount(s->clears);
	for (uint32_t i = 0; i < GPC_MAX_SPACES; i++)
		s->batches += (of[i] + CHUNK - 1) / CHUNK;
	s->batches += !s->n;
	return 0;
}

void snapshot_end(struct snapshot *s)
{
	free(s->all);
	*s = (struct snapshot){ .n = 0 };
}

/* Puts up to CHUNK blocks of its space, from *at on; *told: how many of them are still there.  The
 * other blocks have gone since the snapshot was begun.  Their end follows the snapshot, and means
 * nothing to a consumer that does not know them. */
static uint32_t put_chunk(struct batches *b, const struct snapshot *s, int64_t *at, uint32_t *told,
			  bool write)
{
	uint32_t n = 0;
	int ntokens;

	for (*told = 0; *at < s->n && n < CHUNK; ++*at) {
		const struct told_block *it = &s->all[*at];

		if (it->space != s->space)
			continue;
		n++;
		if (!told_find(&b->told, &it->key, it->space))
			continue;
		++*told;
		if (!write)
			continue;
		ntokens = tokens_of(b, &it->key, it->block, s->space);
		put_stored(b, it, ntokens < 0 ? 0 : ntokens);
	}
	return n;
}

static void put_clear(struct batches *b, struct snapshot *s)
{
	wire_begin(&b->wire, now(), 1);
	wire_cleared(&b->wire);
	wire_end(&b->wire, (uint32_t)__builtin_ctz(s->clears));
	s->clears &= s->clears - 1;
}

/* The number of events stands before the events, so each chunk is counted first. */
static void put_stores(struct batches *b, struct snapshot *s)
{
	int64_t from = s->at;
	uint32_t n;

	while (!put_chunk(b, s, &s->at, &n, false) && s->n) {
		s->space++;
		from = s->at = 0;
	}
	wire_begin(&b->wire, now(), n + !s->cleared);
	if (!s->cleared)
		wire_cleared(&b->wire);
	s->cleared = true;
	put_chunk(b, s, &from, &n, true);
	wire_end(&b->wire, s->space);
}

bool snapshot_next(struct batches *b, struct snapshot *s, uint64_t *sequence)
{
	uint64_t left;

	if (s->done == s->batches)
		return false;
	if (s->clears)
		put_clear(b, s);
	else
		put_stores(b, s);
	left = s->batches - ++s->done;
	*sequence = s->last > left ? s->last - left : 0;
	*sequence = *sequence > s->first ? *sequence : s->first;
	return true;
}

/* ---- the beginning ---- */

static int add_all(struct batches *b)
{
	struct gpc_entry entry[WALK];
	uint64_t at = 0;
	int n;

	while ((n = gpc_walk(b->c, &at, entry, WALK)) > 0)
		for (int i = 0; i < n; i++) {
			const struct pool_facts *f = facts_of(b, entry[i].block);
			struct told_block it = {
				.key = entry[i].key,
				.parent = entry[i].parent,
				.block = entry[i].block,
				.depth = entry[i].depth,
				.group = entry[i].group,
				.hash = name_of(&entry[i].key, entry[i].digest,
						entry[i].digest_bytes),
			};

			if (!f)
				continue;
			it.root =
				root_of(&it.parent, told_find_any(&b->told, &it.parent, f->space));
			it.space = f->space;
			it.kind = f->kind;
			if (!told_put(&b->told, &it))
				return -ENOMEM;
		}
	return n;
}

/* Was a pool cleared since?  Then the walk may have missed blocks that consumers know.  *ret: the
 * last change. */
static int look_for_clears(struct batches *b, uint64_t cursor, bool *found, uint64_t *ret)
{
	struct gpc_event e[WALK];
	int n;

	*found = false;
	while ((n = gpc_event_read(b->c, &cursor, e, WALK)) > 0)
		for (int i = 0; i < n; i++)
			*found = *found || batches_is_clear(&e[i]);
	*ret = cursor - 1;
	return n;
}

int batches_begin(struct batches *b, uint64_t *cursor)
{
	bool found;
	int r;

	do {
		told_reset(&b->told);
		batches_ask_again(b);
		for (int i = 0; i < GPC_MAX_POOLS; i++)
			facts_of(b, GPC_BLOCK(i, 0));
		*cursor = UINT64_MAX;
		r = gpc_event_read(b->c, cursor, NULL, 0);
		if (r >= 0)
			r = add_all(b);
		if (r < 0)
			return r;
		r = look_for_clears(b, *cursor, &found, &b->settled);
	} while (r == -ESTALE || found);
	b->last = *cursor - 1;
	return r;
}

void batches_end(struct batches *b)
{
	told_reset(&b->told);
	wire_free(&b->wire);
	free(b->tokens);
}
