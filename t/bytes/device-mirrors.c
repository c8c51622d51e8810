/* SPDX-License-Identifier: Apache-2.0 */
/* Mirrors that come and go while a device is open: another writer's, one whose flush
 * fails, one whose flush never ends; several handles of a process on one device.  On
 * the host device, or on the GPU of GPC_TEST_DEVICE.
 * Tests: lib/index/writer/mirrors.c lib/index/table/mirror.c lib/bytes/mirror/view.c
 *   lib/bytes/device/device.c lib/bytes/device/cuda_mirror.c */
#include "t/lib/mirrors.h"
#include "t/lib/lag.h"

#include "bytes/device/device.h"
#ifdef HAVE_CUDA
#include "bytes/device/cuda.h"
#endif

enum { KEYS = 16 };

static gpc_key key[KEYS];

static struct gpc_mirror mirror_of(gpc *c)
{
	struct gpc_mirror m = { .size = sizeof(m) };

	must(gpc_mirror_get(c, 0, &m));
	return m;
}

static char heard[400];

static void hear(void *arg, int level, const char *text)
{
	(void)arg;
	if (level <= 3 && !heard[0])
		snprintf(heard, sizeof(heard), "%s", text);
}

static gpc *cache_heard(uint32_t blocks)
{
	struct gpc_config cfg = cache_config(blocks, 0);
	struct gpc_attach_options opt = { .size = sizeof(opt), .log = hear };

	heard[0] = 0;
	cfg.devices = device_name();
	return cache_make(&cfg, &opt);
}

static gpc *attach_heard(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir, .log = hear };
	gpc *c = NULL;

	must(gpc_attach(cache_name, &opt, 0, &c));
	return c;
}

/* ---- writers ---- */

/* The seat goes from one handle to another and back. */
static void test_writers(void)
{
	gpc *c = mirror_cache(KEYS, 0), *e = cache_attach(0, 0);
	gpc_dev *d = mirror_open(c);
	struct lookup a = ask_new(d, KEYS, 0);
	uint32_t generation = 0, i, right = 0, stale = 0, grows = 0;
	gpc_block b[KEYS];

	mirror_keys(c, 1, KEYS, key);
	for (i = 0; i < 6; i++) {
		gpc *writer = i % 2 ? e : c, *next = i % 2 ? c : e;

		chain_make(writer, 0, 1 + i, 1, NULL);
		mirror_sync(writer);
		ask_lookup(&a, 0, key, KEYS, b);
		right += b[i] == find(c, 1 + i) && b[i] >= 0 && b[i + 1] == GPC_NONE;
		grows += mirror_of(c).generation > generation;
		generation = mirror_of(c).generation;
		must(gpc_writer_drop(writer));
		cache_spoil();
		stale += gpc_dev_enter(d) == -ESTALE && *gpc_last_error();
		right += find(c, 1 + i) >= 0;
		must(gpc_writer_take(next, 0, 0));
		ask_lookup(&a, 0, key, KEYS, b);
		right += b[i] == find(c, 1 + i);
	}
	is_int(right, 18, "each writer's mirror has all keys; without one the host has");
	is_int(stale, 6, "no writer, no mirror: -ESTALE");
	is_int(grows, 6, "each has a mirror of its own");
	is_int(info_of(c).mirrors, 1, "there is one at a time");
	is_int(stats_of(c, info_of(c).peer).sections, 0, "no section is left");
	must(gpc_writer_serve(c, 10));
	ask_free(&a);
	must(gpc_dev_close(d));
	clean(c, "six writers");
	must(gpc_close(e));
	cache_end(c);
}

