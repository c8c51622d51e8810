/* SPDX-License-Identifier: Apache-2.0 */
/* move_bind.h - the first halves of moves. */
#ifndef GPC_WRITER_MOVE_BIND_H
#define GPC_WRITER_MOVE_BIND_H

#include "index/table/state.h"

/* A block that a move reads stays in its place. */
void move_pin(struct writer *w, uint32_t source, bool keep);
void move_unpin(struct writer *w, uint32_t source, bool keep);
/* Make `target`, which is RESERVED, the target of a move of `source`'s key.  source_word is the
 * source's word when the move began: a pin does not keep a key from being published anew. */
void move_bind(struct writer *w, uint32_t target, uint32_t source, uint32_t source_word,
	       uint8_t flags);
/* An uncommitted target forgets its source.  It stays RESERVED, and the commit answers -ESTALE. */
void move_unbind(struct writer *w, uint32_t target);
/* A pool goes, and no move reads its blocks any more. */
void move_forget_sources(struct writer *w, uint32_t pool);

#endif
