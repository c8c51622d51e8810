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
 *   --seed S         the table's layout, and the order of all */
#include "operations.h"
#include "t/lib/options.h"
#include "t/lib/stops.h"

#define MOST_STEPS 2000000              /* a flush waits for another thread, which waits for a processor */

static struct {
	uint64_t seed;
	uint32_t seconds, from, most;
	bool every;
	const char *operation, *role, *state;
} opt;

enum role_kind { WRITER, SUCCESSOR, WORKER };

struct role {
	const char *name;
	enum role_kind kind;
	uint32_t wreck; /* a writer has died before this store of its own */
	bool orphan;	/* no writer lives beside the worker */
	bool served;	/* the writer runs commands before it reaps */
};

static const struct role roles[] = {
	{"worker", WORKER, 0, false, false},
	{"served", WORKER, 0, false, true},
	{"orphan", WORKER, 0, true, false},
	{"writer", WRITER, 0, false, false},
	{"successor", SUCCESSOR, 0, false, false},
	{"wreck-9", SUCCESSOR, 9, false, false},
	{"wreck-23", SUCCESSOR, 23, false, false},
	{"wreck-41", SUCCESSOR, 41, false, false},
	{"wreck-70", SUCCESSOR, 70, false, false},
};

struct place { /* of an instruction */
	uint64_t pc;
	uint32_t times; /* it came next, this time included */
};

/* One operation of one role in one state. */
struct pair {
	const struct role *role;
	const struct table_state *state;
	const struct command *command; /* or */
	const struct work *work;
	struct outcome before, after;	 /* killed at once; not before its end */
	struct shm_command answer[MOST]; /* in both */
	uint32_t *point, npoints, steps; /* after which others see something new */
	struct place *place;		 /* of each instruction, from 1 on */
	uint32_t next;			 /* the next instruction of every one */
};

static struct pair *pairs, *now;
static uint32_t npairs, k_now;
static pid_t boss_pid;
static uint64_t kills, distinct, drifts, others;

static const char *name_of(const struct pair *p)
{
	return p->command ? p->command->name : p->work->name;
}

/* What leads straight back, when something is wrong. */
static void say_where(void)
{
	if (!now || getpid() != boss_pid)
		return;
	diag("after instruction %u of %s, role %s, state %s", k_now, name_of(now),
	     now->role->name, now->state->name);
	diag("--seed %llu --every --operation %s --role %s --state %s --from %u",
	     (unsigned long long)opt.seed, name_of(now), now->role->name,
	     now->state->name, k_now);
	fflush(stdout);
}

/* ---- victims ---- */

/* What came before it goes on: several turns, until nothing is under way. */
static void serve_to_rest(gpc *c)
{
	int i;

	for (i = 0; i < 200 && c->writer; i++) {
		if (gpc_writer_serve(c, 0) == 0 && i && grace_idle(c->writer))
			break;
	}
}

static void victim_serves(void)
{
	gpc *c = small_attach("victim", 0);

	must_be(gpc_writer_take(c, 0, 0), 0);
	serve_to_rest(c);
	tracee_is_ready();
	c->writer->next_housekeep_ns = 0;
	serve_to_rest(c);
}

static void victim_takes_over(void)
{
	gpc *c = small_attach("victim", 0);

	tracee_is_ready();
	must_be(gpc_writer_take(c, 0, 0), 0);
	serve_to_rest(c);
}

static void victim_works(void)
{
	if (now->work->run != run_attach)
		mine.c = small_attach("victim", 0);
	if (now->work->ready)
		now->work->ready();
	tracee_is_ready();
	now->work->run();
}

/* Dies before a store, while it does what the next one will find half done. */
static int wreck(int store)
{
	static uint64_t stores;
	gpc *c = small_attach("wreck", 0);

	stops.count = &stores;
	stops.last = (uint64_t)store;
	must_be(gpc_writer_take(c, 0, 0), 0);
	stops_begin();
	serve_to_rest(c);
	stops_die();
	return 1;
}