/* Work on the old mirror is in flight while the new one is looked up in. */
static void test_replaced_in_flight(void)
{
	gpc *c = mirror_cache(KEYS, 0), *e = cache_attach(0, 0);
	gpc_dev *d = mirror_open(c);
	struct lookup old = ask_new(d, KEYS, 0), new = ask_new(d, KEYS, 0);
	gpc_block b[KEYS];
	int s, i;

	mirror_keys(c, 1, KEYS, key);
	chain_make(c, 0, 1, KEYS / 2, NULL);
	mirror_sync(c);
	ask_put(&old, key, KEYS);
	ask_put(&new, key, KEYS);
	s = must(gpc_dev_enter(d));
	device_hold(old.stream);
	must(gpc_dev_lookup(d, 0, old.keys, KEYS, old.blocks, old.stream));
	must(gpc_dev_leave(d, s, old.stream));
	must(gpc_writer_drop(c));
	must(gpc_writer_take(e, 0, 0));
	ask_launch(&new, 0, KEYS);
	/* CUDA lets no process give memory back while its kernels run: with a writer in
	 * another process this is in bytes/cuda-peer.c */
	if (!device_is_gpu())
		is_int(stats_of(c, info_of(c).peer).sections, 2, "two lookups, two mirrors");
	device_let_go();
	ask_get(&new, b, KEYS);
	ok(b[0] == find(c, 1) && b[KEYS - 1] == GPC_NONE, "the new one answers");
	ask_get(&old, b, KEYS);
	ok(b[0] == find(c, 1) && b[KEYS - 1] == GPC_NONE, "and the old one did");
	chain_make(e, 0, 101, KEYS, NULL);
	mirror_sync(e);
	for (i = 0; i < 3; i++)
		ask_lookup(&old, 0, key, KEYS, b);
	is_int(b[0], GPC_NONE, "all look up in the new one by now");
	ask_free(&old);
	ask_free(&new);
	must(gpc_dev_close(d));
	must(gpc_close(c));
	clean(e, "a mirror that was replaced in flight");
	cache_end(e);
}

/* ---- several handles of one process ---- */

enum { HANDLES = 3 };

static struct crew {
	gpc *c;
	gpc_dev *d;
	uint32_t rounds, wrong, stale;
	int last; /* error */
	char why[200];
} crew[HANDLES];

static uint32_t crew_stop;

static void crew_ask(struct crew *w, struct lookup *a)
{
	int s = gpc_dev_enter(w->d);
	gpc_block b[KEYS];
	uint32_t i;

	if (s < 0) {
		w->wrong += s != -ESTALE;
		w->stale++;
		if (s != w->last)
			snprintf(w->why, sizeof(w->why), "%s", gpc_last_error());
		w->last = s;
		return;
	}
	must(gpc_dev_lookup(w->d, 0, a->keys, KEYS, a->blocks, a->stream));
	must(gpc_dev_leave(w->d, s, a->stream));
	ask_get(a, b, KEYS);
	for (i = 0; i < KEYS; i++)
		w->wrong += b[i] < 0;
	count_add(&w->rounds, 1);
}

static void *crew_run(void *arg)
{
	struct crew *w = arg;
	struct lookup a = ask_new(w->d, KEYS, 0);

	ask_put(&a, key, KEYS);
	while (!load_acquire(&crew_stop))
		crew_ask(w, &a);
	ask_free(&a);
	return NULL;
}

static void three_rounds(gpc *writer, struct crew *w)
{
	uint32_t target = load_relaxed(&w->rounds) + 3, tries = 20000;

	while (load_relaxed(&w->rounds) < target && tries--)
		must(gpc_writer_serve(writer, 1));
	if (load_relaxed(&w->rounds) < target)
		bail("no lookup any more, %u mirrors: %d, %s; %s", info_of(writer).mirrors, w->last,
		     w->why, heard);
}

/* Three handles, a thread each, while the writer's seat goes round. */
static void test_handles(void)
{
	gpc *c = cache_heard(KEYS), *e = attach_heard();
	uint32_t i, j, bad = 0, target;
	pthread_t t[HANDLES];
	struct lookup a;

	mirror_keys(c, 1, KEYS, key);
	chain_make(c, 0, 1, KEYS, NULL);
	mirror_sync(c);
	store_release(&crew_stop, 0);
	memset(crew, 0, sizeof(crew));
	for (i = 0; i < HANDLES; i++) {
		crew[i].c = i == 2 ? c : i ? e : cache_attach(0, 0);
		crew[i].d = mirror_open(crew[i].c);
		if (pthread_create(&t[i], NULL, crew_run, &crew[i]))
			bail("no thread");
	}
	ok(crew[0].d != crew[1].d, "each handle has a device of its own");
	for (i = 0; i < 10; i++) {
		gpc *from = i % 2 ? e : c, *to = i % 2 ? c : e;

		for (j = 0; j < HANDLES; j++)
			three_rounds(from, &crew[j]);
		must(gpc_writer_drop(from));
		must(gpc_writer_take(to, 0, 0));
	}
	store_release(&crew_stop, 1);
	for (i = 0; i < HANDLES; i++) {
		pthread_join(t[i], NULL);
		bad += crew[i].wrong;
		diag("%u lookups, %u without a mirror", crew[i].rounds, crew[i].stale);
	}
	is_int(bad, 0, "all keys are found by all, through ten writers");
	must(gpc_dev_close(crew[0].d));
	must(gpc_close(crew[0].c));
	must(gpc_dev_close(crew[1].d));
	a = ask_new(crew[2].d, KEYS, 0);
	ask_put(&a, key, KEYS);
	target = crew[2].rounds;
	crew_ask(&crew[2], &a);
	ok(!crew[2].wrong && crew[2].rounds == target + 1, "the others' devices work on");
	ask_free(&a);
	must(gpc_close(e));
	clean(c, "three handles");
	cache_end(c);
}

