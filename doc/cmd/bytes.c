/* SPDX-License-Identifier: Apache-2.0 */
#include <gpc_bytes.h>
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
	const int vram = 1;             /* the keeper's pool */
	void *stream = NULL;            /* the default one of its device, or a cudaStream_t */
	gpc_transfer t = 0;
	gpc_key key[64];
	gpc_block blk[63];
	gpc *c;

	must(gpc_attach("demo", NULL, 0, &c));
	must(gpc_key_root(c, &model, 1, key));
	struct gpc_prompt p = { .parent = key, .tokens = prompt, .n = 1023, .ret_keys = key + 1 };
	uint32_t n = must(gpc_key_hash(c, &p, 1, 0));
	/* the longest cached prefix, wherever it is, in blocks of that pool.  The copies are in the
	 * stream: kernels that follow them there may read the blocks */
	uint32_t hit = must(gpc_fetch(c, vram, key + 1, n, blk, NULL, 0, stream, 1000, &t));
	uint32_t got = must(gpc_reserve(c, vram, n - hit, blk + hit, NULL, 0, 1000));
	/* ... the prefill reads blk[0 .. hit - 1] and writes blk[hit .. n - 1]; when it has ended: */
	must(gpc_publish(c, key + hit, key + hit + 1, blk + hit, got, NULL, 0, -1));
	must(gpc_transfer_wait(c, t, 1000));    /* only to print what has come, and from where */
	printf("%u of %u blocks were cached, %u of them in RAM\n", hit, n,
	       t ? must(gpc_transfer_results(c, t, NULL, 0)) : 0);
	gpc_release(c, blk, n);         /* the keeper spills what is least recent */
	return gpc_close(c);
}
