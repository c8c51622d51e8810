/* SPDX-License-Identifier: Apache-2.0 */
/* Threads instead of processes, for the thread sanitizer too: peers with a handle each, and
 * threads that share one, all in the process that is also the writer.
 * Tests: lib/index/peer/handle.c lib/index/peer/ring.c lib/index/peer/hold.c */
#include "t/lib/crew.h"

#include <pthread.h>

#include "gpc_device.h"

#define VRAM    64
#define RAM     32
#define OWN     3 /* threads with a handle each */
#define SHARED  4 /* threads that share one */
#define THREADS (OWN + SHARED + 3)
#define CHAINS  24
#define DEEP    6

#ifdef __SANITIZE_THREAD__
#define REQUESTS 150
#else
#define REQUESTS 600
#endif

enum { GATE_END };
enum { N_HIT, N_PUBLISHED, N_DUPLICATE, N_MOVED, N_DEVICE, N_WALKED, N_FORKED };

static gpc *common;

static void count(int what, uint64_t n)
{
	__atomic_fetch_add(&crew->count[what], n, __ATOMIC_RELAXED);
}

struct work {
	gpc *c;
	uint64_t seed;
	uint32_t n, hit, got;
	gpc_key key[DEEP + 1];
	gpc_block block[DEEP], at[DEEP];
};

static void verify(const struct work *w)
{
	uint32_t i;

	for (i = 0; i < w->hit + w->got; i++)
		need(w->at[i] < 0 || crew_holds(w->at[i], w->key[i + 1]),
		     "block 0x%x has other bytes", (unsigned)w->at[i]);
}

static void compute(struct work *w)
{
	int i, got = gpc_reserve(w->c, 0, w->n - w->hit, w->block, NULL, GPC_PARTIAL, -1);
	int n;

	need(got > 0 || got == -ENOSPC, "reserve: %s", gpc_last_error());
	w->got = got > 0 ? (uint32_t)got : 0;
	for (i = 0; i < got; i++)
		crew_write(w->block[i], w->key[w->hit + (uint32_t)i + 1]);
	if (got <= 0)
		return;
	n = gpc_publish(w->c, w->key + w->hit, w->key + w->hit + 1, w->block, w->got,
			GPC_OPTIONS(gpc_publish_options, .tag = 1, .resident = w->at + w->hit), 0,
			-1);
	need(n >= 0, "publish: %s", gpc_last_error());
	count(N_PUBLISHED, (uint64_t)n);
	for (i = 0; i < got; i++) {
		gpc_block at = w->at[w->hit + (uint32_t)i];

		need(at >= 0 || at == -ENOENT || at == -EAGAIN, "publish answers %d", at);
		count(N_DUPLICATE, at >= 0 && at != w->block[i]);
		if (at != w->block[i])
			must_be(gpc_release(w->c, &w->block[i], 1), 0);
		if (at < 0)
			w->at[w->hit + (uint32_t)i] = GPC_NONE;
	}
	verify(w);
}

static void request(struct work *w)
{
	uint32_t i, chain = crew_random(&w->seed, CHAINS);
	int hit;

	w->n = 1 + crew_random(&w->seed, DEEP);
	for (i = 1; i <= w->n; i++)
		w->key[i] = crew_key(chain * 100 + i);
	hit = gpc_acquire(w->c, 0, w->key + 1, w->n, w->at, 0);
	need(hit >= 0, "acquire: %s", gpc_last_error());
	w->hit = (uint32_t)hit;
	w->got = 0;
	count(N_HIT, w->hit);
	verify(w);
	if (w->hit < w->n)
		compute(w);
	must_be(gpc_release(w->c, w->at, w->hit + w->got), 0);
}

static void demote(struct work *w)
{
	struct gpc_move m[2];
	int i, n = gpc_demote(w->c, 0, 1, NULL, 2, m, 0, -1);

	need(n > 0 || n == -ENOSPC, "demote: %s", gpc_last_error());
	for (i = 0; i < n; i++)
		crew_copy(m[i].from, m[i].to);
	if (n > 0)
		need(gpc_commit(w->c, m, (uint32_t)n, NULL, 0, -1) >= 0, "commit: %s",
		     gpc_last_error());
	count(N_MOVED, n > 0 ? (uint64_t)n : 0);
}

/* ---- threads ---- */

static void *worker(void *arg)
{
	uint64_t me = (uint64_t)(uintptr_t)arg;
	struct work w = { .c = me < OWN ? crew_attach("thread") : common, .seed = 11 + me };
	int i, section;

	for (i = 0; i < REQUESTS; i++) {
		request(&w);
		if (!crew_random(&w.seed, 8))
			demote(&w);
		if (crew_random(&w.seed, 8))
			continue;
		section = gpc_section_enter(w.c);
		need(section >= 0, "enter: %s", gpc_last_error());
		must_be(gpc_reserve(w.c, 0, 1, w.block, NULL, 0, -1), -EDEADLK);
		gpc_section_leave(w.c, section);
		/* comes and goes with its handle */
		if (me < OWN && !crew_random(&w.seed, 4)) {
			gpc_close(w.c);
			w.c = crew_attach("thread");
		}
	}
	if (me < OWN)
		gpc_close(w.c);
	return NULL;
}

