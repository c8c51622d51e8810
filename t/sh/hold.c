/* SPDX-License-Identifier: Apache-2.0 */
/* hold DIR NAME LABEL REFS RESERVED SECTIONS [FIRST [POOL [CLAIMS [TRANSFERS]]]]
 * - a worker at a gate.
 *
 * Attaches, publishes a chain of REFS blocks in pool POOL (0; keys from the numbers FIRST,
 * FIRST + 1, ...) and keeps a reference on each, reserves RESERVED blocks more, opens
 * SECTIONS sections.  Of the reserved blocks it claims the first CLAIMS, for the keys from FIRST +
 * 1000 on, and from the end of the chain it spills TRANSFERS blocks to where the pool demotes, each
 * by a transfer of its own whose copy it never makes.  Prints the keys as gpc-inspect does, then
 * "holding", and stays so. With GPC_T_LEADER="PEER LIFE" it is that one's companion, and with
 * GPC_T_LIFE=yes it prints "life PEER LIFE" before "holding". With GPC_T_MAKES=SEATS it is an engine:
 * it makes the cache, of 20 blocks of RAM with memory and room for more, and serves it. SIGTERM opens the gate: all of it is
 * given back, exit status 0. */
#include "gpc.h"
#include "gpc_device.h"
#include "gpc_look.h"
#include "gpc_serve.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST = 256, TAG = 7 };

/* What has to work for the rest to make sense. */
#define must(call) must_work((call), #call)

static int must_work(int r, const char *what)
{
	if (r < 0) {
		fprintf(stderr, "hold: %s: %s\n", what, gpc_last_error());
		exit(1);
	}
	return r;
}

/* A chain: keys[0] is no key, and the parent of the first block. */
static void publish(gpc *c, uint64_t first, uint32_t n, const gpc_block *blocks)
{
	gpc_key keys[MOST + 1] = { 0 };
	uint64_t numbers[MOST];

	for (uint32_t i = 0; i < n; i++)
		numbers[i] = first + i;
	must(gpc_key_import(c, numbers, 8, 8, n, 0, keys + 1));
	if (must(gpc_publish(c, keys, keys + 1, blocks, n,
			     GPC_OPTIONS(gpc_publish_options, .tag = TAG), 0, -1)) != (int)n) {
		fprintf(stderr, "hold: the keys are there already\n");
		exit(1);
	}
	for (uint32_t i = 1; i <= n; i++)
		printf("%016" PRIx64 "%016" PRIx64 "\n", keys[i].w[0], keys[i].w[1]);
}

static void claim(gpc *c, uint64_t first, uint32_t n, const gpc_block *blocks)
{
	struct gpc_claim claims[MOST];
	gpc_key keys[MOST];
	uint64_t numbers[MOST];

	for (uint32_t i = 0; i < n; i++)
		numbers[i] = first + i;
	must(gpc_key_import(c, numbers, 8, 8, n, 0, keys));
	if (must(gpc_claim(c, keys, blocks, n, claims, 0, 5000)) != (int)n) {
		fprintf(stderr, "hold: the keys are claimed already\n");
		exit(1);
	}
}

/* This process is the rank that copies. */
static void spill(gpc *c, int pool, gpc_block block)
{
	struct gpc_info info = { .size = sizeof(info) };
	struct gpc_move move;
	uint32_t moves;

	must(gpc_info_get(c, &info));
	must(gpc_spill(c, pool, -1, &block, 1,
		       GPC_OPTIONS(gpc_spill_options, .nranks = 1, .ranks = &info.peer,
				   .moves = &move, .nmoves = &moves),
		       0, NULL, 5000, NULL));
}

static void find_leader(struct gpc_attach_options *opt)
{
	const char *text = getenv("GPC_T_LEADER");

	if (text && sscanf(text, "%" SCNd32 " %" SCNu64, &opt->leader, &opt->life) == 2)
		opt->leader++;
}

static void begin(const char *name, const struct gpc_attach_options *opt, gpc **ret)
{
	struct gpc_memory memory = { .size = sizeof(memory), .block_bytes = 4096 };
	struct gpc_config cfg = { .size = sizeof(cfg),
				  .dir = opt->dir,
				  .block_tokens = 16,
				  .max_blocks = 1000,
				  .ram_blocks = 20,
				  .ram_memory = &memory };
	const char *seats = getenv("GPC_T_MAKES");

	if (!seats) {
		must(gpc_attach(name, opt, 0, ret));
		return;
	}
	cfg.max_peers = (uint32_t)atoi(seats);
	must(gpc_create(name, &cfg, opt, GPC_SERVE, ret));
}

static void print_life(gpc *c)
{
	struct gpc_info info = { .size = sizeof(info) };

	must(gpc_info_get(c, &info));
	if (getenv("GPC_T_LIFE"))
		printf("life %" PRId32 " %" PRIu64 "\n", info.peer, info.life);
}

static void wait_for_gate(void)
{
	sigset_t gate;
	int sig;

	sigemptyset(&gate);
	sigaddset(&gate, SIGTERM);
	sigprocmask(SIG_BLOCK, &gate, NULL);
	alarm(120);
	puts("holding");
	fflush(stdout);
	sigwait(&gate, &sig);
}

int main(int argc, char **argv)
{
	struct gpc_attach_options opt = { .size = sizeof(opt) };
	uint32_t refs, reserved, sections, claims, transfers;
	uint64_t first;
	int pool;
	gpc_block blocks[2 * MOST];
	gpc *c;

	if (argc < 7)
		return 2;
	opt.dir = argv[1];
	opt.label = argv[3];
	refs = (uint32_t)atoi(argv[4]);
	reserved = (uint32_t)atoi(argv[5]);
	sections = (uint32_t)atoi(argv[6]);
	first = argc > 7 ? strtoull(argv[7], NULL, 10) : 1;
	pool = argc > 8 ? atoi(argv[8]) : 0;
	claims = argc > 9 ? (uint32_t)atoi(argv[9]) : 0;
	transfers = argc > 10 ? (uint32_t)atoi(argv[10]) : 0;
	if (refs > MOST || reserved > MOST || claims > reserved || transfers > refs)
		return 2;
	find_leader(&opt);
	begin(argv[2], &opt, &c);
	print_life(c);
	if (refs + reserved)
		must(gpc_reserve(c, pool, refs + reserved, blocks, NULL, 0, 5000));
	if (refs)
		publish(c, first, refs, blocks);
	if (claims)
		claim(c, first + 1000, claims, blocks + refs);
	for (uint32_t i = 0; i < transfers; i++)
		spill(c, pool, blocks[refs - 1 - i]);
	while (sections--)
		must(gpc_section_enter(c));
	wait_for_gate();
	return gpc_close(c) < 0;
}
