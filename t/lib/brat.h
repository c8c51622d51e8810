/* SPDX-License-Identifier: Apache-2.0 */
/* brat.h - a peer with a seat like anybody's that writes rubbish, and its tools: it fills what is
 * its own in the control segment, and some words that all may store.
 *
 *   GPC_T_SEED=n    other nonsense */
#ifndef GPC_T_BRAT_H
#define GPC_T_BRAT_H

#include "neighbour.h"

#include "index/peer/ring.h"

struct brat {
	gpc *c;
	struct shm_seat *seat;
	struct shm_shared *shared;
	uint64_t head, random;
	int section;
};

struct scene {
	const char *what;
	void (*mess)(struct brat *g);
	void (*stir)(struct brat *g); /* again and again, until it is killed */
	int brats, rounds;
	bool holds; /* grace periods, or references */
};
static const struct scene *scene;
static uint64_t scene_number;
static uint64_t seed = 1;

/* ---- a brat's tools ---- */

TAP_FN uint32_t below(struct brat *g, uint32_t n)
{
	return crew_random(&g->random, n);
}

TAP_FN uint64_t nasty(struct brat *g)
{
	static const uint64_t value[] = {
		0,          1,          2,         0xffff,     SHM_RING,       INT32_MAX,
		UINT32_MAX, 1ull << 32, INT64_MAX, 1ull << 63, UINT64_MAX - 1, UINT64_MAX
	};
	uint32_t i = below(g, 2 * ARRAY_SIZE(value));

	return i < ARRAY_SIZE(value) ? value[i] : crew_mix(g->random);
}

TAP_FN struct shm_command *slot(struct brat *g, uint64_t position)
{
	return seg_command(&g->c->seg, g->c->peer, position);
}

TAP_FN void show_head(struct brat *g, uint64_t head)
{
	store_release(&g->seat->head, head);
	ring_doorbell(g->c);
}

TAP_FN uint64_t submit(struct brat *g, const struct shm_command *cmds, uint32_t n)
{
	uint64_t from = g->head;
	uint32_t i;

	for (i = 0; i < n; i++) {
		*slot(g, from + i) = cmds[i];
		slot(g, from + i)->result = CMD_PENDING;
	}
	show_head(g, g->head += n);
	return from;
}

TAP_FN int32_t answer(struct brat *g, uint64_t position)
{
	int32_t got;

	crew_until((got = load_acquire(&slot(g, position)->result)) != CMD_PENDING, crew_breath());
	return got;
}

TAP_FN int32_t ask(struct brat *g, struct shm_command cmd)
{
	return answer(g, submit(g, &cmd, 1));
}

TAP_FN void ask_refused(struct brat *g, struct shm_command cmd, const char *what)
{
	int32_t got = ask(g, cmd);

	need(got < 0, "%s: op %u, count %u, block 0x%x: answered %d", what, cmd.op, cmd.count,
	     (unsigned)cmd.block, got);
}

TAP_FN uint32_t records(struct brat *g)
{
	return g->c->seg.header.geometry.max_blocks;
}

TAP_FN gpc_block block_of(struct brat *g, uint32_t record)
{
	uint32_t pool = PLAY + 1, first;

	do
		first = (uint32_t)(seg_pool(&g->c->seg, --pool)->range >> 32);
	while (pool > HOME && first > record);
	return GPC_BLOCK((gpc_block)pool, (gpc_block)(record - first));
}

/* Records in this state that are the brat's, or were taken for its commands. */
TAP_FN uint32_t its(struct brat *g, uint32_t state, uint32_t *list)
{
	uint32_t i, n = 0;

	for (i = 0; i < records(g); i++) {
		const struct shm_record *r = seg_record(&g->c->seg, i);

		if (r->owner == g->c->peer && WORD_STATE(load_acquire(&r->word)) == state)
			list[n++] = i;
	}
	return n;
}

#define PARKED  8 /* blocks it asks for ... */
#define VICTIMS 4 /* ... of which so many must be evicted, but cannot be */

/* A reserve that waits for a grace period which the brat's own section holds back; it has
 * some of its blocks, and places in RAM, already.  Returns its position. */
TAP_FN uint64_t park(struct brat *g, uint16_t flags)
{
	struct shm_command cmd[PARKED] = {
		{ .op = CMD_RESERVE, .flags = flags, .pool = PLAY, .count = PARKED }
	};
	uint32_t i, n = capacity[PLAY] - (PARKED - VICTIMS), list[128];
	gpc_block b[16];
	gpc_key k[16];

	for (i = 0; i < n; i++)
		k[i] = crew_key(3000 + i);
	must_be(gpc_reserve(g->c, PLAY, n, b, NULL, 0, BOUND), n);
	must_be(gpc_publish(g->c, NULL, k, b, n, NULL, 0, -1), n);
	must_be(gpc_release(g->c, b, n), 0);
	g->section = gpc_section_enter(g->c);
	need(g->section >= 0, "enter: %s", gpc_last_error());
	g->head = g->seat->head;
	submit(g, cmd, PARKED);
	crew_until(its(g, DYING, list) == VICTIMS, crew_breath());
	return g->head - PARKED;
}

/* ---- its life ---- */

TAP_FN int brat(int me)
{
	uint64_t number = 2 * scene_number + (uint64_t)me;
	struct brat g = { .random = crew_mix(seed << 16 | number) | 1 };

	alarm(LIMIT);
	crew_wait(GATE_STAND, 1);
	g.c = crew_attach("brat");
	g.seat = seg_seat(&g.c->seg, g.c->peer);
	g.shared = seg_shared(&g.c->seg);
	g.head = g.seat->head;
	crew->count[N_PID + me] = (uint64_t)getpid();
	crew->count[N_SEAT + me] = g.c->peer;
	if (scene->mess)
		scene->mess(&g);
	crew_open(GATE_MESS);
	while (crew_goes_on(GATE_END, 1))
		if (scene->stir)
			scene->stir(&g);
		else
			crew_breath();
	return 1; /* it was to be killed */
}

/* One scene after the other. */
TAP_FN void brats_live(const struct scene *scenes, size_t n)
{
	const char *s = getenv("GPC_T_SEED");
	char why[WHY];

	seed = s ? strtoull(s, NULL, 10) : seed;
	diag("GPC_T_SEED=%llu", (unsigned long long)seed);
	crew_begin();
	for (scene_number = 0; scene_number < n; scene_number++) {
		scene = &scenes[scene_number];
		company.brats = scene->brats;
		company.rounds = scene->rounds;
		company.holds = scene->holds;
		if (!ok(neighbour_lives(brat, why), "rubbish: %s", scene->what))
			diag("%s", why);
	}
}

#endif
