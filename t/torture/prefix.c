/* SPDX-License-Identifier: Apache-2.0 */
/* Every prefix of a writer's stores, for random sequences of commands: copied, taken over,
 * checked, and compared with what was acknowledged.
 *
 * A sequence has a cache of its own, workers who bring it into some state, and a few acts more
 * during which the writer is stopped before each of its stores.  Some of the takeovers are
 * themselves stopped before each store, for a successor's successor.  One process, without
 * threads, time or chance (world.h): --seed S --sequence I --store N goes to a failure.
 * Tests: lib/index/takeover/takeover.c lib/index/takeover/table.c lib/index/takeover/others.c lib/index/takeover/tree.c
 *   lib/index/table/record.c */
#include <malloc.h>

#include "course.h"
#include "t/lib/options.h"

#define NEST  200 /* of so many takeovers, one is recorded too */
#define KINDS ARRAY_SIZE(acts)

static struct {
	uint64_t seed, sequences, sequence, store, nest;
	uint32_t seconds;
	bool only, is_long;
} opt = { .seed = 1, .sequences = 70, .nest = NEST };

static struct {
	uint64_t sequence, relocated, full, deepest, deepest_at, stores[KINDS], acts[KINDS];
} seen;
static const struct act *now_doing; /* NULL: nothing that is recorded */
static uint64_t now_kind;

static void where(void)
{
	int l;

	printf("# --seed %llu --sequence %llu --store %llu: during \"%s\"",
	       (unsigned long long)opt.seed, (unsigned long long)seen.sequence,
	       (unsigned long long)recorder[0].stores, now_doing ? now_doing->name : "nothing");
	for (l = 1; l + 1 < LEVELS; l++)
		if (recorder[l].on)
			printf(", before store %llu of its successor",
			       (unsigned long long)recorder[l].stores);
	printf("\n");
}

static uint64_t mix_here(uint64_t n)
{
	return world_mix(world_mix(world_mix(opt.seed) + seen.sequence) + n);
}

static bool nests(void)
{
	recorder[1].stores = 0;
	return opt.only && opt.store ? true : mix_here(recorder[0].stores) % opt.nest == 0;
}

static void stop(int level)
{
	if (level == 0)
		seen.stores[now_kind]++;
	if (!opt.store || recorder[0].stores == opt.store)
		judge(level + 1);
}

/* ---- a sequence's caches ---- */

static gpc *attach(const char *name)
{
	struct gpc_attach_options o = { .size = sizeof(o), .dir = scratch };
	gpc *c = NULL;

	must_be(gpc_attach(name, &o, 0, &c), 0);
	return c;
}

static void make_pools(gpc *c)
{
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = GPC_RAM,
			      .blocks = 4 + draw(5),
			      .transit = 2 + draw(3),
			      .demote_to = -1 };

	must_be(gpc_pool_make(c, &p, NULL, -1), RAM);
	p = (struct gpc_pool){
		.size = sizeof(p), .kind = GPC_VRAM, .blocks = 7 + draw(6), .demote_to = RAM
	};
	must_be(gpc_pool_make(c, &p, NULL, -1), VRAM);
	ledger.pool[RAM].ready = ledger.pool[VRAM].ready = true;
}

/* Keys; if the table is to be crowded in a few buckets, of which some have a way out. */
static void make_keys(gpc *c, uint32_t buckets)
{
	uint64_t n = 1;
	int k;

	for (k = 0; k < KEYS; n++) {
		gpc_key key = { { world_mix(2 * n + 1), world_mix(~n) & ~KEY_ROOT_BIT } };
		struct probe_key p =
			probe_prepare(key.w[0] ^ c->mask[0].w[0], key.w[1] ^ c->mask[0].w[1],
				      c->seg.header.geometry.buckets);

		if ((p.first < buckets) + (p.second < buckets) >= (k % 3 ? 2 : 1))
			ledger_key[k++] = key;
	}
}

