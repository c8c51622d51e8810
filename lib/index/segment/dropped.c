/* SPDX-License-Identifier: Apache-2.0 */
/* dropped.c - readers of the ring of dropped keys.
 *
 * The writer stores the floor before it stores over a key, and the head after a key.  So if a
 * reader copies keys and then finds the floor below them, it has copied whole keys.  A key may be
 * stored over while the search looks for the first number.  The new key has a greater number, so
 * the search begins too early then, never too late.
 * Tests: t/index/drops-alone.t t/index/drops-since.t */
#include "config.h"

#include "index/segment/dropped.h"

#include <errno.h>
#include "index/base/err.h"
#include "index/base/order.h"

uint64_t dropped_next(const struct segment *s)
{
	/* pairs with (x) of index/writer/drop.c */
	return load_acquire(&seg_state(s)->drops) | 1;
}

static uint64_t number(const struct segment *s, uint64_t at)
{
	return load_acquire(&seg_drop(s, at)->number); /* pairs with (x) */
}

/* The first key with such a number; the numbers never fall from one key to the next. */
static uint64_t find_first(const struct segment *s, uint64_t since, uint64_t head)
{
	uint64_t from = head - MIN(head, SHM_DROPS), to = head, at;

	while (from < to) {
		at = from + (to - from) / 2;
		if (number(s, at) < since)
			from = at + 1;
		else
			to = at;
	}
	return from;
}

static bool is_asked_for(const struct shm_drop *d, const uint8_t *what)
{
	return what || SHM_DROP_WHAT(load_relaxed(&d->command)) == SHM_DROP_ALL;
}

int dropped_since(const struct segment *s, uint64_t since, gpc_key *out, uint8_t *what,
		  uint32_t cap, uint64_t *upto)
{
	uint64_t next = dropped_next(s), head, at, is;
	uint32_t n = 0;

	head = load_acquire(
		&seg_state(s)->drops_head); /* pairs with (x) of index/table/dropped.c */
	for (at = find_first(s, since, head); at < head; at++) {
		const struct shm_drop *d = seg_drop(s, at);

		is = number(s, at);
		if (is < since || !is_asked_for(d, what))
			continue;
		if (n == cap) {
			next = MIN(next, is);
			break;
		}
		if (what)
			what[n] = (uint8_t)SHM_DROP_WHAT(load_relaxed(&d->command));
		out[n++] = (gpc_key){ { load_relaxed(&d->key[0]), load_relaxed(&d->key[1]) } };
	}
	order_fence(); /* pairs with (N) of index/table/dropped.c */
	if (load_relaxed(&seg_state(s)->drops_floor) >= since)
		return err_set(ESTALE, "keys that were dropped since number %llu are kept no more",
			       (unsigned long long)since);
	if (at < head && next <= since)
		return err_set(ENOSPC, "one drop has more than %u keys", cap);
	*upto = next;
	return (int)n;
}

bool dropped_by_others(const struct segment *s, uint64_t since, uint32_t peer)
{
	uint64_t head, at, is, command, began = 0;
	bool others = false;

	head = load_acquire(
		&seg_state(s)->drops_head); /* pairs with (x) of index/table/dropped.c */
	for (at = find_first(s, since, head); at < head && !others; at++) {
		is = number(s, at);
		if (is < since || !is_asked_for(seg_drop(s, at), NULL))
			continue;
		/* Only the last key of a drop has the command; the keys before it are of the same
		 * drop.  If the last key has none, the drop was of nothing, or its writer died
		 * before it stored the command. */
		command = load_relaxed(&seg_drop(s, at)->command);
		others = (began && is != began) || (command && command >> 56 != peer + 1);
		began = command ? 0 : is;
	}
	others |= began != 0;
	order_fence(); /* pairs with (N) of index/table/dropped.c */
	return others || load_relaxed(&seg_state(s)->drops_floor) >= since;
}
