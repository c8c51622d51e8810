/* SPDX-License-Identifier: Apache-2.0 */
/* up.c - answers to questions of peers: from a tier to RAM.
 *
 * One thread answers a question, CHUNK keys at a time:
 *
 *   1  Blocks in VRAM or RAM count.  A block below is held, without a use.  The first key that is
 *      nowhere ends the prefix.
 *   2  Blocks of RAM are reserved, and claimed for the keys: others find these PENDING.
 *   3  The tier reads and verifies their bytes.
 *   4  The checksum is stored in the trailer of the RAM slot, and the block is published, parents
 *      first.  The writer publishes only if the block below still has the life that was read.
 *
 * The descendants of a dropped block leave a tier only when the steward has carried that drop out,
 * and an engine may have computed the blocks before them again by then.  So each publish names the
 * number of the first drop that had not left the tier when step 1 began.  The writer refuses
 * descendants of a key that was dropped since.  After any such drop it also refuses a block
 * without its parent.  Other prompts wait for nothing.
 *
 * If this process dies, reservations, claims and references end with its seat, like any peer's.
 * Nothing is under way after its death, since its own threads read.
 * Tests: t/tiers/straight.t t/tiers/down-and-up.t t/tiers/drops-alone.t t/tiers/follow.t
 *   t/tiers/store-lost.t t/tiers/die.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "index/base/futex.h"
#include "index/claim/claim_here.h"
#include "index/segment/lockfile.h"
#include "tiers/steward/steward.h"

#define IDLE_NS (100 * NS_PER_MS)
#define CALL_MS 2000 /* the longest wait for a command of ours */
/* the time between looks at a key that another thread of ours brings */
#define PENDING_NS (200000u)

struct part { /* keys of a question that are looked at together */
	struct gpc_tiers *t;
	uint64_t deadline, since;
	uint32_t to, n;
	gpc_key key[CHUNK];
	gpc_block warm[CHUNK];

	uint32_t m;          /* items: the blocks to bring, in the order of the keys */
	struct lower *lower; /* the tier of all of them */
	uint32_t at[CHUNK];  /* place among the keys */
	gpc_block from[CHUNK], ram[CHUNK];
	struct about about[CHUNK];
	struct gpc_claim claim[CHUNK];
	struct tier_item item[CHUNK];
	struct map *map;
	struct iovec *iov;
	uint32_t *sums;   /* the seeds of an image's parts, then the sums of each item's parts */
	gpc_key before;   /* the key before the first one, or zero */
	gpc_block parent; /* held, since a leaf would be the next to go */
	int why;
};

static int ms_left(uint64_t deadline)
{
	uint64_t now = clock_ns(), ms = deadline > now ? (deadline - now) / NS_PER_MS + 1 : 0;

	return (int)MIN(ms, (uint64_t)CALL_MS);
}

/* ---- step 1: where the blocks are ---- */

static void cut(struct part *p, uint32_t n, int why)
{
	if (n >= p->n)
		return;
	p->n = n;
	p->why = why;
}

/* Find the tier of the first key that is below; keys of another tier are the next part. */
static gpc_block find_lower(struct part *p, const gpc_key *key)
{
	gpc_block block = GPC_NONE;
	uint32_t i;

	for (i = 0; i < p->t->nlower && block < 0; i++) {
		struct lower *d = &p->t->lower[i];

		if (p->lower && p->lower != d)
			continue;
		block = slots_find(d, key);
		if (block >= 0)
			p->lower = d;
	}
	return block;
}

static void find(struct part *p)
{
	gpc *c = p->t->c;
	uint32_t i;

	if (gpc_lookup(c, 0, p->key, p->n, p->warm, GPC_QUIET) < 0)
		cut(p, 0, -ENOENT);
	for (i = 0; i < p->n; i++) {
		gpc_block from;

		if (p->warm[i] >= 0)
			continue;
		from = find_lower(p, &p->key[i]);
		if (from < 0 || !hold_about(c, from, &p->key[i], &p->about[p->m])) {
			cut(p, i, -ENOENT);
			break;
		}
		p->at[p->m] = i;
		p->from[p->m] = from;
		p->ram[p->m++] = GPC_NONE;
	}
}

/* Items from there on do not count. */
static void cut_items(struct part *p, uint32_t m, int why)
{
	uint32_t i;

	if (m >= p->m)
		return;
	cut(p, p->at[m], why);
	unhold_quietly(p->t->c, p->from + m, p->m - m);
	for (i = m; i < p->m; i++)
		if (p->ram[i] >= 0)
			gpc_release(p->t->c, &p->ram[i], 1);
	p->m = m;
}

/* ---- step 2: the targets ---- */

