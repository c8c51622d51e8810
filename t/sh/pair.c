/* SPDX-License-Identifier: Apache-2.0 */
/* pair DIR NAME own|use - two processes that share what a device has, for namespaces.
 *
 * own: makes the cache with a mirror on the device of GPC_TEST_DEVICE, a pool of VRAM there and one of RAM; publishes
 * BLOCKS blocks of VRAM with their bytes, prints "owning", and serves until SIGTERM.
 * use: looks the blocks up on the mirror, reads their bytes in the owner's memory, spills them and fetches them back.  Prints
 * "works", or the step that fails with its error, exit status 1. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpc.h"
#include "gpc_bytes.h"
#include "gpc_device.h"
#include "gpc_look.h"
#include "gpc_serve.h"
#include "t/lib/devices.h"

enum { BLOCKS = 8, IMAGE = 4096, RAM = 0, WAIT_MS = 20000 };

static const char *step = "start"; /* what is under way */

/* A call of gpc. */
static int did(int r)
{
	if (r < 0) {
		printf("%s: %s\n", step, gpc_last_error());
		fflush(stdout);
		_exit(1);
	}
	return r;
}

static void fails(const char *why)
{
	printf("%s: %s\n", step, why);
	fflush(stdout);
	_exit(1);
}

#ifdef HAVE_CUDA
static void cuda_did(cudaError_t e)
{
	if (e != cudaSuccess)
		fails(cudaGetErrorString(e));
}
#endif

static void device_copy(void *to, const void *from, size_t n)
{
#ifdef HAVE_CUDA
	if (device_is_gpu()) {
		cuda_did(cudaMemcpy(to, from, n, cudaMemcpyDefault));
		cuda_did(cudaDeviceSynchronize());
		return;
	}
#endif
	memcpy(to, from, n);
}

static void image_of(uint64_t n, uint8_t image[IMAGE])
{
	for (uint32_t i = 0; i < IMAGE; i++)
		image[i] = (uint8_t)((n * 977 + i) * 2654435761u >> 24);
}

/* [0] is no key, and the parent of the first block. */
static void keys_of(gpc *c, gpc_key keys[BLOCKS + 1])
{
	uint64_t numbers[BLOCKS];

	for (int i = 0; i < BLOCKS; i++)
		numbers[i] = 1 + (uint64_t)i;
	memset(&keys[0], 0, sizeof(keys[0]));
	did(gpc_key_import(c, numbers, 8, 8, BLOCKS, 0, keys + 1));
}

/* ---- who owns ---- */

static int own(char **argv)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = argv[1], .label = "own" };
	struct gpc_memory ram = { .size = sizeof(ram), .block_bytes = IMAGE };
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = IMAGE, .device = device_name() };
	struct gpc_config cfg = { .size = sizeof(cfg),
				  .dir = argv[1],
				  .ram_blocks = 4 * BLOCKS,
				  .ram_memory = &ram,
				  .max_blocks = 512,
				  .max_peers = 8,
				  .devices = device_name() };
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = GPC_VRAM,
			      .flags = GPC_POOL_OWNED,
			      .blocks = 4 * BLOCKS,
			      .demote_to = RAM };
	gpc_key keys[BLOCKS + 1];
	gpc_block b[BLOCKS];
	uint8_t image[IMAGE];
	sigset_t gate;
	uint64_t bytes;
	void *base;
	int vram, sig;
	gpc *c;

	sigemptyset(&gate);
	sigaddset(&gate, SIGTERM);
	sigprocmask(SIG_BLOCK, &gate, NULL);
	step = "create";
	did(gpc_create(argv[2], &cfg, &opt, GPC_SERVE, &c));
	step = "pool";
	vram = did(gpc_pool_make(c, &p, &m, WAIT_MS));
	did(gpc_pool_map(c, vram, 0, &base, &bytes));
	step = "publish";
	did(gpc_reserve(c, vram, BLOCKS, b, NULL, 0, WAIT_MS));
	for (int i = 0; i < BLOCKS; i++) {
		image_of((uint64_t)i, image);
		device_copy((uint8_t *)base + (uint64_t)GPC_SLOT(b[i]) * IMAGE, image, IMAGE);
	}
	keys_of(c, keys);
	did(gpc_publish(c, keys, keys + 1, b, BLOCKS, NULL, GPC_NO_REF, WAIT_MS));
	step = "mirror";
	did(gpc_mirror_sync(c, GPC_TICKET_ALL, WAIT_MS));
	printf("owning\n");
	fflush(stdout);
	sigwait(&gate, &sig);
	gpc_close(c);
	return 0;
}

