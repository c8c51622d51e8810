/* SPDX-License-Identifier: Apache-2.0 */
/* A peer that writes rubbish, as the writer and an honest peer see it.
 *
 * Three handles of one process: the writer, which serves whenever another one waits; the honest
 * peer, with a chain, a reservation and a stock of its own in pool HOME; and a brat.  The input is
 * what the brat stores where it may, and when the others get their turn.  In the end the brat is
 * gone, without a word or with one, and
 *
 *   what the honest peer held it has still had, all the time
 *   gpc_check finds nothing, and nothing is reserved or dying
 *   each pool can be reserved as a whole: all that the brat had came back
 *   the honest peer's calls work as if nothing had been */
#include "image.h"

#include "segment/lockfile.h"
#include "inspect/inspect.h"
#include "segment/blocks.h"
#include "peer/ring.h"

enum { HOME, PLAY, ATTIC, POOLS };
#define HOME_BLOCKS 16
#define PLAY_BLOCKS 8
#define ATTIC_BLOCKS 6
#define TRANSIT 4
#define ROOM 8			 /* records for pools that the brat adds */
#define CHAIN 4
#define STAKES 2

enum { N_STEPS, N_COMMANDS, N_ANSWERED, N_GRANTED, N_REAPED, N_LEFT, N_RENEWED, N_HOME, N_HONEST };
static const char *const fuzz_counts[FUZZ_COUNTS + 1] = {
	"steps of the brat", "commands", "answered", "blocks granted", "brats that died",
	"brats that left", "brats after brats", "honest calls that worked", "honest calls" };

static gpc *writer, *honest, *brat;
static bool serving;
static uint64_t step_began;
static bool polite;		 /* the brat lets HOME be */
static uint32_t stock;		 /* that the honest peer keeps of each pool */

/* ---- the cache: everybody has left ---- */

static void maker(const char *dir)
{
	struct gpc_config cfg = { .size = sizeof(cfg), .vram_blocks = HOME_BLOCKS,
				  .max_blocks = HOME_BLOCKS + PLAY_BLOCKS + ATTIC_BLOCKS +
						TRANSIT + ROOM,
				  .max_peers = 3, .max_pools = 5, .tick_us = 1, .free_target = -1,
				  .quarantine_ms = 20, .dir = dir };
	struct gpc_pool play = { .size = sizeof(play), .kind = GPC_VRAM, .space = 1,
				 .blocks = PLAY_BLOCKS, .demote_to = -1 };
	struct gpc_pool attic = { .size = sizeof(attic), .kind = GPC_RAM, .space = 1,
				  .blocks = ATTIC_BLOCKS, .transit = TRANSIT, .demote_to = -1 };
	gpc *c;

	if (gpc_create(IMAGE_NAME, &cfg, NULL, 0, &c) || gpc_writer_take(c, 0, 0) ||
	    gpc_pool_add(c, &play, -1) != PLAY || gpc_pool_add(c, &attic, -1) != ATTIC)
		_exit(1);
	gpc_close(c);
}

/* A publish may need an entry that a grace period keeps, and has no time limit: who holds a section
 * for ever, and lives, holds it up.  So after two seconds of one step the brat's sections end. */
static void end_sections(void)
{
	uint32_t i;

	for (i = 0; brat && i < SHM_SECTIONS; i++)
		store_release(&seg_section(&brat->seg, brat->peer, i)->epoch, 0);
}

/* Whoever waits: the writer does its work meanwhile. */
static void serve_others(void)
{
	if (virtual_spent_ns() - step_began > 2000 * NS_PER_MS)
		end_sections();
	if (serving || !writer)
		return;
	serving = true;
	gpc_writer_serve(writer, 0);
	serving = false;
}

static void too_long(void)
{
	fuzz_fail("calls have waited for a minute");
}

static void fuzz_begin(void)
{
	virtual_too_long = too_long;
	virtual_idle = serve_others;
	image_make(maker);
}

static void serve(uint32_t ms)
{
	uint64_t until = virtual_spent_ns() + ms * NS_PER_MS;

	serving = true;
	do
		fuzz_must(gpc_writer_serve(writer, (int)ms) >= 0, "the writer gave up: %s",
			  gpc_last_error());
	while (virtual_spent_ns() < until);
	serving = false;
}

/* ---- the honest peer ---- */

