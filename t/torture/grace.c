/* SPDX-License-Identifier: Apache-2.0 */
/* No id is used again before the sections end that have seen it, those around device
 * work included, whoever is stopped or killed meanwhile.  As in rcutorture, ages are
 * counted in grace periods and printed: how old an id was when it was used again, and
 * how old it was while a section still had it.
 *
 *   --seconds N --kills N --seed S --workers N
 * Tests: lib/index/peer/epoch.c lib/index/table/grace.c */
#include "hands.h"

#include "bytes/device/device.h"
#include "bytes/device/host_stream.h"

#define ROUND_MS 2000
#define READERS  4
#define OPEN     4 /* sections of one reader at a time */

enum { N_STOPPED = N_MORE, N_STOPPED_SERVERS, N_STALE };

/* ---- readers: host sections, which overlap ---- */

static void open_or_end(gpc *c, struct grip *g, uint64_t *seed)
{
	if (g->section >= 0) {
		grip_release(g, &c->seg);
		gpc_section_leave(c, g->section);
		g->section = -1;
		return;
	}
	g->section = gpc_section_enter(c);
	need(g->section >= 0, "enter: %s", gpc_last_error());
	grip_chain(g, seed);
	need(gpc_lookup(c, GPC_SPACE(0), g->key, DEEP, g->block, 0) >= 0, "lookup");
	grip_take(g);
}

static void read_on_host(gpc *c, uint64_t *seed)
{
	struct grip g[OPEN];
	int i;

	for (i = 0; i < OPEN; i++)
		g[i] = (struct grip){ .section = -1 };
	while (!load_acquire(&page->stop)) {
		open_or_end(c, &g[crew_random(seed, OPEN)], seed);
		if (!crew_random(seed, 4))
			nap(crew_random(seed, 2000));
	}
	for (i = 0; i < OPEN; i++)
		if (g[i].section >= 0)
			open_or_end(c, &g[i], seed);
}

/* ---- readers: device sections, which end when the stream gets there ---- */

struct flight {
	struct grip grip;
	gpc *c;
	uint32_t busy;
};

struct look {
	struct stream_job job;
	struct flight *flight;
};

/* In the stream, behind the lookup. */
static void look_first(struct stream_job *job)
{
	grip_take(&((struct look *)job)->flight->grip);
}

/* In the stream, some time later, before the section ends. */
static void look_again(struct stream_job *job)
{
	struct flight *f = ((struct look *)job)->flight;

	grip_release(&f->grip, &f->c->seg);
	store_release(&f->busy, 0);
}

static void submit(struct flight *f, void (*run)(struct stream_job *), uint32_t delay_us)
{
	struct look *l = calloc(1, sizeof(*l));

	need(l, "no memory");
	l->job.run = run;
	l->job.delay_us = delay_us;
	l->flight = f;
	must_be(stream_submit(&l->job), 0);
}

static void launch(gpc_dev *d, struct flight *f, uint64_t *seed)
{
	int section = gpc_dev_enter(d);

	if (section < 0) {
		need(section == -ESTALE || section == -EAGAIN, "dev_enter: %s", gpc_last_error());
		count(N_STALE, 1);
		nap(500);
		return;
	}
	store_relaxed(&device_host_delay_us, crew_random(seed, 2) ? crew_random(seed, 1500) : 0);
	f->busy = 1;
	f->grip.device = 1;
	grip_chain(&f->grip, seed);
	must_be(gpc_dev_lookup(d, GPC_SPACE(0), f->grip.key, DEEP, f->grip.block, NULL), 0);
	submit(f, look_first, 0);
	submit(f, look_again, crew_random(seed, 2) ? crew_random(seed, 3000) : 0);
	must_be(gpc_dev_leave(d, section, NULL), 0);
}

static void read_on_device(gpc *c, uint64_t *seed)
{
	static struct flight flight[OPEN];
	gpc_dev *d = NULL;
	uint32_t i;
	int r;

	for (i = 0; i < OPEN; i++)
		flight[i].c = c;
	while (!load_acquire(&page->stop)) {
		r = d ? 0 : gpc_dev_open(c, "host", &d);
		need(!r || r == -ESTALE, "dev_open: %s", gpc_last_error());
		i = (i + 1) % OPEN;
		if (d && !load_acquire(&flight[i].busy))
			launch(d, &flight[i], seed);
		else
			nap(300);
	}
	if (!d)
		return;
	must_be(gpc_dev_wait(d, NULL, -1), 0);
	must_be(gpc_dev_close(d), 0);
}

static int reader_main(int place)
{
	uint64_t seed;
	gpc *c;

	life_begin(place);
	seed = crew_mix(opt.seed + my_name + (page->count[N_ROUNDS] << 32)) | 1;
	c = crew_attach(place & 1 ? "device" : "reader");
	if (place & 1)
		read_on_device(c, &seed);
	else
		read_on_host(c, &seed);
	while (!load_acquire(&page->leave))
		nap(500);
	gpc_close(c);
	return 0;
}

