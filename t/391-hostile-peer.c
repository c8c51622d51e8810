/* SPDX-License-Identifier: Apache-2.0 */
/* Guarantee F, live: a peer that writes rubbish hurts only itself.
 *
 * In each scene a brat, with a seat like anybody's, fills what is its own in the control
 * segment with nonsense: ring, seat, sections, cells, and some words that all may store.
 * neighbour.h says what an honest peer sees of that: nothing.
 *
 *   GPC_T_SEED=n    other nonsense */
#include "t/lib/neighbour.h"

#include "peer/ring.h"

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
	void (*stir)(struct brat *g);    /* again and again, until it is killed */
	int brats, rounds;
	bool holds;                      /* grace periods, or references */
};
static const struct scene *scene;
static uint64_t seed = 1;

/* ---- a brat's tools ---- */

static uint32_t below(struct brat *g, uint32_t n)
{
	return crew_random(&g->random, n);
}

static uint64_t nasty(struct brat *g)
{
	static const uint64_t value[] = { 0, 1, 2, 0xffff, SHM_RING, INT32_MAX,
					  UINT32_MAX, 1ull << 32, INT64_MAX, 1ull << 63,
					  UINT64_MAX - 1, UINT64_MAX };
	uint32_t i = below(g, 2 * ARRAY_SIZE(value));

	return i < ARRAY_SIZE(value) ? value[i] : crew_mix(g->random);
}

static struct shm_command *slot(struct brat *g, uint64_t position)
{
	return seg_command(&g->c->seg, g->c->peer, position);
}

static void show_head(struct brat *g, uint64_t head)
{
	store_release(&g->seat->head, head);
	ring_doorbell(g->c);
}

static uint64_t submit(struct brat *g, const struct shm_command *cmds, uint32_t n)
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

static int32_t answer(struct brat *g, uint64_t position)
{
	int32_t got;

	crew_until((got = load_acquire(&slot(g, position)->result)) != CMD_PENDING,
		   crew_breath());
	return got;
}

static int32_t ask(struct brat *g, struct shm_command cmd)
{
	return answer(g, submit(g, &cmd, 1));
}

static void ask_refused(struct brat *g, struct shm_command cmd, const char *what)
{
	int32_t got = ask(g, cmd);

	must(got < 0, "%s: op %u, count %u, block 0x%x: answered %d", what, cmd.op,
	     cmd.count, (unsigned)cmd.block, got);
}

static uint32_t records(struct brat *g)
{
	return g->c->seg.header.geometry.max_blocks;
}

static gpc_block block_of(struct brat *g, uint32_t record)
{
	uint32_t pool = PLAY + 1, first;

	do
		first = (uint32_t)(seg_pool(&g->c->seg, --pool)->range >> 32);
	while (pool > HOME && first > record);
	return GPC_BLOCK((gpc_block)pool, (gpc_block)(record - first));
}

/* Records in this state that are the brat's, or were taken for its commands. */
static uint32_t its(struct brat *g, uint32_t state, uint32_t *list)
{
	uint32_t i, n = 0;

	for (i = 0; i < records(g); i++) {
		const struct shm_record *r = seg_record(&g->c->seg, i);

		if (r->owner == g->c->peer && WORD_STATE(load_acquire(&r->word)) == state)
			list[n++] = i;
	}
	return n;
}

#define PARKED 8                 /* blocks it asks for ... */
#define VICTIMS 4                /* ... of which so many must be evicted, but cannot be */

/* A reserve that waits for a grace period which the brat's own section holds back; it has
 * some of its blocks, and places in RAM, already.  Returns its position. */
static uint64_t park(struct brat *g, uint8_t flags)
{
	struct shm_command cmd[PARKED] = { { .op = CMD_RESERVE, .flags = flags,
					     .pool = PLAY, .count = PARKED } };
	uint32_t i, n = capacity[PLAY] - (PARKED - VICTIMS), list[128];
	gpc_block b[16];
	gpc_key k[16];

	for (i = 0; i < n; i++)
		k[i] = crew_key(3000 + i);
	must_be(gpc_reserve(g->c, PLAY, n, b, NULL, 0, BOUND), n);
	must_be(gpc_publish(g->c, NULL, k, b, n, NULL, 0, -1), n);
	must_be(gpc_release(g->c, b, n), 0);
	g->section = gpc_section_enter(g->c);
	must(g->section >= 0, "enter: %s", gpc_last_error());
	g->head = g->seat->head;
	submit(g, cmd, PARKED);
	crew_until(its(g, DYING, list) == VICTIMS, crew_breath());
	return g->head - PARKED;
}

/* ---- the scenes ---- */

