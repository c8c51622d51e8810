/* SPDX-License-Identifier: Apache-2.0 */
/* inspect.h - what the functions that look at a cache from outside have in common:
 * inspect/stats.c, walk.c, inspect/events.c, check.c.  They write nothing into the segments, so they
 * disturb neither recency nor statistics.
 *
 * A read-only handle maps nothing.  What the pages in front of the table and the rings tell
 * (state, pools, mirrors, tallies, seats, sections) is read by pread each time, exactly the
 * bytes that are asked for, so it is of the present and costs the same in a cache of any
 * size.  What needs table or records works on a private copy (segment_refresh) that the
 * first such call makes.
 *
 * Between two reads others go on.  A fetch copies each word once, in no order; a function
 * that needs words of one moment reads those that say which moment it was, fetches, and
 * reads them again. */
#ifndef GPC_OUTSIDE_H
#define GPC_OUTSIDE_H

#include "peer/handle.h"

/* Checks the handle and takes its lock; the copy of a read-only handle is made if there is
 * none, and made anew when `fresh`.  0, and inspect_end is due; or a negative errno: -EBADMSG
 * when the copy is not whole, for zeros would look like an empty cache. */
int inspect_begin(gpc *c, bool fresh);
void inspect_end(gpc *c);
/* The copy of a read-only handle, for lookups: 0, or a negative errno. */
int outside_need_copy(gpc *c);

/* What stands there now: from the mapping, or by pread.  Multiples of 8 bytes. */
void outside_index(const struct segment *s, uint64_t at, void *to, size_t bytes);
void outside_control(const struct segment *s, uint64_t at, void *to, size_t bytes);
void outside_state(const struct segment *s, struct shm_state *ret);
/* One READY description of that pool; false: there is none, or it changes all the time. */
bool outside_pool(const struct segment *s, uint32_t pool, struct shm_pool *ret);
uint32_t outside_seat_state(const struct segment *s, uint32_t peer);
/* Blocks of a pool that the seat's owner holds; an empty seat holds none. */
uint32_t outside_held(const struct segment *s, uint32_t peer, uint32_t pool);

/* Who sits there, and what is counted for it, all of one owner of the seat. */
struct outside_peer {
	struct shm_seat seat;            /* up to `in_use` */
	uint32_t nsections;
	struct shm_section section[SHM_SECTIONS];
	struct shm_tally tally;
	bool alive;                      /* the kernel says so */
};
/* own: the seat of the handle that asks, or SHM_NO_PEER: a lock never conflicts with its own
 * description.  false: the seat is empty. */
bool outside_peer(const struct segment *s, uint32_t peer, uint32_t own,
		  struct outside_peer *ret);

/* An output struct that begins with its own size: -EINVAL when the size that the caller
 * set has no room for any field; inspect_give copies what the caller has room for. */
int inspect_room(const void *ret, const char *what);
void inspect_give(void *ret, const void *from, uint32_t size);

/* Words that another process may store meanwhile: each is loaded once. */
void inspect_copy(void *to, const void *from, size_t bytes);
/* A text from shared memory: bounded, and with its final 0. */
void inspect_text(char *to, size_t room, const char *from, size_t bytes);

/* Does a process hold the writer's seat, that seat?  The kernel says so, not the
 * segment. */
bool segment_writer_alive(const struct segment *s);
bool segment_peer_alive(const struct segment *s, uint32_t peer);

/* A stable private copy of mirror descriptor i as it is now; false: there is none, or it is
 * being changed. */
bool descriptor_read(const struct segment *s, uint32_t i, struct shm_mirror *ret);

/* Pool p if it is READY: its first record and slots, both within the segment. */
struct pool_span {
	uint32_t first, slots;
};
struct pool_span inspect_span(const struct segment *s, uint32_t pool);

/* The copy that gpc_walk made, if any: gpc_close calls it. */
void walk_free(gpc *c);

#endif
