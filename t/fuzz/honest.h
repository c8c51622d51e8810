/* SPDX-License-Identifier: Apache-2.0 */
/* honest.h - a small cache with a writer, which serves whenever another one waits; and an honest
 * peer with a chain, a reservation and a stock of its own in pool HOME, which looks whether it has
 * them all the time, and whether its calls end when they were told to. */
#ifndef GPC_FUZZ_HONEST_H
#define GPC_FUZZ_HONEST_H

#include "gpc_bytes.h"
#include "image.h"
#include "index/segment/blocks.h"

enum { HOME, PLAY, ATTIC, POOLS };
#define HOME_BLOCKS  16
#define PLAY_BLOCKS  8
#define ATTIC_BLOCKS 6
#define TRANSIT      4
#define ROOM         8 /* records for pools that the brat adds */
#define CHAIN        4
#define STAKES       2

enum { N_STEPS, N_COMMANDS, N_ANSWERED, N_GRANTED, N_REAPED, N_LEFT, N_RENEWED, N_HOME, N_HONEST };
static const char *const fuzz_counts[FUZZ_COUNTS + 1] = {
	"steps of the brat", "commands",        "answered",          "blocks granted",
	"brats that died",   "brats that left", "brats after brats", "honest calls that worked",
	"honest calls"
};

static gpc *writer, *honest, *brat;
static bool serving;
static uint64_t step_began;
static bool polite;    /* the brat lets HOME be */
static uint32_t stock; /* that the honest peer keeps of each pool */

/* ---- the cache: everybody has left ---- */

FUZZ_FN void maker(const char *dir)
{
	struct gpc_config cfg = { .size = sizeof(cfg),
				  .vram_blocks = HOME_BLOCKS,
				  .max_blocks =
					  HOME_BLOCKS + PLAY_BLOCKS + ATTIC_BLOCKS + TRANSIT + ROOM,
				  .max_peers = 3,
				  .max_pools = 5,
				  .tick_us = 1,
				  .free_target = -1,
				  .quarantine_ms = 20,
				  .dir = dir };
	struct gpc_pool play = { .size = sizeof(play),
				 .kind = GPC_VRAM,
				 .space = 1,
				 .blocks = PLAY_BLOCKS,
				 .demote_to = -1 };
	struct gpc_pool attic = { .size = sizeof(attic),
				  .kind = GPC_RAM,
				  .space = 1,
				  .blocks = ATTIC_BLOCKS,
				  .transit = TRANSIT,
				  .demote_to = -1 };
	gpc *c;

	if (gpc_create(IMAGE_NAME, &cfg, NULL, 0, &c) || gpc_writer_take(c, 0, 0) ||
	    gpc_pool_make(c, &play, NULL, -1) != PLAY ||
	    gpc_pool_make(c, &attic, NULL, -1) != ATTIC)
		_exit(1);
	gpc_close(c);
}

/* A publish may need an entry that a grace period keeps, and has no time limit: who holds a section
 * for ever, and lives, holds it up.  So after two seconds of one step the brat's sections end. */
FUZZ_FN void end_sections(void)
{
	uint32_t i;

	for (i = 0; brat && i < SHM_SECTIONS; i++)
		store_release(&seg_section(&brat->seg, brat->peer, i)->epoch, 0);
}

/* Whoever waits: the writer does its work meanwhile. */
FUZZ_FN void serve_others(void)
{
	if (virtual_spent_ns() - step_began > 2000 * NS_PER_MS)
		end_sections();
	if (serving || !writer)
		return;
	serving = true;
	gpc_writer_serve(writer, 0);
	serving = false;
}

FUZZ_FN void too_long(void)
{
	fuzz_fail("calls have waited for a minute");
}

static void fuzz_begin(void)
{
	virtual_too_long = too_long;
	virtual_idle = serve_others;
	image_make(maker);
}

FUZZ_FN void serve(uint32_t ms)
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

static gpc_key key[CHAIN + 1]; /* [0]: no parent */
static gpc_block chain[CHAIN], stake[STAKES];
static uint32_t chain_word[CHAIN], stake_word[STAKES];

FUZZ_FN const struct shm_record *record_of(gpc_block b)
{
	return seg_record(&honest->seg, pool_record(&honest->seg, b));
}

FUZZ_FN gpc *attach(uint32_t want)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = image_dir, .stock = want };
	gpc *c;

	fuzz_must(gpc_attach(IMAGE_NAME, &opt, 0, &c) == 0, "no seat: %s", gpc_last_error());
	return c;
}

FUZZ_FN void settle(void)
{
	int i;

	for (i = 0; i <= CHAIN; i++)
		key[i] = image_key((uint64_t)i);
	fuzz_must(gpc_reserve(honest, HOME, CHAIN, chain, NULL, 0, 60000) == CHAIN &&
			  gpc_publish(honest, key, key + 1, chain, CHAIN,
				      GPC_OPTIONS(gpc_publish_options, .tag = 1), 0, -1) == CHAIN &&
			  gpc_reserve(honest, HOME, STAKES, stake, NULL, 0, 1000) == STAKES,
		  "the honest peer's own: %s", gpc_last_error());
	for (i = 0; i < CHAIN; i++)
		chain_word[i] = record_of(chain[i])->word;
	for (i = 0; i < STAKES; i++)
		stake_word[i] = record_of(stake[i])->word;
}

/* Anybody may drop a block; its holder keeps the bytes. */
FUZZ_FN void look_at_own(void)
{
	gpc_block b[CHAIN];
	int i, n;

	for (i = 0; i < CHAIN; i++) {
		const struct shm_record *r = record_of(chain[i]);

		fuzz_must(r->word == chain_word[i] ||
				  (!polite && r->word == WORD(DYING, WORD_GEN(chain_word[i]))),
			  "block %d of the chain: word 0x%x became 0x%x", i, chain_word[i],
			  r->word);
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
FUZZ_FN void act_honestly(uint32_t what)
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
	n = gpc_publish(honest, &up, &k, b, 1, GPC_OPTIONS(gpc_publish_options, .resident = &b[1]),
			0, -1);
	if (n == 1 && gpc_lookup(honest, 0, &k, 1, &found, 0) == 1)
		fuzz_count(N_HOME);
	if (b[1] >= 0 && b[1] != b[0])
		gpc_release(honest, &b[1], 1);
	gpc_release(honest, b, 1);
}

/* Blocks that are live and held by nobody: victims. */
FUZZ_FN void publish_some(struct fuzz_input *in)
{
	uint32_t i, n = 1 + (uint32_t)fuzz_take(in, 1) % PLAY_BLOCKS,
		    from = (uint32_t)fuzz_take(in, 1);
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

#endif
