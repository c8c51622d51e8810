/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a pool is being registered with a GPU, slowly: blocks go down to RAM and up again
 * meanwhile, with all their bytes, some in pieces that are registered and some not; and so they do when
 * all of it is.  The handle is closed in the middle of another registration.
 * Tests: lib/bytes/mapping/pin.c lib/bytes/device/cuda_copy.c */
#include "t/lib/bytes.h"

#include <cuda_runtime_api.h>

#include "index/base/base.h"
#include "index/base/order.h"
#include "bytes/mapping/maps.h"
#include "index/peer/handle.h"

enum { RAM = 0, VRAM = 1, BLOCKS = 64 };

static uint32_t asked, allowed; /* calls of the thread that registers all of the pool */
static pthread_t program;

cudaError_t __real_cudaHostRegister(void *p, size_t n, unsigned flags);
cudaError_t __wrap_cudaHostRegister(void *p, size_t n, unsigned flags);
cudaError_t __wrap_cudaHostRegister(void *p, size_t n, unsigned flags)
{
	uint32_t i;

	if (!pthread_equal(pthread_self(), program)) {
		i = order_add32(&asked, 1);
		while (load_acquire(&allowed) <= i)
			usleep(100);
	}
	return __real_cudaHostRegister(p, n, flags);
}

static gpc *tiers(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_pool p = pool_of(GPC_RAM, BLOCKS, 0);
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = BYTES_IMAGE, .no_checksums = 1 };
	gpc *c;

	cfg.max_blocks = 1024;
	c = cache_make(&cfg, NULL);
	is_int(must(gpc_pool_make(c, &p, &m, -1)), RAM, "RAM");
	is_int(bytes_vram(c, 2 * BLOCKS, 0, RAM, 0), VRAM, "VRAM above it");
	asked = allowed = 0;
	is_int(gpc_pool_pin(c, RAM, 0), -EAGAIN, "it is being registered");
	return c;
}

static uint64_t pinned(gpc *c, uint64_t *bytes)
{
	struct gpc_pool_memory pm = { .size = sizeof(pm) };

	must(gpc_pool_memory_get(c, RAM, &pm, NULL, 0));
	*bytes = pm.bytes;
	return pm.pinned;
}

static int found_in(gpc *c, uint64_t from, int pool)
{
	int i, n = 0;

	for (i = 0; i < BLOCKS; i++)
		n += bytes_found(c, from + (uint64_t)i, pool);
	return n;
}

static void there_and_back(gpc *c, uint64_t from, const char *when)
{
	gpc_block b[BLOCKS], leaf_first[BLOCKS];
	struct gpc_move m[BLOCKS];
	gpc_key keys[BLOCKS + 1];
	int i;

	bytes_chain(c, VRAM, from, BLOCKS, b, false);
	for (i = 0; i < BLOCKS; i++)
		leaf_first[i] = b[BLOCKS - 1 - i];
	must(gpc_demote(c, VRAM, RAM, leaf_first, BLOCKS, m, 0, 5000));
	must(bytes_copy(c, m, BLOCKS));
	must(gpc_commit(c, m, BLOCKS, NULL, 0, -1));
	is_int(found_in(c, from, RAM), BLOCKS, "%s: blocks went down with their bytes", when);
	chain_keys(c, from, BLOCKS, keys);
	must(gpc_acquire(c, 0, keys + 1, BLOCKS, b, 0));
	must(gpc_promote(c, b, BLOCKS, VRAM, m, 0, 5000));
	must(gpc_release(c, b, BLOCKS));
	must(bytes_copy(c, m, BLOCKS));
	must(gpc_commit(c, m, BLOCKS, NULL, 0, -1));
	is_int(found_in(c, from, VRAM), BLOCKS, "%s: and up", when);
	must(gpc_drop(c, &m[0].to, 1, NULL, 0, 5000)); /* and all behind it */
}

static void wait_for(uint32_t n)
{
	while (load_acquire(&asked) < n)
		usleep(100);
}

static void test_meanwhile(void)
{
	gpc *c = tiers();
	uint64_t bytes, now;

	wait_for(1);
	there_and_back(c, 1, "before the first chunk");
	is_int(pinned(c, &bytes), 0, "none is registered");
	store_release(&allowed, 3);
	wait_for(4);
	there_and_back(c, 1001, "behind the third");
	now = pinned(c, &bytes);
	ok(now == 3 * map_pin_chunk && now < bytes, "three of %llu are registered",
	   (unsigned long long)(bytes / map_pin_chunk));
	store_release(&allowed, 1000000);
	there_and_back(c, 2001, "at some chunk");
	is_int(gpc_pool_pin(c, RAM, 60000), 0, "all of it");
	is_int(pinned(c, &bytes), bytes, "is registered");
	there_and_back(c, 3001, "in the end");
	settle(c);
	cache_end(c);
}

static void *let_on(void *arg)
{
	while (!worker_stops(&((gpc *)arg)->maps->pinner)) /* it waits for us, so it is there */
		usleep(100);
	store_release(&allowed, 1000000);
	return NULL;
}

static void test_close(void)
{
	gpc *c = tiers();
	pthread_t thread;

	wait_for(1);
	there_and_back(c, 1, "another one");
	settle(c);
	if (pthread_create(&thread, NULL, let_on, c))
		bail("no thread");
	cache_end(c);
	pthread_join(thread, NULL);
	is_int(asked, 1, "the handle is closed in the middle");
	is_int(cudaGetLastError(), cudaSuccess, "without an error");
}

static int body(void)
{
	device_need_gpu();
	device_use();
	program = pthread_self();
	bytes_device = device_name();
	map_pin_chunk = 65536;
	test_meanwhile();
	test_close();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