/* ---- flushes ---- */

/* The next flush fails, and all after it. */
static void break_flushes(bool broken)
{
	if (!device_is_gpu())
		device_host_fail_after = broken ? 1 : 0;
#ifdef HAVE_CUDA
	else
		store_relaxed(&device_cuda_fail_at, broken ? 2 : 0);
#endif
}

/* The mirror is retired: its peers are told, and all else goes on. */
static void test_retired(gpc *c, gpc_dev *d, const char *what)
{
	struct gpc_stats st;
	gpc_block b[KEYS];

	ok(mirror_of(c).retired, "%s: the mirror is retired", what);
	is_int(info_of(c).mirrors, 0, "no mirror is left");
	refused(gpc_dev_enter(d), ESTALE, "its peers are sent to the host");
	is_int(gpc_mirror_sync(c, GPC_TICKET_ALL, 0), 0, "a sync does not wait for it");
	is_int(gpc_lookup(c, 0, key, KEYS, b, GPC_ANYWHERE), 0, "the host answers");
	chain_make(c, 0, 1, KEYS, NULL);
	is_int(find(c, KEYS), KEYS - 1, "keys come");
	is_int(gpc_evict(c, 0, 4, b, GPC_TAKE, 3000), 4, "and go");
	must(gpc_release(c, b, 4));
	done(c);
	settle(c);
	st = stats_of(c, -1);
	ok(!st.reserved && !st.dying, "nothing is held back");
}

static void test_flush_fails(void)
{
	gpc *c = cache_heard(KEYS);
	gpc_dev *d = mirror_open(c);
	struct lookup a = ask_new(d, KEYS, 0);
	gpc_block b[KEYS];

	mirror_keys(c, 1, KEYS, key);
	chain_make(c, 0, 101, KEYS, NULL);
	mirror_sync(c);
	must(gpc_writer_serve(c, 5));
	break_flushes(true);
	is_int(gpc_evict(c, 0, KEYS, b, 0, 3000), KEYS, "an eviction whose flush fails");
	break_flushes(false);
	ok(strstr(heard, "is retired: "), "the log says so: %s", heard);
	if (device_is_gpu())
		ok(strstr(heard, "unknown error"), "in CUDA's own words");
	test_retired(c, d, "a flush failed");
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	ask_lookup(&a, 0, key, KEYS, b);
	is_int(b[0], find(c, 1), "the next writer makes a new one");
	ask_free(&a);
	must(gpc_dev_close(d));
	clean(c, "a flush that failed");
	cache_end(c);
}

/* On a GPU that takes a kernel: bytes/cuda-busy.c. */
static void test_flush_never_ends(void)
{
	gpc *c = cache_heard(KEYS);
	gpc_dev *d = mirror_open(c);
	gpc_block b[KEYS];
	gpc *e;

	mirror_keys(c, 1, KEYS, key);
	chain_make(c, 0, 101, KEYS, NULL);
	mirror_sync(c);
	e = cache_attach(0, 0);
	device_host_flush_delay_us = 3600u * 1000000u;
	must(gpc_drop(c, &(gpc_block){ 0 }, 1, NULL, 0, -1));
	ok(mirror_lag(e) > 0, "a flush that does not end");
	refused(gpc_mirror_sync(c, GPC_TICKET_ALL, 50), ETIMEDOUT,
		"is waited for, but not longer than told");
	refused(gpc_mirror_sync(c, GPC_TICKET_ALL, 0), EAGAIN, "or not at all");
	refused(gpc_reserve(c, 0, 1, b, NULL, 0, 50), ETIMEDOUT, "nor do ids come");
	is_int(gpc_mirror_sync(c, GPC_TICKET_ALL, 10000), 0, "until the mirror is given up");
	device_host_flush_delay_us = 0;
	ok(strstr(heard, "does not end"), "the log says why: %s", heard);
	must(gpc_close(e));
	test_retired(c, d, "a flush did not end");
	must(gpc_dev_close(d));
	cache_end(c);
}

static int body(void)
{
	test_writers();
	test_replaced_in_flight();
	test_handles();
	test_flush_fails();
	if (device_is_gpu())
		skip(1, "a flush that never ends: by the host device");
	else
		test_flush_never_ends();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(100, body, cache_dir_remove);
}
