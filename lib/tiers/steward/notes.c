/* SPDX-License-Identifier: Apache-2.0 */
/* notes.c - the notes of an engine about a block (struct shm_note), as they lie beside the block
 * in a file.
 *
 *   struct disk_note, and the tokens after it (tiers/disk/format.h)
 *
 * On the way down the note is copied from the block of RAM, which is held.  At the next start,
 * when the block is published, the note is copied into the note of the block's record in the tier's
 * pool, and from there to RAM with each copy.  Nobody reads the note in the file at other times.
 *
 * A note is no part of the block: if it is damaged, or did not fit, the block comes without it.
 * Tests: t/tiers/notes.t */
#include "config.h"

#include <string.h>
#include "tiers/disk/format.h"
#include "index/segment/note.h"
#include "tiers/steward/steward.h"

_Static_assert(sizeof(((struct disk_note *)0)->digest) == sizeof(((struct shm_note *)0)->digest),
	       "note layout");

static uint32_t tokens_bytes(const struct segment *s)
{
	return s->header.block_tokens * (uint32_t)sizeof(uint32_t);
}

uint32_t notes_most(const struct segment *s)
{
	uint64_t most = sizeof(struct disk_note) +
			(seg_keeps(s, KEEP_TOKENS) ? (uint64_t)tokens_bytes(s) : 0);

	if (!s->header.geometry.note_lines)
		return 0;
	return most <= DISK_MOST_NOTE ? (uint32_t)most : (uint32_t)sizeof(struct disk_note);
}

/* False: the block's life is over, or its note is empty. */
static bool copy(const gpc *c, gpc_block block, const struct about *a, struct shm_note *ret,
		 uint32_t *tokens)
{
	const struct segment *s = &c->seg;
	uint32_t record = pool_record(s, block);
	const struct shm_note *from = seg_note(s, record);

	note_copy(ret, from, a->key.w);
	if (!tokens || !seg_keeps(s, KEEP_TOKENS))
		ret->has_tokens = 0;
	if (ret->has_tokens)
		note_copy_tokens(tokens, from, s->header.block_tokens);
	order_fence();
	/* pairs with (n) of index/segment/note.c */
	return load_relaxed(&seg_record(s, record)->word) == a->word &&
	       (ret->group || ret->digest_bytes || ret->has_tokens);
}

uint32_t notes_pack(const gpc *c, gpc_block block, const struct about *a, void *to, uint32_t room)
{
	struct disk_note *f = to;
	uint32_t bytes = tokens_bytes(&c->seg);
	bool fits = room >= sizeof(*f) && room - sizeof(*f) >= bytes;
	struct shm_note note;

	if (room < sizeof(*f) || pool_record(&c->seg, block) == SHM_NO_RECORD ||
	    !copy(c, block, a, &note, fits ? (uint32_t *)(f + 1) : NULL))
		return 0;
	*f = (struct disk_note){
		.version = DISK_NOTE_VERSION,
		.group = note.group,
		.digest_bytes = note.digest_bytes,
		.ntokens = note.has_tokens ? c->seg.header.block_tokens : 0,
	};
	memcpy(f->digest, note.digest, sizeof(f->digest));
	return (uint32_t)sizeof(*f) + (f->ntokens ? bytes : 0);
}

bool notes_unpack(const gpc *c, const void *from, uint32_t bytes, const gpc_key *key,
		  struct shm_note *ret, uint32_t *tokens)
{
	const struct segment *s = &c->seg;
	struct disk_note f;

	*ret = (struct shm_note){ .key = { key->w[0], key->w[1] } };
	if (bytes < sizeof(f))
		return false;
	memcpy(&f, from, sizeof(f));
	if (f.version != DISK_NOTE_VERSION || f.digest_bytes > sizeof(f.digest) ||
	    f.ntokens > (bytes - sizeof(f)) / sizeof(*tokens))
		return false;
	if (seg_keeps(s, KEEP_DIGESTS)) {
		ret->group = f.group;
		ret->digest_bytes = (uint8_t)f.digest_bytes;
		memcpy(ret->digest, f.digest, f.digest_bytes);
	}
	ret->has_tokens =
		seg_keeps(s, KEEP_TOKENS) && f.ntokens && f.ntokens == s->header.block_tokens;
	if (ret->has_tokens)
		memcpy(tokens, (const uint8_t *)from + sizeof(f), tokens_bytes(s));
	return ret->group || ret->digest_bytes || ret->has_tokens;
}
