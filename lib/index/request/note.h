/* SPDX-License-Identifier: Apache-2.0 */
/* note.h - notes that a publish brings, and that a commit takes along.
 *
 * Both are stored with ring_lock held, when the block's cell says that its command is being sent.
 * So no other thread sends a command for the block, and the writer has not seen this one. */
#ifndef GPC_REQUEST_NOTE_H
#define GPC_REQUEST_NOTE_H

#include "index/peer/handle.h"

struct publish_copy;

struct notes { /* the notes of one call; zero = none are given */
	uint32_t group, digest_bytes, digest_stride;
	const uint32_t *tokens;
	const uint8_t *digests;
	const struct publish_copy *copies; /* instead of these: each copy has its own note */
};

/* The notes of the options: 0, or -EINVAL if this cache cannot keep them. */
int notes_take(gpc *c, const struct gpc_publish_options *opt, struct notes *ret);
/* Item i of the call is published under that key. */
void notes_publish(gpc *c, const struct notes *notes, uint32_t i, uint32_t record,
		   const uint64_t key[2]);
/* The record gets the notes of another block, as long as that block has this life (ring_life). */
void notes_copy(gpc *c, gpc_block from, uint64_t life, uint32_t record, const uint64_t key[2]);
/* The target of a move gets the note of its source. */
void notes_move(gpc *c, uint32_t target);

#endif
