/* SPDX-License-Identifier: Apache-2.0 */
/* ghosts.h - a cache with a chain of two in RAM, and peers in processes of their own, of which only
 * the seat counts: what stands in their rings is the test's. */
#ifndef GPC_T_GHOSTS_H
#define GPC_T_GHOSTS_H

#include <sys/mman.h>
#include <sys/wait.h>

#include "xfers.h"

enum { VRAM, RAM, BLOCKS = 4 };

/* ---- a peer in a process of its own, of which only the seat counts ---- */

static struct ghost {
	gpc gpc;
	pid_t pid;
	uint32_t *state;
} ghosts[2];

TAP_FN void ghost_run(struct ghost *g, bool holds)
{
	gpc *own = cache_attach(0, 0);
	gpc_key k[3];
	gpc_block b[2];

	chain_keys(own, 1, 2, k);
	if (holds)
		must(gpc_acquire(own, 0, k + 1, 2, b, 0));
	store_release(g->state, own->peer + 1);
	for (;;)
		pause();
}

/* Its handle, as far as this process needs one. */
TAP_FN gpc *ghost_make(struct ghost *g, bool holds)
{
	struct timespec pause = { .tv_nsec = 100000 };

	if (!g->state)
		g->state =
			mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (g->state == MAP_FAILED)
		bail("no page");
	store_release(g->state, 0);
	g->pid = fork();
	if (g->pid < 0)
		bail("no process");
	if (!g->pid)
		ghost_run(g, holds);
	while (!load_acquire(g->state))
		nanosleep(&pause, NULL);
	g->gpc = *c;
	g->gpc.peer = load_acquire(g->state) - 1;
	return &g->gpc;
}

TAP_FN void ghost_kill(struct ghost *g)
{
	kill(g->pid, SIGKILL);
	while (waitpid(g->pid, NULL, 0) < 0)
		;
}

TAP_FN uint32_t seat_of(gpc *p)
{
	return load_acquire(&xfers_seat(p)->state);
}

/* The writer looks for the dead. */
TAP_FN bool is_reaped(gpc *p)
{
	int i;

	for (i = 0; i < 200 && seat_of(p) != SEAT_FREE; i++)
		must(gpc_writer_serve(c, 1));
	return seat_of(p) == SEAT_FREE;
}

/* ---- a cache for each death ---- */

TAP_FN void begin(gpc_block *b)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_pool ram = pool_of(GPC_RAM, BLOCKS, 0);

	cfg.quarantine_ms = 20; /* a successor does not know who it was */
	ram.transit = 2;
	cfg.max_blocks = 12; /* takeover stores to each that is free */
	cfg.max_peers = 8;
	c = cache_make(&cfg, NULL);
	pool_new(c, GPC_VRAM, BLOCKS, 0, 0);
	must(gpc_pool_make(c, &ram, NULL, -1));
	chain_make(c, RAM, 1, 2, b);
}

TAP_FN void hold(gpc_block *b)
{
	gpc_key k[3];

	chain_keys(c, 1, 2, k);
	if (must(gpc_acquire(c, 0, k + 1, 2, b, 0)) != 2)
		bail("no chain");
}

static gpc_block sources[2];
static struct xfer bound;

TAP_FN bool in_vram(void)
{
	return find(c, 1) >> 24 == VRAM && find(c, 2) >> 24 == VRAM;
}

TAP_FN bool in_ram(void)
{
	return find(c, 1) >> 24 == RAM && find(c, 2) >> 24 == RAM;
}

#endif
