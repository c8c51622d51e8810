/* SPDX-License-Identifier: Apache-2.0 */
/* node - a worker of one machine: node CACHE fill|load FIRST N [MS]
 *
 * fill computes N blocks of prompt FIRST in RAM and publishes them; load asks for them, and prints
 * how many are in RAM then, with the bytes that fill writes, and how many milliseconds the wait
 * took.  NODE_DIR is where the cache is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gpc.h"
#include "gpc_look.h"

static uint32_t tokens_of_block;
static uint64_t block_bytes;
static char *base;

static int must(int r, const char *what)
{
	if (r < 0) {
		fprintf(stderr, "%s: %s\n", what, gpc_last_error());
		exit(1);
	}
	return r;
}

static char byte_of(const gpc_key *k, uint64_t i)
{
	return (char)((k->w[0] >> 8 * (i & 7)) + i / 8);
}

static void keys_of(gpc *c, uint32_t prompt, uint32_t n, gpc_key *keys)
{
	struct gpc_field f = { .tag = 1, .len = 5, .data = "model" };
	uint32_t *tokens = calloc((size_t)n * tokens_of_block, sizeof(*tokens)), i;

	for (i = 0; i < n * tokens_of_block; i++)
		tokens[i] = prompt * 1000003u + i;
	must(gpc_key_root(c, &f, 1, keys), "root");
	must(gpc_key_hash(c,
			  &(struct gpc_prompt){ .parent = keys,
						.tokens = tokens,
						.n = (size_t)n * tokens_of_block,
						.ret_keys = keys + 1 },
			  1, 0),
	     "hash");
	free(tokens);
}

static void fill(gpc *c, const gpc_key *keys, uint32_t n)
{
	gpc_block *b = calloc(n, sizeof(*b));
	uint32_t i;
	uint64_t k;

	must(gpc_reserve(c, 0, n, b, NULL, 0, 10000), "reserve");
	for (i = 0; i < n; i++)
		for (k = 0; k < block_bytes; k++)
			base[(uint64_t)GPC_SLOT(b[i]) * block_bytes + k] = byte_of(&keys[i + 1], k);
	printf("%d\n",
	       must(gpc_publish(c, keys, keys + 1, b, n, NULL, GPC_NO_REF, 10000), "publish"));
	must(gpc_tiers_sync(c, 20000), "sync");
}

static void load(gpc *c, const gpc_key *keys, uint32_t n, int ms)
{
	gpc_block *b = calloc(n, sizeof(*b));
	struct timespec from, to;
	int got, i, right = 0;
	uint64_t k;

	clock_gettime(CLOCK_MONOTONIC_RAW, &from);
	gpc_prefetch(c, 0, keys + 1, n, 0, ms);
	clock_gettime(CLOCK_MONOTONIC_RAW, &to);
	got = must(gpc_acquire(c, 0, keys + 1, n, b, 0), "acquire");
	for (i = 0; i < got; i++) {
		for (k = 0; k < block_bytes; k++)
			if (base[(uint64_t)GPC_SLOT(b[i]) * block_bytes + k] !=
			    byte_of(&keys[i + 1], k))
				break;
		right += k == block_bytes;
	}
	printf("%d %d %ld\n", got, right,
	       (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000);
	must(gpc_release(c, b, (uint32_t)got), "release");
}

int main(int argc, char **argv)
{
	struct gpc_attach_options o = {
		.size = sizeof(o), .timeout_ms = 10000, .label = "worker", .dir = getenv("NODE_DIR")
	};
	struct gpc_info info = { .size = sizeof(info) };
	struct gpc_pool p = { .size = sizeof(p) };
	uint32_t n = argc > 4 ? (uint32_t)atoi(argv[4]) : 0;
	uint64_t bytes;
	gpc_key *keys;
	void *at;
	gpc *c;

	if (!n || n > 1024)
		return 2;
	must(gpc_attach(argv[1], &o, 0, &c), "attach");
	must(gpc_info_get(c, &info), "info");
	must(gpc_pool_get(c, 0, &p), "pool");
	must(gpc_pool_map(c, 0, 0, &at, &bytes), "map");
	base = at;
	block_bytes = p.block_bytes;
	tokens_of_block = info.block_tokens;
	keys = calloc(n + 1, sizeof(*keys));
	keys_of(c, (uint32_t)atoi(argv[3]), n, keys);
	if (!strcmp(argv[2], "fill"))
		fill(c, keys, n);
	else
		load(c, keys, n, argc > 5 ? atoi(argv[5]) : 10000);
	gpc_close(c);
	return 0;
}
