/* SPDX-License-Identifier: Apache-2.0 */
/* move.h - the second halves of moves. */
#ifndef GPC_WRITER_MOVE_H
#define GPC_WRITER_MOVE_H

#include "writer/index/state.h"

/* A block that a move reads stays where it is. */
void move_pin(struct writer *w, uint32_t source, bool keep);
void move_unpin(struct writer *w, uint32_t source, bool keep);
/* Make `target`, RESERVED, the target of a move of `source`'s key.  source_word is what the
 * source was when the move began: pins do not keep a key from being published anew. */
void move_bind(struct writer *w, uint32_t target, uint32_t source, uint32_t source_word,
	       uint8_t flags);
/* An uncommitted target forgets its source; it stays RESERVED, and the commit answers -ESTALE. */
void move_unbind(struct writer *w, uint32_t target);
/* A pool goes: no move reads its blocks any more. */
void move_forget_sources(struct writer *w, uint32_t pool);
/* The key of `from` is live in `to` as well: the entry names `to` from here on, and `from`
 * waits for its end (rule C3).  A takeover ends a commit by it. */
void move_switch(struct writer *w, uint32_t from, uint32_t to);
/* Commit one target, which stays RESERVED if that fails: 0, MOVE_AGAIN: no bucket yet; -ESTALE,
 * -EEXIST, -ENOENT, -EAGAIN. */
enum { MOVE_AGAIN = 1 };
int32_t move_commit_target(struct writer *w, uint32_t peer, uint32_t target);
/* Targets in the order of their commit (guarantee G). */
void move_order(struct writer *w, uint32_t *targets, uint32_t n);
/* One group of CMD_COMMIT; false: waits for a bucket, come again. */
bool move_commit(struct writer *w, uint32_t peer, uint64_t position, uint32_t n);

#endif
