/* SPDX-License-Identifier: Apache-2.0 */
/* refuse.h - the sentences for refusals of the writer, or of this side before it.
 *
 * The writer answers with a number.  The calling side knows the argument, pool and block.  If
 * several reasons share a number, the state of that pool or block shows the reason.  The state is
 * read when the answer is there: if another process has changed it since, the sentence names all
 * possible reasons.  Each function sets a sentence and returns the error. */
#ifndef GPC_REFUSE_H
#define GPC_REFUSE_H

#include "index/peer/handle.h"

struct gpc_move; /* gpc_bytes.h */

/* 0 if `argument` is a pool number that this cache can have; else -EINVAL. */
int refuse_pool_number(const gpc *c, const char *argument, int pool);
/* The pool of that number does not exist now: -ENOENT.  Or it is going: -ESTALE. */
int refuse_pool(const gpc *c, const char *argument, int pool);
/* The same, and 0 if it is READY. */
int refuse_unready(const gpc *c, const char *argument, int pool);
/* blocks[i] is no block of this cache: -EINVAL. */
int refuse_block(const gpc *c, const char *array, uint32_t i, gpc_block block);
/* Is the pool of the block going?  Or has it gone, and no other pool has its number? */
bool refuse_is_gone(const gpc *c, gpc_block block);
/* If so, -ESTALE takes the place of -EINVAL (no such block) and -EPERM (not the peer's block);
 * else err. */
int refuse_gone(const gpc *c, gpc_block block, int err);
/* The same as refuse_block(), of moves[i].from or moves[i].to.  field is ".from" or ".to". */
int refuse_move_block(const gpc *c, uint32_t i, const char *field, gpc_block block);
/* blocks[i] is not held by this peer: -EPERM. */
int refuse_unref(const gpc *c, uint32_t i, gpc_block block);
/* For reserve, evict, demote and promote.  cmds[0] has their arguments, with the n of the call. */
int refuse_group(const gpc *c, const struct shm_command *cmds, uint32_t n, int32_t err);
int refuse_publish(const gpc *c, const struct refused_item *it);
int refuse_commit(const gpc *c, uint32_t i, const struct gpc_move *m, bool cancel, int32_t err);
/* blocks[i] of gpc_reclaim is refused.  keys: the call had some. */
int refuse_reclaim(const gpc *c, uint32_t i, gpc_block block, bool keys, int32_t err);
/* gpc_ref took no reference for keys[i], blocks[i]. */
int refuse_ref(const gpc *c, uint32_t i, gpc_block block, int32_t err);

/* For a call that succeeds although an item was refused; called after the sentence is set.  It
 * logs the sentence at level debug, once for each errno and handle.  A program that drops the
 * answers finds there why it never hits.  A program that reads them may be refused a thousand
 * times a second. */
void refuse_log(gpc *c, const char *call, int32_t err);

#endif
