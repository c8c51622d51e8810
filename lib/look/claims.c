/* SPDX-License-Identifier: Apache-2.0 */
/* claims.c - the claimed keys, with their peers and ages.
 * Tests: t/index/claims.t t/tools/inspect-peers.t */
#include "config.h"

#include <errno.h>
#include <string.h>
#include "gpc_look.h"
#include "look/inspect.h"

#define BATCH 256u /* records that are read together */

/* Here no count is kept of the peer's claims with smaller numbers, so `ahead` is 0. */
static void fill(const struct segment *s, const struct shm_record *r, gpc_block block,
		 struct gpc_claim *ret)
{
	uint64_t now = clock_ns();
	int32_t pid = 0;

	if (r->owner < s->header.geometry.max_peers)
		seg_peek_control(s,
				 s->at.seat + r->owner * sizeof(struct shm_seat) +
					 offsetof(struct shm_seat, pid),
				 &pid, sizeof(pid));
	*ret = (struct gpc_claim){
		.key = { { r->key[0], r->key[1] } },
		.state = GPC_CLAIM_PENDING,
		.block = block,
		.peer = r->owner,
		.pid = pid,
		.life = (uint64_t)WORD_GEN(r->word) + 1,
		.age_ns = r->parent[0] < now ? now - r->parent[0] : 0,
	};
}

static bool is_claim(const struct shm_record *r)
{
	return WORD_STATE(r->word) == RESERVED && (r->flags & REC_CLAIM) && !r->source;
}

/* Pairs with (u): the copied fields are of one claim. */
static bool is_still(const struct segment *s, uint32_t record, const struct shm_record *r)
{
	struct shm_record now;

	order_fence(); /* the fields are copied before the second look */
	seg_peek_index(s, s->at.record + (uint64_t)record * sizeof(now), &now, sizeof(now));
	return is_claim(&now) && now.word == r->word && now.parent[1] == r->parent[1];
}

/* From slot *at of the pool on: returns the number of claims, and *at behind the last slot that
 * was looked at. */
static uint32_t walk_pool(const struct segment *s, uint32_t pool, uint32_t *at, uint32_t slots,
			  uint32_t first, struct gpc_claim *out, uint32_t n)
{
	struct shm_record r[BATCH];
	uint32_t got = 0, k, i;

	while (*at < slots && got < n) {
		k = MIN(MIN(slots - *at, BATCH), n - got);
		seg_peek_index(s, s->at.record + (uint64_t)(first + *at) * sizeof(r[0]), r,
			       k * sizeof(r[0]));
		for (i = 0; i < k; i++)
			if (is_claim(&r[i]) && is_still(s, first + *at + i, &r[i]))
				fill(s, &r[i], GPC_BLOCK((gpc_block)pool, (gpc_block)(*at + i)),
				     &out[got++]);
		*at += k;
	}
	return got;
}

/* The cursor is pool << 32 | slot, for the next slot to look at. */
static uint32_t walk(const struct segment *s, uint64_t *cursor, struct gpc_claim *out, uint32_t n)
{
	uint32_t pool = (uint32_t)(*cursor >> 32), at = (uint32_t)*cursor, got = 0, first, slots;
	struct shm_pool d;

	for (; pool < s->header.geometry.max_pools && got < n; pool++, at = 0) {
		if (!seg_peek_pool(s, pool, &d))
			continue;
		first = pool_first(s, d.range, &slots);
		got += walk_pool(s, pool, &at, slots, first, out + got, n - got);
		if (at < slots)
			break;
	}
	*cursor = (uint64_t)pool << 32 | (pool < s->header.geometry.max_pools ? at : 0);
	return got;
}

GPC_EXPORT int gpc_claim_walk(gpc *c, uint64_t *cursor, struct gpc_claim *out, uint32_t n)
{
	int err = handle_check(c, false), cut;
	uint32_t got;

	if (err == 0 && (!cursor || !out || !n))
		err = err_set(EINVAL, !cursor ? "cursor is NULL"
				      : !out  ? "out is NULL"
					      : "n is 0: it must be at least 1");
	if (err == 0)
		err = err_count(n, "entries");
	if (err < 0)
		return err;
	got = walk(&c->seg, cursor, out, n);
	/* the reads are done before the check: if the file is whole now, it was whole then */
	cut = segment_check_index(&c->seg);
	return cut < 0 ? cut : (int)got;
}
