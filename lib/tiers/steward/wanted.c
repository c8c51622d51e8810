/* SPDX-License-Identifier: Apache-2.0 */
/* wanted.c - keys whose blocks a peer wants in a tier below RAM, before RAM needs their room.
 *
 * A question with ASK_BELOW names keys of blocks in RAM.  It is answered when each key is in the
 * list of each tier that lacks it, or the list is full.  down.c takes the keys from there, before
 * victims.  An item of a list is only a key.  Its block may be evicted, dropped or written by
 * then, so it is looked for again.
 *
 *   the block when its turn comes        then
 *   in RAM, without a copy               it is written, held or not, with its ancestors (above.c)
 *   in RAM, with a copy; or not in RAM   nothing happens
 *   the tier rests, or is down           the key stays in the list, which is bounded
 *   the steward dies                     the list is lost: the peer looks whether there is a copy, and
 *                                        asks again
 * Tests: t/tiers/wanted.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tiers/steward/above.h"
#include "tiers/steward/steward.h"

#define WANTED_MOST 65536u

int wanted_begin(struct wanted *s)
{
	pthread_mutex_init(&s->lock, NULL);
	s->at = malloc(WANTED_MOST * sizeof(*s->at));
	return s->at ? 0 : -ENOMEM;
}

void wanted_end(struct wanted *s)
{
	free(s->at);
	s->at = NULL;
}

static bool add(struct wanted *s, uint32_t space, const gpc_key *key)
{
	bool fits;

	pthread_mutex_lock(&s->lock);
	fits = s->n < WANTED_MOST;
	if (fits)
		s->at[(s->first + s->n++) % WANTED_MOST] = (struct wish){ *key, space };
	pthread_mutex_unlock(&s->lock);
	return fits;
}

uint32_t wanted_take(struct wanted *s, struct wish *to, uint32_t n)
{
	uint32_t i;

	pthread_mutex_lock(&s->lock);
	for (i = 0; i < n && s->n; i++, s->n--)
		to[i] = s->at[s->first++ % WANTED_MOST];
	pthread_mutex_unlock(&s->lock);
	return i;
}

bool wanted_any(struct wanted *s)
{
	bool any;

	pthread_mutex_lock(&s->lock);
	any = s->n != 0;
	pthread_mutex_unlock(&s->lock);
	return any;
}

/* The block in RAM that has the wished key, in that space; or GPC_NONE. */
gpc_block wanted_find(struct lower *d, const struct wish *wish)
{
	const struct segment *s = &d->t->c->seg;
	gpc_block block;

	if (gpc_lookup(d->t->c, GPC_SPACE(wish->space), &wish->key, 1, &block, GPC_QUIET) != 1 ||
	    !images_fit_pool(d, seg_pool(s, (uint32_t)GPC_POOL(block))) || lower_has(d, &wish->key))
		return GPC_NONE;
	return block;
}

/* Has the block a copy, or is a tier going to write one? */
static bool want(struct gpc_tiers *t, const struct wish *wish, int *why)
{
	bool is = false;
	uint32_t i;

	for (i = 0; i < t->nlower; i++) {
		struct lower *d = &t->lower[i];

		if (lower_has(d, &wish->key)) {
			is = true;
		} else if (wanted_find(d, wish) >= 0) {
			is |= add(&d->wanted, wish->space, &wish->key);
			*why = is ? *why : -ENOSPC;
		}
	}
	return is;
}

uint32_t wanted_answer(struct gpc_tiers *t, const struct shm_ask *a, uint32_t n, int *why)
{
	uint32_t to = (uint32_t)load_relaxed(&a->to), got = 0, i;
	struct wish wish;

	if (to >= t->c->seg.header.geometry.max_pools)
		return 0;
	wish.space = load_relaxed(&seg_pool(&t->c->seg, to)->space);
	for (i = 0; i < n; i++) {
		wish.key.w[0] = load_relaxed(&a->key[i][0]);
		wish.key.w[1] = load_relaxed(&a->key[i][1]);
		if (!key_is_zero(&wish.key) && !key_is_root(&wish.key))
			got += want(t, &wish, why);
	}
	if (got)
		steward_ring(t->c);
	return got;
}
