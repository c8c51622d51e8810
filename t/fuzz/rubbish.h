/* SPDX-License-Identifier: Apache-2.0 */
/* rubbish.h - what the brat stores where it may, as an input has it: commands, words, cells; how it
 * dies or leaves, and who comes after it. */
#ifndef GPC_FUZZ_RUBBISH_H
#define GPC_FUZZ_RUBBISH_H

#include "index/table/state.h" /* before globals of tests, which its names would shadow */
#include "honest.h"

#include "look/inspect.h"
#include "bytes/mapping/map.h"
#include "bytes/payload/transfer.h"
#include "index/peer/ring.h"

/* ---- the brat ---- */

FUZZ_FN struct shm_seat *seat(void)
{
	return seg_seat(&brat->seg, brat->peer);
}

FUZZ_FN struct shm_command *slot(uint64_t position)
{
	return seg_command(&brat->seg, brat->peer, position);
}

FUZZ_FN void show_head(uint64_t head)
{
	store_release(&seat()->head, head);
	ring_doorbell(brat);
}

/* One of those that are reserved for it, or that its commands wait for. */
FUZZ_FN gpc_block own_block(uint32_t which)
{
	static const uint32_t first[] = { 0, HOME_BLOCKS, HOME_BLOCKS + PLAY_BLOCKS };
	uint32_t i, n = 0, list[64], pool;

	for (i = 0; i < brat->seg.header.geometry.max_blocks; i++)
		if (seg_record(&brat->seg, i)->owner == brat->peer)
			list[n++] = i;
	if (!n)
		return GPC_BLOCK(PLAY, 0);
	i = list[which % n];
	pool = i >= first[ATTIC] ? ATTIC : i >= first[PLAY] ? PLAY : HOME;
	return GPC_BLOCK((gpc_block)pool, (gpc_block)(i - first[pool]));
}

FUZZ_FN gpc_block take_block(struct fuzz_input *in)
{
	uint32_t v = (uint32_t)fuzz_take(in, 1);

	if (v >= 250)
		return (gpc_block)fuzz_take_value(in);
	if (v >= 128)
		return own_block(v & 15);
	return GPC_BLOCK((gpc_block)(v >> 5), (gpc_block)(v & 31) % 18);
}

/* The operation that a block was given for, which it needs to commit it. */
FUZZ_FN uint64_t op_of(gpc_block b)
{
	uint32_t record = pool_record(&brat->seg, b);

	return record == SHM_NO_RECORD ? 0 : seg_record(&brat->seg, record)->op;
}

/* What each may do to another's blocks is not done to those of HOME. */
FUZZ_FN void be_polite(struct shm_command *c)
{
	bool home = GPC_POOL(c->block) == HOME;

	if (c->op == CMD_CLEAR && (c->pool == HOME || c->pool >= 5))
		c->pool = PLAY;
	if ((c->op == CMD_DROP || c->op == CMD_DEMOTE || c->op == CMD_PROMOTE) && home)
		c->block = GPC_BLOCK(PLAY, GPC_SLOT(c->block) % PLAY_BLOCKS);
	if (c->op == CMD_DEMOTE && c->pool == HOME)
		c->pool = PLAY;
	if (c->op == CMD_DROP) /* everywhere is in HOME, too */
		c->flags &= (uint16_t)~CF_EVERYWHERE;
}

/* 0, or anything. */
FUZZ_FN uint64_t take_odd(struct fuzz_input *in)
{
	return fuzz_take(in, 1) & 1 ? fuzz_take_value(in) : 0;
}

FUZZ_FN void take_publish(struct fuzz_input *in, struct shm_cmd_publish *ret)
{
	uint8_t keys = (uint8_t)fuzz_take(in, 1);
	gpc_key k = image_key(keys & 15), p = image_key(keys >> 4);

	memcpy(ret->key, &k, sizeof(k));
	memcpy(ret->parent, &p, sizeof(p));
	ret->tag = (uint32_t)take_odd(in);
	ret->source = take_block(in);
	ret->seen = (uint32_t)take_odd(in);
	ret->since = (uint32_t)take_odd(in);
}

FUZZ_FN void take_move(struct fuzz_input *in, struct shm_cmd_move *ret, uint32_t pool)
{
	*ret = (struct shm_cmd_move){ .transfer = take_odd(in),
				      .to_pool = pool < 5 ? pool & 3 : (uint8_t)fuzz_take_value(in),
				      .any = fuzz_take(in, 1) & 1 };
}

