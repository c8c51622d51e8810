/* SPDX-License-Identifier: Apache-2.0 */
/* outside.h - what the functions that look at a cache from outside have in common:
 * stats.c, walk.c, changes.c, check.c.  They write nothing into the segments, so they
 * disturb neither recency nor statistics, and they work on a read-only handle, whose
 * segments are a private copy (segment_snapshot) that each call reads anew. */
#ifndef GPC_OUTSIDE_H
#define GPC_OUTSIDE_H

#include "handle.h"

/* Checks the handle and takes its lock; a snapshot is read anew when `fresh`.  0, and
 * outside_end is due; or a negative errno. */
int outside_begin(gpc *c, bool fresh);
void outside_end(gpc *c);

/* An output struct that begins with its own size: -EINVAL when the size that the caller
 * set has no room for any field; outside_give copies what the caller has room for. */
int outside_room(const void *ret, const char *what);
void outside_give(void *ret, const void *from, uint32_t size);

/* Words that another process may store meanwhile: each is loaded once. */
void outside_copy(void *to, const void *from, size_t bytes);
/* A text from shared memory: bounded, and with its final 0. */
void outside_text(char *to, size_t room, const char *from, size_t bytes);

/* Does a process hold the writer's seat, that seat?  The kernel says so, not the
 * segment. */
bool outside_writer_alive(const struct segment *s);
bool outside_peer_alive(const struct segment *s, uint32_t peer);

/* A stable private copy of mirror descriptor i; false: there is none, or it is being
 * changed. */
bool outside_mirror(const struct segment *s, uint32_t i, struct shm_mirror *ret);

/* Pool p if it is READY: its first record and slots, both within the segment. */
struct pool_span {
	uint32_t first, slots;
};
struct pool_span outside_span(const struct segment *s, uint32_t pool);

/* The copy that gpc_walk made, if any: gpc_close calls it. */
void walk_free(gpc *c);

#endif
