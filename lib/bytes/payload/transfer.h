/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.h - copies under way: channels, values, and the wakes at the end.
 *
 * A gpc_transfer is value << 6 | channel.  Channel i of the peer has `value` of the last one begun, in
 * private memory, and done[i] in the control segment, which the device stores (shm_transfer).
 *
 *   channel   done[i]   what there is                           next
 *   --------  --------  --------------------------------------  ------------------------------------
 *   idle      any       nothing of it is under way              begin: the next value of the handle
 *   begun     before    a call is at work; it holds all maps    copies enqueued, then the mark: marked.
 *                                                               Nothing bound, nothing enqueued:
 *                                                               idle
 *   marked    before    the device will store the value         done; without a writer: idle
 *   done      value     the maps are put; the writer is to      over (shm_xfer.left is 0): idle
 *                       decide (index/writer/transfer.h)
 *   untold    before    the call has given its command up, and  answered: torn from 0, or idle when
 *                       the answer is still to come             it brought nothing
 *   torn      before    copies from entry `cut` of the command  what was enqueued has passed, by an
 *                       on are not whole, and never will be     event: CMD_CUT is sent: cutting
 *   cutting   before    CMD_CUT is under way                    answered: cut
 *   cut       before    what is still bound is whole            the mark, on the device's own stream:
 *                                                               marked.  Nothing is bound: idle
 *   lost      before    the device's context is lost, or a      never: the maps stay for ever, the channel
 *                       mark was refused: it has failed         is not used again
 *
 * `torn` is rule B3 for copies that the driver refused half way: some of their bytes may be on the
 * way to targets that are to be free, so the writer hears of it when they have landed, and the mark
 * comes last. The states from untold to cut go on by any call of the handle that looks, and by the
 * maps' thread.
 *
 * Of a transfer by ranks (shm_xfer.rank) nothing here is enqueued: it is marked at once, holds no
 * map, and ends when the writer says so.  Two more things use channels and have no writer:
 * gpc_release_after, whose blocks are released at done; and the mark of a rank, whose word is that
 * of the leader's page.
 *
 * Values are drawn from one counter of the handle, so that names grow.
 *
 * A new peer in the seat begins above what done[i] says, and above what any peer there can have
 * given out and not seen: values never go back.  A dead peer's copies have ended when its process
 * has exited, and its seat is taken only then. */
#ifndef GPC_PAYLOAD_TRANSFER_H
#define GPC_PAYLOAD_TRANSFER_H

#include "bytes/mapping/map.h"

struct transfers; /* of a handle; c->transfers */

int transfer_open(gpc *c); /* -ENOMEM; after map_open */
/* The map whose device copies between these two: a GPU's before the host's, the destination's
 * before the source's.  NULL: both are RAM. */
const struct map *transfer_device(const struct map *to, const struct map *from);
/* A channel, with both maps, whose holds go over to it: -EAGAIN, all are under way. */
int transfer_begin(gpc *c, struct map *to, struct map *from, uint32_t *ret_slot);
/* The same for any number of maps, or none. */
struct transfer_take {
	/* that copies, with its uuid; NULL: our threads, ranks */
	const struct device_bytes *device;
	const uint8_t *uuid;
	struct map *const *map;
	uint32_t nmaps;
	bool commits; /* the writer does */
};
int transfer_take(gpc *c, const struct transfer_take *start, uint32_t *ret_slot);
/* Nothing of it was bound or enqueued: idle again.  The maps are put. */
void transfer_drop(gpc *c, uint32_t channel);
/* The word and the value that the device is to store behind the copies. */
uint64_t *transfer_word(gpc *c, uint32_t channel, uint64_t *ret_value);
/* All is enqueued, or err says what went wrong: the name.  marked: the mark is enqueued. */
gpc_transfer transfer_end(gpc *c, uint32_t channel, int err, bool marked);
/* Look at all channels that are under way, and let each go on as far as it can now. */
void transfer_sweep(gpc *c);
/* gpc_close: wait for all that a device still works on.  False: it may work on for ever. */
bool transfer_close_all(gpc *c);
void transfer_free(gpc *c);
void transfer_abandon(gpc *c); /* in a forked child */

#endif
