/* SPDX-License-Identifier: Apache-2.0 */
/* inspect.c - what stands in the segments, read from outside: by pread, or from the mappings of a
 * live handle; inspect.h says why. */
#include "config.h"

#include "inspect/inspect.h"

#include "segment/lockfile.h"

#include <errno.h>
#include <string.h>

#define STABLE_TRIES 64 /* of a copy that a writer may be changing */

int inspect_begin(gpc *c, bool fresh)
{
	int err = handle_check(c, false);

	if (err)
		return err;
	/* A live handle reads its mappings and needs no lock, but a snapshot's copy is
	 * one for all threads, and so is the copy of a walk. */
	pthread_mutex_lock(&c->walk_lock);
	if (c->seg.snapshot && (fresh || !c->seg.control))
		err = segment_refresh(&c->seg);
	if (!err)
		err = segment_check_copies(&c->seg);
	if (err)
		pthread_mutex_unlock(&c->walk_lock);
	return err;
}

int outside_need_copy(gpc *c)
{
	int err = inspect_begin(c, false);

	if (!err)
		inspect_end(c);
	return err;
}

void inspect_end(gpc *c)
{
	pthread_mutex_unlock(&c->walk_lock);
}

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

void inspect_copy(void *to, const void *from, size_t bytes)
{
	const uint64_t *src = from;
	uint64_t *dst = to;
	size_t i;

	for (i = 0; i < bytes / sizeof(*src); i++)
		dst[i] = load_relaxed(&src[i]);
}

void inspect_text(char *to, size_t room, const char *from, size_t bytes)
{
	size_t n = strnlen(from, MIN(bytes, room - 1));

	memcpy(to, from, n);
	memset(to + n, 0, room - n);
}

bool segment_writer_alive(const struct segment *s)
{
	return s->lock_fd >= 0 && lock_test(s->lock_fd, LOCK_WRITER) == 1;
}

bool segment_peer_alive(const struct segment *s, uint32_t peer)
{
	return s->lock_fd >= 0 && lock_test(s->lock_fd, LOCK_PEER(peer)) == 1;
}

/* ---- what stands there now ---- */

void outside_index(const struct segment *s, uint64_t at, void *to, size_t bytes)
{
	if (s->snapshot)
		segment_read(s->index_fd, at, to, bytes);
	else
		inspect_copy(to, s->index + at, bytes);
}

void outside_control(const struct segment *s, uint64_t at, void *to, size_t bytes)
{
	if (s->snapshot)
		segment_read(s->control_fd, at, to, bytes);
	else
		inspect_copy(to, s->control + at, bytes);
}

void outside_state(const struct segment *s, struct shm_state *ret)
{
	outside_index(s, s->at.state, ret, sizeof(*ret));
}

/* Its writer stores state and generation last (Q), and a description changes only after its
 * state has: what is the same READY and generation before and after is one description. */
bool outside_pool(const struct segment *s, uint32_t pool, struct shm_pool *ret)
{
	uint64_t at = s->at.pool + (uint64_t)pool * sizeof(*ret);
	struct { uint32_t state, generation; } before, after;
	uint32_t tries;

	for (tries = 0; tries < STABLE_TRIES; tries++) {
		outside_index(s, at, &before, sizeof(before));
		order_fence();
		outside_index(s, at, ret, sizeof(*ret));
		order_fence();
		outside_index(s, at, &after, sizeof(after));
		if (before.state != POOL_READY || after.state != POOL_READY)
			return false;
		if (before.generation == after.generation &&
		    ret->generation == after.generation)
			return true;
	}
	return false;
}

static uint64_t seat_at(const struct segment *s, uint32_t peer)
{
	return s->at.seat + (uint64_t)peer * sizeof(struct shm_seat);
}

uint32_t outside_seat_state(const struct segment *s, uint32_t peer)
{
	struct { uint32_t state, incarnation; } seat;

	if (!s->snapshot)
		return load_acquire(&seg_seat(s, peer)->state);
	segment_read(s->control_fd, seat_at(s, peer), &seat, sizeof(seat));
	return seat.state;
}

