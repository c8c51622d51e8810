/* SPDX-License-Identifier: Apache-2.0 */
/* inspect.h - declarations that the sources of look/ share.  They look at a cache from outside.
 * They write nothing into the segments, so recency and statistics stay as they are.
 *
 * The pages in front of the table and the rings (state, pools, mirrors, tallies, seats, sections)
 * are read as they are now: index/segment/peek.h.  Calls that need the table or records of a
 * read-only handle work on its copy: handle_copy_begin() in index/peer/handle.h. */
#ifndef GPC_INSPECT_H
#define GPC_INSPECT_H

#include "index/peer/handle.h"
#include "index/segment/peek.h"

/* The process on a seat, and its counters; all of them are of one owner of the seat. */
struct inspect_peer {
	struct shm_seat seat; /* copied up to `in_use` */
	uint32_t nsections;
	struct shm_section section[SHM_SECTIONS];
	struct shm_tally tally;
	bool alive; /* the kernel says so */
};
/* own: the seat of the handle that asks, or SHM_NO_PEER.  A lock never conflicts with its
 * own description, so the caller names the seat.  False: the seat is empty. */
bool inspect_peer(const struct segment *s, uint32_t peer, uint32_t own, struct inspect_peer *ret);

/* For an output struct that begins with its own size.  -EINVAL: the size that the caller set has
 * no room for any field.  inspect_give() copies as much as the caller has room for. */
int inspect_room(const void *ret, const char *what);
void inspect_give(void *ret, const void *from, uint32_t size);

/* Pool p if it is READY: its first record and slots, both within the segment. */
struct pool_span {
	uint32_t first, slots;
};
struct pool_span inspect_span(const struct segment *s, uint32_t pool);

/* The copy that gpc_walk made, if any: gpc_close calls it. */
void walk_free(gpc *c);

#endif
