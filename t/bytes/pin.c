/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_pool_pin: RAM that a GPU would copy is registered, chunk by chunk; a device of the test plays
 * the GPU.
 * Tests: lib/bytes/mapping/pin.c */
#include "t/lib/bytes.h"

#include "index/base/base.h"
#include "index/base/order.h"
#include "bytes/device/host_bytes.h"
#include "bytes/mapping/map.h"

enum { RAM = 0, VRAM = 1 }; /* made in this order: VRAM demotes to RAM */

static gpc *tiers(uint32_t vram, uint32_t ram)
{
	gpc *c = bytes_cache();

	is_int(bytes_ram(c, ram, 0, 0), RAM, "RAM");
	is_int(bytes_vram(c, vram, 0, RAM, 0), VRAM, "VRAM above it");
	return c;
}

static void end(gpc *c, const char *when)
{
	settle(c);
	done(c);
	is_int(stats_of(c, -1).reserved + stats_of(c, -1).refs, 0, "%s: nothing is held", when);
	clean(c, when);
	cache_end(c);
}

/* ---- a device that counts ---- */

static uint32_t pins, unpins, pin_fails;
static uint64_t pinned;

static int pin(void *base, uint64_t bytes)
{
	if (!base || (uintptr_t)base % 4096)
		return -EINVAL;
	if (pin_fails && !--pin_fails) {
		errno = EIO;
		return -EIO;
	}
	pins++;
	pinned += bytes;
	return 0;
}

static void unpin(void *base)
{
	unpins += base != NULL;
}

static void test_pin(void)
{
	static struct device_bytes counter;
	struct gpc_pool_memory pm = { .size = sizeof(pm) };
	gpc *c;

	map_pin_chunk = (uint64_t)2 << 20; /* as long as there are maps */
	c = tiers(8, 600);                 /* RAM of more than 4 MiB */
	is_int(gpc_pool_pin(c, RAM, 0), 0, "without GPUs there is nothing to register");
	counter = device_bytes_host;
	counter.in_ram = false;
	counter.pin = pin;
	counter.unpin = unpin;
	map_pin_device = &counter;
	pin_fails = 2;
	is_int(gpc_pool_pin(c, RAM, 5000), -EIO, "the second chunk is refused");
	is_int(pins, 1, "after one");
	is_int(gpc_pool_pin(c, RAM, 5000), 0, "the rest is registered by a second call");
	must(gpc_pool_memory_get(c, RAM, &pm, NULL, 0));
	is_int(pins, (pm.bytes + map_pin_chunk - 1) / map_pin_chunk, "chunk by chunk, each once");
	is_int(pinned, pm.pinned, "which gpc_pool_memory_get tells");
	is_int(pm.pinned, pinned, "all of it");
	is_int(gpc_pool_pin(c, RAM, 0), 0, "a third call has nothing to do");
	is_int(unpins, 0, "and it stays");
	refused(gpc_pool_pin(c, VRAM, 0), ENOENT, "VRAM");
	refused(gpc_pool_pin(c, 7, 0), ENOENT, "no pool");
	refused(gpc_pool_pin(c, -1, 0), EINVAL, "no number");
	refused(gpc_pool_pin(c, RAM, -2), EINVAL, "no time");
	must(gpc_pool_map(c, RAM, 0, &(void *){ NULL }, &(uint64_t){ 0 }));
	must(gpc_pool_unmap(c, RAM));
	is_int(unpins, pins, "until it is unmapped");
	map_pin_device = NULL;
	end(c, "registered");
	map_pin_chunk = PIN_CHUNK;
}

/* ---- one that takes its time ---- */

/* Queued behind a pool that is being registered, while the last GPU of the cache goes. */
static uint32_t holding, held;

static int hold_pin(void *base UNUSED, uint64_t bytes UNUSED)
{
	store_release(&held, 1);
	while (load_acquire(&holding))
		usleep(100);
	return 0;
}

static void test_pin_ends(void)
{
	static struct device_bytes holder;
	gpc *c = tiers(8, 8);
	int other = bytes_ram(c, 8, 1, 0);

	holder = device_bytes_host;
	holder.in_ram = false;
	holder.pin = hold_pin;
	map_pin_device = &holder;
	holding = 1;
	is_int(gpc_pool_pin(c, RAM, 0), -EAGAIN, "one pool is being registered");
	while (!load_acquire(&held))
		usleep(100);
	is_int(gpc_pool_pin(c, other, 0), -EAGAIN, "another one waits");
	map_pin_device = NULL;
	store_release(&holding, 0);
	is_int(gpc_pool_pin(c, other, 5000), 0, "then there is nobody to register it with");
	is_int(gpc_pool_pin(c, RAM, 5000), 0, "and the first one is");
	end(c, "registered with nobody");
}

static int body(void)
{
	test_pin();
	test_pin_ends();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
