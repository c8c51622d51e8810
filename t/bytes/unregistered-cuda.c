/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU whose driver registers no host memory, as with confidential computing: blocks go down to RAM and up
 * again, with all their bytes, and waits hear of their ends.
 * Tests: lib/bytes/mapping/pin.c lib/bytes/device/cuda_copy.c */
#include "t/lib/bytes.h"

#include <cuda_runtime_api.h>

#include "index/base/base.h"

enum { RAM = 0, VRAM = 1, BLOCKS = 64, TIMES = 20 };

static int asked, heard;

cudaError_t __wrap_cudaHostRegister(void *p, size_t n, unsigned flags);
cudaError_t __wrap_cudaHostRegister(void *p UNUSED, size_t n UNUSED, unsigned flags UNUSED)
{
	asked++;
	return cudaErrorNotSupported;
}

static void hear(void *arg UNUSED, int level, const char *text)
{
	if (level <= 4 && strstr(text, "cannot be registered"))
		heard++;
}

static gpc *tiers(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir, .log = hear };
	struct gpc_pool p = pool_of(GPC_RAM, BLOCKS, 0);
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = BYTES_IMAGE, .no_checksums = 1 };
	gpc *c;

	cfg.max_blocks = 1024;
	c = cache_make(&cfg, &opt);
	is_int(must(gpc_pool_make(c, &p, &m, -1)), RAM, "RAM");
	is_int(bytes_vram(c, 2 * BLOCKS, 0, RAM, 0), VRAM, "VRAM above it");
	return c;
}

static int found_in(gpc *c, uint64_t from, int pool)
{
	int i, n = 0;

	for (i = 0; i < BLOCKS; i++)
		n += bytes_found(c, from + (uint64_t)i, pool);
	return n;
}

/* Each copy is waited for by the word that tells its end. */
static void there_and_back(gpc *c, uint64_t from, int *down, int *up)
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
	*down += found_in(c, from, RAM);
	chain_keys(c, from, BLOCKS, keys);
	must(gpc_acquire(c, 0, keys + 1, BLOCKS, b, 0));
	must(gpc_promote(c, b, BLOCKS, VRAM, m, 0, 5000));
	must(gpc_release(c, b, BLOCKS));
	must(bytes_copy(c, m, BLOCKS));
	must(gpc_commit(c, m, BLOCKS, NULL, 0, -1));
	*up += found_in(c, from, VRAM);
	must(gpc_drop(c, &m[0].to, 1, NULL, 0, 5000)); /* and all behind it */
}

static int body(void)
{
	int i, down = 0, up = 0;
	gpc *c;

	device_need_gpu();
	device_use();
	bytes_device = device_name();
	c = tiers();
	for (i = 0; i < TIMES; i++)
		there_and_back(c, 1 + 1000 * (uint64_t)i, &down, &up);
	is_int(down, TIMES * BLOCKS, "blocks went down with their bytes");
	is_int(up, TIMES * BLOCKS, "and up");
	is_int(heard, 1, "one warning");
	diag("the driver was asked %d times", asked);
	ok(asked > 1 && asked < 10, "the driver is not asked again and again");
	refused(gpc_pool_pin(c, RAM, 5000), EIO, "gpc_pool_pin");
	settle(c);
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