static void hold_parent(struct part *p)
{
	/* a hint need not know its parent, but the question does */
	const gpc_key *key = !lower_is_store(p->lower) ? &p->about[0].parent
			     : p->at[0]                ? &p->key[p->at[0] - 1]
						       : &p->before;

	if (key_is_zero(key) || key_is_root(key) ||
	    gpc_lookup(p->t->c, 0, key, 1, &p->parent, GPC_QUIET) != 1 ||
	    !hold_quietly(p->t->c, p->parent, key))
		p->parent = GPC_NONE;
}

static void reserve(struct part *p)
{
	gpc *c = p->t->c;
	int ram = images_ram(p->lower, p->to), got, err;

	if (ram < 0 || (err = map_get(c, (uint32_t)ram, &p->map)) < 0) {
		tier_count(p->lower, TIER_NO_RAM, p->m);
		cut_items(p, 0, -ENOENT);
		return;
	}
	p->iov = malloc((size_t)p->m * images_pieces(p->map) * sizeof(*p->iov));
	p->sums = malloc((size_t)(p->m + 1) * images_sums(p->map) * sizeof(*p->sums));
	got = p->iov && p->sums
		      ? gpc_reserve(c, ram, p->m, p->ram, NULL, GPC_PARTIAL, ms_left(p->deadline))
		      : 0;
	got = MAX(got, 0);
	if ((uint32_t)got < p->m) {
		tier_count(p->lower, TIER_NO_RAM, p->m - (uint32_t)got);
		cut_items(p, (uint32_t)got, -ENOSPC);
	}
}

/* Nothing need be done for a key that another peer brings or computes; the question ends before
 * it.  If a block has come meanwhile, this part ends before it: the next part finds it. */
static void claim(struct part *p)
{
	gpc_key keys[CHUNK];
	uint32_t i;
	int err;

	for (i = 0; i < p->m; i++)
		keys[i] = p->key[p->at[i]];
	err = gpc_claim(p->t->c, keys, p->ram, p->m, p->claim, 0, ms_left(p->deadline));
	if (err < 0) {
		cut_items(p, 0, err);
		return;
	}
	for (i = 0; i < p->m && p->claim[i].state == GPC_CLAIM_MINE; i++)
		;
	if (i < p->m)
		cut_items(p, i, p->claim[i].state == GPC_CLAIM_PENDING ? -EALREADY : 0);
}

/* ---- step 3: the bytes ---- */

static uint32_t counter_of(int result)
{
	switch (result) {
	case -ENOENT:
	case -ESTALE:
	case -EAGAIN:
		return TIER_ABSENT;
	case -EBADMSG:
		return TIER_BAD;
	case -ETIME:
	case -EINPROGRESS:
		return TIER_LATE;
	default:
		return TIER_ERRORS;
	}
}

/* An image that is damaged, or not there, is no block any more, so that nobody asks for it again.
 * Blocks after it stay, since their own bytes are good.  A hint with descendants stays, too,
 * since the store may get its key again. */
static void remove_lower(struct lower *d, gpc_block *block, const gpc_key *key)
{
	gpc *c = d->t->c;

	if (gpc_reclaim(c, key, block, 1, NULL, 0, CALL_MS) == 1) {
		slots_returned(d, *block);
	} else {
		if (lower_is_store(d))
			slots_lost(d, *block, true);
		else
			gpc_drop(c, block, 1, NULL, GPC_ONLY, 0);
		unhold_quietly(c, block, 1);
	}
	*block = GPC_NONE;
}

static void read_all(struct part *p)
{
	uint32_t i, pieces = images_pieces(p->map), first = p->m, n = images_sums(p->map);

	images_seeds(p->map, p->sums);
	for (i = 0; i < p->m; i++) {
		p->item[i] = (struct tier_item){
			.slot = (uint64_t)GPC_SLOT(p->from[i]),
			.key = p->key[p->at[i]],
			.ram = p->ram[i],
			.iov = p->iov + i * pieces,
			.niov = pieces,
			.sum.seed = sums_fold(p->sums, n),
			.parts = { n, p->lower->block_bytes / n,
				   p->map->trailers.at ? p->sums : NULL, p->sums + (i + 1) * n },
		};
		images_iov(p->map, p->ram[i], p->iov + i * pieces);
	}
	if (p->lower->file)
		tier_disk_read(p->lower, p->item, p->m, p->deadline);
	else
		tier_remote_read(p->lower->store, p->item, p->m, p->deadline);
	for (i = p->m; i--;) {
		int result = p->item[i].result;

		if (!result)
			continue;
		first = i;
		if (result == -EINPROGRESS)
			p->ram[i] = GPC_NONE;
		tier_count(p->lower, counter_of(result), 1);
		if (result == -EBADMSG || result == -ENOENT || result == -ESTALE)
			remove_lower(p->lower, &p->from[i], &p->key[p->at[i]]);
	}
	if (first < p->m)
		cut_items(p, first,
			  p->item[first].result == -EAGAIN ? -ENOENT : p->item[first].result);
}

