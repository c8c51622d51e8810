/* SPDX-License-Identifier: Apache-2.0 */
/* note.h - notes of an engine about a block, beside its key (struct shm_note).
 *
 * A seqlock whose sequence is the word of the block's record.  The peer that has the block RESERVED
 * stores the note, and nobody does once it is LIVE; a reader of a note finds the word LIVE
 * before, and the same word after.  A note is in memory that every peer can write: each value
 * read is checked, and nothing of the index depends on it. */
#ifndef GPC_NOTE_H
#define GPC_NOTE_H

#include "index/segment/segment.h"

/* For a block that the caller has RESERVED, and that no command names so far.  tokens:
 * block_tokens of them, if from->has_tokens. */
void note_store(const struct segment *s, uint32_t record, const struct shm_note *from,
		const uint32_t *tokens);
/* A note as it stands in shared memory, or in a copy of it, checked: all zero if it has another
 * key, or none. */
void note_copy(struct shm_note *ret, const struct shm_note *from, const uint64_t key[2]);
/* The tokens behind it; the caller has checked that they are there. */
void note_copy_tokens(uint32_t *ret, const struct shm_note *from, uint32_t n);

#endif
