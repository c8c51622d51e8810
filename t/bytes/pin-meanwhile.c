/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a pool is being registered: copies go on without, at once, and their bytes and ends
 * are as ever; checksums, whose memory has to be registered, wait for the chunk that is under way, and
 * for no other one; so does who closes the handle.  A device of the test plays the GPU.
 * Tests: lib/bytes/mapping/pin.c lib/bytes/payload/enqueue.c */
#include "t/lib/bytes.h"

#include "index/base/base.h"
#include "index/base/order.h"
#include "bytes/device/host_bytes.h"
#include "bytes/mapping/maps.h"
#include "index/peer/handle.h"

enum { RAM = 0, VRAM = 1 }; /* made in this order: VRAM demotes to RAM */

static struct device_bytes gpu; /* the host device, but for its registrations */
static uint8_t *images;
static uint64_t images_bytes;
static uint32_t begun, allowed; /* chunks of the images */
static uint32_t others, pins, unpins;
static uint32_t others_after; /* chunks that had been begun when the first of others was */

int __wrap_driver_of(const uint8_t uuid[16], const struct driver **ret);
int __wrap_driver_of(const uint8_t uuid[16] UNUSED, const struct driver **ret)
{
	static const struct driver driver = { .name = "gpu", .bytes = &gpu };

	*ret = &driver;
	return 0;
}

static int pin(void *base, uint64_t bytes UNUSED)
{
	uint8_t *p = base;
	uint32_t n;

	order_add32(&pins, 1);
	if (p < images || p >= images + images_bytes) {
		n = load_acquire(&begun);
		if (!order_add32(&others, 1))
			store_release(&others_after, n);
		return 0;
	}
	n = order_add32(&begun, 1);
	while (load_acquire(&allowed) <= n)
		usleep(100);
	return 0;
}

static void unpin(void *base)
{
	order_add32(&unpins, base != NULL);
}

static void wait_for(const uint32_t *count, uint32_t n)
{
	while (load_acquire(count) < n)
		usleep(100);
}

/* The thread that registers is at the first chunk. */
static gpc *begin(bool checksums)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };
	struct gpc_pool p = pool_of(GPC_RAM, 16, 0);
	struct gpc_memory m = { .size = sizeof(m),
				.block_bytes = BYTES_IMAGE,
				.no_checksums = !checksums };
	gpc *c;

	cfg.max_blocks = 256;
	cfg.max_pools = 4;
	c = cache_make(&cfg, &opt);
	is_int(must(gpc_pool_make(c, &p, &m, -1)), RAM, "RAM");
	is_int(bytes_vram(c, 16, 0, RAM, 0), VRAM, "VRAM above it");
	begun = allowed = others = pins = unpins = 0;
	must(gpc_pool_map(c, RAM, 0, (void **)&images, &images_bytes));
	ok(images_bytes > 4 * map_pin_chunk, "more than four chunks");
	is_int(gpc_pool_pin(c, RAM, 0), -EAGAIN, "the pool is being registered");
	wait_for(&begun, 1);
	return c;
}

static uint64_t pinned(gpc *c)
{
	struct gpc_pool_memory pm = { .size = sizeof(pm) };

	must(gpc_pool_memory_get(c, RAM, &pm, NULL, 0));
	return pm.pinned;
}

static void down(gpc *c, uint64_t from, const char *when)
{
	gpc_block b[4], leaf_first[4];
	struct gpc_move m[4];
	uint32_t i, n = 0;

	bytes_chain(c, VRAM, from, 4, b, false);
	for (i = 0; i < 4; i++)
		leaf_first[i] = b[3 - i];
	must(gpc_demote(c, VRAM, RAM, leaf_first, 4, m, 0, 60000));
	is_int(bytes_copy(c, m, 4), 0, "%s: four blocks are copied down", when);
	is_int(gpc_commit(c, m, 4, NULL, 0, -1), 4, "%s: they are committed", when);
	for (i = 0; i < 4; i++)
		n += bytes_found(c, from + i, RAM);
	is_int(n, 4, "%s: with all their bytes", when);
}

static void test_copies(void)
{
	gpc *c = begin(false);

	down(c, 1, "at the first chunk");
	is_int(pinned(c), 0, "nothing is registered yet");
	store_release(&allowed, 2);
	wait_for(&begun, 3);
	down(c, 11, "at the third chunk");
	is_int(pinned(c), 2 * map_pin_chunk, "two are registered");
	store_release(&allowed, 1000);
	is_int(gpc_pool_pin(c, RAM, 60000), 0, "in the end ...");
	is_int(pinned(c), images_bytes, "... all of it is");
	down(c, 21, "all registered");
	settle(c);
	cache_end(c);
	is_int(unpins, pins, "and in the end nothing");
}

/* ---- checksums ---- */

static gpc *spiller;
static int spilled;
static uint32_t waits;
static const pthread_mutex_t *watched;

int __real_pthread_mutex_lock(pthread_mutex_t *m);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
	if (m != watched || pthread_mutex_trylock(m)) {
		if (m == watched)
			order_add32(&waits, 1);
		return __real_pthread_mutex_lock(m);
	}
	return 0;
}

static void *spill(void *arg)
{
	gpc_transfer t;

	spilled = gpc_spill(spiller, VRAM, RAM, NULL, 2, NULL, 0, NULL, 60000, &t);
	if (spilled > 0)
		spilled = gpc_transfer_wait(spiller, t, 60000);
	return arg;
}

/* The trailers come first, then the page of words that say that copies are done. */
static void test_checksums(void)
{
	gpc *c = spiller = begin(true);
	pthread_t thread;
	gpc_block b[2];

	bytes_chain(c, VRAM, 1, 2, b, false);
	watched = &c->maps->pin_lock;
	if (pthread_create(&thread, NULL, spill, NULL))
		bail("no thread");
	wait_for(&waits, 1);
	store_release(&allowed, 1);
	pthread_join(thread, NULL);
	watched = NULL;
	is_int(others_after, 1,
	       "who needs registered memory comes after the chunk that is under way");
	is_int(spilled, 0, "and goes on while the others are registered");
	is_int(bytes_found(c, 1, RAM) + bytes_found(c, 2, RAM), 2, "with their bytes");
	store_release(&allowed, 1000);
	is_int(gpc_pool_pin(c, RAM, 60000), 0, "all of it is registered");
	settle(c);
	cache_end(c);
}

/* ---- the end in the middle ---- */

static void *close_it(void *arg)
{
	spilled = gpc_close(spiller);
	return arg;
}

static void test_close(void)
{
	gpc *c = begin(false);
	pthread_t thread;

	must(gpc_pool_unmap(c, RAM));
	spiller = c;
	if (pthread_create(&thread, NULL, close_it, NULL))
		bail("no thread");
	while (!worker_stops(&c->maps->pinner)) /* c is there as long as that waits */
		usleep(100);
	store_release(&allowed, 1000);
	pthread_join(thread, NULL);
	is_int(spilled, 0, "the handle is closed");
	is_int(begun, 1, "after the chunk that was under way");
	is_int(unpins, pins, "and nothing is registered");
	must(gpc_unlink(cache_name, cache_dir));
}

static int body(void)
{
	gpu = device_bytes_host;
	gpu.in_ram = false;
	gpu.pin = pin;
	gpu.unpin = unpin;
	map_pin_device = &gpu;
	map_pin_chunk = 16384;
	test_copies();
	test_checksums();
	test_close();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(40, body, cache_dir_remove);
}