static gpc_key key[CHAIN + 1];	 /* [0]: no parent */
static gpc_block chain[CHAIN], stake[STAKES];
static uint32_t chain_word[CHAIN], stake_word[STAKES];

static const struct shm_record *record_of(gpc_block b)
{
	return seg_record(&honest->seg, pool_record(&honest->seg, b));
}

static gpc *attach(uint32_t want)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = image_dir, .stock = want };
	gpc *c;

	fuzz_must(gpc_attach(IMAGE_NAME, &opt, 0, &c) == 0, "no seat: %s", gpc_last_error());
	return c;
}

static void settle(void)
{
	int i;

	for (i = 0; i <= CHAIN; i++)
		key[i] = image_key((uint64_t)i);
	fuzz_must(gpc_reserve(honest, HOME, CHAIN, chain, NULL, 0, 1000) == CHAIN &&
		  gpc_publish(honest, key, key + 1, chain, CHAIN,
			      GPC_OPTIONS(gpc_publish_options, .tag = 1), 0,
			      -1) == CHAIN &&
		  gpc_reserve(honest, HOME, STAKES, stake, NULL, 0, 1000) == STAKES,
		  "the honest peer's own: %s", gpc_last_error());
	for (i = 0; i < CHAIN; i++)
		chain_word[i] = record_of(chain[i])->word;
	for (i = 0; i < STAKES; i++)
		stake_word[i] = record_of(stake[i])->word;
}

/* Anybody may drop a block; its holder keeps the bytes. */
static void look_at_own(void)
{
	gpc_block b[CHAIN];
	int i, n;

	for (i = 0; i < CHAIN; i++) {
		const struct shm_record *r = record_of(chain[i]);

		fuzz_must(r->word == chain_word[i] ||
			  (!polite && r->word == WORD(DYING, WORD_GEN(chain_word[i]))),
			  "block %d of the chain: word 0x%x became 0x%x", i, chain_word[i], r->word);
		fuzz_must(r->key[0] == key[i + 1].w[0] && r->key[1] == key[i + 1].w[1],
			  "block %d of the chain has another key", i);
	}
	for (i = 0; i < STAKES; i++)
		fuzz_must(record_of(stake[i])->word == stake_word[i] &&
			  record_of(stake[i])->owner == honest->peer,
			  "reservation %d: word 0x%x became 0x%x, owner %u", i, stake_word[i],
			  record_of(stake[i])->word, record_of(stake[i])->owner);
	if (!polite)
		return;
	n = gpc_acquire(honest, 0, key + 1, CHAIN, b, 0);
	fuzz_must(n == CHAIN && !memcmp(b, chain, sizeof(b)), "%d keys of the chain found", n);
	gpc_release(honest, b, CHAIN);
}

/* A call of each kind, none of which may wait longer than it was told to. */
static void act_honestly(uint32_t what)
{
	gpc_key k = image_key(100 + what % 4), up = image_key(0);
	gpc_block b[2], found;
	uint64_t before = virtual_spent_ns();
	int n;

	fuzz_count(N_HONEST);
	look_at_own();
	n = gpc_reserve(honest, what & 4 ? PLAY : HOME, 1, b, NULL, 0, 50);
	fuzz_must(virtual_spent_ns() - before < 1000 * NS_PER_MS, "a reserve of %llu ms",
		  (unsigned long long)((virtual_spent_ns() - before) / NS_PER_MS));
	if (n != 1)
		return;
	n = gpc_publish(honest, &up, &k, b, 1,
			GPC_OPTIONS(gpc_publish_options, .resident = &b[1]), 0, -1);
	if (n == 1 && gpc_lookup(honest, 0, &k, 1, &found, 0) == 1)
		fuzz_count(N_HOME);
	if (b[1] >= 0 && b[1] != b[0])
		gpc_release(honest, &b[1], 1);
	gpc_release(honest, b, 1);
}

/* ---- the brat ---- */

static struct shm_seat *seat(void)
{
	return seg_seat(&brat->seg, brat->peer);
}

static struct shm_command *slot(uint64_t position)
{
	return seg_command(&brat->seg, brat->peer, position);
}

static void show_head(uint64_t head)
{
	store_release(&seat()->head, head);
	ring_doorbell(brat);
}

/* One of those that are reserved for it, or that its commands wait for. */
static gpc_block own_block(uint32_t which)
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