/* ---- who uses ---- */

/* Memory that the device and this process reach. */
static void *both_reach(size_t n)
{
	void *p = NULL;

#ifdef HAVE_CUDA
	if (device_is_gpu()) {
		cuda_did(cudaHostAlloc(&p, n, cudaHostAllocMapped));
		return p;
	}
#endif
	p = calloc(1, n);
	return p;
}

static void look_up(gpc *c, const gpc_key *keys)
{
	gpc_key *k = both_reach(BLOCKS * sizeof(*k));
	gpc_block *b = both_reach(BLOCKS * sizeof(*b));
	int section;
	gpc_dev *d;

	step = "mirror";
	memcpy(k, keys, BLOCKS * sizeof(*k));
	did(gpc_dev_open(c, device_name(), &d));
	section = did(gpc_dev_enter(d));
	did(gpc_dev_lookup(d, 0, k, BLOCKS, b, NULL));
	did(gpc_dev_wait(d, NULL, WAIT_MS));
	did(gpc_dev_leave(d, section, NULL));
	for (int i = 0; i < BLOCKS; i++)
		if (b[i] < 0)
			fails("a key is not found");
	did(gpc_dev_close(d));
}

static void compare(gpc *c, int pool, const gpc_block *b)
{
	uint8_t want[IMAGE], got[IMAGE];
	uint64_t bytes;
	void *base;

	did(gpc_pool_map(c, pool, 0, &base, &bytes));
	for (int i = 0; i < BLOCKS; i++) {
		if (b[i] < 0 || GPC_POOL(b[i]) != pool)
			fails("a block is not there");
		image_of((uint64_t)i, want);
		device_copy(got, (uint8_t *)base + (uint64_t)GPC_SLOT(b[i]) * IMAGE, IMAGE);
		if (memcmp(want, got, IMAGE))
			fails("other bytes");
	}
}

static int vram_of(gpc *c)
{
	struct gpc_pool p = { .size = sizeof(p) };
	int i = 0;

	step = "pool";
	while (did(gpc_pool_get(c, i, &p)) >= 0 && p.kind != GPC_VRAM)
		i++;
	return i;
}

static int use(char **argv)
{
	struct gpc_attach_options opt = {
		.size = sizeof(opt), .dir = argv[1], .label = "use", .timeout_ms = WAIT_MS
	};
	gpc_key keys[BLOCKS + 1];
	gpc_block b[BLOCKS];
	gpc_transfer t = 0;
	int vram;
	gpc *c;

	step = "attach";
	did(gpc_attach(argv[2], &opt, 0, &c));
	vram = vram_of(c);
	keys_of(c, keys);
#ifdef HAVE_CUDA
	step = "cuda";
	if (device_is_gpu() && !strncmp(device_name(), "cuda:", 5))
		cuda_did(cudaSetDevice(atoi(device_name() + 5)));
#endif
	look_up(c, keys + 1);
	step = "map";
	did(gpc_lookup(c, 0, keys + 1, BLOCKS, b, GPC_QUIET));
	compare(c, vram, b);
	step = "spill";
	did(gpc_spill(c, vram, RAM, NULL, BLOCKS, NULL, 0, NULL, WAIT_MS, &t));
	did(gpc_transfer_wait(c, t, WAIT_MS));
	did(gpc_lookup(c, 0, keys + 1, BLOCKS, b, GPC_QUIET));
	compare(c, RAM, b);
	step = "fetch";
	t = 0;
	if (did(gpc_fetch(c, vram, keys + 1, BLOCKS, b, NULL, 0, NULL, WAIT_MS, &t)) != BLOCKS)
		fails("not all blocks");
	did(gpc_transfer_wait(c, t, WAIT_MS));
	compare(c, vram, b);
	did(gpc_release(c, b, BLOCKS));
	step = "close";
	did(gpc_close(c));
	printf("works\n");
	return 0;
}

int main(int argc, char **argv)
{
	alarm(120);
	if (argc != 4)
		return 2;
	return !strcmp(argv[3], "own") ? own(argv) : use(argv);
}