/* ---- a round ---- */

static void await_victim(void)
{
	while (!tracee_waits(!boss->writer))
		must(gpc_writer_serve(boss, 0) >= 0, "serve: %s", gpc_last_error());
}

static void send_command(void)
{
	if (now->command->send)
		now->command->send();
}

static void leave_seat(void)
{
	if (boss->writer)
		must_be(gpc_writer_drop(boss), 0);
}

static void begin_writer(void)
{
	leave_seat();
	tracee_fork(victim_serves);
	await_victim();
	send_command();
}

static void begin_successor(void)
{
	leave_seat();
	send_command();
	if (now->role->wreck) {
		pid_t pid = crew_fork(wreck, (int)now->role->wreck);

		must(crew_status(pid) == 256 + SIGKILL, "the wreck: %s", crew->why);
	}
	tracee_fork(victim_takes_over);
	await_victim();
}

static void begin_worker(void)
{
	tracee_fork(victim_works);
	await_victim();
	if (now->role->orphan)
		leave_seat();
	if (now->work->beside)
		now->work->beside();
}

static void round_begin(void)
{
	uint64_t i;

	small_restore();
	small.nused = 0;
	memset(&job, 0, sizeof(job));
	job.publish_key = 30;
	boss = small_attach("boss", 0);
	must_be(gpc_writer_take(boss, 0, 0), 0);
	for (i = 1; i <= 20; i++)
		use_key(i);
	use_key(60);
	use_key(61);
	now->state->build();
	if (now->command && now->command->prepare)
		now->command->prepare();
	switch (now->role->kind) {
	case WRITER:
		begin_writer();
		break;
	case SUCCESSOR:
		begin_successor();
		break;
	case WORKER:
		begin_worker();
		break;
	}
	tracee_begin();
}

/* The victim is dead: all comes to rest, and is looked at; then nothing is left. */
static void round_end(struct outcome *o)
{
	other_dies();
	if (!boss->writer)
		must_be(gpc_writer_take(boss, 0, 0), 0);
	else if (now->role->served) {
		boss->writer->next_housekeep_ns = UINT64_MAX;
		must(gpc_writer_serve(boss, 0) >= 0, "serve");
	}
	small_settle();
	small_outcome(o);
	put_answers(o->text, sizeof(o->text));
	crew_check(boss);
	small_give_all_back();
	gpc_close(boss);
	boss = NULL;
}

static bool is_as(const struct outcome *o, const struct outcome *want)
{
	return !strcmp(o->text, want->text);
}

/* Of the keys that the undisturbed run leaves none has moved or lost a reference; as many as
 * the command has blocks may be gone, if nobody holds them. */
static bool keys_are_kept(const struct outcome *o, const struct outcome *want)
{
	uint32_t i, lost = 0;

	for (i = 0; i < want->nkeys; i++) {
		const struct small_key *k = &want->key[i], *is = small_find(o, k->number);

		if (!is && (k->refs || ++lost > job.slots))
			return false;
		if (is && (is->block != k->block || is->refs != k->refs ||
			   is->depth != k->depth))
			return false;
	}
	return true;
}

static bool is_answered(gpc_block b)
{
	uint32_t i;

	for (i = 0; i < job.slots; i++)
		if (job.answer[0].result > (int32_t)i && job.answer[i].block == b)
			return true;
	return false;
}

/* No key that was evicted comes back.  After a wreck the undisturbed run may have evicted others than
 * the wreck had, and this one may have been in time to answer with those of the wreck. */
static bool none_comes_back(const struct outcome *o, const struct outcome *want)
{
	uint32_t i, spared = 0;

	for (i = 0; i < o->nkeys; i++) {
		if (small_find(want, o->key[i].number))
			continue;
		if (!now->role->wreck || is_answered(o->key[i].block) || ++spared > job.slots)
			return false;
	}
	return true;
}