FUZZ_FN void take_arguments(struct fuzz_input *in, struct shm_command *c, uint32_t pool)
{
	take_publish(in, &c->publish); /* key, too, of claims, aliases and roots */
	switch (c->op) {
	case CMD_FREE:
	case CMD_UNCLAIM:
		c->free.life = (uint32_t)take_odd(in);
		break;
	case CMD_DROP:
		c->drop.life = (uint32_t)take_odd(in);
		c->drop.alone = (uint8_t)(fuzz_take(in, 1) % 3);
		break;
	case CMD_CLAIM:
		c->claim.life = (uint32_t)take_odd(in);
		break;
	case CMD_RESERVE:
		c->group_state = GROUP_OPEN;
		c->reserve.headroom = take_odd(in);
		break;
	case CMD_EVICT:
		c->group_state = GROUP_OPEN;
		c->evict.headroom = take_odd(in);
		break;
	case CMD_DEMOTE:
	case CMD_PROMOTE:
		c->group_state = take_odd(in);
		take_move(in, &c->move, pool);
		break;
	case CMD_COMMIT:
		c->commit = (struct shm_cmd_commit){ .to = take_block(in) };
		c->commit.move_op = op_of(c->commit.to);
		break;
	case CMD_CLEAR:
		c->clear = (struct shm_cmd_clear){ .generation = take_odd(in),
						   .tag = (uint32_t)take_odd(in) };
		break;
	case CMD_CUT:
		c->cut = (struct shm_cmd_cut){ .transfer = take_odd(in), .from = take_odd(in) };
	}
}

FUZZ_FN struct shm_command take_command(struct fuzz_input *in)
{
	uint8_t op = (uint8_t)fuzz_take(in, 1), more = (uint8_t)fuzz_take(in, 1);
	struct shm_command c = { .op = op < 240 ? (uint8_t)(1 + op % CMD_LAST) : op,
				 .flags = (uint16_t)fuzz_take(in, 2) };

	c.pool = (more & 7) < 4 ? more & 3 : (uint8_t)fuzz_take_value(in);
	c.count = more >> 6 ? more >> 6 : (uint32_t)fuzz_take_value(in);
	c.block = take_block(in);
	take_arguments(in, &c, more >> 3 & 7);
	if (polite)
		be_polite(&c);
	return c;
}

FUZZ_FN void submit(struct fuzz_input *in)
{
	uint32_t i, n = 1 + (uint32_t)fuzz_take(in, 1) % 4;
	uint64_t head = seat()->head;

	for (i = 0; i < n; i++) {
		struct shm_command c = take_command(in);

		if (i == 0 && c.count < 5 && c.count > 1)
			n = c.count;
		c.result = CMD_PENDING;
		*slot(head + i) = c;
		fuzz_count(N_COMMANDS);
	}
	show_head(head + n);
}

/* What a brat has stored in its slots may be any bytes, as long as it is polite. */
FUZZ_FN void scribble_slot(struct fuzz_input *in)
{
	struct shm_command c;
	uint64_t position = seat()->head - fuzz_take(in, 1) % 64 + 8;
	uint32_t at = (uint32_t)fuzz_take(in, 1) % 64, width = 1u << (at & 3);
	uint64_t value = fuzz_take_value(in);

	c = *slot(position);
	at &= ~(width - 1);
	memcpy((uint8_t *)&c + at, &value, width);
	if (polite)
		be_polite(&c);
	*slot(position) = c;
}

FUZZ_FN void scribble_words(struct fuzz_input *in, void *base, uint32_t bytes)
{
	uint32_t at = (uint32_t)fuzz_take(in, 2) % bytes & ~7u;
	uint64_t value = fuzz_take_value(in);
	uint32_t width = 1u << (value % 4);

	memcpy((uint8_t *)base + at, &value, width);
}

FUZZ_FN void scribble_section(struct fuzz_input *in)
{
	struct shm_section *s = seg_section(&brat->seg, brat->peer, fuzz_take(in, 1) & 63);
	uint64_t how = fuzz_take(in, 1);

	if (how & 1)
		store_relaxed(&seat()->sections, (uint32_t)fuzz_take_value(in));
	if (how & 2)
		store_release(&s->epoch, load_relaxed(&seg_shared(&brat->seg)->epoch));
	else
		scribble_words(in, s, 40);
}

