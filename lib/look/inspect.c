/* SPDX-License-Identifier: Apache-2.0 */
/* inspect.c - the process on a seat, the place of a pool, and output structs that grow.
 * Tests: t/look/feed-walk.t */
#include "config.h"

#include <errno.h>
#include <string.h>
#include "look/inspect.h"
#include "index/segment/lockfile.h"

#define STABLE_TRIES 64 /* tries of a copy that a writer may be changing */

int inspect_room(const void *ret, const char *what)
{
	uint32_t size;

	if (!ret)
		return err_set(EINVAL, "ret is NULL");
	memcpy(&size, ret, sizeof(size));
	return err_size(what, size, 2 * sizeof(size));
}

void inspect_give(void *ret, const void *from, uint32_t size)
{
	uint32_t room;

	memcpy(&room, ret, sizeof(room));
	memcpy((char *)ret + sizeof(room), (const char *)from + sizeof(room),
	       MIN(room, size) - sizeof(room));
}

static uint64_t seat_at(const struct segment *s, uint32_t peer)
{
	return s->at.seat + (uint64_t)peer * sizeof(struct shm_seat);
}

static bool same_owner(const struct shm_seat *a, const struct shm_seat *b)
{
	return a->incarnation == b->incarnation && a->pid == b->pid &&
	       a->start_time == b->start_time && a->namespaces == b->namespaces &&
	       a->attached_ns == b->attached_ns && !memcmp(a->label, b->label, sizeof(a->label));
}

/* Every owner has an incarnation of its own, stores it before TAKEN (a), and its state is cleared
 * before FREE (S).  So two looks that see the same owner see no other one between.  Its state is
 * that of the second look, which comes after the look at the lock: a process stores LEFT before
 * its lock goes. */
bool inspect_peer(const struct segment *s, uint32_t peer, uint32_t own, struct inspect_peer *ret)
{
	enum {
		SEAT_OWNER = offsetof(struct shm_seat, head),
		SEAT_LINES = offsetof(struct shm_seat, pad4)
	};
	uint64_t sections = s->at.section + (uint64_t)peer * sizeof(ret->section);
	uint64_t tally = s->at.tally + (uint64_t)peer * sizeof(ret->tally);
	struct shm_seat after;
	uint32_t tries;

	for (tries = 0; tries < STABLE_TRIES; tries++) {
		seg_peek_control(s, seat_at(s, peer), &ret->seat, SEAT_LINES);
		if (ret->seat.state == SEAT_FREE)
			return false;
		order_fence();
		ret->nsections = MIN(ret->seat.sections, SHM_SECTIONS);
		seg_peek_control(s, sections, ret->section,
				 ret->nsections * sizeof(ret->section[0]));
		seg_peek_index(s, tally, &ret->tally, sizeof(ret->tally));
		ret->alive = peer == own || segment_peer_alive(s, peer);
		order_fence();
		seg_peek_control(s, seat_at(s, peer), &after, SEAT_OWNER);
		ret->seat.state = after.state;
		if (after.state == SEAT_FREE)
			return false;
		if (same_owner(&ret->seat, &after))
			return true;
	}
	return true; /* it is scribbled over all the time, so this is as good as any */
}

struct pool_span inspect_span(const struct segment *s, uint32_t pool)
{
	const struct shm_geometry *g = &s->header.geometry;
	struct pool_set live = pool_live(s);
	struct pool_span span = { 0, 0 };
	uint64_t range;

	if (pool >= g->max_pools || !pool_set_has(&live, pool))
		return span;
	range = load_relaxed(&seg_pool(s, pool)->range);
	span.first = (uint32_t)(range >> 32);
	if (span.first >= g->max_blocks)
		return span;
	span.slots = MIN((uint32_t)range, g->max_blocks - span.first);
	span.slots = MIN(span.slots, 1u << 24);
	return span;
}
