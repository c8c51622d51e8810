/* SPDX-License-Identifier: Apache-2.0 */
/* Threads copy, map, unmap, pin, wait and poll, with handles of their own and one that they
 * share, while pools go and come and another handle becomes the writer; for the thread sanitizer
 * too.  A transfer that is done has brought all bytes.
 * Tests: lib/bytes/payload/copy.c lib/bytes/mapping/map.c lib/bytes/payload/wait.c */
#include "t/lib/crew.h"

#include <poll.h>
#include <pthread.h>

#include "bytes/device/device.h"
#include "bytes/device/host_bytes.h"
#include "bytes/mapping/map.h"

#define OWN     2 /* threads with a handle each */
#define SHARED  3 /* threads that share one */
#define COPIERS (OWN + SHARED)
#define THREADS (COPIERS + 5)
#define BLOCKS  16
#define MOST    4
#define IMAGE   4096u
#define WORDS   (IMAGE / 8)
#define RAMS    2 /* pools 0 and 1 stay; VRAM comes and goes */

#ifdef __SANITIZE_THREAD__
#define MS 2500
#else
#define MS 3000
#endif

enum {
	N_COPIED,
	N_STALE,
	N_POLLED,
	N_ALL,
	N_MAPPED,
	N_UNMAPPED,
	N_PINNED,
	N_POOLS,
	N_WRITERS,
	N_FORMER
};

static gpc *common;
static uint32_t stop, vram_now; /* vram_now: number of the pool, + 1 */
static uint32_t pins, unpins;

static void count(int what)
{
	__atomic_fetch_add(&crew->count[what], 1, __ATOMIC_RELAXED);
}

static bool goes_on(void)
{
	if (load_acquire(&crew->failed))
		crew_give_up();
	return !load_acquire(&stop);
}

/* ---- a device that registers ---- */

static int slow_pin(void *base UNUSED, uint64_t bytes UNUSED)
{
	__atomic_fetch_add(&pins, 1, __ATOMIC_RELAXED);
	sched_yield();
	return 0;
}

static void slow_unpin(void *base UNUSED)
{
	__atomic_fetch_add(&unpins, 1, __ATOMIC_RELAXED);
}

/* ---- threads of the library are joined once ---- */

int __real_pthread_join(pthread_t thread, void **ret);
int __wrap_pthread_join(pthread_t thread, void **ret);

static pthread_mutex_t joins = PTHREAD_MUTEX_INITIALIZER;
static pthread_t joining[2 * THREADS];
static bool is_joining[2 * THREADS];

static int begin_join(pthread_t thread)
{
	int i, at = -1;

	pthread_mutex_lock(&joins);
	for (i = 0; i < 2 * THREADS; i++) {
		need(!is_joining[i] || !pthread_equal(joining[i], thread),
		     "a thread is joined twice");
		at = is_joining[i] ? at : i;
	}
	need(at >= 0, "too many are joined");
	joining[at] = thread;
	is_joining[at] = true;
	pthread_mutex_unlock(&joins);
	return at;
}

int __wrap_pthread_join(pthread_t thread, void **ret)
{
	int at = begin_join(thread), err;

	usleep(200);
	err = __real_pthread_join(thread, ret);
	pthread_mutex_lock(&joins);
	is_joining[at] = false;
	pthread_mutex_unlock(&joins);
	return err;
}

/* ---- copies ---- */

struct actor {
	gpc *c;
	uint64_t seed, number;
	gpc_block from[MOST], to[MOST]; /* reservations in the RAMs */
};

/* Words of an image in RAM, which stays; each thread has its own blocks. */
static uint64_t *words(struct actor *w, gpc_block b)
{
	uint64_t bytes;
	void *base;
	int r;

	/* another thread of the handle may just have unmapped it: then it is mapped anew */
	r = gpc_pool_map(w->c, GPC_POOL(b), 0, &base, &bytes);
	need(r == 0, "map: %s", gpc_last_error());
	return (uint64_t *)((uint8_t *)base + (uint64_t)GPC_SLOT(b) * IMAGE);
}

static void put(uint64_t *at, uint64_t n)
{
	uint32_t i;

	for (i = 0; i < WORDS; i++)
		at[i] = crew_mix(n * WORDS + i);
}

