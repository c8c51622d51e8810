/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU's driver registers no host memory: copies go on without, with one warning, and their bytes and
 * ends are as ever; gpc_pool_pin has the error, and may have better luck later.  A pool whose checksums the
 * GPU makes is refused, with the way out; so is one whose device makes none, and so are copies between
 * GPUs of two kinds.  A GPU whose memory is RAM is told once.  A device of the test plays the GPU.
 * Tests: lib/bytes/mapping/pin.c lib/bytes/payload/sum.c lib/bytes/payload/pair.c
 *   lib/bytes/payload/enqueue.c */
#include "t/lib/bytes.h"

#include "index/base/base.h"
#include "bytes/device/host_bytes.h"
#include "bytes/mapping/map.h"

enum { RAM = 0, VRAM = 1 }; /* made in this order: VRAM demotes to RAM */

static struct device_bytes gpu; /* the host device, but for its registrations */
static struct device_bytes second_gpu;
static bool is_second; /* that one is found now */
static uint32_t pins, unpins, refusals;
static bool refuses, integrated;
static int heard_refused, heard_integrated;
static char last[600];

int __wrap_driver_of(const uint8_t uuid[16], const struct driver **ret);
int __wrap_driver_of(const uint8_t uuid[16] UNUSED, const struct driver **ret)
{
	static const struct driver driver = { .name = "gpu", .bytes = &gpu };
	static const struct driver second = { .name = "second", .bytes = &second_gpu };

	*ret = is_second ? &second : &driver;
	return 0;
}

static int pin(void *base, uint64_t bytes UNUSED)
{
	if (refuses) {
		refusals++;
		return err_set(EIO, "memory at %p cannot be registered: operation not supported",
			       base);
	}
	pins++;
	return 0;
}

static void unpin(void *base)
{
	unpins += base != NULL;
}

static bool is_integrated(const uint8_t uuid[16] UNUSED)
{
	return integrated;
}

static void hear(void *arg UNUSED, int level, const char *text)
{
	if (level > 4)
		return;
	snprintf(last, sizeof(last), "%s", text);
	heard_refused += strstr(text, "cannot be registered") != NULL;
	heard_integrated += strstr(text, "has its memory in RAM") != NULL;
}

static gpc *tiers(bool checksums)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir, .log = hear };
	struct gpc_pool p = pool_of(GPC_RAM, 8, 0);
	struct gpc_memory m = { .size = sizeof(m),
				.block_bytes = BYTES_IMAGE,
				.no_checksums = !checksums };
	gpc *c;

	cfg.max_blocks = 256;
	cfg.max_pools = 4;
	c = cache_make(&cfg, &opt);
	is_int(must(gpc_pool_make(c, &p, &m, -1)), RAM, "RAM");
	is_int(bytes_vram(c, 16, 0, RAM, 0), VRAM, "VRAM above it");
	return c;
}

static void end(gpc *c)
{
	settle(c);
	done(c);
	cache_end(c);
}

static int down(gpc *c, uint64_t from, uint32_t n, struct gpc_move *m)
{
	gpc_block b[8], leaf_first[8];
	uint32_t i;

	bytes_chain(c, VRAM, from, n, b, false);
	for (i = 0; i < n; i++)
		leaf_first[i] = b[n - 1 - i];
	must(gpc_demote(c, VRAM, RAM, leaf_first, n, m, 0, 60000));
	return bytes_copy(c, m, n);
}

static void test_copies(void)
{
	struct gpc_pool_memory pm = { .size = sizeof(pm) };
	gpc *c = tiers(false);
	struct gpc_move m[4];
	uint32_t i, n = 0, before;

	refuses = true;
	is_int(down(c, 1, 4, m), 0, "four blocks are copied down, and their end is told");
	is_int(gpc_commit(c, m, 4, NULL, 0, -1), 4, "they are committed");
	for (i = 0; i < 4; i++)
		n += bytes_found(c, 1 + i, RAM);
	is_int(n, 4, "with all their bytes");
	is_int(heard_refused, 1, "one warning: %s", last);
	before = refusals;
	is_int(down(c, 11, 2, m), 0, "more are copied");
	is_int(gpc_commit(c, m, 2, NULL, 0, -1), 2, "and committed");
	is_int(refusals, before, "nobody asks the driver again");
	is_int(heard_refused, 1, "nor says it again");
	must(gpc_pool_memory_get(c, RAM, &pm, NULL, 0));
	is_int(pm.pinned, 0, "nothing is registered");
	map_pin_device = &gpu;
	is_int(gpc_pool_pin(c, RAM, 5000), -EIO, "gpc_pool_pin says that it cannot be");
	refuses = false;
	is_int(gpc_pool_pin(c, RAM, 5000), 0, "and does it when it can");
	must(gpc_pool_memory_get(c, RAM, &pm, NULL, 0));
	is_int(pm.pinned, pm.bytes, "all of it");
	map_pin_device = NULL;
	is_int(heard_integrated, 0, "a GPU with memory of its own");
	end(c);
	is_int(unpins, pins, "what was registered is not any more");
}

