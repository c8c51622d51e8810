/* SPDX-License-Identifier: Apache-2.0 */
/* The fleet of copy.c with transfers that the writer commits: engines fetch prompts from RAM and
 * from each other, alone or by two ranks, spill, and claim what they compute; the keeper spills
 * ahead of need.  Engines, writers and the keeper are killed and stopped in the middle of all that.
 * What is found, fetched or held has all bytes of its key, as a survivor sees it, too; and at rest
 * nothing is held, claimed or on its way.
 *
 *   --seconds N --kills N --seed S --workers N
 * Tests: lib/index/writer/transfer.c lib/bytes/payload/ */
#include "fleet.h"
#include "ranks.h"

static void (*const acts[])(struct engine *) = {
	act_compute, act_compute, act_bring,  act_bring, act_bring, act_send,   act_send,
	act_ahead,   act_claim,   act_claim,  act_spill, act_fetch, act_borrow, act_lose,
	act_lose,    act_unmap,   act_remake, act_group, act_group,
};

static const struct tally tallies[] = {
	{ N_ACTS, "acts" },
	{ N_IMAGES, "images looked at, whole" },
	{ N_UNSEEN, "of pools on their way out", true },
	{ N_WALKED, "of these at rest" },
	{ N_VAULT, "of these by the survivor, of others" },
	{ N_FETCHED, "blocks fetched" },
	{ N_SPILLED, "spilled" },
	{ N_AHEAD, "spilled ahead of need" },
	{ N_REFUSED, "of these refused, for a pool or source that went", true },
	{ N_UNAWAITED, "transfers that were left under way" },
	{ N_AFTER, "references released by a stream" },
	{ N_GROUPS, "transfers by ranks" },
	{ N_HALVES, "halves of images that these copied" },
	{ N_DESERTED, "of these that a rank has left" },
	{ N_MINE, "claims" },
	{ N_THEIRS, "claims of others" },
	{ N_ENDED, "of these seen to end", true },
	{ N_COPIES, "copies" },
	{ N_PUBLISHED, "published" },
	{ N_COMMITTED, "moves committed" },
	{ N_DROPPED, "dropped" },
	{ N_CLEARED, "clears", true },
	{ N_POOLS, "pools made" },
	{ N_KEPT, "of these by keepers" },
	{ N_STOPPED, "stops" },
	{ N_GAVE_UP, "engines that gave up", true },
};

/* Without a writer the next step finds the next one. */
static void spill_ahead(gpc *c, int pool)
{
	gpc_transfer t = 0;
	int r = gpc_spill_ahead(c, pool, NULL, 5, &t);

	need(r >= 0 || r == -ENOTCONN || r == -ENOSPC || r == -EAGAIN || r == -ETIMEDOUT ||
		     r == -EALREADY,
	     "the keeper's spill_ahead: %d, %s", r, gpc_last_error());
	count(N_AHEAD, r > 0 ? (uint64_t)r : 0);
}

static int body(void)
{
	engine_acts = acts;
	engine_nacts = ARRAY_SIZE(acts);
	keeper_step = spill_ahead;
	fleet_run("transfer:", tallies, ARRAY_SIZE(tallies));
	fleet_tell(tallies, ARRAY_SIZE(tallies));
	return done_testing();
}

int main(int argc, char **argv)
{
	opt = (struct options){ .seconds = 5, .kills = 400, .workers = 3 };
	options_read(argc, argv);
	scratch_make("torture-transfer");
	return tap_guard(opt.seconds + 90, body, scratch_remove);
}
