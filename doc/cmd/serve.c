/* SPDX-License-Identifier: Apache-2.0 */
#include <gpc.h>

int serve(gpc *c, const uint32_t *token, int ntoken, gpc_key *key, gpc_block *blk)
{
	struct gpc_prompt p = { .parent = key, .tokens = token, .n = ntoken - 1, .ret_keys = key + 1 };
	int n = gpc_key_hash(c, &p, 1, 0);                      /* one key for each full block */
	int hit = gpc_acquire(c, 0, key + 1, n, blk, 0);        /* the longest cached prefix, held */
	if (hit < 0)
		return hit;                                     /* an error; so is a negative n */
	int got = gpc_reserve(c, 0, n - hit, blk + hit, NULL, GPC_PARTIAL, 0);
	if (got < 0)
		got = 0;                                        /* no room: compute, cache less */
	/* ... the prefill reads blk[0 .. hit - 1] and writes blk[hit .. hit + got - 1]; then: */
	gpc_publish(c, key + hit, key + hit + 1, blk + hit, got, NULL, 0, 1000);
	return gpc_release(c, blk, hit + got);                  /* cached, until others need the room */
}
