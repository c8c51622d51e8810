/* SPDX-License-Identifier: Apache-2.0 */
#include <gpc.h>
#include <stdio.h>
#include <stdlib.h>

static uint32_t must(int r)             /* a number; an error ends the program */
{
	if (r >= 0)
		return (uint32_t)r;
	fprintf(stderr, "%s\n", gpc_last_error());
	exit(1);
}

int main(void)
{
	static const uint32_t prompt[1024] = { 1, 2, 3 };       /* tokens: 64 blocks of 16 */
	struct gpc_field model = { .tag = 1, .len = 5, .data = "llama" };
	gpc_key key[64];                /* key[0] is the root, which names the model */
	gpc_block blk[63];
	gpc *c;

	must(gpc_attach("demo", NULL, 0, &c));
	must(gpc_key_root(c, &model, 1, key));
	/* the last token is always computed: 1023 tokens have 63 full blocks */
	struct gpc_prompt p = { .parent = key, .tokens = prompt, .n = 1023, .ret_keys = key + 1 };
	uint32_t n = must(gpc_key_hash(c, &p, 1, 0));
	/* 0: look in all VRAM and RAM.  The blocks that it finds stay until they are released */
	uint32_t hit = must(gpc_acquire(c, 0, key + 1, n, blk, 0));
	/* blocks of pool 0 for the rest, to be had within 1000 ms */
	int r = gpc_reserve(c, 0, n - hit, blk + hit, NULL, 0, 1000);
	uint32_t got = r < 0 ? 0 : (uint32_t)r;
	if (r < 0)                      /* no room or no writer: compute, cache nothing */
		fprintf(stderr, "%s\n", gpc_last_error());
	/* ... the prefill writes blk[hit .. n - 1], or memory of its own; then: */
	/* the parent of each block is the key before its own */
	must(gpc_publish(c, key + hit, key + hit + 1, blk + hit, got, NULL, 0, -1));
	printf("%u of %u blocks were cached\n", hit, n);
	gpc_release(c, blk, hit + got); /* they stay cached until others need the room */
	return gpc_close(c);
}
