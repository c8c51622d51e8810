/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "outside.h"

#include "lockfile.h"

#include <errno.h>
#include <string.h>

#define STABLE_TRIES 64 /* of a copy that a writer may be changing */

int outside_begin(gpc *c, bool fresh)
{
	int err = handle_check(c, false);

	if (err)
		return err;
	/* A live handle reads its mappings and needs no lock, but a snapshot is one
	 * buffer for all threads, and so is the copy of a walk. */
	pthread_mutex_lock(&c->walk_lock);
	if (fresh && c->seg.snapshot)
		err = segment_refresh(&c->seg);
	if (err)
		pthread_mutex_unlock(&c->walk_lock);
	return err;
}

void outside_end(gpc *c)
{
	pthread_mutex_unlock(&c->walk_lock);
}

int outside_room(const void *ret, const char *what)
{
	uint32_t size;

	if (!ret)
		return err_set(EINVAL, "ret is NULL");
	memcpy(&size, ret, sizeof(size));
	return err_size(what, size, 2 * sizeof(size));
}

void outside_give(void *ret, const void *from, uint32_t size)
{
	uint32_t room;

	memcpy(&room, ret, sizeof(room));
	memcpy((char *)ret + sizeof(room), (const char *)from + sizeof(room),
	       MIN(room, size) - sizeof(room));
}

void outside_copy(void *to, const void *from, size_t bytes)
{
	const uint64_t *src = from;
	uint64_t *dst = to;
	size_t i;

	for (i = 0; i < bytes / sizeof(*src); i++)
		dst[i] = load_relaxed(&src[i]);
}

void outside_text(char *to, size_t room, const char *from, size_t bytes)
{
	size_t n = strnlen(from, MIN(bytes, room - 1));

	memcpy(to, from, n);
	memset(to + n, 0, room - n);
}

bool outside_writer_alive(const struct segment *s)
{
	return s->lock_fd >= 0 && lock_test(s->lock_fd, LOCK_WRITER) == 1;
}

bool outside_peer_alive(const struct segment *s, uint32_t peer)
{
	return s->lock_fd >= 0 && lock_test(s->lock_fd, LOCK_PEER(peer)) == 1;
}

bool outside_mirror(const struct segment *s, uint32_t i, struct shm_mirror *ret)
{
	const struct shm_mirror *m = seg_mirror(s, i);
	uint32_t state, generation, tries;

	for (tries = 0; tries < STABLE_TRIES; tries++) {
		/* pairs with (W), (U) of mirror.c: a state that says there is one, and
		 * behind it the generation and the other fields */
		state = load_acquire(&m->state);
		if (state != MIRROR_READY && state != MIRROR_RETIRED)
			return false;
		generation = load_acquire(&m->generation);
		outside_copy(ret, m, sizeof(*ret));
		order_fence();
		/* while fields change the state is NONE, and when it is READY again the
		 * generation is another one: so the state is looked at first */
		if (load_acquire(&m->state) != state ||
		    load_relaxed(&m->generation) != generation)
			continue;
		ret->state = state;
		ret->generation = generation;
		return true;
	}
	return false;
}

struct pool_span outside_span(const struct segment *s, uint32_t pool)
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