static void never_shown(struct brat *g, uint64_t from, uint32_t n)
{
	while (n--)
		*slot(g, from++) = (struct shm_command){ .op = CMD_NOP,
							 .result = CMD_PENDING };
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
	for (i = PARKED + 5; i--; ) {
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
	uint64_t from = park(g, CF_MOVES);

	n = its(g, RESERVED, list);
	must_be(n, PARKED - VICTIMS + VICTIMS);  /* blocks, and places in RAM */
	n += its(g, DYING, list + n);
	for (i = 0; i < n; i++) {
		const struct shm_record *r = seg_record(&g->c->seg, list[i]);
		struct shm_command cmd = { .count = 1, .block = block_of(g, list[i]),
					   .to = block_of(g, list[i]), .arg = r->op,
					   .flags = CF_UNCHAINED,
					   .key = { crew_mix(i), 5 } };
		uint32_t word = r->word;

		for (j = 0; j < ARRAY_SIZE(op); j++) {
			cmd.op = op[j];
			cmd.flags = j == 3 ? CF_CANCEL : CF_UNCHAINED;
			ask_refused(g, cmd, "a block of a waiting command");
			must(r->word == word, "op %u on a block of a waiting command: "
			     "its word was 0x%x and is 0x%x", cmd.op, word, r->word);
		}
	}
	gpc_section_leave(g->c, g->section);
	must_be(answer(g, from), PARKED);
	for (i = 0; i < PARKED; i++) {
		crew_own(slot(g, from + i)->block);
		if (slot(g, from + i)->to >= 0)
			crew_own(slot(g, from + i)->to);
	}
	must_be(its(g, RESERVED, list), PARKED + VICTIMS);
}

static void wrong_counts(struct brat *g)
{
	static const uint8_t op[] = { CMD_RESERVE, CMD_EVICT, CMD_DEMOTE, CMD_PROMOTE,
				      CMD_COMMIT };
	static const uint32_t count[] = { 0, 2, SHM_RING, SHM_RING + 1, 1u << 31,
					  UINT32_MAX };
	struct shm_command cmd = { .pool = PLAY, .to_pool = ATTIC };
	uint32_t i, j;

	for (i = 0; i < ARRAY_SIZE(op); i++)
		for (j = 0; j < ARRAY_SIZE(count); j++) {
			cmd.op = op[i];
			cmd.count = count[j];
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
	for (i = PARKED; i--; )
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
	for (i = 0; i < 16 + 128; i++)           /* counters, held */
		if (&word[i] != &s->sections)
			store_relaxed(&word[i], (uint32_t)nasty(g));
	memset(s->label, 0xff, sizeof(s->label));
	ring_doorbell(g->c);
}

static void bad_requests(struct brat *g)
{
	static const struct shm_pool good = { .range = 4, .blocks = 4, .kind = GPC_VRAM,
					      .owner = -1, .demote_to = -1, .gpus = 1 };
	struct shm_command cmd = { .op = CMD_POOL, .count = 1 };
	struct shm_pool bad[10];
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
		store_relaxed(seg_row(&g->c->seg, i) + g->c->peer, (uint16_t)nasty(g));
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
	s = seg_section(&g->c->seg, g->c->peer, 9);      /* one is open, for ever */
	store_relaxed(&s->ticket, UINT64_MAX);
	store_relaxed(&s->done, 0);
	store_relaxed(&s->epoch, 1);
}

static void scribble_stamps(struct brat *g)
{
	uint32_t i;

	for (i = 0; i < records(g); i++)
		store_relaxed(seg_stamp(&g->c->seg, i), nasty(g));
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
	park(g, CF_MOVES);
	raise_column(g);
	store_release(&g->seat->state, SEAT_FREE);
	ring_doorbell(g->c);
}

static void leave_the_seat(struct brat *g)
{
	park(g, CF_MOVES);
	raise_column(g);
	store_release(&g->seat->state, SEAT_LEFT);
	ring_doorbell(g->c);
}

/* It says that it is a process that has ended; who it is was noted when it came. */
static void play_dead(struct brat *g)
{
	struct timespec look = { .tv_nsec = 100000000 };

	park(g, CF_MOVES);
	store_relaxed(&g->seat->start_time, g->seat->start_time + 1);
	nanosleep(&look, NULL);
	must_be(load_acquire(&g->seat->state), SEAT_TAKEN);
	raise_column(g);
	scribble_sections(g);
	show_head(g, g->head + 5);
}

/* ---- anything ---- */

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
		.pool = pool[below(g, ARRAY_SIZE(pool))], .to_pool = pool[below(g, 3)],
		.count = count[below(g, ARRAY_SIZE(count))], .block = block, .to = to,
		.arg = nasty(g), .tag = below(g, 3),
	};
	gpc_key key = crew_key(4000 + below(g, 12));
	gpc_key parent = crew_key(4000 + below(g, 12));
	uint32_t record = pool_record(&g->c->seg, to);

	memcpy(cmd.key, &key, sizeof(key));
	if (below(g, 3))
		memcpy(cmd.parent, &parent, sizeof(parent));
	if (record != SHM_NO_RECORD && below(g, 4))
		cmd.move_op = seg_record(&g->c->seg, record)->op;
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
	uint16_t *cell = seg_row(&g->c->seg, below(g, records(g))) + g->c->peer;

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
		break;
	case 3:
		order_or64(&g->shared->pending[below(g, 4)], nasty(g));
		break;
	case 4:
		store_release(&slot(g, g->head - below(g, 32))->result,
			      (int32_t)nasty(g));
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
	{ "anything", NULL, anything, 1, 200, true },
	{ "anything, by two", NULL, anything, 2, 200, true },
};

static int brat(int me)
{
	uint64_t number = (uint64_t)(2 * (scene - scenes) + me);
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
	return 1;                        /* it was to be killed */
}

static int body(void)
{
	const char *s = getenv("GPC_T_SEED");
	char why[WHY];

	seed = s ? strtoull(s, NULL, 10) : seed;
	diag("GPC_T_SEED=%llu", (unsigned long long)seed);
	crew_begin();
	for (scene = scenes; scene < scenes + ARRAY_SIZE(scenes); scene++) {
		company.brats = scene->brats;
		company.rounds = scene->rounds;
		company.holds = scene->holds;
		if (!ok(neighbour_lives(brat, why), "rubbish: %s", scene->what))
			diag("%s", why);
	}
	return done_testing();
}

int main(void)
{
	scratch_make("t391");
	return tap_guard(120, body, scratch_remove);
}
