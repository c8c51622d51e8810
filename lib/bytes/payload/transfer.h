/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.h - copies under way: channels, values, and the wakes at the end.
 *
 * A gpc_transfer is value << 6 | channel.  Channel i of the peer has in private memory the `value`
 * of the transfer that was begun last.  In the control segment it has done[i], which the device
 * stores (shm_transfer).
 *
 *   channel   done[i]   meaning                                 next
 *   --------  --------  --------------------------------------  ------------------------------------
 *   idle      any       nothing is under way                    begin, with the next value of the
 *                                                               handle: begun
 *   begun     before    a call is at work, and holds all maps   the copies are enqueued, then the
 *                                                               mark: marked.  If nothing is bound
 *                                                               or enqueued: idle
 *   marked    before    the device will store the value         done; without a writer: idle
 *   done      value     the maps are given back; the writer     over (shm_xfer.left is 0): idle
 *                       decides (index/writer/transfer.h)
 *   untold    before    the call has given up its command, and  the answer: torn from 0; if it brought
 *                       the answer is still to come             nothing: idle
 *   torn      before    copies from entry `cut` of the command  an event says that the enqueued copies
 *                       on are not whole, and never will be     have passed; CMD_CUT is sent: cutting
 *   cutting   before    CMD_CUT is under way                    the answer: cut
 *   cut       before    all blocks that are still bound are     the mark, on the device's own stream:
 *                       whole                                   marked.  If nothing is bound: idle
 *   lost      before    the device's context is lost, or a      none: the maps stay for ever, and the
 *                       mark was refused: it has failed         channel is not used again
 *
 * The state `torn` is rule B3 for copies that the driver refused half way.  Some of their bytes
 * may be on the way to targets that are to be free.  So the writer hears of it when the bytes have
 * arrived, and the mark comes last.  In the states from untold to cut, any call of the handle that
 * looks takes the next step, and so does the maps' thread.
 *
 * For a transfer by ranks (shm_xfer.rank) nothing is enqueued here.  It is marked at once, holds
 * no map, and ends when the writer says so.  Two more things use channels, without the writer:
 * gpc_release_after, whose blocks are released at done; and the mark of a rank, whose word is in
 * the leader's page.
 *
 * Values come from one counter of the handle, so that names grow.
 *
 * A new peer in the seat begins above the value of done[i], and above any value that an earlier
 * peer there can have given out without seeing it done: values never go back.  A dead peer's
 * copies have ended when its process has exited, and its seat is taken only then. */
#ifndef GPC_PAYLOAD_TRANSFER_H
#define GPC_PAYLOAD_TRANSFER_H

#include "bytes/mapping/map.h"

struct transfers; /* of a handle; c->transfers */

int transfer_open(gpc *c); /* -ENOMEM; called after map_open */
/* The map whose device copies between these two: a GPU's rather than the host's, and the
 * destination's rather than the source's.  NULL: both are RAM. */
const struct map *transfer_device(const struct map *to, const struct map *from);
/* Take a channel, with both maps, whose holds go to it.  -EAGAIN: all channels are in use. */
int transfer_begin(gpc *c, struct map *to, struct map *from, uint32_t *ret_slot);
/* The same for any number of maps, or none. */
struct transfer_take {
	/* the device that copies, with its uuid; NULL: our threads, or ranks */
	const struct device_bytes *device;
	const uint8_t *uuid;
	struct map *const *map;
	uint32_t nmaps;
	bool commits; /* the writer commits it */
};
int transfer_take(gpc *c, const struct transfer_take *start, uint32_t *ret_slot);
/* Nothing was bound or enqueued: the channel is idle again, and the maps are given back. */
void transfer_drop(gpc *c, uint32_t channel);
/* The word and the value that the device is to store behind the copies. */
uint64_t *transfer_word(gpc *c, uint32_t channel, uint64_t *ret_value);
/* All is enqueued, or err says what failed.  Returns the name.  marked: the mark is enqueued. */
gpc_transfer transfer_end(gpc *c, uint32_t channel, int err, bool marked);
/* Look at all channels that are under way, and let each go on as far as it can now. */
void transfer_sweep(gpc *c);
/* gpc_close: wait until the devices have ended all work.  False: a device may work on for ever. */
bool transfer_close_all(gpc *c);
void transfer_free(gpc *c);
void transfer_abandon(gpc *c); /* in a forked child */

#endif
