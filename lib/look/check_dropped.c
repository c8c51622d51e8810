/* SPDX-License-Identifier: Apache-2.0 */
/* check_dropped.c - the ring of dropped keys (index/segment/dropped.h).
 *
 * A writer that was killed while it added a key leaves the place after the last one half
 * written.  In a full ring that is the oldest place, and the floor says that its key is gone.
 * Tests: t/index/drops-since.t */
#include "config.h"

#include "look/check.h"

#include <inttypes.h>

/* The fault of a place, in words; or NULL. */
static const char *look_at(const struct check *k, const struct shm_drop *d, uint64_t before)
{
	const struct shm_state *st = seg_state(k->s);
	const gpc_key key = { { d->key[0], d->key[1] } };

	if (!(d->number & 1) || d->number > (st->drops | 1))
		return "is of no drop so far";
	if (d->number < before)
		return "comes behind a later drop";
	if (d->number < st->drops_floor)
		return "is of a drop that the floor says to be gone";
	if (d->command >> 56 > k->s->header.geometry.max_peers)
		return "names a seat that is none";
	if (SHM_DROP_WHAT(d->command) > SHM_DROP_LEFT)
		return "went in no way";
	if (SHM_DROP_WHAT(d->command) == SHM_DROP_LEFT)
		return key.w[0] > INT32_MAX || key.w[1] ? "names no block" : NULL;
	return key_is_zero(&key) || key_is_root(&key) ? "has the key of no block" : NULL;
}

static void check_floor(struct check *k)
{
	const struct shm_state *st = seg_state(k->s);
	bool full = st->drops_head >= SHM_DROPS;

	if ((st->drops_floor &&
	     (!full || !(st->drops_floor & 1) || st->drops_floor > (st->drops | 1))) ||
	    (!st->drops_floor && st->drops_head > SHM_DROPS))
		check_bad(k, check_mix(st->drops_floor, st->drops_head),
			  "drops: the floor is %" PRIu64 " of %" PRIu64 ", with %" PRIu64
			  " keys told",
			  st->drops_floor, st->drops, st->drops_head);
}

/* Only the first fault is reported, since a wrong head would make each place a fault. */
void check_dropped(struct check *k)
{
	uint64_t head = seg_state(k->s)->drops_head, at, before = 0;
	const struct shm_drop *d;
	const char *bad = NULL;

	check_floor(k);
	for (at = head < SHM_DROPS ? 0 : head - SHM_DROPS + 1; at < head && !bad; at++) {
		d = seg_drop(k->s, at);
		bad = look_at(k, d, before);
		if (bad)
			check_bad(k, check_mix(check_mix(d->key[0], d->key[1]), d->number),
				  "drops: key %" PRIu64 " (%016" PRIx64 "%016" PRIx64
				  "), of number %" PRIu64 ": %s",
				  at, d->key[0], d->key[1], d->number, bad);
		before = d->number;
	}
}
