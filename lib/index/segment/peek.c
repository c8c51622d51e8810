/* SPDX-License-Identifier: Apache-2.0 */
/* peek.c - the present content of the segments.
 * Tests: t/index/stock-evict.t */
#include "config.h"

#include <string.h>
#include "index/base/order.h"
#include "index/segment/peek.h"

#define STABLE_TRIES 64 /* of a copy that a writer may be changing */

void seg_copy_words(void *to, const void *from, size_t bytes)
{
	const uint64_t *src = from;
	uint64_t *dst = to;
	size_t i;

	for (i = 0; i < bytes / sizeof(*src); i++)
		dst[i] = load_relaxed(&src[i]);
}

void seg_copy_text(char *to, size_t room, const char *from, size_t bytes)
{
	size_t n = strnlen(from, MIN(bytes, room - 1));

	memcpy(to, from, n);
	memset(to + n, 0, room - n);
}

void seg_peek_index(const struct segment *s, uint64_t at, void *to, size_t bytes)
{
	if (s->snapshot)
		segment_read(s->index_fd, at, to, bytes);
	else
		seg_copy_words(to, s->index + at, bytes);
}

void seg_peek_control(const struct segment *s, uint64_t at, void *to, size_t bytes)
{
	if (s->snapshot)
		segment_read(s->control_fd, at, to, bytes);
	else
		seg_copy_words(to, s->control + at, bytes);
}

void seg_peek_state(const struct segment *s, struct shm_state *ret)
{
	seg_peek_index(s, s->at.state, ret, sizeof(*ret));
}

/* The writer stores state and generation last (Q), and a description changes only after its state
 * has.  So if a pool is READY with the same generation before and after, all of it is one
 * description. */
bool seg_peek_pool(const struct segment *s, uint32_t pool, struct shm_pool *ret)
{
	uint64_t at = s->at.pool + (uint64_t)pool * sizeof(*ret);
	struct {
		uint32_t state, generation;
	} before, after;
	uint32_t tries;

	for (tries = 0; tries < STABLE_TRIES; tries++) {
		seg_peek_index(s, at, &before, sizeof(before));
		order_fence();
		seg_peek_index(s, at, ret, sizeof(*ret));
		order_fence();
		seg_peek_index(s, at, &after, sizeof(after));
		if (before.state != POOL_READY || after.state != POOL_READY)
			return false;
		if (before.generation == after.generation && ret->generation == after.generation)
			return true;
	}
	return false;
}

static uint64_t seat_offset(const struct segment *s, uint32_t peer)
{
	return s->at.seat + (uint64_t)peer * sizeof(struct shm_seat);
}

uint32_t seg_peek_seat_state(const struct segment *s, uint32_t peer)
{
	struct {
		uint32_t state, incarnation;
	} seat;

	if (!s->snapshot)
		return load_acquire(&seg_seat(s, peer)->state);
	segment_read(s->control_fd, seat_offset(s, peer), &seat, sizeof(seat));
	return seat.state;
}

/* One of the seat's counters, which is at offset `at` of the seat. */
static uint32_t peek_counter(const struct segment *s, uint32_t peer, const uint32_t *mapped,
			     size_t at)
{
	uint32_t n;

	if (seg_peek_seat_state(s, peer) == SEAT_FREE)
		return 0;
	if (!s->snapshot)
		return load_relaxed(mapped);
	segment_read(s->control_fd, seat_offset(s, peer) + at, &n, sizeof(n));
	return n;
}

uint32_t seg_peek_held(const struct segment *s, uint32_t peer, uint32_t pool)
{
	return peek_counter(s, peer, &seg_seat(s, peer)->in_use[pool],
			    offsetof(struct shm_seat, in_use) + pool * sizeof(uint32_t));
}

uint32_t seg_peek_in_stock(const struct segment *s, uint32_t peer, uint32_t pool,
			   uint32_t generation)
{
	uint32_t n = peek_counter(s, peer, &seg_seat(s, peer)->in_stock[pool],
				  offsetof(struct shm_seat, in_stock) + pool * sizeof(uint32_t));

	return n >> 16 == (generation & 0xffff) ? n & 0xffff : 0;
}
