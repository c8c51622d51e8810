/* SPDX-License-Identifier: Apache-2.0 */
/* note.c - a caller's words about its blocks are stored in the notes.
 * Tests: t/index/notes.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "index/request/note.h"
#include "index/request/request.h"
#include "index/segment/note.h"

static int not_kept(const char *given, const char *field)
{
	return err_set(EINVAL,
		       "%s is given, and this cache keeps none: it was made without "
		       "gpc_config.%s",
		       given, field);
}

static int check_digests(const struct gpc_publish_options *o)
{
	int err;

	if (!o->digests)
		return err_set(EINVAL, "digests is NULL, and %s is %u",
			       o->digest_bytes ? "digest_bytes" : "digest_stride",
			       o->digest_bytes ? o->digest_bytes : o->digest_stride);
	err = err_range("digest_bytes", o->digest_bytes, 1, sizeof(((struct shm_note *)0)->digest));
	if (err == 0 && o->digest_stride < o->digest_bytes)
		err = err_set(EINVAL, "digest_stride is %u: it must be at least digest_bytes, %u",
			      o->digest_stride, o->digest_bytes);
	return err;
}

int notes_take(gpc *c, const struct gpc_publish_options *o, struct notes *ret)
{
	const struct segment *s = &c->seg;
	int err;

	if (o->tokens && !seg_keeps(s, KEEP_TOKENS))
		return not_kept("tokens", "keep_tokens");
	if (o->digests && !seg_keeps(s, KEEP_DIGESTS))
		return not_kept("digests", "keep_digests");
	if (o->group && !seg_keeps(s, KEEP_DIGESTS))
		return not_kept("group", "keep_digests");
	if ((o->digests || o->digest_bytes || o->digest_stride) && (err = check_digests(o)))
		return err;
	*ret = (struct notes){ o->group,  o->digest_bytes, o->digest_stride,
			       o->tokens, o->digests,      NULL };
	return 0;
}

void notes_publish(gpc *c, const struct notes *notes, uint32_t i, uint32_t record,
		   const uint64_t key[2])
{
	struct shm_note note = {
		.key = { key[0], key[1] },
		.group = notes->group,
		.digest_bytes = (uint8_t)notes->digest_bytes,
		.has_tokens = notes->tokens != NULL,
	};
	const uint32_t *tokens = NULL;

	if (notes->copies && notes->copies[i].note) {
		note_store(&c->seg, record, notes->copies[i].note, notes->copies[i].tokens);
		return;
	}
	if (notes->digests)
		memcpy(note.digest, notes->digests + (size_t)i * notes->digest_stride,
		       notes->digest_bytes);
	if (notes->tokens)
		tokens = notes->tokens + (size_t)i * c->seg.header.block_tokens;
	note_store(&c->seg, record, &note, tokens);
}

/* The source of a move that began is LIVE and pinned, and source_word is its word.  The same word
 * means the same life of the block.  The end of that life ends the move, and then nobody reads the
 * note of the target. */
/* The note in `from` means nothing if the word has changed. */
static void copy_note(const struct segment *s, uint32_t from, uint32_t word, uint32_t to,
		      const uint64_t key[2])
{
	uint32_t n = s->header.block_tokens;
	uint32_t *tokens = seg_keeps(s, KEEP_TOKENS) ? malloc(n * sizeof(*tokens)) : NULL;
	struct shm_note note = { { 0 } };

	if (from < s->header.geometry.max_blocks) {
		note_copy(&note, seg_note(s, from), key);
		note.has_tokens = note.has_tokens && tokens;
		if (note.has_tokens)
			note_copy_tokens(tokens, seg_note(s, from), n);
		order_fence();
		/* pairs with (n) of index/segment/note.c */
		if (load_relaxed(&seg_record(s, from)->word) != word)
			memset(&note, 0, sizeof(note));
	}
	note_store(s, to, &note, tokens);
	free(tokens);
}

void notes_move(gpc *c, uint32_t target)
{
	const struct shm_record *t = seg_record(&c->seg, target);
	uint64_t key[2] = { load_relaxed(&t->key[0]), load_relaxed(&t->key[1]) };

	copy_note(&c->seg, load_relaxed(&t->source) - 1, load_relaxed(&t->source_word), target,
		  key);
}

void notes_copy(gpc *c, gpc_block from, uint64_t life, uint32_t record, const uint64_t key[2])
{
	copy_note(&c->seg, pool_record(&c->seg, from), WORD(LIVE, life - 1), record, key);
}