static bool has(const uint64_t *at, uint64_t n)
{
	uint32_t i;

	for (i = 0; i < WORDS; i++)
		if (at[i] != crew_mix(n * WORDS + i))
			return false;
	return true;
}

static void await(struct actor *w, gpc_transfer t)
{
	struct pollfd p = { .events = POLLIN };
	int r;

	switch (crew_random(&w->seed, 4)) {
	case 0:
		p.fd = gpc_transfer_fd(w->c, t);
		need(p.fd >= 0, "fd: %s", gpc_last_error());
		need(poll(&p, 1, 20000) == 1, "no descriptor tells");
		close(p.fd);
		must_be(gpc_transfer_wait(w->c, t, 0), 0);
		count(N_POLLED);
		break;
	case 1:
		must_be(gpc_transfer_wait(w->c, GPC_TRANSFER_ALL, 20000), 0);
		count(N_ALL);
		break;
	case 2:
		while ((r = gpc_transfer_wait(w->c, t, 0)) != 0)
			need(r == -EAGAIN, "wait: %s", gpc_last_error());
		break;
	default:
		must_be(gpc_transfer_wait(w->c, t, 20000), 0);
	}
}

/* 0, or what it may answer when a pool goes. */
static int copy(struct actor *w, const gpc_block *from, const gpc_block *to, uint32_t n)
{
	struct gpc_move m[MOST];
	gpc_transfer t = 0;
	uint32_t i;
	int r;

	for (i = 0; i < n; i++)
		m[i] = (struct gpc_move){ .from = from[i], .to = to[i] };
	r = gpc_copy(w->c, m, n, 0, NULL, &t);
	if (r) {
		need(r == -ESTALE || r == -ENOENT || r == -EINVAL, "copy: %d, %s", r,
		     gpc_last_error());
		count(N_STALE);
		return r;
	}
	await(w, t);
	count(N_COPIED);
	return 0;
}

/* From RAM to the other RAM, at once or by way of VRAM that may go meanwhile.  Which numbers the
 * source has, the target must have, whole. */
static void carry(struct actor *w)
{
	uint32_t i, n = 1 + crew_random(&w->seed, MOST), pool = load_acquire(&vram_now);
	gpc_block by[MOST];
	int r = 0;

	for (i = 0; i < n; i++)
		put(words(w, w->from[i]), w->number + i);
	if (!pool || crew_random(&w->seed, 3) == 0) {
		r = copy(w, w->from, w->to, n);
		need(!r, "RAM to RAM: %d, %s", r, gpc_last_error());
	} else {
		r = gpc_reserve(w->c, (int)pool - 1, n, by, NULL, 0, 1000);
		need(r == (int)n || r == -ESTALE || r == -ENOENT || r == -ENOSPC ||
			     r == -ENOTCONN || r == -ETIMEDOUT || r == -EAGAIN,
		     "reserve: %d, %s", r, gpc_last_error());
		if (r < 0)
			return;
		r = copy(w, w->from, by, n);
		if (!r)
			r = copy(w, by, w->to, n);
		must_be(gpc_release(w->c, by, n), 0);
	}
	for (i = 0; i < n && !r; i++)
		need(has(words(w, w->to[i]), w->number + i),
		     "a transfer is done, and not its bytes");
	w->number += n;
}

static void reserve_all(struct actor *w, int pool, gpc_block *b)
{
	int r;

	do
		r = gpc_reserve(w->c, pool, MOST, b, NULL, 0, 1000);
	while (r == -ENOTCONN || r == -ETIMEDOUT);
	need(r == MOST, "reserve: %s", gpc_last_error());
}

static void *copier(void *arg)
{
	uint64_t me = (uint64_t)(uintptr_t)arg;
	struct actor w = { .c = me < OWN ? crew_attach("own") : common,
			   .seed = 31 + me,
			   .number = (me + 1) << 32 };

	while (goes_on()) {
		int i;

		reserve_all(&w, 0, w.from);
		reserve_all(&w, 1, w.to);
		for (i = 0; i < 30 && goes_on(); i++)
			carry(&w);
		must_be(gpc_release(w.c, w.from, MOST), 0);
		must_be(gpc_release(w.c, w.to, MOST), 0);
		if (me < OWN) { /* comes and goes with its handle */
			gpc_close(w.c);
			w.c = crew_attach("own");
		}
	}
	if (me < OWN)
		gpc_close(w.c);
	return NULL;
}

