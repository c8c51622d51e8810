/* SPDX-License-Identifier: Apache-2.0 */
/* Guarantee F, live: a peer that does anything, drawn by chance, hurts only itself.  Commands of
 * all kinds, for its own blocks and those of others, and nonsense in whatever it may store.
 * neighbour.h says what an honest peer sees of that: nothing.
 * Tests: lib/index/writer/command.c */
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

static void any_publish(struct brat *g, struct shm_cmd_publish *ret)
{
	gpc_key key = crew_key(4000 + below(g, 12)), parent = crew_key(4000 + below(g, 12));

	*ret = (struct shm_cmd_publish){ .key = { key.w[0], key.w[1] },
					 .tag = below(g, 3),
					 .source = any_block(g),
					 .seen = (uint32_t)nasty(g),
					 .since = (uint32_t)nasty(g) };
	if (below(g, 3))
		memcpy(ret->parent, &parent, sizeof(parent));
}

/* Those of its kind, or those of another one. */
static void any_arguments(struct brat *g, struct shm_command *cmd)
{
	gpc_block to = any_block(g);
	uint32_t record = pool_record(&g->c->seg, to);

	any_publish(g, &cmd->publish); /* key, too, of claims, aliases and roots */
	switch (below(g, 8) ? cmd->op : below(g, CMD_LAST)) {
	case CMD_FREE:
	case CMD_UNCLAIM:
		cmd->free.life = (uint32_t)nasty(g);
		break;
	case CMD_DROP:
		cmd->drop.life = (uint32_t)nasty(g);
		cmd->drop.alone = (uint8_t)below(g, 3);
		break;
	case CMD_CLAIM:
		cmd->claim.life = (uint32_t)nasty(g);
		break;
	case CMD_RESERVE:
		cmd->group_state = below(g, 4) ? GROUP_OPEN : nasty(g);
		cmd->reserve.headroom = nasty(g);
		break;
	case CMD_EVICT:
		cmd->group_state = below(g, 4) ? GROUP_OPEN : nasty(g);
		cmd->evict.headroom = nasty(g);
		break;
	case CMD_DEMOTE:
	case CMD_PROMOTE:
		cmd->group_state = below(g, 4) ? GROUP_OPEN : nasty(g);
		cmd->move.transfer = below(g, 2) ? nasty(g) : 0;
		cmd->move.to_pool = below(g, 2) ? ATTIC : PLAY;
		cmd->move.any = below(g, 2);
		break;
	case CMD_COMMIT:
		cmd->commit.to = to;
		cmd->commit.move_op = record != SHM_NO_RECORD && below(g, 4)
					      ? seg_record(&g->c->seg, record)->op
					      : nasty(g);
		break;
	case CMD_CLEAR:
		cmd->clear.generation = nasty(g);
		cmd->clear.tag = below(g, 3);
		cmd->clear.begun = below(g, 3);
		break;
	case CMD_CUT:
		cmd->cut.transfer = nasty(g);
		cmd->cut.from = nasty(g);
	}
}

/* Of any kind; but what all may do to each other's blocks (drop, clear, demote, evict,
 * reserve more than is good) it does only outside of HOME. */
static struct shm_command any_command(struct brat *g)
{
	static const uint8_t pool[] = { ATTIC, PLAY, PLAY, PLAY, 7, 100, 0xff };
	static const uint32_t count[] = { 1, 1, 1, 2, 3, 8, 0, 64, UINT32_MAX };
	gpc_block block = any_block(g);
	struct shm_command cmd = {
		.op = (uint8_t)(below(g, 16) ? 1 + below(g, CMD_LAST) : below(g, 256)),
		.flags = (uint16_t)(below(g, CF_SINCE << 1) & ~(uint32_t)CF_REMOVE),
		.pool = pool[below(g, ARRAY_SIZE(pool))],
		.count = count[below(g, ARRAY_SIZE(count))],
		.block = block,
	};

	any_arguments(g, &cmd);
	if (cmd.op == CMD_CLEAR)
		cmd.pool = PLAY;
	if ((cmd.op == CMD_DROP || cmd.op == CMD_DEMOTE) && GPC_POOL(block) == HOME)
		cmd.block = GPC_BLOCK(PLAY, GPC_SLOT(block));
	if (cmd.op == CMD_DROP) /* everywhere is in HOME, too */
		cmd.flags &= (uint16_t)~CF_EVERYWHERE;
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
