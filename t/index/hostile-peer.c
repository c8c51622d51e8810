/* SPDX-License-Identifier: Apache-2.0 */
/* Guarantee F, live: a peer that writes rubbish hurts only itself.
 *
 * In each scene a brat fills one thing of its own with nonsense, or does one thing that no peer
 * does.  neighbour.h says what an honest peer sees of that: nothing.
 * Tests: lib/index/writer/command.c lib/index/writer/loop.c */
#include "t/lib/brat.h"

/* ---- the scenes ---- */

static void never_shown(struct brat *g, uint64_t from, uint32_t n)
{
	while (n--)
		*slot(g, from++) = (struct shm_command){ .op = CMD_NOP, .result = CMD_PENDING };
}

static void far_head(struct brat *g)
{
	static const uint64_t by[] = { SHM_RING + 1, 1ull << 32, 1ull << 63, UINT64_MAX };
	uint64_t head = g->head;
	uint32_t i;

	never_shown(g, 0, SHM_RING);
	for (i = 0; i < ARRAY_SIZE(by); i++) {
		show_head(g, head + by[i]);
		crew_breath();
	}
}

/* Below what was started, and not below what is acknowledged. */
static void head_goes_back(struct brat *g)
{
	struct shm_command nop = { .op = CMD_NOP };
	uint64_t from = park(g, 0);
	uint32_t i;

	for (i = 0; i < 5; i++)
		must_be(ask(g, nop), 0);
	never_shown(g, from + 64, SHM_RING - 64);
	for (i = PARKED + 5; i--;) {
		show_head(g, from + i);
		crew_breath();
	}
	show_head(g, from + 3);
}

/* Commands for the blocks that its own waiting command has. */
static void use_parked(struct brat *g)
{
	static const uint8_t op[] = { CMD_COMMIT, CMD_PUBLISH, CMD_FREE, CMD_COMMIT };
	uint32_t list[128], i, n, j;
	uint64_t from = park(g, 0);

	n = its(g, RESERVED, list);
	must_be(n, PARKED - VICTIMS);
	n += its(g, DYING, list + n);
	for (i = 0; i < n; i++) {
		const struct shm_record *r = seg_record(&g->c->seg, list[i]);
		struct shm_command cmd = { .count = 1,
					   .block = block_of(g, list[i]),
					   .flags = CF_UNCHAINED };
		uint32_t word = r->word;

		for (j = 0; j < ARRAY_SIZE(op); j++) {
			cmd.op = op[j];
			cmd.flags = j == 3 ? CF_CANCEL : CF_UNCHAINED;
			memset(&cmd.publish, 0, sizeof(cmd.publish)); /* FREE: of any life */
			if (op[j] == CMD_COMMIT)
				cmd.commit = (struct shm_cmd_commit){ .to = cmd.block,
								      .move_op = r->op };
			else if (op[j] == CMD_PUBLISH)
				cmd.publish = (struct shm_cmd_publish){ .key = { crew_mix(i), 5 } };
			ask_refused(g, cmd, "a block of a waiting command");
			need(r->word == word,
			     "op %u on a block of a waiting command: "
			     "its word was 0x%x and is 0x%x",
			     cmd.op, word, r->word);
		}
	}
	gpc_section_leave(g->c, g->section);
	must_be(answer(g, from), PARKED);
	for (i = 0; i < PARKED; i++)
		crew_own(slot(g, from + i)->block);
	must_be(its(g, RESERVED, list), PARKED);
}

static void wrong_counts(struct brat *g)
{
	static const uint8_t op[] = { CMD_RESERVE, CMD_EVICT, CMD_DEMOTE, CMD_PROMOTE, CMD_COMMIT };
	static const uint32_t count[] = { 0, 2, SHM_RING, SHM_RING + 1, 1u << 31, UINT32_MAX };
	struct shm_command cmd = { .pool = PLAY };
	uint32_t i, j;

	for (i = 0; i < ARRAY_SIZE(op); i++)
		for (j = 0; j < ARRAY_SIZE(count); j++) {
			cmd.op = op[i];
			cmd.count = count[j];
			if (op[i] == CMD_DEMOTE || op[i] == CMD_PROMOTE)
				cmd.move.to_pool = ATTIC;
			ask_refused(g, cmd, "a wrong count");
		}
}