/* ---- maps ---- */

static void unmap(int pool)
{
	int r = gpc_pool_unmap(common, pool);

	need(!r || r == -ENOENT, "unmap: %d, %s", r, gpc_last_error());
	count(N_UNMAPPED);
}

/* VRAM of the shared handle is mapped and unmapped; copies keep what they need.  Nobody makes the
 * next pool in this process before what is mapped of the former one is unmapped. */
static void *mapper(void *arg)
{
	uint64_t bytes, seed = 7 + (uint64_t)(uintptr_t)arg;
	void *base;
	int r, pool, had = -1;

	while (goes_on()) {
		pool = (int)load_acquire(&vram_now) - 1;
		if (had >= 0 && pool != had) {
			unmap(had);
			had = -1;
		}
		if (pool < 0) {
			sched_yield();
			continue;
		}
		r = gpc_pool_map(common, pool, 0, &base, &bytes);
		need(!r || r == -ESTALE || r == -ENOENT, "map: %d, %s", r, gpc_last_error());
		if (!r)
			count(N_MAPPED);
		had = pool;
		if (crew_random(&seed, 2))
			continue;
		unmap(pool);
	}
	return arg;
}

/* Two of them: each registers what the other one has unmapped.  A third pool of RAM, which nobody
 * else maps, so that nobody reads what is unmapped under him. */
static void *pinner(void *arg)
{
	uint64_t seed = 99 + (uint64_t)(uintptr_t)arg, bytes;
	void *base;
	int r;

	while (goes_on()) {
		r = gpc_pool_pin(common, RAMS, (int)crew_random(&seed, 3));
		need(!r || r == -EAGAIN || r == -ETIMEDOUT, "pin: %d, %s", r, gpc_last_error());
		count(N_PINNED);
		if (crew_random(&seed, 2))
			continue;
		r = gpc_pool_map(common, RAMS, 0, &base, &bytes);
		need(!r, "map: %s", gpc_last_error());
		r = gpc_pool_unmap(common, RAMS);
		need(!r || r == -ENOENT, "unmap: %s", gpc_last_error());
	}
	return arg;
}

/* ---- pools and writers ---- */

static int make(gpc *c, uint32_t kind, uint32_t space)
{
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = kind,
			      .blocks = 4 * BLOCKS,
			      .space = space,
			      .demote_to = -1 };
	struct gpc_memory m = { .size = sizeof(m),
				.block_bytes = IMAGE,
				.device = kind == GPC_VRAM ? "host" : NULL };

	p.flags = kind == GPC_VRAM ? GPC_POOL_OWNED : 0;
	return gpc_pool_make(c, &p, &m, 2000);
}

/* One handle makes it, another one's copies use it; without a writer both calls are made anew, and
 * where the mapper has the former one still. */
static void *remaker(void *arg)
{
	gpc *c = crew_attach("maker");
	int pool, r;

	while (goes_on()) {
		pool = make(c, GPC_VRAM, 9);
		if (pool == -ESTALE) {
			count(N_FORMER);
			usleep(100);
			continue;
		}
		if (pool < 0) { /* what may still be made goes with the handle */
			need(pool == -ENOTCONN || pool == -ETIMEDOUT, "make: %s", gpc_last_error());
			gpc_close(c);
			c = crew_attach("maker");
			continue;
		}
		store_release(&vram_now, (uint32_t)pool + 1);
		count(N_POOLS);
		usleep(3000);
		store_release(&vram_now, 0);
		do {
			r = gpc_pool_clear(c, pool, 0, GPC_REMOVE, 2000);
			need(r >= 0 || r == -ENOTCONN || r == -ETIMEDOUT || r == -ENOENT,
			     "remove: %d, %s", r, gpc_last_error());
		} while (r < 0 && r != -ENOENT);
	}
	gpc_close(c);
	return arg;
}