uint32_t outside_held(const struct segment *s, uint32_t peer, uint32_t pool)
{
	uint64_t at = seat_at(s, peer) + offsetof(struct shm_seat, in_use);
	uint32_t held;

	if (outside_seat_state(s, peer) == SEAT_FREE)
		return 0;
	if (!s->snapshot)
		return load_relaxed(&seg_seat(s, peer)->in_use[pool]);
	segment_read(s->control_fd, at + pool * sizeof(held), &held, sizeof(held));
	return held;
}

static bool same_owner(const struct shm_seat *a, const struct shm_seat *b)
{
	return a->incarnation == b->incarnation && a->pid == b->pid &&
	       a->start_time == b->start_time && a->namespaces == b->namespaces &&
	       a->attached_ns == b->attached_ns &&
	       !memcmp(a->label, b->label, sizeof(a->label));
}

/* Every owner has an incarnation of its own, stores it before it is TAKEN (a), and what it leaves
 * is cleared before the seat is FREE (S): between two looks at the same owner nobody else sat
 * there.  Its state is of the second look, which comes after the look at the lock: a process
 * stores LEFT before its lock goes. */
bool outside_peer(const struct segment *s, uint32_t peer, uint32_t own,
		  struct outside_peer *ret)
{
	enum { SEAT_OWNER = offsetof(struct shm_seat, head),
	       SEAT_LINES = offsetof(struct shm_seat, in_use) };
	uint64_t sections = s->at.section + (uint64_t)peer * sizeof(ret->section);
	uint64_t tally = s->at.tally + (uint64_t)peer * sizeof(ret->tally);
	struct shm_seat after;
	uint32_t tries;

	for (tries = 0; tries < STABLE_TRIES; tries++) {
		outside_control(s, seat_at(s, peer), &ret->seat, SEAT_LINES);
		if (ret->seat.state == SEAT_FREE)
			return false;
		order_fence();
		ret->nsections = MIN(ret->seat.sections, SHM_SECTIONS);
		outside_control(s, sections, ret->section,
				ret->nsections * sizeof(ret->section[0]));
		outside_index(s, tally, &ret->tally, sizeof(ret->tally));
		ret->alive = peer == own || segment_peer_alive(s, peer);
		order_fence();
		outside_control(s, seat_at(s, peer), &after, SEAT_OWNER);
		ret->seat.state = after.state;
		if (after.state == SEAT_FREE)
			return false;
		if (same_owner(&ret->seat, &after))
			return true;
	}
	return true;                     /* scribbled over all the time: as good as any */
}

/* The two of a mirror by which a copy of it is judged. */
struct mirror_life { uint32_t state, generation; };

static struct mirror_life mirror_life(const struct segment *s, uint32_t i)
{
	struct mirror_life now;

	if (s->snapshot) {
		segment_read(s->index_fd, s->at.mirror + i * sizeof(struct shm_mirror), &now,
			     sizeof(now));
		return now;
	}
	/* pairs with (W), (U) of mirror.c: a state that says there is one, and behind it the
	 * generation and the other fields */
	now.state = load_acquire(&seg_mirror(s, i)->state);
	now.generation = load_acquire(&seg_mirror(s, i)->generation);
	return now;
}

bool descriptor_read(const struct segment *s, uint32_t i, struct shm_mirror *ret)
{
	struct mirror_life before, after;
	uint32_t tries;

	for (tries = 0; tries < STABLE_TRIES; tries++) {
		before = mirror_life(s, i);
		if (before.state != MIRROR_READY && before.state != MIRROR_RETIRED)
			return false;
		outside_index(s, s->at.mirror + i * sizeof(*ret), ret, sizeof(*ret));
		order_fence();
		/* while fields change the state is NONE, and when it is READY again the
		 * generation is another one: so the state is looked at first */
		after = mirror_life(s, i);
		if (after.state != before.state || after.generation != before.generation)
			continue;
		ret->state = after.state;
		ret->generation = after.generation;
		return true;
	}
	return false;
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
