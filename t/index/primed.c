/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that are primed together do what they do one by one.
 *
 * Two caches get the same commands at random.  The writer of one finds each of them alone in the
 * ring; that of the other one finds bursts, so that each is copied, and
 * made ready, before those in front of it have run.  Answers, records, the feed, and by them the
 * order of victims are the same, and each record is at the depth that its parent's says.  In
 * between another writer takes over.
 * Tests: lib/index/writer/loop.c lib/index/writer/command.c lib/index/writer/command.h lib/index/writer/retire.c */
#include "config.h"

#include <string.h>
#include "t/lib/cache.h"
#include "index/peer/refs.h"
#include "index/segment/blocks.h"
#include "index/writer/command.h"
#include "index/writer/grant.h"
#include "index/writer/retire.h"

enum { BLOCKS = 256, BURST = 700, ROUNDS = 1500, KEYS = 600 };

static struct side {
	gpc *c;
	char name[sizeof(cache_name)];
} side[2];
static struct shm_command burst[BURST];
static uint32_t nburst, keys_made;
static gpc_block had[BLOCKS]; /* RESERVED for us, and answered */
static uint32_t nhad, answers[4];
static uint64_t tick = 10;

static const struct shm_record *record_of(const struct side *s, gpc_block b)
{
	return seg_record(&s->c->seg, pool_record(&s->c->seg, b));
}

static void key_make(uint64_t key[2], uint64_t n)
{
	key[0] = n ? (n + 1) * 0x9e3779b97f4a7c15u : 0;
	key[1] = n ? ((n + 7) * 0xd6e8feb86659fd93u) >> 1 : 0;
}

/* ---- commands ---- */

static struct shm_command *add(uint8_t op, gpc_block b)
{
	struct shm_command *cmd = &burst[nburst++];

	*cmd = (struct shm_command){ .op = op, .count = 1, .block = b, .result = CMD_PENDING };
	return cmd;
}

/* Mostly a new key below the one before; else one that is live, a parent that is not, none. */
static void add_publish(gpc_block b)
{
	struct shm_command *before = nburst ? &burst[nburst - 1] : NULL, *cmd = add(CMD_PUBLISH, b);
	uint32_t how = chance(16);

	key_make(cmd->publish.key, how ? 1 + keys_made++ % KEYS : 1 + chance(KEYS));
	cmd->publish.tag = chance(3);
	if (before && before->op == CMD_PUBLISH && how < 10)
		memcpy(cmd->publish.parent, before->publish.key, sizeof(cmd->publish.parent));
	else if (how < 13)
		key_make(cmd->publish.parent, 1 + chance(KEYS));
	if (how == 15)
		cmd->publish.key[0] = cmd->publish.key[1] = 0;
}

static void add_group(uint8_t op, uint32_t n, bool peek)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		struct shm_command *cmd = add(op, GPC_NONE);

		cmd->count = i ? 0 : n;
		cmd->flags = peek                           ? CF_PEEK
			     : op == CMD_EVICT && chance(2) ? CF_TAKE
			     : op == CMD_RESERVE            ? CF_PARTIAL
							    : 0;
		if (!i && op == CMD_RESERVE && chance(2))
			cmd->flags |= CF_STOCK;
		if (i)
			cmd->flags = burst[nburst - 2].flags;
	}
}

/* What frees blocks changes which comes next; so a burst drops or gives back, and ends with what
 * takes. */
static void burst_make(bool last)
{
	uint32_t n = 1 + chance(70), drops = chance(2), i, which;

	for (nburst = i = 0; last && i < nhad; i++)
		add(CMD_FREE, had[i]); /* gpc_check asks for their cells */
	if (last)
		return;
	for (nburst = i = 0; i < n; i++) {
		which = chance(20);
		if (which < 15)
			add_publish(nhad && chance(30) ? had[chance(nhad)]
						       : (gpc_block)chance(BLOCKS + 4));
		else if (which < 16 && nhad)
			key_make(add(CMD_CLAIM, had[chance(nhad)])->claim.key, 1 + chance(KEYS));
		else if (which < 18)
			add(drops ? CMD_DROP : CMD_FREE,
			    drops || !nhad ? (gpc_block)chance(BLOCKS) : had[chance(nhad)]);
		else if (which < 19)
			/* some longer than what is primed */
			add_group(CMD_EVICT, 1 + chance(n < 30 ? 24 : 9), true);
		else
			key_make(add(CMD_ALIAS, GPC_NONE)->alias.key, 1 + chance(KEYS));
	}
	if (chance(3))
		add_group(chance(3) ? CMD_RESERVE : CMD_EVICT, 1 + chance(24), false);
}

