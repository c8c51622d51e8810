/* SPDX-License-Identifier: Apache-2.0 */
/* Two at once with one memory: a pool goes, or another one gets its number, while somebody maps it;
 * and processes that register memory take turns.
 * Tests: lib/bytes/mapping/map.c lib/bytes/mapping/pin.c lib/bytes/mapping/thread.c */
#include "t/lib/crew.h"
#include "t/lib/bytes.h"

#include "index/base/base.h"
#include "bytes/device/host_bytes.h"
#include "bytes/mapping/maps.h"
#include "index/peer/handle.h"
#include "index/segment/lockfile.h"
#include "bytes/memfile/memfile.h"

/* ---- the pool goes while it is mapped ---- */

static void (*between)(void); /* once, when the images are mapped */
static gpc *c, *d;
static int pool;

int __real_memory_map_images(const struct segment *s, const struct memory *m, uint8_t **ret);
int __wrap_memory_map_images(const struct segment *s, const struct memory *m, uint8_t **ret);
int __wrap_memory_map_images(const struct segment *s, const struct memory *m, uint8_t **ret)
{
	void (*run)(void) = between;
	int err = __real_memory_map_images(s, m, ret);

	between = NULL;
	if (!err && run)
		run();
	return err;
}

static void pool_goes(void)
{
	must(gpc_pool_clear(c, pool, 0, GPC_REMOVE, 2000));
}

static void another_comes(void)
{
	pool_goes();
	if (bytes_ram(c, 4, 0, 0) != pool)
		bail("another number");
}

static uint32_t count_maps(gpc *h)
{
	const struct map *m;
	uint32_t n = 0;

	map_sweep(h);
	pthread_mutex_lock(&h->maps->lock);
	for (m = h->maps->first; m; m = m->next)
		n++;
	pthread_mutex_unlock(&h->maps->lock);
	return n;
}

static void test_goes(void)
{
	struct map *m;
	uint64_t bytes;
	void *base = NULL;

	c = bytes_cache();
	d = cache_attach(0, 0);
	pool = bytes_ram(c, 4, 0, 0);
	between = pool_goes;
	refused(gpc_pool_map(d, pool, 0, &base, &bytes), ESTALE, "a pool goes while it is mapped");
	ok(!base, "no address of it is given out");
	is_int(count_maps(d), 0, "and it is unmapped");
	pool = bytes_ram(c, 4, 0, 0);
	between = another_comes;
	refused(map_get(d, (uint32_t)pool, &m), ESTALE, "another pool has its number by then");
	is_int(count_maps(d), 0, "for copies it is not mapped either");
	is_int(map_get(d, (uint32_t)pool, &m), 0, "once more: that other one");
	is_int((long long)m->memory.number, (long long)seg_pool(&c->seg, (uint32_t)pool)->memory,
	       "by its own memory");
	map_put(d, m);
	must(gpc_close(d));
	cache_end(c);
}

/* ---- turns ---- */

enum { CHUNKS = 6, PINNERS = 2, GATE_READY = 0, GATE_GO };
enum { N_INSIDE, N_TOGETHER, N_LAST, N_TURNS, N_PINS, N_ENDED };

/* Not before the other one waits for its turn; for a while, or until it has ended. */
static void until_next(void)
{
	int i;

	for (i = 0; i < 400 && !__atomic_load_n(&crew->count[N_ENDED], __ATOMIC_SEQ_CST) &&
		    lock_test(d->seg.lock_fd, LOCK_PIN_NEXT) != 1;
	     i++)
		usleep(1000);
}

/* As long as a process is in here, no other one is. */
static int pin(void *base, uint64_t bytes)
{
	uint64_t me = (uint64_t)getpid(), before;

	(void)base;
	(void)bytes;
	if (__atomic_fetch_add(&crew->count[N_INSIDE], 1, __ATOMIC_SEQ_CST))
		__atomic_fetch_add(&crew->count[N_TOGETHER], 1, __ATOMIC_SEQ_CST);
	before = __atomic_exchange_n(&crew->count[N_LAST], me, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&crew->count[N_TURNS], before != me, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&crew->count[N_PINS], 1, __ATOMIC_SEQ_CST);
	until_next();
	__atomic_fetch_sub(&crew->count[N_INSIDE], 1, __ATOMIC_SEQ_CST);
	return 0;
}

static void unpin(void *base)
{
	(void)base;
}

static int pinner(int me)
{
	static struct device_bytes device;
	gpc *h = d = crew_attach("pinner");

	device = device_bytes_host;
	device.in_ram = false;
	device.pin = pin;
	device.unpin = unpin;
	map_pin_device = &device;
	map_pin_chunk = (uint64_t)2 << 20;
	must_be(gpc_pool_map(h, 0, 0, &(void *){ NULL }, &(uint64_t){ 0 }), 0);
	crew_open(GATE_READY);
	crew_wait(GATE_GO, 1);
	must_be(gpc_pool_pin(h, 0, 8000), 0);
	__atomic_store_n(&crew->count[N_ENDED], 1, __ATOMIC_SEQ_CST);
	gpc_close(h);
	return 0 * me;
}

static void test_turns(void)
{
	struct gpc_config cfg = { .max_blocks = 256, .max_peers = 4, .free_target = -1 };
	struct gpc_pool p = pool_of(GPC_RAM, 2 * CHUNKS - 2, 0);
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = 1 << 20 };
	pid_t pid[PINNERS];
	uint64_t from;
	int i;

	memset(crew, 0, sizeof(*crew));
	c = crew_create(cfg, 0);
	p.transit = 2;
	must_be(gpc_writer_take(c, 0, 0), 0);
	must_be(gpc_pool_make(c, &p, &m, -1), 0);
	for (i = 0; i < PINNERS; i++)
		pid[i] = crew_fork(pinner, i);
	crew_serve(c, GATE_READY, PINNERS);
	from = clock_ns();
	crew_open(GATE_GO);
	for (i = 0; i < PINNERS; i++)
		crew_join(pid[i], "a process that registers memory");
	is_int((long long)crew->count[N_PINS], CHUNKS * PINNERS, "each registers all of it");
	is_int((long long)crew->count[N_TOGETHER], 0, "and never two at once");
	ok(crew->count[N_TURNS] >= 2 * CHUNKS - 1, "they take turns: %d times it is the other's",
	   (int)crew->count[N_TURNS]);
	ok(is_soon(from, 8000), "and nobody loses patience");
	gpc_close(c);
}

static int body(void)
{
	test_goes();
	crew_begin();
	test_turns();
	return done_testing();
}

static void cleanup(void)
{
	cache_dir_remove();
	scratch_remove();
}

int main(void)
{
	cache_dir_make();
	scratch_make("t346");
	return tap_guard(40, body, cleanup);
}
