/* SPDX-License-Identifier: Apache-2.0 */
/* move.h - the second halves of moves. */
#ifndef GPC_WRITER_MOVE_H
#define GPC_WRITER_MOVE_H

#include "index/table/state.h"

/* The key of `from` is live in `to` as well.  From here on the entry names `to`, and `from` waits
 * for its end (rule C3).  A takeover ends a commit with this function. */
void move_switch(struct writer *w, uint32_t from, uint32_t to);
/* Commit one target, which stays RESERVED if that fails.  0; MOVE_AGAIN: there is no bucket yet;
 * -ESTALE, -EEXIST, -ENOENT, -EAGAIN. */
enum { MOVE_AGAIN = 1 };
int32_t move_commit_target(struct writer *w, uint32_t peer, uint32_t target);
#endif
