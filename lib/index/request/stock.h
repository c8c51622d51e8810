/* SPDX-License-Identifier: Apache-2.0 */
/* stock.h - blocks in hand ahead of demand: reservations of pools whose blocks the cache hands
 * out, and evicted blocks of pools of CALLER blocks.
 *
 *   record                         cell      in_stock  the refill  the block belongs to
 *   -----------------------------  --------  --------  ----------  ------------------------------------
 *   LIVE                           any       -         -           the cache
 *   DYING, for the refill          any       -         unanswered  the writer: it is on its way to the
 *                                                                  stock.  If somebody takes a reference
 *                                                                  before it gets there, the writer
 *                                                                  takes another block
 *   RESERVED, op = the refill's    0         -         unanswered  the writer, about to put it in stock
 *   the same                       STOCK     -         unanswered  the writer.  The peer takes none: its
 *                                                                  list does not have the block yet.  A
 *                                                                  successor runs the refill again,
 *                                                                  with this block
 *   the same                       STOCK     counted   answered    the stock
 *   RESERVED, ordinary pool        RESERVED  -         answered    the program
 *   RESERVED, CALLER pool          0         -         answered    the program, only by the record
 *   RESERVED, with REC_RECALL      STOCK, 0  -         -           the writer, which takes it back
 *
 * The field in_stock is the seat's count for a CALLER pool; gpc_pool_available reads it.  For an
 * ordinary pool the seat's in_use says as much, because it leaves out the blocks in stock.  The
 * count may lag behind the cells by the blocks that one call moves.
 *
 * The writer takes ordinary blocks back from a stock when other peers need them.  Nobody else may
 * have the blocks of a CALLER pool, so these go with the pool only. */
#ifndef GPC_STOCK_H
#define GPC_STOCK_H

#include "index/request/request.h"

/* Of one pool; ring_lock.  Only the cells show the content of the stock.  The list may name blocks
 * that the writer has taken back since, without a word to the peer. */
struct stock {
	gpc_block *blocks;    /* [at .. n) */
	uint32_t at, n, want; /* at: always 0 for ordinary blocks, which are taken from the end */
	uint32_t generation;  /* of a CALLER pool: another pool may have its number by now */
	bool caller;          /* the list is of evicted blocks of a CALLER pool of ours */
	bool filling;
};

/* ---- of ordinary pools ---- */

/* n blocks, or none.  With `partial`: as many as the stock has, up to n. */
uint32_t stock_reserve(gpc *c, uint32_t pool, uint32_t n, gpc_block *blocks, bool partial);
/* Refills it with a command that follows the program's own one. */
void stock_follow(gpc *c, uint32_t pool);
/* Does the quota allow for n more blocks?  If need be, the stocks are given back.  False: a part
 * of a stock is under way, and the caller has to wait for it. */
bool stock_make_room(gpc *c, uint32_t n);
/* For ring_watch: is every stock empty, and no block on its way into one? */
int stock_is_gone(gpc *c, void *arg);
void stock_pause(gpc *c, int by);

/* ---- of CALLER pools of ours ---- */

/* Up to n blocks, the first evicted ones first.  The stock is refilled if it has that many.
 * *ret_comes: it has fewer, and a refill is under way. */
uint32_t stock_evict(gpc *c, uint32_t pool, uint32_t n, gpc_block *blocks, bool *ret_comes);
/* For ring_watch: has the refill of the pool been answered?  arg: the pool's number. */
int stock_has_come(gpc *c, void *arg);

#endif