static gpc_block take_block(struct fuzz_input *in)
{
	uint32_t v = (uint32_t)fuzz_take(in, 1);

	if (v >= 250)
		return (gpc_block)fuzz_take_value(in);
	if (v >= 128)
		return own_block(v & 15);
	return GPC_BLOCK((gpc_block)(v >> 5), (gpc_block)(v & 31) % 18);
}

/* The operation that a block was given for, which it needs to commit it. */
static uint64_t op_of(gpc_block b)
{
	uint32_t record = pool_record(&brat->seg, b);

	return record == SHM_NO_RECORD ? 0 : seg_record(&brat->seg, record)->op;
}

/* What each may do to another's blocks is not done to those of HOME. */
static void be_polite(struct shm_command *c)
{
	bool home = GPC_POOL(c->block) == HOME;

	if (c->op == CMD_CLEAR && (c->pool == HOME || c->pool >= 5))
		c->pool = PLAY;
	if ((c->op == CMD_DROP || c->op == CMD_DEMOTE || c->op == CMD_PROMOTE) && home)
		c->block = GPC_BLOCK(PLAY, GPC_SLOT(c->block) % PLAY_BLOCKS);
	if (c->op == CMD_DEMOTE && c->pool == HOME)
		c->pool = PLAY;
}

static struct shm_command take_command(struct fuzz_input *in)
{
	uint8_t op = (uint8_t)fuzz_take(in, 1), keys = (uint8_t)fuzz_take(in, 1),
		more = (uint8_t)fuzz_take(in, 1);
	gpc_key k = image_key(keys & 15), p = image_key(keys >> 4);
	struct shm_command c = { .op = op < 240 ? (uint8_t)(1 + op % CMD_LAST) : op,
				 .flags = (uint8_t)fuzz_take(in, 1) };

	c.pool = (more & 7) < 4 ? more & 3 : (uint8_t)fuzz_take_value(in);
	c.to_pool = (more >> 3 & 7) < 5 ? more >> 3 & 3 : (uint8_t)fuzz_take_value(in);
	c.count = more >> 6 ? more >> 6 : (uint32_t)fuzz_take_value(in);
	c.block = take_block(in);
	c.to = take_block(in);
	c.arg = c.flags & CF_PARTIAL && c.op != CMD_COMMIT ? fuzz_take_value(in) : 0;
	if (c.op == CMD_COMMIT)
		c.arg = op_of(c.to);
	c.tag = c.flags & CF_TRY ? (uint32_t)fuzz_take_value(in) : 0;
	memcpy(c.key, &k, sizeof(k));
	memcpy(c.parent, &p, sizeof(p));
	if (polite)
		be_polite(&c);
	return c;
}

static void submit(struct fuzz_input *in)
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
static void scribble_slot(struct fuzz_input *in)
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

static void scribble_words(struct fuzz_input *in, void *base, uint32_t bytes)
{
	uint32_t at = (uint32_t)fuzz_take(in, 2) % bytes & ~7u;
	uint64_t value = fuzz_take_value(in);
	uint32_t width = 1u << (value % 4);

	memcpy((uint8_t *)base + at, &value, width);
}

static void scribble_section(struct fuzz_input *in)
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

static void scribble_line(struct fuzz_input *in)
{
	struct shm_shared *line = seg_shared(&brat->seg);
	uint64_t what = fuzz_take(in, 1), value = fuzz_take_value(in);

	switch (what & 7) {
	case 0: store_relaxed(&line->epoch, value); break;
	case 1: store_relaxed(&line->completed, value); break;
	case 2: store_relaxed(&line->tick, value); break;
	case 3: store_relaxed(&line->sleeping, (uint32_t)value); break;
	default: store_relaxed(&line->pending[what & 3], value);
	}
}

static void scribble_cell(struct fuzz_input *in)
{
	uint32_t records = brat->seg.header.geometry.max_blocks;
	uint32_t record = (uint32_t)fuzz_take(in, 1), n = record >= 192 ? records : 1;
	uint16_t value = (uint16_t)fuzz_take_value(in);

	for (record %= records; n--; record = (record + 1) % records)
		store_relaxed(seg_row(&brat->seg, record) + brat->peer, value);
}

