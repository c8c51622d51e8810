/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <gpc_bytes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 8, LAYERS = 4, PIECE = 4096, IMAGE = LAYERS * PIECE, N = 3 };
static const uint8_t what[32] = "llama, bf16, layer by layer"; /* the same in all pools */

static uint32_t must(int r) /* a number; an error ends the program */
{
	if (r >= 0)
		return (uint32_t)r;
	fprintf(stderr, "%s\n", gpc_last_error());
	exit(1);
}

static char path[] = "/dev/shm/engine-XXXXXX";

/* The engine's own VRAM.  Here a file plays the GPU; on a GPU this is cudaMalloc(). */
static char *allocate(size_t bytes)
{
	int fd = mkstemp(path);
	char *p = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
		p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd < 0 || p == MAP_FAILED)
		exit(1);
	return p;
}

/* A pool of the caller's own blocks.  Its memory is one tensor for each layer, in that order. */
static int lend(gpc *c, uint32_t space, char *tensor)
{
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = GPC_VRAM,
			      .flags = GPC_POOL_CALLER,
			      .space = space,
			      .blocks = BLOCKS,
			      .demote_to = -1 };
	struct gpc_memory m = { .size = sizeof(m), .device = "host", .parts = LAYERS };
	struct gpc_run run[LAYERS];
	uint32_t i, pool;

	for (i = 0; i < LAYERS; i++)
		run[i] = (struct gpc_run){
			.part = i, .count = 1, .bytes = PIECE, .slot_stride = PIECE
		};
	m.runs = run;
	m.nruns = LAYERS;
	memcpy(m.fingerprint, what, sizeof(what));
	pool = must(gpc_pool_make(c, &p, &m, -1));
	for (i = 0; i < LAYERS; i++)
		must(gpc_pool_lend(c, (int)pool, i, tensor + i * BLOCKS * PIECE, BLOCKS * PIECE));
	return (int)pool;
}

static gpc *begin(gpc_key *key) /* key[0] is the root, key[1 .. N] those of a prompt */
{
	static const uint32_t prompt[N * 16] = { 1, 2, 3 };
	struct gpc_field model = { .tag = 1, .len = 5, .data = "llama" };
	struct gpc_prompt p = { .parent = key, .tokens = prompt, .n = N * 16, .ret_keys = key + 1 };
	gpc *c;

	must(gpc_attach("demo", NULL, 0, &c));
	must(gpc_key_root(c, &model, 1, key));
	must(gpc_key_hash(c, &p, 1, 0));
	return c;
}

static void lender(int ready, int done)
{
	char *tensor = allocate(BLOCKS * IMAGE), byte;
	gpc_key key[N + 1];
	gpc_block b[N];
	gpc *c = begin(key);
	int i, layer, pool = lend(c, 1, tensor);

	for (i = 0; i < N; i++) { /* the prefill: block i is in slot i */
		b[i] = GPC_BLOCK(pool, i);
		for (layer = 0; layer < LAYERS; layer++)
			memset(tensor + (layer * BLOCKS + i) * PIECE, 'a' + 8 * i + layer, PIECE);
	}
	must(gpc_publish(c, key, key + 1, b, N, NULL, GPC_NO_REF, -1));
	if (write(ready, "", 1) != 1 || read(done, &byte, 1) < 0)
		exit(1);
	gpc_close(c); /* the pool goes */
	unlink(path);
}

/* 1: piece `layer` of block i is what the lender has computed. */
static int is_right(const char *piece, int i, int layer)
{
	return *piece == 'a' + 8 * i + layer && !memcmp(piece, piece + 1, PIECE - 1);
}

/* An engine whose pool has blocks of gpc's. */
static int by_fetch(gpc *c, const gpc_key *key)
{
	struct gpc_pool p = {
		.size = sizeof(p), .kind = GPC_VRAM, .space = 2, .blocks = BLOCKS, .demote_to = -1
	};
	struct gpc_memory m = { .size = sizeof(m), .device = "host", .block_bytes = IMAGE };
	gpc_transfer t;
	gpc_block b[N];
	uint64_t bytes;
	void *at;
	int pool, hit, i, layer, right = 0;

	memcpy(m.fingerprint, what, sizeof(what));
	pool = (int)must(gpc_pool_make(c, &p, &m, -1));
	hit = (int)must(gpc_fetch(c, pool, key + 1, N, b, NULL, 0, NULL, 1000, &t));
	must(gpc_transfer_wait(c, t, -1)); /* a kernel in the stream needs no wait */
	must(gpc_pool_map(c, pool, 0, &at, &bytes));
	for (i = 0; i < hit; i++)
		for (layer = 0; layer < LAYERS; layer++)
			right += is_right((char *)at + GPC_SLOT(b[i]) * IMAGE + layer * PIECE, i,
					  layer);
	gpc_release(c, b, (uint32_t)hit);
	return right;
}

/* An engine that hands out its own blocks, here slots 0, 1, ... of its tensors. */
static int by_copy(gpc *c, const gpc_key *key)
{
	char *tensor = allocate(BLOCKS * IMAGE);
	int pool = lend(c, 3, tensor), hit, i, layer, right = 0;
	struct gpc_move move[N] = { { 0 } };
	gpc_block theirs[N], mine[N];
	gpc_transfer t;

	hit = (int)must(gpc_acquire(c, GPC_SPACE(1), key + 1, N, theirs, 0));
	for (i = 0; i < hit; i++) {
		mine[i] = GPC_BLOCK(pool, i);
		move[i].from = theirs[i];
		move[i].to = mine[i];
	}
	must(gpc_copy(c, move, (uint32_t)hit, 0, NULL, &t));
	must(gpc_transfer_wait(c, t, -1)); /* before the publish, and before the release */
	gpc_release(c, theirs, (uint32_t)hit);
	must(gpc_publish(c, key, key + 1, mine, (uint32_t)hit, NULL, 0, -1));
	for (i = 0; i < hit; i++)
		for (layer = 0; layer < LAYERS; layer++)
			right += is_right(tensor + (layer * BLOCKS + i) * PIECE, i, layer);
	gpc_release(c, mine, (uint32_t)hit); /* cached in space 3 now, and in space 1 as before */
	return right;
}

int main(void)
{
	int ready[2], done[2];
	gpc_key key[N + 1];
	char byte;
	gpc *c;

	if (pipe(ready) || pipe(done))
		return 1;
	if (fork() == 0) {
		close(done[1]);
		lender(ready[1], done[0]);
		return 0;
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		return 1;
	c = begin(key);
	printf("fetched: %d of %d pieces are right\n", by_fetch(c, key), N * LAYERS);
	printf("copied: %d of %d pieces are right\n", by_copy(c, key), N * LAYERS);
	gpc_close(c);
	unlink(path);
	close(done[1]);
	wait(NULL);
	return 0;
}
