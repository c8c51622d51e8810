/* SPDX-License-Identifier: Apache-2.0 */
/* Workers, writers, standbys and lookers are killed at random moments under full load,
 * in one round after the other.  A survivor and the workers verify what they hold; at
 * the end of each round everything comes to rest, and nothing may be lost, wrong, or
 * left over.
 *
 *   --seconds N --kills N --seed S --workers N
 * Tests: lib/index/takeover/ lib/index/writer/reap.c */
#include "team.h"

#define ROUND_MS (opt.is_long ? 1200 : 500)

/* One life, or several at once. */
static void kill_somebody(void)
{
	uint32_t server = 1u << (SERVER + (int)crew_random(&chance, scene.servers));
	uint32_t worker = 1u << (WORKER + (int)crew_random(&chance, opt.workers));

	switch (crew_random(&chance, 16)) {
	case 0:
		strike(server | worker);
		break;
	case 1:
		strike((1u << SERVER | 2u << SERVER | 4u << SERVER) | worker);
		break;
	case 2:
		strike(1u << LOOKER | worker);
		break;
	case 3:
		strike(((1u << opt.workers) - 1) << WORKER);
		break;
	case 4:
	case 5:
	case 6:
	case 7:
	case 8:
		strike(worker);
		break;
	default:
		strike(server);
	}
}

static uint64_t kills(void)
{
	return page->count[N_KILLED_SERVERS] + page->count[N_KILLED_WORKERS] +
	       page->count[N_KILLED_LOOKERS];
}

static void round_of_kills(uint64_t until)
{
	uint64_t end = clock_ns() + ROUND_MS * NS_PER_MS;

	scene_draw(&chance);
	round_begin("kill:");
	while (clock_ns() < MIN(end, until) && kills() < opt.kills) {
		nap(crew_random(&chance, 2 * scene.pace_us));
		tend();
		kill_somebody();
	}
	round_end();
}

static void tell(void)
{
	static const struct {
		int n;
		const char *what;
	} what[] = {
		{ N_ACTS, "acts" },
		{ N_ACQUIRED, "blocks acquired" },
		{ N_RESERVED, "reserved" },
		{ N_PUBLISHED, "published" },
		{ N_RESIDENT, "resident already" },
		{ N_EVICTED, "evicted" },
		{ N_DEMOTED, "demotions" },
		{ N_PROMOTED, "promotions" },
		{ N_COMMITTED, "moves committed" },
		{ N_CANCELLED, "moves cancelled" },
		{ N_DROPPED, "dropped" },
		{ N_CLEARED, "clears" },
		{ N_POOLS, "pools added" },
		{ N_SECTIONS, "sections" },
		{ N_LOOKS, "looks of the survivor" },
		{ N_VAULT, "vault blocks acquired" },
		{ N_GAVE_UP, "workers that gave up" },
	};
	bool all = true;
	uint32_t i;

	for (i = 0; i < ARRAY_SIZE(what); i++) {
		diag("%12llu %s", (unsigned long long)page->count[what[i].n], what[i].what);
		all &= page->count[what[i].n] || what[i].n == N_GAVE_UP;
	}
	ok(all, "all of it was done");
}

static int body(void)
{
	uint64_t until = clock_ns() + opt.seconds * 1000 * NS_PER_MS;

	diag("--seed %llu", (unsigned long long)opt.seed);
	torture_begin();
	chance = crew_mix(opt.seed) | 1;
	while (clock_ns() < until && kills() < opt.kills)
		round_of_kills(until);
	ok(kills() > 0,
	   "%llu kills (%llu servers, %llu workers, %llu lookers) in %llu rounds: "
	   "nothing lost, wrong or left over",
	   (unsigned long long)kills(), (unsigned long long)page->count[N_KILLED_SERVERS],
	   (unsigned long long)page->count[N_KILLED_WORKERS],
	   (unsigned long long)page->count[N_KILLED_LOOKERS],
	   (unsigned long long)page->count[N_ROUNDS]);
	tell();
	return done_testing();
}

int main(int argc, char **argv)
{
	opt = (struct options){ .seconds = 60, .kills = 800, .workers = 4 };
	options_read(argc, argv);
	scratch_make("torture-kill");
	return tap_guard(opt.seconds + 90, body, scratch_remove);
}