static void unknown_ops(struct brat *g)
{
	struct shm_command cmd = { .count = 1 };
	uint32_t op;

	for (op = 0; op < 256; op++) {
		cmd.op = (uint8_t)op;
		if (op == CMD_NONE || op > CMD_LAST)
			ask_refused(g, cmd, "unknown");
	}
}

/* Its command counts as answered then, and the ring goes round over its slots. */
static void false_results(struct brat *g)
{
	struct shm_command nop[64];
	uint32_t i, list[128];
	uint64_t from = park(g, 0);

	for (i = 0; i < 64; i++)
		nop[i] = (struct shm_command){ .op = CMD_NOP };
	for (i = PARKED; i--;)
		store_release(&slot(g, from + i)->result, (int32_t)i);
	for (i = 0; i < SHM_RING / 64 + 2; i++)
		must_be(answer(g, submit(g, nop, 64) + 63), 0);
	gpc_section_leave(g->c, g->section);
	crew_until(its(g, RESERVED, list) == PARKED, crew_breath());
	store_release(&slot(g, g->head - 1)->result, CMD_PENDING);
	store_release(&slot(g, g->head - 2)->result, -1);
	ring_doorbell(g->c);
}

static void scribble_seat(struct brat *g)
{
	struct shm_seat *s = g->seat;
	uint32_t *word = (uint32_t *)&s->lookups, i;

	store_relaxed(&s->head, nasty(g));
	store_relaxed(&s->tail, nasty(g));
	store_relaxed(&s->done, (uint32_t)nasty(g));
	store_relaxed(&s->waiting, (uint32_t)nasty(g));
	store_relaxed(&s->quota, (uint32_t)nasty(g));
	store_relaxed(&s->sections, (uint32_t)nasty(g));
	store_relaxed(&s->incarnation, (uint32_t)nasty(g));
	for (i = 0; i < 16 + 128; i++) /* counters, held */
		if (&word[i] != &s->sections)
			store_relaxed(&word[i], (uint32_t)nasty(g));
	memset(s->label, 0xff, sizeof(s->label));
	ring_doorbell(g->c);
}

static void bad_requests(struct brat *g)
{
	static const struct shm_pool good = {
		.range = 4, .blocks = 4, .kind = GPC_VRAM, .owner = -1, .demote_to = -1, .gpus = 1
	};
	struct shm_command cmd = { .op = CMD_POOL, .count = 1 };
	struct shm_pool bad[14];
	uint32_t i, j;

	for (i = 0; i < ARRAY_SIZE(bad); i++)
		bad[i] = good;
	bad[0].blocks = bad[1].kind = 0;
	bad[2].range = bad[3].blocks = UINT32_MAX;
	bad[3].range = UINT64_MAX;
	bad[4].space = GPC_MAX_SPACES;
	bad[5].flags = UINT32_MAX;
	bad[6].gpus = 17;
	bad[7].backing_size = UINT32_MAX;
	bad[8].demote_to = INT32_MAX;
	/* images of no bytes, VRAM of nobody, */
	bad[10].memory = bad[11].memory = bad[12].memory = 77;
	bad[11].block_bytes = bad[12].block_bytes = bad[13].block_bytes = 64;
	bad[12].flags = GPC_POOL_OWNED; /* words beside, images of no memory */
	bad[12].backing_size = 8;
	for (j = 0; j < sizeof(bad[9]); j++)
		((uint8_t *)&bad[9])[j] = (uint8_t)(128 + below(g, 128));
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		g->seat->request = bad[i];
		ask_refused(g, cmd, "a pool");
	}
}

static void raise_column(struct brat *g)
{
	uint32_t i;

	for (i = 0; i < records(g); i++)
		store_relaxed(seg_cell(&g->c->seg, i, g->c->peer), (uint16_t)nasty(g));
}