/* ---- running them ---- */

static struct shm_command *slot(const struct side *s, uint32_t i)
{
	const struct shm_seat *seat = seg_seat(&s->c->seg, s->c->peer);

	return seg_command(&s->c->seg, s->c->peer, seat->head - nburst + i);
}

static void submit_some(const struct side *s, uint32_t from, uint32_t n)
{
	struct shm_seat *seat = seg_seat(&s->c->seg, s->c->peer);
	uint32_t i;

	for (i = 0; i < n; i++)
		*seg_command(&s->c->seg, s->c->peer, seat->head + i) = burst[from + i];
	store_release(&seat->head, seat->head + n);
}

static void serve(const struct side *s)
{
	struct shm_seat *seat = seg_seat(&s->c->seg, s->c->peer);
	uint32_t i;

	for (i = 0; i < 2000 && (seat->tail != seat->head || stats_of(s->c, -1).dying); i++)
		must(gpc_writer_serve(s->c, i ? 1 : 0));
	seat->taken = seat->tail; /* as the library does, that knows nothing of these */
}

static void run_alone(const struct side *s)
{
	uint32_t i, n;

	for (i = 0; i < nburst; i += n) {
		n = burst[i].count;
		submit_some(s, i, n);
		serve(s);
	}
}

/* ---- the same ---- */

static bool same_answers(void)
{
	uint32_t i;

	for (i = 0; i < nburst; i++) {
		const struct shm_command *a = slot(&side[0], i), *b = slot(&side[1], i);

		if (!memcmp(a, b, sizeof(*a)))
			continue;
		diag("command %d of %d, op %d: %d, block %d, and %d, block %d", (int)i, (int)nburst,
		     a->op, a->result, a->block, b->result, b->block);
		return false;
	}
	return true;
}

static bool same_records(void)
{
	gpc_block i;

	for (i = 0; i < BLOCKS; i++) {
		const struct shm_record *a = record_of(&side[0], i), *b = record_of(&side[1], i);
		bool live = WORD_STATE(a->word) == LIVE;

		if (a->word == b->word && a->owner == b->owner && a->op == b->op &&
		    a->flags == b->flags &&
		    (!live || (!memcmp(a->key, b->key, 16) && !memcmp(a->parent, b->parent, 16) &&
			       a->depth == b->depth && a->tag == b->tag && a->check == b->check &&
			       a->source == b->source && a->source_word == b->source_word)))
			continue;
		diag("block %d: 0x%x and 0x%x, op %d and %d", i, a->word, b->word, (int)a->op,
		     (int)b->op);
		return false;
	}
	return true;
}

/* Those in stock are, on both sides; then the peer takes them. */
static bool same_stock(void)
{
	gpc_block i;

	for (i = 0; i < BLOCKS; i++) {
		uint16_t *a = seg_cell(&side[0].c->seg, (uint32_t)i, side[0].c->peer);
		uint16_t *b = seg_cell(&side[1].c->seg, (uint32_t)i, side[1].c->peer);

		if (*a != *b)
			return false;
		if (*a == CELL_STOCK)
			*a = *b = 0;
	}
	return true;
}

static bool same_feed(void)
{
	static uint64_t from;
	uint64_t head = seg_state(&side[0].c->seg)->events_head;

	if (seg_state(&side[1].c->seg)->events_head != head)
		return false;
	for (; from < head; from++)
		if (memcmp(seg_change(&side[0].c->seg, from), seg_change(&side[1].c->seg, from),
			   sizeof(struct shm_change)))
			return false;
	return true;
}

/* Each is one deeper than its parent, which is LIVE and where the record says, and no key is there
 * twice. */
