/* SPDX-License-Identifier: Apache-2.0 */
/* Guarantee F, live: a peer that does anything, drawn by chance, hurts only itself.  Commands of
 * all kinds, for its own blocks and those of others, and nonsense in whatever it may store.
 * neighbour.h says what an honest peer sees of that: nothing.
 * Tests: lib/writer/command.c */
#include "t/lib/brat.h"

/* Half of the time something of its own; else what it has no right to. */
static gpc_block any_block(struct brat *g)
{
	uint32_t i, record = below(g, records(g));

	if (!below(g, 8))
		return (gpc_block)nasty(g);
	for (i = 0; i < records(g) && below(g, 128); i++) {
		if (seg_record(&g->c->seg, record)->owner == g->c->peer)
			break;
		record = (record + 1) % records(g);
	}
	return block_of(g, record);
}

/* Of any kind; but what all may do to each other's blocks (drop, clear, demote, evict,
 * reserve more than is good) it does only outside of HOME. */
static struct shm_command any_command(struct brat *g)
{
	static const uint8_t pool[] = { ATTIC, PLAY, PLAY, PLAY, 7, 100, 0xff };
	static const uint32_t count[] = { 1, 1, 1, 2, 3, 8, 0, 64, UINT32_MAX };
	gpc_block block = any_block(g), to = any_block(g);
	struct shm_command cmd = {
		.op = (uint8_t)(below(g, 16) ? 1 + below(g, CMD_LAST) : below(g, 256)),
		.flags = (uint8_t)(below(g, 256) & ~(uint32_t)CF_REMOVE),
		.pool = pool[below(g, ARRAY_SIZE(pool))],
		.to_pool = pool[below(g, 3)],
		.count = count[below(g, ARRAY_SIZE(count))],
		.block = block,
		.to = to,
		.arg = nasty(g),
		.tag = below(g, 3),
	};
	gpc_key key = crew_key(4000 + below(g, 12));
	gpc_key parent = crew_key(4000 + below(g, 12));
	uint32_t record = pool_record(&g->c->seg, to);

	memcpy(cmd.key, &key, sizeof(key));
	if (below(g, 3))
		memcpy(cmd.parent, &parent, sizeof(parent));
	if (record != SHM_NO_RECORD && below(g, 4))
		cmd.arg = seg_record(&g->c->seg, record)->op;
	if (cmd.op == CMD_CLEAR)
		cmd.pool = PLAY;
	if ((cmd.op == CMD_DROP || cmd.op == CMD_DEMOTE) && GPC_POOL(block) == HOME)
		cmd.block = GPC_BLOCK(PLAY, GPC_SLOT(block));
	if (cmd.op == CMD_DEMOTE && below(g, 2))
		cmd.block = GPC_NONE;
	return cmd;
}

static void any_commands(struct brat *g)
{
	struct shm_command cmd[64];
	uint32_t i, n = 1 + below(g, 12);
	uint64_t used = g->head - load_acquire(&g->seat->tail);

	for (i = 0; i < n; i++)
		cmd[i] = any_command(g);
	cmd[0].count = below(g, 2) ? n : cmd[0].count;
	if (used + n <= SHM_RING)
		submit(g, cmd, n);
}

static void any_section(struct brat *g)
{
	struct shm_section *s = seg_section(&g->c->seg, g->c->peer, below(g, 4));

	store_relaxed(&g->seat->sections, 4);
	store_relaxed(&s->ticket, 1 + below(g, 3));
	store_relaxed(&s->done, below(g, 3));
	store_release(&s->epoch, below(g, 3) ? 0 : load_relaxed(&g->shared->epoch));
}

static void anything(struct brat *g)
{
	uint16_t *cell = seg_cell(&g->c->seg, below(g, records(g)), g->c->peer);

	switch (below(g, 16)) {
	case 0:
		show_head(g, g->head - below(g, 16));
		break;
	case 1:
		store_relaxed(&g->seat->quota, below(g, 9));
		store_relaxed(&g->seat->waiting, (uint32_t)nasty(g));
		break;
	case 2:
		store_relaxed(seg_stamp(&g->c->seg, below(g, records(g))), nasty(g));
		store_relaxed(seg_use(&g->c->seg, below(g, records(g))), (uint32_t)nasty(g));
		break;
	case 3:
		order_or64(&g->shared->pending[below(g, 4)], nasty(g));
		break;
	case 4:
		store_release(&slot(g, g->head - below(g, 32))->result, (int32_t)nasty(g));
		break;
	case 5:
		((uint32_t *)&g->seat->request)[below(g, 12)] = (uint32_t)nasty(g);
		break;
	case 6:
	case 7:
		any_section(g);
		break;
	case 8:
		store_relaxed(cell, (uint16_t)nasty(g));
		break;
	case 9:
	case 10:
		store_relaxed(cell, 0);
		break;
	default:
		any_commands(g);
	}
}

static const struct scene scenes[] = {
	{ "anything", NULL, anything, 1, 200, true },
	{ "anything, by two", NULL, anything, 2, 200, true },
};

static int body(void)
{
	brats_live(scenes, ARRAY_SIZE(scenes));
	return done_testing();
}

int main(void)
{
	scratch_make("t396");
	return tap_guard(120, body, scratch_remove);
}
