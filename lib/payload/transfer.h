/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.h - copies under way: slots, values, and who is told at the end.
 *
 * A gpc_transfer is value << 6 | slot.  Slot i of the peer has `value` of the last one begun, in
 * private memory, and done[i] in the control segment, which the device stores (shm_transfer).
 *
 *   slot      private value   done[i]      the maps it holds   next
 *   --------  --------------  -----------  ------------------  ---------------------------------
 *   idle      v               v            none                begin: v + 1
 *   begun     v + 1           v            both                copies enqueued, then the mark; or the
 *                                                              mark alone, when a copy was refused
 *   marked    v + 1           v            both                the device stores v + 1
 *   done      v + 1           v + 1        both, until seen    transfer_sweep puts them: idle
 *   lost      v + 1           v            both, for ever      the device's context is lost: failed,
 *                                                              the slot is not used again
 *
 * Values are drawn from one counter of the handle, so that names grow: "v + 1" is the next one of all.
 * A slot whose mark was refused is lost, too: nobody will store its value.
 *
 * A new peer in the seat begins above what done[i] says, and above what any peer there can have given
 * out and not seen: values never go back.  A dead peer's copies have
 * ended when its process has exited, and its seat is taken only then. */
#ifndef GPC_PAYLOAD_TRANSFER_H
#define GPC_PAYLOAD_TRANSFER_H

#include "memory/map.h"

struct transfers;                        /* of a handle; c->transfers */

int transfer_open(gpc *c);               /* -ENOMEM; after map_open */
/* The map whose device copies between these two: a GPU's before the host's, the destination's
 * before the source's.  NULL: both are RAM. */
const struct map *transfer_device(const struct map *to, const struct map *from);
/* A slot, with both maps, whose holds go over to it: -EAGAIN, all are under way. */
int transfer_begin(gpc *c, struct map *to, struct map *from, uint32_t *ret_slot);
/* The word and the value that the device is to store behind the copies. */
uint64_t *transfer_word(gpc *c, uint32_t slot, uint64_t *ret_value);
/* All is enqueued, or err says what went wrong: the name.  marked: the mark is enqueued. */
gpc_transfer transfer_end(gpc *c, uint32_t slot, int err, bool marked);
/* Look at all slots; put the maps of those that are done. */
void transfer_sweep(gpc *c);
/* gpc_close: wait for all that a device still works on.  False: it may work on for ever. */
bool transfer_close_all(gpc *c);
void transfer_free(gpc *c);
void transfer_abandon(gpc *c);           /* in a forked child */

#endif