/* Its writer sits where that of the first cache has a seat kept for it. */
static void make_cache(int level, const struct gpc_config *cfg)
{
	struct gpc_attach_options o = { .size = sizeof(o), .dir = scratch };
	char name[2] = { (char)('a' + level), 0 };
	gpc *c[LEVELS];
	int i;

	must_be(gpc_create(name, cfg, &o, 0, &c[0]), 0);
	for (i = 1; i <= level; i++)
		c[i] = attach(name);
	cache[level].c = c[level];
	must_be(c[level]->peer, level);
	recorder_segment[level] = &c[level]->seg;
	for (i = 0; i < level; i++)
		must_be(gpc_close(c[i]), 0);
	if (!level)
		return;
	must_be(__wrap_segment_map_writer(&c[level]->seg, &cache[level].index), 0);
	cache[level].others = segment_open_lock(&c[level]->seg);
	for (i = level + 1; i < (int)PEERS; i++)
		must_be(lock_try(cache[level].others, LOCK_PEER(i)), 0);
}

static gpc *kept[LEVELS];

static void sequence_begin(void)
{
	bool crowd = draw(4);
	struct gpc_config cfg = { .size = sizeof(cfg),
				  .dir = scratch,
				  .max_blocks = 40,
				  .max_peers = PEERS,
				  .max_pools = POOLS,
				  .tick_us = 1,
				  .free_target = -1,
				  .quarantine_ms = 20,
				  .devices = draw(3) ? "none" : "host" };
	int i;

	memset(&ledger, 0, sizeof(ledger));
	memset(recorder, 0, sizeof(recorder));
	memset(&feed, 0, sizeof(feed));
	memset(feed.at, 0xff, sizeof(feed.at));
	world_secrets = mix_here(~0ull);
	for (i = 0; i < LEVELS; i++)
		make_cache(i, &cfg);
	for (i = 1; i < LEVELS; i++)
		kept[i] = attach("a");
	for (i = 0; i < WORKERS; i++) {
		worker[i] = (struct actor){ .c = attach("a") };
		worker[i].peer = worker[i].c->peer;
		must_be(worker[i].peer, LEVELS + i);
	}
	for (i = 0; i < (int)PEERS; i++)
		person[i] = seg_seat(&cache[0].c->seg, (uint32_t)i)->start_time;
	must_be(gpc_writer_take(cache[0].c, 0, 0), 0);
	make_pools(cache[0].c);
	ledger.full = crowd;
	make_keys(cache[0].c, crowd ? 2 + draw(2) : UINT32_MAX);
}

static void sequence_end(void)
{
	int i;

	for (i = 1; i < LEVELS; i++)
		must_be(gpc_close(kept[i]), 0);
	for (i = 0; i < WORKERS; i++)
		must_be(gpc_close(worker[i].c), 0);
	for (i = 0; i < LEVELS; i++) {
		char name[2] = { (char)('a' + i), 0 };

		if (i)
			close(cache[i].others);
		must_be(gpc_close(cache[i].c), 0);
		munmap(recorder[i].at[0], recorder[i].bytes[0]);
		recorder_segment[i] = NULL;
		must_be(gpc_unlink(name, scratch), 0);
	}
}

/* ---- sequences ---- */

static void record(uint32_t n)
{
	struct actor *w;

	judge_prepare();
	while (n--) {
		now_doing = course_next(&w, true);
		now_kind = (uint64_t)(now_doing - acts);
		seen.acts[now_kind]++;
		recorder_on(0);
		now_doing->act(w);
		recorder_off(0);
	}
}

static void sequence(uint64_t number)
{
	const struct shm_state *state;
	struct actor *w;
	uint32_t n;

	seen.sequence = number;
	world_begin(mix_here(0));
	now_doing = NULL;
	sequence_begin();
	state = seg_state(&cache[0].c->seg);
	for (n = draw(20); n; n--)
		course_fill();
	for (n = 10 + draw(40); n; n--)
		course_next(&w, false)->act(w);
	for (n = draw(10); n; n--)
		course_fill();
	recorder[0].stores = 0;
	seen.relocated -= state->relocated;
	seen.full -= state->no_bucket;
	record(6 + draw(7));
	seen.relocated += state->relocated;
	seen.full += state->no_bucket;
	if (recorder[0].stores > seen.deepest) {
		seen.deepest = recorder[0].stores;
		seen.deepest_at = number;
	}
	now_doing = NULL;
	course_turns = 0;
	judge_living();
	sequence_end();
}

