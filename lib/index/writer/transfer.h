/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.h - moves that the writer commits when a device has reported the end of their copies.
 *
 * A transfer is (seat, channel, value), and the DEMOTE or PROMOTE that binds its targets names
 * it.  A target is a RESERVED record whose owner is that seat and whose op is one of that
 * command's.  The peer gives the copies to a stream, and behind them the store of the value to
 * done[channel] of its page.  Where ranks copy, each rank stores the value to rank[channel][i]
 * instead.  The writer looks at these words, and commits or refuses.
 *
 *   transfer    shared memory                        moved by          a successor
 *   ----------  -----------------------------------  ----------------  ---------------------------------
 *   over        xfer.left is 0                       the peer's next   does nothing
 *   bound,      targets are RESERVED with a source,  the writer        frees the targets, and runs the
 *   unanswered  the command has no answer                              command again
 *   bound,      the same, the command is answered    the device, by    counts `left`, pins the sources,
 *   answered                                         done              and looks at done
 *   stale       the source is DYING, or in another   drop, clear, or   waits for done, then refuses.  The
 *               life                                 the end of the    source and its pool are not FREE
 *                                                    pool              before
 *   cut         a target is RESERVED, no source      CUT, or the       waits for done, then refuses
 *                                                    owner's death
 *   deciding    done is the value (of each rank);    the writer        handles LIVE with a source as after
 *               some targets are LIVE or DYING                         any commit, and decides the rest
 *   refused     the target is DYING                  the writer        frees it when row and pins are zero
 *   lost        the target is DYING, quarantined     the reaper        frees it when the process has exited
 *   waits for   the owner is dead, ranks that live   the ranks, by     does the same: the owner's seat
 *   ranks       have not all said done; targets are  done or by their  stays taken until they have
 *               RESERVED without source              death
 *
 * Rules, each with the hole that it closes:
 *
 *   B1   The value is stored before the first target is bound, so a successor can tell whose done
 *        counts.
 *   B2   A channel carries one transfer until left is 0.  The values of a seat grow for ever, and the
 *        seat of a dead peer is free only when its process has exited: so a late store never says
 *        done for another transfer.
 *   B3   A copy that was not enqueued is CUT, and the answer awaited, before done is enqueued: so
 *        done stands for all that is still bound.
 *   B4   Nobody but a device stores done.
 *   B5   Only done, the death of its owner or CUT changes the state of a bound target.  Any other
 *        event takes its source away, and nothing else.
 *   B6   A bound source is pinned: it is no victim, and it is not FREE.  Copies may share a source; a
 *        no other move has its source.
 *   B7   A refused target becomes DYING, never FREE at once: its owner may hold it by a cell.
 *   B8   When a peer dies, its done words are looked at once.  A transfer that is done commits, the
 *        all other targets are quarantined; then the cells and pins of the peer go.
 *   B10  A commit compares the source's word, too.
 *   B17  Where ranks copy, each rank must say done.  If a rank dies before it has, the transfer is
 *        lost.  Its targets are free when every rank has said done or its process has exited.
 *   B18  A peer has at most SHM_TRANSFERS transfers.  The writer looks at old ones less often, and
 *        they hold up no ring.
 *
 * The cell of a target's owner is 0, or a number of references: a fetch raises it before it
 * enqueues done (rule B7).  The reservation is the transfer's, and no command of the peer ends
 * it.  PUBLISH, FREE and COMMIT of such a target answer -EPERM, -EPERM and -ESTALE. */
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
/* A process has exited: as a rank of another peer that did not pass, it is SHM_RANK_GONE. */
void transfer_rank_gone(struct writer *w, uint32_t peer);
/* The same, before its seat is free: false, ranks still copy for one of its transfers, come
 * again. */
bool transfer_leave_seat(struct writer *w, uint32_t peer);
/* Takeover: does struct shm_xfer name this record, RESERVED?  When all are scanned and sources are
 * pinned: the rest. */
bool transfer_names(struct writer *w, uint32_t record);
void transfer_load(struct writer *w);

#endif
