/* SPDX-License-Identifier: Apache-2.0 */
/* Two engines, each with VRAM in a space of its own, want one prompt.  They meet in the RAM that
 * they share, as gpc(7) says: who has claimed there computes, copies up and publishes; the other
 * wakes and fetches.
 * Tests: lib/index/claim/claim.c lib/index/claim/claim_wait.c */
#include "t/lib/fetch.h"

enum { PROMPT = 6 };

static int ram, vram[2];
static gpc *engine[2];

/* The prompt of engine i from RAM, in its VRAM. */
static int fetched(int i, gpc_block *b)
{
	gpc_key k[PROMPT + 1];
	gpc_transfer t = 0;
	int n;

	chain_keys(engine[i], 1, PROMPT, k);
	n = must(gpc_fetch(engine[i], vram[i], k + 1, PROMPT, b, NULL, 0, NULL, 2000, &t));
	must(gpc_transfer_wait(engine[i], t, 5000));
	return n;
}

/* How many of the prompt's keys are the engine's to compute; up: its blocks of RAM. */
static int claimed(int i, gpc_block *up, struct gpc_claim *q)
{
	gpc_key k[PROMPT + 1];

	chain_keys(engine[i], 1, PROMPT, k);
	must(gpc_reserve(engine[i], ram, PROMPT, up, NULL, 0, 2000));
	return must(gpc_claim(engine[i], k + 1, up, PROMPT, q, 0, 2000));
}

/* In VRAM, where its own requests use it; then a copy to the blocks that it has claimed with. */
static void compute(int i, const gpc_block *up)
{
	struct gpc_move m[PROMPT];
	gpc_key k[PROMPT + 1];
	gpc_block b[PROMPT];
	gpc_transfer t;
	uint32_t j;

	bytes_chain(engine[i], vram[i], 1, PROMPT, b, true);
	for (j = 0; j < PROMPT; j++)
		m[j] = (struct gpc_move){ .from = b[j], .to = up[j] };
	must(gpc_copy(engine[i], m, PROMPT, 0, NULL, &t));
	must(gpc_transfer_wait(engine[i], t, 5000));
	chain_keys(engine[i], 1, PROMPT, k);
	is_int(gpc_publish(engine[i], k, k + 1, up, PROMPT, NULL, 0, 2000), PROMPT,
	       "published in RAM");
	must(gpc_release(engine[i], up, PROMPT));
	must(gpc_release(engine[i], b, PROMPT));
}

struct follower {
	struct gpc_claim q;
	int got;
};

static void *follow(void *arg)
{
	struct follower *f = arg;

	f->got = gpc_claim_wait(engine[1], &f->q, 1, 10000);
	return NULL;
}

static int body(void)
{
	struct gpc_claim q[PROMPT], theirs[PROMPT];
	gpc_block up[PROMPT], down[PROMPT];
	struct follower f = { .got = 99 };
	pthread_t thread;
	gpc *c = bytes_cache();
	int i;

	serve_begin(c);
	ram = bytes_ram(c, 32, 0, GPC_POOL_UNCHAINED);
	for (i = 0; i < 2; i++) {
		engine[i] = cache_attach(0, 0);
		vram[i] = bytes_vram(engine[i], 16, 1 + (uint32_t)i, -1, 0);
	}
	is_int(fetched(0, down), 0, "nobody has the prompt");
	is_int(fetched(1, down), 0, "as the other one finds");
	is_int(claimed(0, up, q), PROMPT, "the first one claims all of it, in RAM");
	is_int(claimed(1, down, theirs), 0, "the second one claims nothing");
	is_int(theirs[0].state, GPC_CLAIM_PENDING, "it is told that somebody computes");
	is_int(theirs[0].pid, getpid(), "who");
	is_int(theirs[3].ahead, 3, "and how far it is from there");
	must(gpc_release(engine[1], down, PROMPT));
	f.q = theirs[PROMPT - 1];
	if (pthread_create(&thread, NULL, follow, &f))
		bail("no thread");
	compute(0, up);
	pthread_join(thread, NULL);
	is_int(f.got, 0, "who waits for the last block is told");
	is_int(fetched(1, down), PROMPT, "it fetches all");
	is_int(fetch_in(down, PROMPT, vram[1]), PROMPT, "into VRAM of its own");
	is_int(fetch_right(engine[1], down, PROMPT, 1), PROMPT, "every byte");
	must(gpc_release(engine[1], down, PROMPT));
	is_int(fetch_there(engine[0], 1, PROMPT, 1, vram[0]), PROMPT,
	       "the first one has its own still");
	is_int(fetch_there(engine[0], 1, PROMPT, 0, ram), PROMPT,
	       "and RAM has a copy for the next one");
	for (i = 0; i < 2; i++)
		must(gpc_close(engine[i]));
	serve_end();
	fetch_end(c, "one computed, two have it");
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