/* ---- step 4: the publish ---- */

static void leave_lower(struct part *p, uint32_t i, bool brought)
{
	gpc *c = p->t->c;

	if (brought && p->lower->exclusive &&
	    gpc_reclaim(c, &p->key[p->at[i]], &p->from[i], 1, NULL, 0, CALL_MS) == 1)
		slots_returned(p->lower, p->from[i]);
	else if (brought)
		gpc_release(c, &p->from[i], 1); /* it counts as a use */
	else
		unhold_quietly(c, &p->from[i], 1);
}

/* If the writer refuses a block, the prefix ends; if a block has come meanwhile, it does not. */
static void settle(struct part *p, const gpc_block *resident)
{
	uint32_t i, end = p->n, brought = 0;

	for (i = 0; i < p->m; i++) {
		bool here = resident[i] == p->ram[i];

		brought += here;
		leave_lower(p, i, here);
		if (here)
			continue;
		gpc_release(p->t->c, &p->ram[i], 1);
		if (resident[i] >= 0)
			continue;
		tier_count(p->lower, resident[i] == -ESTALE ? TIER_OVERTAKEN : TIER_REFUSED, 1);
		if (p->at[i] < end) {
			end = p->at[i];
			p->why = resident[i];
		}
	}
	p->n = end;
	tier_count(p->lower, TIER_BROUGHT, brought);
	tier_count(p->lower, TIER_BROUGHT_BYTES, brought * p->lower->block_bytes);
}

static void publish(struct part *p)
{
	struct publish_copy copy[CHUNK];
	gpc_block resident[CHUNK];
	uint32_t i;
	int got;

	for (i = 0; i < p->m; i++) {
		const struct about *a = &p->about[i];

		images_store_sum(p->t->c, p->map, p->ram[i], &p->key[p->at[i]], &p->item[i].sum,
				 &p->item[i].parts);
		copy[i] = (struct publish_copy){
			.key = p->key[p->at[i]],
			.parent = a->parent,
			.block = p->ram[i],
			.tag = a->tag,
			.unchained = a->unchained,
			.source = p->from[i],
			.life = WORD_GEN(a->word) + 1,
			.since = p->since,
		};
		if (!lower_is_store(p->lower))
			continue;
		/* these are the header's values, which are verified */
		copy[i].parent = p->item[i].parent;
		copy[i].tag = p->item[i].tag;
		copy[i].unchained = false;
		/* its hint was learned from a question, and may follow no block of this one */
		kin_enter(&p->t->kin, p->lower->record + (uint32_t)GPC_SLOT(p->from[i]),
			  &copy[i].parent, true);
	}
	for (i = 0; i < p->m; i++)
		resident[i] = -ENOTCONN;
	got = publish_copies(p->t->c, copy, p->m, resident, &p->t->stop);
	if (got < 0)
		p->why = got;
	settle(p, resident);
	p->m = 0;
}

/* ---- a question ---- */

/* The number of keys from `from` on that are in VRAM or RAM now.  p->why: 0, all of this part. */
static uint32_t bring(struct part *p)
{
	p->m = 0;
	p->why = 0;
	p->lower = NULL;
	p->map = NULL;
	p->iov = NULL;
	p->sums = NULL;
	p->parent = GPC_NONE;
	p->since = load_acquire(&p->t->since); /* pairs with (z) of tiers/steward/drops.c */
	find(p);
	if (p->m)
		hold_parent(p);
	if (p->m)
		reserve(p);
	if (p->m)
		claim(p);
	if (p->m)
		read_all(p);
	if (p->m)
		publish(p);
	cut_items(p, 0, p->why);
	unhold_quietly(p->t->c, &p->parent, 1);
	if (p->map)
		map_put(p->t->c, p->map);
	free(p->iov);
	free(p->sums);
	return p->n;
}

/* Another thread of ours brings this key: wait for it. */
static bool wait_own(struct part *p, uint32_t from)
{
	uint32_t i;

	for (i = 0; i < CHUNK && !key_same(&p->claim[i].key, &p->key[from]); i++)
		;
	if (i == CHUNK || p->claim[i].state != GPC_CLAIM_PENDING ||
	    p->claim[i].peer != (int32_t)p->t->c->peer)
		return false;
	while (claim_is_pending(p->t->c, &p->claim[i])) {
		if (clock_ns() >= p->deadline || steward_stops(p->t))
			return false;
		clock_sleep(PENDING_NS);
	}
	return true;
}