static void scribble_sections(struct brat *g)
{
	struct shm_section *s;
	uint32_t i;

	for (i = 0; i < SHM_SECTIONS; i++) {
		s = seg_section(&g->c->seg, g->c->peer, i);
		store_relaxed(&s->ticket, nasty(g));
		store_relaxed(&s->done, nasty(g));
		store_relaxed(&s->since_ns, nasty(g));
		store_relaxed(&s->kind, (uint32_t)nasty(g));
		store_relaxed(&s->epoch, nasty(g));
	}
	store_relaxed(&g->seat->sections, UINT32_MAX);
	s = seg_section(&g->c->seg, g->c->peer, 9); /* one is open, for ever */
	store_relaxed(&s->ticket, UINT64_MAX);
	store_relaxed(&s->done, 0);
	store_relaxed(&s->epoch, 1);
}

static void scribble_stamps(struct brat *g)
{
	uint32_t i;

	for (i = 0; i < records(g); i++) {
		store_relaxed(seg_stamp(&g->c->seg, i), nasty(g));
		store_relaxed(seg_use(&g->c->seg, i), (uint32_t)nasty(g));
	}
}

static void scribble_line(struct brat *g)
{
	store_relaxed(&g->shared->epoch, nasty(g));
	store_relaxed(&g->shared->pending[below(g, 4)], nasty(g));
	store_relaxed(&g->shared->sleeping, below(g, 3));
	ring_doorbell(g->c);
}

/* With holds, an open section and a command under way. */
static void deny_the_seat(struct brat *g)
{
	park(g, 0);
	raise_column(g);
	store_release(&g->seat->state, SEAT_FREE);
	ring_doorbell(g->c);
}

static void leave_the_seat(struct brat *g)
{
	park(g, 0);
	raise_column(g);
	store_release(&g->seat->state, SEAT_LEFT);
	ring_doorbell(g->c);
}

/* It says that it is a process that has ended; who it is was noted when it came. */
static void play_dead(struct brat *g)
{
	struct timespec look = { .tv_nsec = 100000000 };

	park(g, 0);
	store_relaxed(&g->seat->start_time, g->seat->start_time + 1);
	nanosleep(&look, NULL);
	must_be(load_acquire(&g->seat->state), SEAT_TAKEN);
	raise_column(g);
	scribble_sections(g);
	show_head(g, g->head + 5);
}

/* ---- one after the other ---- */

static const struct scene scenes[] = {
	{ "its head far ahead", far_head, NULL, 1, 16, false },
	{ "its head below what was started", head_goes_back, NULL, 1, 16, true },
	{ "commands for the blocks of a waiting one", use_parked, NULL, 1, 16, false },
	{ "groups of no, or too many, slots", wrong_counts, NULL, 1, 16, false },
	{ "commands that there are not", unknown_ops, NULL, 1, 16, false },
	{ "results before the writer's", false_results, NULL, 1, 16, false },
	{ "its seat", scribble_seat, scribble_seat, 1, 48, false },
	{ "requests for pools", bad_requests, NULL, 1, 16, false },
	{ "its column of references", raise_column, raise_column, 1, 16, true },
	{ "its sections", scribble_sections, scribble_sections, 1, 16, true },
	{ "all stamps", scribble_stamps, scribble_stamps, 1, 48, false },
	{ "the epoch, the bells", scribble_line, scribble_line, 1, 48, false },
	{ "the same, by two", scribble_line, scribble_line, 2, 48, false },
	{ "a seat that it calls empty", deny_the_seat, NULL, 1, 16, true },
	{ "a seat that it says it has left", leave_the_seat, NULL, 1, 16, true },
	{ "a process that it says has ended", play_dead, NULL, 1, 16, true },
};

static int body(void)
{
	brats_live(scenes, ARRAY_SIZE(scenes));
	return done_testing();
}

int main(void)
{
	scratch_make("t391");
	return tap_guard(120, body, scratch_remove);
}
