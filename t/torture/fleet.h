/* SPDX-License-Identifier: Apache-2.0 */
/* fleet.h - the cast around engines: a keeper of VRAM, RAM for all, a survivor that looks at the
 * bytes of all, a judge of what is at rest, and the hand that kills.  copy.c and transfer.c say
 * what the engines do. */
#ifndef GPC_T_FLEET_H
#define GPC_T_FLEET_H

#include "engine.h"

/* What a keeper does from time to time, with its pool; NULL: nothing. */
static void (*keeper_step)(gpc *c, int pool);

#define ROUND_MS      (opt.is_long ? 1500 : 600)
#define TRANSIT_SLOTS 8

/* ---- the cache ---- */

/* Pools of the dead are on their way out while others come. */
static uint32_t all_blocks(void)
{
	return SHARED + TRANSIT_SLOTS + 4 * KEPT + 3 * 8 * ENGINE;
}

static int fleet_scene_make(int me)
{
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = IMAGE, .threads = 1 };
	struct gpc_config cfg = { .max_blocks = all_blocks(),
				  .max_peers = 32,
				  .max_pools = POOLS,
				  .quarantine_ms = 50,
				  .free_target = scene.exact ? -1 : 4,
				  .tick_us = 100,
				  .ram_blocks = SHARED,
				  .ram_memory = &m };
	gpc *c = crew_create(cfg, 0);

	(void)me;
	gpc_close(c);
	return 0;
}

static void fleet_scene_set(void)
{
	scratch_files("", true);
	memset(page->block, 0, sizeof(page->block));
	page->resting = page->stop = page->leave = 0;
	if (crew_status(crew_fork(fleet_scene_make, PLACES)))
		crew_give_up();
}

static void fleet_scene_draw(void)
{
	static const uint32_t pace[] = { 2000, 4000, 8000, 16000, 32000, 64000 };

	scene = (struct scene){ .engines = true,
				.exact = crew_random(&chance, 2),
				.servers = 2 + crew_random(&chance, 2),
				.lookers = 1,
				.pace_us = pace[crew_random(&chance, 6)] };
}

/* ---- the survivor ---- */

/* Blocks of RAM that it references, written by itself. */
static void survivor_fills(struct actor *w, gpc_key *k, gpc_block *b)
{
	gpc_block at;
	int i, r;

	for (i = 0; i < PINNED / 2; i++) {
		k[i] = pinned_key(i);
		do {
			r = gpc_reserve(w->c, scene.ram, 1, &b[i], NULL, 0, 1000);
			need(r == 1 || r == -ENOTCONN || r == -ETIMEDOUT || r == -ENOSPC ||
				     r == -EAGAIN,
			     "the survivor's reserve: %d, %s", r, gpc_last_error());
		} while (r != 1);
		own(b[i], "the survivor's reserve");
		need(image_write(w->c, b[i], k[i]), "RAM cannot be mapped");
		disown(b[i]);
		do
			publish_and_wait(w, NULL, &k[i], &b[i], 1, 5, &at);
		while (at == -EAGAIN);
		need(at == b[i], "the survivor's publish answers %d", at);
	}
}

/* What it holds, and whatever the others have. */
static void survivor_looks(struct actor *w, const gpc_key *mine, const gpc_block *at)
{
	gpc_key k = image_key(crew_random(&w->seed, KEYS));
	uint32_t s, spaces[2] = { 0, WORKER + crew_random(&w->seed, opt.workers) };
	gpc_block b;
	int i;

	views_tidy(w->c);
	for (i = 0; i < PINNED / 2; i++) {
		need(gpc_lookup(w->c, GPC_SPACE(0), &mine[i], 1, &b, GPC_QUIET) == 1 && b == at[i],
		     "key %d of the survivor is in block 0x%x, not 0x%x", i, (unsigned)b,
		     (unsigned)at[i]);
		image_verify(w->c, b, mine[i], "the survivor's own");
	}
	for (s = 0; s < 2; s++) {
		if (gpc_acquire(w->c, GPC_SPACE(spaces[s]), &k, 1, &b, GPC_QUIET) != 1)
			continue;
		image_verify(w->c, b, k, "acquired by the survivor");
		linger(w);
		image_verify(w->c, b, k, "held by the survivor");
		unref(w, &b, 1);
		count(N_VAULT, 1);
	}
	count(N_LOOKS, 1);
}

static int fleet_survivor(int place)
{
	struct actor w = { 0 };
	gpc_key k[PINNED / 2];
	gpc_block b[PINNED / 2];

	life_begin(place);
	w.seed = crew_mix(opt.seed + 77 + page->count[N_ROUNDS]) | 1;
	w.c = crew_attach("survivor");
	survivor_fills(&w, k, b);
	while (load_acquire(&page->stop) < 2) {
		survivor_looks(&w, k, b);
		nap(300);
	}
	survivor_looks(&w, k, b);
	gpc_close(w.c);
	return 0;
}