/* A chunk that is refused to the end. */
static void test_refused_to_the_end(void)
{
	gpc *c = tiers(false);
	struct gpc_move m[2];

	pins = unpins = 0;
	refuses = true;
	is_int(down(c, 1, 2, m), 0, "two blocks are copied down");
	is_int(gpc_commit(c, m, 2, NULL, 0, -1), 2, "and committed");
	end(c);
	refuses = false;
	is_int(pins + unpins, 0, "what was never registered is not unregistered");
}

static void test_checksums(void)
{
	gpc *c = tiers(true);
	gpc_block b[2];
	gpc_transfer t;
	int r;

	refuses = true;
	bytes_chain(c, VRAM, 1, 2, b, false);
	r = gpc_spill(c, VRAM, RAM, NULL, 2, NULL, 0, NULL, 1000, &t);
	ok(r == -EIO && strstr(gpc_last_error(), "no_checksums"),
	   "a pool with checksums is refused: %d, %s", r, gpc_last_error());
	refuses = false;
	end(c);
}

/* It says so by a capability: its functions are not called. */
static void test_no_sums(void)
{
	gpc *c = tiers(true);
	gpc_block b[2];
	gpc_transfer t;
	int r;

	gpu.sums = false;
	gpu.sum_open = NULL;
	bytes_chain(c, VRAM, 1, 2, b, false);
	r = gpc_spill(c, VRAM, RAM, NULL, 2, NULL, 0, NULL, 1000, &t);
	ok(r == -EOPNOTSUPP && strstr(gpc_last_error(), "pool 0 keeps checksums") &&
		   strstr(gpc_last_error(), "pool 1, host, makes none"),
	   "a device that makes no checksums: %d, %s", r, gpc_last_error());
	is_int(find(c, 1), b[0], "nothing has changed");
	end(c);
	c = tiers(false);
	bytes_chain(c, VRAM, 1, 2, b, false);
	is_int(gpc_spill(c, VRAM, RAM, NULL, 2, NULL, 0, NULL, 1000, &t), 2,
	       "a pool without them takes its blocks");
	must(gpc_transfer_wait(c, t, 5000));
	is_int(bytes_found(c, 1, RAM) + bytes_found(c, 2, RAM), 2, "with their bytes");
	end(c);
	gpu.sums = true;
	gpu.sum_open = device_bytes_host.sum_open;
}

static void test_two_kinds(void)
{
	gpc *c = tiers(false);
	struct gpc_move m[2];
	gpc_block b[2];
	int other, r;

	second_gpu = gpu;
	is_second = true;
	other = bytes_vram(c, 4, 1, -1, 0);
	is_second = false;
	bytes_chain(c, VRAM, 1, 2, b, false);
	is_int(gpc_demote(c, VRAM, other, b + 1, 1, m, GPC_COPY, 60000), 1, "one is to be copied");
	r = bytes_copy(c, m, 1);
	ok(r == -EXDEV && strstr(gpc_last_error(), "pools 1 and 2"),
	   "between two kinds of devices: %d, %s", r, gpc_last_error());
	is_int(gpc_commit(c, m, 1, NULL, GPC_CANCEL, -1), 1, "given up");
	end(c);
}

static void test_integrated(void)
{
	gpc *c;
	struct gpc_move m[2];

	integrated = true;
	c = tiers(false);
	is_int(down(c, 1, 2, m), 0, "a GPU whose memory is RAM");
	is_int(heard_integrated, 1, "is told: %s", last);
	is_int(gpc_commit(c, m, 2, NULL, 0, -1), 2, "committed");
	end(c);
}

static int body(void)
{
	gpu = device_bytes_host;
	gpu.in_ram = false;
	gpu.pin = pin;
	gpu.unpin = unpin;
	gpu.is_integrated = is_integrated;
	test_copies();
	test_refused_to_the_end();
	test_checksums();
	test_no_sums();
	test_two_kinds();
	test_integrated();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