/* ---- the boss ---- */

/* A reader mostly, else a worker or a writer. */
static void stop_somebody(void)
{
	int place = LOOKER + (int)crew_random(&chance, READERS);

	if (!crew_random(&chance, 6)) {
		place = SERVER + (int)crew_random(&chance, scene.servers);
		count(N_STOPPED_SERVERS, 1);
	} else if (!crew_random(&chance, 6)) {
		place = WORKER + (int)crew_random(&chance, opt.workers);
	}
	count(N_STOPPED, 1);
	kill(team[place], SIGSTOP);
	nap(crew_random(&chance, crew_random(&chance, 8) ? 8000 : 60000));
	kill(team[place], SIGCONT);
}

static uint64_t kills(void)
{
	return page->count[N_KILLED_SERVERS] + page->count[N_KILLED_WORKERS];
}

static void round_of_sections(uint64_t until)
{
	uint64_t end = clock_ns() + stretch * ROUND_MS * NS_PER_MS;

	scene_draw(&chance);
	scene.engines = false;
	scene.vram = 1;
	scene.vault = 2;
	scene.pools = 3;
	scene.mirror = true;
	scene.lookers = READERS;
	hands_clear();
	store_relaxed(&device_host_flush_delay_us, crew_random(&chance, 2) * 300);
	round_begin("grace:");
	while (clock_ns() < MIN(end, until) && kills() < opt.kills) {
		nap(stretch * crew_random(&chance, 4000));
		tend();
		stop_somebody();
		if (!crew_random(&chance, 8))
			strike(1u << (SERVER + (int)crew_random(&chance, scene.servers)));
		if (!crew_random(&chance, 8))
			strike(1u << (WORKER + (int)crew_random(&chance, opt.workers)));
	}
	round_end();
}

static void histogram(const char *what, const uint64_t *ages)
{
	char line[300];
	int i, n = 0;

	for (i = 0; i < AGES; i++)
		n += snprintf(line + n, sizeof(line) - (size_t)n, " %llu",
			      (unsigned long long)ages[i]);
	diag("%-34s%s", what, line);
}

static uint64_t from(const uint64_t *ages, int age)
{
	uint64_t n = 0;

	for (; age < AGES; age++)
		n += ages[age];
	return n;
}

static bool were_held(void)
{
	return from(hands->reused, 1) && from(hands->held[0], 0) && from(hands->held[1], 0);
}

static void tell(void)
{
	const uint64_t *n = page->count;

	diag("ages in grace periods: 0, 1, 2, ... %d or more", AGES - 1);
	histogram("used again, by those ended since", hands->reused);
	histogram("in a host section, those begun", hands->held[0]);
	histogram("in a host section, those ended", hands->ended[0]);
	histogram("in a device section, begun", hands->held[1]);
	histogram("in a device section, ended", hands->ended[1]);
	diag("%llu ids used again without a stamp (a first time, a writer that died, "
	     "a pool that went)",
	     (unsigned long long)hands->unstamped);
	diag("%llu acts, %llu device sections refused, %llu servers and %llu workers "
	     "killed",
	     (unsigned long long)n[N_ACTS], (unsigned long long)n[N_STALE],
	     (unsigned long long)n[N_KILLED_SERVERS], (unsigned long long)n[N_KILLED_WORKERS]);
	is_int(hands->reused[0], 0, "no id of %llu was used again within its grace period",
	       (unsigned long long)from(hands->reused, 0));
	is_int(from(hands->ended[0], 1), 0,
	       "%llu ids in %llu host sections: no grace period of "
	       "theirs ended before the section",
	       (unsigned long long)hands->seen[0], (unsigned long long)hands->sections[0]);
	is_int(from(hands->ended[1], 1), 0, "%llu ids in %llu device sections: the same",
	       (unsigned long long)hands->seen[1], (unsigned long long)hands->sections[1]);
	ok(were_held(), "sections had ids that were removed under them");
	ok(n[N_STOPPED] > 0, "%llu stops, %llu of them of the writer or a standby, in %llu rounds",
	   (unsigned long long)n[N_STOPPED], (unsigned long long)n[N_STOPPED_SERVERS],
	   (unsigned long long)n[N_ROUNDS]);
}

static int body(void)
{
	uint64_t until = clock_ns() + opt.seconds * 1000 * NS_PER_MS;

	diag("--seed %llu", (unsigned long long)opt.seed);
	torture_begin();
	hands_begin();
	owned = reused;
	cast.looker = reader_main;
	chance = crew_mix(opt.seed) | 1;
	while (short_goes_on(&until, kills(), were_held() && page->count[N_STOPPED]))
		round_of_sections(until);
	tell();
	return done_testing();
}

int main(int argc, char **argv)
{
	opt = (struct options){ .seconds = 5, .kills = UINT64_MAX, .workers = 3 };
	options_read(argc, argv);
	scratch_make("torture-grace");
	return tap_guard(opt.seconds + 90, body, scratch_remove);
}
