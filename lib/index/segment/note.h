/* SPDX-License-Identifier: Apache-2.0 */
/* note.h - notes of an engine about a block, with its key (struct shm_note).
 *
 * A note has a seqlock, whose sequence is the word of the block's record.  The peer that has the
 * block RESERVED stores the note, and nobody stores it once the block is LIVE.  A reader finds the
 * word LIVE before it copies the note, and the same word afterwards.  A note is in memory that
 * every peer can write: each value read is checked, and nothing of the index depends on it. */
#ifndef GPC_NOTE_H
#define GPC_NOTE_H

#include "index/segment/segment.h"

/* For a block that the caller has RESERVED, and that no command of it names yet.  tokens:
 * block_tokens of them, if from->has_tokens. */
void note_store(const struct segment *s, uint32_t record, const struct shm_note *from,
		const uint32_t *tokens);
/* Copy and check a note of shared memory, or of a copy of it.  It becomes all zero if it has
 * another key, or none. */
void note_copy(struct shm_note *ret, const struct shm_note *from, const uint64_t key[2]);
/* The tokens of the note; the caller has checked that they are there. */
void note_copy_tokens(uint32_t *ret, const struct shm_note *from, uint32_t n);

#endif