static void scribble_request(struct fuzz_input *in)
{
	struct shm_pool *p = &seat()->request;
	uint32_t blocks = 1 + (uint32_t)fuzz_take(in, 1) % 6;

	*p = (struct shm_pool){ .range = blocks, .blocks = blocks, .kind = GPC_VRAM, .space = 1,
				.owner = -1, .demote_to = -1, .gpus = 1,
				.flags = (uint32_t)fuzz_take(in, 1) & 7 };
	if (fuzz_take(in, 1) & 1)
		scribble_words(in, p, 48);
}

/* As SIGKILL would: the kernel closes its descriptors. */
static void kill_brat(void)
{
	fork_forget(brat);
	segment_close(&brat->seg);
	ring_free(brat);
	walk_free(brat);
	free(brat);
	brat = NULL;
	fuzz_count(N_REAPED);
}

static void leave(bool politely)
{
	if (politely) {
		store_release(&seat()->state, SEAT_LEFT);
		ring_doorbell(brat);
		fuzz_count(N_LEFT);
	}
	kill_brat();
}

static void wait_for_seat(void)
{
	int i = 0;

	do                               /* the brat may have said that it is free */
		serve(40);
	while (load_acquire(&seg_seat(&honest->seg, 2)->state) != SEAT_FREE && i++ < 100);
	fuzz_must(i < 100, "the seat is not taken back");
}

/* The writer sees each one sit there: who hides from it before it has looked once leaves what
 * only the next one in that seat takes along. */
static void renew(struct fuzz_input *in)
{
	leave(fuzz_take(in, 1) & 1);
	wait_for_seat();
	brat = attach(0);
	serve(0);
	fuzz_count(N_RENEWED);
}

/* Commands that wait: its own section holds the grace period that victims need. */
static void park(struct fuzz_input *in)
{
	struct shm_section *s = seg_section(&brat->seg, brat->peer, 0);
	uint32_t i, n = 1 + (uint32_t)fuzz_take(in, 1) % PLAY_BLOCKS, how =
		 (uint32_t)fuzz_take(in, 1);
	uint64_t head = seat()->head;

	store_relaxed(&seat()->sections, SHM_SECTIONS);
	store_relaxed(&s->done, 0);
	store_relaxed(&s->ticket, 1);
	store_release(&s->epoch, load_relaxed(&seg_shared(&brat->seg)->epoch));
	for (i = 0; i < n; i++)
		*slot(head + i) = (struct shm_command){
			.op = how & 1 ? CMD_RESERVE : CMD_EVICT, .pool = PLAY, .to_pool = ATTIC,
			.count = n, .result = CMD_PENDING,
			.flags = (how & 2 ? CF_MOVES : 0) | (how & 4 ? CF_TAKE : 0) };
	show_head(head + n);
	serve(0);
}

/* Blocks that are live and held by nobody: victims. */
static void publish_some(struct fuzz_input *in)
{
	uint32_t i, n = 1 + (uint32_t)fuzz_take(in, 1) % PLAY_BLOCKS, from =
		 (uint32_t)fuzz_take(in, 1);
	gpc_block b[PLAY_BLOCKS];
	gpc_key k[PLAY_BLOCKS];

	int got;

	for (i = 0; i < n; i++)
		k[i] = image_key(40 + (from + i) % 20);
	got = gpc_reserve(honest, PLAY, n, b, NULL, GPC_PARTIAL, 0);

	if (got <= 0)
		return;
	gpc_publish(honest, NULL, k, b, (uint32_t)got, NULL, 0, -1);
	gpc_release(honest, b, (uint32_t)got);
}

static void step(struct fuzz_input *in)
{
	uint32_t what = (uint32_t)fuzz_take(in, 1) % 32;

	fuzz_count(N_STEPS);
	step_began = virtual_spent_ns();
	switch (what) {
	case 0: show_head(seat()->head + fuzz_take_value(in)); break;
	case 1: show_head(seat()->head - fuzz_take(in, 1) % 16); break;
	case 2:
	case 3: scribble_slot(in); break;
	case 4: scribble_words(in, seat(), 1024); break;
	case 5: scribble_words(in, seat(), 256); break;
	case 6:
	case 7: scribble_section(in); break;
	case 8: scribble_line(in); break;
	case 9:
	case 10: scribble_cell(in); break;
	case 11: scribble_request(in); break;
	case 12: store_relaxed(seg_stamp(&brat->seg, fuzz_take(in, 1) % 40), fuzz_take_value(in));
		break;
	case 13: act_honestly((uint32_t)fuzz_take(in, 1)); break;
	case 14: serve((uint32_t)fuzz_take(in, 1) % 40); break;
	case 15: renew(in); break;
	case 16: store_release(&seat()->head, seat()->tail); break;
	case 17: park(in); break;
	case 18: publish_some(in); break;
	case 19: serve(0); break;
	default: submit(in);
	}
}

