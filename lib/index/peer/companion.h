/* SPDX-License-Identifier: Apache-2.0 */
/* companion.h - peers that read and write what another peer holds.
 *
 * In many engines one process holds blocks and others write them.  A companion is a peer with a
 * seat and a lock of its own, whose seat names the life of its leader.  What the leader holds is
 * given to others only when the leader's life is over and no companion of that life is left:
 *
 *   leader                     companions  its seat  cells, blocks                     a companion may come
 *   -------------------------  ----------  --------  --------------------------------
 *   --------------------
 *   lives                      any         TAKEN     its own                           yes
 *   lost (index/writer/reap.c)       any         TAKEN     reservations DYING, quarantined;  no: `ended`
 *                                                    cells as they are
 *   gone, or LEFT              some        as it is  reservations DYING; cells as      no
 *                                                    they are, so no block is FREE
 *   gone, or LEFT              none        FREE      zero, then FREE                   no: another life
 *
 * Seats and cells say all of it, so a successor goes on without any word of its predecessor.  The
 * life that ends is marked before companions are looked for, and a companion looks for that mark
 * when its seat counts: one of the two sees the other (rule S6, t/model/companion.pml). */
#ifndef GPC_COMPANION_H
#define GPC_COMPANION_H

#include "index/base/base.h"

struct segment;
struct shm_seat;

/* Of the present or last peer of the seat.  Never 0.  A seat has each number once; the time keeps
 * caches of one name apart, one after the other. */
uint64_t companion_life(const struct shm_seat *seat);
/* May a seat that names this life of `leader` count?  0, -ESTALE: that life is over, -EINVAL: a
 * companion leads nobody.  Asked before the seat is taken, and again after it. */
int companion_may(const struct segment *s, uint32_t leader, uint64_t life);
/* Does a companion of the present life of `leader` live?  lock_fd: a description of the lock file
 * that has none of their bytes. */
bool companion_lives(const struct segment *s, int lock_fd, uint32_t leader);
/* The present life of `leader` ends; by the holder of its lock.  True: companions are left, now
 * or until a later look. */
bool companion_end_life(const struct segment *s, int lock_fd, uint32_t leader);

#endif
