/* SPDX-License-Identifier: Apache-2.0 */
/* tiers.c - the tiers below RAM, with the counts of their steward.
 * Tests: t/tiers/life.t t/bytes/stopped-steward.t t/daemon/disk.t */
#include "config.h"

#include <errno.h>
#include <string.h>
#include "gpc_look.h"
#include "look/inspect.h"
#include "index/segment/beat.h"
#include "index/segment/lockfile.h"

_Static_assert(SHM_OWN == ARRAY_SIZE(((struct gpc_tier *)0)->counter), "as many as a tier has");
_Static_assert(SHM_WHAT == sizeof(((struct gpc_tier *)0)->what), "as many as a tier has");

/* Names are printed, so any other character ends them. */
static void fill_own(struct gpc_tier *ret, const struct shm_own *own)
{
	uint32_t i, k;

	for (i = 0; i < SHM_OWN; i++) {
		struct gpc_tier_counter *to = &ret->counter[i];

		for (k = 0; k + 1 < sizeof(to->name) && own[i].name[k] &&
			    strchr("abcdefghijklmnopqrstuvwxyz0123456789_", own[i].name[k]);
		     k++)
			to->name[k] = own[i].name[k];
		if (!k)
			break;
		to->value = own[i].value;
	}
	ret->ncounters = i;
}

static void fill(struct gpc_tier *ret, const struct shm_board *d, uint32_t at)
{
	const struct shm_tier *t = &d->tier[at];
	const uint64_t *n = t->count;

	ret->kind = t->kind;
	ret->pool = t->pool;
	ret->steward = (int32_t)d->steward - 1;
	ret->ready = t->ready;
	ret->state = t->state;
	ret->block_bytes = t->block_bytes;
	ret->asks = d->asks;
	ret->hits = d->hits;
	ret->misses = d->misses;
	ret->brought = n[TIER_BROUGHT];
	ret->brought_bytes = n[TIER_BROUGHT_BYTES];
	ret->written = n[TIER_WRITTEN];
	ret->written_bytes = n[TIER_WRITTEN_BYTES];
	ret->absent = n[TIER_ABSENT];
	ret->bad = n[TIER_BAD];
	ret->errors = n[TIER_ERRORS];
	ret->late = n[TIER_LATE];
	ret->overtaken = n[TIER_OVERTAKEN];
	ret->no_ram = n[TIER_NO_RAM];
	ret->refused = n[TIER_REFUSED];
	ret->failed = n[TIER_FAILED];
	ret->unwanted = n[TIER_UNWANTED];
	ret->overrun = n[TIER_OVERRUN];
	ret->evicted = n[TIER_EVICTED];
	ret->aged = n[TIER_AGED];
	ret->forgotten = n[TIER_FORGOTTEN];
	ret->found = n[TIER_FOUND];
	ret->restored = n[TIER_RESTORED];
	ret->orphans = n[TIER_ORPHANS];
	ret->full = n[TIER_FULL];
	ret->down = n[TIER_DOWN];
	ret->asked = n[TIER_ASKED];
	ret->there = n[TIER_THERE];
	ret->emptied = n[TIER_EMPTIED];
	if (t->kind == GPC_REMOTE)
		fill_own(ret, d->own);
	memcpy(ret->what, d->what[at], sizeof(ret->what) - 1);
}

GPC_EXPORT int gpc_tier_get(gpc *c, uint32_t i, struct gpc_tier *ret)
{
	struct gpc_tier out = { 0 };
	struct shm_board d;
	uint32_t at, nth;
	int err = handle_check(c, false);

	if (err == 0 && !ret)
		err = err_set(EINVAL, "ret is NULL");
	if (err == 0)
		err = err_size("gpc_tier", ret->size, 2 * sizeof(uint32_t));
	if (err < 0)
		return err;
	seg_peek_control(&c->seg, c->seg.at.board, &d, sizeof(d));
	for (at = 0, nth = i; at < SHM_TIERS && (!d.tier[at].kind || nth--); at++)
		;
	if (at == SHM_TIERS)
		return err_set(ENOENT, "i is %u: %s has fewer tiers below RAM", i, c->seg.name);
	fill(&out, &d, at);
	/* odd: the words are still those of the last steward */
	if (lock_test(c->seg.lock_fd, LOCK_TIERS) == 0 || d.life & 1) {
		out.pool = out.steward = -1;
		out.state = GPC_TIER_DOWN;
		out.ready = 0;
	} else if (out.state == GPC_TIER_UP && beat_is_over(d.beat, d.late, clock_ns())) {
		out.state = GPC_TIER_STOPPED;
	}
	out.size = ret->size;
	memcpy(ret, &out, MIN(ret->size, (uint32_t)sizeof(out)));
	return 0;
}