static void *tool(void *arg)
{
	struct gpc_entry entry[32];
	struct gpc_event change[32];
	uint64_t cursor, feed = 0;
	int n;

	while (crew_goes_on(GATE_END, 1)) {
		for (cursor = 0; (n = gpc_walk(common, &cursor, entry, 32)) > 0;)
			count(N_WALKED, (uint64_t)n);
		need(n == 0, "walk: %s", gpc_last_error());
		n = gpc_event_read(common, &feed, change, 32);
		need(n >= 0 || n == -ESTALE, "changes: %s", gpc_last_error());
		need(crew_stats(common, -1).live <= VRAM + RAM + 64, "stats");
		need(gpc_pool_available(common, 0) >= 0, "avail: %s", gpc_last_error());
	}
	return arg;
}

static void *device(void *arg)
{
	gpc_key k[CHAINS];
	gpc_block b[CHAINS];
	gpc_dev *d;
	int i, section;

	for (i = 0; i < CHAINS; i++)
		k[i] = crew_key((uint64_t)i * 100 + 1);
	must_be(gpc_dev_open(common, "host", &d), 0);
	while (crew_goes_on(GATE_END, 1)) {
		section = gpc_dev_enter(d);
		need(section >= 0, "dev_enter: %s", gpc_last_error());
		must_be(gpc_dev_lookup(d, 0, k, CHAINS, b, NULL), 0);
		must_be(gpc_dev_wait(d, NULL, -1), 0);
		for (i = 0; i < CHAINS; i++)
			need(b[i] < 0 || crew_holds(b[i], k[i]), "other bytes");
		must_be(gpc_dev_leave(d, section, NULL), 0);
		count(N_DEVICE, 1);
	}
	must_be(gpc_dev_close(d), 0);
	return arg;
}

/* Forks while the others are at work. */
static void *forker(void *arg)
{
	gpc_key k = crew_key(1);
	gpc_block b;
	pid_t pid;

	while (crew_goes_on(GATE_END, 1)) {
		pid = fork();
		if (!pid)
			_exit(gpc_lookup(common, 0, &k, 1, &b, 0) != -ECHILD);
		must_be(crew_status(pid), 0);
		count(N_FORKED, 1);
		crew_breath();
	}
	return arg;
}

static void run_all(void)
{
	static void *(*const other[3])(void *) = { tool, device, forker };
	pthread_t thread[THREADS];
	uint64_t i;

	for (i = 0; i < THREADS; i++)
		must_be(pthread_create(&thread[i], NULL,
				       i < OWN + SHARED ? worker : other[i - OWN - SHARED],
				       (void *)(uintptr_t)i),
			0);
	for (i = 0; i < OWN + SHARED; i++)
		must_be(pthread_join(thread[i], NULL), 0);
	crew_open(GATE_END);
	for (; i < THREADS; i++)
		must_be(pthread_join(thread[i], NULL), 0);
}

static int body(void)
{
	struct gpc_config cfg = { .vram_blocks = VRAM,
				  .ram_blocks = RAM,
				  .tick_us = 1,
				  .devices = "host",
				  .max_peers = OWN + 2 };
	struct gpc_stats st;
	gpc *c;

	crew_begin();
	c = crew_create(cfg, GPC_SERVE);
	common = crew_attach("shared");
	run_all();
	ok(crew->count[N_HIT] && crew->count[N_PUBLISHED] && crew->count[N_MOVED],
	   "%llu hits, %llu published, %llu duplicates, %llu moved",
	   (unsigned long long)crew->count[N_HIT], (unsigned long long)crew->count[N_PUBLISHED],
	   (unsigned long long)crew->count[N_DUPLICATE], (unsigned long long)crew->count[N_MOVED]);
	ok(crew->count[N_DEVICE] && crew->count[N_WALKED] && crew->count[N_FORKED],
	   "%llu device lookups, %llu entries walked, %llu forks",
	   (unsigned long long)crew->count[N_DEVICE], (unsigned long long)crew->count[N_WALKED],
	   (unsigned long long)crew->count[N_FORKED]);
	st = crew_stats(common, crew_seat(common));
	is_int(st.refs, 0, "the shared handle holds no reference");
	gpc_close(common);
	crew_until(crew_stats(c, -1).reserved == 0, crew_breath());
	st = crew_stats(c, -1);
	is_int(st.refs + st.reserved + st.sections, 0, "nobody holds anything");
	is_int(gpc_check(c, NULL, NULL), 0, "the check is clean");
	gpc_close(c);
	return done_testing();
}

int main(void)
{
	scratch_make("t250");
	return tap_guard(120, body, scratch_remove);
}
