/* SPDX-License-Identifier: Apache-2.0 */
/* grant.h - commands that need blocks: reserve, evict, and the first halves of moves. */
#ifndef GPC_WRITER_GRANT_H
#define GPC_WRITER_GRANT_H

#include "index/writer/grants.h"

void grant_start(struct writer *w, uint32_t peer, uint64_t position, const struct shm_command *cmd);
/* Start grants that wait for room, finish grants that have all blocks, and refuse grants that only
 * try. */
void grant_sweep(struct writer *w);
/* Answer a reserve that needs no grant.  False: it needs one. */
bool grant_now(struct writer *w, uint32_t peer, uint64_t position, const struct shm_command *cmd);
void grant_cancel_peer(struct writer *w, uint32_t peer);
void grant_cancel_pool(struct writer *w, uint32_t pool);

/* 0: g->n is the number that the quota of its peer allows for; or -EDQUOT. */
int32_t grant_quota(struct writer *w, struct grant *g);
/* The number of further blocks that the quota allows for, without those that other grants are to
 * get. */
uint32_t grant_quota_left(struct writer *w, const struct grant *g);
/* For a pool without CALLER blocks, while no grant waits: does the quota allow n more? */
bool grant_has_quota(struct writer *w, uint32_t peer, uint32_t n);
/* Pin the sources of a move command: 0, or the reason why not even the first can move. */
int32_t grant_take_sources(struct writer *w, struct grant *g, uint32_t from);
void grant_unpin(struct writer *w, struct grant_item *s);
/* Is the key of this source on its way to the target's space already, by a transfer?  Or has
 * another peer claimed it? */
bool grant_has_rival(struct writer *w, const struct grant *g, uint32_t source);
/* For a transfer: the reason why an item lacks something. */
int32_t grant_why_not(struct writer *w, const struct grant *g, const struct grant_item *s);
/* Must the grant wait until a block of one of its keys has left the target's space? */
bool grant_is_behind(struct writer *w, struct grant *g);

enum { GRANT_WAIT = 1 };
/* Find blocks for all items in need.  0: they are there or on their way.  GRANT_WAIT: nothing was
 * done, so call it again later.  -ENOSPC: nothing was done, and waiting would not help. */
int32_t grant_place(struct writer *w, struct grant *g);
/* ---- blocks that the command names: grant_named.c ---- */

void grant_take_named(struct writer *w, struct grant *g);
/* Store the results of the items from .. to in their entries, each before the first is
 * answered. */
void grant_tell_named(struct writer *w, const struct grant *g, uint32_t from, uint32_t to,
		      int32_t why);

#endif
