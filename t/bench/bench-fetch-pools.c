/* SPDX-License-Identifier: Apache-2.0 */
/* bench-fetch-pools.c - the device, and pools with chains in them. */
#include "config.h"

#include "bench-fetch.h"

#include "bytes/device/host_stream.h"
#include "gpc_serve.h"

#include <errno.h>
#include <unistd.h>

const char *device = "cuda:0";
const char *where;

/* ---- the device ---- */

bool on_gpu(void)
{
	return strcmp(device, "host") != 0;
}

void check(int e, const char *call, const char *file, int line)
{
	if (e)
		fail("%s:%d: %s: %s", file, line, call, cudaGetErrorString((cudaError_t)e));
}

void *new_stream(void)
{
	cudaStream_t stream;

	if (!on_gpu())
		return NULL;
	CK(cudaSetDevice(strncmp(device, "cuda:", 5) ? 0 : atoi(device + 5)));
	CK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	return stream;
}

void settle(void *stream)
{
	if (on_gpu())
		CK(cudaStreamSynchronize(stream));
	else if (stream_wait(-1))
		fail("the host's stream does not end");
}

/* ---- pools ---- */

void name_cache(char *name, size_t size, const char *part)
{
	snprintf(name, size, "bench-fetch-%s-%d", part, (int)getpid());
}

int make_ram(gpc *c, uint32_t blocks, uint64_t piece, uint32_t space, bool sums)
{
	struct gpc_memory m = { .size = sizeof(m),
				.block_bytes = PIECES * piece,
				.no_checksums = !sums };
	struct gpc_pool pool = { .size = sizeof(pool),
				 .kind = GPC_RAM,
				 .blocks = blocks,
				 .transit = 1,
				 .space = space,
				 .demote_to = -1,
				 .flags = GPC_POOL_UNCHAINED };

	return gpc_pool_make(c, &pool, &m, WAIT);
}

int make_vram(gpc *c, uint32_t blocks, uint64_t piece, uint32_t space)
{
	struct gpc_run run = { .count = PIECES,
			       .bytes = piece,
			       .slot_stride = piece,
			       .run_stride = (uint64_t)blocks * piece };
	struct gpc_memory m = { .size = sizeof(m), .nruns = 1, .runs = &run, .device = device };
	struct gpc_pool pool = { .size = sizeof(pool),
				 .kind = GPC_VRAM,
				 .blocks = blocks,
				 .space = space,
				 .demote_to = -1,
				 .flags = GPC_POOL_OWNED };

	return gpc_pool_make(c, &pool, &m, WAIT);
}

void make_keys(uint32_t chain, uint32_t n, gpc_key *keys)
{
	uint32_t i;

	keys[0] = (gpc_key){ { 0, 0 } };
	for (i = 1; i <= n; i++)
		keys[i] = (gpc_key){ { ((uint64_t)chain << 32 | i) * 0x9e3779b97f4a7c15u,
				       ((uint64_t)i << 32 | chain) * 0x94d049bb133111ebu &
					       ~(1ull << 63) } };
}

void make_chain(gpc *c, int pool, uint32_t chain, uint32_t n, uint64_t bytes)
{
	gpc_block *b = calloc(n, sizeof(*b));
	gpc_key *k = calloc(n + 1, sizeof(*k));
	uint64_t all;
	void *base;
	uint32_t i;

	if (!b || !k)
		fail("out of memory");
	make_keys(chain, n, k);
	MUST(gpc_reserve(c, pool, n, b, NULL, 0, WAIT));
	if (bytes) {
		MUST(gpc_pool_map(c, pool, 0, &base, &all));
		for (i = 0; i < n; i++)
			memset((uint8_t *)base + (uint64_t)GPC_SLOT(b[i]) * bytes,
			       (int)(i + chain) | 1, bytes);
		MUST(gpc_pool_unmap(c, pool));
	}
	if (MUST(gpc_publish(c, k, k + 1, b, n, NULL, 0, WAIT)) != (int)n)
		fail("a chain was not published");
	MUST(gpc_release(c, b, n));
	free(b);
	free(k);
}

void clear(gpc *c, int pool)
{
	MUST(gpc_pool_clear(c, pool, 0, 0, WAIT));
	MUST(gpc_ticket_wait(c, GPC_TICKET_ALL, WAIT));
}

/* ---- tiers ---- */

static char name[64];

static void remove_cache(void)
{
	if (name[0])
		gpc_unlink(name, where);
	name[0] = 0;
}

static bool make_pools(struct tiers *t)
{
	uint32_t room = 2 * t->n + 8;

	/* copies beside the chains that are there, too */
	t->ram = make_ram(t->c, room + 2 * t->n, t->piece, RAM_SPACE, false);
	t->summed = t->ram < 0 ? t->ram : make_ram(t->c, room, t->piece, SUMMED_SPACE, true);
	t->vram = t->summed < 0 ? t->summed : make_vram(t->c, room, t->piece, VRAM_SPACE);
	if (t->vram >= 0)
		return true;
	note("no pools of %u blocks of %u KiB: %s", room, (unsigned)(PIECES * t->piece >> 10),
	     gpc_last_error());
	return false;
}

