/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.h - moves that the writer commits when a device has reported the end of their copies.
 *
 * A transfer is (seat, channel, value), named in the DEMOTE or PROMOTE that binds its targets: a
 * target is a RESERVED record whose owner is that seat and whose op is one of that command's.  The
 * peer gives the copies to a stream, and behind them the store of the value to done[channel] of its
 * page, or, where ranks copy, to rank[channel][i] by each of them.  The writer looks at these words,
 * and commits or refuses.
 *
 *   transfer    shared memory                        moved by          what a successor does
 *   ----------  -----------------------------------  ----------------
 *   ---------------------------------
 *   over        xfer.left = 0                        the peer's next   nothing
 *   bound       targets RESERVED with a source,      writer            the targets are FREE, and the
 *   untold      the command has no answer                              command runs again
 *   bound       the same, answered                   device: done      counts `left`, pins sources, looks
 *   stale       the source DYING or of another life  drop, clear, a    waits for done: refused.  The source
 *                                                    pool that goes    is not FREE, nor its pool, before
 *   cut         a target RESERVED without source     CUT, the death    waits for done: refused
 *                                                    of an owner
 *   deciding    done == value (every rank's); some   writer            LIVE with a source: goes on as after
 *               targets LIVE or DYING already                          any commit; the rest: decides
 *   refused     the target DYING                     writer            frees it when row and pins are zero
 *   lost        the target DYING and quarantined     reaper            frees it when the process has exited
 *   waits for   owner dead, ranks that live have     ranks: done, or   the same: the owner's seat stays taken
 *   ranks       not all said done; targets           death             until they have
 *               RESERVED without source
 *
 * Rules, each with the hole that it closes:
 *
 *   B1   the value is stored before the first target is bound: a successor can tell whose done counts
 *   B2   a channel carries one transfer until left is 0; values of a seat grow for ever, and the seat of a dead
 *        peer is free only when its process has exited: a late store never says done for another
 *        one
 *   B3   a copy that was not enqueued is CUT, and the answer awaited, before done is enqueued: done
 *        stands for all that is still bound
 *   B4   nobody but a device stores done
 *   B5   a bound target changes its state at done, at its owner's death, or by CUT; all else takes its
 *        source away only
 *   B6   a bound source is pinned: it is no victim, and it is not FREE.  Copies share a source, a move has
 *        it alone
 *   B7   a refused target goes DYING, never FREE: its owner may hold it by a cell
 *   B8   at death: look once; commit if done; quarantine the rest; then cells and pins go
 *   B10  a commit compares the source's word, too
 *   B17  of ranks each must say done; a transfer is lost when one of them has died without, and its
 *   targets are
 *        free when every rank has said done or its process has exited
 *   B18  a peer has at most SHM_TRANSFERS; the writer looks at old ones less often; they hold up no
 *   ring
 *
 * The cell of a target's owner is 0, or a number of references (a fetch raises it before it
 * enqueues done, rule B7): the reservation is the transfer's, and no command of the peer ends it.
 * PUBLISH, FREE and COMMIT of such a target answer -EPERM, -EPERM and -ESTALE. */
#ifndef GPC_WRITER_TRANSFER_H
#define GPC_WRITER_TRANSFER_H

#include "index/table/state.h"

/* The channel of a group's head may carry this transfer: 0; or -EALREADY, -EINVAL.  Stores value and
 * op (B1). */
int32_t transfer_start(struct writer *w, uint32_t peer, uint64_t position,
		       const struct shm_command *cmd);
/* The target of entry `at` of the group is bound. */
void transfer_bound(struct writer *w, uint32_t peer, uint64_t position, uint32_t at,
		    uint32_t record);
/* The group is about to be answered: its targets are bound.  None is: it is over. */
void transfer_told(struct writer *w, uint32_t peer, uint64_t position);
int32_t transfer_cut(struct writer *w, uint32_t peer, const struct shm_command *cmd);
/* Decide the transfers that are done.  Cheap when none is under way. */
void transfer_poll(struct writer *w);
/* Before commands of a peer, which may have been sent since its device said done: decide finished
 * transfers. True: some was done, which is decided now or waits for a bucket, so a command that
 * missed it runs again. Not needed where wpeer.told is 0. */
bool transfer_settle(struct writer *w, uint32_t peer);
/* When to look again, if nobody rings: clock_ns, or UINT64_MAX. */
uint64_t transfer_next_look(const struct writer *w);
/* A peer is dead: false, a decision waits for a bucket, come again; true, nothing of it is left but
 * what is quarantined, and what other ranks still copy. */
bool transfer_reap(struct writer *w, uint32_t peer);
/* A process has exited: where it was a rank of others and did not pass, it is SHM_RANK_GONE. */
void transfer_rank_gone(struct writer *w, uint32_t peer);
/* The same, before its seat is free: false, ranks still copy for one of its transfers, come
 * again. */
bool transfer_leave_seat(struct writer *w, uint32_t peer);
/* Takeover: does struct shm_xfer name this record, RESERVED?  When all are scanned and sources are
 * pinned: the rest. */
bool transfer_names(struct writer *w, uint32_t record);
void transfer_load(struct writer *w);
void transfer_free_all(struct writer *w);

#endif