/* The question's keys, as they are now, since a peer may scribble on them later. */
static uint32_t take_keys(const struct shm_ask *a, uint32_t first, uint32_t n, gpc_key *keys)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		keys[i].w[0] = load_relaxed(&a->key[first + i][0]);
		keys[i].w[1] = load_relaxed(&a->key[first + i][1]);
		if (key_is_zero(&keys[i]) || key_is_root(&keys[i]))
			break;
	}
	return i;
}

/* The key at `from` is unknown here.  A store may have it, and some of the following keys.  It is
 * asked once for each question. */
static bool learn_more(struct gpc_tiers *t, const struct shm_ask *a, uint32_t from, uint32_t n,
		       uint64_t deadline)
{
	gpc_key *keys = malloc((size_t)(n - from) * sizeof(*keys));
	bool more = keys && learn(t, keys, take_keys(a, from, n - from, keys), deadline) > 0;

	free(keys);
	return more;
}

static uint32_t answer(struct gpc_tiers *t, const struct shm_ask *a, uint32_t n, int *why)
{
	uint64_t asked = load_relaxed(&a->deadline_ns), most = clock_ns() + READ_NS;
	struct part p = { .t = t,
			  .to = (uint32_t)a->to,
			  .deadline = asked ? MIN(asked, most) : most };
	uint32_t got = 0, had;
	bool asked_store = false;

	*why = 0;
	while (got < n && !*why) {
		board_beat(t);
		p.n = take_keys(a, got, MIN(n - got, CHUNK), p.key);
		p.before = (gpc_key){ { 0, 0 } };
		if (got)
			take_keys(a, got - 1, 1, &p.before);
		if (!p.n)
			break;
		if (clock_ns() >= p.deadline || steward_stops(t)) {
			*why = steward_stops(t) ? -ENOTCONN : -ETIMEDOUT;
			break;
		}
		had = bring(&p);
		got += had;
		*why = p.why;
		if (*why == -EALREADY && wait_own(&p, had))
			*why = 0;
		if (*why == -ENOENT && !asked_store) {
			asked_store = true;
			*why = learn_more(t, a, got, n, p.deadline) ? 0 : -ENOENT;
		}
	}
	return got;
}

static void answer_one(struct gpc_tiers *t, struct shm_ask *a, uint32_t word)
{
	struct shm_board *d = seg_board(&t->c->seg);
	uint32_t n = MIN(load_relaxed(&a->n), SHM_ASK_KEYS), got;
	int why;

	if (load_relaxed(&a->how) == ASK_BELOW) {
		why = 0;
		got = wanted_answer(t, a, n, &why);
	} else {
		got = answer(t, a, n, &why);
		count_add(&d->hits, got);
		count_add(&d->misses, n - got);
	}
	count_add(&d->asks, 1);
	store_relaxed(&a->got, (int32_t)got);
	store_relaxed(&a->why, why);
	/* (l) the answer is stored before DONE; pairs with ask_wait().  If we die before it, the
	 * next steward answers once more. */
	order_cas32(&a->word, word, ASK_WORD(ASK_DONE, ASK_SEQ(word)));
	if (load_relaxed(&a->waits))
		futex_wake_all(&a->word);
}

/* The seats have turns, so that no peer's questions wait for all questions of another peer. */
static bool take_one(struct gpc_tiers *t, uint32_t *turn)
{
	const struct segment *s = &t->c->seg;
	uint32_t peers = s->header.geometry.max_peers, k, i, word, peer;

	for (k = 0; k < peers; k++) {
		peer = (*turn + k) % peers;
		for (i = 0; i < SHM_ASKS; i++) {
			struct shm_ask *a = seg_ask(s, peer, i);

			/* pairs with (k) of bytes/payload/ask.c: the question is stored before
			 * POSTED */
			word = load_acquire(&a->word);
			if (ASK_STATE(word) != ASK_POSTED || !segment_peer_alive(s, peer))
				continue;
			if (!order_cas32(&a->word, word, ASK_WORD(ASK_TAKEN, ASK_SEQ(word))))
				continue;
			*turn = peer + 1;
			answer_one(t, a, ASK_WORD(ASK_TAKEN, ASK_SEQ(word)));
			return true;
		}
	}
	return false;
}

void up_thread(struct gpc_tiers *t)
{
	uint32_t turn = 0, seen;

	while (!steward_stops(t)) {
		seen = board_bell(t);
		board_beat(t);
		if (!take_one(t, &turn))
			board_sleep(t, seen, IDLE_NS);
	}
}