static bool chains_are_sound(const struct side *s)
{
	gpc_block i, j;

	for (i = 0; i < BLOCKS; i++) {
		const struct shm_record *r = record_of(s, i), *p;
		uint32_t depth = 0;

		if (WORD_STATE(r->word) != LIVE)
			continue;
		for (j = 0; j < BLOCKS; j++) {
			p = record_of(s, j);
			if (WORD_STATE(p->word) != LIVE)
				continue;
			if (j != i && !memcmp(p->key, r->key, sizeof(p->key)))
				return false;
			if (memcmp(p->key, r->parent, sizeof(p->key)))
				continue;
			depth = p->depth + 1;
			if (r->source_word != pool_record(&s->c->seg, j) + 1)
				return false;
		}
		if (r->depth != depth || (depth == 0) != !(r->parent[0] | r->parent[1]))
			return false;
	}
	return true;
}

/* Blocks are used, the same ones on both sides, and time goes on. */
static void use_some(void)
{
	uint32_t n = chance(80), i, s, which;

	tick += chance(2);
	for (s = 0; s < 2; s++)
		seg_shared(&side[s].c->seg)->tick = tick;
	for (i = 0; i < n; i++) {
		which = chance(BLOCKS);
		for (s = 0; s < 2; s++)
			use_raise(seg_use(&side[s].c->seg, which),
				  (uint32_t)(tick << STAMP_BITS | (n - i)));
	}
}

static void note_round(void)
{
	gpc_block b;
	uint32_t i;

	for (i = 0; i < nburst; i++) {
		int32_t result = slot(&side[0], i)->result;

		if (burst[i].op == CMD_PUBLISH)
			answers[result < 0 ? 0 : result == burst[i].block ? 1 : 2]++;
		answers[3] += burst[i].op == CMD_EVICT || burst[i].op == CMD_DROP;
	}
	for (nhad = 0, b = 0; b < BLOCKS; b++)
		if (WORD_STATE(record_of(&side[0], b)->word) == RESERVED)
			had[nhad++] = b;
}

static bool round_is_same(uint32_t round)
{
	bool last = round % 50 == 49;
	uint32_t s;

	burst_make(last);
	run_alone(&side[0]);
	submit_some(&side[1], 0, nburst);
	serve(&side[1]);
	if (!same_answers() || !same_records() || !same_feed() || !same_stock())
		return false;
	note_round();
	use_some();
	for (s = 0; s < 2 && round % 25 == 24; s++) {
		must(gpc_writer_drop(side[s].c));
		must(gpc_writer_take(side[s].c, 0, 0));
		serve(&side[s]);
		if (!chains_are_sound(&side[s]) || (last && gpc_check(side[s].c, cache_line, NULL)))
			return false;
	}
	return true;
}

/* More than a peer has in one turn: the rest has the next turn, and no other bell. */
static void test_long_burst(void)
{
	for (nburst = 0; nburst < 150;)
		add(CMD_NOP, GPC_NONE);
	submit_some(&side[0], 0, nburst);
	is_int(gpc_writer_serve(side[0].c, 0), (int)nburst, "a long burst is done in one pass");
	serve(&side[0]);
}

static int body(void)
{
	struct gpc_config cfg = cache_config(BLOCKS, 0);
	uint32_t round;
	int s;

	cfg.tick_us = 10000000; /* it is this test that raises it */
	for (s = 0; s < 2; s++) {
		side[s].c = cache_make(&cfg, NULL);
		memcpy(side[s].name, cache_name, sizeof(cache_name));
		seg_shared(&side[s].c->seg)->tick = tick;
	}
	for (round = 0; round < ROUNDS && round_is_same(round); round++)
		;
	is_int(round, ROUNDS, "bursts do what their commands do one by one");
	ok(answers[0] > 100 && answers[1] > 1000 && answers[2] > 20 && answers[3] > 100,
	   "enough of everything: %d refused, %d published, %d live already, %d went",
	   (int)answers[0], (int)answers[1], (int)answers[2], (int)answers[3]);
	test_long_burst();
	for (s = 0; s < 2; s++) {
		clean(side[s].c, s ? "bursts" : "one by one");
		memcpy(cache_name, side[s].name, sizeof(cache_name));
		cache_end(side[s].c);
	}
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
