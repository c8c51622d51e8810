/* SPDX-License-Identifier: Apache-2.0 */
/* descriptor.c - reading the descriptor of a mirror while its writer may change it.
 * Tests: t/bytes/device-host.t */
#include "config.h"

#include "index/base/order.h"
#include "index/segment/descriptor.h"
#include "index/segment/peek.h"

#define STABLE_TRIES 64 /* of a copy that a writer may be changing */

/* The two fields of a mirror by which a copy of it is judged. */
struct mirror_life {
	uint32_t state, generation;
};

static struct mirror_life mirror_life(const struct segment *s, uint32_t i)
{
	struct mirror_life now;

	if (s->snapshot) {
		segment_read(s->index_fd, s->at.mirror + i * sizeof(struct shm_mirror), &now,
			     sizeof(now));
		return now;
	}
	/* pairs with (W) of index/writer/mirrors.c, (U) of index/table/mirror.c: the state is
	 * loaded first, and after it the generation and the other fields */
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
		seg_peek_index(s, s->at.mirror + i * sizeof(*ret), ret, sizeof(*ret));
		order_fence();
		/* While fields change the state is NONE, and when it is READY again the generation
		 * is another one.  So the state is looked at first. */
		after = mirror_life(s, i);
		if (after.state != before.state || after.generation != before.generation)
			continue;
		ret->state = after.state;
		ret->generation = after.generation;
		return true;
	}
	return false;
}
