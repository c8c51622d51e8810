/* SPDX-License-Identifier: Apache-2.0 */
/* Killed at every instruction.
 *
 * A writer that serves a command, its successor in takeover, or a worker in one call is led
 * through it by single steps and killed after k instructions, for every k.  Then the seat is
 * taken, or the dead worker reaped, and what is left must be what one of two runs leaves
 * that nobody disturbed: a writer's command as a whole, since its successor goes on with it; a
 * worker's call as a whole or not at all.  Nothing of the dead remains, gpc_check is clean, and
 * each pool can be had as a whole.
 *
 * What others see of a writer changes only when it stores to shared memory or calls the
 * system.  The first pass over an operation finds these instructions; the next one kills after
 * each of them.  --every kills after all others, too.
 *
 *   --seconds N      go through all operations and states again and again: first such
 *                    distinct points, then every instruction
 *   --every          every instruction of what is chosen, to the end
 *   --operation NAME --role NAME --state NAME --from K     what, and from which instruction
 *   --points N       at most so many distinct points of each
 *   --seed S         the table's layout, and the order of all
 * Tests: lib/index/takeover/takeover.c lib/index/writer/command.c lib/index/peer/seat.c */
#include "points.h"
#include "t/lib/options.h"

static struct {
	uint64_t seed;
	uint32_t seconds, from, most;
	bool every;
	const char *operation, *role, *state;
} opt;

static struct pair *pairs;
static uint32_t npairs;
static pid_t boss_pid;
static uint64_t distinct;

/* What leads straight back, when something is wrong. */
static void say_where(void)
{
	if (!now || getpid() != boss_pid)
		return;
	diag("after instruction %u of %s, role %s, state %s", k_now, name_of(now), now->role->name,
	     now->state->name);
	diag("--seed %llu --every --operation %s --role %s --state %s --from %u",
	     (unsigned long long)opt.seed, name_of(now), now->role->name, now->state->name, k_now);
	fflush(stdout);
}

/* ---- how many kills ---- */

static uint64_t until;

static bool time_is_up(void)
{
	return opt.seconds && clock_ns() > until;
}

/* All distinct points, or so many of them. */
static void kill_at_points(uint32_t most)
{
	uint32_t i, stride = most ? 1 + now->npoints / most : 1;

	for (i = (uint32_t)(opt.seed % stride); i < now->npoints && !time_is_up(); i += stride) {
		kill_after(now->point[i]);
		distinct++;
	}
}

/* As far as `share` ns go; true: to the end. */
static bool kill_at_every(uint64_t share)
{
	uint64_t end = clock_ns() + share;

	for (; now->next <= now->steps + 1; now->next++) {
		if (time_is_up() || clock_ns() > end)
			return false;
		if (!kill_after(now->next))
			break;
	}
	return true;
}

/* ---- which ---- */

static bool chosen(const char *wish, const char *name)
{
	return !wish || !strcmp(wish, name);
}

static void add_pair(const struct role *r, const struct table_state *s, const struct command *c,
		     const struct work *w)
{
	if (!chosen(opt.operation, c ? c->name : w->name) || !chosen(opt.role, r->name) ||
	    !chosen(opt.state, s->name))
		return;
	/* a dead peer is there as long as no writer was: nothing can be prepared */
	if (s->build == state_dead &&
	    (c ? r->kind == WRITER || c->prepare : !r->orphan || w->ready == ready_blocks))
		return;
	if (s->build == state_dead && r->wreck)
		return;
	pairs = realloc(pairs, (npairs + 1) * sizeof(*pairs));
	if (!pairs)
		bail("no memory");
	pairs[npairs++] = (struct pair){
		.role = r, .state = s, .command = c, .work = w, .next = MAX(opt.from, 1u)
	};
}

static void list_pairs(void)
{
	uint32_t s, r, i;

	for (s = 0; s < ARRAY_SIZE(states); s++)
		for (r = 0; r < ARRAY_SIZE(roles); r++)
			if (roles[r].kind == WORKER)
				for (i = 0; i < ARRAY_SIZE(works); i++)
					add_pair(&roles[r], &states[s], NULL, &works[i]);
			else
				for (i = 0; i < ARRAY_SIZE(commands); i++)
					add_pair(&roles[r], &states[s], &commands[i], NULL);
}

/* In an order that the seed draws. */
static void shuffle_pairs(void)
{
	uint64_t chance = crew_mix(opt.seed) | 1;
	uint32_t i, j;

	for (i = npairs; i > 1; i--) {
		struct pair p = pairs[i - 1];

		j = crew_random(&chance, i);
		pairs[i - 1] = pairs[j];
		pairs[j] = p;
	}
}

static void turn_to(struct pair *p)
{
	static const char *devices;

	if (devices && !strcmp(devices, p->state->devices)) {
		now = p;
		return;
	}
	if (devices)
		small_unmake();
	devices = p->state->devices;
	small_make(opt.seed, devices);
	now = p;
}

/* ---- forms ---- */

/* What fits a test: literally every instruction of a worker's short calls, and points of some
 * commands, another choice with each seed. */