/* ---- the keeper ---- */

/* Without a writer it comes again: what it was given goes with the handle. */
static int keeper_main(int place)
{
	struct actor w = { 0 };
	int pool = -1;

	life_begin(place);
	w.seed = my_name;
	while (pool < 0 && !load_acquire(&page->leave)) {
		w.c = crew_attach("keeper");
		pool = vram_make(&w, LAYERED, KEPT, 0, scene.ram);
		if (pool < 0)
			gpc_close(w.c);
	}
	count(N_KEPT, pool >= 0);
	while (!load_acquire(&page->leave)) {
		if (keeper_step && !load_acquire(&page->stop))
			keeper_step(w.c, pool);
		nap(500);
	}
	if (pool >= 0)
		gpc_close(w.c);
	return 0;
}

/* ---- at rest ---- */

static uint32_t references(gpc *c)
{
	uint32_t i, peer, n = 0;

	for (i = 0; i < c->seg.header.geometry.max_blocks; i++)
		for (peer = 0; peer < c->seg.header.geometry.max_peers; peer++)
			n += hold_refs(*seg_cell(&c->seg, i, peer));
	return n;
}

/* No block is claimed, nothing is on its way. */
static bool is_quiet(gpc *c)
{
	struct gpc_transfer_info t = { .size = sizeof(t) };
	struct gpc_claim q;
	uint64_t cursor = 0;

	return gpc_transfer_get(c, 0, &t) == -ENOENT && !gpc_claim_walk(c, &cursor, &q, 1);
}

/* Each file is of a pool, and each pool has its file. */
static bool is_at_rest(gpc *c, int phase, char *why)
{
	struct gpc_stats st = crew_stats(c, -1);
	struct gpc_info info = { .size = sizeof(info) };
	uint32_t refs = references(c), want = phase < 3 ? PINNED / 2 : 0;
	uint32_t peers = scene.servers + 1 + (phase < 3);
	int files = scratch_files(CREW_NAME ".p", false);

	views_tidy(c);
	must_be(gpc_info_get(c, &info), 0);
	snprintf(
		why, 300,
		"%u references of %u, %llu counted, %llu reserved, %llu dying, %u pools, %d files, "
		"%u peers of %u%s",
		refs, want, (unsigned long long)st.refs, (unsigned long long)st.reserved,
		(unsigned long long)st.dying, info.pools, files, info.peers, peers,
		is_quiet(c) ? "" : ", and a claim or a transfer");
	return is_quiet(c) && refs == want && st.refs == want && !st.reserved && !st.dying &&
	       files == (int)info.pools && (phase == 1 || (info.pools == 1 && info.peers == peers));
}

/* Every block that is live anywhere, by a process that has written none. */
static void verify_all(gpc *c)
{
	struct gpc_entry e[32];
	uint64_t cursor = 0;
	int i, n;

	while ((n = gpc_walk(c, &cursor, e, 32)) > 0)
		for (i = 0; i < n; i++) {
			if (gpc_ref(c, &e[i].key, &e[i].block, 1) != 1)
				continue;
			image_verify(c, e[i].block, e[i].key, "at rest");
			must_be(gpc_release(c, &e[i].block, 1), 0);
			count(N_WALKED, 1);
		}
	need(n == 0, "walk: %s", gpc_last_error());
}

static void reserve_ram(gpc *c)
{
	gpc_block b[SHARED];

	int r;

	do /* between two writers there is none */
		r = gpc_reserve(c, scene.ram, SHARED, b, NULL, 0, 20000);
	while (r == -ENOTCONN);
	must_be(r, SHARED);
	must_be(gpc_release(c, b, SHARED), 0);
}

/* Whose references are left: of records that the survivor has none on. */
static void tell_references(gpc *c)
{
	uint32_t i, peer, peers = c->seg.header.geometry.max_peers;

	for (i = 0; i < c->seg.header.geometry.max_blocks; i++)
		for (peer = 0; peer < peers; peer++) {
			const struct shm_record *r = seg_record(&c->seg, i);
			const struct shm_seat *s = seg_seat(&c->seg, peer);

			if (!hold_refs(*seg_cell(&c->seg, i, peer)))
				continue;
			fprintf(stderr,
				"# record %u, word %x, key %llx, op %llx, source %u, flags %x: cell %x of peer %u, "
				"pid %d, head %llu, tail %llu, taken %llu, refs %llu\n",
				i, (unsigned)r->word, (unsigned long long)r->key[0],
				(unsigned long long)r->op, (unsigned)r->source, (unsigned)r->flags,
				(unsigned)*seg_cell(&c->seg, i, peer), peer, (int)s->pid,
				(unsigned long long)s->head, (unsigned long long)s->tail,
				(unsigned long long)s->taken, (unsigned long long)s->refs);
		}
}