FUZZ_FN void scribble_line(struct fuzz_input *in)
{
	struct shm_shared *line = seg_shared(&brat->seg);
	uint64_t what = fuzz_take(in, 1), value = fuzz_take_value(in);

	switch (what & 7) {
	case 0:
		store_relaxed(&line->epoch, value);
		break;
	case 1:
		store_relaxed(&line->completed, value);
		break;
	case 2:
		store_relaxed(&line->tick, value);
		break;
	case 3:
		store_relaxed(&line->sleeping, (uint32_t)value);
		break;
	default:
		store_relaxed(&line->pending[what & 3], value);
	}
}

FUZZ_FN void scribble_cell(struct fuzz_input *in)
{
	uint32_t records = brat->seg.header.geometry.max_blocks;
	uint32_t record = (uint32_t)fuzz_take(in, 1), n = record >= 192 ? records : 1;
	uint16_t value = (uint16_t)fuzz_take_value(in);

	for (record %= records; n--; record = (record + 1) % records)
		store_relaxed(seg_cell(&brat->seg, record, brat->peer), value);
}

FUZZ_FN void scribble_request(struct fuzz_input *in)
{
	struct shm_pool *p = &seat()->request;
	uint32_t blocks = 1 + (uint32_t)fuzz_take(in, 1) % 6;

	*p = (struct shm_pool){ .range = blocks,
				.blocks = blocks,
				.kind = GPC_VRAM,
				.space = 1,
				.owner = -1,
				.demote_to = -1,
				.gpus = 1,
				.flags = (uint32_t)fuzz_take(in, 1) & 7 };
	if (fuzz_take(in, 1) & 1)
		scribble_words(in, p, 48);
	if (fuzz_take(in, 1) % 4 == 0) { /* of files that are not there, some of them twice */
		p->memory = 1 + fuzz_take(in, 1) % 3;
		p->block_bytes = fuzz_take(in, 1) & 64;
	}
}

/* As SIGKILL would: the kernel closes its descriptors, and its number is no process's, or, as the
 * writer has noted it and its successor will, another one's. */
FUZZ_FN void kill_brat(void)
{
	if (writer && writer->writer)
		writer->writer->peer[brat->peer].who.start_time--;
	seat()->start_time--;
	fork_forget(brat);
	segment_close(&brat->seg);
	ring_free(brat);
	walk_free(brat);
	transfer_abandon(brat);
	map_abandon(brat);
	free(brat);
	brat = NULL;
	fuzz_count(N_REAPED);
}

FUZZ_FN void leave(bool politely)
{
	if (politely) {
		store_release(&seat()->state, SEAT_LEFT);
		ring_doorbell(brat);
		fuzz_count(N_LEFT);
	}
	kill_brat();
}

FUZZ_FN void wait_for_seat(void)
{
	int i = 0;

	do /* the brat may have said that it is free */
		serve(40);
	while (load_acquire(&seg_seat(&honest->seg, 2)->state) != SEAT_FREE && i++ < 100);
	fuzz_must(i < 100, "the seat is not taken back");
}

/* The writer sees each one sit there: who hides from it before it has looked once leaves what
 * only the next one in that seat takes along. */
FUZZ_FN void renew(struct fuzz_input *in)
{
	leave(fuzz_take(in, 1) & 1);
	wait_for_seat();
	brat = attach(0);
	serve(0);
	fuzz_count(N_RENEWED);
}

/* Commands that wait: its own section holds the grace period that victims need. */
FUZZ_FN void park(struct fuzz_input *in)
{
	struct shm_section *s = seg_section(&brat->seg, brat->peer, 0);
	uint32_t i, n = 1 + (uint32_t)fuzz_take(in, 1) % PLAY_BLOCKS,
		    how = (uint32_t)fuzz_take(in, 1);
	uint64_t head = seat()->head;

	store_relaxed(&seat()->sections, SHM_SECTIONS);
	store_relaxed(&s->done, 0);
	store_relaxed(&s->ticket, 1);
	store_release(&s->epoch, load_relaxed(&seg_shared(&brat->seg)->epoch));
	for (i = 0; i < n; i++)
		*slot(head + i) = (struct shm_command){ .op = how & 1 ? CMD_RESERVE : CMD_EVICT,
							.pool = PLAY,
							.count = n,
							.result = CMD_PENDING,
							.flags = how & 4 ? CF_TAKE : 0 };
	show_head(head + n);
	serve(0);
}

#endif
