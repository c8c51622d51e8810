/* SPDX-License-Identifier: Apache-2.0 */
/* plain.h - the short way for what nearly all commands and victims are.
 *
 * Each of these does what the general way does, by the same stores in the same order, so a
 * successor finds nothing that it would not find there.  But a reserve is claimed before its
 * blocks, not behind them: a successor runs what is claimed again, whatever it has by then.  Each
 * asks first whether the case is plain, and has stored nothing when it says no: then the general
 * way goes on as if nobody had asked.
 *
 *                plain                                       the general way
 *   publish      without conditions (CF_SOURCE and such),    command.c
 *                a reservation of that peer, of no move,
 *                claim, grant or transfer; the key is new;
 *                an entry is free for it; below a root, the
 *                peer's last block, or nothing
 *   retire       a leaf without children, moved from         retire.c retire_block
 *                nowhere, in a pool of no CALLER blocks; no
 *                relocation is under way
 *   arrive       DYING for nobody in particular; nobody      retire.c arrive
 *                holds it, and no transfer reads it
 *   free         of a block that is no reservation of that   command.c
 *                peer (any more)
 *   reserve      no grant waits; the pool has free blocks    grant.c, grant_place.c
 *                for all of it, and none on their way back
 *
 * t/119 runs the same random commands with and without the short way and compares all of it. */
#ifndef GPC_WRITER_PLAIN_H
#define GPC_WRITER_PLAIN_H

#include "writer/command.h"

/* PUBLISH or FREE.  True: it is answered. */
bool plain_run(struct writer *w, uint32_t peer, uint64_t position, const struct staged *s);
/* The same of RESERVE, a sound group. */
bool plain_reserve(struct writer *w, uint32_t peer, uint64_t position,
		   const struct shm_command *cmd);

/* True: it is DYING, and in the open batch.  k: its key, in its space; for whom as of
 * retire_block(); counted in *sum. */
bool plain_retire(struct writer *w, uint32_t record, const struct probe_key *k, uint32_t owner,
		  uint64_t op, uint64_t *sum);
/* True: flush and grace period are over, and it is FREE. */
bool plain_arrive(struct writer *w, uint32_t record);

#endif
