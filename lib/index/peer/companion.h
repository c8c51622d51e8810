/* SPDX-License-Identifier: Apache-2.0 */
/* companion.h - peers that read and write what another peer holds.
 *
 * In many engines one process holds blocks and other processes write them.  A companion is a peer
 * with a seat and a lock of its own, whose seat names the life of its leader.  Blocks that the
 * leader holds are given to other peers only when the leader's life is over and no companion of that
 * life is left:
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
 * Seats and cells have all of this, so a successor needs nothing else of its predecessor.  The
 * life that ends is marked before companions are looked for, and a companion looks for that mark
 * once its seat is TAKEN: so one of the two sees the other (rule S6, t/model/companion.pml). */
#ifndef GPC_COMPANION_H
#define GPC_COMPANION_H

#include "index/base/base.h"

struct segment;
struct shm_seat;

/* The life of the seat's present or last peer, never 0.  A seat has each number once.  The number
 * contains the time, which keeps apart caches of one name that follow each other. */
uint64_t companion_life(const struct shm_seat *seat);
/* May a seat that names this life of `leader` count?  0: it may.  -ESTALE: that life is over.
 * -EINVAL: the leader is a companion itself.  It is called before the seat is taken, and again
 * afterwards. */
int companion_may(const struct segment *s, uint32_t leader, uint64_t life);
/* Does a companion of the present life of `leader` live?  lock_fd: a description of the lock file
 * by which none of the companions' bytes is locked. */
bool companion_lives(const struct segment *s, int lock_fd, uint32_t leader);
/* The present life of `leader` ends.  The holder of the leader's lock calls it.  True: companions
 * are left, and a later look may find none. */
bool companion_end_life(const struct segment *s, int lock_fd, uint32_t leader);

#endif