/* What a second run may do otherwise: another choice of blocks, as many of them. */
static bool is_like(const struct outcome *o, const struct outcome *want)
{
	uint32_t p;

	if (!now->command || !now->command->again ||
	    !answers_are(now->answer, now->command->again) || !keys_are_kept(o, want) ||
	    !none_comes_back(o, want))
		return false;
	for (p = 0; p < POOLS; p++)
		if (o->dying[p] != want->dying[p] || o->reserved[p] > want->reserved[p] ||
		    (p != RAM && o->reserved[p] != want->reserved[p]))
			return false;
	return true;
}

static void judge(const struct outcome *o)
{
	if (is_as(o, &now->before) || is_as(o, &now->after))
		return;
	others++;
	if (is_like(o, &now->after))
		return;
	diag("killed before: %s", now->before.text);
	diag("not killed: %s", now->after.text);
	diag("now: %s", o->text);
	must(false, "neither as before nor as after");
}

/* ---- the first pass ---- */

static void add_point(uint32_t k)
{
	if (!(now->npoints & 63))
		now->point =
			realloc(now->point, (now->npoints + 64) * sizeof(*now->point));
	if (!now->point)
		bail("no memory");
	now->point[now->npoints++] = k;
}

/* How often each instruction has come up to each moment. */
static void count_times(void)
{
	uint32_t i, at, mask = 1023, *last;

	while (mask < 2 * now->steps)
		mask = 2 * mask + 1;
	last = calloc(mask + 1, sizeof(*last));
	if (!last)
		bail("no memory");
	for (i = 1; i <= now->steps + 1; i++) {
		at = (uint32_t)crew_mix(now->place[i].pc) & mask;
		while (last[at] && now->place[last[at]].pc != now->place[i].pc)
			at = (at + 1) & mask;
		now->place[i].times = last[at] ? now->place[last[at]].times + 1 : 1;
		last[at] = i;
	}
	free(last);
}

/* Which instructions others can notice, and what an undisturbed run leaves. */
static void map_points(void)
{
	uint64_t pc;
	bool call;

	k_now = 0;
	round_begin();
	tracee_kill();
	round_end(&now->before);
	round_begin();
	now->place = calloc(MOST_STEPS + 2, sizeof(*now->place));
	if (!now->place)
		bail("no memory");
	small_look();
	for (k_now = 1; k_now <= MOST_STEPS; k_now++) {
		now->place[k_now].pc = pc = tracee_pc();
		call = tracee_calls_system(pc);
		if (!tracee_step())
			break;
		if (small_changed() || call)
			add_point(k_now);
	}
	must(k_now <= MOST_STEPS, "it does not end");
	now->steps = k_now - 1;
	tracee_kill();
	round_end(&now->after);
	memcpy(now->answer, job.answer, sizeof(now->answer));
	now->place = realloc(now->place, (now->steps + 2) * sizeof(*now->place));
	count_times();
	if (getenv("GPC_T_VERBOSE"))
		diag("%-16s %-10s %-8s %6u instructions, %4u distinct%s", name_of(now),
		     now->role->name, now->state->name, now->steps, now->npoints,
		     is_as(&now->before, &now->after) ? "" : ", two outcomes");
	if (getenv("GPC_T_VERBOSE") && !is_as(&now->before, &now->after))
		diag("%s <> %s", now->before.text, now->after.text);
}

/* ---- kills ---- */

static bool is_ours(uint64_t pc)
{
	return pc >= (uintptr_t)__executable_start && pc < (uintptr_t)etext;
}

/* The instruction, at or before k + 1, from which it is least work: one of ours that has not
 * come often. */
static uint32_t nearest(uint32_t k)
{
	uint32_t j, cost, best = 0, best_cost = k;

	for (j = k + 1; j && k + 1 - j < best_cost; j--) {
		cost = k + 1 - j + 4 * now->place[j].times;
		if (cost < best_cost && is_ours(now->place[j].pc)) {
			best = j;
			best_cost = cost;
		}
	}
	return best;
}