/* Memory is the same between two points; "make check-long PART=instructions" takes each instruction. */
static void short_form(void)
{
	static const struct {
		const char *operation, *role, *state;
		uint32_t most;
	} some[] = {
		{ "ref", "worker", "half", 0 },
		{ "unref", "worker", "half", 0 },
		{ "enter", "worker", "half", 0 },
		{ "leave", "worker", "half", 0 },
		{ "submit-drop", "served", "half", 0 },
		{ "attach", "worker", "half", 60 },
		{ "close", "orphan", "half", 60 },
		{ "publish", "writer", "full", 60 },
		{ "publish-known", "writer", "half", 60 },
		{ "reserve", "writer", "full", 60 },
		{ "evict-take", "writer", "full", 60 },
		{ "commit-demote", "writer", "full", 60 },
		{ "reap", "writer", "half", 60 },
		{ "publish", "writer", "crowded", 60 },
		{ "pool-add", "writer", "half", 60 },
		{ "reserve", "successor", "half", 20 },
		{ "drop", "wreck-23", "full", 60 },
	};
	uint32_t i, j;

	for (i = 0; i < ARRAY_SIZE(some); i++)
		for (j = 0; j < npairs; j++) {
			if (strcmp(some[i].operation, name_of(&pairs[j])) ||
			    strcmp(some[i].role, pairs[j].role->name) ||
			    strcmp(some[i].state, pairs[j].state->name))
				continue;
			turn_to(&pairs[j]);
			map_points();
			kill_at_points(some[i].most);
		}
}

static void long_form(void)
{
	uint32_t i, j, done = 0;

	for (i = 0; i < npairs && !time_is_up() && !opt.every; i++) {
		turn_to(&pairs[i]);
		map_points();
		kill_at_points(opt.most);
		done += !time_is_up();
	}
	if (!opt.every)
		diag("all distinct points of %u of %u pairs", done, npairs);
	for (j = 0; (j == 0 || opt.seconds) && !opt.most && !time_is_up(); j++)
		for (i = done = 0; i < npairs && !time_is_up(); i++) {
			turn_to(&pairs[i]);
			if (!now->place)
				map_points();
			done += kill_at_every(opt.every ? UINT64_MAX / 2 : 2000 * NS_PER_MS);
			if (done == npairs)
				return;
		}
}

static int body(void)
{
	const char *why;

	diag("--seed %llu", (unsigned long long)opt.seed);
	crew_begin();
	tracee_pages();
	why = tracee_forbidden();
	if (why)
		plan_skip_all(why);
	boss_pid = getpid();
	atexit(say_where);
	list_pairs();
	shuffle_pairs();
	if (!npairs)
		bail("no such operation, role and state");
	until = clock_ns() + opt.seconds * 1000 * NS_PER_MS;
	if (opt.every || opt.seconds)
		long_form();
	else
		short_form();
	now = NULL;
	if (!kills)
		bail("nothing was killed: --seconds were over before that, or the choice is empty");
	ok(true,
	   "%llu kills, %llu of them at distinct points, in %u pairs of operation "
	   "and state: each left what an undisturbed run leaves",
	   (unsigned long long)kills, (unsigned long long)distinct, npairs);
	diag("%llu second runs chose other blocks; %llu points were not where the first pass had "
	     "seen them",
	     (unsigned long long)others, (unsigned long long)drifts);
	return done_testing();
}

/* ---- options ---- */

static const char help[] =
	"  --seconds N        how long; without it the short form of make check\n"
	"  --seed S           the table's layout, and the order of all\n"
	"  --every            after each instruction, not only at stores and system calls\n"
	"  --operation NAME   this command or call only\n"
	"  --role NAME        this writer, successor or worker only\n"
	"  --state NAME       in this state of the cache only\n"
	"  --from K           instruction to begin with\n"
	"  --points N         at most so many points of each case\n"
	"  -h, --help\n";

static void options_read(int argc, char **argv)
{
	static const struct option known[] = {
		{ "seconds", required_argument, NULL, 't' },
		{ "seed", required_argument, NULL, 's' },
		{ "every", no_argument, NULL, 'e' },
		{ "operation", required_argument, NULL, 'o' },
		{ "role", required_argument, NULL, 'r' },
		{ "state", required_argument, NULL, 'a' },
		{ "from", required_argument, NULL, 'f' },
		{ "points", required_argument, NULL, 'p' },
		OPTION_HELP,
		{ NULL, 0, NULL, 0 },
	};
	struct timespec ts;
	int o;

	clock_gettime(CLOCK_REALTIME, &ts);
	opt.seed = (uint64_t)ts.tv_sec * 1000003 ^ (uint64_t)ts.tv_nsec;
	while ((o = option_next(argc, argv, known, help)) != -1) {
		switch (o) {
		case 't':
			opt.seconds = (uint32_t)option_number(optarg, "seconds", 1, MOST_SECONDS);
			break;
		case 's':
			opt.seed = option_number(optarg, "seed", 0, UINT64_MAX);
			break;
		case 'e':
			opt.every = true;
			break;
		case 'o':
			opt.operation = optarg;
			break;
		case 'r':
			opt.role = optarg;
			break;
		case 'a':
			opt.state = optarg;
			break;
		case 'f':
			opt.from = (uint32_t)option_number(optarg, "from", 1, UINT32_MAX);
			break;
		default:
			opt.most = (uint32_t)option_number(optarg, "points", 1, UINT32_MAX);
		}
	}
}

int main(int argc, char **argv)
{
	options_read(argc, argv);
	scratch_make("torture-step");
	return tap_guard(opt.every && !opt.seconds ? 0 : opt.seconds + 120, body, scratch_remove);
}
