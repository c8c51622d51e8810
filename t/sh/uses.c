/* SPDX-License-Identifier: Apache-2.0 */
/* uses DIR NAME RATE RATE RATE - a load that is known: three prompts, each used so often a second.
 *
 * The first two begin with the same three blocks, below the root of model "often" and of tag 7, and
 * have one of their own; the third has four below the root of model "seldom", of tag 9.  Each use is
 * an acquire and a release, at a random moment; moments are the same in each run, and one that the
 * machine has missed is made up for.  A fourth prompt, of tag 11, is never used.  Prints
 * the keys, as gpc-inspect does, of the last common block and of the ends of the prompts, then
 * "using"; at SIGTERM "used" with the uses of each and the seconds that it has had. */
#include "gpc_look.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
	PROMPTS = 3,
	LONG = 4,
	COMMON = 3,
	STEP_NS = 2000000,
	SEED = 11, /* in any 15 s of it who looks sees the first prompt more than the second, and the
		    * second often without the first */
};

static volatile sig_atomic_t over;

static void on_term(int sig)
{
	(void)sig;
	over = 1;
}

static int must(int r, const char *what)
{
	if (r < 0) {
		fprintf(stderr, "uses: %s: %s\n", what, gpc_last_error());
		exit(1);
	}
	return r;
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static gpc_key root_of(gpc *c, const char *model)
{
	struct gpc_field f = { .tag = 1, .data = model };
	gpc_key root;

	while (model[f.len])
		f.len++;
	must(gpc_root_keep(c, &f, 1, &root, 0, 5000), "gpc_root_keep");
	return root;
}

/* Blocks from .. of a prompt that hang on `parent`; the last key is printed. */
static void publish(gpc *c, gpc_key parent, gpc_key *keys, uint32_t n, uint64_t first, uint32_t tag)
{
	gpc_block blocks[LONG];
	gpc_key parents[LONG];
	uint64_t numbers[LONG];

	for (uint32_t i = 0; i < n; i++)
		numbers[i] = first + i;
	must(gpc_key_import(c, numbers, 8, 8, n, 0, keys), "gpc_key_import");
	for (uint32_t i = 0; i < n; i++)
		parents[i] = i ? keys[i - 1] : parent;
	must(gpc_reserve(c, 0, n, blocks, NULL, 0, 5000), "gpc_reserve");
	must(gpc_publish(c, parents, keys, blocks, n, GPC_OPTIONS(gpc_publish_options, .tag = tag),
			 GPC_NO_REF, 5000),
	     "gpc_publish");
	printf("%016" PRIx64 "%016" PRIx64 "\n", keys[n - 1].w[0], keys[n - 1].w[1]);
}

static void use(gpc *c, const gpc_key *keys)
{
	gpc_block blocks[LONG];
	int n = must(gpc_acquire(c, 0, keys, LONG, blocks, 0), "gpc_acquire");

	must(gpc_release(c, blocks, (uint32_t)n), "gpc_release");
}

int main(int argc, char **argv)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .label = "uses" };
	struct timespec step = { 0, STEP_NS };
	gpc_key keys[PROMPTS + 1][LONG], often;
	unsigned long used[PROMPTS] = { 0 };
	unsigned long steps = 0;
	double begun;
	gpc *c;

	if (argc < 3 + PROMPTS)
		return 2;
	opt.dir = argv[1];
	must(gpc_attach(argv[2], &opt, 0, &c), "gpc_attach");
	often = root_of(c, "often");
	publish(c, often, keys[0], COMMON, 1, 7);
	for (int i = 0; i < COMMON; i++)
		keys[1][i] = keys[0][i];
	publish(c, keys[0][COMMON - 1], keys[0] + COMMON, LONG - COMMON, 10, 7);
	publish(c, keys[1][COMMON - 1], keys[1] + COMMON, LONG - COMMON, 20, 7);
	publish(c, root_of(c, "seldom"), keys[2], LONG, 30, 9);
	publish(c, often, keys[3], LONG, 40, 11);
	signal(SIGTERM, on_term);
	srand48(SEED);
	puts("using");
	fflush(stdout);
	for (begun = now(); !over; nanosleep(&step, NULL))
		for (; steps * (STEP_NS / 1e9) < now() - begun; steps++)
			for (int i = 0; i < PROMPTS; i++)
				if (drand48() < atof(argv[3 + i]) * (STEP_NS / 1e9)) {
					use(c, keys[i]);
					used[i]++;
				}
	printf("used %lu %lu %lu %.3f\n", used[0], used[1], used[2], now() - begun);
	return gpc_close(c) < 0;
}