/* Serves for a while, closes, and another handle takes the seat; until nobody needs one. */
static void *writer(void *arg)
{
	while (load_acquire(&stop) < 2) {
		uint64_t end = clock_ns() + 20 * NS_PER_MS;
		gpc *c = crew_attach("writer");

		must_be(gpc_writer_take(c, GPC_STANDBY, 5000), 0);
		while (clock_ns() < end && load_acquire(&stop) < 2)
			need(gpc_writer_serve(c, 2) >= 0, "serve: %s", gpc_last_error());
		gpc_close(c);
		count(N_WRITERS);
	}
	return arg;
}

/* ---- all of it ---- */

static void run_all(void)
{
	static void *(*const other[])(void *) = { mapper, pinner, pinner, remaker };
	pthread_t thread[THREADS];
	uint64_t i, end = clock_ns() + MS * NS_PER_MS;

	must_be(pthread_create(&thread[THREADS - 1], NULL, writer, NULL), 0);
	for (i = 0; i < THREADS - 1; i++)
		must_be(pthread_create(&thread[i], NULL, i < COPIERS ? copier : other[i - COPIERS],
				       (void *)(uintptr_t)i),
			0);
	while (clock_ns() < end)
		usleep(10000);
	store_release(&stop, 1);
	for (i = 0; i < THREADS - 1; i++)
		must_be(pthread_join(thread[i], NULL), 0);
	store_release(&stop, 2);
	must_be(pthread_join(thread[THREADS - 1], NULL), 0);
}

static int body(void)
{
	static struct device_bytes slow;
	struct gpc_config cfg = { .max_blocks = 2048, .max_peers = 12, .free_target = -1 };
	gpc *c;
	int i;

	crew_begin();
	slow = device_bytes_host;
	slow.in_ram = false;
	slow.pin = slow_pin;
	slow.unpin = slow_unpin;
	map_pin_device = &slow;
	map_pin_chunk = 65536;
	c = crew_create(cfg, 0);
	must_be(gpc_writer_take(c, 0, 0), 0);
	for (i = 0; i <= RAMS; i++)
		is_int(make(c, GPC_RAM, (uint32_t)i), i, "a pool of RAM");
	must_be(gpc_writer_drop(c), 0);
	common = crew_attach("shared");
	device_host_delay_us = 20;
	run_all();
	ok(crew->count[N_COPIED] && crew->count[N_POLLED] && crew->count[N_ALL],
	   "%llu copies, %llu seen by a descriptor, %llu with all others, %llu refused",
	   (unsigned long long)crew->count[N_COPIED], (unsigned long long)crew->count[N_POLLED],
	   (unsigned long long)crew->count[N_ALL], (unsigned long long)crew->count[N_STALE]);
	ok(crew->count[N_MAPPED] && crew->count[N_UNMAPPED] && crew->count[N_PINNED],
	   "%llu maps, %llu unmaps, %llu pins", (unsigned long long)crew->count[N_MAPPED],
	   (unsigned long long)crew->count[N_UNMAPPED], (unsigned long long)crew->count[N_PINNED]);
	ok(crew->count[N_POOLS] > 2 && crew->count[N_WRITERS] > 2,
	   "%llu pools, %llu writers; %llu times the former pool was mapped still",
	   (unsigned long long)crew->count[N_POOLS], (unsigned long long)crew->count[N_WRITERS],
	   (unsigned long long)crew->count[N_FORMER]);
	gpc_close(common);
	ok(pins > 0, "chunks were registered");
	is_int(unpins, pins, "and as many unregistered");
	must_be(gpc_writer_take(c, 0, 5000), 0);
	crew_until(!crew_stats(c, -1).reserved && !crew_stats(c, -1).dying, gpc_writer_serve(c, 1));
	is_int(crew_stats(c, -1).refs, 0, "nobody holds anything");
	is_int(gpc_check(c, NULL, NULL), 0, "the check is clean");
	is_int(scratch_files(CREW_NAME ".p", false), RAMS + 1, "three files for three pools");
	gpc_close(c);
	return done_testing();
}

int main(void)
{
	scratch_make("t213");
	return tap_guard(60, body, scratch_remove);
}