/* ---- in the end ---- */

static void count_answers(void)
{
	uint32_t i;

	for (i = 0; i < 64; i++) {
		const struct shm_command *c = slot(i);

		if (c->op && c->result != CMD_PENDING)
			fuzz_count(N_ANSWERED);
	}
	for (i = 0; i < brat->seg.header.geometry.max_blocks; i++)
		if (seg_record(&brat->seg, i)->owner == brat->peer)
			fuzz_count(N_GRANTED);
}

static void take_line(void *arg, const char *line)
{
	/* recency may be wrong, and a hint, for which there are common words */
	if (!strstr(line, "its stamp") && !strstr(line, "counts as completed"))
		fuzz_fail("check: %s", line);
	(void)arg;
}

static void judge_pool(int pool)
{
	struct gpc_pool p = { .size = sizeof(p) };
	gpc_block b[32];
	int n;

	if (gpc_pool_get(honest, pool, &p) < 0)
		return;
	if (p.flags & GPC_POOL_CALLER)
		fuzz_fail("pool %d has no owner any more", pool);
	n = gpc_reserve(honest, pool, p.blocks, b, NULL, 0, 3000);
	fuzz_must(n == (int)p.blocks, "pool %d: %d of %u blocks: %s", pool, n, p.blocks,
		  gpc_last_error());
	gpc_release(honest, b, p.blocks);
}

static void judge(void)
{
	struct gpc_stats st = { .size = sizeof(st) };
	struct gpc_pool home = { .size = sizeof(home) };
	gpc_ticket t;
	int i;

	wait_for_seat();
	serve(100);
	look_at_own();
	gpc_release(honest, chain, CHAIN);
	gpc_release(honest, stake, STAKES);
	for (i = 0; i < 3; i++) {        /* answers to calls whose time was up give more back */
		fuzz_must(gpc_drop(honest, NULL, 0, &t, 0,
				   -1) == 0 && gpc_ticket_wait(honest, t, 1000) == 0,
			  "wait: %s", gpc_last_error());
		serve(100);
	}
	fuzz_must(gpc_stats_get(honest, -1, &st) == 0 && !st.dying && st.reserved <= 5 * stock && !st.refs &&
		  !st.sections, "%llu dying, %llu reserved, %llu references, %llu sections",
		  (unsigned long long)st.dying, (unsigned long long)st.reserved,
		  (unsigned long long)st.refs, (unsigned long long)st.sections);
	gpc_check(writer, take_line, NULL);
	for (i = 0; i < 5; i++)
		judge_pool(i);
	if (!polite && gpc_pool_get(honest, HOME, &home) < 0)
		return;                  /* anybody may remove a pool */
	settle();
	polite = true;
	look_at_own();
}

static void close_all(void)
{
	gpc_close(honest);
	honest = NULL;
	gpc_writer_drop(writer);
	gpc_close(writer);
	writer = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	uint32_t n = 0, flags = (uint32_t)fuzz_take(&in, 1);

	image_restore();
	step_began = 0;
	polite = flags & 1;
	writer = attach(0);
	fuzz_must(gpc_writer_take(writer, 0, 0) == 0, "no writer: %s", gpc_last_error());
	stock = flags & 2 ? 3 : 0;
	honest = attach(stock);
	brat = attach(0);
	settle();
	while (in.left && n++ < 100)
		step(&in);
	serve(flags & 4 ? 0 : 10);
	look_at_own();
	count_answers();
	leave(flags & 8);
	judge();
	close_all();
	return 0;
}

/* Steps, as an input has them. */
static size_t fuzz_seed(uint64_t random, uint8_t *to, size_t room)
{
	size_t i, n = 20 + fuzz_draw(&random, 400);

	(void)room;
	for (i = 0; i < n; i++)
		to[i] = (uint8_t)fuzz_draw(&random, fuzz_draw(&random, 2) ? 256 : 32);
	return n;
}

#ifndef FUZZ_LIBFUZZER
FUZZ_MAIN("ring", 6000)
#endif
