/* SPDX-License-Identifier: Apache-2.0 */
/* note.c - the tokens of a live block.
 * Tests: t/index/notes-race.t t/index/notes-die.t t/index/notes.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include "gpc_look.h"
#include "look/inspect.h"
#include "index/segment/note.h"

#define STABLE_TRIES 64 /* tries for a block that is published anew all the time */

/* A copy of a note with its tokens. */
struct copy {
	struct shm_note note;
	uint32_t tokens[];
};

/* The record of a block of a READY pool, or SHM_NO_RECORD. */
static uint32_t find_record(const struct segment *s, gpc_block block)
{
	uint32_t pool = (uint32_t)block >> 24, slot = (uint32_t)GPC_SLOT(block), first, slots;
	struct shm_pool d;

	if (block < 0 || pool >= s->header.geometry.max_pools || !seg_peek_pool(s, pool, &d))
		return SHM_NO_RECORD;
	first = pool_first(s, d.range, &slots);
	return slot < slots ? first + slot : SHM_NO_RECORD;
}

static void peek_record(const struct segment *s, uint32_t record, struct shm_record *ret)
{
	seg_peek_index(s, s->at.record + (uint64_t)record * sizeof(*ret), ret, sizeof(*ret));
}

static bool is_of(const struct shm_record *r, const gpc_key *key)
{
	return WORD_STATE(r->word) == LIVE && r->key[0] == key->w[0] && r->key[1] == key->w[1];
}

static int stale(gpc_block block)
{
	return err_set(ESTALE, "block %d does not hold that key now: look it up again", block);
}

/* A block's key is stored before LIVE, and its note before that: so a record that is LIVE under
 * that key, and has the same word afterwards, was LIVE under it while the note was copied.  Pairs
 * with (n) of index/segment/note.c. */
static int copy_note(const struct segment *s, uint32_t record, gpc_block block, const gpc_key *key,
		     struct copy *copy)
{
	uint64_t bytes = s->header.geometry.note_lines * 64ull;
	struct shm_record before, after;
	uint32_t tries;

	for (tries = 0; tries < STABLE_TRIES; tries++) {
		peek_record(s, record, &before);
		order_fence();
		if (!is_of(&before, key))
			return stale(block);
		seg_peek_control(s, s->at.note + record * bytes, copy, bytes);
		order_fence();
		peek_record(s, record, &after);
		if (after.word == before.word)
			return 0;
	}
	return stale(block);
}

static int get_tokens(const struct segment *s, const gpc_key *key, gpc_block block,
		      uint32_t *tokens, uint32_t n)
{
	uint32_t record = find_record(s, block), i;
	struct shm_note note = { 0 };
	struct copy *copy;
	int err;

	if (record == SHM_NO_RECORD)
		return stale(block);
	copy = malloc(s->header.geometry.note_lines * 64ull);
	if (!copy)
		return err_set(ENOMEM, "no memory for %u tokens", s->header.block_tokens);
	err = copy_note(s, record, block, key, copy);
	if (err == 0)
		note_copy(&note, &copy->note, key->w);
	n = err == 0 && note.has_tokens ? MIN(n, s->header.block_tokens) : 0;
	for (i = 0; i < n; i++)
		tokens[i] = copy->tokens[i];
	free(copy);
	return err ? err : (int)n;
}

GPC_EXPORT int gpc_tokens_get(gpc *c, const gpc_key *key, gpc_block block, uint32_t *tokens,
			      uint32_t n)
{
	int err = handle_check(c, false), cut;

	if (err)
		return err;
	if (!key || (n && !tokens))
		return err_set(EINVAL, "%s is NULL", key ? "tokens" : "key");
	err = err_count(n, "tokens");
	if (err)
		return err;
	if (!seg_keeps(&c->seg, KEEP_TOKENS))
		return err_set(ENOENT, "this cache keeps no tokens: it was made without "
				       "gpc_config.keep_tokens");
	err = get_tokens(&c->seg, key, block, tokens, n);
	/* the reads are done before the check: if the file is whole now, it was whole then */
	cut = segment_check_index(&c->seg);
	return cut < 0 ? cut : err;
}