/* Led to where k instructions are behind it.  False: it ended before. */
static bool lead(uint32_t k)
{
	uint32_t i, from = k <= now->steps ? nearest(k) : 0;
	bool alive = true;

	if (from)
		alive = tracee_run_to(now->place[from].pc, now->place[from].times);
	for (i = from ? from : 1; i <= k && alive; i++)
		alive = tracee_step();
	for (i = 0;
	     i < 300 && alive && k <= now->steps && tracee_pc() != now->place[k + 1].pc;
	     i++) {
		drifts += !i;
		alive = tracee_step();
	}
	return alive;
}

/* After k instructions; false: it ended before. */
static bool kill_after(uint32_t k)
{
	struct outcome outcome;
	bool alive;

	k_now = k;
	round_begin();
	alive = lead(k);
	tracee_kill();
	kills++;
	round_end(&outcome);
	judge(&outcome);
	return alive;
}

static uint64_t until;

static bool time_is_up(void)
{
	return opt.seconds && clock_ns() > until;
}

/* All distinct points, or so many of them. */
static void kill_at_points(uint32_t most)
{
	uint32_t i, stride = most ? 1 + now->npoints / most : 1;

	for (i = (uint32_t)(opt.seed % stride); i < now->npoints && !time_is_up();
	     i += stride) {
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

static void add_pair(const struct role *r, const struct table_state *s,
		     const struct command *c, const struct work *w)
{
	if (!chosen(opt.operation, c ? c->name : w->name) || !chosen(opt.role, r->name) ||
	    !chosen(opt.state, s->name))
		return;
	/* a dead peer is there as long as no writer was: nothing can be prepared */
	if (s->build == state_dead && (c ? r->kind == WRITER || c->prepare
					 : !r->orphan || w->ready == ready_blocks))
		return;
	if (s->build == state_dead && r->wreck)
		return;
	pairs = realloc(pairs, (npairs + 1) * sizeof(*pairs));
	if (!pairs)
		bail("no memory");
	pairs[npairs++] = (struct pair){.role = r,
					.state = s,
					.command = c,
					.work = w,
					.next = MAX(opt.from, 1u)};
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
					add_pair(&roles[r], &states[s], &commands[i],
						 NULL);
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
static void short_form(void)
{
	static const struct {
		const char *operation, *role, *state;
		uint32_t most;
	} some[] = {
		{"ref", "worker", "half", 0},
		{"unref", "worker", "half", 0},
		{"enter", "worker", "half", 0},
		{"leave", "worker", "half", 0},
		{"submit-drop", "served", "half", 0},
		{"attach", "worker", "half", 60},
		{"close", "orphan", "half", 60},
		{"publish", "writer", "full", 60},
		{"publish-known", "writer", "half", 60},
		{"reserve-moves", "writer", "full", 60},
		{"evict-take", "writer", "full", 60},
		{"commit-detached", "writer", "full", 60},
		{"reap", "writer", "half", 60},
		{"publish", "writer", "crowded", 60},
		{"pool-add", "writer", "half", 60},
		{"reserve", "successor", "half", 20},
		{"drop", "wreck-23", "full", 60},
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
			if (some[i].most)
				kill_at_points(some[i].most);
			else
				kill_at_every(UINT64_MAX / 2);
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
			done += kill_at_every(opt.every ? UINT64_MAX / 2
							: 2000 * NS_PER_MS);
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
		{"seconds", required_argument, NULL, 't'},
		{"seed", required_argument, NULL, 's'},
		{"every", no_argument, NULL, 'e'},
		{"operation", required_argument, NULL, 'o'},
		{"role", required_argument, NULL, 'r'},
		{"state", required_argument, NULL, 'a'},
		{"from", required_argument, NULL, 'f'},
		{"points", required_argument, NULL, 'p'},
		OPTION_HELP,
		{NULL, 0, NULL, 0},
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
	return tap_guard(opt.every && !opt.seconds ? 0 : opt.seconds + 120, body,
			 scratch_remove);
}
