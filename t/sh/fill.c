/* SPDX-License-Identifier: Apache-2.0 */
/* fill DIR NAME [BLOCKS BYTES] - a worker that touches all memory of a cache that it may.
 *
 * Attaches, or makes a cache with BLOCKS blocks of RAM of BYTES bytes each and is its writer.  Maps pool 0, takes as many
 * of its blocks as it can get, stores to all of their bytes, publishes them, and reads each byte of the pool.  Prints how many
 * bytes that are, then "holding", and stays so until SIGTERM. */
#include "gpc.h"
#include "gpc_bytes.h"
#include "gpc_serve.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 4096 };

/* A call without which the rest makes no sense. */
#define must(call) must_work((call), #call)

static int must_work(int r, const char *what)
{
	if (r < 0) {
		fprintf(stderr, "fill: %s: %s\n", what, gpc_last_error());
		exit(1);
	}
	return r;
}

static gpc *open_cache(int argc, char **argv)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = argv[1], .label = "fill" };
	struct gpc_memory memory = { .size = sizeof(memory) };
	struct gpc_config cfg = { .size = sizeof(cfg), .dir = argv[1], .ram_memory = &memory };
	gpc *c;

	if (argc < 5) {
		must(gpc_attach(argv[2], &opt, 0, &c));
		return c;
	}
	cfg.ram_blocks = (uint32_t)atoi(argv[3]);
	memory.block_bytes = (uint64_t)atoi(argv[4]);
	must(gpc_create(argv[2], &cfg, &opt, GPC_SERVE, &c));
	return c;
}

static void publish(gpc *c, const gpc_block *blocks, uint32_t n)
{
	static gpc_key
		keys[MOST + 1]; /* the first one is no key, and the parent of the first block */
	static uint64_t numbers[MOST];

	for (uint32_t i = 0; i < n; i++)
		numbers[i] = i + 1;
	must(gpc_key_import(c, numbers, 8, 8, n, 0, keys + 1));
	must(gpc_publish(c, keys, keys + 1, blocks, n, NULL, 0, -1));
	must(gpc_release(c, blocks, n));
}

static void store(gpc *c, uint8_t *base, const struct gpc_run *run)
{
	static gpc_block blocks[MOST];
	uint32_t n = (uint32_t)must(gpc_reserve(c, 0, MOST, blocks, NULL, GPC_PARTIAL, 5000));

	for (uint32_t i = 0; i < n; i++)
		memset(base + run->offset + (uint64_t)GPC_SLOT(blocks[i]) * run->slot_stride,
		       (int)i + 1, run->bytes);
	publish(c, blocks, n);
}

int main(int argc, char **argv)
{
	struct gpc_pool_memory memory = { .size = sizeof(memory) };
	struct gpc_run run;
	uint64_t bytes, sum = 0;
	sigset_t gate;
	void *base;
	int sig;
	gpc *c;

	if (argc != 3 && argc != 5)
		return 2;
	c = open_cache(argc, argv);
	must(gpc_pool_memory_get(c, 0, &memory, &run, 1));
	must(gpc_pool_map(c, 0, 0, &base, &bytes));
	store(c, base, &run);
	for (uint64_t i = 0; i < bytes; i++)
		sum += ((volatile uint8_t *)base)[i];
	sigemptyset(&gate);
	sigaddset(&gate, SIGTERM);
	sigprocmask(SIG_BLOCK, &gate, NULL);
	alarm(120);
	printf("%llu\n%s\n", (unsigned long long)bytes, sum ? "holding" : "empty");
	fflush(stdout);
	sigwait(&gate, &sig);
	return gpc_close(c) < 0;
}