/* 1: all are alive; 2: the engines and the keeper are gone; 3: the survivor is, too. */
static int fleet_judge(int phase)
{
	uint64_t until = clock_ns() + 90000 * NS_PER_MS;
	char why[300] = "";
	gpc *c;

	life_begin(PLACES - 1);
	c = crew_attach("judge");
	while (!is_at_rest(c, phase, why)) {
		if (clock_ns() >= until)
			tell_references(c);
		need(clock_ns() < until, "at rest, phase %d: %s", phase, why);
		nap(1000);
	}
	verify_all(c);
	crew_check(c);
	if (phase == 3)
		reserve_ram(c);
	gpc_close(c);
	return 0;
}

/* The cache goes, and everything with it but what engines had lent. */
static void unlink_all(void)
{
	int left;

	must_be(gpc_unlink(CREW_NAME, scratch), 0);
	scratch_files("lent-", true);
	left = scratch_files("", false);
	if (left) {
		diag("%s", round_name);
		bail("%d files are left", left);
	}
}

/* ---- kills ---- */

static uint64_t kills(void)
{
	return page->count[N_KILLED_SERVERS] + page->count[N_KILLED_WORKERS] +
	       page->count[N_KILLED_LOOKERS];
}

static uint32_t draw_places(void)
{
	uint32_t server = 1u << (SERVER + crew_random(&chance, scene.servers));
	uint32_t engine = 1u << (WORKER + crew_random(&chance, opt.workers));

	switch (crew_random(&chance, 16)) {
	case 0:
		return ((1u << opt.workers) - 1) << WORKER;
	case 1:
		return server | engine;
	case 2:
		return 7u << SERVER | engine;
	case 3:
	case 4:
		return 1u << LOOKER;
	case 5:
		return 1u << LOOKER | engine | server;
	case 6:
	case 7:
	case 8:
		return server;
	default:
		return engine;
	}
}

static void signal_places(uint32_t places, int signal)
{
	int place;

	for (place = 0; place < TEAM; place++)
		if (places >> place & 1 && team[place] > 0)
			kill(team[place], signal);
}

/* Stopped for a while; somebody else, or one of them, is killed meanwhile. */
static void act_of_chance(void)
{
	uint32_t stopped = crew_random(&chance, 4) ? 0 : draw_places() | draw_places();

	if (stopped) {
		signal_places(stopped, SIGSTOP);
		nap(crew_random(&chance, 30000));
		count(N_STOPPED, 1);
	}
	if (!stopped || crew_random(&chance, 2))
		strike(draw_places());
	signal_places(stopped, SIGCONT);
}

static void fleet_round(const char *what, uint64_t until)
{
	uint64_t end = clock_ns() + stretch * ROUND_MS * NS_PER_MS;

	fleet_scene_draw();
	round_begin(what);
	while (clock_ns() < MIN(end, until) && kills() < opt.kills) {
		nap(stretch * crew_random(&chance, 2 * scene.pace_us));
		tend();
		act_of_chance();
	}
	round_end();
	unlink_all();
}

/* ---- the whole ---- */

/* What was counted; 0 counts as nothing done, but for what only chance brings. */
struct tally {
	int n;
	const char *what;
	bool may_be_none;
};

static bool all_done(const struct tally *t, uint32_t n)
{
	bool all = true;
	uint32_t i;

	for (i = 0; i < n; i++)
		all &= page->count[t[i].n] || t[i].may_be_none;
	return all;
}

static void fleet_tell(const struct tally *t, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		diag("%12llu %s", (unsigned long long)page->count[t[i].n], t[i].what);
	ok(all_done(t, n), "all of it was done");
}

static void fleet_run(const char *what, const struct tally *t, uint32_t n)
{
	uint64_t until = clock_ns() + opt.seconds * 1000 * NS_PER_MS;

	diag("--seed %llu", (unsigned long long)opt.seed);
	torture_begin();
	cast = (struct cast){ fleet_survivor, server_main, engine_main,
			      keeper_main,    fleet_judge, fleet_scene_set };
	chance = crew_mix(opt.seed) | 1;
	while (short_goes_on(&until, kills(), all_done(t, n)))
		fleet_round(what, until);
	ok(kills() > 0,
	   "%llu kills (%llu servers, %llu engines, %llu keepers) in %llu rounds: no other bytes, "
	   "nothing held or left over",
	   (unsigned long long)kills(), (unsigned long long)page->count[N_KILLED_SERVERS],
	   (unsigned long long)page->count[N_KILLED_WORKERS],
	   (unsigned long long)page->count[N_KILLED_LOOKERS],
	   (unsigned long long)page->count[N_ROUNDS]);
}

#endif