static void print_kinds(void)
{
	size_t i, j;
	uint64_t n, m;

	for (i = 0; i < KINDS; i++) {
		if (i && acts[i].act == acts[i - 1].act)
			continue;
		for (n = m = 0, j = i; j < KINDS && acts[j].act == acts[i].act; j++) {
			n += seen.stores[j];
			m += seen.acts[j];
		}
		diag("%-10s %8llu acts, %10llu prefixes", acts[i].name, (unsigned long long)m,
		     (unsigned long long)n);
	}
}

static int body(void)
{
	time_t end = time(NULL) + opt.seconds;
	uint64_t i, n = 0;

	world_where = where;
	world_turn = course_turn;
	ledger_is_held = is_held;
	recorder_stop = stop;
	judge_nests = nests;
	diag("--seed %llu", (unsigned long long)opt.seed);
#ifndef __x86_64__
	plan_skip_all("a writer is stopped before each store on x86-64 only");
#else
	recorder_begin();
#endif
	for (i = opt.sequence; opt.seconds ? time(NULL) < end : n < opt.sequences; i++, n++) {
		sequence(i);
		if (opt.is_long && n % 500 == 499)
			diag("%llu sequences, %llu prefixes", (unsigned long long)n + 1,
			     (unsigned long long)(judged[1] + judged[2]));
	}
	print_kinds();
	diag("%llu relocations, %llu keys without a place", (unsigned long long)seen.relocated,
	     (unsigned long long)seen.full);
	ok(judged[1] > 0,
	   "%llu sequences: %llu prefixes of writers and %llu of their successors "
	   "were taken over; the deepest sequence, %llu, has %llu",
	   (unsigned long long)n, (unsigned long long)judged[1], (unsigned long long)judged[2],
	   (unsigned long long)seen.deepest_at, (unsigned long long)seen.deepest);
	return done_testing();
}

static const char help[] =
	"  --seconds N     how long, or\n"
	"  --sequences N   how many sequences; without either the short form of make check\n"
	"  --seed S        what is drawn\n"
	"  --sequence I    this sequence only, or the first of a long form\n"
	"  --store N       its state before this store of the writer only\n"
	"  --nest N        of so many takeovers one is stopped before each of its own stores\n"
	"  -h, --help\n";

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "sequences", required_argument, NULL, 'n' },
		{ "seconds", required_argument, NULL, 't' },
		{ "sequence", required_argument, NULL, 'i' },
		{ "store", required_argument, NULL, 'o' },
		{ "nest", required_argument, NULL, 'e' },
		OPTION_HELP,
		{ NULL, 0, NULL, 0 },
	};
	int o;

	while ((o = option_next(argc, argv, known, help)) != -1) {
		switch (o) {
		case 's':
			opt.seed = option_number(optarg, "seed", 0, UINT64_MAX);
			break;
		case 'n':
			opt.sequences = option_number(optarg, "sequences", 1, UINT64_MAX);
			break;
		case 't':
			opt.seconds = (uint32_t)option_number(optarg, "seconds", 1, MOST_SECONDS);
			break;
		case 'i':
			opt.sequence = option_number(optarg, "sequence", 0, UINT64_MAX);
			opt.only = true;
			opt.sequences = 1;
			break;
		case 'o':
			opt.store = option_number(optarg, "store", 1, UINT64_MAX);
			break;
		default:
			opt.nest = option_number(optarg, "nest", 1, UINT64_MAX);
		}
		opt.is_long |= o == 'n' || o == 't';
	}
	/* some ten thousand takeovers take and give back the same memory: the system need not clear it anew
	 * for each of them */
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	mallopt(M_MMAP_THRESHOLD, 4 << 20);
	scratch_make("prefix");
	return tap_guard(opt.is_long ? 30 * 24 * 3600 : 600, body, scratch_remove);
}
