/* SPDX-License-Identifier: Apache-2.0 */
/* Engines with VRAM of their own, a keeper's VRAM and RAM for all, each with memory, under
 * random SIGKILL and SIGSTOP of engines, writers and the keeper.  Whoever gets a block, a
 * survivor among them, looks at all its bytes; what was committed is whole, whoever died
 * beside it.  At the end of each round nothing is held, and no file is left.
 *
 *   --seconds N --kills N --seed S --workers N
 * Tests: lib/bytes/payload/copy.c lib/index/writer/move.c lib/index/writer/reap.c */
#include "fleet.h"

static void (*const acts[])(struct engine *) = {
	act_compute, act_compute, act_compute, act_spill, act_spill, act_fetch,
	act_fetch,   act_borrow,  act_borrow,  act_lose,  act_unmap, act_remake,
};

static const struct tally tallies[] = {
	{ N_ACTS, "acts" },
	{ N_IMAGES, "images looked at, whole" },
	{ N_UNSEEN, "of pools on their way out", true },
	{ N_WALKED, "of these at rest" },
	{ N_VAULT, "of these by the survivor, of others" },
	{ N_COPIES, "copies" },
	{ N_STALE, "copies refused, for a pool or source that went", true },
	{ N_ACQUIRED, "blocks acquired" },
	{ N_RESERVED, "reserved" },
	{ N_PUBLISHED, "published" },
	{ N_RESIDENT, "resident already" },
	{ N_DEMOTED, "demotions" },
	{ N_PROMOTED, "promotions" },
	{ N_COMMITTED, "moves committed" },
	{ N_CANCELLED, "moves cancelled" },
	{ N_DROPPED, "dropped" },
	{ N_CLEARED, "clears" },
	{ N_POOLS, "pools made" },
	{ N_KEPT, "of these by keepers" },
	{ N_UNMAPPED, "unmapped" },
	{ N_STOPPED, "stops" },
	{ N_GAVE_UP, "engines that gave up", true },
};

static int body(void)
{
	engine_acts = acts;
	engine_nacts = ARRAY_SIZE(acts);
	fleet_run("copy:", tallies, ARRAY_SIZE(tallies));
	fleet_tell(tallies, ARRAY_SIZE(tallies));
	return done_testing();
}

int main(int argc, char **argv)
{
	opt = (struct options){ .seconds = 5, .kills = 400, .workers = 3 };
	options_read(argc, argv);
	scratch_make("torture-copy");
	return tap_guard(opt.seconds + 90, body, scratch_remove);
}
