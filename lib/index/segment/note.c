/* SPDX-License-Identifier: Apache-2.0 */
/* note.c - notes of blocks: a block's peer stores its note, and every process may copy it.
 * Tests: t/index/notes-die.t t/index/notes-move.t t/index/notes.t t/index/notes-race.t
 *   t/bytes/notes-fetched.t */
#include "config.h"

#include <string.h>
#include "index/base/order.h"
#include "index/segment/note.h"
#include "index/segment/peek.h"

static uint32_t *tokens_of(struct shm_note *note)
{
	return (uint32_t *)(note + 1);
}

/* The words of a note are stored in any order.  A successor, and any reader, looks at the note
 * only when the block is LIVE, and all of it was stored before the command was shown. */
void note_store(const struct segment *s, uint32_t record, const struct shm_note *from,
		const uint32_t *tokens)
{
	struct shm_note *note = seg_note(s, record);
	uint64_t words[sizeof(*from) / sizeof(uint64_t)];
	uint32_t i;

	/* pairs with (K): the block's last life is over before we know that it is ours */
	if (WORD_STATE(load_acquire(&seg_record(s, record)->word)) != RESERVED)
		return;
	/* (n) RESERVED comes before these stores.  So a reader that copies some of them finds, by
	 * its second look after its loads, another word than before.  If we die among the stores,
	 * a successor finds a reservation, whose note nobody reads. */
	order_stores();
	memcpy(words, from, sizeof(words));
	for (i = 0; i < ARRAY_SIZE(words); i++)
		store_relaxed((uint64_t *)note + i, words[i]);
	for (i = 0; from->has_tokens && i < s->header.block_tokens; i++)
		store_relaxed(&tokens_of(note)[i], tokens[i]);
}

void note_copy(struct shm_note *ret, const struct shm_note *from, const uint64_t key[2])
{
	seg_copy_words(ret, from, sizeof(*ret));
	if (ret->key[0] != key[0] || ret->key[1] != key[1] ||
	    ret->digest_bytes > sizeof(ret->digest))
		memset(ret, 0, sizeof(*ret));
}

void note_copy_tokens(uint32_t *ret, const struct shm_note *from, uint32_t n)
{
	const uint32_t *tokens = (const uint32_t *)(from + 1);
	uint32_t i;

	for (i = 0; i < n; i++)
		ret[i] = load_relaxed(&tokens[i]);
}