/* The sums come by a spill. */
static void make_summed(struct tiers *t, uint32_t chain)
{
	gpc_block b[MOST], leaf_first[MOST];
	gpc_transfer x = 0;
	uint32_t i;

	if (MUST(gpc_fetch(t->c, t->vram, t->key[chain] + 1, t->n, b, NULL, 0, t->stream, WAIT,
			   &x)) != (int)t->n)
		fail("not all was fetched: %s", gpc_last_error());
	MUST(gpc_transfer_wait(t->c, x, WAIT));
	for (i = 0; i < t->n; i++)
		leaf_first[i] = b[t->n - 1 - i];
	MUST(gpc_spill(t->c, t->vram, t->summed, leaf_first, t->n, NULL, GPC_COPY, t->stream, WAIT,
		       &x));
	MUST(gpc_transfer_wait(t->c, x, WAIT));
	MUST(gpc_release(t->c, b, t->n));
	clear(t->c, t->vram);
}

static bool open_cache(struct tiers *t, uint64_t piece, uint32_t n, uint32_t table)
{
	struct gpc_config cfg = { .size = sizeof(cfg),
				  .vram_blocks = table ? table : 16,
				  .max_blocks = table + 4096,
				  .free_target = -1,
				  .dir = where,
				  .devices = table && on_gpu() ? device : NULL };

	*t = (struct tiers){ .piece = piece, .n = n };
	if (!name[0])
		atexit(remove_cache);
	name_cache(name, sizeof(name), "tiers");
	if (gpc_create(name, &cfg, NULL, GPC_SERVE, &t->c) < 0) {
		note("no cache: %s", gpc_last_error());
		name[0] = 0;
		return false;
	}
	if (!make_pools(t)) {
		MUST(gpc_close(t->c));
		remove_cache();
		return false;
	}
	return true;
}

bool tiers_open(struct tiers *t, uint64_t piece, uint32_t n, uint32_t table)
{
	uint64_t bytes;
	uint32_t i;

	while (!open_cache(t, piece, n, table))
		if ((n /= 2) < 4) /* as large as the shared memory here allows */
			return false;
	t->stream = new_stream();
	for (i = 0; i < 2; i++) {
		make_keys(i, n, t->key[i]);
		make_chain(t->c, t->ram, i, n, PIECES * piece);
		make_summed(t, i);
	}
	/* behind make_chain(), which unmaps */
	MUST(gpc_pool_map(t->c, t->ram, 0, (void **)&t->base[0], &bytes));
	MUST(gpc_pool_map(t->c, t->summed, 0, (void **)&t->base[1], &bytes));
	MUST(gpc_pool_map(t->c, t->vram, 0, (void **)&t->base[2], &bytes));
	if (on_gpu()) {
		MUST(gpc_pool_pin(t->c, t->ram, WAIT));
		MUST(gpc_pool_pin(t->c, t->summed, WAIT));
	}
	return true;
}

void tiers_close(struct tiers *t)
{
	MUST(gpc_transfer_wait(t->c, GPC_TRANSFER_ALL, WAIT));
	if (t->stream)
		CK(cudaStreamDestroy(t->stream));
	MUST(gpc_close(t->c));
	remove_cache();
}

void tiers_take(struct tiers *t, uint32_t space, uint32_t chain, uint32_t n, gpc_block *b)
{
	if (MUST(gpc_acquire(t->c, GPC_SPACE(space), t->key[chain] + 1, n, b, 0)) != (int)n)
		fail("a chain is not there");
}

/* ---- without gpc ---- */

/* Where a block's pieces are, and how far apart. */
static uint8_t *pieces_of(struct tiers *t, gpc_block b, size_t *pitch)
{
	bool vram = GPC_POOL(b) == t->vram;
	uint8_t *base = t->base[vram ? 2 : GPC_POOL(b) == t->summed];

	*pitch = vram ? (2 * t->n + 8) * t->piece : t->piece;
	return base + GPC_SLOT(b) * t->piece * (vram ? 1 : PIECES);
}

void copy_bare(struct tiers *t, const struct gpc_move *moves, uint32_t n)
{
	size_t to_pitch, from_pitch;
	uint32_t i, j;

	for (i = 0; i < n; i++) {
		uint8_t *to = pieces_of(t, moves[i].to, &to_pitch);
		uint8_t *from = pieces_of(t, moves[i].from, &from_pitch);

		if (on_gpu())
			CK(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, t->piece, PIECES,
					     cudaMemcpyDefault, t->stream));
		for (j = 0; !on_gpu() && j < PIECES; j++)
			memcpy(to + j * to_pitch, from + j * from_pitch, t->piece);
	}
}
